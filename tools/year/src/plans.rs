//! The product's popularity and placement, fed with what the model has: nothing is decided here.

use model::id::Item;
use model::number::{NumberSet, index};
use model::rendezvous::Lot;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes, Hour};
use placement::plan::{
    Catalogue as Pieces, Cluster, ClusterPlan, Density, Handing, Handover, Member, MemberPlan,
    Order, Piece, Share, Wanted, handover,
};
use popularity::{Bounds, Demand, Launch, Like, Outlook};

use crate::catalogue::{Catalogue, RENDITIONS, Unit};
use crate::number::{real, whole};
use crate::sessions::SLOTS;
use crate::shelves::{Pieces as Shelved, Shelf};
use crate::sites::Kind;

/// A Monday, 2027-01-04: the first day of the model begins in it.
const FIRST_DAY: u32 = 20_822;

/// The pieces of the catalogue on a day, those of so many versions.
pub(crate) fn pieces(catalogue: &Catalogue, versions: usize, unit: Unit) -> Pieces {
    let lens = &catalogue.lens[..versions * index(RENDITIONS)];
    let piece = |(at, lens): (u32, &[u64])| Piece {
        item: Item(at * unit.items()),
        version: at * unit.items() / RENDITIONS,
        len: Bytes(lens.iter().sum()),
    };
    Pieces::new((0..).zip(lens.chunks(index(unit.items()))).map(piece).collect())
}

/// What is wanted of items, as what is wanted of pieces.
pub(crate) fn of_unit(wanted: &[Wanted], unit: Unit) -> Vec<Wanted> {
    let mut sums: Vec<Wanted> = Vec::with_capacity(wanted.len());
    for of in wanted {
        let item = Item(of.item.0 - of.item.0 % unit.items());
        match sums.last_mut().filter(|last| last.item == item) {
            Some(sum) => {
                sum.day += of.day;
                sum.peak = BitsPerSecond(sum.peak.0 + of.peak.0);
            }
            None => sums.push(Wanted { item, ..*of }),
        }
    }
    sums
}

/// Bytes by item and hour, as what is wanted.
pub(crate) fn as_wanted(by_item: &[[u64; SLOTS]]) -> Vec<Wanted> {
    let wanted = |(item, slots): (u32, &[u64; SLOTS])| {
        let (day, busiest) = (slots.iter().sum(), slots.iter().max().copied().unwrap_or(0));
        Wanted { item: Item(item), day: Bytes(day), peak: Bytes(busiest).per(Hour::LEN) }
    };
    (0..).zip(by_item).map(wanted).filter(|of| of.day != Bytes::ZERO).collect()
}

/// What each piece is worth by bytes wanted for each stored; by item.
pub(crate) fn worth(wanted: &[Wanted], lens: &[u64]) -> Vec<f64> {
    let mut worth = vec![0.0; lens.len()];
    for of in wanted {
        let at = index(of.item.0);
        worth[at] = real(of.day.0) / real(lens[at]);
    }
    worth
}

/// The past of a region, as the product keeps it.
#[derive(Debug)]
pub(crate) struct Past {
    demand: Demand,
    /// The hour in which the first day's window begins.
    first: Hour,
}

impl Past {
    /// In a region whose clocks are so many hours ahead, from the hour in which windows begin.
    pub(crate) fn new(ahead: i32, window: u32) -> Self {
        let first = Hour((FIRST_DAY * 24 + window).saturating_add_signed(-ahead));
        Self { demand: Demand::new(first.0 % 24, first, Bounds::default()), first }
    }

    /// The first hour of a day of the model.
    fn begin(&self, day: u32) -> Hour {
        self.first.after(day * 24)
    }

    /// A day is over.
    pub(crate) fn note(&mut self, day: u32, by_item: &[[u64; SLOTS]]) {
        let begin = self.begin(day);
        self.demand.close(begin);
        for (item, slots) in (0..).zip(by_item) {
            for (slot, bytes) in (0..).zip(slots).filter(|(_, bytes)| **bytes != 0) {
                self.demand.note(begin.after(slot), Item(item), Bytes(*bytes));
            }
        }
        self.demand.close(begin.after(24));
    }

    /// What is expected on a day, by the days before it and what the operator says of launches.
    pub(crate) fn forecast(&self, day: u32, launches: &[Told]) -> Vec<Wanted> {
        let launch = |told: &Told| Launch {
            item: Item(told.item),
            begin: self.begin(told.day).after(told.slot),
            like: Like::Bytes(Bytes(whole(told.bytes))),
        };
        let launches: Vec<Launch> = launches.iter().map(launch).collect();
        let outlook = Outlook { launches: &launches, shown: &[] };
        let config = &popularity::Config::USUAL;
        let expected = popularity::forecast(&self.demand, self.begin(day), &outlook, config);
        let wanted =
            |(item, of): (Item, popularity::Expected)| Wanted { item, day: of.day, peak: of.peak };
        expected.into_iter().map(wanted).collect()
    }
}

/// What the operator says of an item that is launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) item: u32,
    pub(crate) day: u32,
    pub(crate) slot: u32,
    /// On a whole day in the region.
    pub(crate) bytes: f64,
}

/// What the members of a cluster have when a plan is made.
pub(crate) enum Before<'a> {
    /// All may be fetched, and nothing is held.
    Nothing,
    Shelves {
        shelves: &'a [Shelf],
        lens: &'a [u64],
        /// Bytes that each may be filled with until the next plan.
        fill: u64,
    },
}

/// What each member of a site of this kind should hold. `share` is its part of the region's demand,
/// `throughput` in bytes an hour.
pub(crate) fn plan(
    order: &Order<'_>,
    kind: &Kind,
    share: f64,
    throughput: f64,
    before: &Before<'_>,
) -> Vec<NumberSet> {
    let none = NumberSet::new();
    let member = |(at, of): (usize, &crate::sites::Member)| {
        let (holds, fill) = match before {
            Before::Nothing => (&none, of.room),
            Before::Shelves { shelves, lens, fill } => {
                (shelves[at].planned(), fill.saturating_sub(shelves[at].lacks(lens)))
            }
        };
        Member {
            lot: Lot::of(format!("{} {at}", kind.name).as_bytes()),
            weight: Weight::ONE,
            room: Bytes(of.room),
            throughput: Some(Bytes(whole(throughput * of.part)).per(Hour::LEN)),
            holds,
            fill: Bytes(fill),
            apart: None,
        }
    };
    let members: Vec<Member<'_>> = kind.members.iter().enumerate().map(member).collect();
    let share = Share(u32::try_from(whole(share * 1e6)).unwrap_or(u32::MAX));
    let cluster =
        Cluster { members: &members, share, pins: &none, bans: &none, alone: &none, apart: &[] };
    let mut plan = placement::plan::place_cluster(order, &cluster, &CONFIG);
    placement::plan::fill_spare(order, &cluster, &CONFIG, &mut plan);
    plan.members.into_iter().map(|member| member.items).collect()
}

/// The members of a site that hand over.
struct Site<'a> {
    shelves: &'a [Shelf],
    pieces: Shelved<'a>,
}

impl Handing for Site<'_> {
    fn has(&self, member: usize, item: Item) -> Option<bool> {
        Some(self.shelves[member].holds().contains(item.0))
    }

    fn density(&self, item: Item) -> Density {
        Density(whole(self.pieces.worth(item.0) * real(1 << 20)))
    }

    fn room(&self, item: Item) -> (Bytes, Bytes) {
        (Bytes(self.pieces.len(item.0)), Bytes::ZERO)
    }

    fn is_alone(&self, _: Item) -> bool {
        false
    }
}

/// What stays at each member until another that is to hold it has it, as the product decides it.
pub(crate) fn handovers(
    shelves: &[Shelf],
    planned: &[NumberSet],
    pieces: Shelved<'_>,
) -> Vec<Handover> {
    let (none, share) = (NumberSet::new(), Share::ALL);
    let cluster =
        Cluster { members: &[], share, pins: &none, bans: &none, alone: &none, apart: &[] };
    let member = |(shelf, items): (&Shelf, &NumberSet)| {
        let len: u64 = items.iter().map(|piece| pieces.len(piece)).sum();
        let room_left = Bytes(shelf.room().saturating_sub(len));
        MemberPlan { items: items.clone(), room_left, ..MemberPlan::default() }
    };
    let members = shelves.iter().zip(planned).map(member).collect();
    let plan = ClusterPlan { members, ..ClusterPlan::default() };
    let now: Vec<&NumberSet> = shelves.iter().map(Shelf::wanted).collect();
    handover(&cluster, &plan, &now, &Site { shelves, pieces })
}

/// Those of the product, with one copy, since most of these sites are one appliance.
const CONFIG: placement::plan::Config = placement::plan::Config::usual(1);

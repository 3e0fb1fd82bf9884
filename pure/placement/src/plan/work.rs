//! A cluster as it is being planned.

use std::ops::Range;

use model::id::Item;
use model::number::{NumberSet, index};
use model::rendezvous::Draws;
use model::topology::Weight;
use model::units::BitsPerSecond;

use super::order::{Order, Ranked};
use super::{Cluster, Config, Density, Member, real};

pub(super) struct Work<'a> {
    pub(super) order: &'a Order<'a>,
    pub(super) cluster: &'a Cluster<'a>,
    pub(super) config: &'a Config,
    /// In an order of their own, so that theirs in the input does not matter.
    pub(super) members: Vec<State<'a>>,
    /// What members held, by rank.
    pub(super) held: Vec<Held>,
    /// Items that each held and may not hold any more.
    pub(super) left_out: Vec<Vec<u32>>,
    /// Ranks of pins, ascending.
    pub(super) pins: Vec<u32>,
    /// What comes: rank and member.
    pub(super) comes: Vec<(u32, usize)>,
    /// The most that one, two and so on members carry of an item in the region.
    pub(super) carried: Vec<BitsPerSecond>,
    pub(super) cut: Cut,
    /// What each member keeps, the coldest last; empty until somebody asks.
    pub(super) cold: Vec<Vec<usize>>,
    /// The first rank that each group of members leaves to the next.
    pub(super) ends: Vec<u32>,
    /// Bytes that may move for balance.
    pub(super) exchange: u64,
    pub(super) exchanged: u64,
}

pub(super) struct State<'a> {
    /// Its place in the input.
    pub(super) at: usize,
    pub(super) of: &'a Member<'a>,
    pub(super) room: u64,
    pub(super) fill: u64,
    pub(super) load: f64,
    pub(super) throughput: f64,
    /// Those of equal throughput for their room; the richest in throughput are the first.
    pub(super) group: usize,
    /// What its site must not hold.
    pub(super) bans: Option<&'a NumberSet>,
}

impl State<'_> {
    /// It has so much room, and may hold the item.
    pub(super) fn fits(&self, of: &Ranked) -> bool {
        of.len.0 <= self.room && self.may_hold(of)
    }

    pub(super) fn may_hold(&self, of: &Ranked) -> bool {
        self.bans.is_none_or(|bans| !bans.contains(of.item.0))
    }
}

#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) rank: u32,
    member: u16,
    pub(super) state: Kept,
}

impl Held {
    pub(super) fn member(self) -> usize {
        usize::from(self.member)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kept {
    No,
    Yes,
    /// Another member has it instead.
    Moved,
}

/// How far down the order a cluster reaches.
#[derive(Clone, Copy, Default)]
pub(super) struct Cut {
    /// Ranks below may come.
    pub(super) enter: u32,
    /// What is held of ranks below stays.
    pub(super) stay: u32,
    /// The densest that did not come for want of room.
    pub(super) by_room: Density,
    /// And of those for which the fill budget was too small.
    pub(super) by_fill: Density,
    /// Bytes that are about to come, and the load that they bring.
    pub(super) bytes: f64,
    pub(super) load: f64,
    /// Bytes for which there is room and fill.
    pub(super) space: f64,
}

impl<'a> Work<'a> {
    pub(super) fn new(order: &'a Order<'a>, cluster: &'a Cluster<'a>, config: &'a Config) -> Self {
        let known = cluster.members.iter().filter_map(|member| member.throughput);
        let least = known.min().map_or(1, |least| least.0.max(1));
        let state = |(at, of): (usize, &'a Member<'a>)| State {
            at,
            bans: of.apart.map(|apart| cluster.apart[apart].bans),
            of,
            room: of.room.0,
            fill: of.fill.0,
            load: 0.0,
            throughput: real(of.throughput.map_or(least, |throughput| throughput.0.max(1))),
            group: 0,
        };
        let mut members: Vec<_> = cluster.members.iter().enumerate().map(state).collect();
        let draws = Draws::of(b"order of members");
        members.sort_by_key(|member| draws.score(member.of.lot, Weight::ONE));
        group(&mut members);
        let mut work = Self {
            order,
            cluster,
            config,
            members,
            held: Vec::new(),
            left_out: Vec::new(),
            pins: Vec::new(),
            comes: Vec::new(),
            carried: carried(cluster, config),
            cut: Cut::default(),
            cold: Vec::new(),
            ends: Vec::new(),
            exchange: 0,
            exchanged: 0,
        };
        work.pins = match cluster.pins_with_sites() {
            Some(all) => work.ranks(&all),
            None => work.ranks(cluster.pins),
        };
        (work.held, work.left_out) = held(order, cluster, &work.members);
        work
    }

    /// Of those that may be held, ascending.
    fn ranks(&self, items: &NumberSet) -> Vec<u32> {
        let allowed = items.iter().filter(|item| !self.cluster.bans.contains(*item));
        let mut ranks: Vec<u32> = allowed.filter_map(|item| self.order.rank(Item(item))).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Copies that an item needs.
    pub(super) fn copies(&self, peak: BitsPerSecond) -> usize {
        1 + self.carried.partition_point(|carried| *carried < peak)
    }

    /// What is expected of an item in this cluster.
    pub(super) fn peak(&self, of: &Ranked) -> f64 {
        real(of.peak.0) * f64::from(self.cluster.share.0) / 1e6
    }

    /// Where those that held a rank stand.
    pub(super) fn holders(&self, rank: u32) -> Range<usize> {
        let begin = self.held.partition_point(|held| held.rank < rank);
        let count = self.held[begin..].iter().take_while(|held| held.rank == rank).count();
        begin..begin + count
    }

    /// How many held a rank, the first of whom is at `begin` or would be.
    pub(super) fn count(&self, begin: usize, rank: u32) -> usize {
        self.held[begin..].iter().take_while(|held| held.rank == rank).count()
    }

    /// The members that keep a rank.
    pub(super) fn kept(&self, holders: Range<usize>) -> Vec<usize> {
        let kept = self.held[holders].iter().filter(|held| held.state == Kept::Yes);
        kept.map(|held| held.member()).collect()
    }

    /// There are as many copies as are needed, where they were or at another member.
    pub(super) fn has_all(&self, of: &Ranked, holders: Range<usize>) -> bool {
        let there = self.held[holders].iter().filter(|held| held.state != Kept::No).count();
        self.copies(of.peak) <= there
    }

    /// Divides a peak among holders, by weight.
    pub(super) fn add_load(&mut self, peak: f64, holders: &[usize]) {
        let all = self.weight(holders);
        for at in holders {
            let part = self.weight(&[*at]) / all;
            self.members[*at].load += peak * part;
        }
    }

    /// The weight of these members together.
    pub(super) fn weight(&self, members: &[usize]) -> f64 {
        members.iter().map(|at| f64::from(self.members[*at].of.weight.value())).sum()
    }

    /// What a member will have to do, by what it can do, when its room is filled with what comes.
    pub(super) fn busy(&self, member: &State<'_>) -> f64 {
        (member.load + real(member.room.min(member.fill)) * self.each()) / member.throughput
    }

    /// The load that each byte brings that is about to come.
    pub(super) fn each(&self) -> f64 {
        if self.cut.bytes <= 0.0 { 0.0 } else { self.cut.load / self.cut.bytes.max(self.cut.space) }
    }

    /// Has a copy come.
    pub(super) fn take(&mut self, rank: u32, of: &Ranked, to: usize) {
        let member = &mut self.members[to];
        assert!(of.len.0 <= member.room, "no more is given than fits");
        assert!(of.len.0 <= member.fill, "no more comes than the window lets");
        (member.room, member.fill) = (member.room - of.len.0, member.fill - of.len.0);
        self.cut.bytes = (self.cut.bytes - real(of.len.0)).max(0.0);
        self.cut.space = (self.cut.space - real(of.len.0)).max(0.0);
        self.comes.push((rank, to));
    }

    pub(super) fn is_banned(&self, of: &Ranked) -> bool {
        !self.cluster.bans.is_empty() && self.cluster.bans.contains(of.item.0)
    }
}

/// What members hold that they may, by rank and member; and items that they held and may not, or
/// that the catalogue has no more, by member.
fn held(
    order: &Order<'_>,
    cluster: &Cluster<'_>,
    members: &[State<'_>],
) -> (Vec<Held>, Vec<Vec<u32>>) {
    let mut left_out = Vec::with_capacity(members.len());
    let mut sorted = Sorted::new(order.wanted(), members);
    for (at, member) in members.iter().enumerate() {
        let mut others = Vec::new();
        let has = |bans: &NumberSet, item: u32| !bans.is_empty() && bans.contains(item);
        for item in member.of.holds {
            let is_banned =
                has(cluster.bans, item) || member.bans.is_some_and(|bans| has(bans, item));
            match order.rank(Item(item)).filter(|_| !is_banned) {
                Some(rank) => sorted.push(rank, at),
                None => others.push(item),
            }
        }
        left_out.push(others);
    }
    (sorted.done(), left_out)
}

/// Sorts what is held by rank and member. Ranks that are wanted have a bit for each member, so that
/// nothing is compared: O(held + members x end / 64). Others are few; and in clusters of more than
/// so many members all are others.
struct Sorted {
    end: u32,
    /// The bits of the first 64 ranks, of each member, then those of the next.
    bits: Vec<u64>,
    members: usize,
    count: usize,
    others: Vec<(u32, u16)>,
}

impl Sorted {
    fn new(wanted: u32, members: &[State<'_>]) -> Self {
        let (end, members) = (if members.len() <= 64 { wanted } else { 0 }, members.len());
        let bits = vec![0; index(end.div_ceil(64)) * members];
        Self { end, bits, members, count: 0, others: Vec::new() }
    }

    fn push(&mut self, rank: u32, at: usize) {
        self.count += 1;
        if rank < self.end {
            self.bits[index(rank / 64) * self.members + at] |= 1 << (rank % 64);
        } else {
            self.others.push((rank, u16::try_from(at).expect("a cluster has fewer members")));
        }
    }

    fn done(mut self) -> Vec<Held> {
        let mut held = Vec::with_capacity(self.count);
        for (of, first) in self.bits.chunks(self.members.max(1)).zip((0..).step_by(64)) {
            if of.iter().any(|bits| *bits != 0) {
                sort_some(of, first, &mut held);
            }
        }
        self.others.sort_unstable();
        let others = self.others.iter().map(|(rank, member)| (*rank, *member));
        held.extend(others.map(|(rank, member)| Held { rank, member, state: Kept::No }));
        held
    }
}

/// What members hold of 64 ranks, by rank and member.
fn sort_some(of_members: &[u64], first: u32, held: &mut Vec<Held>) {
    let mut nexts = [0_usize; 65];
    for bit in of_members.iter().flat_map(|bits| ones(*bits)) {
        nexts[index(bit) + 1] += 1;
    }
    nexts[0] = held.len();
    for at in 1..nexts.len() {
        nexts[at] += nexts[at - 1];
    }
    held.resize(nexts[64], Held { rank: 0, member: 0, state: Kept::No });
    for (bits, member) in of_members.iter().zip(0..) {
        for bit in ones(*bits) {
            let next = &mut nexts[index(bit)];
            held[*next] = Held { rank: first + bit, member, state: Kept::No };
            *next += 1;
        }
    }
}

/// The places of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = bits.checked_ilog2().map(|_| bits.trailing_zeros());
        bits &= bits.wrapping_sub(1);
        bit
    })
}

/// Puts members in groups, and sorts them by these: the first is richest in throughput.
fn group(members: &mut [State<'_>]) {
    let rich = |member: &State<'_>| member.throughput / real(member.of.room.0.max(1));
    members.sort_by(|a, b| rich(b).total_cmp(&rich(a)));
    let (mut group, mut first) = (0, None);
    for member in members {
        let rich = rich(member);
        if first.is_some_and(|first| rich < first * GROUP_LEAST) {
            group += 1;
            first = None;
        }
        first.get_or_insert(rich);
        member.group = group;
    }
}

/// Arbitrary: members of one group differ by no more than this in throughput for their room.
const GROUP_LEAST: f64 = 2.0 / 3.0;

/// The most that one, two and so on members carry of an item's peak in the region; without all.
fn carried(cluster: &Cluster<'_>, config: &Config) -> Vec<BitsPerSecond> {
    let mut each: Vec<u64> =
        cluster.members.iter().filter_map(|member| Some(member.throughput?.0)).collect();
    each.sort_unstable_by(|a, b| b.cmp(a));
    let share = u128::from(cluster.share.0.max(1));
    let mut all = 0;
    let carried = each.iter().map(|throughput| {
        all += u128::from(*throughput) * u128::from(config.item_permille) * 1000 / share;
        BitsPerSecond(u64::try_from(all).unwrap_or(u64::MAX))
    });
    let mut carried: Vec<_> = carried.collect();
    carried.pop();
    carried
}

/// Arbitrary: after so many items in a row for which there is no room or no fill left, no more are
/// tried. What is left is less than what most of them take.
pub(super) const MISFITS_MAX: u32 = 256;

/// Arbitrary: ranks that are held of which a copy may move. The first few thousand have most of the
/// load.
pub(super) const LOOKS_MAX: u32 = 16_384;

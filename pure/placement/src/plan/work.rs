//! A cluster as it is being planned.

use std::ops::Range;

use model::id::Item;
use model::number::{NumberSet, index};
use model::rendezvous::Draws;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};

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
    /// Ranks of pins, ascending.
    pub(super) pins: Vec<u32>,
    /// Ranks of what gone members held, ascending, without pins.
    pub(super) lost: Vec<u32>,
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
    /// The place of its site among those of which more is said.
    pub(super) apart: Option<usize>,
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
    /// Ranks below may come that gone members held: fill is theirs first.
    pub(super) lost: u32,
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
        let apart_of = |at| cluster.apart.iter().position(|apart| apart.members.contains(&at));
        let state = |(at, of): (usize, &'a Member<'a>)| State {
            at,
            apart: apart_of(at),
            bans: apart_of(at).map(|apart| cluster.apart[apart].bans),
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
            pins: Vec::new(),
            lost: Vec::new(),
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
        work.lost = work.ranks(cluster.lost);
        work.lost.retain(|rank| work.pins.binary_search(rank).is_err());
        work.held = held(order, cluster, &work.members);
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
        let weight = |at: &usize| f64::from(self.members[*at].of.weight.value());
        let all: f64 = holders.iter().map(weight).sum();
        for at in holders {
            let part = f64::from(self.members[*at].of.weight.value()) / all;
            self.members[*at].load += peak * part;
        }
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

/// What members hold that they may, by rank and member.
fn held(order: &Order<'_>, cluster: &Cluster<'_>, members: &[State<'_>]) -> Vec<Held> {
    let count = members.iter().map(|member| member.of.holds.len()).sum::<u64>();
    let mut held = Vec::with_capacity(Bytes(count).as_usize());
    for (at, member) in members.iter().enumerate() {
        let at = u16::try_from(at).expect("a cluster has fewer members");
        let has = |bans: &NumberSet, item: u32| !bans.is_empty() && bans.contains(item);
        let allowed = |item: &u32| {
            !has(cluster.bans, *item) && !member.bans.is_some_and(|bans| has(bans, *item))
        };
        let ranks = member.of.holds.iter().filter(allowed);
        let ranks = ranks.filter_map(|item| order.rank(Item(item)));
        held.extend(ranks.map(|rank| Held { rank, member: at, state: Kept::No }));
    }
    sort(&mut held, order.wanted());
    held
}

/// Sorts by rank and member. Most ranks are below `end`, and about evenly so: they go to buckets of
/// a few first.
fn sort(held: &mut Vec<Held>, end: u32) {
    let key = |held: &Held| (held.rank, held.member);
    let bits = end.checked_ilog2().unwrap_or(0) + 1;
    let shift = bits.saturating_sub(held.len().checked_ilog2().unwrap_or(0).saturating_sub(3));
    let bucket = |held: &Held| index((held.rank.min(end)) >> shift);
    let mut begins = vec![0_usize; bucket(&Held { rank: end, member: 0, state: Kept::No }) + 2];
    held.iter().for_each(|held| begins[bucket(held) + 1] += 1);
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    let mut sorted = held.clone();
    let mut nexts = begins.clone();
    for held in &*held {
        let next = &mut nexts[bucket(held)];
        sorted[*next] = *held;
        *next += 1;
    }
    for of in begins.windows(2) {
        sorted[of[0]..of[1]].sort_unstable_by_key(key);
    }
    *held = sorted;
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

//! A cluster as it is being planned.

use std::ops::Range;

use model::id::Item;
use model::number::NumberSet;
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
    /// Ranks of pins, ascending.
    pub(super) pins: Vec<u64>,
    /// Ranks of what gone members held, ascending, without pins.
    pub(super) lost: Vec<u64>,
    /// What comes: rank and member.
    pub(super) comes: Vec<(u64, usize)>,
    /// The most that one, two and so on members carry of an item in the region.
    pub(super) carried: Vec<BitsPerSecond>,
    pub(super) cut: Cut,
    /// The first rank that each group of members leaves to the next.
    pub(super) ends: Vec<u64>,
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
}

pub(super) struct Held {
    pub(super) rank: u64,
    pub(super) member: usize,
    pub(super) state: Kept,
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
    pub(super) enter: u64,
    /// Ranks below may come that gone members held: fill is theirs first.
    pub(super) lost: u64,
    /// What is held of ranks below stays.
    pub(super) stay: u64,
    /// The densest that did not come for want of room.
    pub(super) by_room: Density,
    /// And of those for which the fill budget was too small.
    pub(super) by_fill: Density,
    /// Bytes that are about to come, and the load that they bring.
    pub(super) bytes: f64,
    pub(super) load: f64,
}

impl<'a> Work<'a> {
    pub(super) fn new(order: &'a Order<'a>, cluster: &'a Cluster<'a>, config: &'a Config) -> Self {
        let known = cluster.members.iter().filter_map(|member| member.throughput);
        let least = known.min().map_or(1, |least| least.0.max(1));
        let state = |(at, of): (usize, &'a Member<'a>)| State {
            at,
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
            ends: Vec::new(),
            exchange: 0,
            exchanged: 0,
        };
        work.pins = work.ranks(cluster.pins);
        work.lost = work.ranks(cluster.lost);
        work.lost.retain(|rank| work.pins.binary_search(rank).is_err());
        for (at, member) in work.members.iter().enumerate() {
            let ranks = member.of.holds.iter().filter(|item| !cluster.bans.contains(*item));
            let ranks = ranks.filter_map(|item| order.rank(Item(item)));
            work.held.extend(ranks.map(|rank| Held { rank, member: at, state: Kept::No }));
        }
        work.held.sort_unstable_by_key(|held| (held.rank, held.member));
        work
    }

    /// Of those that may be held, ascending.
    fn ranks(&self, items: &NumberSet) -> Vec<u64> {
        let allowed = items.iter().filter(|item| !self.cluster.bans.contains(*item));
        let mut ranks: Vec<u64> = allowed.filter_map(|item| self.order.rank(Item(item))).collect();
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
    pub(super) fn holders(&self, rank: u64) -> Range<usize> {
        let begin = self.held.partition_point(|held| held.rank < rank);
        let count = self.held[begin..].iter().take_while(|held| held.rank == rank).count();
        begin..begin + count
    }

    /// How many held a rank, the first of whom is at `begin` or would be.
    pub(super) fn count(&self, begin: usize, rank: u64) -> usize {
        self.held[begin..].iter().take_while(|held| held.rank == rank).count()
    }

    pub(super) fn is_banned(&self, of: &Ranked) -> bool {
        !self.cluster.bans.is_empty() && self.cluster.bans.contains(of.item.0)
    }
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

//! What no cluster of a region took.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use model::rendezvous::{Draws, Score};
use model::units::Bytes;

use super::order::{Order, Ranked};
use super::work::MISFITS_MAX;
use super::{Cluster, ClusterPlan, RegionPlan};

/// Gives each item that no cluster of a region took to a member with room and fill left: to the
/// one with least throughput for its room (storage first), and among these to the emptiest. The
/// rest stays at the origin. `plans` are those of the clusters, in their order. O(pieces + items
/// placed + items given x (log members + members that are passed by)): those that are as empty as
/// the one that takes it, and those that are emptier and may not, or have too little fill left.
pub fn place_region(
    order: &Order<'_>,
    clusters: &[Cluster<'_>],
    plans: &mut [ClusterPlan],
) -> RegionPlan {
    assert_eq!(clusters.len(), plans.len(), "each cluster has a plan");
    let mut at_origin = order.catalogue().items().clone();
    for member in plans.iter().flat_map(|plan| &plan.members) {
        at_origin -= &member.items;
    }
    let mut open =
        Open { clusters, plans, least: order.catalogue().least(), queue: BTreeSet::new() };
    for (cluster, of) in clusters.iter().enumerate() {
        (0..of.members.len()).for_each(|at| open.enter(cluster, at));
    }
    let mut misfits = 0;
    for rank in 0..order.end() {
        if open.queue.is_empty() || misfits == MISFITS_MAX {
            break;
        }
        let Some(of) = order.at(rank).filter(|of| at_origin.contains(of.item.0)) else { continue };
        if open.give(&of) {
            at_origin.remove(of.item.0);
            misfits = 0;
        } else {
            misfits += 1;
        }
    }
    RegionPlan { at_origin }
}

/// Members with room and fill left.
struct Open<'a> {
    clusters: &'a [Cluster<'a>],
    plans: &'a mut [ClusterPlan],
    least: Bytes,
    /// The next to be given something is the first.
    queue: BTreeSet<Waiting>,
}

/// Throughput for the room, room left, cluster and place there.
type Waiting = (u32, Reverse<Bytes>, usize, usize);

impl Open<'_> {
    fn enter(&mut self, cluster: usize, at: usize) {
        let (member, plan) =
            (&self.clusters[cluster].members[at], &self.plans[cluster].members[at]);
        if plan.is_open(member, self.least) {
            self.queue.insert((rich(member), Reverse(plan.room_left), cluster, at));
        }
    }

    /// False if nobody can take it.
    fn give(&mut self, of: &Ranked) -> bool {
        let Some(to) = self.choose(of) else { return false };
        let (_, _, cluster, at) = to;
        self.queue.remove(&to);
        self.plans[cluster].members[at].take(of);
        self.enter(cluster, at);
        true
    }

    /// The first that can take it; of several that are as empty, the one of the best draw.
    fn choose(&self, of: &Ranked) -> Option<Waiting> {
        let draws = Draws::of(&of.version.to_le_bytes());
        let mut best: Option<(Score, Waiting)> = None;
        for other in &self.queue {
            let (rich, room, cluster, at) = *other;
            if best.is_some_and(|(_, best)| (best.0, best.1) != (rich, room)) {
                break;
            }
            let fits = of.len <= room.0.min(self.plans[cluster].members[at].fill_left);
            if !fits || self.clusters[cluster].is_banned(at, of.item) {
                continue;
            }
            let member = &self.clusters[cluster].members[at];
            let score = draws.score(member.lot, member.weight);
            if best.is_none_or(|(best, _)| score < best) {
                best = Some((score, *other));
            }
        }
        best.map(|(_, best)| best)
    }
}

/// Throughput for the room, as a power of two: members that differ by less are equals here.
fn rich(member: &super::Member<'_>) -> u32 {
    let throughput = member.throughput.map_or(0, |throughput| throughput.0);
    let rich = (u128::from(throughput) << 40) / u128::from(member.room.0.max(1));
    u128::BITS - rich.leading_zeros()
}

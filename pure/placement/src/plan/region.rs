//! What no cluster of a region took.

use std::cmp::Reverse;

use model::rendezvous::Draws;

use super::order::Order;
use super::work::MISFITS_MAX;
use super::{Cluster, ClusterPlan, RegionPlan};

/// Gives each item that no cluster of a region took to a member with room and fill left: to the
/// one with least throughput for its room (storage first), and among these to the emptiest. The
/// rest stays at the origin. `plans` are those of the clusters, in their order. O(pieces + items
/// placed + items given x members).
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
    let mut open = Vec::new();
    for (cluster, of) in clusters.iter().enumerate() {
        let members = of.members.iter().enumerate();
        open.extend(members.map(|(at, member)| (rich(member), cluster, at)));
    }
    let least = order.catalogue().least();
    open.retain(|(_, cluster, at)| {
        plans[*cluster].members[*at].is_open(&clusters[*cluster].members[*at], least)
    });
    let mut misfits = 0;
    for rank in 0..order.end() {
        if open.is_empty() || misfits == MISFITS_MAX {
            break;
        }
        let Some(of) = order.at(rank).filter(|of| at_origin.contains(of.item.0)) else { continue };
        let free = open.iter().filter(|(_, cluster, at)| {
            let to = &plans[*cluster].members[*at];
            let is_banned = clusters[*cluster].is_banned(*at, of.item);
            of.len <= to.room_left && of.len <= to.fill_left && !is_banned
        });
        let draws = Draws::of(&of.version.to_le_bytes());
        let to = free.min_by_key(|(rich, cluster, at)| {
            let member = &clusters[*cluster].members[*at];
            let room = plans[*cluster].members[*at].room_left;
            (*rich, Reverse(room), draws.score(member.lot, member.weight))
        });
        if let Some((_, cluster, at)) = to {
            plans[*cluster].members[*at].take(&of);
            at_origin.remove(of.item.0);
            misfits = 0;
            let is_open = |(_, cluster, at): &(u32, usize, usize)| {
                plans[*cluster].members[*at].is_open(&clusters[*cluster].members[*at], least)
            };
            open.retain(is_open);
        } else {
            misfits += 1;
        }
    }
    RegionPlan { at_origin }
}

/// Throughput for the room, as a power of two: members that differ by less are equals here.
fn rich(member: &super::Member<'_>) -> u32 {
    let throughput = member.throughput.map_or(0, |throughput| throughput.0);
    let rich = (u128::from(throughput) << 40) / u128::from(member.room.0.max(1));
    u128::BITS - rich.leading_zeros()
}

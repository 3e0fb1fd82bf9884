//! From a cluster that is planned to what its members should hold.

use model::number::NumberSet;
use model::units::{BitsPerSecond, Bytes};

use super::work::{Kept, State, Work};
use super::{ClusterPlan, MemberPlan, real, whole};

/// What each member should hold, of a cluster whose work is done. O(held + comes log comes).
pub(super) fn finish(mut work: Work<'_>) -> ClusterPlan {
    work.comes.sort_unstable();
    let served = count_load(&mut work);
    let mut plans = vec![MemberPlan::default(); work.members.len()];
    let changes = changes(&mut work);
    for (member, (comes, kept)) in work.members.iter().zip(changes) {
        plans[member.at] = MemberPlan {
            items: items(member, comes, kept),
            room_left: Bytes(member.room),
            fill_left: Bytes(member.fill),
            load: BitsPerSecond(whole(member.load)),
        };
    }
    ClusterPlan {
        members: plans,
        cutoff: work.cut.by_room,
        unfilled: work.cut.by_fill,
        served: Bytes(whole(served)),
        exchanged: Bytes(work.exchanged),
    }
}

/// What each member will serve at peak, and what all will serve in a day.
fn count_load(work: &mut Work<'_>) -> f64 {
    work.members.iter_mut().for_each(|member| member.load = 0.0);
    let comes = std::mem::take(&mut work.comes);
    let (mut held, mut come, mut served) = (0, 0, 0.0);
    let mut holders = Vec::new();
    loop {
        // No rank is so high.
        let next = work.held.get(held).map_or(u32::MAX, |of| of.rank);
        let rank = comes.get(come).map_or(next, |of| next.min(of.0));
        if rank == u32::MAX {
            break;
        }
        holders.clear();
        while let Some(of) = work.held.get(held).filter(|of| of.rank == rank) {
            if of.state == Kept::Yes {
                holders.push(of.member());
            }
            held += 1;
        }
        while let Some((_, member)) = comes.get(come).filter(|of| of.0 == rank) {
            holders.push(*member);
            come += 1;
        }
        if let Some(of) = work.order.at(rank).filter(|of| of.day != Bytes::ZERO)
            && !holders.is_empty()
        {
            work.add_load(work.peak(&of), &holders);
            served += real(of.day.0) * f64::from(work.cluster.share.0) / 1e6;
        }
    }
    work.comes = comes;
    served
}

/// What comes to each member, and what stays of what it held.
fn changes(work: &mut Work<'_>) -> Vec<(Vec<u32>, Stays)> {
    let left_out = std::mem::take(&mut work.left_out).into_iter();
    let mut changes: Vec<_> = left_out.map(|goes| (Vec::new(), Stays { count: 0, goes })).collect();
    let item = |rank| work.order.at(rank).map(|of| of.item.0);
    for (rank, member) in &work.comes {
        changes[*member].0.extend(item(*rank));
    }
    for held in &work.held {
        let stays = &mut changes[held.member()].1;
        match held.state {
            Kept::Yes => stays.count += 1,
            Kept::No | Kept::Moved => stays.goes.extend(item(held.rank)),
        }
    }
    changes
}

/// What stays of what a member held: all but these, if they are all that do not.
struct Stays {
    count: u64,
    goes: Vec<u32>,
}

fn items(member: &State<'_>, comes: Vec<u32>, stays: Stays) -> NumberSet {
    let mut items = set(comes);
    if stays.count == 0 {
        return items;
    }
    let mut held = member.of.holds.clone();
    held -= set(stays.goes);
    assert_eq!(held.len(), stays.count, "what stays is what was kept");
    items |= held;
    items
}

fn set(mut items: Vec<u32>) -> NumberSet {
    items.sort_unstable();
    NumberSet::from_sorted_iter(items).expect("they were sorted, and each is there once")
}

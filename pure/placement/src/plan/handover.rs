//! What members hold until others have what moves to them.
//!
//! ```text
//! held here, planned elsewhere
//!   ├─ all members that are to hold it have it ──> it goes
//!   └─ some have not ──> it stays, in the room of what is colder and comes
//! ```
//!
//! A plan says where items are in the end. Members evict at once what is not wanted of them, and
//! fetch in their hours: without this, the item that most sessions are for may be nowhere for an
//! evening since it moves. What waits comes once the room is free.
//!
//! An item waits for a denser one alone, or for one that has no source and would be lost: so none
//! waits for another that waits for it. But two that have no source, each in the room of the other,
//! stay where they are until there is room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::id::Item;
use model::number::NumberSet;
use model::units::Bytes;

use super::{Cluster, ClusterPlan, Density};

/// What a handover must know and placement does not.
pub trait Handing {
    /// Whether a member has all of an item; none if it has not reported since this process began.
    fn has(&self, member: usize, item: Item) -> Option<bool>;
    fn density(&self, item: Item) -> Density;
    /// The room that an item takes, and the part of it that others of its version need, too.
    fn room(&self, item: Item) -> (Bytes, Bytes);
    /// It has no source: what no member holds is lost.
    fn is_alone(&self, item: Item) -> bool;
}

/// What one member holds until others have it, and what waits for its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handover {
    pub stays: NumberSet,
    pub waits: NumberSet,
}

/// For each member; `now` is what its manifest names. As many copies stay as are on their way.
/// O(sets), and O(what moves x (log + members)).
pub fn handover(
    cluster: &Cluster<'_>,
    plan: &ClusterPlan,
    now: &[&NumberSet],
    handing: &impl Handing,
) -> Vec<Handover> {
    let members = || plan.members.iter().zip(now).enumerate();
    let mut left = NumberSet::new();
    members().for_each(|(_, (member, now))| left |= *now - &member.items);
    // By item, how many members are to hold it and have not got it.
    let mut awaited: BTreeMap<u32, usize> = BTreeMap::new();
    for (at, (member, _)) in members() {
        let to_hold = &member.items & &left;
        let lacks = to_hold.iter().filter(|item| handing.has(at, Item(*item)) != Some(true));
        lacks.for_each(|item| *awaited.entry(item).or_default() += 1);
    }
    let each = members().map(|(at, (member, now))| {
        let may_stay = |item: &Item| {
            let may_have = handing.is_alone(*item) || handing.has(at, *item) != Some(false);
            may_have && !cluster.is_banned(at, *item)
        };
        let is_awaited = |item: &u32| awaited.get(item).is_some_and(|copies| *copies != 0);
        let leaves = *now - &member.items;
        let awaited_here = leaves.iter().filter(is_awaited).map(Item);
        let stays: Vec<Item> = awaited_here.filter(may_stay).collect();
        if stays.is_empty() {
            return Handover::default();
        }
        let comes = (&member.items - *now).iter().map(Item).collect();
        let is_pinned = |item: Item| cluster.is_pinned(at, item);
        let of = share_room(member.room_left, stays, comes, (handing, &is_pinned));
        // Copies that are there count; of which nobody has said it, all stay.
        let is_there = |item: &Item| handing.has(at, *item) == Some(true);
        let counts = |item: &Item| is_there(item) && !handing.is_alone(*item);
        for item in of.stays.iter().map(Item).filter(counts) {
            awaited.entry(item.0).and_modify(|copies| *copies -= 1);
        }
        of
    });
    each.collect()
}

/// The densest has the room. What has no source goes before all, and what is pinned waits for
/// nothing else.
fn share_room(
    free: Bytes,
    mut stays: Vec<Item>,
    mut comes: Vec<Item>,
    (handing, is_pinned): (&impl Handing, &impl Fn(Item) -> bool),
) -> Handover {
    stays.sort_by_cached_key(|item| Reverse((handing.is_alone(*item), handing.density(*item))));
    // The last waits first.
    comes.sort_by_cached_key(|item| {
        Reverse((handing.is_alone(*item), is_pinned(*item), handing.density(*item)))
    });
    let (mut of, mut free) = (Handover::default(), free.0);
    for item in stays {
        let (is_alone, density) = (handing.is_alone(item), handing.density(item));
        let (len, common) = handing.room(item);
        let needs = len.0.saturating_add(common.0);
        let may_wait = |other: Item| {
            let is_less = !handing.is_alone(other) && !is_pinned(other);
            is_alone || is_less && handing.density(other) < density
        };
        let mut left = comes.len();
        let mut freed = free;
        while freed < needs && left != 0 && may_wait(comes[left - 1]) {
            left -= 1;
            let (len, common) = handing.room(comes[left]);
            freed = freed.saturating_add(len.saturating_sub(common).0);
        }
        if needs <= freed || is_alone {
            of.waits.extend(comes.drain(left..).map(|item| item.0));
            of.stays.insert(item.0);
            free = freed.saturating_sub(needs);
        }
    }
    of
}

impl Handover {
    /// True if nothing moves that others wait for.
    pub fn is_done(&self) -> bool {
        self.stays.is_empty()
    }

    /// The items that the member should hold until then, where a plan wants these of it.
    pub fn until_then(&self, planned: &NumberSet) -> NumberSet {
        &(planned - &self.waits) | &self.stays
    }
}

#[cfg(test)]
#[path = "handover_tests.rs"]
mod tests;

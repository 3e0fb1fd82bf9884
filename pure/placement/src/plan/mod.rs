//! Decides which items the members of a manifest cluster should hold. It does no I/O.
//!
//! ```text
//! catalogue ──> Order: all items of a region, most bytes served per byte stored first
//!                 │
//!                 ├─> place_cluster: pins; what is held and worth it stays; then newcomers in
//!                 │                  order, to whom they balance, while room and fill last
//!                 ├─> place_region: what no cluster took goes to members with room left, or stays
//!                 │                 at the origin
//!                 └─> fill_spare: room that is left takes what nobody asks for, and more copies
//! ```
//!
//! One order serves all clusters of a region: each has a share of the region's demand, and a share
//! changes no order. An item costs a cluster nothing unless it comes before the last one that is
//! placed: O(items placed + items held, x log) for a cluster, O(items log items) for an order.
//!
//! What is held is worth more than what is not by a margin (hysteresis), and a copy never moves
//! but to bring load from a member that has too much to one that has too little, or up to a faster
//! one that has less, within a part of the bytes that come anyway. So where nothing changes nothing
//! moves.
//!
//! Fast members take the head: members are put in groups by throughput per byte of room, and each
//! group has the next run of the order, until its room or its part of the load is used up. Within
//! a group an item goes to the member that will have least to do; among equals to whom the draw of
//! its version leads, by which steering finds it too.

mod balance;
mod cluster;
mod cut;
mod difference;
mod finish;
mod handover;
mod head;
mod order;
mod pins;
mod raise;
mod region;
mod spare;
mod why;
mod work;

use model::id::Item;
use model::number::NumberSet;
use model::rendezvous::Lot;
use model::topology::Weight;
use model::units::{BitsPerSecond, Bytes};

pub use cluster::place_cluster;
pub use difference::{Change, Difference, Limits, Refusal, difference, refusals, rounded};
pub use handover::{Handing, Handover, handover};
pub use head::{Expected, head};
pub use order::{Catalogue, Density, Order};
pub use region::place_region;
pub use spare::fill_spare;
pub use why::{Why, why};

/// The settings of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Copies that a cluster should have of each item where room is left: the policy's.
    pub copies: u32,
    /// The most of a member's throughput that one item should take, in thousandths: an item that
    /// takes more has another copy.
    pub item_permille: u32,
    /// What comes must be worth so much more than what it puts out, in thousandths of that.
    pub hysteresis_permille: u32,
    /// Bytes that may move for the balance of load, or up to faster members, in thousandths of the
    /// bytes that come to the cluster anyway.
    pub exchange_permille: u32,
    /// A member above the mean of its group by no more than this, in thousandths, is balanced.
    pub balance_permille: u32,
}

impl Config {
    /// The settings of the product, with so many copies where room is left. A small part of a
    /// throughput keeps what one title does by surprise small, and with 250 thousandths of
    /// hysteresis about half as much again moves as must (docs/internals/year.md). The last two are
    /// arbitrary: docs/internals/placement.md says what they lead to.
    pub const fn usual(copies: u32) -> Self {
        Self {
            copies,
            item_permille: 5,
            hysteresis_permille: 500,
            exchange_permille: 500,
            balance_permille: 20,
        }
    }
}

/// What is placed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub item: Item,
    /// A number for its version: items of one version go to the same members where they can.
    pub version: u32,
    /// Its room on drives.
    pub len: Bytes,
}

/// What is expected of an item in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub item: Item,
    /// Bytes that viewers will be sent of it in a day.
    pub day: Bytes,
    /// In its busiest hour.
    pub peak: BitsPerSecond,
}

/// The part of its region's demand that a cluster has, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    /// All of it.
    pub const ALL: Self = Self(1_000_000);
}

/// A manifest cluster that is planned.
#[derive(Clone, Copy, Debug)]
pub struct Cluster<'a> {
    pub members: &'a [Member<'a>],
    pub share: Share,
    /// Items that it must hold, whatever is expected of them.
    pub pins: &'a NumberSet,
    /// Items that it must not hold. A ban goes before a pin.
    pub bans: &'a NumberSet,
    /// Pins that nothing but a member can give: where there is no room for all pins, they have it.
    pub alone: &'a NumberSet,
    /// Sites of it of which more is said; several as one where nothing must be held at each.
    pub apart: &'a [Apart<'a>],
}

/// What a site must hold or must not, besides what is said of its cluster.
#[derive(Clone, Copy, Debug)]
pub struct Apart<'a> {
    pub pins: &'a NumberSet,
    pub bans: &'a NumberSet,
}

impl Cluster<'_> {
    /// What is said of the site of a member.
    fn apart_of(&self, member: usize) -> Option<&Apart<'_>> {
        self.apart.get(self.members.get(member)?.apart?)
    }

    /// A member must not hold an item.
    fn is_banned(&self, member: usize, item: Item) -> bool {
        let is_apart = || self.apart_of(member).is_some_and(|of| of.bans.contains(item.0));
        self.bans.contains(item.0) || is_apart()
    }

    /// Items that it or a site of it must hold; none if its sites say nothing.
    fn pins_with_sites(&self) -> Option<NumberSet> {
        let of_sites = self.apart.iter().map(|of| of.pins).filter(|pins| !pins.is_empty());
        of_sites.fold(None, |all, pins| Some(all.unwrap_or_else(|| self.pins.clone()) | pins))
    }

    /// A member is one of those that must hold an item together.
    fn is_pinned(&self, member: usize, item: Item) -> bool {
        let is_apart = || self.apart_of(member).is_some_and(|of| of.pins.contains(item.0));
        self.pins.contains(item.0) || is_apart()
    }
}

/// An appliance of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Of its name, for draws among equals.
    pub lot: Lot,
    /// Its part of the sessions of an item among those that hold it.
    pub weight: Weight,
    /// Of its drives, reserve taken off; zero if it has never said.
    pub room: Bytes,
    /// None if nobody said: then as the least of the others.
    pub throughput: Option<BitsPerSecond>,
    /// Items that it should hold by the last plan.
    pub holds: &'a NumberSet,
    /// The most that it may be told to fetch: the budget of the next window.
    pub fill: Bytes,
    /// The place of its site in [`Cluster::apart`], if more is said of that.
    pub apart: Option<usize>,
}

/// The items that each member of a cluster should hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterPlan {
    /// In the order of the members.
    pub members: Vec<MemberPlan>,
    /// The least dense item for which there was room; of those below it only what is held stays,
    /// while room is left. Zero if everything fits that is wanted.
    pub cutoff: Density,
    /// The densest item that has to wait for a later window: the fill budget was used up. Zero if
    /// none has.
    pub unfilled: Density,
    /// Bytes a day that viewers are expected to be sent of what is held.
    pub served: Bytes,
    /// Bytes that come for the balance of load alone.
    pub exchanged: Bytes,
}

/// What one member should hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberPlan {
    pub items: NumberSet,
    pub room_left: Bytes,
    pub fill_left: Bytes,
    /// What it is expected to serve at peak.
    pub load: BitsPerSecond,
}

/// Which items of a region are where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RegionPlan {
    /// Items that no cluster holds: who wants one is sent to its origin.
    pub at_origin: NumberSet,
}

#[expect(
    clippy::as_conversions,
    reason = "there is no other way to a float, and it rounds alike \
    on all machines"
)]
fn real(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::as_conversions, reason = "there is no other way from a float, and it saturates")]
fn whole(x: f64) -> u64 {
    x as u64
}

#[cfg(test)]
mod tests;

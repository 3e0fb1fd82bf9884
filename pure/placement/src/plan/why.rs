//! Why an item is where it is, or is not: worked out from a plan and its input when asked.

use std::fmt;

use model::id::Item;
use model::units::Bytes;

use super::order::Order;
use super::{Cluster, ClusterPlan, Density, MemberPlan};

/// The reason why a member should hold an item, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// No version that is kept has it.
    Unknown,
    /// The cluster must not hold it.
    Banned,
    /// Held: the cluster must hold it.
    Pinned { copies: u32 },
    /// Held: it is worth its room.
    Worth { density: Density, cutoff: Density, copies: u32 },
    /// Held: it would not come any more, and nothing that is clearly better wants its room.
    Stays { density: Density, cutoff: Density },
    /// Held: there is room for it, though nobody is expected to ask for it here.
    Spare,
    /// Not held: others of the cluster hold it, as many as its peak needs or as have room.
    Elsewhere { copies: u32 },
    /// Not held: no member has any room.
    NoDrives,
    /// Not held: what is served more for its room fills the cluster.
    BelowCutoff { density: Density, cutoff: Density },
    /// Not held: no member with room for it has as much fill left in the next window.
    OverBudget { density: Density, len: Bytes, fill_left: Bytes },
    /// Not held: it is larger than what any member has left.
    NoRoom { len: Bytes, room_left: Bytes },
}

/// Why the member at `member` should hold an item or not. O(members).
pub fn why(
    order: &Order<'_>,
    cluster: &Cluster<'_>,
    plan: &ClusterPlan,
    member: usize,
    item: Item,
) -> Why {
    let (Some(density), Some(piece)) = (order.density(item), order.catalogue().get(item)) else {
        return Why::Unknown;
    };
    if cluster.is_banned(member, item) {
        return Why::Banned;
    }
    let is_pinned = cluster.is_pinned(member, item);
    let holds = |of: &&MemberPlan| of.items.contains(item.0);
    let copies = plan.members.iter().filter(holds).count();
    let copies = u32::try_from(copies).unwrap_or(u32::MAX);
    let cutoff = plan.cutoff;
    if plan.members.get(member).is_some_and(|of| holds(&of)) {
        let held_before = cluster.members.get(member).is_some_and(|of| of.holds.contains(item.0));
        return match () {
            () if is_pinned => Why::Pinned { copies },
            () if density == Density(0) => Why::Spare,
            () if cutoff < density => Why::Worth { density, cutoff, copies },
            () if held_before => Why::Stays { density, cutoff },
            () => Why::Worth { density, cutoff, copies },
        };
    }
    if 0 < copies {
        return Why::Elsewhere { copies };
    }
    if cluster.members.iter().all(|of| of.room == Bytes::ZERO) {
        return Why::NoDrives;
    }
    if density <= cutoff && !is_pinned {
        return Why::BelowCutoff { density, cutoff };
    }
    let fits = plan.members.iter().filter(|of| piece.len <= of.room_left);
    let budget = fits.map(|of| of.fill_left).max();
    if let Some(fill_left) = budget.filter(|fill_left| *fill_left < piece.len) {
        return Why::OverBudget { density, len: piece.len, fill_left };
    }
    if density <= plan.unfilled && !is_pinned {
        let fill_left = plan.members.iter().map(|of| of.fill_left).max().unwrap_or_default();
        return Why::OverBudget { density, len: piece.len, fill_left };
    }
    let room_left = plan.members.iter().map(|of| of.room_left).max().unwrap_or_default();
    Why::NoRoom { len: piece.len, room_left }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("no version that is kept has it"),
            Self::Banned => f.write_str("it must not be here"),
            Self::Pinned { copies } => write!(f, "it must be here; copies: {copies}"),
            Self::Worth { density, cutoff, copies } => {
                write!(f, "{density}, and the cut-off is {}; copies: {copies}", cutoff.0)
            }
            Self::Stays { density, cutoff } => write!(
                f,
                "{density}: the cut-off is {}, but nothing clearly better wants its room",
                cutoff.0
            ),
            Self::Spare => f.write_str("there is room, though nobody is expected to ask for it"),
            Self::Elsewhere { copies } => {
                write!(f, "others of the cluster hold it; copies: {copies}")
            }
            Self::NoDrives => f.write_str(
                "no appliance here has reported drives that can be used: is it enrolled and \
                 running?",
            ),
            Self::BelowCutoff { density, cutoff } => {
                write!(f, "{density}, and the cut-off is {}", cutoff.0)
            }
            Self::OverBudget { len, fill_left, .. } => write!(
                f,
                "it waits: the next window has {} MiB left and {} MiB are needed",
                fill_left.0 >> 20,
                len.0 >> 20
            ),
            Self::NoRoom { len, room_left } => {
                write!(f, "{} MiB are left and {} MiB are needed", room_left.0 >> 20, len.0 >> 20)
            }
        }
    }
}

//! Room that is left: nobody asks for what takes it, but an empty drive serves nobody.

use model::number::{NumberSet, index};
use model::rendezvous::Draws;
use model::units::Bytes;

use super::order::{Order, Ranked};
use super::work::MISFITS_MAX;
use super::{Cluster, ClusterPlan, Config, Member, MemberPlan};

/// Gives a cluster what nobody asks for, the newest first, and then more copies, as many as the
/// policy wants, the best first: as far as room and fill go. Where no demand is known at all, the
/// newest have all of their copies first. Each goes where the draw of its version leads. O(items of
/// the order x members) while there is room, else O(members).
pub fn fill_spare(
    order: &Order<'_>,
    cluster: &Cluster<'_>,
    config: &Config,
    plan: &mut ClusterPlan,
) {
    let copies = crate::wanted(config.copies, cluster.members.len());
    let (wanted, end) = (order.wanted(), order.end());
    let mut spare = Spare { order, cluster, plan };
    let first = if wanted == 0 { copies } else { copies.min(1) };
    spare.fill(wanted..end, first);
    if first < copies {
        spare.fill(0..end, copies);
    }
}

struct Spare<'a> {
    order: &'a Order<'a>,
    cluster: &'a Cluster<'a>,
    plan: &'a mut ClusterPlan,
}

impl Spare<'_> {
    fn fill(&mut self, ranks: std::ops::Range<u32>, copies: u32) {
        let least = self.order.catalogue().least();
        let mut misfits = 0;
        for rank in ranks {
            if misfits == MISFITS_MAX || !self.is_open(least) {
                return;
            }
            let of = self.order.at(rank).filter(|of| !self.cluster.bans.contains(of.item.0));
            if let Some(of) = of {
                misfits = if self.give(&of, copies) { 0 } else { misfits + 1 };
            }
        }
    }

    fn is_open(&self, least: Bytes) -> bool {
        let mut members = self.plan.members.iter().zip(self.cluster.members);
        members.any(|(plan, member)| plan.is_open(member, least))
    }

    /// False if copies are missing and none fits.
    fn give(&mut self, of: &Ranked, copies: u32) -> bool {
        let members = &mut self.plan.members;
        let held = members.iter().filter(|member| member.items.contains(of.item.0)).count();
        let missing = index(copies).saturating_sub(held);
        let draws = Draws::of(&of.version.to_le_bytes());
        for n in 0..missing {
            let free =
                members.iter().zip(self.cluster.members).enumerate().filter(|(at, (to, _))| {
                    let fits = of.len <= to.room_left && of.len <= to.fill_left;
                    fits && !to.items.contains(of.item.0) && !self.cluster.is_banned(*at, of.item)
                });
            let to = free.min_by_key(|(_, (_, member))| draws.score(member.lot, member.weight));
            let Some(at) = to.map(|(at, _)| at) else { return 0 < n };
            members[at].take(of);
        }
        true
    }
}

impl MemberPlan {
    /// Something may come that is no larger than `least`. A member with less than a thousandth of
    /// its room left is full: it would take many small items to fill that, and serve nobody.
    pub(super) fn is_open(&self, member: &Member<'_>, least: Bytes) -> bool {
        let least = Bytes(least.0.max(member.room.0 / 1000));
        least <= self.room_left && self.fill_left != Bytes::ZERO
    }

    pub(super) fn take(&mut self, of: &Ranked) {
        assert!(of.len <= self.room_left, "no more is given than fits");
        assert!(of.len <= self.fill_left, "no more comes than the window lets");
        self.room_left -= of.len;
        self.fill_left -= of.len;
        self.items.insert(of.item.0);
    }
}

/// Items that one of these holds.
pub(super) fn all<'a>(sets: impl Iterator<Item = &'a NumberSet>) -> NumberSet {
    sets.fold(NumberSet::new(), |mut all, set| {
        all |= set;
        all
    })
}

//! Room that is left: nobody asks for what takes it, but an empty drive serves nobody.

use model::number::{NumberSet, index};
use model::rendezvous::Draws;

use super::order::{Order, Ranked};
use super::{Cluster, ClusterPlan, Config};

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
    let copies = config.copies.min(u32::try_from(cluster.members.len()).unwrap_or(u32::MAX));
    let (wanted, end) = (u64::from(order.wanted()), order.end());
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
    fn fill(&mut self, ranks: std::ops::Range<u64>, copies: u32) {
        let least = self.order.catalogue().least();
        for rank in ranks {
            let has_room =
                |member: &super::MemberPlan| least <= member.room_left && least <= member.fill_left;
            if !self.plan.members.iter().any(has_room) {
                return;
            }
            let of = self.order.at(rank).filter(|of| !self.cluster.bans.contains(of.item.0));
            if let Some(of) = of {
                self.give(&of, copies);
            }
        }
    }

    fn give(&mut self, of: &Ranked, copies: u32) {
        let members = &mut self.plan.members;
        let held = members.iter().filter(|member| member.items.contains(of.item.0)).count();
        let missing = index(copies).saturating_sub(held);
        let draws = Draws::of(&of.version.to_le_bytes());
        for _ in 0..missing {
            let free =
                members.iter().zip(self.cluster.members).enumerate().filter(|(_, (to, _))| {
                    let fits = of.len <= to.room_left && of.len <= to.fill_left;
                    fits && !to.items.contains(of.item.0)
                });
            let to = free.min_by_key(|(_, (_, member))| draws.score(member.lot, member.weight));
            let Some(at) = to.map(|(at, _)| at) else { return };
            members[at].take(of);
        }
    }
}

impl super::MemberPlan {
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

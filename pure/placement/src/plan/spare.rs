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
/// the order x (copies + members with room left)) while somebody has, else O(members).
pub fn fill_spare(
    order: &Order<'_>,
    cluster: &Cluster<'_>,
    config: &Config,
    plan: &mut ClusterPlan,
) {
    let copies = crate::wanted(config.copies, cluster.members.len());
    let (wanted, end) = (order.wanted(), order.end());
    let Some(mut spare) = Spare::new(order, cluster, plan, copies) else { return };
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
    /// Members with room left.
    open: Vec<usize>,
    /// Items of which there is a copy, or two, and so on.
    copies: Vec<NumberSet>,
}

impl<'a> Spare<'a> {
    /// None if nobody has room.
    fn new(
        order: &'a Order<'a>,
        cluster: &'a Cluster<'a>,
        plan: &'a mut ClusterPlan,
        copies: u32,
    ) -> Option<Self> {
        let least = order.catalogue().least();
        let both = plan.members.iter().zip(cluster.members).enumerate();
        let open = both.filter(|(_, (plan, member))| plan.is_open(member, least));
        let open: Vec<usize> = open.map(|(at, _)| at).collect();
        let mut counted = vec![NumberSet::new(); index(copies)];
        for member in plan.members.iter().filter(|_| !open.is_empty()) {
            for n in (1..counted.len()).rev() {
                let more = &counted[n - 1] & &member.items;
                counted[n] |= more;
            }
            counted.first_mut().into_iter().for_each(|first| *first |= &member.items);
        }
        (!open.is_empty()).then_some(Self { order, cluster, plan, open, copies: counted })
    }

    fn fill(&mut self, ranks: std::ops::Range<u32>, copies: u32) {
        let mut misfits = 0;
        for rank in ranks {
            if misfits == MISFITS_MAX || self.open.is_empty() {
                return;
            }
            let of = self.order.at(rank).filter(|of| !self.cluster.bans.contains(of.item.0));
            if let Some(of) = of {
                misfits = if self.give(&of, copies) { 0 } else { misfits + 1 };
            }
        }
    }

    /// False if copies are missing and none fits.
    fn give(&mut self, of: &Ranked, copies: u32) -> bool {
        let item = of.item.0;
        let held = self.copies.iter().take_while(|held| held.contains(item)).count();
        let draws = Draws::of(&of.version.to_le_bytes());
        for n in held..index(copies) {
            let (plans, members) = (&self.plan.members, self.cluster.members);
            let free = self.open.iter().copied().filter(|at| {
                let to = &plans[*at];
                let fits = of.len <= to.room_left && of.len <= to.fill_left;
                fits && !to.items.contains(item) && !self.cluster.is_banned(*at, of.item)
            });
            let to = free.min_by_key(|at| draws.score(members[*at].lot, members[*at].weight));
            let Some(at) = to else { return held < n };
            self.plan.members[at].take(of);
            self.copies[n].insert(item);
            if !self.plan.members[at].is_open(&members[at], self.order.catalogue().least()) {
                self.open.retain(|open| *open != at);
            }
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

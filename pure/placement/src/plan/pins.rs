//! What is pinned comes first, whatever it is worth.

use std::ops::Range;

use super::order::Ranked;
use super::work::{Kept, State, Work};

impl Work<'_> {
    /// Keeps and brings what is pinned: first what nothing but a member can give and one was to
    /// hold, then what else has no source, then best first.
    /// O(pins x (members + sites with pins)).
    pub(super) fn pin(&mut self) {
        let mut pins = self.pins.clone();
        if !self.cluster.alone.is_empty() {
            let is_alone = |of: Ranked| self.cluster.alone.contains(of.item.0);
            pins.sort_by_cached_key(|rank| {
                let is_alone = self.order.at(*rank).is_some_and(is_alone);
                let is_held = is_alone && !self.holders(*rank).is_empty();
                (!is_held, !is_alone)
            });
        }
        for rank in pins {
            let Some(of) = self.order.at(rank) else { continue };
            let holders = self.holders(rank);
            let is_of_site = |apart: &super::Apart<'_>| apart.pins.contains(of.item.0);
            if self.cluster.apart.iter().any(is_of_site) {
                self.pin_at_sites(rank, &of, holders);
            } else {
                self.keep_some(&of, holders.clone());
                self.bring(rank, &of, holders);
            }
        }
    }

    /// One copy at each site that must have one, and as many in all as the peak needs.
    fn pin_at_sites(&mut self, rank: u32, of: &Ranked, holders: Range<usize>) {
        let mut members = Vec::new();
        for site in 0..self.cluster.apart.len() {
            if self.cluster.apart[site].pins.contains(of.item.0) {
                members.extend(self.pin_one(rank, of, holders.clone(), Some(site)));
            }
        }
        while members.len() < self.copies(of.peak) {
            let Some(to) = self.pin_one(rank, of, holders.clone(), None) else { break };
            members.push(to);
        }
        if !members.is_empty() {
            self.add_load(self.peak(of), &members);
        }
    }

    /// One more copy, at this site if one is said: one that is held there, else one that comes. The
    /// member; none where none has room.
    fn pin_one(
        &mut self,
        rank: u32,
        of: &Ranked,
        holders: Range<usize>,
        site: Option<usize>,
    ) -> Option<usize> {
        let stands = |of: &State<'_>| site.is_none() || of.of.apart == site;
        for at in holders.clone() {
            let to = self.held[at].member();
            let is_left = self.held[at].state == Kept::No && stands(&self.members[to]);
            if is_left && self.keep_one(of, at) {
                return Some(to);
            }
        }
        let mut others: Vec<usize> = self.held[holders].iter().map(|held| held.member()).collect();
        let came = self.comes.iter().rev().take_while(|(of, _)| *of == rank);
        others.extend(came.map(|(_, to)| *to));
        let to = self.choose(rank, of, |at| stands(&self.members[at]) && !others.contains(&at))?;
        self.take(rank, of, to);
        Some(to)
    }
}

//! Copies that move up to members with more throughput for their room.
//!
//! ```text
//! fast member:  [ dense ... cold ][ free: as much as comes is left to that ]
//!                   ^        │
//!            copies │        │ its room goes to the best that fits, often what gave way
//!                   │        v
//! slow member:  [ dense ... cold ]
//! ```
//!
//! What is new comes to fast members, and is watched less in time; what is watched more in time
//! stays at slow ones. Without this fast members would have little to do then, and slow ones much.

use std::ops::Range;

use super::balance::{Busy, Yield};
use super::order::Ranked;
use super::whole;
use super::work::{LOOKS_MAX, Work};

impl Work<'_> {
    /// Moves copies of what is densest to members of faster groups that would have less to do than
    /// those that hold it: to free room beyond what comes, or for what is colder by the hysteresis.
    /// As many bytes may move as [`Work::balance`] left.
    /// O(looks x (members x copies + what is looked at for room) + moves x (members + log held)),
    /// and O(members) in a cluster of one group.
    pub(super) fn raise(&mut self) {
        let least = self.order.catalogue().least().0;
        let last = self.members.last().map_or(0, |last| last.group);
        let is_done = |at: usize| {
            let member = &self.members[at];
            last == member.group || self.fill_beyond(at).min(member.of.room.0) < least
        };
        let mut is_done: Vec<bool> = (0..self.members.len()).map(is_done).collect();
        let mut busy = self.busy_groups();
        let mut at = 0;
        for _ in 0..LOOKS_MAX {
            if self.exchange < least.max(1) || is_done.iter().all(|is_done| *is_done) {
                return;
            }
            let Some(held) = self.held.get(at).filter(|held| held.rank < self.cut.stay) else {
                return;
            };
            let (rank, holders) = (held.rank, at..at + self.count(at, held.rank));
            at = holders.end;
            let Some(of) = self.order.at(rank).filter(|of| of.len.0 <= self.exchange) else {
                continue;
            };
            let both = self.raise_of(&of, rank, holders.clone(), &busy, &is_done);
            let Some((from, to)) = both else { continue };
            let margin = self.config.hysteresis_permille;
            let is_colder = |cold: &Ranked, _| cold.density.more(margin) <= of.density;
            let missing = of.len.0.saturating_sub(self.room_beyond(to));
            match self.make_room(missing, to, of.len.0, is_colder) {
                Yield::Enough => {
                    self.move_copy(rank, &of, holders, from, to);
                    busy = self.busy_groups();
                }
                // What follows is less dense; but what is shorter may fit in free room.
                Yield::NothingColder => is_done[to] = self.room_beyond(to) < least,
                // What follows may be shorter.
                Yield::TooLittle => {}
            }
        }
    }

    /// From whom to whom a copy should move up, if it should. O(members x copies + log held).
    fn raise_of(
        &self,
        of: &Ranked,
        rank: u32,
        holders: Range<usize>,
        busy: &Busy,
        is_done: &[bool],
    ) -> Option<(usize, usize)> {
        let kept = self.kept(holders.clone());
        let group = |at: usize| self.members[at].group;
        let from = kept.iter().copied().max_by(|a, b| {
            group(*a).cmp(&group(*b)).then(busy.members[*a].total_cmp(&busy.members[*b]))
        })?;
        let has_all = self.has_all(of, holders.clone());
        if group(from) == 0 || self.is_fixed(rank) || !has_all {
            return None;
        }
        let others = self.weight(&kept) - self.weight(&[from]);
        let most = busy.members[from].min(busy.means[group(from)]) / (1.0 + self.margin());
        // What gives way comes to the room that the copy leaves: if there is fill.
        let may_give_way = of.len.0 <= self.fill_beyond(from);
        let held = &self.held[holders];
        let takes = |at: &usize| {
            let member = &self.members[*at];
            let is_faster = member.group < group(from) && !is_done[*at];
            let is_other = held.iter().all(|held| held.member() != *at);
            let fits = of.len.0 <= self.fill_beyond(*at) && of.len.0 <= member.of.room.0;
            let fits = fits && (may_give_way || of.len.0 <= self.room_beyond(*at));
            let part = self.weight(&[*at]) / (others + self.weight(&[*at]));
            let is_less = busy.members[*at] + self.peak(of) * part / member.throughput <= most;
            is_faster && is_other && fits && member.may_hold(of) && is_less
        };
        let to = (0..self.members.len()).filter(takes);
        let to = to.min_by(|a, b| busy.members[*a].total_cmp(&busy.members[*b]))?;
        Some((from, to))
    }

    /// Free room of a member beyond what comes. All that comes may come to this member: a copy that
    /// the cluster has must not take the place of one that it lacks.
    fn room_beyond(&self, at: usize) -> u64 {
        self.members[at].room - self.needed(at)
    }

    /// Bytes of its window beyond what comes.
    fn fill_beyond(&self, at: usize) -> u64 {
        self.members[at].fill.saturating_sub(self.needed(at))
    }

    /// The most bytes that what comes can put into a member's free room.
    fn needed(&self, at: usize) -> u64 {
        self.members[at].room.min(whole(self.cut.bytes))
    }
}

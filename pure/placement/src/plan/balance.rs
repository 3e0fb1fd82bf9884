//! Copies that move since one member has more to do than others of its kind.
//!
//! The first of the order move: they bring most load for their bytes, so few bytes move. A member
//! that is new, and cannot be filled in a night, so has its part of the load after the first.

use std::ops::Range;

use model::units::Bytes;

use super::order::Ranked;
use super::real;
use super::work::{Kept, LOOKS_MAX, State, Work};

/// Groups of members as they will be busy.
pub(super) struct Busy {
    pub(super) members: Vec<f64>,
    /// The mean of each group.
    pub(super) means: Vec<f64>,
}

/// What a member could give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yield {
    Enough,
    /// Nothing that it may give up is colder.
    NothingColder,
    /// Some of it is colder, but not enough, or more than may still move.
    TooLittle,
}

impl Work<'_> {
    /// Moves copies from members that have too much to do to others of their groups, until none has
    /// or no more bytes may move for it. O(looks + moves x members).
    pub(super) fn balance(&mut self) {
        if self.exchange == 0 || !self.something_comes() {
            self.exchange = 0;
            return;
        }
        let mut busy = self.busy_groups();
        if !self.is_uneven(&busy) {
            return;
        }
        let mut at = 0;
        for _ in 0..LOOKS_MAX {
            let Some(held) = self.held.get(at).filter(|held| held.rank < self.cut.stay) else {
                return;
            };
            let (rank, holders) = (held.rank, at..at + self.count(at, held.rank));
            at = holders.end;
            if let Some(of) = self.order.at(rank)
                && of.len.0 <= self.exchange
                && let Some((from, to)) = self.exchange_of(&of, holders.clone(), &busy)
            {
                let missing = of.len.0.saturating_sub(self.members[to].room);
                if self.make_room(missing, to, of.len.0, |_, cold| rank < cold) != Yield::Enough {
                    continue;
                }
                self.move_copy(rank, &of, holders, from, to);
                busy = self.busy_groups();
                if !self.is_uneven(&busy) {
                    return;
                }
            }
        }
    }

    /// What each member keeps, the coldest last.
    fn by_member(&self) -> Vec<Vec<usize>> {
        let mut by_member = vec![Vec::new(); self.members.len()];
        for (at, held) in self.held.iter().enumerate() {
            if held.state == Kept::Yes {
                by_member[held.member()].push(at);
            }
        }
        by_member
    }

    /// Has a member give up so many bytes of the coldest that it keeps, as far as it is colder than
    /// what comes, by what and of which rank it is: another has room for it, or nobody misses it
    /// much. `reserve` bytes are to move afterwards. Nothing is given up where that is not enough.
    /// O(what is looked at x (log held + copies)), and O(held) the first time.
    pub(super) fn make_room(
        &mut self,
        missing: u64,
        to: usize,
        reserve: u64,
        is_colder: impl Fn(&Ranked, u32) -> bool,
    ) -> Yield {
        if missing == 0 {
            return Yield::Enough;
        }
        if self.cold.is_empty() {
            self.cold = self.by_member();
        }
        let (mut freed, mut goes, mut is_some_colder) = (0_u64, Vec::new(), false);
        while freed < missing {
            let Some(at) = self.cold[to].pop() else { break };
            let held = self.held[at];
            if held.state != Kept::Yes || self.is_fixed(held.rank) {
                continue;
            }
            let of = self.order.at(held.rank).filter(|of| is_colder(of, held.rank));
            is_some_colder |= of.is_some();
            let may_move = |of: &Ranked| {
                freed.saturating_add(of.len.0).saturating_add(reserve) <= self.exchange
            };
            let Some(of) = of.filter(may_move) else {
                self.cold[to].push(at);
                break;
            };
            freed += of.len.0;
            goes.push((at, of));
        }
        let room = if missing <= freed {
            Yield::Enough
        } else if is_some_colder {
            Yield::TooLittle
        } else {
            Yield::NothingColder
        };
        for (at, of) in goes.into_iter().rev() {
            if room == Yield::Enough {
                self.give_up(at, &of);
            } else {
                self.cold[to].push(at);
            }
        }
        room
    }

    /// Copies of this rank are not given up: it is pinned, or has moved, and has what it needs.
    pub(super) fn is_fixed(&self, rank: u32) -> bool {
        let has_moved =
            || self.held[self.holders(rank)].iter().any(|held| held.state == Kept::Moved);
        self.pins.binary_search(&rank).is_ok() || has_moved()
    }

    /// A member that would have less to do than `to`, of its kind, and has made room.
    pub(super) fn less_busy(
        &mut self,
        rank: u32,
        of: &Ranked,
        to: usize,
        others: &[usize],
    ) -> Option<usize> {
        let part = self.peak(of) / real(Bytes::of(self.copies(of.peak)).0);
        let is_weak = part < real(of.len.0) * self.each();
        if self.exchange < of.len.0 || is_weak {
            return None;
        }
        let most = self.busy(&self.members[to]) / (1.0 + self.margin());
        let could = |at: &usize| {
            let member = &self.members[*at];
            let is_sibling = member.group == self.members[to].group && !others.contains(at);
            let fits = of.len.0 <= member.fill && of.len.0 <= member.of.room.0;
            let fits = fits && member.may_hold(of);
            let is_much = member.throughput * LEAST_EXCHANGE <= part;
            is_sibling && fits && member.room < of.len.0 && is_much && self.busy(member) < most
        };
        let least = (0..self.members.len())
            .filter(could)
            .min_by(|a, b| self.busy(&self.members[*a]).total_cmp(&self.busy(&self.members[*b])))?;
        let missing = of.len.0.saturating_sub(self.members[least].room);
        let room = self.make_room(missing, least, 0, |_, cold| rank < cold);
        (room == Yield::Enough).then_some(least)
    }

    fn give_up(&mut self, at: usize, of: &Ranked) {
        let held = self.held[at];
        let holders = self.holders(held.rank);
        let before = self.kept(holders.clone());
        self.held[at].state = Kept::No;
        let after = self.kept(holders);
        self.add_load(-self.peak(of), &before);
        self.add_load(self.peak(of), &after);
        self.members[held.member()].room += of.len.0;
        assert!(of.len.0 <= self.exchange, "no more moves than may");
        self.exchange -= of.len.0;
        // It is about to come, and there is room for something.
        self.cut.bytes += real(of.len.0);
        self.cut.space += real(of.len.0);
        self.cut.load += self.peak(of) / real(Bytes::of(before.len()).0);
    }

    /// True if one of the copies that are missing fits somewhere. Else nothing changes, and nothing
    /// moves. O(1) as a rule, and O(ranks above the cut x members) if it is false.
    fn something_comes(&self) -> bool {
        let most = self.members.iter().map(|member| member.room.min(member.fill)).max();
        let most = most.unwrap_or(0);
        let mut begin = 0;
        for rank in 0..self.cut.enter {
            let count = self.count(begin, rank);
            let holders = begin..begin + count;
            begin += count;
            let of = self.order.at(rank).filter(|of| of.len.0 <= most && !self.is_banned(of));
            let lacks = of.filter(|of| !self.has_all(of, holders.clone()));
            if lacks.is_some_and(|of| self.could_take(&of, holders)) {
                return true;
            }
        }
        false
    }

    /// Somebody has room and fill for a copy, and has none.
    fn could_take(&self, of: &Ranked, holders: Range<usize>) -> bool {
        let has = |at: usize| self.held[holders.clone()].iter().any(|held| held.member() == at);
        let fits = |member: &State<'_>| of.len.0 <= member.fill && member.fits(of);
        self.members.iter().enumerate().any(|(at, member)| fits(member) && !has(at))
    }

    pub(super) fn busy_groups(&self) -> Busy {
        let members: Vec<f64> = self.members.iter().map(|member| self.busy(member)).collect();
        let mut sums = vec![(0.0, 0.0); self.members.last().map_or(0, |last| last.group + 1)];
        for (member, busy) in self.members.iter().zip(&members) {
            let (load, throughput) = &mut sums[member.group];
            *load += busy * member.throughput;
            *throughput += member.throughput;
        }
        let means = sums.into_iter().map(|(load, throughput)| load / throughput).collect();
        Busy { members, means }
    }

    fn is_uneven(&self, busy: &Busy) -> bool {
        (0..self.members.len()).any(|at| self.is_over(at, busy))
    }

    fn is_over(&self, at: usize, busy: &Busy) -> bool {
        busy.means[self.members[at].group] * (1.0 + self.margin()) < busy.members[at]
    }

    pub(super) fn margin(&self) -> f64 {
        f64::from(self.config.balance_permille) / 1000.0
    }

    /// From whom to whom a copy should move, if it should.
    fn exchange_of(
        &self,
        of: &Ranked,
        holders: Range<usize>,
        busy: &Busy,
    ) -> Option<(usize, usize)> {
        let held = &self.held[holders.clone()];
        let kept = held.iter().filter(|held| held.state == Kept::Yes).map(|held| held.member());
        let over = kept.clone().filter(|at| self.is_over(*at, busy));
        let from = over.max_by(|a, b| busy.members[*a].total_cmp(&busy.members[*b]))?;
        if !self.has_all(of, holders) {
            return None;
        }
        let part = self.peak(of) / f64::from(u32::try_from(kept.count()).ok()?);
        let (giver, mean) = (&self.members[from], busy.means[self.members[from].group]);
        let would_have_too_little = busy.members[from] - part / giver.throughput < mean;
        let is_little = part < giver.throughput * LEAST_EXCHANGE;
        // What comes brings more for its bytes: it goes where there is too little to do.
        let is_weak = part < real(of.len.0) * self.each();
        if is_little || is_weak || would_have_too_little {
            return None;
        }
        let takes = |at: &usize| {
            let member = &self.members[*at];
            let fits = of.len.0 <= member.fill && of.len.0 <= member.of.room.0;
            let fits = fits && member.may_hold(of);
            let is_other = held.iter().all(|held| held.member() != *at);
            let is_sibling = member.group == giver.group && is_other;
            is_sibling && fits && busy.members[*at] + part / member.throughput <= mean
        };
        let to = (0..self.members.len()).filter(takes);
        let to = to.min_by(|a, b| busy.members[*a].total_cmp(&busy.members[*b]))?;
        Some((from, to))
    }

    pub(super) fn move_copy(
        &mut self,
        rank: u32,
        of: &Ranked,
        holders: Range<usize>,
        from: usize,
        to: usize,
    ) {
        let kept = self.kept(holders.clone());
        for held in &mut self.held[holders] {
            if held.member() == from {
                held.state = Kept::Moved;
            }
        }
        self.members[from].room += of.len.0;
        self.add_load(-self.peak(of), &kept);
        let members: Vec<usize> =
            kept.iter().map(|at| if *at == from { to } else { *at }).collect();
        self.add_load(self.peak(of), &members);
        self.take(rank, of, to);
        // It was not among what was about to come, and leaves room for that.
        self.cut.bytes += real(of.len.0);
        self.cut.space += real(of.len.0);
        assert!(of.len.0 <= self.exchange, "no more moves than may");
        self.exchange -= of.len.0;
        self.exchanged += of.len.0;
    }
}

/// Arbitrary: an item of less than this part of a member's throughput balances nothing.
const LEAST_EXCHANGE: f64 = 1e-5;

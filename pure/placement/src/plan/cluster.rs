//! One cluster, planned by itself.
//!
//! ```text
//! pins ──> cut: how far down the order room and fill reach
//!      ──> divide: which run of the order each group of members takes
//!      ──> keep: what is held above the cut
//!      ──> balance: what must move since a member has too much to do
//!      ──> raise: what is watched much moves up to faster groups
//!      ──> bring: best first
//!      ──> keep what fits below the cut, then bring what fits: an empty drive serves nobody
//! ```

use std::ops::Range;

use model::rendezvous::{Draws, Score};
use model::units::Bytes;

use super::cut::find;
use super::finish::finish;
use super::order::{Order, Ranked};
use super::work::{Held, Kept, MISFITS_MAX, State, Work};
use super::{Cluster, ClusterPlan, Config, fill_spare, real, whole};

/// Plans a cluster. O(members log members + (held + placed) log held + placed x members), and a bit
/// for each member and rank that is wanted where members are few.
pub fn place_cluster(order: &Order<'_>, cluster: &Cluster<'_>, config: &Config) -> ClusterPlan {
    let mut work = Work::new(order, cluster, config);
    work.pin();
    work.cut();
    work.divide();
    work.keep();
    work.cut.space = work.members.iter().map(|member| real(member.room.min(member.fill))).sum();
    work.balance();
    work.raise();
    work.bring_some(0..work.cut.enter);
    work.keep_what_fits();
    work.bring_some(work.cut.enter..order.wanted());
    let mut plan = finish(work);
    if order.wanted() == 0 {
        fill_spare(order, cluster, config, &mut plan);
    }
    plan
}

impl Work<'_> {
    /// Finds how far down the order the cluster reaches.
    fn cut(&mut self) {
        self.cut = find(self);
        let permille = f64::from(self.config.exchange_permille) / 1000.0;
        self.exchange = whole(self.cut.bytes * permille);
    }

    /// What is held above the cut stays, but for copies that nobody needs any more.
    fn keep(&mut self) {
        let mut at = 0;
        while let Some(held) = self.held.get(at).filter(|held| held.rank < self.cut.stay) {
            let (rank, holders) = (held.rank, at..at + self.count(at, held.rank));
            at = holders.end;
            if self.pins.binary_search(&rank).is_ok() {
                continue;
            }
            if let Some(of) = self.order.at(rank) {
                self.keep_some(&of, holders);
            }
        }
    }

    /// Keeps as many copies as are needed.
    pub(super) fn keep_some(&mut self, of: &Ranked, holders: Range<usize>) {
        let copies = self.copies(of.peak);
        if holders.len() <= copies {
            let mut left = holders.len();
            for at in holders.clone() {
                left = if self.keep_one(of, at) { left } else { left - 1 };
            }
            // Nearly always there is one: no list of one is made then.
            if let (1, [held]) = (left, &self.held[holders.clone()]) {
                self.members[held.member()].load += self.peak(of);
                return;
            }
        } else {
            self.keep_best(of, holders.clone(), copies);
        }
        let members: Vec<usize> = self.kept(holders);
        self.add_load(self.peak(of), &members);
    }

    pub(super) fn keep_one(&mut self, of: &Ranked, at: usize) -> bool {
        let member = &mut self.members[self.held[at].member()];
        let fits = of.len.0 <= member.room;
        if fits {
            member.room -= of.len.0;
            self.held[at].state = Kept::Yes;
        }
        fits
    }

    /// Keeps copies rather of the group to which the rank belongs, else of members with much room,
    /// which are not made for the head; and of those with little to do. O(holders log holders).
    fn keep_best(&mut self, of: &Ranked, holders: Range<usize>, copies: usize) {
        let draws = Draws::of(&of.version.to_le_bytes());
        let rank = self.held[holders.start].rank;
        let mut order: Vec<usize> = holders.collect();
        order.sort_by(|a, b| {
            let [a, b] = [a, b].map(|at| &self.members[self.held[*at].member()]);
            let score = |member: &State<'_>| draws.score(member.of.lot, member.of.weight);
            let busy = |member: &State<'_>| member.load / member.throughput;
            let by_group = self.far(rank, a).cmp(&self.far(rank, b)).then(b.group.cmp(&a.group));
            let by_load = by_group.then(busy(a).total_cmp(&busy(b)));
            by_load.then_with(|| score(a).cmp(&score(b)))
        });
        let mut kept = 0;
        for at in order {
            if kept < copies && self.keep_one(of, at) {
                kept += 1;
            }
        }
    }

    /// Gives each group a run of the order, until its room is used up or its part of the load.
    fn divide(&mut self) {
        let groups = self.members.last().map_or(0, |member| member.group + 1);
        if groups < 2 {
            return;
        }
        let ranked = |rank: u32| self.order.at(rank).filter(|of| !self.is_banned(of));
        let load: f64 = (0..self.cut.enter).filter_map(ranked).map(|of| self.peak(&of)).sum();
        let all: f64 = self.members.iter().map(|member| member.throughput).sum();
        let mut ends = vec![self.cut.enter; groups];
        let mut rank = 0;
        for (group, end) in ends.iter_mut().enumerate() {
            let of_group = || self.members.iter().filter(|member| member.group == group);
            let mut room: f64 = of_group().map(|member| real(member.of.room.0)).sum();
            let throughput: f64 = of_group().map(|member| member.throughput).sum();
            let mut left = load * throughput / all;
            while 0.0 < left && 0.0 < room && rank < self.cut.enter {
                if let Some(of) = ranked(rank) {
                    room -= real(of.len.0) * real(Bytes::of(self.copies(of.peak)).0);
                    left -= self.peak(&of);
                }
                rank += 1;
            }
            *end = rank;
        }
        self.ends = ends;
    }

    /// Brings what is missing of these ranks, until nothing fits any more.
    fn bring_some(&mut self, ranks: Range<u32>) {
        let (mut begin, mut misfits) = (self.holders(ranks.start).start, 0);
        for rank in ranks {
            while self.held.get(begin).is_some_and(|held| held.rank < rank) {
                begin += 1;
            }
            if self.pins.binary_search(&rank).is_ok() {
                continue;
            }
            let Some(of) = self.order.at(rank).filter(|of| !self.is_banned(of)) else { continue };
            let holders = begin..begin + self.count(begin, rank);
            if self.has_all(&of, holders.clone()) {
                continue;
            }
            misfits = if self.bring(rank, &of, holders) { 0 } else { misfits + 1 };
            if misfits == MISFITS_MAX {
                return;
            }
        }
    }

    /// Brings the copies that are missing. What is held already need not come. False if none comes.
    pub(super) fn bring(&mut self, rank: u32, of: &Ranked, holders: Range<usize>) -> bool {
        if self.has_all(of, holders.clone()) {
            return false;
        }
        let copies = self.copies(of.peak);
        let has_moved = self.held[holders.clone()].iter().any(|held| held.state == Kept::Moved);
        assert!(!has_moved, "what moved has all of its copies");
        let before = self.kept(holders.clone());
        let mut members = before.clone();
        for at in holders.clone() {
            let to = self.held[at].member();
            if members.len() < copies && self.held[at].state == Kept::No && self.fits(to, of) {
                self.members[to].room -= of.len.0;
                self.held[at].state = Kept::Yes;
                members.push(to);
            }
        }
        let mut others: Vec<usize> = self.held[holders].iter().map(|held| held.member()).collect();
        while members.len() < copies {
            let Some(to) = self.choose(rank, of, |at| !others.contains(&at)) else { break };
            let to = self.less_busy(rank, of, to, &others).unwrap_or(to);
            others.push(to);
            members.push(to);
            self.take(rank, of, to);
        }
        if before.len() < members.len() {
            self.add_load(-self.peak(of), &before);
            self.add_load(self.peak(of), &members);
            let part = 1.0 - real(Bytes::of(before.len()).0) / real(Bytes::of(members.len()).0);
            self.cut.load = (self.cut.load - self.peak(of) * part).max(0.0);
        }
        before.len() < members.len()
    }

    fn fits(&self, member: usize, of: &Ranked) -> bool {
        self.members[member].fits(of)
    }

    /// How far a member is from the group to which a rank belongs: those with more room for their
    /// throughput are nearer than those with less. Zero for all while no group has its run, and for
    /// what is behind all runs. O(log groups).
    fn far(&self, rank: u32, member: &State<'_>) -> usize {
        let group = self.ends.partition_point(|end| *end <= rank);
        match member.group.checked_sub(group) {
            _ if self.ends.len() <= group => 0,
            Some(poorer) => poorer,
            None => self.ends.len() + group - member.group,
        }
    }

    /// The member that takes a copy, of those that may: of the group to which the rank belongs,
    /// else of one with more room for its throughput; there the one that will have least to do.
    pub(super) fn choose(
        &self,
        rank: u32,
        of: &Ranked,
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let draws = Draws::of(&of.version.to_le_bytes());
        let mut best: Option<(usize, f64, usize)> = None;
        for (at, member) in self.members.iter().enumerate() {
            if !member.fits(of) || member.fill < of.len.0 || !may(at) {
                continue;
            }
            let (far, busy) = (self.far(rank, member), self.busy(member));
            let score = |at: usize| -> Score {
                draws.score(self.members[at].of.lot, self.members[at].of.weight)
            };
            let is_better = best.is_none_or(|(best_far, best_busy, best)| {
                let by_load = far.cmp(&best_far).then(busy.total_cmp(&best_busy));
                by_load.then_with(|| score(at).cmp(&score(best))).is_lt()
            });
            if is_better {
                best = Some((far, busy, at));
            }
        }
        best.map(|(_, _, at)| at)
    }

    /// An empty drive serves nobody: what is held goes only for something else.
    fn keep_what_fits(&mut self) {
        for at in 0..self.held.len() {
            let Held { rank, state, .. } = self.held[at];
            if state == Kept::No
                && let Some(of) = self.order.at(rank)
            {
                self.keep_one(&of, at);
            }
        }
    }
}

//! One cluster, planned by itself.
//!
//! ```text
//! pins ──> cut: how far down the order room and fill reach ──> keep: what is held above the cut
//!      ──> divide: which run of the order each group of members takes
//!      ──> bring: first what gone members held, then all others, best first
//!      ──> keep what fits below the cut, then bring what fits: an empty drive serves nobody
//! ```

use std::ops::Range;

use model::number::NumberSet;
use model::rendezvous::{Draws, Score};
use model::units::{BitsPerSecond, Bytes};

use super::cut::find;
use super::order::{Order, Ranked};
use super::work::{Held, Kept, State, Work};
use super::{Cluster, ClusterPlan, Config, MemberPlan, fill_spare, real, whole};

/// Plans a cluster. O(members log members + (held + placed) log held + placed x members).
pub fn place_cluster(order: &Order<'_>, cluster: &Cluster<'_>, config: &Config) -> ClusterPlan {
    let mut work = Work::new(order, cluster, config);
    work.pin();
    work.cut();
    work.keep();
    work.divide();
    work.bring_lost();
    work.bring_some(0..work.cut.enter);
    work.keep_what_fits();
    work.bring_some(work.cut.enter..u64::from(order.wanted()));
    let mut plan = work.finish();
    if order.wanted() == 0 {
        fill_spare(order, cluster, config, &mut plan);
    }
    plan
}

impl Work<'_> {
    /// What is pinned comes first, whatever it is worth.
    fn pin(&mut self) {
        for at in 0..self.pins.len() {
            let rank = self.pins[at];
            if let Some(of) = self.order.at(rank) {
                let holders = self.holders(rank);
                self.keep_some(&of, holders.clone());
                self.bring(rank, &of, holders);
            }
        }
    }

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

    /// Keeps as many copies as are needed: rather those of members with much room, which are not
    /// made for the head, and of those with little to do.
    fn keep_some(&mut self, of: &Ranked, holders: Range<usize>) {
        let copies = self.copies(of.peak);
        let mut order: Vec<usize> = holders.clone().collect();
        if copies < order.len() {
            let draws = Draws::of(&of.version.to_le_bytes());
            order.sort_by(|a, b| {
                let [a, b] = [a, b].map(|at| &self.members[self.held[*at].member]);
                let busy = |member: &State<'_>| member.load / member.throughput;
                let score = |member: &State<'_>| draws.score(member.of.lot, member.of.weight);
                let by_group = b.group.cmp(&a.group).then(busy(a).total_cmp(&busy(b)));
                by_group.then_with(|| score(a).cmp(&score(b)))
            });
        }
        let mut kept = 0;
        for at in order {
            let member = &mut self.members[self.held[at].member];
            if kept < copies && of.len.0 <= member.room {
                member.room -= of.len.0;
                self.held[at].state = Kept::Yes;
                kept += 1;
            }
        }
        let members: Vec<usize> = self.kept(holders);
        self.add_load(self.peak(of), &members);
    }

    fn kept(&self, holders: Range<usize>) -> Vec<usize> {
        let kept = self.held[holders].iter().filter(|held| held.state == Kept::Yes);
        kept.map(|held| held.member).collect()
    }

    /// Divides a peak among holders, by weight.
    fn add_load(&mut self, peak: f64, holders: &[usize]) {
        let weight = |at: &usize| f64::from(self.members[*at].of.weight.value());
        let all: f64 = holders.iter().map(weight).sum();
        for at in holders {
            let part = f64::from(self.members[*at].of.weight.value()) / all;
            self.members[*at].load += peak * part;
        }
    }

    /// Gives each group a run of the order, until its room is used up or its part of the load.
    fn divide(&mut self) {
        let groups = self.members.last().map_or(0, |member| member.group + 1);
        if groups < 2 {
            return;
        }
        let ranked = |rank: u64| self.order.at(rank).filter(|of| !self.is_banned(of));
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

    fn bring_lost(&mut self) {
        for at in 0..self.lost.len() {
            let rank = self.lost[at];
            if let Some(of) = self.order.at(rank).filter(|_| rank < self.cut.lost) {
                self.bring(rank, &of, self.holders(rank));
            }
        }
    }

    /// Brings what is missing of these ranks, until nothing fits any more.
    fn bring_some(&mut self, ranks: Range<u64>) {
        let mut done: Vec<u64> = self.pins.iter().chain(&self.lost).copied().collect();
        done.sort_unstable();
        let mut done = done.into_iter().peekable();
        let (mut begin, mut misfits) = (self.holders(ranks.start).start, 0);
        for rank in ranks {
            while self.held.get(begin).is_some_and(|held| held.rank < rank) {
                begin += 1;
            }
            while done.next_if(|done| *done < rank).is_some() {}
            if done.peek() == Some(&rank) {
                continue;
            }
            if let Some(of) = self.order.at(rank).filter(|of| !self.is_banned(of)) {
                let holders = begin..begin + self.count(begin, rank);
                if self.exchange(rank, &of, holders.clone()) || self.bring(rank, &of, holders) {
                    misfits = 0;
                } else if misfits == MISFITS_MAX {
                    return;
                } else {
                    misfits += 1;
                }
            }
        }
    }

    /// Brings the copies that are missing. What is held already need not come. False if none fits.
    fn bring(&mut self, rank: u64, of: &Ranked, holders: Range<usize>) -> bool {
        let copies = self.copies(of.peak);
        let before = self.kept(holders.clone());
        if copies <= before.len() {
            return true;
        }
        let mut members = before.clone();
        for at in holders.clone() {
            let to = self.held[at].member;
            if members.len() < copies && self.held[at].state == Kept::No && self.fits(to, of) {
                self.members[to].room -= of.len.0;
                self.held[at].state = Kept::Yes;
                members.push(to);
            }
        }
        while members.len() < copies {
            let is_holder = |at| {
                let held = &self.held[holders.clone()];
                members.contains(&at) || held.iter().any(|held| held.member == at)
            };
            let Some(to) = self.choose(rank, of, is_holder) else { break };
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
        of.len.0 <= self.members[member].room
    }

    fn take(&mut self, rank: u64, of: &Ranked, to: usize) {
        let member = &mut self.members[to];
        (member.room, member.fill) = (member.room - of.len.0, member.fill - of.len.0);
        self.cut.bytes = (self.cut.bytes - real(of.len.0)).max(0.0);
        self.comes.push((rank, to));
    }

    /// What a member will have to do, by what it can do, when its room is filled with what comes.
    fn busy(&self, member: &State<'_>) -> f64 {
        let each = if self.cut.bytes <= 0.0 { 0.0 } else { self.cut.load / self.cut.bytes };
        (member.load + real(member.room.min(member.fill)) * each) / member.throughput
    }

    /// The member that takes a copy: of the group to which the rank belongs, else of one with more
    /// room for its throughput; there the one that will have least to do.
    fn choose(&self, rank: u64, of: &Ranked, is_holder: impl Fn(usize) -> bool) -> Option<usize> {
        let group = self.ends.partition_point(|end| *end <= rank);
        let far = |member: &State<'_>| match member.group.checked_sub(group) {
            _ if self.ends.len() <= group => 0,
            Some(poorer) => poorer,
            None => self.ends.len() + group - member.group,
        };
        let draws = Draws::of(&of.version.to_le_bytes());
        let mut best: Option<(usize, f64, usize)> = None;
        for (at, member) in self.members.iter().enumerate() {
            if member.room < of.len.0 || member.fill < of.len.0 || is_holder(at) {
                continue;
            }
            let (far, busy) = (far(member), self.busy(member));
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

    /// Moves a copy from a member that has too much to do to one of its group that has too little,
    /// if there are enough copies.
    fn exchange(&mut self, rank: u64, of: &Ranked, holders: Range<usize>) -> bool {
        if self.exchange < of.len.0 || holders.len() < self.copies(of.peak) {
            return false;
        }
        let kept = self.kept(holders.clone());
        if kept.len() < self.copies(of.peak) {
            return false;
        }
        let busiest = kept
            .iter()
            .max_by(|a, b| self.busy(&self.members[**a]).total_cmp(&self.busy(&self.members[**b])));
        let Some(from) = busiest.copied() else { return false };
        let part = self.peak(of) / real(Bytes::of(kept.len()).0);
        let least = self.members[from].throughput * LEAST_EXCHANGE;
        if part < least {
            return false;
        }
        let group = self.members[from].group;
        let of_group = || self.members.iter().filter(|member| member.group == group);
        let all: f64 = of_group().map(|member| self.busy(member) * member.throughput).sum();
        let mean = all / of_group().map(|member| member.throughput).sum::<f64>();
        let most = mean * (1.0 + f64::from(self.config.balance_permille) / 1000.0);
        let giver = &self.members[from];
        if self.busy(giver) <= most || self.busy(giver) - part / giver.throughput < mean {
            return false;
        }
        let takes = |at: &usize| {
            let member = &self.members[*at];
            let fits = of.len.0 <= member.room && of.len.0 <= member.fill;
            let held = &self.held[holders.clone()];
            let is_other = member.group == group && held.iter().all(|held| held.member != *at);
            is_other && fits && self.busy(member) + part / member.throughput <= mean
        };
        let to = (0..self.members.len())
            .filter(takes)
            .min_by(|a, b| self.busy(&self.members[*a]).total_cmp(&self.busy(&self.members[*b])));
        let Some(to) = to else { return false };
        for held in &mut self.held[holders] {
            if held.member == from {
                held.state = Kept::Moved;
            }
        }
        self.members[from].room += of.len.0;
        self.add_load(-self.peak(of), &kept);
        let members: Vec<usize> =
            kept.iter().map(|at| if *at == from { to } else { *at }).collect();
        self.add_load(self.peak(of), &members);
        self.take(rank, of, to);
        self.exchange -= of.len.0;
        self.exchanged += of.len.0;
        true
    }

    /// An empty drive serves nobody: what is held goes only for something else.
    fn keep_what_fits(&mut self) {
        for at in 0..self.held.len() {
            let Held { rank, member, state } = self.held[at];
            if state != Kept::No {
                continue;
            }
            let Some(of) = self.order.at(rank) else { continue };
            if of.len.0 <= self.members[member].room {
                self.members[member].room -= of.len.0;
                self.held[at].state = Kept::Yes;
            }
        }
    }

    fn finish(mut self) -> ClusterPlan {
        self.comes.sort_unstable();
        let mut pairs: Vec<(u64, usize)> = self.comes.clone();
        let kept = self.held.iter().filter(|held| held.state == Kept::Yes);
        pairs.extend(kept.map(|held| (held.rank, held.member)));
        pairs.sort_unstable();
        self.members.iter_mut().for_each(|member| member.load = 0.0);
        let mut served = 0.0;
        for of_rank in pairs.chunk_by(|a, b| a.0 == b.0) {
            let Some(of) = self.order.at(of_rank[0].0) else { continue };
            let holders: Vec<usize> = of_rank.iter().map(|(_, member)| *member).collect();
            self.add_load(self.peak(&of), &holders);
            served += real(of.day.0) * f64::from(self.cluster.share.0) / 1e6;
        }
        let mut items: Vec<Vec<u32>> = vec![Vec::new(); self.members.len()];
        for (rank, member) in pairs {
            items[member].extend(self.order.at(rank).map(|of| of.item.0));
        }
        let mut plans = vec![MemberPlan::default(); self.members.len()];
        for (member, mut items) in self.members.iter().zip(items) {
            items.sort_unstable();
            let items = NumberSet::from_sorted_iter(items).expect("they were sorted");
            plans[member.at] = MemberPlan {
                items,
                room_left: Bytes(member.room),
                fill_left: Bytes(member.fill),
                load: BitsPerSecond(whole(member.load)),
            };
        }
        ClusterPlan {
            members: plans,
            cutoff: self.cut.by_room,
            unfilled: self.cut.by_fill,
            served: Bytes(whole(served)),
            exchanged: Bytes(self.exchanged),
        }
    }
}

/// Arbitrary: an item of less than this part of a member's throughput balances nothing.
const LEAST_EXCHANGE: f64 = 1e-5;

/// Arbitrary: after so many items in a row for which there is no room or no fill left, no more are
/// tried. What is left is less than what most of them take.
pub(super) const MISFITS_MAX: u32 = 256;

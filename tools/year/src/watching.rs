//! Each hour's viewers: who serves them.

use model::number::index;

use crate::region::Region;
use crate::sessions::{Day, SLOTS, Session};
use crate::sites::EXCHANGE;
use crate::tally::Policy;

/// What is left of each member's hour, by placing policy and site.
type Left = [Vec<[u64; 4]>; 4];

/// So much of an appliance's throughput is left where its share of sessions is cut, in hundredths:
/// `share_cut_above` of control as it comes is 90. It serves the others if nobody else does.
const SPARE_PERCENT: u64 = 10;

/// Who serves a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Own,
    Reach,
    /// Nobody in reach holds it, or nobody who does has throughput left.
    Upstream {
        is_held: bool,
    },
}

impl Region<'_> {
    /// A day from the window's first hour on.
    pub(crate) fn watch(&mut self, day: u32, watched: &Day) {
        for slot in 0..SLOTS {
            self.fill(day, slot);
            let hour = index(day) * SLOTS + slot;
            let calendar = self.tally.calendar;
            let lost = if calendar.is_lost(hour) { self.lost.clone() } else { Vec::new() };
            let mut left = at_first(&self.capacity, &lost);
            for site in (0..self.sites.len()).filter(|site| !lost.contains(site)) {
                self.watch_site(hour, site, watched.at(site, slot), &mut left);
            }
            // Whoever has a place elsewhere keeps it.
            let is_first = !lost.is_empty() && !calendar.is_lost(hour - 1);
            for site in &lost {
                self.turn_away(*site, watched.at(*site, slot), &mut left, is_first);
            }
        }
    }

    fn watch_site(&mut self, hour: usize, site: usize, sessions: &[Session], left: &mut Left) {
        let kind = self.sites[site].kind;
        self.tally.sessions += u64::try_from(sessions.len()).unwrap_or(0);
        for session in sessions {
            let (item, bytes) = (session.item(), session.bytes(&self.catalogue.lens));
            self.tally.served(hour, kind, bytes);
            for policy in Policy::PLACED {
                let from = self.serve(policy, (site, true), item, bytes, left);
                if from == From::Own {
                    continue;
                }
                let is_held = self.holders[kind][index(item)][policy.at()] != 0;
                let flow = self.tally.flow(policy);
                flow.missed(hour, kind, bytes);
                if is_held && flow.calendar.counts(hour) {
                    flow.shed[kind] += bytes;
                }
                if matches!(from, From::Upstream { .. }) {
                    flow.upstream[hour] += bytes;
                }
            }
        }
    }

    /// The nearest site that has it and throughput: as steering, first of those whose share is
    /// whole, then of those that have more to do.
    fn serve(
        &self,
        policy: Policy,
        (site, is_there): (usize, bool),
        item: u32,
        bytes: u64,
        left: &mut Left,
    ) -> From {
        let own = is_there.then_some(&site);
        let holders = |site: usize| self.holders[self.sites[site].kind][index(item)][policy.at()];
        for spare in [SPARE_PERCENT, 0] {
            for other in own.into_iter().chain(&self.sites[site].reach) {
                let (left, capacity) = (&mut left[policy.at()][*other], &self.capacity[*other]);
                if take(holders(*other), left, capacity, (bytes, spare)) {
                    return if *other == site { From::Own } else { From::Reach };
                }
            }
        }
        From::Upstream { is_held: self.sites[site].reach.iter().any(|other| holders(*other) != 0) }
    }

    /// Viewers of a site that is lost.
    fn turn_away(&mut self, site: usize, sessions: &[Session], left: &mut Left, is_first: bool) {
        assert!(self.sites[site].kind != EXCHANGE, "exchanges are not lost");
        for session in sessions {
            let bytes = session.bytes(&self.catalogue.lens);
            if self.sites[site].reach.is_empty() {
                self.tally.loss.without_reach_first_hour += u64::from(is_first);
                self.tally.loss.without_reach += 1;
                continue;
            }
            let at = (site, false);
            let from = self.serve(Policy::Directed, at, session.item(), bytes, left);
            let loss = &mut self.tally.loss;
            loss.sessions += 1;
            match from {
                From::Own | From::Reach => loss.in_reach += 1,
                From::Upstream { is_held: false } => loss.upstream += 1,
                From::Upstream { is_held: true } => {
                    loss.full += 1;
                    loss.rebuffers += u64::from(is_first);
                }
            }
        }
    }
}

/// What is left as an hour begins: nothing of a site that is lost, whoever would be sent there.
fn at_first(capacity: &[[u64; 4]], lost: &[usize]) -> Left {
    let mut left = capacity.to_vec();
    lost.iter().for_each(|site| left[*site] = [0; 4]);
    std::array::from_fn(|_| left.clone())
}

/// True if one of those who hold it has so many bytes left, and hundredths of its capacity besides:
/// it goes to the one that is least loaded.
fn take(holders: u8, left: &mut [u64; 4], capacity: &[u64; 4], (bytes, spare): (u64, u64)) -> bool {
    if holders == 0 {
        return false;
    }
    let of = |member: usize| u128::from(left[member]);
    let mut best: Option<usize> = None;
    for member in (0..4).filter(|member| holders & 1 << member != 0) {
        // left / capacity, crosswise.
        let is_better = |other: usize| {
            of(other) * u128::from(capacity[member]) < of(member) * u128::from(capacity[other])
        };
        let has_it = bytes.saturating_add(capacity[member] / 100 * spare) <= left[member];
        if has_it && best.is_none_or(is_better) {
            best = Some(member);
        }
    }
    let Some(member) = best else { return false };
    left[member] -= bytes;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_to_a_site_in_the_hours_in_which_it_is_lost() {
        let capacity = [[100, 1000, 0, 0], [50, 0, 0, 0]];
        for (lost, sent) in [(Vec::new(), [true, true]), (vec![1], [true, false])] {
            for mut left in at_first(&capacity, &lost) {
                let sites = [0, 1].map(|at| take(0b11, &mut left[at], &capacity[at], (50, 0)));
                assert_eq!(sites, sent, "{lost:?}");
            }
        }
    }

    #[test]
    fn a_session_goes_to_the_least_loaded_of_those_who_hold_it_and_have_room() {
        let capacity = [100, 1000, 0, 0];
        let mut left = [100, 600, 0, 0];
        assert!(take(0b11, &mut left, &capacity, (50, 0)));
        assert_eq!(left, [50, 600, 0, 0], "100 of 100 before 600 of 1000");
        assert!(take(0b11, &mut left, &capacity, (50, 0)));
        assert_eq!(left, [50, 550, 0, 0]);
        assert!(!take(0b01, &mut left, &capacity, (51, 0)), "it has only 50 left");
        assert!(!take(0b01, &mut left, &capacity, (41, 10)), "a tenth is for others");
        assert!(take(0b01, &mut left, &capacity, (40, 10)));
        assert!(!take(0, &mut left, &capacity, (1, 0)), "nobody holds it");
    }
}

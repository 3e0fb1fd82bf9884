//! Appliances that are drained: an operator's wish with a time, and how far it has come.
//!
//! ```text
//! serving ── from ──> draining ──┬── next to nothing leaves it, for a while ──> drained
//!    ^                           └── the bound passes, and it still sends ────> drained, late
//!    └───── until, or the operator's word ─────┴──────────────────────────────────┘
//! ```
//!
//! One that drains is on no new playback's list while others are good, and on no answer to a poll.
//! Players that poll have left it after a TTL. One that was found drained stays so until the drain
//! ends: it may be stopped and started meanwhile. The way of a drain is not durable: after a
//! restart of this process it is watched anew.
//!
//! It is looked at when its appliance is judged: with each report, and when its clock is due (see
//! `watch`), which is so when a drain begins or ends, too. O(1) each; no tick goes through a fleet.

use model::id::ApplianceId;
use model::units::{BitsPerSecond, Instant, Nanos, UnixSeconds};

use crate::{Desired, Director, Registered, TICK};

/// An operator's wish that an appliance be drained. Durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    pub from: UnixSeconds,
    /// Then it serves again by itself; none for never.
    pub until: Option<UnixSeconds>,
}

/// When an appliance that drains is drained.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Players that poll have left it after this.
    pub leave: Nanos,
    /// Less egress than this is next to nothing.
    pub quiet_egress: BitsPerSecond,
    /// For so long.
    pub quiet: Nanos,
    /// It counts as drained after this, whatever it sends.
    pub bound: Nanos,
}

/// How an appliance came to be drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Next to nothing leaves it.
    Quiet,
    /// Its time was over, and it sent so much.
    Late(BitsPerSecond),
}

/// The state of a drain that is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Draining,
    Drained(End),
}

/// The way of one drain so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Course {
    began: Option<Instant>,
    quiet_since: Option<Instant>,
    /// Invariant: none before `began`.
    end: Option<End>,
}

impl Drain {
    /// True while it is time to drain. `from` is part of it, `until` is not.
    pub fn is_on(&self, now: UnixSeconds) -> bool {
        self.from <= now && !self.is_over(now)
    }

    /// True from `until` on.
    pub fn is_over(&self, now: UnixSeconds) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    /// When it begins or ends next.
    fn turn(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        if now < self.from { Some(self.from) } else { self.until.filter(|until| now < *until) }
    }
}

impl Course {
    /// Looks at an appliance whose drain is on or not, and at its egress, if it reports. O(1).
    pub(crate) fn look(
        &mut self,
        now: Instant,
        is_on: bool,
        egress: Option<BitsPerSecond>,
        config: &Config,
    ) -> Option<State> {
        if !is_on {
            *self = Self::default();
            return None;
        }
        let began = *self.began.get_or_insert(now);
        if let Some(egress) = egress {
            let since = *self.quiet_since.get_or_insert(now);
            let has_left = config.leave <= now.since(began);
            if config.quiet_egress <= egress {
                self.quiet_since = None;
            }
            let is_quiet = self.quiet_since.is_some() && config.quiet <= now.since(since);
            assert!(began <= since, "what is quiet is so since it began at the earliest");
            let is_late = config.bound <= now.since(began);
            let end = match (has_left && is_quiet, is_late) {
                (true, _) => Some(End::Quiet),
                (false, true) => Some(End::Late(egress)),
                (false, false) => None,
            };
            self.end = self.end.or(end);
        }
        assert!(self.began.is_some(), "a drain that is on has begun");
        Some(self.end.map_or(State::Draining, State::Drained))
    }
}

impl Director {
    /// True while an operator wants this appliance drained.
    pub(crate) fn drains(&self, id: &ApplianceId) -> bool {
        self.drain(id).is_some_and(|drain| drain.is_on(self.now_unix))
    }

    fn drain(&self, id: &ApplianceId) -> Option<Drain> {
        self.desired.appliances.get(id)?.drain
    }

    /// When to look whether the drain of an appliance begins or ends, if it will.
    pub(crate) fn drain_look(&self, now: Instant, id: &ApplianceId) -> Option<Instant> {
        let at = self.drain(id)?.turn(self.now_unix)?;
        // How much of this second is over nobody knows: the last one before is looked at in ticks.
        let seconds = at.0.saturating_sub(self.now_unix.0).saturating_sub(1).min(LOOK_SECONDS_MAX);
        Some(now + Nanos::seconds(seconds).max(TICK))
    }

    /// Appliances whose drain is not what it was `before` are judged at once. O(appliances).
    pub(crate) fn follow_drains(&mut self, now: Instant, before: &Desired) {
        let other = |(id, of): (&ApplianceId, &Registered)| {
            let drain = before.appliances.get(id).and_then(|registered| registered.drain);
            (drain != of.drain).then(|| id.clone())
        };
        let others: Vec<_> = self.desired.appliances.iter().filter_map(other).collect();
        others.iter().for_each(|id| self.judge(now, id));
    }

    /// Drains that are to come. O(appliances).
    pub fn drains_scheduled(&self) -> usize {
        let drains = self.desired.appliances.values().filter_map(|registered| registered.drain);
        drains.filter(|drain| self.now_unix < drain.from).count()
    }
}

/// Arbitrary: an appliance that reports is looked at far more often.
const LOOK_SECONDS_MAX: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config {
        leave: Nanos::seconds(10),
        quiet_egress: BitsPerSecond(1_000_000),
        quiet: Nanos::seconds(5),
        bound: Nanos::seconds(60),
    };

    /// An appliance that drains from second 0 on and sends so many Mb/s in each second; a dash is
    /// one without a report. The seconds in which it is found drained, and how.
    fn check(sent: &str, drained: &[usize], end: Option<End>) {
        let mut course = Course::default();
        let mut found = Vec::new();
        let mut last = None;
        for (second, word) in sent.split(' ').enumerate() {
            let now = Instant(Nanos::seconds(u64::try_from(second).unwrap()).0);
            let egress = word.parse().ok().map(|megabits: u64| BitsPerSecond(megabits * 1_000_000));
            if let Some(State::Drained(end)) = course.look(now, true, egress, &CONFIG) {
                found.push(second);
                last = Some(end);
            }
        }
        assert_eq!((found.first(), found.last()), (drained.first(), drained.last()), "{sent}");
        assert_eq!(last, end, "{sent}");
    }

    #[test]
    fn one_that_sends_nothing_is_drained_when_players_have_had_time_to_leave() {
        check(&["0"; 13].join(" "), &[10, 12], Some(End::Quiet));
    }

    #[test]
    fn quiet_lasts_or_counts_for_nothing() {
        // A player fetches in second 8: five quiet seconds more.
        check("9 9 0 0 0 0 0 0 2 0 0 0 0 0 0", &[14], Some(End::Quiet));
        check("9 9 9 9 9 9 9 9 9 9 9 9 0 0 0 0 0", &[], None);
    }

    #[test]
    fn the_bound_ends_it_whatever_it_sends() {
        check(&["7"; 62].join(" "), &[60, 61], Some(End::Late(BitsPerSecond(7_000_000))));
    }

    #[test]
    fn drained_stays_drained_through_a_restart_and_a_straggler() {
        check("0 0 0 0 0 0 0 0 0 0 0 - - - 0 5 0", &[10, 16], Some(End::Quiet));
    }

    #[test]
    fn one_that_does_not_report_is_not_judged() {
        check(&["-"; 70].join(" "), &[], None);
    }

    #[test]
    fn the_next_drain_is_watched_anew() {
        let mut course = Course::default();
        let nothing = Some(BitsPerSecond(0));
        let at = |seconds| Instant(Nanos::seconds(seconds).0);
        course.look(at(0), true, nothing, &CONFIG);
        let drained = Some(State::Drained(End::Quiet));
        assert_eq!(course.look(at(20), true, nothing, &CONFIG), drained);
        assert_eq!(course.look(at(21), false, nothing, &CONFIG), None);
        assert_eq!(course.look(at(22), true, nothing, &CONFIG), Some(State::Draining));
    }

    #[test]
    fn a_drain_is_on_from_its_first_second_to_before_its_last() {
        let drain = Drain { from: UnixSeconds(10), until: Some(UnixSeconds(20)) };
        let on = [9, 10, 19, 20].map(|at| drain.is_on(UnixSeconds(at)));
        assert_eq!(on, [false, true, true, false]);
        assert!(Drain { until: None, ..drain }.is_on(UnixSeconds(u64::MAX)));
        let turns = [9, 10, 19, 20].map(|at| drain.turn(UnixSeconds(at)).map(|turn| turn.0));
        assert_eq!(turns, [Some(10), Some(20), Some(20), None]);
    }
}

//! When a site's viewers stall more than they are used to: a warning, with hysteresis.
//!
//! ```text
//! share = time stalled / time stalled and watched, of the last minute
//! warn   share >= 1 %, and >= 3 times the usual, in 3 playbacks or more
//! calm   share below the half of both, a minute long
//! usual  moves by a hundredth each 10 s towards the share; not while it warns
//! ```

use model::units::{Instant, Nanos};

use crate::sums::{Source, Sums};

/// A share in millionths.
type Ppm = u64;

/// Sums are kept for so long together...
const STEP: Nanos = Nanos::seconds(10);
/// ... and so many of these are looked at: a minute.
const STEPS: usize = 6;
/// One in a hundred is what viewers leave for: candour, between the 0.2 % that good services have
/// and the 2 % at which viewers were measured to watch less (Dobrian and others, SIGCOMM 2011).
const LEAST: Ppm = 10_000;
const TIMES_USUAL: u64 = 3;
/// Fewer are chance, or what those viewers have at home.
const PLAYBACKS_MIN: u64 = 3;
/// A playback that goes on stalling counts again after so long: not twice in the same minute, and
/// what is told of it takes up to fifteen seconds.
const AGAIN: Nanos = Nanos::seconds(80);
const WATCHED_MIN: Nanos = Nanos::seconds(60);
/// How fast the usual follows: half-way in 11 minutes.
const USUAL_PARTS: u64 = 100;

/// A site whose viewers stall more than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    pub since: Instant,
    /// Of the last minute, in millionths.
    pub share_ppm: u64,
    /// The usual one.
    pub usual_ppm: u64,
    /// Stalls in the last minute.
    pub stalls: u64,
}

/// The stalls of one site.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    steps: [Step; STEPS],
    /// Which of them is added to, since the start.
    step: u64,
    usual: Ppm,
    warns_since: Option<Instant>,
    /// Since when it has been calm.
    calm_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Step {
    stalls: u64,
    /// That stalled, by requests or the server's guess, and by events.
    playbacks: [u64; 2],
    stalled: Nanos,
    watched: Nanos,
}

impl Watch {
    /// Adds what this source told now.
    pub fn add(&mut self, now: Instant, source: Source, sums: &Sums) {
        self.turn(now);
        let step = &mut self.steps[0];
        step.stalls = step.stalls.saturating_add(sums.stalls);
        let playbacks = &mut step.playbacks[usize::from(source == Source::Events)];
        *playbacks = playbacks.saturating_add(sums.playbacks_stalled);
        step.stalled = Nanos(step.stalled.0.saturating_add(sums.stall_time));
        step.watched = Nanos(step.watched.0.saturating_add(sums.watched));
    }

    /// What is to be said of it; time passes. O(1).
    pub fn look(&mut self, now: Instant) -> Option<Warning> {
        self.turn(now);
        let minute = self.minute();
        let share = minute.share();
        assert!(share <= 1_000_000, "a part is no more than all");
        let least = LEAST.max(TIMES_USUAL * self.usual);
        let is_much = least <= share
            && PLAYBACKS_MIN <= minute.playbacks()
            && WATCHED_MIN.0 <= minute.watched.0.saturating_add(minute.stalled.0);
        let is_calm = share < least / 2;
        if self.warns_since.is_none() && is_much {
            self.warns_since = Some(now);
        }
        match (self.warns_since, is_calm) {
            (Some(_), true) => {
                let since = *self.calm_since.get_or_insert(now);
                if Nanos(STEP.0 * 6) <= now.since(since) {
                    (self.warns_since, self.calm_since) = (None, None);
                }
            }
            _ => self.calm_since = None,
        }
        let warning = |since| Warning {
            since,
            share_ppm: share,
            usual_ppm: self.usual,
            stalls: minute.stalls,
        };
        self.warns_since.map(warning)
    }

    fn minute(&self) -> Step {
        let add = |sum: Step, step: &Step| Step {
            stalls: sum.stalls.saturating_add(step.stalls),
            playbacks: [0, 1].map(|at| sum.playbacks[at].saturating_add(step.playbacks[at])),
            stalled: Nanos(sum.stalled.0.saturating_add(step.stalled.0)),
            watched: Nanos(sum.watched.0.saturating_add(step.watched.0)),
        };
        self.steps.iter().fold(Step::default(), add)
    }

    /// Begins the steps that time has come to. O(STEPS).
    fn turn(&mut self, now: Instant) {
        let step = now.0 / STEP.0;
        let passed = step.saturating_sub(self.step);
        self.step = step.max(self.step);
        assert!(step <= self.step, "no step comes twice");
        for _ in 0..passed.min(u64::try_from(STEPS).expect("few")) {
            let share = self.minute().share();
            if self.warns_since.is_none() {
                let far = share.abs_diff(self.usual) / USUAL_PARTS;
                self.usual = match self.usual < share {
                    true => self.usual + far,
                    false => self.usual - far,
                };
            }
            self.steps.rotate_right(1);
            self.steps[0] = Step::default();
        }
    }
}

impl Step {
    /// That stalled, at least: one that tells by requests and by events is one.
    fn playbacks(&self) -> u64 {
        self.playbacks.into_iter().max().unwrap_or(0)
    }

    fn share(&self) -> Ppm {
        let all = u128::from(self.stalled.0) + u128::from(self.watched.0);
        let part = u128::from(self.stalled.0) * 1_000_000;
        u64::try_from(part.checked_div(all).unwrap_or(0)).expect("a part of a million")
    }
}

/// When a playback last counted as one that stalled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastStalled(Option<Instant>);

impl LastStalled {
    /// Counts the playback once in a while, if this is of a stall.
    pub(crate) fn count(&mut self, now: Instant, sums: &mut Sums) {
        let is_due = self.0.is_none_or(|last| AGAIN <= now.since(last));
        if is_due && 0 < sums.stalls {
            self.0 = Some(now);
            sums.playbacks_stalled += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds in which a hundred watch and so many stall for a second each.
    fn step(watch: &mut Watch, at: u64, stalls: u64) -> Option<Warning> {
        let second = 1_000_000_000;
        let watched = (1000 - stalls) * second;
        let stall_time = stalls * second;
        let sums =
            Sums { stalls, playbacks_stalled: stalls, stall_time, watched, ..Sums::default() };
        watch.add(Instant(at * STEP.0), Source::Requests, &sums);
        watch.look(Instant(at * STEP.0 + 1))
    }

    fn run(watch: &mut Watch, steps: std::ops::Range<u64>, stalls: u64) -> Vec<bool> {
        steps.map(|at| step(watch, at, stalls).is_some()).collect()
    }

    #[test]
    fn it_warns_within_a_minute_and_is_calm_a_minute_after() {
        let mut watch = Watch::default();
        assert!(run(&mut watch, 0..30, 1).iter().all(|warns| !warns), "one in a thousand is usual");
        let warns = run(&mut watch, 30..40, 50);
        let first = warns.iter().position(|warns| *warns).unwrap();
        assert!(first <= 2 && warns[first..].iter().all(|warns| *warns), "{warns:?}");
        let said = step(&mut watch, 40, 50).unwrap();
        assert_eq!(
            (said.since, said.share_ppm),
            (Instant((30 + u64::try_from(first).unwrap()) * STEP.0 + 1), 50_000)
        );
        assert!(said.usual_ppm < 1000 && said.stalls == 300, "{said:?}");
        let calm = run(&mut watch, 41..60, 1);
        let last = calm.iter().rposition(|warns| *warns).unwrap();
        assert!((6..=13).contains(&last), "{calm:?}");
    }

    #[test]
    fn a_share_near_the_bound_makes_it_warn_once() {
        let mut watch = Watch::default();
        run(&mut watch, 0..10, 0);
        let changes = |warns: &[bool]| warns.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let mut warns = Vec::new();
        for at in 10..200 {
            warns.push(
                step(&mut watch, at, [8, 13, 9, 14][usize::try_from(at).unwrap() % 4]).is_some(),
            );
        }
        assert_eq!(changes(&warns), 1, "{warns:?}");
    }

    #[test]
    fn a_site_that_is_used_to_stalls_is_not_warned_of() {
        let mut watch = Watch::default();
        // Slowly, so that it becomes usual.
        for (at, stalls) in (0..3000).map(|at| (at, at / 300)) {
            assert!(step(&mut watch, at, stalls).is_none(), "{at}");
        }
    }

    #[test]
    fn few_playbacks_are_chance_however_often_they_stall() {
        let mut watch = Watch::default();
        let stalled = |playbacks_stalled| Sums {
            stalls: 40,
            playbacks_stalled,
            stall_time: 60 << 30,
            watched: 60 << 30,
            ..Sums::default()
        };
        watch.add(Instant(1), Source::Requests, &stalled(2));
        assert_eq!(watch.look(Instant(2)), None);
        watch.add(Instant(3), Source::Events, &stalled(2));
        assert_eq!(watch.look(Instant(4)), None, "they may be the same");
        watch.add(Instant(5), Source::Events, &stalled(1));
        assert_eq!(watch.look(Instant(6)).unwrap().stalls, 120);
    }

    #[test]
    fn a_playback_that_goes_on_stalling_counts_once_in_a_minute() {
        let mut last = LastStalled::default();
        let mut counted = |at_s: u64, stalls| {
            let mut sums = Sums { stalls, ..Sums::default() };
            last.count(Instant(at_s * 1_000_000_000), &mut sums);
            sums.playbacks_stalled
        };
        let told = [(0, 0), (1, 4), (11, 1), (80, 1), (81, 0), (82, 1), (90, 1)];
        assert_eq!(told.map(|(at_s, stalls)| counted(at_s, stalls)), [0, 1, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_cannot_be_breaks_nothing() {
        let mut watch = Watch::default();
        let (stalls, playbacks_stalled, stall_time) = (u64::MAX, u64::MAX, u64::MAX);
        let all = Sums { stalls, playbacks_stalled, stall_time, ..Sums::default() };
        (0..10).for_each(|at| watch.add(Instant(at * STEP.0), Source::Events, &all));
        assert!(watch.look(Instant(9 * STEP.0)).is_some());
    }

    #[test]
    fn after_long_silence_nothing_is_left_of_what_was() {
        let mut watch = Watch::default();
        run(&mut watch, 0..10, 50);
        assert!(watch.look(Instant(1_000_000 * STEP.0)).is_some(), "not calm for a minute yet");
        assert!(watch.look(Instant(1_000_006 * STEP.0)).is_none());
    }
}

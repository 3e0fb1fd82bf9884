//! How long nobody was listened to, how long the director has been silent, and its longest step.

use model::units::{Instant, Nanos};

/// For so long nobody may be listened to before it is worth a look at every appliance.
const LOST_MIN: Nanos = Nanos::millis(300);

/// How often somebody looks whether the director makes steps.
const LOOK_EVERY: Nanos = Nanos::millis(100);

/// The longest step is told for so long after it at least, and for twice as long at most: whoever
/// scrapes once a minute sees each.
const LONGEST_OF: Nanos = Nanos::seconds(60);

/// The time in which nobody was listened to: a step that took long, a process that did not run, or
/// one whose other threads read nothing.
#[derive(Debug)]
pub(super) struct Attention {
    /// Until then it listened.
    pub(super) until: Instant,
    /// What was lost before is told.
    told: Instant,
}

impl Attention {
    pub(super) fn new(now: Instant) -> Self {
        Self { until: now, told: now }
    }

    /// So much was lost that is worth telling, if others read at `reads_at` last.
    pub(super) fn lost(&mut self, now: Instant, reads_at: Instant) -> Option<Nanos> {
        let lost = now.since(self.until.min(reads_at).max(self.told));
        if lost <= LOST_MIN {
            return None;
        }
        self.told = now;
        Some(lost)
    }
}

/// How long the director has made no step, by looks of another thread: a process that does not run
/// does not look. The director's ticks are steps.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    steps: u64,
    /// Looks since then.
    looks: u64,
}

impl Pulse {
    pub(super) fn look(&mut self, steps: u64) -> Nanos {
        self.looks = if steps == self.steps { self.looks + 1 } else { 0 };
        self.steps = steps;
        Nanos(LOOK_EVERY.0.saturating_mul(self.looks))
    }
}

/// The longest step of this span of `LONGEST_OF` and of the one before.
#[derive(Debug, Default)]
pub(super) struct Longest {
    begun: Instant,
    before: Nanos,
    now: Nanos,
}

impl Longest {
    pub(super) fn of(&mut self, now: Instant, step: Nanos) -> Nanos {
        if LONGEST_OF <= now.since(self.begun) {
            (self.begun, self.before, self.now) = (now, self.now, Nanos(0));
        }
        self.now = self.now.max(step);
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_nobody_listened_is_told_once() {
        let ms = |ms| Instant(0) + Nanos::millis(ms);
        let never = Instant(u64::MAX);
        let mut attention = Attention::new(ms(0));
        assert_eq!(attention.lost(ms(300), never), None, "a step may take so long");
        assert_eq!(attention.lost(ms(900), never), Some(Nanos::millis(900)), "it lasted on");
        assert_eq!(attention.lost(ms(1000), never), None, "the rest");
        attention.until = ms(2000);
        assert_eq!(attention.lost(ms(2100), ms(1950)), None);
        attention.until = ms(2500);
        let lost = attention.lost(ms(2500), ms(1950));
        assert_eq!(lost, Some(Nanos::millis(550)), "it listened, and nobody read");
        attention.until = ms(2900);
        assert_eq!(attention.lost(ms(2900), ms(1950)), Some(Nanos::millis(400)), "from there on");
    }

    #[test]
    fn a_director_is_silent_from_look_to_look_in_which_it_made_no_step() {
        let mut pulse = Pulse::default();
        assert_eq!(pulse.look(7), Nanos(0));
        assert_eq!(pulse.look(7), Nanos::millis(100));
        assert_eq!(pulse.look(7), Nanos::millis(200));
        assert_eq!(pulse.look(8), Nanos(0), "a step");
        assert_eq!(pulse.look(8), Nanos::millis(100));
    }

    #[test]
    fn the_longest_step_is_of_this_minute_and_the_last() {
        let at = |seconds| Instant(0) + Nanos::seconds(seconds);
        let mut longest = Longest::default();
        assert_eq!(longest.of(at(1), Nanos(7)), Nanos(7));
        assert_eq!(longest.of(at(59), Nanos(3)), Nanos(7));
        assert_eq!(longest.of(at(60), Nanos(4)), Nanos(7));
        assert_eq!(longest.of(at(119), Nanos(5)), Nanos(7));
        assert_eq!(longest.of(at(120), Nanos(2)), Nanos(5));
    }
}

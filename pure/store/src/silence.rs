//! A drive that does not answer, over time: when it is said to hang, and for how long.
//!
//! Workers and a drive's own thread see within a second that it hangs. What control is told of it
//! lasts longer: a drive that comes and goes would otherwise change where thousands of players are
//! sent each time.

use model::units::{Instant, Nanos};

/// Times. Longer than it takes to see that a drive hangs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// It answers again once it has for so long.
    pub answers_for: Nanos,
    /// It is not coming back if it has hung for so long.
    pub hangs_for: Nanos,
}

/// The outcome of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    Hangs,
    Answers,
    /// It has hung for too long: it should be taken out of use.
    GivenUp,
}

/// The silence of one drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silence {
    /// When it began to hang; none while it answers.
    since: Option<Instant>,
    /// When it was last seen to hang. Invariant: not before `since`.
    seen: Instant,
    given_up: bool,
}

impl Silence {
    /// A look at the drive, which `hangs` or not.
    pub fn look(&mut self, config: &Config, now: Instant, hangs: bool) -> Option<Notice> {
        if hangs {
            self.seen = now;
        }
        assert!(!self.given_up || self.since.is_some(), "only what hangs is given up");
        match self.since {
            None if hangs => {
                self.since = Some(now);
                Some(Notice::Hangs)
            }
            Some(since) if hangs && !self.given_up && config.hangs_for <= now.since(since) => {
                self.given_up = true;
                Some(Notice::GivenUp)
            }
            Some(_) if !hangs && config.answers_for <= now.since(self.seen) => {
                *self = Self::default();
                Some(Notice::Answers)
            }
            None | Some(_) => None,
        }
    }

    /// For how long it has been said to hang; none while it is not.
    pub fn lasts(&self, now: Instant) -> Option<Nanos> {
        self.since.map(|since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config =
        Config { answers_for: Nanos::seconds(10), hangs_for: Nanos::seconds(600) };

    fn check(looks: &[(u64, bool, Option<Notice>)]) {
        let mut silence = Silence::default();
        for (seconds, hangs, turn) in looks {
            let now = Instant(0) + Nanos::seconds(*seconds);
            assert_eq!(silence.look(&CONFIG, now, *hangs), *turn, "at {seconds} s");
        }
    }

    #[test]
    fn one_that_comes_and_goes_hangs_until_it_has_answered_for_a_while() {
        let (hangs, answers) = (Some(Notice::Hangs), Some(Notice::Answers));
        check(&[(1, false, None), (2, true, hangs), (3, false, None), (11, true, None)]);
        check(&[(2, true, hangs), (3, false, None), (11, false, None), (12, false, answers)]);
        check(&[(2, true, hangs), (12, false, answers), (13, false, None), (14, true, hangs)]);
    }

    #[test]
    fn one_that_does_not_come_back_is_given_up_once() {
        let hangs = Some(Notice::Hangs);
        check(&[(2, true, hangs), (601, true, None), (602, true, Some(Notice::GivenUp))]);
        let given_up = Some(Notice::GivenUp);
        check(
            &[(2, true, hangs), (602, true, given_up), (603, true, None), (700, false, None)][..3],
        );
    }
}

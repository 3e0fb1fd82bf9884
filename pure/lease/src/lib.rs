//! Which of two writers may write, by a row of the database that both write to.
//!
//! ```text
//!             ┌── Answered: another's ──┐
//!  standby ──> Take ── Answered: ours ──> Lead(epoch) ──> Renew ──> Answered: ours ── good again
//!     ^                                                     └── no answer, another's ──> StepDown
//!     └───────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! The row has an epoch, which grows whenever it changes hands, and a deadline by the database's
//! clock. A writer that does not renew in time loses it to whoever asks first. The lease alone
//! keeps nobody from writing: a process that was stopped between two of its steps believes for a
//! moment that it leads. So every transaction looks at the epoch (the *fence*), and one with
//! another's epoch changes nothing. The lease says who should write, the fence who can.
//!
//! A writer counts its lease from before it asked, so that by its own clock it ends before the
//! database gives it to another; a process that was stopped sees at its next tick that it is over.

use std::collections::VecDeque;

use model::machine::Machine;
use model::units::{Instant, Nanos};

/// The bounds of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long it is good once taken or renewed.
    pub good_for: Nanos,
    /// How often it is renewed, and how often a standby asks for it.
    pub ask_every: Nanos,
    /// A question without an answer for so long has none.
    pub answer_max: Nanos,
}

impl Config {
    /// For the writers of a fleet: a standby leads at most `good_for` and `ask_every` after the
    /// last renewal of the other, which leaves two of five seconds to read the database; and four
    /// renewals may fail in a row.
    pub const WRITERS: Self = Self {
        good_for: Nanos::millis(2500),
        ask_every: Nanos::millis(500),
        answer_max: Nanos::millis(1000),
    };
}

/// All that can happen to a writer's lease.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Time passes.
    Tick,
    /// What the database says to the question that was asked last.
    Answered(Answer),
    /// The question failed: nothing is known.
    Failed,
}

/// The row after a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is ours, with this epoch, and good from the question on.
    Ours(u64),
    /// Another has it.
    Others,
}

/// What a writer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take the lease if nobody's is good, with the next epoch.
    Take,
    /// Renew the lease of this epoch, if it is the newest.
    Renew(u64),
    /// Write from now on, with this epoch.
    Lead(u64),
    /// Write no more.
    StepDown(Lost),
}

/// Why a writer stands by again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Another has the lease.
    Taken,
    /// It could not be renewed in time, or nothing ran here for that long.
    Over,
}

/// A writer's view of the lease.
#[derive(Debug)]
pub struct Lease {
    config: Config,
    held: Option<Held>,
    /// When the question was asked whose answer is awaited.
    asked: Option<Instant>,
    ask_at: Instant,
    actions: VecDeque<Action>,
}

/// Invariant: the epoch is at least 1.
#[derive(Clone, Copy, Debug)]
struct Held {
    epoch: u64,
    good_until: Instant,
}

impl Lease {
    /// Stands by, and asks at once.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(config.ask_every < config.good_for, "a lease is renewed before it ends");
        assert!(config.answer_max < config.good_for, "a lost answer does not cost the lease");
        let mut lease =
            Self { config, held: None, asked: None, ask_at: now, actions: VecDeque::new() };
        lease.ask_if_due(now);
        lease
    }

    /// The epoch that this writer leads with, if it does.
    pub fn epoch(&self) -> Option<u64> {
        self.held.map(|held| held.epoch)
    }

    fn ask_if_due(&mut self, now: Instant) {
        if self.asked.is_some() || now < self.ask_at {
            return;
        }
        self.asked = Some(now);
        self.ask_at = now + self.config.ask_every;
        self.actions.push_back(match self.held {
            Some(held) => Action::Renew(held.epoch),
            None => Action::Take,
        });
    }

    fn answered(&mut self, now: Instant, asked: Instant, answer: Answer) {
        let good_until = asked + self.config.good_for;
        match (self.held, answer) {
            (Some(held), Answer::Ours(epoch)) if held.epoch == epoch => {
                self.held = Some(Held { epoch, good_until });
            }
            (None, Answer::Ours(epoch)) => {
                assert!(0 < epoch, "a lease that was taken has an epoch");
                // An answer that took so long is of a lease that may be another's by now.
                if now < good_until {
                    self.held = Some(Held { epoch, good_until });
                    self.actions.push_back(Action::Lead(epoch));
                }
            }
            (Some(_), Answer::Ours(_) | Answer::Others) => self.step_down(Lost::Taken),
            (None, Answer::Others) => {}
        }
    }

    fn step_down(&mut self, lost: Lost) {
        self.held = None;
        self.actions.push_back(Action::StepDown(lost));
    }
}

impl Machine for Lease {
    type Now = Instant;
    type Event<'a> = Event;
    type Action = Action;

    fn handle(&mut self, now: Instant, event: Event) {
        match event {
            Event::Tick => {}
            Event::Answered(answer) => {
                if let Some(asked) = self.asked.take() {
                    self.answered(now, asked, answer);
                }
            }
            Event::Failed => self.asked = None,
        }
        if self.held.is_some_and(|held| held.good_until <= now) {
            self.step_down(Lost::Over);
        }
        if self.asked.is_some_and(|asked| asked + self.config.answer_max <= now) {
            self.asked = None;
        }
        self.ask_if_due(now);
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let next = match self.asked {
            Some(asked) => asked + self.config.answer_max,
            None => self.ask_at,
        };
        Some(self.held.map_or(next, |held| held.good_until.min(next)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config::WRITERS;

    fn at(ms: u64) -> Instant {
        Instant(1_000_000_000 + ms * 1_000_000)
    }

    fn drain(lease: &mut Lease) -> Vec<Action> {
        std::iter::from_fn(|| lease.poll()).collect()
    }

    fn leader() -> Lease {
        let mut lease = Lease::new(CONFIG, at(0));
        assert_eq!(drain(&mut lease), [Action::Take]);
        lease.handle(at(10), Event::Answered(Answer::Ours(7)));
        assert_eq!(drain(&mut lease), [Action::Lead(7)]);
        lease
    }

    #[test]
    fn a_standby_asks_again_and_again_and_leads_once_the_lease_is_its_own() {
        let mut lease = Lease::new(CONFIG, at(0));
        assert_eq!(drain(&mut lease), [Action::Take]);
        lease.handle(at(10), Event::Answered(Answer::Others));
        assert_eq!((drain(&mut lease), lease.deadline()), (vec![], Some(at(500))));
        lease.handle(at(500), Event::Tick);
        assert_eq!(drain(&mut lease), [Action::Take]);
        lease.handle(at(510), Event::Answered(Answer::Ours(2)));
        assert_eq!((drain(&mut lease), lease.epoch()), (vec![Action::Lead(2)], Some(2)));
    }

    #[test]
    fn a_leader_renews_and_four_failures_in_a_row_cost_nothing() {
        let mut lease = leader();
        for n in 1..=4 {
            lease.handle(at(n * 500), Event::Tick);
            assert_eq!(drain(&mut lease), [Action::Renew(7)]);
            lease.handle(at(n * 500 + 10), Event::Failed);
        }
        lease.handle(at(2499), Event::Tick);
        assert_eq!(drain(&mut lease), []);
        lease.handle(at(2500), Event::Tick);
        let over = [Action::StepDown(Lost::Over), Action::Take];
        assert_eq!((drain(&mut lease), lease.epoch()), (over.to_vec(), None));
    }

    #[test]
    fn a_lease_is_counted_from_before_the_question() {
        let mut lease = leader();
        lease.handle(at(500), Event::Tick);
        lease.handle(at(900), Event::Answered(Answer::Ours(7)));
        drain(&mut lease);
        lease.handle(at(900), Event::Tick);
        assert_eq!(drain(&mut lease), []);
        // The next question is asked and nobody answers: good until 500 + 2500.
        for ms in (1000..3000).step_by(50) {
            lease.handle(at(ms), Event::Tick);
            assert_eq!(lease.epoch(), Some(7), "{ms}");
        }
        lease.handle(at(3000), Event::Tick);
        assert_eq!(lease.epoch(), None);
    }

    #[test]
    fn who_was_paused_steps_down_at_the_first_tick_whatever_it_hears() {
        let mut lease = leader();
        lease.handle(at(500), Event::Tick);
        drain(&mut lease);
        // Its answer waited for it: it was true ten seconds ago.
        lease.handle(at(10_500), Event::Answered(Answer::Ours(7)));
        assert_eq!(drain(&mut lease), [Action::StepDown(Lost::Over), Action::Take]);
    }

    #[test]
    fn a_leader_that_hears_of_another_stands_by() {
        let mut lease = leader();
        lease.handle(at(500), Event::Tick);
        drain(&mut lease);
        lease.handle(at(510), Event::Answered(Answer::Others));
        assert_eq!(drain(&mut lease), [Action::StepDown(Lost::Taken)]);
    }

    #[test]
    fn an_answer_that_took_longer_than_the_lease_leads_nobody() {
        let mut lease = Lease::new(CONFIG, at(0));
        drain(&mut lease);
        lease.handle(at(2500), Event::Answered(Answer::Ours(2)));
        assert_eq!((drain(&mut lease), lease.epoch()), (vec![Action::Take], None));
    }

    #[test]
    fn an_answer_to_a_question_that_was_given_up_is_not_listened_to() {
        let mut lease = Lease::new(CONFIG, at(0));
        drain(&mut lease);
        lease.handle(at(1000), Event::Tick);
        assert_eq!(drain(&mut lease), [Action::Take], "asked anew");
        lease.handle(at(1001), Event::Failed);
        lease.handle(at(1002), Event::Answered(Answer::Ours(3)));
        assert_eq!((drain(&mut lease), lease.epoch()), (vec![], None));
    }
}

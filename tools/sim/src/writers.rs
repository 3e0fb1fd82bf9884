//! Two writers on one database, which are killed, stopped and let go by dice: is a generation given
//! twice, is a change lost, and does the other take over in time?
//!
//! ```text
//! writer: pure/lease ── Take, Renew ──> row: epoch, deadline ┐
//!            └─ begin ─ look at the epoch ─ commit ──────────┴──> generation, number of changes
//! ```
//!
//! The database goes on while a process stands still: a question that was sent is answered, and a
//! transaction that waits for its process for too long is ended.

use lease::{Action, Answer, Config, Event, Lease};
use model::machine::Machine as _;
use model::units::{Instant, Nanos};
use ssd::Rng;

/// Time goes on by so much.
const STEP: Nanos = Nanos::millis(5);
/// The database ends a transaction whose process has said nothing for so long.
const IDLE_MAX: Nanos = Nanos::millis(1500);
/// Somebody leads again within this after whatever went wrong last.
const TAKE_OVER_MAX: Nanos = Nanos::seconds(5);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) kills: u64,
    pub(crate) pauses: u64,
    pub(crate) take_overs: u64,
    pub(crate) changes: u64,
    pub(crate) generations_twice: u64,
    pub(crate) changes_lost: u64,
    pub(crate) longest: Nanos,
}

impl Report {
    pub(crate) fn is_good(&self) -> bool {
        let wrong = self.generations_twice + self.changes_lost;
        wrong == 0 && 1 < self.take_overs && self.longest <= TAKE_OVER_MAX
    }
}

/// Draws so many kills and pauses. Without the fence a transaction does not look at the epoch.
pub(crate) fn play(seed: u64, strikes: u64, fenced: bool) -> Report {
    let mut scene = Scene::new(seed, fenced);
    while scene.report.kills + scene.report.pauses < strikes {
        scene.step();
    }
    scene.report
}

struct Scene {
    rng: Rng,
    now: Instant,
    fenced: bool,
    /// Whose lease it is, with which epoch, until when.
    row: (Option<usize>, u64, Instant),
    durable: State,
    writers: [Writer; 2],
    headless_since: Option<Instant>,
    report: Report,
}

/// What changes make: the newest generation, and how many changes are in it.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    generation: u64,
    changes: u64,
}

struct Writer {
    /// It does not run until then.
    until: Instant,
    lease: Lease,
    question: Option<Question>,
    /// Reads the database until then, to lead with this epoch.
    reading: Option<(u64, Instant)>,
    /// Leads, with what it knows.
    leads: Option<(u64, State)>,
    change: Option<Change>,
    next_change: Instant,
}

struct Question {
    action: Action,
    /// When the database sees it.
    at: Instant,
    answer: Option<(Answer, Instant)>,
}

/// A transaction: begun, then committed.
struct Change {
    epoch: u64,
    to: State,
    at: Instant,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// On its way to look at the epoch.
    Begins,
    /// It has looked, and the database waits for the process.
    Open,
    /// On its way to be committed.
    Commits,
    Committed,
    Refused,
}

impl Writer {
    fn new(now: Instant) -> Self {
        Self {
            until: now,
            lease: Lease::new(Config::WRITERS, now),
            question: None,
            reading: None,
            leads: None,
            change: None,
            next_change: now,
        }
    }

    /// A transaction of it that has looked at the epoch keeps others from changing that.
    fn holds_the_row(&self) -> bool {
        let open = |change: &Change| matches!(change.stage, Stage::Open | Stage::Commits);
        self.change.as_ref().is_some_and(open)
    }
}

impl Scene {
    fn new(seed: u64, fenced: bool) -> Self {
        Self {
            rng: Rng::new(seed),
            now: Instant(0),
            fenced,
            row: (None, 0, Instant(0)),
            durable: State::default(),
            writers: [Writer::new(Instant(0)), Writer::new(Instant(0))],
            headless_since: None,
            report: Report::default(),
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        for index in 0..self.writers.len() {
            self.strike(index);
            self.answer(index);
            self.commit(index);
            if self.writers[index].until <= self.now {
                self.run(index);
            }
        }
        self.look();
    }

    /// From `low` to `high` milliseconds from now.
    fn soon(&mut self, low: u32, high: u32) -> Instant {
        self.now + Nanos::millis(u64::from(low + self.rng.below(high - low + 1)))
    }

    /// What goes wrong with a writer that runs: each once in half a minute.
    fn strike(&mut self, index: usize) {
        if self.now < self.writers[index].until {
            return;
        }
        match self.rng.below(6_000) {
            0 => {
                self.report.kills += 1;
                self.headless_since = None;
                let again = self.soon(500, 20_000);
                // Its connections end with it, and what was open in them.
                self.writers[index] = Writer { until: again, ..Writer::new(again) };
            }
            1 => {
                self.report.pauses += 1;
                self.headless_since = None;
                let longest = if self.rng.below(2) == 0 { 20_000 } else { 3_000 };
                self.writers[index].until = self.soon(50, longest);
            }
            _ => {}
        }
    }

    /// The database sees a question that has come.
    fn answer(&mut self, index: usize) {
        let others_hold = self.fenced && self.writers[1 - index].holds_the_row();
        let back = self.soon(1, 60);
        let Some(question) = &mut self.writers[index].question else { return };
        if question.answer.is_some() || self.now < question.at {
            return;
        }
        let (holder, epoch, until) = self.row;
        let end = self.now + Config::WRITERS.good_for;
        let answer = match question.action {
            Action::Take if until <= self.now => {
                if others_hold {
                    return;
                }
                self.row = (Some(index), epoch + 1, end);
                Answer::Ours(epoch + 1)
            }
            Action::Renew(ours) if ours == epoch && holder == Some(index) => {
                self.row.2 = end;
                Answer::Ours(ours)
            }
            Action::Take | Action::Renew(_) | Action::Lead(_) | Action::StepDown(_) => {
                Answer::Others
            }
        };
        question.answer = Some((answer, back));
    }

    /// The database goes on with a transaction.
    fn commit(&mut self, index: usize) {
        let newest = self.row.1;
        let back = self.soon(1, 30);
        let Some(change) = &mut self.writers[index].change else { return };
        match change.stage {
            Stage::Begins if change.at <= self.now => {
                let is_good = !self.fenced || change.epoch == newest;
                change.stage = if is_good { Stage::Open } else { Stage::Refused };
                change.at = back;
            }
            Stage::Open if change.at + IDLE_MAX <= self.now => change.stage = Stage::Refused,
            Stage::Commits if change.at <= self.now => {
                let State { generation, changes } = self.durable;
                self.report.generations_twice += u64::from(change.to.generation <= generation);
                self.report.changes_lost += u64::from(change.to.changes != changes + 1);
                self.durable = change.to;
                self.report.changes += 1;
                (change.stage, change.at) = (Stage::Committed, back);
            }
            Stage::Begins | Stage::Open | Stage::Commits | Stage::Committed | Stage::Refused => {}
        }
    }

    /// A process does what it can do now; its tasks in any order.
    fn run(&mut self, index: usize) {
        if self.rng.below(2) == 0 {
            self.ask(index);
            self.change(index);
        } else {
            self.change(index);
            self.ask(index);
        }
    }

    fn ask(&mut self, index: usize) {
        let (now, sent, read, durable) =
            (self.now, self.soon(1, 60), self.soon(50, 800), self.durable);
        let writer = &mut self.writers[index];
        let answered = writer.question.as_ref().and_then(|question| question.answer);
        if let Some((answer, _)) = answered.filter(|(_, at)| *at <= now) {
            writer.question = None;
            writer.lease.handle(now, Event::Answered(answer));
        } else if writer.lease.deadline().is_some_and(|due| due <= now) {
            writer.lease.handle(now, Event::Tick);
        }
        while let Some(action) = writer.lease.poll() {
            match action {
                Action::Take | Action::Renew(_) => {
                    writer.question = Some(Question { action, at: sent, answer: None });
                }
                Action::Lead(epoch) => writer.reading = Some((epoch, read)),
                Action::StepDown(_) => (writer.leads, writer.reading) = (None, None),
            }
        }
        if let Some((epoch, at)) = writer.reading
            && at <= now
        {
            self.report.take_overs += 1;
            (writer.leads, writer.reading) = (Some((epoch, durable)), None);
        }
    }

    /// One at a time. What was begun goes on, whoever leads by now.
    fn change(&mut self, index: usize) {
        let (now, sent, next) = (self.now, self.soon(1, 60), self.soon(5, 100));
        let writer = &mut self.writers[index];
        match (&mut writer.change, &mut writer.leads) {
            (None, Some((epoch, known))) if writer.next_change <= now => {
                let to = State { generation: known.generation + 1, changes: known.changes + 1 };
                let change = Change { epoch: *epoch, to, at: sent, stage: Stage::Begins };
                writer.change = Some(change);
            }
            (Some(change), leads) if change.at <= now => match change.stage {
                Stage::Open => (change.stage, change.at) = (Stage::Commits, sent),
                Stage::Committed => {
                    // Answered: nobody may lose it from now on.
                    if let Some((epoch, known)) = leads
                        && *epoch == change.epoch
                    {
                        *known = change.to;
                    }
                    (writer.change, writer.next_change) = (None, next);
                }
                Stage::Refused => (writer.change, writer.next_change) = (None, next),
                Stage::Begins | Stage::Commits => {}
            },
            (None | Some(_), _) => {}
        }
    }

    /// Somebody leads, or has not for too long while he could have.
    fn look(&mut self) {
        let runs = |writer: &&Writer| writer.until <= self.now;
        let leads = self.writers.iter().filter(runs).any(|writer| writer.leads.is_some());
        let can = self.writers.iter().any(|writer| runs(&writer));
        if leads || !can {
            self.headless_since = None;
            return;
        }
        let since = *self.headless_since.get_or_insert(self.now);
        self.report.longest = self.report.longest.max(self.now.since(since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_generation_is_given_twice_and_somebody_leads_soon() {
        let report = play(1, 300, true);
        assert!(report.is_good() && 100 < report.take_overs, "{report:?}");
    }

    #[test]
    fn a_writer_that_does_not_look_at_the_epoch_is_found() {
        let report = play(1, 300, false);
        assert!(0 < report.generations_twice && 0 < report.changes_lost, "{report:?}");
    }
}

//! The director's thread: ticks when they are due, and steps between them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use director::Event;
use model::machine::Machine;
use model::units::{Instant, Nanos};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::timeout;

use super::attention::{Attention, Longest};
use super::{Desk, Step};

/// A tick that is due lets so much work pass before it: 250 reports, or fewer steps that take
/// longer.
const TICK_WAITS: Nanos = Nanos::millis(5);

pub(super) struct Thread {
    pub(super) desk: Desk,
    pub(super) steps: mpsc::Receiver<Step>,
    pub(super) runtime: Runtime,
    pub(super) attention: Attention,
    /// The work that a tick, which is due, has let pass before it.
    pub(super) passed: Nanos,
    pub(super) longest: Longest,
}

enum Next {
    Tick,
    Step(Step),
    End,
}

impl Thread {
    pub(super) fn run(mut self) {
        let shared = self.desk.shared.clone();
        loop {
            let next = self.next();
            let now = shared.clock.now();
            let reads_at = Instant(shared.reads_at.load(Ordering::Relaxed));
            if let Some(lost) = self.attention.lost(now, reads_at) {
                let by_ms = lost.as_millis();
                tracing::warn!(
                    by_ms,
                    "no report was read so long, and no appliance is silent by it"
                );
                shared.counts.lost.add(lost.0);
                self.desk.director.handle(now, Event::Late(lost));
            }
            self.attention.until = now;
            let passes = matches!(next, Next::Step(_)) && self.desk.deadline() <= now;
            match next {
                Next::End => return,
                Next::Tick => self.desk.tick(now),
                Next::Step(step) => step(&mut self.desk, now),
            }
            let ended = shared.clock.now();
            let took = ended.since(now);
            self.passed = if passes { Nanos(self.passed.0 + took.0) } else { Nanos(0) };
            shared.counts.steps.count();
            shared.counts.busy.add(took.0);
            shared.counts.longest.set(self.longest.of(ended, took).0);
        }
    }

    /// A tick if one is due; else what comes first until then. With more to do than there is time,
    /// both have their turn.
    fn next(&mut self) -> Next {
        let clock = self.desk.shared.clock;
        let (due, now) = (self.desk.deadline(), clock.now());
        if due <= now && TICK_WAITS <= self.passed {
            return Next::Tick;
        }
        match self.steps.try_recv() {
            Ok(step) => return Next::Step(step),
            Err(TryRecvError::Disconnected) => return Next::End,
            Err(TryRecvError::Empty) if due <= now => return Next::Tick,
            Err(TryRecvError::Empty) => {}
        }
        let (wait, steps) = (Duration::from(due.since(now)), &mut self.steps);
        let next = match self.runtime.block_on(async { timeout(wait, steps.recv()).await }) {
            Ok(Some(step)) => Next::Step(step),
            Ok(None) => Next::End,
            Err(_) => Next::Tick,
        };
        self.attention.until = clock.now().min(due);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::directing::tests::{registered, report};
    use crate::state::writer::tests::open;
    use model::view::Health;
    use std::collections::BTreeSet;

    #[tokio::test]
    async fn a_stalled_director_calls_nobody_silent() {
        let health = "[health]\nreport_interval = \"100 ms\"\nprobe_after = \"500 ms\"\n\
                      stale_after = \"1 s\"\n";
        let (_directory, control) = open(health).await;
        let a1 = registered(&control).await;
        control.directing.report(report(&a1, 1), ()).await.unwrap().unwrap();
        let stall = |_: &mut Desk, _| std::thread::sleep(Duration::from_millis(1500));
        let look = move |desk: &Desk, now| {
            let status = desk.director.appliances(now).remove(&a1).unwrap();
            (status.health, status.last_report.unwrap(), desk.director.counters().probes)
        };
        // One after the other: what is due by the clock comes right behind the stall.
        let (directing, lost) = (&control.directing, &control.directing.counts().lost);
        let ((), (), found) = tokio::join!(
            directing.ask_in_turn(stall),
            directing.ask_in_turn(Desk::tick),
            directing.ask(look)
        );
        let (health, silent, probes) = found.unwrap();
        assert_eq!((health, probes), (Health::Healthy, 0));
        assert!(silent < Nanos::seconds(1), "{silent}");
        assert!(1500 <= Nanos(lost.value()).as_millis());
    }

    #[tokio::test]
    async fn a_tick_that_is_due_waits_for_no_more_than_some_milliseconds_of_work() {
        let (_directory, control) = open("").await;
        // Half a second of work, one behind the other.
        let work = |_| {
            let control = control.clone();
            tokio::spawn(async move {
                let work = move |desk: &mut Desk, _: Instant| {
                    std::thread::sleep(Duration::from_millis(5));
                    desk.deadline()
                };
                control.directing.ask_in_turn(work).await
            })
        };
        let all: Vec<_> = (0..100).map(work).collect();
        let mut deadlines = BTreeSet::new();
        for one in all {
            deadlines.insert(one.await.unwrap());
        }
        assert!(4 <= deadlines.len(), "a tick each tenth of a second: {}", deadlines.len());
    }
}

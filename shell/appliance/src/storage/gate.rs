//! A drive's gate: threads other than workers wait here for a turn on the drive.
//!
//! ```text
//! worker ── each turn of its ring ──> DriveSlice (atomics) ──┐
//! filler, mover, scrub, audit, verify, keeper, sibling ── enter ──> iosched::gate ──> a turn
//! ```
//!
//! The threads that wait share one lock per drive; workers take no part in it. Of those who wait
//! one looks at the clock and at the workers, the others sleep until their turn has come; but who
//! comes and has to look earlier than he will looks himself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use iosched::drive::{Class, Limit, Policy, Ticket};
use iosched::governor;
use model::status::DriveLoad;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::counters::DriveSlice;
use crate::lock::lock;
use crate::storage::mounts::Medium;

/// The rule that holds writes, scrubs and deletes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The number of writes at once, and nothing else.
    Off,
    Static,
    #[default]
    Governor,
}

/// How drives are written, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes {
    /// By what writes are held back.
    pub mode: Mode,
    /// What reads should take: none by what the drive is, one for all drives, or one for each.
    pub targets: Vec<Nanos>,
    /// Most writes at once, on each drive.
    pub depth: u32,
    /// `Static`: so fast, on each drive.
    pub rate: Option<BitsPerSecond>,
    /// `Governor`: always granted, on each drive.
    pub floor: BitsPerSecond,
}

/// How one drive is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub policy: Policy,
    /// A read should not take longer.
    pub target: Nanos,
    pub depth: u32,
    /// The drive does nothing beside a delete.
    pub deletes_alone: bool,
}

impl Writes {
    /// The rules for the drive of this index.
    pub fn rules(&self, index: usize, medium: &Medium) -> Rules {
        let target = match self.targets[..] {
            [] => medium.target,
            [all] => all,
            [..] => self.targets[index],
        };
        let bytes = |rate: BitsPerSecond| Bytes((rate.0 / 8).max(1));
        let floor = bytes(self.floor);
        let policy = match (self.mode, self.rate) {
            (Mode::Off, _) => Policy::Off,
            (Mode::Static, Some(rate)) => Policy::Static(Limit::Bandwidth(bytes(rate))),
            (Mode::Static, None) => Policy::Static(Limit::Depth(self.depth)),
            (Mode::Governor, _) => {
                Policy::Governed(governor::Config { floor, ..governor::Config::MEASURED })
            }
        };
        Rules { policy, target, depth: self.depth, deletes_alone: medium.deletes_alone }
    }
}

/// What verifies blocks reads no faster, all of it together; the scrub has a rate of its own below.
const SCRUB_RATE: Bytes = Bytes(50_000_000);
/// Operations at once and in line: more than there are threads that ask.
const DEPTH: u32 = 2048;
const QUEUE_LEN_MAX: usize = 2048;

/// The gate of one drive.
#[derive(Debug)]
pub(crate) struct Gate {
    clock: Clock,
    /// Of each worker, for this drive.
    slices: Vec<Arc<[DriveSlice]>>,
    drive: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// None where everybody may pass at any time.
    gate: Option<iosched::gate::Gate>,
    /// When somebody who waits looks at the clock, if anybody does: the earliest moment of them.
    looks_at: Option<Instant>,
}

/// A turn on the drive. Over when dropped.
#[must_use]
pub(crate) struct Pass<'a> {
    gate: &'a Gate,
    ticket: Option<Ticket>,
}

impl Gate {
    /// One that nobody waits at.
    pub(crate) fn open_to_all() -> Self {
        let state = Mutex::new(State { gate: None, looks_at: None });
        let (clock, slices) = (Clock::start(), Vec::new());
        Self { clock, slices, drive: 0, state, changed: Condvar::new() }
    }

    /// The gate of a drive that these workers read from; of each the slices of all drives.
    pub(crate) fn new(rules: &Rules, slices: Vec<Arc<[DriveSlice]>>, drive: usize) -> Self {
        let config = iosched::drive::Config {
            depth: DEPTH,
            fill_depth: rules.depth,
            queue_len_max: QUEUE_LEN_MAX,
            target: rules.target,
            scrub_rate: SCRUB_RATE,
            deletes_alone: rules.deletes_alone,
            policy: rules.policy,
        };
        let clock = Clock::start();
        let gate = iosched::gate::Gate::new(config, clock.now().instant);
        let state = Mutex::new(State { gate: Some(gate), looks_at: None });
        Self { clock, slices, drive, state, changed: Condvar::new() }
    }

    /// Lets everybody pass from now on: all must stop, or nothing is done to the drive any more.
    pub(crate) fn open(&self) {
        self.lock().gate = None;
        self.changed.notify_all();
    }

    /// Waits for a turn on the drive.
    pub(crate) fn enter(&self, class: Class, len: Bytes) -> Pass<'_> {
        let mut state = self.lock();
        let turn = match &mut state.gate {
            Some(gate) => gate.ask(self.now(), class, len).ok(),
            None => None,
        };
        // Without room in line, which there is for more threads than there are.
        let Some(turn) = turn else { return Pass { gate: self, ticket: None } };
        loop {
            let now = self.now();
            let Some(gate) = &mut state.gate else { return Pass { gate: self, ticket: None } };
            let news = self.look_with(gate, now);
            let ticket = gate.taken(turn);
            if news || (ticket.is_some() && 0 < gate.waiting()) {
                // Who waits has its turn, or has to look in our place.
                self.changed.notify_all();
            }
            if ticket.is_some() {
                return Pass { gate: self, ticket };
            }
            let look_at = gate.look_at(now);
            state = if state.looks_at.is_some_and(|earlier| earlier <= look_at) {
                self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
            } else {
                state.looks_at = Some(look_at);
                let waited = self.changed.wait_timeout(state, look_at.since(now).into());
                let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                // Another thread may look earlier still. If the next to come looks as well, it does
                // no harm.
                state.looks_at = None;
                state
            };
        }
    }

    /// Takes note of what the workers' reads met. To be called a few times a second, so that the
    /// report is true though nobody waits.
    pub(crate) fn look(&self) {
        let mut state = self.lock();
        if let Some(gate) = &mut state.gate
            && self.look_with(gate, self.now())
        {
            self.changed.notify_all();
        }
    }

    /// How the drive is; none where it is not looked at.
    pub(crate) fn load(&self) -> Option<DriveLoad> {
        self.lock().gate.as_ref().map(iosched::gate::Gate::load)
    }

    fn look_with(&self, gate: &mut iosched::gate::Gate, now: Instant) -> bool {
        gate.hear(now, self.slices.iter().map(|slices| slices[self.drive].load()));
        gate.advance(now)
    }

    fn now(&self) -> Instant {
        self.clock.now().instant
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut state = self.gate.lock();
        let Some(gate) = &mut state.gate else { return };
        let now = self.gate.now();
        gate.complete(now, ticket);
        if self.gate.look_with(gate, now) || 0 < gate.waiting() {
            self.gate.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iosched::tally::Slice;
    use std::sync::atomic::{AtomicBool, Ordering};

    const BLOCK: Bytes = Bytes::kib(256);

    fn writes(mode: Mode, targets: &[Nanos], rate: Option<BitsPerSecond>) -> Writes {
        Writes { mode, targets: targets.to_vec(), depth: 4, rate, floor: BitsPerSecond(40_000_000) }
    }

    fn medium() -> Medium {
        Medium { target: Nanos::millis(5), deletes_alone: true }
    }

    #[test]
    fn rules_follow_the_drive_unless_it_is_said_otherwise() {
        let ms = Nanos::millis;
        let target =
            |targets: &[Nanos]| writes(Mode::Governor, targets, None).rules(1, &medium()).target;
        assert_eq!([target(&[]), target(&[ms(2)]), target(&[ms(2), ms(3)])], [ms(5), ms(2), ms(3)]);
        let governed = writes(Mode::Governor, &[], None).rules(0, &medium()).policy;
        assert_eq!(governed, Policy::Governed(governor::Config::MEASURED), "as the lab has it");
        let constant = writes(Mode::Static, &[], Some(BitsPerSecond(80_000_000)));
        let rules = constant.rules(0, &medium());
        assert_eq!(rules.policy, Policy::Static(Limit::Bandwidth(Bytes(10_000_000))));
        assert!(rules.deletes_alone);
        let depth = writes(Mode::Static, &[], None).rules(0, &medium()).policy;
        assert_eq!(depth, Policy::Static(Limit::Depth(4)));
    }

    /// Two threads want to write while a worker's read hangs. They get through when it is back, or
    /// when nothing is done to the drive any more.
    fn waits_until(what: impl FnOnce(&Gate, &DriveSlice)) {
        let slices: Arc<[DriveSlice]> = (0..2).map(|_| DriveSlice::default()).collect();
        let rules = writes(Mode::Governor, &[], None).rules(0, &medium());
        let gate = Gate::new(&rules, vec![slices.clone()], 1);
        let went = gate.now();
        slices[1].store(&Slice { in_flight: 1, oldest: Some(went), ..Slice::default() });
        // Twice the target is what ends all writing.
        while gate.now().since(went) <= Nanos::millis(11) {
            std::thread::yield_now();
        }
        let back = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let _pass = gate.enter(Class::Fill, BLOCK);
                    assert!(back.load(Ordering::SeqCst), "it wrote beside a read that hangs");
                });
            }
            while gate.lock().gate.as_ref().unwrap().waiting() < 2 {
                std::thread::yield_now();
            }
            gate.look();
            back.store(true, Ordering::SeqCst);
            what(&gate, &slices[1]);
        });
    }

    #[test]
    fn writes_wait_for_a_read_that_hangs_and_go_on_when_it_is_back() {
        waits_until(|_, slice| slice.store(&Slice::default()));
    }

    #[test]
    fn nobody_waits_at_a_gate_that_was_opened() {
        waits_until(|gate, _| gate.open());
    }

    /// When somebody will look, once one who would look within 0.1 s has come to where somebody
    /// looks at this moment; and when after he left.
    fn looks_beside(moment: Instant) -> [Option<Instant>; 2] {
        // A second block would go after three days.
        let rules = writes(Mode::Static, &[], Some(BitsPerSecond(8))).rules(0, &medium());
        let gate = Gate::new(&rules, Vec::new(), 0);
        drop(gate.enter(Class::Fill, BLOCK));
        gate.lock().looks_at = Some(moment);
        let beside = std::thread::scope(|scope| {
            let write = scope.spawn(|| drop(gate.enter(Class::Fill, BLOCK)));
            let beside = loop {
                let state = gate.lock();
                if 0 < state.gate.as_ref().unwrap().waiting() {
                    break state.looks_at;
                }
                drop(state);
                std::thread::yield_now();
            };
            gate.open();
            write.join().unwrap();
            beside
        });
        [beside, gate.lock().looks_at]
    }

    #[test]
    fn who_has_to_look_earlier_than_who_looks_already_looks_himself() {
        let [beside, after] = looks_beside(Instant(u64::MAX));
        assert!(beside.unwrap() < Instant(u64::MAX), "he sleeps until the other looks");
        assert_eq!(after, None);
        let sooner = Some(Instant(0));
        assert_eq!(looks_beside(Instant(0)), [sooner, sooner], "one is enough");
    }

    #[test]
    fn what_workers_count_comes_through_whole() {
        let slice = Slice {
            tally: iosched::tally::Tally { reads: 9, late: 1, near: 2, far: 3, service: Nanos(4) },
            in_flight: 5,
            oldest: Some(Instant(0)),
        };
        let shared = DriveSlice::default();
        assert_eq!(shared.load(), Slice::default());
        shared.store(&slice);
        assert_eq!(shared.load(), slice);
    }
}

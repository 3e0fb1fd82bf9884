//! Threads other than workers ask here before they touch a drive: fill, scrub, deletes, siblings.
//!
//! ```text
//! workers' slices ── Slice ──> hear ──> [ drive::Drive with its governor ]
//! ask(class, len) ──> Turn ──────────>         advance ──> taken(turn) ──> the drive ──> complete
//! ```
//!
//! For threads that wait in line: each asks once, has its turn some time, and says when it is done.

use model::status::DriveLoad;
use model::units::{Bytes, Instant, Nanos};

use crate::Full;
use crate::drive::{Class, Config, Drive, Ticket};
use crate::tally::{Slice, Tally};

/// Somebody's place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

/// The line of all operations on a drive that are not its workers'.
#[derive(Clone, Debug)]
pub struct Gate {
    drive: Drive,
    /// What each worker's reads had met when it was last heard of.
    heard: Vec<Tally>,
    /// Turns that came and were not taken yet. Invariant: <= config.depth.
    ready: Vec<(Turn, Ticket)>,
    turns: u64,
}

/// A thread that waits for reads of workers looks this often: nobody says that they are back.
const LOOK_EVERY: Nanos = Nanos::millis(1);
/// A thread that waits looks around at least this often.
const WAIT_MAX: Nanos = Nanos::millis(100);

impl Gate {
    /// Nobody waits.
    pub fn new(config: Config, now: Instant) -> Self {
        Self { drive: Drive::new(config, now), heard: Vec::new(), ready: Vec::new(), turns: 0 }
    }

    /// Gets in line.
    pub fn ask(&mut self, now: Instant, class: Class, len: Bytes) -> Result<Turn, Full> {
        self.turns += 1;
        self.drive.submit(now, class, self.turns, len, now)?;
        Ok(Turn(self.turns))
    }

    /// How the reads of all workers stand, in the same order each time.
    pub fn hear(&mut self, now: Instant, slices: impl IntoIterator<Item = Slice>) {
        let (mut met, mut in_flight, mut oldest) = (Tally::default(), 0, None::<Instant>);
        for (index, slice) in slices.into_iter().enumerate() {
            if self.heard.len() <= index {
                self.heard.resize(index + 1, Tally::default());
            }
            let before = std::mem::replace(&mut self.heard[index], slice.tally);
            met.add(&slice.tally.since(&before));
            in_flight += slice.in_flight;
            oldest = [oldest, slice.oldest].into_iter().flatten().min();
        }
        self.drive.hear(now, &met, in_flight, oldest);
    }

    /// Calls whose turn has come; true if there is one more.
    pub fn advance(&mut self, now: Instant) -> bool {
        let before = self.ready.len();
        while let Some((ticket, turn)) = self.drive.poll(now) {
            self.ready.push((Turn(turn), ticket));
            assert!(turn <= self.turns, "a turn was asked for");
        }
        before < self.ready.len()
    }

    /// The turn, if it has come: the caller does its operation now, and then calls `complete`.
    pub fn taken(&mut self, turn: Turn) -> Option<Ticket> {
        let at = self.ready.iter().position(|(ready, _)| *ready == turn)?;
        Some(self.ready.swap_remove(at).1)
    }

    /// When to `hear` and to `advance` again, if nothing is completed before.
    pub fn look_at(&self, now: Instant) -> Instant {
        let due = self.drive.deadline().map_or(now + WAIT_MAX, |due| due.min(now + WAIT_MAX));
        // An operation that is due and did not go waits for something else.
        if self.drive.is_held() || due <= now { now + LOOK_EVERY } else { due }
    }

    /// It was done, well or badly.
    pub fn complete(&mut self, now: Instant, ticket: Ticket) {
        self.drive.complete(now, ticket);
    }

    /// How the drive is, for the report.
    pub fn load(&self) -> DriveLoad {
        self.drive.load()
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.drive.waiting()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::Policy;
    use crate::governor;

    const BLOCK: Bytes = Bytes::kib(256);
    const TARGET: Nanos = Nanos::millis(5);

    fn gate(deletes_alone: bool) -> Gate {
        let config = Config {
            depth: 8,
            fill_depth: 4,
            queue_len_max: 16,
            target: TARGET,
            scrub_rate: Bytes(50_000_000),
            deletes_alone,
            policy: Policy::Governed(governor::Config::MEASURED),
        };
        Gate::new(config, Instant(0))
    }

    fn ms(n: u64) -> Instant {
        Instant(0) + Nanos::millis(n)
    }

    /// So many reads that took `span`, and perhaps one that is not back.
    fn slice(reads: u64, span: Nanos, oldest: Option<Instant>) -> Slice {
        let one = Tally::of(TARGET, span, span);
        let mut tally = Tally::default();
        (0..reads).for_each(|_| tally.add(&one));
        Slice { tally, in_flight: u32::from(oldest.is_some()), oldest }
    }

    #[test]
    fn an_old_read_of_any_worker_holds_writes_until_it_is_back() {
        let mut gate = gate(false);
        let first = gate.ask(ms(0), Class::Fill, BLOCK).unwrap();
        assert!(gate.advance(ms(0)));
        let ticket = gate.taken(first).unwrap();
        gate.complete(ms(1), ticket);
        let second = gate.ask(ms(20), Class::Fill, BLOCK).unwrap();
        let young = slice(1, TARGET, Some(ms(20)));
        gate.hear(ms(20), [young, slice(1, TARGET, Some(ms(8)))]);
        assert!(!gate.advance(ms(20)) && gate.taken(second).is_none());
        assert_eq!(gate.look_at(ms(20)), ms(21), "nobody tells when it is back");
        gate.hear(ms(21), [young, slice(2, TARGET, None)]);
        assert!(gate.advance(ms(21)) && gate.taken(second).is_some());
        assert!(gate.taken(second).is_none(), "a turn is taken once");
    }

    #[test]
    fn late_reads_of_workers_lower_the_rate_and_are_counted_once() {
        let mut gate = gate(false);
        let before = gate.load().fill_granted.unwrap();
        gate.hear(ms(200), [slice(200, Nanos::millis(9), None)]);
        let once = gate.load();
        assert!(once.fill_granted.unwrap() < before);
        // The same tally again and again is nothing new: nobody reads.
        for at in 2..20 {
            gate.hear(ms(200 * at), [slice(200, Nanos::millis(9), None)]);
        }
        let idle = gate.load();
        assert_eq!((once.windows_late, idle.windows_late, idle.fill_granted), (1, 1, None));
        for at in 1..20 {
            gate.hear(ms(4000 + 200 * at), [slice(200 + 200 * at, Nanos::millis(9), None)]);
        }
        let load = gate.load();
        assert!(load.fill_granted.unwrap() < once.fill_granted.unwrap());
        assert!(10 < load.windows_late && load.service == Nanos::millis(9), "{load:?}");
    }

    #[test]
    fn a_delete_that_must_be_alone_waits_for_the_reads_of_workers() {
        let mut gate = gate(true);
        let delete = gate.ask(ms(1), Class::Delete, BLOCK).unwrap();
        gate.hear(ms(1), [slice(1, Nanos(0), Some(ms(1)))]);
        assert!(!gate.advance(ms(1)));
        gate.hear(ms(2), [slice(2, Nanos(0), None)]);
        assert!(gate.advance(ms(2)));
        let ticket = gate.taken(delete).unwrap();
        // What began beside it and comes back late, long after, is nobody's fault.
        gate.hear(ms(3), [slice(2, Nanos(0), Some(ms(3)))]);
        gate.complete(ms(5), ticket);
        gate.hear(ms(6), [slice(2, Nanos(0), Some(ms(3)))]);
        let before = gate.load();
        gate.hear(ms(150), [slice(200, Nanos::millis(9), None)]);
        gate.hear(ms(900), [slice(200, Nanos::millis(9), None)]);
        assert_eq!(before.windows_late, gate.load().windows_late);
    }

    /// A gate of a drive that nobody read from until a delete took it for 4 ms; one worker's reads
    /// came meanwhile, so many, and were late.
    fn idle_until_a_delete(reads: u64) -> Gate {
        let mut gate = gate(true);
        (1..=5).for_each(|at| gate.hear(ms(200 * at), []));
        assert_eq!(gate.load().fill_granted, None, "nobody reads");
        let delete = gate.ask(ms(1_001), Class::Delete, BLOCK).unwrap();
        assert!(gate.advance(ms(1_001)));
        let ticket = gate.taken(delete).unwrap();
        gate.hear(ms(1_002), [slice(0, TARGET, Some(ms(1_002)))]);
        gate.complete(ms(1_005), ticket);
        gate.hear(ms(1_008), [slice(reads, Nanos::millis(6), None)]);
        gate
    }

    #[test]
    fn reads_that_a_delete_met_on_an_idle_drive_are_not_blamed_on_writes() {
        let mut gate = idle_until_a_delete(200);
        gate.hear(ms(1_700), []);
        assert_eq!(gate.load().windows_late, 0);
    }

    #[test]
    fn deletes_are_spaced_again_once_a_read_came_beside_one() {
        let mut gate = idle_until_a_delete(1);
        assert_ne!(gate.load().fill_granted, None, "a viewer is there");
        gate.hear(ms(1_700), []);
        assert_ne!(gate.load().fill_granted, None, "and was, in the half second before");
        let first = gate.ask(ms(1_701), Class::Delete, BLOCK).unwrap();
        assert!(gate.advance(ms(1_701)));
        let ticket = gate.taken(first).unwrap();
        gate.ask(ms(1_701), Class::Delete, BLOCK).unwrap();
        gate.complete(ms(1_703), ticket);
        assert!(!gate.advance(ms(1_703 + 97)), "a fiftieth of the time");
        assert!(gate.advance(ms(1_703 + 98)));
    }

    #[test]
    fn nobody_looks_around_without_end_at_one_moment() {
        let mut gate = gate(false);
        gate.ask(ms(0), Class::Scrub, BLOCK).unwrap();
        // Reads that are half as old as the target keep a scrub waiting that is due.
        gate.hear(ms(10), [slice(0, TARGET, Some(ms(7)))]);
        gate.advance(ms(10));
        assert!(ms(10) < gate.look_at(ms(10)));
        assert!(gate.look_at(ms(10)) <= ms(110));
    }
}

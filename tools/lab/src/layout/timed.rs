//! The aged drive in time: reads at random beside a fill that nobody holds back.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;
use iosched::drive::{Class as Io, Config, Drive as Scheduler, Policy, Ticket};
use model::machine::Machine;
use model::units::{Bytes, Instant, Nanos};
use ssd::{Action, Class, Command, Drive, Event, Ftl, Params, Rng};

use super::Case;
use super::churn::{Churn, at};
use crate::drive_protocol::scenario;

#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) p99_ms: f64,
    pub(super) p99_nofill_ms: f64,
    pub(super) fill_mbps: f64,
}

/// The same share of what the drive serves at its target as in `nearcast-lab drive`.
const LOAD: f64 = 0.4;
const READ: Bytes = Bytes::kib(256);
const FILL_DEPTH: u32 = 4;
/// Deletes that wait; beyond, the fill waits for them.
const DELETES_MAX: u32 = 256;
/// Pieces that the file system is ahead by, about.
const HELD_MAX: usize = 64;
/// A trim is cut to so many bytes.
const TRIM_LEN: Bytes = Bytes::mib(64);

pub(super) fn target_ms(class: Class) -> f64 {
    Duration::from(scenario::target(class)).as_secs_f64() * 1e3
}

/// Two seconds of an NVMe drive, ten of a SATA drive; each from the same state.
pub(super) fn run(params: &Params, case: &Case, churn: &Churn, ftl: &Ftl) -> Timed {
    let span = Nanos::seconds(if params.depth == 32 { 10 } else { 2 });
    let one = |fill| {
        let mut run = Run::new(params, case, churn.clone(), ftl.clone(), fill);
        run.until(Instant(0) + span);
        run
    };
    let (beside, alone) = (one(true), one(false));
    Timed {
        p99_ms: beside.p99_ms(),
        p99_nofill_ms: alone.p99_ms(),
        fill_mbps: Duration::from_micros(beside.written).as_secs_f64()
            / Duration::from(span).as_secs_f64(),
    }
}

/// Part of a write or of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    first: u32,
    pages: u32,
    is_trim: bool,
}

impl Piece {
    /// True if they must not change places: one forgets what the other writes.
    fn is_bound_to(&self, other: &Self) -> bool {
        self.is_trim != other.is_trim
            && self.first < other.first + other.pages
            && other.first < self.first + self.pages
    }
}

struct Op {
    class: Io,
    command: Command,
    came: Instant,
    ticket: Option<Ticket>,
}

struct Run<'a> {
    params: &'a Params,
    churn: Churn,
    drive: Drive,
    scheduler: Scheduler,
    rng: Rng,
    ops: Vec<Op>,
    ops_free: Vec<u32>,
    fill: bool,
    /// What the file system has done and the drive has not been told, in order.
    held: VecDeque<Piece>,
    told: Vec<Piece>,
    fills: u32,
    deletes: u32,
    reads_per_s: f64,
    target: Nanos,
    next_read: Instant,
    latency: Histogram<u64>,
    written: u64,
    now: Instant,
}

impl<'a> Run<'a> {
    fn new(params: &'a Params, case: &Case, churn: Churn, ftl: Ftl, fill: bool) -> Self {
        let now = Instant(0);
        let target = scenario::target(case.class);
        let config = Config {
            depth: params.depth,
            fill_depth: FILL_DEPTH,
            queue_len_max: 4_096,
            target,
            scrub_rate: Bytes(1_000_000),
            deletes_alone: matches!(params.trim, ssd::Trim::Serial(_)),
            policy: Policy::Off,
        };
        let latency = Histogram::new_with_bounds(1_000, 100_000_000_000, 3);
        Self {
            params,
            churn,
            drive: Drive::new(*params, ftl, case.seed),
            scheduler: Scheduler::new(config, now),
            rng: Rng::new(case.seed ^ 0x5ead),
            ops: Vec::new(),
            ops_free: Vec::new(),
            fill,
            held: VecDeque::new(),
            told: Vec::new(),
            fills: 0,
            deletes: 0,
            reads_per_s: scenario::capacity(case.class) * LOAD,
            target,
            next_read: now,
            latency: latency.expect("the bounds are in order"),
            written: 0,
            now,
        }
    }

    fn p99_ms(&self) -> f64 {
        Duration::from_nanos(self.latency.value_at_quantile(0.99)).as_secs_f64() * 1e3
    }

    fn until(&mut self, end: Instant) {
        while self.now < end {
            while self.next_read <= self.now {
                self.read();
            }
            self.write();
            while let Some((ticket, id)) = self.scheduler.poll(self.now) {
                let id = u32::try_from(id).unwrap_or(u32::MAX);
                self.ops[at(id)].ticket = Some(ticket);
                let command = self.ops[at(id)].command;
                self.drive.handle(self.now, Event::Submit { id, command });
            }
            let later = self.scheduler.deadline().filter(|at| self.now < *at);
            let next = [Some(self.next_read), self.drive.deadline(), later];
            let next = next.into_iter().flatten().fold(end, Instant::min).max(self.now);
            self.now = next;
            self.drive.handle(next, Event::Tick);
            while let Some(Action::Complete { id, .. }) = self.drive.poll() {
                self.complete(id);
            }
        }
    }

    fn read(&mut self) {
        let came = self.next_read;
        let gap = Duration::from_secs_f64(self.rng.exponential() / self.reads_per_s);
        self.next_read = came + Nanos::from(gap);
        let Some(run) = self.churn.any_page(&mut self.rng) else { return };
        let page = self.params.page.0;
        let len = READ.min(Bytes(u64::from(run.pages) * page));
        let command = Command::Read { offset: Bytes(u64::from(run.first) * page), len };
        self.submit(Io::Serve, command, len, came);
    }

    /// Tells the drive what it may be told now. A piece waits for those before it that it must not
    /// overtake: a page may be written again before its trim has had its turn.
    fn write(&mut self) {
        while self.fill && self.held.len() < HELD_MAX {
            self.step();
        }
        let mut index = 0;
        while self.fills < 2 * FILL_DEPTH && self.deletes < DELETES_MAX {
            let Some(piece) = self.held.get(index).copied() else { return };
            let before = self.told.iter().chain(self.held.iter().take(index));
            if before.into_iter().any(|other| piece.is_bound_to(other)) {
                index += 1;
                continue;
            }
            self.held.remove(index);
            self.told.push(piece);
            let Piece { first, pages, is_trim } = piece;
            let len = Bytes(u64::from(pages) * self.params.page.0);
            if is_trim {
                self.deletes += 1;
                self.submit(Io::Delete, Command::Trim { first, pages }, len, self.now);
            } else {
                self.fills += 1;
                self.submit(Io::Fill, Command::Write { first, pages }, len, self.now);
            }
        }
    }

    /// What the file system does next, in pieces.
    fn step(&mut self) {
        let pages_of = |len: Bytes| u32::try_from(len.0 / self.params.page.0).unwrap_or(u32::MAX);
        let (run, is_trim, step) = match self.churn.next() {
            ssd::Io::Write(run) => (run, false, pages_of(Bytes::kib(300))),
            ssd::Io::Trim(run) => (run, true, pages_of(TRIM_LEN)),
        };
        let mut done = 0;
        while done < run.pages {
            let (first, pages) = (run.first + done, step.min(run.pages - done));
            self.held.push_back(Piece { first, pages, is_trim });
            done += pages;
        }
    }

    fn submit(&mut self, class: Io, command: Command, len: Bytes, came: Instant) {
        let op = Op { class, command, came, ticket: None };
        let id = self.ops_free.pop().unwrap_or_else(|| {
            self.ops.push(Op { class, command, came, ticket: None });
            u32::try_from(self.ops.len() - 1).unwrap_or(u32::MAX)
        });
        self.ops[at(id)] = op;
        let deadline = came + self.target;
        let queued = self.scheduler.submit(self.now, class, u64::from(id), len, deadline);
        if queued.is_err() {
            // A read that finds the queue full counts as one of ten seconds.
            self.latency.saturating_record(Nanos::seconds(10).0);
            assert!(class == Io::Serve, "the fill keeps to its depth, and deletes to theirs");
            self.ops_free.push(id);
        }
    }

    fn complete(&mut self, id: u32) {
        self.ops_free.push(id);
        let op = &self.ops[at(id)];
        if let Some(ticket) = op.ticket {
            self.scheduler.complete(self.now, ticket);
        }
        match (op.class, op.command) {
            (Io::Serve, _) => self.latency.saturating_record(self.now.since(op.came).0),
            (Io::Fill, Command::Write { first, pages }) => {
                self.fills -= 1;
                self.written += u64::from(pages) * self.params.page.0;
                self.done(Piece { first, pages, is_trim: false });
            }
            (Io::Delete, Command::Trim { first, pages }) => {
                self.deletes -= 1;
                self.done(Piece { first, pages, is_trim: true });
            }
            (Io::Fill | Io::Scrub | Io::Delete, _) => {}
        }
    }

    fn done(&mut self, piece: Piece) {
        let at = self.told.iter().position(|told| *told == piece);
        self.told.swap_remove(at.expect("what comes back was told"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::churn::Layout;

    #[test]
    fn what_was_written_anew_is_not_forgotten_by_the_trim_of_what_was_there() {
        for class in [Class::SataTlc, Class::NvmeTlc] {
            let (params, layout) = (class.params(), Layout::Files);
            let case = Case { class, layout, trim: true, full: 95, seed: 1, timed: true };
            let (churn, ftl) = super::super::aged(&params, &case, 1);
            let mut run = Run::new(&params, &case, churn, ftl, true);
            run.until(Instant(0) + Nanos::seconds(2));
            run.fill = false;
            while !(run.held.is_empty() && run.told.is_empty()) {
                run.until(run.now + Nanos::millis(100));
            }
            let pages = || run.churn.pages();
            assert!(1_000 < pages().count());
            assert_eq!(pages().filter(|page| !run.drive.holds(*page)).count(), 0, "{class:?}");
        }
    }
}

//! One run: readers and a fill, a scheduler, and a drive that is simulated.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use iosched::drive::{Class, Config, Drive as Scheduler, Limit, Policy, Ticket};
use iosched::gate::{Gate, Turn};
use iosched::governor;
use model::machine::Machine;
use model::units::{Bytes, Instant, Nanos};
use ssd::{Action, Command, Drive, Event, Ftl, Rng, Wear};

use super::cam::Cam;
use super::scenario::{Fill, Scenario, at, pick};

/// Who holds the fill back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contender {
    Off,
    /// Bytes per second.
    Constant(Bytes),
    /// A mean over a long time, every five seconds.
    Cam,
    Ours,
    /// The same as an appliance has it: readers with a slice, all else at the gate, which looks
    /// after them when somebody comes or goes there, and when it must.
    Sliced,
}

#[derive(Debug)]
pub(super) struct Seen {
    /// Latency in ns of each read, by second of the run in which it came back.
    pub(super) bins: Vec<Vec<u64>>,
    /// Bytes written, by tenth of a second.
    pub(super) written: Vec<u64>,
    /// Reads that came back, by phase.
    pub(super) reads: Vec<u64>,
    pub(super) amplification: f64,
    /// Reads refused because the queue was full.
    pub(super) refused: u64,
}

#[derive(Clone, Copy, Debug)]
struct Op {
    class: Class,
    command: Command,
    came: Instant,
    ticket: Option<Ticket>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Readers {
    /// At random, whatever the drive does.
    Open,
    /// So many viewers, each asking again this long after it was answered.
    Closed(u32, Nanos),
}

const FILLS_WAITING: usize = 8;
const FILL_DEPTH: u32 = 4;
/// Trims are cut to so many bytes.
const TRIM_LEN: Bytes = Bytes::mib(64);

/// Of the drive's depth, what a gate has beside a slice.
const GATE_DEPTH: u32 = 8;

/// Where all but readers have their turns, and who waits there.
struct Line {
    gate: Gate,
    waiting: Vec<(Turn, u32)>,
    look_at: Instant,
}

struct Run<'a> {
    scenario: &'a Scenario,
    scheduler: Scheduler,
    line: Option<Line>,
    drive: Drive,
    cam: Option<Cam>,
    rng: Rng,
    ops: Vec<Op>,
    ops_free: Vec<u32>,
    live: Vec<bool>,
    /// The unit that is written, and its next page.
    open: Option<(u32, u32)>,
    /// Units that are being deleted, and trims of each that are not back.
    dying: Vec<(u32, u32)>,
    fills_waiting: usize,
    next_read: Instant,
    next_fill: Instant,
    /// Viewers that think, by when they ask again.
    thinking: BinaryHeap<Reverse<Instant>>,
    readers: Readers,
    now: Instant,
    phase: usize,
    seen: Seen,
}

/// Runs a scenario from this state of the drive.
pub(super) fn run(
    scenario: &Scenario,
    contender: Contender,
    readers: Readers,
    (ftl, live): &(Ftl, Vec<bool>),
    seed: u64,
) -> Seen {
    let now = Instant(0);
    let policy = match contender {
        Contender::Off => Policy::Off,
        Contender::Constant(rate) => Policy::Static(Limit::Bandwidth(rate)),
        Contender::Cam => Policy::Static(Limit::Bandwidth(scenario.constant)),
        Contender::Ours | Contender::Sliced => Policy::Governed(governor::Config::MEASURED),
    };
    let config = Config {
        depth: scenario.params.depth,
        fill_depth: FILL_DEPTH,
        queue_len_max: 4_096,
        target: scenario.target,
        scrub_rate: Bytes(1_000_000),
        deletes_alone: matches!(scenario.params.trim, ssd::Trim::Serial(_)),
        policy,
    };
    let slice = Config { depth: config.depth - GATE_DEPTH, policy: Policy::Off, ..config };
    let at_gate = Config { depth: GATE_DEPTH, ..config };
    let sliced = contender == Contender::Sliced;
    let line = || Line { gate: Gate::new(at_gate, now), waiting: Vec::new(), look_at: now };
    let mut run = Run {
        scenario,
        scheduler: Scheduler::new(if sliced { slice } else { config }, now),
        line: sliced.then(line),
        drive: Drive::new(scenario.params, ftl.clone(), seed),
        cam: (contender == Contender::Cam).then(|| Cam::new(scenario.constant)),
        rng: Rng::new(seed ^ 0x5ead),
        ops: Vec::new(),
        ops_free: Vec::new(),
        live: live.clone(),
        open: None,
        dying: Vec::new(),
        fills_waiting: 0,
        next_read: now,
        next_fill: now,
        thinking: BinaryHeap::new(),
        readers,
        now,
        phase: 0,
        seen: Seen {
            bins: Vec::new(),
            written: Vec::new(),
            reads: vec![0; scenario.phases.len()],
            amplification: 1.0,
            refused: 0,
        },
    };
    if let Readers::Closed(viewers, think) = readers {
        for _ in 0..viewers {
            let at = run.rng.unit() * Duration::from(think).as_secs_f64();
            run.thinking.push(Reverse(now + Nanos::from(Duration::from_secs_f64(at))));
        }
    }
    run.all();
    run.seen
}

impl Run<'_> {
    fn all(&mut self) {
        let mut end = Instant(0);
        let before = self.drive.wear();
        let mut after: Wear = before;
        for (index, phase) in self.scenario.phases.iter().enumerate() {
            self.phase = index;
            end = end + phase.span;
            self.next_fill = self.now;
            while self.now < end {
                self.arrivals(phase.reads_permille);
                self.fill(phase.fill);
                self.dispatch();
                self.wait(end, phase.fill);
            }
            if phase.fill != Fill::None {
                after = self.drive.wear();
            }
        }
        self.seen.amplification = after.amplification_since(&before);
    }

    /// To the next thing that happens.
    fn wait(&mut self, end: Instant, fill: Fill) {
        let mut next = end;
        let mut consider = |at: Option<Instant>| {
            if let Some(at) = at
                && self.now < at
            {
                next = next.min(at);
            }
        };
        consider(self.scheduler.deadline());
        consider(self.line.as_ref().filter(|line| !line.waiting.is_empty()).map(|l| l.look_at));
        consider(self.cam.as_ref().map(Cam::next));
        match self.readers {
            Readers::Open => consider(Some(self.next_read)),
            Readers::Closed(..) => consider(self.thinking.peek().map(|at| at.0)),
        }
        if matches!(fill, Fill::Rate(_)) {
            consider(Some(self.next_fill));
        }
        let next = self.drive.deadline().map_or(next, |at| at.min(next)).max(self.now);
        self.now = next;
        self.drive.handle(next, Event::Tick);
        while let Some(Action::Complete { id, .. }) = self.drive.poll() {
            self.complete(id);
        }
        if let Some(cam) = &mut self.cam
            && let Some(rate) = cam.steer(next)
        {
            self.scheduler.change_limit(Limit::Bandwidth(rate));
        }
    }

    fn arrivals(&mut self, permille: u32) {
        match self.readers {
            Readers::Open => {
                while self.next_read <= self.now {
                    let came = self.next_read;
                    self.read(came);
                    let rate = self.scenario.reads_per_s * f64::from(permille) / 1_000.0;
                    let gap = Duration::from_secs_f64(self.rng.exponential() / rate);
                    self.next_read = self.next_read + Nanos::from(gap);
                }
            }
            Readers::Closed(..) => {
                while self.thinking.peek().is_some_and(|at| at.0 <= self.now) {
                    self.thinking.pop();
                    self.read(self.now);
                }
            }
        }
    }

    /// A read of a chunk of a live unit; the first units are read most.
    fn read(&mut self, came: Instant) {
        let scenario = self.scenario;
        let unit = loop {
            let skewed = self.rng.unit() * self.rng.unit() * f64::from(scenario.units);
            let unit = (Nanos::from(Duration::from_secs_f64(skewed))).as_seconds();
            let unit = u32::try_from(unit).unwrap_or(0).min(scenario.units - 1);
            if self.live[at(unit)] {
                break unit;
            }
        };
        let page = scenario.params.page.0;
        let unit_len = u64::from(scenario.unit_pages) * page;
        let chunks = u32::try_from(unit_len / scenario.read_len.0).unwrap_or(1).max(1);
        let offset = u64::from(self.rng.below(chunks)) * scenario.read_len.0;
        let offset = Bytes(u64::from(unit) * unit_len + offset);
        let command = Command::Read { offset, len: scenario.read_len };
        if !self.submit(Class::Serve, command, scenario.read_len, came, came) {
            self.seen.refused += 1;
        }
    }

    fn fill(&mut self, fill: Fill) {
        while self.fills_waiting < FILLS_WAITING {
            match fill {
                Fill::None => return,
                Fill::Rate(rate) => {
                    if self.now < self.next_fill {
                        return;
                    }
                    let len = u64::from(self.scenario.write_pages) * self.scenario.params.page.0;
                    self.next_fill = self.next_fill + Nanos(len * 1_000_000_000 / rate.0);
                }
                Fill::Unbounded => {}
            }
            if !self.write() {
                return;
            }
        }
    }

    /// The next piece of the open unit; a new unit begins when another is told to go. False if
    /// that waits for deletes to come back.
    fn write(&mut self) -> bool {
        let scenario = self.scenario;
        let Some((unit, page)) = self.open.or_else(|| self.begin_unit()) else { return false };
        let pages = scenario.write_pages.min(scenario.unit_pages - page);
        let command = Command::Write { first: unit * scenario.unit_pages + page, pages };
        let len = Bytes(u64::from(pages) * scenario.params.page.0);
        self.open = Some((unit, page + pages));
        if page + pages == scenario.unit_pages {
            self.live[at(unit)] = true;
            self.open = None;
        }
        self.fills_waiting += 1;
        assert!(self.submit(Class::Fill, command, len, self.now, self.now), "there is room");
        true
    }

    /// A unit to write, for one that goes. None while all that are not live are still to be
    /// deleted: small units are many, and on SATA each delete waits to be alone.
    fn begin_unit(&mut self) -> Option<(u32, u32)> {
        let mut gone = self.live.clone();
        for (unit, _) in &self.dying {
            gone[at(*unit)] = true;
        }
        if gone.iter().all(|taken| *taken) {
            return None;
        }
        let dead = pick(&mut self.rng, &self.live, true);
        let unit = pick(&mut self.rng, &gone, false);
        self.delete(dead);
        Some((unit, 0))
    }

    fn delete(&mut self, unit: u32) {
        self.live[at(unit)] = false;
        let scenario = self.scenario;
        let step = u32::try_from(TRIM_LEN.0 / scenario.params.page.0).unwrap_or(u32::MAX);
        let end = (unit + 1) * scenario.unit_pages;
        let mut first = unit * scenario.unit_pages;
        let mut trims = 0;
        while first < end {
            let pages = step.min(end - first);
            let command = Command::Trim { first, pages };
            let queued = self.submit(Class::Delete, command, TRIM_LEN, self.now, self.now);
            assert!(queued, "deletes keep up with writes");
            trims += 1;
            first += pages;
        }
        self.dying.push((unit, trims));
    }

    fn submit(
        &mut self,
        class: Class,
        command: Command,
        len: Bytes,
        came: Instant,
        deadline: Instant,
    ) -> bool {
        let op = Op { class, command, came, ticket: None };
        let id = self.ops_free.pop().unwrap_or_else(|| {
            self.ops.push(op);
            u32::try_from(self.ops.len() - 1).unwrap_or(u32::MAX)
        });
        self.ops[at(id)] = op;
        if let Some(line) = self.line.as_mut().filter(|_| class != Class::Serve) {
            let turn = line.gate.ask(self.now, class, len);
            line.waiting.extend(turn.map(|turn| (turn, id)));
            line.look_at = self.now;
            return turn.is_ok();
        }
        let queued = self.scheduler.submit(self.now, class, u64::from(id), len, deadline).is_ok();
        if !queued {
            self.ops_free.push(id);
        }
        queued
    }

    fn dispatch(&mut self) {
        while let Some((ticket, id)) = self.scheduler.poll(self.now) {
            self.go(u32::try_from(id).unwrap_or(u32::MAX), ticket);
        }
        let Some(line) = self.line.as_mut().filter(|line| line.look_at <= self.now) else { return };
        line.gate.hear(self.now, [self.scheduler.slice()]);
        line.gate.advance(self.now);
        line.look_at = line.gate.look_at(self.now);
        let Line { gate, waiting, .. } = line;
        let mut called = Vec::new();
        waiting.retain(|(turn, id)| match gate.taken(*turn) {
            Some(ticket) => {
                called.push((*id, ticket));
                false
            }
            None => true,
        });
        called.into_iter().for_each(|(id, ticket)| self.go(id, ticket));
    }

    fn go(&mut self, id: u32, ticket: Ticket) {
        let op = &mut self.ops[at(id)];
        op.ticket = Some(ticket);
        if op.class == Class::Fill {
            self.fills_waiting -= 1;
        }
        let command = op.command;
        self.drive.handle(self.now, Event::Submit { id, command });
    }

    fn complete(&mut self, id: u32) {
        let op = self.ops[at(id)];
        self.ops_free.push(id);
        if let Some(ticket) = op.ticket {
            match self.line.as_mut().filter(|_| op.class != Class::Serve) {
                None => self.scheduler.complete(self.now, ticket),
                Some(line) => {
                    line.gate.complete(self.now, ticket);
                    line.look_at = self.now;
                }
            }
        }
        match op.class {
            Class::Serve => {
                let span = self.now.since(op.came);
                let bin = usize::try_from(self.now.0 / 1_000_000_000).unwrap_or(usize::MAX);
                if self.seen.bins.len() <= bin {
                    self.seen.bins.resize(bin + 1, Vec::new());
                }
                self.seen.bins[bin].push(span.0);
                self.seen.reads[self.phase] += 1;
                if let Some(cam) = &mut self.cam {
                    cam.read(span);
                }
                if let Readers::Closed(_, think) = self.readers {
                    // Within a tenth, so that viewers do not march in step.
                    let factor = u64::from(900 + self.rng.below(201));
                    self.thinking.push(Reverse(self.now + Nanos(think.0 * factor / 1_000)));
                }
            }
            Class::Fill => {
                let bin = usize::try_from(self.now.0 / 100_000_000).unwrap_or(usize::MAX);
                if self.seen.written.len() <= bin {
                    self.seen.written.resize(bin + 1, 0);
                }
                let Command::Write { pages, .. } = op.command else { return };
                self.seen.written[bin] += u64::from(pages) * self.scenario.params.page.0;
            }
            Class::Delete => {
                let Command::Trim { first, .. } = op.command else { return };
                let unit = first / self.scenario.unit_pages;
                for dying in &mut self.dying {
                    dying.1 -= u32::from(dying.0 == unit);
                }
                self.dying.retain(|(_, trims)| 0 < *trims);
            }
            Class::Scrub => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_in_small_units_waits_for_deletes_and_ends() {
        // 16 MiB at 290 MB/s would be 17 deletes a second; the drive takes fewer.
        let whole = Scenario::new(ssd::Class::SataTlc, None, Some(Bytes::mib(16)));
        let scenario = whole.steady(Fill::Unbounded);
        let seen = run(&scenario, Contender::Off, Readers::Open, &scenario.age(1), 1);
        let written: u64 = seen.written.iter().sum();
        assert!(Bytes::mib(500).0 < written, "{written}");
    }
}

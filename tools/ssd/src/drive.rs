//! Commands through link, buffer, channels and dies, one event after the other.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use model::machine::Machine;
use model::units::{Bytes, Instant, Nanos};

use crate::ftl::{Ftl, Place, Wear};
use crate::params::{Collect, Link, Order, Params, Trim};
use crate::rng::Rng;
use crate::{at, count};

/// What a host asks of a drive. Offsets are below the logical pages times the page length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Any range of bytes, not empty.
    Read { offset: Bytes, len: Bytes },
    /// Whole pages.
    Write {
        first: u32,
        /// How many, not 0.
        pages: u32,
    },
    /// Whole pages that are not needed any more.
    Trim { first: u32, pages: u32 },
    /// What was written so far outlives a power cut once this completes.
    Flush,
}

/// What happens to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A command; at most `Params::depth` are under way.
    Submit {
        /// Comes back with the completion.
        id: u32,
        command: Command,
    },
    /// Time went on.
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A command is done.
    Complete {
        id: u32,
        /// When; not after the `now` of the last event.
        at: Instant,
    },
}

/// Time that dies spent, all of them added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Occupied {
    /// Reading for the host.
    pub reads: Nanos,
    /// Programming what the host wrote.
    pub programs: Nanos,
    /// Moving pages and erasing blocks.
    pub collection: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum Timed {
    /// A die is done with what it does, if it still has this version.
    Die {
        die: u32,
        version: u32,
    },
    /// A page waits at the link for the host.
    PageOut {
        slot: u32,
        bytes: u32,
    },
    /// A page came over the link.
    PageIn {
        slot: u32,
        page: u32,
    },
    Done {
        slot: u32,
    },
    Trimmed {
        slot: u32,
        first: u32,
        pages: u32,
    },
    Idle {
        version: u32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    time: u64,
    number: u64,
    what: Timed,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, since the heap gives the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.number).cmp(&(self.time, self.number))
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Read {
        slot: u32,
        bytes: u32,
    },
    Program,
    Move,
    Erase,
    /// Until a suspended operation lets go of the die.
    Letting,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Program,
    Collect,
}

#[derive(Clone, Copy, Debug)]
struct Running {
    op: Op,
    until: u64,
}

#[derive(Clone, Debug, Default)]
struct Die {
    running: Option<Running>,
    version: u32,
    /// What was interrupted, and what is left of it.
    suspended: Option<(Op, u64)>,
    suspended_first: Option<u64>,
    /// In order of arrival, for `Order::Fifo`.
    order: VecDeque<Kind>,
    reads: VecDeque<(u32, u32)>,
    programs: VecDeque<u32>,
    collect_queued: bool,
    /// Between `low` and `high`.
    collecting: bool,
    /// The victim was read too often.
    disturbed: bool,
    /// Moves left before anything else has a turn.
    held: u32,
    /// Moves that are due, in 1/256, for `Collect::Paced`.
    owed: u64,
    collect_turn: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    id: u32,
    left: u32,
    last: u64,
}

#[derive(Clone, Copy, Debug)]
struct Incoming {
    slot: u32,
    page: u32,
    left: u32,
}

/// A drive under way.
#[derive(Clone, Debug)]
pub struct Drive {
    params: Params,
    ftl: Ftl,
    rng: Rng,
    events: BinaryHeap<Entry>,
    number: u64,
    dies: Vec<Die>,
    channel_free: Vec<u64>,
    /// To the host and from it; the same number for half duplex.
    link_free: [u64; 2],
    slots: Vec<Slot>,
    slots_free: Vec<u32>,
    /// Commands that wait for a serial trim.
    waiting: VecDeque<(u32, Command)>,
    trimming: bool,
    writes: VecDeque<Incoming>,
    write_moving: bool,
    buffered: u32,
    pages_in: u64,
    pages_out: u64,
    flushes: VecDeque<(u32, u64)>,
    idle_version: u32,
    background: bool,
    done: VecDeque<(u32, Instant)>,
    occupied: Occupied,
}

impl Drive {
    /// A drive whose pages lie as `ftl` says: all erased, or aged by `Ftl::write_now`.
    pub fn new(params: Params, ftl: Ftl, seed: u64) -> Self {
        assert_eq!(params.shape, ftl.shape(), "the map is of another drive");
        assert!(0 < params.depth && 0 < params.quantum && 0 < params.buffer_pages);
        Self {
            params,
            ftl,
            rng: Rng::new(seed),
            events: BinaryHeap::with_capacity(4096),
            number: 0,
            dies: vec![Die::default(); at(params.shape.dies)],
            channel_free: vec![0; at(params.channels)],
            link_free: [0; 2],
            slots: vec![Slot::default(); at(params.depth)],
            slots_free: (0..params.depth).rev().collect(),
            waiting: VecDeque::new(),
            trimming: false,
            writes: VecDeque::new(),
            write_moving: false,
            buffered: 0,
            pages_in: 0,
            pages_out: 0,
            flushes: VecDeque::new(),
            idle_version: 0,
            background: false,
            done: VecDeque::new(),
            occupied: Occupied::default(),
        }
    }

    /// Commands under way.
    pub fn in_flight(&self) -> u32 {
        self.params.depth - count(self.slots_free.len())
    }

    /// True if the page was written and not trimmed since.
    pub fn holds(&self, page: u32) -> bool {
        self.ftl.holds(page)
    }

    /// What was programmed and erased so far.
    pub fn wear(&self) -> Wear {
        self.ftl.wear()
    }

    /// What dies did so far.
    pub fn occupied(&self) -> Occupied {
        self.occupied
    }

    /// Erased blocks, over all dies.
    pub fn free_blocks(&self) -> u32 {
        (0..self.params.shape.dies).map(|die| self.ftl.free_blocks(die)).sum()
    }

    fn at(&mut self, time: u64, what: Timed) {
        self.number += 1;
        self.events.push(Entry { time, number: self.number, what });
    }

    fn run_to(&mut self, now: u64) {
        while let Some(entry) = self.events.peek().copied() {
            if now < entry.time {
                return;
            }
            self.events.pop();
            self.carry_out(entry.time, entry.what);
        }
    }

    fn carry_out(&mut self, now: u64, what: Timed) {
        match what {
            Timed::Die { die, version } => self.die_done(now, die, version),
            Timed::PageOut { slot, bytes } => {
                let end = self.over_link(now, 0, u64::from(bytes));
                let command = &mut self.slots[at(slot)];
                assert!(0 < command.left, "a page leaves once");
                command.left -= 1;
                command.last = command.last.max(end);
                if command.left == 0 {
                    let time = command.last + self.params.overhead.0;
                    self.at(time, Timed::Done { slot });
                }
            }
            Timed::PageIn { slot, page } => self.page_in(now, slot, page),
            Timed::Done { slot } => self.complete(now, slot),
            Timed::Trimmed { slot, first, pages } => {
                for page in first..first + pages {
                    self.ftl.trim(page);
                }
                self.trimming = false;
                self.complete(now, slot);
                self.admit(now);
            }
            Timed::Idle { version } => {
                if version == self.idle_version {
                    self.background = true;
                    for die in 0..self.params.shape.dies {
                        self.start(now, die);
                    }
                }
            }
        }
    }

    fn complete(&mut self, now: u64, slot: u32) {
        self.done.push_back((self.slots[at(slot)].id, Instant(now)));
        self.slots_free.push(slot);
        assert!(self.slots_free.len() <= self.slots.len(), "a command ends once");
        if self.in_flight() == 0 {
            self.at(now + self.params.idle.0, Timed::Idle { version: self.idle_version });
        }
        if !self.waiting.is_empty() {
            self.admit(now);
        }
    }

    /// Lets commands in, in order; a serial trim waits until it is alone, and is then alone.
    fn admit(&mut self, now: u64) {
        while let Some((slot, command)) = self.waiting.front().copied() {
            if self.trimming {
                return;
            }
            match command {
                Command::Read { offset, len } => self.read(now, slot, offset, len),
                Command::Write { first, pages } => {
                    self.slots[at(slot)].left = pages;
                    self.writes.push_back(Incoming { slot, page: first, left: pages });
                    self.pump(now);
                }
                Command::Trim { first, pages } => {
                    let span = match self.params.trim {
                        Trim::Queued(span) => span,
                        Trim::Serial(span) => {
                            if at(self.in_flight()) != self.waiting.len() {
                                return;
                            }
                            self.trimming = true;
                            span
                        }
                    };
                    self.at(now + span.0, Timed::Trimmed { slot, first, pages });
                }
                Command::Flush => {
                    if self.params.power_safe || self.pages_out == self.pages_in {
                        self.at(now + self.params.overhead.0, Timed::Done { slot });
                    } else {
                        self.flushes.push_back((slot, self.pages_in));
                    }
                }
            }
            self.waiting.pop_front();
        }
    }

    fn read(&mut self, now: u64, slot: u32, offset: Bytes, len: Bytes) {
        assert!(0 < len.0, "a read reads something");
        let page_len = self.params.page.0;
        let end = offset.0 + len.0;
        let (first, last) = (offset.0 / page_len, (end - 1) / page_len);
        self.slots[at(slot)].left = count(Bytes(last - first + 1).as_usize());
        for page in first..=last {
            let begin = offset.0.max(page * page_len);
            let bytes = count(Bytes(end.min((page + 1) * page_len) - begin).as_usize());
            match self.ftl.place(count(Bytes(page).as_usize())) {
                Place::Nowhere | Place::Buffered => self.at(now, Timed::PageOut { slot, bytes }),
                Place::At { die, block } => {
                    let worn = self.ftl.disturb(block, self.params.disturb_reads);
                    let forced = worn && self.ftl.force_victim(die, block);
                    let fifo = self.params.order == Order::Fifo;
                    let queue = &mut self.dies[at(die)];
                    queue.disturbed |= forced;
                    queue.reads.push_back((slot, bytes));
                    if fifo {
                        queue.order.push_back(Kind::Read);
                    }
                    self.interrupt(now, die);
                    self.start(now, die);
                }
            }
        }
    }

    /// Moves the next page of the oldest write over the link, if the buffer has room. One page is
    /// at the link at a time, so that a long write does not pass reads.
    fn pump(&mut self, now: u64) {
        if self.write_moving || self.params.buffer_pages <= self.buffered {
            return;
        }
        let Some(write) = self.writes.front_mut() else { return };
        let (slot, page) = (write.slot, write.page);
        write.page += 1;
        write.left -= 1;
        if write.left == 0 {
            self.writes.pop_front();
        }
        self.buffered += 1;
        self.write_moving = true;
        let end = self.over_link(now, 1, self.params.page.0);
        self.at(end, Timed::PageIn { slot, page });
    }

    fn page_in(&mut self, now: u64, slot: u32, page: u32) {
        self.write_moving = false;
        self.pages_in += 1;
        self.ftl.buffer(page);
        let die = self.ftl.next_die();
        let fifo = self.params.order == Order::Fifo;
        let queue = &mut self.dies[at(die)];
        queue.programs.push_back(page);
        if fifo {
            queue.order.push_back(Kind::Program);
        }
        self.start(now, die);
        let command = &mut self.slots[at(slot)];
        command.left -= 1;
        if command.left == 0 {
            self.at(now + self.params.overhead.0, Timed::Done { slot });
        }
        self.pump(now);
    }

    fn programmed(&mut self, now: u64) {
        self.buffered -= 1;
        self.pages_out += 1;
        while let Some((slot, until)) = self.flushes.front().copied() {
            if self.pages_out < until {
                break;
            }
            self.flushes.pop_front();
            self.at(now + self.params.overhead.0, Timed::Done { slot });
        }
        self.pump(now);
    }

    fn die_done(&mut self, now: u64, die: u32, version: u32) {
        if self.dies[at(die)].version != version {
            return;
        }
        let Some(running) = self.dies[at(die)].running.take() else { return };
        match running.op {
            Op::Read { slot, bytes } => {
                let end = self.over_channel(now, die, u64::from(bytes));
                self.at(end, Timed::PageOut { slot, bytes });
            }
            Op::Program => self.programmed(now),
            Op::Erase => {
                self.ftl.erase_victim(die);
                self.dies[at(die)].disturbed = false;
            }
            Op::Move | Op::Letting => {}
        }
        if !matches!(running.op, Op::Read { .. } | Op::Letting) {
            self.dies[at(die)].suspended_first = None;
        }
        self.start(now, die);
    }

    /// Interrupts what a die does, for a read, if this drive can and the operation may wait.
    fn interrupt(&mut self, now: u64, die: u32) {
        let Order::Suspend { cost, longest } = self.params.order else { return };
        let queue = &mut self.dies[at(die)];
        let Some(running) = queue.running else { return };
        if matches!(running.op, Op::Read { .. } | Op::Letting) || queue.suspended.is_some() {
            return;
        }
        let since = *queue.suspended_first.get_or_insert(now);
        if longest.0 <= now - since || running.until <= now + 2 * cost.0 {
            return;
        }
        queue.suspended = Some((running.op, running.until - now));
        queue.running = None;
        self.occupy(now, die, Op::Letting, cost.0);
    }

    fn occupy(&mut self, now: u64, die: u32, op: Op, span: u64) {
        let queue = &mut self.dies[at(die)];
        queue.version = queue.version.wrapping_add(1);
        queue.running = Some(Running { op, until: now + span });
        let version = queue.version;
        self.at(now + span, Timed::Die { die, version });
    }

    /// Gives an idle die its next operation.
    fn start(&mut self, now: u64, die: u32) {
        if self.dies[at(die)].running.is_some() {
            return;
        }
        let chosen = match self.params.order {
            Order::Fifo => self.choose_in_order(die),
            Order::ReadFirst => self.choose_reads_first(die),
            Order::Suspend { cost, .. } => {
                let queue = &mut self.dies[at(die)];
                match (queue.reads.is_empty(), queue.suspended) {
                    (true, Some((op, left))) => {
                        queue.suspended = None;
                        self.occupy(now, die, op, left + cost.0);
                        return;
                    }
                    (_, _) => self.choose_reads_first(die),
                }
            }
        };
        let Some(op) = chosen else { return };
        let params = &self.params;
        let page = params.page.0;
        let (read, program, erase) = (params.read, params.program, params.erase);
        let span = match op {
            Op::Read { .. } => self.jittered(read),
            Op::Program => self.over_channel(now, die, page) - now + self.jittered(program),
            Op::Move => {
                let moved = self.over_channel(now, die, 2 * page) - now;
                moved + self.jittered(Nanos(read.0 + program.0))
            }
            Op::Erase => self.jittered(erase),
            Op::Letting => 0,
        };
        match op {
            Op::Read { .. } => self.occupied.reads.0 += span,
            Op::Program => self.occupied.programs.0 += span,
            Op::Move | Op::Erase | Op::Letting => self.occupied.collection.0 += span,
        }
        self.occupy(now, die, op, span);
    }

    fn choose_in_order(&mut self, die: u32) -> Option<Op> {
        if let Some(op) = self.go_on_collecting(die) {
            return Some(op);
        }
        if !self.dies[at(die)].collect_queued && self.wants_collection(die) {
            let queue = &mut self.dies[at(die)];
            queue.collect_queued = true;
            queue.order.push_back(Kind::Collect);
        }
        let room = self.ftl.has_room(die);
        let queue = &mut self.dies[at(die)];
        let next = queue.order.iter().position(|kind| room || *kind != Kind::Program)?;
        match queue.order.remove(next)? {
            Kind::Read => queue.reads.pop_front().map(|(slot, bytes)| Op::Read { slot, bytes }),
            Kind::Program => self.program(die),
            Kind::Collect => {
                queue.collect_queued = false;
                self.collect(die).or_else(|| self.choose_in_order(die))
            }
        }
    }

    fn choose_reads_first(&mut self, die: u32) -> Option<Op> {
        let queue = &mut self.dies[at(die)];
        if queue.held == 0
            && let Some((slot, bytes)) = queue.reads.pop_front()
        {
            return Some(Op::Read { slot, bytes });
        }
        if queue.suspended.is_some() {
            let (slot, bytes) = queue.reads.pop_front()?;
            return Some(Op::Read { slot, bytes });
        }
        if let Some(op) = self.go_on_collecting(die) {
            return Some(op);
        }
        let can_program = !self.dies[at(die)].programs.is_empty() && self.ftl.has_room(die);
        if self.wants_collection(die) && (!can_program || self.dies[at(die)].collect_turn) {
            self.dies[at(die)].collect_turn = false;
            if let Some(op) = self.collect(die) {
                return Some(op);
            }
        }
        if can_program {
            self.dies[at(die)].collect_turn = true;
            return self.program(die);
        }
        None
    }

    fn program(&mut self, die: u32) -> Option<Op> {
        let page = self.dies[at(die)].programs.pop_front()?;
        assert!(self.ftl.program(die, page), "the caller has seen that there is room");
        if let Collect::Paced { high } = self.params.collect
            && self.ftl.free_blocks(die) <= high
        {
            let (cost, gain) = self.ftl.victim_terms(die);
            self.dies[at(die)].owed += 256 * u64::from(cost) / u64::from(gain.max(1));
        }
        Some(Op::Program)
    }

    /// The rest of a step that was begun: nothing else has a turn on this die.
    fn go_on_collecting(&mut self, die: u32) -> Option<Op> {
        if self.dies[at(die)].held == 0 {
            return None;
        }
        if self.ftl.move_next(die).is_some() {
            self.dies[at(die)].held -= 1;
            return Some(Op::Move);
        }
        self.dies[at(die)].held = 0;
        Some(Op::Erase)
    }

    /// Begins a step: moves a page, or erases a block of which nothing is left.
    fn collect(&mut self, die: u32) -> Option<Op> {
        if !self.ftl.has_victim(die) && !self.ftl.start_victim(die, false) {
            return None;
        }
        if self.ftl.move_next(die).is_none() {
            return Some(Op::Erase);
        }
        let queue = &mut self.dies[at(die)];
        queue.held = self.params.quantum - 1;
        queue.owed = queue.owed.saturating_sub(256 * u64::from(self.params.quantum));
        Some(Op::Move)
    }

    fn wants_collection(&mut self, die: u32) -> bool {
        let free = self.ftl.free_blocks(die);
        let background = self.background && free < self.idle_target();
        match self.params.collect {
            Collect::Hysteresis { low, high } => {
                let queue = &mut self.dies[at(die)];
                queue.collecting = free <= low || (queue.collecting && free < high);
                let wanted = queue.collecting || queue.disturbed || background;
                wanted && self.ftl.start_victim(die, false)
            }
            Collect::Paced { high } => {
                let disturbed = self.dies[at(die)].disturbed;
                let wanted = free <= high || background || disturbed;
                if !wanted || !self.ftl.start_victim(die, false) {
                    return false;
                }
                let due = 256 * u64::from(self.params.quantum) <= self.dies[at(die)].owed;
                due || free <= 1 || background || disturbed || self.ftl.victim_is_empty(die)
            }
        }
    }

    /// Half of the spare blocks.
    fn idle_target(&self) -> u32 {
        let shape = &self.params.shape;
        let live = shape.logical_pages / (shape.dies * shape.pages_per_block);
        (shape.blocks_per_die - live) / 2
    }

    fn jittered(&mut self, span: Nanos) -> u64 {
        let jitter = self.params.jitter_permille;
        let factor = 1000 - jitter + self.rng.below(2 * jitter + 1);
        span.0 * u64::from(factor) / 1000
    }

    /// When so many bytes are over the link, behind what was there before.
    fn over_link(&mut self, now: u64, direction: usize, bytes: u64) -> u64 {
        let (way, rate) = match self.params.link {
            Link::HalfDuplex(rate) => (0, rate),
            Link::FullDuplex { read, write } => {
                (direction, if direction == 0 { read } else { write })
            }
        };
        let end = self.link_free[way].max(now) + bytes * 1_000_000_000 / rate.0;
        self.link_free[way] = end;
        end
    }

    fn over_channel(&mut self, now: u64, die: u32, bytes: u64) -> u64 {
        let free = &mut self.channel_free[at(die % self.params.channels)];
        *free = (*free).max(now) + bytes * 1_000_000_000 / self.params.channel_rate.0;
        *free
    }
}

impl Machine for Drive {
    type Now = Instant;
    type Event<'a> = Event;
    type Action = Action;

    /// One event; all that was due before it happens first.
    fn handle(&mut self, now: Instant, event: Event) {
        self.run_to(now.0);
        if let Event::Submit { id, command } = event {
            let slot = self.slots_free.pop().expect("the host keeps to the drive's depth");
            self.slots[at(slot)] = Slot { id, left: 0, last: now.0 };
            self.idle_version = self.idle_version.wrapping_add(1);
            self.background = false;
            self.waiting.push_back((slot, command));
            self.admit(now.0);
            self.run_to(now.0);
        }
    }

    fn poll(&mut self) -> Option<Action> {
        let (id, at) = self.done.pop_front()?;
        Some(Action::Complete { id, at })
    }

    fn deadline(&self) -> Option<Instant> {
        self.events.peek().map(|entry| Instant(entry.time))
    }
}

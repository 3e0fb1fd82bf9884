//! One drive: reads that viewers wait for, and the three kinds of work that they must not notice.
//!
//! ```text
//! submit(op) ─┬─> serve reads, by deadline ──────────────────────────┐
//!             ├─> fill writes ──── rate, depth or both, hold ────────┼──> poll() ──> the ring
//!             ├─> scrub reads ──── one at a time, below a rate ──────┤                 |
//!             └─> deletes ──────── one at a time, 5 % of the time ───┘                 |
//!                  ^────────────── governor <── complete() <───────────────────────────┘
//! ```
//!
//! A write is let go at its own time, so that a rate makes no bursts, and `deadline` says when the
//! next may go: there is no tick. What is held back here is not in the drive, and does not count
//! as its load.
//!
//! A drive's reads may be elsewhere: each worker has a slice of its depth for its own (`reads`).
//! Then this one has all else, and hears what the reads of the slices met (`hear`).

use std::collections::VecDeque;

use model::status::DriveLoad;
use model::units::{Bytes, Instant, Nanos};

use crate::governor::{self, Governor};
use crate::load::Meter;
use crate::reads::{self, Met, Reads};
use crate::tally::{Slice, Tally};
use crate::{Full, time_of};

/// Who waits for an operation, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A read that a viewer waits for.
    Serve,
    /// A write of fill.
    Fill,
    /// A read that checks what is held.
    Scrub,
    /// A range that is given back to the drive.
    Delete,
}

/// The bound on writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// So many in flight.
    Depth(u32),
    /// So many bytes per second.
    Bandwidth(Bytes),
}

/// How writes, scrub and deletes are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Not at all, but for the depth of the drive; reads still go first.
    Off,
    /// By a constant.
    Static(Limit),
    /// By the harm that it does to reads.
    Governed(governor::Config),
}

/// The longest that a read of 256 KiB from an NVMe drive should take.
pub const NVME_TARGET: Nanos = Nanos::millis(2);
/// The same of a SATA drive without a spindle.
pub const SATA_TARGET: Nanos = Nanos::millis(5);

/// Bounds for one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most operations in flight on the drive.
    pub depth: u32,
    /// Most writes in flight, under every policy.
    pub fill_depth: u32,
    /// Most operations that wait, per class.
    pub queue_len_max: usize,
    /// A read should not take longer.
    pub target: Nanos,
    /// Bytes per second that scrub may read.
    pub scrub_rate: Bytes,
    /// The drive does nothing beside a delete, as SATA drives do: then one goes when all else is
    /// back, and writes wait for it.
    pub deletes_alone: bool,
    /// The rule that holds writes back.
    pub policy: Policy,
}

/// An operation that the drive has; it comes back with `complete`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(Flight);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flight {
    Serve(reads::Ticket),
    Fill,
    Scrub,
    Delete { begun: Instant },
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    io: u64,
    len: Bytes,
    came: Instant,
}

/// A delete takes at most one part in so many of a drive's time; fewer if few wait, since viewers
/// notice several in one second.
const DELETE_SHARE: u64 = 20;
const DELETE_SHARE_FEW: u64 = 50;
const DELETES_FEW: usize = 8;
/// Arbitrary: no delete is put off for longer by the one before. One on a drive that hangs takes as
/// long as that does, and what waits for the next stays claimed meanwhile.
const DELETE_WAITS_MAX: Nanos = Nanos::seconds(60);
/// A delete waits so long for a moment with nothing in flight. At 60 % of a SATA drive's reads
/// there is one every few milliseconds.
const PATIENCE: Nanos = Nanos::millis(100);
/// Until something comes back.
const NEVER: Instant = Instant(u64::MAX);
/// Writes may catch up by at most this much of lost time.
const CREDIT: Nanos = Nanos::millis(1);

/// Chooses what one drive does next. An operation is a number to it, as to the ring.
#[derive(Clone, Debug)]
pub struct Drive {
    config: Config,
    governor: Option<Governor>,
    meter: Meter,
    reads: Reads<u64>,
    fill: VecDeque<Waiting>,
    scrub: VecDeque<Waiting>,
    deletes: VecDeque<Waiting>,
    fills_in_flight: u32,
    scrubs_in_flight: u32,
    deletes_in_flight: u32,
    fill_next: Instant,
    scrub_next: Instant,
    delete_next: Instant,
    /// When the last delete came back; reads that were out then say nothing of writes.
    delete_ended: Instant,
    /// The last `poll` held all but reads back until this, or until something comes back.
    held_until: Option<Instant>,
    /// Reads that others have in flight, and when the oldest of them went.
    elsewhere: (u32, Option<Instant>),
    heard_at: Instant,
}

impl Drive {
    /// An idle drive. What serving needs is allocated here, once.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(0 < config.fill_depth, "a drive that takes no write is never filled");
        assert!(0 < config.scrub_rate.0, "a scrub that may read nothing never ends");
        let Config { depth, queue_len_max, target, .. } = config;
        let governor = match config.policy {
            Policy::Governed(aim) => Some(Governor::new(aim, now)),
            Policy::Off | Policy::Static(_) => None,
        };
        Self {
            config,
            governor,
            meter: Meter::new(config.target, now),
            reads: Reads::new(reads::Config { depth, queue_len_max, target }, now),
            fill: VecDeque::new(),
            scrub: VecDeque::new(),
            deletes: VecDeque::new(),
            fills_in_flight: 0,
            scrubs_in_flight: 0,
            deletes_in_flight: 0,
            fill_next: now,
            scrub_next: now,
            delete_next: now,
            delete_ended: now,
            held_until: None,
            elsewhere: (0, None),
            heard_at: now,
        }
    }

    /// Queues an operation. `deadline` orders reads that are served, and says from when on they
    /// are waited for, if that is not now; it is nothing to others.
    pub fn submit(
        &mut self,
        now: Instant,
        class: Class,
        io: u64,
        len: Bytes,
        deadline: Instant,
    ) -> Result<(), Full> {
        let queue = match class {
            Class::Serve => return self.reads.submit(now, io, deadline),
            Class::Fill => &mut self.fill,
            Class::Scrub => &mut self.scrub,
            Class::Delete => &mut self.deletes,
        };
        if self.config.queue_len_max <= queue.len() {
            return Err(Full);
        }
        queue.push_back(Waiting { io, len, came: now });
        Ok(())
    }

    /// The next operation for the drive, if it may have one more now.
    pub fn poll(&mut self, now: Instant) -> Option<(Ticket, u64)> {
        self.held_until = None;
        if self.is_full() {
            return None;
        }
        if let Some((ticket, io)) = self.reads.poll(now) {
            return Some((Ticket(Flight::Serve(ticket)), io));
        }
        if self.fill.is_empty() && self.scrub.is_empty() && self.deletes.is_empty() {
            return None;
        }
        if self.config.deletes_alone
            && self.config.policy != Policy::Off
            && let Some(turn) = self.delete_alone(now)
        {
            return turn;
        }
        let age = self.oldest_age(now);
        let target = self.config.target;
        let hold = |governor: &Governor| governor.hold(now, age, target);
        self.held_until = self.governor.as_ref().and_then(hold);
        if self.held_until.is_some() {
            return None;
        }
        if self.may_fill(now)
            && let Some(write) = self.fill.pop_front()
        {
            self.pace_fill(now, write.len);
            self.fills_in_flight += 1;
            return Some((Ticket(Flight::Fill), write.io));
        }
        let calm = self.governor.is_none() || age.0 < self.config.target.0 / 2;
        if calm
            && self.deletes_in_flight == 0
            && self.delete_next <= now
            && let Some(delete) = self.deletes.pop_front()
        {
            return Some(self.begin_delete(now, &delete));
        }
        if calm
            && self.scrubs_in_flight == 0
            && self.scrub_next <= now
            && let Some(read) = self.scrub.pop_front()
        {
            self.scrub_next = now + time_of(read.len, self.config.scrub_rate);
            self.scrubs_in_flight += 1;
            return Some((Ticket(Flight::Scrub), read.io));
        }
        None
    }

    /// When `poll` may have something though nothing comes back before.
    pub fn deadline(&self) -> Option<Instant> {
        if self.is_full() {
            return None;
        }
        if let Some(at) = self.held_until {
            return (at != NEVER).then_some(at);
        }
        let fill = (!self.fill.is_empty() && self.has_fill_depth()).then_some(self.fill_next);
        let scrub = !self.scrub.is_empty() && self.scrubs_in_flight == 0;
        let delete = !self.deletes.is_empty() && self.deletes_in_flight == 0;
        let others = [fill, scrub.then_some(self.scrub_next), delete.then_some(self.delete_next)];
        others.into_iter().flatten().min()
    }

    /// An operation came back, well or badly.
    pub fn complete(&mut self, now: Instant, ticket: Ticket) {
        self.held_until = None;
        match ticket.0 {
            Flight::Serve(ticket) => {
                let Met { begun, tally } = self.reads.complete(now, ticket);
                self.meter.read(now, &tally);
                self.blame(now, begun, &tally);
            }
            Flight::Fill => {
                assert!(0 < self.fills_in_flight, "a write completes once");
                self.fills_in_flight -= 1;
            }
            Flight::Scrub => {
                assert!(0 < self.scrubs_in_flight, "a scrub completes once");
                self.scrubs_in_flight -= 1;
            }
            Flight::Delete { begun } => {
                assert!(0 < self.deletes_in_flight, "a delete completes once");
                self.deletes_in_flight -= 1;
                self.delete_ended = now;
                let idle = self.governor.as_ref().is_some_and(|governor| governor.rate().is_none());
                if self.config.policy != Policy::Off && !idle {
                    let few = self.deletes.len() < DELETES_FEW;
                    let share = if few { DELETE_SHARE_FEW } else { DELETE_SHARE };
                    let pause = Nanos(now.since(begun).0.saturating_mul(share - 1));
                    self.delete_next = now + pause.min(DELETE_WAITS_MAX);
                }
            }
        }
    }

    /// What serve reads met so far, and what is in flight of them.
    pub fn slice(&mut self) -> Slice {
        self.reads.slice()
    }

    /// What reads met that others asked of the drive since the last time, how many they have in
    /// flight, and when the oldest of those went.
    pub fn hear(&mut self, now: Instant, met: &Tally, in_flight: u32, oldest: Option<Instant>) {
        let (_, before) = std::mem::replace(&mut self.elsewhere, (in_flight, oldest));
        self.meter.read(now, met);
        // Those that are back now may have begun when the oldest did that was out.
        let since = std::mem::replace(&mut self.heard_at, now);
        self.blame(now, before.map_or(since, |before| before.min(since)), met);
    }

    /// True while all but reads wait for something in flight to come back.
    pub fn is_held(&self) -> bool {
        self.held_until.is_some()
    }

    /// Another constant; for a policy that is `Static`.
    pub fn change_limit(&mut self, limit: Limit) {
        assert!(self.governor.is_none(), "a governor sets its own limit");
        self.config.policy = Policy::Static(limit);
    }

    /// How the drive is, without what is held back here.
    pub fn load(&self) -> DriveLoad {
        let granted = match (self.config.policy, &self.governor) {
            (_, Some(governor)) => governor.rate(),
            (Policy::Static(Limit::Bandwidth(rate)), None) => Some(rate),
            (_, None) => None,
        };
        let windows = self.governor.as_ref().map_or((0, 0), Governor::windows);
        self.meter.load(granted, self.fill.len(), windows)
    }

    /// Operations that wait, of all classes.
    pub fn waiting(&self) -> usize {
        self.reads.waiting() + self.fill.len() + self.scrub.len() + self.deletes.len()
    }

    /// Operations that the drive has.
    pub fn in_flight(&self) -> usize {
        let others = self.fills_in_flight + self.scrubs_in_flight + self.deletes_in_flight;
        self.reads.in_flight() + Bytes(u64::from(others)).as_usize()
    }

    fn is_full(&self) -> bool {
        let depth = Bytes(u64::from(self.config.depth)).as_usize();
        assert!(self.in_flight() <= depth, "a drive never has more than its depth");
        self.in_flight() == depth
    }

    /// What `poll` says while a delete that must be alone is in the drive or should be.
    fn delete_alone(&mut self, now: Instant) -> Option<Option<(Ticket, u64)>> {
        if 0 < self.deletes_in_flight {
            self.held_until = Some(NEVER);
            return Some(None);
        }
        let due = self.delete_next.max(self.deletes.front()?.came);
        if now < due {
            return None;
        }
        let patience = due + PATIENCE;
        let busy = 0 < self.in_flight() || 0 < self.elsewhere.0;
        if busy && now < patience {
            self.held_until = Some(patience);
            return Some(None);
        }
        let delete = self.deletes.pop_front()?;
        Some(Some(self.begin_delete(now, &delete)))
    }

    fn begin_delete(&mut self, now: Instant, delete: &Waiting) -> (Ticket, u64) {
        assert_eq!(self.deletes_in_flight, 0, "deletes go one at a time");
        self.deletes_in_flight += 1;
        (Ticket(Flight::Delete { begun: now }), delete.io)
    }

    /// The governor hears of reads that began after `since`. Those that stood behind a delete tell
    /// it that viewers are there, and nothing else: no write is to blame for what they met.
    fn blame(&mut self, now: Instant, since: Instant, met: &Tally) {
        let deleting = 0 < self.deletes_in_flight || since < self.delete_ended;
        let Some(governor) = &mut self.governor else { return };
        if self.config.deletes_alone && deleting {
            governor.excuse(met.reads);
        } else {
            governor.read(now, met);
        }
    }

    fn has_fill_depth(&self) -> bool {
        let limit = match self.config.policy {
            Policy::Static(Limit::Depth(depth)) => depth.min(self.config.fill_depth),
            Policy::Off | Policy::Static(_) | Policy::Governed(_) => self.config.fill_depth,
        };
        self.fills_in_flight < limit
    }

    fn may_fill(&self, now: Instant) -> bool {
        self.has_fill_depth() && self.fill_next <= now
    }

    /// The time of the next write: each is paid for by itself, and little is made up for.
    fn pace_fill(&mut self, now: Instant, len: Bytes) {
        let span = match (self.config.policy, &mut self.governor) {
            (Policy::Governed(_), Some(governor)) => {
                governor.wrote(now, len);
                governor.rate().map_or(Nanos(0), |rate| time_of(len, rate))
            }
            (Policy::Static(Limit::Bandwidth(rate)), _) => time_of(len, rate),
            (_, _) => Nanos(0),
        };
        let credit = Instant(now.0.saturating_sub(CREDIT.0));
        self.fill_next = self.fill_next.max(credit) + span;
        assert!(credit <= self.fill_next, "little lost time is made up for");
    }

    /// How long ago the oldest read went that is not back, here or elsewhere.
    fn oldest_age(&mut self, now: Instant) -> Nanos {
        let oldest = [self.reads.oldest(), self.elsewhere.1].into_iter().flatten().min();
        oldest.map_or(Nanos(0), |begun| now.since(begun))
    }
}

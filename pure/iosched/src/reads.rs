//! Reads that viewers wait for: by deadline, and no more at once than a depth.
//!
//! ```text
//! submit ──> [ heap, by deadline ] ──> poll ──> [ at most `depth` in the drive ] ──> complete
//!                                        cancel <──┘                                   │
//!                                                          slice <── Tally <───────────┘
//! ```
//!
//! A worker has one per drive, its slice of the drive; `drive::Drive` has one for all its reads.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use model::units::{Bytes, Instant, Nanos};

use crate::Full;
use crate::tally::{Slice, Tally};

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub depth: u32,
    pub queue_len_max: usize,
    /// A read should not take longer.
    pub target: Nanos,
}

/// A read that the drive has; it comes back with `complete`, or was not asked for after all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// In the heap; ordered by deadline, then by arrival.
#[derive(Clone, Copy, Debug)]
struct Waiting<T> {
    deadline: Instant,
    number: u64,
    /// Somebody waits for it from then on: when it came, or later by its deadline.
    wanted: Instant,
    of: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.deadline, self.number).cmp(&(other.deadline, other.number))
    }
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    wanted: Instant,
    begun: Instant,
    open: bool,
    /// Of which use of this place; tells a read from an older one.
    number: u64,
}

/// The outcome of one read: its time in the drive, counted against the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    pub begun: Instant,
    /// Itself, counted.
    pub tally: Tally,
}

/// Chooses the next read. Whose it is, is a `T`.
#[derive(Clone, Debug)]
pub struct Reads<T> {
    config: Config,
    /// Invariant: at most `config.queue_len_max`.
    queue: BinaryHeap<Reverse<Waiting<T>>>,
    flights: Vec<Flight>,
    /// Places in `flights` that are not open. Invariant: each once.
    free: Vec<u32>,
    /// Reads in the order they went, with those that are back still among them.
    oldest: VecDeque<(u32, u64)>,
    number: u64,
    tally: Tally,
}

impl<T: Copy> Reads<T> {
    /// Nobody waits. All memory is allocated here, once.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(0 < config.depth, "a drive needs a depth of at least 1");
        assert!(0 < config.queue_len_max, "a read has to wait somewhere");
        assert!(0 < config.target.0, "no read takes no time");
        let idle = Flight { wanted: now, begun: now, open: false, number: 0 };
        let depth = place(config.depth);
        Self {
            config,
            queue: BinaryHeap::with_capacity(config.queue_len_max),
            flights: vec![idle; depth],
            free: (0..config.depth).rev().collect(),
            oldest: VecDeque::with_capacity(4 * depth),
            number: 0,
            tally: Tally::default(),
        }
    }

    /// Queues a read. `deadline` orders it, and says from when on it is waited for, if that is not
    /// now.
    pub fn submit(&mut self, now: Instant, of: T, deadline: Instant) -> Result<(), Full> {
        if self.config.queue_len_max <= self.queue.len() {
            return Err(Full);
        }
        self.number += 1;
        let wanted = now.max(deadline);
        self.queue.push(Reverse(Waiting { deadline, number: self.number, wanted, of }));
        Ok(())
    }

    /// The next read for the drive, if it may have one more.
    pub fn poll(&mut self, now: Instant) -> Option<(Ticket, T)> {
        let slot = *self.free.last()?;
        let Reverse(Waiting { wanted, of, .. }) = self.queue.pop()?;
        self.free.pop();
        self.number += 1;
        let number = self.number;
        let flight = &mut self.flights[place(slot)];
        assert!(!flight.open, "a place that is free has no read");
        *flight = Flight { wanted, begun: now, open: true, number };
        self.tidy_oldest();
        self.oldest.push_back((slot, number));
        Some((Ticket(slot), of))
    }

    /// A read came back, well or badly.
    pub fn complete(&mut self, now: Instant, ticket: Ticket) -> Met {
        let Flight { wanted, begun, .. } = self.land(ticket);
        let span = now.since(begun);
        let tally = Tally::of(self.config.target, now.since(wanted).max(span), span);
        self.tally.add(&tally);
        Met { begun, tally }
    }

    /// The read that `poll` gave is not wanted any more: the drive was not asked for it.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.land(ticket);
    }

    /// What reads met so far, and what is in flight of them.
    pub fn slice(&mut self) -> Slice {
        let in_flight = u32::try_from(self.in_flight()).unwrap_or(u32::MAX);
        Slice { tally: self.tally, in_flight, oldest: self.oldest() }
    }

    /// Reads that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Reads that the drive has.
    pub fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// When the oldest read went that is not back.
    pub fn oldest(&mut self) -> Option<Instant> {
        while let Some((slot, number)) = self.oldest.front().copied() {
            if is_out(&self.flights, slot, number) {
                return Some(self.flights[place(slot)].begun);
            }
            self.oldest.pop_front();
        }
        assert_eq!(self.in_flight(), 0, "a read that is out is among the oldest");
        None
    }

    fn land(&mut self, ticket: Ticket) -> Flight {
        let flight = &mut self.flights[place(ticket.0)];
        assert!(flight.open, "a read completes once");
        flight.open = false;
        let flight = *flight;
        self.free.push(ticket.0);
        flight
    }

    /// Forgets reads that are back, where the list would grow.
    fn tidy_oldest(&mut self) {
        if self.oldest.len() < self.oldest.capacity() {
            return;
        }
        let flights = &self.flights;
        self.oldest.retain(|(slot, number)| is_out(flights, *slot, *number));
        assert!(self.oldest.len() < self.flights.len(), "no more are out than there are places");
    }
}

fn is_out(flights: &[Flight], slot: u32, number: u64) -> bool {
    let flight = &flights[place(slot)];
    flight.open && flight.number == number
}

fn place(slot: u32) -> usize {
    Bytes(u64::from(slot)).as_usize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Nanos = Nanos::millis(5);

    fn ms(n: u64) -> Instant {
        Instant(0) + Nanos::millis(n)
    }

    fn reads() -> Reads<u64> {
        Reads::new(Config { depth: 2, queue_len_max: 4, target: TARGET }, ms(0))
    }

    #[test]
    fn a_full_queue_refuses_and_reads_go_by_deadline_then_by_arrival() {
        let mut reads = reads();
        for (of, deadline) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            reads.submit(ms(0), of, ms(deadline)).unwrap();
        }
        assert_eq!(reads.submit(ms(0), 5, ms(0)), Err(Full));
        let out = std::iter::from_fn(|| reads.poll(ms(1))).map(|(_, of)| of);
        assert_eq!(out.collect::<Vec<_>>(), [2, 4], "and no more than the depth");
        assert_eq!((reads.waiting(), reads.in_flight()), (2, 2));
    }

    /// What a read met that came at 100 ms and was wanted by `deadline`, let go and back then.
    fn met_by(deadline: u64, went: u64, back: u64) -> Tally {
        let mut reads = reads();
        reads.submit(ms(100), 1, ms(deadline)).unwrap();
        let (ticket, _) = reads.poll(ms(went)).unwrap();
        let met = reads.complete(ms(back), ticket);
        assert_eq!((met.begun, met.tally), (ms(went), reads.slice().tally));
        met.tally
    }

    #[test]
    fn a_read_is_late_from_when_it_is_wanted_or_by_what_the_drive_took() {
        let ms = Nanos::millis;
        let tally = |span, service| Tally::of(TARGET, ms(span), ms(service));
        assert_eq!(met_by(150, 119, 120), tally(1, 1), "in time, though it waited for others");
        assert_eq!(met_by(150, 119, 125), tally(6, 6), "the drive was slow");
        assert_eq!(met_by(150, 155, 156), tally(6, 1), "it was wanted before");
        assert_eq!(met_by(100, 119, 120), tally(20, 1), "a viewer waited from the start");
        assert_eq!(met_by(50, 101, 102), tally(2, 1), "nobody waits for what he did not ask yet");
    }

    #[test]
    fn a_read_that_is_not_wanted_any_more_counts_for_nothing() {
        let mut reads = reads();
        (1..=2).for_each(|of| reads.submit(ms(0), of, ms(0)).unwrap());
        let [first, second] = [reads.poll(ms(1)).unwrap().0, reads.poll(ms(1)).unwrap().0];
        reads.cancel(first);
        let slice = reads.slice();
        assert_eq!((slice.tally.reads, slice.in_flight, slice.oldest), (0, 1, Some(ms(1))));
        reads.complete(ms(7), second);
        let slice = reads.slice();
        let Tally { reads, late, near, far, service } = slice.tally;
        assert_eq!((reads, late, near, far, service), (1, 1, 1, 1, Nanos::millis(6)));
        assert_eq!((slice.in_flight, slice.oldest), (0, None));
    }

    #[test]
    #[should_panic(expected = "a read completes once")]
    fn a_read_that_comes_back_twice_ends_the_process() {
        let mut reads = reads();
        reads.submit(ms(0), 1, ms(0)).unwrap();
        let (ticket, _) = reads.poll(ms(0)).unwrap();
        reads.complete(ms(1), ticket);
        reads.complete(ms(1), ticket);
    }
}

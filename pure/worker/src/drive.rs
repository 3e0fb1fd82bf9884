//! One drive as a worker sees it: its waiting transfers, its reads in flight, and whether it
//! answers.
//!
//! ```text
//! admission ──> at most `share` wait for the drive ──> at most `depth` reads, `opens_max` opens
//!                                                         │ nothing heard for `hang_after`
//!                                                         v
//!                  answers again, with all it owed <── hung: it is asked for nothing more
//! ```
//!
//! What a worker has is divided by the number of its drives, and no drive may have more than its
//! share of it: so however many of them hang, each of the others finds its own share free.

use std::collections::VecDeque;

use iosched::reads::{self, Reads, Ticket};
use model::handle::ConnectionId;
use model::units::{Instant, Nanos};

/// A drive's share of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    /// Most reads in flight, each with a buffer.
    pub(crate) depth: usize,
    pub(crate) opens_max: usize,
    /// Most transfers that wait for the drive, past admission.
    pub(crate) waits_max: usize,
    /// A read should not take longer.
    pub(crate) target: Nanos,
}

#[derive(Debug)]
pub(crate) struct Drive {
    share: Share,
    /// This worker's slice of the drive.
    pub(crate) reads: Reads<ConnectionId>,
    /// Transfers before admission, in order, and names of some that have left.
    pub(crate) admission: VecDeque<ConnectionId>,
    /// How many of `admission` still wait. Invariant: <= admission.len().
    pub(crate) admission_count: usize,
    /// Transfers past admission whose files are not open, and who wait until one may be opened;
    /// and names of some that have left.
    pub(crate) turns: VecDeque<ConnectionId>,
    /// Opens in flight. Invariant: <= share.opens_max.
    opens: usize,
    /// Transfers that wait for an open.
    opening: usize,
    /// When it answered last, or was asked while it owed nothing.
    heard_at: Instant,
    /// It was found silent at the last look.
    suspected: bool,
    hung: bool,
    /// It hangs, and somebody may still wait for it.
    pub(crate) is_waited_for: bool,
}

impl Drive {
    /// A drive that owes nothing. `queue_len_max` bounds the reads that wait.
    pub(crate) fn new(share: Share, queue_len_max: usize, now: Instant) -> Self {
        let depth = u32::try_from(share.depth).unwrap_or(u32::MAX);
        let config = reads::Config { depth, queue_len_max, target: share.target };
        Self {
            share,
            reads: Reads::new(config, now),
            admission: VecDeque::new(),
            admission_count: 0,
            turns: VecDeque::new(),
            opens: 0,
            opening: 0,
            heard_at: Instant(0),
            suspected: false,
            hung: false,
            is_waited_for: false,
        }
    }

    /// It does not answer: it is asked for nothing.
    pub(crate) fn is_hung(&self) -> bool {
        self.hung
    }

    /// True while one transfer more may wait for it.
    pub(crate) fn has_room(&self) -> bool {
        let waits = self.turns.len() + self.opening + self.reads.waiting() + self.reads.in_flight();
        !self.hung && waits < self.share.waits_max
    }

    /// True while it may be asked for one open more.
    pub(crate) fn may_open(&self) -> bool {
        self.opens < self.share.opens_max
    }

    pub(crate) fn joins_admission(&mut self, id: ConnectionId) {
        self.admission.push_back(id);
        self.admission_count += 1;
    }

    /// One waits no more, whose name may stand there still.
    pub(crate) fn leaves_admission(&mut self) {
        assert!(0 < self.admission_count, "whoever leaves admission has waited");
        self.admission_count -= 1;
    }

    pub(crate) fn waits_for_open(&mut self) {
        self.opening += 1;
    }

    pub(crate) fn open(&mut self, now: Instant) {
        self.asked(now);
        assert!(self.may_open(), "no more opens than the drive's share");
        self.opens += 1;
    }

    /// It answered an open, for which so many waited.
    pub(crate) fn opened(&mut self, now: Instant, waited: usize) {
        assert!(0 < self.opens, "an open is answered once");
        self.opens -= 1;
        assert!(waited <= self.opening, "whoever waits for an open is counted");
        self.opening -= waited;
        self.heard(now);
    }

    /// Whose read is next, if it may be asked for one.
    pub(crate) fn next_read(&mut self, now: Instant) -> Option<(Ticket, ConnectionId)> {
        if self.hung {
            return None;
        }
        self.asked(now);
        self.reads.poll(now)
    }

    /// It answered a read.
    pub(crate) fn read(&mut self, now: Instant, ticket: Ticket) {
        self.reads.complete(now, ticket);
        self.heard(now);
    }

    /// Judges whether it answers. Two looks in a row must find it silent: it may have been this
    /// process that stood still, and what came meanwhile is heard before the next look. It hangs
    /// until it owes nothing any more.
    pub(crate) fn look(&mut self, now: Instant, hang_after: Nanos) {
        let silent = 0 < self.owes() && hang_after <= now.since(self.heard_at);
        if silent && self.suspected && !self.hung {
            (self.hung, self.is_waited_for) = (true, true);
        }
        self.suspected = silent;
    }

    /// Reads and opens that it has not answered.
    pub(crate) fn owes(&self) -> usize {
        self.reads.in_flight() + self.opens
    }

    fn asked(&mut self, now: Instant) {
        if self.owes() == 0 {
            self.heard_at = now;
        }
    }

    fn heard(&mut self, now: Instant) {
        (self.heard_at, self.suspected) = (now, false);
        self.hung &= 0 < self.owes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HANG: Nanos = Nanos::millis(500);

    fn at(millis: u64) -> Instant {
        Instant(0) + Nanos::millis(millis)
    }

    fn drive() -> Drive {
        let share = Share { depth: 2, opens_max: 1, waits_max: 3, target: Nanos::millis(5) };
        let mut drive = Drive::new(share, 10, at(0));
        (0..4)
            .for_each(|slot| drive.reads.submit(at(0), client(slot), at(u64::from(slot))).unwrap());
        drive
    }

    fn client(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 7 + slot }
    }

    fn ask(drive: &mut Drive, now: Instant) -> Ticket {
        drive.next_read(now).unwrap().0
    }

    fn looks(drive: &mut Drive, at_ms: &[u64]) -> bool {
        at_ms.iter().for_each(|ms| drive.look(at(*ms), HANG));
        drive.is_hung()
    }

    #[test]
    fn reads_go_by_deadline_and_come_back_under_their_names() {
        let mut drive = drive();
        drive.reads.submit(at(0), client(9), at(0)).unwrap();
        let asked: Vec<_> = std::iter::from_fn(|| drive.next_read(at(0))).collect();
        assert_eq!([asked[0].1, asked[1].1], [client(0), client(9)]);
        drive.reads.cancel(asked[1].0);
        drive.read(at(6), asked[0].0);
        let slice = drive.reads.slice();
        assert_eq!((slice.tally.reads, slice.tally.late, slice.in_flight), (1, 1, 0));
    }

    #[test]
    fn a_drive_that_is_not_asked_does_not_hang() {
        assert!(!looks(&mut drive(), &[500, 1000, 60_000]));
    }

    #[test]
    fn a_silent_drive_hangs_until_it_owes_nothing() {
        let mut drive = drive();
        let (first, second) = (ask(&mut drive, at(1000)), ask(&mut drive, at(1400)));
        assert!(!looks(&mut drive, &[1250, 1499, 1500]), "once may have been our own pause");
        assert!(looks(&mut drive, &[1625]));
        assert!(!drive.has_room());
        drive.read(at(9000), second);
        assert!(drive.is_hung() && drive.next_read(at(9000)).is_none(), "it still owes a read");
        drive.read(at(9001), first);
        assert!(!drive.is_hung() && drive.next_read(at(9001)).is_some());
    }

    #[test]
    fn a_slow_drive_that_answers_does_not_hang() {
        let mut drive = drive();
        let mut asked = VecDeque::new();
        for answer in 1..40 {
            let now = at(answer * 400 - 400);
            while let Some((ticket, _)) = drive.next_read(now) {
                asked.push_back(ticket);
            }
            drive.reads.submit(now, client(9), now).unwrap();
            assert!(!looks(&mut drive, &[answer * 400 - 10, answer * 400 - 5]));
            drive.read(at(answer * 400), asked.pop_front().unwrap());
        }
    }

    #[test]
    fn an_open_counts_like_a_read() {
        let mut drive = drive();
        drive.open(at(0));
        drive.waits_for_open();
        assert!(!drive.may_open());
        assert!(looks(&mut drive, &[500, 625]));
        drive.opened(at(700), 1);
        assert!(!drive.is_hung() && drive.may_open());
    }
}

//! One object on its way from a source to a drive.
//!
//! ```text
//!            Reread ──> Found                     only for a part file: what is already good?
//!               │
//!               v
//!   ┌──────── Fetch(run of missing blocks) ──> Received ──> verify ──> Write ──> Written
//!   │           │                                  │                                │
//!   │         Failed, Ended early                wrong                       last one: Complete
//!   │           v                                  v
//!   └─ wait ── next source                Close, next source
//! ```
//!
//! Sources are asked in the order in which they are given: the first until it fails, then the next,
//! and each goes on where the one before stopped. One that sent wrong bytes is passed over for as
//! long as there is another. `Renewed` says that the list is another one now.
//!
//! A block counts when its hash is right and it is written; nothing else is remembered, on the
//! drive either: a part file is its own journal, and each block found in it is verified again. So
//! a block is never fetched twice, and what a cut costs is the block that was half-way.
//!
//! The shell holds one buffer of one block per transfer, and asks for the next only when the last
//! is written: memory is bounded by the number of transfers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::machine::Machine;
use model::object::{BLOCK_LEN, Blocks};
use model::units::{Bytes, Instant, Nanos};

/// Bounds of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most bytes asked for in one request. What a cut connection had in its buffers is lost, so
    /// not endless; each request costs a round trip, so not small.
    pub range_len_max: Bytes,
    /// How often one block may come wrong before the object is given up.
    pub block_tries_max: u32,
    /// How often all sources may fail one after the other, with no good block between them.
    pub rounds_max: u32,
    /// Wait after the first such round; it doubles with each.
    pub backoff_first: Nanos,
    pub backoff_max: Nanos,
}

/// An event that changes a transfer.
#[derive(Debug)]
pub enum Event<'a> {
    /// The block that `Reread` asked for; empty if it could not be read.
    Found { index: u64, bytes: &'a [u8] },
    /// A source sent a whole block. Blocks beyond those asked for are welcome (a source may ignore
    /// the range and send everything).
    Received { index: u64, bytes: &'a [u8] },
    /// The block that `Write` named is on its way to the drive.
    Written,
    /// The answer is over, in good order: all blocks asked for were received.
    Ended,
    /// The source did not answer, or not rightly, or broke off.
    Failed(SourceFault),
    /// There is a new list of sources, and what was asked for last was not asked: the answer to a
    /// `Fetch` whose source is not good any more. The first of the list is next.
    Renewed { sources: usize },
    /// Time passes; at the deadline.
    Tick,
}

/// The next action for the driver of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read a block of the part file; answer with `Found`.
    Reread { index: u64 },
    /// The block just found is good: it counts as written.
    Keep { index: u64 },
    /// Ask a source, by its place in the list, for a run of blocks; answer with `Received` for
    /// each, then `Ended` or `Failed`.
    Fetch { source: usize, first: u64, count: u64 },
    /// The block just received is good: write it, then answer with `Written`.
    Write { index: u64 },
    /// Drop the rest of this answer: it has wrong bytes, or nothing more that is needed.
    Close,
    /// A source sent wrong bytes in this block: others should not be sent to it. Nothing to answer.
    Distrust { source: usize, index: u64 },
    /// All blocks are there.
    Complete,
    /// It cannot be had now. Blocks already written stay.
    GiveUp(Reason),
}

/// A fault of a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceFault {
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    #[error("answers with status {0}")]
    Status(u16),
    /// It sends the whole object, and too much of that is there already.
    #[error("ignores Range, so a cut transfer would begin anew: use a server that honours Range")]
    RangeIgnored,
    #[error("sends something else than was asked for: {0}")]
    OtherRange(String),
    #[error("sends less than was asked for")]
    Short,
    #[error("broke off after {0}")]
    BrokeOff(Bytes),
    /// It sends too little in the time that a block may take.
    #[error("was too slow after {0}")]
    Slow(Bytes),
    /// Its URL was good for a time that is over, and there is no other.
    #[error("needs a signed URL: the last one has expired, and control gives no new one")]
    Expired,
    #[error("sent wrong bytes in block {0}")]
    WrongBytes(u64),
}

/// Why an object was given up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("the manifest names no source for it")]
    NoSource,
    #[error("block {index} came wrong {tries} times: a source's file has changed since ingest")]
    WrongBytes { index: u64, tries: u32 },
    #[error("no source gives it; the last one {0}")]
    Sources(SourceFault),
}

/// One object on its way to its drive, block by block.
#[derive(Debug)]
pub struct Transfer {
    config: Config,
    blocks: Blocks,
    source_count: usize,
    source: usize,
    phase: Phase,
    /// One bit per block. Invariant: set only for verified blocks.
    good: Vec<u64>,
    missing: u64,
    /// Invariant: all blocks before this one are good.
    first_missing: u64,
    distrusted: BTreeSet<usize>,
    /// How often each block came wrong. Invariant: each less than `block_tries_max`.
    wrong: BTreeMap<u64, u32>,
    /// Failures since the last good block.
    failures: u32,
    actions: VecDeque<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The part file is looked through, block by block.
    Rereading { next: u64 },
    /// The next source is to be asked.
    Idle,
    /// A source sends the blocks up to this one.
    Fetching { end: u64 },
    /// A good block is being written; then the fetch goes on.
    Writing { index: u64, end: u64 },
    /// All sources have failed.
    Waiting { until: Instant },
    /// It is complete, or was given up.
    Over,
}

impl Transfer {
    /// A transfer of the object with these blocks from so many sources. `part` says that a part
    /// file of it was found.
    pub fn new(config: Config, blocks: Blocks, source_count: usize, part: bool) -> Self {
        let missing = Bytes::of(blocks.hashes().len()).0;
        assert!(BLOCK_LEN <= config.range_len_max, "a request asks for at least one block");
        assert!(0 < config.block_tries_max && 0 < config.rounds_max, "one try at least");
        let mut transfer = Self {
            config,
            source_count,
            source: 0,
            phase: if part { Phase::Rereading { next: 0 } } else { Phase::Idle },
            good: vec![0; blocks.hashes().len().div_ceil(64)],
            missing,
            first_missing: 0,
            distrusted: BTreeSet::new(),
            wrong: BTreeMap::new(),
            failures: 0,
            actions: VecDeque::new(),
            blocks,
        };
        if missing == 0 {
            transfer.end(Action::Complete);
        }
        transfer
    }

    /// How many blocks are still missing.
    pub fn missing(&self) -> u64 {
        self.missing
    }

    fn first_missing(&mut self) -> u64 {
        while self.is_good(self.first_missing) {
            self.first_missing += 1;
        }
        self.first_missing
    }

    fn fetch(&mut self) -> Action {
        let first = self.first_missing();
        let count = Bytes::of(self.blocks.hashes().len()).0;
        assert!(first < count, "something is missing, or the transfer would be over");
        let most = (self.config.range_len_max.0 / BLOCK_LEN.0).min(count - first);
        let run = (1..most).find(|i| self.is_good(first + i)).unwrap_or(most);
        self.phase = Phase::Fetching { end: first + run };
        Action::Fetch { source: self.source, first, count: run }
    }

    fn found(&mut self, index: u64, bytes: &[u8]) {
        assert!(self.phase == Phase::Rereading { next: index }, "one block is read at a time");
        self.phase = Phase::Rereading { next: index + 1 };
        if self.blocks.verify(index, bytes) {
            self.actions.push_back(Action::Keep { index });
            self.count(index);
        }
    }

    fn received(&mut self, now: Instant, index: u64, bytes: &[u8]) {
        let Phase::Fetching { end } = self.phase else {
            return;
        };
        if self.is_good(index) {
            return;
        }
        if self.blocks.verify(index, bytes) {
            self.failures = 0;
            self.actions.push_back(Action::Write { index });
            self.phase = Phase::Writing { index, end };
            return;
        }
        self.actions.push_back(Action::Close);
        self.actions.push_back(Action::Distrust { source: self.source, index });
        self.distrusted.insert(self.source);
        let tries = self.wrong.get(&index).copied().unwrap_or(0) + 1;
        if tries < self.config.block_tries_max {
            self.wrong.insert(index, tries);
            self.failed(now, SourceFault::WrongBytes(index));
        } else {
            self.end(Action::GiveUp(Reason::WrongBytes { index, tries }));
        }
    }

    fn written(&mut self) {
        let Phase::Writing { index, end } = self.phase else {
            unreachable!("only a block that was given out can be written");
        };
        self.phase = Phase::Fetching { end };
        self.wrong.remove(&index);
        self.count(index);
    }

    /// One more block is good.
    fn count(&mut self, index: u64) {
        assert!(!self.is_good(index), "no block counts twice");
        self.good[word(index)] |= 1 << (index % 64);
        self.missing -= 1;
        if self.missing == 0 {
            if matches!(self.phase, Phase::Fetching { .. }) {
                self.actions.push_back(Action::Close);
            }
            self.end(Action::Complete);
        }
    }

    /// The next source, at once if it has not failed in this round, else after a wait.
    fn failed(&mut self, now: Instant, fault: SourceFault) {
        self.failures += 1;
        self.source = self.source_after();
        let sources = u32::try_from(self.source_count).unwrap_or(u32::MAX);
        let rounds = self.failures / sources;
        if !self.failures.is_multiple_of(sources) {
            self.phase = Phase::Idle;
        } else if rounds < self.config.rounds_max {
            self.phase = Phase::Waiting { until: now + self.backoff(rounds) };
        } else {
            self.end(Action::GiveUp(Reason::Sources(fault)));
        }
    }

    /// The next in order that is trusted; if none is, the next.
    fn source_after(&self) -> usize {
        let after = |step| (self.source + step) % self.source_count;
        let trusted = |source: &usize| !self.distrusted.contains(source);
        (1..=self.source_count).map(after).find(trusted).unwrap_or_else(|| after(1))
    }

    /// Doubles from the first to the longest wait, and takes half to all of it, by a byte of the
    /// id: what lost one source at one moment does not come back to it at one moment.
    fn backoff(&self, rounds: u32) -> Nanos {
        let doubled = self.config.backoff_first.0.saturating_mul(1 << (rounds - 1).min(32));
        let most = doubled.min(self.config.backoff_max.0);
        let ids = self.blocks.id().0;
        let byte = u64::from(ids[Bytes(u64::from(rounds)).as_usize() % ids.len()]);
        Nanos(most / 2 + most / 2 / 255 * byte)
    }

    fn end(&mut self, action: Action) {
        assert!(self.phase != Phase::Over, "a transfer ends once");
        self.actions.push_back(action);
        self.phase = Phase::Over;
    }

    fn is_good(&self, index: u64) -> bool {
        self.good.get(word(index)).is_some_and(|bits| bits >> (index % 64) & 1 == 1)
    }
}

impl Machine for Transfer {
    type Now = Instant;
    type Event<'a> = Event<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Found { index, bytes } => self.found(index, bytes),
            Event::Received { index, bytes } => self.received(now, index, bytes),
            Event::Written => self.written(),
            Event::Ended => {
                if let Phase::Fetching { end } = self.phase {
                    if self.first_missing() < end {
                        self.failed(now, SourceFault::Short);
                    } else {
                        self.phase = Phase::Idle;
                    }
                }
            }
            Event::Failed(fault) => {
                if matches!(self.phase, Phase::Fetching { .. }) {
                    self.failed(now, fault);
                }
            }
            Event::Renewed { sources } => {
                if matches!(self.phase, Phase::Fetching { .. }) {
                    self.phase = Phase::Idle;
                }
                self.source_count = sources;
                self.source = 0;
                self.distrusted.clear();
            }
            Event::Tick => {
                if matches!(self.phase, Phase::Waiting { until } if until <= now) {
                    self.phase = Phase::Idle;
                }
            }
        }
    }

    fn poll(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        match self.phase {
            Phase::Rereading { next } => {
                let count = Bytes::of(self.blocks.hashes().len()).0;
                if next == count {
                    self.phase = Phase::Idle;
                    return self.poll();
                }
                Some(Action::Reread { index: next })
            }
            Phase::Idle if self.source_count == 0 => {
                self.end(Action::GiveUp(Reason::NoSource));
                self.actions.pop_front()
            }
            Phase::Idle => Some(self.fetch()),
            Phase::Fetching { .. } | Phase::Writing { .. } | Phase::Waiting { .. } => None,
            Phase::Over => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting { until } => Some(until),
            Phase::Rereading { .. }
            | Phase::Idle
            | Phase::Fetching { .. }
            | Phase::Writing { .. }
            | Phase::Over => None,
        }
    }
}

fn word(index: u64) -> usize {
    Bytes(index / 64).as_usize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::object::{BlockHash, block_hash};
    use proptest::prelude::*;

    const CONFIG: Config = Config {
        range_len_max: Bytes::mib(1),
        block_tries_max: 3,
        rounds_max: 4,
        backoff_first: Nanos::millis(100),
        backoff_max: Nanos::seconds(1),
    };

    /// An object of so many blocks, the last one short.
    struct Object {
        bytes: Vec<u8>,
        blocks: Blocks,
    }

    impl Object {
        fn new(count: u8) -> Self {
            let len = usize::from(count) * BLOCK_LEN.as_usize() - 1000;
            let bytes: Vec<u8> = (0u8..=250).cycle().take(len).collect();
            let chunks: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
            let hash = |(i, chunk): (u64, &&[u8])| block_hash(i, chunk, chunks.len() == 1);
            let hashes: Vec<BlockHash> = (0..).zip(&chunks).map(hash).collect();
            let blocks = Blocks::of_hashes(Bytes::of(len), hashes).unwrap();
            Self { bytes, blocks }
        }

        fn block(&self, index: u64) -> &[u8] {
            self.bytes.chunks(BLOCK_LEN.as_usize()).nth(Bytes(index).as_usize()).unwrap()
        }

        fn transfer(&self, source_count: usize) -> Transfer {
            Transfer::new(CONFIG, self.blocks.clone(), source_count, false)
        }
    }

    fn fetch(source: usize, first: u64, count: u64) -> Option<Action> {
        Some(Action::Fetch { source, first, count })
    }

    /// Gives the block and carries out the write that follows.
    fn give(transfer: &mut Transfer, object: &Object, index: u64) {
        let event = Event::Received { index, bytes: object.block(index) };
        transfer.handle(Instant(0), event);
        assert_eq!(transfer.poll(), Some(Action::Write { index }));
        assert_eq!(transfer.poll(), None, "one block at a time");
        transfer.handle(Instant(0), Event::Written);
    }

    #[test]
    fn an_object_is_fetched_in_ranges_verified_and_complete() {
        let object = Object::new(6);
        let mut transfer = object.transfer(1);
        assert_eq!(transfer.poll(), fetch(0, 0, 4));
        (0..4).for_each(|i| give(&mut transfer, &object, i));
        assert_eq!(transfer.poll(), None);
        transfer.handle(Instant(0), Event::Ended);
        assert_eq!(transfer.poll(), fetch(0, 4, 2));
        (4..6).for_each(|i| give(&mut transfer, &object, i));
        assert_eq!(transfer.poll(), Some(Action::Close));
        assert_eq!(transfer.poll(), Some(Action::Complete));
        transfer.handle(Instant(0), Event::Ended);
        assert_eq!((transfer.poll(), transfer.deadline(), transfer.missing()), (None, None, 0));
    }

    #[test]
    fn the_empty_object_is_complete_at_once() {
        let blocks = Blocks::of_hashes(Bytes::ZERO, Vec::new()).unwrap();
        let mut transfer = Transfer::new(CONFIG, blocks, 0, true);
        assert_eq!(transfer.poll(), Some(Action::Complete));
    }

    #[test]
    fn a_part_is_read_again_and_only_what_is_not_good_is_fetched() {
        let object = Object::new(5);
        let mut transfer = Transfer::new(CONFIG, object.blocks.clone(), 1, true);
        let zeros = vec![0; BLOCK_LEN.as_usize()];
        for index in 0..5 {
            assert_eq!(transfer.poll(), Some(Action::Reread { index }));
            let good = index == 0 || index == 3;
            let bytes = if good { object.block(index) } else { &zeros[..] };
            transfer.handle(Instant(0), Event::Found { index, bytes });
            if good {
                assert_eq!(transfer.poll(), Some(Action::Keep { index }));
            }
        }
        assert_eq!(transfer.poll(), fetch(0, 1, 2));
        (1..3).for_each(|i| give(&mut transfer, &object, i));
        transfer.handle(Instant(0), Event::Ended);
        assert_eq!(transfer.poll(), fetch(0, 4, 1));
    }

    #[test]
    fn a_source_that_ignores_the_range_is_used_as_far_as_it_helps() {
        let object = Object::new(6);
        let mut transfer = object.transfer(1);
        assert_eq!(transfer.poll(), fetch(0, 0, 4));
        (0..6).for_each(|i| give(&mut transfer, &object, i));
        assert_eq!(transfer.poll(), Some(Action::Close));
        assert_eq!(transfer.poll(), Some(Action::Complete));
    }

    #[test]
    fn a_broken_connection_costs_no_verified_block() {
        let object = Object::new(4);
        let mut transfer = object.transfer(2);
        assert_eq!(transfer.poll(), fetch(0, 0, 4));
        give(&mut transfer, &object, 0);
        transfer.handle(Instant(0), Event::Failed(SourceFault::BrokeOff(Bytes(300_000))));
        assert_eq!(transfer.poll(), fetch(1, 1, 3), "the next source, at once");
        transfer.handle(Instant(0), Event::Ended);
        assert_eq!(transfer.poll(), None, "an answer that ends early is a failure too");
        transfer.handle(transfer.deadline().unwrap(), Event::Tick);
        assert_eq!(transfer.poll(), fetch(0, 1, 3));
    }

    #[test]
    fn waits_double_up_to_a_bound_and_then_the_object_is_given_up() {
        let object = Object::new(1);
        let mut transfer = object.transfer(2);
        let mut now = Instant(7);
        for round in 0..4u64 {
            assert_eq!(transfer.poll(), fetch(0, 0, 1));
            transfer.handle(now, Event::Failed(SourceFault::Status(404)));
            assert_eq!(transfer.poll(), fetch(1, 0, 1));
            transfer.handle(now, Event::Failed(SourceFault::Status(503)));
            if round == 3 {
                break;
            }
            let until = transfer.deadline().unwrap();
            let most = Nanos::millis(100 << round);
            assert!(most.0 / 2 <= until.since(now).0 && until.since(now) <= most);
            transfer.handle(Instant(until.0 - 1), Event::Tick);
            assert_eq!(transfer.poll(), None, "not before its time");
            transfer.handle(until, Event::Tick);
            now = until;
        }
        let reason = Reason::Sources(SourceFault::Status(503));
        assert_eq!(transfer.poll(), Some(Action::GiveUp(reason)));
        assert_eq!(transfer.poll(), None);
    }

    #[test]
    fn a_wrong_block_is_fetched_from_the_next_source_and_never_written() {
        let object = Object::new(3);
        let mut transfer = object.transfer(2);
        let mut wrong = object.block(1).to_vec();
        wrong[77] ^= 1;
        assert_eq!(transfer.poll(), fetch(0, 0, 3));
        give(&mut transfer, &object, 0);
        let distrust = |source| Some(Action::Distrust { source, index: 1 });
        transfer.handle(Instant(0), Event::Received { index: 1, bytes: &wrong });
        assert_eq!((transfer.poll(), transfer.poll()), (Some(Action::Close), distrust(0)));
        assert_eq!(transfer.poll(), fetch(1, 1, 2));
        transfer.handle(Instant(0), Event::Received { index: 1, bytes: &wrong });
        assert_eq!((transfer.poll(), transfer.poll()), (Some(Action::Close), distrust(1)));
        transfer.handle(transfer.deadline().unwrap(), Event::Tick);
        assert_eq!(transfer.poll(), fetch(0, 1, 2));
        transfer.handle(Instant(0), Event::Received { index: 1, bytes: &wrong });
        assert_eq!((transfer.poll(), transfer.poll()), (Some(Action::Close), distrust(0)));
        let reason = Reason::WrongBytes { index: 1, tries: 3 };
        assert_eq!(transfer.poll(), Some(Action::GiveUp(reason)));
    }

    #[test]
    fn a_source_that_lied_is_passed_over_while_there_is_another() {
        let object = Object::new(3);
        let mut transfer = object.transfer(3);
        assert_eq!(transfer.poll(), fetch(0, 0, 3));
        transfer.handle(Instant(0), Event::Received { index: 0, bytes: b"lie" });
        let close_and_distrust = (transfer.poll(), transfer.poll());
        let distrust = Action::Distrust { source: 0, index: 0 };
        assert_eq!(close_and_distrust, (Some(Action::Close), Some(distrust)));
        for source in [1, 2, 1, 2] {
            if let Some(until) = transfer.deadline() {
                transfer.handle(until, Event::Tick);
            }
            assert_eq!(transfer.poll(), fetch(source, 0, 3));
            transfer.handle(Instant(0), Event::Failed(SourceFault::Status(500)));
        }
    }

    #[test]
    fn a_new_list_of_sources_is_begun_at_its_first_and_the_transfer_goes_on_where_it_was() {
        let object = Object::new(4);
        let mut transfer = object.transfer(2);
        assert_eq!(transfer.poll(), fetch(0, 0, 4));
        give(&mut transfer, &object, 0);
        transfer.handle(Instant(0), Event::Failed(SourceFault::Status(403)));
        assert_eq!(transfer.poll(), fetch(1, 1, 3));
        transfer.handle(Instant(0), Event::Renewed { sources: 3 });
        assert_eq!(transfer.poll(), fetch(0, 1, 3));
        (1..4).for_each(|i| give(&mut transfer, &object, i));
        assert_eq!(transfer.poll(), Some(Action::Close));
        assert_eq!(transfer.poll(), Some(Action::Complete));
    }

    #[test]
    fn new_lists_again_and_again_do_not_keep_a_transfer_alive() {
        let object = Object::new(1);
        let mut transfer = object.transfer(1);
        let (mut fetches, mut now) = (0, Instant(0));
        let reason = loop {
            match transfer.poll() {
                Some(Action::Fetch { .. }) if fetches % 2 == 0 => {
                    fetches += 1;
                    transfer.handle(now, Event::Renewed { sources: 2 });
                }
                Some(Action::Fetch { .. }) => {
                    fetches += 1;
                    transfer.handle(now, Event::Failed(SourceFault::Status(403)));
                }
                Some(Action::GiveUp(reason)) => break reason,
                Some(other) => panic!("{other:?}"),
                None => {
                    now = transfer.deadline().unwrap();
                    transfer.handle(now, Event::Tick);
                }
            }
            assert!(fetches < 100, "it ends");
        };
        assert_eq!(reason, Reason::Sources(SourceFault::Status(403)));
    }

    #[test]
    fn a_new_list_with_nothing_in_it_ends_the_transfer() {
        let object = Object::new(1);
        let mut transfer = object.transfer(1);
        assert_eq!(transfer.poll(), fetch(0, 0, 1));
        transfer.handle(Instant(0), Event::Renewed { sources: 0 });
        assert_eq!(transfer.poll(), Some(Action::GiveUp(Reason::NoSource)));
    }

    #[test]
    fn without_a_source_it_is_given_up_but_a_whole_part_needs_none() {
        let object = Object::new(1);
        assert_eq!(object.transfer(0).poll(), Some(Action::GiveUp(Reason::NoSource)));
        let mut transfer = Transfer::new(CONFIG, object.blocks.clone(), 0, true);
        assert_eq!(transfer.poll(), Some(Action::Reread { index: 0 }));
        transfer.handle(Instant(0), Event::Found { index: 0, bytes: object.block(0) });
        assert_eq!(transfer.poll(), Some(Action::Keep { index: 0 }));
        assert_eq!(transfer.poll(), Some(Action::Complete));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_sources_do_each_block_is_written_once_and_right(
            found in prop::collection::vec(any::<bool>(), 5),
            kinds in prop::collection::vec(0u8..8, 0..40),
        ) {
            let object = Object::new(5);
            let mut transfer = Transfer::new(CONFIG, object.blocks.clone(), 2, true);
            let (mut now, mut kinds, mut at) = (Instant(0), kinds.into_iter(), 0);
            let (mut sources, mut lied) = (2, BTreeSet::new());
            let mut written = [0; 5];
            loop {
                match transfer.poll() {
                    Some(Action::Reread { index }) => {
                        let good = found[Bytes(index).as_usize()];
                        let bytes = if good { object.block(index) } else { &[] };
                        transfer.handle(now, Event::Found { index, bytes });
                    }
                    Some(Action::Write { index }) => {
                        written[Bytes(index).as_usize()] += 1;
                        transfer.handle(now, Event::Written);
                    }
                    Some(Action::Keep { index }) => written[Bytes(index).as_usize()] += 1,
                    Some(Action::Fetch { source, first, count }) => {
                        let mut run = (first..first + count).map(|i| written[Bytes(i).as_usize()]);
                        prop_assert!(run.all(|times| times == 0));
                        prop_assert!(source < sources);
                        prop_assert!(!lied.contains(&source) || lied.len() == sources);
                        at = first;
                    }
                    Some(Action::Distrust { source, .. }) => {
                        lied.insert(source);
                    }
                    Some(Action::Close) => {}
                    Some(Action::Complete) => {
                        prop_assert_eq!(written, [1; 5]);
                        break;
                    }
                    Some(Action::GiveUp(_)) => break,
                    None if transfer.deadline().is_some() => {
                        now = transfer.deadline().unwrap();
                        transfer.handle(now, Event::Tick);
                    }
                    None => {
                        let event = match kinds.next() {
                            Some(0) => Event::Failed(SourceFault::Status(500)),
                            Some(1) => Event::Ended,
                            Some(2) => Event::Received { index: at, bytes: &[1, 2, 3] },
                            Some(kind @ 3..=4) => {
                                (sources, lied) = (usize::from(kind) - 2, BTreeSet::new());
                                Event::Renewed { sources }
                            }
                            Some(_) | None if at == 5 => Event::Ended,
                            Some(_) | None => {
                                Event::Received { index: at, bytes: object.block(at) }
                            }
                        };
                        at += u64::from(matches!(event, Event::Received { .. }));
                        transfer.handle(now, event);
                    }
                }
            }
        }
    }
}

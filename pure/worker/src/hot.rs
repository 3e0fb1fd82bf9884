//! The most wanted blocks, kept in the read buffers where they landed.
//!
//! ```text
//! want(block) ──> counts          find ──> the buffer: sent from memory, the drive is not asked
//!                    │            else
//!                    └──────────> is_wanted ──> the whole block is read, `keep` pins its buffer
//!                                 else ───────> what is wanted is read, and forgotten
//! ```
//!
//! A block is kept from its second want on while there is room; then it takes the place of the
//! coldest of a few others, if it is warmer. What is read once and in order, however much, thus
//! takes nobody's place. Wants are counted in a sketch whose counts are halved every now and then,
//! so that yesterday's film cools down (TinyLFU: Einziger, Friedman, Manes, 2017).
//!
//! Blocks that control expects to be wanted are kept from their first want on: it is counted as the
//! second, unless one was counted already.

use std::sync::Arc;

use model::expected::FirstBlocks;
use model::extent::DriveIndex;
use model::handle::BufferId;
use model::id::ObjectId;
use model::number::{GOLDEN, mix};
use model::object::block_count;
use model::units::Bytes;

use crate::buffers::Buffers;

/// Wants from which on a block is kept.
const WANTS_MIN: u8 = 2;
/// Blocks that are looked at for the coldest. With 8, up to 1 % fewer hits in this room's tests.
const CANDIDATES: usize = 16;
/// A count says no more than this. TinyLFU's; with more, what was popular cools down later.
const COUNT_MAX: u8 = 15;
/// Counts are halved after so many wants per place. With 10, 3 to 6 % fewer hits in this room's
/// tests; with 100 and higher counts, what is new has to wait for long.
const WANTS_PER_PLACE: usize = 30;
/// Counts in one cache line, all of those that a block is counted in.
const LINE: usize = 64;
/// End of a chain.
const NONE: u16 = u16::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockName {
    pub(crate) object: ObjectId,
    pub(crate) block: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name: BlockName,
    drive: DriveIndex,
    buffer: BufferId,
    /// The next entry with the same bucket.
    next: u16,
}

/// The blocks that are kept. All memory is allocated at start.
#[derive(Debug)]
pub(crate) struct Hot {
    places: usize,
    /// Invariant: `entries.len() <= places`. Each has one pin in the pool.
    entries: Vec<Entry>,
    /// First entry by hash; a power of two of them.
    buckets: Vec<u16>,
    /// Where the search for the coldest goes on.
    hand: usize,
    wants: Sketch,
    /// Ascending by object.
    expected: Arc<[FirstBlocks]>,
    /// Grows when blocks are dropped: what was being read then may be of what is gone.
    epoch: u64,
    /// Entries that removals have looked at, for a test of their cost.
    #[cfg(test)]
    pub(crate) looks: usize,
}

impl Hot {
    /// Room for `places` blocks; with none, nothing is ever kept.
    pub(crate) fn new(places: u16) -> Self {
        assert!(places < NONE, "a chain's end is no place");
        let places = usize::from(places);
        Self {
            places,
            entries: Vec::with_capacity(places),
            buckets: vec![NONE; (places * 2).next_power_of_two()],
            hand: 0,
            wants: Sketch::new(places),
            expected: Arc::default(),
            epoch: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Viewers are expected to want these blocks, ascending by object, and no others. O(1).
    pub(crate) fn expect(&mut self, expected: Arc<[FirstBlocks]>) {
        self.expected = expected;
    }

    /// Counts a want. O(1), and O(log expected) of a block that was not wanted for long.
    pub(crate) fn want(&mut self, name: &BlockName) {
        if self.places == 0 {
            return;
        }
        let hash = hash(name);
        if self.wants.count(hash) == 0 && self.is_expected(name) {
            self.wants.add(hash);
        }
        self.wants.add(hash);
    }

    fn is_expected(&self, name: &BlockName) -> bool {
        let found = self.expected.binary_search_by_key(&name.object, |first| first.object);
        found.is_ok_and(|at| name.block < self.expected[at].count)
    }

    /// The buffer that begins with the block, if it is kept.
    pub(crate) fn find(&self, name: &BlockName) -> Option<BufferId> {
        self.place(name).map(|place| self.entries[place].buffer)
    }

    fn place(&self, name: &BlockName) -> Option<usize> {
        let mut at = self.buckets[self.bucket(name)];
        while at != NONE {
            let place = usize::from(at);
            if self.entries[place].name == *name {
                return Some(place);
            }
            at = self.entries[place].next;
        }
        None
    }

    /// True if the block is worth a place.
    pub(crate) fn is_wanted(&self, name: &BlockName, buffers: &Buffers) -> bool {
        if self.places == 0 {
            return false;
        }
        let count = self.wants.count(hash(name));
        if self.entries.len() < self.places {
            return WANTS_MIN <= count;
        }
        self.coldest(buffers).is_some_and(|(_, coldest)| coldest < count)
    }

    /// Keeps the block that `buffer` begins with, for which it takes a pin; a colder one makes
    /// room, but none that anybody is being sent. False if there is no room, or it is kept already.
    pub(crate) fn keep(
        &mut self,
        name: BlockName,
        drive: DriveIndex,
        buffer: BufferId,
        buffers: &mut Buffers,
    ) -> bool {
        if !self.is_wanted(&name, buffers) || self.find(&name).is_some() {
            return false;
        }
        if self.entries.len() == self.places {
            let (coldest, _) = self.coldest(buffers).expect("it is wanted, so one is colder");
            self.hand = (self.hand + CANDIDATES) % self.places;
            self.remove(coldest, buffers);
        }
        buffers.pin(buffer);
        let (bucket, place) = (self.bucket(&name), self.entries.len());
        self.entries.push(Entry { name, drive, buffer, next: self.buckets[bucket] });
        self.buckets[bucket] = u16::try_from(place).expect("places are fewer than 2^16");
        assert!(self.entries.len() <= self.places, "a colder block has made room");
        true
    }

    /// The object is gone, and its blocks with it. One look for each of them or for each that is
    /// kept, whatever is less; `len` is none where nobody knows how many it had.
    pub(crate) fn drop_object(
        &mut self,
        object: ObjectId,
        len: Option<Bytes>,
        buffers: &mut Buffers,
    ) {
        let blocks = len.map(block_count).filter(|count| *count < Bytes::of(self.len()).0);
        let Some(blocks) = blocks else {
            return self.drop_where(|entry| entry.name.object == object, buffers);
        };
        self.epoch += 1;
        for block in 0..blocks {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if let Some(place) = self.place(&BlockName { object, block }) {
                self.remove(place, buffers);
            }
        }
    }

    /// The drive is out of use, and what was read from it.
    pub(crate) fn drop_drive(&mut self, drive: DriveIndex, buffers: &mut Buffers) {
        self.drop_where(|entry| entry.drive == drive, buffers);
    }

    fn drop_where(&mut self, is_gone: impl Fn(&Entry) -> bool, buffers: &mut Buffers) {
        self.epoch += 1;
        // From behind: `remove` puts the last, which was looked at, in the place of what goes.
        for place in (0..self.entries.len()).rev() {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if is_gone(&self.entries[place]) {
                self.remove(place, buffers);
            }
        }
    }

    /// Of the next few blocks that nobody is being sent, the coldest and its count.
    fn coldest(&self, buffers: &Buffers) -> Option<(usize, u8)> {
        let len = self.entries.len();
        let places = (0..CANDIDATES.min(len)).map(|step| (self.hand + step) % len);
        let idle = places.filter(|place| buffers.pins(self.entries[*place].buffer) == 1);
        let counted = idle.map(|place| (place, self.wants.count(hash(&self.entries[place].name))));
        counted.min_by_key(|(_, count)| *count)
    }

    fn remove(&mut self, place: usize, buffers: &mut Buffers) {
        let entry = self.entries[place];
        self.relink(place, entry.next);
        buffers.unpin(entry.buffer);
        let last = self.entries.len() - 1;
        if place != last {
            // The last moves here: whoever points to it points here from now on.
            self.relink(last, u16::try_from(place).expect("places are fewer than 2^16"));
        }
        self.entries.swap_remove(place);
    }

    /// Makes what points to `place` point to `to`.
    fn relink(&mut self, place: usize, to: u16) {
        let bucket = self.bucket(&self.entries[place].name);
        let place = u16::try_from(place).expect("places are fewer than 2^16");
        if self.buckets[bucket] == place {
            self.buckets[bucket] = to;
            return;
        }
        let mut at = usize::from(self.buckets[bucket]);
        while self.entries[at].next != place {
            assert_ne!(self.entries[at].next, NONE, "a block is in the chain of its bucket");
            at = usize::from(self.entries[at].next);
        }
        self.entries[at].next = to;
    }

    fn bucket(&self, name: &BlockName) -> usize {
        index(hash(name) >> 32, self.buckets.len())
    }
}

/// How often each block was wanted lately, roughly and never too low but for what was halved.
#[derive(Debug)]
struct Sketch {
    /// Lines of counts, a power of two; a block is counted four times in one line.
    counts: Vec<[u8; LINE]>,
    /// Wants until all counts are halved.
    left: usize,
    period: usize,
}

impl Sketch {
    /// Half a line for each place: 32 counts, of which few blocks share all four with another.
    fn new(places: usize) -> Self {
        let period = places * WANTS_PER_PLACE;
        let lines = (places / 2).max(1).next_power_of_two();
        Self { counts: vec![[0; LINE]; lines], left: period, period }
    }

    fn add(&mut self, hash: u64) {
        let lowest = self.count(hash);
        let line = self.line(hash);
        // No branch: it would wait for the line, which is not in the caches.
        let raised = (lowest + 1).min(COUNT_MAX);
        for at in positions(hash) {
            // Only the lowest: the others are too high already, by others' wants.
            self.counts[line][at] = self.counts[line][at].max(raised);
        }
        assert!(0 < self.left, "counts are halved in time");
        self.left -= 1;
        if self.left == 0 {
            self.left = self.period;
            for count in self.counts.as_flattened_mut() {
                *count /= 2;
            }
        }
    }

    fn count(&self, hash: u64) -> u8 {
        let line = &self.counts[self.line(hash)];
        positions(hash).map(|at| line[at]).into_iter().fold(COUNT_MAX, u8::min)
    }

    fn line(&self, hash: u64) -> usize {
        index(hash >> 24, self.counts.len())
    }
}

/// Four places in a line, each in a quarter of its own.
fn positions(hash: u64) -> [usize; 4] {
    [0, 1, 2, 3].map(|quarter| quarter * 16 + index(hash >> (quarter * 4), 16))
}

/// `hash` modulo `len`, a power of two.
fn index(hash: u64, len: usize) -> usize {
    usize::try_from(hash & (u64::try_from(len).expect("a length") - 1)).expect("below a length")
}

/// An object's id is uniform already; what remains is to mix in the block.
fn hash(name: &BlockName) -> u64 {
    let (head, _) = name.object.0.split_first_chunk().expect("an id has 32 bytes");
    mix(u64::from_le_bytes(*head) ^ name.block.wrapping_mul(GOLDEN))
}

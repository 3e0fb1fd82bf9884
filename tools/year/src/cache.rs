//! Caches that fill on demand: LRU, and S3-FIFO as it was published ("FIFO queues are all you need
//! for cache eviction", SOSP 2023). What they keep has a number, and a length that the caller says.

use std::collections::VecDeque;

use model::number::index;

/// A cache that takes whatever it is asked for.
pub(crate) trait OnDemand {
    /// With so much room, for entries with numbers below `numbers`.
    fn new(room: u64, numbers: usize) -> Self;
    /// True if it has the entry; else it has it from now on. `lens` is of all entries.
    fn ask(&mut self, entry: u32, lens: &Lens<'_>) -> bool;
}

/// Lengths of entries: a quarter of an item's each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lens<'a>(pub(crate) &'a [u64]);

impl Lens<'_> {
    pub(crate) fn of(self, entry: u32) -> u64 {
        self.0[index(entry >> 2)] >> 2
    }
}

const NONE: u32 = u32::MAX;

/// Least recently used goes first.
#[derive(Debug)]
pub(crate) struct Lru {
    room: u64,
    /// Invariant: used <= room, and the sum of what is linked.
    used: u64,
    /// Of each entry the one used after it and the one before; itself twice if it is not there.
    links: Vec<[u32; 2]>,
    newest: u32,
    oldest: u32,
}

const NEWER: usize = 0;
const OLDER: usize = 1;

impl Lru {
    fn unlink(&mut self, entry: u32) {
        let [newer, older] = self.links[index(entry)];
        if newer == NONE {
            self.newest = older;
        } else {
            self.links[index(newer)][OLDER] = older;
        }
        if older == NONE {
            self.oldest = newer;
        } else {
            self.links[index(older)][NEWER] = newer;
        }
    }

    fn link(&mut self, entry: u32) {
        self.links[index(entry)] = [NONE, self.newest];
        if self.newest == NONE {
            self.oldest = entry;
        } else {
            self.links[index(self.newest)][NEWER] = entry;
        }
        self.newest = entry;
    }
}

impl OnDemand for Lru {
    fn new(room: u64, numbers: usize) -> Self {
        let numbers = u32::try_from(numbers).unwrap_or(NONE);
        let links = (0..numbers).map(|entry| [entry, entry]).collect();
        Self { room, used: 0, links, newest: NONE, oldest: NONE }
    }

    fn ask(&mut self, entry: u32, lens: &Lens<'_>) -> bool {
        let is_there = self.links[index(entry)] != [entry, entry];
        if is_there {
            if self.newest != entry {
                self.unlink(entry);
                self.link(entry);
            }
            return true;
        }
        let len = lens.of(entry);
        if self.room < len {
            return false;
        }
        while self.room < self.used + len {
            let gone = self.oldest;
            self.unlink(gone);
            self.links[index(gone)] = [gone, gone];
            self.used -= lens.of(gone);
        }
        self.used += len;
        self.link(entry);
        false
    }
}

/// Three queues: one for newcomers, one for who was asked for again, and names of who left.
#[derive(Debug)]
pub(crate) struct S3Fifo {
    room: u64,
    small_used: u64,
    main_used: u64,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// With the number that an entry had when it became a ghost: an older one does not count.
    ghosts: VecDeque<(u32, u32)>,
    ghost_count: usize,
    /// Where each entry is, and how often it was asked for since.
    states: Vec<State>,
    /// Of each ghost, the number that counts.
    stamps: Vec<u32>,
    next_stamp: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Away,
    Small(u8),
    Main(u8),
    Ghost,
}

/// Two bits.
const ASKED_MOST: u8 = 3;
/// Of the room, the part of the small queue.
const SMALL_PART: u64 = 10;

impl S3Fifo {
    fn make_room(&mut self, lens: &Lens<'_>) {
        if self.room / SMALL_PART <= self.small_used || self.main.is_empty() {
            self.evict_small(lens);
        } else {
            self.evict_main(lens);
        }
    }

    fn evict_small(&mut self, lens: &Lens<'_>) {
        while let Some(entry) = self.small.pop_front() {
            let len = lens.of(entry);
            self.small_used -= len;
            if let State::Small(2..) = self.states[index(entry)] {
                self.states[index(entry)] = State::Main(0);
                self.main_used += len;
                self.main.push_back(entry);
                continue;
            }
            self.states[index(entry)] = State::Ghost;
            self.next_stamp += 1;
            self.stamps[index(entry)] = self.next_stamp;
            self.ghosts.push_back((entry, self.next_stamp));
            self.ghost_count += 1;
            self.forget();
            return;
        }
    }

    fn evict_main(&mut self, lens: &Lens<'_>) {
        while let Some(entry) = self.main.pop_front() {
            if let State::Main(asked @ 1..) = self.states[index(entry)] {
                self.states[index(entry)] = State::Main(asked - 1);
                self.main.push_back(entry);
                continue;
            }
            self.states[index(entry)] = State::Away;
            self.main_used -= lens.of(entry);
            return;
        }
    }

    /// As many ghosts as there are entries in the main queue, and one.
    fn forget(&mut self) {
        while self.main.len() < self.ghost_count {
            let Some((entry, stamp)) = self.ghosts.pop_front() else { return };
            let at = index(entry);
            if self.states[at] == State::Ghost && self.stamps[at] == stamp {
                self.states[at] = State::Away;
                self.ghost_count -= 1;
            }
        }
    }
}

impl OnDemand for S3Fifo {
    fn new(room: u64, numbers: usize) -> Self {
        Self {
            room,
            small_used: 0,
            main_used: 0,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            ghost_count: 0,
            states: vec![State::Away; numbers],
            stamps: vec![0; numbers],
            next_stamp: 0,
        }
    }

    fn ask(&mut self, entry: u32, lens: &Lens<'_>) -> bool {
        let at = index(entry);
        match &mut self.states[at] {
            State::Small(asked) | State::Main(asked) => {
                *asked = ASKED_MOST.min(*asked + 1);
                return true;
            }
            State::Away | State::Ghost => {}
        }
        let len = lens.of(entry);
        if self.room < len {
            return false;
        }
        while self.room < self.small_used + self.main_used + len {
            self.make_room(lens);
        }
        if self.states[at] == State::Ghost {
            self.ghost_count -= 1;
            self.states[at] = State::Main(0);
            self.main_used += len;
            self.main.push_back(entry);
        } else {
            self.states[at] = State::Small(0);
            self.small_used += len;
            self.small.push_back(entry);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{Alias, Draw};

    fn hits<C: OnDemand>(room: u64, asked: &[u32]) -> Vec<bool> {
        let lens = [4_000_000; 100];
        let mut cache = C::new(room * 1_000_000, 400);
        asked.iter().map(|entry| cache.ask(*entry, &Lens(&lens))).collect()
    }

    #[test]
    fn of_an_lru_who_was_used_longest_ago_goes() {
        let asked = [1, 2, 3, 1, 4, 2, 1, 3];
        //           -  -  -  +  2   3  +  4
        let expected = [false, false, false, true, false, false, true, false];
        assert_eq!(hits::<Lru>(3, &asked), expected);
    }

    #[test]
    fn who_comes_once_does_not_drive_out_the_main_queue_of_s3fifo() {
        // Four that are asked for again and again, and a scan of many between.
        let mut asked: Vec<u32> = [0, 1, 2, 3].repeat(4);
        for scanned in 10..200 {
            asked.push(scanned);
            if scanned % 5 == 0 {
                asked.extend([0, 1, 2, 3]);
            }
        }
        let misses = |hits: Vec<bool>| hits.iter().filter(|hit| !**hit).count();
        assert_eq!(misses(hits::<S3Fifo>(8, &asked)), 194, "the scan, and the four once");
        assert!(300 < misses(hits::<Lru>(8, &asked)), "which an LRU loses each time");
    }

    #[test]
    fn a_ghost_that_is_asked_for_again_is_taken_into_the_main_queue() {
        let lens = [4_000_000; 100];
        let mut cache = S3Fifo::new(10_000_000, 400);
        let ask = |cache: &mut S3Fifo, entry| cache.ask(entry, &Lens(&lens));
        // Ten in the main queue, so that there may be ghosts.
        for entry in (0..10).chain(0..10).chain(0..10) {
            ask(&mut cache, entry);
        }
        for entry in 20..28 {
            ask(&mut cache, entry);
        }
        let ghost = (20..28).find(|of| cache.states[index(*of)] == State::Ghost).unwrap();
        assert!(!ask(&mut cache, ghost), "its bytes are gone");
        assert_eq!(cache.states[index(ghost)], State::Main(0));
    }

    #[test]
    fn what_is_used_is_what_is_there_and_fits() {
        let mut draw = Draw::of(3, "test", 0);
        let lens: Vec<u64> = (0..100).map(|_| 4 * u64::from(1 + draw.below(50))).collect();
        let weights: Vec<f64> = (1..=400_u32).map(|rank| 1.0 / f64::from(rank)).collect();
        let (alias, of) = (Alias::of(&weights), Lens(&lens));
        let (mut lru, mut fifo) = (Lru::new(900, 400), S3Fifo::new(900, 400));
        let mut hits = [0_u32; 2];
        for _ in 0..20_000 {
            let entry = alias.draw(&mut draw);
            hits[0] += u32::from(lru.ask(entry, &of));
            hits[1] += u32::from(fifo.ask(entry, &of));
            assert!(lru.used <= 900 && fifo.small_used + fifo.main_used <= 900);
        }
        let entries = 0..400_u32;
        let there = entries.clone().filter(|n| lru.links[index(*n)] != [*n, *n]);
        assert_eq!(there.map(|entry| of.of(entry)).sum::<u64>(), lru.used);
        let main = |n: &u32| matches!(fifo.states[index(*n)], State::Main(_));
        assert_eq!(entries.filter(main).map(|n| of.of(n)).sum::<u64>(), fifo.main_used);
        assert!(hits[0] < hits[1], "S3-FIFO is the better one on Zipf: {hits:?}");
    }
}

//! Where a file system puts files on a drive, and what it writes for itself.
//!
//! ```text
//! group 0                     group 1              ...  a journal, written round and round,
//! [own][file ][free][file..]  [own][free][file...]      stands in the middle group
//! ```
//!
//! After ext4 and XFS, as far as it matters to the drive below: space is in groups; room is taken
//! from the group that is asked for, there the smallest free run that is long enough, else from the
//! groups after it, else in pieces, the largest first. What changes names or runs is written twice:
//! to the journal at each commit, and later at its place in its group. These writes are of
//! `SMALL_LEN`; so many of them as fill a page of the drive are one page here, as in a drive that
//! gathers them in its buffer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::units::Bytes;

/// Neighbouring pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub first: u32,
    /// How many, not 0.
    pub pages: u32,
}

/// What the file system does to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Writes pages.
    Write(Run),
    /// Says that pages are not needed any more.
    Trim(Run),
}

/// How it is made and mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    pub pages: u32,
    pub group_pages: u32,
    /// Of these, its own: bitmaps and inodes.
    pub own_pages: u32,
    pub journal_pages: u32,
    pub page_len: Bytes,
    /// Pages of files that go are trimmed.
    pub trim: bool,
}

/// One block of the file system.
const SMALL_LEN: Bytes = Bytes::kib(4);
/// A transaction's first and last block.
const TRANSACTION: u32 = 2;

/// A mounted file system. It knows runs, not names.
#[derive(Clone, Debug)]
pub struct Filesystem {
    mount: Mount,
    /// Length by first page. Invariant: none touch, and none crosses into another group.
    free: BTreeMap<u32, u32>,
    free_pages: u32,
    journal: Run,
    /// Small blocks written to the journal so far.
    journal_at: u64,
    /// Groups changed since the last commit.
    touched: BTreeSet<u32>,
    /// Small blocks that wait to fill a page.
    own_blocks: u32,
    ios: VecDeque<Io>,
}

impl Filesystem {
    pub fn new(mount: Mount) -> Self {
        assert!(mount.own_pages + mount.journal_pages < mount.group_pages, "room for files");
        let groups = mount.pages.div_ceil(mount.group_pages);
        let middle = groups / 2;
        let mut free = BTreeMap::new();
        let mut journal = Run { first: 0, pages: mount.journal_pages };
        for group in 0..groups {
            let end = ((group + 1) * mount.group_pages).min(mount.pages);
            let mut first = group * mount.group_pages + mount.own_pages;
            if group == middle {
                journal.first = first;
                first += mount.journal_pages;
            }
            if first < end {
                free.insert(first, end - first);
            }
        }
        let free_pages = free.values().sum();
        let (touched, ios) = (BTreeSet::new(), VecDeque::new());
        Self { mount, free, free_pages, journal, journal_at: 0, touched, own_blocks: 0, ios }
    }

    pub fn groups(&self) -> u32 {
        self.mount.pages.div_ceil(self.mount.group_pages)
    }

    /// Pages that files may take.
    pub fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// The longest free run.
    pub fn largest_free(&self) -> u32 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// What there is to be done to the drive, in order.
    pub fn poll(&mut self) -> Option<Io> {
        self.ios.pop_front()
    }

    /// Writes pages of a file.
    pub fn write(&mut self, run: Run) {
        self.ios.push_back(Io::Write(run));
    }

    /// Room for a file, or a piece of one, in as few runs as there are; none if it is full.
    ///
    /// It begins at page `after` where that is free: a file that grows.
    pub fn allocate(&mut self, group: u32, after: Option<u32>, pages: u32) -> Option<Vec<Run>> {
        if self.free_pages < pages {
            return None;
        }
        let mut runs = Vec::new();
        let mut left = pages;
        if let Some(len) = after.and_then(|page| self.free.get(&page)).copied() {
            let first = after.unwrap_or(0);
            let run = Run { first, pages: len.min(left) };
            self.take(first, run);
            left -= run.pages;
            runs.push(run);
        }
        while 0 < left {
            let found = self.best(group, left).or_else(|| self.largest());
            let (first, len) = found.expect("as many pages are free as the count says");
            let run = Run { first, pages: len.min(left) };
            self.take(first, run);
            left -= run.pages;
            runs.push(run);
        }
        for run in &runs {
            self.touched.insert(run.first / self.mount.group_pages);
        }
        Some(runs)
    }

    /// A file goes.
    pub fn free(&mut self, runs: &[Run]) {
        for run in runs {
            self.touched.insert(run.first / self.mount.group_pages);
            if self.mount.trim {
                self.ios.push_back(Io::Trim(*run));
            }
            self.give_back(*run);
        }
    }

    /// A name or a length changed in a group: there is something to commit.
    pub fn touch(&mut self, group: u32) {
        self.touched.insert(group);
    }

    /// What changed reaches the journal, and later its place.
    pub fn commit(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        if touched.is_empty() {
            return;
        }
        let per_page = self.mount.page_len.0 / SMALL_LEN.0;
        let blocks = u64::from(crate::count(touched.len()) + TRANSACTION);
        let (from, to) = (self.journal_at / per_page, (self.journal_at + blocks) / per_page);
        self.journal_at += blocks;
        for page in from..to {
            let page = page % u64::from(self.journal.pages);
            let first = self.journal.first + u32::try_from(page).unwrap_or(0);
            self.ios.push_back(Io::Write(Run { first, pages: 1 }));
        }
        for group in touched {
            self.own_blocks += 1;
            if per_page <= u64::from(self.own_blocks) {
                self.own_blocks = 0;
                // Any of its pages: which of them says the number of the transaction.
                let own = u32::try_from(self.journal_at % u64::from(self.mount.own_pages));
                let first = group * self.mount.group_pages + own.unwrap_or(0);
                self.ios.push_back(Io::Write(Run { first, pages: 1 }));
            }
        }
    }

    /// The smallest free run of a group that is long enough, or of the groups after it.
    fn best(&self, group: u32, pages: u32) -> Option<(u32, u32)> {
        let groups = self.groups();
        (0..groups).find_map(|step| {
            let group = (group + step) % groups;
            let from = group * self.mount.group_pages;
            let runs = self.free.range(from..from + self.mount.group_pages);
            let fits = runs.filter(|(_, len)| pages <= **len);
            fits.min_by_key(|(first, len)| (**len, **first)).map(|(first, len)| (*first, *len))
        })
    }

    fn largest(&self) -> Option<(u32, u32)> {
        self.free.iter().max_by_key(|(_, len)| **len).map(|(first, len)| (*first, *len))
    }

    /// Takes the front of the free run that begins at `first`.
    fn take(&mut self, first: u32, run: Run) {
        let len = self.free.remove(&first).expect("found among the free runs");
        if run.pages < len {
            self.free.insert(first + run.pages, len - run.pages);
        }
        self.free_pages -= run.pages;
    }

    fn give_back(&mut self, run: Run) {
        let (mut first, mut pages) = (run.first, run.pages);
        self.free_pages += pages;
        let same_group =
            |page: u32| page / self.mount.group_pages == first / self.mount.group_pages;
        let before = self.free.range(..first).next_back().map(|(first, len)| (*first, *len));
        if let Some((page, len)) = before.filter(|(page, _)| same_group(*page)) {
            assert!(page + len <= first, "what is given back was taken");
            if page + len == first {
                self.free.remove(&page);
                (first, pages) = (page, pages + len);
            }
        }
        let next = run.first + run.pages;
        if let Some(len) = self.free.get(&next).copied()
            && next / self.mount.group_pages == first / self.mount.group_pages
        {
            self.free.remove(&next);
            pages += len;
        }
        self.free.insert(first, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const MOUNT: Mount = Mount {
        pages: 400,
        group_pages: 100,
        own_pages: 2,
        journal_pages: 10,
        page_len: Bytes::kib(16),
        trim: true,
    };

    fn all(system: &mut Filesystem) -> Vec<Io> {
        std::iter::from_fn(|| system.poll()).collect()
    }

    fn run(first: u32, pages: u32) -> Run {
        Run { first, pages }
    }

    #[test]
    fn room_is_the_smallest_that_fits_in_the_group_asked_for() {
        let mut system = Filesystem::new(MOUNT);
        assert_eq!((system.groups(), system.free_pages()), (4, 382));
        let whole = system.allocate(1, None, 98).unwrap();
        assert_eq!(whole, [run(102, 98)]);
        system.free(&[run(110, 20), run(150, 10)]);
        assert_eq!(system.allocate(1, None, 9), Some(vec![run(150, 9)]), "of 20 and 10, the 10");
        assert_eq!(system.allocate(1, None, 21), Some(vec![run(212, 21)]), "the next group");
        assert_eq!(system.allocate(0, Some(110), 5), Some(vec![run(110, 5)]), "a file grows");
        assert_eq!(system.allocate(0, None, 400), None, "more than there is");
    }

    #[test]
    fn what_fits_nowhere_whole_is_taken_in_pieces_the_largest_first() {
        let mut system = Filesystem::new(MOUNT);
        let runs = system.allocate(0, None, 150).unwrap();
        assert_eq!(runs.len(), 2);
        assert_eq!(runs.iter().map(|run| run.pages).sum::<u32>(), 150);
        system.free(&runs);
        assert_eq!((system.free_pages(), system.largest_free()), (382, 98), "runs grow together");
    }

    #[test]
    fn commits_go_to_the_journal_round_and_round_and_to_their_groups() {
        let mut system = Filesystem::new(MOUNT);
        system.commit();
        assert_eq!(all(&mut system), [], "nothing changed");
        let mut pages = Vec::new();
        for _ in 0..100 {
            let runs = system.allocate(0, None, 1).unwrap();
            system.free(&runs);
            system.commit();
            pages.extend(all(&mut system));
        }
        let trims = pages.iter().filter(|io| matches!(io, Io::Trim(_))).count();
        let journal = |io: &&Io| matches!(io, Io::Write(run) if (202..212).contains(&run.first));
        let own = |io: &&Io| matches!(io, Io::Write(run) if run.first < 2);
        // 3 blocks of 4 KiB in the journal, 1 in the group, 4 of them a page.
        assert_eq!((trims, pages.iter().filter(journal).count()), (100, 75));
        assert_eq!(pages.iter().filter(own).count(), 25);
        assert_eq!(pages.len(), 200);
    }

    #[test]
    fn no_page_is_given_out_twice_whatever_comes() {
        for seed in 1..40 {
            let mut rng = Rng::new(seed);
            let mut system = Filesystem::new(Mount { trim: false, ..MOUNT });
            let all_free = system.free_pages();
            let mut taken = [false; 400];
            let mut files: Vec<Vec<Run>> = Vec::new();
            let mark = |taken: &mut [bool; 400], runs: &[Run], to: bool| {
                for page in runs.iter().flat_map(|run| run.first..run.first + run.pages) {
                    assert_ne!(taken[crate::at(page)], to, "page {page}, seed {seed}");
                    taken[crate::at(page)] = to;
                }
            };
            for _ in 0..300 {
                if rng.below(3) == 0 && !files.is_empty() {
                    let gone = files.swap_remove(crate::at(rng.below(crate::count(files.len()))));
                    mark(&mut taken, &gone, false);
                    system.free(&gone);
                } else if let Some(runs) =
                    system.allocate(rng.below(4), Some(rng.below(400)), 1 + rng.below(60))
                {
                    mark(&mut taken, &runs, true);
                    files.push(runs);
                }
            }
            let used = crate::count(taken.iter().filter(|taken| **taken).count());
            assert_eq!(system.free_pages() + used, all_free);
            files.iter().for_each(|runs| system.free(runs));
            assert_eq!((system.free_pages(), system.largest_free()), (all_free, 98));
        }
    }
}

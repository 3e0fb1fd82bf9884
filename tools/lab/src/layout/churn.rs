//! A catalogue that comes and goes, and the files it is kept in.
//!
//! A title is five renditions, each twice the one before, in segments or, one title of three, in
//! one file each; its length is drawn from half a superblock to four. The drive is kept as full as
//! is said: for each title that comes others go, any of them, half of the times only a rendition.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use model::units::{Bytes, Nanos};
use ssd::{Filesystem, Io, Mount, Params, Rng, Run};

/// How objects become files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A file each, written as it comes, several titles at once: what a cache or a copy does.
    Naive,
    /// A file each, allocated whole, one title after the other, each flushed: ours before units.
    Files,
    /// Objects of a superblock or more a file each; smaller ones together in files of that size.
    Units,
    /// The same with four units open at once: a filler each.
    UnitsAtOnce,
}

impl Layout {
    pub(super) const ALL: [Self; 4] = [Self::Naive, Self::Files, Self::Units, Self::UnitsAtOnce];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Files => "files",
            Self::Units => "units",
            Self::UnitsAtOnce => "units_4_open",
        }
    }

    fn habits(self, params: &Params) -> Habits {
        let pages = |len: Bytes| u32::try_from(len.0 / params.page.0).unwrap_or(u32::MAX).max(1);
        let habits = Habits {
            titles: 1,
            files: 1,
            piece: pages(Bytes::kib(256)),
            whole: true,
            packed: true,
            commits: 4,
            commit_every: u32::MAX,
        };
        match self {
            // The kernel writes back at least 4 MiB of a file before it turns to the next, and
            // commits every five seconds: 100 MB of a fill of 20 MB/s.
            Self::Naive => Habits {
                titles: 8,
                piece: pages(Bytes::mib(4)),
                whole: false,
                packed: false,
                commits: 0,
                commit_every: pages(Bytes::mib(96)),
                ..habits
            },
            Self::Files => Habits { files: 4, packed: false, ..habits },
            Self::Units => habits,
            Self::UnitsAtOnce => Habits { files: 4, ..habits },
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Habits {
    /// Titles written at once.
    titles: usize,
    /// Files of each, at once.
    files: usize,
    /// Pages written before another file has a turn.
    piece: u32,
    /// Room for the whole file is taken at once, else for a piece at a time.
    whole: bool,
    packed: bool,
    /// Commits for a file that is complete: flush, rename, folders, log.
    commits: u32,
    /// And after so many pages.
    commit_every: u32,
}

#[derive(Clone, Debug)]
struct File {
    rendition: usize,
    pages: u32,
    runs: Vec<Run>,
}

#[derive(Clone, Debug, Default)]
struct Title {
    /// Those that are still to be written.
    todo: VecDeque<File>,
    writing: Vec<(File, u32)>,
    done: Vec<File>,
    turn: usize,
}

/// A drive's files, and what is done to them.
#[derive(Clone, Debug)]
pub(super) struct Churn {
    habits: Habits,
    system: Filesystem,
    /// For titles alone, so that they are the same in every layout.
    titles: Rng,
    /// For where they lie, and which of them go.
    rng: Rng,
    superblock: u32,
    group_pages: u32,
    /// Pages of files that are not exceeded.
    limit: u32,
    used: u32,
    open: Vec<Title>,
    turn: usize,
    held: Vec<Title>,
    since_commit: u32,
    /// Pages of objects written so far.
    pub(super) object_pages: u64,
    /// Files completed, and runs of them.
    pub(super) files: u64,
    pub(super) runs: u64,
}

/// Of a title, in 31sts.
const LADDER: [u32; 5] = [1, 2, 4, 8, 16];
const SEGMENTS: u32 = 64;
/// Superblocks of a group: ext4 lays the bitmaps of 2 GiB together.
const GROUP: u32 = 8;

impl Churn {
    pub(super) fn new(layout: Layout, params: &Params, full: u32, trim: bool, seed: u64) -> Self {
        let superblock = params.shape.superblock_pages();
        let group_pages = superblock * GROUP;
        let system = Filesystem::new(Mount {
            pages: params.shape.logical_pages,
            group_pages,
            own_pages: superblock / 64,
            journal_pages: superblock / 4,
            page_len: params.page,
            trim,
        });
        let limit = u64::from(system.free_pages()) * u64::from(full) / 100;
        Self {
            habits: layout.habits(params),
            system,
            titles: Rng::new(seed ^ 0x0001_a707),
            rng: Rng::new(seed ^ 0x00d1_5c05),
            superblock,
            group_pages,
            limit: u32::try_from(limit).unwrap_or(u32::MAX),
            used: 0,
            open: Vec::new(),
            turn: 0,
            held: Vec::new(),
            since_commit: 0,
            object_pages: 0,
            files: 0,
            runs: 0,
        }
    }

    /// Pages that files take when the drive is as full as it gets.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// What is done to the drive next; there is always something.
    pub(super) fn next(&mut self) -> Io {
        loop {
            if let Some(io) = self.system.poll() {
                return io;
            }
            self.step();
        }
    }

    /// Any page of a file that is complete; none if there is no file.
    pub(super) fn any_page(&self, rng: &mut Rng) -> Option<Run> {
        let title = draw(rng, &self.held)?;
        let file = draw(rng, &title.done)?;
        let run = draw(rng, &file.runs)?;
        let skip = rng.below(run.pages);
        Some(Run { first: run.first + skip, pages: run.pages - skip })
    }

    /// Pages of all files that are complete.
    #[cfg(test)]
    pub(super) fn pages(&self) -> impl Iterator<Item = u32> {
        let files = self.held.iter().flat_map(|title| &title.done);
        files.flat_map(|file| &file.runs).flat_map(|run| run.first..run.first + run.pages)
    }

    /// One piece of one file.
    fn step(&mut self) {
        while self.open.len() < self.habits.titles {
            let title = self.title();
            self.make_room(title.todo.iter().map(|file| file.pages).sum());
            self.used += title.todo.iter().map(|file| file.pages).sum::<u32>();
            self.open.push(title);
        }
        self.turn = (self.turn + 1) % self.open.len();
        let mut title = std::mem::take(&mut self.open[self.turn]);
        self.write(&mut title);
        if title.todo.is_empty() && title.writing.is_empty() {
            self.open.remove(self.turn);
            self.held.push(title);
        } else {
            self.open[self.turn] = title;
        }
    }

    fn write(&mut self, title: &mut Title) {
        while title.writing.len() < self.habits.files
            && let Some(mut file) = title.todo.pop_front()
        {
            if self.habits.whole {
                file.runs = self.room(None, file.pages);
            }
            title.writing.push((file, 0));
        }
        title.turn = (title.turn + 1) % title.writing.len();
        let (file, at) = &mut title.writing[title.turn];
        let pages = self.habits.piece.min(file.pages - *at);
        if !self.habits.whole {
            let after = file.runs.last().map(|run| run.first + run.pages);
            let more = self.room(after, pages);
            file.runs.extend(more);
        }
        for run in piece(&file.runs, *at, pages) {
            self.system.write(run);
        }
        *at += pages;
        self.object_pages += u64::from(pages);
        self.since_commit += pages;
        if *at == file.pages {
            let (file, _) = title.writing.remove(title.turn);
            title.turn = 0;
            self.files += 1;
            self.runs += Bytes::of(file.runs.len()).0;
            let group = file.runs.first().map_or(0, |run| run.first / self.group_pages);
            for _ in 0..self.habits.commits {
                self.system.touch(group);
                self.system.commit();
            }
            title.done.push(file);
        }
        if self.habits.commit_every <= self.since_commit {
            self.since_commit = 0;
            self.system.commit();
        }
    }

    /// Folders by the object's id spread objects over all groups; units follow each other.
    fn room(&mut self, after: Option<u32>, pages: u32) -> Vec<Run> {
        let group = if self.habits.packed { 0 } else { self.rng.below(self.system.groups()) };
        let runs = self.system.allocate(group, after, pages);
        runs.expect("room was made before")
    }

    fn make_room(&mut self, pages: u32) {
        while self.limit < self.used + pages {
            assert!(!self.held.is_empty(), "one title fits");
            let index = at(self.rng.below(count(self.held.len())));
            let one = self.rng.below(2) == 0;
            let title = &mut self.held[index];
            let left = renditions(&title.done);
            let rendition = draw(&mut self.rng, &left).copied().unwrap_or_default();
            let gone: Vec<File> =
                title.done.extract_if(.., |file| !one || file.rendition == rendition).collect();
            if title.done.is_empty() {
                self.held.swap_remove(index);
            }
            for file in &gone {
                self.used -= file.pages;
                self.system.free(&file.runs);
                if 0 < self.habits.commits {
                    self.system.commit();
                }
            }
        }
    }

    fn title(&mut self) -> Title {
        let octaves = self.titles.unit() * 3.0 - 1.0;
        let pages = floor(f64::from(self.superblock) * octaves.exp2());
        let segments = if self.titles.below(3) == 0 { 1 } else { SEGMENTS };
        let mut todo = VecDeque::new();
        for (rendition, share) in LADDER.iter().enumerate() {
            let len = (pages / 31 * share / segments).max(1);
            let mut file = |pages| todo.push_back(File { rendition, pages, runs: Vec::new() });
            // Its playlist and its beginning.
            let mut left = 1 + len * segments;
            if !self.habits.packed || self.superblock <= len {
                file(1);
                (0..segments).for_each(|_| file(len));
                continue;
            }
            while 0 < left {
                let unit = left.min(self.superblock);
                file(unit);
                left -= unit;
            }
        }
        Title { todo, ..Title::default() }
    }
}

fn renditions(files: &[File]) -> Vec<usize> {
    let found: BTreeSet<usize> = files.iter().map(|file| file.rendition).collect();
    found.into_iter().collect()
}

fn piece(runs: &[Run], from: u32, pages: u32) -> Vec<Run> {
    let (mut skip, mut left) = (from, pages);
    let mut found = Vec::new();
    for run in runs {
        let skipped = skip.min(run.pages);
        skip -= skipped;
        let take = (run.pages - skipped).min(left);
        if 0 < take {
            found.push(Run { first: run.first + skipped, pages: take });
            left -= take;
        }
    }
    found
}

fn draw<'a, T>(rng: &mut Rng, of: &'a [T]) -> Option<&'a T> {
    (!of.is_empty()).then(|| &of[at(rng.below(count(of.len())))])
}

pub(super) fn at(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Of numbers below 2^32.
fn floor(number: f64) -> u32 {
    let seconds = Nanos::from(Duration::from_secs_f64(number.max(0.0))).as_seconds();
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use ssd::Class;

    fn pages_of(title: &Title) -> u32 {
        let writing = title.writing.iter().map(|(file, _)| file);
        title.todo.iter().chain(writing).chain(&title.done).map(|file| file.pages).sum()
    }

    #[test]
    fn a_drive_is_as_full_as_was_said_whatever_the_layout() {
        for layout in Layout::ALL {
            let params = Class::SataTlc.params();
            let mut churn = Churn::new(layout, &params, 90, true, 1);
            let limit = u64::from(churn.limit());
            let mut drive = vec![false; at(params.shape.logical_pages)];
            let mut written = 0;
            while churn.object_pages < 2 * limit {
                let (run, is_write) = match churn.next() {
                    Io::Write(run) => (run, true),
                    Io::Trim(run) => (run, false),
                };
                written += if is_write { u64::from(run.pages) } else { 0 };
                drive[at(run.first)..at(run.first + run.pages)].fill(is_write);
                assert!(churn.used <= churn.limit);
            }
            let held: HashSet<u32> = churn.pages().collect();
            assert_eq!(held.len(), churn.pages().count(), "no page is in two files");
            // Titles that are being written have their room from the start.
            let coming: u32 = churn.open.iter().map(pages_of).sum();
            assert_eq!(count(held.len()) + coming, churn.used, "{layout:?}");
            // The last that went was of four superblocks at most, and a page for each file.
            let least = churn.limit - 4 * churn.superblock - 5 * (SEGMENTS + 1);
            assert!(least <= churn.used, "{layout:?}: {} of {least}", churn.used);
            // What else is on the drive: the journal, and what the file system has of its own.
            let on_drive = count(drive.iter().filter(|there| **there).count());
            let most = churn.used + churn.superblock;
            assert!(on_drive <= most, "{layout:?}: {on_drive} of {most}");
            // Of these at most a page is still to be told.
            assert!(churn.object_pages - 64 < written && written < churn.object_pages * 21 / 20);
        }
    }

    #[test]
    fn the_same_titles_come_in_every_layout() {
        let first = |layout| -> Vec<u32> {
            let mut churn = Churn::new(layout, &Class::SataTlc.params(), 95, true, 1);
            while churn.held.len() + churn.open.len() < 20 {
                churn.step();
            }
            let mut all: Vec<u32> = churn.held.iter().chain(&churn.open).map(pages_of).collect();
            all.sort_unstable();
            all
        };
        let naive = first(Layout::Naive);
        Layout::ALL.into_iter().for_each(|layout| assert_eq!(first(layout), naive, "{layout:?}"));
    }

    #[test]
    fn small_objects_are_in_units_no_longer_than_a_superblock() {
        let titles = |layout| -> Vec<Title> {
            let mut churn = Churn::new(layout, &Class::SataTlc.params(), 95, true, 1);
            (0..100).map(|_| churn.title()).collect()
        };
        let superblock = Class::SataTlc.params().shape.superblock_pages();
        let (packed, apart) = (titles(Layout::Units), titles(Layout::Naive));
        for (units, objects) in packed.iter().zip(&apart) {
            for rendition in 0..LADDER.len() {
                let of = |title: &Title| -> Vec<u32> {
                    let files = title.todo.iter().filter(|file| file.rendition == rendition);
                    files.map(|file| file.pages).collect()
                };
                let (units, objects) = (of(units), of(objects));
                let pages: u32 = objects.iter().sum();
                assert_eq!(units.iter().sum::<u32>(), pages, "the same objects");
                if superblock <= objects[1] {
                    assert_eq!(units, objects, "what is that long is a file of its own");
                } else {
                    assert_eq!(count(units.len()), pages.div_ceil(superblock));
                    assert!(units.iter().all(|unit| (1..=superblock).contains(unit)));
                }
            }
        }
    }
}

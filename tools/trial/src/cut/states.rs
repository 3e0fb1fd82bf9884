//! Which states a power cut may leave. The model, in full, is `docs/internals/crash.md`.
//!
//! ```text
//! names    create, rename, unlink: a journal. They reach the drive in order; a flush of a folder
//!          brings all up to the last that touches it. A cut keeps any number of the rest, in order
//! bytes    write, resize of one file: nothing orders them. A flush of the file brings all of them.
//!          A cut keeps any of the rest, each write sector by sector
//! ```

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use rig::client::Dice;
use rig::drive::{Change, FileId};

use super::image::Image;

/// Which flushes are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Ignore {
    /// All.
    #[default]
    None,
    /// Not those of objects' files.
    Files,
    /// Not those of folders.
    Folders,
    /// Not those of the index log.
    Log,
    /// None at all.
    All,
}

/// What became of what was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing of it is there.
    Lost,
    Kept,
    /// Names are there, bytes are not.
    NamesAlone,
    /// Bytes are there, names are not.
    BytesAlone,
    /// Some of it, in sectors of this size, by this seed.
    Torn {
        sector: u64,
        /// Another seed, another choice.
        seed: u64,
    },
}

/// The drive after some changes, with what may still be undone.
#[derive(Debug)]
pub(crate) struct States<'a> {
    changes: &'a [Change],
    ignore: Ignore,
    at: usize,
    base: &'a Image,
    /// Names that are on the drive whatever happens.
    names: BTreeMap<PathBuf, FileId>,
    /// Changes of names that may be undone from the end.
    pending_names: Vec<&'a Change>,
    files: BTreeMap<FileId, Content<'a>>,
    /// Files of the base, which had no number yet.
    of_base: BTreeMap<PathBuf, FileId>,
}

#[derive(Debug)]
struct Content<'a> {
    flushed: Arc<Vec<u8>>,
    /// How many of its changes are flushed.
    flushed_count: usize,
    pending: Vec<&'a Change>,
}

/// Files of the base get numbers from here on, far from those of FUSE.
const BASE_FILE: u64 = 1 << 40;

impl<'a> States<'a> {
    /// The drive before the first change.
    pub(crate) fn new(base: &'a Image, changes: &'a [Change], ignore: Ignore) -> Self {
        let mut states = Self {
            changes,
            ignore,
            at: 0,
            base,
            names: BTreeMap::new(),
            pending_names: Vec::new(),
            files: BTreeMap::new(),
            of_base: BTreeMap::new(),
        };
        for (number, (path, bytes)) in (BASE_FILE..).zip(&base.files) {
            let id = FileId(number);
            states.names.insert(path.clone(), id);
            states.of_base.insert(path.clone(), id);
            states.files.insert(id, Content::of(Arc::clone(bytes)));
        }
        states
    }

    /// After how many changes this is.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Goes on by one change; false at the end.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let Some(change) = self.changes.get(self.at) else { return Ok(false) };
        self.at += 1;
        match change {
            Change::Create { file, .. } => {
                self.files.insert(*file, Content::of(Arc::default()));
                self.pending_names.push(change);
            }
            Change::Rename { .. } | Change::Unlink { .. } => self.pending_names.push(change),
            Change::Write { file, path, .. } | Change::Resize { file, path, .. } => {
                self.content(*file, path)?.pending.push(change);
            }
            Change::FlushFile { file, path } => {
                let log = path.ends_with("index/log");
                let believed = match self.ignore {
                    Ignore::None | Ignore::Folders => true,
                    Ignore::Files => log,
                    Ignore::Log => !log,
                    Ignore::All => false,
                };
                if believed {
                    self.content(*file, path)?.flush();
                }
            }
            Change::FlushFolder { path } => {
                if !matches!(self.ignore, Ignore::Folders | Ignore::All) {
                    self.flush_names(path);
                }
            }
        }
        Ok(true)
    }

    /// The state of that shape, and a key: two states with one key are the same.
    pub(crate) fn state(&self, shape: Shape) -> (u64, Image) {
        let (image, key) = self.build(shape, true);
        (key, image.expect("asked for"))
    }

    pub(crate) fn key(&self, shape: Shape) -> u64 {
        self.build(shape, false).1
    }

    fn build(&self, shape: Shape, wanted: bool) -> (Option<Image>, u64) {
        let seed = if let Shape::Torn { seed, .. } = shape { seed } else { 0 };
        let mut dice = Dice::new(seed);
        let count = match shape {
            Shape::Lost | Shape::BytesAlone => 0,
            Shape::Kept | Shape::NamesAlone => self.pending_names.len(),
            Shape::Torn { .. } => {
                let most = u64::try_from(self.pending_names.len()).expect("a count fits") + 1;
                usize::try_from(dice.below(most)).expect("below a count")
            }
        };
        let mut names = self.names.clone();
        self.pending_names[..count].iter().for_each(|change| rename(&mut names, change));
        let mut key = DefaultHasher::new();
        let mut image =
            wanted.then(|| Image { folders: self.base.folders.clone(), files: BTreeMap::new() });
        for (path, id) in names {
            let content = &self.files[&id];
            (&path, id.0).hash(&mut key);
            let kept = content.choose(shape, &mut dice);
            content.hash_of(&kept, &mut key);
            if let Some(image) = &mut image {
                image.files.insert(path, content.with(&kept));
            }
        }
        (image, key.finish())
    }

    fn content(&mut self, file: FileId, path: &Path) -> Result<&mut Content<'a>> {
        if !self.files.contains_key(&file) {
            // Opened before recording began: known by name alone until now.
            let id = self.of_base.get(path).copied();
            let id = id.with_context(|| format!("{} was not there", path.display()))?;
            let content = self.files.remove(&id).context("a file has two numbers")?;
            self.files.insert(file, content);
            self.of_base.remove(path);
            self.names.values_mut().filter(|named| **named == id).for_each(|named| *named = file);
        }
        Ok(self.files.get_mut(&file).expect("looked at above"))
    }

    fn flush_names(&mut self, folder: &Path) {
        let touches = |change: &&Change| match change {
            Change::Create { path, .. } | Change::Unlink { path } => path.parent() == Some(folder),
            Change::Rename { from, to } => {
                from.parent() == Some(folder) || to.parent() == Some(folder)
            }
            Change::Write { .. }
            | Change::Resize { .. }
            | Change::FlushFile { .. }
            | Change::FlushFolder { .. } => unreachable!("not a change of names"),
        };
        let last = self.pending_names.iter().rposition(touches);
        for change in self.pending_names.drain(..last.map_or(0, |last| last + 1)) {
            rename(&mut self.names, change);
        }
    }
}

fn rename(names: &mut BTreeMap<PathBuf, FileId>, change: &Change) {
    match change {
        Change::Create { file, path } => {
            names.insert(path.clone(), *file);
        }
        Change::Rename { from, to } => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        Change::Unlink { path } => {
            names.remove(path);
        }
        Change::Write { .. }
        | Change::Resize { .. }
        | Change::FlushFile { .. }
        | Change::FlushFolder { .. } => unreachable!("not a change of names"),
    }
}

/// What of a pending change is kept: the bytes of a write, or whether a resize is.
type Kept = Vec<Range<usize>>;

impl Content<'_> {
    fn of(flushed: Arc<Vec<u8>>) -> Self {
        Self { flushed, flushed_count: 0, pending: Vec::new() }
    }

    fn flush(&mut self) {
        let all: Vec<Kept> = self.pending.iter().map(|change| whole(change)).collect();
        self.flushed = self.with(&all);
        self.flushed_count += self.pending.len();
        self.pending.clear();
    }

    fn choose(&self, shape: Shape, dice: &mut Dice) -> Vec<Kept> {
        let choose = |change: &&Change| match shape {
            Shape::Lost | Shape::NamesAlone => Kept::new(),
            Shape::Kept | Shape::BytesAlone => whole(change),
            Shape::Torn { sector, .. } => torn(change, sector, dice),
        };
        self.pending.iter().map(choose).collect()
    }

    /// The flushed bytes and what is kept of the rest.
    fn with(&self, kept: &[Kept]) -> Arc<Vec<u8>> {
        if kept.iter().all(Vec::is_empty) {
            return Arc::clone(&self.flushed);
        }
        let mut bytes = (*self.flushed).clone();
        for (change, kept) in self.pending.iter().zip(kept) {
            if let Change::Write { at, bytes: written, .. } = change {
                let at = usize::try_from(*at).expect("drives here are small");
                for range in kept {
                    let (from, to) = (at + range.start, at + range.end);
                    bytes.resize(bytes.len().max(to), 0);
                    bytes[from..to].copy_from_slice(&written[range.clone()]);
                }
            } else if let Change::Resize { len, .. } = change
                && !kept.is_empty()
            {
                bytes.resize(usize::try_from(*len).expect("drives here are small"), 0);
            }
        }
        Arc::new(bytes)
    }

    /// The same for the same bytes: what is kept whole from the beginning counts as flushed.
    fn hash_of(&self, kept: &[Kept], key: &mut DefaultHasher) {
        let is_whole = |(change, kept): &(&&Change, &Kept)| **kept == whole(change);
        let prefix = self.pending.iter().zip(kept).take_while(is_whole).count();
        (self.flushed_count + prefix).hash(key);
        for (number, ranges) in (0..).zip(kept).skip(prefix).filter(|(_, kept)| !kept.is_empty()) {
            (self.flushed_count + number).hash(key);
            for range in ranges {
                (range.start, range.end).hash(key);
            }
        }
    }
}

#[expect(clippy::single_range_in_vec_init, reason = "one range of many that may be kept")]
fn whole(change: &Change) -> Kept {
    if let Change::Write { bytes, .. } = change { vec![0..bytes.len()] } else { vec![0..1] }
}

/// Each sector is there or not; a resize is there or not.
fn torn(change: &Change, sector: u64, dice: &mut Dice) -> Kept {
    let Change::Write { at, bytes, .. } = change else {
        return if dice.below(2) == 0 { Kept::new() } else { whole(change) };
    };
    let sector = usize::try_from(sector).expect("a sector is small");
    let lead = usize::try_from(*at).expect("drives here are small") % sector;
    let mut kept = Kept::new();
    let mut start = 0;
    while start < bytes.len() {
        let end = bytes.len().min((start + lead) / sector * sector + sector - lead);
        if dice.below(2) == 0 {
            match kept.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => kept.push(start..end),
            }
        }
        start = end;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(7);

    fn path(text: &str) -> PathBuf {
        PathBuf::from(text)
    }

    /// One object published as the store does it, and a log that had a record before.
    fn changes() -> Vec<Change> {
        let log = FileId(8);
        vec![
            Change::Create { file: A, path: path("fill/a") },
            Change::Write { file: A, path: path("fill/a"), at: 0, bytes: vec![1; 8192] },
            Change::FlushFile { file: A, path: path("fill/a") },
            Change::Rename { from: path("fill/a"), to: path("objects/a") },
            Change::FlushFolder { path: path("objects") },
            Change::Write { file: log, path: path("index/log"), at: 2, bytes: vec![3; 2] },
            Change::FlushFile { file: log, path: path("index/log") },
        ]
    }

    fn base() -> Image {
        let files = [(path("index/log"), Arc::new(vec![9, 9]))].into();
        Image { folders: [path("fill"), path("objects"), path("index")].into(), files }
    }

    /// Names and lengths of the files after `at` changes.
    fn check(at: usize, ignore: Ignore, shape: Shape, wanted: &[(&str, usize)]) {
        let (base, changes) = (base(), changes());
        let mut states = States::new(&base, &changes, ignore);
        (0..at).for_each(|_| assert!(states.advance().unwrap()));
        let (key, image) = states.state(shape);
        let found: Vec<(&str, usize)> =
            image.files.iter().map(|(p, bytes)| (p.to_str().unwrap(), bytes.len())).collect();
        assert_eq!(found, wanted, "after {at}, {ignore:?}, {shape:?}");
        assert_eq!(key, states.key(shape));
    }

    #[test]
    fn what_is_not_flushed_may_be_lost_and_what_is_stays() {
        check(2, Ignore::None, Shape::Lost, &[("index/log", 2)]);
        check(2, Ignore::None, Shape::Kept, &[("fill/a", 8192), ("index/log", 2)]);
        check(2, Ignore::None, Shape::NamesAlone, &[("fill/a", 0), ("index/log", 2)]);
        check(3, Ignore::None, Shape::NamesAlone, &[("fill/a", 8192), ("index/log", 2)]);
        check(4, Ignore::None, Shape::BytesAlone, &[("index/log", 2)]);
        check(5, Ignore::None, Shape::Lost, &[("index/log", 2), ("objects/a", 8192)]);
        check(6, Ignore::None, Shape::Lost, &[("index/log", 2), ("objects/a", 8192)]);
        check(7, Ignore::None, Shape::Lost, &[("index/log", 4), ("objects/a", 8192)]);
    }

    #[test]
    fn a_flush_that_is_not_believed_brings_nothing() {
        check(7, Ignore::All, Shape::Lost, &[("index/log", 2)]);
        check(7, Ignore::Files, Shape::Lost, &[("index/log", 4), ("objects/a", 0)]);
        check(7, Ignore::Folders, Shape::Lost, &[("index/log", 4)]);
        check(7, Ignore::Log, Shape::Lost, &[("index/log", 2), ("objects/a", 8192)]);
    }

    #[test]
    fn states_with_the_same_bytes_have_the_same_key() {
        let (base, changes) = (base(), changes());
        let mut states = States::new(&base, &changes, Ignore::None);
        let mut keys = Vec::new();
        while states.advance().unwrap() {
            keys.push((states.key(Shape::Kept), states.key(Shape::Lost)));
        }
        let (kept, lost): (Vec<u64>, Vec<u64>) = keys.into_iter().unzip();
        assert_eq!(kept[1], kept[2], "a flush changes nothing that is there");
        assert_eq!((lost[0], lost[2]), (lost[1], lost[3]), "nothing was flushed between");
        assert_eq!(kept[6], lost[6], "all is flushed");
        let different: std::collections::BTreeSet<u64> = kept.into_iter().collect();
        assert_eq!(different.len(), 4, "create, write, rename, log");
    }

    #[test]
    fn a_torn_write_keeps_whole_sectors() {
        let bytes = (0..3000u32).map(|i| u8::try_from(i / 512 + 1).unwrap()).collect();
        let write = Change::Write { file: A, path: path("x"), at: 100, bytes };
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..20 {
            let kept = torn(&write, 512, &mut Dice::new(seed));
            for range in &kept {
                assert!(range.start == 0 || (range.start + 100).is_multiple_of(512), "{range:?}");
                assert!(range.end == 3000 || (range.end + 100).is_multiple_of(512), "{range:?}");
            }
            seen.insert(format!("{kept:?}"));
        }
        assert!(10 < seen.len(), "another seed, another choice");
    }
}

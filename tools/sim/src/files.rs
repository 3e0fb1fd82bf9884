//! A file system on a drive, and what of it a power cut leaves.
//!
//! The model is that of `./x lab cut` (docs/internals/crash.md): bytes of a file reach the drive
//! when the file is flushed, names when a folder is, in the order in which they were changed. What
//! was not flushed may be there or not, sector by sector.

use std::collections::{BTreeMap, BTreeSet};

use crate::stage::Stage;

/// A file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u64);

/// Smallest piece of a write that arrives whole or not at all.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// What was written since the last flush.
    dirty: Vec<(usize, usize)>,
    /// Bytes that rotted, and what they were.
    rotten: BTreeMap<usize, u8>,
    /// Those of them that were written so.
    miswritten: BTreeSet<usize>,
    unreadable: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, FileId),
    Unlink(String),
    Rename(String, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    All,
    Some,
}

/// Files, their names, and which of both are on the drive for sure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    contents: BTreeMap<FileId, Content>,
    names: BTreeMap<String, FileId>,
    durable_names: BTreeMap<String, FileId>,
    /// Changes of names that are not on the drive yet, in order.
    journal: Vec<Change>,
    last: u64,
}

impl Files {
    pub(crate) fn find(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    /// Makes an empty file.
    pub(crate) fn create(&mut self, name: &str) -> FileId {
        self.last += 1;
        let file = FileId(self.last);
        self.contents.insert(file, Content::default());
        self.change(Change::Link(name.to_owned(), file));
        file
    }

    /// Gives a file another name; false if there is none.
    pub(crate) fn rename(&mut self, from: &str, to: &str) -> bool {
        let known = self.names.contains_key(from);
        if known {
            self.change(Change::Rename(from.to_owned(), to.to_owned()));
        }
        known
    }

    /// Takes a name away; who has the file open reads on.
    pub(crate) fn unlink(&mut self, name: &str) {
        if self.names.contains_key(name) {
            self.change(Change::Unlink(name.to_owned()));
        }
    }

    /// Names directly below a folder.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        let first = format!("{folder}/");
        let names = self.names.range(first.clone()..).map(|(name, _)| name);
        let below = names.map_while(|name| name.strip_prefix(&first));
        below.filter(|rest| !rest.contains('/')).map(str::to_owned).collect()
    }

    pub(crate) fn len(&self, file: FileId) -> usize {
        self.contents.get(&file).map_or(0, |content| content.bytes.len())
    }

    /// Bytes of all files.
    pub(crate) fn used(&self) -> u64 {
        let lens = self.contents.values().map(|content| content.bytes.len());
        u64::try_from(lens.sum::<usize>()).unwrap_or(u64::MAX)
    }

    /// Cuts a file or makes it longer, with zeros.
    pub(crate) fn resize(&mut self, file: FileId, len: usize) {
        if let Some(content) = self.contents.get_mut(&file) {
            content.bytes.resize(len, 0);
            content.miswritten.retain(|at| *at < len);
        }
    }

    /// What is in a file; shorter where it ends.
    pub(crate) fn read(&self, file: FileId, from: usize, len: usize) -> &[u8] {
        let bytes = self.contents.get(&file).map_or(&[][..], |content| &content.bytes);
        let end = (from + len).min(bytes.len());
        bytes.get(from..end).unwrap_or_default()
    }

    /// True if reading it fails.
    pub(crate) fn is_unreadable(&self, file: FileId) -> bool {
        self.contents.get(&file).is_some_and(|content| content.unreadable)
    }

    pub(crate) fn write(&mut self, file: FileId, from: usize, bytes: &[u8]) {
        let Some(content) = self.contents.get_mut(&file) else { return };
        let end = from + bytes.len();
        if content.bytes.len() < end {
            content.bytes.resize(end, 0);
        }
        content.bytes[from..end].copy_from_slice(bytes);
        content.dirty.push((from, end));
        content.rotten.retain(|at, _| *at < from || end <= *at);
        content.miswritten.retain(|at| *at < from || end <= *at);
    }

    /// Brings a file's bytes and size to the drive.
    pub(crate) fn flush(&mut self, file: FileId) {
        let Some(content) = self.contents.get_mut(&file) else { return };
        content.durable.resize(content.bytes.len(), 0);
        for (from, end) in content.dirty.drain(..) {
            let end = end.min(content.bytes.len());
            if from < end {
                content.durable[from..end].copy_from_slice(&content.bytes[from..end]);
            }
        }
    }

    /// Brings names to the drive, up to the last change that touches this folder.
    pub(crate) fn sync_folder(&mut self, folder: &str) {
        let touches = |change: &Change| match change {
            Change::Link(name, _) | Change::Unlink(name) => is_in(name, folder),
            Change::Rename(from, to) => is_in(from, folder) || is_in(to, folder),
        };
        let count = self.journal.iter().rposition(touches).map_or(0, |last| last + 1);
        for change in self.journal.drain(..count) {
            apply(&mut self.durable_names, change);
        }
    }

    /// The power goes.
    pub(crate) fn cut(&mut self, stage: &Stage, names: Left, bytes: Left) {
        let kept = match names {
            Left::Nothing => 0,
            Left::All => self.journal.len(),
            Left::Some => index(stage.below(count(self.journal.len()) + 1)),
        };
        self.journal.truncate(kept);
        for change in std::mem::take(&mut self.journal) {
            apply(&mut self.durable_names, change);
        }
        self.names.clone_from(&self.durable_names);
        let named: Vec<FileId> = self.names.values().copied().collect();
        self.contents.retain(|file, _| named.contains(file));
        for content in self.contents.values_mut() {
            content.cut(stage, bytes);
        }
    }

    /// Forgets files that no name leads to, nor will after a power cut: nobody has them open.
    pub(crate) fn forget_nameless(&mut self) {
        let linked = self.journal.iter().filter_map(|change| match change {
            Change::Link(_, file) => Some(file),
            Change::Unlink(_) | Change::Rename(..) => None,
        });
        let named = self.names.values().chain(self.durable_names.values()).chain(linked);
        let named: Vec<FileId> = named.copied().collect();
        self.contents.retain(|file, _| named.contains(file));
    }

    /// What is on the drive for sure under a name.
    pub(crate) fn durable(&self, name: &str) -> Option<&[u8]> {
        let file = self.durable_names.get(name)?;
        self.contents.get(file).map(|content| &content.durable[..])
    }

    /// What a file held where it has rotted since.
    pub(crate) fn rotten(&self, file: FileId) -> Option<&BTreeMap<usize, u8>> {
        self.contents.get(&file).map(|content| &content.rotten)
    }

    /// A bit of a file flips, unnoticed.
    pub(crate) fn rot(&mut self, name: &str, at: usize, bit: u32) -> bool {
        self.find(name).is_some_and(|file| self.flip(file, at, bit))
    }

    /// A bit of what was just written is not as it was to be, and nothing says so.
    pub(crate) fn miswrite(&mut self, file: FileId, at: usize, bit: u32) {
        if self.flip(file, at, bit)
            && let Some(content) = self.contents.get_mut(&file)
        {
            content.miswritten.insert(at);
        }
    }

    /// Where a file was written wrong, and what was to be there.
    pub(crate) fn miswritten(&self, file: FileId) -> Vec<(usize, u8)> {
        let Some(content) = self.contents.get(&file) else { return Vec::new() };
        let of = |at: &usize| Some((*at, *content.rotten.get(at)?));
        content.miswritten.iter().filter_map(of).collect()
    }

    /// Another version writes over the end of a file, which is on the drive at once.
    pub(crate) fn replace_end(&mut self, file: FileId, end: &[u8]) {
        let Some(content) = self.contents.get_mut(&file) else { return };
        for bytes in [&mut content.bytes, &mut content.durable] {
            if let Some(at) = bytes.len().checked_sub(end.len()) {
                bytes[at..].copy_from_slice(end);
            }
        }
    }

    fn flip(&mut self, file: FileId, at: usize, bit: u32) -> bool {
        let Some(content) = self.contents.get_mut(&file) else { return false };
        let Some(byte) = content.bytes.get_mut(at) else { return false };
        content.rotten.entry(at).or_insert(*byte);
        *byte ^= 1 << bit;
        if let Some(durable) = content.durable.get_mut(at) {
            *durable = *byte;
        }
        true
    }

    /// Reads of a file fail from now on.
    pub(crate) fn spoil(&mut self, name: &str) {
        if let Some(content) = self.find(name).and_then(|file| self.contents.get_mut(&file)) {
            content.unreadable = true;
        }
    }

    fn change(&mut self, change: Change) {
        apply(&mut self.names, change.clone());
        self.journal.push(change);
    }
}

impl Content {
    fn cut(&mut self, stage: &Stage, left: Left) {
        let keeps = |stage: &Stage| match left {
            Left::Nothing => false,
            Left::All => true,
            Left::Some => stage.one_in(2),
        };
        if self.durable.len() != self.bytes.len() && keeps(stage) {
            self.durable.resize(self.bytes.len(), 0);
        }
        for (from, end) in std::mem::take(&mut self.dirty) {
            let end = end.min(self.durable.len()).min(self.bytes.len());
            // A write goes whole, or not at all, or in pieces.
            let whole = stage.one_in(2).then(|| keeps(stage));
            let mut at = from;
            while at < end {
                let next = ((at / SECTOR + 1) * SECTOR).min(end);
                if whole.unwrap_or_else(|| keeps(stage)) {
                    self.durable[at..next].copy_from_slice(&self.bytes[at..next]);
                }
                at = next;
            }
        }
        self.bytes.clone_from(&self.durable);
    }
}

fn apply(names: &mut BTreeMap<String, FileId>, change: Change) {
    match change {
        Change::Link(name, file) => {
            names.insert(name, file);
        }
        Change::Unlink(name) => {
            names.remove(&name);
        }
        Change::Rename(from, to) => {
            if let Some(file) = names.remove(&from) {
                names.insert(to, file);
            }
        }
    }
}

fn is_in(name: &str, folder: &str) -> bool {
    name.rsplit_once('/').map_or(".", |(of, _)| of) == folder
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

fn count(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file `d/a` of flushed ones, then written over with twos and renamed to `d/b`.
    fn written() -> Files {
        let mut files = Files::default();
        let file = files.create("d/a");
        files.write(file, 0, &[1; 4 * SECTOR]);
        files.flush(file);
        files.sync_folder("d");
        files.write(file, 0, &[2; 4 * SECTOR]);
        files.rename("d/a", "d/b");
        files
    }

    #[test]
    fn a_cut_leaves_what_was_flushed_and_any_of_the_rest_in_whole_sectors() {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let mut files = written();
            files.cut(&Stage::new(seed, false), Left::Some, Left::Some);
            let name = files.list("d").join(" ");
            let file = files.find(&format!("d/{name}")).unwrap();
            let bytes = files.read(file, 0, 4 * SECTOR);
            let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
            assert!(bytes.chunks(SECTOR).all(|sector| sector.iter().all(|b| *b == sector[0])));
            seen.insert((name, sectors));
        }
        assert_eq!(seen.len(), 32, "two names, and each of four sectors old or new");
    }

    #[test]
    fn a_file_that_was_unlinked_is_there_with_its_bytes_if_the_cut_undoes_that() {
        let mut came_back = 0;
        for seed in 0..20 {
            let mut files = Files::default();
            let file = files.create("d/a");
            files.write(file, 0, &[1; 9]);
            files.flush(file);
            files.unlink("d/a");
            files.forget_nameless();
            files.cut(&Stage::new(seed, false), Left::Some, Left::Nothing);
            if let Some(file) = files.find("d/a") {
                assert_eq!(files.read(file, 0, 9), [1; 9]);
                came_back += 1;
            }
        }
        assert!(0 < came_back && came_back < 20, "{came_back}");
    }

    #[test]
    fn what_was_flushed_survives_whatever_else_is_lost() {
        let stage = Stage::new(1, false);
        let mut files = written();
        files.sync_folder("d");
        files.cut(&stage, Left::Nothing, Left::Nothing);
        let file = files.find("d/b").unwrap();
        assert_eq!(files.read(file, 0, 9), [1; 9]);
        files.write(file, 3, &[3; 3]);
        files.flush(file);
        files.cut(&stage, Left::Nothing, Left::Nothing);
        assert_eq!(files.read(file, 0, 9), [1, 1, 1, 3, 3, 3, 1, 1, 1]);
        files.unlink("d/b");
        files.cut(&stage, Left::Nothing, Left::Nothing);
        assert_eq!(files.list("d"), ["b"], "unlinked, and the folder was not flushed");
    }
}

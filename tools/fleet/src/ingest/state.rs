//! The progress of an ingest, which survives an interruption: an append-only file of block hashes.
//!
//! ```text
//! nearcast ingest state 1
//! <check> {"path":"r0.mp4","len":..,"modified":[s,ns],"tag":0,"from":0,"blocks":"<256 hashes>"}
//! <check> {"path":"r0.mp4","len":..,"modified":[s,ns],"tag":0,"from":256,"blocks":...}
//! ```
//!
//! Each line carries the first 16 hex digits of its BLAKE3 hash, so a torn or damaged line is seen
//! and it and all after it are dropped. A line that does not follow on what is known of a file
//! starts that file anew; so does a file whose length, time of change or ETag differs.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::object::{BlockHash, block_count};
use model::units::Bytes;
use serde::{Deserialize, Serialize};

use super::walk::Stamp;

/// Verified progress of one directory's ingest. Holds a lock while open.
#[derive(Debug)]
pub(super) struct State {
    path: PathBuf,
    file: File,
    known: BTreeMap<String, (Stamp, Vec<BlockHash>)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    path: String,
    len: u64,
    modified: (i64, i64),
    #[serde(default)]
    tag: u64,
    from: usize,
    blocks: String,
}

impl State {
    /// Opens or creates the state file at `path`; two ingests of one directory refuse each other.
    /// Lines about files that are gone or have changed are left out for good.
    pub(super) fn open(path: &Path, files: &BTreeMap<String, Stamp>) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| {
                format!("cannot create {} for the state file", parent.display())
            })?;
        }
        let open = OpenOptions::new().read(true).append(true).create(true).open(path);
        let file = open.with_context(|| format!("cannot open the state file {shown}"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another ingest of the same directory is running (it holds {shown})")
            }
            Err(TryLockError::Error(error)) => {
                bail!("cannot lock the state file {shown}: {error}")
            }
        }
        let read = read(&file).with_context(|| format!("cannot read the state file {shown}"))?;
        let mut known = read.known;
        known.retain(|path, (stamp, _)| files.get(path) == Some(stamp));
        let mut state = Self { path: path.to_owned(), file, known };
        if !read.begun || read.damaged || known_lines(&state.known) < read.lines {
            state.rewrite().with_context(|| format!("cannot write the state file {shown}"))?;
        }
        Ok(state)
    }

    /// Forgets everything: all files are read again.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        self.known.clear();
        self.rewrite().with_context(|| self.cannot_write())
    }

    /// The hashes of the first blocks of a file, as far as they are known.
    pub(super) fn known(&self, path: &str, stamp: Stamp) -> &[BlockHash] {
        match self.known.get(path) {
            Some((known, hashes)) if *known == stamp => hashes,
            Some(_) | None => &[],
        }
    }

    /// Remembers the hashes of the next blocks of a file. Durable after [`State::flush`].
    pub(super) fn append(
        &mut self,
        path: &str,
        stamp: Stamp,
        hashes: &[BlockHash],
    ) -> anyhow::Result<()> {
        let entry = self.known.entry(path.to_owned()).or_insert((stamp, Vec::new()));
        assert!(entry.0 == stamp, "a file's stamp is fixed when the state is opened");
        let text = line(path, stamp, entry.1.len(), hashes);
        entry.1.extend_from_slice(hashes);
        self.file.write_all(text.as_bytes()).with_context(|| self.cannot_write())
    }

    /// Waits until all that was appended is on the drive.
    pub(super) fn flush(&self) -> anyhow::Result<()> {
        self.file.sync_data().with_context(|| self.cannot_write())
    }

    fn cannot_write(&self) -> String {
        format!("cannot write the state file {} (--state names another)", self.path.display())
    }

    /// In place, for the lock is on this file; an interruption here costs reading again, no more.
    fn rewrite(&mut self) -> std::io::Result<()> {
        let mut text = format!("{HEADER}\n");
        for (path, (stamp, hashes)) in &self.known {
            for (index, part) in hashes.chunks(LINE_BLOCKS_MAX).enumerate() {
                text.push_str(&line(path, *stamp, index * LINE_BLOCKS_MAX, part));
            }
        }
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }
}

struct Read {
    known: BTreeMap<String, (Stamp, Vec<BlockHash>)>,
    lines: usize,
    begun: bool,
    damaged: bool,
}

fn read(file: &File) -> std::io::Result<Read> {
    let mut read = Read { known: BTreeMap::new(), lines: 0, begun: false, damaged: false };
    for text in BufReader::new(file).split(b'\n') {
        let text = text?;
        if !read.begun {
            read.begun = text == HEADER.as_bytes();
            read.damaged = !read.begun;
        } else if let Some((line, hashes)) = parse(&text) {
            read.lines += 1;
            let stamp = Stamp { len: Bytes(line.len), modified: line.modified, tag: line.tag };
            let entry = read.known.entry(line.path).or_insert((stamp, Vec::new()));
            if entry.0 != stamp || line.from != entry.1.len() {
                *entry = (stamp, Vec::new());
            }
            if line.from == entry.1.len() {
                entry.1.extend(hashes);
            }
            let wanted = block_count(stamp.len);
            read.damaged = wanted < u64::try_from(entry.1.len()).unwrap_or(u64::MAX);
        } else {
            read.damaged = true;
        }
        if read.damaged {
            break;
        }
    }
    if read.damaged {
        let wanted = |len| usize::try_from(block_count(len)).unwrap_or(usize::MAX);
        read.known.retain(|_, (stamp, hashes)| hashes.len() <= wanted(stamp.len));
    }
    Ok(read)
}

fn line(path: &str, stamp: Stamp, from: usize, hashes: &[BlockHash]) -> String {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.0).collect();
    let line = Line {
        path: path.to_owned(),
        len: stamp.len.0,
        modified: stamp.modified,
        tag: stamp.tag,
        from,
        blocks: STANDARD.encode(bytes),
    };
    let text = serde_json::to_string(&line).expect("strings and integers are JSON");
    format!("{} {text}\n", check(text.as_bytes()))
}

fn parse(text: &[u8]) -> Option<(Line, Vec<BlockHash>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (given, text) = text.split_once(' ')?;
    if given != check(text.as_bytes()) {
        return None;
    }
    let line: Line = serde_json::from_str(text).ok()?;
    let bytes = STANDARD.decode(&line.blocks).ok()?;
    let (hashes, rest) = bytes.as_chunks::<32>();
    let hashes = hashes.iter().map(|hash| BlockHash(*hash)).collect();
    rest.is_empty().then_some((line, hashes))
}

fn check(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..16].to_owned()
}

fn known_lines(known: &BTreeMap<String, (Stamp, Vec<BlockHash>)>) -> usize {
    known.values().map(|(_, hashes)| hashes.len().div_ceil(LINE_BLOCKS_MAX)).sum()
}

const HEADER: &str = "nearcast ingest state 1";

/// 64 MiB of blocks: at a slow 200 MB/s an interruption costs a third of a second of reading.
pub(super) const LINE_BLOCKS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { len: Bytes::mib(200), modified: (1_700_000_000, 5), tag: 9 };

    fn files() -> BTreeMap<String, Stamp> {
        BTreeMap::from([("a.mp4".to_owned(), STAMP), ("b.mp4".to_owned(), STAMP)])
    }

    fn hashes(range: std::ops::Range<u8>) -> Vec<BlockHash> {
        range.map(|i| BlockHash([i; 32])).collect()
    }

    fn open(path: &Path) -> State {
        State::open(path, &files()).unwrap()
    }

    fn written(path: &Path) {
        let mut state = open(path);
        state.append("a.mp4", STAMP, &hashes(0..10)).unwrap();
        state.append("b.mp4", STAMP, &hashes(50..60)).unwrap();
        state.append("a.mp4", STAMP, &hashes(10..20)).unwrap();
        state.flush().unwrap();
    }

    #[test]
    fn what_was_appended_is_known_after_an_interruption() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/state");
        written(&path);
        let state = open(&path);
        assert_eq!(state.known("a.mp4", STAMP), hashes(0..20));
        assert_eq!(state.known("b.mp4", STAMP), hashes(50..60));
        assert_eq!(state.known("c.mp4", STAMP), []);
    }

    #[test]
    fn a_changed_file_starts_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        written(&path);
        for changed in [
            Stamp { modified: (1_700_000_000, 6), ..STAMP },
            Stamp { len: Bytes::mib(201), ..STAMP },
            Stamp { tag: 10, ..STAMP },
        ] {
            starts_anew(&path, changed);
            std::fs::remove_file(&path).unwrap();
            written(&path);
        }
    }

    fn starts_anew(path: &Path, changed: Stamp) {
        let files = BTreeMap::from([("a.mp4".to_owned(), changed), ("b.mp4".to_owned(), STAMP)]);
        let mut state = State::open(path, &files).unwrap();
        assert_eq!(state.known("a.mp4", changed), []);
        assert_eq!(state.known("b.mp4", STAMP), hashes(50..60));
        state.append("a.mp4", changed, &hashes(1..2)).unwrap();
        drop(state);
        let state = State::open(path, &files).unwrap();
        assert_eq!(state.known("a.mp4", changed), hashes(1..2));
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().count(), 3, "nothing is kept of the file that was");
    }

    #[test]
    fn a_torn_or_damaged_line_ends_what_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        written(&path);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
        assert_eq!(open(&path).known("a.mp4", STAMP), hashes(0..10), "torn");
        let mut damaged = whole.clone();
        let second = whole.iter().position(|b| *b == b'\n').unwrap() + 40;
        damaged[second] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let mut state = open(&path);
        assert_eq!(state.known("a.mp4", STAMP), [], "damaged in its first line");
        state.append("a.mp4", STAMP, &hashes(7..8)).unwrap();
        drop(state);
        assert_eq!(open(&path).known("a.mp4", STAMP), hashes(7..8), "and goes on well");
        std::fs::write(&path, b"something else\n").unwrap();
        assert_eq!(open(&path).known("a.mp4", STAMP), []);
    }

    #[test]
    fn two_ingests_of_one_directory_refuse_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let _first = open(&path);
        let error = State::open(&path, &files()).unwrap_err().to_string();
        assert!(error.contains("another ingest"), "{error}");
    }
}

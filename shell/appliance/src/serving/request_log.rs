//! Keeps the request log: lines of all workers, in two files of bounded size and age.
//!
//! ```text
//! worker ── lines ──> channel ──> thread "requests" ──> requests.log ── full or a week old ──┐
//!    ^                                 |                                                     |
//!    └──────── the memory back ────────┘                        requests.log.1 <── renamed ──┘
//! ```
//!
//! A worker waits for nobody here: while its memory is not back, it goes on with what it has, and
//! what finds no room there is lost and counted. Lines are not fsynced: a power cut may cost the
//! last few.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use model::units::{Bytes, Nanos};

use crate::serving::hand_over::{self, Due, HandOver};

/// The file's name in the state directory; the one before has `.1` behind it.
pub const NAME: &str = "requests.log";
/// A file is closed at this age, so that no line is older than two weeks.
const AGE_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Lines are handed over when there are so many bytes of them, or each second.
const DUE: Due = Due { len: 64 * 1024, every: Nanos::seconds(1) };
/// How often the age of a file is looked at when there are no lines.
const ROUND: Duration = Duration::from_secs(60);

/// A worker's end.
pub type Lines = HandOver<u8>;

/// Starts the thread. One end for each of `workers`, in order; the thread calls `begin`
/// first and ends when they are gone.
pub fn start(
    state: &Path,
    room: Bytes,
    workers: usize,
    begin: fn(),
) -> io::Result<(Vec<Lines>, JoinHandle<()>)> {
    let mut file = Rotating::open(state, room)?;
    let (ends, lines) = hand_over::ends(workers, DUE, worker::LINES_LEN_MAX);
    let write = move || {
        begin();
        let mut failing = false;
        loop {
            let given = lines.lists.recv_timeout(ROUND);
            let result = file.rotate_if_old(SystemTime::now()).and_then(|()| match &given {
                Ok((_, lines)) => file.write(lines),
                Err(_) => Ok(()),
            });
            if let (Err(error), false) = (&result, failing) {
                tracing::warn!(%error, "the request log cannot be written; its lines are lost");
            }
            failing = result.is_err();
            match given {
                Ok((worker, memory)) => lines.give_back(worker, memory),
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    let thread = std::thread::Builder::new().name("requests".to_owned()).spawn(write)?;
    Ok((ends, thread))
}

/// A file that makes room for another before it is too long or too old.
struct Rotating {
    path: PathBuf,
    before: PathBuf,
    file: File,
    len: u64,
    len_max: u64,
    since: SystemTime,
}

impl Rotating {
    /// `room` is for both files together. A file that is there is gone on with.
    fn open(state: &Path, room: Bytes) -> io::Result<Self> {
        let path = state.join(NAME);
        let before = state.join(format!("{NAME}.1"));
        let file = append_to(&path)?;
        let metadata = file.metadata()?;
        // When a file was begun is not everywhere known; when it was written to is.
        let since = metadata.created().or_else(|_| metadata.modified())?;
        Ok(Self { path, before, file, len: metadata.len(), len_max: room.0 / 2, since })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let len = Bytes::of(lines.len()).0;
        if 0 < self.len && self.len_max < self.len + len {
            self.rotate()?;
        }
        self.file.write_all(lines)?;
        self.len += len;
        Ok(())
    }

    fn rotate_if_old(&mut self, now: SystemTime) -> io::Result<()> {
        // A clock that was set back makes no file old.
        let age = now.duration_since(self.since).unwrap_or_default();
        if age < AGE_MAX {
            return Ok(());
        }
        self.rotate()
    }

    fn rotate(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, &self.before)?;
        self.file = append_to(&self.path)?;
        (self.len, self.since) = (0, SystemTime::now());
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::units::Instant;

    fn read(dir: &Path, name: &str) -> String {
        std::fs::read_to_string(dir.join(name)).unwrap()
    }

    #[test]
    fn two_files_keep_within_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Rotating::open(dir.path(), Bytes(20)).unwrap();
        for line in ["one 1\n", "two\n", "three\n"] {
            file.write(line.as_bytes()).unwrap();
        }
        assert_eq!(read(dir.path(), "requests.log.1"), "one 1\ntwo\n");
        assert_eq!(read(dir.path(), NAME), "three\n");
        drop(file);
        let mut file = Rotating::open(dir.path(), Bytes(20)).unwrap();
        file.write(b"four\n").unwrap();
        assert_eq!(read(dir.path(), "requests.log.1"), "three\n", "what was there counts");
        assert_eq!(read(dir.path(), NAME), "four\n");
    }

    #[test]
    fn no_line_is_kept_for_more_than_two_weeks() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = Rotating::open(dir.path(), Bytes(1000)).unwrap();
        let begun = file.since;
        file.write(b"old\n").unwrap();
        file.rotate_if_old(begun + AGE_MAX - Duration::from_secs(1)).unwrap();
        assert_eq!(read(dir.path(), NAME), "old\n");
        file.rotate_if_old(begun - AGE_MAX).unwrap();
        assert_eq!(read(dir.path(), NAME), "old\n", "the clock was set back");
        file.rotate_if_old(begun + AGE_MAX).unwrap();
        assert_eq!(
            (read(dir.path(), NAME), read(dir.path(), "requests.log.1")),
            (String::new(), "old\n".to_owned())
        );
        let begun = file.since;
        file.rotate_if_old(begun + AGE_MAX).unwrap();
        assert_eq!(read(dir.path(), "requests.log.1"), "");
    }

    #[test]
    fn a_worker_gets_its_memory_back_and_does_not_wait_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut ends, thread) = start(dir.path(), Bytes::mib(1), 2, || {}).unwrap();
        let mut end = ends.pop().unwrap();
        let now = Instant(5_000_000_000);
        assert!(end.is_due(1, now) && !end.is_due(0, now));
        let mut memory = end.memory(now).unwrap();
        assert!(!end.is_due(1, now) && end.is_due(DUE.len, now));
        assert!(end.memory(now).is_none(), "there is one, and it is out");
        memory.extend_from_slice(b"a line\n");
        end.hand_over(memory);
        let patience = std::time::Instant::now() + Duration::from_secs(10);
        let back = loop {
            if let Some(memory) = end.memory(now) {
                break memory;
            }
            assert!(std::time::Instant::now() < patience, "the memory does not come back");
            std::thread::yield_now();
        };
        assert_eq!(back, b"a line\n");
        assert_eq!(read(dir.path(), NAME), "a line\n");
        end.hand_over(b"the last\n".to_vec());
        drop((end, ends));
        thread.join().unwrap();
        assert_eq!(read(dir.path(), NAME), "a line\nthe last\n");
    }
}

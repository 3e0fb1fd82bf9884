//! The index of a drive: a snapshot, and a log of what came after it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use model::id::{DriveId, ObjectId};
use model::units::Bytes;
use rustix::fs::{Mode, OFlags};
use store::layout;
use store::log::{self, Change, Entry, RECORD_LEN, Sequence};
use upkeep::{DriveError, at_once, read};

use super::Loaded;
use super::files::{Ungated, flush_failed, read_small, replace, to, write_all};

/// Snapshot and log of a drive, and what they say.
#[derive(Debug)]
pub(super) struct DriveLog {
    file: OwnedFd,
    /// Invariant: what is before it is good and flushed.
    len: Bytes,
    sequence: Sequence,
    pub(super) entries: BTreeMap<ObjectId, Entry>,
    /// Invariant: the sum of the lengths of `entries`.
    bytes_held: Bytes,
    /// It could not be rewritten: with so many records it is tried again.
    again_at: u64,
}

/// After a rewrite that failed. Each costs as much as the whole index, and so much more to replay
/// costs a start nothing.
const AGAIN_AFTER: u64 = 1024;

impl DriveLog {
    pub(super) fn open(
        drive: DriveId,
        root: &OwnedFd,
        steps: &AtomicU64,
    ) -> Result<(Self, Loaded), DriveError> {
        let snapshot = read_small(root, layout::SNAPSHOT)?;
        let bytes = read_small(root, layout::LOG)?.unwrap_or_default();
        let replay = log::replay(drive, snapshot.as_deref(), &bytes);
        let file = open_log(root)?;
        let (len, sequence) = (replay.log_len, replay.sequence);
        let bytes_held = Bytes::ZERO;
        let mut log =
            Self { file, len, sequence, entries: replay.entries, bytes_held, again_at: 0 };
        if replay.damage.is_some() {
            log.entries = at_once(read::recover(
                &Ungated(root),
                &|| {
                    steps.fetch_add(1, Ordering::Relaxed);
                },
                &|file| tracing::warn!(file = %file.0, "no file of objects, left out"),
            ))?;
            log.compact(drive, root)?;
        } else if replay.torn != Bytes::ZERO {
            log.cut(log.len)?;
        }
        log.bytes_held = Bytes(log.entries.values().map(|entry| entry.len.0).sum());
        let entries = log.entries.clone();
        let (torn, damage) = (replay.torn, replay.damage);
        Ok((log, Loaded { entries, torn, damage, parts: Vec::new() }))
    }

    pub(super) fn held(&self) -> (u64, Bytes) {
        (Bytes::of(self.entries.len()).0, self.bytes_held)
    }

    fn records(&self) -> u64 {
        self.len.0 / Bytes::of(RECORD_LEN).0
    }

    pub(super) fn append(&mut self, drive: DriveId, changes: &[Change]) -> Result<(), DriveError> {
        let bytes = log::encode_batch(drive, self.sequence, changes);
        let sequence = Sequence(self.sequence.0 + Bytes::of(changes.len()).0);
        let written = write_all(&self.file, &bytes, self.len, "the index")
            .and_then(|()| rustix::fs::fdatasync(&self.file).map_err(flush_failed(layout::LOG)));
        if let Err(error) = written {
            // Half a record must not stay before the next one.
            self.cut(self.len)?;
            return Err(error);
        }
        self.len += Bytes::of(bytes.len());
        self.sequence = sequence;
        for change in changes {
            let object = change.object();
            let len = |log: &Self| log.entries.get(&object).map_or(Bytes::ZERO, |entry| entry.len);
            let before = len(self);
            log::apply(&mut self.entries, *change);
            self.bytes_held = self.bytes_held + len(self) - before;
        }
        Ok(())
    }

    /// Rewrites it if it has grown long.
    pub(super) fn compact_if_due(
        &mut self,
        drive: DriveId,
        root: &OwnedFd,
    ) -> Result<(), DriveError> {
        let records = self.records();
        if records < self.again_at || !log::compaction_is_due(records, self.entries.len()) {
            return Ok(());
        }
        let compacted = self.compact(drive, root);
        self.again_at = if compacted.is_ok() { 0 } else { records + AGAIN_AFTER };
        compacted
    }

    /// Replaces the snapshot by one of what is held now, and empties the log. Whoever comes no
    /// further than between the two has a log that the new snapshot has already: its numbers say
    /// so, and it is gone on with.
    pub(super) fn compact(&mut self, drive: DriveId, root: &OwnedFd) -> Result<(), DriveError> {
        let snapshot = log::snapshot(drive, self.sequence, &self.entries);
        replace(root, layout::SNAPSHOT, &snapshot)?;
        self.cut(Bytes::ZERO)
    }

    fn cut(&mut self, len: Bytes) -> Result<(), DriveError> {
        rustix::fs::ftruncate(&self.file, len.0).map_err(to("cut", layout::LOG))?;
        self.len = len;
        rustix::fs::fsync(&self.file).map_err(flush_failed(layout::LOG))
    }
}

fn open_log(root: &OwnedFd) -> Result<OwnedFd, DriveError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(root, layout::LOG, flags, Mode::from_raw_mode(0o640))
        .map_err(to("open", layout::LOG))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::drives::Drive;
    use model::extent::DriveIndex;
    use model::units::UnixSeconds;
    use store::marker::Reserve;
    use upkeep::{Drive as _, at_once};

    fn added(n: u32) -> Change {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.to_be_bytes());
        Change::Published(ObjectId(id), Entry::alone(Bytes(5)))
    }

    fn object_count(path: &std::path::Path) -> usize {
        Drive::open(path, DriveIndex(0)).unwrap().1.entries.len()
    }

    /// True, once, if the log could not be rewritten.
    fn is_said(drive: &Drive) -> bool {
        drive.condition(|of| of.not_rewritten.take()).is_some()
    }

    /// Adds these, some at a time; how often it was said that the log is not rewritten.
    fn add(drive: &Drive, numbers: std::ops::Range<u32>) -> usize {
        let mut said = 0;
        for some in numbers.map(added).collect::<Vec<_>>().chunks(50) {
            at_once(drive.log(some)).expect("it is on the drive");
            said += usize::from(is_said(drive));
        }
        said
    }

    #[test]
    fn what_is_on_the_drive_counts_though_the_log_cannot_be_rewritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        crate::storage::format::format(path, Reserve::percent(1).unwrap(), UnixSeconds(1)).unwrap();
        let in_the_way = path.join(format!("{}.new", layout::SNAPSHOT));
        std::fs::create_dir(&in_the_way).unwrap();
        let (drive, _) = Drive::open(path, DriveIndex(0)).unwrap();
        // Removed again, so that the log is longer than what it says.
        assert_eq!(add(&drive, 0..1500), 0, "there is no reason yet");
        let gone: Vec<Change> = (10..1500).map(|n| Change::Removed(added(n).object())).collect();
        at_once(drive.log(&gone)).expect("it is on the drive");
        assert_eq!(drive.held().0, 10);
        assert!(is_said(&drive) && !is_said(&drive));
        assert_eq!(add(&drive, 2000..2100), 0, "it is not tried each time");
        assert_eq!(add(&drive, 2100..3100), 1, "but now and then");
        drop(drive);
        assert_eq!(object_count(path), 1110);
        std::fs::remove_dir(in_the_way).unwrap();
        let (drive, _) = Drive::open(path, DriveIndex(0)).unwrap();
        assert_eq!(add(&drive, 4000..4001), 0);
        assert_eq!(std::fs::metadata(path.join(layout::LOG)).unwrap().len(), 0, "rewritten");
        drop(drive);
        assert_eq!(object_count(path), 1111);
    }

    #[test]
    fn a_log_that_the_snapshot_has_already_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        crate::storage::format::format(path, Reserve::percent(1).unwrap(), UnixSeconds(1)).unwrap();
        let (drive, _) = Drive::open(path, DriveIndex(0)).unwrap();
        add(&drive, 0..3);
        let log = path.join(layout::LOG);
        let before = std::fs::read(&log).unwrap();
        at_once(drive.rewrite_index()).unwrap();
        drop(drive);
        // As if the log could not have been emptied.
        std::fs::write(&log, before).unwrap();
        let (drive, _) = Drive::open(path, DriveIndex(0)).unwrap();
        add(&drive, 3..5);
        drop(drive);
        assert_eq!(object_count(path), 5);
    }
}

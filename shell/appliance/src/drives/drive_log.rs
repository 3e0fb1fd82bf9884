//! The index of a drive: a snapshot, and a log of what came after it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use model::extent::FileName;
use model::id::{DriveId, ObjectId};
use model::units::Bytes;
use rustix::fs::{Mode, OFlags};
use store::layout;
use store::log::{self, Change, Entry, RECORD_LEN, Sequence};
use store::publish::Fault;
use store::unit;

use super::files::{
    flush_failed, list, read_directory, read_footer, read_small, read_table, replace, to, write_all,
};
use super::{DriveError, Loaded, ObjectFileError};

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
}

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
        let mut log = Self { file, len, sequence, entries: replay.entries, bytes_held };
        if replay.damage.is_some() {
            log.entries = walk(root, steps)?;
            log.compact(drive, root)?;
        } else if replay.torn != Bytes::ZERO {
            log.cut()?;
        }
        log.bytes_held = Bytes(log.entries.values().map(|entry| entry.len.0).sum());
        let entries = log.entries.clone();
        let (torn, damage) = (replay.torn, replay.damage);
        Ok((log, Loaded { entries, torn, damage, parts: Vec::new() }))
    }

    pub(super) fn held(&self) -> (u64, Bytes) {
        (Bytes::of(self.entries.len()).0, self.bytes_held)
    }

    pub(super) fn records(&self) -> u64 {
        self.len.0 / Bytes::of(RECORD_LEN).0
    }

    pub(super) fn append(&mut self, drive: DriveId, changes: &[Change]) -> Result<(), DriveError> {
        let bytes = log::encode_batch(drive, self.sequence, changes);
        let sequence = Sequence(self.sequence.0 + Bytes::of(changes.len()).0);
        let written = write_all(&self.file, &bytes, self.len)
            .and_then(|()| rustix::fs::fdatasync(&self.file).map_err(flush_failed(layout::LOG)));
        if let Err(error) = written {
            // Half a record must not stay before the next one.
            self.cut()?;
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

    /// Replaces the snapshot by one of what is held now, and empties the log. A crash between the
    /// two leaves a log that the new snapshot has already: its numbers say so.
    pub(super) fn compact(&mut self, drive: DriveId, root: &OwnedFd) -> Result<(), DriveError> {
        let snapshot = log::snapshot(drive, self.sequence, &self.entries);
        replace(root, layout::SNAPSHOT, &snapshot)?;
        self.len = Bytes::ZERO;
        self.cut()
    }

    fn cut(&mut self) -> Result<(), DriveError> {
        rustix::fs::ftruncate(&self.file, self.len.0).map_err(to("cut", layout::LOG))?;
        rustix::fs::fsync(&self.file).map_err(flush_failed(layout::LOG))
    }
}

/// The objects of a drive by its files alone: only a file that was complete and flushed gets its
/// name in `objects/` or `units/`, and its footer says what it is.
fn walk(root: &OwnedFd, steps: &AtomicU64) -> Result<BTreeMap<ObjectId, Entry>, DriveError> {
    let mut entries = walk_units(root, steps)?;
    for folder in layout::object_folders() {
        for name in list(root, &folder)? {
            steps.fetch_add(1, Ordering::Relaxed);
            let Ok(object) = name.parse::<ObjectId>() else { continue };
            let file = layout::object_file(&object);
            let blocks = open(root, &file).and_then(|fd| {
                let footer = read_footer(&fd, &file)?;
                read_table(&fd, footer.object, footer.len, Bytes::ZERO)
            });
            match blocks {
                Ok(blocks) if blocks.id() == object => {
                    entries.insert(object, Entry::alone(blocks.len()));
                }
                Err(ObjectFileError::Drive(error)) if is_the_drive(&error) => return Err(error),
                Ok(_) | Err(_) => tracing::warn!(file = %file.0, "not an object, left out"),
            }
        }
    }
    Ok(entries)
}

/// The same of its units.
fn walk_units(root: &OwnedFd, steps: &AtomicU64) -> Result<BTreeMap<ObjectId, Entry>, DriveError> {
    let mut directories = Vec::new();
    for name in list(root, &FileName(unit::UNITS.into()))? {
        steps.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = unit::parse_name(&name) else { continue };
        let file = unit::unit_file(&unit);
        match open(root, &file).and_then(|fd| read_directory(&fd, &file)) {
            Ok(directory) if directory.id() == unit => directories.push(directory),
            Err(ObjectFileError::Drive(error)) if is_the_drive(&error) => return Err(error),
            Ok(_) | Err(_) => tracing::warn!(file = %file.0, "not a unit, left out"),
        }
    }
    let entry = |(object, (unit, place)): (ObjectId, (unit::UnitId, unit::Place))| {
        (object, Entry { unit: Some(unit), offset: place.offset, len: place.len })
    };
    Ok(unit::recover(&directories).into_iter().map(entry).collect())
}

fn open(root: &OwnedFd, file: &FileName) -> Result<OwnedFd, ObjectFileError> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let opened = rustix::fs::openat(root, &*file.0, flags, Mode::empty());
    opened.map_err(|errno| to("open", &file.0)(errno).into())
}

/// True if it is not about one file.
fn is_the_drive(error: &DriveError) -> bool {
    error.fault == Fault::SetAside && !error.is_one_place()
}

fn open_log(root: &OwnedFd) -> Result<OwnedFd, DriveError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(root, layout::LOG, flags, Mode::from_raw_mode(0o640))
        .map_err(to("open", layout::LOG))
}

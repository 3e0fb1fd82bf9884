//! The place of a drive, as the file system's books tell of it (`upkeep::absence`).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use model::extent::DriveIndex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use store::absence::Seen;
use store::layout;
use store::parcel::PartId;
use upkeep::absence::{self, Found};
use upkeep::{DriveError, Space, at_once};

use crate::counters::Serving;
use crate::storage::drives::{Drive, OpenError, marker_seen};
use crate::storage::shared::Shared;
use crate::storage::slots::{Aside, Slot, Slots};

/// Looks after one drive until all must stop.
pub(crate) fn run(shared: &Shared, index: DriveIndex) {
    let path = &shared.slots.paths[index.as_usize()];
    let mut place = Place { shared, index, path, mounts: Mounts::open() };
    at_once(absence::run(shared, &mut place));
}

struct Place<'a> {
    shared: &'a Shared,
    index: DriveIndex,
    path: &'a Path,
    mounts: Mounts,
}

/// A drive that is not in use yet, and its directory for the workers, who open files by themselves.
struct New {
    drive: Drive,
    directory: OwnedFd,
}

impl AsRef<Drive> for New {
    fn as_ref(&self) -> &Drive {
        &self.drive
    }
}

impl<'a> absence::Place for Place<'a> {
    type Host = Shared;
    type New = New;

    fn index(&self) -> DriveIndex {
        self.index
    }

    async fn look(&mut self) -> Seen {
        look(self.path, &mut self.mounts)
    }

    async fn measure(&mut self, drive: &Drive) -> Result<(Space, Seen), DriveError> {
        let (space, marker) = drive.measure()?;
        Ok((space, Seen { marker, mounts: self.mounts.changes() }))
    }

    fn is_held(&self) -> bool {
        let (slots, serving) = (&self.shared.slots, &self.shared.counters.serving);
        is_held(slots.all().get(self.index.as_usize()), serving, self.index)
    }

    async fn open(&mut self) -> Result<Found<New>, String> {
        self.find().map_err(|error| error.to_string())
    }

    /// Behind its gate only now: the gate looks at reads of the drive that was there.
    fn make_ready(&mut self, New { mut drive, directory }: New) -> Arc<Drive> {
        let shared = self.shared;
        Slots::put_behind_gate(&mut drive, &shared.slots.rules, &shared.counters.serving);
        shared.ledger.tell_directory(self.index, directory);
        Arc::new(drive)
    }

    fn put_in_use(&mut self, drive: &Arc<Drive>, parts: Vec<PartId>) {
        let (shared, index) = (self.shared, self.index);
        shared.ledger.change(|holdings| {
            if shared.ledger.is_stopping() {
                drive.gate().open();
            }
            shared.slots.replace(index, Slot::Open(Arc::clone(drive)));
            holdings.take_back(index, std::iter::empty(), parts.into_iter());
        });
    }

    fn words(&self, error: DriveError) -> String {
        OpenError::Drive { path: self.path.to_owned(), error }.to_string()
    }
}

impl Place<'_> {
    fn find(&self) -> Result<Found<New>, OpenError> {
        let (drive, loaded) = Drive::open_counting(self.path, self.index, &AtomicU64::new(0))?;
        let id = drive.marker().id;
        if self.shared.slots.open().iter().any(|other| other.marker().id == id) {
            return Err(OpenError::Twice(self.path.to_owned(), id));
        }
        let failed = |error| OpenError::Drive { path: self.path.to_owned(), error };
        let directory = drive.directory().map_err(failed)?;
        let drive = New { drive, directory };
        Ok(Found { drive, entries: loaded.entries, parts: loaded.parts })
    }
}

/// True while somebody has a file of the drive that was there open, or a worker waits for a read.
fn is_held(slot: Option<&Slot>, serving: &Serving, index: DriveIndex) -> bool {
    let is_open = match slot {
        Some(Slot::Aside(Aside { old, .. })) => 0 < old.strong_count(),
        Some(Slot::Open(_)) | None => false,
    };
    is_open || serving.slices.iter().any(|worker| 0 < worker[index.as_usize()].load().in_flight)
}

/// The facts seen of a drive's place.
fn look(path: &Path, mounts: &mut Mounts) -> Seen {
    let marker = marker_seen(CWD, &path.join(layout::MARKER));
    Seen { marker, mounts: mounts.changes() }
}

/// Counts changes of the table of mounts (proc_pid_mounts(5): whoever polls it is told).
#[derive(Debug)]
struct Mounts {
    table: Option<OwnedFd>,
    changes: u64,
}

impl Mounts {
    /// Without the table, a file system that is mounted anew and looks as before is not noticed.
    fn open() -> Self {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let table = rustix::fs::open("/proc/self/mountinfo", flags, Mode::empty());
        Self { table: table.ok(), changes: 0 }
    }

    /// How often it was found changed since it was opened.
    fn changes(&mut self) -> u64 {
        if let Some(table) = &self.table {
            let mut asked = [PollFd::new(table, PollFlags::PRI)];
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let has_changed = poll(&mut asked, Some(&at_once))
                .is_ok_and(|_| asked[0].revents().contains(PollFlags::PRI));
            self.changes += u64::from(has_changed);
        }
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;

    use iosched::tally::Slice;

    use upkeep::Cause;

    use crate::counters::DriveSlice;

    #[test]
    fn a_place_is_seen_by_its_marker_and_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let mut mounts = Mounts::open();
        assert_eq!(look(dir.path(), &mut mounts).marker, None);
        std::fs::write(dir.path().join(layout::MARKER), "1").unwrap();
        let first = look(dir.path(), &mut mounts).marker;
        assert_eq!(first, look(dir.path(), &mut mounts).marker);
        let another = dir.path().join("another");
        std::fs::write(&another, "2").unwrap();
        std::fs::rename(another, dir.path().join(layout::MARKER)).unwrap();
        assert!(first.is_some() && first != look(dir.path(), &mut mounts).marker);
    }

    #[test]
    fn the_table_of_mounts_is_there_and_quiet() {
        let mut mounts = Mounts::open();
        assert!(mounts.table.is_some());
        assert!(mounts.changes() <= 1, "told once of each change, not at each look");
    }

    #[test]
    fn a_drive_is_not_looked_for_while_a_worker_waits_for_a_read_of_what_was_there() {
        let worker = || -> Arc<[DriveSlice]> { (0..2).map(|_| DriveSlice::default()).collect() };
        let counters = Serving { slices: vec![worker(), worker()], ..Serving::default() };
        let aside = Slot::Aside(Aside { cause: Cause::Miswritten, id: None, old: Weak::new() });
        let held = |drive| is_held(Some(&aside), &counters, DriveIndex(drive));
        assert!(!held(0) && !held(1));
        counters.slices[1][1].store(&Slice { in_flight: 1, ..Slice::default() });
        assert!(!held(0) && held(1));
        counters.slices[1][1].store(&Slice::default());
        assert!(!held(1));
    }
}

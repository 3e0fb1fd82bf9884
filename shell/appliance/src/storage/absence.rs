//! One thread for each drive: measures it while it is in use, and looks after its place while it is
//! not, so that it is used again without a restart.
//!
//! ```text
//! in use ── an error ──> set aside: nobody opens anything on it, so that it can be unmounted
//!   ^                        │ each second: the marker, as stat(2) tells; the table of mounts
//!   │                        v
//!   └── open, prove <── replaced, formatted, mounted anew, and quiet for a second
//! ```
//!
//! Whatever waits for a drive waits here, and nobody else does.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use model::extent::DriveIndex;
use model::units::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use store::absence::{Absence, Seen};
use store::layout;
use upkeep::{Ledger as _, at_once};

use crate::counters::Serving;
use crate::storage::drives::{Drive, Loaded, OpenError, marker_seen};
use crate::storage::shared::Shared;
use crate::storage::slots::{Aside, Slot, Slots};

/// How old the size of a drive may be, and how often the place of one that is away is looked at.
/// What the appliance changes itself is measured at once.
const LOOK_EVERY: Nanos = Nanos::seconds(1);
/// Objects that are read from a drive before it is used again.
const PROVED: usize = 8;

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, index: DriveIndex) {
    let path = &shared.slots.paths[index.as_usize()];
    let mut mounts = Mounts::open();
    loop {
        let seen;
        if let Some(drive) = shared.slots.drive(index) {
            let Some(last) = measure(shared, &drive, &mut mounts) else { return };
            seen = last;
        } else {
            seen = look(path, &mut mounts);
        }
        if !wait_for_it(shared, index, path, Absence::new(seen), &mut mounts) {
            return;
        }
    }
}

/// Measures a drive until it is set aside, and says what was seen of it last; none if all must
/// stop. If this waits, nobody else does, and that it waits is seen.
fn measure(shared: &Shared, drive: &Drive, mounts: &mut Mounts) -> Option<Seen> {
    let mut seen = Seen { marker: drive.marker_seen(), mounts: mounts.changes() };
    while !drive.is_aside() {
        match drive.measure(shared.ledger.now()) {
            Ok(marker) => seen = Seen { marker, mounts: mounts.changes() },
            Err(error) => at_once(shared.failed(drive, &error)), // It is gone.
        }
        if !shared.ledger.sleep_until(shared.ledger.now() + LOOK_EVERY) {
            return None;
        }
    }
    Some(seen)
}

/// Looks at the place of a drive that is set aside until it is used again; false if all must stop.
fn wait_for_it(
    shared: &Shared,
    index: DriveIndex,
    path: &Path,
    mut absence: Absence,
    mounts: &mut Mounts,
) -> bool {
    while shared.ledger.sleep_until(shared.ledger.now() + LOOK_EVERY) {
        let (slots, serving) = (&shared.slots, &shared.counters.serving);
        let held = || is_held(slots.all().get(index.as_usize()), serving, index);
        if !absence.look(look(path, mounts)) || held() {
            continue;
        }
        match try_it(shared, index, path) {
            Ok(Found { drive, directory, loaded }) => {
                shared.take_back(drive, directory, &loaded);
                return true;
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "drive stays set aside");
                shared.ledger.note("drive", format!("{error}. It stays set aside"));
                absence.refused();
            }
        }
    }
    false
}

/// True while somebody has a file open on the drive that was there, or a worker waits for a read of
/// it: its file system lives on with that, and what fails there must not be taken for a failure of
/// the one that comes.
fn is_held(slot: Option<&Slot>, serving: &Serving, index: DriveIndex) -> bool {
    let is_open = match slot {
        Some(Slot::Aside(Aside { old, .. })) => 0 < old.strong_count(),
        Some(Slot::Open(_)) | None => false,
    };
    is_open || serving.slices.iter().any(|worker| 0 < worker[index.as_usize()].load().in_flight)
}

/// A drive that is good.
struct Found {
    drive: Drive,
    /// For those who open files on it by themselves.
    directory: OwnedFd,
    loaded: Loaded,
}

/// Opens what is there now, unless it is in use under another path, and proves that it can be read
/// and written.
fn try_it(shared: &Shared, index: DriveIndex, path: &Path) -> Result<Found, OpenError> {
    let (mut drive, loaded) = Drive::open_counting(path, index, &AtomicU64::new(0))?;
    let id = drive.marker().id;
    if shared.slots.open().iter().any(|other| other.marker().id == id) {
        return Err(OpenError::Twice(path.to_owned(), id));
    }
    let failed = |error| OpenError::Drive { path: path.to_owned(), error };
    // Before the gate, which looks at how reads of what was there stand.
    drive.prove(PROVED).map_err(failed)?;
    let directory = drive.directory().map_err(failed)?;
    Slots::put_behind_gate(&mut drive, &shared.slots.rules, &shared.counters.serving);
    Ok(Found { drive, directory, loaded })
}

/// What is seen of a drive's place. Opens nothing, so that it can be unmounted at any time.
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
    use std::sync::{Arc, Weak};

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

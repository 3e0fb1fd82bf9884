//! What becomes of a unit when less of it is wanted: it goes as a whole, or what is left of it is
//! copied to another file first, or it stays and what is not wanted in it is hidden.
//!
//! Who changes what a unit has claims all its objects, also those that are not held any more: so
//! there is one at a time, and nobody fills the same unit meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdings::FileStanding;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::status::Units;
use model::units::{Bytes, Instant};
use store::health::Verdict;
use store::unit::{self, Directory, Fate, Place, UnitError, UnitId};

use crate::adopt::{self, Adopted, Other};
use crate::copying::{self, Ended, Source};
use crate::drives::{Drive, DriveError, ObjectFileError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::tiering::LINGER;

#[cfg(test)]
mod tests;

/// In which unit an object is held, if it is in one.
pub(crate) fn place(shared: &Shared, object: &ObjectId) -> Option<(DriveIndex, UnitId)> {
    let extent = shared.locate(object)?;
    unit::of_file(&extent.file).map(|unit| (extent.drive, unit))
}

/// Lets go what is not wanted in a unit; false if that has to be tried again. A unit from which
/// something was copied goes to `old`.
pub(crate) fn settle(
    shared: &Shared,
    drive: DriveIndex,
    unit: UnitId,
    old: &mut VecDeque<Old>,
) -> bool {
    let Some(drive) = shared.answering(drive) else { return false };
    let directory = match directory(shared, &drive, unit) {
        Ok(directory) => directory,
        Err(Unread::Lost) => return true,
        Err(Unread::Later) => return keep_wanted(shared, &drive, unit),
        Err(Unread::NotNow) => return false,
    };
    let objects = directory.objects();
    if !shared.claim_all(&objects) {
        return false;
    }
    let kept = keep_only(shared, &drive, &directory, |object| shared.is_wanted(object));
    if kept == Kept::Copied {
        let until = shared.now() + LINGER;
        old.push_back(Old { until, drive, directory });
        return true;
    }
    objects.iter().for_each(|object| shared.release(*object));
    kept == Kept::Settled
}

/// A unit from which what is wanted was copied. All that was in it is claimed.
pub(crate) struct Old {
    /// Whoever is told of the new place late still opens this one.
    until: Instant,
    drive: Arc<Drive>,
    directory: Directory,
}

impl Old {
    /// Removes it when it is time, at once if all must stop.
    pub(crate) fn remove(self, shared: &Shared) {
        remove_later(shared, &self.drive, &self.directory, self.until);
        self.directory.objects().iter().for_each(|object| shared.release(*object));
    }
}

/// If the drive does not answer by then, the audit finds that nothing is held in it.
fn remove_later(shared: &Shared, drive: &Drive, directory: &Directory, until: Instant) {
    shared.sleep_until(until);
    if drive.answers(shared.now()) {
        let file = unit::unit_file(&directory.id());
        keeper::remove(shared, drive, &file, drive.held_in(directory), true);
    }
}

/// Brings a unit and the index together: what is wanted and held nowhere is verified and adopted
/// from it, then what is not held goes; what is held stays, wanted or not. Says what is in it, if
/// it stays, and if something was wrong.
pub(crate) fn audit(shared: &Shared, drive: &Drive, unit: UnitId) -> (Units, bool) {
    let nothing = (Units::default(), false);
    let Ok(directory) = directory(shared, drive, unit) else { return nothing };
    let file = unit::unit_file(&unit);
    let standing = |object: &ObjectId| shared.standing(*object, drive.index(), &file);
    let mut objects = directory.places().iter().map(|place| &place.object);
    if objects.any(|object| standing(object) == FileStanding::Unknown) {
        return nothing;
    }
    let is_missing = |object: &ObjectId| standing(object) == FileStanding::Missing;
    let wrong = claimed(shared, &directory, || {
        let adopted = adopt::adopt_from(shared, drive, &directory, is_missing);
        let orphaned = drive.held_in(&directory).is_empty();
        if adopted != Adopted::Interrupted {
            keep_all(shared, drive, &directory);
        }
        adopted == Adopted::Some || orphaned
    });
    let held = |place: &&Place| standing(&place.object) == FileStanding::Indexed;
    let live: u64 = directory.places().iter().filter(held).map(|p| unit::room(p.len).0).sum();
    let dead = Bytes(directory.offset().0 - live);
    let units = if live == 0 { Units::default() } else { Units { count: 1, dead } };
    (units, wrong.unwrap_or(false))
}

/// Takes what a filler is about to fetch from a unit that is there already, and removes that if
/// there is nothing good in it. True if something is visible now. The caller has claimed all of it.
pub(crate) fn take_up(shared: &Shared, drive: &Drive, unit: UnitId) -> bool {
    let Ok(directory) = directory(shared, drive, unit) else { return false };
    let adopted = adopt::adopt_from(shared, drive, &directory, |_| true);
    if adopted != Adopted::Interrupted {
        keep_all(shared, drive, &directory);
    }
    adopted == Adopted::Some
}

/// Why a unit does not say what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It was not there, or said nothing right: nothing is held in it any more.
    Lost,
    /// A later version wrote it.
    Later,
    /// The drive failed, or somebody works on what is in it.
    NotNow,
}

/// What a unit says that it holds. One that says nothing right would be of no use to a drive that
/// loses its index: what is held in it is set aside, and it goes.
pub(crate) fn directory(shared: &Shared, drive: &Drive, unit: UnitId) -> Result<Directory, Unread> {
    let path = drive.path().display();
    let what = match drive.read_directory(unit) {
        Ok(directory) => return Ok(directory),
        Err(ObjectFileError::Unit(error @ UnitError::Version(_))) => {
            shared.note("drive", format!("{path}: {error}"));
            return Err(Unread::Later);
        }
        Err(ObjectFileError::Drive(error)) if error.is_missing() => {
            if !drive.has_marker() {
                let file = unit::unit_file(&unit).0;
                let reason = format!("its marker is gone, and {file}: was it unmounted?");
                shared.set_drive_aside(drive, &reason);
                return Err(Unread::NotNow);
            }
            "is missing".to_owned()
        }
        Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
            return Err(unreadable(shared, drive, unit, &error));
        }
        Err(ObjectFileError::Drive(error)) => {
            shared.drive_failed(drive, &error);
            return Err(Unread::NotNow);
        }
        Err(error) => format!("is damaged: {error}"),
    };
    if lose(shared, drive, unit, &what) { Err(Unread::Lost) } else { Err(Unread::NotNow) }
}

/// What says what a unit holds is on a bad place. It counts against the drive once, when the unit
/// goes, however often it was looked at before.
fn unreadable(shared: &Shared, drive: &Drive, unit: UnitId, error: &DriveError) -> Unread {
    if !lose(shared, drive, unit, &format!("is unreadable: {error}")) {
        return Unread::NotNow;
    }
    if drive.object_failed(shared.now()) == Verdict::SetDriveAside {
        shared.drive_failed(drive, error);
    }
    Unread::Lost
}

/// All that is held in a unit is set aside, in one step, and the unit goes. False if that has to be
/// tried again.
fn lose(shared: &Shared, drive: &Drive, unit: UnitId, what: &str) -> bool {
    let lost = with_held(shared, drive, unit, |held| {
        // Somebody may have filled it anew meanwhile.
        let is_lost = drive.read_directory(unit).is_err();
        is_lost && keeper::remove(shared, drive, &unit::unit_file(&unit), held, true)
    });
    if let Some((true, count @ 1..)) = lost {
        let (path, objects) = (drive.path().display(), Bytes::of(count).0);
        tracing::warn!(drive = %drive.marker().id, objects, what, "unit set aside");
        shared.integrity.objects_set_aside.fetch_add(objects, Ordering::Relaxed);
        shared.note("drive", format!("{path}: a unit of {objects} objects {what}; filled again"));
        shared.replan();
    }
    lost.is_some_and(|(is_lost, _)| is_lost)
}

/// The same as `keep_only` by what the log says alone, and without a copy.
fn keep_wanted(shared: &Shared, drive: &Drive, unit: UnitId) -> bool {
    let settled = with_held(shared, drive, unit, |held| {
        let (wanted, useless): (Vec<_>, Vec<_>) =
            held.into_iter().partition(|object| shared.is_wanted(object));
        keeper::remove(shared, drive, &unit::unit_file(&unit), useless, wanted.is_empty())
    });
    settled.is_some_and(|(is_settled, _)| is_settled)
}

/// Does something with all that the drive's index has in a unit claimed, and says how much that is;
/// none if somebody works on some of it.
fn with_held<T>(
    shared: &Shared,
    drive: &Drive,
    unit: UnitId,
    deed: impl FnOnce(Vec<ObjectId>) -> T,
) -> Option<(T, usize)> {
    let objects = drive.in_unit(unit);
    if !shared.claim_all(&objects) {
        return None;
    }
    let mut held = objects.clone();
    // Before it was claimed it may have gone elsewhere.
    held.retain(|object| drive.entry(object).is_some_and(|entry| entry.unit == Some(unit)));
    let count = held.len();
    let result = deed(held);
    objects.iter().for_each(|object| shared.release(*object));
    Some((result, count))
}

/// Does something with all objects of a unit claimed; none if somebody works on one of them.
fn claimed<T>(shared: &Shared, directory: &Directory, deed: impl FnOnce() -> T) -> Option<T> {
    let objects = directory.objects();
    shared.claim_all(&objects).then(|| {
        let result = deed();
        objects.iter().for_each(|object| shared.release(*object));
        result
    })
}

/// What came of a look at what is wanted in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// What is not wanted is gone.
    Settled,
    /// What is wanted was copied: the unit is to go after a while, its objects claimed until then.
    Copied,
    /// The drive failed, or is set aside.
    Failed,
}

/// What is not held in a unit goes; if that takes a copy, later. The caller has claimed all of it.
fn keep_all(shared: &Shared, drive: &Drive, directory: &Directory) {
    if keep_only(shared, drive, directory, |_| true) == Kept::Copied {
        remove_later(shared, drive, directory, shared.now() + LINGER);
    }
}

/// Of what is held in a unit only what `choose` says stays. The caller has claimed all of it. A
/// drive that is set aside keeps all: nothing on it is held, and it may come back. So does a unit
/// of which something has its other copy where that cannot be read.
fn keep_only(
    shared: &Shared,
    drive: &Drive,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> Kept {
    let unit = directory.id();
    let file = unit::unit_file(&unit);
    let is_here = |object: &ObjectId| {
        let here = |extent: Extent| extent.drive == drive.index() && extent.file == file;
        choose(object) && shared.locate(object).is_some_and(here)
    };
    let held = drive.held_in(directory);
    let spare = held.iter().filter(|object| choose(object) && !is_here(object));
    if !spare.copied().all(|object| is_spare(shared, object)) {
        return Kept::Failed;
    }
    let fate = directory.fate(is_here);
    // After what is held was asked for: who sets a drive aside says so before its objects go.
    if drive.set_aside_reason().is_some() {
        return Kept::Failed;
    }
    let copied = match &fate {
        Fate::Compact(live) => {
            let (places, mut buffer) = (&live[..], Pages::zeroed(BLOCK_LEN));
            let from = Source { drive, file: &file, places };
            copying::copy(shared, from, drive, &choose, &mut buffer)
        }
        Fate::Remove | Fate::Keep => Ended::Abandoned,
    };
    if copied == Ended::Copied {
        return Kept::Copied;
    }
    let mut useless = drive.held_in(directory);
    useless.retain(|object| !is_here(object));
    let is_settled = keeper::remove(shared, drive, &file, useless, fate == Fate::Remove);
    if let Ended::Doubted(object, doubt) = copied {
        shared.suspect(object, doubt);
    }
    if is_settled { Kept::Settled } else { Kept::Failed }
}

/// True of an object that need not be here, since the index has it nowhere, or a good copy of it
/// elsewhere.
fn is_spare(shared: &Shared, object: ObjectId) -> bool {
    if shared.locate(&object).is_none() {
        return true;
    }
    match adopt::other_copy(shared, object) {
        Other::Good => true,
        Other::NotNow => false,
        Other::Doubted(doubt) => {
            shared.suspect(object, doubt);
            false
        }
    }
}

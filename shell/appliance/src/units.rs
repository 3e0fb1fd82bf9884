//! What becomes of a unit when less of it is wanted: it goes as a whole, or what is left of it is
//! copied to another file first, or it stays and what is not wanted in it is hidden.
//!
//! Who changes what a unit has claims all its objects, also those that are not held any more: so
//! there is one at a time, and nobody fills the same unit meanwhile.

use holdings::FileStanding;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::object::BLOCK_LEN;
use model::units::Bytes;
use store::unit::{self, Directory, Fate, Place, UnitError, UnitId};

use crate::adopt::{self, Adopted};
use crate::copying::{self, Ended, Source};
use crate::drives::{Drive, ObjectFileError, Units};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;

#[cfg(test)]
mod tests;

/// In which unit an object is held, if it is in one.
pub(crate) fn place(shared: &Shared, object: &ObjectId) -> Option<(DriveIndex, UnitId)> {
    let extent = shared.locate(object)?;
    unit::of_file(&extent.file).map(|unit| (extent.drive, unit))
}

/// Lets go what is not wanted in a unit; false if that has to be tried again.
pub(crate) fn settle(shared: &Shared, drive: DriveIndex, unit: UnitId) -> bool {
    let Some(drive) = shared.answering(drive) else { return false };
    let Some(directory) = directory(shared, &drive, unit) else { return false };
    let is_wanted = |object: &ObjectId| shared.is_wanted(object);
    let settle = || keep_only(shared, &drive, &directory, is_wanted);
    claimed(shared, &directory, settle).unwrap_or(false)
}

/// Brings a unit and the index together: what is wanted and held nowhere is verified and adopted
/// from it, then what is not held goes; what is held stays, wanted or not. Says what is in it, if
/// it stays, and if something was wrong.
pub(crate) fn audit(shared: &Shared, drive: &Drive, unit: UnitId) -> (Units, bool) {
    let nothing = (Units::default(), false);
    let Some(directory) = directory(shared, drive, unit) else { return nothing };
    let file = unit::unit_file(&unit);
    let standing = |object: &ObjectId| shared.standing(*object, drive.index(), &file);
    let mut objects = directory.places().iter().map(|place| &place.object);
    if objects.any(|object| standing(object) == FileStanding::Unknown) {
        return nothing;
    }
    let is_missing = |object: &ObjectId| standing(object) == FileStanding::Missing;
    let wrong = claimed(shared, &directory, || {
        let adopted = adopt::adopt_from(shared, drive, &directory, is_missing);
        let orphaned = drive.in_unit(unit).is_empty();
        if adopted != Adopted::Interrupted {
            keep_only(shared, drive, &directory, |_| true);
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
    let Some(directory) = directory(shared, drive, unit) else { return false };
    let adopted = adopt::adopt_from(shared, drive, &directory, |_| true);
    if adopted != Adopted::Interrupted {
        keep_only(shared, drive, &directory, |_| true);
    }
    adopted == Adopted::Some
}

/// What a unit says that it holds. One that says nothing right would be of no use to a drive that
/// loses its index: what is held in it is set aside, then it goes.
fn directory(shared: &Shared, drive: &Drive, unit: UnitId) -> Option<Directory> {
    match drive.read_directory(unit) {
        Ok(directory) => return Some(directory),
        Err(ObjectFileError::Drive(error)) if !error.is_one_place() => {
            // One that is missing is found by who looks for what should be in it.
            if !error.is_missing() {
                shared.drive_failed(drive, &error);
            }
        }
        Err(ObjectFileError::Unit(error @ UnitError::Version(_))) => {
            shared.note("drive", format!("{}: {error}", drive.path().display()));
        }
        Err(error) => {
            let what = format!("is in a unit that is damaged ({error})");
            let is_here = |object: &&ObjectId| place(shared, object) == Some((drive.index(), unit));
            for object in drive.in_unit(unit).iter().filter(is_here) {
                keeper::damaged(shared, drive, *object, &what);
            }
            let left = drive.in_unit(unit);
            if !left.iter().any(|object| is_here(&object)) && shared.claim_all(&left) {
                tracing::warn!(drive = %drive.marker().id, %error, "damaged unit removed");
                keeper::remove(shared, drive, &unit::unit_file(&unit), left.clone(), true);
                left.iter().for_each(|object| shared.release(*object));
            }
        }
    }
    None
}

/// Does something with all objects of a unit claimed; none if somebody works on one of them.
fn claimed<T>(shared: &Shared, directory: &Directory, deed: impl FnOnce() -> T) -> Option<T> {
    let objects: Vec<ObjectId> = directory.places().iter().map(|place| place.object).collect();
    shared.claim_all(&objects).then(|| {
        let result = deed();
        objects.iter().for_each(|object| shared.release(*object));
        result
    })
}

/// Of what is held in a unit only what `choose` says stays. The caller has claimed all of it. A
/// drive that is set aside keeps all: nothing on it is held, and it may come back.
fn keep_only(
    shared: &Shared,
    drive: &Drive,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> bool {
    let unit = directory.id();
    let file = unit::unit_file(&unit);
    let is_here = |object: &ObjectId| {
        let here = |extent: Extent| extent.drive == drive.index() && extent.file == file;
        choose(object) && shared.locate(object).is_some_and(here)
    };
    let fate = directory.fate(is_here, |_| false);
    // After what is held was asked for: who sets a drive aside says so before its objects go.
    if drive.set_aside_reason().is_some() {
        return false;
    }
    let copied = match &fate {
        Fate::Compact(live) => {
            let (places, mut buffer) = (&live[..], Pages::zeroed(BLOCK_LEN));
            let from = Source { drive, file: &file, places };
            copying::copy(shared, from, drive, &choose, &mut buffer)
        }
        Fate::Remove | Fate::Keep => Ended::Abandoned,
    };
    if fate == Fate::Remove || copied == Ended::Copied {
        // What was copied the log has elsewhere by now.
        return keeper::remove(shared, drive, &file, drive.in_unit(unit), true);
    }
    let mut useless = drive.in_unit(unit);
    useless.retain(|object| !is_here(object));
    let settled = keeper::remove(shared, drive, &file, useless, false);
    if let Ended::Doubted(object, doubt) = copied {
        shared.suspect(object, doubt);
    }
    settled
}

//! What becomes of a unit when less of it is wanted. The counterpart of
//! `shell/appliance/src/units.rs`.

use std::rc::Rc;

use holdings::FileStanding;
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::units::Bytes;
use store::health::Verdict;
use store::unit::{self, Directory, Fate, UnitId};

use crate::chores::{self, Adopted, Other};
use crate::copying::{self, Ended, LINGER, Source};
use crate::drive::{EIO, ENOENT};
use crate::opened::{Opened, Wrong};
use crate::process::Process;

/// In which unit an object is held, if it is in one.
pub(crate) fn place(process: &Process, object: &ObjectId) -> Option<(DriveIndex, UnitId)> {
    let extent = process.locate(object)?;
    unit::of_file(&extent.file).map(|unit| (extent.drive, unit))
}

/// Lets go what is not wanted in a unit; false if that has to be tried again.
pub(crate) async fn settle(process: &Rc<Process>, drive: DriveIndex, unit: UnitId) -> bool {
    let Some(drive) = process.answering(drive) else { return false };
    let directory = match directory(process, &drive, unit).await {
        Ok(directory) => directory,
        Err(unread) => return unread == Unread::Lost,
    };
    let objects = directory.objects();
    if !process.claim_all(&objects) {
        return false;
    }
    let is_wanted = |object: &ObjectId| process.is_wanted(object);
    let settled = keep_only(process, &drive, &directory, is_wanted).await;
    objects.iter().for_each(|object| process.release(*object));
    settled
}

/// Adopts what is wanted and held nowhere, then lets go what is not held.
pub(crate) async fn audit(process: &Rc<Process>, drive: &Rc<Opened>, unit: UnitId) {
    let Ok(directory) = directory(process, drive, unit).await else { return };
    let file = unit::unit_file(&unit);
    let standing = |object: &ObjectId| process.standing(*object, drive.index, &file);
    let objects = directory.objects();
    let is_unknown = objects.iter().any(|object| standing(object) == FileStanding::Unknown);
    if is_unknown || !process.claim_all(&objects) {
        return;
    }
    let is_missing = |object: &ObjectId| standing(object) == FileStanding::Missing;
    let adopted = chores::adopt_from(process, drive, &directory, is_missing).await;
    if adopted != Adopted::Interrupted {
        keep_only(process, drive, &directory, |_| true).await;
    }
    objects.iter().for_each(|object| process.release(*object));
}

/// Takes what a filler is about to fetch from a unit that is there already. True if something is
/// visible now. The caller has claimed all of it.
pub(crate) async fn take_up(process: &Rc<Process>, drive: &Rc<Opened>, unit: UnitId) -> bool {
    let Ok(directory) = directory(process, drive, unit).await else { return false };
    let adopted = chores::adopt_from(process, drive, &directory, |_| true).await;
    if adopted != Adopted::Interrupted {
        keep_only(process, drive, &directory, |_| true).await;
    }
    adopted == Adopted::Some
}

/// Why a unit does not say what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It was not there, or said nothing right: nothing is held in it any more.
    Lost,
    /// The drive failed, or somebody works on what is in it.
    NotNow,
}

/// What a unit says that it holds. What is held in one that says nothing right is set aside, and it
/// goes.
pub(crate) async fn directory(
    process: &Rc<Process>,
    drive: &Opened,
    unit: UnitId,
) -> Result<Directory, Unread> {
    match drive.read_directory(unit).await {
        Ok(directory) => return Ok(directory),
        Err(Wrong::Drive(ENOENT)) if !drive.has_marker() => process.set_aside(drive.index, ENOENT),
        Err(wrong @ (Wrong::Drive(ENOENT | EIO) | Wrong::Content)) => {
            if lose(process, drive, unit).await {
                // Counted once, when it went, however often it was looked at before.
                if wrong == Wrong::Drive(EIO)
                    && process.object_failed(drive.index) == Verdict::SetDriveAside
                {
                    process.set_aside(drive.index, EIO);
                }
                return Err(Unread::Lost);
            }
        }
        Err(Wrong::Drive(errno)) => process.drive_failed(drive.index, errno),
    }
    Err(Unread::NotNow)
}

/// All that is held in a unit is set aside, in one step, and the unit goes. False if that has to be
/// tried again.
async fn lose(process: &Rc<Process>, drive: &Opened, unit: UnitId) -> bool {
    let objects = drive.in_unit(unit);
    if !process.claim_all(&objects) {
        return false;
    }
    // Somebody may have filled it anew meanwhile.
    let is_lost = drive.read_directory(unit).await.is_err();
    let mut held = objects.clone();
    held.retain(|object| drive.entry(object).is_some_and(|entry| entry.unit == Some(unit)));
    let file = unit::unit_file(&unit);
    let is_lost = is_lost && chores::remove(process, drive, &file, held, true).await;
    objects.iter().for_each(|object| process.release(*object));
    process.replan();
    is_lost
}

/// Of what is held in a unit only what `choose` says stays. The caller has claimed all of it.
async fn keep_only(
    process: &Rc<Process>,
    drive: &Rc<Opened>,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> bool {
    let unit = directory.id();
    let file = unit::unit_file(&unit);
    let is_here = |object: &ObjectId| {
        let here = |extent: Extent| extent.drive == drive.index && extent.file == file;
        choose(object) && process.locate(object).is_some_and(here)
    };
    for object in drive.held_in(directory) {
        if choose(&object) && !is_here(&object) && !is_spare(process, object).await {
            return false;
        }
    }
    let fate = directory.fate(is_here);
    if drive.is_aside() {
        return false; // Nothing on it is held, and it may come back.
    }
    let copied = match &fate {
        Fate::Compact(places) => {
            let from = Source { drive, file: &file, places };
            let ended = copying::copy(process, from, drive, &choose).await;
            let copied = if ended == Ended::Copied { Bytes::of(places.len()).0 } else { 0 };
            process.world.count(|counts| counts.copied += copied);
            ended
        }
        Fate::Remove | Fate::Keep => Ended::Abandoned,
    };
    if copied == Ended::Copied {
        process.world.stage.sleep(LINGER).await;
    }
    if fate == Fate::Remove || copied == Ended::Copied {
        return chores::remove(process, drive, &file, drive.held_in(directory), true).await;
    }
    let mut useless = drive.held_in(directory);
    useless.retain(|object| !is_here(object));
    let settled = chores::remove(process, drive, &file, useless, false).await;
    if let Ended::Doubted(object, doubt) = copied {
        process.suspect(object, doubt);
    }
    settled
}

/// True of an object that need not be here, since the index has it nowhere, or a good copy of it
/// elsewhere.
async fn is_spare(process: &Rc<Process>, object: ObjectId) -> bool {
    if process.locate(&object).is_none() {
        return true;
    }
    match chores::other_copy(process, object).await {
        Other::Good => true,
        Other::NotNow => false,
        Other::Doubted(doubt) => {
            process.suspect(object, doubt);
            false
        }
    }
}

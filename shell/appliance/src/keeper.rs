//! Plans, and carries out what a plan asks for besides fetching: evictions and unwanted parts.
//! Looks at objects that a worker could not read.

use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::units::Nanos;
use store::layout;
use store::log::Change;
use store::publish::{Action, Event, Outcome, Removal};

use crate::adopt;
use crate::drives::{Drive, DriveError};
use crate::format::gigabytes;
use crate::shared::Shared;

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let mut without_room = 0;
    while shared.wait_for_planning() {
        let chores = shared.plan();
        without_room = say_what_finds_no_room(shared, without_room);
        for object in &chores.suspects {
            examine(shared, *object);
        }
        let mut done = 0;
        for (object, index) in &chores.drop_parts {
            done += usize::from(!shared.is_stopping() && drop_part(shared, *object, *index));
        }
        for object in &chores.evict {
            done += usize::from(!shared.is_stopping() && evict(shared, *object));
        }
        if 0 < done {
            tracing::info!(
                evicted = chores.evict.len(),
                parts = chores.drop_parts.len(),
                "no longer wanted"
            );
            shared.replan();
        }
    }
}

/// Reports objects that fit on no drive, when their number changes; returns it.
fn say_what_finds_no_room(shared: &Shared, said: u64) -> u64 {
    let report = shared.plan_report();
    let count = report.objects_without_room;
    if count != said && 0 < count {
        let bytes = gigabytes(report.bytes_without_room.0);
        tracing::warn!(objects = count, bytes = report.bytes_without_room.0, "drives are full");
        let text = format!("drives are full: {count} wanted objects ({bytes}) find no room");
        shared.note("fill", format!("{text}; add drives, or let this site hold less"));
    }
    count
}

/// Takes an object out of the index, off the log and off its drive. False if it stays.
pub(crate) fn evict(shared: &Shared, object: ObjectId) -> bool {
    if !shared.claim(object) {
        return false;
    }
    let gone = remove_claimed(shared, object);
    shared.release(object);
    gone
}

/// The same for an object that the caller has claimed.
pub(crate) fn remove_claimed(shared: &Shared, object: ObjectId) -> bool {
    let Some(extent) = shared.locate(&object) else { return false };
    let Some(drive) = shared.drive(extent.drive) else { return false };
    let mut removal = Removal::new(object);
    while let Some(action) = removal.poll() {
        let done = match action {
            Action::Hide => {
                shared.hide(object);
                Ok(())
            }
            Action::Log(change) => drive.log(change),
            Action::Unlink(file) => drive.unlink(&file),
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteFooter { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Show(_) => unreachable!("steps of a publication, not of a removal"),
        };
        removal.handle(match done {
            Ok(()) => Event::Done,
            Err(error) => {
                shared.drive_failed(drive, &error);
                Event::Failed(error.fault)
            }
        });
    }
    removal.outcome() == Some(Outcome::Complete)
}

/// Removes a copy that the shared index does not speak of. The caller has claimed the object.
pub(crate) fn drop_copy(shared: &Shared, drive: &Drive, object: ObjectId) {
    let dropped = || -> Result<(), DriveError> {
        if drive.has(&object) {
            drive.log(Change::Removed(object))?;
        }
        drive.unlink(&layout::object_file(&object))?;
        drive.sync_folder(&layout::object_folder(&object))
    };
    match dropped() {
        Ok(()) => tracing::info!(drive = %drive.marker().id, %object, "spare copy removed"),
        Err(error) => shared.drive_failed(drive, &error),
    }
}

/// Hides an object and removes what is left of it, so that it is filled again.
pub(crate) fn damaged(shared: &Shared, drive: &Drive, object: ObjectId, what: &str) {
    tracing::warn!(drive = %drive.marker().id, %object, what, "object damaged");
    if evict(shared, object) {
        let path = drive.path().display();
        shared.note("drive", format!("{path}: object {object} {what}; it is filled again"));
        shared.replan();
    }
}

/// A worker could not read this object: verifies it, and has it filled again unless all is right.
fn examine(shared: &Shared, object: ObjectId) {
    let Some(extent) = shared.locate(&object) else { return };
    let Some(drive) = shared.drive(extent.drive) else { return };
    match adopt::verified(shared, drive, object, Nanos(0)) {
        Ok(Some(_)) => tracing::info!(%object, "every block of it is right"),
        Ok(None) if shared.is_stopping() => {}
        Ok(None) => damaged(shared, drive, object, "is not what it should be"),
        Err(error) if error.is_missing() => damaged(shared, drive, object, "has no file"),
        Err(error) => shared.drive_failed(drive, &error),
    }
}

fn drop_part(shared: &Shared, object: ObjectId, index: DriveIndex) -> bool {
    let Some(drive) = shared.drive(index) else { return false };
    if !shared.claim(object) {
        return false;
    }
    let dropped = drive
        .unlink(&layout::part_file(&object))
        .and_then(|()| drive.sync_folder(&FileName(layout::FILL.into())));
    match &dropped {
        Ok(()) => shared.set_part(object, None),
        Err(error) => shared.drive_failed(drive, error),
    }
    shared.release(object);
    dropped.is_ok()
}

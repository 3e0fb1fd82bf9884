//! Plans, and carries out what a plan asks for besides fetching: evictions and unwanted parts.
//! Looks at objects that somebody doubts, and sets them aside: hidden, told to control, removed and
//! filled again.
//!
//! One thread plans and waits for no drive. What it finds is done by a thread for each drive, so
//! that one which hangs in the middle of it holds up nothing but itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use holdings::Doubt;
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use store::health::Verdict;
use store::layout;
use store::parcel::PartId;
use store::publish::{Action, Event, Outcome, Removal};
use store::unit;

use crate::drives::{Drive, DriveError, ObjectFileError};
use crate::format::gigabytes;
use crate::shared::Shared;
use crate::{adopt, units};

/// Plans until all must stop.
pub(crate) fn run(shared: &Shared) {
    let mut without_room = 0;
    while shared.wait_for_planning() {
        shared.plan();
        without_room = say_what_finds_no_room(shared, without_room);
    }
}

/// Does what plans ask for about one drive until all must stop.
pub(crate) fn tend(shared: &Shared, index: DriveIndex) {
    while let Some(chores) = shared.next_errand(index) {
        for (object, doubt) in &chores.suspects {
            examine(shared, *object, doubt);
        }
        let (mut done, due) = (0, chores.drop_parts.len() + chores.evict.len());
        for (part, index) in &chores.drop_parts {
            done += usize::from(!shared.is_stopping() && drop_part(shared, *part, *index));
        }
        // What dies together goes together, also what a plan has no place for.
        let (mut settled, mut old) = (BTreeMap::new(), VecDeque::new());
        for (object, _) in &chores.evict {
            let gone = !shared.is_stopping()
                && match units::place(shared, object) {
                    None => evict(shared, *object),
                    Some(place) => *settled
                        .entry(place)
                        .or_insert_with(|| units::settle(shared, place.0, place.1, &mut old)),
                };
            done += usize::from(gone);
        }
        old.into_iter().for_each(|unit| unit.remove(shared));
        if 0 < done {
            tracing::info!(
                drive = index.0,
                evicted = chores.evict.len(),
                parts = chores.drop_parts.len(),
                "no longer wanted"
            );
        }
        shared.errand_done(index, done, due - done);
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
    let Some(drive) = shared.answering(extent.drive) else { return false };
    // A unit goes with the last that is held in it; one that says nothing right, with the audit.
    let is_last = |unit| drive.read_directory(unit).is_ok_and(|of| drive.held_in(&of) == [object]);
    let whole = unit::of_file(&extent.file).is_none_or(is_last);
    remove(shared, &drive, &extent.file, vec![object], whole)
}

/// Takes objects of one file out of the index and off the log, and the file with them if they are
/// all that is held in it (`whole`). The caller has claimed them, and if `whole` all in the file.
pub(crate) fn remove(
    shared: &Shared,
    drive: &Drive,
    file: &FileName,
    objects: Vec<ObjectId>,
    whole: bool,
) -> bool {
    let mut removal = Removal::new(file.clone(), objects, whole);
    while let Some(action) = removal.poll() {
        let done = drive.check().and_then(|()| match action {
            Action::Hide(objects) => {
                // What a drive's log has here the index may have elsewhere.
                let is_here = |object: &&ObjectId| {
                    shared
                        .locate(object)
                        .is_some_and(|extent| extent.drive == drive.index() && extent.file == *file)
                };
                objects.iter().filter(is_here).for_each(|object| shared.hide(*object));
                Ok(())
            }
            Action::Log(changes) => drive.log(&changes),
            Action::Unlink(file) => drive.unlink(&file),
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteEnd { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Show(_) => unreachable!("steps of a publication, not of a removal"),
        });
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

/// Removes a copy in a file of its own that the shared index does not speak of; false if it stays.
/// The caller has claimed the object.
pub(crate) fn drop_copy(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    // What the drive's log has in a unit stays there.
    let logged = drive.entry(&object).filter(|entry| entry.unit.is_none()).map(|_| object);
    remove(shared, drive, &layout::object_file(&object), logged.into_iter().collect(), true)
}

/// Hides an object and removes what is left of it, so that it is filled again.
pub(crate) fn damaged(shared: &Shared, drive: &Drive, object: ObjectId, what: &str) {
    if shared.locate(&object).is_none_or(|extent| extent.drive != drive.index()) {
        return; // It was evicted while somebody looked at it.
    }
    tracing::warn!(drive = %drive.marker().id, %object, what, "object set aside");
    if evict(shared, object) {
        shared.integrity.objects_set_aside.fetch_add(1, Ordering::Relaxed);
        let path = drive.path().display();
        shared.note("drive", format!("{path}: object {object} {what}; it is filled again"));
        shared.replan();
    }
}

/// The file of an object could not be opened or read: the object is set aside, or its drive, if the
/// error speaks of the drive or too many objects failed before.
pub(crate) fn unreadable(shared: &Shared, drive: &Drive, object: ObjectId, error: &DriveError) {
    if error.is_missing() {
        missing(shared, drive, object);
    } else if error.is_one_place() {
        one_place_failed(shared, drive, object, &error.to_string());
    } else {
        shared.drive_failed(drive, error);
    }
}

/// An object has no file: it lost it, or the drive lost everything.
pub(crate) fn missing(shared: &Shared, drive: &Drive, object: ObjectId) {
    if drive.has_marker() {
        damaged(shared, drive, object, "has no file");
    } else {
        let reason =
            format!("its marker is gone, and the file of object {object}: was it unmounted?");
        shared.set_drive_aside(drive, &reason);
    }
}

/// One object is unreadable. If that is the place, it goes and the drive stays. If it is the drive,
/// that should be known before many viewers have met it: some others are tried at once.
fn one_place_failed(shared: &Shared, drive: &Drive, object: ObjectId, what: &str) {
    if !count_failure(shared, drive, object, what) {
        return;
    }
    for start in (0..LOOK_AROUND).map(|n| ObjectId([n * (u8::MAX / LOOK_AROUND); 32])) {
        let Some((other, extent)) = shared.next_on(drive.index(), Some(start)) else { continue };
        if !drive.answers(shared.now()) || shared.is_stopping() {
            return;
        }
        match drive.read_blocks(other, &extent) {
            Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
                count_failure(shared, drive, other, &error.to_string());
            }
            // Anything else that is wrong with it is found by those who look for that.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Objects that are tried when one is unreadable. More than are borne (`drives::HEALTH`).
const LOOK_AROUND: u8 = 6;

/// Sets the object aside, or the drive; false if the object was gone already.
fn count_failure(shared: &Shared, drive: &Drive, object: ObjectId, what: &str) -> bool {
    let indexed = shared.locate(&object).is_some_and(|extent| extent.drive == drive.index());
    if !indexed {
        return false; // Another viewer met it, and it is gone by now.
    }
    match drive.object_failed(shared.now()) {
        Verdict::SetObjectAside => {
            damaged(shared, drive, object, &format!("is unreadable: {what}"))
        }
        Verdict::SetDriveAside => {
            let reason = format!("too many objects are unreadable, at last {object}: {what}");
            shared.set_drive_aside(drive, &reason);
        }
    }
    true
}

/// Somebody doubts this object: verifies it, and has it filled again unless all is right.
fn examine(shared: &Shared, object: ObjectId, doubt: &Doubt) {
    let Some(extent) = shared.locate(&object) else { return };
    let Some(drive) = shared.answering(extent.drive) else { return };
    if let Doubt::Unreadable(what) = doubt {
        return one_place_failed(shared, &drive, object, what);
    }
    match adopt::verified(shared, &drive, object, &extent) {
        Ok(Some(_)) => tracing::info!(%object, "every block of it is right"),
        Ok(None) if shared.is_stopping() => {}
        Ok(None) => damaged(shared, &drive, object, "is not what it should be"),
        Err(error) => unreadable(shared, &drive, object, &error),
    }
}

fn drop_part(shared: &Shared, part: PartId, index: DriveIndex) -> bool {
    let Some(drive) = shared.answering(index) else { return false };
    if !shared.claim_part(part) {
        return false;
    }
    let dropped =
        drive.unlink(&part.file()).and_then(|()| drive.sync_folder(&FileName(layout::FILL.into())));
    match &dropped {
        Ok(()) => shared.dropped_part(part, index),
        Err(error) => shared.drive_failed(&drive, error),
    }
    shared.release_part(part);
    dropped.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Gate, Mode, Writes};
    use crate::mounts::Medium;
    use crate::shared::tests::{drives, manifest, put, shared_on};
    use iosched::drive::Class;
    use model::units::{BitsPerSecond, Bytes, Nanos};

    /// Until then something has to happen that takes milliseconds.
    fn wait(what: &str, mut done: impl FnMut() -> bool) {
        let began = std::time::Instant::now();
        while !done() {
            assert!(began.elapsed().as_secs() < 20, "waited in vain for {what}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    #[test]
    fn a_drive_that_hangs_in_a_delete_holds_up_no_other_and_no_plan() {
        let dir = tempfile::tempdir().unwrap();
        let mut drives = drives(dir.path(), 2);
        let held: Vec<_> =
            drives.iter().map(|drive| put(drive, &[7 + drive.index().0; 9])).collect();
        let (mode, targets, depth) = (Mode::Governor, vec![Nanos::millis(5)], 4);
        let writes = Writes { mode, targets, depth, rate: None, floor: BitsPerSecond(1) };
        let medium = Medium { target: Nanos::millis(5), deletes_alone: true };
        drives[0].put_behind(Gate::new(&writes.rules(0, &medium), Vec::new(), 0));
        let shared = shared_on(drives);
        shared.load(held.clone().into_iter());
        assert!(shared.set_manifest(manifest(1, &[])));
        let file = |n: usize| dir.path().join(n.to_string()).join(&*held[n].1.file.0);
        // A delete on the first waits for another that never ends, as it would in the kernel.
        let first = shared.drive(DriveIndex(0)).unwrap();
        let _hangs = first.gate().enter(Class::Delete, Bytes::ZERO);
        std::thread::scope(|scope| {
            // However this ends, the threads have to.
            let _stop = Stop(&shared);
            scope.spawn(|| run(&shared));
            for index in shared.drive_indexes() {
                let shared = &shared;
                scope.spawn(move || tend(shared, index));
            }
            wait("the second drive's file to go", || !file(1).exists());
            assert!(file(0).exists());
            let wanted = ObjectId([1; 32]);
            assert!(shared.set_manifest(manifest(2, &[(wanted, Bytes(5))])));
            wait("a plan", || shared.plan_report().objects_wanted == 1);
            assert!(file(0).exists(), "it is still being removed");
        });
    }

    struct Stop<'a>(&'a Shared);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
}

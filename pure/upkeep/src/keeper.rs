//! Carries out what plans ask for besides fetching: evictions and unwanted parts. Looks at objects
//! that somebody doubts, and sets them aside: hidden, told to control, removed and filled again.

use std::collections::{BTreeMap, VecDeque};

use holdings::Doubt;
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use store::health::Verdict;
use store::layout;
use store::parcel::PartId;
use store::unit;

use crate::cause::{Cause, DriveError, ObjectFileError};
use crate::drive::Drive;
use crate::host::{Host, Ledger};
use crate::told::Told;
use crate::{publish, read, units};

/// Objects that are tried when one is unreadable. More than a drive may lose before it is set
/// aside.
const LOOK_AROUND: u8 = 6;

/// Does what plans ask for about one drive until all must stop. A drive that hangs in the middle of
/// it holds up nothing but itself.
pub async fn tend<H: Host>(host: &H, index: DriveIndex) {
    while let Some(chores) = host.next_errand(index).await {
        for (object, doubt) in &chores.suspects {
            examine(host, *object, doubt).await;
        }
        let (mut done, due) = (0, chores.drop_parts.len() + chores.evict.len());
        let mut places = chores.drop_parts.iter().map(|(_, on)| on);
        assert!(places.all(|on| *on == index), "a drive that hangs holds up its own errands");
        for (part, index) in &chores.drop_parts {
            let is_gone = !host.is_stopping() && drop_part(host, *part, *index).await;
            done += usize::from(is_gone);
        }
        // Objects that die together go together, also those that a plan has no place for.
        let (mut settled, mut old) = (BTreeMap::new(), VecDeque::new());
        for (object, _) in &chores.evict {
            if host.is_stopping() {
                break;
            }
            let is_gone = match units::place(host, object) {
                None => evict(host, *object).await,
                Some(place) => match settled.get(&place) {
                    Some(is_settled) => *is_settled,
                    None => {
                        let is_settled = units::settle(host, place.0, place.1, &mut old).await;
                        settled.insert(place, is_settled);
                        is_settled
                    }
                },
            };
            done += usize::from(is_gone);
        }
        for unit in old {
            unit.remove(host).await;
        }
        assert!(done <= due, "each chore is done once");
        if 0 < done {
            host.tell(Told::Tended(index, &chores));
        }
        host.change(|holdings| holdings.errand_done(index, done, due - done));
    }
}

/// Takes an object out of the index, off the log and off its drive. False if it stays.
pub async fn evict<H: Host>(host: &H, object: ObjectId) -> bool {
    if !host.claim(object) {
        return false;
    }
    let is_gone = remove_claimed(host, object).await;
    host.release(object);
    is_gone
}

async fn remove_claimed<H: Host>(host: &H, object: ObjectId) -> bool {
    let Some(extent) = host.locate(&object) else { return false };
    let Some(drive) = host.answering(extent.drive) else { return false };
    // A unit goes with the last that is held in it; one that says nothing right, with the audit.
    let is_whole = match unit::of_file(&extent.file) {
        None => true,
        Some(unit) => {
            let directory = read::directory(&*drive, unit).await;
            directory.is_ok_and(|directory| drive.held_in(&directory) == [object])
        }
    };
    publish::remove(host, &*drive, &extent.file, &[object], is_whole).await
}

/// Hides an object and removes what is left of it, so that it is filled again.
pub async fn damaged<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, why: &str) {
    if host.locate(&object).is_none_or(|extent| extent.drive != drive.index()) {
        return; // It was evicted while somebody looked at it.
    }
    if evict(host, object).await {
        host.tell(Told::SetAside(drive, object, why));
        host.replan();
    }
}

/// The file of an object could not be opened or read: the object is set aside, or its drive, if the
/// error speaks of the drive or too many objects failed before.
pub async fn unreadable<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, error: &DriveError) {
    if error.is_missing() {
        missing(host, drive, object).await;
    } else if error.is_one_place() {
        one_place_failed(host, drive, object, &error.to_string()).await;
    } else {
        host.failed(drive, error).await;
    }
}

/// An object has no file: it lost it, or the drive lost everything.
pub async fn missing<H: Host>(host: &H, drive: &H::Drive, object: ObjectId) {
    if drive.has_marker().await {
        damaged(host, drive, object, "has no file").await;
    } else {
        host.set_aside(drive, Cause::Unmounted(layout::object_file(&object))).await;
    }
}

/// One object is unreadable. If that is the place, it goes and the drive stays. If it is the drive,
/// that should be known before many viewers have met it: some others are tried at once.
async fn one_place_failed<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, why: &str) {
    if !count_failure(host, drive, object, why).await {
        return;
    }
    for start in (0..LOOK_AROUND).map(|n| ObjectId([n * (u8::MAX / LOOK_AROUND); 32])) {
        let Some((other, extent)) = host.next_on(drive.index(), Some(start)) else { continue };
        if !host.answers(drive) || host.is_stopping() {
            return;
        }
        match read::blocks(drive, other, &extent).await {
            Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
                count_failure(host, drive, other, &error.to_string()).await;
            }
            // Anything else that is wrong with it is found by those who look for that.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Sets the object aside, or the drive; false if the object was gone already.
async fn count_failure<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, why: &str) -> bool {
    if host.locate(&object).is_none_or(|extent| extent.drive != drive.index()) {
        return false; // Another viewer met it, and it is gone by now.
    }
    match drive.object_failed(host.now()) {
        Verdict::SetObjectAside => {
            damaged(host, drive, object, &format!("is unreadable: {why}")).await;
        }
        Verdict::SetDriveAside => {
            host.set_aside(drive, Cause::Unreadable(object, why.to_owned())).await;
        }
    }
    true
}

/// Somebody doubts this object: verifies it, and has it filled again unless all is right.
async fn examine<H: Host>(host: &H, object: ObjectId, doubt: &Doubt) {
    let Some(extent) = host.locate(&object) else { return };
    let Some(drive) = host.answering(extent.drive) else { return };
    if let Doubt::Unreadable(why) = doubt {
        return one_place_failed(host, &*drive, object, why).await;
    }
    match read::verified(host, &*drive, object, &extent).await {
        Ok(Some(_)) => host.tell(Told::Right(object)),
        Ok(None) if host.is_stopping() => {}
        Ok(None) => damaged(host, &*drive, object, "is not what it should be").await,
        Err(error) => unreadable(host, &*drive, object, &error).await,
    }
}

async fn drop_part<H: Host>(host: &H, part: PartId, index: DriveIndex) -> bool {
    let Some(drive) = host.answering(index) else { return false };
    if !host.change(|holdings| holdings.claim_part(part)) {
        return false;
    }
    let folder = FileName(layout::FILL.into());
    let dropped = match drive.unlink(&part.file()).await {
        Ok(()) => drive.flush_folder(&folder).await,
        Err(error) => Err(error),
    };
    match &dropped {
        Ok(()) => host.dropped_part(part, index),
        Err(error) => host.failed(&drive, error).await,
    }
    host.change(|holdings| holdings.release_part(part));
    dropped.is_ok()
}

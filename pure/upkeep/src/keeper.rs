//! Plans, and carries out what plans ask for besides fetching: evictions and unwanted parts. Looks
//! at drives that may hang, and at objects that somebody doubts; sets these aside: hidden, told to
//! control, removed and filled again.

use std::collections::{BTreeMap, VecDeque};

use holdings::{Doubt, Holdings};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::units::Bytes;
use store::health::Verdict;
use store::layout;
use store::parcel::PartId;
use store::silence::Notice;
use store::unit;

use crate::cause::{Cause, DriveError, Errno, Fault, ObjectFileError};
use crate::drive::{Drive, Files};
use crate::host::{Host, Ledger, News};
use crate::told::Told;
use crate::{publish, read, units};

/// Objects that are tried when one is unreadable. More than a drive may lose before it is set
/// aside.
const LOOK_AROUND: u8 = 6;

/// Plans until all must stop. Waits for no drive.
pub async fn run<H: Host>(host: &H) {
    let mut without_room = 0;
    let mut began = host.now();
    while host.wait_changed(|holdings| holdings.plan_in(host.now(), began)).await {
        plan(host).await;
        let report = host.ask(|holdings| holdings.plan_report().clone());
        if report.objects_without_room != without_room {
            without_room = report.objects_without_room;
            host.tell(Told::WithoutRoom(&report));
        }
        began = host.now();
    }
}

/// Plans once: what to fetch goes to the fillers, what to do otherwise to each drive's own hands.
pub async fn plan<H: Host>(host: &H) {
    let free: Vec<Bytes> = host.spaces().iter().map(|space| space.free).collect();
    let some = |holdings: &mut Holdings| {
        let chores = holdings.plan_some(host.now(), &free, H::SLICE);
        let is_done = chores.is_some();
        chores.into_iter().for_each(|chores| holdings.hand_out(chores));
        is_done
    };
    host.in_slices(some).await;
    host.wake_hands();
}

/// Does what plans ask for about one drive until all must stop. A drive that hangs in the middle of
/// it holds up nothing but itself.
pub async fn tend<H: Host>(host: &H, index: DriveIndex) {
    while let Some(chores) = host.wait_for(News::HandedOut, |of| of.next_errand(index)).await {
        for (object, doubt) in &chores.suspects {
            if host.ask(|holdings| holdings.is_doubted(index, object)) {
                examine(host, *object, doubt).await;
            }
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
            // Deletes wait for their time, and a manifest may want it again since.
            if host.is_wanted(object) {
                continue;
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

/// Looks whether a drive in use hangs, which workers may have seen. One that does is not asked by
/// anybody who can help it, and control is not told of what is on it, so that players are sent
/// elsewhere. Its objects stay wanted there: it may answer again. If it does not for long, it is
/// set aside. Waits for no drive.
pub async fn look<H: Host>(host: &H, drive: &H::Drive, hangs: bool) {
    let now = host.now();
    let Some(notice) = drive.condition(|of| of.look(now, hangs)) else { return };
    if drive.is_aside() {
        return;
    }
    match notice {
        Notice::Hangs => {
            host.change(|holdings| holdings.withhold(drive.index(), true));
            host.tell(Told::Hangs(drive));
        }
        Notice::Answers => {
            host.change(|holdings| holdings.withhold(drive.index(), false));
            host.tell(Told::Answers(drive));
        }
        Notice::GivenUp => {
            let silence = drive.condition(|of| of.hangs(now)).expect("only what hangs is given up");
            host.set_aside(drive, Cause::Silent(silence)).await;
        }
    }
}

/// Hides an object, takes it off the drive's log and removes its file. False if the file may still
/// be there: the audit finds it.
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

/// Hides an object and removes what is left of it, so that it is filled again. Not if somebody
/// works on it: whoever meets it next says so again. Nor if it lies elsewhere by now, be it on the
/// same drive, or `is_so` is false then: it may have been filled again under the same name.
pub async fn damaged<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    why: &str,
    is_so: impl Future<Output = bool>,
) {
    if !host.claim(object) {
        return;
    }
    let lies_there = host.locate(&object).as_ref() == Some(extent);
    let is_gone = lies_there && is_so.await && remove_claimed(host, object).await;
    host.release(object);
    if is_gone {
        host.tell(Told::SetAside(drive, object, why));
        host.replan();
    }
}

/// Somebody found an object wrong. It goes if it still is when nobody else may work on it.
pub async fn wrong<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, why: &str) {
    let here = host.locate(&object).filter(|extent| extent.drive == drive.index());
    let Some(extent) = here else { return }; // It was evicted while somebody looked at it.
    let mut failed = None;
    let is_wrong = async {
        match read::verified(host, drive, object, &extent).await {
            Ok(found) => found.is_none() && !host.is_stopping(),
            Err(error) => {
                failed = Some(error);
                false
            }
        }
    };
    damaged(host, drive, object, &extent, why, is_wrong).await;
    if let Some(error) = failed {
        unreadable(host, drive, object, &extent, &error).await;
    }
}

/// The file of an object could not be opened or read: the object is set aside, or its drive, if the
/// error speaks of the drive or too many objects failed before.
pub async fn unreadable<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    error: &DriveError,
) {
    if error.is_missing() {
        missing(host, drive, object, extent).await;
    } else if error.is_one_place() {
        one_place_failed(host, drive, object, extent, &error.to_string()).await;
    } else if error.is_short() {
        let is_short = async {
            let found = read::verified(host, drive, object, extent).await;
            found.is_err_and(|error| error.is_short())
        };
        damaged(host, drive, object, extent, "has a file that is cut short", is_short).await;
    } else {
        host.failed(drive, error).await;
    }
}

/// Somebody who serves could not read an object there; `errno` is none if its file was too
/// short. What speaks of the drive takes that out of use; what may be one bad place takes the
/// object, and too many of these the drive; otherwise the object is looked at, and filled again if
/// it is missing, short or wrong. One that lies elsewhere by now is left out.
pub async fn read_failed<H: Host>(
    host: &H,
    object: ObjectId,
    extent: &Extent,
    errno: Option<Errno>,
) {
    let doubt = match errno {
        Some(errno) if errno.is_one_place() => Doubt::Unreadable(extent.clone(), errno.to_string()),
        Some(errno) if errno.fault() == Fault::SetAside => {
            let Some(drive) = host.drive(extent.drive) else { return };
            return host.set_aside(&drive, Cause::Unread(object, errno)).await;
        }
        Some(_) | None => Doubt::Suspect,
    };
    if host.locate(&object).as_ref() == Some(extent) {
        host.suspect(object, doubt);
    }
}

/// An object has no file: it lost it, or the drive lost everything.
pub async fn missing<H: Host>(host: &H, drive: &H::Drive, object: ObjectId, extent: &Extent) {
    if drive.has_marker().await {
        let is_missing = async {
            let found = drive.open(&extent.file).await;
            found.is_err_and(|error| error.is_missing())
        };
        damaged(host, drive, object, extent, "has no file", is_missing).await;
    } else {
        host.set_aside(drive, Cause::Unmounted(layout::object_file(&object))).await;
    }
}

/// One object is unreadable. If that is the place, it goes and the drive stays. If it is the drive,
/// that should be known before many viewers have met it: some others are tried at once.
async fn one_place_failed<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    why: &str,
) {
    if !count_failure(host, drive, object, extent, why).await {
        return;
    }
    for start in (0..LOOK_AROUND).map(|n| ObjectId([n * (u8::MAX / LOOK_AROUND); 32])) {
        let Some((other, extent)) = host.next_on(drive.index(), Some(start)) else { continue };
        if !host.answers(drive) || host.is_stopping() {
            return;
        }
        match read::blocks(drive, other, &extent).await {
            Err(ObjectFileError::Drive(error)) if error.is_one_place() => {
                count_failure(host, drive, other, &extent, &error.to_string()).await;
            }
            // Anything else that is wrong with it is found by those who look for that.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Sets the object aside, or the drive. False if the object was gone from there already, or
/// somebody works on it: an object counts once, when it goes, however many viewers met it.
async fn count_failure<H: Host>(
    host: &H,
    drive: &H::Drive,
    object: ObjectId,
    extent: &Extent,
    why: &str,
) -> bool {
    let mut verdict = None;
    let goes_alone = async {
        let said = drive.object_failed(host.now());
        verdict = Some(said);
        said == Verdict::SetObjectAside
    };
    let is_unreadable = format!("is unreadable: {why}");
    damaged(host, drive, object, extent, &is_unreadable, goes_alone).await;
    if verdict == Some(Verdict::SetDriveAside) {
        host.set_aside(drive, Cause::Unreadable(object, why.to_owned())).await;
    }
    verdict.is_some()
}

/// Somebody doubts this object: verifies it, and has it filled again unless all is right.
async fn examine<H: Host>(host: &H, object: ObjectId, doubt: &Doubt) {
    let Some(extent) = host.locate(&object) else { return };
    let Some(drive) = host.answering(extent.drive) else { return };
    if let Doubt::Unreadable(place, why) = doubt {
        return one_place_failed(host, &*drive, object, place, why).await;
    }
    match read::verified(host, &*drive, object, &extent).await {
        Ok(Some(_)) => host.tell(Told::Right(object)),
        Ok(None) if host.is_stopping() => {}
        Ok(None) => wrong(host, &*drive, object, "is not what it should be").await,
        Err(error) => unreadable(host, &*drive, object, &extent, &error).await,
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

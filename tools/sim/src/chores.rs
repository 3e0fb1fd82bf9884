//! What a process does besides fetching: plans, evicts, adopts, looks at what somebody doubts,
//! audits, scrubs, verifies samples. The counterparts of `keeper.rs`, `adopt.rs`, `audit.rs`,
//! `scrub.rs` and `verify.rs` in `shell/appliance`.

use std::collections::BTreeSet;
use std::rc::Rc;

use holdings::{Doubt, FileStanding};
use iosched::drive::Class;
use model::extent::DriveIndex;
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::object::block_hash;
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::log::Change;
use store::publish::{Action, Event, Outcome, Publication, Removal};

use crate::drive::{EIO, ENOENT, Errno};
use crate::filler::fault_of;
use crate::opened::{Opened, Wrong, names};
use crate::oracle;
use crate::process::{Process, Sample};

/// Plans, and carries out what a plan asks for besides fetching.
pub(crate) async fn keep(process: Rc<Process>) {
    loop {
        process.wait_for_planning().await;
        let chores = process.plan();
        for (object, doubt) in &chores.suspects {
            examine(&process, *object, doubt).await;
        }
        let (mut done, due) = (0, chores.drop_parts.len() + chores.evict.len());
        for (object, index) in &chores.drop_parts {
            done += usize::from(drop_part(&process, *object, *index).await);
        }
        for object in &chores.evict {
            done += usize::from(evict(&process, *object).await);
        }
        process.put_off(due - done);
        if 0 < done {
            process.replan();
        }
    }
}

/// Takes an object out of the index, off the log and off its drive. False if it stays.
async fn evict(process: &Rc<Process>, object: ObjectId) -> bool {
    if !process.claim(object) {
        return false;
    }
    let gone = remove_claimed(process, object).await;
    process.release(object);
    gone
}

async fn remove_claimed(process: &Rc<Process>, object: ObjectId) -> bool {
    let Some(extent) = process.locate(&object) else { return false };
    let Some(drive) = process.answering(extent.drive) else { return false };
    process.world.count(|counts| counts.evicted += 1);
    let mut removal = Removal::new(object);
    while let Some(action) = removal.poll() {
        let done = match action {
            Action::Hide => {
                process.hide(object);
                Ok(())
            }
            Action::Log(change) => drive.log(change).await,
            Action::Unlink(file) => drive.unlink(&file.0).await,
            Action::SyncFolder(folder) => drive.drive.sync_folder(&folder.0).await,
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteFooter { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Show(_) => unreachable!("steps of a publication, not of a removal"),
        };
        removal.handle(match done {
            Ok(()) => Event::Done,
            Err(errno) => {
                process.drive_failed(drive.index, errno);
                Event::Failed(fault_of(errno))
            }
        });
    }
    removal.outcome() == Some(Outcome::Complete)
}

async fn drop_part(process: &Rc<Process>, object: ObjectId, index: DriveIndex) -> bool {
    let Some(drive) = process.answering(index) else { return false };
    if !process.claim(object) {
        return false;
    }
    let mut dropped = drive.unlink(&layout::part_file(&object).0).await;
    if dropped.is_ok() {
        dropped = drive.drive.sync_folder(layout::FILL).await;
    }
    match dropped {
        Ok(()) => process.set_part(object, None),
        Err(errno) => process.drive_failed(index, errno),
    }
    process.release(object);
    dropped.is_ok()
}

/// Removes a copy that the shared index does not speak of. The caller has claimed the object.
pub(crate) async fn drop_copy(process: &Rc<Process>, drive: &Opened, object: ObjectId) {
    oracle::is_spare(process, drive, object);
    let dropped = async {
        if drive.has(&object) {
            drive.log(Change::Removed(object)).await?;
        }
        drive.unlink(&layout::object_file(&object).0).await?;
        drive.drive.sync_folder(&layout::object_folder(&object).0).await
    };
    if let Err(errno) = dropped.await {
        process.drive_failed(drive.index, errno);
    }
}

/// Verifies an object's file on this drive and publishes it; removes what is not the object. True
/// if it is visible now. The caller has claimed it.
pub(crate) async fn adopt(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId) -> bool {
    match drive.verified(object).await {
        Ok(Some(blocks)) => return publish(process, drive, object, blocks.len()).await,
        Ok(None) => drop_copy(process, drive, object).await,
        Err(ENOENT) => {}
        Err(EIO) if process.object_failed(drive.index) == Verdict::SetObjectAside => {
            drop_copy(process, drive, object).await;
        }
        Err(errno) => process.drive_failed(drive.index, errno),
    }
    false
}

async fn publish(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId, len: Bytes) -> bool {
    let mut publication = Publication::adopt(object, len, drive.index);
    let mut shown = false;
    while let Some(action) = publication.poll() {
        let done = match action {
            Action::SyncFolder(folder) => drive.drive.sync_folder(&folder.0).await,
            Action::Log(change) => drive.log(change).await,
            Action::Show(extent) => {
                oracle::is_durable(process, drive, object);
                process.publish(object, extent, None);
                shown = true;
                Ok(())
            }
            Action::Unlink(file) => drive.unlink(&file.0).await,
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteFooter { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Hide => unreachable!("an adopted file is written and has its name"),
        };
        publication.handle(match done {
            Ok(()) => Event::Done,
            Err(errno) => {
                process.drive_failed(drive.index, errno);
                Event::Failed(fault_of(errno))
            }
        });
    }
    shown
}

/// Hides an object and removes what is left of it, so that it is filled again.
async fn damaged(process: &Rc<Process>, drive: DriveIndex, object: ObjectId) {
    if process.locate(&object).is_some_and(|extent| extent.drive == drive) {
        process.say(|| format!("sets {object} aside"));
        if evict(process, object).await {
            process.replan();
        }
    }
}

/// The file of an object could not be opened or read.
async fn unreadable(process: &Rc<Process>, drive: &Opened, object: ObjectId, errno: Errno) {
    match errno {
        ENOENT if drive.has_marker() => damaged(process, drive.index, object).await,
        ENOENT => process.set_aside(drive.index, errno),
        EIO => one_place_failed(process, drive.index, object).await,
        _ => process.drive_failed(drive.index, errno),
    }
}

async fn one_place_failed(process: &Rc<Process>, drive: DriveIndex, object: ObjectId) {
    if process.locate(&object).is_none_or(|extent| extent.drive != drive) {
        return; // Another viewer met it, and it is gone by now.
    }
    match process.object_failed(drive) {
        Verdict::SetObjectAside => damaged(process, drive, object).await,
        Verdict::SetDriveAside => process.set_aside(drive, EIO),
    }
}

async fn examine(process: &Rc<Process>, object: ObjectId, doubt: &Doubt) {
    let Some(extent) = process.locate(&object) else { return };
    let Some(drive) = process.answering(extent.drive) else { return };
    if matches!(doubt, Doubt::Unreadable(_)) {
        return one_place_failed(process, extent.drive, object).await;
    }
    match drive.verified(object).await {
        Ok(Some(_)) => {}
        Ok(None) => damaged(process, extent.drive, object).await,
        Err(errno) => unreadable(process, &drive, object, errno).await,
    }
}

/// Hands out small objects, then compares the index with the files, again and again.
pub(crate) async fn audit(process: Rc<Process>) {
    for (object, extent) in process.published() {
        if SMALL_OBJECT_MAX < extent.len {
            continue;
        }
        let Some(drive) = process.answering(extent.drive) else { continue };
        match read_small(&drive, object, extent.len).await {
            Ok(bytes) if *blake3::hash(&bytes).as_bytes() == object.0 => {
                process.publish_small(object, &extent, &bytes);
            }
            Ok(_) => damaged(&process, extent.drive, object).await,
            Err(errno) => unreadable(&process, &drive, object, errno).await,
        }
    }
    loop {
        for drive in process.all_answering() {
            walk(&process, &drive).await;
        }
        process.world.stage.sleep(Nanos::seconds(20)).await;
    }
}

async fn read_small(drive: &Opened, object: ObjectId, len: Bytes) -> Result<Vec<u8>, Errno> {
    let file = drive.drive.open(&layout::object_file(&object).0).await?;
    let padded = len.align_up(DIRECT_ALIGN);
    let mut bytes = drive.drive.read(file, Bytes(0), padded, <[u8]>::to_vec).await?;
    bytes.truncate(len.as_usize());
    Ok(bytes)
}

async fn walk(process: &Rc<Process>, drive: &Rc<Opened>) {
    let expected = process.published();
    if let Err(errno) = drive.drive.list(layout::OBJECTS).await {
        process.drive_failed(drive.index, errno);
        return;
    }
    let seen: BTreeSet<ObjectId> = names(&drive.drive).into_iter().collect();
    for object in &seen {
        if drive.is_aside() {
            return;
        }
        look_at_file(process, drive, *object).await;
    }
    for (object, extent) in expected {
        let is_here = extent.drive == drive.index && !seen.contains(&object);
        if is_here && process.locate(&object) == Some(extent) {
            unreadable(process, drive, object, ENOENT).await;
        }
    }
}

async fn look_at_file(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId) {
    match process.claim_file(object, drive.index) {
        FileStanding::Busy | FileStanding::Unknown => return,
        FileStanding::Indexed => return check_len(process, drive, object).await,
        FileStanding::Spare | FileStanding::Unwanted => drop_copy(process, drive, object).await,
        FileStanding::Missing => {
            adopt(process, drive, object).await;
        }
    }
    process.release(object);
}

async fn check_len(process: &Rc<Process>, drive: &Opened, object: ObjectId) {
    let Some(extent) = process.locate(&object) else { return };
    match drive.drive.open(&extent.file.0).await {
        Ok(file) => {
            let len = Bytes::of(drive.drive.with_files(|files| files.len(file)));
            if len != layout::sections(extent.len).file_len {
                damaged(process, drive.index, object).await;
            }
        }
        // It may just have been evicted; if it was not, the listing says so next time.
        Err(ENOENT) => {}
        Err(errno) => unreadable(process, drive, object, errno).await,
    }
}

/// Reads a drive from end to end, all the time: every block against its hash.
pub(crate) async fn scrub(process: Rc<Process>, drive: Rc<Opened>) {
    let mut after = None;
    while !drive.is_aside() {
        let Some((object, extent)) = process.next_on(drive.index, after) else {
            after = None;
            process.world.stage.sleep(Nanos::seconds(15)).await;
            continue;
        };
        after = Some(object);
        match drive.read_blocks(object).await {
            Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => {}
            Err(Wrong::Drive(errno)) => {
                unreadable(&process, &drive, object, errno).await;
                continue;
            }
            Ok(_) | Err(Wrong::Content) => {
                damaged(&process, drive.index, object).await;
                continue;
            }
        }
        match drive.verified(object).await {
            Ok(Some(_)) => {}
            Ok(None) => damaged(&process, drive.index, object).await,
            Err(errno) => unreadable(&process, &drive, object, errno).await,
        }
        process.world.stage.sleep(Nanos::millis(50)).await;
    }
}

/// Verifies blocks that viewers were sent.
pub(crate) async fn verify(process: Rc<Process>) {
    loop {
        let sample = process.next_sample().await;
        let here = process.locate(&sample.object);
        let here = here.filter(|extent| extent.drive == sample.drive);
        let Some(drive) = here.and_then(|extent| process.answering(extent.drive)) else { continue };
        match is_right(&drive, &sample).await {
            Ok(true) => {}
            Ok(false) => process.suspect(sample.object, Doubt::Suspect),
            Err(errno) => unreadable(&process, &drive, sample.object, errno).await,
        }
    }
}

async fn is_right(drive: &Opened, sample: &Sample) -> Result<bool, Errno> {
    let blocks = match drive.read_blocks(sample.object).await {
        Ok(blocks) => blocks,
        Err(Wrong::Drive(errno)) => return Err(errno),
        Err(Wrong::Content) => return Ok(false),
    };
    let index = Bytes(sample.block).as_usize();
    let Some(wanted) = blocks.hashes().get(index) else { return Ok(false) };
    if let Some(hash) = sample.hash {
        return Ok(hash == wanted.0);
    }
    let file = drive.drive.open(&layout::object_file(&sample.object).0).await?;
    let bytes = drive.read_block(Class::Scrub, file, sample.len, sample.block).await?;
    Ok(block_hash(sample.block, &bytes, blocks.hashes().len() == 1) == *wanted)
}

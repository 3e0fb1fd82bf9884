//! What a process does besides fetching: plans, evicts, adopts, looks at what somebody doubts,
//! audits, scrubs, verifies samples. The counterparts of `keeper.rs`, `adopt.rs`, `audit.rs`,
//! `scrub.rs` and `verify.rs` in `shell/appliance`.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use holdings::{Doubt, FileStanding};
use iosched::drive::Class;
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::object::block_hash;
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::log::{Change, Entry};
use store::parcel::{Parcel, PartId};
use store::publish::{Action, Event, Outcome, Publication, Removal};
use store::unit::{self, Directory};

use crate::drive::{EIO, ENODEV, ENOENT, Errno};
use crate::filler::fault_of;
use crate::opened::{self, Opened, Wrong, names};
use crate::oracle;
use crate::process::{Process, Sample};
use crate::units;

/// Plans, some objects at a time.
pub(crate) async fn keep(process: Rc<Process>) {
    loop {
        process.wait_for_planning().await;
        process.plan().await;
    }
}

/// Does what plans ask for about one drive.
pub(crate) async fn tend(process: Rc<Process>, index: DriveIndex) {
    loop {
        let chores = process.next_errand(index).await;
        for (object, doubt) in &chores.suspects {
            examine(&process, *object, doubt).await;
        }
        let (mut done, due) = (0, chores.drop_parts.len() + chores.evict.len());
        for (part, index) in &chores.drop_parts {
            done += usize::from(drop_part(&process, *part, *index).await);
        }
        let mut settled = BTreeMap::new();
        for (object, _) in &chores.evict {
            let gone = match units::place(&process, object) {
                None => evict(&process, *object).await,
                Some(place) => match settled.get(&place) {
                    Some(gone) => *gone,
                    None => {
                        let gone = units::settle(&process, place.0, place.1).await;
                        settled.insert(place, gone);
                        gone
                    }
                },
            };
            done += usize::from(gone);
        }
        process.errand_done(index, done, due - done);
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
    // A unit goes with the last that is held in it; one that says nothing right, with the audit.
    let whole = match unit::of_file(&extent.file) {
        Some(unit) => {
            let directory = drive.read_directory(unit).await;
            directory.is_ok_and(|directory| drive.held_in(&directory) == [object])
        }
        None => true,
    };
    remove(process, &drive, &extent.file, vec![object], whole).await
}

/// Takes objects of one file out of the index and off the log, and the file with them if they are
/// all that is held in it (`whole`). The caller has claimed them, and if `whole` all in the file.
pub(crate) async fn remove(
    process: &Rc<Process>,
    drive: &Opened,
    file: &FileName,
    objects: Vec<ObjectId>,
    whole: bool,
) -> bool {
    process.world.count(|counts| counts.evicted += Bytes::of(objects.len()).0);
    let mut removal = Removal::new(file.clone(), objects, whole);
    while let Some(action) = removal.poll() {
        let done = match action {
            _ if drive.is_aside() => Err(ENODEV),
            Action::Hide(objects) => {
                let is_here = |object: &&ObjectId| {
                    process
                        .locate(object)
                        .is_some_and(|extent| extent.drive == drive.index && extent.file == *file)
                };
                objects.iter().filter(is_here).for_each(|object| process.hide(*object));
                Ok(())
            }
            Action::Log(changes) => drive.log(&changes).await,
            Action::Unlink(file) => drive.unlink(&file.0).await,
            Action::SyncFolder(folder) => drive.drive.sync_folder(&folder.0).await,
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteEnd { .. }
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

async fn drop_part(process: &Rc<Process>, part: PartId, index: DriveIndex) -> bool {
    let Some(drive) = process.answering(index) else { return false };
    if !process.claim_part(part) {
        return false;
    }
    let mut dropped = drive.unlink(&part.file().0).await;
    if dropped.is_ok() {
        dropped = drive.drive.sync_folder(layout::FILL).await;
    }
    match dropped {
        Ok(()) => process.dropped_part(part, index),
        Err(errno) => process.drive_failed(index, errno),
    }
    process.release_part(part);
    dropped.is_ok()
}

/// Removes a copy that the shared index does not speak of. The caller has claimed the object.
pub(crate) async fn drop_copy(process: &Rc<Process>, drive: &Opened, object: ObjectId) {
    let file = layout::object_file(&object);
    oracle::is_spare(process, drive, object, &file);
    let dropped = async {
        if drive.entry(&object).is_some_and(|entry| entry.unit.is_none()) {
            drive.log(&[Change::Removed(object)]).await?;
        }
        drive.unlink(&file.0).await?;
        drive.drive.sync_folder(&layout::folder_of(&file).0).await
    };
    if let Err(errno) = dropped.await {
        process.drive_failed(drive.index, errno);
    }
}

/// What came of looking for what is right in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// Some of it is visible now.
    Some,
    /// Nothing of what was looked for is right.
    Nothing,
    /// It is not known what is right: the drive failed.
    Interrupted,
}

/// Verifies an object's own file on this drive and publishes it; removes what is not the object.
/// True if it is visible now. The caller has claimed it.
pub(crate) async fn adopt(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId) -> bool {
    match own_file(drive, object).await {
        Ok(Some(len)) => {
            let parcel = Parcel::Alone(object, len);
            let entries = parcel.entries();
            return publish(process, drive, parcel, entries).await;
        }
        Ok(None) => drop_copy(process, drive, object).await,
        Err(ENOENT) => {}
        Err(EIO) if process.object_failed(drive.index) == Verdict::SetObjectAside => {
            drop_copy(process, drive, object).await;
        }
        Err(errno) => process.drive_failed(drive.index, errno),
    }
    false
}

/// The same for those of a unit's objects that `choose` wants, all in one step. The caller has
/// claimed all that the unit has.
pub(crate) async fn adopt_from(
    process: &Rc<Process>,
    drive: &Rc<Opened>,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> Adopted {
    let mut right = Vec::new();
    for (object, entry) in directory.entries().into_iter().filter(|(object, _)| choose(object)) {
        match drive.verified(object, &entry.extent(&object, drive.index)).await {
            Ok(Some(_)) => right.push((object, entry)),
            Ok(None) => {}
            Err(EIO) if process.object_failed(drive.index) == Verdict::SetObjectAside => {}
            Err(errno) => {
                process.drive_failed(drive.index, errno);
                return Adopted::Interrupted;
            }
        }
    }
    if right.is_empty() {
        return Adopted::Nothing;
    }
    let parcel = Parcel::Unit(directory.clone());
    let is_shown = publish(process, drive, parcel, right).await;
    if is_shown { Adopted::Some } else { Adopted::Interrupted }
}

/// How long the object is whose own file this is, if every block of it is right.
async fn own_file(drive: &Opened, object: ObjectId) -> Result<Option<Bytes>, Errno> {
    let footer = match drive.read_footer(&layout::object_file(&object)).await {
        Ok(footer) if footer.object == object => footer,
        Err(Wrong::Drive(errno)) => return Err(errno),
        Ok(_) | Err(Wrong::Content) => return Ok(None),
    };
    let extent = Entry::alone(footer.len).extent(&object, drive.index);
    Ok(drive.verified(object, &extent).await?.map(|blocks| blocks.len()))
}

async fn publish(
    process: &Rc<Process>,
    drive: &Rc<Opened>,
    parcel: Parcel,
    entries: Vec<(ObjectId, Entry)>,
) -> bool {
    let mut publication = Publication::adopt(parcel, entries, drive.index);
    let mut shown = false;
    while let Some(action) = publication.poll() {
        let done = match action {
            _ if drive.is_aside() => Err(ENODEV),
            Action::SyncFolder(folder) => drive.drive.sync_folder(&folder.0).await,
            Action::Log(changes) => drive.log(&changes).await,
            Action::Show(objects) => {
                shown = objects.into_iter().all(|(object, extent)| {
                    oracle::is_durable(process, drive, object, &extent);
                    process.publish(object, extent, None)
                });
                Ok(())
            }
            Action::Unlink(_)
            | Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteEnd { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Hide(_) => {
                unreachable!("an adopted file is written, has its name, and stays")
            }
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
pub(crate) async fn damaged(process: &Rc<Process>, drive: DriveIndex, object: ObjectId) {
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
    match drive.verified(object, &extent).await {
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
        give_small(&process, &drive, object, &extent).await;
    }
    loop {
        for drive in process.all_answering() {
            walk(&process, &drive).await;
        }
        process.world.stage.sleep(Nanos::seconds(20)).await;
    }
}

/// Reads a small object, verifies it and hands it out, if there is room for it.
pub(crate) async fn give_small(
    process: &Rc<Process>,
    drive: &Opened,
    object: ObjectId,
    extent: &Extent,
) {
    if !process.has_small_room(extent.len) {
        return;
    }
    match read_small(drive, extent).await {
        Ok(bytes) if *blake3::hash(&bytes).as_bytes() == object.0 => {
            process.publish_small(object, extent, &bytes);
        }
        Ok(_) | Err(ENOENT) => process.suspect(object, Doubt::Suspect),
        Err(EIO) => process.suspect(object, Doubt::Unreadable(String::new())),
        Err(errno) => process.drive_failed(drive.index, errno),
    }
}

async fn read_small(drive: &Opened, extent: &Extent) -> Result<Vec<u8>, Errno> {
    let file = drive.drive.open(&extent.file.0).await?;
    let padded = extent.len.align_up(DIRECT_ALIGN);
    let mut bytes = drive.drive.read(file, extent.offset, padded, <[u8]>::to_vec).await?;
    bytes.truncate(extent.len.as_usize());
    Ok(bytes)
}

async fn walk(process: &Rc<Process>, drive: &Rc<Opened>) {
    let expected = process.published();
    if let Err(errno) = drive.drive.list(layout::OBJECTS).await {
        process.drive_failed(drive.index, errno);
        return;
    }
    let mut seen: BTreeSet<FileName> = BTreeSet::new();
    for object in names(&drive.drive) {
        if drive.is_aside() {
            return;
        }
        seen.insert(layout::object_file(&object));
        look_at_file(process, drive, object).await;
    }
    for unit in opened::units(&drive.drive) {
        if drive.is_aside() {
            return;
        }
        seen.insert(unit::unit_file(&unit));
        units::audit(process, drive, unit).await;
    }
    for (object, extent) in expected {
        let is_here = extent.drive == drive.index && !seen.contains(&extent.file);
        if is_here && process.locate(&object) == Some(extent) {
            unreadable(process, drive, object, ENOENT).await;
        }
    }
}

async fn look_at_file(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId) {
    match process.claim_file(object, drive.index, &layout::object_file(&object)) {
        FileStanding::Busy | FileStanding::Unsure | FileStanding::Unknown => return,
        FileStanding::Indexed => return check_len(process, drive, object).await,
        FileStanding::Spare => match other_copy(process, object).await {
            Other::Good => drop_copy(process, drive, object).await,
            Other::NotNow => {}
            Other::Doubted(doubt) => {
                process.release(object);
                return process.suspect(object, doubt);
            }
        },
        FileStanding::Unwanted => drop_copy(process, drive, object).await,
        FileStanding::Missing => {
            adopt(process, drive, object).await;
        }
    }
    process.release(object);
}

/// What is known of the copy of an object that the index has.
pub(crate) enum Other {
    /// Every block of it is right.
    Good,
    /// Its drive does not answer or failed, or it went.
    NotNow,
    /// It is not right.
    Doubted(Doubt),
}

/// Reads the copy of an object that the index has, before another is removed as spare.
pub(crate) async fn other_copy(process: &Rc<Process>, object: ObjectId) -> Other {
    let Some(extent) = process.locate(&object) else { return Other::NotNow };
    let Some(drive) = process.answering(extent.drive) else { return Other::NotNow };
    match drive.verified(object, &extent).await {
        Ok(Some(_)) => {
            let answers = process.answering(extent.drive).is_some();
            let is_there = answers && process.locate(&object) == Some(extent);
            if is_there { Other::Good } else { Other::NotNow }
        }
        Ok(None) | Err(ENOENT) => Other::Doubted(Doubt::Suspect),
        Err(EIO) => Other::Doubted(Doubt::Unreadable(String::new())),
        Err(errno) => {
            process.drive_failed(drive.index, errno);
            Other::NotNow
        }
    }
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
pub(crate) async fn scrub(process: Rc<Process>, index: DriveIndex) {
    let mut after = None;
    loop {
        let Some((object, extent)) = process.next_on(index, after) else {
            after = None;
            process.world.stage.sleep(Nanos::seconds(15)).await;
            continue;
        };
        let Some(drive) = process.drive(index) else { continue };
        after = Some(object);
        match drive.read_blocks(object, &extent).await {
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
        match drive.verified(object, &extent).await {
            Ok(Some(_)) => {}
            Ok(None) => damaged(&process, drive.index, object).await,
            Err(errno) => unreadable(&process, &drive, object, errno).await,
        }
        drop(drive);
        process.world.stage.sleep(Nanos::millis(50)).await;
    }
}

/// Verifies blocks that viewers were sent.
pub(crate) async fn verify(process: Rc<Process>) {
    loop {
        let sample = process.next_sample().await;
        let here = process.locate(&sample.object);
        let here = here.filter(|extent| extent.drive == sample.drive);
        let Some(extent) = here else { continue };
        let Some(drive) = process.answering(extent.drive) else { continue };
        match is_right(&drive, &extent, &sample).await {
            Ok(true) => {}
            Ok(false) => process.suspect(sample.object, Doubt::Suspect),
            Err(errno) => unreadable(&process, &drive, sample.object, errno).await,
        }
    }
}

async fn is_right(drive: &Opened, extent: &Extent, sample: &Sample) -> Result<bool, Errno> {
    let blocks = match drive.read_blocks(sample.object, extent).await {
        Ok(blocks) => blocks,
        Err(Wrong::Drive(errno)) => return Err(errno),
        Err(Wrong::Content) => return Ok(false),
    };
    let index = Bytes(sample.block).as_usize();
    let Some(wanted) = blocks.hashes().get(index) else { return Ok(false) };
    if let Some(hash) = sample.hash {
        return Ok(hash == wanted.0);
    }
    let file = drive.drive.open(&extent.file.0).await?;
    let place = (extent.offset, sample.len);
    let bytes = drive.read_block(Class::Scrub, file, place, sample.block).await?;
    Ok(block_hash(sample.block, &bytes, blocks.hashes().len() == 1) == *wanted)
}

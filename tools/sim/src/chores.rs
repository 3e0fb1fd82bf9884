//! What a process does besides: plans, audits, scrubs, verifies samples. The counterparts of
//! `keeper.rs`, `audit.rs`, `scrub.rs` and `verify.rs` in `shell/appliance`.

use std::collections::BTreeSet;
use std::rc::Rc;

use holdings::{Doubt, FileStanding};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::limits::SMALL_OBJECT_MAX;
use model::object::{BLOCK_LEN, block_hash};
use model::units::{Bytes, Nanos};
use store::layout;
use store::unit;
use upkeep::adopt::{self, Other};
use upkeep::{
    DriveError, Files as _, Ledger as _, ObjectFileError, keeper, publish, read, small, units,
};

use crate::opened::{self, Opened, names};
use crate::process::{Process, Sample};

/// Plans, some objects at a time.
pub(crate) async fn keep(process: Rc<Process>) {
    loop {
        process.wait_for_planning().await;
        process.plan().await;
    }
}

/// Hands out small objects, then compares the index with the files, again and again.
pub(crate) async fn audit(process: Rc<Process>) {
    let mut buffer = Opened::pages(SMALL_OBJECT_MAX);
    for (object, extent) in process.published() {
        if SMALL_OBJECT_MAX < extent.len {
            continue;
        }
        let Some(drive) = process.answering(extent.drive) else { continue };
        small::give(&*process, &*drive, object, &extent, &mut buffer).await;
    }
    loop {
        for drive in process.all_answering() {
            walk(&process, &drive).await;
        }
        process.world.stage.sleep(Nanos::seconds(20)).await;
    }
}

async fn walk(process: &Rc<Process>, drive: &Rc<Opened>) {
    let expected = process.published();
    if let Err(error) = drive.list(&FileName(layout::OBJECTS.into())).await {
        return process.failed(drive, &error).await;
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
        units::audit(&**process, &**drive, unit).await;
    }
    for (object, extent) in expected {
        let is_here = extent.drive == drive.index && !seen.contains(&extent.file);
        if is_here && process.locate(&object) == Some(extent) {
            keeper::missing(&**process, &**drive, object).await;
        }
    }
}

async fn look_at_file(process: &Rc<Process>, drive: &Rc<Opened>, object: ObjectId) {
    let (process, drive) = (&**process, &**drive);
    match process.claim_file(object, drive.index, &layout::object_file(&object)) {
        FileStanding::Busy | FileStanding::Unsure | FileStanding::Unknown => return,
        FileStanding::Indexed => return check_len(process, drive, object).await,
        FileStanding::Spare => match adopt::other_copy(process, object).await {
            Other::Good => {
                publish::drop_copy(process, drive, object).await;
            }
            Other::NotNow => {}
            Other::Doubted(doubt) => {
                process.release(object);
                return process.suspect(object, doubt);
            }
        },
        FileStanding::Unwanted => {
            publish::drop_copy(process, drive, object).await;
        }
        FileStanding::Missing => {
            adopt::adopt(process, drive, object).await;
        }
    }
    process.release(object);
}

async fn check_len(process: &Process, drive: &Opened, object: ObjectId) {
    let Some(extent) = process.locate(&object) else { return };
    match drive.open(&extent.file).await {
        Ok(file) => {
            let len = drive.len(&file).await;
            if len != Ok(layout::sections(extent.len).file_len) {
                let why = "has a file of the wrong size";
                keeper::damaged(process, drive, object, why).await;
            }
        }
        // It may just have been evicted; if it was not, the listing says so next time.
        Err(error) if error.is_missing() => {}
        Err(error) => keeper::unreadable(process, drive, object, &error).await,
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
        match read::verified(&*process, &*drive, object, &extent).await {
            Ok(Some(_)) => {}
            Ok(None) => keeper::damaged(&*process, &*drive, object, "is wrong").await,
            Err(error) => keeper::unreadable(&*process, &*drive, object, &error).await,
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
            Err(error) => keeper::unreadable(&*process, &*drive, sample.object, &error).await,
        }
    }
}

async fn is_right(drive: &Opened, extent: &Extent, sample: &Sample) -> Result<bool, DriveError> {
    let blocks = match read::blocks(drive, sample.object, extent).await {
        Ok(blocks) => blocks,
        Err(ObjectFileError::Drive(error)) => return Err(error),
        Err(_) => return Ok(false),
    };
    let index = Bytes(sample.block).as_usize();
    let Some(wanted) = blocks.hashes().get(index) else { return Ok(false) };
    if let Some(hash) = sample.hash {
        return Ok(hash == wanted.0);
    }
    let file = drive.open(&extent.file).await?;
    let (place, mut buffer) = ((extent.offset, sample.len), Opened::pages(BLOCK_LEN));
    let bytes = read::block(drive, &file, place, sample.block, &mut buffer).await?;
    Ok(block_hash(sample.block, bytes, blocks.hashes().len() == 1) == *wanted)
}

//! Compares the index with the files, slowly, in the background. Also gives workers the small objects.
//!
//! The index is the truth for serving; a walk only finds what should not be: an object whose file
//! is gone or cut (it is hidden, reported and filled again), a file that the index does not know (it
//! is verified and adopted if the manifest wants it, removed if not), a second copy of an object.

use std::collections::BTreeSet;

use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::{Bytes, Nanos};
use store::layout;
use store::publish::{Action, Event, Publication};

use crate::drives::{self, Drive, DriveError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::{FileStanding, Shared};

/// Between two files: 500 a second, so that a drive of 100,000 takes some minutes.
const PER_FILE: Nanos = Nanos::millis(2);
/// Between two blocks that are read to be verified: 50 MB/s at most.
const PER_BLOCK: Nanos = Nanos::millis(5);
/// Between two walks.
const WALK_EVERY: Nanos = Nanos::seconds(6 * 3600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    give_small_objects(shared);
    loop {
        for drive in shared.open_drives() {
            if !walk(shared, drive) {
                return;
            }
        }
        if !shared.sleep_until(shared.now() + WALK_EVERY) {
            return;
        }
    }
}

/// Reads the small objects that were there at the start, verifies them and hands them out.
fn give_small_objects(shared: &Shared) {
    let mut buffer = Pages::zeroed(SMALL_OBJECT_MAX);
    let mut left = shared.config.small_budget;
    for (object, extent) in shared.published(|extent| extent.len <= SMALL_OBJECT_MAX) {
        if shared.is_stopping() || left < extent.len {
            return;
        }
        left -= extent.len;
        let Some(drive) = shared.drive(extent.drive) else { continue };
        match read_small(drive, &extent, &mut buffer) {
            Ok(bytes) if *blake3::hash(bytes).as_bytes() == object.0 => {
                shared.publish_small(object, &extent, bytes);
            }
            Ok(_) => damaged(shared, drive, object, "does not have its hash any more"),
            Err(error) if error.is_missing() => damaged(shared, drive, object, "has no file"),
            Err(error) => shared.drive_failed(drive, &error),
        }
    }
}

fn read_small<'a>(
    drive: &Drive,
    extent: &Extent,
    buffer: &'a mut Pages,
) -> Result<&'a [u8], DriveError> {
    let file = drive.open_read(&extent.file)?;
    let padded = extent.len.align_up(DIRECT_ALIGN).as_usize();
    drive.read(&file, &mut buffer.bytes_mut()[..padded], extent.offset)?;
    Ok(&buffer.bytes()[..extent.len.as_usize()])
}

/// One walk over a drive; false if all must stop.
fn walk(shared: &Shared, drive: &Drive) -> bool {
    let began = shared.now();
    let (mut files, mut found) = (0, 0);
    for folder in layout::object_folders() {
        if drive.set_aside_reason().is_some() {
            return true;
        }
        let expected = shared.published(|e| e.drive == drive.index() && is_in(&e.file, &folder));
        let names = match drive.list(&folder) {
            Ok(names) => names,
            Err(error) => {
                shared.drive_failed(drive, &error);
                continue;
            }
        };
        let mut seen = BTreeSet::new();
        for object in names.iter().filter_map(|name| name.parse::<ObjectId>().ok()) {
            if !shared.sleep_until(shared.now() + PER_FILE) {
                return false;
            }
            files += 1;
            seen.insert(object);
            found += u64::from(examine(shared, drive, object));
        }
        for (object, extent) in expected {
            if !seen.contains(&object) && shared.locate(&object) == Some(extent) {
                damaged(shared, drive, object, "has no file");
                found += 1;
            }
        }
    }
    let took_ms = shared.now().since(began).as_millis();
    tracing::info!(drive = %drive.marker().id, files, found, took_ms, "drive audited");
    true
}

fn is_in(file: &FileName, folder: &FileName) -> bool {
    file.0.strip_prefix(&*folder.0).is_some_and(|rest| rest.starts_with('/'))
}

/// Looks at one file; true if something was wrong with it.
fn examine(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    let standing = shared.claim_file(object, drive.index());
    match standing {
        FileStanding::Busy | FileStanding::Unknown => return false,
        FileStanding::Indexed => return check_len(shared, drive, object),
        FileStanding::Spare | FileStanding::Unwanted => keeper::drop_copy(shared, drive, object),
        FileStanding::Missing => adopt(shared, drive, object),
    }
    shared.release(object);
    true
}

fn check_len(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    let Some(extent) = shared.locate(&object) else { return false };
    let len = drive.open_read(&extent.file).and_then(|fd| drives::file_len(&fd, &extent.file));
    match len {
        Ok(len) if len == layout::sections(extent.len).file_len => false,
        Ok(_) => {
            damaged(shared, drive, object, "has a file of the wrong size");
            true
        }
        // It may just have been evicted; if it was not, the listing says so next time.
        Err(error) if error.is_missing() => false,
        Err(error) => {
            shared.drive_failed(drive, &error);
            true
        }
    }
}

/// Hides an object and removes what is left of it, so that it is filled again.
fn damaged(shared: &Shared, drive: &Drive, object: ObjectId, what: &str) {
    tracing::warn!(drive = %drive.marker().id, %object, what, "object damaged");
    if keeper::evict(shared, object) {
        let path = drive.path().display();
        shared.note("drive", format!("{path}: object {object} {what}; it is filled again"));
        shared.replan();
    }
}

/// Makes a wanted object visible that the drive has and the index lost, if every block is right.
fn adopt(shared: &Shared, drive: &Drive, object: ObjectId) {
    match verified(shared, drive, object) {
        Ok(Some(blocks)) => {
            let len = blocks.len();
            if publish(shared, drive, object, len) {
                tracing::info!(drive = %drive.marker().id, %object, len = len.0, "object adopted");
            }
        }
        Ok(None) if shared.is_stopping() => {}
        Ok(None) => keeper::drop_copy(shared, drive, object),
        Err(error) => shared.drive_failed(drive, &error),
    }
}

/// The blocks of an object's file if all are right; none if one is not, or if all must stop.
fn verified(
    shared: &Shared,
    drive: &Drive,
    object: ObjectId,
) -> Result<Option<Blocks>, DriveError> {
    let name = layout::object_file(&object);
    let blocks = match drive.read_blocks(&name) {
        Ok(blocks) if blocks.id() == object => blocks,
        Err(drives::ObjectFileError::Drive(error)) => return Err(error),
        Ok(_) | Err(_) => return Ok(None),
    };
    let file = drive.open_read(&name)?;
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        if !shared.sleep_until(shared.now() + PER_BLOCK) {
            return Ok(None);
        }
        let len = block_len(blocks.len(), index);
        let bytes = &mut buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
        drive.read(&file, bytes, Bytes(index * BLOCK_LEN.0))?;
        if !blocks.verify(index, &bytes[..len.as_usize()]) {
            return Ok(None);
        }
    }
    Ok(Some(blocks))
}

fn publish(shared: &Shared, drive: &Drive, object: ObjectId, len: Bytes) -> bool {
    let mut publication = Publication::adopt(object, len, drive.index());
    let mut shown = false;
    while let Some(action) = publication.poll() {
        let done = match action {
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Log(change) => drive.log(change),
            Action::Show(extent) => {
                shared.publish(object, extent, None);
                shown = true;
                Ok(())
            }
            Action::Unlink(file) => drive.unlink(&file),
            Action::Allocate { .. }
            | Action::WriteTable { .. }
            | Action::WriteFooter { .. }
            | Action::FlushFile
            | Action::Rename { .. }
            | Action::Hide => unreachable!("an adopted file is written and has its name"),
        };
        publication.handle(done.map_or_else(
            |error| {
                shared.drive_failed(drive, &error);
                Event::Failed(error.fault)
            },
            |()| Event::Done,
        ));
    }
    shown
}

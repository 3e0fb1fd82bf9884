//! Makes an object visible that a drive has under its final name and the index does not know.
//!
//! The last writes of a log may be lost (a drive that lied about a flush), or a publication was cut
//! between rename and log. The audit finds such files in time; a filler looks before it fetches.

use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::Bytes;
use store::health::Verdict;
use store::layout;
use store::publish::{Action, Event, Publication};

use crate::drives::{self, Drive, DriveError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;

/// Verifies every block of the object's file on this drive, in its turns at the gate, and publishes
/// it. A file that is not the object is removed. True if the object is visible now. The
/// caller has claimed it.
pub(crate) fn adopt(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    match verified(shared, drive, object) {
        Ok(Some(blocks)) => {
            let len = blocks.len();
            let shown = publish(shared, drive, object, len);
            if shown {
                tracing::info!(drive = %drive.marker().id, %object, len = len.0, "object adopted");
            }
            return shown;
        }
        Ok(None) if shared.is_stopping() => {}
        Ok(None) => keeper::drop_copy(shared, drive, object),
        Err(error) if error.is_missing() => {}
        Err(error) if error.is_one_place() && bears(shared, drive) => {
            keeper::drop_copy(shared, drive, object);
        }
        Err(error) => shared.drive_failed(drive, &error),
    }
    false
}

fn bears(shared: &Shared, drive: &Drive) -> bool {
    drive.object_failed(shared.now()) == Verdict::SetObjectAside
}

/// The blocks of an object's file if all are right; none if one is not, or if all must stop.
pub(crate) fn verified(
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
        if shared.is_stopping() {
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

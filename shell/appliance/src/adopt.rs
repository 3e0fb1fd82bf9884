//! Makes objects visible that a drive has in a file under its final name and the index does not
//! know.
//!
//! The last writes of a log may be lost (a drive that lied about a flush), or a publication was cut
//! between rename and log. The audit finds such files in time; a filler looks before it fetches.

use holdings::Doubt;
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::Bytes;
use store::health::Verdict;
use store::layout;
use store::log::Entry;
use store::parcel::Parcel;
use store::publish::{Action, Event, Publication};
use store::unit::Directory;

use crate::drives::{Drive, DriveError, ObjectFileError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;

/// What came of looking for what is right in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// Some of it is visible now.
    Some,
    /// Nothing of what was looked for is right.
    Nothing,
    /// It is not known what is right: all must stop, or the drive failed.
    Interrupted,
}

/// Verifies every block of the object's own file on this drive, in its turns at the gate, and
/// publishes it. A file that is not the object is removed. True if the object is visible now. The
/// caller has claimed it.
pub(crate) fn adopt(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    match own_file(shared, drive, object) {
        Ok(Some(len)) => {
            let parcel = Parcel::Alone(object, len);
            let entries = parcel.entries();
            return publish(shared, drive, parcel, entries);
        }
        Ok(None) if shared.is_stopping() => {}
        Ok(None) => {
            keeper::drop_copy(shared, drive, object);
        }
        Err(error) if error.is_missing() => {}
        Err(error) if error.is_one_place() && bears(shared, drive) => {
            keeper::drop_copy(shared, drive, object);
        }
        Err(error) => shared.drive_failed(drive, &error),
    }
    false
}

/// The same for those of a unit's objects that `choose` wants: each that is right is published, all
/// in one step. The caller has claimed all that the unit has.
pub(crate) fn adopt_from(
    shared: &Shared,
    drive: &Drive,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> Adopted {
    let mut right = Vec::new();
    for (object, entry) in directory.entries().into_iter().filter(|(object, _)| choose(object)) {
        match verified(shared, drive, object, &entry.extent(&object, drive.index())) {
            Ok(Some(_)) => right.push((object, entry)),
            Ok(None) if shared.is_stopping() => return Adopted::Interrupted,
            Ok(None) => tracing::warn!(%object, "wrong in its unit, left there"),
            Err(error) if error.is_one_place() && bears(shared, drive) => {
                tracing::warn!(%object, %error, "unreadable in its unit, left there");
            }
            Err(error) => {
                shared.drive_failed(drive, &error);
                return Adopted::Interrupted;
            }
        }
    }
    if right.is_empty() {
        return Adopted::Nothing;
    }
    let is_shown = publish(shared, drive, Parcel::Unit(directory.clone()), right);
    if is_shown { Adopted::Some } else { Adopted::Interrupted }
}

fn bears(shared: &Shared, drive: &Drive) -> bool {
    drive.object_failed(shared.now()) == Verdict::SetObjectAside
}

/// How long the object is whose own file this is, if every block of it is right.
fn own_file(shared: &Shared, drive: &Drive, object: ObjectId) -> Result<Option<Bytes>, DriveError> {
    let footer = match drive.read_footer(&layout::object_file(&object)) {
        Ok(footer) if footer.object == object => footer,
        Err(ObjectFileError::Drive(error)) => return Err(error),
        Ok(_) | Err(_) => return Ok(None),
    };
    let extent = Entry::alone(footer.len).extent(&object, drive.index());
    Ok(verified(shared, drive, object, &extent)?.map(|blocks| blocks.len()))
}

/// The blocks of an object that lies there if all are right; none if one is not, or if all must
/// stop.
pub(crate) fn verified(
    shared: &Shared,
    drive: &Drive,
    object: ObjectId,
    extent: &Extent,
) -> Result<Option<Blocks>, DriveError> {
    let blocks = match drive.read_blocks(object, extent) {
        Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
        Err(ObjectFileError::Drive(error)) => return Err(error),
        Ok(_) | Err(_) => return Ok(None),
    };
    let file = drive.open_read(&extent.file)?;
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    for index in 0..Bytes::of(blocks.hashes().len()).0 {
        if shared.is_stopping() {
            return Ok(None);
        }
        let len = block_len(blocks.len(), index);
        let bytes = &mut buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
        drive.read(&file, bytes, extent.offset + Bytes(index * BLOCK_LEN.0))?;
        if !blocks.verify(index, &bytes[..len.as_usize()]) {
            return Ok(None);
        }
    }
    Ok(Some(blocks))
}

/// What is known of the copy of an object that the index has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// Every block of it is right.
    Good,
    /// Its drive does not answer or failed, or it went.
    NotNow,
    /// It is not right. For `Shared::suspect`, once whoever asked has let go of the object.
    Doubted(Doubt),
}

/// Reads the copy of an object that the index has, before another is removed as spare.
pub(crate) fn other_copy(shared: &Shared, object: ObjectId) -> Other {
    let Some(extent) = shared.locate(&object) else { return Other::NotNow };
    let Some(drive) = shared.answering(extent.drive) else { return Other::NotNow };
    match verified(shared, &drive, object, &extent) {
        Ok(Some(_)) if drive.answers(shared.now()) && shared.locate(&object) == Some(extent) => {
            Other::Good
        }
        Ok(Some(_)) => Other::NotNow,
        Ok(None) if shared.is_stopping() => Other::NotNow,
        Ok(None) => Other::Doubted(Doubt::Suspect),
        Err(error) if error.is_one_place() => Other::Doubted(Doubt::Unreadable(error.to_string())),
        Err(error) if error.is_missing() => Other::Doubted(Doubt::Suspect),
        Err(error) => {
            shared.drive_failed(&drive, &error);
            Other::NotNow
        }
    }
}

/// True if all of it is visible now; if not, the drive failed or is set aside.
fn publish(
    shared: &Shared,
    drive: &Drive,
    parcel: Parcel,
    entries: Vec<(ObjectId, Entry)>,
) -> bool {
    let (file, count) = (parcel.file(), entries.len());
    let mut publication = Publication::adopt(parcel, entries, drive.index());
    let mut shown = false;
    while let Some(action) = publication.poll() {
        let done = drive.check().and_then(|()| match action {
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Log(changes) => drive.log(&changes),
            Action::Show(objects) => {
                let show = |(object, extent)| shared.publish(object, extent, None);
                shown = objects.into_iter().all(show);
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
        });
        publication.handle(done.map_or_else(
            |error| {
                shared.drive_failed(drive, &error);
                Event::Failed(error.fault)
            },
            |()| Event::Done,
        ));
    }
    if shown {
        tracing::info!(drive = %drive.marker().id, file = %file.0, objects = count, "adopted");
    }
    shown
}

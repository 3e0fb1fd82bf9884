//! Compares the index with the files, slowly, in the background; first hands out small objects.
//!
//! The index is the truth for serving; a walk only finds what should not be: an object whose file
//! is gone or cut (it is hidden, reported and filled again), a file that the index does not know
//! (it is verified and adopted if the manifest wants it, removed if not), a second copy (it is
//! removed if every block of the first is right, and stays while the drive of that does not
//! answer), a unit of which little is wanted (`units`).
//!
//! The storage lock is taken for a file at a time, and for at most `holdings::SLICE` objects. A
//! walk costs O(log objects) for each file of its drive, and for each object of it.

use std::collections::BTreeSet;

use holdings::{Doubt, FileStanding};
use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::status::Units;
use model::units::Nanos;
use store::layout;
use store::unit;

use crate::adopt::{self, Other};
use crate::drives::{self, Drive, DriveError};
use crate::pages::Pages;
use crate::shared::Shared;
use crate::{keeper, units};

/// Between two files: 500 a second, so that a drive of 100,000 takes some minutes.
const PER_FILE: Nanos = Nanos::millis(2);
/// Between two walks.
const WALK_EVERY: Nanos = Nanos::seconds(6 * 3600);

/// Between two looks whether a drive has come back.
const LOOK_EVERY: Nanos = Nanos::seconds(1);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    loop {
        let returns = shared.returns();
        give_small_objects(shared);
        for index in shared.drive_indexes() {
            let Some(drive) = shared.drive(index) else { continue };
            if !walk(shared, &drive) {
                return;
            }
        }
        let until = shared.now() + WALK_EVERY;
        // A drive that comes back may have what others have by now.
        while shared.now() < until && shared.returns() == returns {
            if !shared.sleep_until(until.min(shared.now() + LOOK_EVERY)) {
                return;
            }
        }
    }
}

/// Reads the small objects that were there at the start, or came back with a drive, verifies them
/// and hands them out.
fn give_small_objects(shared: &Shared) {
    let mut buffer = Pages::zeroed(SMALL_OBJECT_MAX);
    for (object, extent) in shared.without_bytes() {
        if shared.is_stopping() {
            return;
        }
        if let Some(drive) = shared.answering(extent.drive) {
            give_small(shared, &drive, object, &extent, &mut buffer);
        }
    }
}

/// Reads a small object, verifies it and hands it out, if there is room for it. The caller may have
/// claimed it: who doubts objects looks at one that is wrong.
pub(crate) fn give_small(
    shared: &Shared,
    drive: &Drive,
    object: ObjectId,
    extent: &Extent,
    buffer: &mut Pages,
) {
    if !shared.has_small_room(extent.len) {
        return;
    }
    match read_small(drive, extent, buffer) {
        Ok(bytes) if *blake3::hash(bytes).as_bytes() == object.0 => {
            shared.publish_small(object, extent, bytes);
        }
        Ok(_) => shared.suspect(object, Doubt::Suspect),
        Err(error) if error.is_one_place() => {
            shared.suspect(object, Doubt::Unreadable(error.to_string()));
        }
        Err(error) if error.is_missing() => shared.suspect(object, Doubt::Suspect),
        Err(error) => shared.drive_failed(drive, &error),
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
    let (mut files, mut found, mut in_units) = (0, 0, Units::default());
    let units = FileName(unit::UNITS.into());
    for folder in layout::object_folders().chain([units]) {
        if !drive.answers(shared.now()) {
            return true;
        }
        let expected = shared.published_in(drive.index(), &folder);
        let names = match drive.list(&folder) {
            Ok(names) => names,
            Err(error) => {
                shared.drive_failed(drive, &error);
                continue;
            }
        };
        let mut seen = BTreeSet::new();
        for name in names {
            if !shared.sleep_until(shared.now() + PER_FILE) {
                return false;
            }
            let file = FileName(format!("{}/{name}", folder.0).into());
            let wrong = if let Some(unit) = unit::of_file(&file) {
                let (units, wrong) = units::audit(shared, drive, unit);
                in_units.count += units.count;
                in_units.dead += units.dead;
                wrong
            } else {
                name.parse().is_ok_and(|object| examine(shared, drive, object))
            };
            files += 1;
            found += u64::from(wrong);
            seen.insert(file);
        }
        for (object, extent) in expected {
            if !seen.contains(&extent.file) && shared.locate(&object) == Some(extent) {
                keeper::missing(shared, drive, object);
                found += 1;
            }
        }
    }
    drive.set_units(in_units);
    let took_ms = shared.now().since(began).as_millis();
    tracing::info!(drive = %drive.marker().id, files, found, took_ms, "drive audited");
    true
}

/// Looks at one file; true if something was wrong with it.
fn examine(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    let standing = shared.claim_file(object, drive.index(), &layout::object_file(&object));
    let mut doubt = None;
    match standing {
        FileStanding::Busy | FileStanding::Unsure | FileStanding::Unknown => return false,
        FileStanding::Indexed => return check_len(shared, drive, object),
        FileStanding::Spare => match adopt::other_copy(shared, object) {
            Other::Good => drop_spare(shared, drive, object),
            Other::NotNow => {}
            Other::Doubted(why) => doubt = Some(why),
        },
        FileStanding::Unwanted => drop_spare(shared, drive, object),
        FileStanding::Missing => {
            adopt::adopt(shared, drive, object);
        }
    }
    shared.release(object);
    doubt.into_iter().for_each(|doubt| shared.suspect(object, doubt));
    true
}

fn drop_spare(shared: &Shared, drive: &Drive, object: ObjectId) {
    if keeper::drop_copy(shared, drive, object) {
        tracing::info!(drive = %drive.marker().id, %object, "spare copy removed");
    }
}

fn check_len(shared: &Shared, drive: &Drive, object: ObjectId) -> bool {
    let Some(extent) = shared.locate(&object) else { return false };
    let len = drive.open_read(&extent.file).and_then(|fd| drives::file_len(&fd, &extent.file));
    match len {
        Ok(len) if len == layout::sections(extent.len).file_len => false,
        Ok(_) => {
            keeper::damaged(shared, drive, object, "has a file of the wrong size");
            true
        }
        // It may just have been evicted; if it was not, the listing says so next time.
        Err(error) if error.is_missing() => false,
        Err(error) => {
            keeper::unreadable(shared, drive, object, &error);
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::{drives, manifest, put, shared_on};
    use model::extent::DriveIndex;
    use model::units::Bytes;

    #[test]
    fn a_second_copy_goes_only_when_every_block_of_the_first_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, object, [first, second]) = held_twice(dir.path());
        let [one, other] = [0, 1].map(|index| shared.drive(DriveIndex(index)).unwrap());
        let path = |drive: &Drive, extent: &Extent| drive.path().join(&*extent.file.0);
        let is_there = || path(&other, &second).exists();

        let right = std::fs::read(path(&one, &first)).unwrap();
        let mut wrong = right.clone();
        wrong[4999] ^= 1;
        std::fs::write(path(&one, &first), wrong).unwrap();
        assert!(examine(&shared, &other, object) && is_there(), "the first is wrong");
        shared.plan();
        let doubted = shared.peek_errand(DriveIndex(0)).unwrap().suspects;
        assert_eq!(doubted.into_iter().collect::<Vec<_>>(), [(object, Doubt::Suspect)]);

        std::fs::write(path(&one, &first), right).unwrap();
        shared.look_at_drive(&one, true);
        assert!(!examine(&shared, &other, object) && is_there(), "it does not answer");
    }

    #[test]
    fn a_second_copy_goes_when_the_first_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let (shared, object, [first, second]) = held_twice(dir.path());
        let other = shared.drive(DriveIndex(1)).unwrap();
        assert!(examine(&shared, &other, object));
        assert!(!other.path().join(&*second.file.0).exists());
        assert_eq!((other.entry(&object), shared.locate(&object)), (None, Some(first)));
    }

    /// An object on two drives, of which the index has the first copy.
    fn held_twice(dir: &std::path::Path) -> (Shared, ObjectId, [Extent; 2]) {
        let drives = drives(dir, 2);
        let (object, first) = put(&drives[0], &[7; 5000]);
        let (_, second) = put(&drives[1], &[7; 5000]);
        let shared = shared_on(drives);
        assert!(shared.set_manifest(manifest(1, &[(object, Bytes(5000))])));
        shared.load([(object, first.clone())].into_iter());
        (shared, object, [first, second])
    }
}

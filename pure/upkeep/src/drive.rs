//! A drive as the procedures see it: files by name, read, written and brought to the drive.
//!
//! Each operation has its turn at the drive's gate, if it is one that has turns; the procedures
//! know nothing of that. All names are below the drive's root.

use std::ops::DerefMut;

use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::units::{Bytes, Instant};
use store::health::Verdict;
use store::log::{Change, Entry};
use store::unit::{Directory, UnitId};

use crate::cause::DriveError;
use crate::condition::Condition;

/// Files that can be read: of a drive, or of a folder that may become one.
pub trait Files {
    /// An open file. It can be read after its name is gone.
    type File;
    /// Memory that reads and writes take: whole pages of `limits::DIRECT_ALIGN`.
    type Pages: DerefMut<Target = [u8]>;

    /// Zeros, at least so many of them.
    fn pages(len: Bytes) -> Self::Pages;

    /// Opens a file for reading.
    fn open(&self, file: &FileName) -> impl Future<Output = Result<Self::File, DriveError>>;

    fn len(&self, file: &Self::File) -> impl Future<Output = Result<Bytes, DriveError>>;

    /// Fills `pages`, whole pages, with the bytes from `at` on. An end of the file before that is
    /// an error.
    fn read(
        &self,
        file: &Self::File,
        pages: &mut [u8],
        at: Bytes,
    ) -> impl Future<Output = Result<(), DriveError>>;

    /// The names in a folder, in order.
    fn list(&self, folder: &FileName) -> impl Future<Output = Result<Vec<String>, DriveError>>;
}

/// A drive that is in use, or was until it failed.
pub trait Drive: Files {
    /// Its place in the appliance's list.
    fn index(&self) -> DriveIndex;

    /// True if nothing is done to it any more: its objects are filled elsewhere.
    fn is_aside(&self) -> bool;

    /// Looks at its condition, or changes it, under its lock. Nothing waits in there.
    fn condition<R>(&self, with: impl FnOnce(&mut Condition) -> R) -> R;

    /// True while its marker can be found: a drive that lost it is not there any more.
    fn has_marker(&self) -> impl Future<Output = bool>;

    /// Where the drive's own index has an object.
    fn entry(&self, object: &ObjectId) -> Option<Entry>;

    /// All objects that the drive's own index has in a unit, O(objects of the drive).
    fn in_unit(&self, unit: UnitId) -> Vec<ObjectId>;

    /// Makes a part file and allocates all of it, so that it cannot run out of room half-way. True
    /// if it was there before in this size: then it may hold good blocks.
    fn allocate(
        &self,
        file: &FileName,
        len: Bytes,
    ) -> impl Future<Output = Result<(Self::File, bool), DriveError>>;

    /// Writes whole pages.
    fn write(
        &self,
        file: &Self::File,
        pages: &[u8],
        at: Bytes,
    ) -> impl Future<Output = Result<(), DriveError>>;

    /// Ends a file here.
    fn cut(&self, file: &Self::File, len: Bytes) -> impl Future<Output = Result<(), DriveError>>;

    /// Brings a file's bytes to the drive (fdatasync).
    fn flush(&self, file: &Self::File) -> impl Future<Output = Result<(), DriveError>>;

    /// Gives a file another name.
    fn rename(
        &self,
        from: &FileName,
        to: &FileName,
    ) -> impl Future<Output = Result<(), DriveError>>;

    /// Brings a folder's names to the drive (fsync).
    fn flush_folder(&self, folder: &FileName) -> impl Future<Output = Result<(), DriveError>>;

    /// Removes a name; one that is gone already is no error. Who has the file open reads on.
    fn unlink(&self, file: &FileName) -> impl Future<Output = Result<(), DriveError>>;

    /// Appends a batch to the drive's log and brings it to the drive: all of it counts, or nothing.
    fn log(&self, changes: &[Change]) -> impl Future<Output = Result<(), DriveError>>;

    /// Writes the drive's own index anew: a snapshot, and an empty log.
    fn rewrite_index(&self) -> impl Future<Output = Result<(), DriveError>>;

    /// The object that was scrubbed last, before a restart.
    fn scrubbed_to(&self) -> impl Future<Output = Option<ObjectId>>;

    fn keep_scrubbed_to(&self, object: ObjectId) -> impl Future<Output = Result<(), DriveError>>;

    /// An object could not be read for the drive's sake: does it go, or the drive?
    fn object_failed(&self, now: Instant) -> Verdict {
        self.condition(|of| of.object_failed(now))
    }

    /// Fails if it is set aside.
    fn check(&self) -> Result<(), DriveError> {
        if self.is_aside() { Err(DriveError::set_aside()) } else { Ok(()) }
    }

    /// Of the objects that a unit names, those that the drive's own index has there.
    fn held_in(&self, directory: &Directory) -> Vec<ObjectId> {
        let (mut objects, unit) = (directory.objects(), Some(directory.id()));
        objects.retain(|object| self.entry(object).is_some_and(|entry| entry.unit == unit));
        objects
    }
}

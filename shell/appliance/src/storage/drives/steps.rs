//! A drive as the procedures of `upkeep` see it: each operation blocks, and is ready when it
//! returns.

use std::os::fd::OwnedFd;

use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::units::Bytes;
use store::log::{Change, Entry};
use store::unit::UnitId;
use upkeep::{Condition, DriveError, Files};

use super::{Drive, file_len, lock};
use crate::storage::pages::Pages;

impl Files for Drive {
    type File = OwnedFd;
    type Pages = Pages;

    fn pages(len: Bytes) -> Pages {
        Pages::zeroed(len)
    }

    async fn open(&self, file: &FileName) -> Result<OwnedFd, DriveError> {
        self.open_read(file)
    }

    async fn len(&self, file: &OwnedFd) -> Result<Bytes, DriveError> {
        file_len(file, "a file of the drive")
    }

    async fn read(&self, file: &OwnedFd, pages: &mut [u8], at: Bytes) -> Result<(), DriveError> {
        Self::read(self, file, pages, at)
    }

    async fn list(&self, folder: &FileName) -> Result<Vec<String>, DriveError> {
        Self::list(self, folder)
    }
}

impl upkeep::Drive for Drive {
    fn index(&self) -> DriveIndex {
        Self::index(self)
    }

    fn is_aside(&self) -> bool {
        Self::is_aside(self)
    }

    fn condition<R>(&self, with: impl FnOnce(&mut Condition) -> R) -> R {
        with(&mut lock(&self.condition))
    }

    async fn has_marker(&self) -> bool {
        Self::has_marker(self)
    }

    fn entry(&self, object: &ObjectId) -> Option<Entry> {
        Self::entry(self, object)
    }

    fn in_unit(&self, unit: UnitId) -> Vec<ObjectId> {
        Self::in_unit(self, unit)
    }

    async fn allocate(&self, file: &FileName, len: Bytes) -> Result<(OwnedFd, bool), DriveError> {
        Self::allocate(self, file, len)
    }

    async fn write(&self, file: &OwnedFd, pages: &[u8], at: Bytes) -> Result<(), DriveError> {
        Self::write(self, file, pages, at)
    }

    async fn cut(&self, file: &OwnedFd, len: Bytes) -> Result<(), DriveError> {
        Self::cut(self, file, len)
    }

    async fn flush(&self, file: &OwnedFd) -> Result<(), DriveError> {
        Self::flush(self, file)
    }

    async fn rename(&self, from: &FileName, to: &FileName) -> Result<(), DriveError> {
        Self::rename(self, from, to)
    }

    async fn flush_folder(&self, folder: &FileName) -> Result<(), DriveError> {
        self.sync_folder(folder)
    }

    async fn unlink(&self, file: &FileName) -> Result<(), DriveError> {
        Self::unlink(self, file)
    }

    async fn rewrite_index(&self) -> Result<(), DriveError> {
        Self::rewrite_index(self)
    }

    async fn scrubbed_to(&self) -> Option<ObjectId> {
        Self::scrubbed_to(self)
    }

    async fn keep_scrubbed_to(&self, object: ObjectId) -> Result<(), DriveError> {
        Self::keep_scrubbed_to(self, object)
    }

    async fn log(&self, changes: &[Change]) -> Result<(), DriveError> {
        Self::log(self, changes)
    }
}

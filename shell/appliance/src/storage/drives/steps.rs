//! The operations of a drive for the procedures of `upkeep`: each blocks, and is ready when it
//! returns.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use iosched::drive::Class;
use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::units::Bytes;
use rustix::fs::{AtFlags, FallocateFlags, OFlags};
use rustix::io::Errno;
use store::layout;
use store::log::{Change, Entry};
use store::unit::UnitId;
use upkeep::{Condition, DriveError, Files};

use super::files::{flush_failed, write_all};
use super::{Drive, file_len, list, lock, read_at, read_small, replace, space, to};
use crate::storage::pages::Pages;

impl Files for Drive {
    type File = OwnedFd;
    type Pages = Pages;

    fn pages(len: Bytes) -> Pages {
        Pages::zeroed(len)
    }

    async fn open(&self, file: &FileName) -> Result<OwnedFd, DriveError> {
        self.open_file(file, OFlags::RDONLY | OFlags::DIRECT, "open")
    }

    async fn len(&self, file: &OwnedFd) -> Result<Bytes, DriveError> {
        file_len(file, "a file of the drive")
    }

    async fn read(&self, fd: &OwnedFd, bytes: &mut [u8], at: Bytes) -> Result<(), DriveError> {
        let _turn = self.gate.enter(Class::Scrub, Bytes::of(bytes.len()));
        read_at(fd, bytes, at)
    }

    async fn list(&self, folder: &FileName) -> Result<Vec<String>, DriveError> {
        list(&self.root, folder)
    }
}

impl upkeep::Drive for Drive {
    fn index(&self) -> DriveIndex {
        self.index
    }

    fn is_aside(&self) -> bool {
        self.is_aside.load(Ordering::SeqCst)
    }

    fn condition<R>(&self, with: impl FnOnce(&mut Condition) -> R) -> R {
        with(&mut lock(&self.condition))
    }

    async fn has_marker(&self) -> bool {
        rustix::fs::statat(&self.root, layout::MARKER, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn entry(&self, object: &ObjectId) -> Option<Entry> {
        lock(&self.log).entries.get(object).copied()
    }

    fn in_unit(&self, unit: UnitId) -> Vec<ObjectId> {
        let log = lock(&self.log);
        let here = log.entries.iter().filter(|(_, entry)| entry.unit == Some(unit));
        here.map(|(object, _)| *object).collect()
    }

    /// A file that would touch the reserve finds no room.
    async fn allocate(&self, file: &FileName, len: Bytes) -> Result<(OwnedFd, bool), DriveError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::DIRECT;
        let fd = self.open_file(file, flags, "make")?;
        let found = file_len(&fd, &file.0)?;
        if found != Bytes::ZERO && found != len {
            self.cut(&fd, Bytes::ZERO).await?;
        }
        let _taking = lock(&self.taking_room);
        if found != len {
            let stat = rustix::fs::fstatvfs(&self.root).map_err(to("measure", "the filesystem"))?;
            if space(&stat, &self.marker).free < len {
                return Err(to("allocate room for", &file.0)(Errno::NOSPC));
            }
        }
        rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, len.0)
            .map_err(to("allocate room for", &file.0))?;
        self.measure_again();
        Ok((fd, found == len))
    }

    async fn write(&self, fd: &OwnedFd, bytes: &[u8], at: Bytes) -> Result<(), DriveError> {
        assert!(Bytes::of(bytes.len()).0.is_multiple_of(DIRECT_ALIGN.0), "only whole pages");
        let _turn = self.gate.enter(Class::Fill, Bytes::of(bytes.len()));
        write_all(fd, bytes, at, "an object's file")
    }

    async fn cut(&self, fd: &OwnedFd, len: Bytes) -> Result<(), DriveError> {
        let _turn = self.gate.enter(Class::Delete, Bytes::ZERO);
        rustix::fs::ftruncate(fd, len.0).map_err(to("cut", "a part file"))
    }

    async fn flush(&self, fd: &OwnedFd) -> Result<(), DriveError> {
        let _turn = self.gate.enter(Class::Fill, Bytes::ZERO);
        rustix::fs::fdatasync(fd).map_err(flush_failed("an object's file"))
    }

    async fn rename(&self, from: &FileName, to_name: &FileName) -> Result<(), DriveError> {
        rustix::fs::renameat(&self.root, &*from.0, &self.root, &*to_name.0)
            .map_err(to("rename", &from.0))
    }

    async fn flush_folder(&self, folder: &FileName) -> Result<(), DriveError> {
        let fd = self.open_file(folder, OFlags::RDONLY | OFlags::DIRECTORY, "open")?;
        rustix::fs::fsync(fd).map_err(flush_failed(&folder.0))
    }

    async fn unlink(&self, file: &FileName) -> Result<(), DriveError> {
        let _turn = self.gate.enter(Class::Delete, Bytes::ZERO);
        match rustix::fs::unlinkat(&self.root, &*file.0, AtFlags::empty()) {
            Ok(()) => {
                self.measure_again();
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(to("remove", &file.0)(errno)),
        }
    }

    async fn rewrite_index(&self) -> Result<(), DriveError> {
        lock(&self.log).compact(self.marker.id, &self.root)
    }

    async fn scrubbed_to(&self) -> Option<ObjectId> {
        let bytes = read_small(&self.root, layout::SCRUB).ok()??;
        std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    async fn keep_scrubbed_to(&self, object: ObjectId) -> Result<(), DriveError> {
        replace(&self.root, layout::SCRUB, format!("{object}\n").as_bytes())
    }

    /// Rewrites the log if it has grown long; a failure of that takes nothing back, and is told by
    /// the thread that measures the drive.
    async fn log(&self, changes: &[Change]) -> Result<(), DriveError> {
        let mut log = lock(&self.log);
        log.append(self.marker.id, changes)?;
        lock(&self.condition).held = log.held();
        if let Err(error) = log.compact_if_due(self.marker.id, &self.root) {
            lock(&self.condition).not_rewritten = Some(error);
        }
        Ok(())
    }
}

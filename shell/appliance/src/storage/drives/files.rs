//! Files of a drive by their descriptors: read and written whole, flushed, put in place.

use std::os::fd::OwnedFd;

use model::extent::FileName;
use model::units::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use upkeep::{DriveError, Files};

use crate::storage::pages::Pages;

/// A log longer than this is not one: a 100,000-object drive's is under 26 MB.
const INDEX_FILE_MAX: Bytes = Bytes::mib(1024);

/// Files below a folder, read without a gate: nobody else uses the drive, if it is one.
pub(crate) struct Ungated<'a>(pub(crate) &'a OwnedFd);

impl Files for Ungated<'_> {
    type File = OwnedFd;
    type Pages = Pages;

    fn pages(len: Bytes) -> Pages {
        Pages::zeroed(len)
    }

    async fn open(&self, file: &FileName) -> Result<OwnedFd, DriveError> {
        let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(self.0, &*file.0, flags, Mode::empty()).map_err(to("open", &file.0))
    }

    async fn len(&self, file: &OwnedFd) -> Result<Bytes, DriveError> {
        file_len(file, "a file of the drive")
    }

    async fn read(&self, file: &OwnedFd, pages: &mut [u8], at: Bytes) -> Result<(), DriveError> {
        read_at(file, pages, at)
    }

    async fn list(&self, folder: &FileName) -> Result<Vec<String>, DriveError> {
        list(self.0, folder)
    }
}

/// Writes a file beside `name`, brings it to the drive and puts it in the place of `name`.
pub(crate) fn replace(root: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), DriveError> {
    let aside = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, &*aside, flags, Mode::from_raw_mode(0o640))
        .map_err(to("make", &aside))?;
    write_all(&file, bytes, Bytes::ZERO, "the index")?;
    rustix::fs::fsync(&file).map_err(flush_failed(&aside))?;
    rustix::fs::renameat(root, &*aside, root, name).map_err(to("rename", &aside))?;
    let folder = name.rsplit_once('/').map_or(".", |(folder, _)| folder);
    sync_at(root, folder)
}

/// Brings a folder's names to the drive.
pub(crate) fn sync_at(root: &OwnedFd, folder: &str) -> Result<(), DriveError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root, folder, flags, Mode::empty()).map_err(to("open", folder))?;
    rustix::fs::fsync(fd).map_err(flush_failed(folder))
}

pub(crate) fn list(root: &OwnedFd, folder: &FileName) -> Result<Vec<String>, DriveError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(root, &*folder.0, flags, Mode::empty())
        .map_err(to("open", &folder.0))?;
    let entries = rustix::fs::Dir::read_from(&fd).map_err(to("list", &folder.0))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(to("list", &folder.0))?;
        let name = entry.file_name().to_string_lossy();
        if name != "." && name != ".." {
            names.push(name.into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// A file of the index; none if it is not there.
pub(crate) fn read_small(root: &OwnedFd, name: &str) -> Result<Option<Vec<u8>>, DriveError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = match rustix::fs::openat(root, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(to("open", name)(errno)),
    };
    let len = file_len(&fd, name)?.min(INDEX_FILE_MAX);
    let mut bytes = vec![0; len.as_usize()];
    read_at(&fd, &mut bytes, Bytes::ZERO)?;
    Ok(Some(bytes))
}

pub(crate) fn file_len(fd: &OwnedFd, file: &str) -> Result<Bytes, DriveError> {
    let stat = rustix::fs::fstat(fd).map_err(to("look at", file))?;
    Ok(Bytes(u64::try_from(stat.st_size).unwrap_or(0)))
}

pub(crate) fn read_at(fd: &OwnedFd, bytes: &mut [u8], at: Bytes) -> Result<(), DriveError> {
    let mut done = 0;
    while done < bytes.len() {
        let offset = at.0 + Bytes::of(done).0;
        match rustix::io::pread(fd, &mut bytes[done..], offset) {
            Ok(0) => return Err(DriveError::short("a file of the drive")),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(to("read", "a file of the drive")(errno)),
        }
    }
    Ok(())
}

pub(super) fn write_all(
    fd: &OwnedFd,
    bytes: &[u8],
    at: Bytes,
    file: &str,
) -> Result<(), DriveError> {
    let mut done = 0;
    while done < bytes.len() {
        let offset = at.0 + Bytes::of(done).0;
        match rustix::io::pwrite(fd, &bytes[done..], offset) {
            Ok(0) => return Err(to("write to (nothing was taken)", file)(Errno::IO)),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(to("write to", file)(errno)),
        }
    }
    Ok(())
}

/// Names what was tried, for the message.
pub(crate) fn to(action: &'static str, file: &str) -> impl FnOnce(Errno) -> DriveError {
    move |errno| DriveError::new(action, file, number(errno))
}

/// The same of a flush.
pub(super) fn flush_failed(file: &str) -> impl FnOnce(Errno) -> DriveError {
    move |errno| DriveError::flush(file, number(errno))
}

/// An error of the kernel's as `upkeep` has it.
pub(crate) fn number(errno: Errno) -> upkeep::Errno {
    upkeep::Errno(errno.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_numbers_that_this_kernel_gives_them() {
        use upkeep::Errno as Pure;
        let pairs = [
            (Pure::NOENT, Errno::NOENT),
            (Pure::IO, Errno::IO),
            (Pure::NXIO, Errno::NXIO),
            (Pure::NODEV, Errno::NODEV),
            (Pure::NOSPC, Errno::NOSPC),
            (Pure::ROFS, Errno::ROFS),
            (Pure::NODATA, Errno::NODATA),
            (Pure::BADMSG, Errno::BADMSG),
            (Pure::SHUTDOWN, Errno::SHUTDOWN),
            (Pure::NOTCONN, Errno::NOTCONN),
            (Pure::TIMEDOUT, Errno::TIMEDOUT),
            (Pure::STALE, Errno::STALE),
            (Pure::UCLEAN, Errno::UCLEAN),
            (Pure::REMOTEIO, Errno::REMOTEIO),
            (Pure::DQUOT, Errno::DQUOT),
        ];
        for (pure, kernel) in pairs {
            assert_eq!(pure, number(kernel), "{kernel}");
        }
    }
}

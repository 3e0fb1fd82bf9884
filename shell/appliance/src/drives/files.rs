//! Files of a drive by their descriptors: read and written whole, flushed, put in place.

use std::os::fd::OwnedFd;

use model::extent::FileName;
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BlockHash, Blocks, BlocksError};
use model::units::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use store::layout::{self, Footer, FooterError};
use store::publish::Fault;
use store::unit::{self, Directory, UnitError};

use super::{DriveError, ObjectFileError, fault_of};
use crate::pages::Pages;

/// A log longer than this is not one: a 100,000-object drive's is under 26 MB.
const INDEX_FILE_MAX: Bytes = Bytes::mib(1024);

/// The footer of a file of objects.
pub(crate) fn read_footer(fd: &OwnedFd, file: &FileName) -> Result<Footer, ObjectFileError> {
    let len = file_len(fd, file)?;
    let at = len.saturating_sub(layout::FOOTER_LEN);
    if len < layout::FOOTER_LEN || !at.0.is_multiple_of(DIRECT_ALIGN.0) {
        return Err(FooterError::Magic.into());
    }
    let mut page = Pages::zeroed(layout::FOOTER_LEN);
    read_at(fd, page.bytes_mut(), at)?;
    Ok(Footer::decode(page.bytes(), len)?)
}

/// The table of an object's file, zeros after it.
pub(crate) fn table_pages(blocks: &Blocks) -> Pages {
    let hashes = blocks.hashes();
    let mut pages = Pages::zeroed(Bytes::of(hashes.len() * 32));
    for (hash, place) in hashes.iter().zip(pages.bytes_mut().as_chunks_mut::<32>().0) {
        *place = hash.0;
    }
    pages
}

/// What a unit says that it holds.
pub(crate) fn read_directory(fd: &OwnedFd, file: &FileName) -> Result<Directory, ObjectFileError> {
    let len = file_len(fd, file)?;
    let at = len.saturating_sub(layout::FOOTER_LEN);
    if len < layout::FOOTER_LEN || !at.0.is_multiple_of(DIRECT_ALIGN.0) {
        return Err(UnitError::Magic.into());
    }
    let mut page = Pages::zeroed(layout::FOOTER_LEN);
    read_at(fd, page.bytes_mut(), at)?;
    let footer = unit::Footer::decode(page.bytes(), len)?;
    let mut pages = Pages::zeroed(at - footer.directory_offset);
    read_at(fd, pages.bytes_mut(), footer.directory_offset)?;
    Ok(Directory::decode(&footer, pages.bytes())?)
}

/// The table of an object that begins at `base` in its file, proved to be that of `object`.
pub(crate) fn read_table(
    fd: &OwnedFd,
    object: ObjectId,
    len: Bytes,
    base: Bytes,
) -> Result<Blocks, ObjectFileError> {
    let sections = layout::sections(len);
    if sections.table_len == Bytes::ZERO {
        return Ok(blocks_without_table(object, len)?);
    }
    let mut pages = Pages::zeroed(sections.table_len);
    read_at(fd, pages.bytes_mut(), base + sections.table_offset)?;
    let table = &pages.bytes()[..sections.table_len.as_usize()];
    let hashes = table.as_chunks::<32>().0.iter().map(|hash| BlockHash(*hash)).collect();
    Ok(Blocks::prove(object, len, hashes)?)
}

/// The blocks of an object that has less than two: its id is the only hash.
pub(crate) fn blocks_without_table(object: ObjectId, len: Bytes) -> Result<Blocks, BlocksError> {
    let hashes = if len == Bytes::ZERO { Vec::new() } else { vec![BlockHash(object.0)] };
    Blocks::prove(object, len, hashes)
}

/// Writes a file beside `name`, brings it to the drive and puts it in the place of `name`.
pub(crate) fn replace(root: &OwnedFd, name: &str, bytes: &[u8]) -> Result<(), DriveError> {
    let aside = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(root, &*aside, flags, Mode::from_raw_mode(0o640))
        .map_err(to("make", &aside))?;
    write_all(&file, bytes, Bytes::ZERO)?;
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
    let len = file_len(&fd, &FileName(name.into()))?.min(INDEX_FILE_MAX);
    let mut bytes = vec![0; len.as_usize()];
    read_at(&fd, &mut bytes, Bytes::ZERO)?;
    Ok(Some(bytes))
}

pub(crate) fn file_len(fd: &OwnedFd, file: &FileName) -> Result<Bytes, DriveError> {
    let stat = rustix::fs::fstat(fd).map_err(to("look at", &file.0))?;
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

pub(super) fn write_all(fd: &OwnedFd, bytes: &[u8], at: Bytes) -> Result<(), DriveError> {
    let mut done = 0;
    while done < bytes.len() {
        let offset = at.0 + Bytes::of(done).0;
        match rustix::io::pwrite(fd, &bytes[done..], offset) {
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(to("write to", "the index")(errno)),
        }
    }
    Ok(())
}

/// Names what was tried, for the message.
pub(crate) fn to(deed: &'static str, file: &str) -> impl FnOnce(Errno) -> DriveError {
    move |errno| DriveError {
        fault: fault_of(errno),
        deed,
        file: file.to_owned(),
        error: errno.into(),
    }
}

/// After a failed flush nobody knows what reached the drive, and trying again lies (the kernel
/// marks the pages clean): whatever the reason, the drive is set aside.
pub(super) fn flush_failed(file: &str) -> impl FnOnce(Errno) -> DriveError {
    move |errno| DriveError {
        fault: if fault_of(errno) == Fault::Full { Fault::Full } else { Fault::SetAside },
        deed: "flush",
        file: file.to_owned(),
        error: errno.into(),
    }
}

//! The file system: passes each operation on to the folder, if the watch lets it.
//!
//! Only what an appliance does to a drive is there: no links, no removal of folders, no extended
//! attributes. What is not there is answered with ENOSYS.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::names::{Names, ROOT};
use super::{Change, FileId, Kind, Watch};

/// A folder, passed through.
pub(super) struct Passage {
    root: OwnedFd,
    watch: Arc<dyn Watch>,
    names: Mutex<Names>,
    handles: Mutex<BTreeMap<u64, Arc<Handle>>>,
    next_handle: AtomicU64,
    /// Held while a change is made and told of, so that both have one order.
    order: Mutex<()>,
}

struct Handle {
    id: FileId,
    /// The name it was opened by.
    path: PathBuf,
    fd: OwnedFd,
}

/// Nothing is remembered: what fails must fail at the next call.
const NO_TIME: Duration = Duration::ZERO;

impl Passage {
    pub(super) fn new(folder: &Path, watch: Arc<dyn Watch>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            root: rustix::fs::open(folder, flags, Mode::empty())?,
            watch,
            names: Mutex::new(Names::new()),
            handles: Mutex::default(),
            next_handle: AtomicU64::new(1),
            order: Mutex::new(()),
        })
    }

    fn path(&self, ino: INodeNo) -> Result<PathBuf, Errno> {
        lock(&self.names).path(FileId(ino.0)).map(Path::to_owned).ok_or(Errno::STALE)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Result<PathBuf, Errno> {
        Ok(self.path(parent)?.join(name))
    }

    fn handle(&self, fh: FileHandle) -> Result<Arc<Handle>, Errno> {
        lock(&self.handles).get(&fh.0).cloned().ok_or(Errno::BADF)
    }

    /// The name that the kernel takes, relative to the root.
    fn name(path: &Path) -> &Path {
        if path.as_os_str().is_empty() { Path::new(".") } else { path }
    }

    fn stat(&self, path: &Path) -> Result<FileAttr, Errno> {
        let stat = rustix::fs::statat(&self.root, Self::name(path), AtFlags::SYMLINK_NOFOLLOW)?;
        let id = if path.as_os_str().is_empty() { ROOT } else { lock(&self.names).id(path) };
        Ok(attributes(id, &stat))
    }

    fn open_at(&self, path: &Path, flags: OpenFlags) -> Result<u64, Errno> {
        let asked = OFlags::from_bits_retain(u32::try_from(flags.0).map_err(|_| Errno::INVAL)?);
        // Direct I/O ends here: the folder may be on a file system that has none.
        let flags = (asked - OFlags::DIRECT) | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.root, Self::name(path), flags, Mode::empty())?;
        let id = lock(&self.names).id(path);
        Ok(self.keep(Handle { id, path: path.to_owned(), fd }))
    }

    fn keep(&self, handle: Handle) -> u64 {
        let number = self.next_handle.fetch_add(1, Ordering::Relaxed);
        lock(&self.handles).insert(number, Arc::new(handle));
        number
    }

    /// Makes a change, and tells of it, alone.
    fn change<T>(
        &self,
        kind: Kind,
        path: &Path,
        make: impl FnOnce() -> Result<(T, Option<Change>), Errno>,
    ) -> Result<T, Errno> {
        self.watch.admit(kind, path)?;
        let _order = lock(&self.order);
        self.watch.hold();
        let (made, change) = make()?;
        if let Some(change) = change {
            self.watch.changed(change);
        }
        Ok(made)
    }

    fn make_file(&self, path: &Path, mode: u32, flags: i32) -> Result<(FileAttr, u64), Errno> {
        self.change(Kind::Create, path, || {
            let asked = OFlags::from_bits_retain(u32::try_from(flags).map_err(|_| Errno::INVAL)?);
            let flags = (asked - OFlags::DIRECT) | OFlags::CREATE | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(mode & 0o7777);
            let fd = rustix::fs::openat(&self.root, path, flags, mode)?;
            let stat = rustix::fs::fstat(&fd)?;
            let id = lock(&self.names).id(path);
            let number = self.keep(Handle { id, path: path.to_owned(), fd });
            let change = Change::Create { file: id, path: path.to_owned() };
            Ok(((attributes(id, &stat), number), Some(change)))
        })
    }

    fn resize(&self, ino: INodeNo, fh: Option<FileHandle>, len: u64) -> Result<FileAttr, Errno> {
        let handle = fh.map(|fh| self.handle(fh)).transpose()?;
        let path = handle.as_ref().map_or_else(|| self.path(ino), |h| Ok(h.path.clone()))?;
        self.change(Kind::Resize, &path, || {
            let opened;
            let fd = match &handle {
                Some(handle) => &handle.fd,
                None => {
                    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
                    opened = rustix::fs::openat(&self.root, &path, flags, Mode::empty())?;
                    &opened
                }
            };
            rustix::fs::ftruncate(fd, len)?;
            let attributes = attributes(FileId(ino.0), &rustix::fs::fstat(fd)?);
            Ok((attributes, Some(Change::Resize { file: FileId(ino.0), path: path.clone(), len })))
        })
    }

    fn list(&self, path: &Path) -> Result<Vec<(FileId, FileType, OsString)>, Errno> {
        self.watch.admit(Kind::List, path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.root, Self::name(path), flags, Mode::empty())?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let folder = entry.file_type() == rustix::fs::FileType::Directory;
            let kind = if folder { FileType::Directory } else { FileType::RegularFile };
            let id = match name.as_str() {
                "." | ".." => ROOT,
                _ => lock(&self.names).id(&path.join(&name)),
            };
            found.push((id, kind, OsString::from(name)));
        }
        found.sort_by(|a, b| a.2.cmp(&b.2));
        Ok(found)
    }
}

impl Filesystem for Passage {
    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.child(parent, name).and_then(|path| {
            self.watch.admit(Kind::Lookup, &path)?;
            self.stat(&path)
        });
        match found {
            Ok(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let of_handle = |handle: &Handle| {
            self.watch.admit(Kind::Lookup, &handle.path)?;
            Ok(attributes(FileId(ino.0), &rustix::fs::fstat(&handle.fd)?))
        };
        let by_number = |_| {
            let handles = lock(&self.handles);
            handles.values().find(|handle| handle.id.0 == ino.0).cloned().ok_or(Errno::STALE)
        };
        let found = match fh.map(|fh| self.handle(fh)) {
            Some(handle) => handle.and_then(|handle| of_handle(&handle)),
            None => match self.path(ino) {
                Ok(path) => self.watch.admit(Kind::Lookup, &path).and_then(|()| self.stat(&path)),
                Err(errno) => by_number(errno).and_then(|handle| of_handle(&handle)),
            },
        };
        match found {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(len) = size else { return self.getattr(req, ino, fh, reply) };
        match self.resize(ino, fh, len) {
            Ok(attributes) => reply.attr(&NO_TIME, &attributes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn mkdir(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.child(parent, name).and_then(|path| {
            self.change(Kind::Create, &path, || {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::mkdirat(&self.root, &path, mode)?;
                Ok(((), None))
            })?;
            self.stat(&path)
        });
        match made {
            Ok(attributes) => reply.entry(&NO_TIME, &attributes, Generation(0)),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = self.child(parent, name).and_then(|path| {
            self.change(Kind::Unlink, &path, || {
                rustix::fs::unlinkat(&self.root, &path, AtFlags::empty())?;
                lock(&self.names).remove(&path);
                Ok(((), Some(Change::Unlink { path: path.clone() })))
            })
        });
        done(gone, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let renamed = self.child(parent, name).and_then(|from| {
            let to = self.child(newparent, newname)?;
            self.change(Kind::Rename, &from, || {
                rustix::fs::renameat(&self.root, &from, &self.root, &to)?;
                lock(&self.names).rename(&from, &to);
                let change = Change::Rename { from: from.clone(), to: to.clone() };
                Ok(((), Some(change)))
            })
        });
        done(renamed, reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.path(ino).and_then(|path| {
            self.watch.admit(Kind::Open, &path)?;
            self.open_at(&path, flags)
        });
        match opened {
            Ok(number) => reply.opened(FileHandle(number), FopenFlags::empty()),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let path = self.child(parent, name);
        match path.and_then(|path| self.make_file(&path, mode, flags)) {
            Ok((attributes, number)) => reply.created(
                &NO_TIME,
                &attributes,
                Generation(0),
                FileHandle(number),
                FopenFlags::empty(),
            ),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.handle(fh).and_then(|handle| {
            self.watch.admit(Kind::Read, &handle.path)?;
            self.watch.transfer(Kind::Read, handle.id, offset, size.into());
            let mut bytes = vec![0; usize::try_from(size).map_err(|_| Errno::INVAL)?];
            let mut len = 0;
            while len < bytes.len() {
                let at = offset + u64::try_from(len).expect("a length fits");
                match rustix::io::pread(&handle.fd, &mut bytes[len..], at)? {
                    0 => break,
                    more => len += more,
                }
            }
            bytes.truncate(len);
            Ok(bytes)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let written = self.handle(fh).and_then(|handle| {
            let len = u64::try_from(data.len()).map_err(|_| Errno::INVAL)?;
            self.watch.transfer(Kind::Write, handle.id, offset, len);
            self.change(Kind::Write, &handle.path, || {
                let len = rustix::io::pwrite(&handle.fd, data, offset)?;
                let bytes = data[..len].to_vec();
                let change =
                    Change::Write { file: handle.id, path: handle.path.clone(), at: offset, bytes };
                Ok((u32::try_from(len).map_err(|_| Errno::INVAL)?, Some(change)))
            })
        });
        match written {
            Ok(len) => reply.written(len),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Called at each close, and brings nothing to the drive.
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.handles).remove(&fh.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // The folder beneath is not flushed: what the lab needs is written down.
        let flushed = self.handle(fh).and_then(|handle| {
            self.watch.transfer(Kind::Flush, handle.id, 0, 0);
            let change = Change::FlushFile { file: handle.id, path: handle.path.clone() };
            self.change(Kind::Flush, &handle.path, || Ok(((), Some(change))))
        });
        done(flushed, reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open(_req, ino, flags, reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = match self.path(ino).and_then(|path| self.list(&path)) {
            Ok(entries) => entries,
            Err(errno) => return reply.error(error(errno)),
        };
        for (next, (id, kind, name)) in (1..).zip(entries) {
            if offset < next && reply.add(INodeNo(id.0), next, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.handles).remove(&fh.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let flushed = self.handle(fh).and_then(|handle| {
            let change = Change::FlushFolder { path: handle.path.clone() };
            self.change(Kind::Flush, &handle.path, || Ok(((), Some(change))))
        });
        done(flushed, reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let found = self.path(ino).and_then(|path| {
            self.watch.admit(Kind::Measure, &path)?;
            rustix::fs::fstatvfs(&self.root)
        });
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        match found {
            Ok(stat) => reply.statfs(
                stat.f_blocks,
                stat.f_bfree,
                stat.f_bavail,
                stat.f_files,
                stat.f_ffree,
                small(stat.f_bsize),
                small(stat.f_namemax),
                small(stat.f_frsize),
            ),
            Err(errno) => reply.error(error(errno)),
        }
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _ph: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel then takes files as always ready, which they are.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocated = self.handle(fh).and_then(|handle| {
            let mode = u32::try_from(mode).map_err(|_| Errno::INVAL)?;
            self.change(Kind::Allocate, &handle.path, || {
                let flags = FallocateFlags::from_bits_retain(mode);
                rustix::fs::fallocate(&handle.fd, flags, offset, length)?;
                let len = size(&rustix::fs::fstat(&handle.fd)?);
                Ok(((), Some(Change::Resize { file: handle.id, path: handle.path.clone(), len })))
            })
        });
        done(allocated, reply);
    }
}

fn done(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    }
}

fn error(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn attributes(id: FileId, stat: &Stat) -> FileAttr {
    let folder = stat.st_mode & 0o170_000 == 0o040_000;
    let changed =
        SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    FileAttr {
        ino: INodeNo(id.0),
        size: size(stat),
        blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
        atime: changed,
        mtime: changed,
        ctime: changed,
        crtime: changed,
        kind: if folder { FileType::Directory } else { FileType::RegularFile },
        perm: u16::try_from(stat.st_mode & 0o7777).unwrap_or(0o700),
        nlink: u32::try_from(stat.st_nlink).unwrap_or(1),
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// A thread that panicked under a lock ends the run; until then the data are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

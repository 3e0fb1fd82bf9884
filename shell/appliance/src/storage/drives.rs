//! One drive: its marker, its files, its index. All I/O of `store` is done here.
//!
//! Everything happens below one open directory, so that a drive which is unmounted while in use
//! takes no byte of ours to the filesystem beneath. Object files are read and written with direct
//! I/O only; the index is small and goes through the page cache, each change followed by fdatasync.

mod drive_log;
mod files;
mod steps;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iosched::drive::Class;
use model::extent::{DriveIndex, FileName};
use model::id::{DriveId, ObjectId};
use model::limits::DIRECT_ALIGN;
use model::units::{Bytes, Nanos};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use store::absence::MarkerSeen;
use store::layout;
use store::log::{Damage, Entry};
use store::marker::{Marker, MarkerError};
use store::parcel::PartId;
use store::unit;
use upkeep::{Condition, condition};

use crate::lock::lock;
use crate::storage::gate::Gate;
use crate::storage::pages::Pages;
use drive_log::DriveLog;

pub(crate) use files::{
    Ungated, file_len, list, number, read_at, read_small, replace, sync_at, to,
};
pub use upkeep::{DriveError, ObjectFileError, Space};

/// A drive that is in use, or was until it failed.
#[derive(Debug)]
pub struct Drive {
    index: DriveIndex,
    path: PathBuf,
    marker: Marker,
    root: OwnedFd,
    /// Held open because it carries the lock that keeps a second process out.
    marker_file: OwnedFd,
    /// Held while the log is written: its holder waits for the drive.
    log: Mutex<DriveLog>,
    /// True once nothing is done to it any more.
    is_aside: AtomicBool,
    /// Held for a few assignments, never while the drive is waited for.
    condition: Mutex<Condition>,
    /// Held while room is looked for and taken, lest two fillers take the same.
    taking_room: Mutex<()>,
    /// Where threads other than workers have their turns. What is only metadata to the file system
    /// (opens, names, the log) goes without: it is little, and a turn may be long in coming.
    gate: Gate,
}

/// What was found when a drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    pub entries: BTreeMap<ObjectId, Entry>,
    /// What was cut from the end of the log.
    pub torn: Bytes,
    /// Why the index had to be made anew, if it had.
    pub damage: Option<Damage>,
    pub parts: Vec<PartId>,
}

/// Why a directory is not used as a drive.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("there is no directory {0}: mount the drive there, or correct the configuration")]
    NoDirectory(PathBuf),
    /// An ordinary directory, most likely the empty mount point of a drive that is not mounted.
    #[error(
        "{0} is not a Nearcast drive (no {marker}). If its drive is not mounted, mount it; if it \
         is new, run: nearcast-appliance format {0}", marker = layout::MARKER
    )]
    NoMarker(PathBuf),
    #[error("{path}: {error}")]
    Marker {
        path: PathBuf,
        /// What is wrong with the marker.
        error: MarkerError,
    },
    #[error("{0} is in use by another process: only one appliance may use a drive")]
    InUse(PathBuf),
    #[error("{0} is drive {1}, which is configured already under another path")]
    Twice(PathBuf, DriveId),
    #[error("{path} does not take direct I/O ({error}): put the drive on ext4 or XFS")]
    NoDirectIo { path: PathBuf, error: io::Error },
    #[error("{0} does not answer: look at the drive and its cable, then mount it anew")]
    Silent(PathBuf),
    #[error("{path}: {error}")]
    Drive { path: PathBuf, error: DriveError },
}

const CONDITION: condition::Config = condition::Config {
    // Three objects in an hour are bad places; the fourth says that the drive is dying. Arbitrary,
    // and far from both: a good drive loses an object in months, a dying one fails at every other
    // read.
    health: store::health::Config { objects_max: 3, window: Nanos::seconds(3600) },
    // Control hears that a drive answers when it has for ten seconds. One that has not for ten
    // minutes is not coming back by itself, and its objects are wanted: they are filled elsewhere.
    silence: store::silence::Config {
        answers_for: Nanos::seconds(10),
        hangs_for: Nanos::seconds(600),
    },
    // To be measured takes microseconds. Arbitrary, and far above.
    measure_max: Nanos::seconds(2),
    // After this something may have been evicted.
    full_for: Nanos::seconds(60),
};

impl Drive {
    /// Opens a formatted drive and loads its index.
    pub fn open(path: &Path, index: DriveIndex) -> Result<(Self, Loaded), OpenError> {
        Self::open_counting(path, index, &AtomicU64::new(0))
    }

    /// The same; `steps` grows while it goes on, so that a drive with much to tell can be told from
    /// one that does not answer.
    pub(crate) fn open_counting(
        path: &Path,
        index: DriveIndex,
        steps: &AtomicU64,
    ) -> Result<(Self, Loaded), OpenError> {
        let step = || steps.fetch_add(1, Ordering::Relaxed);
        let failed = |error| OpenError::Drive { path: path.to_owned(), error };
        let root = open_root(path)?;
        let (marker, marker_file) = read_marker(path, &root)?;
        rustix::fs::flock(&marker_file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| OpenError::InUse(path.to_owned()))?;
        step();
        probe_direct_io(path, &root)?;
        step();
        make_units_folder(&root).map_err(failed)?;
        let (log, mut loaded) = DriveLog::open(marker.id, &root, steps).map_err(failed)?;
        let parts = list(&root, &FileName(layout::FILL.into())).map_err(failed)?;
        loaded.parts = parts.iter().filter_map(|name| PartId::parse(name)).collect();
        let stat = rustix::fs::fstatvfs(&root).map_err(to("measure", "the filesystem"));
        let space = space(&stat.map_err(failed)?, &marker);
        let held = log.held();
        let drive = Self {
            index,
            path: path.to_owned(),
            marker,
            root,
            marker_file,
            log: Mutex::new(log),
            is_aside: AtomicBool::new(false),
            condition: Mutex::new(Condition::new(CONDITION, space, held)),
            taking_room: Mutex::default(),
            gate: Gate::open_to_all(),
        };
        Ok((drive, loaded))
    }

    /// Lets another process have the drive. Nothing may be done to it afterwards.
    pub(crate) fn unlock(&self) {
        let _ = rustix::fs::flock(&self.marker_file, FlockOperation::Unlock);
    }

    /// Its directory once more, as a name alone.
    pub(crate) fn directory(&self) -> Result<OwnedFd, DriveError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&self.root, ".", flags, Mode::empty()).map_err(to("open", "."))
    }

    /// From now on threads other than workers have their turns at this gate.
    pub(crate) fn put_behind(&mut self, gate: Gate) {
        self.gate = gate;
    }

    /// Where threads other than workers have their turns.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its marker says.
    pub fn marker(&self) -> &Marker {
        &self.marker
    }

    /// Stops all use of the drive; false if it was stopped before.
    pub(crate) fn set_aside(&self) -> bool {
        let was_aside = self.is_aside.swap(true, Ordering::SeqCst);
        // Who waits there would wait for ever if the drive hangs.
        self.gate.open();
        !was_aside
    }

    /// How large it is and how much of that is free, as it was when it was measured last.
    pub fn space(&self) -> Space {
        lock(&self.condition).space
    }

    /// Asks it for its room and looks at its marker; waits until it answers. One thread does.
    pub(crate) fn measure(&self) -> Result<(Space, Option<MarkerSeen>), DriveError> {
        let stat = rustix::fs::fstatvfs(&self.root);
        let marker = self.marker_seen();
        let stat = stat.map_err(to("measure", "the filesystem"))?;
        Ok((space(&stat, &self.marker), marker))
    }

    pub(crate) fn marker_seen(&self) -> Option<MarkerSeen> {
        marker_seen(self.root.as_fd(), layout::MARKER.as_ref())
    }

    /// The same for a thread that has just changed how much is free. That it cannot be measured is
    /// found by the one that always does.
    fn measure_again(&self) {
        if let Ok(stat) = rustix::fs::fstatvfs(&self.root) {
            lock(&self.condition).space = space(&stat, &self.marker);
        }
    }

    /// The same for a sibling, who waits for them.
    pub(crate) fn read_for_sibling(
        &self,
        fd: &OwnedFd,
        bytes: &mut [u8],
        at: Bytes,
    ) -> Result<(), DriveError> {
        let _turn = self.gate.enter(Class::Serve, Bytes::of(bytes.len()));
        read_at(fd, bytes, at)
    }

    /// How many objects it holds, and how many bytes of them.
    pub fn held(&self) -> (u64, Bytes) {
        lock(&self.condition).held
    }

    fn open_file(
        &self,
        file: &FileName,
        flags: OFlags,
        doing: &'static str,
    ) -> Result<OwnedFd, DriveError> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(&self.root, &*file.0, flags, Mode::from_raw_mode(0o640))
            .map_err(to(doing, &file.0))
    }
}

/// Opens a directory that is to be, or is, a drive.
pub(crate) fn open_root(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT | Errno::NOTDIR => OpenError::NoDirectory(path.to_owned()),
        other => OpenError::Drive {
            path: path.to_owned(),
            error: to("open", &path.display().to_string())(other),
        },
    })
}

pub(crate) fn read_marker(path: &Path, root: &OwnedFd) -> Result<(Marker, OwnedFd), OpenError> {
    let failed = |error| OpenError::Drive { path: path.to_owned(), error };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = match rustix::fs::openat(root, layout::MARKER, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Err(OpenError::NoMarker(path.to_owned())),
        Err(errno) => return Err(failed(to("open", layout::MARKER)(errno))),
    };
    let mut bytes = vec![0; 4096];
    let len = rustix::io::pread(&file, &mut bytes[..], 0)
        .map_err(|errno| failed(to("read", layout::MARKER)(errno)))?;
    let marker = String::from_utf8_lossy(&bytes[..len])
        .parse()
        .map_err(|error| OpenError::Marker { path: path.to_owned(), error })?;
    Ok((marker, file))
}

/// What the file system's books say of a marker; none if it is not there.
pub(crate) fn marker_seen(below: BorrowedFd<'_>, path: &Path) -> Option<MarkerSeen> {
    let stat = rustix::fs::statat(below, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(MarkerSeen {
        device: stat.st_dev,
        inode: stat.st_ino,
        changed_at: i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec),
    })
}

pub(crate) fn space(stat: &rustix::fs::StatVfs, marker: &Marker) -> Space {
    let blocks = |count: u64| Bytes(count.saturating_mul(stat.f_frsize));
    let reserve = marker.reserve.of(blocks(stat.f_blocks));
    // What only root may use counts towards our reserve, not on top of it.
    let free = blocks(stat.f_bavail).min(blocks(stat.f_bfree).saturating_sub(reserve));
    Space { capacity: blocks(stat.f_blocks).saturating_sub(reserve), free }
}

/// Drives that were formatted before there were units do not have it.
fn make_units_folder(root: &OwnedFd) -> Result<(), DriveError> {
    match rustix::fs::mkdirat(root, unit::UNITS, Mode::from_raw_mode(0o750)) {
        Ok(()) => sync_at(root, "."),
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(to("make", unit::UNITS)(errno)),
    }
}

/// Reads a page of the marker with direct I/O: it costs nothing, and a drive that was formatted
/// elsewhere may be mounted where it cannot be read so.
fn probe_direct_io(path: &Path, root: &OwnedFd) -> Result<(), OpenError> {
    let refused =
        |errno: Errno| OpenError::NoDirectIo { path: path.to_owned(), error: errno.into() };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    let fd = rustix::fs::openat(root, layout::MARKER, flags, Mode::empty()).map_err(refused)?;
    let mut page = Pages::zeroed(DIRECT_ALIGN);
    rustix::io::pread(&fd, &mut page[..], 0).map_err(refused)?;
    Ok(())
}

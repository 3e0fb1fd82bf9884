//! Why an operation on a drive failed, what follows from that, and why a drive is not used.
//!
//! ```text
//! the kernel's error ──> DriveError ──> Fault: the object goes elsewhere, the file, the drive
//!                                  └──> Cause: why the drive is set aside, for the operator
//! ```

use std::fmt;
use std::io;

use model::extent::FileName;
use model::id::ObjectId;
use model::object::BlocksError;
use model::units::Nanos;
use store::layout::FooterError;
use store::unit::UnitError;

/// An error number of the kernel. The numbers are Linux's on all machines that we build for
/// (`include/uapi/asm-generic/errno.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// There is no such file.
    pub const NOENT: Self = Self(2);
    /// The drive could not read or write.
    pub const IO: Self = Self(5);
    /// No such device or address.
    pub const NXIO: Self = Self(6);
    /// There is no such device.
    pub const NODEV: Self = Self(19);
    /// There is no room.
    pub const NOSPC: Self = Self(28);
    /// The file system is read-only.
    pub const ROFS: Self = Self(30);
    /// Direct reads of a bad sector say this, not `IO`.
    pub const NODATA: Self = Self(61);
    /// The file system found a wrong checksum.
    pub const BADMSG: Self = Self(74);
    /// XFS says this when it has given up.
    pub const SHUTDOWN: Self = Self(108);
    /// There is no connection to the drive.
    pub const NOTCONN: Self = Self(107);
    /// The drive did not answer in time.
    pub const TIMEDOUT: Self = Self(110);
    /// The file is gone from a server.
    pub const STALE: Self = Self(116);
    /// The file system has to be cleaned.
    pub const UCLEAN: Self = Self(117);
    /// A drive behind a network failed.
    pub const REMOTEIO: Self = Self(121);
    /// A quota is used up.
    pub const DQUOT: Self = Self(122);

    /// True of an error that may be one bad place: where an object is read, it means that object.
    /// Where a folder or the index is read, or anything is written or flushed, it means the drive.
    pub fn is_one_place(self) -> bool {
        const PLACES: [Errno; 6] = [
            Errno::IO,
            Errno::NODATA,
            Errno::BADMSG,
            Errno::UCLEAN,
            Errno::REMOTEIO,
            Errno::TIMEDOUT,
        ];
        PLACES.contains(&self)
    }

    /// What it means for the drive. XFS was seen to say `UCLEAN` or `SHUTDOWN` when it had given up
    /// (2026-11).
    pub fn fault(self) -> Fault {
        const SET_ASIDE: [Errno; 12] = [
            Errno::IO,
            Errno::NODATA,
            Errno::ROFS,
            Errno::NXIO,
            Errno::NODEV,
            Errno::UCLEAN,
            Errno::SHUTDOWN,
            Errno::BADMSG,
            Errno::TIMEDOUT,
            Errno::REMOTEIO,
            Errno::STALE,
            Errno::NOTCONN,
        ];
        if SET_ASIDE.contains(&self) {
            Fault::SetAside
        } else if self == Self::NOSPC || self == Self::DQUOT {
            Fault::Full
        } else {
            Fault::Io
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No room: what was allocated is given back, the object goes elsewhere.
    Full,
    /// This file only: it is removed, and the object may be tried again.
    Io,
    /// The drive is no longer used: nothing more is done to it.
    SetAside,
}

/// An operation on a drive failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {action} {file}: {why}")]
pub struct DriveError {
    pub fault: Fault,
    action: &'static str,
    file: String,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Why {
    #[error("{0}")]
    Kernel(Errno),
    #[error("unexpected end of file")]
    Short,
    #[error("it is set aside")]
    Aside,
}

impl DriveError {
    /// The kernel refused to do this to a file.
    pub fn new(action: &'static str, file: &str, errno: Errno) -> Self {
        Self { fault: errno.fault(), action, file: file.to_owned(), why: Why::Kernel(errno) }
    }

    /// A flush failed. Nobody knows what reached the drive, and trying again lies (the kernel marks
    /// the pages clean): whatever the reason, the drive is set aside, unless it is full.
    pub fn flush(file: &str, errno: Errno) -> Self {
        let full = errno.fault() == Fault::Full;
        let fault = if full { Fault::Full } else { Fault::SetAside };
        Self { fault, ..Self::new("flush", file, errno) }
    }

    /// A file ended too early: no error of the kernel's.
    pub fn short(file: &str) -> Self {
        Self { fault: Fault::Io, action: "read all of", file: file.to_owned(), why: Why::Short }
    }

    /// Nothing is done to a drive that is set aside.
    pub fn set_aside() -> Self {
        let (file, why) = ("the drive".to_owned(), Why::Aside);
        Self { fault: Fault::SetAside, action: "use", file, why }
    }

    /// What the kernel said; none of what ended too early, or is set aside.
    pub fn errno(&self) -> Option<Errno> {
        if let Why::Kernel(errno) = self.why { Some(errno) } else { None }
    }

    /// True if it may be one bad place: see [`Errno::is_one_place`].
    pub fn is_one_place(&self) -> bool {
        self.errno().is_some_and(Errno::is_one_place)
    }

    /// True if the file was not there.
    pub fn is_missing(&self) -> bool {
        self.errno() == Some(Errno::NOENT)
    }

    /// True if the file was too short.
    pub fn is_short(&self) -> bool {
        self.why == Why::Short
    }
}

/// Why a file of objects cannot be used as one.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFileError {
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Footer(#[from] FooterError),
    #[error(transparent)]
    Table(#[from] BlocksError),
    #[error(transparent)]
    Unit(#[from] UnitError),
}

/// Why a drive is not used. The text is for the operator, wherever it is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// An operation on it failed.
    #[error(transparent)]
    Failed(#[from] DriveError),
    #[error("cannot read object {0}: {1}")]
    Unread(ObjectId, Errno),
    /// Too many objects could not be read: the last of them, and what the kernel said.
    #[error("too many objects are unreadable, at last {0}: {1}")]
    Unreadable(ObjectId, String),
    /// Its marker is gone, and so is a file that should be there.
    #[error("its marker is gone, and {}: was it unmounted?", .0.0)]
    Unmounted(FileName),
    #[error("what was written there is not what is read")]
    Miswritten,
    #[error("it has not answered for {} s", .0.as_seconds())]
    Silent(Nanos),
    #[error("{0}")]
    Refused(String),
}

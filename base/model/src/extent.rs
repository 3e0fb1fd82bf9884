//! Where an object lies.

use std::fmt;
use std::sync::Arc;

use crate::units::Bytes;

/// A drive's place in the appliance's list; what the drive *is* says its marker (`DriveId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveIndex(pub u8);

impl DriveIndex {
    /// As an index into a list of drives.
    pub fn as_usize(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for DriveIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A file's name on its drive, relative to the drive's root. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(pub Arc<str>);

/// A run of bytes in a file on a drive. An object that is alone in its file begins at offset 0,
/// those in a unit where its directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Which drive.
    pub drive: DriveIndex,
    /// Which file on it.
    pub file: FileName,
    /// Where in the file the object begins; a multiple of `limits::DIRECT_ALIGN`.
    pub offset: Bytes,
    /// How long the object is.
    pub len: Bytes,
}

//! Where an object lies.

use std::sync::Arc;

pub use crate::drives::DriveIndex;
use crate::units::Bytes;

/// A file's name on its drive, relative to the drive's root. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(pub Arc<str>);

/// A run of bytes in a file on a drive. An object that is alone in its file begins at offset 0,
/// those in a unit where its directory says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    pub drive: DriveIndex,
    pub file: FileName,
    /// Where in the file the object begins; a multiple of `limits::DIRECT_ALIGN`.
    pub offset: Bytes,
    pub len: Bytes,
}

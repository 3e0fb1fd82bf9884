//! What viewers are expected to be sent of an appliance's items, as control tells it. A hint: it
//! says nothing of what is held and served, and whoever has none, or a wrong one, is only slower.

use crate::id::{AssetVersionId, ObjectId};
use crate::number::NumberSet;
use crate::units::Bytes;

/// More items are not told. Arbitrary: of films in one file each, some terabytes.
pub const ITEMS_MAX: usize = 1024;
/// More files are not told: a quarter of the objects whose heat an appliance knows. Of films that
/// are cut into segments, the best rendition of nine films of two hours.
pub const FILES_MAX: u64 = 16_384;

/// An item of which viewers are expected to be sent much.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpectedItem {
    pub version: AssetVersionId,
    /// The numbers of its files.
    pub files: NumberSet,
    /// What they are expected to be sent in a day, by this appliance, of each MiB of it.
    pub day_per_mib: Bytes,
}

/// An object of which viewers are expected to be sent much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedObject {
    pub object: ObjectId,
    pub len: Bytes,
    /// In a day.
    pub day: Bytes,
}

/// The first blocks of an object: each is worth a place in memory from its first want on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FirstBlocks {
    pub object: ObjectId,
    pub count: u64,
}

//! Changes for the workers, from the holdings to every one of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::extent::{DriveIndex, Extent};
use crate::id::{ApplianceId, ObjectId};
use crate::manifest::Manifest;

/// A change of the content to serve. Every worker gets every update, in order.
#[derive(Clone, Debug)]
pub enum Update {
    /// A newer manifest is in force.
    Manifest(Arc<Manifest>),
    /// An object was published.
    Published {
        object: ObjectId,
        /// The drive, file and offset of its bytes.
        extent: Extent,
        /// Its bytes, if it is small and there is room for it in memory.
        small: Option<Arc<[u8]>>,
    },
    /// An object is no longer here.
    Removed { object: ObjectId },
    /// Siblings that can serve now, and their base URLs, without a slash at the end.
    Siblings(Arc<BTreeMap<ApplianceId, Arc<str>>>),
    /// A drive is out of use, and all that is on it.
    DriveSetAside { drive: DriveIndex },
}

//! The state of an appliance's storage, as its report, its metrics and `inspect` tell it.

use std::path::PathBuf;

use crate::drives::DriveIndex;
use crate::id::{DriveId, Generation};
use crate::units::{Bytes, Nanos};

/// One configured drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveStatus {
    /// Its place in the list.
    pub index: DriveIndex,
    /// Directory as configured.
    pub path: PathBuf,
    /// Its UUID, if the marker could be read.
    pub id: Option<DriveId>,
    /// Why it is set aside, if it is.
    pub set_aside: Option<String>,
    /// For how long it has not answered; none while it does.
    pub hangs: Option<Nanos>,
    /// Usable size.
    pub capacity: Bytes,
    pub free: Bytes,
    pub objects: u64,
    /// Its units, as of the last audit.
    pub units: Units,
    pub scrub: ScrubStatus,
    /// How it serves; none where that is not looked at.
    pub load: Option<DriveLoad>,
}

impl DriveStatus {
    /// A drive of which nothing is known.
    pub fn unknown(index: DriveIndex, path: PathBuf) -> Self {
        Self {
            index,
            path,
            id: None,
            set_aside: None,
            hangs: None,
            capacity: Bytes::ZERO,
            free: Bytes::ZERO,
            objects: 0,
            units: Units::default(),
            scrub: ScrubStatus::default(),
            load: None,
        }
    }

    /// Why nothing is read from it now; none if it serves.
    pub fn reason(&self) -> Option<String> {
        let hangs = || Some(format!("it has not answered for {} s", self.hangs?.as_seconds()));
        self.set_aside.clone().or_else(hangs)
    }
}

/// The units on a drive, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Units {
    pub count: u64,
    /// Bytes in them of what is not held any more: they come back with the units.
    pub dead: Bytes,
}

/// How far a drive is scrubbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubStatus {
    /// From 0 to 2^64 in each pass.
    pub at: u64,
    /// Whole passes since the start.
    pub passes: u64,
}

/// Left at least of a drive of which nobody notices that its reads take longer than on an idle one,
/// in thousandths. Shares rise while more is left than control wants, which is less than this: or
/// an appliance that came back would stay at the least that it can have.
pub const UNFELT_HEADROOM_PERMILLE: u32 = 500;

/// How a drive serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveLoad {
    /// The share left of the reads that it could serve at the target, in thousandths.
    pub headroom_permille: u32,
    /// From when the drive has a read until it is back; mean of the last second or so.
    pub service: Nanos,
    /// The same when there was little to do: the lowest mean seen.
    pub service_unloaded: Nanos,
    /// Bytes per second that may be written; None for any number.
    pub fill_granted: Option<Bytes>,
    /// Writes that wait here, not in the drive.
    pub fills_held: usize,
    /// Windows of reads since the start; none where nothing is governed.
    pub windows: u64,
    /// Of these, those in which more than one read in a hundred was late.
    pub windows_late: u64,
}

/// How far fill is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillStatus {
    /// Generation of the manifest in force; 0 for none.
    pub generation: Generation,
    /// Generation of the trust document in force; 0 where the manifest has the keys itself.
    pub trust: Generation,
    /// Objects in the manifest.
    pub objects_wanted: u64,
    /// Of these, published.
    pub objects_held: u64,
    pub bytes_wanted: Bytes,
    /// Of these, published or verified in a part file.
    pub bytes_held: Bytes,
    /// Objects that fit on no drive.
    pub objects_without_room: u64,
    /// Objects that a master of the fill cluster is to fetch first.
    pub objects_waiting: u64,
    /// Within the hours in which it may fetch.
    pub is_open: bool,
    /// Bytes of whole blocks fetched since the start.
    pub fetched: Bytes,
    /// Of these, from siblings.
    pub from_siblings: Bytes,
}

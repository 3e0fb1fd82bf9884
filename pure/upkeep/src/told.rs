//! What procedures tell their host, besides changes of the holdings.

use fill::plan::{Fetch, Report};
use holdings::{Chores, Claim};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::object::BlockHash;
use model::status::Units;
use model::units::{Bytes, Nanos, UnixSeconds};
use store::layout::Choice;
use store::parcel::Parcel;
use store::unit::UnitError;

use crate::cause::{Cause, DriveError};

/// What happens in procedures besides changes of the holdings.
#[derive(Debug)]
pub enum Told<'a, D> {
    /// An operation failed, and the drive stays in use.
    Failed(&'a D, &'a DriveError),
    /// These are about to be shown: all of each is on the drive, and in its log.
    Shows(&'a D, &'a [(ObjectId, Extent)]),
    /// So many objects of one file are about to go, or the file that no index speaks of.
    Removes(&'a D, &'a FileName, usize),
    /// A copy is about to go, since the index has the object elsewhere, or nobody wants it.
    Spare(&'a D, &'a FileName, ObjectId),
    /// A copy of objects is about to be written to this drive.
    Copies(&'a D, &'a Parcel),
    /// A part file is there now.
    Begun(&'a D, &'a Parcel),
    /// A drive was chosen for a file, or none.
    Chosen(&'a Choice),
    /// Objects are visible that were fetched.
    Filled(&'a Claim),
    /// An object cannot be had now: it is tried again later.
    Postponed(&'a Fetch, &'a str),
    /// What was written to this drive is not what is read.
    Miswritten(&'a D),
    /// So many objects were found in this file and are shown from now on.
    Adopted(&'a D, &'a FileName, usize),
    /// An object that is as this text says was removed, to be filled again.
    SetAside(&'a D, ObjectId, &'a str),
    /// An object that was doubted is right.
    Right(ObjectId),
    /// This was done about a drive, or much of it.
    Tended(DriveIndex, &'a Chores),
    /// Something that lies on this drive was checked.
    Checked(&'a D, Checked<'a>),
    /// An object is wrong in its unit, or unreadable, and is left there.
    LeftInUnit(&'a D, ObjectId, Option<&'a DriveError>),
    /// So many objects went with a unit, which is as this text says.
    UnitLost(&'a D, usize, &'a str),
    /// A later version wrote this unit.
    UnitUnknown(&'a D, &'a UnitError),
    /// A drive hangs from now on.
    Hangs(&'a D),
    Answers(&'a D),
    /// A drive was set aside for this cause.
    DriveAside(&'a D, &'a Cause),
    /// A drive that was set aside, or another in its place, is in use with so many objects.
    Returned(&'a D, usize),
    /// The drive at this place was tried, and is no good for this reason.
    StaysAside(DriveIndex, &'a str),
    /// Fill may fetch from now on, or may not, until then.
    Hours {
        is_open: bool,
        until: Option<UnixSeconds>,
    },
    /// A plan found another number of objects than the one before that fit on no drive.
    WithoutRoom(&'a Report),
}

/// What was checked in the background.
#[derive(Clone, Copy, Debug)]
pub enum Checked<'a> {
    /// All files against the index.
    Files(&'a Walked),
    /// So many bytes, which are right.
    Bytes(Bytes),
    /// An object, by the scrub; ids are hashes, so this goes evenly over a drive.
    Object(ObjectId),
    /// All objects, by the scrub.
    Pass,
    /// A block that a viewer was sent, which is right or not.
    Sample(&'a Sample, bool),
}

/// How a walk over a drive went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walked {
    pub files: u64,
    /// Mistakes that were found.
    pub found: u64,
    pub units: Units,
    pub took: Nanos,
}

/// A block that a viewer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    pub drive: DriveIndex,
    pub object: ObjectId,
    pub object_len: Bytes,
    pub block: u64,
    /// The hash of the bytes that were sent; none if they were not a whole block.
    pub hash: Option<BlockHash>,
}

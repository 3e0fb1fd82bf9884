//! The process that runs the procedures, as they see it.

use std::ops::Deref;

use holdings::{Chores, Claim, Doubt, FileStanding, Holdings, Part};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::units::{Bytes, Instant, Nanos};
use store::layout::DriveSpace;
use store::parcel::PartId;

use crate::cause::{Cause, DriveError, Fault};
use crate::drive::{Drive, Files};
use crate::told::{Sample, Told};

/// Whoever runs procedures: a clock, the ledger, the drives, and somebody to tell.
pub trait Host {
    /// A drive.
    type Drive: Drive;
    /// Keeps a drive open: one that is set aside is not looked for again while somebody has it.
    type Keep: Deref<Target = Self::Drive> + Clone;

    /// Objects that are looked at while the holdings are locked once.
    const SLICE: usize = holdings::SLICE;

    /// Time since the start.
    fn now(&self) -> Instant;

    /// True if all must stop.
    fn is_stopping(&self) -> bool;

    /// Waits until then; false if all must stop.
    fn sleep_until(&self, until: Instant) -> impl Future<Output = bool>;

    /// Lets others have the holdings, between two slices.
    fn pause(&self) -> impl Future<Output = ()>;

    /// Looks at the holdings, under their lock. Nothing waits in there.
    fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R;

    /// Changes the holdings, under their lock; whoever has to know of it is told before this
    /// returns. Nothing waits in there.
    fn change<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R;

    /// Waits for something to fetch, and claims it; none if all must stop.
    fn claim_fetch(&self) -> impl Future<Output = Option<Claim>>;

    /// Waits for something to do about a drive; none if all must stop.
    fn next_errand(&self, drive: DriveIndex) -> impl Future<Output = Option<Chores>>;

    /// Waits for a block that a viewer was sent; none if all must stop.
    fn next_sample(&self) -> impl Future<Output = Option<Sample>>;

    /// How often a drive that was set aside has come back.
    fn returns(&self) -> u64;

    /// The drives that are in use.
    fn drives(&self) -> Vec<Self::Keep>;

    /// A drive that is in use.
    fn drive(&self, index: DriveIndex) -> Option<Self::Keep>;

    /// True of a drive in use that answers, as far as is known.
    fn answers(&self, drive: &Self::Drive) -> bool;

    /// Room on each drive in use: none is free where nothing should be put now.
    fn spaces(&self) -> Vec<DriveSpace>;

    /// How long a file stays after its objects were shown elsewhere: whoever hears of the new place
    /// late still opens the old one.
    fn linger(&self) -> Nanos;

    /// Stops all use of a drive and tells everybody; its objects are filled elsewhere.
    fn set_aside(&self, drive: &Self::Drive, cause: Cause) -> impl Future<Output = ()>;

    /// Something happened that somebody may want to log, to count, or to check.
    fn tell(&self, told: Told<'_, Self::Drive>);
}

/// A drive's memory, as a host has it.
pub type PagesOf<H> = <<H as Host>::Drive as Files>::Pages;
/// A drive's open file, as a host has it.
pub type FileOf<H> = <<H as Host>::Drive as Files>::File;

/// Questions to the holdings, and changes of them, that procedures have in common.
pub trait Ledger: Host {
    /// A drive in use that answers, as far as is known.
    fn answering(&self, index: DriveIndex) -> Option<Self::Keep> {
        let drive = self.drive(index)?;
        assert!(drive.index() == index, "extents name drives by their places");
        self.answers(&drive).then_some(drive)
    }

    /// Takes note of a failed operation: the drive is set aside if that is what it means.
    fn failed(&self, drive: &Self::Drive, error: &DriveError) -> impl Future<Output = ()> {
        async move {
            match error.fault {
                Fault::SetAside => return self.set_aside(drive, error.clone().into()).await,
                Fault::Full => drive.note_full(self.now()),
                Fault::Io => {}
            }
            self.tell(Told::Failed(drive, error));
        }
    }

    /// Where an object lies.
    fn locate(&self, object: &ObjectId) -> Option<Extent> {
        self.ask(|holdings| holdings.index().locate(object).cloned())
    }

    /// The first published object on a drive whose id is above `after`.
    fn next_on(&self, drive: DriveIndex, after: Option<ObjectId>) -> Option<(ObjectId, Extent)> {
        self.ask(|holdings| {
            let next = holdings.index().next_on(drive, after);
            let is_ahead = next.is_none_or(|(object, _)| after < Some(object));
            assert!(is_ahead, "a pass over a drive comes to its end");
            next.map(|(object, extent)| (object, extent.clone()))
        })
    }

    /// True of an object that the manifest in force names.
    fn is_wanted(&self, object: &ObjectId) -> bool {
        self.ask(|holdings| holdings.is_wanted(object))
    }

    /// How an object found in a file stands. Claims nothing.
    fn standing(&self, object: ObjectId, drive: DriveIndex, file: &FileName) -> FileStanding {
        self.ask(|holdings| holdings.standing(object, drive, file))
    }

    /// Claims what an audit may have to change: an object found in a file.
    fn claim_file(&self, object: ObjectId, drive: DriveIndex, file: &FileName) -> FileStanding {
        self.change(|holdings| holdings.claim_file(object, drive, file))
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    fn claim(&self, object: ObjectId) -> bool {
        self.change(|holdings| holdings.claim(object))
    }

    /// The same for several at once: all, or none of them.
    fn claim_all(&self, objects: &[ObjectId]) -> bool {
        self.change(|holdings| holdings.claim_all(objects))
    }

    /// Lets go of an object.
    fn release(&self, object: ObjectId) {
        self.change(|holdings| holdings.release(object));
    }

    /// Lets go of several.
    fn release_all(&self, objects: &[ObjectId]) {
        self.change(|holdings| objects.iter().for_each(|object| holdings.release(*object)));
    }

    /// Makes an object invisible.
    fn hide(&self, object: ObjectId) {
        self.change(|holdings| holdings.hide(object));
    }

    /// Somebody doubts the object: the keeper will look at it.
    fn suspect(&self, object: ObjectId, doubt: Doubt) {
        self.change(|holdings| holdings.suspect(object, doubt));
    }

    /// Plans again as soon as possible.
    fn replan(&self) {
        self.change(Holdings::replan);
    }

    /// True if workers may have the bytes of one more object of this length.
    fn has_small_room(&self, len: Bytes) -> bool {
        self.ask(|holdings| holdings.has_small_room(len))
    }

    /// Gives workers the bytes of a small object that is published already.
    fn publish_small(&self, object: ObjectId, extent: &Extent, bytes: &[u8]) {
        self.change(|holdings| holdings.publish_small(object, extent, bytes));
    }

    /// Only the first so many of it are fetched; none if that cannot be now.
    fn shorten(&self, claim: Claim, count: usize) -> Option<Claim> {
        self.change(|holdings| holdings.shorten(claim, count))
    }

    /// Whoever had this claim is done with it. Those that could not be had are tried again, later
    /// each time.
    fn done(&self, claim: &Claim, postponed: &[ObjectId]) {
        self.change(|holdings| holdings.done(self.now(), claim, postponed));
    }

    /// How much of a part is good, for the reports; none when there is no part any more.
    fn set_part(&self, id: PartId, part: Option<Part>) {
        self.change(|holdings| holdings.set_part(id, part));
    }

    /// The part of this drive is not there any more.
    fn dropped_part(&self, id: PartId, drive: DriveIndex) {
        self.change(|holdings| holdings.dropped_part(id, drive));
    }
}

impl<H: Host> Ledger for H {}

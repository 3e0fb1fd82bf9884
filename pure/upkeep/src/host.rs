//! The process that runs the procedures, as they see it.

use std::ops::Deref;
use std::sync::Arc;

use holdings::{Claim, Desired, Doubt, Holdings, Part};
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::manifest::Manifest;
use model::units::{Instant, Nanos};
use store::layout::DriveSpace;
use store::parcel::PartId;

use crate::cause::{Cause, DriveError, Fault};
use crate::drive::{Drive, Files};
use crate::told::{Sample, Told};

/// Whoever runs procedures: a clock, the ledger, the drives, and somebody to tell.
pub trait Host {
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

    /// Waits until `left` finds no time left, which is asked again when the holdings have changed;
    /// false if all must stop.
    fn wait_changed(&self, left: impl Fn(&Holdings) -> Nanos) -> impl Future<Output = bool>;

    /// Waits until `take` finds something, which is asked again each time that there is such news;
    /// none if all must stop.
    fn wait_for<T>(
        &self,
        news: News,
        take: impl FnMut(&mut Holdings) -> Option<T>,
    ) -> impl Future<Output = Option<T>>;

    /// Wakes those who wait for errands: a plan has handed some out.
    fn wake_hands(&self);

    /// Waits for a block that a viewer was sent; none if all must stop.
    fn next_sample(&self) -> impl Future<Output = Option<Sample>>;

    /// How often a drive that was set aside has come back.
    fn returns(&self) -> u64;

    /// The drives that are in use.
    fn drives(&self) -> Vec<Self::Keep>;

    /// A drive that is in use.
    fn drive(&self, index: DriveIndex) -> Option<Self::Keep>;

    /// How long a file stays after its objects were shown elsewhere: whoever hears of the new place
    /// late still opens the old one.
    fn linger(&self) -> Nanos;

    /// Takes a drive out of use, with `Holdings::let_go`, under the ledger's lock. None if it is
    /// out of use already, or another is there.
    fn take_out(&self, drive: &Self::Drive, cause: &Cause) -> Option<Self::Keep>;

    /// Something happened that somebody may want to log, to count, or to check.
    fn tell(&self, told: Told<'_, Self::Drive>);
}

/// What may have happened to the holdings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// There is something to fetch or to plan.
    Changed,
    /// There are errands.
    HandedOut,
}

/// A drive's memory, as a host has it.
pub type PagesOf<H> = <<H as Host>::Drive as Files>::Pages;
/// A drive's open file, as a host has it.
pub type FileOf<H> = <<H as Host>::Drive as Files>::File;

/// Questions to the holdings, and changes of them, that procedures have in common.
pub trait Ledger: Host {
    /// True of a drive in use that answers, as far as is known.
    fn answers(&self, drive: &Self::Drive) -> bool {
        !drive.is_aside() && drive.condition(|of| of.hangs(self.now())).is_none()
    }

    /// Room on each drive in use: none is free where nothing should be put now.
    fn spaces(&self) -> Vec<DriveSpace> {
        let now = self.now();
        let space = |drive: Self::Keep| {
            let index = drive.index();
            drive.condition(|of| DriveSpace {
                drive: index,
                set_aside: false,
                capacity: of.space.capacity,
                free: of.free(now),
                held: of.held.1,
            })
        };
        self.drives().into_iter().map(space).collect()
    }

    /// A drive in use that answers, as far as is known.
    fn answering(&self, index: DriveIndex) -> Option<Self::Keep> {
        let drive = self.drive(index)?;
        assert!(drive.index() == index, "extents name drives by their places");
        self.answers(&drive).then_some(drive)
    }

    /// Changes something again and again, others in between, until that is done.
    fn in_slices(
        &self,
        mut is_done: impl FnMut(&mut Holdings) -> bool,
    ) -> impl Future<Output = ()> {
        async move {
            while !self.change(&mut is_done) {
                self.pause().await;
            }
        }
    }

    /// Objects found at the start; the first drive that has one wins.
    fn load(
        &self,
        mut objects: impl Iterator<Item = (ObjectId, Extent)>,
    ) -> impl Future<Output = ()> {
        self.in_slices(move |holdings| {
            let mut count = 0;
            for (object, extent) in objects.by_ref().take(Self::SLICE) {
                holdings.load(object, extent);
                count += 1;
            }
            count < Self::SLICE
        })
    }

    /// Puts a newer manifest in force; false if it is not newer. What follows from it alone is
    /// found before the holdings are locked, and what it takes the place of is dropped after: of
    /// a million objects either takes a tenth of a second.
    fn set_manifest(&self, manifest: Arc<Manifest>) -> impl Future<Output = bool> {
        async move {
            let desired = Desired::new(self.ask(Holdings::unit_len), manifest);
            if !self.change(|holdings| holdings.prepare(desired)) {
                return false;
            }
            let mut replaced = None;
            self.in_slices(|holdings| {
                replaced = holdings.prepare_some(Self::SLICE);
                replaced.is_some()
            })
            .await;
            true
        }
    }

    /// Stops all use of a drive and tells everybody; its objects are filled elsewhere. It is kept
    /// open until the index has none of them: so no drive is looked for in its place before that.
    fn set_aside(&self, drive: &Self::Drive, cause: Cause) -> impl Future<Output = ()> {
        async move {
            let Some(old) = self.take_out(drive, &cause) else { return };
            self.in_slices(|holdings| !holdings.forget_some(Self::SLICE)).await;
            self.tell(Told::DriveAside(&old, &cause));
        }
    }

    /// Takes note of a failed operation: the drive is set aside if that is what it means.
    fn failed(&self, drive: &Self::Drive, error: &DriveError) -> impl Future<Output = ()> {
        async move {
            match error.fault {
                Fault::SetAside => return self.set_aside(drive, error.clone().into()).await,
                Fault::Full => drive.condition(|of| of.note_full(self.now())),
                Fault::Io => {}
            }
            self.tell(Told::Failed(drive, error));
        }
    }

    fn locate(&self, object: &ObjectId) -> Option<Extent> {
        self.ask(|holdings| holdings.index().locate(object).cloned())
    }

    /// The first published object on a drive whose id is above `after`.
    fn next_on(&self, drive: DriveIndex, after: Option<ObjectId>) -> Option<(ObjectId, Extent)> {
        self.ask(|holdings| {
            let next = holdings.index().on(drive, after).next();
            let is_ahead = next.is_none_or(|(object, _)| after < Some(*object));
            assert!(is_ahead, "a pass over a drive comes to its end");
            next.map(|(object, extent)| (*object, extent.clone()))
        })
    }

    /// True of an object that the manifest in force names.
    fn is_wanted(&self, object: &ObjectId) -> bool {
        self.ask(|holdings| holdings.is_wanted(object))
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    fn claim(&self, object: ObjectId) -> bool {
        self.change(|holdings| holdings.claim(object))
    }

    /// The same for several at once: all, or none of them.
    fn claim_all(&self, objects: &[ObjectId]) -> bool {
        self.change(|holdings| holdings.claim_all(objects))
    }

    fn release(&self, object: ObjectId) {
        self.change(|holdings| holdings.release(object));
    }

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

    /// Only the first so many of it are fetched; none if that cannot be now.
    fn shorten(&self, claim: Claim, count: usize) -> Option<Claim> {
        self.change(|holdings| holdings.shorten(claim, count))
    }

    /// Whoever had this claim is done with it. Those that could not be had are tried again, later
    /// each time.
    fn done(&self, claim: &Claim, postponed: &[ObjectId]) {
        self.change(|holdings| holdings.done(self.now(), claim, postponed));
    }

    /// Whoever had this claim is done with it: what of it is not held waits for a master.
    fn wait_for_master(&self, claim: &Claim, span: Nanos) {
        self.change(|holdings| holdings.wait_for_master(self.now(), claim, span));
    }

    /// The holder of a claim of several gave up in the middle of this object: all wait for it once.
    fn wait_within(&self, claim: &Claim, object: ObjectId) {
        self.change(|holdings| holdings.wait_within(self.now(), claim, object));
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

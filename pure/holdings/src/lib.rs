//! The ledger of an appliance: objects held and wanted, and the claims of those at work on them.
//!
//! ```text
//! manifests, drives, fillers, keeper, audit ──> Holdings ──> updates   for workers, in order
//!                                                  │    ├──> news      those that wait look again
//!                                                  │    └──> errands   what each drive has to do
//!                                                  ├──> plan           what to fetch, what goes
//!                                                  └──> inventory      what control is told
//! ```
//!
//! One for an appliance; its shell keeps it behind a lock, never held during I/O, and after each
//! call takes the updates and the news. It composes `store` and `fill`.
//!
//! An object is worked on by the holder of its *claim* (a filler, the keeper, the audit) and by
//! nobody else until it is released.
//!
//! Here is the ledger itself: where objects lie, on drives that come and go. By modules:
//!
//! * `claims`: the objects and units that somebody works on, and the wait of those given up;
//! * `parts`: part files, and the spare ones;
//! * `planning`: when a plan is due, its fetches and its chores; it composes `parcels`, which puts
//!   objects into files, and `errands`, which hands chores to the drives;
//! * `desired`: the manifest in force, and the next one;
//! * `files`: the inventory that control is told;
//! * `hours`: when fillers may fetch;
//! * `waits`: what waits for a master of the fill cluster, and since when it is lacked.
//!
//! A question or change about one object costs O(log objects). A call that goes through many of
//! them is done some at a time, so that nobody waits for the lock meanwhile: a new manifest
//! (`prepare_some`), a plan (`plan_some`), what was on a drive that goes (`forget_some`) or is on
//! one that comes back (`take_back`, in portions), and lists (`published_in`, `without_bytes`).
//! What is called `..._some` says when it is done; `SLICE` is a good portion. Two things take their
//! time at once: `withhold`, O(objects of the drive x log files), and `inventory_since` for a
//! control that knows nothing or too little, O(objects).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fill::gap::{Known, Wanted};
use fill::plan::{self, Fetch, Planner};
use model::drives::{DriveIndex, DriveSet};
use model::extent::{Extent, FileName};
use model::hours::FillRules;
use model::id::{ApplianceId, Generation, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::Manifest;
use model::units::{Bytes, Instant};
use model::update::Update;
use store::index::Index;
use store::inventory::Inventory;
use store::layout;
use store::parcel::PartId;
use store::unit::UnitId;

mod claims;
mod desired;
mod errands;
mod files;
mod hours;
mod parcels;
mod parts;
mod planning;
#[cfg(test)]
mod tests;
mod urgent;
mod waits;

use claims::Postponed;
pub use claims::{Claim, FileStanding};
use desired::Next;
pub use desired::{Desired, Replaced};
pub use errands::Errands;
pub use files::Numbers;
pub use parts::Part;
pub use planning::{Chores, Doubt};
use urgent::Urgent;
use waits::Waits;

/// Bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A plan looks at so many objects at once; the rest comes with the next.
    pub plan: plan::Config,
    /// Changes of the inventory that are remembered; control asks at least every few minutes.
    pub inventory_changes_max: usize,
    /// Doubted objects; those beyond are left to the scrub.
    pub suspects_max: usize,
    /// Bytes of small objects that workers may have in memory.
    pub small_budget: Bytes,
    /// Objects below this length share files of about this length, as far as they die together
    /// (`fill::pack`). None for a file each.
    pub unit_len: Option<Bytes>,
}

/// How far the manifest is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects of the manifest, each counted once.
    pub objects_wanted: u64,
    /// Of these, published.
    pub objects_held: u64,
    pub bytes_wanted: Bytes,
    /// Of these, published.
    pub bytes_held: Bytes,
    /// Verified bytes of part files.
    pub bytes_partial: Bytes,
}

/// Objects that are looked at while the lock is held once: a millisecond, or two on a slow machine.
pub const SLICE: usize = 512;

/// Some of many objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Those that are looked for.
    pub found: Vec<(ObjectId, Extent)>,
    /// After which the next slice begins; none if this was the last.
    pub next: Option<ObjectId>,
}

/// The state of all objects, held and wanted, and the claims on them.
#[derive(Debug)]
pub struct Holdings {
    config: Config,
    index: Index,
    inventory: Inventory,
    /// Drives that hang: their objects are not in the inventory.
    hung: DriveSet,
    /// Drives that were set aside and on which the index still has something.
    leaving: DriveSet,
    desired: Desired,
    next: Option<Next>,
    /// The siblings in the site that can serve, by control's last word.
    siblings: Arc<BTreeMap<ApplianceId, Arc<str>>>,
    parts: BTreeMap<PartId, Part>,
    /// Invariant: the sum of `verified` over `parts`.
    bytes_partial: Bytes,
    /// Parts of which there is another, or which are whole elsewhere: they go with the next plan.
    spare_parts: BTreeSet<(PartId, DriveIndex)>,
    plan_report: plan::Report,
    busy: BTreeSet<ObjectId>,
    /// Units that somebody fills, or a part of which somebody removes.
    busy_units: BTreeSet<UnitId>,
    postponed: BTreeMap<ObjectId, Postponed>,
    /// Invariant: those of `postponed` that wait.
    due: BTreeSet<(Instant, ObjectId)>,
    waits: Waits,
    /// A plan that is being made.
    planner: Option<Planner>,
    errands: Errands,
    /// Fetches that wait, those of one file together. Invariant: none of them is empty.
    queue: VecDeque<Vec<Fetch>>,
    replan: bool,
    rules: Arc<FillRules>,
    /// Outside of the hours in which fill may fetch.
    is_closed: bool,
    /// What is urgent may be fetched all the same.
    takes_urgent: bool,
    urgent: Urgent,
    /// Invariant: at most `config.suspects_max`.
    suspects: BTreeMap<ObjectId, Doubt>,
    /// Objects whose bytes workers have in memory.
    small: BTreeMap<ObjectId, Bytes>,
    /// Invariant: the sum of `small`.
    small_used: Bytes,
    updates: VecDeque<Update>,
    news: bool,
}

impl Holdings {
    /// Nothing is held, and no manifest is known.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            index: Index::new(),
            inventory: Inventory::new(config.inventory_changes_max),
            hung: DriveSet::NONE,
            leaving: DriveSet::NONE,
            desired: Desired::default(),
            next: None,
            siblings: Arc::default(),
            parts: BTreeMap::new(),
            bytes_partial: Bytes::ZERO,
            spare_parts: BTreeSet::new(),
            plan_report: plan::Report::default(),
            busy: BTreeSet::new(),
            busy_units: BTreeSet::new(),
            postponed: BTreeMap::new(),
            due: BTreeSet::new(),
            waits: Waits::default(),
            planner: None,
            errands: Errands::new(config.suspects_max),
            queue: VecDeque::new(),
            replan: true,
            rules: Arc::default(),
            is_closed: false,
            takes_urgent: false,
            urgent: Urgent::default(),
            suspects: BTreeMap::new(),
            small: BTreeMap::new(),
            small_used: Bytes::ZERO,
            updates: VecDeque::new(),
            news: false,
        }
    }

    /// The next thing that every worker has to be told.
    pub fn next_update(&mut self) -> Option<Update> {
        self.updates.pop_front()
    }

    /// True once if there is something new to fetch or to plan.
    pub fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Where the published objects lie.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// How long units are: `Config::unit_len`.
    pub fn unit_len(&self) -> Option<Bytes> {
        self.config.unit_len
    }

    /// The manifest in force.
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.desired.manifest.as_ref()
    }

    /// Its generation; 0 before the first.
    pub fn generation(&self) -> Generation {
        self.desired.generation()
    }

    /// Objects of the manifest and their lengths.
    pub fn wanted(&self) -> &Wanted {
        self.desired.gap.wanted()
    }

    /// True of an object of the manifest.
    pub fn is_wanted(&self, object: &ObjectId) -> bool {
        self.wanted().len_of(object).is_some()
    }

    /// How far the manifest is held.
    pub fn progress(&self) -> Progress {
        let (objects_held, bytes_held) = self.desired.gap.held();
        assert!(bytes_held <= self.wanted().bytes(), "only what is wanted is counted");
        Progress {
            objects_wanted: Bytes::of(self.wanted().objects().len()).0,
            objects_held,
            bytes_wanted: self.wanted().bytes(),
            bytes_held,
            bytes_partial: self.bytes_partial,
        }
    }

    /// An object found at the start; the first drive that has it wins.
    pub fn load(&mut self, object: ObjectId, extent: Extent) {
        if self.index.locate(&object).is_none() {
            self.show(object, extent, None);
        }
    }

    /// Makes an object visible. Its bytes, if they are given, go to workers if it is small and
    /// there is room. The caller has claimed it, and its drive is in use.
    pub fn publish(&mut self, object: ObjectId, extent: Extent, bytes: Option<&[u8]>) {
        let small = bytes.filter(|_| self.take_small(object, extent.len)).map(Arc::from);
        self.give_up_part(object, &extent);
        self.show(object, extent, small);
    }

    /// The object lies here from now on: in one step, so that nobody finds it nowhere. If it went
    /// with its drive in the meantime, it is back. The caller has claimed it, and the drive is in
    /// use.
    pub fn relocate(&mut self, object: ObjectId, extent: Extent) {
        let Some(before) = self.index.locate(&object).cloned() else {
            return self.publish(object, extent, None);
        };
        self.index.publish(object, extent.clone());
        assert!(before.len == extent.len, "object {object} is as long as it was");
        self.forget_doubt(&object, before.drive);
        match (self.is_told(before.drive), self.is_told(extent.drive)) {
            (false, true) => self.inventory.publish(object),
            (true, false) => self.inventory.remove(object),
            (true, true) | (false, false) => {}
        }
        self.refresh(object, Some(before.drive));
        self.give_up_part(object, &extent);
        self.updates.push_back(Update::Published { object, extent, small: None });
    }

    /// Gives workers the bytes of a small object, if it is still published there.
    pub fn publish_small(&mut self, object: ObjectId, extent: &Extent, bytes: &[u8]) {
        if self.index.locate(&object) == Some(extent) && self.take_small(object, extent.len) {
            let (extent, small) = (extent.clone(), Some(Arc::from(bytes)));
            self.updates.push_back(Update::Published { object, extent, small });
        }
    }

    /// True if workers may have the bytes of one more object of this length.
    pub fn has_small_room(&self, len: Bytes) -> bool {
        len <= SMALL_OBJECT_MAX && self.small_used + len <= self.config.small_budget
    }

    /// Small objects that are published without their bytes, and for which there is room: of so
    /// many objects above `after`.
    pub fn without_bytes(&self, after: Option<ObjectId>, most: usize) -> Slice {
        let lacks = |object: &ObjectId, extent: &Extent| {
            self.has_small_room(extent.len) && !self.small.contains_key(object)
        };
        slice(self.index.iter_above(after), most, lacks)
    }

    /// The objects published in a folder of a drive: of so many above `after`.
    pub fn published_in(
        &self,
        drive: DriveIndex,
        folder: &FileName,
        after: Option<ObjectId>,
        most: usize,
    ) -> Slice {
        let (before, last) = layout::ids_of(folder);
        let here = self.index.on(drive, after.or(before));
        let here = here.take_while(|(object, _)| **object <= last);
        slice(here, most, |_, extent| layout::folder_of(&extent.file) == *folder)
    }

    /// Makes an object invisible.
    pub fn hide(&mut self, object: ObjectId) {
        if let Some(extent) = self.index.remove(&object) {
            self.forget(object, extent.drive);
            // Of a drive that was let go workers know already that nothing is there.
            if !self.leaving.contains(extent.drive) {
                self.updates.push_back(Update::Removed { object });
            }
        }
    }

    /// Nothing of a drive is used any more; its objects are filled elsewhere. Workers know at once
    /// that they are gone, and nobody is sent here for them. The index loses them by `forget_some`.
    pub fn let_go(&mut self, drive: DriveIndex) {
        self.leaving.insert(drive);
        let of_it = self.parts.iter().filter(|(_, part)| part.drive == drive);
        let of_it: Vec<PartId> = of_it.map(|(id, _)| *id).collect();
        for id in of_it {
            self.put_part(id, None);
        }
        self.spare_parts.retain(|(_, of)| *of != drive);
        // Where another drive has the same part, fill goes on with that.
        while let Some((part, drive)) = self.next_good_spare() {
            self.spare_parts.remove(&(part, drive));
            self.put_part(part, Some(Part { drive, verified: Bytes::ZERO }));
        }
        let is_left = self.parts.values().any(|part| part.drive == drive);
        assert!(!is_left, "nobody goes on with a part that is out of reach");
        self.errands.forget(drive);
        self.updates.push_back(Update::DriveSetAside { drive });
        self.replan();
    }

    /// Takes so many objects of drives that were let go out of the index; false if none is left.
    pub fn forget_some(&mut self, most: usize) -> bool {
        let Some(drive) = self.leaving.iter().next() else { return false };
        assert!(0 < most, "a drive is forgotten some time");
        let some: Vec<ObjectId> = self.index.ids_on(drive, None).take(most).copied().collect();
        if some.len() < most {
            self.leaving.remove(drive);
        }
        for object in some {
            self.index.remove(&object);
            self.forget(object, drive);
        }
        !self.leaving.is_empty()
    }

    /// A drive that was set aside is used again, with what was found on it. An object that is held
    /// elsewhere by now, or that somebody works on, is left to the audit. May be called for each
    /// portion of it.
    pub fn take_back(
        &mut self,
        drive: DriveIndex,
        objects: impl Iterator<Item = (ObjectId, Extent)>,
        parts: impl Iterator<Item = PartId>,
    ) {
        while self.leaving.contains(drive) && self.forget_some(SLICE) {}
        let is_out = !self.leaving.contains(drive);
        assert!(is_out, "what comes back is not taken for what was let go");
        self.hung.remove(drive);
        for (object, extent) in objects {
            if !self.busy.contains(&object) {
                self.load(object, extent);
            }
        }
        for part in parts {
            // The plan drops parts of objects that are held elsewhere by now.
            if self.is_busy(&part) {
                self.spare_parts.insert((part, drive));
            } else {
                self.load_part(part, drive);
            }
        }
        self.replan();
    }

    /// Takes a drive's objects out of the inventory while it hangs, so that players are sent
    /// elsewhere, or puts them in again. They stay wanted there. O(objects of
    /// the drive x log files).
    pub fn withhold(&mut self, drive: DriveIndex, hangs: bool) {
        self.hung.set(drive, hangs);
        let objects: Vec<ObjectId> = self.index.ids_on(drive, None).copied().collect();
        for object in objects {
            if hangs {
                self.inventory.remove(object);
            } else {
                self.inventory.publish(object);
            }
            self.refresh_files(object, Some(drive));
        }
    }

    /// The siblings in the site that can serve, by control's word.
    pub fn set_siblings(&mut self, siblings: BTreeMap<ApplianceId, Arc<str>>) {
        if *self.siblings != siblings {
            self.siblings = Arc::new(siblings);
            self.updates.push_back(Update::Siblings(Arc::clone(&self.siblings)));
        }
    }

    fn hangs(&self, drive: DriveIndex) -> bool {
        (self.hung | self.leaving).contains(drive)
    }

    /// Tells the gap how an object stands now; `was` is the drive that held it, if that is another.
    fn refresh(&mut self, object: ObjectId, was: Option<DriveIndex>) {
        let known = self.how(object);
        let was = was.or(known.held);
        self.desired.gap.note(object, was, known);
        self.refresh_files(object, known.held);
        if let Some(next) = &mut self.next {
            next.desired.gap.note(object, was, Known { waits: false, ..known });
        }
    }

    fn how(&self, object: ObjectId) -> Known {
        Known {
            held: self.index.locate(&object).map(|extent| extent.drive),
            is_busy: self.busy.contains(&object),
            waits: self.postponed.get(&object).is_some_and(|postponed| postponed.waits),
            has_part: self.parts.contains_key(&PartId::Object(object)),
        }
    }

    fn show(&mut self, object: ObjectId, extent: Extent, small: Option<Arc<[u8]>>) {
        let before = self.index.publish(object, extent.clone());
        assert!(before.is_none(), "object {object} is published once");
        if self.is_told(extent.drive) {
            self.inventory.publish(object);
        }
        self.no_longer_postponed(object);
        self.waits.forget(&object);
        self.refresh(object, None);
        self.updates.push_back(Update::Published { object, extent, small });
    }

    /// The object is out of the index: so it is everywhere else.
    fn forget(&mut self, object: ObjectId, was: DriveIndex) {
        self.forget_doubt(&object, was);
        self.inventory.remove(object);
        self.refresh(object, Some(was));
        self.replan |= self.is_wanted(&object);
        if let Some(len) = self.small.remove(&object) {
            assert!(len <= self.small_used, "small objects are counted");
            self.small_used -= len;
        }
    }

    fn take_small(&mut self, object: ObjectId, len: Bytes) -> bool {
        let fits = self.has_small_room(len);
        if fits && self.small.insert(object, len).is_none() {
            self.small_used += len;
            assert!(self.small_used <= self.config.small_budget, "workers have so much memory");
        }
        fits
    }
}

/// Of the first so many of these, those that are looked for.
fn slice<'a>(
    objects: impl Iterator<Item = (&'a ObjectId, &'a Extent)>,
    most: usize,
    mut is_it: impl FnMut(&ObjectId, &Extent) -> bool,
) -> Slice {
    assert!(0 < most, "a slice of nothing would pass for the last");
    let (mut slice, mut count) = (Slice::default(), 0);
    for (object, extent) in objects.take(most) {
        (slice.next, count) = (Some(*object), count + 1);
        if is_it(object, extent) {
            slice.found.push((*object, extent.clone()));
        }
    }
    if count < most {
        slice.next = None;
    }
    slice
}

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
use fill::plan::{self, Around, Fetch, Planner};
use model::drives::{DriveIndex, DriveSet};
use model::extent::{Extent, FileName};
use model::id::{ApplianceId, Generation, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::Manifest;
use model::units::{Bytes, Instant, Nanos};
use model::update::Update;
use store::index::Index;
use store::inventory::Inventory;
use store::layout;
use store::parcel::{Parcel, PartId};
use store::unit::{self, UnitId};

mod desired;
mod errands;
mod files;
mod parcels;
#[cfg(test)]
mod tests;

use desired::Next;
pub use desired::{Desired, Replaced};
pub use errands::Errands;

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

/// Why an object is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Somebody could not read it, or read something else: all of it is verified.
    Suspect,
    /// The drive says itself that it cannot be read, in these words.
    Unreadable(String),
}

/// A part file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub drive: DriveIndex,
    /// Its bytes that are known to be good.
    pub verified: Bytes,
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

/// Objects to fetch into one file, claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Objects and their sources, in this order. Invariant: not empty, no object twice.
    pub fetch: Vec<Fetch>,
    /// A part of that file that is there already.
    pub part: Option<Part>,
}

impl Claim {
    /// The file that it is to be.
    pub fn parcel(&self) -> Parcel {
        let objects: Vec<_> = self.fetch.iter().map(|fetch| (fetch.object, fetch.len)).collect();
        Parcel::new(&objects).expect("a claim is not empty, and a plan is no larger than a unit")
    }
}

/// The work that a plan brings, besides fetching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chores {
    /// Published, no longer wanted.
    pub evict: Vec<(ObjectId, DriveIndex)>,
    /// Begun, and no longer wanted, or not in this company.
    pub drop_parts: Vec<(PartId, DriveIndex)>,
    pub suspects: BTreeMap<ObjectId, Doubt>,
}

/// The next step of an audit that found an object in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStanding {
    /// The index has it here.
    Indexed,
    /// Somebody is working on it.
    Busy,
    /// The index has the object on another drive, or in another file. Claimed for the caller, who
    /// looks whether it is good there before this one goes.
    Spare,
    /// The same, and that drive does not answer: this copy may be the one that is left.
    Unsure,
    /// The index does not have the object, the manifest wants it. Claimed for the caller.
    Missing,
    /// Neither has it. Claimed for the caller.
    Unwanted,
    /// Not in the index, and no manifest is known yet.
    Unknown,
}

/// First wait before an object that was given up is tried again; doubles with each time.
const POSTPONE_FIRST: Nanos = Nanos::seconds(2);
/// Longest such wait.
const POSTPONE_MAX: Nanos = Nanos::seconds(120);
/// A plan is made again at least so often while something is wanted: room may have come free.
const PLAN_EVERY: Nanos = Nanos::seconds(5);

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

/// An object that was given up.
#[derive(Clone, Copy, Debug)]
struct Postponed {
    until: Instant,
    times: u32,
    /// No plan was made since.
    waits: bool,
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
    /// A plan that is being made.
    planner: Option<Planner>,
    errands: Errands,
    /// Fetches that wait, those of one file together. Invariant: none of them is empty.
    queue: VecDeque<Vec<Fetch>>,
    replan: bool,
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
            planner: None,
            errands: Errands::new(config.suspects_max),
            queue: VecDeque::new(),
            replan: true,
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

    /// Part files.
    pub fn parts(&self) -> &BTreeMap<PartId, Part> {
        &self.parts
    }

    /// Parts that nobody goes on with, and that are still there.
    pub fn spare_parts(&self) -> &BTreeSet<(PartId, DriveIndex)> {
        &self.spare_parts
    }

    /// Objects that somebody works on.
    pub fn busy(&self) -> &BTreeSet<ObjectId> {
        &self.busy
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

    /// The bytes for which fill has to find room: without those that have a file already, and those
    /// that fit nowhere by the last plan.
    pub fn bytes_to_place(&self) -> Bytes {
        let progress = self.progress();
        let allocated = self.parts.keys().filter_map(|part| match part {
            PartId::Object(object) => self.wanted().len_of(object).map(|len| len.0),
            // How much of a unit's file will be held nobody knows yet.
            PartId::Unit(_) => None,
        });
        let placed = progress.bytes_held + Bytes(allocated.sum());
        let without_room = self.plan_report.bytes_without_room;
        progress.bytes_wanted.saturating_sub(placed).saturating_sub(without_room)
    }

    /// The figures of the last plan.
    pub fn plan_report(&self) -> &plan::Report {
        &self.plan_report
    }

    /// An object found at the start; the first drive that has it wins.
    pub fn load(&mut self, object: ObjectId, extent: Extent) {
        if self.index.locate(&object).is_none() {
            self.show(object, extent, None);
        }
    }

    /// A part file found at the start; the first drive that has it wins.
    pub fn load_part(&mut self, part: PartId, drive: DriveIndex) {
        if self.parts.get(&part).is_some_and(|known| known.drive != drive) {
            self.spare_parts.insert((part, drive));
        } else {
            self.put_part(part, Some(Part { drive, verified: Bytes::ZERO }));
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

    /// How long a planner, which began to wait at `began`, has to wait; not at all if a plan is
    /// due. News may make it due sooner. Only the clock says when it is time again: there is much
    /// news that is no reason for a plan.
    pub fn plan_in(&self, now: Instant, began: Instant) -> Nanos {
        let progress = self.progress();
        let behind = progress.objects_held < progress.objects_wanted
            || 0 < self.plan_report.evictions_later
            || !self.spare_parts.is_empty()
            // With all held, a part is of an object that came another way meanwhile.
            || !self.parts.is_empty();
        let left = (began + PLAN_EVERY).since(now);
        match (self.replan, left) {
            (true, _) => Nanos(0),
            (false, Nanos(0)) if !behind => PLAN_EVERY,
            (false, left) => left,
        }
    }

    /// Plans for drives with so much room: puts the fetches into the queue, and returns the chores.
    pub fn plan(&mut self, now: Instant, free: &[Bytes]) -> Chores {
        loop {
            if let Some(chores) = self.plan_some(now, free, SLICE) {
                return chores;
            }
        }
    }

    /// The same, some objects at a time: begins a plan, or goes on with it, until there are chores.
    /// Room counts as it is when a plan begins.
    pub fn plan_some(&mut self, now: Instant, free: &[Bytes], most: usize) -> Option<Chores> {
        if self.manifest().is_none() {
            self.replan = false;
            let suspects = std::mem::take(&mut self.suspects);
            return Some(Chores { suspects, ..Chores::default() });
        }
        if self.planner.is_none() {
            if !self.try_again(now, most) {
                return None;
            }
            self.replan = false;
            let room = |len| layout::sections(len).file_len;
            let (room_is_coming, hung) = (!self.spare_parts.is_empty(), self.hung | self.leaving);
            let around = Around { free: free.to_vec(), room, room_is_coming, hung };
            self.planner = Some(Planner::new(self.config.plan, &self.desired.gap, around));
        }
        let (Some(planner), Some(manifest)) = (&mut self.planner, &self.desired.manifest) else {
            return None;
        };
        let has_part = |object: &ObjectId| self.parts.contains_key(&PartId::Object(*object));
        let is_done = planner.step(&self.desired.gap, manifest, has_part, most);
        let planner = self.planner.take_if(|_| is_done)?;
        Some(self.chores(planner))
    }

    /// Lets the next plan have objects that waited until now for another try; false if there are
    /// more of them than `most`.
    fn try_again(&mut self, now: Instant, most: usize) -> bool {
        for _ in 0..most {
            let Some((until, object)) = self.due.first().copied().filter(|(at, _)| *at <= now)
            else {
                return true;
            };
            self.due.remove(&(until, object));
            let postponed = self.postponed.get_mut(&object).expect("whoever is due was postponed");
            assert!(postponed.until == until, "an object is due once");
            postponed.waits = false;
            self.refresh(object, None);
        }
        false
    }

    fn chores(&mut self, planner: Planner) -> Chores {
        let under_way = self.busy.iter().filter(|object| !self.is_wanted(object)).count();
        let plan = planner.finish(&self.desired.gap, under_way);
        let is_cut = 0 < plan.report.objects_later;
        let has_part = |object: &ObjectId| self.parts.contains_key(&PartId::Object(*object));
        self.queue = parcels::parcels(&self.desired.unit_of, has_part, plan.fetch, is_cut);
        self.plan_report = plan.report;
        self.news = true;
        let mut useless: Vec<PartId> = plan.drop_parts.into_iter().map(PartId::Object).collect();
        useless.extend(self.units_without_use().into_iter().map(PartId::Unit));
        let of = |part: PartId| self.parts.get(&part).map(|of| (part, of.drive));
        let drop_parts = useless.into_iter().filter_map(of);
        let drop_parts = drop_parts.chain(self.spare_parts.iter().copied()).collect();
        Chores { evict: plan.evict, drop_parts, suspects: std::mem::take(&mut self.suspects) }
    }

    /// Hands a plan's chores to the drives that they are about.
    pub fn hand_out(&mut self, chores: Chores) {
        let index = &self.index;
        self.errands.give(chores, |object| Some(index.locate(object)?.drive));
    }

    /// The next errand at a drive. The caller does it, and then says that it is done.
    pub fn next_errand(&mut self, drive: DriveIndex) -> Option<Chores> {
        self.errands.take(drive)
    }

    /// A drive's errand is over: so many things are done, and so many are left. A plan is due when
    /// all drives that answer are done.
    pub fn errand_done(&mut self, drive: DriveIndex, done: usize, left: usize) {
        self.put_off(left);
        if self.errands.done(drive, done, self.hung | self.leaving) {
            self.replan();
        }
    }

    /// A plan is due.
    pub fn replan(&mut self) {
        (self.replan, self.news) = (true, true);
    }

    /// So many evictions of the plan were not done, since a drive does not answer or failed: the
    /// next plan is due as if they had been left for later.
    pub fn put_off(&mut self, count: usize) {
        self.plan_report.evictions_later += Bytes::of(count).0;
    }

    /// Somebody doubts an object: the keeper will look at it.
    pub fn suspect(&mut self, object: ObjectId, doubt: Doubt) {
        if self.suspects.len() < self.config.suspects_max {
            self.suspects.insert(object, doubt);
            assert!(self.suspects.len() <= self.config.suspects_max, "the others wait for a scrub");
            self.replan();
        }
    }

    /// The next objects to fetch into one file, claimed.
    pub fn next_fetch(&mut self) -> Option<Claim> {
        while let Some(mut fetch) = self.queue.pop_front() {
            assert!(!fetch.is_empty(), "a file has an object");
            if self.queue.is_empty() && 0 < self.plan_report.objects_later {
                self.replan();
            }
            fetch.retain(|fetch| {
                let held = self.index.locate(&fetch.object).is_some();
                !held && !self.busy.contains(&fetch.object)
            });
            if fetch.is_empty() {
                continue;
            }
            let mut claim = Claim { fetch, part: None };
            let part = claim.parcel().part();
            if let PartId::Unit(unit) = part
                && !self.busy_units.insert(unit)
            {
                continue; // A part of it is being removed: the plan after that has it again.
            }
            claim.fetch.iter().for_each(|fetch| self.take(fetch.object));
            claim.part = self.parts.get(&part).copied();
            return Some(claim);
        }
        None
    }

    /// The holder of this claim fetches only the first so many of it; the others go into another
    /// file, with the next plan. None, and all is let go, if a part of just these is being removed.
    pub fn shorten(&mut self, mut claim: Claim, count: usize) -> Option<Claim> {
        if let PartId::Unit(unit) = claim.parcel().part() {
            self.release_unit(unit);
        }
        assert!((1..=claim.fetch.len()).contains(&count), "a claim is shortened, not emptied");
        claim.fetch.drain(count..).for_each(|fetch| self.release(fetch.object));
        self.replan();
        let part = claim.parcel().part();
        if !matches!(part, PartId::Object(_)) && !self.claim_part(part) {
            claim.fetch.iter().for_each(|fetch| self.release(fetch.object));
            return None;
        }
        claim.part = self.parts.get(&part).copied();
        Some(claim)
    }

    /// The holder of this claim is done. Those that could not be had are tried again, later
    /// each time.
    pub fn done(&mut self, now: Instant, claim: &Claim, postponed: &[ObjectId]) {
        assert!(postponed.len() <= claim.fetch.len(), "only what was claimed is put off");
        if let PartId::Unit(unit) = claim.parcel().part() {
            self.release_unit(unit);
        }
        for fetch in &claim.fetch {
            if postponed.contains(&fetch.object) {
                self.postpone(now, fetch.object);
            } else {
                self.release(fetch.object);
            }
        }
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    pub fn claim(&mut self, object: ObjectId) -> bool {
        self.claim_all(&[object])
    }

    /// The same for several at once: all, or none of them.
    pub fn claim_all(&mut self, objects: &[ObjectId]) -> bool {
        let free = !objects.iter().any(|object| self.busy.contains(object));
        if free {
            objects.iter().for_each(|object| self.take(*object));
        }
        free
    }

    /// Claims an object that an audit found in a file, and may have to change.
    pub fn claim_file(
        &mut self,
        object: ObjectId,
        drive: DriveIndex,
        file: &FileName,
    ) -> FileStanding {
        if self.busy.contains(&object) {
            return FileStanding::Busy;
        }
        let standing = self.standing(object, drive, file);
        match standing {
            FileStanding::Busy
            | FileStanding::Indexed
            | FileStanding::Unsure
            | FileStanding::Unknown => {}
            FileStanding::Spare | FileStanding::Missing | FileStanding::Unwanted => {
                self.take(object);
            }
        }
        standing
    }

    /// The standing of an object that was found in a file, claimed or not. Claims nothing.
    pub fn standing(&self, object: ObjectId, drive: DriveIndex, file: &FileName) -> FileStanding {
        match self.index.locate(&object) {
            Some(extent) if extent.drive == drive && extent.file == *file => FileStanding::Indexed,
            Some(extent) if self.hangs(extent.drive) => FileStanding::Unsure,
            Some(_) => FileStanding::Spare,
            None if self.manifest().is_none() => FileStanding::Unknown,
            None if self.is_wanted(&object) => FileStanding::Missing,
            None => FileStanding::Unwanted,
        }
    }

    /// Claims a part file, to remove it; false if somebody fills it.
    pub fn claim_part(&mut self, part: PartId) -> bool {
        match part {
            PartId::Object(object) => self.claim(object),
            PartId::Unit(unit) => self.busy_units.insert(unit),
        }
    }

    /// Lets go of it.
    pub fn release_part(&mut self, part: PartId) {
        match part {
            PartId::Object(object) => self.release(object),
            PartId::Unit(unit) => self.release_unit(unit),
        }
    }

    fn release_unit(&mut self, unit: UnitId) {
        assert!(self.busy_units.remove(&unit), "only a claimed unit is released");
    }

    /// Lets go of an object.
    pub fn release(&mut self, object: ObjectId) {
        assert!(self.busy.remove(&object), "only a claimed object is released");
        self.refresh(object, None);
    }

    /// Lets go of an object that could not be had; it is tried again, later each time.
    pub fn postpone(&mut self, now: Instant, object: ObjectId) {
        let times = self.postponed.get(&object).map_or(0, |postponed| postponed.times);
        let until = now + Nanos(POSTPONE_FIRST.0 << times.min(16)).min(POSTPONE_MAX);
        self.no_longer_postponed(object);
        self.postponed.insert(object, Postponed { until, times: times + 1, waits: true });
        self.due.insert((until, object));
        assert!(self.due.len() <= self.postponed.len(), "an object is tried again once");
        self.release(object);
    }

    /// How much of a part is good, for the reports; none when there is no part any more. One that
    /// another drive has of the same is spare from now on.
    pub fn set_part(&mut self, id: PartId, part: Option<Part>) {
        let before = self.put_part(id, part).map(|before| before.drive);
        if let Some(part) = part {
            self.spare_parts.remove(&(id, part.drive));
            self.is_spare(id, before.filter(|on| *on != part.drive));
        }
    }

    /// The part of this drive is not there any more.
    pub fn dropped_part(&mut self, id: PartId, drive: DriveIndex) {
        let was_spare = self.spare_parts.remove(&(id, drive));
        if !was_spare && self.parts.get(&id).is_some_and(|part| part.drive == drive) {
            self.set_part(id, None);
        }
    }

    /// An object is whole there: a part of it is of no use, unless it has become just that file.
    fn give_up_part(&mut self, object: ObjectId, extent: &Extent) {
        let id = PartId::Object(object);
        let part = self.put_part(id, None).map(|part| part.drive);
        let became = |on: &DriveIndex| *on == extent.drive && unit::of_file(&extent.file).is_none();
        self.is_spare(id, part.filter(|on| !became(on)));
    }

    /// The part on this drive goes with a plan, which nothing else may be due for.
    fn is_spare(&mut self, id: PartId, on: Option<DriveIndex>) {
        if let Some(drive) = on {
            self.spare_parts.insert((id, drive));
            self.replan();
        }
    }

    /// A spare part of an object or unit that has no other part and is not held.
    fn next_good_spare(&self) -> Option<(PartId, DriveIndex)> {
        let is_good = |(part, _): &&(PartId, DriveIndex)| {
            !self.parts.contains_key(part)
                && match part {
                    PartId::Object(object) => self.index.locate(object).is_none(),
                    PartId::Unit(_) => true, // One that is not wanted goes with the next plan.
                }
        };
        self.spare_parts.iter().find(is_good).copied()
    }

    fn is_busy(&self, part: &PartId) -> bool {
        match part {
            PartId::Object(object) => self.busy.contains(object),
            PartId::Unit(unit) => self.busy_units.contains(unit),
        }
    }

    /// Parts of units that nobody fills and that the queue does not go on with.
    fn units_without_use(&self) -> Vec<UnitId> {
        let of_unit = |part: &PartId| match part {
            PartId::Unit(unit) if !self.busy_units.contains(unit) => Some(*unit),
            PartId::Unit(_) | PartId::Object(_) => None,
        };
        let mut units: Vec<UnitId> = self.parts.keys().filter_map(of_unit).collect();
        if !units.is_empty() {
            let planned = self.queue.iter().map(|fetch| {
                let objects: Vec<_> = fetch.iter().map(|of| (of.object, of.len)).collect();
                Parcel::new(&objects).map(|parcel| parcel.part())
            });
            let planned: BTreeSet<PartId> = planned.flatten().collect();
            units.retain(|unit| !planned.contains(&PartId::Unit(*unit)));
        }
        units
    }

    fn hangs(&self, drive: DriveIndex) -> bool {
        (self.hung | self.leaving).contains(drive)
    }

    fn take(&mut self, object: ObjectId) {
        assert!(self.busy.insert(object), "an object is claimed by one at a time");
        self.refresh(object, None);
    }

    /// There is this part from now on, or none; returns that before.
    fn put_part(&mut self, id: PartId, part: Option<Part>) -> Option<Part> {
        self.bytes_partial += part.map_or(Bytes::ZERO, |part| part.verified);
        let before = match part {
            Some(part) => self.parts.insert(id, part),
            None => self.parts.remove(&id),
        };
        let len = before.map_or(Bytes::ZERO, |before| before.verified);
        assert!(len <= self.bytes_partial, "what is good of a part is counted");
        self.bytes_partial -= len;
        if let PartId::Object(object) = id
            && before.is_some() != part.is_some()
        {
            self.refresh(object, None);
        }
        before
    }

    fn no_longer_postponed(&mut self, object: ObjectId) {
        if let Some(postponed) = self.postponed.remove(&object) {
            self.due.remove(&(postponed.until, object));
        }
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
        self.refresh(object, None);
        self.updates.push_back(Update::Published { object, extent, small });
    }

    /// The object is out of the index: so it is everywhere else.
    fn forget(&mut self, object: ObjectId, was: DriveIndex) {
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

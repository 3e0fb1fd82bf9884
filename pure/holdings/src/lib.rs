//! What an appliance holds and wants, and who works on which object.
//!
//! ```text
//! manifests, drives, fillers, keeper, audit ──> Holdings ──> updates   for workers, in order
//!                                                  │    └──> news      who waits looks again
//!                                                  ├──> plan           what to fetch, what goes
//!                                                  └──> inventory      what control is told
//! ```
//!
//! One for an appliance; its shell keeps it behind a lock, never held during I/O, and after each
//! call takes the updates and the news. It composes `store` and `fill`.
//!
//! An object is worked on by whoever *claimed* it (a filler, the keeper, the audit) and by nobody
//! else until it is released.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fill::plan::{self, Actual, Fetch};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::{ApplianceId, Generation, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::Manifest;
use model::units::{Bytes, Instant, Nanos};
use model::update::Update;
use store::index::Index;
use store::inventory::{Delta, Inventory, InventoryState};
use store::layout;
use store::parcel::{Parcel, PartId};
use store::unit::{self, UnitId};

mod parcels;
#[cfg(test)]
mod tests;

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
    /// Where it is.
    pub drive: DriveIndex,
    /// What of it is known to be good.
    pub verified: Bytes,
}

/// How far the manifest is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Objects of the manifest, each counted once.
    pub objects_wanted: u64,
    /// Of these, published.
    pub objects_held: u64,
    /// Bytes of the manifest.
    pub bytes_wanted: Bytes,
    /// Of these, published.
    pub bytes_held: Bytes,
    /// Verified bytes of part files.
    pub bytes_partial: Bytes,
}

/// What to fetch into one file, claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What, and from where, in this order. Invariant: not empty, no object twice.
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

/// What there is to do after planning, besides fetching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chores {
    /// Published, no longer wanted.
    pub evict: Vec<ObjectId>,
    /// Begun, and no longer wanted, or not in this company.
    pub drop_parts: Vec<(PartId, DriveIndex)>,
    /// Objects that somebody doubts.
    pub suspects: BTreeMap<ObjectId, Doubt>,
}

/// What an audit should do with what it found of an object in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileStanding {
    /// The index has it here.
    Indexed,
    /// Somebody is working on it.
    Busy,
    /// The index has the object on another drive. Claimed for the caller.
    Spare,
    /// The index does not have the object, the manifest wants it. Claimed for the caller.
    Missing,
    /// Neither has it. Claimed for the caller.
    Unwanted,
    /// Not in the index, and what is wanted is not known.
    Unknown,
}

/// First wait before an object that was given up is tried again; doubles with each time.
const POSTPONE_FIRST: Nanos = Nanos::seconds(2);
/// Longest such wait.
const POSTPONE_MAX: Nanos = Nanos::seconds(120);
/// A plan is made again at least so often while something is wanted: room may have come free.
const PLAN_EVERY: Nanos = Nanos::seconds(5);

/// A manifest, and what follows from it alone: with many objects that takes a while, and is done
/// before a lock is taken.
#[derive(Debug)]
pub struct Desired {
    manifest: Arc<Manifest>,
    wanted: BTreeMap<ObjectId, Bytes>,
    unit_of: BTreeMap<ObjectId, usize>,
}

impl Desired {
    /// For units of this length: `Config::unit_len`.
    pub fn new(unit_len: Option<Bytes>, manifest: Arc<Manifest>) -> Self {
        let files = manifest.versions.iter().flat_map(|version| version.files.values());
        let wanted = files.map(|file| (file.object, file.len)).collect();
        let unit_of = parcels::units_of(unit_len, &manifest);
        Self { manifest, wanted, unit_of }
    }
}

/// What is true now.
#[derive(Debug)]
pub struct Holdings {
    config: Config,
    index: Index,
    inventory: Inventory,
    /// Drives that hang, a bit each: what is on them is not in the inventory.
    hung: u64,
    manifest: Option<Arc<Manifest>>,
    /// Who else in the site can serve, by what control said last.
    siblings: Arc<BTreeMap<ApplianceId, Arc<str>>>,
    /// Objects of the manifest and their lengths.
    wanted: BTreeMap<ObjectId, Bytes>,
    progress: Progress,
    /// Which objects of the manifest share a unit, by the unit's number.
    unit_of: BTreeMap<ObjectId, usize>,
    parts: BTreeMap<PartId, Part>,
    /// Parts of which there is another, or which are whole elsewhere: they go with the next plan.
    spare_parts: BTreeSet<(PartId, DriveIndex)>,
    plan_report: plan::Report,
    busy: BTreeSet<ObjectId>,
    /// Units that somebody fills, or a part of which somebody removes.
    busy_units: BTreeSet<UnitId>,
    /// Objects given up for a while: until when, and how often so far.
    postponed: BTreeMap<ObjectId, (Instant, u32)>,
    /// What goes into one file each. Invariant: none of them is empty.
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
    /// Nothing is held, and nothing known of what is wanted.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            index: Index::new(),
            inventory: Inventory::new(config.inventory_changes_max),
            hung: 0,
            manifest: None,
            siblings: Arc::default(),
            wanted: BTreeMap::new(),
            progress: Progress::default(),
            unit_of: BTreeMap::new(),
            parts: BTreeMap::new(),
            spare_parts: BTreeSet::new(),
            plan_report: plan::Report::default(),
            busy: BTreeSet::new(),
            busy_units: BTreeSet::new(),
            postponed: BTreeMap::new(),
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

    /// The manifest in force.
    pub fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.manifest.as_ref()
    }

    /// Its generation; 0 before the first.
    pub fn generation(&self) -> Generation {
        self.manifest.as_ref().map_or(Generation(0), |manifest| manifest.generation)
    }

    /// Objects of the manifest and their lengths.
    pub fn wanted(&self) -> &BTreeMap<ObjectId, Bytes> {
        &self.wanted
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
        self.progress
    }

    /// What the last plan found.
    pub fn plan_report(&self) -> &plan::Report {
        &self.plan_report
    }

    /// What control has to be told, which has seen `known`. The check comes from the index, not
    /// from the changes that were told: if one was forgotten, control sees that there is a
    /// difference.
    pub fn inventory_since(&self, known: InventoryState) -> Delta {
        let held = self.index.iter().filter(|(_, extent)| !self.hangs(extent.drive));
        let delta = self.inventory.since(known, held.map(|(object, _)| *object));
        Delta { check: Some(self.index.check(|drive| !self.hangs(drive))), ..delta }
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
            self.parts.insert(part, Part { drive, verified: Bytes::ZERO });
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
        match (self.hangs(before.drive), self.hangs(extent.drive)) {
            (true, false) => self.inventory.publish(object),
            (false, true) => self.inventory.remove(object),
            (true, true) | (false, false) => {}
        }
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

    /// Small objects that are published without their bytes, as many as there is room for.
    pub fn without_bytes(&self) -> impl Iterator<Item = (&ObjectId, &Extent)> {
        let mut left = self.config.small_budget.saturating_sub(self.small_used);
        let small = self.index.iter().filter(|(_, extent)| extent.len <= SMALL_OBJECT_MAX);
        let lacking = small.filter(|(object, _)| !self.small.contains_key(object));
        lacking.take_while(move |(_, extent)| {
            let fits = extent.len <= left;
            left = left.saturating_sub(extent.len);
            fits
        })
    }

    /// Makes an object invisible.
    pub fn hide(&mut self, object: ObjectId) {
        if self.index.remove(&object).is_some() {
            self.forget(object);
            self.updates.push_back(Update::Removed { object });
        }
    }

    /// Nothing of a drive is used any more. Its objects are filled elsewhere.
    pub fn set_aside(&mut self, drive: DriveIndex) {
        for object in self.index.remove_drive(drive) {
            self.forget(object);
        }
        self.parts.retain(|_, part| part.drive != drive);
        self.spare_parts.retain(|(_, of)| *of != drive);
        // Of what it had a part, that of another drive is gone on with.
        while let Some((part, drive)) = self.next_good_spare() {
            self.spare_parts.remove(&(part, drive));
            self.parts.insert(part, Part { drive, verified: Bytes::ZERO });
        }
        self.count_partial();
        self.updates.push_back(Update::DriveSetAside { drive });
        self.replan();
    }

    /// A drive that was set aside is used again, with what was found on it. An object that is held
    /// elsewhere by now, or that somebody works on, is left to the audit.
    pub fn take_back(
        &mut self,
        drive: DriveIndex,
        objects: impl Iterator<Item = (ObjectId, Extent)>,
        parts: impl Iterator<Item = PartId>,
    ) {
        self.hung &= !(1 << drive.0);
        for (object, extent) in objects {
            if !self.busy.contains(&object) {
                self.load(object, extent);
            }
        }
        for part in parts {
            // Also of what is held elsewhere by now: the plan drops those.
            if self.is_busy(&part) {
                self.spare_parts.insert((part, drive));
            } else {
                self.load_part(part, drive);
            }
        }
        self.replan();
    }

    /// Leaves what is on a drive out of the inventory while it hangs, so that players are sent
    /// elsewhere, or puts it in again. It stays wanted there.
    pub fn withhold(&mut self, drive: DriveIndex, hangs: bool) {
        let bit = 1 << drive.0;
        self.hung = if hangs { self.hung | bit } else { self.hung & !bit };
        for (object, _) in self.index.iter().filter(|(_, extent)| extent.drive == drive) {
            if hangs {
                self.inventory.remove(*object);
            } else {
                self.inventory.publish(*object);
            }
        }
    }

    /// Puts a newer manifest in force; false if it is not newer.
    pub fn set_manifest(&mut self, manifest: Arc<Manifest>) -> bool {
        self.want(Desired::new(self.config.unit_len, manifest))
    }

    /// The same, with what follows from the manifest alone found before.
    pub fn want(&mut self, desired: Desired) -> bool {
        let Desired { manifest, wanted, unit_of } = desired;
        if self.manifest.as_ref().is_some_and(|old| manifest.generation <= old.generation) {
            return false;
        }
        (self.wanted, self.unit_of) = (wanted, unit_of);
        self.manifest = Some(Arc::clone(&manifest));
        self.count_progress();
        self.postponed.clear();
        self.updates.push_back(Update::Manifest(manifest));
        self.replan();
        true
    }

    /// Control says who else in the site can serve.
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
        let behind = self.progress.objects_held < self.progress.objects_wanted
            || 0 < self.plan_report.evictions_later
            || !self.spare_parts.is_empty();
        let left = (began + PLAN_EVERY).since(now);
        match (self.replan, left) {
            (true, _) => Nanos(0),
            (false, Nanos(0)) if !behind => PLAN_EVERY,
            (false, left) => left,
        }
    }

    /// Plans for drives with so much room: what to fetch is in the queue, what else there is to do
    /// comes back.
    pub fn plan(&mut self, now: Instant, free: &[Bytes]) -> Chores {
        self.replan = false;
        let suspects = std::mem::take(&mut self.suspects);
        let Some(manifest) = &self.manifest else {
            return Chores { suspects, ..Chores::default() };
        };
        let held = self.index.iter().map(|(object, _)| *object).collect();
        let of_object = |part: &PartId| match part {
            PartId::Object(object) => Some(*object),
            PartId::Unit(_) => None,
        };
        let parts = self.parts.keys().filter_map(of_object).collect();
        let postponed = self.postponed.iter().filter(|(_, (until, _))| now < *until);
        let skip = self.busy.iter().chain(postponed.map(|(object, _)| object)).copied().collect();
        let room = |len| layout::sections(len).file_len;
        let room_is_coming = !self.spare_parts.is_empty();
        let actual = Actual { held: &held, parts: &parts, skip: &skip, free, room, room_is_coming };
        let plan = plan::plan(&self.config.plan, manifest, &actual);
        let is_cut = 0 < plan.report.objects_later;
        self.queue = parcels::parcels(&self.unit_of, &parts, plan.fetch, is_cut);
        self.plan_report = plan.report;
        self.news = true;
        let mut useless: Vec<PartId> = plan.drop_parts.into_iter().map(PartId::Object).collect();
        useless.extend(self.units_without_use().into_iter().map(PartId::Unit));
        let of = |part: PartId| self.parts.get(&part).map(|of| (part, of.drive));
        let drop_parts = useless.into_iter().filter_map(of);
        let drop_parts = drop_parts.chain(self.spare_parts.iter().copied()).collect();
        Chores { evict: plan.evict, drop_parts, suspects }
    }

    /// A plan is due.
    pub fn replan(&mut self) {
        (self.replan, self.news) = (true, true);
    }

    /// So much of what the plan would have had go is still here, since its drive does not answer or
    /// failed at it: the next plan is due as if it had been left for later.
    pub fn put_off(&mut self, count: usize) {
        self.plan_report.evictions_later += Bytes::of(count).0;
    }

    /// Somebody doubts an object: the keeper will look at it.
    pub fn suspect(&mut self, object: ObjectId, doubt: Doubt) {
        if self.suspects.len() < self.config.suspects_max {
            self.suspects.insert(object, doubt);
            self.replan();
        }
    }

    /// What to fetch next into one file, claimed.
    pub fn next_fetch(&mut self) -> Option<Claim> {
        while let Some(mut fetch) = self.queue.pop_front() {
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
            self.busy.extend(claim.fetch.iter().map(|fetch| fetch.object));
            claim.part = self.parts.get(&part).copied();
            return Some(claim);
        }
        None
    }

    /// Whoever has this claim fetches only the first so many of it; the others go into another
    /// file, with the next plan. None, and all is let go, if a part of just these is being removed.
    pub fn shorten(&mut self, mut claim: Claim, count: usize) -> Option<Claim> {
        if let PartId::Unit(unit) = claim.parcel().part() {
            self.release_unit(unit);
        }
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

    /// Whoever had this claim is done with it. Those that could not be had are tried again, later
    /// each time.
    pub fn done(&mut self, now: Instant, claim: &Claim, postponed: &[ObjectId]) {
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
        self.busy.insert(object)
    }

    /// The same for several at once: all, or none of them.
    pub fn claim_all(&mut self, objects: &[ObjectId]) -> bool {
        let free = !objects.iter().any(|object| self.busy.contains(object));
        if free {
            self.busy.extend(objects);
        }
        free
    }

    /// Claims what an audit may have to change: what was found of an object in a file.
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
            FileStanding::Busy | FileStanding::Indexed | FileStanding::Unknown => {}
            FileStanding::Spare | FileStanding::Missing | FileStanding::Unwanted => {
                self.busy.insert(object);
            }
        }
        standing
    }

    /// How what was found of an object in a file stands, whoever works on it. Claims nothing.
    pub fn standing(&self, object: ObjectId, drive: DriveIndex, file: &FileName) -> FileStanding {
        match self.index.locate(&object) {
            Some(extent) if extent.drive == drive && extent.file == *file => FileStanding::Indexed,
            Some(_) => FileStanding::Spare,
            None if self.manifest.is_none() => FileStanding::Unknown,
            None if self.wanted.contains_key(&object) => FileStanding::Missing,
            None => FileStanding::Unwanted,
        }
    }

    /// Claims a part file, to remove it; false if somebody fills it.
    pub fn claim_part(&mut self, part: PartId) -> bool {
        match part {
            PartId::Object(object) => self.busy.insert(object),
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
    }

    /// Lets go of an object that could not be had; it is tried again, later each time.
    pub fn postpone(&mut self, now: Instant, object: ObjectId) {
        let times = self.postponed.get(&object).map_or(0, |(_, times)| *times);
        let wait = Nanos(POSTPONE_FIRST.0 << times.min(16)).min(POSTPONE_MAX);
        self.postponed.insert(object, (now + wait, times + 1));
        self.release(object);
    }

    /// How much of a part is good, for the reports; none when there is no part any more. One that
    /// another drive has of the same is spare from now on.
    pub fn set_part(&mut self, id: PartId, part: Option<Part>) {
        match part {
            Some(part) => {
                self.spare_parts.remove(&(id, part.drive));
                let before = self.parts.insert(id, part).map(|before| before.drive);
                self.is_spare(id, before.filter(|on| *on != part.drive));
            }
            None => {
                self.parts.remove(&id);
            }
        }
        self.count_partial();
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
        let part = self.parts.remove(&id).map(|part| part.drive);
        let became = |on: &DriveIndex| *on == extent.drive && unit::of_file(&extent.file).is_none();
        self.is_spare(id, part.filter(|on| !became(on)));
        self.count_partial();
    }

    /// The part on this drive goes with a plan, which nothing else may be due for.
    fn is_spare(&mut self, id: PartId, on: Option<DriveIndex>) {
        if let Some(drive) = on {
            self.spare_parts.insert((id, drive));
            self.replan();
        }
    }

    /// A spare part that is the only one of what it is a part of, and is still to come.
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
        self.hung >> drive.0 & 1 == 1
    }

    fn show(&mut self, object: ObjectId, extent: Extent, small: Option<Arc<[u8]>>) {
        let before = self.index.publish(object, extent.clone());
        assert!(before.is_none(), "object {object} is published once");
        if !self.hangs(extent.drive) {
            self.inventory.publish(object);
        }
        self.postponed.remove(&object);
        if let Some(len) = self.wanted.get(&object) {
            self.progress.objects_held += 1;
            self.progress.bytes_held += *len;
        }
        self.updates.push_back(Update::Published { object, extent, small });
    }

    /// The object is out of the index: so it is everywhere else.
    fn forget(&mut self, object: ObjectId) {
        self.inventory.remove(object);
        if let Some(len) = self.wanted.get(&object) {
            self.progress.objects_held -= 1;
            self.progress.bytes_held -= *len;
            self.replan = true;
        }
        if let Some(len) = self.small.remove(&object) {
            self.small_used -= len;
        }
    }

    fn take_small(&mut self, object: ObjectId, len: Bytes) -> bool {
        let fits = self.has_small_room(len);
        if fits && self.small.insert(object, len).is_none() {
            self.small_used += len;
        }
        fits
    }

    fn count_progress(&mut self) {
        let held = self.wanted.iter().filter(|(object, _)| self.index.locate(object).is_some());
        let (mut objects_held, mut bytes_held) = (0, Bytes::ZERO);
        held.for_each(|(_, len)| {
            objects_held += 1;
            bytes_held += *len;
        });
        self.progress = Progress {
            objects_wanted: Bytes::of(self.wanted.len()).0,
            objects_held,
            bytes_wanted: Bytes(self.wanted.values().map(|len| len.0).sum()),
            bytes_held,
            bytes_partial: Bytes::ZERO,
        };
        self.count_partial();
    }

    fn count_partial(&mut self) {
        let wanted = self.parts.iter().filter(|(part, _)| match part {
            PartId::Object(object) => self.wanted.contains_key(object),
            PartId::Unit(_) => true, // One that is not wanted any more goes with the next plan.
        });
        self.progress.bytes_partial = Bytes(wanted.map(|(_, part)| part.verified.0).sum());
    }
}

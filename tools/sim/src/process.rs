//! An appliance's process: its workers, and the storage side that is thin here as it is there.
//!
//! What is decided is decided by the rooms under `pure/`; this is the simulator's counterpart of
//! `shell/appliance`: `shared.rs` (who works on which object), `filler.rs`, `keeper.rs`,
//! `adopt.rs`, `audit.rs`, `scrub.rs`, `verify.rs`, `control_link.rs`, one task for each thread.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use fill::plan::{self, Actual, Fetch};
use model::extent::{DriveIndex, Extent};
use model::id::{ApplianceId, Generation, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::Manifest;
use model::units::{Bytes, Instant, Nanos};
use store::health::{Health, Verdict};
use store::index::Index;
use store::inventory::Inventory;
use store::layout;
use store::silence::{Silence, Turn};
use worker::Update;

use crate::canary::Canary;
use crate::drive::{ENODEV, ENOENT, ENOSPC, Errno};
use crate::opened::{Opened, SHORT};
use crate::server::Server;
use crate::stage::{Bell, Troupe};
use crate::world::{Machine, World};

/// A running process.
pub(crate) struct Process {
    pub(crate) world: Rc<World>,
    pub(crate) machine: Rc<Machine>,
    pub(crate) troupe: Troupe,
    pub(crate) start_id: u64,
    pub(crate) workers: RefCell<Vec<Rc<Server>>>,
    /// By place; none for a drive that could not be opened.
    pub(crate) drives: Vec<Option<Rc<Opened>>>,
    pub(crate) changed: Bell,
    pub(crate) sampled: Bell,
    state: RefCell<State>,
}

/// What is true now; as in `shared.rs`.
struct State {
    index: Index,
    inventory: Inventory,
    manifest: Option<Arc<Manifest>>,
    wanted: BTreeMap<ObjectId, Bytes>,
    parts: BTreeMap<ObjectId, DriveIndex>,
    plan_report: plan::Report,
    busy: BTreeSet<ObjectId>,
    postponed: BTreeMap<ObjectId, (Instant, u32)>,
    queue: VecDeque<Fetch>,
    replan: bool,
    suspects: BTreeMap<ObjectId, Doubt>,
    samples: VecDeque<Sample>,
    health: Vec<Health>,
    full_at: Vec<Option<Instant>>,
    silence: Vec<Silence>,
    /// When each drive began to be measured, if it still is.
    measured_from: Vec<Option<Instant>>,
    /// A bit for each drive that hangs: what is on it is not in the inventory.
    hung: u64,
    siblings: Siblings,
}

type Siblings = BTreeMap<ApplianceId, Arc<str>>;

/// Why an object is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Somebody could not read it, or read something else.
    Suspect,
    /// Its drive says that it cannot be read.
    Unreadable,
}

/// A block that a viewer was sent, and what it hashes to, if all of it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) drive: DriveIndex,
    pub(crate) object: ObjectId,
    pub(crate) len: Bytes,
    pub(crate) block: u64,
    pub(crate) hash: Option<[u8; 32]>,
}

/// What to do after planning.
#[derive(Default)]
pub(crate) struct Chores {
    pub(crate) evict: Vec<ObjectId>,
    pub(crate) drop_parts: Vec<(ObjectId, DriveIndex)>,
    pub(crate) suspects: BTreeMap<ObjectId, Doubt>,
}

/// How a file stands to the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Indexed,
    Busy,
    Spare,
    Missing,
    Unwanted,
    Unknown,
}

/// Small numbers, so that their edges are met.
const PLAN: plan::Config = plan::Config { fetch_max: 6, evict_max: 3, urls_max: 4 };
const INVENTORY_CHANGES_MAX: usize = 8;
const HEALTH: store::health::Config =
    store::health::Config { objects_max: 3, window: Nanos::seconds(3600) };
const POSTPONE_FIRST: Nanos = Nanos::seconds(2);
const POSTPONE_MAX: Nanos = Nanos::seconds(120);
const PLAN_EVERY: Nanos = Nanos::seconds(5);
const SUSPECTS_MAX: usize = 16;
const SAMPLES_MAX: usize = 8;
const FULL_FOR: Nanos = Nanos::seconds(60);
/// Sooner than there: a simulation is short.
const SILENCE: store::silence::Config =
    store::silence::Config { answers_for: Nanos::seconds(3), hangs_for: Nanos::seconds(10) };
const MEASURE_MAX: Nanos = Nanos::seconds(1);
const MEASURE_EVERY: Nanos = Nanos::seconds(1);
const LOOK_EVERY: Nanos = Nanos::millis(200);

impl Process {
    /// A process that has opened its drives and knows nothing else yet.
    pub(crate) fn new(
        world: &Rc<World>,
        machine: &Rc<Machine>,
        troupe: Troupe,
        drives: Vec<Option<Rc<Opened>>>,
    ) -> Rc<Self> {
        let count = drives.len();
        let state = State {
            index: Index::new(),
            inventory: Inventory::new(INVENTORY_CHANGES_MAX),
            manifest: None,
            wanted: BTreeMap::new(),
            parts: BTreeMap::new(),
            plan_report: plan::Report::default(),
            busy: BTreeSet::new(),
            postponed: BTreeMap::new(),
            queue: VecDeque::new(),
            replan: true,
            suspects: BTreeMap::new(),
            samples: VecDeque::new(),
            health: (0..count).map(|_| Health::new(HEALTH)).collect(),
            full_at: vec![None; count],
            silence: vec![Silence::default(); count],
            measured_from: vec![None; count],
            hung: 0,
            siblings: Siblings::new(),
        };
        Rc::new(Self {
            world: Rc::clone(world),
            machine: Rc::clone(machine),
            troupe,
            start_id: world.stage.number(),
            workers: RefCell::default(),
            drives,
            changed: Bell::default(),
            sampled: Bell::default(),
            state: RefCell::new(state),
        })
    }

    /// The time.
    pub(crate) fn now(&self) -> Instant {
        self.world.stage.now()
    }

    /// A line of the trace.
    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        self.world.stage.say(|| format!("{} {}", self.machine.id, line()));
    }

    /// A drive that is in use.
    pub(crate) fn drive(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        let drive = self.drives.get(index.as_usize())?.as_ref()?;
        (!drive.is_aside()).then(|| Rc::clone(drive))
    }

    /// A drive in use that answers, as far as is known.
    pub(crate) fn answering(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        self.drive(index).filter(|drive| self.answers(drive.index))
    }

    fn answers(&self, index: DriveIndex) -> bool {
        self.state.borrow().silence[index.as_usize()].lasts(self.now()).is_none()
    }

    /// Looks for drives that hang, for ever.
    pub(crate) async fn watch_drives(self: Rc<Self>) {
        loop {
            self.world.stage.sleep(LOOK_EVERY).await;
            let hung = self.workers.borrow().iter().fold(0, |hung, worker| hung | worker.hung());
            for drive in self.in_use() {
                self.look_at_drive(drive.index, hung >> drive.index.0 & 1 == 1);
            }
        }
    }

    fn look_at_drive(&self, drive: DriveIndex, hangs: bool) {
        let now = self.now();
        let turn = {
            let mut state = self.state.borrow_mut();
            let from = state.measured_from[drive.as_usize()];
            let measured = from.is_some_and(|from| MEASURE_MAX < now.since(from));
            state.silence[drive.as_usize()].look(&SILENCE, now, hangs || measured)
        };
        match turn {
            Some(Turn::Hangs) => self.withhold(drive, true),
            Some(Turn::Answers) => self.withhold(drive, false),
            Some(Turn::GivenUp) => self.set_aside(drive, SHORT),
            None => {}
        }
    }

    /// Leaves what is on the drive out of the inventory, or puts it in again.
    fn withhold(&self, drive: DriveIndex, hangs: bool) {
        self.say(|| format!("drive {drive} {}", if hangs { "hangs" } else { "answers again" }));
        let mut state = self.state.borrow_mut();
        let State { index, inventory, hung, .. } = &mut *state;
        let bit = 1 << drive.0;
        *hung = if hangs { *hung | bit } else { *hung & !bit };
        for (object, _) in index.iter().filter(|(_, extent)| extent.drive == drive) {
            if hangs {
                inventory.remove(*object);
            } else {
                inventory.publish(*object);
            }
        }
    }

    /// Measures a drive once a second: that it waits is seen.
    pub(crate) async fn measure(self: Rc<Self>, drive: Rc<Opened>) {
        while !drive.is_aside() {
            let place = drive.index.as_usize();
            self.state.borrow_mut().measured_from[place] = Some(self.now());
            let measured = drive.drive.list(layout::INDEX).await;
            self.state.borrow_mut().measured_from[place] = None;
            if let Err(errno) = measured {
                self.drive_failed(drive.index, errno);
            }
            self.world.stage.sleep(MEASURE_EVERY).await;
        }
    }

    /// Control says who else in the site can serve.
    pub(crate) fn set_siblings(&self, siblings: Siblings) {
        let is_new = self.state.borrow().siblings != siblings;
        if is_new {
            self.state.borrow_mut().siblings = siblings.clone();
            self.tell(&Update::Siblings(Arc::new(siblings)));
        }
    }

    /// All drives in use that answer.
    pub(crate) fn all_answering(&self) -> Vec<Rc<Opened>> {
        let mut drives = self.in_use();
        drives.retain(|drive| self.answers(drive.index));
        drives
    }

    /// All drives in use.
    pub(crate) fn in_use(&self) -> Vec<Rc<Opened>> {
        let open = self.drives.iter().flatten();
        open.filter(|drive| !drive.is_aside()).cloned().collect()
    }

    fn tell(&self, update: &Update) {
        for worker in self.workers.borrow().iter() {
            worker.update(update.clone());
        }
    }

    /// What is free on each drive in use.
    pub(crate) fn spaces(&self) -> Vec<layout::DriveSpace> {
        let mut spaces = Vec::new();
        for drive in self.in_use() {
            let full_at = self.state.borrow().full_at[drive.index.as_usize()];
            let is_full = full_at.is_some_and(|at| self.now().since(at) < FULL_FOR);
            match drive.drive.space() {
                Ok((capacity, free)) => spaces.push(layout::DriveSpace {
                    drive: drive.index,
                    set_aside: false,
                    capacity,
                    free: if is_full || !self.answers(drive.index) { Bytes::ZERO } else { free },
                    held: drive.held(),
                }),
                Err(errno) => self.drive_failed(drive.index, errno),
            }
        }
        spaces
    }

    /// What an error that is not about one object means for the drive.
    pub(crate) fn drive_failed(&self, drive: DriveIndex, errno: Errno) {
        match errno {
            ENOSPC => self.state.borrow_mut().full_at[drive.as_usize()] = Some(self.now()),
            ENOENT | SHORT => {}
            _ => self.set_aside(drive, errno),
        }
    }

    /// One object cannot be read for its drive's sake: does it go, or the drive?
    pub(crate) fn object_failed(&self, drive: DriveIndex) -> Verdict {
        let now = self.now();
        self.state.borrow_mut().health[drive.as_usize()].object_failed(now)
    }

    /// Stops all use of a drive and tells everybody.
    pub(crate) fn set_aside(&self, index: DriveIndex, errno: Errno) {
        let Some(drive) = self.drive(index) else { return };
        drive.set_aside(self.now());
        self.say(|| format!("drive {index} set aside: errno {errno}"));
        {
            let mut state = self.state.borrow_mut();
            for object in state.index.remove_drive(index) {
                state.forget(object);
                self.machine.shown.borrow_mut().remove(&object);
            }
            state.parts.retain(|_, part| *part != index);
            state.replan = true;
        }
        if !self.world.has(Canary::SilentSetAside) {
            self.tell(&Update::DriveSetAside { drive: index });
        }
        self.changed.ring();
    }

    /// An object found at the start; the first drive that has it wins.
    pub(crate) fn load(&self, object: ObjectId, extent: Extent) {
        let known = self.state.borrow().index.locate(&object).is_some();
        if !known {
            self.show(object, extent, None);
        }
    }

    /// A part file found at the start.
    pub(crate) fn load_part(&self, object: ObjectId, drive: DriveIndex) {
        self.state.borrow_mut().parts.insert(object, drive);
    }

    /// Makes an object visible, unless its drive was set aside in the meantime.
    pub(crate) fn publish(&self, object: ObjectId, extent: Extent, bytes: Option<&[u8]>) {
        if self.drive(extent.drive).is_none() {
            return;
        }
        self.state.borrow_mut().parts.remove(&object);
        let small = bytes.filter(|_| extent.len <= SMALL_OBJECT_MAX).map(Arc::from);
        self.world.count(|counts| counts.published += 1);
        self.show(object, extent, small);
    }

    fn show(&self, object: ObjectId, extent: Extent, small: Option<Arc<[u8]>>) {
        self.say(|| format!("shows {object} on drive {}", extent.drive));
        if let Some(drive) = self.machine.drive(extent.drive.as_usize()) {
            self.machine.shown.borrow_mut().insert(object, drive);
        }
        {
            let mut state = self.state.borrow_mut();
            let before = state.index.publish(object, extent.clone());
            self.world.stage.must(before.is_none(), || format!("{object} is published twice"));
            if state.hung >> extent.drive.0 & 1 == 0 {
                state.inventory.publish(object);
            }
            state.postponed.remove(&object);
        }
        self.tell(&Update::Published { object, extent, small });
    }

    /// Gives workers the bytes of a small object that is published already.
    pub(crate) fn publish_small(&self, object: ObjectId, extent: &Extent, bytes: &[u8]) {
        if self.locate(&object).as_ref() == Some(extent) {
            let (extent, small) = (extent.clone(), Some(Arc::from(bytes)));
            self.tell(&Update::Published { object, extent, small });
        }
    }

    /// Makes an object invisible.
    pub(crate) fn hide(&self, object: ObjectId) {
        let gone = {
            let mut state = self.state.borrow_mut();
            let gone = state.index.remove(&object).is_some();
            if gone {
                state.forget(object);
            }
            gone
        };
        if gone {
            self.say(|| format!("hides {object}"));
            self.machine.shown.borrow_mut().remove(&object);
            self.tell(&Update::Removed { object });
        }
    }

    /// Puts a newer manifest in force; false if it is not newer.
    pub(crate) fn set_manifest(&self, manifest: &Arc<Manifest>) -> bool {
        {
            let mut state = self.state.borrow_mut();
            if state.manifest.as_ref().is_some_and(|old| manifest.generation <= old.generation) {
                return false;
            }
            let files = manifest.versions.iter().flat_map(|version| version.files.values());
            state.wanted = files.map(|file| (file.object, file.len)).collect();
            state.manifest = Some(Arc::clone(manifest));
            state.postponed.clear();
            state.replan = true;
        }
        self.say(|| format!("manifest {} in force", manifest.generation));
        let before = self.machine.generation.replace(manifest.generation);
        let is_new = before <= manifest.generation;
        self.world.stage.must(is_new, || format!("{}: an older manifest", self.machine.id));
        self.tell(&Update::Manifest(Arc::clone(manifest)));
        self.changed.ring();
        true
    }

    /// The manifest in force.
    pub(crate) fn manifest(&self) -> Option<Arc<Manifest>> {
        self.state.borrow().manifest.clone()
    }

    /// Its generation.
    pub(crate) fn generation(&self) -> Generation {
        self.manifest().map_or(Generation(0), |manifest| manifest.generation)
    }

    /// What control has to be told since it knew so much.
    pub(crate) fn inventory_since(&self, known: u64) -> model::inventory::Delta {
        let state = self.state.borrow();
        let answers = |extent: &Extent| state.hung >> extent.drive.0 & 1 == 0;
        let held = state.index.iter().filter(|(_, extent)| answers(extent));
        let held = held.map(|(object, _)| *object);
        let delta = state.inventory.since(store::inventory::InventoryState(known), held);
        let (from, to) = (delta.from.0, delta.to.0);
        model::inventory::Delta { from, to, held: delta.held, gone: delta.gone }
    }

    /// Where an object lies.
    pub(crate) fn locate(&self, object: &ObjectId) -> Option<Extent> {
        self.state.borrow().index.locate(object).cloned()
    }

    /// All published objects.
    pub(crate) fn published(&self) -> Vec<(ObjectId, Extent)> {
        let state = self.state.borrow();
        state.index.iter().map(|(object, extent)| (*object, extent.clone())).collect()
    }

    /// Wanted objects that are not held.
    pub(crate) fn lacks(&self) -> Vec<ObjectId> {
        let state = self.state.borrow();
        let lacking = state.wanted.keys().filter(|object| state.index.locate(object).is_none());
        lacking.copied().collect()
    }

    /// Published objects that are not wanted, and parts of any.
    pub(crate) fn leftovers(&self) -> usize {
        let state = self.state.borrow();
        let unwanted =
            state.index.iter().filter(|(object, _)| !state.wanted.contains_key(object)).count();
        unwanted + state.parts.len()
    }

    /// What the last plan found.
    pub(crate) fn plan_report(&self) -> plan::Report {
        self.state.borrow().plan_report.clone()
    }

    /// Waits for the next time to plan.
    pub(crate) async fn wait_for_planning(&self) {
        let began = self.now();
        loop {
            if self.state.borrow().replan {
                return;
            }
            let due = began + PLAN_EVERY;
            if due <= self.now() && (!self.lacks().is_empty() || 0 < self.evictions_later()) {
                return;
            }
            let until = if due <= self.now() { self.now() + PLAN_EVERY } else { due };
            self.changed.wait_until(&self.world.stage, until).await;
        }
    }

    fn evictions_later(&self) -> u64 {
        self.state.borrow().plan_report.evictions_later
    }

    /// Plans: what to fetch goes to the fillers, what else to do to the caller.
    pub(crate) fn plan(&self) -> Chores {
        let free: Vec<Bytes> = self.spaces().iter().map(|space| space.free).collect();
        let now = self.now();
        let mut state = self.state.borrow_mut();
        state.replan = false;
        let suspects = std::mem::take(&mut state.suspects);
        let Some(manifest) = state.manifest.clone() else {
            return Chores { suspects, ..Chores::default() };
        };
        let held = state.index.iter().map(|(object, _)| *object).collect();
        let parts = state.parts.keys().copied().collect();
        let postponed = state.postponed.iter().filter(|(_, (until, _))| now < *until);
        let skip = state.busy.iter().chain(postponed.map(|(object, _)| object)).copied().collect();
        let room = |len| layout::sections(len).file_len;
        let actual = Actual { held: &held, parts: &parts, skip: &skip, free: &free, room };
        let plan = plan::plan(&PLAN, &manifest, &actual);
        state.queue = plan.fetch.into();
        state.plan_report = plan.report;
        self.changed.ring();
        let of = |object: ObjectId| Some((object, *state.parts.get(&object)?));
        let drop_parts = plan.drop_parts.into_iter().filter_map(of).collect();
        Chores { evict: plan.evict, drop_parts, suspects }
    }

    /// So much of what the plan would have had go is still here.
    pub(crate) fn put_off(&self, count: usize) {
        self.state.borrow_mut().plan_report.evictions_later += Bytes::of(count).0;
    }

    /// Somebody doubts an object.
    pub(crate) fn suspect(&self, object: ObjectId, doubt: Doubt) {
        let mut state = self.state.borrow_mut();
        if state.suspects.len() < SUSPECTS_MAX {
            state.suspects.insert(object, doubt);
            state.replan = true;
            self.changed.ring();
        }
    }

    /// A viewer was sent a block.
    pub(crate) fn sample(&self, sample: Sample) {
        let mut state = self.state.borrow_mut();
        if state.samples.len() < SAMPLES_MAX {
            state.samples.push_back(sample);
            self.sampled.ring();
        }
    }

    /// Waits for a block that a viewer was sent.
    pub(crate) async fn next_sample(&self) -> Sample {
        loop {
            let sample = self.state.borrow_mut().samples.pop_front();
            match sample {
                Some(sample) => return sample,
                None => self.sampled.wait().await,
            }
        }
    }

    /// The first published object on a drive whose id is above `after`.
    pub(crate) fn next_on(
        &self,
        drive: DriveIndex,
        after: Option<ObjectId>,
    ) -> Option<(ObjectId, Extent)> {
        let state = self.state.borrow();
        state.index.next_on(drive, after).map(|(object, extent)| (object, extent.clone()))
    }

    /// Plans again as soon as possible.
    pub(crate) fn replan(&self) {
        self.state.borrow_mut().replan = true;
        self.changed.ring();
    }

    /// Waits for an object to fetch, and claims it, with the drive that has a part of it.
    pub(crate) async fn claim_fetch(&self) -> (Fetch, Option<DriveIndex>) {
        loop {
            if let Some(claim) = self.try_claim() {
                return claim;
            }
            self.changed.wait().await;
        }
    }

    fn try_claim(&self) -> Option<(Fetch, Option<DriveIndex>)> {
        let mut state = self.state.borrow_mut();
        while let Some(fetch) = state.queue.pop_front() {
            if state.queue.is_empty() && 0 < state.plan_report.objects_later {
                state.replan = true;
                self.changed.ring();
            }
            let held = state.index.locate(&fetch.object).is_some();
            if !held && state.busy.insert(fetch.object) {
                let part = state.parts.get(&fetch.object).copied();
                return Some((fetch, part));
            }
        }
        None
    }

    /// Claims an object for something else than fetching; false if somebody has it.
    pub(crate) fn claim(&self, object: ObjectId) -> bool {
        self.state.borrow_mut().busy.insert(object)
    }

    /// Claims what an audit may have to change.
    pub(crate) fn claim_file(&self, object: ObjectId, drive: DriveIndex) -> Standing {
        let mut state = self.state.borrow_mut();
        if state.busy.contains(&object) {
            return Standing::Busy;
        }
        let standing = match state.index.locate(&object) {
            Some(extent) if extent.drive == drive => return Standing::Indexed,
            Some(_) => Standing::Spare,
            None if state.manifest.is_none() => return Standing::Unknown,
            None if state.wanted.contains_key(&object) => Standing::Missing,
            None => Standing::Unwanted,
        };
        state.busy.insert(object);
        standing
    }

    /// Lets go of an object.
    pub(crate) fn release(&self, object: ObjectId) {
        let known = self.state.borrow_mut().busy.remove(&object);
        self.world.stage.must(known, || format!("{object} is released by who never claimed it"));
    }

    /// Lets go of an object that could not be had; it is tried again, later each time.
    pub(crate) fn postpone(&self, object: ObjectId) {
        let now = self.now();
        {
            let mut state = self.state.borrow_mut();
            let times = state.postponed.get(&object).map_or(0, |(_, times)| *times);
            let wait = Nanos(POSTPONE_FIRST.0 << times.min(16)).min(POSTPONE_MAX);
            state.postponed.insert(object, (now + wait, times + 1));
        }
        if !self.world.has(Canary::NeverReleased) {
            self.release(object);
        }
    }

    /// There is a part of an object on a drive, or none any more.
    pub(crate) fn set_part(&self, object: ObjectId, part: Option<DriveIndex>) {
        let mut state = self.state.borrow_mut();
        match part {
            Some(drive) => state.parts.insert(object, drive),
            None => state.parts.remove(&object),
        };
    }

    /// A worker could not read an object.
    pub(crate) fn read_failed(&self, drive: DriveIndex, object: ObjectId, errno: Errno) {
        match errno {
            crate::drive::EIO => self.suspect(object, Doubt::Unreadable),
            ENODEV => self.set_aside(drive, errno),
            _ => self.suspect(object, Doubt::Suspect),
        }
    }

    /// Objects that somebody works on.
    pub(crate) fn busy(&self) -> usize {
        self.state.borrow().busy.len()
    }
}

impl State {
    /// The object is out of the index: so it is everywhere else.
    fn forget(&mut self, object: ObjectId) {
        self.inventory.remove(object);
        if self.wanted.contains_key(&object) {
            self.replan = true;
        }
    }
}

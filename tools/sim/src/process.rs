//! An appliance's process: its workers, and the storage side that is thin here as it is there.
//!
//! What is decided is decided by the rooms under `pure/`; this is the simulator's counterpart of
//! what storage threads share in `shell/appliance`: the ledger and the drives' slots. Each thread
//! there is a task here.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};

use fill::heat::{self, Heat};
use fill::plan;
use fill::rate::Limiter;
use holdings::Holdings;
use model::drives::DriveSet;
use model::extent::{DriveIndex, Extent};
use model::id::{Generation, ObjectId};
use model::object::BLOCK_LEN;
use model::units::{Bytes, Instant, Nanos};
use model::update::Update;
use store::parcel::PartId;
use upkeep::{Sample, keeper};

use crate::canary::Canary;
use crate::opened::{Opened, Reader};
use crate::oracle;
use crate::server::{Owner, Server};
use crate::stage::{Bell, Troupe};
use crate::world::{Machine, World};

pub(crate) struct Process {
    pub(crate) world: Rc<World>,
    pub(crate) machine: Rc<Machine>,
    pub(crate) troupe: Troupe,
    pub(crate) start_id: u64,
    pub(crate) me: Weak<Self>,
    pub(crate) workers: RefCell<Vec<Rc<Server>>>,
    slots: RefCell<Vec<Slot>>,
    pub(crate) changed: Bell,
    pub(crate) sampled: Bell,
    pub(crate) handed_out: Bell,
    /// Blocks that came since the last report.
    pub(crate) fetched: Cell<u64>,
    /// When it first asked for each object.
    pub(crate) asked: RefCell<BTreeMap<ObjectId, Instant>>,
    /// How fast blocks come, for each of the rates of its rules.
    pub(crate) paces: RefCell<[Option<Limiter>; 3]>,
    /// How often a drive has come back.
    pub(crate) returned: Cell<u64>,
    state: RefCell<State>,
}

struct State {
    holdings: Holdings,
    heat: Heat,
    samples: VecDeque<Sample>,
}

#[derive(Default)]
struct Slot {
    open: Option<Rc<Opened>>,
    /// Workers have its directory: from before its objects are shown.
    given: Option<Rc<Opened>>,
    /// Set aside: whoever still has a file open there holds it.
    old: Weak<Opened>,
    aside: Option<Instant>,
}

/// Small numbers, so that their edges are met.
const HOLDINGS: holdings::Config = holdings::Config {
    plan: plan::Config { fetch_max: 6, evict_max: 3, urls_max: 4 },
    inventory_changes_max: 8,
    suspects_max: 16,
    small_budget: Bytes::kib(100),
    unit_len: None,
};
/// Few, so that there are many slices; and something else happens in between.
pub(crate) const SLICE: usize = 5;
pub(crate) const BETWEEN_SLICES: Nanos = Nanos::millis(1);

/// How units are packed: another choice at each start, as an operator may change it.
const UNIT_LENS: [Option<Bytes>; 4] =
    [Some(Bytes::kib(1500)), Some(Bytes::kib(1500)), Some(Bytes::kib(400)), None];
const SAMPLES_MAX: usize = 8;
const HEAT: heat::Config = heat::Config { objects_max: 8, half_life: Nanos::seconds(10) };
const LOOK_EVERY: Nanos = Nanos::millis(200);

impl Process {
    /// A process that has opened its drives and knows nothing else yet.
    pub(crate) fn new(
        world: &Rc<World>,
        machine: &Rc<Machine>,
        troupe: Troupe,
        drives: Vec<Option<Rc<Opened>>>,
    ) -> Rc<Self> {
        let slots =
            drives.into_iter().map(|open| Slot { given: open.clone(), open, ..Slot::default() });
        let slots = slots.collect();
        let unit_len = world.stage.pick(&UNIT_LENS).copied().flatten();
        let state = State {
            holdings: Holdings::new(holdings::Config { unit_len, ..HOLDINGS }),
            heat: Heat::new(HEAT, world.stage.now()),
            samples: VecDeque::new(),
        };
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            world: Rc::clone(world),
            machine: Rc::clone(machine),
            troupe,
            start_id: world.stage.number(),
            workers: RefCell::default(),
            slots: RefCell::new(slots),
            changed: Bell::default(),
            sampled: Bell::default(),
            handed_out: Bell::default(),
            fetched: Cell::new(0),
            asked: RefCell::default(),
            paces: RefCell::default(),
            returned: Cell::new(0),
            state: RefCell::new(state),
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.world.stage.now()
    }

    pub(crate) fn say(&self, line: impl FnOnce() -> String) {
        self.world.stage.say(|| format!("{} {}", self.machine.id, line()));
    }

    /// True while somebody uses what was in a place before it was set aside, or waits for a read.
    pub(crate) fn is_held(&self, index: DriveIndex) -> bool {
        let is_open = {
            let slots = self.slots.borrow();
            slots.get(index.as_usize()).is_some_and(|slot| 0 < slot.old.strong_count())
        };
        let reads = |worker: &Rc<Server>| 0 < worker.slice(index).in_flight;
        is_open || self.workers.borrow().iter().any(reads)
    }

    /// Workers open files on a drive from now on.
    pub(crate) fn give(&self, drive: &Rc<Opened>) {
        let slot = Slot { given: Some(Rc::clone(drive)), ..Slot::default() };
        self.slots.borrow_mut()[drive.index.as_usize()] = slot;
    }

    /// Puts a drive in its place, of which all objects are shown.
    pub(crate) fn put_in_use(&self, drive: &Rc<Opened>, parts: Vec<PartId>) {
        let index = drive.index;
        self.slots.borrow_mut()[index.as_usize()].open = Some(Rc::clone(drive));
        self.with(|holdings| holdings.take_back(index, std::iter::empty(), parts.into_iter()));
    }

    /// A drive is in use again, with all its objects.
    pub(crate) fn returned(&self, drive: &Opened) {
        self.say(|| format!("drive {} in use again, with {}", drive.index, drive.drive.id));
        self.returned.set(self.returned.get() + 1);
        self.world.count(|counts| counts.drives_returned += 1);
    }

    /// What each worker's reads of a drive met.
    pub(crate) fn readers(&self, index: DriveIndex) -> Vec<Reader> {
        let reader = |worker: &Rc<Server>| -> Reader {
            let worker = Rc::downgrade(worker);
            Box::new(move || worker.upgrade().map(|of| of.slice(index)).unwrap_or_default())
        };
        self.workers.borrow().iter().map(reader).collect()
    }

    /// Looks for drives that hang, for ever.
    pub(crate) async fn watch_drives(self: Rc<Self>) {
        loop {
            self.world.stage.sleep(LOOK_EVERY).await;
            let hung = self
                .workers
                .borrow()
                .iter()
                .fold(DriveSet::NONE, |hung, worker| hung | worker.hung());
            for drive in self.in_use() {
                keeper::look(&*self, &*drive, hung.contains(drive.index)).await;
            }
        }
    }

    pub(crate) fn drive(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        self.slots.borrow().get(index.as_usize())?.open.clone()
    }

    pub(crate) fn in_use(&self) -> Vec<Rc<Opened>> {
        self.slots.borrow().iter().filter_map(|slot| slot.open.clone()).collect()
    }

    /// Asks or changes the holdings, then tells who has to know of it.
    pub(crate) fn with<R>(&self, change: impl FnOnce(&mut Holdings) -> R) -> R {
        let (result, updates, news) = {
            let holdings = &mut self.state.borrow_mut().holdings;
            let result = change(holdings);
            let updates: Vec<Update> = std::iter::from_fn(|| holdings.next_update()).collect();
            (result, updates, holdings.take_news())
        };
        updates.iter().for_each(|update| self.tell(update));
        if news {
            self.changed.ring();
        }
        result
    }

    fn tell(&self, update: &Update) {
        self.note(update);
        if matches!(update, Update::DriveSetAside { .. }) && self.world.has(Canary::SilentSetAside)
        {
            return;
        }
        let late = matches!(update, Update::Manifest(_)) && self.world.has(Canary::SignedEarly);
        for worker in self.workers.borrow().iter() {
            if late {
                let (worker, update) = (Rc::clone(worker), update.clone());
                let soon = self.world.stage.now() + Nanos::seconds(3);
                self.world.stage.at(self.troupe, soon, move || worker.update(update));
            } else {
                worker.update(update.clone());
            }
        }
    }

    /// What workers are told is what is shown from now on.
    fn note(&self, update: &Update) {
        let mut shown = self.machine.shown.borrow_mut();
        match update {
            Update::Published { object, extent, .. } => {
                self.say(|| format!("shows {object} on drive {}", extent.drive));
                if let Some(drive) = self.machine.drive(extent.drive.as_usize()) {
                    shown.insert(*object, drive);
                }
            }
            Update::Removed { object } => {
                self.say(|| format!("hides {object}"));
                drop(shown);
                self.is_hidden(object);
                self.machine.shown.borrow_mut().remove(object);
            }
            Update::DriveSetAside { drive } => {
                let state = self.state.borrow();
                let index = state.holdings.index();
                shown.retain(|object, _| index.locate(object).is_some_and(|at| at.drive != *drive));
            }
            Update::Manifest(manifest) => {
                self.say(|| format!("manifest {} in force", manifest.generation));
                let files = manifest.versions.iter().flat_map(|version| version.files.values());
                *self.machine.wants.borrow_mut() = files.map(|file| file.object).collect();
                let before = self.machine.generation.replace(manifest.generation);
                let is_new = before <= manifest.generation;
                self.world.stage.must(is_new, || format!("{}: an older manifest", self.machine.id));
                let before = self.machine.trust.replace(manifest.trust.generation);
                let is_new = before <= manifest.trust.generation;
                self.world.stage.must(is_new, || format!("{}: older keys", self.machine.id));
            }
            Update::Siblings(_) => {}
        }
    }

    fn is_hidden(&self, object: &ObjectId) {
        let on = self.machine.shown.borrow().get(object).cloned();
        let is_here = |open: &Rc<Opened>| on.as_ref().is_some_and(|on| Rc::ptr_eq(on, &open.drive));
        if let Some(drive) = self
            .in_use()
            .into_iter()
            .find(is_here)
            .filter(|_| self.machine.wants.borrow().contains(object))
        {
            oracle::wanted_is_hidden(&self.world, &drive, object);
        }
    }

    /// Takes a drive out of use.
    pub(crate) fn set_drive_aside(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        let drive = self.drive(index)?;
        drive.set_aside();
        let (old, aside) = (Rc::downgrade(&drive), Some(self.now()));
        self.slots.borrow_mut()[index.as_usize()] = Slot { old, aside, ..Slot::default() };
        self.with(|holdings| holdings.let_go(index));
        Some(drive)
    }

    /// How much viewers were sent of an object of late.
    pub(crate) fn heat(&self, object: &ObjectId) -> Bytes {
        self.state.borrow().heat.of(object)
    }

    pub(crate) fn ask<R>(&self, look: impl FnOnce(&Holdings) -> R) -> R {
        look(&self.state.borrow().holdings)
    }

    /// The manifest that every worker answers by.
    pub(crate) fn served(&self) -> Option<Generation> {
        if self.world.has(Canary::SignedEarly) {
            return Some(self.ask(Holdings::generation));
        }
        self.workers.borrow().iter().map(|worker| worker.served()).min()
    }

    pub(crate) fn published(&self) -> Vec<(ObjectId, Extent)> {
        let state = self.state.borrow();
        let published = state.holdings.index().iter();
        published.map(|(object, extent)| (*object, extent.clone())).collect()
    }

    /// Wanted objects that are not held.
    pub(crate) fn lacks(&self) -> Vec<ObjectId> {
        let holdings = &self.state.borrow().holdings;
        let is_here = |object: &ObjectId| holdings.index().locate(object).is_some();
        let wanted = holdings.wanted().objects().iter().map(|(object, _)| *object);
        wanted.filter(|object| !is_here(object)).collect()
    }

    /// Published objects that are not wanted, and parts of any.
    pub(crate) fn leftovers(&self) -> usize {
        let holdings = &self.state.borrow().holdings;
        let published = holdings.index().iter();
        let unwanted = published.filter(|(object, _)| !holdings.is_wanted(object));
        unwanted.count() + holdings.parts().len() + holdings.spare_parts().len()
    }

    /// The next block that a viewer was sent.
    pub(crate) async fn next_sample(&self) -> Sample {
        loop {
            let sample = self.state.borrow_mut().samples.pop_front();
            match sample {
                Some(sample) => return sample,
                None => self.sampled.wait().await,
            }
        }
    }
}

impl Owner for Process {
    fn given(&self, index: DriveIndex) -> Option<Rc<Opened>> {
        self.slots.borrow().get(index.as_usize())?.given.clone()
    }

    fn aside(&self, index: DriveIndex) -> Option<Instant> {
        self.slots.borrow().get(index.as_usize())?.aside
    }

    fn sample(&self, sample: Sample) {
        let mut state = self.state.borrow_mut();
        state.heat.note(self.now(), sample.object, BLOCK_LEN);
        if state.samples.len() < SAMPLES_MAX {
            state.samples.push_back(sample);
            self.sampled.ring();
        }
    }

    fn read_failed(&self, object: ObjectId, extent: Extent, errno: Option<upkeep::Errno>) {
        let Some(me) = self.me.upgrade() else { return };
        self.world.stage.spawn(self.troupe, async move {
            keeper::read_failed(&*me, object, &extent, errno).await;
        });
    }
}

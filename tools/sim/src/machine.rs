//! A machine's life: its process starts, reports, and ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use director::{Hardware, Report};
use model::extent::DriveIndex;
use model::id::{ApplianceId, Generation};
use model::units::{Bytes, Nanos};
use model::view::Load;
use store::layout;
use store::parcel::PartId;
use upkeep::{filler, keeper};

use crate::absence;
use crate::chores;
use crate::drive::Drive;
use crate::files::Left;
use crate::mover;
use crate::opened::Opened;
use crate::oracle;
use crate::process::Process;
use crate::server::Server;
use crate::source::Network;
use crate::stage::{Slot, Troupe, WORLD};
use crate::world::{CLOCK_ZERO, Machine, Party, World};

/// Fill threads of a process.
const FILLERS: usize = 2;
const REPORT_MAX: Nanos = Nanos::seconds(5);
/// A drive that does not open within this is left out.
const OPEN_SILENCE_MAX: Nanos = Nanos::seconds(10);
const RETRY_MAX: Nanos = Nanos::seconds(5);

impl Machine {
    /// A machine that is off.
    pub(crate) fn new(index: usize, id: ApplianceId, drives: Vec<Rc<Drive>>) -> Rc<Self> {
        Rc::new(Self {
            index,
            id,
            drives: RefCell::new(drives),
            retired: RefCell::default(),
            mounts: Cell::new(0),
            kept: RefCell::new(None),
            process: RefCell::new(None),
            is_dark: Cell::new(false),
            signed: RefCell::default(),
            clock: Cell::new(CLOCK_ZERO),
            shown: RefCell::new(BTreeMap::new()),
            generation: Cell::new(Generation(0)),
            troupe: Cell::new(WORLD),
        })
    }

    /// Starts its process, unless one runs or is about to.
    pub(crate) fn start(self: &Rc<Self>, world: &Rc<World>) {
        if self.troupe.get() != WORLD {
            return;
        }
        self.is_dark.set(false);
        let troupe = Troupe(world.stage.number());
        self.troupe.set(troupe);
        world.count(|counts| counts.starts += 1);
        world.stage.spawn(troupe, begin(Rc::clone(world), Rc::clone(self), troupe));
    }

    /// Ends its process at once.
    pub(crate) fn kill(&self, world: &World) {
        world.stage.say(|| format!("{} killed", self.id));
        self.end(world, true);
        for drive in self.drives.borrow().iter() {
            drive.left_alone();
        }
    }

    /// The power goes.
    pub(crate) fn cut(&self, world: &World, names: Left, bytes: Left) {
        world.stage.say(|| format!("{} loses power: names {names:?}, bytes {bytes:?}", self.id));
        world.count(|counts| counts.cuts += 1);
        self.is_dark.set(true);
        self.end(world, false);
        for drive in self.drives.borrow().iter() {
            drive.cut(names, bytes);
        }
    }

    fn end(&self, world: &World, resets: bool) {
        let process = self.process.borrow_mut().take();
        if let Some(process) = process {
            for worker in process.workers.borrow().iter() {
                if resets {
                    worker.reset_all();
                }
            }
            process.workers.borrow_mut().clear();
        }
        let troupe = self.troupe.replace(WORLD);
        if troupe != WORLD {
            world.stage.kill(troupe);
        }
    }
}

async fn begin(world: Rc<World>, machine: Rc<Machine>, troupe: Troupe) {
    let stage = world.stage.clone();
    let mut opened = Vec::new();
    let drives = machine.drives.borrow().clone();
    for (index, drive) in (0..).zip(&drives) {
        let slot = Slot::default();
        let (told, late, drive) = (slot.clone(), slot.clone(), Rc::clone(drive));
        let of = Rc::clone(&world);
        stage.spawn(troupe, async move {
            told.put(Opened::open(&of, &drive, DriveIndex(index)).await.ok());
        });
        stage.at(troupe, stage.now() + OPEN_SILENCE_MAX, move || late.put(None));
        opened.push(slot.await);
    }
    if opened.iter().all(Option::is_none) {
        stage.say(|| format!("{} has no drive and ends", machine.id));
        machine.troupe.set(WORLD);
        return;
    }
    let process = Process::new(&world, &machine, troupe, opened);
    let count = if stage.one_in(3) { 2 } else { 1 };
    for _ in 0..count {
        let server = Server::new(&process, drives.len());
        process.workers.borrow_mut().push(server);
    }
    for drive in process.in_use() {
        drive.set_readers(&process.workers.borrow());
    }
    stage.say(|| format!("{} starts", machine.id));
    let kept = machine.kept.borrow().clone();
    if let Some(manifest) = kept {
        process.set_manifest(&manifest).await;
    }
    let before = machine.shown.borrow().clone();
    for drive in process.in_use() {
        for (object, entry) in drive.entries() {
            process.load(object, entry.extent(&object, drive.index));
        }
    }
    oracle::kept_what_was_shown(&process, &before);
    for drive in process.in_use() {
        match drive.drive.list(layout::FILL).await {
            Ok(names) => names
                .iter()
                .filter_map(|name| PartId::parse(name))
                .for_each(|part| process.load_part(part, drive.index)),
            Err(errno) => process.drive_failed(&drive, errno).await,
        }
    }
    *machine.process.borrow_mut() = Some(Rc::clone(&process));
    stage.spawn(troupe, chores::keep(Rc::clone(&process)));
    let count = u8::try_from(drives.len()).unwrap_or(u8::MAX);
    stage.spawn(troupe, chores::look_at_files(Rc::clone(&process), count));
    stage.spawn(troupe, chores::check_samples(Rc::clone(&process)));
    stage.spawn(troupe, Rc::clone(&process).watch_drives());
    for index in (0..).take(drives.len()).map(DriveIndex) {
        stage.spawn(troupe, absence::run(Rc::clone(&process), index));
        let of = Rc::clone(&process);
        stage.spawn(troupe, async move { keeper::tend(&*of, index).await });
        stage.spawn(troupe, chores::read_all(Rc::clone(&process), index));
    }
    for _ in 0..FILLERS {
        let process = Rc::clone(&process);
        let network = Network(Rc::clone(&process));
        stage.spawn(troupe, async move { filler::run(&*process, &network).await });
    }
    stage.spawn(troupe, mover::run(Rc::clone(&process)));
    stage.spawn(troupe, link(process));
}

/// Reports for ever, and takes manifests.
async fn link(process: Rc<Process>) {
    let world = Rc::clone(&process.world);
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let (mut sequence, mut known, mut failures) = (0, 0, 0);
    let mut interval = Nanos::millis(500);
    loop {
        let began = process.now();
        sequence += 1;
        let report = report(&process, sequence, known);
        let (control, id) = (world.control(), process.machine.id.clone());
        let answer = move || control.report(&id, &report);
        let reply = world.ask(parties, REPORT_MAX, answer).await;
        let wait = if let Some(reply) = reply {
            (known, interval, failures) = (reply.inventory, reply.interval, 0);
            process.set_siblings(reply.siblings);
            if process.generation() < reply.generation {
                take_manifest(&process).await;
            }
            interval
        } else {
            failures += 1;
            Nanos(interval.0 << failures.min(6)).min(RETRY_MAX)
        };
        world.stage.sleep_until(began + wait).await;
    }
}

async fn take_manifest(process: &Rc<Process>) {
    let world = &process.world;
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let (control, id) = (world.control(), process.machine.id.clone());
    let manifest = world.ask(parties, REPORT_MAX, move || control.manifest(&id)).await;
    let Some(manifest) = manifest else { return };
    if manifest.generation <= process.generation() {
        return;
    }
    // Into the state directory first, where it survives.
    world.stage.sleep(world.stage.millis(1, 30)).await;
    *process.machine.kept.borrow_mut() = Some(manifest.clone());
    world.stage.sleep(world.stage.millis(0, 2)).await;
    process.set_manifest(&manifest).await;
}

fn report(process: &Process, sequence: u64, known: u64) -> Report {
    let machine = &process.machine;
    let spaces = process.spaces();
    let drives = machine.drives.borrow();
    let uuids: BTreeSet<String> = drives.iter().map(|drive| drive.id.to_string()).collect();
    let hardware = Hardware { machine: machine.id.to_string(), drives: uuids };
    let connections: usize =
        process.workers.borrow().iter().map(|worker| worker.open_count().0).sum();
    Report {
        start_id: process.start_id,
        sequence,
        base_url: format!("https://{}", machine.id),
        peer_address: Some(machine.id.to_string()),
        generation: process.generation(),
        served: process.served(),
        load: Load {
            connections: u64::try_from(connections).unwrap_or(0),
            connections_max: 12,
            ..Load::default()
        },
        serving: true,
        hardware,
        drives_in_use: spaces.len(),
        drives_set_aside: drives.len() - spaces.len(),
        usable: Bytes(spaces.iter().map(|space| space.capacity.0).sum()),
        inventory: process.inventory_since(known),
        ..Report::default()
    }
}

//! A machine's life: its process starts, reports, and ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use director::{Hardware, Report};
use holdings::Holdings;
use model::extent::DriveIndex;
use model::hours::{FillRules, Offset, Windows};
use model::id::{ApplianceId, Generation, ObjectId};
use model::inventory::{Check, Delta, FilesDelta};
use model::manifest::Manifest;
use model::object::BLOCK_LEN;
use model::units::{BitsPerSecond, Bytes, Nanos, UnixSeconds};
use model::view::Load;
use store::layout;
use store::log::Entry;
use store::parcel::PartId;
use trust::{Followed, Older, takes_manifest};
use upkeep::{Ledger as _, audit, filler, keeper, scrub, verify};

use crate::absence;
use crate::canary::Canary;
use crate::drive::Drive;
use crate::files::Left;
use crate::fleet::Fleet;
use crate::hours;
use crate::mover;
use crate::opened::{Opened, to};
use crate::oracle;
use crate::process::Process;
use crate::server::{Owner, Server};
use crate::source::Network;
use crate::stage::{Slot, Troupe, WORLD};
use crate::world::{CLOCK_ZERO, Machine, Party, World};

/// Fill threads of a process.
const FILLERS: usize = 2;
const REPORT_MAX: Nanos = Nanos::seconds(5);
/// A drive that does not open within this is left out.
const OPEN_SILENCE_MAX: Nanos = Nanos::seconds(10);
const RETRY_MAX: Nanos = Nanos::seconds(5);

/// Often, and fast: a simulation is short.
const WALK_EVERY: Nanos = Nanos::seconds(20);
const PASS_MIN: Nanos = Nanos::seconds(15);
const SCRUB_RATE: BitsPerSecond = BitsPerSecond(40_000_000);

impl Machine {
    /// A machine that is off.
    pub(crate) fn new(
        index: usize,
        id: ApplianceId,
        drives: Vec<Rc<Drive>>,
        tells_ids: bool,
    ) -> Rc<Self> {
        Rc::new(Self {
            index,
            id,
            drives: RefCell::new(drives),
            retired: RefCell::default(),
            mounts: Cell::new(0),
            kept: RefCell::new(None),
            kept_rules: RefCell::default(),
            hours: RefCell::default(),
            claims: RefCell::default(),
            is_up: Cell::new(false),
            is_dark: Cell::new(false),
            signed: RefCell::default(),
            clock: Cell::new(CLOCK_ZERO),
            shown: RefCell::new(BTreeMap::new()),
            generation: Cell::new(Generation(0)),
            wants: RefCell::default(),
            tells_ids,
            kept_trust: RefCell::default(),
            trust: Cell::default(),
            troupe: Cell::new(WORLD),
        })
    }

    /// Starts its process, unless one runs or is about to.
    pub(crate) fn start(self: &Rc<Self>, fleet: &Rc<Fleet>) {
        if self.troupe.get() != WORLD {
            return;
        }
        self.is_dark.set(false);
        let troupe = Troupe(fleet.stage.number());
        self.troupe.set(troupe);
        fleet.count(|counts| counts.starts += 1);
        fleet.stage.spawn(troupe, begin(Rc::clone(fleet), Rc::clone(self), troupe));
    }

    /// Ends its process at once.
    pub(crate) fn kill(&self, fleet: &Fleet) {
        fleet.stage.say(|| format!("{} killed", self.id));
        self.end(fleet, true);
        for drive in self.drives.borrow().iter() {
            drive.left_alone();
        }
    }

    /// The power goes.
    pub(crate) fn cut(&self, fleet: &Fleet, names: Left, bytes: Left) {
        fleet.stage.say(|| format!("{} loses power: names {names:?}, bytes {bytes:?}", self.id));
        fleet.count(|counts| counts.power_cuts += 1);
        self.is_dark.set(true);
        self.end(fleet, false);
        for drive in self.drives.borrow().iter() {
            drive.cut(names, bytes);
        }
    }

    fn end(&self, fleet: &Fleet, resets: bool) {
        if let Some(process) = fleet.take(self) {
            for worker in process.workers.borrow().iter() {
                if resets {
                    worker.reset_all();
                }
            }
            process.workers.borrow_mut().clear();
        }
        let troupe = self.troupe.replace(WORLD);
        if troupe != WORLD {
            fleet.stage.kill(troupe);
        }
    }
}

async fn begin(fleet: Rc<Fleet>, machine: Rc<Machine>, troupe: Troupe) {
    let stage = fleet.stage.clone();
    let mut opened = Vec::new();
    let drives = machine.drives.borrow().clone();
    for (index, drive) in (0..).zip(&drives) {
        let slot = Slot::default();
        let (told, late, drive) = (slot.clone(), slot.clone(), Rc::clone(drive));
        let of = Rc::clone(&fleet);
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
    let process = Process::new(&fleet, &machine, troupe, opened);
    let count = if stage.one_in(3) { 2 } else { 1 };
    for _ in 0..count {
        let owner: Weak<dyn Owner> = Rc::<Process>::downgrade(&process);
        let place = (Rc::<World>::clone(&fleet), Rc::clone(&machine), troupe);
        let server = Server::new(owner, place, drives.len());
        process.workers.borrow_mut().push(server);
    }
    for drive in process.in_use() {
        drive.set_readers(process.readers(drive.index));
    }
    stage.say(|| format!("{} starts", machine.id));
    let kept = machine.kept.borrow().clone();
    if let Some(manifest) = kept {
        let whole = with_trust(&process, &manifest);
        stage.must(whole.is_some(), || {
            format!("{}: a manifest was kept before its keys", machine.id)
        });
        process.set_manifest(whole.unwrap_or(manifest)).await;
    }
    for drive in process.in_use() {
        let objects = drive.entries().into_iter();
        let extent =
            |(object, entry): (ObjectId, Entry)| (object, entry.extent(&object, drive.index));
        process.load(objects.map(extent)).await;
    }
    let is_held = |object: &ObjectId| process.locate(object).is_some();
    oracle::kept_what_was_shown(&fleet, &machine, &process.in_use(), is_held);
    for drive in process.in_use() {
        match drive.drive.list(layout::FILL).await {
            Ok(names) => names
                .iter()
                .filter_map(|name| PartId::parse(name))
                .for_each(|part| process.with(|holdings| holdings.load_part(part, drive.index))),
            Err(errno) => process.failed(&drive, &to("list", layout::FILL)(errno)).await,
        }
    }
    follow_rules(&process);
    fleet.put(&process);
    begin_tasks(&fleet, &process, u8::try_from(drives.len()).unwrap_or(u8::MAX));
}

/// A task for each thread of an appliance's storage.
fn begin_tasks(fleet: &Rc<Fleet>, process: &Rc<Process>, drives: u8) {
    let (stage, troupe) = (&fleet.stage, process.troupe);
    let of = Rc::clone(process);
    stage.spawn(troupe, async move { keeper::run(&*of).await });
    let of = Rc::clone(process);
    stage.spawn(troupe, async move { audit::run(&*of, drives, WALK_EVERY).await });
    let of = Rc::clone(process);
    stage.spawn(troupe, async move {
        upkeep::hours::run(&*of, || of.world.now(&of.machine).wall).await;
    });
    let of = Rc::clone(process);
    stage.spawn(troupe, async move { verify::run(&*of).await });
    stage.spawn(troupe, Rc::clone(process).watch_drives());
    for index in (0..drives).map(DriveIndex) {
        stage.spawn(troupe, absence::run(Rc::clone(process), index));
        let of = Rc::clone(process);
        stage.spawn(troupe, async move { keeper::tend(&*of, index).await });
        let of = Rc::clone(process);
        stage.spawn(troupe, async move { scrub::run(&*of, index, SCRUB_RATE, PASS_MIN).await });
    }
    for _ in 0..FILLERS {
        let (fleet, process) = (Rc::clone(fleet), Rc::clone(process));
        let network = Network { fleet, process: Rc::clone(&process) };
        stage.spawn(troupe, async move { filler::run(&*process, &network).await });
    }
    stage.spawn(troupe, mover::run(Rc::clone(process)));
    stage.spawn(troupe, link(Rc::clone(fleet), Rc::clone(process)));
}

/// Reports for ever, and takes manifests.
async fn link(fleet: Rc<Fleet>, process: Rc<Process>) {
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let (mut sequence, mut known, mut failures, mut trust) = (0, 0, 0, Generation(0));
    let mut interval = Nanos::millis(500);
    loop {
        let began = process.now();
        sequence += 1;
        let report = report(&process, sequence, known, trust);
        let truth = process.ask(|holdings| holdings.files_since(0)).map(|files| files.came);
        let (control, id) = (Rc::clone(&fleet.control), process.machine.id.clone());
        let answer = move || {
            let reply = control.report(&id, &report, truth.as_ref())?;
            Some((reply, control.hours(&id)))
        };
        let reply = fleet.ask(parties, REPORT_MAX, answer).await;
        let wait = if let Some((reply, told)) = reply {
            (known, interval, failures) = (reply.inventory, reply.interval, 0);
            trust = reply.trust;
            process.with(|holdings| holdings.set_siblings(reply.siblings.to_map()));
            take_rules(&process, reply.fill, told).await;
            if followed(&process).wants(trust) && !process.machine.tells_ids {
                take_trust(&fleet, &process).await;
            }
            if process.ask(Holdings::generation) < reply.generation {
                take_manifest(&fleet, &process).await;
            }
            interval
        } else {
            failures += 1;
            Nanos(interval.0 << failures.min(6)).min(RETRY_MAX)
        };
        fleet.stage.sleep_until(began + wait).await;
    }
}

/// Control told this with a report's answer: kept first, then in force.
async fn take_rules(process: &Rc<Process>, rules: Option<FillRules>, told: Option<hours::Told>) {
    let (Some(mut rules), Some(told)) = (rules, told) else { return };
    if process.ask(|holdings| holdings.rules().state) == rules.state {
        return;
    }
    if process.world.has(Canary::WrongZone) {
        let tokyo = Offset { from: UnixSeconds(0), ahead_s: 9 * 3600 };
        rules.hours.offsets = Arc::new([tokyo]);
    }
    if process.world.has(Canary::UrgentOpens) && !rules.urgent.is_empty() {
        rules.hours.windows = Windows::ALWAYS;
    }
    if process.world.has(Canary::UrgentWaits) {
        rules.urgent = Arc::default();
    }
    let stage = &process.world.stage;
    stage.sleep(stage.millis(1, 30)).await;
    *process.machine.kept_rules.borrow_mut() = Some((rules, told));
    stage.sleep(stage.millis(0, 2)).await;
    follow_rules(process);
}

/// What is kept is in force from now on.
fn follow_rules(process: &Process) {
    let (machine, world) = (&process.machine, &process.world);
    let kept = machine.kept_rules.borrow().clone();
    let (rules, told) = kept.unzip();
    let mut hours = machine.hours.borrow_mut();
    (hours.told, hours.since) = (told, world.stage.now());
    drop(hours);
    if let Some(rules) = rules {
        let now = world.now(machine);
        process.with(|holdings| holdings.set_rules(now.instant, now.wall, rules));
    }
}

/// Into the state directory first, where it survives, then in force with the manifest that is.
async fn take_trust(fleet: &Fleet, process: &Rc<Process>) {
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let control = Rc::clone(&fleet.control);
    let document = fleet.ask(parties, REPORT_MAX, move || control.trust_given()).await;
    let Some(document) = document else { return };
    let takes = followed(process).takes(document.trust.generation);
    if let Err(Older { offered, known }) = takes
        && !process.world.has(Canary::OlderTrust)
    {
        let id = &process.machine.id;
        fleet.stage.say(|| format!("{id} refuses trust document {offered}, having {known}"));
        return;
    }
    fleet.stage.sleep(fleet.stage.millis(1, 30)).await;
    *process.machine.kept_trust.borrow_mut() = Some(document.clone());
    fleet.stage.sleep(fleet.stage.millis(0, 2)).await;
    let manifest = process.ask(|holdings| holdings.manifest().cloned());
    if let Some(manifest) = manifest {
        let manifest = Arc::new(Manifest::clone(&manifest).with_trust(&document));
        process.with(|holdings| holdings.set_trust(manifest));
    }
}

fn followed(process: &Process) -> Followed {
    let in_force = process.ask(|holdings| holdings.manifest().map(|of| of.trust.generation));
    let newest = process.machine.kept_trust.borrow().as_ref().map(|of| of.trust.generation);
    Followed { in_force, newest: newest.unwrap_or_default() }
}

/// The manifest with the keys that count in it, if they are there.
fn with_trust(process: &Process, manifest: &Manifest) -> Option<Arc<Manifest>> {
    let kept = process.machine.kept_trust.borrow();
    trust::fill(manifest.clone(), kept.as_deref()).ok().map(Arc::new)
}

async fn take_manifest(fleet: &Fleet, process: &Rc<Process>) {
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let (control, id) = (Rc::clone(&fleet.control), process.machine.id.clone());
    let reads_trust = !process.machine.tells_ids;
    let ask = move || {
        let manifest = control.manifest(&id)?;
        match manifest.trust.is_apart && !reads_trust {
            // As it is filled in where it is signed.
            true => {
                let mut filled = Manifest::clone(&manifest).with_trust(&*control.trust()?);
                filled.trust.generation = Generation(0);
                Some(Arc::new(filled))
            }
            false => Some(manifest),
        }
    };
    let Some(manifest) = fleet.ask(parties, REPORT_MAX, ask).await else { return };
    if takes_manifest(manifest.generation, process.ask(Holdings::generation)).is_err() {
        return;
    }
    if followed(process).lacks(&manifest.trust) {
        take_trust(fleet, process).await;
    }
    let Some(whole) = with_trust(process, &manifest) else { return };
    if process.world.has(Canary::DeletesAhead) {
        delete_ahead(process, &whole).await;
    }
    // Into the state directory first, where it survives.
    fleet.stage.sleep(fleet.stage.millis(1, 30)).await;
    *process.machine.kept.borrow_mut() = Some(manifest);
    fleet.stage.sleep(fleet.stage.millis(0, 2)).await;
    process.set_manifest(whole).await;
}

/// A planted bug: what the next manifest does not want goes before that is in force.
async fn delete_ahead(process: &Rc<Process>, next: &Manifest) {
    let files = next.versions.iter().flat_map(|version| version.files.values());
    let wanted: BTreeSet<ObjectId> = files.map(|file| file.object).collect();
    let published = process.published().into_iter().map(|(object, _)| object);
    for object in published.filter(|object| !wanted.contains(object)) {
        keeper::evict(&**process, object).await;
    }
}

/// What it says that it holds: by number, as far as its release knows how to.
fn held(process: &Process, known: u64) -> (Delta, Option<FilesDelta>) {
    let by_number = || process.ask(|holdings| holdings.files_since(known));
    let files = by_number().filter(|_| !process.machine.tells_ids);
    let Some(mut files) = files else {
        return (process.ask(|holdings| holdings.inventory_since(known)), None);
    };
    let world = &process.world;
    let loses = world.has(Canary::LostDelta) || world.has(Canary::CheckUnread);
    if let Some(lost) = files.came.max().filter(|_| loses && files.from != 0) {
        files.came.remove(lost);
    }
    (Delta { from: files.to, to: files.to, ..Delta::default() }, Some(files))
}

fn report(process: &Process, sequence: u64, known: u64, offered: Generation) -> Report {
    let machine = &process.machine;
    let spaces = process.spaces();
    let drives = machine.drives.borrow();
    let uuids: BTreeSet<String> = drives.iter().map(|drive| drive.id.to_string()).collect();
    let hardware = Hardware { machine: machine.id.to_string(), drives: uuids };
    let connections: usize =
        process.workers.borrow().iter().map(|worker| worker.open_count().0).sum();
    let (inventory, files) = held(process, known);
    Report {
        start_id: process.start_id,
        sequence,
        base_url: format!("https://{}", machine.id),
        peer_address: Some(machine.id.to_string()),
        generation: process.ask(Holdings::generation),
        trust: Some(followed(process).told(offered, true)).filter(|_| !machine.tells_ids),
        served: process.served(),
        load: Load {
            connections: u64::try_from(connections).unwrap_or(0),
            connections_max: 12,
            ..Load::default()
        },
        fill: BitsPerSecond(process.fetched.take() * BLOCK_LEN.0 * 16),
        serving: true,
        hardware,
        drives_in_use: spaces.len(),
        drives_set_aside: drives.len() - spaces.len(),
        usable: Bytes(spaces.iter().map(|space| space.capacity.0).sum()),
        inventory,
        came: files.as_ref().map_or_else(Check::default, |files| Check::of_files(&files.came)),
        files,
        ..Report::default()
    }
}

//! One simulation from its seed to its verdict.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use director::{Change, Desired, Policy, Reason, Registered, Withdrawal};
use holdings::Holdings;
use model::extent::{DriveIndex, FileName};
use model::id::{ApplianceId, SiteId};
use model::manifest::TokenKey;
use model::topology::{Appliance, Site, Weight};
use model::units::{Instant, Nanos};
use model::view::Health;
use store::layout;
use store::unit;

use crate::canary::Canary;
use crate::control::Control;
use crate::drive::Drive;
use crate::faults;
use crate::fleet::Fleet;
use crate::front::Front;
use crate::hours;
use crate::opened;
use crate::process::Process;
use crate::server::Owner as _;
use crate::stage::{Stage, Troupe, WORLD};
use crate::stock;
use crate::viewer;
use crate::wishes;
use crate::world::{Counts, FILL, Machine, Net, OriginMood, World};

/// What came of a seed.
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    /// What was not as it must be, and when.
    pub(crate) failure: Option<String>,
    pub(crate) counts: Counts,
    pub(crate) steps: u64,
    /// Simulated.
    pub(crate) took: Nanos,
    /// Two runs that have the same did the same.
    pub(crate) digest: u64,
    pub(crate) trace: Vec<String>,
}

const DRIVES_MAX: u8 = 3;
const APPLIANCES_MAX: u64 = 40;
/// One fleet in so many has up to as many appliances.
const LARGE_ONE_IN: u64 = 25;
const SITES_MAX: u64 = 8;
/// Faults come for so long.
const TROUBLE: (u64, u64) = (15_000, 40_000);
/// After that, all must have come right within this.
const CALM_MAX: Nanos = Nanos::seconds(400);
/// By how much a worker's state, written down, may differ: counters get longer.
const STATE_LEN_NOISE: usize = 4000;

pub(crate) fn play(seed: u64, canary: Option<Canary>, trace: bool) -> Outcome {
    let stage = Stage::new(seed, trace);
    let fleet = build(&stage, canary);
    fleet.withdraws.set(seed % 4 == 3);
    let played = catch_unwind(AssertUnwindSafe(|| run(&fleet)));
    if let Err(panic) = played {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        stage.fail(format!("an assertion failed: {}", text.unwrap_or_default()));
    }
    let now = stage.now();
    let at = format!(" (at {}.{:03} s)", now.0 / 1_000_000_000, now.0 / 1_000_000 % 1000);
    let outcome = Outcome {
        seed,
        failure: stage.failure().map(|what| what + &at),
        counts: *fleet.counts.borrow(),
        steps: stage.steps(),
        took: now.since(Instant(0)),
        digest: stage.digest(),
        trace: stage.lines(),
    };
    // Everybody holds everybody: taken apart, or it stays in memory.
    let apart = catch_unwind(AssertUnwindSafe(|| take_apart(&fleet)));
    drop(apart);
    outcome
}

fn take_apart(fleet: &Rc<Fleet>) {
    for machine in fleet.machines.borrow().iter() {
        machine.kill(fleet);
    }
    fleet.stage.clear();
    for machine in fleet.machines.borrow().iter() {
        machine.retired.borrow_mut().clear();
    }
    fleet.machines.borrow_mut().clear();
}

fn run(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    fleet.control.start();
    fleet.fronts.iter().for_each(Front::start);
    for machine in fleet.machines.borrow().iter() {
        machine.start(fleet);
    }
    let crowd = Troupe(stage.number());
    for number in 0..viewer::VIEWERS {
        stage.spawn(crowd, viewer::run(Rc::clone(fleet), number));
    }
    let end = Instant(0) + stage.millis(TROUBLE.0, TROUBLE.1);
    stage.spawn(WORLD, faults::run(Rc::clone(fleet), end));
    if fleet.withdraws.get() {
        stage.spawn(WORLD, withdraw(Rc::clone(fleet), end));
    }
    stage.run_until(end);
    // What was to be put right by itself is: a process that was to start, a drive that hung.
    stage.run_until(end + Nanos::seconds(13));
    faults::heal(fleet);
    let most = stage.now() + CALM_MAX;
    // More than one look: a drive that was mounted anew is back within some seconds.
    let mut looks = 0;
    while stage.failure().is_none() && looks < 3 {
        let wrong = [what_is_wrong(fleet), wishes::what_is_wrong(fleet)].concat();
        looks = if wrong.is_empty() { looks + 1 } else { 0 };
        if most <= stage.now() {
            return stage.fail(format!("not all has come right: {wrong}"));
        }
        stage.run_until(stage.now() + Nanos::seconds(2));
    }
    stage.kill(crowd);
    finish(fleet);
}

/// Nobody watches any more: everything is asked for, and then nothing may be left over; asked for
/// again, it takes no more memory than before.
fn finish(fleet: &Rc<Fleet>) {
    (0..3).for_each(|_| ask_for_all(fleet));
    let published = fleet.counts.borrow().published;
    let before = state_lens(fleet);
    (0..3).for_each(|_| ask_for_all(fleet));
    let after = state_lens(fleet);
    if published != fleet.counts.borrow().published {
        return; // Something rotten was found and filled again.
    }
    let both =
        before.iter().zip(&after).filter_map(|(before, after)| Some(((*before)?, (*after)?)));
    for (before, after) in both {
        fleet.stage.must(after <= before + STATE_LEN_NOISE, || {
            format!("an idle worker's state grew from {before} to {after}")
        });
    }
}

fn ask_for_all(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    let asking = Troupe(stage.number());
    for machine in fleet.machines.borrow().iter() {
        stage.spawn(asking, viewer::ask_for_all(Rc::clone(fleet), Rc::clone(machine)));
    }
    stage.run_until(stage.now() + Nanos::seconds(10));
}

/// How long the state of each worker is, written down. None has anything left to do.
fn state_lens(fleet: &Rc<Fleet>) -> Vec<Option<usize>> {
    let (stage, mut lens) = (&fleet.stage, Vec::new());
    if stage.failure().is_some() {
        return lens;
    }
    for machine in fleet.machines.borrow().iter() {
        let Some(process) = fleet.process(machine) else {
            stage.fail(format!("{} does not run", machine.id));
            return lens;
        };
        for worker in process.workers.borrow().iter() {
            let (connections, asked) = worker.open_count();
            stage.must(connections == 0 && asked == 0, || {
                format!("{}: {connections} connections, {asked} reads are left", machine.id)
            });
            lens.push(worker.state_len());
        }
    }
    lens
}

/// Nothing, if every appliance holds its manifest, its files are right, and control knows.
fn what_is_wrong(fleet: &Rc<Fleet>) -> String {
    let control = &fleet.control;
    if 0 < control.unsigned() {
        return format!("{} receipts are missing", control.unsigned());
    }
    if let Some(front) = fleet.fronts.iter().find(|front| !front.is_up_to_date()) {
        return format!("front {} does not follow control", front.number);
    }
    for machine in fleet.machines.borrow().iter() {
        let id = &machine.id;
        let Some(process) = fleet.process(machine) else { return format!("{id} does not run") };
        let (has, wanted) = (process.ask(Holdings::generation), control.generation(id));
        if wanted != Some(has) {
            return format!("{id} follows {has}, and control has {wanted:?}");
        }
        let refuses =
            process.ask(|holdings| holdings.manifest().map(|of| of.trust.revoked.clone()));
        if refuses.is_some_and(|of| of != *control.revoked()) {
            return format!("{id} does not know whom to refuse");
        }
        let (lacks, report) =
            (process.lacks().len(), process.ask(|holdings| holdings.plan_report().clone()));
        let no_room = usize::try_from(report.objects_without_room).unwrap_or(0);
        if no_room < lacks {
            return format!("{id} lacks {lacks} objects, {no_room} for want of room");
        }
        let left = process.leftovers();
        let busy: Vec<_> = process.ask(|holdings| holdings.busy().iter().copied().collect());
        if 0 < left || !busy.is_empty() {
            return format!("{id} has {left} objects or parts too many, works on {busy:?}");
        }
        if let Some(index) = left_aside(fleet, machine, &process) {
            return format!("{id}: drive {index} is good, and not used again");
        }
        if process.in_use().is_empty() {
            if control.health(id) != Some(Health::Unhealthy) {
                return format!("control does not know that {id} has no drive");
            }
        } else if lacks == 0 && !control.knows_complete(id) {
            return format!("control does not know that {id} holds its manifest");
        }
        for (object, extent) in process.published() {
            let Some(drive) = machine.drive(extent.drive.as_usize()) else { continue };
            let right = fleet.object(&object);
            let is_right = drive.with_files(|files| {
                let file = files.find(&extent.file.0)?;
                let right = right?;
                let is_readable = !files.is_unreadable(file);
                let bytes = files.read(file, extent.offset.as_usize(), right.bytes.len());
                Some(is_readable && bytes == right.bytes)
            });
            if is_right != Some(true) {
                return format!("{id}: the file of {object} is wrong");
            }
        }
        let held = (0..DRIVES_MAX)
            .map(DriveIndex)
            .find(|index| process.aside(*index).is_some() && process.is_held(*index));
        if let Some(index) = held {
            return format!("{id}: drive {index} is set aside, and somebody holds it");
        }
        let spare = spare_files(machine, &process);
        if !spare.is_empty() {
            return format!("{id} has files that nobody knows of: {}", spare.join(", "));
        }
    }
    String::new()
}

/// A drive that was away when all was put right, and is still. Excused is one with more bad places
/// than are borne; one that was set aside later waits for an operator.
fn left_aside(fleet: &World, machine: &Machine, process: &Process) -> Option<DriveIndex> {
    let drives = machine.drives.borrow();
    let is_left = |(index, drive): &(DriveIndex, &Rc<Drive>)| {
        let is_away = process.drive(*index).is_none();
        let since = process.aside(*index).unwrap_or_default();
        let unreadable = |file: &FileName| {
            drive.with_files(|files| files.find(&file.0).is_some_and(|id| files.is_unreadable(id)))
        };
        let files: BTreeSet<FileName> =
            opened::places(drive).into_iter().map(|(_, file, _)| file).collect();
        let bad = files.iter().filter(|file| unreadable(file));
        is_away
            && since < fleet.calm_from.get()
            && bad.count() <= opened::CONDITION.health.objects_max
    };
    (0..).map(DriveIndex).zip(drives.iter()).find(is_left).map(|(index, _)| index)
}

/// Files of objects, units and parts on its drives that its index does not speak of. One that was
/// set aside after all was put right keeps what is on it until somebody looks after it.
fn spare_files(machine: &Machine, process: &Process) -> Vec<String> {
    let drives = machine.drives.borrow();
    let spare = |(index, drive): (u8, &Rc<Drive>)| {
        let parts = drive.with_files(|files| files.list(layout::FILL));
        let here = DriveIndex(index);
        let known: BTreeSet<FileName> = process
            .published()
            .into_iter()
            .filter_map(|(_, extent)| (extent.drive == here).then_some(extent.file))
            .collect();
        let objects = opened::names(drive).into_iter().map(|object| layout::object_file(&object));
        let units = opened::units(drive).into_iter().map(|unit| unit::unit_file(&unit));
        let is_later = |file: &FileName| drive.with_files(|files| opened::is_later(files, file));
        // A unit of a later version stays for that version, whatever is held in it.
        let unknown = objects.chain(units).filter(|file| !known.contains(file) && !is_later(file));
        let names = unknown.map(|file| file.0.to_string()).chain(parts);
        names.map(|name| format!("{name} on drive {index}")).collect::<Vec<_>>()
    };
    let in_use = |(index, _): &(u8, &Rc<Drive>)| process.drive(DriveIndex(*index)).is_some();
    (0..).zip(drives.iter()).filter(in_use).flat_map(spare).collect()
}

fn build(stage: &Stage, canary: Option<Canary>) -> Rc<Fleet> {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("32 bytes are a seed");
    let world = Rc::new(World {
        stage: stage.clone(),
        canary,
        first_second: hours::first_second(stage),
        has_hours: Cell::new(stage.one_in(2)),
        stays_closed: stage.one_in(3),
        files_of: RefCell::default(),
        objects: RefCell::default(),
        machines: RefCell::default(),
        net: Net::default().into(),
        origin: Cell::new(OriginMood::Well),
        counts: Counts::default().into(),
        is_calm: Cell::new(false),
        calm_from: Cell::new(Instant(0)),
        key,
        versions: Cell::new(0),
        next_file: Cell::new(0),
        unverified: RefCell::default(),
        withdraws: Cell::new(false),
    });
    let mut desired = Desired {
        policy: Policy { copies: 2, versions_kept: 2, fill: FILL, ..Policy::default() },
        token_keys: vec![TokenKey {
            kid: "k1".to_owned(),
            public_key: world.key.public_key().as_ref().try_into().expect("of 32 bytes"),
        }],
        ..Desired::default()
    };
    // Large fleets take long, and most of what goes wrong goes wrong in small ones too.
    let most = if stage.one_in(LARGE_ONE_IN) { APPLIANCES_MAX } else { 4 };
    let count = stage.between(2, most);
    let sites = stage.between(1, SITES_MAX.min(count));
    for number in 0..count {
        // The first site has the most.
        let place = if number < sites { number } else { stage.below(sites) / 2 };
        let name = char::from(b'a' + u8::try_from(place).expect("there are few"));
        let site: SiteId = name.to_string().parse().expect("a name");
        let prefixes = vec![format!("10.{place}.0.0/16").parse().expect("a range")];
        let mut known = Site::new(site.clone(), prefixes);
        known.fill_cluster = stage.one_in(2).then(|| "f".parse().expect("a name"));
        if number < sites && world.has_hours.get() {
            hours::draw(stage, world.wall(), &mut known);
        }
        Arc::make_mut(&mut desired.sites).get_or_insert(&site, || known);
        let id: ApplianceId = format!("{name}{number}").parse().expect("a name");
        let appliance = Appliance::new(id.clone(), site, Weight::ONE);
        Arc::make_mut(&mut desired.appliances).insert(id.clone(), Registered::new(appliance));
        let drives =
            (0..stage.between(1, DRIVES_MAX.into())).map(|_| stock::drive(stage)).collect();
        let index = world.machines.borrow().len();
        let machine = Machine::new(index, id, drives, stage.one_in(5));
        world.machines.borrow_mut().push(machine);
    }
    let control = Control::new(&world, desired);
    let fleet = Fleet::new(world, control);
    for _ in 0..2 {
        stock::new_version(&fleet);
    }
    fleet
}

/// Now and then a version is taken down, in one simulation of four.
async fn withdraw(fleet: Rc<Fleet>, until: Instant) {
    let stage = fleet.stage.clone();
    for number in 1.. {
        stage.sleep(stage.millis(2000, 12_000)).await;
        if until <= stage.now() {
            return;
        }
        let control = &fleet.control;
        let versions = control.versions();
        let Some((version, asset)) = stage.pick(&versions).filter(|_| control.is_up()) else {
            continue;
        };
        stage.say(|| format!("{version} is withdrawn"));
        fleet.count(|counts| counts.withdrawals += 1);
        let receipts = control.appliances().into_iter().map(|id| (id, None)).collect();
        let versions = Arc::new([(version.clone(), asset.clone())].into());
        let (at, reason) = (fleet.wall(), Reason::Operator);
        control.change(Change::Withdrawn(Withdrawal {
            id: number,
            at,
            reason,
            versions,
            receipts,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_plays_the_same_to_the_last_step() {
        for seed in [3, 4] {
            let [first, again] = [(), ()].map(|()| play(seed, None, false));
            assert_eq!((first.digest, first.steps), (again.digest, again.steps));
            assert_eq!(first.failure, None);
            // Looking on changes nothing.
            let traced = play(seed, None, true);
            assert_eq!((traced.digest, traced.trace.is_empty()), (first.digest, false));
        }
        assert_ne!(play(3, None, false).digest, play(4, None, false).digest);
    }
}

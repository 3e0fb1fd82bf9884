//! What goes wrong, drawn from the seed; and how it is all put right in the end.

use std::rc::Rc;

use director::{Change, Policy};
use model::hours::Windows;
use model::topology::Site;
use model::units::{Bytes, Instant, Nanos};
use store::{layout, unit};

use crate::drive::{Drive, Mood};
use crate::files::Left;
use crate::fleet::{FRONTS, Fleet};
use crate::front::Front;
use crate::hours;
use crate::opened;
use crate::stage::{Stage, WORLD};
use crate::stock;
use crate::viewer::VIEWERS;
use crate::wishes;
use crate::world::{CLOCK_ZERO, FILL, Machine, OriginMood, Party, World};

/// Makes faults until then.
pub(crate) async fn run(fleet: Rc<Fleet>, until: Instant) {
    let stage = fleet.stage.clone();
    // Some runs have few faults, some many.
    let (least, most) = if stage.one_in(3) { (2000, 8000) } else { (200, 3000) };
    while stage.now() < until {
        stage.sleep(stage.millis(least, most)).await;
        if until <= stage.now() {
            return;
        }
        fleet.count(|counts| counts.faults += 1);
        one(&fleet);
    }
}

fn one(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    let machines = fleet.machines.borrow().clone();
    let Some(machine) = stage.pick(&machines) else { return };
    let drives = machine.drives.borrow().clone();
    let Some(drive) = stage.pick(&drives) else { return };
    match stage.below(29) {
        0 => kill(fleet, machine),
        1..=3 => cut(fleet, machine),
        4 => mood(fleet, machine, drive, Mood::Slow(stage.millis(20, 3000))),
        5 => mood(fleet, machine, drive, Mood::Hung),
        6 => mood(fleet, machine, drive, Mood::Gone),
        7 => mood(fleet, machine, drive, Mood::WritesFail),
        8 | 9 => rot(fleet, machine, drive),
        10 => spoil(fleet, machine, drive),
        11 => lie(fleet, machine, drive),
        12 | 13 => part(fleet, machine),
        14 => lose(fleet),
        15 => origin(fleet),
        16 => step_clock(fleet, machine),
        17 if stage.one_in(2) => kill_front(fleet),
        17 => kill_control(fleet),
        18 if stage.one_in(3) => stock::revoke(fleet),
        18 => stock::new_version(fleet),
        19 | 20 => pull(fleet, machine, drive),
        21 | 22 => miswrite(fleet, machine, drive),
        23 => write_later(fleet, machine, drive),
        25 => change_hours(fleet),
        26 => wishes::urgent(fleet),
        27 | 28 => wishes::change(fleet),
        24 if stage.one_in(2) => fleet.control.forecast(),
        _ => {
            let copies = u32::try_from(stage.between(1, 3)).unwrap_or(1);
            let versions_kept = u32::try_from(stage.between(1, 3)).unwrap_or(1);
            stage.say(|| format!("policy: {copies} copies, {versions_kept} versions"));
            fleet.control.change(Change::Policy(Policy {
                copies,
                versions_kept,
                fill: FILL,
                ..Policy::default()
            }));
        }
    }
}

fn later(stage: &Stage, span: Nanos, call: impl FnOnce() + 'static) {
    stage.at(WORLD, stage.now() + span, call);
}

fn kill(fleet: &Rc<Fleet>, machine: &Rc<Machine>) {
    machine.kill(fleet);
    restart(fleet, machine);
}

fn cut(fleet: &Rc<Fleet>, machine: &Rc<Machine>) {
    let left = [Left::Nothing, Left::All, Left::Some, Left::Some];
    let names = fleet.stage.pick(&left).copied().unwrap_or(Left::Some);
    let bytes = fleet.stage.pick(&left).copied().unwrap_or(Left::Some);
    machine.cut(fleet, names, bytes);
    restart(fleet, machine);
}

fn restart(fleet: &Rc<Fleet>, machine: &Rc<Machine>) {
    let (of, back) = (Rc::clone(fleet), Rc::clone(machine));
    later(&fleet.stage, fleet.stage.millis(50, 6000), move || back.start(&of));
}

fn mood(fleet: &Rc<Fleet>, machine: &Rc<Machine>, drive: &Rc<Drive>, mood: Mood) {
    let stage = &fleet.stage;
    stage.say(|| format!("{}: drive {} is {mood:?}", machine.id, drive.id));
    drive.set_mood(mood);
    let (back, machine, touched) = (Rc::clone(drive), Rc::clone(machine), stage.one_in(2));
    later(stage, stage.millis(300, 12_000), move || {
        back.set_mood(Mood::Well);
        // Somebody mounts it anew, or it is left as it is.
        machine.mounts.set(machine.mounts.get() + u64::from(touched));
    });
}

/// A drive is pulled. Some time later it is there again with all that was on it, or an empty one is
/// in its place.
fn pull(fleet: &Rc<Fleet>, machine: &Rc<Machine>, drive: &Rc<Drive>) {
    let stage = &fleet.stage;
    let is_replaced = stage.one_in(2);
    stage.say(|| format!("{}: drive {} is pulled", machine.id, drive.id));
    drive.set_mood(Mood::Gone);
    let (of, machine, old) = (Rc::clone(fleet), Rc::clone(machine), Rc::clone(drive));
    later(stage, stage.millis(300, 8000), move || {
        machine.mounts.set(machine.mounts.get() + 1);
        let mut drives = machine.drives.borrow_mut();
        match drives.iter_mut().find(|drive| Rc::ptr_eq(drive, &old)) {
            Some(place) if is_replaced => {
                of.count(|counts| counts.drives_replaced += 1);
                old.retire();
                *place = stock::drive(&of.stage);
                of.stage.say(|| format!("{}: {} is in its place", machine.id, place.id));
                machine.retired.borrow_mut().push(old);
            }
            _ => old.set_mood(Mood::Well),
        }
    });
}

fn rot(fleet: &World, machine: &Machine, drive: &Drive) {
    let stage = &fleet.stage;
    let objects = opened::places(drive);
    let bit = u32::try_from(stage.below(8)).unwrap_or(0);
    if stage.one_in(6) {
        let name = if stage.one_in(2) { layout::LOG } else { layout::SNAPSHOT };
        let len = drive.with_files(|files| files.find(name).map_or(0, |file| files.len(file)));
        let at = Bytes(stage.below(Bytes::of(len).0)).as_usize();
        stage.say(|| format!("{}: {name} rots at {at}", machine.id));
        drive.with_files(|files| files.rot(name, at, bit));
        drive.doubt();
        return;
    }
    let Some((object, file, base)) = stage.pick(&objects).cloned() else { return };
    let Some(len) = fleet.object(&object).map(|object| object.len()) else { return };
    // Anywhere in the file from there: also in tables, in what is behind it, in the footer.
    let file_len = drive.with_files(|files| files.find(&file.0).map_or(0, |id| files.len(id)));
    let rest = Bytes::of(file_len).saturating_sub(base);
    let at = Bytes(stage.below(if stage.one_in(4) { rest.0 } else { len.0 })).as_usize();
    if len <= Bytes::of(at) {
        drive.doubt();
    }
    stage.say(|| format!("{}: {object} rots at {at}", machine.id));
    drive.rot(object, &file.0, base.as_usize(), at, bit);
}

fn spoil(fleet: &World, machine: &Machine, drive: &Drive) {
    let objects = opened::places(drive);
    let Some((object, file, _)) = fleet.stage.pick(&objects).cloned() else { return };
    fleet.stage.say(|| format!("{}: {object} cannot be read any more", machine.id));
    drive.with_files(|files| files.spoil(&file.0));
}

/// A drive that lies about flushes, found out by a power cut.
fn lie(fleet: &Rc<Fleet>, machine: &Rc<Machine>, drive: &Rc<Drive>) {
    fleet.stage.say(|| format!("{}: drive {} lies about flushes", machine.id, drive.id));
    drive.set_lies(true);
    let (of, drive, machine) = (Rc::clone(fleet), Rc::clone(drive), Rc::clone(machine));
    later(&fleet.stage, fleet.stage.millis(500, 6000), move || {
        cut(&of, &machine);
        drive.set_lies(false);
    });
}

/// A drive that writes something else than it is given, for a while.
fn miswrite(fleet: &World, machine: &Machine, drive: &Rc<Drive>) {
    let stage = &fleet.stage;
    stage.say(|| format!("{}: drive {} writes wrong", machine.id, drive.id));
    drive.set_miswrites(true);
    let drive = Rc::clone(drive);
    later(stage, stage.millis(2000, 12_000), move || drive.set_miswrites(false));
}

/// A later version ran here for a while, and wrote a unit.
fn write_later(fleet: &World, machine: &Machine, drive: &Drive) {
    let Some(unit) = fleet.stage.pick(&opened::units(drive)).copied() else { return };
    if drive.with_files(|files| opened::write_later(files, unit)) {
        let file = unit::unit_file(&unit);
        fleet.stage.say(|| format!("{}: a later version wrote {}", machine.id, file.0));
    }
}

fn part(fleet: &Rc<Fleet>, machine: &Machine) {
    let stage = &fleet.stage;
    let me = Party::Machine(machine.index);
    let (me, other) = match stage.below(5) {
        0 => (me, Party::Control),
        1 => (me, Party::Origin),
        2 => (me, Party::Viewer(stage.below(VIEWERS))),
        3 => (Party::Front(stage.below(FRONTS)), Party::Control),
        _ => (me, Party::Machine(Bytes(stage.below(3)).as_usize())),
    };
    stage.say(|| format!("nothing passes between {me:?} and {other:?}"));
    fleet.net.borrow_mut().cut.insert((me, other));
    let of = Rc::clone(fleet);
    later(stage, stage.millis(300, 12_000), move || {
        of.net.borrow_mut().cut.remove(&(me, other));
    });
}

fn lose(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    let (lost, late) = (stage.between(2, 20), stage.between(2, 20));
    stage.say(|| format!("one message in {lost} is lost, one in {late} is late"));
    (fleet.net.borrow_mut().lost_one_in, fleet.net.borrow_mut().late_one_in) = (lost, late);
    let of = Rc::clone(fleet);
    later(stage, stage.millis(500, 8000), move || {
        (of.net.borrow_mut().lost_one_in, of.net.borrow_mut().late_one_in) = (0, 0);
    });
}

fn origin(fleet: &Rc<Fleet>) {
    let stage = &fleet.stage;
    let moods = [OriginMood::Down, OriginMood::Slow, OriginMood::Wrong, OriginMood::BreaksOff];
    let mood = stage.pick(&moods).copied().unwrap_or_default();
    stage.say(|| format!("the origin is {mood:?}"));
    fleet.origin.set(mood);
    let of = Rc::clone(fleet);
    later(stage, stage.millis(500, 10_000), move || of.origin.set(OriginMood::Well));
}

fn step_clock(fleet: &World, machine: &Machine) {
    let stage = &fleet.stage;
    let clock = CLOCK_ZERO - 7200 + stage.below(14_400);
    stage.say(|| format!("{}: the clock steps to {clock} of {CLOCK_ZERO}", machine.id));
    machine.clock.set(clock);
    machine.hours.borrow_mut().since = stage.now();
}

/// An operator changes the hours of a site.
fn change_hours(fleet: &Rc<Fleet>) {
    let sites = fleet.control.sites();
    if let Some(mut site) = fleet.stage.pick(&sites).filter(|_| fleet.has_hours.get()).cloned() {
        hours::draw(&fleet.stage, fleet.wall(), &mut site);
        put_hours(fleet, site);
    }
}

/// Of each site fill is open before long, and stays open; or it stays closed, and all is urgent.
fn open_hours(fleet: &Rc<Fleet>) {
    for mut site in fleet.control.sites() {
        if site.fill_windows.is_some() || site.fill_paused_until.is_some() {
            match fleet.stays_closed {
                true => hours::close(fleet.wall(), &mut site),
                false => hours::open_soon(&fleet.stage, fleet.wall(), &mut site),
            }
            put_hours(fleet, site);
        }
    }
    if fleet.stays_closed {
        wishes::all_urgent(fleet);
    }
}

fn put_hours(fleet: &Rc<Fleet>, site: Site) {
    fleet.stage.say(|| {
        let (id, zone, windows) = (&site.id, &site.time_zone, site.fill_windows);
        let windows = windows.unwrap_or(Windows::ALWAYS);
        format!("{id} fills {windows} in {zone}, paused until {:?}", site.fill_paused_until)
    });
    fleet.control.change(Change::Site(site));
}

fn kill_control(fleet: &Rc<Fleet>) {
    if !fleet.control.is_up() {
        return;
    }
    fleet.control.kill();
    let control = Rc::clone(&fleet.control);
    later(&fleet.stage, fleet.stage.millis(20, 6000), move || {
        if !control.is_up() {
            control.start();
        }
    });
}

fn kill_front(fleet: &Rc<Fleet>) {
    let up: Vec<_> = fleet.fronts.iter().filter(|front| front.is_up()).cloned().collect();
    let Some(front) = fleet.stage.pick(&up).cloned() else { return };
    front.kill();
    later(&fleet.stage, fleet.stage.millis(20, 6000), move || {
        if !front.is_up() {
            front.start();
        }
    });
}

/// All is put right: what a good operator does, and the end of bad weather.
pub(crate) fn heal(fleet: &Rc<Fleet>) {
    fleet.stage.say(|| "all is put right".to_owned());
    fleet.is_calm.set(true);
    fleet.calm_from.set(fleet.stage.now());
    *fleet.net.borrow_mut() = crate::world::Net::default();
    fleet.origin.set(OriginMood::Well);
    if !fleet.control.is_up() {
        fleet.control.start();
    }
    fleet.control.force_plan();
    open_hours(fleet);
    wishes::settle(fleet);
    fleet.fronts.iter().filter(|front| !front.is_up()).for_each(Front::start);
    for machine in fleet.machines.borrow().iter() {
        machine.clock.set(CLOCK_ZERO);
        machine.hours.borrow_mut().since = fleet.stage.now();
        for drive in machine.drives.borrow().iter() {
            drive.set_mood(Mood::Well);
            drive.set_lies(false);
            drive.set_miswrites(false);
        }
        let has_aside = fleet
            .process(machine)
            .is_none_or(|process| process.in_use().len() < machine.drives.borrow().len());
        if has_aside && fleet.stage.one_in(2) {
            machine.kill(fleet);
        }
        // Or each is mounted anew, and comes back without a restart.
        machine.mounts.set(machine.mounts.get() + 1);
        machine.start(fleet);
    }
}

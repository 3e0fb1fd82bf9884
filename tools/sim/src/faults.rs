//! What goes wrong, drawn from the seed; and how it is all put right in the end.

use std::rc::Rc;

use director::{Change, Policy};
use model::units::{Bytes, Instant, Nanos};
use store::{layout, unit};

use crate::drive::{Drive, Mood};
use crate::files::Left;
use crate::opened;
use crate::scenario;
use crate::stage::{Stage, WORLD};
use crate::world::{CLOCK_ZERO, Machine, OriginMood, Party, World};

/// Makes faults until then.
pub(crate) async fn run(world: Rc<World>, until: Instant) {
    let stage = world.stage.clone();
    // Some runs have few faults, some many.
    let (least, most) = if stage.one_in(3) { (2000, 8000) } else { (200, 3000) };
    while stage.now() < until {
        stage.sleep(stage.millis(least, most)).await;
        if until <= stage.now() {
            return;
        }
        world.count(|counts| counts.faults += 1);
        one(&world);
    }
}

fn one(world: &Rc<World>) {
    let stage = &world.stage;
    let machines = world.machines.borrow().clone();
    let Some(machine) = stage.pick(&machines) else { return };
    let drives = machine.drives.borrow().clone();
    let Some(drive) = stage.pick(&drives) else { return };
    match stage.below(25) {
        0 => kill(world, machine),
        1..=3 => cut(world, machine),
        4 => mood(world, machine, drive, Mood::Slow(stage.millis(20, 3000))),
        5 => mood(world, machine, drive, Mood::Hung),
        6 => mood(world, machine, drive, Mood::Gone),
        7 => mood(world, machine, drive, Mood::WritesFail),
        8 | 9 => rot(world, machine, drive),
        10 => spoil(world, machine, drive),
        11 => lie(world, machine, drive),
        12 | 13 => part(world, machine),
        14 => lose(world),
        15 => origin(world),
        16 => step_clock(world, machine),
        17 => kill_control(world),
        18 => scenario::new_version(world),
        19 | 20 => pull(world, machine, drive),
        21 | 22 => miswrite(world, machine, drive),
        23 => write_later(world, machine, drive),
        _ => {
            let copies = u32::try_from(stage.between(1, 3)).unwrap_or(1);
            let versions_kept = u32::try_from(stage.between(1, 3)).unwrap_or(1);
            stage.say(|| format!("policy: {copies} copies, {versions_kept} versions"));
            world.control().change(Change::Policy(Policy { copies, versions_kept }));
        }
    }
}

fn later(stage: &Stage, span: Nanos, call: impl FnOnce() + 'static) {
    stage.at(WORLD, stage.now() + span, call);
}

fn kill(world: &Rc<World>, machine: &Rc<Machine>) {
    machine.kill(world);
    restart(world, machine);
}

fn cut(world: &Rc<World>, machine: &Rc<Machine>) {
    let left = [Left::Nothing, Left::All, Left::Some, Left::Some];
    let names = world.stage.pick(&left).copied().unwrap_or(Left::Some);
    let bytes = world.stage.pick(&left).copied().unwrap_or(Left::Some);
    machine.cut(world, names, bytes);
    restart(world, machine);
}

fn restart(world: &Rc<World>, machine: &Rc<Machine>) {
    let (of, back) = (Rc::clone(world), Rc::clone(machine));
    later(&world.stage, world.stage.millis(50, 6000), move || back.start(&of));
}

fn mood(world: &Rc<World>, machine: &Rc<Machine>, drive: &Rc<Drive>, mood: Mood) {
    let stage = &world.stage;
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
fn pull(world: &Rc<World>, machine: &Rc<Machine>, drive: &Rc<Drive>) {
    let stage = &world.stage;
    let is_replaced = stage.one_in(2);
    stage.say(|| format!("{}: drive {} is pulled", machine.id, drive.id));
    drive.set_mood(Mood::Gone);
    let (of, machine, old) = (Rc::clone(world), Rc::clone(machine), Rc::clone(drive));
    later(stage, stage.millis(300, 8000), move || {
        machine.mounts.set(machine.mounts.get() + 1);
        let mut drives = machine.drives.borrow_mut();
        match drives.iter_mut().find(|drive| Rc::ptr_eq(drive, &old)) {
            Some(place) if is_replaced => {
                of.count(|counts| counts.replaced += 1);
                old.retire();
                *place = scenario::drive(&of.stage);
                of.stage.say(|| format!("{}: {} is in its place", machine.id, place.id));
                machine.retired.borrow_mut().push(old);
            }
            _ => old.set_mood(Mood::Well),
        }
    });
}

fn rot(world: &World, machine: &Machine, drive: &Drive) {
    let stage = &world.stage;
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
    let Some(len) = world.object(&object).map(|object| object.len()) else { return };
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

fn spoil(world: &World, machine: &Machine, drive: &Drive) {
    let objects = opened::places(drive);
    let Some((object, file, _)) = world.stage.pick(&objects).cloned() else { return };
    world.stage.say(|| format!("{}: {object} cannot be read any more", machine.id));
    drive.with_files(|files| files.spoil(&file.0));
}

/// A drive that lies about flushes, found out by a power cut.
fn lie(world: &Rc<World>, machine: &Rc<Machine>, drive: &Rc<Drive>) {
    world.stage.say(|| format!("{}: drive {} lies about flushes", machine.id, drive.id));
    drive.set_lies(true);
    let (of, drive, machine) = (Rc::clone(world), Rc::clone(drive), Rc::clone(machine));
    later(&world.stage, world.stage.millis(500, 6000), move || {
        cut(&of, &machine);
        drive.set_lies(false);
    });
}

/// A drive that writes something else than it is given, for a while.
fn miswrite(world: &World, machine: &Machine, drive: &Rc<Drive>) {
    let stage = &world.stage;
    stage.say(|| format!("{}: drive {} writes wrong", machine.id, drive.id));
    drive.set_miswrites(true);
    let drive = Rc::clone(drive);
    later(stage, stage.millis(2000, 12_000), move || drive.set_miswrites(false));
}

/// A later version ran here for a while, and wrote a unit.
fn write_later(world: &World, machine: &Machine, drive: &Drive) {
    let Some(unit) = world.stage.pick(&opened::units(drive)).copied() else { return };
    if drive.with_files(|files| opened::write_later(files, unit)) {
        let file = unit::unit_file(&unit);
        world.stage.say(|| format!("{}: a later version wrote {}", machine.id, file.0));
    }
}

fn part(world: &Rc<World>, machine: &Machine) {
    let stage = &world.stage;
    let me = Party::Machine(machine.index);
    let other = match stage.below(4) {
        0 => Party::Control,
        1 => Party::Origin,
        2 => Party::Viewer(stage.below(scenario::VIEWERS)),
        _ => Party::Machine(Bytes(stage.below(3)).as_usize()),
    };
    stage.say(|| format!("nothing passes between {me:?} and {other:?}"));
    world.net.borrow_mut().cut.insert((me, other));
    let of = Rc::clone(world);
    later(stage, stage.millis(300, 12_000), move || {
        of.net.borrow_mut().cut.remove(&(me, other));
    });
}

fn lose(world: &Rc<World>) {
    let stage = &world.stage;
    let (lost, late) = (stage.between(2, 20), stage.between(2, 20));
    stage.say(|| format!("one message in {lost} is lost, one in {late} is late"));
    (world.net.borrow_mut().lost_one_in, world.net.borrow_mut().late_one_in) = (lost, late);
    let of = Rc::clone(world);
    later(stage, stage.millis(500, 8000), move || {
        (of.net.borrow_mut().lost_one_in, of.net.borrow_mut().late_one_in) = (0, 0);
    });
}

fn origin(world: &Rc<World>) {
    let stage = &world.stage;
    let moods = [OriginMood::Down, OriginMood::Slow, OriginMood::Wrong, OriginMood::BreaksOff];
    let mood = stage.pick(&moods).copied().unwrap_or_default();
    stage.say(|| format!("the origin is {mood:?}"));
    world.origin.set(mood);
    let of = Rc::clone(world);
    later(stage, stage.millis(500, 10_000), move || of.origin.set(OriginMood::Well));
}

fn step_clock(world: &World, machine: &Machine) {
    let stage = &world.stage;
    let clock = CLOCK_ZERO - 7200 + stage.below(14_400);
    stage.say(|| format!("{}: the clock steps to {clock} of {CLOCK_ZERO}", machine.id));
    machine.clock.set(clock);
}

fn kill_control(world: &Rc<World>) {
    let control = world.control();
    if !control.is_up() {
        return;
    }
    control.kill();
    later(&world.stage, world.stage.millis(20, 6000), move || {
        if !control.is_up() {
            control.start();
        }
    });
}

/// All is put right: what a good operator does, and the end of bad weather.
pub(crate) fn heal(world: &Rc<World>) {
    world.stage.say(|| "all is put right".to_owned());
    world.is_calm.set(true);
    world.calm_from.set(world.stage.now());
    *world.net.borrow_mut() = crate::world::Net::default();
    world.origin.set(OriginMood::Well);
    if !world.control().is_up() {
        world.control().start();
    }
    for machine in world.machines.borrow().iter() {
        machine.clock.set(CLOCK_ZERO);
        for drive in machine.drives.borrow().iter() {
            drive.set_mood(Mood::Well);
            drive.set_lies(false);
            drive.set_miswrites(false);
        }
        let has_aside = machine
            .process()
            .is_none_or(|process| process.in_use().len() < machine.drives.borrow().len());
        if has_aside && world.stage.one_in(2) {
            machine.kill(world);
        }
        // Or each is mounted anew, and comes back without a restart.
        machine.mounts.set(machine.mounts.get() + 1);
        machine.start(world);
    }
}

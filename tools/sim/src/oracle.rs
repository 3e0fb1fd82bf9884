//! What must hold, looked at from outside: none of it asks the code whether it was right.

use std::collections::BTreeMap;
use std::rc::Rc;

use director::Withdrawal;
use model::extent::{Extent, FileName};
use model::id::{ApplianceId, AssetVersionId, ObjectId};
use model::units::{Bytes, Instant, Nanos};
use store::layout;
use store::log;
use store::unit;
use upkeep::Drive as _;

use crate::hours::{self, Told};
use crate::opened::Opened;
use crate::world::{FILL, Machine, World};

/// An object that is about to be shown there: is all of it on the drive, whatever happens next?
pub(crate) fn is_durable(world: &World, drive: &Opened, object: ObjectId, extent: &Extent) {
    if drive.drive.has_lied() {
        return;
    }
    let right = world.object(&object);
    let stage = &world.stage;
    drive.drive.with_files(|files| {
        let Some(right) = right else { return stage.fail(format!("{object} is nobody's")) };
        let Some(file) = files.find(&extent.file.0) else {
            return stage.fail(format!("{object} is shown and has no file"));
        };
        let rotten = files.rotten(file).is_some_and(|rotten| !rotten.is_empty());
        let durable = files.durable(&extent.file.0);
        let durable = durable.and_then(|bytes| bytes.get(extent.offset.as_usize()..));
        let is_it = durable.is_some_and(|bytes| bytes.starts_with(&right.bytes));
        stage.must(is_it || rotten, || format!("{object} is shown and not on the drive"));
        let snapshot = files.durable(layout::SNAPSHOT);
        let log = files.durable(layout::LOG).unwrap_or_default();
        let replay = log::replay(drive.drive.id, snapshot, log);
        let entry = replay.entries.get(&object);
        let is_there = entry.is_some_and(|entry| entry.extent(&object, drive.index) == *extent);
        let is_logged = replay.damage.is_some() || is_there;
        stage.must(is_logged, || format!("{object} is shown and its log does not say so"));
    });
}

/// A copy is about to be shown in the place of the file that it was made from, which then goes: is
/// it what was to be written?
pub(crate) fn is_read_back(world: &World, drive: &Opened, object: ObjectId, extent: &Extent) {
    drive.drive.with_files(|files| {
        let Some(file) = files.find(&extent.file.0) else { return };
        let of_object = extent.offset.as_usize()..(extent.offset + extent.len).as_usize();
        let footer = files.len(file).saturating_sub(layout::FOOTER_LEN.as_usize());
        let mut wrong = files.miswritten(file).into_iter().map(|(at, _)| at);
        let wrong = wrong.find(|at| of_object.contains(at) || footer <= *at);
        world.stage.must(wrong.is_none(), || {
            format!("{object} is shown from a copy that was written wrong, at {wrong:?}")
        });
    });
}

/// An object goes that the manifest in force wants. Something is wrong with its file, then.
pub(crate) fn wanted_is_hidden(world: &World, drive: &Opened, object: &ObjectId) {
    // The log says where it was until it has gone.
    let Some(entry) = drive.entry(object) else { return };
    let file = entry.unit.map_or_else(|| layout::object_file(object), |of| unit::unit_file(&of));
    let is_good = drive.drive.with_files(|files| {
        let id = files.find(&file.0).filter(|id| !files.is_unreadable(*id));
        let rotten = id.and_then(|id| files.rotten(id));
        rotten.is_some_and(BTreeMap::is_empty)
    });
    world.stage.must(!is_good || drive.drive.has_lied(), || {
        format!(
            "{object} on drive {} goes, though it is wanted, and its file is right",
            drive.index
        )
    });
}

/// An appliance says that it refuses what was withdrawn.
pub(crate) fn signed(world: &World, appliance: &ApplianceId, withdrawal: &Withdrawal) {
    world.count(|counts| counts.receipts += 1);
    let machines = world.machines.borrow();
    for machine in machines.iter().filter(|machine| machine.id == *appliance) {
        machine.signed.borrow_mut().extend(withdrawal.versions.keys().cloned());
    }
}

/// What an appliance has signed to refuse it must refuse, whatever has happened since.
pub(crate) fn answered(
    world: &World,
    machine: &Machine,
    version: &AssetVersionId,
    asked_after_signing: bool,
) {
    world.stage.must(!asked_after_signing, || {
        format!("{} serves {version}, and had signed that it does not", machine.id)
    });
}

/// A copy that is about to be removed as spare, and the file in which the index has the object: is
/// it shown on this drive?
pub(crate) fn is_spare(
    world: &World,
    machine: &Machine,
    (drive, file): (&Opened, &FileName),
    object: ObjectId,
    known: Option<&FileName>,
) {
    let shown = machine.shown.borrow();
    // Of what an earlier process had shown this one may know nothing.
    let is_here = shown.get(&object).is_some_and(|on| Rc::ptr_eq(on, &drive.drive));
    world.stage.must(!is_here || known != Some(file), || {
        format!("{}: {object} is removed as spare where it is shown", machine.id)
    });
}

/// What drives in use lost though they had said that it was there: after a start, before anything
/// is done.
pub(crate) fn kept_what_was_shown(
    world: &World,
    machine: &Machine,
    drives: &[Rc<Opened>],
    is_held: impl Fn(&ObjectId) -> bool,
) {
    for (object, drive) in machine.shown.borrow().iter() {
        let here = drives.iter().any(|open| Rc::ptr_eq(&open.drive, drive));
        let excused = drive.has_lied() || !here;
        world.stage.must(is_held(object) || excused, || {
            format!("{}: {object} was shown before and is lost", machine.id)
        });
    }
}

/// What a viewer got: the object's bytes, or where its drive has rotted since, what is there now.
pub(crate) fn delivered(
    world: &World,
    machine: &Machine,
    object: ObjectId,
    from: usize,
    bytes: &[u8],
) {
    let Some(right) = world.object(&object) else {
        return world.stage.fail(format!("{object} is served and nobody's"));
    };
    world.count(|counts| counts.bytes += Bytes::of(bytes.len()).0);
    if right.bytes.get(from..from + bytes.len()) == Some(bytes) {
        return;
    }
    let wrong = (from..).zip(bytes).filter(|(at, byte)| right.bytes.get(*at) != Some(*byte));
    let wrong: Vec<usize> = wrong.map(|(at, _)| at).collect();
    let rotted = |at: &usize| {
        let (here, gone) = (machine.drives.borrow(), machine.retired.borrow());
        here.iter().chain(gone.iter()).any(|drive| {
            let rot = drive.was_rotten(&object, *at);
            rot || drive.has_lied() || drive.has_miswritten()
        })
    };
    world.count(|counts| counts.rotten_served += 1);
    world.stage.must(wrong.iter().all(rotted), || {
        let (first, count) = (wrong.first(), wrong.len());
        format!("{}: {count} wrong bytes of {object}, at {first:?}", machine.id)
    });
}

/// Something is about to be asked of a source, or so much of it read, by a process: may it be?
pub(crate) fn fetches(
    world: &World,
    (machine, process): (&Machine, u64),
    object: &ObjectId,
    len: Bytes,
) {
    let hours = &mut *machine.hours.borrow_mut();
    let has_windows = hours.told.as_ref().is_some_and(|told| !told.windows.is_empty());
    world.count(|counts| counts.fetched_by_hours += u64::from(has_windows));
    let wall = world.now(machine).wall;
    let now = world.stage.now();
    let Some(told) = hours.forbid(now, wall) else { return };
    let is_paused = told.is_paused(wall.0 - 1) && told.is_paused(wall.0);
    let files_of = world.files_of.borrow();
    // Small files of a unit come along.
    let is_urgent = || machine.is_claimed_with(object, |object| told.is_urgent(&files_of, object));
    if !is_paused && is_urgent() {
        world.count(|counts| counts.urgent_blocks += u64::from(len != Bytes::ZERO));
        let within = hours.urgent.take(process, now, len, FILL.urgent_max);
        return world
            .stage
            .must(within, || format!("{}: what is urgent comes too fast", machine.id));
    }
    let Told { zone, windows, paused_until, urgent } = told;
    let minute = hours::minute(zone.as_str(), wall.0);
    let by = format!("{windows:?} of {zone}, paused until {paused_until:?}, urgent {urgent:?}");
    world.stage.fail(format!("{} fetches {object} in minute {minute}, fills in {by}", machine.id));
}

/// One of a fill cluster, as control may know it.
pub(crate) struct Member {
    pub(crate) id: ApplianceId,
    pub(crate) heard: Option<Instant>,
    pub(crate) is_well: bool,
    pub(crate) hours: Option<Told>,
}

/// Somebody asks for an object: of its fill cluster one may fetch it from the origin, as long as
/// nobody has waited for long, and that one is there and open. If nobody is, everybody may.
pub(crate) fn masters(
    world: &World,
    (object, is_urgent): (&ObjectId, bool),
    cluster: &[Member],
    goes_to_origin: impl Fn(&ApplianceId) -> Option<bool>,
) {
    let (now, wall) = (world.stage.now(), world.wall());
    let heard_within = |of: &Member, span: Nanos| of.heard.is_some_and(|at| now.since(at) <= span);
    let was_closed = |of: &Member, second: u64| {
        let is_closed = |told: &Told, at| match is_urgent {
            true => told.is_paused(at),
            false => told.is_closed(at),
        };
        of.hours.as_ref().is_some_and(|told| is_closed(told, wall.0 - second))
    };
    let is_out = |of: &Member| {
        !heard_within(of, SILENT_AFTER) || (0..=CLOCK_LOOKS).all(|second| was_closed(of, second))
    };
    let is_fit = |of: &Member| {
        let is_open = !(0..=CLOCK_LOOKS).any(|second| was_closed(of, second));
        of.is_well && heard_within(of, Nanos::seconds(1)) && is_open
    };
    let asking = cluster.iter().filter_map(|of| Some((of, goes_to_origin(&of.id)?)));
    let asking: Vec<(&Member, bool)> = asking.collect();
    if !asking.iter().any(|(of, _)| is_fit(of)) {
        return;
    }
    let going = asking.iter().filter(|(_, goes)| *goes).map(|(of, _)| *of);
    let going: Vec<&Member> = going.collect();
    let names = || going.iter().map(|of| of.id.as_str()).collect::<Vec<_>>();
    world.count(|counts| counts.masters += 1);
    world.stage.must(going.len() <= 1, || format!("{:?} all fetch {object} first", names()));
    world.stage.must(!going.iter().any(|of| is_out(of)), || {
        format!("{:?} is to fetch {object}, and is silent or closed", names())
    });
}

/// Control takes an appliance for silent after 1.5 s and two ticks.
const SILENT_AFTER: Nanos = Nanos::millis(1700);
/// Control looks at its clock at least so often, in seconds.
const CLOCK_LOOKS: u64 = 2;

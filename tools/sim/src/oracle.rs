//! What must hold, looked at from outside: none of it asks the code whether it was right.

use std::collections::BTreeMap;
use std::rc::Rc;

use director::Withdrawal;
use model::extent::{Extent, FileName};
use model::id::{ApplianceId, AssetVersionId, ObjectId};
use model::units::Bytes;
use store::layout;
use store::log;
use store::unit;
use upkeep::{Drive as _, Ledger as _};

use crate::drive::Drive;
use crate::opened::{self, Opened};
use crate::process::Process;
use crate::world::World;

/// An object that is about to be shown there: is all of it on the drive, whatever happens next?
pub(crate) fn is_durable(process: &Process, drive: &Opened, object: ObjectId, extent: &Extent) {
    let world = &process.world;
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
pub(crate) fn is_read_back(process: &Process, drive: &Opened, object: ObjectId, extent: &Extent) {
    // It was nowhere: fetched, or found.
    if process.locate(&object).is_none() {
        return;
    }
    drive.drive.with_files(|files| {
        let Some(file) = files.find(&extent.file.0) else { return };
        let of_object = extent.offset.as_usize()..(extent.offset + extent.len).as_usize();
        let footer = files.len(file).saturating_sub(layout::FOOTER_LEN.as_usize());
        let mut wrong = files.miswritten(file).into_iter().map(|(at, _)| at);
        let wrong = wrong.find(|at| of_object.contains(at) || footer <= *at);
        process.world.stage.must(wrong.is_none(), || {
            format!("{object} is shown from a copy that was written wrong, at {wrong:?}")
        });
    });
}

/// An object goes. If it is in a unit that a later version wrote, and nothing is wrong with that,
/// then only for being unwanted.
pub(crate) fn is_hidden(process: &Process, object: ObjectId) {
    let on = process.machine.shown.borrow().get(&object).cloned();
    let Some(drive) = process.in_use().into_iter().find(|open| {
        let here = on.as_ref();
        here.is_some_and(|on| Rc::ptr_eq(on, &open.drive) && !on.has_lied())
    }) else {
        return;
    };
    // The log says where it was until it has gone.
    let Some(unit) = drive.entry(&object).and_then(|entry| entry.unit) else { return };
    let file = unit::unit_file(&unit);
    let is_good = drive.drive.with_files(|files| {
        let id = files.find(&file.0).filter(|id| !files.is_unreadable(*id));
        let rotten = id.and_then(|id| files.rotten(id));
        opened::is_later(files, &file) && rotten.is_some_and(BTreeMap::is_empty)
    });
    process.world.stage.must(!is_good || !process.is_wanted(&object), || {
        format!("{}: {object} goes with a unit of a later version", process.machine.id)
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
pub(crate) fn answered(process: &Process, version: &AssetVersionId, asked_after_signing: bool) {
    process.world.stage.must(!asked_after_signing, || {
        format!("{} serves {version}, and had signed that it does not", process.machine.id)
    });
}

/// A copy that is about to be removed as spare: is the object shown on this drive?
pub(crate) fn is_spare(process: &Process, drive: &Opened, object: ObjectId, file: &FileName) {
    let shown = process.machine.shown.borrow();
    // Of what an earlier process had shown this one may know nothing.
    let is_here = shown.get(&object).is_some_and(|on| Rc::ptr_eq(on, &drive.drive))
        && process.locate(&object).is_some_and(|at| at.file == *file);
    process.world.stage.must(!is_here, || {
        format!("{}: {object} is removed as spare where it is shown", process.machine.id)
    });
}

/// What a drive lost though it had said that it was there: after a start, before anything is done.
pub(crate) fn kept_what_was_shown(process: &Process, shown: &BTreeMap<ObjectId, Rc<Drive>>) {
    for (object, drive) in shown {
        let here = process.in_use().into_iter().any(|open| Rc::ptr_eq(&open.drive, drive));
        let is_held = process.locate(object).is_some();
        let excused = drive.has_lied() || !here;
        process.world.stage.must(is_held || excused, || {
            format!("{}: {object} was shown before and is lost", process.machine.id)
        });
    }
}

/// What a viewer got: the object's bytes, or where its drive has rotted since, what is there now.
pub(crate) fn delivered(
    world: &World,
    process: &Process,
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
        let (here, gone) = (process.machine.drives.borrow(), process.machine.retired.borrow());
        here.iter().chain(gone.iter()).any(|drive| {
            let rot = drive.was_rotten(&object, *at);
            rot || drive.has_lied() || drive.has_miswritten()
        })
    };
    world.count(|counts| counts.rotten_served += 1);
    world.stage.must(wrong.iter().all(rotted), || {
        let (first, count) = (wrong.first(), wrong.len());
        format!("{}: {count} wrong bytes of {object}, at {first:?}", process.machine.id)
    });
}

//! What must hold, looked at from outside: none of it asks the code whether it was right.

use std::collections::BTreeMap;
use std::rc::Rc;

use director::Withdrawal;
use model::extent::{Extent, FileName};
use model::id::{ApplianceId, AssetVersionId, ObjectId};
use model::units::Bytes;
use store::layout;
use store::log;
use upkeep::Ledger as _;

use crate::drive::Drive;
use crate::opened::Opened;
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
            rot || drive.has_lied()
        })
    };
    world.count(|counts| counts.rotten_served += 1);
    world.stage.must(wrong.iter().all(rotted), || {
        let (first, count) = (wrong.first(), wrong.len());
        format!("{}: {count} wrong bytes of {object}, at {first:?}", process.machine.id)
    });
}

//! Moves files between drives: what is watched most to the first, and at whim. The counterpart of
//! `mover.rs` in `shell/appliance`.

use std::collections::BTreeMap;
use std::rc::Rc;

use fill::tier::{self, Class, Held, Move};
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::units::{Bytes, Nanos};
use store::layout;
use store::parcel::{Parcel, PartId};
use store::unit::{self, Place};

use crate::canary::Canary;
use crate::copying::{self, Ended, Source};
use crate::opened::Opened;
use crate::process::Process;
use crate::{chores, oracle, units};

/// Small, as all bounds here.
const PLAN: tier::Config = tier::Config { moves_max: 3, gain_min: 2, heat_min: Bytes(1) };
const BUDGET: Bytes = Bytes::mib(4);
/// How long the old file stays: workers hear of the new one after a microsecond.
const LINGER: Nanos = Nanos::millis(20);

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>) {
    let stage = process.world.stage.clone();
    loop {
        stage.sleep(stage.millis(200, 4_000)).await;
        // An operator waits until all has come right; then nothing moves any more.
        if process.world.is_calm.get() {
            continue;
        }
        let moves = if stage.one_in(2) { plan(&process) } else { whim(&process) };
        for one in moves {
            carry_out(&process, &one).await;
        }
    }
}

/// A file that may move: where it is, and what is wanted in it.
pub(crate) type Movable = (PartId, DriveIndex, Vec<(ObjectId, Bytes)>);

fn plan(process: &Process) -> Vec<Move<PartId>> {
    let spaces = process.spaces().into_iter();
    let drive = |space: layout::DriveSpace| {
        let class = if space.drive == DriveIndex(0) { Class::Fast } else { Class::Bulk };
        tier::Drive { drive: space.drive, class, free: space.free }
    };
    let drives: Vec<tier::Drive> = spaces.map(drive).collect();
    let held = |(file, drive, objects): Movable| {
        let room = Parcel::new(&objects)?.file_len();
        let heat = Bytes(objects.iter().map(|(object, _)| process.heat(object).0).sum());
        Some((file, Held { drive, room, heat }))
    };
    let held: BTreeMap<PartId, Held> = process.movable().into_iter().filter_map(held).collect();
    tier::plan(&PLAN, &drives, &held, BUDGET)
}

/// Any file to any drive.
fn whim(process: &Process) -> Vec<Move<PartId>> {
    let stage = &process.world.stage;
    let Some((file, from, _)) = stage.pick(&process.movable()).cloned() else { return vec![] };
    let drives = process.all_answering();
    let Some(to) = stage.pick(&drives).map(|drive| drive.index) else { return vec![] };
    if from == to { vec![] } else { vec![Move { file, from, to }] }
}

async fn carry_out(process: &Rc<Process>, one: &Move<PartId>) {
    let (from, to) = (process.answering(one.from), process.answering(one.to));
    let (Some(from), Some(to)) = (from, to) else { return };
    let (name, places) = match one.file {
        PartId::Object(object) => {
            let Some(len) = process.locate(&object).map(|extent| extent.len) else { return };
            let place = Place { object, offset: Bytes::ZERO, len };
            (layout::object_file(&object), vec![place])
        }
        PartId::Unit(unit) => {
            let Ok(directory) = units::directory(process, &from, unit).await else { return };
            (unit::unit_file(&unit), directory.places().to_vec())
        }
    };
    let objects: Vec<ObjectId> = places.iter().map(|place| place.object).collect();
    if process.claim_all(&objects) {
        let is_abandoned = !claimed(process, one.file, &name, &places, (&from, &to)).await;
        objects.iter().for_each(|object| process.release(*object));
        if is_abandoned {
            // Of what is left of it a plan has to know.
            process.replan();
        }
    }
}

/// False if a copy came to nothing. The caller has claimed all that is in the file.
async fn claimed(
    process: &Rc<Process>,
    file: PartId,
    name: &FileName,
    places: &[Place],
    (from, to): (&Rc<Opened>, &Rc<Opened>),
) -> bool {
    let is_here = |place: &&Place| {
        let is_here =
            |at: Extent| (at.drive, &at.file, at.offset) == (from.index, name, place.offset);
        process.locate(&place.object).is_some_and(is_here) && process.is_wanted(&place.object)
    };
    let places: Vec<Place> = places.iter().filter(is_here).copied().collect();
    // A spare copy, left to the audit.
    if places.is_empty() || places.iter().any(|place| to.entry(&place.object).is_some()) {
        return true;
    }
    if process.world.has(Canary::OldGoesFirst) {
        remove_old(process, file, name, &places, from).await;
    }
    process.say(|| {
        let first = places[0].object;
        format!("copies {first} and what is with it from drive {} to {}", from.index, to.index)
    });
    let source = Source { drive: from, file: name, places: &places };
    let ended = copying::copy(process, source, to, &|object| process.is_wanted(object)).await;
    if let Ended::Doubted(object, doubt) = &ended {
        process.suspect(*object, doubt.clone());
    }
    if ended == Ended::Copied {
        process.world.count(|counts| {
            counts.moved += Bytes::of(places.len()).0;
            counts.units_moved += u64::from(1 < places.len());
        });
        process.world.stage.sleep(LINGER).await;
        // If it is nowhere, the drive that it went to failed: fill finds it here. While that drive
        // hangs it may still fail: then too.
        let is_elsewhere = |place: &Place| {
            let at = process.locate(&place.object).map(|extent| extent.drive);
            at.is_some_and(|at| at != from.index && process.answering(at).is_some())
        };
        if places.iter().all(is_elsewhere) && process.answering(from.index).is_some() {
            remove_old(process, file, name, &places, from).await;
        }
    }
    ended == Ended::Copied
}

/// What was copied must be elsewhere; what was not, nobody wants, and it goes with the file.
async fn remove_old(
    process: &Rc<Process>,
    file: PartId,
    name: &FileName,
    copied: &[Place],
    from: &Opened,
) {
    copied.iter().for_each(|place| oracle::is_spare(process, from, place.object, name));
    match file {
        PartId::Object(object) => chores::drop_copy(process, from, object).await,
        PartId::Unit(unit) => {
            let logged = from.in_unit(unit);
            chores::remove(process, from, name, logged, true).await;
        }
    }
}

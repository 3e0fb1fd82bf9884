//! Moves files between drives: what is watched most to the first, and at whim
//! (`upkeep::mover`).

use std::convert::Infallible;
use std::rc::Rc;

use fill::tier::{self, Class, Move};
use model::extent::DriveIndex;
use model::object::BLOCK_LEN;
use model::units::Bytes;
use store::layout;
use store::parcel::PartId;
use upkeep::mover::{self, Moved};
use upkeep::{Files, Ledger as _, publish};

use crate::canary::Canary;
use crate::opened::Opened;
use crate::process::Process;

/// Small, as all bounds here.
const PLAN: tier::Config = tier::Config { moves_max: 3, gain_min: 2, heat_min: Bytes(1) };
const BUDGET: Bytes = Bytes::mib(4);

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>) {
    let stage = process.world.stage.clone();
    let mut buffer = Opened::pages(BLOCK_LEN);
    loop {
        stage.sleep(stage.millis(200, 4_000)).await;
        // An operator waits until all has come right; then nothing moves any more.
        if process.world.is_calm.get() {
            continue;
        }
        let moves = if stage.one_in(2) { plan(&process).await } else { whim(&process).await };
        for one in moves {
            carry_out(&process, &one, &mut buffer).await;
        }
    }
}

async fn plan(process: &Process) -> Vec<Move<PartId>> {
    let spaces = process.spaces().into_iter();
    let drive = |space: layout::DriveSpace| {
        let class = if space.drive == DriveIndex(0) { Class::Fast } else { Class::Bulk };
        tier::Drive { drive: space.drive, class, free: space.free }
    };
    let drives: Vec<tier::Drive> = spaces.map(drive).collect();
    let held = mover::movable(process).await.held(|object| process.heat(object));
    tier::plan(&PLAN, &drives, &held, BUDGET)
}

/// Any file to any drive.
async fn whim(process: &Process) -> Vec<Move<PartId>> {
    let stage = &process.world.stage;
    let files: Vec<_> = mover::movable(process).await.held(|_| Bytes::ZERO).into_iter().collect();
    let Some((file, held)) = stage.pick(&files) else { return vec![] };
    let mut drives = process.in_use();
    drives.retain(|drive| process.answers(drive));
    let Some(to) = stage.pick(&drives).map(|drive| drive.index) else { return vec![] };
    let one = Move { file: *file, from: held.drive, to };
    if one.from == to { vec![] } else { vec![one] }
}

async fn carry_out(process: &Process, one: &Move<PartId>, buffer: &mut Vec<u8>) {
    if process.world.has(Canary::OldGoesFirst) {
        remove_first(process, one).await;
    }
    let Ok(moved) = mover::carry_out(process, one, |_| Ok::<_, Infallible>(true), buffer).await;
    if let Moved::There(_) = moved {
        process.say(|| format!("moved {:?} from drive {} to {}", one.file, one.from, one.to));
        process.world.count(|counts| {
            counts.moved += 1;
            counts.units_moved += u64::from(matches!(one.file, PartId::Unit(_)));
        });
    }
}

/// A planted bug: an object goes as spare before it is copied.
async fn remove_first(process: &Process, one: &Move<PartId>) {
    let PartId::Object(object) = one.file else { return };
    let Some(from) = process.answering(one.from) else { return };
    if process.claim(object) {
        publish::drop_copy(process, &*from, object).await;
        process.release(object);
    }
}

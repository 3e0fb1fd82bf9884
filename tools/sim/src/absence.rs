//! One task for each drive: measures it while it is in use, and looks after its place while it is
//! not. The counterpart of `absence.rs` in `shell/appliance`.

use std::collections::BTreeMap;
use std::rc::Rc;

use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::units::Nanos;
use store::absence::{Absence, MarkerSeen, Seen};
use store::layout;
use store::parcel::PartId;
use upkeep::{DriveError, Files as _};

use crate::canary::Canary;
use crate::drive::{Drive, Mood};
use crate::opened::Opened;
use crate::oracle;
use crate::process::Process;
use crate::server::Owner as _;
use crate::world::World;

const LOOK_EVERY: Nanos = Nanos::seconds(1);

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>, index: DriveIndex) {
    loop {
        let mut seen = look(&process, index).await;
        let mut before = BTreeMap::new();
        while process.measure(index).await {
            seen = look(&process, index).await;
            if process.world.has(Canary::OldInventory) {
                before = process.drive(index).map(|drive| drive.entries()).unwrap_or_default();
            }
            process.world.stage.sleep(LOOK_EVERY).await;
        }
        let (opened, parts) = wait_for_it(&process, index, Absence::new(seen)).await;
        let old = process.world.has(Canary::OldInventory);
        let entries = if old { before } else { opened.entries() };
        let objects = entries.iter().map(|(object, entry)| (*object, entry.extent(object, index)));
        let objects: Vec<(ObjectId, Extent)> = objects.collect();
        for (object, extent) in &objects {
            oracle::is_durable(&process.world, &opened, *object, extent);
        }
        process.take_back(&opened, objects, parts);
    }
}

/// A drive that is good, and the parts on it.
type Found = (Rc<Opened>, Vec<PartId>);

/// Looks at the place of a drive that is set aside until it is used again.
async fn wait_for_it(process: &Rc<Process>, index: DriveIndex, mut absence: Absence) -> Found {
    loop {
        process.world.stage.sleep(LOOK_EVERY).await;
        if !absence.look(look(process, index).await) || process.is_held(index) {
            continue;
        }
        let Some(drive) = process.machine.drive(index.as_usize()) else { continue };
        match try_it(&process.world, &drive, index).await {
            Ok(found) => return found,
            Err(error) => {
                process.say(|| format!("drive {index} stays set aside: {error}"));
                absence.refused();
            }
        }
    }
}

/// Opens what is there now, and proves that it can be read and written.
async fn try_it(
    world: &Rc<World>,
    drive: &Rc<Drive>,
    index: DriveIndex,
) -> Result<Found, DriveError> {
    let opened = Opened::open(world, drive, index).await?;
    opened.prove().await?;
    let parts = opened.list(&FileName(layout::FILL.into())).await?;
    Ok((opened, parts.iter().filter_map(|name| PartId::parse(name)).collect()))
}

/// What is seen of a drive's place. Opens nothing.
async fn look(process: &Process, index: DriveIndex) -> Seen {
    let machine = &process.machine;
    let mounts = machine.mounts.get();
    let Some(drive) = machine.drive(index.as_usize()) else { return Seen::default() };
    drive.hang().await;
    let [a, b, c, d, ..] = drive.id.0;
    let device = u64::from(u32::from_le_bytes([a, b, c, d]));
    let marker = MarkerSeen { device, inode: 1, changed_at: 0 };
    Seen { marker: (drive.mood() != Mood::Gone).then_some(marker), mounts }
}

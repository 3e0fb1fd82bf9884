//! The place of a drive in a machine (`upkeep::absence`).

use std::collections::BTreeMap;
use std::rc::Rc;

use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use store::absence::{MarkerSeen, Seen};
use store::layout;
use store::log::Entry;
use store::parcel::PartId;
use upkeep::absence::{self, Found};
use upkeep::{DriveError, Files as _, Space};

use crate::canary::Canary;
use crate::drive::Mood;
use crate::opened::{self, Opened, to};
use crate::oracle;
use crate::process::Process;

/// Looks after one drive until its process ends.
pub(crate) async fn run(process: Rc<Process>, index: DriveIndex) {
    let (before, shown) = (BTreeMap::new(), BTreeMap::new());
    let mut place = Place { process: Rc::clone(&process), index, before, shown };
    absence::run(&*process, &mut place).await;
}

struct Place {
    process: Rc<Process>,
    index: DriveIndex,
    /// For a planted bug: what the drive held while it was in use.
    before: BTreeMap<ObjectId, Entry>,
    shown: BTreeMap<ObjectId, Entry>,
}

impl absence::Place for Place {
    type Host = Process;
    type New = Rc<Opened>;

    fn index(&self) -> DriveIndex {
        self.index
    }

    async fn look(&mut self) -> Seen {
        let machine = &self.process.machine;
        let mounts = machine.mounts.get();
        let Some(drive) = machine.drive(self.index.as_usize()) else { return Seen::default() };
        drive.hang().await;
        let [a, b, c, d, ..] = drive.id.0;
        let device = u64::from(u32::from_le_bytes([a, b, c, d]));
        let marker = MarkerSeen { device, inode: 1, changed_at: 0 };
        Seen { marker: (drive.mood() != Mood::Gone).then_some(marker), mounts }
    }

    async fn measure(&mut self, drive: &Opened) -> Result<(Space, Seen), DriveError> {
        drive.drive.list(layout::INDEX).await.map_err(to("use", "the drive"))?;
        if self.process.world.has(Canary::OldInventory) {
            self.before = drive.entries();
        }
        let space = opened::space(&drive.drive);
        Ok((space, self.look().await))
    }

    fn is_held(&self) -> bool {
        self.process.is_held(self.index)
    }

    async fn open(&mut self) -> Result<Found<Rc<Opened>>, String> {
        let drive = self.process.machine.drive(self.index.as_usize());
        let drive = drive.ok_or("there is no drive")?;
        let drive = Opened::open(&self.process.world, &drive, self.index).await;
        let drive = drive.map_err(|error| error.to_string())?;
        let parts = drive.list(&FileName(layout::FILL.into())).await;
        let parts = parts.map_err(|error| error.to_string())?;
        let parts = parts.iter().filter_map(|name| PartId::parse(name)).collect();
        let is_old = self.process.world.has(Canary::OldInventory);
        let entries = if is_old { self.before.clone() } else { drive.entries() };
        self.shown.clone_from(&entries);
        Ok(Found { drive, entries, parts })
    }

    fn make_ready(&mut self, drive: Rc<Opened>) -> Rc<Opened> {
        drive.set_readers(self.process.readers(self.index));
        self.process.give(&drive);
        for (object, entry) in &self.shown {
            let extent = entry.extent(object, self.index);
            oracle::is_durable(&self.process.world, &drive, *object, &extent);
        }
        drive
    }

    fn put_in_use(&mut self, drive: &Rc<Opened>, parts: Vec<PartId>) {
        self.process.put_in_use(drive, parts);
    }

    fn words(&self, error: DriveError) -> String {
        error.to_string()
    }
}

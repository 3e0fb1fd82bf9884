//! Where fill gets bytes from: siblings and the origin, each with what can go wrong.

use std::rc::Rc;

use fill::transfer::SourceFault;
use iosched::drive::Class;
use model::id::{ApplianceId, ObjectId};
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::{Bytes, Nanos};

use crate::filler::unreachable_source;
use crate::process::Process;
use crate::stage::{Slot, WORLD};
use crate::world::{Machine, OriginMood, Party, World};

/// Who has an object.
#[derive(Clone)]
pub(crate) enum Place {
    Origin,
    Sibling(Rc<Machine>),
}

/// An answer that is being read.
pub(crate) struct Answer {
    place: Place,
    object: ObjectId,
    next: u64,
    end: u64,
    /// The sibling's process that began it.
    start_id: u64,
    breaks_at: Option<u64>,
}

/// A source that is silent for so long is given up.
const SILENCE_MAX: Nanos = Nanos::seconds(2);
const ASK_MAX: Nanos = Nanos::seconds(5);

impl Place {
    /// Siblings as control names them, then the origin.
    pub(crate) async fn find(process: &Rc<Process>, object: ObjectId) -> Vec<Self> {
        let world = Rc::clone(&process.world);
        let asker: ApplianceId = process.machine.id.clone();
        let parties = (Party::Machine(process.machine.index), Party::Control);
        let control = world.control();
        let answer = move || control.sources(&asker, &object);
        let siblings = world.ask(parties, ASK_MAX, answer).await.unwrap_or_default();
        let machines = world.machines.borrow();
        let named = |id: &ApplianceId| machines.iter().find(|machine| machine.id == *id).cloned();
        let siblings = siblings.iter().filter_map(named).map(Self::Sibling);
        siblings.chain([Self::Origin]).collect()
    }

    fn party(&self) -> Party {
        match self {
            Self::Origin => Party::Origin,
            Self::Sibling(machine) => Party::Machine(machine.index),
        }
    }
}

/// The hashes of an object's blocks, if control answers.
pub(crate) async fn blocks_from_control(process: &Rc<Process>, object: ObjectId) -> Option<Blocks> {
    let world = Rc::clone(&process.world);
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let (control, of) = (world.control(), Rc::clone(&world));
    let answer = move || {
        let known = control.is_up().then(|| of.object(&object)).flatten();
        known.map(|object| object.blocks.clone())
    };
    world.ask(parties, ASK_MAX, answer).await
}

impl Answer {
    /// Asks a place for a run of blocks.
    pub(crate) async fn open(
        process: &Rc<Process>,
        place: &Place,
        object: ObjectId,
        first: u64,
        count: u64,
    ) -> Result<Self, SourceFault> {
        let world = &process.world;
        let me = Party::Machine(process.machine.index);
        world.stage.sleep(world.stage.millis(1, 10)).await;
        if !world.is_connected(me, place.party()) {
            world.stage.sleep(SILENCE_MAX).await;
            return Err(unreachable_source());
        }
        let mut start_id = 0;
        match place {
            Place::Origin => match world.origin.get() {
                OriginMood::Down => return Err(unreachable_source()),
                OriginMood::Well | OriginMood::Slow | OriginMood::Wrong | OriginMood::BreaksOff => {
                }
            },
            Place::Sibling(machine) => {
                let sibling = machine.process().ok_or_else(unreachable_source)?;
                let holds = sibling.locate(&object).is_some();
                start_id = sibling.start_id;
                if !holds {
                    return Err(SourceFault::Status(404));
                }
            }
        }
        let breaks = world.origin.get() == OriginMood::BreaksOff;
        let breaks_at = breaks.then(|| first + world.stage.below(count));
        let (place, end) = (place.clone(), first + count);
        Ok(Self { place, object, next: first, end, start_id, breaks_at })
    }

    /// True if all that was asked for was read.
    pub(crate) fn is_over(&self) -> bool {
        self.next == self.end
    }

    /// The next block.
    pub(crate) fn at(&self) -> u64 {
        self.next
    }

    /// Reads the next block.
    pub(crate) async fn read(&mut self, process: &Rc<Process>) -> Result<Vec<u8>, SourceFault> {
        let world = Rc::clone(&process.world);
        let index = self.next;
        self.next += 1;
        world.stage.sleep(world.stage.millis(1, 8)).await;
        if !world.is_connected(Party::Machine(process.machine.index), self.place.party()) {
            world.stage.sleep(SILENCE_MAX).await;
            return Err(SourceFault::Slow(Bytes(0)));
        }
        match self.place.clone() {
            Place::Origin => self.read_origin(&world, index).await,
            Place::Sibling(machine) => self.read_sibling(&world, &machine, index).await,
        }
    }

    async fn read_origin(&self, world: &World, index: u64) -> Result<Vec<u8>, SourceFault> {
        let object = world.object(&self.object).ok_or(SourceFault::Status(404))?;
        let at = Bytes(index * BLOCK_LEN.0).as_usize();
        let len = block_len(object.len(), index).as_usize();
        let mut bytes = object.bytes[at..at + len].to_vec();
        match world.origin.get() {
            OriginMood::Well => {}
            OriginMood::Down => return Err(SourceFault::BrokeOff(Bytes(0))),
            OriginMood::Slow => {
                world.stage.sleep(SILENCE_MAX).await;
                return Err(SourceFault::Slow(Bytes(0)));
            }
            OriginMood::Wrong if world.stage.one_in(3) => {
                let at = usize::try_from(world.stage.below(Bytes::of(len).0)).unwrap_or(0);
                bytes[at] ^= 1;
            }
            OriginMood::Wrong => {}
            OriginMood::BreaksOff => {
                if self.breaks_at == Some(index) {
                    return Err(SourceFault::BrokeOff(Bytes(0)));
                }
            }
        }
        Ok(bytes)
    }

    /// What the sibling's drive has, right or not: nobody looks at it there. If the sibling ends in
    /// the middle, or its drive hangs, nothing more comes.
    async fn read_sibling(
        &self,
        world: &World,
        machine: &Rc<Machine>,
        index: u64,
    ) -> Result<Vec<u8>, SourceFault> {
        let slot = Slot::default();
        let (told, late) = (slot.clone(), slot.clone());
        let (machine, start_id, object) = (Rc::clone(machine), self.start_id, self.object);
        world.stage.spawn(machine.troupe.get(), async move {
            told.put(read_of_sibling(&machine, start_id, object, index).await);
        });
        world.stage.at(WORLD, world.stage.now() + SILENCE_MAX, move || late.put(None));
        slot.await.ok_or(SourceFault::BrokeOff(Bytes(0)))
    }
}

async fn read_of_sibling(
    machine: &Machine,
    start_id: u64,
    object: ObjectId,
    index: u64,
) -> Option<Vec<u8>> {
    let sibling = machine.process().filter(|process| process.start_id == start_id)?;
    let extent = sibling.locate(&object)?;
    let drive = sibling.drive(extent.drive)?;
    let file = drive.drive.open(&extent.file.0).await.ok()?;
    drive.read_block(Class::Serve, file, (extent.offset, extent.len), index).await.ok()
}

//! Where fill gets bytes from: siblings and the origin, each with what can go wrong.

use std::rc::Rc;

use director::masters::Reach;
use director::sources::{Named, Sources as Told};
use fill::plan::Fetch;
use fill::rate::Limiter;
use fill::transfer::{self, SourceFault};
use model::id::{ApplianceId, ObjectId};
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::{Bytes, Nanos};
use upkeep::filler::{self, Sources};
use upkeep::{Host as _, Ledger as _};

use crate::canary::Canary;
use crate::fleet::Fleet;
use crate::hours::URGENT_BURST;
use crate::oracle;
use crate::process::Process;
use crate::stage::{Slot, WORLD};
use crate::world::{Machine, OriginMood, Party, World};

/// What a fill thread of a process reaches.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) fleet: Rc<Fleet>,
    pub(crate) process: Rc<Process>,
}

/// The places of one object.
pub(crate) struct Reached {
    network: Network,
    object: ObjectId,
    list: Vec<Place>,
    /// A master is to fetch it first.
    waits: Option<Nanos>,
}

#[derive(Clone)]
enum Place {
    Origin,
    Sibling(Rc<Machine>),
}

/// An answer that is being read.
pub(crate) struct Answer {
    network: Network,
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

const BOUNDS: transfer::Config = transfer::Config {
    range_len_max: Bytes::mib(1),
    block_tries_max: 4,
    rounds_max: 4,
    backoff_first: Nanos::millis(250),
    backoff_max: Nanos::seconds(5),
};

impl Sources for Network {
    type Places<'a> = Reached;

    fn bounds(&self, _: Bytes) -> transfer::Config {
        BOUNDS
    }

    async fn blocks(&self, object: ObjectId, _: Bytes) -> Result<Blocks, String> {
        let blocks = blocks_from_control(self, object).await;
        blocks.ok_or_else(|| "control gives no block hashes".to_owned())
    }

    async fn places<'a>(&'a self, fetch: &'a Fetch) -> Reached {
        let (network, object) = (self.clone(), fetch.object);
        let (list, waits) = Place::find(self, object).await;
        Reached { network, object, list, waits }
    }

    async fn pace(&self, len: Bytes, is_outside: bool) -> bool {
        let process = &self.process;
        let rates = process.ask(|holdings| holdings.rules().rates(holdings.is_open(), is_outside));
        for (at, rate) in rates.into_iter().enumerate() {
            let Some(rate) = rate else { continue };
            let until = {
                let pace = &mut process.paces.borrow_mut()[at];
                let limiter = pace.get_or_insert_with(|| Limiter::new(rate, URGENT_BURST));
                limiter.set(rate, URGENT_BURST);
                limiter.take(process.now(), len)
            };
            self.fleet.stage.sleep_until(until).await;
        }
        true
    }
}

impl filler::Places for Reached {
    type Answer = Answer;

    fn count(&self) -> usize {
        self.list.len()
    }

    fn is_outside(&self, _: usize) -> bool {
        false
    }

    fn is_stale(&self, _: usize) -> bool {
        false
    }

    fn waits(&self) -> Option<Nanos> {
        self.waits
    }

    async fn renew(&mut self) {}

    async fn ask(&mut self, place: usize, first: u64, count: u64) -> Result<Answer, SourceFault> {
        Answer::open(&self.network, &self.list[place], self.object, first, count).await
    }

    fn failed(&mut self, _: usize, _: &SourceFault) {}

    fn received(&self, _: usize, _: Bytes) {}
}

impl filler::Answer for Answer {
    fn next(&self) -> u64 {
        self.next
    }

    fn is_over(&self) -> bool {
        self.next == self.end
    }

    async fn read(&mut self, bytes: &mut [u8]) -> Result<(), SourceFault> {
        let index = self.next;
        let found = self.receive().await?;
        let fetched = &self.network.process.fetched;
        fetched.set(fetched.get() + 1);
        let world: &World = &self.network.fleet;
        match world.object(&self.object).filter(|_| world.has(Canary::Unverified)) {
            None => bytes.copy_from_slice(&found),
            Some(object) => {
                // It looks right, and is written as it came.
                let at = Bytes(index * BLOCK_LEN.0).as_usize();
                bytes.copy_from_slice(&object.bytes[at..at + bytes.len()]);
                let (mut right, mut found) = (bytes.to_vec(), found);
                let padded = Bytes::of(right.len()).align_up(DIRECT_ALIGN).as_usize();
                right.resize(padded, 0);
                found.resize(padded, 0);
                if right != found {
                    world.unverified.borrow_mut().insert(right, found);
                }
            }
        }
        Ok(())
    }

    fn finish(self) {}
}

impl Place {
    /// Siblings as control names them, then the origin, unless control says that a master fetches
    /// it first, and for how long to wait.
    async fn find(network: &Network, object: ObjectId) -> (Vec<Self>, Option<Nanos>) {
        let Network { fleet, process } = network;
        let asker: ApplianceId = process.machine.id.clone();
        let parties = (Party::Machine(process.machine.index), Party::Control);
        let control = Rc::clone(&fleet.control);
        let waited = process.change(|holdings| holdings.lacked_for(process.now(), object));
        let now = process.now();
        let first = *process.asked.borrow_mut().entry(object).or_insert(now);
        fleet.stage.must(waited <= now.since(first), || {
            format!("{asker} says that it has lacked {object} for {waited:?}")
        });
        let answer = move || control.sources(&asker, &object, waited);
        let told = fleet.ask(parties, ASK_MAX, answer).await;
        let Some(Told { siblings, reach, wait, .. }) = told else {
            return (vec![Self::Origin], None);
        };
        let machines = fleet.machines.borrow();
        let named = |of: &Named| machines.iter().find(|machine| machine.id == of.id).cloned();
        let siblings = siblings.iter().filter_map(named).map(Self::Sibling);
        let origin = (reach == Reach::Origin).then_some(Self::Origin);
        (siblings.chain(origin).collect(), wait)
    }

    fn party(&self) -> Party {
        match self {
            Self::Origin => Party::Origin,
            Self::Sibling(machine) => Party::Machine(machine.index),
        }
    }
}

/// The hashes of an object's blocks, if control answers.
async fn blocks_from_control(network: &Network, object: ObjectId) -> Option<Blocks> {
    let Network { fleet, process } = network;
    let parties = (Party::Machine(process.machine.index), Party::Control);
    let of = Rc::clone(fleet);
    let answer = move || {
        let known = of.control.is_up().then(|| of.object(&object)).flatten();
        known.map(|object| object.blocks.clone())
    };
    fleet.ask(parties, ASK_MAX, answer).await
}

impl Answer {
    /// Asks a place for a run of blocks.
    async fn open(
        network: &Network,
        place: &Place,
        object: ObjectId,
        first: u64,
        count: u64,
    ) -> Result<Self, SourceFault> {
        let world: &World = &network.fleet;
        let me = Party::Machine(network.process.machine.index);
        let asker = (&*network.process.machine, network.process.start_id);
        oracle::fetches(world, asker, &object, Bytes::ZERO);
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
                let sibling = network.fleet.process(machine).ok_or_else(unreachable_source)?;
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
        let network = network.clone();
        Ok(Self { network, place, object, next: first, end, start_id, breaks_at })
    }

    /// Reads the next block.
    async fn receive(&mut self) -> Result<Vec<u8>, SourceFault> {
        let world: Rc<World> = Rc::clone(&self.network.fleet);
        let index = self.next;
        self.next += 1;
        let (process, len) = (&self.network.process, world.object(&self.object));
        let len = len.map_or(Bytes::ZERO, |object| block_len(object.len(), index));
        oracle::fetches(&world, (&process.machine, process.start_id), &self.object, len);
        world.stage.sleep(world.stage.millis(1, 8)).await;
        if !world
            .is_connected(Party::Machine(self.network.process.machine.index), self.place.party())
        {
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
        let fleet = Rc::clone(&self.network.fleet);
        world.stage.spawn(machine.troupe.get(), async move {
            let sibling = fleet.process(&machine).filter(|process| process.start_id == start_id);
            told.put(read_of_sibling(sibling, object, index).await);
        });
        world.stage.at(WORLD, world.stage.now() + SILENCE_MAX, move || late.put(None));
        slot.await.ok_or(SourceFault::BrokeOff(Bytes(0)))
    }
}

async fn read_of_sibling(
    sibling: Option<Rc<Process>>,
    object: ObjectId,
    index: u64,
) -> Option<Vec<u8>> {
    let sibling = sibling?;
    let extent = sibling.locate(&object)?;
    let drive = sibling.drive(extent.drive)?;
    drive.read_for_sibling(&extent, index).await.ok()
}

/// Why a source failed, where it did not answer.
fn unreachable_source() -> SourceFault {
    SourceFault::Unreachable("simulated".to_owned())
}

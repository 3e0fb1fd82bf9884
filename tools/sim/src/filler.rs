//! A fill thread: takes a file at a time from the plan, an object or the objects of a unit, and
//! brings it from source to drive. The counterpart of `shell/appliance/src/filler.rs`.

use std::rc::Rc;

use fill::plan::Fetch;
use fill::transfer::{self, SourceFault, Transfer};
use holdings::Claim;
use iosched::drive::Class;
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::machine::Machine;
use model::object::{BLOCK_LEN, Blocks, block_count, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::parcel::{Parcel, PartId};
use store::publish::{self, Action, Fault, Outcome, Publication};

use crate::canary::Canary;
use crate::drive::{EIO, ENODEV, ENOSPC, Errno};
use crate::files::FileId;
use crate::opened::{Opened, blocks_without_table};
use crate::oracle;
use crate::process::Process;
use crate::source::{Answer, Place};
use crate::{chores, units};

const BOUNDS: transfer::Config = transfer::Config {
    range_len_max: Bytes::mib(1),
    block_tries_max: 4,
    rounds_max: 4,
    backoff_first: Nanos::millis(250),
    backoff_max: Nanos::seconds(5),
};

enum Ended {
    /// As much as could be had: all but this object, and what follows it.
    Published(Option<ObjectId>),
    /// Not now, for the sake of this object.
    Postponed(ObjectId),
    DriveFailed,
}

/// One file being filled.
struct Filling {
    process: Rc<Process>,
    drive: Rc<Opened>,
    claim: Claim,
    part: PartId,
    buffer: Vec<u8>,
    publication: Publication,
    /// None until the part file is there; and whether it was before.
    file: Option<(FileId, bool)>,
    /// None until the first of its objects has its turn.
    one: Option<One>,
}

/// The object that is fetched into it now.
struct One {
    fetch: Fetch,
    base: Bytes,
    places: Vec<Place>,
    transfer: Transfer,
    answer: Option<Answer>,
}

/// What came of a step.
enum Step {
    GoOn,
    /// The object that has its turn cannot be had now.
    GaveUp,
    Ended(Ended),
}

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>) {
    loop {
        let claim = process.claim_fetch().await;
        let Some(claim) = with_room(&process, claim).await else { continue };
        match fill(&process, &claim).await {
            Ended::Published(without) => {
                process.done(&claim, without.as_slice());
                if without.is_some() {
                    process.replan();
                }
            }
            Ended::DriveFailed => {
                let all: Vec<_> = claim.fetch.iter().map(|fetch| fetch.object).collect();
                process.done(&claim, &all);
                process.replan();
            }
            Ended::Postponed(object) => {
                process.say(|| format!("postpones {object}"));
                process.done(&claim, &[object]);
                if 1 < claim.fetch.len() {
                    process.replan();
                }
            }
        }
    }
}

/// As much of it as one drive has room for. None if that cannot be now.
async fn with_room(process: &Rc<Process>, claim: Claim) -> Option<Claim> {
    let parcel = claim.parcel();
    let most = process.spaces().iter().map(|space| space.free).max().unwrap_or(Bytes::ZERO);
    if claim.part.is_some() || parcel.file_len() <= most {
        return Some(claim);
    }
    for drive in process.all_answering() {
        if drive.drive.open(&parcel.file().0).await.is_ok() {
            return Some(claim);
        }
    }
    match parcel.fitting(most) {
        0 => Some(claim),
        count => process.shorten(claim, count),
    }
}

async fn fill(process: &Rc<Process>, claim: &Claim) -> Ended {
    let (parcel, first) = (claim.parcel(), claim.fetch[0].object);
    for drive in process.all_answering() {
        let found = drive.drive.open(&parcel.file().0).await.is_ok();
        let is_there = found
            && match &parcel {
                Parcel::Alone(object, _) => chores::adopt(process, &drive, *object).await,
                Parcel::Unit(directory) => units::take_up(process, &drive, directory.id()).await,
            };
        if is_there {
            return Ended::Published(None);
        }
    }
    let part = claim.part.map(|part| part.drive);
    if part.is_some_and(|index| process.answering(index).is_none()) {
        return Ended::Postponed(first);
    }
    let choose = || layout::choose(&process.spaces(), parcel.file_len()).drive;
    let Some(drive) = part.or_else(choose).and_then(|index| process.drive(index)) else {
        return Ended::Postponed(first);
    };
    if let Parcel::Unit(_) = parcel {
        process.world.count(|counts| counts.units += 1);
    }
    let filling = Filling {
        process: Rc::clone(process),
        claim: claim.clone(),
        part: parcel.part(),
        publication: Publication::new(parcel, drive.index),
        drive,
        buffer: Vec::new(),
        file: None,
        one: None,
    };
    filling.run().await
}

impl Filling {
    async fn run(mut self) -> Ended {
        let mut without = None;
        let ended = loop {
            match self.step().await {
                Step::GoOn => continue,
                Step::Ended(Ended::Published(_)) => break Ended::Published(without),
                Step::Ended(ended) => break ended,
                Step::GaveUp => {}
            }
            let object = self.claim.fetch[self.publication.whole()].object;
            if self.publication.whole() == 0 {
                break Ended::Postponed(object);
            }
            without = Some(object);
            self.publication.handle(publish::Event::Short);
        };
        let abandoned = matches!(self.publication.outcome(), Some(Outcome::Abandoned(_)));
        if abandoned || matches!(ended, Ended::Published(_)) {
            self.process.dropped_part(self.part, self.drive.index);
        }
        ended
    }

    async fn step(&mut self) -> Step {
        match self.publication.poll() {
            Some(Action::WriteTable { index, base, offset }) => {
                let Some(blocks) = self.begin(index, base).await else { return Step::GaveUp };
                let done = self.drive.write_table(self.file(), &blocks, offset).await;
                self.tell_publication(done.map(|()| publish::Event::Done));
                return Step::GoOn;
            }
            Some(action) => {
                let done = self.publish(action).await;
                self.tell_publication(done.map(|()| publish::Event::Done));
                return Step::GoOn;
            }
            None => {}
        }
        match self.publication.outcome() {
            Some(Outcome::Complete) => return Step::Ended(Ended::Published(None)),
            Some(Outcome::Abandoned(_)) => return Step::Ended(Ended::DriveFailed),
            None => {}
        }
        match self.one().transfer.poll() {
            Some(transfer::Action::GiveUp(_)) => return Step::GaveUp,
            Some(action) => self.transfer(action).await,
            None => self.go_on().await,
        }
        Step::GoOn
    }

    /// The next object has its turn, once the hashes of its blocks are known.
    async fn begin(&mut self, index: usize, base: Bytes) -> Option<Blocks> {
        let fetch = self.claim.fetch[index].clone();
        let (file, found) = self.file.expect("allocated before");
        let blocks = self.blocks(&fetch, file, base, found).await?;
        let places = Place::find(&self.process, fetch.object).await;
        let transfer = Transfer::new(BOUNDS, blocks.clone(), places.len(), found);
        let answer = None;
        let one = One { fetch, base, places, transfer, answer };
        self.one = Some(one);
        Some(blocks)
    }

    /// The hashes of an object's blocks: from the id, from the part file, or from control.
    async fn blocks(
        &self,
        fetch: &Fetch,
        file: FileId,
        base: Bytes,
        found: bool,
    ) -> Option<Blocks> {
        let (object, len) = (fetch.object, fetch.len);
        if block_count(len) < 2 {
            return blocks_without_table(object, len);
        }
        if found && let Ok(blocks) = self.drive.read_part_blocks(file, object, len, base).await {
            return Some(blocks);
        }
        crate::source::blocks_from_control(&self.process, object).await
    }

    /// Carries out a step of the publication.
    async fn publish(&mut self, action: Action) -> Result<(), Errno> {
        self.drive.check()?;
        let drive = Rc::clone(&self.drive.drive);
        let world = Rc::clone(&self.process.world);
        match action {
            Action::Allocate { file, len } => {
                self.file = Some(drive.allocate(&file.0, len.as_usize()).await?);
                self.process.set_part(self.part, Some(self.drive.index));
                if world.has(Canary::ShownEarly) {
                    self.show_early();
                }
                Ok(())
            }
            Action::WriteEnd { offset, pages } => {
                self.drive.write_end(self.file(), &pages, offset).await
            }
            Action::FlushFile if world.has(Canary::Unflushed) => Ok(()),
            Action::FlushFile if world.has(Canary::UnitUnflushed) && self.is_unit() => Ok(()),
            Action::FlushFile => self.drive.flush(self.file()).await,
            Action::Rename { from, to } => drive.rename(&from.0, &to.0).await,
            Action::SyncFolder(_) if world.has(Canary::FolderUnflushed) => Ok(()),
            Action::SyncFolder(folder) => drive.sync_folder(&folder.0).await,
            Action::Log(changes) => self.drive.log(&changes).await,
            Action::Show(objects) => {
                self.show(objects).await;
                Ok(())
            }
            Action::Unlink(file) => self.drive.unlink(&file.0).await,
            Action::WriteTable { .. } | Action::Hide(_) => {
                unreachable!("taken by the caller, or a step of a removal")
            }
        }
    }

    fn is_unit(&self) -> bool {
        matches!(self.publication.parcel(), Parcel::Unit(_))
    }

    async fn show(&self, objects: Vec<(ObjectId, Extent)>) {
        for (object, extent) in &objects {
            oracle::is_durable(&self.process, &self.drive, *object, extent);
            let small = extent.len <= SMALL_OBJECT_MAX && !self.is_unit();
            let bytes = small.then_some(&self.buffer[..]);
            self.process.publish(*object, extent.clone(), bytes);
        }
        if self.is_unit() {
            for (object, extent) in objects.iter().filter(|(_, e)| e.len <= SMALL_OBJECT_MAX) {
                chores::give_small(&self.process, &self.drive, *object, extent).await;
            }
        }
    }

    /// Carries out what the transfer asks for.
    async fn transfer(&mut self, action: transfer::Action) {
        match action {
            transfer::Action::Reread { index } => {
                self.buffer = self.reread(index).await;
                let bytes = std::mem::take(&mut self.buffer);
                self.tell(transfer::Event::Found { index, bytes: &bytes });
                self.buffer = bytes;
            }
            transfer::Action::Keep { .. } => self.count(),
            transfer::Action::Fetch { source, first, count } => {
                self.one().answer = None;
                let place = self.one().places[source].clone();
                let object = self.one().fetch.object;
                match Answer::open(&self.process, &place, object, first, count).await {
                    Ok(answer) => self.one().answer = Some(answer),
                    Err(fault) => self.tell(transfer::Event::Failed(fault)),
                }
            }
            transfer::Action::Write { index } => match self.write_block(index).await {
                Ok(()) => {
                    self.tell(transfer::Event::Written);
                    self.count();
                }
                Err(errno) => self.tell_publication(Err(errno)),
            },
            transfer::Action::Close => self.one().answer = None,
            transfer::Action::Distrust { .. } | transfer::Action::Complete => {}
            transfer::Action::GiveUp(_) => unreachable!("taken by the caller"),
        }
    }

    /// Nothing to do but to read on, or to wait.
    async fn go_on(&mut self) {
        let one = self.one.as_mut().expect("begun");
        let Some(answer) = &mut one.answer else {
            let deadline = one.transfer.deadline();
            let deadline = deadline.expect("without an answer a transfer waits for time");
            self.process.world.stage.sleep_until(deadline).await;
            self.tell(transfer::Event::Tick);
            return;
        };
        if answer.is_over() {
            one.answer = None;
            self.tell(transfer::Event::Ended);
            return;
        }
        let index = answer.at();
        match answer.read(&self.process).await {
            Ok(bytes) => {
                self.buffer = bytes;
                self.received(index);
            }
            Err(fault) => {
                one.answer = None;
                self.tell(transfer::Event::Failed(fault));
            }
        }
    }

    fn received(&mut self, index: u64) {
        let got = std::mem::take(&mut self.buffer);
        let object = self.one().fetch.object;
        let right = self.process.world.object(&object);
        let right = right.filter(|_| self.process.world.has(Canary::Unverified));
        let bytes = match &right {
            Some(object) => {
                let at = Bytes(index * BLOCK_LEN.0).as_usize();
                &object.bytes[at..at + block_len(object.len(), index).as_usize()]
            }
            None => &got[..],
        };
        self.tell(transfer::Event::Received { index, bytes });
        self.buffer = got;
    }

    async fn reread(&self, index: u64) -> Vec<u8> {
        let one = self.one.as_ref().expect("begun");
        let place = (one.base, one.fetch.len);
        match self.drive.read_block(Class::Scrub, self.file(), place, index).await {
            Ok(bytes) => bytes,
            Err(errno) => {
                let is_bad_place = errno == EIO
                    && self.process.object_failed(self.drive.index) == Verdict::SetObjectAside;
                if !is_bad_place && errno != crate::opened::SHORT {
                    self.process.drive_failed(self.drive.index, errno);
                }
                Vec::new()
            }
        }
    }

    /// Writes the block that is in the buffer, the last one with zeros up to a whole page.
    async fn write_block(&mut self, index: u64) -> Result<(), Errno> {
        self.drive.check()?;
        let len = self.buffer.len();
        let mut page = self.buffer.clone();
        page.resize(Bytes::of(len).align_up(DIRECT_ALIGN).as_usize(), 0);
        let at = self.one().base + Bytes(index * BLOCK_LEN.0);
        self.drive.write(self.file(), at, &page).await
    }

    /// One more block is verified and written.
    fn count(&mut self) {
        self.publication.handle(publish::Event::BlockWritten);
    }

    fn tell_publication(&mut self, result: Result<publish::Event, Errno>) {
        let event = result.unwrap_or_else(|errno| {
            self.process.drive_failed(self.drive.index, errno);
            publish::Event::Failed(fault_of(errno))
        });
        self.publication.handle(event);
    }

    fn tell(&mut self, event: transfer::Event<'_>) {
        let now = self.process.now();
        self.one().transfer.handle(now, event);
    }

    fn one(&mut self) -> &mut One {
        self.one.as_mut().expect("an object has its turn once the part file is there")
    }

    fn file(&self) -> FileId {
        self.file.expect("allocated before anything is written").0
    }

    fn show_early(&self) {
        for (object, entry) in self.publication.parcel().entries() {
            let file = self.part.file();
            let extent = Extent { file, ..entry.extent(&object, self.drive.index) };
            for worker in self.process.workers.borrow().iter() {
                let extent = extent.clone();
                worker.update(model::update::Update::Published { object, extent, small: None });
            }
        }
    }
}

/// What an error means for a publication.
pub(crate) fn fault_of(errno: Errno) -> Fault {
    match errno {
        EIO | ENODEV => Fault::SetAside,
        ENOSPC => Fault::Full,
        _ => Fault::Io,
    }
}

/// Why a source failed, where it did not answer.
pub(crate) fn unreachable_source() -> SourceFault {
    SourceFault::Unreachable("simulated".to_owned())
}

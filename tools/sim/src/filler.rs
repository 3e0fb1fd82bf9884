//! A fill thread: takes an object at a time from the plan and brings it from source to drive. The
//! counterpart of `shell/appliance/src/filler.rs`.

use std::rc::Rc;

use fill::plan::Fetch;
use fill::transfer::{self, SourceFault, Transfer};
use holdings::Claim;
use iosched::drive::Class;
use model::extent::DriveIndex;
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::object::{BLOCK_LEN, Blocks, block_count, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::publish::{self, Action, Fault, Outcome, Publication};

use crate::canary::Canary;
use crate::chores;
use crate::drive::{EIO, ENODEV, ENOSPC, Errno};
use crate::files::FileId;
use crate::opened::{Opened, blocks_without_table};
use crate::oracle;
use crate::process::Process;
use crate::source::{Answer, Place};

const BOUNDS: transfer::Config = transfer::Config {
    range_len_max: Bytes::mib(1),
    block_tries_max: 4,
    rounds_max: 4,
    backoff_first: Nanos::millis(250),
    backoff_max: Nanos::seconds(5),
};

enum Ended {
    Published,
    Postponed,
    DriveFailed,
}

/// One object being filled.
struct Filling {
    process: Rc<Process>,
    places: Vec<Place>,
    drive: Rc<Opened>,
    fetch: Fetch,
    blocks: Blocks,
    buffer: Vec<u8>,
    publication: Publication,
    transfer: Option<Transfer>,
    file: Option<FileId>,
    answer: Option<Answer>,
}

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>) {
    loop {
        let Claim { fetch, part } = process.claim_fetch().await;
        let object = fetch.object;
        match fill(&process, fetch, part.map(|part| part.drive)).await {
            Ended::Published => process.release(object),
            Ended::DriveFailed => {
                process.postpone(object);
                process.replan();
            }
            Ended::Postponed => {
                process.say(|| format!("postpones {object}"));
                process.postpone(object);
            }
        }
    }
}

async fn fill(process: &Rc<Process>, fetch: Fetch, part: Option<DriveIndex>) -> Ended {
    for drive in process.all_answering() {
        let name = layout::object_file(&fetch.object);
        let found = drive.drive.open(&name.0).await.is_ok();
        if found && chores::adopt(process, &drive, fetch.object).await {
            return Ended::Published;
        }
    }
    if part.is_some_and(|index| process.answering(index).is_none()) {
        return Ended::Postponed;
    }
    let part = part.and_then(|index| process.drive(index));
    let Some(blocks) = blocks(process, &fetch, part.as_deref()).await else {
        return Ended::Postponed;
    };
    let index = part.map(|drive| drive.index).or_else(|| {
        let need = layout::sections(fetch.len).file_len;
        layout::choose(&process.spaces(), need).drive
    });
    let Some(drive) = index.and_then(|index| process.drive(index)) else {
        return Ended::Postponed;
    };
    let places = Place::find(process, fetch.object).await;
    let filling = Filling {
        process: Rc::clone(process),
        places,
        publication: Publication::new(fetch.object, fetch.len, drive.index),
        drive,
        fetch,
        blocks,
        buffer: Vec::new(),
        transfer: None,
        file: None,
        answer: None,
    };
    filling.run().await
}

/// The hashes of the object's blocks: from the id, from its part file, or from control.
async fn blocks(process: &Rc<Process>, fetch: &Fetch, part: Option<&Opened>) -> Option<Blocks> {
    let (object, len) = (fetch.object, fetch.len);
    if block_count(len) < 2 {
        return blocks_without_table(object, len);
    }
    if let Some(drive) = part
        && let Ok(blocks) = drive.read_part_blocks(object, len).await
    {
        return Some(blocks);
    }
    crate::source::blocks_from_control(process, object).await
}

impl Filling {
    async fn run(mut self) -> Ended {
        let ended = loop {
            if let Some(action) = self.publication.poll() {
                let done = self.publish(action).await;
                self.tell_publication(done.map(|()| publish::Event::Done));
                continue;
            }
            match self.publication.outcome() {
                Some(Outcome::Complete) => break Ended::Published,
                Some(Outcome::Abandoned(_)) => break Ended::DriveFailed,
                None => {}
            }
            let transfer = self.transfer.as_mut().expect("made with the part file, which is there");
            match transfer.poll() {
                Some(transfer::Action::GiveUp(_)) => break Ended::Postponed,
                Some(action) => self.transfer(action).await,
                None => self.go_on().await,
            }
        };
        let abandoned = matches!(self.publication.outcome(), Some(Outcome::Abandoned(_)));
        if abandoned {
            self.process.set_part(self.fetch.object, None);
        }
        ended
    }

    /// Carries out a step of the publication.
    async fn publish(&mut self, action: Action) -> Result<(), Errno> {
        self.drive.check()?;
        let drive = Rc::clone(&self.drive.drive);
        let world = Rc::clone(&self.process.world);
        match action {
            Action::Allocate { file, len } => {
                let (file, found) = drive.allocate(&file.0, len.as_usize()).await?;
                self.file = Some(file);
                let (blocks, sources) = (self.blocks.clone(), self.places.len());
                self.transfer = Some(Transfer::new(BOUNDS, blocks, sources, found));
                self.process.set_part(self.fetch.object, Some(self.drive.index));
                if world.has(Canary::ShownEarly) {
                    self.show_early();
                }
                Ok(())
            }
            Action::WriteTable { offset } => {
                if layout::sections(self.fetch.len).table_len == Bytes::ZERO {
                    return Ok(());
                }
                let mut table: Vec<u8> =
                    self.blocks.hashes().iter().flat_map(|hash| hash.0).collect();
                table.resize(table.len().next_multiple_of(4096), 0);
                self.drive.write(self.file(), offset, &table).await
            }
            Action::WriteFooter { offset, footer } => {
                self.drive.write(self.file(), offset, &footer.encode()).await
            }
            Action::FlushFile if world.has(Canary::Unflushed) => Ok(()),
            Action::FlushFile => self.drive.flush(self.file()).await,
            Action::Rename { from, to } => drive.rename(&from.0, &to.0).await,
            Action::SyncFolder(_) if world.has(Canary::FolderUnflushed) => Ok(()),
            Action::SyncFolder(folder) => drive.sync_folder(&folder.0).await,
            Action::Log(change) => self.drive.log(change).await,
            Action::Show(extent) => {
                oracle::is_durable(&self.process, &self.drive, self.fetch.object);
                let small = extent.len <= SMALL_OBJECT_MAX;
                let bytes = small.then_some(&self.buffer[..]);
                self.process.publish(self.fetch.object, extent, bytes);
                Ok(())
            }
            Action::Unlink(file) => self.drive.unlink(&file.0).await,
            Action::Hide => unreachable!("a step of a removal, not of a publication"),
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
                self.answer = None;
                let place = self.places[source].clone();
                match Answer::open(&self.process, &place, self.fetch.object, first, count).await {
                    Ok(answer) => self.answer = Some(answer),
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
            transfer::Action::Close => self.answer = None,
            transfer::Action::Distrust { .. } | transfer::Action::Complete => {}
            transfer::Action::GiveUp(_) => unreachable!("taken by the caller"),
        }
    }

    /// Nothing to do but to read on, or to wait.
    async fn go_on(&mut self) {
        let Some(answer) = &mut self.answer else {
            let deadline = self.transfer.as_ref().and_then(Transfer::deadline);
            let deadline = deadline.expect("without an answer a transfer waits for time");
            self.process.world.stage.sleep_until(deadline).await;
            self.tell(transfer::Event::Tick);
            return;
        };
        if answer.is_over() {
            self.answer = None;
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
                self.answer = None;
                self.tell(transfer::Event::Failed(fault));
            }
        }
    }

    fn received(&mut self, index: u64) {
        let got = std::mem::take(&mut self.buffer);
        let right = self.process.world.object(&self.fetch.object);
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
        match self.drive.read_block(Class::Scrub, self.file(), self.fetch.len, index).await {
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
        let at = Bytes(index * BLOCK_LEN.0);
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
        let transfer = self.transfer.as_mut().expect("made with the part file, which is there");
        transfer.handle(now, event);
    }

    fn file(&self) -> FileId {
        self.file.expect("allocated before anything is written")
    }

    fn show_early(&self) {
        let object: ObjectId = self.fetch.object;
        let extent = model::extent::Extent {
            drive: self.drive.index,
            file: layout::part_file(&object),
            offset: Bytes::ZERO,
            len: self.fetch.len,
        };
        for worker in self.process.workers.borrow().iter() {
            let extent = extent.clone();
            worker.update(model::update::Update::Published { object, extent, small: None });
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

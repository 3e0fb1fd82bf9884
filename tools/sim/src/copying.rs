//! Copies objects of one file to another, on the same drive or from drive to drive. The counterpart
//! of `shell/appliance/src/copying.rs`.

use std::rc::Rc;

use holdings::Doubt;
use iosched::drive::Class;
use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::object::{BLOCK_LEN, Blocks};
use model::units::{Bytes, Nanos};
use store::parcel::Parcel;
use store::publish::{Action, Event, Fault, Outcome, Publication};
use store::unit::Place;

use crate::canary::Canary;
use crate::drive::{EIO, ENOENT, Errno};
use crate::files::FileId;
use crate::filler::fault_of;
use crate::opened::{Opened, Wrong};
use crate::oracle;
use crate::process::Process;

/// How long the old file stays: workers hear of the new one after a microsecond.
pub(crate) const LINGER: Nanos = Nanos::millis(20);

/// What is copied: objects of one file.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) drive: &'a Opened,
    pub(crate) file: &'a FileName,
    pub(crate) places: &'a [Place],
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All are shown where they were to go.
    Copied,
    /// It came to nothing.
    Abandoned,
    /// So did it, and this object is not what it should be where it is.
    Doubted(ObjectId, Doubt),
}

/// Copies to a new file on this drive, as long as all is of use.
pub(crate) async fn copy(
    process: &Rc<Process>,
    from: Source<'_>,
    to: &Opened,
    is_of_use: &dyn Fn(&ObjectId) -> bool,
) -> Ended {
    let objects: Vec<_> = from.places.iter().map(|place| (place.object, place.len)).collect();
    let Some(parcel) = Parcel::new(&objects) else { return Ended::Abandoned };
    let has_room = |(_, free): (Bytes, Bytes)| parcel.file_len() <= free;
    if !to.drive.space().is_ok_and(has_room) {
        return Ended::Abandoned;
    }
    let publication = Publication::new(parcel, to.index);
    let (source, file, one, is_shown) = (None, None, None, false);
    Copying { process, from, to, is_of_use, publication, source, file, one, is_shown }.run().await
}

/// Why a step failed.
enum Failure {
    /// The drive that it goes to.
    To(Errno),
    /// The file that it comes from.
    Source(Errno),
    /// A block of the file that it comes from is wrong.
    SourceWrong,
    /// What was written is not what is read.
    CopyWrong,
    /// Nobody wants it any more, or a drive does not answer.
    Interrupted,
}

struct Copying<'a> {
    process: &'a Rc<Process>,
    from: Source<'a>,
    to: &'a Opened,
    is_of_use: &'a dyn Fn(&ObjectId) -> bool,
    publication: Publication,
    source: Option<FileId>,
    file: Option<FileId>,
    /// The object that is copied now: where in the new file it begins, its blocks, and the next.
    one: Option<(Bytes, Blocks, u64)>,
    is_shown: bool,
}

impl Copying<'_> {
    async fn run(mut self) -> Ended {
        let mut ended = Ended::Abandoned;
        loop {
            let (done, event) = if let Some(action) = self.publication.poll() {
                (self.step(action).await, Event::Done)
            } else if let Some(outcome) = self.publication.outcome() {
                if outcome == Outcome::Complete && self.is_shown {
                    return Ended::Copied;
                }
                self.leave_part();
                return ended;
            } else {
                (self.block().await, Event::BlockWritten)
            };
            let event = match done {
                Ok(()) => event,
                Err(failure) => {
                    let fault = self.fault_of(&failure);
                    let meaning = self.judge(&failure);
                    if ended == Ended::Abandoned {
                        ended = meaning;
                    }
                    Event::Failed(fault)
                }
            };
            self.publication.handle(event);
        }
    }

    async fn step(&mut self, action: Action) -> Result<(), Failure> {
        let (to, drive) = (self.to, &self.to.drive);
        to.check().map_err(Failure::To)?;
        let has = |canary| self.process.world.has(canary);
        let done = match action {
            Action::Allocate { file, len } => {
                let made = drive.allocate(&file.0, len.as_usize()).await;
                made.map(|(made, _)| self.file = Some(made))
            }
            Action::WriteTable { index, base, offset } => {
                let blocks = self.begin(index, base).await?;
                to.write_table(self.file(), &blocks, offset).await
            }
            Action::WriteEnd { offset, pages } => to.write_end(self.file(), &pages, offset).await,
            Action::FlushFile => {
                if !has(Canary::CopyUnflushed) {
                    to.flush(self.file()).await.map_err(Failure::To)?;
                }
                return self.read_back().await;
            }
            Action::Rename { from, to } => drive.rename(&from.0, &to.0).await,
            Action::SyncFolder(folder) => drive.sync_folder(&folder.0).await,
            Action::Log(changes) => to.log(&changes).await,
            Action::Show(objects) => {
                self.is_shown = objects.into_iter().all(|(object, extent)| {
                    oracle::is_durable(self.process, to, object, &extent);
                    self.process.relocate(object, extent)
                });
                Ok(())
            }
            Action::Unlink(file) => to.unlink(&file.0).await,
            Action::Hide(_) => unreachable!("a step of a removal, not of a publication"),
        };
        done.map_err(Failure::To)
    }

    /// The next object has its turn; what its blocks are.
    async fn begin(&mut self, index: usize, base: Bytes) -> Result<Blocks, Failure> {
        let place = self.from.places[index];
        self.go_on(&place.object)?;
        let (drive, file) = (self.from.drive.index, self.from.file.clone());
        let extent = Extent { drive, file, offset: place.offset, len: place.len };
        let blocks = match self.from.drive.read_blocks(place.object, &extent).await {
            Ok(blocks) if blocks.id() == place.object && blocks.len() == place.len => blocks,
            Err(Wrong::Drive(errno)) => return Err(Failure::Source(errno)),
            Ok(_) | Err(Wrong::Content) => return Err(Failure::SourceWrong),
        };
        if self.source.is_none() {
            let opened = self.from.drive.drive.open(&extent.file.0).await;
            self.source = Some(opened.map_err(Failure::Source)?);
        }
        self.one = Some((base, blocks.clone(), 0));
        Ok(blocks)
    }

    /// Copies a block.
    async fn block(&mut self) -> Result<(), Failure> {
        let place = self.from.places[self.publication.whole()];
        self.go_on(&place.object)?;
        let (base, blocks, next) = self.one.as_mut().expect("begun with its table");
        let (index, at) = (*next, *base + Bytes(*next * BLOCK_LEN.0));
        let source = self.source.expect("opened for the first");
        let of = (place.offset, place.len);
        let read = self.from.drive.read_block(Class::Scrub, source, of, index).await;
        let mut bytes = read.map_err(Failure::Source)?;
        if !blocks.verify(index, &bytes) {
            return Err(Failure::SourceWrong);
        }
        *next += 1;
        bytes.resize(bytes.len().next_multiple_of(4096), 0);
        self.to.check().map_err(Failure::To)?;
        self.to.write(self.file(), at, &bytes).await.map_err(Failure::To)
    }

    /// Reads all of the copy again.
    async fn read_back(&self) -> Result<(), Failure> {
        for (object, entry) in self.publication.parcel().entries() {
            let read = self.to.read_part_blocks(self.file(), object, entry.len, entry.offset);
            let blocks = match read.await {
                Ok(blocks) => blocks,
                Err(Wrong::Drive(errno)) => return Err(Failure::To(errno)),
                Err(Wrong::Content) => return Err(Failure::CopyWrong),
            };
            for index in 0..Bytes::of(blocks.hashes().len()).0 {
                self.go_on(&object)?;
                let of = (entry.offset, entry.len);
                let read = self.to.read_block(Class::Scrub, self.file(), of, index);
                if !blocks.verify(index, &read.await.map_err(Failure::To)?) {
                    return Err(Failure::CopyWrong);
                }
            }
        }
        Ok(())
    }

    fn go_on(&self, object: &ObjectId) -> Result<(), Failure> {
        self.to.check().map_err(Failure::To)?;
        let answers = |drive: &Opened| self.process.answering(drive.index).is_some();
        let goes_on = (self.is_of_use)(object) && answers(self.from.drive) && answers(self.to);
        if goes_on { Ok(()) } else { Err(Failure::Interrupted) }
    }

    fn fault_of(&self, failure: &Failure) -> Fault {
        match failure {
            Failure::To(errno) => fault_of(*errno),
            Failure::Interrupted if self.process.answering(self.to.index).is_none() => {
                Fault::SetAside
            }
            Failure::Source(_)
            | Failure::SourceWrong
            | Failure::CopyWrong
            | Failure::Interrupted => Fault::Io,
        }
    }

    fn judge(&self, failure: &Failure) -> Ended {
        let doubt =
            |doubt| Ended::Doubted(self.from.places[self.publication.whole()].object, doubt);
        match failure {
            Failure::To(errno) => self.process.drive_failed(self.to.index, *errno),
            Failure::Source(EIO) => return doubt(Doubt::Unreadable(String::new())),
            Failure::Source(ENOENT) | Failure::SourceWrong => return doubt(Doubt::Suspect),
            Failure::Source(errno) => self.process.drive_failed(self.from.drive.index, *errno),
            Failure::CopyWrong | Failure::Interrupted => {}
        }
        Ended::Abandoned
    }

    /// What could not be taken away is dropped by a plan.
    fn leave_part(&self) {
        let part = self.publication.parcel().part();
        let is_left = self.to.drive.with_files(|files| files.find(&part.file().0).is_some());
        if is_left && !self.to.is_aside() {
            self.process.set_part(part, Some(self.to.index));
        }
    }

    fn file(&self) -> FileId {
        self.file.expect("allocated before anything is written")
    }
}

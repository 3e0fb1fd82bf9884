//! Copies objects of one file to another, on the same drive or from drive to drive.
//!
//! ```text
//! each block: read, verified, written ──> flushed, all of it read back and verified ──> renamed,
//!   in the log of its drive ──> shown there, all in one step
//! ```
//!
//! Through the gates of both drives. What is copied from stays: workers may still open it for as
//! long as it takes them to read of the new place (`tiering::LINGER`), and who has it open reads
//! on. The caller has claimed all that is copied until it has removed what it was copied from.

use std::os::fd::OwnedFd;

use holdings::{Doubt, Part};
use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::Bytes;
use store::health::Verdict;
use store::parcel::Parcel;
use store::publish::{Action, Event, Fault, Outcome, Publication};
use store::unit::Place;

use crate::drives::{self, Drive, DriveError, ObjectFileError};
use crate::pages::Pages;
use crate::shared::Shared;

/// What is copied: objects of one file, in the order that they are to have.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) drive: &'a Drive,
    pub(crate) file: &'a FileName,
    /// Not empty. One is alone in its new file, several are a unit.
    pub(crate) places: &'a [Place],
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All are shown where they were to go.
    Copied,
    /// It came to nothing: what is left of it a plan drops.
    Abandoned,
    /// So did it, and this object is not what it should be where it is.
    Doubted(ObjectId, Doubt),
}

/// Copies to a new file on this drive. A stop ends it, so does a drive that does not answer, and
/// `is_of_use`, which is asked before each block of an object. `buffer` takes a block.
pub(crate) fn copy(
    shared: &Shared,
    from: Source<'_>,
    to: &Drive,
    is_of_use: &dyn Fn(&ObjectId) -> bool,
    buffer: &mut Pages,
) -> Ended {
    let objects: Vec<_> = from.places.iter().map(|place| (place.object, place.len)).collect();
    let Some(parcel) = Parcel::new(&objects) else { return Ended::Abandoned };
    if to.space().free < parcel.file_len() {
        return Ended::Abandoned;
    }
    let publication = Publication::new(parcel, to.index());
    let copying = Copying {
        shared,
        from,
        to,
        is_of_use,
        buffer,
        publication,
        source: None,
        file: None,
        one: None,
        is_left: false,
        is_shown: false,
    };
    copying.run()
}

/// Why a step failed.
enum Failure {
    /// The drive that it goes to.
    To(DriveError),
    /// The file that it comes from.
    Source(DriveError),
    /// A block of the file that it comes from is wrong.
    SourceWrong,
    /// What was written is not what is read.
    CopyWrong,
    /// All must stop, or nobody wants it any more, or a drive does not answer.
    Interrupted,
}

struct Copying<'a> {
    shared: &'a Shared,
    from: Source<'a>,
    to: &'a Drive,
    is_of_use: &'a dyn Fn(&ObjectId) -> bool,
    buffer: &'a mut Pages,
    publication: Publication,
    /// None until the first block hashes were read.
    source: Option<OwnedFd>,
    /// None until the part file is there.
    file: Option<OwnedFd>,
    /// The object that is copied now; none before the first.
    one: Option<One>,
    /// True while there is a part file.
    is_left: bool,
    is_shown: bool,
}

/// An object being copied.
struct One {
    /// Where in the new file it begins.
    base: Bytes,
    blocks: Blocks,
    /// The next block.
    next: u64,
}

impl Copying<'_> {
    fn run(mut self) -> Ended {
        let mut ended = Ended::Abandoned;
        loop {
            let (done, event) = if let Some(action) = self.publication.poll() {
                (self.step(action), Event::Done)
            } else if let Some(outcome) = self.publication.outcome() {
                if outcome == Outcome::Complete && self.is_shown {
                    return Ended::Copied;
                }
                self.leave_part();
                return ended;
            } else {
                (self.block(), Event::BlockWritten)
            };
            let event = match done {
                Ok(()) => event,
                Err(failure) => {
                    let fault = self.fault_of(&failure);
                    let meaning = self.judge(failure);
                    // What follows, as undoing may fail too, says no more of the object.
                    if ended == Ended::Abandoned {
                        ended = meaning;
                    }
                    Event::Failed(fault)
                }
            };
            self.publication.handle(event);
        }
    }

    /// Carries out a step of the publication.
    fn step(&mut self, action: Action) -> Result<(), Failure> {
        let to = self.to;
        to.check().map_err(Failure::To)?;
        let done = match action {
            Action::Allocate { file, len } => to.allocate(&file, len).map(|(fd, _)| {
                self.file = Some(fd);
                self.is_left = true;
            }),
            Action::WriteTable { index, base, offset } => {
                let blocks = self.begin(index, base)?;
                to.write_table(self.file(), &blocks, offset)
            }
            Action::WriteEnd { offset, pages } => to.write_end(self.file(), &pages, offset),
            Action::FlushFile => {
                to.flush(self.file()).map_err(Failure::To)?;
                return self.read_back();
            }
            Action::Rename { from, to: name } => {
                to.rename(&from, &name).map(|()| self.is_left = false)
            }
            Action::SyncFolder(folder) => to.sync_folder(&folder),
            Action::Log(changes) => to.log(&changes),
            Action::Show(objects) => {
                self.is_shown = self.shared.relocate_all(objects, to);
                Ok(())
            }
            Action::Unlink(file) => to.unlink(&file).map(|()| self.is_left = false),
            Action::Hide(_) => unreachable!("a step of a removal, not of a publication"),
        };
        done.map_err(Failure::To)
    }

    /// The next object has its turn; what its blocks are.
    fn begin(&mut self, index: usize, base: Bytes) -> Result<Blocks, Failure> {
        let place = self.from.places[index];
        self.go_on(&place.object)?;
        let (drive, file) = (self.from.drive, self.from.file);
        let (offset, len) = (place.offset, place.len);
        let extent = Extent { drive: drive.index(), file: file.clone(), offset, len };
        let blocks = match drive.read_blocks(place.object, &extent) {
            Ok(blocks) if blocks.id() == place.object && blocks.len() == len => blocks,
            Err(ObjectFileError::Drive(error)) => return Err(Failure::Source(error)),
            Ok(_) | Err(_) => return Err(Failure::SourceWrong),
        };
        if self.source.is_none() {
            self.source = Some(drive.open_read(file).map_err(Failure::Source)?);
        }
        self.one = Some(One { base, blocks: blocks.clone(), next: 0 });
        Ok(blocks)
    }

    /// Copies a block.
    fn block(&mut self) -> Result<(), Failure> {
        let place = self.from.places[self.publication.whole()];
        self.go_on(&place.object)?;
        let one = self.one.as_mut().expect("begun with its table");
        let (index, at) = (one.next, Bytes(one.next * BLOCK_LEN.0));
        let len = block_len(place.len, index);
        let bytes = &mut self.buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
        let source = self.source.as_ref().expect("opened for the first");
        self.from.drive.read(source, bytes, place.offset + at).map_err(Failure::Source)?;
        if !one.blocks.verify(index, &bytes[..len.as_usize()]) {
            return Err(Failure::SourceWrong);
        }
        bytes[len.as_usize()..].fill(0);
        one.next += 1;
        let file = self.file.as_ref().expect("allocated before");
        self.to.write(file, bytes, one.base + at).map_err(Failure::To)
    }

    /// Reads all of the copy again: the old file goes for its sake.
    fn read_back(&mut self) -> Result<(), Failure> {
        let parcel = self.publication.parcel().clone();
        for (object, entry) in parcel.entries() {
            let file = self.file.as_ref().expect("allocated before");
            let blocks = match self.to.read_part_blocks(file, object, entry.len, entry.offset) {
                Ok(blocks) => blocks,
                Err(ObjectFileError::Drive(error)) => return Err(Failure::To(error)),
                Err(_) => return Err(Failure::CopyWrong),
            };
            for index in 0..Bytes::of(blocks.hashes().len()).0 {
                self.go_on(&object)?;
                let len = block_len(entry.len, index);
                let at = entry.offset + Bytes(index * BLOCK_LEN.0);
                if !blocks.verify(index, self.read_copy(at, len)?) {
                    return Err(Failure::CopyWrong);
                }
            }
        }
        let (offset, end) = parcel.end();
        for (index, pages) in (0..).zip(end.chunks(BLOCK_LEN.as_usize())) {
            let at = offset + Bytes(index * BLOCK_LEN.0);
            if self.read_copy(at, Bytes::of(pages.len()))? != pages {
                return Err(Failure::CopyWrong);
            }
        }
        let len = drives::file_len(self.file(), &parcel.part().file()).map_err(Failure::To)?;
        if len == parcel.file_len() { Ok(()) } else { Err(Failure::CopyWrong) }
    }

    fn read_copy(&mut self, at: Bytes, len: Bytes) -> Result<&[u8], Failure> {
        let bytes = &mut self.buffer.bytes_mut()[..len.align_up(DIRECT_ALIGN).as_usize()];
        let file = self.file.as_ref().expect("allocated before anything is written");
        self.to.read(file, bytes, at).map_err(Failure::To)?;
        Ok(&self.buffer.bytes()[..len.as_usize()])
    }

    fn go_on(&self, object: &ObjectId) -> Result<(), Failure> {
        let now = self.shared.now();
        self.to.check().map_err(Failure::To)?;
        let goes_on = !self.shared.is_stopping()
            && (self.is_of_use)(object)
            && self.from.drive.answers(now)
            && self.to.answers(now);
        if goes_on { Ok(()) } else { Err(Failure::Interrupted) }
    }

    /// What a failure means for the publication of the copy.
    fn fault_of(&self, failure: &Failure) -> Fault {
        match failure {
            Failure::To(error) => error.fault,
            Failure::Interrupted if !self.to.answers(self.shared.now()) => Fault::SetAside,
            Failure::Source(_)
            | Failure::SourceWrong
            | Failure::CopyWrong
            | Failure::Interrupted => Fault::Io,
        }
    }

    /// What it means for the drives and for the object that has its turn.
    fn judge(&self, failure: Failure) -> Ended {
        let (shared, from, to) = (self.shared, self.from.drive, self.to);
        let doubt =
            |doubt| Ended::Doubted(self.from.places[self.publication.whole()].object, doubt);
        match failure {
            Failure::To(error) => shared.drive_failed(to, &error),
            Failure::Source(error) if error.is_one_place() => {
                return doubt(Doubt::Unreadable(error.to_string()));
            }
            Failure::Source(error) if error.is_missing() => return doubt(Doubt::Suspect),
            Failure::Source(error) => shared.drive_failed(from, &error),
            Failure::SourceWrong => return doubt(Doubt::Suspect),
            Failure::CopyWrong => {
                let text = "what was written there is not what is read";
                shared.note("drive", format!("{}: {text}", to.path().display()));
                if to.object_failed(shared.now()) == Verdict::SetDriveAside {
                    shared.set_drive_aside(to, text);
                }
            }
            Failure::Interrupted => {}
        }
        Ended::Abandoned
    }

    /// What could not be taken away is dropped by a plan, once the drive answers.
    fn leave_part(&self) {
        if self.is_left && self.to.set_aside_reason().is_none() {
            let part = Part { drive: self.to.index(), verified: Bytes::ZERO };
            self.shared.set_part(self.publication.parcel().part(), Some(part));
        }
    }

    fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("allocated before anything is written")
    }
}

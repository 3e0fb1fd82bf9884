//! Copies objects of one file to another, on the same drive or from drive to drive.
//!
//! ```text
//! each block: read, verified, written ──> flushed, all of it read back and verified ──> renamed,
//!   in the log of its drive ──> shown there, all in one step
//! ```
//!
//! Through the gates of both drives. The old file stays: workers may still open it for as long as
//! it takes them to hear of the new place (`Host::linger`), and readers that have it open read on.
//! The caller has claimed all that is copied until it has removed the old file.

use holdings::Doubt;
use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::Blocks;
use model::units::Bytes;
use store::health::Verdict;
use store::parcel::Parcel;
use store::unit::Place;

use crate::cause::{Cause, DriveError, Fault, ObjectFileError};
use crate::drive::{Drive, Files};
use crate::host::{FileOf, Host, Ledger, PagesOf};
use crate::publish::{self, Logged, Part};
use crate::read;
use crate::told::Told;

/// Objects of one file, in the order that they are to have.
pub struct Source<'a, D> {
    pub drive: &'a D,
    pub file: &'a FileName,
    /// Not empty. One is alone in its new file, several are a unit.
    pub places: &'a [Place],
}

/// How a copy ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All are shown where they were to go.
    Copied,
    /// It came to nothing: a part that is left is dropped by a plan.
    Abandoned,
    /// It came to nothing, and this object is not what it should be in the old file.
    Doubted(ObjectId, Doubt),
}

/// Copies to a new file on this drive. A stop ends it, so does a drive that does not answer, and
/// `is_of_use`, which is asked before each block of an object. `buffer` takes a block.
pub async fn copy<H: Host>(
    host: &H,
    from: Source<'_, H::Drive>,
    to: &H::Drive,
    is_of_use: &dyn Fn(&ObjectId) -> bool,
    buffer: &mut PagesOf<H>,
) -> Ended {
    let objects: Vec<_> = from.places.iter().map(|place| (place.object, place.len)).collect();
    let Some(parcel) = Parcel::new(&objects) else { return Ended::Abandoned };
    let is_same = to.index() == from.drive.index() && parcel.file() == *from.file;
    assert!(!is_same, "the old file goes after it was copied, and only that");
    if to.condition(|of| of.space.free) < parcel.file_len() {
        return Ended::Abandoned;
    }
    host.tell(Told::Copies(to, &parcel));
    let Ok(mut part) = Part::begin(host, to, parcel).await else { return Ended::Abandoned };
    let copying = Copying { host, from, to, is_of_use };
    match copying.run(&mut part, buffer).await {
        Ok(logged) => {
            let is_shown = publish::relocate(host, to, logged);
            if is_shown { Ended::Copied } else { Ended::Abandoned }
        }
        Err((place, failure)) => {
            let fault = copying.fault_of(&failure);
            let ended = copying.judge(place, failure).await;
            part.abandon(fault).await;
            ended
        }
    }
}

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

struct Copying<'a, H: Host> {
    host: &'a H,
    from: Source<'a, H::Drive>,
    to: &'a H::Drive,
    is_of_use: &'a dyn Fn(&ObjectId) -> bool,
}

impl<H: Host> Copying<'_, H> {
    /// A failure comes with the place of the object that had its turn.
    async fn run(
        &self,
        part: &mut Part<'_, H>,
        buffer: &mut PagesOf<H>,
    ) -> Result<Logged, (&Place, Failure)> {
        let mut source = None;
        for place in self.from.places {
            let copied = self.object(place, part, &mut source, buffer).await;
            copied.map_err(|failure| (place, failure))?;
        }
        assert!(part.whole() == self.from.places.len(), "each object of a copy has its place");
        let last = self.from.places.last().expect("a parcel is not empty");
        let of_all = |failure| (last, failure);
        let flushed = part.close().await.map_err(|error| of_all(Failure::To(error)))?;
        self.read_back(part, buffer).await.map_err(of_all)?;
        part.enter(flushed).await.map_err(|error| of_all(Failure::To(error)))
    }

    async fn object(
        &self,
        place: &Place,
        part: &mut Part<'_, H>,
        source: &mut Option<FileOf<H>>,
        buffer: &mut PagesOf<H>,
    ) -> Result<(), Failure> {
        self.go_on(&place.object)?;
        let blocks = self.blocks(place).await?;
        let source = match source {
            Some(source) => source,
            None => {
                let opened = self.from.drive.open(self.from.file).await;
                source.insert(opened.map_err(Failure::Source)?)
            }
        };
        part.write_table(&blocks).await.map_err(Failure::To)?;
        for index in 0..Bytes::of(blocks.hashes().len()).0 {
            self.go_on(&place.object)?;
            let at = (place.offset, place.len);
            let read = read::block(self.from.drive, source, at, index, buffer).await;
            let bytes = read.map_err(Failure::Source)?;
            if !blocks.verify(index, bytes) {
                return Err(Failure::SourceWrong);
            }
            let len = bytes.len();
            let padded = Bytes::of(len).align_up(DIRECT_ALIGN).as_usize();
            buffer[len..padded].fill(0);
            part.write_block(index, &buffer[..padded]).await.map_err(Failure::To)?;
        }
        Ok(())
    }

    /// The hashes of an object's blocks.
    async fn blocks(&self, place: &Place) -> Result<Blocks, Failure> {
        let (drive, file) = (self.from.drive, self.from.file.clone());
        let (offset, len) = (place.offset, place.len);
        let extent = Extent { drive: drive.index(), file, offset, len };
        match read::blocks(drive, place.object, &extent).await {
            Ok(blocks) if blocks.id() == place.object && blocks.len() == len => Ok(blocks),
            Err(ObjectFileError::Drive(error)) => Err(Failure::Source(error)),
            Ok(_) | Err(_) => Err(Failure::SourceWrong),
        }
    }

    /// Reads all of the copy again: the old file goes for its sake.
    async fn read_back(&self, part: &Part<'_, H>, buffer: &mut PagesOf<H>) -> Result<(), Failure> {
        let (to, parcel, file) = (self.to, part.parcel(), part.file());
        for (object, entry) in parcel.entries() {
            let place = (entry.offset, entry.len);
            let blocks = match read::table(to, file, object, place).await {
                Ok(blocks) => blocks,
                Err(ObjectFileError::Drive(error)) => return Err(Failure::To(error)),
                Err(_) => return Err(Failure::CopyWrong),
            };
            for index in 0..Bytes::of(blocks.hashes().len()).0 {
                self.go_on(&object)?;
                let read = read::block(to, file, place, index, buffer).await;
                if !blocks.verify(index, read.map_err(Failure::To)?) {
                    return Err(Failure::CopyWrong);
                }
            }
        }
        let (offset, end) = parcel.end();
        let mut found = <H::Drive as Files>::pages(Bytes::of(end.len()));
        assert!(found.len() == end.len(), "a file ends with whole pages");
        to.read(file, &mut found, offset).await.map_err(Failure::To)?;
        let len = to.len(file).await.map_err(Failure::To)?;
        let is_right = *found == end[..] && len == parcel.file_len();
        if is_right { Ok(()) } else { Err(Failure::CopyWrong) }
    }

    fn go_on(&self, object: &ObjectId) -> Result<(), Failure> {
        self.to.check().map_err(Failure::To)?;
        let goes_on = !self.host.is_stopping()
            && (self.is_of_use)(object)
            && self.host.answers(self.from.drive)
            && self.host.answers(self.to);
        if goes_on { Ok(()) } else { Err(Failure::Interrupted) }
    }

    /// What a failure means for the part file.
    fn fault_of(&self, failure: &Failure) -> Fault {
        match failure {
            Failure::To(error) => error.fault,
            Failure::Interrupted if !self.host.answers(self.to) => Fault::SetAside,
            Failure::Source(_)
            | Failure::SourceWrong
            | Failure::CopyWrong
            | Failure::Interrupted => Fault::Io,
        }
    }

    /// What it means for the drives and for the object that had its turn.
    async fn judge(&self, place: &Place, failure: Failure) -> Ended {
        let (host, from, to) = (self.host, self.from.drive, self.to);
        let object = place.object;
        match failure {
            Failure::To(error) => host.failed(to, &error).await,
            Failure::Source(error) if error.is_one_place() => {
                let (drive, file) = (from.index(), self.from.file.clone());
                let extent = Extent { drive, file, offset: place.offset, len: place.len };
                return Ended::Doubted(object, Doubt::Unreadable(extent, error.to_string()));
            }
            Failure::Source(error) if error.is_missing() => {
                return Ended::Doubted(object, Doubt::Suspect);
            }
            Failure::Source(error) => host.failed(from, &error).await,
            Failure::SourceWrong => return Ended::Doubted(object, Doubt::Suspect),
            Failure::CopyWrong => {
                host.tell(Told::Miswritten(to));
                if to.object_failed(host.now()) == Verdict::SetDriveAside {
                    host.set_aside(to, Cause::Miswritten).await;
                }
            }
            Failure::Interrupted => {}
        }
        Ended::Abandoned
    }
}

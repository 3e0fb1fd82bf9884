//! What becomes of a unit when less of it is wanted. The counterpart of
//! `shell/appliance/src/units.rs`.

use std::rc::Rc;

use holdings::{Doubt, FileStanding};
use iosched::drive::Class;
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::object::{BLOCK_LEN, Blocks};
use model::units::Bytes;
use store::parcel::Parcel;
use store::publish::{Action, Event, Fault, Outcome, Publication};
use store::unit::{self, Directory, Fate, Place, UnitId};

use crate::canary::Canary;
use crate::chores::{self, Adopted};
use crate::drive::{EIO, ENOENT};
use crate::files::FileId;
use crate::filler::fault_of;
use crate::opened::{Opened, Wrong};
use crate::oracle;
use crate::process::Process;

/// In which unit an object is held, if it is in one.
pub(crate) fn place(process: &Process, object: &ObjectId) -> Option<(DriveIndex, UnitId)> {
    let extent = process.locate(object)?;
    unit::of_file(&extent.file).map(|unit| (extent.drive, unit))
}

/// Lets go what is not wanted in a unit; false if that has to be tried again.
pub(crate) async fn settle(process: &Rc<Process>, drive: DriveIndex, unit: UnitId) -> bool {
    let Some(drive) = process.answering(drive) else { return false };
    let Some(directory) = directory(process, &drive, unit).await else { return false };
    let objects = ids(&directory);
    if !process.claim_all(&objects) {
        return false;
    }
    let is_wanted = |object: &ObjectId| process.is_wanted(object);
    let settled = keep_only(process, &drive, &directory, is_wanted).await;
    objects.iter().for_each(|object| process.release(*object));
    settled
}

/// Adopts what is wanted and held nowhere, then lets go what is not held.
pub(crate) async fn audit(process: &Rc<Process>, drive: &Rc<Opened>, unit: UnitId) {
    let Some(directory) = directory(process, drive, unit).await else { return };
    let file = unit::unit_file(&unit);
    let standing = |object: &ObjectId| process.standing(*object, drive.index, &file);
    let objects = ids(&directory);
    let is_unknown = objects.iter().any(|object| standing(object) == FileStanding::Unknown);
    if is_unknown || !process.claim_all(&objects) {
        return;
    }
    let is_missing = |object: &ObjectId| standing(object) == FileStanding::Missing;
    let adopted = chores::adopt_from(process, drive, &directory, is_missing).await;
    if adopted != Adopted::Interrupted {
        keep_only(process, drive, &directory, |_| true).await;
    }
    objects.iter().for_each(|object| process.release(*object));
}

/// Takes what a filler is about to fetch from a unit that is there already. True if something is
/// visible now. The caller has claimed all of it.
pub(crate) async fn take_up(process: &Rc<Process>, drive: &Rc<Opened>, unit: UnitId) -> bool {
    let Some(directory) = directory(process, drive, unit).await else { return false };
    let adopted = chores::adopt_from(process, drive, &directory, |_| true).await;
    if adopted != Adopted::Interrupted {
        keep_only(process, drive, &directory, |_| true).await;
    }
    adopted == Adopted::Some
}

fn ids(directory: &Directory) -> Vec<ObjectId> {
    directory.places().iter().map(|place| place.object).collect()
}

/// What a unit says that it holds. What is held in one that says nothing right is set aside, then
/// it goes.
async fn directory(process: &Rc<Process>, drive: &Opened, unit: UnitId) -> Option<Directory> {
    match drive.read_directory(unit).await {
        Ok(directory) => return Some(directory),
        Err(Wrong::Drive(ENOENT)) => {}
        Err(Wrong::Drive(EIO) | Wrong::Content) => {
            let is_here = |object: &&ObjectId| place(process, object) == Some((drive.index, unit));
            for object in drive.in_unit(unit).iter().filter(is_here) {
                chores::damaged(process, drive.index, *object).await;
            }
            let left = drive.in_unit(unit);
            if !left.iter().any(|object| is_here(&object)) && process.claim_all(&left) {
                let file = unit::unit_file(&unit);
                chores::remove(process, drive, &file, left.clone(), true).await;
                left.iter().for_each(|object| process.release(*object));
            }
        }
        Err(Wrong::Drive(errno)) => process.drive_failed(drive.index, errno),
    }
    None
}

/// Of what is held in a unit only what `choose` says stays. The caller has claimed all of it.
async fn keep_only(
    process: &Rc<Process>,
    drive: &Rc<Opened>,
    directory: &Directory,
    choose: impl Fn(&ObjectId) -> bool,
) -> bool {
    let unit = directory.id();
    let file = unit::unit_file(&unit);
    let is_here = |object: &ObjectId| {
        let here = |extent: Extent| extent.drive == drive.index && extent.file == file;
        choose(object) && process.locate(object).is_some_and(here)
    };
    let fate = directory.fate(is_here, |_| false);
    if drive.is_aside() {
        return false; // Nothing on it is held, and it may come back.
    }
    let is_copied = match &fate {
        Fate::Compact(live) => copy(process, drive, live, &file).await,
        Fate::Remove | Fate::Keep => false,
    };
    if fate == Fate::Remove || is_copied {
        return chores::remove(process, drive, &file, drive.in_unit(unit), true).await;
    }
    let mut useless = drive.in_unit(unit);
    useless.retain(|object| !is_here(object));
    chores::remove(process, drive, &file, useless, false).await
}

/// Copies objects of a unit to a file of theirs on the same drive, every block verified.
async fn copy(process: &Rc<Process>, drive: &Rc<Opened>, live: &[Place], from: &FileName) -> bool {
    let objects: Vec<_> = live.iter().map(|place| (place.object, place.len)).collect();
    let Some(parcel) = Parcel::new(&objects) else { return false };
    let has_room = |(_, free): (Bytes, Bytes)| parcel.file_len() <= free;
    if !drive.drive.space().is_ok_and(has_room) {
        return false;
    }
    let publication = Publication::new(parcel, drive.index);
    let (file, to, blocks) = (None, Bytes::ZERO, None);
    Copying { process, drive, live, from, publication, file, to, blocks }.run().await
}

/// Objects of a unit on their way to another file.
struct Copying<'a> {
    process: &'a Rc<Process>,
    drive: &'a Rc<Opened>,
    live: &'a [Place],
    from: &'a FileName,
    publication: Publication,
    file: Option<FileId>,
    /// Of the object that is copied: where it comes to, and what its blocks are.
    to: Bytes,
    blocks: Option<Blocks>,
}

impl Copying<'_> {
    async fn run(mut self) -> bool {
        loop {
            let done = match self.publication.poll() {
                Some(action) => self.step(action).await.map(|()| 0),
                None => match self.publication.outcome() {
                    Some(outcome) => return outcome == Outcome::Complete,
                    None => self.copy_blocks().await,
                },
            };
            match done {
                Ok(0) => self.publication.handle(Event::Done),
                Ok(count) => {
                    (0..count).for_each(|_| self.publication.handle(Event::BlockWritten));
                }
                Err(wrong) => self.publication.handle(Event::Failed(self.fault_of(wrong))),
            }
        }
    }

    async fn step(&mut self, action: Action) -> Result<(), Wrong> {
        self.drive.check()?;
        let drive = &self.drive.drive;
        let has = |canary| self.process.world.has(canary);
        match action {
            Action::Allocate { file, len } => {
                self.file = Some(drive.allocate(&file.0, len.as_usize()).await?.0);
            }
            Action::WriteTable { index, base, offset } => {
                let place = self.live[index];
                let blocks = self.drive.read_blocks(place.object, &self.old(&place)).await?;
                self.drive.write_table(self.file(), &blocks, offset).await?;
                (self.to, self.blocks) = (base, Some(blocks));
            }
            Action::WriteEnd { offset, pages } => {
                self.drive.write_end(self.file(), &pages, offset).await?;
            }
            Action::FlushFile if has(Canary::CopyUnflushed) => {}
            Action::FlushFile => self.drive.flush(self.file()).await?,
            Action::Rename { from, to } => drive.rename(&from.0, &to.0).await?,
            Action::SyncFolder(folder) => drive.sync_folder(&folder.0).await?,
            Action::Log(changes) => self.drive.log(&changes).await?,
            Action::Show(objects) => {
                for (object, extent) in objects {
                    oracle::is_durable(self.process, self.drive, object, &extent);
                    let is_copied = self.process.relocate(object, extent);
                    self.process.world.count(|counts| counts.copied += u64::from(is_copied));
                }
            }
            Action::Unlink(file) => self.drive.unlink(&file.0).await?,
            Action::Hide(_) => unreachable!("a step of a removal, not of a publication"),
        }
        Ok(())
    }

    /// Copies all blocks of an object, one at least, and says how many. One that is wrong ends it:
    /// who doubts objects looks then.
    async fn copy_blocks(&mut self) -> Result<usize, Wrong> {
        let place = self.live[self.publication.whole()];
        let blocks = self.blocks.as_ref().expect("read with the table");
        let from = self.drive.drive.open(&self.from.0).await?;
        for index in 0..Bytes::of(blocks.hashes().len()).0 {
            let of = (place.offset, place.len);
            let mut bytes = self.drive.read_block(Class::Scrub, from, of, index).await?;
            if !blocks.verify(index, &bytes) {
                return Err(Wrong::Content);
            }
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            let at = self.to + Bytes(index * BLOCK_LEN.0);
            self.drive.write(self.file(), at, &bytes).await?;
        }
        Ok(blocks.hashes().len())
    }

    fn fault_of(&self, wrong: Wrong) -> Fault {
        let object = self.live[self.publication.whole().min(self.live.len() - 1)].object;
        self.process.suspect(object, Doubt::Suspect);
        match wrong {
            Wrong::Content | Wrong::Drive(EIO) => Fault::Io,
            Wrong::Drive(errno) => {
                self.process.drive_failed(self.drive.index, errno);
                fault_of(errno)
            }
        }
    }

    fn old(&self, place: &Place) -> Extent {
        let (drive, file) = (self.drive.index, self.from.clone());
        Extent { drive, file, offset: place.offset, len: place.len }
    }

    fn file(&self) -> FileId {
        self.file.expect("allocated before anything is written")
    }
}

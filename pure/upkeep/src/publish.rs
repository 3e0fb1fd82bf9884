//! The steps by which a file of objects appears on a drive, and by which it goes.
//!
//! ```text
//! appear                                          after a power cut here, the next start finds
//!  Part::begin   part file, allocated whole       a part: filled further
//!  write_table   block hashes, at their place     the same; the table spares asking control again
//!  write_block   each after it was verified       a part: each block is verified again
//!    .           both for each object of the file
//!  close         footer, a unit's directory       the same: only the name makes it complete
//!                fdatasync                        the same
//!  enter         fill/x.part -> objects/ab/x      part or file, each whole
//!                fsync of objects/ab, of fill     a file not in the log: the audit adopts it
//!                one batch in the log, fdatasync  all its objects
//!  show          visible to viewers
//!
//! go (`remove`)
//!  hide          no new request finds them        the objects (they are still in the log)
//!  log           one batch, fdatasync             a file not in the log: the audit decides
//!  unlink        readers keep their open file     (the log is all if others are in the file)
//!  fsync         of its folder                    nothing
//! ```
//!
//! A file has one object, or is a unit; the steps are the same, and what is in one file appears
//! together. Types keep the order: `enter` takes what only `close` gives, and `show` what only
//! `enter` gives. Nothing is done to a drive that is set aside. Whoever fails in the middle calls
//! `abandon`, which gives the room back.

use holdings::Part as PartStanding;
use model::extent::{Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_count};
use model::units::Bytes;
use store::layout;
use store::log::{Change, Entry};
use store::parcel::{Parcel, PartId};

use crate::cause::{DriveError, Fault};
use crate::drive::{Drive, Files};
use crate::host::{FileOf, Host, Ledger};
use crate::told::Told;

/// A file on its way to its drive.
pub struct Part<'a, H: Host> {
    host: &'a H,
    drive: &'a H::Drive,
    file: FileOf<H>,
    /// Its name until it is entered.
    id: PartId,
    is_entered: bool,
    parcel: Parcel,
    entries: Vec<(ObjectId, Entry)>,
    /// It was there before, so that it may have good blocks.
    was_there: bool,
    /// Objects of which the table is written.
    begun: usize,
    /// Blocks that the last of them lacks. Invariant: zero before the next begins.
    blocks_left: u64,
}

/// Proof that all of a file is on its drive, under the name of a part.
#[derive(Debug)]
pub struct Flushed(());

/// Objects that are on their drive and in its log: these may be shown.
#[derive(Debug)]
pub struct Logged(Vec<(ObjectId, Extent)>);

impl<'a, H: Host> Part<'a, H> {
    /// Makes and allocates it, or goes on with one that is there. If that fails, nothing is left
    /// of it, and the drive was told.
    pub async fn begin(host: &'a H, drive: &'a H::Drive, parcel: Parcel) -> Result<Self, Fault> {
        let (id, len) = (parcel.part(), parcel.file_len());
        match while_in_use(drive, drive.allocate(&id.file(), len)).await {
            Ok((file, was_there)) => {
                host.tell(Told::Begun(drive, &parcel));
                let (entries, is_entered, begun, blocks_left) = (parcel.entries(), false, 0, 0);
                assert!(!entries.is_empty(), "a file has an object");
                Ok(Self {
                    host,
                    drive,
                    file,
                    id,
                    is_entered,
                    parcel,
                    entries,
                    was_there,
                    begun,
                    blocks_left,
                })
            }
            Err(error) => {
                host.failed(drive, &error).await;
                give_back(host, drive, (id, &id.file()), error.fault).await;
                Err(error.fault)
            }
        }
    }

    /// The open file.
    pub fn file(&self) -> &FileOf<H> {
        &self.file
    }

    /// What it will be, once it is whole.
    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// True if it was there before: then it may hold good blocks.
    pub fn was_there(&self) -> bool {
        self.was_there
    }

    /// Where in the file the next object begins, and how long it is.
    pub fn next_place(&self) -> (Bytes, Bytes) {
        assert!(self.begun < self.entries.len(), "an object of the file is still to come");
        let (_, entry) = self.entries[self.begun];
        (entry.offset, entry.len)
    }

    /// The next object begins: its table of block hashes, if it has one, zeros after it.
    pub async fn write_table(&mut self, blocks: &Blocks) -> Result<(), DriveError> {
        assert!(self.blocks_left == 0, "an object begins when the one before it is whole");
        let (base, len) = self.next_place();
        assert!(blocks.len() == len, "the hashes are those of this object");
        assert!(base.0.is_multiple_of(DIRECT_ALIGN.0), "objects begin where direct I/O may");
        let sections = layout::sections(len);
        if sections.table_len != Bytes::ZERO {
            let mut pages = <H::Drive as Files>::pages(sections.table_len);
            let places = pages.as_chunks_mut::<32>().0;
            assert!(blocks.hashes().len() <= places.len(), "the table has a place for each hash");
            for (hash, place) in blocks.hashes().iter().zip(places) {
                *place = hash.0;
            }
            let at = base + sections.table_offset;
            while_in_use(self.drive, self.drive.write(&self.file, &pages, at)).await?;
        } else {
            self.drive.check()?;
        }
        self.begun += 1;
        self.blocks_left = block_count(len);
        Ok(())
    }

    /// Writes a verified block of the object that has begun: `pages` are whole, zeros after its
    /// bytes.
    pub async fn write_block(&mut self, index: u64, pages: &[u8]) -> Result<(), DriveError> {
        assert!(0 < self.begun, "a block comes after the table of its object");
        let (_, entry) = self.entries[self.begun - 1];
        assert!(index < block_count(entry.len), "the next object's bytes stay as they are");
        let at = entry.offset + Bytes(index * BLOCK_LEN.0);
        while_in_use(self.drive, self.drive.write(&self.file, pages, at)).await?;
        self.keep_block();
        Ok(())
    }

    /// A block of the object that has begun was found in the file, and is right.
    pub fn keep_block(&mut self) {
        assert!(0 < self.blocks_left, "no block of an object is written twice");
        self.blocks_left -= 1;
    }

    /// True while the object that has begun is not whole.
    pub fn lacks_blocks(&self) -> bool {
        0 < self.blocks_left
    }

    /// True if some blocks of the object that has begun are there, and others are not.
    pub fn is_within_object(&self) -> bool {
        let lacks_some = |(_, entry): &(_, Entry)| self.blocks_left < block_count(entry.len);
        self.lacks_blocks() && self.entries[..self.begun].last().is_some_and(lacks_some)
    }

    /// Objects that are whole.
    pub fn whole(&self) -> usize {
        if self.blocks_left == 0 { self.begun } else { self.begun - 1 }
    }

    /// The rest of a unit cannot be had now: it ends after the objects that are whole, one at
    /// least, under a name of its own.
    pub fn shorten(&mut self) {
        assert!(!self.is_entered, "a file's name says what is in it");
        self.parcel = self.parcel.first(self.whole()).expect("one object at least is whole");
        self.entries = self.parcel.entries();
        (self.begun, self.blocks_left) = (self.entries.len(), 0);
    }

    /// Ends the file, cuts what is behind its end, and brings it to the drive.
    pub async fn close(&mut self) -> Result<Flushed, DriveError> {
        let is_whole = self.whole() == self.entries.len();
        assert!(is_whole, "the footer says that all blocks are there");
        let (drive, file) = (self.drive, &self.file);
        let (offset, bytes) = self.parcel.end();
        let is_end = offset + Bytes::of(bytes.len()) == self.parcel.file_len();
        assert!(is_end, "the footer is looked for at the end");
        let mut pages = <H::Drive as Files>::pages(Bytes::of(bytes.len()));
        pages.copy_from_slice(&bytes);
        while_in_use(drive, drive.write(file, &pages, offset)).await?;
        let end = self.parcel.file_len();
        if drive.len(file).await? != end {
            drive.cut(file, end).await?;
        }
        while_in_use(drive, drive.flush(file)).await?;
        Ok(Flushed(()))
    }

    /// Gives the file its final name and enters its objects in the log.
    pub async fn enter(&mut self, _: Flushed) -> Result<Logged, DriveError> {
        assert!(!self.is_entered, "a part is gone once it has its final name");
        let to = self.parcel.file();
        while_in_use(self.drive, self.drive.rename(&self.id.file(), &to)).await?;
        self.is_entered = true;
        enter(self.drive, &self.parcel, &self.entries).await
    }

    /// It comes to nothing: what is left of it goes, unless the drive is no longer used.
    pub async fn abandon(self, fault: Fault) {
        let name = if self.is_entered { self.parcel.file() } else { self.id.file() };
        give_back(self.host, self.drive, (self.id, &name), fault).await;
    }
}

/// Enters objects in the log that a complete file under its final name has: all of them verified.
/// The file was there before, perhaps with objects that are held: it is never removed here.
pub async fn adopt<D: Drive>(
    drive: &D,
    parcel: &Parcel,
    entries: &[(ObjectId, Entry)],
) -> Result<Logged, DriveError> {
    enter(drive, parcel, entries).await
}

/// Makes objects visible, all in one step: false, and none is, if their drive was set aside in the
/// meantime. `bytes` are those of a small object that is alone in its file.
pub fn show<H: Host>(host: &H, drive: &H::Drive, logged: Logged, bytes: Option<&[u8]>) -> bool {
    let is_one = bytes.is_none() || logged.0.len() == 1;
    assert!(is_one, "nobody is sent one object's bytes for another");
    host.tell(Told::Shows(drive, &logged.0));
    host.change(|holdings| {
        let is_in_use = !drive.is_aside();
        let are_claimed = logged.0.iter().all(|(object, _)| holdings.busy().contains(object));
        assert!(are_claimed, "nobody else fills what is being shown");
        if is_in_use {
            logged.0.into_iter().for_each(|(object, at)| holdings.publish(object, at, bytes));
        }
        is_in_use
    })
}

/// The same for objects that are shown elsewhere: they lie here from now on. The caller has claimed
/// them.
pub fn relocate<H: Host>(host: &H, drive: &H::Drive, logged: Logged) -> bool {
    host.tell(Told::Shows(drive, &logged.0));
    host.change(|holdings| {
        let is_in_use = !drive.is_aside();
        let are_claimed = logged.0.iter().all(|(object, _)| holdings.busy().contains(object));
        assert!(are_claimed, "nobody removes what is being copied");
        if is_in_use {
            logged.0.into_iter().for_each(|(object, at)| holdings.relocate(object, at));
        }
        is_in_use
    })
}

/// Takes objects of one file out of the index and off the log, and the file with them if they are
/// all that is held in it (`whole`). False if that failed. The caller has claimed them, and if
/// `whole` all in the file.
pub async fn remove<H: Host>(
    host: &H,
    drive: &H::Drive,
    file: &FileName,
    objects: &[ObjectId],
    whole: bool,
) -> bool {
    let are_claimed = host.ask(|holdings| objects.iter().all(|one| holdings.busy().contains(one)));
    assert!(are_claimed, "nobody fills what is being removed");
    host.tell(Told::Removes(drive, file, objects.len()));
    let removed = take_away(host, drive, file, objects, whole).await;
    if let Err(error) = &removed {
        host.failed(drive, error).await;
    }
    removed.is_ok()
}

async fn take_away<H: Host>(
    host: &H,
    drive: &H::Drive,
    file: &FileName,
    objects: &[ObjectId],
    whole: bool,
) -> Result<(), DriveError> {
    if !objects.is_empty() {
        drive.check()?;
        for object in objects {
            // The drive's log may have here an object that the index has elsewhere.
            let at = host.locate(object);
            if at.is_some_and(|at| at.drive == drive.index() && at.file == *file) {
                host.hide(*object);
            }
        }
        let changes: Vec<Change> = objects.iter().copied().map(Change::Removed).collect();
        while_in_use(drive, drive.log(&changes)).await?;
    }
    if whole {
        while_in_use(drive, drive.unlink(file)).await?;
        while_in_use(drive, drive.flush_folder(&layout::folder_of(file))).await?;
    }
    Ok(())
}

/// Removes a copy in a file of its own that the shared index does not speak of; false if it stays.
/// The caller has claimed the object.
pub async fn drop_copy<H: Host>(host: &H, drive: &H::Drive, object: ObjectId) -> bool {
    let file = layout::object_file(&object);
    host.tell(Told::Spare(drive, &file, object));
    // An entry in a unit is of another file.
    let logged = drive.entry(&object).filter(|entry| entry.unit.is_none()).map(|_| object);
    remove(host, drive, &file, logged.as_slice(), true).await
}

async fn enter<D: Drive>(
    drive: &D,
    parcel: &Parcel,
    entries: &[(ObjectId, Entry)],
) -> Result<Logged, DriveError> {
    assert!(!entries.is_empty(), "a file of which nothing is held goes instead");
    while_in_use(drive, drive.flush_folder(&parcel.folder())).await?;
    while_in_use(drive, drive.flush_folder(&FileName(layout::FILL.into()))).await?;
    let published = |(object, entry): &_| Change::Published(*object, *entry);
    let changes: Vec<Change> = entries.iter().map(published).collect();
    while_in_use(drive, drive.log(&changes)).await?;
    let extent =
        |(object, entry): &(ObjectId, Entry)| (*object, entry.extent(object, drive.index()));
    Ok(Logged(entries.iter().map(extent).collect()))
}

/// A file that came to nothing goes, unless its drive is no longer used. A part that stays is
/// dropped by a plan, once the drive answers.
async fn give_back<H: Host>(
    host: &H,
    drive: &H::Drive,
    (part, name): (PartId, &FileName),
    fault: Fault,
) {
    let mut is_left = *name == part.file();
    if fault != Fault::SetAside {
        match while_in_use(drive, drive.unlink(name)).await {
            Ok(()) => is_left = false,
            Err(error) => host.failed(drive, &error).await,
        }
    }
    if !is_left || drive.is_aside() {
        host.dropped_part(part, drive.index());
    } else {
        let standing = PartStanding { drive: drive.index(), verified: Bytes::ZERO };
        host.set_part(part, Some(standing));
    }
}

/// Takes a step, unless the drive was set aside: then nothing is done to it.
async fn while_in_use<D: Drive, T>(
    drive: &D,
    step: impl Future<Output = Result<T, DriveError>>,
) -> Result<T, DriveError> {
    drive.check()?;
    step.await
}

//! A drive that a process has opened: its index, and the forms of its files. The counterpart of
//! `shell/appliance/src/drives.rs`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

use iosched::drive::{Class, Config, Policy};
use iosched::gate::Gate;
use iosched::governor;
use iosched::tally::Slice;
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, BlockHash, Blocks, block_count, block_len};
use model::units::{Bytes, Instant, Nanos};
use store::health::{Health, Verdict};
use store::layout::{self, Footer};
use store::log::{self, Change, Entry, RECORD_LEN, Sequence};
use store::unit::{self, Directory, UnitId};

use crate::drive::{Drive, EIO, ENODEV, ENOENT, Errno};
use crate::files::FileId;
use crate::process::HEALTH;
use crate::server::{READ_TARGET, Server};
use crate::stage::Lock;

/// A drive in use, or that was until it failed.
pub(crate) struct Opened {
    pub(crate) index: DriveIndex,
    pub(crate) drive: Rc<Drive>,
    is_aside: Cell<bool>,
    /// Held while the log is written.
    writing: Lock,
    log: RefCell<Log>,
    /// Why the log could not be rewritten: who measures the drive says so, once.
    pub(crate) not_rewritten: Cell<Option<Errno>>,
    /// Where tasks have their turns on the drive; its reads are the workers' own.
    gate: RefCell<Gate>,
    readers: RefCell<Vec<Weak<Server>>>,
    /// Turns are not given back: a planted bug.
    keeps_turns: Cell<bool>,
}

/// Small numbers, so that somebody always waits.
const GATE: Config = Config {
    depth: 8,
    fill_depth: 2,
    queue_len_max: 64,
    target: READ_TARGET,
    scrub_rate: Bytes(50_000_000),
    deletes_alone: true,
    policy: Policy::Governed(governor::Config::MEASURED),
};
/// Objects that are read before a drive is used again.
const PROVED: usize = 5;
/// Who waits for a turn looks after it this often, if not sooner.
const LOOK_EVERY: Nanos = Nanos::millis(5);

#[derive(Clone)]
struct Log {
    file: FileId,
    len: usize,
    sequence: Sequence,
    entries: BTreeMap<ObjectId, Entry>,
}

/// Why an object's file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The drive failed.
    Drive(Errno),
    /// Its footer or its table.
    Content,
}

impl From<Errno> for Wrong {
    fn from(errno: Errno) -> Self {
        Self::Drive(errno)
    }
}

/// What an ordinary drive has after `format`.
pub(crate) fn format(drive: &Drive) {
    drive.with_files(|files| {
        let id = drive.id;
        for (name, bytes) in [
            (layout::MARKER, b"marker".to_vec()),
            (layout::SNAPSHOT, log::snapshot(id, Sequence(0), &BTreeMap::new())),
        ] {
            let file = files.create(name);
            files.write(file, 0, &bytes);
            files.flush(file);
        }
        files.sync_folder(".");
        files.sync_folder(layout::INDEX);
    });
}

impl Opened {
    /// Opens a formatted drive and loads its index.
    pub(crate) async fn open(drive: &Rc<Drive>, index: DriveIndex) -> Result<Rc<Self>, Errno> {
        drive.open(layout::MARKER).await?;
        let snapshot = read_small(drive, layout::SNAPSHOT).await?;
        let bytes = read_small(drive, layout::LOG).await?.unwrap_or_default();
        let replay = log::replay(drive.id, snapshot.as_deref(), &bytes);
        let file = drive.open_or_make(layout::LOG).await?;
        let mut log = Log {
            file,
            len: replay.log_len.as_usize(),
            sequence: replay.sequence,
            entries: replay.entries,
        };
        if replay.damage.is_some() {
            log.entries = walk(drive).await?;
            compact(drive, &mut log).await?;
        } else if replay.torn != Bytes::ZERO {
            drive.truncate(log.file, log.len).await?;
        }
        let drive = Rc::clone(drive);
        let gate = Gate::new(GATE, drive.stage().now());
        Ok(Rc::new(Self {
            index,
            drive,
            is_aside: Cell::new(false),
            writing: Lock::default(),
            log: RefCell::new(log),
            not_rewritten: Cell::new(None),
            gate: RefCell::new(gate),
            readers: RefCell::default(),
            keeps_turns: Cell::new(false),
        }))
    }

    /// These read from it.
    pub(crate) fn set_readers(&self, workers: &[Rc<Server>], keeps_turns: bool) {
        *self.readers.borrow_mut() = workers.iter().map(Rc::downgrade).collect();
        self.keeps_turns.set(keeps_turns);
    }

    /// Does something when it has a turn on the drive.
    async fn turn<T>(&self, class: Class, len: Bytes, deed: impl Future<Output = T>) -> T {
        let stage = self.drive.stage().clone();
        let turn = self.gate.borrow_mut().ask(stage.now(), class, len);
        let turn = turn.expect("there is room for all tasks");
        let ticket = loop {
            if self.is_aside() {
                break None;
            }
            let (now, slices) = (stage.now(), self.slices());
            let at = {
                let mut gate = self.gate.borrow_mut();
                gate.hear(now, slices);
                gate.advance(now);
                if let Some(ticket) = gate.taken(turn) {
                    break Some(ticket);
                }
                gate.look_at(now)
            };
            stage.sleep_until(at.min(now + LOOK_EVERY)).await;
        };
        let result = deed.await;
        if let Some(ticket) = ticket.filter(|_| !self.keeps_turns.get()) {
            self.gate.borrow_mut().complete(stage.now(), ticket);
        }
        result
    }

    fn slices(&self) -> Vec<Slice> {
        let readers = self.readers.borrow();
        let slice = |reader: &Weak<Server>| Some(reader.upgrade()?.slice(self.index));
        readers.iter().map(|reader| slice(reader).unwrap_or_default()).collect()
    }

    /// Writes, in turn.
    pub(crate) async fn write(&self, file: FileId, at: Bytes, bytes: &[u8]) -> Result<(), Errno> {
        let len = Bytes::of(bytes.len());
        self.turn(Class::Fill, len, self.drive.write(file, at, bytes)).await
    }

    /// Brings a file to the drive, in turn.
    pub(crate) async fn flush(&self, file: FileId) -> Result<(), Errno> {
        self.turn(Class::Fill, Bytes::ZERO, self.drive.flush(file)).await
    }

    /// Takes a name away, in turn.
    pub(crate) async fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.turn(Class::Delete, Bytes::ZERO, self.drive.unlink(name)).await
    }

    /// True if nothing is done to it any more.
    pub(crate) fn is_aside(&self) -> bool {
        self.is_aside.get()
    }

    /// Nothing is done to it from now on.
    pub(crate) fn set_aside(&self) {
        self.is_aside.set(true);
    }

    /// Rewrites the index, and reads from some objects: can it be written and read?
    pub(crate) async fn prove(&self) -> Result<(), Errno> {
        let _writing = self.writing.hold().await;
        let mut log = self.log.borrow().clone();
        compact(&self.drive, &mut log).await?;
        let some = log.entries.iter().take(PROVED);
        let some = some.map(|(object, entry)| (entry.extent(object, self.index), *object));
        // One of each file: a unit that cannot be read is one bad place.
        let some: BTreeMap<FileName, (Extent, ObjectId)> =
            some.map(|(extent, object)| (extent.file.clone(), (extent, object))).collect();
        *self.log.borrow_mut() = log;
        let mut health = Health::new(HEALTH);
        for (extent, object) in some.into_values() {
            match self.read_blocks(object, &extent).await {
                Err(Wrong::Drive(EIO)) => match health.object_failed(Instant(0)) {
                    Verdict::SetObjectAside => {}
                    Verdict::SetDriveAside => return Err(EIO),
                },
                Err(Wrong::Drive(errno)) if errno != ENOENT && errno != SHORT => return Err(errno),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Its objects.
    pub(crate) fn entries(&self) -> BTreeMap<ObjectId, Entry> {
        self.log.borrow().entries.clone()
    }

    /// Where its own index has the object.
    pub(crate) fn entry(&self, object: &ObjectId) -> Option<Entry> {
        self.log.borrow().entries.get(object).copied()
    }

    /// Of what a unit says that it holds, what its own index has there.
    pub(crate) fn held_in(&self, directory: &Directory) -> Vec<ObjectId> {
        let (mut objects, unit) = (directory.objects(), Some(directory.id()));
        objects.retain(|object| self.entry(object).is_some_and(|entry| entry.unit == unit));
        objects
    }

    /// What its own index has in a unit that does not say itself what it holds.
    pub(crate) fn in_unit(&self, unit: UnitId) -> Vec<ObjectId> {
        let log = self.log.borrow();
        let here = log.entries.iter().filter(|(_, entry)| entry.unit == Some(unit));
        here.map(|(object, _)| *object).collect()
    }

    /// Bytes of objects that it holds.
    pub(crate) fn held(&self) -> Bytes {
        Bytes(self.log.borrow().entries.values().map(|entry| entry.len.0).sum())
    }

    /// True while its marker can be found.
    pub(crate) fn has_marker(&self) -> bool {
        self.drive.with_files(|files| files.find(layout::MARKER).is_some())
    }

    /// Fails if it is set aside: nothing is done to it any more.
    pub(crate) fn check(&self) -> Result<(), Errno> {
        if self.is_aside() { Err(ENODEV) } else { Ok(()) }
    }

    /// Appends a batch to the log and brings it to the drive; rewrites it if it has grown long.
    pub(crate) async fn log(&self, changes: &[Change]) -> Result<(), Errno> {
        let _writing = self.writing.hold().await;
        let mut log = self.log.borrow().clone();
        let records = log::encode_batch(self.drive.id, log.sequence, changes);
        let written = self.drive.write(log.file, Bytes::of(log.len), &records).await;
        let written = match written {
            Ok(()) => self.drive.flush(log.file).await,
            Err(errno) => Err(errno),
        };
        if let Err(errno) = written {
            // Half a record must not stay before the next one.
            self.drive.truncate(log.file, log.len).await?;
            return Err(errno);
        }
        log.len += records.len();
        log.sequence = Sequence(log.sequence.0 + Bytes::of(changes.len()).0);
        changes.iter().for_each(|change| log::apply(&mut log.entries, *change));
        *self.log.borrow_mut() = log.clone();
        let records = Bytes::of(log.len / RECORD_LEN).0;
        // Far earlier than `log::compaction_is_due` says, so that it happens.
        if log::compaction_is_due(records * 150, log.entries.len()) {
            let result = compact(&self.drive, &mut log).await;
            *self.log.borrow_mut() = log;
            // What was appended counts whatever came of this; who measures the drive says so.
            self.not_rewritten.set(result.err());
        }
        Ok(())
    }

    /// What the file of an object that is alone says of itself.
    pub(crate) async fn read_footer(&self, file: &FileName) -> Result<Footer, Wrong> {
        let read = async {
            let file = self.drive.open(&file.0).await?;
            read_footer(&self.drive, file).await
        };
        self.turn(Class::Scrub, DIRECT_ALIGN, read).await
    }

    /// What a unit says that it holds; it is the unit that was asked for.
    pub(crate) async fn read_directory(&self, unit: UnitId) -> Result<Directory, Wrong> {
        let read = read_directory(&self.drive, unit);
        self.turn(Class::Scrub, DIRECT_ALIGN, read).await
    }

    /// The hashes of the blocks of what lies there, proved. In a file of its own, that is what the
    /// file says that it is; in a unit, `object`.
    pub(crate) async fn read_blocks(
        &self,
        object: ObjectId,
        extent: &Extent,
    ) -> Result<Blocks, Wrong> {
        let read = async {
            let file = self.drive.open(&extent.file.0).await?;
            if unit::of_file(&extent.file).is_some() {
                return read_table(&self.drive, file, object, extent.len, extent.offset).await;
            }
            let footer = read_footer(&self.drive, file).await?;
            read_table(&self.drive, file, footer.object, footer.len, Bytes::ZERO).await
        };
        self.turn(Class::Scrub, DIRECT_ALIGN, read).await
    }

    /// The hashes of an object's blocks from a part file in which it begins at `base`, if its table
    /// was written.
    pub(crate) async fn read_part_blocks(
        &self,
        file: FileId,
        object: ObjectId,
        len: Bytes,
        base: Bytes,
    ) -> Result<Blocks, Wrong> {
        let read = read_table(&self.drive, file, object, len, base);
        self.turn(Class::Scrub, DIRECT_ALIGN, read).await
    }

    /// Writes an object's table of block hashes, if it has one.
    pub(crate) async fn write_table(
        &self,
        file: FileId,
        blocks: &Blocks,
        at: Bytes,
    ) -> Result<(), Errno> {
        if layout::sections(blocks.len()).table_len == Bytes::ZERO {
            return Ok(());
        }
        let mut table: Vec<u8> = blocks.hashes().iter().flat_map(|hash| hash.0).collect();
        table.resize(table.len().next_multiple_of(4096), 0);
        self.write(file, at, &table).await
    }

    /// Writes the pages that end a file, and cuts what is behind them.
    pub(crate) async fn write_end(
        &self,
        file: FileId,
        pages: &[u8],
        at: Bytes,
    ) -> Result<(), Errno> {
        self.write(file, at, pages).await?;
        let end = at.as_usize() + pages.len();
        self.drive.with_files(|files| files.resize(file, end));
        Ok(())
    }

    /// Reads one block of an object; an end of the file before that is an error.
    pub(crate) async fn read_block(
        &self,
        class: Class,
        file: FileId,
        (base, object_len): (Bytes, Bytes),
        block: u64,
    ) -> Result<Vec<u8>, Errno> {
        let len = block_len(object_len, block);
        let padded = len.align_up(DIRECT_ALIGN);
        let at = base + Bytes(block * BLOCK_LEN.0);
        let read = self.drive.read(file, at, padded, <[u8]>::to_vec);
        let mut bytes = self.turn(class, padded, read).await?;
        if bytes.len() < len.as_usize() {
            return Err(SHORT);
        }
        bytes.truncate(len.as_usize());
        Ok(bytes)
    }

    /// The blocks of an object that lies there if all are right; none if one is not.
    pub(crate) async fn verified(
        &self,
        object: ObjectId,
        extent: &Extent,
    ) -> Result<Option<Blocks>, Errno> {
        let blocks = match self.read_blocks(object, extent).await {
            Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
            Err(Wrong::Drive(errno)) => return Err(errno),
            Ok(_) | Err(Wrong::Content) => return Ok(None),
        };
        let file = self.drive.open(&extent.file.0).await?;
        for index in 0..Bytes::of(blocks.hashes().len()).0 {
            let place = (extent.offset, extent.len);
            let bytes = self.read_block(Class::Scrub, file, place, index).await?;
            if !blocks.verify(index, &bytes) {
                return Ok(None);
            }
        }
        Ok(Some(blocks))
    }
}

/// A file ended too early: none of the kernel's.
pub(crate) const SHORT: Errno = 0;

async fn read_small(drive: &Drive, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    match drive.open(name).await {
        Ok(file) => drive.read_all(file).await.map(Some),
        Err(ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

async fn compact(drive: &Drive, log: &mut Log) -> Result<(), Errno> {
    let snapshot = log::snapshot(drive.id, log.sequence, &log.entries);
    replace(drive, layout::SNAPSHOT, &snapshot).await?;
    let cut = drive.truncate(log.file, 0).await;
    log.len = drive.with_files(|files| files.len(log.file));
    cut
}

async fn replace(drive: &Drive, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    let aside = format!("{name}.new");
    let file = drive.open_or_make(&aside).await?;
    drive.with_files(|files| files.resize(file, 0));
    drive.write(file, Bytes(0), bytes).await?;
    drive.flush(file).await?;
    drive.rename(&aside, name).await?;
    drive.sync_folder(name.rsplit_once('/').map_or(".", |(folder, _)| folder)).await
}

/// The objects of a drive by its files alone.
async fn walk(drive: &Drive) -> Result<BTreeMap<ObjectId, Entry>, Errno> {
    let mut directories = Vec::new();
    for unit in units(drive) {
        match read_directory(drive, unit).await {
            Ok(directory) => directories.push(directory),
            Err(Wrong::Drive(ENODEV)) => return Err(ENODEV),
            Err(_) => {}
        }
    }
    let mut entries = BTreeMap::new();
    for (object, (unit, place)) in unit::recover(&directories) {
        let entry = Entry { unit: Some(unit), offset: place.offset, len: place.len };
        entries.insert(object, entry);
    }
    for object in names(drive) {
        let file = drive.open(&layout::object_file(&object).0).await?;
        let blocks = match read_footer(drive, file).await {
            Ok(footer) => read_table(drive, file, footer.object, footer.len, Bytes::ZERO).await,
            Err(wrong) => Err(wrong),
        };
        match blocks {
            Ok(blocks) if blocks.id() == object => {
                entries.insert(object, Entry::alone(blocks.len()));
            }
            Err(Wrong::Drive(ENODEV)) => return Err(ENODEV),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(entries)
}

/// Names of objects that are alone on a drive, from one look at all folders: 256 listings cost more
/// than they show.
pub(crate) fn names(drive: &Drive) -> Vec<ObjectId> {
    drive.with_files(|files| {
        let folders = layout::object_folders();
        let names = folders.flat_map(|folder| files.list(&folder.0));
        names.filter_map(|name| name.parse().ok()).collect()
    })
}

/// Names of units on a drive.
pub(crate) fn units(drive: &Drive) -> Vec<UnitId> {
    let names = drive.with_files(|files| files.list(unit::UNITS));
    names.iter().filter_map(|name| unit::parse_name(name)).collect()
}

/// Every object that lies on a drive, held or not, and where: alone, or by what units say.
pub(crate) fn places(drive: &Drive) -> Vec<(ObjectId, FileName, Bytes)> {
    let alone = names(drive).into_iter();
    let alone = alone.map(|object| (object, layout::object_file(&object), Bytes::ZERO));
    let mut places: Vec<_> = alone.collect();
    for unit in units(drive) {
        let file = unit::unit_file(&unit);
        let directory = drive.with_files(|files| {
            let id = files.find(&file.0)?;
            let bytes = files.read(id, 0, files.len(id));
            let at = bytes.len().checked_sub(layout::FOOTER_LEN.as_usize())?;
            let footer = unit::Footer::decode(&bytes[at..], Bytes::of(bytes.len())).ok()?;
            let directory = &bytes[footer.directory_offset.as_usize()..at];
            Directory::decode(&footer, directory).ok()
        });
        for place in directory.iter().flat_map(Directory::places) {
            places.push((place.object, file.clone(), place.offset));
        }
    }
    places
}

async fn read_directory(drive: &Drive, unit: UnitId) -> Result<Directory, Wrong> {
    let file = drive.open(&unit::unit_file(&unit).0).await?;
    let len = Bytes::of(drive.with_files(|files| files.len(file)));
    let at = len.saturating_sub(layout::FOOTER_LEN);
    let page = drive.read(file, at, layout::FOOTER_LEN, <[u8]>::to_vec).await?;
    let footer = unit::Footer::decode(&page, len).map_err(|_| Wrong::Content)?;
    let (from, len) = (footer.directory_offset, at - footer.directory_offset);
    let pages = drive.read(file, from, len, <[u8]>::to_vec).await?;
    let directory = Directory::decode(&footer, &pages).map_err(|_| Wrong::Content)?;
    if directory.id() == unit { Ok(directory) } else { Err(Wrong::Content) }
}

async fn read_footer(drive: &Drive, file: FileId) -> Result<Footer, Wrong> {
    let len = Bytes::of(drive.with_files(|files| files.len(file)));
    let at = len.saturating_sub(layout::FOOTER_LEN);
    if len < layout::FOOTER_LEN || !at.0.is_multiple_of(DIRECT_ALIGN.0) {
        return Err(Wrong::Content);
    }
    let page = drive.read(file, at, layout::FOOTER_LEN, <[u8]>::to_vec).await?;
    Footer::decode(&page, len).map_err(|_| Wrong::Content)
}

async fn read_table(
    drive: &Drive,
    file: FileId,
    object: ObjectId,
    len: Bytes,
    base: Bytes,
) -> Result<Blocks, Wrong> {
    let sections = layout::sections(len);
    if sections.table_len == Bytes::ZERO {
        return blocks_without_table(object, len).ok_or(Wrong::Content);
    }
    let at = base + sections.table_offset;
    let table = drive.read(file, at, sections.table_len, <[u8]>::to_vec).await?;
    if table.len() != sections.table_len.as_usize() {
        return Err(Wrong::Drive(SHORT));
    }
    let hashes = table.as_chunks::<32>().0.iter().map(|hash| BlockHash(*hash)).collect();
    Blocks::prove(object, len, hashes).map_err(|_| Wrong::Content)
}

/// The blocks of an object that has less than two: its id is the only hash.
pub(crate) fn blocks_without_table(object: ObjectId, len: Bytes) -> Option<Blocks> {
    let hashes = if block_count(len) == 0 { vec![] } else { vec![BlockHash(object.0)] };
    Blocks::prove(object, len, hashes).ok()
}

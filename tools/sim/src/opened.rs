//! A drive that a process has opened: its index, and the forms of its files. The counterpart of
//! `shell/appliance/src/storage/drives.rs`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use iosched::drive::{Class, Config, Policy, SATA_TARGET};
use iosched::gate::Gate;
use iosched::governor;
use iosched::tally::Slice;
use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, block_len};
use model::units::{Bytes, Nanos};
use store::layout;
use store::log::{self, Change, Entry, RECORD_LEN, Sequence};
use store::parcel::PartId;
use store::unit::{self, Directory, UnitError, UnitId};
use upkeep::{Condition, Drive as _, DriveError, Files, Space, condition, read};

use crate::canary::Canary;
use crate::drive::{Drive, ENOENT, Errno};
use crate::files::{self, FileId};
use crate::stage::Lock;
use crate::world::World;

/// A drive in use, or that was until it failed.
pub(crate) struct Opened {
    pub(crate) index: DriveIndex,
    pub(crate) drive: Rc<Drive>,
    is_aside: Cell<bool>,
    /// Held while the log is written.
    writing: Lock,
    log: RefCell<Log>,
    /// Where tasks have their turns on the drive; its reads are the workers' own.
    gate: RefCell<Gate>,
    readers: RefCell<Vec<Reader>>,
    condition: RefCell<Condition>,
    world: Rc<World>,
    /// Part files, for planted bugs: of which of them is which file, and which are copies.
    parts: RefCell<BTreeMap<FileId, FileName>>,
    pub(crate) copies: RefCell<BTreeSet<FileName>>,
}

/// What a worker's reads of the drive met.
pub(crate) type Reader = Box<dyn Fn() -> Slice>;

/// Small numbers, so that somebody always waits.
const GATE: Config = Config {
    depth: 8,
    fill_depth: 2,
    queue_len_max: 64,
    target: SATA_TARGET,
    scrub_rate: Bytes(50_000_000),
    deletes_alone: true,
    policy: Policy::Governed(governor::Config::MEASURED),
};
/// Hangs and their end are believed sooner than in an appliance: a simulation is short.
pub(crate) const CONDITION: condition::Config = condition::Config {
    health: store::health::Config { objects_max: 3, window: Nanos::seconds(3600) },
    silence: store::silence::Config {
        answers_for: Nanos::seconds(3),
        hangs_for: Nanos::seconds(10),
    },
    measure_max: Nanos::seconds(1),
    full_for: Nanos::seconds(60),
};
/// Who waits for a turn looks after it this often, if not sooner.
const LOOK_EVERY: Nanos = Nanos::millis(5);

#[derive(Clone)]
struct Log {
    file: FileId,
    len: usize,
    sequence: Sequence,
    entries: BTreeMap<ObjectId, Entry>,
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
    pub(crate) async fn open(
        world: &Rc<World>,
        drive: &Rc<Drive>,
        index: DriveIndex,
    ) -> Result<Rc<Self>, DriveError> {
        drive.open(layout::MARKER).await.map_err(to("open", layout::MARKER))?;
        let failed = to("read", layout::INDEX);
        let snapshot = read_small(drive, layout::SNAPSHOT).await.map_err(failed)?;
        let bytes = read_small(drive, layout::LOG).await.map_err(failed)?.unwrap_or_default();
        let replay = log::replay(drive.id, snapshot.as_deref(), &bytes);
        let file = drive.open_or_make(layout::LOG).await.map_err(failed)?;
        let mut log = Log {
            file,
            len: replay.log_len.as_usize(),
            sequence: replay.sequence,
            entries: replay.entries,
        };
        if replay.damage.is_some() {
            log.entries = read::recover(&**drive, &|| {}, &|_| {}).await?;
            compact(drive, &mut log).await.map_err(to("rewrite", layout::INDEX))?;
        } else if replay.torn != Bytes::ZERO {
            drive.truncate(log.file, log.len).await.map_err(to("cut", layout::LOG))?;
        }
        let drive = Rc::clone(drive);
        let gate = Gate::new(GATE, drive.stage().now());
        let condition = Condition::new(CONDITION, space(&drive), held(&log.entries));
        Ok(Rc::new(Self {
            index,
            drive,
            is_aside: Cell::new(false),
            writing: Lock::default(),
            log: RefCell::new(log),
            gate: RefCell::new(gate),
            readers: RefCell::default(),
            condition: RefCell::new(condition),
            world: Rc::clone(world),
            parts: RefCell::default(),
            copies: RefCell::default(),
        }))
    }

    pub(crate) fn set_readers(&self, readers: Vec<Reader>) {
        *self.readers.borrow_mut() = readers;
    }

    /// Does something when it has a turn on the drive.
    async fn turn<T>(&self, class: Class, len: Bytes, io: impl Future<Output = T>) -> T {
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
        let result = io.await;
        if let Some(ticket) = ticket.filter(|_| !self.world.has(Canary::KeptTurns)) {
            self.gate.borrow_mut().complete(stage.now(), ticket);
        }
        result
    }

    fn slices(&self) -> Vec<Slice> {
        self.readers.borrow().iter().map(|reader| reader()).collect()
    }

    /// True if nothing is done to it any more.
    pub(crate) fn is_aside(&self) -> bool {
        self.is_aside.get()
    }

    /// Nothing is done to it from now on.
    pub(crate) fn set_aside(&self) {
        self.is_aside.set(true);
    }

    pub(crate) fn entries(&self) -> BTreeMap<ObjectId, Entry> {
        self.log.borrow().entries.clone()
    }

    /// Takes note of how much is free.
    pub(crate) fn measure_again(&self) {
        self.condition(|of| of.space = space(&self.drive));
    }

    /// Appends a batch to the log and brings it to the drive; rewrites it if it has grown long.
    async fn append(&self, changes: &[Change]) -> Result<(), Errno> {
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
        self.condition(|of| of.held = held(&log.entries));
        let records = Bytes::of(log.len / RECORD_LEN).0;
        // Far earlier than `log::compaction_is_due` says, so that it happens.
        if log::compaction_is_due(records * 150, log.entries.len()) {
            let result = compact(&self.drive, &mut log).await;
            *self.log.borrow_mut() = log;
            // What was appended counts whatever came of this; who measures the drive says so.
            let failed = result.err().map(to("rewrite", layout::INDEX));
            self.condition(|of| of.not_rewritten = failed);
        }
        Ok(())
    }

    /// Reads one block of an object for a sibling, who waits for it.
    pub(crate) async fn read_for_sibling(
        &self,
        extent: &Extent,
        block: u64,
    ) -> Result<Vec<u8>, Errno> {
        let file = self.drive.open(&extent.file.0).await?;
        let len = block_len(extent.len, block);
        let at = extent.offset + Bytes(block * BLOCK_LEN.0);
        let read = self.drive.read(file, at, len, <[u8]>::to_vec);
        let bytes = self.turn(Class::Serve, len, read).await?;
        if bytes.len() == len.as_usize() { Ok(bytes) } else { Err(SHORT) }
    }
}

/// What is free; nothing of a drive that is gone.
pub(crate) fn space(drive: &Drive) -> Space {
    let (capacity, free) = drive.space().unwrap_or_default();
    Space { capacity, free }
}

fn held(entries: &BTreeMap<ObjectId, Entry>) -> (u64, Bytes) {
    let bytes = entries.values().map(|entry| entry.len.0).sum();
    (Bytes::of(entries.len()).0, Bytes(bytes))
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

impl Files for Drive {
    type File = FileId;
    type Pages = Vec<u8>;

    fn pages(len: Bytes) -> Vec<u8> {
        vec![0; len.align_up(DIRECT_ALIGN).as_usize()]
    }

    async fn open(&self, file: &FileName) -> Result<FileId, DriveError> {
        Self::open(self, &file.0).await.map_err(to("open", &file.0))
    }

    async fn len(&self, file: &FileId) -> Result<Bytes, DriveError> {
        Ok(Bytes::of(self.with_files(|files| files.len(*file))))
    }

    async fn read(&self, file: &FileId, pages: &mut [u8], at: Bytes) -> Result<(), DriveError> {
        let found = Self::read(self, *file, at, Bytes::of(pages.len()), |bytes| {
            pages[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        let found = found.await.map_err(to("read", "a file of the drive"))?;
        if found == pages.len() { Ok(()) } else { Err(DriveError::short("a file of the drive")) }
    }

    /// Of the folders of objects the first costs as much as one: 256 of them cost more than they
    /// show.
    async fn list(&self, folder: &FileName) -> Result<Vec<String>, DriveError> {
        if folder.0.starts_with(layout::OBJECTS) && !folder.0.ends_with("/00") {
            return Ok(self.with_files(|files| files.list(&folder.0)));
        }
        Self::list(self, &folder.0).await.map_err(to("list", &folder.0))
    }
}

impl Files for Opened {
    type File = FileId;
    type Pages = Vec<u8>;

    fn pages(len: Bytes) -> Vec<u8> {
        Drive::pages(len)
    }

    async fn open(&self, file: &FileName) -> Result<FileId, DriveError> {
        Files::open(&*self.drive, file).await
    }

    async fn len(&self, file: &FileId) -> Result<Bytes, DriveError> {
        self.drive.len(file).await
    }

    async fn read(&self, file: &FileId, pages: &mut [u8], at: Bytes) -> Result<(), DriveError> {
        let len = Bytes::of(pages.len());
        self.turn(Class::Scrub, len, Files::read(&*self.drive, file, pages, at)).await?;
        self.misread(*file, pages, at);
        Ok(())
    }

    async fn list(&self, folder: &FileName) -> Result<Vec<String>, DriveError> {
        Files::list(&*self.drive, folder).await
    }
}

impl upkeep::Drive for Opened {
    fn index(&self) -> DriveIndex {
        self.index
    }

    fn is_aside(&self) -> bool {
        self.is_aside.get()
    }

    fn condition<R>(&self, with: impl FnOnce(&mut Condition) -> R) -> R {
        with(&mut self.condition.borrow_mut())
    }

    async fn has_marker(&self) -> bool {
        self.drive.with_files(|files| files.find(layout::MARKER).is_some())
    }

    fn entry(&self, object: &ObjectId) -> Option<Entry> {
        self.log.borrow().entries.get(object).copied()
    }

    fn in_unit(&self, unit: UnitId) -> Vec<ObjectId> {
        let log = self.log.borrow();
        let here = log.entries.iter().filter(|(_, entry)| entry.unit == Some(unit));
        here.map(|(object, _)| *object).collect()
    }

    async fn allocate(&self, file: &FileName, len: Bytes) -> Result<(FileId, bool), DriveError> {
        let made = self.drive.allocate(&file.0, len.as_usize()).await;
        let made = made.map_err(to("allocate room for", &file.0))?;
        self.parts.borrow_mut().insert(made.0, file.clone());
        self.measure_again();
        Ok(made)
    }

    async fn write(&self, file: &FileId, pages: &[u8], at: Bytes) -> Result<(), DriveError> {
        let wrong = self.world.unverified.borrow().get(pages).cloned();
        let pages = wrong.as_deref().unwrap_or(pages);
        let write = self.drive.write(*file, at, pages);
        let len = Bytes::of(pages.len());
        let written = self.turn(Class::Fill, len, write).await;
        written.map_err(to("write to", "an object's file"))?;
        self.drive.was_written(*file, at, len);
        Ok(())
    }

    async fn cut(&self, file: &FileId, len: Bytes) -> Result<(), DriveError> {
        self.drive.with_files(|files| files.resize(*file, len.as_usize()));
        Ok(())
    }

    async fn flush(&self, file: &FileId) -> Result<(), DriveError> {
        if self.leaves_unflushed(*file) {
            return Ok(());
        }
        let flushed = self.turn(Class::Fill, Bytes::ZERO, self.drive.flush(*file)).await;
        flushed.map_err(|errno| DriveError::flush("an object's file", upkeep::Errno(errno)))
    }

    async fn rename(&self, from: &FileName, name: &FileName) -> Result<(), DriveError> {
        self.drive.rename(&from.0, &name.0).await.map_err(to("rename", &from.0))
    }

    async fn flush_folder(&self, folder: &FileName) -> Result<(), DriveError> {
        if self.world.has(Canary::FolderUnflushed) {
            return Ok(());
        }
        let flushed = self.drive.sync_folder(&folder.0).await;
        flushed.map_err(|errno| DriveError::flush(&folder.0, upkeep::Errno(errno)))
    }

    async fn unlink(&self, file: &FileName) -> Result<(), DriveError> {
        let unlinked = self.turn(Class::Delete, Bytes::ZERO, self.drive.unlink(&file.0)).await;
        self.measure_again();
        unlinked.map_err(to("remove", &file.0))
    }

    async fn rewrite_index(&self) -> Result<(), DriveError> {
        let _writing = self.writing.hold().await;
        let mut log = self.log.borrow().clone();
        let written = compact(&self.drive, &mut log).await;
        *self.log.borrow_mut() = log;
        written.map_err(to("rewrite", layout::INDEX))
    }

    async fn scrubbed_to(&self) -> Option<ObjectId> {
        let bytes = read_small(&self.drive, layout::SCRUB).await.ok()??;
        std::str::from_utf8(&bytes).ok()?.trim().parse().ok()
    }

    async fn keep_scrubbed_to(&self, object: ObjectId) -> Result<(), DriveError> {
        let kept = replace(&self.drive, layout::SCRUB, format!("{object}\n").as_bytes()).await;
        kept.map_err(to("replace", layout::SCRUB))
    }

    async fn log(&self, changes: &[Change]) -> Result<(), DriveError> {
        self.append(changes).await.map_err(to("write to", layout::LOG))
    }
}

impl Opened {
    /// Planted bugs: whoever reads a copy back reads what was to be written; whoever reads the
    /// footer of a later version reads none.
    fn misread(&self, file: FileId, pages: &mut [u8], at: Bytes) {
        let (at, len) = (at.as_usize(), pages.len());
        let parts = self.parts.borrow();
        let copy = parts.get(&file).filter(|name| self.copies.borrow().contains(*name));
        self.drive.with_files(|files| {
            let is_end = at + len == files.len(file);
            let is_read_back = copy.is_some_and(|name| files.find(&name.0) == Some(file));
            let is_believed = self.world.has(Canary::NotReadBack)
                || (self.world.has(Canary::EndUnread) && is_end);
            if is_read_back && is_believed {
                let wrong = files.miswritten(file).into_iter();
                let wrong = wrong.filter(|(place, _)| (at..at + len).contains(place));
                wrong.for_each(|(place, byte)| pages[place - at] = byte);
            }
            if self.world.has(Canary::LaterLost) && is_end && is_of_later(pages) {
                pages.fill(0);
            }
        });
    }

    /// A planted bug: is this file one that is not flushed?
    fn leaves_unflushed(&self, file: FileId) -> bool {
        let parts = self.parts.borrow();
        let Some(name) = parts.get(&file) else { return false };
        let is_unit = PartId::parse(name.0.rsplit('/').next().unwrap_or_default());
        let is_unit = matches!(is_unit, Some(PartId::Unit(_)));
        let is_copy = self.copies.borrow().contains(name);
        (self.world.has(Canary::Unflushed) && !is_copy)
            || (self.world.has(Canary::UnitUnflushed) && !is_copy && is_unit)
            || (self.world.has(Canary::CopyUnflushed) && is_copy)
    }
}

/// Names what was tried.
pub(crate) fn to(action: &'static str, file: &str) -> impl Fn(Errno) -> DriveError + Copy {
    move |errno| match errno {
        SHORT => DriveError::short(file),
        _ => DriveError::new(action, file, upkeep::Errno(errno)),
    }
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

/// Where the footer of a unit says which version wrote it, and where its checksum begins.
const VERSION_AT: usize = 16;
const SUM_AT: usize = 4064;

/// A later version writes the footer of a unit anew; false of one that is damaged.
pub(crate) fn write_later(files: &mut files::Files, unit: UnitId) -> bool {
    let Some((file, mut page)) = last_page(files, &unit::unit_file(&unit)) else { return false };
    let is_right = unit::Footer::decode(&page, Bytes::of(files.len(file))).is_ok();
    if is_right {
        page[VERSION_AT] += 1;
        let sum = *blake3::hash(&page[..SUM_AT]).as_bytes();
        page[SUM_AT..].copy_from_slice(&sum);
        files.replace_end(file, &page);
    }
    is_right
}

/// True of a unit that a later version wrote.
pub(crate) fn is_later(files: &files::Files, file: &FileName) -> bool {
    last_page(files, file).is_some_and(|(_, page)| is_of_later(&page))
}

fn is_of_later(page: &[u8]) -> bool {
    matches!(unit::Footer::decode(page, Bytes::ZERO), Err(UnitError::Version(_)))
}

fn last_page(files: &files::Files, name: &FileName) -> Option<(FileId, Vec<u8>)> {
    let file = files.find(&name.0)?;
    let page = layout::FOOTER_LEN.as_usize();
    let at = files.len(file).checked_sub(page)?;
    Some((file, files.read(file, at, page).to_vec()))
}

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

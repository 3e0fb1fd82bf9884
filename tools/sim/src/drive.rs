//! A drive: files that survive as `files` says, times from the model of `ssd`, and faults.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use model::id::{DriveId, ObjectId};
use model::machine::Machine;
use model::units::{Bytes, Instant, Nanos};
use ssd::{Action, Class, Command, Event, Ftl, Params, Shape};

use crate::files::{FileId, Files, Left};
use crate::stage::{Slot, Stage, WORLD};

/// What the kernel says when it fails.
pub(crate) type Errno = i32;
pub(crate) const EIO: Errno = 5;
pub(crate) const ENOENT: Errno = 2;
pub(crate) const ENODEV: Errno = 19;
pub(crate) const ENOSPC: Errno = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    /// Each command takes so much longer.
    Slow(Nanos),
    /// Nothing completes.
    Hung,
    Gone,
    WritesFail,
}

/// A drive of a machine. It outlives the machine's processes.
pub(crate) struct Drive {
    pub(crate) id: DriveId,
    stage: Stage,
    me: Weak<Self>,
    state: RefCell<State>,
}

struct State {
    files: Files,
    model: ssd::Drive,
    capacity: u64,
    waiting: VecDeque<(u32, Command)>,
    slots: BTreeMap<u32, Slot<()>>,
    last: u32,
    armed: Option<Instant>,
    mood: Mood,
    is_retired: bool,
    hung: Vec<Slot<()>>,
    /// Flushes are confirmed and not carried out.
    lies: bool,
    /// What it said was flushed may not be.
    has_lied: bool,
    /// Some writes of objects are wrong.
    miswrites: bool,
    has_miswritten: bool,
    /// Bytes of objects that ever rotted.
    rot: BTreeSet<(ObjectId, usize)>,
}

/// Few blocks: what is simulated are times, and a large map costs more than it shows.
const DIES: u32 = 8;
const BLOCKS: u32 = 48;
const PAGES_PER_BLOCK: u32 = 32;

impl Drive {
    /// A drive of this class with room for so much.
    pub(crate) fn new(stage: &Stage, class: Class, capacity: u64) -> Rc<Self> {
        let shape = Shape::with_spare(DIES, BLOCKS, PAGES_PER_BLOCK, 250);
        let params = Params { shape, ..class.params() };
        let id = stage.bytes(16);
        let state = State {
            files: Files::default(),
            model: ssd::Drive::new(params, Ftl::new(shape), stage.below(1 << 31)),
            capacity,
            waiting: VecDeque::new(),
            slots: BTreeMap::new(),
            last: 0,
            armed: None,
            mood: Mood::Well,
            is_retired: false,
            hung: Vec::new(),
            lies: false,
            has_lied: false,
            miswrites: false,
            has_miswritten: false,
            rot: BTreeSet::new(),
        };
        let id = DriveId(id.try_into().expect("sixteen bytes were drawn"));
        let stage = stage.clone();
        Rc::new_cyclic(|me| Self { id, stage, me: me.clone(), state: RefCell::new(state) })
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Looks at its files, or changes them behind everybody's back. No time passes.
    pub(crate) fn with_files<T>(&self, look: impl FnOnce(&mut Files) -> T) -> T {
        look(&mut self.state.borrow_mut().files)
    }

    /// It was pulled, and does not come back.
    pub(crate) fn retire(&self) {
        self.set_mood(Mood::Gone);
        self.state.borrow_mut().is_retired = true;
    }

    pub(crate) fn mood(&self) -> Mood {
        self.state.borrow().mood
    }

    /// It is otherwise from now on. What hung goes on if it does not hang any more.
    pub(crate) fn set_mood(&self, mood: Mood) {
        let mut state = self.state.borrow_mut();
        if state.is_retired {
            return;
        }
        state.mood = mood;
        if mood != Mood::Hung {
            let hung = std::mem::take(&mut state.hung);
            hung.iter().for_each(|slot| slot.put(()));
        }
    }

    /// Flushes do nothing from now on, or do what they should.
    pub(crate) fn set_lies(&self, lies: bool) {
        let mut state = self.state.borrow_mut();
        state.lies = lies;
        state.has_lied |= lies;
    }

    /// True if what it said was flushed may not be.
    pub(crate) fn has_lied(&self) -> bool {
        self.state.borrow().has_lied
    }

    /// Some writes of objects are wrong from now on, or none is.
    pub(crate) fn set_miswrites(&self, miswrites: bool) {
        let mut state = self.state.borrow_mut();
        state.miswrites = miswrites;
        state.has_miswritten |= miswrites;
    }

    /// True if bytes of objects may be wrong here that never rotted.
    pub(crate) fn has_miswritten(&self) -> bool {
        self.state.borrow().has_miswritten
    }

    /// So much was just written there: all of it, if the drive writes what it is given.
    pub(crate) fn was_written(&self, file: FileId, from: Bytes, len: Bytes) {
        // More often where little is written: of those there is one for each file, the end of it.
        let one_in = if len <= Bytes::kib(8) { 2 } else { 4 };
        if self.state.borrow().miswrites && self.stage.one_in(one_in) {
            let at = from + Bytes(self.stage.below(len.0));
            let bit = u32::try_from(self.stage.below(8)).unwrap_or(0);
            self.with_files(|files| files.miswrite(file, at.as_usize(), bit));
        }
    }

    /// A bit flips, unnoticed, so far behind the beginning of an object that begins at `base` in
    /// this file.
    pub(crate) fn rot(&self, object: ObjectId, file: &str, base: usize, at: usize, bit: u32) {
        let mut state = self.state.borrow_mut();
        if state.files.rot(file, base + at, bit) {
            state.rot.insert((object, at));
        }
    }

    /// What it should hold it may not: its index rotted, or the end of a file.
    pub(crate) fn doubt(&self) {
        self.state.borrow_mut().has_lied = true;
    }

    /// True of a byte of an object that ever rotted here.
    pub(crate) fn was_rotten(&self, object: &ObjectId, at: usize) -> bool {
        self.state.borrow().rot.contains(&(*object, at))
    }

    /// The power goes.
    pub(crate) fn cut(&self, names: Left, bytes: Left) {
        let mut state = self.state.borrow_mut();
        state.files.cut(&self.stage, names, bytes);
        state.slots.clear();
        state.hung.clear();
    }

    /// All its processes are gone: files without a name go, and so does what they waited for.
    pub(crate) fn left_alone(&self) {
        let mut state = self.state.borrow_mut();
        state.files.forget_nameless();
        state.hung.clear();
    }

    /// Room, and how much of it is free.
    pub(crate) fn space(&self) -> Result<(Bytes, Bytes), Errno> {
        let state = self.state.borrow();
        if state.mood == Mood::Gone {
            return Err(ENODEV);
        }
        let free = state.capacity.saturating_sub(state.files.used());
        Ok((Bytes(state.capacity), Bytes(free)))
    }

    pub(crate) async fn open(&self, name: &str) -> Result<FileId, Errno> {
        self.io(Command::Read { offset: Bytes(0), len: Bytes(4096) }).await?;
        let state = self.state.borrow();
        state.files.find(name).ok_or(ENOENT)
    }

    /// The file of a name, made if it is not there, of this length. True if it had it before.
    pub(crate) async fn allocate(&self, name: &str, len: usize) -> Result<(FileId, bool), Errno> {
        self.io(Command::Write { first: 0, pages: 1 }).await?;
        self.check_writes()?;
        let mut state = self.state.borrow_mut();
        let found = state.files.find(name);
        let before = found.map_or(0, |file| state.files.len(file));
        let grows = u64::try_from(len - before.min(len)).unwrap_or(u64::MAX);
        if state.capacity < state.files.used() + grows {
            return Err(ENOSPC);
        }
        let file = found.unwrap_or_else(|| state.files.create(name));
        if before != len {
            state.files.resize(file, 0);
            state.files.resize(file, len);
        }
        Ok((file, before == len))
    }

    /// The file of a name, made if it is not there. For the index.
    pub(crate) async fn open_or_make(&self, name: &str) -> Result<FileId, Errno> {
        self.io(Command::Read { offset: Bytes(0), len: Bytes(4096) }).await?;
        let mut state = self.state.borrow_mut();
        let found = state.files.find(name);
        Ok(found.unwrap_or_else(|| state.files.create(name)))
    }

    /// Reads; what there is goes to `take`.
    pub(crate) async fn read<T>(
        &self,
        file: FileId,
        from: Bytes,
        len: Bytes,
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Errno> {
        let offset = Bytes((file.0 * 1_048_576 + from.0) % READS_BELOW);
        self.io(Command::Read { offset, len: Bytes(len.0.clamp(1, READS_BELOW)) }).await?;
        let state = self.state.borrow();
        if state.files.is_unreadable(file) {
            return Err(EIO);
        }
        Ok(take(state.files.read(file, from.as_usize(), len.as_usize())))
    }

    pub(crate) async fn read_all(&self, file: FileId) -> Result<Vec<u8>, Errno> {
        let len = Bytes::of(self.with_files(|files| files.len(file)));
        self.read(file, Bytes(0), len, <[u8]>::to_vec).await
    }

    /// Writes. It is there for readers at once, and on the drive after a flush.
    pub(crate) async fn write(&self, file: FileId, from: Bytes, bytes: &[u8]) -> Result<(), Errno> {
        self.check_writes()?;
        self.with_files(|files| files.write(file, from.as_usize(), bytes));
        let page = 32 * 1024;
        let pages = u32::try_from(bytes.len().div_ceil(page).max(1)).unwrap_or(1);
        let first = u32::try_from((file.0 * 61 + from.0 / 32_768) % 4096).unwrap_or(0);
        self.io(Command::Write { first, pages }).await?;
        self.check_writes()
    }

    /// Makes a file shorter.
    pub(crate) async fn truncate(&self, file: FileId, len: usize) -> Result<(), Errno> {
        self.check_writes()?;
        self.with_files(|files| files.resize(file, len));
        self.flush(file).await
    }

    /// Brings a file to the drive.
    pub(crate) async fn flush(&self, file: FileId) -> Result<(), Errno> {
        self.io(Command::Flush).await?;
        self.check_writes()?;
        let mut state = self.state.borrow_mut();
        if !state.lies {
            state.files.flush(file);
        }
        Ok(())
    }

    /// Gives a file another name.
    pub(crate) async fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.io(Command::Write { first: 1, pages: 1 }).await?;
        self.check_writes()?;
        if self.with_files(|files| files.rename(from, to)) { Ok(()) } else { Err(ENOENT) }
    }

    /// Takes a name away; one that is gone already is no error.
    pub(crate) async fn unlink(&self, name: &str) -> Result<(), Errno> {
        self.io(Command::Write { first: 1, pages: 1 }).await?;
        self.check_writes()?;
        self.with_files(|files| files.unlink(name));
        Ok(())
    }

    /// Brings a folder's names to the drive.
    pub(crate) async fn sync_folder(&self, folder: &str) -> Result<(), Errno> {
        self.io(Command::Flush).await?;
        self.check_writes()?;
        let mut state = self.state.borrow_mut();
        if !state.lies {
            state.files.sync_folder(folder);
        }
        Ok(())
    }

    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<String>, Errno> {
        self.io(Command::Read { offset: Bytes(0), len: Bytes(4096) }).await?;
        Ok(self.with_files(|files| files.list(folder)))
    }

    /// One command, in the drive's time and mood.
    async fn io(&self, command: Command) -> Result<(), Errno> {
        self.hang().await;
        let slot = Slot::default();
        {
            let mut state = self.state.borrow_mut();
            if state.mood == Mood::Gone {
                return Err(ENODEV);
            }
            state.last = state.last.wrapping_add(1);
            let id = state.last;
            state.slots.insert(id, slot.clone());
            state.waiting.push_back((id, command));
        }
        self.turn();
        slot.await;
        let mood = self.mood();
        if let Mood::Slow(span) = mood {
            self.stage.sleep(Nanos(span.0 / 2 + self.stage.below(span.0 / 2))).await;
        }
        self.hang().await;
        if self.mood() == Mood::Gone { Err(ENODEV) } else { Ok(()) }
    }

    /// Waits while it hangs.
    pub(crate) async fn hang(&self) {
        while self.mood() == Mood::Hung {
            let slot = Slot::default();
            self.state.borrow_mut().hung.push(slot.clone());
            slot.await;
        }
    }

    fn check_writes(&self) -> Result<(), Errno> {
        match self.mood() {
            Mood::WritesFail => Err(EIO),
            Mood::Gone => Err(ENODEV),
            Mood::Well | Mood::Slow(_) | Mood::Hung => Ok(()),
        }
    }

    /// Lets the model go on: what waits goes in, what is done comes out, the next time is set.
    fn turn(&self) {
        let now = self.stage.now();
        let mut state = self.state.borrow_mut();
        state.model.handle(now, Event::Tick);
        while state.model.in_flight() < DEPTH {
            let Some((id, command)) = state.waiting.pop_front() else { break };
            state.model.handle(now, Event::Submit { id, command });
        }
        while let Some(Action::Complete { id, .. }) = state.model.poll() {
            if let Some(slot) = state.slots.remove(&id) {
                slot.put(());
            }
        }
        let next = state.model.deadline();
        let busy = state.model.in_flight() != 0 || !state.waiting.is_empty();
        if let Some(at) = next.filter(|at| busy && state.armed.is_none_or(|armed| *at < armed)) {
            state.armed = Some(at);
            drop(state);
            self.arm(at);
        }
    }

    fn arm(&self, at: Instant) {
        let me = self.me.clone();
        self.stage.at(WORLD, at, move || {
            if let Some(drive) = me.upgrade() {
                drive.state.borrow_mut().armed = None;
                drive.turn();
            }
        });
    }
}

/// Commands at once; every class takes more.
const DEPTH: u32 = 16;
/// Reads lie below this in the model: within its pages, however long they are.
const READS_BELOW: u64 = 64 << 20;

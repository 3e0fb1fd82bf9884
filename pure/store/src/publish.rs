//! The steps by which a file of objects appears on a drive, and by which it goes.
//!
//! ```text
//! appear                                          after a power cut here, the next start finds
//!  1 Allocate   part file, full size              a part: filled further
//!  2 WriteTable block hashes, at their place      the same; the table spares asking control again
//!  3 ...        blocks, each after it verified    a part: each block is verified again
//!  .            2 and 3 for each object of it
//!  4 WriteEnd   footer; a unit's directory        the same: only the rename makes it complete
//!  5 FlushFile  fdatasync                         the same
//!  6 Rename     fill/x.part -> objects/ab/x       part or file, each whole
//!  7 SyncFolder objects/ab, then fill             a file not in the log: the audit adopts it
//!  8 Log        append one batch, fdatasync       all its objects
//!  9 Show       visible to viewers
//!
//! go
//!  1 Hide       no new request finds them         the objects (they are still in the log)
//!  2 Log        append one batch, fdatasync       a file not in the log: the audit decides
//!  3 Unlink     readers keep their open file      (2 is all if other objects are in the file)
//!  4 SyncFolder                                   nothing
//! ```
//!
//! A file has one object, or is a unit; the steps are the same, and what is in one file appears
//! together. Both are machines, actions out and completions in; time plays no part, so no `now` and
//! no deadline. One action is outstanding at a time. The caller answers each with `Event::Done` or
//! `Event::Failed`; blocks are written beside, by the transfer, and counted here.

use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::object::block_count;
use model::units::Bytes;

use crate::layout;
use crate::log::{Change, Entry};
use crate::parcel::Parcel;

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make the file and allocate all of it, so that it cannot run out of room half-way.
    Allocate {
        /// Which file.
        file: FileName,
        /// How large.
        len: Bytes,
    },
    /// The next object: write its table of block hashes (`layout`), if it has one, zeros after it.
    WriteTable {
        /// Which of the parcel's.
        index: usize,
        /// Where in the file its bytes begin.
        base: Bytes,
        /// Where its table.
        offset: Bytes,
    },
    /// Write these pages, which end the file: what is behind them is cut.
    WriteEnd {
        /// Where.
        offset: Bytes,
        /// What.
        pages: Vec<u8>,
    },
    /// Bring all of the file to the drive (fdatasync).
    FlushFile,
    /// Give the file its final name.
    Rename {
        /// From.
        from: FileName,
        /// To.
        to: FileName,
    },
    /// Bring a folder's entries to the drive (fsync).
    SyncFolder(FileName),
    /// Append a batch to the drive's log and bring that to the drive (fdatasync).
    Log(Vec<Change>),
    /// Tell everybody where these objects are.
    Show(Vec<(ObjectId, Extent)>),
    /// Tell everybody that these are gone.
    Hide(Vec<ObjectId>),
    /// Remove a file.
    Unlink(FileName),
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The action is done.
    Done,
    /// One more block is verified and written.
    BlockWritten,
    /// The rest of a unit cannot be had now: it ends after what is whole, one object at least.
    Short,
    /// The action, or the writing of a block, failed.
    Failed(Fault),
}

/// Why it failed, named for what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No room: what was allocated is given back, the object goes elsewhere.
    Full,
    /// This file only: it is removed, and the object may be tried again.
    Io,
    /// The drive is no longer used: nothing more is done to it.
    SetAside,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All steps are done.
    Complete,
    /// Some step failed; nothing that was not visible before is visible now.
    Abandoned(Fault),
}

/// Objects on their way to being visible.
#[derive(Debug)]
pub struct Publication {
    /// Its file while it is a part.
    part: FileName,
    parcel: Parcel,
    entries: Vec<(ObjectId, Entry)>,
    drive: DriveIndex,
    step: Appear,
    /// True while the shell carries out the action of `step`.
    issued: bool,
    /// The object that is being written. Invariant: all before it are whole.
    at: usize,
    /// Of that object. Invariant: zero before the end is written.
    blocks_left: u64,
    /// Invariant: true before `Show`.
    logged: bool,
    /// The file was there before, perhaps with objects that are held: it is never removed here.
    adopted: bool,
    fault: Option<Fault>,
}

/// Objects of one file on their way out.
#[derive(Debug)]
pub struct Removal {
    file: FileName,
    objects: Vec<ObjectId>,
    /// Nothing else is in the file: it goes too.
    whole: bool,
    step: Go,
    issued: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Appear {
    Allocate,
    WriteTable,
    Blocks,
    WriteEnd,
    FlushFile,
    Rename,
    SyncFolder,
    SyncFill,
    Log,
    Show,
    UnlinkPart,
    UnlinkFile,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Go {
    Hide,
    Log,
    Unlink,
    SyncFolder,
    End,
}

impl Publication {
    /// Objects of which the drive has nothing yet, or a part: allocating again keeps what is in it,
    /// and blocks that the transfer finds there and verifies count like written ones.
    pub fn new(parcel: Parcel, drive: DriveIndex) -> Self {
        let entries = parcel.entries();
        assert!(!entries.is_empty(), "a file has an object");
        let blocks_left = block_count(entries[0].1.len);
        Self {
            part: parcel.part().file(),
            parcel,
            entries,
            drive,
            step: Appear::Allocate,
            issued: false,
            at: 0,
            blocks_left,
            logged: false,
            adopted: false,
            fault: None,
        }
    }

    /// A complete file that the drive has under its final name, with these objects, all verified,
    /// that the log has not.
    pub fn adopt(parcel: Parcel, entries: Vec<(ObjectId, Entry)>, drive: DriveIndex) -> Self {
        assert!(!entries.is_empty(), "a file is adopted for an object");
        let step = Appear::SyncFolder;
        let blocks_left = 0;
        Self { entries, step, blocks_left, adopted: true, ..Self::new(parcel, drive) }
    }

    /// How many objects are whole.
    pub fn whole(&self) -> usize {
        self.at
    }

    /// What is published: less than was meant to be if it was ended short.
    pub fn parcel(&self) -> &Parcel {
        &self.parcel
    }

    /// Takes what came of the last action, or of a block.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::BlockWritten => {
                assert!(self.step == Appear::Blocks, "blocks come after table, before footer");
                assert!(0 < self.blocks_left, "no block of an object is written twice");
                self.blocks_left -= 1;
            }
            Event::Short => {
                assert!(self.step <= Appear::Blocks, "no block is written later");
                self.issued = false;
                self.parcel = self.parcel.first(self.at).expect("one object at least is whole");
                self.entries = self.parcel.entries();
                (self.step, self.blocks_left) = (Appear::WriteEnd, 0);
            }
            Event::Done => {
                assert!(self.issued, "only an action that was given out can be done");
                self.logged |= self.step == Appear::Log;
                self.step = self.step.next();
                self.issued = false;
            }
            Event::Failed(fault) => self.fail(fault),
        }
    }

    /// The next thing to do; none while one is being done or blocks are missing, and at the end.
    pub fn poll(&mut self) -> Option<Action> {
        if self.step == Appear::Blocks && self.blocks_left == 0 {
            self.at += 1;
            assert!(self.at <= self.entries.len(), "no more objects are whole than there are");
            let next = self.entries.get(self.at);
            self.step = if next.is_some() { Appear::WriteTable } else { Appear::WriteEnd };
            self.blocks_left = next.map_or(0, |(_, entry)| block_count(entry.len));
        }
        if self.issued || matches!(self.step, Appear::Blocks | Appear::End) {
            return None;
        }
        self.issued = true;
        Some(self.action())
    }

    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        let end = self.fault.map_or(Outcome::Complete, Outcome::Abandoned);
        (self.step == Appear::End).then_some(end)
    }

    fn action(&self) -> Action {
        match self.step {
            Appear::Allocate => {
                Action::Allocate { file: self.part.clone(), len: self.parcel.file_len() }
            }
            Appear::WriteTable => {
                let (_, entry) = self.entries[self.at];
                let offset = entry.offset + layout::sections(entry.len).table_offset;
                Action::WriteTable { index: self.at, base: entry.offset, offset }
            }
            Appear::WriteEnd => {
                assert!(self.blocks_left == 0, "the footer says that all blocks are there");
                let (offset, pages) = self.parcel.end();
                Action::WriteEnd { offset, pages }
            }
            Appear::FlushFile => Action::FlushFile,
            Appear::Rename => Action::Rename { from: self.part.clone(), to: self.parcel.file() },
            Appear::SyncFolder => Action::SyncFolder(self.parcel.folder()),
            Appear::SyncFill => Action::SyncFolder(FileName(layout::FILL.into())),
            Appear::Log => {
                let entries = self.entries.iter();
                let published = |(object, entry): &_| Change::Published(*object, *entry);
                Action::Log(entries.map(published).collect())
            }
            Appear::Show => {
                assert!(self.logged && self.fault.is_none(), "shown only when it is in the log");
                let extent = |(object, entry): &(ObjectId, Entry)| {
                    (*object, entry.extent(object, self.drive))
                };
                Action::Show(self.entries.iter().map(extent).collect())
            }
            Appear::UnlinkPart => Action::Unlink(self.part.clone()),
            Appear::UnlinkFile => Action::Unlink(self.parcel.file()),
            Appear::Blocks | Appear::End => unreachable!("poll gives nothing out at these steps"),
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.issued = false;
        let undoing = self.fault.is_some() || self.adopted;
        self.fault.get_or_insert(fault);
        self.step = if undoing || fault == Fault::SetAside || self.step == Appear::Show {
            Appear::End
        } else if self.step <= Appear::Rename {
            Appear::UnlinkPart
        } else {
            Appear::UnlinkFile
        };
    }
}

impl Removal {
    /// These objects of a file are to go, and it too if they are the `whole` of what it has.
    pub fn new(file: FileName, objects: Vec<ObjectId>, whole: bool) -> Self {
        let step = match (objects.is_empty(), whole) {
            (false, _) => Go::Hide,
            (true, true) => Go::Unlink,
            (true, false) => Go::End,
        };
        Self { file, objects, whole, step, issued: false, fault: None }
    }

    /// Takes what came of the last action.
    pub fn handle(&mut self, event: Event) {
        assert!(self.issued, "only an action that was given out can be done");
        self.issued = false;
        self.step = match event {
            Event::Done if self.step == Go::Log && !self.whole => Go::End,
            Event::Done => self.step.next(),
            Event::BlockWritten | Event::Short => {
                unreachable!("nothing is written to an object that goes")
            }
            Event::Failed(fault) => {
                self.fault = Some(fault);
                Go::End
            }
        };
    }

    /// The next thing to do; none while one is being done, and at the end.
    pub fn poll(&mut self) -> Option<Action> {
        if self.issued || self.step == Go::End {
            return None;
        }
        self.issued = true;
        Some(match self.step {
            Go::Hide => Action::Hide(self.objects.clone()),
            Go::Log => Action::Log(self.objects.iter().copied().map(Change::Removed).collect()),
            Go::Unlink => {
                assert!(self.whole, "a file goes with the last object in it");
                Action::Unlink(self.file.clone())
            }
            Go::SyncFolder => Action::SyncFolder(layout::folder_of(&self.file)),
            Go::End => unreachable!("returned above"),
        })
    }

    /// How it ended, once it has. An abandoned removal leaves a file that no index speaks of.
    pub fn outcome(&self) -> Option<Outcome> {
        let end = self.fault.map_or(Outcome::Complete, Outcome::Abandoned);
        (self.step == Go::End).then_some(end)
    }
}

impl Appear {
    fn next(self) -> Self {
        match self {
            Self::Allocate => Self::WriteTable,
            Self::WriteTable => Self::Blocks,
            Self::Blocks => Self::WriteEnd,
            Self::WriteEnd => Self::FlushFile,
            Self::FlushFile => Self::Rename,
            Self::Rename => Self::SyncFolder,
            Self::SyncFolder => Self::SyncFill,
            Self::SyncFill => Self::Log,
            Self::Log => Self::Show,
            Self::Show | Self::UnlinkPart | Self::UnlinkFile | Self::End => Self::End,
        }
    }
}

impl Go {
    fn next(self) -> Self {
        match self {
            Self::Hide => Self::Log,
            Self::Log => Self::Unlink,
            Self::Unlink => Self::SyncFolder,
            Self::SyncFolder | Self::End => Self::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId([0xab; 32]);
    const DRIVE: DriveIndex = DriveIndex(2);
    const LEN: Bytes = Bytes(600_000);
    const BLOCKS: usize = 3;

    fn alone() -> Parcel {
        Parcel::new(&[(OBJECT, LEN)]).unwrap()
    }

    /// Runs to the end, every action done but the one at `fail_at`; returns the actions' names.
    fn run(mut publication: Publication, fail_at: Option<(usize, Fault)>) -> (String, Outcome) {
        let mut names = Vec::new();
        loop {
            if let Some(outcome) = publication.outcome() {
                return (names.join(" "), outcome);
            }
            let failed = fail_at.filter(|(at, _)| *at == names.len());
            match (publication.poll(), failed) {
                (Some(action), failed) => {
                    assert_eq!(publication.poll(), None, "one action at a time");
                    names.push(name(&action));
                    publication.handle(failed.map_or(Event::Done, |(_, f)| Event::Failed(f)));
                }
                (None, _) => publication.handle(Event::BlockWritten),
            }
        }
    }

    /// A publication that waits for its blocks.
    fn allocated() -> Publication {
        let mut publication = Publication::new(alone(), DRIVE);
        while publication.poll().is_some() {
            publication.handle(Event::Done);
        }
        publication
    }

    fn name(action: &Action) -> String {
        match action {
            Action::Allocate { len, .. } => format!("allocate({})", len.0),
            Action::WriteTable { offset, .. } => format!("table({})", offset.0),
            Action::WriteEnd { offset, .. } => format!("end({})", offset.0),
            Action::FlushFile => "flush".to_owned(),
            Action::Rename { .. } => "rename".to_owned(),
            Action::SyncFolder(folder) => format!("sync({})", folder.0),
            Action::Log(changes) => format!("log({})", changes.len()),
            Action::Show(objects) => format!("show({})", objects.len()),
            Action::Hide(objects) => format!("hide({})", objects.len()),
            Action::Unlink(file) => format!("unlink({})", &file.0[..4]),
        }
    }

    #[test]
    fn an_object_is_shown_after_everything_else() {
        let (steps, outcome) = run(Publication::new(alone(), DRIVE), None);
        let wanted = "allocate(610304) table(602112) end(606208) flush rename sync(objects/ab) \
                      sync(fill) log(1) show(1)";
        assert_eq!((steps.as_str(), outcome), (wanted, Outcome::Complete));
    }

    #[test]
    fn an_adopted_object_goes_the_rest_of_the_way() {
        let (steps, _) = run(Publication::adopt(alone(), alone().entries(), DRIVE), None);
        assert_eq!(steps, "sync(objects/ab) sync(fill) log(1) show(1)");
    }

    #[test]
    fn whichever_step_fails_nothing_is_shown_and_the_room_is_given_back() {
        let (all, _) = run(Publication::new(alone(), DRIVE), None);
        let steps: Vec<&str> = all.split(' ').collect();
        for fault in [Fault::Full, Fault::Io, Fault::SetAside] {
            for at in 0..steps.len() - 1 {
                let (done, outcome) = run(Publication::new(alone(), DRIVE), Some((at, fault)));
                let undo = match (fault, at) {
                    (Fault::SetAside, _) => "",
                    (_, 0..=4) => " unlink(fill)",
                    (_, _) => " unlink(obje)",
                };
                assert_eq!(done, steps[..=at].join(" ") + undo);
                assert_eq!(outcome, Outcome::Abandoned(fault));
            }
        }
    }

    #[test]
    fn a_block_that_cannot_be_written_abandons_the_object() {
        let mut publication = allocated();
        publication.handle(Event::BlockWritten);
        publication.handle(Event::Failed(Fault::Full));
        assert_eq!(publication.poll(), Some(Action::Unlink(layout::part_file(&OBJECT))));
        publication.handle(Event::Failed(Fault::Io));
        assert_eq!(publication.outcome(), Some(Outcome::Abandoned(Fault::Full)));
    }

    #[test]
    #[should_panic(expected = "written twice")]
    fn more_blocks_than_the_object_has_are_our_own_mistake() {
        let mut publication = allocated();
        (0..=BLOCKS).for_each(|_| publication.handle(Event::BlockWritten));
    }

    #[test]
    fn an_object_is_hidden_before_it_leaves_the_log_and_unlinked_last() {
        let run = |fail_at: Option<usize>| {
            let mut removal = Removal::new(layout::object_file(&OBJECT), vec![OBJECT], true);
            let mut names = Vec::new();
            while let Some(action) = removal.poll() {
                let failed = fail_at == Some(names.len());
                names.push(name(&action));
                removal.handle(if failed { Event::Failed(Fault::Io) } else { Event::Done });
            }
            (names.join(" "), removal.outcome().unwrap())
        };
        let all = "hide(1) log(1) unlink(obje) sync(objects/ab)";
        assert_eq!(run(None), (all.to_owned(), Outcome::Complete));
        assert_eq!(run(Some(1)), ("hide(1) log(1)".to_owned(), Outcome::Abandoned(Fault::Io)));
    }

    /// A unit of three objects: two blocks with a table, an empty one, and one block.
    fn unit() -> Parcel {
        let object = |n| ObjectId([n; 32]);
        let objects = [(object(1), Bytes(300_000)), (object(2), Bytes(0)), (object(3), Bytes(9))];
        Parcel::new(&objects).unwrap()
    }

    #[test]
    fn a_unit_is_shown_as_a_whole_after_everything_else() {
        let (steps, outcome) = run(Publication::new(unit(), DRIVE), None);
        let wanted = "allocate(323584) table(303104) table(307200) table(315392) end(315392) \
                      flush rename sync(units) sync(fill) log(3) show(3)";
        assert_eq!((steps.as_str(), outcome), (wanted, Outcome::Complete));
    }

    #[test]
    fn a_unit_that_ends_short_has_what_is_whole_under_a_name_of_its_own() {
        let mut publication = Publication::new(unit(), DRIVE);
        for _ in 0..2 {
            assert!(publication.poll().is_some());
            publication.handle(Event::Done);
        }
        (0..2).for_each(|_| publication.handle(Event::BlockWritten));
        while publication.whole() < 2 {
            assert!(publication.poll().is_some());
            publication.handle(Event::Done);
        }
        publication.handle(Event::Short);
        let first = unit().first(2).unwrap();
        assert_eq!(publication.parcel(), &first);
        let (steps, outcome) = run(publication, None);
        let wanted = "end(311296) flush rename sync(units) sync(fill) log(2) show(2)";
        assert_eq!((steps.as_str(), outcome), (wanted, Outcome::Complete));
        assert_ne!(first.file(), unit().file());
    }

    #[test]
    fn a_file_that_was_there_before_is_not_removed_when_it_cannot_be_logged() {
        let entries = unit().entries()[1..].to_vec();
        let publication = Publication::adopt(unit(), entries, DRIVE);
        let (steps, outcome) = run(publication, Some((2, Fault::Full)));
        assert_eq!(steps, "sync(units) sync(fill) log(2)");
        assert_eq!(outcome, Outcome::Abandoned(Fault::Full));
    }

    #[test]
    fn objects_leave_a_unit_without_its_file_unless_they_are_all() {
        let run = |objects: &[ObjectId], whole| {
            let mut removal = Removal::new(unit().file(), objects.to_vec(), whole);
            let mut names = Vec::new();
            while let Some(action) = removal.poll() {
                names.push(name(&action));
                removal.handle(Event::Done);
            }
            assert_eq!(removal.outcome(), Some(Outcome::Complete));
            names.join(" ")
        };
        assert_eq!(run(&[OBJECT], false), "hide(1) log(1)");
        assert_eq!(run(&[OBJECT; 2], true), "hide(2) log(2) unlink(unit) sync(units)");
        assert_eq!(run(&[], true), "unlink(unit) sync(units)", "nothing in it was held");
        assert_eq!(run(&[], false), "");
    }
}

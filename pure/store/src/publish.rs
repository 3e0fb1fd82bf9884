//! The steps by which an object appears on a drive, and by which it goes.
//!
//! ```text
//! appear                                          after a power cut here, the next start finds
//!  1 Allocate   part file, full size              a part: filled further
//!  2 WriteTable block hashes, at their place      the same; the table spares asking control again
//!  3 ...        blocks, each after it verified    a part: each block is verified again
//!  4 WriteFooter                                  the same: only the rename makes an object
//!  5 FlushFile  fdatasync                         the same
//!  6 Rename     fill/x.part -> objects/ab/x       part or object, each whole
//!  7 SyncFolder objects/ab, then fill             an object not in the log: the audit adopts it
//!  8 Log        append, fdatasync                 the object
//!  9 Show       visible to viewers
//!
//! go
//!  1 Hide       no new request finds it           the object (it is still in the log)
//!  2 Log        append, fdatasync                 a file not in the log: the audit decides
//!  3 Unlink     readers keep their open file
//!  4 SyncFolder                                   nothing
//! ```
//!
//! Both are machines, actions out and completions in; time plays no part, so no `now` and no
//! deadline. One action is outstanding at a time. The caller answers each with `Event::Done` or
//! `Event::Failed`; blocks are written beside, by the transfer, and counted here.

use model::extent::{DriveIndex, Extent, FileName};
use model::id::ObjectId;
use model::object::block_count;
use model::units::Bytes;

use crate::layout;
use crate::log::{Change, Entry};

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
    /// Write the table of block hashes (`layout`), zeros after it.
    WriteTable {
        /// Where.
        offset: Bytes,
    },
    /// Write the footer.
    WriteFooter {
        /// Where.
        offset: Bytes,
        /// What it says.
        footer: layout::Footer,
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
    /// Append to the drive's log and bring that to the drive (fdatasync).
    Log(Change),
    /// Tell everybody where the object is.
    Show(Extent),
    /// Tell everybody that it is gone.
    Hide,
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

/// One object on its way to being visible.
#[derive(Debug)]
pub struct Publication {
    object: ObjectId,
    len: Bytes,
    drive: DriveIndex,
    step: Appear,
    /// True while the shell carries out the action of `step`.
    issued: bool,
    /// Invariant: zero before the footer is written.
    blocks_left: u64,
    /// Invariant: true before `Show`.
    logged: bool,
    fault: Option<Fault>,
}

/// One object on its way out.
#[derive(Debug)]
pub struct Removal {
    object: ObjectId,
    step: Go,
    issued: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Appear {
    Allocate,
    WriteTable,
    Blocks,
    WriteFooter,
    FlushFile,
    Rename,
    SyncObjects,
    SyncFill,
    Log,
    Show,
    UnlinkPart,
    UnlinkObject,
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
    /// An object of which the drive has nothing yet, or a part: allocating again keeps what is in
    /// it, and blocks that the transfer finds there and verifies count like written ones.
    pub fn new(object: ObjectId, len: Bytes, drive: DriveIndex) -> Self {
        let blocks_left = block_count(len);
        let step = Appear::Allocate;
        Self { object, len, drive, step, issued: false, blocks_left, logged: false, fault: None }
    }

    /// A complete object file that the drive has under its final name and the log has not.
    pub fn adopt(object: ObjectId, len: Bytes, drive: DriveIndex) -> Self {
        let mut publication = Self::new(object, len, drive);
        publication.step = Appear::SyncObjects;
        publication.blocks_left = 0;
        publication
    }

    /// Takes what came of the last action, or of a block.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::BlockWritten => {
                assert!(self.step == Appear::Blocks, "blocks come after table, before footer");
                assert!(0 < self.blocks_left, "no block of {} is written twice", self.object);
                self.blocks_left -= 1;
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
            self.step = Appear::WriteFooter;
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
        let sections = layout::sections(self.len);
        let part = || layout::part_file(&self.object);
        let file = || layout::object_file(&self.object);
        match self.step {
            Appear::Allocate => Action::Allocate { file: part(), len: sections.file_len },
            Appear::WriteTable => Action::WriteTable { offset: sections.table_offset },
            Appear::WriteFooter => {
                assert!(self.blocks_left == 0, "the footer says that all blocks are there");
                let footer = layout::Footer { object: self.object, len: self.len };
                Action::WriteFooter { offset: sections.footer_offset, footer }
            }
            Appear::FlushFile => Action::FlushFile,
            Appear::Rename => Action::Rename { from: part(), to: file() },
            Appear::SyncObjects => Action::SyncFolder(layout::object_folder(&self.object)),
            Appear::SyncFill => Action::SyncFolder(FileName(layout::FILL.into())),
            Appear::Log => {
                let entry = Entry { offset: Bytes::ZERO, len: self.len };
                Action::Log(Change::Published(self.object, entry))
            }
            Appear::Show => {
                assert!(self.logged && self.fault.is_none(), "shown only when it is in the log");
                let (drive, len) = (self.drive, self.len);
                Action::Show(Extent { drive, file: file(), offset: Bytes::ZERO, len })
            }
            Appear::UnlinkPart => Action::Unlink(part()),
            Appear::UnlinkObject => Action::Unlink(file()),
            Appear::Blocks | Appear::End => unreachable!("poll gives nothing out at these steps"),
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.issued = false;
        let undoing = self.fault.is_some();
        self.fault.get_or_insert(fault);
        self.step = if undoing || fault == Fault::SetAside || self.step == Appear::Show {
            Appear::End
        } else if self.step <= Appear::Rename {
            Appear::UnlinkPart
        } else {
            Appear::UnlinkObject
        };
    }
}

impl Removal {
    /// The object is published and is to go.
    pub fn new(object: ObjectId) -> Self {
        Self { object, step: Go::Hide, issued: false, fault: None }
    }

    /// Takes what came of the last action.
    pub fn handle(&mut self, event: Event) {
        assert!(self.issued, "only an action that was given out can be done");
        self.issued = false;
        self.step = match event {
            Event::Done => self.step.next(),
            Event::BlockWritten => unreachable!("nothing is written to an object that goes"),
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
            Go::Hide => Action::Hide,
            Go::Log => Action::Log(Change::Removed(self.object)),
            Go::Unlink => Action::Unlink(layout::object_file(&self.object)),
            Go::SyncFolder => Action::SyncFolder(layout::object_folder(&self.object)),
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
            Self::Blocks => Self::WriteFooter,
            Self::WriteFooter => Self::FlushFile,
            Self::FlushFile => Self::Rename,
            Self::Rename => Self::SyncObjects,
            Self::SyncObjects => Self::SyncFill,
            Self::SyncFill => Self::Log,
            Self::Log => Self::Show,
            Self::Show | Self::UnlinkPart | Self::UnlinkObject | Self::End => Self::End,
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
        let mut publication = Publication::new(OBJECT, LEN, DRIVE);
        while publication.poll().is_some() {
            publication.handle(Event::Done);
        }
        publication
    }

    fn name(action: &Action) -> String {
        match action {
            Action::Allocate { len, .. } => format!("allocate({})", len.0),
            Action::WriteTable { offset } => format!("table({})", offset.0),
            Action::WriteFooter { offset, .. } => format!("footer({})", offset.0),
            Action::FlushFile => "flush".to_owned(),
            Action::Rename { .. } => "rename".to_owned(),
            Action::SyncFolder(folder) => format!("sync({})", folder.0),
            Action::Log(_) => "log".to_owned(),
            Action::Show(_) => "show".to_owned(),
            Action::Hide => "hide".to_owned(),
            Action::Unlink(file) => format!("unlink({})", &file.0[..4]),
        }
    }

    #[test]
    fn an_object_is_shown_after_everything_else() {
        let (steps, outcome) = run(Publication::new(OBJECT, LEN, DRIVE), None);
        let wanted = "allocate(610304) table(602112) footer(606208) flush rename sync(objects/ab) \
                      sync(fill) log show";
        assert_eq!((steps.as_str(), outcome), (wanted, Outcome::Complete));
    }

    #[test]
    fn an_adopted_object_goes_the_rest_of_the_way() {
        let (steps, _) = run(Publication::adopt(OBJECT, LEN, DRIVE), None);
        assert_eq!(steps, "sync(objects/ab) sync(fill) log show");
    }

    #[test]
    fn whichever_step_fails_nothing_is_shown_and_the_room_is_given_back() {
        let (all, _) = run(Publication::new(OBJECT, LEN, DRIVE), None);
        let steps: Vec<&str> = all.split(' ').collect();
        for fault in [Fault::Full, Fault::Io, Fault::SetAside] {
            for at in 0..steps.len() - 1 {
                let (done, outcome) = run(Publication::new(OBJECT, LEN, DRIVE), Some((at, fault)));
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
            let mut removal = Removal::new(OBJECT);
            let mut names = Vec::new();
            while let Some(action) = removal.poll() {
                let failed = fail_at == Some(names.len());
                names.push(name(&action));
                removal.handle(if failed { Event::Failed(Fault::Io) } else { Event::Done });
            }
            (names.join(" "), removal.outcome().unwrap())
        };
        let all = "hide log unlink(obje) sync(objects/ab)";
        assert_eq!(run(None), (all.to_owned(), Outcome::Complete));
        assert_eq!(run(Some(1)), ("hide log".to_owned(), Outcome::Abandoned(Fault::Io)));
    }
}

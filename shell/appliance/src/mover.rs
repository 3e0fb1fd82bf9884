//! Moves what is watched most to fast drives, and what is not away from them.
//!
//! ```text
//! fill::tier::plan ──> claim ──> each block: read, verified, written ──> flushed, verified again
//!   ──> renamed, in the log of its new drive ──> shown there ──> a moment ──> the old copy goes
//! ```
//!
//! A copy is made through the gates of both drives, as fill and scrub are. Workers are told of the
//! new place in one step; who reads from the old file reads on. If the power fails while there are
//! two copies, the first drive that has one wins at the start, and the audit removes the other.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use fill::tier::{Class, Move};
use holdings::{Doubt, Part};
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::parcel::{Parcel, PartId};
use store::publish::{self, Action, Fault, Outcome, Publication};

use crate::drives::{Drive, DriveError, ObjectFileError};
use crate::keeper;
use crate::pages::Pages;
use crate::shared::Shared;
use crate::tiering::{self, Tier};

/// What is known of heat is kept so often: a kill forgets no more.
const KEEP_EVERY: Nanos = Nanos::seconds(600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared) {
    let Some(tier) = &shared.tier else { return };
    let mut mover = Mover { shared, tier, buffer: Pages::zeroed(BLOCK_LEN) };
    let mut kept_at = shared.now();
    while shared.sleep_until(shared.now() + tier.config.every) {
        while mover.round() {}
        if KEEP_EVERY <= shared.now().since(kept_at) {
            keep_heat(shared, tier);
            kept_at = shared.now();
        }
    }
    keep_heat(shared, tier);
}

fn keep_heat(shared: &Shared, tier: &Tier) {
    if let Err(error) = tier.keep_heat() {
        tracing::warn!(%error, "what is watched is not kept");
        shared.note("tiering", format!("cannot keep what is watched: {error}"));
    }
}

struct Mover<'a> {
    shared: &'a Shared,
    tier: &'a Tier,
    buffer: Pages,
}

/// How a copy ended.
enum Ended {
    /// It is shown where it was to go.
    Moved,
    /// It came to nothing, and nothing is left of it.
    Abandoned,
    /// So did it, and the object is not what it should be.
    Doubted(Doubt),
}

/// Why a step of a copy failed.
enum Failure {
    /// The drive that it goes to.
    Drive(DriveError),
    /// The file that it comes from.
    Source(DriveError),
    /// A block of the file that it comes from is wrong.
    SourceWrong,
    /// What was written is not what is read.
    CopyWrong,
    /// All must stop, or nobody wants it any more, or a drive is not used any more.
    Interrupted,
}

impl Mover<'_> {
    /// Plans, and carries it out; false if nothing was moved.
    fn round(&mut self) -> bool {
        let (mut up, mut down, mut bytes, mut kept) = (0, 0, Bytes::ZERO, true);
        for one in self.tier.plan(self.shared) {
            if self.shared.is_stopping() {
                break;
            }
            let room = match self.carry_out(&one) {
                Ok(Some(room)) => room,
                Ok(None) => continue,
                Err(error) => {
                    let what_to_do = "is the state directory full or read-only?";
                    let text = format!("nothing is moved: {error}: {what_to_do}");
                    self.shared.note("tiering", text);
                    kept = false;
                    break;
                }
            };
            bytes += room;
            match self.tier.class(one.to) {
                Class::Fast => up += 1,
                Class::Bulk => down += 1,
            }
        }
        if bytes == Bytes::ZERO {
            return false;
        }
        let (bytes, left) = (bytes.0, self.tier.left().0);
        tracing::info!(up, down, bytes, left, "objects moved between drives");
        kept && !self.shared.is_stopping()
    }

    /// Moves an object; what that took, or none if it stays where it is. An error if it cannot be
    /// kept that it was paid for.
    fn carry_out(&mut self, one: &Move) -> Result<Option<Bytes>, DriveError> {
        if !self.shared.claim(one.object) {
            return Ok(None);
        }
        let ended = self.claimed(one);
        self.shared.release(one.object);
        let Some((ended, room)) = ended? else { return Ok(None) };
        if matches!(ended, Ended::Moved) {
            self.tier.moved(one.to, room);
            return Ok(Some(room));
        }
        self.tier.abandoned.fetch_add(1, Ordering::Relaxed);
        if let Ended::Doubted(doubt) = ended {
            self.shared.suspect(one.object, doubt);
        }
        Ok(None)
    }

    /// How the move ended, and what it took; none if it was not begun.
    fn claimed(&mut self, one: &Move) -> Result<Option<(Ended, Bytes)>, DriveError> {
        let (shared, object) = (self.shared, one.object);
        let extent = shared.locate(&object).filter(|extent| extent.drive == one.from);
        let drives = (shared.answering(one.from), shared.answering(one.to));
        let (Some(extent), (Some(from), Some(to))) = (extent, drives) else { return Ok(None) };
        let room = layout::sections(extent.len).file_len;
        let is_movable = tiering::is_own_file(&object, &extent) && shared.is_wanted(&object);
        if !is_movable || !self.has_room(one.to, room) || !self.tier.spend(room)? {
            return Ok(None);
        }
        let ended = match Copy::begin(shared, object, &extent, (&from, &to), &mut self.buffer) {
            Ok(copy) => copy.run(),
            Err(failure) => judge(shared, &from, &to, failure),
        };
        if matches!(ended, Ended::Moved) {
            self.remove_old(&from, object);
        }
        Ok(Some((ended, room)))
    }

    fn has_room(&self, on: DriveIndex, room: Bytes) -> bool {
        let space = self.shared.spaces().into_iter().find(|space| space.drive == on);
        space.is_some_and(|space| room <= space.free)
    }

    /// Removes a copy that nobody is told of any more, once workers have read that; at once if all
    /// must stop.
    fn remove_old(&self, drive: &Drive, object: ObjectId) {
        let shared = self.shared;
        shared.sleep_until(shared.now() + self.tier.config.linger);
        let at = shared.locate(&object).map(|extent| extent.drive);
        let is_elsewhere =
            at.is_some_and(|at| at != drive.index() && shared.answering(at).is_some());
        // If it is nowhere, the drive that it went to failed: fill finds it here. While that drive
        // hangs it may still fail: then too. If this one hangs, the audit finds the copy later.
        if is_elsewhere && drive.answers(shared.now()) {
            keeper::drop_copy(shared, drive, object);
        }
    }
}

/// One object being copied. The caller has claimed it.
struct Copy<'a> {
    shared: &'a Shared,
    object: ObjectId,
    from: &'a Drive,
    to: &'a Drive,
    source: OwnedFd,
    blocks: Blocks,
    buffer: &'a mut Pages,
    publication: Publication,
    /// None until the part file is there.
    file: Option<OwnedFd>,
    shown: bool,
}

impl<'a> Copy<'a> {
    fn begin(
        shared: &'a Shared,
        object: ObjectId,
        extent: &Extent,
        (from, to): (&'a Drive, &'a Drive),
        buffer: &'a mut Pages,
    ) -> Result<Self, Failure> {
        let blocks = match from.read_blocks(object, extent) {
            Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
            Err(ObjectFileError::Drive(error)) => return Err(Failure::Source(error)),
            Ok(_) | Err(_) => return Err(Failure::SourceWrong),
        };
        let source = from.open_read(&extent.file).map_err(Failure::Source)?;
        let publication = Publication::new(Parcel::Alone(object, extent.len), to.index());
        let (file, shown) = (None, false);
        Ok(Self { shared, object, from, to, source, blocks, buffer, publication, file, shown })
    }

    fn run(mut self) -> Ended {
        let (mut index, mut ended) = (0, None);
        loop {
            let (done, event) = if let Some(action) = self.publication.poll() {
                (self.publish(action), publish::Event::Done)
            } else if let Some(outcome) = self.publication.outcome() {
                if outcome == Outcome::Complete && self.shown {
                    return Ended::Moved;
                }
                if outcome == Outcome::Abandoned(Fault::SetAside) && self.file.is_some() {
                    self.leave_part();
                }
                return ended.unwrap_or(Ended::Abandoned);
            } else {
                let done = self.block(index);
                index += 1;
                (done, publish::Event::BlockWritten)
            };
            let event = done.map_or_else(
                |failure| {
                    let fault = fault(self.shared, self.to, &failure);
                    let judged = judge(self.shared, self.from, self.to, failure);
                    // What cannot be removed afterwards changes nothing of why it is.
                    ended.get_or_insert(judged);
                    publish::Event::Failed(fault)
                },
                |()| event,
            );
            self.publication.handle(event);
        }
    }

    /// Carries out a step of the publication.
    fn publish(&mut self, action: Action) -> Result<(), Failure> {
        let to = self.to;
        if let Some(reason) = to.set_aside_reason() {
            return Err(Failure::Drive(DriveError::set_aside(reason)));
        }
        let done = match action {
            Action::Allocate { file, len } => {
                to.allocate(&file, len).map(|(fd, _)| self.file = Some(fd))
            }
            Action::WriteTable { offset, .. } => to.write_table(self.file(), &self.blocks, offset),
            Action::WriteEnd { offset, pages } => to.write_end(self.file(), &pages, offset),
            Action::FlushFile => {
                to.flush(self.file()).map_err(Failure::Drive)?;
                return self.verify();
            }
            Action::Rename { from, to: name } => to.rename(&from, &name),
            Action::SyncFolder(folder) => to.sync_folder(&folder),
            Action::Log(changes) => to.log(&changes),
            Action::Show(objects) => {
                let shown = |(object, extent)| self.shared.relocate(object, extent, to);
                self.shown = objects.into_iter().all(shown);
                Ok(())
            }
            Action::Unlink(file) => to.unlink(&file),
            Action::Hide(_) => unreachable!("a step of a removal, not of a publication"),
        };
        done.map_err(Failure::Drive)
    }

    /// Copies a block.
    fn block(&mut self, index: u64) -> Result<(), Failure> {
        self.go_on()?;
        let len = block_len(self.blocks.len(), index);
        let padded = len.align_up(DIRECT_ALIGN).as_usize();
        let at = Bytes(index * BLOCK_LEN.0);
        let bytes = &mut self.buffer.bytes_mut()[..padded];
        self.from.read(&self.source, bytes, at).map_err(Failure::Source)?;
        if !self.blocks.verify(index, &bytes[..len.as_usize()]) {
            return Err(Failure::SourceWrong);
        }
        bytes[len.as_usize()..].fill(0);
        self.to.write(self.file(), &self.buffer.bytes()[..padded], at).map_err(Failure::Drive)
    }

    /// Reads all of the copy again: the old file goes for its sake.
    fn verify(&mut self) -> Result<(), Failure> {
        let (drive, file) = (self.to.index(), layout::part_file(&self.object));
        let part = Extent { drive, file, offset: Bytes::ZERO, len: self.blocks.len() };
        match self.to.read_blocks(self.object, &part) {
            Ok(blocks) if blocks == self.blocks => {}
            Err(ObjectFileError::Drive(error)) => return Err(Failure::Drive(error)),
            Ok(_) | Err(_) => return Err(Failure::CopyWrong),
        }
        for index in 0..Bytes::of(self.blocks.hashes().len()).0 {
            self.go_on()?;
            let len = block_len(self.blocks.len(), index);
            let padded = len.align_up(DIRECT_ALIGN).as_usize();
            let bytes = &mut self.buffer.bytes_mut()[..padded];
            let file = self.file.as_ref().expect("allocated before anything is written");
            let read = self.to.read(file, bytes, Bytes(index * BLOCK_LEN.0));
            read.map_err(Failure::Drive)?;
            if !self.blocks.verify(index, &bytes[..len.as_usize()]) {
                return Err(Failure::CopyWrong);
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Failure> {
        let (shared, now) = (self.shared, self.shared.now());
        let goes_on = !shared.is_stopping()
            && shared.is_wanted(&self.object)
            && self.from.answers(now)
            && self.to.answers(now);
        if goes_on { Ok(()) } else { Err(Failure::Interrupted) }
    }

    /// The drive does not answer: what is left there is dropped by a plan when it does.
    fn leave_part(&self) {
        if self.to.set_aside_reason().is_none() {
            let part = Part { drive: self.to.index(), verified: Bytes::ZERO };
            self.shared.set_part(PartId::Object(self.object), Some(part));
        }
    }

    fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("allocated before anything is written")
    }
}

/// What a failure means for the publication of the copy.
fn fault(shared: &Shared, to: &Drive, failure: &Failure) -> Fault {
    match failure {
        Failure::Drive(error) => error.fault,
        Failure::Interrupted if !to.answers(shared.now()) => Fault::SetAside,
        Failure::Source(_) | Failure::SourceWrong | Failure::CopyWrong | Failure::Interrupted => {
            Fault::Io
        }
    }
}

/// What it means for the drives and for the object.
fn judge(shared: &Shared, from: &Drive, to: &Drive, failure: Failure) -> Ended {
    match failure {
        Failure::Drive(error) => shared.drive_failed(to, &error),
        Failure::Source(error) if error.is_one_place() => {
            return Ended::Doubted(Doubt::Unreadable(error.to_string()));
        }
        Failure::Source(error) if error.is_missing() => return Ended::Doubted(Doubt::Suspect),
        Failure::Source(error) => shared.drive_failed(from, &error),
        Failure::SourceWrong => return Ended::Doubted(Doubt::Suspect),
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

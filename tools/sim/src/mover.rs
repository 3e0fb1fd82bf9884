//! Moves objects between drives: what is watched most to the first, and at whim. The counterpart of
//! `mover.rs` in `shell/appliance`.

use std::collections::BTreeMap;
use std::rc::Rc;

use fill::tier::{self, Class, Held, Move};
use holdings::Doubt;
use iosched::drive;
use model::extent::DriveIndex;
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::object::{BLOCK_LEN, Blocks};
use model::units::{Bytes, Nanos};
use store::layout;
use store::parcel::{Parcel, PartId};
use store::publish::{Action, Event, Outcome, Publication};

use crate::canary::Canary;
use crate::chores;
use crate::drive::{EIO, ENODEV, ENOENT, Errno};
use crate::files::FileId;
use crate::filler::fault_of;
use crate::opened::{Opened, Wrong};
use crate::oracle;
use crate::process::Process;

/// Small, as all bounds here.
const PLAN: tier::Config = tier::Config { moves_max: 3, gain_min: 2, heat_min: Bytes(1) };
const BUDGET: Bytes = Bytes::mib(4);
/// How long the old file stays: workers hear of the new one after a microsecond.
const LINGER: Nanos = Nanos::millis(20);

/// Runs until its process ends.
pub(crate) async fn run(process: Rc<Process>) {
    let stage = process.world.stage.clone();
    loop {
        stage.sleep(stage.millis(200, 4_000)).await;
        // An operator waits until all has come right; then nothing moves any more.
        if process.world.is_calm.get() {
            continue;
        }
        let moves = if stage.one_in(2) { plan(&process) } else { whim(&process) };
        for one in moves {
            if process.claim(one.object) {
                carry_out(&process, &one).await;
                process.release(one.object);
            }
        }
    }
}

fn plan(process: &Process) -> Vec<Move> {
    let spaces = process.spaces().into_iter();
    let drive = |space: layout::DriveSpace| {
        let class = if space.drive == DriveIndex(0) { Class::Fast } else { Class::Bulk };
        tier::Drive { drive: space.drive, class, free: space.free }
    };
    let drives: Vec<tier::Drive> = spaces.map(drive).collect();
    let held = |(object, drive, len)| {
        let (room, heat) = (layout::sections(len).file_len, process.heat(&object));
        (object, Held { drive, room, heat })
    };
    let held: BTreeMap<ObjectId, Held> = process.movable().into_iter().map(held).collect();
    tier::plan(&PLAN, &drives, &held, BUDGET)
}

/// Any object to any drive.
fn whim(process: &Process) -> Vec<Move> {
    let stage = &process.world.stage;
    let Some((object, from, _)) = stage.pick(&process.movable()).copied() else { return vec![] };
    let drives = process.all_answering();
    let Some(to) = stage.pick(&drives).map(|drive| drive.index) else { return vec![] };
    if from == to { vec![] } else { vec![Move { object, from, to }] }
}

/// The caller has claimed the object.
async fn carry_out(process: &Rc<Process>, one: &Move) {
    let object = one.object;
    let Some(extent) = process.locate(&object).filter(|at| at.drive == one.from) else { return };
    let (from, to) = (process.answering(one.from), process.answering(one.to));
    let (Some(from), Some(to)) = (from, to) else { return };
    if process.world.has(Canary::OldGoesFirst) {
        chores::drop_copy(process, &from, object).await;
    }
    let blocks = match from.read_blocks(object, &extent).await {
        Ok(blocks) if blocks.id() == object && blocks.len() == extent.len => blocks,
        Err(Wrong::Drive(errno)) => return source_failed(process, &from, object, errno),
        Ok(_) | Err(Wrong::Content) => return process.suspect(object, Doubt::Suspect),
    };
    let source = match from.drive.open(&extent.file.0).await {
        Ok(source) => source,
        Err(errno) => return source_failed(process, &from, object, errno),
    };
    process.say(|| format!("copies {object} from drive {} to {}", one.from, one.to));
    let publication = Publication::new(Parcel::Alone(object, extent.len), to.index);
    let copy = Copy { process, object, from: &from, to: &to, source, blocks, publication };
    if copy.run().await {
        process.world.count(|counts| counts.moved += 1);
        process.world.stage.sleep(LINGER).await;
        // If it is nowhere, the drive that it went to failed: fill finds it here. While that drive
        // hangs it may still fail: then too.
        let at = process.locate(&object).map(|extent| extent.drive);
        let answers = |drive: DriveIndex| process.answering(drive).is_some();
        let is_elsewhere = at.is_some_and(|at| at != from.index && answers(at));
        if is_elsewhere && process.answering(from.index).is_some() {
            chores::drop_copy(process, &from, object).await;
        }
    }
}

fn source_failed(process: &Process, from: &Opened, object: ObjectId, errno: Errno) {
    match errno {
        EIO => process.suspect(object, Doubt::Unreadable(String::new())),
        ENOENT => process.suspect(object, Doubt::Suspect),
        _ => process.drive_failed(from.index, errno),
    }
}

/// One object being copied.
struct Copy<'a> {
    process: &'a Rc<Process>,
    object: ObjectId,
    from: &'a Opened,
    to: &'a Opened,
    source: FileId,
    blocks: Blocks,
    publication: Publication,
}

/// Why a step failed.
enum Failure {
    /// The drive that it goes to.
    Drive(Errno),
    /// Anything else, which was told already.
    Told,
}

impl Copy<'_> {
    /// True if it is shown where it was to go.
    async fn run(mut self) -> bool {
        let (mut file, mut index, mut shown) = (None, 0, false);
        loop {
            let (done, event) = if let Some(action) = self.publication.poll() {
                (self.publish(action, &mut file, &mut shown).await, Event::Done)
            } else if let Some(outcome) = self.publication.outcome() {
                if !shown && !self.to.is_aside() && outcome != Outcome::Complete {
                    // What could not be taken away is dropped by a plan.
                    self.leave_part();
                }
                return outcome == Outcome::Complete && shown;
            } else {
                let file = file.expect("allocated before any block");
                let done = self.block(file, index).await;
                index += 1;
                (done, Event::BlockWritten)
            };
            let event = match done {
                Ok(()) => event,
                Err(Failure::Drive(errno)) => {
                    self.process.drive_failed(self.to.index, errno);
                    Event::Failed(fault_of(errno))
                }
                Err(Failure::Told) => Event::Failed(store::publish::Fault::Io),
            };
            self.publication.handle(event);
        }
    }

    /// Carries out a step of the publication.
    async fn publish(
        &self,
        action: Action,
        file: &mut Option<FileId>,
        shown: &mut bool,
    ) -> Result<(), Failure> {
        let (to, drive) = (self.to, &self.to.drive);
        to.check().map_err(Failure::Drive)?;
        let there = || file.expect("allocated before anything is written");
        let done = match action {
            Action::Allocate { file: name, len } => {
                match drive.allocate(&name.0, len.as_usize()).await {
                    Ok((made, _)) => {
                        *file = Some(made);
                        Ok(())
                    }
                    Err(errno) => Err(errno),
                }
            }
            Action::WriteTable { offset, .. } => {
                to.write_table(there(), &self.blocks, offset).await
            }
            Action::WriteEnd { offset, pages } => to.write_end(there(), &pages, offset).await,
            Action::FlushFile => {
                to.flush(there()).await.map_err(Failure::Drive)?;
                return self.verify(there()).await;
            }
            Action::Rename { from, to } => drive.rename(&from.0, &to.0).await,
            Action::SyncFolder(folder) => drive.sync_folder(&folder.0).await,
            Action::Log(changes) => to.log(&changes).await,
            Action::Show(objects) => {
                for (object, extent) in objects {
                    oracle::is_durable(self.process, to, object, &extent);
                    *shown = self.process.relocate(object, extent);
                }
                Ok(())
            }
            Action::Unlink(file) => to.unlink(&file.0).await,
            Action::Hide(_) => unreachable!("a step of a removal, not of a publication"),
        };
        done.map_err(Failure::Drive)
    }

    /// Copies a block.
    async fn block(&self, file: FileId, index: u64) -> Result<(), Failure> {
        self.go_on()?;
        let place = (Bytes::ZERO, self.blocks.len());
        let read = self.from.read_block(drive::Class::Scrub, self.source, place, index).await;
        let mut bytes = match read {
            Ok(bytes) => bytes,
            Err(errno) => {
                source_failed(self.process, self.from, self.object, errno);
                return Err(Failure::Told);
            }
        };
        if !self.blocks.verify(index, &bytes) {
            self.process.suspect(self.object, Doubt::Suspect);
            return Err(Failure::Told);
        }
        bytes.resize(Bytes::of(bytes.len()).align_up(DIRECT_ALIGN).as_usize(), 0);
        self.to.check().map_err(Failure::Drive)?;
        self.to.write(file, Bytes(index * BLOCK_LEN.0), &bytes).await.map_err(Failure::Drive)
    }

    /// Reads all of the copy again.
    async fn verify(&self, file: FileId) -> Result<(), Failure> {
        for index in 0..Bytes::of(self.blocks.hashes().len()).0 {
            self.go_on()?;
            let place = (Bytes::ZERO, self.blocks.len());
            let read = self.to.read_block(drive::Class::Scrub, file, place, index);
            let bytes = read.await.map_err(Failure::Drive)?;
            if !self.blocks.verify(index, &bytes) {
                return Err(Failure::Told);
            }
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), Failure> {
        let answers = |drive: &Opened| self.process.answering(drive.index).is_some();
        if self.to.is_aside() {
            return Err(Failure::Drive(ENODEV));
        }
        let goes_on =
            self.process.is_wanted(&self.object) && answers(self.from) && answers(self.to);
        if goes_on { Ok(()) } else { Err(Failure::Told) }
    }

    fn leave_part(&self) {
        let name = layout::part_file(&self.object);
        if self.to.drive.with_files(|files| files.find(&name.0).is_some()) {
            self.process.set_part(PartId::Object(self.object), Some(self.to.index));
        }
    }
}

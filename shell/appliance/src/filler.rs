//! Fill threads: each takes a file at a time from the plan, an object or the objects of a unit, and
//! brings it from source to drive.
//!
//! What is decided is decided in `fill::transfer` (what to ask for, whether a block is right) and
//! `store::publish` (in which order an object appears); here both are asked, and carried out.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use fill::plan::Fetch;
use fill::transfer::{self, Reason, SourceFault, Transfer};
use holdings::{Claim, Part};
use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::machine::Machine;
use model::object::{BLOCK_LEN, Blocks, block_count, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::parcel::{Parcel, PartId};
use store::publish::{self, Action, Outcome, Publication};

use crate::control_link::ControlClient;
use crate::drives::{self, Drive, DriveError};
use crate::member::MemberClient;
use crate::pages::Pages;
use crate::places::{Kind, Places};
use crate::shared::Shared;
use crate::source::{self, Answer};
use crate::{adopt, audit, units};

/// Most bytes of one request. Each costs a round trip: at 20 ms and 1 Gb/s 16 MiB lose 15 %, which
/// the other transfers use.
const RANGE_LEN_MAX: Bytes = Bytes::mib(16);
/// Least bytes of one request, and requests per object. What a cut connection had in its buffers is
/// fetched again (4 MB each were seen on loopback): so a cut costs at most 1 MiB per transfer, or
/// 0.4 % of a large object, and ten of them cost less than 5 % of 256 MiB.
const RANGE_LEN_MIN: Bytes = Bytes::mib(1);
const RANGES_PER_OBJECT: u64 = 256;

/// Bounds of the transfer of an object of this length.
fn bounds(len: Bytes) -> transfer::Config {
    let share = Bytes(len.0 / RANGES_PER_OBJECT);
    transfer::Config {
        range_len_max: share.clamp(RANGE_LEN_MIN, RANGE_LEN_MAX),
        block_tries_max: 4,
        rounds_max: 4,
        backoff_first: Nanos::millis(250),
        backoff_max: Nanos::seconds(5),
    }
}

/// How a file ended.
enum Ended {
    /// It is visible, or as much of it as could be had: but for this object, and what follows it.
    Published(Option<ObjectId>),
    /// All must stop.
    Stopped,
    /// Not now, for the sake of this object; the text says why.
    Postponed(ObjectId, String),
    /// The drive failed, which was said already.
    DriveFailed,
}

/// Whom a filler speaks to. Each thread has its own.
pub(crate) struct Clients {
    pub(crate) origins: ureq::Agent,
    pub(crate) siblings: MemberClient,
    pub(crate) control: Option<ControlClient>,
}

/// One file being filled.
struct Filling<'a> {
    shared: &'a Shared,
    clients: &'a Clients,
    drive: &'a Drive,
    claim: &'a Claim,
    part: PartId,
    buffer: &'a mut Pages,
    publication: Publication,
    /// None until the part file is there; and whether it was before.
    file: Option<(OwnedFd, bool)>,
    /// None until the first of its objects has its turn.
    one: Option<One<'a>>,
    verified: Bytes,
}

/// The object that is fetched into it now.
struct One<'a> {
    fetch: &'a Fetch,
    /// Where in the file it begins.
    base: Bytes,
    blocks: Blocks,
    places: Places<'a>,
    /// The place that answers, or was the last to.
    place: usize,
    transfer: Transfer,
    answer: Option<Answer>,
}

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, clients: &Clients) {
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    while let Some(claim) = shared.claim_fetch() {
        let most = shared.spaces().iter().map(|space| space.free).max().unwrap_or(Bytes::ZERO);
        let Some(claim) = with_room(shared, claim, most) else { continue };
        let objects = claim.fetch.len();
        match fill(shared, clients, &claim, &mut buffer) {
            Ended::Published(without) => {
                tracing::debug!(object = %claim.fetch[0].object, objects, "published");
                shared.done(&claim, without.as_slice());
                if without.is_some() {
                    shared.replan();
                }
            }
            Ended::Stopped => shared.done(&claim, &[]),
            Ended::DriveFailed => {
                let all: Vec<_> = claim.fetch.iter().map(|fetch| fetch.object).collect();
                shared.done(&claim, &all);
                shared.replan();
            }
            Ended::Postponed(object, text) => {
                say_postponed(shared, &claim, object, &text);
                shared.done(&claim, &[object]);
                if 1 < objects {
                    shared.replan(); // The others go on without it.
                }
            }
        }
    }
}

fn say_postponed(shared: &Shared, claim: &Claim, object: ObjectId, text: &str) {
    tracing::warn!(%object, reason = text, "object postponed");
    let fetch = claim.fetch.iter().find(|fetch| fetch.object == object);
    let name = fetch.map_or_else(|| object.to_string(), name);
    shared.note("fill", format!("{name}: {text}"));
}

fn fill(shared: &Shared, clients: &Clients, claim: &Claim, buffer: &mut Pages) -> Ended {
    let (parcel, first) = (claim.parcel(), claim.fetch[0].object);
    if shared.open_drives().iter().any(|drive| is_there(shared, drive, &parcel)) {
        return Ended::Published(None);
    }
    if shared.is_stopping() {
        return Ended::Stopped;
    }
    let part = claim.part.and_then(|part| shared.drive(part.drive));
    if part.as_ref().is_some_and(|drive| !drive.answers(shared.now())) {
        let text = "a part of it is on a drive that does not answer".to_owned();
        return Ended::Postponed(first, text);
    }
    let index = part.map(|drive| drive.index()).or_else(|| choose(shared, parcel.file_len()));
    let Some(drive) = index.and_then(|index| shared.drive(index)) else {
        let room = parcel.file_len();
        let text = format!("no drive in use has {room} free: add drives or hold less");
        return Ended::Postponed(first, text);
    };
    let filling = Filling {
        shared,
        clients,
        drive: &drive,
        claim,
        part: parcel.part(),
        buffer,
        publication: Publication::new(parcel, drive.index()),
        file: None,
        one: None,
        verified: Bytes::ZERO,
    };
    filling.run()
}

/// As much of it as the drive has room for that has `most`: all drives together may have room for a
/// unit, and none alone. None if that cannot be now.
fn with_room(shared: &Shared, claim: Claim, most: Bytes) -> Option<Claim> {
    let parcel = claim.parcel();
    let has_file =
        |drive: &Drive| drive.answers(shared.now()) && drive.open_read(&parcel.file()).is_ok();
    let is_begun = claim.part.is_some();
    if is_begun || parcel.file_len() <= most || shared.open_drives().iter().any(|of| has_file(of)) {
        return Some(claim);
    }
    match parcel.fitting(most) {
        0 => Some(claim), // Who finds no room for the first says so.
        count => shared.shorten(claim, count),
    }
}

/// True if the drive had it all along, or some of a unit, and that is visible now.
fn is_there(shared: &Shared, drive: &Drive, parcel: &Parcel) -> bool {
    let found = drive.answers(shared.now()) && drive.open_read(&parcel.file()).is_ok();
    found
        && match parcel {
            Parcel::Alone(object, _) => adopt::adopt(shared, drive, *object),
            Parcel::Unit(directory) => units::take_up(shared, drive, directory.id()),
        }
}

fn choose(shared: &Shared, room: Bytes) -> Option<DriveIndex> {
    let choice = layout::choose(&shared.spaces(), room);
    tracing::debug!(drive = ?choice.drive, passed_over = ?choice.passed_over, "drive chosen");
    choice.drive
}

/// What an operator knows an object by: its first URL, without a query, which may hold a signature.
fn name(fetch: &Fetch) -> String {
    let url = fetch.urls.first().map(|url| url.split(['?', '#']).next().unwrap_or(""));
    url.map_or_else(|| fetch.object.to_string(), str::to_owned)
}

impl<'a> Filling<'a> {
    fn run(mut self) -> Ended {
        let mut without = None;
        let ended = loop {
            let gave_up = match self.step() {
                Step::GoOn => continue,
                Step::Ended(Ended::Published(_)) => break Ended::Published(without),
                Step::Ended(ended) => break ended,
                Step::GaveUp(text) => text,
            };
            let object = self.claim.fetch[self.publication.whole()].object;
            if self.publication.whole() == 0 {
                break Ended::Postponed(object, gave_up);
            }
            // What is whole is not kept back for the sake of one object.
            say_postponed(self.shared, self.claim, object, &gave_up);
            without = Some(object);
            self.publication.handle(publish::Event::Short);
        };
        let abandoned = matches!(self.publication.outcome(), Some(Outcome::Abandoned(_)));
        if abandoned || matches!(ended, Ended::Published(_)) {
            self.shared.dropped_part(self.part, self.drive.index());
        }
        ended
    }

    /// One step of the publication, or of the transfer of the object that has its turn.
    fn step(&mut self) -> Step {
        match self.publication.poll() {
            Some(Action::WriteTable { index, base, offset }) => {
                if let Err(text) = self.begin(index, base) {
                    return Step::GaveUp(text);
                }
                let one = self.one.as_ref().expect("begun");
                let done = self.drive.write_table(self.file(), &one.blocks, offset);
                self.tell_publication(done.map(|()| publish::Event::Done));
                return Step::GoOn;
            }
            Some(action) => {
                let done = self.publish(action);
                self.tell_publication(done.map(|()| publish::Event::Done));
                return Step::GoOn;
            }
            None => {}
        }
        match self.publication.outcome() {
            Some(Outcome::Complete) => return Step::Ended(Ended::Published(None)),
            Some(Outcome::Abandoned(_)) => return Step::Ended(Ended::DriveFailed),
            None => {}
        }
        // A stop waits for a block that has come to be written, but begins nothing new.
        match self.one().transfer.poll() {
            Some(transfer::Action::Fetch { .. } | transfer::Action::Reread { .. }) | None
                if self.shared.is_stopping() =>
            {
                return Step::Ended(Ended::Stopped);
            }
            Some(transfer::Action::GiveUp(reason)) => {
                return Step::GaveUp(self.give_up_text(&reason));
            }
            Some(action) => self.transfer(action),
            None => self.go_on(),
        }
        Step::GoOn
    }

    /// The next object has its turn, once the hashes of its blocks are known.
    fn begin(&mut self, index: usize, base: Bytes) -> Result<(), String> {
        let fetch = &self.claim.fetch[index];
        let (_, found) = self.file.as_ref().expect("allocated before");
        let (found, control) = (*found, self.clients.control.as_ref());
        let blocks = self.blocks(fetch, base, found)?;
        let places = Places::find(self.shared, control, &self.clients.siblings, fetch);
        let transfer = Transfer::new(bounds(fetch.len), blocks.clone(), places.len(), found);
        let (place, answer) = (0, None);
        self.one = Some(One { fetch, base, blocks, places, place, transfer, answer });
        Ok(())
    }

    /// The hashes of an object's blocks: from the id, from the part file, or from control.
    fn blocks(&self, fetch: &Fetch, base: Bytes, found: bool) -> Result<Blocks, String> {
        let (object, len) = (fetch.object, fetch.len);
        if block_count(len) < 2 {
            return drives::blocks_without_table(object, len).map_err(|error| error.to_string());
        }
        if found && let Ok(blocks) = self.drive.read_part_blocks(self.file(), object, len, base) {
            return Ok(blocks);
        }
        let control = self.clients.control.as_ref();
        let none = "its block hashes are not here, and no control is configured";
        let blocks = control.ok_or(none)?.blocks(object, len);
        blocks.map_err(|error| format!("control gives no block hashes: {error}"))
    }

    /// Carries out a step of the publication.
    fn publish(&mut self, action: Action) -> Result<(), DriveError> {
        let drive = self.drive;
        self.drive.check()?;
        match action {
            Action::Allocate { file, len } => {
                self.file = Some(drive.allocate(&file, len)?);
                self.show_part();
                Ok(())
            }
            Action::WriteEnd { offset, pages } => drive.write_end(self.file(), &pages, offset),
            Action::FlushFile => drive.flush(self.file()),
            Action::Rename { from, to } => drive.rename(&from, &to),
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Log(changes) => drive.log(&changes),
            Action::Show(objects) => {
                self.show(objects);
                Ok(())
            }
            Action::Unlink(file) => drive.unlink(&file),
            Action::WriteTable { .. } | Action::Hide(_) => {
                unreachable!("taken by the caller, or a step of a removal")
            }
        }
    }

    /// Small objects go to workers with their bytes: one that is alone from the buffer, those of a
    /// unit from where they are now.
    fn show(&mut self, objects: Vec<(ObjectId, Extent)>) {
        if let (Parcel::Alone(..), [(object, extent)]) =
            (self.publication.parcel(), objects.as_slice())
        {
            let small = extent.len <= SMALL_OBJECT_MAX;
            let bytes = small.then(|| &self.buffer.bytes()[..extent.len.as_usize()]);
            self.shared.publish(*object, extent.clone(), bytes);
            return;
        }
        for (object, extent) in &objects {
            self.shared.publish(*object, extent.clone(), None);
        }
        for (object, extent) in objects.iter().filter(|(_, e)| e.len <= SMALL_OBJECT_MAX) {
            audit::give_small(self.shared, self.drive, *object, extent, self.buffer);
        }
    }

    /// Carries out what the transfer asks for.
    fn transfer(&mut self, action: transfer::Action) {
        match action {
            transfer::Action::Reread { index } => {
                let len = self.read_block(index);
                let bytes = &self.buffer.bytes()[..len.as_usize()];
                let one = self.one.as_mut().expect("begun");
                one.tell(self.shared, transfer::Event::Found { index, bytes });
            }
            transfer::Action::Keep { index } => self.count(index),
            transfer::Action::Fetch { source, first, count } => self.ask(source, first, count),
            transfer::Action::Write { index } => match self.write_block(index) {
                Ok(()) => {
                    let shared = self.shared;
                    self.one().tell(shared, transfer::Event::Written);
                    self.count(index);
                }
                Err(error) => self.tell_publication(Err(error)),
            },
            transfer::Action::Close => self.one().answer = None,
            transfer::Action::Distrust { source, index } => {
                self.one().places.failed(source, &SourceFault::WrongBytes(index));
            }
            transfer::Action::Complete => {}
            transfer::Action::GiveUp(_) => unreachable!("taken by the caller"),
        }
    }

    /// Nothing to do but to read on, or to wait.
    fn go_on(&mut self) {
        let shared = self.shared;
        let one = self.one.as_mut().expect("begun");
        let Some(answer) = &mut one.answer else {
            let deadline = one.transfer.deadline();
            shared.sleep_until(deadline.expect("without an answer a transfer waits for time"));
            one.tell(shared, transfer::Event::Tick);
            return;
        };
        if answer.is_over() {
            one.answer.take().into_iter().for_each(Answer::finish);
            one.tell(shared, transfer::Event::Ended);
            return;
        }
        let index = answer.at().0 / BLOCK_LEN.0;
        let len = block_len(one.fetch.len, index);
        if !shared.pace(len) {
            return;
        }
        let read = answer.read(&mut self.buffer.bytes_mut()[..len.as_usize()]);
        match read {
            Ok(()) => {
                shared.fetched.fetch_add(len.0, Ordering::Relaxed);
                if one.places.get(one.place).kind == Kind::Sibling {
                    shared.from_siblings.fetch_add(len.0, Ordering::Relaxed);
                }
                let bytes = &self.buffer.bytes()[..len.as_usize()];
                one.tell(shared, transfer::Event::Received { index, bytes });
            }
            Err(fault) => {
                one.answer = None;
                one.places.failed(one.place, &fault);
                one.tell(shared, transfer::Event::Failed(fault));
            }
        }
    }

    fn ask(&mut self, source: usize, first: u64, count: u64) {
        let (shared, clients) = (self.shared, self.clients);
        let one = self.one();
        one.answer = None;
        if one.places.is_stale(source) {
            one.places.renew();
            let event = transfer::Event::Renewed { sources: one.places.len() };
            one.tell(shared, event);
            return;
        }
        match one.open(clients, source, first, count) {
            Ok(answer) => (one.place, one.answer) = (source, Some(answer)),
            Err(fault) => {
                one.places.failed(source, &fault);
                one.tell(shared, transfer::Event::Failed(fault));
            }
        }
    }

    /// Writes the block that is in the buffer, the last one with zeros up to a whole page.
    fn write_block(&mut self, index: u64) -> Result<(), DriveError> {
        self.drive.check()?;
        let (at, len) = self.one().block(index);
        let padded = len.align_up(DIRECT_ALIGN).as_usize();
        self.buffer.bytes_mut()[len.as_usize()..padded].fill(0);
        self.drive.write(self.file(), &self.buffer.bytes()[..padded], at)
    }

    /// Reads a block of the part file into the buffer; returns its length, or zero if it failed:
    /// then it is fetched, and writing will tell more.
    fn read_block(&mut self, index: u64) -> Bytes {
        let (at, len) = self.one().block(index);
        let padded = len.align_up(DIRECT_ALIGN).as_usize();
        let (file, _) = self.file.as_ref().expect("allocated before");
        let bytes = &mut self.buffer.bytes_mut()[..padded];
        match self.drive.read(file, bytes, at) {
            Ok(()) => len,
            Err(error) => {
                let bad_place = error.is_one_place()
                    && self.drive.object_failed(self.shared.now()) == Verdict::SetObjectAside;
                if !bad_place {
                    self.shared.drive_failed(self.drive, &error);
                }
                Bytes::ZERO
            }
        }
    }

    /// One more block is verified and written.
    fn count(&mut self, index: u64) {
        self.publication.handle(publish::Event::BlockWritten);
        let (_, len) = self.one().block(index);
        self.verified += len;
        self.show_part();
    }

    fn show_part(&self) {
        let part = Part { drive: self.drive.index(), verified: self.verified };
        self.shared.set_part(self.part, Some(part));
    }

    fn tell_publication(&mut self, result: Result<publish::Event, DriveError>) {
        self.publication.handle(result.unwrap_or_else(|error| {
            self.shared.drive_failed(self.drive, &error);
            publish::Event::Failed(error.fault)
        }));
    }

    fn file(&self) -> &OwnedFd {
        let (file, _) = self.file.as_ref().expect("allocated before anything is written");
        file
    }

    fn one(&mut self) -> &mut One<'a> {
        self.one.as_mut().expect("an object has its turn once the part file is there")
    }

    fn give_up_text(&mut self, reason: &Reason) -> String {
        match self.one().places.len() {
            0 | 1 => reason.to_string(),
            sources => format!("{reason} ({sources} sources tried)"),
        }
    }
}

/// What came of a step.
enum Step {
    GoOn,
    /// The object that has its turn cannot be had now.
    GaveUp(String),
    Ended(Ended),
}

impl One<'_> {
    /// Where in the file a block is, and how long.
    fn block(&self, index: u64) -> (Bytes, Bytes) {
        (self.base + Bytes(index * BLOCK_LEN.0), block_len(self.fetch.len, index))
    }

    fn open(
        &self,
        clients: &Clients,
        source: usize,
        first: u64,
        count: u64,
    ) -> Result<Answer, SourceFault> {
        if self.places.is_over(source) {
            return Err(SourceFault::Expired);
        }
        let len = self.fetch.len;
        let start = Bytes(first * BLOCK_LEN.0);
        let end = Bytes((first + count) * BLOCK_LEN.0).min(len);
        let place = self.places.get(source);
        match place.kind {
            Kind::Sibling => source::open(&clients.siblings.agent(), &place.url, start, end, len),
            Kind::Origin => source::open(&clients.origins, &place.url, start, end, len),
        }
    }

    fn tell(&mut self, shared: &Shared, event: transfer::Event<'_>) {
        self.transfer.handle(shared.now(), event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::tests::{manifest, shared_on};
    use model::units::UnixSeconds;

    #[test]
    fn an_object_is_named_to_the_operator_without_the_query_of_its_url() {
        let url = "https://origin/film/v.mp4?X-Amz-Signature=secret".to_owned();
        let mut fetch = Fetch { object: ObjectId([1; 32]), len: Bytes(5), urls: vec![url] };
        assert_eq!(name(&fetch), "https://origin/film/v.mp4");
        fetch.urls.clear();
        assert_eq!(name(&fetch), "01".repeat(32));
    }
    #[test]
    fn as_much_of_a_unit_is_fetched_as_one_drive_has_room_for() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = store::marker::Reserve::percent(1).unwrap();
        crate::format::format(dir.path(), reserve, UnixSeconds(1)).unwrap();
        let (drive, _) = Drive::open(dir.path(), DriveIndex(0)).unwrap();
        let shared = shared_on(vec![drive]);
        let objects = [1, 2, 3].map(|n| (ObjectId([n; 32]), Bytes(5000)));
        assert!(shared.set_manifest(manifest(1, &objects)));
        shared.plan();
        let claim = shared.claim_fetch().unwrap();
        let room = claim.parcel().file_len();
        let claim = with_room(&shared, claim, room).unwrap();
        assert_eq!(claim.fetch.len(), 3);
        // What is there already needs no room.
        let file = dir.path().join(&*claim.parcel().file().0);
        std::fs::write(&file, b"").unwrap();
        let claim = with_room(&shared, claim, room - Bytes(1)).unwrap();
        assert_eq!(claim.fetch.len(), 3);
        std::fs::remove_file(file).unwrap();
        let claim = with_room(&shared, claim, room - Bytes(1)).unwrap();
        assert_eq!(claim.fetch.len(), 2);
        assert!(shared.claim(objects[2].0), "the third is for another file");
        let claim = with_room(&shared, claim, Bytes(4096)).unwrap();
        assert_eq!(claim.fetch.len(), 2, "who finds no room for the first says so");
        shared.done(&claim, &[]);
    }
}

//! Fill threads: each takes an object at a time from the plan and brings it from source to drive.
//!
//! What is decided is decided in `fill::transfer` (what to ask for, whether a block is right) and
//! `store::publish` (in which order an object appears); here both are asked, and carried out.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use fill::plan::Fetch;
use fill::transfer::{self, Reason, SourceFault, Transfer};
use holdings::{Claim, Part};
use model::extent::DriveIndex;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::object::{BLOCK_LEN, Blocks, block_count, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::publish::{self, Action, Fault, Outcome, Publication};

use crate::adopt;
use crate::control_link::ControlClient;
use crate::drives::{self, Drive, DriveError};
use crate::member::MemberClient;
use crate::pages::Pages;
use crate::places::{Kind, Places};
use crate::shared::Shared;
use crate::source::{self, Answer};

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

/// How an object ended.
enum Ended {
    /// It is visible.
    Published,
    /// All must stop.
    Stopped,
    /// Not now; the text says why.
    Postponed(String),
    /// The drive failed, which was said already.
    DriveFailed,
}

/// Whom a filler speaks to. Each thread has its own.
pub(crate) struct Clients {
    pub(crate) origins: ureq::Agent,
    pub(crate) siblings: MemberClient,
    pub(crate) control: Option<ControlClient>,
}

/// One object being filled.
struct Filling<'a> {
    shared: &'a Shared,
    clients: &'a Clients,
    places: Places<'a>,
    /// The place that answers, or was the last to.
    place: usize,
    drive: &'a Drive,
    fetch: &'a Fetch,
    blocks: &'a Blocks,
    buffer: &'a mut Pages,
    publication: Publication,
    /// None until the part file is there.
    transfer: Option<Transfer>,
    file: Option<OwnedFd>,
    answer: Option<Answer>,
    verified: Bytes,
}

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, clients: &Clients) {
    let mut buffer = Pages::zeroed(BLOCK_LEN);
    while let Some(claim) = shared.claim_fetch() {
        let object = claim.fetch.object;
        match fill(shared, clients, &claim, &mut buffer) {
            Ended::Published => {
                tracing::debug!(%object, len = claim.fetch.len.0, "object published");
                shared.release(object);
            }
            Ended::Stopped => shared.release(object),
            Ended::DriveFailed => {
                shared.postpone(object);
                shared.replan();
            }
            Ended::Postponed(text) => {
                tracing::warn!(%object, reason = text, "object postponed");
                shared.note("fill", format!("{}: {text}", name(&claim.fetch)));
                shared.postpone(object);
            }
        }
    }
}

fn fill(shared: &Shared, clients: &Clients, claim: &Claim, buffer: &mut Pages) -> Ended {
    let fetch = &claim.fetch;
    if shared.open_drives().iter().any(|drive| is_there(shared, drive, fetch)) {
        return Ended::Published;
    }
    let part = claim.part.and_then(|part| shared.drive(part.drive));
    let part = part.as_deref();
    if part.is_some_and(|drive| !drive.answers(shared.now())) {
        return Ended::Postponed("a part of it is on a drive that does not answer".to_owned());
    }
    let control = clients.control.as_ref();
    let blocks = match blocks(fetch, part, control) {
        Ok(blocks) => blocks,
        Err(text) => return Ended::Postponed(text),
    };
    let index = part.map(Drive::index).or_else(|| choose(shared, fetch.len));
    let Some(drive) = index.and_then(|index| shared.drive(index)) else {
        let room = layout::sections(fetch.len).file_len;
        return Ended::Postponed(format!(
            "no drive in use has {room} free: add drives or hold less"
        ));
    };
    let filling = Filling {
        shared,
        clients,
        places: Places::find(shared, control, &clients.siblings, fetch),
        place: 0,
        drive: &drive,
        fetch,
        blocks: &blocks,
        buffer,
        publication: Publication::new(fetch.object, fetch.len, drive.index()),
        transfer: None,
        file: None,
        answer: None,
        verified: Bytes::ZERO,
    };
    filling.run()
}

/// True if the drive had the object all along, and it is visible now.
fn is_there(shared: &Shared, drive: &Drive, fetch: &Fetch) -> bool {
    let found =
        drive.answers(shared.now()) && drive.open_read(&layout::object_file(&fetch.object)).is_ok();
    found && adopt::adopt(shared, drive, fetch.object)
}

/// The hashes of the object's blocks: from the id, from its part file, or from control.
fn blocks(
    fetch: &Fetch,
    part: Option<&Drive>,
    control: Option<&ControlClient>,
) -> Result<Blocks, String> {
    let (object, len) = (fetch.object, fetch.len);
    if block_count(len) < 2 {
        return drives::blocks_without_table(object, len).map_err(|error| error.to_string());
    }
    if let Some(blocks) = part.and_then(|drive| drive.read_part_blocks(object, len).ok()) {
        return Ok(blocks);
    }
    let control = control.ok_or("its block hashes are not here, and no control is configured")?;
    control.blocks(object, len).map_err(|error| format!("control gives no block hashes: {error}"))
}

fn choose(shared: &Shared, len: Bytes) -> Option<DriveIndex> {
    let choice = layout::choose(&shared.spaces(), layout::sections(len).file_len);
    tracing::debug!(drive = ?choice.drive, passed_over = ?choice.passed_over, "drive chosen");
    choice.drive
}

/// What an operator knows an object by: its first URL, without a query, which may hold a signature.
fn name(fetch: &Fetch) -> String {
    let url = fetch.urls.first().map(|url| url.split(['?', '#']).next().unwrap_or(""));
    url.map_or_else(|| fetch.object.to_string(), str::to_owned)
}

impl Filling<'_> {
    fn run(mut self) -> Ended {
        let ended = loop {
            if let Some(action) = self.publication.poll() {
                let done = self.publish(action);
                self.tell_publication(done.map(|()| publish::Event::Done));
                continue;
            }
            match self.publication.outcome() {
                Some(Outcome::Complete) => break Ended::Published,
                Some(Outcome::Abandoned(Fault::SetAside)) => break Ended::DriveFailed,
                Some(Outcome::Abandoned(Fault::Full | Fault::Io)) => {
                    self.verified = Bytes::ZERO;
                    break Ended::DriveFailed;
                }
                None => {}
            }
            let transfer = self.transfer.as_mut().expect("made with the part file, which is there");
            // A stop waits for a block that has come to be written, but begins nothing new.
            match transfer.poll() {
                Some(transfer::Action::Fetch { .. } | transfer::Action::Reread { .. }) | None
                    if self.shared.is_stopping() =>
                {
                    break Ended::Stopped;
                }
                Some(transfer::Action::GiveUp(reason)) => {
                    break Ended::Postponed(self.give_up_text(&reason));
                }
                Some(action) => self.transfer(action),
                None => self.go_on(),
            }
        };
        self.leave_part(&ended);
        ended
    }

    /// Carries out a step of the publication.
    fn publish(&mut self, action: Action) -> Result<(), DriveError> {
        let drive = self.drive;
        self.check_drive()?;
        match action {
            Action::Allocate { file, len } => {
                let (fd, found) = drive.allocate(&file, len)?;
                self.file = Some(fd);
                let (blocks, sources) = (self.blocks.clone(), self.places.len());
                self.transfer = Some(Transfer::new(bounds(self.fetch.len), blocks, sources, found));
                self.show_part();
                Ok(())
            }
            Action::WriteTable { offset } => self.write_table(offset),
            Action::WriteFooter { offset, footer } => {
                let mut page = Pages::zeroed(layout::FOOTER_LEN);
                page.bytes_mut().copy_from_slice(&footer.encode());
                drive.write(self.file(), page.bytes(), offset)
            }
            Action::FlushFile => drive.flush(self.file()),
            Action::Rename { from, to } => drive.rename(&from, &to),
            Action::SyncFolder(folder) => drive.sync_folder(&folder),
            Action::Log(change) => drive.log(change),
            Action::Show(extent) => {
                let small = extent.len <= SMALL_OBJECT_MAX;
                let bytes = small.then(|| &self.buffer.bytes()[..extent.len.as_usize()]);
                self.shared.publish(self.fetch.object, extent, bytes);
                Ok(())
            }
            Action::Unlink(file) => drive.unlink(&file),
            Action::Hide => unreachable!("a step of a removal, not of a publication"),
        }
    }

    /// Carries out what the transfer asks for.
    fn transfer(&mut self, action: transfer::Action) {
        match action {
            transfer::Action::Reread { index } => {
                let len = self.read_block(index);
                let bytes = &self.buffer.bytes()[..len.as_usize()];
                let event = transfer::Event::Found { index, bytes };
                tell(&mut self.transfer, self.shared, event);
            }
            transfer::Action::Keep { index } => self.count(index),
            transfer::Action::Fetch { source, first, count } => self.ask(source, first, count),
            transfer::Action::Write { index } => match self.write_block(index) {
                Ok(()) => {
                    tell(&mut self.transfer, self.shared, transfer::Event::Written);
                    self.count(index);
                }
                Err(error) => self.tell_publication(Err(error)),
            },
            transfer::Action::Close => self.answer = None,
            transfer::Action::Distrust { source, index } => {
                self.places.failed(source, &SourceFault::WrongBytes(index));
            }
            transfer::Action::Complete => {}
            transfer::Action::GiveUp(_) => unreachable!("taken by the caller"),
        }
    }

    /// Nothing to do but to read on, or to wait.
    fn go_on(&mut self) {
        let Some(answer) = &mut self.answer else {
            let deadline = self.transfer.as_ref().and_then(Transfer::deadline);
            self.shared.sleep_until(deadline.expect("without an answer a transfer waits for time"));
            tell(&mut self.transfer, self.shared, transfer::Event::Tick);
            return;
        };
        if answer.is_over() {
            self.answer.take().into_iter().for_each(Answer::finish);
            tell(&mut self.transfer, self.shared, transfer::Event::Ended);
            return;
        }
        let index = answer.at().0 / BLOCK_LEN.0;
        let len = block_len(self.fetch.len, index);
        if !self.shared.pace(len) {
            return;
        }
        let bytes = &mut self.buffer.bytes_mut()[..len.as_usize()];
        let read = answer.read(bytes);
        match read {
            Ok(()) => {
                self.shared.fetched.fetch_add(len.0, Ordering::Relaxed);
                if self.places.get(self.place).kind == Kind::Sibling {
                    self.shared.from_siblings.fetch_add(len.0, Ordering::Relaxed);
                }
                let bytes = &self.buffer.bytes()[..len.as_usize()];
                let event = transfer::Event::Received { index, bytes };
                tell(&mut self.transfer, self.shared, event);
            }
            Err(fault) => {
                self.answer = None;
                self.places.failed(self.place, &fault);
                tell(&mut self.transfer, self.shared, transfer::Event::Failed(fault));
            }
        }
    }

    fn ask(&mut self, source: usize, first: u64, count: u64) {
        self.answer = None;
        if self.places.is_stale(source) {
            self.places.renew();
            let event = transfer::Event::Renewed { sources: self.places.len() };
            tell(&mut self.transfer, self.shared, event);
            return;
        }
        match self.open(source, first, count) {
            Ok(answer) => (self.place, self.answer) = (source, Some(answer)),
            Err(fault) => {
                self.places.failed(source, &fault);
                tell(&mut self.transfer, self.shared, transfer::Event::Failed(fault));
            }
        }
    }

    fn open(&self, source: usize, first: u64, count: u64) -> Result<Answer, SourceFault> {
        if self.places.is_over(source) {
            return Err(SourceFault::Expired);
        }
        let len = self.fetch.len;
        let start = Bytes(first * BLOCK_LEN.0);
        let end = Bytes((first + count) * BLOCK_LEN.0).min(len);
        let place = self.places.get(source);
        match place.kind {
            Kind::Sibling => {
                source::open(&self.clients.siblings.agent(), &place.url, start, end, len)
            }
            Kind::Origin => source::open(&self.clients.origins, &place.url, start, end, len),
        }
    }

    fn write_table(&self, offset: Bytes) -> Result<(), DriveError> {
        if layout::sections(self.fetch.len).table_len == Bytes::ZERO {
            return Ok(());
        }
        self.drive.write(self.file(), drives::table_pages(self.blocks).bytes(), offset)
    }

    /// Writes the block that is in the buffer, the last one with zeros up to a whole page.
    fn write_block(&mut self, index: u64) -> Result<(), DriveError> {
        self.check_drive()?;
        let len = block_len(self.fetch.len, index);
        let padded = len.align_up(DIRECT_ALIGN).as_usize();
        self.buffer.bytes_mut()[len.as_usize()..padded].fill(0);
        let at = Bytes(index * BLOCK_LEN.0);
        self.drive.write(self.file(), &self.buffer.bytes()[..padded], at)
    }

    /// Reads a block of the part file into the buffer; returns its length, or zero if it failed:
    /// then it is fetched, and writing will tell more.
    fn read_block(&mut self, index: u64) -> Bytes {
        let len = block_len(self.fetch.len, index);
        let padded = len.align_up(DIRECT_ALIGN).as_usize();
        let file = self.file.as_ref().expect("allocated before");
        let bytes = &mut self.buffer.bytes_mut()[..padded];
        match self.drive.read(file, bytes, Bytes(index * BLOCK_LEN.0)) {
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
        self.verified += block_len(self.fetch.len, index);
        self.show_part();
    }

    fn show_part(&self) {
        let part = Part { drive: self.drive.index(), verified: self.verified };
        self.shared.set_part(self.fetch.object, Some(part));
    }

    /// What is left of an object that is not published.
    fn leave_part(&self, ended: &Ended) {
        let abandoned = matches!(self.publication.outcome(), Some(Outcome::Abandoned(_)));
        if abandoned && !matches!(ended, Ended::Published) {
            self.shared.set_part(self.fetch.object, None);
        }
    }

    fn tell_publication(&mut self, result: Result<publish::Event, DriveError>) {
        self.publication.handle(result.unwrap_or_else(|error| {
            self.shared.drive_failed(self.drive, &error);
            publish::Event::Failed(error.fault)
        }));
    }

    /// Another thread may have set the drive aside.
    fn check_drive(&self) -> Result<(), DriveError> {
        self.drive.set_aside_reason().map_or(Ok(()), |reason| Err(DriveError::set_aside(reason)))
    }

    fn file(&self) -> &OwnedFd {
        self.file.as_ref().expect("allocated before anything is written")
    }

    fn give_up_text(&self, reason: &Reason) -> String {
        match self.places.len() {
            0 | 1 => reason.to_string(),
            sources => format!("{reason} ({sources} sources tried)"),
        }
    }
}

/// Tells the transfer what happened, beside what else of `Filling` is borrowed.
fn tell(transfer: &mut Option<Transfer>, shared: &Shared, event: transfer::Event<'_>) {
    let transfer = transfer.as_mut().expect("made with the part file, which is there");
    transfer.handle(shared.now(), event);
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::ObjectId;

    #[test]
    fn an_object_is_named_to_the_operator_without_the_query_of_its_url() {
        let url = "https://origin/film/v.mp4?X-Amz-Signature=secret".to_owned();
        let mut fetch = Fetch { object: ObjectId([1; 32]), len: Bytes(5), urls: vec![url] };
        assert_eq!(name(&fetch), "https://origin/film/v.mp4");
        fetch.urls.clear();
        assert_eq!(name(&fetch), "01".repeat(32));
    }
}

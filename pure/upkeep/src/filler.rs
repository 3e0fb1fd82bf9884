//! Fill: takes a file at a time from the plan, an object or the objects of a unit, and brings it
//! from its sources to a drive.
//!
//! ```text
//! claim ──> on a drive already? adopted ──> room on a drive ──> part ──> each object:
//!   hashes of its blocks ──> `fill::transfer` asks a source, or reads the part ──> written
//!   ──> whole: entered and shown ──> done: others follow, or it is tried again later
//! ```
//!
//! Before a part is begun, the places of the first object are asked for: if a master of the fill
//! cluster is to fetch it first, the claim goes back until it is time to ask again, and the thread
//! goes on with others.
//!
//! The room's decisions are those of `fill::transfer` (which source, whether a block is right); the
//! sources themselves are the host's (`Sources`).

use fill::plan::Fetch;
use fill::transfer::{self, Action, Event, Reason, SourceFault, Transfer};
use holdings::{Claim, Holdings, Part as PartStanding};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, SMALL_OBJECT_MAX};
use model::machine::Machine as _;
use model::object::{BLOCK_LEN, Blocks, block_count, block_len};
use model::units::{Bytes, Nanos};
use store::health::Verdict;
use store::layout;
use store::parcel::{Parcel, PartId};

use crate::cause::DriveError;
use crate::drive::{Drive, Files};
use crate::host::{Host, Ledger, News, PagesOf};
use crate::publish::{self, Part};
use crate::told::Told;
use crate::{adopt, read, small, units};

/// Where the bytes of objects come from. Each fill thread has its own.
pub trait Sources {
    /// The places of one object.
    type Places<'a>: Places
    where
        Self: 'a;

    /// Bounds of the transfer of an object of this length.
    fn bounds(&self, len: Bytes) -> transfer::Config;

    /// The hashes of an object's blocks, from control; in words why there are none.
    fn blocks(&self, object: ObjectId, len: Bytes) -> impl Future<Output = Result<Blocks, String>>;

    /// Where an object may be fetched, best first.
    fn places<'a>(&'a self, fetch: &'a Fetch) -> impl Future<Output = Self::Places<'a>>;

    /// Waits until so many bytes may come, from outside of the site or not; false if all must stop.
    fn pace(&self, len: Bytes, is_outside: bool) -> impl Future<Output = bool>;
}

/// The places where one object may be fetched.
pub trait Places {
    /// An answer of one of them.
    type Answer: Answer;

    fn count(&self) -> usize;

    /// True if its bytes come into the site from outside.
    fn is_outside(&self, place: usize) -> bool;

    /// True if the list should be made anew before this one is asked.
    fn is_stale(&self, place: usize) -> bool;

    /// If none may be asked now, since a master is to fetch it first: for how long.
    fn waits(&self) -> Option<Nanos>;

    /// Makes the list anew.
    fn renew(&mut self) -> impl Future<Output = ()>;

    /// Asks one for a run of whole blocks.
    fn ask(
        &mut self,
        place: usize,
        first: u64,
        count: u64,
    ) -> impl Future<Output = Result<Self::Answer, SourceFault>>;

    /// One failed, or sent wrong bytes.
    fn failed(&mut self, place: usize, fault: &SourceFault);

    /// One sent so much, right or not.
    fn received(&self, place: usize, len: Bytes);
}

/// An answer that is being read.
pub trait Answer {
    /// The block that comes next.
    fn next(&self) -> u64;

    /// True if all of it was read.
    fn is_over(&self) -> bool;

    /// Fills `bytes` with the next block.
    fn read(&mut self, bytes: &mut [u8]) -> impl Future<Output = Result<(), SourceFault>>;

    /// All that was asked for was read: the connection may be used again.
    fn finish(self);
}

enum Ended {
    /// The hours in which fill may fetch are over: what has come is kept, and it goes on later.
    Closed,
    /// It is visible, or as much of it as could be had: all but this object, and those after it.
    Published(Option<ObjectId>),
    /// What of it is not visible waits for a master, for so long.
    Waits(Nanos),
    Stopped,
    /// Not now, for the sake of this object; the text says why.
    Postponed(ObjectId, String),
    /// The same in the middle of it, for the first time: all of its unit wait.
    Within(ObjectId, String),
    /// The drive failed, and was told.
    DriveFailed,
}

/// Why an object did not become whole.
enum Stop {
    Stopped,
    Closed,
    /// It cannot be had now.
    GaveUp(String),
    /// A master is to fetch it first.
    Waits(Nanos),
    Failed(DriveError),
}

/// Runs until all must stop.
pub async fn run<H: Host, S: Sources>(host: &H, sources: &S) {
    let mut buffer = <H::Drive as Files>::pages(BLOCK_LEN);
    while let Some(claim) = host.wait_for(News::Changed, Holdings::next_fetch).await {
        let most = host.spaces().iter().map(|space| space.free).max().unwrap_or(Bytes::ZERO);
        let Some(claim) = with_room(host, claim, most).await else { continue };
        match fill(host, sources, &claim, &mut buffer).await {
            Ended::Published(without) => {
                host.tell(Told::Filled(&claim));
                host.done(&claim, without.as_slice());
                if without.is_some() {
                    host.replan();
                }
            }
            Ended::Waits(span) => host.wait_for_master(&claim, span),
            Ended::Stopped => host.done(&claim, &[]),
            Ended::Closed => {
                host.done(&claim, &[]);
                host.replan();
            }
            Ended::DriveFailed => {
                let all: Vec<_> = claim.fetch.iter().map(|fetch| fetch.object).collect();
                host.done(&claim, &all);
                host.replan();
            }
            Ended::Within(object, why) => {
                postponed(host, &claim, object, &why);
                host.wait_within(&claim, object);
            }
            Ended::Postponed(object, why) => {
                postponed(host, &claim, object, &why);
                host.done(&claim, &[object]);
                if 1 < claim.fetch.len() {
                    host.replan(); // The others go on without it.
                }
            }
        }
    }
}

fn postponed<H: Host>(host: &H, claim: &Claim, object: ObjectId, why: &str) {
    if let Some(fetch) = claim.fetch.iter().find(|fetch| fetch.object == object) {
        host.tell(Told::Postponed(fetch, why));
    }
}

/// As much of it as the drive has room for that has `most`: all drives together may have room for a
/// unit, and none alone. None if that cannot be now.
pub async fn with_room<H: Host>(host: &H, claim: Claim, most: Bytes) -> Option<Claim> {
    let parcel = claim.parcel();
    if claim.part.is_some() || parcel.file_len() <= most {
        return Some(claim);
    }
    for drive in host.drives() {
        if host.answers(&drive) && drive.open(&parcel.file()).await.is_ok() {
            return Some(claim);
        }
    }
    let fitting = parcel.fitting(most);
    assert!(fitting < claim.fetch.len(), "what has no room for all has none for the last");
    match fitting {
        0 => Some(claim), // Whoever finds no room for the first says so.
        count => host.shorten(claim, count),
    }
}

async fn fill<H: Host, S: Sources>(
    host: &H,
    sources: &S,
    claim: &Claim,
    buffer: &mut PagesOf<H>,
) -> Ended {
    let (parcel, first) = (claim.parcel(), claim.fetch[0].object);
    for drive in host.drives() {
        if is_there(host, &*drive, &parcel).await {
            return Ended::Published(None);
        }
    }
    if host.is_stopping() {
        return Ended::Stopped;
    }
    let begun_on = claim.part.and_then(|part| host.drive(part.drive));
    let drive = match begun_on {
        Some(drive) if !host.answers(&drive) => {
            let why = "a part of it is on a drive that does not answer".to_owned();
            return Ended::Postponed(first, why);
        }
        Some(drive) => Some(drive),
        None => {
            let choice = layout::choose(&host.spaces(), parcel.file_len());
            host.tell(Told::Chosen(&choice));
            choice.drive.and_then(|index| host.drive(index))
        }
    };
    let Some(drive) = drive else {
        let room = parcel.file_len();
        let why = format!("no drive in use has {room} free: add drives or hold less");
        return Ended::Postponed(first, why);
    };
    let part = parcel.part();
    // What a part is known to have needs nobody, and is not read to find that all must wait.
    let known = claim.part.map(|part| part.verified);
    let at = lacking(&claim.fetch, known.unwrap_or(Bytes::ZERO));
    let places = sources.places(&claim.fetch[at.unwrap_or(0)]).await;
    let is_known = known != Some(Bytes::ZERO) && at.is_some();
    if let Some(span) = places.waits().filter(|_| is_known) {
        return Ended::Waits(span);
    }
    let places = (at.unwrap_or(0), places);
    let filling = Filling { host, sources, claim, drive: &*drive, part };
    filling.run(parcel, places, buffer).await
}

/// The first that is not among so many bytes from the beginning.
fn lacking(fetch: &[Fetch], mut known: Bytes) -> Option<usize> {
    fetch.iter().position(|fetch| match known.0.checked_sub(fetch.len.0) {
        Some(left) => {
            known = Bytes(left);
            false
        }
        None => true,
    })
}

/// True if the drive had it all along, or some of a unit, and that is visible now.
async fn is_there<H: Host>(host: &H, drive: &H::Drive, parcel: &Parcel) -> bool {
    let is_found = host.answers(drive) && drive.open(&parcel.file()).await.is_ok();
    is_found
        && match parcel {
            Parcel::Alone(object, _) => adopt::adopt(host, drive, *object).await,
            Parcel::Unit(directory) => units::take_up(host, drive, directory.id()).await,
        }
}

struct Filling<'a, H: Host, S> {
    host: &'a H,
    sources: &'a S,
    claim: &'a Claim,
    drive: &'a H::Drive,
    part: PartId,
}

impl<'a, H: Host, S: Sources> Filling<'a, H, S> {
    /// Goes on with all of it. Where the object of this number may be fetched from is known.
    async fn run(
        &self,
        parcel: Parcel,
        (at, places): (usize, S::Places<'a>),
        buffer: &mut PagesOf<H>,
    ) -> Ended {
        let host = self.host;
        let Ok(mut part) = Part::begin(host, self.drive, parcel).await else {
            return Ended::DriveFailed;
        };
        assert!(part.parcel().part() == self.part, "the report speaks of this part");
        let mut verified = Bytes::ZERO;
        self.show_part(verified);
        let (mut without, mut waits) = (None, None);
        let mut places = Some(places);
        for (index, fetch) in self.claim.fetch.iter().enumerate() {
            let places = match places.take_if(|_| index == at) {
                Some(places) => places,
                None => self.sources.places(fetch).await,
            };
            match self.object(fetch, places, &mut part, &mut verified, buffer).await {
                Ok(()) => {}
                Err(Stop::Stopped) => return Ended::Stopped,
                Err(Stop::Closed) => return Ended::Closed,
                Err(Stop::Waits(span)) if part.whole() == 0 || part.is_within_object() => {
                    // What there is of an object would be fetched again.
                    return Ended::Waits(span);
                }
                Err(Stop::Waits(span)) => {
                    waits = Some(span);
                    part.shorten();
                    break;
                }
                Err(Stop::GaveUp(why)) if self.may_wait_within(fetch, &part) => {
                    return Ended::Within(fetch.object, why);
                }
                Err(Stop::GaveUp(why)) if part.whole() == 0 => {
                    return Ended::Postponed(fetch.object, why);
                }
                Err(Stop::GaveUp(why)) => {
                    // Objects that are whole are not kept back for the sake of one.
                    postponed(host, self.claim, fetch.object, &why);
                    without = Some(fetch.object);
                    part.shorten();
                    break;
                }
                Err(Stop::Failed(error)) => return self.failed(part, &error).await,
            }
        }
        let logged = match part.close().await {
            Ok(flushed) => part.enter(flushed).await,
            Err(error) => Err(error),
        };
        match logged {
            Ok(logged) => self.show(part, logged, buffer).await,
            Err(error) => return self.failed(part, &error).await,
        }
        host.dropped_part(self.part, self.drive.index());
        assert!(verified <= self.claim.parcel().file_len(), "no block is counted twice");
        waits.map_or(Ended::Published(without), Ended::Waits)
    }

    /// Some of an object is there, and would be fetched again: the others of its unit wait once,
    /// until somebody else sends it. Its source may have died.
    fn may_wait_within(&self, fetch: &Fetch, part: &Part<'_, H>) -> bool {
        let is_unit = matches!(self.part, PartId::Unit(_));
        let is_first = || !self.host.ask(|holdings| holdings.was_given_up(&fetch.object));
        is_unit && part.is_within_object() && is_first()
    }

    async fn failed(&self, part: Part<'_, H>, error: &DriveError) -> Ended {
        self.host.failed(self.drive, error).await;
        part.abandon(error.fault).await;
        Ended::DriveFailed
    }

    /// Small objects go to workers with their bytes: one that is alone from the buffer, those of a
    /// unit from where they are now.
    async fn show(&self, part: Part<'_, H>, logged: publish::Logged, buffer: &mut PagesOf<H>) {
        let (host, drive) = (self.host, self.drive);
        if let Parcel::Alone(_, len) = part.parcel() {
            let bytes = (*len <= SMALL_OBJECT_MAX).then(|| &buffer[..len.as_usize()]);
            publish::show(host, drive, logged, bytes);
            return;
        }
        publish::show(host, drive, logged, None);
        for (object, entry) in part.parcel().entries() {
            if entry.len <= SMALL_OBJECT_MAX {
                let extent = entry.extent(&object, drive.index());
                small::give(host, drive, object, &extent, buffer).await;
            }
        }
    }

    /// Brings an object into the part: what is there already, then the rest.
    async fn object(
        &self,
        fetch: &'a Fetch,
        places: S::Places<'a>,
        part: &mut Part<'_, H>,
        verified: &mut Bytes,
        buffer: &mut PagesOf<H>,
    ) -> Result<(), Stop> {
        let place = part.next_place();
        assert!(place.1 == fetch.len, "objects are fetched in the order of their places");
        let blocks = match (self.blocks_here(fetch, part, place.0).await, places.waits()) {
            (None, Some(span)) => return Err(Stop::Waits(span)),
            (Some(_), Some(span)) if !part.was_there() => return Err(Stop::Waits(span)),
            (Some(blocks), _) => blocks,
            (None, None) => {
                self.sources.blocks(fetch.object, fetch.len).await.map_err(Stop::GaveUp)?
            }
        };
        part.write_table(&blocks).await.map_err(Stop::Failed)?;
        let bounds = self.sources.bounds(fetch.len);
        let transfer = Transfer::new(bounds, blocks, places.count(), part.was_there());
        let (filling, answer) = (self, None);
        let mut one = One { filling, fetch, place, places, transfer, answer };
        while part.lacks_blocks() {
            if let Some(len) = one.step(part, buffer).await? {
                *verified += len;
                self.show_part(*verified);
            }
        }
        // Its last block ends most answers: one that is read to the end keeps its connection.
        one.answer
            .filter(|(_, answer)| answer.is_over())
            .into_iter()
            .for_each(|(_, it)| it.finish());
        Ok(())
    }

    /// The hashes of an object's blocks, without asking anybody: from the id, or from the part.
    async fn blocks_here(&self, fetch: &Fetch, part: &Part<'_, H>, base: Bytes) -> Option<Blocks> {
        let (object, len) = (fetch.object, fetch.len);
        if block_count(len) < 2 {
            return read::blocks_without_table(object, len).ok();
        }
        let place = part.was_there().then_some((base, len))?;
        read::table(self.drive, part.file(), object, place).await.ok()
    }

    fn may_come(&self) -> bool {
        self.host.ask(|holdings| holdings.may_come(&self.claim.fetch))
    }

    fn show_part(&self, verified: Bytes) {
        let standing = PartStanding { drive: self.drive.index(), verified };
        self.host.set_part(self.part, Some(standing));
    }
}

/// The object that is fetched into a part now.
struct One<'f, 'a, H: Host, S: Sources> {
    filling: &'f Filling<'a, H, S>,
    fetch: &'a Fetch,
    /// Where in the part it begins, and how long it is.
    place: (Bytes, Bytes),
    places: S::Places<'a>,
    transfer: Transfer,
    answer: Option<(usize, <S::Places<'a> as Places>::Answer)>,
}

impl<H: Host, S: Sources> One<'_, '_, H, S> {
    /// Carries out one thing that the transfer asks for, or reads on. The length of a block that is
    /// verified and in the part since. A stop waits for a block that has come to be written, but
    /// begins nothing new; the same when fill closes, and blocks that are there are found.
    async fn step(
        &mut self,
        part: &mut Part<'_, H>,
        buffer: &mut PagesOf<H>,
    ) -> Result<Option<Bytes>, Stop> {
        let host = self.filling.host;
        match self.transfer.poll() {
            Some(Action::Fetch { .. } | Action::Reread { .. }) | None if host.is_stopping() => {
                return Err(Stop::Stopped);
            }
            Some(Action::Fetch { .. }) | None if !self.filling.may_come() => {
                return Err(Stop::Closed);
            }
            Some(Action::Reread { index }) => {
                let bytes = self.reread(part, index, buffer).await;
                self.transfer.handle(host.now(), Event::Found { index, bytes });
            }
            Some(Action::Keep { index }) => {
                part.keep_block();
                return Ok(Some(block_len(self.fetch.len, index)));
            }
            Some(Action::Fetch { source, first, count }) => self.ask(source, first, count).await,
            Some(Action::Write { index }) => {
                let len = block_len(self.fetch.len, index);
                let padded = len.align_up(DIRECT_ALIGN).as_usize();
                buffer[len.as_usize()..padded].fill(0);
                part.write_block(index, &buffer[..padded]).await.map_err(Stop::Failed)?;
                self.transfer.handle(host.now(), Event::Written);
                return Ok(Some(len));
            }
            Some(Action::Close) => self.answer = None,
            Some(Action::Distrust { source, index }) => {
                self.places.failed(source, &SourceFault::WrongBytes(index));
            }
            Some(Action::Complete) => {}
            Some(Action::GiveUp(reason)) => {
                let gave_up = || Stop::GaveUp(self.why(&reason));
                return Err(self.places.waits().map_or_else(gave_up, Stop::Waits));
            }
            None => self.read_on(buffer).await,
        }
        Ok(None)
    }

    async fn ask(&mut self, source: usize, first: u64, count: u64) {
        let host = self.filling.host;
        self.answer = None;
        assert!(source < self.places.count(), "a transfer is told when its places are other ones");
        let event = if self.places.is_stale(source) {
            self.places.renew().await;
            Event::Renewed { sources: self.places.count() }
        } else {
            match self.places.ask(source, first, count).await {
                Ok(answer) => return self.answer = Some((source, answer)),
                Err(fault) => {
                    self.places.failed(source, &fault);
                    Event::Failed(fault)
                }
            }
        };
        self.transfer.handle(host.now(), event);
    }

    /// Nothing to do but to read on, or to wait.
    async fn read_on(&mut self, buffer: &mut PagesOf<H>) {
        let host = self.filling.host;
        let Some((source, mut answer)) = self.answer.take() else {
            let deadline = self.transfer.deadline();
            host.sleep_until(deadline.expect("without an answer a transfer waits for time")).await;
            return self.transfer.handle(host.now(), Event::Tick);
        };
        if answer.is_over() {
            answer.finish();
            return self.transfer.handle(host.now(), Event::Ended);
        }
        let index = answer.next();
        assert!(index < block_count(self.fetch.len), "an answer is over behind the last block");
        let len = block_len(self.fetch.len, index);
        let is_outside = self.places.is_outside(source);
        let may_come = self.filling.sources.pace(len, is_outside).await;
        if !may_come || !self.filling.may_come() {
            // All must stop, or fill has closed meanwhile: if it still is, the next step says so.
            self.answer = Some((source, answer));
            return;
        }
        let bytes = &mut buffer[..len.as_usize()];
        match answer.read(bytes).await {
            Ok(()) => {
                self.places.received(source, len);
                self.answer = Some((source, answer));
                self.transfer.handle(host.now(), Event::Received { index, bytes });
            }
            Err(fault) => {
                self.places.failed(source, &fault);
                self.transfer.handle(host.now(), Event::Failed(fault));
            }
        }
    }

    /// Reads a block of the part; nothing if that failed: then it is fetched, and writing it will
    /// tell more.
    async fn reread<'b>(
        &self,
        part: &Part<'_, H>,
        index: u64,
        buffer: &'b mut PagesOf<H>,
    ) -> &'b [u8] {
        let (host, drive) = (self.filling.host, self.filling.drive);
        match read::block(drive, part.file(), self.place, index, buffer).await {
            Ok(bytes) => bytes,
            Err(error) => {
                let is_bad_place = error.is_one_place()
                    && drive.object_failed(host.now()) == Verdict::SetObjectAside;
                if !is_bad_place {
                    host.failed(drive, &error).await;
                }
                &[]
            }
        }
    }

    fn why(&self, reason: &Reason) -> String {
        match self.places.count() {
            0 | 1 => reason.to_string(),
            sources => format!("{reason} ({sources} sources tried)"),
        }
    }
}

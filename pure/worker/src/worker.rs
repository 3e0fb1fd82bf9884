//! The machine that composes the others.

use std::collections::VecDeque;

use http1::{Head, Parsed, RequestError, Status};
use iosched::{Class, Scheduler};
use model::extent::DriveIndex;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::ObjectId;
use model::limits::{CHUNK_LEN, DIRECT_ALIGN};
use model::object::{BLOCK_LEN, block_len};
use model::units::{Bytes, Instant, Nanos, UnixSeconds};

use crate::action::{Action, Body, Ending};
use crate::answer::{self, Answer};
use crate::catalogue::Catalogue;
use crate::connection::{Connection, Stage, State, Transfer};
use crate::counters::Counters;
use crate::event::{Event, Fault, Now, Update};
use crate::files::{Acquired, Files};

/// Bounds of one worker.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most connections. One more is closed as it arrives.
    pub connections_max: usize,
    /// Most transfers from drives at once; others wait their turn. Bounds the memory for data that
    /// clients are slow to take: at most one chunk each.
    pub transfers_max: usize,
    /// Buffers for reads, each one chunk and one alignment unit long.
    pub buffers: u16,
    /// Files open at once; more than `transfers_max`.
    pub file_slots: u16,
    /// Drives.
    pub drives: usize,
    /// Reads in flight per drive.
    pub drive_depth: usize,
    /// Longest request head; a longer one is answered with 431.
    pub head_len_max: usize,
    /// For the handshake, and for a request head from its first byte to its last.
    pub request_timeout: Nanos,
    /// Between requests.
    pub idle_timeout: Nanos,
    /// How long after its expiry a token is still good: what the clock of whoever signed it may be
    /// behind ours. Whole seconds.
    pub token_leeway: Nanos,
    /// For a client to take what was sent at once, and for a drive to answer.
    pub progress_timeout: Nanos,
    /// Of so many chunks read, one has a block verified; 0 for none.
    pub verify_every: u32,
}

impl Config {
    /// Length of a read buffer: a chunk may begin anywhere, reads begin at the alignment.
    pub const BUFFER_LEN: Bytes = Bytes(CHUNK_LEN.0 + DIRECT_ALIGN.0);
}

/// How often deadlines are looked at; they are kept to this.
const TICK: Nanos = Nanos::seconds(1);

/// A read in flight, by its buffer.
#[derive(Clone, Copy, Debug)]
struct Reading {
    connection: ConnectionId,
    drive: DriveIndex,
    object: ObjectId,
    slot: FileSlot,
    /// Where in the buffer the wanted bytes begin and end.
    start: usize,
    end: usize,
}

/// One CPU core of an appliance.
#[derive(Debug)]
pub struct Worker {
    config: Config,
    catalogue: Catalogue,
    connections: Vec<Option<Box<Connection>>>,
    files: Files,
    drives: Vec<Scheduler<ConnectionId>>,
    /// The drive that is asked first; moves on, so that each has its turn.
    first_drive: usize,
    buffers_free: Vec<BufferId>,
    reading: Vec<Option<Reading>>,
    /// Transfers past admission. Invariant: <= config.transfers_max.
    transfers: usize,
    admission: VecDeque<ConnectionId>,
    /// `admit` is at work.
    admitting: bool,
    actions: VecDeque<Action>,
    /// Used while files are opened; empty in between.
    woken: Vec<ConnectionId>,
    /// The current `Date`, and what it says.
    date: Vec<u8>,
    date_at: UnixSeconds,
    tick_at: Instant,
    stop_at: Option<Instant>,
    /// Chunks left until one is verified. Invariant: 0 only if none ever is.
    verify_in: u32,
    counters: Counters,
}

impl Worker {
    /// A worker without connections and without anything to serve.
    pub fn new(config: Config, now: Now) -> Self {
        assert!(config.transfers_max < usize::from(config.file_slots), "a transfer finds a slot");
        let scheduler =
            iosched::Config { depth: config.drive_depth, queue_len_max: config.transfers_max };
        let mut date = Vec::new();
        http1::date::write(now.wall, &mut date);
        Self {
            config,
            catalogue: Catalogue { token_leeway: config.token_leeway, ..Catalogue::default() },
            connections: Vec::new(),
            files: Files::new(config.file_slots),
            drives: (0..config.drives).map(|_| Scheduler::new(scheduler)).collect(),
            first_drive: 0,
            // The last is taken first: the one used last is still in the processor's cache.
            buffers_free: (0..config.buffers).rev().map(BufferId).collect(),
            reading: (0..config.buffers).map(|_| None).collect(),
            transfers: 0,
            admission: VecDeque::with_capacity(config.connections_max),
            admitting: false,
            actions: VecDeque::with_capacity(64),
            woken: Vec::new(),
            date,
            date_at: now.wall,
            tick_at: now.instant + TICK,
            stop_at: None,
            verify_in: config.verify_every,
            counters: Counters::default(),
        }
    }

    /// Takes one event. Never blocks, never fails: failures come out as actions.
    pub fn handle(&mut self, now: Now, event: Event<'_>) {
        match event {
            Event::Accepted { connection } => self.accepted(now, connection),
            Event::Established { connection } => self.established(now, connection),
            Event::Received { connection, bytes } => self.received(now, connection, bytes),
            Event::Sent { connection } => self.sent(now, connection),
            Event::Ended { connection } => self.ended(connection),
            Event::Opened { slot, result } => self.opened(slot, result),
            Event::Read { buffer, result } => self.read(now, buffer, result),
            Event::Update(update) => self.update(update),
            Event::Tick => self.tick(now),
            Event::Stop { deadline } => self.stop(deadline),
        }
    }

    /// The next thing to do; call until `None` before the next `handle`.
    pub fn poll(&mut self) -> Option<Action> {
        let action = self.actions.pop_front().or_else(|| self.next_read())?;
        if let Action::Send { body: Body::Buffer { buffer, .. }, .. } = action {
            // Free again as soon as this action is carried out, which is before the next `poll`.
            self.buffers_free.push(buffer);
        }
        Some(action)
    }

    /// When to call `handle` with a tick if nothing else happens.
    pub fn deadline(&self) -> Instant {
        self.tick_at
    }

    /// The head of the connection's current response.
    pub fn head(&self, connection: ConnectionId) -> &[u8] {
        self.connection(connection).map_or(&[], |c| &c.head)
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// True once nothing is open any more after a stop.
    pub fn is_stopped(&self) -> bool {
        self.stop_at.is_some() && self.counters.open == 0
    }

    fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let entry = self.connections.get(id.as_usize())?.as_deref();
        entry.filter(|connection| connection.id == id)
    }

    fn accepted(&mut self, now: Now, id: ConnectionId) {
        let open = usize::try_from(self.counters.open).unwrap_or(usize::MAX);
        if self.config.connections_max <= open || self.stop_at.is_some() {
            self.counters.refused += 1;
            self.actions.push_back(Action::Close { connection: id, ending: Ending::Abort });
            return;
        }
        if self.connections.len() <= id.as_usize() {
            self.connections.resize_with(id.as_usize() + 1, || None);
        }
        let deadline = now.instant + self.config.request_timeout;
        let before =
            self.connections[id.as_usize()].replace(Box::new(Connection::new(id, deadline)));
        assert!(before.is_none(), "a slot has one connection at a time");
        self.counters.accepted += 1;
        self.counters.open += 1;
    }

    fn established(&mut self, now: Now, id: ConnectionId) {
        let idle_until = now.instant + self.config.idle_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.state = State::Receiving;
        connection.deadline = idle_until;
        self.actions.push_back(Action::Receive { connection: id });
    }

    fn received(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        let request_until = now.instant + self.config.request_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        if connection.backlog.is_empty() {
            // The deadline runs from the first byte of a request; more bytes do not extend it.
            connection.deadline = request_until;
            let used = self.request(now, id, bytes);
            if let Some(connection) = live(&mut self.connections, id) {
                connection.backlog.extend_from_slice(&bytes[used..]);
            }
            return;
        }
        connection.backlog.extend_from_slice(bytes);
        self.next_request(now, id);
    }

    /// Answers the next request of the backlog, if there is a whole one.
    fn next_request(&mut self, now: Now, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let mut backlog = std::mem::take(&mut connection.backlog);
        let used = self.request(now, id, &backlog);
        backlog.drain(..used);
        if let Some(connection) = live(&mut self.connections, id) {
            connection.backlog = backlog;
        }
    }

    /// Answers the first request in `bytes`, or asks for more. Returns how many bytes it used.
    fn request(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        self.refresh_date(now);
        let Some(connection) = live(&mut self.connections, id) else { return 0 };
        let parsed = match http1::parse(bytes) {
            Ok(Parsed::Partial) if self.config.head_len_max <= bytes.len() => {
                Err(RequestError::TooLarge)
            }
            Ok(Parsed::Request { len, .. }) if self.config.head_len_max < len => {
                Err(RequestError::TooLarge)
            }
            other => other,
        };
        let (request, len) = match parsed {
            Ok(Parsed::Request { request, len }) => (request, len),
            Ok(Parsed::Partial) => {
                self.actions.push_back(Action::Receive { connection: id });
                return 0;
            }
            Err(error) => {
                let status = match error {
                    RequestError::TooLarge => Status::HeaderFieldsTooLarge,
                    RequestError::Method => Status::MethodNotAllowed,
                    RequestError::Malformed | RequestError::Host | RequestError::Body => {
                        Status::BadRequest
                    }
                };
                connection.keep_alive = false;
                let head = Head { status, keep_alive: false };
                answer::plain(&mut connection.head, &mut self.counters, head, &self.date);
                self.send_head(now, id);
                return bytes.len();
            }
        };
        connection.keep_alive = request.keep_alive && self.stop_at.is_none();
        let (catalogue, counters) = (&self.catalogue, &mut self.counters);
        match answer::answer(catalogue, counters, &self.date, now, connection, &request) {
            Answer::HeadOnly => self.send_head(now, id),
            Answer::Object { object, status, start, end } => {
                self.send_object(now, id, object, status, (start, end));
            }
        }
        len
    }

    fn send_head(&mut self, now: Now, id: ConnectionId) {
        let until = now.instant + self.config.progress_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.state = State::Sending;
        connection.deadline = until;
        self.actions.push_back(Action::Send { connection: id, head: true, body: Body::Empty });
    }

    fn send_object(
        &mut self,
        now: Now,
        id: ConnectionId,
        object: ObjectId,
        status: Status,
        (start, end): (Bytes, Bytes),
    ) {
        let until = now.instant + self.config.progress_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.deadline = until;
        if let Some(bytes) = self.catalogue.small.get(&object) {
            let (start, end) = (start.as_usize(), end.as_usize());
            self.counters.count(status);
            self.counters.body_bytes += Bytes::of(end - start).0;
            connection.state = State::Sending;
            let body = Body::Memory { bytes: bytes.clone(), start, end };
            self.actions.push_back(Action::Send { connection: id, head: true, body });
            return;
        }
        let extent = self.catalogue.index.locate(&object).expect("an answer names what is held");
        assert!(end <= extent.len, "an answer names what is held at its length");
        connection.state = State::Transfer(Transfer {
            object,
            drive: extent.drive,
            base: extent.offset,
            next: start,
            end,
            head_pending: Some(status),
            stage: Stage::Admission,
        });
        self.admission.push_back(id);
        self.admit();
    }

    /// Lets waiting transfers begin while there is room. One that ends as it begins makes room in
    /// turn: this loop sees it, nothing nests.
    fn admit(&mut self) {
        if std::mem::replace(&mut self.admitting, true) {
            return;
        }
        while self.transfers < self.config.transfers_max {
            let Some(id) = self.admission.pop_front() else { break };
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let State::Transfer(transfer) = &mut connection.state else { continue };
            if transfer.stage != Stage::Admission {
                continue;
            }
            let object = transfer.object;
            // It may have gone, or gone to another drive, while it waited for its turn.
            let Some(extent) = self.catalogue.index.locate(&object) else {
                self.fail_transfer(id);
                continue;
            };
            (transfer.drive, transfer.base) = (extent.drive, extent.offset);
            let acquired = self.files.acquire(object, id);
            self.transfers += usize::from(acquired != Acquired::Full);
            match acquired {
                Acquired::Open(slot) => {
                    transfer.stage = Stage::Queued(slot);
                    self.queue(id);
                }
                Acquired::Opening(slot) => transfer.stage = Stage::Opening(slot),
                Acquired::Start(slot) => {
                    transfer.stage = Stage::Opening(slot);
                    let (drive, file) = (extent.drive, extent.file.clone());
                    self.actions.push_back(Action::Open { slot, drive, file });
                }
                Acquired::Full => self.fail_transfer(id),
            }
        }
        self.admitting = false;
    }

    /// Puts the connection's next read into its drive's queue.
    fn queue(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let State::Transfer(transfer) = &connection.state else { return };
        let drive = &mut self.drives[transfer.drive.as_usize()];
        if drive.submit(Class::Serve, id).is_err() {
            // The queue holds every transfer that may run, so it is full only of clients that
            // left while the drive hung. Those who come now are sent elsewhere.
            self.fail_transfer(id);
        }
    }

    /// The next read that a drive may have and a buffer is free for.
    fn next_read(&mut self) -> Option<Action> {
        let count = self.drives.len();
        for turn in 0..count {
            if self.buffers_free.is_empty() {
                return None;
            }
            let index = (self.first_drive + turn) % count;
            while let Some(id) = self.drives[index].poll() {
                if let Some(action) = self.start_read(id) {
                    self.first_drive = (index + 1) % count;
                    return Some(action);
                }
                self.drives[index].complete();
            }
        }
        None
    }

    fn start_read(&mut self, id: ConnectionId) -> Option<Action> {
        let connection = live(&mut self.connections, id)?;
        let State::Transfer(transfer) = &mut connection.state else { return None };
        let Stage::Queued(slot) = transfer.stage else { return None };
        let buffer = self.buffers_free.pop().expect("asked for only while one is free");
        let aligned = transfer.next.align_down(DIRECT_ALIGN);
        let lead = transfer.next - aligned;
        // A first read that begins inside a page ends at a chunk's end, so that all others are
        // aligned and none reads a page twice. The last takes a little more than a chunk rather
        // than leave a sliver.
        let left = transfer.end - transfer.next;
        let wanted = if lead + left <= Config::BUFFER_LEN { left } else { CHUNK_LEN - lead };
        let len = (lead + wanted).align_up(DIRECT_ALIGN);
        transfer.stage = Stage::Reading(slot);
        self.reading[buffer.as_usize()] = Some(Reading {
            connection: id,
            drive: transfer.drive,
            object: transfer.object,
            slot,
            start: lead.as_usize(),
            end: (lead + wanted).as_usize(),
        });
        self.counters.reads += 1;
        self.counters.read_bytes += len.0;
        Some(Action::Read { buffer, slot, offset: transfer.base + aligned, len })
    }

    fn opened(&mut self, slot: FileSlot, result: Result<(), Fault>) {
        let mut woken = std::mem::take(&mut self.woken);
        if let Some(slot) = self.files.opened(slot, result.is_ok(), &mut woken) {
            self.actions.push_back(Action::CloseFile { slot });
        }
        let mut reported = false;
        for id in woken.drain(..) {
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let State::Transfer(transfer) = &mut connection.state else { continue };
            if transfer.stage != Stage::Opening(slot) {
                continue;
            }
            match result {
                Ok(()) => {
                    transfer.stage = Stage::Queued(slot);
                    self.queue(id);
                }
                Err(fault) => {
                    let (drive, object) = (transfer.drive, transfer.object);
                    if !reported {
                        reported = true;
                        self.counters.drive_faults += 1;
                        self.actions.push_back(Action::Report { drive, object, fault });
                    }
                    self.fail_transfer(id);
                }
            }
        }
        self.woken = woken;
    }

    fn read(&mut self, now: Now, buffer: BufferId, result: Result<Bytes, Fault>) {
        let reading = self.reading[buffer.as_usize()].take().expect("a read completes once");
        self.drives[reading.drive.as_usize()].complete();
        let until = now.instant + self.config.progress_timeout;
        let id = reading.connection;
        let fault = match result {
            Ok(len) if reading.end <= len.as_usize() => None,
            Ok(_) => Some(Fault { errno: 0 }),
            Err(fault) => Some(fault),
        };
        if let Some(fault) = fault {
            self.counters.drive_faults += 1;
            let Reading { drive, object, .. } = reading;
            self.actions.push_back(Action::Report { drive, object, fault });
        }
        let connection = live(&mut self.connections, id);
        let transfer = connection.and_then(|connection| {
            connection.deadline = until;
            match &mut connection.state {
                State::Transfer(transfer) => Some(transfer),
                State::Handshake | State::Receiving | State::Sending => None,
            }
        });
        let Some(transfer) = transfer else {
            // The client left while the drive was at work: its file was kept for the read.
            self.buffers_free.push(buffer);
            self.release(reading.slot);
            return;
        };
        if fault.is_some() {
            self.buffers_free.push(buffer);
            transfer.stage = Stage::Queued(reading.slot);
            self.fail_transfer(id);
            return;
        }
        let (start, end) = (reading.start, reading.end);
        let chunk = (transfer.next, transfer.next + Bytes::of(end - start));
        transfer.next = chunk.1;
        transfer.stage = Stage::Sending(reading.slot);
        let status = transfer.head_pending.take();
        let head = status.is_some();
        if let Some(status) = status {
            self.counters.count(status);
        }
        self.counters.body_bytes += Bytes::of(end - start).0;
        self.sample(&reading, buffer, chunk);
        let body = Body::Buffer { buffer, start, end };
        self.actions.push_back(Action::Send { connection: id, head, body });
    }

    /// Has a block of every n-th chunk verified: the first that is whole in the buffer, or, where
    /// none is, the one that the chunk begins in.
    fn sample(&mut self, reading: &Reading, buffer: BufferId, (start, end): (Bytes, Bytes)) {
        if self.verify_in == 0 {
            return;
        }
        self.verify_in -= 1;
        if 0 < self.verify_in {
            return;
        }
        self.verify_in = self.config.verify_every;
        let Reading { drive, object, .. } = *reading;
        // Gone while it was read: there is nothing left to judge.
        let Some(extent) = self.catalogue.index.locate(&object) else { return };
        let (object_len, block) = (extent.len, start.0 / BLOCK_LEN.0);
        let begins = start.0.is_multiple_of(BLOCK_LEN.0);
        let whole = begins && start + block_len(object_len, block) <= end;
        let buffer = whole.then_some(buffer);
        self.counters.verified += 1;
        self.actions.push_back(Action::Verify { drive, object, object_len, block, buffer });
    }

    /// The drive let a transfer down: a status if nothing was sent yet, a reset otherwise.
    fn fail_transfer(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let State::Transfer(transfer) = &connection.state else { return };
        if transfer.head_pending.is_none() {
            self.counters.aborted += 1;
            self.close(id, Ending::Abort);
            return;
        }
        let slot = transfer.stage.slot();
        connection.state = State::Sending;
        let head = Head { status: Status::NotFound, keep_alive: connection.keep_alive };
        answer::plain(&mut connection.head, &mut self.counters, head, &self.date);
        self.actions.push_back(Action::Send { connection: id, head: true, body: Body::Empty });
        self.end_transfer(slot);
    }

    fn sent(&mut self, now: Now, id: ConnectionId) {
        let until = now.instant + self.config.progress_timeout;
        let idle_until = now.instant + self.config.idle_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.deadline = until;
        if let State::Transfer(transfer) = &mut connection.state {
            let Stage::Sending(slot) = transfer.stage else {
                unreachable!("a send completes once");
            };
            if transfer.next < transfer.end {
                transfer.stage = Stage::Queued(slot);
                self.queue(id);
                return;
            }
            connection.state = State::Sending;
            self.end_transfer(Some(slot));
        }
        let Some(connection) = live(&mut self.connections, id) else { return };
        if !connection.keep_alive {
            self.close(id, Ending::Graceful);
            return;
        }
        connection.state = State::Receiving;
        if connection.backlog.is_empty() {
            connection.deadline = idle_until;
            if self.stop_at.is_some() {
                self.close(id, Ending::Graceful);
            } else {
                self.actions.push_back(Action::Receive { connection: id });
            }
        } else {
            connection.deadline = now.instant + self.config.request_timeout;
            self.next_request(now, id);
        }
    }

    /// The other side left. In the middle of a response there is nobody to say goodbye to.
    fn ended(&mut self, id: ConnectionId) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let ending = match connection.state {
            State::Handshake | State::Receiving => Ending::Graceful,
            State::Sending | State::Transfer(_) => Ending::Abort,
        };
        self.close(id, ending);
    }

    /// One transfer fewer: its file is released and the next one admitted.
    fn end_transfer(&mut self, slot: Option<FileSlot>) {
        let Some(slot) = slot else { return };
        self.release(slot);
        assert!(0 < self.transfers, "a transfer ends once");
        self.transfers -= 1;
        self.admit();
    }

    fn release(&mut self, slot: FileSlot) {
        if let Some(slot) = self.files.release(slot) {
            self.actions.push_back(Action::CloseFile { slot });
        }
    }

    fn close(&mut self, id: ConnectionId, ending: Ending) {
        let Some(entry) = self.connections.get_mut(id.as_usize()) else { return };
        let Some(connection) = entry.take_if(|connection| connection.id == id) else { return };
        self.counters.open -= 1;
        self.actions.push_back(Action::Close { connection: id, ending });
        let State::Transfer(transfer) = connection.state else { return };
        match transfer.stage {
            // The kernel still reads from the file: `read` releases it.
            Stage::Reading(_) => {
                self.transfers -= 1;
                self.admit();
            }
            Stage::Admission => self.admission.retain(|waiting| *waiting != id),
            Stage::Opening(slot) | Stage::Queued(slot) | Stage::Sending(slot) => {
                self.end_transfer(Some(slot));
            }
        }
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Manifest(manifest) => {
                if self.catalogue.token_keys != manifest.token_keys {
                    self.catalogue.token_keys.clone_from(&manifest.token_keys);
                    self.catalogue.keys_epoch += 1;
                }
                let versions = manifest.versions.iter();
                self.catalogue.versions =
                    versions.map(|version| (version.id.clone(), version.clone())).collect();
            }
            Update::Published { object, extent, small } => {
                self.catalogue.index.publish(object, extent);
                if let Some(bytes) = small {
                    self.catalogue.small.insert(object, bytes);
                }
            }
            Update::Removed { object } => {
                self.catalogue.index.remove(&object);
                self.forget(object);
            }
            Update::DriveSetAside { drive } => {
                for object in self.catalogue.index.remove_drive(drive) {
                    self.forget(object);
                }
            }
        }
    }

    fn forget(&mut self, object: ObjectId) {
        self.catalogue.small.remove(&object);
        if let Some(slot) = self.files.forget(&object) {
            self.actions.push_back(Action::CloseFile { slot });
        }
    }

    fn tick(&mut self, now: Now) {
        self.tick_at = now.instant + TICK;
        self.refresh_date(now);
        let all = self.stop_at.is_some_and(|at| at <= now.instant);
        for slot in 0..self.connections.len() {
            let Some(connection) = &self.connections[slot] else { continue };
            if connection.deadline <= now.instant || all {
                self.counters.timed_out += u64::from(!all);
                self.close(connection.id, Ending::Abort);
            }
        }
    }

    fn stop(&mut self, deadline: Instant) {
        self.stop_at = Some(deadline);
        for slot in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[slot] else { continue };
            connection.keep_alive = false;
            let between = matches!(connection.state, State::Receiving | State::Handshake);
            if between && connection.backlog.is_empty() {
                let id = connection.id;
                self.close(id, Ending::Graceful);
            }
        }
    }

    fn refresh_date(&mut self, now: Now) {
        if now.wall != self.date_at {
            self.date_at = now.wall;
            self.date.clear();
            http1::date::write(now.wall, &mut self.date);
        }
    }
}

/// The connection of that name, if it is still open.
fn live(connections: &mut [Option<Box<Connection>>], id: ConnectionId) -> Option<&mut Connection> {
    let entry = connections.get_mut(id.as_usize())?.as_deref_mut();
    entry.filter(|connection| connection.id == id)
}

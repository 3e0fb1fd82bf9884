//! The machine that composes the others.

use std::collections::VecDeque;

use http1::{Head, Parsed, Request, RequestError, Status};
use iosched::reads::Ticket;
use iosched::tally::Slice;
use model::cmcd::Hints;
use model::drives::{DriveIndex, DriveSet};
use model::handle::{ConnectionId, FileSlot};
use model::id::{Generation, ObjectId};
use model::limits::DRIVES_MAX;
use model::machine::Machine;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::update::Update;

use crate::action::{Action, Body, Ending, Then};
use crate::answer::{self, Answer, Guests};
use crate::black_box::{BlackBox, Happened, Recorder, Waiting};
use crate::buffers::Buffers;
use crate::catalogue::Catalogue;
use crate::config::Config;
use crate::connection::{Connection, Stage, State, Texts};
use crate::counters::{Counters, Lateness};
use crate::crowd::Crowd;
use crate::drive::Drive;
use crate::event::{Event, Now};
use crate::files::Files;
use crate::grants::Grants;
use crate::hot::Hot;
use crate::pace::{PaceConfig, PaceMode, Plan};
use crate::request_log::RequestLog;
use crate::viewing::{View, Views};
use crate::wheel::Wheel;

/// Most responses that are written down when somebody asks.
const ASKED_MAX: usize = 16;

/// While no drive owes anything.
pub(crate) const NEVER: Instant = Instant(u64::MAX);

/// How often deadlines are looked at; they are kept to this.
const TICK: Nanos = Nanos::seconds(1);

/// Memory of texts kept for use again, of less than 5 KiB each and mostly of one: for as many
/// responses at once as one core can send.
const TEXTS_MAX: usize = 4096;

/// Bursts that one tick lets go. More wait for the next, which follows at once: in between the
/// clock is read again, and completions have their turn.
const FIRES_MAX: usize = 16;

/// Objects of a drive that was set aside that one tick takes out: a millisecond.
const FORGOTTEN_MAX: usize = 1024;

/// A read in flight, by its buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) connection: ConnectionId,
    pub(crate) drive: DriveIndex,
    pub(crate) ticket: Ticket,
    pub(crate) object: ObjectId,
    pub(crate) slot: FileSlot,
    /// Where in the buffer the wanted bytes begin and end.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The block that the buffer begins with, to be kept; and what `Hot::epoch` was.
    pub(crate) keep: Option<(Kept, u64)>,
}

/// A block that is read to be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) block: u64,
    pub(crate) len: Bytes,
}

/// One CPU core of an appliance.
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: Config,
    pub(crate) catalogue: Catalogue,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    pub(crate) files: Files,
    pub(crate) drives: Vec<Drive>,
    /// The drive that is asked first; moves on, so that each has its turn.
    pub(crate) first_drive: usize,
    pub(crate) buffers: Buffers,
    pub(crate) hot: Hot,
    pub(crate) reading: Vec<Option<Reading>>,
    /// Transfers past admission. Invariant: <= config.transfers_max.
    pub(crate) transfers: usize,
    /// The drive whose transfers are admitted next; moves on, so that each has its turn.
    pub(crate) first_admitted: usize,
    pub(crate) admitting: bool,
    pub(crate) actions: VecDeque<Action>,
    /// Used while files are opened; empty in between.
    pub(crate) woken: Vec<ConnectionId>,
    /// The current `Date`, and the second that it is of.
    pub(crate) date: Vec<u8>,
    pub(crate) date_at: UnixSeconds,
    pub(crate) tick_at: Instant,
    pub(crate) wheel: Wheel,
    /// Transfers that keep a buffer between bursts. Invariant: <= config.pacing.buffers.
    pub(crate) keeping: u16,
    pub(crate) watch_at: Instant,
    /// When bodies are broken off that nobody may have any more.
    pub(crate) cut_at: Instant,
    pub(crate) stop_at: Option<Instant>,
    pub(crate) guests: Guests,
    /// Bytes left until a block is verified. Invariant: 0 only if none ever is.
    pub(crate) verify_in: Bytes,
    pub(crate) black_box: BlackBox,
    /// The time of the event that is being handled.
    pub(crate) now: Now,
    pub(crate) log: RequestLog,
    pub(crate) views: Views,
    /// Connections to let go of if there are too many.
    pub(crate) crowd: Crowd,
    /// Used while deadlines are looked at; empty in between.
    pub(crate) expired: Vec<ConnectionId>,
    /// Connections that wait too long for one answer of a drive; empty in between.
    pub(crate) stuck: Vec<ConnectionId>,
    /// Memory of texts that no connection has.
    pub(crate) texts: Vec<Texts>,
    pub(crate) grants: Grants,
    pub(crate) counters: Counters,
    pub(crate) lateness: Lateness,
    /// The manifest by which every request is answered, those that were under way included.
    pub(crate) served: Generation,
    pub(crate) hung: DriveSet,
}

impl Worker {
    /// A worker without connections and without anything to serve.
    pub fn new(config: Config, now: Now) -> Self {
        assert!(config.pacing.buffers < config.buffers, "some are left for reads that are short");
        assert!(config.transfers_max < usize::from(config.file_slots), "a transfer finds a slot");
        assert!(0 < config.handshakes_max && 0 < config.connections_max, "somebody may come in");
        assert!(0 < config.head_len_max, "a request has a head");
        assert!(config.drives <= config.drives_buffers(), "a drive has a buffer at least");
        assert!(config.drives <= DRIVES_MAX, "the shell configures at most {DRIVES_MAX} drives");
        let drive = |at| Drive::new(config.share(at), config.transfers_max, now.instant);
        let mut date = Vec::new();
        http1::date::write(now.wall, &mut date);
        Self {
            config,
            catalogue: Catalogue { token_leeway: config.token_leeway, ..Catalogue::default() },
            connections: Vec::new(),
            files: Files::new(config.file_slots),
            drives: (0..config.drives).map(drive).collect(),
            first_drive: 0,
            buffers: Buffers::new(config.buffer_count()),
            hot: Hot::new(config.hot_blocks),
            reading: (0..config.buffer_count()).map(|_| None).collect(),
            transfers: 0,
            first_admitted: 0,
            admitting: false,
            actions: VecDeque::with_capacity(64),
            woken: Vec::new(),
            date,
            date_at: now.wall,
            tick_at: now.instant + TICK,
            wheel: Wheel::new(),
            keeping: 0,
            watch_at: NEVER,
            cut_at: NEVER,
            stop_at: None,
            guests: Guests::default(),
            verify_in: config.verify_span(),
            black_box: BlackBox::new(config.incidents, config.transfers_max),
            now,
            log: RequestLog::new(config.log_requests),
            views: Views::new(config.views_max),
            crowd: Crowd::default(),
            expired: Vec::new(),
            stuck: Vec::new(),
            texts: Vec::new(),
            grants: Grants::new(),
            counters: Counters::default(),
            lateness: Lateness::default(),
            served: Generation(0),
            hung: DriveSet::NONE,
        }
    }

    /// The head of the connection's current response.
    pub fn head(&self, connection: ConnectionId) -> &[u8] {
        self.connection(connection).map_or(&[], |c| &c.texts.head)
    }

    /// Bytes of the request log that wait to be taken.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Gives away the lines of the request log for the memory of `spare`.
    pub fn take_log(&mut self, spare: &mut Vec<u8>) {
        self.log.take(spare);
    }

    /// Responses to players that wait to be taken.
    pub fn view_count(&self) -> usize {
        self.views.len()
    }

    /// Gives them away for the memory of `spare`.
    pub fn take_views(&mut self, spare: &mut Vec<View>) {
        self.views.take(spare);
    }

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How late bursts went so far.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// The manifest by which every request is answered, those that were under way included.
    pub fn served(&self) -> Generation {
        self.served
    }

    /// Drives that do not answer now.
    pub fn hung(&self) -> DriveSet {
        self.hung
    }

    /// What this worker's reads of a drive met so far, and what it has asked of it.
    pub fn slice(&mut self, drive: DriveIndex) -> Slice {
        self.drives[drive.as_usize()].reads.slice()
    }

    /// True once nothing is open any more after a stop.
    pub fn is_stopped(&self) -> bool {
        self.stop_at.is_some() && self.counters.open == 0
    }

    pub(crate) fn connection(&self, id: ConnectionId) -> Option<&Connection> {
        let entry = self.connections.get(id.as_usize())?.as_deref();
        entry.filter(|connection| connection.id == id)
    }

    fn accepted(&mut self, now: Now, id: ConnectionId) {
        if self.stop_at.is_some() || !self.make_room() {
            self.counters.refused += 1;
            self.actions.push_back(Action::Close { connection: id, ending: Ending::Abort });
            return;
        }
        if self.connections.len() <= id.as_usize() {
            self.connections.resize_with(id.as_usize() + 1, || None);
        }
        self.wheel.reserve(id.as_usize());
        self.handshake_begins(id);
        let deadline = now.instant + self.config.request_timeout;
        let before =
            self.connections[id.as_usize()].replace(Box::new(Connection::new(id, deadline)));
        assert!(before.is_none(), "a slot has one connection at a time");
        self.counters.accepted += 1;
        self.counters.open += 1;
        let most = Bytes::of(self.config.connections_max).0;
        assert!(self.counters.open <= most, "room was made for the newcomer");
    }

    fn established(&mut self, now: Now, id: ConnectionId) {
        let idle_until = now.instant + self.config.idle_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        assert!(matches!(connection.state, State::Handshake), "a handshake is over once");
        connection.state = State::Receiving;
        connection.deadline = idle_until;
        self.crowd.handshake_over();
        self.actions.push_back(Action::Receive { connection: id });
    }

    fn received(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) {
        let request_until = now.instant + self.config.request_timeout;
        let Some(connection) = live(&mut self.connections, id) else { return };
        if connection.backlog.is_empty() {
            // The deadline runs from the first byte of a request; more bytes do not extend it.
            connection.deadline = request_until;
            let used = self.request(now, id, bytes);
            seen(&mut self.connections, id).backlog.extend_from_slice(&bytes[used..]);
            return;
        }
        connection.backlog.extend_from_slice(bytes);
        self.next_request(now, id);
    }

    /// Answers the next request of the backlog, if there is a whole one.
    fn next_request(&mut self, now: Now, id: ConnectionId) {
        let mut backlog = std::mem::take(&mut seen(&mut self.connections, id).backlog);
        let used = self.request(now, id, &backlog);
        backlog.drain(..used);
        if !backlog.is_empty() {
            seen(&mut self.connections, id).backlog = backlog;
        }
    }

    /// Answers the first request in `bytes`, or asks for more. Returns how many bytes it used.
    fn request(&mut self, now: Now, id: ConnectionId, bytes: &[u8]) -> usize {
        self.refresh_date(now);
        let connection = seen(&mut self.connections, id);
        if connection.texts.head.capacity() == 0 {
            connection.texts = self.texts.pop().unwrap_or_default();
        }
        connection.texts.begin();
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
                    RequestError::TooLarge => {
                        http1::parse::too_long(bytes, self.config.head_len_max)
                    }
                    RequestError::Method => Status::MethodNotAllowed,
                    RequestError::Malformed | RequestError::Host | RequestError::Body => {
                        Status::BadRequest
                    }
                };
                connection.keep_alive = false;
                if self.log.enabled {
                    connection.entry.begin(now, None, &mut connection.texts.line);
                }
                let head = Head { status, keep_alive: false };
                answer::plain(&mut connection.texts.head, &mut self.counters, head, &self.date);
                self.send_head(now, id);
                return bytes.len();
            }
        };
        connection.keep_alive = request.keep_alive && self.stop_at.is_none();
        if self.log.enabled {
            connection.entry.begin(now, Some(&request), &mut connection.texts.line);
        }
        if self.guests.are_sent_on(connection, &request) {
            answer::redirect(&self.guests.base_url, &mut self.counters, &self.date, connection);
            self.send_head(now, id);
            return len;
        }
        let known = (&mut self.counters, &mut self.grants);
        match answer::answer(&self.catalogue, known, &self.date, now, connection, &request) {
            Answer::HeadOnly => self.send_head(now, id),
            Answer::Missing => {
                let (catalogue, counters) = (&self.catalogue, &mut self.counters);
                answer::note_elsewhere(catalogue, connection, &request);
                answer::redirect_or_404(catalogue, counters, &self.date, connection);
                self.send_head(now, id);
            }
            Answer::Object { object, status, start, end, pace, kind } => {
                answer::note_elsewhere(&self.catalogue, connection, &request);
                let hints = hints(&self.config, &request);
                self.views.begin(now.instant, connection, &request, (object, kind, hints));
                let plan = plan(&self.config.pacing, &hints, pace, &mut connection.sent);
                self.send_object(now, id, object, status, (start, end), plan);
            }
        }
        len
    }

    pub(crate) fn send_head(&mut self, now: Now, id: ConnectionId) {
        let until = now.instant + self.config.progress_timeout;
        let connection = seen(&mut self.connections, id);
        connection.state = State::Sending;
        connection.deadline = until;
        self.send_whole(id, Body::Empty);
    }

    /// A response that is over with this.
    pub(crate) fn send_whole(&mut self, id: ConnectionId, body: Body) {
        let then = Then::Nothing;
        self.actions.push_back(Action::Send { connection: id, head: true, body, then });
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
            let (stage, keeps) = (transfer.stage, transfer.keeps);
            let (held, more) = (transfer.held.is_some(), transfer.next < transfer.end);
            self.note(id, Happened::Taken, Some(Waiting::Drive));
            if held {
                self.burst_or_wait(id, slot);
                return;
            }
            if more {
                self.advance(id, slot);
                return;
            }
            self.keeps_no_more(keeps);
            let connection = seen(&mut self.connections, id);
            connection.state = State::Sending;
            let recorder = connection.recorder.take();
            self.end_record(recorder, true);
            self.end_transfer(stage);
        }
        let connection = seen(&mut self.connections, id);
        log_end(&mut self.log, &mut self.counters, connection, true);
        view_end(&mut self.views, &mut self.counters, now.instant, connection, true);
        if !connection.keep_alive {
            self.close(id, Ending::Graceful);
            return;
        }
        connection.state = State::Receiving;
        if connection.backlog.is_empty() {
            connection.deadline = idle_until;
            let texts = std::mem::take(&mut connection.texts);
            if self.texts.len() < TEXTS_MAX {
                self.texts.push(texts);
            }
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
        if let Some(recorder) = &mut connection.recorder {
            recorder.left = true;
        }
        let ending = match connection.state {
            State::Handshake | State::Receiving => Ending::Graceful,
            State::Sending | State::Transfer(_) => Ending::Abort,
        };
        self.close(id, ending);
    }

    pub(crate) fn close(&mut self, id: ConnectionId, ending: Ending) {
        let Some(entry) = self.connections.get_mut(id.as_usize()) else { return };
        let Some(mut connection) = entry.take_if(|connection| connection.id == id) else { return };
        log_end(&mut self.log, &mut self.counters, &mut connection, false);
        let now = self.now.instant;
        view_end(&mut self.views, &mut self.counters, now, &mut connection, false);
        self.end_record(connection.recorder.take(), false);
        assert!(0 < self.counters.open, "a connection closes once");
        self.counters.open -= 1;
        self.actions.push_back(Action::Close { connection: id, ending });
        let transfer = match connection.state {
            State::Handshake => return self.crowd.handshake_over(),
            State::Receiving | State::Sending => return,
            State::Transfer(transfer) => transfer,
        };
        self.wheel.cancel(id.as_usize());
        self.keeps_no_more(transfer.keeps);
        if let Some(held) = transfer.held {
            self.buffers.unpin(held.buffer);
        }
        if transfer.stage == Stage::Admission {
            self.leave_admission(transfer.drive);
        } else {
            self.end_transfer(transfer.stage);
        }
    }

    /// Something happened to a response; from now on it waits for `whom`, if that changes.
    pub(crate) fn note(&mut self, id: ConnectionId, what: Happened, whom: Option<Waiting>) {
        let Some(connection) = live(&mut self.connections, id) else { return };
        let Some(recorder) = &mut connection.recorder else { return };
        recorder.note(self.now.instant, what);
        if let Some(whom) = whom {
            recorder.wait_for(self.now.instant, whom);
        }
    }

    pub(crate) fn end_record(&mut self, recorder: Option<Box<Recorder>>, whole: bool) {
        let Some(recorder) = recorder else { return };
        let now = (self.now.instant, self.now.wall);
        if let Some(incident) = self.black_box.end(recorder, now, whole) {
            self.counters.incidents += 1;
            self.actions.extend(incident.map(Action::Incident));
        }
    }

    fn incidents(&mut self) {
        let now = (self.now.instant, self.now.wall);
        let recorders = self.connections.iter_mut().flatten();
        let recorders = recorders.filter_map(|connection| connection.recorder.as_deref_mut());
        let asked = recorders.take(ASKED_MAX).map(|recorder| BlackBox::ask(recorder, now));
        self.actions.extend(asked.map(Action::Incident));
    }

    fn update(&mut self, update: Update) {
        match update {
            Update::Manifest(manifest) => self.follow(&manifest),
            Update::Published { object, extent, small } => {
                if self.catalogue.index.locate(&object) != Some(&extent) {
                    // What is open is of another place, or of this one before its drive was set
                    // aside. Readers of the old file read on.
                    self.close_file(object);
                }
                self.catalogue.index.publish(object, extent);
                if let Some(bytes) = small {
                    self.catalogue.small.insert(object, bytes);
                }
            }
            Update::Removed { object } => {
                let len = self.catalogue.index.remove(&object).map(|extent| extent.len);
                self.forget(object);
                self.hot.drop_object(object, len, &mut self.buffers);
                self.counters.hot_blocks = Bytes::of(self.hot.len()).0;
            }
            Update::Siblings(siblings) => self.catalogue.siblings = siblings,
            Update::DriveSetAside { drive } => {
                self.catalogue.index.set_aside(drive);
                self.forget_some();
                self.hot.drop_drive(drive, &mut self.buffers);
                self.counters.hot_blocks = Bytes::of(self.hot.len()).0;
            }
        }
    }

    /// Takes out some objects of drives that were set aside.
    fn forget_some(&mut self) {
        for object in self.catalogue.index.forget_some(FORGOTTEN_MAX) {
            self.forget(object);
        }
    }

    pub(crate) fn forget(&mut self, object: ObjectId) {
        self.catalogue.small.remove(&object);
        self.close_file(object);
    }

    /// Nobody new reads from the object's file, as far as it was opened.
    fn close_file(&mut self, object: ObjectId) {
        if let Some(slot) = self.files.forget(&object) {
            self.actions.push_back(Action::CloseFile { slot });
        }
    }

    fn tick(&mut self, now: Now) {
        for _ in 0..FIRES_MAX {
            let Some(index) = self.wheel.fire(now.instant) else { break };
            self.paced(index);
        }
        self.forget_some();
        if self.watch_at <= now.instant {
            self.watch(now);
        }
        self.cut(now.instant);
        if now.instant < self.tick_at && self.stop_at.is_none_or(|at| now.instant < at) {
            return;
        }
        self.tick_at = now.instant + TICK;
        self.refresh_date(now);
        let all = self.stop_at.is_some_and(|at| at <= now.instant);
        assert!(self.expired.is_empty() && self.stuck.is_empty(), "each look begins anew");
        self.look_at_the_crowd(now.instant);
        let mut expired = std::mem::take(&mut self.expired);
        for id in expired.drain(..) {
            self.counters.timed_out += u64::from(!all);
            self.close(id, Ending::Abort);
        }
        self.expired = expired;
        self.reset_who_is_stuck();
        self.bound_unsent();
        self.admit();
    }

    fn stop(&mut self, deadline: Instant) {
        self.stop_at = Some(deadline);
        self.close_the_quiet(|_| true);
    }

    /// Closes those connections between two requests, and the others after their response.
    pub(crate) fn close_the_quiet(&mut self, which: impl Fn(&Connection) -> bool) {
        for slot in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[slot] else { continue };
            if !which(connection) {
                continue;
            }
            connection.keep_alive = false;
            let between = matches!(connection.state, State::Receiving | State::Handshake);
            if between && connection.backlog.is_empty() {
                let id = connection.id;
                self.close(id, Ending::Graceful);
            }
        }
    }

    pub(crate) fn refresh_date(&mut self, now: Now) {
        if now.wall != self.date_at {
            self.date_at = now.wall;
            self.date.clear();
            http1::date::write(now.wall, &mut self.date);
        }
    }
}

impl Machine for Worker {
    type Now = Now;
    type Event<'a> = Event<'a>;
    type Action = Action;

    fn handle(&mut self, now: Now, event: Event<'_>) {
        assert!(self.now.instant <= now.instant, "this clock never goes back");
        assert!(!self.admitting, "an event is over before the next");
        self.log.now = now.instant;
        self.now = now;
        match event {
            Event::Accepted { connection } => self.accepted(now, connection),
            Event::Reached { connection, address } => self.reached(connection, address),
            Event::From { connection, client } => {
                if let Some(connection) = live(&mut self.connections, connection) {
                    connection.client = Some(client);
                }
            }
            Event::Drain { base_url, addresses } => self.drain(base_url, addresses),
            Event::Established { connection } => self.established(now, connection),
            Event::Received { connection, bytes } => self.received(now, connection, bytes),
            Event::Sent { connection } => self.sent(now, connection),
            Event::PathSeen { connection, sample } => self.path_seen(connection, &sample),
            Event::Ended { connection } => self.ended(connection),
            Event::Opened { slot, result } => self.opened(now, slot, result),
            Event::Read { buffer, result } => self.read(now, buffer, result),
            Event::Update(update) => self.update(update),
            Event::Expected(blocks) => self.hot.expect(blocks),
            Event::Tcp { connection, sample } => {
                self.note(connection, Happened::Tcp(sample), None);
            }
            Event::Incidents => self.incidents(),
            Event::Tick => self.tick(now),
            Event::Stop { deadline } => self.stop(deadline),
        }
    }

    fn poll(&mut self) -> Option<Action> {
        let action = self.actions.pop_front().or_else(|| self.next_read());
        // A block that `next_read` found to be hot by now needs no read.
        let action = action.or_else(|| self.actions.pop_front())?;
        if let Action::Send { connection, body, .. } = &action {
            if let Body::Buffer { buffer, .. } = body {
                // Carried out before the next `poll`: before anything else is done with it.
                self.buffers.unpin(*buffer);
            }
            let is_told = self.log.enabled || self.views.are_told();
            if let (true, Some(to)) = (is_told, live(&mut self.connections, *connection)) {
                to.entry.sending(self.log.now, body.len());
                if let Some(view) = &mut to.texts.view {
                    view.sent += body.len();
                }
            }
        }
        Some(action)
    }

    fn deadline(&self) -> Option<Instant> {
        if self.catalogue.index.is_leaving() {
            return Some(self.now.instant);
        }
        let paced = self.wheel.deadline().unwrap_or(NEVER);
        Some(self.tick_at.min(self.watch_at).min(paced).min(self.cut_at))
    }
}

/// The current response ended, if there is one.
fn log_end(
    log: &mut RequestLog,
    counters: &mut Counters,
    connection: &mut Connection,
    whole: bool,
) {
    if log.enabled {
        let session = connection.granted.as_ref().map(|granted| granted.mark);
        let Texts { line, head, .. } = &mut connection.texts;
        let kept = log.end(&connection.entry, (line, head), session, whole);
        counters.log_lines_lost += u64::from(!kept);
    }
}

/// The current response is over, for whoever follows playbacks.
fn view_end(
    views: &mut Views,
    counters: &mut Counters,
    now: Instant,
    connection: &mut Connection,
    whole: bool,
) {
    let told = views.end(now, connection, whole);
    counters.views_lost += u64::from(!told);
}

/// The player's words, where somebody heeds them.
fn hints(config: &Config, request: &Request<'_>) -> Hints {
    if config.pacing.mode == PaceMode::Off && config.views_max == 0 {
        return Hints::default();
    }
    playback::cmcd::hints(request.query, &request.fields.cmcd)
}

fn plan(
    config: &PaceConfig,
    hints: &Hints,
    version: Option<BitsPerSecond>,
    sent: &mut Bytes,
) -> Plan {
    if config.mode == PaceMode::Off {
        return Plan::UNPACED;
    }
    Plan::new(config, hints, version, sent)
}

/// The connection of that name, which the caller has just seen.
pub(crate) fn seen(
    connections: &mut [Option<Box<Connection>>],
    id: ConnectionId,
) -> &mut Connection {
    let connection = live(connections, id);
    connection.expect("the caller has just seen it open")
}

/// The connection of that name, if it is still open: events and lists may name one that is not.
pub(crate) fn live(
    connections: &mut [Option<Box<Connection>>],
    id: ConnectionId,
) -> Option<&mut Connection> {
    let entry = connections.get_mut(id.as_usize())?.as_deref_mut();
    entry.filter(|connection| connection.id == id)
}

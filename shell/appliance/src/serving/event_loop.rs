//! One worker's thread: turns completions into events and carries out actions.
//!
//! ```text
//! Ring::turn ──> completion ──> Event ──> Worker::handle
//!                                           poll ──> Action ──> seal, send, read, open, close
//! ```
//!
//! It decides nothing. Each turn enters the kernel once and takes a bounded number of completions,
//! each of which has a bounded number of things done, and after each of which the thread is seen to
//! live: what is left has its turn in the next. A `Send` is sealed into one scratch per thread and
//! sent at once, while it is still in the processor's cache (batching it was measured to cost a
//! quarter more).

mod hellos;
mod letters;

use std::collections::VecDeque;
use std::ffi::CString;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use http1::response::HEAD_LEN_MAX;
use model::drives::{DriveIndex, DriveSet};
use model::extent::Extent;
use model::handle::{ConnectionId, FileSlot};
use model::id::ObjectId;
use model::machine::Machine;
use model::object::block_len;
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use tls::{Acceptor, Session};
use uring::{Completion, Errno, Ring, Token, Wait};
use worker::{Action, Body, Config, Ending, Event, Fault, Then, Worker};

use crate::clock::{self, Clock};
use crate::counters::{DriveSlice, ServeCounters};
use crate::serving::ablation::{Ablation, Sending};
use crate::serving::clients::Clients;
use crate::serving::listen::Listener;
use crate::serving::mailbox::Mailbox;
use crate::serving::request_log::Lines;
use crate::serving::socket::{Incoming, Socket, Transport};
use crate::serving::viewers::Views;
use upkeep::Sample;

/// Submission queue entries.
const RING_ENTRIES: u32 = 512;
/// Completions taken per turn, and as many of the connections that wait for one.
const COMPLETIONS_MAX: usize = 256;
/// What a client takes whole at once in one event; then others have their turn. It may ask for much
/// in one packet, or take a large object as fast as it is sealed. Arbitrary: answers without a body
/// are 0.1 ms, chunks from memory a millisecond.
const TAKEN_MAX: usize = 16;
/// Received at once: two full records.
const RECEIVE_LEN: usize = 32 * 1024;
/// Memory of overflows kept for use again.
const SPARE_MAX: usize = 256;
/// How often the thread's CPU time is asked for: a system call, so not every turn.
const CPU_EVERY: Nanos = Nanos::millis(100);
/// A thread with nothing to do turns this often, so that it is seen to live (`life`).
const TURN_EVERY: Nanos = Nanos::millis(200);
/// How often what needs no hurry is looked at; the worker's ticks wake the thread in time.
const ROUND: Nanos = Nanos::seconds(1);
/// How often TCP is asked about one connection: a microsecond of system call, or less.
const TCP_EVERY: Nanos = Nanos::millis(200);
/// What opening a file says where there is none (ENOENT).
const NO_SUCH_FILE: i32 = rustix::io::Errno::NOENT.raw_os_error();
/// The mailbox's bell; no connection has this name.
const BELL: Token = Token(u64::MAX);

/// What a worker's thread is given.
pub struct Setup {
    pub config: Config,
    pub acceptor: Acceptor,
    /// The drives' directories, in the order of `DriveIndex`; none where one is set aside.
    pub drives: Vec<Option<Arc<OwnedFd>>>,
    /// Drives whose file system may block whoever asks it (`mounts::blocking`).
    pub blocking: DriveSet,
    pub mailbox: Mailbox,
    pub counters: Arc<ServeCounters>,
    /// Where goes what reads of each drive met.
    pub slices: Arc<[DriveSlice]>,
    /// Where lines of the request log go, if they are written.
    pub log: Option<Lines>,
    /// Where views of responses go, if playbacks are followed.
    pub views: Option<Views>,
    /// Told what was found on drives. Must not block.
    pub report: Box<dyn FnMut(Finding) + Send>,
    /// Called once, when the ring is made: nothing after it needs another.
    pub ring_is_made: fn(),
    /// The bound of unsent bytes that connections inherit from their listeners; none where they
    /// inherit none. The worker raises it for a connection while more than that is on its way.
    pub unsent_max: Option<Bytes>,
    /// Where connections are noted, if siblings may take this appliance's addresses over.
    pub clients: Option<Arc<Clients>>,
    /// What is switched off for a measurement.
    pub ablation: Ablation,
}

/// What a worker found on a drive.
#[derive(Clone, Debug)]
pub enum Finding {
    /// An object could not be read there.
    Fault(ObjectId, Extent, Fault),
    /// A block was sent to a viewer.
    Sample(Sample),
    Incident(Box<worker::Incident>),
}

/// Runs a worker until it is told to stop and has.
pub fn run(setup: Setup) -> Result<(), uring::RingError> {
    let ring_is_made = setup.ring_is_made;
    let mut event_loop = EventLoop::new(setup)?;
    ring_is_made();
    event_loop.run()
}

/// What follows at once from an action, to be handled after the actions before it.
#[derive(Debug)]
enum Follow {
    Sent(ConnectionId),
    Ended(ConnectionId),
    Early(ConnectionId),
    LookAtPath(ConnectionId),
    NotOpened(FileSlot),
    Tcp(ConnectionId, TcpSample),
}

struct EventLoop {
    worker: Worker,
    ring: Ring,
    clock: Clock,
    sockets: Vec<Option<Socket>>,
    /// Free places in `sockets`, and how often each was used.
    vacant: Vec<u32>,
    generations: Vec<u32>,
    listeners: Vec<Listener>,
    acceptor: Acceptor,
    drives: Vec<Option<Arc<OwnedFd>>>,
    blocking: DriveSet,
    mailbox: Mailbox,
    counters: Arc<ServeCounters>,
    slices: Arc<[DriveSlice]>,
    log: Option<Lines>,
    views: Option<Views>,
    report: Box<dyn FnMut(Finding) + Send>,
    follow: VecDeque<Follow>,
    /// Connections whose hello has come, or a piece of it, and waits for a turn: those that are
    /// served go first. The last to come is the next, since with more of them than there is time
    /// for, it is better that some are not kept waiting than that all are; the worker lets go of
    /// the first.
    hellos: VecDeque<ConnectionId>,
    /// Connections of which more is to be received than was, or which have taken much at once: each
    /// stands here once (`Socket::again`), for its turn in the next turn of the loop.
    again: VecDeque<ConnectionId>,
    /// Sealed records on their way to the kernel; hot.
    scratch: Vec<u8>,
    incoming: Vec<u8>,
    plain: Vec<u8>,
    flight: Vec<u8>,
    /// Memory for what the kernel did not take at once.
    spare: Vec<Vec<u8>>,
    stopping: bool,
    not_accepting: Vec<Token>,
    /// When they are tried again, and sockets are looked at.
    round_at: Instant,
    /// When the CPU time was last noted.
    cpu_at: Instant,
    unsent_max: Option<Bytes>,
    clients: Option<Arc<Clients>>,
    ablation: Ablation,
}

impl EventLoop {
    fn new(setup: Setup) -> Result<Self, uring::RingError> {
        let clock = Clock::start();
        let ring = Ring::new(uring::Config {
            entries: RING_ENTRIES,
            buffer_count: setup.config.buffer_count(),
            buffer_len: Config::BUFFER_LEN,
            file_slots: setup.config.file_slots,
            direct_reads: setup.ablation.direct_reads,
            blocking_max: u32::try_from(setup.config.owed_max()).unwrap_or(u32::MAX),
        })?;
        let parts = [HEAD_LEN_MAX, Config::BUFFER_LEN.as_usize()];
        let scratch_len = Session::sealed_len_max(parts, setup.ablation.record_len.0.as_usize());
        Ok(Self {
            worker: Worker::new(setup.config, clock.now()),
            ring,
            clock,
            sockets: Vec::new(),
            vacant: Vec::new(),
            generations: Vec::new(),
            listeners: Vec::new(),
            acceptor: setup.acceptor,
            drives: setup.drives,
            blocking: setup.blocking,
            mailbox: setup.mailbox,
            counters: setup.counters,
            slices: setup.slices,
            log: setup.log,
            views: setup.views,
            report: setup.report,
            follow: VecDeque::with_capacity(COMPLETIONS_MAX),
            hellos: VecDeque::new(),
            again: VecDeque::with_capacity(COMPLETIONS_MAX),
            scratch: vec![0; scratch_len],
            incoming: vec![0; RECEIVE_LEN],
            plain: Vec::with_capacity(RECEIVE_LEN),
            flight: Vec::new(),
            spare: Vec::with_capacity(SPARE_MAX),
            stopping: false,
            not_accepting: Vec::new(),
            round_at: Instant(0),
            cpu_at: Instant(0),
            unsent_max: setup.unsent_max,
            clients: setup.clients,
            ablation: setup.ablation,
        })
    }

    fn run(&mut self) -> Result<(), uring::RingError> {
        self.ring.watch(self.mailbox.bell(), BELL);
        let mut completions = Vec::with_capacity(COMPLETIONS_MAX);
        while !self.worker.is_stopped() {
            self.turn(&mut completions)?;
        }
        Ok(())
    }

    /// One turn; `completions` is memory for it.
    fn turn(&mut self, completions: &mut Vec<Completion>) -> Result<(), uring::RingError> {
        let until = self.worker.deadline().expect("a worker looks at its clients every second");
        let wait = until.since(self.clock.now().instant);
        let hurry = !self.hellos.is_empty() || !self.again.is_empty();
        let wait = if hurry { Wait::No } else { Wait::For(wait.clamp(Nanos(1), TURN_EVERY)) };
        self.ring.turn(wait, COMPLETIONS_MAX, completions)?;
        self.counters.lives();
        let busy = !completions.is_empty() || !self.again.is_empty();
        for _ in 0..self.again.len().min(COMPLETIONS_MAX) {
            let id = self.again.pop_front().expect("so many are there, and more come behind them");
            self.go_on(id);
            self.counters.lives();
        }
        for completion in completions.drain(..) {
            self.completed(completion);
            self.counters.lives();
        }
        self.answer_hellos(busy);
        let now = self.clock.now();
        if self.worker.deadline().is_some_and(|due| due <= now.instant) {
            self.event(Event::Tick);
        }
        if self.round_at <= now.instant {
            self.round_at = now.instant + ROUND;
            self.sockets.iter_mut().flatten().for_each(Socket::look);
            while let Some(token) = self.not_accepting.pop() {
                let index = usize::try_from(token.0).expect("a listener's index");
                self.ring.accept(self.listeners[index].socket.as_fd(), token);
            }
        }
        self.counters.store(&self.worker);
        for (index, slice) in DriveIndex::all(self.slices.len()).zip(self.slices.iter()) {
            slice.store(&self.worker.slice(index));
        }
        self.hand_over_log(now.instant);
        self.hand_over_views(now.instant);
        if CPU_EVERY <= now.instant.since(self.cpu_at) {
            self.cpu_at = now.instant;
            self.counters.store_cpu(clock::thread_cpu());
        }
        Ok(())
    }

    fn hand_over_log(&mut self, now: Instant) {
        let Some(log) = &mut self.log else { return };
        let len = self.worker.log_len();
        let due = log.is_due(len, now) || (0 < len && self.worker.is_stopped());
        if due && let Some(mut lines) = log.memory(now) {
            self.worker.take_log(&mut lines);
            log.hand_over(lines);
        }
    }

    fn hand_over_views(&mut self, now: Instant) {
        let Some(views) = &mut self.views else { return };
        let count = self.worker.view_count();
        let due = views.is_due(count, now) || (0 < count && self.worker.is_stopped());
        if due && let Some(mut list) = views.memory(now) {
            self.worker.take_views(&mut list);
            views.hand_over(list);
        }
    }

    fn completed(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { token, socket, more } => self.accepted(token, socket, more),
            Completion::Readable { token: BELL, more, .. } => self.letters(more),
            Completion::Readable { token, ended, more } => {
                self.readable(connection(token), ended, more);
            }
            Completion::Room { token, result } => self.delivered(connection(token), result),
            Completion::Sent { token, data, result } => self.sent(connection(token), data, result),
            Completion::Opened { slot, result, .. } => {
                self.event(Event::Opened { slot, result: result.map_err(fault) });
            }
            Completion::Read { buffer, result, .. } => {
                let result = result.map(Bytes::of).map_err(fault);
                self.event(Event::Read { buffer, result });
            }
            Completion::FileClosed { .. } => {}
        }
    }

    /// One event, and what follows from it at once.
    fn event(&mut self, event: Event<'_>) {
        self.worker.handle(self.clock.now(), event);
        self.carry_out();
        let mut taken = 0;
        while let Some(follow) = self.follow.pop_front() {
            match follow {
                Follow::Sent(connection) if taken == TAKEN_MAX => {
                    let Some(socket) = self.socket(connection) else { continue };
                    socket.taken = true;
                    self.put_off(connection);
                }
                Follow::Sent(connection) => {
                    taken += 1;
                    self.worker.handle(self.clock.now(), Event::Sent { connection });
                }
                Follow::Ended(connection) => {
                    self.worker.handle(self.clock.now(), Event::Ended { connection });
                }
                Follow::LookAtPath(connection) => {
                    let Some(socket) = self.socket(connection) else { continue };
                    // Nothing is known of a socket that cannot be asked: nothing was lost.
                    let sample = uring::tcp_info(socket.fd.as_fd()).unwrap_or_default();
                    let event = Event::PathSeen { connection, sample };
                    self.worker.handle(self.clock.now(), event);
                }
                Follow::NotOpened(slot) => {
                    let result = Err(Fault { errno: NO_SUCH_FILE });
                    self.worker.handle(self.clock.now(), Event::Opened { slot, result });
                }
                Follow::Tcp(connection, sample) => {
                    self.worker.handle(self.clock.now(), Event::Tcp { connection, sample });
                }
                Follow::Early(connection) => {
                    let Some(socket) = self.socket(connection) else { continue };
                    let early = std::mem::take(&mut socket.early);
                    let bytes = &early;
                    self.worker.handle(self.clock.now(), Event::Received { connection, bytes });
                }
            }
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.worker.poll() {
            match action {
                Action::Receive { connection } => self.receive(connection),
                Action::Send { connection, head, body, then } => {
                    self.send(connection, head, &body, then);
                }
                Action::LookAtPath { connection } => {
                    // Before it hears that its bytes are sent, and goes on.
                    self.follow.push_front(Follow::LookAtPath(connection))
                }
                Action::Limit { connection, rate } => self.limit(connection, rate),
                Action::Open { slot, drive, file } => self.open(slot, drive, &file.0),
                Action::CloseFile { slot } => self.ring.close_file(slot),
                Action::Read { buffer, slot, offset, len } => {
                    self.ring.read(slot, offset, len, buffer, Token(u64::from(buffer.0)));
                }
                Action::Close { connection, ending } => self.close(connection, ending),
                Action::Verify { drive, object, object_len, block, buffer } => {
                    let len = block_len(object_len, block).as_usize();
                    let bytes = buffer.map(|buffer| &self.ring.buffer(buffer)[..len]);
                    let hash = bytes.map(|bytes| upkeep::verify::hash(block, bytes, object_len));
                    let sample = Sample { drive, object, object_len, block, hash };
                    (self.report)(Finding::Sample(sample));
                }
                Action::Incident(incident) => (self.report)(Finding::Incident(incident)),
                Action::Report { object, extent, fault } => {
                    (self.report)(Finding::Fault(object, extent, fault));
                }
            }
        }
    }

    fn socket(&mut self, id: ConnectionId) -> Option<&mut Socket> {
        socket_of(&mut self.sockets, id)
    }

    fn accepted(&mut self, token: Token, socket: Result<OwnedFd, Errno>, more: bool) {
        let index = usize::try_from(token.0).expect("a listener's index");
        if !more && !self.stopping {
            // Out of descriptors, or the like: tried again with the next round, since at once it
            // would fail again, and again.
            self.not_accepting.push(token);
        }
        let fd = match socket {
            Ok(fd) => fd,
            Err(error) => {
                if !self.stopping {
                    tracing::warn!(%error, "accepting a connection failed; again in a second");
                }
                return;
            }
        };
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let versions = self.listeners[index].versions;
        // What a handshake needs is made when its first bytes come: silence costs a socket.
        let transport = versions.map_or(Transport::Plain, Transport::Hello);
        let id = self.place(fd, transport);
        self.event(Event::Accepted { connection: id });
        self.note_client(id);
        self.say_from(id);
        if versions.is_none() {
            self.event(Event::Established { connection: id });
        } else {
            self.await_content(id);
        }
    }

    /// Two system calls, where addresses move at all.
    fn note_client(&mut self, id: ConnectionId) {
        let Some(clients) = &self.clients else { return };
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.noted = clients.note(&socket.fd);
        if let Some(noted) = &socket.noted {
            let address = noted.reached();
            self.event(Event::Reached { connection: id, address });
        }
    }

    /// A system call, where playbacks are followed.
    fn say_from(&mut self, id: ConnectionId) {
        let (Some(_), Some(socket)) = (&self.views, socket_of(&mut self.sockets, id)) else {
            return;
        };
        let from = rustix::net::getpeername(&socket.fd).ok().flatten();
        if let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) {
            self.event(Event::From { connection: id, client: from.ip() });
        }
    }

    fn place(&mut self, fd: OwnedFd, transport: Transport) -> ConnectionId {
        let slot = self.vacant.pop().unwrap_or_else(|| {
            self.sockets.push(None);
            self.generations.push(0);
            u32::try_from(self.sockets.len() - 1).expect("fewer connections than 2^32")
        });
        let mut id = ConnectionId { slot, generation: 0 };
        let generation = &mut self.generations[id.as_usize()];
        *generation = generation.wrapping_add(1);
        id.generation = *generation;
        self.sockets[id.as_usize()] = Some(Socket::new(fd, id, transport));
        id
    }

    /// What has come, or the next that comes, is to be received.
    fn await_content(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        if socket.closing {
            return;
        }
        socket.wanted = true;
        if socket.ready {
            self.put_off(id);
        } else if socket.watch.is_none() {
            socket.watch = Some(self.ring.watch(socket.fd.as_fd(), name(id)));
        }
    }

    /// It has its turn in the next turn of the loop.
    fn put_off(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        if !std::mem::replace(&mut socket.again, true) {
            self.again.push_back(id);
        }
    }

    /// It has the turn for which it was put off.
    fn go_on(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.again = false;
        if std::mem::take(&mut socket.taken) {
            self.event(Event::Sent { connection: id });
        } else {
            self.take_in_if_wanted(id);
        }
    }

    /// The worker wants content.
    fn receive(&mut self, id: ConnectionId) {
        let Some(socket) = self.socket(id) else { return };
        if !socket.early.is_empty() {
            self.follow.push_back(Follow::Early(id));
        } else if socket.peer_closed {
            self.follow.push_back(Follow::Ended(id));
        } else {
            self.await_content(id);
        }
    }

    fn readable(&mut self, id: ConnectionId, ended: bool, more: bool) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.ready = true;
        socket.ended |= ended;
        if !more {
            socket.watch = None;
        }
        if socket.closing {
            self.forget_if_idle(id);
        } else {
            self.take_in_if_wanted(id);
        }
    }

    fn take_in_if_wanted(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        if socket.closing || !std::mem::replace(&mut socket.wanted, false) {
            return;
        }
        match &socket.transport {
            Transport::Plain | Transport::Secure(_) => self.take_in(id),
            Transport::Handshake(Some(handshake)) if handshake.has_answered() => self.take_in(id),
            Transport::Hello(_) | Transport::Handshake(_) => self.hellos.push_back(id),
        }
    }

    /// Takes what the socket has.
    fn take_in(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.busy = true;
        let len = match socket.receive(&mut self.incoming) {
            Incoming::Bytes(len) => len,
            Incoming::Nothing => return self.await_content(id),
            Incoming::End => return self.event(Event::Ended { connection: id }),
        };
        match &mut socket.transport {
            Transport::Plain => {
                let incoming = std::mem::take(&mut self.incoming);
                self.event(Event::Received { connection: id, bytes: &incoming[..len] });
                self.incoming = incoming;
            }
            Transport::Hello(_) | Transport::Handshake(_) => self.handshake(id, len),
            Transport::Secure(_) => self.open_records(id, len),
        }
    }

    /// Opens the whole records among what was received and hands their content on.
    fn open_records(&mut self, id: ConnectionId, len: usize) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        let Transport::Secure(session) = &mut socket.transport else { return };
        self.plain.clear();
        let plain = &mut self.plain;
        let mut deliver = |bytes: &[u8]| plain.extend_from_slice(bytes);
        let opened = if socket.rest.is_empty() {
            let opened = session.open(&mut self.incoming[..len], &mut deliver);
            let consumed = opened.as_ref().map_or(len, |opened| opened.consumed);
            socket.rest.extend_from_slice(&self.incoming[consumed..len]);
            opened
        } else {
            socket.rest.extend_from_slice(&self.incoming[..len]);
            let opened = session.open(&mut socket.rest, &mut deliver);
            let consumed = opened.as_ref().map_or(0, |opened| opened.consumed);
            socket.rest.drain(..consumed);
            if socket.rest.is_empty() {
                socket.rest = Vec::new(); // Most connections never have a rest again.
            }
            opened
        };
        match opened {
            Err(error) => {
                tracing::debug!(%error, "session failed");
                socket.failed = true;
                let sending = socket.sending.is_some();
                if let (Transport::Secure(session), false) = (&mut socket.transport, sending) {
                    let len = session.alert(&error, &mut self.scratch);
                    let _ = socket.send_now(&self.scratch[..len], false);
                }
                self.event(Event::Ended { connection: id });
            }
            Ok(opened) => {
                socket.peer_closed = opened.closed;
                socket.failed = opened.failed;
                if len == 0 {
                    // Behind a handshake: the worker has not asked yet.
                    socket.early.extend_from_slice(&self.plain);
                } else if !self.plain.is_empty() {
                    let plain = std::mem::take(&mut self.plain);
                    self.event(Event::Received { connection: id, bytes: &plain });
                    self.plain = plain;
                } else if opened.closed {
                    self.event(Event::Ended { connection: id });
                } else {
                    self.await_content(id);
                }
            }
        }
    }

    /// Seals and sends; what the kernel does not take at once goes to the ring.
    fn send(&mut self, id: ConnectionId, head: bool, body: &Body, then: Then) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.busy = true;
        socket.last = then == Then::Nothing;
        let head: &[u8] = if head { self.worker.head(id) } else { &[] };
        assert!(head.len() <= HEAD_LEN_MAX, "response heads are bounded where they are made");
        let body: &[u8] = match body {
            Body::Empty => &[],
            Body::Memory { bytes, start, end } => &bytes[*start..*end],
            Body::Buffer { buffer, start, end } => &self.ring.buffer(*buffer)[*start..*end],
        };
        let len = match &mut socket.transport {
            Transport::Secure(session) => match session.seal([head, body], &mut self.scratch) {
                Ok(len) => len,
                Err(_) => return self.follow.push_back(Follow::Ended(id)),
            },
            Transport::Plain => {
                self.scratch[..head.len()].copy_from_slice(head);
                self.scratch[head.len()..head.len() + body.len()].copy_from_slice(body);
                head.len() + body.len()
            }
            Transport::Hello(_) | Transport::Handshake(_) => {
                unreachable!("nobody asks before the handshake is over")
            }
        };
        if self.ablation.sending != Sending::AtOnce {
            return self.send_by_ring(id, len);
        }
        match socket.send_now(&self.scratch[..len], then == Then::Soon) {
            Ok(taken) if taken == len && socket.is_waited_for() => self.await_room(id),
            Ok(taken) if taken == len => self.follow.push_back(Follow::Sent(id)),
            Ok(taken) => {
                let mut rest = self.spare.pop().unwrap_or_default();
                rest.clear();
                rest.extend_from_slice(&self.scratch[taken..len]);
                socket.waits(self.clock.now().instant);
                let all = 0..rest.len();
                self.ring.send(socket.fd.as_fd(), rest, all, name(id));
                self.ask_tcp(id);
            }
            Err(_) => self.follow.push_back(Follow::Ended(id)),
        }
    }

    /// For measurements: the scratch goes to the ring as it is, and another takes its place.
    fn send_by_ring(&mut self, id: ConnectionId, len: usize) {
        let mut fresh = self.spare.pop().unwrap_or_default();
        fresh.resize(self.scratch.len(), 0);
        let sealed = std::mem::replace(&mut self.scratch, fresh);
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.waits(self.clock.now().instant);
        // Not cut to its length: it would have to be filled with zeros before the next use.
        self.ring.send(socket.fd.as_fd(), sealed, 0..len, name(id));
        if self.ablation.sending == Sending::Ring {
            // What fails here fails again at the end of the turn, where it is handled.
            let _ = self.ring.turn(Wait::No, 0, &mut Vec::new());
        }
    }

    /// A guard, or the kernel's own pacing. A socket that cannot have it goes without.
    fn limit(&mut self, id: ConnectionId, rate: Option<BitsPerSecond>) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        if let Err(error) = uring::limit_rate(socket.fd.as_fd(), rate) {
            tracing::debug!(%error, "the kernel does not pace a connection");
        }
    }

    /// A slow client's next chunk is sealed when there is room for it: until then it would have to
    /// be copied, and wait in memory that gets cold.
    fn await_room(&mut self, id: ConnectionId) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.waits(self.clock.now().instant);
        self.ring.await_room(socket.fd.as_fd(), name(id));
    }

    fn sent(&mut self, id: ConnectionId, data: Vec<u8>, result: Result<(), Errno>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(data);
        }
        let now = self.clock.now().instant;
        let Some(socket) = self.socket(id) else { return };
        socket.has_waited(now);
        if socket.is_waited_for() && !socket.closing && result.is_ok() {
            self.ask_tcp(id);
            self.await_room(id);
        } else {
            self.delivered(id, result);
        }
    }

    /// What was sent is the kernel's, and there is room for more where that is waited for.
    fn delivered(&mut self, id: ConnectionId, result: Result<(), Errno>) {
        let now = self.clock.now().instant;
        let Some(socket) = self.socket(id) else { return };
        socket.has_waited(now);
        socket.sending = None;
        if socket.closing {
            self.forget_if_idle(id);
            return;
        }
        self.ask_tcp(id);
        match result {
            Ok(()) => self.event(Event::Sent { connection: id }),
            Err(_) => self.event(Event::Ended { connection: id }),
        }
    }

    /// The client did not take all at once: now and then, how TCP sees it.
    fn ask_tcp(&mut self, id: ConnectionId) {
        let now = self.clock.now().instant;
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        if socket.tcp_at.is_some_and(|at| now.since(at) < TCP_EVERY) {
            return;
        }
        socket.tcp_at = Some(now);
        let Some(sample) = uring::tcp_info(socket.fd.as_fd()) else { return };
        if let Some(least) = self.unsent_max {
            socket.bound(least, &sample);
        }
        self.follow.push_back(Follow::Tcp(id, sample));
    }

    fn open(&mut self, slot: FileSlot, drive: DriveIndex, file: &str) {
        let directory = self.drives.get(drive.as_usize()).cloned().flatten();
        let name = CString::new(file).expect("the store's names have no zero byte");
        let Some(directory) = directory else {
            // It is set aside, or was not there when this process started.
            self.follow.push_back(Follow::NotOpened(slot));
            return;
        };
        let blocks = self.blocking.contains(drive);
        self.ring.open(directory, name, (slot, blocks), Token(u64::from(slot.0)));
    }

    fn close(&mut self, id: ConnectionId, ending: Ending) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        socket.shut(ending, &mut self.scratch);
        if let Some(watch) = socket.watch {
            self.ring.unwatch(watch);
        }
        self.forget_if_idle(id);
    }

    /// Frees the place of a socket that is closing and of which the kernel holds nothing.
    fn forget_if_idle(&mut self, id: ConnectionId) {
        let entry = &mut self.sockets[id.as_usize()];
        if entry.take_if(|socket| socket.closing && socket.is_idle()).is_some() {
            self.vacant.push(id.slot);
        }
    }
}

fn socket_of(sockets: &mut [Option<Socket>], id: ConnectionId) -> Option<&mut Socket> {
    sockets.get_mut(id.as_usize())?.as_mut().filter(|socket| socket.id == id)
}

fn name(id: ConnectionId) -> Token {
    Token(u64::from(id.slot) << 32 | u64::from(id.generation))
}

fn connection(token: Token) -> ConnectionId {
    let slot = u32::try_from(token.0 >> 32).expect("the upper half");
    let generation = u32::try_from(token.0 & u64::from(u32::MAX)).expect("the lower half");
    ConnectionId { slot, generation }
}

fn fault(error: Errno) -> Fault {
    Fault { errno: error.0 }
}

#[cfg(test)]
mod tests;

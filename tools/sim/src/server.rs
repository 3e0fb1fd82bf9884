//! A worker's body: the ring, the sockets and the buffers that `pure/worker` speaks of. The
//! counterpart of `event_loop.rs` in `shell/appliance`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};

use iosched::drive::SATA_TARGET;
use iosched::tally::Slice;
use model::drives::{DriveIndex, DriveSet};
use model::extent::Extent;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::{DriveId, Generation, ObjectId};
use model::limits::DRIVES_MAX;
use model::machine::Machine as _;
use model::object::{BlockHash, block_len};
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos};
use model::update::Update;
use upkeep::{Sample, verify};
use worker::{Action, Body, Config, Ending, Event, Fault, IncidentBounds, PaceConfig, Worker};

use crate::canary::Canary;
use crate::drive::{Drive, ENODEV};
use crate::files::FileId;
use crate::opened::Opened;
use crate::pipe::{Packet, Pipe};
use crate::stage::{Stage, Troupe};
use crate::world::{Machine, Party, World};

/// The process that a worker is part of.
pub(crate) trait Owner {
    /// A drive whose files workers may open.
    fn given(&self, index: DriveIndex) -> Option<Rc<Opened>>;
    /// Since when a drive is set aside.
    fn aside(&self, index: DriveIndex) -> Option<Instant>;
    /// A viewer was sent a block.
    fn sample(&self, sample: Sample);
    /// A worker could not read an object.
    fn read_failed(&self, object: ObjectId, extent: Extent, errno: Option<upkeep::Errno>);
}

/// One worker of a process.
pub(crate) struct Server {
    process: Weak<dyn Owner>,
    world: Rc<World>,
    machine: Rc<Machine>,
    troupe: Troupe,
    me: Weak<Self>,
    stage: Stage,
    config: Config,
    state: RefCell<State>,
}

struct State {
    worker: Worker,
    buffers: Vec<Vec<u8>>,
    slots: BTreeMap<FileSlot, (Rc<Drive>, FileId)>,
    /// What drives owe: reads by buffer, opens by slot.
    reading: BTreeMap<BufferId, DriveId>,
    opening: BTreeMap<FileSlot, DriveIndex>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// How often each place was used.
    generations: Vec<u32>,
    armed: Option<Instant>,
    /// Events that came while one was handled.
    waiting: VecDeque<Update>,
}

struct Connection {
    pipe: Rc<Pipe>,
    inbox: VecDeque<Vec<u8>>,
    is_listening: bool,
    is_sending: bool,
    free_at: Instant,
    ended: bool,
}

/// Opens in flight per drive.
const DRIVE_OPENS: usize = 2;

/// Bounds so small that all of them are met.
fn config(stage: &Stage, drives: usize) -> Config {
    let hot_blocks = u16::try_from(stage.below(4)).unwrap_or(0);
    Config {
        connections_max: 6,
        handshakes_max: 3,
        transfers_max: 4,
        buffers: 4,
        hot_blocks,
        file_slots: 8,
        drives,
        drive_depth: 2,
        drive_opens: DRIVE_OPENS,
        read_targets: [SATA_TARGET; DRIVES_MAX],
        hang_after: Nanos::millis(500),
        reset_after: Nanos::seconds(2),
        head_len_max: 2048,
        request_timeout: Nanos::seconds(10),
        idle_timeout: Nanos::seconds(20),
        token_leeway: Nanos::seconds(60),
        progress_timeout: Nanos::seconds(15),
        verify_every: 4,
        log_requests: true,
        views_max: 0,
        pacing: PaceConfig::OFF,
        incidents: Some(IncidentBounds {
            drive_wait: Nanos::seconds(2),
            client_rate: BitsPerSecond(1_000_000),
        }),
    }
}

impl Server {
    /// A worker with nothing to serve yet.
    pub(crate) fn new(
        process: Weak<dyn Owner>,
        (world, machine, troupe): (Rc<World>, Rc<Machine>, Troupe),
        drives: usize,
    ) -> Rc<Self> {
        let stage = world.stage.clone();
        let config = config(&stage, drives);
        let now = world.now(&machine);
        let count = usize::from(config.buffer_count());
        let state = State {
            worker: Worker::new(config, now),
            buffers: vec![vec![0; Config::BUFFER_LEN.as_usize()]; count],
            slots: BTreeMap::new(),
            reading: BTreeMap::new(),
            opening: BTreeMap::new(),
            connections: BTreeMap::new(),
            generations: Vec::new(),
            armed: None,
            waiting: VecDeque::new(),
        };
        let state = state.into();
        Rc::new_cyclic(|me| Self {
            process,
            world,
            machine,
            troupe,
            me: me.clone(),
            stage,
            config,
            state,
        })
    }

    /// What there is to serve has changed.
    pub(crate) fn update(&self, update: Update) {
        self.state.borrow_mut().waiting.push_back(update);
        let me = self.me.clone();
        if !self.is_alive() {
            return;
        }
        // By way of a mailbox, as there: it comes soon, and in order.
        self.stage.at(self.troupe, self.stage.now() + Nanos(1000), move || {
            if let Some(server) = me.upgrade() {
                let update = server.state.borrow_mut().waiting.pop_front();
                if let Some(update) = update {
                    server.event(Event::Update(update));
                }
            }
        });
    }

    /// Somebody connects. Its handshake takes a round trip.
    pub(crate) fn connect(&self, pipe: &Rc<Pipe>) -> ConnectionId {
        let connection = {
            let mut state = self.state.borrow_mut();
            let used: BTreeSet<u32> = state.connections.keys().map(|id| id.slot).collect();
            let slot = (0..).find(|slot| !used.contains(slot)).expect("there are enough numbers");
            let place = usize::try_from(slot).unwrap_or(usize::MAX);
            if state.generations.len() <= place {
                state.generations.resize(place + 1, 0);
            }
            state.generations[place] += 1;
            let connection = ConnectionId { slot, generation: state.generations[place] };
            let new = Connection {
                pipe: Rc::clone(pipe),
                inbox: VecDeque::new(),
                is_listening: false,
                is_sending: false,
                free_at: self.stage.now(),
                ended: false,
            };
            state.connections.insert(connection, new);
            connection
        };
        self.event(Event::Accepted { connection });
        self.later(Nanos::millis(3), move |server| {
            if server.state.borrow().connections.contains_key(&connection) {
                server.event(Event::Established { connection });
            }
        });
        connection
    }

    pub(crate) fn arrive(&self, connection: ConnectionId, bytes: Vec<u8>) {
        if let Some(to) = self.state.borrow_mut().connections.get_mut(&connection) {
            to.inbox.push_back(bytes);
        }
        self.hear(connection);
    }

    /// A viewer has gone.
    pub(crate) fn leave(&self, connection: ConnectionId) {
        let known = match self.state.borrow_mut().connections.get_mut(&connection) {
            Some(of) => !std::mem::replace(&mut of.ended, true),
            None => false,
        };
        if known && !self.world.has(Canary::LeakedConnections) {
            self.event(Event::Ended { connection });
        }
    }

    fn hear(&self, connection: ConnectionId) {
        let bytes = {
            let mut state = self.state.borrow_mut();
            let Some(of) = state.connections.get_mut(&connection) else { return };
            if !of.is_listening {
                return;
            }
            let Some(bytes) = of.inbox.pop_front() else { return };
            of.is_listening = false;
            bytes
        };
        self.event(Event::Received { connection, bytes: &bytes });
    }

    fn is_alive(&self) -> bool {
        0 < self.process.strong_count()
    }

    /// Something happens a little later, if the process lives.
    fn later(&self, span: Nanos, call: impl FnOnce(&Self) + 'static) {
        if !self.is_alive() {
            return;
        }
        let me = self.me.clone();
        self.stage.at(self.troupe, self.stage.now() + span, move || {
            if let Some(server) = me.upgrade() {
                call(&server);
            }
        });
    }

    /// One event, and all that follows from it at once.
    fn event(&self, event: Event<'_>) {
        let Some(process) = self.process.upgrade() else { return };
        let now = self.world.now(&self.machine);
        self.state.borrow_mut().worker.handle(now, event);
        loop {
            let action = self.state.borrow_mut().worker.poll();
            let Some(action) = action else { break };
            self.carry_out(&process, action);
        }
        self.check();
        let Some(deadline) = self.state.borrow().worker.deadline() else { return };
        let is_later = self.state.borrow().armed.is_some_and(|armed| armed <= deadline);
        if !is_later {
            self.state.borrow_mut().armed = Some(deadline);
            self.later(deadline.since(now.instant), |server| {
                server.state.borrow_mut().armed = None;
                server.event(Event::Tick);
            });
        }
    }

    fn carry_out(&self, process: &Rc<dyn Owner>, action: Action) {
        match action {
            Action::Receive { connection } => {
                if let Some(of) = self.state.borrow_mut().connections.get_mut(&connection) {
                    of.is_listening = true;
                }
                self.later(Nanos(1000), move |server| server.hear(connection));
            }
            Action::Send { connection, head, body, .. } => self.send(connection, head, &body),
            Action::Open { slot, drive, file } => self.open(process, slot, drive, &file.0),
            Action::CloseFile { slot } => {
                let known = self.state.borrow_mut().slots.remove(&slot).is_some();
                self.stage.must(known, || "a file is closed that was not open".to_owned());
            }
            Action::Read { buffer, slot, offset, len } => self.read(buffer, slot, (offset, len)),
            Action::Close { connection, ending } => self.close(connection, ending),
            Action::Verify { drive, object, object_len, block, buffer } => {
                let hash = buffer.map(|buffer| self.hash(buffer, block, object_len));
                process.sample(Sample { drive, object, object_len, block, hash });
            }
            Action::Report { object, extent, fault } => {
                let errno = (fault.errno != 0).then_some(upkeep::Errno(fault.errno));
                process.read_failed(object, extent, errno);
            }
            Action::Limit { .. } | Action::Incident(_) => {}
            Action::LookAtPath { connection } => self.later(Nanos(1000), move |server| {
                let sample = TcpSample::default();
                server.event(Event::PathSeen { connection, sample });
            }),
        }
    }

    fn hash(&self, buffer: BufferId, block: u64, object_len: Bytes) -> BlockHash {
        let state = self.state.borrow();
        let len = block_len(object_len, block).as_usize();
        let bytes = &state.buffers[buffer.as_usize()][..len];
        verify::hash(block, bytes, object_len)
    }

    /// Sends at the viewer's pace, and says when the kernel has taken it.
    fn send(&self, connection: ConnectionId, head: bool, body: &Body) {
        let mut bytes = Vec::new();
        let (at, pipe) = {
            let mut state = self.state.borrow_mut();
            if head {
                bytes.extend_from_slice(state.worker.head(connection));
            }
            match body {
                Body::Empty => {}
                Body::Memory { bytes: all, start, end } => {
                    bytes.extend_from_slice(&all[*start..*end])
                }
                Body::Buffer { buffer, start, end } => {
                    let is_read = state.reading.contains_key(buffer);
                    self.stage.must(!is_read, || "a buffer is sent while it is read".to_owned());
                    bytes.extend_from_slice(&state.buffers[buffer.as_usize()][*start..*end]);
                }
            }
            let Some(of) = state.connections.get_mut(&connection) else {
                return self.stage.fail("something is sent to a closed connection".to_owned());
            };
            self.stage.must(!of.is_sending, || "two sends at once on a connection".to_owned());
            of.is_sending = true;
            let from = of.free_at.max(self.stage.now());
            of.free_at = from + of.pipe.span(Bytes::of(bytes.len()));
            (of.free_at, Rc::clone(&of.pipe))
        };
        self.taken(connection, at.since(self.stage.now()), (pipe, bytes));
    }

    /// What was sent is taken after so long; while nothing passes, later.
    fn taken(&self, connection: ConnectionId, span: Nanos, (pipe, bytes): (Rc<Pipe>, Vec<u8>)) {
        self.later(span, move |server| {
            let is_open = match server.state.borrow().connections.get(&connection) {
                Some(of) => !of.ended,
                None => false,
            };
            if !is_open {
                return;
            }
            let me = Party::Machine(server.machine.index);
            if pipe.is_stalled() || !server.world.is_connected(me, pipe.party) {
                return server.taken(connection, Nanos::millis(200), (pipe, bytes));
            }
            pipe.deliver(Packet::Bytes(bytes));
            if let Some(of) = server.state.borrow_mut().connections.get_mut(&connection) {
                of.is_sending = false;
            }
            server.event(Event::Sent { connection });
        });
    }

    fn open(&self, process: &Rc<dyn Owner>, slot: FileSlot, drive: DriveIndex, name: &str) {
        {
            let mut state = self.state.borrow_mut();
            state.slots.remove(&slot);
            let first = state.opening.insert(slot, drive).is_none();
            self.stage.must(first, || "a slot is opened twice at once".to_owned());
        }
        let is_object =
            name.starts_with(store::layout::OBJECTS) || name.starts_with(store::unit::UNITS);
        self.stage.must(is_object, || format!("{name} is served, which is not published"));
        let is_used =
            process.aside(drive).is_some_and(|at| Nanos::millis(1) < self.stage.now().since(at));
        self.stage.must(!is_used, || format!("{name} is opened on a drive that is set aside"));
        let (me, name) = (self.me.clone(), name.to_owned());
        let drive = process.given(drive);
        self.stage.spawn(self.troupe, async move {
            let found = match &drive {
                Some(drive) => drive.drive.open(&name).await,
                None => Err(ENODEV),
            };
            let Some(server) = me.upgrade() else { return };
            server.state.borrow_mut().opening.remove(&slot);
            let result = match (found, drive) {
                (Ok(file), Some(drive)) => {
                    let open = (Rc::clone(&drive.drive), file);
                    server.state.borrow_mut().slots.insert(slot, open);
                    Ok(())
                }
                (Err(errno), _) => Err(Fault { errno }),
                (Ok(_), None) => Err(Fault { errno: ENODEV }),
            };
            server.event(Event::Opened { slot, result });
        });
    }

    fn read(&self, buffer: BufferId, slot: FileSlot, (offset, len): (Bytes, Bytes)) {
        let (drive, file) = {
            let mut state = self.state.borrow_mut();
            // The kernel may write into it from now on, in any order.
            let bytes = &mut state.buffers[buffer.as_usize()];
            bytes.iter_mut().step_by(4096).for_each(|byte| *byte ^= 0x5a);
            let Some(open) = state.slots.get(&slot) else {
                return self.stage.fail("a file is read that is not open".to_owned());
            };
            let open = open.clone();
            let first = state.reading.insert(buffer, open.0.id).is_none();
            self.stage.must(first, || "a buffer has two reads".to_owned());
            open
        };
        let early = self.world.has(Canary::EarlyRead) && self.stage.one_in(8);
        let me = self.me.clone();
        self.stage.spawn(self.troupe, async move {
            let result = drive.read(file, offset, len, |bytes| {
                let Some(server) = me.upgrade() else { return Bytes::ZERO };
                let mut state = server.state.borrow_mut();
                if !early {
                    state.buffers[buffer.as_usize()][..bytes.len()].copy_from_slice(bytes);
                }
                Bytes::of(bytes.len())
            });
            let result = result.await.map_err(|errno| Fault { errno });
            let Some(server) = me.upgrade() else { return };
            server.state.borrow_mut().reading.remove(&buffer);
            server.event(Event::Read { buffer, result });
        });
    }

    fn close(&self, connection: ConnectionId, ending: Ending) {
        let of = self.state.borrow_mut().connections.remove(&connection);
        let Some(of) = of else {
            return self.stage.fail("a connection is closed twice".to_owned());
        };
        of.pipe.deliver(match ending {
            Ending::Graceful => Packet::End,
            Ending::Abort => Packet::Reset,
        });
    }

    /// All viewers see that the process is gone.
    pub(crate) fn reset_all(&self) {
        for of in self.state.borrow().connections.values() {
            of.pipe.deliver(Packet::Reset);
        }
    }

    /// No queue over its bound.
    fn check(&self) {
        let mut state = self.state.borrow_mut();
        let config = &self.config;
        let open = usize::try_from(state.worker.counters().open).unwrap_or(usize::MAX);
        let must = |is: bool, what: &str| {
            self.stage.must(is, || format!("{what} over its bound"));
        };
        must(open <= config.connections_max, "connections");
        must(state.reading.len() + state.opening.len() <= config.owed_max(), "what drives owe");
        let depth = config.drive_depth.min((usize::from(config.buffers) / config.drives).max(1));
        for of in state.reading.values() {
            let count = state.reading.values().filter(|drive| *drive == of).count();
            must(count <= depth, "reads of one drive");
        }
        for of in state.opening.values() {
            let count = state.opening.values().filter(|drive| *drive == of).count();
            must(count <= DRIVE_OPENS, "opens of one drive");
        }
        must(state.slots.len() <= usize::from(config.file_slots), "open files");
        must(state.connections.len() == open, "connections that the worker forgot");
        if 64 * 1024 < state.worker.log_len() {
            state.worker.take_log(&mut Vec::new());
        }
    }

    /// The manifest that its worker answers by.
    pub(crate) fn served(&self) -> Generation {
        self.state.borrow().worker.served()
    }

    /// What its reads of a drive met.
    pub(crate) fn slice(&self, drive: DriveIndex) -> Slice {
        self.state.borrow_mut().worker.slice(drive)
    }

    /// Drives that its worker found to hang.
    pub(crate) fn hung(&self) -> DriveSet {
        self.state.borrow().worker.hung()
    }

    /// How much is open: connections, and what is asked of drives.
    pub(crate) fn open_count(&self) -> (usize, usize) {
        let state = self.state.borrow();
        (state.connections.len(), state.reading.len() + state.opening.len())
    }

    /// How long the worker's state is, written down: grows if something is kept for ever. None
    /// before its first connection: what it keeps of the last ones is empty until then.
    pub(crate) fn state_len(&self) -> Option<usize> {
        let mut state = self.state.borrow_mut();
        state.worker.take_log(&mut Vec::new());
        (!state.generations.is_empty()).then(|| format!("{:?}", state.worker).len())
    }
}

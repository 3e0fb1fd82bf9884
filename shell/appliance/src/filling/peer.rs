//! The other side of sibling fill: gives published objects to appliances of the same fleet.
//!
//! ```text
//! listener ──> TLS 1.3, certificate of our authority ──> an appliance's? not revoked?
//!   GET /v1/objects/{object}, Range ──> index ──> drive, O_DIRECT ──> paced ──> sealed, sent
//! ```
//!
//! A thread per connection, with blocking reads and writes: few siblings come, none is waited for,
//! and viewers' workers have no part in it (the decision of 2026-11-22 on sibling fill says until
//! when). When all places are taken, a newcomer gets that of who has not shown a certificate yet,
//! or else of the sibling that has asked nothing for longest; while all have requests under way it
//! is closed as it arrives, and who came has other sources. No address has more than half of the
//! places before a handshake, and no member after it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use crowd::{Arrival, Crowd, PlaceId, Standing};
use http1::range::{Selected, select};
use http1::response::{Representation, write_document, write_object, write_plain};
use http1::{Head, Method, Parsed, RequestError, Status};
use identity::member::{self, Seen};
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::DIRECT_ALIGN;
use model::manifest::Manifest;
use model::object::BLOCK_LEN;
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use serde::{Deserialize, Serialize};
use takeover::Known;
use upkeep::keeper::read_failed;
use upkeep::{Files as _, Ledger as _, at_once};
use wire::v1::identity::MemberKind;

use crate::clock;
use crate::membership::member::Own;
use crate::membership::state_file::StateFile;
use crate::serving::clients::Clients;
use crate::storage::drives::{Drive, DriveError};
use crate::storage::ledger::Pace;
use crate::storage::pages::Pages;
use crate::storage::shared::Shared;
use settings::Text;

/// How to let siblings fetch.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct PeerConfig {
    /// Empty for not at all.
    pub listen: Vec<SocketAddr>,
    /// Where siblings reach it, `host:port`; none for the first of `listen`.
    pub address: Option<String>,
    /// Most bytes per second to all siblings together.
    pub rate_max: Option<Text<BitsPerSecond>>,
    /// Most connections; each costs a thread and a block of memory.
    pub connections_max: usize,
}

impl Default for PeerConfig {
    fn default() -> Self {
        Self { listen: Vec::new(), address: None, rate_max: None, connections_max: 32 }
    }
}

/// How often a waiting thread looks whether all must stop.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Longest time from connection to a finished handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the next request, to the end of its head; a sibling that fills keeps its
/// connection.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Longest time in which a piece of an answer, of `BLOCK_LEN` at most, is taken.
const PIECE_MAX: Duration = Duration::from_secs(30);
/// Longest request head.
const HEAD_LEN_MAX: usize = 8192;
/// What the limiter lets through at once.
const BURST: Bytes = Bytes::mib(1);

/// Listens; before any thread is started, so that a mistake stops the start, and before the process
/// gives away the right to bind.
pub fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = TcpListener::bind(at)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Accepts until all must stop, and waits for its connections then.
pub(crate) fn run(
    shared: &Shared,
    own: &Own,
    state_file: &StateFile,
    sockets: &[TcpListener],
    config: &PeerConfig,
    clients: Option<&Clients>,
) {
    let pace = Pace::new(config.rate_max.map(|rate| rate.0), |_| BURST);
    let places = config.connections_max.max(1);
    let door = Mutex::new(Crowd::new(places, places.div_ceil(2)));
    let threads_max = 2 * places;
    let room = Room { shared, state_file, pace: &pace, door: &door, threads_max, clients };
    std::thread::scope(|scope| {
        let mut tls: Option<(u64, Arc<ServerConfig>)> = None;
        while !shared.ledger.is_stopping() {
            for socket in ready(sockets) {
                let Some(tcp) = accept(socket) else { continue };
                let held = own.held();
                if tls.as_ref().is_none_or(|(epoch, _)| *epoch != held.epoch) {
                    match held.credentials.server_tls(false) {
                        Ok(config) => tls = Some((held.epoch, Arc::new(config))),
                        Err(error) => shared.ledger.note("serve", format!("for siblings: {error}")),
                    }
                }
                if let Some((_, config)) = &tls {
                    room.admit(scope, tcp, Arc::clone(config));
                }
            }
        }
    });
}

fn ready(sockets: &[TcpListener]) -> impl Iterator<Item = &TcpListener> {
    let mut polled: Vec<PollFd<'_>> =
        sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
    let wait = Timespec::try_from(LOOK_EVERY).expect("a fraction of a second");
    if poll(&mut polled, Some(&wait)).is_err() {
        // Interrupted by a signal: looked at again at once.
        polled.iter_mut().for_each(PollFd::clear_revents);
    }
    let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
    sockets.iter().zip(ready).filter_map(|(socket, ready)| ready.then_some(socket))
}

fn accept(socket: &TcpListener) -> Option<TcpStream> {
    match socket.accept() {
        Ok((tcp, _)) => Some(tcp),
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                tracing::debug!(%error, "a sibling was not accepted");
                // For want of descriptors the next would fail at once, and the next.
                std::thread::sleep(LOOK_EVERY);
            }
            None
        }
    }
}

/// Who has a share of the places.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Address(IpAddr),
    /// By its name, once it has shown a certificate.
    Member(String),
}

/// The places, and what closes the connection that has one.
type Door = Mutex<Crowd<Holder, Instant, TcpStream>>;

#[derive(Clone, Copy)]
struct Room<'a> {
    shared: &'a Shared,
    state_file: &'a StateFile,
    pace: &'a Pace,
    door: &'a Door,
    /// Those of connections that gave their place away end a moment later.
    threads_max: usize,
    /// Its own viewers, for siblings of its site.
    clients: Option<&'a Clients>,
}

impl<'a> Room<'a> {
    /// Why this member gets nothing here, if so.
    fn refusal(&self, seen: &Seen) -> Option<&'static str> {
        if seen.member.kind != MemberKind::Appliance {
            Some("it is no appliance")
        } else if self.is_revoked(&seen.serial) {
            Some("its certificate is revoked")
        } else if seen.not_after <= clock::wall() {
            Some("its certificate has ended")
        } else {
            None
        }
    }

    /// True of a certificate that the manifest in force says to refuse, or the trust document where
    /// there is no manifest.
    fn is_revoked(&self, serial: &str) -> bool {
        let is_in = |manifest: &Arc<Manifest>| manifest.trust.revoked.contains(serial);
        let of_manifest = self.shared.ledger.ask(|holdings| holdings.manifest().map(is_in));
        let is_kept =
            || self.state_file.trust().is_some_and(|of| of.trust.revoked.contains(serial));
        of_manifest.unwrap_or_else(is_kept)
    }

    fn admit<'s>(self, scope: &'s Scope<'s, 'a>, tcp: TcpStream, config: Arc<ServerConfig>)
    where
        'a: 's,
    {
        if let Err(refused) = self.place(scope, tcp, config) {
            self.shared.counters.peer.refused.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(why = refused, "a sibling was not let in");
        }
    }

    fn place<'s>(
        self,
        scope: &'s Scope<'s, 'a>,
        tcp: TcpStream,
        config: Arc<ServerConfig>,
    ) -> Result<(), &'static str>
    where
        'a: 's,
    {
        let open = &self.shared.counters.peer.connections;
        // Only this thread adds, and those that were sent away wait for nothing but bytes.
        let began = Instant::now();
        while usize::try_from(open.load(Ordering::SeqCst))
            .is_ok_and(|open| self.threads_max <= open)
        {
            if LOOK_EVERY < began.elapsed() {
                return Err("connections that gave their place away have not ended yet");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let gone = "it has gone again";
        let address = Holder::Address(tcp.peer_addr().map_err(|_| gone)?.ip().to_canonical());
        let handle = tcp.try_clone().map_err(|_| "no descriptor is free")?;
        let (now, standing) = standing(false);
        let place = match self.door().arrive(now, Some(address), standing, handle) {
            Arrival::In(place, other) => {
                send_away(other);
                place
            }
            Arrival::Crowded => return Err("its address has its share of places"),
            Arrival::Full => return Err("all places have requests under way"),
        };
        open.fetch_add(1, Ordering::SeqCst);
        let serve = move || {
            if let Err(error) = Connection::serve(self, place, tcp, config) {
                tracing::debug!(%error, "a sibling's connection ended");
            }
            self.door().leave(place);
            self.shared.counters.peer.connections.fetch_sub(1, Ordering::SeqCst);
        };
        if Builder::new().name("peer".to_owned()).spawn_scoped(scope, serve).is_err() {
            self.door().leave(place);
            open.fetch_sub(1, Ordering::SeqCst);
            return Err("no thread can be started");
        }
        Ok(())
    }

    /// Held for as long as [`Crowd`] says.
    fn door(&self) -> MutexGuard<'a, Crowd<Holder, Instant, TcpStream>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of one who asks nothing from now on.
fn standing(is_known: bool) -> (Instant, Standing<Instant>) {
    let now = Instant::now();
    (now, Standing { is_known, unused_since: now })
}

/// Its thread sees that at once.
fn send_away(connection: Option<TcpStream>) {
    if let Some(connection) = connection {
        // Fails where it has gone by itself.
        let _ = connection.shutdown(Shutdown::Both);
    }
}

struct Connection<'a> {
    room: Room<'a>,
    place: PlaceId,
    tls: Tls,
    seen: Seen,
    /// Received, and not yet a whole request.
    input: Vec<u8>,
    block: Pages,
}

/// A request, copied out of the received bytes.
struct Asked {
    method: Method,
    object: Option<ObjectId>,
    /// It asks for clients, and knows of so many.
    clients: Option<Known>,
    range: Option<Vec<u8>>,
    keep_alive: bool,
    head_len: usize,
}

struct Found {
    object: ObjectId,
    extent: Extent,
    drive: Arc<Drive>,
    file: OwnedFd,
}

impl<'a> Connection<'a> {
    fn serve(
        room: Room<'a>,
        place: PlaceId,
        tcp: TcpStream,
        config: Arc<ServerConfig>,
    ) -> io::Result<()> {
        tcp.set_nonblocking(false)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LOOK_EVERY))?;
        tcp.set_write_timeout(Some(LOOK_EVERY))?;
        let connection = ServerConnection::new(config).map_err(io::Error::other)?;
        let mut tls = StreamOwned::new(connection, Bounded { tcp, until: Instant::now() });
        let shaken = handshake(&mut tls, HANDSHAKE_MAX, || room.shared.ledger.is_stopping());
        let admitted = shaken.and_then(|()| who(&tls));
        let seen = match admitted {
            Ok(seen) if room.refusal(&seen).is_none() => seen,
            Ok(seen) => {
                let why = room.refusal(&seen).unwrap_or_default();
                room.shared.counters.peer.refused.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(member = %seen.member, why, "a member was not let in");
                return close(tls);
            }
            Err(error) => {
                room.shared.counters.peer.refused.fetch_add(1, Ordering::Relaxed);
                return Err(error);
            }
        };
        let member = Holder::Member(seen.member.name.clone());
        let Some(other) = room.door().recount(place, Instant::now(), member) else {
            room.shared.counters.peer.refused.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(member = %seen.member, "a member has its share of places in use");
            return close(tls);
        };
        send_away(other);
        let block = Pages::zeroed(BLOCK_LEN);
        let mut connection = Self { room, place, tls, seen, input: Vec::new(), block };
        while connection.answer_next()? {}
        close(connection.tls)
    }

    /// Waits for a request and answers it; false if the connection is to be closed.
    fn answer_next(&mut self) -> io::Result<bool> {
        let (now, standing) = standing(true);
        self.room.door().stands(self.place, Some(standing));
        self.tls.sock.until = now + IDLE_MAX;
        let asked = loop {
            match asked(&self.input) {
                Ok(Some(asked)) => break asked,
                Ok(None) if self.input.len() < HEAD_LEN_MAX => {}
                Ok(None) => return self.refuse(Status::HeaderFieldsTooLarge),
                Err(RequestError::TooLarge) => return self.refuse(Status::HeaderFieldsTooLarge),
                Err(
                    RequestError::Malformed
                    | RequestError::Method
                    | RequestError::Host
                    | RequestError::Body,
                ) => return self.refuse(Status::BadRequest),
            }
            if !self.receive()? {
                return Ok(false);
            }
        };
        self.input.drain(..asked.head_len);
        // A request under way keeps its place.
        self.room.door().stands(self.place, None);
        // A connection may outlive the certificate that it began with.
        if let Some(why) = self.room.refusal(&self.seen) {
            tracing::debug!(member = %self.seen.member, why, "a member is refused from now on");
            return Ok(false);
        }
        self.room.shared.counters.peer.requests.fetch_add(1, Ordering::Relaxed);
        if !matches!(asked.method, Method::Get | Method::Head) {
            return self.say(Status::MethodNotAllowed, asked.keep_alive);
        }
        if let Some(known) = asked.clients {
            return self.tell_clients(&asked, known);
        }
        let Some(found) = asked.object.and_then(|object| find(self.room.shared, object)) else {
            return self.say(Status::NotFound, asked.keep_alive);
        };
        self.give(&asked, &found)
    }

    /// Some of this appliance's clients, to a member of its site.
    fn tell_clients(&mut self, asked: &Asked, known: Known) -> io::Result<bool> {
        let name = &self.seen.member.name;
        let is_of_site = |manifest: &Arc<Manifest>| {
            manifest.site.iter().any(|member| member.id.as_str() == name)
        };
        let is_of_site = self.room.shared.ledger.ask(|all| all.manifest().is_some_and(is_of_site));
        let Some(clients) = self.room.clients.filter(|_| is_of_site) else {
            return self.say(Status::NotFound, asked.keep_alive);
        };
        let body = serde_json::to_vec(&clients.since(known)).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        let head = Head { status: Status::Ok, keep_alive: asked.keep_alive };
        write_document(&mut bytes, head, date().as_bytes(), "application/json", body.len());
        // In a record of its own, which says on a slow way too that this appliance is alive.
        send(self.room.shared, &mut self.tls, &bytes)?;
        send(self.room.shared, &mut self.tls, &body)?;
        Ok(asked.keep_alive)
    }

    fn give(&mut self, asked: &Asked, found: &Found) -> io::Result<bool> {
        let len = found.extent.len;
        let selected = asked.range.as_deref().map_or(Selected::Whole, |range| select(range, len));
        let (status, start, end) = match selected {
            Selected::Whole => (Status::Ok, Bytes::ZERO, len),
            Selected::Part { start, end } => (Status::PartialContent, start, end),
            Selected::Unsatisfiable => (Status::RangeNotSatisfiable, Bytes::ZERO, Bytes::ZERO),
        };
        let has_body = asked.method == Method::Get && start < end;
        // Before the head, so that a drive that fails is answered with a status.
        let piece = Piece::at(start, end);
        if has_body && !self.read(found, piece) {
            return self.say(Status::NotFound, asked.keep_alive);
        }
        let head = Head { status, keep_alive: asked.keep_alive };
        let content_type = "application/octet-stream";
        let what = Representation {
            object: found.object,
            len,
            content_type,
            modified: UnixSeconds(0),
            rtt: None,
        };
        let mut bytes = Vec::new();
        write_object(&mut bytes, head, date().as_bytes(), what, (start, end));
        send(self.room.shared, &mut self.tls, &bytes)?;
        let whole = !has_body || self.body(found, piece, end)?;
        Ok(whole && asked.keep_alive)
    }

    /// Sends what was read, and the rest up to `end`; false if it stops half-way, which can only be
    /// said by closing.
    fn body(&mut self, found: &Found, mut piece: Piece, end: Bytes) -> io::Result<bool> {
        loop {
            if !self.room.pace.wait(&self.room.shared.ledger, piece.len()) {
                return Ok(false);
            }
            send(self.room.shared, &mut self.tls, &self.block[piece.in_buffer()])?;
            self.room.shared.counters.peer.sent.fetch_add(piece.len().0, Ordering::Relaxed);
            if piece.end == end {
                return Ok(true);
            }
            piece = Piece::at(piece.end, end);
            if !self.read(found, piece) {
                return Ok(false);
            }
        }
    }

    /// Reads a piece into the buffer; false if it cannot be had.
    fn read(&mut self, found: &Found, piece: Piece) -> bool {
        let shared = self.room.shared;
        if !shared.answers(&found.drive) {
            return false;
        }
        let into = &mut self.block[..piece.read_len().as_usize()];
        let read = found.drive.read_for_sibling(
            &found.file,
            into,
            found.extent.offset + piece.read_start(),
        );
        let Err(error) = read else { return true };
        doubt(shared, found.object, &found.extent, &error);
        false
    }

    /// Receives what is there; false if nothing more comes by then.
    fn receive(&mut self) -> io::Result<bool> {
        let mut piece = [0; 4096];
        while !self.tls.sock.is_over() && !self.room.shared.ledger.is_stopping() {
            match self.tls.read(&mut piece) {
                Ok(len) => {
                    self.input.extend_from_slice(&piece[..len]);
                    return Ok(0 < len);
                }
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn say(&mut self, status: Status, keep_alive: bool) -> io::Result<bool> {
        let mut bytes = Vec::new();
        write_plain(&mut bytes, Head { status, keep_alive }, date().as_bytes());
        send(self.room.shared, &mut self.tls, &bytes)?;
        Ok(keep_alive)
    }

    /// The same to what is no request.
    fn refuse(&mut self, status: Status) -> io::Result<bool> {
        self.say(status, false)
    }
}

/// A run of an object that fits the buffer, with the whole pages that it lies in.
#[derive(Clone, Copy)]
struct Piece {
    start: Bytes,
    end: Bytes,
}

impl Piece {
    /// As much from `start` on as one read gives.
    fn at(start: Bytes, end: Bytes) -> Self {
        let first_page = Bytes(start.0 / DIRECT_ALIGN.0 * DIRECT_ALIGN.0);
        Self { start, end: end.min(first_page + BLOCK_LEN) }
    }

    fn len(self) -> Bytes {
        self.end - self.start
    }

    fn read_start(self) -> Bytes {
        Bytes(self.start.0 / DIRECT_ALIGN.0 * DIRECT_ALIGN.0)
    }

    /// An object's file ends in whole pages.
    fn read_len(self) -> Bytes {
        self.end.align_up(DIRECT_ALIGN) - self.read_start()
    }

    fn in_buffer(self) -> std::ops::Range<usize> {
        let skipped = (self.start - self.read_start()).as_usize();
        skipped..skipped + self.len().as_usize()
    }
}

fn handshake(tls: &mut Tls, within: Duration, is_stopping: impl Fn() -> bool) -> io::Result<()> {
    tls.sock.until = Instant::now() + within;
    while tls.conn.is_handshaking() {
        match tls.conn.complete_io(&mut tls.sock) {
            Err(error) if !is_wait(&error) => return Err(error),
            Ok(_) | Err(_) if tls.sock.is_over() || is_stopping() => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// A socket that gives nothing from some moment on: rustls reads by itself as long as bytes come,
/// which a few at a time may be for ever.
struct Bounded {
    tcp: TcpStream,
    until: Instant,
}

type Tls = StreamOwned<ServerConnection, Bounded>;

impl Bounded {
    fn is_over(&self) -> bool {
        self.until <= Instant::now()
    }
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_over() { Err(io::ErrorKind::TimedOut.into()) } else { self.tcp.read(buffer) }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tcp.flush()
    }
}

/// Who is at the other end. rustls has verified the certificate.
fn who(tls: &Tls) -> io::Result<Seen> {
    let shown = tls.conn.peer_certificates().and_then(<[_]>::first);
    let shown = shown.ok_or_else(|| io::Error::other("no certificate was shown"))?;
    member::read(shown).map_err(io::Error::other)
}

/// The request at the beginning of `input`, if it is whole.
fn asked(input: &[u8]) -> Result<Option<Asked>, RequestError> {
    match http1::parse(input)? {
        Parsed::Partial => Ok(None),
        Parsed::Request { request, len } => {
            let object = request.path.strip_prefix("/v1/objects/");
            Ok(Some(Asked {
                method: request.method,
                object: object.and_then(|object| object.parse().ok()),
                clients: (request.path == "/v1/clients").then(|| known(request.query)),
                range: request.fields.range.map(<[u8]>::to_vec),
                keep_alive: request.keep_alive,
                head_len: len,
            }))
        }
    }
}

/// `start=S&known=N&after=AT/CLIENT`; nothing is known where it says something else.
fn known(query: &str) -> Known {
    let value = |name: &str| {
        let of = |part: &'_ str| part.strip_prefix(name)?.strip_prefix('=').map(str::to_owned);
        query.split('&').find_map(of)
    };
    let number = |name: &str| value(name).and_then(|text| text.parse().ok()).unwrap_or(0);
    let (start, state) = (number("start"), number("known"));
    let Some(after) = value("after") else { return Known { start, state, after: None } };
    let client =
        after.split_once('/').and_then(|(at, from)| at.parse().ok().zip(from.parse().ok()));
    client.map_or_else(Known::default, |client| Known { start, state, after: Some(client) })
}

/// A published object on a drive that is in use and answers.
fn find(shared: &Shared, object: ObjectId) -> Option<Found> {
    let extent = shared.locate(&object)?;
    let drive = shared.answering(extent.drive)?;
    match at_once(drive.open(&extent.file)) {
        Ok(file) => Some(Found { object, extent, drive, file }),
        // Evicted this moment.
        Err(error) if error.is_missing() && shared.locate(&object).is_none() => None,
        Err(error) => {
            doubt(shared, object, &extent, &error);
            None
        }
    }
}

/// What follows from an object that cannot be read: the same as when a viewer asks for it.
fn doubt(shared: &Shared, object: ObjectId, extent: &Extent, error: &DriveError) {
    tracing::warn!(%object, %error, "object cannot be read for a sibling");
    at_once(read_failed(shared, object, extent, error.errno()));
}

/// Sends all of it, if it is taken in time.
fn send(shared: &Shared, tls: &mut Tls, mut bytes: &[u8]) -> io::Result<()> {
    let began = Instant::now();
    loop {
        let sent = if bytes.is_empty() { tls.flush().map(|()| 0) } else { tls.write(bytes) };
        match sent {
            Ok(0) if bytes.is_empty() => return Ok(()),
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(len) => bytes = &bytes[len..],
            Err(error) if is_wait(&error) => {
                if shared.ledger.is_stopping() {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
        if PIECE_MAX < began.elapsed() {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

fn close(mut tls: Tls) -> io::Result<()> {
    tls.conn.send_close_notify();
    tls.conn.complete_io(&mut tls.sock).map(|_| ())
}

fn date() -> String {
    crate::membership::member::date(clock::wall())
}

fn is_wait(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    [WouldBlock, TimedOut, Interrupted].contains(&error.kind())
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::authority::Authority;
    use identity::credentials::Credentials;
    use identity::member::Member;
    use wire::v1::identity::Enrolled;

    #[test]
    fn a_sibling_says_how_much_of_the_clients_it_knows() {
        let asked = |query: &str| {
            let head = format!("GET /v1/clients{query} HTTP/1.1\r\nHost: a\r\n\r\n");
            asked(head.as_bytes()).unwrap().unwrap().clients.unwrap()
        };
        let known = |start, state, after: Option<[&str; 2]>| {
            let after = after.map(|[at, from]| (at.parse().unwrap(), from.parse().unwrap()));
            Known { start, state, after }
        };
        assert_eq!(asked(""), known(0, 0, None));
        assert_eq!(asked("?start=7&known=9"), known(7, 9, None));
        for after in
            [["192.0.2.1:443", "10.0.0.9:50000"], ["[2001:db8::1]:443", "[2001:db8::9]:65535"]]
        {
            let query = format!("?start=7&known=9&after={}", after.join("/"));
            assert_eq!(asked(&query), known(7, 9, Some(after)));
        }
        for wrong in ["", "192.0.2.1:443", "192.0.2.1/10.0.0.9", "a/b"] {
            let query = format!("?start=7&known=9&after={wrong}");
            assert_eq!(asked(&query), known(0, 0, None), "from the beginning: {wrong}");
        }
    }

    #[test]
    fn a_handshake_has_an_end_however_its_bytes_come() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (tcp, _) = listener.accept().unwrap();
        tcp.set_read_timeout(Some(LOOK_EVERY)).unwrap();
        let began = Instant::now();
        let drips = std::thread::spawn(move || {
            // The beginning of a record of 16 KiB, then its bytes.
            let _ = client.write_all(&[22, 3, 1, 64, 0]);
            while client.write_all(&[1]).is_ok() && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let connection = ServerConnection::new(Arc::new(server())).unwrap();
        let mut tls = StreamOwned::new(connection, Bounded { tcp, until: Instant::now() });
        let error = handshake(&mut tls, Duration::from_millis(100), || false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        drop(tls);
        drips.join().unwrap();
    }

    fn server() -> ServerConfig {
        let authority = Authority::create(clock::wall()).unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let request = rcgen::CertificateParams::default().serialize_request(&key).unwrap();
        let member = Member::appliance("a1");
        let issued =
            authority.issue(&member, &request.pem().unwrap(), [7; 16], clock::wall(), 3600);
        let given = Enrolled {
            certificate: issued.unwrap().certificate,
            authority: authority.certificate_pem().to_owned(),
            signing_keys: Vec::new(),
        };
        Credentials::new(&key.serialize_pem(), &given).unwrap().server_tls(false).unwrap()
    }
}

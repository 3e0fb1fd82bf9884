//! Players who begin: a handshake, one byte asked for and received, and gone; then the next.
//!
//! ```text
//! connect ──> hello ──> (tickets) ──> finished + request ──> tickets, response ──> reset, connect
//! full:     tickets are counted and dropped
//! resumed:  each is used once; one full handshake per connection first, which count for nothing
//! ```
//!
//! The client does less than a player's, or it would be the limit: the server's certificate is
//! compared with the one that it should show, and its signature is verified in every n-th handshake
//! only. What was agreed is looked at in each, and one that is not as it should be ends the run; so
//! does a player whose start takes too long, whatever the others get.

use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll;
use rustix::net::sockopt;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, Error, HandshakeKind,
    NamedGroup, ProtocolVersion, SignatureScheme,
};

use super::reply::{Asked, Reply};
use super::truth::Truth;
use super::{EVENTS_MAX, HANDSHAKE_MAX, Plan, Target};

/// The only group that is agreed on: servers that could agree on others have the same to do.
pub const GROUP: NamedGroup = NamedGroup::X25519;
/// Offered behind it in TLS 1.2, where OpenSSL wants to see the group of the certificate's key.
const GROUP_OF_KEY: NamedGroup = NamedGroup::secp256r1;
/// Arbitrary, and more than connections need: the oldest go first.
const TICKETS_MAX: usize = 4096;
/// Arbitrary: a look at all players costs microseconds, and comes a little late.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What has been done since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Begun {
    /// Handshakes after which the byte came.
    pub handshakes: u64,
    /// Of these, resumed with a ticket.
    pub resumed: u64,
    pub tickets: u64,
}

/// Many of them at once, on one thread.
pub struct Starts {
    poll: rustix::fd::OwnedFd,
    players: Vec<Player>,
    world: World,
    handshakes: u64,
    resumed: u64,
    /// How long a start may take.
    pub(super) patience: Duration,
    /// When to look next whether one has taken longer.
    look: Instant,
}

struct World {
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    tickets: Arc<Tickets>,
    /// The same byte under all paths of the plan, which are used in turn.
    requests: Vec<Vec<u8>>,
    sent: usize,
    asked: Asked,
    truth: Truth,
    scratch: Vec<u8>,
}

struct Player {
    began: Instant,
    socket: TcpStream,
    tls: ClientConnection,
    /// None until it has asked.
    reply: Option<Reply>,
}

impl Starts {
    /// Connects all; where they are to be resumed, each has got its first tickets afterwards.
    /// `shown` is the certificate that the server should show, PEM. The plan's targets are paths
    /// of one file, the first of `truth`: they are asked for in turn.
    pub fn connect(plan: &Plan, truth: Truth, shown: &Path, resume: bool) -> Result<Self> {
        let world = World::new(plan, truth, shown, resume)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let players = (0..plan.connections).map(|index| world.player(&poll, index));
        let players = players.collect::<Result<_>>()?;
        let (patience, look) = (HANDSHAKE_MAX, Instant::now());
        let mut starts = Self { poll, players, world, handshakes: 0, resumed: 0, patience, look };
        if resume {
            starts.first_tickets()?;
        }
        Ok(starts)
    }

    /// Handshakes until `deadline`.
    pub fn drive(&mut self, deadline: Instant) -> Result<()> {
        while Instant::now() < deadline {
            for index in self.complete()? {
                let tls = &self.players[index].tls;
                let group = tls.negotiated_key_exchange_group().map(|group| group.name());
                // A session of TLS 1.2 that is resumed has none.
                ensure!(group.is_none_or(|group| group == GROUP), "the server wants {group:?}");
                let kind = tls.handshake_kind();
                let resumed = agreed(self.world.tickets.kept, kind)?;
                self.handshakes += 1;
                self.resumed += u64::from(resumed);
                self.players[index] = self.world.player(&self.poll, index)?;
            }
        }
        Ok(())
    }

    /// What has been done since the beginning.
    pub fn begun(&self) -> Begun {
        let tickets = self.world.tickets.came.load(Ordering::Relaxed);
        Begun { handshakes: self.handshakes, resumed: self.resumed, tickets }
    }

    /// Waits for those under way; an error if one of them is not answered. Says how many asked
    /// since the beginning, those included that are in no count of `begun`.
    pub fn finish(mut self) -> Result<usize> {
        each_once(self.players.len(), || self.complete())?;
        Ok(self.world.sent)
    }

    /// One full handshake on each connection.
    fn first_tickets(&mut self) -> Result<()> {
        let done = each_once(self.players.len(), || self.complete())?;
        let (held, players) = (self.world.tickets.count(), self.players.len());
        ensure!(
            players <= held,
            "the server gave {held} tickets to {players} clients: not all can resume"
        );
        for index in done {
            self.players[index] = self.world.player(&self.poll, index)?;
        }
        Ok(())
    }

    /// Goes on with those whose sockets have something; the indices of those that are complete.
    fn complete(&mut self) -> Result<Vec<usize>> {
        crate::stop::check()?;
        self.check_ages()?;
        let mut events = Vec::with_capacity(EVENTS_MAX);
        let timeout = Duration::from_millis(100).try_into()?;
        let room = rustix::buffer::spare_capacity(&mut events);
        match epoll::wait(&self.poll, room, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for sockets"),
        }
        let mut complete = Vec::new();
        for event in &events {
            let data = event.data;
            let index = usize::try_from(data.u64())?;
            let turn = self.players[index].turn(&mut self.world);
            if turn.with_context(|| format!("handshake {}", self.handshakes + 1))? {
                complete.push(index);
            }
        }
        Ok(complete)
    }

    /// An error if a start takes too long, be it one among many that do not.
    fn check_ages(&mut self) -> Result<()> {
        let now = Instant::now();
        if now < self.look {
            return Ok(());
        }
        self.look = now + LOOK_EVERY;
        let (patience, all) = (self.patience, self.players.len());
        let is_late = |player: &&Player| !player.is_complete() && patience <= now - player.began;
        let late = self.players.iter().filter(is_late).count();
        ensure!(
            late == 0,
            "{late} of {all} players have waited for an answer for {patience:?}: look at the \
             server's log, or have fewer --connections"
        );
        Ok(())
    }
}

/// All indices below `count`, once `complete` has named each. It may name one again: a player that
/// is complete may yet hear more, such as tickets.
pub(super) fn each_once(
    count: usize,
    mut complete: impl FnMut() -> Result<Vec<usize>>,
) -> Result<BTreeSet<usize>> {
    let mut done = BTreeSet::new();
    while done.len() < count {
        done.extend(complete()?);
    }
    Ok(done)
}

/// Whether a handshake was resumed; an error unless it was as asked for.
fn agreed(resume: bool, kind: Option<HandshakeKind>) -> Result<bool> {
    match (resume, kind) {
        (false, Some(HandshakeKind::Full)) => Ok(false),
        (true, Some(HandshakeKind::Resumed)) => Ok(true),
        (true, _) => bail!("a resumed handshake was asked for, and the server made a full one"),
        (false, Some(HandshakeKind::Resumed)) => {
            bail!("a full handshake was asked for, and the server made a resumed one")
        }
        (false, _) => bail!("the server made the client say hello twice, which costs more"),
    }
}

impl World {
    fn new(plan: &Plan, truth: Truth, shown: &Path, resume: bool) -> Result<Self> {
        let tickets = Arc::new(Tickets { kept: resume, ..Tickets::default() });
        let config = config(plan, shown, Arc::clone(&tickets))?;
        let target = plan.targets.first().context("there must be a target to ask for")?;
        let authority = format!("{}:{}", plan.name, plan.address.port());
        let request = |Target { path, .. }: &Target| {
            format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nRange: bytes=0-0\r\n\r\n")
                .into_bytes()
        };
        Ok(Self {
            address: plan.address,
            name: ServerName::try_from(plan.name.clone())?,
            config: Arc::new(config),
            tickets,
            requests: plan.targets.iter().map(request).collect(),
            sent: 0,
            asked: Asked { target: 0, range: 0..1, target_len: target.len.0, verify: true },
            truth,
            scratch: Vec::new(),
        })
    }

    /// What the next player asks for.
    fn next_request(&mut self) -> &[u8] {
        let request = &self.requests[self.sent % self.requests.len()];
        self.sent += 1;
        request
    }

    /// Connects, says hello, and is watched as number `index`.
    fn player(&self, poll: &rustix::fd::OwnedFd, index: usize) -> Result<Player> {
        let began = Instant::now();
        let socket = TcpStream::connect(self.address)
            .with_context(|| format!("cannot connect to {}", self.address))?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        // Reset when closed: ports are free at once.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        let data = epoll::EventData::new_u64(u64::try_from(index)?);
        epoll::add(poll, &socket, data, epoll::EventFlags::IN)?;
        let tls = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        let mut player = Player { began, socket, tls, reply: None };
        player.send()?;
        Ok(player)
    }
}

impl Player {
    /// Takes what the socket has; whether the byte has come.
    fn turn(&mut self, world: &mut World) -> Result<bool> {
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => bail!("the server closed the connection"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot receive"),
            }
            self.tls.process_new_packets()?;
            if self.reply.is_none() && !self.tls.is_handshaking() {
                // Together with the end of the handshake, as browsers do.
                self.tls.writer().write_all(world.next_request())?;
                self.reply = Some(Reply::new(world.asked.clone()));
            }
            self.send()?;
            if self.answered(world)? {
                return Ok(true);
            }
        }
    }

    fn answered(&mut self, world: &mut World) -> Result<bool> {
        let Some(reply) = &mut self.reply else { return Ok(false) };
        let mut piece = [0; 1024];
        loop {
            match self.tls.reader().read(&mut piece) {
                Ok(0) => bail!("the server ended before it answered"),
                Ok(n) => {
                    reply.bytes(&piece[..n], |asked, offset, body| {
                        world.truth.compare(asked.target, offset, body, &mut world.scratch)
                    })?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("cannot read the answer"),
            }
        }
        Ok(self.is_complete())
    }

    fn is_complete(&self) -> bool {
        self.reply.as_ref().is_some_and(Reply::is_complete)
    }

    /// A flight is far smaller than a send buffer: it fits.
    fn send(&mut self) -> Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut self.socket).context("cannot send")?;
        }
        Ok(())
    }
}

fn config(plan: &Plan, shown: &Path, tickets: Arc<Tickets>) -> Result<ClientConfig> {
    let mut provider = aws_lc_rs::default_provider();
    let version = super::handshake::version(&plan.suites);
    let is_12 = version.version == ProtocolVersion::TLSv1_2;
    provider
        .kx_groups
        .retain(|group| group.name() == GROUP || (is_12 && group.name() == GROUP_OF_KEY));
    if !plan.suites.is_empty() {
        provider.cipher_suites.retain(|suite| plan.suites.contains(&suite.suite()));
    }
    let provider = Arc::new(provider);
    let certificate = CertificateDer::from_pem_file(shown)
        .with_context(|| format!("cannot read the certificate in {}", shown.display()))?;
    let pinned = Pinned {
        certificate,
        provider: Arc::clone(&provider),
        verify_every: plan.verify_every,
        seen: AtomicU64::new(0),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.resumption = Resumption::store(tickets);
    Ok(config)
}

/// Takes one certificate and no other.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    /// Every n-th signature is verified; 0 is none.
    verify_every: u64,
    seen: AtomicU64,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if *shown == self.certificate {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verified(|algorithms| {
            rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verified(|algorithms| {
            rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Pinned {
    /// By this, in its turn.
    fn verified(
        &self,
        verify: impl FnOnce(&WebPkiSupportedAlgorithms) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        let number = self.seen.fetch_add(1, Ordering::Relaxed);
        if self.verify_every == 0 || !number.is_multiple_of(self.verify_every) {
            return Ok(HandshakeSignatureValid::assertion());
        }
        verify(&self.provider.signature_verification_algorithms)
    }
}

/// The tickets of all of them: each is given out once. A client of TLS 1.2 gives its own back where
/// the server gave it no other, and so it comes again.
#[derive(Debug, Default)]
struct Tickets {
    kept: bool,
    held: Mutex<VecDeque<Tls13ClientSessionValue>>,
    held_12: Mutex<VecDeque<Tls12ClientSessionValue>>,
    came: AtomicU64,
}

impl Tickets {
    fn count(&self) -> usize {
        lock(&self.held).len() + lock(&self.held_12).len()
    }

    fn keep<T>(&self, held: &Mutex<VecDeque<T>>, value: T) {
        self.came.fetch_add(1, Ordering::Relaxed);
        if !self.kept {
            return;
        }
        let mut held = lock(held);
        held.push_back(value);
        if TICKETS_MAX < held.len() {
            held.pop_front();
        }
    }
}

fn lock<T>(held: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _name: ServerName<'static>, _group: NamedGroup) {}

    fn kx_hint(&self, _name: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.keep(&self.held_12, value);
    }

    fn tls12_session(&self, _name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        lock(&self.held_12).pop_front()
    }

    fn remove_tls12_session(&self, _name: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.keep(&self.held, value);
    }

    fn take_tls13_ticket(&self, _name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        lock(&self.held).pop_front()
    }
}

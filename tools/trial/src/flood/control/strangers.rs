//! The attackers: two threads at the lowest priority.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use rig::cpu;
use rustix::fd::OwnedFd;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;

use crate::flood::threads::{Rate, STEP, Shared, Threads, connect};

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

pub(super) struct Attack {
    pub(super) threads: Threads<5>,
    drips: Arc<AtomicU64>,
}

const BYTES: usize = 0;
const ANEW: usize = 1;
const FORGED: usize = 2;
const ANSWERS: usize = 3;
const CPU_US: usize = 4;

/// Those that were closed come anew: so many a second.
const ANEW_PER_S: u32 = 500;
const ADDRESSES: u32 = 200;
/// Connections on which forged requests are sent.
const FORGERS: u32 = 50;

impl Attack {
    pub(super) fn start(players: SocketAddr, members: SocketAddr, how: Strength) -> Result<Self> {
        let (mut threads, drips) = (Threads::new(), Arc::new(AtomicU64::new(0)));
        let dripping = Arc::clone(&drips);
        threads.start("drips", move |shared| drip(shared, &dripping, [players, members], how))?;
        threads.start("forged", move |shared| forge(shared, players, how))?;
        Ok(Self { threads, drips })
    }

    pub(super) fn offered(&self) -> Offered {
        let [drip_bytes_per_s, drips_anew_per_s, forged_per_s, forged_answers_per_s, cpu_us] =
            self.threads.per_s();
        Offered {
            drips: self.drips.load(Ordering::Relaxed),
            drip_bytes_per_s,
            drips_anew_per_s,
            forged_per_s,
            forged_answers_per_s,
            cpu: cpu_us / 1e6,
        }
    }
}

/// Heads at players' address and handshakes at the fleet's that never end, a byte a second each.
fn drip(
    shared: &Shared<5>,
    drips: &AtomicU64,
    [players, members]: [SocketAddr; 2],
    how: Strength,
) -> Result<()> {
    let mut open: VecDeque<(OwnedFd, usize)> = VecDeque::new();
    let mut opened = 0_u32;
    let mut bytes = Rate::new(how.drips);
    let mut anew = Rate::new(ANEW_PER_S);
    let mut meter = Meter::start()?;
    while shared.goes_on() {
        for _ in 0..anew.due() {
            if open.len() < usize::try_from(how.drips)? {
                let to = if opened.is_multiple_of(4) { members } else { players };
                let socket = connect(Some(how.from.address(opened)), to);
                opened += 1;
                open.extend(socket.map(|socket| (socket, 0)));
                shared.count(ANEW, 1);
            }
        }
        for _ in 0..bytes.due().min(u64::try_from(open.len())?) {
            let Some((socket, at)) = open.pop_front() else { break };
            // A head; as a TLS record it is garbage, but for its first bytes.
            let byte = HEAD.get(at).unwrap_or(&b'a');
            if send(&socket, &[*byte], SendFlags::NOSIGNAL).is_ok() {
                shared.count(BYTES, 1);
                open.push_back((socket, at + 1));
            }
        }
        drips.store(u64::try_from(open.len())?, Ordering::Relaxed);
        if how.drips <= opened {
            shared.complete();
        }
        shared.count(CPU_US, meter.used_us()?);
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Steering requests with tickets that were made up, over connections that are kept.
fn forge(shared: &Shared<5>, players: SocketAddr, how: Strength) -> Result<()> {
    let request = format!(
        "GET /steer/v1/Zm9yZ2Vk.{}?_HLS_pathway=a0 HTTP/1.1\r\nHost: {players}\r\n\r\n",
        "Zm9yZ2Vk".repeat(16)
    );
    let mut open: VecDeque<Option<OwnedFd>> = (0..FORGERS).map(|_| None).collect();
    let mut opened = 0_u32;
    let mut rate = Rate::new(how.forged);
    let mut meter = Meter::start()?;
    let mut scratch = vec![0; 64 << 10];
    while shared.goes_on() {
        for _ in 0..rate.due() {
            let Some(socket) = open.pop_front() else { break };
            let socket = socket.or_else(|| {
                opened += 1;
                connect(Some(how.from.address(opened - 1)), players).ok()
            });
            let sent = socket.as_ref().is_some_and(|socket| {
                send(socket, request.as_bytes(), SendFlags::NOSIGNAL) == Ok(request.len())
            });
            shared.count(FORGED, u64::from(sent));
            open.push_back(socket.filter(|_| sent));
        }
        for place in &mut open {
            let Some(socket) = place else { continue };
            match recv(&*socket, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => *place = None,
                Ok((len, _)) => {
                    let text = scratch[..len].windows(9).filter(|text| *text == b"HTTP/1.1 ");
                    shared.count(ANSWERS, u64::try_from(text.count())?);
                }
                Err(rustix::io::Errno::AGAIN) => {}
                Err(_) => *place = None,
            }
        }
        shared.count(CPU_US, meter.used_us()?);
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

    /// Since it was asked last.
    fn used_us(&mut self) -> Result<u64> {
        let now = cpu::of_this_thread()?;
        let used = now.saturating_sub(std::mem::replace(&mut self.before, now));
        Ok(u64::try_from(used.as_micros())?)
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

const HEAD: &[u8] = b"GET /v1/play/film.m3u8 HTTP/1.1\r\nHost: a\r\nX-Nothing: ";

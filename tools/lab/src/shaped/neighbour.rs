//! A neighbour on each queue: small packets, and how long each takes to the other side.
//!
//! One clock has both ends, so what is told is one way, the loaded one: the queue, and whatever
//! keeps the receiver from its CPU.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::link::{Homes, Link};

const PORT: u16 = 18_799;
const EVERY: Duration = Duration::from_millis(50);
/// With the heads about what a game or a call sends.
const LEN: usize = 100;
/// The longest queue drains in 0.7 s.
const LAST_MAX: Duration = Duration::from_secs(2);

/// What one queue did to its neighbour: the delay of each packet that came, in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Delays {
    pub(super) ms: Vec<f64>,
    pub(super) sent: u32,
}

/// Sends into all links while `work` lasts.
pub(super) fn beside<T>(
    homes: &Homes,
    links: &[Link],
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<Delays>)> {
    let (began, end) = (Instant::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            homes.enter()?;
            receive(links, began, &end)
        });
        let sender = scope.spawn(|| send(links, began, &end));
        let done = work();
        end.store(true, Ordering::SeqCst);
        let (sent, mut all) = (joined(sender)?, joined(receiver)?);
        all.iter_mut().for_each(|one| one.sent = sent);
        Ok((done?, all))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("the neighbour's thread panicked")))
}

/// To each link in turn; how many to each.
fn send(links: &[Link], began: Instant, end: &AtomicBool) -> Result<u32> {
    let socket = |link: &Link| -> Result<UdpSocket> {
        let socket = UdpSocket::bind((link.near, 0))?;
        socket.connect((link.far, PORT))?;
        Ok(socket)
    };
    let sockets: Result<Vec<UdpSocket>> = links.iter().map(socket).collect();
    let (sockets, mut count) = (sockets?, 0);
    while !end.load(Ordering::SeqCst) {
        for socket in &sockets {
            let mut packet = [0; LEN];
            let now = u64::try_from(began.elapsed().as_nanos())?;
            packet[..8].copy_from_slice(&now.to_le_bytes());
            // One that the other side refuses, before it listens, counts as lost.
            let _ = socket.send(&packet);
        }
        count += 1;
        thread::sleep(EVERY);
    }
    Ok(count)
}

fn receive(links: &[Link], began: Instant, end: &AtomicBool) -> Result<Vec<Delays>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    socket.set_read_timeout(Some(EVERY))?;
    let mut all = vec![Delays::default(); links.len()];
    let (mut packet, mut ended) = ([0; LEN], None::<Instant>);
    loop {
        if end.load(Ordering::SeqCst) && LAST_MAX < ended.get_or_insert_with(Instant::now).elapsed()
        {
            return Ok(all);
        }
        let Ok((LEN, SocketAddr::V4(from))) = socket.recv_from(&mut packet) else { continue };
        let sent = u64::from_le_bytes(packet[..8].try_into().context("eight bytes")?);
        let took = began.elapsed().saturating_sub(Duration::from_nanos(sent));
        let of = links.iter().position(|link| link.near == *from.ip());
        if let Some(one) = of {
            all[one].ms.push(took.as_secs_f64() * 1e3);
        }
    }
}

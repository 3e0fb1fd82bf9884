//! A long way to a client: every packet takes its time, in either direction, and none is lost.
//!
//! ```text
//! appliance ── vxlan 1 ──┐                                    (this namespace)
//!                       veth ── relay: holds each for a while, then sends it back as the other's
//! client ───── vxlan 2 ──┘                                    (the client's namespace)
//! ```
//!
//! The kernel puts packets of either end into datagrams, whose way is through the relay: so TCP at
//! the appliance sees the round trip, which a relay of TCP would hide from it, and without netem.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::fd::AsFd;
use rustix::net::sockopt;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::compare::network::{Link, command, remove};

/// Where the appliance is to listen.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 203, 78, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 203, 78, 2);
/// Both addresses are in it.
pub(super) const NETWORK: &str = "10.203.78.0/30";
/// Both devices have it: the kernel tells them apart by their numbers (RFC 7348).
pub(super) const PORT: u16 = 4789;
/// Where a datagram has the number of its device.
const NUMBER: usize = 6;
/// What may wait to be taken by the relay, and what it may hold: more than is under way.
const BUFFER: usize = 32 << 20;
const PATIENCE: Duration = Duration::from_millis(100);
/// Nothing came in that time, or a signal did.
const PAUSES: [io::ErrorKind; 2] = [io::ErrorKind::WouldBlock, io::ErrorKind::Interrupted];

/// The way; gone when dropped.
pub(super) struct Way {
    device: String,
    far: String,
    link: Link,
    stop: Arc<AtomicBool>,
    /// Packets that went to the client.
    pub(super) packets: Arc<AtomicU64>,
    relay: Option<JoinHandle<()>>,
}

impl Way {
    /// Needs root, `ip` and `ethtool`. Each packet takes `each` one way.
    pub(super) fn new(each: Duration) -> Result<Self> {
        let link = Link::new()?;
        let id = std::process::id();
        let device = format!("ncfar{id}");
        let (far, relay_at) = (format!("ncfac{id}"), link.address());
        let name = link.namespace().to_owned();
        let stop = Arc::new(AtomicBool::new(false));
        let packets = Arc::new(AtomicU64::new(0));
        let socket = in_namespace(&name, || {
            let socket = UdpSocket::bind(SocketAddr::new(relay_at, PORT))?;
            sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER)?;
            sockopt::set_socket_send_buffer_size_force(&socket, BUFFER)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        })?;
        let (stopping, counted) = (stop.clone(), packets.clone());
        let relay = std::thread::spawn(move || relay(&socket, each, &stopping, &counted));
        let way = Self { device, far, link, stop, packets, relay: Some(relay) };
        let far = &way.far;
        let vxlan = format!("remote {relay_at} dstport {PORT} nolearning");
        let device = &way.device;
        // A card would fill in checksums and cut segments; datagrams have neither.
        let plain = "tx off tso off gso off gro off";
        for line in [
            format!("ip link add {device} type vxlan id 1 {vxlan}"),
            format!("ip link add {far} type vxlan id 2 {vxlan}"),
            format!("ethtool -K {device} {plain}"),
            format!("ethtool -K {far} {plain}"),
            format!("ip link set {far} netns {name}"),
            format!("ip address add {ADDRESS}/30 dev {device}"),
            format!("ip link set {device} up"),
            format!("ip -n {name} address add {CLIENT}/30 dev {far}"),
            format!("ip -n {name} link set {far} up"),
        ] {
            command(&line)?;
        }
        Ok(way)
    }

    /// Does something where the client is; threads that it starts are there as well.
    pub(super) fn as_client<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        in_namespace(self.link.namespace(), act)
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(relay) = self.relay.take() {
            let _ = relay.join();
        }
        // The other device goes with its namespace, unless it never got there.
        for device in [&self.device, &self.far] {
            if std::path::Path::new("/sys/class/net").join(device).exists() {
                remove("link", device);
            }
        }
    }
}

fn in_namespace<T: Send>(name: &str, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let path = format!("/var/run/netns/{name}");
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let file = File::open(&path).with_context(|| format!("no namespace {path}"))?;
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .context("cannot enter the namespace")?;
            act()
        });
        there.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"))
    })
}

type Held = (Instant, SocketAddr, Vec<u8>);

/// Until `stop`: sends each datagram back to where it came from, as if of the other device.
fn relay(socket: &UdpSocket, each: Duration, stop: &AtomicBool, packets: &AtomicU64) {
    let (keep, kept): (Sender<Held>, Receiver<Held>) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (due, to, datagram) in kept {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // What the kernel has no room for is lost, as on any way.
                let _ = socket.send_to(&datagram, to);
            }
        });
        let mut room = vec![0; 1 << 16];
        while !stop.load(Ordering::Relaxed) {
            let (len, from) = match socket.recv_from(&mut room) {
                Ok(came) => came,
                Err(error) if PAUSES.contains(&error.kind()) => continue,
                Err(error) => {
                    tracing::warn!(%error, "the relay cannot receive");
                    break;
                }
            };
            let mut datagram = room[..len].to_vec();
            let Some(number) = datagram.get_mut(NUMBER) else { continue };
            packets.fetch_add(u64::from(*number == 1), Ordering::Relaxed);
            *number = 3 - (*number).clamp(1, 2);
            let _ = keep.send((Instant::now() + each, SocketAddr::new(from.ip(), PORT), datagram));
        }
        drop(keep);
    });
}

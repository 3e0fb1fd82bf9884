//! Clients that hold a server up: what waits for them, and must be little.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use model::units::Bytes;
use socket2::{Domain, SockFilter, SockRef, Socket, Type};

/// What `connect` is sent that does not read. Linux allows a buffer as long unless it is told
/// otherwise (net.core.rmem_max).
const WINDOW: Bytes = Bytes::kib(208);
/// The longest packet on loopback: the last that a socket takes may go beyond its bound.
pub(crate) const PACKET: Bytes = Bytes::kib(64);

/// More than tickets take, which a client that is cut off never acknowledges.
const HANDSHAKE: Bytes = Bytes::kib(4);

/// A connection to a port of this machine, with a window that stays as it is.
pub(crate) fn connect(port: u16) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(WINDOW.as_usize()).unwrap();
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).unwrap();
    TcpStream::from(socket)
}

/// From now on all that comes to a socket is lost before it is acknowledged, as if the way there
/// were cut: for the server it stays on its way.
pub(crate) fn cut_off(socket: &TcpStream) {
    // BPF_RET: keep nothing of the packet.
    let lose = SockFilter::new(6, 0, 0, 0);
    SockRef::from(socket).attach_filter(&[lose]).unwrap();
}

/// The most that a server has for a client that is cut off, if its bound stays as it is: a window
/// on its way, the bound, and the packet that reached it.
pub(crate) fn without_raising(bound: Bytes) -> u64 {
    (WINDOW + bound + PACKET).0
}

/// The bytes that wait, once they are more than a handshake leaves and their number has not changed
/// for a while.
pub(crate) fn settled(look: impl Fn() -> u64) -> u64 {
    let began = Instant::now();
    let (mut last, mut since) = (0, Instant::now());
    while last <= HANDSHAKE.0 || since.elapsed() < Duration::from_millis(200) {
        assert!(began.elapsed() < Duration::from_secs(20), "{last} and not settled");
        std::thread::sleep(Duration::from_millis(5));
        let now = look();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

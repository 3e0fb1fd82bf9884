//! Listening sockets: each worker has its own, and the kernel spreads connections over them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// Connections that wait to be accepted; more are dropped by the kernel and tried again by clients.
const BACKLOG: i32 = 4096;

/// A listening socket of one worker.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: OwnedFd,
    /// Connections shake hands first.
    pub secure: bool,
}

/// A socket that has the address, beside others of the same process, and does not listen yet.
pub fn bind(at: SocketAddr) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    Ok(socket)
}

/// From now on connections arrive.
pub fn listen(socket: &OwnedFd) -> io::Result<()> {
    Ok(rustix::net::listen(socket, BACKLOG)?)
}

/// Fails if somebody else already listens on `at`: sharing a port is for our own workers only, and
/// two appliances on one address would each get half of the players.
pub fn check_free(at: SocketAddr) -> io::Result<()> {
    std::net::TcpListener::bind(at).map(drop)
}

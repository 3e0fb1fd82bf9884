//! Listening sockets: each worker has its own, and the kernel spreads connections over them.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use model::units::Bytes;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tls::Versions;

/// Connections that wait to be accepted; more are dropped by the kernel and tried again by clients.
const BACKLOG: i32 = 4096;

/// A listening socket of one worker.
#[derive(Debug)]
pub struct Listener {
    pub socket: OwnedFd,
    /// Those with which connections shake hands first; none for plain bytes.
    pub versions: Option<Versions>,
}

/// Where the kernel says what congestion controls it has.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// A socket that has the address, beside others of the same process, and does not listen yet.
/// Connections inherit its congestion control, and how many bytes that were never sent they take;
/// none for the kernel's default.
pub fn bind(
    at: SocketAddr,
    congestion: Option<&str>,
    unsent_max: Option<Bytes>,
) -> io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    accept_absent(&socket, at)?;
    if let Some(name) = congestion {
        sockopt::set_tcp_congestion(&socket, name).map_err(|error| {
            let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
            let message = format!(
                "the kernel does not take the congestion control \"{name}\" ({error}); it has: {}. \
                 For another: modprobe tcp_{name}",
                available.trim(),
            );
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
    }
    if let Some(most) = unsent_max {
        uring::bound_unsent(socket.as_fd(), most)?;
    }
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
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    accept_absent(&socket, at)?;
    rustix::net::bind(&socket, &at)?;
    Ok(rustix::net::listen(&socket, 1)?)
}

/// The address may be elsewhere now: a service address moves between the appliances of a site.
fn accept_absent(socket: &OwnedFd, at: SocketAddr) -> io::Result<()> {
    match at {
        SocketAddr::V4(_) => sockopt::set_ip_freebind(socket, true)?,
        SocketAddr::V6(_) => sockopt::set_ipv6_freebind(socket, true)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_listener_has_its_congestion_control_or_says_what_there_is() {
        let any = "127.0.0.1:0".parse().unwrap();
        // Every kernel has it.
        let socket = bind(any, Some("reno"), None).unwrap();
        assert_eq!(sockopt::tcp_congestion(&socket).unwrap(), "reno");
        let error = bind(any, Some("nonsense"), None).unwrap_err().to_string();
        assert!(error.contains("\"nonsense\"") && error.contains("it has: "), "{error}");
        assert!(error.contains("reno"), "{error}");
    }

    #[test]
    fn connections_of_a_listener_take_so_much_that_is_not_sent_and_no_more() {
        let unsent = |most: Option<Bytes>| {
            let listener = bind("127.0.0.1:0".parse().unwrap(), None, most).unwrap();
            listen(&listener).unwrap();
            let listener = TcpListener::from(listener);
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            while socket.write(&[0; 1 << 18]).is_ok() {}
            let unsent = uring::tcp_info(socket.as_fd()).unwrap().unsent;
            drop(client);
            unsent
        };
        // What stands in one packet for itself (64 KiB) is taken whole.
        let shallow = unsent(Some(Bytes::kib(64)));
        assert!(Bytes::kib(16) < shallow && shallow <= Bytes::kib(128), "{shallow}");
        let deep = unsent(None);
        assert!(Bytes::kib(256) < deep, "{deep}");
    }
}

//! What TCP knows of a connection.

use std::os::fd::{AsRawFd, BorrowedFd};

use model::units::{BitsPerSecond, Bytes, Nanos};

/// Figures of one connection (`struct tcp_info` of linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round trip.
    pub rtt: Nanos,
    /// Congestion window, in segments.
    pub window: u32,
    /// Segments on their way.
    pub unacked: u32,
    /// Segments sent again, so far.
    pub retransmitted: u32,
    /// Bytes that wait in the socket, not sent yet.
    pub unsent: Bytes,
    /// At which rate the other side received lately.
    pub delivery: BitsPerSecond,
    /// How long the other side's window was shut, so far.
    pub shut: Nanos,
}

/// As much of `struct tcp_info` as is read: up to and with `tcpi_rwnd_limited` (Linux 4.10).
const LEN: usize = 184;

/// Asks the kernel; none where it knows less, as of a socket that is no TCP.
pub fn tcp_info(socket: BorrowedFd<'_>) -> Option<TcpInfo> {
    let mut raw = [0_u8; LEN];
    let mut len = libc::socklen_t::try_from(LEN).expect("a small number");
    // SAFETY: the kernel writes at most `len` bytes to `raw`, which has as many, and the number to
    // `len`; both live until the call is over.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 || usize::try_from(len).ok()? < LEN {
        return None;
    }
    let word = |at: usize| {
        let bytes = raw[at..at + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes)
    };
    let long = |at: usize| {
        let bytes = raw[at..at + 8].try_into().expect("eight bytes");
        u64::from_ne_bytes(bytes)
    };
    let micros = |count: u64| Nanos(count.saturating_mul(1000));
    Some(TcpInfo {
        rtt: micros(word(68).into()),
        window: word(80),
        unacked: word(24),
        retransmitted: word(100),
        unsent: Bytes(word(144).into()),
        delivery: BitsPerSecond(long(160).saturating_mul(8)),
        shut: micros(long(176)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_client_that_does_not_read_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let before = tcp_info(socket.as_fd()).unwrap();
        assert_eq!((before.unacked, before.unsent, before.retransmitted), (0, Bytes(0), 0));
        assert!(Nanos(0) < before.rtt && before.rtt < Nanos::seconds(1), "{before:?}");
        assert!((1..1000).contains(&before.window), "{before:?}");
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        let after = tcp_info(socket.as_fd()).unwrap();
        assert!(Bytes(100_000) < after.unsent, "{after:?}");
        assert_eq!(tcp_info(std::io::stdin().as_fd()), None);
    }
}

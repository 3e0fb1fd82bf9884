//! Options of sockets that no safe library has.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Nanos};

/// Has the kernel send no faster than `rate` on this socket (SO_MAX_PACING_RATE, socket(7)): with
/// the qdisc fq, or by TCP's own timers where there is none. None takes the limit away.
pub fn limit_rate(socket: BorrowedFd<'_>, rate: Option<BitsPerSecond>) -> io::Result<()> {
    // In bytes per second; all ones is no limit.
    let bytes: u64 = rate.map_or(u64::MAX, |rate| (rate.0 / 8).max(1));
    set(socket, (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE), &bytes.to_ne_bytes())
}

/// Has the kernel take no more for this socket while so many bytes wait to be sent for the first
/// time (TCP_NOTSENT_LOWAT, tcp(7)); connections inherit it of their listener. What was sent and is
/// not acknowledged does not count, so that a long path is filled as before.
pub fn bound_unsent(socket: BorrowedFd<'_>, bytes: Bytes) -> io::Result<()> {
    let bytes = u32::try_from(bytes.0).unwrap_or(u32::MAX);
    set(socket, (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT), &bytes.to_ne_bytes())
}

fn set(socket: BorrowedFd<'_>, (level, name): (i32, i32), value: &[u8]) -> io::Result<()> {
    let len = u32::try_from(value.len()).expect("a few bytes");
    // SAFETY: the value is `len` bytes long and outlives the call, which only reads it; the
    // descriptor is borrowed, so it is open.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value.as_ptr().cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// As much of `struct tcp_info` as is read: up to and with `tcpi_rwnd_limited` (Linux 4.10).
const TCP_INFO_LEN: usize = 184;

/// Asks the kernel; none where it knows less, as of a socket that is no TCP.
pub fn tcp_info(socket: BorrowedFd<'_>) -> Option<TcpSample> {
    let mut raw = [0_u8; TCP_INFO_LEN];
    let mut len = libc::socklen_t::try_from(TCP_INFO_LEN).expect("a small number");
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
    if result != 0 || usize::try_from(len).ok()? < TCP_INFO_LEN {
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
    Some(TcpSample {
        rtt: micros(word(68).into()),
        rtt_min: micros(word(148).into()),
        window: word(80),
        segment: Bytes(word(16).into()),
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
    fn a_socket_can_be_limited_and_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for rate in [Some(BitsPerSecond(20_000_000)), None, Some(BitsPerSecond(0))] {
            limit_rate(client.as_fd(), rate).unwrap();
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(tcp_info(file.as_fd()), None, "no socket");
        assert!(limit_rate(file.as_fd(), None).is_err(), "no socket");
    }

    #[test]
    fn a_client_that_does_not_read_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut socket, _) = listener.accept().unwrap();
        let before = tcp_info(socket.as_fd()).unwrap();
        assert_eq!((before.unacked, before.unsent, before.retransmitted), (0, Bytes(0), 0));
        assert!((Bytes(500)..Bytes::kib(64)).contains(&before.segment), "{before:?}");
        assert!(Nanos(0) < before.rtt && before.rtt < Nanos::seconds(1), "{before:?}");
        assert!(Nanos(0) < before.rtt_min && before.rtt_min <= before.rtt, "{before:?}");
        assert!((1..1000).contains(&before.window), "{before:?}");
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 65_536]).is_ok() {}
        let after = tcp_info(socket.as_fd()).unwrap();
        assert!(Bytes(100_000) < after.unsent, "{after:?}");
        assert_eq!(tcp_info(io::stdin().as_fd()), None);
    }
}

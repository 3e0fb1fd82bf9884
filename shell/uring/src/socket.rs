//! What is asked of a socket that no safe library asks.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use model::units::BitsPerSecond;

/// Has the kernel send no faster than `rate` on this socket (SO_MAX_PACING_RATE, socket(7)): with
/// the qdisc fq, or by TCP's own timers where there is none. None takes the limit away.
pub fn limit_rate(socket: BorrowedFd<'_>, rate: Option<BitsPerSecond>) -> io::Result<()> {
    // In bytes per second; all ones is no limit.
    let bytes: u64 = rate.map_or(u64::MAX, |rate| (rate.0 / 8).max(1));
    let len = u32::try_from(size_of::<u64>()).expect("eight");
    let (level, name) = (libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE);
    let value = std::ptr::from_ref(&bytes).cast();
    // SAFETY: the value is `len` bytes long and outlives the call, which only reads it; the
    // descriptor is borrowed, so it is open.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Packets that TCP has sent again on this connection (`tcpi_total_retrans` of TCP_INFO).
pub fn resent(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = u32::try_from(size_of::<libc::tcp_info>()).expect("some hundred bytes");
    // SAFETY: the kernel writes at most `len` bytes, which is the size of what it is given; the
    // descriptor is borrowed, so it is open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: integers alone, all zero where the kernel wrote less.
    let info = unsafe { info.assume_init() };
    Ok(u64::from(info.tcpi_total_retrans))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_socket_can_be_limited_and_let_go() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for rate in [Some(BitsPerSecond(20_000_000)), None, Some(BitsPerSecond(0))] {
            limit_rate(client.as_fd(), rate).unwrap();
        }
        assert_eq!(resent(client.as_fd()).unwrap(), 0);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(resent(file.as_fd()).is_err(), "no socket");
        assert!(limit_rate(file.as_fd(), None).is_err(), "no socket");
    }
}

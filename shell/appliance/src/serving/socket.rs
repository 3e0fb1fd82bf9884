//! A connection's socket and what stands between it and plain bytes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use model::handle::ConnectionId;
use model::tcp::TcpSample;
use model::units::{Bytes, Instant, Nanos};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use tls::{Handshake, Session, Versions};
use uring::Watch;
use worker::Ending;

use crate::serving::clients::Noted;

/// One connection's shell.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) id: ConnectionId,
    /// Its place among the clients that siblings know, for as long as it lives.
    pub(crate) noted: Option<Noted>,
    pub(crate) transport: Transport,
    /// When TCP was last asked about it.
    pub(crate) tcp_at: Option<Instant>,
    /// What it may hold unsent, if that is not as its listener had it.
    pub(crate) unsent_max: Option<Bytes>,
    /// Received and not a whole record yet. Bound: one record.
    pub(crate) rest: Vec<u8>,
    /// Content that arrived before the worker asked for it: behind a handshake's last flight.
    pub(crate) early: Vec<u8>,
    /// The peer said that it will send no more; the worker hears of it when it asks for content.
    pub(crate) peer_closed: bool,
    /// A fatal alert came or went: no goodbye follows one.
    pub(crate) failed: bool,
    /// How the ring watches it, while it does.
    pub(crate) watch: Option<Watch>,
    /// Something came that was not received yet.
    pub(crate) ready: bool,
    /// The last of it came: each receive has something to say from now on.
    pub(crate) ended: bool,
    /// What comes is to be received.
    pub(crate) wanted: bool,
    /// It has its turn in the next turn of the loop (`EventLoop::again`).
    pub(crate) again: bool,
    /// All of what it was sent is the kernel's, of which the worker hears then.
    pub(crate) taken: bool,
    /// Since when the ring sends on it, or is to tell when it has room.
    pub(crate) sending: Option<Instant>,
    /// Its client made us wait when it was last waited for: it is asked for room before the next is
    /// made.
    pub(crate) slow: bool,
    /// What it was sent last is all of its response: the client is not waited for.
    pub(crate) last: bool,
    /// Something came or went since the last look (`Socket::look`).
    pub(crate) busy: bool,
    /// The worker closed it: it goes when the ring is done with it.
    pub(crate) closing: bool,
}

/// How content travels.
#[derive(Debug)]
pub(crate) enum Transport {
    /// As it is: the loopback listener for demonstrations.
    Plain,
    /// Not yet, before the client's first bytes.
    Hello(Versions),
    /// Not yet. Empty while the handshake is being worked on.
    Handshake(Option<Box<Handshake>>),
    /// Sealed.
    Secure(Box<Session>),
}

/// What a receive brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    Bytes(usize),
    Nothing,
    /// There will be no more.
    End,
}

impl Socket {
    pub(crate) fn new(fd: OwnedFd, id: ConnectionId, transport: Transport) -> Self {
        Self {
            fd,
            id,
            noted: None,
            transport,
            tcp_at: None,
            unsent_max: None,
            rest: Vec::new(),
            early: Vec::new(),
            peer_closed: false,
            failed: false,
            watch: None,
            ready: false,
            ended: false,
            wanted: false,
            again: false,
            taken: false,
            sending: None,
            slow: false,
            last: false,
            busy: true,
            closing: false,
        }
    }

    /// Changes what it may hold unsent, if TCP says that this is too much or too little; `least` is
    /// what its listener had.
    pub(crate) fn bound(&mut self, least: Bytes, sample: &TcpSample) {
        let held = self.unsent_max.unwrap_or(least);
        let most = worker::unsent_max(least, held, sample);
        if most == held {
            return;
        }
        match uring::bound_unsent(self.fd.as_fd(), most) {
            Ok(()) => self.unsent_max = Some(most),
            Err(error) => tracing::debug!(%error, "a socket keeps what it may hold unsent"),
        }
    }

    /// Once a second: what nothing came to and nothing went from in between can rest.
    pub(crate) fn look(&mut self) {
        if !std::mem::replace(&mut self.busy, false)
            && let Transport::Secure(session) = &mut self.transport
        {
            session.rest();
        }
    }

    /// Receives what is there, without waiting.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Incoming {
        self.ready = self.ended;
        match rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Incoming::End,
            Ok((len, _)) => {
                self.ready |= len == buffer.len();
                Incoming::Bytes(len)
            }
            Err(Errno::AGAIN | Errno::INTR) => Incoming::Nothing,
            Err(_) => Incoming::End,
        }
    }

    /// Sends as much as the kernel takes at once. With `more` to come soon, the last bytes may wait
    /// to fill a packet (a chunk of 256 KiB sealed is four of the largest and a crumb).
    pub(crate) fn send_now(&self, bytes: &[u8], more: bool) -> io::Result<usize> {
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        flags.set(SendFlags::MORE, more);
        match rustix::net::send(&self.fd, bytes, flags) {
            Ok(len) => Ok(len),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// True if there must be room before the next is read and sealed.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.slow && !self.last
    }

    /// Its client is waited for from now on, if it was not before: what is left of a chunk and then
    /// room are one wait.
    pub(crate) fn waits(&mut self, now: Instant) {
        self.sending.get_or_insert(now);
    }

    /// What it was waited for has come.
    pub(crate) fn has_waited(&mut self, now: Instant) {
        self.slow = self.sending.is_some_and(|since| SLOW <= now.since(since));
    }

    /// Ends both directions; the descriptor stays until the ring is done with it. What the peer
    /// still sends is read away first, since unread bytes would turn the end into a reset that can
    /// overtake the last response (RFC 9112 section 9.6).
    pub(crate) fn shut(&mut self, ending: Ending, scratch: &mut [u8]) {
        self.closing = true;
        match ending {
            Ending::Graceful => {
                if let (Transport::Secure(session), false) =
                    (&mut self.transport, self.sending.is_some() || self.failed)
                {
                    let len = session.close_notify(scratch);
                    let _ = self.send_now(&scratch[..len], false);
                }
                let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
                for _ in 0..DISCARDS_MAX {
                    if !matches!(self.receive(scratch), Incoming::Bytes(_)) {
                        break;
                    }
                }
            }
            Ending::Abort => {
                let now = Some(std::time::Duration::ZERO);
                let _ = rustix::net::sockopt::set_socket_linger(&self.fd, now);
            }
        }
        if self.sending.is_some() {
            let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
        }
    }

    /// True when nothing of the kernel's refers to it any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.watch.is_none() && self.sending.is_none()
    }
}

/// A client for whom we waited so long is slow. Half of `unsent_max` in this time is 21 Mb/s: the
/// other half, which is still to go, outlasts a read of a spindle (its target is 40 ms), so that
/// nothing is lost by reading only when there is room. What a faster client was sent would be gone
/// before the drive has answered.
const SLOW: Nanos = Nanos::millis(50);

/// Receives that are thrown away at the end of a connection; a flood is cut off by a reset.
const DISCARDS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// What the kernel takes for a client that does not read.
    fn taken(mut stream: &TcpStream) -> usize {
        let (content, mut taken) = (vec![0; 64 * 1024], 0);
        while let Ok(len) = stream.write(&content) {
            taken += len;
        }
        taken
    }

    #[test]
    fn a_socket_takes_more_once_more_is_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        let least = Bytes::kib(64);
        uring::bound_unsent(stream.as_fd(), least).unwrap();
        let fd = stream.try_clone().unwrap().into();
        let mut socket = Socket::new(fd, ConnectionId { slot: 0, generation: 0 }, Transport::Plain);
        assert!(0 < taken(&stream));
        let sample = |unacked| TcpSample { unacked, segment: Bytes(1000), ..TcpSample::default() };
        socket.bound(least, &sample(10));
        assert_eq!((taken(&stream), socket.unsent_max), (0, None), "little is on its way");
        socket.bound(least, &sample(400));
        assert_eq!(socket.unsent_max, Some(Bytes::kib(512)));
        let more = taken(&stream);
        assert!((300_000..600_000).contains(&more), "{more} bytes");
        socket.bound(least, &sample(10));
        assert_eq!(socket.unsent_max, Some(least));
    }

    #[test]
    fn slow_is_whoever_was_waited_for_long_the_last_time() {
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let id = ConnectionId { slot: 0, generation: 1 };
        let mut socket = Socket::new(end.into(), id, Transport::Plain);
        let at = |millis: u64| Instant(0) + Nanos::millis(millis);
        let mut wait = |begun: &[u64], over: u64| {
            begun.iter().for_each(|millis| socket.waits(at(*millis)));
            socket.has_waited(at(over));
            socket.sending = None;
            socket.slow
        };
        assert!(!wait(&[1000], 1049), "cut, and fast");
        assert!(wait(&[2000], 2050));
        assert!(wait(&[3000, 3045], 3055), "for what is left, and for room");
        assert!(!wait(&[4000], 4001), "fast again");
    }
}

//! One viewer: a socket, its TLS state, and the response that it waits for.

use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use super::handshake::{self, Keys};
use super::record::{Content, Form, Walk, Walked, Want};
use super::reply::{Asked, Reply};
use super::truth::Truth;

/// Records up to this size are always opened: a key update or a ticket amid a response is one.
const SMALL_RECORD: usize = 1024;
const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
/// A warning of this description (RFC 8446 section 6.1).
const CLOSE_NOTIFY: [u8; 2] = [1, 0];

#[derive(Debug)]
pub(super) enum Turn {
    /// The socket has nothing more, or had its share.
    Pause,
    /// A response is complete; `ask` is to be called next.
    Complete { since: Instant },
    /// The server closed or reset the connection.
    Gone,
}

/// What is done with records that need not be opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Receive {
    /// All bytes are received into memory, as a card or a player does.
    #[default]
    Copy,
    /// The kernel drops them uncopied, so that a server on the same machine gets its pages back
    /// while they are in its cache.
    Discard,
}

/// One read of a client that copies: eight records, so that the system call is some percent of the
/// copy, and a quarter of the smallest L2 cache of the processors that are compared (Zen 3,
/// 512 KiB): all connections of a thread read into the same, and what they write stays in the
/// client's own cache and takes nothing of what it shares with the server.
const COPY_LEN: usize = 128 * 1024;
/// What a dropped record is received into: the kernel leaves it alone.
const SINK_LEN: usize = 64 * 1024;

/// What connections of one load share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Right bytes.
    pub truth: Truth,
    /// Whether bytes that nobody looks at are copied.
    receive: Receive,
    /// Where all bytes go, or where those would go that are dropped.
    room: Vec<u8>,
    /// Room for right bytes.
    pub scratch: Vec<u8>,
    /// Bytes that sockets gave, whatever they were.
    pub received: usize,
    /// Body bytes that came, opened or not.
    pub body_bytes: u64,
    /// Body bytes that were compared.
    pub verified_bytes: u64,
}

impl Shared {
    /// For one load.
    pub(super) fn new(truth: Truth, receive: Receive) -> Self {
        let len = match receive {
            Receive::Copy => COPY_LEN,
            Receive::Discard => SINK_LEN,
        };
        let room = vec![0; len];
        Self {
            truth,
            receive,
            room,
            scratch: Vec::new(),
            received: 0,
            body_bytes: 0,
            verified_bytes: 0,
        }
    }

    /// What came last, if it was copied.
    #[cfg(test)]
    pub(super) fn room(&self) -> &[u8] {
        &self.room
    }
}

/// One keep-alive connection.
pub(super) struct Connection {
    socket: TcpStream,
    keys: Keys,
    walk: Walk,
    reply: Option<Reply>,
    asked_at: Instant,
    /// A sealed request; kept to be used again.
    outgoing: Vec<u8>,
}

impl Connection {
    /// Of a socket after its handshake.
    pub(super) fn new(socket: TcpStream, keys: Keys) -> Result<Self> {
        socket.set_nonblocking(true)?;
        let walk = Walk::new(keys.receive.form());
        Ok(Self { socket, keys, walk, reply: None, asked_at: Instant::now(), outgoing: Vec::new() })
    }

    /// The socket, to be polled.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    pub(super) fn suite(&self) -> rustls::CipherSuite {
        self.keys.suite
    }

    /// True while it waits for a response.
    pub(super) fn is_busy(&self) -> bool {
        self.reply.is_some()
    }

    /// Since when it waits for a response.
    pub(super) fn waits_since(&self) -> Instant {
        self.asked_at
    }

    /// Sends `request`, which asks for `asked`.
    pub(super) fn ask(&mut self, now: Instant, asked: Asked, request: &[u8]) -> Result<()> {
        assert!(self.reply.is_none(), "one request at a time");
        self.outgoing.clear();
        self.keys.send.seal(DATA, request, &mut self.outgoing);
        self.reply = Some(Reply::new(asked));
        self.asked_at = now;
        self.send()
    }

    /// Takes what the socket has, up to the end of a response or to `most` bytes.
    pub(super) fn turn(&mut self, shared: &mut Shared, most: usize) -> Result<Turn> {
        let mut taken = 0;
        while taken < most {
            let came = match shared.receive {
                Receive::Copy => self.receive_all(shared, most - taken),
                Receive::Discard => self.receive_wanted(shared, most - taken),
            };
            let (n, wanted) = match came {
                Ok(some) => some,
                Err(Errno::AGAIN) => return Ok(Turn::Pause),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Ok(Turn::Gone),
                Err(error) => return Err(error).context("cannot receive"),
            };
            if n == 0 {
                return Ok(Turn::Gone);
            }
            taken += n;
            shared.received += n;
            let complete = match shared.receive {
                Receive::Copy => self.walk_through(n, shared)?,
                Receive::Discard => self.walked(n, shared)?,
            };
            if complete {
                return Ok(Turn::Complete { since: self.asked_at });
            }
            if n < wanted {
                break;
            }
        }
        Ok(Turn::Pause)
    }

    /// Receives what there is, whatever it is: (bytes that came, bytes asked for).
    fn receive_all(&self, shared: &mut Shared, most: usize) -> Result<(usize, usize), Errno> {
        let wanted = shared.room.len().min(most);
        let room = &mut shared.room[..wanted];
        let (_, n) = rustix::net::recv(&self.socket, room, RecvFlags::DONTWAIT)?;
        Ok((n, wanted))
    }

    /// Walks through `n` bytes that were received; whether a response ended in them. They may go
    /// beyond it: what may follow unasked are tickets and new keys.
    fn walk_through(&mut self, n: usize, shared: &mut Shared) -> Result<bool> {
        let (mut at, mut complete) = (0, false);
        while at < n {
            let left = n - at;
            let step = match self.walk.want() {
                Want::Keep(into) => {
                    let step = into.len().min(left);
                    into[..step].copy_from_slice(&shared.room[at..at + step]);
                    step
                }
                Want::Drop(wanted) => wanted.min(left),
            };
            at += step;
            complete |= self.walked(step, shared)?;
        }
        Ok(complete)
    }

    /// Receives what the walk wants next: (bytes that came, bytes asked for).
    fn receive_wanted(
        &mut self,
        shared: &mut Shared,
        most: usize,
    ) -> Result<(usize, usize), Errno> {
        let (into, flags) = match self.walk.want() {
            Want::Keep(into) => {
                let len = into.len().min(most);
                (&mut into[..len], RecvFlags::DONTWAIT)
            }
            // On TCP, MSG_TRUNC takes bytes off the queue without copying them (tcp(7)).
            Want::Drop(left) => {
                let len = left.min(shared.room.len()).min(most);
                (&mut shared.room[..len], RecvFlags::DONTWAIT | RecvFlags::TRUNC)
            }
        };
        let wanted = into.len();
        let (_, n) = rustix::net::recv(&self.socket, into, flags)?;
        Ok((n, wanted))
    }

    /// Takes note of bytes that came; whether the response is complete with them.
    fn walked(&mut self, n: usize, shared: &mut Shared) -> Result<bool> {
        match self.walk.came(n)? {
            Walked::Part => {}
            Walked::Header(len) => {
                let open = self.reply.as_ref().is_none_or(Reply::wants_bytes);
                if open || len <= SMALL_RECORD {
                    self.walk.keep();
                } else {
                    self.walk.skip();
                }
            }
            Walked::Dropped(len) => {
                self.keys.receive.skip();
                let n = u64::try_from(len - self.keys.receive.form().overhead())?;
                shared.body_bytes += n;
                self.reply.as_mut().context("data came unasked")?.skipped(n)?;
            }
            Walked::Kept => self.opened(shared)?,
        }
        let complete = self.reply.as_ref().is_some_and(Reply::is_complete);
        if complete {
            self.reply = None;
        }
        Ok(complete)
    }

    fn opened(&mut self, shared: &mut Shared) -> Result<()> {
        let (header, record) = self.walk.record_mut();
        let (content, plain) = self.keys.receive.open(header, record)?;
        match content {
            Content::Data => {
                let reply = self.reply.as_mut().context("data came unasked")?;
                let verify = reply.asked().verify;
                let n = reply.bytes(plain, |asked, offset, body| {
                    if !verify {
                        return Ok(());
                    }
                    shared.truth.compare(asked.target, offset, body, &mut shared.scratch)
                })?;
                shared.body_bytes += n;
                shared.verified_bytes += if verify { n } else { 0 };
                Ok(())
            }
            Content::Handshake => {
                let messages = plain.to_vec();
                self.handshake_messages(&messages)
            }
            // The connection's end follows.
            Content::Alert if plain == CLOSE_NOTIFY => Ok(()),
            Content::Alert => bail!("the server closed with the TLS alert {plain:?}"),
            Content::Other(kind) => bail!("a TLS record of unknown type {kind}"),
        }
    }

    /// Tickets are dropped; key updates change our keys (RFC 8446, section 4.6).
    fn handshake_messages(&mut self, mut messages: &[u8]) -> Result<()> {
        while let [kind, a, b, c, rest @ ..] = messages {
            let len = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
            let (body, after) = rest.split_at_checked(len).context("a cut-off TLS message")?;
            match (*kind, body) {
                (NEW_SESSION_TICKET, _) => {}
                (KEY_UPDATE, [asked]) => self.key_update(*asked == 1)?,
                (kind, _) => bail!("an unexpected TLS handshake message of type {kind}"),
            }
            messages = after;
        }
        ensure!(messages.is_empty(), "a cut-off TLS message");
        Ok(())
    }

    fn key_update(&mut self, ours_too: bool) -> Result<()> {
        self.keys.receive = handshake::key(Form::Tls13, self.keys.kernel.update_rx_secret()?)?;
        if !ours_too {
            return Ok(());
        }
        self.outgoing.clear();
        self.keys.send.seal(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], &mut self.outgoing);
        self.keys.send = handshake::key(Form::Tls13, self.keys.kernel.update_tx_secret()?)?;
        self.send()
    }

    /// A request is far smaller than a send buffer, and the one before it was answered: it fits.
    fn send(&self) -> Result<()> {
        let n = rustix::net::send(&self.socket, &self.outgoing, SendFlags::NOSIGNAL)
            .context("cannot send a request")?;
        ensure!(n == self.outgoing.len(), "a send buffer without room for one request");
        Ok(())
    }
}

//! Simple clients: those that wait in the middle of a body, and those that play on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use model::units::Bytes;
use rig::client::Pattern;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// For a connection, and for each step of an answer while nothing is broken.
pub(crate) const CONNECT_MAX: Duration = Duration::from_millis(300);
/// A client that has had nothing for so long has stalled: players have buffered 12 s.
const STALLED: Duration = Duration::from_secs(12);
/// What clients take at a time at most, and how fast: 1.3 MB/s, less than they are sent.
const SIP: usize = 64 << 10;
const TAKEN_PER_MS: usize = 1300;
/// Little enough that what is buffered is read within a fraction of a second.
const BUFFER: usize = 64 << 10;

/// How to reach a server, and what it must show.
#[derive(Clone)]
pub(crate) struct Way {
    pub(crate) at: SocketAddr,
    pub(crate) config: Arc<ClientConfig>,
    /// The path of the asset version, with its token: `/t/../film-1/`.
    pub(crate) base: String,
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

impl Way {
    pub(crate) fn connect(&self, within: Duration) -> Result<Tls> {
        let tcp = TcpStream::connect_timeout(&self.at, within)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(within))?;
        rustix::net::sockopt::set_socket_recv_buffer_size(&tcp, BUFFER)?;
        let name = ServerName::try_from(self.at.ip().to_string())?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name)?;
        let mut tls = StreamOwned::new(connection, tcp);
        while tls.conn.is_handshaking() {
            tls.conn.complete_io(&mut tls.sock)?;
        }
        Ok(tls)
    }

    /// `fields` are whole lines.
    fn ask(&self, tls: &mut Tls, file: &str, fields: &str) -> Result<()> {
        let (host, base) = (self.at, &self.base);
        let request = format!("GET {base}{file} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        Ok(tls.write_all(request.as_bytes())?)
    }

    /// An answer on a connection, taken in sips: its body, or where it is sent on to.
    pub(crate) fn get(&self, tls: &mut Tls, file: &str, fields: &str) -> Result<Answer> {
        self.ask(tls, file, fields)?;
        let (status, head, mut body) = head(tls)?;
        if status == 307 {
            let to = field(&head, "location").context("a 307 says where")?;
            return Ok(Answer::Elsewhere(to.to_owned()));
        }
        ensure!([200, 206].contains(&status), "{file}: {status}");
        let len: usize = field(&head, "content-length").context("no length")?.parse()?;
        let mut piece = vec![0; SIP];
        while body.len() < len {
            match tls.read(&mut piece).context(BROKEN)? {
                0 => bail!("{BROKEN}: it ends after {} of {len} bytes", body.len()),
                got => {
                    body.extend_from_slice(&piece[..got]);
                    std::thread::sleep(pause(got));
                }
            }
        }
        Ok(Answer::Body(body))
    }
}

/// What came of a request.
pub(crate) enum Answer {
    Body(Vec<u8>),
    Elsewhere(String),
}

/// After so many bytes.
fn pause(taken: usize) -> Duration {
    Duration::from_millis(Bytes::of(taken / TAKEN_PER_MS).0)
}

/// Status, fields, and what came of the body with them.
fn head(tls: &mut Tls) -> Result<(u16, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = vec![0; SIP];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let status = text.get(9..12).context("no status")?.parse()?;
            return Ok((status, text, bytes[end + 4..].to_vec()));
        }
        match tls.read(&mut piece)? {
            0 => bail!("closed before an answer"),
            got => bytes.extend_from_slice(&piece[..got]),
        }
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let of = |line: &'a str| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then_some(value.trim())
    };
    head.lines().find_map(of)
}

/// Takes a long body in sips until `cut`, then as players do: waits for the rest, is reset or gives
/// up, connects anew and asks. Returns when the next byte came after the cut; none within
/// [`STALLED`].
pub(crate) fn waiting(way: &Way, cut: &AtomicBool) -> Result<Option<Duration>> {
    let mut tls = way.connect(CONNECT_MAX)?;
    way.ask(&mut tls, LONG, "")?;
    let mut sip = vec![0; SIP];
    while !cut.load(Ordering::SeqCst) {
        let got = match tls.read(&mut sip) {
            // On a busy machine it may take longer than this socket waits.
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            other => other?,
        };
        ensure!(got != 0, "the long file has ended too soon");
        std::thread::sleep(pause(got));
    }
    let began = Instant::now();
    tls.sock.set_read_timeout(Some(STALLED))?;
    // What is buffered counts for nothing: it came before.
    while tls.read(&mut sip).is_ok_and(|got| 0 < got) {}
    while began.elapsed() < STALLED {
        let again = way.connect(CONNECT_MAX).and_then(|mut tls| {
            way.ask(&mut tls, LONG, "")?;
            head(&mut tls).map(|(status, ..)| status)
        });
        match again {
            Ok(200) => return Ok(Some(began.elapsed())),
            Ok(_) | Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
    Ok(None)
}

const BROKEN: &str = "a body was broken off";

/// The file that clients ask for.
pub(crate) const LONG: &str = "long.mp4";
/// What players ask for at a time, 1.6 s long, and how many there are.
const PIECE: usize = 2 << 20;
const PIECES: usize = 48;
pub(crate) const LONG_LEN: usize = PIECE * PIECES;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What somebody who plays on has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Played {
    pub(crate) pieces: u64,
    /// Bodies that were broken off, or had wrong bytes.
    pub(crate) cut: u64,
    /// Requests sent again: without an answer, or without a connection.
    pub(crate) again: u64,
    pub(crate) wrong: u64,
    /// Requests that were sent on.
    pub(crate) sent_on: u64,
    /// The longest time from one piece to the next.
    pub(crate) gap: Duration,
}

/// Plays pieces of the long file one after the other by one address until `end`, following where it
/// is sent on to. A body is under way nearly all the time.
pub(crate) fn play(way: &Way, long: Pattern, end: &AtomicBool) -> Played {
    let mut played = Played::default();
    let (mut last, mut index) = (Instant::now(), 0);
    let mut wanted = vec![0; PIECE];
    let mut tls: Option<Tls> = None;
    while !end.load(Ordering::SeqCst) {
        match piece(way, &mut tls, index) {
            Ok((bytes, was_sent_on)) => {
                long.fill(0, offset(index), &mut wanted);
                played.sent_on += u64::from(was_sent_on);
                played.wrong += u64::from(bytes != wanted);
                played.pieces += 1;
                played.gap = played.gap.max(last.elapsed());
                (last, index) = (Instant::now(), (index + 1) % PIECES);
            }
            Err(error) => {
                let error = format!("{error:#}");
                // Without a byte of an answer a request is sent again, and nothing was lost.
                played.cut += u64::from(error.contains(BROKEN));
                played.again += u64::from(!error.contains(BROKEN));
                tracing::debug!(error, "a piece failed");
                tls = None;
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
    played.gap = played.gap.max(last.elapsed());
    played
}

fn offset(index: usize) -> u64 {
    Bytes::of(index * PIECE).0
}

fn piece(way: &Way, tls: &mut Option<Tls>, index: usize) -> Result<(Vec<u8>, bool)> {
    let first = offset(index);
    let range = format!("Range: bytes={first}-{}\r\n", first + Bytes::of(PIECE).0 - 1);
    let mut open = match tls.take() {
        Some(open) => open,
        None => way.connect(CONNECT_MAX)?,
    };
    match way.get(&mut open, LONG, &range)? {
        Answer::Body(bytes) => {
            *tls = Some(open);
            Ok((bytes, false))
        }
        Answer::Elsewhere(to) => {
            let rest = to.strip_prefix("https://").context("sent on without TLS")?;
            let (at, path) = rest.split_once('/').context("no path")?;
            let base = format!("/{}", path.split_once(LONG).context("another file")?.0);
            let other = Way { at: at.parse()?, config: Arc::clone(&way.config), base };
            let mut there = other.connect(CONNECT_MAX)?;
            match other.get(&mut there, &format!("{LONG}?hop=1"), &range)? {
                Answer::Body(bytes) => Ok((bytes, true)),
                Answer::Elsewhere(_) => bail!("sent on twice"),
            }
        }
    }
}

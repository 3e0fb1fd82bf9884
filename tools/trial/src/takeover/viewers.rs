//! Simple clients: those that wait in the middle of a body, those that play on, and many that only
//! have a connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::outage::{Film, name};

/// For a connection, and for each step of an answer while nothing is broken.
const CONNECT_MAX: Duration = Duration::from_millis(300);
/// A client that has had nothing for so long has stalled: players have buffered 12 s.
const STALLED: Duration = Duration::from_secs(12);
/// What waiting clients take at a time, and how often: 1.3 MB/s, less than they are sent.
const SIP: usize = 64 << 10;
const SIP_EVERY: Duration = Duration::from_millis(50);
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

    pub(crate) fn ask(&self, tls: &mut Tls, file: &str) -> Result<()> {
        let host = self.at;
        let request = format!("GET {}{file} HTTP/1.1\r\nHost: {host}\r\n\r\n", self.base);
        Ok(tls.write_all(request.as_bytes())?)
    }

    /// A whole small answer on a connection; its body, or where it is sent on to.
    pub(crate) fn get(&self, tls: &mut Tls, file: &str) -> Result<Answer> {
        self.ask(tls, file)?;
        let (status, head, mut body) = head(tls)?;
        if status == 307 {
            let to = field(&head, "location").context("a 307 says where")?;
            return Ok(Answer::Elsewhere(to.to_owned()));
        }
        ensure!(status == 200, "{file}: {status}");
        let len: usize = field(&head, "content-length").context("no length")?.parse()?;
        let mut piece = vec![0; SIP];
        while body.len() < len {
            match tls.read(&mut piece)? {
                0 => bail!("{file} ends after {} of {len} bytes", body.len()),
                got => body.extend_from_slice(&piece[..got]),
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
    way.ask(&mut tls, LONG)?;
    let mut sip = vec![0; SIP];
    while !cut.load(Ordering::SeqCst) {
        ensure!(tls.read(&mut sip)? != 0, "the long file has ended too soon");
        std::thread::sleep(SIP_EVERY);
    }
    let began = Instant::now();
    tls.sock.set_read_timeout(Some(STALLED))?;
    // What is buffered counts for nothing: it came before.
    while tls.read(&mut sip).is_ok_and(|got| 0 < got) {}
    while began.elapsed() < STALLED {
        let again = way.connect(CONNECT_MAX).and_then(|mut tls| {
            way.ask(&mut tls, LONG)?;
            head(&mut tls).map(|(status, ..)| status)
        });
        match again {
            Ok(200) => return Ok(Some(began.elapsed())),
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
    Ok(None)
}

/// The file that waiting clients ask for.
pub(crate) const LONG: &str = "long.mp4";

/// What somebody who plays on has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Played {
    pub(crate) segments: u64,
    /// Bodies that were broken off, or had wrong bytes.
    pub(crate) cut: u64,
    pub(crate) wrong: u64,
    /// Requests that were sent on.
    pub(crate) sent_on: u64,
    /// The longest time without a segment.
    pub(crate) gap: Duration,
}

/// Plays segments one after the other by one address until `end`, following where it is sent on to.
pub(crate) fn play(way: &Way, film: Film, end: &AtomicBool) -> Played {
    let mut played = Played::default();
    let (mut last, mut index) = (Instant::now(), 0);
    let mut tls: Option<Tls> = None;
    while !end.load(Ordering::SeqCst) {
        let reused = tls.is_some();
        match segment(way, &mut tls, index) {
            Ok((bytes, was_sent_on)) => {
                played.sent_on += u64::from(was_sent_on);
                played.wrong += u64::from(film.check(index, &bytes).is_err());
                played.segments += 1;
                played.gap = played.gap.max(last.elapsed());
                (last, index) = (Instant::now(), (index + 1) % film.segments());
            }
            Err(error) => {
                // A kept connection that is closed between two requests costs nothing.
                let in_body = format!("{error:#}").contains("ends after");
                played.cut += u64::from(in_body);
                tracing::debug!(error = format!("{error:#}"), reused, "a segment failed");
                tls = None;
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    played.gap = played.gap.max(last.elapsed());
    played
}

fn segment(way: &Way, tls: &mut Option<Tls>, index: usize) -> Result<(Vec<u8>, bool)> {
    let mut open = match tls.take() {
        Some(open) => open,
        None => way.connect(CONNECT_MAX)?,
    };
    let file = name(index);
    match way.get(&mut open, &file)? {
        Answer::Body(bytes) => {
            *tls = Some(open);
            Ok((bytes, false))
        }
        Answer::Elsewhere(to) => {
            let rest = to.strip_prefix("https://").context("sent on without TLS")?;
            let (at, path) = rest.split_once('/').context("no path")?;
            let base = format!("/{}", path.split_once(&*file).context("another file")?.0);
            let other = Way { at: at.parse()?, config: Arc::clone(&way.config), base };
            let mut there = other.connect(CONNECT_MAX)?;
            match other.get(&mut there, &format!("{file}?hop=1"))? {
                Answer::Body(bytes) => Ok((bytes, true)),
                Answer::Elsewhere(_) => bail!("sent on twice"),
            }
        }
    }
}

/// Many connections that ask for nothing.
pub(crate) struct Crowd(Vec<Tls>);

impl Crowd {
    pub(crate) fn connect(way: &Way, count: usize) -> Result<Self> {
        let one = |_| way.connect(CONNECT_MAX * 20).context("a client of the crowd");
        (0..count).map(one).collect::<Result<_>>().map(Self)
    }

    /// Waits until all are reset or closed; how many are within this time.
    pub(crate) fn gone(&self, within: Duration) -> Result<(usize, Duration)> {
        let began = Instant::now();
        let mut left: Vec<&TcpStream> = self.0.iter().map(|tls| &tls.sock).collect();
        while !left.is_empty() && began.elapsed() < within {
            let mut polled: Vec<PollFd<'_>> =
                left.iter().map(|socket| PollFd::new(*socket, PollFlags::RDHUP)).collect();
            let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            poll(&mut polled, Some(&wait))?;
            let gone: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
            let mut gone = gone.into_iter();
            left.retain(|_| !gone.next().unwrap_or(false));
        }
        Ok((self.0.len() - left.len(), began.elapsed()))
    }
}

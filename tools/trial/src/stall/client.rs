//! A player that asks over connections that it keeps, compares every byte, and follows redirects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::stage::Object;
use rustix::net::RecvFlags;

/// One player; at most one request at a time.
pub(crate) struct Client {
    connection: Option<(SocketAddr, TcpStream)>,
    /// A head, and what came with it; and the body.
    buffer: Vec<u8>,
    body: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Compare,
    /// Bytes are counted and no more. A player that costs as much as the appliance would measure
    /// itself.
    Count,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    location: Option<String>,
    /// Bytes of the body that are not what they should be.
    pub(crate) wrong: u64,
}

/// What came of a request, with all redirects.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    pub(crate) statuses: Vec<u16>,
    pub(crate) wrong: u64,
    /// No answer came, or only a part of one.
    pub(crate) broken: bool,
}

/// A body that has begun to come, and is taken slowly.
pub(crate) struct Begun {
    stream: TcpStream,
    left: u64,
}

/// Longest wait for a byte.
const PATIENCE: Duration = Duration::from_secs(10);
/// Nobody follows more.
const REDIRECTS_MAX: usize = 5;
const HEAD_LEN_MAX: usize = 16 * 1024;

impl Answer {
    /// All of the object, and no other byte.
    pub(crate) fn is_right(&self) -> bool {
        self.status == 200 && self.wrong == 0
    }
}

impl Chain {
    /// The last status; none if the last answer did not come whole.
    pub(crate) fn end_status(&self) -> Option<u16> {
        self.statuses.last().copied().filter(|_| !self.broken)
    }

    /// Redirects that were followed.
    pub(crate) fn redirects(&self) -> usize {
        self.statuses.iter().filter(|status| **status == 307).count()
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { connection: None, buffer: Vec::new(), body: Vec::new() }
    }

    /// Asks for an object and compares it.
    pub(crate) fn get(&mut self, at: &(SocketAddr, String), object: &Object) -> Result<Answer> {
        self.take(at, object, Body::Compare)
    }

    /// The same, and does with the body what is said.
    pub(crate) fn take(
        &mut self,
        at: &(SocketAddr, String),
        object: &Object,
        body: Body,
    ) -> Result<Answer> {
        let answer = self.try_take(at, object, body);
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    /// The same, and goes where it is sent.
    pub(crate) fn follow(&mut self, mut at: (SocketAddr, String), object: &Object) -> Chain {
        let mut chain = Chain::default();
        while chain.redirects() <= REDIRECTS_MAX {
            let Ok(answer) = self.get(&at, object) else {
                chain.broken = true;
                break;
            };
            chain.statuses.push(answer.status);
            chain.wrong += answer.wrong;
            let Some(location) = answer.location.as_deref().and_then(place_of) else { break };
            at = location;
        }
        chain
    }

    fn try_take(
        &mut self,
        (address, target): &(SocketAddr, String),
        object: &Object,
        what: Body,
    ) -> Result<Answer> {
        if self.connection.as_ref().is_none_or(|(known, _)| known != address) {
            self.connection = Some((*address, connect(*address)?));
        }
        let (_, stream) = self.connection.as_mut().context("just connected")?;
        ask(stream, target)?;
        self.buffer.clear();
        let head = read_head(stream, &mut self.buffer)?;
        let begun = &self.buffer[head.len..];
        ensure!(begun.len() <= head.body_len, "more came than was announced");
        if self.body.len() < head.body_len {
            self.body.resize(head.body_len, 0);
        }
        let body = &mut self.body[..head.body_len];
        body[..begun.len()].copy_from_slice(begun);
        let rest = &mut body[begun.len()..];
        let mut wrong = 0;
        if what == Body::Count && head.status == 200 {
            drop_bytes(stream, rest)?;
            wrong = u64::try_from(head.body_len.abs_diff(object.bytes.len()))?;
        } else {
            stream.read_exact(rest).context("the body ended too early")?;
            if head.status == 200 {
                wrong = rig::stage::differing(body, &object.bytes);
            }
        }
        Ok(Answer { status: head.status, location: head.location, wrong })
    }
}

impl Begun {
    /// Asks, and takes the first bytes of the body.
    pub(crate) fn new((address, target): &(SocketAddr, String)) -> Result<Self> {
        let mut stream = connect(*address)?;
        ask(&mut stream, target)?;
        let mut buffer = Vec::new();
        let head = read_head(&mut stream, &mut buffer)?;
        ensure!(head.status == 200, "status {} for a large object", head.status);
        let left = u64::try_from(head.body_len + head.len - buffer.len())?;
        Ok(Self { stream, left })
    }

    /// Takes what comes until nothing more does; true if that was all.
    pub(crate) fn read_to_its_end(mut self, patience: Duration) -> Result<bool> {
        let began = Instant::now();
        self.stream.set_read_timeout(Some(patience))?;
        let mut piece = vec![0; 64 * 1024];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(len) => self.left = self.left.saturating_sub(u64::try_from(len)?),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => bail!("not reset after {:?}: {error}", began.elapsed()),
            }
            if self.left == 0 {
                break;
            }
        }
        Ok(self.left == 0)
    }
}

/// Takes bytes off the queue without copying them (MSG_TRUNC, tcp(7)).
fn drop_bytes(stream: &TcpStream, place: &mut [u8]) -> Result<()> {
    let mut left = place.len();
    while 0 < left {
        let flags = RecvFlags::TRUNC | RecvFlags::WAITALL;
        let (_, len) = rustix::net::recv(stream, &mut place[..left], flags)?;
        ensure!(len != 0, "the body ended too early");
        left -= len;
    }
    Ok(())
}

struct Head {
    len: usize,
    status: u16,
    body_len: usize,
    location: Option<String>,
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn ask(stream: &mut TcpStream, target: &str) -> Result<()> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: lab\r\n\r\n");
    Ok(stream.write_all(request.as_bytes())?)
}

/// Reads until the head is whole; `buffer` has it, and what came behind it.
fn read_head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<Head> {
    let mut piece = [0; 16 * 1024];
    loop {
        let len = stream.read(&mut piece)?;
        ensure!(len != 0, "no answer");
        buffer.extend_from_slice(&piece[..len]);
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(head_len) = head.parse(buffer)? else {
            ensure!(buffer.len() < HEAD_LEN_MAX, "an endless head");
            continue;
        };
        let field = |name: &str| {
            let mut named = head.headers.iter().filter(|f| f.name.eq_ignore_ascii_case(name));
            named.next().and_then(|field| std::str::from_utf8(field.value).ok())
        };
        let body_len = field("content-length").context("no length")?.parse()?;
        let location = field("location").map(str::to_owned);
        return Ok(Head { len: head_len, status: head.code.unwrap_or(0), body_len, location });
    }
}

fn place_of(location: &str) -> Option<(SocketAddr, String)> {
    let rest = location.strip_prefix("http://")?;
    let (host, path) = rest.split_once('/')?;
    Some((host.parse().ok()?, format!("/{path}")))
}

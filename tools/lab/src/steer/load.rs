//! Connections that stay open and ask again as soon as they have their answer.

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rig::cpu::Account;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;

/// What is asked, of whom, and how an answer is judged.
pub(super) struct Load {
    address: SocketAddr,
    requests: Rc<Vec<Vec<u8>>>,
    is_good: fn(&[u8]) -> bool,
    answer_len: usize,
}

/// What came while it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// Answers in a second of the server's CPU time.
    pub(super) per_s_core: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

/// What all connections share.
struct Shared {
    requests: Rc<Vec<Vec<u8>>>,
    next: Cell<usize>,
    is_good: fn(&[u8]) -> bool,
    answers: Cell<u64>,
    took: RefCell<Histogram<u64>>,
}

/// Every so many answers, one is judged whole; of the others, status and length.
const JUDGE_EVERY: u64 = 64;
/// A slower answer counts as this slow.
const SLOWEST_NS: u64 = 60_000_000_000;
/// Longest answer.
const ANSWER_MAX: usize = 64 << 10;

impl Load {
    /// Asks once, so that the length of an answer is known.
    pub(super) fn new(
        address: SocketAddr,
        paths: Vec<String>,
        is_good: fn(&[u8]) -> bool,
    ) -> Result<Self> {
        let request = |path: String| {
            format!(
                "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: nearcast-lab\r\n\
                 Accept: */*\r\n\r\n"
            )
            .into_bytes()
        };
        let requests: Vec<Vec<u8>> = paths.into_iter().map(request).collect();
        let first = requests.first().context("nothing is to be asked")?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(first)?;
        let mut buffer = Vec::new();
        let body = loop {
            let mut piece = [0; 4096];
            let count = stream.read(&mut piece)?;
            ensure!(0 < count, "{address} has closed the connection");
            buffer.extend_from_slice(&piece[..count]);
            if let Some(answer) = answer(&buffer)? {
                break answer;
            }
        };
        let text = String::from_utf8_lossy(&buffer);
        ensure!(is_good(&buffer[body.clone()]), "{address} has answered: {text}");
        Ok(Self { address, requests: Rc::new(requests), is_good, answer_len: body.len() })
    }

    pub(super) fn answer_len(&self) -> usize {
        self.answer_len
    }

    /// Asks for half a window, then for a window; the server's CPU time is that of `account`.
    pub(super) fn run(
        &self,
        connections: u16,
        window: Duration,
        account: &Account,
    ) -> Result<Window> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let shared = Rc::new(Shared {
            requests: Rc::clone(&self.requests),
            next: Cell::new(0),
            is_good: self.is_good,
            answers: Cell::new(0),
            took: RefCell::new(Histogram::new_with_bounds(1, SLOWEST_NS, 3)?),
        });
        let tasks = LocalSet::new();
        tasks.block_on(&runtime, async {
            let connection = |_| tokio::task::spawn_local(ask(self.address, Rc::clone(&shared)));
            let all: Vec<_> = (0..connections).map(connection).collect();
            tokio::time::sleep(window / 2).await;
            shared.took.borrow_mut().reset();
            let (before, used) = (shared.answers.get(), account.used()?);
            tokio::time::sleep(window).await;
            let answers = shared.answers.get() - before;
            let used = account.used()? - used;
            for one in all {
                if one.is_finished() {
                    one.await??;
                }
                // Those that still ask end with the runtime.
            }
            let took = shared.took.borrow();
            let micros = |share| Duration::from_nanos(took.value_at_quantile(share)).as_secs_f64();
            ensure!(0 < answers, "no answer came");
            Ok(Window {
                per_s_core: f64::from(u32::try_from(answers)?) / used.as_secs_f64(),
                p50_us: micros(0.5) * 1e6,
                p99_us: micros(0.99) * 1e6,
            })
        })
    }
}

/// One connection; it asks until it is dropped, or an answer is not right.
async fn ask(address: SocketAddr, shared: Rc<Shared>) -> Result<()> {
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(ANSWER_MAX);
    loop {
        let at = shared.next.get();
        shared.next.set((at + 1) % shared.requests.len());
        let asked = Instant::now();
        stream.write_all(&shared.requests[at]).await?;
        buffer.clear();
        let body = loop {
            ensure!(buffer.len() < ANSWER_MAX, "an answer is too long");
            let count = stream.read_buf(&mut buffer).await?;
            ensure!(0 < count, "{address} has closed the connection");
            if let Some(body) = answer(&buffer)? {
                break body;
            }
        };
        let took = u64::try_from(asked.elapsed().as_nanos())?;
        shared.took.borrow_mut().saturating_record(took);
        shared.answers.set(shared.answers.get() + 1);
        if shared.answers.get().is_multiple_of(JUDGE_EVERY) {
            let body = &buffer[body];
            let text = || String::from_utf8_lossy(body).into_owned();
            ensure!((shared.is_good)(body), "{address} has answered: {}", text());
        }
    }
}

/// Where the body of an answer is, once all of it has come; an error if it is no good answer.
fn answer(bytes: &[u8]) -> Result<Option<std::ops::Range<usize>>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&bytes[..end])?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "an answer that is not good: {head}");
    let len =
        head.split("\r\n").filter_map(|line| line.split_once(": ")).find_map(|(name, len)| {
            name.eq_ignore_ascii_case("content-length").then(|| len.parse::<usize>())
        });
    let body = end + 4..end + 4 + len.context("an answer without Content-Length")??;
    Ok((body.end <= bytes.len()).then_some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_come_once_its_last_byte_has() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(answer(&whole[..20]).unwrap(), None);
        assert_eq!(answer(&whole[..whole.len() - 1]).unwrap(), None);
        let body = answer(whole).unwrap().unwrap();
        assert_eq!(&whole[body], b"abc");
    }

    #[test]
    fn what_is_no_good_answer_ends_the_run() {
        assert!(answer(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n").is_err());
        assert!(answer(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}

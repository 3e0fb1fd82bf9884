//! Sends a case and sees what comes of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::table::{Case, Names};

/// What is written on a connection of its own.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: Vec<u8>,
    /// Written so many bytes at a time.
    pub(crate) pieces: Option<usize>,
    /// The server is told that no more comes.
    pub(crate) end: bool,
}

#[derive(Debug)]
pub(crate) struct Taken {
    /// All bytes, with the probe's answer if there is one.
    pub(crate) got: Vec<u8>,
    /// `keep`, `close` or `wait`.
    pub(crate) end: &'static str,
}

/// How a server took a case, in the words of the table. Patience is for servers that wait.
pub(crate) fn take(
    server: SocketAddr,
    case: &Case,
    names: &Names,
    content: &[u8],
    patience: Duration,
) -> std::io::Result<String> {
    let sent = Sent { bytes: case.bytes(names), pieces: case.pieces, end: case.end };
    Ok(exchange(server, &sent, content, patience)?.words())
}

/// Sends, and reads until the probe is answered, the connection ends or patience does.
///
/// `keep` wants the probe's own bytes: a server that took the case's tail for a request, or a part
/// of the probe for the case's body, does not send them at the right place.
pub(crate) fn exchange(
    server: SocketAddr,
    sent: &Sent,
    content: &[u8],
    patience: Duration,
) -> std::io::Result<Taken> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let bytes = &sent.bytes;
    for piece in bytes.chunks(sent.pieces.unwrap_or(usize::MAX).min(bytes.len().max(1))) {
        // A server may have closed before it had all: what it said is read below.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    if sent.end {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut got = Vec::new();
    let until = Instant::now() + patience;
    let mut buffer = vec![0; 65_536];
    let end = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break "wait";
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer) {
            Ok(0) => break "close",
            Ok(len) => got.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break "close",
        }
        if is_probe_answered(&got, content) {
            break "keep";
        }
    };
    Ok(Taken { got, end })
}

impl Taken {
    /// The responses without the probe's, each from its status line on.
    pub(crate) fn responses(&self) -> Vec<&[u8]> {
        let mut starts = starts(&self.got);
        let mut end = self.got.len();
        if self.end == "keep" {
            end = starts.pop().unwrap_or(end);
        }
        let ends = starts.iter().skip(1).copied().chain([end]);
        starts.iter().zip(ends).map(|(start, end)| &self.got[*start..end]).collect()
    }

    /// Bytes came that are no response's.
    pub(crate) fn begins_without_head(&self) -> bool {
        !self.got.is_empty() && starts(&self.got).first() != Some(&0)
    }

    fn words(&self) -> String {
        let mut words = Vec::new();
        if self.begins_without_head() {
            words.push("0.9".to_owned());
        }
        for response in self.responses() {
            let status = response.get(9..12).unwrap_or(b"?");
            words.push(String::from_utf8_lossy(status).into_owned());
        }
        words.push(self.end.to_owned());
        words.join(" ")
    }
}

fn is_probe_answered(got: &[u8], content: &[u8]) -> bool {
    let head = last_head(got);
    let tail = [b"\r\n\r\n", &content[7..10]].concat();
    find(head, b"Content-Range: bytes 7-9/").is_some() && head.ends_with(&tail)
}

fn last_head(got: &[u8]) -> &[u8] {
    let starts = starts(got);
    starts.last().map_or(&[], |at| &got[*at..])
}

/// Where responses begin. The file that is served has no such text in it.
fn starts(got: &[u8]) -> Vec<usize> {
    let begins = |at: &usize| got[*at..].starts_with(b"HTTP/1.1 ");
    (0..got.len()).filter(begins).collect()
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

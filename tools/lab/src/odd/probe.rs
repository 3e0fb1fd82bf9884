//! Sends a case and sees what comes of it.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::table::{Case, Names};

/// How a server took a case, in the words of the table. Patience is for servers that wait.
///
/// `keep` wants the probe's own bytes: a server that took the case's tail for a request, or a part
/// of the probe for the case's body, does not send them at the right place.
pub(crate) fn take(
    server: SocketAddr,
    case: &Case,
    names: &Names,
    content: &[u8],
    patience: Duration,
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_nodelay(true)?;
    let bytes = case.bytes(names);
    for piece in bytes.chunks(case.pieces.unwrap_or(usize::MAX).min(bytes.len().max(1))) {
        // A server may have closed before it had all: what it said is read below.
        if stream.write_all(piece).is_err() {
            break;
        }
    }
    if case.end {
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
    Ok(words(&got, end))
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

fn words(got: &[u8], end: &str) -> String {
    let mut words = Vec::new();
    let mut starts = starts(got);
    if !got.is_empty() && starts.first() != Some(&0) {
        words.push("0.9".to_owned());
    }
    if end == "keep" {
        starts.pop();
    }
    for at in starts {
        let status = got.get(at + 9..at + 12).unwrap_or(b"?");
        words.push(String::from_utf8_lossy(status).into_owned());
    }
    words.push(end.to_owned());
    words.join(" ")
}

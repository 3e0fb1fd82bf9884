//! The request log: one line per request, written when its response ends.
//!
//! ```text
//! time                 status method path           range     bytes   first whole  session  end
//! 2026-11-22T03:41:10Z 206    GET    bbb-1/v0/1.mp4 0-2097151 2097152 3.1ms 71.3ms 9f86d081 whole
//! ```
//!
//! `first` and `whole` are from the request to its first and to its last byte in the kernel's
//! hands; `end` is `cut` if that last byte never got there. Of viewers there is a hash of the
//! session and nothing else (docs/operate/privacy.md). Nothing here is allocated per request: lines
//! are written where the one before stood.

use http1::response::decimal;
use http1::{Method, Request, date};
use model::units::{Bytes, Instant, UnixSeconds};

use crate::event::Now;

/// Bytes of lines that nobody has taken away yet. A line beyond is lost, and counted.
pub const LINES_LEN_MAX: usize = 256 * 1024;
/// Longest path in a line; of a longer one its beginning.
const PATH_LEN_MAX: usize = 256;
/// Longest range in a line; a longer one is `?`.
const RANGE_LEN_MAX: usize = 48;

/// The request log's notes on a connection's current request.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    begun: Instant,
    begun_wall: UnixSeconds,
    first: Option<Instant>,
    sent: Bytes,
}

impl Entry {
    /// A request was read, or bytes that should have been one.
    pub(crate) fn begin(&mut self, now: Now, request: Option<&Request<'_>>, line: &mut Vec<u8>) {
        (self.begun, self.begun_wall) = (now.instant, now.wall);
        (self.first, self.sent) = (None, Bytes::ZERO);
        line.clear();
        let Some(request) = request else {
            line.extend_from_slice(b"- - -");
            return;
        };
        let method: &[u8] = match request.method {
            Method::Get => b"GET ",
            Method::Head => b"HEAD ",
            Method::Options => b"OPTIONS ",
            Method::Other => b"OTHER ",
        };
        line.extend_from_slice(method);
        write_path(request.path, line);
        line.push(b' ');
        write_range(request.fields.range, line);
    }

    /// So much of the body went to the kernel.
    pub(crate) fn sending(&mut self, now: Instant, len: Bytes) {
        self.first.get_or_insert(now);
        self.sent += len;
    }
}

/// A token opens doors, so what stands in its place is cut out wherever it stands; the path behind
/// it says what was asked for. What has no token has no business here, and little room.
fn write_path(path: &str, out: &mut Vec<u8>) {
    let behind_token = path.strip_prefix("/t/").and_then(|rest| rest.split_once('/'));
    let path = behind_token.map(|(_, path)| path).filter(|path| !path.is_empty()).unwrap_or("-");
    let from = out.len();
    out.extend_from_slice(&path.as_bytes()[..path.len().min(PATH_LEN_MAX)]);
    for byte in &mut out[from..] {
        *byte = if byte.is_ascii_graphic() { *byte } else { b'?' };
    }
}

fn write_range(range: Option<&[u8]>, out: &mut Vec<u8>) {
    let Some(range) = range else {
        out.push(b'-');
        return;
    };
    match range.strip_prefix(b"bytes=") {
        Some(part) if part.len() <= RANGE_LEN_MAX && part.iter().all(u8::is_ascii_graphic) => {
            out.extend_from_slice(part);
        }
        _ => out.push(b'?'),
    }
}

fn hex(byte: u8) -> [u8; 2] {
    [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)])
}

/// Lines on their way to the thread that writes them.
#[derive(Debug)]
pub(crate) struct RequestLog {
    pub(crate) enabled: bool,
    /// The time of the event that is being handled.
    pub(crate) now: Instant,
    lines: Vec<u8>,
    /// The second of the last line, written out.
    time: Vec<u8>,
    time_at: Option<UnixSeconds>,
}

impl RequestLog {
    pub(crate) fn new(enabled: bool) -> Self {
        let lines = if enabled { Vec::with_capacity(LINES_LEN_MAX) } else { Vec::new() };
        Self { enabled, now: Instant(0), lines, time: Vec::with_capacity(32), time_at: None }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Gives the lines away for the memory of `spare`.
    pub(crate) fn take(&mut self, spare: &mut Vec<u8>) {
        spare.clear();
        spare.reserve(LINES_LEN_MAX);
        std::mem::swap(&mut self.lines, spare);
    }

    /// The response ended, or was cut. False if its line had to be dropped.
    pub(crate) fn end(
        &mut self,
        entry: &Entry,
        (line, head): (&mut Vec<u8>, &[u8]),
        session: Option<[u8; 4]>,
        whole: bool,
    ) -> bool {
        if line.is_empty() {
            return true;
        }
        let longest = line.len() + 128;
        if LINES_LEN_MAX < self.lines.len() + longest {
            line.clear();
            return false;
        }
        if self.time_at != Some(entry.begun_wall) {
            self.time_at = Some(entry.begun_wall);
            self.time.clear();
            date::write_iso(entry.begun_wall, &mut self.time);
        }
        let out = &mut self.lines;
        out.extend_from_slice(&self.time);
        out.push(b' ');
        // The head, once sent, is what was answered: `HTTP/1.1 206 Partial Content`.
        let status = entry.first.and_then(|_| head.get(9..12));
        out.extend_from_slice(status.unwrap_or(b"-"));
        out.push(b' ');
        out.append(line);
        let now = self.now;
        let first = entry.first.unwrap_or(now).since(entry.begun);
        let all = now.since(entry.begun);
        out.push(b' ');
        decimal(out, entry.sent.0);
        for span in [first, all] {
            out.push(b' ');
            decimal(out, span.0 / 1_000_000);
            out.push(b'.');
            decimal(out, span.0 / 100_000 % 10);
            out.extend_from_slice(b"ms");
        }
        out.push(b' ');
        match session {
            Some(mark) => out.extend(mark.into_iter().flat_map(hex)),
            None => out.push(b'-'),
        }
        out.extend_from_slice(if whole { b" whole\n" } else { b" cut\n" });
        assert!(out.len() <= LINES_LEN_MAX, "a line is no longer than was reckoned");
        true
    }
}

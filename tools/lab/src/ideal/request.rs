//! The requests of the lab's own client, and no others.

use std::fmt::Write as _;

use model::limits::CHUNK_LEN;

/// Longer than any head here.
pub(crate) const HEAD_MAX: usize = 256;

/// Bytes of a file that are still to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) file: usize,
    /// The first byte that is not sent yet.
    pub(crate) next: u64,
    /// The byte behind the last.
    pub(crate) end: u64,
    pub(crate) head: String,
}

impl Request {
    /// `GET ..film-0007.mp4 ..bytes=1-2`: a number at the end of the path's name, and a range.
    pub(crate) fn parse(text: &[u8], file_len: u64) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let path = text.strip_prefix("GET ")?.split(' ').next()?;
        let file = path.strip_suffix(".mp4")?.rsplit('-').next()?.parse().ok()?;
        let (_, range) = text.split_once("bytes=")?;
        let (first, last) = range.lines().next()?.split_once('-')?;
        let (next, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if last < next || file_len <= last {
            return None;
        }
        let mut head = String::with_capacity(HEAD_MAX);
        let len = last + 1 - next;
        let _ = write!(
            head,
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {len}\r\n\
             Content-Range: bytes {next}-{last}/{file_len}\r\n\r\n"
        );
        Some(Self { file, next, end: last + 1, head })
    }

    /// Takes the bytes that are sealed next: they end where a block does, as an appliance's do.
    pub(crate) fn take(&mut self) -> (u64, u64) {
        let from = self.next;
        let block_end = (from / CHUNK_LEN.0 + 1) * CHUNK_LEN.0;
        self.next = block_end.min(self.end);
        (from, self.next)
    }

    /// True if nothing is left.
    pub(crate) fn is_over(&self) -> bool {
        self.next == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_cut_where_blocks_end() {
        let text = b"GET /film-0007.mp4 HTTP/1.1\r\nHost: a\r\nRange: bytes=262000-600000\r\n\r\n";
        let mut request = Request::parse(text, 8_000_000).unwrap();
        assert_eq!(request.file, 7);
        assert!(request.head.contains("Content-Length: 338001\r\n"), "{}", request.head);
        assert!(request.head.contains("bytes 262000-600000/8000000\r\n"), "{}", request.head);
        let taken = [request.take(), request.take(), request.take()];
        assert_eq!(taken, [(262_000, 262_144), (262_144, 524_288), (524_288, 600_001)]);
        assert!(request.is_over() && request.head.len() < HEAD_MAX);
        for bad in ["", "GET /a HTTP/1.1\r\n\r\n", "GET /film-1.mp4 \r\nRange: bytes=9-8\r\n"] {
            assert_eq!(Request::parse(bad.as_bytes(), 10), None, "{bad}");
        }
        assert_eq!(Request::parse(b"GET /film-1.mp4 \r\nRange: bytes=0-10\r\n", 10), None);
    }
}

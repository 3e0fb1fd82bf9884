//! Response heads. What is the same in every response is written as one constant.

use model::id::ObjectId;
use model::units::{Bytes, UnixSeconds};

use crate::date;

/// The statuses that this server answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// 200
    Ok,
    /// 204: the answer to OPTIONS.
    NoContent,
    /// 206
    PartialContent,
    /// 304
    NotModified,
    /// 307: a sibling has it.
    TemporaryRedirect,
    /// 400
    BadRequest,
    /// 403: the token, and nothing else.
    Forbidden,
    /// 404
    NotFound,
    /// 405
    MethodNotAllowed,
    /// 412
    PreconditionFailed,
    /// 414
    UriTooLong,
    /// 416
    RangeNotSatisfiable,
    /// 431
    HeaderFieldsTooLarge,
}

/// What a response says of the object it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation<'a> {
    /// The object.
    pub object: ObjectId,
    /// Its whole length.
    pub len: Bytes,
    /// `Content-Type`.
    pub content_type: &'a str,
    /// `Last-Modified`.
    pub modified: UnixSeconds,
}

/// A response head without a representation: errors, 204.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The status.
    pub status: Status,
    /// The connection stays open.
    pub keep_alive: bool,
}

/// Length of an ETag with its quotes.
pub const ETAG_LEN: usize = 66;

/// Sent with every response, so that players' scripts in other origins can read it and time it.
const CROSS_ORIGIN: &str = "Access-Control-Allow-Origin: *\r\n\
    Access-Control-Expose-Headers: Content-Length, Content-Range, ETag, Date\r\n\
    Timing-Allow-Origin: *\r\n\
    Cross-Origin-Resource-Policy: cross-origin\r\n";
/// Not `public`: without `Authorization`, which nothing here looks at, any cache may keep it
/// (RFC 9111 section 5.2.2.9).
const IMMUTABLE: &str = "Accept-Ranges: bytes\r\nCache-Control: max-age=31536000, immutable\r\n";
const PREFLIGHT: &str = "Allow: GET, HEAD, OPTIONS\r\n\
    Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
    Access-Control-Allow-Headers: Range, If-Range, If-None-Match, If-Modified-Since, CMCD-Request, \
    CMCD-Object, CMCD-Status, CMCD-Session, CTA-Common-Access-Token, *\r\n\
    Access-Control-Max-Age: 86400\r\n";

impl Status {
    /// The status line, `HTTP/1.1` included.
    pub fn line(self) -> &'static str {
        match self {
            Self::Ok => "HTTP/1.1 200 OK\r\n",
            Self::NoContent => "HTTP/1.1 204 No Content\r\n",
            Self::PartialContent => "HTTP/1.1 206 Partial Content\r\n",
            Self::NotModified => "HTTP/1.1 304 Not Modified\r\n",
            Self::TemporaryRedirect => "HTTP/1.1 307 Temporary Redirect\r\n",
            Self::BadRequest => "HTTP/1.1 400 Bad Request\r\n",
            Self::Forbidden => "HTTP/1.1 403 Forbidden\r\n",
            Self::NotFound => "HTTP/1.1 404 Not Found\r\n",
            Self::MethodNotAllowed => "HTTP/1.1 405 Method Not Allowed\r\n",
            Self::PreconditionFailed => "HTTP/1.1 412 Precondition Failed\r\n",
            Self::UriTooLong => "HTTP/1.1 414 URI Too Long\r\n",
            Self::RangeNotSatisfiable => "HTTP/1.1 416 Range Not Satisfiable\r\n",
            Self::HeaderFieldsTooLarge => "HTTP/1.1 431 Request Header Fields Too Large\r\n",
        }
    }

    /// The three digits.
    pub fn code(self) -> u16 {
        self.line()[9..12].parse().expect("a status line has its code there")
    }
}

/// Writes a head without body: errors and 204.
pub fn write_plain(out: &mut Vec<u8>, head: Head, date: &[u8]) {
    begin(out, head, date);
    match head.status {
        Status::NoContent => out.extend_from_slice(PREFLIGHT.as_bytes()),
        Status::MethodNotAllowed => {
            out.extend_from_slice(b"Allow: GET, HEAD, OPTIONS\r\n");
            out.extend_from_slice(b"Content-Length: 0\r\nCache-Control: no-store\r\n");
        }
        Status::Ok
        | Status::PartialContent
        | Status::NotModified
        | Status::TemporaryRedirect
        | Status::BadRequest
        | Status::Forbidden
        | Status::NotFound
        | Status::PreconditionFailed
        | Status::UriTooLong
        | Status::RangeNotSatisfiable
        | Status::HeaderFieldsTooLarge => {
            out.extend_from_slice(b"Content-Length: 0\r\nCache-Control: no-store\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes a 307: the same can be had at `base` followed by `target`, now and not for ever.
pub fn write_redirect(
    out: &mut Vec<u8>,
    keep_alive: bool,
    date: &[u8],
    (base, target): (&str, &str),
) {
    begin(out, Head { status: Status::TemporaryRedirect, keep_alive }, date);
    out.extend_from_slice(b"Location: ");
    out.extend_from_slice(base.as_bytes());
    out.extend_from_slice(target.as_bytes());
    out.extend_from_slice(b"\r\nContent-Length: 0\r\nCache-Control: no-store\r\n\r\n");
}

/// Writes the head of a 200, 206, 304 or 416 about `what`; `part` is what a 206 carries.
pub fn write_object(
    out: &mut Vec<u8>,
    head: Head,
    date: &[u8],
    what: Representation<'_>,
    part: (Bytes, Bytes),
) {
    let (start, end) = part;
    begin(out, head, date);
    if head.status == Status::RangeNotSatisfiable {
        out.extend_from_slice(b"Content-Range: bytes */");
        decimal(out, what.len.0);
        out.extend_from_slice(b"\r\nContent-Length: 0\r\nCache-Control: no-store\r\n\r\n");
        return;
    }
    out.extend_from_slice(IMMUTABLE.as_bytes());
    out.extend_from_slice(b"ETag: ");
    out.extend_from_slice(&etag(what.object));
    out.extend_from_slice(b"\r\n");
    // RFC 9110 section 15.4.5: a 304 with an ETag needs no more to say which one is meant.
    if head.status != Status::NotModified {
        assert!(start <= end && end <= what.len, "a response lies within its object");
        out.extend_from_slice(b"Last-Modified: ");
        date::write(what.modified, out);
        out.extend_from_slice(b"\r\nContent-Type: ");
        out.extend_from_slice(what.content_type.as_bytes());
        out.extend_from_slice(b"\r\nContent-Length: ");
        decimal(out, (end - start).0);
        out.extend_from_slice(b"\r\n");
    }
    if head.status == Status::PartialContent {
        out.extend_from_slice(b"Content-Range: bytes ");
        decimal(out, start.0);
        out.push(b'-');
        decimal(out, end.0 - 1);
        out.push(b'/');
        decimal(out, what.len.0);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// The strong ETag of an object: its id in quotes, the same on every appliance.
pub fn etag(object: ObjectId) -> [u8; ETAG_LEN] {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    let mut etag = [b'"'; ETAG_LEN];
    for (byte, pair) in object.0.iter().zip(etag[1..ETAG_LEN - 1].chunks_exact_mut(2)) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    etag
}

fn begin(out: &mut Vec<u8>, head: Head, date: &[u8]) {
    out.extend_from_slice(head.status.line().as_bytes());
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n");
    if !head.keep_alive {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(CROSS_ORIGIN.as_bytes());
}

/// Writes a number as people do, several times faster than `write!`.
pub fn decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10).to_le_bytes()[0];
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn object(status: Status, part: (u64, u64)) -> String {
        let mut out = Vec::new();
        let what = Representation {
            object: ObjectId([0xa5; 32]),
            len: Bytes(1000),
            content_type: "video/mp4",
            modified: UnixSeconds(784_111_777),
        };
        let head = Head { status, keep_alive: true };
        write_object(&mut out, head, DATE, what, (Bytes(part.0), Bytes(part.1)));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_partial_response_says_what_it_carries() {
        let text = object(Status::PartialContent, (10, 20));
        assert!(text.starts_with("HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994"));
        for line in [
            "Content-Length: 10\r\n",
            "Content-Range: bytes 10-19/1000\r\n",
            "Content-Type: video/mp4\r\n",
            "Cache-Control: max-age=31536000, immutable\r\n",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
            "Access-Control-Allow-Origin: *\r\n",
            "Timing-Allow-Origin: *\r\n",
        ] {
            assert!(text.contains(line), "{line:?} in {text}");
        }
        assert!(text.contains(&format!("ETag: \"{}\"\r\n", "a5".repeat(32))));
        assert!(text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn a_416_gives_the_length_and_a_304_the_validator() {
        let text = object(Status::RangeNotSatisfiable, (0, 0));
        assert!(text.contains("Content-Range: bytes */1000\r\n") && !text.contains("ETag:"));
        let text = object(Status::NotModified, (0, 0));
        assert!(text.contains("ETag:") && text.contains("Cache-Control:"));
        assert!(!text.contains("Content-Length:") && !text.contains("Last-Modified:"));
    }

    #[test]
    fn a_redirect_says_where_and_is_not_stored() {
        let mut out = Vec::new();
        write_redirect(&mut out, true, DATE, ("https://a2:8443", "/t/x/v.mp4?hop=1"));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 307 Temporary Redirect\r\n"));
        assert!(text.contains("\r\nLocation: https://a2:8443/t/x/v.mp4?hop=1\r\n"));
        assert!(text.contains("Content-Length: 0\r\n") && text.contains("no-store"));
        assert!(text.contains("Allow-Origin: *") && text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn errors_are_never_stored_and_readable_across_origins() {
        for status in [Status::BadRequest, Status::Forbidden, Status::NotFound] {
            let mut out = Vec::new();
            write_plain(&mut out, Head { status, keep_alive: false }, DATE);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("no-store") && text.contains("Allow-Origin: *"));
            assert!(text.contains("Connection: close\r\n"));
            assert!(text.contains(&status.code().to_string()));
        }
    }
}

//! Response heads. Lines that every response has are one constant.

use model::id::ObjectId;
use model::limits::{BASE_URL_LEN_MAX, CONTENT_TYPE_LEN_MAX};
use model::units::{Bytes, Nanos, UnixSeconds};

use crate::date::{self, DATE_LEN};

/// Longest head that can be written: a sender needs room for so much.
pub const HEAD_LEN_MAX: usize = 4096;

/// Longest target of a redirect. A path has at most 1.5 KiB and a token half of one.
pub const TARGET_LEN_MAX: usize = 3072;

/// The statuses that this server answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// 204: the answer to OPTIONS.
    NoContent,
    PartialContent,
    NotModified,
    /// 307: a sibling has it.
    TemporaryRedirect,
    BadRequest,
    /// 403: the token, and nothing else.
    Forbidden,
    NotFound,
    MethodNotAllowed,
    PreconditionFailed,
    UriTooLong,
    RangeNotSatisfiable,
    HeaderFieldsTooLarge,
}

/// The facts that a response states of the object it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Representation<'a> {
    pub object: ObjectId,
    pub len: Bytes,
    pub content_type: &'a str,
    /// `Last-Modified`.
    pub modified: UnixSeconds,
    /// Round trip of its connection, where it is known.
    pub rtt: Option<Nanos>,
}

/// A response head without a representation: errors, 204.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: Status,
    /// The connection stays open.
    pub keep_alive: bool,
}

/// Length of an ETag with its quotes.
pub const ETAG_LEN: usize = 66;

/// Sent with every response, so that players' scripts in other origins can read it and time it.
const CROSS_ORIGIN: &str = "Access-Control-Allow-Origin: *\r\n\
    Access-Control-Expose-Headers: Content-Length, Content-Range, ETag, Date, \
    CMSD-Static, CMSD-Dynamic\r\n\
    Timing-Allow-Origin: *\r\n\
    Cross-Origin-Resource-Policy: cross-origin\r\n";
/// Not `public`: without `Authorization`, which nothing here looks at, any cache may keep it
/// (RFC 9111 section 5.2.2.9).
const IMMUTABLE: &str = "Accept-Ranges: bytes\r\nCache-Control: max-age=31536000, immutable\r\n";
/// On demand: all that is served is whole (CTA-5006, Common Media Server Data).
const CMSD_STATIC: &str = "CMSD-Static: st=v\r\n";
/// With the round trip behind it, in milliseconds.
const CMSD_DYNAMIC: &str = "CMSD-Dynamic: \"nearcast\";rtt=";
const PREFLIGHT: &str = "Allow: GET, HEAD, OPTIONS\r\n\
    Access-Control-Allow-Methods: GET, HEAD, OPTIONS\r\n\
    Access-Control-Allow-Headers: Range, If-Range, If-None-Match, If-Modified-Since, CMCD-Request, \
    CMCD-Object, CMCD-Status, CMCD-Session, CTA-Common-Access-Token, *\r\n\
    Access-Control-Max-Age: 86400\r\n";
const ALLOW: &str = "Allow: GET, HEAD, OPTIONS\r\n";
const NO_BODY: &str = "Content-Length: 0\r\nCache-Control: no-store\r\n";
const CLOSE: &str = "Connection: close\r\n";
const DATE: &str = "Date: ";
const LOCATION: &str = "Location: ";
const ETAG: &str = "ETag: ";
const MODIFIED: &str = "Last-Modified: ";
const TYPE: &str = "Content-Type: ";
const LENGTH: &str = "Content-Length: ";
const PART: &str = "Content-Range: bytes ";
const END: &str = "\r\n";

/// Digits of the largest number.
const DECIMAL_LEN_MAX: usize = 20;

/// Most bytes that `begin` writes after the status line.
const BEGIN_LEN: usize =
    DATE.len() + DATE_LEN + END.len() + CLOSE.len() + CROSS_ORIGIN.len() + END.len();

/// The longest redirect, object's and plain head. A field that is added to what they are made of is
/// counted here; one that is too long does not compile, where it would end the process.
const REDIRECT_LEN_MAX: usize = Status::TemporaryRedirect.line().len()
    + BEGIN_LEN
    + (LOCATION.len() + BASE_URL_LEN_MAX + TARGET_LEN_MAX + END.len())
    + NO_BODY.len();
const OBJECT_LEN_MAX: usize = Status::PartialContent.line().len()
    + BEGIN_LEN
    + IMMUTABLE.len()
    + (ETAG.len() + ETAG_LEN + END.len())
    + (MODIFIED.len() + DATE_LEN + END.len())
    + (TYPE.len() + CONTENT_TYPE_LEN_MAX + END.len())
    + (LENGTH.len() + DECIMAL_LEN_MAX + END.len())
    + CMSD_STATIC.len()
    + (CMSD_DYNAMIC.len() + DECIMAL_LEN_MAX + END.len())
    + (PART.len() + 3 * DECIMAL_LEN_MAX + "-/".len() + END.len());
const PLAIN_LEN_MAX: usize =
    Status::HeaderFieldsTooLarge.line().len() + BEGIN_LEN + PREFLIGHT.len() + NO_BODY.len();

const _: () = assert!(REDIRECT_LEN_MAX <= HEAD_LEN_MAX, "a redirect fits where heads are sent");
const _: () = assert!(OBJECT_LEN_MAX <= HEAD_LEN_MAX, "an object's head fits where it is sent");
const _: () = assert!(PLAIN_LEN_MAX <= HEAD_LEN_MAX, "a plain head fits where it is sent");

impl Status {
    /// The status line, `HTTP/1.1` included.
    pub const fn line(self) -> &'static str {
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

/// Writes the head of a document that is made for this answer and kept by nobody.
pub fn write_document(out: &mut Vec<u8>, head: Head, date: &[u8], content_type: &str, len: usize) {
    begin(out, head, date);
    let fields = format!(
        "Content-Type: {content_type}\r\nContent-Length: {len}\r\nCache-Control: no-store\r\n\r\n"
    );
    out.extend_from_slice(fields.as_bytes());
}

/// Writes a head without body: errors and 204.
pub fn write_plain(out: &mut Vec<u8>, head: Head, date: &[u8]) {
    begin(out, head, date);
    let is_preflight = head.status == Status::NoContent;
    let allow = if head.status == Status::MethodNotAllowed { ALLOW } else { "" };
    for part in [allow, if is_preflight { PREFLIGHT } else { NO_BODY }, END] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Writes a 307: the same can be had at `base` followed by `target`, now and not for ever.
pub fn write_redirect(
    out: &mut Vec<u8>,
    keep_alive: bool,
    date: &[u8],
    (base, target): (&str, &str),
) {
    begin(out, Head { status: Status::TemporaryRedirect, keep_alive }, date);
    for part in [LOCATION, base, target, END, NO_BODY, END] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Writes the head of a 200, 206, 304 or 416 about `what`; `part` is the range in a 206.
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
        field(out, PART, |out| {
            out.extend_from_slice(b"*/");
            decimal(out, what.len.0);
        });
        out.extend_from_slice(NO_BODY.as_bytes());
        out.extend_from_slice(END.as_bytes());
        return;
    }
    out.extend_from_slice(IMMUTABLE.as_bytes());
    field(out, ETAG, |out| out.extend_from_slice(&etag(what.object)));
    // RFC 9110 section 15.4.5: a 304 with an ETag needs no more to say which one is meant.
    if head.status != Status::NotModified {
        assert!(start <= end && end <= what.len, "a response lies within its object");
        field(out, MODIFIED, |out| date::write(what.modified, out));
        field(out, TYPE, |out| out.extend_from_slice(what.content_type.as_bytes()));
        field(out, LENGTH, |out| decimal(out, (end - start).0));
        out.extend_from_slice(CMSD_STATIC.as_bytes());
        if let Some(rtt) = what.rtt {
            field(out, CMSD_DYNAMIC, |out| decimal(out, rtt.as_millis().max(1)));
        }
    }
    if head.status == Status::PartialContent {
        field(out, PART, |out| {
            decimal(out, start.0);
            out.push(b'-');
            decimal(out, end.0 - 1);
            out.push(b'/');
            decimal(out, what.len.0);
        });
    }
    out.extend_from_slice(END.as_bytes());
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
    field(out, DATE, |out| out.extend_from_slice(date));
    if !head.keep_alive {
        out.extend_from_slice(CLOSE.as_bytes());
    }
    out.extend_from_slice(CROSS_ORIGIN.as_bytes());
}

#[inline]
fn field(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(name.as_bytes());
    value(out);
    out.extend_from_slice(END.as_bytes());
}

/// Writes a number as people do, several times faster than `write!`.
pub fn decimal(out: &mut Vec<u8>, value: u64) {
    let mut digits = [0; DECIMAL_LEN_MAX];
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

    const NOW: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn object(status: Status, part: (u64, u64)) -> String {
        let mut out = Vec::new();
        let what = Representation {
            object: ObjectId([0xa5; 32]),
            len: Bytes(1000),
            content_type: "video/mp4",
            modified: UnixSeconds(784_111_777),
            rtt: Some(Nanos(8_700_000)),
        };
        let head = Head { status, keep_alive: true };
        write_object(&mut out, head, NOW, what, (Bytes(part.0), Bytes(part.1)));
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
            "CMSD-Static: st=v\r\nCMSD-Dynamic: \"nearcast\";rtt=8\r\n",
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
        assert!(!text.contains("\r\nCMSD"));
        assert!(!text.contains("Content-Length:") && !text.contains("Last-Modified:"));
    }

    #[test]
    fn a_redirect_says_where_and_is_not_stored() {
        let mut out = Vec::new();
        write_redirect(&mut out, true, NOW, ("https://a2:8443", "/t/x/v.mp4?hop=1"));
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 307 Temporary Redirect\r\n"));
        assert!(text.contains("\r\nLocation: https://a2:8443/t/x/v.mp4?hop=1\r\n"));
        assert!(text.contains("Content-Length: 0\r\n") && text.contains("no-store"));
        assert!(text.contains("Allow-Origin: *") && text.ends_with("\r\n\r\n"));
    }

    #[test]
    fn the_longest_heads_are_as_long_as_was_counted() {
        let (mut out, keep_alive) = (Vec::new(), false);
        let (base, target) = ("b".repeat(BASE_URL_LEN_MAX), "t".repeat(TARGET_LEN_MAX));
        write_redirect(&mut out, keep_alive, NOW, (&base, &target));
        assert_eq!(out.len(), REDIRECT_LEN_MAX);
        out.clear();
        let what = Representation {
            object: ObjectId([0xa5; 32]),
            len: Bytes(u64::MAX),
            content_type: &"c".repeat(CONTENT_TYPE_LEN_MAX),
            modified: UnixSeconds(784_111_777),
            rtt: Some(Nanos(u64::MAX)),
        };
        let head = Head { status: Status::PartialContent, keep_alive };
        let (start, end) = (10_u64.pow(19), u64::MAX);
        write_object(&mut out, head, NOW, what, (Bytes(start), Bytes(end)));
        // A round trip in milliseconds has six digits less than the largest number.
        assert!((OBJECT_LEN_MAX - 7..=OBJECT_LEN_MAX).contains(&out.len()), "{}", out.len());
        for status in [Status::NoContent, Status::MethodNotAllowed, Status::HeaderFieldsTooLarge] {
            out.clear();
            write_plain(&mut out, Head { status, keep_alive }, NOW);
            assert!(out.len() <= PLAIN_LEN_MAX, "{status:?}");
        }
    }

    #[test]
    fn errors_are_never_stored_and_readable_across_origins() {
        for status in [Status::BadRequest, Status::Forbidden, Status::NotFound] {
            let mut out = Vec::new();
            write_plain(&mut out, Head { status, keep_alive: false }, NOW);
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("no-store") && text.contains("Allow-Origin: *"));
            assert!(text.contains("Connection: close\r\n"));
            assert!(text.contains(&status.code().to_string()));
        }
    }
}

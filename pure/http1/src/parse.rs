//! One request head out of the bytes received so far.

use std::mem::MaybeUninit;

use crate::response::Status;

/// Most header fields of one request. Players send about a dozen.
pub const FIELDS_MAX: usize = 64;

/// A method; those that a file server does not answer are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    /// Name the methods allowed (CORS preflight).
    Options,
    /// Anything else: 405.
    Other,
}

/// A request head, borrowed from the receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub method: Method,
    /// The target's path, still percent-encoded, query cut off; `*` for a server-wide OPTIONS.
    pub path: &'a str,
    /// The target's query, up to a `#`; empty if it has none.
    pub query: &'a str,
    /// The connection may be used again after the response.
    pub keep_alive: bool,
    /// Field values that our servers heed.
    pub fields: Fields<'a>,
}

/// The header fields that change an answer, or say how it is received. A field given twice where
/// one is allowed is absent if ignoring it is safe (`Range`), and an error where it is not
/// (`Host`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields<'a> {
    /// None only in HTTP/1.0. Of a sound form; nobody has looked whether it is us.
    pub host: Option<&'a [u8]>,
    pub range: Option<&'a [u8]>,
    pub if_range: Option<&'a [u8]>,
    pub if_none_match: Option<Lines<'a>>,
    pub if_match: Option<Lines<'a>>,
    pub if_modified_since: Option<&'a [u8]>,
    pub if_unmodified_since: Option<&'a [u8]>,
    /// `CMCD-Request`, `CMCD-Object`, `CMCD-Status` and `CMCD-Session`, in this order (CTA-5004
    /// section 2.2): what players say of their buffer and of what they play.
    pub cmcd: [Option<&'a [u8]>; 4],
    pub user_agent: Option<&'a [u8]>,
}

/// Most lines of one list.
const LINES_MAX: usize = 4;

/// A list that may be spread over several field lines (RFC 9110 section 5.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines<'a> {
    /// Invariant: the first `count` are given.
    lines: [&'a [u8]; LINES_MAX],
    count: usize,
}

impl<'a> Lines<'a> {
    /// A list of one line.
    pub fn of(line: &'a [u8]) -> Self {
        let mut lines = Self::default();
        lines.lines[0] = line;
        lines.count = 1;
        lines
    }

    /// The lines, in order.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lines.into_iter().take(self.count)
    }

    /// True if the list is an asterisk and nothing else.
    pub fn is_asterisk(&self) -> bool {
        self.count == 1 && self.lines[0] == b"*"
    }

    fn push(&mut self, line: &'a [u8]) -> Result<(), RequestError> {
        *self.lines.get_mut(self.count).ok_or(RequestError::TooLarge)? = line;
        self.count += 1;
        assert!(self.count <= LINES_MAX, "one more is refused");
        Ok(())
    }
}

/// The head at the beginning of received bytes.
#[derive(Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack: a box would allocate")]
pub enum Parsed<'a> {
    /// A whole request head, `len` bytes long, blank line included.
    Request { request: Request<'a>, len: usize },
    /// The beginning of one: receive more.
    Partial,
}

/// Why a request cannot be answered as asked. The connection closes after the answer, since where
/// the next request begins is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not HTTP/1.x, or not well formed: 400.
    #[error("malformed request")]
    Malformed,
    /// More fields, or a longer head, than is taken: 431.
    #[error("request head too large")]
    TooLarge,
    /// HTTP/1.1 without exactly one valid `Host`: 400 (RFC 9112 section 3.2).
    #[error("missing or repeated Host")]
    Host,
    /// A body where none belongs: 400.
    #[error("request with a body")]
    Body,
    /// A body behind a method that is not answered at all: 405.
    #[error("request with a body, of a method that is not answered")]
    Method,
}

/// Parses the first request head in `bytes`, which may hold more.
pub fn parse(bytes: &[u8]) -> Result<Parsed<'_>, RequestError> {
    let mut storage = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut []);
    let len = match head.parse_with_uninit_headers(bytes, &mut storage) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(Parsed::Partial),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::TooLarge),
        Err(
            httparse::Error::HeaderName
            | httparse::Error::HeaderValue
            | httparse::Error::NewLine
            | httparse::Error::Status
            | httparse::Error::Token
            | httparse::Error::Version,
        ) => return Err(RequestError::Malformed),
    };
    assert!(len <= bytes.len(), "a head is no longer than what came");
    let (Some(method), Some(target), Some(minor)) = (head.method, head.path, head.version) else {
        return Err(RequestError::Malformed);
    };
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "OPTIONS" => Method::Options,
        _ => Method::Other,
    };
    let not_answered = |error| {
        let behind_method = error == RequestError::Body && method == Method::Other;
        if behind_method { RequestError::Method } else { error }
    };
    let (fields, keep_alive) = fields(head.headers, minor).map_err(not_answered)?;
    let (whole, query) = divided(target);
    let path = path_of(method, target, whole).ok_or(RequestError::Malformed)?;
    Ok(Parsed::Request { request: Request { method, path, query, keep_alive, fields }, len })
}

/// In the order of `Fields::cmcd`.
const CMCD_FIELDS: [&str; 4] = ["cmcd-request", "cmcd-object", "cmcd-status", "cmcd-session"];

/// The status for a head that is refused for its length. RFC 9112 section 3: 414 where the
/// first line alone is too long, or did not end yet.
pub fn too_long(head: &[u8], len_max: usize) -> Status {
    let line = head.trim_ascii_start();
    match line.iter().position(|b| *b == b'\n') {
        Some(end) if end < len_max => Status::HeaderFieldsTooLarge,
        Some(_) | None => Status::UriTooLong,
    }
}

fn fields<'a>(
    headers: &[httparse::Header<'a>],
    minor: u8,
) -> Result<(Fields<'a>, bool), RequestError> {
    let mut fields = Fields::default();
    let (mut hosts, mut lengths, mut codings) = (0, 0, 0);
    let mut close = false;
    let mut body = false;
    for header in headers {
        let value = header.value.trim_ascii();
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("host") {
            hosts += 1;
            if !is_host(value) {
                return Err(RequestError::Host);
            }
            fields.host = Some(value);
        } else if is("range") {
            fields.range = single(fields.range, value);
        } else if is("if-range") {
            fields.if_range = Some(single(fields.if_range, value).unwrap_or(b""));
        } else if is("if-none-match") {
            fields.if_none_match.get_or_insert_default().push(value)?;
        } else if is("if-match") {
            fields.if_match.get_or_insert_default().push(value)?;
        } else if is("if-modified-since") {
            fields.if_modified_since = Some(single(fields.if_modified_since, value).unwrap_or(b""));
        } else if is("if-unmodified-since") {
            let one = single(fields.if_unmodified_since, value);
            fields.if_unmodified_since = Some(one.unwrap_or(b""));
        } else if let Some(at) = CMCD_FIELDS.iter().position(|name| is(name)) {
            fields.cmcd[at] = single(fields.cmcd[at], value);
        } else if is("user-agent") {
            fields.user_agent = single(fields.user_agent, value);
        } else if is("connection") {
            let mut options = value.split(|b| *b == b',').map(<[u8]>::trim_ascii);
            close |= options.any(|option| option.eq_ignore_ascii_case(b"close"));
        } else if is("transfer-encoding") {
            codings += 1;
        } else if is("content-length") {
            lengths += 1;
            body |= value != b"0";
            if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Err(RequestError::Malformed);
            }
        }
    }
    // RFC 9112 section 6.3: one of the two, once. Else somebody may have read it another way.
    if 1 < lengths + codings || (codings == 1 && minor == 0) {
        return Err(RequestError::Malformed);
    }
    if body || codings == 1 {
        return Err(RequestError::Body);
    }
    // RFC 9112 section 3.2: one Host in HTTP/1.1; HTTP/1.0 may go without.
    if 1 < hosts || (minor == 1 && hosts == 0) {
        return Err(RequestError::Host);
    }
    // HTTP/1.0 connections close: such a client would wait for a `Connection: keep-alive` that
    // no response of ours says.
    Ok((fields, !close && minor == 1))
}

/// The value if it is the first; nothing if the field came before.
fn single<'a>(before: Option<&[u8]>, value: &'a [u8]) -> Option<&'a [u8]> {
    before.is_none().then_some(value)
}

fn is_host(value: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(b);
    !value.is_empty() && value.iter().all(allowed)
}

/// The path of a target in origin form or absolute form (RFC 9112 section 3.2), of which `whole` is
/// without its query. The asterisk is for OPTIONS. Authority form is CONNECT's, whose target nobody
/// looks at, as that of other methods.
fn path_of<'a>(method: Method, target: &str, whole: &'a str) -> Option<&'a str> {
    if method == Method::Other || (method == Method::Options && target == "*") {
        return Some("*");
    }
    let path = if whole.starts_with('/') {
        whole
    } else {
        let (scheme, rest) = whole.split_once("://")?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let known = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
        (known && is_host(host.as_bytes())).then_some(path)?
    };
    Some(if path.is_empty() { "/" } else { path })
}

/// A target in whatever form without its query, and its query. A fragment has no place in a
/// request, and ends it. One look at each byte: a steering URL has many.
fn divided(target: &str) -> (&str, &str) {
    let Some(end) = target.bytes().position(|byte| byte == b'?' || byte == b'#') else {
        return (target, "");
    };
    let (whole, rest) = target.split_at(end);
    let query = rest.strip_prefix('?').unwrap_or("");
    (whole, query.split('#').next().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(text: &str) -> Result<Request<'_>, RequestError> {
        match parse(text.as_bytes())? {
            Parsed::Request { request, len } => {
                assert_eq!(len, text.len());
                Ok(request)
            }
            Parsed::Partial => panic!("partial: {text:?}"),
        }
    }

    #[test]
    fn a_player_s_request_is_understood() {
        let text = "GET /t/k.1.s.x/film-01/v%200.mp4?CMCD=br%3D1 HTTP/1.1\r\nHost: a1:8443\r\n\
                    Range: bytes=0-99\r\nIf-Range: \"e\"\r\nAccept: */*\r\n\r\n";
        let request = request(text).unwrap();
        assert_eq!(request.method, Method::Get);
        assert_eq!(request.path, "/t/k.1.s.x/film-01/v%200.mp4");
        assert_eq!(request.query, "CMCD=br%3D1");
        assert_eq!(request.fields.range, Some(&b"bytes=0-99"[..]));
        assert_eq!(request.fields.if_range, Some(&b"\"e\""[..]));
        assert!(request.keep_alive);
    }

    #[test]
    fn every_beginning_of_a_request_is_partial() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=1-2\r\n\r\n";
        for len in 0..text.len() {
            assert_eq!(parse(&text[..len]), Ok(Parsed::Partial), "{len} bytes");
        }
    }

    #[test]
    fn connections_close_when_either_side_s_rules_say_so() {
        let keeps = |text: &str| request(text).unwrap().keep_alive;
        assert!(!keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n"));
    }

    #[test]
    fn targets_come_in_three_forms() {
        let path = |target: &str| {
            let text = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            request(&text).map(|request| request.path.to_owned())
        };
        assert_eq!(path("*").as_deref(), Ok("*"));
        assert_eq!(path("https://a:1/b/c?d").as_deref(), Ok("/b/c"));
        assert_eq!(path("http://a").as_deref(), Ok("/"));
        assert_eq!(path("a:443"), Err(RequestError::Malformed));
        assert_eq!(path("ftp://a/b"), Err(RequestError::Malformed));
        assert_eq!(path("http://a?b/c").as_deref(), Ok("/"));
        for bad in ["http:///b", "http://u@a/b", "http://", "http:/a", "a", "**", "*?b", "*#b"] {
            assert_eq!(path(bad), Err(RequestError::Malformed), "{bad}");
        }
        assert!(request("GET * HTTP/1.1\r\nHost: a\r\n\r\n").is_err());
        assert!(request("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").is_ok());
    }

    #[test]
    fn what_players_say_of_themselves_is_kept_and_twice_is_not_said() {
        let text = "GET /a#b?c HTTP/1.1\r\nHost: a\r\nCMCD-Object: br=1\r\ncmcd-status: bs\r\n\
                    CMCD-Request: su\r\nCMCD-Request: bl=1\r\n\r\n";
        let request = request(text).unwrap();
        assert_eq!(request.fields.cmcd, [None, Some(&b"br=1"[..]), Some(&b"bs"[..]), None]);
        assert_eq!((request.path, request.query), ("/a", ""));
    }

    #[test]
    fn what_could_hide_a_second_request_is_refused() {
        let error = |fields: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            parse(text.as_bytes()).unwrap_err()
        };
        assert_eq!(error("Content-Length: 5"), RequestError::Body);
        assert_eq!(error("Content-Length: 00"), RequestError::Body);
        assert_eq!(error("Transfer-Encoding: chunked"), RequestError::Body);
        for twice in ["Content-Length: 0\r\nContent-Length: 0", "Content-Length: 0, 0"] {
            assert_eq!(error(twice), RequestError::Malformed, "{twice}");
        }
        let both = "Content-Length: 0\r\nTransfer-Encoding: chunked";
        assert_eq!(error(both), RequestError::Malformed);
        for length in ["+5", "-1", "0x5", "5 6", "", "５"] {
            assert_eq!(error(&format!("Content-Length: {length}")), RequestError::Malformed);
        }
        assert_eq!(error("Host: b"), RequestError::Host);
        assert_eq!(error("Range : bytes=0-1"), RequestError::Malformed);
        assert_eq!(error("X: a\0b"), RequestError::Malformed);
        assert_eq!(error(" folded"), RequestError::Malformed);
        assert!(request("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").is_ok());
    }

    #[test]
    fn hosts_and_versions_are_checked() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(error("GET / HTTP/1.1\r\n\r\n"), RequestError::Host);
        assert_eq!(error("GET / HTTP/1.1\r\nHost:\r\n\r\n"), RequestError::Host);
        assert_eq!(error("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"), RequestError::Host);
        assert_eq!(error("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), RequestError::Malformed);
        assert_eq!(error("\x16\x03\x01\x02\x00\x01\x00"), RequestError::Malformed);
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(64));
        assert_eq!(error(&many), RequestError::TooLarge);
    }

    #[test]
    fn a_head_is_too_long_by_its_first_line_or_by_its_fields() {
        assert_eq!(too_long(b"GET / HTTP/1.1\r\nX: yyyy", 20), Status::HeaderFieldsTooLarge);
        assert_eq!(too_long(b"GET /yyyyyyyyyyyyyyyy", 20), Status::UriTooLong);
        assert_eq!(too_long(b"\r\n\r\nGET /yyyyyyyyyyyy", 20), Status::UriTooLong);
        assert_eq!(too_long(b"GET /yyyyyyyy HTTP/1.1\r\n\r\n", 20), Status::UriTooLong);
    }

    #[test]
    fn a_list_may_have_several_lines_but_not_any_number() {
        let of = |lines: usize| {
            let line = "If-Match: \"a\"\r\n";
            format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", line.repeat(lines))
        };
        let four = of(LINES_MAX);
        let list = request(&four).unwrap().fields.if_match.unwrap();
        assert_eq!(list.iter().count(), LINES_MAX);
        assert_eq!(request(&of(LINES_MAX + 1)).unwrap_err(), RequestError::TooLarge);
    }

    #[test]
    fn repeated_validators_never_match_and_a_repeated_range_is_ignored() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\nRange: bytes=2-3\r\n\
                    If-Range: \"a\"\r\nIf-Range: \"b\"\r\n\r\n";
        let fields = request(text).unwrap().fields;
        assert_eq!(fields.range, None);
        assert_eq!(fields.if_range, Some(&b""[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            if let Ok(Parsed::Request { len, .. }) = parse(&bytes) {
                prop_assert!(len <= bytes.len());
            }
        }
    }
}

//! Request heads: nothing may hide behind one.

use http1::range::{Selected, select};
use http1::{Method, Parsed, Request, RequestError, condition, parse, target};
use model::limits::PATH_LEN_MAX;
use model::path::is_path;
use model::units::{Bytes, UnixSeconds};

/// A request head is understood as a simple reading of RFC 9112 does, at every length of input.
pub fn http1(bytes: &[u8]) {
    match parse(bytes) {
        Ok(Parsed::Request { request, len }) => whole(bytes, &request, len),
        Ok(Parsed::Partial) => partial(bytes),
        Err(error) => refused(bytes, error),
    }
}

fn whole(bytes: &[u8], request: &Request<'_>, len: usize) {
    assert!(0 < len && len <= bytes.len(), "a head has the bytes that there are");
    let head = &bytes[..len];
    let again = Ok(Parsed::Request { request: request.clone(), len });
    assert_eq!(parse(head), again, "what follows a head does not matter");
    for cut in [len / 3, len / 2, len - 1] {
        assert_eq!(parse(&head[..cut]), Ok(Parsed::Partial), "a head is not over before its end");
    }
    without_body(head, request.method);
    assert!(request.path.bytes().all(|b| 0x20 < b && b != 0x7f), "no controls in a path");
    assert!(!request.path.contains(['?', '#']), "a path ends before the query");
    let mut buffer = [0; PATH_LEN_MAX];
    for path in [request.path, request.path.trim_start_matches('/')] {
        if let Ok(decoded) = target::decode(path, &mut buffer) {
            assert!(is_path(decoded), "a decoded path has the one form: {decoded:?}");
        }
    }
    for len in [0, 1, 1000, u64::MAX / 2].map(Bytes) {
        if let Some(Selected::Part { start, end }) = request.fields.range.map(|v| select(v, len)) {
            assert!(start < end && end <= len, "a part lies inside");
        }
    }
    let etag = [b'"'; 66];
    let _ = condition::evaluate(&request.fields, &etag, UnixSeconds(784_111_777));
}

fn partial(bytes: &[u8]) {
    assert!(!ends_a_head(bytes), "a head with its blank line is not partial");
    let cut = &bytes[..bytes.len() / 2];
    assert_eq!(parse(cut), Ok(Parsed::Partial), "the beginning of a beginning is one");
}

fn refused(bytes: &[u8], error: RequestError) {
    let longer = [bytes, b"\r\nX: y\r\n\r\n"].concat();
    assert!(parse(&longer).is_err(), "more bytes do not mend a head: {error}");
}

/// Reads the lines as simply as can be: no field that gives a request a body may be among them.
fn without_body(head: &[u8], method: Method) {
    let lines = head.split(|b| *b == b'\n').skip_while(|line| line.trim_ascii().is_empty()).skip(1);
    let mut hosts = 0;
    for line in lines {
        assert!(line.first().is_none_or(|b| *b != b' ' && *b != b'\t'), "no folded line");
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        assert!(!value.contains(&b'\r') && !value.contains(&0), "no bare CR, no NUL");
        assert!(!name.trim_ascii_end().eq_ignore_ascii_case(b"transfer-encoding"), "{method:?}");
        if name.trim_ascii_end().eq_ignore_ascii_case(b"content-length") {
            assert_eq!(value, b"0", "a body that nobody reads is the next request");
        }
        hosts += usize::from(name.eq_ignore_ascii_case(b"host"));
    }
    assert!(hosts <= 1, "one Host at most");
}

/// A blank line after something that is not blank.
fn ends_a_head(bytes: &[u8]) -> bool {
    let begins = bytes.iter().position(|b| !b"\r\n".contains(b)).unwrap_or(bytes.len());
    bytes[begins..].windows(4).any(|four| four == b"\r\n\r\n")
}

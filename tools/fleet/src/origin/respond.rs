//! One request: method, path, conditions, range, in this order (RFC 9110, section 13.2.2).

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http1::range::{Selected, select};
use model::units::Bytes;
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tracing::{debug, trace};

use super::body::{Pace, body};
use crate::content_type::content_type;
use crate::tree::{Tree, TreeError};

#[derive(Debug)]
pub(crate) struct Origin {
    tree: Tree,
    pace: Option<Arc<Pace>>,
    /// Answers that may run at once; one more is told to come back in a second.
    answers: Arc<Semaphore>,
}

impl Origin {
    /// Serves `tree`, at no more than `pace`.
    pub(crate) fn new(tree: Tree, pace: Option<Pace>) -> Self {
        let answers = Arc::new(Semaphore::new(ANSWERS_MAX));
        Self { tree, pace: pace.map(Arc::new), answers }
    }
}

pub(super) async fn respond(State(origin): State<Arc<Origin>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    // Opening a file may block, on a network filesystem for long.
    let respond = move || answer(&origin, &request).unwrap_or_else(refuse);
    let response = tokio::task::spawn_blocking(respond).await;
    let response = response.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response());
    trace!(path, status = response.status().as_u16(), "answered");
    response
}

type Refusal = (StatusCode, &'static str);

const METHOD: Refusal = (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here\n");
const PATH: Refusal = (StatusCode::BAD_REQUEST, "this path cannot name a file\n");
const MISSING: Refusal = (StatusCode::NOT_FOUND, "no such file below the served directory\n");
const UNREADABLE: Refusal = (StatusCode::FORBIDDEN, "the origin may not read this file\n");
const CHANGED: Refusal = (StatusCode::PRECONDITION_FAILED, "the file has changed\n");
const BUSY: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "too many answers at once, try again\n");

fn refuse(refusal: Refusal) -> Response {
    match refusal {
        METHOD => ([(header::ALLOW, "GET, HEAD")], refusal).into_response(),
        BUSY => ([(header::RETRY_AFTER, "1")], refusal).into_response(),
        _ => refusal.into_response(),
    }
}

fn answer(origin: &Origin, request: &Request) -> Result<Response, Refusal> {
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        return Err(METHOD);
    }
    let path = percent_decode_str(request.uri().path().trim_start_matches('/'))
        .decode_utf8()
        .map_err(|_| PATH)?;
    let permit = Arc::clone(&origin.answers).try_acquire_owned().map_err(|_| BUSY)?;
    let file = origin.tree.open_file(&path).map_err(refusal)?;
    let metadata = file.metadata().map_err(|error| refusal(TreeError::Io(error)))?;
    let len = metadata.len();
    let etag = etag(&metadata);
    let headers = request.headers();
    if fails_if_match(headers, &etag) {
        return Err(CHANGED);
    }
    let base = Response::builder()
        .header(header::ETAG, &etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, content_type(&path));
    if text(headers, &header::IF_NONE_MATCH).is_some_and(|list| lists(list, &etag, true)) {
        return Ok(finish(base.status(StatusCode::NOT_MODIFIED).body(Body::empty())));
    }
    let selected = match headers.get(header::RANGE) {
        Some(range) if !head && if_range_holds(headers, &etag) => {
            select(range.as_bytes(), Bytes(len))
        }
        Some(_) | None => Selected::Whole,
    };
    let (base, range) = match selected {
        Selected::Whole => (base.status(StatusCode::OK), 0..len),
        Selected::Part { start: Bytes(start), end: Bytes(end) } => {
            let text = format!("bytes {start}-{}/{len}", end - 1);
            let base = base.status(StatusCode::PARTIAL_CONTENT);
            (base.header(header::CONTENT_RANGE, text), start..end)
        }
        Selected::Unsatisfiable => {
            let base = base.header(header::CONTENT_RANGE, format!("bytes */{len}"));
            return Ok(finish(base.status(StatusCode::RANGE_NOT_SATISFIABLE).body(Body::empty())));
        }
    };
    let base = base.header(header::CONTENT_LENGTH, range.end - range.start);
    if head {
        return Ok(finish(base.body(Body::empty())));
    }
    Ok(finish(base.body(body(file, range, origin.pace.clone(), permit))))
}

fn finish(response: Result<Response, axum::http::Error>) -> Response {
    response.expect("status and headers are made of visible ASCII here")
}

fn refusal(error: TreeError) -> Refusal {
    match error {
        TreeError::Path => PATH,
        TreeError::Missing | TreeError::NotAFile | TreeError::Leaves => MISSING,
        TreeError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => UNREADABLE,
        TreeError::Io(error) => {
            debug!(%error, "a file could not be opened");
            MISSING
        }
    }
}

/// Strong: another length, another time of change or another inode is another file.
fn etag(metadata: &Metadata) -> String {
    let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
    format!("\"{:x}-{:x}-{seconds:x}.{nanos:x}\"", metadata.ino(), metadata.len())
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn fails_if_match(headers: &HeaderMap, etag: &str) -> bool {
    headers.contains_key(header::IF_MATCH)
        && !text(headers, &header::IF_MATCH).is_some_and(|list| lists(list, etag, false))
}

/// A date in If-Range never holds: this server sends none.
fn if_range_holds(headers: &HeaderMap, etag: &str) -> bool {
    !headers.contains_key(header::IF_RANGE) || text(headers, &header::IF_RANGE) == Some(etag)
}

/// True if the list of entity tags has `etag`, or is `*`. Our tags contain no comma.
fn lists(list: &str, etag: &str, weak: bool) -> bool {
    let same =
        |tag: &str| tag == "*" || tag == etag || (weak && tag.strip_prefix("W/") == Some(etag));
    list.split(',').any(|tag| same(tag.trim()))
}

/// Answers at once. A fill uses four connections per appliance.
const ANSWERS_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_entity_tags_are_searched() {
        assert!(lists("\"a\", \"b\"", "\"b\"", false));
        assert!(lists("*", "\"b\"", false));
        assert!(lists("W/\"b\"", "\"b\"", true));
        assert!(!lists("W/\"b\"", "\"b\"", false), "If-Match compares strongly");
        assert!(!lists("\"c\"", "\"b\"", true));
    }

    fn part(range: std::ops::Range<u64>) -> Selected {
        Selected::Part { start: Bytes(range.start), end: Bytes(range.end) }
    }

    #[test]
    fn ranges_are_read_as_rfc_9110_says() {
        let cases = [
            ("bytes=0-0", part(0..1)),
            ("bytes=0-", part(0..100)),
            ("Bytes= 10-19", part(10..20)),
            ("Bytes = 10-19", Selected::Whole),
            ("bytes=90-1000", part(90..100)),
            ("bytes=90-99999999999999999999999", part(90..100)),
            ("bytes=-10", part(90..100)),
            ("bytes=-1000", part(0..100)),
            ("bytes=-0", Selected::Unsatisfiable),
            ("bytes=100-", Selected::Unsatisfiable),
            ("bytes=99999999999999999999999-", Selected::Unsatisfiable),
            ("bytes=5-4", Selected::Whole),
            ("bytes=0-1,4-5", Selected::Whole),
            ("bytes=a-b", Selected::Whole),
            ("bytes=--1", Selected::Whole),
            ("bytes=", Selected::Whole),
            ("bytes", Selected::Whole),
            ("lines=1-2", Selected::Whole),
        ];
        for (header, answer) in cases {
            assert_eq!(select(header.as_bytes(), Bytes(100)), answer, "{header}");
        }
    }

    #[test]
    fn an_empty_file_has_no_range() {
        assert_eq!(select(b"bytes=0-0", Bytes(0)), Selected::Unsatisfiable);
        assert_eq!(select(b"bytes=-5", Bytes(0)), Selected::Whole);
    }
}

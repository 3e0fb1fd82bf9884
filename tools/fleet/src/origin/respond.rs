//! One request: method, path, conditions, range, in this order (RFC 9110, section 13.2.2).

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use percent_encoding::percent_decode_str;
use tokio::sync::Semaphore;
use tracing::{debug, trace};

use super::body::{FileBody, Pace};
use super::range::{Wanted, wanted};
use crate::content_type::content_type;
use crate::tree::{Tree, TreeError};

/// A directory being served.
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

/// Answers one request.
pub(super) async fn respond(State(origin): State<Arc<Origin>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    // Opening a file may block, on a network filesystem for long.
    let response = tokio::task::spawn_blocking(move || match answer(&origin, &request) {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    })
    .await
    .unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response());
    trace!(path, status = response.status().as_u16(), "answered");
    response
}

/// Why a request gets no bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Method,
    Path,
    Missing,
    Unreadable,
    Changed,
    Busy,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered here"),
            Self::Path => (StatusCode::BAD_REQUEST, "this path cannot name a file"),
            Self::Missing => (StatusCode::NOT_FOUND, "no such file below the served directory"),
            Self::Unreadable => (StatusCode::FORBIDDEN, "the origin may not read this file"),
            Self::Changed => (StatusCode::PRECONDITION_FAILED, "the file has changed"),
            Self::Busy => (StatusCode::SERVICE_UNAVAILABLE, "too many answers at once, try again"),
        };
        let mut response = (status, format!("{text}\n")).into_response();
        let headers = response.headers_mut();
        if self == Self::Method {
            headers.insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
        }
        if self == Self::Busy {
            headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

fn answer(origin: &Origin, request: &Request) -> Result<Response, Refusal> {
    let head = request.method() == Method::HEAD;
    if !head && request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    let path = percent_decode_str(request.uri().path().trim_start_matches('/'))
        .decode_utf8()
        .map_err(|_| Refusal::Path)?;
    let permit = Arc::clone(&origin.answers).try_acquire_owned().map_err(|_| Refusal::Busy)?;
    let file = origin.tree.open_file(&path).map_err(refusal)?;
    let metadata = file.metadata().map_err(|error| refusal(TreeError::Io(error)))?;
    let len = metadata.len();
    let etag = etag(&metadata);
    let headers = request.headers();
    if fails_if_match(headers, &etag) {
        return Err(Refusal::Changed);
    }
    let base = Response::builder()
        .header(header::ETAG, &etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CONTENT_TYPE, content_type(&path));
    if text(headers, &header::IF_NONE_MATCH).is_some_and(|list| lists(list, &etag, true)) {
        return Ok(finish(base.status(StatusCode::NOT_MODIFIED).body(Body::empty())));
    }
    let wanted = match text(headers, &header::RANGE) {
        Some(range) if !head && if_range_holds(headers, &etag) => wanted(range, len),
        Some(_) | None => Wanted::Whole,
    };
    let (base, range) = match wanted {
        Wanted::Whole => (base.status(StatusCode::OK), 0..len),
        Wanted::Part(range) => {
            let text = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            (base.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, text), range)
        }
        Wanted::Unsatisfiable => {
            let base = base.header(header::CONTENT_RANGE, format!("bytes */{len}"));
            return Ok(finish(base.status(StatusCode::RANGE_NOT_SATISFIABLE).body(Body::empty())));
        }
    };
    let base = base.header(header::CONTENT_LENGTH, range.end - range.start);
    if head {
        return Ok(finish(base.body(Body::empty())));
    }
    let body = FileBody::new(file, range, origin.pace.clone(), permit);
    Ok(finish(base.body(Body::new(body))))
}

fn finish(response: Result<Response, axum::http::Error>) -> Response {
    response.expect("status and headers are made of visible ASCII here")
}

fn refusal(error: TreeError) -> Refusal {
    match error {
        TreeError::Path => Refusal::Path,
        TreeError::Missing | TreeError::NotAFile | TreeError::Leaves => Refusal::Missing,
        TreeError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Refusal::Unreadable
        }
        TreeError::Io(error) => {
            debug!(%error, "a file could not be opened");
            Refusal::Missing
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
}

//! From a request to its answer. Straight-line: each step has one way on and one way out.

use std::net::IpAddr;
use std::sync::Arc;

use http1::condition::{self, Verdict};
use http1::range::{self, Selected};
use http1::response::{self, Head, Representation, Status, TARGET_LEN_MAX};
use http1::{Method, Request, target};
use model::cmcd::Object;
use model::id::ObjectId;
use model::limits::PATH_LEN_MAX;
use model::manifest::{AssetVersion, File};
use model::units::{BitsPerSecond, Bytes};

use crate::catalogue::Catalogue;
use crate::connection::{Connection, Granted};
use crate::counters::Counters;
use crate::event::Now;
use crate::grants::Grants;
use crate::viewing;

/// The answer to a request. The head is in `connection.texts.head`.
pub(crate) enum Answer {
    /// Nothing behind the head.
    HeadOnly,
    /// It is not here; a sibling may have it.
    Missing,
    /// The head, a 200 or 206, then `start..end` of the file's object at the asset version's pace.
    Object {
        object: ObjectId,
        status: Status,
        start: Bytes,
        end: Bytes,
        pace: Option<BitsPerSecond>,
        /// The kind of the object, by its content type.
        kind: Object,
    },
}

/// The query argument that marks a request sent on by a sibling.
const MARK: &str = "hop=1";

/// Decides the answer and writes its head.
pub(crate) fn answer(
    catalogue: &Catalogue,
    (counters, grants): (&mut Counters, &mut Grants),
    date: &[u8],
    now: Now,
    connection: &mut Connection,
    request: &Request<'_>,
) -> Answer {
    let Connection { keep_alive, texts, granted, rtt, .. } = connection;
    let (keep_alive, head) = (*keep_alive, &mut texts.head);
    let mut known = Known { granted, grants, verified: &mut counters.tokens_verified };
    let found = match find(catalogue, now, &mut known, request) {
        Ok(found) => found,
        Err(NotFound::Version) => return Answer::Missing,
        Err(NotFound::Status(status)) => {
            plain(head, counters, Head { status, keep_alive }, date);
            return Answer::HeadOnly;
        }
    };
    let (version, file) = found;
    // Never later than Date (RFC 9110 section 8.8.2.1): the clock that wrote it may be ahead.
    let modified = version.modified.min(now.wall);
    let what = Representation {
        object: file.object,
        len: file.len,
        content_type: &file.content_type,
        modified,
        rtt: *rtt,
    };
    // Before the conditions: they are for what could be sent (RFC 9110 section 13.2.1).
    if file.len != Bytes::ZERO && !catalogue.holds(file.object, file.len) {
        counters.misses += 1;
        return Answer::Missing;
    }
    let etag = response::etag(file.object);
    let (status, part) = match condition::evaluate(&request.fields, &etag, modified) {
        Verdict::Failed => {
            plain(head, counters, Head { status: Status::PreconditionFailed, keep_alive }, date);
            return Answer::HeadOnly;
        }
        Verdict::NotModified => (Status::NotModified, (Bytes::ZERO, Bytes::ZERO)),
        Verdict::Proceed { range } => select(request, range, file.len),
    };
    let body = matches!(status, Status::Ok | Status::PartialContent) && part.0 < part.1;
    head.clear();
    response::write_object(head, Head { status, keep_alive }, date, what, part);
    if body && request.method == Method::Get {
        // Counted when its first bytes leave: a drive may yet make it a 404.
        let (start, end) = part;
        assert!(end <= file.len, "a range ends within its file");
        let (object, kind) = (file.object, viewing::object(&file.content_type));
        Answer::Object { object, status, start, end, pace: version.pace, kind }
    } else {
        counters.count(status);
        Answer::HeadOnly
    }
}

/// Writes a head that says nothing of an object.
pub(crate) fn plain(out: &mut Vec<u8>, counters: &mut Counters, head: Head, date: &[u8]) {
    out.clear();
    counters.count(head.status);
    response::write_plain(out, head, date);
}

/// How requests by some addresses are sent on.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    pub(crate) base_url: String,
    pub(crate) drained: Vec<IpAddr>,
}

impl Guests {
    /// True of a request that is sent on, behind which its connection is closed; where to stands in
    /// the connection's texts. One that was sent on before is answered here.
    pub(crate) fn are_sent_on(&self, connection: &mut Connection, request: &Request<'_>) -> bool {
        let drains = |address: &IpAddr| self.drained.contains(address);
        // A page's question before its request (CORS) may not be redirected.
        if self.drained.is_empty()
            || !connection.reached.as_ref().is_some_and(drains)
            || !matches!(request.method, Method::Get | Method::Head)
        {
            return false;
        }
        elsewhere(&mut connection.texts.elsewhere, request);
        let is_sent_on = !connection.texts.elsewhere.is_empty();
        connection.keep_alive &= !is_sent_on;
        is_sent_on
    }
}

/// Notes where a sibling would be asked for the same, if there is one.
pub(crate) fn note_elsewhere(
    catalogue: &Catalogue,
    connection: &mut Connection,
    request: &Request<'_>,
) {
    if !catalogue.siblings.is_empty() {
        elsewhere(&mut connection.texts.elsewhere, request);
    }
}

/// The target for a sibling: that of this request, marked, so that it is sent on only once. Empty
/// if it is marked already. A query that would make the head too long is left out: no answer
/// depends on it.
fn elsewhere(out: &mut String, request: &Request<'_>) {
    if request.query.split('&').any(|part| part == MARK || part.starts_with("hop=")) {
        return;
    }
    let with_query = request.path.len() + request.query.len() + MARK.len() + 2;
    let query = if with_query <= TARGET_LEN_MAX { request.query } else { "" };
    if TARGET_LEN_MAX < request.path.len() + MARK.len() + 1 {
        return;
    }
    let and = if query.is_empty() { "" } else { "&" };
    for part in [request.path, "?", query, and, MARK] {
        out.push_str(part);
    }
}

/// Writes a 307 to a sibling, or else a 404.
pub(crate) fn redirect_or_404(
    catalogue: &Catalogue,
    counters: &mut Counters,
    date: &[u8],
    connection: &mut Connection,
) {
    // /t/{token}/{asset version}/{path}
    let version = connection.texts.elsewhere.split('/').nth(3);
    let base = version.and_then(|version| catalogue.sibling(version, counters.redirected));
    match base {
        Some(base) => redirect(base, counters, date, connection),
        None => {
            let head = Head { status: Status::NotFound, keep_alive: connection.keep_alive };
            plain(&mut connection.texts.head, counters, head, date);
        }
    }
}

/// Writes a 307 to `base`.
pub(crate) fn redirect(
    base: &str,
    counters: &mut Counters,
    date: &[u8],
    connection: &mut Connection,
) {
    let target = &connection.texts.elsewhere;
    counters.redirected += 1;
    counters.count(Status::TemporaryRedirect);
    connection.texts.head.clear();
    let keep_alive = connection.keep_alive;
    response::write_redirect(&mut connection.texts.head, keep_alive, date, (base, target));
}

fn select(request: &Request<'_>, range: bool, len: Bytes) -> (Status, (Bytes, Bytes)) {
    // RFC 9110 section 14.2: Range is defined for GET alone.
    let range = request.fields.range.filter(|_| range && request.method == Method::Get);
    match range.map(|value| range::select(value, len)) {
        None | Some(Selected::Whole) => (Status::Ok, (Bytes::ZERO, len)),
        Some(Selected::Part { start, end }) => (Status::PartialContent, (start, end)),
        Some(Selected::Unsatisfiable) => (Status::RangeNotSatisfiable, (Bytes::ZERO, Bytes::ZERO)),
    }
}

/// Tokens verified before.
struct Known<'a> {
    /// On this connection.
    granted: &'a mut Option<Arc<Granted>>,
    grants: &'a mut Grants,
    verified: &'a mut u64,
}

/// Why there is nothing to send.
enum NotFound {
    Status(Status),
    /// The token is good, and this appliance should not hold the version.
    Version,
}

impl From<Status> for NotFound {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// The file that a request names and may have, or why not.
fn find<'c>(
    catalogue: &'c Catalogue,
    now: Now,
    tokens: &mut Known<'_>,
    request: &Request<'_>,
) -> Result<(&'c AssetVersion, &'c File), NotFound> {
    match request.method {
        Method::Get | Method::Head => {}
        Method::Options => return Err(Status::NoContent.into()),
        Method::Other => return Err(Status::MethodNotAllowed.into()),
    }
    // /t/{token}/{asset version}/{path}
    let mut parts = request.path.splitn(5, '/');
    let (root, kind) = (parts.next(), parts.next());
    let (Some(""), Some("t"), Some(token), Some(version), Some(path)) =
        (root, kind, parts.next(), parts.next(), parts.next())
    else {
        return Err(Status::NotFound.into());
    };
    let from = "/t/".len();
    let named = &request.path[from..from + token.len() + 1 + version.len()];
    // Decoded first: the token is checked for the path that is looked up.
    let mut buffer = [0; PATH_LEN_MAX];
    let path = target::decode(path, &mut buffer).map_err(|_| Status::BadRequest)?;
    let known = catalogue.versions.get(version);
    let (keys, clock) = (catalogue.keys_epoch, catalogue.token_clock(now.wall));
    let covers = |granted: &&Arc<Granted>| granted.covers(named, path, clock, keys);
    if tokens.granted.as_ref().filter(covers).is_none() {
        if let Some(granted) = tokens.grants.find(named).filter(covers) {
            *tokens.granted = Some(Arc::clone(granted));
        } else {
            *tokens.verified += 1;
            let keys_now = &catalogue.token_keys;
            let grant = playback::token::verify(keys_now, token, version, path, clock);
            let grant = grant.map_err(|_| Status::Forbidden)?;
            if known.is_some() {
                let granted = Arc::new(Granted::new(named, grant, keys));
                tokens.grants.keep(&granted);
                *tokens.granted = Some(granted);
            }
        }
    }
    let version = known.ok_or(NotFound::Version)?;
    let file = version.files.get(path).ok_or(Status::NotFound)?;
    Ok((version, file))
}

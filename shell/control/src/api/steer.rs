//! Content steering: which pathway is best now. Some players end steering on 404, 410 and 429: the
//! answer is never 404 or 429, and 410 only for a version that was withdrawn.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, LazyLock, PoisonError};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use director::front::{Steered, Ticket};
use director::{Refused, Snapshot};
use model::units::{Nanos, UnixSeconds};
use playback::steering_doc::steering_doc;
use utoipa::ToSchema;

use super::play::{Decided, steering_url};
use super::problem::Problem;
use super::{NO_STORE, Shared, host};
use crate::state::writer::Control;

/// What a poll's path begins with, before the ticket.
const POLL: &str = "/steer/v1/";

/// The steering document of HLS and DASH.
#[derive(ToSchema)]
#[schema(rename_all = "SCREAMING-KEBAB-CASE")]
#[expect(dead_code, reason = "only its schema is used: playback writes the document")]
pub(crate) struct SteeringDocument {
    /// 1.
    version: u32,
    /// Seconds until the next request.
    ttl: u64,
    /// Where to ask next.
    reload_uri: String,
    /// Pathways, best first; never empty.
    pathway_priority: Vec<String>,
}

/// The pathways of a playback as they should be used now.
///
/// A ticket that is not ours, has expired or was revoked is refused, by its seal alone: 401 and 403
/// end steering in no player, and playback in none. A version that was withdrawn is 410, with which
/// players stop asking (draft-pantos-content-steering, section 4.1). O(1) until the seal is known
/// to be ours, then what a list costs (`steering::rank`).
#[utoipa::path(get, path = "/steer/v1/{session}", tag = "players",
    responses((status = 200, body = SteeringDocument)))]
pub(crate) async fn steer(
    State(control): Shared,
    session: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let sealed = session.map(|Path(sealed)| sealed).unwrap_or_default();
    let now = control.clock.unix();
    let (ticket, snapshot) = open(&control, &sealed, now).inspect_err(|refused| {
        control.metrics.ticket_refused(*refused);
    })?;
    let known = (&ticket, &snapshot, now);
    let text = answer(&control, &sealed, known, query.as_deref(), host(&headers))?;
    Ok(respond(text, respond_fields(HeaderMap::new())).map(Body::from))
}

/// The answer to a poll that needs nothing of what lies around handlers, which costs more than the
/// answer: it reads no body, waits for nothing and asks for no role. None of every other request,
/// and where the answer is not good: the router has the same to say. The answer has the request's
/// own map for its fields, which hyper takes again for the next request.
pub(super) fn straight<B>(control: &Control, request: &mut Request<B>) -> Option<Response<String>> {
    let sealed = request.uri().path().strip_prefix(POLL)?;
    // What is escaped, the router reads.
    if request.method() != Method::GET || sealed.contains(['%', '/']) {
        return None;
    }
    let now = control.clock.unix();
    let (ticket, snapshot) = open(control, sealed, now).ok()?;
    let known = (&ticket, &snapshot, now);
    let answered = answer(control, sealed, known, request.uri().query(), host(request.headers()));
    let text = answered.ok()?;
    let mut fields = std::mem::take(request.headers_mut());
    fields.clear();
    Some(respond(text, straight_fields(fields)))
}

/// What stands in the head of an answer that no router dresses.
fn straight_fields(fields: HeaderMap) -> HeaderMap {
    let mut fields = respond_fields(fields);
    super::share(&mut fields, super::CROSS_ORIGIN);
    fields
}

/// Answers a poll whose head hyper has not seen: adds the whole answer, byte for byte as hyper
/// writes it. False, and nothing is added, where the answer is not 200 or the last of its
/// connection, or where hyper may read the head in another way.
pub(super) fn answer_bytes(
    control: &Control,
    request: &http1::Request<'_>,
    answers: &mut Vec<u8>,
) -> bool {
    let http1::Request { method, path, query, keep_alive, fields } = request;
    let Some(sealed) = path.strip_prefix(POLL) else { return false };
    if *method != http1::Method::Get || !*keep_alive || !is_plain(query) {
        return false;
    }
    let now = control.clock.unix();
    let Ok((ticket, snapshot)) = open(control, sealed, now) else { return false };
    let host = fields.host.and_then(|host| str::from_utf8(host).ok());
    let known = (&ticket, &snapshot, now);
    let Ok(text) = answer(control, sealed, known, Some(query), host) else { return false };
    write_answer(&text, now, answers);
    true
}

/// True of a query that every reader of URLs takes as it is.
fn is_plain(query: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte);
    query.bytes().all(is_plain)
}

/// Writes the answer with a document. O(its length).
fn write_answer(document: &str, now: UnixSeconds, to: &mut Vec<u8>) {
    to.extend_from_slice(&HEAD);
    write!(to, "{}", document.len()).expect("a vector takes all");
    DATE.with_borrow_mut(|(at, date)| {
        if *at != now || date.is_empty() {
            *at = now;
            date.clear();
            http1::date::write(now, date);
        }
        to.extend_from_slice(b"\r\ndate: ");
        to.extend_from_slice(date);
        to.extend_from_slice(b"\r\n\r\n");
    });
    to.extend_from_slice(document.as_bytes());
}

thread_local! {
    /// A second, and how heads say it.
    static DATE: RefCell<(UnixSeconds, Vec<u8>)> = RefCell::default();
}

/// The head of an answer, to where its length stands.
static HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let fields = straight_fields(HeaderMap::new());
    for (name, value) in &fields {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"content-length: ");
    head
});

/// The answer with a steering document.
fn respond(document: String, fields: HeaderMap) -> Response<String> {
    let mut response = Response::new(document);
    *response.headers_mut() = fields;
    response
}

/// Adds the fields of an answer with a document.
fn respond_fields(mut fields: HeaderMap) -> HeaderMap {
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    super::share(&mut fields, &NO_STORE);
    fields
}

/// A ticket that is good now, and the picture that said so.
type Known<'a> = (&'a Ticket, &'a Arc<Snapshot>, UnixSeconds);

/// The steering document of a ticket.
fn answer(
    control: &Control,
    sealed: &str,
    (ticket, snapshot, now): Known<'_>,
    query: Option<&str>,
    host: Option<&str>,
) -> Result<String, Problem> {
    if snapshot.is_withdrawn(&ticket.version, now) {
        let detail = "this was withdrawn: do not ask again";
        return Err(Problem::new(StatusCode::GONE, "withdrawn", detail));
    }
    control.metrics.steering_answers.count();
    let Steered { among, list, pathways, nearest, draw, bitrate } =
        snapshot.steered(ticket, &control.steering_config());
    let Ticket { client, plain, .. } = *ticket;
    let (at, among, of) = (now, Some(among.as_slice()), &ticket.version);
    let decided = Decided { at, draw, client, plain, version: of, among, list: &list };
    control.keep(snapshot, decided);
    let session = ticket.session.number();
    let turn = next_turn(control, session);
    if let Some(nearest) = nearest {
        let answer = Some((turn, bitrate));
        control.sheds.count(session, nearest, &ticket.version, answer);
    }
    let names: Vec<&str> = pathways.iter().map(|id| id.as_str()).collect();
    if uses_another(query.unwrap_or(""), names.first().copied()) {
        control.metrics.steering_failovers.count();
    }
    let url = steering_url(control, host, sealed);
    Ok(steering_doc(turn, &url, &names))
}

/// The ticket, if it is good now.
pub(super) fn open(
    control: &Control,
    sealed: &str,
    now: UnixSeconds,
) -> Result<(Ticket, Arc<Snapshot>), Refused> {
    let ticket: Ticket = control.unseal(sealed).ok_or(Refused::Unknown)?;
    let snapshot = control.snapshot();
    snapshot.playbacks.check(&ticket.session, ticket.expires, now)?;
    Ok((ticket, snapshot))
}

/// How soon the player of this session, by its number, shall ask again.
fn next_turn(control: &Control, session: u64) -> Nanos {
    let pace = control.config.pace();
    let mut turns = control.turns.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = turns.take(control.clock.now(), session, &pace);
    drop(turns);
    if pace.is_late(turn) {
        control.metrics.steering_delayed.count();
    }
    turn
}

/// True if the player says that it uses a pathway that is not the best. A hint, not a proof.
fn uses_another(query: &str, best: Option<&str>) -> bool {
    let used = query.split('&').filter_map(|part| part.split_once('='));
    let used = used.filter(|(name, _)| matches!(*name, "_HLS_pathway" | "_DASH_pathway"));
    let last = used.map(|(_, value)| value.trim_matches(['"', '%', '2'])).next();
    match (last.and_then(|list| list.split(',').next_back()), best) {
        (Some(used), Some(best)) => !used.is_empty() && !used.contains(best),
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_player_elsewhere_than_at_the_best_pathway_is_noticed() {
        assert!(!uses_another("", Some("a1")));
        assert!(!uses_another("_HLS_pathway=a1&_HLS_throughput=5", Some("a1")));
        assert!(uses_another("_HLS_pathway=a2", Some("a1")));
        assert!(!uses_another("_DASH_pathway=%22a2,a1%22&_DASH_throughput=1,2", Some("a1")));
        assert!(uses_another("_DASH_pathway=%22a1,a2%22", Some("a1")));
        assert!(!uses_another("_HLS_pathway=a2", None));
    }
}

//! Content steering: which pathway is best now. Some players end steering on 404, 410 and 429: the
//! answer is never 404 or 429, and 410 only for a version that was withdrawn.

use std::sync::{Arc, PoisonError};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use axum::response::Response;
use director::front::{Player, Steered, Ticket};
use director::{Refused, Snapshot};
use model::units::{Nanos, UnixSeconds};
use playback::steering_doc::steering_doc;
use playback::token::Session;
use utoipa::ToSchema;

use super::play::{Decided, steering_url};
use super::problem::Problem;
use super::{NO_STORE, Shared};
use crate::state::writer::Control;

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
    let text = answer(&control, &sealed, (&ticket, &snapshot, now), query.as_deref(), &headers)?;
    Ok(respond(text, HeaderMap::new()).map(Body::from))
}

/// The answer to a poll that needs nothing of what lies around handlers, which costs more than the
/// answer: it reads no body, waits for nothing and asks for no role. None of every other request,
/// and where the answer is not good: the router has the same to say. The answer has the request's
/// own map for its fields, which hyper takes again for the next request.
pub(super) fn straight<B>(control: &Control, request: &mut Request<B>) -> Option<Response<String>> {
    let sealed = request.uri().path().strip_prefix("/steer/v1/")?;
    // What is escaped, the router reads.
    if request.method() != Method::GET || sealed.contains(['%', '/']) {
        return None;
    }
    let now = control.clock.unix();
    let (ticket, snapshot) = open(control, sealed, now).ok()?;
    let known = (&ticket, &snapshot, now);
    let answered = answer(control, sealed, known, request.uri().query(), request.headers());
    let text = answered.ok()?;
    let mut fields = std::mem::take(request.headers_mut());
    fields.clear();
    let mut response = respond(text, fields);
    super::share(response.headers_mut(), super::CROSS_ORIGIN);
    Some(response)
}

/// The answer with a steering document, in a map that is empty.
fn respond(document: String, mut fields: HeaderMap) -> Response<String> {
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    super::share(&mut fields, &NO_STORE);
    let mut response = Response::new(document);
    *response.headers_mut() = fields;
    response
}

/// A ticket that is good now, and the picture that said so.
type Known<'a> = (&'a Ticket, &'a Arc<Snapshot>, UnixSeconds);

/// The steering document of a ticket.
fn answer(
    control: &Control,
    sealed: &str,
    (ticket, snapshot, now): Known<'_>,
    query: Option<&str>,
    headers: &HeaderMap,
) -> Result<String, Problem> {
    if snapshot.is_withdrawn(&ticket.version, now) {
        let detail = "this was withdrawn: do not ask again";
        return Err(Problem::new(StatusCode::GONE, "withdrawn", detail));
    }
    control.metrics.steering_answers.count();
    let Steered { among, list, pathways, nearest } =
        snapshot.steered(ticket, &control.steering_config());
    let Ticket { client, session, plain, .. } = ticket;
    let player = Player { client: *client, session, plain: *plain };
    let decided = Decided { at: now, version: &ticket.version, among: Some(&among), list: &list };
    control.keep(snapshot, &player, decided);
    let turn = next_turn(control, &ticket.session);
    if let Some(nearest) = nearest {
        let version = snapshot.catalog.version(&ticket.version);
        let bitrate = version.and_then(|version| version.bitrate()).unwrap_or_default();
        let answer = Some((turn, bitrate));
        control.sheds.count(session.number(), nearest, &ticket.version, answer);
    }
    let names: Vec<&str> = pathways.iter().map(|id| id.as_str()).collect();
    if uses_another(query.unwrap_or(""), names.first().copied()) {
        control.metrics.steering_failovers.count();
    }
    let url = steering_url(control, headers, sealed);
    Ok(steering_doc(turn, &url, &names))
}

/// The ticket, if it is good now.
pub(super) fn open(
    control: &Control,
    sealed: &str,
    now: UnixSeconds,
) -> Result<(Ticket, Arc<Snapshot>), Refused> {
    let ticket: Ticket = control.keys().unseal(sealed).ok_or(Refused::Unknown)?;
    let snapshot = control.snapshot();
    snapshot.playbacks.check(&ticket.session, ticket.expires, now)?;
    Ok((ticket, snapshot))
}

/// How soon the player shall ask again.
fn next_turn(control: &Control, session: &Session) -> Nanos {
    let pace = control.config.pace();
    let mut turns = control.turns.lock().unwrap_or_else(PoisonError::into_inner);
    let turn = turns.take(control.clock.now(), session.number(), &pace);
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

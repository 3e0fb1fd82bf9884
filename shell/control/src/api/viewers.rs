//! What viewers felt: for people, and from players that tell of themselves (CMCD version 2).

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use playback::cmcd;
use playback::player::Player;
use qoe::Taken;
use tokio::time::timeout;
use wire::v1::viewers::ViewersOut;

use super::problem::Problem;
use super::steer::open;
use super::{NO_STORE, SMALL_BODY_MAX, Shared};

/// What viewers felt of late, and since the start, by site, asset, network and player.
#[utoipa::path(get, path = "/v1/viewers", tag = "fleet",
    responses((status = 200, body = ViewersOut)))]
pub(crate) async fn viewers(State(control): Shared) -> Response {
    // Of thousands of sites it takes tens of milliseconds, in which players should be answered.
    let written = move || {
        Json(control.viewers.out(control.clock.now(), control.clock.unix())).into_response()
    };
    tokio::task::spawn_blocking(written).await.expect("nothing in it panics")
}

/// Takes events of a player (CTA-5004-A, event mode): a line each. The URL has the ticket of the
/// playback under its seal, as its steering URL does.
///
/// O(1) until the seal is known to be ours, and no byte of the body is read before. Then
/// O(lines + pathways).
#[utoipa::path(post, path = "/events/v1/{session}", tag = "players",
    request_body(content = String, content_type = "application/cmcd"),
    responses((status = 204, description = "Taken"),
        (status = 410, description = "The version was withdrawn: send no more"),
        (status = 429, description = "This playback says too much")))]
pub(crate) async fn events(
    State(control): Shared,
    session: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, Problem> {
    let sealed = session.map(|Path(sealed)| sealed).unwrap_or_default();
    let now = control.clock.unix();
    let (ticket, snapshot) = open(&control, &sealed, now).inspect_err(|_| {
        control.metrics.events_refused.count();
    })?;
    if snapshot.is_withdrawn(&ticket.version, now) {
        let detail = "this was withdrawn: send no more";
        return Err(Problem::new(StatusCode::GONE, "withdrawn", detail));
    }
    let agent = request.headers().get(header::USER_AGENT);
    let player = Player::of(agent.map_or(&[][..], |agent| agent.as_bytes()));
    // Only now, and not long.
    let body = match timeout(SMALL_BODY_MAX, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => body,
        Ok(Err(refused)) => return Ok(refused.into_response()),
        Err(_) => {
            control.metrics.bodies_timed_out.count();
            return Ok(StatusCode::REQUEST_TIMEOUT.into_response());
        }
    };
    let serving = snapshot.steer(&ticket, &control.steering_config());
    let (now, lines) = (control.clock.now(), cmcd::reports(&body));
    let of = (&ticket, player, serving.first().copied());
    match control.viewers.take_events(now, of, lines, &snapshot) {
        Taken::Yes => {
            control.metrics.events_taken.count();
            Ok((NO_STORE, StatusCode::NO_CONTENT).into_response())
        }
        Taken::TooMany => {
            control.metrics.events_dropped.count();
            let detail = "this playback says too much: one line a second is enough";
            Ok(later(StatusCode::TOO_MANY_REQUESTS, "too-many", detail))
        }
        Taken::Full => {
            control.metrics.events_dropped.count();
            let detail = "too many playbacks tell of themselves: this one is not followed";
            Ok(later(StatusCode::SERVICE_UNAVAILABLE, "busy", detail))
        }
    }
}

fn later(status: StatusCode, kind: &'static str, detail: &str) -> Response {
    let problem = Problem::new(status, kind, detail);
    ([(header::RETRY_AFTER, "60")], problem).into_response()
}

//! Content steering: which pathway is best now. Always 200, since some players end steering on
//! others; but for a version that was withdrawn, where that is meant.

use axum::extract::rejection::PathRejection;
use axum::extract::{ConnectInfo, Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::id::ApplianceId;
use playback::steering_doc::steering_doc;
use utoipa::ToSchema;

use super::Shared;
use super::play::steering_url;
use crate::listener::Peer;

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

/// The pathways of a playback as they should be used now. Answers 200 whatever is asked, but for
/// what was withdrawn: 410, with which players stop asking.
#[utoipa::path(get, path = "/steer/v1/{session}", tag = "players",
    params(("session" = String, Path,
        description = "As the entry manifest has it; players add _HLS_ and _DASH_ parameters")),
    responses((status = 200, body = SteeringDocument),
        (status = 410, description = "What it plays was withdrawn: do not ask again")))]
pub(crate) async fn steer(
    State(control): Shared,
    ConnectInfo(peer): ConnectInfo<Peer>,
    session: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let snapshot = control.snapshot();
    let config = control.steering_config();
    let sealed = session.map(|Path(sealed)| sealed).unwrap_or_default();
    control.metrics.steering_answers.count();
    let list = match control.keys().unseal(&sealed) {
        Some(ticket) if snapshot.is_withdrawn(&ticket.version) => return gone(),
        Some(ticket) => snapshot.steer(&ticket, &config),
        None => {
            control.metrics.steering_unknown.count();
            snapshot.steer_unknown(snapshot.client_range(peer.0.ip()), &config)
        }
    };
    let names: Vec<&str> = list.iter().map(ApplianceId::as_str).collect();
    if uses_another(query.as_deref().unwrap_or(""), names.first().copied()) {
        control.metrics.steering_failovers.count();
    }
    // Without a single appliance, the name that both formats give to a pathway without a name.
    let names = if names.is_empty() { vec!["."] } else { names };
    let url = steering_url(&control, &headers, &url_safe(&sealed));
    let text = steering_doc(control.config.steering_ttl, &url, &names);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    (headers, text).into_response()
}

/// The playback is over: a player makes no further steering requests in it
/// (draft-pantos-content-steering, section 4.1).
fn gone() -> Response {
    (StatusCode::GONE, [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
        .into_response()
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

/// What was asked for, as far as it may stand in a URL again.
fn url_safe(text: &str) -> String {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "-._~:".contains(*c);
    text.chars().filter(allowed).take(SEALED_LEN_MAX).collect()
}

/// A sealed ticket: its parts are a few names of at most 63 bytes.
const SEALED_LEN_MAX: usize = 1024;

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

    #[test]
    fn what_is_asked_cannot_break_out_of_the_answer() {
        assert_eq!(url_safe("a\"b\n<c>~1:2-3._"), "abc~1:2-3._");
        assert_eq!(url_safe(&"x".repeat(5000)).len(), SEALED_LEN_MAX);
    }
}

//! What a writer that stands by answers: that it does, and where the one that leads is.

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use wire::prometheus::Page;

use super::problem::Problem;
use crate::metrics::gauges;
use crate::state::lease::Standing;

type Lease = State<watch::Receiver<Standing>>;

/// `/metrics`, and 503 with the leader's address for all else, `/healthz` too. No secret is in it.
pub(crate) fn router(standing: watch::Receiver<Standing>) -> Router {
    Router::new().route("/metrics", get(metrics)).fallback(refuse).with_state(standing)
}

async fn refuse(State(standing): Lease) -> Problem {
    let leader = standing.borrow().leader.clone();
    let where_it_is = if leader.is_empty() { "not known yet".to_owned() } else { leader };
    let detail = format!(
        "this writer stands by; the one that leads is {where_it_is}, and fronts answer players"
    );
    Problem::standby(detail)
}

async fn metrics(State(standing): Lease) -> Response {
    let mut page = Page::new("nearcast_control_");
    gauges(&mut page, rows(&standing.borrow()));
    ([(header::CONTENT_TYPE, wire::prometheus::CONTENT_TYPE)], page.into_text()).into_response()
}

/// What is measured of the lease.
pub(super) fn rows(standing: &Standing) -> [(&'static str, &'static str, u64); 3] {
    [
        ("leads", "1 if this writer leads, 0 if it stands by.", standing.epoch.is_some().into()),
        (
            "lease_epoch",
            "Epoch that this writer leads with; 0 if none.",
            standing.epoch.unwrap_or(0),
        ),
        ("take_overs", "Times that this process began to lead.", standing.take_overs),
    ]
}

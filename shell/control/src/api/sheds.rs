//! Clients that were led past their nearest site.

use axum::Json;
use axum::extract::State;
use wire::v1::sheds::ShedRow;

use super::Shared;

/// How often clients were led past their nearest site since this process began, and why: by site,
/// and by version, of the 1,000 with most bytes. Each process counts the decisions of its own.
#[utoipa::path(get, path = "/v1/sheds", tag = "fleet",
    responses((status = 200, body = Vec<ShedRow>)))]
pub(crate) async fn sheds(State(control): Shared) -> Json<Vec<ShedRow>> {
    // Of thousands of sites it takes milliseconds, in which players should be answered.
    let rows = move || control.sheds.rows(&control.snapshot().view);
    Json(tokio::task::spawn_blocking(rows).await.expect("nothing in it panics"))
}

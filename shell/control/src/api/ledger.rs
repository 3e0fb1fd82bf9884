//! The ledger of this process: its files, for `nearcast replay`.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::task::spawn_blocking;
use wire::v1::fleet::LedgerOut;

use super::problem::Problem;
use super::{NO_STORE, Shared};

/// The files of this process's ledger, oldest first, and the key of their seals. The last one is
/// written to while the process runs.
#[utoipa::path(get, path = "/v1/ledger", tag = "fleet",
    responses((status = 200, body = LedgerOut)))]
pub(crate) async fn ledger(State(control): Shared) -> Result<Json<LedgerOut>, Problem> {
    let decisions = control.decisions.clone();
    let shown = spawn_blocking(move || decisions.shown()).await.expect("nothing in it panics");
    Ok(Json(shown.map_err(unreadable)?))
}

/// One file of the ledger, as it is.
#[utoipa::path(get, path = "/v1/ledger/{file}", tag = "fleet",
    params(("file" = String, Path, description = "A name of `GET /v1/ledger`")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
pub(crate) async fn ledger_file(
    State(control): Shared,
    Path(file): Path<String>,
) -> Result<Response, Problem> {
    let decisions = control.decisions.clone();
    let read = spawn_blocking(move || decisions.read(&file)).await.expect("nothing in it panics");
    let gone = || Problem::not_found("the ledger has no such file, or not any more");
    let bytes = read.map_err(unreadable)?.ok_or_else(gone)?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], NO_STORE, bytes).into_response())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unreadable(error: std::io::Error) -> Problem {
    let detail = format!("the folder of the ledger cannot be read: {error}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "ledger", detail)
}

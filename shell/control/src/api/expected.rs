//! What viewers are expected to be sent of what an appliance holds.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::sync::LazyLock;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::id::ApplianceId;
use model::units::Bytes;
use serde::Deserialize;
use tokio::task::spawn_blocking;
use utoipa::IntoParams;
use wire::convert::expected_out;
use wire::v1::expected::{Expected, ExpectedItem};

use super::Shared;
use super::caller::ApplianceCaller;
use super::problem::Problem;
use crate::state::quotas::Quotas;

/// Those that are answered now: one that asks again and again leaves a place to others. Each takes
/// milliseconds of a core, and every appliance asks every two hours.
static ASKING: LazyLock<Quotas<ApplianceId>> = LazyLock::new(|| Quotas::new(ASKING_MAX, 1));
/// Arbitrary: a core has other work.
const ASKING_MAX: usize = 2;

/// What the appliance has, and how much of it is of use there.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Known {
    /// The room of its fast drives, or memory for hot blocks where that is more.
    #[serde(default)]
    bytes: u64,
    /// The state that it has already; 0 or nothing for none.
    #[serde(default)]
    known: u64,
}

/// The items of which viewers are expected to be sent most, by this appliance, for each byte: as
/// many as take so many bytes. O(appliances + items that it holds).
#[utoipa::path(get, path = "/v1/appliances/{id}/expected", tag = "members", params(Known),
    responses((status = 200, body = Expected), (status = 204, description = "Nothing newer")))]
pub(crate) async fn expected(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Query(Known { bytes, known }): Query<Known>,
) -> Result<Response, Problem> {
    let appliance = caller.is(&id)?;
    let Some(taken) = ASKING.take(&appliance) else {
        let detail = "this appliance is being answered, or two others: come again in some minutes";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let question = control.directing.ask(|desk, _| desk.director.question_of_demand()).await?;
    if !question.is_planned() {
        let detail = "nothing is planned since control began: come again in some minutes";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    }
    let told = spawn_blocking(move || {
        let _taken = taken;
        let items = expected_out(&question.expected(&appliance, Bytes(bytes)));
        let state = state_of(&items);
        Expected { state, items }
    });
    let told = told.await.expect("nothing in it panics");
    if told.state == known {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    Ok(Json(told).into_response())
}

/// 53 bits of a hash of the list, never 0.
fn state_of(items: &[ExpectedItem]) -> u64 {
    let text = serde_json::to_vec(items).expect("a list always becomes JSON");
    let hash = blake3::hash(&text);
    let first = hash.as_bytes().first_chunk::<8>().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*first) >> 11).max(1)
}

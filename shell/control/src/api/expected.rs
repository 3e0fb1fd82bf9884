//! What viewers are expected to be sent of what an appliance holds.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Those that are answered now: one that asks again and again leaves a place to others. Each takes
/// milliseconds of a core, and every appliance asks every two hours.
static ASKING: Asking = Asking(Mutex::new(BTreeSet::new()));
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
    let Some(turn) = ASKING.begin(&appliance) else {
        let detail = "this appliance is being answered, or two others: come again in some minutes";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    };
    let question = control.directing.ask(|desk, _| desk.director.question_of_demand()).await?;
    if !question.is_planned() {
        let detail = "nothing is planned since control began: come again in some minutes";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail));
    }
    let told = spawn_blocking(move || {
        let _turn = turn;
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

/// Appliances that are answered, each once: [`ASKING_MAX`] at most.
struct Asking(Mutex<BTreeSet<ApplianceId>>);

impl Asking {
    fn begin(&self, id: &ApplianceId) -> Option<Turn<'_>> {
        let mut asking = self.lock();
        let is_free = asking.len() < ASKING_MAX && asking.insert(id.clone());
        is_free.then(|| Turn { asking: self, id: id.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ApplianceId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends with its answer.
struct Turn<'a> {
    asking: &'a Asking,
    id: ApplianceId,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.asking.lock().remove(&self.id);
    }
}

/// 53 bits of a hash of the list, never 0.
fn state_of(items: &[ExpectedItem]) -> u64 {
    let text = serde_json::to_vec(items).expect("a list always becomes JSON");
    let hash = blake3::hash(&text);
    let first = hash.as_bytes().first_chunk::<8>().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*first) >> 11).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_appliance_has_one_place_and_leaves_it() {
        let [one, two, three] = ["a1", "a2", "a3"].map(|id| id.parse::<ApplianceId>().unwrap());
        let asking = Asking(Mutex::default());
        let first = asking.begin(&one).unwrap();
        assert!(asking.begin(&one).is_none(), "it has one");
        let second = asking.begin(&two).unwrap();
        assert!(asking.begin(&three).is_none(), "both are taken");
        drop((first, second));
        assert!(asking.begin(&one).is_some());
    }
}

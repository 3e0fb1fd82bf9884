//! Appliances that are drained: taken out of players' lists for a while.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::Registered;
use director::drain::Drain;
use model::units::UnixSeconds;
use serde::Deserialize;
use utoipa::ToSchema;
use wire::v1::fleet::DrainOut;

use super::problem::{Problem, Said};
use super::{Shared, named};
use crate::state::convert;

/// When an appliance is to be drained.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DrainBody {
    /// From then on, in UTC (RFC 3339); without it, now.
    #[serde(default)]
    #[schema(example = "2027-01-31T02:00:00Z")]
    at: Option<String>,
    /// For so many seconds, 1 to 31,536,000; without it, until an operator ends it.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    for_s: Option<u64>,
}

/// Has an appliance drained: it leaves the lists for new playbacks at once, and players that poll
/// leave it within a TTL. In place of what was said before.
#[utoipa::path(put, path = "/v1/appliances/{id}/drain", tag = "registry", request_body = DrainBody,
    responses((status = 200, body = DrainOut)))]
pub(crate) async fn put_drain(
    State(control): Shared,
    Path(id): Path<String>,
    Json(body): Json<DrainBody>,
) -> Result<(Extension<Said>, Json<DrainOut>), Problem> {
    let now = control.clock.unix();
    let from = match &body.at {
        None => now,
        Some(text) => convert::time_in(text).ok_or_else(|| {
            Problem::bad_request("at: write a time in UTC, as in 2027-01-31T02:00:00Z")
        })?,
    };
    if !body.for_s.is_none_or(|seconds| (1..=FOR_MAX_S).contains(&seconds)) {
        return Err(Problem::bad_request(format!("for_s: use 1 to {FOR_MAX_S}")));
    }
    if AT_MAX < from {
        return Err(Problem::bad_request("at: use a year before 9999"));
    }
    let until = body.for_s.map(|seconds| UnixSeconds(from.0.saturating_add(seconds)));
    let drain = Drain { from, until };
    if drain.is_over(now) {
        return Err(Problem::bad_request("at, for_s: such a drain would be over by now"));
    }
    if !control.put_drain(&named(&id)?, Some(drain)).await? {
        return Err(no_appliance(&id));
    }
    let end = until.map_or_else(|| "further notice".to_owned(), convert::time_out);
    let said = Said(format!("drained from {} until {end}", convert::time_out(from)));
    Ok((Extension(said), Json(convert::drain_out(drain))))
}

/// Ends the drain of an appliance, or takes back one that is to come: it is on players' lists
/// again.
#[utoipa::path(delete, path = "/v1/appliances/{id}/drain", tag = "registry",
    responses((status = 204, description = "It is not drained, whether or not it was")))]
pub(crate) async fn delete_drain(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let known = control.put_drain(&named(&id)?, None).await?;
    if known { Ok(StatusCode::NO_CONTENT) } else { Err(no_appliance(&id)) }
}

/// The drain of an appliance that is on or to come.
pub(super) fn drain_out(registered: &Registered, now: UnixSeconds) -> Option<DrainOut> {
    registered.drain.filter(|drain| !drain.is_over(now)).map(convert::drain_out)
}

pub(super) fn no_appliance(id: &str) -> Problem {
    Problem::not_found(format!("there is no appliance {id}: GET /v1/appliances lists them"))
}

/// A year.
const FOR_MAX_S: u64 = 31_536_000;

/// 9998-12-31T23:59:59Z: RFC 3339 has four digits for a year.
const AT_MAX: UnixSeconds = UnixSeconds(253_370_764_799);

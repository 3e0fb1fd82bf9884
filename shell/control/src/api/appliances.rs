//! What appliances say and ask.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::id::{Generation, ObjectId};
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::manifest::Manifest;
use wire::v1::report::{Report, ReportReply};

use super::caller::ApplianceCaller;
use super::problem::Problem;
use super::{Shared, named};

/// What the appliance has.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Known {
    /// Generation that the appliance has already; 0 or nothing for none.
    #[serde(default)]
    known: u64,
}

/// Takes an appliance's report, which is also its heartbeat.
#[utoipa::path(post, path = "/v1/appliances/{id}/report", tag = "members",
    params(("id" = String, Path, description = "Name of the appliance")),
    request_body = Report,
    responses((status = 200, body = ReportReply), (status = "default", response = Problem)))]
pub(crate) async fn report(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Json(report): Json<Report>,
) -> Result<Json<ReportReply>, Problem> {
    let reply = control.report(&caller.is(&id)?, report)?.map_err(|_| not_registered(&id))?;
    Ok(Json(ReportReply {
        generation: reply.generation.0,
        inventory: reply.inventory,
        interval_ms: reply.interval.as_millis(),
    }))
}

/// The appliance's manifest, if it is newer than what the appliance has: a line with its signature,
/// then its JSON.
#[utoipa::path(get, path = "/v1/appliances/{id}/manifest", tag = "members",
    params(("id" = String, Path, description = "Name of the appliance"), Known),
    responses((status = 200, content_type = "application/vnd.nearcast.signed", body = Manifest),
        (status = 204, description = "Nothing newer"),
        (status = "default", response = Problem)))]
pub(crate) async fn manifest(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
    Query(Known { known }): Query<Known>,
) -> Result<Response, Problem> {
    let signed = control.signed_manifest(&caller.is(&id)?, Generation(known));
    let kind = HeaderValue::from_static(SIGNED);
    match signed.map_err(|_| not_registered(&id))? {
        Some(bytes) => Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// The hashes of an object's blocks, 32 bytes for each 256 KiB.
#[utoipa::path(get, path = "/v1/objects/{id}/blocks", tag = "members",
    params(("id" = String, Path, description = "Object id, 64 hex digits")),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>),
        (status = "default", response = Problem)))]
pub(crate) async fn blocks(
    State(control): Shared,
    _: ApplianceCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: ObjectId = named(&id)?;
    let blocks = control.store.blocks(&id).await.map_err(crate::writer::ChangeError::from)?;
    let blocks = blocks.ok_or_else(|| Problem::not_found(format!("there is no object {id}")))?;
    let kind = HeaderValue::from_static("application/octet-stream");
    Ok(([(header::CONTENT_TYPE, kind)], blocks).into_response())
}

/// An envelope of `wire::v1::signed`.
pub(super) const SIGNED: &str = "application/vnd.nearcast.signed";

pub(super) fn not_registered(id: &str) -> Problem {
    let advice = format!("an operator registers it with PUT /v1/appliances/{id}");
    Problem::not_found(format!("appliance {id} is not registered: {advice}"))
}

//! Requests of fronts to the writer, and a front's answer to requests that are the writer's.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::id::Generation;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::replica::{Keys, Snapshot};

use super::appliances::SIGNED;
use super::caller::FrontCaller;
use super::problem::Problem;
use super::{NO_STORE, Shared};
use crate::state::writer::{ReplicaError, Wanted};

/// What the front has.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct KnownSnapshot {
    /// Generation of the snapshot that the front has already; 0 or nothing for none.
    #[serde(default)]
    known: u64,
    /// `true` if differences will do, where they are there.
    #[serde(default)]
    differences: bool,
    /// `true` if a whole snapshot is wanted though the front has that generation: something of it
    /// was lost there.
    #[serde(default)]
    whole: bool,
}

/// Desired state for a front, if it is newer than what the front has: a line with its signature,
/// then its JSON. With `differences`, and where the writer still has them, all that lead there: the
/// same and a line feed for each.
#[utoipa::path(get, path = "/v1/replica/snapshot", tag = "members", params(KnownSnapshot),
    responses((status = 200, content_type = "application/vnd.nearcast.signed", body = Snapshot),
        (status = 204, description = "Nothing newer")))]
pub(crate) async fn replica_snapshot(
    State(control): Shared,
    _: FrontCaller,
    Query(KnownSnapshot { known, differences, whole }): Query<KnownSnapshot>,
) -> Result<Response, Problem> {
    let wanted = match (whole, differences) {
        (true, _) => Wanted::Whole,
        (false, true) => Wanted::Differences,
        (false, false) => Wanted::Newer,
    };
    match control.replica_snapshot(Generation(known), wanted).await? {
        Some(bytes) => Ok(([(header::CONTENT_TYPE, SIGNED)], bytes).into_response()),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}

/// The secrets with which a front begins playbacks and answers for those that others began.
#[utoipa::path(get, path = "/v1/replica/keys", tag = "members",
    responses((status = 200, body = Keys)))]
pub(crate) async fn replica_keys(State(control): Shared, _: FrontCaller) -> Response {
    (NO_STORE, Json(control.keys().secrets(control.access.tokens().values()))).into_response()
}

/// For all that a front has no route for. The body is read, so that the connection stays open.
pub(crate) async fn ask_the_writer(
    State(control): Shared,
    _body: Result<Bytes, BytesRejection>,
) -> Problem {
    let writer = control.with_front(|front| front.writer.clone()).unwrap_or_default();
    let detail = format!(
        "this is a front, which answers players and shows the fleet: ask the writer, whose fleet \
         address is {writer}"
    );
    Problem::new(StatusCode::MISDIRECTED_REQUEST, "front", detail)
}

impl From<ReplicaError> for Problem {
    fn from(error: ReplicaError) -> Self {
        match error {
            ReplicaError::Store(error) => error.into(),
            ReplicaError::TooLong(error) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "limit-reached", error)
            }
            ReplicaError::Behind { .. } => {
                tracing::warn!(%error, "a front is ahead of this writer");
                Self::new(StatusCode::CONFLICT, "behind", error)
            }
        }
    }
}

//! The keys of playback tokens.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::problem::{Problem, Said};

/// A key of playback tokens, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct KeyOut {
    /// Key id, the first part of the tokens that it signs.
    #[schema(example = "k1")]
    kid: String,
    /// New tokens are signed with it.
    signs: bool,
    /// Since when it is announced, seconds since 1970; null once it signs.
    announced_unix_s: Option<u64>,
    /// When it is of no more use, seconds since 1970; null before it has been replaced.
    retires_unix_s: Option<u64>,
}

/// The keys that playback tokens may be signed with.
#[utoipa::path(get, path = "/v1/keys", tag = "access", responses((status = 200, body = [KeyOut])))]
pub(crate) async fn keys(State(control): Shared) -> Json<Vec<KeyOut>> {
    let out = |(i, key): (usize, crate::members::keys::Shown)| KeyOut {
        kid: key.kid,
        signs: i == 0,
        announced_unix_s: key.announced.map(|at| at.0),
        retires_unix_s: key.retires.map(|at| at.0),
    };
    Json(control.keys().shown().into_iter().enumerate().map(out).collect())
}

/// Makes a new key for playback tokens and announces it in every manifest. It signs once every
/// appliance has such a manifest, or after a day; the old one goes when its last token has expired.
/// Asked for again before the new one signs, nothing more happens.
#[utoipa::path(post, path = "/v1/keys/rotate", tag = "access",
    responses((status = 202, body = [KeyOut])))]
pub(crate) async fn rotate(
    State(control): Shared,
) -> Result<(StatusCode, Extension<Said>, Json<Vec<KeyOut>>), Problem> {
    let is_new = control.rotate_token_key().await.map_err(|error| {
        tracing::error!(%error, "a key of playback tokens could not be stored");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "storage", error)
    })?;
    let said = Said(if is_new { "announced" } else { "a rotation is under way" }.to_owned());
    Ok((StatusCode::ACCEPTED, Extension(said), keys(State(control)).await))
}

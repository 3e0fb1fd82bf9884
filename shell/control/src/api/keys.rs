//! The keys of playback tokens.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use wire::v1::fleet::KeyOut;

use super::Shared;
use super::problem::{Problem, Said};

/// The keys that playback tokens may be signed with.
#[utoipa::path(get, path = "/v1/keys", tag = "access", responses((status = 200, body = [KeyOut])))]
pub(crate) async fn keys(State(control): Shared) -> Json<Vec<KeyOut>> {
    Json(control.keys().shown())
}

/// Makes a new key for playback tokens and announces it in the trust document. It signs once every
/// appliance has that document, or after a day; the old one goes when its last token has expired.
/// Asked for again before the new one signs, nothing more happens.
#[utoipa::path(post, path = "/v1/keys/rotate", tag = "access",
    responses((status = 202, body = [KeyOut])))]
pub(crate) async fn rotate(
    State(control): Shared,
) -> Result<(StatusCode, Extension<Said>, Json<Vec<KeyOut>>), Problem> {
    let is_new = control.rotate_token_key().await?;
    let said = Said(if is_new { "announced" } else { "a rotation is under way" }.to_owned());
    Ok((StatusCode::ACCEPTED, Extension(said), keys(State(control)).await))
}

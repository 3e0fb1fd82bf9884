//! Permission to play: refusals of grants and tickets, public assets, revoked sessions.

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use director::Refused;
use playback::token::Session;

use super::problem::{Problem, Said};
use super::{Shared, named};

/// From now on anybody may play this asset, without a grant.
#[utoipa::path(put, path = "/v1/assets/{asset}/public", tag = "assets",
    responses((status = 204, description = "It is public")))]
pub(crate) async fn put_public(
    State(control): Shared,
    Path(asset): Path<String>,
) -> Result<(Extension<Said>, StatusCode), Problem> {
    control.declare(named(&asset)?, true).await?;
    Ok((Extension(Said("anybody may play it".to_owned())), StatusCode::NO_CONTENT))
}

/// From now on this asset is played with a grant only. Playbacks that have begun go on.
#[utoipa::path(delete, path = "/v1/assets/{asset}/public", tag = "assets",
    responses((status = 204, description = "It needs a grant")))]
pub(crate) async fn delete_public(
    State(control): Shared,
    Path(asset): Path<String>,
) -> Result<(Extension<Said>, StatusCode), Problem> {
    control.declare(named(&asset)?, false).await?;
    Ok((Extension(Said("playing it needs a grant".to_owned())), StatusCode::NO_CONTENT))
}

/// Ends a playback: its grant and its steering URL are refused from now on, here at once and at
/// fronts within a second or two. Media URLs that its player has are good until they expire.
#[utoipa::path(delete, path = "/v1/playbacks/{session}", tag = "players",
    responses((status = 204, description = "It is refused, whether or not it had begun")))]
pub(crate) async fn revoke(
    State(control): Shared,
    Path(session): Path<String>,
) -> Result<StatusCode, Problem> {
    let session: Session = session.parse().map_err(|_| {
        Problem::bad_request("this is not a session: POST /v1/playbacks says the one of a playback")
    })?;
    control.revoke_session(session).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let (status, kind) = match refused {
            Refused::Missing => (StatusCode::UNAUTHORIZED, "no-grant"),
            Refused::Unknown => (StatusCode::UNAUTHORIZED, "unknown-grant"),
            Refused::Expired => (StatusCode::FORBIDDEN, "playback-expired"),
            Refused::OtherAsset => (StatusCode::FORBIDDEN, "grant-of-another-asset"),
            Refused::Revoked => (StatusCode::FORBIDDEN, "playback-ended"),
        };
        Self::new(status, kind, refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        let refused = [
            Refused::Missing,
            Refused::Unknown,
            Refused::Expired,
            Refused::OtherAsset,
            Refused::Revoked,
        ];
        let texts = refused.map(|refused| {
            let problem = serde_json::to_value(Problem::from(refused)).unwrap();
            let text = |field: &str| problem[field].to_string().replace('"', "");
            format!("{} {}: {}", text("status"), text("title"), text("detail"))
        });
        insta::assert_snapshot!(texts.join("\n"), @r"
        401 No grant: this film needs a grant: the service that offers it gets one with POST /v1/playbacks, and hands on its hls_url or dash_url
        401 Unknown grant: this address was not given out here, or was changed: begin at the service's page
        403 Playback expired: this playback's time is over: ask the service for a new one, and go on from there
        403 Grant of another asset: this grant is for another asset: ask the service for one of this asset
        403 Playback ended: this playback was ended by the service that began it: ask there for another
        ");
    }
}

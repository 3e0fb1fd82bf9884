//! Identities: one-time codes and revocation for operators, enrolment and renewal for members.

use std::sync::PoisonError;

use axum::Json;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use identity::member::Member;
use model::id::SiteId;
use serde::Serialize;
use utoipa::ToSchema;
use wire::v1::identity::{Enrol, Enrolled, MemberKind, Renew};
use wire::v1::manifest::TokenKey;

use super::caller::Caller;
use super::problem::Problem;
use super::{NO_STORE, Shared, named};
use crate::connections::listener::FleetPeer;
use crate::state::writer::{Control, MembershipError};

/// A one-time code. It is shown this once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CodeOut {
    /// What to type on the new machine: a secret until it is used.
    #[schema(example = "nc1.c2VjcmV0c2VjcmV0.ZGlnZXN0")]
    code: String,
    /// Until when it is good, seconds since 1970.
    expires_unix_s: u64,
}

/// An identity that is good.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct IdentityOut {
    /// What its holder is.
    kind: MemberKind,
    name: String,
    /// Serial number of its newest certificate, hex.
    serial: String,
    /// SHA-256 of its public key, hex: the same through renewals.
    key: String,
    /// What the machine said of itself when it enrolled.
    machine: String,
    /// Its software then.
    software: String,
    /// When the newest certificate was issued, seconds since 1970.
    issued_unix_s: u64,
    /// Until when it is good, seconds since 1970.
    expires_unix_s: u64,
}

/// Makes a one-time code with which the machine that is to be this appliance can enrol. The code
/// that was open for it before is none any more.
#[utoipa::path(post, path = "/v1/appliances/{id}/enrolment", tag = "identity",
    responses((status = 201, body = CodeOut)))]
pub(crate) async fn appliance_enrolment(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: model::id::ApplianceId = named(&id)?;
    new_code(&control, Member::appliance(id)).await
}

/// Makes a one-time code with which the machine that is to be this front can enrol.
#[utoipa::path(post, path = "/v1/fronts/{name}/enrolment", tag = "identity",
    responses((status = 201, body = CodeOut)))]
pub(crate) async fn front_enrolment(
    State(control): Shared,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    // The rule for names is that of sites and appliances.
    let name: SiteId = named(&name)?;
    new_code(&control, Member::front(name)).await
}

/// Revokes an appliance's identity: refused from its next request on, by its siblings as soon as
/// they have the next trust document. An open one-time code is none any more.
#[utoipa::path(delete, path = "/v1/appliances/{id}/identity", tag = "identity",
    responses((status = 204, description = "Revoked")))]
pub(crate) async fn revoke_appliance(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id: model::id::ApplianceId = named(&id)?;
    revoke(&control, &Member::appliance(id)).await
}

/// Revokes a front's identity.
#[utoipa::path(delete, path = "/v1/fronts/{name}/identity", tag = "identity",
    responses((status = 204, description = "Revoked")))]
pub(crate) async fn revoke_front(
    State(control): Shared,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    let name: SiteId = named(&name)?;
    revoke(&control, &Member::front(name)).await
}

/// All identities that are good now.
#[utoipa::path(get, path = "/v1/identities", tag = "identity",
    responses((status = 200, body = [IdentityOut])))]
pub(crate) async fn identities(State(control): Shared) -> Json<Vec<IdentityOut>> {
    let identity = |certificate: &crate::members::identities::Certificate| IdentityOut {
        kind: certificate.member.kind,
        name: certificate.member.name.clone(),
        serial: certificate.serial.clone(),
        key: certificate.key.clone(),
        machine: certificate.machine.clone(),
        software: certificate.software.clone(),
        issued_unix_s: certificate.issued.0,
        expires_unix_s: certificate.expires.0,
    };
    Json(control.identities().all(control.clock.unix()).map(identity).collect())
}

/// Says that the second machine of an appliance is gone: players are sent to it again. If both
/// still report, it is noticed again within some seconds.
#[utoipa::path(delete, path = "/v1/appliances/{id}/clone", tag = "identity",
    responses((status = 204, description = "Trusted again")))]
pub(crate) async fn clone_gone(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if control.clone_gone(&named(&id)?).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = format!("appliance {id} was not seen on two machines");
    Err(Problem::not_found(detail))
}

/// Keys that manifests, trust documents and snapshots may be signed with: the first signs, a second
/// is announced and will sign.
#[utoipa::path(get, path = "/v1/signing-keys", tag = "identity",
    responses((status = 200, body = [TokenKey])))]
pub(crate) async fn signing_keys(State(control): Shared) -> Json<Vec<TokenKey>> {
    Json(control.signing.public().iter().map(wire::convert::token_key_out).collect())
}

/// Makes a new signing key and announces it in the trust document. It signs, and the old one is no
/// more, once every appliance has that document, or after a day. Asked for again before that,
/// nothing more happens.
#[utoipa::path(post, path = "/v1/signing-keys", tag = "identity",
    responses((status = 202, body = [TokenKey])))]
pub(crate) async fn rotate_signing_key(
    State(control): Shared,
) -> Result<(StatusCode, Json<Vec<TokenKey>>), Problem> {
    control.rotate_signing_key().await?;
    Ok((StatusCode::ACCEPTED, signing_keys(State(control)).await))
}

/// The certificate of the fleet's authority, PEM. Anybody may ask; a one-time code says whether to
/// believe it.
#[utoipa::path(get, path = "/v1/authority", tag = "members",
    responses((status = 200, content_type = "application/pem-certificate-chain", body = String)))]
pub(crate) async fn authority(State(control): Shared) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/pem-certificate-chain")];
    (kind, control.authority.certificate_pem().to_owned()).into_response()
}

/// Trades a one-time code for an identity. Anybody may try; who fails too often has to wait.
#[utoipa::path(post, path = "/v1/enrol", tag = "members", request_body = Enrol,
    responses((status = 200, body = Enrolled)))]
pub(crate) async fn enrol(
    State(control): Shared,
    ConnectInfo(peer): ConnectInfo<FleetPeer>,
    Json(ask): Json<Enrol>,
) -> Result<Json<Enrolled>, Problem> {
    let attempts = || control.attempts.lock().unwrap_or_else(PoisonError::into_inner);
    let address = peer.address.ip();
    // Before the code is looked at: a guess too many learns nothing, were it right.
    if attempts().are_spent(address, control.clock.now()) {
        control.metrics.enrolments_refused.count();
        return Err(too_many_attempts());
    }
    match control.enrol(&ask).await {
        Ok(given) => Ok(Json(given)),
        Err(error) => {
            control.metrics.enrolments_refused.count();
            tracing::warn!(kind = ?ask.kind, name = ask.name, %error, "enrolment refused");
            tracing::debug!(address = %peer.address, "enrolment refused");
            let is_bearable = attempts().failed(address, control.clock.now());
            Err(if is_bearable { error.into() } else { too_many_attempts() })
        }
    }
}

/// Trades a certificate that ends soon for the next one, with the same key.
#[utoipa::path(post, path = "/v1/renew", tag = "members", request_body = Renew,
    responses((status = 200, body = Enrolled)))]
pub(crate) async fn renew(
    State(control): Shared,
    Caller(seen): Caller,
    Json(ask): Json<Renew>,
) -> Result<Json<Enrolled>, Problem> {
    Ok(Json(control.renew(&seen, &ask.request).await?))
}

fn too_many_attempts() -> Problem {
    let detail = "too many attempts failed from your address: wait some minutes";
    Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-attempts", detail)
}

async fn new_code(control: &std::sync::Arc<Control>, member: Member) -> Result<Response, Problem> {
    let (code, expires) = control.new_code(member).await?;
    let out = CodeOut { code: code.to_string(), expires_unix_s: expires.0 };
    Ok((StatusCode::CREATED, NO_STORE, Json(out)).into_response())
}

async fn revoke(control: &std::sync::Arc<Control>, member: &Member) -> Result<StatusCode, Problem> {
    if control.revoke(member).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    let detail = format!("{member} has no identity: GET /v1/identities lists those that have");
    Err(Problem::not_found(detail))
}

impl From<MembershipError> for Problem {
    fn from(error: MembershipError) -> Self {
        match error {
            MembershipError::Store(error) => error.into(),
            MembershipError::NotRegistered(_) => Self::not_found(error),
            MembershipError::Code(_) => Self::new(StatusCode::FORBIDDEN, "code-refused", error),
            MembershipError::Denied(denied) => denied.into(),
            MembershipError::OtherKey => Self::new(StatusCode::FORBIDDEN, "other-key", error),
            MembershipError::Authority(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "not-in-order", error)
            }
            MembershipError::Full(_) => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "limit-reached", error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_too_many_attempts_hears_how_long_it_has_to_wait() {
        let answer = too_many_attempts().into_response();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.headers()[header::RETRY_AFTER], "6");
    }
}

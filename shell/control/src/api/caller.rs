//! Who asks on the fleet's address: a member, by the certificate of its connection.

use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use identity::member::{Member, Seen};
use model::id::ApplianceId;
use wire::v1::identity::MemberKind;

use super::named;
use super::problem::Problem;
use crate::connections::listener::FleetPeer;
use crate::members::identities::Denied;
use crate::state::writer::Control;

/// A member whose identity is good now. Handlers that take one are closed to everybody else.
pub(crate) struct Caller(pub(crate) Arc<Seen>);

/// An appliance whose identity is good now: of those, any.
pub(crate) struct ApplianceCaller(pub(crate) ApplianceId);

/// A front whose identity is good now.
pub(crate) struct FrontCaller;

impl FromRequestParts<Arc<Control>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<ConnectInfo<FleetPeer>>();
        let seen = peer.and_then(|ConnectInfo(peer)| peer.seen.clone());
        let seen = seen.ok_or_else(|| {
            let detail = "this needs the certificate of a member: enrol first";
            Problem::new(StatusCode::FORBIDDEN, "no-identity", detail)
        })?;
        control.admit(&seen)?;
        Ok(Self(seen))
    }
}

impl FromRequestParts<Arc<Control>> for ApplianceCaller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let Caller(seen) = Caller::from_request_parts(parts, control).await?;
        if seen.member.kind != MemberKind::Appliance {
            let detail = format!("this is for appliances, and you are {}", seen.member);
            return Err(Problem::new(StatusCode::FORBIDDEN, "other-member", detail));
        }
        Ok(Self(named(&seen.member.name)?))
    }
}

impl FromRequestParts<Arc<Control>> for FrontCaller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let Caller(seen) = Caller::from_request_parts(parts, control).await?;
        if seen.member.kind == MemberKind::Front {
            return Ok(Self);
        }
        let detail = format!("this is for fronts, and you are {}", seen.member);
        Err(Problem::new(StatusCode::FORBIDDEN, "other-member", detail))
    }
}

impl ApplianceCaller {
    /// The appliance that asks, if it is the one that it asks for.
    pub(crate) fn is(self, id: &str) -> Result<ApplianceId, Problem> {
        if self.0.as_str() == id {
            return Ok(self.0);
        }
        let detail = format!(
            "this is for {}, and you are {}",
            Member::appliance(id),
            Member::appliance(&self.0)
        );
        Err(Problem::new(StatusCode::FORBIDDEN, "other-member", detail))
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let kind = match &denied {
            Denied::Expired => "identity-expired",
            Denied::Revoked => "identity-revoked",
            Denied::Superseded(_) => "identity-superseded",
            Denied::Unknown(_) => "identity-unknown",
        };
        Self::new(StatusCode::FORBIDDEN, kind, denied)
    }
}

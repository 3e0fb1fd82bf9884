//! Who asks on the fleet's address: a member, by the certificate of its connection.

use std::fmt::Display;
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
        let seen = of_kind(MemberKind::Appliance, parts, control).await?;
        Ok(Self(named(&seen.member.name)?))
    }
}

impl FromRequestParts<Arc<Control>> for FrontCaller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        of_kind(MemberKind::Front, parts, control).await.map(|_| Self)
    }
}

/// A member of this kind.
async fn of_kind(
    kind: MemberKind,
    parts: &mut Parts,
    control: &Arc<Control>,
) -> Result<Arc<Seen>, Problem> {
    let Caller(seen) = Caller::from_request_parts(parts, control).await?;
    if seen.member.kind == kind {
        return Ok(seen);
    }
    Err(other_member(format!("{}s", kind.word()), &seen.member))
}

fn other_member(wanted: impl Display, asking: &Member) -> Problem {
    let detail = format!("this is for {wanted}, and you are {asking}");
    Problem::new(StatusCode::FORBIDDEN, "other-member", detail)
}

impl ApplianceCaller {
    /// The appliance that asks, if it is the one that it asks for.
    pub(crate) fn is(self, id: &str) -> Result<ApplianceId, Problem> {
        if self.0.as_str() == id {
            return Ok(self.0);
        }
        Err(other_member(Member::appliance(id), &Member::appliance(&self.0)))
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

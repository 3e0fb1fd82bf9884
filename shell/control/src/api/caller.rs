//! Who asks on the fleet's address: a member, by the certificate of its connection.

use std::fmt::Display;
use std::sync::Arc;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode};
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

/// A front whose identity is good now, by its name.
pub(crate) struct FrontCaller(pub(crate) String);

impl FromRequestParts<Arc<Control>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Problem> {
        let seen = seen(&parts.extensions).cloned().ok_or_else(|| {
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
        let seen = of_kind(MemberKind::Front, parts, control).await?;
        Ok(Self(seen.member.name.clone()))
    }
}

/// Whose connection a request comes by, whether or not its identity is good now.
pub(super) fn seen(extensions: &Extensions) -> Option<&Arc<Seen>> {
    extensions.get::<ConnectInfo<FleetPeer>>()?.0.seen.as_ref()
}

/// There is no room for this request. If it is an appliance's report, and its identity is good now,
/// it is a sign of life all the same.
pub(super) fn turned_away(control: &Control, path: &str, extensions: &Extensions) {
    let Some(seen) = seen(extensions) else { return };
    let reports = Member::appliance(&seen.member.name) == seen.member
        && path == format!("/v1/appliances/{}/report", seen.member.name);
    if let Ok(id) = named::<ApplianceId>(&seen.member.name)
        && reports
        && control.admit(seen).is_ok()
    {
        control.directing.turned_away(&id);
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

//! For whose address a request speaks.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use director::Snapshot;
use model::topology::Prefix;

use super::asking::Asking;
use super::guard;
use super::problem::Problem;
use crate::members::access::Actor;
use crate::state::writer::Control;

/// Who asks, and whether for somebody else's address.
pub(super) struct AskingFor {
    asking: Asking,
    may_name_clients: bool,
}

impl AskingFor {
    /// The range of the client to steer for: of the address given, if it may be, or of who asks.
    pub(super) fn client_range(
        &self,
        snapshot: &Snapshot,
        client: Option<&str>,
    ) -> Result<Prefix, Problem> {
        let Some(text) = client else { return Ok(snapshot.client_range(self.asking.address)) };
        if !self.may_name_clients {
            let detail = "client: only a request with a token may speak for another address";
            return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
        }
        let client = text.parse().map_err(|_| {
            Problem::bad_request(format!("client: \"{text}\" is not an IP address"))
        })?;
        Ok(snapshot.client_range(client))
    }
}

impl FromRequestParts<Arc<Control>> for AskingFor {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        control: &Arc<Control>,
    ) -> Result<Self, Self::Rejection> {
        let asking = Asking::of(&parts.extensions);
        // Where a role is asked for, it has been shown; elsewhere it may be.
        let may_name_clients = parts.extensions.get::<Actor>().is_some()
            || guard::identify(control, asking, &parts.headers).is_ok();
        Ok(Self { asking, may_name_clients })
    }
}

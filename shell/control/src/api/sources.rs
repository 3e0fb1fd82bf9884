//! The sources of an object for an appliance.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use director::AFTER_MAX;
use director::masters::{AT_WORK, Reach};
use director::sources::{Named, NoSources, Origin};
use identity::member::Member;
use model::id::{ApplianceId, ObjectId};
use model::units::Nanos;
use playback::reference::encode;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::identity::{Source, Sources, TicketKeys, sibling_path};

use super::appliances::not_registered;
use super::caller::ApplianceCaller;
use super::fill::escalation;
use super::problem::Problem;
use super::{NO_STORE, Shared, named};
use crate::state::directing::Desk;
use crate::state::writer::ORIGINS_MAX;

/// A question for sources.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SourcesQuery {
    /// For so long the appliance has lacked the object while its fill was open. One that does not
    /// say it knows of no masters, and waits for none.
    waited_s: Option<u64>,
}

/// Where to fetch an object from: siblings that hold it, then origins. Only for what the appliance
/// should hold. URLs into buckets are signed for this object and for a while. Who is no master of
/// its fill cluster is told siblings of it alone, or to wait, until it has waited for long.
#[utoipa::path(get, path = "/v1/appliances/{id}/sources/{object}", tag = "members",
    responses((status = 200, body = Sources)))]
pub(crate) async fn sources(
    State(control): Shared,
    caller: ApplianceCaller,
    Path((id, object)): Path<(String, String)>,
    Query(query): Query<SourcesQuery>,
) -> Result<Response, Problem> {
    let (appliance, object): (ApplianceId, ObjectId) = (caller.is(&id)?, named(&object)?);
    // Nothing is other after that.
    let waited =
        Nanos::seconds(query.waited_s.unwrap_or(u64::MAX).min(AFTER_MAX.as_seconds() * AT_WORK));
    let asker = appliance.clone();
    let look = move |desk: &Desk, _| desk.director.sources(&appliance, &object, waited);
    let found = control.directing.ask_for_sources(look).await?;
    let found = found.map_err(|error| match error {
        NoSources::NotRegistered => not_registered(&id),
        NoSources::NotWanted => Problem::not_found(error),
    })?;
    control.waits().told(control.clock.unix(), &asker, (&object, waited), &found);
    let mut sources: Vec<Source> = found.siblings.iter().map(|s| sibling(s, &object)).collect();
    let (now, only) = (control.clock.unix(), found.reach != Reach::Origin);
    let origins_max = if only { 0 } else { ORIGINS_MAX };
    for origin in director::sources::origins(&found.versions, &object, origins_max) {
        let Origin { source, path } = origin;
        match control.buckets.sign(source, path, now).await {
            None => sources.push(Source {
                url: format!("{source}{}", encode(path)),
                address: None,
                expires_unix_s: None,
                same_site: false,
            }),
            Some(Ok(signed)) => sources.push(Source {
                url: signed.url,
                address: None,
                expires_unix_s: Some(signed.expires.0),
                same_site: false,
            }),
            Some(Err(error)) => tracing::warn!(%error, "a source is left out"),
        }
    }
    if sources.is_empty() && !only {
        let detail = "no sibling holds it, and no URL could be signed: control's log says why";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-source", detail));
    }
    let told = Sources {
        sources,
        only,
        wait_s: found.wait.map(|wait| wait.0.div_ceil(1_000_000_000)),
        escalated: escalation(found.reach).filter(|_| found.escalated),
    };
    Ok((NO_STORE, Json(told)).into_response())
}

/// The keys of session tickets of an appliance's site, so that a player who resumes at another
/// appliance there need not begin anew. They change every six hours.
#[utoipa::path(get, path = "/v1/appliances/{id}/ticket-keys", tag = "members",
    responses((status = 200, body = TicketKeys)))]
pub(crate) async fn ticket_keys(
    State(control): Shared,
    caller: ApplianceCaller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let appliance: ApplianceId = caller.is(&id)?;
    let snapshot = control.snapshot();
    let site = snapshot.view.site_of(&appliance).ok_or_else(|| not_registered(&id))?;
    let keys = control.ticket_keys.of_site(site, control.clock.unix());
    let keys = keys.ok_or_else(|| {
        let detail = "the kernel gives no random bytes";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no-keys", detail)
    })?;
    Ok((NO_STORE, Json(TicketKeys { keys })).into_response())
}

fn sibling(sibling: &Named, object: &ObjectId) -> Source {
    let Named { id, address, same_site } = sibling;
    let host = Member::appliance(id).host();
    Source {
        url: format!("https://{host}{}", sibling_path(object)),
        address: Some(address.to_string()),
        expires_unix_s: None,
        same_site: *same_site,
    }
}

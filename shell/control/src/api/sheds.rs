//! Clients that were led past their nearest site.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use model::id::SiteId;
use serde::Deserialize;
use utoipa::IntoParams;
use wire::v1::sheds::{ShedReport, ShedRow};

use super::appliances::Room;
use super::caller::FrontCaller;
use super::problem::Problem;
use super::registry::no_site;
use super::{Shared, named};
use crate::state::sheds::Wanted;

/// Which of the counts.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShedsQuery {
    /// This site alone, with the 16 versions of most bytes that were led past it.
    site: Option<String>,
    /// So many sites, 1 to 1000, past which most bytes were led for content or health, worst first.
    #[param(minimum = 1, maximum = 1000)]
    worst: Option<usize>,
}

/// How often clients were led past their nearest site, and why: by site, and by version, of the
/// 1,000 with most bytes. In a front its own decisions since it began; in the writer those of its
/// own, and of all fronts that told it theirs within the hour.
#[utoipa::path(get, path = "/v1/sheds", tag = "fleet", params(ShedsQuery),
    responses((status = 200, body = Vec<ShedRow>)))]
pub(crate) async fn sheds(
    State(control): Shared,
    Query(query): Query<ShedsQuery>,
) -> Result<Json<Vec<ShedRow>>, Problem> {
    let site: Option<SiteId> = query.site.as_deref().map(named).transpose()?;
    if let Some(site) = site.as_ref()
        && !control.snapshot().sites.contains_key(site)
    {
        return Err(no_site(site.as_str()));
    }
    if !query.worst.is_none_or(|most| (1..=WORST_MAX).contains(&most)) {
        return Err(Problem::bad_request(format!("worst: use 1 to {WORST_MAX}")));
    }
    if site.is_some() && query.worst.is_some() {
        return Err(Problem::bad_request("site and worst: use one"));
    }
    // Of thousands of sites it takes milliseconds, in which players should be answered.
    let rows = move || {
        let snapshot = control.snapshot();
        let wanted = match (&site, query.worst) {
            (Some(site), _) => Wanted::Site(site),
            (None, Some(most)) => Wanted::Worst(most, &snapshot.sites),
            (None, None) => Wanted::All,
        };
        control.sheds.rows(&snapshot.view, control.clock.now(), wanted)
    };
    Ok(Json(tokio::task::spawn_blocking(rows).await.expect("nothing in it panics")))
}

const WORST_MAX: usize = 1000;

/// Takes what a front has counted since it began, in place of what it said before.
#[utoipa::path(post, path = "/v1/replica/sheds", tag = "members", request_body = ShedReport,
    responses((status = 204, description = "It is in the answers from now on")))]
pub(crate) async fn take(
    State(control): Shared,
    FrontCaller(front): FrontCaller,
    room: Room<false>,
    body: Bytes,
) -> Result<StatusCode, Problem> {
    let read = move || {
        let report: ShedReport = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
        let taken = control.sheds.fronts.take(control.clock.now(), &front, &report);
        drop(room);
        taken.map_err(Problem::bad_request)
    };
    // To read a long one takes milliseconds, in which players should be answered.
    tokio::task::spawn_blocking(read).await.expect("nothing in it panics")?;
    Ok(StatusCode::NO_CONTENT)
}

//! When and how fast sites fill, how far they are, and pauses.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::BTreeMap;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::lacking;
use director::masters::Reach;
use director::waits::Wait;
use model::hours::{FillRules, Hours, NEVER};
use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::topology::Site;
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use wire::v1::fill::{FillAppliance, FillOut, FillSite, FillWait, Urgent};
use wire::v1::identity::Escalation;
use wire::v1::report::Report;

use super::fleet::{sites_asked, told_of};
use super::problem::{Problem, Said};
use super::registry::{SiteOut, no_site, site_out};
use super::{Shared, named};
use crate::state::convert;
use crate::state::directing::{Desk, Told};
use crate::state::writer::Control;

/// Parameters of `GET /v1/fill`.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FillQuery {
    /// This one alone.
    site: Option<String>,
}

/// When sites fill, and how far each appliance is. O(appliances); of one site O(its own + sites).
#[utoipa::path(get, path = "/v1/fill", tag = "fleet", params(FillQuery),
    responses((status = 200, body = FillOut)))]
pub(crate) async fn fill(
    State(control): Shared,
    Query(query): Query<FillQuery>,
) -> Result<Json<FillOut>, Problem> {
    let only: Option<SiteId> = query.site.as_deref().map(named).transpose()?;
    let snapshot = control.snapshot();
    let names = sites_asked(&snapshot, only.as_ref())?;
    let now = control.clock.unix();
    let hours_of = |desk: &Desk, site: &SiteId| desk.director.fill_hours(site);
    let mut sites = BTreeMap::new();
    for (id, hours) in control.directing.each(names, AT_ONCE, hours_of).await? {
        if let Some(site) = snapshot.sites.get(&id) {
            let has_policy = snapshot.policy.fill.windows;
            let windows = site.fill_windows.unwrap_or(has_policy).to_string();
            let out = FillSite { windows, ..site_of(site, &hours, now) };
            sites.insert(id, (hours, out));
        }
    }
    let told = told_of(&control, only.as_ref()).await?;
    let ids = told.iter().map(|told| told.id.clone()).collect();
    let rules_of = |desk: &Desk, id: &ApplianceId| desk.director.fill_rules(id);
    let rules: BTreeMap<_, _> =
        control.directing.each(ids, AT_ONCE, rules_of).await?.into_iter().collect();
    for Told { id, status, report } in told {
        let known = (sites.get_mut(&status.registered.appliance.site), rules.get(&id));
        if let (Some((hours, site)), Some(rules)) = known {
            let waits = control.waits().of(now, &id).map(wait_out);
            let appliance = appliance_of(&id, hours, rules, report.as_deref(), now);
            site.appliances.push(FillAppliance { waits, ..appliance });
        }
    }
    let urgent = control.directing.ask(|desk, _| desk.director.desired().urgent.clone()).await?;
    let sites = sites.into_values().map(|(_, site)| site).collect();
    Ok(Json(FillOut { sites, urgent: urgent.iter().map(urgent_out).collect() }))
}

fn urgent_out((version, until): (&AssetVersionId, &Option<UnixSeconds>)) -> Urgent {
    Urgent { version: version.to_string(), until_unix_s: until.map(|until| until.0) }
}

/// A hundred microseconds.
const AT_ONCE: usize = 256;

fn site_of(site: &Site, hours: &Hours, now: UnixSeconds) -> FillSite {
    FillSite {
        site: site.id.to_string(),
        by_policy: site.fill_windows.is_none(),
        time_zone: site.time_zone.to_string(),
        zone_unknown: hours.offsets.is_empty(),
        is_open: hours.is_open(now),
        paused_until_unix_s: hours.paused_until.filter(|_| hours.is_paused(now)).map(|at| at.0),
        next_change_unix_s: hours.next_change(now).map(|at| at.0),
        ..FillSite::default()
    }
}

fn appliance_of(
    id: &ApplianceId,
    hours: &Hours,
    rules: &FillRules,
    report: Option<&Report>,
    now: UnixSeconds,
) -> FillAppliance {
    let fill = report.map(|report| &report.fill);
    let missing = fill.map(|fill| fill.bytes_wanted.saturating_sub(fill.bytes_held));
    let of_late = fill.map(|fill| fill.bits_per_second);
    let rate = lacking::rate(rules, BitsPerSecond(of_late.unwrap_or_default()), now);
    let missing_now = missing.filter(|missing| 0 < *missing).map(Bytes);
    let ready = rate.zip(missing_now);
    let ready = ready.and_then(|(rate, missing)| lacking::ready(hours, rate, missing, now));
    FillAppliance {
        appliance: id.to_string(),
        bytes_wanted: fill.map(|fill| fill.bytes_wanted),
        bytes_missing: missing,
        bits_per_second: of_late,
        rate_max_bps: rules.rate_max.map(|rate| rate.0),
        outside_max_bps: rules.outside_max.map(|rate| rate.0),
        has_other_rules: report.is_some_and(|report| report.fill_rules != Some(rules.state)),
        ready_unix_s: ready.map(|at| at.0),
        waits: None,
    }
}

/// For whom an appliance waits.
fn wait_out(wait: &Wait) -> FillWait {
    let further = wait.further.and_then(|(reach, at)| Some((escalation(reach)?, at.0)));
    FillWait {
        version: wait.version.to_string(),
        masters: wait.masters.iter().map(ToString::to_string).collect(),
        since_unix_s: wait.since.0,
        further_unix_s: further.map(|(_, at)| at),
        further: further.map(|(to, _)| to),
    }
}

/// How far somebody goes who has waited for long; none if it stays in its cluster.
pub(super) fn escalation(reach: Reach) -> Option<Escalation> {
    match reach {
        Reach::Cluster => None,
        Reach::Elsewhere => Some(Escalation::Elsewhere),
        Reach::Origin => Some(Escalation::Origin),
    }
}

/// When something ends.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UntilBody {
    /// Until then, in UTC (RFC 3339); without it, until an operator ends it.
    #[serde(default)]
    #[schema(example = "2027-01-31T02:00:00Z")]
    until: Option<String>,
}

/// Pauses the fill of a site: what runs stops where it is, and goes on from there afterwards. In
/// place of what was said before.
#[utoipa::path(put, path = "/v1/sites/{site}/fill-pause", tag = "registry",
    request_body = UntilBody, responses((status = 200, body = SiteOut)))]
pub(crate) async fn put_pause(
    State(control): Shared,
    Path(site): Path<String>,
    Json(body): Json<UntilBody>,
) -> Result<(Extension<Said>, Json<SiteOut>), Problem> {
    let until = until_in(body.until.as_deref(), control.clock.unix())?.unwrap_or(NEVER);
    let site = pause(&control, &site, Some(until)).await?;
    let end = match until {
        NEVER => "further notice".to_owned(),
        until => convert::time_out(until),
    };
    Ok((Extension(Said(format!("fill paused until {end}"))), Json(site_out(&site))))
}

/// Ends the pause of a site's fill: it goes on in its windows.
#[utoipa::path(delete, path = "/v1/sites/{site}/fill-pause", tag = "registry",
    responses((status = 204, description = "It is not paused, whether or not it was")))]
pub(crate) async fn delete_pause(
    State(control): Shared,
    Path(site): Path<String>,
) -> Result<StatusCode, Problem> {
    pause(&control, &site, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Until when something holds, which has to come; none for further notice.
pub(super) fn until_in(
    text: Option<&str>,
    now: UnixSeconds,
) -> Result<Option<UnixSeconds>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let until = convert::time_in(text).ok_or_else(|| {
        Problem::bad_request("until: write a time in UTC, as in 2027-01-31T02:00:00Z")
    })?;
    if until <= now {
        return Err(Problem::bad_request("until: this time is past: give a later one"));
    }
    Ok(Some(until))
}

/// Has a version fetched before all others, and outside of fill windows too, at the policy's
/// `fill_urgent_bps` there: of each appliance that should hold it. A pause stops it too.
/// There are 64 at most.
#[utoipa::path(put, path = "/v1/fill/urgent/{version}", tag = "registry",
    request_body = UntilBody, responses((status = 200, body = [Urgent])))]
pub(crate) async fn put_urgent(
    State(control): Shared,
    Path(version): Path<String>,
    Json(body): Json<UntilBody>,
) -> Result<(Extension<Said>, Json<Vec<Urgent>>), Problem> {
    let until = until_in(body.until.as_deref(), control.clock.unix())?;
    let urgent = control.put_urgent(&named(&version)?, Some(until)).await?;
    let end = until.map_or_else(|| "further notice".to_owned(), convert::time_out);
    let said = Said(format!("urgent until {end}"));
    Ok((Extension(said), Json(urgent.iter().map(urgent_out).collect())))
}

/// A version is fetched as all others.
#[utoipa::path(delete, path = "/v1/fill/urgent/{version}", tag = "registry",
    responses((status = 204, description = "It is not urgent, whether or not it was")))]
pub(crate) async fn delete_urgent(
    State(control): Shared,
    Path(version): Path<String>,
) -> Result<StatusCode, Problem> {
    control.put_urgent(&named(&version)?, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    control: &std::sync::Arc<Control>,
    name: &str,
    until: Option<UnixSeconds>,
) -> Result<Site, Problem> {
    let merge = |known: Option<&Site>| {
        let known = known.ok_or_else(|| no_site(name))?;
        Ok::<_, Problem>(Site { fill_paused_until: until, ..known.clone() })
    };
    control.put_site(&named(name)?, merge).await
}

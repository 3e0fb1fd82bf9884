//! The fleet for people: one JSON for the status page, why a client gets its list, metrics.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use director::{ApplianceStatus, Counters, Director, Notice, Sample, Snapshot};
use identity::member::Member;
use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::metric::Metric;
use model::topology::Site;
use model::units::{Bytes, Instant, Nanos};
use model::view::{Bottleneck, FleetView, Health, Load};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use utoipa::{IntoParams, ToSchema};
use wire::prometheus::{CONTENT_TYPE, Page};
use wire::v1::fleet::{
    FleetAppliance, FleetAsset, FleetLoad, FleetOut, FleetSample, FleetSite, HeldVersion,
};
use wire::v1::report::Report;

use super::assets::entries_out;
use super::drain::drain_out;
use super::problem::Problem;
use super::registry::{abilities_out, no_site};
use super::summary::SiteSums;
use super::{Shared, named, trouble};
use crate::metrics::{Counter, WorkCounts, gauges, page};
use crate::state::decisions::LedgerCounts;
use crate::state::directing::{Busy, Desk, Told};
use crate::state::quotas::turn;
use crate::state::unshared::Seen;
use crate::state::writer::{Control, Front};

/// Who should hold what.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlacementOut {
    /// Newest generation of manifests.
    generation: u64,
    /// Each appliance's asset versions.
    holdings: BTreeMap<String, Vec<String>>,
    /// What did not go as the policy would have it, and how full appliances will be, as lines.
    report: Vec<String>,
}

/// Which part of the fleet to tell, and how much of it.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FleetQuery {
    /// This site alone, with all of its appliances.
    site: Option<String>,
    /// Of a fleet with more appliances tell only those that need a look.
    appliances_max: Option<usize>,
    /// `minutes`, `hour` or `day`; of one site there is the day alone, and with it the versions
    /// that it holds.
    #[serde(default)]
    #[param(inline)]
    history: Span,
}

/// How far back to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Span {
    #[default]
    Minutes,
    Hour,
    Day,
}

/// The fleet as it is now: for the status page and `nearcast fleet show`. O(appliances); of one
/// site O(its own + sites). Both look at all assets, for the first of them by name.
#[utoipa::path(get, path = "/v1/fleet", tag = "fleet", params(FleetQuery),
    responses((status = 200, body = FleetOut)))]
pub(crate) async fn fleet(
    State(control): Shared,
    Query(query): Query<FleetQuery>,
) -> Result<Json<FleetOut>, Problem> {
    let only: Option<SiteId> = query.site.as_deref().map(named).transpose()?;
    let (of, span) = (only.clone(), query.history);
    let rest = control.directing.ask(move |desk, _| Rest::of(desk, of.as_ref(), span)).await?;
    let fleet = told_of(&control, only.as_ref()).await?;
    // A large fleet takes a while to be told, in which players should be answered.
    let told = move || tell(&control, &query, (only, rest, fleet));
    tokio::task::spawn_blocking(told).await.expect("nothing in it panics").map(Json)
}

/// What is to be told beside the appliances. O(sites).
struct Rest {
    heard: BTreeMap<SiteId, u64>,
    differing: BTreeSet<SiteId>,
    history: Vec<Sample>,
    notices: Vec<Notice>,
}

impl Rest {
    fn of(desk: &Desk, site: Option<&SiteId>, span: Span) -> Self {
        let director = &desk.director;
        let heard = |id: &SiteId| Some((id.clone(), director.heard(id)?.count));
        let heard = match site {
            Some(id) => heard(id).into_iter().collect(),
            None => director.desired().sites.keys().filter_map(heard).collect(),
        };
        let history = match (site, span) {
            (Some(id), Span::Day) => director.site_history(id).copied().collect(),
            (Some(_), Span::Minutes | Span::Hour) => Vec::new(),
            (None, span) => director.history().samples(span.into()).copied().collect(),
        };
        Self {
            heard,
            differing: director.differing().cloned().collect(),
            history,
            notices: director.notices().rev().cloned().collect(),
        }
    }
}

/// The sites that are asked about: this one, or all.
pub(super) fn sites_asked(
    snapshot: &Snapshot,
    only: Option<&SiteId>,
) -> Result<Vec<SiteId>, Problem> {
    match only {
        Some(site) if !snapshot.sites.contains_key(site) => Err(no_site(site.as_str())),
        Some(site) => Ok(vec![site.clone()]),
        None => Ok(snapshot.sites.keys().cloned().collect()),
    }
}

/// All appliances, O(appliances); or those of a site, O(sites + its own).
pub(super) async fn told_of(control: &Control, only: Option<&SiteId>) -> Result<Vec<Told>, Busy> {
    let Some(site) = only else { return control.directing.fleet().await };
    let snapshot = control.snapshot();
    let sites = snapshot.view.sites.iter().filter(|of| of.id == *site);
    let standing = sites.flat_map(|of| &of.appliances).map(|of| of.id.clone()).collect();
    control.directing.those(standing).await
}

fn tell(
    control: &Control,
    query: &FleetQuery,
    (only, rest, fleet): (Option<SiteId>, Rest, Vec<Told>),
) -> Result<FleetOut, Problem> {
    let snapshot = control.snapshot();
    let now = control.clock.unix();
    // Locked for each: whoever is admitted meanwhile does not wait for all.
    let identity = |id: &ApplianceId| {
        let identities = control.identities();
        identities.current(&Member::appliance(id), now).map(|certificate| certificate.expires.0)
    };
    let is_brief = only.is_none() && query.appliances_max.is_some_and(|max| max < fleet.len());
    let mut by_site: BTreeMap<&SiteId, (SiteSums, Vec<FleetAppliance>)> = BTreeMap::new();
    let mut told = 0;
    for Told { id, status, report } in &fleet {
        let site = &status.registered.appliance.site;
        let report = report.as_deref();
        let (sums, out) = by_site.entry(site).or_default();
        let is_ill = sums.add(status.health, &status.load, report);
        let is_told = match &only {
            // It may have been moved since.
            Some(only) => only == site,
            None => !is_brief || (is_ill && told < ILL_TOLD),
        };
        if is_told {
            told += 1;
            let one = appliance_out(id, status, report, identity(id));
            let abilities = abilities_out(&status.registered.appliance, &snapshot.policy.profiles);
            let drain = drain_out(&status.registered, now);
            out.push(FleetAppliance { drain, abilities, ..one });
        }
    }
    let counts = snapshot.view.sites.iter().map(|site| site.appliances.len());
    let copies_wanted = copies_wanted(snapshot.policy.copies, counts);
    let most = if is_brief { PREFIXES_TOLD } else { usize::MAX };
    let unshared = control.unshared.seen();
    let mut site = |site: &Site| {
        let (sums, appliances) = by_site.remove(&site.id).unwrap_or_default();
        FleetSite { summary: sums.done(), appliances, ..site_out(site, most, &rest, &unshared) }
    };
    let mut sites: Vec<_> = match &only {
        Some(id) => snapshot.sites.get(id).map(&mut site).into_iter().collect(),
        None => snapshot.sites.values().map(&mut site).collect(),
    };
    if let Some(id) = &only {
        let site = sites.first_mut().ok_or_else(|| no_site(id.as_str()))?;
        // O(versions), so not for who asks for a site each second.
        if query.history == Span::Day {
            tell_held(site, &copies_in(&snapshot.view, id));
        }
    }
    let assets_told = if is_brief || only.is_some() { ASSETS_TOLD } else { usize::MAX };
    let trouble = trouble::of(control, &fleet, &rest.notices, only.as_ref());
    Ok(FleetOut {
        now_unix_s: control.clock.unix().0,
        generation: snapshot.view.generation.0,
        sites,
        brief: is_brief,
        asset_count: snapshot.catalog.asset_count(),
        assets: assets_out(&snapshot, copies_wanted, assets_told),
        errors: trouble.told,
        error_count: trouble.count,
        history: rest.history.iter().map(sample_out).collect(),
        demo_controls: control.config.demo.controls.as_ref().map(|url| url.0.as_str().to_owned()),
    })
}

/// A site without its appliances.
fn site_out(site: &Site, prefixes_told: usize, rest: &Rest, unshared: &Seen) -> FleetSite {
    let prefixes = site.prefixes.iter().take(prefixes_told);
    FleetSite {
        id: site.id.to_string(),
        prefixes: prefixes.map(ToString::to_string).collect(),
        prefix_count: site.prefixes.len(),
        about: site.into(),
        routes: rest.heard.get(&site.id).copied(),
        routes_differ: rest.differing.contains(&site.id),
        routes_unshared: unshared.by_site.get(&site.id).map_or(0, |(count, _)| *count),
        ..FleetSite::default()
    }
}

/// Copies of a version that sites of so many appliances should have.
fn copies_wanted(copies: u32, sites: impl Iterator<Item = usize>) -> u64 {
    sites.map(|appliances| u64::from(placement::wanted(copies, appliances))).sum()
}

/// The first assets that have a version.
fn assets_out(snapshot: &Snapshot, copies_wanted: u64, most: usize) -> Vec<FleetAsset> {
    let assets = snapshot.catalog.first_assets(most).filter_map(|(id, versions)| {
        let version = versions.first()?;
        Some(FleetAsset {
            id: id.to_string(),
            current_version: version.id().to_string(),
            public: snapshot.playbacks.public().contains(id),
            files: version.files.files.len(),
            bytes: version.file_bytes().0,
            copies_wanted,
            copies_complete: usize::try_from(copies(&snapshot.view, version.id())).unwrap_or(0),
            entries: entries_out(version),
        })
    });
    assets.collect()
}

/// Appliances that need a look and are told of a large fleet.
const ILL_TOLD: usize = 100;

/// Prefixes of each site that are told of a large fleet.
const PREFIXES_TOLD: usize = 4;

/// Assets that are told of a large fleet, and with one site.
const ASSETS_TOLD: usize = 100;

/// Versions that are told of a site.
const HELD_TOLD: usize = 100;

fn tell_held(site: &mut FleetSite, held: &[(&AssetVersionId, u64)]) {
    let mut sorted: Vec<_> = held.iter().collect();
    sorted.sort_by_key(|(_, copies)| std::cmp::Reverse(*copies));
    let out = |(version, copies): &&(&AssetVersionId, u64)| HeldVersion {
        version: version.to_string(),
        copies: *copies,
    };
    site.held = sorted.iter().take(HELD_TOLD).map(out).collect();
    site.held_count = held.len();
}

/// How many appliances hold a version wholly.
fn copies(view: &FleetView, version: &AssetVersionId) -> u64 {
    let number = view.versions.get(version).copied();
    let holders = number.and_then(|number| view.holders.get(number));
    holders.map_or(0, |holders| holders.whole.count().into())
}

/// How many appliances of a site hold each version wholly, of those that one does. O(versions x
/// appliances of the site).
fn copies_in<'a>(view: &'a FleetView, site: &SiteId) -> Vec<(&'a AssetVersionId, u64)> {
    let sites = view.sites.iter().filter(|of| of.id == *site);
    let inside: Vec<u32> = sites.flat_map(|of| &of.appliances).map(|of| of.number).collect();
    let count = |number: u32| {
        let holders = view.holders.get(number).map(|of| &of.whole);
        let held = inside.iter().filter(|of| holders.is_some_and(|all| all.contains(**of)));
        Bytes::of(held.count()).0
    };
    let counted = view.versions.iter().map(|(id, number)| (id, count(*number)));
    counted.filter(|(_, count)| *count != 0).collect()
}

fn sample_out(sample: &director::Sample) -> FleetSample {
    FleetSample {
        at_unix_s: sample.at.0,
        egress_bits_per_second: sample.egress.0,
        cpu_percent: sample.cpu_percent,
        fill_bits_per_second: sample.fill.0,
        healthy: sample.healthy,
        leaving: sample.leaving,
        appliances: sample.appliances,
    }
}

impl From<Span> for director::Span {
    fn from(span: Span) -> Self {
        match span {
            Span::Minutes => Self::Minutes,
            Span::Hour => Self::Hour,
            Span::Day => Self::Day,
        }
    }
}

/// Of whom to tell what it should hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PlacementQuery {
    /// Of this one alone; without it of all, which is refused where they should hold more than
    /// 100,000 items: versions, or renditions of these.
    appliance: Option<String>,
}

const PLACED_MAX: u64 = 100_000;
/// One is worked out at a time; others wait.
static PLACED: Semaphore = Semaphore::const_new(1);

/// Who should hold what, and what did not fit.
#[utoipa::path(get, path = "/v1/placement", tag = "fleet", params(PlacementQuery),
    responses((status = 200, body = PlacementOut)))]
pub(crate) async fn placement(
    State(control): Shared,
    Query(PlacementQuery { appliance }): Query<PlacementQuery>,
) -> Result<Json<PlacementOut>, Problem> {
    let turn = turn(&PLACED).await.ok_or_else(Problem::busy)?;
    let places = control.directing.ask(|desk, _| desk.director.places().clone()).await?;
    let told: Vec<ApplianceId> = match appliance {
        Some(name) => {
            let id = named(&name)?;
            let is_known = places.appliances().any(|known| *known == id);
            let detail = || format!("no plan knows {name}: `nearcast appliance list` has names");
            vec![is_known.then_some(id).ok_or_else(|| Problem::not_found(detail()))?]
        }
        None => {
            let items = places.appliances().map(|id| places.item_count(id)).sum();
            if let Some(detail) = too_many(items) {
                return Err(Problem::bad_request(detail));
            }
            places.appliances().cloned().collect()
        }
    };
    let generation = control.snapshot().view.generation.0;
    let out = spawn_blocking(move || {
        let _turn = turn;
        let names = |id: &ApplianceId| {
            let versions = places.held(id).map(|(version, _)| version.id().to_string());
            (id.to_string(), versions.collect())
        };
        let holdings = told.iter().map(names).collect();
        let report = places.report.to_string().lines().map(str::to_owned).collect();
        PlacementOut { generation, holdings, report }
    });
    Ok(Json(out.await.expect("nothing in it panics")))
}

fn too_many(items: u64) -> Option<String> {
    (PLACED_MAX < items).then(|| {
        format!(
            "appliances should hold {items} items, and {PLACED_MAX} are told at once: say of which \
             appliance (`nearcast placement show --appliance NAME`)"
        )
    })
}

/// Whether playbacks should begin here. After a start that takes until the first appliance has
/// reported; with none in sight, ten seconds. Not while the director hangs, which is so when it has
/// made no step for five seconds: players are answered, but by an old picture.
#[utoipa::path(get, path = "/healthz", tag = "fleet",
    responses((status = 200, body = BTreeMap<String, String>),
        (status = 503, body = BTreeMap<String, String>,
            description = "Just started, or the director hangs: ask another one of the list")))]
pub(crate) async fn healthz(State(control): Shared) -> Response {
    let is_ready = READY_AFTER <= control.clock.now().since(Instant(0)) || knows_somebody(&control);
    let (status, word) = if control.directing.busy() == Some(Busy::Hangs) {
        (StatusCode::SERVICE_UNAVAILABLE, "director-hangs")
    } else if is_ready {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting")
    };
    (status, Json(BTreeMap::from([("status", word)]))).into_response()
}

/// An appliance has reported, or there is none that could.
fn knows_somebody(control: &Control) -> bool {
    let view = &control.snapshot().view;
    view.appliances.is_empty() || view.all().any(|appliance| appliance.base_url.is_some())
}

/// A process to which nobody reports is as ready as it will be.
const READY_AFTER: Nanos = Nanos::seconds(10);

/// Metrics in the text format of Prometheus. What the director alone knows is left out if it does
/// not say so at once: `nearcast_control_director_answers` is 0 then.
#[utoipa::path(get, path = "/metrics", tag = "fleet",
    responses((status = 200, content_type = "text/plain", body = String)))]
pub(crate) async fn metrics(State(control): Shared) -> Response {
    let mut page = page(&control.metrics, &control.doors);
    let decisions = control.decisions.counters.map(Counter::value);
    page.table(LedgerCounts::METRICS, decisions.each().copied());
    tell_identities(&control, &mut page);
    tell_director(&control, &mut page).await;
    tell_lacking(&control, &mut page);
    tell_lease(&control, &mut page);
    tell_following(&control, &mut page);
    control.viewers.put(&mut page, control.clock.now());
    control.sheds.put(&mut page, &control.snapshot().view, control.clock.now());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page.into_text()).into_response()
}

fn tell_identities(control: &Control, page: &mut Page) {
    let now = control.clock.unix();
    let identities = control.identities();
    // They are renewed while a third of their life is left.
    let late_s = control.config.fleet.certificate_lifetime.0.as_seconds() / 4;
    let is_late =
        |c: &&crate::members::identities::Certificate| c.expires.0 < now.0.saturating_add(late_s);
    let counts = [
        ("identities", "Members with an identity that is good.", identities.all(now).count()),
        (
            "identities_expiring",
            "Members whose certificate should be new by now: less than a quarter is left.",
            identities.all(now).filter(is_late).count(),
        ),
        ("codes_open", "One-time codes that can be used.", identities.codes_open(now)),
        (
            "certificates_revoked",
            "Certificates that are refused though they have not expired.",
            identities.revoked(now).len(),
        ),
    ];
    gauges(page, counts.map(|(name, help, count)| (name, help, Bytes::of(count).0)));
}

/// Whether this writer leads; nothing where there is no other.
fn tell_lease(control: &Control, page: &mut Page) {
    if let Some(standing) = control.standing() {
        gauges(page, super::standby::rows(&standing));
    }
}

/// How far a front follows; nothing in the writer.
fn tell_following(control: &Control, page: &mut Page) {
    let now = control.clock.unix();
    let rows = |front: &mut Front| {
        let silent = now.0.saturating_sub(front.heard.0);
        [
            ("snapshot_generation", "The writer's snapshot that is in force.", front.generation.0),
            ("writer_silent_seconds", "Seconds since the writer answered.", silent),
        ]
    };
    control.with_front(rows).into_iter().for_each(|rows| gauges(page, rows));
}

fn tell_lacking(control: &Control, page: &mut Page) {
    let help = "Appliances that will lack much when their fill window ends, or lack it since.";
    let lacking = Bytes::of(control.lacking().known().len()).0;
    gauges(page, [("appliances_lacking", help, lacking)]);
}

/// What the director counts, and how things stand. While it has no time to say, what is known
/// without it is told.
async fn tell_director(control: &Control, page: &mut Page) {
    let directing = &control.directing;
    page.table(WorkCounts::METRICS, directing.counts().map(Counter::value).each().copied());
    let waiting = Bytes::of(directing.waiting()).0;
    let help = "Reports, questions and facts that wait for the director.";
    gauges(page, [("director_waiting", help, waiting)]);
    let snapshot = control.snapshot();
    tell_appliances(&snapshot, page);
    let prefixes = snapshot.routes.len();
    let versions = Bytes::of(snapshot.catalog.version_count()).0;
    let rows = [
        (
            "routes_v4",
            "Prefixes of IPv4 that lead clients to sites, heard and static.",
            Bytes::of(prefixes.0).0,
        ),
        ("routes_v6", "The same of IPv6.", Bytes::of(prefixes.1).0),
        (
            "routes_unshared",
            "Prefixes that were announced to one site alone, when they were counted last.",
            control.unshared.seen().total,
        ),
        ("generation", "Newest generation of manifests.", snapshot.view.generation.0),
        ("asset_versions", "Asset versions in the catalog.", versions),
    ];
    gauges(page, rows);
    let asked = directing.ask(|desk, _| {
        let director = &desk.director;
        let rows = [
            (
                "drains_scheduled",
                "Drains of appliances that are to come.",
                Bytes::of(director.drains_scheduled()).0,
            ),
            (
                "routes_sites_differing",
                "Sites whose appliances hear different routes.",
                Bytes::of(director.differing().count()).0,
            ),
            (
                "withdrawal_receipts_awaited",
                "Receipts of withdrawals that are missing.",
                Bytes::of(director.unsigned_count()).0,
            ),
        ];
        (director.counters(), rows, of_placement(director))
    });
    let answer = timeout(SCRAPE_AWAITS, asked).await.ok().and_then(Result::ok);
    let help = "1 if the director answered this scrape in time, 0 if its counters are left out.";
    gauges(page, [("director_answers", help, answer.is_some().into())]);
    if let Some((counters, rows, of_placement)) = answer {
        page.table(Counters::METRICS, counters.each().copied());
        gauges(page, rows);
        gauges(page, of_placement);
    }
}

/// What the last plan came to.
fn of_placement(director: &Director) -> [(&'static str, &'static str, u64); 7] {
    let report = &director.places().report;
    [
        (
            "placement_shortfalls",
            "Items with fewer copies in a cluster than wanted.",
            report.missing_count,
        ),
        (
            "plan_refused",
            "1 while the last plan of placement is refused: nearcast plan show.",
            u64::from(director.refused().is_some()),
        ),
        (
            "pins_missing",
            "Versions that are pinned and do not lie there wholly, for each cluster.",
            report.pins_missing_count,
        ),
        (
            "bans_unkept",
            "Versions that stay where they are banned, for each appliance: last copies.",
            report.bans_unkept_count,
        ),
        (
            "placement_at_origin",
            "Items that no appliance of a region should hold.",
            report.at_origin,
        ),
        (
            "placement_staying",
            "Items that stay where they were until another appliance has them.",
            report.staying,
        ),
        (
            "placement_waiting",
            "Items that come to an appliance once what stays there has left.",
            report.waiting,
        ),
    ]
}

/// A scrape waits so long for the director, whose queue is 20 ms of work when it is full.
const SCRAPE_AWAITS: Duration = Duration::from_millis(50);

/// How many appliances are how; and of each that reports, one line in each of two families.
fn tell_appliances(snapshot: &Snapshot, page: &mut Page) {
    let all = || snapshot.view.all();
    let count = |health| Bytes::of(all().filter(|of| of.health == health).count()).0;
    let rows = [
        ("appliances_healthy", "Appliances that are healthy.", count(Health::Healthy)),
        ("appliances_draining", "Appliances that get no new sessions.", count(Health::Draining)),
        (
            "appliances_drained",
            "Appliances that are drained: next to nothing leaves them.",
            count(Health::Drained),
        ),
        ("appliances_unhealthy", "Appliances that cannot serve.", count(Health::Unhealthy)),
        ("appliances_stale", "Appliances whose reports have stopped.", count(Health::Stale)),
        (
            "appliances_never_seen",
            "Appliances that have not reported since the start.",
            count(Health::NeverSeen),
        ),
    ];
    gauges(page, rows);
    let reporting = || all().filter(|appliance| appliance.health != Health::NeverSeen);
    let thousandths = |permille: u64| f64::from(u32::try_from(permille).unwrap_or(u32::MAX)) / 1e3;
    let help = "The share of its sessions that an appliance takes.";
    let share = Metric::gauge("appliance_share", help);
    for appliance in reporting() {
        let value = thousandths(appliance.share_permille.into());
        page.put(&share, &format!("appliance=\"{}\"", appliance.id), value);
    }
    let help = "Of the sessions of titles whose draw leads to an appliance, the part that follows.";
    let titles = Metric::gauge("appliance_titles", help);
    for appliance in reporting() {
        let value = thousandths(appliance.titles_permille.into());
        page.put(&titles, &format!("appliance=\"{}\"", appliance.id), value);
    }
    let help = "How much an appliance uses of what it is shortest of, which is named.";
    let load = Metric::gauge("appliance_load", help);
    for appliance in reporting() {
        let (bottleneck, permille) = appliance.load.worst();
        let (id, name) = (&appliance.id, bottleneck.as_str());
        let labels = format!("appliance=\"{id}\",bottleneck=\"{name}\"");
        page.put(&load, &labels, thousandths(permille));
    }
}

fn appliance_out(
    id: &ApplianceId,
    status: &ApplianceStatus,
    report: Option<&Report>,
    identity: Option<u64>,
) -> FleetAppliance {
    let reason = status.cause.to_string();
    FleetAppliance {
        id: id.to_string(),
        state: status.health,
        reason: (!reason.is_empty()).then_some(reason),
        since_s: status.since.as_seconds(),
        last_report_ms: status.last_report.map(Nanos::as_millis),
        report: report.cloned(),
        objects_held: status.objects_held,
        weight: status.registered.appliance.weight.value(),
        share_permille: Some(status.share_permille),
        titles_permille: Some(status.titles_permille).filter(|permille| 0 < *permille),
        load: loads_out(&status.load),
        base_url: status.base_url.as_deref().map(str::to_owned),
        identity_expires_unix_s: identity,
        drain: None,
        about: (&status.registered.appliance).into(),
        abilities: None,
    }
}

/// The bottleneck first.
fn loads_out(load: &Load) -> Vec<FleetLoad> {
    let mut each = load.each();
    each.sort_by_key(|(_, permille)| std::cmp::Reverse(*permille));
    let out =
        |(of, permille): (Bottleneck, u64)| FleetLoad { name: of.as_str().to_owned(), permille };
    each.map(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_that_should_hold_much_is_told_of_one_appliance_at_a_time() {
        assert_eq!(too_many(PLACED_MAX), None);
        assert!(too_many(PLACED_MAX + 1).is_some_and(|said| said.contains("100001 items")));
    }
}

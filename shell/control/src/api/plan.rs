//! The plan of placement: what it would move, why, and the leave to move it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::wishes::{RuleKind, Unkept, last_copy};
use director::{Catalog, Event, Moves, Snapshot};
use model::id::{AssetVersionId, SiteId};
use model::units::Bytes;
use model::view::Renditions;
use placement::plan::Why as Reason;
use popularity::Config;
use serde::{Deserialize, Serialize};
use tokio::spawn;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use utoipa::ToSchema;
use wire::v1::plan::Why;

use super::problem::{Problem, Said};
use super::wishes::{said, words as words_of_launch, words_of_rule};
use super::{Shared, named};
use crate::state::directing::Desk;
use crate::state::quotas::turn;
use crate::state::writer::Control;

/// The last plan, and what it would move if it was refused.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PlanOut {
    /// The plan's number, to force it by; 0 before the first.
    number: u64,
    /// Why it was refused; empty if it was carried out. What was placed before stays, but for
    /// what is banned, until a plan is not refused, or is forced.
    refused: Vec<String>,
    /// Items that would come to appliances, and their bytes.
    comes: u64,
    comes_bytes: u64,
    /// Items that would go from appliances, and their bytes.
    goes: u64,
    goes_bytes: u64,
    /// Appliances to which something would come or from which something would go, the first 100 by
    /// name.
    appliances: Vec<MovesOut>,
    /// Items that no appliance of a region holds, region by region.
    at_origin: u64,
    /// Items with fewer copies in a cluster than the policy wants.
    missing: u64,
    /// Items that stay where they were until an appliance that is to hold them has them, appliance
    /// by appliance.
    staying: u64,
    /// Items that come to an appliance once what stays there has left.
    waiting: u64,
    /// Why pins are not kept: the first of them.
    pins_missing: Vec<String>,
    /// Which bans are not kept, and why: the first of them.
    bans_unkept: Vec<String>,
    /// What operators say of versions: how many pins, bans and launches.
    pins: usize,
    bans: usize,
    launches: usize,
    /// The last plans that moved something since this process began, the newest last: 64 at most.
    carried_out: Vec<CarriedOutPlan>,
}

/// A plan that was carried out: how much it has come to appliances and go from them.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CarriedOutPlan {
    /// Seconds since 1970.
    at_unix_s: u64,
    comes: u64,
    comes_bytes: u64,
    goes: u64,
    goes_bytes: u64,
}

impl From<&director::CarriedOut> for CarriedOutPlan {
    fn from(of: &director::CarriedOut) -> Self {
        let director::CarriedOut { at, change } = of;
        Self {
            at_unix_s: at.0,
            comes: change.comes,
            comes_bytes: change.comes_len.0,
            goes: change.goes,
            goes_bytes: change.goes_len.0,
        }
    }
}

/// What would come to an appliance and go from it: versions, or some of their renditions, the first
/// 100 of each.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MovesOut {
    appliance: String,
    comes: Vec<String>,
    comes_count: usize,
    goes: Vec<String>,
    goes_count: usize,
}

/// More pins and bans that are not kept are not listed.
const UNKEPT_MAX: usize = 20;
/// More appliances are not listed.
const MOVES_MAX: usize = 100;
/// More versions of one are counted, and not named.
const NAMES_MAX: usize = 100;
/// One is worked out at a time; others wait.
static SHOWING: Semaphore = Semaphore::const_new(1);

/// The last plan of placement, and what it would move if it was refused.
#[utoipa::path(get, path = "/v1/plan", tag = "fleet", responses((status = 200, body = PlanOut)))]
pub(crate) async fn plan(State(control): Shared) -> Result<Json<PlanOut>, Problem> {
    let turn = turn(&SHOWING).await.ok_or_else(Problem::busy)?;
    let known = control.directing.ask(|desk, _| {
        let director = &desk.director;
        let carried_out = director.carried_out().map(CarriedOutPlan::from).collect();
        let (number, wishes) = (director.last_plan(), Arc::clone(&director.desired().wishes));
        (number, director.places().clone(), director.refused().cloned(), carried_out, wishes)
    });
    let (number, places, refused, carried_out, wishes) = known.await?;
    let wishes = wishes.lasting(control.clock.unix(), Config::USUAL.launch_days, |_| true);
    let of_kind = |kind| wishes.rules.values().filter(|rule| rule.kind == kind).count();
    let (pins, bans) = (of_kind(RuleKind::Pin), of_kind(RuleKind::Ban));
    let launches = wishes.launches.len();
    let told = spawn_blocking(move || {
        let _turn = turn;
        let report = &places.report;
        let (at_origin, missing) = (report.at_origin, report.missing_count);
        let change = refused.as_ref().map(|of| of.change).unwrap_or_default();
        let moves =
            refused.as_ref().map(|of| of.places.moves(&places, MOVES_MAX)).unwrap_or_default();
        PlanOut {
            number,
            refused: refused.map(|of| of.words()).unwrap_or_default(),
            comes: change.comes,
            comes_bytes: change.comes_len.0,
            goes: change.goes,
            goes_bytes: change.goes_len.0,
            appliances: moves.into_iter().map(moves_out).collect(),
            at_origin,
            missing,
            staying: report.staying,
            waiting: report.waiting,
            pins_missing: words_of_unkept(&report.pins_missing),
            bans_unkept: words_of_unkept(&report.bans_unkept),
            pins,
            bans,
            launches,
            carried_out,
        }
    });
    Ok(Json(told.await.expect("nothing in it panics")))
}

fn words_of_unkept(unkept: &[Unkept]) -> Vec<String> {
    unkept.iter().take(UNKEPT_MAX).map(ToString::to_string).collect()
}

fn moves_out(Moves { appliance, comes, goes }: Moves) -> MovesOut {
    let name = |(version, held): (AssetVersionId, Renditions)| match held {
        Renditions::ALL => version.to_string(),
        _ => {
            let numbers = (0..64).filter(|at| held.has(*at)).map(|at| (at + 1).to_string());
            format!("{version} renditions {}", numbers.collect::<Vec<_>>().join(" "))
        }
    };
    MovesOut {
        appliance: appliance.to_string(),
        comes_count: comes.len(),
        comes: comes.into_iter().take(NAMES_MAX).map(name).collect(),
        goes_count: goes.len(),
        goes: goes.into_iter().take(NAMES_MAX).map(name).collect(),
    }
}

/// Whether a plan is to be forced.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanBody {
    /// The number of the last plan, by `GET /v1/plan`: it is made again, by the same desired state
    /// and forecast, and carried out whatever it evicts.
    force: Option<u64>,
}

/// One waits at a time.
static MAKING: Semaphore = Semaphore::const_new(1);
/// A forecast of a large fleet takes minutes: it goes on when whoever asked has its answer.
const FORECAST_AWAITED: Duration = Duration::from_secs(20);

/// Makes a plan now, by a forecast of now. A plan is made by itself whenever the catalogue or
/// hardware changes, and once a day for what viewers are expected to watch.
#[utoipa::path(post, path = "/v1/plan", tag = "fleet", request_body = PlanBody,
    responses((status = 202, description = "It is made: GET /v1/plan says what came of it"),
        (status = 409, description = "Another plan is the last one, or is being made: look at that \
            before it is forced"),
        (status = 503, description = "A forecast is made for somebody else: come again")))]
pub(crate) async fn plan_now(
    State(control): Shared,
    Json(PlanBody { force }): Json<PlanBody>,
) -> Result<(StatusCode, Extension<Said>), Problem> {
    let said = match force {
        Some(number) => {
            force_plan(&control, number).await?;
            format!("forced, of plan {number}: it is carried out whatever it evicts")
        }
        None => {
            make_plan(&control).await?;
            "asked for".to_owned()
        }
    };
    Ok((StatusCode::ACCEPTED, Extension(Said(said))))
}

/// Without a forecast: it would be another plan than the one that was looked at.
async fn force_plan(control: &Arc<Control>, number: u64) -> Result<(), Problem> {
    let force = move |desk: &mut Desk, now| {
        let (may, last) = (desk.director.may_force(number), desk.director.last_plan());
        if may {
            desk.handle(now, Event::PlanNow { forces: Some(number) });
        }
        (may, last)
    };
    let (is_forced, last) = control.directing.ask_in_turn(force).await;
    if is_forced {
        return Ok(());
    }
    let why = match last == number {
        true => "another is being made, or this one is being stored".to_owned(),
        false => format!("the last one is {last}"),
    };
    let detail = format!(
        "plan {number} cannot be forced, since {why}: look at the last one (`nearcast plan \
         show`), and force it if it is meant. While titles come without a pause, so do plans: stop \
         that first"
    );
    Err(Problem::new(StatusCode::CONFLICT, "other-plan", detail))
}

async fn make_plan(control: &Arc<Control>) -> Result<(), Problem> {
    let turn = turn(&MAKING).await.ok_or_else(Problem::busy)?;
    let of = Arc::clone(control);
    let making = spawn(async move {
        let _turn = turn;
        let forecast = of.forecast(of.clock.unix()).await;
        of.handle(Event::PlanNow { forces: None }).await;
        forecast.inspect_err(|error| of.store_failed(error))
    });
    match timeout(FORECAST_AWAITED, making).await {
        Ok(made) => Ok(made.expect("nothing in it panics")?),
        Err(_) => Ok(()),
    }
}

/// One is answered at a time.
static ASKING: Semaphore = Semaphore::const_new(1);

/// Where, and of what.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhyQuery {
    /// The site; it has to be said, as what follows.
    site: Option<String>,
    /// An asset version, or an asset for its current version.
    file: Option<String>,
}

/// Why the appliances of a site should hold a version, or not.
#[utoipa::path(get, path = "/v1/plan/why", tag = "fleet", params(WhyQuery),
    responses((status = 200, body = [Why])))]
pub(crate) async fn why(
    State(control): Shared,
    Query(WhyQuery { site, file }): Query<WhyQuery>,
) -> Result<Json<Vec<Why>>, Problem> {
    let both = site.zip(file).ok_or_else(|| Problem::bad_request("say which site and which file"));
    let (site, file) = both?;
    let site: SiteId = named(&site)?;
    let snapshot = control.snapshot();
    if !snapshot.sites.contains_key(&site) {
        let detail = format!("there is no site {site}: `nearcast site list` has them");
        return Err(Problem::not_found(detail));
    }
    let version = version_of(&snapshot.catalog, &file)?;
    // Each takes as long as a plan of its region.
    let turn = turn(&ASKING).await.ok_or_else(Problem::busy)?;
    let question = control.directing.ask(|desk, _| desk.director.question()).await?;
    let (asked, told) = (site.clone(), version.clone());
    let answer = spawn_blocking(move || (question.why(&asked, &told), drop(turn)).0);
    let answer = answer.await.expect("nothing in it panics");
    if answer.is_empty() {
        return Err(Problem::not_found(nothing(&snapshot, &site, &version)));
    }
    let out = |of: director::Held| Why {
        appliance: of.appliance.to_string(),
        version: version.to_string(),
        rendition: of.rendition,
        held: of.is_held,
        why: words(&of, &version),
    };
    Ok(Json(answer.into_iter().map(out).collect()))
}

/// The version of this name, or the current one of the asset.
fn version_of(catalog: &Catalog, file: &str) -> Result<AssetVersionId, Problem> {
    let asset = file.parse().ok();
    if let Some(current) = asset.and_then(|asset| catalog.versions(&asset).first()) {
        return Ok(current.id().clone());
    }
    let version = named(file)?;
    match catalog.version(&version) {
        Some(_) => Ok(version),
        None => Err(Problem::not_found(format!(
            "there is no asset or version {file}: `nearcast asset list` has them"
        ))),
    }
}

/// Why nothing is planned of a version at a site, both of which there are.
fn nothing(snapshot: &Snapshot, site: &SiteId, version: &AssetVersionId) -> String {
    let count = usize::try_from(snapshot.policy.versions_kept).unwrap_or(usize::MAX);
    let asset = snapshot.catalog.version(version).map(|of| &of.files.asset);
    let mut kept = asset.into_iter().flat_map(|of| snapshot.catalog.versions(of)).take(count);
    if kept.any(|of| of.id() == version) {
        format!("no appliance stands in {site}: `nearcast appliance set APPLIANCE --site {site}`")
    } else {
        format!(
            "{version} is held nowhere: newer versions of its asset are in its place, and the \
             policy keeps {count} (`nearcast policy set --versions-kept N`)"
        )
    }
}

/// The other cause of that.
const BITRATE: &str = ": it is above the site's bitrate_max_bps";

/// Why, after what operators said of it.
fn words(of: &director::Held, version: &AssetVersionId) -> String {
    let rule = of.rule.as_ref().map(|(at, rule)| words_of_rule(at, rule));
    let launch = of.launch.as_ref().map(words_of_launch);
    let operators = [rule, launch].into_iter().flatten().map(|words| said(&words) + "; ");
    let is_ban = of.rule.as_ref().is_some_and(|(_, rule)| rule.kind == RuleKind::Ban);
    let more = if of.why == Reason::Banned && !is_ban { BITRATE } else { "" };
    let day = format!("; {} MiB a day are expected of it here", of.day.0 >> 20);
    let day = Some(day).filter(|_| of.day != Bytes::ZERO).unwrap_or_default();
    let operators: String = operators.collect();
    let until_then = match (of.stays, of.waits) {
        (true, _) => "; it stays until another that is to hold it has it",
        (_, true) => "; it comes once others have what stays here until then",
        (false, false) => "",
    };
    match of.is_last {
        true => format!("{operators}{}{day}", last_copy(version)),
        false => format!("{operators}{}{more}{until_then}{day}", of.why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::wishes::{Rule, Where};

    #[test]
    fn a_last_copy_that_stays_is_told_after_what_was_said_of_it() {
        let rule = Rule { kind: RuleKind::Ban, until: None };
        let held = |is_last| director::Held {
            appliance: "a1".parse().unwrap(),
            rendition: None,
            is_held: is_last,
            day: Bytes::ZERO,
            why: Reason::Banned,
            rule: Some((Where::Everywhere, rule)),
            launch: None,
            is_last,
            stays: false,
            waits: false,
        };
        let film = "film-1".parse().unwrap();
        let said = |is_last| words(&held(is_last), &film);
        assert_eq!(said(false), "an operator says: banned everywhere; it must not be here");
        assert_eq!(
            said(true),
            "an operator says: banned everywhere; ban not kept: last copy of film-1 has no source"
        );
        let stays = director::Held {
            stays: true,
            rule: None,
            why: Reason::Elsewhere { copies: 1 },
            ..held(false)
        };
        assert!(
            words(&stays, &film).ends_with("; it stays until another that is to hold it has it")
        );
    }
}

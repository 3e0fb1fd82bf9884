//! What viewers are sent, as appliances tell it, and what they will be sent.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use model::units;
use popularity::{Expected, Score};
use serde::Deserialize;
use tokio::sync::Semaphore;
use utoipa::IntoParams;
use wire::v1::demand::{
    BacktestOut, BacktestWay, DemandPart, DemandTaken, PART_FILES_MAX, PopularItem, Popularity,
    REST,
};

use super::Shared;
use super::appliances::{Room, not_registered};
use super::caller::{ApplianceCaller, Caller};
use super::problem::Problem;
use crate::state::demand::{Known, NotCounted, Placed, Tested};
use crate::state::quotas::turn;
use crate::state::writer::Control;

/// Takes what viewers of an appliance were sent in an hour. It is on a drive once this is answered,
/// and is counted once.
#[utoipa::path(post, path = "/v1/appliances/{id}/demand", tag = "members",
    request_body = DemandPart, responses((status = 200, body = DemandTaken)))]
pub(crate) async fn demand_part(
    State(control): Shared,
    caller: ApplianceCaller,
    Caller(seen): Caller,
    Path(id): Path<String>,
    room: Room<true>,
    body: Bytes,
) -> Result<Json<DemandTaken>, Problem> {
    let appliance = caller.is(&id)?;
    let read = move || {
        let part: DemandPart = serde_json::from_slice(&body).map_err(Problem::bad_request)?;
        check(&part).map_err(Problem::bad_request)?;
        Ok::<_, Problem>(part)
    };
    // To read a part takes milliseconds, in which players should be answered.
    let part = tokio::task::spawn_blocking(read).await.expect("nothing in it panics")?;
    let counted = control.take_demand(appliance, &seen.key, part).await;
    drop(room);
    match counted {
        Ok(counted) => Ok(Json(DemandTaken { counted })),
        Err(NotCounted::Unknown) => Err(not_registered(&id)),
        Err(NotCounted::NotOver) => {
            let detail = "the hour is not over by control's clock: keep it, and set clocks right";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-over", detail))
        }
        Err(NotCounted::Late) => {
            let detail = "this hour or a later one is counted, and of such parts one in an hour: \
                          keep it. If there are many, look at this appliance's clock";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "late", detail))
        }
        Err(NotCounted::TooMuch(most)) => Err(Problem::bad_request(format!(
            "bytes: more than this appliance can send in an hour, of which control believes {}. \
             If it can send more, tell control its throughput_bps",
            most.0
        ))),
        Err(NotCounted::Busy) => {
            let detail = "demand is not counted now: come again in some seconds";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail))
        }
    }
}

/// Refuses a part that no appliance makes.
fn check(part: &DemandPart) -> Result<(), &'static str> {
    let DemandPart { number, files, bytes, .. } = part;
    if i64::try_from(*number).is_err() {
        return Err("number: use seconds since 1970, or what grows from there");
    }
    if files.len() != bytes.len() || PART_FILES_MAX < files.len() {
        return Err("files and bytes: one of each, of 65,536 files at most");
    }
    if !files.is_sorted_by(|one, next| one < next) {
        return Err("files: their numbers are ascending, each once");
    }
    Ok(())
}

/// Of which region, and how much of it.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PopularityQuery {
    /// A manifest cluster, or `-`: all sites that are in none. Without it, those, or the first
    /// region of which anything is known.
    region: Option<String>,
    /// Test the last seven days: how good would their forecasts have been?
    #[serde(default)]
    backtest: bool,
    /// So many items, 1 to 10,000; 20 without it.
    #[param(minimum = 1, maximum = 10_000)]
    most: Option<usize>,
}

/// One is answered at a time, as long as its work takes though whoever asked has left.
static ASKING: Semaphore = Semaphore::const_new(1);

const MOST_MAX: usize = 10_000;
const MOST: usize = 20;

/// What a region will watch on the next day that begins, by the last five weeks: the items with the
/// most bytes for each byte of room; and, if asked, how good such forecasts were in the last week,
/// against "as yesterday" and "as a week ago".
#[utoipa::path(get, path = "/v1/popularity", tag = "fleet", params(PopularityQuery),
    responses((status = 200, body = Popularity)))]
pub(crate) async fn popularity(
    State(control): Shared,
    Query(query): Query<PopularityQuery>,
) -> Result<Json<Popularity>, Problem> {
    let most = query.most.unwrap_or(MOST);
    if !(1..=MOST_MAX).contains(&most) {
        return Err(Problem::bad_request(format!("most: use 1 to {MOST_MAX}")));
    }
    let regions = control.demand_regions().await?;
    let region = region_asked(&control, query.region, &regions)?;
    let turn = turn(&ASKING).await.ok_or_else(Problem::busy)?;
    let known = control.popularity(&region, query.backtest, turn).await?;
    Ok(Json(told(region, regions, known, most)))
}

/// The region that is meant, if there is one of this name.
fn region_asked(
    control: &Control,
    asked: Option<String>,
    regions: &[String],
) -> Result<String, Problem> {
    let Some(asked) = asked else {
        let is_rest = |region: &&String| *region == REST;
        let first = regions.iter().find(is_rest).or_else(|| regions.first());
        return Ok(first.cloned().unwrap_or_else(|| REST.to_owned()));
    };
    let is_cluster = |site: &model::topology::Site| {
        site.manifest_cluster.as_ref().is_some_and(|cluster| cluster.as_str() == asked)
    };
    let is_known = regions.contains(&asked)
        || asked == REST
        || control.snapshot().sites.values().any(is_cluster);
    let detail =
        || format!("there is no region {asked}: use {REST} or a manifest cluster of sites");
    if is_known { Ok(asked) } else { Err(Problem::not_found(detail())) }
}

fn told(region: String, regions: Vec<String>, known: Known, most: usize) -> Popularity {
    let Known { demand, day, mut expected, backtest } = known;
    let before = demand.day(demand.day_of(demand.end()).before(24));
    let oldest = demand.oldest_day().map_or(0, |oldest| day.since(oldest) / 24);
    let sum = expected.iter().map(|(_, expected)| expected.day.0);
    let expected_bytes = sum.fold(0, u64::saturating_add);
    let items = units::Bytes::of(expected.len()).0;
    expected.sort_by_cached_key(|(of, expected)| {
        (std::cmp::Reverse(popularity_of(of, expected)), of.item)
    });
    expected.truncate(most);
    Popularity {
        region,
        regions,
        day_unix_s: day.begin().0,
        known_until_unix_s: demand.end().begin().0,
        days_known: oldest,
        day_before_bytes: before.map_or(0, |before| before.total().0),
        cut_bytes: before.map_or(0, |before| before.cut().0),
        expected_bytes,
        items,
        top: expected.into_iter().map(|(of, expected)| item(&of, &expected)).collect(),
        backtest: backtest.map(backtest_out),
    }
}

/// Expected bytes by room, in thousandths.
fn popularity_of(of: &Placed, expected: &Expected) -> u64 {
    let permille = u128::from(expected.day.0) * 1000 / u128::from(of.len.0.max(1));
    u64::try_from(permille).unwrap_or(u64::MAX)
}

fn item(of: &Placed, expected: &Expected) -> PopularItem {
    PopularItem {
        item: of.item.0,
        version: of.version.id().to_string(),
        rendition: of.rendition,
        bitrate_bps: of.bitrate.map(|bitrate| bitrate.0),
        len_bytes: of.len.0,
        expected_bytes: expected.day.0,
        peak_bps: expected.peak.0,
        popularity_permille: popularity_of(of, expected),
    }
}

fn backtest_out(Tested { rooms, backtest }: Tested) -> BacktestOut {
    let total = backtest.total();
    let way = |name: &str, score: &Score| BacktestWay {
        name: name.to_owned(),
        off_bytes: score.off.0,
        hit_bytes: score.hits.iter().map(|hit| hit.0).collect(),
    };
    BacktestOut {
        days: u32::try_from(backtest.days.len()).unwrap_or(u32::MAX),
        came_bytes: total.came.0,
        room_bytes: rooms.iter().map(|room| room.0).collect(),
        ways: vec![
            way("forecast", &total.forecast),
            way("yesterday", &total.yesterday),
            way("week_ago", &total.week_ago),
            way("known", &total.known),
        ],
    }
}

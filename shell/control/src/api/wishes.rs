//! What operators say of versions: pins, bans and launches.

#![expect(unused_qualifications, reason = "utoipa's macro qualifies what it is given")]

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::wishes::{Launch, LaunchLike, Rule, RuleKind, Unkept, Where, Wishes};
use model::id::AssetVersionId;
use model::units::{Bytes, UnixSeconds};
use popularity::Config;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::fill::until_in;
use super::problem::{Problem, Said};
use super::{Shared, named};
use crate::state::convert;
use crate::state::writer::Control;

/// A pin or a ban.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RuleOut {
    version: String,
    /// `everywhere`, `at site NAME` or `in manifest cluster NAME`.
    at: String,
    site: Option<String>,
    cluster: Option<String>,
    /// Until then, in seconds since 1970; none until an operator says otherwise.
    until_unix_s: Option<u64>,
    /// Why it is not kept everywhere that it should; empty if it is.
    missing: Vec<String>,
}

/// Where a version is pinned or banned, and until when.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleBody {
    /// At this site; without it and `cluster`, everywhere. A site goes before its manifest cluster,
    /// and that before everywhere.
    #[serde(default)]
    site: Option<String>,
    /// In this manifest cluster.
    #[serde(default)]
    cluster: Option<String>,
    /// Until then, in UTC (RFC 3339); without it, until an operator ends it.
    #[serde(default)]
    #[schema(example = "2027-01-31T02:00:00Z")]
    until: Option<String>,
}

/// Where it is.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RuleQuery {
    /// At this site; without it and `cluster`, everywhere.
    site: Option<String>,
    /// In this manifest cluster.
    cluster: Option<String>,
}

/// Versions that must lie somewhere, by name.
#[utoipa::path(get, path = "/v1/pins", tag = "fleet",
    responses((status = 200, body = [RuleOut])))]
pub(crate) async fn pins(State(control): Shared) -> Result<Json<Vec<RuleOut>>, Problem> {
    rules(&control, RuleKind::Pin).await
}

/// Versions that must not lie somewhere, by name.
#[utoipa::path(get, path = "/v1/bans", tag = "fleet",
    responses((status = 200, body = [RuleOut])))]
pub(crate) async fn bans(State(control): Shared) -> Result<Json<Vec<RuleOut>>, Problem> {
    rules(&control, RuleKind::Ban).await
}

/// Has a version lie somewhere, whatever is expected of it: one copy of each rendition at least, in
/// each manifest cluster that is meant, or at the site. In place of a pin or a ban there. Pins and
/// bans together are 1,024 at most.
#[utoipa::path(put, path = "/v1/pins/{version}", tag = "fleet",
    request_body = RuleBody, responses((status = 200, body = RuleOut)))]
pub(crate) async fn put_pin(
    State(control): Shared,
    Path(version): Path<String>,
    Json(body): Json<RuleBody>,
) -> Result<(Extension<Said>, Json<RuleOut>), Problem> {
    put_rule(&control, &version, &body, RuleKind::Pin).await
}

/// Has a version lie nowhere there: copies go with the next plan, and viewers are served from
/// elsewhere. In place of a pin or a ban there.
#[utoipa::path(put, path = "/v1/bans/{version}", tag = "fleet",
    request_body = RuleBody, responses((status = 200, body = RuleOut)))]
pub(crate) async fn put_ban(
    State(control): Shared,
    Path(version): Path<String>,
    Json(body): Json<RuleBody>,
) -> Result<(Extension<Said>, Json<RuleOut>), Problem> {
    put_rule(&control, &version, &body, RuleKind::Ban).await
}

/// Ends a pin, also of a version that was taken down.
#[utoipa::path(delete, path = "/v1/pins/{version}", tag = "fleet", params(RuleQuery),
    responses((status = 204, description = "It is not pinned there any more"),
        (status = 404, description = "It was not pinned there")))]
pub(crate) async fn delete_pin(
    State(control): Shared,
    Path(version): Path<String>,
    Query(query): Query<RuleQuery>,
) -> Result<StatusCode, Problem> {
    delete_rule(&control, &version, query, RuleKind::Pin).await
}

/// Ends a ban, also of a version that was taken down.
#[utoipa::path(delete, path = "/v1/bans/{version}", tag = "fleet", params(RuleQuery),
    responses((status = 204, description = "It is not banned there any more"),
        (status = 404, description = "It was not banned there")))]
pub(crate) async fn delete_ban(
    State(control): Shared,
    Path(version): Path<String>,
    Query(query): Query<RuleQuery>,
) -> Result<StatusCode, Problem> {
    delete_rule(&control, &version, query, RuleKind::Ban).await
}

async fn rules(control: &Control, kind: RuleKind) -> Result<Json<Vec<RuleOut>>, Problem> {
    let (wishes, now) = (control.wishes().await?, control.clock.unix());
    let unkept = control.unkept().told.clone();
    let of_kind = wishes.rules.iter().filter(|(_, rule)| rule.kind == kind && rule.is_on(now));
    Ok(Json(of_kind.map(|((version, at), rule)| rule_out(version, at, rule, &unkept)).collect()))
}

async fn put_rule(
    control: &std::sync::Arc<Control>,
    version: &str,
    RuleBody { site, cluster, until }: &RuleBody,
    kind: RuleKind,
) -> Result<(Extension<Said>, Json<RuleOut>), Problem> {
    let version: AssetVersionId = named(version)?;
    let at = place(site.as_deref(), cluster.as_deref())?;
    let rule = Rule { kind, until: until_in(until.as_deref(), control.clock.unix())? };
    control.put_rule(&version, &at, rule).await?;
    let end = rule.until.map_or_else(|| "further notice".to_owned(), convert::time_out);
    let unkept = control.unkept().told.clone();
    let out = rule_out(&version, &at, &rule, &unkept);
    Ok((Extension(Said(format!("{kind} {at} until {end}"))), Json(out)))
}

async fn delete_rule(
    control: &std::sync::Arc<Control>,
    version: &str,
    RuleQuery { site, cluster }: RuleQuery,
    kind: RuleKind,
) -> Result<StatusCode, Problem> {
    let at = place(site.as_deref(), cluster.as_deref())?;
    let key: (AssetVersionId, Where) = (named(version)?, at);
    // As it is now, with versions that are gone: what is said of them can be ended, too.
    let wishes = control.wishes().await?;
    if wishes.rules.get(&key).is_none_or(|rule| rule.kind != kind) {
        let (version, at) = &key;
        let list = match kind {
            RuleKind::Pin => "pin",
            RuleKind::Ban => "ban",
        };
        return Err(Problem::not_found(format!(
            "nothing ended: nobody says that {version} is {kind} {at}: `nearcast {list} list` has \
             all that is said"
        )));
    }
    control.delete_rule(&key.0, &key.1, kind).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn place(site: Option<&str>, cluster: Option<&str>) -> Result<Where, Problem> {
    match (site, cluster) {
        (None, None) => Ok(Where::Everywhere),
        (Some(site), None) => Ok(Where::Site(named(site)?)),
        (None, Some(cluster)) => Ok(Where::Cluster(named(cluster)?)),
        (Some(_), Some(_)) => {
            Err(Problem::bad_request("site, cluster: say one of them, or neither for everywhere"))
        }
    }
}

fn rule_out(version: &AssetVersionId, at: &Where, rule: &Rule, unkept: &[Unkept]) -> RuleOut {
    let (site, cluster) = match at {
        Where::Everywhere => (None, None),
        Where::Cluster(id) => (None, Some(id.to_string())),
        Where::Site(id) => (Some(id.to_string()), None),
    };
    // Where a pin is missing it is told of a site: which of several pins of it that is, its place
    // may not tell.
    let of_it = unkept.iter().filter(|of| rule.kind == of.kind() && of.version == *version);
    let is_exact = rule.kind == RuleKind::Ban || matches!(at, Where::Site(_));
    let of_it = of_it.filter(|of| !is_exact || of.at == *at);
    RuleOut {
        version: version.to_string(),
        at: at.to_string(),
        site,
        cluster,
        until_unix_s: rule.until.map(|until| until.0),
        missing: of_it.map(ToString::to_string).collect(),
    }
}

/// A version that begins, and what it will be watched like.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LaunchOut {
    version: String,
    /// Nobody watches it before, in seconds since 1970.
    begin_unix_s: u64,
    /// Bytes on a day, of all renditions in the whole fleet.
    day_bytes: Option<u64>,
    /// Another version that it is like.
    like: Option<String>,
    /// `first` days of that, or `present` ones.
    days: Option<String>,
    /// From then on it is left out: it has a history of its own.
    ends_unix_s: u64,
}

/// How a version that begins will be watched: `day_bytes` or `like`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LaunchBody {
    /// Nobody watches it before, in UTC (RFC 3339); without it, now.
    #[serde(default)]
    #[schema(example = "2027-01-31T20:00:00Z")]
    begin: Option<String>,
    /// Bytes on a day, of all renditions in the whole fleet: 1 to 1,000,000,000,000,000,000.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000_000_000_000_u64)]
    day_bytes: Option<u64>,
    /// Another version that it will be like.
    #[serde(default)]
    like: Option<String>,
    /// Like that one's `first` days, day by day, or like its `present` ones; `first` without it.
    #[serde(default)]
    days: Option<String>,
}

/// Versions that begin, by name.
#[utoipa::path(get, path = "/v1/launches", tag = "fleet",
    responses((status = 200, body = [LaunchOut])))]
pub(crate) async fn launches(State(control): Shared) -> Result<Json<Vec<LaunchOut>>, Problem> {
    let (wishes, now) = (control.wishes().await?, control.clock.unix());
    let lasting = Wishes::lasting(&wishes, now, Config::USUAL.launch_days, |_| true);
    Ok(Json(lasting.launches.iter().map(|(version, of)| launch_out(version, of)).collect()))
}

/// Says how much a version that begins will be watched, until it has a history of its own: two
/// weeks after it begins at the latest. It counts with the next forecast: at 23:00 UTC, or with
/// POST /v1/plan. There are 256 at most.
#[utoipa::path(put, path = "/v1/launches/{version}", tag = "fleet",
    request_body = LaunchBody, responses((status = 200, body = LaunchOut)))]
pub(crate) async fn put_launch(
    State(control): Shared,
    Path(version): Path<String>,
    Json(body): Json<LaunchBody>,
) -> Result<(Extension<Said>, Json<LaunchOut>), Problem> {
    let version: AssetVersionId = named(&version)?;
    let launch = body.launch(&version, control.clock.unix())?;
    control.put_launch(&version, Some(launch.clone())).await?;
    let said = Said(words(&launch));
    Ok((Extension(said), Json(launch_out(&version, &launch))))
}

/// Says nothing of how much a version will be watched.
#[utoipa::path(delete, path = "/v1/launches/{version}", tag = "fleet",
    responses((status = 204, description = "It is no launch any more"),
        (status = 404, description = "It was none")))]
pub(crate) async fn delete_launch(
    State(control): Shared,
    Path(version): Path<String>,
) -> Result<StatusCode, Problem> {
    let version: AssetVersionId = named(&version)?;
    if !control.wishes().await?.launches.contains_key(&version) {
        return Err(Problem::not_found(format!(
            "nothing ended: {version} is no launch: `nearcast launch list` has them"
        )));
    }
    control.put_launch(&version, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl LaunchBody {
    fn launch(&self, version: &AssetVersionId, now: UnixSeconds) -> Result<Launch, Problem> {
        let Self { begin, day_bytes, like, days } = self;
        let begin = match begin {
            None => now,
            Some(text) => convert::time_in(text).ok_or_else(|| {
                Problem::bad_request("begin: write a time in UTC, as in 2027-01-31T20:00:00Z")
            })?,
        };
        let like = match (day_bytes, like.as_deref(), days.as_deref()) {
            (Some(1..=DAY_BYTES_MAX), None, None) => {
                LaunchLike::Bytes(Bytes(day_bytes.unwrap_or_default()))
            }
            (Some(_), None, None) => {
                return Err(Problem::bad_request(format!("day_bytes: use 1 to {DAY_BYTES_MAX}")));
            }
            (None, Some(like), None | Some("first")) => LaunchLike::FirstDays(named(like)?),
            (None, Some(like), Some("present")) => LaunchLike::Present(named(like)?),
            (None, Some(_), Some(_)) => {
                return Err(Problem::bad_request("days: use first or present"));
            }
            (_, None, Some(_)) => {
                return Err(Problem::bad_request("days: say which version it is like, too"));
            }
            (None, None, None) | (Some(_), Some(_), _) => {
                return Err(Problem::bad_request("day_bytes, like: say one of them"));
            }
        };
        let is_itself = match &like {
            LaunchLike::Bytes(_) => false,
            LaunchLike::FirstDays(other) | LaunchLike::Present(other) => other == version,
        };
        if is_itself {
            return Err(Problem::bad_request("like: it cannot be like itself"));
        }
        let launch = Launch { begin, like };
        if BEGIN_MAX < begin || launch.is_over(now, Config::USUAL.launch_days) {
            let days = Config::USUAL.launch_days;
            return Err(Problem::bad_request(format!(
                "begin: use a time within the last {days} days, or before the year 2200"
            )));
        }
        Ok(launch)
    }
}

/// 2200-01-01. Arbitrary.
const BEGIN_MAX: UnixSeconds = UnixSeconds(7_258_118_400);
/// An exabyte.
const DAY_BYTES_MAX: u64 = 1_000_000_000_000_000_000;

fn launch_out(version: &AssetVersionId, launch: &Launch) -> LaunchOut {
    let (day_bytes, like, days) = match &launch.like {
        LaunchLike::Bytes(bytes) => (Some(bytes.0), None, None),
        LaunchLike::FirstDays(other) => (None, Some(other), Some("first")),
        LaunchLike::Present(other) => (None, Some(other), Some("present")),
    };
    LaunchOut {
        version: version.to_string(),
        begin_unix_s: launch.begin.0,
        day_bytes,
        like: like.map(ToString::to_string),
        days: days.map(str::to_owned),
        ends_unix_s: launch.ends(Config::USUAL.launch_days).0,
    }
}

/// What operators say, as a reason.
pub(super) fn said(words: &str) -> String {
    format!("an operator says: {words}")
}

/// What is said of a version that begins.
pub(super) fn words(Launch { begin, like }: &Launch) -> String {
    let begin = convert::time_out(*begin);
    match like {
        LaunchLike::Bytes(bytes) => format!("a launch at {begin}, by hand {} bytes a day", bytes.0),
        LaunchLike::FirstDays(other) => format!("a launch at {begin}, like {other}'s first days"),
        LaunchLike::Present(other) => format!("a launch at {begin}, like {other} now"),
    }
}

/// What is said of a version at a site.
pub(super) fn words_of_rule(at: &Where, Rule { kind, until }: &Rule) -> String {
    let until = until.map(|until| format!(" until {}", convert::time_out(until)));
    format!("{kind} {at}{}", until.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::wishes::UnkeptWhy;

    #[test]
    fn a_ban_says_itself_that_a_last_copy_stays_and_no_other_rule_does() {
        let film: AssetVersionId = "film-1".parse().unwrap();
        let site = Where::Site("s1".parse().unwrap());
        let why = UnkeptWhy::LastCopy("a1".parse().unwrap());
        let unkept = [Unkept { version: film.clone(), at: Where::Everywhere, why }];
        let missing =
            |at: &Where, kind| rule_out(&film, at, &Rule { kind, until: None }, &unkept).missing;
        let said = missing(&Where::Everywhere, RuleKind::Ban);
        let last = "ban not kept: last copy of film-1 has no source";
        assert!(said.len() == 1 && said[0].contains(last), "{said:?}");
        assert!(said[0].starts_with("film-1 is banned everywhere, and a1 keeps it"), "{said:?}");
        assert_eq!(missing(&site, RuleKind::Ban), Vec::<String>::new());
        assert_eq!(missing(&Where::Everywhere, RuleKind::Pin), Vec::<String>::new());
    }
}

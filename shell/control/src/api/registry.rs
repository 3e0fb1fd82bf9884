//! Desired state that operators write: sites and appliances.

use std::net::IpAddr;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use director::Registered;
use model::id::ApplianceId;
use model::profile::Profiles;
use model::topology::{
    ADDRESSES_MAX, Appliance, Prefix, Site, WEIGHT_MAX, Weight, router_number, share_router,
};
use model::units::{Nanos, UnixSeconds};
use model::zone::TimeZone;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wire::convert::{WireError, appliance_with, site_with};
use wire::v1::appliance::{Abilities, ApplianceAbout, ProfileName};
use wire::v1::fleet::{ApplianceNow, DrainOut};
use wire::v1::site::{SiteAbout, SiteKind};

use super::drain::{drain_out, no_appliance};
use super::problem::{Problem, Said};
use super::put_said::put_said;
use super::{Shared, named};
use crate::state::directing::Told;

/// A site as written.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteBody {
    /// Clients that the site is for; the longest prefix of all sites wins.
    #[schema(example = json!(["10.0.0.0/8", "2001:db8::/32"]))]
    prefixes: Vec<String>,
    /// `embedded` in an ISP's network, for the clients that its routers announce; or `exchange`,
    /// for all, which it is unless said otherwise. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<SiteKind>,
    /// Where it is: degrees north and east, country, region and city, or some of them. Empty takes
    /// it away; without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "52.52,13.405 DE DE-BE Berlin")]
    place: Option<String>,
    /// An embedded site that serves other clients too. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    /// Its appliances hold only renditions of at most so many bits per second, by the highest
    /// figure that an entry manifest names, and those of which none names one; upper ones are
    /// played from other sites. 0 for all. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 2_500_000)]
    bitrate_max_bps: Option<u64>,
    /// Its time zone by IANA's name. Empty is UTC, which it is unless said otherwise. Without it,
    /// it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// What comes in from outside at most, for fill, in bits per second. 0 if it is not known.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = 10_000_000_000_u64)]
    uplink_bps: Option<u64>,
    /// Sites of one manifest cluster are planned together: a name. Empty if it is planned by
    /// itself. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "de-north")]
    manifest_cluster: Option<String>,
    /// Manifest clusters of one fill cluster fill from one another: a name. Empty if its own fills
    /// by itself. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "de")]
    fill_cluster: Option<String>,
    /// Windows of a day in which it fills, by local time, at most 4; or `always`. Empty for those
    /// of the policy. Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "22:00-06:00, 12:00-14:00")]
    fill_windows: Option<String>,
}

/// A site.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SiteOut {
    /// Name.
    #[schema(example = "s1")]
    id: String,
    /// Clients that it is for.
    prefixes: Vec<String>,
    #[serde(flatten)]
    about: SiteAbout,
}

/// An appliance as written.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplianceBody {
    /// Where it stands.
    #[schema(example = "s1")]
    site: String,
    /// Its part among the appliances of its site, 1 to 1000.
    #[serde(default = "one")]
    #[schema(minimum = 1, maximum = 1000)]
    weight: u32,
    /// Its service addresses, at most 4, which a sibling of its site takes over while it cannot
    /// serve. No other appliance may have them. The last byte of each is a number for VRRP: not 0,
    /// and no two of a site and of a family (IPv4, IPv6) have the same. Without it they stay as
    /// they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>, example = json!(["192.0.2.11", "2001:db8::11"]))]
    addresses: Option<Vec<IpAddr>>,
    /// The kind of machine: the policy says what it is able to do, where nothing is said below.
    /// Without it, it stays as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    /// Your own name for the kind of machine, for people: no figures follow from it. Empty for
    /// none. Without it, it stays as it is, but goes where `profile` says another usual kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "edge-100")]
    profile_name: Option<String>,
    /// What it serves at most, in bits per second. 0 for its profile's. Without it, it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throughput_bps: Option<u64>,
    /// What it holds at most, where its drives have more room. 0 for its profile's, which is shown
    /// and not counted with. Without it, it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    capacity_bytes: Option<u64>,
    /// What it fetches at most, in bits per second. 0 for its profile's. Without it, it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fill_bps: Option<u64>,
    /// Words for people, at most 16: all of them. Without it they stay as they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = json!(["rack-7", "loan"]))]
    tags: Option<Vec<String>>,
}

/// An appliance as registered. All that it reports is in `/v1/fleet`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApplianceOut {
    /// Name.
    #[schema(example = "a1")]
    id: String,
    /// Where it stands.
    site: String,
    /// Its part among the appliances of its site.
    weight: u32,
    /// Its service addresses, which a sibling takes over while it cannot serve.
    #[schema(value_type = Vec<String>)]
    addresses: Vec<IpAddr>,
    #[serde(flatten)]
    about: ApplianceAbout,
    /// What it is able to do, by its own figures or its profile's; null if nobody said anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    abilities: Option<Abilities>,
    /// What its drives can hold, reserve taken off; null until it has reported.
    usable_bytes: Option<u64>,
    /// When it is drained, or will be; null if an operator does not want that.
    drain: Option<DrainOut>,
}

/// An appliance as registered, and as it is now.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApplianceNowOut {
    #[serde(flatten)]
    registered: ApplianceOut,
    #[serde(flatten)]
    now: ApplianceNow,
}

fn one() -> u32 {
    1
}

impl SiteBody {
    /// What is said, over what was known.
    fn over(self, known: SiteAbout) -> Result<SiteAbout, WireError> {
        let time_zone = match self.time_zone.as_deref() {
            None => known.time_zone,
            Some("") => TimeZone::default().to_string(),
            Some(text) => TimeZone::named(text)?.to_string(),
        };
        Ok(SiteAbout {
            kind: self.kind.unwrap_or(known.kind),
            place: self.place.unwrap_or(known.place),
            open: self.open.unwrap_or(known.open),
            bitrate_max_bps: self.bitrate_max_bps.unwrap_or(known.bitrate_max_bps),
            time_zone,
            uplink_bps: self.uplink_bps.unwrap_or(known.uplink_bps),
            manifest_cluster: self.manifest_cluster.unwrap_or(known.manifest_cluster),
            fill_cluster: self.fill_cluster.unwrap_or(known.fill_cluster),
            fill_windows: self.fill_windows.unwrap_or(known.fill_windows),
            fill_paused_until_unix_s: known.fill_paused_until_unix_s,
        })
    }
}

impl ApplianceBody {
    /// What is said, over what was known. Another of the usual profiles takes the place of an
    /// operator's own.
    fn over(&self, known: ApplianceAbout) -> ApplianceAbout {
        let is_usual = |of: ProfileName| of != ProfileName::None && of != known.profile;
        let known_name =
            if self.profile.is_some_and(is_usual) { String::new() } else { known.profile_name };
        ApplianceAbout {
            profile: self.profile.unwrap_or(known.profile),
            profile_name: self.profile_name.clone().unwrap_or(known_name),
            throughput_bps: self.throughput_bps.unwrap_or(known.throughput_bps),
            capacity_bytes: self.capacity_bytes.unwrap_or(known.capacity_bytes),
            fill_bps: self.fill_bps.unwrap_or(known.fill_bps),
            tags: self.tags.clone().unwrap_or(known.tags),
        }
    }
}

/// What it is able to do, by its own figures or its profile's.
pub(super) fn abilities_out(appliance: &Appliance, profiles: &Profiles) -> Option<Abilities> {
    let able = appliance.own.or(profiles.of(appliance.profile));
    (able != model::profile::Abilities::default()).then(|| able.into())
}

/// All sites.
#[utoipa::path(get, path = "/v1/sites", tag = "registry",
    responses((status = 200, body = [SiteOut])))]
pub(crate) async fn sites(State(control): Shared) -> Json<Vec<SiteOut>> {
    Json(control.snapshot().sites.values().map(site_out).collect())
}

/// One site.
#[utoipa::path(get, path = "/v1/sites/{site}", tag = "registry",
    responses((status = 200, body = SiteOut)))]
pub(crate) async fn site(
    State(control): Shared,
    Path(site): Path<String>,
) -> Result<Json<SiteOut>, Problem> {
    let found = control.snapshot().sites.get(site.as_str()).map(site_out);
    found.map(Json).ok_or_else(|| no_site(&site))
}

/// Makes a site new or different.
#[utoipa::path(put, path = "/v1/sites/{site}", tag = "registry", request_body = SiteBody,
    responses((status = 200, body = SiteOut)))]
pub(crate) async fn put_site(
    State(control): Shared,
    Path(site): Path<String>,
    Json(body): Json<SiteBody>,
) -> Result<(Extension<Said>, Json<SiteOut>), Problem> {
    if PREFIXES_MAX < body.prefixes.len() {
        let detail = format!("a site has at most {PREFIXES_MAX} prefixes");
        return Err(Problem::bad_request(detail));
    }
    let prefixes = body.prefixes.iter().map(|text| prefix(text)).collect::<Result<_, _>>()?;
    let site = Site::new(named(&site)?, prefixes);
    let id = site.id.clone();
    let mut before = None;
    let merge = |known: Option<&Site>| {
        before = known.map(site_said);
        let about = body.over(known.map(SiteAbout::from).unwrap_or_default());
        site_with(site, &about.map_err(Problem::bad_request)?).map_err(Problem::bad_request)
    };
    let site = control.put_site(&id, merge).await?;
    let always = ["kind", "bitrate_max_bps"];
    let said = put_said(before.as_ref(), &site_said(&site), &always, "prefixes");
    Ok((Extension(said), Json(site_out(&site))))
}

/// A site in the audit log.
#[derive(Serialize)]
struct SiteSaid {
    prefixes: Vec<String>,
    #[serde(flatten)]
    about: SiteAbout,
}

fn site_said(site: &Site) -> SiteSaid {
    let SiteOut { id: _, prefixes, about } = site_out(site);
    SiteSaid { prefixes, about }
}

/// Removes a site in which no appliance stands, and all pins and bans of it alone: a site that gets
/// its name later is another.
#[utoipa::path(delete, path = "/v1/sites/{site}", tag = "registry",
    responses((status = 204, description = "Gone")))]
pub(crate) async fn delete_site(
    State(control): Shared,
    Path(site): Path<String>,
) -> Result<(StatusCode, Extension<Said>), Problem> {
    let rules = control.delete_site(&named(&site)?).await?.ok_or_else(|| no_site(&site))?;
    let said = match rules {
        0 => "gone".to_owned(),
        rules => format!("gone, with pins and bans of it: {rules}"),
    };
    Ok((StatusCode::NO_CONTENT, Extension(Said(said))))
}

/// All appliances as registered.
#[utoipa::path(get, path = "/v1/appliances", tag = "registry",
    responses((status = 200, body = [ApplianceOut])))]
pub(crate) async fn appliances(State(control): Shared) -> Result<Json<Vec<ApplianceOut>>, Problem> {
    let now = control.clock.unix();
    let all = control.directing.fleet().await?;
    let profiles = control.snapshot().policy.profiles;
    let out = all.iter().map(|told| appliance_out(&told.status.registered, &profiles, now));
    Ok(Json(out.collect()))
}

/// One appliance as registered, and whether it can serve now. O(1).
#[utoipa::path(get, path = "/v1/appliances/{id}", tag = "registry",
    responses((status = 200, body = ApplianceNowOut)))]
pub(crate) async fn appliance(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<Json<ApplianceNowOut>, Problem> {
    let found = control.directing.appliance(named(&id)?).await?;
    let Told { status, report, .. } = found.ok_or_else(|| no_appliance(&id))?;
    let profiles = control.snapshot().policy.profiles;
    let reason = status.cause.to_string();
    let now = ApplianceNow {
        state: status.health,
        reason: (!reason.is_empty()).then_some(reason),
        since_s: status.since.as_seconds(),
        last_report_ms: status.last_report.map(Nanos::as_millis),
        egress_bits_per_second: report.map(|report| report.load.egress_bits_per_second),
    };
    let registered = appliance_out(&status.registered, &profiles, control.clock.unix());
    Ok(Json(ApplianceNowOut { registered, now }))
}

/// Registers an appliance, or changes its site, weight and service addresses.
#[utoipa::path(put, path = "/v1/appliances/{id}", tag = "registry", request_body = ApplianceBody,
    responses((status = 200, body = ApplianceOut)))]
pub(crate) async fn put_appliance(
    State(control): Shared,
    Path(id): Path<String>,
    Json(body): Json<ApplianceBody>,
) -> Result<(Extension<Said>, Json<ApplianceOut>), Problem> {
    let weight = Weight::new(body.weight)
        .ok_or_else(|| Problem::bad_request(format!("weight: use 1 to {WEIGHT_MAX}")))?;
    let id: ApplianceId = named(&id)?;
    let addresses = body.addresses.clone().map(service_addresses).transpose()?;
    let appliance = Appliance::new(id.clone(), named(&body.site)?, weight);
    let mut before = None;
    let merge = |known: Option<&Appliance>| {
        before = known.map(appliance_said);
        let about = body.over(known.map(ApplianceAbout::from).unwrap_or_default());
        let kept = || known.map(|known| known.addresses.clone()).unwrap_or_default();
        let addresses = addresses.unwrap_or_else(kept);
        appliance_with(Appliance { addresses, ..appliance }, &about).map_err(Problem::bad_request)
    };
    let stored = control.put_appliance(&id, merge).await?;
    let profiles = control.snapshot().policy.profiles;
    let found = appliance_out(&stored, &profiles, control.clock.unix());
    let now = appliance_said(&stored.appliance);
    let said = put_said(before.as_ref(), &now, &["site", "weight", "addresses"], "tags");
    Ok((Extension(said), Json(found)))
}

/// An appliance in the audit log.
#[derive(Serialize)]
struct ApplianceSaid {
    site: String,
    weight: u32,
    addresses: Vec<IpAddr>,
    #[serde(flatten)]
    about: ApplianceAbout,
}

fn appliance_said(appliance: &Appliance) -> ApplianceSaid {
    ApplianceSaid {
        site: appliance.site.to_string(),
        weight: appliance.weight.value(),
        addresses: appliance.addresses.clone(),
        about: appliance.into(),
    }
}

/// Those that a sibling can take over.
fn service_addresses(addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Problem> {
    if ADDRESSES_MAX < addresses.len() {
        let detail = format!("addresses: an appliance has at most {ADDRESSES_MAX}");
        return Err(Problem::bad_request(detail));
    }
    let by_family = |at: &IpAddr| match at {
        IpAddr::V4(at) => at.is_broadcast() || at.is_link_local(),
        IpAddr::V6(at) => at.is_unicast_link_local() || at.to_ipv4_mapped().is_some(),
    };
    let cannot = |at: &&IpAddr| {
        at.is_unspecified() || at.is_multicast() || at.is_loopback() || by_family(at)
    };
    if let Some(address) = addresses.iter().find(cannot) {
        let detail = format!("addresses: players cannot be sent to {address}");
        return Err(Problem::bad_request(detail));
    }
    if let Some(address) = addresses.iter().find(|address| router_number(**address) == 0) {
        let detail = format!(
            "addresses: {address} ends with the byte 0, which VRRP has no number for: give another"
        );
        return Err(Problem::bad_request(detail));
    }
    for (index, address) in addresses.iter().enumerate() {
        let alike = |other: &&IpAddr| share_router(**other, *address);
        if let Some(other) = addresses[..index].iter().find(alike) {
            let detail = format!(
                "addresses: {other} and {address} end with the same byte, which is their number \
                 for VRRP: give another"
            );
            return Err(Problem::bad_request(detail));
        }
    }
    Ok(addresses)
}

/// Removes an appliance for good: its copies are placed elsewhere.
#[utoipa::path(delete, path = "/v1/appliances/{id}", tag = "registry",
    responses((status = 204, description = "Gone")))]
pub(crate) async fn delete_appliance(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let known = control.delete_appliance(&named(&id)?).await?;
    if known { Ok(StatusCode::NO_CONTENT) } else { Err(no_appliance(&id)) }
}

/// What an appliance is planned with.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AcceptedOut {
    /// What its drives can hold: it counts from now on.
    usable_bytes: u64,
    /// What counted before.
    planned_bytes: u64,
}

/// Says that an appliance's drives hold for good what it reports, though that is less than half of
/// what its files are planned for: they move to others of its site. All other changes count by
/// themselves when they have lasted for five minutes.
#[utoipa::path(post, path = "/v1/appliances/{id}/usable", tag = "registry",
    responses((status = 200, body = AcceptedOut)))]
pub(crate) async fn accept_usable(
    State(control): Shared,
    Path(id): Path<String>,
) -> Result<(Extension<Said>, Json<AcceptedOut>), Problem> {
    let appliance: ApplianceId = named(&id)?;
    if !control.is_registered(&appliance) {
        return Err(no_appliance(&id));
    }
    let accepted = control.accept_usable(&appliance).await?;
    let Some((planned, reported)) = accepted else {
        let detail = format!(
            "appliance {id} has not reported for five minutes that its drives hold less than half \
             of what its files are planned for: there is nothing to accept"
        );
        return Err(Problem::new(StatusCode::CONFLICT, "nothing-to-accept", detail));
    };
    let said = Said(format!("usable {reported}, planned before {planned}"));
    let out = AcceptedOut { usable_bytes: reported.0, planned_bytes: planned.0 };
    Ok((Extension(said), Json(out)))
}

pub(super) fn site_out(site: &Site) -> SiteOut {
    let prefixes = site.prefixes.iter().map(ToString::to_string).collect();
    SiteOut { id: site.id.to_string(), prefixes, about: site.into() }
}

fn appliance_out(registered: &Registered, profiles: &Profiles, now: UnixSeconds) -> ApplianceOut {
    let Appliance { id, site, weight, addresses, .. } = &registered.appliance;
    ApplianceOut {
        about: (&registered.appliance).into(),
        abilities: abilities_out(&registered.appliance, profiles),
        id: id.to_string(),
        site: site.to_string(),
        weight: weight.value(),
        addresses: addresses.clone(),
        usable_bytes: registered.usable.map(|usable| usable.0),
        drain: drain_out(registered, now),
    }
}

/// A prefix, or an address that stands for itself alone. Bits beyond the prefix are cut off.
fn prefix(text: &str) -> Result<Prefix, Problem> {
    let address = || text.parse::<IpAddr>().map(Prefix::from);
    let prefix = text.parse::<Prefix>().or_else(|_| address()).map_err(|_| {
        let detail = format!("\"{text}\" is not a prefix: write for example \"10.0.0.0/8\"");
        Problem::bad_request(detail)
    })?;
    Ok(prefix.trunc())
}

pub(super) fn no_site(site: &str) -> Problem {
    Problem::not_found(format!("there is no site {site}: GET /v1/sites lists them"))
}

/// Prefixes of one site.
const PREFIXES_MAX: usize = 10_000;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::state::writer::tests::open;
    use director::wishes::{Rule, RuleKind, Where};
    use director::{Change, Event};
    use serde_json::{Value, json};
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn fields_of_a_site_that_are_put_at_once_are_all_there() {
        let (_directory, control) = open("").await;
        let fields = json!({"kind": "embedded", "place": "DE", "open": true,
            "bitrate_max_bps": 2_500_000, "time_zone": "Europe/Berlin", "uplink_bps": 1_000_000,
            "manifest_cluster": "de-north", "fill_cluster": "de"});
        let put = |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            put_site(State(control.clone()), Path("s1".to_owned()), body)
        };
        at_once(one_by_one(&fields, &json!({"prefixes": []})).map(put)).await;
        let Json(found) = site(State(control.clone()), Path("s1".to_owned())).await.unwrap();
        assert_has(&serde_json::to_value(found).unwrap(), &fields);
    }

    #[tokio::test]
    async fn fields_of_an_appliance_that_are_put_at_once_are_all_there() {
        let (_directory, control) = open("").await;
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        let fields = json!({"addresses": ["192.0.2.11"], "profile": "flash",
            "profile_name": "edge-100", "throughput_bps": 1_000_000,
            "capacity_bytes": 2_000_000_000, "fill_bps": 3_000_000,
            "tags": ["loan"]});
        let put = |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            put_appliance(State(control.clone()), Path("a1".to_owned()), body)
        };
        at_once(one_by_one(&fields, &json!({"site": "s1"})).map(put)).await;
        let Json(found) = appliance(State(control.clone()), Path("a1".to_owned())).await.unwrap();
        assert_has(&serde_json::to_value(found).unwrap(), &fields);
    }

    #[tokio::test]
    async fn a_site_that_is_put_after_it_was_deleted_has_nothing_of_the_one_before() {
        let (_directory, control) = open("").await;
        let put = |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            put_site(State(control.clone()), Path("s1".to_owned()), body)
        };
        put(json!({"prefixes": [], "place": "DE"})).await.map(drop).unwrap();
        let film = crate::state::demand::tests::version("film-1", 1);
        control.handle(Event::Changed(Change::Version(film))).await;
        let (film, at) = ("film-1".parse().unwrap(), Where::Site("s1".parse().unwrap()));
        let pin = Rule { kind: RuleKind::Pin, until: None };
        control.put_rule(&film, &at, pin).await.unwrap();
        let deleted = delete_site(State(control.clone()), Path("s1".to_owned()));
        let put = put(json!({"prefixes": [], "open": true}));
        // The writer's lock is had in the order in which it is asked for.
        let (deleted, put) = tokio::join!(biased; deleted, put);
        let (status, Extension(Said(said))) = deleted.unwrap();
        assert_eq!(
            (status, said.as_str()),
            (StatusCode::NO_CONTENT, "gone, with pins and bans of it: 1")
        );
        assert!(control.wishes().await.unwrap().rules.is_empty());
        let (_, Json(answered)) = put.unwrap();
        assert_eq!((answered.about.place.as_str(), answered.about.open), ("", true));
    }

    /// Each field by itself, beside what must be there.
    pub(crate) fn one_by_one(fields: &Value, base: &Value) -> impl Iterator<Item = Value> {
        fields.as_object().unwrap().iter().map(|(name, value)| {
            let mut body = base.clone();
            body[name] = value.clone();
            body
        })
    }

    pub(crate) async fn at_once<T: Send + 'static>(
        puts: impl Iterator<Item = impl Future<Output = Result<T, Problem>> + Send + 'static>,
    ) {
        for answer in puts.collect::<JoinSet<_>>().join_all().await {
            answer.map(drop).unwrap();
        }
    }

    pub(crate) fn assert_has(found: &Value, fields: &Value) {
        for (name, value) in fields.as_object().unwrap() {
            assert_eq!(found[name], *value, "{name} in {found}");
        }
    }

    #[tokio::test]
    async fn the_audit_line_of_a_site_names_its_limit_and_what_differs() {
        let (_directory, control) = open("").await;
        let put = async |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            let put = put_site(State(control.clone()), Path("s1".to_owned()), body);
            put.await.unwrap().0.0.0
        };
        assert_eq!(
            put(json!({"prefixes": ["192.0.2.0/24"], "bitrate_max_bps": 2_500_000})).await,
            "new, kind exchange, bitrate_max_bps 2500000, open false, time_zone UTC, prefixes \
             192.0.2.0/24"
        );
        assert_eq!(
            put(json!({"prefixes": ["10.0.0.0/8"], "time_zone": "Europe/Berlin", "uplink_bps":
                7_000_000, "manifest_cluster": "north", "fill_cluster": "de"}))
            .await,
            "kind exchange, bitrate_max_bps 2500000, fill_cluster none becomes de, \
             manifest_cluster none becomes north, time_zone UTC becomes Europe/Berlin, uplink_bps \
             none becomes 7000000, prefixes +10.0.0.0/8 -192.0.2.0/24"
        );
        let same = put(json!({"prefixes": ["10.0.0.0/8"]})).await;
        assert_eq!(same, "kind exchange, bitrate_max_bps 2500000");
    }

    #[tokio::test]
    async fn the_audit_line_of_an_appliance_has_what_differs() {
        let (_directory, control) = open("").await;
        control.set_site(Site::new("s1".parse().unwrap(), vec![])).await.unwrap();
        let put = async |body: Value| {
            let body = Json(serde_json::from_value(body).unwrap());
            let put = put_appliance(State(control.clone()), Path("a1".to_owned()), body);
            put.await.unwrap().0.0.0
        };
        let new = put(json!({"site": "s1"})).await;
        assert_eq!(new, "new, site s1, weight 1, addresses none");
        let about = json!({"site": "s1", "profile": "flash", "fill_bps": 3_000_000,
            "tags": ["loan", "rack-7"]});
        assert_eq!(
            put(about).await,
            "site s1, weight 1, addresses none, fill_bps none becomes 3000000, profile none \
             becomes flash, tags +loan +rack-7"
        );
        let tag = json!({"site": "s1", "weight": 2, "tags": ["rack-8", "loan"]});
        assert_eq!(
            put(tag).await,
            "site s1, weight 1 becomes 2, addresses none, tags +rack-8 -rack-7"
        );
    }
}

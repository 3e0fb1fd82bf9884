//! Settings of `nearcast-control`: a TOML file, then environment variables `CONTROL_SECTION_KEY`.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use director::share::Policy as Shares;
use identity::enrol::Address;
use model::id::SiteId;
use model::status::UNFELT_HEADROOM_PERMILLE;
use model::topology::Prefix;
use model::units::{BitsPerSecond, Bytes, Nanos};
use routes::filter::Longest;
use serde::{Deserialize, Serialize};
use settings::{ConfigError, Origins, Text, wrong};
use steering::turns::Pace;

use crate::buckets;
use crate::place::{DocumentsPlace, Place};

const SECOND: Nanos = Nanos::seconds(1);
const MINUTE: Nanos = Nanos::seconds(60);
const HOUR: Nanos = Nanos::seconds(3600);
const DAY: Nanos = Nanos::seconds(86_400);

/// Effective settings. Doc comments are the manual page.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    role: Role,
    /// Where desired state is: a directory, for a database in it, or
    /// `postgres://USER@HOST/DATABASE`. Needed.
    pub state: Text<Place>,
    /// Directory for the keys, and for a front's snapshot. That of `state`, unless said; needed
    /// with PostgreSQL.
    folder: Option<PathBuf>,
    /// `[[s3]]`: buckets whose objects appliances fetch by signed URLs. In the file only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub s3: Vec<buckets::Settings>,
    #[serde(default)]
    pub documents: Documents,
    front: Option<FrontConfig>,
    #[serde(default)]
    pub serve: Serve,
    #[serde(default)]
    pub fleet: Fleet,
    #[serde(default)]
    pub health: Health,
    #[serde(default)]
    pub playback: Playback,
    #[serde(default)]
    pub steering: Steering,
    #[serde(default)]
    pub ledger: Ledger,
    #[serde(default)]
    pub drain: Drain,
    #[serde(default)]
    pub demo: Demo,
    #[serde(default)]
    pub fill: Fill,
    #[serde(default)]
    pub routes: Routes,
    #[serde(skip)]
    origins: Origins,
}

/// `role` of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    /// The one that changes desired state. Answers players too.
    #[default]
    Writer,
    /// One of those that follow it.
    Front,
}

/// `[documents]`: the block hashes of versions, which are large and never change.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Documents {
    /// Where they are: a directory, `s3://BUCKET/PREFIX/` with the bucket in `[[s3]]`, or
    /// `database`. Two writers need one that both reach. Default: the directory `documents` beside
    /// an SQLite database; `database` with PostgreSQL.
    pub at: Option<Text<DocumentsPlace>>,
    /// A document that is not needed any more is kept for so long, and with it what an older backup
    /// of the database needs. 1 d to 90 d. Default `7 d`.
    pub keep: Text<Nanos>,
}

impl Default for Documents {
    fn default() -> Self {
        Self { at: None, keep: Text(Nanos(7 * DAY.0)) }
    }
}

/// `[front]`: needed for `role = "front"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FrontConfig {
    /// Its name in the fleet, by the rule for names of sites and appliances.
    pub name: Text<SiteId>,
    /// The writer's fleet address, `https://HOST:PORT`.
    pub writer: Text<Address>,
}

/// `[routes]`: files that say where clients are, read anew when they change, and what sites may
/// hear. Each process of the control plane has its own.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routes {
    /// A geofeed (RFC 8805): prefixes with country, region and city, to find the nearest site by.
    pub geofeed: Option<PathBuf>,
    /// Coverage zones, in the JSON of Apache Traffic Control: sites by name, with static prefixes
    /// beside those that they have, and where these are.
    pub coverage_zones: Option<PathBuf>,
    /// Longest prefix of IPv4 that a site may hear from routers. Longer ones lead no client,
    /// whatever an appliance's own agent lets in. Default 24.
    pub v4_longest: u8,
    /// The same of IPv6. Default 48.
    pub v6_longest: u8,
}

impl Default for Routes {
    fn default() -> Self {
        let Longest { v4, v6 } = Longest::USUAL;
        Self { geofeed: None, coverage_zones: None, v4_longest: v4, v6_longest: v6 }
    }
}

/// `[serve]`: the API, players and the pages.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Serve {
    /// One that other machines reach needs a certificate and a token with the role admin. Default
    /// `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// PEM file with the chain, its own certificate first, for TLS. Read anew when it changes.
    pub certificate: Option<PathBuf>,
    /// PEM file with its key.
    pub key: Option<PathBuf>,
    /// How players reach this process, if not by the name they asked for, as behind a reverse
    /// proxy: `https://control.example`.
    pub public_url: Option<Text<BaseUrl>>,
    /// Open connections. When all are taken, the one that has asked nothing for longest gives its
    /// place to the newcomer. Default 1000.
    pub connections_max: usize,
    /// Of these from one address of version 4, or from one /64 of version 6. Default 100.
    pub connections_per_address_max: usize,
    /// Address ranges of reverse proxies. What they say of their clients is believed: `Forwarded`
    /// (RFC 7239) or `X-Forwarded-For`. A request that comes through one is never taken for one of
    /// this machine. Default none.
    #[serde(deserialize_with = "settings::prefixes")]
    pub trusted_proxies: Vec<Prefix>,
    /// Connections of trusted proxies begin with a PROXY header, version 1 or 2, and say there who
    /// their client is. Default false.
    pub proxy_protocol: bool,
    /// Requests at a time; more are answered 503. Default 256.
    pub requests_max: usize,
}

impl Default for Serve {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            certificate: None,
            key: None,
            public_url: None,
            connections_max: 1000,
            connections_per_address_max: 100,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            requests_max: 256,
        }
    }
}

/// `[fleet]`: appliances and fronts.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fleet {
    /// Always TLS 1.3 with the authority's certificates, so it may be any address. Default
    /// `127.0.0.1:8081`.
    pub listen: SocketAddr,
    /// Open connections of members. Default 5000: one or two each.
    pub connections_max: usize,
    /// Of these from one address before they have shown a certificate, and of one member after it.
    /// Default 500: whole racks may stand behind one address.
    pub connections_per_address_max: usize,
    /// How long an identity is good before it is renewed, which begins at two thirds of it. Default
    /// `24 h`: short, because siblings only learn of a revocation with the next trust document; a
    /// machine that is off for longer enrols again.
    pub certificate_lifetime: Text<Nanos>,
    /// How long a one-time code is good. Default `1 h`.
    pub code_lifetime: Text<Nanos>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            connections_max: 5000,
            connections_per_address_max: 500,
            certificate_lifetime: Text(DAY),
            code_lifetime: Text(HOUR),
        }
    }
}

/// `[health]` of appliances.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// An appliance whose last report is older is not offered to players. Default `1500 ms`: with
    /// reports twice a second, three were missed.
    pub stale_after: Text<Nanos>,
    /// When its last report is older, ask whether anything answers at its address; if not, it is
    /// stale at once. Default `800 ms`.
    pub probe_after: Text<Nanos>,
    /// The share of its sessions that an appliance takes rises from nothing to the whole in so long
    /// after it was lost or overloaded, as long as its load lets it; until then the others of its
    /// sessions go elsewhere first. Default `20 min`.
    pub recovery: Text<Nanos>,
    /// Above this load, in percent of what it is shortest of, an appliance's share is cut at once.
    /// Default 90.
    pub share_cut_above: u32,
    /// Below this load, its share rises. At least 5 below `share_cut_above`, lest shares swing, and
    /// at least 55: a drive whose reads are in time tells 50.
    /// Default 80.
    pub share_rises_below: u32,
    /// Sessions of one title prefer the same appliance of a site, until its load is more than so
    /// many percent of the mean of those of the site: 115 to 400, or 0 if sessions are spread
    /// whatever their titles. Default 125.
    pub titles_load_max: u32,
    /// How often appliances are told to report. Default `500 ms`.
    pub report_interval: Text<Nanos>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            stale_after: Text(Nanos::millis(1500)),
            probe_after: Text(Nanos::millis(800)),
            recovery: Text(Nanos::seconds(1200)),
            share_cut_above: 90,
            share_rises_below: 80,
            titles_load_max: 125,
            report_interval: Text(Nanos::millis(500)),
        }
    }
}

impl Health {
    /// The order of times, and of loads.
    fn check(&self) -> Result<(), ConfigError> {
        let intervals = [self.report_interval, self.probe_after, self.stale_after];
        if !intervals.is_sorted_by_key(|interval| interval.0) {
            let order = "use report_interval <= probe_after <= stale_after";
            return Err(wrong("health", "stale_after", order));
        }
        let Self { share_cut_above: cut, share_rises_below: rises, .. } = *self;
        if !(SHARES_RISE_MIN + 5..=98).contains(&cut) {
            let remedy = format!("use {} to 98 (percent)", SHARES_RISE_MIN + 5);
            return Err(wrong("health", "share_cut_above", remedy));
        }
        if !(SHARES_RISE_MIN..=cut - 5).contains(&rises) {
            let remedy =
                format!("use {SHARES_RISE_MIN} to {} (percent), 5 below share_cut_above", cut - 5);
            return Err(wrong("health", "share_rises_below", remedy));
        }
        if self.titles_load_max != 0 && !(115..=400).contains(&self.titles_load_max) {
            let remedy = "use 115 to 400 (percent of the mean), or 0 to spread all";
            return Err(wrong("health", "titles_load_max", remedy));
        }
        Ok(())
    }
}

/// `[playback]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Playback {
    /// How long a playback's media URLs are good: longer than the longest film with its pauses.
    /// Default `4 h`.
    pub token_lifetime: Text<Nanos>,
    /// How soon a player has to begin with what `POST /v1/playbacks` gave to its service. Default
    /// `15 min`.
    pub grant_lifetime: Text<Nanos>,
}

impl Default for Playback {
    fn default() -> Self {
        let (token_lifetime, grant_lifetime) =
            (Text(Nanos::seconds(4 * 3600)), Text(Nanos::seconds(900)));
        Self { token_lifetime, grant_lifetime }
    }
}

/// `[steering]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Steering {
    /// How soon players ask again, or up to a fifth later. Default `10 s`.
    pub ttl: Text<Nanos>,
    /// Answers per second of this process, of all players together. More players than ask so often
    /// get a longer TTL, up to 5 min. Default 2000: 20,000 players, at less than a core.
    pub rate_max: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self { ttl: Text(Nanos::seconds(10)), rate_max: 2000 }
    }
}

/// `[ledger]`: decisions as they were made, for `nearcast replay`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ledger {
    /// Decisions of one session in so many are kept, by a hash of the session: of the same ones in
    /// every process. 0 for none. Default 1, all.
    pub one_in: u32,
    /// Files that are kept, 2 to 10000. Default 16.
    pub files: usize,
    /// A file that is as long as this is ended, and another one begins. Default `16 MiB`.
    pub file_size: Text<Bytes>,
    /// Where they are. Default `ledger` in `folder`.
    pub folder: Option<PathBuf>,
    /// Where each file is copied to once it has ended: a directory that exists, or
    /// `s3://BUCKET/PREFIX/` with the bucket in `[[s3]]`. Several processes may have the same.
    /// Default: nowhere.
    pub archive: Option<Text<DocumentsPlace>>,
    /// With an archive, a file that is as old as this is ended, too. 1 min to 30 d. Default `1 d`.
    pub file_age: Text<Nanos>,
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            one_in: 1,
            files: 16,
            file_size: Text(Bytes::mib(16)),
            folder: None,
            archive: None,
            file_age: Text(DAY),
        }
    }
}

impl Ledger {
    fn check(&self) -> Result<(), ConfigError> {
        if !(2..=10_000).contains(&self.files) {
            return Err(wrong("ledger", "files", "use 2 to 10000"));
        }
        if !(Bytes::kib(64)..=Bytes::mib(32)).contains(&self.file_size.0) {
            return Err(wrong("ledger", "file_size", "use 64 KiB to 32 MiB"));
        }
        if self.archive.as_ref().is_some_and(|archive| archive.0 == DocumentsPlace::Database) {
            let remedy = "name a directory by its whole path, or s3://BUCKET/PREFIX/";
            return Err(wrong("ledger", "archive", remedy));
        }
        Ok(())
    }
}

/// `[drain]`: when an appliance that drains counts as drained.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Drain {
    /// Less egress than this is next to nothing. Default `1 Mb/s`.
    pub quiet_egress: Text<BitsPerSecond>,
    /// For so long, while players have a TTL to leave or longer. Default `10 s`.
    pub quiet: Text<Nanos>,
    /// It counts as drained after this, whatever it sends. Default `10 min`.
    pub bound: Text<Nanos>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            quiet_egress: Text(BitsPerSecond(1_000_000)),
            quiet: Text(Nanos::seconds(10)),
            bound: Text(Nanos::seconds(600)),
        }
    }
}

/// `[demo]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Demo {
    /// Where the demo listens for the page's fault buttons. Set by the demo only.
    pub controls: Option<Text<BaseUrl>>,
}

/// `[fill]`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fill {
    /// Appliances may fetch from siblings of other sites, before they turn to an origin. Default
    /// true.
    pub other_sites: bool,
}

impl Default for Fill {
    fn default() -> Self {
        Self { other_sites: true }
    }
}

/// An `http` or `https` URL without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl Config {
    /// Reads `path`, then the environment.
    pub fn load(
        path: &Path,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let (config, origins) = settings::load(path, "CONTROL_", environment)?;
        let config = Self { origins, ..config };
        config.check()?;
        Ok(config)
    }

    /// Each effective value with its origin, as TOML with comments.
    pub fn describe(&self) -> String {
        self.origins.describe(self)
    }

    /// The directory for what is this process's alone.
    pub fn folder(&self) -> &Path {
        match (&self.folder, &self.state.0) {
            (Some(folder), _) | (None, Place::Folder(folder)) => folder,
            (None, Place::Postgres(_)) => unreachable!("it is checked when it is read"),
        }
    }

    /// Where documents are.
    pub(crate) fn documents_place(&self) -> DocumentsPlace {
        match (&self.documents.at, &self.state.0) {
            (Some(place), _) => place.0.clone(),
            (None, Place::Folder(folder)) => DocumentsPlace::Folder(folder.join("documents")),
            (None, Place::Postgres(_)) => DocumentsPlace::Database,
        }
    }

    /// The files of the chain and its key, for TLS at `serve.listen`.
    pub(crate) fn certificate(&self) -> Option<[PathBuf; 2]> {
        Some([self.serve.certificate.clone()?, self.serve.key.clone()?])
    }

    /// The part of a front; none in a writer.
    pub fn front(&self) -> Option<&FrontConfig> {
        self.front.as_ref().filter(|_| self.role == Role::Front)
    }

    /// The values fit together.
    fn check(&self) -> Result<(), ConfigError> {
        let Self { serve, fleet, health, playback, .. } = self;
        if self.role == Role::Front && self.front.is_none() {
            return Err(wrong("front", "name", "a front needs [front] with name and writer"));
        }
        self.check_place()?;
        if serve.certificate.is_some() != serve.key.is_some() {
            return Err(wrong("serve", "key", "give certificate and key, or none of them"));
        }
        if !serve.listen.ip().is_loopback() && serve.certificate.is_none() {
            let remedy = "without TLS only loopback addresses (127.0.0.0/8, [::1]) may be listened \
                          on: set [serve] certificate and key, or put a reverse proxy in front";
            return Err(wrong("serve", "listen", remedy));
        }
        if serve.proxy_protocol && serve.trusted_proxies.is_empty() {
            let remedy = "name the proxies that speak it in [serve] trusted_proxies";
            return Err(wrong("serve", "proxy_protocol", remedy));
        }
        for (section, key, count) in [
            ("serve", "connections_max", serve.connections_max),
            ("serve", "connections_per_address_max", serve.connections_per_address_max),
            ("serve", "requests_max", serve.requests_max),
            ("steering", "rate_max", usize::try_from(self.steering.rate_max).unwrap_or(usize::MAX)),
            ("fleet", "connections_max", fleet.connections_max),
            ("fleet", "connections_per_address_max", fleet.connections_per_address_max),
        ] {
            if !(1..=100_000).contains(&count) {
                return Err(wrong(section, key, "use 1 to 100000"));
            }
        }
        self.ledger.check()?;
        let Routes { v4_longest, v6_longest, .. } = self.routes;
        for (key, longest, bits) in
            [("v4_longest", v4_longest, 32), ("v6_longest", v6_longest, 128)]
        {
            if !(1..=bits).contains(&longest) {
                return Err(wrong("routes", key, format!("use 1 to {bits}")));
            }
        }
        health.check()?;
        let days = |count: u64| Nanos::seconds(count * 86_400);
        for (section, key, span, least, most) in [
            ("health", "report_interval", health.report_interval, Nanos::millis(100), MINUTE),
            ("health", "stale_after", health.stale_after, Nanos::millis(100), MINUTE),
            ("health", "recovery", health.recovery, SECOND, HOUR),
            (
                "fleet",
                "certificate_lifetime",
                fleet.certificate_lifetime,
                Nanos::seconds(600),
                days(90),
            ),
            ("fleet", "code_lifetime", fleet.code_lifetime, MINUTE, days(7)),
            ("steering", "ttl", self.steering.ttl, SECOND, Nanos::seconds(300)),
            ("playback", "token_lifetime", playback.token_lifetime, Nanos::seconds(10), days(30)),
            ("playback", "grant_lifetime", playback.grant_lifetime, Nanos::seconds(10), DAY),
            ("documents", "keep", self.documents.keep, DAY, days(90)),
            ("ledger", "file_age", self.ledger.file_age, MINUTE, days(30)),
        ] {
            if !(least..=most).contains(&span.0) {
                return Err(wrong(section, key, format!("use {least} to {most}")));
            }
        }
        Ok(())
    }

    fn check_place(&self) -> Result<(), ConfigError> {
        if let Place::Postgres(_) = self.state.0 {
            if self.role == Role::Front {
                let remedy = "a front has no database: give it a directory";
                return Err(wrong("", "state", remedy));
            }
            if self.folder.is_none() {
                let remedy = "with PostgreSQL, say which directory has the keys of this process";
                return Err(wrong("", "folder", remedy));
            }
        }
        Ok(())
    }

    /// Browsers reach this process by TLS, its own or that of a proxy in front.
    pub fn is_secure(&self) -> bool {
        let public = self.serve.public_url.as_ref();
        let is_https = |url: &Text<BaseUrl>| url.0.as_str().starts_with("https:");
        self.serve.certificate.is_some() || public.is_some_and(is_https)
    }

    /// How many pathways players get.
    pub(crate) fn lists(&self) -> steering::Config {
        let (pathways_min, pathways_max) = (PATHWAYS_MIN, PATHWAYS_MAX);
        steering::Config { pathways_min, pathways_max, explains: false }
    }

    /// How soon players ask again.
    pub(crate) fn pace(&self) -> Pace {
        Pace { ttl: self.steering.ttl.0, rate_max: self.steering.rate_max }
    }

    /// How appliances' shares move. Players ask again after the TTL and up to a fifth later, and
    /// the load follows some seconds after.
    fn shares(&self) -> Shares {
        let settle = Nanos(self.steering.ttl.0.0 * 3 / 2 + SHARES_SETTLE_MIN.0);
        Shares {
            full_after: self.health.recovery.0,
            settle,
            rises_below: u64::from(self.health.share_rises_below) * 10,
            cut_above: u64::from(self.health.share_cut_above) * 10,
        }
    }

    /// What the director wants to know.
    pub(crate) fn director(&self) -> director::Config {
        director::Config {
            stale_after: self.health.stale_after.0,
            probe_after: self.health.probe_after.0,
            shares: self.shares(),
            titles_load_max: u64::from(self.health.titles_load_max) * 10,
            report_interval: self.health.report_interval.0,
            objects_held_max: OBJECTS_HELD_MAX,
            notices_max: 100,
            tokens_max: Nanos(self.playback.token_lifetime.0.0 + TOKEN_LEEWAY_MAX.0),
            withdrawals_max: WITHDRAWALS_MAX,
            pictures_max: PICTURES_MAX,
            routes_longest: Longest { v4: self.routes.v4_longest, v6: self.routes.v6_longest },
            rotation_min: ROTATION_MIN,
            rotation_max: ROTATION_MAX,
            usable_settles: USABLE_SETTLES,
            usable_replans: USABLE_REPLANS,
            drain: director::drain::Config {
                // A TTL is up to a fifth longer.
                leave: Nanos(self.steering.ttl.0.0 + self.steering.ttl.0.0 / 5),
                quiet_egress: self.drain.quiet_egress.0,
                quiet: self.drain.quiet.0,
                bound: self.drain.bound.0,
            },
            sources: director::sources::Config {
                siblings_max: SIBLINGS_MAX,
                elsewhere: self.fill.other_sites,
            },
        }
    }
}

impl Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl BaseUrl {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its host with the port, if it has one.
    pub fn authority(&self) -> &str {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.split('/').next().unwrap_or("")
    }
}

impl FromStr for BaseUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || {
            format!("\"{text}\" is not a base URL: write for example \"https://a1.example:8443\"")
        };
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let (authority, path) =
            rest.map(|rest| rest.split_once('/').unwrap_or((rest, ""))).ok_or_else(refused)?;
        let visible = |c: char| c.is_ascii_alphanumeric() || "-._~:[]/%".contains(c);
        let good = !authority.is_empty()
            && text.len() <= 512
            && rest.is_some_and(|rest| rest.chars().all(visible));
        if good && !text.ends_with('/') && !path.contains("//") {
            Ok(Self(text.to_owned()))
        } else {
            Err(refused())
        }
    }
}

/// Most that an appliance forgives a token after its expiry (its `serve.token_leeway`).
const TOKEN_LEEWAY_MAX: Nanos = Nanos::seconds(3600);

/// In each 100 ms, as much as 80 appliances tell at the usual interval; the rest waits so long at
/// most. At full size a picture is a millisecond of copies.
pub const PICTURES_MAX: u32 = 16;

/// Titles are taken down a few times a day; with 4,096 appliances that is 100 MB.
const WITHDRAWALS_MAX: usize = 1000;

/// Objects of one appliance that are kept track of: each takes about 100 bytes of memory here.
const OBJECTS_HELD_MAX: usize = 500_000;

/// Fronts ask for snapshots several times in this time: they know the next signing key then.
const ROTATION_MIN: Nanos = Nanos::seconds(5);
/// An appliance that was away for a day renews its certificate when it is back, and learns with it
/// which keys sign.
const ROTATION_MAX: Nanos = Nanos::seconds(86_400);

/// A drive that is changed within this moves no file; one that is lost does, after it.
const USABLE_SETTLES: Nanos = Nanos::seconds(300);

/// Whatever appliances report, the fleet is placed anew for it at most so often. Arbitrary, and
/// short beside `USABLE_SETTLES`.
const USABLE_REPLANS: Nanos = Nanos::seconds(10);

/// Where an appliance may fetch one object from: eight URLs, as the wire allows.
const SIBLINGS_MAX: usize = 4;

/// An appliance's report and the smoothing of its load take so long beside the TTL of steering.
const SHARES_SETTLE_MIN: Nanos = Nanos::seconds(5);

/// In percent: shares rise where the drives' reads are in time.
const SHARES_RISE_MIN: u32 = (1000 - UNFELT_HEADROOM_PERMILLE) / 10 + 5;

/// Two, so that a player has somewhere to go; four, because each costs a copy of every line.
const PATHWAYS_MIN: usize = 2;
const PATHWAYS_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_only_a_state_directory_is_enough() {
        let text = load("state = \"/var/lib/nearcast\"", &[]).unwrap().describe();
        for line in [
            "role = \"writer\" ",
            "state = \"/var/lib/nearcast\" ",
            "\n[serve]\nlisten = \"127.0.0.1:8080\" ",
            "trusted_proxies = [] ",
            "\n[fleet]\nlisten = \"127.0.0.1:8081\" ",
            "certificate_lifetime = \"1 d\" ",
            "stale_after = \"1500 ms\"                  # default\n",
            "\n[steering]\nttl = \"10 s\" ",
            "other_sites = true ",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn the_environment_comes_after_the_file_and_says_so() {
        let text = "state = \"s\"\n[steering]\nttl = \"20 s\"\n[serve]\nconnections_max = 7";
        let config = load(text, &[("CONTROL_STEERING_TTL", "5 s")]).unwrap();
        assert_eq!(config.steering.ttl.0, Nanos::seconds(5));
        assert_eq!(config.serve.connections_max, 7);
        let printed = config.describe();
        assert!(
            printed.contains("ttl = \"5 s\"                              # CONTROL_STEERING_TTL")
        );
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let variables = [
            ("CONTROL_SERVE_PUBLIC_URL", "https://c.example"),
            ("CONTROL_FILL_OTHER_SITES", "false"),
        ];
        let config = load("state = \"s\"", &variables).unwrap();
        let again = load(&config.describe(), &[]).unwrap();
        assert_eq!(again.serve.public_url, config.serve.public_url);
        assert!(!again.fill.other_sites);
        let list = "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]\nproxy_protocol = true";
        let config = load(&format!("state = \"s\"\n[serve]\n{list}"), &[]).unwrap();
        let proxies = ["10.0.0.0/8", "::1/128"].map(|prefix| prefix.parse().unwrap());
        for config in [load(&config.describe(), &[]).unwrap(), config] {
            let Serve { trusted_proxies, proxy_protocol, .. } = config.serve;
            assert_eq!((trusted_proxies, proxy_protocol), (proxies.into(), true));
        }
    }

    #[test]
    fn mistakes_are_refused_with_what_to_do() {
        refused("", "missing field `state`");
        refused("state = \"s\"\nrole = \"king\"", "expected `writer` or `front`");
        refused("state = \"s\"\nrole = \"front\"", "a front needs [front]");
        refused(
            "state = \"s\"\nrole = \"front\"\n[front]\nname = \"f1\"",
            "missing field `writer`",
        );
        refused("role = \"front\"\n[front]\nname = \"../f\"", "is not a name");
        let writer = "[front]\nname = \"f1\"\nwriter = \"http://c:1\"";
        refused(&format!("role = \"front\"\n{writer}"), "https://HOST:PORT");
        let url = "postgres://c:secret@db/nearcast";
        refused(&format!("state = {url:?}"), "folder: with PostgreSQL");
        let front = format!("state = {url:?}\nrole = \"front\"\n[front]\nname = \"f1\"");
        refused(&format!("{front}\nwriter = \"https://c:1\""), "a front has no database");
        let documents = "state = \"s\"\n[documents]";
        refused(&format!("{documents}\nat = \"s3://docs\""), "with a slash at the end");
        refused(&format!("{documents}\nkeep = \"1 h\""), "use 1 d to 90 d");
        let ledger = "state = \"s\"\n[ledger]";
        refused(&format!("{ledger}\narchive = \"database\""), "name a directory");
        refused(&format!("{ledger}\narchive = \"s3://docs\""), "with a slash at the end");
        refused(&format!("{ledger}\nfile_age = \"1 s\""), "use 1 min to 30 d");
        refused("state = \"s\"\nlisten = \"x\"", "unknown field `listen`, expected one of `role`");
        refused("state = \"s\"\n[steering]\nttl = \"10\"", "needs a unit");
        refused("state = \"s\"\n[steering]\nttl = \"10 min\"", "use 1 s to 5 min");
        refused("state = \"s\"\n[serve]\nlisten = \"0.0.0.0:8080\"", "without TLS only loopback");
        refused("state = \"s\"\n[serve]\ncertificate = \"c.pem\"", "give certificate and key");
        refused("state = \"s\"\n[serve]\nproxy_protocol = true", "[serve] trusted_proxies");
        let proxies = "state = \"s\"\n[serve]\ntrusted_proxies";
        refused(&format!("{proxies} = [\"10.0.0.0/33\"]"), "is no range of addresses");
        refused(&format!("{proxies} = [\"nginx\"]"), "is no range of addresses");
        refused("state = \"s\"\n[serve]\nconnections_per_address_max = 0", "use 1 to 100000");
        refused("state = \"s\"\n[playback]\ntoken_lifetime = \"9 s\"", "use 10 s to 30 d");
        refused("state = \"s\"\n[routes]\nv4_longest = 33", "use 1 to 32");
        refused("state = \"s\"\n[playback]\ngrant_lifetime = \"2 d\"", "use 10 s to 1 d");
        refused("state = \"s\"\n[fleet]\ncode_lifetime = \"1 s\"", "use 1 min to 7 d");
        refused("state = \"s\"\n[fleet]\ncertificate_lifetime = \"1 s\"", "10 min to 90 d");
        refused("state = \"s\"\n[health]\nshare_cut_above = 99", "use 60 to 98");
        refused("state = \"s\"\n[health]\nshare_rises_below = 86", "use 55 to 85");
        refused("state = \"s\"\n[health]\nshare_rises_below = 50", "use 55 to 85");
        refused("state = \"s\"\n[health]\ntitles_load_max = 110", "use 115 to 400");
        refused("state = \"s\"\n[health]\nstale_after = \"200 ms\"", "probe_after <= stale_after");
        refused("state = \"s\"\n[serve]\npublic_url = \"https://c.example/\"", "is not a base URL");
        refused("state = \"s\"\n[serve]\npublic_url = \"https://c\\\"x\"", "is not a base URL");
    }

    fn refused(text: &str, part: &str) {
        let error = load(text, &[]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }

    fn load(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.toml");
        std::fs::write(&path, text).unwrap();
        let pairs = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Config::load(&path, pairs)
    }
}

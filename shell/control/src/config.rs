//! Settings of `nearcast-control`: a TOML file, then environment variables.
//!
//! Every setting `a.b` can be overridden by the variable `CONTROL_A_B`, `[[s3]]` apart. Unknown
//! keys are refused. `nearcast-control config` prints each effective value and where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use identity::enrol::Address;
use model::topology::Prefix;
use model::units::Nanos;
use serde::Deserialize;

use crate::buckets;

/// Effective settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// `role`: `writer`, which decides, or `front`. Default `writer`.
    pub role: Role,
    /// `state`: directory for the database and the keys. Needed.
    pub state: PathBuf,
    /// `serve.listen`: address of the API, players and the pages. One that other machines reach
    /// needs a certificate and a token with the role admin. Default `127.0.0.1:8080`.
    pub listen: SocketAddr,
    /// `serve.certificate` and `serve.key`: PEM files, for TLS at `serve.listen`. Read anew when
    /// they change.
    pub certificate: Option<CertificateFiles>,
    /// `serve.public_url`: how players reach this process, if not by the name they asked for, as
    /// behind a reverse proxy: `https://control.example`.
    pub public_url: Option<BaseUrl>,
    /// `serve.connections_max`: open connections. When all are taken, the one that has asked
    /// nothing for longest gives its place to the newcomer. Default 1000.
    pub connections_max: usize,
    /// `serve.connections_per_address_max`: of these from one address of version 4, or from one
    /// /64 of version 6. Default 100.
    pub connections_per_address_max: usize,
    /// `serve.trusted_proxies`: address ranges of reverse proxies. What they say of their clients
    /// is believed: `Forwarded` (RFC 7239) or `X-Forwarded-For`. A request that comes through one
    /// is never taken for one of this machine. Default none.
    pub trusted_proxies: Vec<Prefix>,
    /// `serve.proxy_protocol`: connections of trusted proxies begin with a PROXY header, version 1
    /// or 2, and say there who their client is. Default false.
    pub proxy_protocol: bool,
    /// `serve.requests_max`: requests at a time; more are answered 503. Default 256.
    pub requests_max: usize,
    /// `fleet.listen`: address for appliances and fronts. Always TLS 1.3 with the authority's
    /// certificates, so it may be any address. Default `127.0.0.1:8081`.
    pub fleet_listen: SocketAddr,
    /// `fleet.connections_max`: open connections of members. Default 5000: one or two each.
    pub fleet_connections_max: usize,
    /// `fleet.connections_per_address_max`: of these from one address, before they have shown a
    /// certificate. Default 500: whole racks may stand behind one address.
    pub fleet_connections_per_address_max: usize,
    /// `fleet.certificate_lifetime`: how long an identity is good before it is renewed, which
    /// begins at two thirds of it. Default `24 h`: short, because siblings only learn of a
    /// revocation with their next manifest; a machine that is off for longer enrols again.
    pub certificate_lifetime: Nanos,
    /// `fleet.code_lifetime`: how long a one-time code is good. Default `1 h`.
    pub code_lifetime: Nanos,
    /// `health.stale_after`: an appliance whose last report is older is not offered to players.
    /// Default `1500 ms`: with reports twice a second, three were missed.
    pub stale_after: Nanos,
    /// `health.probe_after`: when its last report is older, ask whether anything answers at its
    /// address; if not, it is stale at once. Default `800 ms`.
    pub probe_after: Nanos,
    /// `health.recovery`: an appliance that was lost is offered last until it has been healthy for
    /// so long, lest players are sent back into a failing one. Default `30 s`.
    pub recovery: Nanos,
    /// `health.report_interval`: how often appliances are told to report. Default `500 ms`.
    pub report_interval: Nanos,
    /// `playback.token_lifetime`: how long a playback's media URLs are good: longer than the
    /// longest film with its pauses. Default `4 h`.
    pub token_lifetime: Nanos,
    /// `playback.grant_lifetime`: how soon a player has to begin with what `POST /v1/playbacks`
    /// gave to its service. Default `15 min`.
    pub grant_lifetime: Nanos,
    /// `steering.ttl`: how soon players ask again. Default `10 s`.
    pub steering_ttl: Nanos,
    /// `demo.controls`: where the demo listens for the page's fault buttons. Set by the demo only.
    pub demo_controls: Option<BaseUrl>,
    /// `fill.other_sites`: appliances may fetch from siblings of other sites, before they turn to
    /// an origin. Default true.
    pub fill_other_sites: bool,
    /// `[[s3]]`: buckets whose objects appliances fetch by signed URLs. In the file only.
    pub s3: Vec<buckets::Settings>,
    rows: Vec<Row>,
}

/// Where a certificate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain, its own first, in PEM.
    pub chain: PathBuf,
    pub key: PathBuf,
}

/// What this process is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that changes desired state. Answers players too.
    Writer,
    /// One of those that follow it.
    Front(FrontConfig),
}

/// Of a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontConfig {
    /// `front.name`: its name in the fleet.
    pub name: String,
    /// `front.writer`: the writer's fleet address, `https://HOST:PORT`.
    pub writer: Address,
}

/// An `http` or `https` URL without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Default,
    File,
    Environment(String),
}

#[derive(Clone, Debug)]
struct Row {
    key: &'static str,
    value: Option<String>,
    origin: Origin,
}

/// Why the settings were refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    #[error("{path}: {error}")]
    Toml { path: PathBuf, error: toml::de::Error },
    #[error("{key} (from {origin}): {reason}")]
    Value { key: &'static str, origin: String, reason: String },
    #[error("{path}: there is no setting {key}: the settings are {known}, and [[s3]]")]
    Unknown { path: PathBuf, key: String, known: String },
    #[error("{0} is needed: set it in the file")]
    Missing(&'static str),
}

/// The part of the file that is more than settings by their names.
#[derive(Default, Deserialize)]
struct Buckets {
    #[serde(default)]
    s3: Vec<buckets::Settings>,
}

impl Config {
    /// Reads `path`, then the environment through `variable`.
    pub fn load(
        path: &Path,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
        let toml = |error| ConfigError::Toml { path: path.to_owned(), error };
        let Buckets { s3 } = toml::from_str(&text).map_err(toml)?;
        let file = flat(toml::from_str(&text).map_err(toml)?);
        let mut pick = Picker { variable, file, rows: Vec::new() };
        let config = Self {
            role: role(&mut pick)?,
            state: pick.needed("state")?,
            listen: pick.value("serve.listen", "127.0.0.1:8080")?,
            certificate: certificate(&mut pick)?,
            public_url: pick.optional("serve.public_url")?,
            connections_max: pick.value("serve.connections_max", "1000")?,
            connections_per_address_max: pick.value("serve.connections_per_address_max", "100")?,
            requests_max: pick.value("serve.requests_max", "256")?,
            trusted_proxies: pick.value::<Prefixes>("serve.trusted_proxies", "")?.0,
            proxy_protocol: pick.value("serve.proxy_protocol", "false")?,
            fleet_listen: pick.value("fleet.listen", "127.0.0.1:8081")?,
            fleet_connections_max: pick.value("fleet.connections_max", "5000")?,
            fleet_connections_per_address_max: pick
                .value("fleet.connections_per_address_max", "500")?,
            certificate_lifetime: pick.value("fleet.certificate_lifetime", "24 h")?,
            code_lifetime: pick.value("fleet.code_lifetime", "1 h")?,
            stale_after: pick.value("health.stale_after", "1500 ms")?,
            probe_after: pick.value("health.probe_after", "800 ms")?,
            recovery: pick.value("health.recovery", "30 s")?,
            report_interval: pick.value("health.report_interval", "500 ms")?,
            token_lifetime: pick.value("playback.token_lifetime", "4 h")?,
            grant_lifetime: pick.value("playback.grant_lifetime", "15 min")?,
            steering_ttl: pick.value("steering.ttl", "10 s")?,
            demo_controls: pick.optional("demo.controls")?,
            fill_other_sites: pick.value("fill.other_sites", "true")?,
            s3,
            rows: Vec::new(),
        };
        if let Some(key) = pick.file.into_keys().next() {
            let known = pick.rows.iter().map(|row| row.key).collect::<Vec<_>>().join(", ");
            return Err(ConfigError::Unknown { path: path.to_owned(), key, known });
        }
        let config = Self { rows: pick.rows, ..config };
        config.check()?;
        Ok(config)
    }

    /// The values fit together.
    fn check(&self) -> Result<(), ConfigError> {
        let within = |key, good: bool, reason: &str| {
            if good { Ok(()) } else { Err(self.refused(key, reason)) }
        };
        within(
            "serve.listen",
            self.listen.ip().is_loopback() || self.certificate.is_some(),
            "without TLS only loopback addresses (127.0.0.0/8, [::1]) may be listened on: set \
             [serve] certificate and key, or put a reverse proxy in front",
        )?;
        let (second, day) = (Nanos::seconds(1), Nanos::seconds(86_400));
        let counts = [
            ("serve.connections_max", self.connections_max),
            ("serve.connections_per_address_max", self.connections_per_address_max),
            ("serve.requests_max", self.requests_max),
            ("fleet.connections_max", self.fleet_connections_max),
            ("fleet.connections_per_address_max", self.fleet_connections_per_address_max),
        ];
        for (key, count) in counts {
            within(key, (1..=100_000).contains(&count), "use 1 to 100000")?;
        }
        within(
            "serve.proxy_protocol",
            !self.proxy_protocol || !self.trusted_proxies.is_empty(),
            "name the proxies that speak it in [serve] trusted_proxies",
        )?;
        let intervals = [
            ("health.report_interval", self.report_interval),
            ("health.probe_after", self.probe_after),
            ("health.stale_after", self.stale_after),
        ];
        for (key, interval) in intervals {
            let good = (Nanos::millis(100)..=Nanos::seconds(60)).contains(&interval);
            within(key, good, "use 100 ms to 60 s")?;
        }
        let grows = intervals.is_sorted_by_key(|(_, interval)| *interval);
        within("health.stale_after", grows, "use report_interval <= probe_after <= stale_after")?;
        let hours = |count: u64| Nanos::seconds(count * 3600);
        let good = (Nanos::seconds(600)..=hours(90 * 24)).contains(&self.certificate_lifetime);
        within("fleet.certificate_lifetime", good, "use 10 min to 90 d")?;
        let good = (Nanos::seconds(60)..=hours(7 * 24)).contains(&self.code_lifetime);
        within("fleet.code_lifetime", good, "use 1 min to 7 d")?;
        let recovery = (second..=Nanos::seconds(3600)).contains(&self.recovery);
        within("health.recovery", recovery, "use 1 s to 3600 s")?;
        let ttl = (second..=Nanos::seconds(300)).contains(&self.steering_ttl);
        within("steering.ttl", ttl, "use 1 s to 300 s")?;
        let good = (Nanos::seconds(10)..=Nanos(30 * day.0)).contains(&self.token_lifetime);
        within("playback.token_lifetime", good, "use 10 s to 30 d")?;
        let good = (Nanos::seconds(10)..=day).contains(&self.grant_lifetime);
        within("playback.grant_lifetime", good, "use 10 s to 24 h")
    }

    /// Browsers reach this process by TLS, its own or that of a proxy in front.
    pub fn is_secure(&self) -> bool {
        let public = self.public_url.as_ref();
        self.certificate.is_some() || public.is_some_and(|url| url.as_str().starts_with("https:"))
    }

    /// What the director wants to know.
    pub(crate) fn director(&self) -> director::Config {
        director::Config {
            stale_after: self.stale_after,
            probe_after: self.probe_after,
            recovery: self.recovery,
            report_interval: self.report_interval,
            objects_held_max: OBJECTS_HELD_MAX,
            placement_lines_max: 200,
            notices_max: 100,
            tokens_max: Nanos(self.token_lifetime.0 + TOKEN_LEEWAY_MAX.0),
            withdrawals_max: WITHDRAWALS_MAX,
            rotation_min: ROTATION_MIN,
            rotation_max: ROTATION_MAX,
            usable_settles: USABLE_SETTLES,
            usable_replans: USABLE_REPLANS,
            sources: director::sources::Config {
                siblings_max: SIBLINGS_MAX,
                elsewhere: self.fill_other_sites,
            },
        }
    }

    fn refused(&self, key: &'static str, reason: &str) -> ConfigError {
        let row = self.rows.iter().find(|row| row.key == key);
        let origin = row.map_or_else(String::new, |row| row.origin.to_string());
        ConfigError::Value { key, origin, reason: reason.to_owned() }
    }
}

/// Both files or none.
fn certificate<F: Fn(&str) -> Option<String>>(
    pick: &mut Picker<F>,
) -> Result<Option<CertificateFiles>, ConfigError> {
    let chain = pick.optional("serve.certificate")?;
    let key = pick.optional("serve.key")?;
    match (chain, key) {
        (Some(chain), Some(key)) => Ok(Some(CertificateFiles { chain, key })),
        (None, None) => Ok(None),
        (Some(_), None) => Err(ConfigError::Missing("serve.key")),
        (None, Some(_)) => Err(ConfigError::Missing("serve.certificate")),
    }
}

/// A front has a name and a writer.
fn role<F: Fn(&str) -> Option<String>>(pick: &mut Picker<F>) -> Result<Role, ConfigError> {
    let word: RoleWord = pick.value("role", "writer")?;
    let name: Option<FrontName> = pick.optional("front.name")?;
    let writer: Option<Address> = pick.optional("front.writer")?;
    match (word, name, writer) {
        (RoleWord::Writer, _, _) => Ok(Role::Writer),
        (RoleWord::Front, Some(FrontName(name)), Some(writer)) => {
            Ok(Role::Front(FrontConfig { name, writer }))
        }
        (RoleWord::Front, None, _) => Err(ConfigError::Missing("front.name")),
        (RoleWord::Front, Some(_), None) => Err(ConfigError::Missing("front.writer")),
    }
}

/// Address ranges, with commas between them.
struct Prefixes(Vec<Prefix>);

impl FromStr for Prefixes {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let prefix = |part: &str| {
            let address = || part.parse::<IpAddr>().ok().map(Prefix::from);
            let wrong =
                || format!("\"{part}\" is no range of addresses: write for example \"10.0.0.0/8\"");
            part.parse::<Prefix>().ok().or_else(address).ok_or_else(wrong)
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(prefix).collect::<Result<_, _>>().map(Self)
    }
}

enum RoleWord {
    Writer,
    Front,
}

impl FromStr for RoleWord {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "writer" => Ok(Self::Writer),
            "front" => Ok(Self::Front),
            _ => Err("use \"writer\" or \"front\""),
        }
    }
}

/// The rule for names is that of sites and appliances.
struct FrontName(String);

impl FromStr for FrontName {
    type Err = model::id::IdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|id: model::id::SiteId| Self(id.to_string()))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Row { key, value, origin } in &self.rows {
            match value {
                Some(value) => writeln!(f, "{key} = {value:?}  # {origin}")?,
                None => writeln!(f, "# {key} is not set")?,
            }
        }
        self.s3.iter().try_for_each(|bucket| write!(f, "{bucket}"))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("file"),
            Self::Environment(name) => write!(f, "environment variable {name}"),
        }
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

/// The settings of a file by their names, `section.key`.
fn flat(table: toml::Table) -> BTreeMap<String, toml::Value> {
    let mut settings = BTreeMap::new();
    for (key, value) in table {
        if key == "s3" {
            continue;
        }
        if let toml::Value::Table(section) = value {
            settings.extend(section.into_iter().map(|(of, value)| (format!("{key}.{of}"), value)));
        } else {
            settings.insert(key, value);
        }
    }
    settings
}

/// Takes settings by their names; those that are left are unknown.
struct Picker<F> {
    variable: F,
    file: BTreeMap<String, toml::Value>,
    rows: Vec<Row>,
}

impl<F: Fn(&str) -> Option<String>> Picker<F> {
    fn needed<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
    ) -> Result<T, ConfigError> {
        self.optional(key)?.ok_or(ConfigError::Missing(key))
    }

    fn value<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
        default: &str,
    ) -> Result<T, ConfigError> {
        let found = self.find(key)?;
        let (text, origin) = found.unwrap_or_else(|| (default.to_owned(), Origin::Default));
        self.take(key, text, origin)
    }

    fn optional<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, ConfigError> {
        match self.find(key)? {
            Some((text, origin)) => self.take(key, text, origin).map(Some),
            None => {
                self.rows.push(Row { key, value: None, origin: Origin::Default });
                Ok(None)
            }
        }
    }

    /// The text of a setting: the environment has the same forms as the file.
    fn find(&mut self, key: &'static str) -> Result<Option<(String, Origin)>, ConfigError> {
        let in_file = self.file.remove(key);
        let name = format!("CONTROL_{}", key.replace('.', "_").to_ascii_uppercase());
        if let Some(value) = (self.variable)(&name) {
            return Ok(Some((value, Origin::Environment(name))));
        }
        let Some(value) = in_file else { return Ok(None) };
        let text = match &value {
            toml::Value::String(text) => Some(text.clone()),
            toml::Value::Integer(number) => Some(number.to_string()),
            toml::Value::Boolean(truth) => Some(truth.to_string()),
            toml::Value::Array(list) => {
                let texts: Option<Vec<&str>> = list.iter().map(toml::Value::as_str).collect();
                texts.map(|texts| texts.join(", "))
            }
            toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
        };
        let text = text.ok_or_else(|| ConfigError::Value {
            key,
            origin: Origin::File.to_string(),
            reason: format!("{value} is no text, whole number, truth or list of texts"),
        })?;
        Ok(Some((text, Origin::File)))
    }

    fn take<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
        text: String,
        origin: Origin,
    ) -> Result<T, ConfigError> {
        let value = text.parse().map_err(|error: T::Err| ConfigError::Value {
            key,
            origin: origin.to_string(),
            reason: error.to_string(),
        })?;
        self.rows.push(Row { key, value: Some(text), origin });
        Ok(value)
    }
}

/// Most that an appliance forgives a token after its expiry (its `serve.token_leeway`).
const TOKEN_LEEWAY_MAX: Nanos = Nanos::seconds(3600);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_only_a_state_directory_is_enough() {
        let config = load("state = \"/var/lib/nearcast\"", &[]).unwrap();
        assert_eq!(
            config.to_string(),
            r#"role = "writer"  # default
# front.name is not set
# front.writer is not set
state = "/var/lib/nearcast"  # file
serve.listen = "127.0.0.1:8080"  # default
# serve.certificate is not set
# serve.key is not set
# serve.public_url is not set
serve.connections_max = "1000"  # default
serve.connections_per_address_max = "100"  # default
serve.requests_max = "256"  # default
serve.trusted_proxies = ""  # default
serve.proxy_protocol = "false"  # default
fleet.listen = "127.0.0.1:8081"  # default
fleet.connections_max = "5000"  # default
fleet.connections_per_address_max = "500"  # default
fleet.certificate_lifetime = "24 h"  # default
fleet.code_lifetime = "1 h"  # default
health.stale_after = "1500 ms"  # default
health.probe_after = "800 ms"  # default
health.recovery = "30 s"  # default
health.report_interval = "500 ms"  # default
playback.token_lifetime = "4 h"  # default
playback.grant_lifetime = "15 min"  # default
steering.ttl = "10 s"  # default
# demo.controls is not set
fill.other_sites = "true"  # default
"#
        );
    }

    #[test]
    fn the_environment_comes_after_the_file_and_says_so() {
        let text = "state = \"s\"\n[steering]\nttl = \"20 s\"\n[serve]\nconnections_max = 7";
        let config = load(text, &[("CONTROL_STEERING_TTL", "5 s")]).unwrap();
        assert_eq!(config.steering_ttl, Nanos::seconds(5));
        assert_eq!(config.connections_max, 7);
        let printed = config.to_string();
        assert!(
            printed.contains("steering.ttl = \"5 s\"  # environment variable CONTROL_STEERING_TTL")
        );
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let config = load("state = \"s\"", &[("CONTROL_SERVE_PUBLIC_URL", "https://c.example")]);
        let again = load(&config.as_ref().unwrap().to_string(), &[]).unwrap();
        assert_eq!(again.public_url, config.unwrap().public_url);
        let list = "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]\nproxy_protocol = true";
        let config = load(&format!("state = \"s\"\n[serve]\n{list}"), &[]).unwrap();
        let again = load(&config.to_string(), &[]).unwrap();
        let proxies = ["10.0.0.0/8", "::1/128"].map(|prefix| prefix.parse().unwrap());
        assert_eq!((config.trusted_proxies, config.proxy_protocol), (proxies.into(), true));
        assert_eq!((again.trusted_proxies, again.proxy_protocol), (proxies.into(), true));
    }

    #[test]
    fn mistakes_are_refused_with_what_to_do() {
        refused("", "state is needed");
        refused("state = \"s\"\nrole = \"king\"", "use \"writer\" or \"front\"");
        refused("state = \"s\"\nrole = \"front\"", "front.name is needed");
        refused("role = \"front\"\n[front]\nname = \"f1\"", "front.writer is needed");
        refused("role = \"front\"\n[front]\nname = \"../f\"", "is not a name");
        let writer = "[front]\nname = \"f1\"\nwriter = \"http://c:1\"";
        refused(&format!("role = \"front\"\n{writer}"), "https://HOST:PORT");
        refused(
            "state = \"s\"\nlisten = \"x\"",
            "no setting listen: the settings are role, front.",
        );
        refused("state = \"s\"\n[steering]\nttl = 10", "needs a unit");
        refused("state = \"s\"\n[steering]\nttl = \"10 min\"", "use 1 s to 300 s");
        refused("state = \"s\"\n[serve]\nlisten = \"0.0.0.0:8080\"", "without TLS only loopback");
        refused("state = \"s\"\n[serve]\ncertificate = \"c.pem\"", "serve.key is needed");
        refused("state = \"s\"\n[serve]\nproxy_protocol = true", "[serve] trusted_proxies");
        let proxies = "state = \"s\"\n[serve]\ntrusted_proxies";
        refused(&format!("{proxies} = [\"10.0.0.0/33\"]"), "is no range of addresses");
        refused(&format!("{proxies} = [\"nginx\"]"), "is no range of addresses");
        refused("state = \"s\"\n[serve]\nconnections_per_address_max = 0", "use 1 to 100000");
        refused("state = \"s\"\n[playback]\ntoken_lifetime = \"9 s\"", "use 10 s to 30 d");
        refused("state = \"s\"\n[playback]\ngrant_lifetime = \"2 d\"", "use 10 s to 24 h");
        refused("state = \"s\"\n[fleet]\ncode_lifetime = \"1 s\"", "use 1 min to 7 d");
        refused("state = \"s\"\n[fleet]\ncertificate_lifetime = \"1 s\"", "10 min to 90 d");
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
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Config::load(&path, |name| find(name).map(|(_, value)| (*value).to_owned()))
    }
}

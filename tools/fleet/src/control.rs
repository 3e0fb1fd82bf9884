//! The control plane's HTTP API, as far as the operator's hand needs it.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use wire::v1::report::{Inventory, Report};

/// Where control is: the same two words for every verb.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Where {
    /// Base URL of the control plane
    #[arg(long, value_name = "URL", env = "NEARCAST_CONTROL", default_value = DEFAULT_URL)]
    control: String,
}

/// A client of one control plane.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    base: String,
    agent: ureq::Agent,
}

/// What a PUT did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is new there.
    Created,
    /// It was there, and now is as asked.
    Known,
}

impl Where {
    /// A client for it.
    pub(crate) fn client(&self) -> anyhow::Result<Control> {
        Control::new(&self.control)
    }
}

impl Control {
    /// A client of the control plane at `base`.
    pub(crate) fn new(base: &str) -> anyhow::Result<Self> {
        let known = base.starts_with("http://") || base.starts_with("https://");
        anyhow::ensure!(
            known,
            "\"{base}\" is not a URL of a control plane: write for example {DEFAULT_URL}"
        );
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_global(Some(ANSWER_WITHIN))
            .user_agent(concat!("nearcast/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { base: base.trim_end_matches('/').to_owned(), agent: config.into() })
    }

    /// Its URL, without a slash at the end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// GETs a JSON value.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.base);
        let mut response = self.agent.get(&url).call().map_err(|error| self.away(&error))?;
        check(&mut response, &url)?;
        let body = response.body_mut().with_config().limit(ANSWER_LEN_MAX);
        body.read_json().with_context(|| {
            format!("{url} did not answer as expected: is it a control plane of this version?")
        })
    }

    /// PUTs a JSON value.
    pub(crate) fn put(&self, path: &str, value: &impl Serialize) -> anyhow::Result<Put> {
        let url = format!("{}{path}", self.base);
        let mut response =
            self.agent.put(&url).send_json(value).map_err(|error| self.away(&error))?;
        check(&mut response, &url)?;
        Ok(if response.status() == 201 { Put::Created } else { Put::Known })
    }

    /// POSTs nothing, and gets a JSON value.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.base);
        let mut response = self.agent.post(&url).send_empty().map_err(|error| self.away(&error))?;
        check(&mut response, &url)?;
        let body = response.body_mut().with_config().limit(ANSWER_LEN_MAX);
        body.read_json().with_context(|| format!("{url} did not answer as expected"))
    }

    fn away(&self, error: &ureq::Error) -> anyhow::Error {
        let base = &self.base;
        anyhow::anyhow!(
            "the control plane at {base} does not answer ({error}): start it with \
             `nearcast-control serve`, or say where it is with --control URL or NEARCAST_CONTROL"
        )
    }
}

/// An answer that is no success becomes an error with control's own words (RFC 9457).
fn check(response: &mut ureq::http::Response<ureq::Body>, url: &str) -> anyhow::Result<()> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let text = response.body_mut().with_config().limit(PROBLEM_LEN_MAX).read_to_string();
    let text = text.unwrap_or_default();
    let problem: Problem = serde_json::from_str(&text).unwrap_or_default();
    let said = match (&*problem.title, &*problem.detail) {
        ("", "") => text.lines().next().unwrap_or_default().to_owned(),
        (title, "") => title.to_owned(),
        ("", detail) => detail.to_owned(),
        (title, detail) => format!("{title}: {detail}"),
    };
    let said = if said.is_empty() { "no reason given".to_owned() } else { said };
    bail!("control refused ({}): {said} [{url}]", status.as_u16())
}

#[derive(Debug, Default, Deserialize)]
struct Problem {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
}

/// `GET /v1/fleet`: all that control knows at one moment.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Fleet {
    #[serde(default)]
    pub(crate) now_unix_s: u64,
    #[serde(default)]
    pub(crate) generation: u64,
    #[serde(default)]
    pub(crate) sites: Vec<Site>,
    #[serde(default)]
    pub(crate) assets: Vec<Asset>,
    #[serde(default)]
    pub(crate) errors: Vec<FleetError>,
}

/// A site with its appliances.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Site {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) prefixes: Vec<String>,
    #[serde(default)]
    pub(crate) appliances: Vec<Appliance>,
}

/// An appliance as control sees it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Appliance {
    pub(crate) id: String,
    pub(crate) state: String,
    #[serde(default)]
    pub(crate) reason: Option<String>,
    #[serde(default)]
    pub(crate) since_s: Option<u64>,
    #[serde(default)]
    pub(crate) last_report_ms: Option<u64>,
    #[serde(default, deserialize_with = "report")]
    pub(crate) report: Option<Report>,
    #[serde(default)]
    pub(crate) objects_held: u64,
    #[serde(default)]
    pub(crate) weight: Option<u64>,
    #[serde(default)]
    pub(crate) base_url: Option<String>,
}

/// Control leaves the inventory out: it is long, and `objects_held` says how much.
fn report<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Report>, D::Error> {
    let Some(mut value) = Option::<Value>::deserialize(from)? else { return Ok(None) };
    if let Value::Object(fields) = &mut value {
        let inventory = serde_json::to_value(Inventory::default()).map_err(D::Error::custom)?;
        fields.entry("inventory").or_insert(inventory);
    }
    Report::deserialize(value).map(Some).map_err(D::Error::custom)
}

/// An asset and how many copies of it there are.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Asset {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) current_version: Option<String>,
    #[serde(default)]
    pub(crate) files: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) copies_wanted: u64,
    #[serde(default)]
    pub(crate) copies_complete: u64,
    #[serde(default)]
    pub(crate) entries: Vec<AssetEntry>,
}

/// An entry manifest of an asset.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct AssetEntry {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) format: String,
}

/// An error that an appliance or control reported.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct FleetError {
    #[serde(default)]
    pub(crate) at_unix_s: u64,
    #[serde(default)]
    pub(crate) appliance: Option<String>,
    #[serde(default)]
    pub(crate) room: String,
    #[serde(default)]
    pub(crate) text: String,
}

const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// Loopback or a management network: a second is long.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Control proves every block hash of a new version before it answers, and a version may have
/// millions.
const ANSWER_WITHIN: Duration = Duration::from_secs(300);

/// Largest answer: 1,000 appliances with 64 drives each come to about 20 MB.
const ANSWER_LEN_MAX: u64 = 64 << 20;

/// More of a refusal is not read.
const PROBLEM_LEN_MAX: u64 = 64 << 10;

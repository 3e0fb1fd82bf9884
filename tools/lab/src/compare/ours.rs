//! The real system, as an operator would start it: origin, control plane, ingest, one appliance.
//!
//! Only the appliance is bound to the server CPU and counted; the rest shares the client's CPU and
//! is idle once the appliance is filled. Media URLs come from a playback, as a player's would.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use serde_json::{Value, json};
use tracing::info;

use super::certificate::Certificate;
use super::process::Process;
use crate::url::Url;

/// What is needed to start it.
pub(crate) struct Site<'a> {
    /// The files to serve.
    pub(crate) source: &'a Path,
    /// Where it keeps its own.
    pub(crate) room: PathBuf,
    /// For the appliance and the origin.
    pub(crate) certificate: &'a Certificate,
    /// First of five ports: appliance, origin, control plane, control plane for appliances, the
    /// appliance's metrics.
    pub(crate) port: u16,
    /// The appliance's CPU.
    pub(crate) cpu: usize,
    /// The CPU of all else.
    pub(crate) other_cpu: usize,
    /// The asset's name.
    pub(crate) asset: &'a str,
    /// The appliance's memory for hot blocks.
    pub(crate) hot_memory: Bytes,
    /// A fill that takes longer has failed.
    pub(crate) fill_max: Duration,
}

/// How an appliance is started otherwise than by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
    /// Lines at the end of its configuration.
    pub(crate) lines: &'static str,
    /// A variable of its environment, as `NAME=value`.
    pub(crate) variable: Option<&'static str>,
    /// Its worker runs on whatever CPU the kernel likes.
    pub(crate) unpinned: bool,
    /// It keeps no hot blocks.
    pub(crate) cold: bool,
    /// Its `[pacing]`; nobody is paced where nothing is said.
    pub(crate) pacing: Option<&'static str>,
}

/// A filled appliance and its control plane.
pub(crate) struct Ours {
    /// What is measured.
    pub(crate) appliance: Process,
    /// What gave out the media URLs.
    pub(crate) control: Process,
    /// Where the asset's files are on the appliance.
    pub(crate) base: Url,
    /// The library that seals for the appliance, if its metrics tell it.
    pub(crate) aead: Option<String>,
}

const ANSWER_MAX: Duration = Duration::from_secs(10);
const APPLIANCE: &str = "lab";
const METRICS_MAX: Duration = Duration::from_secs(10);
/// Once an appliance shows this metric, it shows that of its AEAD as well, if it has one: its main
/// thread gathers both each second.
const METRIC_OF_ALL: &str = "\nnearcast_certificate_seconds_left ";

impl Site<'_> {
    /// Starts all of it; returns when the appliance holds the whole asset.
    pub(crate) fn start(&self, joins: &[PathBuf]) -> Result<Ours> {
        fs::create_dir_all(&self.room)?;
        let origin = self.origin()?;
        let control = self.control()?;
        self.register()?;
        self.ingest()?;
        let appliance = self.appliance(joins)?;
        let base = Url::parse("https://unknown/")?;
        let mut ours = Ours { appliance, control, base, aead: None };
        self.wait_until_filled(&mut ours)?;
        drop(origin);
        ours.base = self.playback(&agent())?;
        ours.aead = self.aead(&mut ours.appliance)?;
        info!(base = %ours.base.authority(), "the appliance is filled");
        Ok(ours)
    }

    /// The library that seals, if the appliance tells it: with rows that it has within a second.
    fn aead(&self, appliance: &mut Process) -> Result<Option<String>> {
        let mut text = String::new();
        appliance.wait_until("telling its metrics", METRICS_MAX, || {
            text = self.metrics()?;
            Ok(text.contains(METRIC_OF_ALL))
        })?;
        Ok(aead_in(&text))
    }

    /// Signatures of tokens that the appliance has verified.
    pub(crate) fn tokens_verified(&self) -> Result<u64> {
        verified_in(&self.metrics()?)
            .context("the appliance has no metric nearcast_tokens_verified_total")
    }

    fn metrics(&self) -> Result<String> {
        let answer = agent().get(format!("http://{}/metrics", self.address(4))).call();
        let mut answer = answer.context("the appliance's metrics")?;
        Ok(answer.body_mut().read_to_string()?)
    }

    fn origin(&self) -> Result<Process> {
        let address = self.address(1);
        let command = [
            binary("nearcast")?,
            "origin".to_owned(),
            text(self.source),
            "--listen".to_owned(),
            address.to_string(),
            "--certificate".to_owned(),
            text(&self.certificate.chain),
            "--key".to_owned(),
            text(&self.certificate.key),
        ];
        let log = self.room.join("origin.log");
        let mut origin = Process::start("the origin", &command, self.other_cpu, &[], &log)?;
        origin.wait_for_port(address)?;
        Ok(origin)
    }

    fn control(&self) -> Result<Process> {
        let address = self.address(2);
        let config = format!(
            "state = {state}\n[serve]\nlisten = \"{address}\"\n[fleet]\nlisten = \"{fleet}\"\n",
            fleet = self.address(3),
            state = quoted(&self.room.join("control"))
        );
        let path = self.room.join("control.toml");
        fs::write(&path, config)?;
        let command = [binary("nearcast-control")?, "serve".to_owned()];
        let command = [&command[..], &["--config".to_owned(), text(&path)]].concat();
        let log = self.room.join("control.log");
        let mut control = Process::start("the control plane", &command, self.other_cpu, &[], &log)?;
        control.wait_for_port(address)?;
        Ok(control)
    }

    fn register(&self) -> Result<()> {
        self.put("/v1/sites/lab", &json!({ "prefixes": ["127.0.0.0/8"] }))?;
        let appliance = format!("/v1/appliances/{APPLIANCE}");
        self.put(&appliance, &json!({ "site": "lab", "weight": 1 }))?;
        self.put("/v1/policy", &json!({ "copies": 1 }))
    }

    fn ingest(&self) -> Result<()> {
        info!(source = %self.source.display(), "ingesting");
        let command = [
            binary("nearcast")?,
            "ingest".to_owned(),
            text(self.source),
            "--asset".to_owned(),
            self.asset.to_owned(),
            "--source".to_owned(),
            format!("https://{}/", self.address(1)),
            "--control".to_owned(),
            self.control_url(""),
            "--state".to_owned(),
            text(&self.room.join("ingest.state")),
        ];
        Process::run("ingest", &command, self.other_cpu, &self.room.join("ingest.log"))
    }

    fn appliance(&self, joins: &[PathBuf]) -> Result<Process> {
        let (program, drive) = (binary("nearcast-appliance")?, self.room.join("drive"));
        fs::create_dir_all(&drive)?;
        let run = |verb: &str, rest: &[&str]| {
            let mut command = vec![program.clone(), verb.to_owned(), text(&drive)];
            command.extend(rest.iter().map(|word| (*word).to_owned()));
            let log = self.room.join(format!("{verb}.log"));
            Process::run(&format!("nearcast-appliance {verb}"), &command, self.other_cpu, &log)
        };
        // A kept drive is formatted already, and formatting it again would be refused.
        if run("inspect", &[]).is_err() {
            run("format", &["--reserve", "1%"])?;
        }
        let config = self.room.join("appliance.toml");
        fs::write(&config, self.appliance_config(&drive, self.address(0), Change::default()))?;
        self.enrol(&program, &config)?;
        let command = [program, "serve".to_owned(), "--config".to_owned(), text(&config)];
        let log = self.room.join("appliance.log");
        let mut appliance = Process::start("the appliance", &command, self.cpu, joins, &log)?;
        appliance.wait_for_port(self.address(0))?;
        Ok(appliance)
    }

    /// Starts the appliance that `start` had filled, and that has ended since: otherwise than by
    /// default, and in the network namespace `away` if there is one, where it cannot reach control
    /// and serves without.
    pub(crate) fn again(
        &self,
        change: Change,
        away: Option<(&str, IpAddr)>,
        joins: &[PathBuf],
    ) -> Result<(Process, SocketAddr)> {
        let config = self.room.join("again.toml");
        let ip = away.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, ip)| ip);
        let address = SocketAddr::new(ip, self.port);
        fs::write(&config, self.appliance_config(&self.room.join("drive"), address, change))?;
        let mut command = Vec::new();
        if let Some((namespace, _)) = away {
            command.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        if let Some(variable) = change.variable {
            command.extend(["env", variable].map(str::to_owned));
        }
        let program = [binary("nearcast-appliance")?, "serve".to_owned()];
        command.extend(program);
        command.extend(["--config".to_owned(), text(&config)]);
        let log = self.room.join("again.log");
        let cpus = if change.unpinned { vec![self.cpu, self.other_cpu] } else { vec![self.cpu] };
        let mut appliance = Process::start_on("the appliance", &command, &cpus, joins, &log)?;
        appliance.wait_for_port(address)?;
        Ok((appliance, address))
    }

    /// With a one-time code, as an operator would.
    fn enrol(&self, program: &str, config: &Path) -> Result<()> {
        let what = format!("/v1/appliances/{APPLIANCE}/enrolment");
        let answer = agent().post(self.control_url(&what)).send_empty();
        let given = body(&format!("POST {what}"), answer)?;
        let code = given["code"].as_str().context("a code that is none")?;
        let file = self.room.join("code");
        fs::write(&file, code)?;
        let verb = ["enrol".to_owned(), "--config".to_owned(), text(config)];
        let code = ["--code-file".to_owned(), text(&file)];
        let command = [&[program.to_owned()], &verb[..], &code[..]].concat();
        let log = self.room.join("enrol.log");
        Process::run("nearcast-appliance enrol", &command, self.other_cpu, &log)
    }

    fn appliance_config(&self, drive: &Path, listen: SocketAddr, change: Change) -> String {
        let cpus = if change.unpinned { String::new() } else { format!("cpus = [{}]", self.cpu) };
        format!(
            "name = \"{APPLIANCE}\"
state = {state}
[serve]
listen = [\"{listen}\"]
base_url = \"https://{listen}\"
certificate = {chain}
key = {key}
workers = 1
{cpus}
[drives]
paths = [{drive}]
[hot]
memory = \"{hot}\"
[control]
url = \"https://{control}\"
report_interval = \"1 s\"
[fill]
trust = {trust}
concurrency = 4
[metrics]
listen = \"{metrics}\"
[pacing]
{pacing}
{lines}
",
            metrics = self.address(4),
            pacing = change.pacing.unwrap_or("mode = \"off\""),
            lines = change.lines,
            state = quoted(&self.room.join("appliance")),
            chain = quoted(&self.certificate.chain),
            key = quoted(&self.certificate.key),
            drive = quoted(drive),
            hot = if change.cold { Bytes::ZERO } else { self.hot_memory },
            control = self.address(3),
            trust = quoted(&self.certificate.ca),
        )
    }

    fn wait_until_filled(&self, ours: &mut Ours) -> Result<()> {
        info!("filling the appliance");
        ours.appliance.wait_until("being filled", self.fill_max, || {
            let fleet = self.get("/v1/fleet")?;
            let assets = fleet["assets"].as_array().context("a fleet without assets")?;
            let asset = assets.iter().find(|asset| asset["id"] == self.asset);
            Ok(asset.is_some_and(|asset| 1 <= asset["copies_complete"].as_u64().unwrap_or(0)))
        })
    }

    /// Where the asset's files are for so many viewers, each with a token of his own.
    pub(crate) fn playbacks(&self, count: usize) -> Result<Vec<Url>> {
        info!(count, "beginning playbacks");
        let agent = agent();
        let playback = |_| {
            crate::stop::check()?;
            self.playback(&agent)
        };
        (0..count).map(playback).collect()
    }

    fn playback(&self, agent: &ureq::Agent) -> Result<Url> {
        let ask = json!({ "asset": self.asset, "client": "127.0.0.1" });
        let answer = agent.post(self.control_url("/v1/playbacks")).send_json(ask);
        let playback = body("POST /v1/playbacks", answer)?;
        let base = playback["pathways"][0]["base_url"].as_str();
        let base = base.with_context(|| format!("a playback without a pathway: {playback}"))?;
        let base = Url::parse(base)?;
        ensure!(base.path.ends_with('/'), "a base_url that does not end with a slash");
        Ok(base)
    }

    fn put(&self, path: &str, value: &Value) -> Result<()> {
        let answer = agent().put(self.control_url(path)).send_json(value);
        body(&format!("PUT {path}"), answer).map(|_| ())
    }

    fn get(&self, path: &str) -> Result<Value> {
        body(&format!("GET {path}"), agent().get(self.control_url(path)).call())
    }

    fn address(&self, index: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + index))
    }

    fn control_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address(2))
    }
}

/// The JSON of an answer, or the answer's own words as an error.
fn body(
    what: &str,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value> {
    let mut answer = answer.with_context(|| format!("{what} of the control plane"))?;
    let text = answer.body_mut().read_to_string().with_context(|| what.to_owned())?;
    ensure!(answer.status().is_success(), "{what}: {}: {text}", answer.status());
    if text.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&text).with_context(|| format!("{what}: no JSON: {text}"))
}

fn agent() -> ureq::Agent {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(ANSWER_MAX))
        .build()
        .into()
}

/// What the metric `nearcast_aead_info` names in its label `kernel`, for the cipher that clients
/// offer here.
fn aead_in(metrics: &str) -> Option<String> {
    let rows = metrics.lines().filter_map(|line| line.strip_prefix("nearcast_aead_info{"));
    let row = rows.into_iter().find(|row| row.contains("cipher=\"aes-128-gcm\""))?;
    let (_, kernel) = row.split_once("kernel=\"")?;
    Some(kernel.split_once('"')?.0.to_owned())
}

fn verified_in(metrics: &str) -> Option<u64> {
    let row =
        |line: &str| line.strip_prefix("nearcast_tokens_verified_total ")?.trim().parse().ok();
    metrics.lines().find_map(row)
}

/// Whether all that is started is there.
pub(crate) fn check_binaries() -> Result<()> {
    ["nearcast", "nearcast-control", "nearcast-appliance"]
        .iter()
        .try_for_each(|name| binary(name).map(|_| ()))
}

/// A binary built together with this one.
fn binary(name: &str) -> Result<String> {
    let own = std::env::current_exe()?;
    let path = own.with_file_name(name);
    ensure!(
        path.is_file(),
        "{} is missing: build all binaries in the same way as this one (./x lab does)",
        path.display()
    );
    Ok(text(&path))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A path as a TOML string.
fn quoted(path: &Path) -> String {
    toml::Value::String(text(path)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_appliance_is_given_a_configuration_that_parses() {
        let at = |name: &str| PathBuf::from("/lab \"x\"").join(name);
        let certificate = Certificate { ca: at("ca"), chain: at("chain"), key: at("key") };
        let site = Site {
            source: Path::new("/source"),
            room: at("room"),
            certificate: &certificate,
            port: 18501,
            cpu: 0,
            other_cpu: 1,
            asset: "lab-warm",
            hot_memory: Bytes::mib(1024),
            fill_max: Duration::ZERO,
        };
        let change = Change { lines: "[ablation]\nsending = \"ring\"", ..Change::default() };
        let config = site.appliance_config(&at("drive"), site.address(0), change);
        let config: toml::Table = config.parse().unwrap();
        assert_eq!(config["ablation"]["sending"].as_str(), Some("ring"));
        assert_eq!(config["serve"]["cpus"].as_array().unwrap().len(), 1);
        assert_eq!(config["serve"]["listen"][0].as_str(), Some("127.0.0.1:18501"));
        assert_eq!(config["drives"]["paths"][0].as_str(), Some("/lab \"x\"/drive"));
        assert_eq!(config["control"]["url"].as_str(), Some("https://127.0.0.1:18504"));
        assert_eq!(config["hot"]["memory"].as_str(), Some("1 GiB"));
        assert_eq!(config["fill"]["trust"].as_str(), Some("/lab \"x\"/ca"));
        assert_eq!(config["pacing"]["mode"].as_str(), Some("off"));
        assert_eq!(config["metrics"]["listen"].as_str(), Some("127.0.0.1:18505"));
    }

    #[test]
    fn the_tokens_that_were_verified_are_read() {
        let help = "# TYPE nearcast_tokens_verified_total counter\n";
        let text = format!("nearcast_forbidden_total 3\n{help}nearcast_tokens_verified_total 29\n");
        assert_eq!(verified_in(&text), Some(29));
        assert_eq!(verified_in(help), None);
    }

    #[test]
    fn an_appliance_that_names_its_aead_is_believed() {
        let row = |cipher, kernel| {
            format!("nearcast_aead_info{{cipher=\"{cipher}\",kernel=\"{kernel}\"}} 1\n")
        };
        let text = row("aes-256-gcm", "aws-lc") + &row("aes-128-gcm", "ring");
        assert_eq!(aead_in(&text), Some("ring".to_owned()));
        assert_eq!(aead_in(&row("aes-256-gcm", "ring")), None);
        assert_eq!(aead_in("nearcast_connections 2\n"), None);
    }
}

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
use rig::api;
use rig::certificate::Certificate;
use rig::fleet::{self, Fleet, Plan, Role};
use rig::process::{On, Process, binary};
use rig::url::Url;
use serde_json::{Value, json};
use tracing::info;

/// What is needed to start it.
pub(crate) struct Site<'a> {
    /// The files to serve.
    pub(crate) source: &'a Path,
    pub(crate) room: PathBuf,
    /// For the appliance and the origin.
    pub(crate) certificate: &'a Certificate,
    /// First of its five ports.
    pub(crate) port: u16,
    /// The appliance's CPU.
    pub(crate) cpu: usize,
    /// The CPU of all else, which this thread is on.
    pub(crate) other_cpu: usize,
    pub(crate) asset: &'a str,
    /// The appliance's memory for hot blocks.
    pub(crate) hot_memory: Bytes,
    /// A fill that takes longer has failed.
    pub(crate) fill_max: Duration,
    /// Its listener takes TLS 1.2, too.
    pub(crate) tls12: bool,
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
    pub(crate) appliance: Process,
    /// What gave out the media URLs.
    pub(crate) control: Process,
    /// Where the asset's files are on the appliance.
    pub(crate) base: Url,
    /// The library that seals for the appliance, if its metrics tell it.
    pub(crate) aead: Option<String>,
}

const ANSWER_MAX: Duration = Duration::from_secs(10);
const METRICS_MAX: Duration = Duration::from_secs(10);
/// Once an appliance shows this metric, it shows that of its AEAD as well, if it has one: its main
/// thread gathers both each second.
const METRIC_OF_ALL: &str = "\nnearcast_certificate_seconds_left{";

impl Site<'_> {
    /// Starts all of it; returns when the appliance holds the whole asset.
    pub(crate) fn start(&self, joins: &[PathBuf]) -> Result<Ours> {
        let plan = Plan { joins: joins.to_vec(), ..self.plan() };
        let mut fleet = Fleet::start_with(plan, self.certificate.clone(), self.source)?;
        fleet.end_origin();
        let base = self.playback(&api::agent(ANSWER_MAX))?;
        let (control, mut appliance) = fleet.into_pair()?;
        let aead = self.aead(&mut appliance)?;
        info!(base = %base.authority(), "the appliance is filled");
        Ok(Ours { appliance, control, base, aead })
    }

    fn plan(&self) -> Plan {
        let plan = Plan {
            appliances: 1,
            appliance: self.settings(Change::default()),
            cpu: Some(self.cpu),
            whole_max: self.fill_max,
            ..Plan::new(self.room.clone(), self.port, self.asset)
        };
        let appliance = self.with_tls12(plan.appliance.clone(), plan.appliance(0));
        Plan { appliance, ..plan }
    }

    /// These settings of an appliance that listens there.
    fn with_tls12(&self, mut settings: Value, at: SocketAddr) -> Value {
        if self.tls12 {
            settings["serve"]["tls12"] = json!([at.to_string()]);
        }
        settings
    }

    /// What is otherwise than an appliance of a fleet has it.
    fn settings(&self, change: Change) -> Value {
        let table = |lines: &str| -> Value { toml::from_str(lines).expect("the lab's own lines") };
        let hot = if change.cold { Bytes::ZERO } else { self.hot_memory };
        let mut settings = json!({
            "hot": { "memory": hot.to_string() },
            "control": { "report_interval": "1 s" },
            "fill": { "concurrency": 4 },
            "pacing": table(change.pacing.unwrap_or("mode = \"off\"")),
        });
        settings["serve"] = json!({});
        if !change.unpinned {
            settings["serve"]["cpus"] = json!([self.cpu]);
        }
        fleet::merge(&mut settings, &table(change.lines));
        settings
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
        api::metric(&self.metrics()?, "tokens_verified_total")
            .context("the appliance has no metric nearcast_tokens_verified_total")
    }

    fn metrics(&self) -> Result<String> {
        let url = format!("http://{}/metrics", self.plan().metrics(0));
        let mut answer = api::agent(METRICS_MAX).get(url).call().context("its metrics")?;
        Ok(answer.body_mut().read_to_string()?)
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
        let ip = away.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |(_, ip)| ip);
        let address = SocketAddr::new(ip, self.port);
        let config = self.room.join("again.toml");
        fs::write(&config, toml::to_string(&self.again_config(address, change))?)?;
        let mut command = Vec::new();
        if let Some((namespace, _)) = away {
            command.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        if let Some(variable) = change.variable {
            command.extend(["env", variable].map(str::to_owned));
        }
        command.extend([binary("nearcast-appliance")?, "serve".to_owned()]);
        command.extend(["--config".to_owned(), config.display().to_string()]);
        let both = [self.cpu, self.other_cpu];
        let on = On { cpus: if change.unpinned { &both } else { &both[..1] }, joins };
        let log = self.room.join("again.log");
        Ok((Process::listening("the appliance", &command, on, &log, address)?, address))
    }

    fn again_config(&self, address: SocketAddr, change: Change) -> Value {
        let plan = Plan { appliance: self.settings(change), ..self.plan() };
        let mut config = plan.appliance_config(0, self.certificate);
        config["serve"]["listen"] = json!([address.to_string()]);
        config["serve"]["base_url"] = json!(format!("https://{address}"));
        self.with_tls12(config, address)
    }

    /// Where the asset's files are for so many viewers, each with a token of his own.
    pub(crate) fn playbacks(&self, count: usize) -> Result<Vec<Url>> {
        info!(count, "beginning playbacks");
        // It keeps its connection: as many as playbacks would use up all ports.
        let agent = api::agent(ANSWER_MAX);
        let playback = |_| {
            rig::stop::check()?;
            self.playback(&agent)
        };
        (0..count).map(playback).collect()
    }

    fn playback(&self, agent: &ureq::Agent) -> Result<Url> {
        let ask = json!({ "asset": self.asset, "client": "127.0.0.1" });
        let url = format!("{}/v1/playbacks", self.plan().url(Role::Writer));
        let playback = api::post_by(agent, &url, &ask)?;
        let base = playback["pathways"][0]["base_url"].as_str();
        let base = base.with_context(|| format!("a playback without a pathway: {playback}"))?;
        let base = Url::parse(base)?;
        ensure!(base.path.ends_with('/'), "a base_url that does not end with a slash");
        Ok(base)
    }
}

/// What the metric `nearcast_aead_info` names in its label `kernel`, for the cipher that clients
/// offer here.
fn aead_in(metrics: &str) -> Option<String> {
    let rows = metrics.lines().filter_map(|line| line.strip_prefix("nearcast_aead_info{"));
    let row = rows.into_iter().find(|row| row.contains("cipher=\"aes-128-gcm\""))?;
    let (_, kernel) = row.split_once("kernel=\"")?;
    Some(kernel.split_once('"')?.0.to_owned())
}

/// Whether all that is started is there.
pub(crate) fn check_binaries() -> Result<()> {
    ["nearcast", "nearcast-control", "nearcast-appliance"]
        .iter()
        .try_for_each(|name| binary(name).map(|_| ()))
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
            tls12: true,
        };
        let change = Change { lines: "[ablation]\nsending = \"ring\"", ..Change::default() };
        let config = site.again_config("127.0.0.1:18501".parse().unwrap(), change);
        let config: toml::Table = toml::to_string(&config).unwrap().parse().unwrap();
        assert_eq!(config["ablation"]["sending"].as_str(), Some("ring"));
        assert_eq!(config["serve"]["cpus"].as_array().unwrap().len(), 1);
        assert_eq!(config["serve"]["workers"].as_integer(), Some(1));
        for key in ["listen", "tls12"] {
            assert_eq!(config["serve"][key].as_array().unwrap().len(), 1);
            assert_eq!(config["serve"][key][0].as_str(), Some("127.0.0.1:18501"));
        }
        assert_eq!(config["drives"]["paths"][0].as_str(), Some("/lab \"x\"/room/a1/drive"));
        assert_eq!(config["control"]["url"].as_str(), Some("https://127.0.0.1:18503"));
        assert_eq!(config["hot"]["memory"].as_str(), Some("1 GiB"));
        assert_eq!(config["fill"]["trust"].as_str(), Some("/lab \"x\"/ca"));
        assert_eq!(config["pacing"]["mode"].as_str(), Some("off"));
        assert_eq!(config["metrics"]["listen"].as_str(), Some("127.0.0.1:18505"));
        let change = Change { unpinned: true, cold: true, ..Change::default() };
        let config = site.again_config("127.0.0.1:18501".parse().unwrap(), change);
        assert_eq!(config["hot"]["memory"].as_str(), Some("0 B"));
        assert!(config["serve"].get("cpus").is_none());
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

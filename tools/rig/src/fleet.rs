//! A whole fleet on this machine, as an operator would start it: an origin, the control plane's
//! writer and fronts, appliances, all of them enrolled. Any can be killed and started again.
//!
//! ```text
//! origin ── fill ──> a1, a2, .. ── reports over mTLS ──> writer, f1, f2, ..
//!                                        f1, f2 .. <── snapshots ── writer
//! ```
//!
//! Everything listens on 127.0.0.1, on consecutive ports; logs are in the fleet's directory.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use model::units::Bytes;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tracing::info;

use crate::certificate::Certificate;
use crate::process::Process;

/// How long a process may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How long the fleet may take to become whole.
const WHOLE_MAX: Duration = Duration::from_secs(120);
const ANSWER_MAX: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How large it is, and where.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it keeps its own.
    pub room: PathBuf,
    /// The first of its ports.
    pub port: u16,
    /// How many fronts.
    pub fronts: u16,
    /// How many appliances, all in one site.
    pub appliances: u16,
    /// The asset's name.
    pub asset: String,
    /// More settings of every process of the control plane.
    pub settings: Value,
}

/// A fleet that runs. Dropping it stops what is left of it.
pub struct Fleet {
    plan: Plan,
    certificate: Certificate,
    /// The writer, then the fronts.
    controls: Vec<Option<Process>>,
    appliances: Vec<Option<Process>>,
    _origin: Process,
}

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that decides.
    Writer,
    /// One of those that answer players, from 0.
    Front(u16),
}

impl Fleet {
    /// Starts all of it; returns when every appliance holds all files below `source`, and every
    /// process of the control plane knows that.
    pub fn start(plan: Plan, source: &Path) -> Result<Self> {
        fs::create_dir_all(&plan.room)?;
        let certificate = Certificate::make(&plan.room)?;
        let origin = start_origin(&plan, &certificate, source)?;
        let mut fleet = Self {
            controls: (0..=plan.fronts).map(|_| None).collect(),
            appliances: (0..plan.appliances).map(|_| None).collect(),
            plan,
            certificate,
            _origin: origin,
        };
        fleet.start_control(Role::Writer)?;
        fleet.register()?;
        fleet.ingest(source)?;
        for index in 0..fleet.plan.appliances {
            fleet.make_appliance(index)?;
            fleet.start_appliance(index)?;
        }
        for index in 0..fleet.plan.fronts {
            let code = fleet.code(&format!("/v1/fronts/{}/enrolment", front_name(index)))?;
            let config = fleet.control_config(Role::Front(index))?;
            fleet.enrol("nearcast-control", &config, &code, &front_name(index))?;
            fleet.start_control(Role::Front(index))?;
        }
        fleet.wait_until_whole(WHOLE_MAX)?;
        info!(fronts = fleet.plan.fronts, appliances = fleet.plan.appliances, "the fleet is whole");
        Ok(fleet)
    }

    /// Base URL for players and people of a process of the control plane.
    pub fn url(&self, role: Role) -> String {
        format!("http://{}", self.plan.api(role))
    }

    /// All of the control plane, the writer first.
    pub fn roles(&self) -> Vec<Role> {
        [Role::Writer].into_iter().chain((0..self.plan.fronts).map(Role::Front)).collect()
    }

    /// Starts a process of the control plane, which listens when this returns.
    pub fn start_control(&mut self, role: Role) -> Result<()> {
        let config = self.control_config(role)?;
        let name = role.name();
        let command = [binary("nearcast-control")?, "serve".to_owned(), "--config".to_owned()];
        let command = [&command[..], &[text(&config)]].concat();
        let log = self.plan.room.join(format!("{name}.log"));
        let mut process = Process::start_anywhere(&name, &command, &[], &log)?;
        let address = self.plan.api(role);
        process.wait_until("listening", START_MAX, || {
            Ok(std::net::TcpStream::connect(address).is_ok())
        })?;
        self.controls[role.index()] = Some(process);
        Ok(())
    }

    /// Starts an appliance.
    pub fn start_appliance(&mut self, index: u16) -> Result<()> {
        let name = appliance_name(index);
        let config = self.plan.room.join(format!("{name}.toml"));
        let command = [binary("nearcast-appliance")?, "serve".to_owned(), "--config".to_owned()];
        let command = [&command[..], &[text(&config)]].concat();
        let log = self.plan.room.join(format!("{name}.log"));
        let mut process = Process::start_anywhere(&name, &command, &[], &log)?;
        process.wait_for_port(self.plan.appliance(index))?;
        self.appliances[usize::from(index)] = Some(process);
        Ok(())
    }

    /// Kills a process of the control plane.
    pub fn kill_control(&mut self, role: Role) {
        if let Some(process) = self.controls[role.index()].take() {
            process.kill();
            info!(name = role.name(), "killed");
        }
    }

    /// Kills an appliance.
    pub fn kill_appliance(&mut self, index: u16) {
        if let Some(process) = self.appliances[usize::from(index)].take() {
            process.kill();
            info!(name = appliance_name(index), "killed");
        }
    }

    /// Stops an appliance where it stands, or lets it go on.
    pub fn pause_appliance(&mut self, index: u16, pause: bool) -> Result<()> {
        let process = self.appliances[usize::from(index)].as_ref().context("it does not run")?;
        let pid = i32::try_from(process.id()).ok().and_then(Pid::from_raw).context("no pid")?;
        let signal = if pause { Signal::STOP } else { Signal::CONT };
        info!(name = appliance_name(index), pause, "signalled");
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// An error if something has ended that nobody killed.
    pub fn check(&mut self) -> Result<()> {
        let all = self.controls.iter_mut().chain(&mut self.appliances);
        all.flatten().try_for_each(Process::check)
    }

    /// The writer's fleet address.
    pub fn members(&self) -> SocketAddr {
        self.plan.members(Role::Writer)
    }

    /// The writer's process, if it runs.
    pub fn writer_id(&self) -> Option<u32> {
        self.controls[0].as_ref().map(Process::id)
    }

    /// The most memory that the writer has had at a time.
    pub fn writer_memory(&self) -> Result<Bytes> {
        let writer = self.controls[0].as_ref().context("the writer does not run")?;
        let status = fs::read_to_string(format!("/proc/{}/status", writer.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no VmHWM")?;
        Ok(Bytes::kib(kib.trim().parse()?))
    }

    /// Players can begin at one of the control plane's processes.
    pub fn is_ready(&self) -> bool {
        self.roles().iter().any(|role| get(&format!("{}/healthz", self.url(*role))).is_ok())
    }

    /// True once this process of the control plane holds every appliance for healthy and complete.
    pub fn is_whole(&self, role: Role) -> bool {
        let Ok(fleet) = get(&format!("{}/v1/fleet", self.url(role))) else { return false };
        let all = |fleet: &Value| {
            let sites = fleet["sites"].as_array()?;
            let appliances = sites.iter().filter_map(|site| site["appliances"].as_array());
            let healthy = appliances.flatten().filter(|a| a["state"] == "healthy").count();
            let mut assets = fleet["assets"].as_array()?.iter();
            let asset = assets.find(|asset| asset["id"] == self.plan.asset.as_str())?;
            let wanted = usize::from(self.plan.appliances);
            Some(
                healthy == wanted
                    && asset["copies_complete"].as_u64()? == u64::try_from(wanted).ok()?,
            )
        };
        all(&fleet).unwrap_or(false)
    }

    /// Waits until all that runs of the control plane sees the whole fleet; how long that took.
    pub fn wait_until_whole(&mut self, within: Duration) -> Result<Duration> {
        let began = Instant::now();
        let mut left: Vec<Role> = self.roles();
        left.retain(|role| self.controls[role.index()].is_some());
        loop {
            self.check()?;
            crate::stop::check()?;
            left.retain(|role| !self.is_whole(*role));
            if left.is_empty() {
                return Ok(began.elapsed());
            }
            if within < began.elapsed() {
                bail!("after {within:?} these do not see a whole fleet: {left:?}");
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn register(&self) -> Result<()> {
        self.put("/v1/sites/lab", &json!({ "prefixes": ["127.0.0.0/8"] }))?;
        for index in 0..self.plan.appliances {
            let path = format!("/v1/appliances/{}", appliance_name(index));
            self.put(&path, &json!({ "site": "lab", "weight": 1 }))?;
        }
        self.put("/v1/policy", &json!({ "copies": self.plan.appliances.max(1) }))
    }

    fn ingest(&self, source: &Path) -> Result<()> {
        let command = [
            binary("nearcast")?,
            "ingest".to_owned(),
            text(source),
            "--asset".to_owned(),
            self.plan.asset.clone(),
            "--source".to_owned(),
            format!("https://{}/", self.plan.origin()),
            "--control".to_owned(),
            self.url(Role::Writer),
            "--state".to_owned(),
            text(&self.plan.room.join("ingest.state")),
        ];
        Process::run_anywhere("ingest", &command, &self.plan.room.join("ingest.log"))
    }

    /// Formats its drive, writes its configuration and enrols it.
    fn make_appliance(&self, index: u16) -> Result<()> {
        let name = appliance_name(index);
        let drive = self.plan.room.join(&name).join("drive");
        let state = self.plan.room.join(&name).join("state");
        fs::create_dir_all(&drive)?;
        fs::create_dir_all(&state)?;
        let program = binary("nearcast-appliance")?;
        let command = [&program, "format", &text(&drive), "--reserve", "1%"].map(str::to_owned);
        let log = self.plan.room.join(format!("{name}.setup.log"));
        Process::run_anywhere("nearcast-appliance format", &command, &log)?;
        let config = self.plan.room.join(format!("{name}.toml"));
        fs::write(&config, self.plan.appliance_config(index, &self.certificate)?)?;
        let code = self.code(&format!("/v1/appliances/{name}/enrolment"))?;
        self.enrol("nearcast-appliance", &config, &code, &name)
    }

    fn enrol(&self, program: &str, config: &Path, code: &str, name: &str) -> Result<()> {
        let command = [&binary(program)?, "enrol", "--config", &text(config), "--code", code];
        let log = self.plan.room.join(format!("{name}.setup.log"));
        Process::run_anywhere(&format!("{program} enrol"), &command.map(str::to_owned), &log)
    }

    /// A one-time code from the writer.
    pub fn code(&self, path: &str) -> Result<String> {
        let answer = agent().post(format!("{}{path}", self.url(Role::Writer))).send_empty();
        let code = body(&format!("POST {path}"), answer)?;
        let code = code["code"].as_str().with_context(|| format!("no code: {code}"))?;
        Ok(code.to_owned())
    }

    fn control_config(&self, role: Role) -> Result<PathBuf> {
        let name = role.name();
        let path = self.plan.room.join(format!("{name}.toml"));
        let state = self.plan.room.join(&name);
        fs::create_dir_all(&state)?;
        let mut config = json!({
            "state": text(&state),
            "serve": {
                "listen": self.plan.api(role).to_string(),
                "connections_max": 5000,
                // All of the lab is on one address.
                "connections_per_address_max": 5000,
            },
            "fleet": { "listen": self.plan.members(role).to_string() },
        });
        for (table, keys) in self.plan.settings.as_object().into_iter().flatten() {
            for (key, value) in keys.as_object().into_iter().flatten() {
                config[table][key] = value.clone();
            }
        }
        if let Role::Front(index) = role {
            config["role"] = "front".into();
            let writer = format!("https://{}", self.plan.members(Role::Writer));
            config["front"] = json!({ "name": front_name(index), "writer": writer });
        }
        fs::write(&path, toml::to_string(&config)?)?;
        Ok(path)
    }

    /// PUT at the writer.
    pub fn put(&self, path: &str, value: &Value) -> Result<()> {
        let answer = agent().put(format!("{}{path}", self.url(Role::Writer))).send_json(value);
        body(&format!("PUT {path}"), answer).map(drop)
    }
}

impl Fleet {
    /// POST at the writer.
    pub fn post(&self, path: &str, value: &Value) -> Result<Value> {
        self.post_to(Role::Writer, path, value)
    }

    /// POST at a process of the control plane.
    pub fn post_to(&self, role: Role, path: &str, value: &Value) -> Result<Value> {
        let answer = agent().post(format!("{}{path}", self.url(role))).send_json(value);
        body(&format!("POST {path}"), answer)
    }

    /// DELETE at the writer.
    pub fn delete(&self, path: &str) -> Result<Value> {
        let answer = agent().delete(format!("{}{path}", self.url(Role::Writer))).call();
        body(&format!("DELETE {path}"), answer)
    }
}

impl Role {
    /// In logs and file names.
    pub fn name(self) -> String {
        match self {
            Self::Writer => "writer".to_owned(),
            Self::Front(index) => front_name(index),
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Writer => 0,
            Self::Front(index) => usize::from(index) + 1,
        }
    }
}

impl Plan {
    fn at(&self, offset: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + offset))
    }

    fn origin(&self) -> SocketAddr {
        self.at(0)
    }

    /// Where players and people ask.
    fn api(&self, role: Role) -> SocketAddr {
        self.at(1 + self.place(role) * 2)
    }

    /// Where members of the fleet ask.
    fn members(&self, role: Role) -> SocketAddr {
        self.at(2 + self.place(role) * 2)
    }

    fn appliance(&self, index: u16) -> SocketAddr {
        self.at(3 + self.fronts * 2 + index)
    }

    fn place(&self, role: Role) -> u16 {
        match role {
            Role::Writer => 0,
            Role::Front(index) => index + 1,
        }
    }

    fn appliance_config(&self, index: u16, certificate: &Certificate) -> Result<String> {
        let name = appliance_name(index);
        let room = self.room.join(&name);
        let front = |index| {
            let url = format!("https://{}", self.members(Role::Front(index)));
            json!({ "name": front_name(index), "url": url })
        };
        let config = json!({
            "name": name,
            "state": text(&room.join("state")),
            "serve": {
                "listen": [self.appliance(index).to_string()],
                "base_url": format!("https://{}", self.appliance(index)),
                "certificate": text(&certificate.chain),
                "key": text(&certificate.key),
                "workers": 1,
            },
            "drives": { "paths": [text(&room.join("drive"))] },
            "hot": { "memory": "16 MiB" },
            "control": {
                "url": format!("https://{}", self.members(Role::Writer)),
                "fronts": (0..self.fronts).map(front).collect::<Vec<_>>(),
                "report_interval": "500 ms",
            },
            "fill": { "trust": text(&certificate.ca) },
        });
        Ok(toml::to_string(&config)?)
    }
}

fn start_origin(plan: &Plan, certificate: &Certificate, source: &Path) -> Result<Process> {
    let command = [
        binary("nearcast")?,
        "origin".to_owned(),
        text(source),
        "--listen".to_owned(),
        plan.origin().to_string(),
        "--certificate".to_owned(),
        text(&certificate.chain),
        "--key".to_owned(),
        text(&certificate.key),
    ];
    let log = plan.room.join("origin.log");
    let mut origin = Process::start_anywhere("origin", &command, &[], &log)?;
    origin.wait_for_port(plan.origin())?;
    Ok(origin)
}

/// The JSON of a GET.
pub fn get(url: &str) -> Result<Value> {
    body(&format!("GET {url}"), agent().get(url).call())
}

/// The JSON of an answer, or the answer's own words as an error.
fn body(
    what: &str,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value> {
    let mut answer = answer.with_context(|| what.to_owned())?;
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

/// Name of appliance `index`.
pub fn appliance_name(index: u16) -> String {
    format!("a{}", index + 1)
}

fn front_name(index: u16) -> String {
    format!("f{}", index + 1)
}

/// A binary built together with this one.
fn binary(name: &str) -> Result<String> {
    let path = std::env::current_exe()?.with_file_name(name);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_a_fleet_listen_at_the_same_place() {
        let plan = Plan {
            room: PathBuf::from("/lab"),
            port: 18700,
            fronts: 2,
            appliances: 3,
            asset: "film".to_owned(),
            settings: Value::Null,
        };
        let roles = [Role::Writer, Role::Front(0), Role::Front(1)];
        let mut all: Vec<SocketAddr> = vec![plan.origin()];
        all.extend(roles.iter().flat_map(|role| [plan.api(*role), plan.members(*role)]));
        all.extend((0..3).map(|index| plan.appliance(index)));
        let ports: Vec<u16> = all.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, (18700..18710).collect::<Vec<_>>());
    }

    #[test]
    fn an_appliance_reports_to_the_writer_and_to_every_front() {
        let plan = Plan {
            room: PathBuf::from("/lab"),
            port: 18700,
            fronts: 2,
            appliances: 3,
            asset: "film".to_owned(),
            settings: Value::Null,
        };
        let at = |name: &str| PathBuf::from("/lab").join(name);
        let certificate = Certificate { ca: at("ca"), chain: at("chain"), key: at("key") };
        let config: toml::Table = plan.appliance_config(1, &certificate).unwrap().parse().unwrap();
        assert_eq!(config["name"].as_str(), Some("a2"));
        assert_eq!(config["control"]["url"].as_str(), Some("https://127.0.0.1:18702"));
        let fronts = config["control"]["fronts"].as_array().unwrap();
        assert_eq!(fronts[1]["url"].as_str(), Some("https://127.0.0.1:18706"));
    }
}

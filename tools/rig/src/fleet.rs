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
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use model::units::Bytes;
use rustix::process::Signal;
use serde_json::{Value, json};
use tracing::info;

use crate::api;
use crate::certificate::Certificate;
use crate::process::{On, Process, binary};

/// What a drive has without objects: a marker and logs.
pub const EMPTY_MAX: u64 = 64 << 10;
/// How long the fleet may take to become whole.
const WHOLE_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Plan {
    pub room: PathBuf,
    /// The first of its ports.
    pub port: u16,
    /// Where the origin is, and members of the fleet ask.
    pub host: Ipv4Addr,
    pub fronts: u16,
    /// The database of two writers, the second on the ports after all others; none for one writer.
    pub database: Option<String>,
    /// How many appliances; they stand in the sites in turns.
    pub appliances: u16,
    /// The sites by name, as control is told them.
    pub sites: Vec<(String, Value)>,
    /// More settings of the policy.
    pub policy: Value,
    /// Base URL of an origin that runs already; none for one of the fleet's own.
    pub source: Option<String>,
    pub asset: String,
    /// More settings of every process of the control plane, by table and key.
    pub settings: Value,
    pub appliance: Value,
    /// The same of single ones, from the first; those beyond its end have none.
    pub each: Vec<Value>,
    /// A CPU for appliances; where none is named, they run where this thread may.
    pub cpu: Option<usize>,
    /// Groups that appliances join (see `On::joins`).
    pub joins: Vec<PathBuf>,
    /// How long the fleet may take to become whole.
    pub whole_max: Duration,
}

/// A fleet that runs. Dropping it stops what is left of it.
pub struct Fleet {
    plan: Plan,
    certificate: Certificate,
    /// The writer, then the fronts, then the second writer if there is one.
    controls: Vec<Option<Process>>,
    appliances: Vec<Option<Process>>,
    origin: Option<Process>,
}

/// A process of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Writer,
    /// One of those that answer players, from 0.
    Front(u16),
    /// The other writer on the same database.
    Second,
}

impl Plan {
    /// No fronts, no appliances, in this folder and on the ports from this one.
    pub fn new(room: PathBuf, port: u16, asset: &str) -> Self {
        let (settings, appliance) = (Value::Null, Value::Null);
        Self {
            room,
            port,
            host: Ipv4Addr::LOCALHOST,
            fronts: 0,
            database: None,
            appliances: 0,
            sites: vec![("lab".to_owned(), json!({ "prefixes": ["127.0.0.0/8"] }))],
            policy: Value::Null,
            source: None,
            asset: asset.to_owned(),
            settings,
            appliance,
            each: Vec::new(),
            cpu: None,
            joins: Vec::new(),
            whole_max: WHOLE_MAX,
        }
    }
}

/// How many appliances are healthy, by what `GET /v1/fleet` says.
pub fn healthy(fleet: &Value) -> usize {
    let sites = fleet["sites"].as_array().into_iter().flatten();
    let appliances = sites.filter_map(|site| site["appliances"].as_array()).flatten();
    appliances.filter(|appliance| appliance["state"] == "healthy").count()
}

impl Fleet {
    /// Starts all of it; returns when every appliance holds all files below `source`, and every
    /// process of the control plane knows that.
    pub fn start(plan: Plan, source: &Path) -> Result<Self> {
        fs::create_dir_all(&plan.room)?;
        let certificate = Certificate::make(&plan.room)?;
        Self::start_with(plan, certificate, source)
    }

    /// The same, where servers have a certificate already.
    pub fn start_with(plan: Plan, certificate: Certificate, source: &Path) -> Result<Self> {
        let mut fleet = Self::begin(plan, certificate, Some(source))?;
        fleet.wait_until_whole(fleet.plan.whole_max)?;
        info!(fronts = fleet.plan.fronts, appliances = fleet.plan.appliances, "the fleet is whole");
        Ok(fleet)
    }

    /// The same without waiting for appliances, which have nothing to hold if there is no source.
    pub fn begin(plan: Plan, certificate: Certificate, source: Option<&Path>) -> Result<Self> {
        fs::create_dir_all(&plan.room)?;
        let own = source.filter(|_| plan.source.is_none());
        let origin = own.map(|source| plan.start_origin(&certificate, source)).transpose()?;
        let mut fleet = Self {
            controls: (0..plan.fronts + 2).map(|_| None).collect(),
            appliances: (0..plan.appliances).map(|_| None).collect(),
            plan,
            certificate,
            origin,
        };
        fleet.start_control(Role::Writer)?;
        if fleet.plan.database.is_some() {
            fleet.start_second()?;
        }
        fleet.register()?;
        if let Some(source) = source {
            fleet.ingest(source)?;
        }
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
        Ok(fleet)
    }

    /// The other writer, once this one leads, with the one file that it needs of this one.
    fn start_second(&mut self) -> Result<()> {
        crate::until("until the first writer leads", WHOLE_MAX, LOOK_EVERY, || {
            Ok(self.get(Role::Writer, "/v1/fleet").is_ok())
        })?;
        let [first, second] = [Role::Writer, Role::Second].map(|role| self.folder(role));
        fs::create_dir_all(&second)?;
        let name = "database-key.toml";
        fs::copy(first.join(name), second.join(name)).context(name)?;
        self.start_control(Role::Second)
    }

    /// Where an appliance's metrics are.
    pub fn metrics(&self, index: u16) -> SocketAddr {
        self.plan.metrics(index)
    }

    /// Base URL for players and people of a process of the control plane.
    pub fn url(&self, role: Role) -> String {
        self.plan.url(role)
    }

    /// All of the control plane, the writer first.
    pub fn roles(&self) -> Vec<Role> {
        [Role::Writer].into_iter().chain((0..self.plan.fronts).map(Role::Front)).collect()
    }

    /// Starts a process of the control plane, which listens when this returns.
    pub fn start_control(&mut self, role: Role) -> Result<()> {
        let config = self.control_config(role)?;
        let (name, address) = (role.name(), self.plan.api(role));
        let process =
            self.plan.serve("nearcast-control", &name, &config, On::default(), address)?;
        let place = self.place(role);
        self.controls[place] = Some(process);
        Ok(())
    }

    /// Starts an appliance, which listens when this returns.
    pub fn start_appliance(&mut self, index: u16) -> Result<()> {
        let name = appliance_name(index);
        let config = self.plan.room.join(format!("{name}.toml"));
        let cpus: Vec<usize> = self.plan.cpu.into_iter().collect();
        let on = On { cpus: &cpus, joins: &self.plan.joins };
        let address = self.plan.appliance(index);
        wait_until_free(address);
        let process = self.plan.serve("nearcast-appliance", &name, &config, on, address)?;
        self.appliances[usize::from(index)] = Some(process);
        Ok(())
    }

    /// Kills a process of the control plane.
    pub fn kill_control(&mut self, role: Role) {
        let place = self.place(role);
        if let Some(mut process) = self.controls[place].take() {
            process.kill();
            info!(name = role.name(), "killed");
        }
    }

    /// Asks a process of the control plane to end, and waits for that; an error if it does not.
    pub fn stop_control(&mut self, role: Role) -> Result<()> {
        let place = self.place(role);
        let mut process = self.controls[place].take().context("it does not run")?;
        process.stop()?;
        info!(name = role.name(), "ended");
        Ok(())
    }

    /// Tells a process of the control plane that its certificate has changed.
    pub fn hang_up_control(&mut self, role: Role) -> Result<()> {
        let place = self.place(role);
        self.controls[place].as_mut().context("it does not run")?.signal(Signal::HUP);
        Ok(())
    }

    /// Stops a process of the control plane where it stands, or lets it go on.
    pub fn pause_control(&mut self, role: Role, pause: bool) -> Result<()> {
        let place = self.place(role);
        let process = self.controls[place].as_mut().context("it does not run")?;
        process.signal(if pause { Signal::STOP } else { Signal::CONT });
        info!(name = role.name(), pause, "signalled");
        Ok(())
    }

    fn place(&self, role: Role) -> usize {
        usize::from(self.plan.place(role))
    }

    pub fn kill_appliance(&mut self, index: u16) {
        if let Some(mut process) = self.appliances[usize::from(index)].take() {
            process.kill();
            info!(name = appliance_name(index), "killed");
        }
    }

    /// Stops an appliance where it stands, or lets it go on.
    pub fn pause_appliance(&mut self, index: u16, pause: bool) -> Result<()> {
        let process = self.appliances[usize::from(index)].as_mut().context("it does not run")?;
        process.signal(if pause { Signal::STOP } else { Signal::CONT });
        info!(name = appliance_name(index), pause, "signalled");
        Ok(())
    }

    /// Ends the origin: what was filled needs none.
    pub fn end_origin(&mut self) {
        self.origin = None;
    }

    /// The writer and the first appliance, without the rest.
    pub fn into_pair(mut self) -> Result<(Process, Process)> {
        let take = |all: &mut Vec<Option<Process>>| all.first_mut().and_then(Option::take);
        let (writer, first) = (take(&mut self.controls), take(&mut self.appliances));
        writer.zip(first).context("a fleet without a writer or an appliance")
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

    pub fn writer_memory(&self) -> Result<Bytes> {
        let (_, most) =
            crate::site::resident(self.writer_id().context("the writer does not run")?)?;
        Ok(Bytes(most))
    }

    /// Players can begin at one of the control plane's processes.
    pub fn is_ready(&self) -> bool {
        self.roles().iter().any(|role| api::get(&format!("{}/healthz", self.url(*role))).is_ok())
    }

    /// True once this process of the control plane holds every appliance for healthy and complete.
    pub fn is_whole(&self, role: Role) -> bool {
        let Ok(fleet) = self.get(role, "/v1/fleet") else { return false };
        let all = |fleet: &Value| {
            let mut assets = fleet["assets"].as_array()?.iter();
            let asset = assets.find(|asset| asset["id"] == self.plan.asset.as_str())?;
            let wanted = usize::from(self.plan.appliances);
            Some(
                healthy(fleet) == wanted
                    && asset["copies_complete"].as_u64()? == u64::try_from(wanted).ok()?,
            )
        };
        all(&fleet).unwrap_or(false)
    }

    /// Waits until all that runs of the control plane sees the whole fleet; how long that took.
    pub fn wait_until_whole(&mut self, within: Duration) -> Result<Duration> {
        let mut left: Vec<Role> = self.roles();
        left.retain(|role| self.controls[self.place(*role)].is_some());
        crate::until("until all of them see a whole fleet", within, LOOK_EVERY, || {
            self.check()?;
            left.retain(|role| !self.is_whole(*role));
            Ok(left.is_empty())
        })
    }

    fn register(&self) -> Result<()> {
        for (name, body) in &self.plan.sites {
            self.put(&format!("/v1/sites/{name}"), body)?;
        }
        for index in 0..self.plan.appliances {
            let (site, _) = &self.plan.sites[usize::from(index) % self.plan.sites.len()];
            let path = format!("/v1/appliances/{}", appliance_name(index));
            self.put(&path, &json!({ "site": site, "weight": 1 }))?;
        }
        let mut policy = json!({ "copies": self.plan.appliances.max(1) });
        for (key, value) in self.plan.policy.as_object().into_iter().flatten() {
            policy[key] = value.clone();
        }
        self.put("/v1/policy", &policy)
    }

    /// Makes what is below this folder the asset's next version.
    pub fn ingest(&self, source: &Path) -> Result<()> {
        let own = || format!("https://{}/", self.plan.origin());
        let from = self.plan.source.clone().unwrap_or_else(own);
        self.ingest_as(source, &self.plan.asset, &from)
    }

    /// The same of another asset, whose files are below this URL.
    pub fn ingest_as(&self, source: &Path, asset: &str, from: &str) -> Result<()> {
        info!(source = %source.display(), asset, "ingesting");
        let control = self.url(Role::Writer);
        let state = text(&self.plan.room.join("ingest.state"));
        let words = ["ingest", &text(source), "--asset", asset, "--source", from];
        let more = ["--control", &control, "--state", &state];
        self.plan.run("nearcast", &[&words[..], &more].concat(), "ingest")
    }

    /// Bytes that files of these appliances' drives have. What goes meanwhile is not counted.
    pub fn on_drives(&self, appliances: Range<u16>) -> Result<u64> {
        appliances.map(|index| below(&self.plan.drive(index))).sum()
    }

    /// Formats its drive, unless it is one already, writes its configuration and enrols it.
    fn make_appliance(&self, index: u16) -> Result<()> {
        let name = appliance_name(index);
        let (drive, log) = (self.plan.drive(index), format!("{name}.setup"));
        fs::create_dir_all(&drive)?;
        fs::create_dir_all(self.plan.room.join(&name).join("state"))?;
        let drive = text(&drive);
        if self.plan.run("nearcast-appliance", &["inspect", &drive], &log).is_err() {
            let format = ["format", &drive, "--reserve", "1%"];
            self.plan.run("nearcast-appliance", &format, &log)?;
        }
        let config = self.plan.room.join(format!("{name}.toml"));
        fs::write(
            &config,
            toml::to_string(&self.plan.appliance_config(index, &self.certificate))?,
        )?;
        let code = self.code(&format!("/v1/appliances/{name}/enrolment"))?;
        self.enrol("nearcast-appliance", &config, &code, &name)
    }

    fn enrol(&self, program: &str, config: &Path, code: &str, name: &str) -> Result<()> {
        let words = ["enrol", "--config", &text(config), "--code", code];
        self.plan.run(program, &words, &format!("{name}.setup"))
    }

    /// A one-time code from the writer.
    pub fn code(&self, path: &str) -> Result<String> {
        let code = self.post(path, &json!({}))?;
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
        merge(&mut config, &self.plan.settings);
        if let (Some(database), Role::Writer | Role::Second) = (&self.plan.database, role) {
            config["folder"] = config["state"].take();
            config["state"] = database.as_str().into();
        }
        if let Role::Front(index) = role {
            config["role"] = "front".into();
            let writer = self.plan.writers();
            config["front"] = json!({ "name": front_name(index), "writer": writer });
        }
        fs::write(&path, toml::to_string(&config)?)?;
        Ok(path)
    }

    /// GET at a process of the control plane.
    pub fn get(&self, role: Role, path: &str) -> Result<Value> {
        api::get(&format!("{}{path}", self.url(role)))
    }

    /// The folder of a process of the control plane.
    pub fn folder(&self, role: Role) -> PathBuf {
        self.plan.room.join(role.name())
    }

    pub fn put(&self, path: &str, value: &Value) -> Result<()> {
        api::put(&format!("{}{path}", self.url(Role::Writer)), value).map(drop)
    }

    pub fn post(&self, path: &str, value: &Value) -> Result<Value> {
        self.post_to(Role::Writer, path, value)
    }

    /// POST at a process of the control plane.
    pub fn post_to(&self, role: Role, path: &str, value: &Value) -> Result<Value> {
        api::post(&format!("{}{path}", self.url(role)), value)
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        api::delete(&format!("{}{path}", self.url(Role::Writer)))
    }
}

impl Role {
    /// In logs and file names.
    pub fn name(self) -> String {
        match self {
            Self::Writer => "writer".to_owned(),
            Self::Front(index) => front_name(index),
            Self::Second => "second".to_owned(),
        }
    }
}

impl Plan {
    fn at(&self, offset: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port + offset))
    }

    fn origin(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.at(0).port()))
    }

    /// Base URL for players and people of a process of the control plane.
    pub fn url(&self, role: Role) -> String {
        format!("http://{}", self.api(role))
    }

    fn api(&self, role: Role) -> SocketAddr {
        self.at(1 + self.place(role) * 2)
    }

    /// Where members of the fleet ask.
    fn members(&self, role: Role) -> SocketAddr {
        SocketAddr::from((self.host, self.at(2 + self.place(role) * 2).port()))
    }

    /// Where members find whichever writer leads.
    fn writers(&self) -> String {
        let second = self.database.as_ref().map(|_| format!(",{}", self.members(Role::Second)));
        format!("https://{}{}", self.members(Role::Writer), second.unwrap_or_default())
    }

    fn after_controls(&self) -> u16 {
        3 + 2 * (self.fronts + u16::from(self.database.is_some()))
    }

    pub fn appliance(&self, index: u16) -> SocketAddr {
        self.at(self.after_controls() + index)
    }

    fn place(&self, role: Role) -> u16 {
        match role {
            Role::Writer => 0,
            Role::Front(index) => index + 1,
            Role::Second => self.fronts + 1,
        }
    }

    pub fn metrics(&self, index: u16) -> SocketAddr {
        self.at(self.after_controls() + self.appliances + index)
    }

    pub fn drive(&self, index: u16) -> PathBuf {
        self.room.join(appliance_name(index)).join("drive")
    }

    pub fn appliance_config(&self, index: u16, certificate: &Certificate) -> Value {
        let name = appliance_name(index);
        let front = |index| {
            let url = format!("https://{}", self.members(Role::Front(index)));
            json!({ "name": front_name(index), "url": url })
        };
        let mut config = json!({
            "name": name,
            "state": text(&self.room.join(&name).join("state")),
            "serve": {
                "listen": [self.appliance(index).to_string()],
                "base_url": format!("https://{}", self.appliance(index)),
                "certificate": text(&certificate.chain),
                "key": text(&certificate.key),
                "workers": 1,
            },
            "drives": { "paths": [text(&self.drive(index))] },
            "hot": { "memory": "16 MiB" },
            "control": {
                "url": self.writers(),
                "fronts": (0..self.fronts).map(front).collect::<Vec<_>>(),
                "report_interval": "500 ms",
            },
            "fill": { "trust": text(&certificate.ca) },
            "metrics": { "listen": self.metrics(index).to_string() },
        });
        merge(&mut config, &self.appliance);
        if let Some(own) = self.each.get(usize::from(index)) {
            merge(&mut config, own);
        }
        config
    }

    fn start_origin(&self, certificate: &Certificate, source: &Path) -> Result<Process> {
        let words = [
            &binary("nearcast")?,
            "origin",
            &text(source),
            "--listen",
            &self.origin().to_string(),
            "--certificate",
            &text(&certificate.chain),
            "--key",
            &text(&certificate.key),
        ];
        let (command, log) = (words.map(str::to_owned), self.room.join("origin.log"));
        Process::listening("origin", &command, On::default(), &log, self.origin())
    }

    /// Starts a program that has its configuration; returns when it listens.
    pub fn serve(
        &self,
        program: &str,
        name: &str,
        config: &Path,
        on: On<'_>,
        address: SocketAddr,
    ) -> Result<Process> {
        let command = [&binary(program)?, "serve", "--config", &text(config)].map(str::to_owned);
        Process::listening(name, &command, on, &self.room.join(format!("{name}.log")), address)
    }

    fn run(&self, program: &str, words: &[&str], log: &str) -> Result<()> {
        let words = words.iter().map(|word| (*word).to_owned());
        let command: Vec<String> = [binary(program)?].into_iter().chain(words).collect();
        Process::run(log, &command, &self.room.join(format!("{log}.log")))
    }
}

/// Puts settings over a configuration, table by table.
pub fn merge(config: &mut Value, settings: &Value) {
    for (table, keys) in settings.as_object().into_iter().flatten() {
        for (key, value) in keys.as_object().into_iter().flatten() {
            config[table][key] = value.clone();
        }
    }
}

fn below(dir: &Path) -> Result<u64> {
    let mut sum = Bytes::ZERO;
    for entry in fs::read_dir(dir)? {
        let Ok(entry) = entry else { continue };
        let Ok(about) = entry.metadata() else { continue };
        let len = if about.is_dir() { below(&entry.path())? } else { about.len() };
        sum += Bytes(len);
    }
    Ok(sum.0)
}

pub fn appliance_name(index: u16) -> String {
    format!("a{}", index + 1)
}

fn front_name(index: u16) -> String {
    format!("f{}", index + 1)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The rings of a process that was killed let go of its sockets a little after its end. Whoever
/// starts then finds out by itself if that takes longer.
fn wait_until_free(address: SocketAddr) {
    let began = Instant::now();
    while TcpListener::bind(address).is_err() && began.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_a_fleet_listen_at_the_same_place() {
        let plan = Plan { fronts: 2, appliances: 3, ..Plan::new("/lab".into(), 18700, "film") };
        let roles = [Role::Writer, Role::Front(0), Role::Front(1)];
        let mut all: Vec<SocketAddr> = vec![plan.origin()];
        all.extend(roles.iter().flat_map(|role| [plan.api(*role), plan.members(*role)]));
        all.extend((0..3).map(|index| plan.appliance(index)));
        all.extend((0..3).map(|index| plan.metrics(index)));
        let ports: Vec<u16> = all.iter().map(SocketAddr::port).collect();
        assert_eq!(ports, (18700..18713).collect::<Vec<_>>());
    }

    #[test]
    fn an_appliance_reports_to_the_writer_and_to_every_front() {
        let plan = Plan { fronts: 2, appliances: 3, ..Plan::new("/lab".into(), 18700, "film") };
        let at = |name: &str| PathBuf::from("/lab").join(name);
        let certificate = Certificate { ca: at("ca"), chain: at("chain"), key: at("key") };
        let config = plan.appliance_config(1, &certificate);
        assert_eq!(config["name"].as_str(), Some("a2"));
        assert_eq!(config["control"]["url"].as_str(), Some("https://127.0.0.1:18702"));
        let fronts = config["control"]["fronts"].as_array().unwrap();
        assert_eq!(fronts[1]["url"].as_str(), Some("https://127.0.0.1:18706"));
    }
}

//! The demo's fleet: one control plane, three appliances of two sites, two drives each.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use model::view::Health;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tracing::{debug, info};
use wire::v1::fleet::FleetOut;

use super::certificates::Certificates;
use super::child::{self, Child};
use super::doors;
use super::isps::{self, Isps};
use super::place::Place;
use super::ports::{Ports, appliance_address};
use crate::control::Control;

/// Appliance and site of each, in order of address.
pub(super) const APPLIANCES: [(&str, &str); 3] = [("a1", "s1"), ("a2", "s1"), ("a3", "s2")];

/// What a person may do to an appliance, by the verb of a URL or of a typed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Fault {
    /// SIGKILL: connections reset at once.
    Kill,
    /// SIGSTOP: connections stay open and nothing comes, until the guard ends the process.
    Hang,
    /// SIGTERM: it says that it stops, ends what it is sending and goes, as for an upgrade.
    Stop,
    /// Its site is the viewer's from now on, and the others' are far away.
    Near,
    /// SIGCONT if it hangs still, or a new process.
    Restore,
}

#[derive(Debug)]
struct Appliance {
    name: &'static str,
    site: &'static str,
    config: PathBuf,
    /// Its guard, which runs what serves.
    child: Option<Child>,
    /// The process that was stopped.
    hung: Option<Pid>,
    /// It was told to stop, and may end.
    stopping: bool,
}

/// All processes of the demo. Dropping it kills them.
#[derive(Debug)]
pub(super) struct Fleet {
    programs: Programs,
    logs: PathBuf,
    control: Child,
    appliances: Vec<Appliance>,
    /// Routes lead clients to sites, and no static prefix does.
    is_routed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Programs {
    appliance: PathBuf,
    pub(super) control: PathBuf,
    /// For sites that hear routes.
    pub(super) agent: Option<PathBuf>,
}

impl Programs {
    /// Beside this program: they are built and installed together.
    pub(super) fn find(bgp: bool) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let dir = own.parent().context("this program has no directory")?;
        let sibling = |name: &str| {
            let path = dir.join(name);
            ensure!(
                path.is_file(),
                "{} is not there: build it with `cargo build --bin {name}` (./x demo does)",
                path.display()
            );
            Ok(path)
        };
        Ok(Self {
            appliance: sibling("nearcast-appliance")?,
            control: sibling("nearcast-control")?,
            agent: bgp.then(|| sibling("nearcast-agent")).transpose()?,
        })
    }
}

impl Fleet {
    /// Starts the control plane, formats drives, starts the appliances and registers all. Call it
    /// on the main thread (see [`child`]).
    pub(super) async fn start(
        programs: Programs,
        place: &Place,
        certificates: &Certificates,
        ports: Ports,
        control_config: &Path,
        isps: Option<&Isps>,
    ) -> anyhow::Result<Self> {
        let logs = place.make_dir("logs")?;
        let control = serve("control", &programs.control, "serve", control_config, &logs)?;
        let is_routed = isps.is_some();
        let mut fleet = Self { programs, logs, control, appliances: Vec::new(), is_routed };
        for (index, (name, site)) in (0..).zip(APPLIANCES) {
            let drives = fleet.format_drives(place, name).await?;
            let mut config = appliance_config(place, certificates, ports, index, &drives)?;
            if let Some(isps) = isps {
                config["agent"] = json!({ "routes": isps.socket(site) });
            }
            let text = toml::to_string(&config).context("cannot write TOML")?;
            let config = place.write(&format!("{name}.toml"), &text)?;
            fleet.appliances.push(Appliance {
                name,
                site,
                config,
                child: None,
                hung: None,
                stopping: false,
            });
        }
        Ok(fleet)
    }

    /// Registers sites, appliances and policy, enrols the appliances and starts them.
    pub(super) async fn register(&mut self, control: &Control) -> anyhow::Result<()> {
        self.until(CONTROL_WITHIN, "the control plane to answer", || {
            let answer = control.get::<Value>("/healthz");
            Ok(answer.is_ok() || control.get::<FleetOut>("/v1/fleet").is_ok())
        })
        .await?;
        match self.is_routed {
            true => isps::register_sites(control)?,
            false => bring_near(control, APPLIANCES[0].1)?,
        }
        for (name, site) in APPLIANCES {
            let appliance = json!({ "site": site, "weight": 1 });
            control.put(&format!("/v1/appliances/{name}"), &appliance)?;
        }
        control.put("/v1/policy", &json!({ "copies": 2 }))?;
        for appliance in &mut self.appliances {
            let path = format!("/v1/appliances/{}/enrolment", appliance.name);
            let made: Value = control.post(&path, &json!({}))?;
            let code = made["code"].as_str().context("control made no code")?;
            appliance.enrol(&self.programs.appliance, code).await?;
            appliance.start(&self.programs.appliance, &self.logs)?;
        }
        self.until_healthy(control).await
    }

    /// Waits until control holds every appliance for healthy.
    pub(super) async fn until_healthy(&mut self, control: &Control) -> anyhow::Result<()> {
        self.until(HEALTHY_WITHIN, "three healthy appliances", || {
            let view: FleetOut = control.get("/v1/fleet")?;
            let all = view.sites.iter().flat_map(|site| &site.appliances);
            Ok(all.filter(|appliance| appliance.state == Health::Healthy).count()
                == APPLIANCES.len())
        })
        .await
    }

    /// Asks `done` a few times a second until it says yes, while everything that should run runs.
    pub(super) async fn until(
        &mut self,
        within: Duration,
        what: &str,
        mut done: impl FnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        loop {
            self.must_run()?;
            match done() {
                Ok(true) => return Ok(()),
                Ok(false) | Err(_) if start.elapsed() < within => {}
                Ok(false) => {
                    let seconds = within.as_secs();
                    bail!(
                        "waited {seconds} s for {what} in vain; the logs end so:\n{}",
                        self.tails()
                    )
                }
                Err(error) => return Err(error).with_context(|| format!("waiting for {what}")),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// An error if control, or an appliance that nobody killed, has ended.
    pub(super) fn must_run(&mut self) -> anyhow::Result<()> {
        self.control.must_run()?;
        let mut running = self.appliances.iter_mut().filter(|appliance| !appliance.stopping);
        running.try_for_each(|appliance| appliance.child.as_mut().map_or(Ok(()), Child::must_run))
    }

    /// Applies a fault to an appliance; to apply it twice is the same as once. Gives
    /// its condition then: `running`, `hung`, `stopped` or `killed`.
    pub(super) async fn fault(
        &mut self,
        control: &Control,
        name: &str,
        fault: Fault,
    ) -> anyhow::Result<&'static str> {
        let known = APPLIANCES.map(|(name, _)| name).join(", ");
        let Some(appliance) = self.appliances.iter_mut().find(|a| a.name == name) else {
            bail!("there is no appliance \"{name}\": there are {known}");
        };
        let before = appliance.condition();
        match (fault, &mut appliance.child) {
            (Fault::Kill, Some(child)) => {
                child.kill().await;
                appliance.child = None;
                appliance.hung = None;
            }
            (Fault::Stop, Some(child)) => {
                child.signal(Signal::TERM);
                appliance.stopping = true;
            }
            (Fault::Hang, Some(child)) => {
                let serving = child.guarded().context("it is starting: try again")?;
                kill_process(serving, Signal::STOP).context("the process cannot be stopped")?;
                appliance.hung = Some(serving);
            }
            (Fault::Near, Some(_) | None) if self.is_routed => {
                bail!("routes say which site is near: withdraw or announce one")
            }
            (Fault::Near, Some(_) | None) => bring_near(control, appliance.site)?,
            (Fault::Restore, Some(child)) if appliance.stopping => {
                child.stop(STOP_WITHIN).await;
                appliance.start(&self.programs.appliance, &self.logs)?;
            }
            (Fault::Restore, Some(_)) => {
                if let ("hung", Some(hung)) = (before, appliance.hung.take()) {
                    // It may have been ended this moment.
                    let _ = kill_process(hung, Signal::CONT);
                }
            }
            (Fault::Restore, None) => appliance.start(&self.programs.appliance, &self.logs)?,
            (Fault::Kill | Fault::Stop, None) => {}
            (Fault::Hang, None) => bail!("{name} is killed: restore it first"),
        }
        let now = appliance.condition();
        if now != before {
            info!(appliance = name, "{now}");
        }
        Ok(now)
    }

    /// Every appliance, as the page is told.
    pub(super) fn conditions(&self) -> Value {
        let one =
            |a: &Appliance| json!({ "id": a.name, "site": a.site, "condition": a.condition() });
        self.appliances.iter().map(one).collect()
    }

    /// Stops everything, all at once, and waits for it.
    pub(super) async fn stop(mut self) {
        let mut stopping = tokio::task::JoinSet::new();
        for appliance in self.appliances.drain(..) {
            if let Some(mut child) = appliance.child {
                stopping.spawn(async move { child.stop(STOP_WITHIN).await });
            }
        }
        while stopping.join_next().await.is_some() {}
        self.control.stop(STOP_WITHIN).await;
    }

    async fn format_drives(&self, place: &Place, name: &str) -> anyhow::Result<Vec<PathBuf>> {
        let mut drives = Vec::new();
        for drive in ["drive0", "drive1"] {
            let dir = place.make_dir(&format!("{name}/{drive}"))?;
            let mut command = child::command(&self.programs.appliance)?;
            // The demo's drives share one filesystem with everything else: a small reserve each.
            command.arg("format").arg(&dir).args(["--reserve", "1%"]);
            let output = command.output().await.context("cannot run nearcast-appliance format")?;
            ensure!(
                output.status.success(),
                "a drive could not be formatted at {}: {}",
                dir.display(),
                String::from_utf8_lossy(&output.stderr).trim()
            );
            drives.push(dir);
        }
        Ok(drives)
    }

    fn tails(&self) -> String {
        let names = ["control"].into_iter().chain(APPLIANCES.map(|(name, _)| name));
        let log =
            |name| format!("{name}:\n{}", child::tail(&self.logs.join(format!("{name}.log"))));
        names.map(log).collect()
    }
}

impl Appliance {
    /// Enrols it: gives it the code on its standard input, as an operator would type it.
    async fn enrol(&self, program: &Path, code: &str) -> anyhow::Result<()> {
        let mut command = child::command(program)?;
        command.arg("enrol").arg("--config").arg(&self.config);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot run nearcast-appliance enrol")?;
        let mut input = child.stdin.take().context("its standard input is ours")?;
        input.write_all(code.as_bytes()).await.context("cannot give the code")?;
        drop(input);
        let output = child.wait_with_output().await.context("nearcast-appliance enrol")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} did not enrol: {}", self.name, said.trim());
        Ok(())
    }

    fn start(&mut self, program: &Path, logs: &Path) -> anyhow::Result<()> {
        self.child = Some(serve(self.name, program, "guard", &self.config, logs)?);
        (self.hung, self.stopping) = (None, false);
        Ok(())
    }

    fn condition(&self) -> &'static str {
        match &self.child {
            None => "killed",
            Some(_) if self.stopping => "stopped",
            Some(child) if self.hung.is_some() && child.guarded() == self.hung => "hung",
            Some(_) => "running",
        }
    }
}

/// Makes `near` the site of viewers on this machine; each other is some other place.
fn bring_near(control: &Control, near: &str) -> anyhow::Result<()> {
    // The far ones first: a prefix is of one site at a time.
    for (site, prefixes) in FAR.iter().filter(|(site, _)| *site != near) {
        control.put(&format!("/v1/sites/{site}"), &json!({ "prefixes": prefixes }))?;
    }
    let here = json!({ "prefixes": ["127.0.0.1/32", "::1/128"] });
    control.put(&format!("/v1/sites/{near}"), &here).map(drop)
}

/// The prefixes of each site while another is the viewer's (RFC 5737, RFC 3849).
const FAR: [(&str, [&str; 2]); 2] =
    [("s1", ["203.0.113.0/24", "2001:db8:1::/48"]), ("s2", ["198.51.100.0/24", "2001:db8:2::/48"])];

/// Runs `verb`, which serves, with its log in a file.
fn serve(
    name: &str,
    program: &Path,
    verb: &str,
    config: &Path,
    logs: &Path,
) -> anyhow::Result<Child> {
    let mut command = child::command(program)?;
    command.arg(verb).arg("--config").arg(config);
    let child = Child::start(name, command, &logs.join(format!("{name}.log")))?;
    debug!(name, pid = child.pid().map(Pid::as_raw_nonzero), "started");
    Ok(child)
}

pub(super) fn write_control_config(
    place: &Place,
    ports: Ports,
    controls: &str,
    has_doors: bool,
) -> anyhow::Result<PathBuf> {
    let mut config = json!({
        "state": place.make_dir("control")?,
        "serve": { "listen": format!("127.0.0.1:{}", ports.control) },
        "fleet": { "listen": format!("127.0.0.1:{}", ports.fleet) },
        // Whoever breaks something here wants to see it mended.
        "health": { "recovery": "5 s" },
        "demo": { "controls": controls },
    });
    if has_doors {
        config["serve"]["trusted_proxies"] = json!([doors::SOURCE]);
        config["serve"]["proxy_protocol"] = true.into();
    }
    place.write("control.toml", &toml::to_string(&config).context("cannot write TOML")?)
}

fn appliance_config(
    place: &Place,
    certificates: &Certificates,
    ports: Ports,
    index: u8,
    drives: &[PathBuf],
) -> anyhow::Result<Value> {
    let (name, _) = APPLIANCES[usize::from(index)];
    let address = appliance_address(index);
    Ok(json!({
        "name": name,
        "state": place.make_dir(&format!("{name}/state"))?,
        "serve": {
            "listen": [format!("{address}:{}", ports.tls)],
            "plain_listen": [format!("{address}:{}", ports.plain)],
            "connections_max": 500,
            "certificate": certificates.chain,
            "key": certificates.key,
            "workers": 1,
        },
        "drives": { "paths": drives },
        "hot": { "memory": "32 MiB" },
        "control": {
            "url": format!("https://127.0.0.1:{}", ports.fleet),
            "report_interval": "500 ms",
        },
        "peer": { "listen": [format!("{address}:{}", ports.peer)] },
        "fill": { "trust": certificates.authority },
    }))
}

const CONTROL_WITHIN: Duration = Duration::from_secs(20);
const HEALTHY_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(150);

/// An appliance lets running answers end for longer than this; a demo does not wait for them.
const STOP_WITHIN: Duration = Duration::from_secs(3);

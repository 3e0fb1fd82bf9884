//! The real appliance as a process, and a viewer that compares every byte.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use model::units::Bytes;

use super::{APPLIANCE, Film, Object};
use crate::api;
use crate::certificate::Certificate;
use crate::process::{On, Process, binary};

/// How an appliance is started.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// Names its configuration and its log.
    pub name: &'a str,
    /// Its drives, formatted.
    pub drives: &'a [PathBuf],
    pub state: &'a Path,
    /// True if it can reach control.
    pub control: bool,
    /// True if its guard starts it: then the process is the guard's.
    pub guarded: bool,
    /// More of its `[serve]`; one worker, where nothing is said.
    pub serve: &'a str,
    /// More of its configuration.
    pub more: &'a str,
    /// Settings in its environment, which win over the configuration: name and value.
    pub settings: &'a [(&'a str, String)],
}

impl<'a> Setup<'a> {
    /// One that can reach control, with nothing said otherwise.
    pub fn new(name: &'a str, drives: &'a [PathBuf], state: &'a Path) -> Self {
        Self {
            name,
            drives,
            state,
            control: true,
            guarded: false,
            serve: "",
            more: "",
            settings: &[],
        }
    }
}

/// A running appliance. Killed when dropped, as by `kill -9`.
pub struct Appliance {
    process: Process,
    /// Where viewers ask, without TLS: on loopback, of the same worker.
    pub address: SocketAddr,
    pub secure: SocketAddr,
    pub metrics: SocketAddr,
}

/// What a viewer got for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// All of it, every byte right.
    Right,
    /// Something else with status 200: so many bytes are not what they should be.
    Wrong(u64),
    /// A status that says no.
    Refused,
    /// Less than was announced, or no answer: the drive failed under it.
    Broken,
}

/// Somebody who asks for objects, over one connection while it lasts.
pub struct Viewer {
    agent: ureq::Agent,
    address: SocketAddr,
}

/// A start takes well under a second; a machine that is busy takes longer.
const START_MAX: Duration = Duration::from_secs(30);
const STARTS_MAX: u32 = 5;
/// What the appliance logs once it listens.
const SERVING: &str = "server: serving ";
const ANSWER_MAX: Duration = Duration::from_secs(20);

impl Appliance {
    pub(crate) fn start(
        dir: &Path,
        certificate: &Certificate,
        control: &str,
        setup: &Setup<'_>,
    ) -> Result<Self> {
        // Somebody may take a port between our look and the start: that is not the appliance's.
        for _ in 1..STARTS_MAX {
            match Self::try_start(dir, certificate, control, setup) {
                Err(error) if format!("{error:#}").contains("Address already in use") => {}
                result => return result,
            }
        }
        Self::try_start(dir, certificate, control, setup)
    }

    fn try_start(
        dir: &Path,
        certificate: &Certificate,
        control: &str,
        setup: &Setup<'_>,
    ) -> Result<Self> {
        let [secure, address, metrics] = free_ports()?;
        let nobody = "https://127.0.0.1:9";
        let control = if setup.control { control } else { nobody };
        let config = config(certificate, control, setup, secure, address, metrics);
        let path = dir.join(format!("{}.toml", setup.name));
        fs::write(&path, config)?;
        let log = dir.join(format!("{}.log", setup.name));
        // What an appliance of this name said before is not of this one.
        let _ = fs::remove_file(&log);
        // A file each, unless it is said otherwise: many look at what lies on which drive.
        let settings = ["NO_COLOR=1", "NEARCAST_LOG=info", "APPLIANCE_FILL_UNIT=0 B"];
        let own = setup.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let verb = if setup.guarded { "guard" } else { "serve" };
        let words = [&binary("nearcast-appliance")?, verb, "--config"];
        let command: Vec<String> = ["env".to_owned()]
            .into_iter()
            .chain(settings.map(str::to_owned))
            .chain(own)
            .chain(words.map(str::to_owned))
            .chain([path.display().to_string()])
            .collect();
        let process = Process::start("the appliance", &command, On::default(), &log)?;
        let mut appliance = Self { process, address, secure, metrics };
        let serves = || fs::read_to_string(&log).is_ok_and(|text| text.contains(SERVING));
        appliance.wait_until("listening", START_MAX, serves)?;
        Ok(appliance)
    }

    /// Makes a folder, where there is none, and a drive of it.
    pub fn format(drive: &Path) -> Result<()> {
        fs::create_dir_all(drive)?;
        let made = std::process::Command::new(binary("nearcast-appliance")?)
            .args(["format", "--reserve", "1%", "--log-level", "warn"])
            .arg(drive)
            .output()?;
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        ensure!(made.status.success(), "cannot format {}: {said}", drive.display());
        Ok(())
    }

    /// Waits until `ready`; the end of the process, a signal and the time are errors.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        self.process.wait_until(what, patience, || Ok(ready()))
    }

    pub fn log_text(&self) -> String {
        self.process.log_text()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }

    /// True until it has ended.
    pub fn is_running(&mut self) -> bool {
        self.process.check().is_ok()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop()
    }

    pub fn metrics_text(&self) -> Option<String> {
        api::page(&format!("http://{}/metrics", self.metrics)).ok()
    }

    /// The value of a metric, by its name without prefix; none if it is not there.
    pub fn metric(&self, name: &str) -> Option<f64> {
        api::metric(&self.metrics_text()?, name)
    }
}

impl Drop for Appliance {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Viewer {
    /// Asks the appliance that listens there.
    pub fn new(address: SocketAddr) -> Self {
        Self { agent: api::agent(ANSWER_MAX), address }
    }

    /// Asks for an object below `base` (see `Stage::base`) and compares all of it.
    pub fn get(&self, base: &str, object: &Object) -> Got {
        let url = format!("http://{}{base}{}", self.address, object.path);
        let Ok(mut answer) = self.agent.get(url).call() else { return Got::Broken };
        if answer.status().as_u16() != 200 {
            return Got::Refused;
        }
        match answer.body_mut().with_config().limit(u64::MAX).read_to_vec() {
            Ok(bytes) => match differing(&bytes, &object.bytes) {
                0 => Got::Right,
                wrong => Got::Wrong(wrong),
            },
            Err(_) => Got::Broken,
        }
    }

    /// True if it has all of a film, byte by byte.
    pub fn has_all(&self, base: &str, film: &Film) -> bool {
        film.objects.iter().all(|object| self.get(base, object) == Got::Right)
    }
}

/// Bytes that are not as wanted, too many and missing ones included.
pub fn differing(got: &[u8], wanted: &[u8]) -> u64 {
    if got == wanted {
        return 0;
    }
    let pairs = got.iter().zip(wanted).filter(|(a, b)| a != b).count();
    Bytes::of(pairs + got.len().abs_diff(wanted.len())).0
}

fn config(
    certificate: &Certificate,
    control: &str,
    setup: &Setup<'_>,
    secure: SocketAddr,
    plain: SocketAddr,
    metrics: SocketAddr,
) -> String {
    let quoted = |path: &Path| toml::Value::String(path.display().to_string()).to_string();
    let drives: Vec<String> = setup.drives.iter().map(|drive| quoted(drive)).collect();
    format!(
        "name = \"{APPLIANCE}\"
state = {state}
[serve]
listen = [\"{secure}\"]
plain_listen = [\"{plain}\"]
certificate = {chain}
key = {key}
{serve}
[drives]
paths = [{drives}]
[hot]
memory = \"16 MiB\"
[control]
url = \"{control}\"
report_interval = \"100 ms\"
[metrics]
listen = \"{metrics}\"
{more}",
        state = quoted(setup.state),
        chain = quoted(&certificate.chain),
        key = quoted(&certificate.key),
        serve = if setup.serve.is_empty() { "workers = 1" } else { setup.serve },
        drives = drives.join(", "),
        more = setup.more,
    )
}

/// Three ports that nobody has now.
pub fn free_ports() -> Result<[SocketAddr; 3]> {
    let any = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let listeners = [any()?, any()?, any()?];
    let [a, b, c] = listeners.each_ref().map(TcpListener::local_addr);
    Ok([a?, b?, c?])
}

//! ISPs' routers and the BIRDs of sites, in namespaces of this machine: what `trial` and the demo
//! announce and withdraw routes with.
//!
//! ```text
//! Plan: speakers, sessions ──> a namespace each, on one segment ──> a configuration each
//! command(speaker) ──> a real BIRD, which the caller starts and ends
//! announce(from, to, routes) ──> configuration ──> birdc configure
//! ```
//!
//! It takes root, iproute2 and bird2. Namespaces go when [`Routers`] is dropped; those of a run
//! that was killed go when the next run of the same family begins.

mod config;
mod spaces;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

pub use config::Announced;
use spaces::Spaces;

const BIRD: &str = "/usr/sbin/bird";
const BIRDC: &str = "/usr/sbin/birdc";

/// Who speaks BGP, and with whom.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Names of namespaces begin so: letters, which no other kind of run has.
    pub family: &'static str,
    /// All who speak BGP, each with its AS; its address ends in its place here, from 1.
    pub speakers: &'static [(&'static str, u32)],
    /// Who announces to whom.
    pub sessions: &'static [(&'static str, &'static str)],
}

/// The namespaces, and the routers' configurations.
#[derive(Debug)]
pub struct Routers {
    plan: Plan,
    room: PathBuf,
    announced: BTreeMap<(String, String), Announced>,
    spaces: Spaces,
}

impl Routers {
    /// Makes the namespaces, and writes configurations into `room`. Runs of one family that have
    /// different numbers are apart; two of the same number are refused.
    pub fn make(
        plan: Plan,
        room: &Path,
        number: u32,
        announces: impl Fn(&str, &str) -> Announced,
    ) -> Result<Self> {
        let lacking = lacking();
        ensure!(lacking.is_empty(), "namespaces with routers lack {}", lacking.join("; and "));
        fs::create_dir_all(room)?;
        let spaces = Spaces::make(&plan, number)?;
        let announced = plan.sessions.iter().map(|(from, to)| {
            let key = ((*from).to_owned(), (*to).to_owned());
            (key, announces(from, to))
        });
        let announced = announced.collect();
        let routers = Self { plan, room: room.to_owned(), announced, spaces };
        plan.speakers.iter().try_for_each(|(name, _)| routers.write(name))?;
        Ok(routers)
    }

    /// What runs a speaker's BIRD in the foreground; its log is standard error.
    pub fn command(&self, name: &str) -> Vec<String> {
        let space = self.spaces.of(name);
        let [conf, ctl, pid] = ["conf", "ctl", "pid"].map(|kind| self.text(name, kind));
        let words = ["ip", "netns", "exec", &space, BIRD, "-f", "-c", &conf, "-s", &ctl];
        words.into_iter().chain(["-P", &pid]).map(str::to_owned).collect()
    }

    /// BIRD's control socket.
    pub fn control(&self, name: &str) -> PathBuf {
        self.path(name, "ctl")
    }

    /// A speaker announces this to another from now on, and nothing else.
    pub fn announce(&mut self, from: &str, to: &str, announced: &Announced) -> Result<()> {
        self.announced.insert((from.to_owned(), to.to_owned()), announced.clone());
        self.write(from)?;
        run(BIRDC, &["-s", &self.text(from, "ctl"), "configure"])
    }

    fn write(&self, name: &str) -> Result<()> {
        let path = self.path(name, "conf");
        let text = config::of(&self.plan, &self.announced, name)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.room.join(format!("{name}.bird.{kind}"))
    }

    fn text(&self, name: &str, kind: &str) -> String {
        self.path(name, kind).display().to_string()
    }
}

/// What this process and this machine lack for it, each with a remedy.
pub fn lacking() -> Vec<&'static str> {
    let has_ip = Command::new("ip").arg("-V").output().is_ok();
    let all = [
        (rustix::process::geteuid().is_root(), "root: run it with sudo"),
        (has_ip, "the program ip: install iproute2"),
        (Path::new(BIRD).is_file(), "BIRD 2 at /usr/sbin/bird: install bird2"),
        (
            Path::new("/proc/self/ns/net").exists(),
            "a kernel with network namespaces (CONFIG_NET_NS)",
        ),
    ];
    all.into_iter().filter(|(is_there, _)| !is_there).map(|(_, what)| what).collect()
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{program} {}: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

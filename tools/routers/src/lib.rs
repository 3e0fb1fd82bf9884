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
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags};
use rustix::process::PidfdFlags;

pub use config::Announced;
use spaces::Spaces;

const BIRD: &str = "/usr/sbin/bird";
const BIRDC: &str = "/usr/sbin/birdc";

/// Arbitrary: a BIRD that lives answers in milliseconds, and whoever ordered it waits.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

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

    /// A speaker announces this to another from now on, and nothing else. BIRD has
    /// [`ANSWERS_WITHIN`] to take it; if it fails, the next order begins from what was before.
    pub fn announce(&mut self, from: &str, to: &str, announced: &Announced) -> Result<()> {
        let key = (from.to_owned(), to.to_owned());
        let before = self.announced.insert(key.clone(), announced.clone());
        let configured = self.write(from).and_then(|()| {
            let arguments = ["-s", &self.text(from, "ctl"), "configure"];
            run_within(ANSWERS_WITHIN, BIRDC, &arguments)
        });
        if configured.is_err() {
            match before {
                Some(before) => self.announced.insert(key, before),
                None => self.announced.remove(&key),
            };
            // A BIRD that starts again reads it.
            self.write(from)?;
        }
        configured
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

/// Runs a program to its end: an error has what it said.
pub fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("cannot run {program}"))?;
    succeeded(program, arguments, &output)
}

/// The same, and it is ended where it takes longer. It may print as much as a pipe holds.
fn run_within(within: Duration, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let has_ended = ends_within(&child, within);
    if !matches!(has_ended, Ok(true)) {
        child.kill()?;
        child.wait()?;
        let words = arguments.join(" ");
        ensure!(has_ended?, "{program} {words} has not ended in {within:?}: its log may say why");
    }
    succeeded(program, arguments, &child.wait_with_output()?)
}

fn ends_within(child: &Child, within: Duration) -> Result<bool> {
    let id = rustix::process::Pid::from_child(child);
    let end = rustix::process::pidfd_open(id, PidfdFlags::empty())?;
    let mut ends = [PollFd::new(&end, PollFlags::IN)];
    Ok(0 < rustix::event::poll(&mut ends, Some(&within.try_into()?))?)
}

fn succeeded(program: &str, arguments: &[&str], output: &Output) -> Result<()> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("{program} {}: {}", arguments.join(" "), said.trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_ended_and_named() {
        let said = run_within(Duration::from_millis(50), "sleep", &["600"]).unwrap_err();
        assert_eq!(said.to_string(), "sleep 600 has not ended in 50ms: its log may say why");
    }

    #[test]
    fn a_program_that_ends_in_time_is_heard() {
        run_within(Duration::from_secs(60), "true", &[]).unwrap();
        let arguments = ["-c", "echo no >&2; exit 3"];
        let said = run_within(Duration::from_secs(60), "sh", &arguments).unwrap_err();
        assert_eq!(said.to_string(), "sh -c echo no >&2; exit 3: no");
    }

    #[test]
    fn routes_that_no_bird_took_are_not_announced() {
        const PLAN: Plan = Plan {
            family: "nctest",
            speakers: &[("isp", 64_500), ("s1", 64_501)],
            sessions: &[("isp", "s1")],
        };
        let room = std::env::temp_dir().join(format!("nearcast-routers-{}", std::process::id()));
        fs::create_dir_all(&room).unwrap();
        let key = ("isp".to_owned(), "s1".to_owned());
        let spaces = Spaces::none(&room).unwrap();
        let announced = BTreeMap::from([(key.clone(), Announced::isp(1))]);
        let mut routers = Routers { plan: PLAN, room: room.clone(), announced, spaces };
        routers.write("isp").unwrap();
        let written = || fs::read_to_string(room.join("isp.bird.conf")).unwrap();
        let before = written();
        routers.announce("isp", "s1", &Announced::default()).unwrap_err();
        let kept: Vec<&str> = routers.announced[&key].prefixes().collect();
        assert_eq!(kept, ["21.1.0.0/22", "2a0b:1::/32"]);
        assert_eq!(written(), before, "a BIRD that starts again announces it still");
        drop(routers);
        fs::remove_dir_all(&room).unwrap();
    }
}

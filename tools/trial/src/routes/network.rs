//! Three ISPs' routers, and a BIRD at each of three sites, in namespaces on one segment.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rig::process::{On, Process};

const BIRD: &str = "/usr/sbin/bird";
const BIRDC: &str = "/usr/sbin/birdc";
const BRIDGE: &str = "ncrobr";

/// All who speak BGP, each with its AS; its address ends in its place here, from 1.
const SPEAKERS: [(&str, u32); 6] = [
    ("isp1", 64501),
    ("isp2", 64502),
    ("isp3", 64503),
    ("s1", 64601),
    ("s2", 64602),
    ("ix", 64600),
];

/// Who announces to whom.
const SESSIONS: [(&str, &str); 5] =
    [("isp1", "s1"), ("isp2", "s2"), ("isp1", "ix"), ("isp2", "ix"), ("isp3", "ix")];

/// What an ISP announces in one session.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    v4: Vec<String>,
    v6: Vec<String>,
}

/// The namespaces and the routers; all of it goes when it is dropped.
pub(super) struct Network {
    room: PathBuf,
    announced: BTreeMap<(String, String), Announced>,
    routers: BTreeMap<&'static str, Process>,
    namespaces: Namespaces,
}

/// One for each speaker, and one for the segment, by names that begin so.
struct Namespaces(String);

impl Announced {
    /// The prefixes of an ISP.
    pub(super) fn isp(number: u8) -> Self {
        Self { v4: vec![format!("21.{number}.0.0/22")], v6: vec![format!("2a0b:{number}::/32")] }
    }

    pub(super) fn and(mut self, v4: &[&str], v6: &[&str]) -> Self {
        self.v4.extend(v4.iter().map(|prefix| (*prefix).to_owned()));
        self.v6.extend(v6.iter().map(|prefix| (*prefix).to_owned()));
        self
    }

    pub(super) fn without(mut self, prefix: &str) -> Self {
        self.v4.retain(|of| of != prefix);
        self.v6.retain(|of| of != prefix);
        self
    }
}

impl Network {
    /// As root, with iproute2 and bird2. Those of two ports are apart.
    pub(super) fn start(room: &Path, port: u16) -> Result<Self> {
        let is_there = Path::new(BIRD).is_file();
        ensure!(is_there, "{BIRD} is not installed: install Debian's package bird2");
        fs::create_dir_all(room)?;
        let namespaces = Namespaces::make(port)?;
        let mut announced = BTreeMap::new();
        for (from, to) in SESSIONS {
            let number = from.trim_start_matches("isp").parse()?;
            announced.insert((from.to_owned(), to.to_owned()), Announced::isp(number));
        }
        let (room, routers) = (room.to_owned(), BTreeMap::new());
        let mut network = Self { room, announced, routers, namespaces };
        for (name, _) in SPEAKERS {
            fs::write(network.path(name, "conf"), network.config(name)?)?;
            let (conf, ctl, pid) =
                (network.text(name, "conf"), network.text(name, "ctl"), network.text(name, "pid"));
            let command = [
                "ip",
                "netns",
                "exec",
                &network.namespaces.of(name),
                BIRD,
                "-f",
                "-c",
                &conf,
                "-s",
                &ctl,
                "-P",
                &pid,
            ];
            let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
            let log = network.path(name, "log");
            network.routers.insert(name, Process::start(name, &command, On::default(), &log)?);
        }
        Ok(network)
    }

    /// BIRD's control socket at a site.
    pub(super) fn control(&self, name: &str) -> PathBuf {
        self.path(name, "ctl")
    }

    /// An ISP announces this to a site from now on, and nothing else.
    pub(super) fn announce(&mut self, from: &str, to: &str, announced: &Announced) -> Result<()> {
        self.announced.insert((from.to_owned(), to.to_owned()), announced.clone());
        fs::write(self.path(from, "conf"), self.config(from)?)?;
        run(BIRDC, &["-s", &self.text(from, "ctl"), "configure"])
    }

    /// A router is gone, its sessions with it.
    pub(super) fn kill(&mut self, name: &str) {
        if let Some(mut process) = self.routers.remove(name) {
            process.kill();
        }
    }

    fn path(&self, name: &str, kind: &str) -> PathBuf {
        self.room.join(format!("{name}.bird.{kind}"))
    }

    fn text(&self, name: &str, kind: &str) -> String {
        self.path(name, kind).display().to_string()
    }

    fn config(&self, name: &str) -> Result<String> {
        let (own, number) = speaker(name)?;
        let mut text = format!(
            "log stderr {{ warning, error, fatal, auth }};\nrouter id 10.98.0.{own};\n\
             protocol device {{}}\n"
        );
        for (from, to) in SESSIONS {
            let is_router = from == name;
            if !is_router && to != name {
                continue;
            }
            let other = if is_router { to } else { from };
            let (peer, peer_number) = speaker(other)?;
            // BIRD's own wait after an error is a minute.
            let session = format!(
                "local 10.98.0.{own} as {number}; neighbor 10.98.0.{peer} as {peer_number}; \
                 hold time 9; keepalive time 3; connect delay time 1; error wait time 1, 5;"
            );
            let key = (from.to_owned(), to.to_owned());
            if let (true, Some(Announced { v4, v6 })) = (is_router, self.announced.get(&key)) {
                let route = |prefix: &String| format!("route {prefix} blackhole; ");
                let [v4, v6] = [v4, v6].map(|all| all.iter().map(route).collect::<String>());
                text.push_str(&format!(
                    "ipv4 table four_{to}; ipv6 table six_{to};\n\
                     protocol static s4_{to} {{ ipv4 {{ table four_{to}; }}; {v4} }}\n\
                     protocol static s6_{to} {{ ipv6 {{ table six_{to}; }}; {v6} }}\n\
                     protocol bgp {to} {{ {session}\n\
                     ipv4 {{ table four_{to}; import none; export all; next hop self; }};\n\
                     ipv6 {{ table six_{to}; import none; export all; \
                     next hop address fd98::{own}; }}; }}\n"
                ));
            } else {
                // As docs/operate/routes.md says it.
                text.push_str(&format!(
                    "protocol bgp {other} {{ {session}\n\
                     ipv4 {{ import all; export none; }}; ipv6 {{ import all; export none; }}; }}\n"
                ));
            }
        }
        Ok(text)
    }
}

impl Namespaces {
    fn make(port: u16) -> Result<Self> {
        let namespaces = Self(format!("ncro{port}"));
        // Of a run that was killed.
        namespaces.remove();
        let hub = namespaces.of("hub");
        ip(&["netns", "add", &hub]).context("namespaces need root")?;
        ip(&["-n", &hub, "link", "add", BRIDGE, "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", BRIDGE, "up"])?;
        for (at, (name, _)) in (1..).zip(SPEAKERS) {
            let (space, link) = (namespaces.of(name), format!("nr{name}"));
            ip(&["netns", "add", &space])?;
            let far = ["type", "veth", "peer", "name", "eth0", "netns", &space];
            ip(&[&["-n", &hub, "link", "add", &link], &far[..]].concat())?;
            ip(&["-n", &hub, "link", "set", &link, "master", BRIDGE, "up"])?;
            ip(&["-n", &space, "link", "set", "lo", "up"])?;
            ip(&["-n", &space, "address", "add", &format!("10.98.0.{at}/24"), "dev", "eth0"])?;
            let v6 = format!("fd98::{at}/64");
            ip(&["-n", &space, "address", "add", &v6, "dev", "eth0", "nodad"])?;
            ip(&["-n", &space, "link", "set", "eth0", "up"])?;
        }
        Ok(namespaces)
    }

    fn remove(&self) {
        for name in SPEAKERS.iter().map(|(name, _)| *name).chain(["hub"]) {
            if Path::new("/var/run/netns").join(self.of(name)).exists() {
                let _ = ip(&["netns", "delete", &self.of(name)]);
            }
        }
    }

    fn of(&self, name: &str) -> String {
        format!("{}-{name}", self.0)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The end of a speaker's address, and its AS.
fn speaker(name: &str) -> Result<(u8, u32)> {
    let found = (1..).zip(SPEAKERS).find(|(_, (of, _))| *of == name);
    found.map(|(at, (_, number))| (at, number)).context("no such speaker")
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

//! A site of two or three machines in namespaces of their own, on one segment with its viewers, or
//! behind a router.
//!
//! ```text
//! viewers, control, origin ── bridge ─┬─ a1: appliance, agent, keepalived
//!   (this process's namespace)        └─ a2: the same
//!
//! viewers, control, origin ─┬─ bridge ── a1: appliance, agent, BIRD on its loopback's addresses
//!   and BIRD, as router     └─ bridge ── a2: the same
//! ```

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum as _;
use rig::certificate::Certificate;
use rig::fleet::{Fleet, Plan, Role, merge};
use rig::process::{On, Process, binary};
use routers::run;
use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, json};
use tracing::info;

/// The segment: viewers are .1, machines from .11 on, their service addresses from .101 on. Where
/// there is a router, each machine has the address that it has here on a segment of its own.
const SEGMENT: [u8; 3] = [10, 99, 64];
/// What viewers ask.
pub(crate) const PORT: u16 = 8443;
/// What siblings ask.
const PEER_PORT: u16 = 9443;
const BIRD: &str = "/usr/sbin/bird";
pub(crate) const ASSET: &str = "film";
const READY_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The site; all of it goes when it is dropped.
pub(crate) struct World {
    machines: Vec<Machine>,
    /// BIRD, on the router and on the machines.
    _routers: Vec<Process>,
    pub(crate) fleet: Fleet,
    pub(crate) room: PathBuf,
    /// The public key of all servers, as Chromium wants it.
    pub(crate) spki: String,
    network: Network,
}

/// One machine: dropping it ends its processes, and its agent gives its addresses away.
struct Machine {
    appliance: Process,
    _agent: Process,
}

/// How machines and viewers are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum By {
    /// One segment, and VRRP.
    Keepalived,
    /// A router, and BGP with BFD.
    Bird,
}

/// The namespaces and the bridges. Their names are the same in each run: while this one has the
/// lock, no other begins.
struct Network {
    machines: u8,
    _lock: File,
}

/// Has the number of the process that has it.
const LOCK: &str = "/run/nearcast-lab-takeover.lock";

/// Most machines of a site.
const MACHINES_MAX: u8 = 3;

fn bridge(index: u8) -> String {
    format!("nctobr{index}")
}

/// The router's address on the segment of a machine that has one of its own.
fn gateway(index: u8) -> Ipv4Addr {
    let [a, b, c] = SEGMENT;
    Ipv4Addr::new(a, b, c + 1 + index, 1)
}

fn machine_name(index: u8) -> String {
    format!("ncto{}", index + 1)
}

fn link(index: u8) -> String {
    format!("nctov{}", index + 1)
}

/// A machine's own address, which stays with it.
fn own(by: By, index: u8) -> Ipv4Addr {
    let [a, b, c] = SEGMENT;
    let segment = if by == By::Bird { c + 1 + index } else { c };
    Ipv4Addr::new(a, b, segment, 11 + index)
}

/// The address by which viewers reach it.
pub(crate) fn service(index: u8) -> SocketAddr {
    let [a, b, c] = SEGMENT;
    SocketAddr::from((Ipv4Addr::new(a, b, c, 101 + index), PORT))
}

/// One more address, for the first.
pub(crate) fn additional() -> SocketAddr {
    let [a, b, c] = SEGMENT;
    SocketAddr::from((Ipv4Addr::new(a, b, c, 111), PORT))
}

fn viewers() -> Ipv4Addr {
    let [a, b, c] = SEGMENT;
    Ipv4Addr::new(a, b, c, 1)
}

/// Takes the lock, which goes with the file; an error that names who has it.
fn lock(path: &Path) -> Result<File> {
    let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = open.with_context(|| format!("{}: namespaces need root", path.display()))?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        file.read_to_string(&mut holder)?;
        bail!("another take-over lab runs here, process {holder}: wait for its end");
    }
    file.set_len(0)?;
    write!(file, "{}", std::process::id())?;
    Ok(file)
}

impl Network {
    /// Makes it, and moves this process into the viewers' namespace. As root, with iproute2, before
    /// there are other threads.
    fn enter(by: By, machines: u8) -> Result<Self> {
        let network = Self { machines, _lock: lock(Path::new(LOCK))? };
        network.remove();
        ip(&["netns", "add", "ncto0"]).context("namespaces need root")?;
        let file = File::open("/var/run/netns/ncto0")?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the namespace")?;
        ip(&["link", "set", "lo", "up"])?;
        match by {
            By::Keepalived => add_bridge(0, viewers())?,
            By::Bird => {
                ip(&["address", "add", &format!("{}/32", viewers()), "dev", "lo"])?;
                (0..machines).try_for_each(|index| add_bridge(index, gateway(index)))?;
                fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
            }
        }
        for index in 0..machines {
            let (name, link) = (machine_name(index), link(index));
            ip(&["netns", "add", &name])?;
            let far = ["type", "veth", "peer", "name", "eth0", "netns", &name];
            ip(&[&["link", "add", &link], &far[..]].concat())?;
            let bridge = bridge(if by == By::Bird { index } else { 0 });
            ip(&["link", "set", &link, "master", &bridge, "up"])?;
            ip(&["-n", &name, "link", "set", "lo", "up"])?;
            ip(&["-n", &name, "address", "add", &format!("{}/24", own(by, index)), "dev", "eth0"])?;
            ip(&["-n", &name, "link", "set", "eth0", "up"])?;
            if by == By::Bird {
                let via = gateway(index).to_string();
                ip(&["-n", &name, "route", "add", "default", "via", &via])?;
            }
        }
        Ok(network)
    }

    fn remove(&self) {
        // Those that a run left which was killed, too.
        for name in ["ncto0".to_owned()].into_iter().chain((0..MACHINES_MAX).map(machine_name)) {
            if Path::new("/var/run/netns").join(&name).exists() {
                let _ = ip(&["netns", "delete", &name]);
            }
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.remove();
    }
}

impl World {
    /// Starts the site with the files below `source`. Returns when each machine has its address and
    /// holds all.
    pub(crate) fn start(
        room: &Path,
        source: &Path,
        port: u16,
        by: By,
        machines: u8,
        tickle: bool,
    ) -> Result<Self> {
        ensure!((2..=MACHINES_MAX).contains(&machines), "two or three machines");
        let (program, package) = match by {
            By::Keepalived => ("/usr/sbin/keepalived", "keepalived"),
            By::Bird => (BIRD, "bird2"),
        };
        let is_there = Path::new(program).is_file();
        ensure!(is_there, "{program} is not installed: install Debian's package {package}");
        let network = Network::enter(by, machines)?;
        fs::create_dir_all(room)?;
        let services = (0..machines).map(service).chain([additional()]);
        let addresses: Vec<String> = services.map(|at| at.ip().to_string()).collect();
        let own = [viewers().to_string(), "127.0.0.1".to_owned()];
        let names: Vec<&str> = addresses.iter().chain(&own).map(String::as_str).collect();
        let certificate = Certificate::make_for(room, &names)?;
        let spki = certificate.spki()?;
        let plan = Plan { host: viewers(), ..Plan::new(room.to_owned(), port, ASSET) };
        let fleet = Fleet::start_with(plan, certificate.clone(), source)?;
        fleet.put("/v1/policy", &json!({ "copies": machines }))?;
        let routers = if by == By::Bird { routers(room, machines)? } else { Vec::new() };
        let mut world = Self {
            machines: Vec::new(),
            _routers: routers,
            fleet,
            room: room.to_owned(),
            spki,
            network,
        };
        for index in 0..machines {
            let machine = world.machine(index, &certificate, by, tickle)?;
            world.machines.push(machine);
        }
        for index in 0..machines {
            rig::until("until an appliance answers by its address", READY_MAX, LOOK_EVERY, || {
                world.check()?;
                Ok(TcpStream::connect_timeout(&service(index), LOOK_EVERY * 10).is_ok())
            })?;
        }
        rig::until("until all hold the film", READY_MAX, LOOK_EVERY * 10, || {
            world.check()?;
            let view = world.fleet.get(Role::Writer, "/v1/fleet")?;
            Ok(view["assets"][0]["copies_complete"] == machines)
        })?;
        Ok(world)
    }

    fn machine(&self, index: u8, at: &Certificate, by: By, tickle: bool) -> Result<Machine> {
        let name = format!("a{}", index + 1);
        let home = self.room.join(&name);
        let drive = home.join("drive");
        fs::create_dir_all(&drive)?;
        fs::create_dir_all(home.join("state"))?;
        let path = |file: &str| home.join(file).display().to_string();
        self.give(index, &[service(index).ip()])?;
        let agent = json!({
            "user": "root",
            "group": "root",
            "drives": { "paths": [path("drive")] },
            "addresses": {
                "by": by.to_possible_value().context("each has a name")?.get_name(),
                "within": [format!("{}/24", viewers())],
                "interface": if by == By::Bird { "lo" } else { "eth0" },
                "socket": path("agent.sock"),
                "tickle": tickle,
            },
        });
        fs::write(home.join("agent.toml"), toml::to_string(&agent)?)?;
        let peer = SocketAddr::from((own(by, index), PEER_PORT));
        let config = self.appliance(&name, index, at, peer);
        fs::write(home.join("appliance.toml"), toml::to_string(&config)?)?;
        let setup = self.room.join(format!("{name}.setup.log"));
        let appliance = binary("nearcast-appliance")?;
        let run = |words: &[&str]| {
            let words = [&[appliance.as_str()], words].concat();
            Process::run(&name, &inside(index, &words), &setup)
        };
        run(&["format", &path("drive"), "--reserve", "1%"])?;
        let code = self.fleet.code(&format!("/v1/appliances/{name}/enrolment"))?;
        run(&["enrol", "--config", &path("appliance.toml"), "--code", &code])?;
        let program = binary("nearcast-agent")?;
        let command = inside(index, &[&program, "addresses", "--config", &path("agent.toml")]);
        let log = self.room.join(format!("{name}.agent.log"));
        let mut agent = Process::start("agent", &command, On::default(), &log)?;
        let socket = home.join("agent.sock");
        agent.wait_until("its socket", READY_MAX, || Ok(socket.exists()))?;
        let command = inside(index, &[&appliance, "guard", "--config", &path("appliance.toml")]);
        let log = self.room.join(format!("{name}.log"));
        let appliance = Process::listening(&name, &command, On::default(), &log, peer)?;
        Ok(Machine { appliance, _agent: agent })
    }

    fn appliance(&self, name: &str, index: u8, at: &Certificate, peer: SocketAddr) -> Value {
        let home = self.room.join(name);
        let path = |file: &str| home.join(file).display().to_string();
        let mut config = json!({
            "name": name,
            "state": path("state"),
            "serve": {
                "listen": [SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).to_string()],
                "base_url": format!("https://{}", service(index)),
                "certificate": at.chain.display().to_string(),
                "key": at.key.display().to_string(),
                "workers": 1,
                // With what else is open, below the usual hard limit of 20,000 files.
                "connections_max": 18_900,
                "idle_timeout": "10 min",
            },
            "drives": { "paths": [path("drive")] },
            "hot": { "memory": "16 MiB" },
            "control": {
                "url": format!("https://{}", self.fleet.members()),
                "report_interval": "500 ms",
            },
            "peer": { "listen": [peer.to_string()] },
            "fill": { "trust": at.ca.display().to_string() },
            "agent": { "addresses": path("agent.sock") },
        });
        merge(&mut config, &Value::Null);
        config
    }

    /// An error if something has ended that nobody ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.machines.iter_mut().try_for_each(|machine| machine.appliance.check())?;
        self.fleet.check()
    }

    /// Cuts the appliance of a name off, or brings it back.
    pub(crate) fn orders(&self) -> impl Fn(&str, bool) -> Result<()> + Send + use<> {
        |name: &str, cut: bool| {
            let index: u8 = name.strip_prefix('a').context("no appliance")?.parse()?;
            info!(name, cut, "cut off");
            set_link(index.checked_sub(1).context("no appliance")?, cut)
        }
    }

    /// How many machines there are.
    pub(crate) fn count(&self) -> u8 {
        self.network.machines
    }

    /// Those that are cut off: all but the second.
    pub(crate) fn owners(&self) -> impl Iterator<Item = u8> + use<> {
        (0..self.count()).filter(|index| *index != 1)
    }

    /// These are the service addresses of a machine from now on.
    pub(crate) fn give(&self, index: u8, addresses: &[IpAddr]) -> Result<()> {
        let body = json!({ "site": "lab", "addresses": addresses });
        self.fleet.put(&format!("/v1/appliances/a{}", index + 1), &body)
    }

    /// A machine is cut off from all others, or is there again.
    pub(crate) fn cut_off(&self, index: u8, cut: bool) -> Result<()> {
        set_link(index, cut)
    }

    /// The machines do not hear each other, or do again; viewers hear both.
    pub(crate) fn split(&self, split: bool) -> Result<()> {
        let state = if split { "on" } else { "off" };
        (0..self.count()).try_for_each(|index| {
            run("bridge", &["link", "set", "dev", &link(index), "isolated", state])
        })
    }

    /// The route to the service address of a machine leads there.
    pub(crate) fn is_routed_to(index: u8) -> Result<bool> {
        let address = service(index).ip().to_string();
        let output = Command::new("ip").args(["route", "get", &address]).output()?;
        let via = own(By::Bird, index).to_string();
        Ok(String::from_utf8_lossy(&output.stdout).contains(&format!("via {via} ")))
    }

    /// This machine has an address, and no other.
    pub(crate) fn has_alone(&self, index: u8, address: IpAddr) -> bool {
        (0..self.count()).all(|other| self.has(other, address) == (other == index))
    }

    /// Who answers for an address now, by its hardware address as viewers know it.
    pub(crate) fn has(&self, index: u8, address: IpAddr) -> bool {
        let held = Command::new("ip")
            .args(["-n", &machine_name(index), "-o", "address", "show", "to"])
            .arg(address.to_string())
            .output();
        held.is_ok_and(|output| !output.stdout.is_empty())
    }
}

fn add_bridge(index: u8, address: Ipv4Addr) -> Result<()> {
    let (bridge, near, far) = (bridge(index), format!("nctod{index}"), format!("nctoe{index}"));
    ip(&["link", "add", &bridge, "type", "bridge"])?;
    // A port that stays up: without one the bridge would tell its owner of each cut.
    ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
    ip(&["link", "set", &near, "master", &bridge, "up"])?;
    ip(&["link", "set", &far, "up"])?;
    ip(&["address", "add", &format!("{address}/24"), "dev", &bridge])?;
    ip(&["link", "set", &bridge, "up"])
}

/// Of a session on either side: BIRD's own waits are 5 s, a minute and five.
const BGP: &str = "bfd on; connect delay time 1; error wait time 1, 5; error forget time 10;";
/// What routers and machines begin with.
const COMMON: &str = "log stderr all;\nprotocol device { scan time 1; }\n\
                      protocol bfd { interface \"*\" { interval 100 ms; multiplier 3; }; }\n";

/// BIRD on the router and on the machines, there as docs/operate/takeover.md says it.
fn routers(room: &Path, machines: u8) -> Result<Vec<Process>> {
    let start = |name: &str, config: &str, inside: &dyn Fn(&[&str]) -> Vec<String>| {
        let at = |kind: &str| room.join(format!("{name}.{kind}")).display().to_string();
        fs::write(at("conf"), config)?;
        let command = inside(&[BIRD, "-f", "-c", &at("conf"), "-s", &at("ctl"), "-P", &at("pid")]);
        Process::start(name, &command, On::default(), Path::new(&at("log")))
    };
    let neighbour = |index| {
        let (gateway, own) = (gateway(index), own(By::Bird, index));
        format!(
            "protocol bgp a{index} {{ local {gateway} as 64512; neighbor {own} as 64512; {BGP} \
             ipv4 {{ import all; export none; }}; }}\n"
        )
    };
    let neighbours: String = (0..machines).map(neighbour).collect();
    let kernel =
        "protocol direct { ipv4; }\nprotocol kernel { ipv4 { export all; import none; }; }\n";
    let router = format!("router id {};\n{COMMON}{kernel}{neighbours}", viewers());
    let hub = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let mut started = vec![start("router", &router, &hub)?];
    for index in 0..machines {
        let config = machine_routes(index, machines);
        started.push(start(&format!("bird{index}"), &config, &|words| inside(index, words))?);
    }
    Ok(started)
}

fn machine_routes(index: u8, machines: u8) -> String {
    let (gateway, own) = (gateway(index), own(By::Bird, index));
    let rule = |of: u8| {
        let (address, preference) = (service(of).ip(), if of == index { 200 } else { 100 });
        format!("if net = {address}/32 then {{ bgp_local_pref = {preference}; accept; }}\n")
    };
    let rules: String = (0..machines).map(rule).collect();
    format!(
        "router id {own};\n{COMMON}protocol direct {{ ipv4; interface \"lo\"; }}\n\
         filter addresses {{\n{rules}reject;\n}}\n\
         protocol bgp uplink {{ local {own} as 64512; neighbor {gateway} as 64512; {BGP}\n\
         ipv4 {{ import none; export filter addresses; next hop self; }}; }}\n"
    )
}

fn set_link(index: u8, cut: bool) -> Result<()> {
    ip(&["link", "set", &link(index), if cut { "down" } else { "up" }])
}

/// A command in a machine's namespace.
fn inside(index: u8, words: &[&str]) -> Vec<String> {
    let name = machine_name(index);
    let namespace = ["ip", "netns", "exec", &name];
    namespace.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

fn ip(arguments: &[&str]) -> Result<()> {
    run("ip", arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_the_routes_of_the_page() {
        let page = include_str!("../../../../docs/operate/takeover.md");
        let begin = page.find("protocol device").unwrap();
        let (block, _) = page[begin..].split_once("```").unwrap();
        let words = |text: &str| {
            let lines = text.lines().map(|line| line.split('#').next().unwrap());
            lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
        };
        let config = machine_routes(0, 2);
        let config = &config[config.find("protocol device").unwrap()..];
        let config = config
            .replace(&service(0).ip().to_string(), "192.0.2.11")
            .replace(&service(1).ip().to_string(), "192.0.2.12")
            .replace(&own(By::Bird, 0).to_string(), "10.0.0.11")
            .replace(&gateway(0).to_string(), "10.0.0.1");
        assert_eq!(words(&config), words(block));
    }

    #[test]
    fn a_second_lab_is_refused_and_told_who_has_the_lock() {
        let room = tempfile::tempdir().unwrap();
        let path = room.path().join("lock");
        let first = lock(&path).unwrap();
        let error = lock(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("process {}:", std::process::id())), "{error}");
        drop(first);
        lock(&path).unwrap();
    }
}

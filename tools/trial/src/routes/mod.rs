//! `nearcast-lab routes`: two ISPs with a site each, a third without one, and an exchange where all
//! three are; routes are announced and withdrawn, and clients have to follow.
//!
//! ```text
//! isp1 ── BGP ── s1: BIRD <── agent ── a1, embedded in isp1
//! isp2 ── BGP ── s2: BIRD <── agent ── a2, embedded in isp2
//! isp1, isp2, isp3 ── BGP ── ix: BIRD <── agent ── a3, at the exchange
//! ```
//!
//! Each of the six has a namespace on one segment; the fleet, with a front, listens on loopback.
//! The agent at the exchange lets in prefixes of all lengths: there control has to refuse.

mod network;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::fleet::{Fleet, Plan, Role};
use rig::process::{On, Process, binary};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::outage::Film;
use crate::room::RunArgs;
use network::Network;
use routers::Announced;

/// `nearcast-lab routes`: as root, with iproute2 and bird2.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First of the ports of the fleet. Two runs at a time have two.
    #[arg(long, default_value_t = 19_400)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=65_000))]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// From the start of all routers until every list is right, at the writer and at the front.
    begin_ms: u64,
    /// From a withdrawal until both have the right lists.
    withdraw_ms: u64,
    /// The same when the prefix is announced again.
    announce_ms: u64,
    /// The same for the one family that an ISP withdraws while the other stays.
    withdraw_v6_ms: u64,
    /// A router is killed: its routes are gone everywhere.
    killed_ms: u64,
    /// Routes that the agent at an ISP's site left out, by cause.
    left_out: Value,
    /// Routes that the agent at the exchange let in, and control did not.
    refused: u64,
    /// Lists that were looked at while nothing changed, and those that were wrong.
    looked_at: u64,
    wrong: u64,
}

/// A list is right so soon after a change.
const CHANGE_MAX_MS: u64 = 5000;
const BEGIN_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(50);
const ASSET: &str = "film";

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let room = args.run.open()?;
    let source = room.join("source");
    Film::of(Duration::from_secs(2)).write(&source)?;
    let mut world = World::start(&room, &source, args.port)?;
    let mut report = Report::default();
    world.play_through(&mut report)?;
    drop(world);
    rig::say(args.run.json, &report, || format!("{report:#?}"))?;
    report.check()
}

struct World {
    network: Network,
    fleet: Fleet,
    agents: Vec<Process>,
}

/// The site of each appliance.
const SITES: [(&str, &str, &str); 3] =
    [("s1", "a1", "embedded"), ("s2", "a2", "embedded"), ("ix", "a3", "exchange")];

/// Where clients should be sent: an address, and the appliances, best first. Nobody else may be
/// offered.
type Wanted = (&'static str, &'static [&'static str]);

impl World {
    fn start(room: &Path, source: &Path, port: u16) -> Result<Self> {
        let network = Network::start(room, port)?;
        // Appliances are started anew below, and then take all of their sessions again at once.
        let settings = json!({ "health": { "recovery": "1 s" } });
        let plan = Plan { settings, ..Plan::new(room.to_owned(), port, ASSET) };
        let plan = Plan { fronts: 1, appliances: 3, ..plan };
        let mut fleet = Fleet::start(plan, source)?;
        for (site, appliance, kind) in SITES {
            fleet.put(&format!("/v1/sites/{site}"), &json!({ "prefixes": [], "kind": kind }))?;
            fleet.put(&format!("/v1/appliances/{appliance}"), &json!({ "site": site }))?;
        }
        let mut agents = Vec::new();
        for (index, (site, appliance, _)) in (0..).zip(SITES) {
            let socket = room.join(format!("{appliance}.routes.sock"));
            let mut config = json!({
                "user": "root",
                "group": "root",
                "drives": { "paths": [room.join(appliance).join("drive")] },
                "routes": { "bird": network.control(site), "socket": socket },
            });
            if site == "ix" {
                config["routes"]["v4_lengths"] = json!([1, 32]);
                config["routes"]["v6_lengths"] = json!([1, 128]);
            }
            let path = room.join(format!("{appliance}.agent.toml"));
            fs::write(&path, toml::to_string(&config)?)?;
            let words = [binary("nearcast-agent")?, "routes".to_owned(), "--config".to_owned()];
            let command = [&words[..], &[path.display().to_string()]].concat();
            let log = room.join(format!("{appliance}.agent.log"));
            let mut agent = Process::start(appliance, &command, On::default(), &log)?;
            agent.wait_until("its socket", BEGIN_MAX, || Ok(socket.exists()))?;
            agents.push(agent);
            // It is asked from the next start on.
            fleet.kill_appliance(index);
            let path = room.join(format!("{appliance}.toml"));
            let mut config: toml::Table = fs::read_to_string(&path)?.parse()?;
            let routes = toml::Table::from_iter([(
                "routes".to_owned(),
                socket.display().to_string().into(),
            )]);
            config.insert("agent".to_owned(), routes.into());
            fs::write(&path, toml::to_string(&config)?)?;
            fleet.start_appliance(index)?;
        }
        Ok(Self { network, fleet, agents })
    }

    fn play_through(&mut self, report: &mut Report) -> Result<()> {
        let all: [Wanted; 7] = [
            ("21.1.1.1", &["a1", "a3"]),
            ("2a0b:1::1", &["a1", "a3"]),
            ("21.2.1.1", &["a2", "a3"]),
            ("2a0b:2::1", &["a2", "a3"]),
            ("21.3.1.1", &["a3"]),
            ("2a0b:3::1", &["a3"]),
            // Of nobody: the exchange serves all.
            ("77.7.7.7", &["a3"]),
        ];
        report.begin_ms = self.until(&all, BEGIN_MAX)?;
        let isp1 = Announced::isp(1);

        // The second ISP announces pieces of the first one's prefixes, which would draw its
        // clients, all addresses, whole and in halves, and what no client has.
        let pieces = ["21.1.1.0/25", "0.0.0.0/1", "128.0.0.0/1"];
        let odd = Announced::isp(2).and(&pieces).and(&["2a0b:1::/64"]);
        let odder = odd.clone().and(&["0.0.0.0/0", "10.0.0.0/8", "::/0"]);
        self.network.announce("isp2", "s2", &odder)?;
        self.network.announce("isp2", "ix", &odd)?;
        report.left_out = self.wait_for_left_out("s2", 7)?;
        let expected = json!({ "too_long": 2, "too_short": 2, "default": 2, "bogon": 1 });
        ensure!(report.left_out == expected, "{} is left out", report.left_out);
        let at_control = self.wait_for_left_out("ix", 4)?;
        ensure!(at_control == json!({ "refused_by_control": 4 }), "{at_control} is left out");
        report.refused = 4;
        self.look(&all, Duration::from_secs(3), report)?;

        // Withdrawn at the ISP's site, still there at the exchange.
        self.network.announce("isp1", "s1", &isp1.clone().without("21.1.0.0/22"))?;
        let mut moved = all;
        moved[0].1 = &["a3"];
        report.withdraw_ms = self.until(&moved, BEGIN_MAX)?;
        self.look(&moved, Duration::from_secs(2), report)?;
        self.network.announce("isp1", "s1", &isp1)?;
        report.announce_ms = self.until(&all, BEGIN_MAX)?;

        self.network.announce("isp1", "s1", &isp1.clone().without("2a0b:1::/32"))?;
        let mut moved = all;
        moved[1].1 = &["a3"];
        report.withdraw_v6_ms = self.until(&moved, BEGIN_MAX)?;
        self.network.announce("isp1", "s1", &isp1)?;
        self.until(&all, BEGIN_MAX)?;

        // Announced to its own site alone: there is no second way, and that is told.
        self.network.announce("isp1", "s1", &isp1.clone().and(&["21.9.0.0/20"]))?;
        let alone: [Wanted; 1] = [("21.9.1.1", &["a1", "a3"])];
        self.until(&alone, BEGIN_MAX)?;
        // They are counted beside all else, once a second where there are few.
        rig::until("s1 alone has 21.9.0.0/20", BEGIN_MAX, LOOK_EVERY, || {
            let routes = self.fleet.get(Role::Writer, "/v1/routes?site=s1")?;
            let s1 = &routes["sites"][0];
            Ok(s1["unshared"] == 1 && s1["unshared_examples"][0] == "21.9.0.0/20")
        })?;

        self.network.kill("isp2");
        let mut moved = all;
        moved[2].1 = &["a3"];
        moved[3].1 = &["a3"];
        report.killed_ms = self.until(&moved, BEGIN_MAX)?;
        self.look(&moved, Duration::from_secs(1), report)
    }

    /// Waits until all lists are right, at every process of the control plane; how long that took.
    fn until(&mut self, wanted: &[Wanted], within: Duration) -> Result<u64> {
        let began = Instant::now();
        loop {
            self.check()?;
            match self.first_wrong(wanted)? {
                None => return Ok(u64::try_from(began.elapsed().as_millis())?),
                Some(wrong) if within < began.elapsed() => bail!("still after {within:?}: {wrong}"),
                Some(_) => std::thread::sleep(LOOK_EVERY),
            }
        }
    }

    /// Looks at all lists for a while in which they are to stay right.
    fn look(&mut self, wanted: &[Wanted], during: Duration, report: &mut Report) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < during {
            self.check()?;
            report.looked_at += 1;
            if let Some(wrong) = self.first_wrong(wanted)? {
                info!(wrong, "a list is wrong");
                report.wrong += 1;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    fn first_wrong(&self, wanted: &[Wanted]) -> Result<Option<String>> {
        for role in self.fleet.roles() {
            for (client, appliances) in wanted {
                let path = format!("/v1/explain?asset={ASSET}&client={client}");
                let told = self.fleet.get(role, &path)?;
                let candidates = told["candidates"].as_array().context("no candidates")?;
                let offered = candidates.iter().filter(|candidate| !candidate["rank"].is_null());
                let offered: Vec<&str> =
                    offered.filter_map(|candidate| candidate["appliance"].as_str()).collect();
                if offered != *appliances {
                    let why: Vec<String> = candidates
                        .iter()
                        .map(|of| format!("{}: {}", of["appliance"], of["why"]))
                        .collect();
                    let name = role.name();
                    let why = why.join(", ");
                    return Ok(Some(format!("{name} sends {client} to {offered:?}: {why}")));
                }
            }
        }
        Ok(None)
    }

    /// Waits until so many routes of a site are left out; how many, by cause.
    fn wait_for_left_out(&mut self, site: &str, count: u64) -> Result<Value> {
        let began = Instant::now();
        loop {
            self.check()?;
            let routes = self.fleet.get(Role::Writer, "/v1/routes")?;
            let sites = routes["sites"].as_array().context("no sites")?;
            let found = sites.iter().find(|of| of["site"] == site).context("no such site")?;
            let all = found["appliances"][0]["heard"]["left_out"].as_array();
            let counts = all.into_iter().flatten().filter_map(|of| of["count"].as_u64());
            if let Some(all) = all.filter(|_| counts.sum::<u64>() == count) {
                let pair =
                    |of: &Value| Some((of["cause"].as_str()?.to_owned(), of["count"].clone()));
                return Ok(Value::Object(all.iter().filter_map(pair).collect()));
            }
            ensure!(began.elapsed() < BEGIN_MAX, "not {count} routes are left out: {found}");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn check(&mut self) -> Result<()> {
        self.agents.iter_mut().try_for_each(Process::check)?;
        self.fleet.check()
    }
}

impl Report {
    fn check(&self) -> Result<()> {
        let changes = [self.withdraw_ms, self.announce_ms, self.withdraw_v6_ms, self.killed_ms];
        ensure!(
            changes.iter().all(|ms| *ms <= CHANGE_MAX_MS),
            "lists follow a change within {CHANGE_MAX_MS} ms: {changes:?}"
        );
        ensure!(self.wrong == 0, "{} of {} lists were wrong", self.wrong, self.looked_at);
        ensure!(0 < self.looked_at, "something was looked at");
        Ok(())
    }
}

//! `nearcast-lab steer`: what control's answers to players cost, beside a static file of nginx.
//!
//! ```text
//! control, on the server CPU <── 256 connections that stay open ── this client, on its own CPU
//! nginx,   on the same CPU   <── the same, in turns ──────────────┘
//! ```
//!
//! Two questions: a steering poll, each with the sealed ticket of another session than the one
//! before; and the beginning of a playback, for the entry playlist of a film with eight variants.
//! nginx serves a static file of the same length. Each connection asks again as soon as it has its
//! answer, so a response time is that of a server that is never idle. No side has TLS: what TLS
//! costs is in `compare` and `handshake`.

mod film;
mod load;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::bounds::{Bounds, DependsOn};
use rig::cpu::{self, Account};
use rig::fleet::{Fleet, Plan, Role};
use rig::peer::nginx;
use rig::process::Process;
use rig::statistics::{Spread, median_of};
use rig::{api, in_turns};
use serde::Serialize;
use serde_json::json;
use tracing::info;

use crate::processor::Processor;
use load::{Load, Window};

/// `nearcast-lab steer`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections at a time.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=2000))]
    connections: u16,
    /// Sessions that ask for steering in turn.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// How often each side has its turn.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Length of a window, in seconds; half of it is asked before.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Fail if polls a core are less than this share of nginx's.
    #[arg(long, default_value_t = 0.7)]
    bound: f64,
    /// The CPU for servers.
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// The CPU for the client.
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_860)]
    port: u16,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    polls: Compared,
    begun: Compared,
    connections: u16,
    processor: String,
    nginx: String,
    bounds: Bounds,
}

/// A question at both servers.
#[derive(Debug, Serialize)]
struct Compared {
    /// Answers in a second of the process's CPU time.
    http_per_s_core: f64,
    p50_us: u64,
    p99_us: u64,
    answer_bytes: usize,
    nginx_per_s_core: f64,
    nginx_p99_us: u64,
    ratio_to_nginx: f64,
    ratio_iqr: f64,
}

const ASSET: &str = "film";
/// Appliances that hold the film.
const APPLIANCES: u16 = 3;
/// What a run has to show, where nginx shows that the machine is fast enough for it.
const POLLS_PER_S_CORE: f64 = 50_000.0;
const BEGUN_PER_S_CORE: f64 = 5000.0;

/// Measures, and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.server_cpu != args.client_cpu, "servers and client need a CPU each");
    rig::raise_file_limit()?;
    let room = tempfile::Builder::new().prefix("nearcast-steer-").tempdir()?;
    let source = room.path().join("source");
    film::write(&source)?;
    // Servers run where the thread that starts them runs.
    cpu::pin(args.server_cpu)?;
    let serve = json!({ "requests_max": 4000 });
    let settings = json!({ "serve": serve });
    let place = room.path().join("fleet");
    let plan = Plan { appliances: APPLIANCES, settings, ..Plan::new(place, args.port, ASSET) };
    let mut fleet = Fleet::start(plan, &source)?;
    fleet.put(&format!("/v1/assets/{ASSET}/public"), &json!({}))?;
    fleet.end_origin();
    let bench = Bench::start(args, &fleet, room.path())?;
    cpu::pin(args.client_cpu)?;
    let mut report = bench.compare()?;
    fleet.check()?;
    report.bounds = report.held_against(args.bound);
    rig::say(args.json, &report, || text(&report))?;
    report.bounds.verdict()
}

struct Bench<'a> {
    args: &'a Args,
    account: Account,
    nginx: SocketAddr,
    nginx_account: Account,
    polls: Load,
    begun: Load,
    /// Ends with this.
    _nginx: Process,
}

impl<'a> Bench<'a> {
    fn start(args: &'a Args, fleet: &Fleet, room: &Path) -> Result<Self> {
        let url = fleet.url(Role::Writer);
        let control: SocketAddr = url.trim_start_matches("http://").parse()?;
        let polls = Load::new(control, paths(fleet, args.sessions)?, is_steering)?;
        let begun = Load::new(control, vec![format!("/v1/play/{ASSET}.m3u8")], film::is_entry)?;
        let root = room.join("www");
        std::fs::create_dir_all(&root)?;
        for (name, load) in [("polls", &polls), ("begun", &begun)] {
            std::fs::write(root.join(name), vec![b'x'; load.answer_len()])?;
        }
        let port = args.port.checked_add(PORTS).context("--port is too large")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let peer = nginx::start_plain(address, &root, room)?;
        let writer = fleet.writer_id().context("the writer does not run")?;
        Ok(Self {
            args,
            account: Account::Processes(writer),
            nginx: address,
            nginx_account: Account::Processes(peer.id()),
            polls,
            begun,
            _nginx: peer,
        })
    }

    fn compare(&self) -> Result<Report> {
        Ok(Report {
            polls: self.measure("polls", &self.polls)?,
            begun: self.measure("begun", &self.begun)?,
            connections: self.args.connections,
            processor: Processor::read()?.processor,
            nginx: nginx::version(&["nginx".to_owned()])?.server,
            bounds: Bounds::default(),
        })
    }

    fn measure(&self, name: &str, load: &Load) -> Result<Compared> {
        let file = Load::new(self.nginx, vec![format!("/{name}")], |_| true)?;
        ensure!(file.answer_len() == load.answer_len(), "both answers have one length");
        let window = Duration::from_secs(self.args.seconds);
        let one = |load: &Load, account| load.run(self.args.connections, window, account);
        let mut pairs = Vec::new();
        for turn in 0..self.args.pairs {
            rig::stop::check()?;
            let (ours, theirs) = (|| one(load, &self.account), || one(&file, &self.nginx_account));
            let [ours, theirs] = in_turns(turn, ours, theirs)?;
            info!(name, ours = ours.per_s_core, nginx = theirs.per_s_core, "a pair");
            pairs.push((ours, theirs));
        }
        let of = |figure: fn(&Window) -> f64| median_of(&pairs, |(ours, _)| figure(ours));
        let theirs = |figure: fn(&Window) -> f64| median_of(&pairs, |(_, peer)| figure(peer));
        let ratios: Vec<f64> =
            pairs.iter().map(|(ours, theirs)| ours.per_s_core / theirs.per_s_core).collect();
        let ratio = Spread::of(&ratios)?;
        Ok(Compared {
            http_per_s_core: of(|window| window.per_s_core)?,
            p50_us: whole(of(|window| window.p50_us)?),
            p99_us: whole(of(|window| window.p99_us)?),
            answer_bytes: load.answer_len(),
            nginx_per_s_core: theirs(|window| window.per_s_core)?,
            nginx_p99_us: whole(theirs(|window| window.p99_us)?),
            ratio_to_nginx: ratio.median,
            ratio_iqr: ratio.iqr,
        })
    }
}

impl Report {
    /// On a machine where nginx itself is too slow for the figure of polls, the ratio alone counts.
    fn held_against(&self, ratio: f64) -> Bounds {
        let (polls, begun) = (&self.polls, &self.begun);
        let (mut bounds, cpu) = (Bounds::default(), DependsOn::Processor);
        bounds.at_least("polls.ratio_to_nginx", ratio, polls.ratio_to_nginx, cpu);
        if POLLS_PER_S_CORE <= polls.nginx_per_s_core * ratio {
            let name = "polls.http_per_s_core";
            bounds.at_least(name, POLLS_PER_S_CORE, polls.http_per_s_core, cpu);
        }
        bounds.at_least("begun.http_per_s_core", BEGUN_PER_S_CORE, begun.http_per_s_core, cpu);
        bounds
    }
}

/// Where players of so many sessions ask for steering.
fn paths(fleet: &Fleet, sessions: u32) -> Result<Vec<String>> {
    info!(sessions, "beginning playbacks");
    let agent = api::agent(Duration::from_secs(10));
    let url = format!("{}/v1/playbacks", fleet.url(Role::Writer));
    let path = |_| -> Result<String> {
        let begun = api::post_by(&agent, &url, &json!({ "asset": ASSET }))?;
        let url = begun["steering_url"].as_str().context("a playback without a steering URL")?;
        let at = url.find("/steer/").context("a steering URL without its path")?;
        Ok(url[at..].to_owned())
    };
    (0..sessions).map(path).collect()
}

/// A steering document that names an appliance.
fn is_steering(body: &[u8]) -> bool {
    let document: Result<serde_json::Value, _> = serde_json::from_slice(body);
    let names = |document: &serde_json::Value| {
        document["PATHWAY-PRIORITY"].as_array().is_some_and(|names| !names.is_empty())
    };
    document.is_ok_and(|document| names(&document))
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "microseconds for people"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Ports of the fleet before nginx's.
const PORTS: u16 = 20;

fn text(report: &Report) -> String {
    let line = |name: &str, one: &Compared| {
        format!(
            "{name:<6} {:>8.0} a second and core, p50 {} us, p99 {} us; nginx {:>8.0}, p99 {} us: \
             {:.2} of it (quartiles {:.2} apart); {} B\n",
            one.http_per_s_core,
            one.p50_us,
            one.p99_us,
            one.nginx_per_s_core,
            one.nginx_p99_us,
            one.ratio_to_nginx,
            one.ratio_iqr,
            one.answer_bytes
        )
    };
    let lines = [line("polls", &report.polls), line("begun", &report.begun)];
    lines.concat() + &report.bounds.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(polls: f64, nginx: f64, begun: f64) -> Report {
        let of = |ours: f64| Compared {
            http_per_s_core: ours,
            p50_us: 1,
            p99_us: 2,
            answer_bytes: 3,
            nginx_per_s_core: nginx,
            nginx_p99_us: 2,
            ratio_to_nginx: ours / nginx,
            ratio_iqr: 0.0,
        };
        Report {
            polls: of(polls),
            begun: of(begun),
            connections: 1,
            processor: String::new(),
            nginx: String::new(),
            bounds: Bounds::default(),
        }
    }

    #[test]
    fn polls_are_judged_by_the_ratio_alone_where_nginx_is_too_slow_for_the_figure() {
        let holds = |polls, nginx, begun| report(polls, nginx, begun).held_against(0.7).verdict();
        holds(80_000.0, 110_000.0, 5000.0).unwrap();
        holds(40_000.0, 55_000.0, 5000.0).unwrap();
        let of = |polls, nginx, begun| holds(polls, nginx, begun).unwrap_err().to_string();
        assert!(of(70_000.0, 110_000.0, 5000.0).contains("polls.ratio_to_nginx 0.636"));
        assert!(of(38_000.0, 55_000.0, 5000.0).contains("polls.ratio_to_nginx"));
        assert!(of(80_000.0, 110_000.0, 4999.0).contains("begun.http_per_s_core"));
    }
}

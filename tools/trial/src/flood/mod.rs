//! Honest viewers at a fixed rate while others attack: what they get with and without, in turns.
//!
//! ```text
//! viewers (by the clock) ──────────────> window without, window with, window without, ...
//! attack  hellos that go no further, handshakes that end in a header bomb, heads a byte at a
//!         time, windows that are never opened
//! ```
//!
//! `--long-turns` (`long_turns`) and `--control` (`control`) are other floods.
//!
//! Viewers and attackers share a CPU, and attackers give way (nice 19): what is offered is counted
//! and told, since it is less than asked for where that CPU has no more to give.

mod attack;
mod control;
mod long_turns;
mod threads;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use model::units::Bytes;
use rig::client::{shake, tls_config};
use rig::cpu;
use rig::site::{Demand, Seen, Site, resident};
use rig::statistics::{Spread, median, median_of};
use rustls::pki_types::ServerName;
use serde::Serialize;
use tracing::info;

use attack::{Offered, Strength};

/// `nearcast-lab flood`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Windows with and without.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Connections of viewers.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=2000))]
    viewers: u32,
    /// What viewers ask for, megabits per second of all together.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabits: u32,
    #[command(flatten)]
    strength: Strength,
    /// The CPU for the appliance's worker.
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// The CPU for viewers and attackers.
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Instead: what would make a turn of the worker long, for which its guard must not end the
    /// process.
    #[arg(long, conflicts_with = "control")]
    long_turns: bool,
    /// With `--long-turns`: connections that attack.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=2000))]
    crowd: u32,
    /// Flood the control plane instead.
    #[arg(long)]
    control: bool,
    /// With `--control`: connections that send a byte a second.
    #[arg(long, default_value_t = 2000)]
    drips: u32,
    /// With `--control`: forged steering requests a second.
    #[arg(long, default_value_t = 5000)]
    forged: u32,
    /// With `--control`: first of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18960)]
    port: u16,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Pair {
    goodput_ratio: f64,
    without: Seen,
    with: Seen,
    /// A new viewer's connection, handshake included, while the attack went on.
    newcomer_ms: Vec<f64>,
    /// New viewers that were turned away.
    newcomers_refused: u32,
    offered: Offered,
    /// Share of the worker's CPU during the attack.
    server_cpu_share: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    goodput_ratio: f64,
    goodput_ratio_iqr: f64,
    response_ms_p99_without: f64,
    response_ms_p99_with: f64,
    newcomer_ms_p50: f64,
    newcomers_refused: u32,
    /// Most resident memory of the appliance, in all windows.
    rss_gb: f64,
    rss_gb_before: f64,
    /// What its configuration allows: see docs/operate/hostile-load.md.
    rss_bound_gb: f64,
    let_go: LetGo,
    pairs: Vec<Pair>,
}

/// What the appliance says it did.
#[derive(Debug, Serialize)]
struct LetGo {
    handshakes: f64,
    quiet: f64,
    slow: f64,
    timed_out: f64,
    refused: f64,
}

/// Files of the film; larger than what a socket holds, so that a closed window stops a transfer.
const LENS: [u64; 8] = [24 << 20; 8];
const CONNECTIONS_MAX: usize = 12_000;
const HANDSHAKES_MAX: usize = 2048;
const TRANSFERS_MAX: usize = 1024;
const NEWCOMERS: u32 = 5;

/// Floods, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.control {
        return control::run(args);
    }
    ensure!(args.server_cpu != args.client_cpu, "appliance and viewers need a CPU each");
    if args.long_turns {
        return long_turns::run(args);
    }
    rig::raise_file_limit()?;
    let dir = tempfile::Builder::new().prefix("nearcast-flood-").tempdir()?;
    let site = Site::start(dir.path(), &LENS, &serve(args))?;
    cpu::pin(args.client_cpu)?;
    let (before, _) = resident(site.appliance.pid())?;
    let pairs = (0..args.pairs).map(|n| pair(args, &site, n)).collect::<Result<Vec<_>>>()?;
    let report = report(&site, before, pairs)?;
    rig::say(args.json, &report, || report.table())
}

/// The appliance's `[serve]`.
fn serve(args: &Args) -> String {
    format!(
        "workers = 1\ncpus = [{}]\nconnections_max = {CONNECTIONS_MAX}\n\
         handshakes_max = {HANDSHAKES_MAX}\ntransfers_max = {TRANSFERS_MAX}\n",
        args.server_cpu
    )
}

/// What viewers ask for.
fn demand(args: &Args, seed: u64) -> Result<Demand> {
    Ok(Demand {
        connections: usize::try_from(args.viewers)?,
        range: Bytes::mib(1),
        bytes_per_s: f64::from(args.megabits) * 1e6 / 8.0,
        seed,
    })
}

fn pair(args: &Args, site: &Site, n: u32) -> Result<Pair> {
    let demand = demand(args, u64::from(n) + 1)?;
    let (warm_up, window) = (Duration::from_secs(1), Duration::from_secs(args.seconds.into()));
    let mut viewers = site.viewers(demand)?;
    let without = site.watch(&mut viewers, warm_up, window)?;
    drop(viewers);
    let attack = attack::start(site, args.strength)?;
    attack.wait_until_complete()?;
    let mut viewers = site.viewers(demand)?;
    attack.count_anew();
    let with = site.watch(&mut viewers, warm_up, window)?;
    let offered = attack::offered(&attack);
    let (mut newcomer_ms, mut newcomers_refused) = (Vec::new(), 0);
    for _ in 0..NEWCOMERS {
        match newcomer(site) {
            Ok(took) => newcomer_ms.push(took.as_secs_f64() * 1e3),
            Err(error) => {
                info!(%error, "a new viewer was turned away");
                newcomers_refused += 1;
            }
        }
    }
    drop(viewers);
    attack.stop()?;
    let goodput_ratio = (with.gb / with.seconds) / (without.gb / without.seconds);
    let server_cpu_share = with.server_cpu_s / with.seconds;
    info!(
        pair = n + 1,
        ratio = format!("{goodput_ratio:.3}"),
        p99_ms = format!("{:.1} -> {:.1}", without.response_ms_p99, with.response_ms_p99),
        server_cpu = format!("{server_cpu_share:.2}"),
        ?offered,
        "pair"
    );
    Ok(Pair {
        goodput_ratio,
        without,
        with,
        newcomer_ms,
        newcomers_refused,
        offered,
        server_cpu_share,
    })
}

/// Connects as a new viewer would.
fn newcomer(site: &Site) -> Result<Duration> {
    let config = tls_config(site.trust(), &[])?;
    let address = site.appliance.secure;
    let name = ServerName::try_from(address.ip().to_string())?;
    let began = Instant::now();
    let mut socket = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    shake(&config, &name, &mut socket)?;
    Ok(began.elapsed())
}

fn report(site: &Site, before: u64, pairs: Vec<Pair>) -> Result<Report> {
    let gb = rig::window::gigabytes;
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.goodput_ratio).collect();
    let goodput = Spread::of(&ratios)?;
    let (_, most) = resident(site.appliance.pid())?;
    let counted = |name: &str| site.appliance.metric(name).unwrap_or(f64::NAN);
    let newcomers: Vec<f64> = pairs.iter().flat_map(|pair| pair.newcomer_ms.clone()).collect();
    Ok(Report {
        goodput_ratio: goodput.median,
        goodput_ratio_iqr: goodput.iqr,
        response_ms_p99_without: median_of(&pairs, |pair| pair.without.response_ms_p99)?,
        response_ms_p99_with: median_of(&pairs, |pair| pair.with.response_ms_p99)?,
        newcomer_ms_p50: median(&newcomers).unwrap_or(f64::NAN),
        newcomers_refused: pairs.iter().map(|pair| pair.newcomers_refused).sum(),
        rss_gb: gb(most),
        rss_gb_before: gb(before),
        rss_bound_gb: gb(before + bound()),
        let_go: LetGo {
            handshakes: counted("handshakes_let_go_total"),
            quiet: counted("connections_let_go_quiet_total"),
            slow: counted("connections_let_go_slow_total"),
            timed_out: counted("connections_timed_out_total"),
            refused: counted("connections_refused_total"),
        },
        pairs,
    })
}

/// Bytes that clients can make the appliance hold, by its configuration (docs/operate says why).
fn bound() -> u64 {
    let connection = 4 << 10;
    // What it may send, and what rustls makes of it.
    let handshake = (40 << 10) + (24 << 10);
    // A chunk sealed and not taken, and a small object of a connection without a transfer.
    let transfer = (264 << 10) + (68 << 10);
    let head = 8 << 10;
    let times = |count: usize, each: u64| Bytes::of(count).0 * each;
    times(CONNECTIONS_MAX, connection + head)
        + times(HANDSHAKES_MAX, handshake)
        + times(TRANSFERS_MAX, transfer)
}

impl Report {
    fn table(&self) -> String {
        format!(
            "goodput with / without   {:.3} (IQR {:.3})\np99 ms                   {:.1} -> {:.1}\n\
             RSS GB                   {:.3} (bound {:.3})\n\
             new viewers ms, median   {:.1}, {} refused",
            self.goodput_ratio,
            self.goodput_ratio_iqr,
            self.response_ms_p99_without,
            self.response_ms_p99_with,
            self.rss_gb,
            self.rss_bound_gb,
            self.newcomer_ms_p50,
            self.newcomers_refused,
        )
    }
}

//! One fast client behind a long round trip: what it gets from sockets that take little beforehand,
//! and from such as take all that the kernel likes, in turns.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use model::units::Bytes;
use rig::client::Plan;
use rig::site::Site;
use rig::statistics::{Spread, median_of};
use rig::window::gigabytes;
use serde::Serialize;
use tracing::info;

use super::delay::{ADDRESS, NETWORK, PORT, Way};
use super::queued;
use crate::processor::Processor;

/// `nearcast-lab far`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long a packet takes one way, in milliseconds.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    delay: u32,
    /// The bound that is compared with none.
    #[arg(long, default_value = "256 KiB")]
    unsent_max: Bytes,
    /// How often either has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=50))]
    pairs: u32,
    /// Before a window, in seconds: until TCP has found its rate.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    warm_up: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    mbps: f64,
    /// In the appliance's socket and not acknowledged: under way, and not sent. The mean of looks.
    unacknowledged_bytes: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    processor: Processor,
    round_trip_ms: u32,
    unsent_max: String,
    /// Throughput with the bound, divided by that without: the median over pairs.
    ratio: f64,
    ratio_iqr: f64,
    mbps: f64,
    unbounded_mbps: f64,
    unacknowledged_bytes: f64,
    unbounded_unacknowledged_bytes: f64,
    pairs: Vec<[Turn; 2]>,
}

/// One response lasts for seconds, so that what is measured is not the next request's round trip.
const RANGE: Bytes = Bytes::mib(63);
const LENS: [u64; 2] = [64 << 20; 2];
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Compares, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let way = Way::new(Duration::from_millis(args.delay.into()))?;
    let dir = tempfile::Builder::new().prefix("nearcast-far-").tempdir()?;
    let start = |name: &str, most: Bytes| -> Result<(Site, SocketAddr)> {
        let room = dir.path().join(name);
        std::fs::create_dir(&room)?;
        let at = TcpListener::bind((ADDRESS, 0))?.local_addr()?;
        let listen = ("APPLIANCE_SERVE_LISTEN", format!("[\"{at}\"]"));
        let serve = format!("workers = 1\nunsent_max = \"{most}\"\n");
        Ok((Site::start_with(&room, &LENS, &serve, &[listen])?, at))
    };
    let with = start("bound", args.unsent_max)?;
    let without = start("none", Bytes::ZERO)?;
    let mut pairs = Vec::new();
    for pair in 0..args.pairs {
        let turn = |(site, at): &(Site, SocketAddr)| turn(args, &way, site, *at, pair);
        let turns = rig::in_turns(pair, || turn(&with), || turn(&without))?;
        info!(?turns, "pair");
        pairs.push(turns);
    }
    let of = |side: usize, value: fn(&Turn) -> f64| median_of(&pairs, |pair| value(&pair[side]));
    let ratios: Vec<f64> = pairs.iter().map(|[a, b]| a.mbps / b.mbps).collect();
    let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
    let report = Report {
        processor: Processor::read()?,
        round_trip_ms: 2 * args.delay,
        unsent_max: args.unsent_max.to_string(),
        ratio,
        ratio_iqr,
        mbps: of(0, |turn| turn.mbps)?,
        unbounded_mbps: of(1, |turn| turn.mbps)?,
        unacknowledged_bytes: of(0, |turn| turn.unacknowledged_bytes)?,
        unbounded_unacknowledged_bytes: of(1, |turn| turn.unacknowledged_bytes)?,
        pairs,
    };
    rig::say(args.json, &report, || {
        format!(
            "{} / no bound   {:.3} (IQR {:.3}): {:.0} and {:.0} Mb/s, round trip {} ms",
            report.unsent_max,
            report.ratio,
            report.ratio_iqr,
            report.mbps,
            report.unbounded_mbps,
            report.round_trip_ms
        )
    })
}

fn turn(args: &Args, way: &Way, site: &Site, at: SocketAddr, seed: u32) -> Result<Turn> {
    let [warm_up, window] = [args.warm_up, args.seconds].map(|s| Duration::from_secs(s.into()));
    let plan = Plan { address: at, verify_every: 1, ..site.plan(1, RANGE, u64::from(seed) + 1) };
    let (looking, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let packets = way.packets.load(Ordering::Relaxed);
    let (unacknowledged, mbps) = std::thread::scope(|scope| {
        // The appliance's end of it is in our namespace, and not in the client's.
        let looks = scope.spawn(|| -> Result<(f64, u32)> {
            let (mut sum, mut count) = (0.0, 0);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
                if looking.load(Ordering::Relaxed) {
                    sum += super::per(queued(at.port())?.sending, 1);
                    count += 1;
                }
            }
            Ok((sum, count))
        });
        let came = way.as_client(|| {
            let mut load = site.connect(&plan)?;
            load.ask_all()?;
            load.drive(Instant::now() + warm_up)?;
            looking.store(true, Ordering::Relaxed);
            let (before, start) = (load.totals(), Instant::now());
            load.drive(start + window)?;
            looking.store(false, Ordering::Relaxed);
            let body = load.totals().body - before.body;
            Ok(gigabytes(body) * 8e3 / start.elapsed().as_secs_f64())
        });
        over.store(true, Ordering::Relaxed);
        let looks = looks.join().unwrap_or_else(|_| anyhow::bail!("a thread panicked"));
        Ok::<_, anyhow::Error>((looks?, came?))
    })?;
    ensure!(
        packets < way.packets.load(Ordering::Relaxed),
        "no packet passed the relay: is there another route to {NETWORK}, or a filter for UDP \
         {PORT}?"
    );
    let (sum, count) = unacknowledged;
    Ok(Turn { mbps, unacknowledged_bytes: sum / f64::from(count.max(1)) })
}

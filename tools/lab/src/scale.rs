//! Two workers against one, each with the same to do: what a GB costs, in turns.
//!
//! Viewers ask by the clock, for so many megabits per second and worker: two workers at twice the
//! rate of one. With `--split` one rate is shared: each of two then has half as much to do in a
//! turn, and fewer at once to do it for. Two threads of viewers run on the
//! same two CPUs as the workers, in either turn, so that who sits beside whom is the same as well.

use std::time::Duration;

use anyhow::{Result, ensure};
use model::units::Bytes;
use rig::cpu;
use rig::site::{Demand, Seen, Site};
use rig::statistics::{Spread, median_of};
use serde::Serialize;
use tracing::info;

/// `nearcast-lab scale`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each has its turn.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Connections of viewers.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(2..=2000))]
    connections: u32,
    /// What viewers ask for, megabits per second for each worker.
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabits: u32,
    /// Two workers share what one has to do, instead of twice as much.
    #[arg(long)]
    split: bool,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    cpu_s_per_gb: f64,
    gbps: f64,
    /// The share of its CPU that each worker used at most, if all was evenly spread.
    worker_cpu_share: f64,
    client_cpu_share: f64,
    response_ms_p99: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    /// CPU seconds per GB of two workers divided by those of one: the median over pairs.
    ratio: f64,
    ratio_iqr: f64,
    one_cpu_s_per_gb: f64,
    two_cpu_s_per_gb: f64,
    megabits: u32,
    split: bool,
    pairs: Vec<(Turn, Turn)>,
}

const LENS: [u64; 32] = [8 << 20; 32];
const CPUS: [usize; 2] = [0, 1];

/// Compares, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let dir = tempfile::Builder::new().prefix("nearcast-scale-").tempdir()?;
    let start = |name: &str, serve: &str| -> Result<Site> {
        let room = dir.path().join(name);
        std::fs::create_dir(&room)?;
        Site::start(&room, &LENS, serve)
    };
    let one = start("one", "workers = 1\ncpus = [0]\n")?;
    let two = start("two", "workers = 2\ncpus = [0, 1]\n")?;
    let mut pairs = Vec::new();
    for n in 0..args.pairs {
        let [a, b] = rig::in_turns(n, || turn(args, &one, 1, n), || turn(args, &two, 2, n))?;
        info!(pair = n + 1, ratio = format!("{:.3}", b.cpu_s_per_gb / a.cpu_s_per_gb), "pair");
        pairs.push((a, b));
    }
    let ratios: Vec<f64> = pairs.iter().map(|(a, b)| b.cpu_s_per_gb / a.cpu_s_per_gb).collect();
    let Spread { median: ratio, iqr: ratio_iqr } = Spread::of(&ratios)?;
    let report = Report {
        ratio,
        ratio_iqr,
        one_cpu_s_per_gb: median_of(&pairs, |pair| pair.0.cpu_s_per_gb)?,
        two_cpu_s_per_gb: median_of(&pairs, |pair| pair.1.cpu_s_per_gb)?,
        megabits: args.megabits,
        split: args.split,
        pairs,
    };
    rig::say(args.json, &report, || {
        format!(
            "two workers / one   {:.3} (IQR {:.3}): {:.3} and {:.3} CPU s/GB",
            report.ratio, report.ratio_iqr, report.two_cpu_s_per_gb, report.one_cpu_s_per_gb
        )
    })
}

fn turn(args: &Args, site: &Site, workers: u32, n: u32) -> Result<Turn> {
    let (warm_up, window) = (Duration::from_secs(2), Duration::from_secs(args.seconds.into()));
    let megabits = f64::from(args.megabits) * f64::from(if args.split { 1 } else { workers });
    let bytes_per_s = megabits * 1e6 / 8.0 / 2.0;
    let demand = |cpu: usize| Demand {
        connections: usize::try_from(args.connections / 2).unwrap_or(1),
        range: Bytes::mib(1),
        bytes_per_s,
        seed: u64::from(n) * 2 + u64::from(cpu == 0) + 1,
    };
    let seen: Vec<Seen> = std::thread::scope(|scope| {
        let viewers = CPUS.map(|cpu| {
            scope.spawn(move || -> Result<Seen> {
                cpu::pin(cpu)?;
                let mut load = site.viewers(demand(cpu))?;
                site.watch(&mut load, warm_up, window)
            })
        });
        let join = |viewer: std::thread::ScopedJoinHandle<'_, Result<Seen>>| {
            viewer.join().unwrap_or_else(|_| anyhow::bail!("a viewer panicked"))
        };
        viewers.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let gb: f64 = seen.iter().map(|seen| seen.gb).sum();
    let seconds = seen.iter().map(|seen| seen.seconds).fold(0.0, f64::max);
    // Both looked at the same appliance for all but the same time.
    let server = seen.iter().map(|seen| seen.server_cpu_s).sum::<f64>() / 2.0;
    let turn = Turn {
        cpu_s_per_gb: server / gb,
        gbps: gb * 8.0 / seconds,
        worker_cpu_share: server / seconds / f64::from(workers),
        client_cpu_share: seen.iter().map(|seen| seen.client_cpu_s).sum::<f64>() / seconds,
        response_ms_p99: seen.iter().map(|seen| seen.response_ms_p99).fold(0.0, f64::max),
    };
    let wanted = megabits / 1e3;
    ensure!(
        0.97 * wanted < turn.gbps,
        "{:.2} Gb/s came of {wanted:.2}: the machine has other work, or --megabits is too much",
        turn.gbps
    );
    Ok(turn)
}

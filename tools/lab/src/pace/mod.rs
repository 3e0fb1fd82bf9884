//! `nearcast-lab pace`: what pacing costs, and what it spares a short queue on the way.
//!
//! ```text
//! crowd   500 viewers at 20 Mb/s on loopback, paced and not, in turns     CPU s/GB, lateness
//! link    one player behind 30 Mb/s with a queue of 32 KB, in turns       drops, goodput
//!         and the same while others want the appliance's CPU
//! ```
//!
//! Both under cubic and under bbr; the verdict on CPU is cubic's, which is what an appliance that
//! paces by itself is to run with (docs/decisions/2026-11-22-congestion.md).
//!
//! A paced player says with CMCD what it wants; the same requests without it are not paced, since
//! the film has no pace of its own. All is the product, unchanged; only the appliance's CPU counts.

pub(crate) mod rival;
mod world;

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::stage::Appliance;
use rig::statistics::{Spread, median_of};
use rig::window::Timing;
use serde::Serialize;
use tracing::info;

use rival::Rival;
use world::{CONGESTION, CROWD_KBPS, Crowd, PAYLOAD_KBPS, SHAPE, Window, World, quantile};

/// `nearcast-lab pace`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Instead of the verdict: CPU and drops for each burst and guard, and for the kernel's pacing.
    #[arg(long)]
    frontier: bool,
    /// Pairs of windows, paced and not.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// Viewers of the crowd.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Behind the link only: no crowd.
    #[arg(long)]
    link_only: bool,
    /// Who wants the appliance's CPU too while somebody plays behind the link: each in its turn.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,busy,greedy")]
    rivals: Vec<Rival>,
    /// More of `[pacing]` of the appliance's configuration, for example `burst = "64 KiB"`.
    #[arg(long, default_value = "")]
    pacing: String,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// Of what unpaced viewers get, paced ones get at least so much.
const GOODPUT_RATIO_MIN: f64 = 0.98;

/// Of what unpaced windows lose, paced ones may lose so much, whoever wants the CPU.
const DROP_RATIO_MAX: f64 = 0.1;

/// One congestion control behind the link.
#[derive(Clone, Debug, Serialize)]
struct Behind {
    congestion: &'static str,
    rival: Rival,
    /// Of all windows together, so that a single bad one counts.
    drop_ratio: f64,
    goodput_ratio: Spread,
    paced: Vec<Window>,
    unpaced: Vec<Window>,
}

/// A crowd under one congestion control.
#[derive(Clone, Debug, Serialize)]
struct Viewers {
    congestion: &'static str,
    /// CPU seconds per GB, paced over unpaced: of the appliance's processes.
    cpu_ratio: f64,
    cpu_ratio_iqr: f64,
    /// The same of everything on the appliance's CPU.
    cpu_busy_ratio: f64,
    cpu_s_per_gb_paced: f64,
    cpu_s_per_gb_unpaced: f64,
    gbps_paced: f64,
    gbps_unpaced: f64,
    /// What goes at once, on average.
    burst_bytes: u64,
    /// How much later than its moment a burst goes, in the crowd.
    jitter_us_p99: f64,
}

#[derive(Clone, Debug, Serialize)]
struct Report {
    pairs: u32,
    connections: u32,
    paced_kbps: u64,
    /// Those under the first congestion control; none with `--link-only`.
    #[serde(flatten)]
    verdict: Option<Viewers>,
    /// And under the others.
    others: Vec<Viewers>,
    link_rate_bps: u64,
    link_queue_bytes: u64,
    link_kbps_asked: u64,
    /// The worst of the congestion controls and rivals.
    drop_ratio: f64,
    drop_ratio_max: f64,
    drop_ratio_holds: bool,
    goodput_ratio: f64,
    behind: Vec<Behind>,
}

#[derive(Clone, Debug, Serialize)]
struct Point {
    pacing: String,
    cpu_s_per_gb: f64,
    cpu_busy_s_per_gb: f64,
    gbps: f64,
    jitter_us_p99: Option<f64>,
    /// Drops per 1,000 packets and Mb/s of goodput, by congestion control.
    drops_per_1000: [f64; CONGESTION.len()],
    mbps: [f64; CONGESTION.len()],
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let world = World::new()?;
    if args.frontier { frontier(args, &world) } else { verdict(args, &world) }
}

fn timing(args: &Args) -> Timing {
    Timing { warm_up: Duration::from_secs(1), window: Duration::from_secs(args.seconds.into()) }
}

fn verdict(args: &Args, world: &World) -> Result<()> {
    let appliance = world.start(&args.pacing)?;
    let all = 0..CONGESTION.len();
    let with_crowd = all.clone().filter(|_| !args.link_only);
    let crowds: Result<Vec<Viewers>> =
        with_crowd.map(|which| viewers(args, world, &appliance, which)).collect();
    let mut crowds = crowds?.into_iter();
    let each = args.rivals.iter().flat_map(|rival| all.clone().map(|which| (*rival, which)));
    let behind: Result<Vec<Behind>> =
        each.map(|(rival, which)| behind(args, world, rival, which)).collect();
    let behind = behind?;
    let worst = |values: Vec<f64>| values.into_iter().reduce(f64::max).context("no link");
    let drop_ratio = worst(behind.iter().map(|one| one.drop_ratio).collect())?;
    let report = Report {
        pairs: args.pairs,
        connections: args.connections,
        paced_kbps: CROWD_KBPS,
        verdict: crowds.next(),
        others: crowds.collect(),
        link_rate_bps: SHAPE.rate.0,
        link_queue_bytes: SHAPE.queue.0,
        link_kbps_asked: PAYLOAD_KBPS,
        drop_ratio,
        drop_ratio_max: DROP_RATIO_MAX,
        drop_ratio_holds: drop_ratio <= DROP_RATIO_MAX,
        goodput_ratio: -worst(behind.iter().map(|one| -one.goodput_ratio.median).collect())?,
        behind,
    };
    rig::say(args.json, &report, || report.table())?;
    ensure!(
        report.drop_ratio_holds,
        "paced windows lose {drop_ratio:.3} of what unpaced ones do, more than {DROP_RATIO_MAX}"
    );
    ensure!(
        GOODPUT_RATIO_MIN <= report.goodput_ratio,
        "paced viewers get {:.3} of what unpaced ones do, less than {GOODPUT_RATIO_MIN}",
        report.goodput_ratio
    );
    Ok(())
}

fn viewers(args: &Args, world: &World, appliance: &Appliance, which: usize) -> Result<Viewers> {
    let who = (which, usize::try_from(args.connections)?);
    let (mut paced, mut unpaced) = (Vec::new(), Vec::new());
    let sent = |name| appliance.metric(name).context("no metrics");
    let mut burst = (0.0_f64, 0.0_f64);
    for pair in 0..args.pairs {
        let seed = u64::from(pair);
        let before = (sent("egress_bytes_total")?, sent("paced_bursts_total")?);
        paced.push(world.crowd(appliance, who, true, timing(args), seed)?);
        let after = (sent("egress_bytes_total")?, sent("paced_bursts_total")?);
        burst = (burst.0 + after.0 - before.0, burst.1 + after.1 - before.1);
        unpaced.push(world.crowd(appliance, who, false, timing(args), seed)?);
        info!(pair, paced = paced[paced.len() - 1].cpu_s_per_gb, "crowd");
    }
    let stalled: usize = paced.iter().chain(&unpaced).map(|crowd| crowd.stalled).sum();
    ensure!(stalled == 0, "{stalled} viewers got nothing: this machine is too slow, or too busy");
    let cpu = spread(&paced, &unpaced, |crowd| crowd.cpu_s_per_gb)?;
    Ok(Viewers {
        congestion: CONGESTION[which],
        cpu_ratio: cpu.median,
        cpu_ratio_iqr: cpu.iqr,
        cpu_busy_ratio: spread(&paced, &unpaced, |crowd| crowd.cpu_busy_s_per_gb)?.median,
        cpu_s_per_gb_paced: median_of(&paced, |crowd| crowd.cpu_s_per_gb)?,
        cpu_s_per_gb_unpaced: median_of(&unpaced, |crowd| crowd.cpu_s_per_gb)?,
        gbps_paced: median_of(&paced, |crowd| crowd.gbps)?,
        gbps_unpaced: median_of(&unpaced, |crowd| crowd.gbps)?,
        burst_bytes: whole(burst.0 / burst.1.max(1.0)),
        jitter_us_p99: jitter(&paced).context("no burst had to wait")?,
    })
}

fn behind(args: &Args, world: &World, rival: Rival, which: usize) -> Result<Behind> {
    let _rival = rival.start(world.dir())?;
    let (mut paced, mut unpaced) = (Vec::new(), Vec::new());
    for pair in 0..args.pairs {
        paced.push(world.link(which, true, timing(args), pair.into())?);
        unpaced.push(world.link(which, false, timing(args), pair.into())?);
        let (one, other) = (paced.last(), unpaced.last());
        let congestion = CONGESTION[which];
        info!(?rival, congestion, paced = ?one, unpaced = ?other, "behind the link");
    }
    // One window alone may lose nothing under bbr, which paces by itself.
    ensure!(
        unpaced.iter().any(|link| 0 < link.drops),
        "without pacing nothing was dropped either: the link is no bottleneck"
    );
    Ok(Behind {
        congestion: CONGESTION[which],
        rival,
        drop_ratio: drops(&paced) / drops(&unpaced),
        goodput_ratio: spread(&paced, &unpaced, |link| link.mbps)?,
        paced,
        unpaced,
    })
}

/// Of windows that are equally many and long, the link full in each.
fn drops(windows: &[Window]) -> f64 {
    windows.iter().map(|one| one.drops_per_1000).sum()
}

/// Each paced window over its unpaced one.
fn spread<T>(paced: &[T], unpaced: &[T], of: impl Fn(&T) -> f64) -> Result<Spread> {
    let ratios: Vec<f64> =
        paced.iter().zip(unpaced).map(|(paced, unpaced)| of(paced) / of(unpaced)).collect();
    Spread::of(&ratios)
}

/// The 99th percentile of all windows together.
fn jitter(crowds: &[Crowd]) -> Option<f64> {
    let mut sum = crowds.first()?.late.clone();
    for crowd in &crowds[1..] {
        for (sum, one) in sum.iter_mut().zip(&crowd.late) {
            sum.1 += one.1;
        }
    }
    quantile(&sum, 0.99)
}

fn whole(value: f64) -> u64 {
    // Through text, since a cast would not say what it does out of range.
    format!("{value:.0}").parse().unwrap_or(0)
}

fn frontier(args: &Args, world: &World) -> Result<()> {
    let sizes = [8, 16, 32, 64, 128];
    let own = sizes.iter().flat_map(|burst| {
        [0, 2, 4].map(|guard| {
            format!("burst = \"{burst} KiB\"\nburst_min = \"{burst} KiB\"\nguard = {guard}")
        })
    });
    let others =
        ["guard = 0".to_owned(), "mode = \"kernel\"".to_owned(), "mode = \"off\"".to_owned()];
    let others = others.into_iter();
    let points: Result<Vec<Point>> =
        own.chain(others).map(|pacing| point(args, world, pacing)).collect();
    let points = points?;
    if args.json {
        return rig::print(&serde_json::to_string(&points)?);
    }
    let [first, second] = CONGESTION;
    let mut table = format!(
        "{:<28} {:>8} {:>8} {:>6} {:>9} {:>12} {:>6} {:>12} {:>6}\n",
        "pacing", "CPU s/GB", "busy", "Gb/s", "late p99", first, "Mb/s", second, "Mb/s"
    );
    for point in &points {
        let _ = writeln!(
            table,
            "{:<28} {:>8.3} {:>8.3} {:>6.2} {:>9.0} {:>12.2} {:>6.2} {:>12.2} {:>6.2}",
            point.pacing.replace('\n', ", "),
            point.cpu_s_per_gb,
            point.cpu_busy_s_per_gb,
            point.gbps,
            point.jitter_us_p99.unwrap_or(0.0),
            point.drops_per_1000[0],
            point.mbps[0],
            point.drops_per_1000[1],
            point.mbps[1],
        );
    }
    rig::print(&format!("{table}drops per 1,000 packets behind {SHAPE:?}"))
}

fn point(args: &Args, world: &World, pacing: String) -> Result<Point> {
    let appliance = world.start(&pacing)?;
    let connections = usize::try_from(args.connections)?;
    let crowd = world.crowd(&appliance, (0, connections), true, timing(args), 1)?;
    let links: Result<Vec<Window>> =
        (0..CONGESTION.len()).map(|which| world.link(which, true, timing(args), 1)).collect();
    let links: [Window; CONGESTION.len()] =
        links?.try_into().ok().context("one for each congestion control")?;
    Ok(Point {
        pacing,
        cpu_s_per_gb: crowd.cpu_s_per_gb,
        cpu_busy_s_per_gb: crowd.cpu_busy_s_per_gb,
        gbps: crowd.gbps,
        jitter_us_p99: jitter(std::slice::from_ref(&crowd)),
        drops_per_1000: links.map(|link| link.drops_per_1000),
        mbps: links.map(|link| link.mbps),
    })
}

impl Report {
    fn table(&self) -> String {
        let crowds = self.verdict.iter().chain(&self.others);
        let mut table: String = crowds.map(Viewers::table).collect();
        for one in &self.behind {
            let of = [
                ("drops, paced over unpaced", one.drop_ratio),
                ("goodput, paced over unpaced", one.goodput_ratio.median),
            ];
            let _ = write!(table, "{}, rival {:?}\n{}", one.congestion, one.rival, rows(&of));
        }
        table
    }
}

impl Viewers {
    fn table(&self) -> String {
        let of = [
            ("CPU, paced over unpaced", self.cpu_ratio),
            ("  interquartile range", self.cpu_ratio_iqr),
            ("  of all on that CPU", self.cpu_busy_ratio),
            ("CPU s/GB, paced", self.cpu_s_per_gb_paced),
            ("CPU s/GB, unpaced", self.cpu_s_per_gb_unpaced),
            ("Gb/s, paced", self.gbps_paced),
            ("Gb/s, unpaced", self.gbps_unpaced),
            ("burst lateness us, p99", self.jitter_us_p99),
        ];
        format!("{}\n{}", self.congestion, rows(&of))
    }
}

fn rows(rows: &[(&str, f64)]) -> String {
    rows.iter().map(|(name, value)| format!("{name:<30}{value:>10.3}\n")).collect()
}

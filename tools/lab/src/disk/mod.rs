//! `nearcast-lab disk`: what a fill does to viewers on the machine's real disk, ours and a peer.
//!
//! ```text
//! the same files on the same disk, served by both; viewers by the clock, ranges at random
//!   ours, peer, ours, peer, ...:  reads alone ──> reads beside a fill, until it is on the disk
//!     ours: from an origin in memory, through the gate; the peer: beside an ordinary writer
//!           (write(2) through the page cache, as rsync and cp do), and one sync at the end
//! ```
//!
//! Neither side has the files in memory: ours reads by direct I/O with few hot blocks, and so does
//! nginx in the configuration that is taken unless another is named. Everything else of the machine
//! is shared: fill, origin, writer and viewers run where the kernel puts them, the two servers on
//! the same CPU.

pub(crate) mod fuse;
mod modelled;
mod report;
mod side;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rig::client::{Load, Plan, Truth};
use tracing::info;

use report::{Figures, Report, Turn};
use side::{Ours, Theirs};

/// `nearcast-lab disk`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How much each side fills, in all its turns together.
    #[arg(long, default_value = "20 GB")]
    fill: Bytes,
    /// How often each side has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pairs: u32,
    /// What is served.
    #[arg(long, default_value = "1500 MB")]
    served: Bytes,
    /// Viewers, each on a connection of its own.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=5000))]
    viewers: u32,
    /// What each viewer asks for per second, in Mb.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    mbps: u32,
    /// Reads alone before each fill, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// The appliance's `[drives]` settings that are not as by default, for example
    /// `policy = "static"`.
    #[arg(long, default_value = "")]
    drives: String,
    /// The peer's configuration.
    #[arg(long, default_value = "aio-directio-512k")]
    peer_config: String,
    /// The CPU of both servers.
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// Where files are made: on the disk that is measured. Default: the directory for temporary
    /// files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// A viewer's request: what the serve path reads at once.
const RANGE_LEN: Bytes = Bytes::kib(256);
/// A fill that takes longer has failed.
const FILL_MAX: Duration = Duration::from_secs(300);
/// Between two looks whether the fill is done.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections and caches settle.
const WARM_UP: Duration = Duration::from_secs(1);
/// Before other threads of this process and of the servers: viewers' clocks must be right.
const NICE: i32 = -15;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A server, and what fills beside it.
trait Side {
    fn plan(&self) -> Result<(Plan, Truth)>;
    fn begin(&mut self) -> Result<()>;
    /// True once all of it is on the disk.
    fn is_done(&mut self) -> Result<bool>;
    /// Takes away what was filled.
    fn clear(&mut self) -> Result<()>;
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let kind = rustix::fs::statfs(&dir)?;
    ensure!(kind.f_type != TMPFS_MAGIC, "{} is in memory: give --dir on a disk", dir.display());
    let dir = tempfile::Builder::new().prefix("nearcast-disk-").tempdir_in(dir)?;
    let chunk = Bytes(args.fill.0 / u64::from(args.pairs));
    let room = dir.path().join("ours");
    let mut ours = Ours::new(args, &room, &room.join("drive"), chunk)?;
    let mut peer = Theirs::new(args, &dir.path().join("peer"), &ours)?;
    let (mut our_turns, mut peer_turns) = (Vec::new(), Vec::new());
    for pair in 0..args.pairs {
        rig::stop::check()?;
        our_turns.push(turn(args, &mut ours, pair).context("our side")?);
        peer_turns.push(turn(args, &mut peer, pair).context("the peer's side")?);
        info!(pair, ours = ?our_turns.last(), peer = ?peer_turns.last(), "a pair");
    }
    let report = Report {
        pairs: args.pairs,
        fill_gb: rig::window::gigabytes(args.fill.0),
        viewers: args.viewers,
        read_mbps: f64::from(args.viewers * args.mbps) / 8.0,
        peer: peer.version.clone(),
        peer_config: args.peer_config.clone(),
        ratio_p99: report::ratio(&our_turns, &peer_turns, |window| window.p99_ms)?,
        ratio_p999: report::ratio(&our_turns, &peer_turns, |window| window.p999_ms)?,
        ours: Figures::of(&our_turns, chunk)?,
        peer_figures: Figures::of(&peer_turns, chunk)?,
        our_turns,
        peer_turns,
    };
    rig::say_all(args.json, &report)
}

/// Reads alone, then beside a fill.
fn turn(args: &Args, side: &mut dyn Side, seed: u32) -> Result<Turn> {
    // What was written and removed before is none of this turn's.
    rustix::fs::sync();
    let (plan, truth) = side.plan()?;
    let plan = Plan {
        connections: usize::try_from(args.viewers)?,
        range_len: RANGE_LEN,
        seed: seed.into(),
        every: Duration::from_nanos(RANGE_LEN.0 * 8 * 1000 / u64::from(args.mbps)),
        ..plan
    };
    set_priority(NICE);
    let seen = windows(args, side, &plan, truth);
    set_priority(0);
    let (alone, beside) = seen?;
    side.clear()?;
    Ok(Turn { alone, beside })
}

fn windows(
    args: &Args,
    side: &mut dyn Side,
    plan: &Plan,
    truth: Truth,
) -> Result<(report::Window, report::Window)> {
    let mut load = Load::connect(plan, truth)?;
    load.ask_all()?;
    load.drive(Instant::now() + WARM_UP)?;
    load.reset_latency();
    let alone = window(&mut load, Duration::from_secs(args.seconds.into()), || Ok(false))?;
    load.reset_latency();
    side.begin()?;
    let beside = window(&mut load, FILL_MAX, || side.is_done())?;
    ensure!(beside.seconds < FILL_MAX.as_secs_f64(), "the fill takes over {FILL_MAX:?}");
    Ok((alone, beside))
}

/// Of this thread. Who may not has it as it is.
fn set_priority(nice: i32) {
    if let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::debug!(%error, nice, "cannot set the priority");
    }
}

/// Reads until `done`, or for so long.
fn window(
    load: &mut Load,
    span: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<report::Window> {
    let (before, start) = (load.totals(), Instant::now());
    while start.elapsed() < span && !done()? {
        load.drive(Instant::now() + LOOK_EVERY)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let body = load.totals().body - before.body;
    Ok(report::Window {
        seconds,
        read_mbps: rig::window::gigabytes(body) * 1e3 / seconds,
        p50_ms: load.latency_ms(0.5),
        p99_ms: load.latency_ms(0.99),
        p999_ms: load.latency_ms(0.999),
    })
}

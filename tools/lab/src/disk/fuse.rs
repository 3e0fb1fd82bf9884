//! `nearcast-lab fuse-drive`: the appliance as it is, on a drive that takes the times of the model,
//! serving while it fills: writes not held back, held back by a constant, and by the governor.
//!
//! ```text
//! nearcast-appliance ── kernel ── FUSE ──> ssd::Drive, slowed down ──> a folder
//! ```
//!
//! A system call through FUSE takes a good part of a millisecond on a busy machine, so the model
//! runs slower than a drive, and the target is as much longer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use model::units::Bytes;
use rig::client::{Plan, Truth};
use rig::drive::Drive;
use serde::Serialize;
use ssd::Class;
use tracing::info;

use super::Side;
use super::modelled::{Met, Modelled};
use super::report::Turn;
use super::side::Ours;
use crate::drive_protocol::aged;

/// `nearcast-lab fuse-drive`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which drive: sata-tlc, sata-dc, nvme-tlc or nvme-qlc.
    #[arg(long, default_value = "sata-tlc", value_parser = crate::drive_protocol::class)]
    class: Class,
    /// How many times slower than the drive the model runs.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    slower: u32,
    /// How much is filled under each policy.
    #[arg(long, default_value = "1 GB")]
    fill: Bytes,
    /// Viewers, each with 8 Mb/s.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    viewers: u32,
    /// The static policy's rate.
    #[arg(long, default_value = "80 Mb/s")]
    constant: String,
    /// Only this policy: off, static or governor. Else all three, one after the other.
    #[arg(long)]
    only: Option<String>,
    /// Another seed, another drive and other moments.
    #[arg(long, default_value_t = 1)]
    seed: u32,
    /// Where files are made. Default: /dev/shm, which is memory: beneath the model nothing waits.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    class: &'static str,
    slower: u32,
    target_ms: u32,
    viewers: u32,
    fill_gb: f64,
    off: Option<Seen>,
    #[serde(rename = "static")]
    constant: Option<Seen>,
    governor: Option<Seen>,
}

#[derive(Debug, Serialize)]
struct Seen {
    p99_alone_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    fill_mbps: f64,
    amplification: f64,
    /// What reads met in the model beside the fill: what is more at viewers is the machine's.
    model: Met,
    turn: Turn,
}

/// Our side, on a drive that counts what happens from the fill's begin on.
struct Simulated {
    ours: Ours,
    model: Arc<Modelled>,
    met: Met,
    began: Instant,
}

impl Side for Simulated {
    fn plan(&self) -> Result<(Plan, Truth)> {
        self.ours.plan()
    }

    fn begin(&mut self) -> Result<()> {
        self.model.forget();
        self.began = Instant::now();
        self.ours.begin()
    }

    fn is_done(&mut self) -> Result<bool> {
        self.met = self.model.met(self.began.elapsed());
        self.ours.is_done()
    }

    fn clear(&mut self) -> Result<()> {
        self.ours.clear()
    }
}

/// Of the drives' own target.
const TARGET_MS: u32 = 5;
const SERVED: Bytes = Bytes(250_000_000);
/// Reads alone before the fill.
const ALONE_S: u32 = 8;
const MBPS: u32 = 8;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let target_ms = TARGET_MS * args.slower;
    let constant = format!("policy=static,write_rate={}", args.constant);
    let wanted = |name: &str| args.only.as_deref().is_none_or(|only| only == name);
    let [off, constant, governor] = [
        ("off", "policy=off"),
        ("static", &constant),
        ("governor", "policy=governor,write_floor=10 Mb/s"),
    ]
    .map(|(name, policy)| wanted(name).then(|| seen(args, policy, target_ms)).transpose());
    let report = Report {
        class: args.class.name(),
        slower: args.slower,
        target_ms,
        viewers: args.viewers,
        fill_gb: rig::window::gigabytes(args.fill.0),
        off: off?,
        constant: constant?,
        governor: governor?,
    };
    rig::say_all(args.json, &report)
}

/// One policy on a drive of its own, in the same state each time.
fn seen(args: &Args, policy: &str, target_ms: u32) -> Result<Seen> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    let dir = tempfile::Builder::new().prefix("nearcast-fuse-").tempdir_in(dir)?;
    let (folder, mount) = (dir.path().join("folder"), dir.path().join("drive"));
    std::fs::create_dir_all(&folder)?;
    let model = Arc::new(Modelled::new(
        args.class.params(),
        aged(args.class),
        args.seed.into(),
        args.slower,
    ));
    // Ended after the appliance is.
    let _drive = Drive::mount(&folder, &mount, model.clone()).context("the simulated drive")?;
    let plan = super::Args {
        fill: args.fill,
        pairs: 1,
        served: SERVED,
        viewers: args.viewers,
        mbps: MBPS,
        seconds: ALONE_S,
        drives: format!("{policy},read_targets=[\"{target_ms} ms\"]"),
        peer_config: String::new(),
        server_cpu: 0,
        dir: None,
        json: true,
    };
    let ours = Ours::new(&plan, &dir.path().join("ours"), &mount, args.fill)?;
    ours.keep_truth()?;
    let (met, began) = (Met::default(), Instant::now());
    let mut side = Simulated { ours, model: model.clone(), met, began };
    let turn = super::turn(&plan, &mut side, args.seed)?;
    info!(policy, ?turn, "a fill");
    Ok(Seen {
        p99_alone_ms: turn.alone.p99_ms,
        p99_ms: turn.beside.p99_ms,
        p999_ms: turn.beside.p999_ms,
        fill_mbps: rig::window::gigabytes(args.fill.0) * 1e3 / turn.beside.seconds,
        amplification: model.amplification(),
        model: side.met,
        turn,
    })
}

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

use anyhow::{Context, Result};
use model::units::Bytes;
use serde::Serialize;
use ssd::Class;
use tracing::info;

use super::report::Turn;
use super::side::Ours;
use crate::drive::{Drive, Modelled};
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
    /// Where files are made. Default: the directory for temporary files.
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
    off: Seen,
    #[serde(rename = "static")]
    constant: Seen,
    governor: Seen,
}

#[derive(Debug, Serialize)]
struct Seen {
    p99_alone_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    fill_mbps: f64,
    amplification: f64,
    turn: Turn,
}

/// Of the drives' own target.
const TARGET_MS: u32 = 5;
const SERVED: Bytes = Bytes(250_000_000);
/// Reads alone before the fill.
const ALONE_S: u32 = 8;
const MBPS: u32 = 8;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    crate::raise_file_limit()?;
    let target_ms = TARGET_MS * args.slower;
    let report = Report {
        class: args.class.name(),
        slower: args.slower,
        target_ms,
        viewers: args.viewers,
        fill_gb: crate::window::gigabytes(args.fill.0),
        off: seen(args, "policy=off", target_ms)?,
        constant: seen(args, &format!("policy=static,write_rate={}", args.constant), target_ms)?,
        governor: seen(args, "policy=governor,write_floor=10 Mb/s", target_ms)?,
    };
    if args.json {
        return crate::print(&serde_json::to_string(&report)?);
    }
    crate::print(&serde_json::to_string_pretty(&report)?)
}

/// One policy on a drive of its own, in the same state each time.
fn seen(args: &Args, policy: &str, target_ms: u32) -> Result<Seen> {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("nearcast-fuse-").tempdir_in(dir)?;
    let (folder, mount) = (dir.path().join("folder"), dir.path().join("drive"));
    std::fs::create_dir_all(&folder)?;
    let model = Arc::new(Modelled::new(args.class.params(), aged(args.class), 1, args.slower));
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
    let mut ours = Ours::new(&plan, &dir.path().join("ours"), &mount, args.fill)?;
    ours.keep_truth()?;
    model.forget_wear();
    let turn = super::turn(&plan, &mut ours, 1)?;
    info!(policy, ?turn, "a fill");
    Ok(Seen {
        p99_alone_ms: turn.alone.p99_ms,
        p99_ms: turn.beside.p99_ms,
        p999_ms: turn.beside.p999_ms,
        fill_mbps: crate::window::gigabytes(args.fill.0) * 1e3 / turn.beside.seconds,
        amplification: model.amplification(),
        turn,
    })
}

//! `nearcast-lab sample`: what it costs to verify one block of so many chunks that are served.

use std::hint::black_box;

use anyhow::{Context, Result};
use model::object::{BLOCK_LEN, block_hash};
use rig::cpu;
use rig::statistics::median;
use serde::Serialize;

/// `nearcast-lab sample`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Blocks per measurement; the median of nine is told.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,
    /// Of so many chunks one is verified: `[serve] verify_every`.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    every: u32,
    /// CPU time of serving a gigabyte, in seconds: what the share is of. By default that of the
    /// warm workload, as docs/numbers.md has it.
    #[arg(long, default_value_t = 0.297)]
    serve_s_per_gb: f64,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    /// CPU time of the hash of one block of 256 KiB, microseconds.
    hash_us: f64,
    /// CPU seconds per gigabyte served, if one of so many chunks is hashed.
    s_per_gb: f64,
    /// Of what serving costs.
    share: f64,
}

const MEASUREMENTS: u32 = 9;

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let bytes = vec![0x5a; BLOCK_LEN.as_usize()];
    let mut times = Vec::new();
    for _ in 0..MEASUREMENTS {
        let before = cpu::of_this_thread()?;
        for block in 0..args.blocks {
            black_box(block_hash(u64::from(block), black_box(&bytes), false));
        }
        let used = cpu::of_this_thread()?.saturating_sub(before);
        times.push(used.as_secs_f64() * 1e6 / f64::from(args.blocks));
    }
    let hash_us = median(&times).context("there are measurements")?;
    let blocks_per_gb = 1e9 / f64::from(u32::try_from(BLOCK_LEN.0)?);
    let s_per_gb = hash_us / 1e6 * blocks_per_gb / f64::from(args.every);
    let report = Report { hash_us, s_per_gb, share: s_per_gb / args.serve_s_per_gb };
    rig::say(args.json, &report, || {
        format!("{hash_us:.1} us for a block; {:.3} % of what serving costs", report.share * 100.0)
    })
}

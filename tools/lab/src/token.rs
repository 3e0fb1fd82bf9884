//! `nearcast-lab token`: what it costs to check a playback token, and what it is a share of.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use playback::token::{Grant, Scope, Session, SigningInput, assemble, verify};
use rig::cpu;
use serde::Serialize;

/// `nearcast-lab token`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Tokens per sample.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    tokens: u32,
    /// Samples; the median is told.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// CPU time of a request without its token, in microseconds: what the share is of. By default
    /// that of a range of 64 KiB at the 0.39 s/GB that docs/numbers.md has.
    #[arg(long, default_value_t = 26.0)]
    request_us: f64,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// All in microseconds of CPU time.
#[derive(Debug, Serialize)]
struct Report {
    /// A good token, for a path three parts deep.
    verify_us: f64,
    /// One whose signature does not fit: what a stranger can make us spend.
    refuse_us: f64,
    sign_us: f64,
    /// Of a request, if each verified its token.
    share_each: f64,
    /// Of a request, on a connection that carries a hundred: verified once.
    share_of_hundred: f64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32])?;
    let public_key = pair.public_key().as_ref().try_into().context("a public key of 32 bytes")?;
    let keys = [TokenKey { kid: "k1".to_owned(), public_key }];
    let (version, path) = ("film-0123456789abcdef", "v/r3/segment-00017.m4s");
    let scope = Scope::below(version, "v/r3").context("a scope")?;
    let expires = UnixSeconds(1_800_000_000);
    let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
    let sign = || -> Result<String> {
        let signature = pair.sign(SigningInput::new("k1", grant).as_bytes());
        Ok(assemble("k1", grant, signature.as_ref().try_into()?))
    };
    let good = sign()?;
    let (head, _) = good.rsplit_once('.').context("a token has parts")?;
    let forged = format!("{head}.{}", "A".repeat(86));
    let now = UnixSeconds(expires.0 - 1);
    let check = |token: &str| verify(&keys, black_box(token), version, black_box(path), now);
    ensure!(check(&good) == Ok(grant) && check(&forged).is_err(), "tokens are checked");

    let verify_us = median(args, || check(&good))?;
    let report = Report {
        verify_us,
        refuse_us: median(args, || check(&forged))?,
        sign_us: median(args, sign)?,
        share_each: verify_us / (args.request_us + verify_us),
        share_of_hundred: verify_us / (args.request_us * 100.0 + verify_us),
    };
    if args.json {
        return rig::print(&serde_json::to_string(&report)?);
    }
    rig::print(&format!(
        "verify {:.1} us, refuse {:.1} us, sign {:.1} us; {:.2}% of a hundred requests",
        report.verify_us,
        report.refuse_us,
        report.sign_us,
        report.share_of_hundred * 100.0
    ))
}

/// Microseconds of this thread's CPU per call.
fn median<T>(args: &Args, mut work: impl FnMut() -> T) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..args.samples {
        let before = cpu::of_this_thread()?;
        for _ in 0..args.tokens {
            black_box(work());
        }
        let used: Duration = cpu::of_this_thread()?.saturating_sub(before);
        times.push(used.as_secs_f64() * 1e6 / f64::from(args.tokens));
    }
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().context("there are samples")
}

//! `nearcast`, the operator's hand: everything a person does with a fleet from a shell.
//!
//! Progress and logs go to stderr, results to stdout: as text for people, or with `--json` as one
//! JSON object on the last line.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod applying;
mod audit;
mod content_type;
mod control;
mod declared;
mod demo;
mod drain;
mod explain;
mod fill;
mod find;
mod grammar;
mod ingest;
mod list;
mod origin;
mod output;
mod popularity;
mod qoe;
mod remove;
mod replay;
mod tree;
mod verbs;

#[derive(Debug, Parser)]
#[command(name = "nearcast", version, about = "The operator's hand of a Nearcast fleet")]
struct Cli {
    /// Least severe log lines to print: error, warn, info, debug or trace
    #[arg(long, global = true, value_name = "LEVEL", env = "NEARCAST_LOG", default_value = "info")]
    log_level: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a whole Nearcast on this machine and play a film through its faults
    Demo(demo::Args),
    /// Serve a directory over HTTPS, for appliances to fill from
    Origin(origin::Args),
    /// Read a directory or a bucket of HLS and DASH files once: an asset's new version
    Ingest(ingest::Args),
    /// Make the fleet as a file declares it, after showing the difference
    Apply(applying::Args),
    /// Write the fleet as a file that `apply` takes
    Export(control::Query),
    /// Say why a client gets the appliances it gets, in this order
    Explain(explain::Args),
    /// Make the decisions of a ledger again: the same, or elsewhere if something were other
    Replay(replay::Args),
    /// Take an appliance out of players' lists for a while, or end that
    Drain(drain::Args),
    /// Write completions for shells, and manual pages
    Manual(manual::Args),
    /// Show what viewers felt: start-up, stalls, bitrate, buffer
    Qoe(qoe::Args),
    /// Show what viewers will watch tomorrow, and how good such forecasts were
    Popularity(popularity::Args),
    /// Run a program that ends when its parent does (for the demo's own use)
    #[command(hide = true)]
    Child(demo::child::Args),
}

/// The whole command line: verbs of the table, `nearcast THING VERB`, and those without a thing.
fn command() -> clap::Command {
    Cli::command().subcommands(verbs::commands())
}

fn main() -> ExitCode {
    match run(&command().get_matches()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let tone = output::Tone::Bad;
            let colours = std::io::stderr().is_terminal() && output::colours_wanted();
            eprintln!("{} {error:#}", output::paint("error:", tone, colours));
            if error.is::<remove::Away>() || error.is::<applying::Waiting>() {
                ExitCode::from(AWAITED)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

/// Exit status: it is done, but for somebody or something that is awaited: an appliance that is
/// away has not confirmed a withdrawal, or a part of a file waits for a machine or an ingest.
const AWAITED: u8 = 3;

fn run(matches: &clap::ArgMatches) -> anyhow::Result<()> {
    let log_level: &String = matches.get_one("log_level").expect("it has a default");
    let filter = EnvFilter::try_new(log_level).map_err(|error| {
        anyhow::anyhow!("\"{log_level}\" is not a log level ({error}): write for example info")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && output::colours_wanted())
        .with_target(false)
        .init();
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("two cryptography providers: this is a mistake of ours"))?;
    if let Some(done) = verbs::run(matches) {
        return done;
    }
    match &Cli::from_arg_matches(matches)?.verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Apply(args) => applying::run(args),
        Verb::Export(args) => applying::export(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Drain(args) => drain::run(args),
        Verb::Manual(args) => Ok(args.write(command(), manual::Section::Commands)?),
        Verb::Qoe(args) => qoe::run(args),
        Verb::Popularity(args) => popularity::run(args),
        Verb::Child(args) => demo::child::run(args),
        Verb::Origin(args) => origin::run(args),
        Verb::Ingest(args) => ingest::run(args),
    }
}

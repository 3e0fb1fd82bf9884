//! The benchmark lab: load, and what it costs those who serve it.
//!
//! Figures that are promised come from here. Logs go to stderr; the last line of stdout is the
//! result, and the exit status is 0 only if the run was valid.

mod compare;
mod load;
mod stop;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tracing::error;
use tracing_subscriber::EnvFilter;

/// Measures what it costs to serve.
#[derive(Debug, Parser)]
#[command(name = "nearcast-lab", version)]
struct Cli {
    /// What to log on stderr: error, warn, info, debug, trace.
    #[arg(long, global = true, env = "NEARCAST_LOG", default_value = "info")]
    log_level: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// CPU seconds per GB: ours against a peer's, in turns on this machine.
    Compare(compare::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::builder().parse_lossy(&cli.log_level);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("the run is not valid: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    stop::listen()?;
    match &cli.verb {
        Verb::Compare(args) => compare::run(args),
    }
}

/// Writes a result to stdout.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

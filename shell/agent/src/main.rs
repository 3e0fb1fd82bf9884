//! `nearcast-agent`: what an appliance needs more privileges for, behind a Unix socket.
//!
//! ```text
//! appliance, operator ── one JSON line ──> socket ─> who asks? ─> verb ─> one JSON line
//!                                                    drives  /proc/self/mountinfo, /sys
//!                                                    trim    fstrim, one at a time
//!                                                    health  smartctl or nvme, if installed
//! site's addresses ──> priorities ──> keepalived, or the loopback for BIRD     (`addresses`)
//!                      clients ─────> tickles                                 (`addresses`)
//! BIRD ── sessions, routes ──> filter ──> table                              (`routes`)
//! every hour ──────────────────────────────────────> discard fstrim in ranges, then a pause
//! ```
//!
//! It is small because it runs as root: it reads one file of settings, takes requests of one user
//! and of root, starts a few programs, and only for what its settings name, and reads one socket.
//! What is said on its own is `wire::v1::agent`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use wire::v1::agent::{Answer, Request};

mod addresses;
mod client;
mod config;
mod discard;
mod interface;
mod mounts;
mod programs;
mod routes;
mod server;
mod tickle;

/// Does what an appliance needs more privileges for.
#[derive(Debug, Parser)]
#[command(name = "nearcast-agent", version, max_term_width = 100)]
struct Arguments {
    /// What to log: error, warn, info, debug or trace.
    #[arg(long, env = "NEARCAST_LOG", default_value = "info", global = true)]
    log_level: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer on the socket until SIGTERM.
    Serve(File),
    /// Move service addresses between the appliances of a site until SIGTERM (`[addresses]`).
    Addresses(File),
    /// Read what routers announce to BIRD until SIGTERM (`[routes]`).
    Routes(File),
    /// Print each effective setting and where it came from.
    Config(File),
    /// Ask a running agent how the drives are mounted, and print its answer, JSON.
    Drives(Running),
    /// Ask a running `routes` what it hears: sessions, and what is left out and why. Prints JSON.
    Heard(Routing),
    /// Ask a running agent what the devices say of themselves, and print its answer, JSON.
    Health(Running),
    /// Have a running agent tell a drive's device which blocks are free, and print its answer.
    Trim {
        #[command(flatten)]
        agent: Running,
        /// A drive's folder, as the agent's configuration has it.
        drive: String,
    },
    /// Write completions for shells, and manual pages.
    Manual(manual::Args),
}

#[derive(Debug, clap::Args)]
struct File {
    /// Configuration, TOML.
    #[arg(long)]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Running {
    /// The agent's socket.
    #[arg(long, default_value = config::SOCKET)]
    socket: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Routing {
    /// The socket of `nearcast-agent routes`.
    #[arg(long, default_value = config::ROUTES_SOCKET)]
    socket: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = journal::start(&arguments.log_level, journal::Clients::Ranges) {
        return fail(&error.into());
    }
    match run(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "nearcast-agent: {error:#}");
    ExitCode::FAILURE
}

fn run(verb: Verb) -> anyhow::Result<()> {
    let (agent, request) = match verb {
        Verb::Serve(file) => return server::serve(config::Settings::load(&file.config)?),
        Verb::Addresses(file) => return addresses::run(&config::Settings::load(&file.config)?),
        Verb::Routes(file) => return routes::run(&config::Settings::load(&file.config)?),
        Verb::Config(file) => {
            return Ok(print(&config::Settings::load(&file.config)?.describe())?);
        }
        Verb::Manual(manual) => {
            return Ok(manual.write(Arguments::command(), manual::Section::Daemons)?);
        }
        Verb::Drives(agent) => (agent, Request::Drives),
        Verb::Heard(agent) => (Running { socket: agent.socket }, Request::Routes),
        Verb::Health(agent) => (agent, Request::Health),
        Verb::Trim { agent, drive } => (agent, Request::Trim { drive }),
    };
    match client::ask(&agent.socket, request)? {
        Answer::Refused(why) => anyhow::bail!("refused: {why}"),
        answer @ (Answer::Drives(_)
        | Answer::Trimmed { .. }
        | Answer::Health(_)
        | Answer::Held(_)
        | Answer::Routes(_)
        | Answer::RoutesPart(_)
        | Answer::Tickled(_)) => Ok(print(&serde_json::to_string_pretty(&answer)?)?),
    }
}

fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{}", text.trim_end())
}

//! The benchmark lab: load, and what it costs those who serve it.
//!
//! Figures that are promised come from here. Logs go to stderr; the last line of stdout is the
//! result, and the exit status is 0 only if the run was valid.

mod client;
mod compare;
mod conformance;
mod cpu;
mod crash_fill;
mod cut;
mod disk;
mod drive;
mod drive_protocol;
mod faults;
mod flame;
mod fleet;
mod flood;
mod ideal;
mod idle;
mod layout;
mod load;
mod lock;
mod odd;
mod outage;
mod pace;
mod processor;
mod sample;
mod scale;
mod site;
mod slow;
mod stage;
mod stall;
mod stop;
mod storm;
mod takedown;
mod token;
mod url;
mod vm;
mod window;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
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
    /// What each optimisation of the serve path is worth: it is taken out, and measured.
    Ablate(compare::ablate::Args),
    /// CPU seconds per GB: ours against a peer's, in turns on this machine.
    Compare(compare::Args),
    /// Asks a peer what RFC 9110 and RFC 9112 say, section by section, and tells what it answers.
    Conformance(conformance::Args),
    /// Kills the appliance at random moments of a fill, and looks after each start.
    CrashFill(crash_fill::Args),
    /// Power cuts at every boundary of a fill: each state opened, each object compared.
    Cut(cut::Args),
    /// The appliance on a drive that takes the times of a model, while it is filled.
    FuseDrive(disk::fuse::Args),
    /// What a fill does to viewers on this machine's disk, ours and a peer.
    Disk(disk::Args),
    /// A simulated drive that is filled while it serves: who holds the fill back, and how well.
    Drive(drive_protocol::Args),
    /// Drives that fail in every way: the others serve on, and the report says what happened.
    Faults(faults::Args),
    /// Viewers at a fixed rate while others attack: what they get, and what it takes of memory.
    Flood(flood::Args),
    /// CPU seconds per GB: an appliance's against those of a loop that seals and sends only.
    Ideal(compare::IdealArgs),
    /// The loop that `ideal` compares with.
    #[command(hide = true)]
    ServeIdeal(ideal::ServeArgs),
    /// How long the storage lock is held at the worst, with a million objects.
    Holdings(lock::Args),
    /// Many TLS connections that ask for nothing: memory per connection, ours and the kernel's.
    Idle(idle::Args),
    /// Holds the connections of `idle`.
    #[command(hide = true)]
    IdleClient(idle::ClientArgs),
    /// Objects packed together or a file each: what a simulated drive has to write for it.
    Layout(layout::Args),
    /// Drives load at a server and says what came.
    Load(load::Args),
    /// Full, first and resumed starts per CPU second: ours against a peer's, in turns.
    Handshake(compare::handshake::Args),
    /// Kills the control plane in parts and as a whole while films are played.
    Outage(outage::Args),
    /// Asks a peer malformed and odd requests, and tells where it answers otherwise.
    Odd(odd::Args),
    /// What pacing costs, and what it spares a short queue on the way.
    Pace(pace::Args),
    /// What it costs to verify one block of so many chunks that are served.
    Sample(sample::Args),
    /// CPU per GB of two workers against one, at the same rate.
    Scale(scale::Args),
    /// The model of a drive against what others proved of such drives.
    Ssd(drive_protocol::validate::Args),
    /// Many clients that read slowly: memory per connection, with and without a bound on what waits
    /// in their sockets.
    Slow(slow::Args),
    /// One fast client behind a long round trip: what it gets with that bound and without.
    Far(slow::FarArgs),
    /// A drive that does not answer: what it costs those who want what is on others.
    Stall(stall::Args),
    /// The drive of `stall`, a process of its own.
    #[command(hide = true)]
    HoldDrive(stall::hold::Args),
    /// Every appliance reports at once, with all that it holds, to a writer that has just started.
    Storm(storm::Args),
    /// A title is withdrawn while it plays, and an appliance is away.
    Takedown(takedown::Args),
    /// What it costs to check a playback token.
    Token(token::Args),
    /// Drives that fail, are slow and are pulled, under the real kernel in a virtual machine.
    Vm(vm::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::builder().parse_lossy(&cli.log_level);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .init();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("the run is not valid: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    // The loop of `ideal` has nothing to remove: a signal ends it at once, whatever it does.
    if !matches!(cli.verb, Verb::ServeIdeal(_)) {
        stop::listen()?;
    }
    // Only the control plane's and the servers' small answers go through this one.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().ok().context("a TLS provider was installed twice")?;
    match &cli.verb {
        Verb::Ablate(args) => compare::ablate::run(args),
        Verb::Compare(args) => compare::run(args),
        Verb::Conformance(args) => conformance::run(args),
        Verb::CrashFill(args) => crash_fill::run(args),
        Verb::Cut(args) => cut::run(args),
        Verb::FuseDrive(args) => disk::fuse::run(args),
        Verb::Disk(args) => disk::run(args),
        Verb::Drive(args) => drive_protocol::run(args),
        Verb::Faults(args) => faults::run(args),
        Verb::Flood(args) => flood::run(args),
        Verb::Handshake(args) => compare::handshake::run(args),
        Verb::Holdings(args) => lock::run(args),
        Verb::Ideal(args) => compare::run_ideal(args),
        Verb::ServeIdeal(args) => ideal::serve(args),
        Verb::Idle(args) => idle::run(args),
        Verb::IdleClient(args) => idle::run_client(args),
        Verb::Layout(args) => layout::run(args),
        Verb::Load(args) => load::run(args),
        Verb::Outage(args) => outage::run(args),
        Verb::Odd(args) => odd::run(args),
        Verb::Pace(args) => pace::run(args),
        Verb::Sample(args) => sample::run(args),
        Verb::Scale(args) => scale::run(args),
        Verb::Ssd(args) => drive_protocol::validate::run(args),
        Verb::Slow(args) => slow::run(args),
        Verb::Far(args) => slow::run_far(args),
        Verb::Stall(args) => stall::run(args),
        Verb::HoldDrive(args) => stall::hold::run(args),
        Verb::Storm(args) => storm::run(args),
        Verb::Takedown(args) => takedown::run(args),
        Verb::Token(args) => token::run(args),
        Verb::Vm(args) => vm::run(args),
    }
}

/// Writes a result to stdout.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

/// A thousand connections need as many files, also in the servers that we start: they inherit the
/// limit.
fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

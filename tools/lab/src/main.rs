//! The benchmark lab: load, and what it costs those who serve it. The verbs that break things are
//! `trial`'s.
//!
//! Figures that are promised come from here. Logs go to stderr; the last line of stdout is the
//! result, and the exit status is 0 only if the run was valid.

mod compare;
mod director;
mod disk;
mod drive_protocol;
mod flame;
mod flap;
mod ideal;
mod idle;
mod layout;
mod link;
mod load;
mod locate;
mod lock;
mod pace;
mod place;
mod processor;
mod sample;
mod scale;
mod shaped;
mod slow;
mod steer;
mod token;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use tracing::error;
use tracing_subscriber::EnvFilter;

/// Control's, whose director runs in here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// What the control plane's decisions cost, at a size that is asked for.
    Director(director::Args),
    /// The appliance on a drive that takes the times of a model, while it is filled.
    FuseDrive(disk::fuse::Args),
    /// What a fill does to viewers on this machine's disk, ours and a peer.
    Disk(disk::Args),
    /// A simulated drive that is filled while it serves: who holds the fill back, and how well.
    Drive(drive_protocol::Args),
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
    /// The table of routes at full size: its memory, a look-up, a change.
    Locate(locate::Args),
    /// Objects packed together or a file each: what a simulated drive has to write for it.
    Layout(layout::Args),
    /// Drives load at a server and says what came.
    Load(load::Args),
    /// A step of load, and a site that is lost: whether shares swing, against a naive control.
    Flap(flap::Args),
    /// Full, first and resumed starts per CPU second: ours against a peer's, in turns.
    Handshake(compare::handshake::Args),
    /// What pacing costs, and what it spares a short queue on the way.
    Pace(pace::Args),
    /// A plan of the whole fleet: its time, how even its load is, and how much it moves.
    Place(place::Args),
    /// The rival of `pace`.
    #[command(hide = true)]
    Burn(pace::rival::BurnArgs),
    /// What it costs to verify one block of so many chunks that are served.
    Sample(sample::Args),
    /// CPU per GB of two workers against one, at the same rate.
    Scale(scale::Args),
    /// Real players behind slow links, paced and not: stalls, start-up, bitrate, drops, and the
    /// delay of a neighbour on the same queue.
    Shaped(shaped::Args),
    /// The model of a drive against what others proved of such drives.
    Ssd(drive_protocol::validate::Args),
    /// Many clients that read slowly: memory per connection, with and without a bound on what waits
    /// in their sockets.
    Slow(slow::Args),
    /// One fast client behind a long round trip: what it gets with that bound and without.
    Far(slow::FarArgs),
    /// What control's answers to players cost, beside a static file of nginx.
    Steer(steer::Args),
    /// What it costs to check a playback token.
    Token(token::Args),
    #[command(flatten)]
    Trial(trial::Verb),
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
        rig::stop::listen()?;
    }
    // Only the control plane's and the servers' small answers go through this one.
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.install_default().ok().context("a TLS provider was installed twice")?;
    match &cli.verb {
        Verb::Ablate(args) => compare::ablate::run(args),
        Verb::Compare(args) => compare::run(args),
        Verb::Director(args) => director::run(args),
        Verb::FuseDrive(args) => disk::fuse::run(args),
        Verb::Disk(args) => disk::run(args),
        Verb::Drive(args) => drive_protocol::run(args),
        Verb::Flap(args) => flap::run(args),
        Verb::Handshake(args) => compare::handshake::run(args),
        Verb::Holdings(args) => lock::run(args),
        Verb::Ideal(args) => compare::run_ideal(args),
        Verb::ServeIdeal(args) => ideal::serve(args),
        Verb::Idle(args) => idle::run(args),
        Verb::IdleClient(args) => idle::run_client(args),
        Verb::Layout(args) => layout::run(args),
        Verb::Load(args) => load::run(args),
        Verb::Locate(args) => locate::run(args),
        Verb::Pace(args) => pace::run(args),
        Verb::Place(args) => place::run(args),
        Verb::Burn(args) => pace::rival::burn(args),
        Verb::Sample(args) => sample::run(args),
        Verb::Scale(args) => scale::run(args),
        Verb::Shaped(args) => shaped::run(args),
        Verb::Ssd(args) => drive_protocol::validate::run(args),
        Verb::Slow(args) => slow::run(args),
        Verb::Far(args) => slow::run_far(args),
        Verb::Steer(args) => steer::run(args),
        Verb::Token(args) => token::run(args),
        Verb::Trial(verb) => trial::run(verb),
    }
}

//! `nearcast`, the operator's hand: everything a person does with a fleet from a shell.
//!
//! Progress and logs go to stderr, results to stdout: as text for people, or with `--json` as one
//! JSON object on the last line.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

mod access;
mod content_type;
mod control;
mod demo;
mod explain;
mod ingest;
mod list;
mod origin;
mod output;
mod remove;
mod tree;

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
    /// Take a title down: at once for new playbacks, within seconds on appliances
    Remove(remove::RemoveArgs),
    /// Say from when and until when a title may be shown
    Window(remove::WindowArgs),
    /// Show what was taken down, and who has confirmed it
    Withdrawals(control::Query),
    /// List sites, appliances and assets, one line each
    List(list::ListArgs),
    /// Show all about one site, appliance or asset
    Show(list::ShowArgs),
    /// Say why a client gets the appliances it gets, in this order
    Explain(explain::Args),
    /// Make, list and remove API tokens
    #[command(subcommand)]
    Token(access::TokenVerb),
    /// Show the keys of playback tokens, or rotate them
    Keys(access::KeysArgs),
    /// Show who changed something, or tried to
    Audit(access::AuditArgs),
    /// Let anybody play an asset, without a grant
    Public(access::PublicArgs),
    /// Make a one-time code with which a machine becomes an appliance
    EnrolCode(access::EnrolArgs),
    /// Refuse an appliance's identity from now on
    Revoke(access::RevokeArgs),
    /// Say that an appliance's drives hold so little for good: files move to others of its site
    Accept(access::RevokeArgs),
    /// Run a program that ends when its parent does (for the demo's own use)
    #[command(hide = true)]
    Child(demo::child::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let tone = output::Tone::Bad;
            let colours = std::io::stderr().is_terminal() && output::colours_wanted();
            eprintln!("{} {error:#}", output::paint("error:", tone, colours));
            match error.downcast_ref::<remove::Away>() {
                Some(_) => ExitCode::from(AWAY),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// Exit status: a title is withdrawn, and an appliance that is away has not confirmed it.
const AWAY: u8 = 3;

fn run(cli: &Cli) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&cli.log_level).map_err(|error| {
        anyhow::anyhow!(
            "\"{}\" is not a log level ({error}): write for example info",
            cli.log_level
        )
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
    match &cli.verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Remove(args) => remove::remove(args),
        Verb::Window(args) => remove::window(args),
        Verb::Withdrawals(args) => remove::withdrawals(args),
        Verb::List(args) => list::list(args),
        Verb::Show(args) => list::show(args),
        Verb::Explain(args) => explain::run(args),
        Verb::Token(verb) => access::token(verb),
        Verb::Keys(args) => access::keys(args),
        Verb::Audit(args) => access::audit(args),
        Verb::Public(args) => access::public(args),
        Verb::EnrolCode(args) => access::enrol_code(args),
        Verb::Revoke(args) => access::revoke(args),
        Verb::Accept(args) => access::accept(args),
        Verb::Child(args) => demo::child::run(args),
        Verb::Origin(args) => origin::run(args),
        Verb::Ingest(args) => ingest::run(args),
    }
}

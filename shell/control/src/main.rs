//! `nearcast-control`: the control-plane process.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use control::config::Config;
use control::members::access::Role;
use control::state::store::Store;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The control plane of Nearcast: which appliance holds what, and whom players ask.
#[derive(Parser)]
#[command(name = "nearcast-control", version)]
struct Cli {
    /// What to log: error, warn, info, debug, trace, or a filter such as control=debug,info.
    #[arg(long, global = true, env = "NEARCAST_LOG", default_value = "info")]
    log_level: String,
    /// How much of clients' addresses is logged: ranges (/24, /48) or whole.
    #[arg(long, global = true, env = "NEARCAST_LOG_CLIENTS", default_value = "ranges")]
    log_clients: journal::Clients,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Serve the API, players and the pages until SIGTERM or SIGINT.
    Serve(File),
    /// Trade a one-time code for this front's identity, and keep it in its state directory.
    Enrol(Enrol),
    /// Bring the database to this program's schema and end.
    Migrate(File),
    /// Make an API token and print it, whether the control plane runs or not.
    Token(TokenArgs),
    /// Print every effective setting and where it came from.
    Config(File),
    /// Write completions for shells, and manual pages.
    Manual(manual::Args),
}

#[derive(Args)]
struct File {
    /// TOML file with the settings.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Args)]
struct TokenArgs {
    #[command(flatten)]
    file: File,
    /// What it allows: viewer, operator, admin, or service (only begins and ends playbacks).
    #[arg(long)]
    role: Role,
    /// Whose it is, or what uses it.
    #[arg(long)]
    name: String,
}

#[derive(Args)]
struct Enrol {
    #[command(flatten)]
    file: File,
    /// The code. While this runs, others on the machine can see it: better give a file.
    #[arg(long, conflicts_with = "code_file")]
    code: Option<String>,
    /// A file with the code; `-`, which is the default, for standard input.
    #[arg(long, value_name = "FILE", default_value = "-")]
    code_file: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let log = journal::start(&cli.log_level, cli.log_clients);
    if let Err(error) = log.map_err(Into::into).and_then(|()| run(cli.verb)) {
        // The log may be filtered; this must be seen.
        let _ = writeln!(std::io::stderr(), "nearcast-control: {error:#}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn run(verb: Verb) -> anyhow::Result<()> {
    let file = match &verb {
        Verb::Serve(file)
        | Verb::Enrol(Enrol { file, .. })
        | Verb::Migrate(file)
        | Verb::Token(TokenArgs { file, .. })
        | Verb::Config(file) => file,
        Verb::Manual(manual) => {
            return Ok(manual.write(Cli::command(), manual::Section::Daemons)?);
        }
    };
    let config = Config::load(&file.config, settings::environment())?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().event_interval(TURNS_MAX).build();
    let runtime = runtime.context("cannot start threads")?;
    match verb {
        Verb::Serve(_) => {
            end_on_panic();
            let served = runtime.block_on(control::serve::run(config));
            // A question to a writer that does not answer is not waited for.
            runtime.shutdown_background();
            served
        }
        Verb::Enrol(Enrol { code, code_file, .. }) => {
            let code = code.map_or_else(|| identity::code::read(&code_file), Ok)?;
            let seen = control::enrol_front(&config, code.parse()?)?;
            let state = config.folder().display();
            let text = format!("{} is enrolled; its identity is in {state}", seen.member);
            writeln!(std::io::stdout(), "{text}").context("cannot print")
        }
        Verb::Migrate(_) => runtime.block_on(async {
            make_folder(&config)?;
            Store::open(&config.state.0).await?.close().await;
            Ok(())
        }),
        Verb::Token(TokenArgs { role, name, .. }) => runtime.block_on(async {
            make_folder(&config)?;
            let store = Store::open_by_hand(&config.state.0).await?;
            let made = control::state::issue::issue_by_hand(&store, &name, role).await;
            store.close().await;
            let token = made?;
            tracing::info!(id = token.id(), %role, name, "a token, which is shown only now");
            writeln!(std::io::stdout(), "{}", token.text()).context("cannot print")
        }),
        // Written above, without a configuration.
        Verb::Manual(_) => Ok(()),
        Verb::Config(_) => {
            write!(std::io::stdout(), "{}", config.describe()).context("cannot print")
        }
    }
}

/// So many turns of tasks lie between two looks of tokio for input, and answers to polls wait for
/// that look (`listener/polls`): 2 to 3 ms where each turn answers a poll. 512 in the place of 61
/// spared 4 % of a poll (docs/numbers.md); 256 is arbitrary.
const TURNS_MAX: u32 = 256;

fn make_folder(config: &Config) -> anyhow::Result<()> {
    std::fs::create_dir_all(config.folder())
        .with_context(|| format!("state directory {}", config.folder().display()))
}

/// An assertion that fails is our own mistake: end, so that whoever watches the process starts it
/// anew from what is durable, instead of going on with half a change.
fn end_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        print(info);
        std::process::abort();
    }));
}

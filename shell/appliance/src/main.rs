//! `nearcast-appliance`: serves published objects to players, at the limit of the hardware.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Context;
use appliance::clock;
use appliance::membership::member;
use appliance::process::certificate;
use appliance::process::config::Settings;
use appliance::process::guard;
use appliance::process::inspect::{inspect, inspect_aead};
use appliance::process::memory;
use appliance::process::server::{self, Guarded};
use appliance::storage::format;
use clap::{CommandFactory as _, Parser, Subcommand};
use store::marker::Reserve;

/// Serves published objects to players.
#[derive(Debug, Parser)]
#[command(name = "nearcast-appliance", version, max_term_width = 100)]
struct Arguments {
    /// What to log: error, warn, info, debug or trace, also per room (`info,fill=debug`).
    #[arg(long, env = "NEARCAST_LOG", default_value = "info", global = true)]
    log_level: String,
    /// How much of clients' addresses is logged: ranges (/24, /48) or whole.
    #[arg(long, env = "NEARCAST_LOG_CLIENTS", default_value = "ranges", global = true)]
    log_clients: journal::Clients,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve until SIGTERM.
    Serve {
        /// Configuration, TOML.
        #[arg(long)]
        config: PathBuf,
        /// How often a guard has started this, which is told on standard input that it lives.
        #[arg(long, hide = true)]
        guarded: Option<u64>,
        /// Why the process before this one was ended.
        #[arg(long, hide = true, requires = "guarded")]
        after: Option<String>,
    },
    /// Serve until SIGTERM, in a process that is ended when it hangs, and started again.
    Guard {
        /// Configuration, TOML.
        #[arg(long)]
        config: PathBuf,
    },
    /// Make a directory a drive: writes its marker, checks direct I/O. Nothing is erased.
    Format {
        /// The mounted file system's root.
        directory: PathBuf,
        /// Share of the file system that is never written.
        #[arg(long, default_value = "10%")]
        reserve: Reserve,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Say what is on a drive, in one object file (verifies what it reads), or in an incident; or
    /// what would seal on this machine, and how fast.
    Inspect {
        /// A drive's directory, an object file, or a file of STATE/incidents.
        #[arg(required_unless_present = "aead")]
        path: Option<PathBuf>,
        /// Instead of a path: the libraries that seal AES-GCM, measured here.
        #[arg(long, conflicts_with = "path")]
        aead: bool,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Trade a one-time code for this appliance's identity, and keep it in its state directory.
    Enrol {
        /// Configuration, TOML.
        #[arg(long)]
        config: PathBuf,
        /// The code. While this runs, others on the machine can see it: better give a file.
        #[arg(long, conflicts_with = "code_file")]
        code: Option<String>,
        /// A file with the code; `-`, which is the default, for standard input.
        #[arg(long, value_name = "FILE", default_value = "-")]
        code_file: PathBuf,
    },
    /// Check a configuration, its certificate, identity and drives, without serving.
    Check {
        /// Configuration, TOML.
        #[arg(long)]
        config: PathBuf,
    },
    /// Print each effective setting and where it came from.
    Config {
        /// Configuration, TOML.
        #[arg(long)]
        config: PathBuf,
    },
    /// Write completions for shells, and manual pages.
    Manual(manual::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = journal::start(&arguments.log_level, arguments.log_clients) {
        return fail(&error.into());
    }
    let log = (&*arguments.log_level, arguments.log_clients);
    match run(arguments.verb, log) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "nearcast-appliance: {error:#}");
    ExitCode::FAILURE
}

fn run(verb: Verb, log: (&str, journal::Clients)) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve { config, guarded, after } => {
            server::serve(&load(&config)?, guarded.map(|starts| Guarded { starts, after }))?;
        }
        Verb::Guard { config } => return guard(&config, log),
        Verb::Format { directory, reserve, json } => {
            let formatted = format::format(&directory, reserve, clock::wall())?;
            if json {
                print(&serde_json::to_string(&formatted)?)?;
            } else {
                print(&formatted.text())?;
            }
        }
        Verb::Inspect { path, json, .. } => {
            let inspected = path.map_or_else(inspect_aead, |path| inspect(&path))?;
            let text = if json { serde_json::to_string(&inspected)? } else { inspected.text() };
            print(&text)?;
            if !inspected.is_sound() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Verb::Enrol { config, code, code_file } => {
            let settings = load(&config)?;
            let code = code.map_or_else(|| identity::code::read(&code_file), Ok)?.parse()?;
            let (state, name) = (&settings.state, &settings.name.0);
            let enrolled = member::enrol(state, name, &settings.control.url.0, &code)?;
            print(&format!(
                "{name} is enrolled until {}; the identity in {} is renewed by itself",
                member::date(enrolled.seen().not_after),
                state.display()
            ))?;
        }
        Verb::Check { config } => check(&config)?,
        Verb::Manual(manual) => manual.write(Arguments::command(), manual::Section::Daemons)?,
        Verb::Config { config } => print(memory::fit(load(&config)?).describe().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `serve` with the same configuration and log.
fn guard(config: &Path, (level, clients): (&str, journal::Clients)) -> anyhow::Result<ExitCode> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let clients = if clients == journal::Clients::Whole { "whole" } else { "ranges" };
    guard::run(|starts, after| {
        let mut serve = Command::new(&own);
        serve.args(["--log-level", level, "--log-clients", clients, "serve"]);
        serve.arg("--config").arg(config).args(["--guarded", &starts.to_string()]);
        serve.args(after.map(|text| format!("--after={text}")));
        serve
    })
}

/// Says of everything that is configured whether it can be used.
fn check(config: &Path) -> anyhow::Result<()> {
    let settings = load(config)?;
    certificate::acceptor(&settings.serve.certificates())?;
    let credentials = member::load(&settings.state, &settings.name.0)?;
    let until = credentials.seen().not_after;
    let ended = until <= clock::wall();
    print(&format!(
        "{}: identity {} {}",
        credentials.seen().member,
        if ended { "ended on" } else { "good until" },
        member::date(until)
    ))?;
    let mut bad = 0;
    for path in &settings.drives.paths {
        match inspect(path) {
            Ok(inspected) => print(&inspected.text())?,
            Err(error) => {
                bad += 1;
                print(&format!("{error}"))?;
            }
        }
    }
    if 0 < bad {
        anyhow::bail!("{bad} of {} drives cannot be used", settings.drives.paths.len());
    }
    if ended {
        anyhow::bail!("the identity has ended: get a one-time code and run the `enrol` verb");
    }
    let config = config.display();
    print(&format!("{config}: configuration, certificate, identity and drives are good"))?;
    Ok(())
}

fn load(path: &Path) -> anyhow::Result<Settings> {
    Ok(Settings::load(path, settings::environment())?)
}

fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{}", text.trim_end())
}

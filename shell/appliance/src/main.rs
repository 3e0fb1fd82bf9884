//! `nearcast-appliance`: serves published objects to players, at the limit of the hardware.

use std::io::{IsTerminal as _, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use appliance::config::Settings;
use appliance::inspect::inspect;
use appliance::{clock, format, server};
use clap::{Parser, Subcommand};
use store::marker::Reserve;

/// Serves published objects to players.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    /// What to log: error, warn, info, debug or trace, also per room (`info,fill=debug`).
    #[arg(long, env = "NEARCAST_LOG", default_value = "info", global = true)]
    log_level: String,
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
    /// Say what is on a drive, or in one object file; verifies what it reads.
    Inspect {
        /// A drive's directory or an object file.
        path: PathBuf,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check a configuration, its certificate and its drives, without serving.
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
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = match arguments.log_level.parse::<tracing_subscriber::EnvFilter>() {
        Ok(filter) => filter,
        Err(error) => return fail(&anyhow::anyhow!("--log-level: {error}")),
    };
    // Colours are for people; a journal keeps text.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(std::io::stderr().is_terminal()).init();
    match run(arguments.verb) {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "nearcast-appliance: {error:#}");
    ExitCode::FAILURE
}

fn run(verb: Verb) -> anyhow::Result<ExitCode> {
    match verb {
        Verb::Serve { config } => server::serve(&load(&config)?)?,
        Verb::Format { directory, reserve, json } => {
            let formatted = format::format(&directory, reserve, clock::wall())?;
            if json {
                print(&serde_json::to_string(&formatted)?)?;
            } else {
                print(&formatted.text())?;
            }
        }
        Verb::Inspect { path, json } => {
            let inspected = inspect(&path)?;
            let text = if json { serde_json::to_string(&inspected)? } else { inspected.text() };
            print(&text)?;
            if !inspected.is_sound() {
                return Ok(ExitCode::FAILURE);
            }
        }
        Verb::Check { config } => {
            let settings = load(&config)?;
            tls::Acceptor::from_pem_files(&settings.certificate, &settings.key)?;
            let mut bad = 0;
            for path in &settings.drives {
                match inspect(path) {
                    Ok(inspected) => print(&inspected.text())?,
                    Err(error) => {
                        bad += 1;
                        print(&format!("{error}"))?;
                    }
                }
            }
            if 0 < bad {
                anyhow::bail!("{bad} of {} drives cannot be used", settings.drives.len());
            }
            print(&format!(
                "{}: configuration, certificate and drives are good",
                config.display()
            ))?;
        }
        Verb::Config { config } => print(load(&config)?.describe().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn load(path: &std::path::Path) -> anyhow::Result<Settings> {
    Ok(Settings::load(path, std::env::vars())?)
}

fn print(text: &str) -> std::io::Result<()> {
    writeln!(std::io::stdout(), "{}", text.trim_end())
}

//! Automation in Rust, behind `./x`: checks, builds for the browser, and runs by night.

mod bare;
mod circles;
mod deb;
mod install;
mod lexer;
mod map;
mod rooms;
mod steps;
mod tidy;
mod tree;
mod web;
mod workspace;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use anyhow::{Context, Result, anyhow};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Automation in Rust, behind ./x")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Check every room against the tables of ARCHITECTURE.md.
    Rooms,
    /// Check the form of every text file.
    Tidy,
    /// Install and build what runs in browsers, where it is out of date.
    Web,
    /// Run the whole gate, or only the named steps.
    Check {
        /// Steps to run; all of them when none is named.
        steps: Vec<String>,
    },
    /// Run what is too long for check, or only the named steps.
    Nightly {
        /// Steps to run; all of them when none is named.
        steps: Vec<String>,
    },
    /// Make the Debian packages from programs that are built.
    Deb {
        /// Folder of the target folder to take them from.
        #[arg(long, default_value = "release")]
        programs: String,
    },
    /// Follow docs/operate/install.md in a bare Debian 12, with packages of what is built.
    Install {
        /// Folder of the target folder to take programs from.
        #[arg(long, default_value = "debug")]
        programs: String,
    },
    /// Run ./x demo and ./x check in bare Debians with git and this Rust toolchain; print seconds.
    Bare {
        /// Releases of Debian.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "12,13")]
        debian: Vec<bare::Release>,
        /// Verbs of ./x.
        #[arg(long, value_enum, value_delimiter = ',', default_value = "demo,check")]
        command: Vec<bare::What>,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = root().and_then(|root| match arguments.verb {
        Verb::Rooms => run_rooms(&root),
        Verb::Tidy => run_tidy(&root),
        Verb::Web => web::build(&root).map(|()| true),
        Verb::Check { steps } => steps::check(&root, &steps),
        Verb::Deb { programs } => {
            deb::build(&root, &deb::target(&root).join(programs)).map(|_| true)
        }
        Verb::Install { programs } => install::test(&root, &deb::target(&root).join(programs)),
        Verb::Bare { debian, command } => bare::run(&root, &debian, &command),
        Verb::Nightly { steps } => steps::nightly(&root, &steps),
    });
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// One line for people. Standard output may be gone; then there is nobody to tell.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// The root of the repository: the nearest folder upwards with the map in it.
fn root() -> Result<PathBuf> {
    let here = env::current_dir().context("the current folder is gone")?;
    let root = here.ancestors().find(|folder| folder.join(MAP).is_file());
    root.map(Path::to_owned)
        .with_context(|| format!("no {MAP} here or above: run it inside nearcast"))
}

const MAP: &str = "ARCHITECTURE.md";
const GLOSSARY: &str = "docs/glossary.md";

/// Prints the findings of `rooms`; true if there are none.
fn run_rooms(root: &Path) -> Result<bool> {
    let workspace = workspace::read(root)?;
    let map = map::parse(&read(root, MAP)?).map_err(|why| anyhow!("{MAP}: {why}"))?;
    let mut findings = rooms::check(&workspace, &map, &decisions(root)?);
    findings.extend(circles::find(&workspace));
    for finding in &findings {
        say(&format!("{}: {}", finding.place, finding.text));
    }
    say(&format!("rooms: {} rooms, {} findings", workspace.members.len(), findings.len()));
    Ok(findings.is_empty())
}

/// Prints the findings of `tidy`; true if there are none.
fn run_tidy(root: &Path) -> Result<bool> {
    let banned = tidy::banned_words(&read(root, GLOSSARY)?);
    let banned = banned.map_err(|why| anyhow!("{GLOSSARY}: {why}"))?;
    let sources = tidy::sources(root)?;
    let breaches = tidy::breaches(&sources, &banned);
    for tidy::Breach { path, line, rule, text } in &breaches {
        say(&format!("{path}:{line}: {rule}: {text}"));
    }
    say(&format!("tidy: {} files, {} findings", sources.len(), breaches.len()));
    Ok(breaches.is_empty())
}

/// All decision records, one after the other.
fn decisions(root: &Path) -> Result<String> {
    let folder = root.join("docs/decisions");
    let mut text = String::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("no {}", folder.display()))? {
        text.push_str(&fs::read_to_string(entry?.path())?);
    }
    Ok(text)
}

fn read(root: &Path, path: &str) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"))
}

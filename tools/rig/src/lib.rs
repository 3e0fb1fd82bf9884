//! What a measurement and a trial stand on: a real fleet, and what is around it.
//!
//! ```text
//! fleet     origin, writer, fronts, appliances: all real, as an operator would start them
//! stage     one real appliance; its origin and its control are ours, so that every byte is known
//! site      a stage with a film on it, and viewers who ask by the clock
//! peer      nginx and others, in several configurations
//! drive     a folder whose operations fail, wait or are written down
//! client    a load client that costs little, and compares what it gets
//! process   one of the programs: its log, its readiness, its end
//! ```
//!
//! `lab` measures with it and `trial` breaks it. Everything listens on this machine and ends with
//! the run, on a signal too (`stop`).

pub mod certificate;
pub mod client;
pub mod cpu;
pub mod drive;
pub mod fleet;
pub mod peer;
pub mod process;
pub mod site;
pub mod stage;
pub mod statistics;
pub mod stop;
pub mod url;
pub mod window;

use std::io::Write;

use anyhow::Result;

/// Writes a result to stdout.
pub fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", text.trim_end())?;
    Ok(out.flush()?)
}

/// Writes a report to stdout: as one JSON object, or as its table.
pub fn say(
    json: bool,
    report: &impl serde::Serialize,
    table: impl FnOnce() -> String,
) -> Result<()> {
    if json { print(&serde_json::to_string(report)?) } else { print(&table()) }
}

/// A thousand connections need as many files, also in the servers that we start: they inherit the
/// limit.
pub fn raise_file_limit() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    Ok(())
}

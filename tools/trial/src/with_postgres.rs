//! `nearcast-lab with-postgres COMMAND...`: runs a command beside a PostgreSQL server of its own,
//! whose address is in its environment.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use rig::postgres::Postgres;

/// `nearcast-lab with-postgres`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What to run, with `NEARCAST_POSTGRES` in its environment.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Databases that were not there when the server started.
const MADE: &str =
    "SELECT count(*) FROM pg_database WHERE NOT datistemplate AND datname <> 'postgres'";

/// Runs it; an error if it does not end well, or makes no database: tests that do not find the
/// server take SQLite, and would all pass.
pub(crate) fn run(args: &Args) -> Result<()> {
    let room = tempfile::Builder::new().prefix("nearcast-").tempdir()?;
    let server = Postgres::start(room.path())?;
    let (program, arguments) = args.command.split_first().context("say what to run")?;
    let mut command = Command::new(program);
    command.args(arguments).env("NEARCAST_POSTGRES", server.url());
    let status = command.status().with_context(|| format!("{program} does not start"))?;
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    ensure!(server.query(MADE)? != "0", "{program} made no database: does it look for the server?");
    Ok(())
}

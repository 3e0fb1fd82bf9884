//! Programs that the demo runs, and that end when it ends, whatever way that is.
//!
//! A program is started as `nearcast child PROGRAM ..`, which asks the kernel to be killed when its
//! parent dies and then becomes the program (`exec` keeps that wish). So even `kill -9` of the demo
//! leaves nothing running. The wish is bound to the *thread* that started the program: programs are
//! started on the main thread only.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Pid, Signal};
use tracing::warn;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Process that this one must not outlive
    #[arg(long)]
    parent: i32,
    /// Program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program, bound to the parent's life.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("the kernel does not bind this process to its parent")?;
    let parent = rustix::process::getppid().map(Pid::as_raw_nonzero);
    anyhow::ensure!(
        parent.is_some_and(|pid| pid.get() == args.parent),
        "the parent ended before its child began"
    );
    let (program, rest) = args.command.split_first().context("no program is named")?;
    let error = std::process::Command::new(program).args(rest).exec();
    Err(error).with_context(|| format!("cannot run {}", Path::new(program).display()))
}

/// A command for `program` that ends with us, in a process group of its own: Ctrl-C is ours to
/// pass on.
pub(super) fn command(program: &Path) -> anyhow::Result<tokio::process::Command> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = tokio::process::Command::new(own);
    command
        .args(["child", "--parent", &std::process::id().to_string()])
        .arg(program)
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    Ok(command)
}

#[derive(Debug)]
pub(super) struct Child {
    name: String,
    process: tokio::process::Child,
    log: PathBuf,
}

impl Child {
    /// Starts a command; its output goes to `log`.
    pub(super) fn start(
        name: &str,
        mut command: tokio::process::Command,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let open = File::options().create(true).append(true).open(log);
        let file = open.with_context(|| format!("cannot write {}", log.display()))?;
        let second = file.try_clone().context("cannot share a log between two streams")?;
        let process = command
            .stdout(file)
            .stderr(second)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), process, log: log.to_owned() })
    }

    /// Its process id; none once it has ended.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }

    /// The process that this one looks after, if it is a guard.
    pub(super) fn guarded(&self) -> Option<Pid> {
        let id = self.process.id()?;
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.process.try_wait().ok().flatten()
    }

    /// An error if it has ended, with the last lines of its log.
    pub(super) fn must_run(&mut self) -> anyhow::Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => {
                anyhow::bail!("{} ended ({status}); it said last:\n{}", self.name, tail(&self.log))
            }
        }
    }

    /// Sends a signal to the program, and to no other: a process that has ended gets none.
    pub(super) fn signal(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        if let Some(pid) = self.pid()
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            warn!(name = self.name, ?signal, %error, "a signal could not be sent");
        }
    }

    /// Ends the program at once and takes note of its end.
    pub(super) async fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.process.wait().await;
    }

    /// Asks the program to end, also if it was stopped, and insists after `within`.
    pub(super) async fn stop(&mut self, within: Duration) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
        if tokio::time::timeout(within, self.process.wait()).await.is_err() {
            warn!(name = self.name, "did not end when asked to, killed");
            self.kill().await;
        }
    }
}

pub(super) fn tail(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES);
    lines[from..].iter().map(|line| format!("  {line}\n")).collect()
}

const TAIL_LINES: usize = 15;

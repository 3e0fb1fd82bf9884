//! Child processes: started on chosen CPUs and in a group, ended when dropped.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use tracing::{debug, warn};

use crate::cpu;

/// How long a process may take to end after SIGTERM before it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);

/// A running server or helper of a run.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Runs `work` on a thread of its own that may use `cpus` only; children inherit that.
fn on_cpus<T: Send>(cpus: &[usize], work: impl FnOnce() -> T + Send) -> Result<T> {
    thread::scope(|scope| {
        let pinned = scope.spawn(|| -> Result<T> {
            cpu::pin_to(cpus)?;
            Ok(work())
        });
        pinned.join().unwrap_or_else(|_| bail!("a thread that starts a process panicked"))
    })
}

impl Process {
    /// Starts `command` on `cpu`, as a member of groups (see `Group::joins`); its output goes to
    /// the file `log`.
    pub fn start(
        name: &str,
        command: &[String],
        cpu: usize,
        joins: &[PathBuf],
        log: &Path,
    ) -> Result<Self> {
        Self::start_on(name, command, &[cpu], joins, log)
    }

    /// The same on several CPUs.
    pub fn start_on(
        name: &str,
        command: &[String],
        cpus: &[usize],
        joins: &[PathBuf],
        log: &Path,
    ) -> Result<Self> {
        on_cpus(cpus, || Self::start_anywhere(name, command, joins, log))?
    }

    /// The same on whatever CPUs this thread may use.
    pub fn start_anywhere(
        name: &str,
        command: &[String],
        joins: &[PathBuf],
        log: &Path,
    ) -> Result<Self> {
        // A shell joins the groups before it becomes the program, so all of it is counted.
        let script = "while [ \"$1\" != -- ]; do echo $$ >\"$1\" || exit 125; shift; done; \
            shift; exec \"$@\"";
        let output = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot create the log {}", log.display()))?;
        let errors = output.try_clone()?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(script).arg("sh").args(joins).arg("--").args(command);
        shell.stdin(Stdio::null()).stdout(output).stderr(errors);
        debug!(name, ?command, "starting");
        let child = shell.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// Runs `command` to its end.
    pub fn run(name: &str, command: &[String], cpu: usize, log: &Path) -> Result<()> {
        Self::start(name, command, cpu, &[], log)?.end_well()
    }

    /// The same on whatever CPUs this thread may use.
    pub fn run_anywhere(name: &str, command: &[String], log: &Path) -> Result<()> {
        Self::start_anywhere(name, command, &[], log)?.end_well()
    }

    /// Waits for its end, which must be a good one.
    pub fn end_well(mut self) -> Result<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("{} failed ({status}): {}", self.name, self.last_words());
            }
            crate::stop::check()?;
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it (SIGKILL): it has no time to say goodbye.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `ready` says so; an end of the process, a signal and the time are errors.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut ready: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + patience;
        while !ready()? {
            self.check()?;
            crate::stop::check()?;
            if end < Instant::now() {
                bail!("{}: {what} took over {patience:?}: {}", self.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Waits until somebody listens on `address`.
    pub fn wait_for_port(&mut self, address: std::net::SocketAddr) -> Result<()> {
        let what = format!("listening on {address}");
        self.wait_until(&what, Duration::from_secs(20), || {
            Ok(std::net::TcpStream::connect(address).is_ok())
        })
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}): {}", self.name, self.last_words()),
        }
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = std::fs::File::open(&self.log) {
            // A log that cannot be read has no last words.
            let _ = file.read_to_end(&mut text);
        }
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            debug!(name = self.name, %error, "cannot signal");
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + STOP_MAX;
        while matches!(self.child.try_wait(), Ok(None)) {
            if end < Instant::now() {
                warn!(name = self.name, "does not stop: killed");
                self.signal(Signal::KILL);
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

//! Child processes: started on chosen CPUs and in a group, ended when dropped.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use tracing::{debug, warn};

use crate::cpu;

/// How long a process may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How long a process may take to end after SIGTERM before it is killed.
const STOP_MAX: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Lines of a log that are told when its process fails.
const LAST_LINES: usize = 12;

/// A running server or helper of a run.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

/// Where a process runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct On<'a> {
    /// On these CPUs; where none is named, on those of the thread that starts it.
    pub cpus: &'a [usize],
    /// As a member of these groups: files of control groups that take process ids.
    pub joins: &'a [PathBuf],
}

impl Process {
    /// Starts `command`; its output goes to the end of the file `log`.
    pub fn start(name: &str, command: &[String], on: On<'_>, log: &Path) -> Result<Self> {
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
        shell.arg("-c").arg(script).arg("sh").args(on.joins).arg("--").args(command);
        shell.stdin(Stdio::null()).stdout(output).stderr(errors);
        debug!(name, ?command, "starting");
        let child = if on.cpus.is_empty() {
            shell.spawn()
        } else {
            // A thread of its own: children inherit its CPUs.
            thread::scope(|scope| {
                let pinned = scope.spawn(|| cpu::pin_to(on.cpus).map(|()| shell.spawn()));
                pinned.join().unwrap_or_else(|_| bail!("a thread that starts a process panicked"))
            })?
        };
        let child = child.with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned() })
    }

    /// The same; returns when somebody listens on `address`.
    pub fn listening(
        name: &str,
        command: &[String],
        on: On<'_>,
        log: &Path,
        address: SocketAddr,
    ) -> Result<Self> {
        let mut process = Self::start(name, command, on, log)?;
        process.wait_until(&format!("listening on {address}"), START_MAX, || {
            Ok(TcpStream::connect(address).is_ok())
        })?;
        Ok(process)
    }

    /// Runs `command` to its end, which must be a good one.
    pub fn run(name: &str, command: &[String], log: &Path) -> Result<()> {
        Self::start(name, command, On::default(), log)?.end_well()
    }

    /// Waits for its end, which must be a good one.
    pub fn end_well(mut self) -> Result<()> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "{} failed ({status}): {}", self.name, self.last_words());
                return Ok(());
            }
            crate::stop::check()?;
            thread::sleep(LOOK_EVERY);
        }
    }

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
        let waited = crate::until(what, patience, LOOK_EVERY, || {
            let is_ready = ready()?;
            self.check().map(|()| is_ready)
        });
        waited.map(drop).or_else(|error| {
            self.check()?;
            Err(error.context(format!("{}: {}", self.name, self.last_words())))
        })
    }

    /// An error if it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}): {}", self.name, self.last_words()),
        }
    }

    pub fn log_text(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = self.log_text();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("; ")
    }

    /// Sends it a signal, unless it has ended: then its id may be another's.
    pub fn signal(&mut self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid)
            && let Err(error) = rustix::process::kill_process(pid, signal)
        {
            debug!(name = self.name, %error, "cannot signal");
        }
    }

    /// Kills it (SIGKILL): it has no time to say goodbye.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    /// Asks it to end (SIGTERM) and waits for that; it is killed if it takes too long, which is an
    /// error.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let began = std::time::Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if STOP_MAX < began.elapsed() {
                self.kill();
                bail!("{} does not stop: killed", self.name);
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            warn!("{error:#}");
        }
    }
}

/// A program built together with this one.
pub fn binary(name: &str) -> Result<String> {
    let path = std::env::current_exe()?.with_file_name(name);
    let shown = path.display().to_string();
    ensure!(
        path.is_file(),
        "{shown} is missing: build all binaries in the same way as this one (./x lab does)"
    );
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str, log: &Path) -> Process {
        let command = ["/bin/sh", "-c", line].map(str::to_owned);
        Process::start("it", &command, On::default(), log).unwrap()
    }

    #[test]
    fn an_end_that_comes_too_early_is_told_with_the_last_words_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut it = shell("echo no port is free >&2; exit 3", &dir.path().join("log"));
        let error = it.wait_until("listening", STOP_MAX, || Ok(false)).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("it ended (exit status: 3)"), "{said}");
        assert_eq!(said.matches("no port is free").count(), 1, "{said}");
    }

    #[test]
    fn one_that_takes_too_long_is_told_with_what_was_waited_for_and_its_last_words() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut it = shell("echo looking for a drive; exec sleep 60", &log);
        it.wait_until("its word", STOP_MAX, || Ok(log.metadata()?.len() != 0)).unwrap();
        let error = it.wait_until("listening", LOOK_EVERY, || Ok(false)).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.starts_with("it: looking for a drive: listening took over"), "{said}");
        it.stop().unwrap();
        assert!(it.check().unwrap_err().to_string().contains("it ended (signal: 15"));
    }
}

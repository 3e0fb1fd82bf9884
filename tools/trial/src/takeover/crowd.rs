//! Many connections that ask for nothing, in processes of their own: a process may open 20,000
//! files unless root allows more.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::viewers::{CONNECT_MAX, Tls, Way};

/// `nearcast-lab hold-crowd`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Who they are connected to.
    at: SocketAddr,
    /// Whose certificates they believe.
    authority: PathBuf,
    count: usize,
    /// How long they are waited for, in milliseconds.
    within_ms: u64,
}

/// What it says once all are connected.
const CONNECTED: &str = "connected";

/// What came of a crowd.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Gone {
    /// How many were reset or closed, and when the last was.
    pub(crate) count: usize,
    pub(crate) last_ms: u64,
}

/// Connects, says so, waits for a line, and then until all are reset or the time is over.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let config = rig::client::tls_config(&args.authority, &[])?;
    let way = Way { at: args.at, config, base: String::new() };
    let one = |_| way.connect(CONNECT_MAX * 20).context("a client of the crowd");
    let crowd: Vec<Tls> = (0..args.count).map(one).collect::<Result<_>>()?;
    rig::print(CONNECTED)?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let gone = gone(&crowd, Duration::from_millis(args.within_ms))?;
    rig::print(&serde_json::to_string(&gone)?)
}

/// Waits until all are reset or closed; how many are within this time, and when the last was.
fn gone(crowd: &[Tls], within: Duration) -> Result<Gone> {
    let began = Instant::now();
    let mut last = Duration::ZERO;
    let mut left: Vec<&TcpStream> = crowd.iter().map(|tls| &tls.sock).collect();
    while !left.is_empty() && began.elapsed() < within {
        let mut polled: Vec<PollFd<'_>> =
            left.iter().map(|socket| PollFd::new(*socket, PollFlags::RDHUP)).collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        if 0 < poll(&mut polled, Some(&wait))? {
            last = began.elapsed();
        }
        let gone: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut gone = gone.into_iter();
        left.retain(|_| !gone.next().unwrap_or(false));
    }
    let last_ms = u64::try_from(last.as_millis())?;
    Ok(Gone { count: crowd.len() - left.len(), last_ms })
}

/// A crowd in a process, which ends when this is dropped.
pub(crate) struct Crowd {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Crowd {
    /// Begins to connect so many to an address.
    pub(crate) fn start(
        at: SocketAddr,
        authority: &Path,
        count: usize,
        within: Duration,
    ) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("hold-crowd")
            .arg(at.to_string())
            .arg(authority)
            .args([count.to_string(), within.as_millis().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process of a crowd")?;
        let input = child.stdin.take().context("its input")?;
        let output = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, input, output })
    }

    /// Waits until all are connected.
    pub(crate) fn connected(&mut self) -> Result<()> {
        let line = self.line()?;
        ensure!(line.trim() == CONNECTED, "the crowd is not connected: {line:?}");
        Ok(())
    }

    /// From now on their ends are counted.
    pub(crate) fn watch(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"now\n")?)
    }

    /// Waits until all are gone, or the time is over.
    pub(crate) fn gone(&mut self) -> Result<Gone> {
        let line = self.line()?;
        serde_json::from_str(&line).with_context(|| format!("the crowd says {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

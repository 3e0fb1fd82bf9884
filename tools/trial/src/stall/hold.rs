//! The FUSE drive as a process of its own, so that it can be stopped without stopping the lab.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rig::drive::{Drive, Faults};
use rustix::process::{Pid, Signal};

/// `nearcast-lab hold-drive`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the drive passes on to.
    folder: PathBuf,
    /// Where it is shown.
    mount: PathBuf,
}

/// What it says once the drive is there.
const READY: &str = "ready";

/// Shows the drive until standard input ends.
pub(crate) fn run(args: &Args) -> Result<()> {
    let _drive = Drive::mount(&args.folder, &args.mount, Arc::new(Faults::default()))?;
    rig::print(READY)?;
    let mut input = std::io::stdin().lock();
    while input.read(&mut [0; 16]).is_ok_and(|len| len != 0) {}
    Ok(())
}

/// A drive whose process can be stopped. Let go on, ended and unmounted when dropped.
pub(crate) struct Held {
    child: Child,
    pub(crate) folder: PathBuf,
    pub(crate) mount: PathBuf,
}

/// While this lives, the drive answers nothing.
pub(crate) struct Stopped<'a>(&'a Held);

impl Held {
    pub(crate) fn start(folder: &Path, mount: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let mut child = Command::new(std::env::current_exe()?)
            .arg("hold-drive")
            .args([folder, mount])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the process of a drive")?;
        let output = child.stdout.take().context("its output")?;
        let held = Self { child, folder: folder.to_owned(), mount: mount.to_owned() };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim() == READY, "the drive is not there: FUSE needs root and /dev/fuse");
        Ok(held)
    }

    /// From now on it answers nothing, until what is returned is dropped.
    pub(crate) fn stop(&self) -> Result<Stopped<'_>> {
        self.signal(Signal::STOP)?;
        Ok(Stopped(self))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(rustix::process::kill_process(pid.context("a process id")?, signal)?)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = self.0.signal(Signal::CONT);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.signal(Signal::CONT);
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

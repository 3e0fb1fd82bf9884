//! Keeps incidents: one small file each, the newest ones only.
//!
//! Written by a thread of their own: a system drive that hangs holds up neither a worker nor the
//! thread that judges faults. `nearcast-appliance inspect FILE` reads one, and so does whoever can
//! read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use worker::{INCIDENT_MAGIC, Incident};

/// The folder's name in the state directory.
pub const FOLDER: &str = "incidents";
/// Files that are kept; each has some 5 KiB, 10 at most.
const FILES_MAX: usize = 100;
/// Incidents that wait to be written; more of them are lost.
const WAITING_MAX: usize = 100;

/// Longer than any.
const LEN_MAX: u64 = 64 * 1024;

/// A thread that keeps incidents. When this is dropped, it writes those that wait, and ends.
#[derive(Debug)]
pub struct Keeper(SyncSender<Box<Incident>>);

impl Keeper {
    /// In this state directory.
    pub fn start(state: &Path) -> io::Result<Self> {
        let (waiting, incidents) = sync_channel::<Box<Incident>>(WAITING_MAX);
        let mut folder = Incidents::new(state);
        std::thread::Builder::new()
            .name("incidents".to_owned())
            .spawn(move || incidents.iter().for_each(|incident| folder.keep(&incident)))?;
        Ok(Self(waiting))
    }

    /// Does not block: an incident is lost where `WAITING_MAX` wait.
    pub fn keep(&self, incident: Box<Incident>) {
        let _ = self.0.try_send(incident);
    }
}

/// The folder with incidents.
#[derive(Debug)]
pub struct Incidents {
    folder: PathBuf,
    /// Sets names of one second apart.
    count: u32,
    /// Writing failed last time: said once.
    failing: bool,
}

/// An incident as `inspect` shows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Seen {
    pub reason: String,
    /// Who was slow, and how long of how long.
    pub slow: String,
    /// All of the file but its first line.
    pub text: String,
}

impl Incidents {
    /// In this state directory. Nothing is made before there is something to keep.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(FOLDER), count: 0, failing: false }
    }

    /// Keeps one; the oldest make room.
    pub fn keep(&mut self, incident: &Incident) {
        let result = self.write(incident);
        if let (Err(error), false) = (&result, self.failing) {
            tracing::warn!(%error, "incidents cannot be written; they are lost");
        }
        self.failing = result.is_err();
    }

    fn write(&mut self, incident: &Incident) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        self.count = (self.count + 1) % 10_000;
        let name = format!("{:010}-{:04}.txt", incident.wall.0, self.count);
        fs::write(self.folder.join(name), incident.text())?;
        let files = fs::read_dir(&self.folder)?.map(|file| file.map(|file| file.path()));
        let mut files: Vec<PathBuf> = files.collect::<io::Result<_>>()?;
        files.sort_unstable();
        let surplus = files.len().saturating_sub(FILES_MAX);
        files[..surplus].iter().try_for_each(fs::remove_file)
    }
}

/// The incident in this file, if it is one.
pub fn read(path: &Path) -> Option<Seen> {
    // An object's file may have terabytes.
    let is_small = fs::metadata(path).ok()?.len() <= LEN_MAX;
    let bytes = is_small.then(|| fs::read(path)).and_then(Result::ok)?;
    let text = std::str::from_utf8(&bytes).ok()?;
    let text = text.strip_prefix(INCIDENT_MAGIC)?.strip_prefix('\n')?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        Some(line?.trim().to_owned())
    };
    Some(Seen { reason: field("reason:")?, slow: field("slow:")?, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::ObjectId;
    use model::units::{Bytes, Nanos, UnixSeconds};
    use worker::{Reason, Waits};

    fn incident(wall: u64) -> Incident {
        let waits = Waits { drive: Nanos::millis(1500), ..Waits::default() };
        Incident {
            reason: Reason::SlowDrive,
            wall: UnixSeconds(wall),
            lasted: Nanos::seconds(2),
            waits,
            object: ObjectId([1; 32]),
            sent: Bytes(7),
            forgotten: 0,
            events: Vec::new(),
        }
    }

    #[test]
    fn the_newest_are_kept_and_can_be_read() {
        let state = tempfile::tempdir().unwrap();
        let mut incidents = Incidents::new(state.path());
        let first = u64::try_from(1_790_000_000_usize).unwrap();
        for wall in first..first + 120 {
            incidents.keep(&incident(wall));
        }
        let files = fs::read_dir(state.path().join(FOLDER)).unwrap();
        let mut files: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        files.sort_unstable();
        assert_eq!(files.len(), FILES_MAX);
        assert!(files[0].to_str().unwrap().contains("1790000020-"));
        let seen = read(&files[0]).unwrap();
        assert_eq!(seen.reason, "slow drive");
        assert_eq!(seen.slow, "the drive, 1500.000 of 2000.000 ms");
        assert!(read(&state.path().join("none")).is_none());
    }

    #[test]
    fn whoever_keeps_one_does_not_wait_for_the_drive() {
        let state = tempfile::tempdir().unwrap();
        // Opening it blocks until somebody reads it, as a drive that hangs does.
        let fifo = state.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        fs::create_dir(state.path().join(FOLDER)).unwrap();
        let first = state.path().join(FOLDER).join("0000000001-0001.txt");
        std::os::unix::fs::symlink(&fifo, first).unwrap();
        let keeper = Keeper::start(state.path()).unwrap();
        // Whoever waits for the drive does so for good: nobody reads until all are given.
        (1..=300).for_each(|wall| keeper.keep(Box::new(incident(wall))));
        assert!(fs::read_to_string(&fifo).unwrap().starts_with(INCIDENT_MAGIC));
        let written = || fs::read_dir(state.path().join(FOLDER)).unwrap().count();
        while written() < FILES_MAX {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

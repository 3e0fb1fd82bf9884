//! The files of one running demo: configurations, drives, keys, logs, profiles.
//!
//! ```text
//! ~/.cache/nearcast/demo/films/     encoded films, kept for the next run
//! ~/.cache/nearcast/demo/running/   one directory per running demo, removed at its end
//! ```
//!
//! Not below /tmp: that is often in memory, where drives cannot be read with O_DIRECT. A demo that
//! was killed leaves its directory; the next one sees that nobody holds its lock, and removes it.

use std::fs::{DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(super) struct Place {
    dir: PathBuf,
    keep: bool,
    _lock: File,
}

impl Place {
    /// A new directory below `demo/running`, readable by its owner only: it holds private keys.
    pub(super) fn new(demo: &Path, keep: bool) -> anyhow::Result<Self> {
        let running = demo.join("running");
        std::fs::create_dir_all(&running)
            .with_context(|| format!("cannot create {}", running.display()))?;
        remove_orphans(&running);
        let dir = running.join(std::process::id().to_string());
        let wrong = || format!("cannot create {}", dir.display());
        let _ = std::fs::remove_dir_all(&dir);
        DirBuilder::new().mode(0o700).create(&dir).with_context(wrong)?;
        let lock = File::create(dir.join(LOCK)).with_context(wrong)?;
        lock.lock().with_context(wrong)?;
        Ok(Self { dir, keep, _lock: lock })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn make_dir(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }

    /// Writes a new file in it that only its owner can read.
    pub(super) fn write_secret(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.path(name);
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| writeln!(file, "{text}"));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

/// A directory without a lock is being made at this moment; it is left alone.
fn remove_orphans(running: &Path) {
    for entry in std::fs::read_dir(running).into_iter().flatten().flatten() {
        let unused = File::open(entry.path().join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok());
        if unused && !entry.path().join(KEPT).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

const LOCK: &str = "lock";

/// Present where the user asked to keep what the demo leaves.
pub(super) const KEPT: &str = "kept";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_demo_left_is_removed_and_a_running_ones_is_not() {
        let demo = tempfile::tempdir().unwrap();
        let running = demo.path().join("running");
        for name in ["dead", "alive", "kept"] {
            std::fs::create_dir_all(running.join(name)).unwrap();
            std::fs::write(running.join(name).join(LOCK), "").unwrap();
        }
        std::fs::write(running.join("kept").join(KEPT), "").unwrap();
        let alive = File::open(running.join("alive").join(LOCK)).unwrap();
        alive.lock().unwrap();
        let place = Place::new(demo.path(), false).unwrap();
        assert!(!running.join("dead").exists());
        assert!(running.join("alive").exists() && running.join("kept").exists());
        let dir = place.dir().to_owned();
        place.write("file", "text").unwrap();
        drop(place);
        assert!(!dir.exists());
    }
}

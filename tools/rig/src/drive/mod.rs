//! A drive that does as it is told: a folder behind FUSE, where each operation can be made to fail,
//! to wait, or to be written down.
//!
//! ```text
//! appliance ── kernel ── FUSE ──> Watch::admit ──> the folder ──> Watch::changed
//!                                 fail or wait                    in the order of what was done
//! ```
//!
//! What watches is a trait: `Faults` injects error numbers, `Modelled` of `lab disk` takes the time
//! that a model of a drive takes, `Tape` of `lab cut` records. The kernel keeps no names and no
//! attributes (all lifetimes are zero), so that a fault is seen by the very next system call.

mod faults;
mod filesystem;
mod names;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fuser::{BackgroundSession, MountOption, SessionACL};
use rustix::io::Errno;

pub use faults::{Fault, Faults};

/// What is about to be done. Reading kinds come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A name is looked up.
    Lookup,
    /// A file or folder is opened.
    Open,
    Read,
    List,
    /// Free room is asked for.
    Measure,
    /// A file is made.
    Create,
    /// Bytes are written.
    Write,
    Allocate,
    /// A file is made longer or shorter.
    Resize,
    /// A file or a folder is brought to the drive.
    Flush,
    /// A name is changed.
    Rename,
    /// A name is removed.
    Unlink,
}

/// A file of the drive, whatever its name is; never used for another file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// What was done, and what a power cut may undo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was made, empty.
    Create {
        file: FileId,
        /// Its name, relative to the drive.
        path: PathBuf,
    },
    /// Bytes were written.
    Write {
        file: FileId,
        /// The name it was opened by.
        path: PathBuf,
        at: u64,
        bytes: Vec<u8>,
    },
    /// A file is so long now, by ftruncate or fallocate.
    Resize {
        file: FileId,
        /// The name it was opened by.
        path: PathBuf,
        len: u64,
    },
    /// fsync or fdatasync of a file has returned.
    FlushFile {
        file: FileId,
        /// The name it was opened by.
        path: PathBuf,
    },
    /// fsync of a folder has returned.
    FlushFolder { path: PathBuf },
    /// A file has another name; what had this name before has none.
    Rename { from: PathBuf, to: PathBuf },
    /// A file has no name any more.
    Unlink { path: PathBuf },
}

/// Who decides about operations, and is told of changes. Called from several threads.
pub trait Watch: Send + Sync + 'static {
    /// Before an operation on `path`: an error fails it. May wait; then only this one waits.
    fn admit(&self, kind: Kind, path: &Path) -> Result<(), Errno> {
        let _ = (kind, path);
        Ok(())
    }

    /// Bytes of a file are read, written or flushed: may take its time, beside others.
    fn transfer(&self, kind: Kind, file: FileId, at: u64, len: u64) {
        let _ = (kind, file, at, len);
    }

    /// Before a change, alone: no other change is under way until `changed` has returned.
    fn hold(&self) {}

    /// After a change, alone.
    fn changed(&self, change: Change) {
        let _ = change;
    }
}

/// A mounted drive. Unmounted when dropped.
pub struct Drive {
    mount: PathBuf,
    session: Option<BackgroundSession>,
}

/// Threads of one drive. More than one waits for nothing: a held write must not stop reads.
const THREADS: usize = 16;

impl Drive {
    /// Shows `folder` at `mount`, which is made if it is missing.
    pub fn mount(folder: &Path, mount: &Path, watch: std::sync::Arc<dyn Watch>) -> Result<Self> {
        std::fs::create_dir_all(mount)?;
        let mut config = fuser::Config::default();
        config.mount_options = vec![MountOption::FSName("nearcast-lab".to_owned())];
        // The appliance may run as another user than the lab.
        config.acl = SessionACL::All;
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let filesystem = filesystem::Passage::new(folder, watch)?;
        let session = fuser::spawn_mount(filesystem, mount, &config).with_context(|| {
            format!("cannot mount at {}: FUSE needs root and /dev/fuse", mount.display())
        })?;
        Ok(Self { mount: mount.to_owned(), session: Some(session) })
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        drop(self.session.take());
        // Whoever still has a file open keeps it alive: then at least the name goes.
        let _ = rustix::mount::unmount(&self.mount, rustix::mount::UnmountFlags::DETACH);
    }
}

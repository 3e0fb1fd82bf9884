//! A directory tree that cannot be left: not by `..`, not by links, not by a race between the two.
//!
//! The kernel does the checking (`openat2` with `RESOLVE_BENEATH`, Linux 5.6). Ingest and origin
//! open files through this same door, so whatever was ingested can also be served.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rustix::fs::{Mode, OFlags, ResolveFlags};

#[derive(Debug)]
pub(crate) struct Tree {
    root: OwnedFd,
    path: PathBuf,
}

/// Why a file of a tree could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    #[error("is not a path below a directory")]
    Path,
    #[error("is not there")]
    Missing,
    /// A directory, a socket, a pipe or a device.
    #[error("is not an ordinary file")]
    NotAFile,
    /// Absolute links do, wherever they point, and links that go round.
    #[error("is a link that leads out of the directory")]
    Leaves,
    #[error("cannot be opened: {0}")]
    Io(io::Error),
}

impl Tree {
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let path = dir
            .canonicalize()
            .with_context(|| format!("cannot find the directory {}", dir.display()))?;
        anyhow::ensure!(path.is_dir(), "{} is not a directory", dir.display());
        let root = rustix::fs::open(&path, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .with_context(|| format!("cannot open the directory {}", path.display()))?;
        Ok(Self { root, path })
    }

    /// Where it is: absolute, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn open_file(&self, path: &str) -> Result<File, TreeError> {
        if !model::path::is_path(path) {
            return Err(TreeError::Path);
        }
        // O_NONBLOCK so that a pipe without a writer cannot hold us; files do not mind it.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let open = || rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve);
        let file = File::from(retry_races(open).map_err(TreeError::of)?);
        let metadata = file.metadata().map_err(TreeError::Io)?;
        if metadata.is_file() { Ok(file) } else { Err(TreeError::NotAFile) }
    }
}

impl TreeError {
    fn of(error: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match error {
            Errno::XDEV | Errno::LOOP => Self::Leaves,
            Errno::NOENT | Errno::NOTDIR => Self::Missing,
            Errno::NXIO | Errno::ISDIR => Self::NotAFile,
            other => Self::Io(other.into()),
        }
    }
}

/// The kernel answers EAGAIN when a rename elsewhere kept it from being sure of `..`.
fn retry_races<T>(open: impl Fn() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    for _ in 0..RACES_MAX {
        match open() {
            Err(rustix::io::Errno::AGAIN) => {}
            result => return result,
        }
    }
    open()
}

/// Arbitrary; one retry has been enough wherever this was seen.
const RACES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_may_turn_within_the_tree_but_not_lead_out_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(root.join("in/file"), b"bytes").unwrap();
        std::fs::write(dir.path().join("secret"), b"secret").unwrap();
        symlink("in/file", root.join("good")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        symlink(dir.path().join("secret"), root.join("absolute")).unwrap();
        symlink("..", root.join("parent")).unwrap();
        symlink("round", root.join("round")).unwrap();
        let tree = Tree::open(&root).unwrap();
        assert!(tree.open_file("in/file").is_ok());
        assert!(tree.open_file("good").is_ok());
        for bad in ["up", "absolute", "parent/secret", "round"] {
            assert!(matches!(tree.open_file(bad), Err(TreeError::Leaves)), "{bad}");
        }
        for bad in ["../secret", "/etc/passwd", "", "in//file", "in/../in/file"] {
            assert!(matches!(tree.open_file(bad), Err(TreeError::Path)), "{bad}");
        }
        assert!(matches!(tree.open_file("in"), Err(TreeError::NotAFile)));
        assert!(matches!(tree.open_file("none"), Err(TreeError::Missing)));
        assert!(matches!(tree.open_file("in/file/none"), Err(TreeError::Missing)));
    }

    #[test]
    fn a_pipe_is_refused_and_does_not_hold_us() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let tree = Tree::open(dir.path()).unwrap();
        assert!(matches!(tree.open_file("pipe"), Err(TreeError::NotAFile)));
    }
}

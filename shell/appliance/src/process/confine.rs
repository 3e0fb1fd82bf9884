//! Gives away what serving does not need, so that whoever takes the process over gets little.
//!
//! ```text
//! root ── drop_privileges ──> user "nearcast", no capabilities, no core dumps
//!      ── confine ──────────> files: drives and state to write, certificates to read (Landlock)
//!                             system calls: those of the list (seccomp)
//!      ── workers make their rings
//!      ── close_rings ──────> no more rings
//! ```
//!
//! All of it holds for the calling thread and for those that it starts afterwards, so it is called
//! on the main thread before there are others. What each step leaves open is said in
//! `docs/internals/confinement.md`.

use std::path::{Path, PathBuf};

mod files;
mod syscalls;
mod user;

pub use syscalls::{SyscallError, close_rings};
pub use user::{UserError, drop_privileges};

/// How much a kernel must offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sandbox {
    /// All that the kernel has; what is missing is one WARN.
    #[default]
    BestEffort,
    /// No start without Landlock and seccomp. An older Landlock, which knows fewer rules, will do.
    Require,
    /// None: for debuggers, profilers and sanitizers.
    Off,
}

/// What the process may still touch. Nothing else is opened, and no TCP port is bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Folders to read, write, make and remove files in. They must be there.
    pub read_write: Vec<PathBuf>,
    /// Files to read, now and when they have been replaced. Missing ones are no error.
    pub read: Vec<PathBuf>,
}

/// Why there is no confinement.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    #[error("cannot confine the process: {path}: {error}")]
    Folder { path: PathBuf, error: landlock::PathFdError },
    #[error("cannot confine the process to its files: {0}")]
    Rules(#[from] landlock::RulesetError),
    #[error(
        "this kernel has no Landlock, and [process] sandbox = \"require\": boot with lsm=landlock \
         among the others, or set \"best-effort\""
    )]
    NoLandlock,
    /// The kernel refused the filter.
    #[error(transparent)]
    Syscalls(#[from] SyscallError),
}

/// Confines this thread and those that it starts. True if system calls are restricted, so that
/// [`close_rings`] is to follow.
pub fn confine(sandbox: Sandbox, grants: &Grants) -> Result<bool, ConfineError> {
    if sandbox == Sandbox::Off {
        tracing::warn!("[process] sandbox = \"off\": files and system calls are not restricted");
        return Ok(false);
    }
    match files::restrict(grants)? {
        files::Enforced::All => {}
        files::Enforced::Some => tracing::warn!(
            "this kernel's Landlock is old: files are restricted, ports or signals may not be; \
             Linux 6.12 has all of it"
        ),
        files::Enforced::None if sandbox == Sandbox::Require => {
            return Err(ConfineError::NoLandlock);
        }
        files::Enforced::None => tracing::warn!(
            "this kernel has no Landlock: the process can open whatever its user can; boot with \
             lsm=landlock among the others"
        ),
    }
    match syscalls::restrict() {
        Ok(()) => Ok(true),
        Err(error) if sandbox == Sandbox::BestEffort => {
            tracing::warn!(%error, "system calls are not restricted");
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// The folders by which `file` is reached: where it is named, and where it lies if that is
/// elsewhere. A rule for the file alone would not hold for the one that replaces it. A folder like
/// `/etc` is no answer, as it holds more than is meant: then it is the file alone.
fn reached_through(file: &Path) -> Vec<PathBuf> {
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let real = std::fs::canonicalize(&absolute).unwrap_or_else(|_| absolute.clone());
    let folder = |path: &Path| match path.parent() {
        Some(parent) if 2 < parent.components().count() => parent.to_owned(),
        _ => path.to_owned(),
    };
    let mut paths = vec![folder(&absolute), folder(&real)];
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_replaced_is_reached_through_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (live, archive) = (dir.path().join("live"), dir.path().join("archive"));
        std::fs::create_dir_all(&live).unwrap();
        std::fs::create_dir_all(&archive).unwrap();
        std::fs::write(archive.join("1.pem"), "").unwrap();
        std::os::unix::fs::symlink("../archive/1.pem", live.join("c.pem")).unwrap();
        let real = std::fs::canonicalize(&archive).unwrap();
        assert_eq!(reached_through(&live.join("c.pem")), [live, real]);
    }

    #[test]
    fn a_broad_folder_is_not_opened_for_one_file() {
        for file in ["/etc/nearcast.pem", "/nearcast.pem"] {
            assert_eq!(reached_through(Path::new(file)), [PathBuf::from(file)]);
        }
        let file = Path::new("/etc/nearcast/tls.pem");
        assert_eq!(reached_through(file), [PathBuf::from("/etc/nearcast")]);
    }
}

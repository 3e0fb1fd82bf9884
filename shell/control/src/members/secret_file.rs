//! Files that only their owner can read, written as a whole: after a power cut there is the old one
//! or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{path}: others than its owner can read it (mode {mode:o}): chmod 600 it, and if \
             strangers may have read it, see what to do in docs/operate/identity.md"
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "{path} is damaged ({reason}): restore it from a backup. Without it every member of the \
             fleet has to enrol again"
    )]
    Damaged { path: PathBuf, reason: String },
}

/// The text of a secret file; none if there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, SecretError> {
    let fault = |error| SecretError::File { path: path.to_owned(), error };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error)),
    };
    let metadata = file.metadata().map_err(fault)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(SecretError::Exposed { path: path.to_owned(), mode });
    }
    let damaged = |reason: &str| {
        let reason = reason.to_owned();
        SecretError::Damaged { path: path.to_owned(), reason }
    };
    if LEN_MAX < metadata.len() {
        return Err(damaged("it is too long"));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(fault)?;
    String::from_utf8(bytes).map(Some).map_err(|_| damaged("it is no text"))
}

/// Writes a secret file: after this returns, a power cut does not lose it.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), SecretError> {
    let written = || -> io::Result<()> {
        let next = path.with_extension("new");
        let _ = fs::remove_file(&next);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, path)?;
        path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
    };
    written().map_err(|error| SecretError::File { path: path.to_owned(), error })
}

/// Larger is damaged.
const LEN_MAX: u64 = 1 << 20;

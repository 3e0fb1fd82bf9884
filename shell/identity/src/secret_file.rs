//! Files that only their owner can read, written as a whole: after a power cut there is the old one
//! or the new one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A secret file of a state directory, and the remedies that its faults name.
#[derive(Clone, Copy, Debug)]
pub struct SecretFile {
    pub name: &'static str,
    /// If strangers may have read it.
    pub exposed: &'static str,
    /// If it is damaged.
    pub damaged: &'static str,
}

/// Why a secret cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{path}: {error}")]
    File { path: PathBuf, error: io::Error },
    #[error(
        "{path}: others than its owner can read it (mode {mode:o}): chmod 600 it, and if \
             strangers may have read it, {remedy}"
    )]
    Exposed { path: PathBuf, mode: u32, remedy: &'static str },
    #[error("{path} is damaged ({reason}): {remedy}")]
    Damaged { path: PathBuf, reason: String, remedy: &'static str },
}

impl SecretFile {
    /// Its text; none if there is no file.
    pub fn read(&self, state: &Path) -> Result<Option<String>, SecretError> {
        let path = state.join(self.name);
        let fault = |error| SecretError::File { path: path.clone(), error };
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(error)),
        };
        let metadata = file.metadata().map_err(fault)?;
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Exposed { path, mode, remedy: self.exposed });
        }
        if LEN_MAX < metadata.len() {
            return Err(self.damaged(state, "it is too long"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fault)?;
        String::from_utf8(bytes).map(Some).map_err(|_| self.damaged(state, "it is no text"))
    }

    /// Replaces it: after this returns, a power cut does not lose the new one.
    pub fn write(&self, state: &Path, text: &str) -> Result<(), SecretError> {
        let path = state.join(self.name);
        replace(&path, text.as_bytes()).map_err(|error| SecretError::File { path, error })
    }

    /// The fault of a file whose text cannot be used.
    pub fn damaged(&self, state: &Path, reason: impl ToString) -> SecretError {
        let (path, reason) = (state.join(self.name), reason.to_string());
        SecretError::Damaged { path, reason, remedy: self.damaged }
    }
}

/// Puts a file that only its owner can read in the place of the one before: a power cut leaves the
/// old one or the new one, and after this returns the new one.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let next = path.with_extension("new");
    let _ = fs::remove_file(&next);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&next)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

/// Larger is damaged.
const LEN_MAX: u64 = 1 << 20;

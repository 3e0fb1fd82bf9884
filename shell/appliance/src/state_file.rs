//! The last manifest, kept so that the appliance serves and fills with control away.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use model::id::ApplianceId;
use model::manifest::Manifest;
use wire::convert::{manifest_in, manifest_out};

use crate::drives::{self, DriveError, OpenError};

/// Why the last manifest cannot be kept or used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory cannot be opened.
    #[error("state directory: {0}")]
    Open(#[from] OpenError),
    /// Reading or writing failed.
    #[error("state directory {path}: {error}")]
    Io {
        /// The directory.
        path: PathBuf,
        /// What failed.
        error: DriveError,
    },
    /// It cannot be made.
    #[error("cannot make the state directory {path}: {error}")]
    Make {
        /// The directory.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// The file is there and makes no sense.
    #[error("{path}: {text}. It is left out until control gives a newer manifest")]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        text: String,
    },
}

/// The state directory.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    root: OwnedFd,
}

const MANIFEST: &str = "manifest.json";

impl StateFile {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        std::fs::create_dir_all(path)
            .map_err(|error| StateError::Make { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), root: drives::open_root(path)? })
    }

    /// The manifest that was in force last, if there was one.
    pub(crate) fn load(&self, appliance: &ApplianceId) -> Result<Option<Manifest>, StateError> {
        let bytes = drives::read_small(&self.root, MANIFEST).map_err(|e| self.failed(e))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let refused = |text| StateError::Manifest { path: self.path.join(MANIFEST), text };
        let wire = serde_json::from_slice(&bytes).map_err(|error| refused(error.to_string()))?;
        let manifest = manifest_in(&wire).map_err(|error| refused(error.to_string()))?;
        if manifest.appliance != *appliance {
            return Err(refused(format!(
                "it is {}'s, and this is {appliance}",
                manifest.appliance
            )));
        }
        Ok(Some(manifest))
    }

    /// Keeps a manifest: after this returns, a power cut does not lose it.
    pub(crate) fn save(&self, manifest: &Manifest) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(&manifest_out(manifest))
            .expect("strings, numbers and maps with string keys make JSON");
        drives::replace(&self.root, MANIFEST, &bytes).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: DriveError) -> StateError {
        StateError::Io { path: self.path.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::Generation;

    fn manifest() -> Manifest {
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(7),
            token_keys: Vec::new(),
            trust: model::manifest::Trust::default(),
            versions: Vec::new(),
        }
    }

    #[test]
    fn the_last_manifest_is_kept_and_only_used_by_its_appliance() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::open(&dir.path().join("deep/state")).unwrap();
        let load = |name: &str| file.load(&name.parse().unwrap());
        assert_eq!(load("a1").unwrap(), None);
        file.save(&manifest()).unwrap();
        file.save(&Manifest { generation: Generation(8), ..manifest() }).unwrap();
        assert_eq!(load("a1").unwrap().unwrap().generation, Generation(8));
        assert!(load("a2").unwrap_err().to_string().contains("it is a1's"));
    }

    #[test]
    fn a_damaged_manifest_is_left_out_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::open(dir.path()).unwrap();
        std::fs::write(dir.path().join(MANIFEST), "{\"format\":1").unwrap();
        assert!(matches!(file.load(&"a1".parse().unwrap()), Err(StateError::Manifest { .. })));
    }
}

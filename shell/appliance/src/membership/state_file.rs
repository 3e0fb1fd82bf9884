//! The last manifest, kept so that the appliance serves and fills with control away.
//!
//! It is kept as control signed it, and verified again when it is read: whoever changes the file
//! changes nothing that is in force. The documents that it names are in a file of their own, each
//! believed for its hash. The trust document that it leaves keys to is in another, which is kept
//! before it: whichever of the two a power cut leaves old, the manifest on the drive has its keys.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use model::hours::FillRules;
use model::id::{ApplianceId, DocumentId, Generation};
use model::manifest::{Manifest, Short, ShortError, TokenKey, TrustDocument};
use trust::Lacking;
use wire::convert::{fill_rules_in, fill_rules_out};

use crate::lock::lock;
use crate::membership::documents::{Fetched, InForce};
use crate::membership::envelope::{self, Opened, Refused};
use crate::storage::drives::{self, DriveError, OpenError};

/// Why the last manifest cannot be kept or used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("state directory: {0}")]
    Open(#[from] OpenError),
    #[error("state directory {path}: {error}")]
    Io { path: PathBuf, error: DriveError },
    #[error("cannot make the state directory {path}: {error}")]
    Make { path: PathBuf, error: std::io::Error },
    #[error("{path} is refused: {refused}. It is left out until control gives another")]
    Refused { path: PathBuf, refused: Refused },
    #[error("{path} has no rules for fill ({why}): it is left out until control gives others")]
    Rules { path: PathBuf, why: String },
}

/// The state directory.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    root: OwnedFd,
    known: Mutex<Known>,
    /// The newest trust document, in force or not. Not held while anything is read or written:
    /// requests of siblings ask for it.
    trust: Mutex<Option<Arc<TrustDocument>>>,
}

#[derive(Debug, Default)]
struct Known {
    /// Versions of the manifest in force, if it was short.
    in_force: InForce,
    /// The file may lack some of these.
    is_unkept: bool,
    /// The newest trust document as it has to be kept, where that is not done.
    trust_unkept: Option<UnkeptTrust>,
    /// Who signed the files.
    signers: Signers,
}

/// A trust document that is not on the drive, or whose dropped keys are still believed.
#[derive(Clone, Debug)]
pub(crate) struct UnkeptTrust {
    pub(crate) envelope: Vec<u8>,
    pub(crate) document: Arc<TrustDocument>,
    /// The keys that it was verified with.
    pub(crate) keys: Vec<TokenKey>,
}

/// The names of the keys that signed what is kept; empty where nothing is.
#[derive(Clone, Debug, Default)]
struct Signers {
    manifest: String,
    trust: String,
}

const MANIFEST: &str = "manifest.signed";
const DOCUMENTS: &str = "documents.jsonl";
const TRUST: &str = "trust.signed";
const RULES: &str = "fill.json";

impl StateFile {
    /// Opens the directory, and makes it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        std::fs::create_dir_all(path)
            .map_err(|error| StateError::Make { path: path.to_owned(), error })?;
        let root = drives::open_root(path)?;
        let (known, trust) = Default::default();
        Ok(Self { path: path.to_owned(), root, known, trust })
    }

    /// The manifest that was in force last, if there was one and one of `keys` signed it.
    pub(crate) fn load(
        &self,
        appliance: &ApplianceId,
        keys: &[TokenKey],
    ) -> Result<Option<Manifest>, StateError> {
        let bytes = drives::read_small(&self.root, MANIFEST).map_err(|e| self.failed(e))?;
        let Some(bytes) = bytes else { return Ok(None) };
        lock(&self.known).signers.manifest = envelope::signer(&bytes);
        let lines = drives::read_small(&self.root, DOCUMENTS).map_err(|e| self.failed(e))?;
        let whole = envelope::open(&bytes, keys, appliance).and_then(|opened| match opened {
            Opened::Whole(manifest) => self.with_trust(manifest),
            Opened::Short(short) => {
                let mut fetched = Fetched::default();
                fetched.take(&short, &lines.unwrap_or_default())?;
                self.with_trust(self.whole(short, fetched)?)
            }
        });
        whole.map(Some).map_err(|refused| self.refused(MANIFEST, refused))
    }

    /// Reads the trust document that was kept last, if there is one and one of `keys` signed it.
    pub(crate) fn load_trust(&self, keys: &[TokenKey]) -> Result<(), StateError> {
        let bytes = drives::read_small(&self.root, TRUST).map_err(|e| self.failed(e))?;
        let Some(bytes) = bytes else { return Ok(()) };
        let opened = envelope::open_trust(&bytes, keys);
        let document = opened.map_err(|refused| self.refused(TRUST, refused))?;
        *lock(&self.trust) = Some(Arc::new(document));
        lock(&self.known).signers.trust = envelope::signer(&bytes);
        Ok(())
    }

    /// What control told last of fetching, if it did.
    pub(crate) fn load_rules(&self) -> Result<Option<FillRules>, StateError> {
        let bytes = drives::read_small(&self.root, RULES).map_err(|e| self.failed(e))?;
        let Some(bytes) = bytes else { return Ok(None) };
        let read = serde_json::from_slice(&bytes).map_err(|error| error.to_string());
        let rules = read.and_then(|told| fill_rules_in(&told).map_err(|error| error.to_string()));
        let refused = |why| StateError::Rules { path: self.path.join(RULES), why };
        rules.map(Some).map_err(refused)
    }

    /// Keeps it: after this returns, a power cut does not lose it. It is not signed, since it says
    /// nothing that whoever may write here could not do by other means.
    pub(crate) fn save_rules(&self, rules: &FillRules) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(&fill_rules_out(rules)).expect("rules become JSON");
        drives::replace(&self.root, RULES, &bytes).map_err(|error| self.failed(error))
    }

    /// The newest trust document, if there is one.
    pub(crate) fn trust(&self) -> Option<Arc<TrustDocument>> {
        lock(&self.trust).clone()
    }

    /// The manifest with the newest trust document, if that counts in it.
    pub(crate) fn with_trust(&self, manifest: Manifest) -> Result<Manifest, Refused> {
        let filled = trust::fill(manifest, self.trust().as_deref());
        filled.map_err(|Lacking { needed, known }| Refused::NoTrust { needed, known })
    }

    /// Its generation; 0 where there is none.
    pub(crate) fn trust_generation(&self) -> Generation {
        self.trust().map_or(Generation(0), |document| document.trust.generation)
    }

    /// A trust document is the newest, and waits to be kept.
    pub(crate) fn set_trust(&self, unkept: UnkeptTrust) {
        *lock(&self.trust) = Some(Arc::clone(&unkept.document));
        lock(&self.known).trust_unkept = Some(unkept);
    }

    /// The newest trust document, if it is not kept.
    pub(crate) fn unkept_trust(&self) -> Option<UnkeptTrust> {
        lock(&self.known).trust_unkept.clone()
    }

    /// Keeps it: after this returns, a power cut does not lose it.
    pub(crate) fn save_trust(&self, unkept: &UnkeptTrust) -> Result<(), StateError> {
        drives::replace(&self.root, TRUST, &unkept.envelope).map_err(|error| self.failed(error))?;
        lock(&self.known).signers.trust = envelope::signer(&unkept.envelope);
        Ok(())
    }

    /// Nothing is left to do for the newest trust document.
    pub(crate) fn trust_is_kept(&self) {
        lock(&self.known).trust_unkept = None;
    }

    /// True if a restart brings back the newest trust document, and no key that it drops.
    pub(crate) fn is_trust_kept(&self) -> bool {
        lock(&self.known).trust_unkept.is_none()
    }

    /// Keeps a manifest in its envelope: after this returns, a power cut does not lose it.
    pub(crate) fn save(&self, envelope: &[u8]) -> Result<(), StateError> {
        drives::replace(&self.root, MANIFEST, envelope).map_err(|error| self.failed(error))?;
        lock(&self.known).signers.manifest = envelope::signer(envelope);
        Ok(())
    }

    /// The names of the keys that signed what is kept.
    pub(crate) fn signers(&self) -> BTreeSet<String> {
        let Signers { manifest, trust } = lock(&self.known).signers.clone();
        [manifest, trust].into()
    }

    /// Keeps what a short manifest names, before the manifest itself is kept.
    pub(crate) fn save_documents(&self, short: &Short, new: &Fetched) -> Result<(), StateError> {
        let mut known = lock(&self.known);
        if new.is_empty() && !known.is_unkept {
            return Ok(());
        }
        known.is_unkept = true;
        // Where the file cannot be read, it is made anew of what is in force.
        let kept = drives::read_small(&self.root, DOCUMENTS).unwrap_or_else(|error| {
            let path = self.path.join(DOCUMENTS);
            tracing::warn!(path = %path.display(), %error, "documents are written anew");
            None
        });
        let file = new.file(&kept.unwrap_or_default(), short, &known.in_force);
        drives::replace(&self.root, DOCUMENTS, &file).map_err(|error| self.failed(error))?;
        known.is_unkept = false;
        Ok(())
    }

    /// Documents that a short manifest names and that are not there, most wanted first.
    pub(crate) fn lacking(&self, short: &Short, fetched: &Fetched) -> Vec<DocumentId> {
        fetched.lacking(short, &lock(&self.known).in_force)
    }

    /// The whole of a short manifest, which is in force from now on.
    pub(crate) fn whole(&self, short: Short, fetched: Fetched) -> Result<Manifest, ShortError> {
        let mut known = lock(&self.known);
        let (manifest, next) = fetched.whole(short, &known.in_force)?;
        known.in_force = next;
        Ok(manifest)
    }

    fn refused(&self, file: &str, refused: Refused) -> StateError {
        StateError::Refused { path: self.path.join(file), refused }
    }

    fn failed(&self, error: DriveError) -> StateError {
        StateError::Io { path: self.path.clone(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use identity::signing::SigningKey;
    use model::units::UnixSeconds;
    use wire::convert::manifest_out;
    use wire::v1::signed::Kind;

    fn signed(key: &SigningKey, generation: u64) -> Vec<u8> {
        let manifest = Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(generation),
            token_keys: Vec::new(),
            trust: model::manifest::Trust::default(),
            numbers: std::collections::BTreeMap::new(),
            siblings: std::collections::BTreeMap::new(),
            site: Vec::new(),
            versions: Vec::new(),
        };
        key.sign(Kind::Manifest, &serde_json::to_vec(&manifest_out(&manifest)).unwrap())
    }

    #[test]
    fn the_last_manifest_is_kept_and_only_used_by_its_appliance() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::open(&dir.path().join("deep/state")).unwrap();
        let key = SigningKey::from_seed("s1", &[1; 32]);
        let load = |name: &str| file.load(&name.parse().unwrap(), &[key.public()]);
        assert_eq!(load("a1").unwrap(), None);
        file.save(&signed(&key, 7)).unwrap();
        file.save(&signed(&key, 8)).unwrap();
        assert_eq!(load("a1").unwrap().unwrap().generation, Generation(8));
        assert!(load("a2").unwrap_err().to_string().contains("is addressed to a1"));
    }

    #[test]
    fn rules_for_fill_are_kept_and_a_damaged_file_is_left_out_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::open(dir.path()).unwrap();
        assert_eq!(file.load_rules().unwrap(), None);
        let mut rules = FillRules { state: 7, ..FillRules::default() };
        rules.hours.windows = "22:00-06:00".parse().unwrap();
        rules.hours.paused_until = Some(UnixSeconds(9));
        file.save_rules(&rules).unwrap();
        assert_eq!(file.load_rules().unwrap(), Some(rules));
        std::fs::write(dir.path().join(RULES), b"{\"state\": 7, \"windows\": [[1, 1]]}").unwrap();
        let text = file.load_rules().unwrap_err().to_string();
        assert!(text.contains("fill.json has no rules") && text.contains("ends when"), "{text}");
    }

    #[test]
    fn a_manifest_that_was_changed_on_the_drive_is_left_out_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let file = StateFile::open(dir.path()).unwrap();
        let key = SigningKey::from_seed("s1", &[1; 32]);
        let check = |bytes: &[u8], keys: &[TokenKey], wanted: &str| {
            std::fs::write(dir.path().join(MANIFEST), bytes).unwrap();
            let text = file.load(&"a1".parse().unwrap(), keys).unwrap_err().to_string();
            assert!(text.contains(wanted) && text.contains("manifest.signed"), "{text}");
        };
        let good = signed(&key, 7);
        let changed = String::from_utf8(good.clone()).unwrap().replace(":7", ":9");
        check(changed.as_bytes(), &[key.public()], "was changed after control signed it");
        check(&good[..good.len() - 1], &[key.public()], "was changed");
        check(&good, &[SigningKey::from_seed("s1", &[2; 32]).public()], "was changed");
        check(&good, &[], "key \"s1\", which is not known");
        let payload = good.splitn(2, |byte| *byte == b'\n').nth(1).unwrap();
        check(payload, &[key.public()], "it is not signed");
        let snapshot = key.sign(Kind::Snapshot, payload);
        check(&snapshot, &[key.public()], "signed as a snapshot");
    }
}

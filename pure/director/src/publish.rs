//! Manifests and their generations: a changed manifest gets a new number, any other keeps its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation};
use model::manifest::{AssetVersion, Manifest};
use model::names::Names;
use model::units::{Instant, UnixSeconds};

use crate::SAY_AGAIN_AFTER;

/// Equal for equal manifests of one appliance: a hash of all that can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; 32]);

/// Which manifest of an appliance has which generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerEntry {
    pub generation: Generation,
    pub digest: Digest,
}

/// Generations that are, or should become, durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// The newest of all; grows for ever.
    pub generation: Generation,
    /// For each appliance (or, in an action, each that changed) its newest.
    pub entries: Names<ApplianceId, LedgerEntry>,
}

/// Stages, and once they are durable publishes, manifests.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    ledger: Ledger,
    published: Names<ApplianceId, Arc<Manifest>>,
    staged: Option<Staged>,
}

#[derive(Clone, Debug)]
struct Staged {
    ledger: Ledger,
    manifests: BTreeMap<ApplianceId, Arc<Manifest>>,
    said_at: Instant,
}

impl Publisher {
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { ledger, published: Names::default(), staged: None }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.ledger.generation
    }

    pub(crate) fn manifest(&self, id: &ApplianceId) -> Option<Arc<Manifest>> {
        self.published.get(id).cloned()
    }

    /// Generation of the newest manifest of an appliance, also before it is known again after a
    /// restart; none if it never had one.
    pub(crate) fn newest(&self, id: &ApplianceId) -> Option<Generation> {
        self.ledger.entries.get(id).map(|entry| entry.generation)
    }

    /// Takes the manifests of a plan, of appliances that are still there. Those that differ from
    /// the ledger are staged under a generation that was never used: the ledger to be stored. And
    /// the manifests that are not needed. O(appliances).
    pub(crate) fn stage(
        &mut self,
        now: Instant,
        now_unix: UnixSeconds,
        planned: Vec<(Arc<Manifest>, Digest)>,
        is_there: impl Fn(&ApplianceId) -> bool,
    ) -> (Option<Ledger>, Vec<Arc<Manifest>>) {
        let mut spent = Vec::new();
        let mut newest = self.ledger.generation;
        if let Some(staged) = self.staged.take() {
            newest = newest.max(staged.ledger.generation);
            spent.extend(staged.manifests.into_values());
        }
        // Also above all that were given out after a backup was made from which this was restored.
        let generation = newest.next().max(Generation(now_unix.0));
        assert!(newest < generation, "no generation is used twice");
        let (mut entries, mut manifests) = (Vec::new(), Vec::new());
        for (mut manifest, digest) in planned {
            let id = manifest.appliance.clone();
            match self.ledger.entries.get(&id) {
                _ if !is_there(&id) => spent.push(manifest),
                Some(entry) if entry.digest == digest => {
                    if self.published.contains_key(&id) {
                        spent.push(manifest);
                    } else {
                        Arc::make_mut(&mut manifest).generation = entry.generation;
                        self.published.insert(id, manifest);
                    }
                }
                Some(_) | None => {
                    Arc::make_mut(&mut manifest).generation = generation;
                    entries.push((id.clone(), LedgerEntry { generation, digest }));
                    manifests.push((id, manifest));
                }
            }
        }
        if manifests.is_empty() {
            // The number of an earlier stage may be stored by now: it must not be used again.
            self.ledger.generation = newest;
            return (None, spent);
        }
        let ledger = Ledger { generation, entries: entries.into_iter().collect() };
        let manifests = manifests.into_iter().collect();
        let staged = Staged { ledger, manifests, said_at: now };
        (Some(self.staged.insert(staged).ledger.clone()), spent)
    }

    /// Publishes the manifests staged under `generation`, if they are still wanted: those that they
    /// replace.
    pub(crate) fn stored(&mut self, generation: Generation) -> Vec<Arc<Manifest>> {
        let is_it = |staged: &mut Staged| staged.ledger.generation == generation;
        let Some(staged) = self.staged.take_if(is_it) else { return Vec::new() };
        assert!(self.ledger.generation < generation, "generations grow");
        let is_of_it = |manifest: &Arc<Manifest>| manifest.generation == generation;
        assert!(staged.manifests.values().all(is_of_it), "one stage is one generation");
        self.ledger.generation = generation;
        self.ledger.entries.take_all(&staged.ledger.entries);
        let published = &mut self.published;
        staged.manifests.into_iter().filter_map(|(id, of)| published.insert(id, of)).collect()
    }

    /// The generation that is not stored yet, to ask for it once more; none before a while has
    /// passed.
    pub(crate) fn again(&mut self, now: Instant) -> Option<Ledger> {
        let staged = self.staged.as_mut().filter(|s| SAY_AGAIN_AFTER < now.since(s.said_at))?;
        staged.said_at = now;
        Some(staged.ledger.clone())
    }

    /// True if an appliance follows a manifest that was given out after a backup was made from
    /// which this was restored.
    pub(crate) fn is_ahead(&self, id: &ApplianceId, followed: Generation) -> bool {
        let known = self.ledger.entries.get(id).map(|entry| entry.generation);
        known.unwrap_or_default() < followed
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// The appliance follows a newer manifest than its newest here: another goes above that, once
    /// it is staged. False if the number is nonsense.
    pub(crate) fn overtake(
        &mut self,
        id: &ApplianceId,
        followed: Generation,
        now_unix: UnixSeconds,
    ) -> bool {
        let most = self.ledger.generation.0.max(now_unix.0).saturating_add(OVERTAKEN_MAX);
        if most < followed.0 {
            return false;
        }
        assert!(self.staged.is_none(), "what is staged would have a number below");
        self.ledger.generation = self.ledger.generation.max(followed);
        self.ledger.entries.remove(id);
        true
    }

    pub(crate) fn forget(&mut self, id: &ApplianceId) {
        self.published.remove(id);
        self.ledger.entries.remove(id);
        // The generation itself stays: it may be durable by now.
        if let Some(staged) = &mut self.staged {
            staged.manifests.remove(id);
            staged.ledger.entries.remove(id);
        }
    }
}

/// Covers all that can differ between two manifests of one appliance. The files of a version
/// cannot, its name is derived from them, but for one of which the appliance should hold a part.
pub(crate) fn digest(manifest: &Manifest, is_part: impl Fn(&AssetVersion) -> bool) -> Digest {
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(bytes);
    };
    put(b"nearcast-manifest-v1");
    let token_keys = ("key", &manifest.token_keys);
    for (kind, keys) in [token_keys, ("signing key", &manifest.trust.signing_keys)] {
        for key in keys {
            put(kind.as_bytes());
            put(key.kid.as_bytes());
            put(&key.public_key);
        }
    }
    for serial in &manifest.trust.revoked {
        put(b"revoked");
        put(serial.as_bytes());
    }
    for version in &manifest.versions {
        put(b"version");
        put(AssetVersionId::as_str(&version.id).as_bytes());
        put(version.asset.as_str().as_bytes());
        put(&version.modified.0.to_le_bytes());
        if is_part(version) {
            put(b"part");
            version.files.keys().for_each(|path| put(path.as_bytes()));
        }
        for source in &version.sources {
            put(b"source");
            put(source.as_bytes());
        }
    }
    for (version, first) in &manifest.numbers {
        put(b"number");
        put(version.as_str().as_bytes());
        put(&first.to_le_bytes());
    }
    for (version, siblings) in &manifest.siblings {
        put(b"siblings");
        put(version.as_str().as_bytes());
        for id in siblings {
            put(b"sibling");
            put(id.as_str().as_bytes());
        }
    }
    for member in &manifest.site {
        put(b"site member");
        put(member.id.as_str().as_bytes());
        for address in &member.addresses {
            put(address.to_string().as_bytes());
        }
    }
    Digest(*hasher.finalize().as_bytes())
}

/// No appliance can have a generation that is so far above: 68 years of seconds.
const OVERTAKEN_MAX: u64 = 1 << 31;

//! Manifests and their generations: a changed manifest gets a new number, any other keeps its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation};
use model::manifest::{AssetVersion, Manifest};
use model::names::Names;
use model::units::{Instant, UnixSeconds};

use crate::SAY_AGAIN_AFTER;
use crate::following::{OVERTAKEN_MAX, next_generation};
use crate::places::Expected;
use crate::shelf::Holdings;
use crate::trust::{self, TrustEntry};

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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ledger {
    /// The newest of all; grows for ever.
    pub generation: Generation,
    /// For each appliance (or, in an action, each that changed) its newest.
    pub entries: Names<ApplianceId, LedgerEntry>,
    /// Of the same, the items that they should hold: so a restart knows what lies where. None of an
    /// appliance whose manifest was made by a release that kept none.
    pub holds: Holdings,
    /// What viewers were expected to watch by the last forecast; none if there was none. In an
    /// action it is not looked at.
    pub expected: Option<Arc<Expected>>,
    /// The newest trust document; in an action it is not looked at.
    pub trust: TrustEntry,
}

/// Stages, and once they are durable publishes, manifests.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    generation: Generation,
    manifests: Manifests,
    staged: Option<Staged>,
    /// Appliances that are gone since the plan in the making began; none if no plan is.
    gone: Option<Vec<ApplianceId>>,
    /// Appliances that follow newer manifests than their newest here, and the generations of those.
    /// The next plan goes above them.
    ahead: BTreeMap<ApplianceId, Generation>,
    /// Appliances that have reported since this began, and read no trust document.
    need_keys: Arc<BTreeSet<ApplianceId>>,
    pub(crate) trust: trust::Publisher,
}

/// The newest manifests and their entries in the ledger. Cheap to copy; of many appliances, long to
/// free.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Manifests {
    entries: Names<ApplianceId, LedgerEntry>,
    /// The items that each should hold, as they are in the ledger.
    holds: Holdings,
    /// Of those whose manifest was made since the process started.
    published: Names<ApplianceId, Arc<Manifest>>,
    /// How many of these have keys in them.
    keyed: usize,
}

#[derive(Clone, Debug)]
struct Staged {
    ledger: Ledger,
    /// All of them, once the ledger is durable.
    manifests: Manifests,
    said_at: Instant,
}

/// The manifests that a plan begins with, and the generation of those that it changes.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    generation: Generation,
    manifests: Manifests,
    /// Appliances whose manifests get the new generation though they are the same. It is above
    /// those that they follow.
    overtaken: BTreeMap<ApplianceId, Generation>,
    need_keys: Arc<BTreeSet<ApplianceId>>,
}

/// The manifests that a plan leads to: made beside the director, which only takes them over.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// Those that it began with, and those that are in the ledger and were not made yet.
    known: Manifests,
    /// The same with those that it changes.
    all: Manifests,
    /// The entries of these.
    ledger: Ledger,
}

impl Base {
    /// True of an appliance that reads no trust document.
    pub(crate) fn needs_keys(&self, id: &ApplianceId) -> bool {
        self.need_keys.contains(id)
    }

    /// True of an appliance that ever had a manifest.
    pub(crate) fn has(&self, id: &ApplianceId) -> bool {
        self.manifests.entries.contains_key(id)
    }

    /// True if it has a manifest of another digest.
    pub(crate) fn is_another(&self, id: &ApplianceId, digest: Digest) -> bool {
        self.manifests.entries.get(id).is_some_and(|entry| entry.digest != digest)
    }

    /// No manifest changes.
    pub(crate) fn nothing(self) -> Draft {
        let Self { generation, manifests, .. } = self;
        let ledger = Ledger { generation, ..Ledger::default() };
        Draft { known: manifests.clone(), all: manifests, ledger }
    }

    /// Takes the manifests of a plan: those that differ from the ledger get the new generation,
    /// the others keep theirs. O(appliances).
    pub(crate) fn draft(
        self,
        planned: impl Iterator<Item = (Manifest, Digest)>,
        holds: &Holdings,
    ) -> Draft {
        let Self { generation, manifests: mut known, overtaken, need_keys: _ } = self;
        for (id, followed) in overtaken {
            if known.entries.get(&id).is_some_and(|entry| entry.generation < followed) {
                known.entries.remove(&id);
            }
        }
        let (mut entries, mut published, mut keyed) = (Names::default(), Vec::new(), 0);
        for (mut manifest, digest) in planned {
            let id = manifest.appliance.clone();
            keyed += usize::from(!manifest.trust.is_apart);
            match known.entries.get(&id) {
                Some(entry) if entry.digest == digest => {
                    if !known.published.contains_key(&id) {
                        manifest.generation = entry.generation;
                        known.published.insert(id, Arc::new(manifest));
                    }
                }
                Some(_) | None => {
                    manifest.generation = generation;
                    entries.insert(id.clone(), LedgerEntry { generation, digest });
                    published.push((id, Arc::new(manifest)));
                }
            }
        }
        let mut all = known.clone();
        all.entries.take_all(&entries);
        all.published.extend(published);
        (known.keyed, all.keyed) = (keyed.max(known.keyed), keyed);
        // Also where the manifest is the same: one of a release before kept no items.
        let is_known = |id: &ApplianceId, holds| known.holds.get(id) == Some(holds);
        let holds = holds.iter().filter(|(id, holds)| !is_known(id, holds));
        let holds = holds.map(|(id, holds)| (id.clone(), Arc::clone(holds))).collect();
        all.holds.take_all(&holds);
        let ledger = Ledger { generation, entries, holds, ..Ledger::default() };
        Draft { known, all, ledger }
    }
}

impl Manifests {
    fn forget(&mut self, id: &ApplianceId) {
        let gone = self.published.remove(id);
        if gone.is_some_and(|manifest| !manifest.trust.is_apart) {
            self.keyed = self.keyed.saturating_sub(1);
        }
        self.entries.remove(id);
        self.holds.remove(id);
    }
}

impl Draft {
    fn forget(&mut self, id: &ApplianceId) {
        self.known.forget(id);
        self.all.forget(id);
        self.ledger.entries.remove(id);
        self.ledger.holds.remove(id);
    }
}

impl Publisher {
    pub(crate) fn new(ledger: Ledger) -> Self {
        let Ledger { generation, entries, holds, expected: _, trust } = ledger;
        let manifests = Manifests { entries, holds, ..Manifests::default() };
        Self {
            generation,
            manifests,
            staged: None,
            gone: None,
            ahead: BTreeMap::new(),
            need_keys: Arc::default(),
            trust: trust::Publisher::new(trust),
        }
    }

    /// An appliance says whether it reads trust documents. True if it does not, and its manifest
    /// has no keys.
    pub(crate) fn says_of_trust(&mut self, id: &ApplianceId, reads: bool) -> bool {
        if self.need_keys.contains(id) == reads {
            let all = Arc::make_mut(&mut self.need_keys);
            if reads {
                all.remove(id)
            } else {
                all.insert(id.clone())
            };
        }
        !reads && self.manifest(id).is_some_and(|manifest| manifest.trust.is_apart)
    }

    /// True if a manifest has keys in it, or should have.
    pub(crate) fn are_keys_in_manifests(&self) -> bool {
        0 < self.manifests.keyed || !self.need_keys.is_empty()
    }

    /// What storage has once everything was stored.
    #[cfg(test)]
    pub(crate) fn durable(&self) -> Ledger {
        let (generation, entries) = (self.generation, self.manifests.entries.clone());
        Ledger { generation, entries, trust: self.trust.entry(), ..Ledger::default() }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.generation
    }

    pub(crate) fn manifest(&self, id: &ApplianceId) -> Option<Arc<Manifest>> {
        self.manifests.published.get(id).cloned()
    }

    /// Generation of the newest manifest of an appliance, also before it is known again after a
    /// restart; none if it never had one.
    pub(crate) fn newest(&self, id: &ApplianceId) -> Option<Generation> {
        self.manifests.entries.get(id).map(|entry| entry.generation)
    }

    /// A plan begins, while nothing is staged. Until it comes, appliances only go: what it makes of
    /// this is right when it comes, and no other generation is given meanwhile. It goes above all
    /// that is followed and not known here. O(appliances that are ahead).
    pub(crate) fn begin(&mut self, now_unix: UnixSeconds) -> Base {
        assert!(self.staged.is_none(), "what is staged comes first");
        assert!(self.gone.is_none(), "one plan is made at a time");
        self.gone = Some(Vec::new());
        let overtaken = std::mem::take(&mut self.ahead);
        let followed = overtaken.values().copied().max().unwrap_or_default();
        let generation = next_generation(self.generation.max(followed), now_unix);
        assert!(followed < generation, "whoever is ahead is overtaken");
        let need_keys = Arc::clone(&self.need_keys);
        Base { generation, manifests: self.manifests.clone(), overtaken, need_keys }
    }

    /// A plan has come. What it changes is staged: the ledger to be stored. And what is not needed
    /// any more. O(appliances that are gone since it began).
    pub(crate) fn stage(&mut self, now: Instant, mut draft: Draft) -> (Option<Ledger>, Manifests) {
        assert!(self.staged.is_none(), "a plan begins when nothing is staged");
        assert!(self.generation < draft.ledger.generation, "no generation is used twice");
        for id in self.gone.take().expect("it has begun") {
            draft.forget(&id);
        }
        let Draft { known, all: manifests, ledger } = draft;
        let spent = std::mem::replace(&mut self.manifests, known);
        if ledger.entries.is_empty() && ledger.holds.is_empty() {
            return (None, spent);
        }
        let staged = Staged { ledger, manifests, said_at: now };
        (Some(self.staged.insert(staged).ledger.clone()), spent)
    }

    /// Publishes the manifests staged under `generation`, if they are: what is not needed any more.
    /// O(1).
    pub(crate) fn stored(&mut self, generation: Generation) -> Option<Manifests> {
        let is_it = |staged: &mut Staged| staged.ledger.generation == generation;
        let staged = self.staged.take_if(is_it)?;
        assert!(self.generation < generation, "generations grow");
        self.generation = generation;
        Some(std::mem::replace(&mut self.manifests, staged.manifests))
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
        self.newest(id).unwrap_or_default() < followed
    }

    pub(crate) fn is_staged(&self) -> bool {
        self.staged.is_some()
    }

    /// The appliance follows a newer manifest than its newest here: the next plan gives it another
    /// above that. Nothing is done if the number is nonsense.
    pub(crate) fn overtake(
        &mut self,
        id: &ApplianceId,
        followed: Generation,
        now_unix: UnixSeconds,
    ) {
        let most = self.generation.0.max(now_unix.0).saturating_add(OVERTAKEN_MAX);
        if followed.0 <= most {
            let known = self.ahead.entry(id.clone()).or_default();
            *known = followed.max(*known);
        }
    }

    /// True if it follows a newer manifest than its newest here, and no plan has gone above that.
    pub(crate) fn is_to_be_overtaken(&self, id: &ApplianceId) -> bool {
        self.ahead.get(id).is_some_and(|followed| self.newest(id) < Some(*followed))
    }

    /// True if a plan has to be made for those that are ahead. One that was in the making when they
    /// said so may have gone above some: they are forgotten. O(appliances that are ahead).
    pub(crate) fn has_to_overtake(&mut self) -> bool {
        let entries = &self.manifests.entries;
        let newest = |id: &ApplianceId| entries.get(id).map(|entry| entry.generation);
        self.ahead.retain(|id, followed| newest(id) < Some(*followed));
        !self.ahead.is_empty()
    }

    pub(crate) fn forget(&mut self, id: &ApplianceId) {
        self.manifests.forget(id);
        self.ahead.remove(id);
        if self.need_keys.contains(id) {
            Arc::make_mut(&mut self.need_keys).remove(id);
        }
        // The generation itself stays: it may be durable by now.
        if let Some(staged) = &mut self.staged {
            staged.manifests.forget(id);
            staged.ledger.entries.remove(id);
            staged.ledger.holds.remove(id);
        }
        self.gone.as_mut().into_iter().for_each(|gone| gone.push(id.clone()));
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
    if manifest.trust.is_apart {
        put(b"trust apart");
    }
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
    for (version, numbers) in &manifest.numbers {
        // Which of its files a part has follows from their paths.
        put(if numbers.part.is_none() { b"number" } else { b"number of a part" });
        put(version.as_str().as_bytes());
        put(&numbers.first.to_le_bytes());
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

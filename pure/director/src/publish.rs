//! Manifests and their generations: a changed manifest gets a new number, any other keeps its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation, SiteId};
use model::manifest::{AssetVersion, Manifest, SiteMember, Trust};
use model::topology::Appliance;
use model::units::{BitsPerSecond, Instant, UnixSeconds};

use crate::SAY_AGAIN_AFTER;
use crate::catalog::Version;
use crate::desired::Desired;

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
    pub entries: BTreeMap<ApplianceId, LedgerEntry>,
}

/// Stages, and once they are durable publishes, manifests.
#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    ledger: Ledger,
    published: BTreeMap<ApplianceId, Arc<Manifest>>,
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
        Self { ledger, published: BTreeMap::new(), staged: None }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.ledger.generation
    }

    pub(crate) fn manifest(&self, id: &ApplianceId) -> Option<Arc<Manifest>> {
        self.published.get(id).cloned()
    }

    /// Works out all manifests. Those that differ from the ledger are staged under a generation
    /// that was never used; the ledger to be stored is returned.
    pub(crate) fn stage(
        &mut self,
        now: Instant,
        now_unix: UnixSeconds,
        desired: &Desired,
        placement: &placement::Placement,
    ) -> Option<Ledger> {
        let staged_generation = self.staged.take().map(|staged| staged.ledger.generation);
        let newest = self.ledger.generation.max(staged_generation.unwrap_or_default());
        // Also above all that were given out after a backup was made from which this was restored.
        let generation = newest.next().max(Generation(now_unix.0));
        assert!(newest < generation, "no generation is used twice");
        let mut staged = Staged {
            ledger: Ledger { generation, entries: BTreeMap::new() },
            manifests: BTreeMap::new(),
            said_at: now,
        };
        let versions = wanted_order(desired);
        let order: BTreeMap<&AssetVersionId, usize> =
            versions.iter().enumerate().map(|(at, version)| (version.id(), at)).collect();
        let holders = Holders::new(desired, placement);
        let mut parts = Parts::default();
        for (id, held) in &placement.holdings {
            let site = holders.site(id);
            let siblings = holders.beside(id, held, !site.is_empty());
            let mut held: Vec<usize> =
                held.iter().filter_map(|version| order.get(version).copied()).collect();
            held.sort_unstable();
            let most = desired.bitrate_max(id);
            let held: Vec<_> = held.into_iter().map(|at| parts.of(versions[at], most)).collect();
            // Numbers are those of all files of a version.
            let has_part = held.iter().any(|version| parts.is_one(version));
            let mut manifest = Manifest {
                appliance: id.clone(),
                generation,
                token_keys: desired.token_keys.clone(),
                trust: Trust {
                    issued: UnixSeconds(0), // who signs it says when
                    signing_keys: desired.signing_keys.clone(),
                    revoked: desired.revoked.clone(),
                },
                numbers: if has_part { BTreeMap::new() } else { numbers_of(&held, desired) },
                versions: held,
                siblings,
                site,
            };
            let digest = digest(&manifest, &parts);
            match self.ledger.entries.get(id) {
                Some(entry) if entry.digest == digest => {
                    manifest.generation = entry.generation;
                    self.published.entry(id.clone()).or_insert_with(|| Arc::new(manifest));
                }
                Some(_) | None => {
                    staged.ledger.entries.insert(id.clone(), LedgerEntry { generation, digest });
                    staged.manifests.insert(id.clone(), Arc::new(manifest));
                }
            }
        }
        if staged.manifests.is_empty() {
            // The number of an earlier stage may be stored by now: it must not be used again.
            self.ledger.generation = newest;
            return None;
        }
        Some(self.staged.insert(staged).ledger.clone())
    }

    /// Publishes the manifests staged under `generation`, if they are still wanted.
    pub(crate) fn stored(&mut self, generation: Generation) {
        let is_it = |staged: &mut Staged| staged.ledger.generation == generation;
        let Some(staged) = self.staged.take_if(is_it) else { return };
        assert!(self.ledger.generation < generation, "generations grow");
        let is_of_it = |manifest: &Arc<Manifest>| manifest.generation == generation;
        assert!(staged.manifests.values().all(is_of_it), "one stage is one generation");
        self.ledger.generation = generation;
        self.ledger.entries.extend(staged.ledger.entries);
        self.published.extend(staged.manifests);
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
    }
}

/// The appliances that should hold a version, site by site, and those with service addresses.
/// O(versions held by all appliances) to make.
struct Holders<'a> {
    desired: &'a Desired,
    by_site: BTreeMap<&'a SiteId, BTreeMap<&'a AssetVersionId, Vec<&'a ApplianceId>>>,
    members: BTreeMap<&'a SiteId, Vec<SiteMember>>,
}

impl<'a> Holders<'a> {
    fn new(desired: &'a Desired, placement: &'a placement::Placement) -> Self {
        let mut by_site: BTreeMap<_, BTreeMap<_, Vec<_>>> = BTreeMap::new();
        for (id, held) in &placement.holdings {
            let Some(registered) = desired.appliances.get(id) else { continue };
            let site = by_site.entry(&registered.appliance.site).or_default();
            for version in held {
                site.entry(version).or_default().push(id);
            }
        }
        let mut members: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for Appliance { id, site, addresses, .. } in
            desired.appliances.values().map(|of| &of.appliance)
        {
            if !addresses.is_empty() {
                let member = SiteMember { id: id.clone(), addresses: addresses.clone() };
                members.entry(site).or_default().push(member);
            }
        }
        Self { desired, by_site, members }
    }

    /// The others of its site that should hold a version: for every version that an appliance
    /// should hold; with `all`, for every version of its site, since players who come by an address
    /// that it took over may ask for any.
    fn beside(
        &self,
        id: &ApplianceId,
        held: &[AssetVersionId],
        all: bool,
    ) -> BTreeMap<AssetVersionId, Vec<ApplianceId>> {
        let site = self.desired.appliances.get(id).map(|of| &of.appliance.site);
        let Some(site) = site.and_then(|site| self.by_site.get(site)) else {
            return BTreeMap::new();
        };
        let others = |version: &AssetVersionId| {
            let ids = site.get(version)?.iter().filter(|other| **other != id);
            let ids: Vec<ApplianceId> = ids.take(SIBLINGS_MAX).copied().cloned().collect();
            (!ids.is_empty()).then(|| (version.clone(), ids))
        };
        match all {
            true => site.keys().filter_map(|version| others(version)).collect(),
            false => held.iter().filter_map(others).collect(),
        }
    }

    /// The appliances of its site that have service addresses.
    fn site(&self, id: &ApplianceId) -> Vec<SiteMember> {
        let site = self.desired.appliances.get(id).map(|of| &of.appliance.site);
        site.and_then(|site| self.members.get(site)).cloned().unwrap_or_default()
    }
}

/// More siblings of a version than this are not named: one would do.
const SIBLINGS_MAX: usize = 4;

/// All kept versions, most wanted first: current ones before older ones, the newest first.
fn wanted_order(desired: &Desired) -> Vec<&Arc<Version>> {
    let count = usize::try_from(desired.policy.versions_kept).unwrap_or(usize::MAX);
    let mut kept = desired.catalog.kept(count);
    kept.sort_by_key(|(age, version)| (*age, std::cmp::Reverse(version.sequence)));
    kept.into_iter().map(|(_, version)| version).collect()
}

/// Versions without their upper renditions, each made once for all manifests.
#[derive(Default)]
pub(crate) struct Parts {
    /// By the version and the most that a rendition may take; none where that is all of it.
    made: BTreeMap<(AssetVersionId, BitsPerSecond), Option<Arc<AssetVersion>>>,
}

impl Parts {
    /// The version with the renditions that take at most so much.
    pub(crate) fn of(
        &mut self,
        version: &Arc<Version>,
        most: Option<BitsPerSecond>,
    ) -> Arc<AssetVersion> {
        let Some(most) = most else { return Arc::clone(&version.files) };
        let made = self.made.entry((version.id().clone(), most));
        let part = made.or_insert_with(|| version.within(Some(most)).map(Arc::new));
        part.as_ref().map_or_else(|| Arc::clone(&version.files), Arc::clone)
    }

    fn is_one(&self, version: &Arc<AssetVersion>) -> bool {
        let of_it = self.made.range((version.id.clone(), BitsPerSecond(0))..);
        let of_it = of_it.take_while(|((id, _), _)| *id == version.id);
        of_it.filter_map(|(_, part)| part.as_ref()).any(|part| Arc::ptr_eq(part, version))
    }
}

/// The first file of each of these versions, where all have durable numbers: an appliance tells
/// numbers of all files, or of none.
fn numbers_of(held: &[Arc<AssetVersion>], desired: &Desired) -> BTreeMap<AssetVersionId, u32> {
    let number = |version: &Arc<AssetVersion>| {
        let first = desired.catalog.version(&version.id)?.first_file?;
        Some((version.id.clone(), first))
    };
    held.iter().map(number).collect::<Option<_>>().unwrap_or_default()
}

/// Covers all that can differ between two manifests of one appliance. The files of a version
/// cannot, its name is derived from them, but for one of which it has a part.
fn digest(manifest: &Manifest, parts: &Parts) -> Digest {
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
        if parts.is_one(version) {
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

//! What manifests cost when the catalogue changes, whole and as differences would.
//!
//! ```text
//! world ──> first plan ──> a version more ──> plan ──> manifests that differ ──┬─> whole, short
//!                     └──> a version withdrawn ──> the same                    └─> a difference
//! ```
//!
//! Each manifest that differs is made, written and signed as control does it for whoever asks, and
//! beside it a difference with what would have to be in it: the versions that are gone, those that
//! came with their places, numbers and sources, the siblings that are others, and the digest of the
//! result, which the plan knows. The product has no differences; what they would cost decides
//! whether it should: docs/decisions/2026-11-26-short-manifests.md.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use anyhow::{Context, Result};
use director::{Change, Reason, Withdrawal};
use identity::signing::SigningKey;
use model::id::{ApplianceId, AssetVersionId, DocumentId};
use model::manifest::{AssetVersion, Manifest};
use model::units::{Bytes, UnixSeconds};
use serde::Serialize;
use tracing::info;
use wire::convert::{document_out, short_manifest_out};
use wire::v1::signed::Kind;

use super::world::{self, World};
use super::{Stand, gigabytes, since};

/// What `lab director --manifests` tells.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    appliances: u32,
    versions_per_appliance: f64,
    /// A manifest, short and signed: its length, and CPU time to make it and to sign it.
    whole_bytes: f64,
    whole_us: f64,
    /// Memory of a manifest that is kept beside the newest one.
    kept_bytes: f64,
    added: Changed,
    withdrawn: Changed,
}

/// Means over changes of one kind.
#[derive(Debug, Default, Serialize)]
struct Changed {
    changes: u32,
    /// Manifests that differ; and of these, those that the version comes to or goes from.
    manifests: f64,
    of_holders: f64,
    /// All of them whole, as they are fetched now: bytes, and CPU time to make and sign.
    whole_bytes: f64,
    whole_cpu_s: f64,
    /// All of them as differences.
    difference_bytes: f64,
    difference_cpu_s: f64,
    /// Versions that came to a manifest, and the bytes of their documents, which are fetched in
    /// either form.
    came: f64,
    document_bytes: f64,
}

/// A manifest told by that before it.
#[derive(Serialize)]
struct Difference<'a> {
    format: u32,
    appliance: &'a str,
    from: u64,
    generation: u64,
    /// Of the result.
    digest: String,
    trust: u64,
    issued_unix_s: u64,
    gone: Vec<&'a str>,
    came: Vec<Came<'a>>,
    /// Those that are others, by the version; empty for none any more.
    siblings: BTreeMap<&'a str, Vec<&'a str>>,
}

#[derive(Serialize)]
struct Came<'a> {
    /// Its place among all, the most wanted first.
    at: usize,
    id: &'a str,
    document: String,
    sources: &'a [String],
    number: Option<u32>,
}

/// Signs, and knows the documents of versions, each hashed once.
struct Control {
    key: SigningKey,
    documents: HashMap<AssetVersionId, (DocumentId, usize)>,
}

type All = BTreeMap<ApplianceId, Arc<Manifest>>;

/// Copies of all manifests whose memory is measured.
const COPIES: u32 = 10;

pub(super) fn run(world: &World, stand: &mut Stand<'_>, changes: u32) -> Result<Report> {
    let mut control =
        Control { key: SigningKey::from_seed("s1", &[5; 32]), documents: HashMap::new() };
    let all = stand.manifests()?;
    control.learn(&all);
    let count = f64::from(world.size.appliances);
    let versions: usize = all.values().map(|manifest| manifest.versions.len()).sum();
    let begun = rig::cpu::of_this_thread()?;
    let bytes: usize = all.values().map(|manifest| control.whole(manifest).len()).sum();
    let whole_us = since(begun)? * 1e6 / count;
    let mut report = Report {
        appliances: world.size.appliances,
        versions_per_appliance: number(versions)? / count,
        whole_bytes: number(bytes)? / count,
        whole_us,
        kept_bytes: kept_bytes(&all)?,
        added: Changed::default(),
        withdrawn: Changed::default(),
    };
    let mut before = all;
    for n in 0..changes {
        rig::stop::check()?;
        let version = world::new_version(world, n)?;
        let id = version.id().clone();
        info!(%id, "a version more");
        stand.replanned(Change::Version(version))?;
        before = report.added.take(&mut control, before, stand.manifests()?, &id)?;
    }
    for n in 0..changes {
        rig::stop::check()?;
        // The oldest are placed first, so that each site has them.
        let version = &world.versions[usize::try_from(n * 8)?].files;
        info!(id = %version.id, "a version withdrawn");
        let versions = Arc::new([(version.id.clone(), version.asset.clone())].into());
        let (reason, receipts) = (Reason::Operator, BTreeMap::new());
        let id = u64::from(n) + 1;
        let withdrawal = Withdrawal { id, at: UnixSeconds(1), reason, versions, receipts };
        stand.replanned(Change::Withdrawn(withdrawal))?;
        before = report.withdrawn.take(&mut control, before, stand.manifests()?, &version.id)?;
    }
    report.added.divide();
    report.withdrawn.divide();
    Ok(report)
}

impl Stand<'_> {
    /// The newest manifest of each appliance.
    fn manifests(&self) -> Result<All> {
        let manifest = |id: &ApplianceId| {
            let manifest = self.director.manifest(id)?.context("it has a manifest")?;
            Ok((id.clone(), manifest))
        };
        self.names.iter().map(manifest).collect()
    }
}

impl Changed {
    /// Counts what a change of this version made of manifests; the newest ones.
    fn take(
        &mut self,
        control: &mut Control,
        before: All,
        after: All,
        version: &AssetVersionId,
    ) -> Result<All> {
        control.learn(&after);
        let differ = || {
            let pairs = before.iter().zip(&after).map(|((_, before), (_, after))| (before, after));
            pairs.filter(|(before, after)| before.generation != after.generation)
        };
        self.changes += 1;
        self.manifests += number(differ().count())?;
        let has = |manifest: &Manifest| manifest.versions.iter().any(|of| of.id == *version);
        let holders = differ().filter(|(before, after)| has(before) != has(after));
        self.of_holders += number(holders.count())?;
        let begun = rig::cpu::of_this_thread()?;
        let bytes: usize = differ().map(|(_, after)| control.whole(after).len()).sum();
        self.whole_cpu_s += since(begun)?;
        self.whole_bytes += number(bytes)?;
        let begun = rig::cpu::of_this_thread()?;
        let bytes: usize =
            differ().map(|(before, after)| control.difference(before, after).len()).sum();
        self.difference_cpu_s += since(begun)?;
        self.difference_bytes += number(bytes)?;
        for (before, after) in differ() {
            for (_, came) in came(before, after) {
                self.came += 1.0;
                self.document_bytes += number(control.documents[&came.id].1)?;
            }
        }
        Ok(after)
    }

    fn divide(&mut self) {
        let changes = f64::from(self.changes.max(1));
        for sum in [
            &mut self.manifests,
            &mut self.of_holders,
            &mut self.whole_bytes,
            &mut self.whole_cpu_s,
            &mut self.difference_bytes,
            &mut self.difference_cpu_s,
            &mut self.came,
            &mut self.document_bytes,
        ] {
            *sum /= changes;
        }
    }
}

impl Control {
    fn learn(&mut self, all: &All) {
        for version in all.values().flat_map(|manifest| &manifest.versions) {
            self.documents.entry(version.id.clone()).or_insert_with(|| {
                let document = document_out(version);
                (DocumentId::of(&document), document.len())
            });
        }
    }

    fn whole(&self, manifest: &Manifest) -> Vec<u8> {
        let wire = short_manifest_out(manifest, |version| self.documents[&version.id].0);
        let payload = serde_json::to_vec(&wire).expect("a manifest becomes JSON");
        self.key.sign(Kind::Manifest, &payload)
    }

    fn difference(&self, before: &Manifest, after: &Manifest) -> Vec<u8> {
        let there: BTreeSet<_> = after.versions.iter().map(|version| &version.id).collect();
        let gone = before.versions.iter().map(|version| &version.id);
        let came = came(before, after).map(|(at, version)| Came {
            at,
            id: version.id.as_str(),
            document: self.documents[&version.id].0.to_string(),
            sources: &version.sources,
            number: after.numbers.get(&version.id).map(|of| of.first),
        });
        let others = after.siblings.iter().filter(|(id, of)| before.siblings.get(*id) != Some(of));
        let lost = before.siblings.keys().filter(|id| !after.siblings.contains_key(*id));
        let lost = lost.filter(|id| there.contains(id)).map(|id| (id.as_str(), Vec::new()));
        let difference = Difference {
            format: 3,
            appliance: after.appliance.as_str(),
            from: before.generation.0,
            generation: after.generation.0,
            digest: "0".repeat(64),
            trust: after.trust.generation.0,
            issued_unix_s: after.trust.issued.0,
            gone: gone.filter(|id| !there.contains(id)).map(AssetVersionId::as_str).collect(),
            came: came.collect(),
            siblings: others.map(|(id, of)| (id.as_str(), names(of))).chain(lost).collect(),
        };
        let payload = serde_json::to_vec(&difference).expect("a difference becomes JSON");
        self.key.sign(Kind::Manifest, &payload)
    }
}

fn names(of: &[ApplianceId]) -> Vec<&str> {
    of.iter().map(ApplianceId::as_str).collect()
}

/// The versions that came, each with its place.
fn came<'a>(
    before: &Manifest,
    after: &'a Manifest,
) -> impl Iterator<Item = (usize, &'a Arc<AssetVersion>)> {
    let known: BTreeSet<_> = before.versions.iter().map(|version| version.id.clone()).collect();
    after.versions.iter().enumerate().filter(move |(_, version)| !known.contains(&version.id))
}

/// What a manifest takes of memory, its versions left out: they are the catalogue's.
fn kept_bytes(all: &All) -> Result<f64> {
    let resident = || rig::site::resident(std::process::id()).map(|(now, _)| now);
    let before = resident()?;
    let copies: Vec<Manifest> =
        (0..COPIES).flat_map(|_| all.values()).map(|manifest| Manifest::clone(manifest)).collect();
    let bytes = resident()?.saturating_sub(before);
    info!(gb = gigabytes(bytes), copies = copies.len(), "manifests are copied");
    Ok(number(usize::try_from(bytes)?)? / number(copies.len())?)
}

/// A count as a figure.
fn number(count: usize) -> Result<f64> {
    let Bytes(count) = Bytes::of(count);
    let (millions, rest) = (count / 1_000_000, count % 1_000_000);
    Ok(f64::from(u32::try_from(millions)?) * 1e6 + f64::from(u32::try_from(rest)?))
}

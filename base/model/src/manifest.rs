//! A manifest: the content that an appliance should hold. Desired state: the appliance closes the
//! gap, nobody orders it to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::id::{ApplianceId, AssetId, AssetVersionId, DocumentId, Generation, ObjectId};
use crate::number::NumberSet;
use crate::units::{BitsPerSecond, Bytes, UnixSeconds};

/// All that one appliance should hold and needs in order to serve it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    pub appliance: ApplianceId,
    /// Grows with every change; an appliance refuses one that is not newer than its own.
    pub generation: Generation,
    /// Keys that playback tokens may be signed with. Public keys only.
    pub token_keys: Vec<TokenKey>,
    /// The keys whose signatures count.
    pub trust: Trust,
    /// The asset versions to hold, most wanted first: fill goes in this order.
    pub versions: Vec<Arc<AssetVersion>>,
    /// The numbers of each version's files. None from a control that reads no inventory by number.
    pub numbers: BTreeMap<AssetVersionId, FileNumbers>,
    /// The siblings in the same site that should hold a version, where any should.
    pub siblings: BTreeMap<AssetVersionId, Vec<ApplianceId>>,
    /// The appliances of its site that have service addresses, itself among them, by name.
    pub site: Vec<SiteMember>,
}

/// The numbers of a version's files: one range, in the order of their objects' ids, each object
/// once.
#[derive(Clone, Debug, PartialEq)]
pub struct FileNumbers {
    pub first: u32,
    /// Where an appliance should hold a part of the version: its files, counted from 0 in the whole
    /// range. None for all of it.
    pub part: Option<Arc<NumberSet>>,
}

impl Eq for FileNumbers {}

impl From<u32> for FileNumbers {
    fn from(first: u32) -> Self {
        Self { first, part: None }
    }
}

impl FileNumbers {
    /// The numbers of so many objects, in the order of their ids, and the end of the range. None if
    /// they would not fit, or if the part has another count.
    fn of(&self, count: usize) -> Option<(Vec<u32>, u32)> {
        let count = u32::try_from(count).ok()?;
        let Some(part) = &self.part else {
            let end = self.first.checked_add(count)?;
            return Some(((self.first..end).collect(), end));
        };
        if part.len() != u64::from(count) {
            return None;
        }
        let last = part.max().unwrap_or_default();
        let end = self.first.checked_add(last)?.checked_add(1)?;
        Some((part.iter().map(|at| self.first + at).collect(), end))
    }
}

/// Objects with the numbers of their files, sorted.
pub type Numbered = Vec<(ObjectId, u32)>;

/// A manifest that names its versions by their documents, which are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// Without versions.
    pub manifest: Manifest,
    /// Most wanted first.
    pub listed: Vec<Listed>,
}

/// A version in a short manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub id: AssetVersionId,
    pub document: DocumentId,
    /// As in [`AssetVersion`].
    pub sources: Vec<String>,
}

/// Why a short manifest does not become a whole one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShortError {
    #[error("the document {document} of {version} is not there")]
    Missing { version: AssetVersionId, document: DocumentId },
    #[error("the document {document} is of {found}, and the manifest says {version}")]
    Other { document: DocumentId, version: AssetVersionId, found: AssetVersionId },
}

impl Short {
    /// The whole manifest, with what documents say, whatever the sources there. O(versions), and
    /// O(files) of each that is shared and has other sources now.
    pub fn whole(
        self,
        mut said: impl FnMut(&DocumentId) -> Option<Arc<AssetVersion>>,
    ) -> Result<Manifest, ShortError> {
        let Self { mut manifest, listed } = self;
        let version = |Listed { id, document, sources }| {
            let Some(mut version) = said(&document) else {
                return Err(ShortError::Missing { version: id, document });
            };
            if version.id != id {
                let found = version.id.clone();
                return Err(ShortError::Other { document, version: id, found });
            }
            if version.sources != sources {
                Arc::make_mut(&mut version).sources = sources;
            }
            Ok(version)
        };
        manifest.versions = listed.into_iter().map(version).collect::<Result<_, _>>()?;
        Ok(manifest)
    }
}

/// An appliance whose service addresses a sibling takes over while it cannot serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteMember {
    pub id: ApplianceId,
    pub addresses: Vec<IpAddr>,
}

/// Whom an appliance believes, beside the authority that it was enrolled with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// Grows with every change of what all appliances share. 0 where a control said it that has no
    /// trust documents, or to an appliance that reads none.
    pub generation: Generation,
    /// Of a manifest: the rest is not here, but in the trust document of this generation or of a
    /// newer one, and so are the keys for tokens.
    pub is_apart: bool,
    pub issued: UnixSeconds,
    /// Keys that manifests may be signed with.
    pub signing_keys: Vec<TokenKey>,
    /// Serial numbers, in hex, of certificates that are refused though they have not expired.
    pub revoked: BTreeSet<String>,
}

/// What all appliances share, in a document of its own: signed once for all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustDocument {
    /// Keys that playback tokens may be signed with.
    pub token_keys: Vec<TokenKey>,
    pub trust: Trust,
}

impl TrustDocument {
    /// True if it counts in place of what stands in a manifest: where that has nothing, or has what
    /// was signed before.
    pub fn counts_in(&self, manifest: &Manifest) -> bool {
        let of = &manifest.trust;
        match of.is_apart || of.generation != Generation(0) {
            true => of.generation <= self.trust.generation,
            false => of.issued <= self.trust.issued,
        }
    }
}

/// A public key, for playback tokens or for manifests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKey {
    /// The name by which a token or a manifest refers to the key.
    pub kid: String,
    /// Ed25519 public key (RFC 8032).
    pub public_key: [u8; 32],
}

/// One immutable packaging of an asset: a map from path to object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssetVersion {
    /// Its name in media URLs.
    pub id: AssetVersionId,
    /// The asset it is a version of.
    pub asset: AssetId,
    /// Base URLs, ending in `/`, where `base + path` gives the file's bytes; best first.
    pub sources: Vec<String>,
    /// When the version was ingested: the `Last-Modified` of all its files, on every appliance.
    pub modified: UnixSeconds,
    /// Viewers whose players do not name a bitrate are sent no faster than this once they
    /// have a buffer's worth. None for as fast as it goes.
    pub pace: Option<BitsPerSecond>,
    /// Path (relative, `/`-separated, not percent-encoded) to file.
    pub files: BTreeMap<String, File>,
}

impl Manifest {
    /// The same with what a trust document says.
    #[must_use]
    pub fn with_trust(self, document: &TrustDocument) -> Self {
        let TrustDocument { token_keys, trust } = document.clone();
        Self { token_keys, trust, ..self }
    }

    /// All its objects with their files' numbers, in the order of the ids: an object has one in
    /// each version that has it. None if a version has no numbers, if they would not fit, or if two
    /// versions would have the same.
    pub fn numbered(&self) -> Option<Numbered> {
        let (mut all, mut ranges) = (Vec::new(), Vec::with_capacity(self.versions.len()));
        for version in &self.versions {
            let (numbers, range) = self.numbers_of(version)?;
            ranges.push(range);
            all.extend(numbers);
        }
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| matches!(pair, [(_, end), (next, _)] if next < end)) {
            return None;
        }
        all.sort_unstable();
        Some(all)
    }

    /// The objects of a version with their files' numbers, in the order of the ids, and the range
    /// of these. None if it has no numbers, or if they would not fit.
    pub fn numbers_of(&self, version: &AssetVersion) -> Option<(Numbered, (u32, u32))> {
        let of_version = self.numbers.get(&version.id)?;
        let objects: BTreeSet<ObjectId> = version.files.values().map(|file| file.object).collect();
        let (numbers, end) = of_version.of(objects.len())?;
        Some((objects.into_iter().zip(numbers).collect(), (of_version.first, end)))
    }
}

/// One file of an asset version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The object with its bytes.
    pub object: ObjectId,
    pub len: Bytes,
    /// `Content-Type` to serve it with: one of a few, which files share.
    pub content_type: Arc<str>,
}

/// Content types, each in memory once: ten million files have a dozen.
#[derive(Clone, Debug, Default)]
pub struct ContentTypes(BTreeSet<Arc<str>>);

impl ContentTypes {
    /// The one that says this.
    pub fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let new: Arc<str> = text.into();
        self.0.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(firsts: [u32; 2]) -> Manifest {
        let version = |name: &str, objects: [u8; 3]| {
            let file = |n: u8| File {
                object: ObjectId([n; 32]),
                len: Bytes(1),
                content_type: "video/mp4".into(),
            };
            Arc::new(AssetVersion {
                id: name.parse().unwrap(),
                asset: "film".parse().unwrap(),
                sources: Vec::new(),
                modified: UnixSeconds(0),
                pace: None,
                files: objects.map(|n| (n.to_string(), file(n))).into(),
            })
        };
        let versions = vec![version("film-1", [1, 2, 3]), version("film-2", [3, 4, 5])];
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: Vec::new(),
            trust: Trust::default(),
            numbers: versions
                .iter()
                .map(|version| version.id.clone())
                .zip(firsts.map(FileNumbers::from))
                .collect(),
            versions,
            siblings: BTreeMap::new(),
            site: Vec::new(),
        }
    }

    #[test]
    fn a_short_manifest_becomes_whole_with_its_documents_and_its_own_sources() {
        let whole = manifest([700, 703]);
        let [one, two] = [1, 2].map(|n| DocumentId([n; 32]));
        let sources = vec!["https://origin.example/".to_owned()];
        let listed = |document, version: &str| Listed {
            id: version.parse().unwrap(),
            document,
            sources: sources.clone(),
        };
        let short = |listed: Vec<Listed>| {
            let manifest = Manifest { versions: Vec::new(), ..whole.clone() };
            Short { manifest, listed }
        };
        let said = BTreeMap::from([
            (one, Arc::clone(&whole.versions[0])),
            (two, Arc::clone(&whole.versions[1])),
        ]);
        let said = |id: &DocumentId| said.get(id).cloned();
        let made = short(vec![listed(two, "film-2"), listed(one, "film-1")]).whole(said).unwrap();
        let names: Vec<_> = made.versions.iter().map(|version| version.id.as_str()).collect();
        assert_eq!(names, ["film-2", "film-1"]);
        assert_eq!(made.versions[1].files, whole.versions[0].files);
        assert!(made.versions.iter().all(|version| version.sources == sources));
        let three = DocumentId([3; 32]);
        let missing = ShortError::Missing { version: "film-1".parse().unwrap(), document: three };
        assert_eq!(short(vec![listed(three, "film-1")]).whole(said), Err(missing));
        let error = short(vec![listed(two, "film-1")]).whole(said).unwrap_err().to_string();
        assert!(error.ends_with("is of film-2, and the manifest says film-1"), "{error}");
    }

    #[test]
    fn a_trust_document_counts_where_the_manifest_has_nothing_newer() {
        let check = |is_apart, generation, issued, wanted| {
            let (generation, issued) = (Generation(generation), UnixSeconds(issued));
            let trust = Trust { generation, is_apart, issued, ..Trust::default() };
            let of = Manifest { trust, ..manifest([700, 703]) };
            let (generation, issued) = (Generation(7), UnixSeconds(100));
            let trust = Trust { generation, issued, ..Trust::default() };
            let document = TrustDocument { token_keys: Vec::new(), trust };
            assert_eq!(document.counts_in(&of), wanted, "{of:?}");
            assert_eq!(of.with_trust(&document).trust, document.trust);
        };
        check(true, 7, 101, true);
        check(true, 6, 101, true);
        check(true, 8, 99, false);
        check(false, 6, 101, true);
        check(false, 8, 99, false);
        // Of a control that has none.
        check(false, 0, 100, true);
        check(false, 0, 101, false);
    }

    #[test]
    fn numbers_that_two_files_would_have_are_none() {
        let numbers = |firsts| {
            let numbered = manifest(firsts).numbered()?;
            Some(numbered.into_iter().map(|(object, file)| (object.0[0], file)).collect::<Vec<_>>())
        };
        let all = vec![(1, 700), (2, 701), (3, 702), (3, 703), (4, 704), (5, 705)];
        assert_eq!(numbers([700, 703]), Some(all));
        assert!(numbers([703, 700]).is_some(), "in whatever order");
        for firsts in [[700, 700], [700, 702], [702, 700], [u32::MAX - 2, u32::MAX]] {
            assert_eq!(numbers(firsts), None, "{firsts:?}");
        }
        let part = |part: &[u32]| {
            let mut of = manifest([700, 710]);
            let numbers = of.numbers.first_entry().unwrap().into_mut();
            numbers.part = Some(Arc::new(part.iter().copied().collect()));
            of.numbered().map(|all| all.into_iter().map(|(_, file)| file).collect::<Vec<_>>())
        };
        assert_eq!(part(&[1, 4, 9]), Some(vec![701, 704, 709, 710, 711, 712]));
        assert_eq!(part(&[1, 4, 10]), None, "the next version begins there");
        assert_eq!(part(&[1, 4]), None, "it has three objects");
        assert_eq!(part(&[1, 4, u32::MAX]), None);
        let mut without = manifest([700, 703]);
        without.numbers.pop_first();
        assert_eq!(without.numbered(), None);
    }
}

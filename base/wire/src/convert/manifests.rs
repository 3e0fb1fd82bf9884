//! Manifests, trust documents and versions: wire types to nouns and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, DocumentId, Generation};
use model::limits::{CONTENT_TYPE_LEN_MAX, FILES_PER_VERSION_MAX, OBJECT_LEN_MAX};
use model::manifest::{self, FileNumbers};
use model::path::is_path;
use model::units::{BitsPerSecond, Bytes, UnixSeconds};

use super::{WireError, bitmap_in, bitmap_out};
use crate::v1;

/// A whole manifest off the wire. It names no buckets: those are control's.
pub fn manifest_in(wire: &v1::manifest::Manifest) -> Result<manifest::Manifest, WireError> {
    if wire.format != 1 {
        return Err(WireError::Format(wire.format));
    }
    any_manifest_in(wire)
}

/// A short manifest off the wire.
pub fn short_manifest_in(wire: &v1::manifest::Manifest) -> Result<manifest::Short, WireError> {
    if wire.format != 2 {
        return Err(WireError::Format(wire.format));
    }
    if !wire.versions.is_empty() {
        return Err(WireError::Both);
    }
    let listed = |listed: &v1::manifest::Listed| {
        let sources = listed.sources.clone();
        check_sources(&sources)?;
        Ok(manifest::Listed { id: listed.id.parse()?, document: listed.document.parse()?, sources })
    };
    Ok(manifest::Short {
        manifest: any_manifest_in(wire)?,
        listed: wire.listed.iter().map(listed).collect::<Result<_, WireError>>()?,
    })
}

fn any_manifest_in(wire: &v1::manifest::Manifest) -> Result<manifest::Manifest, WireError> {
    let of_listed = wire.listed.iter().flat_map(|listed| &listed.sources);
    let mut sources = wire.versions.iter().flat_map(|version| &version.sources).chain(of_listed);
    if let Some(bucket) = sources.find(|source| Bucket::of(source).is_some()) {
        return Err(WireError::Bucket(bucket.clone()));
    }
    Ok(manifest::Manifest {
        appliance: wire.appliance.parse()?,
        generation: Generation(wire.generation),
        token_keys: wire.token_keys.iter().map(token_key_in).collect::<Result<_, _>>()?,
        trust: manifest::Trust {
            generation: Generation(wire.trust.unwrap_or(0)),
            is_apart: wire.trust.is_some(),
            issued: UnixSeconds(wire.issued_unix_s),
            signing_keys: wire.signing_keys.iter().map(token_key_in).collect::<Result<_, _>>()?,
            revoked: wire.revoked.iter().cloned().collect(),
        },
        versions: wire.versions.iter().map(version_in).collect::<Result<_, _>>()?,
        numbers: numbers_in(wire)?,
        siblings: wire.siblings.iter().map(siblings_in).collect::<Result<_, _>>()?,
        site: wire.site.iter().map(site_member_in).collect::<Result<_, _>>()?,
    })
}

/// A trust document off the wire.
pub fn trust_in(wire: &v1::manifest::Trust) -> Result<manifest::TrustDocument, WireError> {
    if wire.format != 1 {
        return Err(WireError::Format(wire.format));
    }
    let keys = |keys: &[v1::manifest::TokenKey]| {
        keys.iter().map(token_key_in).collect::<Result<Vec<_>, WireError>>()
    };
    Ok(manifest::TrustDocument {
        token_keys: keys(&wire.token_keys)?,
        trust: manifest::Trust {
            generation: Generation(wire.generation),
            is_apart: false,
            issued: UnixSeconds(wire.issued_unix_s),
            signing_keys: keys(&wire.signing_keys)?,
            revoked: wire.revoked.iter().cloned().collect(),
        },
    })
}

/// A trust document for the wire.
pub fn trust_out(document: &manifest::TrustDocument) -> v1::manifest::Trust {
    let manifest::TrustDocument { token_keys, trust } = document;
    v1::manifest::Trust {
        format: 1,
        generation: trust.generation.0,
        issued_unix_s: trust.issued.0,
        token_keys: token_keys.iter().map(token_key_out).collect(),
        signing_keys: trust.signing_keys.iter().map(token_key_out).collect(),
        revoked: trust.revoked.iter().cloned().collect(),
    }
}

/// The manifest without what is in the trust document of this generation.
pub fn without_trust(
    wire: v1::manifest::Manifest,
    generation: Generation,
) -> v1::manifest::Manifest {
    let (token_keys, signing_keys, revoked) = (Vec::new(), Vec::new(), Vec::new());
    v1::manifest::Manifest { trust: Some(generation.0), token_keys, signing_keys, revoked, ..wire }
}

fn numbers_in(
    wire: &v1::manifest::Manifest,
) -> Result<BTreeMap<AssetVersionId, FileNumbers>, WireError> {
    let whole = wire.numbers.iter().map(|(version, first)| Ok((version.parse()?, (*first).into())));
    let mut numbers = whole.collect::<Result<BTreeMap<_, _>, WireError>>()?;
    for (version, v1::manifest::Part { first, files }) in &wire.parts {
        let part = bitmap_in("parts.files", files)?;
        if FILES_PER_VERSION_MAX < usize::try_from(part.len()).unwrap_or(usize::MAX) {
            return Err(WireError::Part { version: version.clone(), files: part.len() });
        }
        numbers.insert(version.parse()?, FileNumbers { first: *first, part: Some(Arc::new(part)) });
    }
    Ok(numbers)
}

fn site_member_in(wire: &v1::manifest::SiteMember) -> Result<manifest::SiteMember, WireError> {
    Ok(manifest::SiteMember { id: wire.id.parse()?, addresses: wire.addresses.clone() })
}

fn site_member_out(member: &manifest::SiteMember) -> v1::manifest::SiteMember {
    v1::manifest::SiteMember { id: member.id.to_string(), addresses: member.addresses.clone() }
}

fn siblings_in(
    (version, siblings): (&String, &Vec<String>),
) -> Result<(AssetVersionId, Vec<ApplianceId>), WireError> {
    let siblings = siblings.iter().map(|id| id.parse()).collect::<Result<_, _>>()?;
    Ok((version.parse()?, siblings))
}

/// A manifest for the wire. Buckets are left out: what lies there is fetched by the URLs that
/// control signs when it is asked for an object's sources.
pub fn manifest_out(manifest: &manifest::Manifest) -> v1::manifest::Manifest {
    let versions = manifest.versions.iter().map(|version| version_for_appliance(version)).collect();
    v1::manifest::Manifest { format: 1, versions, ..without_versions(manifest) }
}

/// The same, short: each version's document is what `named` says.
pub fn short_manifest_out(
    manifest: &manifest::Manifest,
    mut named: impl FnMut(&Arc<manifest::AssetVersion>) -> DocumentId,
) -> v1::manifest::Manifest {
    let listed = |version: &Arc<manifest::AssetVersion>| v1::manifest::Listed {
        id: version.id.to_string(),
        document: named(version).to_string(),
        sources: sources_for_appliance(version),
    };
    let listed = manifest.versions.iter().map(listed).collect();
    v1::manifest::Manifest { format: 2, listed, ..without_versions(manifest) }
}

/// The document of a version, one line.
pub fn document_out(version: &manifest::AssetVersion) -> Vec<u8> {
    let wire = v1::manifest::AssetVersion { sources: Vec::new(), ..version_out(version) };
    serde_json::to_vec(&wire).expect("a version always becomes JSON")
}

fn without_versions(manifest: &manifest::Manifest) -> v1::manifest::Manifest {
    v1::manifest::Manifest {
        format: 0,
        appliance: manifest.appliance.to_string(),
        generation: manifest.generation.0,
        token_keys: manifest.token_keys.iter().map(token_key_out).collect(),
        trust: manifest.trust.is_apart.then_some(manifest.trust.generation.0),
        issued_unix_s: manifest.trust.issued.0,
        signing_keys: manifest.trust.signing_keys.iter().map(token_key_out).collect(),
        revoked: manifest.trust.revoked.iter().cloned().collect(),
        versions: Vec::new(),
        listed: Vec::new(),
        numbers: manifest.numbers.iter().filter_map(whole_out).collect(),
        parts: manifest.numbers.iter().filter_map(part_out).collect(),
        siblings: manifest.siblings.iter().map(siblings_out).collect(),
        site: manifest.site.iter().map(site_member_out).collect(),
    }
}

fn whole_out((id, numbers): (&AssetVersionId, &FileNumbers)) -> Option<(String, u32)> {
    numbers.part.is_none().then(|| (id.to_string(), numbers.first))
}

fn part_out(
    (id, numbers): (&AssetVersionId, &FileNumbers),
) -> Option<(String, v1::manifest::Part)> {
    let files = bitmap_out(numbers.part.as_ref()?);
    Some((id.to_string(), v1::manifest::Part { first: numbers.first, files }))
}

fn siblings_out(
    (version, siblings): (&AssetVersionId, &Vec<ApplianceId>),
) -> (String, Vec<String>) {
    (version.to_string(), siblings.iter().map(ToString::to_string).collect())
}

fn version_for_appliance(version: &manifest::AssetVersion) -> v1::manifest::AssetVersion {
    let sources = sources_for_appliance(version);
    v1::manifest::AssetVersion { sources, ..version_out(version) }
}

fn sources_for_appliance(version: &manifest::AssetVersion) -> Vec<String> {
    version.sources.iter().filter(|source| Bucket::of(source).is_none()).cloned().collect()
}

/// A source in a bucket: `s3://bucket/` or `s3://bucket/prefix/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket<'a> {
    /// Its name: 3 to 63 lower-case letters, digits, dots and hyphens.
    pub name: &'a str,
    /// The prefix of all keys: empty, or a path with a slash at its end.
    pub prefix: &'a str,
}

impl<'a> Bucket<'a> {
    /// Reads a source; none if it is not in a bucket, or not well formed.
    pub fn of(source: &'a str) -> Option<Self> {
        let (name, prefix) = source.strip_prefix("s3://")?.split_once('/')?;
        let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
        let name_is_good = (3..=63).contains(&name.len())
            && name.bytes().all(good)
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.ends_with(|c: char| c.is_ascii_alphanumeric())
            && !name.contains("..");
        let prefix_is_good = prefix.is_empty() || prefix.strip_suffix('/').is_some_and(is_path);
        (name_is_good && prefix_is_good).then_some(Self { name, prefix })
    }
}

/// An asset version off the wire. Its sources may be buckets.
pub fn version_in(
    wire: &v1::manifest::AssetVersion,
) -> Result<Arc<manifest::AssetVersion>, WireError> {
    if FILES_PER_VERSION_MAX < wire.files.len() {
        return Err(WireError::Files(wire.files.len()));
    }
    check_sources(&wire.sources)?;
    let mut types = manifest::ContentTypes::default();
    let file = |(path, file): (&String, _)| Ok((path.clone(), file_in(path, file, &mut types)?));
    let files = wire.files.iter().map(file);
    Ok(Arc::new(manifest::AssetVersion {
        id: wire.id.parse()?,
        asset: wire.asset.parse()?,
        sources: wire.sources.clone(),
        modified: UnixSeconds(wire.modified_unix_s),
        pace: wire.pace_bps.filter(|pace| *pace != 0).map(BitsPerSecond),
        files: files.collect::<Result<_, WireError>>()?,
    }))
}

fn check_sources(sources: &[String]) -> Result<(), WireError> {
    for source in sources {
        let known = source.starts_with("https://") || source.starts_with("http://");
        // A URL has none of the others (RFC 3986 section 2), and some would end a request's line.
        // The names in a bucket may have any: they are encoded when a URL is made of them.
        let visible = source.bytes().all(|b| b.is_ascii_graphic());
        let is_url = known && visible && source.ends_with('/');
        if !is_url && Bucket::of(source).is_none() {
            return Err(WireError::Source(source.clone()));
        }
    }
    Ok(())
}

fn file_in(
    path: &str,
    wire: &v1::manifest::File,
    types: &mut manifest::ContentTypes,
) -> Result<manifest::File, WireError> {
    let len = Bytes(wire.len);
    if !is_path(path) {
        return Err(WireError::Path(path.to_owned()));
    }
    if OBJECT_LEN_MAX < len {
        return Err(WireError::Length { path: path.to_owned(), len });
    }
    let visible = |b: u8| b.is_ascii_graphic() || b == b' ';
    let len_is_good = (1..=CONTENT_TYPE_LEN_MAX).contains(&wire.content_type.len());
    if !len_is_good || !wire.content_type.bytes().all(visible) {
        return Err(WireError::ContentType(wire.content_type.clone()));
    }
    Ok(manifest::File {
        object: wire.object.parse()?,
        len,
        content_type: types.shared(&wire.content_type),
    })
}

/// An asset version for the wire.
pub fn version_out(version: &manifest::AssetVersion) -> v1::manifest::AssetVersion {
    let file_out = |file: &manifest::File| v1::manifest::File {
        object: file.object.to_string(),
        len: file.len.0,
        content_type: file.content_type.to_string(),
    };
    v1::manifest::AssetVersion {
        id: version.id.to_string(),
        asset: version.asset.to_string(),
        sources: version.sources.clone(),
        modified_unix_s: version.modified.0,
        pace_bps: version.pace.map(|pace| pace.0),
        files: version.files.iter().map(|(path, file)| (path.clone(), file_out(file))).collect(),
    }
}

/// A public key off the wire.
pub fn token_key_in(wire: &v1::manifest::TokenKey) -> Result<manifest::TokenKey, WireError> {
    let id: model::id::ObjectId =
        wire.public_key.parse().map_err(|_| WireError::Key(wire.kid.clone()))?;
    Ok(manifest::TokenKey { kid: wire.kid.clone(), public_key: id.0 })
}

/// A public key for the wire.
pub fn token_key_out(key: &manifest::TokenKey) -> v1::manifest::TokenKey {
    let public_key = model::id::ObjectId(key.public_key).to_string();
    v1::manifest::TokenKey { kid: key.kid.clone(), public_key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> v1::manifest::Manifest {
        let file = v1::manifest::File {
            object: "ab".repeat(32),
            len: 5,
            content_type: "video/mp4".into(),
        };
        v1::manifest::Manifest {
            format: 1,
            appliance: "a1".to_owned(),
            generation: 7,
            token_keys: vec![v1::manifest::TokenKey {
                kid: "k1".to_owned(),
                public_key: "cd".repeat(32),
            }],
            trust: None,
            issued_unix_s: 1_800_000_000,
            signing_keys: vec![v1::manifest::TokenKey {
                kid: "s1".to_owned(),
                public_key: "ef".repeat(32),
            }],
            revoked: vec!["0a".to_owned()],
            versions: vec![v1::manifest::AssetVersion {
                id: "film-0123".to_owned(),
                asset: "film".to_owned(),
                sources: vec!["https://origin.example/film/".to_owned()],
                modified_unix_s: 1_700_000_000,
                pace_bps: Some(24_000_000),
                files: BTreeMap::from([("v/0.mp4".to_owned(), file)]),
            }],
            listed: Vec::new(),
            numbers: BTreeMap::from([("film-0123".to_owned(), 700)]),
            parts: BTreeMap::new(),
            siblings: BTreeMap::from([("film-0123".to_owned(), vec!["a2".to_owned()])]),
            site: vec![v1::manifest::SiteMember {
                id: "a1".to_owned(),
                addresses: vec!["192.0.2.1".parse().unwrap()],
            }],
        }
    }

    #[test]
    fn a_manifest_survives_the_way_in_and_out() {
        assert_eq!(manifest_out(&manifest_in(&wire()).unwrap()), wire());
    }

    #[test]
    fn a_part_has_numbers_of_its_own_field_and_damage_is_refused() {
        let mut manifest = manifest_in(&wire()).unwrap();
        let numbers = manifest.numbers.first_entry().unwrap().into_mut();
        numbers.part = Some(Arc::new([4].into()));
        let mut told = manifest_out(&manifest);
        assert!(told.numbers.is_empty(), "whoever does not know parts sees no numbers");
        assert_eq!(manifest_in(&told), Ok(manifest));
        let part = told.parts.first_entry().unwrap().into_mut();
        part.files = bitmap_out(&(0..=1_000_000).collect());
        let version = "film-0123".to_owned();
        let refused = WireError::Part { version, files: 1_000_001 };
        assert_eq!(manifest_in(&told), Err(refused));
        for (text, why) in [("%", "base64"), ("AAAA", "a bitmap in Roaring's portable format")] {
            told.parts.first_entry().unwrap().into_mut().files = text.to_owned();
            let refused = WireError::Bitmap { field: "parts.files", why };
            assert_eq!(manifest_in(&told), Err(refused));
        }
    }

    #[test]
    fn a_manifest_without_its_trust_and_the_trust_document_are_the_whole_one() {
        let whole = manifest_in(&wire()).unwrap();
        let trust = manifest::Trust { generation: Generation(9), ..whole.trust.clone() };
        let document = manifest::TrustDocument { token_keys: whole.token_keys.clone(), trust };
        let told = trust_out(&document);
        assert_eq!(trust_in(&told), Ok(document.clone()));
        let apart = without_trust(wire(), Generation(9));
        let text = serde_json::to_string(&apart).unwrap();
        assert!(!text.contains("k1") && !text.contains("0a\"]"), "{text}");
        let apart = manifest_in(&apart).unwrap();
        assert!(apart.trust.is_apart && document.counts_in(&apart));
        let trust = document.trust.clone();
        assert_eq!(apart.with_trust(&document), manifest::Manifest { trust, ..whole });
        let other = v1::manifest::Trust { format: 2, ..told };
        assert_eq!(trust_in(&other), Err(WireError::Format(2)));
    }

    #[test]
    fn a_short_manifest_and_its_documents_are_the_whole_one() {
        let mut manifest = manifest_in(&wire()).unwrap();
        let line = document_out(&manifest.versions[0]);
        let document = DocumentId::of(&line);
        assert!(!line.contains(&b'\n') && !line.windows(6).any(|part| part == b"origin"));
        let bucket = "s3://films/".to_owned();
        Arc::make_mut(&mut manifest.versions[0]).sources.push(bucket.clone());
        let mut short =
            short_manifest_out(&manifest, |version| DocumentId::of(&document_out(version)));
        Arc::make_mut(&mut manifest.versions[0]).sources.pop();
        let whole = |short: &v1::manifest::Manifest| {
            let said = version_in(&serde_json::from_slice(&line).unwrap()).unwrap();
            let said = |id: &DocumentId| (*id == document).then(|| Arc::clone(&said));
            short_manifest_in(short).map(|short| short.whole(said).unwrap())
        };
        assert_eq!(whole(&short), Ok(manifest));
        assert_eq!(manifest_in(&short), Err(WireError::Format(2)));
        assert_eq!(short_manifest_in(&wire()), Err(WireError::Format(1)));
        short.versions = wire().versions;
        assert_eq!(whole(&short), Err(WireError::Both));
        short.versions.clear();
        short.listed[0].sources = vec![bucket.clone()];
        assert_eq!(whole(&short), Err(WireError::Bucket(bucket)));
        short.listed[0].sources = vec!["ftp://a/".to_owned()];
        assert_eq!(whole(&short), Err(WireError::Source("ftp://a/".to_owned())));
    }

    #[test]
    fn what_goes_to_an_appliance_names_no_bucket() {
        let mut version = wire().versions.remove(0);
        version.sources.insert(0, "s3://films/a/b/".to_owned());
        let stored = version_in(&version).unwrap();
        assert_eq!(stored.sources, version.sources, "control keeps it");
        let mut manifest = manifest_in(&wire()).unwrap();
        manifest.versions = vec![stored];
        assert_eq!(manifest_out(&manifest), wire());
    }

    #[test]
    fn a_bucket_has_a_name_and_a_prefix_that_ends_in_a_slash() {
        let bucket = |source| Bucket::of(source).map(|bucket| (bucket.name, bucket.prefix));
        assert_eq!(bucket("s3://films/"), Some(("films", "")));
        assert_eq!(bucket("s3://my.films-1/a/b c/"), Some(("my.films-1", "a/b c/")));
        let bad = ["s3://films", "s3://films/a", "s3://fi/", "s3://Films/", "s3://a_b/", "s3:///"];
        let worse = ["s3://films//", "s3://films/a//b/", "s3://films/../", "https://films/", "s3"];
        for source in bad.into_iter().chain(worse) {
            assert_eq!(bucket(source), None, "{source}");
        }
    }

    #[test]
    fn what_could_hurt_is_refused_at_the_door() {
        let refused = |change: &dyn Fn(&mut v1::manifest::Manifest)| {
            let mut bad = wire();
            change(&mut bad);
            manifest_in(&bad).unwrap_err()
        };
        assert_eq!(refused(&|m| m.format = 2), WireError::Format(2));
        assert!(matches!(refused(&|m| m.appliance = "../x".into()), WireError::Id(_)));
        assert!(matches!(refused(&|m| m.token_keys[0].public_key.clear()), WireError::Key(_)));
        for source in ["ftp://x/", "http://x", "http://x\r\nY: z/", "http://x y/", "http://é/"] {
            let error = refused(&|m| m.versions[0].sources = vec![source.into()]);
            assert_eq!(error, WireError::Source(source.into()));
        }
        let bucket = "s3://films/".to_owned();
        assert_eq!(
            refused(&|m| m.versions[0].sources.push(bucket.clone())),
            WireError::Bucket(bucket.clone())
        );
        for path in ["../etc/passwd", "/etc/passwd", "a//b", "a/./b", "a\\b", "a\nb", ""] {
            let error = refused(&|m| {
                let file = m.versions[0].files["v/0.mp4"].clone();
                m.versions[0].files.insert(path.to_owned(), file);
            });
            assert_eq!(error, WireError::Path(path.to_owned()));
        }
        let header = "video/mp4\r\nX: y";
        let error = refused(&|m| {
            for file in m.versions[0].files.values_mut() {
                file.content_type = header.to_owned();
            }
        });
        assert_eq!(error, WireError::ContentType(header.to_owned()));
    }
}

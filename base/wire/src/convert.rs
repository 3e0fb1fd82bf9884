//! Wire types to nouns and back. Everything that arrives is checked here, once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::id::{ApplianceId, AssetVersionId, ClusterId, DocumentId, Generation, IdError, Tag};
use model::inventory::{Check, FILES_CHANGED_MAX, FILES_HELD_MAX, FilesDelta};
use model::limits::{
    BASE_URL_LEN_MAX, CONTENT_TYPE_LEN_MAX, FILES_PER_VERSION_MAX, OBJECT_LEN_MAX, PATH_LEN_MAX,
};
use model::manifest;
use model::metric::Metric;
use model::number::NumberSet;
use model::path::is_path;
use model::place::NotAPlace;
use model::profile::{Abilities, CAPACITIES, Profile, Profiles, RATES, TAGS_MAX};
use model::status::DriveStatus;
use model::topology::{Appliance, Site, SiteKind};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use model::zone::{NotAZone, TimeZone};

use crate::v1;

/// Numbers by the names of their metrics, those left out that are 0.
pub fn sums<'a>(
    metrics: &[Metric],
    values: impl IntoIterator<Item = &'a u64>,
) -> BTreeMap<String, u64> {
    let named = metrics.iter().zip(values).filter(|(_, value)| **value != 0);
    named.map(|(metric, value)| (metric.name.to_owned(), *value)).collect()
}

/// Why a message was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("format {0} is not known here: upgrade the reader first")]
    Format(u32),
    #[error(
        "\"{0}\" is not a path: use a relative one of at most {PATH_LEN_MAX} bytes without \"..\""
    )]
    Path(String),
    #[error("\"{path}\" has {len}, more than the limit of {OBJECT_LEN_MAX}")]
    Length { path: String, len: Bytes },
    #[error("{0} files in one asset version, more than the limit of {FILES_PER_VERSION_MAX}")]
    Files(usize),
    #[error("versions stand in a manifest that names them by their documents")]
    Both,
    #[error("token key \"{0}\" is not 32 bytes in hex")]
    Key(String),
    #[error("\"{0}\" cannot be a content type: use 1 to {CONTENT_TYPE_LEN_MAX} visible characters")]
    ContentType(String),
    #[error("source {0:?} must be an http, https or s3 URL that ends in \"/\"")]
    Source(String),
    #[error("place: {0}")]
    Place(#[from] NotAPlace),
    #[error("time_zone: {0}")]
    Zone(#[from] NotAZone),
    #[error(
        "{0}: use {min} (1 Mb/s) to {max} bits per second, or 0 to say nothing",
        min = RATES.start().0, max = RATES.end().0
    )]
    Rate(&'static str),
    #[error(
        "{0}: use {min} (1 GB) to {max} bytes, or 0 to say nothing",
        min = CAPACITIES.start().0, max = CAPACITIES.end().0
    )]
    Capacity(&'static str),
    #[error("tags: {0}")]
    Tag(IdError),
    #[error("tags: an appliance has at most {TAGS_MAX} of them, each once")]
    Tags,
    #[error("{key}: {error}, or nothing at all")]
    Cluster { key: &'static str, error: IdError },
    #[error("files: {0}")]
    Inventory(&'static str),
    #[error("source \"{0}\" is a bucket: appliances have no credentials, and control asks for it")]
    Bucket(String),
}

/// What is told of a site besides its prefixes.
impl From<&Site> for v1::site::SiteAbout {
    fn from(site: &Site) -> Self {
        let kind = match site.kind {
            SiteKind::Embedded => v1::site::SiteKind::Embedded,
            SiteKind::Exchange => v1::site::SiteKind::Exchange,
        };
        let place = site.place.as_ref().map(ToString::to_string).unwrap_or_default();
        let bitrate_max_bps = site.bitrate_max.map_or(0, |most| most.0);
        let name = |of: &Option<ClusterId>| of.as_ref().map(ToString::to_string);
        Self {
            kind,
            place,
            open: site.open,
            bitrate_max_bps,
            time_zone: site.time_zone.to_string(),
            uplink_bps: site.uplink.map_or(0, |most| most.0),
            manifest_cluster: name(&site.manifest_cluster).unwrap_or_default(),
            fill_cluster: name(&site.fill_cluster).unwrap_or_default(),
        }
    }
}

/// The site with what is told of it, checked.
pub fn site_with(site: Site, about: &v1::site::SiteAbout) -> Result<Site, WireError> {
    let kind = match about.kind {
        v1::site::SiteKind::Embedded => SiteKind::Embedded,
        v1::site::SiteKind::Exchange => SiteKind::Exchange,
    };
    let place = Some(&about.place).filter(|text| !text.is_empty());
    let place = place.map(|text| text.parse()).transpose()?;
    let bitrate_max = Some(BitsPerSecond(about.bitrate_max_bps)).filter(|most| most.0 != 0);
    let uplink = rate("uplink_bps", about.uplink_bps)?;
    Ok(Site {
        kind,
        place,
        open: about.open,
        bitrate_max,
        time_zone: TimeZone::kept(&about.time_zone)?,
        uplink,
        manifest_cluster: cluster("manifest_cluster", &about.manifest_cluster)?,
        fill_cluster: cluster("fill_cluster", &about.fill_cluster)?,
        ..site
    })
}

/// What is told of an appliance besides where it stands.
impl From<&Appliance> for v1::appliance::ApplianceAbout {
    fn from(appliance: &Appliance) -> Self {
        let able = v1::appliance::Abilities::from(appliance.own);
        Self {
            profile: match appliance.profile {
                None => v1::appliance::ProfileName::None,
                Some(Profile::Flash) => v1::appliance::ProfileName::Flash,
                Some(Profile::Storage) => v1::appliance::ProfileName::Storage,
                Some(Profile::Global) => v1::appliance::ProfileName::Global,
            },
            throughput_bps: able.throughput_bps,
            capacity_bytes: able.capacity_bytes,
            fill_bps: able.fill_bps,
            tags: appliance.tags.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<Abilities> for v1::appliance::Abilities {
    fn from(able: Abilities) -> Self {
        Self {
            throughput_bps: able.throughput.map_or(0, |most| most.0),
            capacity_bytes: able.capacity.map_or(0, |most| most.0),
            fill_bps: able.fill.map_or(0, |most| most.0),
        }
    }
}

impl From<Profiles> for v1::appliance::Profiles {
    fn from(profiles: Profiles) -> Self {
        let Profiles { flash, storage, global } = profiles;
        Self { flash: flash.into(), storage: storage.into(), global: global.into() }
    }
}

/// The appliance with what is told of it, checked.
pub fn appliance_with(
    appliance: Appliance,
    about: &v1::appliance::ApplianceAbout,
) -> Result<Appliance, WireError> {
    let profile = match about.profile {
        v1::appliance::ProfileName::None => None,
        v1::appliance::ProfileName::Flash => Some(Profile::Flash),
        v1::appliance::ProfileName::Storage => Some(Profile::Storage),
        v1::appliance::ProfileName::Global => Some(Profile::Global),
    };
    let own = abilities(
        ["throughput_bps", "capacity_bytes", "fill_bps"],
        [about.throughput_bps, about.capacity_bytes, about.fill_bps],
    )?;
    if TAGS_MAX < about.tags.len() {
        return Err(WireError::Tags);
    }
    let tags = about.tags.iter().map(|tag| tag.parse::<Tag>().map_err(WireError::Tag));
    let tags: BTreeSet<Tag> = tags.collect::<Result<_, _>>()?;
    if tags.len() < about.tags.len() {
        return Err(WireError::Tags);
    }
    Ok(Appliance { profile, own, tags, ..appliance })
}

/// What machines of each profile are able to do, checked.
pub fn profiles_in(wire: &v1::appliance::Profiles) -> Result<Profiles, WireError> {
    let able = |keys, of: v1::appliance::Abilities| {
        abilities(keys, [of.throughput_bps, of.capacity_bytes, of.fill_bps])
    };
    Ok(Profiles {
        flash: able(
            ["flash_throughput_bps", "flash_capacity_bytes", "flash_fill_bps"],
            wire.flash,
        )?,
        storage: able(
            ["storage_throughput_bps", "storage_capacity_bytes", "storage_fill_bps"],
            wire.storage,
        )?,
        global: able(
            ["global_throughput_bps", "global_capacity_bytes", "global_fill_bps"],
            wire.global,
        )?,
    })
}

/// Throughput, capacity and fill; 0 where nobody said.
fn abilities(keys: [&'static str; 3], values: [u64; 3]) -> Result<Abilities, WireError> {
    let capacity = Some(Bytes(values[1])).filter(|most| most.0 != 0);
    if capacity.is_some_and(|most| !CAPACITIES.contains(&most)) {
        return Err(WireError::Capacity(keys[1]));
    }
    Ok(Abilities {
        throughput: rate(keys[0], values[0])?,
        capacity,
        fill: rate(keys[2], values[2])?,
    })
}

fn rate(key: &'static str, bps: u64) -> Result<Option<BitsPerSecond>, WireError> {
    let rate = Some(BitsPerSecond(bps)).filter(|most| most.0 != 0);
    if rate.is_some_and(|most| !RATES.contains(&most)) {
        return Err(WireError::Rate(key));
    }
    Ok(rate)
}

fn cluster(key: &'static str, name: &str) -> Result<Option<ClusterId>, WireError> {
    let name = Some(name).filter(|name| !name.is_empty());
    name.map(str::parse).transpose().map_err(|error| WireError::Cluster { key, error })
}

/// A drive, as reports and `inspect` tell of it.
impl From<&DriveStatus> for v1::report::Drive {
    fn from(status: &DriveStatus) -> Self {
        let state = match status.set_aside {
            Some(_) => v1::report::DriveState::SetAside,
            None => v1::report::DriveState::Ok,
        };
        Self {
            id: status.id.map(|id| id.to_string()).unwrap_or_default(),
            path: status.path.display().to_string(),
            state,
            hung: status.hangs.is_some(),
            reason: status.reason(),
            capacity_bytes: status.capacity.0,
            free_bytes: status.free.0,
            objects: status.objects,
            headroom_permille: status.load.map(|load| load.headroom_permille),
            service_us: status.load.map(|load| load.service.0 / 1000),
        }
    }
}

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
        numbers: wire.numbers.iter().map(number_in).collect::<Result<_, _>>()?,
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

fn number_in((version, first): (&String, &u32)) -> Result<(AssetVersionId, u32), WireError> {
    Ok((version.parse()?, *first))
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

/// The base URLs of siblings off the wire. One that cannot stand in a `Location` is left out: a
/// sibling less is no reason to refuse control's manifest.
pub fn siblings_of_reply(wire: &v1::report::ReportReply) -> BTreeMap<ApplianceId, Arc<str>> {
    let is_base = |url: &str| {
        let known = url.starts_with("https://") || url.starts_with("http://");
        let visible = url.bytes().all(|b| b.is_ascii_graphic());
        known && visible && url.len() <= BASE_URL_LEN_MAX && !url.ends_with('/')
    };
    let good = wire.siblings.iter().filter(|(_, url)| is_base(url));
    good.filter_map(|(id, url)| Some((id.parse().ok()?, Arc::from(url.as_str())))).collect()
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
        numbers: manifest.numbers.iter().map(|(id, first)| (id.to_string(), *first)).collect(),
        siblings: manifest.siblings.iter().map(siblings_out).collect(),
        site: manifest.site.iter().map(site_member_out).collect(),
    }
}

/// The files that an appliance holds, for the wire.
pub fn files_out(delta: &FilesDelta) -> v1::report::Files {
    let is_whole = delta.from == 0;
    let whole = || {
        let mut files = delta.came.clone();
        files.optimize();
        let mut bytes = Vec::with_capacity(files.serialized_size());
        files.serialize_into(&mut bytes).expect("memory takes what is written");
        STANDARD.encode(bytes)
    };
    v1::report::Files {
        from: delta.from,
        to: delta.to,
        came: if is_whole { Vec::new() } else { ranges(&delta.came) },
        gone: ranges(&delta.gone),
        whole: is_whole.then(whole),
        count: delta.check.count,
        sum: delta.check.sum,
        others: delta.others,
    }
}

fn ranges(files: &NumberSet) -> Vec<[u32; 2]> {
    let mut ranges: Vec<[u32; 2]> = Vec::new();
    for file in files {
        match ranges.last_mut() {
            Some([_, last]) if last.checked_add(1) == Some(file) => *last = file,
            _ => ranges.push([file, file]),
        }
    }
    ranges
}

/// The files that an appliance holds, off the wire.
pub fn files_in(wire: &v1::report::Files) -> Result<FilesDelta, WireError> {
    let refused = WireError::Inventory;
    if FILES_HELD_MAX < wire.count {
        return Err(refused(TOO_MANY_FILES));
    }
    let set = |ranges: &[[u32; 2]]| {
        let (mut set, mut room) = (NumberSet::new(), FILES_CHANGED_MAX);
        for [first, last] in ranges {
            let len = last
                .checked_sub(*first)
                .ok_or_else(|| refused("the last of a range comes first"))?;
            room = room.checked_sub(u64::from(len) + 1).ok_or_else(|| refused(TOO_MANY_CHANGES))?;
            set.insert_range(*first..=*last);
        }
        Ok::<_, WireError>(set)
    };
    let whole = |text: &String| {
        let bytes = STANDARD.decode(text).map_err(|_| refused("whole is not base64"))?;
        let set = NumberSet::deserialize_from(bytes.as_slice());
        let set = set.map_err(|_| refused("whole is not a bitmap in Roaring's portable format"))?;
        if FILES_HELD_MAX < set.len() {
            Err(refused(TOO_MANY_FILES))
        } else {
            Ok::<_, WireError>(set)
        }
    };
    let came = match (&wire.whole, wire.from) {
        (Some(text), 0) => whole(text)?,
        (None, 1..) => set(&wire.came)?,
        (Some(_), 1..) | (None, 0) => return Err(refused("whole is for from 0, and for no other")),
    };
    Ok(FilesDelta {
        from: wire.from,
        to: wire.to,
        came,
        gone: set(&wire.gone)?,
        check: Check { count: wire.count, sum: wire.sum },
        others: wire.others,
    })
}

const TOO_MANY_FILES: &str = "more than 16,777,216, which no catalogue has";
const TOO_MANY_CHANGES: &str = "more than 1,048,576 came or are gone: tell all";

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
    fn a_sibling_whose_url_could_end_a_header_is_left_out() {
        let urls = ["https://a2", "https://a3/", "ftp://a4", "https://a5\r\nX: y", "https://ä6"];
        let long = format!("https://{}", "x".repeat(300));
        let siblings = (2..).zip(urls.into_iter().chain([&*long]));
        let siblings = siblings.map(|(n, url)| (format!("a{n}"), url.to_owned())).collect();
        let reply = v1::report::ReportReply { siblings, ..v1::report::ReportReply::default() };
        let good = BTreeMap::from([("a2".parse().unwrap(), Arc::from("https://a2"))]);
        assert_eq!(siblings_of_reply(&reply), good);
    }

    #[test]
    fn files_survive_the_way_in_and_out_as_ranges_and_as_a_whole() {
        let came: NumberSet = (700..800).chain([7, 9]).collect();
        let check = Check::of_files(&came);
        let delta = |from| FilesDelta {
            from,
            to: 9,
            came: came.clone(),
            gone: [u32::MAX].into(),
            check,
            others: 3,
        };
        let wire = files_out(&delta(4));
        assert_eq!(wire.came, [[7, 7], [9, 9], [700, 799]]);
        assert_eq!(wire.gone, [[u32::MAX, u32::MAX]]);
        assert_eq!(files_in(&wire).unwrap(), delta(4));
        let wire = files_out(&delta(0));
        assert_eq!((wire.came.len(), wire.whole.is_some()), (0, true));
        let versions = FilesDelta { came: (0..20_000).collect(), ..FilesDelta::default() };
        let len = files_out(&versions).whole.unwrap().len();
        assert!(len < 40, "whole versions take next to nothing: {len}");
        assert_eq!(files_in(&wire).unwrap(), delta(0));
    }

    #[test]
    fn files_that_say_too_much_or_nothing_that_can_be_read_are_refused() {
        let good = files_out(&FilesDelta { from: 1, ..FilesDelta::default() });
        let whole = files_out(&FilesDelta::default());
        type Change<'a> = &'a dyn Fn(&mut v1::report::Files);
        let refused = |good: &v1::report::Files, change: Change<'_>, wanted: &str| {
            let mut bad = good.clone();
            change(&mut bad);
            let error = files_in(&bad).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}");
        };
        refused(&good, &|f| f.came = vec![[0, u32::MAX]], "1,048,576");
        refused(&good, &|f| f.gone = vec![[0, 1 << 19]; 2], "1,048,576");
        refused(&good, &|f| f.count = (1 << 24) + 1, "16,777,216");
        refused(&whole, &|f| f.count = u64::MAX, "16,777,216");
        refused(&good, &|f| f.came = vec![[2, 1]], "the last of a range comes first");
        refused(&good, &|f| f.from = 0, "whole is for from 0");
        refused(&whole, &|f| f.from = 1, "whole is for from 0");
        refused(&whole, &|f| f.whole = Some("%".into()), "base64");
        refused(&whole, &|f| f.whole = Some("AAAA".into()), "Roaring");
        let all = FilesDelta { came: NumberSet::from_iter(0..1 << 25), ..FilesDelta::default() };
        refused(&files_out(&all), &|_| (), "16,777,216");
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

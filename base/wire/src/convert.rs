//! Wire types to nouns and back. Everything that arrives is checked here, once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::expected::{FILES_MAX, ITEMS_MAX};
use model::hours::{NotWindows, OFFSETS_MAX, URGENT_MAX};
use model::id::{ApplianceId, ClusterId, IdError, Tag};
use model::inventory::{Check, FILES_CHANGED_MAX, FILES_HELD_MAX, FilesDelta};
use model::limits::{
    BASE_URL_LEN_MAX, CONTENT_TYPE_LEN_MAX, FILES_PER_VERSION_MAX, OBJECT_LEN_MAX, PATH_LEN_MAX,
};
use model::metric::Metric;
use model::number::NumberSet;
use model::place::NotAPlace;
use model::profile::{Abilities, CAPACITIES, Profile, Profiles, RATES, TAGS_MAX};
use model::status::DriveStatus;
use model::topology::{Appliance, Site, SiteKind};
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use model::zone::{NotAZone, TimeZone};

mod expected;
mod fill;
mod manifests;

pub use expected::{expected_in, expected_out};
pub use fill::{fill_rules_in, fill_rules_out};
pub use manifests::{
    Bucket, document_out, manifest_in, manifest_out, short_manifest_in, short_manifest_out,
    token_key_in, token_key_out, trust_in, trust_out, version_in, version_out, without_trust,
};

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
    #[error("urgent: at most {URGENT_MAX} versions")]
    Urgent,
    #[error("fill_windows: {0}")]
    Windows(#[from] NotWindows),
    #[error("offsets: a zone has at most {OFFSETS_MAX} ascending times, each within a day of UTC")]
    Offsets,
    #[error(
        "{0}: use {min} (1 Mb/s) to {max} bits per second, or 0 to say nothing",
        min = RATES.start().0, max = RATES.end().0
    )]
    Rate(&'static str),
    #[error(
        "{0}: use {min} (100 MB) to {max} bytes, or 0 to say nothing",
        min = CAPACITIES.start().0, max = CAPACITIES.end().0
    )]
    Capacity(&'static str),
    #[error("tags: {0}")]
    Tag(IdError),
    #[error("profile_name: {0}")]
    ProfileName(IdError),
    #[error("profile_name: {0} is a usual profile: say it as `profile`")]
    UsualProfile(String),
    #[error("tags: an appliance has at most {TAGS_MAX} of them, each once")]
    Tags,
    #[error("{key}: {error}, or nothing at all")]
    Cluster { key: &'static str, error: IdError },
    #[error("files: {0}")]
    Inventory(&'static str),
    #[error("expected: at most {ITEMS_MAX} items, and {FILES_MAX} files of them")]
    Expected,
    #[error("{field} is not {why}")]
    Bitmap { field: &'static str, why: &'static str },
    #[error(
        "a part of {version} has {files} files, and a version has {FILES_PER_VERSION_MAX} at most"
    )]
    Part { version: String, files: u64 },
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
            fill_windows: site.fill_windows.map_or_else(String::new, |of| of.to_string()),
            fill_paused_until_unix_s: site.fill_paused_until.map_or(0, |until| until.0),
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
    let fill_windows = Some(&about.fill_windows).filter(|text| !text.is_empty());
    let paused_until = Some(about.fill_paused_until_unix_s).filter(|until| *until != 0);
    Ok(Site {
        kind,
        place,
        open: about.open,
        bitrate_max,
        time_zone: TimeZone::kept(&about.time_zone)?,
        uplink,
        manifest_cluster: cluster("manifest_cluster", &about.manifest_cluster)?,
        fill_cluster: cluster("fill_cluster", &about.fill_cluster)?,
        fill_windows: fill_windows.map(|text| text.parse()).transpose()?,
        fill_paused_until: paused_until.map(UnixSeconds),
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
            profile_name: appliance.profile_name.as_ref().map_or_else(String::new, Tag::to_string),
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
    let profile_name = profile_name(&about.profile_name)?;
    Ok(Appliance { profile, profile_name, own, tags, ..appliance })
}

/// None of the usual profiles' names.
fn profile_name(name: &str) -> Result<Option<Tag>, WireError> {
    if name.is_empty() {
        return Ok(None);
    }
    if name == "none" || name.parse::<Profile>().is_ok() {
        return Err(WireError::UsualProfile(name.to_owned()));
    }
    name.parse().map(Some).map_err(WireError::ProfileName)
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

/// Bits per second off the wire; 0 says nothing.
pub fn rate(key: &'static str, bps: u64) -> Result<Option<BitsPerSecond>, WireError> {
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

/// The files that an appliance holds, for the wire.
pub fn files_out(delta: &FilesDelta) -> v1::report::Files {
    let is_whole = delta.from == 0;
    v1::report::Files {
        from: delta.from,
        to: delta.to,
        came: if is_whole { Vec::new() } else { ranges(&delta.came) },
        gone: ranges(&delta.gone),
        whole: is_whole.then(|| bitmap_out(&delta.came)),
        count: delta.check.count,
        sum: delta.check.sum,
        others: delta.others,
    }
}

/// A Roaring bitmap in its portable format, in base64.
fn bitmap_out(set: &NumberSet) -> String {
    let mut set = set.clone();
    set.optimize();
    let mut bytes = Vec::with_capacity(set.serialized_size());
    set.serialize_into(&mut bytes).expect("memory takes what is written");
    STANDARD.encode(bytes)
}

/// What [`bitmap_out`] wrote in this field.
fn bitmap_in(field: &'static str, text: &str) -> Result<NumberSet, WireError> {
    let refused = |why| WireError::Bitmap { field, why };
    let bytes = STANDARD.decode(text).map_err(|_| refused("base64"))?;
    let set = NumberSet::deserialize_from(bytes.as_slice());
    set.map_err(|_| refused("a bitmap in Roaring's portable format"))
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
        let set = bitmap_in("whole", text)?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

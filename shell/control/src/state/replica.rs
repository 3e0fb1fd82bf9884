//! Desired state on its way from the writer to its fronts.
//!
//! ```text
//! writer: Desired ──> snapshot_out ──> sign ──> GET /v1/replica/snapshot
//! front:  verify ──> newer? ──> snapshot_in ──> Desired      [`open`], also for what is on disk
//!                                                            `difference` has what changed of it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use director::difference::{self, Short};
use director::following::{Lost, Picture};
use director::{
    Catalog, Desired, Entry, FillPolicy, Format, Playbacks, Policy, Registered, Version, Window,
};
use identity::signing::{self, VerifyError};
use model::hours::Windows;
use model::id::{AssetId, AssetVersionId, Generation, IdError};
use model::manifest::TokenKey;
use model::topology::{Appliance, Prefix, Site, WEIGHT_MAX, Weight};
use model::units::UnixSeconds;
use playback::token::Session;
use wire::convert::{
    WireError, appliance_with, profiles_in, site_with, token_key_in, token_key_out, version_in,
    version_out,
};
use wire::v1::ingest;
use wire::v1::ingest::EntryFormat;
use wire::v1::manifest as wire_manifest;
use wire::v1::replica as wire_replica;
use wire::v1::signed::Kind;

use crate::state::convert;

/// Why a snapshot was refused. What was in force stays so.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(
        "it has generation {found}, and {known} is in force: was the writer restored from an old \
             copy of its state? If so, stop this front, delete snapshot.signed in the directory \
             that its setting state names, and start it"
    )]
    Old { found: Generation, known: Generation },
    #[error("it is not a snapshot: {0}")]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("site {site}: \"{prefix}\" is not a prefix")]
    Prefix { site: String, prefix: String },
    #[error(
        "a difference to an earlier snapshot was lost, or is damaged: a whole one is asked for"
    )]
    Lost,
    #[error("a session is revoked that is not a valid session id")]
    Session,
    #[error("appliance {0}: its site is not there, or its weight is not 1 to {WEIGHT_MAX}")]
    Appliance(String),
}

impl From<Lost> for SnapshotError {
    fn from(Lost: Lost) -> Self {
        Self::Lost
    }
}

/// No whole snapshot is longer: 10 million files are 1.5 GB (docs/operate/state.md).
pub(crate) const SNAPSHOT_LEN_MAX: u64 = 2 << 30;

/// Opens a snapshot off the wire or from disk: signed with one of `keys`, newer than `known`, and
/// in order. Nothing of one that is refused is used.
pub(crate) fn open(
    keys: &[TokenKey],
    known: Generation,
    bytes: &[u8],
) -> Result<Picture, SnapshotError> {
    let payload = signing::verify(keys, Kind::Snapshot, bytes)?;
    let wire: wire_replica::Snapshot = serde_json::from_slice(payload)?;
    let found = Generation(wire.generation);
    if found <= known {
        return Err(SnapshotError::Old { found, known });
    }
    snapshot_in(wire)
}

/// The snapshot for the wire. Of versions only those that are held: fronts offer no others.
pub(crate) fn snapshot_out(
    desired: &Desired,
    manifests: Generation,
    generation: Generation,
    issued: UnixSeconds,
) -> wire_replica::Snapshot {
    let count = usize::try_from(desired.policy.versions_kept).unwrap_or(usize::MAX);
    let kept = desired.catalog.kept(count);
    wire_replica::Snapshot {
        generation: generation.0,
        issued_unix_s: issued.0,
        manifests: manifests.0,
        sites: desired.sites.values().map(site_out).collect(),
        appliances: desired.appliances.values().map(appliance_out).collect(),
        versions: kept.into_iter().map(|(_, version)| one_out(version)).collect(),
        public: desired.playbacks.public().iter().map(ToString::to_string).collect(),
        revoked_sessions: desired.playbacks.revoked().iter().map(revoked_out).collect(),
        withdrawn: withdrawn_out(&difference::withdrawn_of(desired)),
        revoked: desired.revoked.iter().cloned().collect(),
        ..short_out(&Short::of(desired))
    }
}

/// What is short, and told whole whenever something is told.
pub(crate) fn short_out(short: &Short) -> wire_replica::Snapshot {
    let Short { policy, token_keys, signing_keys } = short;
    let Policy { copies, versions_kept, profiles, fill } = *policy;
    let windows = fill.windows;
    wire_replica::Snapshot {
        format: 1,
        copies,
        versions_kept,
        profiles: Some(profiles.into()),
        fill_windows: if windows.is_always() { String::new() } else { windows.to_string() },
        token_keys: token_keys.iter().map(token_key_out).collect(),
        signing_keys: signing_keys.iter().map(token_key_out).collect(),
        ..wire_replica::Snapshot::default()
    }
}

pub(crate) fn short_in(wire: &wire_replica::Snapshot) -> Result<Short, SnapshotError> {
    let profiles = wire.profiles.as_ref().map(profiles_in).transpose()?.unwrap_or_default();
    let windows = match &*wire.fill_windows {
        "" => Windows::ALWAYS,
        text => text.parse().map_err(WireError::Windows)?,
    };
    // Of the rest of fill nobody asks a front.
    let fill = FillPolicy { windows, ..FillPolicy::default() };
    let (copies, versions_kept) = (wire.copies, wire.versions_kept);
    Ok(Short {
        policy: Policy { copies, versions_kept, profiles, fill },
        token_keys: wire.token_keys.iter().map(token_key_in).collect::<Result<_, _>>()?,
        signing_keys: wire.signing_keys.iter().map(token_key_in).collect::<Result<_, _>>()?,
    })
}

/// Versions that were withdrawn, each with its asset.
type Withdrawn = BTreeMap<AssetVersionId, AssetId>;

pub(crate) fn withdrawn_out(withdrawn: &Withdrawn) -> BTreeMap<String, String> {
    let names = withdrawn.iter();
    names.map(|(version, asset)| (version.to_string(), asset.to_string())).collect()
}

pub(crate) fn withdrawn_in(wire: &wire_replica::Snapshot) -> Result<Withdrawn, IdError> {
    let names = wire.withdrawn.iter();
    names.map(|(version, asset)| Ok((version.parse()?, asset.parse()?))).collect()
}

pub(crate) fn site_out(site: &Site) -> wire_replica::Site {
    wire_replica::Site {
        id: site.id.to_string(),
        prefixes: site.prefixes.iter().map(ToString::to_string).collect(),
        about: site.into(),
    }
}

pub(crate) fn site_in(wire: &wire_replica::Site) -> Result<Site, SnapshotError> {
    let prefix = |text: &String| {
        let refused = |_| SnapshotError::Prefix { site: wire.id.clone(), prefix: text.clone() };
        text.parse::<Prefix>().map_err(refused)
    };
    let prefixes = wire.prefixes.iter().map(prefix).collect::<Result<_, _>>()?;
    Ok(site_with(Site::new(wire.id.parse()?, prefixes), &wire.about)?)
}

pub(crate) fn appliance_out(registered: &Registered) -> wire_replica::Appliance {
    let Registered { appliance, cloned, drain, .. } = registered;
    wire_replica::Appliance {
        id: appliance.id.to_string(),
        site: appliance.site.to_string(),
        weight: appliance.weight.value(),
        cloned: *cloned,
        drain: drain.map(convert::drain_out),
        about: appliance.into(),
    }
}

pub(crate) fn appliance_in(wire: &wire_replica::Appliance) -> Result<Registered, SnapshotError> {
    let refused = || SnapshotError::Appliance(wire.id.clone());
    let weight = Weight::new(wire.weight).ok_or_else(refused)?;
    let (id, site) = (wire.id.parse()?, wire.site.parse()?);
    // Manifests have its addresses, and fronts make none.
    let appliance = appliance_with(Appliance::new(id, site, weight), &wire.about)?;
    let drain = wire.drain.map(convert::drain_in);
    Ok(Registered { cloned: wire.cloned, drain, ..Registered::new(appliance) })
}

pub(crate) fn revoked_out(
    (session, until): (&Session, &UnixSeconds),
) -> wire_replica::RevokedSession {
    wire_replica::RevokedSession { session: session.to_string(), until_unix_s: until.0 }
}

type PlaybacksIn = (BTreeSet<AssetId>, BTreeMap<Session, UnixSeconds>);

pub(crate) fn playbacks_in(wire: &wire_replica::Snapshot) -> Result<PlaybacksIn, SnapshotError> {
    let public = wire.public.iter().map(|asset| asset.parse()).collect::<Result<_, _>>()?;
    let revoked = |revoked: &wire_replica::RevokedSession| {
        let session = revoked.session.parse().map_err(|_| SnapshotError::Session)?;
        Ok::<_, SnapshotError>((session, UnixSeconds(revoked.until_unix_s)))
    };
    let revoked = wire.revoked_sessions.iter().map(revoked).collect::<Result<_, _>>()?;
    Ok((public, revoked))
}

/// The wire's versions go one by one: they are as long as those that are made of them.
fn snapshot_in(wire: wire_replica::Snapshot) -> Result<Picture, SnapshotError> {
    if wire.format != 1 {
        return Err(WireError::Format(wire.format).into());
    }
    let mut desired = Desired::default();
    short_in(&wire)?.put(&mut desired);
    difference::put_withdrawn(&mut desired, withdrawn_in(&wire)?);
    desired.revoked = Arc::new(wire.revoked.iter().cloned().collect());
    let sites = Arc::make_mut(&mut desired.sites);
    for site in &wire.sites {
        let site = site_in(site)?;
        sites.insert(site.id.clone(), site);
    }
    let appliances = Arc::make_mut(&mut desired.appliances);
    for wire in &wire.appliances {
        let registered = appliance_in(wire)?;
        if !sites.contains_key(&registered.appliance.site) {
            return Err(SnapshotError::Appliance(wire.id.clone()));
        }
        appliances.insert(registered.appliance.id.clone(), registered);
    }
    let mut catalog = Catalog::default();
    let (public, revoked) = playbacks_in(&wire)?;
    for version in wire.versions {
        catalog.put(Arc::new(one_in(&version)?));
    }
    desired.catalog = Arc::new(catalog);
    desired.playbacks = Playbacks::new(public, revoked);
    Ok(Picture {
        generation: Generation(wire.generation),
        issued: UnixSeconds(wire.issued_unix_s),
        manifests: Generation(wire.manifests),
        desired,
    })
}

pub(crate) fn one_out(version: &Version) -> wire_replica::Version {
    let entry = |entry: &Entry| ingest::Entry {
        path: entry.path.clone(),
        format: match entry.format {
            Format::Hls => EntryFormat::Hls,
            Format::Dash => EntryFormat::Dash,
        },
        text: entry.text.as_ref().to_owned(),
    };
    wire_replica::Version {
        // Where files are filled from is no business of fronts.
        files: wire_manifest::AssetVersion { sources: Vec::new(), ..version_out(&version.files) },
        entries: version.entries.iter().map(entry).collect(),
        sequence: version.sequence,
        renditions: version.renditions().of_files().to_vec(),
        first_file: version.first_file,
        from_unix_s: version.window.from.map(|from| from.0),
        until_unix_s: version.window.until.map(|until| until.0),
    }
}

pub(crate) fn one_in(wire: &wire_replica::Version) -> Result<Version, SnapshotError> {
    let entry = |entry: &ingest::Entry| Entry {
        path: entry.path.clone(),
        format: match entry.format {
            EntryFormat::Hls => Format::Hls,
            EntryFormat::Dash => Format::Dash,
        },
        text: entry.text.as_str().into(),
    };
    let entries = wire.entries.iter().map(entry).collect();
    let time = |time: Option<u64>| time.map(UnixSeconds);
    let window = Window { from: time(wire.from_unix_s), until: time(wire.until_unix_s) };
    let version = Version::new(version_in(&wire.files)?, entries, wire.sequence);
    let version = version.divided(wire.renditions.clone()).numbered(wire.first_file);
    Ok(version.shown(window))
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::drain::Drain;
    use identity::signing::SigningKey;
    use model::id::ObjectId;
    use model::manifest::{AssetVersion, File};
    use model::profile::Profile;
    use model::units::Bytes;

    #[test]
    fn a_snapshot_comes_out_as_it_went_in() {
        let (key, bytes) = signed(7);
        let picture = open(&[key.public()], Generation(6), &bytes).unwrap();
        assert_eq!((picture.generation, picture.manifests), (Generation(7), Generation(3)));
        assert_eq!(picture.issued, UnixSeconds(1_800_000_000));
        let wanted = desired();
        assert_eq!(picture.desired.sites, wanted.sites);
        assert_eq!(picture.desired.policy, wanted.policy);
        assert_eq!(picture.desired.token_keys, wanted.token_keys);
        assert_eq!(picture.desired.signing_keys, wanted.signing_keys);
        assert_eq!(picture.desired.revoked, wanted.revoked);
        assert_eq!(picture.desired.playbacks, wanted.playbacks);
        let registered = picture.desired.appliances.values().map(|r| &r.appliance);
        assert!(registered.eq(wanted.appliances.values().map(|r| &r.appliance)));
        let drains = |desired: &Desired| -> Vec<_> {
            desired.appliances.values().map(|registered| registered.drain).collect()
        };
        assert_eq!(drains(&picture.desired), drains(&wanted));
        let film = "film".parse().unwrap();
        let names = |desired: &Desired| -> Vec<String> {
            desired.catalog.versions(&film).iter().map(|v| v.id().to_string()).collect()
        };
        assert_eq!(names(&picture.desired), ["film-3", "film-2"], "what is held, no more");
        let (found, wanted) = (&picture.desired.catalog, &wanted.catalog);
        for (found, wanted) in found.versions(&film).iter().zip(wanted.versions(&film)) {
            assert_eq!((&found.entries, found.sequence), (&wanted.entries, wanted.sequence));
            assert_eq!(found.first_file, wanted.first_file);
            assert_eq!(found.files.files, wanted.files.files);
            assert!(found.files.sources.is_empty(), "a front fills nothing");
        }
    }

    #[test]
    fn an_older_one_and_the_same_again_are_refused() {
        let (key, bytes) = signed(7);
        let keys = [key.public()];
        for known in [7, 8] {
            let refused = open(&keys, Generation(known), &bytes).unwrap_err();
            assert!(matches!(refused, SnapshotError::Old { found: Generation(7), .. }));
        }
    }

    #[test]
    fn one_that_the_writer_did_not_sign_so_is_refused() {
        let (key, bytes) = signed(7);
        let keys = [key.public()];
        let refused = |keys: &[TokenKey], bytes: &[u8]| match open(keys, Generation(0), bytes) {
            Err(SnapshotError::Verify(error)) => error,
            other => panic!("{other:?}"),
        };
        let text = String::from_utf8(bytes.clone()).unwrap();
        let changed = text.replacen("\"generation\":7", "\"generation\":9", 1);
        assert_ne!(changed, text);
        assert_eq!(refused(&keys, changed.as_bytes()), VerifyError::BadSignature);
        let (_, payload) = text.split_once('\n').unwrap();
        assert!(matches!(refused(&keys, payload.as_bytes()), VerifyError::Envelope(_)));
        let manifest = key.sign(Kind::Manifest, payload.as_bytes());
        assert!(matches!(refused(&keys, &manifest), VerifyError::OtherKind { .. }));
        let (_, stranger) = SigningKey::generate("s1");
        let forged = stranger.sign(Kind::Snapshot, payload.as_bytes());
        assert_eq!(refused(&keys, &forged), VerifyError::BadSignature);
        assert!(matches!(refused(&[], &bytes), VerifyError::UnknownKey(_)));
    }

    #[test]
    fn what_does_not_fit_together_is_refused_though_it_is_signed() {
        let refused = |change: &dyn Fn(&mut wire_replica::Snapshot)| {
            let mut wire = out(7);
            change(&mut wire);
            snapshot_in(wire).unwrap_err().to_string()
        };
        let texts = [
            refused(&|s| s.format = 2),
            refused(&|s| s.sites[0].id = "../x".to_owned()),
            refused(&|s| s.sites[0].prefixes = vec!["10.0.0.0/99".to_owned()]),
            refused(&|s| s.sites.clear()),
            refused(&|s| s.appliances[0].weight = 0),
            refused(&|s| s.token_keys[0].public_key.clear()),
            refused(&|s| s.public = vec!["../x".to_owned()]),
            refused(&|s| s.revoked_sessions[0].session.clear()),
            refused(&|s| {
                let file = s.versions[0].files.files.pop_first().unwrap().1;
                s.versions[0].files.files.insert("../x".to_owned(), file);
            }),
        ];
        insta::assert_snapshot!(texts.join("\n"), @r#"
        format 2 is not known here: upgrade the reader first
        "../x" is not a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit
        site s: "10.0.0.0/99" is not a prefix
        appliance a1: its site is not there, or its weight is not 1 to 1000
        appliance a1: its site is not there, or its weight is not 1 to 1000
        token key "k1" is not 32 bytes in hex
        "../x" is not a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit
        a session is revoked that is not a valid session id
        "../x" is not a path: use a relative one of at most 512 bytes without ".."
        "#);
    }

    fn signed(generation: u64) -> (SigningKey, Vec<u8>) {
        let (_, key) = SigningKey::generate("s1");
        let payload = serde_json::to_vec(&out(generation)).unwrap();
        let bytes = key.sign(Kind::Snapshot, &payload);
        (key, bytes)
    }

    fn out(generation: u64) -> wire_replica::Snapshot {
        let issued = UnixSeconds(1_800_000_000);
        snapshot_out(&desired(), Generation(3), Generation(generation), issued)
    }

    fn desired() -> Desired {
        let site = Site::new("s".parse().unwrap(), vec!["10.0.0.0/8".parse().unwrap()]);
        let weight = Weight::new(3).unwrap();
        let id: model::id::ApplianceId = "a1".parse().unwrap();
        let tags = ["loan".parse().unwrap()].into();
        let appliance = Appliance {
            profile: Some(Profile::Flash),
            profile_name: Some("edge-100".parse().unwrap()),
            tags,
            ..Appliance::new(id.clone(), site.id.clone(), weight)
        };
        let drain = Drain { from: UnixSeconds(5), until: Some(UnixSeconds(9)) };
        let drain = Some(drain);
        let registered = Registered { cloned: true, drain, ..Registered::new(appliance) };
        let key = |kid: &str| TokenKey { kid: kid.to_owned(), public_key: [7; 32] };
        let mut catalog = Catalog::default();
        for sequence in 1..=3 {
            catalog.put(Arc::new(version(sequence)));
        }
        Desired {
            sites: Arc::new([(site.id.clone(), site)].into()),
            appliances: Arc::new([(id, registered)].into()),
            catalog: Arc::new(catalog),
            playbacks: Playbacks::new(
                ["lecture".parse().unwrap()].into(),
                [(Session::of_random([7; 12]), UnixSeconds(1_800_000_100))].into(),
            ),
            policy: Policy { copies: 1, versions_kept: 2, ..Policy::default() },
            urgent: BTreeMap::new(),
            wishes: Arc::default(),
            token_keys: vec![key("k1"), key("k2")],
            token_rotation: director::TokenRotation::default(),
            signing_keys: vec![key("s1")],
            withdrawals: BTreeMap::new(),
            revoked: Arc::new(["0a".to_owned()].into()),
        }
    }

    fn version(sequence: u64) -> Version {
        let len = Bytes(5);
        let file = File { object: ObjectId([9; 32]), len, content_type: "video/mp4".into() };
        let files = AssetVersion {
            id: format!("film-{sequence}").parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec!["https://origin.example/".to_owned()],
            modified: UnixSeconds(1),
            pace: None,
            files: BTreeMap::from([("v.mp4".to_owned(), file)]),
        };
        let entry = |path: &str, format| Entry {
            path: path.to_owned(),
            format,
            text: format!("text of {path}").into(),
        };
        let entries = vec![entry("a.m3u8", Format::Hls), entry("b.mpd", Format::Dash)];
        Version::new(Arc::new(files), entries, sequence)
    }
}

//! What to fetch, what to evict, and why not more.
//!
//! **Fetch** in the manifest's order: asset versions as ranked, their files by path. An object
//! that several versions share is fetched once, from any of their sources. An object that finds no
//! room is passed over and reported; smaller ones after it may still fit. While evictions are due
//! it is waited for instead, so that what is wanted most gets the room that comes free.
//!
//! **Evict** what is in no version of the manifest, at once and not when room runs short: control
//! has said that it is not wanted here, room that is free is room that can be promised, and free
//! blocks are what keeps an SSD quick. Bounded per plan, so that a wrong manifest can be corrected
//! while most is still there, and so that deleting never floods a drive.

use std::collections::{BTreeMap, BTreeSet};

use model::id::ObjectId;
use model::manifest::Manifest;
use model::units::Bytes;

/// Bounds of one plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most objects to fetch; the rest comes with the next plan.
    pub fetch_max: usize,
    /// Most objects to evict; the rest comes with the next plan.
    pub evict_max: usize,
    /// Most URLs for one object.
    pub urls_max: usize,
}

/// How things are.
#[derive(Clone, Copy, Debug)]
pub struct Actual<'a> {
    /// Published objects.
    pub held: &'a BTreeSet<ObjectId>,
    /// Objects of which a part is there already; their room is taken.
    pub parts: &'a BTreeSet<ObjectId>,
    /// Objects to leave alone: being fetched right now, or given up for a while.
    pub skip: &'a BTreeSet<ObjectId>,
    /// What is free on each drive in use, reserves taken off.
    pub free: &'a [Bytes],
    /// How much of a drive an object of a length takes.
    pub room: fn(Bytes) -> Bytes,
    /// Something goes that the plan does not name.
    pub room_is_coming: bool,
}

/// What to do next. Carrying it out needs no further decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In this order.
    pub fetch: Vec<Fetch>,
    /// Published, no longer wanted.
    pub evict: Vec<ObjectId>,
    /// Begun, and no longer wanted or published by now.
    pub drop_parts: Vec<ObjectId>,
    /// What it adds up to.
    pub report: Report,
}

/// One object to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Which.
    pub object: ObjectId,
    /// How long.
    pub len: Bytes,
    /// Where its bytes are, best first.
    pub urls: Vec<String>,
}

/// How far fill is, and what stands in its way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects in the manifest, each counted once.
    pub objects_wanted: u64,
    /// Of these, published.
    pub objects_held: u64,
    /// Bytes in the manifest.
    pub bytes_wanted: Bytes,
    /// Of these, published.
    pub bytes_held: Bytes,
    /// Objects that fit on no drive.
    pub objects_without_room: u64,
    /// How much these would take.
    pub bytes_without_room: Bytes,
    /// Objects for a later plan: beyond `fetch_max`, or waiting for room.
    pub objects_later: u64,
    /// Evictions not in this plan: beyond `evict_max`, or of what is left alone now. Who fetches
    /// what a new manifest does not want any more leaves a part, or an object, for a later plan.
    pub evictions_later: u64,
}

struct Wanted<'a> {
    len: Bytes,
    places: Vec<(usize, &'a str)>,
}

/// The way from what is to what should be.
pub fn plan(config: &Config, manifest: &Manifest, actual: &Actual<'_>) -> Plan {
    let (order, wanted) = wanted(manifest);
    let mut plan = Plan::default();
    let unwanted =
        |object: &&ObjectId| !wanted.contains_key(object) && !actual.skip.contains(object);
    let mut evictions = actual.held.iter().filter(unwanted).copied();
    plan.evict = evictions.by_ref().take(config.evict_max).collect();
    let under_way = actual.skip.iter().filter(|object| !wanted.contains_key(*object));
    plan.report.evictions_later = count(evictions.count() + under_way.count());
    // Also of what is published: a drive that comes back may have a part of what another holds.
    let useless = |object: &&ObjectId| {
        unwanted(object) || (actual.held.contains(*object) && !actual.skip.contains(*object))
    };
    plan.drop_parts = actual.parts.iter().filter(useless).copied().collect();

    let mut free = actual.free.to_vec();
    let room_is_coming =
        actual.room_is_coming || !plan.evict.is_empty() || !plan.drop_parts.is_empty();
    let mut waiting = false;
    for object in order {
        let Wanted { len, places } = &wanted[&object];
        let report = &mut plan.report;
        report.objects_wanted += 1;
        report.bytes_wanted += *len;
        if actual.held.contains(&object) {
            report.objects_held += 1;
            report.bytes_held += *len;
        } else if actual.skip.contains(&object) {
            continue;
        } else if waiting || config.fetch_max <= plan.fetch.len() {
            report.objects_later += 1;
        } else if actual.parts.contains(&object) || take(&mut free, (actual.room)(*len)) {
            let urls = urls(manifest, places, config.urls_max);
            plan.fetch.push(Fetch { object, len: *len, urls });
        } else if room_is_coming {
            waiting = true;
            report.objects_later += 1;
        } else {
            report.objects_without_room += 1;
            report.bytes_without_room += *len;
        }
    }
    assert!(plan.fetch.len() <= config.fetch_max && plan.evict.len() <= config.evict_max);
    assert!(plan.report.bytes_held <= plan.report.bytes_wanted);
    plan
}

/// Every object that the manifest wants, in its order, and where each can be had.
fn wanted(manifest: &Manifest) -> (Vec<ObjectId>, BTreeMap<ObjectId, Wanted<'_>>) {
    let (mut order, mut wanted) = (Vec::new(), BTreeMap::new());
    for (version_index, version) in manifest.versions.iter().enumerate() {
        for (path, file) in &version.files {
            let entry = wanted.entry(file.object).or_insert_with(|| {
                order.push(file.object);
                Wanted { len: file.len, places: Vec::new() }
            });
            entry.places.push((version_index, path.as_str()));
        }
    }
    (order, wanted)
}

/// Takes room from the drive that has most; false if none has enough.
fn take(free: &mut [Bytes], need: Bytes) -> bool {
    match free.iter_mut().max() {
        Some(most) if need <= *most => {
            *most -= need;
            true
        }
        Some(_) | None => false,
    }
}

/// First sources of all versions before second ones: they are what control thinks best.
fn urls(manifest: &Manifest, places: &[(usize, &str)], urls_max: usize) -> Vec<String> {
    let version = |place: &(usize, &str)| &manifest.versions[place.0];
    let ranks = places.iter().map(|place| version(place).sources.len()).max().unwrap_or(0);
    let mut urls = Vec::new();
    for rank in 0..ranks {
        for place in places {
            let Some(base) = version(place).sources.get(rank) else { continue };
            let url = format!("{base}{}", percent_encoded(place.1));
            if urls.len() < urls_max && !urls.contains(&url) {
                urls.push(url);
            }
        }
    }
    urls
}

/// A path as it stands in a URL (RFC 3986, section 3.3): all but unreserved and `/` is encoded.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn count(n: usize) -> u64 {
    Bytes::of(n).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::Generation;
    use model::manifest::{AssetVersion, File};
    use model::units::UnixSeconds;
    use proptest::prelude::*;
    use std::sync::Arc;

    const CONFIG: Config = Config { fetch_max: 100, evict_max: 100, urls_max: 8 };

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    /// Versions, each a list of (object, length).
    fn manifest(versions: &[&[(u8, u64)]]) -> Manifest {
        let version = |(i, files): (usize, &&[(u8, u64)])| {
            let file = |(n, len): &(u8, u64)| {
                let content_type = "video/mp4".to_owned();
                let file = File { object: object(*n), len: Bytes(*len), content_type };
                (format!("r{n} é.mp4"), file)
            };
            Arc::new(AssetVersion {
                id: format!("film-{i}").parse().unwrap(),
                asset: "film".parse().unwrap(),
                sources: vec![format!("https://o{i}/"), format!("https://spare{i}/x/")],
                modified: UnixSeconds(0),
                pace: None,
                files: files.iter().map(file).collect(),
            })
        };
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: Vec::new(),
            trust: model::manifest::Trust::default(),
            siblings: BTreeMap::new(),
            versions: versions.iter().enumerate().map(version).collect(),
        }
    }

    fn set(objects: &[u8]) -> BTreeSet<ObjectId> {
        objects.iter().copied().map(object).collect()
    }

    /// An object takes as much as it is long, and no room comes but what the plan makes.
    fn actual<'a>(
        held: &'a BTreeSet<ObjectId>,
        parts: &'a BTreeSet<ObjectId>,
        skip: &'a BTreeSet<ObjectId>,
        free: &'a [Bytes],
    ) -> Actual<'a> {
        Actual { held, parts, skip, free, room: |len| len, room_is_coming: false }
    }

    /// Plans, with `free` on one drive per entry, and says it in one line.
    fn check(versions: &[&[(u8, u64)]], held: &[u8], parts: &[u8], free: &[u64], wanted: &str) {
        let free: Vec<Bytes> = free.iter().copied().map(Bytes).collect();
        let (held, parts, skip) = (set(held), set(parts), set(&[]));
        let actual = actual(&held, &parts, &skip, &free);
        let plan = plan(&CONFIG, &manifest(versions), &actual);
        let ids = |ids: &[ObjectId]| ids.iter().map(|id| id.0[0]).collect::<Vec<_>>();
        let fetch: Vec<u8> = plan.fetch.iter().map(|fetch| fetch.object.0[0]).collect();
        let said = format!(
            "fetch {fetch:?} evict {:?} drop {:?} held {}/{} later {} no room {}",
            ids(&plan.evict),
            ids(&plan.drop_parts),
            plan.report.objects_held,
            plan.report.objects_wanted,
            plan.report.objects_later,
            plan.report.objects_without_room,
        );
        assert_eq!(said, wanted);
    }

    #[test]
    fn the_plan_follows_the_manifest_and_fetches_what_is_shared_once() {
        check(
            &[&[(5, 10), (6, 10)], &[(1, 10), (5, 10)]],
            &[6],
            &[],
            &[100],
            "fetch [5, 1] evict [] drop [] held 1/3 later 0 no room 0",
        );
    }

    #[test]
    fn what_no_version_wants_is_evicted_at_once_even_if_begun() {
        check(
            &[&[(1, 10)]],
            &[1, 2, 3],
            &[4],
            &[100],
            "fetch [] evict [2, 3] drop [4] held 1/1 later 0 no room 0",
        );
        check(&[], &[1], &[], &[], "fetch [] evict [1] drop [] held 0/0 later 0 no room 0");
    }

    #[test]
    fn what_finds_no_room_is_passed_over_unless_room_is_coming() {
        let versions: &[&[(u8, u64)]] = &[&[(1, 60), (2, 60), (3, 50), (4, 40)]];
        let said = "fetch [1, 2, 4] evict [] drop [] held 0/4 later 0 no room 1";
        check(versions, &[], &[], &[60, 100], said);
        let said = "fetch [1] evict [9] drop [] held 0/4 later 3 no room 0";
        check(versions, &[9], &[], &[59, 100], said);
    }

    #[test]
    fn what_is_fetched_and_no_longer_wanted_makes_another_plan_due() {
        let (held, parts, skip) = (set(&[1]), set(&[]), set(&[2]));
        let actual = actual(&held, &parts, &skip, &[]);
        let plan = plan(&CONFIG, &manifest(&[&[(1, 10)]]), &actual);
        assert_eq!((plan.report.objects_held, plan.report.evictions_later), (1, 1));
    }

    #[test]
    fn a_part_of_what_is_published_gives_its_room_back() {
        let said = "fetch [] evict [] drop [1] held 1/1 later 0 no room 0";
        check(&[&[(1, 60)]], &[1], &[1], &[0], said);
    }

    #[test]
    fn a_part_needs_no_room_any_more() {
        let said = "fetch [1] evict [] drop [] held 0/2 later 0 no room 1";
        check(&[&[(1, 60), (2, 60)]], &[], &[1], &[0], said);
    }

    #[test]
    fn plans_are_bounded_and_leave_alone_what_is_under_way() {
        let config = Config { fetch_max: 1, evict_max: 2, urls_max: 3 };
        let (held, parts, skip) = (set(&[10, 11, 12, 13]), set(&[]), set(&[1, 10]));
        let free = [Bytes(1000)];
        let actual = actual(&held, &parts, &skip, &free);
        let plan = plan(&config, &manifest(&[&[(1, 5), (2, 5), (3, 5)], &[(2, 5)]]), &actual);
        assert_eq!(plan.evict, [object(11), object(12)]);
        assert_eq!((plan.report.evictions_later, plan.report.objects_later), (2, 1));
        let urls = ["https://o0/", "https://o1/", "https://spare0/x/"];
        let urls = urls.map(|base| format!("{base}r2%20%C3%A9.mp4")).to_vec();
        assert_eq!(plan.fetch, [Fetch { object: object(2), len: Bytes(5), urls }]);
    }

    proptest! {
        #[test]
        fn plan_after_plan_leads_to_the_manifest(
            versions in prop::collection::vec(prop::collection::vec(0u8..20, 0..6), 0..5),
            held: Vec<u8>,
            fetch_max in 1usize..4,
            evict_max in 1usize..4,
        ) {
            let files: Vec<Vec<(u8, u64)>> =
                versions.iter().map(|ids| ids.iter().map(|id| (*id, 10)).collect()).collect();
            let files: Vec<&[(u8, u64)]> = files.iter().map(Vec::as_slice).collect();
            let manifest = manifest(&files);
            let wanted: BTreeSet<u8> = versions.iter().flatten().copied().collect();
            let config = Config { fetch_max, evict_max, urls_max: 8 };
            let (mut held, none) = (set(&held), set(&[]));
            let drives = 300u64;
            for _ in 0..300 {
                let free = [Bytes(drives.saturating_sub(Bytes::of(held.len()).0 * 10))];
                let actual = actual(&held, &none, &none, &free);
                let plan = plan(&config, &manifest, &actual);
                if plan.fetch.is_empty() && plan.evict.is_empty() {
                    break;
                }
                held.extend(plan.fetch.iter().map(|fetch| fetch.object));
                plan.evict.iter().for_each(|object| { held.remove(object); });
            }
            let ids: Vec<u8> = wanted.into_iter().collect();
            prop_assert_eq!(held, set(&ids));
        }
    }
}

//! What control expects viewers to be sent, in the objects of a manifest.
//!
//! ```text
//! items, best first, by numbers of files ── objects ──> objects, the beginning of each item first
//!                                                          ├──> heat::expect ──> tier
//!                                                          └── first_blocks ──> memory of workers
//! ```

use std::collections::{BTreeMap, BTreeSet};

use model::expected::{ExpectedItem, ExpectedObject, FirstBlocks};
use model::id::{AssetVersionId, ObjectId};
use model::limits::SMALL_OBJECT_MAX;
use model::manifest::{AssetVersion, Manifest};
use model::object::{BLOCK_LEN, block_count};
use model::units::Bytes;

/// The files of a version by number: the place of each in the order of paths, and its object.
type Numbered = BTreeMap<u32, (usize, ObjectId, Bytes)>;

/// The objects of these items, each once, items in their order and the files of one in that of
/// their paths. What the manifest does not have is left out. O(files log files) of the versions
/// that are named.
pub fn objects(manifest: &Manifest, items: &[ExpectedItem]) -> Vec<ExpectedObject> {
    let versions: BTreeMap<&AssetVersionId, &AssetVersion> =
        manifest.versions.iter().map(|version| (&version.id, &**version)).collect();
    let mut numbered: BTreeMap<&AssetVersionId, Numbered> = BTreeMap::new();
    let (mut objects, mut seen) = (Vec::new(), BTreeSet::new());
    for item in items {
        let Some(version) = versions.get(&item.version) else { continue };
        let files = numbered.entry(&item.version).or_insert_with(|| by_number(manifest, version));
        // There may be more numbers than files, if a newer or an older manifest is meant.
        let found = item.files.iter().filter_map(|number| files.get(&number));
        let mut found: Vec<_> = found.copied().collect();
        found.sort_unstable();
        for (_, object, len) in found.into_iter().filter(|(_, object, _)| seen.insert(*object)) {
            let day = (u128::from(len.0) * u128::from(item.day_per_mib.0)) >> 20;
            let day = Bytes(u64::try_from(day).unwrap_or(u64::MAX));
            objects.push(ExpectedObject { object, len, day });
        }
    }
    objects
}

fn by_number(manifest: &Manifest, version: &AssetVersion) -> Numbered {
    let numbers = manifest.numbers_of(version).map(|(numbers, _)| numbers).unwrap_or_default();
    let numbers: BTreeMap<ObjectId, u32> = numbers.into_iter().collect();
    let mut files = Numbered::new();
    for (place, file) in version.files.values().enumerate() {
        if let Some(number) = numbers.get(&file.object) {
            files.entry(*number).or_insert((place, file.object, file.len));
        }
    }
    files
}

/// The first blocks of these, as many as fit into so much memory, ascending by object. Small
/// objects are in memory anyway. O(objects log objects) of those.
pub fn first_blocks(objects: &[ExpectedObject], memory: Bytes) -> Vec<FirstBlocks> {
    let (mut left, mut first) = (memory.0 / BLOCK_LEN.0, Vec::new());
    for ExpectedObject { object, len, .. } in objects.iter().filter(|of| SMALL_OBJECT_MAX < of.len)
    {
        let count = block_count(*len).min(left);
        if count == 0 {
            break;
        }
        left -= count;
        first.push(FirstBlocks { object: *object, count });
    }
    first.sort_unstable();
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::Generation;
    use model::manifest::{File, FileNumbers, Trust};
    use model::number::NumberSet;
    use model::units::UnixSeconds;
    use std::sync::Arc;

    /// Objects in the order of their paths, each of so many MiB, with numbers from `first` on.
    fn version(name: &str, objects: &[(u8, u64)]) -> Arc<AssetVersion> {
        let file = |(n, mib): &(u8, u64)| File {
            object: ObjectId([*n; 32]),
            len: Bytes::mib(*mib),
            content_type: "video/mp4".into(),
        };
        let files = objects.iter().enumerate().map(|(at, of)| (format!("{at}.mp4"), file(of)));
        Arc::new(AssetVersion {
            id: name.parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(0),
            pace: None,
            files: files.collect(),
        })
    }

    fn manifest() -> Manifest {
        let part = FileNumbers { first: 800, part: Some(Arc::new([1, 4].into())) };
        Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: Vec::new(),
            trust: Trust::default(),
            // The object that is first by its id is last by its path.
            versions: vec![
                version("film-1", &[(3, 1), (2, 1), (1, 2)]),
                version("film-2", &[(8, 1), (9, 4)]),
                version("film-3", &[(5, 1)]),
            ],
            numbers: [("film-1", 700.into()), ("film-2", part)]
                .map(|(id, numbers)| (id.parse().unwrap(), numbers))
                .into(),
            siblings: BTreeMap::new(),
            site: Vec::new(),
        }
    }

    fn item(version: &str, files: impl IntoIterator<Item = u32>, mib: u64) -> ExpectedItem {
        let files = files.into_iter().collect::<NumberSet>();
        ExpectedItem { version: version.parse().unwrap(), files, day_per_mib: Bytes::mib(mib) }
    }

    fn found(items: &[ExpectedItem]) -> Vec<(u8, u64)> {
        let found = objects(&manifest(), items);
        found.iter().map(|of| (of.object.0[0], of.day.0 >> 20)).collect()
    }

    #[test]
    fn files_of_an_item_come_in_the_order_of_their_paths() {
        assert_eq!(found(&[item("film-1", 700..703, 10)]), [(3, 10), (2, 10), (1, 20)]);
        let both = [item("film-2", [804, 801], 9), item("film-1", [701], 5)];
        assert_eq!(found(&both), [(8, 9), (9, 36), (2, 5)], "a part has the numbers of the whole");
        assert_eq!(
            found(&[item("film-1", [701], 9), item("film-1", 700..702, 5)]),
            [(2, 9), (1, 10)]
        );
    }

    #[test]
    fn what_the_manifest_does_not_have_is_left_out() {
        assert_eq!(found(&[item("film-9", 700..703, 10), item("film-1", [699, 703], 10)]), []);
        assert_eq!(found(&[item("film-2", 800..805, 1)]), [(8, 1), (9, 4)]);
        assert_eq!(found(&[item("film-3", [0], 10)]), [], "it has no numbers");
        let all = [item("film-1", [700], u64::MAX >> 20)];
        assert_eq!(objects(&manifest(), &all)[0].day, Bytes(u64::MAX));
    }

    #[test]
    fn memory_is_for_the_beginning_of_what_is_expected_most() {
        let objects =
            objects(&manifest(), &[item("film-2", [804], 9), item("film-1", 700..703, 5)]);
        let first = |mib| {
            let first = first_blocks(&objects, Bytes::mib(mib));
            first.iter().map(|of| (of.object.0[0], of.count)).collect::<Vec<_>>()
        };
        assert_eq!(first(0), []);
        assert_eq!(first(3), [(9, 12)], "the beginning of one");
        assert_eq!(first(6), [(2, 4), (3, 4), (9, 16)]);
        assert_eq!(first(99), [(1, 8), (2, 4), (3, 4), (9, 16)], "all, by their names");
        let small = ExpectedObject { len: SMALL_OBJECT_MAX, ..objects[0] };
        assert_eq!(first_blocks(&[small], Bytes::mib(9)), []);
    }
}

//! Decides which small objects share a file: those that die together lie together.
//!
//! ```text
//! asset version, by folder ──> objects of a unit or more       a file each
//!                         └──> smaller ones, in their order    [unit][unit][rest]
//! ```
//!
//! A *rendition* is what one asset version has in one folder: that is how packagers lay segments
//! out, control sends versions whole, and an operator drops renditions. No unit has objects of two.
//! A rest below half a unit goes into the unit before it, which is then at most half too long: a
//! drive moves less for a unit that is too long than for one that is too short.

use std::collections::{BTreeMap, BTreeSet};

use model::id::ObjectId;
use model::manifest::AssetVersion;
use model::units::Bytes;

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The drive's superblock, or the size that stands for it.
    pub unit_len: Bytes,
    pub objects_max: usize,
    /// How much of a unit an object of a length takes.
    pub room: fn(Bytes) -> Bytes,
}

/// The objects that share a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pack {
    /// In this order.
    pub objects: Vec<(ObjectId, Bytes)>,
    /// The room that they take together.
    pub room: Bytes,
}

/// How an asset version is laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Packing {
    /// Objects with a file of their own: large ones, and those that would be alone in a unit.
    pub alone: Vec<(ObjectId, Bytes)>,
    pub units: Vec<Pack>,
}

/// How the objects of an asset version are laid out of which `held` are on a drive already. An
/// object that has several paths is placed once, with its first.
pub fn pack(config: &Config, version: &AssetVersion, held: &BTreeSet<ObjectId>) -> Packing {
    assert!(0 < config.unit_len.0 && 1 < config.objects_max, "a unit has room for two objects");
    let mut renditions: BTreeMap<&str, Vec<(ObjectId, Bytes)>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut packing = Packing::default();
    for (path, file) in &version.files {
        if held.contains(&file.object) || !seen.insert(file.object) {
            continue;
        }
        if config.unit_len <= (config.room)(file.len) {
            packing.alone.push((file.object, file.len));
        } else {
            let folder = path.as_str().rsplit_once('/').map_or("", |(folder, _)| folder);
            renditions.entry(folder).or_default().push((file.object, file.len));
        }
    }
    for objects in renditions.values() {
        for unit in units(config, objects) {
            match unit.objects.as_slice() {
                [one] => packing.alone.push(*one),
                _ => packing.units.push(unit),
            }
        }
    }
    let is_small = |unit: &Pack| unit.objects.len() <= config.objects_max;
    assert!(packing.units.iter().all(is_small), "a unit has a directory");
    packing
}

fn units(config: &Config, objects: &[(ObjectId, Bytes)]) -> Vec<Pack> {
    let mut units: Vec<Pack> = Vec::new();
    for (object, len) in objects {
        let room = (config.room)(*len);
        let fits = |unit: &&mut Pack| {
            unit.objects.len() < config.objects_max && unit.room + room <= config.unit_len
        };
        match units.last_mut().filter(fits) {
            Some(unit) => {
                unit.objects.push((*object, *len));
                unit.room += room;
            }
            None => units.push(Pack { objects: vec![(*object, *len)], room }),
        }
    }
    if let [.., before, rest] = units.as_mut_slice()
        && rest.room.0 < config.unit_len.0 / 2
        && before.objects.len() + rest.objects.len() <= config.objects_max
    {
        before.objects.append(&mut rest.objects);
        before.room += rest.room;
        units.pop();
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::manifest::File;
    use model::units::UnixSeconds;
    use proptest::prelude::*;

    const CONFIG: Config = Config { unit_len: Bytes(100), objects_max: 6, room: |len| len };

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    fn version(files: &[(&str, u8, u64)]) -> AssetVersion {
        let file = |(path, n, len): &(&str, u8, u64)| {
            let content_type = "video/mp4".into();
            let file = File { object: object(*n), len: Bytes(*len), content_type };
            ((*path).to_owned(), file)
        };
        AssetVersion {
            id: "film-1".parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(0),
            pace: None,
            files: files.iter().map(file).collect(),
        }
    }

    /// Packs, and says it in one line.
    fn check(files: &[(&str, u8, u64)], held: &[u8], wanted: &str) {
        let held = held.iter().copied().map(object).collect();
        let packing = pack(&CONFIG, &version(files), &held);
        let names = |objects: &[(ObjectId, Bytes)]| {
            objects.iter().map(|(object, _)| object.0[0]).collect::<Vec<_>>()
        };
        let units: Vec<_> = packing.units.iter().map(|unit| names(&unit.objects)).collect();
        assert_eq!(format!("alone {:?} units {units:?}", names(&packing.alone)), wanted);
    }

    #[test]
    fn renditions_are_folders_and_never_share_a_unit() {
        let files = [("a/1", 1, 40), ("a/2", 2, 40), ("b/1", 3, 40), ("b/2", 4, 10), ("c", 5, 1)];
        check(&files, &[], "alone [5] units [[1, 2], [3, 4]]");
    }

    #[test]
    fn what_is_as_long_as_a_unit_has_a_file_of_its_own() {
        let files = [("a/1", 1, 100), ("a/2", 2, 99), ("a/3", 3, 60)];
        check(&files, &[], "alone [1, 2, 3] units []");
    }

    #[test]
    fn a_short_rest_joins_the_unit_before_it_and_a_long_one_stays() {
        let files = [("1", 1, 50), ("2", 2, 50), ("3", 3, 30), ("4", 4, 19)];
        check(&files, &[], "alone [] units [[1, 2, 3, 4]]");
        let files = [("1", 1, 50), ("2", 2, 50), ("3", 3, 30), ("4", 4, 20)];
        check(&files, &[], "alone [] units [[1, 2], [3, 4]]");
    }

    #[test]
    fn what_is_held_and_what_has_two_paths_is_placed_once_or_not() {
        let files = [("a/1", 1, 10), ("a/2", 2, 10), ("a/3", 3, 10), ("b/1", 1, 10)];
        check(&files, &[3], "alone [] units [[1, 2]]");
        check(&files, &[1, 2, 3], "alone [] units []");
    }

    #[test]
    fn a_unit_has_so_many_objects_and_no_more() {
        let names: Vec<String> = (10..18).map(|n| n.to_string()).collect();
        let files: Vec<(&str, u8, u64)> =
            (1..).zip(&names).map(|(n, name)| (name.as_str(), n, 1)).collect();
        check(&files, &[], "alone [] units [[1, 2, 3, 4, 5, 6], [7, 8]]");
    }

    proptest! {
        #[test]
        fn every_object_is_placed_once_and_units_keep_their_bounds(
            files in prop::collection::vec((0u8..4, 0u8..30, 0u64..130), 0..60),
            held: Vec<u8>,
        ) {
            let names: Vec<String> =
                (0..).zip(&files).map(|(n, file): (u32, _)| format!("{}/{n:03}", file.0)).collect();
            let files = names.iter().zip(&files).map(|(name, file)| (&**name, file.1, file.2));
            let files: Vec<(&str, u8, u64)> = files.collect();
            let version = version(&files);
            let held: BTreeSet<ObjectId> = held.iter().map(|n| object(*n)).collect();
            let packing = pack(&CONFIG, &version, &held);
            let packed = packing.units.iter().flat_map(|unit| &unit.objects);
            let placed: Vec<ObjectId> = packing.alone.iter().chain(packed).map(|o| o.0).collect();
            let distinct: BTreeSet<ObjectId> = placed.iter().copied().collect();
            prop_assert_eq!(distinct.len(), placed.len());
            let wanted = version.files.values().map(|file| file.object);
            let wanted: BTreeSet<ObjectId> = wanted.filter(|id| !held.contains(id)).collect();
            prop_assert_eq!(distinct, wanted);
            for unit in &packing.units {
                prop_assert!((2..=CONFIG.objects_max).contains(&unit.objects.len()));
                prop_assert!(unit.room.0 < CONFIG.unit_len.0 * 3 / 2);
                let sum: u64 = unit.objects.iter().map(|(_, len)| len.0).sum();
                prop_assert_eq!(unit.room, Bytes(sum));
            }
        }
    }
}

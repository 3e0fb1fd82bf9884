//! Parcels, each fetched into one file: small objects that die together, and every other by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use fill::pack::{self, pack};
use fill::plan::Fetch;
use model::id::ObjectId;
use model::manifest::Manifest;
use model::units::Bytes;
use store::unit;

/// Which objects of a manifest share a unit, by the unit's number; an object that is alone has
/// none. It follows from the manifest alone, whatever is held: so a restart plans the same units.
pub(crate) fn units_of(unit_len: Option<Bytes>, manifest: &Manifest) -> BTreeMap<ObjectId, usize> {
    let Some(unit_len) = unit_len else { return BTreeMap::new() };
    let config = pack::Config { unit_len, objects_max: unit::OBJECTS_MAX / 4, room: unit::room };
    let (mut seen, mut unit_of, mut count) = (BTreeSet::new(), BTreeMap::new(), 0);
    for version in &manifest.versions {
        for unit in pack(&config, version, &seen).units {
            unit_of.extend(unit.objects.into_iter().map(|(object, _)| (object, count)));
            count += 1;
        }
        seen.extend(version.files.values().map(|file| file.object));
    }
    unit_of
}

/// A plan's objects, by the files that they go to; a file's place is that of its first object. One
/// that has a part file already goes on alone. If the plan was cut (`is_cut`), its last unit may
/// be: it is left to the next plan, unless there is nothing else to do.
pub(crate) fn parcels(
    unit_of: &BTreeMap<ObjectId, usize>,
    has_part: impl Fn(&ObjectId) -> bool,
    fetch: Vec<Fetch>,
    is_cut: bool,
) -> VecDeque<Vec<Fetch>> {
    let mut parcels: VecDeque<Vec<Fetch>> = VecDeque::new();
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for fetch in fetch {
        let unit = unit_of.get(&fetch.object).filter(|_| !has_part(&fetch.object));
        let place =
            unit.map_or(parcels.len(), |unit| *places.entry(*unit).or_insert(parcels.len()));
        match parcels.get_mut(place) {
            Some(parcel) => parcel.push(fetch),
            None => parcels.push_back(vec![fetch]),
        }
    }
    assert!(parcels.iter().all(|parcel| !parcel.is_empty()), "a file has an object");
    let last = parcels.back().and_then(|parcel| unit_of.get(&parcel.last()?.object));
    if is_cut && last.is_some() && 1 < parcels.len() {
        parcels.pop_back();
    }
    parcels
}

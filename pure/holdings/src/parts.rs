//! Part files: the one of each object or unit that fill goes on with, and spare ones, which go with
//! the next plan.

use std::collections::{BTreeMap, BTreeSet};

use model::drives::DriveIndex;
use model::extent::Extent;
use model::id::ObjectId;
use model::units::Bytes;
use store::parcel::{Parcel, PartId};
use store::unit::{self, UnitId};

use crate::Holdings;

/// A part file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub drive: DriveIndex,
    /// Its bytes that are known to be good.
    pub verified: Bytes,
}

impl Holdings {
    /// Part files.
    pub fn parts(&self) -> &BTreeMap<PartId, Part> {
        &self.parts
    }

    /// Parts that nobody goes on with, and that are still there.
    pub fn spare_parts(&self) -> &BTreeSet<(PartId, DriveIndex)> {
        &self.spare_parts
    }

    /// A part file found at the start; the first drive that has it wins.
    pub fn load_part(&mut self, part: PartId, drive: DriveIndex) {
        if self.parts.get(&part).is_some_and(|known| known.drive != drive) {
            self.spare_parts.insert((part, drive));
        } else {
            self.put_part(part, Some(Part { drive, verified: Bytes::ZERO }));
        }
    }

    /// How much of a part is good, for the reports; none when there is no part any more. One that
    /// another drive has of the same is spare from now on.
    pub fn set_part(&mut self, id: PartId, part: Option<Part>) {
        let before = self.put_part(id, part).map(|before| before.drive);
        if let Some(part) = part {
            self.spare_parts.remove(&(id, part.drive));
            self.is_spare(id, before.filter(|on| *on != part.drive));
        }
    }

    /// The part of this drive is not there any more.
    pub fn dropped_part(&mut self, id: PartId, drive: DriveIndex) {
        let was_spare = self.spare_parts.remove(&(id, drive));
        if !was_spare && self.parts.get(&id).is_some_and(|part| part.drive == drive) {
            self.set_part(id, None);
        }
    }

    /// An object is whole there: a part of it is of no use, unless it has become just that file.
    pub(crate) fn give_up_part(&mut self, object: ObjectId, extent: &Extent) {
        let id = PartId::Object(object);
        let part = self.put_part(id, None).map(|part| part.drive);
        let became = |on: &DriveIndex| *on == extent.drive && unit::of_file(&extent.file).is_none();
        self.is_spare(id, part.filter(|on| !became(on)));
    }

    /// The part on this drive goes with a plan, which nothing else may be due for.
    fn is_spare(&mut self, id: PartId, on: Option<DriveIndex>) {
        if let Some(drive) = on {
            self.spare_parts.insert((id, drive));
            self.replan();
        }
    }

    /// A spare part of an object or unit that has no other part and is not held.
    pub(crate) fn next_good_spare(&self) -> Option<(PartId, DriveIndex)> {
        let is_good = |(part, _): &&(PartId, DriveIndex)| {
            !self.parts.contains_key(part)
                && match part {
                    PartId::Object(object) => self.index.locate(object).is_none(),
                    PartId::Unit(_) => true, // One that is not wanted goes with the next plan.
                }
        };
        self.spare_parts.iter().find(is_good).copied()
    }

    /// Parts of units that nobody fills, that do not wait for a master, and that the queue does not
    /// go on with.
    pub(crate) fn units_without_use(&self) -> Vec<UnitId> {
        let of_unit = |part: &PartId| match part {
            PartId::Unit(unit) if self.waits.keeps(unit) => None,
            PartId::Unit(unit) if !self.busy_units.contains(unit) => Some(*unit),
            PartId::Unit(_) | PartId::Object(_) => None,
        };
        let mut units: Vec<UnitId> = self.parts.keys().filter_map(of_unit).collect();
        if !units.is_empty() {
            let planned = self.queue.iter().map(|fetch| {
                let objects: Vec<_> = fetch.iter().map(|of| (of.object, of.len)).collect();
                Parcel::new(&objects).map(|parcel| parcel.part())
            });
            let planned: BTreeSet<PartId> = planned.flatten().collect();
            units.retain(|unit| !planned.contains(&PartId::Unit(*unit)));
        }
        units
    }

    /// There is this part from now on, or none; returns that before.
    pub(crate) fn put_part(&mut self, id: PartId, part: Option<Part>) -> Option<Part> {
        self.bytes_partial += part.map_or(Bytes::ZERO, |part| part.verified);
        let before = match part {
            Some(part) => self.parts.insert(id, part),
            None => self.parts.remove(&id),
        };
        let len = before.map_or(Bytes::ZERO, |before| before.verified);
        assert!(len <= self.bytes_partial, "what is good of a part is counted");
        self.bytes_partial -= len;
        if let PartId::Object(object) = id
            && before.is_some() != part.is_some()
        {
            self.refresh(object, None);
        }
        before
    }
}

//! Where each published object lies. What is not here is not served.
//!
//! One index covers all drives of an appliance. Each worker owns a copy and applies the same
//! updates, so a look-up takes no lock. A `BTreeMap`: its order is the same in every run, and
//! 100,000 objects are found in under twenty comparisons.

use std::collections::BTreeMap;
use std::ops::Bound;

use model::extent::{DriveIndex, Extent};
use model::id::ObjectId;
use model::inventory::Check;
use model::limits::DIRECT_ALIGN;

/// Object to extent. An object has at most one extent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Invariant: every extent begins at a multiple of `DIRECT_ALIGN`.
    extents: BTreeMap<ObjectId, Extent>,
    /// Invariant: of what each drive has in `extents`.
    checks: BTreeMap<DriveIndex, Check>,
}

impl Index {
    /// An index without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `object` visible at `extent`; returns where it was before, if it was.
    pub fn publish(&mut self, object: ObjectId, extent: Extent) -> Option<Extent> {
        assert!(
            extent.offset.0.is_multiple_of(DIRECT_ALIGN.0),
            "object {object} begins at {}, which direct I/O cannot read",
            extent.offset
        );
        self.checks.entry(extent.drive).or_default().put(&object);
        let before = self.extents.insert(object, extent);
        self.went(&object, before.as_ref());
        before
    }

    /// Takes `object` out; returns where it was, if it was.
    pub fn remove(&mut self, object: &ObjectId) -> Option<Extent> {
        let before = self.extents.remove(object);
        self.went(object, before.as_ref());
        before
    }

    fn went(&mut self, object: &ObjectId, from: Option<&Extent>) {
        if let Some(check) = from.and_then(|extent| self.checks.get_mut(&extent.drive)) {
            check.take(object);
        }
    }

    /// Takes out all that `drive` holds, and says what that was: the drive was set aside.
    pub fn remove_drive(&mut self, drive: DriveIndex) -> Vec<ObjectId> {
        self.checks.remove(&drive);
        let gone = self.extents.extract_if(.., |_, extent| extent.drive == drive);
        gone.map(|(object, _)| object).collect()
    }

    /// Where `object` lies, if it is published.
    pub fn locate(&self, object: &ObjectId) -> Option<&Extent> {
        let extent = self.extents.get(object)?;
        debug_assert!(extent.offset.0.is_multiple_of(DIRECT_ALIGN.0), "checked by publish");
        Some(extent)
    }

    /// The first object on `drive` whose id is above `after`; the very first if that is none.
    pub fn next_on(
        &self,
        drive: DriveIndex,
        after: Option<ObjectId>,
    ) -> Option<(ObjectId, &Extent)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut objects = self.extents.range((from, Bound::Unbounded));
        let (object, extent) = objects.find(|(_, extent)| extent.drive == drive)?;
        Some((*object, extent))
    }

    /// How many objects are published.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// The check of all objects on these drives.
    pub fn check(&self, drives: impl Fn(DriveIndex) -> bool) -> Check {
        let of = self.checks.iter().filter(|(drive, _)| drives(**drive)).map(|(_, check)| *check);
        of.fold(Check::default(), Check::and)
    }

    /// True if nothing is published.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// All objects, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Extent)> {
        self.extents.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::extent::FileName;
    use model::units::Bytes;

    fn object(n: u8) -> ObjectId {
        ObjectId([n; 32])
    }

    fn on(drive: u8) -> Extent {
        let file = FileName("objects/ab/abab".into());
        Extent { drive: DriveIndex(drive), file, offset: Bytes::ZERO, len: Bytes(5) }
    }

    #[test]
    fn what_was_published_is_located_until_it_is_removed() {
        let mut index = Index::new();
        assert_eq!(index.locate(&object(1)), None);
        assert_eq!(index.publish(object(1), on(0)), None);
        assert_eq!(index.locate(&object(1)), Some(&on(0)));
        assert_eq!(index.publish(object(1), on(1)), Some(on(0)), "the newer place wins");
        assert_eq!(index.len(), 1);
        assert_eq!(index.remove(&object(1)), Some(on(1)));
        assert!(index.is_empty() && index.remove(&object(1)).is_none());
    }

    #[test]
    fn a_drive_takes_only_its_own_objects() {
        let mut index = Index::new();
        for n in 0..9 {
            index.publish(object(n), on(n % 3));
        }
        assert_eq!(index.remove_drive(DriveIndex(1)), [object(1), object(4), object(7)]);
        assert_eq!(index.len(), 6);
        let rest = [0, 2, 3, 5, 6, 8].map(object);
        assert_eq!(index.check(|_| true), Check::of(&rest));
        index.publish(object(0), on(2));
        assert_eq!(index.check(|drive| drive == DriveIndex(0)), Check::of(&[object(3), object(6)]));
        index.remove(&object(3));
        assert_eq!(index.check(|drive| drive == DriveIndex(0)), Check::of(&[object(6)]));
        assert!(index.iter().all(|(_, extent)| extent.drive != DriveIndex(1)));
    }

    #[test]
    #[should_panic(expected = "direct I/O cannot read")]
    fn an_unaligned_extent_is_our_own_mistake() {
        Index::new().publish(object(1), Extent { offset: Bytes(512), ..on(0) });
    }

    #[test]
    fn the_objects_of_a_drive_come_one_after_the_other() {
        let mut index = Index::new();
        for (n, drive) in [(1, 0), (2, 1), (3, 0), (4, 1)] {
            index.publish(object(n), on(drive));
        }
        let next = |after: Option<u8>| {
            let found = index.next_on(DriveIndex(1), after.map(object));
            found.map(|(object, _)| object.0[0])
        };
        assert_eq!(
            [next(None), next(Some(2)), next(Some(3)), next(Some(4))],
            [Some(2), Some(4), Some(4), None]
        );
    }
}

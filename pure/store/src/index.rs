//! The extent of each published object. An object that is not here is not served.
//!
//! One index covers all drives of an appliance. Each worker owns a copy and applies the same
//! updates, so a look-up takes no lock. `BTreeMap`s: their order is the same in every run, and
//! 100,000 objects are found in under twenty comparisons. What is on a drive is kept beside it
//! (some 45 bytes an object), so that a drive that goes costs what is on it and not all there is.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Invariant: with `leaving`, the objects of `extents` by drive, each in one of them; no drive
    /// without any.
    on_drives: BTreeMap<DriveIndex, OnDrive>,
    /// The objects of drives that were set aside, as far as they have neither been taken out nor
    /// been published anew. A drive that is back may have some, and others in `on_drives`.
    leaving: BTreeMap<DriveIndex, BTreeSet<ObjectId>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OnDrive {
    objects: BTreeSet<ObjectId>,
    /// Invariant: of `objects`.
    check: Check,
}

impl Index {
    /// An index without objects.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes `object` visible at `extent`; returns where it was before, if it was, also if nobody
    /// saw it there because its drive was set aside.
    pub fn publish(&mut self, object: ObjectId, extent: Extent) -> Option<Extent> {
        assert!(
            extent.offset.0.is_multiple_of(DIRECT_ALIGN.0),
            "object {object} begins at {}, which direct I/O cannot read",
            extent.offset
        );
        let drive = extent.drive;
        let before = self.extents.insert(object, extent);
        if let Some(Extent { drive: old, .. }) = &before {
            self.leaves(*old, &object);
        }
        let there = self.on_drives.entry(drive).or_default();
        assert!(there.objects.insert(object), "object {object} lies in one place");
        there.check.put(&object);
        before
    }

    /// Takes `object` out; returns where it was, if it was.
    pub fn remove(&mut self, object: &ObjectId) -> Option<Extent> {
        let before = self.extents.remove(object)?;
        self.leaves(before.drive, object);
        Some(before)
    }

    /// Shows nothing of `drive` any more, which was set aside. Its objects are taken out by
    /// `forget_some`: of a million that takes a second.
    pub fn set_aside(&mut self, drive: DriveIndex) {
        if let Some(mut there) = self.on_drives.remove(&drive) {
            self.leaving.entry(drive).or_default().append(&mut there.objects);
        }
    }

    /// Takes out and returns at most so many objects of drives that were set aside; none if there
    /// are none left.
    pub fn forget_some(&mut self, most: usize) -> Vec<ObjectId> {
        let Some(mut drive) = self.leaving.first_entry() else { return Vec::new() };
        let objects = drive.get_mut();
        let some: Vec<ObjectId> = std::iter::from_fn(|| objects.pop_first()).take(most).collect();
        if objects.is_empty() {
            drive.remove();
        }
        for object in &some {
            let extent = self.extents.remove(object);
            assert!(extent.is_some(), "object {object} lies on the drive that names it");
        }
        some
    }

    /// True while `forget_some` has objects to take out.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Where `object` lies, if it is published.
    pub fn locate(&self, object: &ObjectId) -> Option<&Extent> {
        let extent = self.extents.get(object)?;
        if self.leaving.get(&extent.drive).is_some_and(|objects| objects.contains(object)) {
            return None;
        }
        debug_assert!(extent.offset.0.is_multiple_of(DIRECT_ALIGN.0), "checked by publish");
        Some(extent)
    }

    /// The objects on `drive` whose ids are above `after`, in order; all if that is none.
    pub fn on(
        &self,
        drive: DriveIndex,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = (&ObjectId, &Extent)> {
        self.ids_on(drive, after).map(|object| (object, &self.extents[object]))
    }

    /// The same, and not where each lies: that is looked up.
    pub fn ids_on(
        &self,
        drive: DriveIndex,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = &ObjectId> {
        let there = self.on_drives.get(&drive).into_iter();
        there.flat_map(move |there| there.objects.range(above(after)))
    }

    /// How many objects are published.
    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// The check of all objects on these drives.
    pub fn check(&self, drives: impl Fn(DriveIndex) -> bool) -> Check {
        let of = self.on_drives.iter().filter(|(drive, _)| drives(**drive));
        of.fold(Check::default(), |all, (_, there)| all.and(there.check))
    }

    /// True if nothing is published.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// All objects, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectId, &Extent)> {
        self.extents.iter()
    }

    /// Those whose ids are above `after`; all if that is none.
    pub fn iter_above(
        &self,
        after: Option<ObjectId>,
    ) -> impl Iterator<Item = (&ObjectId, &Extent)> {
        self.extents.range(above(after))
    }

    fn leaves(&mut self, drive: DriveIndex, object: &ObjectId) {
        if let Some(objects) = self.leaving.get_mut(&drive)
            && objects.remove(object)
        {
            if objects.is_empty() {
                self.leaving.remove(&drive);
            }
            return;
        }
        let there = self.on_drives.get_mut(&drive).expect("a drive with objects is known");
        assert!(there.objects.remove(object), "its drive names object {object}");
        there.check.take(object);
        if there.objects.is_empty() {
            self.on_drives.remove(&drive);
        }
    }
}

fn above(after: Option<ObjectId>) -> (Bound<ObjectId>, Bound<ObjectId>) {
    (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded)
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
        index.set_aside(DriveIndex(1));
        assert!([1, 4, 7].iter().all(|n| index.locate(&object(*n)).is_none()));
        index.publish(object(4), on(0));
        index.remove(&object(4));
        assert_eq!(index.forget_some(1), [object(1)]);
        assert!(index.is_leaving());
        assert_eq!((index.forget_some(9), index.forget_some(9)), (vec![object(7)], vec![]));
        assert_eq!((index.len(), index.is_leaving()), (6, false));
        let rest = [0, 2, 3, 5, 6, 8].map(object);
        assert_eq!(index.check(|_| true), Check::of(&rest));
        index.publish(object(0), on(2));
        assert_eq!(index.check(|drive| drive == DriveIndex(0)), Check::of(&[object(3), object(6)]));
        index.remove(&object(3));
        assert_eq!(index.check(|drive| drive == DriveIndex(0)), Check::of(&[object(6)]));
        assert!(index.iter().all(|(_, extent)| extent.drive != DriveIndex(1)));
    }

    #[test]
    fn a_drive_that_is_back_shows_what_was_published_since_and_nothing_else() {
        let mut index = Index::new();
        (0..5).for_each(|n| drop(index.publish(object(n), on(1))));
        index.set_aside(DriveIndex(1));
        assert_eq!(index.publish(object(3), on(1)), Some(on(1)));
        assert_eq!(index.publish(object(7), on(1)), None);
        let seen = |index: &Index| -> Vec<u8> {
            (0..9).filter(|n| index.locate(&object(*n)).is_some()).collect()
        };
        assert_eq!(seen(&index), [3, 7]);
        assert_eq!(index.check(|_| true), Check::of(&[object(3), object(7)]));
        // It goes once more before all of the first time was taken out.
        assert_eq!(index.forget_some(2), [object(0), object(1)]);
        index.set_aside(DriveIndex(1));
        assert_eq!(seen(&index), []);
        index.publish(object(2), on(0));
        index.publish(object(3), on(1));
        index.remove(&object(7));
        assert_eq!(index.forget_some(9), [object(4)]);
        assert_eq!((seen(&index), index.len(), index.is_leaving()), (vec![2, 3], 2, false));
    }

    #[test]
    fn who_changes_drives_leaves_the_old_one() {
        let mut index = Index::new();
        index.publish(object(1), on(0));
        index.publish(object(1), on(1));
        assert!(index.on(DriveIndex(0), None).next().is_none());
        index.set_aside(DriveIndex(0));
        assert!(index.forget_some(9).is_empty() && index.len() == 1);
        index.remove(&object(1));
        assert_eq!(index, Index::new());
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
            let found = index.on(DriveIndex(1), after.map(object)).next();
            found.map(|(object, _)| object.0[0])
        };
        assert_eq!(
            [next(None), next(Some(2)), next(Some(3)), next(Some(4))],
            [Some(2), Some(4), Some(4), None]
        );
    }
}

//! The renditions that an appliance holds of versions which it does not hold wholly.
//!
//! Files of a rendition have no range of numbers of their own, so to count them is to look at all
//! that is held of the version. That is done when it can have changed: when as many files came as
//! the rendition lacks that lacks fewest, or one is gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::number::{NumberSet, index};

use super::{Known, Observed};

/// The last count of each version that has several renditions and is held in part, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted(BTreeMap<u32, Count>);

#[derive(Clone, Copy, Debug)]
struct Count {
    /// Files that were held then.
    held: u64,
    /// The fewest that a rendition lacked then.
    lacked: u64,
}

impl Observed {
    /// Looks which renditions of a version are whole here, after files of it came, or some were
    /// `lost`. O(files held of the version) if it can have changed, else O(1).
    pub(super) fn recount_renditions(&mut self, version: u32, known: Known<'_>, lost: bool) {
        let files = known.files;
        let numbers = files.renditions(version);
        let held = self.held.range_cardinality(files.range(version));
        let is_partly = held != 0 && !self.is_whole(version, files) && known.kept.contains(version);
        let divided = files.version(version).filter(|_| is_partly && !numbers.is_empty());
        let Some(divided) = divided.map(|of| of.renditions()) else {
            self.forget_renditions(version, known);
            return;
        };
        let last = self.counted.0.get(&version).filter(|_| !lost);
        if last.is_some_and(|last| held < last.held + last.lacked) {
            return;
        }
        let mut missing: Vec<u64> = divided.each().iter().map(|of| u64::from(of.objects)).collect();
        let first = files.range(version).start;
        for file in self.held.range(files.range(version)) {
            missing[usize::from(divided.of_objects()[index(file - first)])] -= 1;
        }
        let mut lacked = u64::MAX;
        let common = missing[0];
        for (number, missing) in numbers.zip(missing.split_off(1)) {
            let missing = missing + common;
            self.set_rendition(number, missing == 0);
            lacked = lacked.min(if missing == 0 { u64::MAX } else { missing });
        }
        assert!(lacked != u64::MAX, "something is missing: the version is not whole");
        self.counted.0.insert(version, Count { held, lacked });
    }

    /// All that is held is new.
    pub(super) fn forget_all_renditions(&mut self) {
        self.counted = Counted::default();
        if !self.renditions.is_empty() {
            self.renditions = Arc::default();
        }
    }

    /// Which versions should be held is different. O(those).
    pub(super) fn keep_renditions(&mut self, came: &NumberSet, lost: &NumberSet, known: Known<'_>) {
        for version in lost {
            self.forget_renditions(version, known);
        }
        for version in came {
            self.recount_renditions(version, known, true);
        }
    }

    fn forget_renditions(&mut self, version: u32, known: Known<'_>) {
        if self.counted.0.remove(&version).is_some() {
            known.files.renditions(version).for_each(|number| self.set_rendition(number, false));
        }
    }

    fn set_rendition(&mut self, number: u32, is_whole: bool) {
        if self.renditions.contains(number) == is_whole {
            return;
        }
        let renditions = Arc::make_mut(&mut self.renditions);
        if is_whole {
            renditions.insert(number)
        } else {
            renditions.remove(number)
        };
    }
}

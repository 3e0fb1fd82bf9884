//! The renditions that an appliance holds of versions which it does not hold wholly.
//!
//! Files of a rendition have no range of numbers of their own, so to count them is to look at all
//! that is held of the version. That is done once: from then on a delta moves the counts by its own
//! files.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::number::{NumberSet, index};

use super::{Known, Observed};
use crate::renditions::Renditions;

/// How many files each rendition lacks, by its number, first those of none: of each version that
/// has several renditions and is held in part, by number. 4 bytes for each rendition, and for
/// each such version an entry of the tree: 20 bytes, in leaves that are nearly half full or more.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    lacked: BTreeMap<u32, Box<[u32]>>,
    /// With so many, those are forgotten that are not to be held any more: nobody looks at who
    /// holds a part of a version when it goes.
    most: usize,
    /// Files that were looked at.
    #[cfg(test)]
    looked_at: u64,
}

/// Versions that are counted and not to be held any more, beside as many as are.
const BESIDE_MAX: usize = 4;

impl Counted {
    /// O(1) in the mean, besides the version.
    fn count(&mut self, version: u32, lacked: Box<[u32]>, kept: &NumberSet) {
        if self.most <= self.lacked.len() {
            self.lacked.retain(|version, _| kept.contains(*version));
            self.most = 2 * self.lacked.len() + BESIDE_MAX;
        }
        self.lacked.insert(version, lacked);
        assert!(self.lacked.len() <= self.most, "there is room for one more");
    }
}

impl Observed {
    /// Looks which renditions of a version are whole here, after files of it came and are gone.
    /// O(those, and renditions of the version), unless it has not been counted.
    ///
    /// Goes before the version is looked at as a whole.
    pub(super) fn move_renditions(
        &mut self,
        version: u32,
        known: Known<'_>,
        (won, lost): (&NumberSet, &NumberSet),
    ) {
        let Some(divided) = self.divided(version, known) else {
            self.forget_renditions(version, known);
            return;
        };
        if self.complete.contains(version) {
            self.counted.count(version, vec![0; divided.each().len()].into(), known.kept);
        }
        let Some(lacked) = self.counted.lacked.get_mut(&version) else {
            self.recount_renditions(version, known);
            return;
        };
        let range = known.files.range(version);
        let number = |file: u32| usize::from(divided.of_objects()[index(file - range.start)]);
        for file in lost.range(range.clone()) {
            lacked[number(file)] += 1;
        }
        for file in won.range(range.clone()) {
            lacked[number(file)] -= 1;
        }
        #[cfg(test)]
        {
            self.counted.looked_at += won.range_cardinality(range.clone());
            self.counted.looked_at += lost.range_cardinality(range);
        }
        self.set_renditions(version, known);
    }

    /// Counts all that is held of a version. O(that).
    pub(super) fn recount_renditions(&mut self, version: u32, known: Known<'_>) {
        let Some(divided) = self.divided(version, known) else {
            self.forget_renditions(version, known);
            return;
        };
        let mut lacked: Box<[u32]> = divided.each().iter().map(|of| of.objects).collect();
        let range = known.files.range(version);
        for file in self.held.range(range.clone()) {
            lacked[usize::from(divided.of_objects()[index(file - range.start)])] -= 1;
        }
        #[cfg(test)]
        {
            self.counted.looked_at += self.held.range_cardinality(range);
        }
        self.counted.count(version, lacked, known.kept);
        self.set_renditions(version, known);
    }

    /// How a version is divided, if that says something that the version as a whole does not.
    fn divided<'a>(&self, version: u32, known: Known<'a>) -> Option<&'a Renditions> {
        let files = known.files;
        let is_partly = known.kept.contains(version)
            && !files.renditions(version).is_empty()
            && self.held.range_cardinality(files.range(version)) != 0
            && !self.is_whole(version, files);
        files.version(version).filter(|_| is_partly).map(|of| of.renditions())
    }

    /// Those are whole that lack nothing, nor anything that belongs to none.
    fn set_renditions(&mut self, version: u32, known: Known<'_>) {
        let Some(lacked) = self.counted.lacked.get(&version) else { return };
        let common = lacked[0];
        let whole: Vec<bool> = lacked[1..].iter().map(|of| *of == 0 && common == 0).collect();
        assert!(whole.iter().any(|of| !of), "something is missing: the version is not whole");
        for (number, is_whole) in known.files.renditions(version).zip(whole) {
            self.set_rendition(number, is_whole);
        }
    }

    /// All that is held is new.
    pub(super) fn forget_all_renditions(&mut self) {
        self.counted.lacked.clear();
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
            self.recount_renditions(version, known);
        }
    }

    fn forget_renditions(&mut self, version: u32, known: Known<'_>) {
        if self.counted.lacked.remove(&version).is_some() {
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

    /// Versions whose renditions are counted.
    #[cfg(test)]
    pub(crate) fn counted(&self) -> usize {
        self.counted.lacked.len()
    }

    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.counted.looked_at
    }
}

//! Sets of drives, and their places in an appliance's list.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::limits::DRIVES_MAX;

/// A drive's place in the appliance's list. The drive's identity is in its marker (`DriveId`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriveIndex(pub u8);

/// Some of an appliance's drives. Room for every index that there is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct DriveSet([u64; Self::WORDS]);

impl DriveIndex {
    /// The indexes of so many drives, in order.
    pub fn all(count: usize) -> impl ExactSizeIterator<Item = Self> + Clone {
        assert!(count <= DRIVES_MAX, "the shell configures at most {DRIVES_MAX} drives");
        // Not `0..`, which would look beyond the last of 256.
        (0..=u8::MAX).take(count).map(Self)
    }

    /// As an index into a list of drives.
    pub fn as_usize(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for DriveIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl DriveSet {
    /// Without any.
    pub const NONE: Self = Self([0; Self::WORDS]);
    /// How many words hold a bit for each drive.
    pub const WORDS: usize = DRIVES_MAX.div_ceil(64);

    /// The set of these words: bit n of word m is drive 64 m + n.
    pub const fn from_words(words: [u64; Self::WORDS]) -> Self {
        Self(words)
    }

    /// The words of the set, for a place that several threads share.
    pub const fn words(self) -> [u64; Self::WORDS] {
        self.0
    }

    /// True if the drive is in it.
    pub fn contains(&self, drive: DriveIndex) -> bool {
        let (word, bit) = place(drive);
        self.0[word] & bit != 0
    }

    /// Puts the drive in or out.
    pub fn set(&mut self, drive: DriveIndex, is_in: bool) {
        let (word, bit) = place(drive);
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }

    /// Puts the drive in.
    pub fn insert(&mut self, drive: DriveIndex) {
        self.set(drive, true);
    }

    /// Puts the drive out.
    pub fn remove(&mut self, drive: DriveIndex) {
        self.set(drive, false);
    }

    /// True if there is none in it.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Its drives, in order. O(drives of an appliance).
    pub fn iter(self) -> impl Iterator<Item = DriveIndex> {
        DriveIndex::all(DRIVES_MAX).filter(move |drive| self.contains(*drive))
    }
}

/// The word of a drive, and its bit there.
fn place(drive: DriveIndex) -> (usize, u64) {
    (drive.as_usize() / 64, 1 << (drive.0 % 64))
}

impl FromIterator<DriveIndex> for DriveSet {
    fn from_iter<T: IntoIterator<Item = DriveIndex>>(drives: T) -> Self {
        let mut set = Self::NONE;
        drives.into_iter().for_each(|drive| set.insert(drive));
        set
    }
}

impl BitOr for DriveSet {
    type Output = Self;

    fn bitor(mut self, other: Self) -> Self {
        self |= other;
        self
    }
}

impl BitOrAssign for DriveSet {
    fn bitor_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }
}

impl fmt::Debug for DriveSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|drive| drive.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_a_place_of_its_own() {
        let all: DriveSet = DriveIndex::all(DRIVES_MAX).collect();
        assert_eq!(all.iter().count(), DRIVES_MAX);
        for drive in DriveIndex::all(DRIVES_MAX) {
            let mut others = all;
            others.remove(drive);
            let one = DriveSet::from_iter([drive]);
            assert!(!others.contains(drive) && one.contains(drive), "{drive}");
            assert_eq!(one.iter().collect::<Vec<_>>(), [drive]);
            assert_eq!(others | one, all);
            assert_eq!(DriveSet::from_words(one.words()), one);
        }
        assert!(DriveSet::NONE.is_empty() && !all.is_empty());
        assert_eq!(format!("{:?}", DriveSet::from_iter([7, 255].map(DriveIndex))), "{7, 255}");
    }

    #[test]
    fn indexes_are_as_many_as_there_are_drives() {
        assert_eq!(DriveIndex::all(0).len(), 0);
        assert_eq!(DriveIndex::all(DRIVES_MAX).last(), Some(DriveIndex(255)));
    }
}

//! What an appliance holds (actual), told as deltas between numbered states.

use crate::id::ObjectId;
use crate::number::{GOLDEN, NumberSet, mix};

/// The changes between two states of an appliance's inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// State before; 0 means that `held` is the full list.
    pub from: u64,
    /// State after.
    pub to: u64,
    /// Published since `from`.
    pub held: Vec<ObjectId>,
    /// Gone since `from`.
    pub gone: Vec<ObjectId>,
    /// All that is held at `to`; none if the sender cannot say it.
    pub check: Option<Check>,
}

/// The same of the files that the manifest in force gives numbers to. What it does not name is
/// counted, and no more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilesDelta {
    /// State before; 0 means that `came` is all that is held.
    pub from: u64,
    /// State after.
    pub to: u64,
    pub came: NumberSet,
    pub gone: NumberSet,
    /// All files that are held at `to`.
    pub check: Check,
    /// Objects that are held, and are no file of the manifest.
    pub others: u64,
}

/// More files than any catalogue has. A report that tells all, or whose check counts, more is
/// refused, since the check of a set costs a hash for each. A delta may lead a little beyond that
/// for as long as it takes to see that its check does not fit.
pub const FILES_HELD_MAX: u64 = 1 << 24;

/// Most files that came, or are gone, by one delta: an appliance remembers 16,384 changes, each of
/// an object that may be in several versions. Who has more to tell tells all.
pub const FILES_CHANGED_MAX: u64 = 1 << 20;

/// A set of objects, or of files, in two numbers. If those of two sets are the same, so are the
/// sets, but for one in 2^53. Kept up with every change, at no cost worth counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    pub count: u64,
    /// The first 53 bits, which is what JSON keeps of a number, of the objects' ids or of hashes of
    /// the files' numbers, exclusive or.
    pub sum: u64,
}

impl Check {
    /// Of these; none may be named twice.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a ObjectId>) -> Self {
        let mut check = Self::default();
        objects.into_iter().for_each(|object| check.put(object));
        check
    }

    /// The object is in the set, and was not.
    pub fn put(&mut self, object: &ObjectId) {
        self.count += 1;
        self.sum ^= bits(object);
    }

    /// The object is not in the set, and was.
    pub fn take(&mut self, object: &ObjectId) {
        self.count -= 1;
        self.sum ^= bits(object);
    }

    /// Of these files.
    pub fn of_files(files: &NumberSet) -> Self {
        let sum = files.iter().fold(0, |sum, file| sum ^ file_bits(file));
        Self { count: files.len(), sum }
    }

    /// The file is in the set, and was not.
    pub fn put_file(&mut self, file: u32) {
        self.count += 1;
        self.sum ^= file_bits(file);
    }

    /// The file is not in the set, and was.
    pub fn take_file(&mut self, file: u32) {
        self.count -= 1;
        self.sum ^= file_bits(file);
    }

    /// Of both sets, which have nothing in common.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { count: self.count + other.count, sum: self.sum ^ other.sum }
    }
}

fn bits(object: &ObjectId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = object.0;
    u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 11
}

fn file_bits(file: u32) -> u64 {
    mix((u64::from(file) + 1).wrapping_mul(GOLDEN)) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_files_is_known_by_its_check_however_it_came_to_be() {
        let mut check = Check::of_files(&(700..800).collect());
        check.put_file(7);
        check.take_file(750);
        let set: NumberSet = (700..800).chain([7]).filter(|file| *file != 750).collect();
        assert_eq!(check, Check::of_files(&set));
        assert!(check.sum < 1 << 53);
        let others: NumberSet = (701..801).chain([7]).filter(|file| *file != 750).collect();
        assert_eq!(others.len(), set.len());
        assert_ne!(Check::of_files(&others), check);
    }

    #[test]
    fn a_set_is_known_by_its_check_however_it_came_to_be() {
        let [a, b, c] = [1, 2, 3].map(|n| ObjectId([n; 32]));
        let mut check = Check::of([&c, &a]);
        check.put(&b);
        check.take(&c);
        assert_eq!(check, Check::of([&a, &b]));
        assert_eq!(check, Check::of([&a]).and(Check::of([&b])));
        assert_ne!(check, Check::of([&a, &c]));
        assert_ne!(check, Check::of([&a, &b, &ObjectId([0; 32])]), "ids alone would not tell");
        assert!(check.sum < 1 << 53);
    }
}

//! A set of numbers that many are asked about and few are in.

use std::ops::Deref;

use crate::number::{NumberSet, index};

/// A set of numbers, and some bits by which most that are not in it are known at once: a look at
/// one word, where the set itself is searched in a dozen steps. Two to four bytes more for each
/// number, eight at least, and 32 and an allocation for each set.
#[derive(Clone, Debug, Default)]
pub struct Members {
    numbers: NumberSet,
    /// A power of two of bits: that of a number's last bits is set where the number is in the set.
    marks: Box<[u64]>,
    /// All numbers that are in it have a mark of their own.
    is_exact: bool,
    /// Marks of numbers that went.
    stale: u64,
}

/// Marks for each number, at least: of the others one in so many has one by chance.
const MARKS_EACH: u64 = 16;

/// Words of marks, at most: 32,768 appliances have one each.
const WORDS_MAX: usize = 512;

const WORD: u32 = u64::BITS;

impl Members {
    /// True if a number is one of them.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let Some(last) = self.marks.len().checked_sub(1) else { return false };
        let word = index(number / WORD);
        let is_marked = self.marks[word & last] >> (number % WORD) & 1 == 1;
        is_marked && if self.is_exact { word <= last } else { self.numbers.contains(number) }
    }

    /// Puts a number in. O(log numbers), now and then O(numbers). Beyond 2,048 numbers marks grow
    /// no more.
    pub fn insert(&mut self, number: u32) {
        self.numbers.insert(number);
        let words = words_for(self.numbers.len());
        if self.marks.len() < words {
            return self.mark_all(words);
        }
        self.is_exact &= index(number / WORD) < self.marks.len();
        self.mark(number);
    }

    /// Takes a number out. O(log numbers), now and then O(numbers).
    pub fn remove(&mut self, number: u32) {
        if !self.numbers.remove(number) {
            return;
        }
        let words = words_for(self.numbers.len());
        if self.is_exact {
            self.marks[index(number / WORD)] &= !(1 << (number % WORD));
        } else {
            self.stale += 1;
        }
        // A title that went leaves no marks behind. A fourth, so that the size does not swing.
        if self.numbers.len() < self.stale || 4 * words <= self.marks.len() {
            self.mark_all(words);
        }
    }

    fn mark(&mut self, number: u32) {
        let last = self.marks.len() - 1;
        self.marks[index(number / WORD) & last] |= 1 << (number % WORD);
    }

    fn mark_all(&mut self, words: usize) {
        self.marks = vec![0; words].into();
        self.stale = 0;
        self.is_exact = self.numbers.max().is_none_or(|max| index(max / WORD) < words);
        let numbers = std::mem::take(&mut self.numbers);
        numbers.iter().for_each(|number| self.mark(number));
        self.numbers = numbers;
    }
}

fn words_for(numbers: u64) -> usize {
    let words = (numbers * MARKS_EACH).div_ceil(WORD.into()).next_power_of_two();
    usize::try_from(words).map_or(WORDS_MAX, |words| words.min(WORDS_MAX))
}

impl Deref for Members {
    type Target = NumberSet;

    fn deref(&self) -> &NumberSet {
        &self.numbers
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Eq for Members {}

impl From<NumberSet> for Members {
    fn from(numbers: NumberSet) -> Self {
        let mut members = Self { numbers, ..Self::default() };
        if !members.numbers.is_empty() {
            members.mark_all(words_for(members.numbers.len()));
        }
        members
    }
}

impl<const N: usize> From<[u32; N]> for Members {
    fn from(numbers: [u32; N]) -> Self {
        NumberSet::from(numbers).into()
    }
}

impl FromIterator<u32> for Members {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        numbers.into_iter().collect::<NumberSet>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_a_set_whatever_comes_and_goes(
            begin in proptest::collection::vec(0_u32..70_000, 0..200),
            steps in proptest::collection::vec((any::<bool>(), 0_u32..200), 0..400),
            below in prop_oneof![Just(64_u32), Just(500), Just(4000), Just(70_000)],
            scale in prop_oneof![Just(1_u32), Just(64), Just(512), Just(1 << 15)],
        ) {
            let begin: Vec<u32> = begin.into_iter().map(|n| n % below).collect();
            let mut members: Members = begin.iter().copied().collect();
            let mut set: NumberSet = begin.into_iter().collect();
            for (puts, n) in steps {
                let n = n * scale;
                if puts {
                    members.insert(n);
                    set.insert(n);
                } else {
                    members.remove(n);
                    set.remove(n);
                }
                prop_assert_eq!(members.contains(n), puts);
            }
            prop_assert_eq!(&*members, &set);
            for n in (0..70_000).chain((0..200).map(|n| n * scale)) {
                prop_assert_eq!(members.contains(n), set.contains(n), "{}", n);
            }
            prop_assert!(members.marks.len() <= WORDS_MAX);
            prop_assert!(members.marks.len() < 4 * words_for(set.len()), "they shrink");
        }
    }

    #[test]
    fn most_that_are_not_in_it_have_no_mark() {
        let few: Members = (0..25).map(|n| n * 797).collect();
        let marked = (0..20_000)
            .filter(|n| few.marks[index(n / WORD) & (few.marks.len() - 1)] >> (n % WORD) & 1 == 1);
        let marked = marked.count();
        assert!(marked < 20_000 / 10, "{marked}");
        let many: Members = (0..1250).map(|n| n * 16).collect();
        assert!(many.is_exact && !few.is_exact);
    }
}

//! A set of numbers that many are asked about and few are in.

use std::ops::Deref;

use crate::number::{NumberSet, index};
use crate::units::Bytes;

/// A set of numbers, and some bits by which most that are not in it are known at once: a look at
/// one word, where the set itself is searched in a dozen steps. Up to [`LIST_MAX`] they are in a
/// list behind those bits, so that a number is read there, and not by way of what the set is made
/// of: far memory is waited for, whatever is read of it. Six to eight bytes more for each number,
/// and 48 and an allocation for each set.
#[derive(Clone, Debug, Default)]
pub struct Members {
    numbers: NumberSet,
    /// Marks, then the numbers in order; none if there are more than [`LIST_MAX`].
    ///
    /// Marks are a power of two of bits: that of a number's last bits is set where the number is in
    /// the set.
    words: Vec<u32>,
    /// So many of the words have marks.
    mark_words: usize,
    /// All numbers that are in it have a mark of their own.
    is_exact: bool,
    /// Marks of numbers that went.
    stale: u64,
}

/// Marks for each number, at least: of the others one in so many has one by chance.
const MARKS_EACH: u64 = 16;

/// Words of marks, at most: 32,768 appliances have one each.
const WORDS_MAX: usize = 1024;

/// Numbers in a list, at most: 4 KiB, which a change moves.
const LIST_MAX: usize = 1024;

const WORD: u32 = u32::BITS;

impl Members {
    /// True if a number is one of them.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        let Some(last) = self.mark_words.checked_sub(1) else { return false };
        let word = index(number / WORD);
        let is_marked = self.words[word & last] >> (number % WORD) & 1 == 1;
        is_marked && if self.is_exact { word <= last } else { self.finds(number) }
    }

    fn finds(&self, number: u32) -> bool {
        match self.list() {
            [] => self.numbers.contains(number),
            list => list.binary_search(&number).is_ok(),
        }
    }

    #[inline]
    fn list(&self) -> &[u32] {
        &self.words[self.mark_words..]
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match self.list().len() {
            0 => usize::try_from(self.numbers.len()).unwrap_or(usize::MAX),
            count => count,
        }
    }

    /// All of them, in order.
    pub fn each(&self) -> impl Iterator<Item = u32> {
        // One of the two: those of the set where there is no list.
        let rest = self.list().is_empty().then(|| self.numbers.iter());
        self.list().iter().copied().chain(rest.into_iter().flatten())
    }

    /// The one with so many lower ones.
    #[inline]
    pub fn nth(&self, at: u32) -> Option<u32> {
        match self.list() {
            [] => self.numbers.select(at),
            list => list.get(index(at)).copied(),
        }
    }

    /// Puts a number in. O(log numbers + [`LIST_MAX`]), now and then O(numbers). Beyond 2,048
    /// numbers marks grow no more.
    pub fn insert(&mut self, number: u32) {
        if !self.numbers.insert(number) {
            return;
        }
        let words = words_for(self.numbers.len());
        if self.mark_words < words {
            return self.mark_all(words);
        }
        let count = usize::try_from(self.numbers.len()).unwrap_or(usize::MAX);
        if count <= LIST_MAX && self.list().len() + 1 == count {
            let at = self.list().partition_point(|other| *other < number);
            self.words.insert(self.mark_words + at, number);
        } else {
            self.words.truncate(self.mark_words);
        }
        self.is_exact &= index(number / WORD) < self.mark_words;
        self.mark(number);
    }

    /// Takes a number out. O(log numbers + [`LIST_MAX`]), now and then O(numbers).
    pub fn remove(&mut self, number: u32) {
        if !self.numbers.remove(number) {
            return;
        }
        if let Ok(at) = self.list().binary_search(&number) {
            self.words.remove(self.mark_words + at);
        }
        let words = words_for(self.numbers.len());
        if self.is_exact {
            self.words[index(number / WORD)] &= !(1 << (number % WORD));
        } else {
            self.stale += 1;
        }
        // A title that went leaves no marks behind. A fourth, so that the size does not swing.
        if self.numbers.len() < self.stale || 4 * words <= self.mark_words {
            self.mark_all(words);
        }
    }

    fn mark(&mut self, number: u32) {
        let last = self.mark_words - 1;
        self.words[index(number / WORD) & last] |= 1 << (number % WORD);
    }

    fn mark_all(&mut self, words: usize) {
        self.mark_words = words;
        self.stale = 0;
        self.is_exact = self.numbers.max().is_none_or(|max| index(max / WORD) < words);
        let numbers = std::mem::take(&mut self.numbers);
        let is_listed = numbers.len() <= Bytes::of(LIST_MAX).0;
        let list = is_listed.then(|| numbers.iter()).into_iter().flatten();
        self.words = std::iter::repeat_n(0, words).chain(list).collect();
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
            prop_assert_eq!(members.count(), usize::try_from(set.len()).unwrap());
            prop_assert!(members.each().eq(&set));
            let count = u32::try_from(set.len()).unwrap();
            prop_assert!((0..=count).all(|at| members.nth(at) == set.select(at)));
            prop_assert!(members.list().len() <= LIST_MAX && members.mark_words <= WORDS_MAX);
            prop_assert!(members.mark_words < 4 * words_for(set.len()), "they shrink");
        }
    }

    #[test]
    fn most_that_are_not_in_it_have_no_mark() {
        let few: Members = (0..25).map(|n| n * 797).collect();
        let word = |n: u32| few.words[index(n / WORD) & (few.mark_words - 1)];
        let marked = (0..20_000).filter(|n| word(*n) >> (n % WORD) & 1 == 1);
        let marked = marked.count();
        assert!(marked < 20_000 / 10, "{marked}");
        let many: Members = (0..1250).map(|n| n * 16).collect();
        assert!(many.is_exact && !few.is_exact);
    }
}

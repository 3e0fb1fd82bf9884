//! A set of numbers that many are asked about and few are in, in one piece of memory.
//!
//! ```text
//! few    [ count | marks | numbers, in order ]   a mark by a number's last bits: most that are not
//!                                                in it are known by one word
//! many   [ count | a bit for each | ranks ]      so many numbers are before each sixteenth word
//! ```
//!
//! Far memory is waited for, whatever is read of it: so all is behind one pointer, and a copy is
//! that pointer.

use std::fmt;
use std::sync::Arc;

use crate::number::{NumberSet, index};

/// A set of numbers. A copy costs O(1), and a change a copy of the words. Each number takes six to
/// eight bytes, or two at most where they are dense.
#[derive(Clone, Default)]
pub struct Members {
    /// Empty if nobody is in it. Else how many are; so many of the words after these two have
    /// marks, or bits if it is [`BITS`] and so many; and all the rest.
    words: Arc<[u32]>,
}

/// Set in the second word of one that has a bit for each number.
const BITS: u32 = 1 << 31;

/// Words before marks and bits.
const HEAD: usize = 2;

/// Marks for each number, at least: of the others one in so many has one by chance.
const MARKS_EACH: u32 = 16;

/// Words of bits that are counted at most for [`Members::nth`].
const RANK_WORDS: usize = 16;

const WORD: u32 = u32::BITS;

/// The parts of a set's words: who asks a set many questions finds them once.
#[derive(Clone, Copy, Debug)]
pub enum Shape<'a> {
    /// Marks, and numbers in order.
    Few { marks: &'a [u32], list: &'a [u32] },
    /// A bit for each number, and how many are before each [`RANK_WORDS`] of words.
    Many { bits: &'a [u32], ranks: &'a [u32], count: u32 },
}

impl Default for Shape<'_> {
    fn default() -> Self {
        Self::Few { marks: &[], list: &[] }
    }
}

impl Shape<'_> {
    /// True if a number is one of them. O(1) of most that are not.
    #[inline]
    pub fn contains(self, number: u32) -> bool {
        let word = index(number / WORD);
        let has = |word: u32| word >> (number % WORD) & 1 == 1;
        match self {
            Self::Few { marks, list } => {
                let mark = marks.get(word & marks.len().wrapping_sub(1));
                mark.is_some_and(|mark| has(*mark)) && list.binary_search(&number).is_ok()
            }
            Self::Many { bits, .. } => bits.get(word).is_some_and(|word| has(*word)),
        }
    }

    /// The one with so many lower ones. O(largest number / 512) of many.
    #[inline]
    pub fn nth(self, at: u32) -> Option<u32> {
        match self {
            Self::Few { list, .. } => list.get(index(at)).copied(),
            Self::Many { bits, ranks, count } if at < count => {
                let block = ranks.partition_point(|before| *before <= at).checked_sub(1)?;
                let (mut left, first) = (at - ranks[block], block * RANK_WORDS);
                for (word, at) in bits[first..].iter().zip(first..) {
                    let ones = word.count_ones();
                    if left < ones {
                        return numbers_of(at, *word).nth(index(left));
                    }
                    left -= ones;
                }
                None
            }
            Self::Many { .. } => None,
        }
    }
}

impl Members {
    /// True of two that share their memory: no other two are compared in O(1).
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.words, &other.words)
    }

    /// Its parts.
    #[inline]
    pub fn shape(&self) -> Shape<'_> {
        let [count, parted, rest @ ..] = &*self.words else {
            return Shape::default();
        };
        let (first, second) = rest.split_at(index(parted & !BITS));
        match parted & BITS {
            0 => Shape::Few { marks: first, list: second },
            _ => Shape::Many { bits: first, ranks: second, count: *count },
        }
    }

    /// [`Shape::contains`].
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.shape().contains(number)
    }

    /// [`Shape::nth`].
    #[inline]
    pub fn nth(&self, at: u32) -> Option<u32> {
        self.shape().nth(at)
    }

    /// How many there are.
    #[inline]
    pub fn count(&self) -> u32 {
        self.words.first().copied().unwrap_or(0)
    }

    /// True if nobody is in it.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// All of them, in order.
    pub fn each(&self) -> impl Iterator<Item = u32> {
        let (list, bits) = match self.shape() {
            Shape::Few { list, .. } => (list, &[][..]),
            Shape::Many { bits, .. } => (&[][..], bits),
        };
        list.iter()
            .copied()
            .chain(bits.iter().zip(0..).flat_map(|(word, at)| numbers_of(at, *word)))
    }

    /// Those that are in both. O(numbers), and O(largest number / 32) of many.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        match (self.shape(), other.shape()) {
            (Shape::Many { bits: a, .. }, Shape::Many { bits: b, .. }) => {
                of_bits(a.iter().zip(b).map(|(a, b)| a & b).collect())
            }
            (Shape::Few { .. }, _) => self.each().filter(|of| other.contains(*of)).collect(),
            (Shape::Many { .. }, Shape::Few { .. }) => other.both(self),
        }
    }

    /// The same as one that is changed and combined at less cost. O(numbers).
    pub fn to_set(&self) -> NumberSet {
        self.each().collect()
    }

    /// Puts a number in; true if it was not. O(numbers), and O(largest number / 32) of many.
    pub fn insert(&mut self, number: u32) -> bool {
        if self.contains(number) {
            return false;
        }
        let count = self.count() + 1;
        match self.shape() {
            Shape::Many { bits, .. } if index(number / WORD) < bits.len() => {
                let at = bits.len() + HEAD + index(number / WORD) / RANK_WORDS + 1;
                let words = Arc::make_mut(&mut self.words);
                words[0] = count;
                words[HEAD + index(number / WORD)] |= 1 << (number % WORD);
                words[at..].iter_mut().for_each(|rank| *rank += 1);
            }
            Shape::Many { bits, .. } => {
                let mut bits = bits.to_vec();
                bits.resize(index(number / WORD) + 1, 0);
                bits[index(number / WORD)] |= 1 << (number % WORD);
                *self = of_bits(bits);
            }
            Shape::Few { marks, list } => {
                let (before, after) = list.split_at(list.partition_point(|of| *of < number));
                let (max, last) = (after.last().copied().unwrap_or(number), marks.len());
                if last == mark_words(count) && !is_dense(count, max) {
                    let head =
                        [count].into_iter().chain(self.words[1..HEAD + last].iter().copied());
                    let numbers = before.iter().chain([&number]).chain(after).copied();
                    let mut all: Arc<[u32]> = head.chain(numbers).collect();
                    let words = Arc::make_mut(&mut all);
                    words[HEAD + (index(number / WORD) & (last - 1))] |= 1 << (number % WORD);
                    self.words = all;
                } else {
                    *self = before.iter().chain([&number]).chain(after).copied().collect();
                }
            }
        }
        assert_eq!(self.count(), count, "there is one more");
        true
    }

    /// Takes a number out; true if it was in. O(numbers), and O(largest number / 32) of many.
    pub fn remove(&mut self, number: u32) -> bool {
        if !self.contains(number) {
            return false;
        }
        let count = self.count() - 1;
        match self.shape() {
            // A fourth, so that the shape does not swing.
            Shape::Many { bits, .. } if bits.len() < 4 * mark_words(count) => {
                let at = bits.len() + HEAD + index(number / WORD) / RANK_WORDS + 1;
                let words = Arc::make_mut(&mut self.words);
                words[0] = count;
                words[HEAD + index(number / WORD)] &= !(1 << (number % WORD));
                words[at..].iter_mut().for_each(|rank| *rank -= 1);
            }
            Shape::Many { .. } | Shape::Few { .. } => {
                *self = self.each().filter(|of| *of != number).collect();
            }
        }
        assert_eq!(self.count(), count, "there is one less");
        true
    }
}

/// The numbers of a word of bits.
fn numbers_of(at: usize, mut word: u32) -> impl Iterator<Item = u32> {
    let first = u32::try_from(at).expect("numbers are 32 bits") * WORD;
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(first + bit)
    })
}

/// Words of marks for so many numbers: a power of two.
fn mark_words(count: u32) -> usize {
    index(count.saturating_mul(MARKS_EACH).div_ceil(WORD)).next_power_of_two()
}

/// A bit for each number takes no more than marks do.
fn is_dense(count: u32, max: u32) -> bool {
    index(max / WORD) < mark_words(count)
}

fn of_bits(bits: Vec<u32>) -> Members {
    let mut count = 0;
    let ranks: Vec<u32> = bits
        .chunks(RANK_WORDS)
        .map(|words| {
            let before = count;
            count += words.iter().map(|word| word.count_ones()).sum::<u32>();
            before
        })
        .collect();
    let parted = u32::try_from(bits.len()).expect("numbers are 32 bits") | BITS;
    let words = if count == 0 { Vec::new() } else { [vec![count, parted], bits, ranks].concat() };
    Members { words: words.into() }
}

impl FromIterator<u32> for Members {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut numbers: Vec<u32> = numbers.into_iter().collect();
        if !numbers.is_sorted_by(|a, b| a < b) {
            numbers.sort_unstable();
            numbers.dedup();
        }
        let Some(max) = numbers.last().copied() else { return Self::default() };
        let count = u32::try_from(numbers.len()).expect("numbers are 32 bits");
        let is_dense = is_dense(count, max);
        let len = if is_dense { index(max / WORD) + 1 } else { mark_words(count) };
        let mut bits = vec![0; len];
        for number in &numbers {
            // All bits of dense ones, and the last ones else.
            bits[index(number / WORD) % len] |= 1 << (number % WORD);
        }
        if is_dense {
            return of_bits(bits);
        }
        let parted = u32::try_from(len).expect("fewer than numbers");
        Self { words: [vec![count, parted], bits, numbers].concat().into() }
    }
}

impl<const N: usize> From<[u32; N]> for Members {
    fn from(numbers: [u32; N]) -> Self {
        numbers.into_iter().collect()
    }
}

impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.count() == other.count() && self.each().eq(other.each())
    }
}

impl Eq for Members {}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.each()).finish()
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
            let before = (members.clone(), set.clone());
            for (puts, n) in steps {
                let n = n * scale;
                if puts {
                    prop_assert_eq!(members.insert(n), set.insert(n));
                } else {
                    prop_assert_eq!(members.remove(n), set.remove(n));
                }
                prop_assert_eq!(members.contains(n), puts);
            }
            prop_assert_eq!(&members.to_set(), &set);
            prop_assert_eq!(&before.0.to_set(), &before.1, "a copy keeps what it had");
            prop_assert!(before.0.both(&members).each().eq(&(&before.1 & &set)));
            for n in (0..70_000).chain((0..200).map(|n| n * scale)) {
                prop_assert_eq!(members.contains(n), set.contains(n), "{}", n);
            }
            prop_assert_eq!(u64::from(members.count()), set.len());
            prop_assert!(members.each().eq(&set));
            prop_assert_eq!(&members, &set.iter().collect::<Members>());
            prop_assert!((0..=members.count()).all(|at| members.nth(at) == set.select(at)));
            if let Shape::Few { marks, list } = members.shape() {
                prop_assert!(list.is_empty() || marks.len() == mark_words(members.count()));
            }
        }

        #[test]
        fn so_they_are_where_they_are_many(
            numbers in proptest::collection::btree_set(0_u32..200_000, 4000..5000),
            steps in proptest::collection::vec((any::<bool>(), 0_u32..300_000), 0..400),
        ) {
            let mut members: Members = numbers.iter().copied().collect();
            let mut set: NumberSet = numbers.into_iter().collect();
            for (puts, n) in steps {
                if puts {
                    prop_assert_eq!(members.insert(n), set.insert(n));
                } else {
                    let n = set.select(n % 5000).unwrap_or(n);
                    prop_assert_eq!(members.remove(n), set.remove(n));
                }
            }
            prop_assert!(members.each().eq(&set));
            prop_assert!((0..=members.count()).all(|at| members.nth(at) == set.select(at)));
            let odd: Members = (0..300_000).filter(|n| n % 2 == 1).collect();
            let both: NumberSet = set.iter().filter(|n| n % 2 == 1).collect();
            prop_assert!(members.both(&odd).each().eq(&both));
            prop_assert!(odd.both(&members).each().eq(&both));
        }
    }

    #[test]
    fn most_that_are_not_in_it_have_no_mark() {
        let few: Members = (0..25).map(|n| n * 797).collect();
        let Shape::Few { marks, .. } = few.shape() else { panic!("they are few") };
        let word = |n: u32| marks[index(n / WORD) & (marks.len() - 1)];
        let marked = (0..20_000).filter(|n| word(*n) >> (n % WORD) & 1 == 1);
        let marked = marked.count();
        assert!(marked < 20_000 / 10, "{marked}");
        let many: Members = (0..1250).map(|n| n * 16).collect();
        assert!(matches!(many.shape(), Shape::Many { .. }));
    }
}

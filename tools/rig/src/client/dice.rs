//! Which bytes of which target are asked for, and which answers are compared: chosen by a seed, so
//! that both sides of a comparison are asked the same.

use model::object::BLOCK_LEN;

use super::reply::Asked;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ranges {
    /// Where a block of 256 KiB begins; of shorter ranges, several lie in one.
    Aligned,
    /// At any byte, so that both ends lie within blocks.
    #[default]
    Unaligned,
}

impl Ranges {
    /// Ranges of `len` begin at multiples of this. No aligned one touches more blocks than it must.
    fn step(self, len: u64) -> u64 {
        match self {
            Self::Aligned => BLOCK_LEN.0.min(len),
            Self::Unaligned => 1,
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, fast, and good enough to choose offsets.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The same seed gives the same throws.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number from 0 to 2^64 - 1.
    pub fn throw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero. The bias is below n / 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(0 < n, "there is no number below zero");
        let wide = u128::from(self.throw()) * u128::from(n);
        u64::try_from(wide >> 64).expect("the high half of a product fits")
    }
}

/// Chooses what is asked for next.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    dice: Dice,
    /// The targets' lengths, in the order of the list. Not empty, none is zero.
    lens: Vec<u64>,
    range_len: u64,
    ranges: Ranges,
    /// Every n-th answer is compared byte by byte; 0 is none.
    verify_every: u64,
    asked: u64,
}

impl Choice {
    /// Ranges of `range_len` (or a whole target, where it is shorter) at random offsets.
    pub(super) fn new(
        seed: u64,
        lens: Vec<u64>,
        range_len: u64,
        ranges: Ranges,
        verify_every: u64,
    ) -> Self {
        assert!(!lens.is_empty(), "there must be a target to ask for");
        assert!(0 < range_len && lens.iter().all(|len| 0 < *len), "a range is not empty");
        Self { dice: Dice::new(seed), lens, range_len, ranges, verify_every, asked: 0 }
    }

    pub(super) fn next_asked(&mut self) -> Asked {
        let count = u64::try_from(self.lens.len()).expect("a count fits");
        let target = usize::try_from(self.dice.below(count)).expect("an index fits");
        let target_len = self.lens[target];
        let len = self.range_len.min(target_len);
        let step = self.ranges.step(len);
        let start = self.dice.below((target_len - len) / step + 1) * step;
        let verify = self.verify_every != 0 && self.asked.is_multiple_of(self.verify_every);
        self.asked += 1;
        Asked { target, range: start..start + len, target_len, verify }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_asks_the_same() {
        let choose = |seed| {
            let mut choice = Choice::new(seed, vec![100, 7], 10, Ranges::Unaligned, 4);
            (0..50).map(|_| choice.next_asked()).collect::<Vec<_>>()
        };
        assert_eq!(choose(1), choose(1));
        assert_ne!(choose(1), choose(2));
    }

    #[test]
    fn ranges_lie_within_their_target_and_reach_both_ends() {
        let mut choice = Choice::new(7, vec![100, 7], 10, Ranges::Unaligned, 0);
        let asked: Vec<Asked> = (0..5000).map(|_| choice.next_asked()).collect();
        assert!(asked.iter().all(|one| one.range.end <= one.target_len && !one.verify));
        let long: Vec<&Asked> = asked.iter().filter(|one| one.target == 0).collect();
        assert!(long.iter().all(|one| one.range.end - one.range.start == 10));
        assert!(long.iter().any(|one| one.range.start == 0));
        assert!(long.iter().any(|one| one.range.end == 100));
        assert!(asked.iter().any(|one| one.target == 1 && one.range == (0..7)));
    }

    #[test]
    fn aligned_ranges_begin_where_blocks_do_and_unaligned_ones_anywhere() {
        fn check(range_len: u64, ranges: Ranges, step: u64) {
            let mut choice = Choice::new(7, vec![8_000_000], range_len, ranges, 0);
            let asked: Vec<Asked> = (0..5000).map(|_| choice.next_asked()).collect();
            assert!(asked.iter().all(|one| one.range.end - one.range.start == range_len));
            assert!(asked.iter().all(|one| one.range.start % step == 0), "{range_len}");
            assert!(asked.iter().any(|one| one.range.start / step % 2 == 1), "{range_len}");
            let last = (8_000_000 - range_len) / step * step;
            let reached = asked.iter().map(|one| one.range.start).max().unwrap();
            assert!(last - reached <= 8_000_000 / 100, "{range_len}: {reached} of {last}");
        }
        check(2 << 20, Ranges::Aligned, 256 << 10);
        check(64 << 10, Ranges::Aligned, 64 << 10);
        check(2 << 20, Ranges::Unaligned, 1);
    }

    #[test]
    fn every_nth_answer_is_compared() {
        let mut choice = Choice::new(7, vec![100], 10, Ranges::Unaligned, 16);
        let verified = (0..160).filter(|_| choice.next_asked().verify).count();
        assert_eq!(verified, 10);
    }
}

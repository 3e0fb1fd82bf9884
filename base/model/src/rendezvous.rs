//! Weighted rendezvous hashing: everybody computes the same draw for a key, without talking.
//!
//! Each candidate gets a score from the key and its own name; the lowest wins. A candidate that
//! comes or goes changes no other's score, so nothing moves but what it wins or leaves. With
//! `u` drawn uniformly from (0, 1], `-ln(u) / weight` is lowest with a probability in proportion
//! to the weight (exponential distributions: the minimum's rate is the sum of the rates). Source:
//! Schindelhauer & Schomaker, "Weighted Distributed Hash Tables" (2005), the logarithmic method.
//!
//! All in integers, so that every machine agrees: `u` is a BLAKE3 hash of 64 bits, and `-log2(u)`
//! has 32 bits after the point (the base of the logarithm scales all scores alike).

use std::fmt;

use crate::names::hash_of;
use crate::number::{GOLDEN, mix};
use crate::topology::Weight;

/// A candidate's score for a key. The lowest wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score(u64);

impl Score {
    /// The score of `candidate` for `key`.
    pub fn of(key: &[u8], candidate: &[u8], weight: Weight) -> Self {
        let hash = hash(key, candidate);
        let (first, _) = hash.as_bytes().split_first_chunk::<8>().expect("a hash has 32 bytes");
        let cost = minus_log2(u64::from_le_bytes(*first));
        Self((cost << SCALE_BITS) / u64::from(weight.value()))
    }
}

impl fmt::Display for Score {
    /// In thousandths of the draw that one in two of the weight 1 stays below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let thousandths = (u128::from(self.0) * 1000) >> (FRACTION_BITS + SCALE_BITS);
        write!(f, "{thousandths}")
    }
}

fn hash(key: &[u8], candidate: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hasher.update(&u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(key).update(candidate);
    hasher.finalize()
}

/// All that [`Draws`] ask of a candidate: a hash of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lot(u64);

impl Lot {
    /// Of a name.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        Self(hash_of(name))
    }
}

/// The draws of one key, for decisions that are made all the time: a few multiplications each,
/// where [`Score::of`] takes two blocks of BLAKE3. They say nothing of each other, nor of those.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// Of a key.
    #[inline]
    pub fn of(key: &[u8]) -> Self {
        Self::of_hash(hash_of(key))
    }

    /// Of a key with this [`hash_of`].
    #[inline]
    pub fn of_hash(hash: u64) -> Self {
        Self(hash)
    }

    #[inline]
    fn draw(self, candidate: u64, kind: u64) -> u64 {
        mix(mix(self.0.wrapping_add(candidate)).wrapping_add(kind.wrapping_mul(GOLDEN)))
    }

    /// The score of a candidate.
    #[inline]
    pub fn score(self, candidate: Lot, weight: Weight) -> Score {
        let cost = nearly_minus_log2(self.draw(candidate.0, 1)) << SCALE_BITS;
        // A division takes longer than all the rest, and most weigh one.
        Score(if weight == Weight::ONE { cost } else { cost / u64::from(weight.value()) })
    }

    /// A draw from 0 to 999 for a candidate, which says nothing of its score.
    #[inline]
    pub fn permille(self, candidate: Lot) -> u32 {
        thousandth(self.draw(candidate.0, 2))
    }

    /// Another such draw, which says nothing of the first.
    #[inline]
    pub fn other_permille(self, candidate: Lot) -> u32 {
        thousandth(self.draw(candidate.0, 5))
    }

    /// The place of a number in an order that is the key's own.
    #[inline]
    pub fn turn(self, number: u32) -> u64 {
        self.draw(u64::from(number).wrapping_mul(GOLDEN), 3)
    }

    /// Places among `count`, one after the other, for ever. Each is as likely as any other, and may
    /// come again. None of none.
    pub fn looks(self, count: u32) -> impl Iterator<Item = u32> {
        let place = move |n: u32| {
            let drawn = self.draw(u64::from(n).wrapping_mul(GOLDEN), 4) >> 32;
            u32::try_from((drawn * u64::from(count)) >> 32).expect("it is below the count")
        };
        (0..if count == 0 { 0 } else { u32::MAX }).map(place)
    }
}

fn thousandth(drawn: u64) -> u32 {
    u32::try_from((u128::from(drawn) * 1000) >> 64).expect("it is below 1000")
}

/// `-log2((n + 1) / 2^64)` with 32 bits after the point: at most 64, so 39 bits in all.
///
/// Squaring doubles a logarithm: one bit of it falls out whenever the square passes 2.
fn minus_log2(n: u64) -> u64 {
    let Some(n) = n.checked_add(1) else { return 0 };
    let fraction = log2_of(n << n.leading_zeros());
    (64 << FRACTION_BITS) - ((u64::from(n.ilog2()) << FRACTION_BITS) + fraction)
}

/// The logarithm of what is in [1, 2), with 63 bits after the point.
#[expect(clippy::as_conversions, reason = "a constant is made with it, and u64 fits u128")]
const fn log2_of(mantissa: u64) -> u64 {
    let (mut mantissa, mut log, mut left) = (mantissa as u128, 0, FRACTION_BITS);
    while 0 < left {
        mantissa = (mantissa * mantissa) >> 63;
        log <<= 1;
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            log |= 1;
        }
        left -= 1;
    }
    log
}

/// The same, three millionths too much at most, by a line between two points of a table. It never
/// rises either.
#[inline]
fn nearly_minus_log2(n: u64) -> u64 {
    let Some(n) = n.checked_add(1) else { return 0 };
    let mantissa = n << n.leading_zeros();
    let at = usize::try_from((mantissa >> (63 - TABLE_BITS)) & TABLE_MASK).expect("it has 8 bits");
    let between = (mantissa >> (31 - TABLE_BITS)) & u64::from(u32::MAX);
    let (low, high) = (LOG2[at], LOG2[at + 1]);
    let log = low + (((high - low) * between) >> 32);
    (64 << FRACTION_BITS) - ((u64::from(n.ilog2()) << FRACTION_BITS) + log)
}

const TABLE_BITS: u32 = 8;
const TABLE_MASK: u64 = (1 << TABLE_BITS) - 1;

/// `log2(1 + i / 256)`, with 32 bits after the point.
const LOG2: [u64; 257] = {
    let mut table = [1 << FRACTION_BITS; 257];
    let (mut at, mut mantissa) = (0, 1_u64 << 63);
    while at < 256 {
        table[at] = log2_of(mantissa);
        at += 1;
        mantissa = mantissa.wrapping_add(1 << (63 - TABLE_BITS));
    }
    table
};

const FRACTION_BITS: u32 = 32;

/// Keeps precision when dividing by a weight; 39 bits of cost and these fit 64.
const SCALE_BITS: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_logarithm_is_right_at_the_powers_of_two_and_close_between() {
        assert_eq!(minus_log2(u64::MAX), 0);
        assert_eq!(minus_log2(0), 64 << 32);
        assert_eq!(minus_log2((1 << 63) - 1), 1 << 32);
        // log2(3/4) = -0.415037499..., times 2^32 = 1782572488.8
        let three_quarters = minus_log2((3 << 62) - 1);
        assert!((1_782_572_487..=1_782_572_491).contains(&three_quarters), "{three_quarters}");
    }

    #[test]
    fn winning_is_in_proportion_to_weight() {
        check_winning(Score::of);
        check_winning(|key, name, weight| Draws::of(key).score(Lot::of(name), weight));
    }

    fn check_winning(score: impl Fn(&[u8], &[u8], Weight) -> Score) {
        let weights = [1_u32, 2, 5];
        let mut wins = [0_u32; 3];
        for key in 0..8000_u32 {
            let score = |i: usize| {
                let name = [u8::try_from(i).unwrap()];
                score(&key.to_le_bytes(), &name, Weight::new(weights[i]).unwrap())
            };
            let winner = (0..3).min_by_key(|i| score(*i)).unwrap();
            wins[winner] += 1;
        }
        // Expected 1000, 2000, 5000; five standard deviations are 148, 194 and 217.
        for (won, weight) in wins.iter().zip(weights) {
            assert!(won.abs_diff(weight * 1000) < 220, "{wins:?}");
        }
    }

    #[test]
    fn a_draw_is_even_and_says_nothing_of_the_others() {
        let (mut below, mut both, mut turns, mut looks) = (0, 0, 0, 0);
        let (mut other, mut with_other) = (0, 0);
        for key in 0..8000_u32 {
            let draws = Draws::of(&key.to_le_bytes());
            let [a, b] = [b"a", b"b"].map(|name| Lot::of(name));
            let score = |lot: Lot| draws.score(lot, Weight::ONE);
            let is_below = draws.permille(a) < 300;
            let is_first = score(a) < score(b);
            below += u32::from(is_below);
            both += u32::from(is_below && is_first);
            let is_other = draws.other_permille(a) < 300;
            other += u32::from(is_other);
            with_other += u32::from(is_other && is_below);
            turns += u32::from(is_first && draws.turn(1) < draws.turn(2));
            looks += u32::from(is_first && draws.looks(4).nth(3) == Some(1));
        }
        // Five standard deviations are 205, 160, 194 and 137.
        assert!(below.abs_diff(2400) < 205 && both.abs_diff(1200) < 160, "{below} {both}");
        // And of 9 in 100 of them 128.
        assert!(other.abs_diff(2400) < 205, "{other}");
        assert!(with_other.abs_diff(720) < 128, "{with_other}");
        assert!(turns.abs_diff(2000) < 194 && looks.abs_diff(1000) < 137, "{turns} {looks}");
    }

    #[test]
    fn a_score_is_the_cost_by_the_weight() {
        let (draws, lot) = (Draws::of(b"s"), Lot::of(b"a"));
        let Score(one) = draws.score(lot, Weight::ONE);
        let Score(three) = draws.score(lot, Weight::new(3).unwrap());
        assert_eq!(three, one / 3);
    }

    #[test]
    fn key_and_candidate_do_not_run_into_each_other() {
        assert_ne!(Score::of(b"ab", b"c", Weight::ONE), Score::of(b"a", b"bc", Weight::ONE));
    }

    proptest! {
        #[test]
        fn the_logarithm_never_rises(a: u64, b: u64) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(minus_log2(high) <= minus_log2(low));
            prop_assert!(nearly_minus_log2(high) <= nearly_minus_log2(low));
        }

        #[test]
        fn the_table_is_right_to_three_millionths(n: u64, shift in 0_u32..64) {
            let n = n >> shift;
            let difference = minus_log2(n).abs_diff(nearly_minus_log2(n));
            prop_assert!(difference < (3 << FRACTION_BITS) / 1_000_000, "{difference}");
        }

        #[test]
        fn more_weight_never_raises_a_score(key: u64, light in 1u32..1000, more in 0u32..1000) {
            let heavy = (light + more).min(1000);
            let score = |w| Score::of(&key.to_le_bytes(), b"a1", Weight::new(w).unwrap());
            prop_assert!(score(heavy) <= score(light));
        }
    }
}

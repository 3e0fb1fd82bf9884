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

/// A draw from 0 to 999 for a key and a candidate, which says nothing of their score.
pub fn draw_permille(key: &[u8], candidate: &[u8]) -> u32 {
    let hash = hash(key, candidate);
    let (second, _) = hash.as_bytes()[8..].split_first_chunk::<8>().expect("a hash has 32 bytes");
    let drawn = (u128::from(u64::from_le_bytes(*second)) * 1000) >> 64;
    u32::try_from(drawn).expect("it is below 1000")
}

fn hash(key: &[u8], candidate: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hasher.update(&u64::try_from(key.len()).unwrap_or(u64::MAX).to_le_bytes());
    hasher.update(key).update(candidate);
    hasher.finalize()
}

/// Places among `count`, one after the other, for ever: drawn for the key, the same for everybody.
/// Each is as likely as any other, and may come again. None of none.
///
/// The numbers are those of SplitMix64 (Steele, Lea and Flood, 2014), from a hash of the key.
pub fn looks(key: &[u8], count: u32) -> impl Iterator<Item = u32> {
    let hash = blake3::hash(key);
    let (seed, _) = hash.as_bytes().split_first_chunk::<8>().expect("a hash has 32 bytes");
    let seed = u64::from_le_bytes(*seed);
    let place = move |n: u32| {
        let drawn = mix(seed.wrapping_add(u64::from(n).wrapping_mul(GOLDEN))) >> 32;
        u32::try_from((drawn * u64::from(count)) >> 32).expect("it is below the count")
    };
    (0..if count == 0 { 0 } else { u32::MAX }).map(place)
}

/// `-log2((n + 1) / 2^64)` with 32 bits after the point: at most 64, so 39 bits in all.
///
/// Squaring doubles a logarithm: one bit of it falls out whenever the square passes 2.
fn minus_log2(n: u64) -> u64 {
    let Some(n) = n.checked_add(1) else { return 0 };
    let mut log = u64::from(n.ilog2());
    // In [1, 2) with 63 bits after the point.
    let mut mantissa = u128::from(n) << n.leading_zeros();
    for _ in 0..FRACTION_BITS {
        mantissa = (mantissa * mantissa) >> 63;
        log <<= 1;
        if mantissa >> 64 != 0 {
            mantissa >>= 1;
            log |= 1;
        }
    }
    (64 << FRACTION_BITS) - log
}

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
        let weights = [1_u32, 2, 5];
        let mut wins = [0_u32; 3];
        for key in 0..8000_u32 {
            let score = |i: usize| {
                let name = [u8::try_from(i).unwrap()];
                Score::of(&key.to_le_bytes(), &name, Weight::new(weights[i]).unwrap())
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
    fn a_draw_is_even_and_says_nothing_of_the_score() {
        let (mut below, mut both) = (0, 0);
        let score = |key: u32, name: &[u8]| Score::of(&key.to_le_bytes(), name, Weight::ONE);
        for key in 0..8000_u32 {
            let is_below = draw_permille(&key.to_le_bytes(), b"a") < 300;
            below += u32::from(is_below);
            both += u32::from(is_below && score(key, b"a") < score(key, b"b"));
        }
        // 2400 and 1200 are expected; five standard deviations are 205 and 160.
        assert!(below.abs_diff(2400) < 205 && both.abs_diff(1200) < 160, "{below} {both}");
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
        }

        #[test]
        fn more_weight_never_raises_a_score(key: u64, light in 1u32..1000, more in 0u32..1000) {
            let heavy = (light + more).min(1000);
            let score = |w| Score::of(&key.to_le_bytes(), b"a1", Weight::new(w).unwrap());
            prop_assert!(score(heavy) <= score(light));
        }
    }
}

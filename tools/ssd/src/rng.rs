//! Numbers that look random and come again with the same seed (SplitMix64, Steele et al. 2014).

/// A stream of numbers; the same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `bound`, which is not 0. The bias is below `bound` / 2^32.
    pub fn below(&mut self, bound: u32) -> u32 {
        assert!(0 < bound, "nothing is below 0");
        let high = (self.draw() >> 32) * u64::from(bound);
        u32::try_from(high >> 32).unwrap_or(0)
    }

    /// From 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(u32::try_from(self.draw() >> 32).unwrap_or(0)) / 4_294_967_296.0
    }

    /// With mean 1, as the gaps of a Poisson stream have; at most 22.2.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_that_of_the_published_generator() {
        // The first outputs for seed 1234567, as in the author's reference.
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.draw(), 6_457_827_717_110_365_317);
        assert_eq!(rng.draw(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_are_even_and_within_bounds() {
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 7];
        let mut sum = 0.0;
        for _ in 0..70_000 {
            counts[usize::try_from(rng.below(7)).unwrap()] += 1;
            sum += rng.exponential();
        }
        assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
        assert!((sum / 70_000.0 - 1.0).abs() < 0.02);
    }
}

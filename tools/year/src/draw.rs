//! Numbers that look drawn, of a seed and of what they are for: no draw moves another.

use model::number::{GOLDEN, mix};

use crate::number::{real, whole};

/// splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// Those of a seed for one thing of a kind.
    pub(crate) fn of(seed: u64, kind: &str, n: u64) -> Self {
        let kind = kind.bytes().fold(seed, |x, b| (x ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut draw = Self(kind ^ n.wrapping_mul(GOLDEN));
        draw.next();
        draw
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// From 0 to 1, which it is never.
    pub(crate) fn unit(&mut self) -> f64 {
        real(self.next() >> 11) / real(1 << 53)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(n)) >> 32).unwrap_or(0)
    }

    /// With mean 0 and variance 1 (Box and Muller, 1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// A factor whose logarithm has that sigma, and whose median is 1.
    pub(crate) fn factor(&mut self, sigma: f64) -> f64 {
        (sigma * self.normal()).exp()
    }

    /// How many come where `mean` are expected.
    pub(crate) fn poisson(&mut self, mean: f64) -> u64 {
        // Above, the normal that it becomes is off by less than the dice are.
        if 60.0 < mean {
            return whole((mean + mean.sqrt() * self.normal()).round());
        }
        let (limit, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
        while limit < product {
            product *= self.unit();
            count += 1;
        }
        count
    }

    /// Puts a list in a drawn order.
    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for end in (1..list.len()).rev() {
            let other = self.below(u32::try_from(end + 1).unwrap_or(u32::MAX));
            list.swap(end, model::number::index(other));
        }
    }
}

/// Draws one of many by their weights in O(1) (Walker, 1977).
#[derive(Clone, Debug, Default)]
pub(crate) struct Alias {
    /// Of 2^32, how much of the cell is its own; and whose the rest is.
    cells: Vec<(u32, u32)>,
}

impl Alias {
    pub(crate) fn of(weights: &[f64]) -> Self {
        let count = u32::try_from(weights.len()).unwrap_or(u32::MAX);
        let sum: f64 = weights.iter().sum();
        assert!(0.0 < sum, "something has a weight");
        let mut left: Vec<f64> = weights.iter().map(|w| w * f64::from(count) / sum).collect();
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for (n, weight) in (0..count).zip(&left) {
            if *weight < 1.0 { small.push(n) } else { large.push(n) }
        }
        let mut cells: Vec<(u32, u32)> = (0..count).map(|n| (u32::MAX, n)).collect();
        while let (Some(&low), Some(&high)) = (small.last(), large.last()) {
            let (low_at, high_at) = (model::number::index(low), model::number::index(high));
            small.pop();
            let own = whole(left[low_at] * f64::from(u32::MAX));
            cells[low_at] = (u32::try_from(own).unwrap_or(u32::MAX), high);
            left[high_at] -= 1.0 - left[low_at];
            if left[high_at] < 1.0 {
                large.pop();
                small.push(high);
            }
        }
        Self { cells }
    }

    pub(crate) fn draw(&self, draw: &mut Draw) -> u32 {
        let bits = draw.next();
        let count = u64::try_from(self.cells.len()).unwrap_or(0);
        let at = u32::try_from(((bits >> 32) * count) >> 32).unwrap_or(0);
        let (own, other) = self.cells[model::number::index(at)];
        let low = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
        if low <= own { at } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_drawn_as_often_as_it_weighs() {
        let alias = Alias::of(&[1.0, 0.0, 5.0, 2.0]);
        let mut draw = Draw::of(1, "test", 0);
        let mut counts = [0_u32; 4];
        (0..80_000).for_each(|_| counts[model::number::index(alias.draw(&mut draw))] += 1);
        assert_eq!(counts[1], 0);
        for (count, expected) in [(counts[0], 10_000), (counts[2], 50_000), (counts[3], 20_000)] {
            assert!(count.abs_diff(expected) < 600, "{count} where {expected} were expected");
        }
    }

    #[test]
    fn poisson_has_its_mean_as_its_variance_small_and_large() {
        let mut draw = Draw::of(2, "test", 0);
        for mean in [0.3, 20.0, 500.0] {
            let drawn: Vec<f64> = (0..20_000).map(|_| real(draw.poisson(mean))).collect();
            let count = real(20_000);
            let average = drawn.iter().sum::<f64>() / count;
            let variance = drawn.iter().map(|n| (n - average).powi(2)).sum::<f64>() / count;
            assert!((average / mean - 1.0).abs() < 0.03, "{average} for {mean}");
            assert!((variance / mean - 1.0).abs() < 0.06, "{variance} for {mean}");
        }
    }

    #[test]
    fn draws_for_one_thing_say_nothing_of_those_for_another() {
        let first = |kind, n| Draw::of(7, kind, n).next();
        assert_ne!(first("a", 1), first("a", 2));
        assert_ne!(first("a", 1), first("b", 1));
        assert_eq!(first("a", 1), first("a", 1));
    }
}

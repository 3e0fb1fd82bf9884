//! How fast all transfers together may go.
//!
//! A token bucket, kept as one number: the time at which the bucket would be full again. Taking
//! `n` bytes moves that time by what `n` bytes take at the rate; what is taken may be used when
//! that time is at most one burst ahead.

use model::units::{BitsPerSecond, Bytes, Instant, Nanos};

/// A rate with a burst. A caller that takes bytes is told from when on it may use them.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    rate: BitsPerSecond,
    burst: Nanos,
    full_at: Instant,
}

impl Limiter {
    /// A full bucket of `burst`; what is taken at once may exceed it, and then waits longer.
    pub fn new(rate: BitsPerSecond, burst: Bytes) -> Self {
        assert!(0 < rate.0, "a rate of nothing would wait for ever: leave the limiter out instead");
        Self { rate, burst: span(rate, burst), full_at: Instant(0) }
    }

    /// What is taken from now on goes at another rate.
    pub fn set(&mut self, rate: BitsPerSecond, burst: Bytes) {
        if rate != self.rate {
            let full_at = self.full_at;
            *self = Self { full_at, ..Self::new(rate, burst) };
        }
    }

    /// Takes `amount`, and says from when on it may be used: `now`, or later.
    pub fn take(&mut self, now: Instant, amount: Bytes) -> Instant {
        self.full_at = self.full_at.max(now) + span(self.rate, amount);
        Instant(self.full_at.0.saturating_sub(self.burst.0)).max(now)
    }
}

/// How long `amount` takes, rounded up so that the rate is never exceeded.
fn span(rate: BitsPerSecond, amount: Bytes) -> Nanos {
    let nanos = (u128::from(amount.0) * 8_000_000_000).div_ceil(u128::from(rate.0));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let mut limiter = Limiter::new(BitsPerSecond(8_000), Bytes(1_000));
        let now = Instant(5_000_000_000);
        assert_eq!(limiter.take(now, Bytes(1_000)), now);
        assert_eq!(limiter.take(now, Bytes(500)), now + Nanos::millis(500));
        let later = now + Nanos::seconds(60);
        assert_eq!(
            limiter.take(later, Bytes(1_000)),
            later,
            "the bucket is full again, not fuller"
        );
        assert_eq!(limiter.take(later, Bytes(1)), later + Nanos::millis(1));
    }

    proptest! {
        #[test]
        fn whoever_waits_as_told_never_exceeds_rate_and_burst(
            rate in 1u64..10_000_000_000,
            burst in 0u64..1 << 20,
            takes in prop::collection::vec((0u64..1 << 30, 0u64..1 << 20), 1..40),
        ) {
            let mut limiter = Limiter::new(BitsPerSecond(rate), Bytes(burst));
            let start = Instant(1);
            let (mut now, mut used) = (start, 0);
            for (pause, amount) in takes {
                now = limiter.take(now + Nanos(pause), Bytes(amount));
                used += amount;
                let allowed = BitsPerSecond(rate).over(now.since(start)).0 + burst + 1;
                prop_assert!(used <= allowed, "{} used, {} allowed", used, allowed);
            }
        }
    }
}

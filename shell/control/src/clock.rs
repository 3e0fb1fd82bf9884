//! The two clocks, as the pure rooms want them.

use std::time::{Instant as StdInstant, SystemTime, UNIX_EPOCH};

use model::units::{Instant, Nanos, UnixSeconds};

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: StdInstant,
    /// Tests move the clock of dates by hand.
    #[cfg(test)]
    ahead_s: &'static std::sync::atomic::AtomicU64,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self {
            start: StdInstant::now(),
            #[cfg(test)]
            ahead_s: Box::leak(Box::default()),
        }
    }

    /// For decisions: never goes back.
    pub(crate) fn now(&self) -> Instant {
        Instant(0) + Nanos::from(self.start.elapsed())
    }

    /// For people and tokens.
    pub(crate) fn unix(&self) -> UnixSeconds {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        #[cfg(test)]
        let seconds = seconds + self.ahead_s.load(std::sync::atomic::Ordering::SeqCst);
        UnixSeconds(seconds)
    }

    #[cfg(test)]
    pub(crate) fn advance(&self, seconds: u64) {
        self.ahead_s.fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
    }
}

//! The two clocks, as the pure rooms want them.

use std::time::{Instant as StdInstant, SystemTime, UNIX_EPOCH};

use model::units::{Instant, Nanos, UnixSeconds};

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: StdInstant,
    /// Tests move the clocks by hand: that of decisions and that of dates.
    #[cfg(test)]
    ahead_s: &'static [std::sync::atomic::AtomicU64; 2],
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
        let now = Instant(0) + Nanos::from(self.start.elapsed());
        #[cfg(test)]
        let now = now + Nanos::seconds(self.ahead_s[0].load(std::sync::atomic::Ordering::SeqCst));
        now
    }

    /// For people and tokens.
    pub(crate) fn unix(&self) -> UnixSeconds {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = since.map_or(0, |since| since.as_secs());
        #[cfg(test)]
        let seconds = seconds + self.ahead_s[1].load(std::sync::atomic::Ordering::SeqCst);
        UnixSeconds(seconds)
    }

    /// The clock of dates alone.
    #[cfg(test)]
    pub(crate) fn advance(&self, seconds: u64) {
        self.ahead_s[1].fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
    }

    /// Both clocks.
    #[cfg(test)]
    pub(crate) fn pass(&self, seconds: u64) {
        self.ahead_s[0].fetch_add(seconds, std::sync::atomic::Ordering::SeqCst);
        self.advance(seconds);
    }
}

//! The two clocks, as the pure rooms want them.

use std::time::{Instant as StdInstant, SystemTime, UNIX_EPOCH};

use model::units::{Instant, Nanos, UnixSeconds};

/// Counts from the start of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: StdInstant,
}

impl Clock {
    /// Starts now.
    pub(crate) fn start() -> Self {
        Self { start: StdInstant::now() }
    }

    /// For decisions: never goes back.
    pub(crate) fn now(&self) -> Instant {
        Instant(0) + Nanos::from(self.start.elapsed())
    }

    /// For people and tokens.
    pub(crate) fn unix(&self) -> UnixSeconds {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        UnixSeconds(since.map_or(0, |since| since.as_secs()))
    }
}

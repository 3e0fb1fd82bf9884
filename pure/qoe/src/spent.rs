//! What one playback may tell of together: no more than it can have felt since it was first heard
//! of, whatever its player says.

use model::units::Nanos;

use crate::sums::{Source, Sums};

/// What players round, and what overlaps.
const ROUNDED: Nanos = Nanos::seconds(1);
/// Of a player that says nothing what was loaded counts as watched, and it has this in store.
const IN_STORE: Nanos = Nanos::seconds(60);
/// A playback stalls no more often than once in this, but for the first time.
const STALL_EVERY: Nanos = Nanos::seconds(1);

/// What was told of one playback.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    /// Stalled and watched.
    time: Nanos,
    stalls: u64,
}

impl Spent {
    /// Cuts what is told now, so long after the playback's first request, to what is left of that.
    pub(crate) fn cut(&mut self, passed: Nanos, source: Source, sums: &mut Sums) {
        let ahead = match source {
            Source::Requests | Source::Events => ROUNDED,
            Source::Estimate => IN_STORE,
        };
        let left = passed.0.saturating_add(ahead.0).saturating_sub(self.time.0);
        sums.stall_time = sums.stall_time.min(left);
        sums.watched = sums.watched.min(left - sums.stall_time);
        self.time = Nanos(self.time.0 + sums.stall_time + sums.watched);
        let most = passed.0 / STALL_EVERY.0 + 1;
        sums.stalls = sums.stalls.min(most.saturating_sub(self.stalls));
        sums.stalls_unmeasured = sums.stalls_unmeasured.min(sums.stalls);
        self.stalls += sums.stalls;
        assert!(sums.stall_time.saturating_add(sums.watched) <= left, "it is cut");
    }
}

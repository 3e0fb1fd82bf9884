//! The two clocks, read here and nowhere else on the serve path.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::units::{self, Nanos, UnixSeconds};
use rustix::time::{ClockId, clock_gettime};
use worker::Now;

/// Clocks of one thread.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts at zero.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// What both clocks say.
    pub fn now(self) -> Now {
        let instant = units::Instant(Nanos::from(self.start.elapsed()).0);
        Now { instant, wall: wall() }
    }
}

/// The wall clock.
pub fn wall() -> UnixSeconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |span| span.as_secs()))
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(whole * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

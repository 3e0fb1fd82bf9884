//! The two clocks, read here and nowhere else on the serve path.

use std::sync::OnceLock;
use std::time::Instant;

use model::units::{self, Nanos, UnixSeconds};
use rustix::time::{ClockId, clock_gettime};
use worker::Now;

/// The clocks of this process: what one thread calls a moment, all do.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

/// When the first was started.
static START: OnceLock<Instant> = OnceLock::new();

impl Clock {
    /// Zero is when the first of them was started.
    pub fn start() -> Self {
        Self { start: *START.get_or_init(Instant::now) }
    }

    /// What both clocks say.
    pub fn now(self) -> Now {
        let instant = units::Instant(Nanos::from(self.start.elapsed()).0);
        Now { instant, wall: wall() }
    }
}

/// The wall clock, at most a timer tick (4 ms) behind: each event asks, and this way it costs next
/// to nothing.
pub fn wall() -> UnixSeconds {
    UnixSeconds(u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0))
}

/// CPU time that the calling thread has used.
pub fn thread_cpu() -> Nanos {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let whole = u64::try_from(time.tv_sec).unwrap_or(0);
    Nanos(whole * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0))
}

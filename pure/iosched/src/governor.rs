//! How fast a drive may be written so that its reads stay below their target.
//!
//! ```text
//! reads ──> window of 100 to 500 ms ──> share over the target ──> rate down by up to 30 %
//!                                  └──> nobody over it ─────────> rate up, slowly near the ceiling
//! oldest read in flight, twice the target ──> no writes for 20 ms, rate down by 10 %
//! ```
//!
//! A count of late reads steers, not an average: an average over a thousand reads hides a share
//! that viewers see, and follows a drive only after it has changed again. The rate that failed is
//! remembered, so that it is not tried every second; a fall of the read load lifts that memory.

use model::units::{Bytes, Instant, Nanos};

/// What a governor aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A read that takes longer is late.
    pub target: Nanos,
    /// Reads of 10,000 that may be late. 25 keeps 99 of 100 in time within each second.
    pub late_per_10_000: u64,
    /// Always granted but in an emergency, in bytes per second.
    pub floor: Bytes,
    /// Granted before anything is known, in bytes per second.
    pub start: Bytes,
}

/// At least so long and so many reads to a window, and at most `WINDOW_MAX`.
const WINDOW_MIN: Nanos = Nanos::millis(100);
const WINDOW_MAX: Nanos = Nanos::millis(500);
const WINDOW_READS: u64 = 100;
/// Fewer in a second than this, and the drive is the writers'.
const IDLE_READS_PER_S: u64 = 40;
/// An emergency holds writes back for so long.
const BRAKE: Nanos = Nanos::millis(20);
/// A rate that failed is avoided for so long.
const CEILING_AGE: Nanos = Nanos::seconds(30);
/// Late reads weigh on raises for about 16 windows.
const SLOW: u64 = 16;
/// Reads of 10,000 over 6/10 of the target: above the first no raise, above the second a small cut.
const NEAR_HOLD: u64 = 150;
const NEAR_CUT: u64 = 400;
/// Windows without use after which a rate is not believed any more.
const UNUSED_MAX: u32 = 50;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: Instant,
    reads: u64,
    late: u64,
    /// Over 6/10 of the target.
    near: u64,
    /// Over a third of it.
    far: u64,
    written: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ceiling {
    rate: u64,
    reads_per_s: u64,
    until: Instant,
}

/// Steers one drive's rate of writes.
#[derive(Clone, Debug)]
pub struct Governor {
    config: Config,
    /// Bytes per second; invariant: floor <= rate.
    rate: u64,
    window: Window,
    ceiling: Option<Ceiling>,
    /// No rate has failed since the load last fell.
    searching: bool,
    /// Sums over the last windows, each fading by 1/16 per window.
    slow_reads: u64,
    slow_late: u64,
    slow_span: u64,
    unused: u32,
    braked_until: Instant,
    idle: bool,
}

impl Governor {
    /// Knows nothing yet, and begins at `start`.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(0 < config.target.0 && 0 < config.late_per_10_000 && 0 < config.floor.0);
        Self {
            config,
            rate: config.start.0.max(config.floor.0),
            window: Window { start: now, ..Window::default() },
            ceiling: None,
            searching: true,
            slow_reads: 0,
            slow_late: 0,
            slow_span: 0,
            unused: 0,
            braked_until: Instant(0),
            idle: false,
        }
    }

    /// Bytes per second that may be written now; None for as many as there are.
    pub fn rate(&self) -> Option<Bytes> {
        (!self.idle).then_some(Bytes(self.rate))
    }

    /// Until when nothing may be written.
    pub fn braked_until(&self) -> Instant {
        self.braked_until
    }

    /// A read came back after `span`.
    pub fn read(&mut self, now: Instant, span: Nanos) {
        self.window.reads += 1;
        self.window.late += u64::from(self.config.target < span);
        self.window.near += u64::from(self.config.target.0 * 6 / 10 < span.0);
        self.window.far += u64::from(self.config.target.0 / 3 < span.0);
        self.idle = false;
        self.close(now);
    }

    /// So much was handed to the drive.
    pub fn wrote(&mut self, now: Instant, len: Bytes) {
        self.window.written += len.0;
        self.close(now);
    }

    /// The oldest read in flight has waited for `age`. True if writes must stop.
    pub fn brakes(&mut self, now: Instant, age: Nanos) -> bool {
        if now < self.braked_until {
            return true;
        }
        if age.0 <= 2 * self.config.target.0 {
            return false;
        }
        self.braked_until = now + BRAKE;
        self.remember(now);
        self.scale(900);
        true
    }

    fn close(&mut self, now: Instant) {
        let window = self.window;
        let span = now.since(window.start);
        let full = WINDOW_READS <= window.reads && WINDOW_MIN <= span;
        if !full && span < WINDOW_MAX {
            return;
        }
        self.window = Window { start: now, ..Window::default() };
        let fade = |sum: u64| sum - sum / SLOW;
        self.slow_reads = fade(self.slow_reads) + 1024 * window.reads;
        self.slow_late = fade(self.slow_late) + 1024 * window.late;
        self.slow_span = fade(self.slow_span) + span.0 / 1000;
        self.steer(now, &window, window.written * 1_000_000 / (span.0 / 1000).max(1));
    }

    /// `used`: bytes per second that were written in this window.
    fn steer(&mut self, now: Instant, window: &Window, used: u64) {
        let allowed = self.config.late_per_10_000;
        let reads_per_s = self.reads_per_s();
        let troubled = self.slow_late * 10_000 > allowed * self.slow_reads;
        // One late read in a hundred is chance; two, or one after others, are not.
        if window.late * 10_000 > allowed * window.reads && (troubled || 1 < window.late) {
            let excess = window.late * 10_000 - allowed * window.reads;
            let cut = (30 * excess / (allowed * window.reads)).min(300);
            self.remember(now);
            self.scale(1000 - cut);
            return;
        }
        if NEAR_CUT * window.reads.max(50) < window.near * 10_000 {
            // Not late yet, but on the way.
            self.searching = false;
            self.scale(950);
            return;
        }
        if reads_per_s < IDLE_READS_PER_S {
            self.idle = window.reads == 0;
            self.ceiling = None;
            self.searching = true;
        }
        let lifted = |ceiling: &Ceiling| {
            ceiling.until <= now || reads_per_s * 100 < ceiling.reads_per_s * 75
        };
        if let Some(ceiling) = self.ceiling.filter(lifted) {
            self.ceiling = None;
            self.searching |= reads_per_s * 100 < ceiling.reads_per_s * 75;
        }
        if used * 10 < self.rate * 7 {
            // Not wound up: what nobody used is not known to be good.
            self.unused += 1;
            if UNUSED_MAX < self.unused && used * 3 / 2 < self.rate {
                self.scale(970);
                self.searching = true;
            }
            return;
        }
        self.unused = 0;
        let near = window.near * 10_000 / window.reads.max(50);
        if troubled || 0 < window.late || NEAR_HOLD < near {
            return;
        }
        let far = window.far * 100 / window.reads.max(1);
        let step = self.step(near, far);
        self.scale(1000 + step);
    }

    /// By how many thousandths to go up.
    fn step(&self, near: u64, far: u64) -> u64 {
        if let Some(ceiling) = self.ceiling {
            return if self.rate * 10 < ceiling.rate * 9 { 60 } else { 20 };
        }
        match self.searching && near <= NEAR_HOLD / 2 {
            // A drive that is far from its target needs no care.
            true if far == 0 => 700,
            true => 250,
            false => 30,
        }
    }

    fn remember(&mut self, now: Instant) {
        let until = now + CEILING_AGE;
        // The lowest of those that failed lately, but not what a long cut went through.
        let rate = self.ceiling.map_or(self.rate, |old| old.rate.min(self.rate.max(old.rate / 2)));
        self.ceiling = Some(Ceiling { rate, reads_per_s: self.reads_per_s(), until });
        self.searching = false;
    }

    fn reads_per_s(&self) -> u64 {
        self.slow_reads * 1_000_000 / 1024 / self.slow_span.max(1)
    }

    fn scale(&mut self, permille: u64) {
        let rate = self.rate.saturating_mul(permille) / 1000;
        self.rate = rate.clamp(self.config.floor.0, 1 << 40);
    }
}

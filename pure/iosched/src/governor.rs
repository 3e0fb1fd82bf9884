//! How fast a drive may be written so that its reads stay below their target.
//!
//! ```text
//! reads ──> window of 100 to 500 ms ──┬─> a burst of late ones ─────> rate down by up to 30 %
//!                                     └─> sums over ten seconds: harm per byte written
//!                                           ──> the rate that does the harm allowed, in steps
//! oldest read in flight, a fifth of the target ──> writes wait until it is back
//! ```
//!
//! Counts steer, not an average: an average over a thousand reads hides a share that viewers see.
//! Late reads alone are too rare and come in bursts (a drive that erases), so those near the target
//! count too. A rate that made a burst is remembered, so that it is not tried every second; a fall
//! of the read load lifts that memory.

use model::units::{Bytes, Instant, Nanos};

use crate::tally::Tally;
use crate::time_of;

/// The aim of a governor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Harm that is allowed per 10,000 reads: one over 6/10 of the drive's target counts 1, a late
    /// one 6. 115 keeps 99 of 100 in time within each second.
    pub harm_per_10_000: u64,
    /// Always granted but in an emergency, in bytes per second.
    pub floor: Bytes,
    /// Granted before anything is known, in bytes per second.
    pub start: Bytes,
}

impl Config {
    /// As measured by `lab drive`: docs/decisions/2026-11-22-harm-per-byte.md. An appliance has it,
    /// and so have its simulator and the lab: what they show is shown of what runs.
    pub const MEASURED: Self =
        Self { harm_per_10_000: 115, floor: Bytes(5_000_000), start: Bytes(20_000_000) };
}

/// At least so long and so many reads to a window, and at most `WINDOW_MAX`.
const WINDOW_MIN: Nanos = Nanos::millis(100);
const WINDOW_MAX: Nanos = Nanos::millis(500);
const WINDOW_READS: u64 = 100;
/// Fewer in a second than this, and the drive is the writers'.
const IDLE_READS_PER_S: u64 = 40;
/// A rate that failed is avoided for so long.
const CEILING_AGE: Nanos = Nanos::seconds(30);
/// Windows after which a sum has forgotten: 13 s, and 1 s, of 100 reads at 700 a second.
const SLOW: u64 = 100;
const FAST: u64 = 6;
/// So many thousandths of a window's reads late are a burst; each takes three times as many
/// thousandths of the rate.
const BURST: u64 = 30;
/// Reads of 10,000 over 6/10 of the target above which the rate falls without more evidence.
const NEAR_CUT: u64 = 400;
/// Harm of one read that is late beside that of one over 6/10 of the target.
const LATE_WEIGHT: u64 = 5;
/// Harm that is assumed before any is seen, so that little evidence grants little.
const PRIOR: u64 = 5;
/// Most of a window's change, in thousandths of the rate: up, down, and up near a ceiling.
const UP: u64 = 40;
const DOWN: u64 = 40;
const UP_NEAR_CEILING: u64 = 5;
/// A drive with fewer reads of 10,000 over 6/10 of the target than this needs no care.
const CALM: u64 = 3;
/// Windows without use after which a rate is not believed any more.
const UNUSED_MAX: u32 = 50;

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start: Instant,
    met: Tally,
    written: u64,
    /// Reads that came back and say nothing of writes.
    excused: u64,
}

/// Sums over the last windows, in 1/1024; each window makes older ones fade.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    reads: u64,
    late: u64,
    near: u64,
    written: u64,
    /// In microseconds, whole.
    span: u64,
}

impl Sums {
    fn add(&mut self, window: &Window, span: Nanos, windows: u64) {
        let add = |sum: &mut u64, n: u64| *sum = *sum - *sum / windows + n;
        add(&mut self.reads, 1024 * window.met.reads);
        add(&mut self.late, 1024 * window.met.late);
        add(&mut self.near, 1024 * window.met.near);
        add(&mut self.written, 1024 * window.written);
        add(&mut self.span, span.0 / 1000);
    }

    fn reads_per_s(&self) -> u64 {
        self.reads * 1_000_000 / 1024 / self.span.max(1)
    }
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
    /// Windows in which something was written, the last hundred or so.
    slow: Sums,
    /// All windows, the last six or so.
    fast: Sums,
    unused: u32,
    /// The floor grants the next write then.
    floor_next: Instant,
    idle: bool,
    /// All, and those over the target.
    windows: (u64, u64),
}

impl Governor {
    /// Knows nothing yet, and begins at `start`.
    pub fn new(config: Config, now: Instant) -> Self {
        assert!(0 < config.harm_per_10_000 && 0 < config.floor.0);
        Self {
            config,
            rate: config.start.0.max(config.floor.0),
            window: Window { start: now, ..Window::default() },
            ceiling: None,
            slow: Sums::default(),
            fast: Sums::default(),
            unused: 0,
            floor_next: now,
            idle: false,
            windows: (0, 0),
        }
    }

    /// Bytes per second that may be written now; None for as many as there are.
    pub fn rate(&self) -> Option<Bytes> {
        (!self.idle).then_some(Bytes(self.rate))
    }

    /// Windows so far, and those in which more than one read in a hundred was late.
    pub fn windows(&self) -> (u64, u64) {
        self.windows
    }

    /// Reads came back.
    pub fn read(&mut self, now: Instant, met: &Tally) {
        self.window.met.add(met);
        self.idle &= met.reads == 0;
        self.close(now);
    }

    /// So many reads came back and say nothing of writes, but that the drive is not the writers'.
    pub fn excuse(&mut self, reads: u64) {
        self.window.excused += reads;
        self.idle &= reads == 0;
    }

    /// So much was handed to the drive.
    pub fn wrote(&mut self, now: Instant, len: Bytes) {
        self.window.written += len.0;
        self.floor_next = self.floor_next.max(now + time_of(len, self.config.floor));
        self.close(now);
    }

    /// The oldest read in flight, of a drive with this target, has waited for `age`: until when
    /// writes wait, unless something comes back before. The floor is granted all the same, until a
    /// read is far too old.
    pub fn hold(&self, now: Instant, age: Nanos, target: Nanos) -> Option<Instant> {
        if age.0 * 5 <= target.0 {
            return None;
        }
        if 2 * target.0 < age.0 {
            return Some(Instant(u64::MAX));
        }
        (now < self.floor_next).then_some(self.floor_next)
    }

    fn close(&mut self, now: Instant) {
        let window = self.window;
        let span = now.since(window.start);
        let full = WINDOW_READS <= window.met.reads && WINDOW_MIN <= span;
        if !full && span < WINDOW_MAX {
            return;
        }
        self.window = Window { start: now, ..Window::default() };
        self.windows.0 += 1;
        self.windows.1 += u64::from(window.met.reads < 100 * window.met.late);
        if 0 < window.written {
            self.slow.add(&window, span, SLOW);
        }
        self.fast.add(&window, span, FAST);
        self.steer(now, &window, window.written * 1_000_000 / (span.0 / 1000).max(1));
    }

    /// `used`: bytes per second that were written in this window.
    fn steer(&mut self, now: Instant, window: &Window, used: u64) {
        let reads_per_s = self.fast.reads_per_s();
        let late = window.met.late * 1_000 / window.met.reads.max(50);
        if BURST <= late {
            self.remember(now);
            self.scale(1000 - (3 * late).min(300));
            return;
        }
        if NEAR_CUT * window.met.reads.max(50) < window.met.near * 10_000 {
            // Not late yet, but on the way.
            self.scale(950);
            return;
        }
        if reads_per_s < IDLE_READS_PER_S {
            self.idle = window.met.reads + window.excused == 0;
            self.ceiling = None;
        }
        let lifted = |ceiling: &Ceiling| {
            ceiling.until <= now || reads_per_s * 100 < ceiling.reads_per_s * 75
        };
        if self.ceiling.as_ref().is_some_and(lifted) {
            self.ceiling = None;
        }
        let best = self.best();
        if best < self.rate && 0 < window.written {
            self.scale((best * 1000 / self.rate).max(1000 - DOWN));
            return;
        }
        if used * 10 < self.rate * 7 {
            // Not wound up: a rate that nobody used is not known to be good.
            self.unused += 1;
            if UNUSED_MAX < self.unused && used * 3 / 2 < self.rate {
                self.scale(970);
            }
            return;
        }
        self.unused = 0;
        if 0 < window.met.late {
            return;
        }
        let step = self.step(window).min(best.saturating_sub(self.rate) * 1000 / self.rate);
        self.scale(1000 + step);
    }

    /// Harm grows as the rate does, so this rate would do what is allowed. Where reads have risen
    /// since the harm was seen, less: what was seen grew with their square, or nearly.
    fn best(&self) -> u64 {
        let slow = &self.slow;
        let harm = slow.near + LATE_WEIGHT * slow.late + 1024 * PRIOR;
        let rate = slow.written / 1024 * 1_000_000 / slow.span.max(1);
        let allowed = self.config.harm_per_10_000 * slow.reads / 10_000;
        let best = rate.saturating_mul(allowed) / harm;
        let (before, now) = (slow.reads_per_s(), self.fast.reads_per_s().max(1));
        if now * 92 <= before * 100 {
            return best;
        }
        (best.saturating_mul(before) / now).saturating_mul(before) / now
    }

    /// By how many thousandths to go up.
    fn step(&self, window: &Window) -> u64 {
        let near_ceiling = |ceiling: Ceiling| ceiling.rate * 9 < self.rate * 10;
        match (window.met.near, window.met.far) {
            (_, _) if self.ceiling.is_some_and(near_ceiling) => UP_NEAR_CEILING,
            (0, 0) => 700,
            (0, _) if self.slow.near * 10_000 < CALM * self.slow.reads => 500,
            (_, _) => UP,
        }
    }

    fn remember(&mut self, now: Instant) {
        let until = now + CEILING_AGE;
        // The lowest of those that failed lately, but not what a long cut went through.
        let rate = self.ceiling.map_or(self.rate, |old| old.rate.min(self.rate.max(old.rate / 2)));
        self.ceiling = Some(Ceiling { rate, reads_per_s: self.fast.reads_per_s(), until });
    }

    fn scale(&mut self, permille: u64) {
        let rate = self.rate.saturating_mul(permille) / 1000;
        self.rate = rate.clamp(self.config.floor.0, 1 << 40);
        assert!(self.config.floor.0 <= self.rate, "the floor is always granted");
    }
}

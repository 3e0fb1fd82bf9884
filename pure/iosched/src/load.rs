//! How much more a drive could serve. Operations that wait for our own permission are not its load.
//!
//! A drive that works on many things at once is "busy" as soon as one is there, and the kernel
//! says 100 % long before it is. What tells is how much longer a read takes than when the drive
//! had nothing else to do: with one queue that is 1 / (1 - u), u being its load.
//!
//! As long as nearly all reads are well within their target, what slows them is writes, which give
//! way, or the machine: then the drive has something left, whatever the arithmetic says.

use model::status::{DriveLoad, UNFELT_HEADROOM_PERMILLE};
use model::units::{Bytes, Instant, Nanos};

use crate::tally::Tally;

/// A mean is of so many reads.
const READS: u64 = 64;
/// After this without so many, those that came count, and if none came, nobody reads.
const AGE: Nanos = Nanos::seconds(10);
/// Fewer reads of 1,000 over 6/10 of the target are not felt. The governor allows writes 11.
const NEAR_FEW: u64 = 20;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    target: Nanos,
    reads: u64,
    sum: u64,
    /// Fading mean over about eight windows, in ns.
    mean: u64,
    /// Of the means of as many reads as count; 0 before the first.
    lowest: u64,
    near: u64,
    /// Fading as the mean is, of 1,000 reads.
    near_permille: u64,
    at: Instant,
}

impl Meter {
    pub(crate) fn new(target: Nanos, now: Instant) -> Self {
        Self { target, reads: 0, sum: 0, mean: 0, lowest: 0, near: 0, near_permille: 0, at: now }
    }

    /// Reads that came back since the last call, or none.
    pub(crate) fn read(&mut self, now: Instant, met: &Tally) {
        self.reads += met.reads;
        self.sum += met.service.0;
        self.near += met.near;
        let is_old = AGE <= now.since(self.at);
        if self.reads < READS && !is_old {
            return;
        }
        let mean = self.sum.checked_div(self.reads).unwrap_or(self.lowest);
        // One of a few reads says nothing: those that did not come count as good ones.
        let near = 1000 * self.near / self.reads.max(READS);
        if self.mean == 0 || is_old {
            (self.mean, self.near_permille) = (mean, near);
        } else {
            self.mean = (7 * self.mean + mean) / 8;
            self.near_permille = (7 * self.near_permille + near) / 8;
        }
        if READS <= self.reads {
            self.lowest = if self.lowest == 0 { self.mean } else { self.lowest.min(self.mean) };
        }
        (self.reads, self.sum, self.near, self.at) = (0, 0, 0, now);
    }

    /// The 99th of 100 waits about 4.6 times the mean, if waits are exponential: so the load at
    /// which it meets the target is 1 - 4.6 lowest / target.
    pub(crate) fn load(
        &self,
        fill_granted: Option<Bytes>,
        fills_held: usize,
        (windows, windows_late): (u64, u64),
    ) -> DriveLoad {
        let mean = self.mean.max(1);
        let now = 1000 - 1000 * self.lowest.min(mean) / mean;
        let most = 1000_u64.saturating_sub(4600 * self.lowest / self.target.0).max(1);
        assert!((1..=1000).contains(&most), "thousandths of what it could serve");
        let left = 1000_u64.saturating_sub(1000 * now / most);
        let left = u32::try_from(left).unwrap_or(0);
        let is_felt = NEAR_FEW <= self.near_permille;
        let headroom_permille = match self.lowest {
            _ if is_felt => left,
            // Nobody knows yet what a read takes there.
            0 => 1000,
            _ => left.max(UNFELT_HEADROOM_PERMILLE),
        };
        DriveLoad {
            headroom_permille,
            service: Nanos(self.mean),
            service_unloaded: Nanos(self.lowest),
            fill_granted,
            fills_held,
            windows,
            windows_late,
        }
    }
}

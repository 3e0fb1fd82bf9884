//! How much more a drive could serve. Operations that wait for our own permission are not its load.
//!
//! A drive that works on many things at once is "busy" as soon as one is there, and the kernel
//! says 100 % long before it is. What tells is how much longer a read takes than when the drive
//! had nothing else to do: with one queue that is 1 / (1 - u), u being its load.

use model::status::DriveLoad;
use model::units::{Bytes, Nanos};

use crate::tally::Tally;

/// A mean is of so many reads.
const READS: u64 = 64;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    target: Nanos,
    reads: u64,
    sum: u64,
    /// Fading mean over about eight windows, in ns.
    mean: u64,
    lowest: u64,
}

impl Meter {
    pub(crate) fn new(target: Nanos) -> Self {
        Self { target, reads: 0, sum: 0, mean: 0, lowest: 0 }
    }

    pub(crate) fn read(&mut self, met: &Tally) {
        self.reads += met.reads;
        self.sum += met.service.0;
        if self.reads < READS {
            return;
        }
        let mean = self.sum / self.reads;
        self.mean = if self.mean == 0 { mean } else { (7 * self.mean + mean) / 8 };
        self.lowest = if self.lowest == 0 { self.mean } else { self.lowest.min(self.mean) };
        (self.reads, self.sum) = (0, 0);
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
        DriveLoad {
            headroom_permille: u32::try_from(left).unwrap_or(0),
            service: Nanos(self.mean),
            service_unloaded: Nanos(self.lowest),
            fill_granted,
            fills_held,
            windows,
            windows_late,
        }
    }
}

//! The scrub's threads, one a drive: `upkeep::scrub` does the work.

use std::sync::atomic::AtomicU64;

use model::extent::DriveIndex;
use model::status::ScrubStatus;
use model::units::Nanos;
use upkeep::{at_once, scrub};

use crate::counters::now;
use crate::shared::Shared;

/// How far one drive is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// First eight bytes of the id of the object that was verified last. Ids are hashes, so this
    /// goes evenly from 0 to 2^64 in one pass.
    pub(crate) at: AtomicU64,
    /// Whole passes since the start.
    pub(crate) passes: AtomicU64,
}

impl Progress {
    pub(crate) fn status(&self) -> ScrubStatus {
        ScrubStatus { at: now(&self.at), passes: now(&self.passes) }
    }
}

/// A drive with little on it is not read again at once.
const PASS_MIN: Nanos = Nanos::seconds(24 * 3600);

/// Runs until all must stop.
pub(crate) fn run(shared: &Shared, index: DriveIndex) {
    let Some(rate) = shared.config.scrub_rate else { return };
    at_once(scrub::run(shared, index, rate, PASS_MIN));
}

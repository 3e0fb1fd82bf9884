//! When a drive that fails here and there is given up as a whole.
//!
//! ```text
//! one object cannot be read     the object goes, and is filled again       the drive stays
//! one more than is borne        the drive is set aside
//! within the window
//! ```
//!
//! A drive has bad places as it ages, and loses a few objects to them in a year: each is a fetch of
//! one object. A drive that dies fails wherever it is read: then each further read costs a viewer a
//! detour, and the drive's own retries cost seconds. What speaks of the whole drive at once (it is
//! gone, it is read-only, its file system has shut down) does not come here.

use std::collections::VecDeque;

use model::units::{Instant, Nanos};

/// The failures that a drive may have before it is set aside.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// So many objects may fail within the window.
    pub objects_max: usize,
    pub window: Nanos,
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    SetObjectAside,
    SetDriveAside,
}

/// One drive's failures.
#[derive(Debug)]
pub struct Health {
    config: Config,
    /// When objects failed. Invariant: oldest first, at most `objects_max + 1`.
    failed: VecDeque<Instant>,
}

impl Health {
    /// A drive without failures.
    pub fn new(config: Config) -> Self {
        Self { config, failed: VecDeque::new() }
    }

    /// An object could not be read for the drive's sake. Told once for each time that an object is
    /// set aside, not for each viewer who met it.
    pub fn object_failed(&mut self, now: Instant) -> Verdict {
        while self.failed.front().is_some_and(|at| self.config.window < now.since(*at)) {
            self.failed.pop_front();
        }
        if self.failed.len() <= self.config.objects_max {
            self.failed.push_back(now);
        }
        assert!(self.failed.len() <= self.config.objects_max + 1, "one too many is enough");
        if self.config.objects_max < self.failed.len() {
            Verdict::SetDriveAside
        } else {
            Verdict::SetObjectAside
        }
    }

    /// Objects that failed within the window, as of the last failure.
    pub fn failures(&self) -> usize {
        self.failed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Nanos = Nanos::seconds(3600);

    /// Failures at these minutes; which of them sets the drive aside.
    fn check(minutes: &[u64], wanted: Option<usize>) {
        let mut health = Health::new(Config { objects_max: 3, window: HOUR });
        let at = |minute: &u64| Instant(0) + Nanos::seconds(minute * 60);
        let first = minutes
            .iter()
            .position(|minute| health.object_failed(at(minute)) == Verdict::SetDriveAside);
        assert_eq!(first, wanted, "{minutes:?}");
        assert!(health.failures() <= 4, "bounded");
    }

    #[test]
    fn one_bad_object_is_borne_and_many_at_once_are_the_drive() {
        check(&[0], None);
        check(&[0, 1, 2], None);
        check(&[0, 1, 2, 3], Some(3));
        check(&[0, 0, 0, 0], Some(3));
        check(&[0, 60, 60, 60], Some(3));
    }

    #[test]
    fn failures_that_are_long_ago_do_not_count() {
        check(&[0, 50, 100, 150, 200, 250], None);
        check(&[0, 1, 2, 61, 62, 63], None);
        check(&[0, 1, 2, 62, 63, 64, 65], Some(6));
    }
}

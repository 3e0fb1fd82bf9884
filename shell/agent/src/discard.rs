//! Tells devices what is free, a range at a time, for at most a twentieth of their time unless a
//! range takes over 31 s.
//!
//! ```text
//! every hour ─> drive ─> [range] pause [range] pause ... ─> next drive
//!                           └── fstrim --offset --length: took 20 ms ─> pause 380 ms
//! ```
//!
//! A drive that is not told copies what was deleted as if it were needed, several times what is
//! written (docs/numbers.md, "Files or units"). One fstrim of a whole drive, or a mount with
//! `discard`, tells it in bursts that nobody bounds, and a SATA drive answers no read meanwhile.
//! The file system knows what is free: within a range it tells of that and of nothing else, and
//! holds it while it does, so what is being written is never hit. ext4 remembers what it told; XFS
//! tells again each time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use model::units::Bytes;

use crate::config::Settings;

/// Of the time, 1 in so many is spent in telling.
const SHARE: u32 = 20;
/// Even after a range with nothing to tell: an fstrim is a process that starts and ends.
const PAUSE_MIN: Duration = Duration::from_millis(40);
/// The other drives wait too: one that takes over 31 s for a range does not keep them from being
/// told for hours. It then has more than its share: docs/operate/discards.md.
const PAUSE_MAX: Duration = Duration::from_secs(600);

/// A drive, from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sweep {
    at: Bytes,
    len: Bytes,
    range: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// So many bytes, or as much as the program said.
    Bytes(u64),
    /// So many bytes, and then this stood in the way.
    Later(u64, String),
    /// It cannot be told, and why.
    Never(String),
}

impl Sweep {
    fn new(len: Bytes, range: Bytes) -> Self {
        assert!(0 < range.0, "the settings refuse an empty range");
        Self { at: Bytes::ZERO, len, range }
    }
}

/// Ranges, as offset and length.
impl Iterator for Sweep {
    type Item = (Bytes, Bytes);

    fn next(&mut self) -> Option<Self::Item> {
        let len = self.range.min(self.len.saturating_sub(self.at));
        let range = (self.at, len);
        self.at += len;
        (0 < len.0).then_some(range)
    }
}

/// How long nothing is told after a range that took so long.
fn pause(took: Duration) -> Duration {
    took.saturating_mul(SHARE - 1).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// Goes round the drives until the process ends. `trim` tells of one range of one drive.
pub(crate) fn run(
    settings: &Settings,
    trim: impl Fn(&Path, Bytes, Bytes) -> Result<Option<u64>, String>,
) {
    let Some(every) = settings.discard.every.0.0.map(Duration::from) else { return };
    let mut never: Vec<PathBuf> = Vec::new();
    let mut left = every;
    loop {
        // First of all, too: an agent that is started again and again would tell all the time.
        std::thread::sleep(left);
        let began = Instant::now();
        for path in &settings.drives.paths {
            if never.contains(path) {
                continue;
            }
            let shown = path.display();
            let trim = |offset, len| trim(path, offset, len);
            match one(path, settings.discard.range.0, trim) {
                Told::Bytes(bytes) => tracing::info!(drive = %shown, bytes, "trimmed"),
                Told::Later(bytes, error) => {
                    tracing::warn!(drive = %shown, bytes, error, "not trimmed whole: again later");
                }
                Told::Never(error) => {
                    tracing::warn!(drive = %shown, error, "not trimmed until a restart");
                    never.push(path.clone());
                }
            }
        }
        left = every.saturating_sub(began.elapsed());
    }
}

/// One drive. A passing obstacle (not mounted, a trim under way) is tried again next time; an
/// operation that the device or the file system does not support is not.
fn one(
    path: &Path,
    range: Bytes,
    trim: impl Fn(Bytes, Bytes) -> Result<Option<u64>, String>,
) -> Told {
    let len = match rustix::fs::statvfs(path) {
        // Its own tables are not among its blocks: a little more than there is does no harm.
        Ok(stat) => Bytes(stat.f_blocks.saturating_mul(stat.f_frsize) / 8 * 9),
        Err(error) => return Told::Later(0, format!("cannot be measured: {error}")),
    };
    sweep(Sweep::new(len, range), trim, std::thread::sleep)
}

fn sweep(
    ranges: Sweep,
    trim: impl Fn(Bytes, Bytes) -> Result<Option<u64>, String>,
    sleep: impl Fn(Duration),
) -> Told {
    let mut told = 0;
    for (offset, len) in ranges {
        let began = Instant::now();
        match trim(offset, len) {
            Ok(bytes) => told += bytes.unwrap_or(0),
            Err(error) if error.contains("not supported") || error.contains("not installed") => {
                return Told::Never(error);
            }
            // Behind the last block of the file system.
            Err(error) if 0 < offset.0 && error.contains("Invalid argument") => break,
            Err(error) => return Told::Later(told, error),
        }
        sleep(pause(began.elapsed()));
    }
    Told::Bytes(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_range_is_followed_by_nineteen_times_its_time_and_ten_minutes_at_most() {
        let check = |took: u64, wanted: u64| {
            assert_eq!(pause(Duration::from_millis(took)), Duration::from_millis(wanted));
        };
        check(20, 380);
        check(0, 40);
        check(1_000, 19_000);
        check(31_000, 589_000);
        check(32_000, 600_000);
    }

    #[test]
    fn a_drive_is_told_range_after_range_with_a_pause_after_each() {
        let pauses = std::cell::RefCell::new(Vec::new());
        let check = |answer: &dyn Fn(u64) -> Result<Option<u64>, String>| {
            pauses.borrow_mut().clear();
            let ranges = Sweep::new(Bytes::mib(1000), Bytes::mib(256));
            let trim = |offset: Bytes, _| answer(offset.0 >> 20);
            sweep(ranges, trim, |pause| pauses.borrow_mut().push(pause))
        };
        assert_eq!(check(&|at| Ok(Some(at))), Told::Bytes(256 + 512 + 768));
        assert_eq!(pauses.borrow().len(), 4);
        assert!(pauses.borrow().iter().all(|pause| PAUSE_MIN <= *pause));
        let failed = |text: &str| Err(format!("fstrim: /d: FITRIM ioctl failed: {text}"));
        assert_eq!(
            check(&|at| if at < 512 { Ok(Some(1)) } else { failed("Invalid argument") }),
            Told::Bytes(2),
            "the end of the file system"
        );
        assert_eq!(
            check(&|at| if at < 256 { Ok(Some(1)) } else { failed("Input/output error") }),
            Told::Later(1, failed("Input/output error").unwrap_err())
        );
        let never = check(&|_| Err("fstrim: the discard operation is not supported".to_owned()));
        assert!(matches!(never, Told::Never(_)), "{never:?}");
    }

    proptest! {
        #[test]
        fn ranges_cover_the_drive_once(len in 0u64..1 << 44, ranges in 1u64..64) {
            let range = Bytes(len / ranges + 1);
            let mut end = 0;
            for (offset, len) in Sweep::new(Bytes(len), range) {
                prop_assert_eq!(offset.0, end);
                prop_assert!(0 < len.0 && len <= range);
                end += len.0;
            }
            prop_assert_eq!(end, len);
        }
    }
}

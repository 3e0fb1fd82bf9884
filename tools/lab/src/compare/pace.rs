//! How long trials and windows are, by the drive: on a slow one, longer.
//!
//! A *round* is the time in which the drive can answer every connection once. A server that treats
//! all alike needs one round for that, whatever the drive; so windows are counted in rounds.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use model::units::Bytes;
use rustix::fs::OFlags;

/// Lengths of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Load before each window.
    pub(crate) warm_up: Duration,
    /// The window in which a configuration is tried.
    pub(crate) trial: Duration,
    pub(crate) window: Duration,
}

/// What is asked of the drive in a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    pub(crate) bytes_per_s: Bytes,
    pub(crate) round_len: Bytes,
}

/// Rounds of a trial, a window and the load before: for the drive that gives 0.7 GB/s they are less
/// than the times that are asked for by default.
const ROUNDS: Pace = Pace {
    warm_up: Duration::from_secs(2),
    trial: Duration::from_secs(4),
    window: Duration::from_secs(6),
};
/// A drive that needs more is too slow for the workload, and the run says who was not answered.
const LONGEST: Duration = Duration::from_secs(120);

impl Pace {
    /// At least `asked`, and so many rounds of the drive, if the workload reads from it.
    pub(crate) fn new(asked: Self, drive: Option<Drive>) -> Self {
        let Some(drive) = drive else { return asked };
        let round = drive.time_of(drive.round_len).as_secs_f64();
        let of = |asked: Duration, rounds: Duration| {
            let needed = (rounds.as_secs_f64() * round).min(LONGEST.as_secs_f64());
            asked.max(Duration::from_secs_f64(needed))
        };
        Self {
            warm_up: of(asked.warm_up, ROUNDS.warm_up),
            trial: of(asked.trial, ROUNDS.trial),
            window: of(asked.window, ROUNDS.window),
        }
    }
}

impl Drive {
    /// Reads the files past the page cache at random for a moment, several at a time.
    pub(crate) fn measure(files: &[PathBuf], round_len: Bytes, time: Duration) -> Result<Self> {
        let read = AtomicU64::new(0);
        let start = Instant::now();
        std::thread::scope(|scope| {
            let run = |reader| {
                let read = &read;
                scope.spawn(move || read_at_random(files, reader, start + time, read))
            };
            let readers: Vec<_> = (0..READERS).map(run).collect();
            readers.into_iter().try_for_each(|reader| {
                reader.join().map_err(|_| anyhow::anyhow!("a reader of the drive ended"))?
            })
        })?;
        let per_s = u128::from(read.into_inner()) * 1_000_000 / start.elapsed().as_micros().max(1);
        let bytes_per_s = Bytes(u64::try_from(per_s)?);
        ensure!(0 < bytes_per_s.0, "the drive gave nothing in {time:?}");
        Ok(Self { bytes_per_s, round_len })
    }

    /// How long it takes to read so much.
    pub(crate) fn time_of(&self, len: Bytes) -> Duration {
        let micros = u128::from(len.0) * 1_000_000 / u128::from(self.bytes_per_s.0.max(1));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// As many as keep a drive busy.
const READERS: u64 = 8;
const READ_LEN: usize = 512 << 10;
const ALIGNMENT: usize = 4096;

fn read_at_random(files: &[PathBuf], reader: u64, end: Instant, read: &AtomicU64) -> Result<()> {
    let mut room = vec![0; READ_LEN + ALIGNMENT];
    let skip = room.as_ptr().align_offset(ALIGNMENT);
    let buffer = &mut room[skip..skip + READ_LEN];
    // Any that scatters: a multiplier of Knuth's, so that two readers are never in step.
    let mut dice = reader.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let open = |path: &PathBuf| {
        let file = File::options().read(true).custom_flags(flags).open(path);
        file.with_context(|| format!("cannot read {} past the page cache", path.display()))
    };
    let files: Vec<File> = files.iter().map(open).collect::<Result<_>>()?;
    let read_len = u64::try_from(READ_LEN)?;
    while Instant::now() < end {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let dice = dice >> 16;
        let file = &files[usize::try_from(dice % u64::try_from(files.len())?)?];
        let places = (file.metadata()?.len() / read_len).max(1);
        let count = file.read_at(buffer, (dice >> 12) % places * read_len)?;
        read.fetch_add(u64::try_from(count)?, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Pace = Pace {
        warm_up: Duration::from_secs(2),
        trial: Duration::from_secs(2),
        window: Duration::from_secs(5),
    };

    fn seconds(bytes_per_s: u64) -> [u64; 3] {
        let drive = Drive { bytes_per_s: Bytes(bytes_per_s), round_len: Bytes(400_000_000) };
        let pace = Pace::new(ASKED, Some(drive));
        [pace.warm_up, pace.trial, pace.window].map(|time| time.as_secs())
    }

    #[test]
    fn windows_grow_with_a_slow_disk_and_not_without_end() {
        assert_eq!(seconds(4_000_000_000), [2, 2, 5], "as asked");
        assert_eq!(seconds(100_000_000), [8, 16, 24]);
        assert_eq!(seconds(1_000), [120; 3]);
        assert_eq!(Pace::new(ASKED, None), ASKED);
    }

    #[test]
    fn a_disk_is_read_past_the_page_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, vec![7; 4 << 20]).unwrap();
        let time = Duration::from_millis(50);
        let drive = Drive::measure(&[path], Bytes::mib(1), time).unwrap();
        assert!(1_000_000 < drive.bytes_per_s.0, "{}", drive.bytes_per_s);
    }
}

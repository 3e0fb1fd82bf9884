//! The hours of demand on the state's drive: the present one, and parts that wait for control.
//!
//! ```text
//! the present hour ── over ──> demand.NUMBER, a part ──> control ── counted ──┐
//!   │ every 5 min                   ^                                         │
//!   └──> demand.hour ── a restart ──┘            the part is removed <────────┘
//! ```
//!
//! An hour is counted once. Its number is drawn when it begins, and is the name of its part and
//! control's mark: a part that is there already is not made again from `demand.hour`, and one that
//! control has counted is not counted again. What a crash loses is five minutes; a stop, nothing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use model::extent::FileName;
use model::units::{Bytes, Hour, Instant, Nanos, UnixSeconds};
use popularity::{Sealed, Sums, Tally};
use rustix::fs::AtFlags;
use upkeep::DriveError;
use wire::v1::demand::DemandPart;

use crate::demand::{Demand, TALLY, set_right};
use crate::storage::drives::{self, OpenError};

/// The present hour is kept so often: a crash forgets no more.
const KEEP_EVERY: Nanos = Nanos::seconds(300);

/// Parts that wait for control: two weeks of hours. The oldest makes way.
const PARTS_MAX: usize = 14 * 24;

/// A number is a time in seconds, and may be ahead of another clock's by ten years. Arbitrary.
const AHEAD_MAX_S: u64 = 10 * 365 * 86_400;

/// The present hour.
const HOUR_FILE: &str = "demand.hour";
/// Before the number of a part.
const PART: &str = "demand.";

/// What is kept of the counts, in the state directory.
pub(crate) struct Kept {
    root: OwnedFd,
    /// The numbers of parts that wait, the oldest first. Invariant: at most `PARTS_MAX`.
    parts: Vec<u64>,
    /// Of the present hour: above those of all parts that ever were.
    number: u64,
    kept_at: Instant,
}

impl Kept {
    /// Takes up what was kept: the hour that was counted, and parts that wait. A file that cannot
    /// be read is left out.
    pub(crate) fn open(demand: &Demand, state: &Path, now: UnixSeconds) -> Result<Self, OpenError> {
        let root = drives::open_root(state)?;
        let names = drives::list(&root, &FileName(".".into())).unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "parts of the demand wait in the state directory, and cannot be listed: they are \
                 told after a start that can"
            );
            Vec::new()
        });
        names.iter().filter(|name| is_left_over(name)).for_each(|name| remove(&root, name));
        let number = |name: &String| name.strip_prefix(PART)?.parse::<u64>().ok();
        let mut parts: Vec<u64> = names.iter().filter_map(number).collect();
        parts.sort_unstable();
        let above = parts.last().map_or(0, |last| last.saturating_add(1));
        let mut kept = Self { root, parts, number: now.0.max(above), kept_at: <_>::default() };
        let tally = match drives::read_small(&kept.root, HOUR_FILE) {
            Ok(None) => None,
            Ok(Some(bytes)) => kept.read_hour(&bytes, Hour::at(now)),
            Err(error) => {
                tracing::warn!(
                    %error,
                    file = HOUR_FILE,
                    "the hour that was counted is lost: its file cannot be read"
                );
                None
            }
        };
        let tally = tally.unwrap_or_else(|| Tally::new(TALLY, Hour::at(now)));
        demand.restore(tally);
        kept.count(demand);
        Ok(kept)
    }

    /// The hour that was kept, unless its part is there.
    fn read_hour(&mut self, bytes: &[u8], present: Hour) -> Option<Tally> {
        let text = String::from_utf8_lossy(bytes);
        let (number, tally) = text.split_once('\n')?;
        let (number, mut tally) = (number.parse().ok()?, Tally::decode(TALLY, tally)?);
        if self.parts.last().is_some_and(|last| number <= *last) {
            return None;
        }
        self.number = number;
        set_right(&mut tally, present);
        Some(tally)
    }

    /// Ends the hour if it is over, and keeps it now and then, or because all must stop. To be
    /// called each second or so.
    pub(crate) fn go_on(
        &mut self,
        demand: &Demand,
        (now, wall): (Instant, UnixSeconds),
        is_last: bool,
    ) -> Result<(), DriveError> {
        let is_due = is_last || KEEP_EVERY <= now.since(self.kept_at);
        let (sealed, text) = demand.turn(Hour::at(wall), is_due);
        if let Some(sealed) = sealed {
            let kept = self.put(&sealed);
            if kept.is_err() {
                demand.counters.lost.fetch_add(1, Ordering::Relaxed);
            }
            self.number = self.number.saturating_add(1).max(wall.0);
            self.make_room(demand);
            self.count(demand);
            kept?;
        }
        if let Some(text) = text {
            self.kept_at = now;
            let text = format!("{}\n{text}", self.number);
            drives::replace(&self.root, HOUR_FILE, text.as_bytes())?;
        }
        Ok(())
    }

    /// The oldest part that waits; none if none does. One that cannot be read is let go.
    pub(crate) fn first(&mut self, demand: &Demand) -> Option<DemandPart> {
        while let Some(number) = self.parts.first().copied() {
            match self.read(number) {
                Ok(part) => return Some(part),
                Err(error) => {
                    tracing::warn!(error, part = number, "a part of the demand is left out");
                    demand.counters.lost.fetch_add(1, Ordering::Relaxed);
                    self.remove(number);
                }
            }
        }
        self.count(demand);
        None
    }

    /// Control does not take the oldest part, and never will.
    pub(crate) fn refused(&mut self, demand: &Demand) {
        if let Some(number) = self.parts.first().copied() {
            demand.counters.lost.fetch_add(1, Ordering::Relaxed);
            self.remove(number);
        }
        self.count(demand);
    }

    /// Control has counted parts up to this number. Later ones have others, though this machine's
    /// clock was set back since it told that one, or its state is a new one. A number that no clock
    /// of late can have given is another's, who had this identity: not to go on from, since there
    /// may be none above it, and the next identity begins anew.
    pub(crate) fn counted(&mut self, demand: &Demand, number: u64) {
        if number < self.number.saturating_add(AHEAD_MAX_S) {
            self.number = self.number.max(number.saturating_add(1));
        }
        let count = self.parts.partition_point(|part| *part <= number);
        for part in self.parts.drain(..count).collect::<Vec<_>>() {
            self.remove(part);
            demand.counters.told.fetch_add(1, Ordering::Relaxed);
        }
        self.count(demand);
    }

    fn put(&mut self, sealed: &Sealed) -> Result<(), DriveError> {
        let mut bytes = sealed.hour.0.to_le_bytes().to_vec();
        bytes.extend(sealed.beyond.0.to_le_bytes());
        bytes.extend(sealed.files.encode());
        drives::replace(&self.root, &name(self.number), &bytes)?;
        self.parts.push(self.number);
        Ok(())
    }

    fn read(&self, number: u64) -> Result<DemandPart, String> {
        let bytes = drives::read_small(&self.root, &name(number)).map_err(|e| e.to_string())?;
        let bytes = bytes.ok_or("it is not there any more")?;
        let (hour, rest) = bytes.split_first_chunk().ok_or("it is cut off")?;
        let (beyond, rest) = rest.split_first_chunk().ok_or("it is cut off")?;
        let sums = Sums::decode(rest).map_err(|error| error.to_string())?;
        let (files, bytes) = sums.iter().map(|(file, bytes)| (file.0, bytes.0)).unzip();
        let (hour, beyond_bytes) = (u32::from_le_bytes(*hour), u64::from_le_bytes(*beyond));
        Ok(DemandPart { number, hour, files, bytes, beyond_bytes })
    }

    /// The oldest parts make way.
    fn make_room(&mut self, demand: &Demand) {
        while PARTS_MAX < self.parts.len() {
            demand.counters.lost.fetch_add(1, Ordering::Relaxed);
            self.remove(self.parts[0]);
        }
    }

    fn remove(&mut self, number: u64) {
        // One that stays is told again after a restart, and control counts it once.
        remove(&self.root, &name(number));
        self.parts.retain(|part| *part != number);
    }

    fn count(&self, demand: &Demand) {
        let waiting = Bytes::of(self.parts.len()).0;
        demand.counters.waiting.store(waiting, Ordering::Relaxed);
    }
}

fn name(number: u64) -> String {
    format!("{PART}{number}")
}

/// A part that a crash left beside its place: half a file, or one that was never told.
fn is_left_over(name: &str) -> bool {
    let number = name.strip_prefix(PART).and_then(|rest| rest.strip_suffix(".new"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// One that stays is looked at again at the next start.
fn remove(root: &OwnedFd, name: &str) {
    let _ = rustix::fs::unlinkat(root, name, AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::DemandCounters;
    use Instant;

    const HOUR: u64 = 495_000 * 3600;

    /// An appliance's counts over a state directory: kill it by dropping it.
    struct Counted {
        demand: Demand,
        kept: Kept,
    }

    impl Counted {
        fn open(state: &Path, wall: u64) -> Self {
            let demand = Demand::default();
            let kept = Kept::open(&demand, state, UnixSeconds(wall)).unwrap();
            Self { demand, kept }
        }

        /// Many viewers are sent 100 bytes of a file together.
        fn view(&self, file: u32) {
            let mut counting = self.demand.counting();
            (0..5).for_each(|viewer| counting.tally().note(file, viewer, Bytes(20)));
        }

        fn go_on(&mut self, wall: u64, is_last: bool) {
            let now = Instant(0) + Nanos::seconds(wall - HOUR);
            self.kept.go_on(&self.demand, (now, UnixSeconds(wall)), is_last).unwrap();
        }

        /// The first part: its number, hours since the first, and what it has of the first file.
        fn first(&mut self) -> Option<(u64, u64, u64)> {
            let part = self.kept.first(&self.demand)?;
            Some((part.number, u64::from(part.hour) - HOUR / 3600, part.bytes[0]))
        }
    }

    #[test]
    fn each_hour_becomes_a_part_that_waits_until_it_is_counted() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        counted.view(7);
        counted.go_on(HOUR + 3599, false);
        assert_eq!(counted.first(), None, "the hour is not over");
        counted.go_on(HOUR + 3600, false);
        counted.view(7);
        counted.view(7);
        counted.go_on(HOUR + 7200, false);
        assert_eq!(counted.first(), Some((HOUR, 0, 100)));
        counted.go_on(HOUR + 3 * 3600, false);
        assert_eq!(counted.demand.counters().waiting, 2, "an hour without viewers is no part");
        let mut again = Counted::open(state.path(), HOUR + 3 * 3600);
        assert_eq!(again.first(), Some((HOUR, 0, 100)), "it was not counted yet");
        again.kept.counted(&again.demand, HOUR);
        assert_eq!(again.first(), Some((HOUR + 3600, 1, 200)));
        again.kept.counted(&again.demand, HOUR + 99_999);
        assert_eq!((again.first(), again.demand.counters().told), (None, 2));
        again.view(7);
        again.go_on(HOUR + 4 * 3600, false);
        assert_eq!(again.first(), Some((HOUR + 100_000, 3, 100)), "above what control counted");
        again.kept.counted(&again.demand, u64::MAX >> 1);
        again.view(7);
        again.go_on(HOUR + 5 * 3600, false);
        assert_eq!(again.first(), Some((HOUR + 100_001, 4, 100)), "not above what nobody tells");
        again.kept.refused(&again.demand);
        assert_eq!((again.first(), again.demand.counters().lost), (None, 1));
        assert_eq!(Counted::open(state.path(), HOUR).first(), None);
    }

    #[test]
    fn a_stop_loses_nothing_and_a_crash_what_came_in_five_minutes() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        counted.view(7);
        counted.go_on(HOUR + 300, false);
        counted.view(7);
        counted.go_on(HOUR + 599, false);
        drop(counted);
        let mut counted = Counted::open(state.path(), HOUR + 600);
        counted.view(7);
        counted.go_on(HOUR + 700, false);
        counted.view(7);
        counted.go_on(HOUR + 710, true);
        let mut counted = Counted::open(state.path(), HOUR + 4000);
        counted.go_on(HOUR + 4000, false);
        assert_eq!(counted.first(), Some((HOUR, 0, 300)), "the hour that it was sent in");
    }

    #[test]
    fn an_hour_that_is_a_part_is_not_counted_again_after_a_crash() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        counted.view(7);
        counted.go_on(HOUR + 600, true);
        let before = std::fs::read(state.path().join(HOUR_FILE)).unwrap();
        counted.go_on(HOUR + 3600, false);
        // The crash comes between the part and the hour after it.
        std::fs::write(state.path().join(HOUR_FILE), before).unwrap();
        let mut counted = Counted::open(state.path(), HOUR + 3600);
        counted.go_on(HOUR + 7200, false);
        assert_eq!(counted.demand.counters().waiting, 1);
        assert_eq!(counted.first(), Some((HOUR, 0, 100)));
    }

    #[test]
    fn what_a_crash_left_beside_a_part_is_removed_at_the_next_start() {
        let state = tempfile::tempdir().unwrap();
        let own = ["demand.5.new", "demand.18446744073709551615.new"];
        let others = ["demand.hour.new", "demand.x.new", "manifest.signed.new", "demand.5.newer"];
        for name in own.iter().chain(&others) {
            std::fs::write(state.path().join(name), b"x").unwrap();
        }
        let counted = Counted::open(state.path(), HOUR);
        let is_there = |name: &&str| state.path().join(name).exists();
        assert!(!own.iter().any(is_there), "nobody else would remove them");
        assert!(others.iter().all(is_there), "the next of its name replaces it");
        assert_eq!(counted.demand.counters().waiting, 0);
    }

    #[test]
    fn parts_are_bounded_and_the_oldest_makes_way() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        for hour in 1..340 {
            counted.view(7);
            counted.go_on(HOUR + hour * 3600, false);
        }
        let DemandCounters { waiting, lost, .. } = counted.demand.counters();
        assert_eq!((waiting, lost), (336, 3));
        assert_eq!(counted.first(), Some((HOUR + 3 * 3600, 3, 100)));
    }

    #[test]
    fn a_damaged_part_is_left_out_and_the_next_one_told() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        for hour in 1..4 {
            counted.view(7);
            counted.go_on(HOUR + hour * 3600, false);
        }
        let [first, second] = [HOUR, HOUR + 3600].map(|number| state.path().join(name(number)));
        std::fs::write(first, b"").unwrap();
        let mut bytes = std::fs::read(&second).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(second, bytes).unwrap();
        std::fs::write(state.path().join(HOUR_FILE), b"\xff\n").unwrap();
        let mut counted = Counted::open(state.path(), HOUR + 4 * 3600);
        assert_eq!(counted.first(), Some((HOUR + 2 * 3600, 2, 100)));
        assert_eq!(counted.demand.counters().lost, 2);
    }

    #[test]
    fn a_clock_that_goes_back_gives_no_number_twice() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR + 3600);
        counted.view(7);
        counted.go_on(HOUR + 7200, false);
        counted.view(7);
        counted.go_on(HOUR + 3600, false);
        assert_eq!(counted.demand.counters().waiting, 1, "the hour goes on");
        std::fs::remove_file(state.path().join(HOUR_FILE)).unwrap();
        let mut counted = Counted::open(state.path(), HOUR);
        counted.view(7);
        counted.go_on(HOUR + 3600, false);
        assert_eq!(counted.kept.parts, [HOUR + 3600, HOUR + 3601]);
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_second_leaves_no_hour_open_until_then() {
        const AHEAD: u64 = HOUR + 100 * 3600;
        for restarts in [false, true] {
            let state = tempfile::tempdir().unwrap();
            let mut counted = Counted::open(state.path(), HOUR);
            counted.view(7);
            counted.go_on(AHEAD, false);
            counted.view(7);
            counted.go_on(AHEAD + 1, true);
            if restarts {
                counted = Counted::open(state.path(), HOUR + 20);
            } else {
                counted.go_on(HOUR + 20, false);
            }
            counted.view(7);
            counted.go_on(HOUR + 3600, false);
            assert_eq!(counted.first(), Some((HOUR, 0, 100)));
            counted.kept.counted(&counted.demand, HOUR);
            assert_eq!(counted.first(), Some((AHEAD, 0, 200)), "restarts: {restarts}");
        }
    }

    #[test]
    fn a_clock_that_was_behind_tells_its_hour_and_goes_on_in_the_present_one() {
        let state = tempfile::tempdir().unwrap();
        let mut counted = Counted::open(state.path(), HOUR + 100 * 3600);
        counted.view(7);
        counted.go_on(HOUR, true);
        let mut counted = Counted::open(state.path(), HOUR);
        counted.view(7);
        counted.go_on(HOUR + 100 * 3600, false);
        counted.view(7);
        counted.go_on(HOUR + 101 * 3600, false);
        assert_eq!(counted.first(), Some((HOUR + 100 * 3600, 0, 200)));
        counted.kept.counted(&counted.demand, HOUR + 100 * 3600);
        assert_eq!(counted.first(), Some((HOUR + 100 * 3600 + 1, 100, 100)));
    }
}

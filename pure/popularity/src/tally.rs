//! What one appliance counts: bytes by file in the present hour, and whether one viewer could be
//! seen in them.
//!
//! ```text
//! a response ended ──> note(file, viewer, bytes) ──> [ this hour ] ──seal──> Sealed: what control
//!                                                         │                  is told, rounded
//!                                                         └ encode ──> kept, for a restart
//! ```

use std::collections::BTreeMap;

use model::id::Item;
use model::units::{Bytes, Hour};

use crate::sums::Sums;

/// Bounds, and what is told of few viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TallyConfig {
    /// Files of an hour at most. Bytes of others are counted, and no more.
    pub files_max: usize,
    /// Of a file that fewer viewers were sent something of in the hour, bytes are rounded: exact
    /// ones, hour by hour, would tell when the one viewer of a small network began and stopped.
    pub viewers_min: u8,
    /// To multiples of this.
    pub rounded_to: Bytes,
}

/// The present hour of one appliance.
#[derive(Clone, Debug)]
pub struct Tally {
    config: TallyConfig,
    hour: Hour,
    /// Invariant: at most `config.files_max`.
    files: BTreeMap<u32, Watched>,
    /// Bytes of files beyond these.
    beyond: Bytes,
}

/// An hour that is over, as it is told.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub hour: Hour,
    /// By the numbers of files.
    pub files: Sums,
    /// Bytes of files that were too many.
    pub beyond: Bytes,
}

#[derive(Clone, Debug, Default)]
struct Watched {
    bytes: u64,
    /// Viewers that were seen before a restart: they may be the same as those that come after it.
    before: u8,
    /// Viewers, until there are as many as count. Invariant: none twice, `viewers_min` at most.
    viewers: Vec<u64>,
}

impl Watched {
    fn viewers(&self) -> u8 {
        self.before.max(u8::try_from(self.viewers.len()).unwrap_or(u8::MAX))
    }
}

const MAGIC: &str = "nearcast-tally 1";

impl Tally {
    /// Nothing yet in this hour.
    pub fn new(config: TallyConfig, hour: Hour) -> Self {
        Self { config, hour, files: BTreeMap::new(), beyond: Bytes::ZERO }
    }

    /// The hour that is counted.
    pub fn hour(&self) -> Hour {
        self.hour
    }

    /// What is counted is of this hour: a clock was wrong.
    pub fn relabel(&mut self, hour: Hour) {
        self.hour = hour;
    }

    /// A viewer was sent so much of a file. `viewer` is a number that tells viewers apart and leads
    /// back to nobody. O(log files).
    pub fn note(&mut self, file: u32, viewer: u64, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        if self.config.files_max <= self.files.len() && !self.files.contains_key(&file) {
            self.beyond = Bytes(self.beyond.0.saturating_add(bytes.0));
            return;
        }
        let watched = self.files.entry(file).or_default();
        watched.bytes = watched.bytes.saturating_add(bytes.0);
        let has_enough = self.config.viewers_min <= watched.viewers();
        if !has_enough && !watched.viewers.contains(&viewer) {
            watched.viewers.push(viewer);
        }
        assert!(self.files.len() <= self.config.files_max, "files are bounded");
    }

    /// Ends the hour and begins with `next`; none if nothing was sent in it. `draw` gives numbers
    /// that nobody can foretell. O(files).
    ///
    /// Bytes of a file with few viewers become the multiple below or above, with a chance that
    /// makes the mean right: many small ones together are as many as they were, and how much a
    /// single viewer was sent is known to a multiple only. It hides no whole evening: an hour of
    /// video is several multiples (docs/operate/privacy.md).
    pub fn seal(&mut self, next: Hour, mut draw: impl FnMut() -> u64) -> Option<Sealed> {
        let TallyConfig { files_max, viewers_min, rounded_to } = self.config;
        let hour = std::mem::replace(&mut self.hour, next);
        let beyond = std::mem::take(&mut self.beyond);
        let mut files = Sums::default();
        for (file, watched) in std::mem::take(&mut self.files) {
            let is_seen = viewers_min <= watched.viewers();
            let bytes =
                if is_seen { watched.bytes } else { rounded(watched.bytes, rounded_to, draw()) };
            files.add(Item(file), Bytes(bytes), files_max);
        }
        files.settle(files_max);
        let is_something = !files.is_empty() || beyond != Bytes::ZERO;
        is_something.then_some(Sealed { hour, files, beyond })
    }

    /// The hour as text, to be kept through a restart: numbers of viewers, and none of them.
    pub fn encode(&self) -> String {
        let line = |(file, of): (&u32, &Watched)| format!("{file} {} {}\n", of.bytes, of.viewers());
        let head = format!("{MAGIC}\n{} {}\n", self.hour.0, self.beyond.0);
        std::iter::once(head).chain(self.files.iter().map(line)).collect()
    }

    /// What was kept. Damaged lines are left out, and those beyond the bound. None for any other
    /// text.
    pub fn decode(config: TallyConfig, text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix(MAGIC)?.strip_prefix('\n')?.lines();
        let (hour, beyond) = lines.next()?.split_once(' ')?;
        let mut tally = Self::new(config, Hour(hour.parse().ok()?));
        tally.beyond = Bytes(beyond.parse().ok()?);
        let parse = |line: &str| {
            let mut words = line.split(' ');
            let (file, bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let before = words.next()?.parse().ok()?;
            Some((file, Watched { bytes, before, viewers: Vec::new() }))
        };
        tally.files.extend(lines.filter_map(parse).take(config.files_max));
        Some(tally)
    }
}

/// The multiple below, or that above with a chance of what is left over.
fn rounded(bytes: u64, to: Bytes, draw: u64) -> u64 {
    let to = to.0.max(1);
    let over = bytes % to;
    let below = bytes - over;
    // A draw of 64 bits is fair to 2^-30 among less than 2^34.
    if draw % to < over { below.saturating_add(to) } else { below }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::number::mix;
    use proptest::prelude::*;

    const CONFIG: TallyConfig =
        TallyConfig { files_max: 100, viewers_min: 3, rounded_to: Bytes(1000) };
    const HOUR: Hour = Hour(7);

    fn told(tally: &mut Tally, draw: u64) -> Vec<(u32, u64)> {
        let sealed = tally.seal(Hour(8), || draw);
        sealed.iter().flat_map(|of| of.files.iter()).map(|(file, of)| (file.0, of.0)).collect()
    }

    #[test]
    fn a_file_with_few_viewers_is_rounded_and_one_with_many_is_not() {
        let mut tally = Tally::new(CONFIG, HOUR);
        for viewer in [1, 2, 2, 1, 2] {
            tally.note(4, viewer, Bytes(300));
        }
        for viewer in [1, 2, 3, 1] {
            tally.note(5, viewer, Bytes(300));
        }
        tally.note(6, 1, Bytes(300));
        tally.note(7, 1, Bytes::ZERO);
        assert_eq!(told(&mut tally.clone(), 499), [(4, 2000), (5, 1200)]);
        assert_eq!(told(&mut tally.clone(), 299), [(4, 2000), (5, 1200), (6, 1000)]);
        assert_eq!(told(&mut tally, 500), [(4, 1000), (5, 1200)]);
        assert_eq!((tally.hour(), told(&mut tally, 0)), (Hour(8), vec![]), "it begins again");
    }

    #[test]
    fn a_restart_makes_no_second_viewer_of_one() {
        let mut tally = Tally::new(CONFIG, HOUR);
        tally.note(4, 1, Bytes(1500));
        for key in 2..6 {
            tally = Tally::decode(CONFIG, &tally.encode()).unwrap();
            tally.note(4, key, Bytes(1));
        }
        assert_eq!(told(&mut tally.clone(), 999), [(4, 1000)]);
        for viewer in 7..9 {
            tally.note(4, viewer, Bytes(1));
        }
        assert_eq!(told(&mut tally, 999), [(4, 1506)], "three since the last one");
    }

    #[test]
    fn files_beyond_the_bound_are_bytes_without_a_name() {
        let mut tally = Tally::new(CONFIG, HOUR);
        (0..105).for_each(|file| tally.note(file, 1, Bytes(2000)));
        tally.note(99, 2, Bytes(2000));
        let again = Tally::decode(CONFIG, &tally.encode()).unwrap();
        assert_eq!(again.encode(), tally.encode());
        let sealed = tally.seal(Hour(8), || 0).unwrap();
        assert_eq!((sealed.hour, sealed.beyond), (HOUR, Bytes(10_000)));
        assert_eq!((sealed.files.iter().count(), sealed.files.of(Item(99))), (100, Bytes(4000)));
    }

    #[test]
    fn other_texts_are_no_tally_and_damaged_lines_are_left_out() {
        for text in ["", "nearcast-tally 2\n7 0\n", "nearcast-tally 1\n", "nearcast-tally 1\nx 0\n"]
        {
            assert!(Tally::decode(CONFIG, text).is_none(), "{text:?}");
        }
        let text = "nearcast-tally 1\n7 0\nx\n4 5\n5 -1 1\n6 2000 1\n";
        assert_eq!(told(&mut Tally::decode(CONFIG, text).unwrap(), 0), [(6, 2000)]);
    }

    proptest! {
        #[test]
        fn rounding_is_right_in_the_mean_and_off_by_less_than_a_step(bytes in 0_u64..1 << 50) {
            let to = Bytes(1 << 28);
            let all: Vec<u64> = (0..256).map(|n| rounded(bytes, to, mix(n ^ bytes))).collect();
            prop_assert!(all.iter().all(|of| of.abs_diff(bytes) < to.0 && of.is_multiple_of(to.0)));
            let mean = all.iter().map(|of| of / 256).sum::<u64>();
            prop_assert!(mean.abs_diff(bytes) < to.0 / 5, "{} {}", mean, bytes);
        }

        #[test]
        fn no_text_panics(text in "(nearcast-tally 1\n)?[0-9]{0,12} ?[0-9 \n]{0,40}") {
            if let Some(tally) = Tally::decode(CONFIG, &text) {
                prop_assert!(Tally::decode(CONFIG, &tally.encode()).is_some());
            }
        }
    }
}

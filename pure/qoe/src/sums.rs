//! Sums of what many viewers felt, and the rows that they stand in.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::cmcd::Hints;
use model::units::Nanos;

use crate::{LOW_BUFFER, SLOW_START};

/// Nobody has more buffered: hls.js stops there, and others before.
const BUFFER_MAX: Nanos = Nanos::seconds(600);

model::metrics! {
    /// Sums over playbacks. They only grow.
    pub struct Sums {
        /// Playbacks that began here.
        playbacks: Counter("playbacks_total"),
        /// Playbacks that had begun at another appliance, or were forgotten here, and came.
        moved: Counter("playbacks_moved_total"),
        /// Playbacks whose start-up is known.
        starts: Counter("starts_total"),
        /// Their start-ups together, from the first request, or the wish to play, to a picture.
        start_time: Counter("start_seconds_total") in Nanos,
        /// Start-ups of over 2 s.
        starts_slow: Counter("starts_slow_total"),
        /// Times that a picture stood still for want of media.
        stalls: Counter("stalls_total"),
        /// Their length together.
        stall_time: Counter("stalled_seconds_total") in Nanos,
        /// Stalls whose whole length is not known.
        stalls_unmeasured: Counter("stalls_unmeasured_total"),
        /// Playbacks that stalled; one that goes on counts again after 80 s.
        playbacks_stalled: Counter("playbacks_stalled_total"),
        /// What was watched.
        watched: Counter("watched_seconds_total") in Nanos,
        /// Media of a known bitrate that was loaded, or watched.
        media: Counter("media_seconds_total") in Nanos,
        /// Its bytes, by the bitrate.
        media_bytes: Counter("media_bytes_total"),
        /// Of it, in the best quality that the player could ask for.
        media_top: Counter("media_top_seconds_total") in Nanos,
        /// Times that a player told how much it has buffered: once a second of a playback.
        buffers: Counter("buffers_total"),
        /// What it told, together, of ten minutes at most each time.
        buffer_time: Counter("buffer_seconds_total") in Nanos,
        /// Of these times, those with less than 2 s.
        buffers_low: Counter("buffers_low_total"),
        /// Bytes of media sent.
        sent_bytes: Counter("sent_bytes_total"),
        /// From their requests to their last bytes.
        sent_time: Counter("sent_seconds_total") in Nanos,
        /// Times that a player told the throughput that it measured.
        measures: Counter("measures_total"),
        /// What it told, together, in bytes per second.
        measured_bytes: Counter("measured_bytes_total"),
        /// Responses broken off, by whichever side.
        cut: Counter("cut_total"),
        /// Playbacks that ended with an error, by the player's word.
        failed: Counter("failed_total"),
    }
}

impl Sums {
    /// Adds those of others.
    pub fn add(&mut self, other: &Self) {
        let sum = self.map(|of: &u64| Cell::new(*of));
        sum.zip(other, |of, more| of.set(of.get().saturating_add(*more)));
        *self = sum.map(Cell::get);
    }

    /// True if nothing saturates when those of others are added. A hundred thousand viewers watch
    /// for two days until it does.
    pub(crate) fn has_room(&self, other: &Self) -> bool {
        self.each().zip(other.each()).all(|(of, more)| of.checked_add(*more).is_some())
    }

    /// Each by the name of its metric, without what it counts in.
    pub fn named(value: impl Fn(&str) -> u64) -> Self {
        let sums = Self::default().map(|_: &u64| Cell::new(0));
        sums.each().zip(Self::METRICS).for_each(|(of, metric)| of.set(value(metric.name)));
        sums.map(Cell::get)
    }

    /// True if nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn start(&mut self, startup: Nanos) {
        self.starts += 1;
        self.start_time += startup.0;
        self.starts_slow += u64::from(SLOW_START < startup);
    }

    /// So much media came, or was played, in a bitrate that the player says.
    pub(crate) fn load(&mut self, media: Nanos, hints: &Hints) {
        let Some(bitrate) = hints.bitrate else { return };
        self.media += media.0;
        self.media_bytes += bitrate.0 / 8 * media.as_millis() / 1000;
        let is_top = hints.top.is_some_and(|top| top <= bitrate);
        self.media_top += if is_top { media.0 } else { 0 };
    }

    /// What a player tells of its buffer and its own measure.
    pub(crate) fn hear(&mut self, hints: &Hints, plays: bool) {
        if let (Some(buffer), true) = (hints.buffer, plays) {
            self.buffers += 1;
            self.buffer_time += buffer.min(BUFFER_MAX).0;
            self.buffers_low += u64::from(buffer < LOW_BUFFER);
        }
        if let Some(measured) = hints.measured {
            self.measures += 1;
            self.measured_bytes += measured.0 / 8;
        }
    }
}

/// The way by which it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// CMCD with requests.
    Requests,
    /// Events of CMCD version 2.
    Events,
    /// Nobody: the server's guess by what it sent.
    Estimate,
}

/// By what sums are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dimension {
    /// By the site that served.
    Site,
    Asset,
    /// By the network that the viewer is in, as far as it is known: a prefix of a site's.
    Network,
    /// By the kind of player.
    Player,
}

/// The name of a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub dimension: Dimension,
    pub name: Arc<str>,
    pub source: Source,
}

/// What a playback's rows are named by.
pub(crate) type Names = [(Dimension, Arc<str>); 4];

/// The row of those for whom there was no row.
pub const OTHERS: &str = "others";

impl Source {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Requests, Self::Events, Self::Estimate];

    /// In metrics and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Events => "events",
            Self::Estimate => "estimate",
        }
    }
}

impl Dimension {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Site, Self::Asset, Self::Network, Self::Player];

    /// In metrics and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Asset => "asset",
            Self::Network => "network",
            Self::Player => "player",
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Site => 0,
            Self::Asset => 1,
            Self::Network => 2,
            Self::Player => 3,
        }
    }
}

/// Rows of what was added since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    rows: BTreeMap<Key, Sums>,
    /// Of each dimension.
    counts: [usize; 4],
}

impl Rows {
    /// Adds to a row. With `max` of them in its dimension, what would begin another goes to that of
    /// [`OTHERS`]. O(log rows).
    pub fn add(&mut self, key: &Key, sums: &Sums, max: usize) {
        if let Some(row) = self.rows.get_mut(key) {
            return row.add(sums);
        }
        let count = &mut self.counts[key.dimension.index()];
        let key = match max <= *count {
            false => key.clone(),
            true => Key { name: OTHERS.into(), ..key.clone() },
        };
        let is_new = !self.rows.contains_key(&key);
        *count += usize::from(is_new);
        self.rows.entry(key).or_default().add(sums);
        assert!(*count <= max + Source::ALL.len(), "beyond the most there are those of others");
    }

    /// Adds to a row of each dimension.
    pub(crate) fn add_to(
        &mut self,
        names: &Names,
        source: Source,
        sums: &Sums,
        max: impl Fn(Dimension) -> usize,
    ) {
        for (dimension, name) in names {
            let key = Key { dimension: *dimension, name: name.clone(), source };
            self.add(&key, sums, max(*dimension));
        }
    }

    /// Each row.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Sums)> {
        self.rows.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

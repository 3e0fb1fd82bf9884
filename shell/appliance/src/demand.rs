//! What viewers are sent of each file in the present hour.
//!
//! ```text
//! views ──> Counting ──> tally of the hour ──> `membership::demand`, which keeps and tells it
//! ```

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use holdings::Numbers;
use model::id::{Generation, ObjectId};
use model::units::{Bytes, Hour};
use popularity::{Sealed, Tally, TallyConfig};
use wire::v1::demand::PART_FILES_MAX;

use crate::lock::lock;

/// Of a file that fewer than five viewers were sent something of in an hour, multiples of 256 MiB
/// are told: control needs sums, and the exact bytes of one viewer, hour by hour, would be a curve
/// of an evening (docs/operate/privacy.md). Viewers are counted by session, so that five may be one
/// who reloads. Arbitrary: five are one among four others, and 256 MiB are ten minutes of 3.5 Mb/s.
pub(crate) const TALLY: TallyConfig =
    TallyConfig { files_max: PART_FILES_MAX, viewers_min: 5, rounded_to: Bytes::mib(256) };

/// A clock that goes back within an hour may do so over its end.
const AHEAD_MAX: u32 = 1;

/// Counts for this hour if the tally's is one that is far from having begun: a clock that was ahead
/// for a second would else end no hour until then.
pub(crate) fn set_right(tally: &mut Tally, hour: Hour) {
    if hour.after(AHEAD_MAX) < tally.hour() {
        tally.relabel(hour);
    }
}

model::metrics! {
    /// Bytes that were counted, and those that were not.
    pub struct DemandCounters {
        /// Bytes sent to viewers that are counted for a file and an hour.
        counted: Counter("demand_counted_bytes_total"),
        /// Bytes of files that had no number, because their version had left the manifest.
        unnumbered: Counter("demand_unnumbered_bytes_total"),
        /// Parts that control has counted.
        told: Counter("demand_parts_told_total"),
        /// Parts that made way for newer ones, or could not be kept, and were never told.
        lost: Counter("demand_parts_lost_total"),
        /// Parts that wait for control.
        waiting: Gauge("demand_parts_waiting"),
    }
}

/// The counts of this appliance.
#[derive(Debug)]
pub struct Demand {
    state: Mutex<State>,
    pub(crate) counters: DemandCounters<AtomicU64>,
}

#[derive(Debug)]
struct State {
    tally: Tally,
    /// None before the first manifest.
    numbers: Option<Numbers>,
}

/// Counts some views.
pub(crate) struct Counting<'a> {
    state: MutexGuard<'a, State>,
    counters: &'a DemandCounters<AtomicU64>,
}

impl Default for Demand {
    fn default() -> Self {
        let tally = Tally::new(TALLY, Hour(0));
        Self { state: Mutex::new(State { tally, numbers: None }), counters: <_>::default() }
    }
}

impl Demand {
    /// Begins to count. Whoever moves time on waits meanwhile, and nobody else.
    pub(crate) fn counting(&self) -> Counting<'_> {
        Counting { state: lock(&self.state), counters: &self.counters }
    }

    /// The generation of the manifest whose numbers are known.
    pub(crate) fn numbers_of(&self) -> Option<Generation> {
        lock(&self.state).numbers.as_ref().map(Numbers::generation)
    }

    /// Files have these numbers from now on.
    pub(crate) fn set_numbers(&self, numbers: Option<Numbers>) {
        lock(&self.state).numbers = numbers;
    }

    /// Goes on with what was kept.
    pub(crate) fn restore(&self, tally: Tally) {
        lock(&self.state).tally = tally;
    }

    /// Ends the hour if another has begun. What it was, and, in that case or if `is_due`, the text
    /// of the present one.
    pub(crate) fn turn(&self, hour: Hour, is_due: bool) -> (Option<Sealed>, Option<String>) {
        let tally = &mut lock(&self.state).tally;
        set_right(tally, hour);
        let is_over = tally.hour() < hour;
        let sealed = if is_over { tally.seal(hour, draw) } else { None };
        let text = (is_due || sealed.is_some()).then(|| tally.encode());
        (sealed, text)
    }

    /// As they stand.
    pub fn counters(&self) -> DemandCounters {
        self.counters.map(|count| count.load(Ordering::Relaxed))
    }
}

impl Counting<'_> {
    #[cfg(test)]
    pub(crate) fn tally(&mut self) -> &mut Tally {
        &mut self.state.tally
    }

    /// A viewer was sent so much of a file. O(log files).
    pub(crate) fn note(&mut self, version: &str, object: ObjectId, viewer: u64, sent: Bytes) {
        let State { tally, numbers } = &mut *self.state;
        let file = numbers.as_ref().and_then(|numbers| numbers.of(version, object));
        let counter =
            if file.is_some() { &self.counters.counted } else { &self.counters.unnumbered };
        counter.fetch_add(sent.0, Ordering::Relaxed);
        if let Some(file) = file {
            tally.note(file, viewer, sent);
        }
    }
}

/// A number that nobody can foretell.
fn draw() -> u64 {
    let mut drawn = [0; 8];
    aws_lc_rs::rand::fill(&mut drawn).expect("the kernel gives random bytes after its start");
    u64::from_le_bytes(drawn)
}

//! What workers and storage threads count, where other threads can read it: the only memory that
//! workers share. What workers count stands in `worker::Counters`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iosched::tally::{Slice, Tally};
use model::drives::{DriveIndex, DriveSet};
use model::id::Generation;
use model::status::ScrubStatus;
use model::units::{Instant, Nanos};
use worker::{Counters, LATE_MICROS, Lateness, Worker};

use crate::book::Book;
use crate::demand::Demand;

model::metrics! {
    /// What fillers count.
    pub struct FillCounters {
        /// Bytes of whole blocks fetched since the start.
        from_siblings: Counter("fill_fetched_bytes_total", "source=\"sibling\""),
        /// Bytes of whole blocks fetched since the start.
        from_origins: Counter("fill_fetched_bytes_total", "source=\"origin\""),
        /// Bytes of these that came into the site from outside.
        from_outside: Counter("fill_outside_bytes_total"),
        /// Answers of control that let an object be fetched from further away, since no master of
        /// the fill cluster had brought it.
        escalated_elsewhere: Counter("fill_escalations_total", "to=\"elsewhere\""),
        /// Answers of control that let an object be fetched from further away, since no master of
        /// the fill cluster had brought it.
        escalated_origin: Counter("fill_escalations_total", "to=\"origin\""),
    }
}

model::metrics! {
    /// What was found to be right and wrong.
    pub struct IntegrityCounters {
        /// Objects scrubbed since the start.
        scrubbed_objects: Counter("scrub_objects_total"),
        /// Bytes of blocks found right by the scrub.
        scrubbed_bytes: Counter("scrub_bytes_total"),
        /// Blocks verified that were served.
        samples: Counter("samples_verified_total"),
        /// Of these, wrong.
        samples_wrong: Counter("samples_wrong_total"),
        /// Objects found unreadable, wrong or without a file, and filled again.
        objects_set_aside: Counter("objects_set_aside_total"),
        /// Drives used again after they were set aside.
        returns: Counter("drives_returned_total"),
    }
}

model::metrics! {
    /// What siblings got from here.
    pub struct PeerCounters {
        /// Connections of siblings.
        connections: Gauge("peer_connections"),
        /// Connections of siblings closed on arrival, or because the certificate is no sibling's.
        refused: Counter("peer_refused_total"),
        /// Requests of siblings answered.
        requests: Counter("peer_requests_total"),
        /// Body bytes sent to siblings.
        sent: Counter("peer_sent_bytes_total"),
    }
}

model::metrics! {
    /// What moved between drives.
    pub struct TierCounters {
        /// Bytes moved between drives since the start, by the class that they went to.
        up: Counter("tier_moved_bytes_total", "to=\"fast\""),
        /// Bytes moved between drives since the start, by the class that they went to.
        down: Counter("tier_moved_bytes_total", "to=\"bulk\""),
        /// Moves that came to nothing.
        abandoned: Counter("tier_moves_abandoned_total"),
    }
}

/// What storage threads count, and what they see of workers.
#[derive(Debug, Default)]
pub(crate) struct StorageCounters {
    pub(crate) serving: Arc<Serving>,
    pub(crate) fill: FillCounters<AtomicU64>,
    pub(crate) peer: PeerCounters<AtomicU64>,
    pub(crate) integrity: IntegrityCounters<AtomicU64>,
    /// Objects of which control expects that viewers are sent much.
    pub(crate) expected_objects: AtomicU64,
    /// How far each drive is scrubbed, by its index.
    scrubs: Vec<ScrubProgress>,
}

/// How far one drive is scrubbed.
#[derive(Debug, Default)]
pub(crate) struct ScrubProgress {
    /// First eight bytes of the id of the object that was verified last. Ids are hashes, so this
    /// goes evenly from 0 to 2^64 in one pass.
    pub(crate) at: AtomicU64,
    /// Whole passes since the start.
    pub(crate) passes: AtomicU64,
}

/// What the serve path counts, for the report. Written by workers, read once a second.
#[derive(Debug, Default)]
pub struct Serving {
    pub workers: Vec<Arc<ServeCounters>>,
    /// Of each worker, what its reads of each drive met.
    pub slices: Vec<Arc<[DriveSlice]>>,
    /// True while new sessions are not wanted: draining or stopping.
    pub draining: AtomicBool,
    /// What viewers feel.
    pub viewers: Arc<Book>,
    /// What they are sent of each file.
    pub demand: Arc<Demand>,
}

impl StorageCounters {
    pub(crate) fn new(serving: Arc<Serving>, drive_count: usize) -> Self {
        let scrubs = (0..drive_count).map(|_| ScrubProgress::default()).collect();
        Self { serving, scrubs, ..Self::default() }
    }

    /// How far a drive is scrubbed.
    pub(crate) fn scrub(&self, drive: DriveIndex) -> &ScrubProgress {
        &self.scrubs[drive.as_usize()]
    }
}

impl ScrubProgress {
    pub(crate) fn status(&self) -> ScrubStatus {
        ScrubStatus { at: now(&self.at), passes: now(&self.passes) }
    }
}

/// The counters of one worker, written by it every turn.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ServeCounters {
    pub counts: Counters<AtomicU64>,
    /// It lives while this grows.
    life: AtomicU64,
    /// CPU time its thread has used.
    cpu_nanos: AtomicU64,
    /// `Lateness`.
    late: [AtomicU64; LATE_MICROS.len() + 1],
    late_nanos: AtomicU64,
    /// Generation of the manifest that all requests are answered by.
    served: AtomicU64,
    /// Drives that do not answer.
    hung: [AtomicU64; DriveSet::WORDS],
}

impl ServeCounters {
    /// Copies what a worker tells to where others see it.
    pub fn store(&self, worker: &Worker) {
        let store = |shared: &AtomicU64, count: &u64| shared.store(*count, Ordering::Relaxed);
        self.counts.zip(worker.counters(), store);
        self.late.iter().zip(&worker.lateness().counts).for_each(|(of, count)| store(of, count));
        self.late_nanos.store(worker.lateness().sum.0, Ordering::Relaxed);
        self.served.store(worker.served().0, Ordering::Relaxed);
        self.hung.iter().zip(&worker.hung().words()).for_each(|(of, word)| store(of, word));
    }

    /// Counts a sign of life: a turn of the loop began, or one of the things to do in it is done.
    /// One thread does.
    pub(crate) fn lives(&self) {
        self.life.store(now(&self.life) + 1, Ordering::Relaxed);
    }

    /// Signs of life so far.
    pub fn life(&self) -> u64 {
        now(&self.life)
    }

    /// Notes the CPU time used so far.
    pub fn store_cpu(&self, used: Nanos) {
        self.cpu_nanos.store(used.0, Ordering::Relaxed);
    }

    /// CPU time used so far.
    pub fn cpu(&self) -> Nanos {
        Nanos(now(&self.cpu_nanos))
    }

    /// How late bursts went.
    pub fn lateness(&self) -> Lateness {
        Lateness { counts: self.late.each_ref().map(now), sum: Nanos(now(&self.late_nanos)) }
    }

    /// The manifest that all requests are answered by.
    pub fn served(&self) -> Generation {
        Generation(now(&self.served))
    }

    /// Drives that do not answer. Each 64 of them are loaded at once.
    pub fn hung(&self) -> DriveSet {
        DriveSet::from_words(self.hung.each_ref().map(now))
    }

    /// Requests answered.
    pub fn requests(&self) -> u64 {
        let Counters { responses_2xx, responses_3xx, responses_4xx, .. } = &self.counts;
        [responses_2xx, responses_3xx, responses_4xx].map(now).iter().sum()
    }

    /// Of these, with an error: 4xx but for 416.
    pub fn request_errors(&self) -> u64 {
        now(&self.counts.responses_4xx).saturating_sub(now(&self.counts.responses_416))
    }
}

/// The sum of one number over all workers.
pub fn sum(workers: &[Arc<ServeCounters>], of: impl Fn(&ServeCounters) -> u64) -> u64 {
    workers.iter().map(|worker| of(worker)).sum()
}

/// A counter as it is now.
pub fn now(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}

/// What one worker's reads of one drive met: written by it as it changes, read at the drive's gate.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct DriveSlice {
    reads: AtomicU64,
    late: AtomicU64,
    near: AtomicU64,
    far: AtomicU64,
    service: AtomicU64,
    in_flight: AtomicU64,
    /// When the oldest read in flight went, and one nanosecond; 0 if there is none.
    oldest: AtomicU64,
}

impl DriveSlice {
    /// Shows it to others.
    pub fn store(&self, slice: &Slice) {
        let oldest = slice.oldest.map_or(0, |at| at.0 + 1);
        let (reads, in_flight) = (slice.tally.reads, u64::from(slice.in_flight));
        let now = [(&self.reads, reads), (&self.in_flight, in_flight), (&self.oldest, oldest)];
        if now.iter().all(|(shared, value)| shared.load(Ordering::Relaxed) == *value) {
            return; // Most turns ask nothing of most drives.
        }
        let Tally { late, near, far, service, .. } = slice.tally;
        let more =
            [(&self.late, late), (&self.near, near), (&self.far, far), (&self.service, service.0)];
        now.iter().chain(&more).for_each(|(shared, value)| shared.store(*value, Ordering::Relaxed));
    }

    /// As it was stored last. Counts are loaded one by one: one of them may be a turn newer.
    pub fn load(&self) -> Slice {
        let now = |shared: &AtomicU64| shared.load(Ordering::Relaxed);
        let tally = Tally {
            reads: now(&self.reads),
            late: now(&self.late),
            near: now(&self.near),
            far: now(&self.far),
            service: Nanos(now(&self.service)),
        };
        let in_flight = u32::try_from(now(&self.in_flight)).unwrap_or(u32::MAX);
        let oldest = now(&self.oldest).checked_sub(1).map(Instant);
        Slice { tally, in_flight, oldest }
    }
}

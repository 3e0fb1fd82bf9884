//! What workers count, where other threads can read it. The only memory that they share.

use std::sync::atomic::{AtomicU64, Ordering};

use iosched::tally::{Slice, Tally};
use model::units::{Instant, Nanos};
use worker::{Counters, LATE_MICROS};

macro_rules! serve_counters {
    ($($(#[$doc:meta])* $name:ident: |$counters:ident| $from:expr,)*) => {
        /// One worker's counters, written by it every turn.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct ServeCounters {
            $($(#[$doc])* pub $name: AtomicU64,)*
            /// CPU time the worker's thread has used, nanoseconds.
            pub cpu_nanos: AtomicU64,
            /// Paced bursts by lateness, as `worker::LATE_MICROS`.
            pub late: [AtomicU64; LATE_MICROS.len() + 1],
        }

        impl ServeCounters {
            /// Copies a worker's counters to where others see them.
            pub fn store(&self, counters: &Counters) {
                $(
                    let $counters = counters;
                    self.$name.store($from, Ordering::Relaxed);
                )*
                for (shared, count) in self.late.iter().zip(counters.late) {
                    shared.store(count, Ordering::Relaxed);
                }
            }
        }
    };
}

serve_counters! {
    /// Connections accepted.
    accepted: |c| c.accepted,
    /// Connections refused.
    refused: |c| c.refused,
    /// Connections open.
    open: |c| c.open,
    /// Connections that timed out.
    timed_out: |c| c.timed_out,
    /// Handshakes closed for later ones.
    let_go_handshakes: |c| c.let_go_handshakes,
    /// Quiet connections closed for others.
    let_go_quiet: |c| c.let_go_quiet,
    /// Slow connections closed for others.
    let_go_slow: |c| c.let_go_slow,
    /// Responses with 2xx.
    responses_2xx: |c| c.responses[0],
    /// Responses with 3xx.
    responses_3xx: |c| c.responses[1],
    /// Responses with 4xx.
    responses_4xx: |c| c.responses[2],
    /// Those with 416 among them.
    responses_416: |c| c.responses_416,
    /// Tokens refused.
    forbidden: |c| c.forbidden,
    /// Signatures of tokens that were verified.
    tokens_verified: |c| c.tokens_verified,
    /// Requests for what should be here and is not.
    misses: |c| c.misses,
    /// Body bytes sent.
    body_bytes: |c| c.body_bytes,
    /// Reads asked of drives.
    reads: |c| c.reads,
    /// Bytes asked of drives.
    read_bytes: |c| c.read_bytes,
    /// Chunks sent from hot blocks.
    hot_chunks: |c| c.hot_chunks,
    /// Body bytes sent from hot blocks.
    hot_bytes: |c| c.hot_bytes,
    /// Blocks that became hot.
    hot_kept: |c| c.hot_kept,
    /// Blocks that are hot.
    hot_blocks: |c| c.hot_blocks,
    /// Chunks of which a block was given to be verified.
    verified: |c| c.verified,
    /// Drive operations that failed.
    drive_faults: |c| c.drive_faults,
    /// Bodies broken off.
    aborted: |c| c.aborted,
    /// Responses that were slow or broken off by us.
    incidents: |c| c.incidents,
    /// Lines of the request log that were lost.
    log_lines_lost: |c| c.log_lines_lost,
    /// Responses paced.
    paced: |c| c.paced,
    /// Their bursts.
    bursts: |c| c.bursts,
    /// Lateness of those that waited, summed, microseconds.
    late_micros: |c| c.late_micros,
    /// Requests sent on to a sibling.
    redirected: |c| c.redirected,
    /// Responses broken off because their version went from the manifest.
    cut: |c| c.cut,
    /// Generation of the manifest that all requests are answered by.
    served_generation: |c| c.served_generation,
    /// Drives that do not answer, a bit each.
    hung_drives: |c| c.hung_drives,
}

impl ServeCounters {
    /// Requests answered.
    pub fn requests(&self) -> u64 {
        let classes = [&self.responses_2xx, &self.responses_3xx, &self.responses_4xx];
        classes.map(|class| class.load(Ordering::Relaxed)).iter().sum()
    }

    /// Of these, with an error: 4xx but for 416.
    pub fn request_errors(&self) -> u64 {
        let all = self.responses_4xx.load(Ordering::Relaxed);
        all.saturating_sub(self.responses_416.load(Ordering::Relaxed))
    }

    /// Notes the CPU time used so far.
    pub fn store_cpu(&self, used: Nanos) {
        self.cpu_nanos.store(used.0, Ordering::Relaxed);
    }
}

/// The sum of one counter over all workers.
pub fn sum(
    workers: &[std::sync::Arc<ServeCounters>],
    of: impl Fn(&ServeCounters) -> &AtomicU64,
) -> u64 {
    workers.iter().map(|shared| of(shared).load(Ordering::Relaxed)).sum()
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

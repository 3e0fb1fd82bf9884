//! What a worker counts. A line here is all that a new counter needs: the field, its place where
//! others read it, and its row of `/metrics` follow from it.

use http1::Status;
use model::units::Nanos;

model::metrics! {
    /// What a worker counts. The shell adds workers up.
    pub struct Counters {
        /// Connections accepted.
        accepted: Counter("connections_accepted_total"),
        /// Connections closed on arrival, the worker being full.
        refused: Counter("connections_refused_total"),
        /// Connections closed without progress.
        timed_out: Counter("connections_timed_out_total"),
        /// Handshakes closed for later ones, more than handshakes_max being under way.
        let_go_handshakes: Counter("handshakes_let_go_total"),
        /// Connections closed for others, quiet for longest.
        let_go_quiet: Counter("connections_let_go_quiet_total"),
        /// Connections closed for others, slowest to take what was sent.
        let_go_slow: Counter("connections_let_go_slow_total"),
        /// Connections open.
        open: Gauge("connections"),
        /// Responses with 200, 204 or 206.
        responses_2xx: Counter("responses_2xx_total"),
        /// Responses with 304 or 307.
        responses_3xx: Counter("responses_3xx_total"),
        /// Responses with 400 to 431.
        responses_4xx: Counter("responses_4xx_total"),
        /// Of these, those with 416, which is no error.
        responses_416: Counter("responses_416_total"),
        /// Tokens refused.
        forbidden: Counter("forbidden_total"),
        /// Signatures of tokens that were verified: others were known.
        tokens_verified: Counter("tokens_verified_total"),
        /// Requests for objects in the manifest, not held.
        misses: Counter("misses_total"),
        /// Body bytes handed to the kernel.
        body_bytes: Counter("egress_bytes_total"),
        /// Reads asked of drives for viewers.
        reads: Counter("drive_reads_total"),
        /// Bytes asked of drives for viewers.
        read_bytes: Counter("drive_read_bytes_total"),
        /// Chunks sent from memory, without a drive.
        hot_chunks: Counter("hot_chunks_total"),
        /// Body bytes sent from memory, without a drive.
        hot_bytes: Counter("hot_bytes_total"),
        /// Blocks that became hot.
        hot_kept: Counter("hot_blocks_kept_total"),
        /// Blocks kept in memory, of 256 KiB.
        hot_blocks: Gauge("hot_blocks"),
        /// Chunks with a block to be verified.
        verified: Counter("chunks_sampled_total"),
        /// Reads and opens of files that failed.
        drive_faults: Counter("drive_faults_total"),
        /// Bodies broken off: their version was withdrawn.
        cut: Counter("bodies_cut_total"),
        /// Bodies broken off by a drive fault.
        aborted: Counter("bodies_aborted_total"),
        /// Lines of the request log lost.
        log_lines_lost: Counter("request_log_lost_total"),
        /// Responses that whoever follows playbacks was not told of, since he was too slow.
        views_lost: Counter("viewer_responses_lost_total"),
        /// Responses kept to a rate, or a part.
        paced: Counter("paced_responses_total"),
        /// Bursts of them.
        bursts: Counter("paced_bursts_total"),
        /// Responses that were slow, or reset by us.
        incidents: Counter("incidents_total"),
        /// Requests sent on to a sibling with 307, a drive having failed them.
        redirected: Counter("requests_redirected_total"),
    }
}

/// How much later than its moment each burst went that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lateness {
    /// How many were at most `LATE_MICROS[i]` late; the last is of all others.
    pub counts: [u64; LATE_MICROS.len() + 1],
    /// Their lateness together.
    pub sum: Nanos,
}

/// Upper bounds of `Lateness::counts`. The wheel alone makes a burst up to 1.05 ms late,
/// or 4.2 ms where bursts are far apart (`pace::slack`).
pub const LATE_MICROS: [u64; 10] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];

impl Lateness {
    /// A burst that was due went so much later.
    pub(crate) fn add(&mut self, by: Nanos) {
        self.counts[LATE_MICROS.partition_point(|bound| *bound < by.0 / 1000)] += 1;
        self.sum = Nanos(self.sum.0 + by.0);
    }
}

impl Counters {
    pub(crate) fn count(&mut self, status: Status) {
        *match status.code() / 100 {
            ..=2 => &mut self.responses_2xx,
            3 => &mut self.responses_3xx,
            4.. => &mut self.responses_4xx,
        } += 1;
        self.responses_416 += u64::from(status == Status::RangeNotSatisfiable);
        self.forbidden += u64::from(status == Status::Forbidden);
    }
}

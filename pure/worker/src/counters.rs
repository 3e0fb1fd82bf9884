//! What a worker counts.

use http1::Status;
use model::units::Nanos;

/// What a worker counts. Only grows; the shell adds workers up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections closed as they arrived, the worker being full.
    pub refused: u64,
    /// Connections open now.
    pub open: u64,
    /// Connections closed for want of progress.
    pub timed_out: u64,
    /// Handshakes closed for others that came after them.
    pub let_go_handshakes: u64,
    /// Connections closed for others, having asked nothing for longest.
    pub let_go_quiet: u64,
    /// Connections closed for others, having taken what was sent most slowly.
    pub let_go_slow: u64,
    /// Responses by class of status, 2xx to 4xx.
    pub responses: [u64; 3],
    /// Responses with 416 among them: of class 4, and yet no error.
    pub responses_416: u64,
    /// Requests with a token that was refused.
    pub forbidden: u64,
    /// Signatures of tokens that were verified: others were known.
    pub tokens_verified: u64,
    /// Requests for what the manifest has and the drives do not.
    pub misses: u64,
    /// Body bytes handed to the kernel.
    pub body_bytes: u64,
    /// Reads asked of drives.
    pub reads: u64,
    /// Bytes asked of drives.
    pub read_bytes: u64,
    /// Chunks that were sent from hot blocks, without asking a drive.
    pub hot_chunks: u64,
    /// Body bytes among `body_bytes` that came from hot blocks.
    pub hot_bytes: u64,
    /// Blocks that became hot.
    pub hot_kept: u64,
    /// Blocks that are hot now.
    pub hot_blocks: u64,
    /// Chunks of which a block was given to be verified.
    pub verified: u64,
    /// Reads and opens that failed.
    pub drive_faults: u64,
    /// Bodies broken off.
    pub aborted: u64,
    /// Responses that were slow or broken off by us: each is an incident.
    pub incidents: u64,
    /// Lines of the request log that found no room.
    pub log_lines_lost: u64,
    /// Responses that were paced, in part or in whole.
    pub paced: u64,
    /// Bursts of them.
    pub bursts: u64,
    /// Bursts that waited for their moment, by how much later they went: at most
    /// `LATE_MICROS[i]`; the last is of all others.
    pub late: [u64; LATE_MICROS.len() + 1],
    /// Their lateness together, in microseconds.
    pub late_micros: u64,
    /// Requests sent on to a sibling.
    pub redirected: u64,
    /// Responses broken off because their version is not in the manifest any more.
    pub cut: u64,
    /// The manifest by which every request is answered, those that were under way included.
    pub served_generation: u64,
    /// Drives that do not answer now: bit n for the drive of index n.
    pub hung_drives: u64,
}

/// Upper bounds of `Counters::late`. The wheel alone makes a burst up to 1.05 ms late,
/// or 4.2 ms where bursts are far apart (`pace::slack`).
pub const LATE_MICROS: [u64; 10] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];

impl Counters {
    /// A burst that was due went so much later.
    pub(crate) fn late(&mut self, by: Nanos) {
        let micros = by.0 / 1000;
        self.late[LATE_MICROS.partition_point(|bound| *bound < micros)] += 1;
        self.late_micros += micros;
    }

    pub(crate) fn count(&mut self, status: Status) {
        let class = usize::from(status.code() / 100).saturating_sub(2).min(2);
        self.responses[class] += 1;
        let unsatisfiable = status == Status::RangeNotSatisfiable;
        self.responses_416 += u64::from(unsatisfiable);
        self.forbidden += u64::from(status == Status::Forbidden);
    }
}

//! Bounds of one worker, and what each drive gets of them.

use model::limits::{CHUNK_LEN, DIRECT_ALIGN, DRIVES_MAX};
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos};

use crate::black_box::IncidentBounds;
use crate::drive::Share;
use crate::pace::PaceConfig;

/// Bounds of one worker.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most connections. One more takes the place of the one that has been quiet longest; where
    /// none is quiet, it is closed as it arrives.
    pub connections_max: usize,
    /// Most handshakes under way. One more takes the place of the one under way longest.
    pub handshakes_max: usize,
    /// Most transfers from drives at once; others wait their turn. Bounds the memory for data that
    /// clients are slow to take: at most one chunk each. At most `transfers_max / drives` wait for
    /// one drive.
    pub transfers_max: usize,
    /// Buffers for reads, each one chunk and one alignment unit long. Those that paced transfers
    /// keep (`pacing.buffers`) are among them and fewer; of the others each drive has its share.
    pub buffers: u16,
    /// As many again, for blocks that are kept because viewers want them most; 0 for none.
    pub hot_blocks: u16,
    /// Files open at once; more than `transfers_max`.
    pub file_slots: u16,
    pub drives: usize,
    /// Reads in flight per drive, as far as its share of the buffers goes.
    pub drive_depth: usize,
    /// Opens in flight per drive.
    pub drive_opens: usize,
    /// A read of the drive of this index should not take longer: what takes longer is counted, and
    /// writes to the drive are held back by the counts.
    pub read_targets: [Nanos; DRIVES_MAX],
    /// A drive that was asked and has said nothing for so long hangs: its viewers are sent to
    /// a sibling.
    pub hang_after: Nanos,
    /// How long a body that has begun waits for a drive that hangs, before it is reset.
    pub reset_after: Nanos,
    /// Longest request head; a longer one is answered with 431.
    pub head_len_max: usize,
    /// For the handshake, and for a request head from its first byte to its last.
    pub request_timeout: Nanos,
    /// Between requests.
    pub idle_timeout: Nanos,
    /// How long after its expiry a token is still good, for clocks that differ from its signer's.
    /// Whole seconds.
    pub token_leeway: Nanos,
    /// For a client to take what was sent at once, and for a drive to answer.
    pub progress_timeout: Nanos,
    /// For so many blocks' worth of bytes read for viewers, one block is verified; 0 for none.
    pub verify_every: u32,
    pub log_requests: bool,
    /// Responses that wait to be taken by whoever follows playbacks; 0 where nobody does. One more
    /// is lost, and counted.
    pub views_max: usize,
    pub pacing: PaceConfig,
    /// From where on a response is written down as an incident; none never.
    pub incidents: Option<IncidentBounds>,
}

impl Config {
    /// Length of a read buffer: a chunk may begin anywhere, reads begin at the alignment.
    pub const BUFFER_LEN: Bytes = Bytes(CHUNK_LEN.0 + DIRECT_ALIGN.0);

    /// Bytes read from one verified block to the next.
    pub(crate) fn verify_span(&self) -> Bytes {
        Bytes(BLOCK_LEN.0 * u64::from(self.verify_every))
    }

    /// Buffers in all, for reads and hot blocks.
    pub fn buffer_count(&self) -> u16 {
        self.buffers.checked_add(self.hot_blocks).expect("configured: at most 2^16 buffers")
    }

    /// A drive's part of what there is: the whole by the number of drives, at least one.
    pub(crate) fn share(&self, drive: usize) -> Share {
        let part = |whole: usize| (whole / self.drives.max(1)).max(1);
        Share {
            depth: self.drive_depth.min(part(self.drives_buffers())),
            opens_max: self.drive_opens.max(1),
            waits_max: part(self.transfers_max),
            target: self.read_targets[drive],
        }
    }

    /// Buffers that drives may have, those left out that paced transfers keep.
    pub(crate) fn drives_buffers(&self) -> usize {
        usize::from(self.buffers.saturating_sub(self.pacing.buffers))
    }

    /// Most operations that drives can owe at once: of so many the ring must be able to wait for
    /// each without keeping another from its turn.
    pub fn owed_max(&self) -> usize {
        let Share { depth, opens_max, .. } = self.share(0);
        self.drives * (depth + opens_max)
    }
}

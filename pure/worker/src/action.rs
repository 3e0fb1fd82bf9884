//! All that a worker can do.

use std::sync::Arc;

use model::extent::{DriveIndex, Extent, FileName};
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::ObjectId;
use model::units::{BitsPerSecond, Bytes};

use crate::black_box::Incident;
use crate::event::Fault;

/// Something to do, now, before the next `poll`.
#[derive(Debug)]
pub enum Action {
    /// Wait for content and report it once.
    Receive { connection: ConnectionId },
    /// Seal and send `Worker::head`, if `head` says so, and the body; report `Sent` when the kernel
    /// has all of it, or, where more of the response comes `then`, when it also takes that. One at
    /// a time per connection.
    Send { connection: ConnectionId, head: bool, body: Body, then: Then },
    /// Have the kernel send no faster than this on a connection (SO_MAX_PACING_RATE); as fast as
    /// it can if there is none.
    Limit { connection: ConnectionId, rate: Option<BitsPerSecond> },
    /// Ask TCP about the connection, with what was just sent; report `PathSeen`, before `Sent`.
    LookAtPath { connection: ConnectionId },
    /// Open a file for direct reads, in place of what the slot held; report `Opened`.
    Open { slot: FileSlot, drive: DriveIndex, file: FileName },
    /// Close the file in the slot.
    CloseFile { slot: FileSlot },
    /// Read into the buffer; report `Read`. Offset and length are aligned for direct I/O.
    Read { buffer: BufferId, slot: FileSlot, offset: Bytes, len: Bytes },
    /// End a connection. Nothing is reported of it any more.
    Close { connection: ConnectionId, ending: Ending },
    /// Have a block verified that a viewer is being sent. Nobody waits for the answer: the storage
    /// threads hide the object if the block is wrong.
    Verify {
        drive: DriveIndex,
        object: ObjectId,
        object_len: Bytes,
        block: u64,
        /// The buffer that begins with all of it; none if no buffer has: then it is read again.
        buffer: Option<BufferId>,
    },
    /// Write down how a response went badly.
    Incident(Box<Incident>),
    /// Tell the storage threads that this object could not be read where it lies, or lay.
    Report { object: ObjectId, extent: Extent, fault: Fault },
}

/// The continuation of a response after a `Send`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More, at once: the end of this, where it is less than a packet, may wait for it.
    Soon,
    /// More, when its moment has come.
    Later,
    /// Nothing: a client that stops to read has all of it in the end, and is not waited for.
    Nothing,
}

/// The body bytes of a `Send`.
#[derive(Debug)]
pub enum Body {
    /// None: a head alone.
    Empty,
    /// Bytes `start..end` of an object in memory.
    Memory { bytes: Arc<[u8]>, start: usize, end: usize },
    /// Bytes `start..end` of a buffer, which is free once this is carried out.
    Buffer { buffer: BufferId, start: usize, end: usize },
}

impl Body {
    pub(crate) fn len(&self) -> Bytes {
        match self {
            Self::Empty => Bytes::ZERO,
            Self::Memory { start, end, .. } | Self::Buffer { start, end, .. } => {
                Bytes::of(end - start)
            }
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All was sent: say goodbye.
    Graceful,
    /// Something is missing: reset, so that the player notices at once and goes elsewhere.
    Abort,
}

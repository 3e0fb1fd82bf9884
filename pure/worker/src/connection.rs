//! A worker's state of one connection.

use std::net::IpAddr;
use std::sync::Arc;

use http1::Status;
use model::cmcd::{Hints, Object};
use model::extent::DriveIndex;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::ObjectId;
use model::path::is_below;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use playback::player::Player;
use playback::token::{Grant, Session};

use crate::black_box::Recorder;
use crate::pace::{Pacer, Plan};
use crate::path::Path;
use crate::request_log::Entry;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) state: State,
    /// When it is closed if nothing changes.
    pub(crate) deadline: Instant,
    /// It stays open behind the current response.
    pub(crate) keep_alive: bool,
    /// Received and not parsed yet. Bound: one receive and a request head.
    pub(crate) backlog: Vec<u8>,
    pub(crate) texts: Texts,
    /// What the request log will say of it besides.
    pub(crate) entry: Entry,
    /// The events of the current response, while its body is under way.
    pub(crate) recorder: Option<Box<Recorder>>,
    /// The token of its last request that had a good one.
    pub(crate) granted: Option<Arc<Granted>>,
    /// When its next burst may go.
    pub(crate) pacer: Pacer,
    /// Body bytes that went at once since its player started.
    pub(crate) sent: Bytes,
    /// How long its bursts may be.
    pub(crate) path: Path,
    /// The address by which it came, where that may be a sibling's.
    pub(crate) reached: Option<IpAddr>,
    /// The address that it came from.
    pub(crate) client: Option<IpAddr>,
    /// Once it has asked for something that viewers see.
    pub(crate) player: Option<Player>,
    /// As the kernel told it last.
    pub(crate) rtt: Option<Nanos>,
    /// The rate that the kernel keeps it to.
    pub(crate) limit: Option<BitsPerSecond>,
}

/// The texts of a request. A connection has this memory from its request until it is
/// quiet again; what it gives back is the next to be used, while it is still in the caches.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    pub(crate) head: Vec<u8>,
    /// Method, path and range, as they will stand in the request log; empty between requests.
    pub(crate) line: Vec<u8>,
    /// Where a sibling would be asked for the same: path and query, marked. Empty if it must not.
    pub(crate) elsewhere: String,
    /// What will be told of it to whoever follows playbacks.
    pub(crate) view: Option<Viewed>,
}

impl Texts {
    /// Another request comes.
    pub(crate) fn begin(&mut self) {
        self.elsewhere.clear();
        self.view = None;
    }
}

/// The beginning of a view.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewed {
    pub(crate) begun: Instant,
    pub(crate) sent: Bytes,
    pub(crate) object: ObjectId,
    pub(crate) kind: Object,
    pub(crate) hints: Hints,
}

/// Where a connection stands.
#[derive(Debug)]
pub(crate) enum State {
    /// Not ready for requests.
    Handshake,
    /// Between requests, or in the middle of a request head.
    Receiving,
    /// A response from memory, or without body, is on its way.
    Sending,
    /// A response from a drive.
    Transfer(Transfer),
}

/// A response body on its way from a drive, or from hot blocks that came from one.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) object: ObjectId,
    pub(crate) drive: DriveIndex,
    /// Where the object begins in its file.
    pub(crate) base: Bytes,
    pub(crate) len: Bytes,
    /// Next byte of the object to read.
    pub(crate) next: Bytes,
    /// One past the last byte wanted. Invariant: next < end until the last read is asked for.
    pub(crate) end: Bytes,
    /// The status of a head that was not sent yet: it goes out with the first bytes, so that a
    /// drive which fails at the first read can still be answered for with another.
    pub(crate) head_pending: Option<Status>,
    /// Its pace. `free` shrinks as bytes go.
    pub(crate) plan: Plan,
    /// What is left of the chunk that was read, pinned.
    pub(crate) held: Option<Held>,
    /// It may keep a chunk between bursts: one of `PaceConfig::buffers` is its own.
    pub(crate) keeps: bool,
    pub(crate) stage: Stage,
    /// Since when it waits for its drive.
    pub(crate) since: Instant,
}

/// Bytes in a buffer that were not sent yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) buffer: BufferId,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// It is of a hot block.
    pub(crate) hot: bool,
}

/// The cause for which a transfer waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its turn: as many transfers as may run are running.
    Admission,
    /// Its turn to have its file opened.
    Turn,
    Opening(FileSlot),
    /// The moment of its next burst.
    Paced(Option<FileSlot>),
    Queued(FileSlot),
    Reading(FileSlot),
    /// The client. There is no file yet if all that was sent was hot.
    Sending(Option<FileSlot>),
}

impl State {
    /// The transfer that the caller has just seen, or has just begun.
    pub(crate) fn transfer(&mut self) -> &mut Transfer {
        match self {
            Self::Transfer(transfer) => transfer,
            Self::Handshake | Self::Receiving | Self::Sending => {
                unreachable!("the caller has just seen a transfer here")
            }
        }
    }
}

impl Stage {
    /// The file it uses, if it has one yet.
    pub(crate) fn slot(self) -> Option<FileSlot> {
        match self {
            Self::Admission | Self::Turn => None,
            Self::Opening(slot) | Self::Queued(slot) | Self::Reading(slot) => Some(slot),
            Self::Paced(slot) | Self::Sending(slot) => slot,
        }
    }
}

/// A token that was verified: below the path that it is for, the same bytes need no second
/// verification. Connections share it (`Grants`).
#[derive(Debug)]
pub(crate) struct Granted {
    /// Token and asset version, as they stand in a path: `token/version`.
    named: Box<str>,
    /// Empty, and no allocation, for the whole version.
    prefix: Box<str>,
    expires: UnixSeconds,
    pub(crate) session: Session,
    /// The name of that in logs.
    pub(crate) mark: [u8; 4],
    /// Which set of keys it was verified with.
    keys: u64,
}

impl Granted {
    pub(crate) fn new(named: &str, grant: Grant<'_>, keys: u64) -> Self {
        Self {
            named: named.into(),
            prefix: grant.scope.prefix().into(),
            expires: grant.expires,
            session: grant.session,
            mark: grant.session.mark(),
            keys,
        }
    }

    /// Token and asset version, as they stand in a path.
    pub(crate) fn named(&self) -> &str {
        &self.named
    }

    /// The asset version of the request that it was verified for.
    pub(crate) fn version(&self) -> &str {
        self.named.split_once('/').map_or("", |(_, version)| version)
    }

    /// True if this very token was verified for what this path is below, with keys that still hold.
    pub(crate) fn covers(&self, named: &str, path: &str, now: UnixSeconds, keys: u64) -> bool {
        *self.named == *named
            && is_below(path, &self.prefix)
            && now < self.expires
            && self.keys == keys
    }
}

impl Connection {
    pub(crate) fn new(id: ConnectionId, deadline: Instant) -> Self {
        Self {
            id,
            state: State::Handshake,
            deadline,
            keep_alive: true,
            backlog: Vec::new(),
            texts: Texts::default(),
            entry: Entry::default(),
            recorder: None,
            granted: None,
            pacer: Pacer::default(),
            sent: Bytes::ZERO,
            path: Path::default(),
            reached: None,
            client: None,
            player: None,
            rtt: None,
            limit: None,
        }
    }
}

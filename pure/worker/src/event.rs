//! All that can happen to a worker.

use std::net::IpAddr;
use std::sync::Arc;

use model::expected::FirstBlocks;
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::tcp::TcpSample;
use model::units::{Bytes, Instant, UnixSeconds};
use model::update::Update;

/// The time, as both clocks tell it. The wall clock may step; only dates and token expiry use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Never goes back.
    pub instant: Instant,
    pub wall: UnixSeconds,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// A connection arrived, and has this name from now on. It must show who it is and what it
    /// wants within bounds.
    Accepted { connection: ConnectionId },
    /// It is ready for requests: its handshake is over, or it needs none.
    Established { connection: ConnectionId },
    /// The address by which it came, told of connections by addresses that may be a sibling's.
    Reached { connection: ConnectionId, address: IpAddr },
    /// The address that it came from, told where playbacks are followed.
    From { connection: ConnectionId, client: IpAddr },
    /// From now on requests by these addresses are sent on to this appliance's own base URL, so
    /// that the addresses can go back to a sibling; by all others no longer.
    Drain { base_url: &'a str, addresses: &'a [IpAddr] },
    /// Content arrived, opened and in order. Comes only after `Action::Receive`.
    Received { connection: ConnectionId, bytes: &'a [u8] },
    /// The last `Action::Send` was taken whole by the kernel.
    Sent { connection: ConnectionId },
    /// What TCP knows of a connection, after `Action::LookAtPath`.
    PathSeen { connection: ConnectionId, sample: TcpSample },
    /// The other side is gone, or broke the protocol below HTTP.
    Ended { connection: ConnectionId },
    /// A file is open in its slot, or is not.
    Opened { slot: FileSlot, result: Result<(), Fault> },
    /// A drive answered a read into this buffer.
    Read { buffer: BufferId, result: Result<Bytes, Fault> },
    /// The content to serve changed.
    Update(Update),
    /// Blocks that viewers are expected to want, ascending by object: these and no others.
    Expected(Arc<[FirstBlocks]>),
    /// What TCP knows of a connection with a response under way; asked for now and then.
    Tcp { connection: ConnectionId, sample: TcpSample },
    /// Somebody wants to know how the responses go that are under way.
    Incidents,
    /// Time passes; at `Worker::deadline`.
    Tick,
    /// Take no more requests; connections still open at `deadline` are closed.
    Stop { deadline: Instant },
}

/// A drive's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kernel's error number; 0 where a read came back short.
    pub errno: i32,
}

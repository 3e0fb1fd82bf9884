//! TCP as the kernel tells of it.

use crate::units::{BitsPerSecond, Bytes, Nanos};

/// TCP's figures of a connection at one moment (`struct tcp_info` of Linux).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// Smoothed round trip.
    pub rtt: Nanos,
    /// The shortest round trip of the last minutes; over an hour if there was none.
    pub rtt_min: Nanos,
    /// Congestion window, in segments.
    pub window: u32,
    /// Length of a segment.
    pub segment: Bytes,
    /// Segments on their way.
    pub unacked: u32,
    /// Segments sent again, since the connection began.
    pub retransmitted: u32,
    /// Bytes that wait in the socket, not sent yet.
    pub unsent: Bytes,
    /// At which rate the other side received lately.
    pub delivery: BitsPerSecond,
    /// How long the other side's window was shut, since the connection began.
    pub shut: Nanos,
}

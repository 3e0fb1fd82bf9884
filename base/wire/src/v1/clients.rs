//! `GET /v1/clients?start=S&known=N` from one appliance of a site to another: the clients of its
//! service addresses, as a difference to state `N` of start `S`. In memory only, on both sides.
//!
//! A long list comes in parts: `&after=AT/CLIENT` asks, beside the difference, for those that
//! follow [`Clients::next`] in the order of addresses. Whoever adds up all parts knows the state of
//! the last. Who knows nothing, or of another start, gets the first part.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Clients of a list's part, and changes of a difference: an answer has at most twice as many,
/// which is 1.7 MB with the longest addresses.
pub const CLIENTS_MAX: usize = 8192;

/// Longest answer.
pub const ANSWER_LEN_MAX: usize = 2 << 20;

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Drawn when the process started.
    pub start: u64,
    /// The state that the lists begin from; 0 says that `open` is all, or its first part.
    pub from: u64,
    /// The state after them, 1 or more; there may be later ones.
    pub to: u64,
    /// Connections since then: the address that the client reached, and its own.
    pub open: Vec<(SocketAddr, SocketAddr)>,
    /// Those that have gone since then.
    pub gone: Vec<(SocketAddr, SocketAddr)>,
    /// Connections from before that were not told yet go on after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<(SocketAddr, SocketAddr)>,
    /// The appliance serves, and waits for its service addresses to be drained elsewhere.
    pub waits: bool,
    /// Service addresses of others that it has, with responses under way.
    pub busy: Vec<IpAddr>,
}

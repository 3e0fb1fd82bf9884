//! `GET /v1/clients?start=S&known=N` from one appliance of a site to another: the clients of its
//! service addresses, as a difference to state `N` of start `S`. In memory only, on both sides.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// Drawn when the process started.
    pub start: u64,
    /// The state that the lists begin from; 0 says that `open` is all.
    pub from: u64,
    /// The state after them, 1 or more.
    pub to: u64,
    /// Connections since then: the address that the client reached, and its own.
    pub open: Vec<(SocketAddr, SocketAddr)>,
    /// Those that have gone since then.
    pub gone: Vec<(SocketAddr, SocketAddr)>,
    /// The appliance serves, and waits for its service addresses to be drained elsewhere.
    pub waits: bool,
    /// Service addresses of others that it has, with responses under way.
    pub busy: Vec<IpAddr>,
}

//! Connections by service addresses that are a sibling's, taken over while it could not serve.
//!
//! ```text
//! Reached ──> the connection knows its address
//! Drain ────> between two requests: closed; a request: 307 to the own base URL, marked, and closed
//!             a body that is under way goes on: `busy` says so until none is left
//! ```

use std::net::IpAddr;

use model::handle::ConnectionId;

use crate::connection::{Connection, State};
use crate::worker::{Worker, live};

impl Worker {
    pub(crate) fn reached(&mut self, id: ConnectionId, address: IpAddr) {
        // One for which there was no place is closed by now.
        let Some(connection) = live(&mut self.connections, id) else { return };
        connection.reached = Some(address);
    }

    /// O(connections), when addresses are about to go back and when they have.
    pub(crate) fn drain(&mut self, base_url: &str, addresses: &[IpAddr]) {
        base_url.clone_into(&mut self.guests.base_url);
        self.guests.drained = addresses.to_vec();
        let drained = self.guests.drained.clone();
        let is_drained = |address: IpAddr| drained.contains(&address);
        self.close_the_quiet(|connection| {
            let begins = matches!(connection.state, State::Handshake);
            !begins && connection.reached.is_some_and(is_drained)
        });
    }

    /// Those of the addresses by which responses are under way. O(connections).
    pub fn busy(&self, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let is_busy = |connection: &&Connection| match connection.state {
            State::Sending | State::Transfer(_) => true,
            State::Handshake | State::Receiving => false,
        };
        let connections = self.connections.iter().flatten().map(|connection| &**connection);
        let mut busy: Vec<IpAddr> =
            connections.filter(is_busy).filter_map(|connection| connection.reached).collect();
        busy.sort_unstable();
        busy.dedup();
        busy.retain(|address| addresses.contains(address));
        busy
    }
}

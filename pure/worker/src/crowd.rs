//! Connections that could be let go if there are too many: `let_go` says which and when.

use std::collections::VecDeque;

use model::handle::ConnectionId;
use model::units::Instant;

/// Connections to let go of, with the deadlines that they had: if a deadline has changed, the
/// connection stays.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// In order of arrival; some are over.
    pub(crate) handshakes: VecDeque<ConnectionId>,
    /// Of these, not over. Invariant: <= config.handshakes_max.
    pub(crate) under_way: usize,
    /// The longest quiet last.
    pub(crate) quiet: Vec<(Instant, ConnectionId)>,
    /// Whose clients are slow, the slowest last.
    pub(crate) slow: Vec<(Instant, ConnectionId)>,
}

impl Crowd {
    /// A handshake is over, or its connection.
    pub(crate) fn handshake_over(&mut self) {
        assert!(0 < self.under_way, "a handshake ends once");
        self.under_way -= 1;
    }
}

//! Lets connections go when there is no room for all: never the newcomer, as long as somebody holds
//! a place without using it.
//!
//! ```text
//! too many handshakes      the one that is under way longest        (a flood of half-open ones)
//! too many connections     the one that has asked nothing longest   (slowloris, forgotten players)
//! transfers wait           the one whose client takes longest       (tiny windows)
//! ```
//!
//! An honest client needs a place for a round trip, or as long as its line needs for a chunk; one
//! that holds places holds them until it is found here. So an attacker has to come again
//! faster than honest clients are done. The last two lists are made once a second, by the look at
//! all connections that there is anyway, so that nothing is paid per request.

use model::handle::ConnectionId;
use model::units::{Instant, Nanos};

use crate::action::Ending;
use crate::config::Config;
use crate::connection::{Connection, Stage, State};
use crate::hang::is_stuck;
use crate::worker::{Worker, live};

/// A client that takes one chunk for longer may be let go if others wait: below 2 Mb/s.
const SLOW: Nanos = Nanos::seconds(1);
/// A player asks for the next segment well within this. One that asks nothing for longer may be let
/// go if others come.
const QUIET: Nanos = Nanos::seconds(2);
/// Quiet connections that are let go within a second, at most.
const QUIET_MAX: usize = 4096;

impl Worker {
    /// Makes room for one more connection; false if nobody can be let go.
    pub(crate) fn make_room(&mut self) -> bool {
        let open = usize::try_from(self.counters.open).unwrap_or(usize::MAX);
        if open < self.config.connections_max {
            return true;
        }
        while let Some((deadline, id)) = self.crowd.quiet.pop() {
            let Some(connection) = live(&mut self.connections, id) else { continue };
            if connection.deadline == deadline && matches!(connection.state, State::Receiving) {
                let between = connection.backlog.is_empty();
                let ending = if between { Ending::Graceful } else { Ending::Abort };
                self.counters.let_go_quiet += 1;
                self.close(id, ending);
                return true;
            }
        }
        false
    }

    /// Counts a handshake that begins; the longest under way gives its place to it if need be.
    pub(crate) fn handshake_begins(&mut self, id: ConnectionId) {
        while self.config.handshakes_max <= self.crowd.under_way {
            let oldest = self.crowd.handshakes.pop_front().expect("those under way are listed");
            if self.shakes_hands(oldest) {
                self.counters.let_go_handshakes += 1;
                self.close(oldest, Ending::Abort);
            }
        }
        if 2 * self.config.handshakes_max < self.crowd.handshakes.len() {
            let mut handshakes = std::mem::take(&mut self.crowd.handshakes);
            handshakes.retain(|id| self.shakes_hands(*id));
            self.crowd.handshakes = handshakes;
        }
        self.crowd.under_way += 1;
        assert!(self.crowd.under_way <= self.config.handshakes_max, "the longest made room");
        self.crowd.handshakes.push_back(id);
    }

    fn shakes_hands(&self, id: ConnectionId) -> bool {
        self.connection(id).is_some_and(|connection| matches!(connection.state, State::Handshake))
    }

    /// Ends the transfer whose client takes longest, so that another can begin; false if all of
    /// them take what they are sent.
    pub(crate) fn let_go_of_a_slow_one(&mut self) -> bool {
        while let Some((deadline, id)) = self.crowd.slow.pop() {
            let Some(connection) = live(&mut self.connections, id) else { continue };
            let transfers = matches!(connection.state, State::Transfer(_));
            if transfers && takes_until(connection, self.config.progress_timeout) == Some(deadline)
            {
                self.counters.let_go_slow += 1;
                self.close(id, Ending::Abort);
                return true;
            }
        }
        false
    }

    /// Looks at all connections, once a second: those past their deadline, and those that may be
    /// let go.
    pub(crate) fn look_at_the_crowd(&mut self, now: Instant) {
        let all = self.stop_at.is_some_and(|at| at <= now);
        let open = usize::try_from(self.counters.open).unwrap_or(usize::MAX);
        let crowded = self.config.connections_max - self.config.connections_max / 8 <= open;
        let (mut quiet, mut slow) = (Vec::new(), std::mem::take(&mut self.crowd.slow));
        slow.clear();
        for connection in self.connections.iter().flatten() {
            let Config { idle_timeout, request_timeout, progress_timeout, .. } = self.config;
            // The deadline was set when they began to do what they do.
            let since = |deadline, patience| (now + patience).since(deadline);
            let takes_until = takes_until(connection, progress_timeout);
            if connection.deadline <= now || all {
                self.expired.push(connection.id);
            } else if is_stuck(connection, now, self.config.reset_after) {
                self.stuck.push(connection.id);
            } else if let Some(until) = takes_until
                && SLOW <= since(until, progress_timeout)
            {
                slow.push((until, connection.id));
            } else if crowded && matches!(connection.state, State::Receiving) {
                let between = connection.backlog.is_empty();
                let patience = if between { idle_timeout } else { request_timeout };
                let quiet_for = since(connection.deadline, patience);
                if QUIET <= quiet_for {
                    quiet.push((quiet_for, connection.deadline, connection.id));
                }
            }
        }
        if QUIET_MAX < quiet.len() {
            quiet.select_nth_unstable_by(QUIET_MAX, |a, b| b.cmp(a));
            quiet.truncate(QUIET_MAX);
        }
        quiet.sort_unstable();
        slow.sort_unstable_by(|a, b| b.cmp(a));
        self.crowd.quiet = quiet.into_iter().map(|(_, deadline, id)| (deadline, id)).collect();
        self.crowd.slow = slow;
    }

    /// What slow clients of small objects have not taken is in memory, too: no more of them than
    /// transfers may be slow.
    pub(crate) fn bound_unsent(&mut self) {
        let mut over = self.crowd.slow.len().saturating_sub(self.config.transfers_max);
        while 0 < over {
            let Some((_, id)) = self.crowd.slow.pop() else { return };
            over -= 1;
            self.counters.let_go_slow += 1;
            self.close(id, Ending::Abort);
        }
    }
}

/// When the client's time for what it is sent is over, if it is the client that is waited for.
fn takes_until(connection: &Connection, patience: Nanos) -> Option<Instant> {
    let deadline = Some(connection.deadline);
    match &connection.state {
        State::Handshake | State::Receiving => None,
        State::Sending => deadline,
        State::Transfer(transfer) => match transfer.stage {
            Stage::Sending(_) => deadline,
            // For room, and not for its pace. Each little that it takes sets the deadline anew.
            Stage::Paced(_) => connection.path.slow_since().map(|since| since + patience),
            Stage::Admission
            | Stage::Turn
            | Stage::Opening(_)
            | Stage::Queued(_)
            | Stage::Reading(_) => None,
        },
    }
}

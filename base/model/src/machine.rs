//! The trait that all machines have in common.
//!
//! ```text
//! event ──> handle ──> [ state ] ──> poll ──> action, carried out before the next poll
//!    ^                     └──────> deadline ──> a tick, if nothing else happens until then
//!    └── what came of an action
//! ```
//!
//! A machine does nothing itself: its driver has the clock, the kernel and the network, and
//! is the shell, the simulator or a test.

use crate::units::Instant;

/// A decision that goes on over time. One event in, actions out; the result of an action comes back
/// as an event, and failures are actions too.
pub trait Machine {
    /// The time, as far as the machine asks for it.
    type Now: Copy;
    /// All that can happen to it. May borrow: a machine copies what it keeps.
    type Event<'a>;
    type Action;

    /// Takes one event. Never blocks and never fails.
    fn handle(&mut self, now: Self::Now, event: Self::Event<'_>);

    /// The next thing to do, to be done before this is called again; until none, before the next
    /// event.
    fn poll(&mut self) -> Option<Self::Action>;

    /// When to handle a tick if nothing else happens; none while only an event helps.
    fn deadline(&self) -> Option<Instant>;
}

//! What the next requests will look at is asked for while this one is answered.
//!
//! ```text
//! completions of a turn    now   +1          +2                  +3
//!                                ciphers     session,            socket, where the
//!                                            connection          connection is
//! ```
//!
//! Between two requests of a viewer come those of a thousand others with 64 KiB each, so that
//! nothing of it is in the processor's caches any more, and what is found through a pointer is
//! missed one after the other. Each step asks for what the step before it brought.

use model::handle::ConnectionId;
use uring::{Completion, prefetch};
use worker::Worker;

use crate::event_loop::readable;
use crate::socket::{Socket, Transport};

/// Takes a step for each of the next completions, the next one first.
pub(crate) fn look_ahead(next: &[Completion], sockets: &[Option<Socket>], worker: &Worker) {
    let id = |at: usize| next.get(at).and_then(readable);
    if let Some(session) = id(0).and_then(|id| session(sockets, id)) {
        session.prefetch_keys();
    }
    if let Some(id) = id(1) {
        session(sockets, id).into_iter().for_each(tls::Session::prefetch);
        worker.memory(id).into_iter().for_each(prefetch);
    }
    if let Some(id) = id(2) {
        sockets.get(id.as_usize()).into_iter().for_each(prefetch);
        worker.place(id).into_iter().for_each(prefetch);
    }
}

fn session(sockets: &[Option<Socket>], id: ConnectionId) -> Option<&tls::Session> {
    match &sockets.get(id.as_usize())?.as_ref()?.transport {
        Transport::Secure(session) => Some(session),
        Transport::Plain | Transport::Handshake(_) => None,
    }
}

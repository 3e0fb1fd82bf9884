//! What the next requests will look at is asked for while this one is answered.
//!
//! ```text
//! completions of a turn    now   +1          +2                  +3
//!                                ciphers,    session,            socket, where the
//!                                token       connection          connection is
//! ```
//!
//! Between two requests of a viewer come those of a thousand others with 64 KiB each, so that
//! nothing of it is in the processor's caches any more, and what is found through a pointer is
//! missed one after the other. Each step asks for what the step before it brought.

use model::handle::ConnectionId;
use uring::prefetch;
use worker::{Connection, Worker};

use crate::socket::Socket;

/// Takes a step for each of the connections that are next, the first one first.
pub(crate) fn look_ahead(
    next: [Option<ConnectionId>; 3],
    sockets: &[Option<Socket>],
    worker: &Worker,
) {
    let session = |id: ConnectionId| sockets.get(id.as_usize())?.as_ref()?.session();
    let [first, second, third] = next;
    if let Some(id) = first {
        session(id).into_iter().for_each(tls::Session::prefetch_keys);
        let token = worker.memory(id).map_or(&[][..], Connection::memory);
        uring::lines(token.as_ptr(), token.len());
    }
    if let Some(id) = second {
        session(id).into_iter().for_each(tls::Session::prefetch);
        worker.memory(id).into_iter().for_each(prefetch);
    }
    if let Some(id) = third {
        sockets.get(id.as_usize()).into_iter().for_each(prefetch);
        worker.place(id).into_iter().for_each(prefetch);
    }
}

//! Handshakes: so few of them in a turn that viewers have theirs.

use model::handle::ConnectionId;
use tls::Progress;
use worker::Event;

use super::{EventLoop, socket_of};
use crate::serving::socket::Transport;

/// Hellos answered in a turn in which nothing else was to do, and in one in which something was.
/// Each costs as much as sealing a megabyte, so that many at once would make viewers wait.
const HELLOS_MAX: [usize; 2] = [8, 1];
/// Hellos taken in per turn, whole or pieces of them. Arbitrary: a piece costs microseconds, of
/// which most are for the first, and whole ones reach their own bound before.
const PIECES_MAX: usize = 32;

impl EventLoop {
    /// Answers hellos, the last to come first. A piece of one counts for none, and those closed
    /// meanwhile cost nothing.
    pub(super) fn answer_hellos(&mut self, busy: bool) {
        let most = HELLOS_MAX[usize::from(busy)];
        let (mut answered, mut taken_in) = (0, 0);
        while answered < most
            && taken_in < PIECES_MAX
            && let Some(id) = self.hellos.pop_back()
        {
            let Some(socket) = socket_of(&mut self.sockets, id) else { continue };
            if socket.closing {
                continue;
            }
            if let Transport::Hello(versions) = &socket.transport {
                match self.acceptor.accept(*versions) {
                    Ok(handshake) => {
                        socket.transport = Transport::Handshake(Some(Box::new(handshake)));
                    }
                    Err(error) => {
                        tracing::error!(%error, "no handshake can begin");
                        self.event(Event::Ended { connection: id });
                        continue;
                    }
                }
            }
            taken_in += 1;
            self.flight.clear();
            self.take_in(id);
            // What costs something says something.
            answered += usize::from(!self.flight.is_empty());
            self.counters.lives();
        }
        // The worker lets go of those that came first, so that is where names of nobody gather.
        while let Some(id) = self.hellos.front()
            && socket_of(&mut self.sockets, *id).is_none_or(|socket| socket.closing)
        {
            self.hellos.pop_front();
        }
    }

    pub(super) fn handshake(&mut self, id: ConnectionId, len: usize) {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        let Transport::Handshake(slot) = &mut socket.transport else { return };
        let handshake = slot.take().expect("a handshake is worked on by one event at a time");
        self.flight.clear();
        let progress = handshake.receive(&self.incoming[..len], &mut self.flight);
        // A request has come, too: tickets and its answer can share a packet. If that takes long,
        // TCP sends them by themselves after a moment.
        let more = matches!(&progress, Ok(Progress::Done { rest, .. }) if !rest.is_empty());
        let delivered = self.send_flight(id, more);
        let Some(socket) = socket_of(&mut self.sockets, id) else { return };
        match progress {
            Ok(Progress::Pending(handshake)) if delivered => {
                socket.transport = Transport::Handshake(Some(handshake));
                self.await_content(id);
            }
            Ok(Progress::Done { mut session, rest }) if delivered => {
                session.shorten_records(self.ablation.record_len.0.as_usize());
                socket.transport = Transport::Secure(session);
                socket.rest = rest;
                if !socket.rest.is_empty() {
                    self.open_records(id, 0);
                }
                self.event(Event::Established { connection: id });
            }
            Ok(_) => self.event(Event::Ended { connection: id }),
            Err(error) => {
                tracing::debug!(%error, "handshake failed");
                self.event(Event::Ended { connection: id });
            }
        }
    }

    /// Sends handshake bytes; with `more`, an answer follows at once and may share the packet. A
    /// client that takes not even these few KiB at once is let go: its window was closed from the
    /// start.
    fn send_flight(&mut self, id: ConnectionId, more: bool) -> bool {
        let Some(socket) = socket_of(&mut self.sockets, id) else { return false };
        self.flight.is_empty()
            || matches!(socket.send_now(&self.flight, more), Ok(len) if len == self.flight.len())
    }
}

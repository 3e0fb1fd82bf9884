//! The loop itself: sockets by epoll, blocks by number, nothing in between.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result};
use model::limits::CHUNK_LEN;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use tls::{Acceptor, Handshake, Kernels, Progress, Session};

use super::blocks::Blocks;
use super::request::{HEAD_MAX, Request};

const EVENTS_MAX: usize = 256;
/// Received at once, as by an appliance.
const RECEIVE_LEN: usize = 32 * 1024;
/// In the place of a connection's number.
const LISTENER: u64 = u64::MAX;

/// Serves until the process ends.
pub(crate) struct Server {
    poll: OwnedFd,
    listener: TcpListener,
    acceptor: Acceptor,
    blocks: Blocks,
    connections: Vec<Option<Connection>>,
    scratch: Vec<u8>,
    incoming: Vec<u8>,
}

struct Connection {
    socket: TcpStream,
    transport: Transport,
    /// Received and not a whole record yet.
    rest: Vec<u8>,
    /// Sealed, and not taken by the kernel from here on.
    unsent: (Vec<u8>, usize),
    answer: Option<Answer>,
}

enum Transport {
    Handshake(Option<Box<Handshake>>),
    Session(Box<Session>),
}

/// What is still to be sealed of a response.
struct Answer {
    request: Request,
    has_head: bool,
}

impl Server {
    /// Listens; what is in memory has been read.
    pub(crate) fn new(
        listen: SocketAddr,
        chain: &Path,
        key: &Path,
        kernels: Kernels,
        blocks: Blocks,
    ) -> Result<Self> {
        let acceptor = Acceptor::from_pem_files(chain, key)?.sealed_by(kernels);
        let listener = TcpListener::bind(listen).with_context(|| format!("binding {listen}"))?;
        listener.set_nonblocking(true)?;
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let parts = [HEAD_MAX, CHUNK_LEN.as_usize()];
        Ok(Self {
            poll,
            listener,
            acceptor,
            blocks,
            connections: Vec::new(),
            scratch: vec![0; Session::sealed_len_max(parts, tls::RECORD_LEN_MAX)],
            incoming: vec![0; RECEIVE_LEN],
        })
    }

    #[cfg(test)]
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// Serves until something of its own fails.
    pub(crate) fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.poll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("cannot wait for sockets"),
            }
            for event in &events {
                let (data, flags) = (event.data, event.flags);
                match data.u64() {
                    LISTENER => self.accept()?,
                    index => self.came(usize::try_from(index)?, flags.contains(EventFlags::IN)),
                }
            }
        }
    }

    fn accept(&mut self) -> Result<()> {
        while let Ok((socket, _)) = self.listener.accept() {
            socket.set_nonblocking(true)?;
            socket.set_nodelay(true)?;
            let handshake = Some(Box::new(self.acceptor.accept(tls::Versions::Tls12Too)?));
            // Connections of a turn go together: no place is used again before that.
            let index = self.connections.len();
            let data = EventData::new_u64(u64::try_from(index)?);
            // Once for each change: nothing is asked for again.
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::ET;
            epoll::add(&self.poll, &socket, data, flags)?;
            let transport = Transport::Handshake(handshake);
            let unsent = (Vec::new(), 0);
            self.connections.push(Some(Connection {
                socket,
                transport,
                rest: Vec::new(),
                unsent,
                answer: None,
            }));
        }
        Ok(())
    }

    /// Takes what came, and sends as much as the socket takes. Who breaks a rule is let go.
    fn came(&mut self, index: usize, is_readable: bool) {
        let Self { connections, blocks, scratch, incoming, .. } = self;
        let Some(connection) = &mut connections[index] else { return };
        let is_kept = (!is_readable || connection.receive(incoming, blocks))
            && connection.send(scratch, blocks);
        if is_kept {
            return;
        }
        connections[index] = None;
        if connections.iter().all(Option::is_none) {
            connections.clear();
        }
    }
}

impl Connection {
    /// False at its end.
    fn receive(&mut self, incoming: &mut [u8], blocks: &Blocks) -> bool {
        loop {
            let len = match rustix::net::recv(&self.socket, &mut *incoming, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return false,
                Ok((len, _)) => len,
                Err(Errno::AGAIN | Errno::INTR) => return true,
                Err(_) => return false,
            };
            if !self.take_in(&incoming[..len], blocks) {
                return false;
            }
            if len < incoming.len() {
                return true;
            }
        }
    }

    /// False if the connection is over.
    fn send(&mut self, scratch: &mut [u8], blocks: &mut Blocks) -> bool {
        loop {
            let (unsent, from) = &mut self.unsent;
            if *from < unsent.len() {
                match send(&self.socket, &unsent[*from..], false) {
                    Some(sent) => *from += sent,
                    None => return false,
                }
                if *from < unsent.len() {
                    return true;
                }
            }
            let Transport::Session(session) = &mut self.transport else { return true };
            let Some(Answer { request, has_head }) = &mut self.answer else { return true };
            let Ok(body) = blocks.piece(request) else { return false };
            let head = if std::mem::replace(has_head, true) { "" } else { &request.head };
            let Ok(len) = session.seal([head.as_bytes(), body], scratch) else { return false };
            let more = !request.is_over();
            if !more {
                self.answer = None;
            }
            let Some(sent) = send(&self.socket, &scratch[..len], more) else { return false };
            if sent < len {
                unsent.clear();
                unsent.extend_from_slice(&scratch[sent..len]);
                *from = 0;
                return true;
            }
        }
    }

    /// False if it breaks a rule.
    fn take_in(&mut self, bytes: &[u8], blocks: &Blocks) -> bool {
        match &mut self.transport {
            Transport::Handshake(slot) => {
                let Some(handshake) = slot.take() else { return false };
                let mut flight = Vec::new();
                let progress = handshake.receive(bytes, &mut flight);
                let is_sent =
                    flight.is_empty() || send(&self.socket, &flight, false) == Some(flight.len());
                match progress {
                    Ok(Progress::Pending(handshake)) => *slot = Some(handshake),
                    Ok(Progress::Done { session, rest }) => {
                        self.transport = Transport::Session(session);
                        self.rest = rest;
                        return is_sent && self.open(blocks);
                    }
                    Err(_) => return false,
                }
                is_sent
            }
            Transport::Session(_) => {
                self.rest.extend_from_slice(bytes);
                self.open(blocks)
            }
        }
    }

    fn open(&mut self, blocks: &Blocks) -> bool {
        let Transport::Session(session) = &mut self.transport else { return false };
        let mut request = None;
        let mut deliver = |content: &[u8]| request = Some(content.to_vec());
        let Ok(opened) = session.open(&mut self.rest, &mut deliver) else { return false };
        self.rest.drain(..opened.consumed);
        request.map_or(!opened.closed, |request| self.asked(&request, blocks))
    }

    /// False if it is not one request, and the only one.
    fn asked(&mut self, text: &[u8], blocks: &Blocks) -> bool {
        let request = Request::parse(text, blocks.file_len());
        let is_first = self.answer.is_none();
        self.answer = request.map(|request| Answer { request, has_head: false });
        is_first && self.answer.is_some()
    }
}

/// How many bytes the kernel took; none if the connection is over.
fn send(socket: &TcpStream, bytes: &[u8], more: bool) -> Option<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    match rustix::net::send(socket, bytes, flags) {
        Ok(sent) => Some(sent),
        Err(Errno::AGAIN | Errno::INTR) => Some(0),
        Err(_) => None,
    }
}

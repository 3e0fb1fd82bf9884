//! Connections, bounded: so many at a time, and none that says nothing for long. With TLS or not.
//!
//! ```text
//! kernel ──> accept ──> [ handshakes: so many at a time, each for so long ] ──> axum
//!              ^ a permit per connection                       strangers: fewer, and not for long
//! ```

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use identity::member::{self, Seen};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::metrics::Counter;

/// Accepts at most so many connections; more wait in the kernel's queue.
pub(crate) struct BoundedListener {
    listener: TcpListener,
    permits: Arc<Semaphore>,
    /// Places of connections without a client certificate, where they are fewer.
    strangers: Option<Arc<Semaphore>>,
    tls: Option<Tls>,
    times: Times,
    handshakes: JoinSet<Option<(BoundedStream, SocketAddr)>>,
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// A handshake.
    handshake: Duration,
    /// A stranger's connection.
    stranger: Duration,
}

/// How a listener speaks TLS. Cheap to clone; all clones share what [`Tls::replace`] changes.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<RwLock<Arc<ServerConfig>>>,
    refused: Arc<Counter>,
}

/// A connection that holds its place until it is dropped.
pub(crate) struct BoundedStream {
    stream: Stream,
    idle: Pin<Box<Sleep>>,
    /// The end of a stranger's connection, whatever it says.
    end: Option<Pin<Box<Sleep>>>,
    seen: Option<Arc<Seen>>,
    _permit: OwnedSemaphorePermit,
    _stranger: Option<OwnedSemaphorePermit>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Whose connection it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Who is at the other end, where client certificates are asked for.
#[derive(Clone, Debug)]
pub(crate) struct FleetPeer {
    /// Where from. For logs at DEBUG.
    pub(crate) address: SocketAddr,
    /// What its certificate says; none for a stranger. The chain and the dates were good when the
    /// connection began: whether it is good now is for whoever asks.
    pub(crate) seen: Option<Arc<Seen>>,
}

impl Tls {
    /// Speaks TLS with `config`. Handshakes that fail are counted in `refused`.
    pub(crate) fn new(config: ServerConfig, refused: Arc<Counter>) -> Self {
        Self { config: Arc::new(RwLock::new(Arc::new(config))), refused }
    }

    /// The connections from now on have this configuration: a new certificate, for example.
    pub(crate) fn replace(&self, config: ServerConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// What new connections have.
    #[cfg(test)]
    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A handshake, if it is good and in time.
    async fn accept(self, stream: TcpStream, within: Duration) -> Option<TlsStream<TcpStream>> {
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = match timeout(within, TlsAcceptor::from(config).accept(stream)).await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it took too long".to_owned(),
        };
        self.refused.count();
        tracing::debug!(reason, "no TLS handshake");
        None
    }
}

impl BoundedListener {
    pub(crate) fn new(listener: TcpListener, connections_max: usize, tls: Option<Tls>) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max));
        let times = Times { handshake: HANDSHAKE_MAX, stranger: STRANGER_MAX };
        let handshakes = JoinSet::new();
        Self { listener, permits, strangers: None, tls, times, handshakes }
    }

    /// Of the connections at most so many without a client certificate, and none of these for
    /// longer than `STRANGER_MAX`: whoever has no identity cannot crowd out those that have.
    pub(crate) fn strangers(mut self, most: usize) -> Self {
        self.strangers = Some(Arc::new(Semaphore::new(most)));
        self
    }

    async fn accept_tcp(
        listener: &TcpListener,
        permits: &Arc<Semaphore>,
    ) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
        let permit = permits.clone().acquire_owned().await;
        let permit = permit.expect("the semaphore is never closed");
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let _ = stream.set_nodelay(true);
                    return (stream, address, permit);
                }
                Err(error) => {
                    // Out of descriptors, or a connection that is gone already: wait and go on.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let more = self.handshakes.len() < HANDSHAKES_MAX;
            tokio::select! {
                accepted = Self::accept_tcp(&self.listener, &self.permits), if more => {
                    let (stream, address, permit) = accepted;
                    let Some(tls) = self.tls.clone() else {
                        return (BoundedStream::new(Stream::Plain(stream), permit), address);
                    };
                    let (strangers, times) = (self.strangers.clone(), self.times);
                    self.handshakes.spawn(async move {
                        let stream = tls.accept(stream, times.handshake).await?;
                        let known = BoundedStream::known(stream, permit, strangers, times);
                        Some((known?, address))
                    });
                }
                Some(done) = self.handshakes.join_next() => {
                    if let Ok(Some(ready)) = done {
                        return ready;
                    }
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

impl Connected<IncomingStream<'_, BoundedListener>> for FleetPeer {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self { address: *stream.remote_addr(), seen: stream.io().seen.clone() }
    }
}

impl BoundedStream {
    fn new(stream: Stream, permit: OwnedSemaphorePermit) -> Self {
        let idle = Box::pin(sleep(IDLE_MAX));
        Self { stream, idle, end: None, seen: None, _permit: permit, _stranger: None }
    }

    /// After a handshake; none if there is no place for another stranger, or the certificate is
    /// the authority's and still names nobody.
    fn known(
        stream: TlsStream<TcpStream>,
        permit: OwnedSemaphorePermit,
        strangers: Option<Arc<Semaphore>>,
        times: Times,
    ) -> Option<Self> {
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let seen = match certificate {
            Some(certificate) => Some(Arc::new(member::read(certificate).ok()?)),
            None => None,
        };
        let mut known = Self::new(Stream::Tls(Box::new(stream)), permit);
        if let (None, Some(strangers)) = (&seen, strangers) {
            known._stranger = Some(strangers.try_acquire_owned().ok()?);
            known.end = Some(Box::pin(sleep(times.stranger)));
        }
        known.seen = seen;
        Some(known)
    }

    /// True if the connection has lasted too long, or been silent for too long.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        let end = self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
        end || self.idle.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if read.is_ready() {
            self.idle.as_mut().reset(Instant::now() + IDLE_MAX);
        }
        if self.is_over(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// A connection that sends nothing for so long is closed. Above the intervals of reports and
/// steering, so that theirs stay open.
const IDLE_MAX: Duration = Duration::from_secs(75);

/// A handshake takes two round trips and some milliseconds.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Handshakes at a time: 64 at 1 ms of work each is what one core does in a moment.
const HANDSHAKES_MAX: usize = 64;
/// An enrolment is two requests.
const STRANGER_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests;

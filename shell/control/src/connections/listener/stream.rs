//! What tells a [`Place`] how its connection gets on: bytes in both directions, and bodies.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use model::units;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::place::Place;

/// With TLS or not.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream whose place is told.
pub(super) struct Line {
    stream: Stream,
    /// What was read of it before, and how much of that was taken.
    before: Vec<u8>,
    taken: usize,
    place: Arc<Place>,
}

/// The body of a request.
pub(super) struct Asked {
    body: Incoming,
    place: Arc<Place>,
}

/// The body of an answer; dropped when all of it is written.
pub(super) struct Answer {
    body: Written,
    place: Arc<Place>,
}

pub(super) enum Written {
    /// None once it was taken.
    Whole(Option<Bytes>),
    Routed(Body),
}

impl Line {
    /// Of a stream of which these bytes were read before.
    pub(super) fn new(stream: Stream, before: Vec<u8>, place: Arc<Place>) -> Self {
        Self { stream, before, taken: 0, place }
    }

    /// Gives what was read before; false if there is no more of it.
    fn give_before(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let left = &self.before[self.taken..];
        let (given, left) = left.split_at(left.len().min(buffer.remaining()));
        buffer.put_slice(given);
        let is_given = !given.is_empty();
        self.taken += given.len();
        if left.is_empty() {
            (self.before, self.taken) = (Vec::new(), 0);
        }
        is_given
    }

    fn took(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.place.took();
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = if self.give_before(buffer) {
            Poll::Ready(Ok(()))
        } else {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        };
        if before < buffer.filled().len() {
            self.place.heard();
        }
        read
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.took(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What hyper keeps has been written before.
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_ready() {
            self.place.took_all();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.took(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => match joined(bytes) {
                Some(joined) => Pin::new(stream).poll_write(context, &joined),
                None => Pin::new(stream).poll_write_vectored(context, bytes),
            },
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }
}

/// Short pieces as one: to take a list of pieces costs the kernel more than to copy them costs us.
fn joined(pieces: &[IoSlice<'_>]) -> Option<Vec<u8>> {
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    (1 < pieces.len() && len <= JOINED_MAX).then(|| {
        let mut joined = Vec::with_capacity(len);
        pieces.iter().for_each(|piece| joined.extend_from_slice(piece));
        joined
    })
}

impl Asked {
    pub(super) fn new(body: Incoming, place: Arc<Place>) -> Self {
        Self { body, place }
    }
}

impl http_body::Body for Asked {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_ready() && self.body.is_end_stream() {
            self.place.heard_all();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Answer {
    pub(super) fn new(body: Written, place: Arc<Place>) -> Self {
        Self { body, place }
    }
}

impl Written {
    pub(super) fn whole(text: String) -> Self {
        Self::Whole(Some(text.into()))
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut self.body {
            Written::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Written::Routed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Written::Whole(bytes) => bytes.is_none(),
            Written::Routed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Written::Whole(bytes) => {
                let len = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(units::Bytes::of(len).0)
            }
            Written::Routed(body) => body.size_hint(),
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.place.answered();
    }
}

/// Longest write that is joined. Arbitrary: most answers to a poll are below 700 B; one whose
/// ticket has many parts is longer.
const JOINED_MAX: usize = 2 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_are_joined_in_their_order_and_long_ones_are_left() {
        let of = |pieces: &[&[u8]]| {
            let pieces: Vec<_> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
            joined(&pieces)
        };
        assert_eq!(of(&[b"head", b"", b"body"]), Some(b"headbody".to_vec()));
        assert_eq!(of(&[b"alone"]), None);
        let half = [0; JOINED_MAX / 2];
        assert_eq!(of(&[&half, &half]), Some(vec![0; JOINED_MAX]));
        assert_eq!(of(&[&half, &half, b"x"]), None);
    }
}

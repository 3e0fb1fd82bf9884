//! A file's bytes as they leave: read in pieces on blocking threads, at no more than a common rate.

use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use model::units::BitsPerSecond;
use tokio::sync::OwnedSemaphorePermit;

/// A rate that all answers of one origin share.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: BitsPerSecond,
    /// When the next piece may leave.
    next: Mutex<Instant>,
}

impl Pace {
    /// No more than `rate` from now on.
    pub(crate) fn new(rate: BitsPerSecond) -> Self {
        Self { rate, next: Mutex::new(Instant::now()) }
    }

    /// How long a piece of `len` bytes that wants to leave at `now` has to wait. Time not used is
    /// lost: there are no bursts to catch up.
    fn reserve(&self, len: u64, now: Instant) -> Duration {
        let span = u128::from(len) * 8 * 1_000_000_000 / u128::from(self.rate.0.max(1));
        let span = Duration::from_nanos(u64::try_from(span).unwrap_or(u64::MAX));
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let start = (*next).max(now);
        *next = start.checked_add(span).unwrap_or(start);
        start.duration_since(now)
    }
}

/// The bytes of `left` of one file, with the permit that counts this answer.
pub(super) struct FileBody {
    file: Arc<File>,
    left: Range<u64>,
    pace: Option<Arc<Pace>>,
    reading: Option<Reading>,
    _permit: OwnedSemaphorePermit,
}

type Reading = Pin<Box<dyn Future<Output = io::Result<Bytes>> + Send>>;

impl FileBody {
    pub(super) fn new(
        file: File,
        range: Range<u64>,
        pace: Option<Arc<Pace>>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { file: Arc::new(file), left: range, pace, reading: None, _permit: permit }
    }

    fn read_next(&mut self) -> Reading {
        let start = self.left.start;
        let end = self.left.end.min(start.saturating_add(PIECE_LEN));
        let file = Arc::clone(&self.file);
        let pace = self.pace.clone();
        Box::pin(async move {
            if let Some(pace) = pace {
                tokio::time::sleep(pace.reserve(end - start, Instant::now())).await;
            }
            let read = move || {
                let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
                // A file cut short ends the connection: the client sees that bytes are missing.
                file.read_exact_at(&mut bytes, start)?;
                Ok(Bytes::from(bytes))
            };
            tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
        })
    }
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let mut reading = self.reading.take().unwrap_or_else(|| self.read_next());
        let polled = reading.as_mut().poll(context);
        if polled.is_pending() {
            self.reading = Some(reading);
            return Poll::Pending;
        }
        let bytes = match ready!(polled) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.left.start = self.left.end;
                return Poll::Ready(Some(Err(error)));
            }
        };
        self.left.start += model::units::Bytes::of(bytes.len()).0;
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.end - self.left.start)
    }
}

/// Read at once: one block of an object.
const PIECE_LEN: u64 = model::object::BLOCK_LEN.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_wait_their_turn_and_lost_time_is_not_made_up_for() {
        let start = Instant::now();
        let pace = Pace { rate: BitsPerSecond(8_000), next: Mutex::new(start) };
        assert_eq!(pace.reserve(500, start), Duration::ZERO);
        assert_eq!(pace.reserve(1_000, start), Duration::from_millis(500));
        assert_eq!(pace.reserve(1_000, start), Duration::from_millis(1_500));
        let later = start + Duration::from_secs(60);
        assert_eq!(pace.reserve(1_000, later), Duration::ZERO);
        assert_eq!(pace.reserve(1, later), Duration::from_secs(1));
    }
}

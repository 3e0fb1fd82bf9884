//! A file's bytes as they leave: read in pieces on blocking threads, at no more than a common rate.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures_util::stream;
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

/// The bytes of `range` of a file, at no more than `pace`. The permit counts this answer, and goes
/// with the body.
pub(super) fn body(
    file: File,
    range: Range<u64>,
    pace: Option<Arc<Pace>>,
    permit: OwnedSemaphorePermit,
) -> Body {
    let answer = Arc::new((file, permit));
    Body::from_stream(stream::try_unfold(range.start, move |start| {
        let (answer, pace) = (Arc::clone(&answer), pace.clone());
        let end = range.end.min(start.saturating_add(PIECE_LEN));
        async move {
            if start == end {
                return Ok::<_, io::Error>(None);
            }
            if let Some(pace) = pace {
                tokio::time::sleep(pace.reserve(end - start, Instant::now())).await;
            }
            let read = move || {
                let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
                // A file cut short ends the connection: the client sees that bytes are missing.
                answer.0.read_exact_at(&mut bytes, start)?;
                Ok(Some((Bytes::from(bytes), end)))
            };
            tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?
        }
    }))
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

//! Decides which I/O a drive does next. It does none itself.
//!
//! ```text
//! each worker:  reads, by deadline ──> reads::Reads ──> its slice of the drive's depth
//!                                          │ Slice: what its reads met, and the oldest in flight
//!                                          v
//! all else:     fill, scrub, deletes ──> gate::Gate ──> what the reads leave
//! ```
//!
//! `drive` has four classes: reads by deadline (`reads`), and writes, scrub and deletes, which are
//! held back by what they do to reads (`governor`). Workers share nothing but counts (`tally`):
//! each has `reads` of its own, and one `drive` more per drive, at the `gate`, has all else.

pub mod drive;
pub mod gate;
pub mod governor;
pub mod load;
pub mod reads;
pub mod tally;

use model::units::{Bytes, Nanos};

/// The queue is full: answer the client otherwise, or wait for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drive's queue is full")]
pub struct Full;

/// How long `len` takes at so many bytes per second.
fn time_of(len: Bytes, rate: Bytes) -> Nanos {
    Nanos(len.0.saturating_mul(1_000_000_000) / rate.0.max(1))
}

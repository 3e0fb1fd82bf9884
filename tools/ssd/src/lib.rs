//! A model of a flash drive, so that a scheduler can be judged without one. It does no I/O.
//!
//! ```text
//! Event::Submit ──> link ──> write buffer ──> die queues ──> pages programmed
//!                     ^                        |   ^
//! Action::Complete <──┴── channel <── pages read   └── collection: moves and erases
//! ```
//!
//! What makes such drives late is in it: a die does one thing at a time; pages are never written
//! in place, so blocks are collected (`ftl`); writes are answered from a buffer until that is
//! full; SATA moves data in one direction at a time and carries a trim out alone. Time is an
//! argument, and the same seed gives the same run. What it is held against is in `theory` and in
//! this room's tests. `filesystem` is what stands between files and the drive.

mod drive;
mod filesystem;
mod ftl;
mod params;
mod rng;
pub mod theory;

pub use drive::{Action, Command, Drive, Event, Occupied};
pub use filesystem::{Filesystem, Io, Mount, Run};
pub use ftl::{Ftl, Shape, Wear};
pub use params::{Class, Collect, Link, Order, Params, Trim};
pub use rng::Rng;

/// As an index. Linux has no 16-bit targets.
fn at(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// Of things that are fewer than 2^32.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

//! io_uring made safe and bounded. All `unsafe` of the project but the AEAD call lives here.
//!
//! ```text
//! Ring     operations in, typed completions out; owns what the kernel reads or writes meanwhile
//! Arena    the registered buffers that drives read into
//! socket   what no safe library asks of a socket: what TCP knows, and to keep to a rate
//! cache    hints about what will be looked at soon
//! allocations    a counting allocator, for tests
//! ```
//!
//! The kernel may touch memory until an operation completes. So the ring owns that memory: buffers
//! of its arena go by [`BufferId`](model::handle::BufferId) and cannot be looked at while in
//! flight; data to send and file names are moved in and come back with the completion.

pub mod allocations;
mod arena;
mod cache;
mod ring;
mod socket;

pub use cache::page_starts;
pub use ring::{Completion, Config, Errno, Ring, RingError, Token, Wait, Watch};
pub use socket::{bound_unsent, limit_rate, tcp_info};

//! io_uring made safe and bounded. All `unsafe` of the project but the AEAD call lives here.
//!
//! ```text
//! Ring     operations in, typed completions out; owns what the kernel reads or writes meanwhile
//! Arena    the registered buffers that drives read into
//! tcp_info what TCP knows of a connection
//! allocations    a counting allocator, for tests
//! socket   options that no safe library knows
//! ```
//!
//! The kernel may touch memory until an operation completes. So the ring owns that memory: buffers
//! of its arena go by [`BufferId`](model::handle::BufferId) and cannot be looked at while in
//! flight; data to send and file names are moved in and come back with the completion.

pub mod allocations;
mod arena;
mod ring;
mod socket;
mod tcp;

pub use ring::{Completion, Config, Errno, Ring, RingError, Token, Wait};
pub use socket::{limit_rate, resent};
pub use tcp::{TcpInfo, tcp_info};

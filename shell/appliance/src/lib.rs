//! The data-plane process of Nearcast: all I/O, no decisions.
//!
//! ```text
//! serving
//!   event_loop   one worker's thread: completions to events, actions to system calls
//!   mailbox      how other threads speak to a worker
//!   counters     what workers count, where others can read it
//! storage
//!   drives       one drive: its marker, its files, its index
//!   pages        memory that direct I/O takes
//!   format       makes a directory a drive
//!   inspect      says what is on a drive, or in one file
//! around both
//!   config       the settings        metrics, listen, clock
//! ```

pub mod clock;
pub mod config;
pub mod counters;
pub mod drives;
pub mod event_loop;
pub mod format;
pub mod inspect;
pub mod listen;
pub mod mailbox;
pub mod metrics;
pub mod pages;
mod socket;

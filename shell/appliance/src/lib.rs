//! The data-plane process of Nearcast: all I/O, no decisions.

pub mod clock;
pub mod config;
pub mod counters;
pub mod event_loop;
pub mod listen;
pub mod mailbox;
pub mod metrics;
mod socket;

//! The data-plane process of Nearcast: all I/O, no decisions.
//!
//! ```text
//! process      start, configuration, confinement, metrics
//!   serving    workers: sockets, requests, their log
//!   filling    objects in, from origin and siblings
//!   membership control, identity, the agent
//!     storage  drives, and the threads that look after them
//! book         what is to be told of viewers
//! demand       what viewers are sent of each file, hour by hour
//! counters     what workers and storage threads count
//! clock        both clocks
//! lock         a mutex, whoever panicked under it
//! ```

pub mod book;
pub mod clock;
pub mod counters;
pub mod demand;
pub mod filling;
mod lock;
pub mod membership;
pub mod process;
pub mod serving;
pub mod storage;
mod told;

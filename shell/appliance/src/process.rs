//! The process: what `main` runs, and what it says of itself.
//!
//! ```text
//! server       starts everything, waits, stops everything
//! storage      the storage side, which `server` starts and stops: composes `storage`, `membership`
//!              and `filling`
//! guard        runs all that as another process, and ends it when it hangs
//! life         thread: shows the guard that the workers live
//! config       the settings
//! confine      gives away what serving does not need
//! certificate  the viewers' certificate, read anew
//! hot          how much memory hot blocks get
//! memory       how many may transfer with the memory that there is
//! metrics      thread: what is counted, for Prometheus
//! inspect      says what is on a drive, or in one file
//! ```

pub mod certificate;
pub mod config;
pub mod confine;
pub mod guard;
pub(crate) mod hot;
pub mod inspect;
pub(crate) mod life;
pub mod memory;
pub mod metrics;
pub mod server;
pub mod storage;

//! Storage: the drives of this appliance, and the threads that look after them.
//!
//! ```text
//! shared       what the threads share: the two below, and counters
//! ledger       the holdings, and their sink
//! slots        the configured drives
//! drives       one drive: its marker, its files, its index
//! gate         a turn on a drive, for a thread that is not a worker
//! mounts       which file system and device a drive has
//! absence      threads: each measures a drive; tries one again that was set aside
//! host         the appliance as the procedures of `upkeep` see it
//! tiering      what is watched most, and what may be moved for it today
//! mover        thread: files from drive to drive
//! source       HTTP with ranges
//! format       makes a directory a drive
//! pages        memory that direct I/O takes
//! ```

pub(crate) mod absence;
pub mod drives;
pub mod format;
pub mod gate;
pub(crate) mod host;
pub(crate) mod ledger;
pub mod mounts;
pub(crate) mod mover;
pub mod pages;
pub(crate) mod shared;
pub(crate) mod slots;
pub mod source;
pub mod tiering;

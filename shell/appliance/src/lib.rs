//! The appliance's storage side: drives, fill, and what is said to and by control.
//!
//! ```text
//! storage        what `main` starts and stops; composes all below
//! shared         what its threads share
//! keeper         thread: plan, evict
//! filler         threads: from source to drive
//! audit          thread: index against files
//! adopt          a file that the index lost is made visible again
//! control_link   thread: reports out, manifests in
//! source         HTTP with ranges
//! drives         one drive: its marker, its files, its index
//! state_file     the last manifest
//! format         makes a directory a drive
//! inspect        says what is on a drive, or in one file
//! pages          memory that direct I/O takes
//! ```

mod adopt;
mod audit;
pub mod control_link;
pub mod drives;
mod filler;
pub mod format;
pub mod inspect;
mod keeper;
pub mod pages;
mod shared;
pub mod source;
pub mod state_file;
pub mod storage;

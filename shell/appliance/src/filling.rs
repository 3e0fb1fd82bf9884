//! Filling: objects from the origin and from siblings, and to siblings.
//!
//! ```text
//! filler       threads: from source to drive
//! places       siblings and origins of one object
//! peer         threads: published objects for siblings
//! ```

pub(crate) mod filler;
pub mod peer;
pub(crate) mod places;

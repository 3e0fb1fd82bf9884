//! Which objects are on which drive, and the steps by which one appears or goes.
//!
//! ```text
//! index        object -> extent, of all drives: what workers look up
//! ```

pub mod index;

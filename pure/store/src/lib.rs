//! Which objects are on which drive, and the steps by which one appears or goes.
//!
//! ```text
//! index        object -> extent, of all drives: what workers look up
//! layout       names and sizes of files on a drive; which drive takes the next object
//! marker       the file that makes a directory a drive
//! ```

pub mod index;
pub mod layout;
pub mod marker;

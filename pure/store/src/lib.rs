//! Which objects are on which drive, and the files that say so.
//!
//! ```text
//! absence      a drive that is set aside, over time: when to try it again
//! health       when a drive that fails here and there is given up as a whole
//! index        object -> extent, of all drives: what workers look up
//! inventory    what changed of it, for control
//! layout       names and sizes of files on a drive; which drive takes the next object
//! log          the index on the drive: snapshot, log, replay
//! marker       the file that makes a directory a drive
//! parcel       what one file brings: an object, or a unit's
//! silence      a drive that does not answer, over time
//! unit         small objects that die together, in one file
//! ```

pub mod absence;
pub mod health;
pub mod index;
pub mod inventory;
pub mod layout;
pub mod log;
pub mod marker;
pub mod parcel;
pub mod silence;
pub mod unit;

//! Keeps decisions as they were made, so that they can be made again. It does no I/O itself.
//!
//! ```text
//! decision ──> Ledger: what of the picture changed since the last one | its record
//!                │ a block: entries, the hash of the block before, a seal
//!                v
//!              file: [block 0, first][block 1] .. [block n, last]
//!                │ open: every seal and every link of the chain holds, or all of it is refused
//!                v
//!              replay: steering::rank on the same picture ──> the same, or where it differs
//!                                                             what if ──> who would go elsewhere
//!              tell ──> of one session, each decision with everybody who was looked at
//! ```
//!
//! An answer depends on the picture of the fleet, the client's sites, the version, the draw of the
//! session and the configuration. The file has each of them: a decision is a record of at most
//! [`RECORD_LEN_MAX`] bytes, and before it stands what it needs and what is not in the file yet.
//!
//! * **Picture**: whole before a file's first decision, then what changed between two decisions:
//!   a whole site if its appliances are others, else only those whose health or load changed.
//!   By bytes: a site about 10 and its name, an appliance about 10 and its name, a change of load
//!   or share 10 at most in fleets of 65,536. So 20,000 appliances are 600 KB in each file, and
//!   10,000 reports per second that all change a load are 100 KB/s.
//! * **Client**: the client's sites as the table of routes gave them, once for each file; of a
//!   prefix its length and its first 24 bits (48 of IPv6). No address is in a file.
//! * **Version**: who held it, when a decision is about it, and again when that changed.
//! * **Session**: its draw, 64 bits of a hash of its name. The name is in no file.

mod block;
mod changes;
mod codec;
mod copies;
mod entry;
mod near;
mod picture;
mod record;
mod replay;
mod writer;

pub use block::{BLOCK_LEN_MAX, Fault, HASH_LEN, Opened, SIGNATURE_LEN, message, open};
pub use record::{Answered, Kind, RECORD_LEN_MAX};
pub use replay::{Difference, Looked, Moved, Outcome, Told, WhatIf, replay, tell};
pub use writer::{Decision, Ledger, keeps};

#[cfg(test)]
mod tests;

//! Which sites a client is nearest to, by the prefixes that they hear or were given. It does no
//! I/O.
//!
//! ```text
//! appliance  BIRD's reply ──> bird ──> Builder: filter, the best of each prefix ──> Hearing
//!                                                                        │ digest, difference
//! control    sites, static prefixes ─────┐                               v
//!            geofeed, coverage zones ────┴──> Routes ── order, once per change ──> Table
//! front      client ──> Table::locate ──> its sites, best first, each with its reason
//! ```
//!
//! The order of sites for a client: longest prefix; embedded before private before public peering;
//! shorter AS path; lower MED from the same neighbour; nearer; the name. It is worked out for a
//! prefix when something about that prefix changes, and looked up when a client asks:
//!
//! * [`Table::locate`]: O(prefixes that cover the client + their sites), at most [`NEAR_MAX`].
//! * [`Routes::change_sites`]: O(distinct places) if a site is new or other, and O(log) per static
//!   prefix that came or went.
//! * [`Routes::go_on`]: a slice of what waits in a queue, [`SLICE`] prefixes at a time. What a site
//!   hears: O(log) per prefix, and a copy of the nodes above it that somebody reads: a few, each
//!   with the ways to 127 prefixes at most; for a whole table besides one walk over all prefixes,
//!   if the site had one before. A site that was there and is of another kind, elsewhere or gone:
//!   one walk. Files with places: one walk, and O(distinct places * sites).
//! * Cloning a [`Table`]: O(1).

mod attributes;
pub mod bird;
mod digest;
mod faults;
pub mod filter;
pub mod geofeed;
mod hearing;
mod order;
mod part;
mod table;
pub mod zones;

pub use attributes::{Attributes, COMMUNITIES_MAX, Community, PATH_MAX, Peering};
pub use digest::{Digest, NotADigest};
pub use faults::Faults;
use faults::prefix;
pub use hearing::{Builder, Difference, Hearing, Told};
pub use part::{Part, Refused, Stage};
pub use table::{Done, Located, NEAR_MAX, Routes, SLICE, Table, Unshared};

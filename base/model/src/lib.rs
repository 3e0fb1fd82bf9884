//! The nouns of Nearcast, and the units they are counted in. No decisions, no I/O.
//!
//! ```text
//! units        Bytes, BitsPerSecond, Nanos, Instant, UnixSeconds, Hour
//! id           names of sites, appliances, assets and asset versions; ids of drives and objects
//! object       what an object is: a BLAKE3 root, a length, the hashes of its 256 KiB blocks
//! drives       their places in an appliance's list, and sets of them
//! expected     what viewers are expected to be sent of an appliance's items
//! extent       where an object lies: drive, file, offset, length
//! manifest     what an appliance should hold (desired)
//! members      sets of dense numbers that many are asked about
//! metric       numbers that a process tells of itself, with what Prometheus has to know
//! names        maps by name that are cheap to copy
//! number       sets of dense numbers, and their hashes
//! paged        lists that are cheap to copy
//! path         the one form of a path inside an asset version
//! handle       names for what the kernel or a pool holds
//! inventory    what an appliance holds (actual), as deltas
//! topology     sites, their prefixes, and their appliances
//! place        where on earth sites and clients are
//! profile      what an appliance is able to do
//! zone         time zones by their names
//! hours        when fill may fetch, by local time
//! near         the sites of a client, best first, each with its reason
//! status       how an appliance's drives and its fill stand
//! tcp          what the kernel tells of a connection
//! cmcd         what players say of themselves
//! view         the fleet at one moment, as placement and steering see it
//! rendezvous   the weighted draw by which many agree without talking
//! update       what changes for those who serve
//! limits       the bounds that every room shares
//! machine      the three verbs of everything that decides over time
//! ```
//!
//! What two rooms share is a noun, so it lives here; how it looks on the wire is `wire`'s affair.

pub mod cmcd;
pub mod drives;
pub mod expected;
pub mod extent;
pub mod handle;
pub mod hours;
pub mod id;
pub mod inventory;
pub mod limits;
pub mod machine;
pub mod manifest;
pub mod members;
pub mod metric;
pub mod names;
pub mod near;
pub mod number;
pub mod object;
pub mod paged;
pub mod path;
pub mod place;
pub mod profile;
pub mod rendezvous;
pub mod status;
pub mod tcp;
pub mod topology;
pub mod units;
pub mod update;
pub mod view;
pub mod zone;

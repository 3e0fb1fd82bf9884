//! Identities in a fleet. Both sides: the certificates that the authority gives, and the
//! credentials that a member keeps.
//!
//! ```text
//! operator ── one-time code ──> appliance                      the code names the authority too
//! appliance ── code, request ──> control ── certificate ──>    enrolled: `credentials`
//! appliance <── TLS 1.3, both sides with certificates ──> control, fronts, siblings
//! control ── Ed25519 ──> manifests, snapshots             `signing`; checked before a byte is used
//! ```
//!
//! A certificate says what its holder is and its name (`member`), never where it is: connections
//! are made to an address and checked against the name (`dial`), so that an appliance may move, and
//! cannot be given a certificate for somebody else's address.

pub mod authority;
pub mod code;
pub mod credentials;
pub mod dial;
pub mod enrol;
pub mod member;
pub mod secret_file;
pub mod signing;

/// Seconds since 1970, as certificates count them.
pub use model::units::UnixSeconds;

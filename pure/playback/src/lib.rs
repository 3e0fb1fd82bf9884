//! What players and edge agree on: tokens, entry manifests, steering documents. It does no I/O.
//!
//! ```text
//! token          /t/{token}/{asset-version}/{path}: a short Ed25519-signed grant
//! base36         numbers in tokens
//! ```
//!
//! Who may sign, which appliances a playback gets and in which order is decided elsewhere.

pub mod base36;
pub mod token;

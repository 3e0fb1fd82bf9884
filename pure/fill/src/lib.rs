//! From manifest to published objects.
//!
//! ```text
//! Manifest, what is held, what is free ──> plan ──> Plan{fetch, evict, drop_parts}
//!                                                     │
//!                          bytes of a source ──> transfer ──> verified blocks, to be written
//!                                                     │
//!                                                   rate      how fast all together may go
//! ```
//!
//! `plan` and `pack` (which small objects share a file) are functions, `transfer` a machine for one
//! object, `rate` a structure that they share.

pub mod pack;
pub mod plan;
pub mod rate;
pub mod transfer;

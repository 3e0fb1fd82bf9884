//! From manifest to published objects.
//!
//! ```text
//! Manifest, what is held ──> gap ── what is free ──> plan ──> Plan{fetch, evict, drop_parts}
//!                                                     │
//!                          bytes of a source ──> transfer ──> verified blocks, to be written
//!                                                     │
//!                                                   rate      how fast all together may go
//! ```
//!
//! `pack` (which small objects share a file) and `tier` (which objects change drives, by their
//! `heat` and what is `expected`, within a day's `budget`) are functions, `gap` and `rate`
//! structures, `plan` is made of `gap` in slices, `transfer` is a machine for one object.

pub mod budget;
pub mod expected;
pub mod gap;
pub mod heat;
pub mod pack;
pub mod plan;
pub mod rate;
pub mod tier;
pub mod transfer;

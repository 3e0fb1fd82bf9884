//! The control-plane process: HTTP API, persistence, status page. Decisions are the director's.
//!
//! ```text
//! api ──> Writer ── SQLite (desired state) ──> Director ──> Snapshot ──> api (fronts: play, steer)
//!            ^                                    ^
//!          tick: clock, probes, what is to be stored
//! ```
//!
//! Two roles in one process: the *writer* changes desired state and decides; *fronts* answer
//! players from the latest snapshot and keep no state, so that running sessions survive a restart.

pub mod access;
pub mod api;
mod attempts;
mod authority;
pub mod buckets;
mod certificate;
mod clock;
pub mod config;
mod convert;
mod identities;
pub mod keys;
mod listener;
mod metrics;
pub mod secret_file;
pub mod serve;
pub mod store;
mod tick;
pub mod writer;

//! The control-plane process: HTTP API, persistence, status page. Decisions are the director's.
//!
//! ```text
//! api ──> Writer ── SQLite (desired state) ──> Director ──> Snapshot ──> api (fronts: play, steer)
//!            ^                                    ^
//!          tick: clock, probes, what is to be stored
//! ```
//!
//! A process has one of two roles. The *writer* changes desired state, decides, and answers players
//! too. A *front* follows the writer (`front`), observes for itself and answers players, also while
//! the writer is away: it has the same keys, so that a session survives a change of front.

pub mod access;
pub mod api;
mod attempts;
mod authority;
pub mod buckets;
mod certificate;
mod clock;
pub mod config;
mod convert;
mod front;
mod identities;
pub mod issue;
pub mod keys;
mod listener;
mod metrics;
mod own;
mod probe;
mod replica;
pub mod secret_file;
pub mod serve;
pub mod store;
mod tick;
mod tickets;
pub mod writer;

pub use front::{EnrolFrontError, enrol_front};

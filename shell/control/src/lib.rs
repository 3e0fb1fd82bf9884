//! The control-plane process: HTTP API, persistence, status page. Decisions are the director's.
//!
//! ```text
//! api ──> Writer ── SQLite (desired state) ──┐
//!            ^  reports, checked ──> queue ──> Director ──> Snapshot ──> api (fronts: play, steer)
//!            └───── what is to be stored ────────┘  on a thread of its own
//! ```
//!
//! A process has one of two roles. The *writer* changes desired state, decides, and answers players
//! too. A *front* follows the writer (`front`), observes for itself and answers players, also while
//! the writer is away: it has the same keys, so that a session survives a change of front.

pub mod api;
pub mod buckets;
mod clock;
pub mod config;
pub mod connections;
pub mod members;
mod metrics;
pub mod place;
pub mod serve;
pub mod state;

pub use state::front::{EnrolFrontError, enrol_front};

#[cfg(test)]
#[path = "../tests/it/database.rs"]
mod database;

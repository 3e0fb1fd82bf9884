//! One CPU core of an appliance: takes what happened, says what to do. It does nothing itself.
//!
//! ```text
//! Event ──> Worker::handle ──> [ connections | files | drives ] ──> Worker::poll ──> Action
//!
//! Accepted, Established     a connection and its deadline
//! Received                  http1::parse -> answer: token, path, condition, range
//!                             -> from memory: Send            -> from a drive: transfer
//!                             -> from a hot block: Send
//! Opened, Read              the next 256 KiB are here: Send, or a burst of them
//! Sent                      the next burst when its moment comes (wheel), the next read, the next
//!                           request, or the end
//! Tick                      the next burst; late clients are closed, late drives said to hang
//! ```
//!
//! The contract is that of [`Machine`](model::machine::Machine): each action is carried out before
//! the next `poll`, and a buffer in a `Send` is free afterwards. All memory that grows with load
//! has a bound in [`Config`].

mod action;
mod answer;
mod black_box;
mod buffers;
mod catalogue;
mod config;
mod connection;
mod counters;
mod crowd;
mod depth;
mod drive;
mod event;
mod files;
mod grants;
mod guests;
mod hang;
mod hot;
#[cfg(test)]
mod hot_tests;
mod let_go;
mod pace;
mod paced;
mod path;
mod request_log;
mod transfer;
mod viewing;
mod wheel;
mod withdrawn;
mod worker;

pub use action::{Action, Body, Ending, Then};
pub use black_box::{Happened, INCIDENT_MAGIC, Incident, IncidentBounds, Reason, Waits};
pub use config::Config;
pub use counters::{Counters, LATE_MICROS, Lateness};
pub use depth::unsent_max;
pub use event::{Event, Fault, Now};
pub use pace::{PaceConfig, PaceMode};
pub use request_log::LINES_LEN_MAX;
pub use viewing::View;
pub use worker::Worker;

//! What must hold for any input: one function per door through which bytes of others come in.
//!
//! ```text
//! fuzz/fuzz_targets/NAME.rs   libFuzzer ──> NAME(bytes)      ./x fuzz NAME: as many as one likes
//! tests/replay.rs             fuzz/corpus/NAME/* ──> NAME    each of them, in ./x check
//! ```
//!
//! A function panics if something does not hold, and returns whatever the input was. Each holds a
//! parser against something that it did not write itself: a second, simpler reading, a model, or
//! the same bytes written again.

mod http;
mod ledger;
mod log;
mod manifest;
mod playlist;
mod report;
mod routes;
mod token;
mod unit;

pub use http::http1;
pub use ledger::ledger;
pub use log::index_log;
pub use manifest::{manifest, signed};
pub use playlist::{dash, hls};
pub use report::report;
pub use routes::routes;
pub use token::token;
pub use unit::unit;

/// A target: its name, which is also its corpus's, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 11] = [
    ("http1", http1),
    ("token", token),
    ("index_log", index_log),
    ("unit", unit),
    ("manifest", manifest),
    ("signed", signed),
    ("hls", hls),
    ("dash", dash),
    ("report", report),
    ("routes", routes),
    ("ledger", ledger),
];

//! What viewers feel, by what their players say and servers see. Sums leave; of no viewer anything.
//!
//! ```text
//! appliance: each Response        ──> Viewers ─┐ a playback by its requests: told, or guessed
//! control:   Report of each event     ──> Events  ─┴─> Rows: sums by asset, network, player
//! control:   Rows of all ──> Totals ──> sums since the start, the last minutes, warnings of sites
//! ```
//!
//! A playback has a key, which the shell makes from names that it forgets, and lives in a table of
//! bounded size while it is heard of. What it adds goes into rows at once, and is no more than it
//! can have felt since it was first heard of: a player may lie about itself, and counts as one.
//!
//! Three sources are never mixed: *requests* (CMCD with requests), *events* (CMCD version 2, sent
//! by themselves, exact) and *estimates* (the server's own, where a player says nothing).

mod budget;
mod events;
mod followed;
mod playback;
mod silent;
mod spent;
mod sums;
#[cfg(test)]
mod tests;
mod totals;
mod viewers;
mod watch;

pub use budget::{Told, cut};
pub use events::{EventConfig, Events, Taken};
pub use sums::{Dimension, Key, OTHERS, Rows, Source, Sums};
pub use totals::{MINUTES, Row, Totals, TotalsConfig};
pub use viewers::{Config, Viewer, Viewers};
pub use watch::{Warning, Watch};

use model::units::Nanos;

/// A start-up that is counted as slow.
const SLOW_START: Nanos = Nanos::seconds(2);
/// A buffer that is counted as low.
const LOW_BUFFER: Nanos = Nanos::seconds(2);

/// A difference of two times, which may be negative.
fn signed(span: Nanos) -> i64 {
    i64::try_from(span.0).unwrap_or(i64::MAX)
}

/// A time that is not negative.
fn unsigned(span: i64) -> Nanos {
    Nanos(u64::try_from(span).unwrap_or(0))
}

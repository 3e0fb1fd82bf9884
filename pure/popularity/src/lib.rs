//! What viewers of a region will watch on a day, by what they watched before. It does no I/O.
//!
//! ```text
//! note(hour, item, bytes) ──> Demand: hours of late, days of some weeks, sparse and bounded
//!                               │
//!             shape of the week │ shape of the day      both of the region, from its sums
//!                               v
//!   per item: bytes by day / week ──> several smoothings ──> each weighs as well as it did last
//!             week for items with about as many bytes ──> x week ──> x day ──> Expected
//!                               ^                                       ^
//!                     launches ─┘                         dates ────────┘
//! ```
//!
//! Placement has pins and bans, and this room knows of neither. Viewers of what a site must not
//! hold are expected all the same, at others.
//!
//! Cost of a region: a note is O(log items); [`Sums`] take 6 to 7 bytes for each item and hour, and
//! so for each item and day. A forecast is O(items x (days x smoothings + hours)), where items are
//! those that anybody watched in the days that are kept, whatever the catalogue has. It holds 8
//! bytes for each day and hour of one item at a time, and 24 for each item of its answer. Regions
//! have nothing in common: a caller forecasts them on as many threads as it likes. 400,000 items of
//! a region, watched in 35 days, took 1.2 to 1.7 s and 51 MB on one core of an AMD EPYC (family 25,
//! model 17) that others used too; 200 such regions would take 10 GB at once, and so are forecast
//! one after the other from what is kept of them.
//!
//! Only `+ - * /` and comparisons of `f64`, in a fixed order: IEEE 754 says their every bit, so all
//! machines forecast the same.

mod backtest;
mod demand;
mod divide;
mod forecast;
mod launch;
mod past;
mod rows;
mod shape;
mod smoothing;
mod sums;
mod tally;

pub use backtest::{Backtest, Score, Tested, backtest};
pub use demand::{Bounds, Demand, Noted, Span};
pub use divide::{Rendition, Said, Watched, divide};
pub use forecast::{Expected, Outlook, Shown, forecast};
pub use launch::{Launch, Like, Part};
pub use smoothing::Smoothing;
pub use sums::{Damaged, Entries, HEAD_LEN, Sums};
pub use tally::{Sealed, Tally, TallyConfig};

#[cfg(test)]
mod tests;

use model::units::Bytes;

/// The settings of forecasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// The ways to smooth. The first counts alone until [`Config::samples_min`] days were judged.
    pub smoothings: &'static [Smoothing],
    /// Each is judged by how it would have forecast each of so many days.
    pub judged_days: usize,
    /// Days of items of about the same demand by which smoothings are told apart at least.
    pub samples_min: u32,
    /// So many days after it begins a launch is forecast from a similar title's, at most.
    pub launch_days: u32,
    /// How much the region's shape of the day counts in an item's own, beside each byte of the
    /// item: 1 is half.
    pub region_shape: f64,
}

impl Config {
    /// What was best or made no difference on series with weeks, trends and launches.
    pub const USUAL: Self = Self {
        smoothings: &smoothing::USUAL,
        // A week, so that each weekday counts once.
        judged_days: 7,
        // Arbitrary.
        samples_min: 50,
        // Arbitrary: two weeks, then a title has a history of its own.
        launch_days: 14,
        // Arbitrary: an item's few sessions tell little of its hours.
        region_shape: 1.0,
    };
}

#[expect(clippy::as_conversions, reason = "rounded where it has over 53 bits: 8 PiB")]
fn float(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

/// To the nearest; nothing for what is negative or no number, the most for what is too large.
#[expect(clippy::as_conversions, reason = "it saturates, which is meant")]
fn bytes(of: f64) -> Bytes {
    Bytes((of + 0.5) as u64)
}

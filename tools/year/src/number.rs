//! Where exact numbers become real ones, and back.

/// To reckon with: rounded beyond 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "there is no other way from u64 to f64, and what is reckoned is a model"
)]
pub(crate) fn real(n: u64) -> f64 {
    n as f64
}

/// Rounded down; 0 for what is below.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "there is no other way from f64 to u64; it saturates"
)]
pub(crate) fn whole(x: f64) -> u64 {
    x as u64
}

/// A part of a whole; 0 of nothing.
pub(crate) fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { real(of) / real(all) }
}

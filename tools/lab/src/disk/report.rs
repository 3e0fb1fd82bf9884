//! What was seen, and what it comes to.

use anyhow::Result;
use model::units::Bytes;
use rig::statistics::{Spread, median_of};
use serde::Serialize;

/// A stretch of time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Window {
    pub(super) seconds: f64,
    /// Megabytes of body per second.
    pub(super) read_mbps: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
}

/// One side's turn.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Turn {
    pub(super) alone: Window,
    pub(super) beside: Window,
}

/// One side: medians over its turns.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Figures {
    p99_alone_ms: f64,
    p99_ms: f64,
    p99_ms_iqr: f64,
    p999_ms: f64,
    /// Of the bytes per second without a fill, what is missing beside one.
    throughput_lost: f64,
    /// All turns together.
    fill_s: f64,
    fill_mbps: f64,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) pairs: u32,
    pub(super) fill_gb: f64,
    pub(super) viewers: u32,
    /// Asked for, in MB/s.
    pub(super) read_mbps: f64,
    pub(super) peer: String,
    pub(super) peer_config: String,
    /// Response times beside the fill, p99: ours over the peer's, pair by pair.
    pub(super) ratio_p99: Spread,
    /// The same, p99.9.
    pub(super) ratio_p999: Spread,
    pub(super) ours: Figures,
    #[serde(rename = "theirs")]
    pub(super) peer_figures: Figures,
    pub(super) our_turns: Vec<Turn>,
    pub(super) peer_turns: Vec<Turn>,
}

impl Figures {
    /// `chunk` was filled in each turn.
    pub(super) fn of(turns: &[Turn], chunk: Bytes) -> Result<Self> {
        let middle = |of: fn(&Turn) -> f64| median_of(turns, of);
        let p99_ms: Vec<f64> = turns.iter().map(|turn| turn.beside.p99_ms).collect();
        let Spread { median: p99_ms, iqr: p99_ms_iqr } = Spread::of(&p99_ms)?;
        let fill_s: f64 = turns.iter().map(|turn| turn.beside.seconds).sum();
        let gb = rig::window::gigabytes(chunk.0 * Bytes::of(turns.len()).0);
        Ok(Self {
            p99_alone_ms: middle(|turn| turn.alone.p99_ms)?,
            p99_ms,
            p99_ms_iqr,
            p999_ms: middle(|turn| turn.beside.p999_ms)?,
            throughput_lost: middle(|turn| 1.0 - turn.beside.read_mbps / turn.alone.read_mbps)?,
            fill_s,
            fill_mbps: gb * 1e3 / fill_s,
        })
    }
}

/// Beside the fill, pair by pair.
pub(super) fn ratio(ours: &[Turn], peers: &[Turn], of: fn(&Window) -> f64) -> Result<Spread> {
    let ratio = |(ours, peers): (&Turn, &Turn)| of(&ours.beside) / of(&peers.beside);
    let ratios: Vec<f64> = ours.iter().zip(peers).map(ratio).collect();
    Spread::of(&ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_fill_costs_is_told_from_what_was_before_it() {
        let window = |seconds, read_mbps, p99_ms| Window {
            seconds,
            read_mbps,
            p50_ms: 1.0,
            p99_ms,
            p999_ms: 9.0,
        };
        let turn = |p99| Turn { alone: window(5.0, 100.0, 2.0), beside: window(10.0, 90.0, p99) };
        let (ours, peers) = ([turn(3.0), turn(4.0)], [turn(30.0), turn(80.0)]);
        let figures = Figures::of(&ours, Bytes(1_000_000_000)).unwrap();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(figures.throughput_lost, 0.1) && near(figures.fill_mbps, 100.0));
        assert!(near(figures.p99_ms, 3.5) && near(figures.fill_s, 20.0));
        assert!(near(ratio(&ours, &peers, |window| window.p99_ms).unwrap().median, 0.075));
    }
}

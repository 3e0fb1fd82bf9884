//! From what was seen to the figures of a contender.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::run::Seen;
use super::scenario::{Fill, Scenario};
use super::seconds;

/// The figures of one contender, over all seeds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    /// Of the seconds of the fill, those in which 99 of 100 reads met the target.
    bins_ok: f64,
    p99_ms: f64,
    p99_vs_nofill: f64,
    p999_ms: f64,
    pub(super) fill_mbps: f64,
    fill_vs_oracle: f64,
    serving_lost: f64,
    converge_down_s: f64,
    converge_up_s: f64,
    write_amplification: f64,
    refused: u64,
}

impl Figures {
    pub(super) fn against(self, oracle_mbps: f64) -> Self {
        Self { fill_vs_oracle: self.fill_mbps / oracle_mbps, ..self }
    }
}

/// Sums over seeds.
#[derive(Debug)]
pub(super) struct Sum {
    latency: Histogram<u64>,
    bins: u32,
    bins_ok: u32,
    runs: u32,
    megabytes: f64,
    amplification: f64,
    alone: f64,
    served: f64,
    down: Vec<f64>,
    up: Vec<f64>,
    refused: u64,
}

impl Default for Sum {
    fn default() -> Self {
        let latency = Histogram::new_with_bounds(1_000, 100_000_000_000, 3);
        Self {
            latency: latency.expect("the bounds are in order"),
            bins: 0,
            bins_ok: 0,
            runs: 0,
            megabytes: 0.0,
            amplification: 0.0,
            alone: 0.0,
            served: 0.0,
            down: Vec::new(),
            up: Vec::new(),
            refused: 0,
        }
    }
}

const TENTHS: u64 = 100_000_000;
const SECOND: u64 = 1_000_000_000;

impl Sum {
    /// One run of the whole scenario.
    pub(super) fn add(&mut self, scenario: &Scenario, seen: &Seen) {
        let (from, to) = fill_span(scenario);
        for (second, bin) in (0_u64..).zip(&seen.bins) {
            if second * SECOND < from || to < (second + 1) * SECOND || bin.is_empty() {
                continue;
            }
            let late = bin.iter().filter(|span| scenario.target.0 < **span).count();
            self.bins += 1;
            self.bins_ok += u32::from(late * 100 <= bin.len());
            for span in bin {
                self.latency.saturating_record(*span);
            }
        }
        let bytes: u64 = seen.written.iter().sum();
        self.megabytes += megabytes(bytes);
        self.amplification += seen.amplification;
        self.refused += seen.refused;
        self.runs += 1;
        self.down.extend(settled(scenario, seen, scenario.rise, true));
        self.up.extend(settled(scenario, seen, scenario.fall, false));
    }

    /// Chunks that viewers got with nothing written, and beside the fill.
    pub(super) fn served(&mut self, alone: u64, beside: u64) {
        self.alone += megabytes(alone);
        self.served += megabytes(beside);
    }

    pub(super) fn all_ok(&self) -> bool {
        self.bins == self.bins_ok
    }

    pub(super) fn megabytes(&self) -> f64 {
        self.megabytes
    }

    pub(super) fn p99_ms(&self) -> f64 {
        self.at(0.99)
    }

    fn at(&self, quantile: f64) -> f64 {
        std::time::Duration::from_nanos(self.latency.value_at_quantile(quantile)).as_secs_f64()
            * 1e3
    }

    pub(super) fn figures(&self, fill_seconds: f64, nofill_p99_ms: f64) -> Figures {
        let runs = f64::from(self.runs.max(1));
        Figures {
            bins_ok: f64::from(self.bins_ok) / f64::from(self.bins.max(1)),
            p99_ms: self.p99_ms(),
            p99_vs_nofill: self.p99_ms() / nofill_p99_ms,
            p999_ms: self.at(0.999),
            fill_mbps: self.megabytes / runs / fill_seconds,
            fill_vs_oracle: 0.0,
            serving_lost: 1.0 - self.served / self.alone,
            converge_down_s: worst(&self.down),
            converge_up_s: worst(&self.up),
            write_amplification: self.amplification / runs,
            refused: self.refused,
        }
    }
}

fn worst(times: &[f64]) -> f64 {
    times.iter().copied().fold(0.0, f64::max)
}

fn megabytes(bytes: u64) -> f64 {
    std::time::Duration::from_micros(bytes).as_secs_f64()
}

/// From when to when something is written, in ns.
fn fill_span(scenario: &Scenario) -> (u64, u64) {
    let mut at = 0;
    let (mut from, mut to) = (u64::MAX, 0);
    for phase in &scenario.phases {
        if phase.fill != Fill::None {
            from = from.min(at);
            to = at + phase.span.0;
        }
        at += phase.span.0;
    }
    // Without a fill the same time counts, so that the two can be compared.
    if from == u64::MAX { (0, at) } else { (from, to) }
}

/// Seconds after the start of a phase until the rate of writes, over half a second, is within 15 %
/// of what it is in the phase's second half, from above or from below.
fn settled(scenario: &Scenario, seen: &Seen, phase: usize, down: bool) -> Option<f64> {
    let ns = |phases: usize| -> u64 { scenario.phases.iter().take(phases).map(|p| p.span.0).sum() };
    let tenth = |at: u64| usize::try_from(at / TENTHS).unwrap_or(usize::MAX);
    let (from, to) = (tenth(ns(phase)), tenth(ns(phase + 1)));
    let written = seen.written.get(from..to)?;
    let half = written.get(written.len() / 2..)?;
    let final_rate = mean(half);
    let fits = |rate: f64| {
        if down { rate <= 1.15 * final_rate } else { 0.85 * final_rate <= rate }
    };
    let at = written.windows(5).position(|window| fits(mean(window)))?;
    let tenths = u32::try_from(at).ok()?;
    Some(f64::from(tenths) / 10.0 * seconds(model::units::Nanos(SECOND)))
}

fn mean(tenths: &[u64]) -> f64 {
    let count = u32::try_from(tenths.len()).unwrap_or(1).max(1);
    megabytes(tenths.iter().sum()) / f64::from(count)
}

//! What is told of a run.

use std::time::Duration;

use anyhow::{Result, ensure};
use rig::client::Dice;
use rig::statistics::{median, quantile};
use serde::Serialize;

use super::client::Chain;
use super::load::Seen;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    /// 99 of 100 answers within so many milliseconds, all drives answering.
    pub(crate) calm_p99_ms: f64,
    /// The same with the drive stopped.
    pub(crate) hung_p99_ms: f64,
    calm_p50_ms: f64,
    hung_p50_ms: f64,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    capacity_per_s: f64,
    offered_per_s: f64,
    pairs: Vec<Pair>,
    /// Median over pairs of the 99th percentiles' ratio, hung to calm.
    p99_ratio: f64,
    /// 95 of 100 medians of as many pairs drawn from these lie within.
    p99_ratio_interval: [f64; 2],
    p50_ratio: f64,
    /// Answers for objects of drives that were never stopped.
    healthy_answers: usize,
    /// Of these, other than the object.
    healthy_failed: u64,
    /// Requests that were sent on more than once.
    redirect_loops: usize,
    redirects: usize,
    responses_503: usize,
    responses_404: usize,
    /// Requests for the stopped drive without a whole answer.
    broken: usize,
    wrong_bytes: u64,
    /// Bodies begun that were reset, and the longest time it took.
    resets: u32,
    resets_within_ms: f64,
    /// The longest wait for an object on another drive whose file was not open.
    fresh_open_ms: f64,
    /// How long after the drive went on control heard of its objects again.
    pub(crate) back_after_s: f64,
    /// How long a start beside a stopped drive took.
    pub(crate) start_s: f64,
}

const DRAWS: usize = 2000;

impl Pair {
    /// None if a window had no answer.
    pub(crate) fn new(calm: &Seen, hung: &Seen) -> Option<Self> {
        let of = |seen: &Seen, share| quantile(&seen.healthy_ms, share);
        Some(Self {
            calm_p99_ms: of(calm, 0.99)?,
            hung_p99_ms: of(hung, 0.99)?,
            calm_p50_ms: of(calm, 0.5)?,
            hung_p50_ms: of(hung, 0.5)?,
        })
    }

    fn ratio(&self) -> f64 {
        self.hung_p99_ms / self.calm_p99_ms
    }
}

impl Report {
    pub(crate) fn new(capacity_per_s: f64, offered_per_s: f64) -> Self {
        Self { capacity_per_s, offered_per_s, ..Self::default() }
    }

    pub(crate) fn add(&mut self, pair: Pair, calm: &Seen, hung: &Seen) {
        self.pairs.push(pair);
        let ratios: Vec<f64> = self.pairs.iter().map(Pair::ratio).collect();
        self.p99_ratio = median(&ratios).unwrap_or(0.0);
        self.p99_ratio_interval = interval(&ratios);
        let p50: Vec<f64> = self.pairs.iter().map(|p| p.hung_p50_ms / p.calm_p50_ms).collect();
        self.p50_ratio = median(&p50).unwrap_or(0.0);
        for seen in [calm, hung] {
            self.healthy_answers += seen.healthy_ms.len();
            self.healthy_failed += seen.healthy_failed;
            seen.sick.iter().for_each(|chain| self.chain(chain));
        }
    }

    pub(crate) fn chain(&mut self, chain: &Chain) {
        let of = |status: u16| chain.statuses.iter().filter(|seen| **seen == status).count();
        self.redirects += chain.redirects();
        self.redirect_loops += usize::from(1 < chain.redirects());
        self.responses_503 += of(503);
        self.responses_404 += of(404);
        self.broken += usize::from(chain.broken);
        self.wrong_bytes += chain.wrong;
    }

    pub(crate) fn reset(&mut self, after: Duration) {
        self.resets += 1;
        self.resets_within_ms = self.resets_within_ms.max(after.as_secs_f64() * 1000.0);
    }

    pub(crate) fn fresh(&mut self, after: Duration) {
        self.fresh_open_ms = self.fresh_open_ms.max(after.as_secs_f64() * 1000.0);
    }

    /// An error unless all is as it must be, whatever the machine is busy with.
    pub(crate) fn check(&self, reset_max: Duration) -> Result<()> {
        ensure!(self.healthy_failed == 0, "{} answers of other drives failed", self.healthy_failed);
        ensure!(self.redirect_loops == 0, "{} players were sent round", self.redirect_loops);
        ensure!(self.redirects != 0, "nobody was sent to the sibling");
        ensure!(self.responses_503 == 0, "{} answers were 503", self.responses_503);
        ensure!(self.wrong_bytes == 0, "{} bytes were wrong", self.wrong_bytes);
        let reset_max = reset_max.as_secs_f64() * 1000.0;
        ensure!(self.resets != 0 && self.resets_within_ms < reset_max, "resets came too late");
        ensure!(self.fresh_open_ms < FRESH_MAX_MS, "opens of other drives waited");
        Ok(())
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let [low, high] = self.p99_ratio_interval;
        format!(
            "p99 of other drives' objects, hung / calm: {:.3} ({low:.3} to {high:.3}), p50 {:.3}\n\
             {} redirects, {} of them more than once; resets within {:.0} ms; 503: {}",
            self.p99_ratio,
            self.p50_ratio,
            self.redirects,
            self.redirect_loops,
            self.resets_within_ms,
            self.responses_503,
        )
    }
}

/// An open that waited for the stopped drive to be seen to hang took longer.
const FRESH_MAX_MS: f64 = 500.0;

fn interval(ratios: &[f64]) -> [f64; 2] {
    let mut dice = Dice::new(7);
    let mut draw = || -> f64 {
        let count = u64::try_from(ratios.len()).unwrap_or(1);
        let one = |_| ratios[usize::try_from(dice.below(count)).unwrap_or(0)];
        median(&ratios.iter().map(one).collect::<Vec<f64>>()).unwrap_or(0.0)
    };
    let medians: Vec<f64> = (0..DRAWS).map(|_| draw()).collect();
    let at = |share| quantile(&medians, share).unwrap_or(0.0);
    [at(0.025), at(0.975)]
}

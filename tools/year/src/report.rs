//! What a run says.

use std::fmt;

use serde::Serialize;

use crate::figures::Figures;
use crate::parameters::{REGIONS, SITES, Size, WEEKS};

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    regions: u32,
    sites: u32,
    weeks: u32,
    seeds: usize,
    /// The worst of the seeds, of each figure that has a bound.
    upstream_peak_vs_lru: f64,
    upstream_peak_bound: f64,
    miss_by_bound: f64,
    churn_vs_minimum: f64,
    outside_windows_bytes: u64,
    rebuffers: u64,
    pub(crate) held: bool,
    seconds: f64,
    each: Vec<Figures>,
    /// Smaller than the fleet of the parameters, or for a shorter time: it has less to learn from.
    #[serde(skip)]
    is_small: bool,
}

impl Report {
    pub(crate) fn new(size: Size, each: Vec<Figures>, seconds: f64) -> Self {
        let most = |of: &dyn Fn(&Figures) -> f64| each.iter().map(of).fold(0.0, f64::max);
        let worst = each.iter().max_by(|a, b| {
            let by_bound = |of: &Figures| of.upstream_peak_vs_lru / of.upstream_peak_bound;
            by_bound(a).total_cmp(&by_bound(b))
        });
        let miss = |of: &Figures| {
            let disks = &of.sizes[..crate::parameters::ROOM_PERCENT.len()];
            disks.iter().map(|disk| disk.miss["directed"] / disk.miss_bound).fold(0.0, f64::max)
        };
        let is_small = size.regions < REGIONS || size.sites < SITES || size.weeks < WEEKS;
        Self {
            regions: size.regions,
            sites: size.regions * size.sites,
            weeks: size.weeks,
            seeds: each.len(),
            upstream_peak_vs_lru: worst.map_or(0.0, |of| of.upstream_peak_vs_lru),
            upstream_peak_bound: worst.map_or(0.0, |of| of.upstream_peak_bound),
            miss_by_bound: most(&miss),
            churn_vs_minimum: most(&|of| of.churn_vs_minimum),
            outside_windows_bytes: each
                .iter()
                .map(|of| of.outside_windows_bytes.abs_diff(of.fast_track_bytes))
                .sum(),
            rebuffers: each.iter().map(|of| of.loss.rebuffers).sum(),
            held: each.iter().all(|of| broken_of(is_small, of).is_empty()),
            seconds,
            each,
            is_small,
        }
    }
}

/// The bounds that a fleet is held to, where they do not hold.
fn broken_of(is_small: bool, figures: &Figures) -> &[String] {
    if is_small { &figures.broken_small } else { &figures.broken }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figures in &self.each {
            let (peak, churn) = (figures.upstream_peak_vs_lru, figures.churn_vs_minimum);
            writeln!(
                f,
                "seed {}: upstream peak {peak:.3} of LRU's, churn {churn:.3}",
                figures.seed
            )?;
            for disk in &figures.sizes {
                write!(f, "  {:>8}", disk.kind)?;
                for (policy, miss) in &disk.miss {
                    write!(f, "  {policy} {:.2} %", miss * 100.0)?;
                }
                writeln!(f)?;
            }
            for broken in &figures.broken {
                let is_promised = broken_of(self.is_small, figures).contains(broken);
                let word = if is_promised { "does not hold" } else { "not held to with so few" };
                writeln!(f, "  {word}: {broken}")?;
            }
        }
        let word = if self.held { "all bounds hold" } else { "not all bounds hold" };
        write!(f, "{} seeds of {} sites, {:.0} s: {word}", self.seeds, self.sites, self.seconds)
    }
}

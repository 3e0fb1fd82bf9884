//! The figures of one seed.

use std::collections::BTreeMap;

use model::number::index;
use serde::Serialize;

use crate::number::{part, real};
use crate::parameters::{LAUNCH_HOUR, ROOM_PERCENT, WINDOW};
use crate::sessions::SLOTS;
use crate::sites::{KINDS, kinds};
use crate::tally::{Loss, Policy, Tally};

/// By policy.
pub(crate) type ByPolicy = BTreeMap<&'static str, f64>;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) seed: u64,
    pub(crate) sessions: u64,
    /// Greatest hours of each region, added up, in Gb/s.
    pub(crate) upstream_peak_gbps: ByPolicy,
    pub(crate) upstream_peak_vs_lru: f64,
    /// What that is at most to be.
    pub(crate) upstream_peak_bound: f64,
    /// Of all bytes that viewers got, what came from upstream, fill included.
    pub(crate) upstream_part: ByPolicy,
    /// Bytes that viewers got from embedded sites, by bytes that these and fill took from upstream.
    pub(crate) saved: ByPolicy,
    pub(crate) sizes: Vec<Size>,
    pub(crate) churn_vs_minimum: f64,
    pub(crate) churn_tb: ByPolicy,
    pub(crate) churn_minimum_tb: f64,
    /// Of what moves, what does so between an ISP's appliances.
    pub(crate) churn_from_peers: f64,
    pub(crate) outside_windows_bytes: u64,
    pub(crate) fast_track_bytes: u64,
    pub(crate) launch_day: Option<LaunchDay>,
    pub(crate) loss: Loss,
    /// Bounds that do not hold.
    pub(crate) broken: Vec<String>,
    /// The same, of a fleet of any size.
    pub(crate) broken_small: Vec<String>,
}

/// Sites of one kind.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) kind: String,
    pub(crate) percent: f64,
    pub(crate) miss: ByPolicy,
    pub(crate) miss_bound: f64,
    /// What was there and came from elsewhere: those who had it were nearly in use.
    pub(crate) shed: ByPolicy,
    /// How many times the room whole versions need for the same miss; none beyond the sizes.
    pub(crate) title_room: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LaunchDay {
    pub(crate) week: u32,
    /// What the launch is of the day's bytes, as expected.
    pub(crate) part: f64,
    /// Of embedded sites.
    pub(crate) miss: ByPolicy,
    pub(crate) upstream_peak_gbps: ByPolicy,
}

/// Of the tally of each region, of which there is one at least.
pub(crate) fn of(seed: u64, regions: &[Tally]) -> Figures {
    let calendar = regions[0].calendar;
    let peaks = by_policy(|policy| peak(regions, policy, |hour| calendar.counts(hour)));
    let ratio = |policy: Policy| peaks[policy.name()] / peaks[Policy::Lru.name()];
    let flow = |of: fn(&crate::tally::Flow) -> u64, policy: Policy| {
        regions.iter().map(|region| of(&region.flows[policy.at()])).sum::<u64>()
    };
    let all = counted(regions, |region| &region.all);
    let upstream = |policy: Policy| counted(regions, |region| &region.flows[policy.at()].upstream);
    let least: u64 = regions.iter().map(|region| region.least_moved).sum();
    let directed = Policy::Directed;
    let mut figures = Figures {
        seed,
        sessions: regions.iter().map(|region| region.sessions).sum(),
        upstream_peak_vs_lru: ratio(directed),
        upstream_peak_bound: (1.2 * ratio(Policy::Clairvoyant)).max(0.1),
        upstream_part: by_policy(|policy| part(upstream(policy), all)),
        saved: by_policy(|policy| real(all) / real(upstream(policy).max(1))),
        upstream_peak_gbps: peaks,
        sizes: sizes(regions),
        churn_vs_minimum: part(flow(|flow| flow.moved, directed), least),
        churn_tb: Policy::FILLED
            .map(|policy| (policy.name(), real(flow(|flow| flow.moved, policy)) / 1e12))
            .into(),
        churn_minimum_tb: real(least) / 1e12,
        churn_from_peers: part(
            flow(|flow| flow.moved_from_peers, directed),
            flow(|flow| flow.moved, directed),
        ),
        outside_windows_bytes: flow(|flow| flow.outside, directed),
        fast_track_bytes: flow(|flow| flow.fast_track, directed),
        launch_day: launch_day(regions),
        loss: Loss::of_all(regions.iter().map(|region| region.loss)),
        broken: Vec::new(),
        broken_small: Vec::new(),
    };
    figures.broken_small = broken_small(&figures);
    figures.broken = broken(&figures);
    figures
}

fn by_policy(of: impl Fn(Policy) -> f64) -> ByPolicy {
    Policy::ALL.into_iter().map(|policy| (policy.name(), of(policy))).collect()
}

/// The sum of the hours that count.
fn counted(regions: &[Tally], of: impl Fn(&Tally) -> &Vec<u64>) -> u64 {
    let region = |region: &Tally| {
        let hours = of(region).iter().enumerate();
        hours
            .filter(|(hour, _)| region.calendar.counts(*hour))
            .map(|(_, bytes)| *bytes)
            .sum::<u64>()
    };
    regions.iter().map(region).sum()
}

/// The greatest of these hours of each region, in Gb/s.
fn peak(regions: &[Tally], policy: Policy, of: impl Fn(usize) -> bool) -> f64 {
    let most = |region: &Tally| {
        let hours = region.flows[policy.at()].upstream.iter().enumerate();
        hours.filter(|(hour, _)| of(*hour)).map(|(_, bytes)| *bytes).max().unwrap_or(0)
    };
    let bytes: u64 = regions.iter().map(most).sum();
    real(bytes) * 8.0 / 3_600.0 / 1e9
}

fn sizes(regions: &[Tally]) -> Vec<Size> {
    let sum = |of: &dyn Fn(&Tally) -> u64| regions.iter().map(of).sum::<u64>();
    let mut disks = Vec::new();
    for (at, kind) in kinds(0).into_iter().enumerate() {
        let bytes = sum(&|region| region.kind_bytes[at]);
        let missed =
            |policy: Policy| part(sum(&|region| region.flows[policy.at()].kind_miss[at]), bytes);
        let mut miss = by_policy(missed);
        let own = part(sum(&|region| region.own_miss[at]), sum(&|region| region.own_bytes[at]));
        miss.insert("own", own);
        let shed =
            by_policy(|policy| part(sum(&|region| region.flows[policy.at()].shed[at]), bytes));
        disks.push(Size {
            kind: kind.name,
            percent: kind.percent,
            miss_bound: 1.2 * miss[Policy::Clairvoyant.name()] + 0.002,
            miss,
            shed,
            title_room: None,
        });
    }
    assert_eq!(disks.len(), KINDS, "one for each");
    let titles: Vec<(f64, f64)> = disks[..ROOM_PERCENT.len()]
        .iter()
        .map(|disk| (disk.percent, disk.miss[Policy::Title.name()]))
        .collect();
    for disk in &mut disks[..ROOM_PERCENT.len()] {
        let room = room_for(&titles, disk.miss[Policy::Directed.name()]);
        disk.title_room = room.map(|percent| percent / disk.percent);
    }
    disks
}

/// The room with which so much is missed, between two sizes by their logarithms.
fn room_for(sizes: &[(f64, f64)], miss: f64) -> Option<f64> {
    let pairs = sizes.windows(2).map(|pair| (pair[0], pair[1]));
    pairs.into_iter().find_map(|((small, more), (large, less))| {
        if miss < less || more < miss || more <= less {
            return None;
        }
        let along = (more - miss) / (more - less);
        Some((small.ln() + along * (large.ln() - small.ln())).exp())
    })
}

/// The launch with most expected demand of all regions.
fn launch_day(regions: &[Tally]) -> Option<LaunchDay> {
    let mut days: BTreeMap<u32, f64> = BTreeMap::new();
    for (day, bytes) in regions.iter().flat_map(|region| &region.launches) {
        *days.entry(*day).or_default() += bytes;
    }
    let (day, expected) = days.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let begin = index(day) * SLOTS + index(LAUNCH_HOUR - WINDOW[0]);
    let hours = begin..begin + SLOTS;
    let sum = |of: &dyn Fn(&Tally) -> &Vec<u64>| {
        let region = |region| of(region).get(hours.clone()).map_or(0, |of| of.iter().sum::<u64>());
        regions.iter().map(region).sum::<u64>()
    };
    let bytes = sum(&|region| &region.bytes);
    let all = sum(&|region| &region.all);
    Some(LaunchDay {
        week: day / 7 - crate::parameters::WARM_UP_WEEKS,
        part: expected / real(all.max(1)),
        miss: by_policy(|policy| part(sum(&|region| &region.flows[policy.at()].miss), bytes)),
        upstream_peak_gbps: by_policy(|policy| peak(regions, policy, |hour| hours.contains(&hour))),
    })
}

fn broken(figures: &Figures) -> Vec<String> {
    let mut broken = Vec::new();
    let mut hold = |is: bool, what: String| {
        if !is {
            broken.push(what);
        }
    };
    let (peak, bound) = (figures.upstream_peak_vs_lru, figures.upstream_peak_bound);
    hold(peak <= bound, format!("upstream_peak_vs_lru {peak:.3}, bound {bound:.3}"));
    for disk in &figures.sizes[..ROOM_PERCENT.len()] {
        let (miss, bound) = (disk.miss[Policy::Directed.name()], disk.miss_bound);
        let percent = disk.percent;
        hold(miss <= bound, format!("miss at {percent} % {miss:.4}, bound {bound:.4}"));
    }
    let churn = figures.churn_vs_minimum;
    hold(churn <= 1.3, format!("churn_vs_minimum {churn:.3}, bound 1.3"));
    let rebuffers = figures.loss.rebuffers;
    if rebuffers != 0 {
        broken.push(format!("{rebuffers} rebuffers"));
    }
    broken.extend(figures.broken_small.iter().cloned());
    broken
}

/// What holds however few viewers there are to learn from.
fn broken_small(figures: &Figures) -> Vec<String> {
    let mut broken = Vec::new();
    let outside = figures.outside_windows_bytes.abs_diff(figures.fast_track_bytes);
    if outside != 0 {
        broken.push(format!("{outside} bytes outside windows"));
    }
    for disk in &figures.sizes[..ROOM_PERCENT.len()] {
        let (directed, percent) = (disk.miss[Policy::Directed.name()], disk.percent);
        for cache in [Policy::Lru, Policy::S3Fifo] {
            let miss = disk.miss[cache.name()];
            if miss <= directed {
                let name = cache.name();
                broken.push(format!("miss at {percent} % {directed:.4}, {name} {miss:.4}"));
            }
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_between_two_sizes() {
        let sizes = [(1.0, 0.8), (2.0, 0.7), (4.0, 0.3)];
        assert_eq!(room_for(&sizes, 0.8), Some(1.0));
        assert_eq!(room_for(&sizes, 0.5).map(|room| room.round()), Some(3.0));
        assert_eq!(room_for(&sizes, 0.9), None);
        assert_eq!(room_for(&sizes, 0.2), None);
    }
}

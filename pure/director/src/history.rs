//! The past of the fleet and of each site, for the status page: minutes fine, the day thinned.
//!
//! ```text
//! a sample a second ─┬─> the last two minutes, as they are
//!                    ├─> the last hour, means of 30 s
//!                    └─> the last day, means of 10 min        a site has this one alone
//! ```
//!
//! It takes 384 samples of the fleet and 144 of each site, whatever the fleet does: 6 KB a site.

use model::number::index;
use std::collections::VecDeque;

use model::units::{BitsPerSecond, UnixSeconds};
use model::view::Health;

use crate::observed::Rates;

use crate::observed::Observed;
use crate::{Director, is_reporting};

/// The fleet, or a site, in one second: of its appliances that report, the sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub at: UnixSeconds,
    pub egress: BitsPerSecond,
    pub fill: BitsPerSecond,
    /// Mean of their CPU shares, 0 to 100.
    pub cpu_percent: f32,
    /// Appliances that were healthy.
    pub healthy: u32,
    /// Those that were draining or drained: it is an operator's wish, and nothing is wrong.
    pub leaving: u32,
    /// All that were registered.
    pub appliances: u32,
}

/// The fleet's past.
#[derive(Clone, Debug)]
pub struct History {
    minutes: Thinned,
    hour: Thinned,
    day: Thinned,
}

/// How far back to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Two minutes, once a second.
    Minutes,
    /// An hour, each sample the mean of 30 s.
    Hour,
    /// A day, each sample the mean of ten minutes.
    Day,
}

/// The newest samples, each the mean of all that came within a step.
#[derive(Clone, Debug)]
pub(crate) struct Thinned {
    step_s: u64,
    len: usize,
    /// Invariant: at most `len`, oldest first; the last is the mean of `mean_of` samples.
    samples: VecDeque<Sample>,
    mean_of: u32,
}

impl Default for History {
    fn default() -> Self {
        let of = |step_s, len| Thinned { step_s, len, samples: VecDeque::new(), mean_of: 0 };
        Self { minutes: of(1, 120), hour: of(30, 120), day: Thinned::day() }
    }
}

impl History {
    /// True if there is no sample of this second yet.
    pub(crate) fn wants(&self, at: UnixSeconds) -> bool {
        self.minutes.samples.back().is_none_or(|last| last.at != at)
    }

    /// Adds the sample unless there is one of the same second already.
    pub fn push(&mut self, sample: Sample) {
        if self.wants(sample.at) {
            self.minutes.push(sample);
            self.hour.push(sample);
            self.day.push(sample);
        }
    }

    /// The samples of a span, oldest first.
    pub fn samples(&self, span: Span) -> impl Iterator<Item = &Sample> {
        let of = match span {
            Span::Minutes => &self.minutes,
            Span::Hour => &self.hour,
            Span::Day => &self.day,
        };
        of.samples.iter()
    }
}

impl Thinned {
    /// A day in steps of ten minutes.
    pub(crate) fn day() -> Self {
        Self { step_s: 600, len: 144, samples: VecDeque::new(), mean_of: 0 }
    }

    pub(crate) fn samples(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter()
    }

    /// Of a step that has begun, what came is in the mean; a clock that is set begins a step.
    pub(crate) fn push(&mut self, sample: Sample) {
        let at = UnixSeconds(sample.at.0 - sample.at.0 % self.step_s);
        match self.samples.back_mut().filter(|last| last.at == at) {
            Some(last) => {
                self.mean_of += 1;
                last.take_in(&sample, self.mean_of);
            }
            None => {
                if self.samples.len() == self.len {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample { at, ..sample });
                self.mean_of = 1;
            }
        }
        assert!(self.samples.len() <= self.len, "the oldest made room");
    }
}

impl Sample {
    /// Appliances that could not serve, then those that were not to.
    fn worst(&self) -> (u32, u32) {
        let Self { healthy, leaving, appliances, .. } = *self;
        (appliances.saturating_sub(healthy + leaving), leaving)
    }

    /// A mean of `count - 1` samples becomes one of `count`. Of appliances the worst counts: that
    /// one was away for a minute is what an operator looks for in a day.
    fn take_in(&mut self, other: &Self, count: u32) {
        let mean = |mean: u64, next: u64| match mean <= next {
            true => mean + (next - mean) / u64::from(count),
            false => mean - (mean - next) / u64::from(count),
        };
        self.egress = BitsPerSecond(mean(self.egress.0, other.egress.0));
        self.fill = BitsPerSecond(mean(self.fill.0, other.fill.0));
        // No more than 600: exact.
        let share = f32::from(u16::try_from(count).unwrap_or(u16::MAX));
        self.cpu_percent += (other.cpu_percent - self.cpu_percent) / share;
        if self.worst() <= other.worst() {
            let Self { healthy, leaving, appliances, .. } = *other;
            *self = Self { healthy, leaving, appliances, ..*self };
        }
    }
}

/// What is added up of one second.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    sums: Sample,
    reporting: u16,
}

impl Sums {
    /// One appliance more, and its figures if it reports.
    pub(crate) fn add(&mut self, health: Health, rates: Option<Rates>) {
        let Self { sums, reporting } = self;
        sums.appliances += 1;
        sums.healthy += u32::from(health == Health::Healthy);
        sums.leaving += u32::from(matches!(health, Health::Draining | Health::Drained));
        if let Some(rates) = rates {
            sums.egress = BitsPerSecond(sums.egress.0.saturating_add(rates.egress));
            sums.fill = BitsPerSecond(sums.fill.0.saturating_add(rates.fill));
            sums.cpu_percent += rates.cpu_percent;
            *reporting = reporting.saturating_add(1);
        }
    }

    pub(crate) fn sample(self, at: UnixSeconds) -> Sample {
        let cpu_percent = self.sums.cpu_percent / f32::from(self.reporting.max(1));
        Sample { at, cpu_percent, ..self.sums }
    }
}

impl Director {
    /// A second of the fleet and of each site. O(appliances + sites).
    pub(crate) fn sample(&mut self) {
        let mut fleet = Sums::default();
        let mut sites: Vec<Sums> = Vec::new();
        sites.resize_with(self.map.site_count(), Sums::default);
        for member in self.members.values_mut() {
            let health = member.health;
            let observed = member.observed.as_mut().filter(|_| is_reporting(health));
            let rates = observed.map(Observed::take_rates);
            for sums in [&mut fleet, &mut sites[index(member.site)]] {
                sums.add(health, rates);
            }
        }
        self.history.push(fleet.sample(self.now_unix));
        for (number, sums) in (0..).zip(sites) {
            self.map.remember(number, sums.sample(self.now_unix));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, egress: u64) -> Sample {
        let egress = BitsPerSecond(egress);
        Sample { at: UnixSeconds(at), egress, healthy: 2, appliances: 2, ..Sample::default() }
    }

    #[test]
    fn the_minutes_have_one_sample_a_second_and_forget_the_oldest() {
        let mut history = History::default();
        for at in [1, 1, 2, 2] {
            history.push(sample(at, 0));
        }
        let seconds = |history: &History| -> Vec<u64> {
            history.samples(Span::Minutes).map(|sample| sample.at.0).collect()
        };
        assert_eq!(seconds(&history), [1, 2]);
        (3..400).for_each(|at| history.push(sample(at, 0)));
        assert_eq!(seconds(&history), (280..400).collect::<Vec<_>>());
    }

    #[test]
    fn a_day_is_kept_in_means_and_no_more_than_a_day() {
        let mut history = History::default();
        // The bits per second are the hour's number, and twice it in every other second.
        (0..30 * 3600).for_each(|at| history.push(sample(at, at / 3600 * 1000 * (1 + at % 2))));
        let day: Vec<&Sample> = history.samples(Span::Day).collect();
        assert_eq!((day.len(), day[0].at.0, day[143].at.0), (144, 6 * 3600, 30 * 3600 - 600));
        for of in day {
            let expected = of.at.0 / 3600 * 1500;
            assert!(of.egress.0.abs_diff(expected) <= expected / 20, "{of:?}");
        }
        let hour: Vec<&Sample> = history.samples(Span::Hour).collect();
        assert_eq!((hour.len(), hour[0].at.0), (120, 29 * 3600));
    }

    #[test]
    fn that_an_appliance_was_away_for_a_second_is_seen_in_the_day() {
        let mut day = Thinned::day();
        for at in 600..1200 {
            let healthy = if at == 700 { 1 } else { 2 };
            day.push(Sample { healthy, cpu_percent: 40.0, ..sample(at, 7) });
        }
        day.push(sample(1200, 7));
        let seen: Vec<u32> = day.samples().map(|of| of.healthy).collect();
        assert_eq!(seen, [1, 2]);
        let first = day.samples().next().unwrap();
        assert_eq!((first.egress.0, first.cpu_percent), (7, 40.0));
    }

    #[test]
    fn a_drain_hides_no_loss_of_the_same_ten_minutes() {
        let mut day = Thinned::day();
        let of = |at, healthy, leaving| Sample { healthy, leaving, appliances: 4, ..sample(at, 7) };
        let lost = [of(600, 4, 0), of(601, 1, 3), of(602, 3, 0), of(603, 2, 2)];
        let drained = [of(1200, 4, 0), of(1201, 2, 2), of(1202, 3, 1)];
        lost.into_iter().chain(drained).for_each(|one| day.push(one));
        let seen: Vec<_> = day.samples().map(|of| (of.healthy, of.leaving)).collect();
        assert_eq!(seen, [(3, 0), (2, 2)]);
    }

    #[test]
    fn a_clock_that_is_set_back_loses_nothing() {
        let mut history = History::default();
        for at in [5000, 5001, 3000, 3001] {
            history.push(sample(at, 9));
        }
        let minutes: Vec<u64> = history.samples(Span::Minutes).map(|of| of.at.0).collect();
        assert_eq!(minutes, [5000, 5001, 3000, 3001]);
        assert_eq!(history.samples(Span::Day).map(|of| of.at.0).collect::<Vec<_>>(), [4800, 3000]);
    }
}

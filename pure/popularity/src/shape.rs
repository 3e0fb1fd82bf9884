//! How a region's bytes lie in the week and in the day.

use model::units::Hour;

use crate::demand::{DAY, Demand};
use crate::float;

const HOURS: usize = 24;
const WEEKDAYS: usize = 7;

/// Bytes of the hours of a day from midnight on, of 1,000, until a whole day was seen. Arbitrary:
/// evenings have about twice the mean, nights a quarter.
const UNKNOWN: [f64; HOURS] = [
    30., 20., 14., 10., 10., 10., 14., 20., 26., 32., 36., 40., 44., 44., 44., 46., 50., 56., 64.,
    74., 84., 90., 84., 58.,
];

/// The share that each hour has of a day, from the day's first hour on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DayShape(pub(crate) [f64; HOURS]);

impl DayShape {
    /// By the hours that are kept and before `known`. O(hours).
    pub(crate) fn of(demand: &Demand, known: Hour) -> Self {
        let mut sums = [(0.0, 0.0); HOURS];
        for (hour, total, _) in hours(demand, known) {
            let (bytes, count) = &mut sums[hour];
            *bytes += total;
            *count += 1.0;
        }
        let means = sums.map(|(bytes, count)| bytes / f64::max(count, 1.0));
        let is_seen = sums.iter().all(|(_, count)| 0.0 < *count);
        // Days are kept longer than their hours: of a day with bytes they may have none.
        let has_shape = is_seen && 0.0 < means.iter().sum::<f64>();
        Self::of_weights(if has_shape { means } else { UNKNOWN })
    }

    /// In proportion to these, of which one at least is above 0.
    pub(crate) fn of_weights(weights: [f64; HOURS]) -> Self {
        let total: f64 = weights.iter().sum();
        assert!(0.0 < total, "a day without bytes has no shape");
        Self(weights.map(|weight| weight / total))
    }

    /// The share of the day that begins with `day` which is from `from` on and before `until`, and
    /// the share of its busiest hour there.
    pub(crate) fn within(&self, day: Hour, from: Hour, until: Hour) -> (f64, f64) {
        let is_within = |hour: &Hour| from <= *hour && *hour < until;
        let hours = (0..DAY).map(|of| day.after(of)).zip(self.0);
        let shares = hours.filter(|(hour, _)| is_within(hour)).map(|(_, share)| share);
        shares.fold((0.0, 0.0), |(all, most), share| (all + share, share.max(most)))
    }
}

/// Hours of days that anybody watched, kept and before `known`: which of their days they are, their
/// bytes, and the hour. One without sums is known to have had nothing where the others are all that
/// the day had; else it is left out.
pub(crate) fn hours(demand: &Demand, known: Hour) -> impl Iterator<Item = (usize, f64, Hour)> {
    let first = demand.first_hour().max(demand.oldest_day().unwrap_or(known));
    (first.0..known.0).map(Hour).filter_map(move |hour| {
        let day = demand.day_of(hour);
        let sums = demand.hour(hour).filter(|sums| !sums.is_empty());
        let is_known = sums.is_some() || demand.is_by_hour(day);
        let is_seen = is_known && demand.day_before(day, known).is_some();
        let total = sums.map_or(0.0, |hour| float(hour.total()));
        let of_day = model::number::index(hour.since(day));
        is_seen.then_some((of_day, total, hour))
    })
}

/// What each weekday has of the mean of its week.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WeekShape([f64; WEEKDAYS]);

impl WeekShape {
    /// By the bytes of days that follow one another, where they are known. Each day is compared
    /// with the seven around it, so that growth is no shape, and of the ratios of a weekday the
    /// middle one counts, so that one launch is none. Flat until each weekday has two: 20 days.
    /// O(days).
    pub(crate) fn of(days: &[(Hour, Option<f64>)]) -> Self {
        let mut ratios: [Vec<f64>; WEEKDAYS] = Default::default();
        for seven in days.windows(WEEKDAYS) {
            let total: Option<f64> = seven.iter().map(|(_, bytes)| *bytes).sum();
            let (day, bytes) = seven[WEEKDAYS / 2];
            if let (Some(total), Some(bytes)) = (total, bytes) {
                ratios[weekday(day)].push(bytes * 7.0 / total);
            }
        }
        if ratios.iter().any(|of| of.len() < 2) {
            return Self([1.0; WEEKDAYS]);
        }
        let middles = ratios.map(|of| middle(of).max(LEAST));
        let total: f64 = middles.iter().sum();
        Self(middles.map(|ratio| ratio * 7.0 / total))
    }

    /// Of a day by its first hour.
    pub(crate) fn at(&self, day: Hour) -> f64 {
        self.0[weekday(day)]
    }
}

/// No weekday has less of the mean: what is divided by it stays a number. Arbitrary.
const LEAST: f64 = 0.01;

/// Of seven, whichever.
pub(crate) fn weekday(day: Hour) -> usize {
    model::number::index(day.0 / DAY) % WEEKDAYS
}

fn middle(mut of: Vec<f64>) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    let half = of.len() / 2;
    if of.len().is_multiple_of(2) { (of[half - 1] + of[half]) / 2.0 } else { of[half] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(bytes: impl Fn(u32) -> f64, count: u32) -> Vec<(Hour, Option<f64>)> {
        (0..count).map(|day| (Hour(day * DAY + 23), Some(bytes(day)))).collect()
    }

    #[test]
    fn growth_and_one_launch_are_no_shape_of_the_week() {
        let week = [1.0, 0.8, 0.8, 0.9, 1.0, 1.2, 1.3];
        let bytes = |day: u32| {
            let growth = 1000.0 + f64::from(day) * 20.0;
            let launch = if day == 17 { 3.0 } else { 1.0 };
            growth * launch * week[weekday(Hour(day * DAY))]
        };
        let shape = WeekShape::of(&days(bytes, 35));
        for (of, is) in week.iter().zip(shape.0) {
            assert!((of - is).abs() < 0.05, "{shape:?}");
        }
    }

    #[test]
    fn a_week_is_flat_until_each_weekday_was_seen_twice() {
        let weekend = |day: u32| if day % 7 < 5 { 1.0 } else { 2.0 };
        assert_eq!(WeekShape::of(&days(weekend, 19)), WeekShape([1.0; 7]));
        let shape = WeekShape::of(&days(weekend, 20));
        assert!(1.5 < shape.0[5] && shape.0[0] < 0.8, "{shape:?}");
        let mut unknown = days(weekend, 20);
        unknown[10].1 = None;
        assert_eq!(WeekShape::of(&unknown), WeekShape([1.0; 7]), "a day that nobody saw");
    }

    #[test]
    fn a_part_of_a_day_has_its_hours_shares() {
        let shape = DayShape::of_weights(UNKNOWN);
        let day = Hour(24_000);
        let (all, most) = shape.within(day, Hour(0), Hour(u32::MAX));
        assert!((all - 1.0).abs() < 1e-9 && most == 0.09, "{all} {most}");
        let (night, busiest) = shape.within(day, day.before(5), day.after(3));
        assert!((night - 0.064).abs() < 1e-9 && busiest == 0.03, "{night} {busiest}");
        assert_eq!(shape.within(day, day.after(24), Hour(u32::MAX)), (0.0, 0.0));
    }
}

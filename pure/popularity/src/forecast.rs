//! What is expected of each item on a day.

use std::collections::BTreeMap;

use model::id::Item;
use model::units::{BitsPerSecond, Bytes, Hour};

use crate::demand::Demand;
use crate::launch::{Launch, Launches};
use crate::past::{Past, past};
use crate::rows::Rows;
use crate::shape::{self, DayShape, WeekShape};
use crate::smoothing::{Judged, Smoothings, together};
use crate::{Config, bytes, float};

/// What is expected of one item in one region on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What viewers will be sent of it.
    pub day: Bytes,
    /// The mean bit rate of its busiest hour.
    pub peak: BitsPerSecond,
}

/// What people know of the days to come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook<'a> {
    pub launches: &'a [Launch],
    /// Ascending, no two with an item in common. Items that are in none may always be shown.
    pub shown: &'a [Shown],
}

/// When a range of items, such as a version's, may be shown: nothing is expected at other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub first: Item,
    pub last: Item,
    pub from: Option<Hour>,
    /// The hour after the last.
    pub until: Option<Hour>,
}

/// What is expected of each item on the day that `day` is in, ascending, without those of which
/// nothing is. Only hours before [`Demand::end`] count, and of them those before the day. Cost: see
/// the room.
pub fn forecast(
    demand: &Demand,
    day: Hour,
    outlook: &Outlook<'_>,
    config: &Config,
) -> Vec<(Item, Expected)> {
    forecast_before(demand, day, demand.end(), outlook, config)
}

/// The same by hours before `end` alone.
pub(crate) fn forecast_before(
    demand: &Demand,
    day: Hour,
    end: Hour,
    outlook: &Outlook<'_>,
    config: &Config,
) -> Vec<(Item, Expected)> {
    let day = demand.day_of(day);
    let known = end.min(day);
    let shape = DayShape::of(demand, known);
    let past = past(demand, day, known, &shape);
    let (week, mut items) = by_days(&past, day, config, outlook.launches);
    let mut expected = Vec::with_capacity(items.len());
    let hours: Vec<_> = shape::hours(demand, known).collect();
    let mut counts = [0.0; 24];
    hours.iter().for_each(|(hour, ..)| counts[*hour] += 1.0);
    // Of each, the hour of the day, and what it counts: some hours are known of more days.
    let parts: Vec<_> = hours.iter().map(|(hour, ..)| (*hour, 1.0 / counts[*hour])).collect();
    let mut rows = Rows::new(hours.iter().map(|(_, _, hour)| demand.hour(*hour)));
    items.retain(|(_, next)| 0.0 < *next);
    let begins: BTreeMap<_, _> = outlook.launches.iter().map(|of| (of.item, of.begin)).collect();
    for (item, next) in items {
        let own = own_shape(&shape, &parts, rows.row_of(item), config);
        let (from, until) = times(item, outlook.shown, begins.get(&item).copied());
        let (share, busiest) = own.within(day, from, until);
        let all = next * week.at(day);
        let peak = bytes(all * busiest).per(Hour::LEN);
        let expects = Expected { day: bytes(all * share), peak };
        if Bytes::ZERO < expects.day {
            expected.push((item, expects));
        }
    }
    expected
}

/// What is expected of each item on a whole day without the shape of the week, ascending, and that
/// shape.
fn by_days(
    past: &[Past<'_>],
    day: Hour,
    config: &Config,
    launches: &[Launch],
) -> (WeekShape, Vec<(Item, f64)>) {
    let totals =
        past.iter().map(|of| (of.day, of.sums.as_ref().map(|sums| float(sums.total()) / of.whole)));
    let week = WeekShape::of(&totals.collect::<Vec<_>>());
    let columns = Columns { past, week: &week };
    let mut smoothings = Smoothings::new(config.smoothings);
    let mut judged = Judged::new(config);
    let judged_from = past.len().saturating_sub(config.judged_days).max(1);
    columns.each(|_, row| {
        smoothings.clear();
        for (at, (of, bytes)) in past.iter().zip(row).enumerate() {
            if of.sums.is_none() {
                continue;
            }
            if let Some(class) = smoothings.class().filter(|_| judged_from <= at) {
                judged.add(class, smoothings.next(of.day), *bytes);
            }
            smoothings.add(of.day, *bytes);
        }
    });
    let weights = judged.weights();
    let mut launches = Launches::new(launches, past);
    let mut items = Vec::new();
    columns.each(|item, row| {
        smoothings.clear();
        let known = past.iter().zip(row).filter(|(of, _)| of.sums.is_some());
        known.for_each(|(of, bytes)| smoothings.add(of.day, *bytes));
        let next = smoothings.class().map(|of| together(of, &weights, smoothings.next(day)));
        let next = next.unwrap_or(0.0);
        launches.hear(item, row, next);
        if launches.of(item).is_none() {
            items.push((item, next));
        }
    });
    items.extend(launches.expected(day, week.at(day), config));
    items.sort_unstable_by_key(|(item, _)| *item);
    (week, items)
}

/// Days by item, without the shape of the week, parts of days as whole ones.
struct Columns<'a> {
    past: &'a [Past<'a>],
    week: &'a WeekShape,
}

impl Columns<'_> {
    fn each(&self, mut item: impl FnMut(Item, &[f64])) {
        let mut rows = Rows::new(self.past.iter().map(|of| of.sums.as_deref()));
        let scales: Vec<_> = self.past.iter().map(|of| of.whole * self.week.at(of.day)).collect();
        let mut scaled = vec![0.0; scales.len()];
        while let Some((of, row)) = rows.next() {
            for ((scaled, bytes), scale) in scaled.iter_mut().zip(row).zip(&scales) {
                *scaled = bytes / scale;
            }
            item(of, &scaled);
        }
    }
}

/// The shape of an item's day: its own and the region's together.
fn own_shape(region: &DayShape, parts: &[(usize, f64)], row: &[f64], config: &Config) -> DayShape {
    let mut own = [0.0; 24];
    for ((hour, part), bytes) in parts.iter().zip(row) {
        own[*hour] += bytes * part;
    }
    let total: f64 = own.iter().sum();
    if total == 0.0 {
        return region.clone();
    }
    for (own, region) in own.iter_mut().zip(&region.0) {
        *own += total * config.region_shape * region;
    }
    DayShape::of_weights(own)
}

/// From when and until when an item may be watched. O(log shown).
fn times(item: Item, shown: &[Shown], begin: Option<Hour>) -> (Hour, Hour) {
    let after = shown.partition_point(|of| of.first <= item);
    let before = after.checked_sub(1).and_then(|at| shown.get(at));
    let shown = before.filter(|of| item <= of.last);
    let from = shown.and_then(|of| of.from).max(begin).unwrap_or(Hour(0));
    (from, shown.and_then(|of| of.until).unwrap_or(Hour(u32::MAX)))
}

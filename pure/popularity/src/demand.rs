//! The demand of one region: hours of late, and days of some weeks.

use std::borrow::Cow;
use std::collections::BTreeMap;

use model::id::Item;
use model::units::{Bytes, Hour};

use crate::sums::Sums;

/// Hours of a day.
pub(crate) const DAY: u32 = 24;

/// An hour may be noted before the one in which it ends is complete, and a clock may be ahead of
/// ours. Arbitrary.
const AHEAD_MAX: u32 = 24;

/// How much is kept of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Hours before the present one.
    pub hours: u32,
    /// Days before the present one.
    pub days: u32,
    /// Items of an hour at most: those with the most bytes. What is cut is counted.
    pub items_per_hour: usize,
    /// Items of a day at most, likewise.
    pub items_per_day: usize,
}

impl Default for Bounds {
    /// Three days by the hour, for the shape of a day; five weeks by the day, for four ratios of
    /// each weekday. Items: arbitrary, 72 x 50,000 and 35 x 200,000 of 6 bytes are 64 MB.
    fn default() -> Self {
        Self { hours: 72, days: 35, items_per_hour: 50_000, items_per_day: 200_000 }
    }
}

/// A part of a region's demand that is kept as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// This hour.
    Hour(Hour),
    /// The day that begins with this hour.
    Day(Hour),
}

/// Whether a note counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    Counted,
    /// Its day is not kept any more. Nothing was counted.
    TooOld,
    /// It is more than a day ahead: somebody's clock is wrong. Nothing was counted.
    TooNew,
}

/// The demand of one region: what viewers were sent of each item, by hour and by day.
#[derive(Clone, Debug)]
pub struct Demand {
    bounds: Bounds,
    /// The hour of UTC with which the region's day begins, 0 to 23.
    day_begins: u32,
    /// Hours before this one are complete.
    end: Hour,
    /// Invariant: none that `bounds` leaves out, and none more than `AHEAD_MAX` after `end`; so of
    /// `days`.
    hours: BTreeMap<Hour, Sums>,
    /// By their first hours.
    days: BTreeMap<Hour, Sums>,
}

impl Demand {
    /// Nothing yet, of a region whose day begins with this hour of UTC: 23 where clocks are an hour
    /// ahead. Hours before `end` are complete.
    pub fn new(day_begins: u32, end: Hour, bounds: Bounds) -> Self {
        let day_begins = day_begins % DAY;
        Self { bounds, day_begins, end, hours: BTreeMap::new(), days: BTreeMap::new() }
    }

    /// Viewers were sent so much of an item in an hour. Hours may come in any order, and those of
    /// days that are over too. O(log items), and the parts of [`Sums::add`].
    pub fn note(&mut self, hour: Hour, item: Item, bytes: Bytes) -> Noted {
        let day = self.day_of(hour);
        if self.end.after(AHEAD_MAX) < hour {
            return Noted::TooNew;
        }
        if day < self.first_day() {
            return Noted::TooOld;
        }
        if bytes == Bytes::ZERO {
            return Noted::Counted;
        }
        if self.first_hour() <= hour {
            self.hours.entry(hour).or_default().add(item, bytes, self.bounds.items_per_hour);
        }
        self.days.entry(day).or_default().add(item, bytes, self.bounds.items_per_day);
        Noted::Counted
    }

    /// Hours before `end` are complete: forecasts look at no others. What is too old is forgotten.
    /// O(what was noted since the last time), and an `end` that goes back changes nothing.
    pub fn close(&mut self, end: Hour) {
        self.end = self.end.max(end);
        self.hours = self.hours.split_off(&self.first_hour());
        self.days = self.days.split_off(&self.first_day());
        let Bounds { items_per_hour, items_per_day, .. } = self.bounds;
        self.hours.values_mut().for_each(|hour| hour.settle(items_per_hour));
        self.days.values_mut().for_each(|day| day.settle(items_per_day));
    }

    /// Takes what was kept of an hour or a day, in place of what there is; false if it is none that
    /// is kept: too old, too new, or a day that begins with another hour.
    pub fn restore(&mut self, span: Span, sums: Sums) -> bool {
        let (Span::Hour(of) | Span::Day(of)) = span;
        let is_kept = of <= self.end.after(AHEAD_MAX)
            && match span {
                Span::Hour(hour) => self.first_hour() <= hour,
                Span::Day(day) => self.first_day() <= day && self.day_of(day) == day,
            };
        match span {
            Span::Hour(hour) if is_kept => _ = self.hours.insert(hour, sums),
            Span::Day(day) if is_kept => _ = self.days.insert(day, sums),
            Span::Hour(_) | Span::Day(_) => {}
        }
        is_kept
    }

    /// All that there is, to be kept: hours, then days, ascending.
    pub fn spans(&self) -> impl Iterator<Item = (Span, &Sums)> {
        let hours = self.hours.iter().map(|(hour, sums)| (Span::Hour(*hour), sums));
        hours.chain(self.days.iter().map(|(day, sums)| (Span::Day(*day), sums)))
    }

    /// The first hour of the region's day that an hour is in. The first day of all is shorter.
    pub fn day_of(&self, hour: Hour) -> Hour {
        let into = (hour.0 % DAY + DAY - self.day_begins) % DAY;
        hour.before(into)
    }

    /// Hours before this one are complete.
    pub fn end(&self) -> Hour {
        self.end
    }

    /// An hour's sums, if anything was noted.
    pub fn hour(&self, hour: Hour) -> Option<&Sums> {
        self.hours.get(&hour)
    }

    /// The sums of the day that begins with this hour, if anything was noted.
    pub fn day(&self, day: Hour) -> Option<&Sums> {
        self.days.get(&day)
    }

    /// The first day of which anything is known.
    pub fn oldest_day(&self) -> Option<Hour> {
        self.days.keys().next().copied()
    }

    /// The hours of a day that are kept, of those of which anything is.
    fn hours_of(&self, day: Hour) -> impl Iterator<Item = (Hour, &Sums)> {
        self.hours.range(day..day.after(DAY)).map(|(hour, sums)| (*hour, sums))
    }

    /// True if all that a day has is in its hours too: one that is missing had nothing then.
    pub(crate) fn is_by_hour(&self, day: Hour) -> bool {
        let of_hours = self.hours_of(day).map(|(_, sums)| sums.total().0);
        let total = of_hours.fold(0, u64::saturating_add);
        self.day(day).is_some_and(|day| day.total().0 == total)
    }

    /// What a day had before an hour; none if nothing. O(1) of days that are over by then, or else
    /// the items of the day and of its hours from there on.
    pub(crate) fn day_before(&self, day: Hour, known: Hour) -> Option<Cow<'_, Sums>> {
        let all = self.day(day)?;
        let after: Vec<_> = self.hours_of(day).filter(|(hour, _)| known <= *hour).collect();
        let before = if after.is_empty() {
            Cow::Borrowed(all)
        } else {
            Cow::Owned(all.without(after.into_iter().map(|(_, sums)| sums)))
        };
        Some(before).filter(|sums| !sums.is_empty())
    }

    /// Days that are kept before the present one.
    pub(crate) fn days_kept(&self) -> u32 {
        self.bounds.days
    }

    pub(crate) fn first_hour(&self) -> Hour {
        self.end.before(self.bounds.hours)
    }

    fn first_day(&self) -> Hour {
        self.day_of(self.end).before(self.bounds.days.saturating_mul(DAY))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: Bounds =
        Bounds { hours: 48, days: 10, items_per_hour: 1_000, items_per_day: 1_000 };

    #[test]
    fn a_day_begins_where_the_region_is() {
        let berlin = Demand::new(23, Hour(0), BOUNDS);
        for (hour, day) in [(22, 0), (23, 23), (46, 23), (47, 47), (0, 0)] {
            assert_eq!(berlin.day_of(Hour(hour)), Hour(day), "{hour}");
        }
    }

    #[test]
    fn what_comes_late_is_counted_in_its_day_and_what_is_older_is_refused() {
        let end = Hour(1_000 * DAY);
        let mut demand = Demand::new(0, end, BOUNDS);
        let mut note = |hours: u32| demand.note(end.before(hours), Item(1), Bytes(1));
        assert_eq!(
            (note(1), note(47), note(200)),
            (Noted::Counted, Noted::Counted, Noted::Counted)
        );
        assert_eq!((note(240), note(241)), (Noted::Counted, Noted::TooOld));
        assert_eq!(demand.note(end.after(25), Item(1), Bytes(1)), Noted::TooNew);
        assert_eq!(demand.spans().count(), 2 + 4, "two by the hour, and four days");
        demand.close(end.after(24));
        assert!(demand.hour(end.before(47)).is_none());
        assert_eq!(demand.oldest_day(), Some(end.before(9 * DAY)));
        demand.close(end);
        assert_eq!(demand.end(), end.after(24), "time does not go back");
    }

    #[test]
    fn only_spans_that_are_kept_are_taken_back() {
        let end = Hour(1_000 * DAY);
        let mut demand = Demand::new(0, end, BOUNDS);
        assert!(demand.restore(Span::Day(end.before(DAY)), Sums::default()));
        assert!(
            !demand.restore(Span::Day(end.before(DAY + 1)), Sums::default()),
            "begins elsewhere"
        );
        assert!(!demand.restore(Span::Day(end.before(11 * DAY)), Sums::default()));
        assert!(!demand.restore(Span::Hour(end.before(49)), Sums::default()));
        assert!(!demand.restore(Span::Hour(end.after(25)), Sums::default()));
        assert!(demand.restore(Span::Hour(end.before(1)), Sums::default()));
    }

    proptest! {
        #[test]
        fn an_hour_is_in_one_place_by_the_hour_and_by_the_day(
            notes in prop::collection::vec((0_u32..300, 0_u32..9, 1_u64..99), 0..60),
            begins in 0_u32..24, closes in 0_u32..48,
        ) {
            let end = Hour(24_000);
            let mut demand = Demand::new(begins, end, BOUNDS);
            let mut counted = 0;
            for (ago, item, bytes) in &notes {
                let noted = demand.note(end.before(*ago), Item(*item), Bytes(*bytes));
                counted += if noted == Noted::Counted { *bytes } else { 0 };
            }
            let total: u64 = demand.days.values().map(|day| day.total().0).sum();
            prop_assert_eq!(total, counted);
            let mut again = Demand::new(begins, end, BOUNDS);
            for (span, sums) in demand.spans() {
                let sums = Sums::decode(&sums.encode()).unwrap();
                prop_assert!(again.restore(span, sums));
            }
            demand.close(end.after(closes));
            again.close(end.after(closes));
            let kept = |demand: &Demand| {
                demand.spans().map(|(span, sums)| (span, sums.encode())).collect::<Vec<_>>()
            };
            prop_assert_eq!(kept(&demand), kept(&again));
            for (hour, sums) in &demand.hours {
                let day = &demand.days[&demand.day_of(*hour)];
                prop_assert!(sums.iter().all(|(item, bytes)| bytes <= day.of(item)));
            }
        }
    }
}

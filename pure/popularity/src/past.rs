//! The days by which another is forecast.

use std::borrow::Cow;

use model::units::Hour;

use crate::demand::{DAY, Demand};
use crate::shape::DayShape;
use crate::sums::Sums;

/// A day that is over, or a part of one that counts.
pub(crate) struct Past<'a> {
    pub(crate) day: Hour,
    /// None where nothing is known: nobody at all was sent anything.
    pub(crate) sums: Option<Cow<'a, Sums>>,
    /// The share of its bytes that is known: 1 of a day that is over.
    pub(crate) whole: f64,
}

/// Less of a day tells nothing. Arbitrary: by then an evening has begun.
const PART_MIN: f64 = 0.5;

/// The days before `day` from the oldest on, without the last ones of which nothing is known yet.
pub(crate) fn past<'a>(
    demand: &'a Demand,
    day: Hour,
    known: Hour,
    shape: &DayShape,
) -> Vec<Past<'a>> {
    let oldest = demand.oldest_day().unwrap_or(day);
    let days = (0..day.since(oldest) / DAY).map(|of| oldest.after(of * DAY));
    let past = days.map(|of| {
        let whole = if of.after(DAY) <= known { 1.0 } else { shape.within(of, Hour(0), known).0 };
        let is_known = PART_MIN <= whole;
        let sums = is_known.then(|| demand.day_before(of, known)).flatten();
        Past { day: of, sums, whole }
    });
    past.filter(|past| PART_MIN <= past.whole).collect()
}

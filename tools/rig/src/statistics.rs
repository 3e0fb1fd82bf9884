//! Medians and quartiles of few values.

use anyhow::{Context, Result};
use serde::Serialize;

/// A median, and the distance between the quartiles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub iqr: f64,
}

impl Spread {
    /// An error if nothing was measured.
    pub fn of(values: &[f64]) -> Result<Self> {
        let both = median(values).zip(interquartile_range(values));
        let (median, iqr) = both.context("nothing was measured")?;
        Ok(Self { median, iqr })
    }
}

/// The median of one figure over all measurements; an error if there are none.
pub fn median_of<T>(measured: &[T], figure: impl Fn(&T) -> f64) -> Result<f64> {
    let values: Vec<f64> = measured.iter().map(figure).collect();
    median(&values).context("nothing was measured")
}

/// The value below which `share` (0 to 1) of the sorted `values` lie, interpolated between
/// neighbours (type 7 of Hyndman and Fan 1996, as spreadsheets do). `None` for no values.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    assert!((0.0..=1.0).contains(&share), "a share is between 0 and 1");
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = u32::try_from(sorted.len().checked_sub(1)?).ok()?;
    let (mut rest, mut at) = (share * f64::from(last), 0);
    while 1.0 <= rest {
        (rest, at) = (rest - 1.0, at + 1);
    }
    let low = *sorted.get(at)?;
    let high = *sorted.get(at + 1).unwrap_or(&low);
    Some(low + (high - low) * rest)
}

pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// The distance between the quartiles: half of all values lie within it.
pub fn interquartile_range(values: &[f64]) -> Option<f64> {
    Some(quantile(values, 0.75)? - quantile(values, 0.25)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_those_of_a_spreadsheet() {
        fn check(values: &[f64], median_is: f64, range_is: f64) {
            assert_eq!(median(values), Some(median_is));
            assert_eq!(interquartile_range(values), Some(range_is));
        }
        check(&[3.0], 3.0, 0.0);
        check(&[4.0, 1.0], 2.5, 1.5);
        check(&[5.0, 1.0, 3.0], 3.0, 2.0);
        check(&[1.0, 2.0, 3.0, 4.0], 2.5, 1.5);
        check(&[5.0, 1.0, 2.0, 4.0, 3.0], 3.0, 2.0);
        assert_eq!(median(&[]), None);
        assert_eq!(quantile(&[1.0, 2.0, 9.0], 1.0), Some(9.0));
        assert_eq!(quantile(&[1.0, 2.0, 9.0], 0.0), Some(1.0));
    }

    proptest! {
        #[test]
        fn half_of_the_values_are_on_each_side(
            values in prop::collection::vec(-1e6f64..1e6, 1..40)
        ) {
            let middle = median(&values).unwrap();
            let below = values.iter().filter(|value| **value < middle).count();
            let above = values.iter().filter(|value| middle < **value).count();
            prop_assert!(below * 2 <= values.len() && above * 2 <= values.len());
            prop_assert!(0.0 <= interquartile_range(&values).unwrap());
        }
    }
}

//! How much one appliance can tell of: no more than its viewers can have felt in the time that
//! passed. What is beyond is cut off, of each figure by itself: who makes one of them too large, by
//! whatever words, makes no other one smaller.

use std::cell::Cell;

use model::metric::{Metric, Unit};
use model::units::Nanos;

use crate::sums::Sums;

/// Of a second of a viewer's time at most so many things, seconds that are not felt one after
/// another, and bytes for a nanosecond. Players ask a few times a second, and have minutes in
/// store.
const TIMES_MAX: u128 = 100;
const SECOND: u128 = 1_000_000_000;
/// A longer time counts as this.
const PASSED_MAX: Nanos = Nanos::seconds(3600);

/// What a batch tells, once it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// So much time at least had to pass for what is left to be felt.
    pub time: Nanos,
    pub is_cut: bool,
}

/// Cuts rows, which tell of the same viewers by one dimension, to what so many of them can have
/// felt in `passed`, an hour at most. Of a figure that is too large each row keeps the same part.
/// O(rows).
pub fn cut(rows: &mut [&mut Sums], viewers: u32, passed: Nanos) -> Told {
    let passed = passed.min(PASSED_MAX);
    let time = u128::from(passed.0) * u128::from(viewers);
    let all = Sums::default().map(|_: &u64| Cell::new(0_u128));
    for row in &*rows {
        all.zip(row, |all, one| all.set(all.get() + u128::from(*one)));
    }
    // Nobody watches and stalls at once.
    let felt = all.stall_time.get() + all.watched.get();
    [&all.stall_time, &all.watched].into_iter().for_each(|all| all.set(felt));
    let most = Sums::default().map(|_: &u64| Cell::new(time * TIMES_MAX));
    let things = most.each().zip(Sums::METRICS).filter(|(_, metric)| is_of_things(metric));
    things.for_each(|(most, _)| most.set(time * TIMES_MAX / SECOND));
    [&most.stall_time, &most.watched, &most.start_time].into_iter().for_each(|of| of.set(time));
    // A sum is no larger than this, and what is multiplied below is no larger than two of them.
    let limit = u128::from(u64::MAX);
    let parts: Vec<(u128, u128)> =
        all.each().zip(most.each()).map(|(all, most)| (all.get(), most.get().min(limit))).collect();
    let is_cut = parts.iter().any(|(all, most)| most < all);
    if is_cut {
        for row in rows {
            let left = row.map(|of| Cell::new(*of));
            let too_large = left.each().zip(&parts).filter(|(_, (all, most))| most < all);
            for (of, (all, most)) in too_large {
                let part = u128::from(of.get()) * most / all;
                of.set(u64::try_from(part).expect("no more than it was"));
            }
            **row = left.map(Cell::get);
        }
    }
    let needs = |(all, most): &(u128, u128)| {
        (all.min(most) * u128::from(passed.0)).checked_div(*most).unwrap_or(0)
    };
    let time = parts.iter().map(needs).max().unwrap_or(0);
    let time = Nanos(u64::try_from(time).expect("no more than passed"));
    assert!(time <= passed, "what is left can be felt");
    Told { time, is_cut }
}

fn is_of_things(metric: &Metric) -> bool {
    match metric.unit {
        Unit::Whole => !metric.name.ends_with("_bytes_total"),
        Unit::Nanos => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSED: Nanos = Nanos::seconds(10);

    fn usual() -> Sums {
        let second = 1_000_000_000;
        Sums {
            playbacks: 2,
            stalls: 3,
            stall_time: 4 * second,
            watched: 36 * second,
            buffers: 10,
            buffer_time: 300 * second,
            sent_bytes: 50_000_000,
            ..Sums::default()
        }
    }

    fn check(rows: &mut [Sums], viewers: u32) -> Told {
        cut(&mut rows.iter_mut().collect::<Vec<_>>(), viewers, PASSED)
    }

    #[test]
    fn what_can_be_felt_is_left_as_it_is() {
        let mut rows = [usual(), usual()];
        // Two rows of 40 s each, of eight in 10 s.
        let told = check(&mut rows, 8);
        assert_eq!((told, rows), (Told { time: PASSED, is_cut: false }, [usual(), usual()]));
        assert_eq!(check(&mut rows, 80), Told { time: Nanos::seconds(1), is_cut: false });
        assert_eq!(check(&mut [], 1), Told { time: Nanos(0), is_cut: false });
    }

    #[test]
    fn one_figure_that_is_too_large_is_cut_and_no_other_one() {
        let lie = Sums { buffer_time: u64::MAX, ..usual() };
        let mut rows = [usual(), lie];
        assert_eq!(check(&mut rows, 50), Told { time: PASSED, is_cut: true });
        let told = rows.map(|row| Sums { buffer_time: 0, ..row });
        assert_eq!(told, [Sums { buffer_time: 0, ..usual() }; 2], "all else");
        let buffered = rows[0].buffer_time + rows[1].buffer_time;
        let most = 50 * 100 * PASSED.0;
        assert!(buffered <= most && most - 2 < buffered, "{buffered}");
    }

    #[test]
    fn watched_and_stalled_are_cut_by_the_same_part() {
        let mut rows = [usual(), usual()];
        assert!(check(&mut rows, 4).is_cut);
        let half =
            Sums { watched: usual().watched / 2, stall_time: usual().stall_time / 2, ..usual() };
        assert_eq!(rows, [half; 2]);
        assert!(cut(&mut [&mut usual()], 4, Nanos(0)).is_cut, "no time, and all of it told");
    }

    proptest! {
        #[test]
        fn whatever_is_told_what_is_left_can_be_felt(
            told in prop::collection::vec(prop::collection::vec(any::<u64>(), 22), 0..9),
            shift in 0_u32..64, viewers in 1_u32.., passed in 0_u64..3_000_000_000_000,
        ) {
            let row = |told: &Vec<u64>| {
                let row = Sums::default().map(|_: &u64| Cell::new(0));
                row.each().zip(told).for_each(|(of, told)| of.set(told >> shift));
                row.map(Cell::get)
            };
            let before: Vec<Sums> = told.iter().map(row).collect();
            let mut after = before.clone();
            let rows = &mut after.iter_mut().collect::<Vec<_>>()[..];
            let passed = Nanos(passed);
            let first = cut(rows, viewers, passed);
            let again = cut(rows, viewers, passed);
            prop_assert!(!again.is_cut && again.time <= first.time, "{first:?} {again:?}");
            let is_less = |(before, after): (&Sums, &Sums)| {
                before.each().zip(after.each()).all(|(before, after)| after <= before)
            };
            prop_assert!(before.iter().zip(&after).all(is_less));
            prop_assert!(first.is_cut || before == after);
        }
    }
}

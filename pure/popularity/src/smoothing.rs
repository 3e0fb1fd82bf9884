//! Ways to smooth the days of one item, and which of them to believe.

use crate::Config;
use crate::shape::weekday;

use model::units::Hour;

/// A way to smooth. Weights are those of the newest day, of 1: with 1/2 a day counts half after one
/// day, with 1/4 after 2.4, with 1/8 after 5.2, with 1/16 after 10.7.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Smoothing {
    /// A mean of the days since the item was first watched.
    Mean(f64),
    /// A mean of all days that are known, also before the item was first watched: what is watched
    /// now and then did not begin when somebody watched it.
    MeanOfAll(f64),
    /// A level and its change by day (Holt, 1957), which fades (Gardner and McKenzie, 1985).
    Trend {
        level: f64,
        /// The weight of the newest change.
        change: f64,
    },
    /// A mean of the same weekdays: what has a week of its own.
    Weekday(f64),
}

/// Powers of two are enough: between two of them errors differ by a hundredth.
pub(crate) const USUAL: [Smoothing; 11] = [
    Smoothing::Mean(0.5),
    Smoothing::Mean(1.0),
    Smoothing::Mean(0.25),
    Smoothing::Mean(0.125),
    Smoothing::MeanOfAll(0.5),
    Smoothing::MeanOfAll(0.25),
    Smoothing::MeanOfAll(0.125),
    Smoothing::MeanOfAll(0.0625),
    Smoothing::Trend { level: 0.5, change: 0.25 },
    Smoothing::Trend { level: 0.25, change: 0.125 },
    Smoothing::Weekday(0.5),
];

/// What is left of a change with each day (Gardner and McKenzie: 0.8 to 0.98 as a rule).
const FADING: f64 = 0.9;

/// One smoothing of one item, on its way through the days.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The sum of days by their weights, or the level.
    sum: f64,
    /// The sum of the weights, or the change of the level.
    weight: f64,
}

impl State {
    fn add(&mut self, way: Smoothing, bytes: f64, has_begun: bool) {
        match way {
            Smoothing::Mean(newest) if has_begun => self.mean(bytes, newest),
            Smoothing::MeanOfAll(newest) | Smoothing::Weekday(newest) => self.mean(bytes, newest),
            Smoothing::Trend { .. } if self.sum == 0.0 && self.weight == 0.0 => self.sum = bytes,
            Smoothing::Trend { level, change } => {
                let faded = self.weight * FADING;
                let next = bytes * level + (self.sum + faded) * (1.0 - level);
                self.weight = (next - self.sum) * change + faded * (1.0 - change);
                self.sum = next;
            }
            Smoothing::Mean(_) => {}
        }
    }

    fn mean(&mut self, bytes: f64, newest: f64) {
        self.sum = self.sum * (1.0 - newest) + bytes * newest;
        self.weight = self.weight * (1.0 - newest) + newest;
    }

    fn next(&self, way: Smoothing) -> f64 {
        let next = match way {
            Smoothing::Trend { .. } => self.sum + self.weight * FADING,
            _ if self.weight == 0.0 => 0.0,
            Smoothing::Mean(_) | Smoothing::MeanOfAll(_) | Smoothing::Weekday(_) => {
                self.sum / self.weight
            }
        };
        next.max(0.0)
    }
}

/// All smoothings of one item at a time.
pub(crate) struct Smoothings<'a> {
    ways: &'a [Smoothing],
    /// One for each way, and seven of a way by weekdays.
    states: Vec<State>,
    /// By way, the place of its first state.
    firsts: Vec<usize>,
    /// The bytes of the last seven days, and how many were added.
    late: [f64; 7],
    days: usize,
    /// The number of the first with any bytes.
    begun: Option<usize>,
}

/// Items that should be smoothed alike: about as many bytes, and whether they are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(usize);

/// Of bytes there are 32: each has four times the one before.
const CLASSES: usize = 64;

impl<'a> Smoothings<'a> {
    pub(crate) fn new(ways: &'a [Smoothing]) -> Self {
        let weekly = ways.iter().filter(|way| matches!(way, Smoothing::Weekday(_))).count();
        let firsts = ways.iter().scan(0, |next, way| {
            let first = *next;
            *next += if matches!(way, Smoothing::Weekday(_)) { 7 } else { 1 };
            Some(first)
        });
        let states = vec![State::default(); ways.len() + 6 * weekly];
        Self { ways, states, firsts: firsts.collect(), late: [0.0; 7], days: 0, begun: None }
    }

    /// Begins with another item.
    pub(crate) fn clear(&mut self) {
        self.states.fill(State::default());
        (self.late, self.days, self.begun) = ([0.0; 7], 0, None);
    }

    /// Adds the next day that is known.
    pub(crate) fn add(&mut self, day: Hour, bytes: f64) {
        if self.begun.is_none() && 0.0 < bytes {
            self.begun = Some(self.days);
        }
        self.late[self.days % 7] = bytes;
        self.days += 1;
        for (way, first) in self.ways.iter().zip(&self.firsts) {
            let state = &mut self.states[first + of_week(*way, day)];
            state.add(*way, bytes, self.begun.is_some());
        }
    }

    /// How each would have a day.
    pub(crate) fn next(&self, day: Hour) -> impl Iterator<Item = f64> {
        let states = self.ways.iter().zip(&self.firsts);
        states.map(move |(way, first)| self.states[first + of_week(*way, day)].next(*way))
    }

    /// The class by the days that were added; none before any bytes.
    pub(crate) fn class(&self) -> Option<Class> {
        let since = self.days - self.begun?;
        let late: f64 = self.late.iter().sum();
        let mean = crate::bytes(late / 7.0).0;
        let size = model::number::index(mean.checked_ilog2().map_or(0, |log| log / 2));
        let is_new = since < 7 && since < self.days;
        Some(Class(size + if is_new { CLASSES / 2 } else { 0 }))
    }
}

/// The place of a day's state among those of its way.
fn of_week(way: Smoothing, day: Hour) -> usize {
    if matches!(way, Smoothing::Weekday(_)) { weekday(day) } else { 0 }
}

/// How well each smoothing did.
pub(crate) struct Judged<'a> {
    config: &'a Config,
    /// By class: days of items, and by smoothing the sum of the squares of errors.
    classes: Vec<(u32, Vec<f64>)>,
}

impl<'a> Judged<'a> {
    pub(crate) fn new(config: &'a Config) -> Self {
        let none = (0, vec![0.0; config.smoothings.len()]);
        Self { config, classes: vec![none; CLASSES] }
    }

    /// Holds the forecasts of a day against what came.
    pub(crate) fn add(&mut self, class: Class, next: impl Iterator<Item = f64>, came: f64) {
        let (count, errors) = &mut self.classes[class.0];
        *count = count.saturating_add(1);
        for (error, next) in errors.iter_mut().zip(next) {
            let off = next - came;
            *error += off * off;
        }
    }

    /// How much each smoothing counts, by class.
    pub(crate) fn weights(&self) -> Vec<Vec<f64>> {
        let all = |classes: &[(u32, Vec<f64>)]| {
            let none = (0_u32, vec![0.0; self.config.smoothings.len()]);
            classes.iter().fold(none, |(count, mut sum), (more, errors)| {
                sum.iter_mut().zip(errors).for_each(|(sum, error)| *sum += error);
                (count.saturating_add(*more), sum)
            })
        };
        let halves = self.classes.chunks(CLASSES / 2).map(all).collect::<Vec<_>>();
        let of = |(at, class): (usize, &(u32, Vec<f64>))| {
            let sizes = &halves[at / (CLASSES / 2)];
            let enough = [class, sizes].into_iter().find(|of| self.config.samples_min <= of.0);
            enough.map_or_else(|| self.first(), |(_, errors)| weighed(errors))
        };
        self.classes.iter().enumerate().map(of).collect()
    }

    fn first(&self) -> Vec<f64> {
        let weight = |at| if at == 0 { 1.0 } else { 0.0 };
        (0..self.config.smoothings.len()).map(weight).collect()
    }
}

/// Half the error counts 16 times as much: the best ones together beat the best one, and a bad one
/// is not heard. The square of squares, so that no root is drawn.
fn weighed(errors: &[f64]) -> Vec<f64> {
    let least = errors.iter().copied().fold(f64::MAX, f64::min);
    let weight = |error: &f64| {
        let ratio = if *error == 0.0 { 1.0 } else { least / *error };
        ratio * ratio
    };
    let weights: Vec<f64> = errors.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// What is forecast when each smoothing counts so much.
pub(crate) fn together(class: Class, weights: &[Vec<f64>], next: impl Iterator<Item = f64>) -> f64 {
    weights[class.0].iter().zip(next).map(|(weight, next)| weight * next).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(way: Smoothing, days: &[f64]) -> f64 {
        let ways = [way];
        let mut all = Smoothings::new(&ways);
        for (day, bytes) in (0..).zip(days) {
            all.add(Hour(day * 24), *bytes);
        }
        let day = u32::try_from(days.len()).unwrap();
        all.next(Hour(day * 24)).next().unwrap()
    }

    #[test]
    fn what_does_not_change_is_forecast_as_it_is_by_all() {
        for way in USUAL {
            let next = next(way, &[100.0; 9]);
            assert!((next - 100.0).abs() < 1e-9, "{way:?}: {next}");
        }
    }

    #[test]
    fn each_way_does_what_it_is_for() {
        let new = [0.0, 0.0, 0.0, 80.0, 80.0];
        assert_eq!(next(Smoothing::Mean(0.5), &new), 80.0);
        assert!(next(Smoothing::MeanOfAll(0.5), &new) < 65.0);
        let growing: Vec<f64> = (1..30).map(|day| f64::from(day) * 10.0).collect();
        assert!(next(Smoothing::Mean(0.5), &growing) < 285.0);
        let trend = next(Smoothing::Trend { level: 0.5, change: 0.25 }, &growing);
        assert!((290.0..305.0).contains(&trend), "{trend}");
        let falling = [100.0, 60.0, 20.0, 0.0, 0.0, 0.0];
        assert_eq!(next(Smoothing::Trend { level: 1.0, change: 1.0 }, &falling), 0.0);
        let sundays: Vec<f64> = (0..28).map(|day| if day % 7 == 0 { 70.0 } else { 0.0 }).collect();
        assert_eq!(next(Smoothing::Weekday(0.5), &sundays), 70.0);
        assert_eq!(next(Smoothing::Weekday(0.5), &sundays[..27]), 0.0);
    }

    #[test]
    fn a_smoothing_counts_by_how_it_did_for_items_of_the_same_class() {
        let mut judged = Judged::new(&Config::USUAL);
        let count = Config::USUAL.smoothings.len();
        let (few, rare) = (Class(3), Class(4));
        for _ in 0..Config::USUAL.samples_min {
            judged.add(few, (0..count).map(|at| if at == 2 { 1.0 } else { 2.0 }), 0.0);
        }
        judged.add(rare, (0..count).map(|_| 7.0), 0.0);
        let weights = judged.weights();
        assert!((weights[3][2] / weights[3][1] - 16.0).abs() < 1e-9);
        assert!(weights[4][1] < weights[4][2], "too few of its own: as all that are not new");
        assert_eq!((weights[40][0], weights[40][1]), (1.0, 0.0), "nothing is known of new ones");
        for of in &weights {
            assert!((of.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn classes_are_of_four_times_the_bytes_and_the_first_week_is_apart() {
        let class = |days: &[f64]| {
            let mut all = Smoothings::new(&[]);
            days.iter().for_each(|bytes| all.add(Hour(0), *bytes));
            all.class()
        };
        assert_eq!(class(&[0.0; 9]), None);
        assert_eq!(class(&[1024.0; 9]), Some(Class(5)));
        assert_eq!(class(&[4096.0; 9]), Some(Class(6)));
        assert_eq!(class(&[0.0, 0.0, 7.0 * 1024.0]), Some(Class(5 + 32)));
        assert_eq!(class(&[1e300; 9]), Some(Class(31)));
    }
}

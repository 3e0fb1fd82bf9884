//! Whether forecasts are worth it: days that are over, forecast by the days before them.

use model::id::Item;
use model::units::{Bytes, Hour};

use crate::Config;
use crate::demand::{DAY, Demand};
use crate::forecast::{Expected, Outlook, forecast_before};
use crate::sums::Sums;

/// How a way to forecast did, on one day or on several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// The differences between what it said of each item and what came, together.
    pub off: Bytes,
    /// For each room, the bytes that came of the items that it would have put there.
    pub hits: Vec<Bytes>,
}

/// A day that was tested, or several together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tested {
    /// The first day's first hour.
    pub day: Hour,
    /// Bytes that viewers were sent.
    pub came: Bytes,
    pub forecast: Score,
    /// Tomorrow is like today.
    pub yesterday: Score,
    /// A day is like that of a week ago.
    pub week_ago: Score,
    /// By what came itself: more than anybody can know, and the most that a room can have.
    pub known: Score,
}

/// Days that were tested, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtest {
    pub days: Vec<Tested>,
}

impl Backtest {
    /// All days together.
    pub fn total(&self) -> Tested {
        let mut days = self.days.iter().cloned();
        let first = days.next().unwrap_or_default();
        days.fold(first, |mut sum, day| {
            sum.came = plus(sum.came, day.came);
            sum.forecast.add(&day.forecast);
            sum.yesterday.add(&day.yesterday);
            sum.week_ago.add(&day.week_ago);
            sum.known.add(&day.known);
            sum
        })
    }
}

impl Score {
    fn add(&mut self, other: &Self) {
        self.off = plus(self.off, other.off);
        self.hits.iter_mut().zip(&other.hits).for_each(|(sum, more)| *sum = plus(*sum, *more));
    }
}

/// Tests the last `days` days that are over and have one before and one a week before: what each
/// way would have expected, and what came of the items that it would have put first, by bytes per
/// byte of room, into a store of each of `rooms`. Sizes are ascending; an item without one is in no
/// store. O(days x (a forecast + items log items)).
pub fn backtest(
    demand: &Demand,
    days: u32,
    sizes: &[(Item, Bytes)],
    rooms: &[Bytes],
    config: &Config,
) -> Backtest {
    let today = demand.day_of(demand.end());
    let test = |day: Hour| {
        let sums = |ago: u32| demand.day(day.before(ago * DAY)).filter(|sums| !sums.is_empty());
        let (came, yesterday, week_ago) = (sums(0)?, sums(1)?, sums(7)?);
        let score = |said: &[(Item, Bytes)]| Score {
            off: off(said, came),
            hits: hits(said, came, sizes, rooms),
        };
        let said = forecast_before(demand, day, day, &Outlook::default(), config);
        let said: Vec<_> =
            said.into_iter().map(|(item, Expected { day, .. })| (item, day)).collect();
        Some(Tested {
            day,
            came: came.total(),
            forecast: score(&said),
            yesterday: score(&yesterday.iter().collect::<Vec<_>>()),
            week_ago: score(&week_ago.iter().collect::<Vec<_>>()),
            known: score(&came.iter().collect::<Vec<_>>()),
        })
    };
    let tested =
        (1..=days.min(demand.days_kept())).rev().map(|ago| today.before(ago.saturating_mul(DAY)));
    Backtest { days: tested.filter_map(test).collect() }
}

fn off(said: &[(Item, Bytes)], came: &Sums) -> Bytes {
    let (mut said, mut came) = (said.iter().copied().peekable(), came.iter().peekable());
    let mut sum = Bytes::ZERO;
    loop {
        let next = [said.peek(), came.peek()].into_iter().flatten().map(|(item, _)| *item).min();
        let Some(next) = next else { return sum };
        let says = said.next_if(|(item, _)| *item == next).map_or(0, |(_, bytes)| bytes.0);
        let is = came.next_if(|(item, _)| *item == next).map_or(0, |(_, bytes)| bytes.0);
        sum = plus(sum, Bytes(says.abs_diff(is)));
    }
}

/// What a store of each room has of what came, when it is filled by what was said.
fn hits(
    said: &[(Item, Bytes)],
    came: &Sums,
    sizes: &[(Item, Bytes)],
    rooms: &[Bytes],
) -> Vec<Bytes> {
    let size = |item: Item| {
        let at = sizes.binary_search_by_key(&item, |(of, _)| *of).ok()?;
        Some(sizes[at].1).filter(|size| Bytes::ZERO < *size)
    };
    let sized = said.iter().filter_map(|(item, bytes)| Some((*item, *bytes, size(*item)?)));
    let mut best: Vec<_> = sized.collect();
    best.sort_unstable_by(|(item, bytes, size), (of, than, length)| {
        let [ours, theirs] = [(bytes, length), (than, size)];
        let product = |(a, b): (&Bytes, &Bytes)| u128::from(a.0) * u128::from(b.0);
        product(theirs).cmp(&product(ours)).then(item.cmp(of))
    });
    let came: Vec<_> = came.iter().collect();
    let in_store = |room: &Bytes| {
        let mut left = *room;
        let mut sum = Bytes::ZERO;
        for (item, _, size) in best.iter().filter(|(_, bytes, _)| Bytes::ZERO < *bytes) {
            if left < *size {
                continue;
            }
            left -= *size;
            let at = came.binary_search_by_key(item, |(of, _)| *of);
            sum = plus(sum, at.map_or(Bytes::ZERO, |at| came[at].1));
        }
        sum
    };
    rooms.iter().map(in_store).collect()
}

fn plus(one: Bytes, other: Bytes) -> Bytes {
    Bytes(one.0.saturating_add(other.0))
}

//! Items that begin, and have little or no demand of their own yet.

use std::collections::BTreeMap;

use model::id::Item;
use model::units::{Bytes, Hour};

use crate::demand::DAY;
use crate::past::Past;
use crate::{Config, float};

/// An item that begins, and what it will be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    pub item: Item,
    /// Nobody watches it before this hour.
    pub begin: Hour,
    pub like: Like,
}

/// What an item will be like, until it has a demand of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Like {
    /// So many bytes on a whole day, until a whole day was seen. Where it is watched more on the
    /// day on which it began, that counts.
    Bytes(Bytes),
    /// As other items had together on their first days: day by day, as many times as it had on the
    /// whole days that were seen. Their first days have to be kept still, and a day before them.
    FirstDays(Vec<Part>),
    /// As other items would have now, until a whole day was seen: those that it takes the place of.
    Present(Vec<Part>),
}

/// A part of another item's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub item: Item,
    /// 1,000 for all of it.
    pub permille: u32,
}

impl Part {
    /// All of an item's demand.
    pub const fn all(item: Item) -> Self {
        Self { item, permille: 1000 }
    }

    fn share(self) -> f64 {
        f64::from(self.permille) / 1000.0
    }
}

/// What is known of the items that launches name.
pub(crate) struct Launches<'a> {
    by_item: BTreeMap<Item, Launch>,
    past: &'a [Past<'a>],
    /// Days of the items that launches name, by week, and what is forecast of them.
    known: BTreeMap<Item, (Vec<f64>, f64)>,
}

impl<'a> Launches<'a> {
    /// Of two for the same item the last counts.
    pub(crate) fn new(launches: &[Launch], past: &'a [Past<'a>]) -> Self {
        let by_item: BTreeMap<_, _> = launches.iter().map(|of| (of.item, of.clone())).collect();
        let none = || (vec![0.0; past.len()], 0.0);
        let others = |launch: &Launch| match &launch.like {
            Like::Bytes(_) => Vec::new(),
            Like::FirstDays(others) | Like::Present(others) => others.clone(),
        };
        let named = by_item.values().flat_map(|launch| {
            let others = others(launch).into_iter().map(|part| part.item);
            others.chain([launch.item])
        });
        let known = named.map(|item| (item, none())).collect();
        Self { by_item, past, known }
    }

    /// Hears the days of an item, and what is forecast by them.
    pub(crate) fn hear(&mut self, item: Item, days: &[f64], next: f64) {
        if let Some(known) = self.known.get_mut(&item) {
            *known = (days.to_vec(), next);
        }
    }

    /// The launch of an item.
    pub(crate) fn of(&self, item: Item) -> Option<&Launch> {
        self.by_item.get(&item)
    }

    /// What is expected on a whole day of each item that has begun by then, in the place of what is
    /// forecast by its days alone. Without the shape of the week.
    pub(crate) fn expected(&self, day: Hour, week: f64, config: &Config) -> Vec<(Item, f64)> {
        let begun = self.by_item.values().filter(|launch| launch.begin < day.after(DAY));
        begun.map(|launch| (launch.item, self.one(launch, day, week, config))).collect()
    }

    /// What other items had on each day.
    fn together(&self, others: &[Part]) -> Vec<f64> {
        let mut days = vec![0.0; self.past.len()];
        for part in others {
            for (sum, bytes) in days.iter_mut().zip(&self.known[&part.item].0) {
                *sum += bytes * part.share();
            }
        }
        days
    }

    fn one(&self, launch: &Launch, day: Hour, week: f64, config: &Config) -> f64 {
        let (days, own) = &self.known[&launch.item];
        let begin = launch.begin;
        let whole = |past: &Past<'_>| begin <= past.day && past.whole == 1.0;
        let is_seen = self.past.iter().any(whole);
        match &launch.like {
            Like::Bytes(_) | Like::Present(_) if is_seen => *own,
            Like::Bytes(bytes) => own.max(float(*bytes) / week),
            Like::Present(others) => {
                let next = others.iter().map(|part| self.known[&part.item].1 * part.share());
                own.max(next.sum())
            }
            Like::FirstDays(others) => {
                let age = model::number::index(day.after(DAY - 1).since(begin) / DAY);
                let other = self.together(others);
                let first = other.iter().position(|bytes| 0.0 < *bytes).filter(|at| 0 < *at);
                let like = first.and_then(|first| Some((first, *other.get(first + age)?)));
                let Some((first, like)) =
                    like.filter(|_| age < model::number::index(config.launch_days))
                else {
                    return *own;
                };
                let (mut had, mut other_had) = (0.0, 0.0);
                for (past, bytes) in self.past.iter().zip(days).filter(|(past, _)| whole(past)) {
                    let age = past.day.after(DAY - 1).since(begin) / DAY;
                    had += bytes;
                    other_had += other.get(first + model::number::index(age)).unwrap_or(&0.0);
                }
                if other_had == 0.0 { own.max(like) } else { like * had / other_had }
            }
        }
    }
}

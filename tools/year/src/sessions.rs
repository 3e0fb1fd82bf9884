//! The sessions of a region on a day: which item, how much of it, where and in which hour.

use std::ops::Range;

use model::number::index;

use crate::catalogue::{Catalogue, RENDITIONS};
use crate::draw::{Alias, Draw};
use crate::parameters::{
    DAYS, GROWTH, HOURS, QUARTERS, WARM_UP_WEEKS, WEEKS, WHOLE_VIEWINGS, WINDOW,
};
use crate::sites::Site;

/// Hours of a day, which begins with the window.
pub(crate) const SLOTS: usize = 24;

/// An item and the quarters of it that were watched, from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session(u32);

impl Session {
    pub(crate) fn item(self) -> u32 {
        self.0 >> 3
    }

    /// From 1 to [`QUARTERS`].
    pub(crate) fn quarters(self) -> u32 {
        self.0 & 7
    }

    /// Bytes that its viewer is sent.
    pub(crate) fn bytes(self, lens: &[u64]) -> u64 {
        (lens[index(self.item())] >> 2) * u64::from(self.quarters())
    }
}

/// How many begin in each hour of a day, as part of a mean day's.
pub(crate) fn curve(day: u32) -> [f64; SLOTS] {
    let all: f64 = HOURS.iter().sum();
    let weekday = DAYS[index(day % 7)] / 100.0;
    let counted = f64::from(day) - f64::from(WARM_UP_WEEKS * 7);
    let grown = 1.0 + GROWTH * (counted / f64::from(WEEKS * 7)).max(0.0);
    let mut curve = [0.0; SLOTS];
    for (slot, part) in curve.iter_mut().enumerate() {
        *part = HOURS[(slot + index(WINDOW[0])) % SLOTS] / all * weekday * grown;
    }
    curve
}

/// The busiest hour of a year, as part of a mean day.
pub(crate) fn busiest() -> f64 {
    let days = (0..7).map(|weekday| (WARM_UP_WEEKS + WEEKS - 1) * 7 + weekday);
    days.flat_map(curve).fold(0.0, f64::max)
}

/// What is asked for on a day, by hour: a version is not before it is shown.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Of each item, its part of the sessions from a slot on; ascending.
    pub(crate) parts: Vec<(usize, Vec<f64>)>,
}

impl Rates {
    /// Of these weights, which count all versions of the day.
    pub(crate) fn new(catalogue: &Catalogue, weights: &[f64], day: u32) -> Self {
        let versions = weights.len() / index(RENDITIONS);
        let comes = |at: usize| {
            let version = &catalogue.versions[at];
            if version.born < f64::from(day) { 0 } else { index(version.slot()) }
        };
        let mut slots: Vec<usize> = (0..versions).map(comes).chain([0]).collect();
        slots.sort_unstable();
        slots.dedup();
        let parts = |from: usize| {
            let mut parts = weights.to_vec();
            for (at, items) in parts.chunks_mut(index(RENDITIONS)).enumerate() {
                if from < comes(at) {
                    items.fill(0.0);
                }
            }
            let sum: f64 = parts.iter().sum();
            parts.iter_mut().for_each(|part| *part /= sum);
            parts
        };
        Self { parts: slots.into_iter().map(|slot| (slot, parts(slot))).collect() }
    }

    /// The parts in an hour.
    pub(crate) fn at(&self, slot: usize) -> &[f64] {
        let after = self.parts.partition_point(|(from, _)| *from <= slot);
        &self.parts[after - 1].1
    }
}

/// The sessions of all sites of a region on a day.
#[derive(Debug, Default)]
pub(crate) struct Day {
    /// By site, and there by slot.
    sites: Vec<(Vec<Session>, [usize; SLOTS + 1])>,
}

impl Day {
    pub(crate) fn new(sites: &[Site], rates: &Rates, day: u32, seed: u64, region: u32) -> Self {
        let aliases: Vec<(usize, Alias)> =
            rates.parts.iter().map(|(slot, parts)| (*slot, Alias::of(parts))).collect();
        let curve = curve(day);
        let each = |(at, site): (u64, &Site)| {
            let n = (u64::from(region) << 48) | (at << 24) | u64::from(day);
            let mut draw = Draw::of(seed, "sessions", n);
            let (mut sessions, mut ends) = (Vec::new(), [0; SLOTS + 1]);
            for (slot, part) in curve.iter().enumerate() {
                let after = aliases.partition_point(|(from, _)| *from <= slot);
                let alias = &aliases[after - 1].1;
                for _ in 0..draw.poisson(site.sessions * part) {
                    let item = alias.draw(&mut draw);
                    sessions.push(Session((item << 3) | watched(&mut draw)));
                }
                ends[slot + 1] = sessions.len();
            }
            (sessions, ends)
        };
        Self { sites: (0..).zip(sites).map(each).collect() }
    }

    /// Those of a site in an hour.
    pub(crate) fn at(&self, site: usize, slot: usize) -> &[Session] {
        let (sessions, ends) = &self.sites[site];
        &sessions[ends[slot]..ends[slot + 1]]
    }

    /// Those of a site.
    pub(crate) fn of(&self, site: usize) -> &[Session] {
        &self.sites[site].0
    }

    /// Bytes of each item in each hour, of these sites together.
    pub(crate) fn by_item(&self, sites: Range<usize>, lens: &[u64]) -> Vec<[u64; SLOTS]> {
        let mut sums = vec![[0; SLOTS]; lens.len()];
        let hours = sites.flat_map(|site| (0..SLOTS).map(move |slot| (site, slot)));
        for (site, slot) in hours {
            for session in self.at(site, slot) {
                sums[index(session.item())][slot] += session.bytes(lens);
            }
        }
        sums
    }
}

/// Quarters that one viewer watches.
fn watched(draw: &mut Draw) -> u32 {
    // One draw for both: the coin, and the quarters of who did not watch all.
    let unit = draw.unit();
    if unit < WHOLE_VIEWINGS {
        return QUARTERS;
    }
    let left = (unit - WHOLE_VIEWINGS) / (1.0 - WHOLE_VIEWINGS);
    let quarters = crate::number::whole(left * f64::from(QUARTERS)) + 1;
    u32::try_from(quarters).unwrap_or(QUARTERS).min(QUARTERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Origin, Taste, mean_session};
    use crate::number::real;
    use crate::sites::sites;

    fn day_of(seed: u64, day: u32) -> (Catalogue, Vec<Site>, Rates, Day) {
        let catalogue = Catalogue::new(seed, day + 1);
        let mut taste = Taste::new(&catalogue, seed, 0);
        let weights = (0..=day).map(|day| taste.weights(&catalogue, day)).last().unwrap();
        let rates = Rates::new(&catalogue, &weights, day);
        let sites = sites(seed, 0, 10);
        let played = Day::new(&sites, &rates, day, seed, 0);
        (catalogue, sites, rates, played)
    }

    #[test]
    fn sessions_come_as_often_and_take_as_much_as_is_expected() {
        let (catalogue, sites, rates, day) = day_of(1, 2);
        let expected: f64 =
            sites.iter().map(|site| site.sessions).sum::<f64>() * curve(2).iter().sum::<f64>();
        let all: Vec<Session> = (0..10).flat_map(|site| day.of(site).to_vec()).collect();
        assert!((real(u64::try_from(all.len()).unwrap()) / expected - 1.0).abs() < 0.02);
        let bytes: u64 = all.iter().map(|session| session.bytes(&catalogue.lens)).sum();
        let mean = mean_session(&catalogue, rates.at(23));
        assert!((real(bytes) / expected / mean - 1.0).abs() < 0.02);
        let by_item = day.by_item(0..10, &catalogue.lens);
        assert_eq!(by_item.iter().flatten().sum::<u64>(), bytes);
        assert!(all.iter().all(|session| (1..=4).contains(&session.quarters())));
    }

    #[test]
    fn nobody_watches_a_version_before_it_is_shown() {
        // The Friday of the first big launch.
        let (catalogue, _, _, day) = day_of(2, 25);
        let sums = day.by_item(0..10, &catalogue.lens);
        let launched =
            |(at, _): &(usize, &[u64; SLOTS])| catalogue.versions[at / 5].origin == Origin::Big;
        let (mut before, mut after) = (0, 0);
        for (_, slots) in sums.iter().enumerate().filter(launched) {
            before += slots[..7].iter().sum::<u64>();
            after += slots[7..].iter().sum::<u64>();
        }
        assert_eq!(before, 0);
        assert!(0 < after);
    }
}

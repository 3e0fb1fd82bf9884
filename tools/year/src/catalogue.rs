//! The versions of one seed, when they come, and what they weigh on each day.

use model::number::index;

use crate::draw::Draw;
use crate::number::{real, whole};
use crate::parameters::{
    ADDED_A_WEEK, ADDED_ERROR_SIGMA, AGE_DAYS, AGEING_DAYS, BIG_ERROR_SIGMA, BIG_RANK, BIG_TIMES,
    BIG_VERSIONS, BIG_WEEKS, BITRATES_KBPS, DRIFT_SIGMA, DRIFT_STAYS, LAUNCH_HOUR, MINUTES,
    MINUTES_SIGMA, OLD_PART, PLATEAU, REGION_DRIFT_SIGMA, REGION_STEP_SIGMA, RENDITION_PERCENT,
    RENDITION_SIGMA, SURPRISE_HALF_DAYS, SURPRISE_TIMES, SURPRISES_A_WEEK, TASTE_SIGMA,
    URGENT_HOURS, URGENT_WEEKS, VERSIONS, WINDOW, ZIPF,
};

/// Renditions of each version, which has as many items.
pub(crate) const RENDITIONS: u32 = 5;
/// A surprise of so many days ago is forgotten.
const SURPRISE_DAYS: u32 = 30;

/// What is placed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Rendition,
    /// A whole version.
    Title,
}

impl Unit {
    /// Items of a piece.
    pub(crate) fn items(self) -> u32 {
        match self {
            Self::Rendition => 1,
            Self::Title => RENDITIONS,
        }
    }
}

/// How a version came into the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Old,
    Added,
    /// Of a big launch.
    Big,
    /// Comes in the afternoon, for the evening.
    Urgent,
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) origin: Origin,
    /// The day on which it is shown first; some days before the first for old ones.
    pub(crate) born: f64,
    /// By Zipf, and the size of its launch.
    weight: f64,
    /// By how much the operator is off who says how many will watch it.
    pub(crate) told: f64,
}

impl Version {
    /// The day on which it is shown first; 0 for old ones.
    pub(crate) fn day(&self) -> u32 {
        u32::try_from(whole(self.born)).unwrap_or(u32::MAX)
    }

    /// True if it comes in the afternoon of this day.
    pub(crate) fn is_urgent_on(&self, day: u32) -> bool {
        self.origin == Origin::Urgent && self.day() == day
    }

    /// The hour of that day, counted from the window's first, in which it is shown first.
    pub(crate) fn slot(&self) -> u32 {
        match self.origin {
            Origin::Old => 0,
            Origin::Added | Origin::Big => LAUNCH_HOUR - WINDOW[0],
            Origin::Urgent => URGENT_HOURS[1] - WINDOW[0],
        }
    }
}

/// All versions of a year.
#[derive(Debug)]
pub(crate) struct Catalogue {
    /// Ascending by day: those that there are on a day are a prefix.
    pub(crate) versions: Vec<Version>,
    /// Of each item, in bytes: the renditions of a version follow each other.
    pub(crate) lens: Vec<u64>,
    /// Of whole versions, in the place of their first items; 0 elsewhere.
    title_lens: Vec<u64>,
    /// Logarithms, by version and day: drift that all regions share.
    drift: Vec<f32>,
    /// Day and version, ascending.
    surprises: Vec<(u32, u32)>,
    days: u32,
}

impl Catalogue {
    pub(crate) fn new(seed: u64, days: u32) -> Self {
        let mut draw = Draw::of(seed, "catalogue", 0);
        let mut ranks: Vec<u32> = (1..=VERSIONS).collect();
        draw.shuffle(&mut ranks);
        let mut versions = Vec::new();
        for rank in ranks {
            let born = AGE_DAYS * (1.0 - draw.unit()).ln();
            versions.push(Version { origin: Origin::Old, born, weight: zipf(rank), told: 1.0 });
        }
        for day in 0..days {
            for origin in births(&mut draw, day) {
                versions.push(born_on(&mut draw, origin, day));
            }
        }
        let mut lens = Vec::new();
        for _ in &versions {
            let seconds = 60.0 * MINUTES * draw.factor(MINUTES_SIGMA);
            // A multiple of its quarters.
            lens.extend(BITRATES_KBPS.map(|kbps| whole(kbps * 125.0 * seconds) & !3));
        }
        let mut surprises = Vec::new();
        for day in 0..days {
            let there = versions.partition_point(|version| version.born < f64::from(day));
            let there = u32::try_from(there).unwrap_or(0);
            let count = draw.poisson(f64::from(SURPRISES_A_WEEK) / 7.0);
            surprises.extend((0..count).map(|_| (day, draw.below(there))));
        }
        let drift = wander(seed, versions.len(), days);
        let mut title_lens = vec![0; lens.len()];
        for (at, lens) in lens.chunks(index(RENDITIONS)).enumerate() {
            title_lens[at * index(RENDITIONS)] = lens.iter().sum();
        }
        Self { versions, lens, title_lens, drift, surprises, days }
    }

    /// How many versions there are once those of this day are: also those not shown yet.
    pub(crate) fn count(&self, day: u32) -> usize {
        self.versions.partition_point(|version| version.born < f64::from(day) + 1.0)
    }

    /// Lengths of what is placed, by the number of its first item.
    pub(crate) fn piece_lens(&self, unit: Unit) -> &[u64] {
        match unit {
            Unit::Rendition => &self.lens,
            Unit::Title => &self.title_lens,
        }
    }

    /// Bytes of all items on a day.
    pub(crate) fn bytes(&self, day: u32) -> u64 {
        self.lens[..self.count(day) * index(RENDITIONS)].iter().sum()
    }

    /// By how much surprises raise versions on a day.
    fn surprise(&self, day: u32, weights: &mut [f64]) {
        let first = day.saturating_sub(SURPRISE_DAYS);
        let from = self.surprises.partition_point(|(of, _)| *of < first);
        let until = self.surprises.partition_point(|(of, _)| *of <= day);
        for (of, version) in &self.surprises[from..until] {
            let halves = f64::from(day - of) / SURPRISE_HALF_DAYS;
            weights[index(*version)] *= 1.0 + (SURPRISE_TIMES - 1.0) * (-halves).exp2();
        }
    }
}

/// What of whom is new on a day.
fn births(draw: &mut Draw, day: u32) -> Vec<Origin> {
    let (week, weekday) = (day / 7, day % 7);
    let mut born = Vec::new();
    // So many a week, on days that are drawn.
    let added = draw.poisson(f64::from(ADDED_A_WEEK) / 7.0);
    born.extend((0..added).map(|_| Origin::Added));
    // Fridays and Wednesdays.
    if week % BIG_WEEKS == BIG_WEEKS - 1 && weekday == 4 {
        born.extend((0..BIG_VERSIONS).map(|_| Origin::Big));
    }
    if week % URGENT_WEEKS == URGENT_WEEKS - 3 && weekday == 2 {
        born.push(Origin::Urgent);
    }
    born
}

fn born_on(draw: &mut Draw, origin: Origin, day: u32) -> Version {
    let (weight, sigma) = match origin {
        Origin::Old | Origin::Added => (zipf(1 + draw.below(VERSIONS)), ADDED_ERROR_SIGMA),
        Origin::Big => (BIG_TIMES / f64::from(BIG_VERSIONS) * zipf(BIG_RANK), BIG_ERROR_SIGMA),
        Origin::Urgent => (zipf(BIG_RANK), BIG_ERROR_SIGMA),
    };
    Version { origin, born: f64::from(day), weight, told: draw.factor(sigma) }
}

fn zipf(rank: u32) -> f64 {
    (f64::from(rank) + PLATEAU).powf(-ZIPF)
}

/// How much each drifts, from a long time ago on.
fn wander(seed: u64, versions: usize, days: u32) -> Vec<f32> {
    let mut drift = Vec::with_capacity(versions * index(days));
    let mut draw = Draw::of(seed, "drift", 0);
    for _ in 0..versions {
        let mut at = settled(&mut draw, DRIFT_SIGMA);
        for _ in 0..days {
            at = DRIFT_STAYS * at + DRIFT_SIGMA * draw.normal();
            drift.push(short(at));
        }
    }
    drift
}

/// Where drift is after a long time.
fn settled(draw: &mut Draw, sigma: f64) -> f64 {
    sigma / (1.0 - DRIFT_STAYS * DRIFT_STAYS).sqrt() * draw.normal()
}

#[expect(clippy::as_conversions, clippy::cast_possible_truncation, reason = "half the memory")]
fn short(x: f64) -> f32 {
    x as f32
}

/// What viewers of a region prefer.
#[derive(Debug)]
pub(crate) struct Taste {
    /// For each version.
    versions: Vec<f64>,
    /// Of each version's sessions, the part of each item.
    items: Vec<f64>,
    /// Logarithms: how far each has drifted here.
    drift: Vec<f64>,
    draw: Draw,
}

impl Taste {
    pub(crate) fn new(catalogue: &Catalogue, seed: u64, region: u32) -> Self {
        let mut draw = Draw::of(seed, "taste", u64::from(region));
        let step = REGION_STEP_SIGMA * draw.normal();
        let (mut versions, mut items, mut drift) = (Vec::new(), Vec::new(), Vec::new());
        // Of a version's renditions its viewers think alike in all regions.
        let mut viewers = Draw::of(seed, "viewers", 0);
        for _ in &catalogue.versions {
            versions.push(draw.factor(TASTE_SIGMA));
            drift.push(settled(&mut draw, REGION_DRIFT_SIGMA));
            let mut parts = [0.0; 5];
            for ((part, percent), n) in parts.iter_mut().zip(RENDITION_PERCENT).zip(0_u8..) {
                let tilt = (step * (f64::from(n) - 2.0)).exp();
                *part = percent * tilt * viewers.factor(RENDITION_SIGMA);
            }
            let sum: f64 = parts.iter().sum();
            items.extend(parts.map(|part| part / sum));
        }
        Self { versions, items, drift, draw }
    }

    /// What each item weighs on a day, in whatever unit, of those that there are; days in order.
    pub(crate) fn weights(&mut self, catalogue: &Catalogue, day: u32) -> Vec<f64> {
        let count = catalogue.count(day);
        let mut weights = Vec::with_capacity(count);
        let tastes = self.versions.iter().zip(&mut self.drift);
        for ((at, version), (taste, drift)) in catalogue.versions.iter().enumerate().zip(tastes) {
            *drift = DRIFT_STAYS * *drift + REGION_DRIFT_SIGMA * self.draw.normal();
            if at < count {
                let age = (f64::from(day) - version.born).max(0.0);
                let left = OLD_PART + (1.0 - OLD_PART) / (1.0 + age / AGEING_DAYS);
                let common = f64::from(catalogue.drift[at * index(catalogue.days) + index(day)]);
                weights.push(version.weight * left * taste * (*drift + common).exp());
            }
        }
        catalogue.surprise(day, &mut weights);
        let each = weights.iter().flat_map(|weight| [*weight; 5]);
        each.zip(&self.items).map(|(weight, part)| weight * part).collect()
    }
}

/// Of an item's bytes, those that a session is expected to take.
pub(crate) fn mean_watched() -> f64 {
    use crate::parameters::{QUARTERS, WHOLE_VIEWINGS};
    let parts = f64::from(QUARTERS);
    WHOLE_VIEWINGS + (1.0 - WHOLE_VIEWINGS) * (parts + 1.0) / 2.0 / parts
}

/// Bytes of the mean session.
pub(crate) fn mean_session(catalogue: &Catalogue, weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let bytes = weights.iter().zip(&catalogue.lens).map(|(weight, len)| weight * real(*len));
    bytes.sum::<f64>() / sum * mean_watched()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_catalogue_and_another_is_another() {
        let versions = |seed| {
            let catalogue = Catalogue::new(seed, 70);
            (catalogue.bytes(69), catalogue.count(0), catalogue.count(69))
        };
        assert_eq!(versions(1), versions(1));
        assert_ne!(versions(1), versions(2));
    }

    #[test]
    fn a_catalogue_grows_by_what_is_added_launched_and_urgent() {
        let catalogue = Catalogue::new(3, 364);
        let (first, last) = (catalogue.count(0), catalogue.count(363));
        assert!((2_000..2_010).contains(&first), "{first}");
        // 12 a week, 8 each 4 weeks, and one each 8.
        let expected = 2_000 + 12 * 52 + 8 * 13 + 6;
        assert!(last.abs_diff(expected) < 80, "{last} for {expected}");
        let big = catalogue.versions.iter().filter(|of| of.origin == Origin::Big);
        assert_eq!(big.count(), 8 * 13);
    }

    #[test]
    fn a_launch_is_the_head_on_its_day_and_has_aged_in_two_months() {
        let catalogue = Catalogue::new(4, 140);
        let mut taste = Taste::new(&catalogue, 4, 0);
        let launched = catalogue.versions.iter().position(|of| of.origin == Origin::Big).unwrap();
        let day = catalogue.versions[launched].day();
        let part = |weights: &[f64]| {
            let range = launched * 5..(launched + 8) * 5;
            weights[range].iter().sum::<f64>() / weights.iter().sum::<f64>()
        };
        let parts: Vec<f64> = (0..day + 61)
            .map(|day| taste.weights(&catalogue, day))
            .filter(|weights| (launched + 8) * 5 <= weights.len())
            .map(|weights| part(&weights))
            .collect();
        assert!(0.02 < parts[0], "{}", parts[0]);
        let last = parts.last().unwrap();
        assert!(*last < parts[0] * 0.8, "{last} after {}", parts[0]);
    }
}

//! What viewers will watch of each item: what is expected, and a guess of what is new.

use model::id::{ClusterId, Item};
use model::number::NumberSet;
use model::units::{BitsPerSecond, Bytes};
use placement::plan::Wanted;

use super::Ground;
use crate::shelf::{Numbered, Shelf};

impl Ground {
    /// Items of launches: what operators say of them says nothing of others. O(launches).
    fn launched(&self) -> NumberSet {
        let versions = self.wishes.launches.keys().filter_map(|id| self.catalog.version(id));
        versions
            .flat_map(|of| of.items_or_own().each().map(|(_, item)| item.0).collect::<Vec<_>>())
            .collect()
    }

    /// What is expected of each item, and a guess of new ones of which nothing is known. O(items).
    pub(super) fn wanted(&self, shelf: &Shelf, region: Option<&ClusterId>) -> Vec<Wanted> {
        let Some(expected) = &self.expected else { return Vec::new() };
        let expected = expected.regions.get(&region.cloned()).map_or(&[][..], |all| all);
        let begun = self.launched();
        let guess = Guess::of(expected, &begun);
        let mut wanted = Vec::with_capacity(expected.len());
        let mut known = expected.iter().peekable();
        for Numbered { items, version, .. } in &shelf.versions {
            let age = self.now_unix.0.saturating_sub(version.files.modified.0);
            let mut lens: Vec<(Item, Bytes)> = items.lens(version).collect();
            lens.sort_unstable();
            for (item, len) in lens {
                while known.next_if(|of| of.item < item).is_some() {}
                match known.next_if(|of| of.item == item) {
                    Some(of) => wanted.push(*of),
                    None => wanted.extend(guess.about(item, len, age)),
                }
            }
        }
        wanted
    }
}

/// What is thought of a version of which nobody knows yet how many will watch it: for its first day
/// four times the mean of all others but launches, and for the six days after that as much as they.
/// So a full site takes in what is new, and where no demand was ever told it lets the oldest go for
/// that. Arbitrary.
struct Guess {
    /// None where nothing is known of any: then each byte is as good as another.
    mean: Option<(Bytes, BitsPerSecond)>,
}

const NEW_FOR: u64 = 7 * 86_400;
const NEWEST_FOR: u64 = 86_400;
const NEWEST_TIMES: u64 = 4;

impl Guess {
    fn of(expected: &[Wanted], begun: &NumberSet) -> Self {
        let (mut count, mut day, mut peak) = (0_u128, 0_u128, 0_u128);
        for of in expected.iter().filter(|of| !begun.contains(of.item.0)) {
            count += 1;
            day += u128::from(of.day.0);
            peak += u128::from(of.peak.0);
        }
        let mean =
            |sum: u128| Some(u64::try_from(sum.checked_div(count)?).unwrap_or(u64::MAX).max(1));
        let both = mean(day).zip(mean(peak));
        Self { mean: both.map(|(day, peak)| (Bytes(day), BitsPerSecond(peak))) }
    }

    fn about(&self, item: Item, len: Bytes, age: u64) -> Option<Wanted> {
        let times = if age < NEWEST_FOR { NEWEST_TIMES } else { 1 };
        let (day, peak) = self.mean.unwrap_or((len, BitsPerSecond(1)));
        let day = Bytes(day.0.saturating_mul(times));
        let peak = BitsPerSecond(peak.0.saturating_mul(times));
        (age < NEW_FOR).then_some(Wanted { item, day, peak })
    }
}

//! Who has what, as far as appliances have reported it: for plans that must know.

use std::collections::BTreeMap;

use model::id::{ApplianceId, Item};
use model::number::NumberSet;

use crate::files::NumbersOf;
use crate::observed::Wholes;
use crate::shelf::Shelf;

/// What those hold who are well. Whoever is silent may never come back, and is not here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Having {
    numbers: NumbersOf,
    wholes: BTreeMap<ApplianceId, Wholes>,
    /// Items of versions that are banned somewhere and have no source.
    pub(crate) alone: NumberSet,
}

impl Having {
    pub(crate) fn new(
        numbers: NumbersOf,
        wholes: BTreeMap<ApplianceId, Wholes>,
        alone: NumberSet,
    ) -> Self {
        Self { numbers, wholes, alone }
    }

    /// Whether an appliance has all of an item; none if it is not well, or has not reported since
    /// this process began. O(log).
    pub(crate) fn has(&self, id: &ApplianceId, shelf: &Shelf, item: Item) -> Option<bool> {
        let wholes = self.wholes.get(id)?;
        let of = shelf.find(item)?;
        let (rendition, _) = of.items.each().find(|(_, other)| *other == item)?;
        let numbers = self.numbers.of(of.version.id(), rendition);
        Some(numbers.is_some_and(|numbers| is_whole(numbers, wholes)))
    }
}

/// True if all of a version is held, or of the rendition.
pub(crate) fn is_whole((version, rendition): (u32, Option<u32>), wholes: &Wholes) -> bool {
    let has_rendition = |rendition| wholes.renditions.contains(rendition);
    wholes.versions.contains(version) || rendition.is_some_and(has_rendition)
}

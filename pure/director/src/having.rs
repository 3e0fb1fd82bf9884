//! What appliances report that they hold whole: for plans that must know.

use std::collections::BTreeMap;

use model::id::{ApplianceId, Item};
use model::number::NumberSet;

use crate::files::NumbersOf;
use crate::observed::Wholes;
use crate::shelf::Shelf;

/// Of healthy appliances alone: a silent one may never come back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Having {
    pub(crate) numbers: NumbersOf,
    pub(crate) wholes: BTreeMap<ApplianceId, Wholes>,
    /// Items of versions that are banned somewhere and have no source.
    pub(crate) banned_without_source: NumberSet,
}

impl Having {
    /// Whether an appliance has all of an item; none if it is not well, or has not reported since
    /// this process began. O(log).
    pub(crate) fn has(&self, id: &ApplianceId, shelf: &Shelf, item: Item) -> Option<bool> {
        let wholes = self.wholes.get(id)?;
        Some(self.numbers.of_item(shelf, item).is_some_and(|numbers| is_whole(numbers, wholes)))
    }
}

/// True if all of a version is held, or of the rendition.
pub(crate) fn is_whole((version, rendition): (u32, Option<u32>), wholes: &Wholes) -> bool {
    let has_rendition = |rendition| wholes.renditions.contains(rendition);
    wholes.versions.contains(version) || rendition.is_some_and(has_rendition)
}

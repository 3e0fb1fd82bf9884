//! Versions that are kept, by the numbers of their items, and the room of each.

use std::sync::Arc;

use model::id::{ApplianceId, Item};
use model::names::Names;
use model::number::NumberSet;
use model::units::{BitsPerSecond, Bytes};
use model::view::Renditions;
use placement::plan::{MemberPlan, Order, Piece};

use crate::catalog::{Items, Version};

/// Items by appliance.
pub(crate) type Holdings = Names<ApplianceId, Arc<NumberSet>>;

/// Versions that are kept, by the numbers of their items.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shelf {
    /// Ascending by the first item.
    pub(crate) versions: Vec<Numbered>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Numbered {
    pub(crate) items: Items,
    pub(crate) version: Arc<Version>,
    /// Bits of the bytes a day that viewers are sent of the best of its items for each MiB: so the
    /// order of versions that are fetched changes with a great change alone.
    pub(crate) worth: u32,
}

impl Shelf {
    pub(crate) fn of(kept: &[(usize, &Arc<Version>)]) -> Self {
        let numbered = |(_, version): &(usize, &Arc<Version>)| {
            let version = Arc::clone(version);
            Numbered { items: version.items_or_own(), version, worth: 0 }
        };
        let mut versions: Vec<Numbered> = kept.iter().map(numbered).collect();
        versions.sort_by_key(|of| of.items.first());
        Self { versions }
    }

    /// All items with their room, ascending.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(self.versions.len());
        for Numbered { items, version, .. } in &self.versions {
            let key = placement::version_key(version.id());
            let piece = |(item, len)| Piece { item, version: key, len };
            pieces.extend(items.lens(version).map(piece));
        }
        pieces.sort_unstable_by_key(|piece| piece.item);
        pieces
    }

    /// Items of renditions that take more.
    pub(crate) fn above(&self, bitrate_max: Option<BitsPerSecond>) -> NumberSet {
        let Some(most) = bitrate_max else { return NumberSet::new() };
        let above = |Numbered { items, version, .. }: &Numbered| {
            let held = version.within(most);
            let is_above = |of: &(u8, Item)| of.0 != 0 && !held.has(u32::from(of.0) - 1);
            items.each().filter(is_above).map(|(_, item)| item.0).collect::<Vec<_>>()
        };
        self.versions.iter().flat_map(above).collect()
    }

    /// The versions that have one of these items or more, in their order here, each with the
    /// renditions that these are. O(items).
    pub(crate) fn held<'a>(
        &'a self,
        items: &'a NumberSet,
    ) -> impl Iterator<Item = (&'a Numbered, Renditions)> + 'a {
        let (mut numbers, mut at) = (items.iter().peekable(), 0);
        std::iter::from_fn(move || {
            let first = *numbers.peek()?;
            at += self.versions[at..].partition_point(|of| of.items.first() <= first);
            let numbered = self.versions[..at].last()?;
            let end = self.versions.get(at).map_or(u32::MAX, |next| next.items.first());
            let mut held = Renditions::NONE;
            while let Some(number) = numbers.next_if(|number| *number < end) {
                held = held.with(number - numbered.items.first());
            }
            let is_all = numbered.items.each().all(|(of, _)| held.has(u32::from(of.max(1)) - 1));
            Some((numbered, if is_all { Renditions::ALL } else { held }))
        })
    }

    /// The room of what goes along with renditions that are held without the lowest of their
    /// version, for which it is counted.
    pub(crate) fn common_of(&self, items: &NumberSet) -> Bytes {
        let lacks = |of: &Numbered| !items.contains(of.items.of(0).0);
        let held = self.held(items).filter(|(numbered, _)| lacks(numbered));
        held.fold(Bytes::ZERO, |sum, (of, _)| sum + of.items.common(&of.version))
    }

    /// What belongs to no rendition of a version goes along with each, and was counted for the
    /// lowest alone. Where that is not held, there must be room for it, or no rendition comes; of
    /// versions with an item among `done` there is. The items that are held now.
    pub(crate) fn bring_common(&self, member: &mut MemberPlan, done: &NumberSet) -> NumberSet {
        let mut gone = NumberSet::new();
        for (Numbered { items, version, .. }, _) in self.held(&member.items) {
            let has_room = |item: Item| done.contains(item.0);
            if member.items.contains(items.of(0).0) || items.each().any(|(_, of)| has_room(of)) {
                continue;
            }
            let common = items.common(version);
            if common <= member.room_left {
                member.room_left -= common;
            } else {
                let held = items.lens(version).filter(|(item, _)| member.items.contains(item.0));
                held.for_each(|(item, len)| {
                    gone.insert(item.0);
                    member.room_left += len;
                });
            }
        }
        member.items -= gone;
        member.items.clone()
    }

    /// Notes how much each version is worth, the best of its items.
    pub(crate) fn rank(&mut self, order: &Order<'_>) {
        for Numbered { items, worth, .. } in &mut self.versions {
            let densities = items.each().filter_map(|(_, item)| order.density(item));
            let bits = densities.max().and_then(|of| of.0.checked_ilog2());
            *worth = bits.map_or(0, |bits| bits + 1).max(*worth);
        }
    }

    /// The version that an item is of.
    pub(crate) fn find(&self, item: Item) -> Option<&Numbered> {
        let at = self.versions.partition_point(|of| of.items.first() <= item.0);
        self.versions[..at].last().filter(|of| of.items.each().any(|(_, other)| other == item))
    }
}

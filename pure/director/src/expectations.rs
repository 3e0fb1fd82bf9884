//! What viewers are expected to be sent of what an appliance should hold: told to it when it asks,
//! so that its memory and its fast drives need not learn it.
//!
//! ```text
//! forecast of its region ─┐
//! items that it holds ────┼─> head: the densest, each with the appliance's part ──> their files
//! who else holds them ────┘
//! ```
//!
//! It follows from a placement and a forecast, and is kept nowhere: no plan takes longer for it,
//! and no manifest changes.

use std::sync::Arc;

use model::expected::{ExpectedItem, FILES_MAX, ITEMS_MAX};
use model::id::{ApplianceId, ClusterId, Item};
use model::number::NumberSet;
use model::units::Bytes;
use placement::plan::{Expected, Share, Wanted, head};

use crate::desired::Registered;
use crate::places::{Ground, Question, share_of};
use crate::shelf::Numbered;

impl Question {
    /// False until a plan was made since the start: nothing can be said of what is expected.
    pub fn is_planned(&self) -> bool {
        self.ground.known.is_planned()
    }

    /// The items of which an appliance is expected to send most for each byte, best first: as many
    /// as take so much room together, or a little more. Empty if nothing is expected of it.
    /// O(appliances + its items log wanted + files of these versions).
    pub fn expected(&self, id: &ApplianceId, room: Bytes) -> Vec<ExpectedItem> {
        let places = &self.ground.known;
        let (mut items, mut room_left, mut files_left) = (Vec::new(), room, FILES_MAX);
        for Expected { item, len, density } in self.ground.head(id) {
            if room_left == Bytes::ZERO {
                break;
            }
            let Some(Numbered { version, .. }) = places.shelf.find(item) else { continue };
            let files = version.files_of(item);
            if files.is_empty() || files_left < files.len() {
                continue;
            }
            files_left -= files.len();
            room_left = room_left.saturating_sub(len);
            let (version, day_per_mib) = (version.id().clone(), Bytes(density.0));
            items.push(ExpectedItem { version, files, day_per_mib });
        }
        assert!(items.len() <= ITEMS_MAX, "no more are looked at");
        items
    }
}

/// Appliances of a region that are planned together, each with what it holds, and its weight.
pub(crate) struct Beside<'a> {
    each: Vec<(Option<&'a NumberSet>, u64)>,
    /// Appliances of the whole region.
    all: usize,
}

impl Ground {
    /// What is expected of the best of an appliance's items.
    fn head(&self, id: &ApplianceId) -> Vec<Expected> {
        let own = self.appliances.get(id).zip(self.known.holds.get(id));
        let Some((own, items)) = own else { return Vec::new() };
        let wanted = self.wanted_of(self.key_of(own).0);
        let beside = self.beside(own);
        let weight = u64::from(own.appliance.weight.value());
        let part = |item: Item| beside.part(weight, item);
        head((self.known.catalogue(), wanted), items, ITEMS_MAX, part)
    }

    /// What viewers are expected to be sent in a day of an item by an appliance that holds it.
    pub(crate) fn day(&self, own: &Registered, beside: &Beside<'_>, item: Item) -> Bytes {
        let is_held = |holds: &Arc<NumberSet>| holds.contains(item.0);
        if !self.known.holds.get(&own.appliance.id).is_some_and(is_held) {
            return Bytes::ZERO;
        }
        let wanted = self.wanted_of(self.key_of(own).0);
        let at = wanted.binary_search_by_key(&item, |of| of.item);
        let day = at.map_or(Bytes::ZERO, |at| wanted[at].day);
        let part = beside.part(u64::from(own.appliance.weight.value()), item);
        let part = u128::from(day.0) * u128::from(part.0) / u128::from(Share::ALL.0);
        Bytes(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// The forecast of a region.
    fn wanted_of(&self, region: Option<&ClusterId>) -> &[Wanted] {
        let expected = self.expected.as_ref();
        let wanted = expected.and_then(|of| of.regions.get(&region.cloned()));
        wanted.map_or(&[], |wanted| wanted)
    }

    /// O(appliances).
    pub(crate) fn beside(&self, own: &Registered) -> Beside<'_> {
        let key = self.key_of(own);
        let mut beside = Beside { each: Vec::new(), all: 0 };
        for of in self.appliances.values().filter(|of| self.key_of(of).0 == key.0) {
            beside.all += 1;
            if self.key_of(of) == key {
                let holds = self.known.holds.get(&of.appliance.id).map(|holds| &**holds);
                beside.each.push((holds, u64::from(of.appliance.weight.value())));
            }
        }
        beside
    }
}

impl Beside<'_> {
    /// The part that a holder of this weight has of what the region wants of an item: of the part
    /// of those that are planned together, as placement takes it, its own by weight.
    fn part(&self, weight: u64, item: Item) -> Share {
        let holds = |of: &&(Option<&NumberSet>, u64)| of.0.is_some_and(|of| of.contains(item.0));
        let weights: u64 = self.each.iter().filter(holds).map(|(_, weight)| weight).sum();
        let together = u64::from(share_of(self.each.len(), self.all).0);
        let part = together * weight / weights.max(1);
        Share(u32::try_from(part).unwrap_or(u32::MAX).min(Share::ALL.0))
    }
}

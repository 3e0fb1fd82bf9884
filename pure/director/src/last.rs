//! Last copies of what has no source: a ban evicts none of them.
//!
//! ```text
//! banned there, without a source, held until now
//!   ├─ somebody who may hold it has it ──> it goes
//!   └─ nobody says so ──> it stays, and that is told
//! ```
//!
//! What stays lies apart from all else that its appliance holds: placement knows nothing of it but
//! that its room is taken. So the version comes to others as if it were gone, and once one of them
//! reports it, the next plan keeps the ban. A forced plan keeps each ban at once.
//!
//! That somebody has a copy is observed: one that is silent counts for nothing, and nothing goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, Item, SiteId};
use model::names::Names;
use model::number::NumberSet;
use model::topology::Site;
use model::units::Bytes;
use placement::plan::Catalogue;

use crate::desired::Registered;
use crate::having::Having;
use crate::shelf::{Holdings, Shelf};
use crate::wishes::Ruled;

/// What stays at each appliance whose site must not hold it.
pub(crate) type LastCopies = BTreeMap<ApplianceId, NumberSet>;

/// What was placed until now, without what stays whatever is planned.
pub(crate) struct Past<'a> {
    pub(crate) before: &'a Holdings,
    /// What each appliance should hold by the manifests in force.
    pub(crate) now: &'a Holdings,
    pub(crate) last: &'a LastCopies,
}

/// The room that items take. O(items).
pub(crate) fn room_of(shelf: &Shelf, items: &NumberSet) -> Bytes {
    let lens = shelf.held(items).flat_map(|(of, _)| of.items.lens(&of.version));
    let lens = lens.filter(|(item, _)| items.contains(item.0)).map(|(_, len)| len);
    lens.fold(shelf.common_of(items), |sum, len| sum + len)
}

/// Who should hold what stays at another, and should not before: it may have it all the same.
/// O(appliances), if anything stays.
pub(crate) fn brought(
    last: &LastCopies,
    before: &Holdings,
    after: &Holdings,
) -> BTreeSet<ApplianceId> {
    let items = last.values().fold(NumberSet::new(), |all, items| all | items);
    if items.is_empty() {
        return BTreeSet::new();
    }
    let is_new = |id: &ApplianceId, holds: &NumberSet| {
        let had = before.get(id).map_or_else(NumberSet::new, |was| &**was & &items);
        !(&(holds & &items) - &had).is_empty()
    };
    let brought = after.iter().filter(|(id, holds)| is_new(id, holds));
    brought.map(|(id, _)| id.clone()).collect()
}

/// The same as before, without these. O(those), if there are any.
pub(crate) fn without(before: &Holdings, last: &LastCopies) -> Holdings {
    let mut without = before.clone();
    for (id, items) in last {
        if let Some(held) = without.get_mut(id) {
            *held = Arc::new(&**held - items);
        }
    }
    without
}

/// What is known of a fleet that is planned.
pub(crate) struct Known<'a> {
    pub(crate) shelf: &'a Shelf,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) sites: &'a Names<SiteId, Site>,
    pub(crate) appliances: &'a Names<ApplianceId, Registered>,
}

/// What stays where it is banned: at the first that has it, by name, or else with all that should
/// hold it. `is_at` is false of one that stood elsewhere by the last plan. O(items held by those
/// that should hold one of them), if there are any.
pub(crate) fn last_copies(
    having: &Having,
    Known { shelf, catalogue, sites, appliances }: &Known<'_>,
    before: &Holdings,
    ruled: &Ruled,
    is_at: impl Fn(&ApplianceId, &SiteId) -> bool,
) -> LastCopies {
    let items = &having.banned_without_source & catalogue.items();
    if items.is_empty() {
        return LastCopies::new();
    }
    let has = |id: &ApplianceId, item: &u32| having.has(id, shelf, Item(*item)) == Some(true);
    let bans = ruled.bans_of(sites);
    let (mut safe, mut banned) = (NumberSet::new(), Vec::new());
    for (id, of) in appliances.iter() {
        let Some(was) = before.get(id).filter(|was| !was.is_disjoint(&items)) else { continue };
        let Some(site) = sites.get(&of.appliance.site) else { continue };
        let here = &(&**was & &items) - &shelf.above(site.bitrate_max);
        let goes = bans.get(&site.id).map_or_else(NumberSet::new, |bans| &here & bans);
        let placed = &**was & catalogue.items();
        let has_room = room_of(shelf, &placed) <= of.room().unwrap_or_default();
        if has_room && is_at(id, &site.id) {
            safe.extend((&here - &goes).iter().filter(|item| has(id, item)));
        }
        if !goes.is_empty() {
            banned.push((id, goes));
        }
    }
    let mut last = LastCopies::new();
    for (id, goes) in &banned {
        let stays = (goes - &safe).iter().filter(|item| has(id, item)).collect();
        safe |= &stays;
        last.insert((*id).clone(), stays);
    }
    for (id, goes) in &banned {
        last.entry((*id).clone()).and_modify(|stays| *stays |= goes - &safe);
    }
    last.retain(|_, stays| !stays.is_empty());
    last
}

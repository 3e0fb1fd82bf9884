//! Plans that are not carried out unless an operator forces them.
//!
//! ```text
//! places by the new plan ──> difference from those before ──> within limits? carried out
//!                                                                │ no
//!                                                                v
//!                 what was placed stays, but for what has left the catalogue or is banned
//! ```
//!
//! An operator's own acts are no mistake: a version that was withdrawn goes, and so does what an
//! appliance held that moved elsewhere or has drives with less room, renditions above its site's
//! limit, and what is banned there. The last copy of what no origin has goes by no ban, and stays
//! (`last`): a ban ends, and then it would be wanted again. Whoever wants it gone for good
//! withdraws it, or forces the plan.
//! Right after a start there is no such act: items that nobody knows then have left the catalogue
//! by mistake, and nothing at all moves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::id::{ApplianceId, Item};
use model::number::{NumberSet, OWN_FILES};
use model::units::{BitsPerSecond, Bytes};
use placement::plan::{
    Catalogue, Change, Difference, Limits, Piece, Refusal, difference, refusals, rounded,
};

use crate::catalog::{Catalog, Version};
use crate::places::Places;
use crate::shelf::Holdings;

/// A plan that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedPlan {
    pub reasons: Vec<Refusal>,
    /// The appliance that would lose most, where that is a reason.
    pub emptied: Option<ApplianceId>,
    pub change: Change,
    /// What each appliance would hold.
    pub places: Arc<Places>,
}

/// One appliance is emptied by a plan that takes nothing from any other: it is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Emptied {
    pub(crate) appliance: ApplianceId,
    pub(crate) goes: Bytes,
    pub(crate) held: Bytes,
}

impl fmt::Display for Emptied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { appliance, goes, held } = self;
        let (goes, held) = (rounded(*goes), rounded(*held));
        write!(
            f,
            "the plan evicts {goes} of the {held} that {appliance} held, and nothing elsewhere"
        )
    }
}

/// Arbitrary, as all of these: half of all bytes, and most of an appliance's, go by a plan only if
/// that is meant. No item goes that no appliance and no origin would have any more.
const LIMITS: Limits = Limits {
    evicted_permille: 500,
    evicted_of_one_permille: 900,
    last_copies: 0,
    vanished_permille: 100,
};

/// Of fewer items that vanished nothing is said: so many may have been withdrawn just before a
/// start.
const VANISHED_MIN: u64 = 20;

/// A version that was withdrawn so many seconds before a start may be one that vanished.
pub(crate) const WITHDRAWN_OF_LATE: u64 = 86_400;

/// What a plan is compared with.
pub(crate) struct Asked<'a> {
    pub(crate) before: &'a Holdings,
    pub(crate) known: &'a Places,
    pub(crate) catalog: &'a Catalog,
}

/// What operators want of an appliance.
pub(crate) struct Wish<'a> {
    /// Of its drives: what they cannot hold goes, and nobody can refuse it. An operator's word that
    /// it is to hold less may be a mistake.
    pub(crate) room: Bytes,
    /// The most that a rendition there may take.
    pub(crate) bitrate_max: Option<BitsPerSecond>,
    /// What its site must not hold; none if nothing is banned anywhere.
    pub(crate) bans: Option<&'a NumberSet>,
}

/// What an appliance held, and should hold.
type Pair<'a> = (&'a ApplianceId, NumberSet, &'a NumberSet);

/// Why a plan is refused that leads from what each appliance should hold to other places; none if
/// it may be carried out. And whom it empties, if that alone is to be told. O(items held).
pub(crate) fn look<'a>(
    Asked { before: held, known, catalog }: &Asked<'_>,
    places: &Arc<Places>,
    withdrawn_of_late: bool,
    wish: impl Fn(&ApplianceId) -> Wish<'a>,
) -> (Option<RefusedPlan>, Option<Emptied>) {
    let after = places.catalogue();
    let len = |item: u32| after.get(Item(item)).map_or(0, |piece| piece.len.0);
    let (mut vanished, mut above) = (NumberSet::new(), BTreeMap::new());
    let (mut pairs, mut all): (Vec<Pair<'_>>, _) = (Vec::new(), NumberSet::new());
    let mut banned = NumberSet::new();
    for (id, was) in held.iter() {
        all |= &**was;
        let Some(is) = places.planned.get(id) else { continue };
        let mut there = &**was & after.items();
        if there.len() < was.len() {
            vanished |= &**was - &there;
        }
        let Wish { room, bitrate_max, bans } = wish(id);
        if bitrate_max.is_some() {
            there -= &*above.entry(bitrate_max).or_insert_with(|| places.above(bitrate_max));
        }
        if let Some(bans) = bans.filter(|bans| !there.is_disjoint(bans)) {
            banned |= &there & bans;
            there -= bans;
        }
        let has_room = there.iter().map(len).sum::<u64>() <= room.0;
        if has_room && places.stood_there_too(id, known) {
            pairs.push((id, there, is));
        }
    }
    // A version that is not kept any more has not vanished, and numbers of a process end with it.
    vanished -= items_of(catalog, &vanished);
    vanished.remove_range(OWN_FILES..);
    let is_most = !withdrawn_of_late && all.len() <= 2 * vanished.len();
    let is_many = VANISHED_MIN <= vanished.len() || is_most && !vanished.is_empty();
    let is_many = is_many && !known.is_planned();
    let longer;
    let before = if is_many {
        longer = with(after, &vanished);
        &longer
    } else {
        after
    };
    let both = pairs.iter().map(|(_, was, is)| (was, *is));
    let mut difference: Difference = difference(before, after, both);
    // What is banned goes without a limit, but where nobody who has it would keep it: whoever is to
    // have it next cannot fetch it once it is gone. So it is where another who has it, and may hold
    // it, would drop it in the same plan for something else.
    if !banned.is_empty() {
        let both = held.iter().filter_map(|(id, was)| Some((was, places.planned.get(id)?)));
        both.for_each(|(was, is)| banned -= &**was & &**is);
    }
    difference.last_copies |= banned;
    difference.last_copies -= places.with_origin(&difference.last_copies);
    let (reasons, told) = refusals(&difference, &LIMITS);
    let emptied = |reason: &Refusal| match *reason {
        Refusal::Emptied { member, goes, held, .. } => {
            Some(Emptied { appliance: pairs[member].0.clone(), goes, held })
        }
        Refusal::MassEviction { .. } | Refusal::LastCopy { .. } | Refusal::Vanished { .. } => None,
    };
    if reasons.is_empty() {
        return (None, told.as_ref().and_then(emptied));
    }
    let emptied = reasons.iter().find_map(emptied).map(|of| of.appliance);
    let (change, places) = (difference.sum(), Arc::clone(places));
    (Some(RefusedPlan { reasons, emptied, change, places }), None)
}

impl RefusedPlan {
    /// True if the catalogue is not what it was: no manifest may be made by it.
    pub(crate) fn is_of_catalogue(&self) -> bool {
        self.reasons.iter().any(|reason| matches!(reason, Refusal::Vanished { .. }))
    }

    /// Each reason in words.
    pub fn words(&self) -> Vec<String> {
        let words = |reason: &Refusal| match (reason, &self.emptied) {
            (Refusal::Emptied { .. }, Some(id)) => format!("{id}: {reason}"),
            (Refusal::LastCopy { first, .. }, _) => match self.places.version_of(*first) {
                Some(version) => format!("{reason} ({first} is of {version})"),
                None => reason.to_string(),
            },
            _ => reason.to_string(),
        };
        self.reasons.iter().map(words).collect()
    }
}

/// Those of these items that a version of the catalogue has. O(versions log versions).
fn items_of(catalog: &Catalog, items: &NumberSet) -> NumberSet {
    if items.is_empty() {
        return NumberSet::new();
    }
    let range = |of: &Arc<Version>| {
        let first = of.items_or_own().first();
        let count = u32::try_from(of.objects().len()).unwrap_or(u32::MAX);
        first..=first.saturating_add(count.saturating_sub(1))
    };
    let mut all = NumberSet::new();
    for version in catalog.all() {
        all.insert_range(range(version));
    }
    all & items
}

/// A catalogue with pieces of which only the items are known.
fn with(after: &Catalogue, items: &NumberSet) -> Catalogue {
    let piece = |item| Piece { item: Item(item), version: 0, len: Bytes::ZERO };
    let mut pieces: Vec<Piece> = after.pieces().to_vec();
    pieces.extend(items.iter().map(piece));
    pieces.sort_unstable_by_key(|piece| piece.item);
    Catalogue::new(pieces)
}

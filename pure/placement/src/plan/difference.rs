//! What one plan changes of another, and when that is too much.

use std::fmt;

use model::id::Item;
use model::number::NumberSet;
use model::units::Bytes;

use super::order::Catalogue;
use super::spare::all;

/// What a plan changes of the one before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// In the order in which members were given.
    pub members: Vec<Change>,
    /// Items in the catalogue that were held, and that nobody holds any more.
    pub last_copies: NumberSet,
    /// Items of the catalogue before, and how many of them are not in this one.
    pub pieces: u64,
    pub vanished: u64,
}

/// What comes to a member and what leaves it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    pub comes: u64,
    pub comes_len: Bytes,
    pub goes: u64,
    pub goes_len: Bytes,
    /// What it held before.
    pub held_len: Bytes,
}

/// What each member held by the plan before and should hold by this one: one that is new held
/// nothing, and one that is gone is left out. O(pieces + items that anybody held or holds).
pub fn difference<'a>(
    before: &Catalogue,
    after: &Catalogue,
    members: impl Iterator<Item = (&'a NumberSet, &'a NumberSet)> + Clone,
) -> Difference {
    let len = |item: u32| {
        let piece = after.get(Item(item)).or_else(|| before.get(Item(item)));
        piece.map_or(0, |piece| piece.len.0)
    };
    let sum = |items: &NumberSet| Bytes(items.iter().map(len).sum());
    let change = |(was, is): (&NumberSet, &NumberSet)| {
        let (comes, goes) = (is - was, was - is);
        Change {
            comes: comes.len(),
            comes_len: sum(&comes),
            goes: goes.len(),
            goes_len: sum(&goes),
            held_len: sum(was),
        }
    };
    let mut last_copies = all(members.clone().map(|(was, _)| was));
    for (_, is) in members.clone() {
        last_copies -= is;
    }
    last_copies &= after.items();
    Difference {
        members: members.map(change).collect(),
        last_copies,
        pieces: before.items().len(),
        vanished: (before.items() - after.items()).len(),
    }
}

impl Difference {
    /// The sum of all members.
    pub fn sum(&self) -> Change {
        let mut sum = Change::default();
        for of in &self.members {
            (sum.comes, sum.goes) = (sum.comes + of.comes, sum.goes + of.goes);
            sum.comes_len += of.comes_len;
            sum.goes_len += of.goes_len;
            sum.held_len += of.held_len;
        }
        sum
    }
}

/// How much a plan may change before an operator must say that it is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that all members together may lose, in thousandths of what they held.
    pub evicted_permille: u32,
    /// And any one of them.
    pub evicted_of_one_permille: u32,
    /// Items of which the last copy may go.
    pub last_copies: u64,
    /// Items that may leave the catalogue, in thousandths of it.
    pub vanished_permille: u32,
}

/// Why a plan is not carried out unless forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All members together would lose too much.
    MassEviction { goes: Bytes, held: Bytes, limit_permille: u32 },
    /// One would lose too much. The one that loses most is named, by its place.
    Emptied { member: usize, goes: Bytes, held: Bytes, limit_permille: u32 },
    /// Nobody would hold items any more that somebody holds.
    LastCopy { items: u64, first: Item, limit: u64 },
    /// Much of the catalogue is not in it any more: by mistake?
    Vanished { items: u64, of: u64, limit_permille: u32 },
}

/// All reasons for which these limits refuse a plan; none if it may be carried out. And what should
/// be told of it all the same: that one member is emptied, where nothing goes from any other.
/// O(members).
pub fn refusals(difference: &Difference, limits: &Limits) -> (Vec<Refusal>, Option<Refusal>) {
    let (mut refusals, mut told) = (Vec::new(), None);
    let is_over = |part: u64, of: u64, permille: u32| {
        u128::from(of) * u128::from(permille) < u128::from(part) * 1000
    };
    let Difference { vanished, pieces, .. } = *difference;
    if is_over(vanished, pieces, limits.vanished_permille) {
        let limit_permille = limits.vanished_permille;
        refusals.push(Refusal::Vanished { items: vanished, of: pieces, limit_permille });
    }
    let Change { goes_len: goes, held_len: held, .. } = difference.sum();
    if is_over(goes.0, held.0, limits.evicted_permille) {
        let limit_permille = limits.evicted_permille;
        refusals.push(Refusal::MassEviction { goes, held, limit_permille });
    }
    let limit_permille = limits.evicted_of_one_permille;
    let over = difference.members.iter().enumerate();
    let over = over.filter(|(_, of)| is_over(of.goes_len.0, of.held_len.0, limit_permille));
    let share = |of: &Change| u128::from(of.goes_len.0) * 1_000_000 / u128::from(of.held_len.0);
    if let Some((member, of)) = over.max_by_key(|(at, of)| (share(of), std::cmp::Reverse(*at))) {
        let (goes, held) = (of.goes_len, of.held_len);
        let emptied = Refusal::Emptied { member, goes, held, limit_permille };
        // One alone is filled with something else, or nobody needs it: that is told.
        match goes == difference.sum().goes_len && refusals.is_empty() {
            true => told = Some(emptied),
            false => refusals.push(emptied),
        }
    }
    let (items, limit) = (difference.last_copies.len(), limits.last_copies);
    if let Some(first) = difference.last_copies.min().filter(|_| limit < items) {
        refusals.push(Refusal::LastCopy { items, first: Item(first), limit });
    }
    (refusals, told)
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MassEviction { goes, held, limit_permille } => write!(
                f,
                "the plan evicts {} of {} in all, and {limit_permille} in 1,000 may go: look \
                 at the difference, then force it if it is meant",
                rounded(*goes),
                rounded(*held)
            ),
            Self::Emptied { goes, held, limit_permille, .. } => write!(
                f,
                "the plan evicts {} of {} of one appliance, and {limit_permille} in 1,000 may \
                 go: look at the difference, then force it if it is meant",
                rounded(*goes),
                rounded(*held)
            ),
            Self::LastCopy { items, first, limit } => write!(
                f,
                "the plan evicts the last copies of items: {items}, the first of them {first}, and \
                 {limit} may go: no origin has them. Give them a source or room, or force the plan \
                 if they may be lost"
            ),
            Self::Vanished { items, of, limit_permille } => write!(
                f,
                "{items} of {of} items are not in the catalogue any more, and {limit_permille} in \
                 1,000 may go: is all of it there? If so, force the plan"
            ),
        }
    }
}

/// In whole units of the largest that they reach, up to GiB.
pub fn rounded(bytes: Bytes) -> Bytes {
    let reached = [30, 20, 10].into_iter().find(|shift| 1 << shift <= bytes.0);
    let shift = reached.unwrap_or(0);
    Bytes(bytes.0 >> shift << shift)
}

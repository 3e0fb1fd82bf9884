//! What of a member's items viewers are expected to be sent most.

use std::cmp::Reverse;

use model::id::Item;
use model::number::NumberSet;
use model::units::Bytes;

use super::{Catalogue, Density, Share, Wanted};

/// An item that a member should hold, and what viewers are expected to be sent of it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    pub item: Item,
    pub len: Bytes,
    pub density: Density,
}

/// So many times as many items as are wanted are looked at: those that are densest in the region,
/// where a member's order is nearly the region's. Arbitrary.
const LOOKED_AT: usize = 2;

/// The items of a member of which viewers are expected to be sent most for each byte, best first:
/// `most` at most. Of each the member has a part of what the region wants. What nobody is expected
/// to ask for is left out. O(items log gap + most log most), with so many items that are wanted
/// between two that it holds.
pub fn head(
    (catalogue, wanted): (&Catalogue, &[Wanted]),
    items: &NumberSet,
    most: usize,
    part: impl Fn(Item) -> Share,
) -> Vec<Expected> {
    let (mut left, mut found) = (wanted, Vec::new());
    for item in items.iter().map(Item) {
        left = &left[below(left, item)..];
        let Some(of) = left.first().filter(|of| of.item == item) else { continue };
        if let Some(piece) = catalogue.get(item) {
            found.push(Expected { item, len: piece.len, density: Density::of(of.day, piece.len) });
        }
    }
    let best_first = |of: &Expected| (Reverse(of.density), Reverse(of.item));
    let most_looked_at = most.saturating_mul(LOOKED_AT);
    if most_looked_at < found.len() {
        found.select_nth_unstable_by_key(most_looked_at, best_first);
        found.truncate(most_looked_at);
    }
    for of in &mut found {
        of.density = of.density.part(part(of.item));
    }
    found.retain(|of| of.density != Density(0));
    found.sort_unstable_by_key(best_first);
    found.truncate(most);
    found
}

/// How many of these, ascending by item, are below an item: looked for near the first.
fn below(wanted: &[Wanted], item: Item) -> usize {
    let mut near = 1;
    while wanted.get(near).is_some_and(|of| of.item < item) {
        near *= 2;
    }
    let (begin, end) = (near / 2, wanted.len().min(near));
    begin + wanted[begin..end].partition_point(|of| of.item < item)
}

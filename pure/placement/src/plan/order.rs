//! The catalogue, and the order of its items in a region.

use std::fmt;

use model::id::Item;
use model::number::{NumberSet, OWN_FILES, index};
use model::units::{BitsPerSecond, Bytes};

use super::{Piece, Wanted};

/// Bytes served a day for each MiB stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Density(pub u64);

impl Density {
    fn of(day: Bytes, len: Bytes) -> Self {
        let len = len.0.max(1);
        // Nearly all days fit: a division of 128 bits takes several times as long.
        if day.0 >> 44 == 0 {
            return Self((day.0 << 20) / len);
        }
        Self(u64::try_from((u128::from(day.0) << 20) / u128::from(len)).unwrap_or(u64::MAX))
    }

    /// So much more, in thousandths.
    pub(super) fn more(self, permille: u32) -> Self {
        let more = u128::from(self.0) * u128::from(permille) / 1000;
        Self(self.0.saturating_add(u64::try_from(more).unwrap_or(u64::MAX)))
    }
}

impl fmt::Display for Density {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes a day per MiB", self.0)
    }
}

/// All pieces that may be placed, by item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogue {
    pieces: Vec<Piece>,
    /// Where each run of `1 << shift` item numbers begins.
    runs: Vec<u32>,
    shift: u32,
    least: Bytes,
    items: NumberSet,
}

impl Catalogue {
    /// Of pieces in ascending order of their items, each once. O(pieces).
    pub fn new(pieces: Vec<Piece>) -> Self {
        assert!(pieces.is_sorted_by(|a, b| a.item < b.item), "pieces ascend by their items");
        let count = u32::try_from(pieces.len()).expect("item numbers have 32 bits");
        assert!(count < OWN_FILES, "items have numbers of files that are durable");
        let (runs, shift) = runs(pieces.iter().map(|piece| piece.item));
        let least = pieces.iter().map(|piece| piece.len).min().unwrap_or(Bytes(u64::MAX));
        let items = pieces.iter().map(|piece| piece.item.0);
        let items = NumberSet::from_sorted_iter(items).expect("they ascend");
        Self { pieces, runs, shift, least, items }
    }

    /// The items of all.
    pub fn items(&self) -> &NumberSet {
        &self.items
    }

    /// The least room that any piece takes.
    pub(super) fn least(&self) -> Bytes {
        self.least
    }

    /// All pieces, ascending by item.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The piece of this item.
    pub fn get(&self, item: Item) -> Option<&Piece> {
        self.place(item).map(|place| &self.pieces[index(place)])
    }

    /// The place of an item's piece among all.
    pub(super) fn place(&self, item: Item) -> Option<u32> {
        let (begin, end) = run(&self.runs, self.shift, item)?;
        let of_run = &self.pieces[begin..end];
        let at = of_run.binary_search_by_key(&item, |piece| piece.item).ok()?;
        u32::try_from(begin + at).ok()
    }

    fn count(&self) -> u32 {
        u32::try_from(self.pieces.len()).expect("checked when it was made")
    }
}

/// All items of a catalogue, best first: those within reach that are wanted in the region, by
/// density and the newest first among equals; then all others, the newest first. 52 bytes for an
/// item within its reach.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    catalogue: &'a Catalogue,
    wanted: &'a [Wanted],
    first: Vec<Ranked>,
    /// These by item, with their ranks, and where each run of `1 << shift` numbers begins.
    by_item: Vec<(Item, u32)>,
    runs: Vec<u32>,
    shift: u32,
}

/// An item in its place in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub(super) item: Item,
    pub(super) version: u32,
    pub(super) len: Bytes,
    pub(super) day: Bytes,
    pub(super) peak: BitsPerSecond,
    pub(super) density: Density,
}

impl<'a> Order<'a> {
    /// Of what is wanted, ascending by item, each once; items that the catalogue does not have
    /// are left out. O(pieces + wanted log wanted).
    pub fn new(catalogue: &'a Catalogue, wanted: &'a [Wanted]) -> Self {
        Self::within(catalogue, wanted, Bytes(u64::MAX))
    }

    /// The same for clusters of which none has room for more than `reach`: what is behind that by a
    /// third or more of its density is taken as if nobody wanted it. O(pieces + wanted +
    /// reached log reached).
    pub fn within(catalogue: &'a Catalogue, wanted: &'a [Wanted], reach: Bytes) -> Self {
        let pieces = &catalogue.pieces;
        let (mut classes, mut lens) = (vec![0_u16; wanted.len()], [0_u64; CLASSES]);
        let (mut place, mut last) = (0, None);
        for (of, class) in wanted.iter().zip(&mut classes) {
            assert!(last < Some(of.item), "what is wanted ascends by item");
            last = Some(of.item);
            while pieces.get(place).is_some_and(|piece| piece.item < of.item) {
                place += 1;
            }
            let Some(piece) = pieces.get(place) else { break };
            if piece.item == of.item {
                *class = class_of(Density::of(of.day, piece.len));
                let len = &mut lens[usize::from(*class)];
                *len = len.saturating_add(piece.len.0);
            }
        }
        let least = begin(&lens, reach);
        let within = wanted.iter().zip(&classes).filter(|(_, class)| least <= **class);
        let ranked = within.filter_map(|(of, _)| Some(Ranked::of(catalogue.get(of.item)?, of)));
        Self::of_reached(catalogue, wanted, ranked.collect())
    }

    fn of_reached(catalogue: &'a Catalogue, wanted: &'a [Wanted], reached: Vec<Ranked>) -> Self {
        let mut sorted: Vec<(Density, u32)> =
            (0..).zip(&reached).map(|(at, of)| (of.density, at)).collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut by_item: Vec<(Item, u32)> = reached.iter().map(|of| (of.item, 0)).collect();
        let mut first = Vec::with_capacity(reached.len());
        for (rank, (_, at)) in (0..).zip(sorted) {
            by_item[index(at)].1 = rank;
            first.push(reached[index(at)]);
        }
        let (runs, shift) = runs(by_item.iter().map(|(item, _)| *item));
        Self { catalogue, wanted, first, by_item, runs, shift }
    }

    /// All that may be placed, of which it orders what is wanted.
    pub fn catalogue(&self) -> &'a Catalogue {
        self.catalogue
    }

    /// The expected bytes served per byte stored; none of an item that the catalogue lacks.
    pub fn density(&self, item: Item) -> Option<Density> {
        Some(self.at(self.rank(item)?)?.density)
    }

    /// How many are wanted: their ranks are below, all others' from here on.
    pub(super) fn wanted(&self) -> u32 {
        u32::try_from(self.first.len()).expect("no more than pieces")
    }

    /// How many ranks there may be. Some of those from [`Self::wanted`] on are nobody's.
    pub(super) fn end(&self) -> u32 {
        self.wanted() + self.catalogue.count()
    }

    /// The rank of an item.
    pub(super) fn rank(&self, item: Item) -> Option<u32> {
        if let Some(rank) = self.rank_within(item) {
            return Some(rank);
        }
        let place = self.catalogue.place(item)?;
        Some(self.end() - 1 - place)
    }

    fn rank_within(&self, item: Item) -> Option<u32> {
        let (begin, end) = run(&self.runs, self.shift, item)?;
        let of_run = &self.by_item[begin..end];
        let at = of_run.binary_search_by_key(&item, |(item, _)| *item).ok()?;
        Some(of_run[at].1)
    }

    /// The item of a rank.
    pub(super) fn at(&self, rank: u32) -> Option<Ranked> {
        if let Some(of) = self.first.get(index(rank)) {
            return Some(*of);
        }
        let place = self.end().checked_sub(rank)?.checked_sub(1)?;
        let piece = self.catalogue.pieces.get(index(place))?;
        if self.rank_within(piece.item).is_some() {
            return None;
        }
        let none = Wanted { item: piece.item, day: Bytes(0), peak: BitsPerSecond(0) };
        let at = self.wanted.binary_search_by_key(&piece.item, |of| of.item);
        Some(Ranked::of(piece, at.map_or(&none, |at| &self.wanted[at])))
    }
}

impl Ranked {
    fn of(piece: &Piece, wanted: &Wanted) -> Self {
        let Piece { item, version, len } = *piece;
        let Wanted { day, peak, .. } = *wanted;
        Self { item, version, len, day, peak, density: Density::of(day, len) }
    }
}

/// Where each run of `1 << shift` item numbers begins among these, ascending, and one more at the
/// end: so finding one is a look and a few comparisons.
fn runs(items: impl ExactSizeIterator<Item = Item> + Clone) -> (Vec<u32>, u32) {
    let count = u32::try_from(items.len()).expect("item numbers have 32 bits");
    let last = items.clone().last().map_or(0, |item| item.0);
    let shift = (last / count.max(1)).checked_ilog2().map_or(2, |bits| bits + 2).min(31);
    let mut runs = Vec::with_capacity(index(last >> shift) + 2);
    for (at, item) in (0..).zip(items) {
        while runs.len() <= index(item.0 >> shift) {
            runs.push(at);
        }
    }
    runs.push(count);
    (runs, shift)
}

/// The run in which an item is, if it is there.
fn run(runs: &[u32], shift: u32, item: Item) -> Option<(usize, usize)> {
    let at = index(item.0 >> shift);
    Some((index(*runs.get(at)?), index(*runs.get(at + 1)?)))
}

/// Sixteen for each power of two of a density, and the first for none.
const CLASSES: usize = 65 * 16;

fn class_of(density: Density) -> u16 {
    let Some(bits) = density.0.checked_ilog2() else { return 0 };
    // The highest bit is always one, the four after it tell the class.
    let sixteenth = (density.0 << (63 - bits) >> 59) & 15;
    u16::try_from(u64::from(bits + 1) * 16 + sixteenth).expect("there are a thousand")
}

/// What is held is worth more than what is not: by less than that many classes, a third at least.
const MARGIN: usize = 8;

/// The first class that is within reach, and some before it.
fn begin(lens: &[u64; CLASSES], reach: Bytes) -> u16 {
    let (mut left, mut reached) = (reach.0, CLASSES);
    while 1 < reached && 0 < left {
        reached -= 1;
        left = left.saturating_sub(lens[reached]);
    }
    u16::try_from(reached.saturating_sub(MARGIN).max(1)).expect("there are a thousand")
}

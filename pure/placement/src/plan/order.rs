//! The catalogue, and the order of its items in a region.

use std::fmt;

use model::id::Item;
use model::number::{NumberSet, OWN_FILES, index};
use model::units::{BitsPerSecond, Bytes};

use super::{Piece, Share, Wanted};

/// Bytes served a day for each MiB stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Density(pub u64);

impl Density {
    pub(super) fn of(day: Bytes, len: Bytes) -> Self {
        let len = len.0.max(1);
        // Nearly all days fit: a division of 128 bits takes several times as long.
        if day.0 >> 44 == 0 {
            return Self((day.0 << 20) / len);
        }
        Self(u64::try_from((u128::from(day.0) << 20) / u128::from(len)).unwrap_or(u64::MAX))
    }

    /// True if so much is served of an item of this length, or more. It divides nothing.
    fn is_reached(self, day: Bytes, len: Bytes) -> bool {
        u128::from(self.0) * u128::from(len.0.max(1)) <= u128::from(day.0) << 20
    }

    /// A part of it, as a cluster or a member has it.
    pub(super) fn part(self, share: Share) -> Self {
        let part = u128::from(self.0) * u128::from(share.0) / u128::from(Share::ALL.0);
        Self(u64::try_from(part).unwrap_or(u64::MAX))
    }

    /// So much more, in thousandths.
    pub(super) fn more(self, permille: u32) -> Self {
        // As above.
        if self.0 >> 32 == 0 {
            return Self(self.0 + self.0 * u64::from(permille) / 1000);
        }
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
    /// Their items, ascending and [`WINDOW`] more behind the last, and their ranks.
    items: Vec<Item>,
    ranks: Vec<u32>,
    /// Where each run of `1 << shift` numbers begins among these.
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
        let reached = Reached::of(catalogue, wanted, reach);
        let ranked = reached.iter().map(|of| {
            Ranked::of(&catalogue.pieces[index(of.place)], &wanted[index(of.at)], of.density)
        });
        Self::of_reached(catalogue, wanted, ranked.collect())
    }

    fn of_reached(catalogue: &'a Catalogue, wanted: &'a [Wanted], reached: Vec<Ranked>) -> Self {
        let (runs, shift) = runs(reached.iter().map(|of| of.item));
        let behind = std::iter::repeat_n(Item(u32::MAX), WINDOW);
        let items = reached.iter().map(|of| of.item).chain(behind).collect();
        let mut ranks = vec![0; reached.len()];
        let mut first = Vec::with_capacity(reached.len());
        for (rank, (_, at)) in (0..).zip(sorted(&reached)) {
            ranks[index(at)] = rank;
            first.push(reached[index(at)]);
        }
        Self { catalogue, wanted, first, items, ranks, runs, shift }
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

    /// Nearly all runs are short. In these it counts what is below, which takes no guess of where
    /// the item is.
    fn rank_within(&self, item: Item) -> Option<u32> {
        let (begin, end) = run(&self.runs, self.shift, item)?;
        let below = if end - begin <= WINDOW {
            let window = self.items[begin..].first_chunk::<WINDOW>()?;
            window.iter().fold(0, |below, other| below + usize::from(*other < item))
        } else {
            self.items[begin..end].partition_point(|other| *other < item)
        };
        let at = begin + below;
        if at < end && self.items[at] == item { Some(self.ranks[at]) } else { None }
    }

    /// The item of a rank.
    #[inline]
    pub(super) fn at(&self, rank: u32) -> Option<Ranked> {
        match self.first.get(index(rank)) {
            Some(of) => Some(*of),
            None => self.behind(rank),
        }
    }

    /// The same of what is behind all that is wanted.
    #[cold]
    fn behind(&self, rank: u32) -> Option<Ranked> {
        let place = self.end().checked_sub(rank)?.checked_sub(1)?;
        let piece = self.catalogue.pieces.get(index(place))?;
        if self.rank_within(piece.item).is_some() {
            return None;
        }
        let none = Wanted { item: piece.item, day: Bytes(0), peak: BitsPerSecond(0) };
        let at = self.wanted.binary_search_by_key(&piece.item, |of| of.item);
        let wanted = at.map_or(&none, |at| &self.wanted[at]);
        Some(Ranked::of(piece, wanted, Density::of(wanted.day, piece.len)))
    }
}

impl Ranked {
    fn of(piece: &Piece, wanted: &Wanted, density: Density) -> Self {
        let Piece { item, version, len } = *piece;
        let Wanted { day, peak, .. } = *wanted;
        Self { item, version, len, day, peak, density }
    }
}

/// Where an item within reach is among all that is wanted, and its piece among all.
struct Reached {
    density: Density,
    at: u32,
    place: u32,
}

impl Reached {
    /// All within reach, ascending by item. A sample says about how dense that is, so that nearly
    /// all else is told by a multiplication. O(pieces + wanted), for each of a few tries: nearly
    /// always one.
    fn of(catalogue: &Catalogue, wanted: &[Wanted], reach: Bytes) -> Vec<Self> {
        let mut class = sample(catalogue, wanted, reach).max(1);
        loop {
            let (mut reached, lens) = Self::above(&catalogue.pieces, wanted, least_of(class));
            let least = begin(&lens, reach);
            if class <= least {
                reached.retain(|of| least_of(least) <= of.density);
                return reached;
            }
            class = class.saturating_sub(16).max(1);
        }
    }

    /// All that is as dense as `least`, and the lengths of each class together.
    fn above(pieces: &[Piece], wanted: &[Wanted], least: Density) -> (Vec<Self>, [u64; CLASSES]) {
        let (mut reached, mut lens) = (Vec::new(), [0_u64; CLASSES]);
        let (mut place, mut last) = (0, None);
        for (at, of) in (0..).zip(wanted) {
            assert!(last < Some(of.item), "what is wanted ascends by item");
            last = Some(of.item);
            while pieces.get(place).is_some_and(|piece| piece.item < of.item) {
                place += 1;
            }
            let Some(piece) = pieces.get(place) else { break };
            if piece.item == of.item && least.is_reached(of.day, piece.len) {
                let density = Density::of(of.day, piece.len);
                let len = &mut lens[usize::from(class_of(density))];
                *len = len.saturating_add(piece.len.0);
                let place = u32::try_from(place).expect("item numbers have 32 bits");
                reached.push(Self { density, at, place });
            }
        }
        (reached, lens)
    }
}

/// The first class that is within reach by a sample, and two before it.
fn sample(catalogue: &Catalogue, wanted: &[Wanted], reach: Bytes) -> u16 {
    let step = wanted.len() / SAMPLE + 1;
    let mut lens = [0_u64; CLASSES];
    for of in wanted.iter().step_by(step) {
        if let Some(piece) = catalogue.get(of.item) {
            let len = &mut lens[usize::from(class_of(Density::of(of.day, piece.len)))];
            *len = len.saturating_add(piece.len.0.saturating_mul(Bytes::of(step).0));
        }
    }
    begin(&lens, reach).saturating_sub(2)
}

/// Arbitrary: of as many, about a thousand are within reach, and so the sample errs by a few in
/// a hundred, where a class is one in sixteen.
const SAMPLE: usize = 16_384;

/// What is reached by density, best first and the newest first among equals, with its place: by
/// classes first, each of which fits a cache.
fn sorted(reached: &[Ranked]) -> Vec<(Density, u32)> {
    let mut begins = [0_usize; CLASSES + 1];
    let class = |of: &Ranked| CLASSES - 1 - usize::from(class_of(of.density));
    reached.iter().for_each(|of| begins[class(of) + 1] += 1);
    for at in 1..begins.len() {
        begins[at] += begins[at - 1];
    }
    let mut nexts = begins;
    let mut sorted = vec![(Density(0), 0); reached.len()];
    for (at, of) in (0..).zip(reached) {
        let next = &mut nexts[class(of)];
        sorted[*next] = (of.density, at);
        *next += 1;
    }
    for of in begins.windows(2) {
        sorted[of[0]..of[1]].sort_unstable_by(|a, b| b.cmp(a));
    }
    sorted
}

/// Runs have two to four items, if these are spread evenly.
const WINDOW: usize = 8;

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

/// The least density of a class that is not the first.
fn least_of(class: u16) -> Density {
    let (bits, sixteenth) = (class / 16, u128::from(class % 16));
    let least = ((16 + sixteenth) << bits).div_ceil(32).max(1);
    Density(u64::try_from(least).expect("64 bits have no higher class"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_a_class_is_in_it_and_less_is_not() {
        for class in 1..u16::try_from(CLASSES).unwrap() {
            let least = least_of(class);
            assert!(class <= class_of(least), "{class}");
            assert!(class_of(Density(least.0 - 1)) < class, "{class}");
        }
    }
}

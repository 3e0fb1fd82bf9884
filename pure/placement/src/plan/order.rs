//! The catalogue, and the order of its items in a region.

use std::fmt;

use model::id::Item;
use model::number::index;
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
    /// For each run of `1 << shift` item numbers the place of the first piece in it or after, and
    /// one more at the end: so finding one is a look and a few comparisons.
    runs: Vec<u32>,
    shift: u32,
    least: Bytes,
}

impl Catalogue {
    /// Of pieces in ascending order of their items, each once. O(pieces).
    pub fn new(pieces: Vec<Piece>) -> Self {
        assert!(pieces.is_sorted_by(|a, b| a.item < b.item), "pieces ascend by their items");
        let count = u32::try_from(pieces.len()).expect("item numbers have 32 bits");
        let last = pieces.last().map_or(0, |piece| piece.item.0);
        let shift = (last / count.max(1)).checked_ilog2().map_or(3, |bits| bits + 3).min(31);
        let mut runs = Vec::with_capacity(index(last >> shift) + 2);
        for (at, piece) in (0..).zip(&pieces) {
            while runs.len() <= index(piece.item.0 >> shift) {
                runs.push(at);
            }
        }
        runs.push(count);
        let least = pieces.iter().map(|piece| piece.len).min().unwrap_or(Bytes(u64::MAX));
        Self { pieces, runs, shift, least }
    }

    /// The least room that any piece takes.
    pub(super) fn least(&self) -> Bytes {
        self.least
    }

    /// All, ascending.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The piece of this item.
    pub fn get(&self, item: Item) -> Option<&Piece> {
        self.place(item).map(|place| &self.pieces[index(place)])
    }

    /// Where it is among them.
    pub(super) fn place(&self, item: Item) -> Option<u32> {
        let run = index(item.0 >> self.shift);
        let (Some(&begin), Some(&end)) = (self.runs.get(run), self.runs.get(run + 1)) else {
            return None;
        };
        let of_run = &self.pieces[index(begin)..index(end)];
        let at = of_run.binary_search_by_key(&item, |piece| piece.item).ok()?;
        Some(begin + u32::try_from(at).expect("a run is short"))
    }

    fn count(&self) -> u32 {
        u32::try_from(self.pieces.len()).expect("checked when it was made")
    }
}

/// All items of a catalogue, best first: those that are wanted in the region by density, and the
/// newest first among equals; then all others, the newest first. 44 bytes for an item that is
/// wanted, 4 for one that is not.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    catalogue: &'a Catalogue,
    wanted: Vec<Ranked>,
    /// The rank of each piece in the catalogue; [`UNWANTED`] for those without demand.
    ranks: Vec<u32>,
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

const UNWANTED: u32 = u32::MAX;

impl<'a> Order<'a> {
    /// Of what is wanted, ascending by item, each once; items that the catalogue does not have
    /// are left out. O(pieces + wanted log wanted).
    pub fn new(catalogue: &'a Catalogue, wanted: &[Wanted]) -> Self {
        assert!(wanted.is_sorted_by(|a, b| a.item < b.item), "what is wanted ascends by item");
        let mut sorted: Vec<(Density, u32, usize)> = Vec::with_capacity(wanted.len());
        let mut place = 0;
        for (at, of) in wanted.iter().enumerate() {
            while catalogue.pieces.get(place).is_some_and(|piece| piece.item < of.item) {
                place += 1;
            }
            let Some(piece) = catalogue.pieces.get(place) else { break };
            let density = Density::of(of.day, piece.len);
            if piece.item == of.item && density != Density(0) {
                sorted.push((density, u32::try_from(place).unwrap_or(UNWANTED), at));
            }
        }
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut ranks = vec![UNWANTED; catalogue.pieces.len()];
        let ranked = (0..).zip(sorted).map(|(rank, (density, place, at))| {
            ranks[index(place)] = rank;
            let Piece { item, version, len } = catalogue.pieces[index(place)];
            let Wanted { day, peak, .. } = wanted[at];
            Ranked { item, version, len, day, peak, density }
        });
        let wanted = ranked.collect();
        Self { catalogue, wanted, ranks }
    }

    /// What it orders.
    pub fn catalogue(&self) -> &'a Catalogue {
        self.catalogue
    }

    /// The expected bytes served per byte stored; none of an item that the catalogue lacks.
    pub fn density(&self, item: Item) -> Option<Density> {
        let place = self.catalogue.place(item)?;
        let rank = self.ranks[index(place)];
        Some(self.wanted.get(index(rank)).map_or(Density(0), |of| of.density))
    }

    /// How many are wanted: their ranks are below, all others' from here on.
    pub(super) fn wanted(&self) -> u32 {
        u32::try_from(self.wanted.len()).expect("no more than pieces")
    }

    /// How many ranks there may be. Some of those from [`Self::wanted`] on are nobody's.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.wanted()) + u64::from(self.catalogue.count())
    }

    /// The rank of an item.
    pub(super) fn rank(&self, item: Item) -> Option<u64> {
        let place = self.catalogue.place(item)?;
        let rank = self.ranks[index(place)];
        let newer = self.catalogue.count() - 1 - place;
        let behind = u64::from(self.wanted()) + u64::from(newer);
        Some(if rank == UNWANTED { behind } else { u64::from(rank) })
    }

    /// The item of a rank.
    pub(super) fn at(&self, rank: u64) -> Option<Ranked> {
        let Some(newer) = rank.checked_sub(u64::from(self.wanted())) else {
            return usize::try_from(rank).ok().and_then(|rank| self.wanted.get(rank)).copied();
        };
        let newer = u32::try_from(newer).ok()?;
        let place = index(self.catalogue.count().checked_sub(newer)?.checked_sub(1)?);
        let Piece { item, version, len } = self.catalogue.pieces[place];
        let (day, peak, density) = (Bytes(0), BitsPerSecond(0), Density(0));
        let is_unwanted = self.ranks[place] == UNWANTED;
        is_unwanted.then_some(Ranked { item, version, len, day, peak, density })
    }
}

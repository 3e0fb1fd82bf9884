//! Bytes by item, sparse: what is kept of an hour or a day.
//!
//! ```text
//! add ──> [ open: a map ] ──settle──> [ gap bytes | gap bytes | ... ]      ascending, varints
//!                                       1 to 5     1 to 10 bytes; 6 or 7 together as a rule
//! ```

use std::collections::{BTreeMap, btree_map};
use std::iter::Peekable;

use model::id::Item;
use model::number::{GOLDEN, mix};
use model::units::Bytes;

/// The form that [`Sums::encode`] writes.
const FORM: u8 = 1;

/// Items that wait in the map until they are settled. Arbitrary: settling costs what is settled
/// already, and a map 30 bytes or so for each item.
const OPEN_MAX: usize = 16_384;

/// Bytes by item of one hour or day in one region.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Gaps between items and their bytes, in LEB128.
    settled: Vec<u8>,
    /// Items in `settled`.
    len: usize,
    /// All bytes, also of items that are cut. Saturates.
    total: u64,
    /// Bytes of items that were left out because others had more.
    cut: u64,
    open: BTreeMap<u32, u64>,
}

/// Bytes that nobody encoded as sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damaged {
    #[error("these sums of demand have form {0}, and this release reads form {FORM}: upgrade it")]
    Form(u8),
    #[error(
        "sums of demand are damaged: their checksum is another. Remove them: their hour or day \
         is unknown then"
    )]
    Checksum,
    #[error(
        "sums of demand are damaged at byte {0}. Remove them: their hour or day is unknown then"
    )]
    At(usize),
}

impl Sums {
    /// Adds bytes of an item. O(log open), and every 16,384 items O(all): at most `max` of them are
    /// kept then, those with the most bytes, and the lower item of two that have the same. The
    /// others stand in `cut`, and begin at nothing if they come again.
    pub fn add(&mut self, item: Item, bytes: Bytes, max: usize) {
        if bytes == Bytes::ZERO {
            return;
        }
        let of = self.open.entry(item.0).or_default();
        *of = of.saturating_add(bytes.0);
        self.total = self.total.saturating_add(bytes.0);
        if OPEN_MAX <= self.open.len() {
            self.settle(max);
        }
    }

    /// Adds all of another's. O(both).
    pub fn merge(&mut self, other: &Self, max: usize) {
        other.iter().for_each(|(item, bytes)| self.add(item, bytes, max));
        self.cut = self.cut.saturating_add(other.cut);
        self.total = self.total.saturating_add(other.cut);
        self.settle(max);
    }

    /// These without others that were merged into them. What was cut of one of them is taken off
    /// what was cut of these. O(all).
    pub(crate) fn without<'a>(&self, others: impl Iterator<Item = &'a Self>) -> Self {
        let mut away: BTreeMap<Item, u64> = BTreeMap::new();
        let mut total = self.total;
        for other in others {
            total = total.saturating_sub(other.total);
            for (item, bytes) in other.iter() {
                let of = away.entry(item).or_default();
                *of = of.saturating_add(bytes.0);
            }
        }
        let mut left = Self::default();
        for (item, bytes) in self.iter() {
            let away = away.get(&item).copied().unwrap_or_default();
            left.add(item, Bytes(bytes.0.saturating_sub(away)), usize::MAX);
        }
        left.settle(usize::MAX);
        left.cut = total.saturating_sub(left.total);
        left.total = left.total.max(total);
        left
    }

    /// Puts what is open in its place, in few bytes. O(all).
    pub fn settle(&mut self, max: usize) {
        if self.open.is_empty() && self.len <= max {
            return;
        }
        let mut all: Vec<(Item, Bytes)> = self.iter().collect();
        if max < all.len() {
            all.sort_unstable_by_key(|(item, bytes)| (std::cmp::Reverse(*bytes), *item));
            for (_, bytes) in all.drain(max..) {
                self.cut = self.cut.saturating_add(bytes.0);
            }
            all.sort_unstable_by_key(|(item, _)| *item);
        }
        self.len = all.len();
        self.settled.clear();
        self.open.clear();
        entries(&mut self.settled, all.into_iter());
        self.settled.shrink_to_fit();
    }

    /// All items, ascending, none with nothing.
    pub fn iter(&self) -> Entries<'_> {
        let settled = Settled { rest: &self.settled, next: 0 };
        Entries { settled: settled.peekable(), open: self.open.iter().peekable() }
    }

    /// What an item has. O(all).
    pub fn of(&self, item: Item) -> Bytes {
        let found = self.iter().find(|(of, _)| *of == item);
        found.map_or(Bytes::ZERO, |(_, bytes)| bytes)
    }

    /// All bytes, also of items that are cut.
    pub fn total(&self) -> Bytes {
        Bytes(self.total)
    }

    /// Bytes of items that were left out, since there were too many.
    pub fn cut(&self) -> Bytes {
        Bytes(self.cut)
    }

    /// True if nobody was sent anything.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// In bytes, to be kept: the same bytes for the same sums.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORM];
        for figure in [self.total, self.cut] {
            varint(&mut out, figure);
        }
        entries(&mut out, self.iter());
        out.extend(checksum(&out).to_le_bytes());
        out
    }

    /// [`Self::total`] by the first [`HEAD_LEN`] bytes of what was encoded. They may be damaged:
    /// only all of it tells. O(1).
    pub fn total_at_head(head: &[u8]) -> Option<Bytes> {
        let mut rest = head.strip_prefix(&[FORM])?;
        take(&mut rest).map(Bytes)
    }

    /// What was encoded. O(bytes), and no more memory than they take.
    pub fn decode(bytes: &[u8]) -> Result<Self, Damaged> {
        let (body, sum) = bytes.split_last_chunk().ok_or(Damaged::At(bytes.len()))?;
        match body.first() {
            Some(&FORM) if checksum(body) == u64::from_le_bytes(*sum) => {}
            Some(&FORM) => return Err(Damaged::Checksum),
            Some(&form) => return Err(Damaged::Form(form)),
            None => return Err(Damaged::At(0)),
        }
        let mut rest = &body[1..];
        let at = |rest: &[u8]| Damaged::At(body.len() - rest.len());
        let total = take(&mut rest).ok_or_else(|| at(rest))?;
        let cut = take(&mut rest).ok_or_else(|| at(rest))?;
        let (mut settled, mut sum) = (Settled { rest, next: 0 }, cut);
        let mut len = 0;
        for (_, bytes) in settled.by_ref() {
            sum = sum.saturating_add(bytes.0);
            len += 1;
        }
        if !settled.rest.is_empty() || sum != total {
            return Err(at(settled.rest));
        }
        Ok(Self { settled: rest.to_vec(), len, total, cut, open: BTreeMap::new() })
    }
}

/// The form, and a figure of 64 bits in groups of seven.
pub const HEAD_LEN: usize = 11;

/// Items with their bytes, ascending.
#[derive(Debug)]
pub struct Entries<'a> {
    settled: Peekable<Settled<'a>>,
    open: Peekable<btree_map::Iter<'a, u32, u64>>,
}

impl Iterator for Entries<'_> {
    type Item = (Item, Bytes);
    fn next(&mut self) -> Option<Self::Item> {
        let settled = self.settled.peek().map(|(item, _)| *item);
        let open = self.open.peek().map(|(item, _)| Item(**item));
        let takes_settled = open.is_none_or(|open| settled.is_some_and(|of| of <= open));
        let takes_open = settled.is_none_or(|of| open.is_some_and(|open| open <= of));
        let one = if takes_settled { self.settled.next() } else { None };
        let more = if takes_open { self.open.next() } else { None };
        match (one, more) {
            (one, None) => one,
            (None, Some((item, bytes))) => Some((Item(*item), Bytes(*bytes))),
            (Some((item, one)), Some((_, more))) => {
                Some((item, Bytes(one.0.saturating_add(*more))))
            }
        }
    }
}

/// What is settled. It ends early at bytes that are no entry, which `decode` finds.
#[derive(Debug)]
struct Settled<'a> {
    rest: &'a [u8],
    /// The lowest item that may come.
    next: u64,
}

impl Iterator for Settled<'_> {
    type Item = (Item, Bytes);
    fn next(&mut self) -> Option<Self::Item> {
        let mut rest = self.rest;
        let item = u32::try_from(self.next.checked_add(take(&mut rest)?)?).ok()?;
        let bytes = take(&mut rest).filter(|bytes| *bytes != 0)?;
        (self.rest, self.next) = (rest, u64::from(item) + 1);
        Some((Item(item), Bytes(bytes)))
    }
}

fn entries(out: &mut Vec<u8>, all: impl Iterator<Item = (Item, Bytes)>) {
    let mut next = 0;
    for (item, bytes) in all {
        varint(out, u64::from(item.0) - next);
        varint(out, bytes.0);
        next = u64::from(item.0) + 1;
    }
}

fn varint(out: &mut Vec<u8>, mut n: u64) {
    while 0x80 <= n {
        out.push(n.to_le_bytes()[0] | 0x80);
        n >>= 7;
    }
    out.push(n.to_le_bytes()[0]);
}

/// One number, in its shortest form only: what is kept has one form.
fn take(rest: &mut &[u8]) -> Option<u64> {
    let len = rest.iter().take(10).position(|byte| *byte < 0x80)? + 1;
    let (bytes, after) = rest.split_at(len);
    let last = bytes[len - 1];
    if (len == 10 && 1 < last) || (1 < len && last == 0) {
        return None;
    }
    *rest = after;
    Some(bytes.iter().rev().fold(0, |n, byte| n << 7 | u64::from(byte & 0x7f)))
}

/// Not against forgers: against bits that fell over.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(Bytes::of(bytes.len()).0, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum.wrapping_mul(GOLDEN) ^ u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sums(of: &[(u32, u64)], max: usize) -> Sums {
        let mut sums = Sums::default();
        for (item, bytes) in of {
            sums.add(Item(*item), Bytes(*bytes), max);
        }
        sums
    }

    fn listed(sums: &Sums) -> Vec<(u32, u64)> {
        sums.iter().map(|(item, bytes)| (item.0, bytes.0)).collect()
    }

    #[test]
    fn what_is_full_keeps_the_items_with_most_and_says_what_it_cut() {
        let mut full = sums(&[(1, 5), (2, 9), (3, 5), (u32::MAX, 7)], 3);
        full.settle(3);
        assert_eq!(listed(&full), [(1, 5), (2, 9), (u32::MAX, 7)], "the lower of two equals");
        assert_eq!((full.total(), full.cut()), (Bytes(26), Bytes(5)));
        full.add(Item(3), Bytes(1), 3);
        assert_eq!((full.of(Item(3)), full.total()), (Bytes(1), Bytes(27)), "it begins again");
        let again = Sums::decode(&full.encode()).unwrap();
        assert_eq!(
            (again.total(), again.cut(), listed(&again)),
            (Bytes(27), Bytes(5), listed(&full))
        );
    }

    #[test]
    fn an_hour_with_more_items_than_wait_is_bounded_before_it_ends() {
        let mut all = Sums::default();
        for n in 0..100_000_u32 {
            all.add(Item(n), Bytes(u64::from(n) + 1), 1_000);
        }
        assert!(all.len + all.open.len() < OPEN_MAX + 1_000);
        all.settle(1_000);
        assert_eq!((all.len, all.of(Item(99_999))), (1_000, Bytes(100_000)));
        assert_eq!(all.total(), Bytes(100_000 * 100_001 / 2));
    }

    #[test]
    fn sums_that_are_too_large_for_64_bits_stay_at_the_most() {
        let mut all = sums(&[(1, u64::MAX), (1, 7), (2, 7)], 10);
        all.settle(10);
        assert_eq!(listed(&all), [(1, u64::MAX), (2, 7)]);
        assert_eq!(Sums::decode(&all.encode()).unwrap().total(), Bytes(u64::MAX));
    }

    #[test]
    fn other_forms_and_other_lengths_are_refused_with_what_to_do() {
        let good = sums(&[(7, 300), (9, 1)], 10).encode();
        let mut newer = good.clone();
        newer[0] = 2;
        assert_eq!(Sums::decode(&newer).unwrap_err(), Damaged::Form(2));
        assert_eq!(Sums::decode(&[]).unwrap_err(), Damaged::At(0));
        for len in 0..good.len() {
            assert!(Sums::decode(&good[..len]).is_err(), "{len}");
        }
        let said = Damaged::Checksum.to_string();
        assert!(said.ends_with("Remove them: their hour or day is unknown then"), "{said}");
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_map_and_come_back_from_their_bytes(
            of: Vec<(u32, u32)>, near in prop::collection::vec((0_u32..50, 0_u64..9), 0..90),
            settled in 0_usize..90,
        ) {
            let mut all: Vec<_> = of.into_iter().map(|(item, n)| (item, u64::from(n))).collect();
            all.extend(near);
            let settled = settled.min(all.len());
            let mut some = sums(&all[..settled], usize::MAX);
            some.settle(usize::MAX);
            some.merge(&sums(&all[settled..], usize::MAX), usize::MAX);
            let mut map = BTreeMap::new();
            for (item, bytes) in all.iter().filter(|(_, bytes)| 0 < *bytes) {
                *map.entry(*item).or_default() += bytes;
            }
            let total: u64 = map.values().sum();
            prop_assert_eq!(some.total(), Bytes(total));
            prop_assert_eq!(listed(&some), map.into_iter().collect::<Vec<_>>());
            let bytes = some.encode();
            let again = Sums::decode(&bytes).unwrap();
            prop_assert_eq!(listed(&again), listed(&some));
            prop_assert_eq!(&sums(&all, usize::MAX).encode(), &bytes, "one form, however made");
            prop_assert_eq!(again.encode(), bytes);
        }

        #[test]
        fn a_bit_that_fell_over_is_found(
            of: Vec<(u32, u32)>, at: prop::sample::Index, bit in 0_u32..8,
        ) {
            let of: Vec<_> = of.into_iter().map(|(item, n)| (item, u64::from(n))).collect();
            let mut bytes = sums(&of, usize::MAX).encode();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(Sums::decode(&bytes).is_err());
        }

        /// With a right checksum, too: a peer may write one over anything.
        #[test]
        fn no_bytes_at_all_panic_or_make_sums_of_another_form(body: Vec<u8>) {
            let mut bytes = vec![FORM];
            bytes.extend(body);
            bytes.extend(checksum(&bytes).to_le_bytes());
            if let Ok(sums) = Sums::decode(&bytes) {
                prop_assert_eq!(sums.encode(), bytes);
            }
        }
    }
}

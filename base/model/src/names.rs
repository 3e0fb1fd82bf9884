//! A map by name that is cheap to copy though it is large: parts of it are shared until they
//! change.
//!
//! ```text
//! name ──> hash ──> [ part | part | part' | part ]     a copy after a change shares all parts but
//!                             └─ slots, by hash         one
//! ```

use std::borrow::Borrow;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use crate::number::mix;

/// Values by name. A look-up costs a hash and a slot or two beside each other, whatever there is; a
/// copy [`PARTS`] pointers; a change, once per copy, the items of a part. Going through all of them
/// in order costs a sort.
#[derive(Clone)]
pub struct Names<K, V> {
    /// By the first bits of the hash; empty before the first insertion.
    parts: Vec<Arc<Part<K, V>>>,
    len: usize,
}

/// Slots in the order of the hashes, equal ones in that of the names: each item is in the slot that
/// its hash leads to, or behind that in the first that items before it leave free. So where an item
/// is follows from the others that are there, and not from which came first.
#[derive(Clone)]
struct Part<K, V> {
    /// `width` of them, and as many more as the last items need.
    slots: Vec<Slot<K, V>>,
    /// Hashes lead to so many slots.
    width: usize,
    /// Invariant: at most three quarters of `width`.
    len: usize,
}

#[derive(Clone)]
struct Slot<K, V> {
    hash: u64,
    /// None of one that is free.
    item: Option<(K, V)>,
}

/// 100,000 names have 400 in each part.
pub const PARTS: usize = 256;

impl<K, V> Default for Names<K, V> {
    fn default() -> Self {
        Self { parts: Vec::new(), len: 0 }
    }
}

impl<K, V> Default for Part<K, V> {
    fn default() -> Self {
        Self { slots: Vec::new(), width: 0, len: 0 }
    }
}

impl<K: Borrow<str>, V> Names<K, V> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a name.
    pub fn get<Q: Borrow<str> + ?Sized>(&self, name: &Q) -> Option<&V> {
        self.get_hashed(hash(name.borrow()), name)
    }

    /// The same by a hash that is known already: that of [`hash_of`] for the bytes of the name. A
    /// name that shares its memory with the one in here is not read.
    pub fn get_hashed<Q: Borrow<str> + ?Sized>(&self, hash: u64, name: &Q) -> Option<&V> {
        let part = self.parts.get(part_of(hash))?;
        let at = part.find(hash, name.borrow()).ok()?;
        Some(&part.slots[at].item.as_ref()?.1)
    }

    /// True if a name has a value.
    pub fn contains_key<Q: Borrow<str> + ?Sized>(&self, name: &Q) -> bool {
        self.get(name).is_some()
    }

    /// Of each name in a part that these two do not share, the value before and the one here. In no
    /// order. O(items of those parts).
    pub fn beside<'a>(
        &'a self,
        before: &'a Self,
    ) -> impl Iterator<Item = (&'a K, Option<&'a V>, Option<&'a V>)> {
        let items =
            |of: &'a Self, at: usize| of.parts.get(at).into_iter().flat_map(|part| part.items());
        let is_shared = |at: &usize| match (self.parts.get(*at), before.parts.get(*at)) {
            (Some(here), Some(there)) => Arc::ptr_eq(here, there),
            (here, there) => here.is_none() && there.is_none(),
        };
        (0..PARTS).filter(move |at| !is_shared(at)).flat_map(move |at| {
            let here = items(self, at);
            let here = here.map(|(name, value)| (name, before.get(name), Some(value)));
            let gone = items(before, at).filter(|(name, _)| !self.contains_key(*name));
            here.chain(gone.map(|(name, value)| (name, Some(value), None)))
        })
    }

    /// All in an order that is the same everywhere, but is not that of the names.
    pub fn unordered(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.items())
    }
}

impl<K: Borrow<str> + Ord, V> Names<K, V> {
    /// All, by name. O(n log n).
    pub fn iter(&self) -> std::vec::IntoIter<(&K, &V)> {
        let all = self.first(usize::MAX);
        assert_eq!(all.len(), self.len, "each is counted once");
        all.into_iter()
    }

    /// The first by name, so many at most. O(n + most log most).
    pub fn first(&self, most: usize) -> Vec<(&K, &V)> {
        let mut all: Vec<_> = self.unordered().collect();
        if most < all.len() {
            all.select_nth_unstable_by_key(most, |(name, _)| *name);
            all.truncate(most);
        }
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    /// All names, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> + ExactSizeIterator {
        self.iter().map(|(name, _)| name)
    }

    /// All values, by name.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> + ExactSizeIterator {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Borrow<str> + Clone, V: Clone> Names<K, V> {
    /// The value of a name, to be changed. Its part is copied if others share it.
    pub fn get_mut<Q: Borrow<str> + ?Sized>(&mut self, name: &Q) -> Option<&mut V> {
        let hash = hash(name.borrow());
        let part = self.parts.get_mut(part_of(hash))?;
        let at = part.find(hash, name.borrow()).ok()?;
        Some(&mut Arc::make_mut(part).slots[at].item.as_mut()?.1)
    }

    /// Gives a name a value: the one that it had.
    pub fn insert(&mut self, name: K, value: V) -> Option<V> {
        if self.parts.is_empty() {
            self.parts = vec![Arc::default(); PARTS];
        }
        let hash = hash(name.borrow());
        let part = Arc::make_mut(&mut self.parts[part_of(hash)]);
        let before = part.insert(hash, name, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Takes a name out: the value that it had.
    pub fn remove<Q: Borrow<str> + ?Sized>(&mut self, name: &Q) -> Option<V> {
        let hash = hash(name.borrow());
        let part = self.parts.get_mut(part_of(hash))?;
        let at = part.find(hash, name.borrow()).ok()?;
        self.len -= 1;
        Arc::make_mut(part).remove(at)
    }

    /// Gives all names of another their values there.
    pub fn take_all(&mut self, of: &Self) {
        self.extend(of.unordered().map(|(name, value)| (name.clone(), value.clone())));
    }

    /// The value of a name, to be changed; one that has none gets this.
    pub fn get_or_insert(&mut self, name: &K, value: impl FnOnce() -> V) -> &mut V {
        if !self.contains_key(name) {
            self.insert(name.clone(), value());
        }
        self.get_mut(name).expect("it has one by now")
    }
}

impl<K: Borrow<str>, V> Part<K, V> {
    /// All, in the order of their hashes.
    fn items(&self) -> impl Iterator<Item = (&K, &V)> {
        let items = self.slots.iter().filter_map(|slot| slot.item.as_ref());
        items.map(|(name, value)| (name, value))
    }

    /// The slot that a hash leads to.
    #[inline]
    fn home(&self, hash: u64) -> usize {
        let share = u128::from(hash << PARTS.ilog2()) * u128::try_from(self.width).unwrap_or(0);
        usize::try_from(share >> 64).unwrap_or(0)
    }

    /// The slot where a name is, or would be. At most three quarters of the slots are taken, so it
    /// is the first or second that is looked at.
    #[inline]
    fn find(&self, hash: u64, name: &str) -> Result<usize, usize> {
        let mut at = self.home(hash);
        while let Some(Slot { hash: there, item: Some((known, _)) }) = self.slots.get(at)
            && *there <= hash
        {
            if *there == hash {
                let known = known.borrow();
                if std::ptr::eq(known, name) || known == name {
                    return Ok(at);
                }
                if name < known {
                    break;
                }
            }
            at += 1;
        }
        Err(at)
    }

    /// Gives a name a value: the one that it had.
    fn insert(&mut self, hash: u64, name: K, value: V) -> Option<V> {
        if let Ok(at) = self.find(hash, name.borrow()) {
            let (_, known) = self.slots[at].item.as_mut()?;
            return Some(std::mem::replace(known, value));
        }
        self.len += 1;
        if self.width / 4 * 3 < self.len {
            self.widen((2 * self.len).max(4));
        }
        let at = self.find(hash, name.borrow()).unwrap_or_else(|at| at);
        let put = Slot { hash, item: Some((name, value)) };
        if let Some(free) = self.slots[at..].iter().position(|slot| slot.item.is_none()) {
            self.slots[at..=at + free].rotate_right(1);
            self.slots[at] = put;
        } else {
            self.slots.insert(at, put);
        }
        assert!(self.slots.len() <= self.width + self.len, "no slot is needed beyond the items");
        None
    }

    fn widen(&mut self, width: usize) {
        let before = std::mem::take(&mut self.slots);
        self.width = width;
        self.slots.resize_with(width, || Slot { hash: 0, item: None });
        let mut next = 0;
        for slot in before.into_iter().filter(|slot| slot.item.is_some()) {
            let at = self.home(slot.hash).max(next);
            if at < self.slots.len() {
                self.slots[at] = slot
            } else {
                self.slots.push(slot)
            }
            next = at + 1;
        }
    }

    /// Takes the item of a slot out. Those behind it that were in its way come nearer.
    fn remove(&mut self, mut at: usize) -> Option<V> {
        let (_, value) = self.slots[at].item.take()?;
        self.len -= 1;
        while let Some(Slot { hash, item: Some(_) }) = self.slots.get(at + 1)
            && self.home(*hash) <= at
        {
            self.slots.swap(at, at + 1);
            at += 1;
        }
        while self.width < self.slots.len()
            && self.slots.last().is_some_and(|slot| slot.item.is_none())
        {
            self.slots.pop();
        }
        Some(value)
    }
}

impl<K: Borrow<str> + PartialEq, V: PartialEq> PartialEq for Part<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.items().eq(other.items())
    }
}

fn part_of(hash: u64) -> usize {
    usize::try_from(hash >> (u64::BITS - PARTS.ilog2())).expect("it has eight bits")
}

fn hash(name: &str) -> u64 {
    hash_of(name.as_bytes())
}

/// A hash of few bytes: FNV-1a over words of eight, mixed. Whoever chooses the bytes can choose the
/// hash.
#[inline]
pub fn hash_of(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x100_0000_01b3);
        hash ^= hash >> 32;
    }
    mix(hash)
}

impl<K: Borrow<str> + PartialEq, V: PartialEq> PartialEq for Names<K, V> {
    fn eq(&self, other: &Self) -> bool {
        // The parts of two empty ones may be there, or not.
        let len = self.len == other.len;
        len && (self.len == 0
            || self.parts.iter().zip(&other.parts).all(|(a, b)| Arc::ptr_eq(a, b) || a == b))
    }
}

impl<K: Borrow<str> + Eq, V: Eq> Eq for Names<K, V> {}

impl<K: Borrow<str> + Ord + fmt::Debug, V: fmt::Debug> fmt::Debug for Names<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Borrow<str>, V, Q: Borrow<str> + ?Sized> Index<&Q> for Names<K, V> {
    type Output = V;
    fn index(&self, name: &Q) -> &V {
        self.get(name).expect("it has a value")
    }
}

impl<'a, K: Borrow<str> + Ord, V> IntoIterator for &'a Names<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = std::vec::IntoIter<(&'a K, &'a V)>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Borrow<str> + Clone, V: Clone> Extend<(K, V)> for Names<K, V> {
    fn extend<T: IntoIterator<Item = (K, V)>>(&mut self, items: T) {
        for (name, value) in items {
            self.insert(name, value);
        }
    }
}

impl<K: Borrow<str> + Clone, V: Clone> FromIterator<(K, V)> for Names<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(items: T) -> Self {
        let mut names = Self::default();
        names.extend(items);
        names
    }
}

impl<K: Borrow<str> + Clone, V: Clone, const N: usize> From<[(K, V); N]> for Names<K, V> {
    fn from(items: [(K, V); N]) -> Self {
        items.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn it_holds_what_a_tree_holds_and_gives_it_in_the_same_order(
            steps in proptest::collection::vec((any::<bool>(), 0_usize..3000), 0..300)
        ) {
            // A dozen in each part.
            let mut tree: BTreeMap<_, _> = (0..3000).map(|n| (format!("s{n}"), n)).collect();
            let mut names: Names<String, usize> =
                tree.iter().map(|(name, n)| (name.clone(), *n)).collect();
            for (at, (puts, n)) in steps.into_iter().enumerate() {
                let name = format!("s{n}");
                if puts {
                    prop_assert_eq!(names.insert(name.clone(), at), tree.insert(name, at));
                } else {
                    prop_assert_eq!(names.remove(&name), tree.remove(&name));
                }
                prop_assert_eq!(names.len(), tree.len());
            }
            prop_assert!(names.iter().eq(tree.iter()));
            prop_assert!(names.first(7).into_iter().eq(tree.iter().take(7)));
            prop_assert!(tree.iter().all(|(name, value)| names.get(name) == Some(value)));
            let other: Names<String, usize> = tree.into_iter().rev().collect();
            prop_assert_eq!(names, other);
        }
    }

    #[test]
    fn a_copy_is_beside_its_original_where_the_two_share_nothing() {
        let name = |n: usize| format!("n{n}");
        let before: Names<String, usize> = (0..10_000).map(|n| (name(n), n)).collect();
        let mut now = before.clone();
        assert_eq!(now.beside(&before).count(), 0);
        now.insert(name(7), 70);
        now.remove(&name(8));
        now.insert("new".to_owned(), 1);
        let all: Vec<_> = now.beside(&before).collect();
        assert!(all.len() < 300, "{} are looked at", all.len());
        let mut other: Vec<_> = all.into_iter().filter(|(_, was, is)| was != is).collect();
        other.sort_unstable();
        let [seven, eight, new] = [name(7), name(8), "new".to_owned()];
        let wanted =
            [(&seven, Some(&7), Some(&70)), (&eight, Some(&8), None), (&new, None, Some(&1))];
        assert_eq!(other, wanted);
        assert_eq!(now.beside(&Names::default()).count(), now.len());
        assert_eq!(Names::default().beside(&now).count(), now.len());
    }

    #[test]
    fn a_copy_keeps_what_it_had_and_shares_what_did_not_change() {
        let mut names: Names<String, u32> = (0..1000).map(|n| (format!("a{n}"), n)).collect();
        let before = names.clone();
        *names.get_mut("a7").unwrap() = 1007;
        assert_eq!((before.get("a7"), names.get("a7")), (Some(&7), Some(&1007)));
        let shared = before.parts.iter().zip(&names.parts).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(shared.count(), PARTS - 1);
        let most = before.parts.iter().map(|part| part.len).max();
        assert!(most < Some(20), "four are expected: {most:?}");
    }

    #[test]
    fn names_with_one_hash_are_told_apart() {
        let mut part = Part::default();
        for name in ["b", "a", "c"] {
            assert_eq!(part.insert(7, name.to_owned(), ()), None);
        }
        let found = |part: &Part<String, ()>| ["a", "b", "c", "d"].map(|name| part.find(7, name));
        assert_eq!(found(&part), [Ok(0), Ok(1), Ok(2), Err(3)]);
        assert_eq!(part.remove(0), Some(()));
        assert_eq!(found(&part), [Err(0), Ok(0), Ok(1), Err(2)]);
    }

    #[test]
    fn slots_beyond_the_width_go_with_their_items() {
        let mut part = Part::default();
        let last = u64::MAX >> PARTS.ilog2();
        for name in ["a", "b", "c"] {
            part.insert(last, name.to_owned(), ());
        }
        for name in ["a", "b", "c"] {
            let at = part.find(last, name).unwrap();
            part.remove(at);
        }
        assert_eq!((part.slots.len(), part.width), (4, 4));
        part.insert(0, "d".to_owned(), ());
        assert_eq!(part.find(0, "d"), Ok(0));
    }

    proptest! {
        /// Of hashes of which many lead to one slot, and to the last.
        #[test]
        fn where_an_item_is_follows_from_who_is_there(
            mut steps in proptest::collection::vec((any::<bool>(), 0_u64..40, 0_usize..3), 0..120)
        ) {
            let hash = |n: u64| if n < 20 { n } else { (u64::MAX >> PARTS.ilog2()) - n % 20 / 4 };
            let (mut part, mut tree) = (Part::default(), BTreeMap::new());
            steps.push((true, 39, 2));
            for (puts, n, name) in steps {
                let key = (hash(n), format!("n{name}"));
                if puts {
                    let before = part.insert(key.0, key.1.clone(), n);
                    prop_assert_eq!(before, tree.insert(key, n));
                } else {
                    let found = part.find(key.0, &key.1).ok();
                    let gone = found.and_then(|at| part.remove(at));
                    prop_assert_eq!(gone, tree.remove(&key));
                }
                prop_assert_eq!(part.len, tree.len());
                prop_assert!(part.len <= part.width / 4 * 3);
            }
            prop_assert!(part.items().eq(tree.iter().map(|((_, name), n)| (name, n))));
            let mut next = 0;
            let slots = part.slots.iter().enumerate();
            for (at, slot) in slots.filter(|(_, slot)| slot.item.is_some()) {
                prop_assert_eq!(at, part.home(slot.hash).max(next));
                next = at + 1;
            }
            for (hash, name) in tree.keys() {
                prop_assert!(part.find(*hash, name).is_ok());
            }
        }
    }
}

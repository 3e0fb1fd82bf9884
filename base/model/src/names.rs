//! A map by name that is cheap to copy though it is large: parts of it are shared until they
//! change.
//!
//! ```text
//! name ──> hash ──> [ part | part | part' | part ]     a copy after a change shares all parts but
//!                             └─ hashes, in order       one
//! ```

use std::borrow::Borrow;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

use crate::number::mix;

/// Values by name. A look-up costs a hash and some neighbouring numbers, whatever there is; a copy
/// [`PARTS`] pointers; a change, once per copy, the items of a part. Going through all of them in
/// order costs a sort.
#[derive(Clone)]
pub struct Names<K, V> {
    /// By the first bits of the hash; empty before the first insertion.
    parts: Vec<Arc<Part<K, V>>>,
    len: usize,
}

/// Invariant: both lists are as long, and in the order of the hashes; equal ones of the names.
#[derive(Clone, PartialEq, Eq)]
struct Part<K, V> {
    hashes: Vec<u64>,
    items: Vec<(K, V)>,
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
        Self { hashes: Vec::new(), items: Vec::new() }
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
        Some(&part.items[at].1)
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
        let items = |of: &'a Self, at: usize| of.parts.get(at).map_or(&[][..], |part| &part.items);
        let is_shared = |at: &usize| match (self.parts.get(*at), before.parts.get(*at)) {
            (Some(here), Some(there)) => Arc::ptr_eq(here, there),
            (here, there) => here.is_none() && there.is_none(),
        };
        (0..PARTS).filter(move |at| !is_shared(at)).flat_map(move |at| {
            let here = items(self, at).iter();
            let here = here.map(|(name, value)| (name, before.get(name), Some(value)));
            let gone = items(before, at).iter().filter(|(name, _)| !self.contains_key(name));
            here.chain(gone.map(|(name, value)| (name, Some(value), None)))
        })
    }

    /// All in an order that is the same everywhere, but is not that of the names.
    pub fn unordered(&self) -> impl Iterator<Item = (&K, &V)> {
        let items = self.parts.iter().flat_map(|part| &part.items);
        items.map(|(name, value)| (name, value))
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
        Some(&mut Arc::make_mut(part).items[at].1)
    }

    /// Gives a name a value: the one that it had.
    pub fn insert(&mut self, name: K, value: V) -> Option<V> {
        if self.parts.is_empty() {
            self.parts = vec![Arc::default(); PARTS];
        }
        let hash = hash(name.borrow());
        let part = Arc::make_mut(&mut self.parts[part_of(hash)]);
        match part.find(hash, name.borrow()) {
            Ok(at) => Some(std::mem::replace(&mut part.items[at].1, value)),
            Err(at) => {
                part.hashes.insert(at, hash);
                part.items.insert(at, (name, value));
                self.len += 1;
                None
            }
        }
    }

    /// Takes a name out: the value that it had.
    pub fn remove<Q: Borrow<str> + ?Sized>(&mut self, name: &Q) -> Option<V> {
        let hash = hash(name.borrow());
        let part = self.parts.get_mut(part_of(hash))?;
        let at = part.find(hash, name.borrow()).ok()?;
        let part = Arc::make_mut(part);
        part.hashes.remove(at);
        self.len -= 1;
        Some(part.items.remove(at).1)
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
    /// Where a name is, or would be. Hashes are even, so it is near where its own says.
    fn find(&self, hash: u64, name: &str) -> Result<usize, usize> {
        let len = self.hashes.len();
        let share = u128::from(hash << PARTS.ilog2()) * u128::try_from(len).unwrap_or(0);
        let mut at = usize::try_from(share >> 64).unwrap_or(0);
        while 0 < at && hash <= self.hashes[at - 1] {
            at -= 1;
        }
        while at < len && self.hashes[at] < hash {
            at += 1;
        }
        while at < len && self.hashes[at] == hash {
            if std::ptr::eq(self.items[at].0.borrow(), name) {
                return Ok(at);
            }
            match self.items[at].0.borrow().cmp(name) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Equal => return Ok(at),
                std::cmp::Ordering::Greater => break,
            }
        }
        Err(at)
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

impl<K: PartialEq, V: PartialEq> PartialEq for Names<K, V> {
    fn eq(&self, other: &Self) -> bool {
        // The parts of two empty ones may be there, or not.
        let len = self.len == other.len;
        len && (self.len == 0
            || self.parts.iter().zip(&other.parts).all(|(a, b)| Arc::ptr_eq(a, b) || a == b))
    }
}

impl<K: Eq, V: Eq> Eq for Names<K, V> {}

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
        let most = before.parts.iter().map(|part| part.items.len()).max();
        assert!(most < Some(20), "four are expected: {most:?}");
    }

    #[test]
    fn names_with_one_hash_are_told_apart() {
        let mut part = Part { hashes: Vec::new(), items: Vec::new() };
        for name in ["b", "a", "c"] {
            let at = part.find(7, name).unwrap_err();
            part.hashes.insert(at, 7);
            part.items.insert(at, (name.to_owned(), ()));
        }
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| part.find(7, name)),
            [Ok(0), Ok(1), Ok(2), Err(3)]
        );
    }
}

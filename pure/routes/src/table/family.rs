//! The prefixes of one family: a tree that takes six bits of an address at a time, and of which a
//! copy shares all that stays as it is.
//!
//! ```text
//! 10.1.2.0/24 ──> bits 1-6 ──> 7-12 ──> 13-18 ──> 19-24   four nodes, of which the first two stay
//!                                                        in a core's cache
//! ```
//!
//! A node knows by one bit each which prefixes of up to six bits more have ways (a tree bitmap:
//! Eatherton, Varghese and Dittia, 2004). Nodes that have none, and lead to one other only, are
//! left out: besides the root there are fewer than twice as many nodes as prefixes. A change copies
//! the nodes above it that somebody else reads: at most 22, each with at most 64 pointers and the
//! ways of all sites to at most 127 prefixes.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use model::near::{Class, Step};
use model::number::index;
use model::topology::Prefix;

use crate::attributes::Attributes;
use crate::order::{Kept, Way};

/// The prefixes of a family, with the ways to each.
#[derive(Clone, Debug)]
pub(super) struct Family<N> {
    root: Arc<Node>,
    len: usize,
    net: PhantomData<N>,
}

/// Bits of a node.
const STRIDE: u8 = 6;

/// Lengths of a node's prefixes: one of each may cover a client.
const LENS: usize = 7;

/// The prefixes that begin with the same bits, and are up to six bits longer.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Those bits, the highest first; the others are 0.
    base: u128,
    /// How many: a multiple of six.
    depth: u8,
    /// By slot: whether there is such a prefix. The slot of one that is `n` bits longer is `2^n`
    /// and those bits, so a longer one has a higher bit; and 1 is the root's own, without bits.
    held: u128,
    /// By the next six bits: whether longer prefixes begin with them.
    below: u64,
    /// Ways in the order of their slots; those to one prefix best first. Each prefix has one or
    /// more, so the first ways tell besides where those to the first prefixes end, in the same
    /// order: none is searched for, and no more memory is read.
    hops: Box<[Hop]>,
    /// What was heard with each of them, in their order; empty where nothing was. Apart, since a
    /// client's sites are found without it.
    heard: Box<[Heard]>,
    /// In the order of their bits.
    nodes: Box<[Arc<Self>]>,
}

/// The part of a way that is read for each client, in 12 bytes: those of a node are in a few cache
/// lines beside each other.
#[derive(Clone, Copy, Debug)]
struct Hop {
    site: u32,
    /// Where the ways to one of the node's prefixes end.
    end: u32,
    class: Class,
    step: Step,
}

/// The other part.
#[derive(Clone, Debug, Default)]
struct Heard {
    attributes: Option<Arc<Attributes>>,
    table: u32,
}

/// The ways to a prefix, best first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ways<'a> {
    hops: &'a [Hop],
    /// As long, or empty.
    heard: &'a [Heard],
}

impl<'a> Ways<'a> {
    pub(super) fn len(self) -> usize {
        self.hops.len()
    }

    /// The one at a place.
    #[inline]
    pub(super) fn at(self, at: usize) -> Kept<'a> {
        let Hop { site, class, step, .. } = self.hops[at];
        let heard = self.heard.get(at);
        let table = heard.map_or(0, |heard| heard.table);
        Kept { site, heard: heard.and_then(|heard| heard.attributes.as_ref()), table, class, step }
    }

    #[inline]
    pub(super) fn iter(self) -> impl Iterator<Item = Kept<'a>> {
        (0..self.len()).map(move |at| self.at(at))
    }

    /// The same, to be changed.
    pub(super) fn to_vec(self) -> Vec<Way> {
        self.iter().map(Kept::owned).collect()
    }
}

/// A prefix as bits: the highest first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    bits: u128,
    len: u8,
}

/// A prefix of one family.
pub(super) trait Net: Copy {
    fn key(self) -> Key;
    /// One that [`Net::key`] gave, or a shorter one.
    fn of(key: Key) -> Self;
    fn any(self) -> Prefix;
}

impl Net for Ipv4Net {
    fn key(self) -> Key {
        Key { bits: u128::from(u32::from(self.network())) << 96, len: self.prefix_len() }
    }

    fn of(key: Key) -> Self {
        let bits = u32::try_from(key.bits >> 96).expect("32 bits are left");
        Self::new(bits.into(), key.len).expect("no longer than the family has them")
    }

    fn any(self) -> Prefix {
        Prefix::V4(self)
    }
}

impl Net for Ipv6Net {
    fn key(self) -> Key {
        Key { bits: self.network().into(), len: self.prefix_len() }
    }

    fn of(key: Key) -> Self {
        Self::new(key.bits.into(), key.len).expect("no longer than the family has them")
    }

    fn any(self) -> Prefix {
        Prefix::V6(self)
    }
}

impl Key {
    /// Of the node that has it.
    fn depth(self) -> u8 {
        self.len.saturating_sub(1) / STRIDE * STRIDE
    }

    /// Its first bits.
    fn cut(self, len: u8) -> Self {
        let rest = u128::MAX.checked_shr(len.into()).unwrap_or(0);
        Self { bits: self.bits & !rest, len }
    }

    /// The six bits after so many.
    #[inline]
    fn six(self, depth: u8) -> usize {
        let six = (self.bits << depth) >> (128 - STRIDE);
        usize::try_from(six).expect("six bits")
    }

    /// True if it begins with the bits of a node.
    #[inline]
    fn is_below(self, node: &Node) -> bool {
        self.shared(node.base) >= node.depth
    }

    /// The first bits that it has in common with others.
    #[inline]
    fn shared(self, bits: u128) -> u8 {
        u8::try_from((self.bits ^ bits).leading_zeros()).expect("at most 128")
    }
}

/// By six bits: the slots of all that begin as they do.
const COVERING: [u128; 64] = {
    let (mut all, mut six) = ([0; 64], 0);
    while six < 64 {
        let mut len = 0;
        while len <= 6 {
            all[six] |= 1_u128 << ((1 << len) | (six >> (6 - len)));
            len += 1;
        }
        six += 1;
    }
    all
};

impl Node {
    /// The place of a prefix that it has, or may have.
    fn slot(&self, key: Key) -> u8 {
        assert_eq!(key.depth(), self.depth, "another node has it");
        let more = key.len - self.depth;
        let bits = key.six(self.depth) >> (STRIDE - more);
        u8::try_from(1 << more | bits).expect("seven bits")
    }

    /// The slots of its prefixes that cover what begins with its bits and is so long.
    #[inline]
    fn covering(&self, client: Key) -> u128 {
        let more = (client.len - self.depth).min(STRIDE);
        let no_longer = u128::MAX >> (127 - ((2_u32 << more) - 1));
        self.held & COVERING[client.six(self.depth)] & no_longer
    }

    /// The prefix of a slot.
    fn key(&self, slot: u8) -> Key {
        let more = u8::try_from(slot.ilog2()).expect("at most six");
        let bits = u128::from(slot ^ (1 << more));
        let len = self.depth + more;
        Key { bits: self.base | bits.checked_shl(128 - u32::from(len)).unwrap_or(0), len }
    }

    /// How many of its prefixes have lower slots, and where the ways to the one of this slot are,
    /// or would be.
    #[inline]
    fn range(&self, slot: u8) -> (usize, Range<usize>) {
        let bit = 1_u128 << slot;
        let before = index((self.held & (bit - 1)).count_ones());
        let first = before.checked_sub(1).map_or(0, |last| index(self.hops[last].end));
        let end = if self.held & bit == 0 { first } else { index(self.hops[before].end) };
        (before, first..end)
    }

    /// The ways in a range.
    #[inline]
    fn ways(&self, range: Range<usize>) -> Ways<'_> {
        let heard = if self.heard.is_empty() { &[] } else { &self.heard[range.clone()] };
        Ways { hops: &self.hops[range], heard }
    }

    /// Where the node of the next six bits is, or would be.
    #[inline]
    fn place(&self, six: usize) -> (bool, usize) {
        let bit = 1_u64 << six;
        let before = (self.below & (bit - 1)).count_ones();
        (self.below & bit != 0, index(before))
    }

    fn next(&self, client: Key) -> Option<&Self> {
        let (is_there, at) = self.place(client.six(self.depth));
        if !is_there || client.len <= self.depth + STRIDE {
            return None;
        }
        let node = &*self.nodes[at];
        (node.depth < client.len && client.is_below(node)).then_some(node)
    }

    /// Looks at the prefixes that cover a client, longest first. Where the ways to those of a node
    /// are is read for all of them before the first ways are: they are far from each other, and so
    /// are waited for once.
    fn cover<'a, T>(
        &'a self,
        client: Key,
        look: &mut impl FnMut(Key, Ways<'a>) -> Option<T>,
    ) -> Option<T> {
        if let Some(found) = self.next(client).and_then(|next| next.cover(client, look)) {
            return Some(found);
        }
        let (mut slots, mut ranges, mut len) = (self.covering(client), [(0, 0, 0); LENS], 0);
        while let Some(slot) = slots.checked_ilog2() {
            slots ^= 1 << slot;
            let slot = u8::try_from(slot).expect("there are 128");
            let (_, range) = self.range(slot);
            ranges[len] = (slot, range.start, range.end);
            len += 1;
        }
        let ranges = ranges[..len].iter();
        let mut found = ranges.map(|(slot, first, end)| (self.key(*slot), self.ways(*first..*end)));
        found.find_map(|(key, ways)| look(key, ways))
    }

    /// True if neither it nor what it leads to has a prefix.
    fn is_empty(&self) -> bool {
        self.held == 0 && self.below == 0
    }

    /// Changes the ways to a prefix; gives whether it had some, and has some.
    fn change(&mut self, key: Key, change: impl FnOnce(&mut Vec<Way>)) -> (bool, bool) {
        if key.depth() == self.depth {
            return self.change_own(self.slot(key), change);
        }
        let six = key.six(self.depth);
        let (is_there, at) = self.place(six);
        if !is_there {
            let mut node = Self::at(key, key.depth());
            let changed = node.change(key, change);
            if !node.is_empty() {
                self.put(six, at, node);
            }
            return changed;
        }
        let node = &mut self.nodes[at];
        let depth = key.depth().min(key.shared(node.base) / STRIDE * STRIDE);
        if depth < node.depth {
            // A node that is not there yet leads to both, or has the new one itself.
            let mut fork = Self::at(key, depth);
            let known = Key { bits: node.base, len: node.depth };
            fork.below = 1 << known.six(depth);
            fork.nodes = Box::new([Arc::clone(node)]);
            let changed = fork.change(key, change);
            if changed.1 {
                *node = Arc::new(fork);
            }
            return changed;
        }
        let below = Arc::make_mut(node);
        let changed = below.change(key, change);
        if below.is_empty() {
            self.take(six, at);
        } else if below.held == 0
            && let [only] = &*below.nodes
        {
            *node = Arc::clone(only);
        }
        changed
    }

    fn change_own(&mut self, slot: u8, change: impl FnOnce(&mut Vec<Way>)) -> (bool, bool) {
        let (at, range) = self.range(slot);
        let (first, len) = (range.start, range.len());
        let mut own = self.ways(range.clone()).to_vec();
        change(&mut own);
        let now = own.len();
        let end = |end: usize| u32::try_from(end).expect("fewer ways than sites times prefixes");
        let prefixes = index(self.held.count_ones());
        let mut ends: Vec<u32> = self.hops[..prefixes].iter().map(|hop| hop.end).collect();
        ends.splice(at..at + usize::from(len != 0), (now != 0).then_some(end(first + len)));
        ends[at..].iter_mut().for_each(|of| *of = end(index(*of) + now - len));
        let mut hops = std::mem::take(&mut self.hops).into_vec();
        let hop = |way: &Way| Hop { site: way.site, end: 0, class: way.class, step: way.step };
        hops.splice(range.clone(), own.iter().map(hop));
        hops.iter_mut().zip(&ends).for_each(|(hop, end)| hop.end = *end);
        self.change_heard(range, hops.len(), own);
        self.hops = hops.into();
        self.held = self.held & !(1 << slot) | u128::from(now != 0) << slot;
        assert_eq!(ends.len(), index(self.held.count_ones()), "each prefix has an end");
        assert!(ends.len() <= self.hops.len(), "and a way that tells it");
        (len != 0, now != 0)
    }

    /// The ways in a range are these now, and so many there are in all.
    fn change_heard(&mut self, range: Range<usize>, count: usize, own: Vec<Way>) {
        let mut heard = std::mem::take(&mut self.heard).into_vec();
        if heard.is_empty() {
            if own.iter().all(|way| way.heard.is_none()) {
                return;
            }
            heard.resize_with(count + range.len() - own.len(), Heard::default);
        }
        let own = own.into_iter().map(|way| Heard { attributes: way.heard, table: way.table });
        heard.splice(range, own);
        assert_eq!(heard.len(), count, "one for each way");
        if heard.iter().any(|heard| heard.attributes.is_some()) {
            self.heard = heard.into();
        }
    }

    /// One that may have a prefix, or lead to it.
    fn at(key: Key, depth: u8) -> Self {
        Self { base: key.cut(depth).bits, depth, ..Self::default() }
    }

    fn put(&mut self, six: usize, at: usize, node: Self) {
        let mut nodes = std::mem::take(&mut self.nodes).into_vec();
        nodes.insert(at, Arc::new(node));
        self.nodes = nodes.into();
        self.below |= 1 << six;
    }

    fn take(&mut self, six: usize, at: usize) {
        let mut nodes = std::mem::take(&mut self.nodes).into_vec();
        nodes.remove(at);
        self.nodes = nodes.into();
        self.below &= !(1 << six);
    }

    /// Looks at its prefixes, then at those below, from one on; false once `look` says enough.
    fn look(&self, from: Key, look: &mut impl FnMut(Key, Ways<'_>) -> bool) -> bool {
        let is_inside = from.depth() >= self.depth && from.is_below(self);
        if !is_inside && from.bits > self.base && from.shared(self.base) < from.depth() {
            // All that begins with its bits comes before.
            return true;
        }
        let (slot, six) = match () {
            () if !is_inside => (0, 0),
            () if from.depth() == self.depth => (self.slot(from), 0),
            () => (u8::MAX, from.six(self.depth)),
        };
        let mut own = self.held & u128::MAX.checked_shl(slot.into()).unwrap_or(0);
        while own != 0 {
            let slot = u8::try_from(own.trailing_zeros()).expect("there are 128");
            own &= own - 1;
            if !look(self.key(slot), self.ways(self.range(slot).1)) {
                return false;
            }
        }
        let (_, first) = self.place(six);
        self.nodes[first..].iter().all(|node| node.look(from, look))
    }
}

impl<N> Default for Family<N> {
    fn default() -> Self {
        Self { root: Arc::default(), len: 0, net: PhantomData }
    }
}

impl<N: Net> Family<N> {
    /// The prefixes that cover a client, longest first, until `look` finds what it looks for.
    #[inline]
    pub(super) fn covering<'a, T>(
        &'a self,
        client: N,
        mut look: impl FnMut(N, Ways<'a>) -> Option<T>,
    ) -> Option<T> {
        self.root.cover(client.key(), &mut |key, ways| look(N::of(key), ways))
    }

    /// Changes the ways to a prefix; one without ways goes.
    pub(super) fn change(&mut self, prefix: N, change: impl FnOnce(&mut Vec<Way>)) {
        match Arc::make_mut(&mut self.root).change(prefix.key(), change) {
            (false, true) => self.len += 1,
            (true, false) => self.len -= 1,
            (true, true) | (false, false) => {}
        }
    }

    /// Looks at each prefix, in an order of its own.
    pub(super) fn each(&self, mut look: impl FnMut(N, Ways<'_>)) {
        let mut all = |key, ways: Ways<'_>| {
            look(N::of(key), ways);
            true
        };
        self.root.look(Key { bits: 0, len: 0 }, &mut all);
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Looks at so many prefixes, and takes what `look` gives in place of their ways. Begins with
    /// the first, or with one that it gave before; gives how many it looked at, and the next.
    pub(super) fn replace(
        &mut self,
        from: Option<Key>,
        most: usize,
        mut look: impl FnMut(N, Ways<'_>) -> Option<Vec<Way>>,
    ) -> (usize, Option<Key>) {
        let (mut looked, mut changes, mut next) = (0, Vec::new(), None);
        self.root.look(from.unwrap_or(Key { bits: 0, len: 0 }), &mut |key, ways| {
            if looked == most {
                next = Some(key);
                return false;
            }
            looked += 1;
            changes.extend(look(N::of(key), ways).map(|ways| (key, ways)));
            true
        });
        for (key, ways) in changes {
            self.change(N::of(key), |all| *all = ways);
        }
        assert!(looked <= most, "that is a slice");
        (looked, next)
    }

    /// The nodes that are not shared with the other, and the ways in them.
    #[cfg(test)]
    pub(super) fn unshared(&self, other: &Self) -> (usize, usize) {
        let (mut known, mut left) = (std::collections::BTreeSet::new(), vec![&other.root]);
        while let Some(node) = left.pop() {
            known.insert(Arc::as_ptr(node));
            left.extend(&node.nodes);
        }
        let (mut nodes, mut ways) = (0, 0);
        left.push(&self.root);
        while let Some(node) = left.pop() {
            if !known.contains(&Arc::as_ptr(node)) {
                nodes += 1;
                ways += node.hops.len();
                left.extend(&node.nodes);
            }
        }
        (nodes, ways)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Addresses of few values, some of which share all bits but the last; of all lengths.
    fn net() -> impl Strategy<Value = Ipv6Net> {
        let bits = prop_oneof![Just(0), Just(1), Just(1 << 127), any::<u8>().prop_map(u128::from)];
        let shift = prop_oneof![Just(0), Just(120), Just(64), 0..120_u32];
        let len = prop_oneof![0..=128_u8, (0..=21_u8).prop_map(|n| n * STRIDE)];
        (bits, shift, len).prop_map(|(bits, shift, len)| {
            Ipv6Net::new((bits << shift).into(), len).unwrap().trunc()
        })
    }

    /// Nodes, and whether each is needed.
    fn nodes(node: &Node) -> usize {
        assert!(node.depth == 0 || node.held != 0 || 1 < node.nodes.len(), "it leads somewhere");
        assert_eq!(node.nodes.len(), usize::try_from(node.below.count_ones()).unwrap());
        1 + node.nodes.iter().map(|node| nodes(node)).sum::<usize>()
    }

    proptest! {
        #[test]
        fn the_tree_is_a_map_with_all_that_cover_a_client(
            changes in proptest::collection::vec((net(), 0..3_u32), 0..60),
            clients in proptest::collection::vec(net(), 1..20),
            from in net(),
            most in 1..9_usize,
        ) {
            let (mut family, mut map) = (Family::default(), BTreeMap::new());
            for (net, count) in changes {
                let ways: Vec<Way> = (0..count).map(|site| Way::new(site, 0, None)).collect();
                family.change(net, |all| *all = ways);
                if count == 0 { map.remove(&net) } else { map.insert(net, count) };
                prop_assert_eq!(family.len(), map.len());
                prop_assert!(nodes(&family.root) <= 2 * map.len() + 1);
            }
            let of = |net, ways: Ways<'_>| (net, u32::try_from(ways.len()).unwrap());
            for client in clients.iter().chain(map.keys()) {
                let mut found = Vec::new();
                let none: Option<()> = family.covering(*client, |net, ways| {
                    found.push(of(net, ways));
                    None
                });
                prop_assert_eq!(none, None);
                let mut all: Vec<_> = map.iter().filter(|(net, _)| net.contains(client)).collect();
                all.sort_by_key(|(net, _)| std::cmp::Reverse(net.prefix_len()));
                let all: Vec<_> = all.into_iter().map(|(net, count)| (*net, *count)).collect();
                let longest = all.first().map(|(net, _)| *net);
                prop_assert_eq!(family.covering(*client, |net, _| Some(net)), longest);
                prop_assert_eq!(found, all);
            }
            // All of them, in slices; and from anywhere on, the same as follows in the whole.
            let mut each = Vec::new();
            family.each(|net, ways| each.push(of(net, ways)));
            prop_assert_eq!(each.iter().copied().collect::<BTreeMap<_, _>>(), map.clone());
            let (mut next, mut slices) = (None, Vec::new());
            loop {
                let (looked, then) = family.replace(next, most, |net, ways| {
                    slices.push(of(net, ways));
                    None
                });
                prop_assert!(looked <= most);
                next = then;
                if next.is_none() {
                    break;
                }
            }
            prop_assert_eq!(&slices, &each);
            let mut rest = Vec::new();
            family.replace(Some(from.key()), usize::MAX, |net, ways| {
                rest.push(of(net, ways));
                None
            });
            prop_assert!(each.ends_with(&rest));
            let mut with = family.clone();
            with.change(from, |all| *all = vec![Way::new(9, 0, None)]);
            let mut order = Vec::new();
            with.each(|net, _| order.push(net));
            let at = order.iter().position(|net| *net == from).unwrap();
            let mut rest: Vec<_> = rest.into_iter().map(|(net, _)| net).collect();
            rest.retain(|net| *net != from);
            prop_assert_eq!(&order[at + 1..], &rest[..]);
        }
    }
}

//! The prefixes of one family, in parts that are copied when they change while somebody reads.
//!
//! ```text
//! IPv4  /0 to /11 ──> short      /12 to /17 ──> 4,096 groups      /18 to /32 ──> 64 parts of each
//! IPv6  /0 to /23                /24 to /39                       /40 to /128    256
//! ```
//!
//! A part has so few prefixes that a copy takes no time, also where one network has many: those of
//! a /12 are at most 63 and 64 times 2^15 - 1, of which the internet has up to some thousands.

use std::sync::Arc;

use ipnet::{Ipv4Net, Ipv6Net};
use model::topology::Prefix;
use prefix_trie::PrefixMap;

use super::USUAL;
use crate::order::Way;

/// The ways to a prefix, best first.
pub(super) type Ways = Arc<[Way]>;

#[derive(Clone, Debug)]
pub(super) struct Family<N: prefix_trie::Prefix> {
    /// Prefixes too short for a group.
    short: Part<N>,
    groups: Arc<Vec<Option<Arc<Group<N>>>>>,
}

type Part<N> = Arc<PrefixMap<N, Ways>>;

#[derive(Clone, Debug)]
struct Group<N: prefix_trie::Prefix> {
    /// Prefixes too short for a part.
    short: Part<N>,
    parts: Vec<Option<Part<N>>>,
}

pub(super) const GROUPS: usize = 4096;

/// A prefix of one family.
pub(super) trait Net: prefix_trie::Prefix + Copy {
    /// The parts of a group.
    const PARTS: usize;
    /// The group that it is in; none if it is in many.
    fn group(&self) -> Option<usize>;
    /// The part of the group that it is in; none if it is in many.
    fn part(&self) -> Option<usize>;
    fn any(self) -> Prefix;
}

impl Net for Ipv4Net {
    const PARTS: usize = 64;

    /// By the first 12 bits.
    fn group(&self) -> Option<usize> {
        let head = u32::from(self.network()) >> 20;
        assert!(head < 4096, "12 bits are left");
        (12 <= self.prefix_len()).then(|| usize::try_from(head).expect("12 bits"))
    }

    /// By the next six.
    fn part(&self) -> Option<usize> {
        let next = u32::from(self.network()) >> 14 & 63;
        (18 <= self.prefix_len()).then(|| usize::try_from(next).expect("six bits"))
    }

    fn any(self) -> Prefix {
        Prefix::V4(self)
    }
}

impl Net for Ipv6Net {
    const PARTS: usize = 256;

    /// By a hash of the first 24 bits, of which registries use a few thousand values.
    fn group(&self) -> Option<usize> {
        (24 <= self.prefix_len()).then(|| hash(u128::from(self.network()) >> 104, 12))
    }

    /// By a hash of the first 40: networks have theirs in a row, or with gaps.
    fn part(&self) -> Option<usize> {
        (40 <= self.prefix_len()).then(|| hash(u128::from(self.network()) >> 88, 8))
    }

    fn any(self) -> Prefix {
        Prefix::V6(self)
    }
}

/// So many bits of a hash. Fibonacci hashing: 2^64 divided by the golden ratio.
fn hash(head: u128, bits: u32) -> usize {
    let head = u64::try_from(head).expect("at most 64 bits");
    let hash = head.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - bits);
    usize::try_from(hash).expect("so many bits")
}

impl<N: Net> Default for Family<N> {
    fn default() -> Self {
        Self { short: Arc::default(), groups: Arc::new(vec![None; GROUPS]) }
    }
}

impl<N: Net> Default for Group<N> {
    fn default() -> Self {
        Self { short: Arc::default(), parts: vec![None; N::PARTS] }
    }
}

impl<N: Net> Group<N> {
    fn of(&self, part: Option<usize>) -> Option<&Part<N>> {
        part.and_then(|at| self.parts[at].as_ref())
    }

    fn iter(&self) -> impl Iterator<Item = (N, &Ways)> {
        self.short.iter().chain(self.parts.iter().flatten().flat_map(|part| part.iter()))
    }

    fn len(&self) -> usize {
        self.short.len() + self.parts.iter().flatten().map(|part| part.len()).sum::<usize>()
    }
}

impl<N: Net> Family<N> {
    /// The prefixes that cover a client, longest first.
    pub(super) fn covering(&self, client: N) -> Vec<(N, &Ways)> {
        let group = client.group().and_then(|group| self.groups[group].as_deref());
        let part = group.and_then(|group| group.of(client.part()));
        let mut found = Vec::with_capacity(USUAL);
        for part in [Some(&self.short), group.map(|group| &group.short), part] {
            found.extend(part.into_iter().flat_map(|part| part.cover(&client)));
        }
        found.reverse();
        assert!(found.len() <= 129, "a family has no more lengths");
        found
    }

    /// Changes the ways to a prefix; one without ways goes.
    pub(super) fn change(&mut self, prefix: N, change: impl FnOnce(&mut Vec<Way>)) {
        let part = match prefix.group() {
            None => &mut self.short,
            Some(group) => {
                let group = Arc::make_mut(&mut self.groups)[group].get_or_insert_default();
                let group = Arc::make_mut(group);
                match prefix.part() {
                    None => &mut group.short,
                    Some(part) => group.parts[part].get_or_insert_default(),
                }
            }
        };
        let part = Arc::make_mut(part);
        let mut ways = part.get(&prefix).map(|ways| ways.to_vec()).unwrap_or_default();
        change(&mut ways);
        if ways.is_empty() {
            part.remove(&prefix);
        } else {
            part.insert(prefix, ways.into());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (N, &Ways)> {
        self.short.iter().chain(self.groups.iter().flatten().flat_map(|group| group.iter()))
    }

    /// O(parts).
    pub(super) fn len(&self) -> usize {
        self.short.len() + self.groups.iter().flatten().map(|group| group.len()).sum::<usize>()
    }

    /// Looks at the prefixes of one group, of the short ones for 0, and takes what `look` gives in
    /// place of their ways. Gives how many it looked at.
    pub(super) fn replace(
        &mut self,
        at: usize,
        mut look: impl FnMut(N, &Ways) -> Option<Vec<Way>>,
    ) -> usize {
        let (mut looked, mut changes) = (0, Vec::new());
        let mut take = |(prefix, ways): (N, &Ways)| {
            looked += 1;
            changes.extend(look(prefix, ways).map(|ways| (prefix, ways)));
        };
        match at.checked_sub(1) {
            None => self.short.iter().for_each(&mut take),
            Some(at) => self.groups[at].iter().for_each(|of| of.iter().for_each(&mut take)),
        }
        for (prefix, ways) in changes {
            self.change(prefix, |all| *all = ways);
        }
        looked
    }

    /// How many parts are not shared with the other, and the prefixes in them.
    #[cfg(test)]
    pub(super) fn unshared(&self, other: &Self) -> (usize, usize) {
        let mut all: Vec<&Part<N>> = Vec::new();
        let mut known = std::collections::BTreeSet::new();
        for (family, is_known) in [(other, true), (self, false)] {
            let groups = family.groups.iter().flatten();
            let parts = groups
                .flat_map(|group| [&group.short].into_iter().chain(group.parts.iter().flatten()));
            for part in [&family.short].into_iter().chain(parts) {
                if is_known {
                    known.insert(Arc::as_ptr(part));
                } else if !known.contains(&Arc::as_ptr(part)) {
                    all.push(part);
                }
            }
        }
        (all.len(), all.into_iter().map(|part| part.len()).sum())
    }
}

//! Which sites announce the prefixes that cover a client.
//!
//! ```text
//! client ──> for each length that there is, longest first: its prefix of that length
//!        ──> the shard of its first 16 bits ──> sites
//! ```
//!
//! Shards are shared between copies until they change, so that a route that comes or goes costs
//! its shard, and not the table.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::topology::Prefix;

/// Prefixes, each with the numbers of its sites in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prefixes {
    shards: BTreeMap<Shard, Arc<Announced>>,
    /// How many prefixes have each length, by family. Shared by all copies that have the same.
    lens: [BTreeMap<u8, u32>; 2],
}

/// The family, 0 or 1, and the first 16 bits.
type Shard = (usize, u16);
/// The bits after them, left-aligned, and the length.
type Key = (u128, u8);
/// The sites of the prefixes of a shard.
type Announced = BTreeMap<Key, Vec<u32>>;

impl Prefixes {
    /// A site announces a prefix; nothing changes if it did already. O(prefixes of its shard).
    pub fn put(&mut self, prefix: Prefix, site: u32) {
        let (shard, key) = place(prefix);
        let of_shard = Arc::make_mut(self.shards.entry(shard).or_default());
        let sites = of_shard.entry(key).or_default();
        if sites.is_empty() {
            *self.lens[shard.0].entry(key.1).or_default() += 1;
        }
        if let Err(at) = sites.binary_search(&site) {
            sites.insert(at, site);
        }
    }

    /// A site announces it no longer.
    pub fn take(&mut self, prefix: Prefix, site: u32) {
        let (shard, key) = place(prefix);
        let Some(of_shard) = self.shards.get_mut(&shard) else { return };
        let of_shard = Arc::make_mut(of_shard);
        let Some(sites) = of_shard.get_mut(&key) else { return };
        sites.retain(|other| *other != site);
        if !sites.is_empty() {
            return;
        }
        of_shard.remove(&key);
        if of_shard.is_empty() {
            self.shards.remove(&shard);
        }
        let lens = &mut self.lens[shard.0];
        let count = lens.get_mut(&key.1).expect("its length was counted");
        *count -= 1;
        if *count == 0 {
            lens.remove(&key.1);
        }
    }

    /// The prefixes that cover all of `client`, longest first, each with its sites. At most one
    /// look per length that there is.
    pub fn covering(&self, client: Prefix) -> impl Iterator<Item = (Prefix, &[u32])> {
        let (family, _) = place(client).0;
        let lens = self.lens[family].range(..=client.prefix_len()).rev();
        let mut last: Option<(Shard, Option<&Arc<Announced>>)> = None;
        lens.filter_map(move |(len, _)| {
            let prefix = Prefix::new(client.addr(), *len).ok()?.trunc();
            let (shard, key) = place(prefix);
            // All but the shortest prefixes are of one shard.
            let of_shard = match last {
                Some((known, of_shard)) if known == shard => of_shard,
                Some(_) | None => self.shards.get(&shard),
            };
            last = Some((shard, of_shard));
            Some((prefix, of_shard?.get(&key)?.as_slice()))
        })
    }

    /// How many prefixes there are, announced by whomever.
    pub fn count(&self) -> usize {
        self.shards.values().map(|shard| shard.len()).sum()
    }
}

fn place(prefix: Prefix) -> (Shard, Key) {
    let bits = match prefix {
        Prefix::V4(v4) => u128::from(v4.network().to_bits()) << 96,
        Prefix::V6(v6) => v6.network().to_bits(),
    };
    let family = usize::from(matches!(prefix, Prefix::V6(_)));
    let first = u16::try_from(bits >> 112).expect("128 bits less 112 are 16");
    ((family, first), (bits << 16, prefix.prefix_len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    use proptest::prelude::*;

    #[test]
    fn a_prefix_is_found_for_as_long_as_somebody_announces_it() {
        let mut table = Prefixes::default();
        let p = |text: &str| text.parse::<Prefix>().unwrap();
        table.put(p("10.0.0.0/8"), 1);
        table.put(p("10.1.0.0/16"), 2);
        table.put(p("10.1.0.0/16"), 0);
        table.put(p("::/0"), 3);
        let before = table.clone();
        let found = |table: &Prefixes, client: &str| -> Vec<(String, Vec<u32>)> {
            let all = table.covering(p(client));
            all.map(|(prefix, sites)| (prefix.to_string(), sites.to_vec())).collect()
        };
        let wide = ("10.0.0.0/8".to_owned(), vec![1]);
        let long = ("10.1.0.0/16".to_owned(), vec![0, 2]);
        assert_eq!(found(&table, "10.1.2.3/32"), [long.clone(), wide.clone()]);
        assert_eq!(
            found(&table, "10.0.0.0/9"),
            std::slice::from_ref(&wide),
            "half of it is not enough"
        );
        assert_eq!(found(&table, "2001:db8::/32"), [("::/0".to_owned(), vec![3])]);
        table.take(p("10.1.0.0/16"), 2);
        table.take(p("10.1.0.0/16"), 0);
        table.take(p("10.1.0.0/16"), 0);
        assert_eq!(found(&table, "10.1.2.3/32"), std::slice::from_ref(&wide));
        assert_eq!((table.count(), table.lens[0].len()), (2, 1));
        assert_eq!(found(&before, "10.1.2.3/32"), [long, wide], "a copy keeps what it had");
    }

    proptest! {
        #[test]
        fn the_table_finds_what_a_look_at_all_prefixes_finds(
            all in proptest::collection::vec((any::<[u8; 4]>(), 0_u8..=32, 0_u32..4), 0..40),
            client: [u8; 4], len in 0_u8..=32
        ) {
            // Few first bytes, so that prefixes cover each other.
            let near = |[a, b, c, d]: [u8; 4]| IpAddr::from([a % 2, b % 4, c % 4, d]);
            let client = Prefix::new(near(client), len).unwrap().trunc();
            let mut table = Prefixes::default();
            let mut plain: BTreeMap<u8, (Prefix, Vec<u32>)> = BTreeMap::new();
            for (address, len, site) in all {
                let prefix = Prefix::new(near(address), len).unwrap().trunc();
                table.put(prefix, site);
                if prefix.contains(&client) {
                    let sites = &mut plain.entry(len).or_insert((prefix, Vec::new())).1;
                    sites.push(site);
                    sites.sort_unstable();
                    sites.dedup();
                }
            }
            let found: Vec<_> = table.covering(client).map(|(p, s)| (p, s.to_vec())).collect();
            let wanted: Vec<_> = plain.into_values().rev().collect();
            prop_assert_eq!(found, wanted);
        }
    }
}

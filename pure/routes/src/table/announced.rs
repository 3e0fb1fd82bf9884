//! What was announced with a way, for people: lists are made without it.

use model::topology::Prefix;

use super::family::{Family, Net};
use super::{Attributes, Table};

impl Table {
    /// What a site, by number, heard of this very prefix; none of an operator's word, or if it does
    /// not have the prefix. O(log prefixes + sites that have it).
    pub fn announced(&self, prefix: &Prefix, site: u32) -> Option<&Attributes> {
        match prefix {
            Prefix::V4(net) => announced_in(&self.v4, *net, site),
            Prefix::V6(net) => announced_in(&self.v6, *net, site),
        }
    }
}

/// The way that the site is first by: as in a client's list.
fn announced_in<N: Net>(family: &Family<N>, prefix: N, site: u32) -> Option<&Attributes> {
    let is_same = |of: N| of.any() == prefix.any();
    let ways = family.covering(prefix, |of, ways| is_same(of).then_some(ways))?;
    ways.iter().find(|way| way.site == site)?.heard.map(AsRef::as_ref)
}

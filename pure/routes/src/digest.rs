//! A table of routes in two numbers.

use std::fmt;
use std::str::FromStr;

use model::topology::Prefix;

use crate::attributes::{Attributes, first_half};
use crate::part::Stage;

/// A set of routes in two numbers: if those of two tables are the same, so are the tables. Kept up
/// with each change, at the cost of one hash.
///
/// It finds accidents. Somebody who may announce routes to an appliance may announce any, so there
/// is nobody to forge a sum for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest {
    /// Prefixes in it.
    pub count: u64,
    /// The routes' hashes, added up.
    sum: u128,
}

/// A text that is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a digest of routes: a count, a hyphen and 32 hex digits are wanted")]
pub struct NotADigest;

impl Digest {
    /// The route is in the table, and was not.
    pub fn put(&mut self, prefix: &Prefix, attributes: &Attributes) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash(prefix, attributes));
    }

    /// True of a table that is not longer than any may be.
    pub fn is_bounded(&self) -> bool {
        usize::try_from(self.count).is_ok_and(|count| count <= Stage::LEN_MAX)
    }

    /// The route was in the table, and is not.
    pub fn take(&mut self, prefix: &Prefix, attributes: &Attributes) {
        assert!(0 < self.count, "a route that goes was there");
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(hash(prefix, attributes));
    }
}

fn hash(prefix: &Prefix, attributes: &Attributes) -> u128 {
    let mut bytes = [0; 34];
    let (family, address) = match prefix {
        Prefix::V4(net) => (4, net.network().to_ipv6_mapped().octets()),
        Prefix::V6(net) => (6, net.network().octets()),
    };
    bytes[0] = family;
    bytes[1] = prefix.prefix_len();
    bytes[2..18].copy_from_slice(&address);
    bytes[18..].copy_from_slice(&attributes.digest().to_le_bytes());
    first_half(&blake3::hash(&bytes))
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:032x}", self.count, self.sum)
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let (count, sum) = text.split_once('-').ok_or(NotADigest)?;
        let is_hex = sum.len() == 32 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
        let sum = u128::from_str_radix(sum, 16).map_err(|_| NotADigest)?;
        let count = count.parse().map_err(|_| NotADigest)?;
        is_hex.then_some(Self { count, sum }).ok_or(NotADigest)
    }
}

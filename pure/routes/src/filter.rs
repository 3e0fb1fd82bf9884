//! Which routes are not believed, and why.
//!
//! A router may send anything: its default route, its own inner networks, or a more specific piece
//! of another network's prefix, which would draw that network's clients. What is left out is
//! counted and shown with its cause, so that the network's operator can be told.

use std::collections::BTreeMap;
use std::fmt;

use model::topology::Prefix;

/// What is left out. No defaults but these, which are habits of the internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Shortest and longest prefix of IPv4 that is believed.
    pub v4_len: (u8, u8),
    /// The same of IPv6.
    pub v6_len: (u8, u8),
    /// Special ranges that are believed all the same, and pieces of them of any length: those of
    /// an ISP's own inner networks, or of a lab.
    pub allow: Vec<Prefix>,
    /// Most routes of a session that are believed, the first ones.
    pub session_max: u64,
    /// Longest AS path.
    pub path_max: usize,
}

/// Longest prefixes that control believes, whatever an appliance's own filter let in. Those shorter
/// than [`SHORTEST_V4`] and [`SHORTEST_V6`] it never believes: two halves are all addresses, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Longest {
    pub v4: u8,
    pub v6: u8,
}

impl Longest {
    /// Networks filter longer ones, and no single person has so many addresses.
    pub const USUAL: Self = Self { v4: 24, v6: 48 };

    /// True of a prefix that is not believed.
    pub fn refuses(self, prefix: &Prefix) -> bool {
        let (least, most) = match prefix {
            Prefix::V4(_) => (SHORTEST_V4, self.v4),
            Prefix::V6(_) => (SHORTEST_V6, self.v6),
        };
        prefix.prefix_len() < least || most < prefix.prefix_len()
    }
}

/// Nobody was given more than a /8.
pub const SHORTEST_V4: u8 = 8;

/// The shortest that a registry gave is a /19 or so.
pub const SHORTEST_V6: u8 = 16;

impl Default for Filter {
    fn default() -> Self {
        Self {
            v4_len: (SHORTEST_V4, Longest::USUAL.v4),
            v6_len: (SHORTEST_V6, Longest::USUAL.v6),
            allow: Vec::new(),
            // The whole table of today has 1.2 million in both families.
            session_max: 1_500_000,
            // Today's longest that mean something are half of it.
            path_max: 64,
        }
    }
}

/// Why a route is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It covers all addresses.
    Default,
    /// A range that no client on the internet has (RFC 6890 and its registries).
    Bogon,
    /// A piece so small that networks do not hand it on.
    TooLong,
    /// A range so large that nobody has it.
    TooShort,
    /// The session has as many as are believed.
    Limit,
    /// More networks on the way than are believed.
    LongPath,
    /// An unordered set of networks on the way, which nobody can check (RFC 9774).
    PathSet,
    /// It came without networks on its way: no neighbour announced it.
    NoPath,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Default,
        Self::Bogon,
        Self::TooLong,
        Self::TooShort,
        Self::Limit,
        Self::LongPath,
        Self::PathSet,
        Self::NoPath,
    ];

    /// One word, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Bogon => "bogon",
            Self::TooLong => "too_long",
            Self::TooShort => "too_short",
            Self::Limit => "limit",
            Self::LongPath => "long_path",
            Self::PathSet => "path_set",
            Self::NoPath => "no_path",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "a default route",
            Self::Bogon => "a range that no client on the internet has",
            Self::TooLong => "a longer prefix than networks hand on",
            Self::TooShort => "a shorter prefix than anybody has",
            Self::Limit => "beyond the limit of its session",
            Self::LongPath => "a longer AS path than is believed",
            Self::PathSet => "a set of networks in its AS path",
            Self::NoPath => "no AS path",
        })
    }
}

impl Filter {
    /// Why a prefix is left out, whoever announced it.
    pub fn prefix(&self, prefix: &Prefix) -> Option<Cause> {
        if prefix.prefix_len() == 0 {
            return Some(Cause::Default);
        }
        if self.allow.iter().any(|allowed| allowed.contains(prefix)) {
            return None;
        }
        let (least, most) = match prefix {
            Prefix::V4(_) => self.v4_len,
            Prefix::V6(_) => self.v6_len,
        };
        assert!(least <= most, "some length is believed");
        if is_bogon(prefix) {
            return Some(Cause::Bogon);
        }
        match prefix.prefix_len() {
            len if len < least => Some(Cause::TooShort),
            len if most < len => Some(Cause::TooLong),
            _ => None,
        }
    }
}

/// True of a prefix inside a special range.
fn is_bogon(prefix: &Prefix) -> bool {
    match prefix {
        Prefix::V4(net) => {
            let first = u32::from(net.network());
            BOGONS_V4.iter().any(|([a, b, c, d], len)| {
                let range = u32::from_be_bytes([*a, *b, *c, *d]);
                *len <= net.prefix_len() && (first ^ range) >> (32 - len) == 0
            })
        }
        Prefix::V6(net) => {
            let first = u128::from(net.network());
            let within = |head: u32, len: u8| {
                let head = u128::from(head) << 96;
                len <= net.prefix_len() && (first ^ head) >> (128 - len) == 0
            };
            // Of the rest nothing is given to networks yet.
            let is_unicast = within(0x2000_0000, 3);
            let is_short = net.prefix_len() < 3;
            (!is_unicast && !is_short) || BOGONS_V6.iter().any(|(head, len)| within(*head, *len))
        }
    }
}

/// IANA's registry of special-purpose addresses (RFC 6890), multicast and the range beyond.
const BOGONS_V4: [([u8; 4], u8); 14] = [
    ([0, 0, 0, 0], 8),
    ([10, 0, 0, 0], 8),
    ([100, 64, 0, 0], 10),
    ([127, 0, 0, 0], 8),
    ([169, 254, 0, 0], 16),
    ([172, 16, 0, 0], 12),
    ([192, 0, 0, 0], 24),
    ([192, 0, 2, 0], 24),
    ([192, 168, 0, 0], 16),
    ([198, 18, 0, 0], 15),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    ([224, 0, 0, 0], 4),
    ([240, 0, 0, 0], 4),
];

/// Inside 2000::/3: protocol assignments, documentation, 6to4.
const BOGONS_V6: [(u32, u8); 4] =
    [(0x2001_0000, 23), (0x2001_0db8, 32), (0x2002_0000, 16), (0x3fff_0000, 20)];

/// A prefix that was left out, and the session that it came from.
pub type Example = (Prefix, Box<str>);

/// The routes that were left out: how many, and some of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    by_cause: BTreeMap<Cause, (u64, Vec<Example>)>,
}

impl LeftOut {
    /// Examples of each cause.
    pub const EXAMPLES_MAX: usize = 8;

    pub(crate) fn count(&mut self, cause: Cause, prefix: Prefix, session: &str) {
        let (count, examples) = self.by_cause.entry(cause).or_default();
        *count += 1;
        if examples.len() < Self::EXAMPLES_MAX {
            examples.push((prefix, session.into()));
        }
        assert!(examples.len() <= Self::EXAMPLES_MAX, "the rest is counted");
    }

    /// Each cause with its count, and with the first prefixes and the sessions that they came from.
    pub fn iter(&self) -> impl Iterator<Item = (Cause, u64, &[Example])> {
        self.by_cause.iter().map(|(cause, (count, examples))| (*cause, *count, &examples[..]))
    }

    /// How many for this cause.
    pub fn of(&self, cause: Cause) -> u64 {
        self.by_cause.get(&cause).map_or(0, |(count, _)| *count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_network_should_announce_is_left_out() {
        use Cause::{Bogon, Default as Whole, TooLong, TooShort};
        let check = |prefix: &str, wanted: Option<Cause>| {
            assert_eq!(Filter::default().prefix(&prefix.parse().unwrap()), wanted, "{prefix}");
        };
        check("0.0.0.0/0", Some(Whole));
        check("::/0", Some(Whole));
        check("0.0.0.0/1", Some(TooShort));
        check("2000::/3", Some(TooShort));
        check("::/1", Some(TooShort));
        check("10.0.0.0/8", Some(Bogon));
        check("10.1.2.0/24", Some(Bogon));
        check("100.127.0.0/16", Some(Bogon));
        check("172.32.0.0/16", None);
        check("192.0.2.0/25", Some(Bogon));
        check("255.255.255.0/24", Some(Bogon));
        check("fd00::/16", Some(Bogon));
        check("4000::/16", Some(Bogon));
        check("2001:db8:1::/48", Some(Bogon));
        check("2001:1::/32", Some(Bogon));
        check("2001:200::/32", None);
        check("3fff:fff::/32", Some(Bogon));
        check("8.8.8.0/24", None);
        check("8.8.8.0/25", Some(TooLong));
        check("2a00::/12", Some(TooShort));
        check("2a00:1450::/32", None);
        check("2a00:1450::/49", Some(TooLong));
    }

    #[test]
    fn an_inner_network_is_believed_where_an_operator_says_so() {
        let allow = vec!["100.64.0.0/10".parse().unwrap()];
        let filter = Filter { allow, ..Filter::default() };
        assert_eq!(filter.prefix(&"100.64.7.0/28".parse().unwrap()), None);
        assert_eq!(filter.prefix(&"10.64.7.0/24".parse().unwrap()), Some(Cause::Bogon));
        let all = Filter { allow: vec!["0.0.0.0/0".parse().unwrap()], ..Filter::default() };
        assert_eq!(all.prefix(&"0.0.0.0/0".parse().unwrap()), Some(Cause::Default));
    }
}

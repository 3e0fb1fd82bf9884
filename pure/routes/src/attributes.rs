//! What was announced with a prefix, as far as it orders sites or is shown.

use std::cmp::Ordering;
use std::fmt;

/// The attributes of a route. Many prefixes share one.
#[derive(Clone, Debug)]
pub struct Attributes {
    peering: Peering,
    as_path: Box<[u32]>,
    med: Option<u32>,
    communities: Box<[Community]>,
    /// Of all of the above.
    digest: u128,
}

/// Networks of an AS path that are kept, on the way here too: more than a filter lets pass.
pub const PATH_MAX: usize = 256;

/// Communities of a route that are kept, on the way here too.
pub const COMMUNITIES_MAX: usize = 256;

/// How the session is joined to its neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peering {
    /// By a link of their own.
    Private,
    /// Over the fabric of an exchange.
    Public,
}

/// A community (RFC 1997) or a large one (RFC 8092). Others are not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Community {
    Plain(u16, u16),
    Large(u32, u32, u32),
}

impl Attributes {
    /// Communities are a set: their order is lost.
    pub fn new(
        peering: Peering,
        as_path: Vec<u32>,
        med: Option<u32>,
        mut communities: Vec<Community>,
    ) -> Self {
        communities.sort_unstable();
        communities.dedup();
        assert!(communities.is_sorted(), "equal sets are equal lists");
        let mut hash = blake3::Hasher::new();
        hash.update(&[u8::from(peering == Peering::Public), u8::from(med.is_some())]);
        hash.update(&med.unwrap_or(0).to_le_bytes());
        hash.update(&u64::try_from(as_path.len()).unwrap_or(u64::MAX).to_le_bytes());
        for number in &as_path {
            hash.update(&number.to_le_bytes());
        }
        for community in &communities {
            let (kind, parts) = match *community {
                Community::Plain(a, b) => (0, [0, u32::from(a), u32::from(b)]),
                Community::Large(a, b, c) => (1, [a, b, c]),
            };
            hash.update(&[kind]);
            for part in parts {
                hash.update(&part.to_le_bytes());
            }
        }
        let digest = first_half(&hash.finalize());
        let (as_path, communities) = (as_path.into(), communities.into());
        Self { peering, as_path, med, communities, digest }
    }

    /// How the session is joined that brought it.
    pub fn peering(&self) -> Peering {
        self.peering
    }

    /// The networks on the way, the neighbour first.
    pub fn as_path(&self) -> &[u32] {
        &self.as_path
    }

    /// The neighbour's preference among its own announcements: lower is better.
    pub fn med(&self) -> Option<u32> {
        self.med
    }

    /// In order, each once.
    pub fn communities(&self) -> &[Community] {
        &self.communities
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.as_path) + size_of_val(&*self.communities)
    }

    /// Networks on the way.
    pub fn path_len(&self) -> u16 {
        u16::try_from(self.as_path.len()).unwrap_or(u16::MAX)
    }

    /// The network that announced it.
    pub fn neighbour(&self) -> Option<u32> {
        self.as_path.first().copied()
    }

    /// The same for equal attributes, and for no others.
    pub(crate) fn digest(&self) -> u128 {
        self.digest
    }

    /// Sorts the better of two routes to one prefix at one appliance first. None is as good as the
    /// lowest MED (RFC 4271 section 9.1.2.2).
    pub(crate) fn better(&self, other: &Self) -> Ordering {
        let rank = |of: &Self| (of.peering, of.path_len(), of.med.unwrap_or(0), of.digest);
        rank(self).cmp(&rank(other))
    }
}

impl PartialEq for Attributes {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Attributes {}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(a, b) => write!(f, "{a}:{b}"),
            Self::Large(a, b, c) => write!(f, "{a}:{b}:{c}"),
        }
    }
}

impl std::str::FromStr for Community {
    type Err = ();

    /// Reads the form that [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, ()> {
        let parts: Vec<&str> = text.split(':').collect();
        let plain = |text: &str| text.parse::<u16>().map_err(drop);
        let large = |text: &str| text.parse::<u32>().map_err(drop);
        match parts[..] {
            [a, b] => Ok(Self::Plain(plain(a)?, plain(b)?)),
            [a, b, c] => Ok(Self::Large(large(a)?, large(b)?, large(c)?)),
            _ => Err(()),
        }
    }
}

pub(crate) fn first_half(hash: &blake3::Hash) -> u128 {
    let half = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    u128::from_le_bytes(*half)
}

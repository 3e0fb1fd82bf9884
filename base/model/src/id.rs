//! Names and ids. A name is chosen by people, an id is computed or drawn once.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Longest name in bytes. Names stand in URLs and host names, where a label has at most 63
/// (RFC 1035).
pub const NAME_LEN_MAX: usize = 63;

/// Why a text is not a name or an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error(
        "\"{0}\" is not a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', beginning with a letter \
         or digit"
    )]
    Name(String),
    #[error("\"{text}\" is not an id: {len} bytes in lower-case hex are wanted")]
    Hex {
        /// The text that was read.
        text: String,
        /// How many bytes the id has.
        len: usize,
    },
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            #[inline]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let name = is_name(text).then(|| Self(text.into()));
                name.ok_or_else(|| IdError::Name(text.to_owned()))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            #[inline]
            fn borrow(&self) -> &str {
                &self.0
            }
        }
    };
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $type(pub [u8; $len]);

        impl Ord for $type {
            /// The order of the bytes. The first eight nearly always decide, in one comparison.
            fn cmp(&self, other: &Self) -> Ordering {
                let head = |id: &Self| id.0.first_chunk().map(|head| u64::from_be_bytes(*head));
                head(self).cmp(&head(other)).then_with(|| self.0.cmp(&other.0))
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl FromStr for $type {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                let mut id = [0; $len];
                if parse_hex(text, &mut id) {
                    Ok(Self(id))
                } else {
                    Err(IdError::Hex { text: text.to_owned(), len: $len })
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }
    };
}

name! {
    /// A place with appliances: a rack, a campus, an exchange.
    SiteId
}
name! {
    /// Sites that belong together, for a purpose that is said beside it.
    ClusterId
}
name! {
    /// A word for people on an appliance.
    Tag
}
name! {
    /// One appliance. Also its pathway id in players' manifests, so it should outlive hardware.
    ApplianceId
}
name! {
    /// The title that a viewer picks: a film, an episode.
    AssetId
}
name! {
    /// One immutable packaging of an asset; stands in media URLs.
    AssetVersionId
}
id! {
    /// The BLAKE3 root of an object's bytes, which is also its name on every drive.
    ObjectId, 32
}
id! {
    /// The BLAKE3 hash of the document that says what never changes of a version: its name, times
    /// and files, as one line of JSON.
    DocumentId, 32
}
id! {
    /// A drive's UUID, written into its marker by `format`.
    DriveId, 16
}

impl DocumentId {
    /// Of a document with these bytes.
    pub fn of(line: &[u8]) -> Self {
        Self(*blake3::hash(line).as_bytes())
    }
}

/// What is placed as one, by the number of a file: a rendition of an asset version, or a whole
/// version whose renditions cannot be told apart. Like the numbers of files it is never given
/// twice, and the items of a version are a range of its files' numbers: one whose renditions share
/// so many files that it has fewer files than renditions is not divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item(pub u32);

impl Item {
    /// The rendition with this number, from 1 on, of the version whose files begin at `first_file`,
    /// and 0 for one that is not divided.
    pub fn of(first_file: u32, rendition: u32) -> Self {
        Self(first_file.saturating_add(rendition.saturating_sub(1)))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A number that grows with every change of desired state; older never replaces newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

impl Generation {
    /// The one after this.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// True of a text that may be a name of ours.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(b);
    (1..=NAME_LEN_MAX).contains(&bytes.len())
        && bytes.iter().all(allowed)
        && bytes[0].is_ascii_alphanumeric()
        && !text.contains("..")
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Fills `out` from lower-case hex of exactly twice its length; false if `text` is anything else.
pub fn parse_hex(text: &str, out: &mut [u8]) -> bool {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    if text.len() != out.len() * 2 {
        return false;
    }
    for (pair, byte) in text.as_bytes().chunks_exact(2).zip(out) {
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => *byte = high << 4 | low,
            (None, _) | (_, None) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_in_urls_paths_and_host_names() {
        for good in ["a", "a1", "site-3.rack_2", &"x".repeat(63)] {
            assert!(good.parse::<SiteId>().is_ok(), "{good}");
        }
        for bad in ["", "A", "-a", ".a", "a/b", "a..b", "a b", "é", &"x".repeat(64)] {
            assert!(bad.parse::<SiteId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_items_of_a_version_are_a_range_from_its_first_file() {
        let items: Vec<_> = (1..4).map(|rendition| Item::of(700, rendition)).collect();
        assert_eq!(items, [Item(700), Item(701), Item(702)]);
        assert_eq!(Item::of(700, 0), Item(700), "an undivided version");
        assert_eq!(Item::of(u32::MAX, 3), Item(u32::MAX), "a number that does not exist");
        assert_eq!(Item(700).to_string(), "700");
    }

    #[test]
    fn ids_are_in_the_order_of_their_bytes() {
        for at in 0..32 {
            let [mut low, mut high] = [ObjectId([7; 32]); 2];
            (low.0[at], high.0[at]) = (3, 200);
            low.0[at + 1..].fill(255);
            assert_eq!(low.cmp(&high), Ordering::Less, "byte {at}");
            assert_eq!((high.cmp(&low), low.cmp(&low)), (Ordering::Greater, Ordering::Equal));
        }
    }

    #[test]
    fn ids_are_lower_case_hex_of_their_exact_length() {
        let id = ObjectId([0xab; 32]);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("AB".repeat(32).parse::<ObjectId>().is_err());
        assert!("ab".repeat(31).parse::<ObjectId>().is_err());
        assert!("+1".repeat(32).parse::<ObjectId>().is_err());
    }
}

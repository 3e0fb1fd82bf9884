//! A difference on its way to control, in parts.

use std::sync::Arc;

use crate::digest::Digest;
use crate::hearing::Difference;

/// A piece of a difference between two tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The table that it begins from; none for a whole table.
    pub from: Option<Digest>,
    pub to: Digest,
    /// From 0 on.
    pub number: u32,
    pub is_last: bool,
    pub difference: Difference,
}

/// The parts of one difference that have come.
#[derive(Debug)]
pub struct Stage {
    from: Option<Digest>,
    to: Digest,
    next: u32,
    difference: Difference,
    /// Memory that the difference takes.
    bytes: usize,
}

/// Why a part is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("that is not the next part of this difference: begin anew, with part 0")]
    OutOfTurn,
    /// To send it again is of no use.
    #[error("the difference has more prefixes, or longer attributes, than any network has")]
    TooLarge,
}

impl Part {
    /// Cuts a difference into parts of at most `len_max` bytes of JSON each, or a bit of it: what
    /// was announced with the same attributes together. O(n log n).
    pub fn cut(
        from: Option<Digest>,
        to: Digest,
        difference: Difference,
        len_max: usize,
    ) -> Vec<Self> {
        assert!(0 < len_max, "something fits");
        let Difference { mut announced, withdrawn } = difference;
        let len_before = announced.len() + withdrawn.len();
        announced.sort_by_key(|(prefix, attributes)| (attributes.digest(), *prefix));
        let part =
            |number| Self { from, to, number, is_last: false, difference: Difference::default() };
        let (mut parts, mut len, mut last) = (vec![part(0)], 0, None);
        let mut room = |parts: &mut Vec<Self>, wanted: usize, again: usize| {
            len += wanted;
            if len_max < len {
                len = wanted + again;
                parts.push(part(u32::try_from(parts.len()).expect("tables are bounded")));
            }
        };
        for (prefix, attributes) in announced {
            let head = HEAD_LEN
                + NUMBER_LEN * attributes.as_path().len()
                + COMMUNITY_LEN * attributes.communities().len();
            let is_new = last != Some(attributes.digest());
            last = Some(attributes.digest());
            let (wanted, again) = if is_new { (head, 0) } else { (0, head) };
            room(&mut parts, PREFIX_LEN + wanted, again);
            let part = parts.last_mut().expect("there is one from the start");
            part.difference.announced.push((prefix, attributes));
        }
        for prefix in withdrawn {
            room(&mut parts, PREFIX_LEN, 0);
            let part = parts.last_mut().expect("there is one from the start");
            part.difference.withdrawn.push(prefix);
        }
        parts.last_mut().expect("there is one from the start").is_last = true;
        let cut: usize = parts.iter().map(|part: &Self| part.difference.len()).sum();
        assert_eq!(cut, len_before, "each is in one part");
        parts
    }
}

/// Longest as JSON: a prefix of IPv6, a number of an AS, a large community, the rest of a group.
const PREFIX_LEN: usize = 46;
const NUMBER_LEN: usize = 11;
const COMMUNITY_LEN: usize = 35;
const HEAD_LEN: usize = 90;

impl Stage {
    /// Most prefixes of one table, and of a difference as many that came and as many that went:
    /// more than the internet has.
    pub const LEN_MAX: usize = 2_000_000;

    /// Most memory of one difference. A whole table of today takes a third of it.
    pub const BYTES_MAX: usize = 256 << 20;

    /// Waits for the first part of the difference that `part` is of.
    pub fn new(part: &Part) -> Self {
        let difference = Difference::default();
        Self { from: part.from, to: part.to, next: 0, difference, bytes: 0 }
    }

    /// The number of the part that should come next.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// The table that it begins from; none for a whole table.
    pub fn from(&self) -> Option<Digest> {
        self.from
    }

    /// The table that it leads to.
    pub fn to(&self) -> Digest {
        self.to
    }

    /// The next part; gives the difference when it was the last.
    pub fn take(&mut self, part: Part) -> Result<Option<Difference>, Refused> {
        if (part.from, part.to, part.number) != (self.from, self.to, self.next) {
            return Err(Refused::OutOfTurn);
        }
        let Difference { announced, withdrawn } = &mut self.difference;
        let bytes = self.bytes + bytes(&part.difference);
        if Self::LEN_MAX < announced.len() + part.difference.announced.len()
            || Self::LEN_MAX < withdrawn.len() + part.difference.withdrawn.len()
            || Self::BYTES_MAX < bytes
        {
            return Err(Refused::TooLarge);
        }
        self.next += 1;
        self.bytes = bytes;
        announced.extend(part.difference.announced);
        withdrawn.extend(part.difference.withdrawn);
        assert!(self.bytes <= Self::BYTES_MAX, "that was looked at");
        Ok(part.is_last.then(|| std::mem::take(&mut self.difference)))
    }
}

/// Memory that a difference takes: prefixes that were announced together share their attributes,
/// and are next to each other.
fn bytes(difference: &Difference) -> usize {
    let Difference { announced, withdrawn } = difference;
    let runs = announced.chunk_by(|(_, a), (_, b)| Arc::ptr_eq(a, b));
    let attributes: usize = runs.map(|run| run[0].1.bytes()).sum();
    size_of_val(&announced[..]) + size_of_val(&withdrawn[..]) + attributes
}

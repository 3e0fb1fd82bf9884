//! The files of a version as one value in its row, so that a start reads versions and not files.
//!
//! ```text
//! format │ content types: count, each │ files: count, each in the order of paths:
//!   1    │        length, text        │   shared, length, text │ object │ length │ content type
//! ```
//!
//! Of a path, what it shares with the one before is left out. Numbers are in LEB128. O(files).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::ObjectId;
use model::manifest::{ContentTypes, File};
use model::units::Bytes;

/// The first byte. Another one is of a program that is newer than its schema says, or damage.
const FORMAT: u8 = 1;

/// Files by their paths, as they are stored.
pub(super) fn encode(files: &BTreeMap<String, File>) -> Vec<u8> {
    let mut types: Vec<&str> = files.values().map(|file| &*file.content_type).collect();
    types.sort_unstable();
    types.dedup();
    let mut listing = vec![FORMAT];
    put_len(&mut listing, types.len());
    for text in &types {
        put_len(&mut listing, text.len());
        listing.extend_from_slice(text.as_bytes());
    }
    put_len(&mut listing, files.len());
    let mut before = "";
    for (path, file) in files {
        let same = before.bytes().zip(path.bytes()).take_while(|(a, b)| a == b).count();
        put_len(&mut listing, same);
        put_len(&mut listing, path.len() - same);
        listing.extend_from_slice(&path.as_bytes()[same..]);
        listing.extend_from_slice(&file.object.0);
        put(&mut listing, file.len.0);
        let of = types.binary_search(&&*file.content_type).expect("it is one of them");
        put_len(&mut listing, of);
        before = path;
    }
    listing
}

/// Files as they were stored; none if it was not by `encode`.
pub(super) fn decode(listing: &[u8], known: &mut ContentTypes) -> Option<BTreeMap<String, File>> {
    let mut rest = Rest(listing);
    if rest.take(1)? != [FORMAT] {
        return None;
    }
    let mut types: Vec<Arc<str>> = Vec::new();
    for _ in 0..rest.len()? {
        let len = rest.len()?;
        types.push(known.shared(std::str::from_utf8(rest.take(len)?).ok()?));
    }
    let count = rest.len()?;
    // Each takes more than that, so that no number makes room for more than there is.
    let mut files: Vec<(String, File)> = Vec::with_capacity(count.min(rest.0.len() / 32));
    for _ in 0..count {
        let (same, len) = (rest.len()?, rest.len()?);
        let before = files.last().map_or(&[][..], |(path, _)| path.as_bytes());
        let path = [before.get(..same)?, rest.take(len)?].concat();
        let object = ObjectId(rest.take(32)?.try_into().ok()?);
        let len = Bytes(rest.number()?);
        let content_type = types.get(rest.len()?)?.clone();
        files.push((String::from_utf8(path).ok()?, File { object, len, content_type }));
    }
    let in_order = files.is_sorted_by(|(a, _), (b, _)| a < b);
    (rest.0.is_empty() && in_order).then(|| files.into_iter().collect())
}

fn put(listing: &mut Vec<u8>, number: u64) {
    let mut rest = number;
    while 127 < rest {
        listing.push(low(rest) | 128);
        rest >>= 7;
    }
    listing.push(low(rest));
}

fn low(number: u64) -> u8 {
    u8::try_from(number & 127).expect("it has seven bits")
}

fn put_len(listing: &mut Vec<u8>, len: usize) {
    put(listing, u64::try_from(len).expect("Linux has no 128-bit targets"));
}

/// The part of a listing that was not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = *self.take(1)?.first()?;
            let part = u64::from(byte & 127);
            if part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn len(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn files() -> impl Strategy<Value = BTreeMap<String, File>> {
        let file = (any::<[u8; 32]>(), any::<u64>(), "(video|audio)/[a-z0-9]{0,3}");
        let file = file.prop_map(|(object, len, of)| File {
            object: ObjectId(object),
            len: Bytes(len),
            content_type: of.into(),
        });
        proptest::collection::btree_map("[aä/]{1,4}(r[0-9]/)?[0-9]{0,3}", file, 0..20)
    }

    proptest! {
        #[test]
        fn files_are_read_as_they_are_written(files in files()) {
            let read = decode(&encode(&files), &mut ContentTypes::default());
            prop_assert_eq!(read, Some(files));
        }

        #[test]
        fn a_listing_that_is_cut_or_longer_is_refused(files in files(), cut in any::<usize>()) {
            let listing = encode(&files);
            let cut = &listing[..cut % listing.len()];
            prop_assert_eq!(decode(cut, &mut ContentTypes::default()), None);
            let longer = [&listing[..], &[0]].concat();
            prop_assert_eq!(decode(&longer, &mut ContentTypes::default()), None);
        }

        #[test]
        fn whatever_is_read_never_panics(listing in proptest::collection::vec(any::<u8>(), 0..99)) {
            let _ = decode(&[&[FORMAT], &listing[..]].concat(), &mut ContentTypes::default());
        }
    }
}

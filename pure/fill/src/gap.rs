//! The gap between the objects held and those that a manifest wants, kept as either changes, so
//! that a plan counts nothing anew.
//!
//! The facts about an object are told whole (`Known`), so that to tell them twice, or late, does
//! no harm: who prepares a new manifest goes through all that is held in slices, and what changes
//! meanwhile is told as it changes.

use std::collections::{BTreeMap, BTreeSet};

use model::drives::{DriveIndex, DriveSet};
use model::id::ObjectId;
use model::manifest::Manifest;
use model::units::Bytes;

/// All objects that a manifest wants, each once, by number: in its order. Follows from the manifest
/// alone, in O(files log files).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    objects: Vec<(ObjectId, Bytes)>,
    numbers: BTreeMap<ObjectId, usize>,
    /// Where each can be had, ordered by number: versions and paths.
    places: Vec<(usize, usize, Box<str>)>,
    bytes: Bytes,
}

/// How an object stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    pub held: Option<DriveIndex>,
    pub is_busy: bool,
    /// It could not be had, and is left alone for a while.
    pub waits: bool,
    pub has_part: bool,
}

/// The objects to fetch, to evict and to drop, each set kept as facts are told.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Gap {
    wanted: Wanted,
    /// Wanted, not held, and nothing speaks against fetching it.
    ready: Bits,
    held: Bits,
    /// Invariant: the sum over `held`.
    bytes_held: Bytes,
    /// Held, not wanted, and nobody works on it.
    unwanted: BTreeSet<(DriveIndex, ObjectId)>,
    /// Of which there is a part that nobody needs or works on.
    useless_parts: BTreeSet<ObjectId>,
}

/// A set of small numbers: a bit for each.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bits {
    words: Vec<u64>,
    /// Invariant: how many of them are in it.
    count: usize,
}

impl Wanted {
    /// The objects that this manifest wants.
    pub fn new(manifest: &Manifest) -> Self {
        let mut wanted = Self::default();
        for (version_index, version) in manifest.versions.iter().enumerate() {
            for (path, file) in &version.files {
                let number = *wanted.numbers.entry(file.object).or_insert_with(|| {
                    wanted.objects.push((file.object, file.len));
                    wanted.bytes += file.len;
                    wanted.objects.len() - 1
                });
                wanted.places.push((number, version_index, path.as_str().into()));
            }
        }
        // Of each object in the order in which they came.
        wanted.places.sort_by_key(|(number, ..)| *number);
        wanted
    }

    /// How long they are together.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// All of them, by number, and their lengths.
    pub fn objects(&self) -> &[(ObjectId, Bytes)] {
        &self.objects
    }

    /// The number of an object, if it is wanted. O(log objects).
    pub fn number_of(&self, object: &ObjectId) -> Option<usize> {
        self.numbers.get(object).copied()
    }

    /// How long an object is, if it is wanted.
    pub fn len_of(&self, object: &ObjectId) -> Option<Bytes> {
        self.numbers.get(object).map(|number| self.objects[*number].1)
    }

    /// Where it can be had: first sources of all versions before second ones, since they are what
    /// control thinks best. `manifest` is the one that this was made of.
    pub fn urls(&self, manifest: &Manifest, number: usize, urls_max: usize) -> Vec<String> {
        assert!(number < self.objects.len(), "a plan has numbers of this manifest");
        let from = self.places.partition_point(|place| place.0 < number);
        let places = self.places[from..].iter().take_while(|place| place.0 == number);
        let places: Vec<_> = places.map(|(_, at, path)| (&manifest.versions[*at], path)).collect();
        let ranks = places.iter().map(|(version, _)| version.sources.len()).max().unwrap_or(0);
        let mut urls = Vec::new();
        for rank in 0..ranks {
            for (version, path) in &places {
                let Some(base) = version.sources.get(rank) else { continue };
                let url = format!("{base}{}", percent_encoded(path));
                if urls.len() < urls_max && !urls.contains(&url) {
                    urls.push(url);
                }
            }
        }
        urls
    }
}

impl Gap {
    /// Nothing is held.
    pub fn new(wanted: Wanted) -> Self {
        let count = wanted.objects.len();
        let (ready, held) = (Bits::all(count), Bits::none(count));
        Self { wanted, ready, held, ..Self::default() }
    }

    /// The objects wanted, in the manifest's order.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// How an object stands now; `was` is where it was held before, if that is elsewhere. To be
    /// told of each change, and of each object that is held, is begun or is worked on.
    pub fn note(&mut self, object: ObjectId, was: Option<DriveIndex>, now: Known) {
        if let Some(drive) = was {
            self.unwanted.remove(&(drive, object));
        }
        let number = self.wanted.numbers.get(&object).copied();
        if let Some(number) = number {
            let len = self.wanted.objects[number].1;
            assert!(number < self.wanted.objects.len(), "numbers are those of the objects");
            match (self.held.put(number, now.held.is_some()), now.held) {
                (true, Some(_)) => self.bytes_held += len,
                (true, None) => self.bytes_held -= len,
                (false, _) => {}
            }
            assert!(self.bytes_held <= self.wanted.bytes, "no more is held than is wanted");
            self.ready.put(number, now.held.is_none() && !now.is_busy && !now.waits);
        } else if let Some(drive) = now.held {
            put(&mut self.unwanted, (drive, object), !now.is_busy);
        }
        // Also of a published object: a drive that comes back may have a part of one that another
        // holds. An object that waits for another try keeps no part.
        let is_useless = now.has_part && !now.is_busy && (number.is_none() || now.held.is_some());
        put(&mut self.useless_parts, object, is_useless);
    }

    /// Objects and bytes that are wanted and held.
    pub fn held(&self) -> (u64, Bytes) {
        (Bytes::of(self.held.count).0, self.bytes_held)
    }

    /// The first object to fetch whose number is not below this.
    pub(crate) fn next_ready(&self, from: usize) -> Option<usize> {
        self.ready.next(from)
    }

    pub(crate) fn is_ready(&self, number: usize) -> bool {
        self.ready.next(number) == Some(number)
    }

    pub(crate) fn ready_from(&self, from: usize) -> usize {
        self.ready.count_from(from)
    }

    /// How many objects should go.
    pub(crate) fn unwanted(&self) -> usize {
        self.unwanted.len()
    }

    pub(crate) fn useless_parts(&self) -> impl Iterator<Item = ObjectId> {
        self.useless_parts.iter().copied()
    }

    /// True if a part should go, or an object from a drive that answers.
    pub(crate) fn has_to_go(&self, hung: DriveSet) -> bool {
        !self.useless_parts.is_empty() || self.drives(hung).next().is_some()
    }

    /// The next evictions, of each drive its share.
    pub(crate) fn evictions(&self, most: usize, hung: DriveSet) -> Vec<(ObjectId, DriveIndex)> {
        let drives = self.drives(hung).count().max(1);
        let share = most.div_ceil(drives);
        let of_drive = |drive| {
            let from = (drive, ObjectId([0; 32]));
            let here = self.unwanted.range(from..).take_while(move |(on, _)| *on == drive);
            here.take(share).map(|(drive, object)| (*object, *drive))
        };
        self.drives(hung).flat_map(of_drive).take(most).collect()
    }

    /// Drives that answer and have objects to evict, in order.
    fn drives(&self, hung: DriveSet) -> impl Iterator<Item = DriveIndex> {
        let after = |drive: DriveIndex| {
            let next = DriveIndex(drive.0.checked_add(1)?);
            self.unwanted.range((next, ObjectId([0; 32]))..).next().map(|(drive, _)| *drive)
        };
        let first = self.unwanted.first().map(|(drive, _)| *drive);
        let all = std::iter::successors(first, move |drive| after(*drive));
        all.filter(move |drive| !hung.contains(*drive))
    }
}

impl Bits {
    fn none(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], count: 0 }
    }

    fn all(len: usize) -> Self {
        let mut all = Self { words: vec![u64::MAX; len.div_ceil(64)], count: len };
        if let Some(last) = all.words.last_mut() {
            *last >>= len.next_multiple_of(64) - len;
        }
        all
    }

    /// Puts a number in or out; true if that is a change.
    fn put(&mut self, number: usize, is_in: bool) -> bool {
        let (word, bit) = (&mut self.words[number / 64], 1 << (number % 64));
        if (*word & bit != 0) == is_in {
            return false;
        }
        *word ^= bit;
        if is_in {
            self.count += 1;
        } else {
            self.count -= 1;
        }
        true
    }

    /// The first that is not below this.
    fn next(&self, from: usize) -> Option<usize> {
        let mut at = from / 64;
        let mut word = self.words.get(at)? & (u64::MAX << (from % 64));
        while word == 0 {
            at += 1;
            word = *self.words.get(at)?;
        }
        Some(at * 64 + usize::try_from(word.trailing_zeros()).expect("below 64"))
    }

    /// How many are not below this.
    fn count_from(&self, from: usize) -> usize {
        let ones = |word: u64| usize::try_from(word.count_ones()).expect("at most 64");
        let Some((first, rest)) = self.words.get(from / 64..).and_then(<[u64]>::split_first) else {
            return 0;
        };
        ones(first & (u64::MAX << (from % 64))) + rest.iter().map(|word| ones(*word)).sum::<usize>()
    }
}

fn put<T: Ord>(set: &mut BTreeSet<T>, one: T, is_in: bool) {
    if is_in {
        set.insert(one);
    } else {
        set.remove(&one);
    }
}

/// A path as it stands in a URL (RFC 3986, section 3.3): all but unreserved and `/` is encoded.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_are_a_set_of_numbers(
            len in 1usize..300,
            steps: Vec<(u16, bool)>,
            from in 0usize..400,
        ) {
            let (mut bits, mut set) = (Bits::all(len), (0..len).collect::<BTreeSet<usize>>());
            for (number, is_in) in steps {
                let number = usize::from(number) % len;
                let changes = set.contains(&number) != is_in;
                put(&mut set, number, is_in);
                prop_assert_eq!(bits.put(number, is_in), changes);
            }
            prop_assert_eq!(bits.count, set.len());
            prop_assert_eq!(bits.next(from), set.range(from..).next().copied());
            prop_assert_eq!(bits.count_from(from), set.range(from..).count());
        }
    }
}

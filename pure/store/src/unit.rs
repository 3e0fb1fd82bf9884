//! Unit files: small objects that die together, in one file of about an erase superblock.
//!
//! What is deleted in pieces smaller than a superblock leaves the drive with pages to move
//! (docs/numbers.md has the model's figures), so the segments of a rendition share a file:
//! docs/decisions/2026-11-22-units.md says how, and what it is worth.
//!
//! ```text
//! units/<64 hex>           a unit, by the BLAKE3 of its directory
//! fill/<64 hex>.unit       one on its way, same layout, directory and footer still missing
//!
//! offset             size         section
//! 0                  ...          the first object: its bytes, zeros up to 4096, and if it has two
//!                                 blocks or more the table of their hashes, zeros up to 4096
//! ...                             the other objects, each the same
//! D                  64 * count   directory, in the order of offsets:
//!   + 0              32           object id
//!   + 32             8            where its bytes begin; a multiple of 4096
//!   + 40             8            how many they are
//!   + 48             16           zeros
//! D + 64 * count     0..4095      zeros
//! F = up(...)        4096         footer:
//!   F + 0            16           magic "nearcast  unit\n\n"
//!   F + 16           4            version, 1
//!   F + 20           4            count, 1 to 4096
//!   F + 24           8            D
//!   F + 32           32           BLAKE3 of the 64 * count bytes of the directory: the unit's id
//!   F + 64           4000         zeros
//!   F + 4064         32           BLAKE3 of the 4064 bytes before
//! ```
//!
//! What a unit will hold is known before its first byte is fetched, so all offsets are, and a part
//! is called after the directory that it will have: a restart that plans the same goes on with it.
//! Directory and footer come last and mean that every block was verified. A unit of which not all
//! can be had ends after what is whole, with a directory and a name of its own. An object in a unit
//! is read, verified and hidden by itself, since its id proves its table; its room comes back with
//! the unit's.

use std::collections::{BTreeMap, BTreeSet};

use model::extent::FileName;
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, OBJECT_LEN_MAX};
use model::units::Bytes;

pub use crate::layout::UNITS;
use crate::layout::{self, FILL, FOOTER_LEN, array};

/// Objects of one unit: its directory is read at once, and has 256 KiB then.
pub const OBJECTS_MAX: usize = 4096;

const MAGIC: &[u8; 16] = b"nearcast  unit\n\n";
const VERSION: u32 = 1;
const ENTRY_LEN: usize = 64;
const FOOTER_SIZE: usize = 4096;
const SUM_AT: usize = 4064;
const PART: &str = ".unit";

/// Which unit: the BLAKE3 of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitId(pub [u8; 32]);

/// An object in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub object: ObjectId,
    pub offset: Bytes,
    pub len: Bytes,
}

/// The objects of a unit, and their offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Invariant: 1 to `OBJECTS_MAX`, each behind the one before, no object twice.
    places: Vec<Place>,
}

/// The last page of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    pub unit: UnitId,
    pub directory_offset: Bytes,
    pub count: usize,
}

/// Why a unit is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("the file does not end in a unit's footer: it is incomplete or not a unit")]
    Magic,
    #[error("the unit has format {0}, and 1 is known here: upgrade before using the drive")]
    Version(u32),
    #[error("the unit's footer is damaged: its checksum is wrong")]
    Footer,
    /// Some bits of the directory are not what was written, or they never were one.
    #[error("the unit's directory is damaged: it does not fit the unit's footer")]
    Directory,
    #[error("the unit is {found} long and its footer speaks of {wanted}")]
    FileLen { wanted: Bytes, found: Bytes },
}

/// The fate of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// Nothing in it is wanted any longer.
    Remove,
    /// Less than half of it is wanted: these are copied to another file, then it goes.
    Compact(Vec<Place>),
}

/// Room that one object takes in a unit: its bytes and its table.
pub fn room(len: Bytes) -> Bytes {
    let sections = layout::sections(len);
    // An empty object has a page, so that no two begin at the same place.
    sections.footer_offset.max(DIRECT_ALIGN)
}

/// The file of a complete unit.
pub fn unit_file(unit: &UnitId) -> FileName {
    FileName(format!("{UNITS}/{}", ObjectId(unit.0)).into())
}

/// The file of a unit on its way.
pub fn part_file(unit: &UnitId) -> FileName {
    FileName(format!("{FILL}/{}{PART}", ObjectId(unit.0)).into())
}

/// The unit that a name in `units/` (without the folder) stands for.
pub fn parse_name(name: &str) -> Option<UnitId> {
    name.parse().ok().map(|id: ObjectId| UnitId(id.0))
}

/// The unit whose file this is; none for the file of an object that is alone.
pub fn of_file(file: &FileName) -> Option<UnitId> {
    parse_name(file.0.strip_prefix(UNITS)?.strip_prefix('/')?)
}

/// The unit that a name in `fill/` (without the folder) stands for.
pub fn parse_part_name(name: &str) -> Option<UnitId> {
    let id: ObjectId = name.strip_suffix(PART)?.parse().ok()?;
    Some(UnitId(id.0))
}

impl Directory {
    /// A unit of these objects, in this order. None without objects, with more than `OBJECTS_MAX`,
    /// or with one twice.
    pub fn new(objects: impl IntoIterator<Item = (ObjectId, Bytes)>) -> Option<Self> {
        let mut at = Bytes::ZERO;
        let place = |(object, len)| {
            let offset = at;
            at += room(len);
            Place { object, offset, len }
        };
        let places: Vec<Place> = objects.into_iter().take(OBJECTS_MAX + 1).map(place).collect();
        let distinct: BTreeSet<ObjectId> = places.iter().map(|place| place.object).collect();
        let fits = (1..=OBJECTS_MAX).contains(&places.len()) && distinct.len() == places.len();
        fits.then_some(Self { places })
    }

    /// Its objects, by offset.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Its name.
    pub fn id(&self) -> UnitId {
        UnitId(*blake3::hash(&self.bytes()).as_bytes())
    }

    /// Where it stands in the file: behind the objects.
    pub fn offset(&self) -> Bytes {
        let last = self.places.last().expect("never empty");
        assert!(self.places.len() <= OBJECTS_MAX, "a directory is read at once");
        last.offset + room(last.len)
    }

    /// Size of the whole file.
    pub fn file_len(&self) -> Bytes {
        file_len(self.offset(), self.places.len())
    }

    /// As it stands in the file, with the zeros behind it.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.bytes();
        bytes.resize(Bytes::of(bytes.len()).align_up(DIRECT_ALIGN).as_usize(), 0);
        bytes
    }

    /// Its footer.
    pub fn footer(&self) -> Footer {
        Footer { unit: self.id(), directory_offset: self.offset(), count: self.places.len() }
    }

    /// Reads a directory. `bytes` begin at the footer's `directory_offset`.
    pub fn decode(footer: &Footer, bytes: &[u8]) -> Result<Self, UnitError> {
        let bytes = bytes.get(..footer.count * ENTRY_LEN).ok_or(UnitError::Directory)?;
        if *blake3::hash(bytes).as_bytes() != footer.unit.0 {
            return Err(UnitError::Directory);
        }
        let mut objects = Vec::with_capacity(footer.count);
        for entry in bytes.as_chunks::<ENTRY_LEN>().0 {
            let len = Bytes(u64::from_le_bytes(array(&entry[40..48])));
            if OBJECT_LEN_MAX < len {
                return Err(UnitError::Directory);
            }
            objects.push((ObjectId(array(&entry[..32])), len));
        }
        // Offsets follow from lengths: what is not as we would write it is not ours.
        let directory = Self::new(objects).ok_or(UnitError::Directory)?;
        let ours = directory.bytes() == bytes && directory.offset() == footer.directory_offset;
        ours.then_some(directory).ok_or(UnitError::Directory)
    }

    /// Its objects, in the order of their offsets.
    pub fn objects(&self) -> Vec<ObjectId> {
        self.places.iter().map(|place| place.object).collect()
    }

    /// Its fate when these are wanted. Copying pays only below half: it then gives back at
    /// least as much as it writes.
    pub fn fate(&self, wanted: impl Fn(&ObjectId) -> bool) -> Fate {
        let live = self.places.iter().filter(|place| wanted(&place.object));
        let live: Vec<Place> = live.copied().collect();
        let live_len = Bytes(live.iter().map(|place| room(place.len).0).sum());
        assert!(live_len <= self.offset(), "no more is wanted of it than it has");
        if live.is_empty() {
            Fate::Remove
        } else if live_len.0 < self.offset().0 / 2 {
            Fate::Compact(live)
        } else {
            Fate::Keep
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.places.len() * ENTRY_LEN);
        for place in &self.places {
            bytes.extend(place.object.0);
            bytes.extend(place.offset.0.to_le_bytes());
            bytes.extend(place.len.0.to_le_bytes());
            bytes.extend([0; 16]);
        }
        bytes
    }
}

impl Footer {
    /// As it stands in the file.
    pub fn encode(&self) -> [u8; FOOTER_SIZE] {
        let mut page = [0; FOOTER_SIZE];
        page[..16].copy_from_slice(MAGIC);
        page[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let count = u32::try_from(self.count).expect("at most OBJECTS_MAX");
        page[20..24].copy_from_slice(&count.to_le_bytes());
        page[24..32].copy_from_slice(&self.directory_offset.0.to_le_bytes());
        page[32..64].copy_from_slice(&self.unit.0);
        let sum = *blake3::hash(&page[..SUM_AT]).as_bytes();
        page[SUM_AT..].copy_from_slice(&sum);
        page
    }

    /// Reads the last page of a file of `file_len`.
    pub fn decode(page: &[u8], found: Bytes) -> Result<Self, UnitError> {
        if Bytes::of(page.len()) != FOOTER_LEN || page[..16] != *MAGIC {
            return Err(UnitError::Magic);
        }
        if page[SUM_AT..] != *blake3::hash(&page[..SUM_AT]).as_bytes() {
            return Err(UnitError::Footer);
        }
        let number = |at: usize| u32::from_le_bytes(array(&page[at..at + 4]));
        if number(16) != VERSION {
            return Err(UnitError::Version(number(16)));
        }
        let count = usize::try_from(number(20)).unwrap_or(usize::MAX);
        let directory_offset = Bytes(u64::from_le_bytes(array(&page[24..32])));
        let aligned = directory_offset.0.is_multiple_of(DIRECT_ALIGN.0);
        if !(1..=OBJECTS_MAX).contains(&count) || found < directory_offset || !aligned {
            return Err(UnitError::Footer);
        }
        let wanted = file_len(directory_offset, count);
        if wanted != found {
            return Err(UnitError::FileLen { wanted, found });
        }
        Ok(Self { unit: UnitId(array(&page[32..64])), directory_offset, count })
    }
}

fn file_len(directory_offset: Bytes, count: usize) -> Bytes {
    directory_offset + Bytes::of(count * ENTRY_LEN).align_up(DIRECT_ALIGN) + FOOTER_LEN
}

/// The objects of a drive's units by their directories alone: what a walk finds when the index is
/// lost. An object that two units have (a copy was made, and a power cut came before the old unit
/// went) is in the first by name; the other's copy is no more than room.
pub fn recover<'a>(
    units: impl IntoIterator<Item = &'a Directory>,
) -> BTreeMap<ObjectId, (UnitId, Place)> {
    let mut found: BTreeMap<ObjectId, (UnitId, Place)> = BTreeMap::new();
    for directory in units {
        let unit = directory.id();
        for place in &directory.places {
            let entry = found.entry(place.object).or_insert((unit, *place));
            if unit < entry.0 {
                *entry = (unit, *place);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(n: u16) -> ObjectId {
        let mut id = [7; 32];
        id[..2].copy_from_slice(&n.to_le_bytes());
        ObjectId(id)
    }

    fn unit(lens: &[u64]) -> Directory {
        Directory::new((0..).zip(lens).map(|(n, len)| (object(n), Bytes(*len)))).unwrap()
    }

    #[test]
    fn objects_begin_at_pages_and_have_their_tables_behind_them() {
        let unit = unit(&[0, 5, 600_000, 4096]);
        let offsets: Vec<u64> = unit.places().iter().map(|place| place.offset.0).collect();
        assert_eq!(offsets, [0, 4096, 8192, 8192 + 602_112 + 4096]);
        assert_eq!(unit.offset(), Bytes(8192 + 606_208 + 4096));
        assert_eq!(unit.file_len(), unit.offset() + Bytes(8192));
        assert_eq!(parse_part_name(&part_file(&unit.id()).0["fill/".len()..]), Some(unit.id()));
        assert_eq!(layout::parse_part_name(&part_file(&unit.id()).0["fill/".len()..]), None);
    }

    #[test]
    fn a_unit_has_objects_not_too_many_and_none_twice() {
        let many = |n| Directory::new((0..n).map(|n| (object(n), Bytes(1))));
        assert_eq!((many(0), many(4097)), (None, None));
        assert_eq!(many(4096).unwrap().file_len(), Bytes(4096 * 4096 + 64 * 4096 + 4096));
        assert_eq!(Directory::new([(object(1), Bytes(1)), (object(1), Bytes(2))]), None);
    }

    #[test]
    fn a_unit_goes_when_nothing_in_it_is_wanted_and_is_copied_below_half() {
        let unit = unit(&[4096; 8]);
        let fate = |wanted: &[u16]| unit.fate(|id| wanted.iter().any(|n| object(*n) == *id));
        assert_eq!(fate(&[]), Fate::Remove);
        assert_eq!(fate(&[0, 1, 2, 3]), Fate::Keep);
        assert_eq!(fate(&[2, 5]), Fate::Compact(vec![unit.places()[2], unit.places()[5]]));
    }

    #[test]
    fn what_is_not_ours_is_refused_even_if_its_sums_are_right() {
        let unit = unit(&[10, 20]);
        let check = |edit: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = unit.bytes();
            edit(&mut bytes);
            let id = UnitId(*blake3::hash(&bytes).as_bytes());
            let footer = Footer { unit: id, ..unit.footer() };
            Directory::decode(&footer, &bytes)
        };
        assert_eq!(check(&|_| {}).as_ref(), Ok(&unit));
        for at in [32, 40 + 6, 48, 63, 64 + 32] {
            let found = check(&|bytes| bytes[at] ^= 0x81);
            assert_eq!(found, Err(UnitError::Directory), "byte {at}");
        }
        let twice = check(&|bytes| bytes.copy_within(..32, 64));
        assert_eq!(twice, Err(UnitError::Directory));
        let mut later = unit.footer().encode();
        later[16] = 2;
        let sum = *blake3::hash(&later[..SUM_AT]).as_bytes();
        later[SUM_AT..].copy_from_slice(&sum);
        assert_eq!(Footer::decode(&later, unit.file_len()), Err(UnitError::Version(2)));
    }

    #[test]
    fn a_walk_finds_each_object_once() {
        let (one, two) = (unit(&[5, 6]), unit(&[5]));
        let found = recover([&one, &two]);
        assert_eq!(found, recover([&two, &one]), "in any order");
        assert_eq!(found[&object(0)].0, one.id().min(two.id()));
        assert_eq!(found[&object(1)], (one.id(), one.places()[1]));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_a_flipped_bit_is_seen(
            lens in prop::collection::vec(0u64..3_000_000, 1..40),
            flip: prop::sample::Index,
            in_footer: bool,
        ) {
            let unit = unit(&lens);
            let (mut page, mut bytes) = (unit.footer().encode(), unit.encode());
            let read = |page: &[u8], bytes: &[u8]| {
                let footer = Footer::decode(page, unit.file_len())?;
                Directory::decode(&footer, bytes)
            };
            prop_assert_eq!(read(&page, &bytes), Ok(unit.clone()));
            let target: &mut [u8] =
                if in_footer { &mut page } else { &mut bytes[..lens.len() * ENTRY_LEN] };
            let bit = flip.index(target.len() * 8);
            target[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(read(&page, &bytes).is_err());
        }

        /// Whatever part of a unit reached the drive: without the footer it is a part.
        #[test]
        fn a_torn_unit_is_no_unit(
            lens in prop::collection::vec(0u64..300_000, 1..9),
            cut: prop::sample::Index,
        ) {
            let unit = unit(&lens);
            let mut file = vec![0; unit.file_len().as_usize()];
            let at = unit.offset().as_usize();
            file[at..at + unit.encode().len()].copy_from_slice(&unit.encode());
            let footer_at = file.len() - FOOTER_SIZE;
            file[footer_at..].copy_from_slice(&unit.footer().encode());
            let whole = Footer::decode(&file[footer_at..], Bytes::of(file.len()));
            prop_assert_eq!(whole, Ok(unit.footer()));
            // Sectors behind the cut were never written; the file has its size from the start.
            let cut = cut.index(file.len() / 512) * 512;
            file[cut..].fill(0);
            let torn = Footer::decode(&file[footer_at..], Bytes::of(file.len()));
            prop_assert!(torn.is_err());
        }

        #[test]
        fn compaction_gives_back_at_least_what_it_writes(
            lens in prop::collection::vec(0u64..3_000_000, 1..40),
            wanted: u64,
        ) {
            let unit = unit(&lens);
            let is = |id: &ObjectId| wanted >> (id.0[0] % 64) & 1 == 1;
            if let Fate::Compact(live) = unit.fate(is) {
                let copied: u64 = live.iter().map(|place| room(place.len).0).sum();
                prop_assert!(copied < unit.offset().0 - copied);
            }
        }
    }
}

//! The files of a drive, and the choice of the drive that takes the next object.
//!
//! ```text
//! DIR/
//!   nearcast-drive.toml     marker: whose drive this is; without it nothing is touched
//!   objects/ab/<64 hex>     published objects, one file each; ab = the id's first two digits
//!   units/<64 hex>          published objects, small ones that die together in one file (`unit`)
//!   fill/<64 hex>.part      objects on their way, same layout, footer still missing
//!   fill/<64 hex>.unit      units on their way
//!   index/snapshot          what the drive held when the snapshot was taken (see `log`)
//!   index/log               what changed since
//!   index/scrub             the object that was verified last
//! ```
//!
//! One object file. All numbers little-endian; `up(n)` is n rounded up to a multiple of 4096:
//!
//! ```text
//! offset                 size          section
//! 0                      len           the object's bytes
//! len                    0..4095       zeros
//! T = up(len)            32 * blocks   table: the hashes of its 256 KiB blocks, in order;
//!                                      absent below two blocks, where the id is the hash
//! T + 32 * blocks        0..4095       zeros
//! F = up(table end)      4096          footer:
//!   F + 0                16            magic "nearcast object\n"
//!   F + 16               4             version, 1
//!   F + 20               4             zeros
//!   F + 24               8             len
//!   F + 32               32            object id
//!   F + 64               4000          zeros
//!   F + 4064             32            BLAKE3 of the 4064 bytes before
//! ```
//!
//! Why this order: bytes first, so that what is served begins at offset 0 and direct I/O reads any
//! range without a shift. Footer last and found from the file's size, so that a file tells what it
//! holds even when index and name are lost. The table is not summed in the footer: the object id
//! proves it. For an 8 GiB film all this adds 1 MiB and 4 KiB (0.01 %), for a small playlist 4 KiB.

use model::extent::{DriveIndex, FileName};
use model::id::ObjectId;
use model::limits::{DIRECT_ALIGN, OBJECT_LEN_MAX};
use model::object::block_count;
use model::units::Bytes;

/// The marker's name, in the drive's root.
pub const MARKER: &str = "nearcast-drive.toml";
/// Folder of published objects.
pub const OBJECTS: &str = "objects";
/// Folder of complete units.
pub const UNITS: &str = "units";
/// Folder of objects on their way.
pub const FILL: &str = "fill";
/// Folder of the drive's index.
pub const INDEX: &str = "index";
/// The index as it was at one moment.
pub const SNAPSHOT: &str = "index/snapshot";
/// The changes since.
pub const LOG: &str = "index/log";
/// How far the drive was scrubbed: the id of an object, and a line end.
pub const SCRUB: &str = "index/scrub";
/// Size of a footer.
pub const FOOTER_LEN: Bytes = Bytes::kib(4);

const FOOTER_SIZE: usize = 4096;
const HASH_LEN: u64 = 32;
const MAGIC: &[u8; 16] = b"nearcast object\n";
const VERSION: u32 = 1;
const SUM_AT: usize = 4064;
const PART: &str = ".part";

const _: () = assert!(FOOTER_LEN.0.is_multiple_of(DIRECT_ALIGN.0));

/// Where the sections of an object file lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sections {
    pub table_offset: Bytes,
    /// The table without padding; zero for objects of less than two blocks.
    pub table_len: Bytes,
    pub footer_offset: Bytes,
    pub file_len: Bytes,
}

/// An object's description of itself, at the end of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    pub object: ObjectId,
    pub len: Bytes,
}

/// Why a footer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FooterError {
    #[error("the file does not end in an object's footer: it is incomplete or not an object")]
    Magic,
    #[error("the object file has format {0}, and 1 is known here: upgrade before using the drive")]
    Version(u32),
    #[error("the object file's footer is damaged: its checksum is wrong")]
    Checksum,
    #[error("the object file is {found} long and its footer speaks of {wanted}")]
    FileLen { wanted: Bytes, found: Bytes },
}

/// One drive, as the choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveSpace {
    pub drive: DriveIndex,
    pub set_aside: bool,
    /// Size, the reserve taken off.
    pub capacity: Bytes,
    /// Free, the reserve taken off.
    pub free: Bytes,
    /// Bytes of objects that it holds.
    pub held: Bytes,
}

/// Why a drive was not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedOver {
    SetAside,
    /// Without touching its reserve it has only this much room.
    NoRoom(Bytes),
    /// Another drive has a larger share free, or holds less at an equal share.
    Fuller,
}

/// Which drive takes an object, and why not the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The drive; none if the object fits on none.
    pub drive: Option<DriveIndex>,
    /// The others, in the order given.
    pub passed_over: Vec<(DriveIndex, PassedOver)>,
}

/// The file of a published object.
pub fn object_file(object: &ObjectId) -> FileName {
    FileName(format!("{OBJECTS}/{:02x}/{object}", object.0[0]).into())
}

/// The folder that a file is in.
pub fn folder_of(file: &FileName) -> FileName {
    FileName(file.0.rsplit_once('/').map_or(".", |(folder, _)| folder).into())
}

/// All folders of a drive, parents first. `format` makes them, so that publishing never has to.
pub fn folders() -> impl Iterator<Item = FileName> {
    [OBJECTS, UNITS, FILL, INDEX]
        .map(|name| FileName(name.into()))
        .into_iter()
        .chain(object_folders())
}

/// Which objects may be in a folder: those above the first, if there is one, up to the second. In
/// one of `object_folders` their ids begin alike; in any other, such as that of units, all may be.
pub fn ids_of(folder: &FileName) -> (Option<ObjectId>, ObjectId) {
    let first = folder.0.strip_prefix(OBJECTS).and_then(|rest| rest.strip_prefix('/'));
    let Some(first) = first.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
        return (None, ObjectId([u8::MAX; 32]));
    };
    let last_of = |first: u8| {
        let mut last = [u8::MAX; 32];
        last[0] = first;
        ObjectId(last)
    };
    (first.checked_sub(1).map(last_of), last_of(first))
}

/// The folders that published objects are in.
pub fn object_folders() -> impl Iterator<Item = FileName> {
    (0..=u8::MAX).map(|first| FileName(format!("{OBJECTS}/{first:02x}").into()))
}

/// The file of an object on its way.
pub fn part_file(object: &ObjectId) -> FileName {
    FileName(format!("{FILL}/{object}{PART}").into())
}

/// The object that a name in `fill/` (without the folder) stands for.
pub fn parse_part_name(name: &str) -> Option<ObjectId> {
    name.strip_suffix(PART)?.parse().ok()
}

/// The sections of an object file.
pub fn sections(len: Bytes) -> Sections {
    assert!(len <= OBJECT_LEN_MAX, "an object of {len} is over the limit of {OBJECT_LEN_MAX}");
    let blocks = block_count(len);
    let table_len = if blocks < 2 { Bytes::ZERO } else { Bytes(blocks * HASH_LEN) };
    let table_offset = len.align_up(DIRECT_ALIGN);
    let footer_offset = table_offset + table_len.align_up(DIRECT_ALIGN);
    assert!(len <= table_offset && table_offset <= footer_offset, "sections do not overlap");
    Sections { table_offset, table_len, footer_offset, file_len: footer_offset + FOOTER_LEN }
}

/// Picks the drive with the largest free share, so that all fill up evenly whatever their sizes.
///
/// Shares are compared in steps of 1/1024: finer differences are noise between two measurements.
/// At equal shares the drive that holds less wins (two drives of a demo may share a filesystem),
/// then the first.
pub fn choose(drives: &[DriveSpace], need: Bytes) -> Choice {
    let fits = |d: &&DriveSpace| !d.set_aside && need <= d.free && Bytes::ZERO < d.capacity;
    let share = |d: &DriveSpace| u128::from(d.free.0) * 1024 / u128::from(d.capacity.0.max(1));
    let best = drives
        .iter()
        .filter(fits)
        .min_by_key(|d| (std::cmp::Reverse(share(d)), d.held, d.drive))
        .map(|d| d.drive);
    let why = |d: &DriveSpace| {
        if d.set_aside {
            PassedOver::SetAside
        } else if fits(&d) {
            PassedOver::Fuller
        } else {
            PassedOver::NoRoom(d.free)
        }
    };
    assert!(drives.iter().all(|d| Some(d.drive) != best || need <= d.free), "it has the room");
    let others = drives.iter().filter(|d| Some(d.drive) != best);
    Choice { drive: best, passed_over: others.map(|d| (d.drive, why(d))).collect() }
}

impl Footer {
    /// The footer as it stands in the file.
    pub fn encode(&self) -> [u8; FOOTER_SIZE] {
        let mut page = [0; FOOTER_SIZE];
        page[..16].copy_from_slice(MAGIC);
        page[16..20].copy_from_slice(&VERSION.to_le_bytes());
        page[24..32].copy_from_slice(&self.len.0.to_le_bytes());
        page[32..64].copy_from_slice(&self.object.0);
        let sum = *blake3::hash(&page[..SUM_AT]).as_bytes();
        page[SUM_AT..].copy_from_slice(&sum);
        page
    }

    /// Reads the last page of a file of `file_len`.
    pub fn decode(page: &[u8], file_len: Bytes) -> Result<Self, FooterError> {
        if Bytes::of(page.len()) != FOOTER_LEN || page[..16] != *MAGIC {
            return Err(FooterError::Magic);
        }
        if page[SUM_AT..] != *blake3::hash(&page[..SUM_AT]).as_bytes() {
            return Err(FooterError::Checksum);
        }
        let version = u32::from_le_bytes(array(&page[16..20]));
        if version != VERSION {
            return Err(FooterError::Version(version));
        }
        let len = Bytes(u64::from_le_bytes(array(&page[24..32])));
        if OBJECT_LEN_MAX < len {
            return Err(FooterError::FileLen { wanted: len, found: file_len });
        }
        let wanted = sections(len).file_len;
        if wanted != file_len {
            return Err(FooterError::FileLen { wanted, found: file_len });
        }
        Ok(Self { object: ObjectId(array(&page[32..64])), len })
    }
}

/// `bytes` as an array; the caller has cut them to its length.
pub(crate) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("cut to this length in the same expression")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::object::BLOCK_LEN;
    use proptest::prelude::*;

    const OBJECT: ObjectId = ObjectId([0xab; 32]);

    fn space(drive: u8, capacity: u64, free: u64) -> DriveSpace {
        DriveSpace {
            drive: DriveIndex(drive),
            set_aside: false,
            capacity: Bytes(capacity),
            free: Bytes(free),
            held: Bytes::ZERO,
        }
    }

    #[test]
    fn names_carry_the_id_and_are_read_back() {
        let hex = "ab".repeat(32);
        assert_eq!(&*object_file(&OBJECT).0, format!("objects/ab/{hex}"));
        assert_eq!(&*part_file(&OBJECT).0, format!("fill/{hex}.part"));
        assert_eq!(parse_part_name(&format!("{hex}.part")), Some(OBJECT));
        assert_eq!(parse_part_name(&hex), None);
        assert_eq!(parse_part_name("../x.part"), None);
        assert_eq!(folders().count(), 260);
        assert!(folders().any(|folder| folder == folder_of(&object_file(&OBJECT))));
    }

    #[test]
    fn sections_are_what_the_page_at_the_top_says() {
        let check = |len: u64, table: (u64, u64), footer: u64| {
            let wanted = Sections {
                table_offset: Bytes(table.0),
                table_len: Bytes(table.1),
                footer_offset: Bytes(footer),
                file_len: Bytes(footer + 4096),
            };
            assert_eq!(sections(Bytes(len)), wanted, "length {len}");
        };
        check(0, (0, 0), 0);
        check(1, (4096, 0), 4096);
        check(4096, (4096, 0), 4096);
        check(BLOCK_LEN.0, (BLOCK_LEN.0, 0), BLOCK_LEN.0);
        check(BLOCK_LEN.0 + 1, (BLOCK_LEN.0 + 4096, 64), BLOCK_LEN.0 + 8192);
        check(8 << 30, (8 << 30, 1 << 20), (8 << 30) + (1 << 20));
    }

    #[test]
    fn the_largest_free_share_wins_and_the_others_say_why_not() {
        let full = space(2, 100, 3);
        let aside = DriveSpace { set_aside: true, ..space(3, 100, 100) };
        let choice = choose(&[space(0, 1000, 300), space(1, 100, 50), full, aside], Bytes(10));
        assert_eq!(choice.drive, Some(DriveIndex(1)));
        let wanted = [
            (DriveIndex(0), PassedOver::Fuller),
            (DriveIndex(2), PassedOver::NoRoom(Bytes(3))),
            (DriveIndex(3), PassedOver::SetAside),
        ];
        assert_eq!(choice.passed_over, wanted);
        assert_eq!(choose(&[full, aside], Bytes(10)).drive, None);
        assert_eq!(choose(&[space(0, 0, 0)], Bytes(0)).drive, None);
    }

    #[test]
    fn at_equal_shares_the_drive_that_holds_less_wins() {
        let busy = DriveSpace { held: Bytes(7), ..space(0, 10_000, 5_001) };
        let idle = space(1, 10_000, 5_000);
        assert_eq!(choose(&[busy, idle], Bytes(10)).drive, Some(DriveIndex(1)));
        assert_eq!(choose(&[space(0, 10, 5), idle], Bytes(1)).drive, Some(DriveIndex(0)));
    }

    #[test]
    fn a_footer_of_another_size_or_version_is_refused() {
        let footer = Footer { object: OBJECT, len: Bytes(5) };
        let page = footer.encode();
        assert_eq!(Footer::decode(&page, Bytes(8192)), Ok(footer));
        let error = Footer::decode(&page, Bytes(12288)).unwrap_err();
        assert_eq!(error, FooterError::FileLen { wanted: Bytes(8192), found: Bytes(12288) });
        assert_eq!(Footer::decode(&page[1..], Bytes(8192)), Err(FooterError::Magic));
        assert_eq!(Footer::decode(&[0; 4096], Bytes(8192)), Err(FooterError::Magic));
        let mut later = page;
        later[16] = 2;
        let sum = *blake3::hash(&later[..SUM_AT]).as_bytes();
        later[SUM_AT..].copy_from_slice(&sum);
        assert_eq!(Footer::decode(&later, Bytes(8192)), Err(FooterError::Version(2)));
    }

    proptest! {
        #[test]
        fn a_flipped_bit_in_a_footer_is_seen(len in 0u64..1 << 42, bit in 0usize..4096 * 8) {
            let footer = Footer { object: OBJECT, len: Bytes(len) };
            let file_len = sections(footer.len).file_len;
            let mut page = footer.encode();
            prop_assert_eq!(Footer::decode(&page, file_len), Ok(footer));
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Footer::decode(&page, file_len).is_err());
        }
    }
}

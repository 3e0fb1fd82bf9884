//! Units: what is read is what was written, or nothing.

use model::id::ObjectId;
use model::units::Bytes;
use store::unit::{Directory, Footer, UnitError, recover, room};

/// The first byte chooses: a unit that is written and then damaged, or bytes as they are.
pub fn unit(bytes: &[u8]) {
    match bytes {
        [0, rest @ ..] => raw(rest),
        [_, count, rest @ ..] => {
            let count = usize::from(*count) % 32 + 1;
            let Some((lens, edits)) = rest.split_at_checked(count * 2) else { return };
            written(lens, edits);
        }
        [_] | [] => {}
    }
}

/// In the table: name, offset, length.
const ENTRY_LEN: u64 = 64;

/// A directory that may be anything, under its name, and a footer that says anything of it
/// (version, count, where it begins); sealed, or nothing of them would be looked at.
fn raw(bytes: &[u8]) {
    let _ = Footer::decode(bytes, Bytes::of(bytes.len()));
    let Some((head, rest)) = bytes.split_at_checked(16) else { return };
    let one = Directory::new([(ObjectId([0; 32]), Bytes(1))]).expect("one object");
    let mut page = one.footer().encode();
    page[16..32].copy_from_slice(head);
    let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
    let named = Bytes(u64::from(count) * ENTRY_LEN).as_usize().min(rest.len());
    page[32..64].copy_from_slice(blake3::hash(&rest[..named]).as_bytes());
    let (said, sum) = page.split_at_mut(4096 - 32);
    sum.copy_from_slice(blake3::hash(said).as_bytes());
    // Of a file as long as the footer says; none is longer than this.
    let longest = Bytes(u64::MAX / 2);
    let Err(UnitError::FileLen { wanted: found, .. }) = Footer::decode(&page, longest) else {
        return;
    };
    let footer = Footer::decode(&page, found).expect("the length is the only thing it missed");
    assert_eq!(footer.encode(), page, "a footer has one form");
    sound(&footer, Directory::decode(&footer, rest));
}

/// `lens` are pairs of bytes: which of 256 objects, and its length in steps of 9 KiB.
fn written(lens: &[u8], edits: &[u8]) {
    let pairs = lens.as_chunks::<2>().0.iter();
    let objects =
        pairs.map(|[object, len]| (ObjectId([*object; 32]), Bytes(u64::from(*len) * 9001)));
    let Some(unit) = Directory::new(objects) else { return };
    let (mut page, mut directory) = (unit.footer().encode(), unit.encode());
    let len = unit.file_len();
    assert_eq!(read(&page, &directory, len), Ok(unit.clone()), "what was written is read");
    assert_eq!(recover([&unit]).len(), unit.places().len(), "each object is found");
    for [at, high, flip] in edits.as_chunks::<3>().0 {
        let at = usize::from(*at) + 256 * usize::from(*high);
        let all = page.iter_mut().chain(&mut directory);
        all.skip(at % 8192).take(1).for_each(|byte| *byte ^= flip);
    }
    if let Ok(again) = read(&page, &directory, len) {
        assert_eq!(again, unit, "what was damaged is refused, or was not damaged");
    }
    let other = read(&page, &directory, len + Bytes(4096));
    assert!(other.is_err(), "a file of another length is refused");
}

fn read(page: &[u8], directory: &[u8], len: Bytes) -> Result<Directory, UnitError> {
    let footer = Footer::decode(page, len)?;
    let read = Directory::decode(&footer, directory);
    sound(&footer, read.clone());
    read
}

fn sound(footer: &Footer, read: Result<Directory, UnitError>) {
    let Ok(directory) = read else { return };
    assert_eq!(directory.footer(), *footer, "the footer is this directory's");
    let mut end = Bytes::ZERO;
    for place in directory.places() {
        assert_eq!(place.offset, end, "objects lie one behind the other");
        end += room(place.len);
    }
    assert_eq!(end, directory.offset(), "the directory is behind them");
}

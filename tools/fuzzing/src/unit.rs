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

/// A footer page and a directory that may be anything.
fn raw(bytes: &[u8]) {
    let mut page = vec![0; 4096];
    let (head, rest) = bytes.split_at(bytes.len() / 2);
    for (to, from) in page.iter_mut().zip(head) {
        *to = *from;
    }
    for found in [0, 4096, 8192, u64::MAX].map(Bytes) {
        if let Ok(footer) = Footer::decode(&page, found) {
            sound(&footer, Directory::decode(&footer, rest));
        }
    }
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

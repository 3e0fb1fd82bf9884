//! Sets of dense numbers. Sites, appliances, versions and files have one each, 32 bits long, which
//! is never given twice: names are looked up at the door, and inside is only arithmetic.

/// A set of numbers, compressed: runs cost 4 bytes, and what is scattered 2 bytes each.
pub use roaring::RoaringBitmap as NumberSet;

/// Numbers of files are durable below. From here on they are a process's own: of versions that came
/// without numbers.
pub const OWN_FILES: u32 = 1 << 31;

/// The place of a number in a list that has one item for each.
pub fn index(number: u32) -> usize {
    usize::try_from(number).expect("Linux has no 16-bit targets")
}

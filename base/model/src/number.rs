//! Sets of dense numbers, and hashes of them. Sites, appliances, versions and files have one each,
//! 32 bits long, which is never given twice: names are looked up at the door, and inside is only
//! arithmetic.

/// A set of numbers, compressed: runs cost 4 bytes, and what is scattered 2 bytes each.
pub use roaring::RoaringBitmap as NumberSet;

/// Numbers of files are durable below. From here on they are a process's own: of versions that came
/// without numbers.
pub const OWN_FILES: u32 = 1 << 31;

/// What a number is multiplied by before it is mixed, so that few near each other have few bits:
/// 2^64 by the golden ratio.
pub const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): numbers that are near each other
/// become numbers that have nothing in common. Each has one of its own.
#[inline]
pub fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// The place of a number in a list that has one item for each.
#[inline]
pub fn index(number: u32) -> usize {
    usize::try_from(number).expect("Linux has no 16-bit targets")
}

//! Sets of dense numbers. Sites, appliances, versions and files have one each, 32 bits long, which
//! is never given twice: names are looked up at the door, and inside is only arithmetic.

/// A set of numbers, compressed: runs cost 4 bytes, and what is scattered 2 bytes each.
pub use roaring::RoaringBitmap as NumberSet;

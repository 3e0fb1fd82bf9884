//! An object: bytes named by the root of their BLAKE3 tree, checked block by block.
//!
//! ```text
//!             id = root                    the standard BLAKE3 hash of the bytes
//!            /         \
//!         .              .                 parents: recomputed, never stored
//!       /   \          /   \
//!     h0     h1      h2     h3             hash of each 256 KiB block (chaining value)
//!    256K   256K    256K   rest
//! ```
//!
//! The list of block hashes is itself proved by the id, so whoever knows the id needs to trust
//! nobody for the rest. An object of one block has one hash, its id; an empty one has none.
//! Source: BLAKE3 paper, section 2.1 (chunks of 1 KiB, left subtrees complete).

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};

use crate::id::ObjectId;
use crate::limits::OBJECT_LEN_MAX;
use crate::units::Bytes;

/// The unit of verification. A power of two of BLAKE3's 1 KiB chunks, so that each is a subtree.
pub const BLOCK_LEN: Bytes = Bytes::kib(256);

/// Hash of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHash(pub [u8; 32]);

/// The hashes of an object's blocks, proved to belong to its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocks {
    id: ObjectId,
    len: Bytes,
    hashes: Vec<BlockHash>,
}

/// Why a list of block hashes was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlocksError {
    #[error("an object of {0} is larger than the limit of {OBJECT_LEN_MAX}")]
    TooLong(Bytes),
    #[error("an object of {len} has {wanted} blocks, and {given} hashes were given")]
    Count {
        len: Bytes,
        /// Blocks it has.
        wanted: u64,
        /// Hashes in the list.
        given: usize,
    },
    #[error("the block hashes do not add up to object {0}: they are another object's or damaged")]
    Root(ObjectId),
}

/// How many blocks an object of this length has.
pub fn block_count(len: Bytes) -> u64 {
    len.0.div_ceil(BLOCK_LEN.0)
}

/// The length of block `index` of an object of length `len`; only the last may be short.
pub fn block_len(len: Bytes, index: u64) -> Bytes {
    let start = index * BLOCK_LEN.0;
    assert!(start < len.0, "block {index} is past the end of an object of {len}");
    Bytes(BLOCK_LEN.0.min(len.0 - start))
}

/// The hash of block `index`, given all its bytes. `single` says that the object has no other.
pub fn block_hash(index: u64, bytes: &[u8], single: bool) -> BlockHash {
    assert!(!bytes.is_empty(), "a block has bytes");
    assert!(Bytes::of(bytes.len()) <= BLOCK_LEN, "a block has at most {BLOCK_LEN}");
    if single {
        return BlockHash(*blake3::hash(bytes).as_bytes());
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index * BLOCK_LEN.0);
    BlockHash(hasher.update(bytes).finalize_non_root())
}

impl Blocks {
    /// The blocks of object `id`, if the hashes prove to be its own.
    pub fn prove(id: ObjectId, len: Bytes, hashes: Vec<BlockHash>) -> Result<Self, BlocksError> {
        let blocks = Self::of_hashes(len, hashes)?;
        if blocks.id == id { Ok(blocks) } else { Err(BlocksError::Root(id)) }
    }

    /// The object that these block hashes add up to: the last step of ingest.
    pub fn of_hashes(len: Bytes, hashes: Vec<BlockHash>) -> Result<Self, BlocksError> {
        let wanted = block_count(len);
        if OBJECT_LEN_MAX < len {
            return Err(BlocksError::TooLong(len));
        }
        if u64::try_from(hashes.len()) != Ok(wanted) {
            return Err(BlocksError::Count { len, wanted, given: hashes.len() });
        }
        Ok(Self { id: root(len, &hashes), len, hashes })
    }

    /// The object's name.
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// The object's length.
    pub fn len(&self) -> Bytes {
        self.len
    }

    /// True of the empty object, which has no blocks.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// One hash per block, in order.
    pub fn hashes(&self) -> &[BlockHash] {
        &self.hashes
    }

    /// True if these are the bytes of block `index`, all of them and nothing else.
    pub fn verify(&self, index: u64, bytes: &[u8]) -> bool {
        let Some(hash) = usize::try_from(index).ok().and_then(|i| self.hashes.get(i)) else {
            return false;
        };
        Bytes::of(bytes.len()) == block_len(self.len, index)
            && block_hash(index, bytes, self.hashes.len() == 1) == *hash
    }
}

fn root(len: Bytes, hashes: &[BlockHash]) -> ObjectId {
    match hashes {
        [] => ObjectId(*blake3::hash(&[]).as_bytes()),
        [single] => ObjectId(single.0),
        [_, ..] => {
            let (left, right) = children(len.0, hashes);
            ObjectId(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
        }
    }
}

fn subtree(len: u64, hashes: &[BlockHash]) -> ChainingValue {
    if let [leaf] = hashes {
        return leaf.0;
    }
    let (left, right) = children(len, hashes);
    merge_subtrees_non_root(&left, &right, Mode::Hash)
}

/// The left child covers the largest power of two that leaves something for the right one.
fn children(len: u64, hashes: &[BlockHash]) -> (ChainingValue, ChainingValue) {
    let left_len = left_subtree_len(len);
    let split = usize::try_from(left_len / BLOCK_LEN.0).expect("the list is in memory");
    let (left, right) = hashes.split_at(split);
    (subtree(left_len, left), subtree(len - left_len, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: u64) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251).to_le_bytes()[0]).collect()
    }

    fn hashes(bytes: &[u8]) -> Vec<BlockHash> {
        let blocks: Vec<&[u8]> = bytes.chunks(BLOCK_LEN.as_usize()).collect();
        let single = blocks.len() == 1;
        (0..).zip(&blocks).map(|(i, block)| block_hash(i, block, single)).collect()
    }

    #[test]
    fn the_id_is_the_standard_blake3_hash_whatever_the_length() {
        let block = BLOCK_LEN.0;
        for len in [0, 1, 1024, block - 1, block, block + 1, 2 * block, 3 * block + 7, 9 * block] {
            let bytes = bytes(len);
            let blocks = Blocks::of_hashes(Bytes(len), hashes(&bytes)).unwrap();
            assert_eq!(blocks.id().0, *blake3::hash(&bytes).as_bytes(), "length {len}");
        }
    }

    #[test]
    fn each_block_is_verified_alone_and_one_wrong_byte_is_seen() {
        let mut bytes = bytes(2 * BLOCK_LEN.0 + 100);
        let blocks = Blocks::of_hashes(Bytes::of(bytes.len()), hashes(&bytes)).unwrap();
        let last = 2 * BLOCK_LEN.as_usize();
        assert!(blocks.verify(2, &bytes[last..]));
        assert!(!blocks.verify(1, &bytes[last..]), "the place of a block counts");
        assert!(!blocks.verify(2, &bytes[last..last + 99]), "the length counts");
        assert!(!blocks.verify(3, &[]), "no such block");
        bytes[last + 50] ^= 1;
        assert!(!blocks.verify(2, &bytes[last..]));
    }

    #[test]
    fn hashes_of_another_object_are_refused() {
        let good = hashes(&bytes(600_000));
        let len = Bytes(600_000);
        let id = Blocks::of_hashes(len, good.clone()).unwrap().id();
        let mut bad = good.clone();
        bad.swap(0, 1);
        assert_eq!(Blocks::prove(id, len, bad), Err(BlocksError::Root(id)));
        let short = good[..2].to_vec();
        assert!(matches!(Blocks::prove(id, len, short), Err(BlocksError::Count { .. })));
        assert!(Blocks::prove(id, len, good).is_ok());
    }
}

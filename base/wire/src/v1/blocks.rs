//! `GET /v1/objects/{id}/blocks`: the object's block hashes, 32 bytes each, concatenated, as
//! `application/octet-stream`. Untrusted: the receiver proves them against the id.

use model::id::ObjectId;
use model::object::{BlockHash, Blocks, BlocksError};
use model::units::Bytes;

/// Encodes the hashes of an object.
pub fn encode(blocks: &Blocks) -> Vec<u8> {
    blocks.hashes().iter().flat_map(|hash| hash.0).collect()
}

/// Decodes and proves the hashes of object `id`.
pub fn decode(id: ObjectId, len: Bytes, body: &[u8]) -> Result<Blocks, BlocksError> {
    let (hashes, rest) = body.as_chunks::<32>();
    if !rest.is_empty() {
        return Err(BlocksError::Root(id));
    }
    Blocks::prove(id, len, hashes.iter().map(|hash| BlockHash(*hash)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_survive_the_wire_and_a_changed_bit_does_not() {
        let len = Bytes(300_000);
        let hashes = vec![
            model::object::block_hash(0, &[7; 262_144], false),
            model::object::block_hash(1, &[9; 37_856], false),
        ];
        let blocks = Blocks::of_hashes(len, hashes).unwrap();
        let mut body = encode(&blocks);
        assert_eq!(decode(blocks.id(), len, &body), Ok(blocks.clone()));
        body[40] ^= 1;
        assert!(decode(blocks.id(), len, &body).is_err());
        assert!(decode(blocks.id(), len, &body[1..]).is_err());
    }
}

//! One file's block hashes: read once, in order, in large pieces; hashed on the thread beside.
//!
//! ```text
//! reader thread: bytes ─> 4 MiB ─> [ at most 2 waiting ] ─> this thread: 16 hashes ─> on_piece
//!                  ^─────────────── buffers come back ──────────────────┘
//! ```

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::sync::mpsc;

use anyhow::{Context as _, bail};
use model::object::{BLOCK_LEN, BlockHash, block_count, block_hash};
use model::units::Bytes;

/// Where reading begins if the first `first` blocks of a file are known.
pub(super) fn start(len: Bytes, first: u64) -> Bytes {
    Bytes((first * BLOCK_LEN.0).min(len.0))
}

pub(super) fn from(mut file: File, from: Bytes) -> io::Result<File> {
    file.seek(SeekFrom::Start(from.0))?;
    // Only advice: reading is right without it.
    let _ = rustix::fs::fadvise(&file, from.0, None, rustix::fs::Advice::Sequential);
    Ok(file)
}

/// Hashes a file of length `len` from block `first` on, where `rest` begins. Tells `on_piece` the
/// hashes of each piece and how many bytes it had; its error ends the reading and is returned.
pub(super) fn hash_file(
    rest: impl Read + Send,
    len: Bytes,
    first: u64,
    on_piece: &mut dyn FnMut(&[BlockHash], Bytes) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    assert!(first <= block_count(len), "no more blocks are known than there are");
    let left = len - start(len, first);
    let (full_sender, full) = mpsc::sync_channel(PIECES_WAITING_MAX);
    let (empty_sender, empty) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || read_pieces(rest, left, &full_sender, &empty));
        let mut index = first;
        let mut hashes = Vec::new();
        for piece in full {
            let piece: Vec<u8> = match piece {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    bail!("it became shorter while it was read")
                }
                Err(error) => return Err(error).context("cannot read"),
            };
            hashes.clear();
            for block in piece.chunks(BLOCK_LEN.as_usize()) {
                hashes.push(block_hash(index, block, block_count(len) == 1));
                index += 1;
            }
            on_piece(&hashes, Bytes::of(piece.len()))?;
            // The reader may have ended: then nobody needs the buffer.
            let _ = empty_sender.send(piece);
        }
        if index == block_count(len) { Ok(()) } else { bail!("reading ended early") }
    })
}

pub(super) fn hash_bytes(bytes: &[u8]) -> Vec<BlockHash> {
    let single = bytes.len() <= BLOCK_LEN.as_usize();
    let blocks = bytes.chunks(BLOCK_LEN.as_usize());
    (0..).zip(blocks).map(|(index, block)| block_hash(index, block, single)).collect()
}

/// Reads exactly `left` bytes and checks that none follow. Ends early if nobody listens.
fn read_pieces(
    mut file: impl Read,
    left: Bytes,
    full: &mpsc::SyncSender<io::Result<Vec<u8>>>,
    empty: &mpsc::Receiver<Vec<u8>>,
) {
    let mut left = left;
    while left != Bytes::ZERO {
        let piece_len = left.min(PIECE_LEN);
        let mut piece = empty.try_recv().unwrap_or_default();
        piece.resize(piece_len.as_usize(), 0);
        let read = file.read_exact(&mut piece).map(|()| piece);
        let failed = read.is_err();
        if full.send(read).is_err() || failed {
            return;
        }
        left -= piece_len;
    }
}

/// One read: 16 blocks, large enough for a hard drive's and a network filesystem's readahead.
pub(super) const PIECE_LEN: Bytes = Bytes::mib(4);

/// Pieces read and not yet hashed; with one in each thread's hands, 16 MiB in all.
const PIECES_WAITING_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use model::object::Blocks;

    fn file(bytes: &[u8]) -> (tempfile::NamedTempFile, Bytes) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        (file, Bytes::of(bytes.len()))
    }

    fn hash(
        path: &std::path::Path,
        len: Bytes,
        first: u64,
    ) -> anyhow::Result<(Vec<BlockHash>, Bytes)> {
        let (mut all, mut read) = (Vec::new(), Bytes::ZERO);
        let file = from(File::open(path).unwrap(), start(len, first)).unwrap();
        hash_file(file, len, first, &mut |hashes, bytes| {
            all.extend_from_slice(hashes);
            read += bytes;
            Ok(())
        })?;
        Ok((all, read))
    }

    #[test]
    fn block_hashes_add_up_to_the_files_blake3_hash() {
        for len in [0, 1, BLOCK_LEN.0, BLOCK_LEN.0 + 1, PIECE_LEN.0, 2 * PIECE_LEN.0 + 300_000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 253).to_le_bytes()[0]).collect();
            let (file, len) = file(&bytes);
            let (hashes, read) = hash(file.path(), len, 0).unwrap();
            assert_eq!(read, len);
            let id = Blocks::of_hashes(len, hashes).unwrap().id();
            assert_eq!(id.0, *blake3::hash(&bytes).as_bytes(), "{len}");
        }
    }

    #[test]
    fn hashing_goes_on_where_it_was() {
        let bytes: Vec<u8> = (0..6_000_000u32).map(|i| (i % 251).to_le_bytes()[0]).collect();
        let (file, len) = file(&bytes);
        let (all, _) = hash(file.path(), len, 0).unwrap();
        for first in [1, 15, 16, 22, 23] {
            let (rest, read) = hash(file.path(), len, first).unwrap();
            assert_eq!(rest, all[usize::try_from(first).unwrap()..]);
            assert_eq!(read, len.saturating_sub(Bytes(first * BLOCK_LEN.0)));
        }
    }

    #[test]
    fn a_file_that_shrinks_is_an_error_and_so_is_whatever_the_caller_says() {
        let (file, len) = file(&[1; 5_000_000]);
        let error = hash(file.path(), len + Bytes(1), 0).unwrap_err().to_string();
        assert!(error.contains("shorter"), "{error}");
        let opened = File::open(file.path()).unwrap();
        let stop = &mut |_: &[BlockHash], _| bail!("enough");
        assert_eq!(hash_file(opened, len, 0, stop).unwrap_err().to_string(), "enough");
    }
}

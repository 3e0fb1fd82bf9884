//! Blocks: entries under a seal, each with the hash of the one before it.
//!
//! ```text
//! offset  size  field, numbers little-endian
//! 0       4     magic "NCLG"
//! 4       1     version: 3; lower where sessions were drawn in another way
//! 5       1     1: the first of its file; 2: the last; 3: both
//! 6       2     zeros
//! 8       4     its number in the file, from 0
//! 12      4     length of the entries
//! 16      8     when it was sealed, seconds since 1970
//! 24      8     number of its file
//! 32      32    hash of the block before it; of a first one, of the last block of the file before,
//!               or zeros
//! 64      n     entries
//! 64 + n  64    Ed25519 signature of the `message` of the hash: BLAKE3 of all bytes before it
//! ```

use model::units::{Bytes, UnixSeconds};

/// Bytes of a hash.
pub const HASH_LEN: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE_LEN: usize = 64;
/// Longest entries of a block: the whole picture of a fleet ten times as large as we plan for.
pub const BLOCK_LEN_MAX: usize = 16 << 20;

const MAGIC: &[u8; 4] = b"NCLG";
/// It grows with what a file means, and with each change of the draws of `steering`: what another
/// version decided comes out otherwise here.
const VERSION: u8 = 3;
const HEAD_LEN: usize = 64;
const FIRST: u8 = 1;
const LAST: u8 = 2;

/// Why a file is refused, all of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it is no ledger: a ledger begins with NCLG")]
    NotOne,
    #[error("it has version {0}, and this program reads up to {VERSION}: use a newer one")]
    Version(u8),
    #[error(
        "its seals hold, and it is of an earlier version, which drew sessions in another way: its \
         decisions cannot be made again by this program. The nearcast of the control plane that \
         wrote it makes them"
    )]
    Older,
    #[error(
        "it is cut off in block {0}: take the file whole, from where it was written. If its \
         process or its machine was stopped in the middle of a write, --unfinished takes the \
         blocks before"
    )]
    Cut(u32),
    #[error(
        "the seal of block {0} does not fit: the block was changed after it was sealed, or another \
         process than that of the key wrote it"
    )]
    Seal(u32),
    #[error(
        "block {0} does not follow the one before it: blocks are missing, were moved, or are of \
         another file"
    )]
    Chain(u32),
    #[error(
        "it has no last block: it was cut, it is still written, or its process was killed. \
         --unfinished takes it up to here"
    )]
    Unfinished,
    #[error("something follows its last block")]
    AfterEnd,
    #[error(
        "block {block}: its seal is good, and {what} in it cannot be read: that is a fault of the \
         program that wrote it"
    )]
    Entry { block: u32, what: &'static str },
}

/// A file of which every seal and every link holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// The entries of each block.
    pub blocks: Vec<&'a [u8]>,
    pub file: u64,
    /// When the first and the last block were sealed.
    pub sealed: (UnixSeconds, UnixSeconds),
    /// What the file before this one ended with; zeros if there is none.
    pub before: [u8; HASH_LEN],
    /// Of its last block.
    pub hash: [u8; HASH_LEN],
    /// What follows that, where a block was torn in the middle of its write.
    pub torn: Bytes,
    /// An earlier version wrote it: its seals can be checked, and its decisions not made again.
    pub is_older: bool,
}

/// Where a block stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) number: u32,
    pub(crate) file: u64,
    pub(crate) before: [u8; HASH_LEN],
    pub(crate) is_last: bool,
}

/// What a seal signs: so a seal of a ledger is none of anything else.
pub fn message(hash: &[u8; HASH_LEN]) -> Vec<u8> {
    [&b"nearcast-ledger-1\n"[..], hash].concat()
}

/// A block, and its hash.
pub(crate) fn seal(
    place: &Place,
    now: UnixSeconds,
    entries: &[u8],
    sign: impl FnOnce(&[u8; HASH_LEN]) -> [u8; SIGNATURE_LEN],
) -> (Vec<u8>, [u8; HASH_LEN]) {
    assert!(entries.len() <= BLOCK_LEN_MAX, "blocks are sealed long before, and a picture fits");
    let len = u32::try_from(entries.len()).expect("it is bounded");
    let first = if place.number == 0 { FIRST } else { 0 };
    let last = if place.is_last { LAST } else { 0 };
    let mut bytes = Vec::with_capacity(HEAD_LEN + entries.len() + SIGNATURE_LEN);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[VERSION, first | last, 0, 0]);
    bytes.extend_from_slice(&place.number.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(&now.0.to_le_bytes());
    bytes.extend_from_slice(&place.file.to_le_bytes());
    bytes.extend_from_slice(&place.before);
    assert_eq!(bytes.len(), HEAD_LEN, "the layout above");
    bytes.extend_from_slice(entries);
    let hash = *blake3::hash(&bytes).as_bytes();
    bytes.extend_from_slice(&sign(&hash));
    (bytes, hash)
}

/// The blocks of a file, of which every one must be `genuine`, by its hash and its signature, and
/// stand where it stood. A file without its last block is taken only if it may be `unfinished`, and
/// then without a block that is torn, unless that is its first.
///
/// # Errors
/// The first fault that is found; nothing of the file is believed then.
pub fn open<'a>(
    bytes: &'a [u8],
    unfinished: bool,
    genuine: impl Fn(&[u8; HASH_LEN], &[u8; SIGNATURE_LEN]) -> bool,
) -> Result<Opened<'a>, Fault> {
    if bytes.get(..MAGIC.len()) != Some(MAGIC) {
        return Err(Fault::NotOne);
    }
    let mut opened: Option<Opened<'a>> = None;
    let (mut rest, mut is_over, mut torn) = (bytes, false, Bytes(0));
    while !rest.is_empty() {
        if is_over {
            return Err(Fault::AfterEnd);
        }
        let number = opened.as_ref().map_or(0, |opened| opened.blocks.len());
        let number = u32::try_from(number).map_err(|_| Fault::Chain(u32::MAX))?;
        let block = match Block::read(rest, number) {
            Err(Fault::Cut(1..)) if unfinished => {
                torn = Bytes::of(rest.len());
                break;
            }
            read => read?,
        };
        if !genuine(&block.hash, &block.signature) {
            return Err(Fault::Seal(number));
        }
        let follows = opened
            .as_ref()
            .is_none_or(|before| before.hash == block.before && before.file == block.file);
        let is_older = block.version < VERSION;
        let follows = follows && opened.as_ref().is_none_or(|of| of.is_older == is_older);
        let is_first = block.flags & FIRST != 0;
        if block.number != number || is_first != (number == 0) || !follows {
            return Err(Fault::Chain(number));
        }
        is_over = block.flags & LAST != 0;
        rest = &rest[block.len..];
        let opened = opened.get_or_insert(Opened {
            blocks: Vec::new(),
            file: block.file,
            sealed: (block.at, block.at),
            before: block.before,
            hash: block.hash,
            torn: Bytes(0),
            is_older,
        });
        opened.blocks.push(block.entries);
        opened.sealed.1 = block.at;
        opened.hash = block.hash;
    }
    match opened {
        Some(opened) if is_over || unfinished => Ok(Opened { torn, ..opened }),
        Some(_) => Err(Fault::Unfinished),
        None => Err(Fault::NotOne),
    }
}

/// A block as it was read: nothing of it is proved yet.
struct Block<'a> {
    version: u8,
    flags: u8,
    number: u32,
    at: UnixSeconds,
    file: u64,
    before: [u8; HASH_LEN],
    entries: &'a [u8],
    hash: [u8; HASH_LEN],
    signature: [u8; SIGNATURE_LEN],
    /// All of it.
    len: usize,
}

impl<'a> Block<'a> {
    fn read(bytes: &'a [u8], number: u32) -> Result<Self, Fault> {
        let head = bytes.get(..HEAD_LEN).ok_or(Fault::Cut(number))?;
        let mut head = crate::codec::Input::new(head);
        let mut whole = || {
            let magic = head.array::<4>()?;
            let [version, flags, _, _] = head.array::<4>()?;
            let at = u32::from_le_bytes(head.array()?);
            let len = u32::from_le_bytes(head.array()?);
            let sealed = UnixSeconds(u64::from_le_bytes(head.array()?));
            let file = u64::from_le_bytes(head.array()?);
            Some((magic, version, flags, at, len, sealed, file, head.array()?))
        };
        let (magic, version, flags, found, len, at, file, before) =
            whole().ok_or(Fault::Cut(number))?;
        if magic != *MAGIC {
            return Err(Fault::Chain(number));
        }
        if !(1..=VERSION).contains(&version) {
            return Err(Fault::Version(version));
        }
        let end = HEAD_LEN + Bytes(u64::from(len)).as_usize();
        let signed = bytes.get(..end).ok_or(Fault::Cut(number))?;
        let signature = bytes.get(end..end + SIGNATURE_LEN).and_then(|of| of.try_into().ok());
        let signature = signature.ok_or(Fault::Cut(number))?;
        let hash = *blake3::hash(signed).as_bytes();
        let (entries, len) = (&signed[HEAD_LEN..], end + SIGNATURE_LEN);
        let number = found;
        Ok(Self { version, flags, number, at, file, before, entries, hash, signature, len })
    }
}

//! Signed documents of control: a line with kind, key and signature, then the bytes.
//!
//! ```text
//! nearcast-signed-1 manifest s1 6f0c..(128 hex digits)..e2\n
//! {"format":1,...}
//! ```
//!
//! The signature is Ed25519 (RFC 8032) over [`message`]: the kind is signed with the bytes, so that
//! a manifest can never be taken for a snapshot. Signing and checking is `identity::signing`'s.

use model::id::{hex, parse_hex};

/// First word of every envelope; the number is its version.
const MAGIC: &str = "nearcast-signed-1";

/// Longest first line: magic, kind, key id, signature, with room.
const LINE_LEN_MAX: usize = 256;

/// Longest key id.
pub const KID_LEN_MAX: usize = 16;

/// The kinds of signed documents. A closed list: a reader asks for the kind that it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An appliance's manifest.
    Manifest,
    /// What all appliances share.
    Trust,
    /// Desired state for fronts.
    Snapshot,
    /// What has changed of it.
    Difference,
}

/// An envelope, opened but not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed<'a> {
    pub kind: Kind,
    pub kid: &'a str,
    /// Ed25519 signature.
    pub signature: [u8; 64],
    /// The bytes that the signature is of.
    pub payload: &'a [u8],
}

/// Why bytes are no envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignedError {
    #[error("it is not signed: \"{MAGIC}\" should stand at its beginning")]
    Unsigned,
    #[error("it is signed as a kind of document that is not known here: upgrade this program")]
    Kind,
    #[error("its first line is damaged")]
    Line,
}

impl Kind {
    /// The word in the first line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::Trust => "trust",
            Self::Snapshot => "snapshot",
            Self::Difference => "difference",
        }
    }
}

/// Opens an envelope. Nothing in it is proved yet.
pub fn decode(bytes: &[u8]) -> Result<Signed<'_>, SignedError> {
    let head = &bytes[..bytes.len().min(LINE_LEN_MAX)];
    let end = head.iter().position(|byte| *byte == b'\n').ok_or(SignedError::Unsigned)?;
    let line = std::str::from_utf8(&head[..end]).map_err(|_| SignedError::Unsigned)?;
    let mut words = line.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(SignedError::Unsigned);
    }
    let (Some(kind), Some(kid), Some(signature), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(SignedError::Line);
    };
    let kinds = [Kind::Manifest, Kind::Trust, Kind::Snapshot, Kind::Difference];
    let kind = kinds.into_iter().find(|known| known.word() == kind).ok_or(SignedError::Kind)?;
    let (text, mut signature) = (signature, [0; 64]);
    if !parse_hex(text, &mut signature) || !is_kid(kid) {
        return Err(SignedError::Line);
    }
    Ok(Signed { kind, kid, signature, payload: &bytes[end + 1..] })
}

/// Closes an envelope.
pub fn encode(kind: Kind, kid: &str, signature: &[u8; 64], payload: &[u8]) -> Vec<u8> {
    assert!(is_kid(kid), "\"{kid}\" is not a key id: use 1 to {KID_LEN_MAX} of a-z and 0-9");
    let mut bytes = format!("{MAGIC} {} {kid} {}\n", kind.word(), hex(signature)).into_bytes();
    bytes.extend_from_slice(payload);
    bytes
}

/// The bytes that are signed.
pub fn message(kind: Kind, payload: &[u8]) -> Vec<u8> {
    [MAGIC.as_bytes(), b"\n", kind.word().as_bytes(), b"\n", payload].concat()
}

/// True of a key id that can stand in an envelope.
pub fn is_kid(kid: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=KID_LEN_MAX).contains(&kid.len()) && kid.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection;
    use proptest::prelude::*;

    #[test]
    fn an_envelope_opens_as_it_was_closed() {
        let bytes = encode(Kind::Manifest, "s1", &[0xab; 64], b"{}\nmore");
        let signed = decode(&bytes).unwrap();
        let wanted =
            Signed { kind: Kind::Manifest, kid: "s1", signature: [0xab; 64], payload: b"{}\nmore" };
        assert_eq!(signed, wanted);
    }

    #[test]
    fn what_is_not_signed_is_said_to_be_so() {
        assert_eq!(decode(b"{\"format\":1}\n"), Err(SignedError::Unsigned));
        assert_eq!(decode(b""), Err(SignedError::Unsigned));
        assert_eq!(decode(&[b'x'; 1000]), Err(SignedError::Unsigned));
        let good = encode(Kind::Snapshot, "s1", &[1; 64], b"x");
        let text = String::from_utf8(good).unwrap();
        let check = |from: &str, to: &str| decode(text.replace(from, to).as_bytes()).unwrap_err();
        assert_eq!(check("snapshot", "licence"), SignedError::Kind);
        assert_eq!(check("s1", "S1"), SignedError::Line);
        assert_eq!(check("0101", "01AB"), SignedError::Line);
        assert_eq!(check("s1 ", "s1  "), SignedError::Line);
    }

    #[test]
    fn the_kind_is_part_of_what_is_signed() {
        assert_ne!(message(Kind::Manifest, b"x"), message(Kind::Snapshot, b"x"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_opened_or_refused(bytes in collection::vec(any::<u8>(), 0..400)) {
            let _ = decode(&bytes);
        }
    }
}

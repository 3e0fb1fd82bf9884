//! Signatures over manifests and snapshots: Ed25519, in the envelope of `wire::v1::signed`.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use model::manifest::TokenKey;
use wire::v1::signed::{self, Kind, SignedError};

/// A key that signs.
pub struct SigningKey {
    kid: String,
    pair: Ed25519KeyPair,
}

/// Why something signed was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Envelope(#[from] SignedError),
    #[error("it is signed as a {found}, and a {wanted} is wanted")]
    OtherKind { found: &'static str, wanted: &'static str },
    #[error(
        "it is signed with key \"{0}\", which is not known here: enrol again if control is new"
    )]
    UnknownKey(String),
    #[error("its signature does not fit: it was changed after control signed it")]
    BadSignature,
}

impl SigningKey {
    /// From its 32-byte seed (RFC 8032), which the caller drew and keeps.
    ///
    /// # Panics
    /// If `kid` is no key id (`wire::v1::signed::is_kid`).
    pub fn from_seed(kid: &str, seed: &[u8; 32]) -> Self {
        assert!(signed::is_kid(kid), "\"{kid}\" is not a key id");
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        Self { kid: kid.to_owned(), pair }
    }

    /// A new one: its seed and itself.
    pub fn generate(kid: &str) -> ([u8; 32], Self) {
        let random = SystemRandom::new();
        let seed: [u8; 32] = aws_lc_rs::rand::generate(&random)
            .expect("the kernel gives random bytes after its start")
            .expose();
        (seed, Self::from_seed(kid, &seed))
    }

    /// The public half, for those who check signatures.
    pub fn public(&self) -> TokenKey {
        let public_key = self.pair.public_key().as_ref();
        let public_key = public_key.try_into().expect("Ed25519 keys have 32 bytes");
        TokenKey { kid: self.kid.clone(), public_key }
    }

    /// `payload`, signed, in its envelope.
    pub fn sign(&self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        let signature = self.pair.sign(&signed::message(kind, payload));
        let signature = signature.as_ref().try_into().expect("Ed25519 signatures have 64 bytes");
        signed::encode(kind, &self.kid, &signature, payload)
    }
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningKey").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// The payload of an envelope of this kind, if one of `keys` signed it.
pub fn verify<'a>(
    keys: &[TokenKey],
    wanted: Kind,
    bytes: &'a [u8],
) -> Result<&'a [u8], VerifyError> {
    let signed = signed::decode(bytes)?;
    if signed.kind != wanted {
        let (found, wanted) = (signed.kind.word(), wanted.word());
        return Err(VerifyError::OtherKind { found, wanted });
    }
    let key = keys.iter().find(|key| key.kid == signed.kid);
    let key = key.ok_or_else(|| VerifyError::UnknownKey(signed.kid.to_owned()))?;
    UnparsedPublicKey::new(&ED25519, &key.public_key)
        .verify(&signed::message(wanted, signed.payload), &signed.signature)
        .map_err(|_| VerifyError::BadSignature)?;
    Ok(signed.payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_signed_is_read_and_nothing_else() {
        let (_, key) = SigningKey::generate("s1");
        let keys = [key.public()];
        let bytes = key.sign(Kind::Manifest, b"{\"generation\":7}");
        assert_eq!(verify(&keys, Kind::Manifest, &bytes), Ok(&b"{\"generation\":7}"[..]));

        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(verify(&keys, Kind::Manifest, &changed), Err(VerifyError::BadSignature));
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(verify(&keys, Kind::Manifest, cut), Err(VerifyError::BadSignature));
        assert_eq!(
            verify(&keys, Kind::Manifest, b"{\"generation\":7}\n"),
            Err(VerifyError::Envelope(SignedError::Unsigned))
        );
        assert!(matches!(
            verify(&keys, Kind::Snapshot, &bytes),
            Err(VerifyError::OtherKind { found: "manifest", wanted: "snapshot" })
        ));
    }

    #[test]
    fn a_key_of_the_same_name_that_is_not_ours_is_refused() {
        let (_, key) = SigningKey::generate("s1");
        let (_, other) = SigningKey::generate("s1");
        let bytes = other.sign(Kind::Manifest, b"{}");
        assert_eq!(verify(&[key.public()], Kind::Manifest, &bytes), Err(VerifyError::BadSignature));
        let unknown = VerifyError::UnknownKey("s1".to_owned());
        assert_eq!(verify(&[], Kind::Manifest, &bytes), Err(unknown));
    }

    #[test]
    fn a_key_is_the_same_from_its_seed() {
        let (seed, key) = SigningKey::generate("s1");
        assert_eq!(SigningKey::from_seed("s1", &seed).public(), key.public());
        assert!(!format!("{key:?}").contains("pair"), "not for logs");
    }
}

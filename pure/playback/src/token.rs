//! Playback tokens: `{kid}.{exp36}.{session}.{sig}`, the `{token}` of media URLs.
//!
//! ```text
//! control:    SigningInput::new(..) ── Ed25519 private key ──> signature ── assemble ──> token
//! appliance:  verify(public keys, token, asset version of the URL, now) ──> Grant
//! ```
//!
//! A token stands in the path because relative URIs in playlists keep the path and lose the query.
//! It opens one asset version on every appliance until it expires; it names no host and no client.
//! Every byte is signed or has one form only, so a token cannot be changed into another good one.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::id::NAME_LEN_MAX;
use model::manifest::TokenKey;
use model::units::UnixSeconds;

use crate::base36;

/// Longest key id in a token.
pub const KID_LEN_MAX: usize = 16;

/// Length of a session in characters: 96 random bits.
pub const SESSION_LEN: usize = 16;

/// Longest token: the four parts and three dots.
pub const TOKEN_LEN_MAX: usize =
    KID_LEN_MAX + base36::DIGITS_MAX + SESSION_LEN + SIGNATURE_TEXT_LEN + 3;

/// One playback, by a random name. Says nothing about who is watching.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session([u8; SESSION_LEN]);

/// What a good token grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The playback it was made for.
    pub session: Session,
    /// The first second in which it is no longer good.
    pub expires: UnixSeconds,
}

/// Why a token was refused. All of them are answered with 403; they differ in what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not in the form of a token.
    #[error("the token is malformed")]
    Malformed,
    /// Signed with a key that is not, or not yet, in the manifest.
    #[error("the token's key is unknown here")]
    UnknownKey,
    /// Made by somebody else, for another asset version, or changed on the way.
    #[error("the token's signature does not fit")]
    BadSignature,
    /// Good once.
    #[error("the token has expired")]
    Expired,
}

/// The bytes that are signed. No allocation: the appliance builds one per new connection.
#[derive(Clone, Copy, Debug)]
pub struct SigningInput {
    bytes: [u8; SIGNING_INPUT_LEN_MAX],
    len: usize,
}

/// True if `token` was signed by one of `keys` for `version` and has not expired; what it grants.
///
/// Allocates nothing itself. (aws-lc makes and frees its small key object inside each call.)
pub fn verify(
    keys: &[TokenKey],
    token: &str,
    version: &str,
    now: UnixSeconds,
) -> Result<Grant, TokenError> {
    let parts = Parts::parse(token).ok_or(TokenError::Malformed)?;
    let input = SigningInput::new(parts.kid, parts.grant, version).ok_or(TokenError::Malformed)?;
    let key = keys.iter().find(|key| key.kid == parts.kid).ok_or(TokenError::UnknownKey)?;
    UnparsedPublicKey::new(&ED25519, &key.public_key)
        .verify(input.as_bytes(), &parts.signature)
        .map_err(|_| TokenError::BadSignature)?;
    if parts.grant.expires <= now { Err(TokenError::Expired) } else { Ok(parts.grant) }
}

/// The token, once its signing input has been signed with the private key named `kid`.
pub fn assemble(kid: &str, grant: Grant, signature: &[u8; SIGNATURE_LEN]) -> String {
    assert!(is_kid(kid), "\"{kid}\" is not a key id: use 1 to {KID_LEN_MAX} of a-z and 0-9");
    let expires = base36::Digits::of(grant.expires.0);
    let signature = URL_SAFE_NO_PAD.encode(signature);
    format!("{kid}.{}.{}.{signature}", expires.as_str(), grant.session)
}

/// True of a key id that can stand in a token.
pub fn is_kid(kid: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=KID_LEN_MAX).contains(&kid.len()) && kid.bytes().all(allowed)
}

impl SigningInput {
    /// What is signed to grant `version`; none if `kid` or `version` is too long to be one.
    pub fn new(kid: &str, grant: Grant, version: &str) -> Option<Self> {
        if KID_LEN_MAX < kid.len() || NAME_LEN_MAX < version.len() {
            return None;
        }
        let expires = base36::Digits::of(grant.expires.0);
        let mut input = Self { bytes: [0; SIGNING_INPUT_LEN_MAX], len: 0 };
        let parts = [CONTEXT, kid, expires.as_str(), grant.session.as_str(), version];
        for (i, part) in parts.iter().enumerate() {
            if i != 0 {
                input.push("\n");
            }
            input.push(part);
        }
        Some(input)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, text: &str) {
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text.as_bytes());
        self.len += text.len();
    }
}

impl Session {
    /// A session from random bytes, which the caller draws.
    pub fn of_random(random: [u8; 12]) -> Self {
        let mut text = [0; SESSION_LEN];
        let len = URL_SAFE_NO_PAD.encode_slice(random, &mut text).expect("12 bytes make 16");
        assert_eq!(len, SESSION_LEN, "12 bytes make 16 characters");
        Self(text)
    }

    /// The session as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

impl FromStr for Session {
    type Err = TokenError;
    fn from_str(text: &str) -> Result<Self, TokenError> {
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_';
        let bytes: [u8; SESSION_LEN] =
            text.as_bytes().try_into().map_err(|_| TokenError::Malformed)?;
        if bytes.iter().all(allowed) { Ok(Self(bytes)) } else { Err(TokenError::Malformed) }
    }
}

impl fmt::Display for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Session({self})")
    }
}

struct Parts<'a> {
    kid: &'a str,
    grant: Grant,
    signature: [u8; SIGNATURE_LEN],
}

impl<'a> Parts<'a> {
    fn parse(token: &'a str) -> Option<Self> {
        if TOKEN_LEN_MAX < token.len() {
            return None;
        }
        let mut parts = token.split('.');
        let kid = parts.next().filter(|kid| is_kid(kid))?;
        let expires = UnixSeconds(base36::parse(parts.next()?)?);
        let session = parts.next()?.parse().ok()?;
        let text = parts.next().filter(|text| text.len() == SIGNATURE_TEXT_LEN)?;
        if parts.next().is_some() {
            return None;
        }
        let mut signature = [0; SIGNATURE_LEN];
        // Refuses letters outside the alphabet and non-zero bits after the last byte.
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut signature).ok()?;
        (len == SIGNATURE_LEN).then_some(Self { kid, grant: Grant { session, expires }, signature })
    }
}

/// First line of what is signed, so that a signature made for this serves nothing else.
const CONTEXT: &str = "nearcast-token-v1";

/// Bytes in an Ed25519 signature (RFC 8032).
pub const SIGNATURE_LEN: usize = 64;

/// The same in base64url without padding.
const SIGNATURE_TEXT_LEN: usize = 86;

const SIGNING_INPUT_LEN_MAX: usize =
    CONTEXT.len() + KID_LEN_MAX + base36::DIGITS_MAX + SESSION_LEN + NAME_LEN_MAX + 4;

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    use proptest::prelude::*;

    const VERSION: &str = "film-0123456789abcdef";
    const EXPIRES: UnixSeconds = UnixSeconds(1_800_000_000);
    const NOW: UnixSeconds = UnixSeconds(1_799_990_000);

    #[test]
    fn a_signed_token_opens_its_version_until_it_expires() {
        let (key, token) = signed("k1", VERSION);
        let keys = [other_key("k0"), key];
        let grant = Grant { session: session(), expires: EXPIRES };
        assert_eq!(verify(&keys, &token, VERSION, NOW), Ok(grant));
        assert_eq!(verify(&keys, &token, VERSION, UnixSeconds(EXPIRES.0 - 1)), Ok(grant));
        assert_eq!(verify(&keys, &token, VERSION, EXPIRES), Err(TokenError::Expired));
        assert_eq!(verify(&keys, &token, VERSION, UnixSeconds(u64::MAX)), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_has_the_form_that_the_url_scheme_fixes() {
        let (_, token) = signed("k1", VERSION);
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts[..3], ["k1", "tro8w0", "AAECAwQFBgcICQoL"]);
        assert_eq!(parts[3].len(), 86);
        assert_eq!(parts.len(), 4);
        let grant = Grant { session: session(), expires: EXPIRES };
        let input = SigningInput::new("k1", grant, VERSION).unwrap();
        let text = "nearcast-token-v1\nk1\ntro8w0\nAAECAwQFBgcICQoL\nfilm-0123456789abcdef";
        assert_eq!(input.as_bytes(), text.as_bytes());
    }

    #[test]
    fn a_token_for_one_version_does_not_open_another() {
        let (key, token) = signed("k1", VERSION);
        for other in ["film-0123456789abcdee", "film", "", "film-0123456789abcdef2"] {
            let refused = verify(std::slice::from_ref(&key), &token, other, NOW);
            assert_eq!(refused, Err(TokenError::BadSignature), "{other}");
        }
        let long = "x".repeat(10_000);
        assert_eq!(verify(&[key], &token, &long, NOW), Err(TokenError::Malformed));
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let (key, token) = signed("k1", VERSION);
        let keys = [key];
        for at in 0..token.len() {
            for byte in 0..128_u8 {
                let mut bytes = token.clone().into_bytes();
                if bytes[at] == byte {
                    continue;
                }
                bytes[at] = byte;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(verify(&keys, &changed, VERSION, NOW).is_err(), "{at}: {byte}");
            }
            let mut shorter = token.clone();
            shorter.remove(at);
            assert!(verify(&keys, &shorter, VERSION, NOW).is_err(), "without byte {at}");
        }
    }

    #[test]
    fn refusals_say_what_to_count() {
        let (key, token) = signed("k1", VERSION);
        let unknown = verify(&[other_key("k2")], &token, VERSION, NOW);
        assert_eq!(unknown, Err(TokenError::UnknownKey));
        let wrong_key = verify(&[other_key("k1")], &token, VERSION, NOW);
        assert_eq!(wrong_key, Err(TokenError::BadSignature));
        let keys = [key];
        for bad in ["", ".", "...", "k1", &token[1..], &format!("{token}."), &format!("{token}=")] {
            let refused = verify(&keys, bad, VERSION, NOW);
            assert!(
                matches!(refused, Err(TokenError::Malformed | TokenError::UnknownKey)),
                "{bad}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_key_that_is_no_point_on_the_curve_refuses_and_does_not_panic() {
        let (_, token) = signed("k1", VERSION);
        let key = TokenKey { kid: "k1".to_owned(), public_key: [0xff; 32] };
        assert_eq!(verify(&[key], &token, VERSION, NOW), Err(TokenError::BadSignature));
    }

    #[test]
    fn the_longest_token_fits_its_bound() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
        let grant = Grant { session: session(), expires: UnixSeconds(u64::MAX) };
        let kid = "k".repeat(KID_LEN_MAX);
        let version = "v".repeat(NAME_LEN_MAX);
        let token = sign(&pair, &kid, grant, &version);
        assert_eq!(token.len(), TOKEN_LEN_MAX);
        assert!(verify(&[public(&kid, &pair)], &token, &version, NOW).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_refused_and_never_panics(token in ".{0,200}", version in ".{0,80}") {
            let keys = [other_key("k1")];
            prop_assert!(verify(&keys, &token, &version, NOW).is_err());
        }

        #[test]
        fn what_looks_like_a_token_is_refused_too(
            token in "k1\\.[0-9a-z]{1,14}\\.[0-9A-Za-z_-]{16}\\.[0-9A-Za-z_-]{86}"
        ) {
            let keys = [other_key("k1")];
            prop_assert!(verify(&keys, &token, VERSION, NOW).is_err());
        }

        #[test]
        fn sessions_survive_their_text(random: [u8; 12]) {
            let session = Session::of_random(random);
            prop_assert_eq!(session.to_string().parse(), Ok(session));
        }
    }

    fn signed(kid: &str, version: &str) -> (TokenKey, String) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
        let grant = Grant { session: session(), expires: EXPIRES };
        (public(kid, &pair), sign(&pair, kid, grant, version))
    }

    fn sign(pair: &Ed25519KeyPair, kid: &str, grant: Grant, version: &str) -> String {
        let input = SigningInput::new(kid, grant, version).unwrap();
        let signature = pair.sign(input.as_bytes());
        assemble(kid, grant, signature.as_ref().try_into().unwrap())
    }

    fn other_key(kid: &str) -> TokenKey {
        public(kid, &Ed25519KeyPair::from_seed_unchecked(&[2; 32]).unwrap())
    }

    fn public(kid: &str, pair: &Ed25519KeyPair) -> TokenKey {
        let public_key = pair.public_key().as_ref().try_into().unwrap();
        TokenKey { kid: kid.to_owned(), public_key }
    }

    fn session() -> Session {
        Session::of_random([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11])
    }
}

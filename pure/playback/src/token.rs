//! Playback tokens: `{kid}.{exp36}.{depth36}.{session}.{sig}`, the `{token}` of media URLs.
//!
//! ```text
//! control:    Grant ── SigningInput ── Ed25519 private key ──> signature ── assemble ──> token
//! appliance:  verify(public keys, token, asset version and path of the URL, now) ──> Grant
//! ```
//!
//! A token stands in the path because relative URIs in playlists keep the path and lose the query.
//! It opens one asset version, or what is below one path in it, on every appliance until it
//! expires; it names no host and no client. Of the path it says only how many parts are signed:
//! the parts themselves are those of the URL, so that a token stays short and cannot disagree
//! with the path behind it. Paths are meant decoded, in the one form of `model::path`.
//! Every byte is signed or has one form only, so a token cannot be changed into another good one.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::id::{NAME_LEN_MAX, is_name};
use model::limits::PATH_LEN_MAX;
use model::manifest::TokenKey;
use model::path::{first_parts, is_below, is_path};
use model::units::UnixSeconds;

use crate::base36;

/// Longest key id in a token.
pub const KID_LEN_MAX: usize = 16;

/// Length of a session in characters: 96 random bits.
pub const SESSION_LEN: usize = 16;

/// Most parts of a path that a token may be bound to: what one digit can say.
pub const DEPTH_MAX: usize = 35;

/// Longest token: the five parts and four dots.
pub const TOKEN_LEN_MAX: usize =
    KID_LEN_MAX + base36::DIGITS_MAX + 1 + SESSION_LEN + SIGNATURE_TEXT_LEN + 4;

/// One playback, by a random name. Says nothing about who is watching.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session([u8; SESSION_LEN]);

/// The scope of a token: an asset version, or all below one path in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'a> {
    /// Invariant: is_name(version).
    version: &'a str,
    /// Invariant: empty, or is_path(prefix). No slash at its end.
    prefix: &'a str,
    /// Parts of `prefix`. Invariant: depth <= DEPTH_MAX.
    depth: usize,
}

/// The grant of a good token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<'a> {
    pub session: Session,
    /// The first second in which it is no longer good.
    pub expires: UnixSeconds,
    pub scope: Scope<'a>,
}

/// Why a token was refused. All of them are answered with 403; they differ in what is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not in the form of a token, or for a scope that cannot be an asset version and a path.
    #[error("the token is malformed")]
    Malformed,
    /// Signed with a key that is not, or not yet, in the manifest.
    #[error("the token's key is unknown here")]
    UnknownKey,
    #[error("the token does not cover this path")]
    Outside,
    /// Made by somebody else, for another asset version or path, or changed on the way.
    #[error("the token's signature does not fit")]
    BadSignature,
    #[error("the token has expired")]
    Expired,
}

/// The bytes that are signed. No allocation: the appliance builds one per new connection.
#[derive(Clone, Copy, Debug)]
pub struct SigningInput {
    bytes: [u8; SIGNING_INPUT_LEN_MAX],
    len: usize,
}

/// The grant of `token`, if one of `keys` signed it, for `path` in `version` among others, and it
/// has not expired. `path` is decoded; a grant's scope is cut from `version` and `path`.
///
/// `now` is the caller's clock less the difference of clocks that it forgives. Allocates nothing
/// itself. (aws-lc makes and frees its small key object inside each call.)
pub fn verify<'a>(
    keys: &[TokenKey],
    token: &str,
    version: &'a str,
    path: &'a str,
    now: UnixSeconds,
) -> Result<Grant<'a>, TokenError> {
    let Parts { kid, expires, depth, session, signature } =
        Parts::parse(token).ok_or(TokenError::Malformed)?;
    if !is_path(path) {
        return Err(TokenError::Malformed);
    }
    let prefix = first_parts(path, depth).ok_or(TokenError::Outside)?;
    let scope = Scope::below(version, prefix).ok_or(TokenError::Malformed)?;
    let grant = Grant { session, expires, scope };
    assert!(scope.covers(version, path), "the first parts of a path are above it");
    let input = SigningInput::new(kid, grant);
    let key = keys.iter().find(|key| key.kid == kid).ok_or(TokenError::UnknownKey)?;
    UnparsedPublicKey::new(&ED25519, &key.public_key)
        .verify(input.as_bytes(), &signature)
        .map_err(|_| TokenError::BadSignature)?;
    if expires <= now { Err(TokenError::Expired) } else { Ok(grant) }
}

/// The token, once its signing input has been signed with the private key named `kid`.
pub fn assemble(kid: &str, grant: Grant<'_>, signature: &[u8; SIGNATURE_LEN]) -> String {
    assert!(is_kid(kid), "\"{kid}\" is not a key id: use 1 to {KID_LEN_MAX} of a-z and 0-9");
    let expires = base36::Digits::of(grant.expires.0);
    let depth = grant.scope.depth_digit();
    let signature = URL_SAFE_NO_PAD.encode(signature);
    assert_eq!(signature.len(), SIGNATURE_TEXT_LEN, "a signature has one length");
    format!("{kid}.{}.{}.{}.{signature}", expires.as_str(), depth.as_str(), grant.session)
}

/// True of a key id that can stand in a token.
pub fn is_kid(kid: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    (1..=KID_LEN_MAX).contains(&kid.len()) && kid.bytes().all(allowed)
}

impl<'a> Scope<'a> {
    /// All of `version`; none if that is not an asset version's name.
    pub fn whole(version: &'a str) -> Option<Self> {
        Self::below(version, "")
    }

    /// The file `prefix` of `version` and all files below it, all files if it is empty. None if
    /// it is no path, or has more than [`DEPTH_MAX`] parts.
    pub fn below(version: &'a str, prefix: &'a str) -> Option<Self> {
        let depth = if prefix.is_empty() { 0 } else { prefix.split('/').count() };
        let sound = is_name(version) && (depth == 0 || is_path(prefix)) && depth <= DEPTH_MAX;
        sound.then_some(Self { version, prefix, depth })
    }

    /// The asset version.
    pub fn version(&self) -> &'a str {
        self.version
    }

    /// The path below which it opens files; empty for all.
    pub fn prefix(&self) -> &'a str {
        self.prefix
    }

    /// True if `path` of `version` is open.
    pub fn covers(&self, version: &str, path: &str) -> bool {
        self.version == version && is_below(path, self.prefix)
    }

    fn depth_digit(&self) -> base36::Digits {
        assert!(self.depth <= DEPTH_MAX, "no scope is deeper than a token can say");
        base36::Digits::of(u64::try_from(self.depth).expect("at most DEPTH_MAX"))
    }
}

impl SigningInput {
    /// The text to sign, to give `grant` with the key named `kid`.
    pub fn new(kid: &str, grant: Grant<'_>) -> Self {
        assert!(is_kid(kid), "a key id is checked where it comes in");
        let expires = base36::Digits::of(grant.expires.0);
        let depth = grant.scope.depth_digit();
        let Scope { version, prefix, .. } = grant.scope;
        let mut input = Self { bytes: [0; SIGNING_INPUT_LEN_MAX], len: 0 };
        // None of them can have a line feed in it, so no two grants are the same text.
        let (expires, depth, session) = (expires.as_str(), depth.as_str(), grant.session.as_str());
        let parts = [CONTEXT, kid, expires, depth, session, version, prefix];
        for (i, part) in parts.iter().enumerate() {
            if i != 0 {
                input.push("\n");
            }
            input.push(part);
        }
        input
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn push(&mut self, text: &str) {
        assert!(text.len() <= SIGNING_INPUT_LEN_MAX - self.len, "no part is over its limit");
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

    /// A number for tables, spread evenly (FNV-1a). Two sessions may have the same.
    pub fn number(&self) -> u64 {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.0.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    }

    /// Its name in logs: 32 bits of its SHA-256. With the session its lines are found, and nothing
    /// leads from them to the session.
    pub fn mark(&self) -> [u8; 4] {
        *self.draw().first_chunk().expect("it has 8 bytes")
    }

    /// The bytes that are drawn by for it: 64 bits of its SHA-256, of which its mark is the first
    /// half. So a decision can be made again by somebody who does not know the session.
    pub fn draw(&self) -> [u8; 8] {
        let hash = digest::digest(&digest::SHA256, &self.0);
        *hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes")
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
    expires: UnixSeconds,
    depth: usize,
    session: Session,
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
        let depth = usize::try_from(base36::parse(parts.next()?)?).ok()?;
        let session = parts.next()?.parse().ok()?;
        let text = parts.next().filter(|text| text.len() == SIGNATURE_TEXT_LEN)?;
        if DEPTH_MAX < depth || parts.next().is_some() {
            return None;
        }
        let mut signature = [0; SIGNATURE_LEN];
        // Refuses letters outside the alphabet and non-zero bits after the last byte.
        let len = URL_SAFE_NO_PAD.decode_slice(text, &mut signature).ok()?;
        (len == SIGNATURE_LEN).then_some(Self { kid, expires, depth, session, signature })
    }
}

/// First line of the text to sign, so that a signature made for this serves nothing else.
const CONTEXT: &str = "nearcast-token-v2";

/// Bytes in an Ed25519 signature (RFC 8032).
pub const SIGNATURE_LEN: usize = 64;

/// The same in base64url without padding.
const SIGNATURE_TEXT_LEN: usize = 86;

const SIGNING_INPUT_LEN_MAX: usize = CONTEXT.len()
    + KID_LEN_MAX
    + base36::DIGITS_MAX
    + 1
    + SESSION_LEN
    + NAME_LEN_MAX
    + PATH_LEN_MAX
    + 6;

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
    use proptest::prelude::*;

    const VERSION: &str = "film-0123456789abcdef";
    const PATH: &str = "v/r0/1.m4s";
    const EXPIRES: UnixSeconds = UnixSeconds(1_800_000_000);
    const NOW: UnixSeconds = UnixSeconds(1_799_990_000);

    #[test]
    fn a_signed_token_opens_its_version_until_it_expires() {
        let (key, token) = signed("k1", VERSION, "");
        let keys = [other_key("k0"), key];
        let grant = grant(VERSION, "");
        let at = |now| verify(&keys, &token, VERSION, PATH, now);
        assert_eq!(at(NOW), Ok(grant));
        assert_eq!(at(UnixSeconds(EXPIRES.0 - 1)), Ok(grant));
        assert_eq!(at(EXPIRES), Err(TokenError::Expired));
        assert_eq!(at(UnixSeconds(u64::MAX)), Err(TokenError::Expired));
    }

    #[test]
    fn a_token_has_the_form_that_the_url_scheme_fixes() {
        let (_, token) = signed("k1", VERSION, "v/r0");
        let parts: Vec<&str> = token.split('.').collect();
        assert_eq!(parts[..4], ["k1", "tro8w0", "2", "AAECAwQFBgcICQoL"]);
        assert_eq!(parts[4].len(), 86);
        assert_eq!(parts.len(), 5);
        let input = SigningInput::new("k1", grant(VERSION, "v/r0"));
        let text =
            "nearcast-token-v2\nk1\ntro8w0\n2\nAAECAwQFBgcICQoL\nfilm-0123456789abcdef\nv/r0";
        assert_eq!(input.as_bytes(), text.as_bytes());
    }

    #[test]
    fn a_token_for_one_version_does_not_open_another() {
        let (key, token) = signed("k1", VERSION, "");
        let keys = [key];
        for other in ["film-0123456789abcdee", "film", "film-0123456789abcdef2"] {
            let refused = verify(&keys, &token, other, PATH, NOW);
            assert_eq!(refused, Err(TokenError::BadSignature), "{other}");
        }
        let long = "x".repeat(10_000);
        let odd = format!("{VERSION}\nv");
        for other in ["", "..", "Film", &long, &odd] {
            let refused = verify(&keys, &token, other, PATH, NOW);
            assert_eq!(refused, Err(TokenError::Malformed), "{other}");
        }
    }

    #[test]
    fn a_token_for_a_path_opens_it_and_what_is_below() {
        for prefix in ["", "v", "v/r0", "v/r0/1.m4s"] {
            let (key, token) = signed("k1", VERSION, prefix);
            assert_eq!(verify(&[key], &token, VERSION, PATH, NOW), Ok(grant(VERSION, prefix)));
        }
    }

    #[test]
    fn no_other_path_is_opened_however_it_is_written() {
        let (key, token) = signed("k1", VERSION, "v/r0");
        let keys = [key];
        let at = |path: &str| verify(&keys, &token, VERSION, path, NOW).map(|_| ());
        assert_eq!(at("v/r0"), Ok(()));
        for path in ["v/r1/1.m4s", "v/r", "v/r00", "v/R0/x", "x/v/r0", "v%2fr0/x", "v /r0"] {
            let error =
                if path.contains('/') { TokenError::BadSignature } else { TokenError::Outside };
            assert_eq!(at(path), Err(error), "{path}");
        }
        assert_eq!(at("v"), Err(TokenError::Outside));
        let tricks =
            ["v/r0/../r1/x", "v//r0/x", "/v/r0", "v/./r0", "v/r0/", "v/r0/..", "v\\r0/x", ""];
        for path in tricks.into_iter().chain(["v/r0\n/x", "v/r0/\0"]) {
            assert_eq!(at(path), Err(TokenError::Malformed), "{path}");
        }
    }

    #[test]
    fn a_version_s_token_is_not_one_for_a_path_nor_the_other_way_round() {
        for (signed_for, forged) in [("", "1"), ("v", "0"), ("v", "2"), ("v/r0", "1")] {
            let (key, token) = signed("k1", VERSION, signed_for);
            let parts: Vec<&str> = token.split('.').collect();
            let token = [parts[0], parts[1], forged, parts[3], parts[4]].join(".");
            let refused = verify(&[key], &token, VERSION, PATH, NOW);
            assert_eq!(refused, Err(TokenError::BadSignature), "{signed_for} as {forged}");
        }
    }

    #[test]
    fn scopes_are_paths_of_bounded_depth() {
        for bad in ["/", "a/", "/a", "..", "a//b", "a\n", &"a/".repeat(35), &["a"; 36].join("/")] {
            assert_eq!(Scope::below(VERSION, bad), None, "{bad}");
        }
        let deep = ["a"; 35].join("/");
        assert!(Scope::below(VERSION, &deep).is_some());
        assert_eq!(Scope::whole("Not a name"), None);
        let scope = Scope::below(VERSION, "v").unwrap();
        assert_eq!((scope.version(), scope.prefix()), (VERSION, "v"));
        assert!(scope.covers(VERSION, "v") && scope.covers(VERSION, "v/x"));
        assert!(
            !scope.covers(VERSION, "vx") && !scope.covers("film", "v") && !scope.covers("", "")
        );
    }

    #[test]
    fn every_changed_byte_is_seen() {
        for prefix in ["", "v"] {
            let (key, token) = signed("k1", VERSION, prefix);
            let keys = [key];
            let is_err = |token: &str| verify(&keys, token, VERSION, PATH, NOW).is_err();
            for at in 0..token.len() {
                for byte in 0..128_u8 {
                    let mut bytes = token.clone().into_bytes();
                    if bytes[at] == byte {
                        continue;
                    }
                    bytes[at] = byte;
                    let changed = String::from_utf8(bytes).unwrap();
                    assert!(is_err(&changed), "{at}: {byte}");
                }
                let mut shorter = token.clone();
                shorter.remove(at);
                assert!(is_err(&shorter), "without byte {at}");
            }
        }
    }

    #[test]
    fn refusals_say_what_to_count() {
        let (key, token) = signed("k1", VERSION, "");
        let with = |key: &TokenKey, token: &str| {
            verify(std::slice::from_ref(key), token, VERSION, PATH, NOW).map(|_| ())
        };
        assert_eq!(with(&other_key("k2"), &token), Err(TokenError::UnknownKey));
        assert_eq!(with(&other_key("k1"), &token), Err(TokenError::BadSignature));
        let old = token.replacen(".0.", ".", 1);
        let deep = token.replacen(".0.", ".10.", 1);
        let bad = ["", ".", "...", "k1", &token[1..], &format!("{token}."), &format!("{token}=")];
        for bad in bad.into_iter().chain([old.as_str(), &deep]) {
            let refused = with(&key, bad);
            assert!(
                matches!(refused, Err(TokenError::Malformed | TokenError::UnknownKey)),
                "{bad}: {refused:?}"
            );
        }
    }

    #[test]
    fn a_key_that_is_no_point_on_the_curve_refuses_and_does_not_panic() {
        let (_, token) = signed("k1", VERSION, "");
        let key = TokenKey { kid: "k1".to_owned(), public_key: [0xff; 32] };
        assert_eq!(verify(&[key], &token, VERSION, PATH, NOW), Err(TokenError::BadSignature));
    }

    #[test]
    fn the_longest_token_fits_its_bound() {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
        let kid = "k".repeat(KID_LEN_MAX);
        let version = "v".repeat(NAME_LEN_MAX);
        let path = format!("{}/{}", ["a"; 34].join("/"), "x".repeat(PATH_LEN_MAX - 68));
        let scope = Scope::below(&version, &path).unwrap();
        let grant = Grant { session: session(), expires: UnixSeconds(u64::MAX), scope };
        let token = sign(&pair, &kid, grant);
        assert_eq!((token.len(), path.len()), (TOKEN_LEN_MAX, PATH_LEN_MAX));
        assert!(verify(&[public(&kid, &pair)], &token, &version, &path, NOW).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_refused_and_never_panics(
            token in ".{0,200}", version in ".{0,80}", path in ".{0,80}"
        ) {
            let keys = [other_key("k1")];
            prop_assert!(verify(&keys, &token, &version, &path, NOW).is_err());
        }

        #[test]
        fn what_looks_like_a_token_is_refused_too(
            token in "k1\\.[0-9a-z]{1,14}\\.[0-9a-z]\\.[0-9A-Za-z_-]{16}\\.[0-9A-Za-z_-]{86}"
        ) {
            let keys = [other_key("k1")];
            prop_assert!(verify(&keys, &token, VERSION, PATH, NOW).is_err());
        }

        #[test]
        fn a_token_opens_exactly_what_its_scope_covers(
            prefix in "([ab.]{1,2}(/[ab.]{1,2}){0,2})?",
            path in "/{0,1}[ab.]{1,2}(/[ab.]{0,2}){0,3}",
        ) {
            if let Some(scope) = Scope::below(VERSION, &prefix) {
                let (key, token) = signed("k1", VERSION, &prefix);
                let opened = verify(&[key], &token, VERSION, &path, NOW).is_ok();
                prop_assert_eq!(opened, is_path(&path) && scope.covers(VERSION, &path));
            }
        }

        #[test]
        fn sessions_survive_their_text(random: [u8; 12]) {
            let session = Session::of_random(random);
            prop_assert_eq!(session.to_string().parse(), Ok(session));
        }
    }

    fn grant<'a>(version: &'a str, prefix: &'a str) -> Grant<'a> {
        let scope = Scope::below(version, prefix).unwrap();
        Grant { session: session(), expires: EXPIRES, scope }
    }

    fn signed(kid: &str, version: &str, prefix: &str) -> (TokenKey, String) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
        (public(kid, &pair), sign(&pair, kid, grant(version, prefix)))
    }

    fn sign(pair: &Ed25519KeyPair, kid: &str, grant: Grant<'_>) -> String {
        let signature = pair.sign(SigningInput::new(kid, grant).as_bytes());
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

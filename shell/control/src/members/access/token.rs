//! The text of an API token: `nc_{id}_{secret}`, both in hex.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::{constant_time, digest, rand};
use model::id::hex;

/// A token with its secret, for as long as it is being made or checked.
pub struct Token {
    id: String,
    secret: String,
}

impl Token {
    /// One that nobody can guess.
    pub(crate) fn random() -> Self {
        Self { id: random_hex::<ID_LEN>(), secret: random_hex::<SECRET_LEN>() }
    }

    /// The part that is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What its owner sends.
    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }

    /// What is kept of the secret. It has 256 random bits, so that one hash is enough: there is no
    /// list of likely ones to try.
    pub(crate) fn hash(&self) -> [u8; HASH_LEN] {
        let digest = digest::digest(&digest::SHA256, self.secret.as_bytes());
        *digest.as_ref().first_chunk().expect("SHA-256 gives 32 bytes")
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}_..", self.id)
    }
}

impl FromStr for Token {
    type Err = NoToken;
    fn from_str(text: &str) -> Result<Self, NoToken> {
        let (id, secret) =
            text.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or(NoToken)?;
        let is_hex = |c: u8| matches!(c, b'0'..=b'9' | b'a'..=b'f');
        let is_good = id.len() == 2 * ID_LEN
            && secret.len() == 2 * SECRET_LEN
            && id.bytes().chain(secret.bytes()).all(is_hex);
        if !is_good {
            return Err(NoToken);
        }
        Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
    }
}

/// Not in the form of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a token: one looks like nc_0123456789ab_ and 64 more hex digits")]
pub struct NoToken;

/// Compares in a time that says nothing about where they differ.
pub(crate) fn hash_fits(known: &[u8; HASH_LEN], shown: &[u8; HASH_LEN]) -> bool {
    constant_time::verify_slices_are_equal(known, shown).is_ok()
}

/// Random bytes in hex.
pub(super) fn random_hex<const N: usize>() -> String {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the system has random numbers");
    hex(&bytes)
}

/// So that programs which look for secrets in sources know ours.
const PREFIX: &str = "nc_";
const ID_LEN: usize = 6;
const SECRET_LEN: usize = 32;

/// SHA-256.
pub(crate) const HASH_LEN: usize = 32;

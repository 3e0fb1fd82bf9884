//! One-time codes, which an operator carries from control to a new appliance.
//!
//! `nc1.{secret}.{authority}`: a secret of 120 random bits, and the SHA-256 of the authority's
//! certificate. So each side proves itself to the other at the first meeting, over any network.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const MAGIC: &str = "nc1";
const SECRET_LEN: usize = 15;
const DIGEST_LEN: usize = 32;
/// No code is longer.
const LEN_MAX: u64 = 1024;

/// A one-time code.
#[derive(Clone, PartialEq, Eq)]
pub struct Code {
    secret: [u8; SECRET_LEN],
    authority: [u8; DIGEST_LEN],
}

/// Why a text is no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a one-time code: copy all of it, from \"nc1.\" to its end")]
pub struct CodeError;

impl Code {
    /// A new code for the authority with this certificate (DER). `random` is drawn by the caller.
    pub fn new(random: [u8; SECRET_LEN], authority: &[u8]) -> Self {
        Self { secret: random, authority: sha256(authority) }
    }

    /// The secret as the appliance sends it.
    pub fn secret(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.secret)
    }

    /// True of the certificate (DER) of the authority that the code is for.
    pub fn is_for(&self, authority: &[u8]) -> bool {
        self.authority == sha256(authority)
    }
}

/// Control's record of a secret: its SHA-256 in hex. The secret has 120 random bits, so a plain
/// hash is enough.
pub fn hash(secret: &str) -> String {
    crate::member::fingerprint(secret.as_bytes())
}

/// The text of a code in a file; `-` for standard input.
pub fn read(path: &Path) -> io::Result<String> {
    let open = || -> io::Result<Box<dyn Read>> {
        match path == Path::new("-") {
            true => Ok(Box::new(io::stdin())),
            false => Ok(Box::new(File::open(path)?)),
        }
    };
    let text = open().and_then(|input| io::read_to_string(input.take(LEN_MAX)));
    text.map_err(|error| {
        io::Error::other(format!("cannot read a code from {}: {error}", path.display()))
    })
}

fn sha256(bytes: &[u8]) -> [u8; DIGEST_LEN] {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

impl FromStr for Code {
    type Err = CodeError;
    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut parts = text.trim().split('.');
        let (Some(MAGIC), Some(secret), Some(authority), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(CodeError);
        };
        Ok(Self { secret: decode(secret)?, authority: decode(authority)? })
    }
}

fn decode<const N: usize>(text: &str) -> Result<[u8; N], CodeError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| CodeError)?;
    bytes.try_into().map_err(|_| CodeError)
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MAGIC}.{}.{}", self.secret(), URL_SAFE_NO_PAD.encode(self.authority))
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Code(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_survives_being_copied_and_is_for_one_authority() {
        let code = Code::new([7; 15], b"authority");
        let copied: Code = format!(" {code}\n").parse().unwrap();
        assert_eq!(copied, code);
        assert!(copied.is_for(b"authority") && !copied.is_for(b"another"));
        assert_eq!(hash(&copied.secret()), hash(&code.secret()));
    }

    #[test]
    fn half_a_code_is_refused() {
        let text = Code::new([7; 15], b"authority").to_string();
        for bad in ["", "nc1", &text[..20], &text[1..], &format!("{text}A"), &format!("{text}.x")] {
            assert_eq!(bad.parse::<Code>(), Err(CodeError), "{bad}");
        }
        assert_eq!(format!("{:?}", Code::new([7; 15], b"a")), "Code(..)", "not for logs");
    }
}

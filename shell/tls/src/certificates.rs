//! The certificates that new connections are shown: one, or one for each of two kinds of key.
//!
//! ```text
//! PEM files ──> Pair ──┐
//! PEM files ──> Pair ──┴─> Choice ──hello──> the first whose kind the client knows; RSA comes last
//! ```
//!
//! A start with RSA costs three times one with ECDSA (docs/numbers.md), so whoever knows both is
//! shown that one; players that know RSA alone get theirs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::units::UnixSeconds;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, SignatureAlgorithm};

/// Certificates at once: what a client does not know it can be shown one more of, and no player
/// knows neither ECDSA nor RSA.
const PAIRS_MAX: usize = 2;

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{path}: {error}; a PEM file is wanted")]
    File { path: PathBuf, error: rustls::pki_types::pem::Error },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("{certificate} and {key} cannot be used together: {error}")]
    Pair { certificate: PathBuf, key: PathBuf, error: rustls::Error },
    /// Clients could not be told apart by it.
    #[error(
        "{certificate} has a key of {kind}, as the other certificate has: of two, one has a key of \
         RSA and one of ECDSA"
    )]
    Alike { certificate: PathBuf, kind: KeyKind },
}

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    Ecdsa,
    Ed25519,
    Rsa,
}

impl KeyKind {
    /// As in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ecdsa => "ecdsa",
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa",
        }
    }
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ecdsa => "ECDSA",
            Self::Ed25519 => "Ed25519",
            Self::Rsa => "RSA",
        })
    }
}

/// A certificate chain and its key.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    certified: Arc<CertifiedKey>,
    pub(crate) kind: KeyKind,
    pub(crate) ends: UnixSeconds,
}

impl Pair {
    pub(crate) fn from_pem_files(
        certificate: &Path,
        key: &Path,
        provider: &CryptoProvider,
    ) -> Result<Self, CertificateError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| CertificateError::File { path, error }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(at(certificate))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(at(key))?;
        Self::new(chain, private, provider).map_err(|error| CertificateError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        })
    }

    pub(crate) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Self, rustls::Error> {
        let ends = chain.first().and_then(ends).unwrap_or(UnixSeconds(0));
        let certified = CertifiedKey::from_der(chain, key, provider)?;
        let kind = match certified.key.algorithm() {
            SignatureAlgorithm::ECDSA => KeyKind::Ecdsa,
            SignatureAlgorithm::ED25519 => KeyKind::Ed25519,
            SignatureAlgorithm::RSA => KeyKind::Rsa,
            other => return Err(rustls::Error::General(format!("keys of {other:?} do not sign"))),
        };
        Ok(Self { certified: Arc::new(certified), kind, ends })
    }
}

/// Chooses the pair for a client.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    /// In the order in which they were given; at least one, and no kind twice.
    pairs: Vec<Pair>,
}

impl Choice {
    pub(crate) fn new(pair: Pair) -> Self {
        Self { pairs: vec![pair] }
    }

    /// The same with `pair` as number `at`, in place of the one that there is or behind the last;
    /// the pair's kind if another one has it.
    pub(crate) fn with(&self, at: usize, pair: Pair) -> Result<Self, KeyKind> {
        let mut pairs = self.pairs.clone();
        assert!(at <= pairs.len() && at < PAIRS_MAX, "no place is left out, nor one too many");
        let alike = |(other, held): (usize, &Pair)| other != at && held.kind == pair.kind;
        if pairs.iter().enumerate().any(alike) {
            return Err(pair.kind);
        }
        if at < pairs.len() {
            pairs[at] = pair;
        } else {
            pairs.push(pair);
        }
        Ok(Self { pairs })
    }

    pub(crate) fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// The one for this client, if it knows any.
    fn fitting(&self, hello: &ClientHello<'_>) -> Option<&Pair> {
        let knows =
            |pair: &&Pair| pair.certified.key.choose_scheme(hello.signature_schemes()).is_some();
        // rustls counts ECDSA as known also where only suites of TLS 1.3 go with it, whatever
        // version it will be: who offers ECDHE with RSA alone is shown RSA, which suits both.
        let wants_rsa = offers(hello, ECDHE_RSA) && !offers(hello, ECDHE_ECDSA);
        let is_second = |pair: &&Pair| (pair.kind == KeyKind::Rsa) != wants_rsa;
        self.pairs.iter().filter(knows).min_by_key(is_second)
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // Where none fits, rustls sees that with any, and tells the client so.
        let pair = self.fitting(&hello).or_else(|| self.pairs.first())?;
        Some(Arc::clone(&pair.certified))
    }
}

/// Suites of TLS 1.2 that go with each kind of key.
const ECDHE_RSA: &[CipherSuite] = &[
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];
const ECDHE_ECDSA: &[CipherSuite] = &[
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

fn offers(hello: &ClientHello<'_>, suites: &[CipherSuite]) -> bool {
    hello.cipher_suites().iter().any(|suite| suites.contains(suite))
}

/// When a certificate ends; none if that cannot be read in it.
fn ends(certificate: &CertificateDer<'_>) -> Option<UnixSeconds> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok().map(UnixSeconds)
}

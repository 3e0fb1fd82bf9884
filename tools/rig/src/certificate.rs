//! One certificate for all servers of a run, signed by a CA that ends with the run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::PublicKeyData as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, RsaKeySize,
};

/// The kind of a certificate's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Key {
    /// ECDSA P-256.
    #[default]
    Ecdsa,
    /// RSA of 2,048 bits.
    Rsa,
    /// RSA of 4,096 bits, whose signatures are the slowest that operators use.
    Rsa4096,
}

impl Key {
    /// For people.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ecdsa => "ECDSA P-256",
            Self::Rsa => "RSA 2048",
            Self::Rsa4096 => "RSA 4096",
        }
    }
}

/// Where the PEM files are.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub ca: PathBuf,
    pub chain: PathBuf,
    /// The servers' key.
    pub key: PathBuf,
}

impl Certificate {
    /// Makes one for 127.0.0.1 and localhost.
    pub fn make(dir: &Path) -> Result<Self> {
        Self::make_for(dir, &["127.0.0.1", "localhost"])
    }

    /// The same with a key of this kind.
    pub fn make_with(dir: &Path, key: Key) -> Result<Self> {
        Self::make_of(dir, &["127.0.0.1", "localhost"], key)
    }

    /// Makes one for these names and addresses.
    pub fn make_for(dir: &Path, names: &[&str]) -> Result<Self> {
        Self::make_of(dir, names, Key::Ecdsa)
    }

    fn make_of(dir: &Path, names: &[&str], key: Key) -> Result<Self> {
        let at = |name: &str| dir.join(name);
        let made = Self { ca: at("ca.pem"), chain: at("cert.pem"), key: at("key.pem") };
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "nearcast lab");
        let p256 = &rcgen::PKCS_ECDSA_P256_SHA256;
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate_for(p256)?)?;
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let rsa = &rcgen::PKCS_RSA_SHA256;
        let key = match key {
            Key::Ecdsa => KeyPair::generate_for(p256)?,
            Key::Rsa => KeyPair::generate_for(rsa)?,
            Key::Rsa4096 => KeyPair::generate_rsa_for(rsa, RsaKeySize::_4096)?,
        };
        let leaf = CertificateParams::new(names)?.signed_by(&key, &ca)?;
        fs::write(&made.ca, ca.pem())?;
        fs::write(&made.chain, leaf.pem())?;
        fs::write(&made.key, key.serialize_pem())?;
        Ok(made)
    }

    /// SHA-256 of the servers' public key in base64: Chromium believes a certificate that has it
    /// (`--ignore-certificate-errors-spki-list`).
    pub fn spki(&self) -> Result<String> {
        let key = KeyPair::from_pem(&fs::read_to_string(&self.key)?)?;
        let digest = digest::digest(&digest::SHA256, &key.subject_public_key_info());
        Ok(STANDARD.encode(digest))
    }
}

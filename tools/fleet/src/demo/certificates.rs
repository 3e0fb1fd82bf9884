//! Keys for one demo: an authority, and one leaf for the origin and all appliances.
//!
//! Made anew for each run and gone after it. No browser is told to trust the authority; Chromium is
//! started with the leaf's key pinned, so one key must do for all addresses.

use std::path::PathBuf;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};

use super::place::Place;

#[derive(Debug)]
pub(super) struct Certificates {
    /// The authority, for appliances to trust the origin by.
    pub(super) authority: PathBuf,
    /// The leaf and the authority.
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
    /// Base64 of the SHA-256 of the leaf's public key (SubjectPublicKeyInfo), as Chromium wants it.
    pub(super) spki: String,
}

impl Certificates {
    /// Makes them for the addresses 127.0.0.1 to 127.0.0.`last` and writes them to `place`.
    pub(super) fn make(place: &Place, last: u8) -> anyhow::Result<Self> {
        let wrong = "cannot make certificates";
        let mut params = CertificateParams::new(Vec::new()).context(wrong)?;
        params.distinguished_name.push(DnType::CommonName, "Nearcast demo authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().context(wrong)?;
        let authority = params.self_signed(&key).context(wrong)?.pem();
        let issuer = Issuer::new(params, key);

        let names: Vec<String> = (1..=last).map(|n| format!("127.0.0.{n}")).collect();
        let mut params = CertificateParams::new(names).context(wrong)?;
        params.distinguished_name.push(DnType::CommonName, "Nearcast demo");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context(wrong)?;
        let leaf = params.signed_by(&key, &issuer).context(wrong)?.pem();
        let public_key = key.subject_public_key_info();
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &public_key);
        Ok(Self {
            chain: place.write("chain.pem", &format!("{leaf}{authority}"))?,
            authority: place.write("authority.pem", &authority)?,
            key: place.write("key.pem", &key.serialize_pem())?,
            spki: STANDARD.encode(digest),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::origin::tls_config;

    #[test]
    fn the_chain_and_key_are_ones_that_a_server_can_use() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let demo = tempfile::tempdir().unwrap();
        let place = Place::new(demo.path(), false).unwrap();
        let made = Certificates::make(&place, 4).unwrap();
        tls_config(&made.chain, &made.key).unwrap();
        assert_eq!(STANDARD.decode(&made.spki).unwrap().len(), 32);
    }
}

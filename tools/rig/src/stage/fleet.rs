//! The fleet's authority and its signing key, which control has where there is one.

use anyhow::{Context, Result};
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::member::Member;
use identity::signing::SigningKey;
use rcgen::{CertificateParams, KeyPair};
use wire::v1::identity::Enrolled;
use wire::v1::manifest::TokenKey;

use super::wall;

/// Who makes certificates and signs manifests.
pub(crate) struct Fleet {
    authority: Authority,
    pub signer: SigningKey,
}

/// No run of the lab lasts longer.
const LIFETIME_S: u64 = 7 * 86_400;

impl Fleet {
    pub(crate) fn new() -> Result<Self> {
        let (_, signer) = SigningKey::generate("lab");
        Ok(Self { authority: Authority::create(wall()?)?, signer })
    }

    /// An identity, as if its member had enrolled.
    pub(crate) fn credentials(&self, member: &Member) -> Result<Credentials> {
        let key = KeyPair::generate()?;
        let request = CertificateParams::default().serialize_request(&key)?.pem()?;
        let mut serial = [0; 16];
        aws_lc_rs::rand::fill(&mut serial).ok().context("no random bytes")?;
        let issued = self.authority.issue(member, &request, serial, wall()?, LIFETIME_S)?;
        let signer = self.signer.public();
        let public_key = signer.public_key.iter().map(|byte| format!("{byte:02x}")).collect();
        let given = Enrolled {
            certificate: issued.certificate,
            authority: self.authority.certificate_pem().to_owned(),
            signing_keys: vec![TokenKey { kid: signer.kid, public_key }],
        };
        Ok(Credentials::new(&key.serialize_pem(), &given)?)
    }
}

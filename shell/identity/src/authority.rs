//! The authority of a fleet: the key that makes certificates, and nothing else.
//!
//! Control has it, in its state directory; tests and the lab make their own. Certificates are
//! ECDSA P-256, since everything that speaks TLS knows it, and short-lived: revocation has to
//! bridge hours, not years.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::UnixSeconds;
use crate::member::{self, Member, Seen};

/// How long the authority itself lasts.
const AUTHORITY_LIFETIME_S: u64 = 20 * 365 * 86_400;
/// Certificates begin so much earlier, for clocks that are behind.
const BACKDATED_S: u64 = 300;

/// The fleet's authority: it signs the certificates of members.
pub struct Authority {
    key: KeyPair,
    pem: String,
    der: CertificateDer<'static>,
}

/// A certificate that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The certificate, PEM.
    pub certificate: String,
    pub seen: Seen,
}

/// Why no certificate was made, or there is no authority.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("the certificate request cannot be used: {0}")]
    Request(rcgen::Error),
    #[error("the authority's key and certificate cannot be used: {0}")]
    Own(rcgen::Error),
    #[error("the authority's certificate is not PEM: {0}")]
    Pem(rustls::pki_types::pem::Error),
    /// The certificate that was made cannot be read: our own mistake.
    #[error("the certificate that was made is wrong: {0}")]
    Made(#[from] member::MemberError),
}

impl Authority {
    /// A new one. Its key exists nowhere else until [`Self::key_pem`] is stored.
    pub fn create(now: UnixSeconds) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate().map_err(AuthorityError::Own)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("Nearcast fleet authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        dated(&mut params, now, AUTHORITY_LIFETIME_S);
        let certificate = params.self_signed(&key).map_err(AuthorityError::Own)?;
        Ok(Self { pem: certificate.pem(), der: certificate.der().clone(), key })
    }

    /// From its stored key and certificate.
    pub fn from_pem(key: &str, certificate: &str) -> Result<Self, AuthorityError> {
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Own)?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let der = der.map_err(AuthorityError::Pem)?;
        Issuer::from_ca_cert_der(&der, &key).map_err(AuthorityError::Own)?;
        Ok(Self { key, pem: certificate.to_owned(), der })
    }

    /// Its key, PKCS #8 PEM: to be stored where only its owner can read it.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// Its certificate, PEM: anybody may have it.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Its certificate, DER.
    pub fn certificate_der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// A certificate for `member` and the key of `request` (PKCS #10, PEM), good for `lifetime_s`
    /// from now. Names in the request are ignored. `serial` is random, and unique by that.
    pub fn issue(
        &self,
        member: &Member,
        request: &str,
        serial: [u8; 16],
        now: UnixSeconds,
        lifetime_s: u64,
    ) -> Result<Issued, AuthorityError> {
        let mut request =
            CertificateSigningRequestParams::from_pem(request).map_err(AuthorityError::Request)?;
        request.params = member_params(member, serial, now, lifetime_s)?;
        let issuer = Issuer::from_ca_cert_der(&self.der, &self.key).map_err(AuthorityError::Own)?;
        let certificate = request.signed_by(&issuer).map_err(AuthorityError::Own)?;
        let seen = member::read(certificate.der())?;
        Ok(Issued { certificate: certificate.pem(), seen })
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority(..)")
    }
}

fn member_params(
    member: &Member,
    mut serial: [u8; 16],
    now: UnixSeconds,
    lifetime_s: u64,
) -> Result<CertificateParams, AuthorityError> {
    // Positive and of full length (RFC 5280, section 4.1.2.2), so that its text is always the same.
    serial[0] = serial[0] & 0x7f | 0x40;
    let text = |text: String| text.try_into().map_err(AuthorityError::Own);
    let mut params = CertificateParams::default();
    params.distinguished_name = name(&member.to_string());
    params.subject_alt_names =
        vec![SanType::DnsName(text(member.host())?), SanType::URI(text(member.uri())?)];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    dated(&mut params, now, lifetime_s);
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn name(text: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, text);
    name
}

fn dated(params: &mut CertificateParams, now: UnixSeconds, lifetime_s: u64) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(now.0.saturating_sub(BACKDATED_S));
    params.not_after = epoch + Duration::from_secs(now.0.saturating_add(lifetime_s));
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    fn request(key: &KeyPair) -> String {
        let params = CertificateParams::new(vec!["control.nearcast.internal".to_owned()]).unwrap();
        params.serialize_request(key).unwrap().pem().unwrap()
    }

    #[test]
    fn a_certificate_says_who_and_until_when_whatever_was_asked_for() {
        let authority = Authority::create(NOW).unwrap();
        let key = KeyPair::generate().unwrap();
        let member = Member::appliance("a1");
        let issued = authority.issue(&member, &request(&key), [0; 16], NOW, 3600).unwrap();
        assert_eq!(issued.seen.member, member);
        assert_eq!(issued.seen.not_after, UnixSeconds(NOW.0 + 3600));
        assert_eq!(issued.seen.serial, format!("40{}", "00".repeat(15)));
        let again = authority.issue(&member, &request(&key), [1; 16], NOW, 3600).unwrap();
        assert_eq!(again.seen.key, issued.seen.key, "the key's fingerprint outlives a renewal");
        let der = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let asked = b"control.nearcast.internal";
        assert!(!der.windows(asked.len()).any(|part| part == asked), "names come from us alone");
    }

    #[test]
    fn an_authority_is_the_same_after_it_was_stored() {
        let authority = Authority::create(NOW).unwrap();
        let stored =
            Authority::from_pem(&authority.key_pem(), authority.certificate_pem()).unwrap();
        assert_eq!(stored.certificate_der(), authority.certificate_der());
        assert!(Authority::from_pem("x", authority.certificate_pem()).is_err());
        assert!(Authority::from_pem(&authority.key_pem(), "x").is_err());
    }

    #[test]
    fn a_damaged_request_is_refused() {
        let authority = Authority::create(NOW).unwrap();
        let good = request(&KeyPair::generate().unwrap());
        let bad = good.replacen("MII", "MIJ", 1);
        for text in ["", "x", &bad] {
            let refused = authority.issue(&Member::control(), text, [0; 16], NOW, 60);
            assert!(matches!(refused, Err(AuthorityError::Request(_))), "{text}");
        }
    }
}

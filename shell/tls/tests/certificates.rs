//! Two certificates side by side: each client is shown the one that it knows.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SignatureScheme,
    SupportedCipherSuite, SupportedProtocolVersion, version,
};
use tls::{Acceptor, CertificateError, KeyKind, Progress, Versions};

/// An acceptor with these certificates, made in `folder`, and a store that trusts them.
fn acceptor(folder: &Path, kinds: &[&'static rcgen::SignatureAlgorithm]) -> Acceptor {
    let files = |at: usize| [folder.join(format!("{at}.pem")), folder.join(format!("{at}.key"))];
    for (at, kind) in kinds.iter().enumerate() {
        let key = rcgen::KeyPair::generate_for(kind).unwrap();
        let made = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let [certificate, private] = files(at);
        std::fs::write(certificate, made.self_signed(&key).unwrap().pem()).unwrap();
        std::fs::write(private, key.serialize_pem()).unwrap();
    }
    let [certificate, private] = files(0);
    let acceptor = Acceptor::from_pem_files(&certificate, &private).unwrap();
    for at in 1..kinds.len() {
        let [certificate, private] = files(at);
        acceptor.load(at, &certificate, &private).unwrap();
    }
    acceptor
}

/// A client of these versions and suites that knows these kinds of signatures.
struct Client<'a> {
    versions: &'a [&'static SupportedProtocolVersion],
    suites: &'a [SupportedCipherSuite],
    schemes: &'a [SignatureScheme],
}

impl Client<'_> {
    /// The number of the certificate that it is shown, and the version that was agreed.
    fn meets(&self, folder: &Path, acceptor: &Acceptor) -> Result<(usize, ProtocolVersion), u8> {
        let shown =
            |at: usize| CertificateDer::from_pem_file(folder.join(format!("{at}.pem"))).unwrap();
        let mut roots = RootCertStore::empty();
        let count = acceptor.ends().len();
        (0..count).for_each(|at| roots.add(shown(at)).unwrap());
        let mut provider = default_provider();
        provider.cipher_suites.retain(|suite| self.suites.contains(suite));
        let known = |scheme: &SignatureScheme| self.schemes.contains(scheme);
        let all = provider.signature_verification_algorithms;
        let mapping: Vec<_> =
            all.mapping.iter().copied().filter(|(scheme, _)| known(scheme)).collect();
        provider.signature_verification_algorithms.mapping = Box::leak(mapping.into());
        let provider = Arc::new(provider);
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_webpki_verifier(verifier.build().unwrap())
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut handshake = Box::new(acceptor.accept(Versions::Tls12Too).unwrap());
        loop {
            let (mut flight, mut out) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut flight).unwrap();
            }
            let progress = handshake.receive(&flight, &mut out);
            client.read_tls(&mut Cursor::new(&out)).unwrap();
            match progress {
                Err(error) => return Err(error.alert()),
                Ok(progress) => {
                    client.process_new_packets().unwrap();
                    match progress {
                        Progress::Pending(pending) => handshake = pending,
                        Progress::Done { .. } => break,
                    }
                }
            }
        }
        let got = &client.peer_certificates().unwrap()[0];
        let at = (0..count).find(|at| shown(*at) == *got).unwrap();
        Ok((at, client.protocol_version().unwrap()))
    }
}

const ECDSA: SignatureScheme = SignatureScheme::ECDSA_NISTP256_SHA256;
const PKCS1: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256;
const PSS: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;
const NEW: SupportedCipherSuite = cipher_suite::TLS13_AES_128_GCM_SHA256;
const OLD_ECDSA: SupportedCipherSuite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
const OLD_RSA: SupportedCipherSuite = cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;

#[test]
fn each_client_is_shown_the_certificate_that_it_knows_and_ecdsa_if_it_knows_both() {
    let both = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256];
    let (v12, v13) = (&version::TLS12, &version::TLS13);
    let (old, new) = (ProtocolVersion::TLSv1_2, ProtocolVersion::TLSv1_3);
    for rsa_first in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let kinds = if rsa_first { [both[1], both[0]] } else { both };
        let acceptor = acceptor(folder.path(), &kinds);
        let (ecdsa, rsa) = (usize::from(rsa_first), usize::from(!rsa_first));
        let check = |versions: &[_], suites: &[_], schemes: &[_], wanted| {
            let client = Client { versions, suites, schemes };
            let met = client.meets(folder.path(), &acceptor);
            assert_eq!(met, wanted, "{suites:?} {schemes:?}, RSA first: {rsa_first}");
        };
        check(&[v13], &[NEW], &[ECDSA, PSS, PKCS1], Ok((ecdsa, new)));
        check(&[v13], &[NEW], &[ECDSA], Ok((ecdsa, new)));
        check(&[v13], &[NEW], &[PSS, PKCS1], Ok((rsa, new)));
        check(&[v12], &[OLD_RSA, OLD_ECDSA], &[PKCS1, ECDSA], Ok((ecdsa, old)));
        check(&[v12], &[OLD_RSA, OLD_ECDSA], &[PKCS1], Ok((rsa, old)));
        check(&[v12], &[OLD_RSA, OLD_ECDSA], &[ECDSA], Ok((ecdsa, old)));
        check(&[v12], &[OLD_RSA], &[ECDSA, PKCS1], Ok((rsa, old)));
        check(&[v12], &[OLD_ECDSA], &[ECDSA, PKCS1], Ok((ecdsa, old)));
        check(&[v13, v12], &[NEW, OLD_RSA], &[ECDSA, PSS, PKCS1], Ok((rsa, new)));
        // No signature that both know: handshake_failure.
        check(&[v12], &[OLD_RSA], &[ECDSA], Err(40));
        check(&[v13], &[NEW], &[SignatureScheme::ED25519], Err(40));
    }
}

#[test]
fn two_certificates_are_of_two_kinds_and_what_is_no_good_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256];
    let acceptor = acceptor(folder.path(), &kinds);
    let at = |name: &str| folder.path().join(name);
    let ends = acceptor.ends();
    assert_eq!([ends[0].0, ends[1].0], [KeyKind::Ecdsa, KeyKind::Rsa]);
    let error = acceptor.load(0, &at("1.pem"), &at("1.key")).unwrap_err();
    assert!(matches!(error, CertificateError::Alike { kind: KeyKind::Rsa, .. }), "{error}");
    let error = acceptor.load(1, &at("1.pem"), &at("0.key")).unwrap_err();
    assert!(matches!(error, CertificateError::Pair { .. }), "{error}");
    let error = acceptor.load(1, &at("1.pem"), &at("2.key")).unwrap_err();
    assert!(matches!(error, CertificateError::File { .. }), "{error}");
    assert_eq!(acceptor.ends(), ends);
    let (versions, suites, schemes) = (&[&version::TLS12][..], &[OLD_RSA], &[PKCS1]);
    let client = Client { versions, suites, schemes };
    let met = client.meets(folder.path(), &acceptor);
    assert_eq!(met, Ok((1, ProtocolVersion::TLSv1_2)));
}

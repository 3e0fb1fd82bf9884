//! The credentials of a member: its key, its certificate, the authority, the keys that sign
//! manifests.
//!
//! One file, `identity.json`, readable by its owner only and replaced as a whole: after a power cut
//! there is the old identity or the new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::manifest::TokenKey;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, version};
use serde::{Deserialize, Serialize};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use wire::convert::{token_key_in, token_key_out};
use wire::v1;

use crate::UnixSeconds;
use crate::member::{self, MemberError, Seen};
use crate::secret_file::{SecretError, SecretFile};

/// Its file in a state directory.
pub const FILE: SecretFile = SecretFile {
    name: "identity.json",
    exposed: "have the identity revoked and enrol again",
    damaged: "enrol again",
};

/// A member's identity, ready for use on connections.
#[derive(Clone)]
pub struct Credentials {
    stored: Stored,
    seen: Seen,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    /// PKCS #8 PEM.
    key: String,
    /// PEM.
    certificate: String,
    /// PEM.
    authority: String,
    signing_keys: Vec<v1::manifest::TokenKey>,
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error(
        "{0} is not there: this machine has not enrolled. Get a one-time code from an operator \
             and run the `enrol` verb"
    )]
    Missing(PathBuf),
    #[error(transparent)]
    File(#[from] SecretError),
    #[error("control sent an identity that cannot be used: {0}")]
    Given(String),
    #[error("the identity cannot be used for TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl Credentials {
    /// From a key (PKCS #8 PEM) and control's answer.
    pub fn new(key: &str, given: &v1::identity::Enrolled) -> Result<Self, CredentialsError> {
        Self::checked(Stored {
            key: key.to_owned(),
            certificate: given.certificate.clone(),
            authority: given.authority.clone(),
            signing_keys: given.signing_keys.clone(),
        })
        .map_err(CredentialsError::Given)
    }

    /// Reads it from a state directory.
    pub fn load(state: &Path) -> Result<Self, CredentialsError> {
        let text = FILE.read(state)?;
        let text = text.ok_or_else(|| CredentialsError::Missing(state.join(FILE.name)))?;
        let stored = serde_json::from_str(&text).map_err(|error| error.to_string());
        let checked = stored.and_then(Self::checked);
        checked.map_err(|reason| FILE.damaged(state, reason).into())
    }

    /// Keeps it in a state directory: after this returns, a power cut does not lose it.
    pub fn save(&self, state: &Path) -> Result<(), CredentialsError> {
        let text = serde_json::to_string_pretty(&self.stored);
        Ok(FILE.write(state, &text.expect("strings always become JSON"))?)
    }

    /// Its holder, and its end.
    pub fn seen(&self) -> &Seen {
        &self.seen
    }

    /// From this time on it should be renewed: two thirds of its life are over.
    pub fn renew_at(&self) -> UnixSeconds {
        let (from, to) = (self.seen.not_before.0, self.seen.not_after.0);
        UnixSeconds(from + to.saturating_sub(from) / 3 * 2)
    }

    /// The key, PKCS #8 PEM, for the request of a renewal.
    pub(crate) fn key(&self) -> &str {
        &self.stored.key
    }

    /// Keys that manifests and snapshots may be signed with, as far as the enrolment knew. Later
    /// ones come with manifests.
    pub fn signing_keys(&self) -> Vec<TokenKey> {
        self.stored.signing_keys.iter().filter_map(|key| token_key_in(key).ok()).collect()
    }

    /// The same identity, believing these keys instead: a manifest that they may verify names them.
    pub fn with_signing_keys(&self, keys: &[TokenKey]) -> Self {
        let mut changed = self.clone();
        changed.stored.signing_keys = keys.iter().map(token_key_out).collect();
        changed
    }

    /// For connections to other members, which show their certificates and are shown ours.
    pub fn client_tls(&self) -> Result<TlsConfig, CredentialsError> {
        let given = |error: ureq::Error| CredentialsError::Given(error.to_string());
        let own = Certificate::from_pem(self.stored.certificate.as_bytes()).map_err(given)?;
        let authority = Certificate::from_pem(self.stored.authority.as_bytes()).map_err(given)?;
        let key = PrivateKey::from_pem(self.stored.key.as_bytes()).map_err(given)?;
        Ok(TlsConfig::builder()
            .client_cert(Some(ClientCert::new_with_certs(&[own], key)))
            .root_certs(RootCerts::from(vec![authority]))
            .unversioned_rustls_crypto_provider(provider())
            .build())
    }

    /// For connections from other members. With `strangers`, also those without a certificate are
    /// taken: the listener has to look at who came. TLS 1.3 only, HTTP/1.1.
    pub fn server_tls(&self, strangers: bool) -> Result<ServerConfig, CredentialsError> {
        let pem = |error: rustls::pki_types::pem::Error| CredentialsError::Given(error.to_string());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_slice(self.stored.authority.as_bytes());
        roots.add(authority.map_err(pem)?)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider());
        let verifier = if strangers { verifier.allow_unauthenticated() } else { verifier };
        let verifier =
            verifier.build().map_err(|error| CredentialsError::Given(error.to_string()))?;
        let own = CertificateDer::from_pem_slice(self.stored.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(self.stored.key.as_bytes()).map_err(pem)?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![own.map_err(pem)?], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // A session resumed would not show its certificate's revocation and renewal again.
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn checked(stored: Stored) -> Result<Self, String> {
        let certificate = CertificateDer::from_pem_slice(stored.certificate.as_bytes());
        let certificate = certificate.map_err(|error| format!("certificate: {error}"))?;
        let seen = member::read(&certificate)
            .map_err(|error: MemberError| format!("certificate: {error}"))?;
        CertificateDer::from_pem_slice(stored.authority.as_bytes())
            .map_err(|error| format!("authority: {error}"))?;
        PrivateKeyDer::from_pem_slice(stored.key.as_bytes())
            .map_err(|error| format!("key: {error}"))?;
        if stored.signing_keys.iter().any(|key| token_key_in(key).is_err()) {
            return Err("a signing key is not 32 bytes in hex".to_owned());
        }
        Ok(Self { stored, seen })
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// The provider of all TLS in the fleet.
pub fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::dial::Dial;
    use crate::member::Member;
    use rcgen::{CertificateParams, KeyPair};
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::os::unix::fs::PermissionsExt;

    fn now() -> UnixSeconds {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        UnixSeconds(now.as_secs())
    }

    fn credentials(authority: &Authority, member: &Member, lifetime_s: u64) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let from = UnixSeconds(now().0 - 10);
        let issued = authority.issue(member, &request, [7; 16], from, lifetime_s).unwrap();
        let given = v1::identity::Enrolled {
            certificate: issued.certificate,
            authority: authority.certificate_pem().to_owned(),
            signing_keys: Vec::new(),
        };
        Credentials::new(&key.serialize_pem(), &given).unwrap()
    }

    /// Answers one request of one connection; who it saw, if the handshake was good.
    fn answer_once(server: &Credentials) -> (SocketAddr, std::thread::JoinHandle<Option<Seen>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = Arc::new(server.server_tls(false).unwrap());
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let connection = rustls::ServerConnection::new(config).unwrap();
            let mut tls = rustls::StreamOwned::new(connection, stream);
            tls.read_exact(&mut [0]).ok()?;
            let seen = member::read(&tls.conn.peer_certificates().unwrap()[0]).unwrap();
            let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
            tls.write_all(answer).ok()?;
            Some(seen)
        });
        (address, thread)
    }

    /// True if the server, asked under the name of `name`, answered.
    fn ask(address: SocketAddr, name: &Member, tls: TlsConfig) -> bool {
        let dial = Dial::default();
        dial.set(name, &address.to_string());
        let config = ureq::Agent::config_builder().tls_config(tls).proxy(None).build();
        let connector = ureq::unversioned::transport::DefaultConnector::new();
        let agent = ureq::Agent::with_parts(config, connector, dial);
        agent.get(format!("https://{}:1/", name.host())).call().is_ok()
    }

    #[test]
    fn members_of_one_fleet_know_each_other_wherever_they_are() {
        let authority = Authority::create(now()).unwrap();
        let (a1, a2) = (Member::appliance("a1"), Member::appliance("a2"));
        let server = credentials(&authority, &a1, 60);
        let client = credentials(&authority, &a2, 60).client_tls().unwrap();
        let (address, thread) = answer_once(&server);
        assert!(ask(address, &a1, client.clone()));
        assert_eq!(thread.join().unwrap().unwrap().member, a2);
        let (address, thread) = answer_once(&server);
        assert!(!ask(address, &Member::control(), client), "a1 is not control");
        assert_eq!(thread.join().unwrap(), None);
    }

    #[test]
    fn strangers_and_what_has_expired_are_refused() {
        let (ours, theirs) = (Authority::create(now()).unwrap(), Authority::create(now()).unwrap());
        let (a1, a2) = (Member::appliance("a1"), Member::appliance("a2"));
        let server = credentials(&ours, &a1, 60);
        let expired = credentials(&ours, &a2, 5);
        let stranger = credentials(&theirs, &a2, 60);
        for client in [expired, stranger] {
            let (address, thread) = answer_once(&server);
            // Its own view of who is at the other end is not what is tested.
            let tls = client.client_tls().unwrap();
            let roots = credentials(&ours, &a2, 60).client_tls().unwrap();
            let tls = TlsConfig::builder()
                .client_cert(tls.client_cert().cloned())
                .root_certs(roots.root_certs().clone())
                .unversioned_rustls_crypto_provider(provider())
                .build();
            assert!(!ask(address, &a1, tls));
            assert_eq!(thread.join().unwrap(), None);
        }
    }

    #[test]
    fn an_identity_is_kept_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path();
        assert!(matches!(Credentials::load(state), Err(CredentialsError::Missing(_))));
        let authority = Authority::create(now()).unwrap();
        let kept = credentials(&authority, &Member::appliance("a1"), 60);
        kept.save(state).unwrap();
        assert_eq!(Credentials::load(state).unwrap().seen(), kept.seen());
        let keys = [TokenKey { kid: "s2".to_owned(), public_key: [0xa7; 32] }];
        kept.with_signing_keys(&keys).save(state).unwrap();
        let loaded = Credentials::load(state).unwrap();
        assert_eq!((loaded.signing_keys(), loaded.seen()), (keys.to_vec(), kept.seen()));
        let path = state.join(FILE.name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            Credentials::load(state),
            Err(CredentialsError::File(SecretError::Exposed { .. }))
        ));
        kept.save(state).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() / 2]).unwrap();
        assert!(matches!(
            Credentials::load(state),
            Err(CredentialsError::File(SecretError::Damaged { .. }))
        ));
    }

    #[test]
    fn it_is_renewed_while_a_third_of_its_life_is_left() {
        let authority = Authority::create(now()).unwrap();
        let kept = credentials(&authority, &Member::appliance("a1"), 86_400);
        let left = kept.seen().not_after.0 - kept.renew_at().0;
        assert!((28_000..30_000).contains(&left), "{left}");
    }
}

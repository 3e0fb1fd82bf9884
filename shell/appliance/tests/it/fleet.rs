//! A fleet's authority and its signing key: one of each for all tests.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use identity::authority::Authority;
use identity::code::Code;
use identity::credentials::Credentials;
use identity::member::Member;
use identity::signing::SigningKey;
use model::manifest::TokenKey;
use model::units::UnixSeconds;
use rcgen::{CertificateParams, KeyPair};
use rustls::ServerConfig;
use wire::v1;

use crate::http::{Handler, Request, Server, Stream};

/// Who makes certificates and signs manifests.
pub(crate) struct Fleet {
    authority: Authority,
    pub(crate) signer: SigningKey,
    serial: AtomicU8,
}

/// The fleet of all tests that want no other.
pub(crate) fn ours() -> &'static Fleet {
    static OURS: OnceLock<Fleet> = OnceLock::new();
    OURS.get_or_init(Fleet::new)
}

impl Fleet {
    pub(crate) fn new() -> Self {
        let authority = Authority::create(now()).unwrap();
        let (_, signer) = SigningKey::generate("s1");
        Self { authority, signer, serial: AtomicU8::new(0) }
    }

    /// An identity that is good for a day.
    pub(crate) fn credentials(&self, member: &Member) -> Credentials {
        self.lasting(member, 86_400)
    }

    /// One that is good for so long. Certificates begin 300 s early: below 600 s it is to be
    /// renewed at once.
    pub(crate) fn lasting(&self, member: &Member, seconds: u64) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let given = self.enrolled(member, &request, now(), seconds);
        Credentials::new(&key.serialize_pem(), &given).unwrap()
    }

    /// One that has ended.
    pub(crate) fn ended(&self, member: &Member) -> Credentials {
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
        let given = self.enrolled(member, &request, UnixSeconds(now().0 - 1000), 500);
        Credentials::new(&key.serialize_pem(), &given).unwrap()
    }

    /// What control would answer to this request.
    pub(crate) fn enrolled(
        &self,
        member: &Member,
        request: &str,
        from: UnixSeconds,
        seconds: u64,
    ) -> v1::identity::Enrolled {
        let serial = [self.serial.fetch_add(1, Ordering::SeqCst); 16];
        let issued = self.authority.issue(member, request, serial, from, seconds).unwrap();
        v1::identity::Enrolled {
            certificate: issued.certificate,
            authority: self.authority.certificate_pem().to_owned(),
            signing_keys: vec![key_out(&self.signer.public())],
        }
    }

    pub(crate) fn authority_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// A one-time code of this fleet.
    pub(crate) fn code(&self, n: u8) -> Code {
        Code::new([n; 15], self.authority.certificate_der())
    }

    /// A server that is `member` and lets in members only.
    pub(crate) fn serve(&self, address: &str, member: &Member, handler: Arc<Handler>) -> Server {
        self.serve_tls(address, self.credentials(member).server_tls(false).unwrap(), handler)
    }

    /// Control for those who have no certificate.
    pub(crate) fn serve_strangers(&self, handler: Arc<Handler>) -> Server {
        let config = self.credentials(&Member::control()).server_tls(true).unwrap();
        self.serve_tls("127.0.0.1:0", config, handler)
    }

    fn serve_tls(&self, address: &str, config: ServerConfig, handler: Arc<Handler>) -> Server {
        let config = Arc::new(config);
        let wrap = move |tcp: TcpStream| -> Box<dyn Stream> {
            let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
            Box::new(rustls::StreamOwned::new(connection, tcp))
        };
        let handler = Arc::new(move |r: &Request, out: &mut dyn Write| handler(r, out));
        Server::start_wrapped(address, handler, Arc::new(wrap))
    }
}

pub(crate) fn key_out(key: &TokenKey) -> v1::manifest::TokenKey {
    let hex = key.public_key.iter().map(|byte| format!("{byte:02x}")).collect();
    v1::manifest::TokenKey { kid: key.kid.clone(), public_key: hex }
}

pub(crate) fn now() -> UnixSeconds {
    appliance::clock::wall()
}

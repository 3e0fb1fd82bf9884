//! A member's connection to the fleet's address.

use identity::code::Code;
use identity::credentials::{Credentials, provider};
use identity::dial::Dial;
use identity::enrol::{self, About, Address, EnrolError};
use identity::member::Member;
use identity::signing::{self, VerifyError};
use serde::Serialize;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;
use wire::v1::manifest::Manifest;
use wire::v1::signed::Kind;

use crate::control::{Answer, Running, answer};

/// A member that can ask.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) credentials: Credentials,
    address: Address,
    agent: ureq::Agent,
    url: String,
}

/// What an enrolment says of the machine.
pub(crate) const ABOUT: About<'_> =
    About { software: "0.1", machine: "0123456789abcdef0123456789abcdef" };

/// Where control's members connect to.
pub(crate) fn address(control: &Running) -> Address {
    format!("https://{}", control.fleet).parse().unwrap()
}

/// Trades a code for an identity.
pub(crate) fn enrol(
    control: &Running,
    member: &Member,
    code: &Code,
) -> Result<Credentials, EnrolError> {
    enrol::enrol(&address(control), member, code, ABOUT)
}

impl Link {
    /// With a new identity of this appliance, by a code of its own.
    pub(crate) fn enrolled(control: &Running, name: &str) -> Self {
        let credentials = enrol(control, &Member::appliance(name), &control.code(name));
        Self::new(control, credentials.unwrap())
    }

    /// With an identity.
    pub(crate) fn new(control: &Running, credentials: Credentials) -> Self {
        let address = address(control);
        let agent = enrol::agent(&address, credentials.client_tls().unwrap());
        let url = enrol::control_url(&address);
        Self { credentials, address, agent, url }
    }

    /// To the front of this name, with an identity.
    pub(crate) fn to_front(front: &Running, name: &str, credentials: Credentials) -> Self {
        let address = address(front);
        let member = Member::front(name);
        let dial = Dial::default();
        dial.set(&member, address.as_str());
        let config = ureq::Agent::config_builder()
            .tls_config(credentials.client_tls().unwrap())
            .http_status_as_error(false)
            .proxy(None)
            .build();
        let agent = ureq::Agent::with_parts(config, DefaultConnector::new(), dial);
        let url = format!("https://{}:{}", member.host(), front.fleet.port());
        Self { credentials, address, agent, url }
    }

    /// The next certificate.
    pub(crate) fn renewed(&self) -> Result<Credentials, EnrolError> {
        enrol::renew(&self.address, &self.credentials)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        answer(self.agent.get(self.full(path)).call())
    }

    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Answer {
        answer(self.try_post(path, body))
    }

    /// The same, where control may be away.
    pub(crate) fn try_post(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
        self.agent.post(self.full(path)).send_json(body)
    }

    /// A manifest, if one of the keys known at enrolment signed it.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<Manifest, VerifyError> {
        let payload = signing::verify(&self.credentials.signing_keys(), Kind::Manifest, bytes)?;
        Ok(serde_json::from_slice(payload).unwrap())
    }

    fn full(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// Somebody without a certificate, who believes the authority of `link`.
pub(crate) fn stranger(control: &Running) -> (ureq::Agent, String) {
    let agent = |tls| enrol::agent(&address(control), tls);
    let url = enrol::control_url(&address(control));
    let blind = TlsConfig::builder().disable_verification(true);
    let blind = blind.unversioned_rustls_crypto_provider(provider()).build();
    let pem = answer(agent(blind).get(format!("{url}/v1/authority")).call()).bytes;
    let root = Certificate::from_pem(&pem).unwrap();
    let tls = TlsConfig::builder().root_certs(RootCerts::from(vec![root]));
    (agent(tls.unversioned_rustls_crypto_provider(provider()).build()), url)
}

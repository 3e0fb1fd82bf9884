//! A member's side of getting an identity, and of keeping it.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use wire::v1::identity::{Enrol, Enrolled, Renew};

use crate::code::Code;
use crate::credentials::{self, Credentials, CredentialsError};
use crate::dial::Dial;
use crate::member::Member;

/// Longest time for one request.
const REQUEST_MAX: Duration = Duration::from_secs(15);
/// No answer is longer.
const ANSWER_LEN_MAX: u64 = 1 << 20;

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    #[error("control at {address} cannot be reached: {error}")]
    Unreachable { address: String, error: String },
    #[error(
        "{address} is another fleet's control, or somebody is between: its authority is not the \
             one of the code. Nothing was sent to it"
    )]
    OtherAuthority { address: String },
    #[error("control refuses ({status}): {text}")]
    Refused { status: u16, text: String },
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("control gave the identity of {0}")]
    OtherMember(Member),
    #[error("cannot make a key: {0}")]
    Key(rcgen::Error),
}

/// Where control is: `https://control.example:8081` in configuration, `host:port` here. Of two
/// writers, both: `https://c1.example:8081,c2.example:8081`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

impl std::str::FromStr for Address {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wanted = "use https://HOST:PORT, the fleet address of control; of two writers, \
                      https://HOST:PORT,HOST:PORT";
        let rest = text.strip_prefix("https://").ok_or(wanted)?.trim_end_matches('/');
        let is_good = |place: &str| {
            let port = place.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            let is_port = port.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
            is_port && !place.contains(['/', '?', '#', '@'])
        };
        let is_good = rest.split(',').all(is_good);
        if is_good { Ok(Self(rest.to_owned())) } else { Err(wanted.to_owned()) }
    }
}

impl Address {
    /// `host:port`, or several with commas between them.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "https://{}", self.0)
    }
}

/// The facts about itself that a member states at enrolment.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    pub software: &'a str,
    /// See `wire::v1::identity::Enrol::machine`.
    pub machine: &'a str,
}

/// Trades a one-time code for an identity. First control proves itself by the digest in the code,
/// with nothing sent but the question who it is.
pub fn enrol(
    control: &Address,
    member: &Member,
    code: &Code,
    about: About<'_>,
) -> Result<Credentials, EnrolError> {
    let authority = authority(control, code)?;
    let root = Certificate::from_der(&authority).to_owned();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(vec![root]))
        .unversioned_rustls_crypto_provider(credentials::provider())
        .build();
    let key = KeyPair::generate().map_err(EnrolError::Key)?;
    let ask = Enrol {
        kind: member.kind,
        name: member.name.clone(),
        secret: code.secret(),
        request: request(&key)?,
        software: about.software.to_owned(),
        machine: about.machine.to_owned(),
    };
    let given: Enrolled = post(&agent(control, tls), control, "/v1/enrol", &ask)?;
    of_member(&key.serialize_pem(), &given, member)
}

/// Trades an identity that ends soon for the next one, with the same key.
pub fn renew(control: &Address, credentials: &Credentials) -> Result<Credentials, EnrolError> {
    let key = KeyPair::from_pem(credentials.key()).map_err(EnrolError::Key)?;
    let agent = agent(control, credentials.client_tls()?);
    let given: Enrolled = post(&agent, control, "/v1/renew", &Renew { request: request(&key)? })?;
    of_member(credentials.key(), &given, &credentials.seen().member)
}

/// A client for control's fleet address: URLs begin with [`control_url`]. Errors are statuses.
pub fn agent(control: &Address, tls: TlsConfig) -> ureq::Agent {
    let dial = Dial::default();
    dial.set(&Member::control(), control.as_str());
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_global(Some(REQUEST_MAX))
        .build();
    ureq::Agent::with_parts(config, ureq::unversioned::transport::DefaultConnector::new(), dial)
}

/// Base of URLs of control, without trailing slash: its name, which its certificate proves.
pub fn control_url(control: &Address) -> String {
    let port = control.as_str().rsplit_once(':').map_or("443", |(_, port)| port);
    format!("https://{}:{port}", Member::control().host())
}

fn authority(control: &Address, code: &Code) -> Result<CertificateDer<'static>, EnrolError> {
    // We are about to learn the authority: the code says whether to believe it.
    let tls = TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(credentials::provider())
        .build();
    let url = format!("{}/v1/authority", control_url(control));
    let mut answer =
        agent(control, tls).get(&url).call().map_err(|error| unreachable(control, &error))?;
    let text = text(control, &mut answer)?;
    let other = || EnrolError::OtherAuthority { address: control.to_string() };
    let authority = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| other())?;
    if code.is_for(&authority) { Ok(authority) } else { Err(other()) }
}

fn request(key: &KeyPair) -> Result<String, EnrolError> {
    let request = CertificateParams::default().serialize_request(key);
    request.and_then(|request| request.pem()).map_err(EnrolError::Key)
}

fn of_member(key: &str, given: &Enrolled, member: &Member) -> Result<Credentials, EnrolError> {
    let credentials = Credentials::new(key, given)?;
    if credentials.seen().member == *member {
        Ok(credentials)
    } else {
        Err(EnrolError::OtherMember(credentials.seen().member.clone()))
    }
}

fn post<T: serde::de::DeserializeOwned>(
    agent: &ureq::Agent,
    control: &Address,
    path: &str,
    body: &impl serde::Serialize,
) -> Result<T, EnrolError> {
    let url = format!("{}{path}", control_url(control));
    let mut answer =
        agent.post(&url).send_json(body).map_err(|error| unreachable(control, &error))?;
    let text = text(control, &mut answer)?;
    serde_json::from_str(&text).map_err(|error| CredentialsError::Given(error.to_string()).into())
}

/// The body of a good answer, or what control says is wrong.
fn text(
    control: &Address,
    answer: &mut ureq::http::Response<ureq::Body>,
) -> Result<String, EnrolError> {
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_string();
    let text = body.map_err(|error| unreachable(control, &error))?;
    if status.is_success() {
        return Ok(text);
    }
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: String,
    }
    let detail = serde_json::from_str(&text).map(|problem: Problem| problem.detail);
    let text = detail.unwrap_or_else(|_| text.chars().take(200).collect());
    Err(EnrolError::Refused { status: status.as_u16(), text })
}

fn unreachable(control: &Address, error: &ureq::Error) -> EnrolError {
    EnrolError::Unreachable { address: control.to_string(), error: error.to_string() }
}

/// 32 hex digits that are the same on one installed machine: a digest of its machine-id, which
/// itself should not leave the machine (machine-id(5)). Empty where there is none.
pub fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    if id.trim().is_empty() {
        return String::new();
    }
    let text = format!("nearcast {}", id.trim());
    crate::member::fingerprint(text.as_bytes())[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_https_address_with_a_port_will_do() {
        let address: Address = "https://control.example:8081/".parse().unwrap();
        assert_eq!(address.as_str(), "control.example:8081");
        assert!("https://[::1]:8081".parse::<Address>().is_ok());
        let two: Address = "https://c1:8081,c2:8082".parse().unwrap();
        assert_eq!(
            (two.as_str(), two.to_string().as_str()),
            ("c1:8081,c2:8082", "https://c1:8081,c2:8082")
        );
        for bad in [
            "http://c:1",
            "https://c",
            "https://c:x",
            "https://:1",
            "https://c:1/v1",
            "c:1",
            "https://c:1,",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}

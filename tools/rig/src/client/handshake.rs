//! TLS handshakes by rustls, and the keys it hands over afterwards.
//!
//! From then on rustls only derives new keys; records are walked and opened by us, since most of
//! them need not be opened at all.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::aead;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError};
use rustls::{
    CipherSuite, ClientConfig, ConnectionTrafficSecrets, ProtocolVersion, RootCertStore,
    SupportedProtocolVersion, version,
};

use super::record::{Form, HEADER_LEN, Key};

/// Longest record before the keys change: plaintext records carry no overhead, 16 KiB + 2,048 is
/// what any version allows.
const RECORD_LEN_MAX: usize = (1 << 14) + 2048;

/// A finished handshake.
pub struct Keys {
    /// Opens what the server sends.
    pub receive: Key,
    pub send: Key,
    /// Derives the next keys.
    pub kernel: KernelConnection<ClientConnectionData>,
    pub suite: CipherSuite,
}

/// The version of TLS that these suites are of; 1.3 if they are none.
pub(super) fn version(suites: &[CipherSuite]) -> &'static SupportedProtocolVersion {
    let all = &rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    let first = all.iter().find(|suite| suites.contains(&suite.suite()));
    first.map_or(&version::TLS13, |suite| suite.version())
}

/// A client's configuration: of the cipher suites only those in `suites`, which are of one version
/// (all of TLS 1.3, if there is none), and no resumption.
pub fn config(trust: &Path, suites: &[CipherSuite]) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(trust)
        .with_context(|| format!("cannot read the trusted certificates in {}", trust.display()))?;
    for certificate in certificates {
        let der = certificate.with_context(|| format!("{} is not PEM", trust.display()))?;
        roots.add(der).with_context(|| format!("bad certificate in {}", trust.display()))?;
    }
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if !suites.is_empty() {
        provider.cipher_suites.retain(|suite| suites.contains(&suite.suite()));
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version(suites)])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}

/// Shakes hands over a blocking socket. Never reads beyond the handshake's last record.
pub fn shake(
    config: &Arc<ClientConfig>,
    name: &ServerName<'static>,
    socket: &mut TcpStream,
) -> Result<Keys> {
    let mut tls = UnbufferedClientConnection::new(Arc::clone(config), name.clone())?;
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    loop {
        let status = tls.process_tls_records(&mut incoming);
        let discard = status.discard;
        let mut done = false;
        let mut read = false;
        match status.state.context("the handshake failed")? {
            ConnectionState::EncodeTlsData(mut data) => {
                let len = match data.encode(&mut []) {
                    Err(EncodeError::InsufficientSize(size)) => size.required_size,
                    Err(error) => return Err(error.into()),
                    Ok(_) => bail!("rustls encoded a message into nothing"),
                };
                let start = outgoing.len();
                outgoing.resize(start + len, 0);
                let written = data.encode(&mut outgoing[start..])?;
                outgoing.truncate(start + written);
            }
            ConnectionState::TransmitTlsData(data) => {
                socket.write_all(&outgoing).context("cannot send the handshake")?;
                outgoing.clear();
                data.done();
            }
            ConnectionState::BlockedHandshake => read = true,
            ConnectionState::WriteTraffic(_) => done = true,
            other @ (ConnectionState::ReadTraffic(_)
            | ConnectionState::ReadEarlyData(_)
            | ConnectionState::PeerClosed
            | ConnectionState::Closed
            | _) => bail!("unexpected in a handshake: {other:?}"),
        }
        incoming.drain(..discard);
        if done {
            ensure!(incoming.is_empty(), "the server sent data before it was asked");
            return keys(tls);
        }
        if read {
            read_record(socket, &mut incoming)?;
        }
    }
}

fn read_record(socket: &mut TcpStream, incoming: &mut Vec<u8>) -> Result<()> {
    let start = incoming.len();
    incoming.resize(start + HEADER_LEN, 0);
    socket.read_exact(&mut incoming[start..]).context("no answer to the handshake")?;
    let len = usize::from(u16::from_be_bytes([incoming[start + 3], incoming[start + 4]]));
    ensure!(len <= RECORD_LEN_MAX, "the server does not speak TLS");
    incoming.resize(start + HEADER_LEN + len, 0);
    socket.read_exact(&mut incoming[start + HEADER_LEN..]).context("the handshake was cut off")
}

fn keys(tls: UnbufferedClientConnection) -> Result<Keys> {
    let (secrets, kernel) = tls.dangerous_into_kernel_connection()?;
    let suite = kernel.negotiated_cipher_suite().suite();
    let is_13 = kernel.protocol_version() == ProtocolVersion::TLSv1_3;
    let form = if is_13 { Form::Tls13 } else { Form::Gcm12 };
    Ok(Keys { receive: key(form, secrets.rx)?, send: key(form, secrets.tx)?, kernel, suite })
}

/// A key as we use it, from a sequence number and a secret as rustls gives it.
pub(super) fn key(form: Form, (sequence, secret): (u64, ConnectionTrafficSecrets)) -> Result<Key> {
    let (algorithm, key, iv) = match &secret {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            ensure!(form == Form::Tls13, "this load client has no ChaCha20 of TLS 1.2");
            (&aead::CHACHA20_POLY1305, key, iv)
        }
        _ => bail!("a cipher suite that this load client does not know"),
    };
    let unbound = aead::UnboundKey::new(algorithm, key.as_ref())?;
    let iv = iv.as_ref().try_into().context("an IV has twelve bytes")?;
    Ok(Key::new(form, aead::LessSafeKey::new(unbound), iv, sequence))
}

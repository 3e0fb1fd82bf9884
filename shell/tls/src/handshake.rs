//! From a fresh connection to a session.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use model::units::UnixSeconds;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ProducesTickets, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData};
use rustls::{ServerConfig, version};
use seal::{ContentType, Form};

use crate::TlsError;
use crate::kernel::Kernels;
use crate::session::{FATAL, Session};
use crate::tickets::Tickets;

/// Bytes that a client may send until its handshake is over: a hello with a post-quantum share and
/// a ticket, about 2 KiB, and one receive of the shell with requests behind the last flight. This
/// bounds what a handshake under way can hold in memory.
const HANDSHAKE_LEN_MAX: usize = 40 * 1024;

/// Why a certificate or key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{path}: {error}; a PEM file is wanted")]
    File { path: PathBuf, error: rustls::pki_types::pem::Error },
    /// Certificate and key do not go together, or are of a kind that is not supported.
    #[error("{certificate} and {key} cannot be used together: {error}")]
    Pair { certificate: PathBuf, key: PathBuf, error: rustls::Error },
}

/// Makes handshakes. Cheap to clone; all workers share one, its certificate and its tickets.
#[derive(Clone, Debug)]
pub struct Acceptor {
    shown: Arc<RwLock<Shown>>,
    tickets: Arc<Tickets>,
    kernels: Kernels,
}

/// The versions that a listener takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.3 alone.
    #[default]
    Tls13,
    /// And TLS 1.2 with ECDHE and an AEAD, for players that know nothing newer.
    Tls12Too,
}

/// The certificate and key that new connections are shown.
#[derive(Clone, Debug)]
struct Shown {
    config: Arc<ServerConfig>,
    /// The same with TLS 1.2.
    config_12: Arc<ServerConfig>,
    ends: UnixSeconds,
}

impl Acceptor {
    /// From PEM files: the certificate chain, leaf first, and its key. Tickets have keys of this
    /// process until it is given others.
    pub fn from_pem_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let tickets = Tickets::new(wall);
        let shown = Shown::from_pem_files(certificate, key, &tickets)?;
        Ok(Self { shown: Arc::new(RwLock::new(shown)), tickets, kernels: Kernels::default() })
    }

    /// From a parsed chain and key.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        Self::with_tickets(chain, key, Tickets::new(wall))
    }

    /// The same with these tickets.
    pub fn with_tickets(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        tickets: Arc<Tickets>,
    ) -> Result<Self, rustls::Error> {
        let shown = Shown::new(chain, key, &tickets)?;
        Ok(Self { shown: Arc::new(RwLock::new(shown)), tickets, kernels: Kernels::default() })
    }

    /// Sessions of its handshakes are sealed by these.
    pub fn sealed_by(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// Reads the files anew: connections from now on are shown what is in them. Where they are no
    /// good, it stays as it was. Connections that there are do not notice.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), CertificateError> {
        let shown = Shown::from_pem_files(certificate, key, &self.tickets)?;
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = shown;
        Ok(())
    }

    /// When the certificate that is shown ends.
    pub fn ends(&self) -> UnixSeconds {
        self.shown.read().unwrap_or_else(PoisonError::into_inner).ends
    }

    /// The keys of its tickets.
    pub fn tickets(&self) -> &Arc<Tickets> {
        &self.tickets
    }

    /// A handshake for a connection that just arrived at a listener of these versions.
    pub fn accept(&self, versions: Versions) -> Result<Handshake, TlsError> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        let config = match versions {
            Versions::Tls13 => Arc::clone(&shown.config),
            Versions::Tls12Too => Arc::clone(&shown.config_12),
        };
        drop(shown);
        let connection = UnbufferedServerConnection::new(config).map_err(TlsError::Handshake)?;
        let (incoming, early, kernels) = (Vec::new(), Vec::new(), self.kernels);
        Ok(Handshake { connection, incoming, early, received: 0, answered: false, kernels })
    }
}

impl Shown {
    fn from_pem_files(
        certificate: &Path,
        key: &Path,
        tickets: &Arc<Tickets>,
    ) -> Result<Self, CertificateError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| CertificateError::File { path, error }
        };
        let chain = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(at(certificate))?;
        let private = PrivateKeyDer::from_pem_file(key).map_err(at(key))?;
        Self::new(chain, private, tickets).map_err(|error| CertificateError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        })
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        tickets: &Arc<Tickets>,
    ) -> Result<Self, rustls::Error> {
        let ends = chain.first().and_then(ends).unwrap_or(UnixSeconds(0));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let of = |versions| -> Result<_, rustls::Error> {
            let mut config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)?
                .with_no_client_auth()
                .with_single_cert(chain.clone(), key.clone_key())?;
            config.enable_secret_extraction = true;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            let ticketer: Arc<dyn ProducesTickets> = tickets.clone();
            config.ticketer = ticketer;
            Ok(Arc::new(config))
        };
        let (config, config_12) =
            (of(&[&version::TLS13])?, of(&[&version::TLS13, &version::TLS12])?);
        Ok(Self { config, config_12, ends })
    }
}

/// When a certificate ends; none if that cannot be read in it.
fn ends(certificate: &CertificateDer<'_>) -> Option<UnixSeconds> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    u64::try_from(parsed.validity().not_after.timestamp()).ok().map(UnixSeconds)
}

fn wall() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// A handshake under way.
pub struct Handshake {
    connection: UnbufferedServerConnection,
    /// Bytes of records that are not complete yet.
    incoming: Vec<u8>,
    /// Content that came right behind the client's last flight.
    early: Vec<u8>,
    received: usize,
    /// Something was sent: from now on an alert may have to be sealed, which rustls alone can.
    answered: bool,
    kernels: Kernels,
}

impl std::fmt::Debug for Handshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handshake").field("received", &self.received).finish_non_exhaustive()
    }
}

/// Where a handshake stands.
#[derive(Debug)]
pub enum Progress {
    Pending(Box<Handshake>),
    Done {
        session: Box<Session>,
        /// Content already received and opened.
        early: Vec<u8>,
        /// Received but not whole yet: these bytes come before the next ones.
        rest: Vec<u8>,
    },
}

impl Handshake {
    /// Takes received bytes. What is appended to `out` must be sent before anything else, also
    /// when an error is returned: then it is the alert that tells the client why.
    pub fn receive(
        mut self: Box<Self>,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Progress, TlsError> {
        self.received += bytes.len();
        let taken = if HANDSHAKE_LEN_MAX < self.received {
            Err(TlsError::TooLong(HANDSHAKE_LEN_MAX))
        } else {
            self.incoming.extend_from_slice(bytes);
            self.take(out)
        };
        match taken {
            Ok(true) => self.finish(),
            Ok(false) => Ok(Progress::Pending(self)),
            Err(error) => {
                self.alert(&error, out);
                Err(error)
            }
        }
    }

    /// Takes the records that are there; true if the handshake is over.
    fn take(&mut self, out: &mut Vec<u8>) -> Result<bool, TlsError> {
        loop {
            let status = self.connection.process_tls_records(&mut self.incoming);
            let mut discard = status.discard;
            let mut over = None;
            match status.state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut data, out);
                    self.answered = true;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(TlsError::Handshake)?;
                        self.early.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                }
                Ok(ConnectionState::BlockedHandshake) => over = Some(Ok(false)),
                Ok(ConnectionState::WriteTraffic(_)) => over = Some(Ok(true)),
                Ok(_) => over = Some(Err(TlsError::Closed)),
                Err(error) => over = Some(Err(TlsError::Handshake(error))),
            }
            self.incoming.drain(..discard);
            if let Some(over) = over {
                return over;
            }
        }
    }

    fn finish(self: Box<Self>) -> Result<Progress, TlsError> {
        let Self { connection, mut incoming, early, kernels, .. } = *self;
        incoming.shrink_to_fit();
        let (secrets, kernel) =
            connection.dangerous_into_kernel_connection().map_err(TlsError::Handshake)?;
        let session = Box::new(Session::new(&secrets, kernel, kernels));
        Ok(Progress::Done { session, early, rest: incoming })
    }

    /// Collects the flight and the alert that rustls still had to send when it failed. It makes
    /// no alert for some errors: before our first flight, which is not sealed, it is made here.
    fn alert(&mut self, error: &TlsError, out: &mut Vec<u8>) {
        loop {
            // Never an empty buffer: rustls remembers places in the one that it was given, and
            // panics where they are gone. Nor any further once it made its alert: it would fail
            // at the same record again, and make a second.
            let status = self.connection.process_tls_records(&mut self.incoming);
            let discard = status.discard;
            match status.state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let at = out.len();
                    encode(&mut data, out);
                    self.answered = true;
                    if is_alert(&out[at..]) {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) | Err(_) => break,
            }
            self.incoming.drain(..discard);
        }
        if !self.answered {
            out.extend([ContentType::Alert.byte(), 3, 3, 0, 2, FATAL, error.alert()]);
        }
    }
}

/// True if these records begin with an alert, plain or sealed: in TLS 1.3 a sealed one is told by
/// its length, since no message of a handshake is as short.
fn is_alert(records: &[u8]) -> bool {
    let alert_13 = 2 + Form::Tls13.overhead() - seal::HEADER_LEN;
    match *records {
        [21, ..] => true,
        [23, _, _, high, low, ..] => usize::from(u16::from_be_bytes([high, low])) == alert_13,
        _ => false,
    }
}

fn encode(data: &mut EncodeTlsData<'_, rustls::server::ServerConnectionData>, out: &mut Vec<u8>) {
    let at = out.len();
    let mut room = 4096;
    loop {
        out.resize(at + room, 0);
        match data.encode(&mut out[at..]) {
            Ok(len) => {
                out.truncate(at + len);
                return;
            }
            Err(EncodeError::InsufficientSize(size)) => room = size.required_size,
            Err(EncodeError::AlreadyEncoded) => unreachable!("each flight is encoded once"),
        }
    }
}

//! From a fresh connection to a session.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use model::units::UnixSeconds;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ProducesTickets, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData};
use rustls::{ProtocolVersion, ServerConfig, version};
use seal::{ContentType, Form, Incoming};

use crate::TlsError;
use crate::certificates::{CertificateError, Choice, KeyKind, Pair};
use crate::kernel::Kernels;
use crate::session::{FATAL, Session};
use crate::tickets::Tickets;

/// Bytes that a client may send until its handshake is over: a hello with a post-quantum share and
/// a ticket, about 2 KiB, and one receive of the shell with requests behind the last flight. This
/// bounds what a handshake under way can hold in memory.
const HANDSHAKE_LEN_MAX: usize = 40 * 1024;

/// The kind of the message that a client begins with.
const CLIENT_HELLO: u8 = 1;

const SSL_3_0: [u8; 2] = [3, 0];

/// Makes handshakes. Cheap to clone; all workers share one, its certificates and its tickets.
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

/// What new connections are shown, and what they may agree on.
#[derive(Clone, Debug)]
struct Shown {
    choice: Choice,
    config: Arc<ServerConfig>,
    /// The same with TLS 1.2.
    config_12: Arc<ServerConfig>,
}

impl Acceptor {
    /// From PEM files: the certificate chain, leaf first, and its key. Tickets have keys of this
    /// process until it is given others.
    pub fn from_pem_files(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let pair = Pair::from_pem_files(certificate, key, &default_provider())?;
        let pair_error = |error| CertificateError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        };
        Self::of(pair, Tickets::new(wall)).map_err(pair_error)
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
        Self::of(Pair::new(chain, key, &default_provider())?, tickets)
    }

    fn of(pair: Pair, tickets: Arc<Tickets>) -> Result<Self, rustls::Error> {
        let shown = Shown::new(Choice::new(pair), &tickets)?;
        Ok(Self { shown: Arc::new(RwLock::new(shown)), tickets, kernels: Kernels::default() })
    }

    /// Sessions of its handshakes are sealed by these.
    pub fn sealed_by(self, kernels: Kernels) -> Self {
        Self { kernels, ..self }
    }

    /// Takes what is in these files as its certificate number `at`, counted from 0: the next one
    /// beside those that it has, of another kind of key, or anew one that it has. Connections from
    /// now on are shown it. Where the files are no good, all stays as it was. Connections that
    /// there are do not notice.
    pub fn load(&self, at: usize, certificate: &Path, key: &Path) -> Result<(), CertificateError> {
        let pair = Pair::from_pem_files(certificate, key, &default_provider())?;
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        let choice = shown.choice.with(at, pair).map_err(|kind| CertificateError::Alike {
            certificate: certificate.to_owned(),
            kind,
        })?;
        *shown = Shown::new(choice, &self.tickets).map_err(|error| CertificateError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            error,
        })?;
        Ok(())
    }

    /// The kind of each certificate's key, and when it ends.
    pub fn ends(&self) -> Vec<(KeyKind, UnixSeconds)> {
        let shown = self.shown.read().unwrap_or_else(PoisonError::into_inner);
        shown.choice.pairs().iter().map(|pair| (pair.kind, pair.ends)).collect()
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
        let (incoming, kernels) = (Vec::new(), self.kernels);
        let (shown, window, received, greeted, sealed) = (0, 0, 0, false, false);
        Ok(Handshake { connection, incoming, shown, window, received, greeted, sealed, kernels })
    }
}

impl Shown {
    fn new(choice: Choice, tickets: &Arc<Tickets>) -> Result<Self, rustls::Error> {
        let provider = Arc::new(default_provider());
        let shown = Arc::new(choice.clone());
        let of = |versions| -> Result<_, rustls::Error> {
            let mut config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(versions)?
                .with_no_client_auth()
                .with_cert_resolver(shown.clone());
            config.enable_secret_extraction = true;
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            // Workers would share it, and it would hold 256 of them: players of TLS 1.2 have
            // tickets, and those that do not know them shake hands in full.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            let ticketer: Arc<dyn ProducesTickets> = tickets.clone();
            config.ticketer = ticketer;
            Ok(Arc::new(config))
        };
        let (config, config_12) =
            (of(&[&version::TLS13])?, of(&[&version::TLS13, &version::TLS12])?);
        Ok(Self { choice, config, config_12 })
    }
}

fn wall() -> UnixSeconds {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    UnixSeconds(since.map_or(0, |since| since.as_secs()))
}

/// A handshake under way.
pub struct Handshake {
    connection: UnbufferedServerConnection,
    /// Records that rustls has not let go of, and what follows them.
    incoming: Vec<u8>,
    /// End of the records that rustls was shown and still has: pieces of a message.
    shown: usize,
    /// End of the bytes that it was shown last.
    window: usize,
    received: usize,
    /// The first message began as it has to.
    greeted: bool,
    /// Something sealed was sent: from now on an alert has to be sealed, which rustls alone can.
    sealed: bool,
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
        /// Received behind the handshake: these bytes come before the next ones.
        rest: Vec<u8>,
    },
}

impl Handshake {
    /// True once it has sent the flight that costs a signature and a key exchange, or that spares
    /// both: what is left of it is cheap. A hello in pieces, or one that is asked for anew because
    /// its share of a key is of another group, is not answered yet.
    pub fn has_answered(&self) -> bool {
        // In TLS 1.2 no hello is asked for anew.
        self.sealed || self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_2)
    }

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

    /// Takes the records that are there; true if the handshake is over. rustls is shown them one by
    /// one, so that it sees none behind the last of the handshake: those are the session's.
    fn take(&mut self, out: &mut Vec<u8>) -> Result<bool, TlsError> {
        loop {
            let whole = self.whole_record()?;
            self.greet(whole)?;
            // What is there of one that is not whole, too: rubbish is told at once.
            self.window = whole.unwrap_or(self.incoming.len());
            if self.show(out)? {
                return Ok(true);
            }
            if whole.is_none() {
                return Ok(false);
            }
            self.shown = self.window;
        }
    }

    /// The end of the next record, if it is whole.
    fn whole_record(&self) -> Result<Option<usize>, TlsError> {
        let next = &self.incoming[self.shown..];
        if next.first().is_some_and(|kind| ContentType::from_byte(*kind).is_none()) {
            return Ok(None);
        }
        let overflow = match seal::incoming(next) {
            Ok(Incoming::Partial) => return Ok(None),
            // Only what is sealed has more than content in it.
            Ok(Incoming::Record { outer, body })
                if seal::PLAINTEXT_MAX < body.len()
                    && outer != ContentType::ApplicationData.byte() =>
            {
                body.len()
            }
            Ok(Incoming::Record { body, .. }) => return Ok(Some(self.shown + body.end)),
            Err(seal::Overflow(len)) => len,
        };
        // rustls says so, too, where the alert has to be sealed.
        if self.sealed { Ok(None) } else { Err(TlsError::Overflow(overflow)) }
    }

    /// Looks at the beginning of the client's first message, once it is there: rustls goes by
    /// `supported_versions` alone, and takes the field before it apart only where there are none.
    fn greet(&mut self, whole: Option<usize>) -> Result<(), TlsError> {
        let Some(end) = whole else { return Ok(()) };
        let record = &self.incoming[self.shown..end];
        if self.greeted || record[0] != ContentType::Handshake.byte() {
            return Ok(());
        }
        self.greeted = true;
        let message = &record[seal::HEADER_LEN..];
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(TlsError::Unexpected("message before the hello"));
        }
        // RFC 8446 section D.5: SSL 3.0 is refused wherever it is named. In a hello whose first
        // piece ends before it, nobody reads it.
        match message.get(4..6) {
            Some(&[high, low]) if [high, low] <= SSL_3_0 => Err(TlsError::Version),
            _ => Ok(()),
        }
    }

    /// Has rustls work through the window; true if the handshake is over.
    fn show(&mut self, out: &mut Vec<u8>) -> Result<bool, TlsError> {
        loop {
            let status = self.connection.process_tls_records(&mut self.incoming[..self.window]);
            let discard = status.discard;
            let mut over = None;
            match status.state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let at = out.len();
                    encode(&mut data, out);
                    self.note_sealed(&out[at..]);
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::BlockedHandshake) => over = Some(Ok(false)),
                Ok(ConnectionState::WriteTraffic(_)) => over = Some(Ok(true)),
                Ok(_) => over = Some(Err(TlsError::Closed)),
                Err(error) => over = Some(Err(TlsError::Handshake(error))),
            }
            self.discard(discard);
            if let Some(over) = over {
                return over;
            }
        }
    }

    fn discard(&mut self, len: usize) {
        self.incoming.drain(..len);
        self.window -= len;
        self.shown = self.shown.saturating_sub(len);
    }

    /// Takes note of records that go out. In TLS 1.3 those of application data are sealed, in 1.2
    /// all behind the change of the cipher.
    fn note_sealed(&mut self, mut records: &[u8]) {
        let is_13 = self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3);
        let last = if is_13 { ContentType::ApplicationData } else { ContentType::ChangeCipherSpec };
        while let Ok(Incoming::Record { outer, body }) = seal::incoming(records) {
            self.sealed |= outer == last.byte();
            records = &records[body.end..];
        }
    }

    fn finish(self: Box<Self>) -> Result<Progress, TlsError> {
        let Self { connection, mut incoming, kernels, .. } = *self;
        incoming.shrink_to_fit();
        let (secrets, kernel) =
            connection.dangerous_into_kernel_connection().map_err(TlsError::Handshake)?;
        let session = Box::new(Session::new(&secrets, kernel, kernels));
        Ok(Progress::Done { session, rest: incoming })
    }

    /// Collects the flight and the alert that rustls still had to send when it failed. It makes
    /// no alert for some errors: where it has not to be sealed, it is made here.
    fn alert(&mut self, error: &TlsError, out: &mut Vec<u8>) {
        loop {
            // The same window: rustls remembers places in the buffer that it was given, and panics
            // where they are gone. Nor any further once it made its alert: it would fail at the
            // same record again, and make a second.
            let status = self.connection.process_tls_records(&mut self.incoming[..self.window]);
            let discard = status.discard;
            match status.state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let at = out.len();
                    encode(&mut data, out);
                    if is_alert(&out[at..]) {
                        // rustls says handshake_failure for what has an alert of its own.
                        if error.is_missing_extension() && out[at] == ContentType::Alert.byte() {
                            out[at + seal::HEADER_LEN + 1] = error.alert();
                        }
                        return;
                    }
                    self.note_sealed(&out[at..]);
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(_) | Err(_) => break,
            }
            self.discard(discard);
        }
        if !self.sealed {
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

//! A connection after its handshake: sealing and opening records.

use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, ProtocolVersion};
use seal::{ContentType, Direction, Form, Incoming, OVERHEAD_MAX, PLAINTEXT_MAX};

use crate::TlsError;
use crate::aead::Key;
use crate::kernel::Kernels;

/// A key update as it goes over the wire: type 24, length 1, and whether the peer shall update too.
const KEY_UPDATE: u8 = 24;
const UPDATE_NOT_REQUESTED: [u8; 5] = [KEY_UPDATE, 0, 0, 1, 0];
const CLOSE_NOTIFY: [u8; 2] = [WARNING, 0];
const WARNING: u8 = 1;
pub(crate) const FATAL: u8 = 2;

/// Alerts by which a peer tells that it goes on: user_canceled, and no_renegotiation of TLS 1.2.
const GOES_ON: [u8; 2] = [90, 100];

/// Such alerts that a peer may send per connection. One of each makes sense.
const GOES_ON_MAX: u32 = 4;

/// Key updates that a peer may ask for per connection. Each costs two key derivations; no client
/// that downloads needs more than one per 2^24 records of its own.
const KEY_UPDATES_MAX: u32 = 64;

/// The content of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Bytes used up; the rest is the beginning of a record.
    pub consumed: usize,
    /// The peer will send no more.
    pub closed: bool,
    /// The peer ended the session with a fatal alert, and nothing is to be sent to it any more
    /// (RFC 8446 section 6.2).
    pub failed: bool,
}

impl Opened {
    fn so_far(consumed: usize) -> Self {
        Self { consumed, closed: false, failed: false }
    }
}

/// One direction: its key and its numbers.
#[derive(Debug)]
struct Half {
    key: Key,
    direction: Direction,
}

impl Half {
    fn sealing(
        (sequence, secrets): &(u64, ConnectionTrafficSecrets),
        version: ProtocolVersion,
        kernels: Kernels,
    ) -> Self {
        let key = Key::new(secrets, version, kernels);
        Self { key, direction: Direction::new(*sequence) }
    }

    /// By aws-lc, also where another library seals.
    fn opening(secrets: &(u64, ConnectionTrafficSecrets), version: ProtocolVersion) -> Self {
        let half = Self::sealing(secrets, version, Kernels::default());
        assert!(half.key.opens(), "the default is aws-lc, which alone opens");
        half
    }
}

/// A session of TLS 1.3 or 1.2 whose records are sealed here.
pub struct Session {
    tx: Half,
    rx: Half,
    /// Keeps the secrets from which the next keys come.
    kernel: KernelConnection<ServerConnectionData>,
    /// The library that seals, for each cipher.
    kernels: Kernels,
    key_updates: u32,
    goes_on: u32,
    /// Of a message of the handshake that came in pieces, those that are there: less than a key
    /// update.
    pieces: Vec<u8>,
    /// The peer asked for our key update; it goes out before the next data.
    update_owed: bool,
    /// Most plaintext in a record of ours.
    record_len: usize,
}

impl Session {
    pub(crate) fn new(
        secrets: &ExtractedSecrets,
        kernel: KernelConnection<ServerConnectionData>,
        kernels: Kernels,
    ) -> Self {
        let version = kernel.protocol_version();
        let tx = Half::sealing(&secrets.tx, version, kernels);
        let rx = Half::opening(&secrets.rx, version);
        let record_len = PLAINTEXT_MAX;
        let (key_updates, goes_on, pieces, update_owed) = (0, 0, Vec::new(), false);
        Self { tx, rx, kernel, kernels, key_updates, goes_on, pieces, update_owed, record_len }
    }

    /// Shorter records than the protocol allows, which cost more: for measurements.
    pub fn shorten_records(&mut self, record_len: usize) {
        assert!((1..=PLAINTEXT_MAX).contains(&record_len), "a record holds something");
        self.record_len = record_len;
    }

    /// Most bytes that `seal` writes for so much content in records of at most `record_len`: each
    /// part starts a record of its own.
    pub fn sealed_len_max(parts: [usize; 2], record_len: usize) -> usize {
        let update = UPDATE_NOT_REQUESTED.len() + OVERHEAD_MAX;
        let sealed = parts.into_iter().map(|part| seal::sealed_len_max(part, record_len));
        sealed.sum::<usize>() + 2 * update
    }

    /// Seals `parts` one after the other into `out` and returns how many bytes it wrote. Each byte
    /// is sealed once: what is written must be sent, in order, or the session ended.
    pub fn seal(&mut self, parts: [&[u8]; 2], out: &mut [u8]) -> Result<usize, TlsError> {
        let mut at = 0;
        self.tx.key.wake();
        if self.update_owed {
            at += self.update_key(out)?;
        }
        let count = parts.iter().map(|part| seal::record_count(part.len(), self.record_len)).sum();
        let first = match self.tx.direction.take(count) {
            Some(first) => first,
            None => {
                at += self.update_key(&mut out[at..])?;
                self.tx.direction.take(count).expect("a fresh key takes one batch")
            }
        };
        let overhead = self.tx.key.form().overhead();
        let mut records = parts.iter().flat_map(|part| part.chunks(self.record_len)).peekable();
        for sequence in first.. {
            let Some(plain) = records.next() else { break };
            // Measured: 3 % of all that a response from memory costs.
            records.peek().into_iter().for_each(|next| uring::page_starts(next));
            let end = at + plain.len() + overhead;
            self.tx.key.seal(sequence, ContentType::ApplicationData, plain, &mut out[at..end]);
            at = end;
        }
        Ok(at)
    }

    /// Gives back the memory that a connection can do without while nothing comes and goes: the
    /// ciphers' contexts, 600 bytes each. They are made again with the next record.
    pub fn rest(&mut self) {
        self.tx.key.rest();
        self.rx.key.rest();
    }

    /// Seals the alert that ends our direction into `out`.
    pub fn close_notify(&mut self, out: &mut [u8]) -> usize {
        self.seal_alert(CLOSE_NOTIFY, out)
    }

    /// Seals the alert that says why the session ends into `out`. All are fatal but
    /// no_renegotiation, which is a warning always (RFC 5246 section 7.2.2), and so has the end of
    /// our direction behind it.
    pub fn alert(&mut self, error: &TlsError, out: &mut [u8]) -> usize {
        if *error != TlsError::Renegotiation {
            return self.seal_alert([FATAL, error.alert()], out);
        }
        let len = self.seal_alert([WARNING, error.alert()], out);
        len + self.seal_alert(CLOSE_NOTIFY, &mut out[len..])
    }

    fn seal_alert(&mut self, alert: [u8; 2], out: &mut [u8]) -> usize {
        let end = alert.len() + self.tx.key.form().overhead();
        self.tx.key.wake();
        let sequence = self.tx.direction.take_reserved();
        self.tx.key.seal(sequence, ContentType::Alert, &alert, &mut out[..end]);
        end
    }

    /// Opens the whole records in `bytes` in place and hands their content to `deliver`.
    pub fn open(
        &mut self,
        bytes: &mut [u8],
        deliver: &mut dyn FnMut(&[u8]),
    ) -> Result<Opened, TlsError> {
        let mut consumed = 0;
        self.rx.key.wake();
        loop {
            let rest = &mut bytes[consumed..];
            let (outer, end) = match seal::incoming(rest) {
                Ok(Incoming::Record { outer, body }) => (outer, body.end),
                Ok(Incoming::Partial) => return Ok(Opened::so_far(consumed)),
                Err(seal::Overflow(len)) => return Err(TlsError::Overflow(len)),
            };
            consumed += end;
            let is_13 = self.rx.key.form() == Form::Tls13;
            // RFC 8446 section 5: only sealed records after the handshake; a late change cipher
            // spec is an error by then.
            if is_13 && outer != ContentType::ApplicationData.byte() {
                return Err(TlsError::Unexpected("record that is not sealed"));
            }
            let sequence =
                self.rx.direction.take(1).ok_or(TlsError::Unexpected("record: key used up"))?;
            let plain =
                self.rx.key.open(sequence, &mut rest[..end]).ok_or(TlsError::Authentication)?;
            // RFC 8446 section 5.4: the content, its type and the padding together.
            if PLAINTEXT_MAX + usize::from(is_13) < plain.len() {
                return Err(TlsError::Overflow(plain.len()));
            }
            let (kind, len) = if is_13 {
                seal::unpad(plain).ok_or(TlsError::Unexpected("empty record"))?
            } else {
                let kind = ContentType::from_byte(outer);
                (kind.ok_or(TlsError::Unexpected("content type"))?, plain.len())
            };
            if kind != ContentType::Handshake && !self.pieces.is_empty() {
                return Err(TlsError::Unexpected("record between the pieces of a message"));
            }
            match kind {
                ContentType::ApplicationData => deliver(&plain[..len]),
                ContentType::Alert => {
                    let [level, description] = *plain[..len].as_array().ok_or(if len == 0 {
                        TlsError::Unexpected("empty alert")
                    } else {
                        TlsError::Malformed("alert")
                    })?;
                    if self.is_end(is_13, level, description)? {
                        let failed = description != CLOSE_NOTIFY[1];
                        return Ok(Opened { consumed, closed: true, failed });
                    }
                }
                // TLS 1.2: whatever it is, it would begin a handshake anew.
                ContentType::Handshake if !is_13 => return Err(TlsError::Renegotiation),
                ContentType::Handshake => {
                    if len == 0 {
                        return Err(TlsError::Unexpected("empty handshake record"));
                    }
                    let message = [&self.pieces[..], &plain[..len]].concat();
                    match key_update(&message)? {
                        Some(requested) => self.peer_updated(requested)?,
                        None => self.pieces = message,
                    }
                }
                ContentType::ChangeCipherSpec => return Err(TlsError::Unexpected("content type")),
            }
        }
    }

    /// True if the alert ends the session. In TLS 1.3 all do but those of `GOES_ON`, whatever
    /// their level (RFC 8446 section 6).
    fn is_end(&mut self, is_13: bool, level: u8, description: u8) -> Result<bool, TlsError> {
        let goes_on = GOES_ON.contains(&description) && (is_13 || level == WARNING);
        self.goes_on += u32::from(goes_on);
        if GOES_ON_MAX < self.goes_on {
            return Err(TlsError::Unexpected("number of warnings"));
        }
        Ok(!goes_on)
    }

    /// The peer's next records come under its next key (RFC 8446 section 4.6.3).
    fn peer_updated(&mut self, requested: bool) -> Result<(), TlsError> {
        self.pieces.clear();
        self.key_updates += 1;
        if KEY_UPDATES_MAX < self.key_updates {
            return Err(TlsError::Unexpected("number of key updates"));
        }
        let secrets = self.kernel.update_rx_secret().map_err(TlsError::Handshake)?;
        self.rx = Half::opening(&secrets, ProtocolVersion::TLSv1_3);
        self.update_owed |= requested;
        Ok(())
    }

    /// Tells the peer that our next records come under the next key, and takes that key. TLS 1.2
    /// has none: after 2^24 records, 256 GiB, such a session ends.
    fn update_key(&mut self, out: &mut [u8]) -> Result<usize, TlsError> {
        let form = self.tx.key.form();
        if form != Form::Tls13 {
            return Err(TlsError::UsedUp);
        }
        let end = UPDATE_NOT_REQUESTED.len() + form.overhead();
        let sequence = self.tx.direction.take_reserved();
        let kind = ContentType::Handshake;
        self.tx.key.seal(sequence, kind, &UPDATE_NOT_REQUESTED, &mut out[..end]);
        let secrets = self.kernel.update_tx_secret().map_err(TlsError::Handshake)?;
        self.tx = Half::sealing(&secrets, ProtocolVersion::TLSv1_3, self.kernels);
        self.update_owed = false;
        Ok(end)
    }
}

/// The only message that a client may send behind its handshake (RFC 8446 section 4.6.3): true if
/// it asks for an update of ours, none while some of it is to come. It must end its record.
fn key_update(message: &[u8]) -> Result<Option<bool>, TlsError> {
    match *message {
        [KEY_UPDATE, 0, 0, 1, requested @ (0 | 1)] => Ok(Some(requested == 1)),
        [KEY_UPDATE, 0, 0, 1, _] => Err(TlsError::IllegalParameter("key update")),
        [KEY_UPDATE, 0, 0, 1, _, ..] => Err(TlsError::Unexpected("message behind a key update")),
        [KEY_UPDATE] | [KEY_UPDATE, 0] | [KEY_UPDATE, 0, 0] | [KEY_UPDATE, 0, 0, 1] => Ok(None),
        [KEY_UPDATE, ..] => Err(TlsError::Malformed("key update")),
        _ => Err(TlsError::Unexpected("handshake message")),
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("tx", &self.tx).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
    use ring::hkdf;
    use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite};
    use seal::RECORDS_PER_KEY_MAX;

    use super::*;
    use crate::{Acceptor, Progress, Versions};

    /// The secret of the server's records, as clients may log it.
    #[derive(Debug, Default)]
    struct Secret(Mutex<Vec<u8>>);

    impl rustls::KeyLog for Secret {
        fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
            if label == "SERVER_TRAFFIC_SECRET_0" {
                *self.0.lock().unwrap() = secret.to_vec();
            }
        }
    }

    /// A session after its handshake, and the first secret of its records, of TLS 1.3.
    fn session(suite: SupportedCipherSuite) -> (Box<Session>, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let acceptor = Acceptor::new(vec![made.cert.der().clone()], key).unwrap();
        let mut provider = default_provider();
        provider.cipher_suites = vec![suite];
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[suite.version()])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let secret = Arc::new(Secret::default());
        config.key_log = secret.clone();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        let mut handshake = Box::new(acceptor.accept(Versions::Tls12Too).unwrap());
        loop {
            let (mut flight, mut out) = (Vec::new(), Vec::new());
            while client.wants_write() {
                client.write_tls(&mut flight).unwrap();
            }
            let progress = handshake.receive(&flight, &mut out).unwrap();
            client.read_tls(&mut &out[..]).unwrap();
            client.process_new_packets().unwrap();
            match progress {
                Progress::Pending(pending) => handshake = pending,
                Progress::Done { session, .. } => {
                    return (session, secret.0.lock().unwrap().clone());
                }
            }
        }
    }

    struct Len(usize);

    impl hkdf::KeyType for Len {
        fn len(&self) -> usize {
            self.0
        }
    }

    /// HKDF-Expand-Label of RFC 8446 section 7.1, without a context.
    fn expand(secret: &[u8], label: &str, len: usize) -> Vec<u8> {
        let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, secret);
        let label = [b"tls13 ", label.as_bytes()].concat();
        let info = [0, u8::try_from(len).unwrap(), u8::try_from(label.len()).unwrap()];
        let mut out = vec![0; len];
        prk.expand(&[&info[..], &label, &[0]], Len(len)).unwrap().fill(&mut out).unwrap();
        out
    }

    /// Takes the first record, number `sequence` under the keys of `secret`, from `sent`.
    fn opened(secret: &[u8], sequence: u64, sent: &mut Vec<u8>) -> Vec<u8> {
        let len = HEADER_LEN + usize::from(u16::from_be_bytes([sent[3], sent[4]]));
        let mut record: Vec<u8> = sent.drain(..len).collect();
        let iv = expand(secret, "iv", 12).try_into().unwrap();
        let key = UnboundKey::new(&AES_128_GCM, &expand(secret, "key", 16)).unwrap();
        let nonce = Nonce::assume_unique_for_key(seal::nonce(&iv, sequence));
        let (header, body) = record.split_at_mut(HEADER_LEN);
        let opened = LessSafeKey::new(key).open_in_place(nonce, Aad::from(&*header), body);
        opened.unwrap().to_vec()
    }

    const HEADER_LEN: usize = seal::HEADER_LEN;

    #[test]
    fn before_its_records_are_used_up_a_key_is_changed_and_the_peer_told() {
        let (mut session, first) = session(cipher_suite::TLS13_AES_128_GCM_SHA256);
        let second = expand(&first, "traffic upd", 32);
        session.tx.direction = Direction::new(RECORDS_PER_KEY_MAX - 2);
        let mut out = vec![0; 1000];
        let mut seal = |parts: [&[u8]; 2]| {
            let len = session.seal(parts, &mut out).unwrap();
            out[..len].to_vec()
        };
        let mut sent = [seal([b"last", b"but one"]), seal([b"next", b"key"])].concat();
        let last = RECORDS_PER_KEY_MAX - 2;
        assert_eq!(opened(&first, last, &mut sent), b"last\x17");
        assert_eq!(opened(&first, last + 1, &mut sent), b"but one\x17");
        // Of the numbers that are kept for it.
        let update = [&UPDATE_NOT_REQUESTED[..], &[22]].concat();
        assert_eq!(opened(&first, last + 2, &mut sent), update);
        assert_eq!(opened(&second, 0, &mut sent), b"next\x17");
        assert_eq!(opened(&second, 1, &mut sent), b"key\x17");
        assert!(sent.is_empty());
    }

    #[test]
    fn a_key_of_tls_1_2_that_is_used_up_ends_its_session() {
        let suite = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
        let (mut session, _) = session(suite);
        session.tx.direction = Direction::new(RECORDS_PER_KEY_MAX - 1);
        let mut out = vec![0; 1000];
        assert!(session.seal([b"last", b""], &mut out).is_ok());
        let error = session.seal([b"none", b""], &mut out).unwrap_err();
        assert_eq!((error.clone(), error.alert()), (TlsError::UsedUp, 80));
        assert_eq!(session.alert(&error, &mut out), 2 + Form::Gcm12.overhead());
    }

    #[test]
    fn a_peer_that_uses_a_key_up_and_does_not_change_it_is_told() {
        for suite in [
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ] {
            let (mut session, _) = session(suite);
            session.rx.direction = Direction::new(RECORDS_PER_KEY_MAX);
            let mut record = [&[23, 3, 3, 0, 30][..], &[0; 30]].concat();
            let error = session.open(&mut record, &mut |_| {}).unwrap_err();
            assert_eq!(error, TlsError::Unexpected("record: key used up"));
        }
    }
}

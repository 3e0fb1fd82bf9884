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
        let (key_updates, goes_on, update_owed) = (0, 0, false);
        Self { tx, rx, kernel, kernels, key_updates, goes_on, update_owed, record_len }
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
    /// no_renegotiation, which is a warning always (RFC 5246 section 7.2.2).
    pub fn alert(&mut self, error: &TlsError, out: &mut [u8]) -> usize {
        let level = if *error == TlsError::Renegotiation { WARNING } else { FATAL };
        self.seal_alert([level, error.alert()], out)
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
                    let requested = is_key_update(&plain[..len])?;
                    self.peer_updated(requested)?;
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
/// it asks for an update of ours. One message a record: it must end the record, and nobody splits
/// five bytes.
fn is_key_update(message: &[u8]) -> Result<bool, TlsError> {
    match *message {
        [KEY_UPDATE, 0, 0, 1, requested @ (0 | 1)] => Ok(requested == 1),
        [KEY_UPDATE, 0, 0, 1, _] => Err(TlsError::IllegalParameter("key update")),
        [KEY_UPDATE, 0, 0, 1, _, ..] => Err(TlsError::Unexpected("message behind a key update")),
        [KEY_UPDATE, ..] => Err(TlsError::Malformed("key update")),
        _ => Err(TlsError::Unexpected("handshake message")),
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("tx", &self.tx).finish_non_exhaustive()
    }
}

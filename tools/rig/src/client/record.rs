//! Walks a stream of TLS records by their five-byte headers.
//!
//! ```text
//! header 5 bytes ──> keep: the record's bytes are wanted, to be opened
//!                └─> drop: only its length is wanted, its bytes need not leave the kernel
//! ```
//!
//! The walk touches no socket: it says what it wants next and is told how much came. Every record
//! is walked, so lengths are exact even where nothing is opened.

use aws_lc_rs::aead;

/// A record header's length: type, version, length (RFC 8446, section 5.1).
pub(super) const HEADER_LEN: usize = 5;
const TAG_LEN: usize = 16;
/// What of a nonce of TLS 1.2 stands in the record (RFC 5288, section 3).
const EXPLICIT_LEN: usize = 8;
/// Longest ciphertext of TLS 1.3 (RFC 8446, section 5.2), and longer than any of ours in TLS 1.2.
const LEN_MAX: usize = (1 << 14) + 256;
const APPLICATION_DATA: u8 = 23;

/// How records are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// TLS 1.3: the type is sealed behind the content.
    #[default]
    Tls13,
    /// TLS 1.2 with AES-GCM: half of the nonce stands before the content, the type in the open.
    Gcm12,
}

impl Form {
    /// By how much a record, its header not counted, is longer than its content.
    pub(super) fn overhead(self) -> usize {
        match self {
            Self::Tls13 => 1 + TAG_LEN,
            Self::Gcm12 => EXPLICIT_LEN + TAG_LEN,
        }
    }
}

/// Why the stream is not TLS as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The five bytes are no header of an encrypted record.
    #[error("not the header of an encrypted TLS record: {0:02x?}")]
    Header([u8; HEADER_LEN]),
    /// The tag does not fit: the bytes, the key or the count of records is wrong.
    #[error("record {sequence} does not open: wrong bytes, wrong key or a lost record")]
    Open {
        /// The sequence number that it was tried with.
        sequence: u64,
    },
    /// An opened record without a type byte.
    #[error("record {sequence} holds nothing but padding")]
    Empty { sequence: u64 },
}

/// What the walk wants from the socket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Want<'a> {
    /// Bytes, to be put here.
    Keep(&'a mut [u8]),
    /// This many bytes to disappear.
    Drop(usize),
}

/// What has become of the bytes that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walked {
    /// More are needed.
    Part,
    /// A header is complete, and its record has this many bytes; `keep` or `drop` is to be called.
    Header(usize),
    /// A kept record is complete: see `record_mut`.
    Kept,
    /// A dropped record of so many bytes is over.
    Dropped(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Header,
    Decide,
    Keep,
    Drop,
}

/// Where one connection's incoming stream is.
#[derive(Debug)]
pub(super) struct Walk {
    form: Form,
    phase: Phase,
    header: [u8; HEADER_LEN],
    /// Bytes of the header, or of the record, that have come.
    have: usize,
    /// The record's length by its header.
    len: usize,
    /// A kept record's bytes. Empty until one is kept; at most `LEN_MAX`.
    kept: Vec<u8>,
}

impl Walk {
    /// At the beginning of a record.
    pub(super) fn new(form: Form) -> Self {
        let (phase, header, kept) = (Phase::Header, [0; HEADER_LEN], Vec::new());
        Self { form, phase, header, have: 0, len: 0, kept }
    }

    /// What is to be read next; never empty.
    pub(super) fn want(&mut self) -> Want<'_> {
        match self.phase {
            Phase::Header => Want::Keep(&mut self.header[self.have..]),
            Phase::Keep => Want::Keep(&mut self.kept[self.have..self.len]),
            Phase::Drop => Want::Drop(self.len - self.have),
            Phase::Decide => unreachable!("a header was complete and nobody decided"),
        }
    }

    /// Takes note that `n` of the wanted bytes came.
    pub(super) fn came(&mut self, n: usize) -> Result<Walked, RecordError> {
        self.have += n;
        match self.phase {
            Phase::Header if self.have == HEADER_LEN => {
                self.len = record_len(self.form, self.header)?;
                self.have = 0;
                self.phase = Phase::Decide;
                Ok(Walked::Header(self.len))
            }
            Phase::Keep if self.have == self.len => {
                self.restart();
                Ok(Walked::Kept)
            }
            Phase::Drop if self.have == self.len => {
                self.restart();
                Ok(Walked::Dropped(self.len))
            }
            Phase::Header | Phase::Keep | Phase::Drop => Ok(Walked::Part),
            Phase::Decide => unreachable!("a header was complete and nobody decided"),
        }
    }

    /// The record just announced is to be kept.
    pub(super) fn keep(&mut self) {
        assert_eq!(self.phase, Phase::Decide, "only an announced record can be kept");
        if self.kept.len() < self.len {
            self.kept.resize(self.len, 0);
        }
        self.phase = Phase::Keep;
    }

    /// The record just announced is to be dropped.
    pub(super) fn skip(&mut self) {
        assert_eq!(self.phase, Phase::Decide, "only an announced record can be dropped");
        self.phase = Phase::Drop;
    }

    /// The record that was just kept: header and ciphertext.
    pub(super) fn record_mut(&mut self) -> ([u8; HEADER_LEN], &mut [u8]) {
        (self.header, &mut self.kept[..self.len])
    }

    fn restart(&mut self) {
        self.phase = Phase::Header;
        self.have = 0;
    }
}

/// The length that a header announces.
fn record_len(form: Form, header: [u8; HEADER_LEN]) -> Result<usize, RecordError> {
    let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
    let kind_is_known = match form {
        Form::Tls13 => header[0] == APPLICATION_DATA,
        Form::Gcm12 => (21..=APPLICATION_DATA).contains(&header[0]),
    };
    let plausible =
        kind_is_known && header[1..3] == [3, 3] && (form.overhead()..=LEN_MAX).contains(&len);
    if plausible { Ok(len) } else { Err(RecordError::Header(header)) }
}

/// What is inside an opened record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Alert, 21.
    Alert,
    /// Handshake, 22: tickets and key updates.
    Handshake,
    /// Application data, 23.
    Data,
    /// Any other type, which has no place here.
    Other(u8),
}

/// One direction's key, and which record comes next.
pub struct Key {
    form: Form,
    key: aead::LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    sequence: u64,
}

impl Key {
    /// A key that has `sequence` records behind it.
    pub fn new(
        form: Form,
        key: aead::LessSafeKey,
        iv: [u8; aead::NONCE_LEN],
        sequence: u64,
    ) -> Self {
        Self { form, key, iv, sequence }
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    /// Counts a record that was dropped unopened.
    pub fn skip(&mut self) {
        self.sequence += 1;
    }

    /// Opens the next record in place.
    pub fn open<'a>(
        &mut self,
        header: [u8; HEADER_LEN],
        record: &'a mut [u8],
    ) -> Result<(Content, &'a [u8]), RecordError> {
        let sequence = self.sequence;
        let closed = RecordError::Open { sequence };
        if self.form == Form::Gcm12 {
            self.sequence += 1;
            let additional = additional_12(sequence, header[0], record.len() - self.overhead());
            let (explicit, sealed) = record.split_at_mut(EXPLICIT_LEN);
            let mut nonce = self.iv;
            nonce[4..].copy_from_slice(explicit);
            let nonce = aead::Nonce::assume_unique_for_key(nonce);
            let additional = aead::Aad::from(additional);
            let opened = self.key.open_in_place(nonce, additional, sealed).map_err(|_| closed)?;
            return Ok((content(header[0]), opened));
        }
        let nonce = self.nonce_next();
        let opened =
            self.key.open_in_place(nonce, aead::Aad::from(header), record).map_err(|_| closed)?;
        let opened: &[u8] = opened;
        let typed = opened.iter().rposition(|byte| *byte != 0);
        let Some((at, kind)) = typed.and_then(|at| Some((at, opened.get(at)?))) else {
            return Err(RecordError::Empty { sequence });
        };
        Ok((content(*kind), &opened[..at]))
    }

    fn overhead(&self) -> usize {
        self.form.overhead()
    }

    /// Appends one record of `kind` to `out`; `plain` fits in one record.
    pub fn seal(&mut self, kind: u8, plain: &[u8], out: &mut Vec<u8>) {
        assert!(plain.len() <= 1 << 14, "a record holds 16 KiB");
        let len = u16::try_from(plain.len() + self.overhead()).expect("asserted above to fit");
        let [high, low] = len.to_be_bytes();
        let (outer, additional) = match self.form {
            Form::Tls13 => (APPLICATION_DATA, [APPLICATION_DATA, 3, 3, high, low].to_vec()),
            Form::Gcm12 => (kind, additional_12(self.sequence, kind, plain.len()).to_vec()),
        };
        out.extend_from_slice(&[outer, 3, 3, high, low]);
        let nonce = self.nonce_next();
        if self.form == Form::Gcm12 {
            out.extend_from_slice(&nonce.as_ref()[4..]);
        }
        let start = out.len();
        out.extend_from_slice(plain);
        if self.form == Form::Tls13 {
            out.push(kind);
        }
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, aead::Aad::from(additional), &mut out[start..])
            .expect("sealing fails only above 64 GiB");
        out.extend_from_slice(tag.as_ref());
    }

    /// The nonce is the IV xor the sequence number (RFC 8446, section 5.3). So may it be in TLS
    /// 1.2, where the second half goes over the wire and is only to be used once.
    fn nonce_next(&mut self) -> aead::Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= number;
        }
        self.sequence += 1;
        aead::Nonce::assume_unique_for_key(nonce)
    }
}

/// The additional data of TLS 1.2 (RFC 5246, section 6.2.3.3).
fn additional_12(sequence: u64, kind: u8, plain_len: usize) -> [u8; 13] {
    let mut data = [0; 13];
    let len = u16::try_from(plain_len).expect("a record's length is one of 16 bits");
    data[..8].copy_from_slice(&sequence.to_be_bytes());
    data[8..11].copy_from_slice(&[kind, 3, 3]);
    data[11..].copy_from_slice(&len.to_be_bytes());
    data
}

fn content(kind: u8) -> Content {
    match kind {
        21 => Content::Alert,
        22 => Content::Handshake,
        23 => Content::Data,
        other => Content::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(form: Form) -> Key {
        let unbound = aead::UnboundKey::new(&aead::AES_128_GCM, &[7; 16]).unwrap();
        Key::new(form, aead::LessSafeKey::new(unbound), [9; 12], 0)
    }

    /// Walks `stream` in pieces of the given sizes; keeps every record for which `keep` says so.
    fn walk(
        form: Form,
        stream: &[u8],
        pieces: &[usize],
        keep: impl Fn(usize) -> bool,
    ) -> Result<Vec<Result<Vec<u8>, usize>>, RecordError> {
        let (mut walk, mut opener, mut seen) = (Walk::new(form), key(form), Vec::new());
        let (mut at, mut pieces) = (0, pieces.iter().cycle());
        while at < stream.len() {
            let piece = (*pieces.next().unwrap()).min(stream.len() - at);
            let n = match walk.want() {
                Want::Keep(into) => {
                    let n = into.len().min(piece);
                    into[..n].copy_from_slice(&stream[at..at + n]);
                    n
                }
                Want::Drop(left) => left.min(piece),
            };
            at += n;
            match walk.came(n)? {
                Walked::Header(_) if keep(seen.len()) => walk.keep(),
                Walked::Header(_) => walk.skip(),
                Walked::Kept => {
                    let (header, record) = walk.record_mut();
                    let (content, plain) = opener.open(header, record)?;
                    assert_eq!(content, Content::Data);
                    seen.push(Ok(plain.to_vec()));
                }
                Walked::Dropped(len) => {
                    opener.skip();
                    seen.push(Err(len - form.overhead()));
                }
                Walked::Part => {}
            }
        }
        Ok(seen)
    }

    proptest! {
        #[test]
        fn records_are_found_however_the_stream_is_cut(
            lens in prop::collection::vec(0usize..2000, 1..12),
            pieces in prop::collection::vec(1usize..700, 1..8),
            keep in any::<u16>(),
            is_12: bool,
        ) {
            let form = if is_12 { Form::Gcm12 } else { Form::Tls13 };
            let (mut sealer, mut stream) = (key(form), Vec::new());
            let plain: Vec<Vec<u8>> =
                (0..).zip(&lens).map(|(byte, len)| vec![byte; *len]).collect();
            for text in &plain {
                sealer.seal(23, text, &mut stream);
            }
            let seen = walk(form, &stream, &pieces, |i| keep >> i & 1 == 1).unwrap();
            prop_assert_eq!(seen.len(), plain.len());
            for (i, (seen, plain)) in seen.iter().zip(&plain).enumerate() {
                match seen {
                    Ok(text) => prop_assert_eq!(text, plain),
                    Err(len) => prop_assert_eq!((*len, keep >> i & 1), (plain.len(), 0)),
                }
            }
        }
    }

    #[test]
    fn one_wrong_bit_does_not_open() {
        for form in [Form::Tls13, Form::Gcm12] {
            let (mut sealer, mut stream) = (key(form), Vec::new());
            sealer.seal(23, b"film", &mut stream);
            stream[HEADER_LEN] ^= 1;
            let opened = walk(form, &stream, &[99], |_| true);
            assert_eq!(opened, Err(RecordError::Open { sequence: 0 }));
        }
    }

    #[test]
    fn a_skipped_record_still_counts_in_the_nonce() {
        for form in [Form::Tls13, Form::Gcm12] {
            let (mut sealer, mut stream) = (key(form), Vec::new());
            sealer.seal(23, b"one", &mut stream);
            sealer.seal(23, b"two", &mut stream);
            let seen = walk(form, &stream, &[99], |i| i == 1);
            assert_eq!(seen, Ok(vec![Err(3), Ok(b"two".to_vec())]));
        }
    }

    #[test]
    fn what_is_no_encrypted_record_is_refused() {
        fn check(header: [u8; HEADER_LEN]) {
            assert_eq!(record_len(Form::Tls13, header), Err(RecordError::Header(header)));
        }
        check(*b"HTTP/");
        check([22, 3, 3, 1, 0]);
        check([23, 3, 3, 0, 16]);
        check([23, 3, 3, 0x41, 1]);
        assert_eq!(record_len(Form::Tls13, [23, 3, 3, 0x41, 0]), Ok(LEN_MAX));
        let in_the_open = [22, 3, 3, 1, 0];
        assert_eq!(record_len(Form::Gcm12, in_the_open), Ok(256));
        let short = [23, 3, 3, 0, 23];
        assert_eq!(record_len(Form::Gcm12, short), Err(RecordError::Header(short)));
    }

    #[test]
    fn padding_is_taken_off() {
        let (mut sealer, mut stream) = (key(Form::Tls13), Vec::new());
        sealer.seal(0, b"data\x17\0\0", &mut stream);
        assert_eq!(walk(Form::Tls13, &stream, &[99], |_| true), Ok(vec![Ok(b"data".to_vec())]));
    }
}

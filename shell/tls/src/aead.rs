//! The one call that moves every byte: AEAD sealing out of place, through aws-lc's C interface, or
//! through ring where that is faster (`kernel` says which).
//!
//! The safe interface of aws-lc-rs seals in place only, which costs a copy (0.03 CPU s/GB) and
//! would write to the buffer that a hot cache shares between connections. ring has no other, so
//! what it seals is copied into the record first. This is the only `unsafe` outside `uring`.
#![expect(unsafe_code, reason = "EVP_AEAD_CTX_seal_scatter has no safe wrapper")]

use std::ptr::NonNull;
use std::sync::LazyLock;

use aws_lc_sys::{
    EVP_AEAD_CTX, EVP_AEAD_CTX_free, EVP_AEAD_CTX_new, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_128_gcm, EVP_aead_aes_256_gcm,
    EVP_aead_chacha20_poly1305,
};
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ConnectionTrafficSecrets, ProtocolVersion};
use seal::{ContentType, Form, HEADER_LEN, TAG_LEN};

use crate::kernel::{Cipher, Kernel, Kernels};

/// A traffic key with its IV.
pub(crate) struct Key {
    context: Context,
    iv: [u8; 12],
    cipher: Cipher,
    form: Form,
    kernel: Kernel,
    /// The key, of which the cipher takes as much as it needs.
    bytes: [u8; KEY_LEN_MAX],
}

/// The library's form of the key: 600 bytes, which a connection that rests does without.
enum Context {
    Resting,
    AwsLc(AwsLc),
    Ring(Ring),
}

/// A context of aws-lc's. It is freed where this is dropped, and nowhere else.
struct AwsLc(NonNull<EVP_AEAD_CTX>);

/// A key of ring's, which does not wipe its own: written over where this is dropped.
struct Ring(Box<LessSafeKey>);

/// Of AES-256 and ChaCha20.
pub(crate) const KEY_LEN_MAX: usize = 32;

/// The key that is written over one of ring's.
static BLANK: LazyLock<LessSafeKey> = LazyLock::new(|| ring_key(Cipher::Aes256, &[0; KEY_LEN_MAX]));

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Key");
        text.field("cipher", &self.cipher).field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

// SAFETY: the context is owned, has no thread affinity, and is not changed by sealing or opening.
unsafe impl Send for AwsLc {}

impl Key {
    /// The key of one direction.
    pub(crate) fn new(
        secrets: &ConnectionTrafficSecrets,
        version: ProtocolVersion,
        kernels: Kernels,
    ) -> Self {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20, key, iv),
            _ => unreachable!("the acceptor offers three ciphers"),
        };
        let form = match (version, cipher) {
            (ProtocolVersion::TLSv1_3, _) => Form::Tls13,
            (_, Cipher::Chacha20) => Form::Chacha12,
            (_, Cipher::Aes128 | Cipher::Aes256) => Form::Gcm12,
        };
        let iv = iv.as_ref().try_into().expect("the IV has 12 bytes, for TLS 1.2 with its salt");
        let mut bytes = [0; KEY_LEN_MAX];
        bytes[..key.as_ref().len()].copy_from_slice(key.as_ref());
        let mut made = Self::of(kernels.of(cipher), cipher, bytes, iv);
        made.form = form;
        made
    }

    /// The key of these bytes, for this library.
    pub(crate) fn of(
        kernel: Kernel,
        cipher: Cipher,
        bytes: [u8; KEY_LEN_MAX],
        iv: [u8; 12],
    ) -> Self {
        let form = Form::Tls13;
        let mut made = Self { context: Context::Resting, iv, cipher, form, kernel, bytes };
        made.wake();
        made
    }

    /// Frees the memory that `wake` takes again.
    pub(crate) fn rest(&mut self) {
        self.context = Context::Resting;
    }

    /// Whether `open` is for this key.
    pub(crate) fn opens(&self) -> bool {
        self.kernel == Kernel::AwsLc
    }

    /// To be called before sealing or opening.
    pub(crate) fn wake(&mut self) {
        if let Context::Resting = self.context {
            self.context = match self.kernel {
                Kernel::AwsLc => Context::AwsLc(AwsLc::new(self.cipher, &self.bytes)),
                Kernel::Ring => Context::Ring(Ring(Box::new(ring_key(self.cipher, &self.bytes)))),
            };
        }
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Seals `plain` as record `sequence` into `record`, which is exactly as long as the record.
    pub(crate) fn seal(&self, sequence: u64, kind: ContentType, plain: &[u8], record: &mut [u8]) {
        let form = self.form;
        assert_eq!(record.len(), plain.len() + form.overhead(), "a record fits exactly");
        let nonce = seal::nonce(&self.iv, sequence);
        let header = form.header(kind, plain.len());
        let (head, rest) = record.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header);
        let (explicit, sealed) = rest.split_at_mut(form.nonce_len());
        explicit.copy_from_slice(&nonce[4..4 + form.nonce_len()]);
        if form == Form::Tls13 {
            self.seal_under(nonce, &header, plain, &[kind.byte()], sealed);
        } else {
            let additional = seal::additional_12(sequence, kind.byte(), plain.len());
            self.seal_under(nonce, &additional, plain, &[], sealed);
        }
    }

    /// Seals `plain` and `kind`, one byte or none, into `sealed`, which is as much longer than
    /// `plain` as `kind` and the tag are.
    pub(crate) fn seal_under(
        &self,
        nonce: [u8; 12],
        additional: &[u8],
        plain: &[u8],
        kind: &[u8],
        sealed: &mut [u8],
    ) {
        match &self.context {
            Context::Resting => unreachable!("it was woken before"),
            Context::AwsLc(context) => context.seal(&nonce, additional, plain, kind, sealed),
            Context::Ring(Ring(key)) => {
                let (body, tag) = sealed.split_at_mut(plain.len() + kind.len());
                body[..plain.len()].copy_from_slice(plain);
                body[plain.len()..].copy_from_slice(kind);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let made = key.seal_in_place_separate_tag(nonce, Aad::from(additional), body);
                tag.copy_from_slice(made.expect("a record is shorter than GCM's limit").as_ref());
            }
        }
    }

    /// Opens record `sequence` in place: `record` is all of it. The plaintext, in TLS 1.3 with its
    /// type and padding, or nothing if the record is not authentic. With a key of aws-lc's only:
    /// what viewers send is too little to be worth a choice.
    pub(crate) fn open<'r>(&self, sequence: u64, record: &'r mut [u8]) -> Option<&'r [u8]> {
        let Context::AwsLc(context) = &self.context else {
            unreachable!("what opens is of aws-lc's and was woken before")
        };
        let (header, rest) = record.split_at_mut(HEADER_LEN);
        let (explicit, sealed) = rest.split_at_mut_checked(self.form.nonce_len())?;
        let body_len = sealed.len().checked_sub(TAG_LEN)?;
        let mut nonce = seal::nonce(&self.iv, sequence);
        nonce[4..4 + explicit.len()].copy_from_slice(explicit);
        let of_12 = seal::additional_12(sequence, header[0], body_len);
        let additional = if self.form == Form::Tls13 { &*header } else { &of_12[..] };
        let (body, tag) = sealed.split_at_mut(body_len);
        let address = body.as_mut_ptr();
        // SAFETY: every pointer comes with the length of its slice; opening in place (output and
        // input at the same address) is allowed by EVP_AEAD_CTX_open_gather.
        let ok = unsafe {
            EVP_AEAD_CTX_open_gather(
                context.0.as_ptr(),
                address,
                nonce.as_ptr(),
                nonce.len(),
                address,
                body_len,
                tag.as_ptr(),
                tag.len(),
                additional.as_ptr(),
                additional.len(),
            )
        };
        (ok == 1).then_some(&*body)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.bytes.fill(0);
        // So that it is done though nobody reads it any more.
        std::hint::black_box(&self.bytes);
    }
}

impl AwsLc {
    fn new(cipher: Cipher, bytes: &[u8; KEY_LEN_MAX]) -> Self {
        // SAFETY: returns the address of a static table; takes nothing.
        let aes_128 = unsafe { EVP_aead_aes_128_gcm() };
        // SAFETY: as above.
        let aes_256 = unsafe { EVP_aead_aes_256_gcm() };
        // SAFETY: as above.
        let chacha20 = unsafe { EVP_aead_chacha20_poly1305() };
        let (algorithm, key) = match cipher {
            Cipher::Aes128 => (aes_128, &bytes[..16]),
            Cipher::Aes256 => (aes_256, &bytes[..]),
            Cipher::Chacha20 => (chacha20, &bytes[..]),
        };
        // SAFETY: `key` is `key.len()` readable bytes, copied into the new context.
        let context = unsafe { EVP_AEAD_CTX_new(algorithm, key.as_ptr(), key.len(), TAG_LEN) };
        Self(NonNull::new(context).expect("a key of the cipher's own length is accepted"))
    }

    fn seal(
        &self,
        nonce: &[u8; 12],
        additional: &[u8],
        plain: &[u8],
        kind: &[u8],
        sealed: &mut [u8],
    ) {
        let (body, tail) = sealed.split_at_mut(plain.len());
        let mut tail_len = 0;
        // SAFETY: the context is a live one, freed when `self` is dropped. Every other pointer
        // comes with the length of its slice; `body` is as long as `plain` and does not overlap it
        // (one is borrowed mutably); `tail` holds the type and the tag.
        let ok = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                self.0.as_ptr(),
                body.as_mut_ptr(),
                tail.as_mut_ptr(),
                &raw mut tail_len,
                tail.len(),
                nonce.as_ptr(),
                nonce.len(),
                plain.as_ptr(),
                plain.len(),
                kind.as_ptr(),
                kind.len(),
                additional.as_ptr(),
                additional.len(),
            )
        };
        assert!(
            ok == 1 && tail_len == kind.len() + TAG_LEN,
            "sealing fails only if it is called wrongly"
        );
    }
}

impl Drop for AwsLc {
    fn drop(&mut self) {
        // SAFETY: made by EVP_AEAD_CTX_new, and freed here only; wipes the key.
        unsafe { EVP_AEAD_CTX_free(self.0.as_ptr()) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        write_over(&mut self.0);
    }
}

fn write_over(key: &mut LessSafeKey) {
    *key = BLANK.clone();
    // So that it is done though nobody reads it any more.
    std::hint::black_box(key);
}

fn ring_key(cipher: Cipher, bytes: &[u8; KEY_LEN_MAX]) -> LessSafeKey {
    let (algorithm, key) = match cipher {
        Cipher::Aes128 => (&ring::aead::AES_128_GCM, &bytes[..16]),
        Cipher::Aes256 => (&ring::aead::AES_256_GCM, &bytes[..]),
        Cipher::Chacha20 => (&ring::aead::CHACHA20_POLY1305, &bytes[..]),
    };
    let key = UnboundKey::new(algorithm, key);
    LessSafeKey::new(key.expect("a key of the cipher's own length is accepted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_rings_that_is_written_over_is_gone() {
        let tag = |key: &LessSafeKey| {
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut [0; 64]).unwrap()
        };
        let mut key = ring_key(Cipher::Aes128, &[7; KEY_LEN_MAX]);
        assert_ne!(tag(&key).as_ref(), tag(&BLANK).as_ref());
        write_over(&mut key);
        assert_eq!(tag(&key).as_ref(), tag(&BLANK).as_ref());
    }
}

//! The one call that moves every byte: AEAD sealing out of place, through aws-lc's C interface.
//!
//! The safe interface of aws-lc-rs seals in place only, which costs a copy (0.03 CPU s/GB) and
//! would write to the buffer that a hot cache shares between connections. This is the only
//! `unsafe` outside `uring`.
#![expect(unsafe_code, reason = "EVP_AEAD_CTX_seal_scatter has no safe wrapper")]

use std::ptr::NonNull;

use aws_lc_sys::{
    EVP_AEAD_CTX, EVP_AEAD_CTX_free, EVP_AEAD_CTX_new, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_128_gcm, EVP_aead_aes_256_gcm,
    EVP_aead_chacha20_poly1305,
};
use rustls::ConnectionTrafficSecrets;
use seal::{ContentType, HEADER_LEN, TAIL_LEN};

/// Length of the tag of every TLS 1.3 cipher offered.
const TAG_LEN: usize = 16;

/// A traffic key with its IV.
pub(crate) struct Key {
    /// What aws-lc makes of the key: 600 bytes, which a connection that rests does without.
    context: Option<NonNull<EVP_AEAD_CTX>>,
    iv: [u8; 12],
    cipher: Cipher,
    /// The key, of which the cipher takes as much as it needs.
    bytes: [u8; KEY_LEN_MAX],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cipher {
    Aes128,
    Aes256,
    Chacha20,
}

/// Of AES-256 and ChaCha20.
const KEY_LEN_MAX: usize = 32;

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("cipher", &self.cipher).finish_non_exhaustive()
    }
}

// SAFETY: the context is owned, has no thread affinity, and is not changed by sealing or opening.
unsafe impl Send for Key {}

impl Key {
    /// The key of one direction.
    pub(crate) fn new(secrets: &ConnectionTrafficSecrets) -> Self {
        let (cipher, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Cipher::Aes128, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Cipher::Aes256, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Cipher::Chacha20, key, iv),
            _ => unreachable!("the acceptor offers three ciphers"),
        };
        let iv = iv.as_ref().try_into().expect("every TLS 1.3 IV has 12 bytes");
        let mut bytes = [0; KEY_LEN_MAX];
        bytes[..key.as_ref().len()].copy_from_slice(key.as_ref());
        let mut made = Self { context: None, iv, cipher, bytes };
        made.wake();
        made
    }

    /// Gives back what `wake` makes again.
    pub(crate) fn rest(&mut self) {
        if let Some(context) = self.context.take() {
            // SAFETY: made by EVP_AEAD_CTX_new, freed once; wipes the key.
            unsafe { EVP_AEAD_CTX_free(context.as_ptr()) };
        }
    }

    /// To be called before sealing or opening.
    pub(crate) fn wake(&mut self) {
        if self.context.is_some() {
            return;
        }
        // SAFETY: returns the address of a static table; takes nothing.
        let aes_128 = unsafe { EVP_aead_aes_128_gcm() };
        // SAFETY: as above.
        let aes_256 = unsafe { EVP_aead_aes_256_gcm() };
        // SAFETY: as above.
        let chacha20 = unsafe { EVP_aead_chacha20_poly1305() };
        let (algorithm, key) = match self.cipher {
            Cipher::Aes128 => (aes_128, &self.bytes[..16]),
            Cipher::Aes256 => (aes_256, &self.bytes[..]),
            Cipher::Chacha20 => (chacha20, &self.bytes[..]),
        };
        // SAFETY: `key` is `key.len()` readable bytes, copied into the new context.
        let context = unsafe { EVP_AEAD_CTX_new(algorithm, key.as_ptr(), key.len(), TAG_LEN) };
        let context = NonNull::new(context).expect("a key of the cipher's own length is accepted");
        self.context = Some(context);
    }

    /// Asks for what sealing and opening look at.
    pub(crate) fn prefetch(&self) {
        if let Some(context) = self.context {
            uring::lines(context.as_ptr().cast(), size_of::<EVP_AEAD_CTX>());
        }
    }

    fn context(&self) -> *const EVP_AEAD_CTX {
        self.context.expect("it was woken before").as_ptr()
    }

    /// Seals `plain` as record `sequence` into `record`, which is exactly as long as the record.
    pub(crate) fn seal(&self, sequence: u64, kind: ContentType, plain: &[u8], record: &mut [u8]) {
        assert_eq!(record.len(), HEADER_LEN + plain.len() + TAIL_LEN, "a record fits exactly");
        let nonce = seal::nonce(&self.iv, sequence);
        let header = seal::header(plain.len());
        let kind = [kind.byte()];
        let (head, rest) = record.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&header);
        let (body, tail) = rest.split_at_mut(plain.len());
        let mut tail_len = 0;
        // SAFETY: every pointer comes with the length of its slice; `body` is as long as `plain`
        // and does not overlap it (one is borrowed mutably); `tail` holds the type and the tag.
        let ok = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                self.context(),
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
                header.as_ptr(),
                header.len(),
            )
        };
        assert!(ok == 1 && tail_len == TAIL_LEN, "sealing fails only if it is called wrongly");
    }

    /// Opens record `sequence` in place: `record` is header, body and tag. The plaintext with its
    /// type and padding, or nothing if the record is not authentic.
    pub(crate) fn open<'r>(&self, sequence: u64, record: &'r mut [u8]) -> Option<&'r [u8]> {
        let (header, sealed) = record.split_at_mut(HEADER_LEN);
        let body_len = sealed.len().checked_sub(TAG_LEN)?;
        let nonce = seal::nonce(&self.iv, sequence);
        let (body, tag) = sealed.split_at_mut(body_len);
        let address = body.as_mut_ptr();
        // SAFETY: every pointer comes with the length of its slice; opening in place (output and
        // input at the same address) is allowed by EVP_AEAD_CTX_open_gather.
        let ok = unsafe {
            EVP_AEAD_CTX_open_gather(
                self.context(),
                address,
                nonce.as_ptr(),
                nonce.len(),
                address,
                body_len,
                tag.as_ptr(),
                tag.len(),
                header.as_ptr(),
                header.len(),
            )
        };
        (ok == 1).then_some(&*body)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.rest();
        self.bytes.fill(0);
        // So that it is done though nobody reads it any more.
        std::hint::black_box(&self.bytes);
    }
}

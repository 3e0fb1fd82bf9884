//! TLS for the appliance: rustls shakes hands, then its secrets are taken over and records are
//! sealed here, out of place, from the drive's buffer into a scratch that is still hot when the
//! kernel copies it (docs/decisions/2026-11-21-userspace-seal.md).
//!
//! ```text
//! Acceptor ──> Handshake ── bytes in, flights out ──> Session ── seal, open, close_notify
//! ```
//!
//! No sockets here: bytes in, bytes out. TLS 1.2 is refused with `protocol_version` but where it is
//! asked for.

mod aead;
mod certificates;
mod handshake;
mod kernel;
mod processor;
mod session;
mod survey;
mod tickets;

pub use certificates::{CertificateError, KeyKind};
pub use handshake::{Acceptor, Handshake, Progress, Versions};
pub use kernel::{Cipher, Kernel, Kernels, Wanted, WantedError};
pub use processor::Processor;
pub use session::{Opened, Session};
pub use survey::{NoKernel, Survey, Trial, survey};
pub use tickets::{ROTATION, TicketKey, Tickets};

/// Most plaintext in a record.
pub const RECORD_LEN_MAX: usize = seal::PLAINTEXT_MAX;

/// Of a handshake, by its own word. rustls ends the connection there and makes no alert.
const MESSAGE_TOO_LONG: rustls::InvalidMessage = rustls::InvalidMessage::HandshakePayloadTooLarge;

/// Why a connection cannot go on. The caller sends what is pending (an alert) and closes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The peer broke the protocol, or shares no version or cipher with us.
    #[error("handshake failed: {0}")]
    Handshake(rustls::Error),
    #[error("closed during the handshake")]
    Closed,
    /// A record that was not sealed with the session's key, or not in its place.
    #[error("a record failed authentication")]
    Authentication,
    #[error("record of {0} bytes")]
    Overflow(usize),
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// A message that is not as long as its kind is.
    #[error("malformed {0}")]
    Malformed(&'static str),
    #[error("{0} with a value that the protocol does not know")]
    IllegalParameter(&'static str),
    #[error("a hello of SSL 3.0 or older")]
    Version,
    #[error("handshake of more than {0} bytes")]
    TooLong(usize),
    /// TLS 1.2 could; nobody who plays needs it.
    #[error("the peer wants to shake hands again")]
    Renegotiation,
    /// TLS 1.2 has no other key for this session.
    #[error("all records of the session's key are used up")]
    UsedUp,
}

impl TlsError {
    /// The description of the alert that tells the peer (RFC 8446 section 6.2). rustls makes its
    /// own for what fails in its hands, but not always where the order of records is broken.
    pub fn alert(&self) -> u8 {
        match self {
            Self::Unexpected(_) => 10,
            Self::Handshake(
                rustls::Error::PeerMisbehaved(_)
                | rustls::Error::InappropriateMessage { .. }
                | rustls::Error::InappropriateHandshakeMessage { .. },
            ) => 10,
            Self::Authentication => 20,
            Self::Overflow(_) | Self::Handshake(rustls::Error::PeerSentOversizedRecord) => 22,
            Self::Handshake(_) if self.is_missing_extension() => 109,
            Self::Handshake(rustls::Error::InvalidMessage(MESSAGE_TOO_LONG)) => 50,
            Self::Handshake(_) | Self::Closed => 40,
            Self::IllegalParameter(_) => 47,
            Self::Malformed(_) | Self::TooLong(_) => 50,
            Self::Version => 70,
            Self::UsedUp => 80,
            Self::Renegotiation => 100,
        }
    }

    /// True of a hello without the extension that RFC 8446 section 9.2 has an alert for.
    fn is_missing_extension(&self) -> bool {
        let missing = rustls::PeerIncompatible::KeyShareExtensionRequired;
        *self == Self::Handshake(missing.into())
    }
}

//! TLS 1.3 for the appliance: rustls shakes hands, then its secrets are taken over and records are
//! sealed here, out of place, from the drive's buffer into a scratch that is still hot when the
//! kernel copies it (docs/decisions/2026-11-21-userspace-seal.md).
//!
//! ```text
//! Acceptor ──> Handshake ── bytes in, flights out ──> Session ── seal, open, close_notify
//! ```
//!
//! No sockets here: bytes in, bytes out. TLS 1.2 is refused by rustls with `protocol_version`.

mod aead;
mod handshake;
mod session;

pub use handshake::{Acceptor, CertificateError, Handshake, Progress};
pub use session::{Opened, Session};

/// Why a connection cannot go on. The caller sends what is pending (an alert) and closes.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum TlsError {
    /// The peer broke the protocol, or shares no version or cipher with us.
    #[error("handshake failed: {0}")]
    Handshake(rustls::Error),
    /// The peer ended the connection before the handshake was over.
    #[error("closed during the handshake")]
    Closed,
    /// A record that was not sealed with the session's key, or not in its place.
    #[error("a record failed authentication")]
    Authentication,
    /// A record or message that has no place here.
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// More handshake bytes than any client needs.
    #[error("handshake of more than {0} bytes")]
    TooLong(usize),
}

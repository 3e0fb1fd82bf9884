//! rustls handshakes, secrets, AEAD calls.

//! The TLS record layer's arithmetic.

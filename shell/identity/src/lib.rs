//! Who is who: the authority of a fleet, the certificates that it gives, one-time codes, signatures.

//! Connections of clients: their bounds, their certificate, and failed attempts by network.

pub(crate) mod attempts;
pub(crate) mod certificate;
pub(crate) mod listener;

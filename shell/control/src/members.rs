//! Who may ask: operators by token, players by ticket, fronts and appliances by certificate.

pub mod access;
pub(crate) mod authority;
pub(crate) mod identities;
pub mod keys;
pub(crate) mod own;
pub(crate) mod tickets;

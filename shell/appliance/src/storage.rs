//! DOC storage

pub(crate) mod absence;
pub mod drives;
pub mod format;
pub mod gate;
pub(crate) mod host;
pub(crate) mod ledger;
pub mod mounts;
pub(crate) mod mover;
pub mod pages;
pub(crate) mod shared;
pub(crate) mod slots;
pub mod source;
pub mod tiering;

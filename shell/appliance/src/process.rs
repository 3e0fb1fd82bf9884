//! DOC process

pub mod certificate;
pub mod config;
pub mod confine;
pub(crate) mod hot;
pub mod inspect;
pub mod memory;
pub mod metrics;
pub mod server;
pub mod storage;

//! DOC serving

pub mod ablation;
pub mod aead;
pub mod event_loop;
pub mod incidents;
pub mod listen;
pub mod mailbox;
pub(crate) mod pacing;
pub mod request_log;
pub(crate) mod socket;

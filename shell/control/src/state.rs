//! Desired state: its database, the one place that changes it, and its copies on fronts.

pub(crate) mod clients;
pub(crate) mod convert;
pub(crate) mod decisions;
pub(crate) mod demand;
pub(crate) mod difference;
pub(crate) mod directing;
pub mod documents;
pub(crate) mod front;
pub mod issue;
pub(crate) mod lease;
pub(crate) mod manifests;
pub(crate) mod probe;
pub(crate) mod quotas;
pub(crate) mod replica;
pub(crate) mod sheds;
pub mod store;
pub(crate) mod tick;
pub(crate) mod unshared;
pub(crate) mod vault;
pub(crate) mod viewers;
pub mod writer;

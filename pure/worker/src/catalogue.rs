//! What there is to serve: the manifest's paths, the index's places, and small objects' bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{AssetVersionId, ObjectId};
use model::manifest::{AssetVersion, TokenKey};
use model::units::{Bytes, Nanos, UnixSeconds};

/// What there is to serve.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) versions: BTreeMap<AssetVersionId, Arc<AssetVersion>>,
    pub(crate) token_keys: Vec<TokenKey>,
    /// Grows when `token_keys` changes.
    pub(crate) keys_epoch: u64,
    /// How long after its expiry a token is still good.
    pub(crate) token_leeway: Nanos,
    pub(crate) index: store::index::Index,
    pub(crate) small: BTreeMap<ObjectId, Arc<[u8]>>,
}

impl Catalogue {
    /// The moment that tokens must not have expired at.
    pub(crate) fn token_clock(&self, wall: UnixSeconds) -> UnixSeconds {
        UnixSeconds(wall.0.saturating_sub(self.token_leeway.as_seconds()))
    }

    /// True if the object is published here, with the length that the manifest says it has.
    pub(crate) fn holds(&self, object: ObjectId, len: Bytes) -> bool {
        match self.small.get(&object) {
            Some(bytes) => Bytes::of(bytes.len()) == len,
            None => self.index.locate(&object).is_some_and(|extent| extent.len == len),
        }
    }
}

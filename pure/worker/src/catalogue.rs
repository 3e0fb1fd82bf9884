//! What there is to serve: the manifest's paths, the index's places, and small objects' bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{AssetVersionId, ObjectId};
use model::manifest::{AssetVersion, TokenKey};
use model::units::Bytes;

/// What there is to serve.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    pub(crate) versions: BTreeMap<AssetVersionId, Arc<AssetVersion>>,
    pub(crate) token_keys: Vec<TokenKey>,
    /// Grows when `token_keys` changes.
    pub(crate) keys_epoch: u64,
    pub(crate) index: store::index::Index,
    pub(crate) small: BTreeMap<ObjectId, Arc<[u8]>>,
}

impl Catalogue {
    /// True if the object is published here, with the length that the manifest says it has.
    pub(crate) fn holds(&self, object: ObjectId, len: Bytes) -> bool {
        match self.small.get(&object) {
            Some(bytes) => Bytes::of(bytes.len()) == len,
            None => self.index.locate(&object).is_some_and(|extent| extent.len == len),
        }
    }
}

//! The content to serve: the manifest's paths, the index's places, and small objects' bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Generation, ObjectId};
use model::manifest::{AssetVersion, TokenKey};
use model::units::{Bytes, Nanos, UnixSeconds};

#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    /// Of the manifest that this is.
    pub(crate) generation: Generation,
    pub(crate) versions: BTreeMap<AssetVersionId, Arc<AssetVersion>>,
    /// The siblings in this site that should hold a version.
    pub(crate) holders: BTreeMap<AssetVersionId, Vec<ApplianceId>>,
    /// Siblings that can serve now, and their base URLs.
    pub(crate) siblings: Arc<BTreeMap<ApplianceId, Arc<str>>>,
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

    /// The base URL of a sibling that should hold the version and can serve; each in its turn.
    pub(crate) fn sibling(&self, version: &str, turn: u64) -> Option<&str> {
        let holders = self.holders.get(version)?;
        let urls = || holders.iter().filter_map(|id| self.siblings.get(id));
        let count = u64::try_from(urls().count()).unwrap_or(u64::MAX);
        let nth = usize::try_from(turn.checked_rem(count)?).unwrap_or(0);
        urls().nth(nth).map(|url| &**url)
    }

    /// True if the object is published here, with the length that the manifest says it has.
    pub(crate) fn holds(&self, object: ObjectId, len: Bytes) -> bool {
        match self.small.get(&object) {
            Some(bytes) => Bytes::of(bytes.len()) == len,
            None => self.index.locate(&object).is_some_and(|extent| extent.len == len),
        }
    }
}

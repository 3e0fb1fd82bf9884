//! The trust document: what all appliances share, with a generation of its own.
//!
//! ```text
//! a key, a revoked certificate ──> document, generation + 1 ──> Action::StoreTrust
//!                                         durable ──> published ──> told in every reply
//! ```
//!
//! So a key makes one document and no manifest, but for appliances that do not read it: theirs have
//! keys and revoked certificates as they always had. O(keys + revoked certificates) for a change,
//! and nothing of the fleet's size.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::id::Generation;
use model::manifest::{TokenKey, Trust, TrustDocument};
use model::units::{Instant, UnixSeconds};

use crate::SAY_AGAIN_AFTER;
use crate::desired::Desired;
use crate::following::{OVERTAKEN_MAX, next_generation};
use crate::machines::once_in_a_while;

/// Which trust document is, or should become, durable as the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrustEntry {
    pub generation: Generation,
    digest: i64,
}

impl TrustEntry {
    /// As it was kept.
    pub fn of_number(generation: Generation, number: i64) -> Self {
        Self { generation, digest: number }
    }

    /// Equal for equal documents, whatever their generations.
    pub fn number(self) -> i64 {
        self.digest
    }
}

/// Stages, and once its generation is durable publishes, the trust document.
#[derive(Clone, Debug, Default)]
pub(crate) struct Publisher {
    /// The newest that is durable.
    entry: TrustEntry,
    pub(crate) published: Option<Arc<TrustDocument>>,
    staged: Option<Staged>,
    /// An appliance follows a newer one than there is: the next goes above it.
    ahead: Generation,
    overtaken: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Staged {
    entry: TrustEntry,
    document: TrustDocument,
    said_at: Instant,
}

impl Publisher {
    pub(crate) fn new(entry: TrustEntry) -> Self {
        Self { entry, ..Self::default() }
    }

    #[cfg(test)]
    pub(crate) fn entry(&self) -> TrustEntry {
        self.entry
    }

    /// The newest document, once it is as desired state wants it.
    pub(crate) fn settled(&self) -> Option<&Arc<TrustDocument>> {
        self.published.as_ref().filter(|_| self.staged.is_none())
    }

    /// This is desired from now on, whatever its generation. What has to be made durable for it;
    /// none if it is, or waits to be.
    pub(crate) fn want(
        &mut self,
        now: Instant,
        now_unix: UnixSeconds,
        mut document: TrustDocument,
    ) -> Option<TrustEntry> {
        let digest = digest(&document);
        let generation = match &self.staged {
            Some(staged)
                if staged.entry.digest == digest && self.ahead < staged.entry.generation =>
            {
                return None;
            }
            Some(staged) => staged.entry.generation,
            None => self.entry.generation,
        };
        let is_known = self.staged.is_none() && self.entry.digest == digest;
        if is_known && self.ahead <= generation && generation != Generation(0) {
            document.trust.generation = generation;
            self.published = Some(Arc::new(document));
            return None;
        }
        let generation = next_generation(generation.max(self.ahead), now_unix);
        document.trust.generation = generation;
        let entry = TrustEntry { generation, digest };
        self.staged = Some(Staged { entry, document, said_at: now });
        Some(entry)
    }

    pub(crate) fn stored(&mut self, generation: Generation) {
        let is_it = |staged: &mut Staged| staged.entry.generation == generation;
        let Some(staged) = self.staged.take_if(is_it) else { return };
        assert!(self.entry.generation < generation, "generations of trust documents grow");
        self.entry = staged.entry;
        self.published = Some(Arc::new(staged.document));
    }

    /// The generation that is not stored yet, to ask for it once more; none before a while has
    /// passed.
    pub(crate) fn again(&mut self, now: Instant) -> Option<TrustEntry> {
        let staged = self.staged.as_mut().filter(|s| SAY_AGAIN_AFTER < now.since(s.said_at))?;
        staged.said_at = now;
        Some(staged.entry)
    }

    /// True if an appliance follows a newer one than there is, and one above has to be made. Not
    /// over and over, and not if the number is nonsense: control's clock bounds it alone, since the
    /// newest may be what another one made up.
    pub(crate) fn overtake(
        &mut self,
        now: Instant,
        followed: Generation,
        now_unix: UnixSeconds,
    ) -> bool {
        let newest = self.staged.as_ref().map_or(self.entry, |staged| staged.entry).generation;
        let most = now_unix.0.saturating_add(OVERTAKEN_MAX);
        let is_ahead = newest < followed && followed.0 <= most;
        let is_ahead = is_ahead && once_in_a_while(&mut self.overtaken, now);
        if is_ahead {
            self.ahead = followed;
        }
        is_ahead
    }
}

/// What desired state says of it.
pub(crate) fn document(desired: &Desired) -> TrustDocument {
    TrustDocument {
        token_keys: desired.token_keys.clone(),
        trust: Trust {
            signing_keys: desired.signing_keys.clone(),
            revoked: BTreeSet::clone(&desired.revoked),
            ..Trust::default() // who signs it says when
        },
    }
}

/// Covers all that can differ but the generation.
fn digest(document: &TrustDocument) -> i64 {
    let mut hasher = blake3::Hasher::new();
    let mut put = |bytes: &[u8]| {
        hasher.update(&u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(bytes);
    };
    put(b"nearcast-trust-v1");
    let TrustDocument { token_keys, trust } = document;
    let mut put_keys = |kind: &[u8], keys: &[TokenKey]| {
        for key in keys {
            [kind, key.kid.as_bytes(), &key.public_key].into_iter().for_each(&mut put);
        }
    };
    put_keys(b"key", token_keys);
    put_keys(b"signing key", &trust.signing_keys);
    trust.revoked.iter().for_each(|serial| {
        put(b"revoked");
        put(serial.as_bytes());
    });
    let mut number = [0; 8];
    number.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(number)
}

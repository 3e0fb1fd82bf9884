//! Manifests in the envelopes that appliances are given.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body;
use model::id::{ApplianceId, Generation};
use model::manifest::{Manifest, TrustDocument};
use model::units::Instant;
use tokio::task::spawn_blocking;
use wire::v1::signed::Kind;

use super::Control;
use crate::state::directing::{Busy, Desk};

/// A manifest as it was signed, with its generation; none before the first.
pub(super) type SignedManifest = Option<(Generation, body::Bytes)>;

/// The trust document as it was signed, once for all who ask.
#[derive(Default)]
pub(super) struct SignedTrust {
    kept: Mutex<SignedManifest>,
    /// Held by who signs it. Others who ask wait, and no thread does.
    signing: tokio::sync::Mutex<()>,
}

/// What an appliance reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Versions that are named by their documents.
    pub(crate) short: bool,
    /// Trust documents: then a short one has no keys.
    pub(crate) trust: bool,
}

impl Control {
    /// The newest manifest of an appliance in its envelope, if it is newer than `known`. A short
    /// one is signed for each who asks. The bytes of a whole one are signed once for a generation,
    /// with keys, and may be tens of megabytes: nobody waits for it but who asks for the same.
    pub(crate) async fn signed_manifest(
        self: &Arc<Self>,
        id: ApplianceId,
        known: Generation,
        reads: Reads,
    ) -> Result<Result<Option<body::Bytes>, director::NotRegistered>, Busy> {
        let asked = id.clone();
        let ask = move |desk: &Desk, _: Instant| {
            (desk.director.manifest(&asked), desk.director.trust().cloned())
        };
        let (manifest, trust) = self.directing.ask(ask).await?;
        let manifest = match manifest {
            Ok(Some(manifest)) if known < manifest.generation => manifest,
            Ok(_) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        };
        // Where the keys are is durable in a moment.
        if manifest.trust.is_apart && trust.is_none() {
            return Ok(Ok(None));
        }
        let control = Arc::clone(self);
        let signed = spawn_blocking(move || control.sign_for(&id, &manifest, trust, reads));
        Ok(Ok(Some(signed.await.expect("nothing in it panics"))))
    }

    fn sign_for(
        &self,
        id: &ApplianceId,
        manifest: &Arc<Manifest>,
        trust: Option<Arc<TrustDocument>>,
        reads: Reads,
    ) -> body::Bytes {
        let mut manifest = Arc::clone(manifest);
        if let Some(trust) = trust {
            if reads.short && reads.trust {
                let wire = self.manifests.short(&manifest);
                return self.sign(wire::convert::without_trust(wire, trust.trust.generation));
            }
            if manifest.trust.is_apart {
                manifest = Arc::new(Manifest::clone(&manifest).with_trust(&trust));
            }
        }
        match reads.short {
            true => self.sign(self.manifests.short(&manifest)),
            false => self.sign_whole(id, &manifest),
        }
    }

    /// The trust document in its envelope, if it is newer than `known`. It is signed once.
    pub(crate) async fn signed_trust(
        self: &Arc<Self>,
        known: Generation,
    ) -> Result<Option<body::Bytes>, Busy> {
        let trust = self.directing.ask(|desk, _| desk.director.trust().cloned()).await?;
        let Some(trust) = trust.filter(|of| known < of.trust.generation) else { return Ok(None) };
        let generation = trust.trust.generation;
        if let Some(bytes) = self.kept_trust(generation) {
            return Ok(Some(bytes));
        }
        let _signing = self.trust.signing.lock().await;
        if let Some(bytes) = self.kept_trust(generation) {
            return Ok(Some(bytes));
        }
        let control = Arc::clone(self);
        let signed = spawn_blocking(move || {
            let mut wire = wire::convert::trust_out(&trust);
            wire.issued_unix_s = control.clock.unix().0;
            let payload = serde_json::to_vec(&wire).expect("a document always becomes JSON");
            body::Bytes::from(control.signing.sign(Kind::Trust, &payload))
        });
        let bytes = signed.await.expect("nothing in it panics");
        self.metrics.trust_documents_signed.count();
        let mut kept = self.trust.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|(older, _)| *older < generation) {
            *kept = Some((generation, bytes.clone()));
        }
        Ok(Some(bytes))
    }

    fn kept_trust(&self, generation: Generation) -> Option<body::Bytes> {
        let kept = self.trust.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().filter(|(of, _)| *of == generation).map(|(_, bytes)| bytes.clone())
    }

    fn sign_whole(&self, id: &ApplianceId, manifest: &Manifest) -> body::Bytes {
        let place = {
            let mut all = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(all.entry(id.clone()).or_default())
        };
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((generation, bytes)) = &*kept
            && *generation == manifest.generation
        {
            return bytes.clone();
        }
        let bytes = self.sign(wire::convert::manifest_out(manifest));
        *kept = Some((manifest.generation, bytes.clone()));
        drop(kept);
        // It may be gone by now. If it goes later, this goes with it.
        if !self.is_registered(id) {
            self.forget_signed(id);
        }
        bytes
    }

    fn sign(&self, mut manifest: wire::v1::manifest::Manifest) -> body::Bytes {
        manifest.issued_unix_s = self.clock.unix().0;
        let payload = serde_json::to_vec(&manifest).expect("a manifest always becomes JSON");
        self.metrics.manifests_signed.count();
        body::Bytes::from(self.signing.sign(Kind::Manifest, &payload))
    }

    /// An appliance is gone.
    pub(super) fn forget_signed(&self, id: &ApplianceId) {
        self.signed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

#[cfg(test)]
mod tests {
    use crate::state::directing::Desk;
    use crate::state::writer::tests::open;

    #[tokio::test]
    async fn no_signed_manifest_is_kept_of_an_appliance_that_is_gone() {
        let (_directory, control) = open("").await;
        let a1 = crate::state::directing::tests::registered(&control).await;
        let asked = a1.clone();
        let manifest = move |desk: &mut Desk, _| desk.director.manifest(&asked).unwrap();
        let manifest = control.directing.ask_in_turn(manifest).await.expect("it is published");
        let kept = || control.signed.lock().unwrap().len();
        control.sign_whole(&a1, &manifest);
        assert_eq!(kept(), 1);
        control.delete_appliance(&a1).await.unwrap();
        assert_eq!(kept(), 0);
        control.sign_whole(&a1, &manifest);
        assert_eq!(kept(), 0, "it was asked for before");
    }
}

//! Manifests in the envelopes that appliances are given.

use std::sync::{Arc, PoisonError};

use axum::body;
use model::id::{ApplianceId, Generation};
use model::manifest::Manifest;
use tokio::task::spawn_blocking;
use wire::v1::signed::Kind;

use super::Control;
use crate::state::directing::Busy;

/// A manifest as it was signed, with its generation; none before the first.
pub(super) type SignedManifest = Option<(Generation, body::Bytes)>;

impl Control {
    /// The newest manifest of an appliance in its envelope, if it is newer than `known`. A short
    /// one is signed for each who asks. The bytes of a whole one are signed once for a generation,
    /// which may be tens of megabytes: nobody waits for it but who asks for the same.
    pub(crate) async fn signed_manifest(
        self: &Arc<Self>,
        id: ApplianceId,
        known: Generation,
        is_short: bool,
    ) -> Result<Result<Option<body::Bytes>, director::NotRegistered>, Busy> {
        let asked = id.clone();
        let manifest = self.directing.ask(move |desk, _| desk.director.manifest(&asked)).await?;
        let manifest = match manifest {
            Ok(Some(manifest)) if known < manifest.generation => manifest,
            Ok(_) => return Ok(Ok(None)),
            Err(error) => return Ok(Err(error)),
        };
        let control = Arc::clone(self);
        let signed = spawn_blocking(move || match is_short {
            true => control.sign(control.manifests.short(&manifest)),
            false => control.sign_whole(&id, &manifest),
        });
        Ok(Ok(Some(signed.await.expect("nothing in it panics"))))
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

//! The writer's side of fronts: the snapshot that they are given, signed when one asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_lc_rs::digest::{SHA256, digest};
use axum::body;
use model::id::Generation;
use wire::v1::signed::Kind;

use super::Control;
use crate::state::directing::Desk;
use crate::state::replica;
use crate::state::store::StoreError;

/// The last snapshot that fronts were given.
#[derive(Debug, Default)]
pub(crate) struct Replication {
    /// None before the first front has asked.
    signed: Option<(Generation, body::Bytes)>,
}

/// Why a front gets no snapshot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplicaError {
    /// Its generation could not be written, so nobody may see it.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "this front has generation {known}, and the newest here is {newest}: was this writer \
             restored from an old copy of its state? If so, stop the front, delete its snapshot \
             file and start it"
    )]
    Behind { known: Generation, newest: Generation },
}

/// What fronts were given stays old until there is something newer, also if the front that asked
/// leaves before: no other would get it.
struct StillOld<'a>(Option<&'a AtomicBool>);

impl StillOld<'_> {
    fn renewed(mut self) {
        self.0 = None;
    }
}

impl Drop for StillOld<'_> {
    fn drop(&mut self) {
        if let Some(is_old) = self.0 {
            is_old.store(true, Ordering::SeqCst);
        }
    }
}

impl Control {
    /// The newest snapshot in its envelope, if it is newer than `known`.
    pub(crate) async fn replica_snapshot(
        self: &Arc<Self>,
        known: Generation,
    ) -> Result<Option<body::Bytes>, ReplicaError> {
        let mut replication = self.replication.lock().await;
        let is_old = self.replica_is_old.swap(false, Ordering::SeqCst);
        let (newest, bytes) = match &replication.signed {
            Some(signed) if !is_old => signed.clone(),
            _ => {
                let still_old = StillOld(Some(&self.replica_is_old));
                let signed = self.sign_snapshot().await?;
                still_old.renewed();
                replication.signed.insert(signed).clone()
            }
        };
        if newest < known {
            return Err(ReplicaError::Behind { known, newest });
        }
        Ok((known < newest).then_some(bytes))
    }

    /// Signs what should be now. Its generation grows if it is not what fronts were given last, and
    /// is durable before they see it.
    async fn sign_snapshot(self: &Arc<Self>) -> Result<(Generation, body::Bytes), StoreError> {
        let look = |desk: &mut Desk, _| {
            (desk.director.desired().without_receipts(), desk.director.generation())
        };
        let (desired, manifests) = self.directing.ask_in_turn(look).await;
        let issued = self.clock.unix();
        let none = Generation(0);
        // A large catalogue takes a while, which no other request should wait.
        let work = move || {
            let wire = replica::snapshot_out(&desired, none, none, model::units::UnixSeconds(0));
            let bytes = serde_json::to_vec(&wire).expect("a snapshot always becomes JSON");
            (wire, digest(&SHA256, &bytes))
        };
        let (mut wire, digest) =
            tokio::task::spawn_blocking(work).await.expect("nothing in it panics");
        let first = digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        // A database's numbers are signed.
        let digest = u64::from_le_bytes(*first) >> 1;
        let (known, known_digest) = self.store.replica().await?;
        let generation = if known_digest == digest { known } else { known.next() };
        if generation != known {
            self.store.put_replica(generation, digest).await?;
            tracing::info!(generation = generation.0, "a snapshot for fronts");
        }
        (wire.generation, wire.manifests, wire.issued_unix_s) =
            (generation.0, manifests.0, issued.0);
        let control = self.clone();
        let work = move || {
            let payload = serde_json::to_vec(&wire).expect("a snapshot always becomes JSON");
            body::Bytes::from(control.signing.sign(Kind::Snapshot, &payload))
        };
        let bytes = tokio::task::spawn_blocking(work).await.expect("nothing in it panics");
        Ok((generation, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use director::Policy;
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    #[tokio::test]
    async fn a_front_that_leaves_while_a_snapshot_is_signed_keeps_it_from_nobody() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let first = control.replica_snapshot(Generation(0)).await.unwrap();
        let known = control.store.replica().await.unwrap().0;
        assert!(first.is_some());
        control.put_policy(Policy { copies: 5, versions_kept: 1 }).await.unwrap();
        let mut asked = Box::pin(control.replica_snapshot(known));
        let begins = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx).is_pending()));
        assert!(begins.await, "it is signed on another thread");
        drop(asked);
        assert!(control.replica_snapshot(known).await.unwrap().is_some());
        assert!(control.replica_snapshot(known.next()).await.unwrap().is_none());
    }
}

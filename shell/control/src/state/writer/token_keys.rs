//! Rotation of the keys of playback tokens: the director says when, the file says where it stands.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use director::{Change, Event};
use identity::secret_file::SecretError;
use model::units::UnixSeconds;

use super::Control;
use crate::members::keys::Keys;

impl Control {
    /// Begins a rotation: the next key is announced in the trust document. False if one is
    /// under way.
    pub(crate) async fn rotate_token_key(self: &Arc<Self>) -> Result<bool, SecretError> {
        let _writing = self.writing.lock().await;
        let now = self.clock.unix();
        let is_new =
            self.change_token_keys(|keys| keys.announce(self.config.folder(), now)).await?;
        if is_new {
            tracing::info!("the next key of playback tokens is announced");
        }
        self.carry_out().await;
        Ok(is_new)
    }

    /// The next key signs. The caller holds the writer's lock.
    pub(super) async fn use_next_token_key(&self) {
        let lifetime = self.config.playback.token_lifetime.0.as_seconds();
        let retires = self.clock.unix().0.saturating_add(lifetime).saturating_add(RETIRES_LATER_S);
        let state = self.config.folder();
        match self.change_token_keys(|keys| keys.use_next(state, UnixSeconds(retires))).await {
            Ok(true) => tracing::info!(retires, "the next key signs playback tokens from now on"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "the next key of playback tokens cannot be used"),
        }
    }

    /// Keys of no more use go. The caller holds the writer's lock.
    pub(super) async fn drop_old_token_keys(&self) {
        let now = self.clock.unix();
        match self.change_token_keys(|keys| keys.drop_old(self.config.folder(), now)).await {
            Ok(true) => tracing::info!("an old key of playback tokens is gone"),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "an old key of playback tokens stays"),
        }
    }

    /// What `change` makes of the keys is durable, then in force. False if it makes nothing.
    async fn change_token_keys(
        &self,
        change: impl FnOnce(&Keys) -> Result<Option<Keys>, SecretError>,
    ) -> Result<bool, SecretError> {
        let Some(keys) = change(&self.keys())? else { return Ok(false) };
        self.keep_secrets().await?;
        let change = Change::TokenKeys(keys.public(), keys.rotation());
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        self.handle(Event::Changed(change)).await;
        self.replica_is_old.store(true, Ordering::SeqCst);
        Ok(true)
    }
}

/// A key is checked for so long after its last token should have expired: a front learns within a
/// minute that it is not to sign with it any more, and clocks differ.
const RETIRES_LATER_S: u64 = 3600;

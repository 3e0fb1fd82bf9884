//! Who may play: what operators declare public, and what services end.

use std::sync::Arc;

use director::{Change, PlaybacksChange};
use model::id::AssetId;
use model::units::UnixSeconds;
use playback::token::Session;

use super::{ChangeError, Control, VERSIONS_MAX, room_for};

impl Control {
    /// Says whether anybody may play an asset.
    pub(crate) async fn declare(
        self: &Arc<Self>,
        asset: AssetId,
        is_public: bool,
    ) -> Result<(), ChangeError> {
        let _writing = self.writing.lock().await;
        let snapshot = self.snapshot();
        let playbacks = &snapshot.playbacks;
        if playbacks.public().contains(&asset) == is_public {
            return Ok(());
        }
        if is_public && snapshot.catalog.versions(&asset).is_empty() {
            return Err(ChangeError::Unknown { asset, version: None });
        }
        if is_public {
            room_for("public assets", playbacks.public().len(), VERSIONS_MAX)?;
        }
        self.store.put_public(&asset, is_public).await?;
        tracing::info!(%asset, is_public, "who may play an asset has changed");
        let change = if is_public { PlaybacksChange::Public } else { PlaybacksChange::Closed };
        self.changed(Change::Playbacks(change(asset))).await;
        Ok(())
    }

    /// Ends a session. Its entry goes when nothing that was given to it can be good any more.
    pub(crate) async fn revoke_session(
        self: &Arc<Self>,
        session: Session,
    ) -> Result<(), ChangeError> {
        self.revoke_within(session, REVOKED_MAX).await
    }

    async fn revoke_within(
        self: &Arc<Self>,
        session: Session,
        most: usize,
    ) -> Result<(), ChangeError> {
        let _writing = self.writing.lock().await;
        let now = self.clock.unix();
        let playbacks = self.snapshot().playbacks.clone();
        if playbacks.revoked().get(&session).is_some_and(|until| now < *until) {
            return Ok(());
        }
        let count = playbacks.revoked().values().filter(|until| now < **until).count();
        room_for("revoked sessions", count, most)?;
        let lives = [self.config.playback.grant_lifetime.0, self.config.playback.token_lifetime.0];
        let lives = lives.iter().map(|life| life.as_seconds()).sum::<u64>();
        let until = UnixSeconds(now.0.saturating_add(lives).saturating_add(ENDS_LATER_S));
        self.store.put_revoked_session(&session, until, now).await?;
        self.metrics.sessions_revoked.count();
        self.changed(Change::Playbacks(PlaybacksChange::Revoked { session, until, now })).await;
        Ok(())
    }
}

/// Sessions that are remembered as revoked: 50 bytes each in a whole snapshot for fronts. A
/// difference has the new ones alone, and fronts take them in O(revoked), at most every 500 ms.
/// Beyond it a revocation is refused with 507 until others end.
const REVOKED_MAX: usize = 10_000;

/// Clocks of fronts differ, and a front hears of it a second or two later.
const ENDS_LATER_S: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_public_that_is_not_there() {
        let (_directory, control) = crate::state::writer::tests::open("").await;
        let said = control.declare("film".parse().unwrap(), true).await;
        assert!(matches!(said, Err(ChangeError::Unknown { .. })), "{said:?}");
        assert!(control.snapshot().playbacks.public().is_empty());
    }

    #[tokio::test]
    async fn revoked_sessions_are_bounded_and_end_by_themselves() {
        let settings = "[playback]\ntoken_lifetime = \"1 h\"\ngrant_lifetime = \"10 min\"";
        let (_directory, control) = crate::state::writer::tests::open(settings).await;
        let session = |byte| Session::of_random([byte; 12]);
        let revoke = |byte| control.revoke_within(session(byte), 3);
        let now = control.clock.unix();
        for byte in [0, 1, 2, 0] {
            revoke(byte).await.expect("there is room, and one that is revoked stays so");
        }
        let refused = revoke(3).await.unwrap_err();
        assert!(refused.to_string().contains("3 revoked sessions already"), "{refused}");
        let until = control.snapshot().playbacks.revoked()[&session(0)];
        control.clock.advance(until.0 - now.0 + 10);
        revoke(3).await.expect("there is room again");
        let revoked = control.snapshot().playbacks.revoked().clone();
        assert_eq!(revoked.len(), 1, "what has ended is forgotten");
        let given = until.0 - now.0;
        let lives = 3600 + 600 + ENDS_LATER_S;
        assert!((lives..=lives + 5).contains(&given), "{given} s");
    }
}

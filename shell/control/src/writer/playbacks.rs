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
        let playbacks = self.snapshot().playbacks;
        if playbacks.public().contains(&asset) == is_public {
            return Ok(());
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
        let _writing = self.writing.lock().await;
        let now = self.clock.unix();
        let playbacks = self.snapshot().playbacks;
        if playbacks.revoked().get(&session).is_some_and(|until| now < *until) {
            return Ok(());
        }
        let count = playbacks.revoked().values().filter(|until| now < **until).count();
        room_for("revoked sessions", count, REVOKED_MAX)?;
        let lives = [self.config.grant_lifetime, self.config.token_lifetime];
        let lives = lives.iter().map(|life| life.as_seconds()).sum::<u64>();
        let until = UnixSeconds(now.0.saturating_add(lives).saturating_add(ENDS_LATER_S));
        self.store.put_revoked_session(&session, until, now).await?;
        self.metrics.sessions_revoked.count();
        self.changed(Change::Playbacks(PlaybacksChange::Revoked { session, until, now })).await;
        Ok(())
    }
}

/// Sessions that are remembered as revoked: 50 bytes each in the snapshot that fronts fetch again
/// after each, at most every 500 ms. Beyond it a revocation is refused with 507 until others end.
const REVOKED_MAX: usize = 10_000;

/// Clocks of fronts differ, and a front hears of it a second or two later.
const ENDS_LATER_S: u64 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn revoked_sessions_are_bounded_and_end_by_themselves() {
        let settings = "[playback]\ntoken_lifetime = \"1 h\"\ngrant_lifetime = \"10 min\"";
        let (_directory, control) = crate::writer::tests::open(settings).await;
        let session = |number: usize| {
            let mut random = [0; 12];
            random[..8].copy_from_slice(&number.to_le_bytes());
            Session::of_random(random)
        };
        let now = control.clock.unix();
        // As if they had been revoked one by one, which would be as many commits.
        let until = UnixSeconds(now.0 + 10);
        for number in 0..REVOKED_MAX {
            let session = session(number);
            let change = PlaybacksChange::Revoked { session, until, now };
            control.handle(director::Event::Changed(Change::Playbacks(change)));
        }
        control.revoke_session(session(0)).await.expect("one that is revoked stays so");
        let refused = control.revoke_session(session(REVOKED_MAX)).await.unwrap_err();
        assert!(refused.to_string().contains("10000 revoked sessions"), "{refused}");
        control.clock.advance(10);
        control.revoke_session(session(REVOKED_MAX)).await.expect("there is room again");
        let revoked = control.snapshot().playbacks.revoked().clone();
        let until = revoked[&session(REVOKED_MAX)];
        assert_eq!(revoked.len(), 1, "what has ended is forgotten");
        let lives = 3600 + 600 + ENDS_LATER_S;
        assert!((lives..=lives + 1).contains(&(until.0 - now.0 - 10)), "{until:?}");
    }
}

//! The rights to begin a playback, and to go on with one.
//!
//! ```text
//! Grant of POST /v1/playbacks ──> admit(asset) ──> entry manifest, with a Ticket for steering
//! Ticket of a steering URL ─────> check() ───────> steering document
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::AssetId;
use model::units::UnixSeconds;
use playback::token::Session;

use crate::sealed::Grant;

/// Public assets and ended sessions. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Playbacks {
    /// Assets that anybody may play. An asset that loses its last version is one no more.
    public: Arc<BTreeSet<AssetId>>,
    /// Sessions that begin and go on no more, each until the second in which all that was given to
    /// it has ended by itself.
    revoked: Arc<BTreeMap<Session, UnixSeconds>>,
}

/// A change of the rights to play.
#[derive(Clone, Debug)]
pub enum PlaybacksChange {
    /// Anybody may play this asset from now on.
    Public(AssetId),
    /// This asset needs a grant from now on.
    Closed(AssetId),
    /// A session ends. It is remembered `until` all that was given to it has ended by itself; those
    /// for which that is so `now` are forgotten.
    Revoked { session: Session, until: UnixSeconds, now: UnixSeconds },
}

/// Why a grant or a ticket opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error(
        "this film needs a grant: the service that offers it gets one with POST /v1/playbacks, and \
         hands on its hls_url or dash_url"
    )]
    Missing,
    #[error("this address was not given out here, or was changed: begin at the service's page")]
    Unknown,
    #[error("this playback's time is over: ask the service for a new one, and go on from there")]
    Expired,
    #[error("this grant is for another asset: ask the service for one of this asset")]
    OtherAsset,
    #[error("this playback was ended by the service that began it: ask there for another")]
    Revoked,
}

impl Playbacks {
    /// From the durable state.
    pub fn new(public: BTreeSet<AssetId>, revoked: BTreeMap<Session, UnixSeconds>) -> Self {
        Self { public: Arc::new(public), revoked: Arc::new(revoked) }
    }

    /// True of a copy to which nothing has happened since.
    pub(crate) fn is_same(&self, before: &Self) -> bool {
        Arc::ptr_eq(&self.public, &before.public) && Arc::ptr_eq(&self.revoked, &before.revoked)
    }

    /// Assets that anybody may play.
    pub fn public(&self) -> &BTreeSet<AssetId> {
        &self.public
    }

    /// Revoked sessions, and until when they are remembered.
    pub fn revoked(&self) -> &BTreeMap<Session, UnixSeconds> {
        &self.revoked
    }

    /// The grant, if `asset` is played with it now.
    pub(crate) fn admit(
        &self,
        asset: &AssetId,
        grant: Grant,
        now: UnixSeconds,
    ) -> Result<Grant, Refused> {
        if grant.asset != *asset {
            return Err(Refused::OtherAsset);
        }
        self.check(&grant.session, grant.expires, now).map(|()| grant)
    }

    /// Whether a grant or ticket of this session that ends at `expires` is good now. O(log
    /// revoked).
    pub fn check(
        &self,
        session: &Session,
        expires: UnixSeconds,
        now: UnixSeconds,
    ) -> Result<(), Refused> {
        if expires <= now {
            return Err(Refused::Expired);
        }
        if self.revoked.contains_key(session) { Err(Refused::Revoked) } else { Ok(()) }
    }

    /// An asset of which nothing is left is not public, should it ever come again. O(public).
    pub(crate) fn keep_public(&mut self, is_left: impl Fn(&AssetId) -> bool) {
        if !self.public.iter().all(&is_left) {
            Arc::make_mut(&mut self.public).retain(is_left);
        }
    }

    pub(crate) fn apply(&mut self, change: PlaybacksChange) {
        match change {
            PlaybacksChange::Public(asset) => {
                Arc::make_mut(&mut self.public).insert(asset);
            }
            PlaybacksChange::Closed(asset) => {
                Arc::make_mut(&mut self.public).remove(&asset);
            }
            PlaybacksChange::Revoked { session, until, now } => {
                let revoked = Arc::make_mut(&mut self.revoked);
                revoked.retain(|_, end| now < *end);
                revoked.insert(session, until);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1000);

    #[test]
    fn a_grant_is_for_one_asset_and_ends() {
        let playbacks = Playbacks::default();
        let admit = |asset, grant| playbacks.admit(&name(asset), grant, NOW);
        assert_eq!(admit("film", grant("film", 1001)), Ok(grant("film", 1001)));
        assert_eq!(admit("film", grant("film", 1000)), Err(Refused::Expired));
        assert_eq!(admit("film", grant("other", 1001)), Err(Refused::OtherAsset));
    }

    #[test]
    fn a_revoked_session_is_refused_until_nothing_of_it_can_be_left() {
        let mut playbacks = Playbacks::default();
        revoke(&mut playbacks, session(1), 1500, 1000);
        let refused = playbacks.check(&session(1), UnixSeconds(1400), NOW);
        assert_eq!(refused, Err(Refused::Revoked));
        assert_eq!(playbacks.check(&session(2), UnixSeconds(1400), NOW), Ok(()));
        revoke(&mut playbacks, session(2), 2000, 1499);
        assert_eq!(playbacks.revoked().len(), 2);
        revoke(&mut playbacks, session(3), 2000, 1500);
        let kept: Vec<_> = playbacks.revoked().keys().copied().collect();
        assert!(kept.len() == 2 && !kept.contains(&session(1)), "{kept:?}");
    }

    fn revoke(playbacks: &mut Playbacks, session: Session, until: u64, now: u64) {
        let (until, now) = (UnixSeconds(until), UnixSeconds(now));
        playbacks.apply(PlaybacksChange::Revoked { session, until, now });
    }

    fn grant(asset: &str, expires: u64) -> Grant {
        let expires = UnixSeconds(expires);
        Grant { session: session(1), expires, asset: name(asset), client: None }
    }

    fn session(byte: u8) -> Session {
        Session::of_random([byte; 12])
    }

    fn name(asset: &str) -> AssetId {
        asset.parse().unwrap()
    }
}

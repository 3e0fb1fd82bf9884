//! What operators say of versions: changed, pruned, and where pins cannot be kept.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use director::Change;
use director::wishes::{
    LAUNCHES_MAX, Launch, LaunchLike, PinMissing, RULES_MAX, Rule, RuleKind, Where, Wishes,
};
use model::id::AssetVersionId;
use model::units::UnixSeconds;
use popularity::Config;
use tokio::time::sleep;

use super::Control;
use super::changes::{ChangeError, room_for};
use crate::state::directing::{Busy, Desk};

/// A time is over a minute late at most: a plan leaves out what is over by itself.
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Pins that cannot be kept, as they were told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PinsMissing {
    /// Since when there are any.
    pub(crate) since: UnixSeconds,
    /// The first of them, and how many there are.
    pub(crate) told: Vec<PinMissing>,
    pub(crate) count: u64,
}

impl Control {
    /// What operators say.
    pub(crate) async fn wishes(&self) -> Result<Arc<Wishes>, Busy> {
        self.directing.ask(|desk, _| Arc::clone(&desk.director.desired().wishes)).await
    }

    /// Pins or bans a version at a place, in place of what was said before; or says nothing of it
    /// any more, if that is what was said.
    pub(crate) async fn put_rule(
        self: &Arc<Self>,
        version: &AssetVersionId,
        at: &Where,
        rule: Rule,
    ) -> Result<Arc<Wishes>, ChangeError> {
        let key = (version.clone(), at.clone());
        let snapshot = self.snapshot();
        let put = |wishes: &mut Wishes| {
            if snapshot.catalog.version(version).is_none() {
                return Err(ChangeError::NoVersion(version.clone()));
            }
            let mut sites = snapshot.sites.values();
            match at {
                Where::Site(id) if !snapshot.sites.contains_key(id) => {
                    return Err(ChangeError::NoSite(id.clone()));
                }
                Where::Cluster(id)
                    if !sites.any(|site| site.manifest_cluster.as_ref() == Some(id)) =>
                {
                    return Err(ChangeError::NoCluster(id.clone()));
                }
                Where::Everywhere | Where::Cluster(_) | Where::Site(_) => {}
            }
            if !wishes.rules.contains_key(&key) {
                room_for("pins and bans", wishes.rules.len(), RULES_MAX)?;
            }
            wishes.rules.insert(key.clone(), rule);
            Ok(())
        };
        self.change_wishes(true, put).await
    }

    /// Says nothing more of a version at a place, if this is what was said.
    pub(crate) async fn delete_rule(
        self: &Arc<Self>,
        version: &AssetVersionId,
        at: &Where,
        kind: RuleKind,
    ) -> Result<Arc<Wishes>, ChangeError> {
        let key = (version.clone(), at.clone());
        let delete = |wishes: &mut Wishes| {
            if wishes.rules.get(&key).is_some_and(|rule| rule.kind == kind) {
                wishes.rules.remove(&key);
            }
            Ok(())
        };
        self.change_wishes(true, delete).await
    }

    /// Says how much a version will be watched that begins; or nothing any more.
    pub(crate) async fn put_launch(
        self: &Arc<Self>,
        version: &AssetVersionId,
        launch: Option<Launch>,
    ) -> Result<Arc<Wishes>, ChangeError> {
        let snapshot = self.snapshot();
        let put = |wishes: &mut Wishes| {
            let Some(launch) = launch else {
                wishes.launches.remove(version);
                return Ok(());
            };
            let other = match &launch.like {
                LaunchLike::Bytes(_) => None,
                LaunchLike::FirstDays(other) | LaunchLike::Present(other) => Some(other),
            };
            for named in [Some(version), other].into_iter().flatten() {
                if snapshot.catalog.version(named).is_none() {
                    return Err(ChangeError::NoVersion(named.clone()));
                }
            }
            if !wishes.launches.contains_key(version) {
                room_for("launches", wishes.launches.len(), LAUNCHES_MAX)?;
            }
            wishes.launches.insert(version.clone(), launch);
            Ok(())
        };
        self.change_wishes(true, put).await
    }

    /// Changes what operators say, without what is over; and, if so wanted, without what is said of
    /// versions that are gone. Returns what holds since then.
    async fn change_wishes(
        self: &Arc<Self>,
        forgets_gone: bool,
        change: impl FnOnce(&mut Wishes) -> Result<(), ChangeError>,
    ) -> Result<Arc<Wishes>, ChangeError> {
        let _writing = self.writing.lock().await;
        let look = |desk: &mut Desk, _| Arc::clone(&desk.director.desired().wishes);
        let known = self.directing.ask_in_turn(look).await;
        let (catalog, now) = (self.snapshot().catalog.clone(), self.clock.unix());
        let is_there = |of: &AssetVersionId| !forgets_gone || catalog.version(of).is_some();
        let mut wishes = known.lasting(now, Config::USUAL.launch_days, is_there);
        change(&mut wishes)?;
        if wishes == *known {
            return Ok(known);
        }
        let wishes = Arc::new(wishes);
        self.store.put_wishes(&wishes).await?;
        self.changed(Change::Wishes(Arc::clone(&wishes))).await;
        Ok(wishes)
    }

    /// Prunes what is over, until the process ends. A version that nobody knows may have vanished
    /// by mistake: what was said of it stays until somebody says something else.
    pub(crate) async fn prune_wishes(self: &Arc<Self>) {
        while !self.is_front() {
            if let Err(ChangeError::Store(error)) = self.change_wishes(false, |_| Ok(())).await {
                self.store_failed(&error);
            }
            sleep(PRUNE_EVERY).await;
        }
    }

    /// Pins that cannot be kept, by the last plan.
    pub(crate) fn pins_missing(&self) -> MutexGuard<'_, PinsMissing> {
        self.pins_missing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which pins cannot be kept, and logs it if they are others than before.
    pub(super) fn note_pins(&self, told: Vec<PinMissing>, count: u64) {
        let now = self.clock.unix();
        let mut noted = self.pins_missing();
        if noted.told == told && noted.count == count {
            return;
        }
        for pin in told.iter().filter(|pin| !noted.told.contains(pin)) {
            tracing::warn!("{pin}");
        }
        if count == 0 {
            tracing::info!("all pins are kept");
        }
        let since = if noted.count == 0 { now } else { noted.since };
        *noted = PinsMissing { since, told, count };
    }
}

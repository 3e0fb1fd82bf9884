//! What operators say of versions: changed, pruned, and which of it is not kept.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use director::Change;
use director::wishes::{
    LAUNCHES_MAX, Launch, LaunchLike, RULES_MAX, Rule, RuleKind, Unkept, Where, Wishes,
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

/// Pins and bans that are not kept, as they were told last.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllUnkept {
    /// Since when there are any.
    pub(crate) since: UnixSeconds,
    /// The first of each, pins before bans, and how many there are.
    pub(crate) told: Vec<Unkept>,
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

    /// Changes what operators say, without what is over or of a site that is gone; and, if so
    /// wanted, without what is said of versions that are gone. Returns what holds since then.
    async fn change_wishes(
        self: &Arc<Self>,
        forgets_gone: bool,
        change: impl FnOnce(&mut Wishes) -> Result<(), ChangeError>,
    ) -> Result<Arc<Wishes>, ChangeError> {
        let _writing = self.writing.lock().await;
        let look = |desk: &mut Desk, _| Arc::clone(&desk.director.desired().wishes);
        let known = self.directing.ask_in_turn(look).await;
        let (snapshot, now) = (self.snapshot(), self.clock.unix());
        let catalog = &snapshot.catalog;
        let is_there = |of: &AssetVersionId| !forgets_gone || catalog.version(of).is_some();
        let mut wishes = known.lasting(now, Config::USUAL.launch_days, is_there);
        // Of releases before, which kept it when they removed a site.
        wishes.forget_sites(|id| snapshot.sites.contains_key(id));
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

    /// Pins and bans that are not kept, by the last plan.
    pub(crate) fn unkept(&self) -> MutexGuard<'_, AllUnkept> {
        self.unkept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes which pins and bans are not kept, and logs it if they are others than before.
    pub(super) fn note_unkept(&self, told: Vec<Unkept>, count: u64) {
        let now = self.clock.unix();
        let mut noted = self.unkept();
        if noted.told == told && noted.count == count {
            return;
        }
        for unkept in told.iter().filter(|unkept| !noted.told.contains(unkept)) {
            tracing::warn!("{unkept}");
        }
        if count == 0 {
            tracing::info!("all pins and bans are kept");
        }
        let since = if noted.count == 0 { now } else { noted.since };
        *noted = AllUnkept { since, told, count };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::demand::tests::version;
    use crate::state::writer::tests::open;
    use director::Event;
    use director::wishes::UnkeptWhy;
    use model::units::Bytes;

    const PIN: Rule = Rule { kind: RuleKind::Pin, until: None };

    #[tokio::test]
    async fn what_is_over_is_pruned_and_what_is_said_of_unknown_versions_is_not() {
        let (_directory, control) = open("").await;
        let film: AssetVersionId = "film-1".parse().unwrap();
        let (over, lasts) = (Where::Everywhere, Where::Cluster("north".parse().unwrap()));
        let no_site = Where::Site("s1".parse().unwrap());
        let say = |wishes: &mut Wishes| {
            let until = Some(control.clock.unix());
            wishes.rules.insert((film.clone(), over), Rule { until, ..PIN });
            wishes.rules.insert((film.clone(), lasts.clone()), PIN);
            wishes.rules.insert((film.clone(), no_site), PIN);
            let launch = |begin| Launch { begin, like: LaunchLike::Bytes(Bytes(1)) };
            wishes.launches.insert("film-2".parse().unwrap(), launch(UnixSeconds(1)));
            wishes.launches.insert("film-3".parse().unwrap(), launch(control.clock.unix()));
            Ok(())
        };
        let said = control.change_wishes(false, say).await.unwrap();
        assert_eq!((said.rules.len(), said.launches.len()), (3, 2));
        let left = control.change_wishes(false, |_| Ok(())).await.unwrap();
        assert_eq!(left.rules, [((film, lasts), PIN)].into());
        let launches: Vec<&str> = left.launches.keys().map(AssetVersionId::as_str).collect();
        assert_eq!(launches, ["film-3"]);
        let stored = control.store.desired().await.unwrap().wishes;
        assert_eq!((*stored).clone(), *left);
        // An operator says something else: what is gone is forgotten.
        let film = "film-9".parse().unwrap();
        let left = control.delete_rule(&film, &Where::Everywhere, RuleKind::Ban).await.unwrap();
        assert_eq!(*left, Wishes::default());
    }

    #[tokio::test]
    async fn rules_and_launches_are_bounded() {
        let (_directory, control) = open("").await;
        for (number, id) in [(1, "film-1"), (2, "film-2")] {
            control.handle(Event::Changed(Change::Version(version(id, number)))).await;
        }
        let film: AssetVersionId = "film-1".parse().unwrap();
        let places = (1..RULES_MAX).map(|n| Where::Cluster(format!("c{n}").parse().unwrap()));
        let places: Vec<Where> = places.chain([Where::Everywhere]).collect();
        let fill = |wishes: &mut Wishes| {
            wishes.rules = places.iter().map(|at| ((film.clone(), at.clone()), PIN)).collect();
            Ok(())
        };
        control.change_wishes(true, fill).await.unwrap();
        let put = async |film: &str| {
            let film = film.parse().unwrap();
            let put = control.put_rule(&film, &Where::Everywhere, PIN).await;
            put.map(|wishes| wishes.rules.len())
        };
        assert_eq!(put("film-1").await.unwrap(), RULES_MAX, "in the place of another");
        let refused = put("film-2").await.unwrap_err().to_string();
        assert!(refused.starts_with("there are 1024 pins and bans already"), "{refused}");
        let launch = Launch { begin: control.clock.unix(), like: LaunchLike::Bytes(Bytes(1)) };
        let fill = |wishes: &mut Wishes| {
            let of = |n: usize| (format!("f{n}").parse().unwrap(), launch.clone());
            wishes.launches = (0..LAUNCHES_MAX).map(of).collect();
            Ok(())
        };
        for (number, n) in (3..).zip(0..LAUNCHES_MAX) {
            let version = version(&format!("f{n}"), number);
            control.handle(Event::Changed(Change::Version(version))).await;
        }
        control.change_wishes(true, fill).await.unwrap();
        let refused =
            control.put_launch(&film, Some(launch.clone())).await.unwrap_err().to_string();
        assert!(refused.starts_with("there are 256 launches already"), "{refused}");
    }

    #[tokio::test]
    async fn rules_that_are_not_kept_are_known_since_the_first_of_them() {
        let (_directory, control) = open("").await;
        let pin = |film: &str| Unkept {
            version: film.parse().unwrap(),
            at: Where::Everywhere,
            why: UnkeptWhy::NotKept,
        };
        control.unkept().since = UnixSeconds(7);
        control.note_unkept(vec![pin("film-1")], 1);
        let since = control.unkept().since;
        assert!(UnixSeconds(7) < since);
        control.unkept().since = UnixSeconds(8);
        control.note_unkept(vec![pin("film-1"), pin("film-2")], 9);
        let noted = control.unkept().clone();
        assert_eq!((noted.since, noted.count), (UnixSeconds(8), 9));
        control.note_unkept(Vec::new(), 0);
        assert_eq!(control.unkept().told, []);
    }
}

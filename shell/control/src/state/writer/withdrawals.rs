//! Titles that are taken down, by an operator's word or by the clock, and when they may be shown.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use director::{Change, Event, Reason, Version, Window, Withdrawal};
use model::id::{ApplianceId, AssetId, AssetVersionId};

use super::{ChangeError, Control};
use crate::state::directing::Desk;
use crate::state::store::{self, AuditEntry, StoreError};

impl Control {
    /// Takes a version down, or all of an asset. Returns what is listed of it, and whether the
    /// asset was public and is no more.
    pub(crate) async fn withdraw(
        self: &Arc<Self>,
        asset: &AssetId,
        version: Option<&AssetVersionId>,
    ) -> Result<(Withdrawal, bool), ChangeError> {
        let _writing = self.writing.lock().await;
        let found = self.versions(asset, version).await?;
        let is_public = || self.snapshot().playbacks.public().contains(asset);
        let was_public = is_public();
        let names = found.iter().map(|version| (version.id().clone(), asset.clone())).collect();
        let withdrawal = self.withdraw_now(Reason::Operator, names).await?;
        self.carry_out().await;
        let is_closed = was_public && !is_public();
        let number = withdrawal.id;
        let listed =
            move |desk: &mut Desk, _| desk.director.desired().withdrawals.get(&number).cloned();
        let listed = self.directing.ask_in_turn(listed).await;
        Ok((listed.unwrap_or(withdrawal), is_closed))
    }

    /// Says when a version, or all of an asset, may be shown.
    pub(crate) async fn put_window(
        self: &Arc<Self>,
        asset: &AssetId,
        version: Option<&AssetVersionId>,
        window: Window,
    ) -> Result<(), ChangeError> {
        let _writing = self.writing.lock().await;
        for version in self.versions(asset, version).await? {
            let version = Version::clone(&version).shown(window);
            self.store.put_version(&version, &[]).await?;
            self.changed(Change::Version(Arc::new(version))).await;
        }
        Ok(())
    }

    /// Their time is over, unless somebody gave them more meanwhile. The caller holds the writer's
    /// lock.
    pub(super) async fn withdraw_ended(
        self: &Arc<Self>,
        ended: Vec<AssetVersionId>,
    ) -> Result<(), StoreError> {
        let catalog = self.snapshot().catalog.clone();
        let now = self.clock.unix();
        let named = |id: AssetVersionId| {
            let version = catalog.version(&id).filter(|version| version.window.is_over(now))?;
            Some((id, version.files.asset.clone()))
        };
        let names: BTreeMap<_, _> = ended.into_iter().filter_map(named).collect();
        if names.is_empty() {
            return Ok(()); // They were withdrawn meanwhile, or are to be shown for longer.
        }
        let line = self.begin_line("window ended", names.keys()).await?;
        let withdrawal = self.withdraw_now(Reason::Ended, names).await?;
        self.store.end_audit(line, 200, &said(&withdrawal)).await
    }

    /// No playback can use them any more, unless they came again meanwhile. The caller holds the
    /// writer's lock.
    pub(super) async fn remove_superseded(
        self: &Arc<Self>,
        versions: Vec<AssetVersionId>,
    ) -> Result<(), StoreError> {
        let still = |desk: &mut Desk, now| -> Vec<AssetVersionId> {
            let is_superseded = |version: &_| desk.director.is_superseded(now, version);
            versions.into_iter().filter(is_superseded).collect()
        };
        let versions = self.directing.ask_in_turn(still).await;
        if versions.is_empty() {
            return Ok(()); // They were withdrawn, removed or ingested again meanwhile.
        }
        let line = self.begin_line("old versions", versions.iter()).await?;
        self.store.delete_versions(&versions).await?;
        for version in &versions {
            self.metrics.versions_superseded.count();
            tracing::info!(%version, "an old version is gone");
        }
        let summary = format!("{} old versions removed", versions.len());
        self.handle(Event::Changed(Change::Superseded(versions))).await;
        self.replica_is_old.store(true, std::sync::atomic::Ordering::SeqCst);
        self.store.end_audit(line, 200, &summary).await
    }

    /// Durable, then in force. What follows is still to be carried out.
    async fn withdraw_now(
        self: &Arc<Self>,
        reason: Reason,
        versions: BTreeMap<AssetVersionId, AssetId>,
    ) -> Result<Withdrawal, StoreError> {
        let appliances: BTreeSet<ApplianceId> =
            self.snapshot().view.appliances.keys().cloned().collect();
        let at = self.clock.unix();
        let withdrawal = self.store.withdraw(at, reason, &versions, &appliances).await?;
        for version in versions.keys() {
            self.metrics.versions_withdrawn.count();
            tracing::warn!(%version, reason = store::reason_name(reason), "withdrawn");
        }
        self.handle(Event::Changed(Change::Withdrawn(withdrawal.clone()))).await;
        self.replica_is_old.store(true, std::sync::atomic::Ordering::SeqCst);
        Ok(withdrawal)
    }

    /// A version, or all of an asset.
    async fn versions(
        &self,
        asset: &AssetId,
        version: Option<&AssetVersionId>,
    ) -> Result<Vec<Arc<Version>>, ChangeError> {
        let catalog = self.snapshot().catalog.clone();
        let all = catalog.versions(asset).iter();
        let found: Vec<_> =
            all.filter(|known| version.is_none_or(|id| known.id() == id)).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
        let withdrawn = match version {
            Some(version) => self.store.withdrawn(version).await?,
            None => None,
        };
        Err(match (version, withdrawn) {
            (Some(version), Some(at)) => {
                ChangeError::Withdrawn { version: version.clone(), at, new: false }
            }
            (version, _) => {
                ChangeError::Unknown { asset: asset.clone(), version: version.cloned() }
            }
        })
    }

    /// A line of the audit log for what the clock does, before it is done.
    async fn begin_line(
        &self,
        route: &str,
        versions: impl Iterator<Item = &AssetVersionId>,
    ) -> Result<i64, StoreError> {
        let names: Vec<&str> = versions.take(NAMES_MAX).map(AssetVersionId::as_str).collect();
        let entry = AuditEntry {
            at: self.clock.unix(),
            name: Some("the clock".to_owned()),
            method: "nearcast-control".to_owned(),
            route: route.to_owned(),
            target: names.join(", "),
            ..AuditEntry::default()
        };
        self.store.begin_audit(&entry).await
    }
}

/// For the audit log.
pub(crate) fn said(withdrawal: &Withdrawal) -> String {
    let names: Vec<&str> =
        withdrawal.versions.keys().take(NAMES_MAX).map(AssetVersionId::as_str).collect();
    let more = withdrawal.versions.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("withdrawal {}: {}{more}", withdrawal.id, names.join(", "))
}

/// Names in a line of the audit log.
const NAMES_MAX: usize = 4;

#[cfg(test)]
pub(crate) mod tests {
    use super::super::tests::open;
    use super::*;
    use model::manifest::{AssetVersion, File};
    use model::object::{BlockHash, Blocks};
    use model::units::{Bytes, UnixSeconds};

    #[tokio::test]
    async fn an_old_version_goes_with_its_objects_and_what_others_have_stays() {
        let (_directory, control) = open("").await;
        hold_one_of_each(&control).await;
        for (sequence, objects) in [(1, [1, 2]), (2, [2, 3])] {
            put(&control, &format!("film-{sequence}"), sequence, &objects.map(blocks)).await;
        }
        let old: AssetVersionId = "film-1".parse().unwrap();
        control.clock.pass(BEYOND_TOKENS_S);
        control.remove_superseded(vec![old.clone()]).await.unwrap();
        let versions = |catalog: &director::Catalog| catalog.version_count();
        assert_eq!(versions(&control.snapshot().catalog), 1);
        assert_eq!(versions(&control.store.desired().await.unwrap().catalog), 1, "durable");
        for (n, is_there) in [(1, false), (2, true), (3, true)] {
            let found = control.store.block_hashes(&blocks(n).id()).await.unwrap();
            assert_eq!(found.is_some(), is_there, "object {n}");
        }
        assert_eq!(control.metrics.versions_superseded.value(), 1);
        assert_eq!(control.store.withdrawn(&old).await.unwrap(), None, "it may come again");
        let lines = control.store.audit(i64::MAX, 10).await.unwrap();
        assert!(format!("{lines:?}").contains("old versions"), "{lines:?}");
    }

    #[tokio::test]
    async fn what_the_clock_takes_down_twice_is_written_once() {
        let (_directory, control) = open("").await;
        hold_one_of_each(&control).await;
        for sequence in [1, 2] {
            put(&control, &format!("film-{sequence}"), sequence, &[blocks(1)]).await;
        }
        let (old, over): (AssetVersionId, AssetVersionId) =
            ("film-1".parse().unwrap(), "film-2".parse().unwrap());
        show_until(&control, &over, 10).await.unwrap();
        control.clock.pass(BEYOND_TOKENS_S);
        for _ in 0..2 {
            control.remove_superseded(vec![old.clone()]).await.unwrap();
            control.withdraw_ended(vec![over.clone()]).await.unwrap();
        }
        assert_eq!(control.store.desired().await.unwrap().withdrawals.len(), 1);
        assert_eq!(control.store.audit(i64::MAX, 10).await.unwrap().len(), 2);
        assert_eq!(control.metrics.versions_superseded.value(), 1);
    }

    #[tokio::test]
    async fn a_version_that_was_given_more_time_is_not_withdrawn() {
        let (_directory, control) = open("").await;
        put(&control, "film-1", 1, &[blocks(1)]).await;
        let name: AssetVersionId = "film-1".parse().unwrap();
        show_until(&control, &name, 10).await.unwrap();
        control.clock.advance(11);
        control.directing.ask_in_turn(Desk::tick).await;
        show_until(&control, &name, 1000).await.expect("it waits to be withdrawn, and is there");
        assert!(control.snapshot().catalog.version(&name).is_some());
        assert!(control.store.desired().await.unwrap().withdrawals.is_empty());
        control.clock.advance(1001);
        control.pass_second().await;
        assert!(control.snapshot().catalog.version(&name).is_none(), "that time is over, too");
    }

    #[tokio::test]
    async fn an_old_version_that_came_again_is_not_removed() {
        let (_directory, control) = open("").await;
        hold_one_of_each(&control).await;
        let (one, other) = ([blocks(1)], [blocks(2)]);
        put(&control, "film-1", 1, &one).await;
        put(&control, "film-2", 2, &other).await;
        control.clock.pass(BEYOND_TOKENS_S);
        control.directing.ask_in_turn(Desk::tick).await;
        // It waits to be removed.
        put(&control, "film-1", 3, &one).await;
        control.write_what_is_due().await;
        let is_there = |name: &str| {
            let name = name.parse().unwrap();
            control.snapshot().catalog.version(&name).is_some()
        };
        assert!(is_there("film-1"), "it is the current one");
        assert_eq!(control.store.desired().await.unwrap().catalog.version_count(), 2);
        control.pass_second().await;
        assert!(is_there("film-2"), "it was current until now");
        control.clock.pass(BEYOND_TOKENS_S);
        control.pass_second().await;
        assert!(is_there("film-1") && !is_there("film-2"));
    }

    /// No token of a playback is good for so long.
    const BEYOND_TOKENS_S: u64 = 31 * 24 * 60 * 60;

    fn blocks(n: u8) -> Blocks {
        Blocks::of_hashes(Bytes(5), vec![BlockHash([n; 32])]).unwrap()
    }

    async fn hold_one_of_each(control: &Arc<Control>) {
        let policy = director::Policy { versions_kept: 1, ..director::Policy::default() };
        control.set_policy(policy).await.unwrap();
    }

    /// Ingests a version, without what an operator's word is looked at for.
    async fn put(control: &Arc<Control>, name: &str, sequence: u64, objects: &[Blocks]) {
        let mut files = AssetVersion::clone(&version(sequence, objects).files);
        files.id = name.parse().unwrap();
        let known = control.snapshot().catalog.version(&files.id).and_then(|of| of.first_file);
        let version = Version::new(Arc::new(files), Vec::new(), sequence).numbered(known);
        let first = control.store.put_version(&version, objects).await.unwrap();
        let version = version.numbered(Some(first));
        control.handle(Event::Changed(Change::Version(Arc::new(version)))).await;
    }

    /// From now on, for so many seconds.
    async fn show_until(
        control: &Arc<Control>,
        version: &AssetVersionId,
        seconds: u64,
    ) -> Result<(), ChangeError> {
        let until = Some(UnixSeconds(control.clock.unix().0 + seconds));
        let asset = "film".parse().unwrap();
        control.put_window(&asset, Some(version), Window { from: None, until }).await
    }

    impl Control {
        /// What the clock wants is said at most once a second.
        async fn pass_second(self: &Arc<Self>) {
            self.clock.pass(2);
            self.directing.ask_in_turn(Desk::tick).await;
            self.write_what_is_due().await;
        }
    }

    /// Of the asset `film`.
    pub(crate) fn version(sequence: u64, objects: &[Blocks]) -> Version {
        let file = |blocks: &Blocks| {
            let (object, len) = (blocks.id(), blocks.len());
            (object.to_string(), File { object, len, content_type: "video/mp4".into() })
        };
        let files = AssetVersion {
            id: format!("film-{sequence}").parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec!["https://origin.example/".to_owned()],
            modified: UnixSeconds(1),
            pace: None,
            files: objects.iter().map(file).collect(),
        };
        Version::new(Arc::new(files), Vec::new(), sequence)
    }
}

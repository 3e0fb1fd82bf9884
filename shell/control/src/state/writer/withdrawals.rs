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

    /// Their time is over. The caller holds the writer's lock.
    pub(super) async fn withdraw_ended(
        self: &Arc<Self>,
        ended: Vec<AssetVersionId>,
    ) -> Result<(), StoreError> {
        let catalog = self.snapshot().catalog.clone();
        let named = |id: AssetVersionId| {
            let asset = catalog.version(&id)?.files.asset.clone();
            Some((id, asset))
        };
        let names: BTreeMap<_, _> = ended.into_iter().filter_map(named).collect();
        if names.is_empty() {
            return Ok(()); // They were withdrawn meanwhile.
        }
        let line = self.begin_line("window ended", names.keys()).await?;
        let withdrawal = self.withdraw_now(Reason::Ended, names).await?;
        self.store.end_audit(line, 200, &said(&withdrawal)).await
    }

    /// No playback can use them any more. The caller holds the writer's lock.
    pub(super) async fn remove_superseded(
        self: &Arc<Self>,
        versions: Vec<AssetVersionId>,
    ) -> Result<(), StoreError> {
        let catalog = self.snapshot().catalog.clone();
        let is_there = |version: &AssetVersionId| catalog.version(version).is_some();
        let versions: Vec<_> = versions.into_iter().filter(is_there).collect();
        if versions.is_empty() {
            return Ok(()); // They were withdrawn or removed meanwhile.
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
        let blocks = |n| Blocks::of_hashes(Bytes(5), vec![BlockHash([n; 32])]).unwrap();
        for (sequence, objects) in [(1, [1, 2]), (2, [2, 3])] {
            let objects = objects.map(blocks);
            let version = version(sequence, &objects);
            control.store.put_version(&version, &objects).await.unwrap();
            control.handle(Event::Changed(Change::Version(Arc::new(version)))).await;
        }
        let old: AssetVersionId = "film-1".parse().unwrap();
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
        let object = Blocks::of_hashes(Bytes(5), vec![BlockHash([1; 32])]).unwrap();
        for sequence in [1, 2] {
            let version = version(sequence, std::slice::from_ref(&object));
            let objects = std::slice::from_ref(&object);
            control.store.put_version(&version, objects).await.unwrap();
            control.handle(Event::Changed(Change::Version(Arc::new(version)))).await;
        }
        let (old, over): (AssetVersionId, AssetVersionId) =
            ("film-1".parse().unwrap(), "film-2".parse().unwrap());
        for _ in 0..2 {
            control.remove_superseded(vec![old.clone()]).await.unwrap();
            control.withdraw_ended(vec![over.clone()]).await.unwrap();
        }
        assert_eq!(control.store.desired().await.unwrap().withdrawals.len(), 1);
        assert_eq!(control.store.audit(i64::MAX, 10).await.unwrap().len(), 2);
        assert_eq!(control.metrics.versions_superseded.value(), 1);
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

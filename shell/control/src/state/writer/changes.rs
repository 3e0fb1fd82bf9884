//! What operators and services change of desired state: sites, appliances, the policy, versions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use director::drain::Drain;
use director::wishes::Wishes;
use director::{Change, Desired, Policy, Registered, Version, Window};
use identity::member::Member;
use model::hours::URGENT_MAX;
use model::id::{ApplianceId, AssetId, AssetVersionId, ClusterId, SiteId};
use model::topology::{Appliance, SITE_ADDRESSES_MAX, Site, share_router};
use model::units::{Bytes, UnixSeconds};
use wire::v1::ingest::NewVersion;

use super::Control;
use crate::buckets::BucketError;
use crate::state::convert::{self, Checked, Refused};
use crate::state::directing::Desk;
use crate::state::documents::DocumentError;
use crate::state::store::StoreError;

/// Bounds of desired state: half as much again and more than the director is made for, which is
/// 8,000 sites, 20,000 appliances and 100,000 versions (docs/internals/director.md).
pub(crate) const SITES_MAX: usize = 16_384;
const APPLIANCES_MAX: usize = 32_768;
pub(super) const VERSIONS_MAX: usize = 200_000;

/// Why a change was refused. What the client did wrong, but for `Store` and `Document`.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Bucket(#[from] BucketError),
    #[error(transparent)]
    Document(#[from] DocumentError),
    #[error(
        "asset version {0} has other files or entries already: a version is immutable, so a \
             change needs a new name"
    )]
    OtherContent(AssetVersionId),
    #[error(
        "asset version {version} was withdrawn at {}: {}", crate::state::convert::time_out(*at),
        if *new { "if it may be shown again, ingest it with --again" }
        else { "GET /v1/withdrawals says who has confirmed it" }
    )]
    Withdrawn {
        version: AssetVersionId,
        at: UnixSeconds,
        /// It is ingested again; else it is to be changed.
        new: bool,
    },
    #[error("there is no asset {asset}{}: GET /v1/assets lists them", of_version(version.as_ref()))]
    Unknown { asset: AssetId, version: Option<AssetVersionId> },
    #[error("there is no asset version {0}: GET /v1/assets lists them")]
    NoVersion(AssetVersionId),
    #[error("asset version {version} belongs to asset {asset} already")]
    OtherAsset { version: AssetVersionId, asset: AssetId },
    #[error("there is no site {0}: PUT /v1/sites/{0} first")]
    NoSite(SiteId),
    #[error("address {0} is one of {1}'s: give each appliance its own")]
    Address(IpAddr, ApplianceId),
    #[error(
        "address {address} ends with the same byte as {other}, which is {appliance}'s at the same \
         site: that byte is their number for VRRP, so give one of them another address"
    )]
    Alike { address: IpAddr, other: IpAddr, appliance: ApplianceId },
    #[error("no site is of manifest cluster {0}: PUT /v1/sites/NAME says which are")]
    NoCluster(ClusterId),
    #[error("appliances stand in site {site}: delete or move {appliance} first")]
    SiteInUse { site: SiteId, appliance: ApplianceId },
    #[error("there are {most} {what} already, as many as control takes: one has to go first")]
    TooMany { what: &'static str, most: usize },
}

impl Control {
    /// Makes a site new or different, as `merge` has it of the known one: that is the newest, and
    /// no other change is made until this one is. Returns it as it was stored.
    pub(crate) async fn put_site<E: From<ChangeError>>(
        self: &Arc<Self>,
        id: &SiteId,
        merge: impl FnOnce(Option<&Site>) -> Result<Site, E>,
    ) -> Result<Site, E> {
        let _writing = self.writing.lock().await;
        let sites = &self.snapshot().sites;
        let site = merge(sites.get(id))?;
        let count = if sites.contains_key(id) { 0 } else { sites.len() };
        room_for("sites", count, SITES_MAX)?;
        self.store.put_site(&site).await.map_err(ChangeError::from)?;
        self.changed(Change::Site(site.clone())).await;
        Ok(site)
    }

    /// Removes a site, and with it what operators say of it alone: how many pins and bans that was;
    /// none if there is no such site.
    pub(crate) async fn delete_site(
        self: &Arc<Self>,
        id: &SiteId,
    ) -> Result<Option<usize>, ChangeError> {
        let _writing = self.writing.lock().await;
        let snapshot = self.snapshot();
        let mut drawn = snapshot.view.sites.iter().filter(|site| site.id == *id);
        if let Some(standing) = drawn.find_map(|site| site.appliances.first()) {
            let (site, appliance) = (id.clone(), standing.id.clone());
            return Err(ChangeError::SiteInUse { site, appliance });
        }
        if !snapshot.sites.contains_key(id) {
            return Ok(None);
        }
        let look = |desk: &mut Desk, _| Arc::clone(&desk.director.desired().wishes);
        let mut wishes = Wishes::clone(&*self.directing.ask_in_turn(look).await);
        self.store.delete_site(id).await?;
        self.changed(Change::SiteGone(id.clone())).await;
        Ok(Some(wishes.forget_sites(|site| site != id)))
    }

    /// Registers an appliance, or makes it different, as `merge` has it of the known one: as for a
    /// site. Returns it as it is then.
    pub(crate) async fn put_appliance<E: From<ChangeError>>(
        self: &Arc<Self>,
        id: &ApplianceId,
        merge: impl FnOnce(Option<&Appliance>) -> Result<Appliance, E>,
    ) -> Result<Registered, E> {
        let _writing = self.writing.lock().await;
        let known = self.known_appliance(id).await;
        let appliance = merge(known.as_ref().map(|known| &known.appliance))?;
        self.put_appliance_now(appliance).await?;
        Ok(self.known_appliance(id).await.expect("only who holds the writer's lock removes it"))
    }

    /// The caller holds the writer's lock.
    async fn put_appliance_now(self: &Arc<Self>, appliance: Appliance) -> Result<(), ChangeError> {
        let new = appliance.clone();
        let look = move |desk: &mut Desk, _| beside(&new, desk.director.desired());
        let in_site = self.directing.ask_in_turn(look).await?;
        let snapshot = self.snapshot();
        if !snapshot.sites.contains_key(&appliance.site) {
            return Err(ChangeError::NoSite(appliance.site));
        }
        let appliances = &snapshot.view.appliances;
        let count = if appliances.contains_key(&appliance.id) { 0 } else { appliances.len() };
        room_for("appliances", count, APPLIANCES_MAX)?;
        let addresses = in_site + appliance.addresses.len();
        room_for("addresses of a site", addresses.saturating_sub(1), SITE_ADDRESSES_MAX)?;
        self.store.put_appliance(&appliance).await?;
        self.changed(Change::Appliance(appliance)).await;
        Ok(())
    }

    /// For whoever changes it: not refused.
    async fn known_appliance(&self, id: &ApplianceId) -> Option<Registered> {
        let id = id.clone();
        let look = move |desk: &mut Desk, _| desk.director.desired().appliances.get(&id).cloned();
        self.directing.ask_in_turn(look).await
    }

    /// Removes an appliance for good; false if there is none.
    pub(crate) async fn delete_appliance(
        self: &Arc<Self>,
        id: &ApplianceId,
    ) -> Result<bool, ChangeError> {
        let _writing = self.writing.lock().await;
        let known = self.is_registered(id);
        if known {
            // Its identity first: if that fails it is still there, and can be removed again.
            self.revoke_now(&Member::appliance(id)).await?;
            self.store.delete_appliance(id).await?;
            self.changed(Change::ApplianceGone(id.clone())).await;
            self.forget_signed(id);
        }
        Ok(known)
    }

    /// An operator says that an appliance's drives hold for good what it reports, though that is
    /// less than half of what its files are planned for: that, and what it reports. None if it
    /// reports no such thing.
    pub(crate) async fn accept_usable(
        self: &Arc<Self>,
        id: &ApplianceId,
    ) -> Result<Option<(Bytes, Bytes)>, ChangeError> {
        let _writing = self.writing.lock().await;
        let of = id.clone();
        let slump = move |desk: &mut Desk, now| desk.director.slump(now, &of);
        let slump = self.directing.ask_in_turn(slump).await;
        if let Some((_, reported)) = slump {
            self.store.put_usable(id, reported).await?;
            self.changed(Change::Usable(id.clone(), reported)).await;
        }
        Ok(slump)
    }

    /// Has an appliance drained so, or not any more; false if there is none.
    pub(crate) async fn put_drain(
        self: &Arc<Self>,
        id: &ApplianceId,
        drain: Option<Drain>,
    ) -> Result<bool, ChangeError> {
        let _writing = self.writing.lock().await;
        let known = self.is_registered(id);
        if known {
            self.store.put_drain(id, drain).await?;
            // One from now on begins now, and not with the next tick.
            self.directing.ask_in_turn(Desk::tick).await;
            self.changed(Change::Drain(id.clone(), drain)).await;
        }
        Ok(known)
    }

    /// Changes how versions are spread, as `merge` has it of what holds now. Returns what was
    /// stored.
    pub(crate) async fn put_policy<E: From<ChangeError>>(
        self: &Arc<Self>,
        merge: impl FnOnce(Policy) -> Result<Policy, E>,
    ) -> Result<Policy, E> {
        let _writing = self.writing.lock().await;
        let policy = merge(self.snapshot().policy)?;
        self.store.put_policy(policy).await.map_err(ChangeError::from)?;
        self.changed(Change::Policy(policy)).await;
        Ok(policy)
    }

    /// Says that a version is urgent, until a time or further notice, or is not any more: what is
    /// urgent since then. Those whose time is over, or whose version is gone, are forgotten.
    pub(crate) async fn put_urgent(
        self: &Arc<Self>,
        version: &AssetVersionId,
        said: Option<Option<UnixSeconds>>,
    ) -> Result<BTreeMap<AssetVersionId, Option<UnixSeconds>>, ChangeError> {
        let _writing = self.writing.lock().await;
        let look = |desk: &mut Desk, _| desk.director.desired().urgent.clone();
        let mut urgent = self.directing.ask_in_turn(look).await;
        let (catalog, now) = (self.snapshot().catalog.clone(), self.clock.unix());
        if said.is_some() && catalog.version(version).is_none() {
            return Err(ChangeError::NoVersion(version.clone()));
        }
        urgent.retain(|of, until| {
            let is_over = until.is_some_and(|until| until <= now);
            of != version && !is_over && catalog.version(of).is_some()
        });
        if let Some(until) = said {
            room_for("urgent versions", urgent.len(), URGENT_MAX)?;
            urgent.insert(version.clone(), until);
        }
        self.store.put_urgent(&urgent).await?;
        self.changed(Change::Urgent(urgent.clone())).await;
        Ok(urgent)
    }

    /// Takes a version, or makes a known one current again; true if it is new.
    pub(crate) async fn ingest(
        self: &Arc<Self>,
        asset: AssetId,
        version: AssetVersionId,
        new: NewVersion,
    ) -> Result<bool, ChangeError> {
        let (name, again) = (version.clone(), new.again);
        // Proving tens of thousands of hashes takes milliseconds that no other request should wait.
        let checked =
            tokio::task::spawn_blocking(move || convert::version_in(&asset, &version, &new));
        let checked = checked.await.expect("the check does not panic")?;
        checked.files.sources.iter().try_for_each(|source| self.buckets.check(source))?;
        let blocks = checked.blocks.clone();
        self.takes(&name, again).await?;
        let document = self.keep_hashes(&name, &blocks).await?;
        let _writing = self.writing.lock().await;
        let known = self.takes(&name, again).await?;
        let catalog = self.snapshot().catalog.clone();
        let newest = catalog.assets().flat_map(|(_, versions)| versions).map(|v| v.sequence).max();
        let current = catalog.versions(&checked.files.asset).first();
        let sequence = match (&known, current) {
            (Some(known), Some(current)) if known.id() == current.id() => known.sequence,
            _ => newest.unwrap_or(0) + 1,
        };
        let is_new = known.is_none();
        let before = known.as_ref().map(|known| known.window);
        let window = checked.window.or(before).unwrap_or_else(|| inherited(current));
        let version = merged(known.as_deref(), checked, sequence)?.shown(window);
        if known.as_deref() == Some(&version) && document.is_none() {
            return Ok(false);
        }
        // Those of a known version are there. If it went meanwhile, they are in rows for a while.
        let blocks = if is_new || document.is_some() { &blocks[..] } else { &[] };
        let first_file = self.store.put_version_in(&version, blocks, document.as_ref()).await?;
        let version = version.numbered(Some(first_file));
        self.metrics.ingests.count();
        tracing::info!(version = %name, is_new, "asset version is current");
        self.changed(Change::Version(Arc::new(version))).await;
        Ok(is_new)
    }

    /// Whether a version can be ingested; the known one of this name.
    async fn takes(
        &self,
        name: &AssetVersionId,
        again: bool,
    ) -> Result<Option<Arc<Version>>, ChangeError> {
        let catalog = self.snapshot().catalog.clone();
        let known = catalog.version(name).cloned();
        if known.is_none() {
            if let Some(at) = self.store.withdrawn(name).await?.filter(|_| !again) {
                return Err(ChangeError::Withdrawn { version: name.clone(), at, new: true });
            }
            room_for("asset versions", catalog.version_count(), VERSIONS_MAX)?;
        }
        Ok(known)
    }
}

/// The version to be stored: what was known of it stays, but for its place and its sources.
fn merged(
    known: Option<&Version>,
    checked: Checked,
    sequence: u64,
) -> Result<Version, ChangeError> {
    let Checked { mut files, entries, mut renditions, blocks: _, window: _ } = checked;
    let first_file = known.and_then(|known| known.first_file);
    if let Some(known) = known {
        if known.files.asset != files.asset {
            let (version, asset) = (files.id, known.files.asset.clone());
            return Err(ChangeError::OtherAsset { version, asset });
        }
        if known.files.files != files.files || known.entries != entries {
            return Err(ChangeError::OtherContent(files.id));
        }
        if renditions.iter().all(|number| *number == 0) {
            renditions = known.renditions().of_files().to_vec();
        }
        // The first time counts: players and appliances have seen it as Last-Modified.
        files.modified = known.files.modified;
    }
    let version = Version::new(Arc::new(files), entries, sequence);
    Ok(version.divided(renditions).numbered(first_file))
}

/// A title's contract ends with its current version, whatever comes after that.
fn inherited(current: Option<&Arc<Version>>) -> Window {
    Window { from: None, until: current.and_then(|current| current.window.until) }
}

fn of_version(version: Option<&AssetVersionId>) -> String {
    version.map_or_else(String::new, |version| format!(" with a version {version}"))
}

/// Addresses of others in the site of an appliance, if it can stand beside them. O(addresses of
/// all).
fn beside(appliance: &Appliance, desired: &Desired) -> Result<usize, ChangeError> {
    let others = || desired.appliances.unordered().map(|(_, of)| &of.appliance);
    let others = || others().filter(|other| other.id != appliance.id);
    for address in &appliance.addresses {
        if let Some(other) = others().find(|other| other.addresses.contains(address)) {
            return Err(ChangeError::Address(*address, other.id.clone()));
        }
    }
    let here = || others().filter(|other| other.site == appliance.site);
    match here().find_map(|other| alike(appliance, other)) {
        Some(alike) => Err(alike),
        None => Ok(here().map(|other| other.addresses.len()).sum()),
    }
}

/// Two addresses whose virtual routers would be the same one. O(addresses of both).
fn alike(appliance: &Appliance, other: &Appliance) -> Option<ChangeError> {
    let addresses = other
        .addresses
        .iter()
        .flat_map(|other| appliance.addresses.iter().map(move |address| (*address, *other)));
    let (address, other_address) =
        addresses.into_iter().find(|(address, other)| share_router(*address, *other))?;
    let appliance = other.id.clone();
    Some(ChangeError::Alike { address, other: other_address, appliance })
}

pub(super) fn room_for(what: &'static str, count: usize, most: usize) -> Result<(), ChangeError> {
    if count < most { Ok(()) } else { Err(ChangeError::TooMany { what, most }) }
}

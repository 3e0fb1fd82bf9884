//! Desired state: sites, appliances, catalog and policy. Durable before it comes here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::manifest::TokenKey;
use model::topology::{Appliance, Site};
use model::units::{BitsPerSecond, Bytes};

use crate::catalog::{Catalog, Version};
use crate::drain::Drain;
use crate::machines::Hardware;
use crate::playbacks::{Playbacks, PlaybacksChange};
use crate::token_keys::TokenRotation;
use crate::withdrawal::Withdrawal;

/// Desired state as a whole.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    pub sites: Arc<BTreeMap<SiteId, Site>>,
    /// All appliances; each stands in one of the sites.
    pub appliances: BTreeMap<ApplianceId, Registered>,
    pub catalog: Arc<Catalog>,
    pub playbacks: Playbacks,
    pub policy: Policy,
    /// Keys that playback tokens may be signed with.
    pub token_keys: Vec<TokenKey>,
    /// Which of them comes next, and which goes.
    pub token_rotation: TokenRotation,
    /// Keys that manifests may be signed with: the first signs.
    pub signing_keys: Vec<TokenKey>,
    /// Versions taken down, as far as they are listed, by number.
    pub withdrawals: BTreeMap<u64, Withdrawal>,
    /// Serial numbers of certificates that every member refuses though they have not expired.
    pub revoked: BTreeSet<String>,
}

/// An appliance as registered, and its drives' capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// As an operator registered it.
    pub appliance: Appliance,
    /// The capacity that placement counts with: see `usable`. None if it never reported. Durable,
    /// so that a restart of the control plane moves no file.
    pub usable: Option<Bytes>,
    /// Its hardware, since it enrolled; none if nothing is known. Durable.
    pub hardware: Option<Hardware>,
    /// Two machines reported under its identity: no player is sent there. Durable, until it enrols
    /// anew or an operator says that the second is gone.
    pub cloned: bool,
    /// An operator's wish that it be drained, to come, on or over.
    pub drain: Option<Drain>,
}

impl Registered {
    /// Nothing is known of it yet.
    pub fn new(appliance: Appliance) -> Self {
        Self { appliance, usable: None, hardware: None, cloned: false, drain: None }
    }
}

/// How asset versions are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Appliances of each site that should hold each version.
    pub copies: u32,
    /// Versions of an asset that are held: the current one, and those before it for the sessions
    /// that began with them.
    pub versions_kept: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self { copies: 2, versions_kept: 2 }
    }
}

/// A change of desired state.
#[derive(Clone, Debug)]
pub enum Change {
    /// A site is new or different.
    Site(Site),
    /// A site is gone. No appliance stands in it.
    SiteGone(SiteId),
    /// An appliance is new or different. Its site exists.
    Appliance(Appliance),
    /// An operator says that an appliance's drives hold this from now on, though it is less than
    /// half of what they held.
    Usable(ApplianceId, Bytes),
    /// An appliance is to be drained so, or not any more.
    Drain(ApplianceId, Option<Drain>),
    /// An appliance is gone for good.
    ApplianceGone(ApplianceId),
    /// A version is the current one of its asset from now on.
    Version(Arc<Version>),
    /// The rights to play are different.
    Playbacks(PlaybacksChange),
    /// Versions are taken down, of which this tells.
    Withdrawn(Withdrawal),
    /// Old versions are gone that no playback could use.
    Superseded(Vec<AssetVersionId>),
    Policy(Policy),
    /// Manifests may be signed with these keys: the first signs.
    SigningKeys(Vec<TokenKey>),
    /// The keys of playback tokens, the one that signs first.
    TokenKeys(Vec<TokenKey>, TokenRotation),
    /// An appliance has an identity: for the first time, after the last had ended, or in place of
    /// one that was still good, which this `supersedes`. `machine` is empty if it is not known.
    Enrolled {
        appliance: ApplianceId,
        machine: String,
        supersedes: bool,
    },
    /// An appliance has no identity any more.
    IdentityRevoked(ApplianceId),
    /// An operator says that the second machine of an appliance is gone.
    CloneGone(ApplianceId),
    /// These certificates are refused from now on, and no others.
    Revoked(BTreeSet<String>),
}

impl Desired {
    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Site(site) => {
                Arc::make_mut(&mut self.sites).insert(site.id.clone(), site);
            }
            Change::SiteGone(id) => {
                let stands = |of: &Registered| of.appliance.site == id;
                assert!(!self.appliances.values().any(stands), "nobody stands in {id}");
                Arc::make_mut(&mut self.sites).remove(&id);
            }
            Change::Appliance(appliance) => match self.appliances.get_mut(&appliance.id) {
                Some(known) => known.appliance = appliance,
                None => {
                    self.appliances.insert(appliance.id.clone(), Registered::new(appliance));
                }
            },
            Change::Usable(id, usable) => {
                if let Some(known) = self.appliances.get_mut(&id) {
                    known.usable = Some(usable);
                }
            }
            Change::Drain(id, drain) => {
                self.appliances.entry(id).and_modify(|known| known.drain = drain);
            }
            Change::ApplianceGone(id) => {
                self.appliances.remove(&id);
                for withdrawal in self.withdrawals.values_mut() {
                    withdrawal.receipts.retain(|of, receipt| *of != id || receipt.is_some());
                }
            }
            Change::Version(version) => {
                // It may have been withdrawn, and be wanted again.
                self.withdrawals.retain(|_, withdrawal| {
                    withdrawal.versions.remove(version.id());
                    !withdrawal.versions.is_empty()
                });
                Arc::make_mut(&mut self.catalog).put(version);
            }
            Change::Withdrawn(withdrawal) => {
                assert!(!withdrawal.versions.is_empty(), "something is withdrawn");
                Arc::make_mut(&mut self.catalog).remove(withdrawal.versions.keys());
                let catalog = &self.catalog;
                self.playbacks.keep_public(|asset| !catalog.versions(asset).is_empty());
                self.withdrawals.insert(withdrawal.id, withdrawal);
            }
            Change::Superseded(versions) => {
                Arc::make_mut(&mut self.catalog).remove(versions.iter());
            }
            Change::Playbacks(change) => self.playbacks.apply(change),
            Change::Policy(policy) => self.policy = policy,
            Change::Enrolled { appliance, machine, .. } => {
                if let Some(known) = self.appliances.get_mut(&appliance) {
                    known.hardware = Some(Hardware { machine, drives: BTreeSet::new() });
                    known.cloned = false;
                }
            }
            Change::IdentityRevoked(_) => {}
            Change::CloneGone(id) => {
                if let Some(known) = self.appliances.get_mut(&id) {
                    known.cloned = false;
                }
            }
            Change::SigningKeys(keys) => self.signing_keys = keys,
            Change::TokenKeys(keys, rotation) => {
                self.token_keys = keys;
                self.token_rotation = rotation;
            }
            Change::Revoked(revoked) => self.revoked = revoked,
        }
    }

    /// The most that a rendition may take which this appliance should hold; none for any.
    pub(crate) fn bitrate_max(&self, appliance: &ApplianceId) -> Option<BitsPerSecond> {
        self.sites.get(&self.appliances.get(appliance)?.appliance.site)?.bitrate_max
    }

    pub(crate) fn place(&self, kept: &[Arc<Version>], lines_max: usize) -> placement::Placement {
        let candidate = |registered: &Registered| placement::Candidate {
            id: registered.appliance.id.clone(),
            site: registered.appliance.site.clone(),
            weight: registered.appliance.weight,
            usable: registered.usable,
            bitrate_max: self.bitrate_max(&registered.appliance.id),
        };
        let demand = |version: &Arc<Version>| placement::Demand {
            version: version.id().clone(),
            len: version.len_on_drive(),
            renditions: version.renditions().lens().collect(),
        };
        let candidates: Vec<_> = self.appliances.values().map(candidate).collect();
        let demands: Vec<_> = kept.iter().map(demand).collect();
        let config =
            placement::Config { copies_per_site: self.policy.copies, report_lines_max: lines_max };
        placement::place(&candidates, &demands, &config)
    }
}

//! Desired state: sites, appliances, catalog and policy. Durable before it comes here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::manifest::TokenKey;
use model::names::Names;
use model::profile::{Abilities, Profiles};
use model::topology::{Appliance, Site};
use model::units::{Bytes, UnixSeconds};

use crate::catalog::{Catalog, Version};
use crate::drain::Drain;
use crate::fill::FillPolicy;
use crate::machines::Hardware;
use crate::playbacks::{Playbacks, PlaybacksChange};
use crate::token_keys::TokenRotation;
use crate::wishes::Wishes;
use crate::withdrawal::Withdrawal;

/// Desired state as a whole.
#[derive(Clone, Debug, Default)]
pub struct Desired {
    pub sites: Arc<Names<SiteId, Site>>,
    /// All appliances; each stands in one of the sites.
    pub appliances: Arc<Names<ApplianceId, Registered>>,
    pub catalog: Arc<Catalog>,
    pub playbacks: Playbacks,
    pub policy: Policy,
    /// Versions that are fetched before all others, and outside of fill windows too: until a time,
    /// or until somebody says otherwise. At most [`model::hours::URGENT_MAX`].
    pub urgent: BTreeMap<AssetVersionId, Option<UnixSeconds>>,
    /// What operators say of versions: launches, pins and bans.
    pub wishes: Arc<Wishes>,
    /// Keys that playback tokens may be signed with.
    pub token_keys: Vec<TokenKey>,
    /// Which of them comes next, and which goes.
    pub token_rotation: TokenRotation,
    /// Keys that manifests may be signed with: the first signs.
    pub signing_keys: Vec<TokenKey>,
    /// Versions taken down, as far as they are listed, by number.
    pub withdrawals: BTreeMap<u64, Withdrawal>,
    /// Serial numbers of certificates that every member refuses though they have not expired.
    pub revoked: Arc<BTreeSet<String>>,
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
    pub hardware: Option<Arc<Hardware>>,
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

    /// The room that placement gives away: of its drives, at most what an operator said of this
    /// machine. What one said of its profile is not counted: machines of a kind differ in drives.
    pub fn room(&self) -> Option<Bytes> {
        let most = self.appliance.own.capacity.unwrap_or(Bytes(u64::MAX));
        self.usable.map(|usable| usable.min(most))
    }
}

/// How asset versions are spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Copies of each version in a cluster, where room is left by what viewers need.
    pub copies: u32,
    /// Versions of an asset that are held: the current one, and those before it for the sessions
    /// that began with them.
    pub versions_kept: u32,
    /// What machines of each profile are able to do.
    pub profiles: Profiles,
    pub fill: FillPolicy,
}

impl Policy {
    /// What an appliance is able to do, by an operator's word of it or of its profile.
    pub fn able(&self, appliance: &Appliance) -> Abilities {
        appliance.own.or(self.profiles.of(appliance.profile))
    }
}

impl Default for Policy {
    fn default() -> Self {
        let (profiles, fill) = (Profiles::default(), FillPolicy::default());
        Self { copies: 2, versions_kept: 2, profiles, fill }
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
    /// These versions are urgent from now on, and no others.
    Urgent(BTreeMap<AssetVersionId, Option<UnixSeconds>>),
    /// Operators say this of versions from now on, and nothing else.
    Wishes(Arc<Wishes>),
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
    /// The same but for who has confirmed withdrawals, of which there may be many: O(withdrawals).
    pub fn without_receipts(&self) -> Self {
        let bare = |(number, of): (&u64, &Withdrawal)| {
            let (versions, receipts) = (of.versions.clone(), BTreeMap::new());
            let (id, at, reason) = (of.id, of.at, of.reason);
            (*number, Withdrawal { id, at, reason, versions, receipts })
        };
        Self {
            sites: self.sites.clone(),
            appliances: self.appliances.clone(),
            catalog: self.catalog.clone(),
            playbacks: self.playbacks.clone(),
            policy: self.policy,
            urgent: self.urgent.clone(),
            wishes: Arc::clone(&self.wishes),
            token_keys: self.token_keys.clone(),
            token_rotation: self.token_rotation,
            signing_keys: self.signing_keys.clone(),
            withdrawals: self.withdrawals.iter().map(bare).collect(),
            revoked: self.revoked.clone(),
        }
    }

    /// How many versions of an asset are held.
    pub(crate) fn versions_kept(&self) -> usize {
        usize::try_from(self.policy.versions_kept).unwrap_or(usize::MAX)
    }

    /// An appliance, to be changed. Those of its part are copied if a plan in the making has them,
    /// too.
    pub(crate) fn registered_mut(&mut self, id: &ApplianceId) -> Option<&mut Registered> {
        if !self.appliances.contains_key(id) {
            return None;
        }
        Arc::make_mut(&mut self.appliances).get_mut(id)
    }

    fn register(&mut self, appliance: Appliance) {
        let all = Arc::make_mut(&mut self.appliances);
        match all.get_mut(&appliance.id) {
            Some(known) => known.appliance = appliance,
            None => drop(all.insert(appliance.id.clone(), Registered::new(appliance))),
        }
    }

    /// With what is said of it alone.
    fn remove_site(&mut self, id: &SiteId) {
        let mut all = self.appliances.unordered();
        assert!(all.all(|(_, of)| of.appliance.site != *id), "nobody stands in {id}");
        Arc::make_mut(&mut self.sites).remove(id);
        if self.wishes.has_site(id) {
            Arc::make_mut(&mut self.wishes).forget_sites(|site| site != id);
        }
    }

    pub(crate) fn apply(&mut self, change: Change) {
        match change {
            Change::Site(site) => {
                Arc::make_mut(&mut self.sites).insert(site.id.clone(), site);
            }
            Change::SiteGone(id) => self.remove_site(&id),
            Change::Appliance(appliance) => {
                self.register(appliance);
            }
            Change::Usable(id, usable) => {
                if let Some(known) = self.registered_mut(&id) {
                    known.usable = Some(usable);
                }
            }
            Change::Drain(id, drain) => {
                self.registered_mut(&id).into_iter().for_each(|known| known.drain = drain);
            }
            Change::ApplianceGone(id) => {
                Arc::make_mut(&mut self.appliances).remove(&id);
                self.withdrawals.values_mut().for_each(|of| of.sign_no_more(&id));
            }
            Change::Version(version) => {
                // It may have been withdrawn, and be wanted again.
                self.withdrawals.retain(|_, withdrawal| {
                    if withdrawal.versions.contains_key(version.id()) {
                        Arc::make_mut(&mut withdrawal.versions).remove(version.id());
                    }
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
            Change::Urgent(urgent) => self.urgent = urgent,
            Change::Wishes(wishes) => self.wishes = wishes,
            Change::Enrolled { appliance, machine, .. } => {
                if let Some(known) = self.registered_mut(&appliance) {
                    let hardware = Hardware { machine, drives: BTreeSet::new() };
                    known.hardware = Some(Arc::new(hardware));
                    known.cloned = false;
                }
            }
            Change::IdentityRevoked(_) => {}
            Change::CloneGone(id) => {
                if let Some(known) = self.registered_mut(&id) {
                    known.cloned = false;
                }
            }
            Change::SigningKeys(keys) => self.signing_keys = keys,
            Change::TokenKeys(keys, rotation) => {
                self.token_keys = keys;
                self.token_rotation = rotation;
            }
            Change::Revoked(revoked) => self.revoked = Arc::new(revoked),
        }
    }
}

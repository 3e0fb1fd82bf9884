//! What has changed of desired state, on its way from the writer to a front that has the rest.
//!
//! ```text
//! writer: before, now ──> between ──> Step ──> Difference: which generations, what, its check
//! front:  before, Difference.. ──> `following::Run` ──> its check? ──> now
//! ```
//!
//! A difference names the generation that it leads from, so that none is left out; and the check of
//! what it leads to, so that one which was made or applied wrongly is found.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetId, AssetVersionId, Generation, SiteId};
use model::manifest::{AssetVersion, TokenKey};
use model::topology::{Appliance, Site};
use model::units::UnixSeconds;
use playback::token::Session;

use crate::catalog::Version;
use crate::desired::{Desired, Policy, Registered};
use crate::playbacks::Playbacks;
use crate::withdrawal::{Reason, Withdrawal};

/// What leads from one state of a front to the next.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The state that it leads from.
    pub from: Generation,
    /// The one that it leads to.
    pub generation: Generation,
    /// When it was signed.
    pub issued: UnixSeconds,
    /// Newest generation of manifests.
    pub manifests: Generation,
    /// What is new or other.
    pub changed: Parts,
    pub gone: Gone,
    /// Of all that is there then.
    pub check: Check,
}

/// Parts of desired state, as fronts have it.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    pub sites: Vec<Site>,
    pub appliances: Vec<Registered>,
    /// Of those that are held.
    pub versions: Vec<Arc<Version>>,
    pub public: BTreeSet<AssetId>,
    pub revoked_sessions: BTreeMap<Session, UnixSeconds>,
    /// Versions that were withdrawn and are still listed.
    pub withdrawn: BTreeMap<AssetVersionId, AssetId>,
    /// Serial numbers of certificates that are refused.
    pub revoked: BTreeSet<String>,
    pub short: Short,
}

/// What is short, and told whole whenever something is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Short {
    pub policy: Policy,
    pub token_keys: Vec<TokenKey>,
    pub signing_keys: Vec<TokenKey>,
}

/// What is not there any more, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    pub sites: Vec<SiteId>,
    pub appliances: Vec<ApplianceId>,
    pub versions: Vec<AssetVersionId>,
    pub public: Vec<AssetId>,
    pub revoked_sessions: Vec<Session>,
    /// They are listed no more, or are there again.
    pub withdrawn: Vec<AssetVersionId>,
    /// Serial numbers.
    pub revoked: Vec<String>,
}

/// How many there are, and a sum over all that players' lists follow from. It means the same in
/// every release: what is added to the wire is not in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Check {
    pub count: u64,
    /// Of the first eight bytes of BLAKE3 of each, little endian, modulo 2^64.
    pub sum: u64,
}

/// What is otherwise in a state than in the one before.
#[derive(Clone, Debug, Default)]
pub struct Step {
    pub changed: Parts,
    pub gone: Gone,
    /// The same parts as they were before.
    pub replaced: Parts,
}

/// What leads from `before` to `now`; none if fronts would see no difference. O(withdrawals + what
/// the two do not share): a copy shares all but the neighbours of what was changed in it; sites,
/// appliances and assets have 256 neighbourhoods each, and a withdrawal is one.
pub fn between(before: &Desired, now: &Desired) -> Option<Step> {
    let mut step = Step::default();
    step.of_sites(before, now);
    step.of_appliances(before, now);
    step.of_versions(before, now);
    step.of_playbacks(&before.playbacks, &now.playbacks);
    step.of_withdrawn(before, now);
    step.of_certificates(&before.revoked, &now.revoked);
    (step.replaced.short, step.changed.short) = (Short::of(before), Short::of(now));
    (!step.is_empty()).then_some(step)
}

impl Step {
    /// The check of what it leads to, by that of what it leads from. O(what differs).
    pub fn check(&self, before: Check) -> Check {
        before.without(self.replaced.check()).with(self.changed.check())
    }

    fn is_empty(&self) -> bool {
        let Parts { sites, appliances, versions, short, .. } = &self.changed;
        let Parts { public, revoked_sessions, withdrawn, revoked, .. } = &self.changed;
        let nothing_new = sites.is_empty() && appliances.is_empty() && versions.is_empty();
        let nobody_may = public.is_empty() && revoked_sessions.is_empty();
        let nobody_may_not = withdrawn.is_empty() && revoked.is_empty();
        let nothing_is_gone = self.gone == Gone::default();
        let is_same = nothing_is_gone && *short == self.replaced.short;
        is_same && nothing_new && nobody_may && nobody_may_not
    }

    fn of_sites(&mut self, before: &Desired, now: &Desired) {
        for (id, known, site) in now.sites.beside(&before.sites) {
            if known == site {
                continue;
            }
            self.replaced.sites.extend(known.cloned());
            match site {
                Some(site) => self.changed.sites.push(site.clone()),
                None => self.gone.sites.push(id.clone()),
            }
        }
        self.changed.sites.sort_by(|one, other| one.id.cmp(&other.id));
        self.gone.sites.sort();
    }

    fn of_appliances(&mut self, before: &Desired, now: &Desired) {
        for (id, known, registered) in now.appliances.beside(&before.appliances) {
            if known.map(seen) == registered.map(seen) {
                continue;
            }
            self.replaced.appliances.extend(known.cloned());
            match registered {
                Some(registered) => self.changed.appliances.push(registered.clone()),
                None => self.gone.appliances.push(id.clone()),
            }
        }
        self.changed.appliances.sort_by(|one, other| one.appliance.id.cmp(&other.appliance.id));
        self.gone.appliances.sort();
    }

    fn of_versions(&mut self, before: &Desired, now: &Desired) {
        let counts = (before.versions_kept(), now.versions_kept());
        for (known, version) in now.catalog.kept_beside(&before.catalog, counts) {
            if let (Some(known), Some(version)) = (known, version)
                && is_same(known, version)
            {
                continue;
            }
            self.replaced.versions.extend(known.cloned());
            match (known, version) {
                (_, Some(version)) => self.changed.versions.push(version.clone()),
                (Some(known), None) => self.gone.versions.push(known.id().clone()),
                (None, None) => {}
            }
        }
        self.changed.versions.sort_by(|one, other| one.id().cmp(other.id()));
        self.gone.versions.sort();
    }

    /// O(public + revoked) if one of them has changed.
    fn of_playbacks(&mut self, before: &Playbacks, now: &Playbacks) {
        if now.is_same(before) {
            return;
        }
        let (known, public) = (before.public(), now.public());
        self.changed.public = public.difference(known).cloned().collect();
        self.gone.public = known.difference(public).cloned().collect();
        self.replaced.public = self.gone.public.iter().cloned().collect();
        let (known, revoked) = (before.revoked(), now.revoked());
        for (session, until) in revoked {
            let was = known.get(session);
            if was != Some(until) {
                self.changed.revoked_sessions.insert(*session, *until);
                self.replaced.revoked_sessions.extend(was.map(|was| (*session, *was)));
            }
        }
        for (session, until) in known.iter().filter(|(of, _)| !revoked.contains_key(of)) {
            self.gone.revoked_sessions.push(*session);
            self.replaced.revoked_sessions.insert(*session, *until);
        }
    }

    /// A version is in one withdrawal alone: what both share is in no other.
    fn of_withdrawn(&mut self, before: &Desired, now: &Desired) {
        let (known, withdrawn) = (own_of(before, now), own_of(now, before));
        for (version, asset) in &withdrawn {
            let was = known.get(version);
            if was != Some(asset) {
                self.changed.withdrawn.insert((*version).clone(), (*asset).clone());
                let was = was.map(|was| ((*version).clone(), (*was).clone()));
                self.replaced.withdrawn.extend(was);
            }
        }
        for (version, asset) in known.iter().filter(|(of, _)| !withdrawn.contains_key(*of)) {
            self.gone.withdrawn.push((*version).clone());
            self.replaced.withdrawn.insert((*version).clone(), (*asset).clone());
        }
    }

    /// O(serial numbers) if they have changed.
    fn of_certificates(&mut self, known: &Arc<BTreeSet<String>>, revoked: &Arc<BTreeSet<String>>) {
        if Arc::ptr_eq(known, revoked) {
            return;
        }
        self.changed.revoked = revoked.difference(known).cloned().collect();
        self.replaced.revoked = known.difference(revoked).cloned().collect();
        self.gone.revoked = self.replaced.revoked.iter().cloned().collect();
    }
}

/// The versions of withdrawals that the other does not share.
fn own_of<'a>(desired: &'a Desired, other: &Desired) -> BTreeMap<&'a AssetVersionId, &'a AssetId> {
    let is_shared = |of: &Withdrawal| {
        let same = other.withdrawals.get(&of.id);
        same.is_some_and(|same| Arc::ptr_eq(&same.versions, &of.versions))
    };
    let own = desired.withdrawals.values().filter(|of| !is_shared(of));
    own.flat_map(|withdrawal| &*withdrawal.versions).collect()
}

impl Difference {
    /// Changes the state that it leads from into the next. O(what differs), O(public + ended
    /// sessions), and O(withdrawn) or O(serial numbers) if these have changed.
    pub(crate) fn apply(&self, desired: &mut Desired) {
        let Self { changed, gone, .. } = self;
        changed.short.put(desired);
        let sites = Arc::make_mut(&mut desired.sites);
        gone.sites.iter().for_each(|id| drop(sites.remove(id)));
        sites.extend(changed.sites.iter().map(|site| (site.id.clone(), site.clone())));
        let appliances = Arc::make_mut(&mut desired.appliances);
        gone.appliances.iter().for_each(|id| drop(appliances.remove(id)));
        let changed_ones = changed.appliances.iter();
        appliances.extend(changed_ones.map(|of| (of.appliance.id.clone(), of.clone())));
        let catalog = Arc::make_mut(&mut desired.catalog);
        catalog.remove(gone.versions.iter());
        changed.versions.iter().for_each(|version| catalog.put(version.clone()));
        let playbacks = &desired.playbacks;
        let mut public = playbacks.public().clone();
        for asset in &gone.public {
            public.remove(asset);
        }
        public.extend(changed.public.iter().cloned());
        let mut revoked = playbacks.revoked().clone();
        for session in &gone.revoked_sessions {
            revoked.remove(session);
        }
        revoked.extend(&changed.revoked_sessions);
        desired.playbacks = Playbacks::new(public, revoked);
        self.apply_withdrawn(desired);
        if !(changed.revoked.is_empty() && gone.revoked.is_empty()) {
            let revoked = Arc::make_mut(&mut desired.revoked);
            for serial in &gone.revoked {
                revoked.remove(serial);
            }
            revoked.extend(changed.revoked.iter().cloned());
        }
    }

    fn apply_withdrawn(&self, desired: &mut Desired) {
        let (changed, gone) = (&self.changed.withdrawn, &self.gone.withdrawn);
        if changed.is_empty() && gone.is_empty() {
            return;
        }
        let mut all = withdrawn_of(desired);
        gone.iter().for_each(|version| drop(all.remove(version)));
        all.extend(changed.iter().map(|(version, asset)| (version.clone(), asset.clone())));
        put_withdrawn(desired, all);
    }
}

/// All versions that were withdrawn and are listed, each with its asset.
pub fn withdrawn_of(desired: &Desired) -> BTreeMap<AssetVersionId, AssetId> {
    let versions = desired.withdrawals.values().flat_map(|withdrawal| &*withdrawal.versions);
    versions.map(|(version, asset)| (version.clone(), asset.clone())).collect()
}

/// Notes in a front's state what was withdrawn. It is one withdrawal there, whenever and by whom.
pub fn put_withdrawn(desired: &mut Desired, versions: BTreeMap<AssetVersionId, AssetId>) {
    let (at, reason, receipts) = (UnixSeconds(0), Reason::Operator, BTreeMap::new());
    let all = Withdrawal { id: 0, at, reason, versions: Arc::new(versions), receipts };
    desired.withdrawals = BTreeMap::new();
    if !all.versions.is_empty() {
        desired.withdrawals.insert(all.id, all);
    }
}

impl Short {
    /// Of this state.
    pub fn of(desired: &Desired) -> Self {
        Self {
            policy: desired.policy,
            token_keys: desired.token_keys.clone(),
            signing_keys: desired.signing_keys.clone(),
        }
    }

    /// Takes its place in a front's state.
    pub fn put(&self, desired: &mut Desired) {
        let Self { policy, token_keys, signing_keys } = self.clone();
        desired.policy = policy;
        desired.token_keys = token_keys;
        desired.signing_keys = signing_keys;
    }
}

impl Parts {
    fn check(&self) -> Check {
        let mut check = Check::default();
        self.sites.iter().for_each(|site| check.site(site));
        self.appliances.iter().for_each(|registered| check.appliance(registered));
        self.versions.iter().for_each(|version| check.version(version));
        self.public.iter().for_each(|asset| check.public(asset));
        self.revoked_sessions.iter().for_each(|(session, until)| check.session(session, *until));
        self.withdrawn.iter().for_each(|(version, asset)| check.withdrawn(version, asset));
        check.certificates(&self.revoked);
        check
    }
}

impl Check {
    /// Of all that a front has of this state. O(sites + appliances + versions + withdrawn).
    pub fn of(desired: &Desired) -> Self {
        let mut check = Self::default();
        desired.sites.unordered().for_each(|(_, site)| check.site(site));
        desired.appliances.unordered().for_each(|(_, registered)| check.appliance(registered));
        for (_, version) in desired.catalog.kept(desired.versions_kept()) {
            check.version(version);
        }
        desired.playbacks.public().iter().for_each(|asset| check.public(asset));
        let revoked = desired.playbacks.revoked().iter();
        revoked.for_each(|(session, until)| check.session(session, *until));
        let withdrawn = desired.withdrawals.values().flat_map(|withdrawal| &*withdrawal.versions);
        withdrawn.for_each(|(version, asset)| check.withdrawn(version, asset));
        check.certificates(&desired.revoked);
        check
    }

    fn with(self, more: Self) -> Self {
        let (count, sum) = (self.count.wrapping_add(more.count), self.sum.wrapping_add(more.sum));
        Self { count, sum }
    }

    fn without(self, less: Self) -> Self {
        let (count, sum) = (self.count.wrapping_sub(less.count), self.sum.wrapping_sub(less.sum));
        Self { count, sum }
    }

    fn add(&mut self, parts: &[&str]) {
        let hash = blake3::hash(parts.join("\n").as_bytes());
        let first = hash.as_bytes().first_chunk().expect("BLAKE3 has 32 bytes");
        *self = self.with(Self { count: 1, sum: u64::from_le_bytes(*first) });
    }

    fn site(&mut self, site: &Site) {
        let prefixes: Vec<String> = site.prefixes.iter().map(ToString::to_string).collect();
        self.add(&["site", site.id.as_str(), &prefixes.join(" ")]);
    }

    fn appliance(&mut self, registered: &Registered) {
        let (of, drain) = (&registered.appliance, registered.drain);
        let weight = of.weight.value().to_string();
        let cloned = if registered.cloned { "cloned" } else { "" };
        let (from, until) = (drain.map(|of| of.from), drain.and_then(|of| of.until));
        let (from, until) = (text(from), text(until));
        self.add(&["appliance", of.id.as_str(), of.site.as_str(), &weight, cloned, &from, &until]);
    }

    fn version(&mut self, version: &Version) {
        let (id, asset) = (version.id().as_str(), version.files.asset.as_str());
        let (sequence, window) = (version.sequence.to_string(), version.window);
        self.add(&["version", id, asset, &sequence, &text(window.from), &text(window.until)]);
    }

    fn public(&mut self, asset: &AssetId) {
        self.add(&["public", asset.as_str()]);
    }

    fn session(&mut self, session: &Session, until: UnixSeconds) {
        self.add(&["session", &session.to_string(), &until.0.to_string()]);
    }

    fn withdrawn(&mut self, version: &AssetVersionId, asset: &AssetId) {
        self.add(&["withdrawn", version.as_str(), asset.as_str()]);
    }

    fn certificates(&mut self, serials: &BTreeSet<String>) {
        serials.iter().for_each(|serial| self.add(&["certificate", serial]));
    }
}

fn text(time: Option<UnixSeconds>) -> String {
    time.map_or_else(String::new, |time| time.0.to_string())
}

/// An appliance as fronts see it: manifests have its addresses, and fronts make none.
fn seen(registered: &Registered) -> impl PartialEq {
    let Registered { appliance, usable: _, hardware: _, cloned, drain } = registered;
    let Appliance { id, site, weight, addresses: _, profile, profile_name, own, tags } = appliance;
    (id, site, weight, (profile, profile_name), own, tags, cloned, drain)
}

/// True of two versions that are one to fronts, which fill none.
fn is_same(known: &Arc<Version>, version: &Arc<Version>) -> bool {
    Arc::ptr_eq(known, version)
        || (known.sequence, known.window, known.first_file)
            == (version.sequence, version.window, version.first_file)
            && known.entries == version.entries
            && known.renditions() == version.renditions()
            && files(known) == files(version)
}

fn files(version: &Version) -> impl PartialEq {
    let AssetVersion { id, asset, sources: _, modified, pace, files } = &*version.files;
    (id, asset, modified, pace, files)
}

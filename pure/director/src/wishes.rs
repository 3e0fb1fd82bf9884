//! What operators say of versions that demand cannot know: where one must lie or must not, and how
//! much one that begins will be watched.
//!
//! ```text
//! rules by version and place ──> Ruled: items by place ──> Bounds of each cluster that is planned
//!     a site before its manifest cluster before everywhere       pins, bans, and those of sites
//! launches ──> the forecast (popularity), by whoever runs it
//! ```
//!
//! A rule whose time is over counts no more; whoever stores them prunes it. O(rules x items of a
//! version) for a plan, and for each cluster the sets that are said of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use model::id::{ApplianceId, AssetVersionId, ClusterId, SiteId};
use model::names::Names;
use model::number::NumberSet;
use model::topology::Site;
use model::units::{Bytes, UnixSeconds};
use placement::plan::Apart;

use crate::catalog::Catalog;

/// Pins and bans together. Arbitrary: an operator can look through a list of so many.
pub const RULES_MAX: usize = 1024;
/// Launches. Arbitrary, too: those of two weeks.
pub const LAUNCHES_MAX: usize = 256;

/// What operators say. Durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// At most [`RULES_MAX`]. Of one version a rule for a site goes before one for its manifest
    /// cluster, and that before one for everywhere.
    pub rules: BTreeMap<(AssetVersionId, Where), Rule>,
    /// At most [`LAUNCHES_MAX`].
    pub launches: BTreeMap<AssetVersionId, Launch>,
}

/// Where a rule holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    Everywhere,
    /// A manifest cluster.
    Cluster(ClusterId),
    Site(SiteId),
}

/// A version must be held, or must not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub kind: RuleKind,
    /// It counts no more from then on; none until an operator says otherwise.
    pub until: Option<UnixSeconds>,
}

/// What a rule wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// One copy of each rendition at least lies there, whatever is expected of it.
    Pin,
    /// None does.
    Ban,
}

/// A version that begins, and what it will be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Nobody watches it before.
    pub begin: UnixSeconds,
    pub like: LaunchLike,
}

/// By what a launch is forecast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchLike {
    /// So many bytes on a day, of all its renditions in the whole fleet.
    Bytes(Bytes),
    /// As another version on its first days.
    FirstDays(AssetVersionId),
    /// As another version would have now.
    Present(AssetVersionId),
}

/// A pin or a ban that is not kept wholly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unkept {
    pub version: AssetVersionId,
    /// Of a pin the site, or the first of those that are planned with it; of a ban its place.
    pub at: Where,
    pub why: UnkeptWhy,
}

/// Why it is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnkeptWhy {
    /// A pin: there is no room for so much of it.
    NoRoom(Bytes),
    /// A pin: no appliance there has reported drives that can be used.
    NoDrives,
    /// A pin: no appliance stands there.
    NoAppliance,
    /// A pin: it was taken down, or the policy keeps newer versions of its asset.
    NotKept,
    /// A pin: the plan that would bring it is refused.
    PlanRefused,
    /// A ban: this appliance has the last copy that is known, and no source has another.
    LastCopy(ApplianceId),
}

impl Unkept {
    /// What was said and is not kept.
    pub fn kind(&self) -> RuleKind {
        match self.why {
            UnkeptWhy::NoRoom(_)
            | UnkeptWhy::NoDrives
            | UnkeptWhy::NoAppliance
            | UnkeptWhy::NotKept
            | UnkeptWhy::PlanRefused => RuleKind::Pin,
            UnkeptWhy::LastCopy(_) => RuleKind::Ban,
        }
    }
}

/// Why a version stays where it is banned.
pub fn last_copy(version: &AssetVersionId) -> impl fmt::Display {
    fmt::from_fn(move |f| write!(f, "ban not kept: last copy of {version} has no source"))
}

impl Rule {
    /// False from `until` on.
    pub fn is_on(&self, now: UnixSeconds) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

impl Launch {
    /// So many days after it begins: from then on it has a history of its own.
    pub fn ends(&self, days: u32) -> UnixSeconds {
        UnixSeconds(self.begin.0.saturating_add(u64::from(days) * 86_400))
    }

    /// True from its end on.
    pub fn is_over(&self, now: UnixSeconds, days: u32) -> bool {
        self.ends(days) <= now
    }
}

impl Wishes {
    /// The rules of a version. O(log rules + its own).
    pub fn rules_of(
        &self,
        version: &AssetVersionId,
    ) -> impl Iterator<Item = (&Where, &Rule)> + use<'_> {
        let first = (version.clone(), Where::Everywhere);
        let of_it = self.rules.range(first..).take_while({
            let version = version.clone();
            move |((of, _), _)| *of == version
        });
        of_it.map(|((_, at), rule)| (at, rule))
    }

    /// The rule that counts for a version at a site: the narrowest.
    pub fn rule_at(
        &self,
        version: &AssetVersionId,
        site: &Site,
        now: UnixSeconds,
    ) -> Option<(&Where, Rule)> {
        let is_there = |at: &Where| match at {
            Where::Everywhere => true,
            Where::Cluster(id) => site.manifest_cluster.as_ref() == Some(id),
            Where::Site(id) => site.id == *id,
        };
        let on = self.rules_of(version).filter(|(at, rule)| is_there(at) && rule.is_on(now));
        on.last().map(|(at, rule)| (at, *rule))
    }

    /// Versions that are banned somewhere now, each once.
    pub(crate) fn banned(&self, now: UnixSeconds) -> impl Iterator<Item = &AssetVersionId> {
        let is_ban = move |rule: &Rule| rule.kind == RuleKind::Ban && rule.is_on(now);
        let mut banned: Vec<_> = self.rules.iter().filter(|(_, rule)| is_ban(rule)).collect();
        banned.dedup_by_key(|((version, _), _)| version);
        banned.into_iter().map(|((version, _), _)| version)
    }

    /// Pins that count now.
    pub(crate) fn pins(
        &self,
        now: UnixSeconds,
    ) -> impl Iterator<Item = (&(AssetVersionId, Where), &Rule)> {
        let is_pin = move |rule: &Rule| rule.kind == RuleKind::Pin && rule.is_on(now);
        self.rules.iter().filter(move |(_, rule)| is_pin(rule))
    }

    /// True if something is said of this site by itself.
    pub fn has_site(&self, id: &SiteId) -> bool {
        self.rules.keys().any(|(_, at)| matches!(at, Where::Site(site) if site == id))
    }

    /// Forgets what is said of sites that are not there: another that gets the name is another
    /// site. How many rules that were. O(rules).
    pub fn forget_sites(&mut self, is_there: impl Fn(&SiteId) -> bool) -> usize {
        let before = self.rules.len();
        self.rules.retain(|(_, at), _| !matches!(at, Where::Site(id) if !is_there(id)));
        before - self.rules.len()
    }

    /// Those that count now, of versions that are there: launches for so many days.
    pub fn lasting(
        &self,
        now: UnixSeconds,
        launch_days: u32,
        is_there: impl Fn(&AssetVersionId) -> bool,
    ) -> Self {
        let mut lasting = self.clone();
        lasting.rules.retain(|(of, _), rule| rule.is_on(now) && is_there(of));
        lasting.launches.retain(|of, launch| !launch.is_over(now, launch_days) && is_there(of));
        lasting
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere => f.write_str("everywhere"),
            Self::Cluster(id) => write!(f, "in manifest cluster {id}"),
            Self::Site(id) => write!(f, "at site {id}"),
        }
    }
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pin => "pinned",
            Self::Ban => "banned",
        })
    }
}

impl fmt::Display for Unkept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, at, why } = self;
        write!(f, "{version} is {} {at}, and ", self.kind())?;
        match why {
            UnkeptWhy::NoRoom(missing) => write!(
                f,
                "{} MiB of it have no room there: add drives, or end other pins",
                missing.0.div_ceil(1 << 20)
            ),
            UnkeptWhy::NoDrives => f.write_str(
                "no appliance there has reported drives that can be used: is it enrolled and \
                 running?",
            ),
            UnkeptWhy::NoAppliance => f.write_str("no appliance stands there: end the pin"),
            UnkeptWhy::NotKept => f.write_str(
                "it is not kept: it was taken down, or newer versions of its asset are in its \
                 place: end the pin, pin one of these, or raise versions_kept",
            ),
            UnkeptWhy::PlanRefused => f.write_str(
                "the plan that would bring it is refused: look at the plan, and force it if it \
                 is meant",
            ),
            UnkeptWhy::LastCopy(holder) => write!(
                f,
                "{holder} keeps it ({}): pin it elsewhere, give it a source, or take it down",
                last_copy(version)
            ),
        }
    }
}

/// Items that must be held, and that must not be.
#[derive(Clone, Debug, Default)]
struct Sets {
    pins: NumberSet,
    bans: NumberSet,
}

impl Sets {
    /// What is said of a part of it goes before.
    fn but(&self, narrower: &Self) -> Self {
        Self {
            pins: &(&self.pins - &narrower.bans) | &narrower.pins,
            bans: &(&self.bans - &narrower.pins) | &narrower.bans,
        }
    }
}

/// Rules that count now, by place, as items.
#[derive(Debug, Default)]
pub(crate) struct Ruled {
    by: BTreeMap<Where, Sets>,
    /// Items of versions without a source that are pinned somewhere.
    pub(crate) alone: NumberSet,
}

impl Ruled {
    /// O(rules x items of a version).
    pub(crate) fn of(wishes: &Wishes, catalog: &Catalog, now: UnixSeconds) -> Self {
        let (mut by, mut alone) = (BTreeMap::<Where, Sets>::new(), NumberSet::new());
        for ((id, at), rule) in wishes.rules.iter().filter(|(_, rule)| rule.is_on(now)) {
            let Some(version) = catalog.version(id) else { continue };
            let sets = by.entry(at.clone()).or_default();
            let items = version.items_or_own();
            let items: NumberSet = items.each().map(|(_, item)| item.0).collect();
            match rule.kind {
                RuleKind::Pin => sets.pins |= &items,
                RuleKind::Ban => sets.bans |= &items,
            }
            if rule.kind == RuleKind::Pin && version.files.sources.is_empty() {
                alone |= items;
            }
        }
        Self { by, alone }
    }

    fn region(&self, cluster: Option<&ClusterId>) -> Sets {
        let mut sets = self.by.get(&Where::Everywhere).cloned().unwrap_or_default();
        if let Some(own) = cluster.and_then(|id| self.by.get(&Where::Cluster(id.clone()))) {
            sets = sets.but(own);
        }
        sets
    }

    /// Something is said of one of these sites alone.
    pub(crate) fn tells(&self, sites: &[&SiteId]) -> bool {
        sites.iter().any(|site| self.own(site).is_some())
    }

    fn own(&self, site: &SiteId) -> Option<&Sets> {
        self.by.get(&Where::Site(site.clone()))
    }

    fn at(&self, site: &SiteId, region: &Sets) -> Sets {
        self.own(site).map_or_else(|| region.clone(), |own| region.but(own))
    }

    /// What each site must not hold; empty if nothing is said. O(sites x their bans).
    pub(crate) fn bans_of<'a>(
        &self,
        sites: &'a Names<SiteId, Site>,
    ) -> BTreeMap<&'a SiteId, NumberSet> {
        let sites = sites.unordered().filter(|_| !self.by.is_empty());
        sites.map(|(id, site)| (id, self.bans(site))).collect()
    }

    fn bans(&self, site: &Site) -> NumberSet {
        self.at(&site.id, &self.region(site.manifest_cluster.as_ref())).bans
    }
}

/// What must be held by sites that are planned together, and must not.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) pins: NumberSet,
    pub(crate) bans: NumberSet,
    /// Sites of which something is said by themselves, ascending.
    apart: Vec<(SiteId, Sets)>,
    /// What all others must not hold besides; none if that is nothing. Where everything but one
    /// site must not hold something, that is said once.
    others: Option<Sets>,
}

impl Bounds {
    /// Of members that stand in these sites of a region, and must not hold what is `above`. O(sites
    /// log rules + sites of which something is said by themselves x items said of).
    pub(crate) fn of(
        ruled: &Ruled,
        region: Option<&ClusterId>,
        members: &[&SiteId],
        above: &NumberSet,
    ) -> Self {
        let all = ruled.region(region);
        let sites: BTreeSet<&SiteId> = members.iter().copied().collect();
        let alone = (sites.len() == 1).then(|| sites.first()).flatten();
        if let Some(site) = alone {
            let Sets { pins, bans } = ruled.at(site, &all);
            return Self { pins, bans: &bans | above, ..Self::default() };
        }
        let own: Vec<(&SiteId, &Sets, Sets)> = sites
            .iter()
            .filter_map(|site| Some((*site, ruled.own(site)?, ruled.at(site, &all))))
            .collect();
        let are_others = own.len() < sites.len();
        let mut each = own.iter().map(|(_, _, of)| &of.bans).chain(are_others.then_some(&all.bans));
        let mut bans = each.next().cloned().unwrap_or_default();
        each.for_each(|of| bans &= of);
        let besides = |of: &Sets| &of.bans - &bans;
        let others = Sets { pins: NumberSet::new(), bans: besides(&all) };
        let others = Some(others).filter(|of| are_others && !of.bans.is_empty());
        let apart = own.iter().map(|(site, own, of)| {
            ((*site).clone(), Sets { pins: own.pins.clone(), bans: besides(of) })
        });
        let apart = apart.collect();
        Self { pins: &all.pins - &bans, bans: &bans | above, apart, others }
    }

    /// What all of them must hold together, and what each site of which something is said.
    pub(crate) fn pins(&self) -> impl Iterator<Item = (Option<&SiteId>, &NumberSet)> {
        let sites = self.apart.iter().map(|(site, sets)| (Some(site), &sets.pins));
        sites.chain([(None, &self.pins)])
    }

    /// The sites of which more is said, as placement takes them; all others are as one.
    pub(crate) fn apart(&self) -> Vec<Apart<'_>> {
        let all = self.apart.iter().map(|(_, sets)| sets).chain(&self.others);
        all.map(|Sets { pins, bans }| Apart { pins, bans }).collect()
    }

    /// The place of a site among these.
    pub(crate) fn apart_of(&self, site: &SiteId) -> Option<usize> {
        let own = self.apart.binary_search_by_key(&site, |(id, _)| id).ok();
        own.or_else(|| self.others.as_ref().map(|_| self.apart.len()))
    }
}

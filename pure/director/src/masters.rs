//! Decides who of a fill cluster fetches an object from its origin, and how far others may go.
//!
//! ```text
//! members that should hold it ──> the draw for (version, rendition), the same whoever asks
//!        │ a dead, silent, drained or closed one is passed over: the next is drawn in its place
//!        v
//!     masters: all sources       the others: their own cluster ── waited ──> other clusters
//!                                                              └─ longer ──> origins
//! ```
//!
//! Nothing is stored: that a master is replaced follows from the same draw, without it.
//!
//! The draw is for a rendition and not for an object, so that small objects, which share a file
//! with others of their rendition, come from one master.
//!
//! At most [`SITES_MAX`] sites of a cluster, [`LOOKS_MAX`] of their appliances and [`DRAWN_MAX`] of
//! those that should hold the object are looked at: the same ones for all askers.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::id::{ApplianceId, ClusterId, SiteId};
use model::number::index;
use model::rendezvous::{Draws, Lot, Score};
use model::topology::{Site, Weight};
use model::units::Nanos;
use model::view::Health;

use crate::Director;
use crate::fill::FillPolicy;

/// How far an appliance may go for an object that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To appliances of its fill cluster.
    Cluster,
    /// To all appliances.
    Elsewhere,
    /// To its origins too.
    Origin,
}

/// A member of a fill cluster that should hold the object.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    pub id: &'a ApplianceId,
    pub weight: Weight,
    /// It is well, lets siblings fetch, and may fetch the object now.
    pub is_fit: bool,
}

/// The part of an asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It fetches for the others; or there is nobody who could, and everybody does.
    Master,
    /// It waits for masters, of whom one is at work or none is.
    Other { is_one_at_work: bool },
}

/// The masters of an object: the lowest draws among those who are fit, no more than `most`.
/// O(candidates log candidates).
pub fn draw<'a>(
    key: &[u8],
    candidates: impl Iterator<Item = Candidate<'a>>,
    most: u32,
) -> Vec<&'a ApplianceId> {
    let drawn = |of: Candidate<'a>| (Score::of(key, of.id.as_str().as_bytes(), of.weight), of.id);
    let mut drawn: Vec<_> = candidates.filter(|of| of.is_fit).map(drawn).collect();
    drawn.sort_unstable();
    drawn.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    drawn.into_iter().map(|(_, id)| id).collect()
}

/// How far an asker may go that has lacked an object for so long while its fill was open.
pub fn reach(policy: &FillPolicy, part: Part, waited: Nanos) -> Reach {
    let Part::Other { is_one_at_work } = part else { return Reach::Origin };
    let is_over = |(_, after): &(Reach, Nanos)| *after <= waited;
    let reached = steps(policy, is_one_at_work).into_iter().filter(is_over);
    reached.map(|(reach, _)| reach).max().unwrap_or(Reach::Cluster)
}

/// How far it may go next, and after how long; none if it may go to the origin now.
pub fn further(policy: &FillPolicy, part: Part, waited: Nanos) -> Option<(Reach, Nanos)> {
    let Part::Other { is_one_at_work } = part else { return None };
    let is_further = |(next, _): &(Reach, Nanos)| reach(policy, part, waited) < *next;
    let steps = steps(policy, is_one_at_work).into_iter().filter(is_further);
    let next = steps.min_by_key(|(next, after)| (*after, Reverse(*next)))?;
    Some((next.0, Nanos(next.1.0.saturating_sub(waited.0))))
}

/// When those who wait go further.
fn steps(policy: &FillPolicy, is_one_at_work: bool) -> [(Reach, Nanos); 2] {
    let times = if is_one_at_work { AT_WORK } else { 1 };
    let after = |span: Nanos| Nanos(span.0.saturating_mul(times));
    [(Reach::Elsewhere, after(policy.elsewhere_after)), (Reach::Origin, after(policy.origin_after))]
}

/// How long an asker that has waited so long, and finds nobody, waits until it asks again.
pub fn wait(policy: &FillPolicy, waited: Nanos) -> Nanos {
    let times = [policy.elsewhere_after, policy.origin_after].into_iter();
    let next = times.filter(|time| waited < *time).map(|time| Nanos(time.0 - waited.0)).min();
    let usual = Nanos(waited.0 / 8).clamp(WAIT_MIN, WAIT_MAX);
    next.map_or(usual, |next| usual.min(next).max(WAIT_MIN))
}

/// While a master fetches, those who wait for it are this many times as patient: it has a queue of
/// other objects, and they have not been forgotten. With the usual settings that is four hours, a
/// third of a night; after it, they go further whatever it does.
pub const AT_WORK: u64 = 16;

/// Those who wait ask again after an eighth of what they have waited: what a master has brought is
/// found an eighth later. Small fleets lose a second, and ten thousand objects at the longest wait
/// are 300 questions a second, which the appliance bounds.
const WAIT_MIN: Nanos = Nanos::seconds(1);
const WAIT_MAX: Nanos = Nanos::seconds(30);

/// After a start control knows of nobody whether it is well: those who ask first wait for so long
/// and do not all go to the origin. Appliances report within seconds.
const UNKNOWN_FOR: Nanos = Nanos::seconds(60);

/// Arbitrary: a fill cluster is a region, with dozens of sites.
const SITES_MAX: usize = 64;
/// Each costs a look into a set, about 50 ns.
const LOOKS_MAX: usize = 1024;
/// Each costs a draw, about 300 ns.
const DRAWN_MAX: usize = 64;

/// Which sites fill from one another.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    /// By number of the site; none of one that is by itself.
    of_sites: BTreeMap<u32, Key>,
    /// Invariant: those of `of_sites`, by the sites' names.
    sites: BTreeMap<Key, BTreeMap<SiteId, u32>>,
}

/// A fill cluster's name, or that of a manifest cluster that is one by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Fill(ClusterId),
    Manifest(ClusterId),
}

impl Clusters {
    /// A site is new, other, or gone. O(log sites).
    pub(crate) fn put(&mut self, id: &SiteId, number: u32, site: Option<&Site>) {
        let key = site.and_then(|site| {
            let manifest = || site.manifest_cluster.clone().map(Key::Manifest);
            site.fill_cluster.clone().map(Key::Fill).or_else(manifest)
        });
        let before = self.of_sites.get(&number);
        if before == key.as_ref() {
            return;
        }
        if let Some(before) = self.of_sites.remove(&number) {
            let left = self.sites.get_mut(&before).expect("a site is in the cluster that it has");
            left.remove(id);
            if left.is_empty() {
                self.sites.remove(&before);
            }
        }
        if let Some(key) = key {
            self.sites.entry(key.clone()).or_default().insert(id.clone(), number);
            self.of_sites.insert(number, key);
        }
    }

    /// True of two sites that fill from one another; a site does from itself.
    pub(crate) fn is_same(&self, one: u32, other: u32) -> bool {
        let both = (self.of_sites.get(&one), self.of_sites.get(&other));
        one == other || matches!(both, (Some(one), Some(other)) if one == other)
    }

    /// Sites of the cluster of one, in the order of the key, at most [`SITES_MAX`].
    fn drawn(&self, site: u32, draws: Draws) -> Vec<u32> {
        let Some(all) = self.of_sites.get(&site).and_then(|key| self.sites.get(key)) else {
            return vec![site];
        };
        let score = |id: &SiteId| draws.score(Lot::of(id.as_str().as_bytes()), Weight::ONE);
        let mut drawn: Vec<(Score, u32)> = if all.len() <= SITES_MAX {
            all.iter().map(|(id, number)| (score(id), *number)).collect()
        } else {
            let names: Vec<(&SiteId, &u32)> = all.iter().collect();
            let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
            let looks = draws.looks(count).take(SITES_MAX).map(|at| names[index(at)]);
            looks.map(|(id, number)| (score(id), *number)).collect()
        };
        drawn.sort_unstable();
        drawn.dedup();
        drawn.into_iter().map(|(_, number)| number).collect()
    }
}

/// The members of a fill cluster that should hold an object, and which of them are masters.
pub(crate) struct Elected<'a> {
    /// At most [`DRAWN_MAX`].
    pub(crate) members: Vec<&'a ApplianceId>,
    pub(crate) masters: Vec<&'a ApplianceId>,
    pub(crate) part: Part,
}

impl Director {
    /// Who fetches first, in the fill cluster of the asker, an object that has these numbers.
    pub(crate) fn elect(&self, asker: &ApplianceId, files: &[u32]) -> Elected<'_> {
        let policy = &self.desired.policy.fill;
        let (key, items) = (self.draw_key(files), self.items_with(files));
        let own = self.members.get(asker).map(|member| member.site);
        let is_urgent = self.is_urgent(files);
        let draws = Draws::of(&key);
        let sites = own.map(|own| self.clusters.drawn(own, draws)).unwrap_or_default();
        let mut candidates = Vec::new();
        let (mut looks, mut is_unknown) = (LOOKS_MAX, false);
        for site in sites {
            let hours = self.fill_hours(self.site_name(site));
            let may_fetch = hours.is_some_and(|hours| {
                hours.is_open(self.now_unix) || (is_urgent && !hours.is_paused(self.now_unix))
            });
            let standing = self.map.standing(site);
            for id in standing.iter().take(looks) {
                if candidates.len() < DRAWN_MAX && self.should_hold(id, &items) {
                    is_unknown |= self.is_unknown(id);
                    candidates.extend(self.candidate(id, may_fetch));
                }
            }
            looks = looks.saturating_sub(standing.len());
        }
        let members = candidates.iter().map(|of| of.id).collect();
        let masters = draw(&key, candidates.into_iter(), policy.masters);
        let part = if masters.is_empty() && is_unknown && 0 < policy.masters {
            Part::Other { is_one_at_work: false }
        } else if masters.is_empty() || masters.contains(&asker) {
            Part::Master
        } else {
            let is_one_at_work = masters.iter().any(|id| self.is_at_work(id));
            Part::Other { is_one_at_work }
        };
        Elected { members, masters, part }
    }

    /// True if one of the versions that have it is fetched outside of windows too. O(versions that
    /// have it x urgent versions).
    fn is_urgent(&self, files: &[u32]) -> bool {
        let versions = files.iter().map(|file| self.files.version_of(*file));
        let mut versions = versions.filter_map(|number| self.files.version(number));
        !self.urgent.is_empty() && versions.any(|version| self.urgent.contains(version.id()))
    }

    fn candidate<'a>(&'a self, id: &'a ApplianceId, may_fetch: bool) -> Option<Candidate<'a>> {
        let (member, registered) = (self.members.get(id)?, self.desired.appliances.get(id)?);
        let observed = member.observed.as_ref();
        let is_reached = observed.is_some_and(|observed| observed.peer_address.is_some());
        let is_fit = member.health == Health::Healthy && is_reached && may_fetch;
        Some(Candidate { id, weight: registered.appliance.weight, is_fit })
    }

    /// True of one that has not reported yet to a control that has just begun, or was registered
    /// just now.
    fn is_unknown(&self, id: &ApplianceId) -> bool {
        let member = self.members.get(id).filter(|member| member.health == Health::NeverSeen);
        member.is_some_and(|member| self.tick_at.since(member.since) < UNKNOWN_FOR)
    }

    /// True of one that has fetched something of late.
    fn is_at_work(&self, id: &ApplianceId) -> bool {
        let observed = self.members.get(id).and_then(|member| member.observed.as_ref());
        let fetched = observed.and_then(|observed| observed.fetched);
        let within = self.desired.policy.fill.elsewhere_after;
        fetched.is_some_and(|fetched| self.tick_at.since(fetched) <= within)
    }

    /// That by which the masters of an object are drawn: the first of the versions that have it, by
    /// name, and its rendition there. O(versions that have it).
    fn draw_key(&self, files: &[u32]) -> Vec<u8> {
        let numbered = files.iter().filter_map(|file| {
            let number = self.files.version_of(*file);
            let version = self.files.version(number)?;
            let at = index(*file - self.files.range(number).start);
            let rendition = version.renditions().of_objects().get(at).copied().unwrap_or(0);
            Some((version.id().as_str(), rendition))
        });
        let (version, rendition) = numbered.min().unwrap_or_default();
        let mut key = version.as_bytes().to_vec();
        key.extend([0, rendition]);
        key
    }

    /// Whoever should hold one of these items should hold the object. O(versions that have it).
    fn items_with(&self, files: &[u32]) -> Vec<u32> {
        let mut items = Vec::new();
        for file in files {
            let number = self.files.version_of(*file);
            let Some(version) = self.files.version(number) else { continue };
            let at = index(*file - self.files.range(number).start);
            let rendition = version.renditions().of_objects().get(at).copied().unwrap_or(0);
            items.extend(version.items_or_own().with(rendition).map(|item| item.0));
        }
        items
    }

    fn should_hold(&self, id: &ApplianceId, items: &[u32]) -> bool {
        let holds = self.places.holds.get(id);
        holds.is_some_and(|holds| items.iter().any(|item| holds.contains(*item)))
    }
}

#[cfg(test)]
mod tests;

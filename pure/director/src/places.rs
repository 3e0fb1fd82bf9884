//! Which items each appliance should hold: placement's answer for every cluster.
//!
//! ```text
//! versions that are kept ──> Shelf: items by number, with their room ──┐
//! what is expected of them, or a first guess for new ones ──> Order    ├─> a plan for each cluster
//! what appliances should hold until now ───────────────────────────────┘        │
//!                                       Places: items by appliance, what is missing and why
//! ```
//!
//! A cluster is a site, or the sites of a manifest cluster. Where sites of one cluster should hold
//! different renditions, they are planned by themselves.

mod guess;
mod handover;
mod report;
mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, ClusterId, Item, SiteId};
use model::names::Names;
use model::number::NumberSet;
use model::rendezvous::Lot;
use model::topology::Site;
use model::units::{BitsPerSecond, Bytes, UnixSeconds};
use model::view::Renditions;
use placement::before;
use placement::plan::{
    Apart, Catalogue, Change, Cluster, ClusterPlan, Config, Handover, Member, Order, Share, Wanted,
    fill_spare, place_cluster, place_region,
};

use crate::catalog::{Catalog, Items, Version};
use crate::desired::{Policy, Registered};
use crate::having::Having;
use crate::last::{Known, LastCopies, Past, last_copies, room_of, without};
use crate::shelf::{Holdings, Shelf};
use crate::wishes::{Bounds, Ruled, Unkept, UnkeptWhy, Where, Wishes};

use handover::handovers;
use report::Asked;
pub(crate) use report::Report;
pub use why::{Held, Question};

/// The items that each appliance should hold, and what is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Places {
    /// Of every appliance that was registered when the plan began: what its manifest says, which is
    /// what is planned but for what stays until another has it, and what waits for the room.
    pub(crate) holds: Holdings,
    /// What each should hold in the end. Not durable: after a restart, as it held.
    pub(crate) planned: Holdings,
    /// The site of each when it was planned.
    sites: Names<ApplianceId, SiteId>,
    catalogue: Arc<Catalogue>,
    pub(crate) shelf: Shelf,
    /// What stays though it is banned there.
    pub(crate) last: LastCopies,
    /// Those planned together with one where something stays until another has it.
    pub(crate) hand_over: BTreeSet<ApplianceId>,
    pub report: Report,
}

/// What viewers are expected to watch, ascending by item, region by region: a manifest cluster is
/// one, and all sites in none are one together. Of a region that is not here no demand is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub regions: BTreeMap<Option<ClusterId>, Arc<[Wanted]>>,
}

/// What a plan brings to an appliance and takes from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moves {
    pub appliance: ApplianceId,
    pub comes: Vec<(AssetVersionId, Renditions)>,
    pub goes: Vec<(AssetVersionId, Renditions)>,
}

/// What places follow from. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// A version was withdrawn within a day.
    pub(crate) withdrawn_of_late: bool,
    pub(crate) sites: Arc<Names<SiteId, Site>>,
    pub(crate) appliances: Arc<Names<ApplianceId, Registered>>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) policy: Policy,
    pub(crate) wishes: Arc<Wishes>,
    pub(crate) having: Having,
    /// None until somebody has said it to this process.
    pub(crate) expected: Option<Arc<Expected>>,
    /// What each appliance should hold until now.
    pub(crate) known: Arc<Places>,
    pub(crate) now_unix: UnixSeconds,
}

/// What those who are planned together have in common: the region, the site of one that is in no
/// manifest cluster, and the highest bitrate.
pub(crate) type Key<'a> = (Option<&'a ClusterId>, Option<&'a SiteId>, Option<BitsPerSecond>);

/// What is planned for appliances, and what is in the way of it.
struct Placed {
    plan: ClusterPlan,
    handovers: Vec<Handover>,
}

/// Appliances that are planned together.
struct Together<'a> {
    region: Option<&'a ClusterId>,
    registered: Vec<&'a Registered>,
    bitrate_max: Option<BitsPerSecond>,
}

impl Ground {
    /// What every appliance should hold of these versions, each with its age: so much was planned
    /// before, and so much is held by the manifests in force.
    /// O(items log items + clusters x what each may hold).
    pub(crate) fn places(
        &self,
        kept: &[(usize, &Arc<Version>)],
        (before, now): (&Holdings, &Holdings),
    ) -> Places {
        let mut shelf = Shelf::of(kept);
        let catalogue = Catalogue::new(shelf.pieces());
        let (together, ruled) = (self.together(), self.ruled());
        let (mut holds, mut planned) = (Holdings::default(), Holdings::default());
        let (mut report, mut hand_over) = (Report::default(), BTreeSet::new());
        self.note_pins(&shelf, &together, &mut report);
        let last = self.last_copies(&shelf, &catalogue, (before, now), &ruled);
        self.note_last(&shelf, &last, &mut report);
        let past = Past { before: &without(before, &last), now, last: &last };
        for region in together.chunk_by(|a, b| a.region == b.region) {
            let wanted = self.wanted(&shelf, region[0].region);
            let order = Order::new(&catalogue, &wanted);
            let bounds = bounds(&ruled, &shelf, region);
            let on = (region, &bounds[..], &ruled.alone);
            let plans = self.place_together(&shelf, &order, on, &past, &mut report);
            for (of, Placed { plan, handovers }) in region.iter().zip(plans) {
                let is_handing_over = !handovers.iter().all(Handover::is_done);
                let members = of.registered.iter().zip(plan.members).zip(handovers);
                for ((registered, member), handover) in members {
                    let id = &registered.appliance.id;
                    let items = one_of(before.get(id), member.items);
                    let held = match handover.is_done() {
                        true => Arc::clone(&items),
                        false => one_of(now.get(id), handover.until_then(&items)),
                    };
                    planned.insert(id.clone(), items);
                    holds.insert(id.clone(), held);
                    hand_over.extend(is_handing_over.then(|| id.clone()));
                }
            }
            shelf.rank(&order);
        }
        let sites = self.appliances.iter();
        let sites = sites.map(|(id, of)| (id.clone(), of.appliance.site.clone())).collect();
        report.note_handovers(&planned, &holds);
        let catalogue = Arc::new(catalogue);
        Places { holds, planned, sites, catalogue, shelf, last, hand_over, report }
    }

    /// The plans of clusters of one region.
    fn place_together(
        &self,
        shelf: &Shelf,
        order: &Order<'_>,
        (region, bounds, alone): (&[Together<'_>], &[Arc<Bounds>], &NumberSet),
        past: &Past<'_>,
        report: &mut Report,
    ) -> Vec<Placed> {
        let (config, none) = (Config::usual(self.policy.copies), NumberSet::new());
        let members = region.iter().zip(bounds);
        let members = members.map(|(of, bounds)| self.members((of, bounds), past, &none, shelf));
        let members: Vec<Vec<Member<'_>>> = members.collect();
        let all: usize = members.iter().map(Vec::len).sum();
        let apart: Vec<Vec<Apart<'_>>> = bounds.iter().map(|of| of.apart()).collect();
        let each = members.iter().zip(bounds).zip(&apart);
        let clusters: Vec<Cluster<'_>> = each
            .map(|((members, bounds), apart)| cluster_of(members, (bounds, apart, alone), all))
            .collect();
        let place = |cluster: &Cluster<'_>| place_cluster(order, cluster, &config);
        let mut plans: Vec<ClusterPlan> = clusters.iter().map(place).collect();
        // Before what nobody asks for takes the room, and for that itself.
        let mut done: Vec<Vec<NumberSet>> = Vec::with_capacity(plans.len());
        for (cluster, plan) in clusters.iter().zip(&mut plans) {
            let both = plan.members.iter_mut().zip(cluster.members);
            done.push(both.map(|(member, of)| shelf.bring_common(member, of.holds)).collect());
        }
        let mut of_region = place_region(order, &clusters, &mut plans);
        for ((cluster, plan), done) in clusters.iter().zip(&mut plans).zip(&done) {
            fill_spare(order, cluster, &config, plan);
            for (member, done) in plan.members.iter_mut().zip(done) {
                shelf.bring_common(member, done);
            }
        }
        for (of, plan) in region.iter().zip(&mut plans) {
            for (registered, member) in of.registered.iter().zip(&mut plan.members) {
                let Some(stays) = past.last.get(&registered.appliance.id) else { continue };
                member.items |= stays;
                of_region.at_origin -= stays;
            }
        }
        let asked = Asked { shelf, order, copies: config.copies, clusters: &clusters };
        report.note((region, &plans), &of_region, &asked);
        let each = region.iter().zip(&clusters).zip(plans);
        let placed = each.map(|(on, plan)| {
            let handovers = handovers(on, &plan, past, (shelf, order, &self.having));
            Placed { plan, handovers }
        });
        placed.collect()
    }

    /// These versions, and those that are held though newer ones of their assets are kept: as long
    /// as what is new does not come, they stay.
    pub(crate) fn with_held<'a>(
        &'a self,
        mut kept: Vec<(usize, &'a Arc<Version>)>,
        before: &Holdings,
    ) -> Vec<(usize, &'a Arc<Version>)> {
        let known: BTreeSet<&AssetVersionId> = kept.iter().map(|(_, of)| of.id()).collect();
        let mut held = NumberSet::new();
        before.values().for_each(|items| held |= &**items);
        let is_held = |version: &Version| {
            version.items_or_own().each().any(|(_, item)| held.contains(item.0))
        };
        let mut others = Vec::new();
        for (_, versions) in self.catalog.assets() {
            let versions = versions.iter().enumerate();
            others.extend(versions.filter(|(_, of)| !known.contains(of.id()) && is_held(of)));
        }
        kept.extend(others);
        kept
    }

    /// What every appliance should hold until now, of these versions: nothing comes, and what is
    /// banned goes all the same. O(sites x their bans + items held + items, where bitrates are
    /// limited).
    pub(crate) fn as_before(
        &self,
        kept: &[(usize, &Arc<Version>)],
        (before, now): (&Holdings, &Holdings),
        (known, wanted): (&Places, &Places),
    ) -> Places {
        let (shelf, none) = (Shelf::of(kept), Arc::default());
        let catalogue = Catalogue::new(shelf.pieces());
        let (ruled, nothing) = (self.ruled(), NumberSet::new());
        let bans = ruled.bans_of(&self.sites);
        let goes = |id: &ApplianceId| {
            let bans = bans.get(&self.appliances.get(id)?.appliance.site)?;
            Some(bans - wanted.last.get(id).unwrap_or(&nothing))
        };
        let left = |of: &Holdings| -> Holdings {
            let each = wanted.holds.keys().map(|id| {
                let was = of.get(id).unwrap_or(&none);
                let stays = &(&**was & catalogue.items()) - &goes(id).unwrap_or_default();
                (id.clone(), one_of(Some(was), stays))
            });
            each.collect()
        };
        let (planned, holds) = (left(before), left(now));
        // One that moves is where it was, until it is planned there.
        let site = |(id, site): (&ApplianceId, &SiteId)| {
            (id.clone(), known.sites.get(id).unwrap_or(site).clone())
        };
        let sites = wanted.sites.iter().map(site).collect();
        let (last, hand_over) = (wanted.last.clone(), BTreeSet::new());
        let mut report = wanted.report.clone();
        report.note_handovers(&planned, &holds);
        self.note_pins_refused((&planned, &wanted.planned), (&ruled, &shelf), &mut report);
        let catalogue = Arc::new(catalogue);
        Places { holds, planned, sites, catalogue, shelf, last, hand_over, report }
    }

    /// With whom an appliance is planned.
    pub(crate) fn key_of<'a>(&'a self, of: &'a Registered) -> Key<'a> {
        let site = self.sites.get(&of.appliance.site);
        let cluster = site.and_then(|site| site.manifest_cluster.as_ref());
        let by_itself = cluster.is_none().then_some(&of.appliance.site);
        (cluster, by_itself, site.and_then(|site| site.bitrate_max))
    }

    /// Appliances by cluster, in the order of its name, and of theirs.
    fn together(&self) -> Vec<Together<'_>> {
        let mut all: BTreeMap<_, Vec<&Registered>> = BTreeMap::new();
        for of in self.appliances.values() {
            all.entry(self.key_of(of)).or_default().push(of);
        }
        let together =
            |((region, _, bitrate_max), registered)| Together { region, registered, bitrate_max };
        all.into_iter().map(together).collect()
    }

    /// What was planned for each appliance until now. Of those whose manifest is of a release that
    /// kept no items, as that release placed.
    pub(crate) fn planned_until_now(
        &self,
        kept: &[(usize, &Arc<Version>)],
        had_manifest: impl Fn(&ApplianceId) -> bool,
    ) -> Holdings {
        let mut before = self.known.planned.clone();
        self.divide(&mut before);
        let is_unknown = |id: &&ApplianceId| had_manifest(id) && !before.contains_key(*id);
        let unknown: Vec<ApplianceId> =
            self.appliances.keys().filter(is_unknown).cloned().collect();
        if unknown.is_empty() {
            return before;
        }
        let placed = self.placed_before(kept);
        for id in unknown {
            let versions = placed.get(&id).into_iter().flatten();
            let versions = versions.filter_map(|version| self.catalog.version(version));
            let most = self.appliances.get(&id).and_then(|of| self.sites.get(&of.appliance.site));
            let most = most.and_then(|site| site.bitrate_max);
            let items = versions.flat_map(|version| {
                let held = most.map_or(Renditions::ALL, |most| version.within(most));
                let is_held = move |of: &(u8, Item)| of.0 == 0 || held.has(u32::from(of.0) - 1);
                let items: Vec<_> = version.items_or_own().each().filter(is_held).collect();
                items.into_iter().map(|(_, item)| item.0)
            });
            before.insert(id, Arc::new(items.collect()));
        }
        before
    }

    /// What each appliance should hold until now, by its manifest.
    pub(crate) fn named_until_now(&self, before: &Holdings) -> Holdings {
        let mut now = self.known.holds.clone();
        self.divide(&mut now);
        let unknown = before.iter().filter(|(id, _)| !self.known.holds.contains_key(*id));
        for (id, items) in unknown {
            now.insert(id.clone(), Arc::clone(items));
        }
        now
    }

    /// A version that was placed as a whole has items of its own once its renditions are told: who
    /// held it holds all of them. O(versions), and O(appliances) if there is one.
    fn divide(&self, before: &mut Holdings) {
        let is_whole = |items: &Items| items.each().count() == 1;
        let mut divided: Vec<Items> = Vec::new();
        for known in self.known.shelf.versions.iter().filter(|known| is_whole(&known.items)) {
            let version = self.catalog.version(known.version.id()).map(|of| of.items_or_own());
            divided.extend(version.filter(|items| !is_whole(items)));
        }
        if divided.is_empty() {
            return;
        }
        let ids: Vec<ApplianceId> = before.keys().cloned().collect();
        for id in ids {
            let Some(holds) = before.get_mut(&id) else { continue };
            let held = divided.iter().filter(|items| holds.contains(items.first()));
            let items: Vec<u32> = held.flat_map(|of| of.each().map(|(_, item)| item.0)).collect();
            if !items.is_empty() {
                Arc::make_mut(holds).extend(items);
            }
        }
    }

    fn placed_before(
        &self,
        kept: &[(usize, &Arc<Version>)],
    ) -> BTreeMap<ApplianceId, Vec<AssetVersionId>> {
        let candidate = |Registered { appliance, usable, .. }: &Registered| before::Candidate {
            id: appliance.id.clone(),
            site: appliance.site.clone(),
            weight: appliance.weight,
            usable: *usable,
            bitrate_max: self.sites.get(&appliance.site).and_then(|site| site.bitrate_max),
        };
        let demand = |(_, version): &(usize, &Arc<Version>)| before::Demand {
            version: version.id().clone(),
            len: version.len_on_drive(),
            renditions: version.renditions().lens().collect(),
        };
        let candidates: Vec<_> = self.appliances.values().map(candidate).collect();
        let demands: Vec<_> = kept.iter().map(demand).collect();
        before::place(&candidates, &demands, self.policy.copies)
    }

    fn members<'a>(
        &self,
        (of, bounds): (&Together<'_>, &Bounds),
        past: &Past<'a>,
        none: &'a NumberSet,
        shelf: &Shelf,
    ) -> Vec<Member<'a>> {
        let member = |of: &&Registered| {
            let apart = bounds.apart_of(&of.appliance.site);
            Member { apart, ..self.member(of, past, none, shelf) }
        };
        of.registered.iter().map(member).collect()
    }

    fn member<'a>(
        &self,
        of: &Registered,
        past: &Past<'a>,
        none: &'a NumberSet,
        shelf: &Shelf,
    ) -> Member<'a> {
        let (appliance, room) = (&of.appliance, of.room().unwrap_or_default());
        let holds = past.before.get(&appliance.id).map_or(none, |holds| holds);
        // What goes along with renditions that are held without the lowest has its room, and so
        // does what stays whatever is planned.
        let last = past.last.get(&appliance.id).map(|last| room_of(shelf, last));
        let room = room.saturating_sub(shelf.common_of(holds) + last.unwrap_or_default());
        Member {
            lot: Lot::of(appliance.id.as_str().as_bytes()),
            weight: appliance.weight,
            room,
            throughput: self.policy.able(appliance).throughput,
            holds,
            // It may be filled anew at once.
            fill: room,
            apart: None,
        }
    }

    /// Rules that count now, as items.
    pub(crate) fn ruled(&self) -> Ruled {
        Ruled::of(&self.wishes, &self.catalog, self.now_unix)
    }

    /// Pins of what nobody keeps, and where nobody stands. O(versions + appliances + pins).
    fn note_pins(&self, shelf: &Shelf, together: &[Together<'_>], report: &mut Report) {
        let kept: BTreeSet<_> = shelf.versions.iter().map(|of| of.version.id()).collect();
        let stands = together.iter().flat_map(|of| &of.registered);
        let sites: BTreeSet<&SiteId> = stands.map(|of| &of.appliance.site).collect();
        let regions: BTreeSet<_> = together.iter().filter_map(|of| of.region).collect();
        let is_there = |at: &Where| match at {
            Where::Everywhere => !together.is_empty(),
            Where::Cluster(id) => regions.contains(id),
            Where::Site(id) => sites.contains(id),
        };
        for ((version, at), _) in self.wishes.pins(self.now_unix) {
            if !kept.contains(version) {
                report.pin_missing(version, at.clone(), UnkeptWhy::NotKept);
            } else if !is_there(at) {
                report.pin_missing(version, at.clone(), UnkeptWhy::NoAppliance);
            }
        }
    }

    /// Pins that wait for a plan that is refused. O(appliances, and sets of pins there).
    fn note_pins_refused(
        &self,
        (is, would_be): (&Holdings, &Holdings),
        (ruled, shelf): (&Ruled, &Shelf),
        report: &mut Report,
    ) {
        let together = self.together();
        for region in together.chunk_by(|a, b| a.region == b.region) {
            for (of, bounds) in region.iter().zip(bounds(ruled, shelf, region)) {
                for (site, pins) in bounds.pins() {
                    let stands = |of: &&Registered| site.is_none_or(|id| *id == of.appliance.site);
                    let here = || of.registered.iter().copied().filter(stands);
                    let Some(first) = here().next().filter(|_| !pins.is_empty()) else { continue };
                    let all = |of: &Holdings| {
                        let held = here().filter_map(|one| of.get(&one.appliance.id));
                        held.fold(NumberSet::new(), |all, held| all | (&**held & pins))
                    };
                    let at = Where::Site(first.appliance.site.clone());
                    for (version, _) in shelf.held(&(all(would_be) - all(is))) {
                        let id = version.version.id();
                        let is_it = |told: &Unkept| told.version == *id && told.at == at;
                        if !report.pins_missing.iter().any(is_it) {
                            report.pin_missing(id, at.clone(), UnkeptWhy::PlanRefused);
                        }
                    }
                }
            }
        }
    }

    fn last_copies(
        &self,
        shelf: &Shelf,
        catalogue: &Catalogue,
        (before, now): (&Holdings, &Holdings),
        ruled: &Ruled,
    ) -> LastCopies {
        let (sites, appliances) = (&*self.sites, &*self.appliances);
        let known = Known { shelf, catalogue, sites, appliances };
        let is_at = |id: &ApplianceId, site: &SiteId| self.known.is_at(id, site);
        let alone = &self.having.banned_without_source;
        if alone.is_empty() {
            return LastCopies::new();
        }
        // One that stays until another has it may be the last.
        let mut both = before.clone();
        for (id, named) in now.iter() {
            if let Some(held) = both.get_mut(id) {
                *held = Arc::new(&**held | &(&**named & alone));
            }
        }
        last_copies(&self.having, &known, &both, ruled, is_at)
    }

    /// Notes each ban that is not kept. O(items that stay).
    fn note_last(&self, shelf: &Shelf, last: &LastCopies, report: &mut Report) {
        for (id, items) in last {
            let site = self.appliances.get(id).and_then(|of| self.sites.get(&of.appliance.site));
            for (of, _) in shelf.held(items) {
                let version = of.version.id();
                let rule = site.and_then(|site| self.wishes.rule_at(version, site, self.now_unix));
                let Some((at, _)) = rule else { continue };
                let why = UnkeptWhy::LastCopy(id.clone());
                report.ban_unkept(Unkept { version: version.clone(), at: at.clone(), why });
            }
        }
    }
}

/// The same set once, if it is one.
fn one_of(known: Option<&Arc<NumberSet>>, items: NumberSet) -> Arc<NumberSet> {
    let same = known.filter(|known| ***known == items);
    same.map_or_else(|| Arc::new(items), Arc::clone)
}

/// A cluster of a region with so many appliances: it has its part of the region's demand.
fn cluster_of<'a>(
    members: &'a [Member<'a>],
    (bounds, apart, alone): (&'a Bounds, &'a [Apart<'a>], &'a NumberSet),
    all: usize,
) -> Cluster<'a> {
    let Bounds { pins, bans, .. } = bounds;
    Cluster { members, share: share_of(members.len(), all), pins, bans, alone, apart }
}

/// The part of its region's demand that so many of all its appliances have together.
pub(crate) fn share_of(count: usize, all: usize) -> Share {
    let permillion = Bytes::of(count).0 * u64::from(Share::ALL.0) / Bytes::of(all).0.max(1);
    Share(u32::try_from(permillion).unwrap_or(u32::MAX).max(1))
}

/// What must be held by each cluster of a region and must not, made once for those of whose sites
/// nothing more is said.
fn bounds(ruled: &Ruled, shelf: &Shelf, region: &[Together<'_>]) -> Vec<Arc<Bounds>> {
    let mut above: BTreeMap<Option<BitsPerSecond>, NumberSet> = BTreeMap::new();
    let mut shared: BTreeMap<Option<BitsPerSecond>, Arc<Bounds>> = BTreeMap::new();
    let each = region.iter().map(|of| {
        let above = above.entry(of.bitrate_max).or_insert_with(|| shelf.above(of.bitrate_max));
        let sites: Vec<&SiteId> = of.registered.iter().map(|of| &of.appliance.site).collect();
        let make = || Arc::new(Bounds::of(ruled, of.region, &sites, above));
        match ruled.tells(&sites) {
            true => make(),
            false => Arc::clone(shared.entry(of.bitrate_max).or_insert_with(make)),
        }
    });
    each.collect()
}

impl Places {
    /// What is durable of the last plan.
    pub(crate) fn of(holds: Holdings) -> Self {
        Self { planned: holds.clone(), holds, ..Self::default() }
    }

    /// False as long as no more than items is known, of a process before.
    pub(crate) fn is_planned(&self) -> bool {
        !self.sites.is_empty()
    }

    /// All items that were planned, with their room.
    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// All that moves from what each appliance should hold by `before` to these places. `known` are
    /// the places of that time, if this process made them: the lengths of what has left the
    /// catalogue are there. O(items that move, and the sets that hold them).
    pub(crate) fn change(&self, before: &Holdings, known: &Self) -> Change {
        let len = |item: u32| {
            let piece = self.catalogue.get(Item(item)).or_else(|| known.catalogue.get(Item(item)));
            piece.map_or(Bytes::ZERO, |piece| piece.len)
        };
        let nothing = Arc::default();
        let mut change = Change::default();
        for (id, is) in self.planned.iter() {
            let was: &Arc<NumberSet> = before.get(id).unwrap_or(&nothing);
            if Arc::ptr_eq(is, was) {
                continue;
            }
            let (comes, goes) = (&**is - &**was, &**was - &**is);
            change.comes += comes.len();
            change.goes += goes.len();
            comes.iter().for_each(|item| change.comes_len += len(item));
            goes.iter().for_each(|item| change.goes_len += len(item));
        }
        change
    }

    /// Items of renditions that take more.
    pub(crate) fn above(&self, bitrate_max: Option<BitsPerSecond>) -> NumberSet {
        self.shelf.above(bitrate_max)
    }

    /// False of an appliance that stood in another site by the plan before.
    pub(crate) fn stood_there_too(&self, id: &ApplianceId, before: &Self) -> bool {
        self.sites.get(id).is_none_or(|site| before.is_at(id, site))
    }

    /// False of one that stands in another site by this plan.
    pub(crate) fn is_at(&self, id: &ApplianceId, site: &SiteId) -> bool {
        self.sites.get(id).is_none_or(|known| known == site)
    }

    /// The version that an item is of; none if none that was planned has it.
    pub(crate) fn version_of(&self, item: Item) -> Option<&AssetVersionId> {
        self.shelf.find(item).map(|of| of.version.id())
    }

    /// Those of versions that have a source.
    pub(crate) fn with_origin(&self, items: &NumberSet) -> NumberSet {
        let has_origin = |item: &u32| {
            let of = self.shelf.find(Item(*item));
            of.is_some_and(|of| !of.version.files.sources.is_empty())
        };
        items.iter().filter(has_origin).collect()
    }

    /// Appliances that keep a version, or a part of it, though they must not hold it: its last
    /// copy. O(items that stay anywhere).
    pub fn keepers<'a>(
        &'a self,
        version: &'a AssetVersionId,
    ) -> impl Iterator<Item = &'a ApplianceId> {
        let is_of = |item| self.version_of(Item(item)) == Some(version);
        let keeps = self.last.iter().filter(move |(_, items)| items.iter().any(is_of));
        keeps.map(|(id, _)| id)
    }

    /// All that were registered when it was planned, by name.
    pub fn appliances(&self) -> impl Iterator<Item = &ApplianceId> {
        self.holds.keys()
    }

    /// What comes to each appliance from other places, and what goes: versions with the numbers of
    /// renditions. Of the first appliances alone where something does. O(items held).
    pub fn moves(&self, before: &Self, most: usize) -> Vec<Moves> {
        let all = |places: &Self, items: NumberSet| -> Vec<(AssetVersionId, Renditions)> {
            let held = places.shelf.held(&items);
            held.map(|(of, held)| (of.version.id().clone(), held)).collect()
        };
        let none = Arc::default();
        let moves = self.planned.iter().map(|(id, is)| {
            let was = before.planned.get(id).unwrap_or(&none);
            let (comes, goes) = (&**is - &**was, &**was - &**is);
            let (comes, goes) = (all(self, comes), all(before, goes));
            Moves { appliance: id.clone(), comes, goes }
        });
        moves.filter(|of| !of.comes.is_empty() || !of.goes.is_empty()).take(most).collect()
    }

    /// The versions that an appliance should hold, with their renditions; empty if there is no such
    /// appliance. O(items that it should hold).
    pub fn held(&self, id: &ApplianceId) -> impl Iterator<Item = (&Arc<Version>, Renditions)> {
        let items = self.holds.get(id).into_iter();
        let held = items.flat_map(|items| self.shelf.held(items));
        held.map(|(numbered, held)| (&numbered.version, held))
    }

    /// How many items an appliance should hold. O(log appliances).
    pub fn item_count(&self, id: &ApplianceId) -> u64 {
        self.holds.get(id).map_or(0, |items| items.len())
    }

    /// How much a version is worth, for the order in which it is fetched.
    pub(crate) fn worth(&self) -> BTreeMap<&AssetVersionId, u32> {
        self.shelf.versions.iter().map(|of| (of.version.id(), of.worth)).collect()
    }
}

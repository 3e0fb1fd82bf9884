//! Where appliances stand, and the picture of the fleet that fronts answer from.
//!
//! ```text
//! something changed ──> its site is outdated ──> drawn anew, alone ──> the next picture
//! ```
//!
//! All that did not change is shared between one picture and the next. Sites and appliances have
//! numbers, none of which is given twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use model::id::{ApplianceId, Generation, SiteId};
use model::members::Members;
use model::number::{NumberSet, index};
use model::paged::Paged;
use model::topology::Site;
use model::units::Instant;
use model::view::{ApplianceView, FleetView, SiteView};

use crate::files::Files;
use crate::history::{Sample, Thinned};
use crate::observed::Wholes;
use crate::reply::{Standers, spread};
use crate::titles::{Counted, Serving};
use crate::{Director, Member};

/// Sites by number, and the picture in the making.
#[derive(Debug, Default)]
pub(crate) struct Map {
    numbers: BTreeMap<SiteId, u32>,
    sites: Vec<MappedSite>,
    /// The first number of an appliance that is free.
    next: u32,
    /// Numbers of sites whose picture is old.
    outdated: NumberSet,
    /// Numbers of sites whose loads alone are old, and the one whose turn is next.
    loads: NumberSet,
    turn: u32,
    /// All of it is up to date, but for the outdated sites.
    view: FleetView,
}

/// Who stands in a site, and its last day.
#[derive(Debug)]
struct MappedSite {
    id: SiteId,
    appliances: BTreeSet<ApplianceId>,
    /// As of the last picture of the site.
    standers: Standers,
    serving: Serving,
    day: Thinned,
}

impl Map {
    /// The number of a site; one that was never seen gets the next.
    pub(crate) fn number(&mut self, id: &SiteId) -> u32 {
        if let Some(number) = self.numbers.get(id) {
            return *number;
        }
        let number = u32::try_from(self.sites.len()).expect("32 bits are enough for sites");
        self.numbers.insert(id.clone(), number);
        self.sites.push(MappedSite {
            id: id.clone(),
            appliances: BTreeSet::new(),
            standers: Standers::default(),
            serving: Serving::default(),
            day: Thinned::day(),
        });
        self.outdate(number);
        number
    }

    fn standing_mut(&mut self, site: u32) -> &mut BTreeSet<ApplianceId> {
        &mut self.sites[index(site)].appliances
    }

    /// The number of a site that was seen.
    pub(crate) fn known_number(&self, id: &SiteId) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The appliances of a site, in the order of their names.
    pub(crate) fn standing(&self, site: u32) -> &BTreeSet<ApplianceId> {
        &self.sites[index(site)].appliances
    }

    /// The sums of those of a site that serve.
    pub(crate) fn serving(&self, site: u32) -> Serving {
        self.sites[index(site)].serving
    }

    /// An appliance is counted among them so from now on, and was so before. O(1).
    pub(crate) fn count(&mut self, before: Option<&Counted>, now: Option<&Counted>) {
        if let Some(before) = before {
            self.sites[index(before.site)].serving.take(before);
        }
        if let Some(now) = now {
            self.sites[index(now.site)].serving.add(now);
        }
    }

    /// All sites that were ever seen.
    pub(crate) fn site_count(&self) -> usize {
        self.sites.len()
    }

    /// A second of a site; of one that has no appliance nothing is worth keeping.
    pub(crate) fn remember(&mut self, site: u32, sample: Sample) {
        if sample.appliances != 0 {
            self.sites[index(site)].day.push(sample);
        }
    }

    pub(crate) fn day(&self, site: u32) -> impl Iterator<Item = &Sample> {
        self.sites[index(site)].day.samples()
    }

    /// The picture of a site is old.
    pub(crate) fn outdate(&mut self, site: u32) {
        self.outdated.insert(site);
    }

    pub(crate) fn is_outdated(&self) -> bool {
        !self.outdated.is_empty() || !self.loads.is_empty()
    }

    /// The loads in the picture of a site are old. Lists do not follow from them.
    pub(crate) fn outdate_loads(&mut self, site: u32) {
        self.loads.insert(site);
    }

    /// Sites whose loads are drawn now: not all at once, but in turns.
    fn loads_due(&mut self) -> Vec<u32> {
        let (mut due, mut left) = (Vec::new(), LOADS_MAX);
        while 0 < left && !self.loads.is_empty() {
            let next = self.loads.range(self.turn..).next().or_else(|| self.loads.min());
            let Some(site) = next else { break };
            self.loads.remove(site);
            self.turn = site.wrapping_add(1);
            left = left.saturating_sub(self.standing(site).len().max(1));
            due.push(site);
        }
        due
    }

    /// What the appliances of a site are told of each other.
    pub(crate) fn standers(&self, site: u32) -> &Standers {
        &self.sites[index(site)].standers
    }

    /// An appliance holds other versions, or renditions of others, wholly than before. O(the
    /// difference).
    pub(crate) fn holds(&mut self, appliance: u32, before: &Wholes, now: &Wholes) -> Moved {
        let FleetView { holders, partial_holders, .. } = &mut self.view;
        let (before_whole, now_whole) = (&before.versions, &now.versions);
        let (came, gone) = replace(holders, appliance, before_whole, now_whole, |of| &mut of.whole);
        let (before, now) = (&before.renditions, &now.renditions);
        let (parts_came, mut parts_gone) =
            replace(partial_holders, appliance, before, now, |of| of);
        // Those of a version that is whole now are held still.
        for of in came.iter().filter_map(|version| holders.get(version)) {
            parts_gone.remove_range(of.renditions.clone());
        }
        Moved {
            came: !(came.is_empty() && parts_came.is_empty()),
            gone: !(gone.is_empty() && parts_gone.is_empty()),
        }
    }

    /// A version has renditions of these numbers.
    pub(crate) fn put_renditions(&mut self, version: u32, renditions: Range<u32>) {
        at(&mut self.view.holders, version).renditions = renditions;
    }

    /// The appliances that hold all of a version.
    pub(crate) fn holders(&self, version: u32) -> Option<&Members> {
        self.view.holders.get(version).map(|holders| &holders.whole)
    }

    /// The appliances that hold all of a rendition but not of its version.
    pub(crate) fn partial_holders(&self, rendition: u32) -> Option<&Members> {
        self.view.partial_holders.get(rendition)
    }

    /// All numbers of appliances are below.
    pub(crate) fn numbers_end(&self) -> u32 {
        self.next
    }

    pub(crate) fn picture(&mut self, generation: Generation, files: &Files) -> FleetView {
        assert!(self.outdated.is_empty(), "all sites are drawn");
        self.view.generation = generation;
        self.view.versions = Arc::clone(files.numbers());
        self.view.clone()
    }
}

/// Whether an appliance holds something that it did not, and no longer holds something that it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) came: bool,
    pub(crate) gone: bool,
}

/// An appliance is in these sets now, by their numbers, and was in those. Gives those that it came
/// to, and those that it left.
fn replace<T: Clone + Default>(
    sets: &mut Paged<T>,
    appliance: u32,
    before: &NumberSet,
    now: &NumberSet,
    set: impl Fn(&mut T) -> &mut Members,
) -> (NumberSet, NumberSet) {
    let (came, gone) = (now - before, before - now);
    for number in &gone {
        if let Some(of) = sets.get_mut(number) {
            set(of).remove(appliance);
        }
    }
    for number in &came {
        set(at(sets, number)).insert(appliance);
    }
    (came, gone)
}

/// The item of this number, which is there from now on.
fn at<T: Clone + Default>(items: &mut Paged<T>, number: u32) -> &mut T {
    while items.len() <= number {
        items.push(T::default());
    }
    items.get_mut(number).expect("there is room")
}

/// Appliances whose loads are drawn in a tick, or those of one site more: of 20,000 each is drawn
/// every 2 s, as often as it reports.
const LOADS_MAX: usize = 1024;

impl Director {
    /// Where everybody stands, and which prefixes sites have. `before` were there until now.
    pub(crate) fn find_places(&mut self, now: Instant, before: impl Iterator<Item = SiteId>) {
        let gone: Vec<SiteId> = before.filter(|id| !self.desired.sites.contains_key(id)).collect();
        self.change_sites(&gone, &self.desired.sites.keys().cloned().collect::<Vec<_>>());
        let ids: Vec<ApplianceId> = self.desired.appliances.keys().cloned().collect();
        ids.iter().for_each(|id| self.stand(now, id));
        assert_eq!(self.members.len(), ids.len(), "a member is whoever is registered");
    }

    /// Desired state has these sites no longer, and those for the first time or other than before.
    pub(crate) fn change_sites(&mut self, gone: &[SiteId], there: &[SiteId]) {
        for id in gone.iter().chain(there) {
            let number = self.map.number(id);
            self.map.outdate(number);
            self.clusters.put(id, number, self.desired.sites.get(id));
        }
        self.tell_routes_sites(gone, there);
    }

    /// An appliance stands where desired state says.
    pub(crate) fn stand(&mut self, now: Instant, id: &ApplianceId) {
        let Some(registered) = self.desired.appliances.get(id) else { return };
        let site = self.map.number(&registered.appliance.site);
        match self.members.get_mut(id) {
            Some(member) if member.site != site => {
                let left = std::mem::replace(&mut member.site, site);
                let number = member.number;
                self.map.standing_mut(left).remove(id);
                self.map.view.take_appliance(number);
                self.map.outdate(left);
                self.heard_left(id, left);
                self.count_load(id);
            }
            Some(_) => {}
            None => {
                let number = self.map.next;
                self.map.next = number.checked_add(1).expect("32 bits are enough");
                let interval = spread(self.config.report_interval, id);
                let member = Member { interval, ..Member::unknown(now, number, site) };
                self.members.insert(id.clone(), member);
            }
        }
        self.map.standing_mut(site).insert(id.clone());
        self.map.outdate(site);
    }

    /// An appliance is not registered any more.
    pub(crate) fn lose_member(&mut self, id: &ApplianceId) {
        let Some(member) = self.members.remove(id) else { return };
        if let Some(observed) = &member.observed {
            self.map.holds(member.number, &observed.wholes(), &Wholes::default());
        }
        self.map.count(member.counted.as_ref(), None);
        self.healthy.gone(member.number);
        self.told_files.gone(member.number);
        self.map.standing_mut(member.site).remove(id);
        self.map.view.take_appliance(member.number);
        self.map.outdate(member.site);
        self.heard_left(id, member.site);
    }

    /// The name of a site.
    pub(crate) fn site_name(&self, number: u32) -> &SiteId {
        &self.map.sites[index(number)].id
    }

    /// The picture of an appliance's site is old.
    pub(crate) fn outdate(&mut self, id: &ApplianceId) {
        if let Some(member) = self.members.get(id) {
            self.map.outdate(member.site);
        }
    }

    /// Draws the sites whose picture is old. O(their appliances).
    pub(crate) fn draw_sites(&mut self) {
        for number in std::mem::take(&mut self.map.outdated) {
            self.map.sites[index(number)].standers = self.standers_of(number);
            self.draw_site(number);
            self.map.loads.remove(number);
        }
    }

    /// Draws the loads of some sites of which they are old. O([`LOADS_MAX`]).
    pub(crate) fn draw_loads(&mut self) {
        for number in self.map.loads_due() {
            self.draw_site(number);
        }
    }

    fn draw_site(&mut self, number: u32) {
        let MappedSite { id, appliances, .. } = &self.map.sites[index(number)];
        let appliances = appliances.iter().filter_map(|id| self.drawn(id)).collect();
        let known = self.desired.sites.get(id);
        let serves_strangers = known.is_none_or(Site::serves_strangers);
        let site = SiteView { id: id.clone(), serves_strangers, appliances };
        self.map.view.put_site(number, Arc::new(site));
    }

    fn drawn(&self, id: &ApplianceId) -> Option<ApplianceView> {
        let (member, registered) = (self.members.get(id)?, self.desired.appliances.get(id)?);
        let observed = member.observed.as_ref();
        // Which of two machines would answer? Without an address it is on nobody's list.
        let known = observed.filter(|_| !registered.cloned);
        Some(ApplianceView {
            id: id.clone(),
            number: member.number,
            weight: registered.appliance.weight,
            health: member.health,
            share_permille: member.share_permille(),
            titles_permille: member.titles_permille(self.config.titles_load_max),
            base_url: known.map(|observed| observed.base_url.clone()),
            plain_url: known.and_then(|observed| observed.plain_url.clone()),
            load: observed.map(|observed| observed.said.load).unwrap_or_default(),
        })
    }
}

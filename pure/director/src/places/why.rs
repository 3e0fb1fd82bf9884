//! Why something lies where it does: what placement would say of it now.

use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, SiteId};
use model::number::NumberSet;
use model::units::Bytes;
use placement::plan::{Catalogue, Order, Why, why};

use super::{Ground, Placed, Report, Together, bounds, cluster_of};
use crate::catalog::Version;
use crate::last::{Past, without};
use crate::shelf::Shelf;
use crate::wishes::{Launch, Rule, Where};

/// Whether an appliance should hold an item, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub appliance: ApplianceId,
    /// The number of the rendition; none of a version that is placed as a whole.
    pub rendition: Option<u8>,
    pub is_held: bool,
    /// What viewers are expected to be sent of it in a day by this appliance, as it is told.
    pub day: Bytes,
    pub why: Why,
    /// The rule of operators that counts for it there.
    pub rule: Option<(Where, Rule)>,
    /// What operators say of its version, if that begins.
    pub launch: Option<Launch>,
    /// It is banned there and stays: the last copy of what has no source.
    pub is_last: bool,
    /// It is not planned here, and is held until another that is to hold it has it.
    pub stays: bool,
    /// It is planned here, and comes once what stays has left its room.
    pub waits: bool,
}

/// A question why something lies where it does. Immutable, and long to answer: on another thread.
#[derive(Clone, Debug)]
pub struct Question {
    pub(crate) ground: Ground,
}

impl Question {
    /// For each appliance of a site and each item of a version. Empty if there is no such site or
    /// version.
    pub fn why(&self, site: &SiteId, version: &AssetVersionId) -> Vec<Held> {
        let count = usize::try_from(self.ground.policy.versions_kept).unwrap_or(usize::MAX);
        self.ground.why(&self.ground.catalog.kept(count), site, version)
    }
}

impl Ground {
    /// Why each appliance of a site holds each item of a version, or not, as it is planned now.
    /// Empty if there is no such site or version. O(a plan of its region).
    fn why(
        &self,
        kept: &[(usize, &Arc<Version>)],
        site: &SiteId,
        id: &AssetVersionId,
    ) -> Vec<Held> {
        let shelf = Shelf::of(kept);
        let catalogue = Catalogue::new(shelf.pieces());
        let together = self.together();
        let is_of = |of: &Together<'_>| of.registered.iter().any(|of| of.appliance.site == *site);
        let mut regions = together.chunk_by(|a, b| a.region == b.region);
        let found = regions.find_map(|region| Some((region, region.iter().position(is_of)?)));
        let version = shelf.versions.iter().find(|numbered| numbered.version.id() == id);
        let Some(((region, at), version)) = found.zip(version) else { return Vec::new() };
        let of = &region[at];
        let wanted = self.wanted(&shelf, of.region);
        let order = Order::new(&catalogue, &wanted);
        let (before, ruled, mut report) = (&self.known.planned, self.ruled(), Report::default());
        let bounds = bounds(&ruled, &shelf, region);
        let on = (region, &bounds[..], &ruled.alone);
        let now = &self.known.holds;
        let last = self.last_copies(&shelf, &catalogue, (before, now), &ruled);
        let past = Past { before: &without(before, &last), now, last: &last };
        let mut plans = self.place_together(&shelf, &order, on, &past, &mut report);
        let Placed { plan, handovers } = plans.swap_remove(at);
        let (none, apart) = (NumberSet::new(), bounds[at].apart());
        let members = self.members((of, &bounds[at]), &past, &none, &shelf);
        let all = region.iter().map(|of| of.registered.len()).sum();
        let cluster = cluster_of(&members, (&bounds[at], &apart, &ruled.alone), all);
        let rule = self.sites.get(site);
        let rule = rule.and_then(|site| self.wishes.rule_at(id, site, self.now_unix));
        let rule = rule.map(|(at, rule)| (at.clone(), rule));
        let launch = self.wishes.launches.get(id).cloned();
        let mut reasons = Vec::new();
        for (member, registered) in of.registered.iter().enumerate() {
            let (appliance, beside) = (&registered.appliance, self.beside(registered));
            for (rendition, item) in version.items.each().filter(|_| appliance.site == *site) {
                let is_held = plan.members[member].items.contains(item.0);
                let day = self.day(registered, &beside, item);
                let why = why(&order, &cluster, &plan, member, item);
                let rendition = (rendition != 0).then_some(rendition);
                let (rule, launch) = (rule.clone(), launch.clone());
                let is_last = last.get(&appliance.id).is_some_and(|of| of.contains(item.0));
                let appliance = appliance.id.clone();
                reasons.push(Held {
                    appliance,
                    rendition,
                    is_held,
                    day,
                    why,
                    rule,
                    launch,
                    is_last,
                    stays: handovers[member].stays.contains(item.0),
                    waits: handovers[member].waits.contains(item.0),
                });
            }
        }
        reasons
    }
}

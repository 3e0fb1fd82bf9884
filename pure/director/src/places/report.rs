//! What a plan came to: how full each appliance will be, and what is missing and why.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use model::id::{ApplianceId, AssetVersionId, Item, SiteId};
use model::number::{NumberSet, index};
use model::units::Bytes;
use placement::plan::{Cluster, ClusterPlan, MemberPlan, Order, RegionPlan, Why, why};

use super::Together;
use crate::shelf::{Holdings, Shelf};
use crate::wishes::{Unkept, UnkeptWhy, Where};

/// What is where, and what is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How full each appliance will be.
    pub loads: BTreeMap<ApplianceId, Filled>,
    /// Items with fewer copies in a cluster than wanted: the first of each cluster.
    pub missing: Vec<Missing>,
    /// All of them in all clusters.
    pub missing_count: u64,
    /// Items that no appliance of a region should hold, region by region: their origins have them.
    pub at_origin: u64,
    /// Versions that must be held somewhere and are not wholly: the first of them.
    pub pins_missing: Vec<Unkept>,
    /// All of them, for each cluster.
    pub pins_missing_count: u64,
    /// Versions that stay though they are banned there: the first of them.
    pub bans_unkept: Vec<Unkept>,
    /// All of them, for each appliance.
    pub bans_unkept_count: u64,
    /// Items that stay where they were until an appliance that is to hold them has them.
    pub staying: u64,
    /// Items that are planned where the room of those is needed, and come once they are gone.
    pub waiting: u64,
}

/// How full an appliance will be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    pub given: Bytes,
    /// [`Registered::room`]; none if it never reported.
    pub room: Option<Bytes>,
}

/// An item with fewer copies in a cluster than wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub version: AssetVersionId,
    /// The number of its rendition; none of a version that is placed as a whole.
    pub rendition: Option<u8>,
    /// The first site of the cluster.
    pub site: SiteId,
    /// Never more than the cluster has appliances.
    pub wanted: u32,
    pub placed: u32,
    pub why: Why,
}

/// What reasons are worked out of.
pub(super) struct Asked<'a> {
    pub(super) shelf: &'a Shelf,
    pub(super) order: &'a Order<'a>,
    pub(super) copies: u32,
    pub(super) clusters: &'a [Cluster<'a>],
}

/// Lines of what is missing, and of one cluster.
const MISSING_MAX: usize = 200;
const MISSING_OF_ONE: usize = 10;

impl Report {
    /// Notes what stays and what waits. O(appliances, and sets of those where something does).
    pub(super) fn note_handovers(&mut self, planned: &Holdings, holds: &Holdings) {
        (self.staying, self.waiting) = (0, 0);
        for (id, planned) in planned.iter() {
            let Some(holds) = holds.get(id).filter(|holds| !Arc::ptr_eq(holds, planned)) else {
                continue;
            };
            self.staying += (&**holds - &**planned).len();
            self.waiting += (&**planned - &**holds).len();
        }
    }

    /// Notes the plans of a region's clusters.
    pub(super) fn note(
        &mut self,
        (together, plans): (&[Together<'_>], &[ClusterPlan]),
        region: &RegionPlan,
        asked: &Asked<'_>,
    ) {
        self.at_origin += region.at_origin.len();
        for (at, (of, plan)) in together.iter().zip(plans).enumerate() {
            for (registered, member) in of.registered.iter().zip(&plan.members) {
                let room = registered.room();
                let given = room.unwrap_or_default().saturating_sub(member.room_left);
                let id = registered.appliance.id.clone();
                self.loads.insert(id, Filled { given, room });
            }
            self.note_missing(of, plan, (at, asked));
            self.note_pins_missing(of, plan, (at, asked));
        }
    }

    /// Pinned versions that a cluster, or a site of it, does not hold wholly.
    fn note_pins_missing(
        &mut self,
        of: &Together<'_>,
        plan: &ClusterPlan,
        (at, asked): (usize, &Asked<'_>),
    ) {
        let cluster = &asked.clusters[at];
        let sites = cluster.apart.iter().enumerate().map(|(site, apart)| (Some(site), apart.pins));
        for (site, pins) in sites.chain([(None, cluster.pins)]) {
            let mut missing = pins & asked.order.catalogue().items();
            missing -= cluster.bans;
            let stands = |member: &usize| site.is_none() || cluster.members[*member].apart == site;
            let mut members = (0..plan.members.len()).filter(stands).peekable();
            let has_drives = members.clone().any(|at| cluster.members[at].room != Bytes::ZERO);
            let first = members.peek().map(|member| &of.registered[*member].appliance.site);
            members.for_each(|member| missing -= &plan.members[member].items);
            let mut lens: BTreeMap<&AssetVersionId, Bytes> = BTreeMap::new();
            for item in missing.iter().map(Item) {
                let numbered = asked.shelf.find(item).expect("each piece is of a version here");
                let len = asked.order.catalogue().get(item).map_or(Bytes::ZERO, |of| of.len);
                *lens.entry(numbered.version.id()).or_default() += len;
            }
            for ((version, len), site) in lens.into_iter().zip(first.into_iter().cycle()) {
                let why = if has_drives { UnkeptWhy::NoRoom(len) } else { UnkeptWhy::NoDrives };
                self.pin_missing(version, Where::Site(site.clone()), why);
            }
        }
    }

    pub(super) fn pin_missing(&mut self, version: &AssetVersionId, at: Where, why: UnkeptWhy) {
        self.pins_missing_count += 1;
        if self.pins_missing.len() < MISSING_MAX {
            self.pins_missing.push(Unkept { version: version.clone(), at, why });
        }
    }

    pub(super) fn ban_unkept(&mut self, unkept: Unkept) {
        self.bans_unkept_count += 1;
        if self.bans_unkept.len() < MISSING_MAX {
            self.bans_unkept.push(unkept);
        }
    }

    /// Copies that a cluster lacks, by what the policy wants.
    fn note_missing(
        &mut self,
        of: &Together<'_>,
        plan: &ClusterPlan,
        (at, asked): (usize, &Asked<'_>),
    ) {
        let Asked { shelf, order, copies, clusters } = *asked;
        let wanted = placement::wanted(copies, plan.members.len());
        // Items of which there are so many copies or more, by the number less one.
        let mut copies = vec![NumberSet::new(); index(wanted)];
        for member in &plan.members {
            for n in (1..copies.len()).rev() {
                let more = &copies[n - 1] & &member.items;
                copies[n] |= more;
            }
            copies.first_mut().into_iter().for_each(|first| *first |= &member.items);
        }
        let Some(most) = copies.last() else { return };
        let missing = &(order.catalogue().items() - most) - clusters[at].bans;
        self.missing_count += missing.len();
        let lines = MISSING_OF_ONE.min(MISSING_MAX.saturating_sub(self.missing.len()));
        for item in missing.iter().take(lines).map(Item) {
            let placed = copies.iter().filter(|of| of.contains(item.0)).count();
            let holds = |member: &MemberPlan| member.items.contains(item.0);
            let member = plan.members.iter().position(|member| !holds(member)).unwrap_or(0);
            let numbered = shelf.find(item).expect("each piece is of a version here");
            let mut divided = numbered.items.each().filter(|(of, _)| *of != 0);
            self.missing.push(Missing {
                version: numbered.version.id().clone(),
                rendition: divided.find(|(_, other)| *other == item).map(|(of, _)| of),
                site: of.registered[member].appliance.site.clone(),
                wanted,
                placed: u32::try_from(placed).unwrap_or(u32::MAX),
                why: why(order, &clusters[at], plan, member, item),
            });
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (appliance, Filled { given, room }) in &self.loads {
            match room {
                Some(room) => {
                    writeln!(f, "{appliance}: {} MiB of {} MiB", given.0 >> 20, room.0 >> 20)?;
                }
                None => writeln!(f, "{appliance}: it has not reported its drives yet")?,
            }
        }
        for Missing { version, rendition, site, wanted, placed, why } in &self.missing {
            let rendition = rendition.map(|of| format!(" rendition {of}")).unwrap_or_default();
            writeln!(f, "{version}{rendition}: {placed} of {wanted} copies in {site}: {why}")?;
        }
        let unlisted = self.missing_count.saturating_sub(Bytes::of(self.missing.len()).0);
        if unlisted != 0 { writeln!(f, "and {unlisted} more items") } else { Ok(()) }
    }
}

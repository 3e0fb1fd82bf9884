//! What sites hear from their routers: one appliance of each site is believed, the others are
//! compared with it.
//!
//! ```text
//! report ─ digest ──> another than is known, of the one who is believed? ──> reply: wanted
//! parts ────────────> staged ── the last ──> table of routes ──> snapshot
//! two digests in one site for ten seconds ──> an operator is told
//! ```
//!
//! Routers should announce the same to all appliances of a site, so one's word is enough, and the
//! table does not grow with the appliances. Believed is the one that hears most: one that has lost
//! a session falls back at once. An appliance that is silent is not believed, but what it said
//! stays until somebody says otherwise: silence moves no viewer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::id::{ApplianceId, SiteId};
use model::topology::{Place, Prefix, Site};
use model::units::{Instant, Nanos};
use routes::{Digest, Part, Stage};

use crate::event::RoutesWanted;
use crate::{Director, Member, is_reporting};

/// What is under way, and what was noticed.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    stages: BTreeMap<ApplianceId, (Stage, Instant)>,
    /// Sites whose appliances hear different tables: since when, and whether that was told.
    differ: BTreeMap<SiteId, (Instant, bool)>,
    /// What sites whose word is being taken over should hear then.
    awaited: BTreeMap<SiteId, Digest>,
    /// When the next slice of the work on the table is due.
    go_on_at: Instant,
    /// Static prefixes of sites by files.
    zones: BTreeMap<SiteId, Vec<Prefix>>,
}

/// Differences that come in parts at the same time. One more waits for its next report: each may
/// be some 100 MB.
const STAGES_MAX: usize = 4;

/// A difference of which no part has come for so long makes room.
const STAGE_SILENT: Nanos = Nanos::seconds(10);

/// Between two slices reports and players have their turn.
const BETWEEN_SLICES: Nanos = Nanos::millis(2);

/// For so long appliances of a site may hear different tables: a change takes seconds to reach all.
const DIFFER_AFTER: Nanos = Nanos::seconds(10);

impl Director {
    /// The part that should come next from this appliance; 0 for the first of a difference.
    pub fn next_part(&self, id: &ApplianceId) -> u32 {
        self.heard.stages.get(id).map_or(0, |(stage, _)| stage.next())
    }

    /// What a site is known to hear; none if nobody there hears anything.
    pub fn heard(&self, site: &SiteId) -> Option<Digest> {
        self.routes.heard(site)
    }

    /// Sites whose appliances hear different tables, for longer than a change takes.
    pub fn differing(&self) -> impl Iterator<Item = &SiteId> {
        self.heard.differ.iter().filter(|(_, (_, told))| *told).map(|(site, _)| site)
    }

    /// What the reply to a report asks for: only the one who is believed is asked.
    pub(crate) fn routes_wanted(&self, id: &ApplianceId) -> Option<RoutesWanted> {
        self.says_routes(id)?;
        let site = self.site_of(id)?;
        let (believed, told) = self.believed(site)?;
        if self.routes.is_taking(site) {
            return None;
        }
        let known = self.routes.heard(site);
        (believed == id && known != Some(told)).then_some(RoutesWanted { known })
    }

    /// A report has come: whether its site agrees, and still hears anything. O(appliances of the
    /// site), and O(log sites) where nobody hears anything.
    pub(crate) fn compare_routes(&mut self, now: Instant, id: &ApplianceId) {
        let Some(site) = self.site_of(id).cloned() else { return };
        let is_known = self.routes.heard(&site).is_some() || self.heard.differ.contains_key(&site);
        if self.says_routes(id).is_none() && !is_known {
            return;
        }
        let mut told = self.routes_told(&site).map(|(_, digest)| digest);
        let first = told.next();
        let agree = first.is_none_or(|first| told.all(|other| other == first));
        drop(told);
        if agree {
            if let Some((_, true)) = self.heard.differ.remove(&site) {
                self.note_routes(id, format!("all appliances of site {site} hear the same again"));
            }
        } else {
            self.heard.differ.entry(site.clone()).or_insert((now, false));
        }
        if first.is_none() {
            self.forget_if_nobody_hears(&site);
        }
    }

    /// Files say where clients are, and which sites they are for.
    pub(crate) fn place_clients(
        &mut self,
        places: Vec<(Prefix, Place)>,
        zones: BTreeMap<SiteId, Vec<Prefix>>,
    ) {
        self.routes.set_places(places);
        let before = std::mem::replace(&mut self.heard.zones, zones);
        let named: BTreeSet<SiteId> =
            before.into_keys().chain(self.heard.zones.keys().cloned()).collect();
        self.tell_routes_sites(&[], &Vec::from_iter(named));
        self.view_is_old = true;
    }

    /// The first sites are gone, the others there or other than before.
    pub(crate) fn tell_routes_sites(&mut self, gone: &[SiteId], there: &[SiteId]) {
        let mut sites = Vec::with_capacity(there.len());
        for id in there {
            let Some(site) = self.desired.sites.get(id) else { continue };
            let site = match self.heard.zones.get(id) {
                None => Cow::Borrowed(site),
                Some(more) => {
                    let prefixes = [site.prefixes.as_slice(), more.as_slice()].concat();
                    Cow::Owned(Site { prefixes, ..site.clone() })
                }
            };
            sites.push((self.map.number(id), site));
        }
        self.routes.change_sites(gone, &sites);
        for site in gone {
            self.heard.differ.remove(site);
            self.heard.awaited.remove(site);
        }
    }

    /// An appliance is gone from its site, which may hear nothing without it.
    pub(crate) fn heard_left(&mut self, id: &ApplianceId, site: u32) {
        self.heard.stages.remove(id);
        let site = self.site_name(site).clone();
        self.forget_if_nobody_hears(&site);
    }

    /// Those who stand in a site, in the order of their names.
    fn members_of(&self, site: &SiteId) -> impl Iterator<Item = (&ApplianceId, &Member)> {
        let number = self.map.known_number(site);
        let standing = number.into_iter().flat_map(|number| self.map.standing(number));
        standing.filter_map(|id| Some((id, self.members.get(id)?)))
    }

    /// Also what a silent one said last counts.
    fn forget_if_nobody_hears(&mut self, site: &SiteId) {
        if self.routes.heard(site).is_none() {
            return;
        }
        let hears = |member: &Member| {
            member.observed.as_ref().is_some_and(|observed| observed.said.routes.is_some())
        };
        if !self.members_of(site).any(|(_, member)| hears(member)) {
            self.routes.forget(site);
            self.view_is_old = true;
        }
    }

    pub(crate) fn hear(&mut self, now: Instant, id: &ApplianceId, part: Part) {
        let Some(site) = self.site_of(id).cloned() else { return };
        if self.routes.is_taking(&site) {
            return;
        }
        let stages = &mut self.heard.stages;
        if part.number == 0 {
            stages.retain(|of, (_, at)| of != id && now.since(*at) < STAGE_SILENT);
            if STAGES_MAX <= stages.len() {
                return;
            }
            stages.insert(id.clone(), (Stage::new(&part), now));
        }
        let Some((stage, at)) = stages.get_mut(id) else { return };
        *at = now;
        let (from, to) = (stage.from(), stage.to());
        match stage.take(part) {
            Ok(None) => return,
            Ok(Some(difference)) => {
                // Another may have been believed meanwhile.
                let fits = from.is_none() || from == self.routes.heard(&site);
                if fits && self.believed(&site).is_some_and(|(believed, _)| believed == id) {
                    self.routes.hear(&site, difference, from.is_none());
                    self.heard.awaited.insert(site.clone(), to);
                }
            }
            Err(routes::Mismatch) => {}
        }
        self.heard.stages.remove(id);
        assert!(self.heard.stages.len() <= STAGES_MAX, "there is room for so many");
    }

    /// Does a slice of the work on the table, if one is due: reports and players wait for no more.
    pub(crate) fn go_on_with_routes(&mut self, now: Instant) {
        if !self.routes.is_busy() || now < self.heard.go_on_at {
            return;
        }
        self.heard.go_on_at = now + BETWEEN_SLICES;
        for done in self.routes.go_on(routes::SLICE) {
            let awaited = self.heard.awaited.remove(&done.site);
            self.counters.routes_changes += 1;
            self.counters.routes_gaps += u64::from(awaited != Some(done.digest));
        }
        self.view_is_old |= !self.routes.is_half_done();
    }

    /// When the table wants to be worked on.
    pub(crate) fn routes_due(&self) -> Option<Instant> {
        self.routes.is_busy().then_some(self.heard.go_on_at)
    }

    /// Tells of sites that have not agreed for too long.
    pub(crate) fn watch_routes(&mut self, now: Instant) {
        let is_due = |since: Instant| DIFFER_AFTER <= now.since(since);
        let due = self.heard.differ.iter().filter(|(_, (since, told))| !told && is_due(*since));
        let due: Vec<SiteId> = due.map(|(site, _)| site.clone()).collect();
        for site in due {
            self.heard.differ.insert(site.clone(), (now, true));
            let Some((believed, most)) = self.believed(&site) else { continue };
            let believed = believed.clone();
            let other = self.routes_told(&site).find(|(_, digest)| *digest != most);
            let Some((other, less)) = other else { continue };
            let (other, most, less) = (other.clone(), most.count, less.count);
            let text = format!(
                "{other} and {believed} of site {site} hear different routes ({less} and {most} \
                 prefixes): have its routers announce the same to all of them"
            );
            self.note_routes(&other, text);
        }
    }

    /// The appliance of a site that is believed: of those that report, the one that hears most.
    fn believed(&self, site: &SiteId) -> Option<(&ApplianceId, Digest)> {
        let first = |(a, _): &(&ApplianceId, Digest), (b, _): &(&ApplianceId, Digest)| b.cmp(a);
        self.routes_told(site).max_by(|a, b| a.1.count.cmp(&b.1.count).then_with(|| first(a, b)))
    }

    /// What the appliances of a site that report hear, by their last word.
    fn routes_told(&self, site: &SiteId) -> impl Iterator<Item = (&ApplianceId, Digest)> {
        self.members_of(site).filter_map(|(id, member)| {
            let is_heard = is_reporting(member.health) && !self.is_cloned(id);
            let told = member.observed.as_ref().filter(|_| is_heard)?.said.routes?;
            Some((id, told))
        })
    }

    /// What an appliance said last that it hears.
    fn says_routes(&self, id: &ApplianceId) -> Option<Digest> {
        self.members.get(id)?.observed.as_ref()?.said.routes
    }

    fn site_of(&self, id: &ApplianceId) -> Option<&SiteId> {
        self.desired.appliances.get(id).map(|registered| &registered.appliance.site)
    }

    /// Tells an operator, by an appliance of the site.
    fn note_routes(&mut self, id: &ApplianceId, text: String) {
        let Some(member) = self.members.get(id) else { return };
        let (health, cause) = (member.health, member.cause);
        self.say(id, health, cause, text);
    }
}

#[cfg(test)]
mod tests;

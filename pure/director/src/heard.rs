//! What sites hear from their routers: one appliance of each site is believed, the others are
//! compared with it.
//!
//! ```text
//! report ─ digest ──> another than is known, of the one who is believed? ──> reply: wanted
//! parts ────────────> staged ── the last ──> table of routes ──> snapshot
//! other digests in one site for longer than a change takes ──> an operator is told
//! ```
//!
//! Routers should announce the same to all appliances of a site, so one's word is enough, and the
//! table does not grow with the appliances. Believed is the one that hears most: one that has lost
//! a session falls back at once. A full table is never the same twice, so it stays with one whose
//! table is nearly as large: each change of whom it believes may cost a whole table.
//!
//! One that cannot hear now, because its BIRD or its agent is away, is believed only where all
//! cannot: the others follow withdrawals. An appliance that is silent is not believed, but what it
//! said stays until somebody says otherwise: silence moves no viewer.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::id::{ApplianceId, SiteId};
use model::topology::{Place, Prefix, Site};
use model::units::{Instant, Nanos};
use routes::{Difference, Digest, Part, Refused, Stage};

use crate::event::RoutesWanted;
use crate::observed::Hears;
use crate::{Director, Member, is_reporting};

/// What is under way, and what was noticed.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    stages: BTreeMap<ApplianceId, Under>,
    /// Tables that are not taken, whatever is sent of them: nobody asks for them again.
    refused: BTreeMap<ApplianceId, Digest>,
    /// When an operator was last told that tables wait.
    waits_told: Option<Instant>,
    /// Who of a site is believed, where somebody hears something.
    believed: BTreeMap<SiteId, ApplianceId>,
    /// Sites whose appliances hear different tables.
    differ: BTreeMap<SiteId, Differ>,
    /// The tables that are being taken over: whose word they are, and what they lead to.
    awaited: BTreeMap<SiteId, (ApplianceId, Digest)>,
    /// When the next slice of the work on the table is due.
    go_on_at: Instant,
    /// Static prefixes of sites by files.
    zones: BTreeMap<SiteId, Vec<Prefix>>,
}

/// Since when appliances hear different tables, and when that is told.
#[derive(Clone, Copy, Debug)]
struct Differ {
    since: Instant,
    after: Nanos,
    is_told: bool,
}

/// A difference that comes in parts: since when, and when the last one came.
#[derive(Debug)]
struct Under {
    stage: Stage,
    since: Instant,
    last: Instant,
}

/// Differences that come in more than one part at the same time. One more waits for its next
/// report: each may take [`Stage::BYTES_MAX`].
const STAGES_MAX: usize = 4;

/// A difference of which no part has come for so long makes room.
const STAGE_SILENT: Nanos = Nanos::seconds(10);

/// One that has not come whole by then makes room, too.
const STAGE_LASTS: Nanos = Nanos::seconds(60);

/// An operator is told at most so often that tables wait.
const WAITS_TOLD: Nanos = Nanos::seconds(60);

/// So many prefixes wait to be taken over at most, and a table more: nobody is asked for another.
const WAITING_MAX: usize = Digest::COUNT_MAX;

/// Between two slices reports and players have their turn.
const BETWEEN_SLICES: Nanos = Nanos::millis(2);

/// For so long appliances of a site may hear different tables, or for two readings if those take
/// longer: a change takes so long to reach all.
const DIFFER_AFTER: Nanos = Nanos::seconds(10);

/// Tables that are further behind change all the time, and are read at different times: they are
/// the same if their lengths are, but for so many hundredths.
const BEHIND_EXACT: Nanos = Nanos::seconds(5);
const NEARLY_PERCENT: u64 = 1;

/// Another is believed when the one who is has so many hundredths of its prefixes or less.
const KEPT_PERCENT: u64 = 90;

impl Director {
    /// The part that should come next from this appliance; 0 for the first of a difference.
    pub fn next_part(&self, id: &ApplianceId) -> u32 {
        self.heard.stages.get(id).map_or(0, |under| under.stage.next())
    }

    /// What a site is known to hear; none if nobody there hears anything.
    pub fn heard(&self, site: &SiteId) -> Option<Digest> {
        self.routes.heard(site)
    }

    /// What a site hears and is not believed: how much, and the first of it.
    pub fn refused_routes(&self, site: &SiteId) -> (usize, Vec<Prefix>) {
        let refused = self.routes.refused(site);
        (refused.len(), refused.take(routes::filter::LeftOut::EXAMPLES_MAX).copied().collect())
    }

    /// Sites whose appliances hear different tables, for longer than a change takes.
    pub fn differing(&self) -> impl Iterator<Item = &SiteId> {
        self.heard.differ.iter().filter(|(_, differ)| differ.is_told).map(|(site, _)| site)
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
        let has_room = || self.routes.waiting() <= WAITING_MAX;
        (believed == id && known != Some(told) && has_room()).then_some(RoutesWanted { known })
    }

    /// A report has come: whether its site agrees, and still hears anything. O(appliances of the
    /// site), and O(log sites) where nobody hears anything.
    pub(crate) fn compare_routes(&mut self, now: Instant, id: &ApplianceId) {
        let Some(site) = self.site_of(id).cloned() else { return };
        let is_known = self.routes.heard(&site).is_some() || self.heard.differ.contains_key(&site);
        let said = self.says_routes(id);
        if said.is_none() && !is_known {
            return;
        }
        let digest = said.and_then(|said| said.digest);
        if let Some(digest) = digest.filter(|digest| !digest.is_bounded()) {
            self.refuse_table(id, digest);
        }
        match self.difference(&site) {
            None => {
                if self.heard.differ.remove(&site).is_some_and(|differ| differ.is_told) {
                    let text = format!("all appliances of site {site} hear the same again");
                    self.say_of(id, text);
                }
            }
            Some(after) => {
                let new = Differ { since: now, after, is_told: false };
                self.heard.differ.entry(site.clone()).or_insert(new).after = after;
            }
        }
        if let Some(believed) = self.believed(&site).map(|(believed, _)| believed.clone()) {
            if self.heard.believed.get(&site) != Some(&believed) {
                self.heard.believed.insert(site, believed);
            }
        } else {
            self.forget_if_nobody_hears(&site);
        }
    }

    /// If those who hear now do not hear the same: how long that may last.
    fn difference(&self, site: &SiteId) -> Option<Nanos> {
        let (mut first, mut agree) = (None, true);
        let (mut least, mut most, mut behind) = (u64::MAX, 0, Nanos(0));
        for (_, digest, hears) in self.routes_told(site) {
            agree &= digest == *first.get_or_insert(digest);
            (least, most) = (least.min(digest.count), most.max(digest.count));
            behind = behind.max(hears.behind);
        }
        let nearly =
            BEHIND_EXACT < behind && most.saturating_sub(least) <= percent(most, NEARLY_PERCENT);
        let after = DIFFER_AFTER.max(Nanos(behind.0.saturating_mul(2)));
        (!agree && !nearly).then_some(after)
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
            self.heard.believed.remove(site);
        }
    }

    /// An appliance is gone from its site, which may hear nothing without it.
    pub(crate) fn heard_left(&mut self, id: &ApplianceId, site: u32) {
        self.heard.stages.remove(id);
        self.heard.refused.remove(id);
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
        if self.routes.heard(site).is_none() && !self.routes.is_taking(site) {
            return;
        }
        let hears = |member: &Member| {
            member.observed.as_ref().is_some_and(|observed| observed.said.routes.is_some())
        };
        if !self.members_of(site).any(|(_, member)| hears(member)) {
            self.heard.believed.remove(site);
            self.routes.forget(site);
            self.view_is_old = true;
        }
    }

    /// Only of a table that was asked for a part is taken: an appliance fills no memory with one
    /// that nobody wants.
    pub(crate) fn hear(&mut self, now: Instant, id: &ApplianceId, part: Part) {
        self.drop_stages(now);
        if part.number == 0 {
            self.heard.stages.remove(id);
            if self.routes_wanted(id).is_none() {
                self.counters.routes_unwanted += 1;
                return;
            }
            // One that is all there needs no place to wait for the rest.
            if !part.is_last && STAGES_MAX <= self.heard.stages.len() {
                return self.table_waits(now, id);
            }
            let under = Under { stage: Stage::new(&part), since: now, last: now };
            self.heard.stages.insert(id.clone(), under);
        }
        let Some(under) = self.heard.stages.get_mut(id) else { return };
        under.last = now;
        let (from, to) = (under.stage.from(), under.stage.to());
        let taken = under.stage.take(part);
        if taken == Ok(None) {
            return;
        }
        self.heard.stages.remove(id);
        match taken {
            Ok(difference) => self.take_table(id, from, to, difference.unwrap_or_default()),
            Err(Refused::OutOfTurn) => {}
            Err(Refused::TooLarge) => self.refuse_table(id, to),
        }
        assert!(self.heard.stages.len() <= STAGES_MAX, "there is room for so many");
    }

    /// Does a slice of the work on the table, if one is due: reports and players wait for no more.
    pub(crate) fn go_on_with_routes(&mut self, now: Instant) {
        if !self.routes.is_busy() || now < self.heard.go_on_at {
            return;
        }
        self.heard.go_on_at = now + BETWEEN_SLICES;
        for done in self.routes.go_on(routes::SLICE) {
            self.counters.routes_changes += 1;
            let Some((of, to)) = self.heard.awaited.remove(&done.site) else { continue };
            self.counters.routes_gaps += u64::from(to != done.digest);
            self.heard.refused.remove(&of);
            // A word that is not true, or changes that came to more and more.
            if !self.routes.is_bounded(&done.site) {
                self.routes.forget(&done.site);
                self.refuse_table(&of, to);
            }
        }
        self.view_is_old |= !self.routes.is_half_done();
    }

    /// When the table wants to be worked on.
    pub(crate) fn routes_due(&self) -> Option<Instant> {
        self.routes.is_busy().then_some(self.heard.go_on_at)
    }

    /// Those that stopped, or that take too long, make room.
    fn drop_stages(&mut self, now: Instant) {
        self.heard.stages.retain(|_, under| {
            now.since(under.last) < STAGE_SILENT && now.since(under.since) < STAGE_LASTS
        });
    }

    fn take_table(
        &mut self,
        id: &ApplianceId,
        from: Option<Digest>,
        to: Digest,
        difference: Difference,
    ) {
        let Some(site) = self.site_of(id).cloned() else { return };
        // Another may have been believed meanwhile, or its word is being taken over.
        let fits = from.is_none() || from == self.routes.heard(&site);
        let is_believed = self.believed(&site).is_some_and(|(believed, _)| believed == id);
        if fits && is_believed && !self.routes.is_taking(&site) {
            self.routes.hear(&site, difference, from.is_none());
            self.heard.awaited.insert(site, (id.clone(), to));
            let sites = self.desired.sites.len();
            assert!(self.heard.awaited.len() <= sites, "a site has one table");
        }
    }

    /// A table is larger than any network has: it is not asked for again, and another appliance of
    /// the site may be believed.
    fn refuse_table(&mut self, id: &ApplianceId, table: Digest) {
        if !self.members.contains_key(id) {
            return;
        }
        let before = self.heard.refused.insert(id.clone(), table);
        assert!(self.heard.refused.len() <= self.members.len(), "each has one table");
        self.counters.routes_refused += u64::from(before != Some(table));
        if before.is_none() {
            const LEN_MAX: usize = Stage::LEN_MAX;
            let (count, site) = (table.count, self.site_of(id));
            let site = site.map_or_else(String::new, ToString::to_string);
            let text = format!(
                "the routes of {id} of site {site} are refused: a table of {count} prefixes has \
                 more of them, or more attributes, than any network has ({LEN_MAX} prefixes): \
                 have BIRD import less"
            );
            self.say_of(id, text);
        }
    }

    fn table_waits(&mut self, now: Instant, id: &ApplianceId) {
        self.counters.routes_waits += 1;
        let told = self.heard.waits_told;
        if told.is_none_or(|told| WAITS_TOLD <= now.since(told)) {
            self.heard.waits_told = Some(now);
            let text = format!(
                "the routes of {id} wait: {STAGES_MAX} other tables are on their way, and it sends \
                 its own with a later report"
            );
            self.say_of(id, text);
        }
    }

    /// Tells of sites that have not agreed for too long.
    pub(crate) fn watch_routes(&mut self, now: Instant) {
        self.drop_stages(now);
        let is_due = |of: &Differ| !of.is_told && of.after <= now.since(of.since);
        let due = self.heard.differ.iter_mut().filter(|(_, differ)| is_due(differ));
        let mut told = Vec::new();
        for (site, differ) in due {
            differ.is_told = true;
            told.push(site.clone());
        }
        for site in told {
            let Some((believed, its)) = self.believed(&site) else { continue };
            let believed = believed.clone();
            // The one that is least like it.
            let others = self.routes_told(&site).filter(|(_, digest, _)| *digest != its);
            let other = others.max_by_key(|(_, digest, _)| digest.count.abs_diff(its.count));
            let Some((other, digest, _)) = other else { continue };
            let (other, its, digest) = (other.clone(), its.count, digest.count);
            let text = format!(
                "{other} and {believed} of site {site} hear different routes ({digest} and {its} \
                 prefixes): have its routers announce the same to all of them"
            );
            self.say_of(&other, text);
        }
    }

    /// The appliance of a site that is believed: the one that was before, or the one that hears
    /// most, and not so much that it is refused.
    fn believed(&self, site: &SiteId) -> Option<(&ApplianceId, Digest)> {
        let refused = &self.heard.refused;
        let told = || {
            let all = self.routes_told(site).map(|(id, digest, _)| (id, digest));
            all.filter(|(id, digest)| refused.get(*id) != Some(digest))
        };
        let most = told().map(|(_, digest)| digest.count).max()?;
        let kept = self.heard.believed.get(site);
        let is_kept = |(id, digest): &(&ApplianceId, Digest)| {
            kept == Some(*id) && percent(most, KEPT_PERCENT) < digest.count
        };
        // Of those that hear most, the first by name.
        told().find(is_kept).or_else(|| told().find(|(_, digest)| digest.count == most))
    }

    /// What the appliances of a site that report hear, by their last word: those that hear now, or
    /// all of them if none does.
    fn routes_told(&self, site: &SiteId) -> impl Iterator<Item = (&ApplianceId, Digest, Hears)> {
        let told = || {
            self.members_of(site).filter_map(|(id, member)| {
                let is_heard = is_reporting(member.health) && !self.is_cloned(id);
                let hears = member.observed.as_ref().filter(|_| is_heard)?.said.routes?;
                Some((id, hears.digest?, hears))
            })
        };
        let all_old = told().all(|(_, _, hears)| hears.is_old);
        told().filter(move |(_, _, hears)| all_old || !hears.is_old)
    }

    /// What an appliance said last that it hears.
    fn says_routes(&self, id: &ApplianceId) -> Option<Hears> {
        self.members.get(id)?.observed.as_ref()?.said.routes
    }

    fn site_of(&self, id: &ApplianceId) -> Option<&SiteId> {
        self.desired.appliances.get(id).map(|registered| &registered.appliance.site)
    }
}

fn percent(of: u64, percent: u64) -> u64 {
    of / 100 * percent + of % 100 * percent / 100
}

#[cfg(test)]
mod tests;

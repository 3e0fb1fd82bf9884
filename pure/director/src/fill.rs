//! When and how fast appliances may fetch, as they are told it.
//!
//! ```text
//! windows of the site, or of the policy ─┐
//! offsets of its zone for two years ─────┼─> rules of each appliance, with a state by which
//! pause, uplink / appliances, fill rate ─┘   it says which of them it goes by
//! ```
//!
//! Zones are looked up when a site changes and once a day, each once: O(sites + zones). The rules
//! of an appliance cost O(offsets).

use std::collections::BTreeMap;
use std::sync::Arc;

use model::hours::{FillRules, Hours, OFFSETS_SPAN, Offset, Windows};
use model::id::{ApplianceId, SiteId};
use model::topology::Site;
use model::units::{BitsPerSecond, Bytes, Nanos, UnixSeconds};
use model::zone::TimeZone;

use crate::{Director, Role};

/// How fill goes, where a site says nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillPolicy {
    /// When sites fill that say nothing else.
    pub windows: Windows,
    /// Most that an appliance fetches of what is urgent outside of the windows.
    pub urgent_max: BitsPerSecond,
    /// How many of a fill cluster fetch an object from its origin, at most [`MASTERS_MAX`]; the
    /// others fetch it from them. 0 if everybody may.
    pub masters: u32,
    /// Whoever has lacked an object for so long asks other fill clusters, as masters do.
    pub elsewhere_after: Nanos,
    /// Whoever has lacked it for so long asks its origins.
    pub origin_after: Nanos,
}

/// Arbitrary: with more, a cluster is several.
pub const MASTERS_MAX: u32 = 16;
/// Arbitrary: whoever waits for longer than two nights waits for an operator.
pub const AFTER_MAX: Nanos = Nanos::seconds(2 * 86_400);

impl Default for FillPolicy {
    /// A master at 1.2 Gb/s brings a film of two hours at 16 Mb/s, 14 GB, in 96 s: three such files
    /// may be before it until other clusters are asked, and nine until an origin is.
    fn default() -> Self {
        let (elsewhere_after, origin_after) = (Nanos::seconds(300), Nanos::seconds(900));
        Self {
            windows: Windows::ALWAYS,
            urgent_max: URGENT_RATE,
            masters: 1,
            elsewhere_after,
            origin_after,
        }
    }
}

/// Arbitrary: 45 GB in an hour, and a hundredth of what a machine with a card of 10 Gb/s serves.
const URGENT_RATE: BitsPerSecond = BitsPerSecond(100_000_000);

/// The offsets of the zones in which sites stand.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    /// When all were looked up; none before the first time.
    day: Option<u64>,
    /// Of one that the table does not have, those of UTC: none.
    known: BTreeMap<TimeZone, Arc<[Offset]>>,
}

impl Zones {
    fn learn(&mut self, zone: &TimeZone) {
        if !self.known.contains_key(zone) {
            let now = UnixSeconds(self.day.unwrap_or_default() * DAY);
            let offsets = zone.offsets(now, OFFSETS_SPAN).unwrap_or_default();
            self.known.insert(zone.clone(), offsets.into());
        }
    }
}

const DAY: u64 = 86_400;

impl Director {
    /// When a site fills. None if there is no such site, and from a replica, which tells nobody.
    pub fn fill_hours(&self, site: &SiteId) -> Option<Hours> {
        let Role::Writer(_) = self.role else { return None };
        self.desired.sites.get(site).map(|site| self.hours_of(site))
    }

    fn hours_of(&self, site: &Site) -> Hours {
        Hours {
            windows: site.fill_windows.unwrap_or(self.desired.policy.fill.windows),
            offsets: self.zones.known.get(&site.time_zone).cloned().unwrap_or_default(),
            paused_until: site.fill_paused_until,
        }
    }

    /// The rules by which an appliance fetches; none if it is not registered, and from a replica.
    /// O(offsets + urgent versions).
    pub fn fill_rules(&self, id: &ApplianceId) -> Option<FillRules> {
        let Role::Writer(_) = self.role else { return None };
        let member = self.members.get(id)?;
        let appliance = &self.desired.appliances.get(id)?.appliance;
        let site = self.desired.sites.get(&appliance.site)?;
        let able = self.desired.policy.able(appliance);
        // An equal part for each that stands there, so that all together keep to it whether or not
        // control is there to say who needs it.
        let count = Bytes::of(self.map.standing(member.site).len()).0.max(1);
        let part = |uplink: BitsPerSecond| BitsPerSecond((uplink.0 / count).max(1));
        let mut rules = FillRules {
            state: 0,
            hours: self.hours_of(site),
            rate_max: able.fill,
            outside_max: site.uplink.map(part),
            urgent: Arc::clone(&self.urgent),
            urgent_max: None,
        };
        if !rules.urgent.is_empty() {
            rules.urgent_max = Some(self.desired.policy.fill.urgent_max);
        }
        rules.state = state_of(&rules);
        Some(rules)
    }

    /// Which versions are urgent now: some are until a time. O(urgent versions).
    pub(crate) fn learn_urgent(&mut self) {
        let now = self.now_unix;
        let lasts = |until: &Option<UnixSeconds>| until.is_none_or(|until| now < until);
        let urgent = self.desired.urgent.iter().filter(|(_, until)| lasts(until));
        if !urgent.clone().map(|(version, _)| version).eq(self.urgent.iter()) {
            self.urgent = urgent.map(|(version, _)| version.clone()).collect();
        }
    }

    /// The zone of a site is looked up, if it is another.
    pub(crate) fn learn_zone(&mut self, site: &SiteId) {
        if let Some(site) = self.desired.sites.get(site) {
            self.zones.learn(&site.time_zone);
        }
    }

    /// On a new day the zones of all sites are looked up, each once. Of a replica nobody asks.
    pub(crate) fn learn_zones(&mut self) {
        let day = Some(self.now_unix.0 / DAY);
        if day == self.zones.day || matches!(self.role, Role::Replica(_)) {
            return;
        }
        let mut zones = Zones { day, known: BTreeMap::new() };
        self.desired.sites.values().for_each(|site| zones.learn(&site.time_zone));
        self.zones = zones;
    }
}

/// 53 bits of a hash, of which none is 0: that is who was told nothing.
fn state_of(rules: &FillRules) -> u64 {
    let FillRules { state: _, hours, rate_max, outside_max, urgent, urgent_max } = rules;
    let mut hasher = blake3::Hasher::new();
    let mut add = |number: u64| {
        hasher.update(&number.to_le_bytes());
    };
    for (from, until) in hours.windows.minutes() {
        add(1 + u64::from(from) * 2048 + u64::from(until));
    }
    add(0);
    for offset in &*hours.offsets {
        add(offset.from.0);
        add(u64::from(offset.ahead_s.unsigned_abs()) * 2 + u64::from(offset.ahead_s < 0));
    }
    add(u64::MAX);
    add(hours.paused_until.map_or(0, |until| until.0));
    add(rate_max.map_or(0, |most| most.0));
    add(outside_max.map_or(0, |most| most.0));
    add(urgent_max.map_or(0, |most| most.0));
    for version in &**urgent {
        hasher.update(version.as_str().as_bytes()).update(&[0]);
    }
    let hash = hasher.finalize();
    let first = hash.as_bytes().first_chunk::<8>().expect("a hash has 32 bytes");
    (u64::from_le_bytes(*first) >> 11).max(1)
}

//! The hours of sites: how they are drawn, and when they are open by a reckoning of its own.
//!
//! ```text
//! seed ──> first second of the wall ── edge of a minute within the next 60 s ──> windows of sites
//! told by control ──> kept ──> in force: what is asked of a source is looked at by it
//! ```

use std::collections::{BTreeMap, BTreeSet};

use model::hours::{NEVER, Windows};
use model::id::{AssetVersionId, ObjectId};
use model::object::BLOCK_LEN;
use model::topology::Site;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::zone::TimeZone;

use crate::stage::Stage;

/// Zones, how far each is ahead of UTC in September 2026, and from when on it is otherwise in that
/// autumn. Written down here, and not looked up: this is what the product is compared with.
const ZONES: [Zone; 6] = [
    ("Europe/Berlin", 7200, Some((1_792_890_000, 3600))),
    ("Asia/Kathmandu", 20_700, None),
    ("America/St_Johns", -9000, Some((1_793_507_400, -12_600))),
    ("Pacific/Kiritimati", 50_400, None),
    ("Australia/Lord_Howe", 37_800, Some((1_791_041_400, 39_600))),
    ("America/Los_Angeles", -25_200, Some((1_793_523_600, -28_800))),
];

type Zone = (&'static str, i64, Option<(u64, i64)>);

/// What the wall shows when a simulation begins: 21 September 2026.
const WALL: u64 = 1_790_000_000;
const DAY_MINUTES: u64 = 1440;

/// An appliance looks at its clock once a second, and a step is heard of by nobody.
const NOTICED: Nanos = Nanos::millis(1100);

/// The first second: anywhere in a minute, now and then before the clocks of a zone are set.
pub(crate) fn first_second(stage: &Stage) -> u64 {
    let set = ZONES.iter().filter_map(|(_, _, set)| set.map(|(from, _)| from));
    let set: Vec<u64> = set.collect();
    let base = stage.pick(&set).filter(|_| stage.one_in(4)).map_or(WALL, |from| from - 60);
    base + stage.below(60)
}

/// The objects of versions.
pub(crate) type FilesOf = BTreeMap<AssetVersionId, BTreeSet<ObjectId>>;

/// What an appliance goes by, as an observer wrote it down when control told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) zone: TimeZone,
    pub(crate) windows: Vec<(u16, u16)>,
    pub(crate) paused_until: Option<UnixSeconds>,
    /// Versions that may be fetched outside of the windows too.
    pub(crate) urgent: BTreeSet<AssetVersionId>,
}

impl Told {
    pub(crate) fn of(site: &Site, urgent: BTreeSet<AssetVersionId>) -> Self {
        Self {
            urgent,
            zone: site.time_zone.clone(),
            windows: site.fill_windows.iter().flat_map(Windows::minutes).collect(),
            paused_until: site.fill_paused_until,
        }
    }

    /// True if nothing may be fetched in this second, whatever it is.
    pub(crate) fn is_paused(&self, wall: u64) -> bool {
        self.paused_until.is_some_and(|until| wall < until.0)
    }

    /// True if an object may be fetched outside of the windows.
    pub(crate) fn is_urgent(&self, files: &FilesOf, object: &ObjectId) -> bool {
        let has = |version| files.get(version).is_some_and(|of| of.contains(object));
        self.urgent.iter().any(has)
    }

    /// True if nothing but what is urgent may be fetched in this second.
    pub(crate) fn is_closed(&self, wall: u64) -> bool {
        let minute = u16::try_from(minute(self.zone.as_str(), wall)).unwrap_or(0);
        let is_in = |(from, until): &(u16, u16)| match from < until {
            true => (*from..*until).contains(&minute),
            false => *from <= minute || minute < *until,
        };
        self.is_paused(wall) || !(self.windows.is_empty() || self.windows.iter().any(is_in))
    }
}

/// The minute of the local day.
pub(crate) fn minute(zone: &str, wall: u64) -> u64 {
    let of = ZONES.iter().find(|(name, ..)| *name == zone);
    let ahead = of.map_or(0, |(_, ahead, set)| match set {
        Some((from, then)) if *from <= wall => *then,
        _ => *ahead,
    });
    wall.saturating_add_signed(ahead) / 60 % DAY_MINUTES
}

/// What a machine's fill goes by, and since when nothing of it has changed.
#[derive(Debug, Default)]
pub(crate) struct InForce {
    pub(crate) told: Option<Told>,
    pub(crate) since: Instant,
    /// Of what is urgent and comes while fill is closed.
    pub(crate) urgent: Bucket,
}

/// What came of late, less what may have come meanwhile: of one process.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    process: u64,
    at: Instant,
    bits: u64,
}

impl Bucket {
    /// So much came to a process; false if that is more than this rate lets come. In a burst comes
    /// what the pace lets through at once, and of each fill thread a block that had its leave
    /// before, and one from before fill closed.
    pub(crate) fn take(
        &mut self,
        process: u64,
        now: Instant,
        len: Bytes,
        rate: BitsPerSecond,
    ) -> bool {
        if self.process != process {
            *self = Self { process, at: now, bits: 0 };
        }
        let span = u128::from(now.since(self.at).0);
        let gone = u128::from(rate.0) * span / 1_000_000_000;
        self.bits = self.bits.saturating_sub(u64::try_from(gone).unwrap_or(u64::MAX)) + len.0 * 8;
        self.at = now;
        self.bits <= (URGENT_BURST.0 + 4 * BLOCK_LEN.0) * 8
    }
}

/// What is urgent comes through at once to so much.
pub(crate) const URGENT_BURST: Bytes = BLOCK_LEN;

impl InForce {
    /// The hours, if by them nothing may be fetched now, and the appliance has to know it.
    pub(crate) fn forbid(&self, now: Instant, wall: UnixSeconds) -> Option<&Told> {
        let is_noticed = NOTICED < now.since(self.since);
        // An edge is looked for all the time: a second is enough.
        let is_closed = |told: &&Told| told.is_closed(wall.0 - 1) && told.is_closed(wall.0);
        self.told.as_ref().filter(|_| is_noticed).filter(is_closed)
    }
}

/// Hours of a site.
pub(crate) fn draw(stage: &Stage, now: UnixSeconds, site: &mut Site) {
    let now = now.0;
    if let Some((name, ..)) = stage.pick(&ZONES) {
        site.time_zone = TimeZone::named(name).expect("the table has it");
    }
    site.fill_paused_until = match stage.below(12) {
        0 => Some(NEVER),
        1 | 2 => Some(UnixSeconds(now + stage.between(1, 20))),
        _ => None,
    };
    // The next edge of a minute is near.
    let edge = minute(site.time_zone.as_str(), now + 60);
    let long = 1 + stage.below(300);
    let (from, until) = match stage.below(4) {
        0 => return site.fill_windows = None,
        1 => (edge, edge + long),
        2 => (edge + DAY_MINUTES - long, edge),
        _ => (edge + 1, edge),
    };
    let more = stage.one_in(3).then(|| (edge + 700, edge + 720));
    site.fill_windows = Some(windows([(from, until)].into_iter().chain(more)));
}

/// Hours that are not open for long yet: what is urgent comes all the same.
pub(crate) fn close(now: UnixSeconds, site: &mut Site) {
    let edge = minute(site.time_zone.as_str(), now.0);
    site.fill_windows = Some(windows([(edge + 120, edge + 180)].into_iter()));
    site.fill_paused_until = None;
}

/// Hours that are open before long, and stay so.
pub(crate) fn open_soon(stage: &Stage, now: UnixSeconds, site: &mut Site) {
    let edge = minute(site.time_zone.as_str(), now.0 + 60);
    let most_of_day = windows([(edge, edge + DAY_MINUTES - 1)].into_iter());
    site.fill_windows = stage.one_in(2).then_some(most_of_day);
    let soon = UnixSeconds(now.0 + stage.below(20));
    site.fill_paused_until = stage.one_in(2).then_some(soon);
}

fn windows(minutes: impl Iterator<Item = (u64, u64)>) -> Windows {
    let of_day = |minute: u64| u16::try_from(minute % DAY_MINUTES).unwrap_or(0);
    let all: Vec<_> = minutes.map(|(from, until)| (of_day(from), of_day(until))).collect();
    // All day but a minute has no room for another.
    let first = all.iter().copied().take(1);
    Windows::new(all.iter().copied()).or_else(|_| Windows::new(first)).expect("one is no overlap")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reckoning_here_and_that_of_the_product_are_one_in_each_zone_and_minute() {
        for (name, ..) in ZONES {
            let zone = TimeZone::named(name).expect("a zone");
            let from = UnixSeconds(WALL);
            let offsets = zone.offsets(from, model::hours::OFFSETS_SPAN).expect("in the table");
            let windows = Windows::new([(60, 200), (1380, 30)]).expect("two windows");
            let told = Told {
                zone,
                windows: windows.minutes().collect(),
                paused_until: Some(UnixSeconds(WALL + 900)),
                urgent: BTreeSet::new(),
            };
            let paused_until = told.paused_until;
            let hours = model::hours::Hours { windows, offsets: offsets.into(), paused_until };
            for wall in (WALL..WALL + 50 * 86_400).step_by(30) {
                assert_eq!(told.is_closed(wall), !hours.is_open(UnixSeconds(wall)), "{wall}");
            }
        }
    }
}

//! What viewers are sent of each item, by region: parts of appliances are counted here, and read
//! again for forecasts.
//!
//! ```text
//! parts ──> queue ──> 64 at most: file ──> item, site ──> region ──> one transaction ──> answers
//!             full: come again                                          sums and marks
//! ```
//!
//! Nothing of it is in memory but what waits: a part is answered once it is on the drive, so that a
//! restart of either side loses nothing, and its number is kept with the sums, so that it is
//! counted once. A region is a manifest cluster; sites in none are one region together.
//!
//! An appliance can lie. What it tells in a part is bounded by what it can send in an hour
//! ([`part_bytes_max`]), and the parts by time: of each hour after the last that was counted there
//! is one, and of others one comes in an hour. One of its parts waits at a time.

use std::borrow::Cow;
use std::sync::Arc;

use director::wishes::{self, LaunchLike, Wishes};
use director::{Catalog, Snapshot, Version};
use model::id::{ApplianceId, AssetVersionId, Item, SiteId};
use model::units::{BitsPerSecond, Bytes, Hour, UnixSeconds};
use placement::plan::Wanted;
use popularity::{
    Backtest, Bounds, Config, Demand, Expected, Launch, Outlook, Rendition, Said, Shown, Span,
    Sums, Watched, backtest, divide, forecast,
};
use tokio::sync::{Mutex, mpsc, oneshot};
use wire::v1::demand::{DemandPart, REST};

use crate::state::quotas::{Quotas, Taken};
use crate::state::store::{CountedPart, Mark};

/// Parts that wait: 50 MB at the most, each of another appliance.
const WAITING_MAX: usize = 64;
/// Most that are counted in one transaction.
pub(crate) const AT_ONCE: usize = 64;
/// An appliance tells an hour within ten minutes after its end, and as long may pass on the way.
const SETTLES_S: u64 = 1200;
/// What an appliance serves at most of which nobody said it: twice the fastest profile.
const SERVES_MAX: BitsPerSecond = BitsPerSecond(400_000_000_000);
/// Who serves less is bounded by this: of few bytes much may be what was rounded up to 256 MiB.
const SERVES_MIN: BitsPerSecond = BitsPerSecond(1_000_000_000);
/// So many hours' bytes may be in one part. A response counts in the hour in which it ends, so that
/// films of three hours that end together bring those before; a clock that is set back makes one
/// hour of up to three; and what an operator says of a machine is rough. Generous, else arbitrary.
const HOURS_IN_PART: u64 = 4;
/// Days begin with this hour of UTC, in every region: one that began where its viewers live would
/// begin elsewhere once a site joins, or clocks change, and what is kept by the day cannot be cut
/// anew.
const DAY_BEGINS: u32 = 0;
/// Stores that back-tests fill, in hundredths of the catalogue.
const ROOMS: [u64; 5] = [1, 5, 10, 20, 50];
/// Days that back-tests test.
const TESTED: u32 = 7;

/// Parts on their way into the database.
#[derive(Debug)]
pub(crate) struct Demands {
    pub(crate) queue: mpsc::Sender<Told>,
    /// Those whose part waits.
    pub(crate) of_each: Quotas<ApplianceId>,
    pub(crate) waiting: Mutex<mpsc::Receiver<Told>>,
}

/// A part, and who waits for it.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) appliance: ApplianceId,
    /// That of its identity.
    pub(crate) key: String,
    pub(crate) part: DemandPart,
    pub(crate) taken: Taken<ApplianceId>,
    pub(crate) answer: oneshot::Sender<Option<Mark>>,
}

/// Why a part was not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCounted {
    /// Too many wait, or another of this appliance, or the database does not answer.
    Busy,
    /// By control's clock its hour is not over: one of the two clocks is wrong.
    NotOver,
    /// Its hour, or a later one, is counted, and another such part was a short time ago.
    Late,
    /// It has more bytes than the appliance can send in an hour: at most these.
    TooMuch(Bytes),
    /// The appliance is not registered.
    Unknown,
}

/// What is known and expected of a region.
pub(crate) struct Known {
    pub(crate) demand: Demand,
    /// The day that is forecast.
    pub(crate) day: Hour,
    /// Of items in the catalogue, ascending.
    pub(crate) expected: Vec<(Placed, Expected)>,
    pub(crate) backtest: Option<Tested>,
}

/// A back-test, and the rooms of its stores.
pub(crate) struct Tested {
    pub(crate) rooms: Vec<Bytes>,
    pub(crate) backtest: Backtest,
}

/// An item of the catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) item: Item,
    pub(crate) version: Arc<Version>,
    /// 0 for all of it.
    pub(crate) rendition: u8,
    pub(crate) len: Bytes,
    pub(crate) bitrate: Option<BitsPerSecond>,
}

impl Default for Demands {
    fn default() -> Self {
        let (queue, waiting) = mpsc::channel(WAITING_MAX);
        Self { queue, of_each: Quotas::new(WAITING_MAX + AT_ONCE, 1), waiting: Mutex::new(waiting) }
    }
}

/// Bytes of a part at most, of an appliance that serves so much at most.
pub(crate) fn part_bytes_max(serves: Option<BitsPerSecond>) -> Bytes {
    let serves = serves.unwrap_or(SERVES_MAX).max(SERVES_MIN);
    Bytes((serves.0 / 8).saturating_mul(3600 * HOURS_IN_PART))
}

/// Of a part its bytes of no item, its quota, and who waits for it.
pub(crate) type Asked = (Bytes, Taken<ApplianceId>, oneshot::Sender<Option<Mark>>);

/// Parts that came, by item. O(files log versions).
pub(crate) fn by_item(
    snapshot: &Snapshot,
    now: UnixSeconds,
    told: Vec<Told>,
) -> Vec<(CountedPart, Asked)> {
    let numbered = Numbered::of(&snapshot.catalog);
    let one = |told: Told| {
        let Told { appliance, key, part, taken, answer } = told;
        let (part, lost) = counted(snapshot, &numbered, now, (appliance, key), &part);
        (part, (lost, taken, answer))
    };
    told.into_iter().map(one).collect()
}

/// What a forecast needs of the catalogue: the same for every region.
pub(crate) struct Listed {
    /// All items, ascending.
    placed: Vec<Placed>,
    /// When versions may be shown, ascending: those that have times.
    shown: Vec<Shown>,
    /// What operators say of versions that begin.
    launches: Vec<Begun>,
}

/// A version that begins.
struct Begun {
    begin: UnixSeconds,
    own: Vec<Rendition>,
    like: LaunchLike,
    /// Of the version that it is like.
    other: Vec<Rendition>,
}

impl Listed {
    /// O(items log items).
    pub(crate) fn of(catalog: &Catalog, wishes: &Wishes) -> Self {
        let launches = wishes.launches.iter().map(|(id, launch)| begun(catalog, id, launch));
        Self { placed: placed(catalog), shown: shown(catalog), launches: launches.collect() }
    }

    /// Somebody says in bytes how much a version will be watched.
    pub(crate) fn has_bytes(&self) -> bool {
        self.launches.iter().any(|of| matches!(of.like, LaunchLike::Bytes(_)))
    }

    /// Some version begins.
    pub(crate) fn has_launches(&self) -> bool {
        !self.launches.is_empty()
    }

    /// The launches of a region with this part of the fleet's viewers. One that begins on the day
    /// after the one that is planned counts as if it had: it should lie there before, and comes in
    /// the windows of a night.
    fn launches(
        &self,
        demand: &Demand,
        day: Hour,
        Region { part, is_plan }: Region,
    ) -> Vec<Launch> {
        if self.launches.is_empty() {
            return Vec::new();
        }
        let watched = watched(demand, &self.placed);
        let of_version = |of: &Begun| {
            let begin = Hour::at(of.begin);
            let is_next = (day.after(24)..day.after(48)).contains(&begin);
            let begin = if is_plan && is_next { day } else { begin };
            let said = match &of.like {
                LaunchLike::Bytes(bytes) => Said::Bytes(part.of(*bytes)),
                LaunchLike::FirstDays(_) => Said::FirstDays(&of.other),
                LaunchLike::Present(_) => Said::Present(&of.other),
            };
            divide(begin, &of.own, said, &watched)
        };
        self.launches.iter().flat_map(of_version).collect()
    }
}

/// The part of the fleet's viewers that a region has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) bytes: u64,
    pub(crate) all: u64,
}

impl Part {
    fn of(self, all: Bytes) -> Bytes {
        let part = u128::from(all.0) * u128::from(self.bytes) / u128::from(self.all.max(1));
        Bytes(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// What a forecast is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) part: Part,
    /// It is for a plan, which looks a day further.
    pub(crate) is_plan: bool,
}

fn begun(catalog: &Catalog, id: &AssetVersionId, launch: &wishes::Launch) -> Begun {
    let renditions = |id: &AssetVersionId| {
        let version = catalog.version(id).into_iter();
        let placed = version.flat_map(of_version);
        placed.map(|Placed { item, len, bitrate, .. }| Rendition { item, bitrate, len }).collect()
    };
    let other = match &launch.like {
        LaunchLike::Bytes(_) => Vec::new(),
        LaunchLike::FirstDays(other) | LaunchLike::Present(other) => renditions(other),
    };
    Begun { begin: launch.begin, own: renditions(id), like: launch.like.clone(), other }
}

/// What viewers of a region were sent at each bitrate on the last day that is over, if anything was
/// sent. O(items of that day + items).
fn watched(demand: &Demand, placed: &[Placed]) -> Watched {
    let mut watched = Watched::default();
    let today = demand.day_of(demand.end());
    let mut before = (1..=LOOKED_BACK).filter_map(|ago| demand.day(today.before(ago * 24)));
    let mut placed = placed.iter().peekable();
    for (item, bytes) in before.next().into_iter().flat_map(Sums::iter) {
        while placed.next_if(|of| of.item < item).is_some() {}
        let bitrate = placed.next_if(|of| of.item == item).and_then(|of| of.bitrate);
        bitrate.into_iter().for_each(|bitrate| watched.add(bitrate, bytes));
    }
    watched
}

/// Days that are looked at for one on which anything was sent.
const LOOKED_BACK: u32 = 7;

/// What is expected of a region, by what is kept of it.
pub(crate) fn known(
    listed: &Listed,
    region: Region,
    now: UnixSeconds,
    spans: Vec<(Span, Vec<u8>)>,
    with_backtest: bool,
) -> Known {
    let placed = &listed.placed;
    let end = Hour::at(UnixSeconds(now.0.saturating_sub(SETTLES_S)));
    let demand = restored(spans, end);
    let day = day_of(Hour::at(now)).after(24);
    let launches = listed.launches(&demand, day, region);
    let mut shown = Cow::Borrowed(&*listed.shown);
    if region.is_plan {
        show_launches(&mut shown, &launches, day);
    }
    let outlook = Outlook { launches: &launches, shown: &shown };
    let all = forecast(&demand, day, &outlook, &Config::USUAL);
    let backtest = with_backtest.then(|| tested(&demand, placed));
    let mut expected = Vec::with_capacity(all.len());
    let mut placed = placed.iter().peekable();
    for (item, expects) in all {
        while placed.next_if(|of| of.item < item).is_some() {}
        expected.extend(placed.next_if(|of| of.item == item).map(|of| (of.clone(), expects)));
    }
    Known { demand, day, expected, backtest }
}

/// What counts as begun on this day counts as shown then, too. O(launches log shown), and a copy of
/// `shown` if there are any.
fn show_launches(shown: &mut Cow<'_, [Shown]>, launches: &[Launch], day: Hour) {
    for launch in launches.iter().filter(|of| of.begin == day) {
        let after = shown.partition_point(|of| of.first <= launch.item);
        let Some(at) = after.checked_sub(1) else { continue };
        let is_later = shown[at].from.is_some_and(|from| day < from && from < day.after(48));
        if launch.item <= shown[at].last && is_later {
            shown.to_mut()[at].from = Some(day);
        }
    }
}

/// The first hours of what is kept: by the hour, and by the day.
pub(crate) fn oldest(now: Hour) -> (Hour, Hour) {
    let Bounds { hours, days, .. } = Bounds::default();
    (now.before(hours), day_of(now).before(days * 24))
}

/// The days of the week before this time: their first hour, and that after the last.
pub(crate) fn week_before(at: UnixSeconds) -> (Hour, Hour) {
    let today = day_of(Hour::at(at));
    (today.before(LOOKED_BACK * 24), today)
}

/// The last time at which a forecast was due: 23:00 UTC, for the day that begins an hour later.
/// What comes of it is fetched in the windows of that night, wherever a site is.
pub(crate) fn last_forecast(now: UnixSeconds) -> UnixSeconds {
    const DAY: u64 = 86_400;
    let before_midnight = 3600;
    UnixSeconds(((now.0 + before_midnight) / DAY * DAY).saturating_sub(before_midnight))
}

/// What is expected of a region on the day that begins after this time, ascending by item. What is
/// known since then changes nothing.
pub(crate) fn wanted(
    listed: &Listed,
    part: Part,
    at: UnixSeconds,
    spans: Vec<(Span, Vec<u8>)>,
) -> Arc<[Wanted]> {
    let region = Region { part, is_plan: true };
    let Known { expected, .. } = known(listed, region, at, spans, false);
    let wanted = |(placed, Expected { day, peak }): (Placed, Expected)| Wanted {
        item: placed.item,
        day,
        peak,
    };
    expected.into_iter().map(wanted).collect()
}

/// The region of a site: its manifest cluster, if it is in one.
pub(crate) fn region_of(snapshot: &Snapshot, site: &SiteId) -> String {
    let cluster = snapshot.sites.get(site).and_then(|site| site.manifest_cluster.as_ref());
    cluster.map_or_else(|| REST.to_owned(), ToString::to_string)
}

/// A part by item, and the bytes of it that are of none.
fn counted(
    snapshot: &Snapshot,
    numbered: &Numbered,
    now: UnixSeconds,
    (appliance, key): (ApplianceId, String),
    part: &DemandPart,
) -> (CountedPart, Bytes) {
    let (hour, present) = (Hour(part.hour), Hour::at(now));
    let (_, oldest_day) = oldest(present);
    let is_kept = oldest_day <= hour;
    let mut sums = Sums::default();
    let mut lost = part.beyond_bytes;
    for (file, bytes) in part.files.iter().zip(&part.bytes) {
        match numbered.item_of(*file).filter(|_| is_kept) {
            Some(item) => sums.add(item, Bytes(*bytes), usize::MAX),
            None => lost = lost.saturating_add(*bytes),
        }
    }
    let site = snapshot.view.site_of(&appliance);
    let region = site.map_or_else(|| REST.to_owned(), |site| region_of(snapshot, site));
    let spans = [Span::Hour(hour), Span::Day(day_of(hour))];
    let part = CountedPart { appliance, key, number: part.number, region, spans, sums };
    (part, Bytes(lost))
}

fn day_of(hour: Hour) -> Hour {
    Demand::new(DAY_BEGINS, hour, Bounds::default()).day_of(hour)
}

fn restored(spans: Vec<(Span, Vec<u8>)>, end: Hour) -> Demand {
    let mut demand = Demand::new(DAY_BEGINS, end, Bounds::default());
    for (span, sums) in spans {
        match Sums::decode(&sums) {
            Ok(sums) => _ = demand.restore(span, sums),
            Err(error) => tracing::error!(%error, ?span, "a part of the demand is not known"),
        }
    }
    demand
}

/// Versions by the numbers of their files.
struct Numbered(Vec<(u32, Arc<Version>)>);

impl Numbered {
    fn of(catalog: &Catalog) -> Self {
        let first = |version: &Arc<Version>| Some((version.first_file?, Arc::clone(version)));
        let mut all: Vec<_> = catalog.all().filter_map(first).collect();
        all.sort_unstable_by_key(|(first, _)| *first);
        Self(all)
    }

    /// The item that a file counts for; none if its version is gone. O(log versions).
    fn item_of(&self, file: u32) -> Option<Item> {
        let after = self.0.partition_point(|(first, _)| *first <= file);
        let (_, version) = self.0.get(after.checked_sub(1)?)?;
        version.item_of(file)
    }
}

/// All items of the catalogue, ascending.
fn placed(catalog: &Catalog) -> Vec<Placed> {
    let mut all: Vec<Placed> = catalog.all().flat_map(of_version).collect();
    all.sort_unstable_by_key(|of| of.item);
    all
}

/// The items of a version; none if it has no durable numbers.
fn of_version(version: &Arc<Version>) -> Vec<Placed> {
    let placed = |(rendition, item): (u8, Item)| {
        let of = version.renditions().each().get(usize::from(rendition));
        let of = of.filter(|_| rendition != 0);
        let len = of.map_or_else(|| version.len_on_drive(), |of| of.len_on_drive);
        let bitrate = of.and_then(|of| of.bitrate);
        Placed { item, version: Arc::clone(version), rendition, len, bitrate }
    };
    version.items().iter().flat_map(|items| items.each().collect::<Vec<_>>()).map(placed).collect()
}

/// When versions may be shown, ascending: those that have times.
fn shown(catalog: &Catalog) -> Vec<Shown> {
    let one = |version: &Arc<Version>| {
        let (first, window) = (version.first_file?, version.window);
        let last =
            first.checked_add(u32::try_from(version.objects().len()).ok()?.checked_sub(1)?)?;
        let is_bound = window.from.is_some() || window.until.is_some();
        is_bound.then(|| Shown {
            first: Item(first),
            last: Item(last),
            from: window.from.map(Hour::at),
            // The hour in which it ends counts.
            until: window.until.map(|until| Hour::at(UnixSeconds(until.0.saturating_add(3599)))),
        })
    };
    let mut all: Vec<Shown> = catalog.all().filter_map(one).collect();
    all.sort_unstable_by_key(|of| of.first);
    all
}

fn tested(demand: &Demand, placed: &[Placed]) -> Tested {
    let sizes: Vec<_> = placed.iter().map(|of| (of.item, of.len)).collect();
    let all: u64 = placed.iter().map(|of| of.len.0).sum();
    let rooms = ROOMS.map(|hundredths| Bytes(all / 100 * hundredths)).to_vec();
    let backtest = backtest(demand, TESTED, &sizes, &rooms, &Config::USUAL);
    Tested { rooms, backtest }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use director::wishes::Launch as Wish;
    use model::id::ObjectId;
    use model::manifest::{AssetVersion, File};

    /// A whole version of one file, with this number.
    pub(crate) fn version(id: &str, number: u32) -> Arc<Version> {
        let file = File { object: ObjectId([9; 32]), len: Bytes(5), content_type: "v/m".into() };
        let files = AssetVersion {
            id: id.parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: Vec::new(),
            modified: UnixSeconds(1),
            pace: None,
            files: [("v.mp4".to_owned(), file)].into(),
        };
        Arc::new(Version::new(Arc::new(files), Vec::new(), 1).numbered(Some(number)))
    }

    #[test]
    fn a_plan_counts_a_launch_of_the_day_after_and_a_region_has_its_part() {
        let mut catalog = Catalog::default();
        catalog.put(version("film-1", 7));
        let day = 20_000 * 86_400;
        let now = UnixSeconds(day + 23 * 3600);
        let expected_of = |catalog: &Catalog, begin: u64, part: Part, is_plan: bool| {
            let like = LaunchLike::Bytes(Bytes(1000));
            let launch = Wish { begin: UnixSeconds(begin), like };
            let launches = [("film-1".parse().unwrap(), launch)].into();
            let wishes = Wishes { launches, ..Wishes::default() };
            let listed = Listed::of(catalog, &wishes);
            let known = known(&listed, Region { part, is_plan }, now, Vec::new(), false);
            known.expected.first().map_or(0, |(of, expects)| {
                assert_eq!(of.item, Item(7));
                expects.day.0
            })
        };
        let expected = |begin, part, is_plan| expected_of(&catalog, begin, part, is_plan);
        let (all, third) = (Part { bytes: 3, all: 3 }, Part { bytes: 1, all: 3 });
        // The day that is forecast is the next one: it begins in an hour.
        let (forecast, after, later) = (day + 86_400, day + 2 * 86_400, day + 3 * 86_400);
        assert_eq!(expected(forecast, all, false), 1000);
        assert_eq!(expected(forecast, third, true), 333);
        assert_eq!(expected(after + 20 * 3600, all, false), 0, "nobody watches it yet");
        assert_eq!(expected(after + 20 * 3600, all, true), 1000, "it comes in the night before");
        assert_eq!(expected(later, all, true), 0);
        assert_eq!(expected(forecast, Part { bytes: 0, all: 0 }, true), 0);
        // The same of one that may be shown from that hour on.
        let mut film = Arc::unwrap_or_clone(version("film-1", 7));
        film.window.from = Some(UnixSeconds(after + 20 * 3600));
        let mut catalog = Catalog::default();
        catalog.put(Arc::new(film));
        assert_eq!(expected_of(&catalog, after + 20 * 3600, all, false), 0);
        assert_eq!(expected_of(&catalog, after + 20 * 3600, all, true), 1000);
    }

    #[test]
    fn a_forecast_is_due_at_eleven_in_the_evening() {
        let at = |day: u64, hour: u64| UnixSeconds(day * 86_400 + hour * 3600);
        for (now, due) in [
            (at(20_000, 22), at(19_999, 23)),
            (at(20_000, 23), at(20_000, 23)),
            (at(20_001, 0), at(20_000, 23)),
            (at(20_001, 22), at(20_000, 23)),
        ] {
            assert_eq!(last_forecast(now), due);
        }
    }
}

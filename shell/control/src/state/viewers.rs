//! What viewers feel, as far as this process has heard: rows of appliances' reports, and events.
//!
//! In memory only, and bounded: `qoe` has the bounds of its tables, and what an appliance says is
//! cut to `wire::v1::viewers::ROWS_MAX` rows with names that are no longer than `NAME_LEN_MAX`.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac;
use director::Snapshot;
use director::front::Ticket;
use model::cmcd::Report;
use model::id::{ApplianceId, SiteId};
use model::metric::{Kind, Metric};
use model::names::Names;
use model::topology::{Prefix, Site};
use model::units::{Instant, Nanos, UnixSeconds};
use playback::player::{NAMES, Player};
use qoe::{
    Dimension, EventConfig, Events, Key, Row, Source, Sums, Taken, Totals, TotalsConfig, Viewer,
    Warning,
};
use wire::prometheus::Page;
use wire::v1::viewers::{
    ELSEWHERE, NAME_LEN_MAX, NETWORKS_MAX, Networks, PLAYBACKS_MAX, ROWS_MAX, ViewerBatch,
    ViewerRow, ViewersFigures, ViewersOut, ViewersRow, ViewersWarning,
};

/// 2 MB for each dimension and source; 8 MB for 4,096 sites, each of which has a row.
const fn totals(sites_max: usize) -> TotalsConfig {
    TotalsConfig { rows_max: ROWS_KEPT_MAX, sites_max }
}

const ROWS_KEPT_MAX: usize = 1000;

/// 20 MB. A player may send 60 lines at once and one a second: it has changes of state, and an
/// interval of some seconds.
const fn events(sites_max: usize) -> EventConfig {
    EventConfig {
        playbacks_max: 50_000,
        silent_max: Nanos::seconds(300),
        rows_max: ROWS_KEPT_MAX,
        sites_max,
        lines_max: 60,
        line_every: Nanos::seconds(1),
    }
}

/// Lines of one report that are read; what comes behind them is left out.
const LINES_MAX: usize = 60;
/// So much time an appliance may have told nothing, and tells all of it then.
const UNTOLD_MAX: Nanos = Nanos::seconds(3000);
/// Rows that are copied at a time: reports of appliances wait for that, some hundreds of
/// microseconds, and not for megabytes of JSON or hundreds of thousands of lines.
const ROWS_AT_ONCE: usize = 512;

type Sites = Arc<Names<SiteId, Site>>;

/// All of it.
pub(crate) struct Viewers {
    inner: Mutex<Inner>,
    /// Keys of playbacks are made with it; it is in no file.
    secret: hmac::Key,
}

struct Inner {
    totals: Totals,
    events: Events,
    /// The last batch of each appliance.
    taken: BTreeMap<ApplianceId, Last>,
    /// Sites that the log has a warning of.
    warned: BTreeSet<Arc<str>>,
    /// What was made of sites.
    networks: Option<Known>,
    forget_at: Instant,
}

/// The last batch of an appliance, and the start that it is of.
struct Last {
    start_id: u64,
    number: u64,
    at: Instant,
    /// So much time was not told of then.
    untold: Nanos,
}

/// What came of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenBatch {
    /// Which of its appliance's batches came last.
    pub(crate) number: u64,
    /// It told of more than its viewers can feel, and what is beyond was cut off.
    pub(crate) is_cut: bool,
}

/// The networks of these sites.
struct Known {
    sites: Sites,
    networks: Arc<Networks>,
    names: BTreeMap<Prefix, Arc<str>>,
}

impl Viewers {
    /// Nothing, of so many sites at most.
    pub(crate) fn new(sites_max: usize) -> Self {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).expect("the kernel gives random bytes");
        let inner = Inner {
            totals: Totals::new(totals(sites_max)),
            events: Events::new(events(sites_max)),
            taken: BTreeMap::new(),
            warned: BTreeSet::new(),
            networks: None,
            forget_at: Instant(0),
        };
        Self { inner: Mutex::new(inner), secret: hmac::Key::new(hmac::HMAC_SHA256, &secret) }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an appliance's batch, once. O(rows).
    ///
    /// Of one that tells of more than its viewers can have felt since the one before, the rest is
    /// cut off: `PLAYBACKS_MAX` of them watch at a time, and not for longer than it was.
    pub(crate) fn take_batch(
        &self,
        now: Instant,
        (appliance, start_id): (&ApplianceId, u64),
        batch: Option<&ViewerBatch>,
        snapshot: &Snapshot,
    ) -> TakenBatch {
        let taken = |number, is_cut| TakenBatch { number, is_cut };
        let Some(site) = snapshot.view.site_of(appliance) else {
            return taken(0, false);
        };
        // Read before anybody has to wait for it.
        let rows = batch.map(|batch| batch.rows.iter().take(ROWS_MAX).filter_map(read_row));
        let mut rows: Vec<(Dimension, &str, Source, Sums)> = rows.into_iter().flatten().collect();
        let mut inner = self.inner();
        let last = inner.taken.get(appliance);
        let number = last.filter(|last| last.start_id == start_id).map_or(0, |last| last.number);
        let Some(batch) = batch.filter(|batch| number < batch.number) else {
            return taken(number, false);
        };
        let untold = last.map_or(UNTOLD_MAX, |last| {
            Nanos(last.untold.0.saturating_add(now.since(last.at).0)).min(UNTOLD_MAX)
        });
        let told = cut(&mut rows, untold);
        // What is not told of now may be later: a stall is told when it is over.
        let untold = Nanos(untold.0 - told.time.0);
        let (number, at) = (batch.number, now);
        inner.taken.insert(appliance.clone(), Last { start_id, number, at, untold });
        for (dimension, name, source, sums) in &rows {
            // An appliance makes no names: they come to metrics and to people's terminals.
            let known = match dimension {
                Dimension::Site => Some(site.as_str().into()),
                Dimension::Asset => known_asset(snapshot, name),
                Dimension::Network => inner.network_of(&snapshot.sites, name),
                Dimension::Player => NAMES.into_iter().find(|of| of == name).map(Into::into),
            };
            let name = known.unwrap_or_else(|| qoe::OTHERS.into());
            let key = Key { dimension: *dimension, name, source: *source };
            inner.totals.add(now, &key, sums);
        }
        taken(number, told.is_cut)
    }

    /// The networks of all sites, if an appliance does not know them. They are made anew only when
    /// sites have changed.
    pub(crate) fn networks(&self, known: Option<u64>, sites: &Sites) -> Option<Networks> {
        let known = known?;
        let mut inner = self.inner();
        let networks = inner.known(sites).networks.clone();
        drop(inner);
        (networks.state != known).then(|| (*networks).clone())
    }

    /// Takes a report of a player, of the playback that its ticket names. `serving` serves it now.
    pub(crate) fn take_events(
        &self,
        now: Instant,
        (ticket, player, serving): (&Ticket, Player, Option<&ApplianceId>),
        reports: impl Iterator<Item = Report>,
        snapshot: &Snapshot,
    ) -> Taken {
        let reports: Vec<Report> = reports.take(LINES_MAX).collect();
        let Some(first) = reports.first() else { return Taken::Yes };
        let site = serving.and_then(|serving| snapshot.view.site_of(serving));
        let site = site.map_or(qoe::OTHERS, SiteId::as_str);
        let (key, player) = (self.key(ticket), player.name(first.hints.format));
        let mut inner = self.inner();
        if inner.events.knows(now, key) {
            // Its names were read when it began.
            let viewer = Viewer { key, asset: "", network: "", player };
            return inner.events.take(now, &viewer, site, &reports);
        }
        let network = inner.network(&snapshot.sites, ticket.client);
        drop(inner);
        let asset = asset(snapshot, ticket.version.as_str());
        let viewer = Viewer { key, asset: &asset, network: &network, player };
        self.inner().events.take(now, &viewer, site, &reports)
    }

    /// By the session that is sealed, and by no word of the player's: one ticket is one playback.
    fn key(&self, ticket: &Ticket) -> u128 {
        let tag = hmac::sign(&self.secret, ticket.session.as_str().as_bytes());
        u128::from_le_bytes(*tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// Time passes: warnings go to the log once, as they begin and end.
    pub(crate) fn tick(&self, now: Instant, sites: &Sites) {
        let mut inner = self.inner();
        inner.settle(now);
        if inner.forget_at <= now {
            inner.forget_at = now + Nanos::seconds(60);
            let is_site = |name: &str| name.parse().is_ok_and(|id: SiteId| sites.contains_key(&id));
            inner.totals.forget(now, is_site);
        }
        let warnings = inner.totals.warnings(now);
        for (site, warning) in &warnings {
            if inner.warned.insert(site.clone()) {
                tracing::warn!(site = %site, reason = said(warning), "viewers stall");
            }
        }
        let calm = |site: &Arc<str>| warnings.iter().all(|(warned, _)| warned != site);
        inner.warned.retain(|site| {
            if calm(site) {
                tracing::info!(site = %site, "viewers stall no more than usual");
            }
            !calm(site)
        });
    }

    /// Sites that are warned of now, with the reason.
    pub(crate) fn warnings(&self, now: Instant) -> Vec<ViewersWarning> {
        let mut inner = self.inner();
        inner.settle(now);
        let out = |(site, warning): (Arc<str>, Warning)| ViewersWarning {
            site: site.to_string(),
            since_s: now.since(warning.since).as_seconds(),
            stalled_share: of_million(warning.share_ppm),
            usual_share: of_million(warning.usual_ppm),
            stalls: warning.stalls,
        };
        inner.totals.warnings(now).into_iter().map(out).collect()
    }

    /// All rows, for people: tens of megabytes of JSON for thousands of sites, so not on a thread
    /// that answers players.
    pub(crate) fn out(&self, now: Instant, unix: UnixSeconds) -> ViewersOut {
        let warnings = self.warnings(now);
        let mut rows = Vec::new();
        let copy = |key: &Key, row: &Row| Some((key.clone(), row.clone()));
        self.each_row(copy, |(key, row)| rows.push(row_out(now, &key, &row)));
        ViewersOut { now_unix_s: unix.0, rows, warnings }
    }

    /// Each row of which `copy` wants something: some rows are copied at a time, and nobody has to
    /// wait for `each`.
    fn each_row<T>(&self, copy: impl Fn(&Key, &Row) -> Option<T>, mut each: impl FnMut(T)) {
        let mut last: Option<Key> = None;
        loop {
            let inner = self.inner();
            let (mut some, mut end) = (Vec::new(), None);
            for (key, row) in inner.totals.rows_after(last.as_ref()).take(ROWS_AT_ONCE) {
                some.extend(copy(key, row));
                end = Some(key);
            }
            last = end.cloned();
            drop(inner);
            some.into_iter().for_each(&mut each);
            if last.is_none() {
                return;
            }
        }
    }

    /// Rows of `/metrics`: by site and by player. Assets and networks are too many.
    pub(crate) fn put(&self, page: &mut Page, now: Instant) {
        let warned = Metric::gauge("viewer_warning", "1 while viewers of a site stall too much.");
        let warnings = self.warnings(now);
        let inner = self.inner();
        let (followed, crowded) = (inner.events.followed(), inner.totals.crowded());
        drop(inner);
        let is_few = |key: &Key| matches!(key.dimension, Dimension::Site | Dimension::Player);
        let mut rows: Vec<(Key, Sums)> = Vec::new();
        let copy = |key: &Key, row: &Row| is_few(key).then(|| (key.clone(), row.total));
        self.each_row(copy, |row| rows.push(row));
        let sites: BTreeSet<&Arc<str>> = rows
            .iter()
            .filter(|(key, _)| key.dimension == Dimension::Site)
            .map(|(key, _)| &key.name)
            .collect();
        for site in sites {
            let warns = warnings.iter().any(|warning| *warning.site == **site);
            page.put(&warned, &format!("site=\"{site}\""), u8::from(warns));
        }
        for (at, metric) in Sums::METRICS.iter().enumerate() {
            for (dimension, prefix) in [(Dimension::Site, "site"), (Dimension::Player, "player")] {
                let name = name_of(prefix, metric.name);
                let metric = Metric { name, ..*metric };
                assert_eq!(metric.kind, Kind::Counter, "sums only grow");
                for (key, sums) in rows.iter().filter(|(key, _)| key.dimension == dimension) {
                    let value = *sums.each().nth(at).expect("one for each metric");
                    let labels =
                        format!("{prefix}=\"{}\",source=\"{}\"", key.name, key.source.name());
                    page.put_of(&metric, &labels, value);
                }
            }
        }
        let metric = Metric::gauge("event_playbacks", "Playbacks that tell of themselves.");
        page.put(&metric, "", followed);
        let help = "Sums that are in the row of others, since there was no room for their own.";
        page.put(&Metric::counter("viewer_sums_of_others_total", help), "", crowded);
    }
}

impl Inner {
    /// The networks of all sites, made anew only when these have changed.
    fn known(&mut self, sites: &Sites) -> &Known {
        let known = self.networks.take().filter(|known| Arc::ptr_eq(&known.sites, sites));
        self.networks.insert(known.unwrap_or_else(|| {
            let names = names_of(sites);
            Known { sites: sites.clone(), networks: Arc::new(networks_of(&names)), names }
        }))
    }

    /// The network of that name, if there is one. O(log networks).
    fn network_of(&mut self, sites: &Sites, name: &str) -> Option<Arc<str>> {
        if [ELSEWHERE, qoe::OTHERS].contains(&name) {
            return Some(name.into());
        }
        self.known(sites).names.get(&name.parse().ok()?).cloned()
    }

    /// The longest network that a client's range is in. O(its bits x log networks).
    fn network(&mut self, sites: &Sites, client: Prefix) -> Arc<str> {
        let names = &self.known(sites).names;
        let mut wider = std::iter::successors(Some(client.trunc()), Prefix::supernet);
        wider.find_map(|of| names.get(&of).cloned()).unwrap_or_else(|| ELSEWHERE.into())
    }

    /// Adds what events have told since the last time.
    fn settle(&mut self, now: Instant) {
        self.events.forget(now);
        for (key, sums) in self.events.take_rows().iter() {
            self.totals.add(now, key, sums);
        }
    }
}

/// Names of metrics live as long as the process: there are few.
fn name_of(prefix: &str, metric: &str) -> &'static str {
    static NAMES: Mutex<BTreeMap<String, &'static str>> = Mutex::new(BTreeMap::new());
    let name = match prefix {
        "site" => format!("viewer_{metric}"),
        _ => format!("viewer_{prefix}_{metric}"),
    };
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.entry(name).or_insert_with_key(|name| String::leak(name.clone()))
}

/// A row as an appliance tells it, if it is one that is known of.
fn read_row(row: &ViewerRow) -> Option<(Dimension, &str, Source, Sums)> {
    let dimension = Dimension::ALL.into_iter().find(|of| of.name() == row.by)?;
    let source = Source::ALL.into_iter().find(|of| of.name() == row.source)?;
    let sums = Sums::named(|name| row.sums.get(name).copied().unwrap_or(0));
    (row.name.len() <= NAME_LEN_MAX).then_some((dimension, row.name.as_str(), source, sums))
}

/// Cuts rows to what as many viewers as can be have felt in this time. Each kind of rows tells of
/// the same.
fn cut(rows: &mut [(Dimension, &str, Source, Sums)], untold: Nanos) -> qoe::Told {
    let viewers = u32::try_from(PLAYBACKS_MAX).expect("few");
    let mut told = qoe::Told { time: Nanos(0), is_cut: false };
    for dimension in Dimension::ALL {
        let of = rows.iter_mut().filter(|(of, ..)| *of == dimension);
        let mut sums: Vec<&mut Sums> = of.map(|(.., sums)| sums).collect();
        let qoe::Told { time, is_cut } = qoe::cut(&mut sums, viewers, untold);
        told = qoe::Told { time: told.time.max(time), is_cut: told.is_cut | is_cut };
    }
    told
}

fn said(warning: &Warning) -> String {
    let percent = |ppm: u64| of_million(ppm) * 100.0;
    format!(
        "{:.1} % of the last minute, usual is {:.1} %, {} stalls",
        percent(warning.share_ppm),
        percent(warning.usual_ppm),
        warning.stalls
    )
}

fn of_million(ppm: u64) -> f64 {
    f64::from(u32::try_from(ppm).unwrap_or(u32::MAX)) / 1e6
}

/// The asset of a version; the version's own name if it is not known any more.
fn asset(snapshot: &Snapshot, version: &str) -> Arc<str> {
    known_asset(snapshot, version).unwrap_or_else(|| version.into())
}

fn known_asset(snapshot: &Snapshot, version: &str) -> Option<Arc<str>> {
    let known = version.parse().ok().and_then(|id| snapshot.catalog.version(&id).cloned());
    known.map(|known| known.files.asset.as_str().into())
}

fn names_of(sites: &Names<SiteId, Site>) -> BTreeMap<Prefix, Arc<str>> {
    let prefixes: BTreeSet<Prefix> =
        sites.values().flat_map(|site| &site.prefixes).map(Prefix::trunc).collect();
    let name = |prefix: Prefix| (prefix, prefix.to_string().into());
    prefixes.into_iter().take(NETWORKS_MAX).map(name).collect()
}

fn networks_of(names: &BTreeMap<Prefix, Arc<str>>) -> Networks {
    let prefixes: Vec<String> = names.values().map(ToString::to_string).collect();
    let mut hasher = DefaultHasher::new();
    prefixes.hash(&mut hasher);
    // 0 is of an appliance that knows none.
    Networks { state: hasher.finish().max(1), prefixes }
}

fn row_out(now: Instant, key: &Key, row: &Row) -> ViewersRow {
    let mut minutes = row.minutes(now);
    minutes.reverse();
    ViewersRow {
        by: key.dimension.name().to_owned(),
        name: key.name.to_string(),
        source: key.source.name().to_owned(),
        recent: figures(&row.recent(now)),
        total: figures(&row.total),
        bitrates: minutes.iter().map(|minute| figures(minute).bits_per_second).collect(),
        stalled_ms: minutes.iter().map(|minute| minute.stall_time / MILLI).collect(),
    }
}

const MILLI: u64 = 1_000_000;

fn figures(sums: &Sums) -> ViewersFigures {
    let mean = |sum: u64, count: u64| sum.checked_div(count);
    let rate = |bits: u64, time: u64| {
        let bits = u128::from(bits) * 1_000_000_000;
        bits.checked_div(u128::from(time)).and_then(|rate| u64::try_from(rate).ok())
    };
    let share = |part: u64, all: u64| {
        let million = (u128::from(part) * 1_000_000).checked_div(u128::from(all))?;
        Some(of_million(u64::try_from(million).unwrap_or(u64::MAX)))
    };
    ViewersFigures {
        playbacks: sums.playbacks,
        moved: sums.moved,
        starts: sums.starts,
        start_ms: mean(sums.start_time / MILLI, sums.starts),
        starts_slow: sums.starts_slow,
        stalls: sums.stalls,
        stalled_ms: sums.stall_time / MILLI,
        stalls_unmeasured: sums.stalls_unmeasured,
        stalled_share: share(sums.stall_time, sums.stall_time.saturating_add(sums.watched)),
        watched_ms: sums.watched / MILLI,
        bits_per_second: rate(sums.media_bytes.saturating_mul(8), sums.media),
        top_share: share(sums.media_top, sums.media),
        buffer_ms: mean(sums.buffer_time / MILLI, sums.buffers),
        buffer_low_share: share(sums.buffers_low, sums.buffers),
        sent_bits_per_second: rate(sums.sent_bytes.saturating_mul(8), sums.sent_time),
        measured_bits_per_second: mean(sums.measured_bytes.saturating_mul(8), sums.measures),
        cut: sums.cut,
        failed: sums.failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_while_rows_are_written_for_people_and_each_is_written_once() {
        let viewers = Viewers::new(2000);
        let sums = Sums { stalls: 1, ..Sums::default() };
        let count = 2 * ROWS_AT_ONCE + 7;
        for at in 0..count {
            let key = Key {
                dimension: Dimension::Site,
                name: format!("s{at}").into(),
                source: Source::ALL[at % 2],
            };
            viewers.inner().totals.add(Instant(0), &key, &sums);
        }
        let mut written = BTreeSet::new();
        let copy = |key: &Key, row: &Row| Some((key.clone(), row.total.stalls));
        viewers.each_row(copy, |(key, stalls)| {
            assert_eq!(stalls, 1);
            assert!(written.insert(key.clone()), "{key:?} is written twice");
            assert!(viewers.inner.try_lock().is_ok(), "a report would wait");
        });
        viewers.each_row(|_, _| None::<()>, |()| panic!("nothing is wanted"));
        assert_eq!(written.len(), count);
        assert_eq!(viewers.out(Instant(0), UnixSeconds(0)).rows.len(), count);
    }
}

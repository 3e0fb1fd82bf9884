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
use model::topology::{Prefix, Site};
use model::units::{Instant, Nanos, UnixSeconds};
use playback::player::{NAMES, Player};
use qoe::{
    Dimension, EventConfig, Events, Key, Row, Source, Sums, Taken, Totals, TotalsConfig, Viewer,
    Warning,
};
use wire::prometheus::Page;
use wire::v1::viewers::{
    NAME_LEN_MAX, Networks, ROWS_MAX, ViewerBatch, ViewersFigures, ViewersOut, ViewersRow,
    ViewersWarning,
};

/// 20 MB. A player may send 60 lines at once and one a second: it has changes of state, and an
/// interval of some seconds.
const EVENTS: EventConfig = EventConfig {
    playbacks_max: 50_000,
    silent_max: Nanos::seconds(300),
    rows_max: TOTALS.rows_max,
    lines_max: 60,
    line_every: Nanos::seconds(1),
};
/// 2 MB for each dimension and source.
const TOTALS: TotalsConfig = TotalsConfig { rows_max: 1000 };
/// As many networks as an appliance takes.
const NETWORKS_MAX: usize = 4096;
const ELSEWHERE: &str = "elsewhere";

type Sites = Arc<BTreeMap<SiteId, Site>>;

/// All of it.
pub(crate) struct Viewers {
    inner: Mutex<Inner>,
    /// Keys of playbacks are made with it; it is in no file.
    secret: hmac::Key,
}

struct Inner {
    totals: Totals,
    events: Events,
    /// The last batch of each appliance, with the start that it is of.
    taken: BTreeMap<ApplianceId, (u64, u64)>,
    /// Sites that the log has a warning of.
    warned: BTreeSet<Arc<str>>,
    /// What was made of sites.
    networks: Option<Known>,
    forget_at: Instant,
}

/// The networks of these sites.
struct Known {
    sites: Sites,
    networks: Arc<Networks>,
    names: BTreeSet<Arc<str>>,
}

impl Viewers {
    pub(crate) fn new() -> Self {
        let mut secret = [0; 32];
        aws_lc_rs::rand::fill(&mut secret).expect("the kernel gives random bytes");
        let inner = Inner {
            totals: Totals::new(TOTALS),
            events: Events::new(EVENTS),
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

    /// Takes an appliance's batch, once; which of its batches came last. O(rows).
    pub(crate) fn take_batch(
        &self,
        now: Instant,
        (appliance, start_id): (&ApplianceId, u64),
        batch: Option<&ViewerBatch>,
        snapshot: &Snapshot,
    ) -> u64 {
        let Some(standing) = snapshot.view.appliances.get(appliance) else { return 0 };
        let mut inner = self.inner();
        let last = inner.taken.get(appliance).filter(|(start, _)| *start == start_id);
        let last = last.map_or(0, |(_, number)| *number);
        let Some(batch) = batch.filter(|batch| last < batch.number) else { return last };
        inner.taken.insert(appliance.clone(), (start_id, batch.number));
        for row in batch.rows.iter().take(ROWS_MAX) {
            let dimension = Dimension::ALL.into_iter().find(|of| of.name() == row.by);
            let source = Source::ALL.into_iter().find(|of| of.name() == row.source);
            let (Some(dimension), Some(source)) = (dimension, source) else { continue };
            if NAME_LEN_MAX < row.name.len() {
                continue;
            }
            // An appliance makes no names: they come to metrics and to people's terminals.
            let known = match dimension {
                Dimension::Site => Some(standing.site.as_str().into()),
                Dimension::Asset => known_asset(snapshot, &row.name),
                Dimension::Network => inner.network_of(&snapshot.view.sites, &row.name),
                Dimension::Player => {
                    NAMES.into_iter().find(|name| *name == row.name).map(Into::into)
                }
            };
            let name = known.unwrap_or_else(|| qoe::OTHERS.into());
            let sums = Sums::named(|name| row.sums.get(name).copied().unwrap_or(0));
            inner.totals.add(now, &Key { dimension, name, source }, &sums);
        }
        batch.number
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

    /// Takes lines of a player, which are of the playback that its ticket names.
    pub(crate) fn take_events(
        &self,
        now: Instant,
        (ticket, player): (&Ticket, Player),
        reports: impl Iterator<Item = Report>,
        snapshot: &Snapshot,
    ) -> Taken {
        let first = ticket.pathways.first();
        let site = first.and_then(|first| snapshot.view.appliances.get(first));
        let site = site.map_or(qoe::OTHERS, |appliance| appliance.site.as_str());
        let network = network(snapshot, &ticket.client);
        let asset = asset(snapshot, ticket.version.as_str());
        let mut inner = self.inner();
        for report in reports {
            let key = self.key(ticket);
            let player = player.name(report.hints.format);
            let viewer = Viewer { key, asset: &asset, network: &network, player };
            let taken = inner.events.take(now, &viewer, site, &report);
            if taken != Taken::Yes {
                return taken;
            }
        }
        Taken::Yes
    }

    /// By the session that is sealed, and by no word of the player's: one ticket is one playback.
    fn key(&self, ticket: &Ticket) -> u128 {
        let tag = hmac::sign(&self.secret, ticket.session.as_str().as_bytes());
        u128::from_le_bytes(*tag.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// Time passes: warnings go to the log once, as they begin and end.
    pub(crate) fn tick(&self, now: Instant) {
        let mut inner = self.inner();
        inner.settle(now);
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

    /// All rows, for people.
    pub(crate) fn out(&self, now: Instant, unix: UnixSeconds) -> ViewersOut {
        let warnings = self.warnings(now);
        let inner = self.inner();
        let rows = inner.totals.rows().map(|(key, row)| row_out(now, key, row)).collect();
        ViewersOut { now_unix_s: unix.0, rows, warnings }
    }

    /// Rows of `/metrics`: by site and by player. Assets and networks are too many.
    pub(crate) fn put(&self, page: &mut Page, now: Instant) {
        let warned = Metric::gauge("viewer_warning", "1 while viewers of a site stall too much.");
        let warnings = self.warnings(now);
        let mut inner = self.inner();
        inner.settle(now);
        let mut rows: Vec<(&Key, &Row)> = inner.totals.rows().collect();
        rows.retain(|(key, _)| matches!(key.dimension, Dimension::Site | Dimension::Player));
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
                for (key, row) in rows.iter().filter(|(key, _)| key.dimension == dimension) {
                    let value = *row.total.each().nth(at).expect("one for each metric");
                    let labels =
                        format!("{prefix}=\"{}\",source=\"{}\"", key.name, key.source.name());
                    page.put_of(&metric, &labels, value);
                }
            }
        }
        let followed = Metric::gauge("event_playbacks", "Playbacks that tell of themselves.");
        page.put(&followed, "", inner.events.len());
    }
}

impl Inner {
    /// The networks of all sites, made anew only when these have changed.
    fn known(&mut self, sites: &Sites) -> &Known {
        let known = self.networks.take().filter(|known| Arc::ptr_eq(&known.sites, sites));
        self.networks.insert(known.unwrap_or_else(|| {
            let networks = Arc::new(networks_of(sites));
            let names = networks.prefixes.iter().map(|name| name.as_str().into());
            let names = names.chain([ELSEWHERE.into(), qoe::OTHERS.into()]).collect();
            Known { sites: sites.clone(), networks, names }
        }))
    }

    /// The network of that name, if there is one. O(log networks).
    fn network_of(&mut self, sites: &Sites, name: &str) -> Option<Arc<str>> {
        self.known(sites).names.get(name).cloned()
    }

    /// Adds what events have told since the last time.
    fn settle(&mut self, now: Instant) {
        self.events.forget(now);
        for (key, sums) in self.events.take_rows().iter() {
            self.totals.add(now, key, sums);
        }
        if self.forget_at <= now {
            self.forget_at = now + Nanos::seconds(60);
            self.totals.forget(now);
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

/// The prefix of a site's that a client's range is in, the longest. O(prefixes).
fn network(snapshot: &Snapshot, client: &Prefix) -> String {
    let prefixes = snapshot.view.sites.values().flat_map(|site| &site.prefixes);
    let longest = prefixes.filter(|of| of.contains(client)).max_by_key(|of| of.prefix_len());
    longest.map_or_else(|| ELSEWHERE.to_owned(), ToString::to_string)
}

fn networks_of(sites: &BTreeMap<SiteId, Site>) -> Networks {
    let prefixes: BTreeSet<&Prefix> = sites.values().flat_map(|site| &site.prefixes).collect();
    let prefixes: Vec<String> =
        prefixes.into_iter().take(NETWORKS_MAX).map(ToString::to_string).collect();
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

//! The appliance's side of the conversation with control: reports out, and what replies say.
//!
//! ```text
//! writer <── report ── control-link           each its own inventory state and its own waits
//! front  <── report ── front-NAME
//!        reply ──> Wish    ──> a thread of its own sends what routers announce (`routes`)
//!        reply ──> Offered ──> a thread of its own fetches a newer manifest (`manifest_link`)
//! ```
//!
//! Control away changes nothing but that: what is in force stays in force, fill goes on with what
//! it knows, and each thread tries again, at most five seconds apart; where control only has no
//! room for a report, with the next interval. Manifests come from the writer alone; what a front
//! answers only says what it has seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::id::{ApplianceId, Generation, ObjectId};
use model::inventory::{Delta, FilesDelta};
use model::status::FillStatus;
use model::units::{Bytes, Instant, Nanos};
use qoe::Sums;
use wire::v1;
use wire::v1::report::{Inventory, InventoryCheck, Report, ReportedError};
use wire::v1::viewers::{Networks, ViewerBatch, ViewerRow};

use crate::book::LinkIndex;
use crate::clock;
use crate::counters::{ServeCounters, Serving, now, sum};
use crate::lock::lock;
use crate::membership::client::{ControlClient, ControlError};
use crate::membership::headroom::{self, Cards, Packets};
use crate::membership::manifest_link::Offered;
use crate::membership::routes::{Routes, Wish};
use crate::membership::state_file::StateFile;
use crate::membership::takeover::Peers;
use crate::membership::tries::{Tries, wait};
use crate::storage::shared::Shared;

/// Control may ask for reports between these.
const INTERVAL_MIN: Nanos = Nanos::millis(100);
const INTERVAL_MAX: Nanos = Nanos::seconds(60);
/// Between two questions for ticket keys. Control gives the next key six hours before it is used.
const TICKETS_EVERY: Nanos = Nanos::seconds(600);
const TICKETS_RETRY: Nanos = Nanos::seconds(10);

/// What the report says of this process.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub software: String,
    /// Base URL for players, without trailing slash.
    pub base_url: String,
    /// The same without TLS.
    pub plain_url: Option<String>,
    /// Where siblings may fetch from it, `host:port`.
    pub peer_address: Option<String>,
    /// What the machine says of itself (`identity::enrol::machine`).
    pub machine: String,
    /// What its routers announce, where somebody reads it.
    pub routes: Option<Routes>,
    pub connections_max: u64,
    /// What they carry together is the most egress, if they say so.
    pub cards: Arc<Cards>,
}

/// What the writer tells an appliance, and a front does not: newer manifests and keys of tickets.
pub(crate) struct Writer {
    /// For the thread that fetches manifests.
    pub(crate) offered: Arc<Offered>,
    pub(crate) tickets: Arc<tls::Tickets>,
    /// Where its siblings let others fetch.
    pub(crate) peers: Peers,
    /// Keeps the rules for fill.
    pub(crate) state_file: Arc<StateFile>,
}

/// What the link knows between two reports.
struct Link<'a> {
    shared: &'a Shared,
    client: &'a ControlClient,
    about: &'a About,
    /// None on a link to a front.
    writer: Option<&'a Writer>,
    /// For the thread that sends what routers announce.
    wish: &'a Wish,
    start_id: u64,
    sequence: u64,
    /// The inventory state that control has.
    known: u64,
    /// Control reads inventories by number; none until it has answered.
    by_number: Option<bool>,
    previous: Totals,
    /// Packets of the machine's cards, as of the last report.
    packets: Packets,
    interval: Nanos,
    /// When ticket keys are asked for again.
    tickets_at: Instant,
    reports: Tries,
    /// Its place in the book of what viewers feel.
    viewers: LinkIndex,
}

/// Counters at the last report, to make rates from.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    at: Nanos,
    egress: Bytes,
    fetched: Bytes,
    from_siblings: Bytes,
    busy: Nanos,
}

/// Reports until all must stop, and takes what a writer gives. The first wait is `interval`.
pub(crate) fn run(
    shared: &Shared,
    client: &ControlClient,
    about: &About,
    interval: Nanos,
    writer: Option<&Writer>,
    wish: &Wish,
) {
    let mut start_id = [0; 8];
    aws_lc_rs::rand::fill(&mut start_id).expect("the kernel gives random bytes after its start");
    let mut link = Link {
        shared,
        client,
        about,
        writer,
        wish,
        start_id: u64::from_le_bytes(start_id),
        sequence: 0,
        known: 0,
        by_number: None,
        previous: Totals::default(),
        packets: Packets::now().unwrap_or_default(),
        interval,
        tickets_at: Instant(0),
        reports: Tries::default(),
        viewers: shared.counters.serving.viewers.join(),
    };
    loop {
        let began = shared.ledger.now();
        let result = link.turn();
        // It is worth the next report at its time: whoever stays away longer is called silent.
        let is_busy = result.as_ref().is_err_and(is_busy);
        let failed = link.reports.settle(shared, &client.whom, "control is back", result);
        let failures = failed.filter(|_| !is_busy);
        let wait = failures.map_or(link.interval, |failures| wait(link.interval, failures));
        if !shared.ledger.sleep_until(began + wait) {
            break;
        }
    }
    if shared.counters.serving.draining.load(Ordering::Relaxed) {
        let report = link.report();
        let _ = client.report(&report);
    }
}

impl Link<'_> {
    /// One report, and what its reply says.
    fn turn(&mut self) -> Result<(), ControlError> {
        let began = self.shared.ledger.now();
        let report = self.report();
        let book = &self.shared.counters.serving.viewers;
        let reply = self.client.report(&report).inspect_err(|_| book.lost(self.viewers))?;
        (self.known, self.by_number) = (reply.inventory, Some(reply.by_number));
        book.came(self.viewers, reply.viewers);
        self.shared.told.set(began, &self.client.whom, reply.share_permille);
        self.shared.told_titles.set(began, &self.client.whom, reply.titles_permille);
        let asked = Nanos(reply.interval_ms.saturating_mul(1_000_000));
        if asked.0 != 0 {
            self.interval = asked.clamp(INTERVAL_MIN, INTERVAL_MAX);
        }
        self.wish.set(began, reply.routes.clone());
        let Some(writer) = self.writer else { return Ok(()) };
        if let Some(Networks { state, prefixes }) = &reply.networks {
            book.set_networks(*state, prefixes);
        }
        // Before a manifest is offered: it says what to fetch, and these say when.
        if let Some(told) = &reply.fill {
            self.take_rules(writer, told);
        }
        self.renew_ticket_keys(writer);
        let siblings = wire::convert::siblings_of_reply(&reply);
        self.shared.ledger.change(|holdings| holdings.set_siblings(siblings));
        let peer = |(id, at): (&String, &String)| Some((id.parse().ok()?, at.clone()));
        // A writer that has just started knows only those that have reported to it.
        let told: BTreeMap<ApplianceId, String> = reply.peers.iter().filter_map(peer).collect();
        let site = self.shared.ledger.ask(|all| all.manifest().map(|of| of.site.clone()));
        let is_of_site = |id: &ApplianceId| site.iter().flatten().any(|member| member.id == *id);
        let mut peers = lock(&writer.peers);
        peers.retain(|id, _| is_of_site(id));
        peers.extend(told);
        drop(peers);
        writer.offered.set(Generation(reply.generation), Generation(reply.trust));
        Ok(())
    }

    /// Goes by other rules for fill. Those that cannot be kept are told again: a restart should not
    /// bring back others.
    fn take_rules(&mut self, writer: &Writer, told: &v1::fill::FillRules) {
        let ledger = &self.shared.ledger;
        let mut rules = match wire::convert::fill_rules_in(told) {
            Ok(rules) => rules,
            Err(error) => {
                let text = format!("control's rules for fill are refused: {error}");
                return ledger.note("fill", format!("{text}. Those before stay in force"));
            }
        };
        if let Err(error) = writer.state_file.save_rules(&rules) {
            ledger.note("fill", format!("the rules for fill are not kept: {error}"));
            rules.state = 0;
        }
        let at = ledger.now();
        ledger.change(|holdings| holdings.set_rules(at, clock::wall(), rules));
    }

    /// Asks the writer for ticket keys when it is time. Without them players resume at this
    /// appliance only, so that a failure is not worth more than a line at level debug.
    fn renew_ticket_keys(&mut self, writer: &Writer) {
        let now = self.shared.ledger.now();
        if now < self.tickets_at {
            return;
        }
        match self.client.ticket_keys() {
            Ok(keys) => {
                writer.tickets.install(&keys);
                self.tickets_at = now + TICKETS_EVERY;
            }
            Err(error) => {
                tracing::debug!(%error, "no keys for the site's session tickets");
                self.tickets_at = now + TICKETS_RETRY;
            }
        }
    }

    /// What is held, as control reads it: by number, unless it does not, or the manifest has none.
    /// Before its first answer nobody knows what it reads, and a list by ids is long: it is told a
    /// state that it cannot have, and asks for it if that is what it reads.
    fn held(&self) -> (Inventory, Option<FilesDelta>) {
        let (known, by_number) = (self.known, self.by_number);
        self.shared.ledger.ask(|holdings| {
            let files = holdings.files_since(known).filter(|_| by_number != Some(false));
            let to = files.as_ref().map(|files| files.to);
            let nothing = |to| Inventory { from: to, to, ..Inventory::default() };
            let by_ids = || inventory(holdings.inventory_since(known));
            (to.map_or_else(by_ids, nothing), files)
        })
    }

    fn report(&mut self) -> Report {
        let shared = self.shared;
        let about = self.about;
        let uptime = shared.ledger.now().since(Instant(0));
        let (workers, status) = (&shared.counters.serving.workers[..], shared.fill_status());
        self.sequence += 1;
        let totals = Totals {
            at: uptime,
            egress: Bytes(sum(workers, |worker| now(&worker.counts.body_bytes))),
            fetched: status.fetched,
            from_siblings: status.from_siblings,
            busy: Nanos(sum(workers, |worker| worker.cpu().0)),
        };
        let previous = std::mem::replace(&mut self.previous, totals);
        let (inventory, files) = self.held();
        let drops = self.packets.go_on();
        let (at, whom) = (shared.ledger.now(), self.client.whom.as_str());
        Report {
            start_id: self.start_id,
            sequence: self.sequence,
            uptime_s: uptime.as_seconds(),
            software: about.software.clone(),
            base_url: about.base_url.clone(),
            plain_url: about.plain_url.clone(),
            peer_address: about.peer_address.clone(),
            machine: about.machine.clone(),
            generation: status.generation.0,
            trust: self.writer.map(|writer| writer.offered.trust_followed().0),
            served_generation: served_generation(shared)
                .filter(|_| self.writer.is_none_or(|writer| writer.offered.is_kept())),
            load: v1::report::Load {
                memory_permille: headroom::memory(),
                drops_permille: drops,
                ..load(&shared.counters.serving, about, &totals, &previous)
            },
            drives: shared.drive_statuses().iter().map(Into::into).collect(),
            fill: fill(&status, &totals, &previous),
            inventory,
            files: files.map(|files| wire::convert::files_out(&files)),
            routes: about.routes.as_ref().map(|routes| routes.told(shared.ledger.now())),
            errors: errors(shared),
            viewers: batch(shared, self.viewers),
            told_share_permille: shared.told.of_others(at, whom),
            told_titles_permille: shared.told_titles.of_others(at, whom),
            own_share_permille: shared.told.of_itself(at, whom),
            own_titles_permille: shared.told_titles.of_itself(at, whom),
            networks: Some(shared.counters.serving.viewers.networks_state()),
            fill_rules: Some(shared.ledger.ask(|holdings| holdings.rules().state)),
        }
    }
}

/// Control is there and has no room.
fn is_busy(error: &ControlError) -> bool {
    matches!(error, ControlError::Status { status: 503, .. })
}

/// What viewers felt, if there is something to tell.
fn batch(shared: &Shared, link: LinkIndex) -> Option<ViewerBatch> {
    let (number, rows) = shared.counters.serving.viewers.batch(link, shared.ledger.now())?;
    let rows = rows.iter().map(|(key, sums)| ViewerRow {
        by: key.dimension.name().to_owned(),
        name: key.name.to_string(),
        source: key.source.name().to_owned(),
        sums: wire::convert::sums(Sums::METRICS, sums.each()),
    });
    Some(ViewerBatch { number, rows: rows.collect() })
}

/// The manifest that every worker answers by: the oldest of theirs.
fn served_generation(shared: &Shared) -> Option<u64> {
    shared.counters.serving.workers.iter().map(|worker| worker.served().0).min()
}

fn load(serving: &Serving, about: &About, totals: &Totals, previous: &Totals) -> v1::report::Load {
    let span = Nanos(totals.at.0.saturating_sub(previous.at.0));
    let egress = totals.egress.saturating_sub(previous.egress);
    let busy = Nanos(totals.busy.0.saturating_sub(previous.busy.0));
    let workers = &serving.workers;
    let egress_max = about.cards.speed().map_or(0, |rate| rate.0);
    v1::report::Load {
        serving: !serving.draining.load(Ordering::Relaxed),
        connections: sum(workers, |worker| now(&worker.counts.open)),
        connections_max: about.connections_max,
        egress_bits_per_second: egress.per(span).0,
        egress_max_bits_per_second: egress_max,
        egress_bytes: totals.egress.0,
        requests: sum(workers, ServeCounters::requests),
        request_errors: sum(workers, ServeCounters::request_errors),
        cpu_percent: percent(busy, span, workers.len()),
        memory_permille: None,
        drops_permille: None,
    }
}

/// The share of so many cores that was busy, 0 to 100, in tenths.
fn percent(busy: Nanos, span: Nanos, cores: usize) -> f32 {
    let whole = u128::from(span.0) * u128::from(Bytes::of(cores).0);
    let permille = u128::from(busy.0) * 1000 / whole.max(1);
    f32::from(u16::try_from(permille.min(1000)).unwrap_or(1000)) / 10.0
}

fn fill(status: &FillStatus, totals: &Totals, previous: &Totals) -> v1::report::Fill {
    let span = Nanos(totals.at.0.saturating_sub(previous.at.0));
    v1::report::Fill {
        objects_wanted: status.objects_wanted,
        objects_held: status.objects_held,
        bytes_wanted: status.bytes_wanted.0,
        bytes_held: status.bytes_held.0,
        bits_per_second: totals.fetched.saturating_sub(previous.fetched).per(span).0,
        sibling_bits_per_second: totals
            .from_siblings
            .saturating_sub(previous.from_siblings)
            .per(span)
            .0,
    }
}

fn inventory(delta: Delta) -> Inventory {
    let texts = |ids: Vec<ObjectId>| ids.iter().map(ToString::to_string).collect();
    Inventory {
        from: delta.from,
        to: delta.to,
        held: texts(delta.held),
        gone: texts(delta.gone),
        check: delta.check.map(|of| InventoryCheck { count: of.count, sum: of.sum }),
    }
}

fn errors(shared: &Shared) -> Vec<ReportedError> {
    let error = |noted: crate::storage::ledger::Noted| ReportedError {
        at_unix_s: noted.at.0,
        room: noted.room.to_owned(),
        text: noted.text,
    };
    shared.ledger.errors().into_iter().map(error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_was_refused_for_want_of_room_comes_again_at_its_time() {
        let refused = |status| ControlError::Status { status, text: String::new() };
        assert!(is_busy(&refused(503)));
        assert!(!is_busy(&refused(500)) && !is_busy(&refused(403)));
        assert!(!is_busy(&ControlError::Unreachable(String::new())));
        let waits = [0, 1, 2, 3, 4, 60].map(|failures| wait(Nanos::millis(500), failures));
        assert_eq!(waits, [500, 1000, 2000, 4000, 5000, 5000].map(Nanos::millis));
        assert_eq!(wait(Nanos::seconds(60), 3), Nanos::seconds(60), "never before its time");
    }

    #[test]
    fn cpu_is_a_share_of_the_workers_cores() {
        let check = |busy_ms, span_ms, cores, wanted: f32| {
            let percent = percent(Nanos::millis(busy_ms), Nanos::millis(span_ms), cores);
            assert!((percent - wanted).abs() < 0.01, "{percent}");
        };
        check(500, 1000, 1, 50.0);
        check(500, 1000, 4, 12.5);
        check(9000, 1000, 1, 100.0);
        check(0, 0, 0, 0.0);
    }
}

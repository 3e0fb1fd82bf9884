//! Where the object that is being filled may be fetched, best first.
//!
//! ```text
//! control ── siblings, then origins, with an expiry each ──> places
//!         └─ "wait": a master of the fill cluster fetches it first ──> none, for so long
//! manifest ── base URLs ──> places, where control is away or names no origin
//! ```
//!
//! URLs may be good for a short time: control is asked again when that is over. A sibling that
//! failed is left out for a while, in all transfers of this appliance.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fill::plan::Fetch;
use fill::transfer::SourceFault;
use model::object::BLOCK_LEN;
use model::units::{Bytes, Instant, Nanos, UnixSeconds};
use upkeep::filler;
use ureq::http::Uri;
use wire::v1::identity::{Escalation, Source, Sources};

use crate::clock;
use crate::counters::FillCounters;
use crate::lock::lock;
use crate::membership::client::{ControlClient, ControlError};
use crate::membership::member::MemberClient;
use crate::storage::ledger::Ledger;
use crate::storage::source::{self, Answer};

/// Most places of one object: control gives no more, and the manifest's come on top.
const PLACES_MAX: usize = 16;
/// Control is asked for one object at most so often because of the time.
const ASK_EVERY: Nanos = Nanos::seconds(1);
/// A URL is not used any more so long before it expires: clocks differ, and requests take time.
const MARGIN_S: u64 = 2;
/// How long a sibling that failed is left out, and one that sent wrong bytes.
const FAILED_FOR: Nanos = Nanos::seconds(30);
const LIED_FOR: Nanos = Nanos::seconds(600);
/// Control says at least this; whatever it says, it is asked again after the other.
const WAIT_MIN_S: u64 = 1;
const WAIT_MAX_S: u64 = 600;
/// Control that has too much to do, or does not answer in time, is asked again after so long, and
/// counts as away when it has answered no question for the others: it may be paused for a moment,
/// and the origin would get what it cannot answer.
const BUSY_WAIT_S: u64 = 5;
const BUSY_MAX: Nanos = Nanos::seconds(900);
const LATE_MAX: Nanos = Nanos::seconds(60);
/// Objects that are fetched from further away are counted, and told once in a while.
const SAY_EVERY: Nanos = Nanos::seconds(60);
/// Siblings that are left out; the table is emptied when it is full.
const SHUNNED_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    url: String,
    /// Of a sibling; an origin has none.
    address: Option<String>,
    expires: Option<UnixSeconds>,
    /// By control's word.
    same_site: bool,
}

/// The clients of a filler. Each thread has its own.
pub(crate) struct Clients {
    pub(crate) origins: ureq::Agent,
    pub(crate) siblings: MemberClient,
    pub(crate) control: Option<ControlClient>,
    /// Of all fillers together.
    pub(crate) shunned: Arc<Shunned>,
    /// The same.
    pub(crate) said: Arc<Said>,
    /// The same.
    pub(crate) busy: Arc<Busy>,
}

/// Since when control has answered no question.
#[derive(Debug, Default)]
pub(crate) struct Busy(Mutex<Unanswered>);

#[derive(Debug, Default)]
struct Unanswered {
    since: Option<Instant>,
    /// Since when it has not even said that it has too much to do.
    silent_since: Option<Instant>,
    asked: Instant,
    /// It counts as away until it answers, or says that it has too much to do.
    is_away: bool,
}

/// When it was last told that an object is fetched from further away.
#[derive(Debug, Default)]
pub(crate) struct Said(Mutex<Option<Instant>>);

/// Siblings that are left out for a while, by address.
#[derive(Debug, Default)]
pub(crate) struct Shunned(Mutex<BTreeMap<String, Instant>>);

/// The places of one object.
pub(crate) struct Places<'a> {
    ledger: &'a Ledger,
    clients: &'a Clients,
    fetched: &'a FillCounters<AtomicU64>,
    fetch: &'a Fetch,
    list: Vec<Place>,
    asked: Instant,
    /// A source did not take its URL.
    refused: bool,
    /// A master is to fetch it first.
    waits: Option<Nanos>,
}

impl Busy {
    fn answered(&self) {
        *lock(&self.0) = Unanswered::default();
    }

    /// This came of a question. True if an answer is worth waiting for.
    fn is_short(&self, now: Instant, error: &ControlError) -> bool {
        let is_busy = matches!(error, ControlError::Status { status: 503, .. });
        let is_late = matches!(error, ControlError::Late(_));
        let mut of = lock(&self.0);
        // Of what was before nobody asked for long nothing follows now.
        if LATE_MAX < now.since(of.asked) && !of.is_away {
            *of = Unanswered::default();
        }
        of.asked = now;
        if !is_busy && !is_late {
            return false;
        }
        let since = *of.since.get_or_insert(now);
        if is_busy {
            (of.silent_since, of.is_away) = (None, false);
            return now.since(since) < BUSY_MAX;
        }
        let silent_since = *of.silent_since.get_or_insert(now);
        of.is_away |= BUSY_MAX <= now.since(since) || LATE_MAX <= now.since(silent_since);
        !of.is_away
    }
}

impl Said {
    /// True if it is time to say it again.
    fn is_due(&self, now: Instant) -> bool {
        let mut said = lock(&self.0);
        let is_due = said.is_none_or(|last| SAY_EVERY <= now.since(last));
        if is_due {
            *said = Some(now);
        }
        is_due
    }
}

impl Shunned {
    fn add(&self, address: &str, until: Instant) {
        let mut shunned = lock(&self.0);
        if SHUNNED_MAX <= shunned.len() {
            shunned.clear();
        }
        let kept = shunned.entry(address.to_owned()).or_insert(until);
        *kept = until.max(*kept);
    }

    fn has(&self, address: &str, now: Instant) -> bool {
        lock(&self.0).get(address).is_some_and(|until| now < *until)
    }
}

impl<'a> Places<'a> {
    pub(crate) fn find(
        ledger: &'a Ledger,
        clients: &'a Clients,
        fetched: &'a FillCounters<AtomicU64>,
        fetch: &'a Fetch,
    ) -> Self {
        let (list, asked) = (Vec::new(), ledger.now());
        let (refused, waits) = (false, None);
        let mut places = Self { ledger, clients, fetched, fetch, list, asked, refused, waits };
        places.make_anew();
        places
    }

    /// True if the place's URL is good no longer.
    fn is_over(&self, index: usize) -> bool {
        let expires = self.list[index].expires;
        expires.is_some_and(|expires| expires.0 <= clock::wall().0.saturating_add(MARGIN_S))
    }

    /// Asks control, and makes the list anew.
    fn make_anew(&mut self) {
        (self.asked, self.refused) = (self.ledger.now(), false);
        let object = self.fetch.object;
        let lacked = self.ledger.change(|holdings| holdings.lacked_for(self.asked, object));
        let answer = self.clients.control.as_ref().map(|control| control.sources(object, lacked));
        let told = match answer {
            Some(Ok(told)) => {
                self.clients.busy.answered();
                told
            }
            Some(Err(error)) if self.clients.busy.is_short(self.asked, &error) => {
                Sources { only: true, wait_s: Some(BUSY_WAIT_S), ..Sources::default() }
            }
            Some(Err(error)) => {
                tracing::debug!(%object, %error, "control names no sources");
                Sources::default()
            }
            None => Sources::default(),
        };
        if let Some(escalation) = told.escalated {
            self.escalates(escalation, lacked);
        }
        self.waits = waits(&told);
        let manifest = if told.only { &[][..] } else { &self.fetch.urls };
        self.list = list(told.sources, manifest);
        let now = self.ledger.now();
        let shunned = |place: &Place| {
            place.address.as_ref().is_some_and(|at| self.clients.shunned.has(at, now))
        };
        if !self.list.iter().all(shunned) {
            self.list.retain(|place| !shunned(place));
        }
        for place in &self.list {
            let host = place.url.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
            if let (Some(host), Some(address)) = (host, &place.address) {
                self.clients.siblings.dial.set_host(&host, address);
            }
        }
    }
}

impl Places<'_> {
    /// No master has brought the object, and control lets it be fetched from further away.
    fn escalates(&self, to: Escalation, lacked: Nanos) {
        let (counter, whom) = match to {
            Escalation::Elsewhere => (&self.fetched.escalated_elsewhere, "other fill clusters"),
            Escalation::Origin => (&self.fetched.escalated_origin, "origin"),
        };
        let objects = counter.fetch_add(1, Ordering::Relaxed) + 1;
        if self.clients.said.is_due(self.asked) {
            let (object, seconds) = (self.fetch.object, lacked.as_seconds());
            tracing::info!(%object, seconds, whom, objects, "no master has brought it");
        }
    }
}

impl filler::Places for Places<'_> {
    type Answer = Answer;

    fn count(&self) -> usize {
        self.list.len()
    }

    fn is_outside(&self, index: usize) -> bool {
        !self.list[index].same_site
    }

    fn is_stale(&self, index: usize) -> bool {
        let may_ask = ASK_EVERY <= self.ledger.now().since(self.asked);
        // A refusal is a failure that the transfer counts: it cannot ask for ever.
        self.refused || (may_ask && self.is_over(index))
    }

    fn waits(&self) -> Option<Nanos> {
        self.waits
    }

    async fn renew(&mut self) {
        self.make_anew();
    }

    async fn ask(&mut self, index: usize, first: u64, count: u64) -> Result<Answer, SourceFault> {
        if self.is_over(index) {
            return Err(SourceFault::Expired);
        }
        let len = self.fetch.len;
        let start = Bytes(first * BLOCK_LEN.0);
        let end = Bytes((first + count) * BLOCK_LEN.0).min(len);
        let Place { address, url, .. } = &self.list[index];
        let siblings = address.as_ref().map(|_| self.clients.siblings.agent());
        let agent = siblings.as_ref().unwrap_or(&self.clients.origins);
        source::open(agent, url, start, end, len)
    }

    fn failed(&mut self, index: usize, fault: &SourceFault) {
        let place = &self.list[index];
        let object = self.fetch.object;
        let kind = if place.address.is_some() { "Sibling" } else { "Origin" };
        tracing::debug!(%object, index, kind, %fault, "source failed");
        if *fault == SourceFault::Status(403) && place.expires.is_some() {
            self.refused = true;
        }
        let Some(address) = &place.address else { return };
        let lied = matches!(fault, SourceFault::WrongBytes(_));
        let span = if lied { LIED_FOR } else { FAILED_FOR };
        self.clients.shunned.add(address, self.ledger.now() + span);
        if lied {
            tracing::warn!(sibling = address, %object, %fault, "sibling left out");
            let text =
                format!("the appliance at {address} {fault} of {object}: look at its drives");
            self.ledger.note("fill", text);
        }
    }

    fn received(&self, index: usize, len: Bytes) {
        let FillCounters { from_siblings, from_origins, from_outside, .. } = self.fetched;
        if self.is_outside(index) {
            from_outside.fetch_add(len.0, Ordering::Relaxed);
        }
        let is_sibling = self.list[index].address.is_some();
        let from = if is_sibling { from_siblings } else { from_origins };
        from.fetch_add(len.0, Ordering::Relaxed);
    }
}

/// How long to wait, if control names nobody and says so.
fn waits(told: &Sources) -> Option<Nanos> {
    let wait_s = told.wait_s.filter(|_| told.sources.is_empty())?;
    Some(Nanos::seconds(wait_s.clamp(WAIT_MIN_S, WAIT_MAX_S)))
}

/// What control says, if it makes sense, and the manifest's own where no origin is among it.
fn list(told: Vec<Source>, manifest: &[String]) -> Vec<Place> {
    let place = |source: Source| {
        let Source { url, address, expires_unix_s, same_site } = source;
        // Siblings are never spoken to without TLS.
        let is_plain_origin = address.is_none() && url.starts_with("http://");
        let is_known = url.starts_with("https://") || is_plain_origin;
        is_known.then(|| Place {
            url,
            address,
            expires: expires_unix_s.map(UnixSeconds),
            same_site,
        })
    };
    let mut list: Vec<Place> = told.into_iter().filter_map(place).take(PLACES_MAX / 2).collect();
    if list.iter().all(|place| place.address.is_some()) {
        let own = |url: &String| Place {
            url: url.clone(),
            address: None,
            expires: None,
            same_site: false,
        };
        list.extend(manifest.iter().take(PLACES_MAX / 2).map(own));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str, address: Option<&str>) -> Source {
        Source {
            url: url.to_owned(),
            address: address.map(str::to_owned),
            expires_unix_s: None,
            same_site: false,
        }
    }

    fn urls(told: Vec<Source>) -> Vec<String> {
        let manifest = ["https://origin/film/v.mp4".to_owned()];
        list(told, &manifest).into_iter().map(|place| place.url).collect()
    }

    #[test]
    fn the_manifests_own_places_come_last_and_only_where_control_names_no_origin() {
        let sibling = source("https://a2.internal/v1/objects/1", Some("10.0.0.2:9443"));
        let origin = source("https://bucket/v?X-Amz-Signature=1", None);
        assert_eq!(urls(vec![]), ["https://origin/film/v.mp4"]);
        let with_sibling = urls(vec![sibling.clone()]);
        assert_eq!(with_sibling, [&*sibling.url, "https://origin/film/v.mp4"]);
        assert_eq!(urls(vec![sibling.clone(), origin.clone()]), [sibling.url, origin.url]);
    }

    #[test]
    fn who_is_no_master_has_only_what_control_says_and_waits_where_that_is_nothing() {
        let told = |text: &str| serde_json::from_str::<Sources>(text).unwrap();
        let waiting = told(r#"{"sources": [], "only": true, "wait_s": 7}"#);
        assert_eq!((waits(&waiting), waiting.only), (Some(Nanos::seconds(7)), true));
        let hasty = told(r#"{"sources": [], "only": true, "wait_s": 0}"#);
        assert_eq!(waits(&hasty), Some(Nanos::seconds(WAIT_MIN_S)));
        let endless = Sources { wait_s: Some(u64::MAX), ..hasty };
        assert_eq!(waits(&endless), Some(Nanos::seconds(WAIT_MAX_S)));
        let sources = vec![source("https://a2.internal/v1/objects/1", Some("10.0.0.2:9443"))];
        assert_eq!(waits(&Sources { sources, ..endless }), None, "a sibling has it");
        // As a control of a release before says it.
        let before = told(r#"{"sources": []}"#);
        assert_eq!((waits(&before), before.only, before.escalated), (None, false, None));
        assert!(list(before.sources, &[]).is_empty());
    }

    #[test]
    fn control_that_is_paused_is_waited_for_and_one_that_is_gone_is_not() {
        let at = |seconds| Instant(0) + Nanos::seconds(seconds);
        let late = ControlError::Late("timeout: global".to_owned());
        let busy = ControlError::Status { status: 503, text: String::new() };
        let gone = ControlError::Unreachable("connection refused".to_owned());
        let control = Busy::default();
        assert!(!control.is_short(at(0), &gone));
        assert_eq!([5, 64, 65].map(|now| control.is_short(at(now), &late)), [true, true, false]);
        assert!(control.is_short(at(66), &busy), "it is there");
        assert!(control.is_short(at(67), &late), "for another minute");
        assert!(!control.is_short(at(127), &late));
        assert!(!control.is_short(at(1000), &late), "it is away until it answers");
        control.answered();
        assert!(control.is_short(at(128), &late));
        assert!(control.is_short(at(189), &late), "nobody asked for long");
        let control = Busy::default();
        let busy = (1000..1930).step_by(30).map(|now| control.is_short(at(now), &busy));
        assert_eq!(busy.filter(|is_short| *is_short).count(), 30, "15 minutes");
        assert!(!control.is_short(at(1931), &late));
    }

    #[test]
    fn it_is_told_once_in_a_while_that_objects_are_fetched_from_further_away() {
        let (said, at) = (Said::default(), |seconds| Instant(0) + Nanos::seconds(seconds));
        let told = [0, 1, 59, 60, 61].map(|seconds| said.is_due(at(seconds)));
        assert_eq!(told, [true, false, false, true, false]);
    }

    #[test]
    fn a_sibling_is_never_spoken_to_without_tls_and_no_file_is_read() {
        let told =
            vec![source("http://a2/1", Some("10.0.0.2:80")), source("file:///etc/passwd", None)];
        assert_eq!(urls(told), ["https://origin/film/v.mp4"]);
    }

    #[test]
    fn a_sibling_is_left_out_until_its_time_is_over() {
        let shunned = Shunned::default();
        shunned.add("a2:1", Instant(100));
        shunned.add("a2:1", Instant(50));
        assert!(shunned.has("a2:1", Instant(99)) && !shunned.has("a2:1", Instant(100)));
        assert!(!shunned.has("a3:1", Instant(0)));
    }
}

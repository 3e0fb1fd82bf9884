//! Where the object that is being filled may be fetched, best first.
//!
//! ```text
//! control ── siblings, then origins, with an expiry each ──> places
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
use wire::v1::identity::Source;

use crate::clock;
use crate::counters::FillCounters;
use crate::lock::lock;
use crate::membership::client::ControlClient;
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
}

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
        let mut places = Self { ledger, clients, fetched, fetch, list, asked, refused: false };
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
        let answer = self.clients.control.as_ref().map(|control| control.sources(object));
        let told = match answer {
            Some(Ok(told)) => told.sources,
            Some(Err(error)) => {
                tracing::debug!(%object, %error, "control names no sources");
                Vec::new()
            }
            None => Vec::new(),
        };
        self.list = list(told, &self.fetch.urls);
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
        let FillCounters { from_siblings, from_origins, from_outside } = self.fetched;
        if self.is_outside(index) {
            from_outside.fetch_add(len.0, Ordering::Relaxed);
        }
        let is_sibling = self.list[index].address.is_some();
        let from = if is_sibling { from_siblings } else { from_origins };
        from.fetch_add(len.0, Ordering::Relaxed);
    }
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

//! A control plane of a few lines: the newest manifest, block hashes, and the reports it got.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;
use identity::member::Member;
use model::id::DocumentId;
use model::manifest::{AssetVersion, Manifest};
use wire::convert::{document_out, short_manifest_out};
use wire::v1::manifest::Lacking;
use wire::v1::report::{Report, ReportReply};
use wire::v1::signed::Kind;

use super::Film;
use super::fleet::Fleet;
use super::http::{Request, Server, answer};

pub struct Control {
    state: Arc<Mutex<State>>,
    server: Server,
}

#[derive(Default)]
struct State {
    appliance: String,
    generation: u64,
    manifest: Vec<u8>,
    /// Of all manifests so far.
    documents: BTreeMap<String, Vec<u8>>,
    blocks: BTreeMap<String, Vec<u8>>,
    report: Option<Report>,
    reports: u64,
    /// The state of its inventory that is known.
    known: u64,
    /// What the appliance says it holds, from all its reports.
    held: BTreeSet<String>,
    /// Objects that it said it holds no more, and when it said so.
    gone: Vec<(Instant, String)>,
    /// Who else can serve, and where.
    siblings: BTreeMap<String, String>,
}

/// How often the appliance reports.
const INTERVAL_MS: u64 = 100;

impl Control {
    /// Speaks to members of its fleet only.
    pub(crate) fn start(appliance: &str, fleet: &Fleet) -> Result<Self> {
        let state = State { appliance: appliance.to_owned(), ..State::default() };
        let state = Arc::new(Mutex::new(state));
        let served = Arc::clone(&state);
        let tls = Arc::new(fleet.credentials(&Member::control())?.server_tls(false)?);
        let answer = Arc::new(move |request: &Request, out: &mut dyn Write| {
            lock(&served).answer(request, out)
        });
        let server = Server::start_tls(tls, answer)?;
        Ok(Self { state, server })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.server.address)
    }

    pub(crate) fn publish(&self, manifest: &Manifest, films: &[&Film], fleet: &Fleet) {
        let mut state = lock(&self.state);
        let named = |version: &Arc<AssetVersion>| {
            let line = document_out(version);
            let id = DocumentId::of(&line);
            state.documents.insert(id.to_string(), line);
            id
        };
        let wire = short_manifest_out(manifest, named);
        for object in films.iter().flat_map(|film| &film.objects) {
            state.blocks.insert(object.id().to_string(), wire::v1::blocks::encode(&object.blocks));
        }
        let payload = serde_json::to_vec(&wire).expect("maps with string keys make JSON");
        state.manifest = fleet.signer.sign(Kind::Manifest, &payload);
        state.generation = manifest.generation.0;
    }

    /// From now on these can serve too, at these base URLs.
    pub fn set_siblings(&self, siblings: BTreeMap<String, String>) {
        lock(&self.state).siblings = siblings;
    }

    /// The last report, and how many there were.
    pub fn report(&self) -> (Report, u64) {
        let state = lock(&self.state);
        (state.report.clone().unwrap_or_default(), state.reports)
    }

    /// The ids of the objects that the appliance says it holds.
    pub fn held(&self) -> BTreeSet<String> {
        lock(&self.state).held.clone()
    }

    /// Objects that the appliance said, since then, that it holds no more, and when.
    pub fn gone_since(&self, since: Instant) -> Vec<(Instant, String)> {
        let state = lock(&self.state);
        state.gone.iter().filter(|(at, _)| since <= *at).cloned().collect()
    }
}

impl State {
    fn answer(&mut self, request: &Request, out: &mut dyn Write) -> std::io::Result<()> {
        let parts: Vec<&str> = request.target.split(['/', '?', '&']).skip(1).collect();
        match (request.method.as_str(), parts.as_slice()) {
            ("POST", ["v1", "appliances", name, "report"]) if *name == self.appliance => {
                let Ok(report) = serde_json::from_slice::<Report>(&request.body) else {
                    return answer(out, 400, b"{}");
                };
                let reply =
                    serde_json::to_vec(&self.take(report)).map_err(std::io::Error::other)?;
                answer(out, 200, &reply)
            }
            ("GET", ["v1", "appliances", _, "manifest", known, ..]) => {
                if *known == format!("known={}", self.generation) {
                    return answer(out, 204, b"");
                }
                answer(out, 200, &self.manifest)
            }
            ("POST", ["v1", "appliances", _, "documents"]) => {
                let Ok(lacking) = serde_json::from_slice::<Lacking>(&request.body) else {
                    return answer(out, 400, b"{}");
                };
                let lines = lacking.documents.iter().filter_map(|id| self.documents.get(id));
                let lines: Vec<u8> = lines.flat_map(|line| [&line[..], b"\n"].concat()).collect();
                answer(out, 200, &lines)
            }
            ("GET", ["v1", "objects", object, "blocks"]) => match self.blocks.get(*object) {
                Some(hashes) => answer(out, 200, hashes),
                None => answer(out, 404, b"{}"),
            },
            _ => answer(out, 404, b"{}"),
        }
    }

    fn take(&mut self, report: Report) -> ReportReply {
        // It reads no numbers: it is a control of the release before.
        let before = self.report.as_ref().filter(|before| before.start_id == report.start_id);
        let (known, inventory) = (before.map_or(0, |_| self.known), &report.inventory);
        let fits = inventory.from == 0 || inventory.from == known;
        if inventory.from == 0 {
            self.held.clear();
        }
        if fits {
            self.held.extend(inventory.held.iter().cloned());
            for gone in &inventory.gone {
                if self.held.remove(gone) {
                    self.gone.push((Instant::now(), gone.clone()));
                }
            }
        }
        let inventory = if fits { inventory.to } else { 0 };
        self.known = inventory;
        self.report = Some(report);
        self.reports += 1;
        let siblings = self.siblings.clone();
        ReportReply {
            generation: self.generation,
            inventory,
            interval_ms: INTERVAL_MS,
            siblings,
            ..ReportReply::default()
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

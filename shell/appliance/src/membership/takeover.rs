//! This appliance's part in its site: it asks its siblings for their clients, tells the agent how
//! much it wants each service address, and has clients reset when an address has come.
//!
//! ```text
//! siblings ── clients, four times a second ──> takeover::Member ──> priorities ──> agent
//! agent ───── addresses that are here ───────>        │         ──> tickles ─────> agent
//!                                                     └───────────> drained ─────> workers
//! ```
//!
//! One thread, and for the moment of a question one for each sibling that is asked: at most
//! `2 * takeover::NEAR`. A round takes O(changes of the siblings' clients).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use identity::member::Member as Identity;
use model::id::{ApplianceId, Generation};
use model::machine::Machine as _;
use model::units::{Instant, Nanos};
use takeover::{Action, Event, Member, Told};
use wire::v1::agent::{Answer, Request};
use wire::v1::clients::Clients as Answered;

use crate::lock::lock;
use crate::membership::agent_link;
use crate::membership::member::MemberClient;
use crate::serving::clients::{Busy, Clients, Word};
use crate::storage::shared::Shared;

/// Between two rounds, in which siblings and agent are asked.
const ROUND: Nanos = Nanos::millis(250);
/// Between two looks at what is due: clients are tickled in batches.
const TICK: Nanos = Nanos::millis(50);
/// For a sibling's answer: on one segment it takes a millisecond.
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// For the agent's answer: it may have to start a program.
const AGENT_MAX: Duration = Duration::from_secs(1);
/// Without an answer of the agent for so long no address is here. It answers four times a second.
const AGENT_SILENT: Nanos = Nanos::seconds(1);
/// 131,072 clients with long addresses.
const ANSWER_LEN_MAX: u64 = 24 << 20;

/// Where siblings let others fetch, as control tells it. Kept when control is away.
pub(crate) type Peers = Arc<Mutex<BTreeMap<ApplianceId, String>>>;

/// What is needed to take part.
#[derive(Clone)]
pub struct Config {
    /// The socket of `nearcast-agent addresses`.
    pub agent: PathBuf,
    pub base_url: String,
    pub clients: Arc<Clients>,
    pub workers: usize,
    /// Brings a word to every worker.
    pub tell: Arc<dyn Fn(Word) + Send + Sync>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("agent", &self.agent).finish_non_exhaustive()
    }
}

/// What this appliance knows of its part, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct Status {
    pub counters: takeover::Counters,
    pub taken: usize,
    pub clients: usize,
}

struct Part<'a> {
    shared: &'a Shared,
    config: &'a Config,
    member: Member,
    generation: Option<Generation>,
    /// Siblings that owe an answer.
    asked: BTreeSet<ApplianceId>,
    /// The answer of the workers to the last question.
    busy: Option<Arc<Busy>>,
    /// The agent's last complaint, so that it is logged once.
    said: Option<String>,
    /// The agent's last answer.
    answered: Instant,
}

/// Takes part until all must stop; gives the addresses away then.
pub(crate) fn run(
    shared: &Shared,
    id: ApplianceId,
    client: &MemberClient,
    peers: &Peers,
    config: &Config,
    status: &Mutex<Option<Status>>,
) {
    let (tell, told) = channel();
    let mut part = Part {
        shared,
        config,
        member: Member::new(id),
        generation: None,
        asked: BTreeSet::new(),
        busy: None,
        said: None,
        answered: shared.ledger.now(),
    };
    // A sibling that is away keeps its thread waiting and nobody else.
    std::thread::scope(|scope| {
        let mut next_round = shared.ledger.now();
        loop {
            let now = shared.ledger.now();
            for (id, told) in told.try_iter() {
                part.hear(&id, told);
            }
            if next_round <= now {
                next_round = now + ROUND;
                for (id, known) in part.siblings_to_ask() {
                    let address = lock(peers).get(&id).cloned();
                    let tell = tell.clone();
                    let asking = id.clone();
                    let ask = move || {
                        let told = address.and_then(|at| ask_sibling(client, &asking, &at, known));
                        let _ = tell.send((asking, told));
                    };
                    // Without a thread it is asked again in the next round.
                    if Builder::new().spawn_scoped(scope, ask).is_err() {
                        part.hear(&id, None);
                    }
                }
                part.round();
                *lock(status) = Some(part.status());
            } else {
                part.handle(Event::Tick);
            }
            if !shared.ledger.sleep_until(now + TICK) {
                return part.leave();
            }
        }
    });
}

impl Part<'_> {
    /// Those that do not owe an answer.
    fn siblings_to_ask(&mut self) -> Vec<(ApplianceId, (u64, u64))> {
        let asked = self.member.asked().filter(|(id, _)| !self.asked.contains(*id));
        let asked: Vec<_> = asked.map(|(id, known)| (id.clone(), known)).collect();
        self.asked.extend(asked.iter().map(|(id, _)| id.clone()));
        asked
    }

    fn hear(&mut self, id: &ApplianceId, told: Option<Told>) {
        self.asked.remove(id);
        if let Some(told) = told {
            self.handle(Event::Heard { member: id, told });
        }
    }

    fn round(&mut self) {
        let manifest = self.shared.ledger.ask(|holdings| holdings.manifest().cloned());
        let Some(manifest) = manifest else { return };
        if self.generation != Some(manifest.generation) {
            self.generation = Some(manifest.generation);
            self.handle(Event::Site(&manifest.site));
            // Before the first priorities: an address that is here, as after a restart that nobody
            // noticed, must not be given away.
            self.ask_agent(Request::Held);
            self.handle(Event::Serving(true));
        }
        self.handle(Event::Tick);
        self.ask_agent(Request::Addresses { wanted: self.member.priorities() });
        let mut busy = self.busy.take().map(|busy| busy.found()).unwrap_or_default();
        let taken = self.member.taken();
        // Not drained yet: responses may begin at any moment.
        let drained = self.member.drained();
        busy.extend(taken.iter().filter(|address| !drained.contains(address)));
        self.config.clients.tell(self.member.waits(), busy);
        if !taken.is_empty() {
            let busy = Arc::new(Busy::new(taken, self.config.workers));
            (self.config.tell)(Word::Busy(Arc::clone(&busy)));
            self.busy = Some(busy);
        }
    }

    fn status(&self) -> Status {
        Status {
            counters: self.member.counters(),
            taken: self.member.taken().len(),
            clients: self.member.clients(),
        }
    }

    fn handle(&mut self, event: Event<'_>) {
        self.member.handle(self.now(), event);
        while let Some(action) = self.member.poll() {
            match action {
                Action::Tickle(clients) => {
                    tracing::info!("{} clients are tickled", clients.len());
                    self.ask_agent(Request::Tickle { clients });
                }
                Action::Drain(addresses) => {
                    tracing::info!("addresses that are drained: {}", list(&addresses));
                    let url = Arc::from(self.config.base_url.as_str());
                    (self.config.tell)(Word::Drain(url, addresses.into()));
                }
            }
        }
    }

    fn now(&self) -> Instant {
        self.shared.ledger.now()
    }

    /// Without an agent nothing moves; it is asked again in the next round.
    fn ask_agent(&mut self, request: Request) {
        let held = match ask(&self.config.agent, request) {
            Ok(held) => held,
            Err(error) => {
                if self.said.as_ref() != Some(&error) {
                    tracing::warn!(error, "no service address moves");
                    let text = format!("service addresses do not move: {error}");
                    self.shared.ledger.note("agent", text);
                    self.said = Some(error);
                }
                // An agent that ended gave the addresses away, and one that hangs may have.
                if AGENT_SILENT <= self.now().since(self.answered) {
                    self.member.handle(self.now(), Event::Held(&[]));
                }
                return;
            }
        };
        self.answered = self.now();
        if self.said.take().is_some() {
            tracing::info!("nearcast-agent moves service addresses again");
        }
        if let Some(held) = held {
            let before = self.member.taken();
            self.member.handle(self.now(), Event::Held(&held));
            let taken = self.member.taken();
            if taken != before {
                tracing::warn!("service addresses of siblings that are here: {}", list(&taken));
            }
        }
    }

    fn leave(&mut self) {
        self.member.handle(self.now(), Event::Serving(false));
        self.ask_agent(Request::Addresses { wanted: self.member.priorities() });
    }
}

/// Service addresses, for the log.
fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn ask_sibling(
    client: &MemberClient,
    id: &ApplianceId,
    address: &str,
    (start, known): (u64, u64),
) -> Option<Told> {
    let sibling = Identity::appliance(id.as_str());
    client.dial.set(&sibling, address);
    let url = format!("https://{}/v1/clients?start={start}&known={known}", sibling.host());
    let request = client.agent().get(&url);
    let request = request.config().timeout_global(Some(ANSWER_MAX)).build();
    let answered = request.call().map_err(|error| error.to_string()).and_then(|mut response| {
        if response.status() != 200 {
            return Err(format!("it answers {}", response.status()));
        }
        let body = response.body_mut().with_config().limit(ANSWER_LEN_MAX);
        body.read_json::<Answered>().map_err(|error| error.to_string())
    });
    match answered {
        Ok(Answered { start, from, to, open, gone, waits, busy }) => {
            Some(Told { start, from, to, open, gone, waits, busy })
        }
        Err(error) => {
            tracing::debug!(sibling = %id, error, "a sibling does not tell its clients");
            None
        }
    }
}

/// The addresses that the agent says are here, if it was asked for them.
fn ask(agent: &Path, request: Request) -> Result<Option<Vec<IpAddr>>, String> {
    match agent_link::ask(agent, request, AGENT_MAX)? {
        Answer::Held(held) => Ok(Some(held)),
        Answer::Tickled(_) => Ok(None),
        Answer::Drives(_)
        | Answer::Trimmed { .. }
        | Answer::Health(_)
        | Answer::Routes(_)
        | Answer::RoutesPart(_)
        | Answer::Refused(_) => Err(agent_link::SOMETHING_ELSE.to_owned()),
    }
}

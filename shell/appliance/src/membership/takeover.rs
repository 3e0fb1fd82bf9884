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
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use identity::member::Member as Identity;
use model::id::{ApplianceId, Generation};
use model::machine::Machine as _;
use model::units::{Instant, Nanos};
use takeover::{Action, Client, Event, Known, Member, Told};
use wire::v1::agent::{Answer, Held, Request};
use wire::v1::clients::{ANSWER_LEN_MAX, Clients as Answered};

use crate::lock::lock;
use crate::membership::agent_link;
use crate::membership::member::MemberClient;
use crate::serving::clients::{Busy, Clients, Word};
use crate::storage::shared::Shared;

/// Between two rounds, in which siblings and agent are asked.
const ROUND: Nanos = Nanos::millis(250);
/// Between two looks at what is due: clients are tickled in batches, and long lists come in parts.
const TICK: Nanos = Nanos::millis(50);
/// For a sibling to take a connection, and to begin its answer: on one segment that takes a
/// millisecond.
const ANSWER_MAX: Duration = Duration::from_millis(300);
/// For the rest of the answer, by when it is silent: it has no more than some thousand clients.
const REST_MAX: Duration = Duration::from_secs(2);
/// For the agent's answer: it may have to start a program.
const AGENT_MAX: Duration = Duration::from_secs(1);
/// Without an answer of the agent for so long no address is here. It answers four times a second.
const AGENT_SILENT: Nanos = Nanos::seconds(1);
/// Clients of whom not one was sent a packet: fewer may all have left together. Arbitrary.
const MANY: usize = 10;

/// Where siblings let others fetch, as control tells it. Kept when control is away.
pub(crate) type Peers = Arc<Mutex<BTreeMap<ApplianceId, String>>>;

/// Addresses that the agent leaves out, each with its reason.
type LeftOut = Vec<(IpAddr, String)>;

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
    left_out: LeftOut,
    /// Many clients were to be tickled, and none was.
    tickles_nobody: bool,
}

/// What came of a question to the agent.
enum Asked<T> {
    Answered(T),
    /// It is there, and does not do all of it.
    Refused,
    Silent,
}

/// A word of whoever asks a sibling.
enum Heard {
    /// The answer has begun.
    Begun,
    /// It has ended, or failed.
    Ended(Option<Told>),
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
        left_out: Vec::new(),
        tickles_nobody: false,
    };
    // A sibling that is away keeps its thread waiting and nobody else.
    std::thread::scope(|scope| {
        let mut next_round = shared.ledger.now();
        loop {
            let now = shared.ledger.now();
            for (id, heard) in told.try_iter() {
                part.hear(&id, heard);
            }
            let is_round = next_round <= now;
            for (id, known) in part.siblings_to_ask(is_round) {
                let address = lock(peers).get(&id).cloned();
                let tell = tell.clone();
                let asking = id.clone();
                let ask = move || {
                    let begun = || {
                        let _ = tell.send((asking.clone(), Heard::Begun));
                    };
                    let told =
                        address.and_then(|at| ask_sibling(client, &asking, &at, known, begun));
                    let _ = tell.send((asking, Heard::Ended(told)));
                };
                // Without a thread it is asked again in the next round.
                if Builder::new().spawn_scoped(scope, ask).is_err() {
                    part.hear(&id, Heard::Ended(None));
                }
            }
            if is_round {
                next_round = now + ROUND;
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
    /// Those that do not owe an answer; between rounds, those whose list goes on.
    fn siblings_to_ask(&mut self, is_round: bool) -> Vec<(ApplianceId, Known)> {
        let is_due = |known: &Known| is_round || known.after.is_some();
        let asked = self.member.asked();
        let asked = asked.filter(|(id, known)| is_due(known) && !self.asked.contains(*id));
        let asked: Vec<_> = asked.map(|(id, known)| (id.clone(), known)).collect();
        self.asked.extend(asked.iter().map(|(id, _)| id.clone()));
        asked
    }

    fn hear(&mut self, id: &ApplianceId, heard: Heard) {
        let told = match heard {
            Heard::Begun => return self.handle(Event::Answers(id)),
            Heard::Ended(told) => told,
        };
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
            self.move_addresses(Request::Held);
            self.handle(Event::Serving(true));
        }
        self.handle(Event::Tick);
        self.move_addresses(Request::Addresses { wanted: self.member.priorities() });
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
                Action::Tickle(clients) => self.tickle(clients),
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

    /// The agent's answer. Without an agent nothing moves; it is asked again in the next round.
    fn ask_agent<T>(
        &mut self,
        request: Request,
        read: impl FnOnce(Answer) -> Option<T>,
    ) -> Asked<T> {
        let asked = agent_link::hear(&self.config.agent, request, AGENT_MAX).and_then(|answer| {
            if let Answer::Refused(why) = answer {
                return Ok(Err(agent_link::refused(&why)));
            }
            read(answer).map(Ok).ok_or_else(|| agent_link::SOMETHING_ELSE.to_owned())
        });
        match asked {
            Ok(Ok(answer)) => {
                self.answered = self.now();
                Asked::Answered(answer)
            }
            Ok(Err(error)) => {
                self.answered = self.now();
                self.complain(error);
                Asked::Refused
            }
            Err(error) => {
                self.complain(error);
                // An agent that ended gave the addresses away, and one that hangs may have.
                if AGENT_SILENT <= self.now().since(self.answered) {
                    self.member.handle(self.now(), Event::Held(&[]));
                }
                Asked::Silent
            }
        }
    }

    /// Once for each cause.
    fn complain(&mut self, error: String) {
        if self.said.as_ref() != Some(&error) {
            tracing::warn!(error, "no service address moves");
            let text = format!("service addresses do not move: {error}");
            self.shared.ledger.note("agent", text);
            self.said = Some(error);
        }
    }

    fn end_complaint(&mut self) {
        if self.said.take().is_some() {
            tracing::info!("nearcast-agent moves service addresses again");
        }
    }

    /// Asks the agent for addresses, or only which of them are here.
    fn move_addresses(&mut self, request: Request) {
        let is_told = matches!(request, Request::Addresses { .. });
        let held = match self.ask_agent(request, held) {
            Asked::Answered(held) => {
                self.end_complaint();
                held
            }
            // Of many addresses one may have failed: which are here is another question.
            Asked::Refused => match self.ask_agent(Request::Held, held) {
                Asked::Answered(held) => Held { left_out: self.left_out.clone(), ..held },
                Asked::Refused | Asked::Silent => return,
            },
            Asked::Silent => return,
        };
        if is_told && self.left_out != held.left_out {
            self.leave_out(held.left_out);
        }
        let before = self.member.taken();
        self.member.handle(self.now(), Event::Elected(held.is_elected));
        self.member.handle(self.now(), Event::Held(&held.here));
        let taken = self.member.taken();
        if taken != before {
            tracing::warn!("service addresses of siblings that are here: {}", list(&taken));
        }
    }

    fn leave_out(&mut self, left_out: LeftOut) {
        for (address, why) in left_out.iter().filter(|one| !self.left_out.contains(one)) {
            let text = format!("service address {address} does not come here: {why}");
            tracing::warn!("{text}");
            self.shared.ledger.note("agent", text);
        }
        if left_out.is_empty() {
            tracing::info!("the agent leaves no service address out any more");
        }
        let addresses: Vec<IpAddr> = left_out.iter().map(|(address, _)| *address).collect();
        self.left_out = left_out;
        self.member.handle(self.now(), Event::LeftOut(&addresses));
    }

    /// What counts is the number of packets that the agent says it has sent.
    fn tickle(&mut self, clients: Vec<Client>) {
        let count = clients.len();
        let sent = self.ask_agent(Request::Tickle { clients }, |answer| {
            if let Answer::Tickled(sent) = answer { Some(sent) } else { None }
        });
        let Asked::Answered(sent) = sent else { return };
        self.end_complaint();
        let sent = sent.min(u64::try_from(count).unwrap_or(u64::MAX));
        tracing::info!("{sent} of {count} clients are tickled");
        let nobody = sent == 0 && MANY <= count;
        if nobody && !self.tickles_nobody {
            let text = format!(
                "none of {count} clients of a sibling was tickled, so that they wait for their own \
                 timeouts: is `tickle` false in agent.toml, or has the agent no CAP_NET_RAW? Its \
                 log says"
            );
            tracing::warn!("{text}");
            self.shared.ledger.note("agent", text);
        }
        self.tickles_nobody = nobody || (self.tickles_nobody && sent == 0);
        self.member.handle(self.now(), Event::Tickled(sent));
    }

    fn leave(&mut self) {
        self.member.handle(self.now(), Event::Serving(false));
        self.move_addresses(Request::Addresses { wanted: self.member.priorities() });
    }
}

/// Service addresses, for the log.
fn list(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A part of a sibling's list. Calls `begun` when its answer begins, however long the rest takes.
fn ask_sibling(
    client: &MemberClient,
    id: &ApplianceId,
    address: &str,
    Known { start, state, after }: Known,
    begun: impl FnOnce(),
) -> Option<Told> {
    let sibling = Identity::appliance(id.as_str());
    client.dial.set(&sibling, address);
    let after = after.map(|(at, from)| format!("&after={at}/{from}")).unwrap_or_default();
    let url = format!("https://{}/v1/clients?start={start}&known={state}{after}", sibling.host());
    let request = client.agent().get(&url).config();
    let request = request.timeout_connect(Some(ANSWER_MAX));
    let request = request.timeout_recv_response(Some(ANSWER_MAX));
    let request = request.timeout_recv_body(Some(REST_MAX)).build();
    let answered = request.call().map_err(|error| error.to_string()).and_then(|mut response| {
        if response.status() != 200 {
            return Err(format!("it answers {}", response.status()));
        }
        begun();
        let most = u64::try_from(ANSWER_LEN_MAX).expect("some MiB");
        let body = response.body_mut().with_config().limit(most);
        body.read_json::<Answered>().map_err(|error| error.to_string())
    });
    match answered {
        Ok(Answered { start, from, to, open, gone, next, waits, busy }) => {
            Some(Told { start, from, to, open, gone, next, waits, busy })
        }
        Err(error) => {
            tracing::debug!(sibling = %id, error, "a sibling does not tell its clients");
            None
        }
    }
}

/// What the agent says of addresses.
fn held(answer: Answer) -> Option<Held> {
    match answer {
        Answer::Held(held) => Some(held),
        Answer::Tickled(_)
        | Answer::Drives(_)
        | Answer::Trimmed { .. }
        | Answer::Health(_)
        | Answer::Routes(_)
        | Answer::RoutesPart(_)
        | Answer::Refused(_) => None,
    }
}

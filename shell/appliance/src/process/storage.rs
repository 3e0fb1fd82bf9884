//! The storage side of an appliance, as `main` sees it: start it, feed workers, stop it.
//!
//! ```text
//!           manifest_link ── manifest ─> shared <── index, inventory ── drives (at the start)
//!                                         │  ^
//!   report <── control_link   keeper: plan│  ├──── filler x N: source -> drive -> publish
//!          tend x drives: evict, drop parts │  ├──── audit: index against files
//!                                         │  ├──── scrub, verify: blocks against hashes
//!                                         │  ├──── mover: objects from drive to drive
//!                                         │  ├──── peer: published objects ──> siblings
//!                                         │  └──── takeover: addresses of the site
//!                                         v
//!                           sink([News]) ──> every worker's mailbox
//! ```
//!
//! All threads are plain ones with blocking I/O: none of them is on the serve path, and there are
//! few. `Storage::start` returns when the indexes are loaded: what is there is served at once.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use identity::credentials::{Credentials, CredentialsError};
use identity::enrol::Address;
use model::drives::{DriveIndex, DriveSet};
use model::extent::Extent;
use model::id::{ApplianceId, ObjectId};
use model::limits::DRIVES_MAX;
use model::status::{DriveStatus, FillStatus};
use model::units::{BitsPerSecond, Bytes, Nanos};
use rustix::io::Errno;
pub use upkeep::Sample;
use upkeep::{Cause, Drive as _, Ledger as _, at_once};
use ureq::tls::TlsConfig;

pub use crate::counters::Serving;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::counters::{FillCounters, IntegrityCounters, PeerCounters, StorageCounters, now};
use crate::demand::DemandCounters;
use crate::filling::filler::{self, Paces};
use crate::filling::peer::{self, PeerConfig};
use crate::filling::places::{Clients, Said, Shunned};
use crate::lock::lock;
use crate::membership::client::ControlClient;
pub use crate::membership::client::Front;
pub use crate::membership::control_link::About;
use crate::membership::control_link::{self, Writer};
use crate::membership::demand;
use crate::membership::expected;
use crate::membership::manifest_link::{self, Offered};
use crate::membership::member::{self, MemberClient, Own};
use crate::membership::routes::Wish;
use crate::membership::state_file::{StateError, StateFile};
use crate::membership::takeover::{self, Peers};
use crate::storage::absence;
use crate::storage::drives::{Drive, Loaded, OpenError, number};
use crate::storage::gate::Rules;
use crate::storage::ledger::Ledger;
pub use crate::storage::ledger::News;
use crate::storage::mover;
use crate::storage::shared::Shared;
use crate::storage::slots::{Aside, Slot, Slots};
use crate::storage::source::{self, TrustError};
use crate::storage::tiering::{self, Tier, TieringStatus};
use crate::told::Shares;
use settings::Text;

/// What the storage side needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    pub appliance: ApplianceId,
    /// Directory of the last manifest, and of the identity.
    pub state: PathBuf,
    /// Who this appliance is in its fleet.
    pub credentials: Credentials,
    /// Drives, in the order of their `DriveIndex`.
    pub drives: Vec<PathBuf>,
    /// Drives that are known not to answer: they are not asked.
    pub silent: DriveSet,
    /// Control; without it, the last manifest is filled and served.
    pub control: Option<ControlConfig>,
    /// Whether and how siblings may fetch from here.
    pub peer: PeerConfig,
    pub fill: FillConfig,
    /// Most memory for small objects, in each process. Beyond it they are served from drives.
    pub small_budget: Bytes,
    /// How fast each drive is scrubbed; none for not at all.
    pub scrub_rate: Option<BitsPerSecond>,
    /// How each drive is treated, in the order of `drives`; what is not in it is not held back.
    pub rules: Vec<Rules>,
    /// How objects are moved between drives; none for not at all.
    pub tiering: Option<tiering::Config>,
    /// Memory of each worker for hot blocks.
    pub hot: Bytes,
    /// Gets the keys of the site's session tickets, where there is a control.
    pub tickets: Arc<tls::Tickets>,
    /// The part in the site's service addresses; none where they do not move.
    pub takeover: Option<takeover::Config>,
    /// What the report says of this process.
    pub about: About,
}

/// Where control is.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ControlConfig {
    /// The writer's fleet address: reports go there, manifests come from there.
    pub url: Text<Address>,
    /// Fronts, which get reports too.
    #[serde(default)]
    pub fronts: Vec<Front>,
    /// How often to report, until control asks for something else.
    #[serde(default = "report_interval")]
    pub report_interval: Text<Nanos>,
}

fn report_interval() -> Text<Nanos> {
    Text(Nanos::seconds(1))
}

/// `[fill]` of the configuration.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FillConfig {
    /// Most bytes per second from all sources together.
    pub rate_max: Option<Text<BitsPerSecond>>,
    /// PEM file with more authorities to trust.
    pub trust: Option<PathBuf>,
    /// Objects fetched at the same time; 1 to `FILLERS_MAX`.
    pub concurrency: usize,
    /// How long a source may be silent within an answer, before another is asked.
    #[serde(skip)]
    pub silence_max: Nanos,
    /// Objects below this length share files of about this length (`store::unit`); 0 for a file
    /// each. The default is between the superblocks of large drives and the wait of a viewer, as
    /// units are visible as a whole: docs/operate/drives.md has more.
    pub unit: Text<Bytes>,
}

impl Default for FillConfig {
    fn default() -> Self {
        Self {
            rate_max: None,
            trust: None,
            concurrency: 4,
            silence_max: source::SILENCE_MAX,
            unit: Text(Bytes::mib(64)),
        }
    }
}

/// Why the storage side did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0} drives are configured: use 1 to {DRIVES_MAX}")]
    DriveCount(usize),
    #[error("fill concurrency is {0}: use 1 to {FILLERS_MAX}")]
    Concurrency(usize),
    #[error("no drive can be used:\n  {}", .0.join("\n  "))]
    NoDrive(Vec<String>),
    #[error(transparent)]
    State(#[from] StateError),
    /// The certificates to trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Identity(#[from] CredentialsError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// The storage side.
#[derive(Debug)]
pub struct Storage;

/// A running storage side.
pub struct StorageHandle {
    shared: Arc<Shared>,
    own: Arc<Own>,
    /// What the mover needs; none where nothing is to be moved.
    tier: Option<Arc<Tier>>,
    takeover: Arc<Mutex<Option<takeover::Status>>>,
    threads: Vec<JoinHandle<()>>,
}

/// What fillers get at once: a fifth of a second, at least four blocks.
const BURST_SHARE: Nanos = Nanos::millis(200);
const BURST_MIN: Bytes = Bytes::mib(1);
/// Between two walks of the audit.
const AUDIT_EVERY: Nanos = Nanos::seconds(6 * 3600);
/// A drive with little on it is not scrubbed again at once.
const SCRUB_PASS_MIN: Nanos = Nanos::seconds(24 * 3600);

/// More fillers than this only make each drive's writes more random.
pub const FILLERS_MAX: usize = 64;

impl Storage {
    /// Opens the drives, loads what they hold, tells `sink` of it, and starts the threads.
    /// Siblings come to `peers` (`peer::bind`), where `config.peer` says how to treat them.
    ///
    /// A drive that cannot be used is set aside and reported; this fails only if none can be.
    /// `sink` is called from several threads, one at a time, with all that happened since, in
    /// order. While it waits for a worker, those wait who have something to tell, and nobody else.
    pub fn start(
        mut config: Config,
        peers: Vec<TcpListener>,
        sink: impl FnMut(Vec<News>) + Send + 'static,
        serving: Arc<Serving>,
    ) -> Result<StorageHandle, StartError> {
        if config.drives.is_empty() || DRIVES_MAX < config.drives.len() {
            return Err(StartError::DriveCount(config.drives.len()));
        }
        if !(1..=FILLERS_MAX).contains(&config.fill.concurrency) {
            return Err(StartError::Concurrency(config.fill.concurrency));
        }
        let tls = source::trusted(config.fill.trust.as_deref())?;
        let state_file = Arc::new(StateFile::open(&config.state)?);
        let opened = open_drives(&config.drives, config.silent)?;
        let (mut slots, loaded): (Vec<Slot>, Vec<Loaded>) = opened.into_iter().unzip();
        for slot in &mut slots {
            if let Slot::Open(drive) = slot {
                let drive = Arc::get_mut(drive).expect("nobody else has it yet");
                Slots::put_behind_gate(drive, &config.rules, &serving);
            }
        }
        say_where_siblings_come(&mut config, &peers);
        let own = Arc::new(Own::new(&config.state, config.credentials.clone())?);
        let unit_len = Some(config.fill.unit.0).filter(|unit| *unit != Bytes::ZERO);
        let ledger = Ledger::new(config.small_budget, unit_len, Box::new(sink));
        let tier = open_tier(&config, &ledger)?.map(Arc::new);
        let counters = StorageCounters::new(serving, slots.len());
        let slots = Slots::new(config.drives.clone(), config.rules.clone(), slots);
        let linger = tier.as_ref().map_or(tiering::LINGER, |tier| tier.config.linger);
        let (told, told_titles) = (Shares::default(), Shares::default());
        let shared = Arc::new(Shared { ledger, slots, counters, linger, told, told_titles });
        load_rules(&shared, &state_file);
        load_manifest(&shared, &state_file, &config.appliance, &own);
        load_objects(&shared, &loaded);

        let mut handle =
            StorageHandle { shared, own, tier, takeover: Arc::default(), threads: Vec::new() };
        match handle.spawn_all(config, &tls, state_file, peers) {
            Ok(()) => Ok(handle),
            Err(error) => {
                handle.stop();
                Err(StartError::Thread(error))
            }
        }
    }
}

impl StorageHandle {
    /// Stops all threads within `STOP_MAX`. What fillers have verified and written is kept.
    pub fn stop(&mut self) {
        self.shared.stop();
        let asked = std::time::Instant::now();
        while asked.elapsed() < STOP_MAX && self.threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut left_behind = 0;
        for thread in self.threads.drain(..) {
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                let name = thread.thread().name().unwrap_or("").to_owned();
                tracing::warn!(thread = name, "still waits for a drive or a source; left behind");
                left_behind += 1;
            }
        }
        if left_behind == 0 {
            self.shared.slots.open().iter().for_each(|drive| drive.unlock());
        }
    }

    /// A worker found that a drive does not work: nothing more is read from it or written to it.
    pub fn set_aside(&self, drive: DriveIndex, cause: Cause) {
        if let Some(drive) = self.shared.slots.drive(drive) {
            at_once(self.shared.set_aside(&drive, cause));
        }
    }

    /// What the drives' own threads say of silence, and workers: `hung` are those that one found to
    /// hang. To be called a few times a second; waits for no drive.
    pub fn look_at_drives(&self, hung: DriveSet) {
        for drive in self.shared.slots.open() {
            drive.gate().look();
            let hangs = hung.contains(drive.index());
            at_once(upkeep::keeper::look(&*self.shared, &*drive, hangs));
        }
    }

    /// A worker could not read an object there; `errno` is none if its file was too short.
    pub fn read_failed(&self, object: ObjectId, extent: &Extent, errno: Option<Errno>) {
        tracing::warn!(drive = extent.drive.0, %object, ?errno, "object cannot be read");
        at_once(upkeep::keeper::read_failed(&*self.shared, object, extent, errno.map(number)));
    }

    /// A worker sent this block to a viewer: was it right? Never waits.
    pub fn verify(&self, sample: Sample) {
        if let Some(tier) = &self.tier {
            tier.note(self.shared.ledger.now(), sample.object);
        }
        self.shared.ledger.verify(sample);
    }

    /// What was found to be right and wrong since the start.
    pub fn integrity(&self) -> IntegrityCounters {
        self.shared.counters.integrity.map(now)
    }

    /// What was fetched since the start.
    pub fn fill_counters(&self) -> FillCounters {
        self.shared.counters.fill.map(now)
    }

    /// Puts an error before the operator, in the next report. Names no client and no token.
    pub fn note_error(&self, room: &'static str, text: String) {
        self.shared.ledger.note(room, text);
    }

    /// All configured drives.
    pub fn drives(&self) -> Vec<DriveStatus> {
        self.shared.drive_statuses()
    }

    /// How far fill is.
    pub fn fill(&self) -> FillStatus {
        self.shared.fill_status()
    }

    /// How long this appliance's certificate is good for.
    pub fn identity_seconds_left(&self) -> u64 {
        self.own.seconds_left()
    }

    /// How far the moves between drives are; none where there are none.
    pub fn tiering(&self) -> Option<TieringStatus> {
        self.tier.as_deref().map(Tier::status)
    }

    /// This appliance's part in its site's service addresses; none where they do not move.
    pub fn takeover(&self) -> Option<takeover::Status> {
        *lock(&self.takeover)
    }

    /// How counting goes.
    pub fn demand(&self) -> DemandCounters {
        self.shared.counters.serving.demand.counters()
    }

    /// Objects of which control expects that viewers are sent much.
    pub fn expected_objects(&self) -> u64 {
        self.shared.counters.expected_objects.load(Ordering::Relaxed)
    }

    /// What siblings got from here.
    pub fn peer(&self) -> &PeerCounters<AtomicU64> {
        &self.shared.counters.peer
    }

    fn spawn_all(
        &mut self,
        config: Config,
        tls: &TlsConfig,
        state_file: Arc<StateFile>,
        peers: Vec<TcpListener>,
    ) -> std::io::Result<()> {
        self.spawn_links(&config, Arc::clone(&state_file))?;
        self.spawn("keeper", |shared| at_once(upkeep::keeper::run(shared)))?;
        let drive_count = u8::try_from(config.drives.len()).unwrap_or(u8::MAX);
        self.spawn("audit", move |shared| {
            at_once(upkeep::audit::run(shared, drive_count, AUDIT_EVERY));
        })?;
        self.spawn("verify", |shared| at_once(upkeep::verify::run(shared)))?;
        if let Some(tier) = self.tier.clone() {
            self.spawn("mover", move |shared| mover::run(shared, &tier))?;
        }
        for index in DriveIndex::all(config.drives.len()) {
            self.spawn(&format!("drive-{index}"), move |shared| absence::run(shared, index))?;
            self.spawn(&format!("tend-{index}"), move |shared| {
                at_once(upkeep::keeper::tend(shared, index));
            })?;
            if let Some(rate) = config.scrub_rate {
                self.spawn(&format!("scrub-{index}"), move |shared| {
                    at_once(upkeep::scrub::run(shared, index, rate, SCRUB_PASS_MIN));
                })?;
            }
        }
        self.spawn_fillers(&config, tls)?;
        let clients = config.takeover.as_ref().map(|takeover| Arc::clone(&takeover.clients));
        if !config.peer.listen.is_empty() {
            let own = Arc::clone(&self.own);
            self.spawn("peers", move |shared| {
                peer::run(shared, &own, &state_file, &peers, &config.peer, clients.as_deref());
            })?;
        }
        Ok(())
    }

    /// Those that speak to control.
    fn spawn_links(&mut self, config: &Config, state_file: Arc<StateFile>) -> std::io::Result<()> {
        let Some(control) = &config.control else { return Ok(()) };
        let every = control.report_interval.0;
        if let Some(routes) = config.about.routes.clone() {
            self.spawn("routes", move |shared| routes.run(shared))?;
        }
        for front in &control.fronts {
            let link = ControlClient::front(self.member(config), front, &config.appliance);
            let about = config.about.clone();
            let client = ControlClient::front(self.member(config), front, &config.appliance);
            let wish = self.spawn_sender(config, &front.name, client)?;
            self.spawn(&format!("front-{}", front.name), move |shared| {
                control_link::run(shared, &link, &about, every, None, &wish);
            })?;
        }
        let link = self.writer(config).expect("there is a control");
        let (own, about) = (Arc::clone(&self.own), config.about.clone());
        let tickets = Arc::clone(&config.tickets);
        let peers = Peers::default();
        if let Some(takeover) = config.takeover.clone() {
            let (client, peers) = (self.member(config), Arc::clone(&peers));
            let (id, status) = (config.appliance.clone(), Arc::clone(&self.takeover));
            self.spawn("takeover", move |shared| {
                takeover::run(shared, id, &client, &peers, &takeover, &status);
            })?;
        }
        let offered = Arc::<Offered>::default();
        let keeper = Arc::clone(&state_file);
        let writer = Writer { offered: Arc::clone(&offered), tickets, peers, state_file: keeper };
        let (client, of) = (self.writer(config).expect("there is a control"), Arc::clone(&own));
        self.spawn("manifests", move |shared| {
            manifest_link::run(shared, &client, &of, &state_file, &offered);
        })?;
        let client = self.writer(config).expect("there is a control");
        let wish = self.spawn_sender(config, "writer", client)?;
        self.spawn("control-link", move |shared| {
            control_link::run(shared, &link, &about, every, Some(&writer), &wish);
        })?;
        let client = self.writer(config).expect("there is a control");
        let state = config.state.clone();
        let numbers = self.shared.ledger.ask(holdings::Holdings::numbers);
        self.shared.counters.serving.demand.set_numbers(numbers);
        self.spawn("demand", move |shared| demand::run(shared, &client, &state))?;
        self.spawn_expected(config)?;
        let at = control.url.0.clone();
        self.spawn("renewal", move |shared| member::renew(&shared.ledger, &own, &at))
    }

    /// Who asks what viewers are expected to want, where that is of use.
    fn spawn_expected(&mut self, config: &Config) -> std::io::Result<()> {
        let (Some(client), hot) = (self.writer(config), config.hot) else { return Ok(()) };
        if self.tier.is_none() && hot == Bytes::ZERO {
            return Ok(());
        }
        let tier = self.tier.clone();
        self.spawn("expected", move |shared| expected::run(shared, &client, tier.as_deref(), hot))
    }

    /// What the link to a process of the control plane hands to the thread that sends it routes.
    fn spawn_sender(
        &mut self,
        config: &Config,
        to: &str,
        client: ControlClient,
    ) -> std::io::Result<Arc<Wish>> {
        let wish = Arc::<Wish>::default();
        if let Some(routes) = config.about.routes.clone() {
            let wish = Arc::clone(&wish);
            let name = format!("routes-{to}");
            self.spawn(&name, move |shared| routes.send_on(shared, &client, &wish))?;
        }
        Ok(wish)
    }

    fn spawn_fillers(&mut self, config: &Config, tls: &TlsConfig) -> std::io::Result<()> {
        let rate_max = config.fill.rate_max.map(|rate| rate.0);
        let paces = Arc::new(Paces::new(rate_max, |rate| rate.over(BURST_SHARE).max(BURST_MIN)));
        let (shunned, said) = (Arc::new(Shunned::default()), Arc::new(Said::default()));
        let busy = Arc::default();
        for i in 0..config.fill.concurrency {
            let clients = Clients {
                origins: source::agent(tls, config.fill.silence_max),
                siblings: self.member(config),
                control: self.writer(config),
                shunned: Arc::clone(&shunned),
                said: Arc::clone(&said),
                busy: Arc::clone(&busy),
            };
            let paces = Arc::clone(&paces);
            self.spawn(&format!("fill-{i}"), move |shared| filler::run(shared, &clients, &paces))?;
        }
        self.spawn("fill-hours", |shared| at_once(upkeep::hours::run(shared, clock::wall)))?;
        Ok(())
    }

    /// A client for members of the fleet.
    fn member(&self, config: &Config) -> MemberClient {
        MemberClient::new(Arc::clone(&self.own), config.fill.silence_max)
    }

    fn writer(&self, config: &Config) -> Option<ControlClient> {
        let writer = &config.control.as_ref()?.url.0;
        Some(ControlClient::writer(self.member(config), writer, &config.appliance))
    }

    fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Shared) + Send + 'static,
    ) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || run(&shared))?);
        Ok(())
    }
}

impl Drop for StorageHandle {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for StorageHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StorageHandle").field("threads", &self.threads).finish_non_exhaustive()
    }
}

/// A stop waits at most so long for threads that are inside a system call.
pub const STOP_MAX: Duration = Duration::from_secs(3);

fn open_tier(config: &Config, ledger: &Ledger) -> Result<Option<Tier>, StateError> {
    let Some(tiering) = config.tiering.clone() else { return Ok(None) };
    Ok(Some(Tier::open(tiering, &config.state, ledger.now())?))
}

/// Opens all drives at the same time: each may have a long index to load or to make anew.
fn open_drives(paths: &[PathBuf], silent: DriveSet) -> Result<Vec<(Slot, Loaded)>, StartError> {
    let results = open_all(paths, silent)?;
    let (mut opened, mut reasons, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (result, path) in results.into_iter().zip(paths) {
        let result = result.and_then(|(drive, loaded)| {
            let id = drive.marker().id;
            if ids.contains(&id) {
                return Err(OpenError::Twice(path.clone(), id));
            }
            ids.push(id);
            Ok((drive, loaded))
        });
        opened.push(match result {
            Ok((drive, loaded)) => (Slot::Open(Arc::new(drive)), loaded),
            Err(error) => {
                reasons.push(error.to_string());
                let cause = Cause::Refused(error.to_string());
                let aside = Aside { cause, id: None, old: Weak::new() };
                (Slot::Aside(aside), Loaded::default())
            }
        });
    }
    if ids.is_empty() { Err(StartError::NoDrive(reasons)) } else { Ok(opened) }
}

type Opening = Result<(Drive, Loaded), OpenError>;

/// The drives, each opened by a thread of its own. One that does not get on is left behind: it may
/// take minutes to make an index anew, but then it reads on and on.
fn open_all(paths: &[PathBuf], silent: DriveSet) -> Result<Vec<Opening>, StartError> {
    let (tell, told) = channel();
    let mut results: Vec<Option<_>> = paths.iter().map(|_| None).collect();
    let mut steps = Vec::new();
    for (index, path) in DriveIndex::all(paths.len()).zip(paths) {
        let count = Arc::new(AtomicU64::new(0));
        let at = index.as_usize();
        if silent.contains(index) {
            results[at] = Some(Err(OpenError::Silent(path.clone())));
        } else {
            let (tell, path, thread_count) = (tell.clone(), path.clone(), Arc::clone(&count));
            let open = move || {
                let opened = Drive::open_counting(&path, index, &thread_count);
                // If nobody waits any more the drive is let go again.
                let _ = tell.send((at, opened));
            };
            let thread = std::thread::Builder::new().name(format!("open-{index}"));
            thread.spawn(open).map_err(StartError::Thread)?;
        }
        steps.push((count, 0, std::time::Instant::now()));
    }
    while results.iter().any(Option::is_none) {
        if let Ok((index, opened)) = told.recv_timeout(Duration::from_millis(100)) {
            results[index] = Some(opened);
        }
        for ((result, path), (count, seen, at)) in results.iter_mut().zip(paths).zip(&mut steps) {
            let now = count.load(Ordering::Relaxed);
            if now != *seen {
                (*seen, *at) = (now, std::time::Instant::now());
            } else if result.is_none() && OPEN_SILENCE_MAX < at.elapsed() {
                *result = Some(Err(OpenError::Silent(path.clone())));
            }
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// Longest time for one step of opening a drive. The longest is to read its log: seconds for a
/// large one on a slow drive.
const OPEN_SILENCE_MAX: Duration = Duration::from_secs(10);

fn say_where_siblings_come(config: &mut Config, peers: &[TcpListener]) {
    let first = || peers.first()?.local_addr().ok().map(|at| at.to_string());
    let address = config.peer.address.clone();
    config.about.peer_address = address.or_else(first);
}

/// Puts in force what control told last of fetching; without it, fill is open.
fn load_rules(shared: &Shared, state_file: &StateFile) {
    match state_file.load_rules() {
        Ok(Some(rules)) => {
            let (at, now) = (shared.ledger.now(), clock::wall());
            shared.ledger.change(|holdings| holdings.set_rules(at, now, rules));
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(%error, "rules for fill left out");
            shared.ledger.note("fill", error.to_string());
        }
    }
}

fn load_manifest(shared: &Shared, state_file: &StateFile, name: &ApplianceId, own: &Own) {
    let left_out = |error: StateError| {
        tracing::warn!(%error, "a file of the last state is left out");
        shared.ledger.note("control", error.to_string());
    };
    state_file.load_trust(&own.signing_keys()).unwrap_or_else(left_out);
    match state_file.load(name, &own.signing_keys()) {
        Ok(Some(manifest)) => {
            tracing::info!(generation = manifest.generation.0, "last manifest in force");
            at_once(shared.set_manifest(Arc::new(manifest)));
        }
        Ok(None) => tracing::info!("no manifest yet"),
        Err(error) => left_out(error),
    }
}

/// Publishes what the drives hold, each object once. A second copy (a drive was set aside, its
/// objects were filled again, and now it is back) is left to the audit.
fn load_objects(shared: &Shared, loaded: &[Loaded]) {
    let slots = shared.slots.indexes().zip(shared.slots.all()).zip(loaded);
    for (((index, slot), loaded), path) in slots.zip(&shared.slots.paths) {
        let drive = match slot {
            Slot::Open(drive) => drive,
            Slot::Aside(Aside { cause, .. }) => {
                tracing::error!(reason = %cause, "drive set aside");
                shared.ledger.note("drive", cause.to_string());
                // Workers may have its directory open, which keeps it from being unmounted.
                shared.ledger.change(|holdings| {
                    holdings.let_go(index);
                    let is_left = holdings.forget_some(1);
                    assert!(!is_left, "nothing of it was loaded");
                });
                continue;
            }
        };
        if let Some(damage) = loaded.damage {
            let path = path.display();
            let text = format!("{path}: {damage}. The index was made anew from the drive's files");
            tracing::warn!(drive = %drive.marker().id, %damage, "index made anew from the files");
            shared.ledger.note("drive", text);
        }
        let entries = loaded.entries.iter();
        at_once(
            shared.load(
                entries.map(|(object, entry)| (*object, entry.extent(object, drive.index()))),
            ),
        );
        tracing::info!(
            drive = %drive.marker().id,
            path = %path.display(),
            objects = loaded.entries.len(),
            torn = loaded.torn.0,
            "drive in use"
        );
    }
    shared.ledger.change(|holdings| {
        for (index, loaded) in shared.slots.indexes().zip(loaded) {
            loaded.parts.iter().for_each(|part| holdings.load_part(*part, index));
        }
    });
}

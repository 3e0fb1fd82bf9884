//! `nearcast-appliance serve`: starts everything, waits for a signal, stops everything.
//!
//! ```text
//! storage threads ── Update ──> mailbox of each worker ──> workers ── faults ──> main thread
//! ```

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use identity::credentials::Credentials;
use model::drives::{DriveIndex, DriveSet};
use model::extent::Extent;
use model::id::ObjectId;
use model::limits::DRIVES_MAX;
use model::object::BLOCK_LEN;
use model::units::{BitsPerSecond, Bytes, Nanos};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use tls::Acceptor;
use worker::Fault;

use crate::book::Book;
use crate::counters::{DriveSlice, ServeCounters};
use crate::demand::Demand;
use crate::filling::peer;
use crate::lock::lock;
use crate::membership::agent_link;
use crate::membership::headroom::Cards;
use crate::membership::member;
use crate::membership::routes::Routes;
use crate::membership::takeover;
use crate::process::certificate::{self, Reload};
use crate::process::config::Settings;
use crate::process::confine::{Grants, close_rings, confine, drop_privileges};
use crate::process::hot;
use crate::process::life;
use crate::process::memory;
use crate::process::metrics;
use crate::process::storage::{self, News, Storage, StorageHandle};
use crate::serving::ablation::Ablation;
use crate::serving::aead;
use crate::serving::clients::{Clients, Word};
use crate::serving::event_loop::{self, Finding, Setup};
use crate::serving::incidents::Keeper;
use crate::serving::listen;
use crate::serving::listen::Listener;
use crate::serving::mailbox::{Letter, Sender, mailbox};
use crate::serving::request_log;
use crate::serving::request_log::Lines;
use crate::serving::viewers::{self, Views};
use crate::storage::gate::Rules;
use crate::storage::mounts;
use crate::storage::mounts::Medium;
use crate::storage::tiering;

/// Files of one drive that a worker opens at a time. Each costs a thread of the kernel while it
/// lasts; a drive that is slow to open gets no faster with more.
const OPENS_MAX: usize = 16;
/// Faults and samples that wait to be looked at. One more is dropped: the drive is known to be bad
/// by then, and there will be other samples.
const FAULTS_MAX: usize = 1024;
/// A second for a drive in one response is an eternity: players have buffered ten. A client that
/// takes less than a megabit a second plays nothing in the qualities that films are made in.
const INCIDENT_BOUNDS: worker::IncidentBounds =
    worker::IncidentBounds { drive_wait: Nanos::seconds(1), client_rate: BitsPerSecond(1_000_000) };
/// What the agent says that waits to be reported; a report takes no more.
const NOTES_MAX: usize = 20;
/// Open files beside connections: drives, fill, logs, the control plane.
const DESCRIPTORS_BESIDE: usize = 1024;
/// How often the main thread looks around.
const ROUND: Duration = Duration::from_millis(200);

/// What of `/metrics` does not come from workers.
type OtherMetrics = Arc<Mutex<String>>;

/// Drives that do not answer, how each drive is treated, moves between drives with the memory of a
/// worker for hot blocks, and the part in the site's service addresses.
type Plans = (DriveSet, Vec<Rules>, (Option<tiering::Config>, Bytes), Option<takeover::Config>);

/// What workers find when they start.
struct Around {
    ring_is_made: fn(),
    /// Drives whose file system may block whoever asks it.
    blocking: DriveSet,
    /// Of these, those that do not answer.
    silent: DriveSet,
    /// Kept only where siblings may take this appliance's addresses over.
    clients: Option<Arc<Clients>>,
}

/// A worker's thread and how to speak to it.
struct WorkerThread {
    letters: Sender,
    thread: JoinHandle<Result<(), uring::RingError>>,
}

/// The start of a process that a guard looks after.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Processes that the guard has started, this one among them.
    pub starts: u64,
    /// Why the one before was ended, if it was.
    pub after: Option<String>,
}

/// Serves until SIGTERM or SIGINT.
pub fn serve(settings: &Settings, guarded: Option<Guarded>) -> anyhow::Result<()> {
    run(&hot::fit(memory::fit(settings.clone())), guarded)
}

fn run(settings: &Settings, guarded: Option<Guarded>) -> anyhow::Result<()> {
    let stop = catch(&[signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let hup = catch(&[signal_hook::consts::SIGHUP])?;
    let asked = catch(&[signal_hook::consts::SIGUSR1])?;
    raise_descriptor_limit(settings)?;
    // All workers' read buffers are pinned, and the hot blocks are in such.
    let media = mounts::media(&settings.drives.paths);
    let (rules, tiering) = (rules(settings, &media), tiering(settings, &media));
    let config = worker_config(settings, hot::blocks(settings)?, &rules);
    let Bound { listeners, metrics, peers } = bind_after(settings, guarded.as_ref())?;
    // Here and no later: what follows is inherited by threads, and there are none yet.
    let machine = (identity::enrol::machine(), Arc::new(Cards::open()));
    let blocking = mounts::blocking(&settings.drives.paths);
    let (ring_is_made, silent) = give_away(settings, blocking, guarded.is_some())?;
    let credentials = member::load(&settings.state, &settings.name.0)?;
    let sealing = aead::choose(settings.tls.aead.0)?;
    let files = settings.serve.certificates();
    let acceptor = certificate::acceptor(&files)?.sealed_by(sealing.kernels);
    let mut reload = Reload::new(acceptor.clone(), files);
    let (fault_sender, faults) = sync_channel(FAULTS_MAX);
    let counters: Vec<Arc<ServeCounters>> =
        (0..settings.serve.workers).map(|_| Arc::default()).collect();
    let (book, demand) = (Arc::default(), Arc::<Demand>::default());
    let (ends, writers) = start_writers(settings, (&book, &demand), ring_is_made)?;
    let clients = settings.agent.addresses.as_ref().map(|_| Arc::default());
    let around = Around { ring_is_made, blocking, silent, clients };
    let slices = drive_slices(settings);
    let seen = (&counters[..], &slices[..]);
    let clients = around.clients.clone();
    let workers = start_workers(settings, config, &acceptor, seen, &fault_sender, around, ends)?;
    ring_is_made();
    let serving = show_life(guarded.as_ref(), &counters, &stop)?;
    let (draining, viewers) = (AtomicBool::new(false), Arc::clone(&book));
    let seen = storage::Serving { workers: counters.clone(), slices, draining, viewers, demand };
    let serve_counters = Arc::new(seen);
    let senders: Vec<Sender> = workers.iter().map(|worker| worker.letters.clone()).collect();
    let tickets = acceptor.tickets().clone();
    let plans = (silent, rules, (tiering, hot(&config)), takeover(settings, clients, &senders));
    let config = storage_config(settings, credentials, machine, tickets, plans);
    let mut storage = Storage::start(config, peers, tell_all(senders), serve_counters.clone())?;
    // Only now: whoever connects finds what the drives hold.
    start_listening(listeners, &workers)?;
    let others = start_metrics(metrics, &counters)?;
    serving.store(true, Ordering::Relaxed);
    let (name, base_url) = (&settings.name.0, &settings.serve.base_url);
    tracing::info!(%name, base_url, workers = settings.serve.workers, "serving");
    let (notes, said) = ask_agent(settings.agent.socket.as_deref())?;
    if let Some(Guarded { after: Some(text), .. }) = &guarded {
        storage.note_error("process", format!("started again, for the last process: {text}"));
    }
    let mut each_second = || {
        reload.look(Instant::now(), hup.swap(false, Ordering::Relaxed));
        let said = lock(&said).clone();
        let mut page = metrics::others(&storage, &reload, &settings.drives.paths, &said);
        aead::put(&mut page, &sealing);
        metrics::put_viewers(&mut page, book.status());
        if let Some(guarded) = &guarded {
            page.put(&metrics::STARTS, "", guarded.starts);
        }
        *lock(&others) = page.into_text();
    };
    let working = (&workers[..], &counters[..]);
    let flags = (&*stop, &*asked);
    watch(flags, &faults, &notes, working, &storage, &mut each_second, &settings.state)?;
    tracing::info!("stopping");
    serve_counters.draining.store(true, Ordering::Relaxed);
    let result = stop_workers(workers, settings.serve.stop_within.0);
    writers.end(result.is_ok(), || storage.stop());
    result
}

/// The ends that workers write to: of the request log, and of what viewers feel.
type Ends = (Vec<Lines>, Vec<Views>);

/// Threads that take over what workers write down.
struct Writers {
    viewers: JoinHandle<()>,
    log: Option<JoinHandle<()>>,
}

/// Starts them, with an end of each for each worker.
fn start_writers(
    settings: &Settings,
    (book, demand): (&Arc<Book>, &Arc<Demand>),
    begin: fn(),
) -> anyhow::Result<(Ends, Writers)> {
    let (logs, log) = start_request_log(settings, begin)?;
    let told = (Arc::clone(book), Arc::clone(demand));
    let (views, viewers) = viewers::start(settings.serve.workers, told, begin)
        .context("cannot start the thread that follows playbacks")?;
    Ok(((logs, views), Writers { viewers, log }))
}

impl Writers {
    /// Waits for them, if all workers have ended; what viewers felt is in before the last report.
    fn end(self, all_ended: bool, report: impl FnOnce()) {
        if all_ended {
            let _ = self.viewers.join();
        }
        report();
        if let (true, Some(log)) = (all_ended, self.log) {
            let _ = log.join();
        }
    }
}

/// Notes of the agent, if it is to be asked, and the facts that it knows of drives.
fn ask_agent(socket: Option<&Path>) -> anyhow::Result<(Receiver<String>, agent_link::Said)> {
    let (sender, notes) = sync_channel(NOTES_MAX);
    let said = agent_link::Said::default();
    if let Some(socket) = socket {
        agent_link::start(socket.to_owned(), sender, Arc::clone(&said))
            .context("cannot start a thread")?;
    }
    Ok((notes, said))
}

/// Shows the guard, if there is one, that this process lives, and its workers once the flag that is
/// given back is raised.
fn show_life(
    guarded: Option<&Guarded>,
    workers: &[Arc<ServeCounters>],
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<Arc<AtomicBool>> {
    let serving = Arc::new(AtomicBool::new(false));
    if guarded.is_some() {
        life::start(workers.to_vec(), Arc::clone(&serving), Arc::clone(stop))
            .context("cannot start the thread that reports to the guard")?;
    }
    Ok(serving)
}

/// What brings news to every worker.
fn tell_all(workers: Vec<Sender>) -> impl FnMut(Vec<News>) {
    move |news| {
        for one in &news {
            for worker in &workers {
                worker.put(match one {
                    News::Update(update) => Letter::Update(update.clone()),
                    News::Directory(drive, directory) => {
                        Letter::Directory(*drive, directory.clone())
                    }
                    News::Expected(blocks) => Letter::Expected(Arc::clone(blocks)),
                });
            }
        }
        workers.iter().for_each(Sender::ring);
    }
}

/// What this process does for its site's service addresses, if they move.
fn takeover(
    settings: &Settings,
    clients: Option<Arc<Clients>>,
    workers: &[Sender],
) -> Option<takeover::Config> {
    let (agent, clients) = (settings.agent.addresses.clone()?, clients?);
    let (count, workers) = (workers.len(), workers.to_vec());
    let tell = move |word: Word| {
        workers.iter().for_each(|worker| worker.send(Letter::Site(word.clone())));
    };
    let base_url = settings.serve.base_url.clone();
    Some(takeover::Config { agent, base_url, clients, workers: count, tell: Arc::new(tell) })
}

/// A flag that these signals raise.
fn catch(signals: &[i32]) -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in signals {
        signal_hook::flag::register(*signal, flag.clone()).context("cannot catch signals")?;
    }
    Ok(flag)
}

/// Memory of a worker for hot blocks.
fn hot(config: &worker::Config) -> Bytes {
    Bytes(u64::from(config.hot_blocks) * BLOCK_LEN.0)
}

fn storage_config(
    settings: &Settings,
    credentials: Credentials,
    (machine, cards): (String, Arc<Cards>),
    tickets: Arc<tls::Tickets>,
    (silent, rules, (tiering, hot), takeover): Plans,
) -> storage::Config {
    storage::Config {
        appliance: settings.name.0.clone(),
        state: settings.state.clone(),
        credentials,
        drives: settings.drives.paths.clone(),
        silent,
        control: Some(settings.control.clone()),
        peer: settings.peer.clone(),
        fill: settings.fill.clone(),
        small_budget: settings.drives.small_objects_max.0,
        scrub_rate: Some(settings.drives.scrub_rate.0).filter(|rate| rate.0 != 0),
        rules,
        tiering,
        hot,
        tickets,
        takeover,
        about: storage::About {
            software: env!("CARGO_PKG_VERSION").to_owned(),
            base_url: settings.serve.base_url.clone(),
            plain_url: settings.serve.plain_url(),
            peer_address: None,
            machine,
            routes: settings.agent.routes.clone().map(Routes::new),
            connections_max: u64::try_from(settings.serve.connections_max).unwrap_or(u64::MAX),
            cards,
        },
    }
}

/// A worker's share of the appliance's bounds.
fn worker_config(settings: &Settings, hot_blocks: u16, rules: &[Rules]) -> worker::Config {
    let mut read_targets = [Nanos::millis(5); DRIVES_MAX];
    read_targets.iter_mut().zip(rules).for_each(|(target, rules)| *target = rules.target);
    let share = |whole: usize| whole.div_ceil(settings.serve.workers).max(1);
    let transfers_max = share(settings.serve.transfers_max);
    worker::Config {
        connections_max: share(settings.serve.connections_max),
        handshakes_max: share(settings.serve.handshakes_max),
        transfers_max,
        buffers: hot::read_buffers(settings),
        hot_blocks,
        incidents: Some(INCIDENT_BOUNDS),
        file_slots: u16::try_from((transfers_max * 2).max(1024)).unwrap_or(u16::MAX),
        drives: settings.drives.paths.len(),
        drive_depth: settings.drives.depth,
        drive_opens: OPENS_MAX,
        read_targets,
        hang_after: settings.drives.hang_after.0,
        reset_after: settings.serve.reset_after.0,
        head_len_max: settings.serve.head_max.0.as_usize(),
        request_timeout: settings.serve.request_timeout.0,
        idle_timeout: settings.serve.idle_timeout.0,
        token_leeway: settings.serve.token_leeway.0,
        progress_timeout: settings.serve.progress_timeout.0,
        verify_every: settings.serve.verify_every,
        log_requests: settings.requests.log_max.0 != Bytes::ZERO,
        views_max: viewers::VIEWS_MAX,
        pacing: settings.pacing.share(settings.serve.workers),
    }
}

/// The threads' ends of the request log, and the thread that writes it; none if it is not wanted.
fn start_request_log(
    settings: &Settings,
    ring_is_made: fn(),
) -> anyhow::Result<(Vec<Lines>, Option<JoinHandle<()>>)> {
    let room = settings.requests.log_max.0;
    if room == Bytes::ZERO {
        return Ok((Vec::new(), None));
    }
    let (ends, thread) =
        request_log::start(&settings.state, room, settings.serve.workers, ring_is_made)
            .with_context(|| format!("cannot keep {} in the state directory", request_log::NAME))?;
    Ok((ends, Some(thread)))
}

fn start_workers(
    settings: &Settings,
    config: worker::Config,
    acceptor: &Acceptor,
    (counters, slices): (&[Arc<ServeCounters>], &[Arc<[DriveSlice]>]),
    faults: &SyncSender<Finding>,
    Around { ring_is_made, blocking, silent, clients }: Around,
    (logs, views): (Vec<Lines>, Vec<Views>),
) -> anyhow::Result<Vec<WorkerThread>> {
    let (mut logs, mut views) = (logs.into_iter(), views.into_iter());
    if settings.ablation != Ablation::default() {
        tracing::warn!("[ablation] is for measurements: take it out of the configuration");
    }
    let mut workers = Vec::new();
    for (index, (counters, slices)) in counters.iter().zip(slices).enumerate() {
        let (letters, mailbox) = mailbox().context("cannot make a mailbox")?;
        let faults = faults.clone();
        let setup = Setup {
            config,
            acceptor: acceptor.clone(),
            drives: open_directories(settings, silent),
            blocking,
            mailbox,
            counters: counters.clone(),
            slices: slices.clone(),
            log: logs.next(),
            views: views.next(),
            report: Box::new(move |finding| {
                let _ = faults.try_send(finding);
            }),
            ring_is_made,
            unsent_max: settings.serve.unsent_max(),
            clients: clients.clone(),
            ablation: settings.ablation,
        };
        let cpu = settings.serve.cpus.get(index).copied();
        let thread = std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || {
                pin(cpu);
                let result = event_loop::run(setup);
                if let Err(error) = &result {
                    tracing::error!(%error, "a worker cannot go on");
                }
                result
            })
            .context("cannot start a worker")?;
        workers.push(WorkerThread { letters, thread });
    }
    Ok(workers)
}

fn rules(settings: &Settings, media: &[Medium]) -> Vec<Rules> {
    let (writes, media) = (settings.drives.writes(), media.iter().enumerate());
    media.map(|(index, medium)| writes.rules(index, medium)).collect()
}

fn tiering(settings: &Settings, media: &[Medium]) -> Option<tiering::Config> {
    settings.drives.tiering().config(media, settings.serve.verify_every)
}

/// Answers whoever wants metrics, if somebody may. What workers do not tell is to be put in what
/// this returns.
fn start_metrics(
    listener: Option<TcpListener>,
    counters: &[Arc<ServeCounters>],
) -> anyhow::Result<OtherMetrics> {
    let others = OtherMetrics::default();
    if let Some(listener) = listener {
        let (counters, others) = (counters.to_vec(), others.clone());
        let text = move || metrics::text(&counters, &lock(&others));
        metrics::serve(listener, text).context("cannot start the thread for metrics")?;
    }
    Ok(others)
}

/// For each worker, where it says what its reads of each drive met.
fn drive_slices(settings: &Settings) -> Vec<Arc<[DriveSlice]>> {
    let slices = || settings.drives.paths.iter().map(|_| DriveSlice::default()).collect();
    (0..settings.serve.workers).map(|_| slices()).collect()
}

/// The drives' directories, but of those that are silent.
fn open_directories(settings: &Settings, silent: DriveSet) -> Vec<Option<Arc<OwnedFd>>> {
    let drives = DriveIndex::all(settings.drives.paths.len()).zip(&settings.drives.paths);
    let open = |path| open_directory(path).map(Arc::new);
    drives.map(|(index, path)| if silent.contains(index) { None } else { open(path) }).collect()
}

/// None if there is no such directory now: storage sets the drive aside and says so.
fn open_directory(path: &Path) -> Option<OwnedFd> {
    // As a name alone: to open it for reading would wait for a drive that hangs.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).ok()
}

fn pin(cpu: Option<usize>) {
    let Some(cpu) = cpu else { return };
    let mut set = CpuSet::new();
    set.set(cpu);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "cannot pin a worker; it runs where the kernel puts it");
    }
}

/// Addresses that are ours, while nobody is answered yet.
struct Bound {
    /// For each worker.
    listeners: Vec<Vec<Listener>>,
    metrics: Option<TcpListener>,
    /// For siblings.
    peers: Vec<TcpListener>,
}

/// Where to listen, with which versions of TLS if any, and the congestion control.
type Address<'s> = (SocketAddr, Option<tls::Versions>, Option<&'s str>);

/// How long the kernel may take to close the sockets of a process that was killed: its rings let go
/// of them a little after its end.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// Tries again while the process before may still have the addresses.
fn bind_after(settings: &Settings, guarded: Option<&Guarded>) -> anyhow::Result<Bound> {
    let began = Instant::now();
    loop {
        match bind(settings) {
            Err(error)
                if guarded.is_some_and(|guarded| 1 < guarded.starts)
                    && is_in_use(&error)
                    && began.elapsed() < CLOSED_WITHIN =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            bound => return bound,
        }
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    let kind = error.root_cause().downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::AddrInUse)
}

fn bind(settings: &Settings) -> anyhow::Result<Bound> {
    let names = settings.serve.congestion.iter().map(|name| Some(name.as_str()));
    let names = names.chain(std::iter::repeat(None));
    let secure = settings.serve.listen.iter().zip(names);
    let secure = secure.map(|(at, name)| (*at, Some(settings.serve.versions(at)), name));
    // Without TLS for demonstrations: as the first.
    let first = settings.serve.congestion.first().map(String::as_str);
    let plain = settings.serve.plain_listen.iter().map(|at| (*at, None, first));
    let addresses: Vec<Address<'_>> = secure.chain(plain).collect();
    let cannot = |at: SocketAddr| move || format!("cannot listen on {at}");
    for (at, ..) in &addresses {
        listen::check_free(*at).with_context(cannot(*at))?;
    }
    let one_worker = || {
        let listener = |(at, versions, congestion): &Address<'_>| {
            let socket = listen::bind(*at, *congestion, settings.serve.unsent_max());
            let socket = socket.with_context(cannot(*at))?;
            Ok(Listener { socket, versions: *versions })
        };
        addresses.iter().map(listener).collect::<anyhow::Result<Vec<_>>>()
    };
    let listeners = (0..settings.serve.workers).map(|_| one_worker()).collect::<Result<_, _>>()?;
    let metrics = settings.metrics.listen;
    let metrics = metrics.map(|at| TcpListener::bind(at).with_context(cannot(at))).transpose()?;
    let peers = settings.peer.listen.iter();
    let peers =
        peers.map(|at| peer::bind(*at).with_context(cannot(*at))).collect::<Result<_, _>>()?;
    Ok(Bound { listeners, metrics, peers })
}

/// Becomes a user with few rights, who can reach drives, state and certificates only. What is given
/// back is to be called by each thread that has its ring; and the drives that do not answer, which
/// the kernel is not told of, since to be told it would ask the drive.
fn give_away(
    settings: &Settings,
    blocking: DriveSet,
    is_guarded: bool,
) -> anyhow::Result<(fn(), DriveSet)> {
    drop_privileges(settings.process.user.as_deref())?;
    if is_guarded {
        // Now: the kernel forgets it of a process that becomes another user.
        life::bind_to_guard().context("the kernel does not bind this process to its guard")?;
    }
    // As the user who will write there, and before the kernel is told which folders there are.
    std::fs::create_dir_all(&settings.state)
        .with_context(|| format!("cannot make the state directory {}", settings.state.display()))?;
    let certificates = settings.serve.certificates();
    let certificates = certificates.iter().flat_map(|files| [&files.certificate, &files.key]);
    let read = certificates.chain(&settings.fill.trust);
    let silent = mounts::silent(&settings.drives.paths, blocking);
    let drives = settings.drives.paths.iter().zip(open_directories(settings, silent));
    let drives = drives.filter_map(|(path, directory)| directory.map(|_| path));
    let around = mounts::folders_of_drives(&settings.drives.paths);
    let grants = Grants {
        read_write: drives.chain([&settings.state]).chain(&around).cloned().collect(),
        read: read.cloned().collect(),
    };
    let confined = confine(settings.process.sandbox, &grants)?;
    let ring_is_made: fn() =
        if confined { || close_rings().expect("it took the first filter") } else { || {} };
    Ok((ring_is_made, silent))
}

fn start_listening(listeners: Vec<Vec<Listener>>, workers: &[WorkerThread]) -> anyhow::Result<()> {
    for (worker, listeners) in workers.iter().zip(listeners) {
        for listener in &listeners {
            listen::listen(&listener.socket).context("cannot listen")?;
        }
        worker.letters.send(Letter::Listen(listeners));
    }
    Ok(())
}

/// Looks after faults and metrics until a signal comes; fails if a worker ends by itself.
fn watch(
    (stop, asked): (&AtomicBool, &AtomicBool),
    faults: &Receiver<Finding>,
    notes: &Receiver<String>,
    (workers, counters): (&[WorkerThread], &[Arc<ServeCounters>]),
    storage: &StorageHandle,
    each_second: &mut dyn FnMut(),
    state: &Path,
) -> anyhow::Result<()> {
    let incidents = Keeper::start(state).context("cannot start the thread for incidents")?;
    let mut rows_at = Instant::now();
    let mut looked_at = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        match faults.recv_timeout(ROUND) {
            Ok(Finding::Fault(object, extent, fault)) => {
                handle_fault(storage, object, &extent, fault);
            }
            Ok(Finding::Sample(sample)) => storage.verify(sample),
            Ok(Finding::Incident(incident)) => incidents.keep(incident),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("all workers have ended"),
        }
        if asked.swap(false, Ordering::Relaxed) {
            workers.iter().for_each(|worker| worker.letters.send(Letter::Incidents));
        }
        if workers.iter().any(|worker| worker.thread.is_finished()) {
            bail!("a worker has ended by itself; see the log above");
        }
        if ROUND <= looked_at.elapsed() {
            looked_at = Instant::now();
            storage.look_at_drives(hung_drives(counters));
        }
        for note in notes.try_iter() {
            storage.note_error("agent", note);
        }
        if Duration::from_secs(1) <= rows_at.elapsed() {
            rows_at = Instant::now();
            each_second();
        }
    }
    Ok(())
}

/// Drives that a worker finds to hang.
fn hung_drives(counters: &[Arc<ServeCounters>]) -> DriveSet {
    counters.iter().fold(DriveSet::NONE, |all, worker| all | worker.hung())
}

/// What a worker could not read is for storage to judge.
fn handle_fault(storage: &StorageHandle, object: ObjectId, extent: &Extent, fault: Fault) {
    let errno = (fault.errno != 0).then(|| Errno::from_raw_os_error(fault.errno));
    storage.read_failed(object, extent, errno);
}

fn stop_workers(workers: Vec<WorkerThread>, within: Nanos) -> anyhow::Result<()> {
    for worker in &workers {
        worker.letters.send(Letter::Stop(within));
    }
    // Workers keep the bound themselves; a little more covers the tick by which they notice.
    let patience = Duration::from(within) + Duration::from_secs(3);
    let asked = Instant::now();
    while asked.elapsed() < patience && workers.iter().any(|w| !w.thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(10));
    }
    for worker in workers {
        if !worker.thread.is_finished() {
            bail!("a worker did not stop within {within}; its connections are cut by the exit");
        }
        match worker.thread.join() {
            Ok(result) => result?,
            Err(_) => bail!("a worker has panicked; see the log above"),
        }
    }
    Ok(())
}

/// One descriptor per connection and per open file: takes all that the system allows.
fn raise_descriptor_limit(settings: &Settings) -> anyhow::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let wanted = settings.serve.connections_max + DESCRIPTORS_BESIDE;
    if maximum.is_some_and(|maximum| maximum < u64::try_from(wanted).unwrap_or(u64::MAX)) {
        bail!(
            "[serve] connections_max = {} needs {wanted} open files and this process may have {}: \
             raise the limit (LimitNOFILE= of the unit, ulimit -Hn) or lower connections_max",
            settings.serve.connections_max,
            maximum.unwrap_or(0),
        );
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("cannot raise the limit of open files")
}

//! What a GB costs us, and what it costs a peer, measured in turns on one machine.
//!
//! ```text
//! catalogue ──> both servers, each bound to the server CPU, both up all the time
//! calibrate: each configuration of the peer for a moment; the cheapest goes on (race.rs)
//! ours, peer, ours, peer, ...: connect, warm up, window    (the client on its own CPU)
//! report: the median over pairs of (our CPU s/GB) / (the peer's)
//! ```
//!
//! Interleaving spreads what else the machine does over both sides alike. Where files come from the
//! drive, it is measured first, and all times grow with it (pace.rs). A configuration of the peer
//! that fails is out of the race and named in the result; if ours fails, the run does. Where flame
//! graphs are wanted, one window more of each side is sampled: perf costs something.

pub(crate) mod ablate;
mod catalogue;
mod congestion;
mod group;
pub(crate) mod handshake;
mod ledger;
pub(crate) mod network;
mod ours;
mod pace;
mod race;
mod report;
mod workload;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use model::units::Bytes;
use rig::certificate::{Certificate, Key};
use rig::client::{Plan, Ranges, Receive, Target};
use rig::cpu::{self, Account};
use rig::peer::{self, Found, Place, Variant, Version};
use rig::process::Process;
use rig::window::{Timing, measure};
use rustls::CipherSuite;
use tracing::{info, warn};

use crate::flame::{self, Profile};
use crate::processor::Processor;
pub(crate) use catalogue::Catalogue;
use congestion::Chosen;
use group::Group;
use pace::{Drive, Pace};
use race::Race;
use report::{Report, Setting, Sides, Turn};
use workload::{Name, Workload};

/// `nearcast-lab compare`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    against: peer::Chosen,
    /// What to ask for.
    #[arg(long, value_enum)]
    workload: Name,
    #[command(flatten)]
    asking: Asking,
    /// Null test: the peer against itself. The ratio should be 1, and tells the noise.
    #[arg(long)]
    null: bool,
    /// Fail if ours divided by the peer's is more.
    #[arg(long)]
    bound: Option<f64>,
    /// With TLS 1.2: fail if ours divided by ours with 1.3 is more.
    #[arg(long)]
    bound_newer: Option<f64>,
    #[command(flatten)]
    common: Common,
}

/// How the load client asks, and takes what comes.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub(crate) struct Asking {
    /// Whether the client copies what it receives into memory, as players do, or has the kernel
    /// drop it.
    #[arg(long, value_enum, default_value_t)]
    client: Receive,
    /// Where ranges begin.
    #[arg(long, value_enum, default_value_t)]
    ranges: Ranges,
    /// Another seed, other ranges.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Debug, Default, clap::Args)]
struct Flames {
    /// Where flame graphs go. Default: lab/flame beside the folder of this program.
    #[arg(long)]
    flames: Option<PathBuf>,
    /// No flame graphs; they need perf.
    #[arg(long)]
    no_flames: bool,
}

impl Flames {
    /// Where they go, if they are wanted; an error now if there can be none.
    fn folder(&self) -> Result<Option<PathBuf>> {
        if self.no_flames {
            return Ok(None);
        }
        flame::check()?;
        let own = std::env::current_exe()?;
        let target = own.ancestors().nth(2).context("a program that is in no folder")?;
        let folder = self.flames.clone().unwrap_or_else(|| target.join("lab/flame"));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Some(folder))
    }
}

/// The version of TLS that the load client speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Tls {
    /// Servers take 1.3 beside it, as they would.
    #[value(name = "1.2")]
    V12,
    #[default]
    #[value(name = "1.3")]
    V13,
}

impl Tls {
    /// The only cipher suite that the client offers.
    fn suite(self, key: Key) -> CipherSuite {
        match (self, key) {
            (Self::V13, _) => CipherSuite::TLS13_AES_128_GCM_SHA256,
            (Self::V12, Key::Ecdsa) => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            (Self::V12, Key::Rsa | Key::Rsa4096) => {
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
            }
        }
    }
}

/// What every measurement is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// How often each side has its turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Load before each window, in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    warm_up: u32,
    /// The version of TLS; with 1.2, `compare` measures our side with 1.3 in the same run.
    #[arg(long, value_enum, default_value_t)]
    tls: Tls,
    /// The appliance's TCP congestion control.
    #[arg(long, default_value = "cubic")]
    congestion: String,
    /// Compare every n-th response with the source, byte by byte; the others by length only.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    verify_every: u64,
    /// The CPU for servers.
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// The CPU for the load client.
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// First of eleven ports on 127.0.0.1.
    #[arg(long, default_value_t = 18500, value_parser = clap::value_parser!(u16).range(1..=65525))]
    port: u16,
    /// Where files are made; it must be on a drive. Default: the directory for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the catalogue and the filled appliance in DIR/nearcast-lab for the next run.
    #[arg(long, requires = "dir")]
    keep: bool,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// How long each configuration of the peer is tried.
const TRIAL: Duration = Duration::from_secs(2);
/// A fill takes no longer than this; or than so many times a read of all that is filled.
const FILL_MAX: Duration = Duration::from_secs(300);
const FILL_READS_MAX: u32 = 10;
/// How long the drive is measured.
const DRIVE_WINDOW: Duration = Duration::from_secs(2);
/// Seed of the catalogue's content; not the user's, so that a kept one suits every run.
const CONTENT_SEED: u64 = 0x6e65_6172;
/// What our side does for each request beside serving it.
const OURS_LOGGING: &str =
    "as installed: a line per request in requests.log, limits and timeouts on";
const OURS: &str = "nearcast-appliance";
const NULL_TEST: &str = "the peer (null test)";
/// What an appliance seals with that does not say it.
const OURS_LIBRARY: &str = "aws-lc";
const TMPFS_MAGIC: i64 = 0x0102_1994;

struct Server {
    /// Dropped, and so ended, before the groups it is in.
    processes: Vec<Process>,
    account: Account,
    plan: Plan,
    /// The default while its connections are made.
    congestion: String,
    _group: Group,
}

/// A peer's configuration, and the congestion control that it is started under.
#[derive(Clone, Debug)]
struct Tuned {
    peer: Found,
    variant: Variant,
    congestion: String,
}

impl Tuned {
    fn name(&self) -> String {
        format!("{}, {}", self.variant.name, self.congestion)
    }
}

/// What a configuration of the peer did, or why it failed.
type Tried<T> = Result<T, String>;

/// A failure of the peer's is a result, unless the run was told to stop.
fn attempt<T>(tried: Result<T>) -> Result<Tried<T>> {
    rig::stop::check()?;
    let tried = tried.map_err(|error| format!("{error:#}"));
    if let Err(reason) = &tried {
        warn!(reason, "this configuration of the peer is out of the race");
    }
    Ok(tried)
}

struct Bench<'a> {
    common: &'a Common,
    asking: Asking,
    workload: Workload,
    room: &'a Path,
    catalogue: Catalogue,
    certificate: Certificate,
    key: Key,
    /// Measured where the workload reads from it.
    drive: Option<Drive>,
    pace: Pace,
    processor: Processor,
    /// Where the flame graph of the difference to the peer goes, if one is wanted.
    flames: Option<&'a Path>,
}

/// A server, and the version of TLS that it is asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ours,
    Peer,
    /// Ours with TLS 1.3, where the others are with 1.2.
    Newer,
}

/// In another order each time, so that none always comes after the same one.
fn order(pair: u32, sides: &[Side]) -> Vec<Side> {
    let pair = usize::try_from(pair).unwrap_or(0);
    let mut order = sides.to_vec();
    order.rotate_left(pair % sides.len());
    if pair / sides.len() % 2 == 1 {
        order.reverse();
    }
    order
}

/// What was seen of both sides: all pairs, and where CPU time went if that was wanted.
struct Seen {
    turns: Vec<(Turn, Turn)>,
    /// Ours with TLS 1.3, where the others are with 1.2.
    newer: Vec<Turn>,
    profiles: Option<[Profile; 2]>,
}

/// What a server's CPU has done: for it, and for anybody.
struct Meter {
    used: Duration,
    busy: Duration,
}

/// Compares, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let asked = (args.workload, args.asking);
    ensure!(
        args.bound_newer.is_none() || args.common.tls == Tls::V12,
        "--bound-newer needs --tls 1.2: without it nothing newer is measured"
    );
    let report = report(&args.against, asked, args.null, &args.common, None)?;
    rig::say(args.common.json, &report, || report.table())?;
    report.verdict(args.bound, args.bound_newer)
}

/// `nearcast-lab ideal`
#[derive(Debug, clap::Args)]
pub(crate) struct IdealArgs {
    /// What to ask for; may be repeated. Default: all.
    #[arg(long, value_enum)]
    workload: Vec<Name>,
    #[command(flatten)]
    flames: Flames,
    #[command(flatten)]
    asking: Asking,
    #[command(flatten)]
    common: Common,
}

/// How far an appliance is from the least that serving costs, and where the difference goes: prints
/// a result for each workload.
pub(crate) fn run_ideal(args: &IdealArgs) -> Result<()> {
    let all = [Name::Warm, Name::Cold, Name::Small];
    let names = if args.workload.is_empty() { &all[..] } else { &args.workload };
    let flames = args.flames.folder()?;
    let mut reports = Vec::new();
    for name in names {
        let against = peer::Chosen::ideal(!name.workload().forget);
        let asked = (*name, args.asking);
        reports.push(report(&against, asked, false, &args.common, flames.as_deref())?);
    }
    if args.common.json {
        rig::print(&serde_json::to_string(&reports)?)
    } else {
        reports.iter().try_for_each(|report| rig::print(&report.table()))
    }
}

fn report(
    against: &peer::Chosen,
    (workload, asking): (Name, Asking),
    null: bool,
    common: &Common,
    flames: Option<&Path>,
) -> Result<Report> {
    let (peer, workload) = (against.found()?, workload.workload());
    // An error now if it cannot run.
    peer.version()?;
    if !null {
        ours::check_binaries()?;
    }
    let room = Room::open(common)?;
    let bench = Bench::open(common, asking, workload, &room.path)?;
    let bench = Bench { flames, ..bench };
    let report = bench.compare(against, null, peer)?;
    for doubt in report.doubts() {
        warn!("{doubt}");
    }
    Ok(report)
}

impl<'a> Bench<'a> {
    /// Makes what servers need, and takes the client's CPU.
    fn open(
        common: &'a Common,
        asking: Asking,
        workload: Workload,
        room: &'a Path,
    ) -> Result<Self> {
        ensure!(common.server_cpu != common.client_cpu, "server and client need a CPU each");
        rig::raise_file_limit()?;
        let source = room.join(format!("source-{}", workload.catalogue));
        if !source.exists() {
            check_space(room, workload)?;
        }
        let catalogue = Catalogue::open(&source, workload.files, workload.file_len, CONTENT_SEED)?;
        let certificate = Certificate::make(room)?;
        let drive = if workload.forget { Some(measured(&catalogue, workload)?) } else { None };
        let [warm_up, window] =
            [common.warm_up, common.seconds].map(|time| Duration::from_secs(time.into()));
        let pace = Pace::new(Pace { warm_up, trial: TRIAL, window }, drive);
        let processor = Processor::read()?;
        cpu::pin(common.client_cpu)?;
        let (flames, key) = (None, Key::Ecdsa);
        Ok(Bench {
            common,
            asking,
            workload,
            room,
            catalogue,
            certificate,
            key,
            drive,
            pace,
            processor,
            flames,
        })
    }

    fn compare(&self, against: &peer::Chosen, null: bool, peer: Found) -> Result<Report> {
        let (mut ours, library) = if null {
            (None, peer.version()?.tls)
        } else {
            let (server, library) = self.ours(self.common.port + 1)?;
            (Some(server), library)
        };
        let peer = peer.sealing_with(&library);
        let version = peer.version()?;
        let (mut race, entered) = self.calibrate(against, &peer)?;
        let (tuned, seen) = loop {
            let number = race.leader().map_err(anyhow::Error::msg)?;
            let tuned = &entered[number];
            info!(config = tuned.name(), "the peer's configuration");
            if null {
                // The one before gives its port back.
                drop(ours.take());
                ours = Some(self.peer(tuned, self.common.port + 1)?);
            }
            let ours = ours.as_mut().context("our side is up")?;
            match self.pairs(ours, tuned)? {
                Ok(seen) => break (tuned.clone(), seen),
                Err(reason) => race.fail(number, reason),
            }
        };
        let setting = Setting {
            workload: self.workload.label.to_owned(),
            client: self.asking.client,
            ranges: self.asking.ranges,
            drive_bytes_per_s: self.drive.map(|drive| drive.bytes_per_s.0),
            sides: self.sides(tuned, version, if null { NULL_TEST } else { OURS }, &library),
        };
        let report = Report::new(setting, &race, seen.turns)?.beside_newer(seen.newer)?;
        match (&seen.profiles, self.flames) {
            (Some(profiles), Some(folder)) => report.explained(profiles, folder),
            _ => Ok(report),
        }
    }

    /// Who was compared on what; `library` seals for us.
    fn sides(&self, tuned: Tuned, version: Version, ours: &str, library: &str) -> Sides {
        Sides {
            processor: self.processor.clone(),
            peer: tuned.peer.peer().label().to_owned(),
            peer_version: version.server,
            peer_aead: self.processor.aead_of(&version.tls),
            peer_tls: version.tls,
            peer_config: tuned.variant.name.to_owned(),
            peer_config_lines: tuned.variant.lines.to_owned(),
            ours_logging: OURS_LOGGING.to_owned(),
            ours: ours.to_owned(),
            ours_congestion: self.common.congestion.clone(),
            ours_aead: self.processor.aead_of(library),
            peer_congestion: tuned.congestion,
        }
    }

    /// Our turns and the peer's; or why this configuration of the peer cannot go on.
    fn pairs(&self, ours: &mut Server, tuned: &Tuned) -> Result<Tried<Seen>> {
        let mut peer = match attempt(self.peer(tuned, self.common.port))? {
            Ok(peer) => peer,
            Err(reason) => return Ok(Err(reason)),
        };
        let all = [Side::Ours, Side::Peer, Side::Newer];
        let sides = if self.common.tls == Tls::V12 { &all[..] } else { &all[..2] };
        let (mut first, mut second, mut newer) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..self.common.pairs {
            let seed = self.asking.seed.wrapping_add(u64::from(pair));
            for side in order(pair, sides) {
                info!(pair = pair + 1, of = self.common.pairs, ?side, "next");
                let own = |turn: Result<Turn>| turn.context("our side failed");
                match side {
                    Side::Ours => first.push(own(self.turn(ours, seed, self.pace.window))?),
                    Side::Newer => newer.push(own(self.newer_turn(ours, seed))?),
                    Side::Peer => match attempt(self.turn(&mut peer, seed, self.pace.window))? {
                        Ok(turn) => second.push(turn),
                        Err(reason) => return Ok(Err(reason)),
                    },
                }
            }
        }
        let turns = first.into_iter().zip(second).collect();
        let mut profiles = None;
        if self.flames.is_some() {
            let both = (self.profile(ours)?, self.profile(&mut peer)?);
            if let (Some(ours), Some(peer)) = both {
                profiles = Some([ours, peer]);
            }
        }
        Ok(Ok(Seen { turns, newer, profiles }))
    }

    fn newer_turn(&self, ours: &mut Server, seed: u64) -> Result<Turn> {
        let older = std::mem::replace(&mut ours.plan.suites, vec![Tls::V13.suite(self.key)]);
        let turn = self.turn(ours, seed, self.pace.window);
        ours.plan.suites = older;
        turn
    }

    /// Where CPU time goes, of one window that does not count; none if perf fails.
    fn profile(&self, server: &mut Server) -> Result<Option<Profile>> {
        let process = server.processes.first().context("a server has a process")?;
        let data = self.room.join("perf.data");
        let time = [self.pace.warm_up, self.pace.window];
        let perf = flame::record(process.id(), time, &data, &self.room.join("perf.log"))?;
        self.turn(server, self.asking.seed, self.pace.window)?;
        match perf.wait().and_then(|()| flame::read(&data)) {
            Ok(profile) => Ok(Some(profile)),
            Err(error) => {
                warn!(error = format!("{error:#}"), "no flame graph of this window");
                Ok(None)
            }
        }
    }

    /// Tries what was not given: all configurations of the peer, and then the best under each
    /// congestion control. The one with the fewest CPU seconds per GB leads.
    fn calibrate(&self, against: &peer::Chosen, peer: &Found) -> Result<(Race, Vec<Tuned>)> {
        let candidates = match &against.peer_congestion {
            Some(name) => vec![name.clone()],
            None => congestion::candidates()?,
        };
        let (first, others) = candidates.split_first().context("no congestion control")?;
        let variants = match &against.peer_config {
            Some(name) => vec![peer.peer().variant(name)?],
            None => peer.peer().variants().to_vec(),
        };
        let (mut race, mut entered) = (Race::default(), Vec::new());
        let mut enter = |race: &mut Race, variant, congestion: &String| {
            let congestion = congestion.clone();
            let tuned = Tuned { peer: peer.clone(), variant, congestion };
            race.enter(tuned.name(), self.try_out(&tuned)?);
            entered.push(tuned);
            Ok::<_, anyhow::Error>(variant)
        };
        let tried: Vec<Variant> =
            variants.into_iter().map(|one| enter(&mut race, one, first)).collect::<Result<_>>()?;
        let best = tried[race.leader().map_err(anyhow::Error::msg)?];
        for congestion in others {
            enter(&mut race, best, congestion)?;
        }
        Ok((race, entered))
    }

    /// CPU seconds per GB and Gb/s of one configuration of the peer; or why it failed.
    fn try_out(&self, tuned: &Tuned) -> Result<Tried<(f64, f64)>> {
        info!(config = tuned.name(), "trying a configuration of the peer");
        let tried = self
            .peer(tuned, self.common.port)
            .and_then(|mut server| self.turn(&mut server, self.asking.seed, self.pace.trial));
        Ok(attempt(tried)?.map(|seen| (seen.cpu_s_per_gb, seen.window.gbps)))
    }

    fn turn(&self, server: &mut Server, seed: u64, window: Duration) -> Result<Turn> {
        if self.workload.forget {
            self.catalogue.forget()?;
        } else {
            self.catalogue.preload()?;
        }
        let timing = Timing { warm_up: self.pace.warm_up, window };
        server.plan.seed = seed;
        let (window, before, after) = self
            .watched(server, |plan, meter| measure(plan, self.catalogue.truth(), timing, meter))?;
        ensure!(
            window.stalled == 0,
            "{} of {} connections had no complete response in {:.1} s: look at the server's log, \
             or take a longer window",
            window.stalled,
            server.plan.connections,
            window.seconds
        );
        let server_cpu_s = after.used.saturating_sub(before.used).as_secs_f64();
        let turn = Turn {
            cpu_s_per_gb: server_cpu_s / window.gb,
            server_cpu_s,
            cpu_busy_s: after.busy.saturating_sub(before.busy).as_secs_f64(),
            window,
        };
        info!(
            cpu_s_per_gb = format!("{:.3}", turn.cpu_s_per_gb),
            gbps = format!("{:.2}", turn.window.gbps),
            cpu_busy_s = format!("{:.2}", turn.cpu_busy_s),
            client_cpu_s_per_gb = format!("{:.3}", turn.window.client_cpu_s_per_gb),
            "window"
        );
        Ok(turn)
    }

    /// Loads a server under its congestion control by `work`, which is given what to read the CPU
    /// by; each turn makes its connections anew.
    fn watched<T>(
        &self,
        server: &mut Server,
        work: impl FnOnce(&Plan, &dyn Fn() -> Result<Meter>) -> Result<T>,
    ) -> Result<T> {
        let meter = || {
            let busy = cpu::busy(self.common.server_cpu)?;
            Ok(Meter { used: server.account.used()?, busy })
        };
        let congestion = Chosen::new(&server.congestion)?;
        let seen = work(&server.plan, &meter);
        drop(congestion);
        // After Ctrl-C at a terminal the servers end, too: the signal is what to tell.
        rig::stop::check()?;
        for process in &mut server.processes {
            process.check()?;
        }
        seen
    }

    fn peer(&self, tuned: &Tuned, port: u16) -> Result<Server> {
        let name = format!("nearcast-lab-{}-{port}", std::process::id());
        let group = Group::new(&name, self.workload.memory_max)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let room = self.room.join(format!("peer-{port}"));
        let process = tuned.peer.start(
            tuned.variant,
            &Place {
                address,
                root: self.catalogue.dir(),
                certificate: &self.certificate,
                room: &room,
                cpu: self.common.server_cpu,
                joins: group.joins(),
            },
        )?;
        let account = group.account(process.id());
        let plan = self.plan(address, self.catalogue.targets("/"));
        let congestion = tuned.congestion.clone();
        Ok(Server { processes: vec![process], account, plan, congestion, _group: group })
    }

    /// A filled appliance, and the library that seals for it.
    fn ours(&self, port: u16) -> Result<(Server, String)> {
        let name = format!("nearcast-lab-{}-{port}", std::process::id());
        let group = Group::new(&name, self.workload.memory_max)?;
        let asset = self.asset();
        let site = self.site(port, self.workload.catalogue, &asset);
        let started = site.start(group.joins())?;
        let account = group.account(started.appliance.id());
        let targets = self.catalogue.targets(&started.base.path);
        let plan = self.plan(started.base.resolve()?, targets);
        let library = started.aead.unwrap_or_else(|| OURS_LIBRARY.to_owned());
        let processes = vec![started.appliance, started.control];
        let congestion = self.common.congestion.clone();
        Ok((Server { processes, account, plan, congestion, _group: group }, library))
    }

    fn asset(&self) -> String {
        format!("lab-{}", self.workload.catalogue)
    }

    /// A site that keeps its files in `ours-{room}`.
    fn site<'s>(&'s self, port: u16, room: &str, asset: &'s str) -> ours::Site<'s> {
        ours::Site {
            source: self.catalogue.dir(),
            room: self.room.join(format!("ours-{room}")),
            certificate: &self.certificate,
            port,
            cpu: self.common.server_cpu,
            other_cpu: self.common.client_cpu,
            asset,
            hot_memory: self.workload.hot_memory,
            tls12: self.common.tls == Tls::V12,
            fill_max: self.drive.map_or(FILL_MAX, |drive| {
                FILL_MAX.max(drive.time_of(self.catalogue.total()) * FILL_READS_MAX)
            }),
        }
    }

    fn plan(&self, address: SocketAddr, targets: Vec<Target>) -> Plan {
        Plan {
            address,
            name: address.ip().to_string(),
            trust: self.certificate.ca.clone(),
            suites: vec![self.common.tls.suite(self.key)],
            targets,
            connections: self.workload.connections,
            range_len: self.workload.range_len,
            ranges: self.asking.ranges,
            receive: self.asking.client,
            verify_every: self.common.verify_every,
            seed: self.asking.seed,
            every: Duration::ZERO,
        }
    }
}

fn measured(catalogue: &Catalogue, workload: Workload) -> Result<Drive> {
    let round = workload.range_len.0.saturating_mul(u64::try_from(workload.connections)?);
    let drive = Drive::measure(&catalogue.paths(), Bytes(round), DRIVE_WINDOW)?;
    info!(per_s = %drive.bytes_per_s, "the drive");
    Ok(drive)
}

struct Room {
    path: PathBuf,
    /// Removes the directory when dropped; `None` where it is kept.
    _temporary: Option<tempfile::TempDir>,
}

impl Room {
    fn open(args: &Common) -> Result<Self> {
        let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let dir = dir.canonicalize()?;
        let kind = rustix::fs::statfs(&dir)?;
        ensure!(
            kind.f_type != TMPFS_MAGIC,
            "{} is in memory, which is no drive: choose another with --dir",
            dir.display()
        );
        if args.keep {
            let path = dir.join("nearcast-lab");
            fs::create_dir_all(&path)?;
            return Ok(Self { path, _temporary: None });
        }
        let temporary = tempfile::Builder::new().prefix("nearcast-lab-").tempdir_in(&dir)?;
        Ok(Self { path: temporary.path().to_owned(), _temporary: Some(temporary) })
    }
}

/// The source, our copy of it, and room for the filesystem to breathe.
fn check_space(dir: &Path, workload: Workload) -> Result<()> {
    let len = workload.file_len.0.saturating_mul(u64::try_from(workload.files)?);
    let need = Bytes(len.saturating_mul(3));
    let stat = rustix::fs::statvfs(dir)?;
    let free = Bytes(stat.f_bavail.saturating_mul(stat.f_frsize));
    ensure!(need <= free, "{} has {free} free, and {need} are needed", dir.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_side_always_comes_after_the_same_one() {
        let all = [Side::Ours, Side::Peer, Side::Newer];
        for sides in [&all[..2], &all[..]] {
            let orders: Vec<Vec<Side>> = (0..6).map(|pair| order(pair, sides)).collect();
            for side in sides {
                let place = |order: &Vec<Side>| order.iter().position(|one| one == side).unwrap();
                let mut places: Vec<usize> = orders.iter().map(place).collect();
                places.sort_unstable();
                assert_eq!((places[0], places[5]), (0, sides.len() - 1), "{side:?}");
                let after: Vec<Side> = orders
                    .iter()
                    .filter_map(|order| place(order).checked_sub(1).map(|before| order[before]))
                    .collect();
                assert!(sides.iter().all(|one| one == side || after.contains(one)), "{side:?}");
            }
        }
    }
}

//! `nearcast-lab director`: what the control plane's decisions cost, at a size that is asked for.
//!
//! ```text
//! generator ──> desired state ──> Director::new ──> all report all ──> a day's mix of reports
//!                            ──> playbacks begun, steered ──> changes: routes, a version, a key
//! ```
//!
//! It drives the product's own `pure/director` in one thread, as the shell does: each report is
//! handled, its actions taken and its reply made, and the picture for fronts is asked for. Nothing
//! is sent, parsed or stored. docs/internals/director.md has the parameters.

mod manifests;
mod restart;
pub(crate) mod world;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, Result, ensure};
use director::front::{Player, Ticket};
use director::{Action, Change, Desired, Director, Event, Hardware, Ledger, Report as Told};
use model::id::{ApplianceId, AssetId, Generation};
use model::inventory::{Check, FilesDelta};
use model::machine::Machine;
use model::number::NumberSet;
use model::topology::{Prefix, Site};
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::view::Load;
use playback::token::Session;
use rig::bounds::{Bounds, DependsOn};
use rig::print;
use serde::Serialize;
use tracing::info;

use world::{Draw, Holdings, Size, World};

/// `nearcast-lab director`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = Size::DESIGN.appliances)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    appliances: u32,
    #[arg(long, default_value_t = Size::DESIGN.sites)]
    sites: u32,
    /// Asset versions.
    #[arg(long, default_value_t = Size::DESIGN.versions)]
    versions: u32,
    /// Files of all versions.
    #[arg(long, default_value_t = Size::DESIGN.files)]
    files: u32,
    /// Files held by all appliances together.
    #[arg(long, default_value_t = Size::DESIGN.placements)]
    placements: u64,
    #[arg(long, default_value_t = Size::DESIGN.prefixes)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=10_000_000))]
    prefixes: u32,
    /// All of the above divided by this.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    divide: u32,
    /// Reports of the mix.
    #[arg(long, default_value_t = 400_000)]
    reports: u32,
    /// Playbacks begun, and polls of steering, by 200,000 players in turn.
    #[arg(long, default_value_t = 400_000)]
    decisions: u32,
    /// Changes of one prefix, and a quarter of it of each other kind.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(4..=1000))]
    changes: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only a front: it follows, and all report to it.
    #[arg(long)]
    front: bool,
    /// Only a restart: from a database in this folder, which is written before if it has none, and
    /// left there.
    #[arg(long, value_name = "FOLDER")]
    restart: Option<std::path::PathBuf>,
    /// Only manifests: those that differ after a version comes or goes, whole and as differences.
    #[arg(long, conflicts_with_all = ["front", "restart"])]
    manifests: bool,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    size: Option<Size>,
    /// Files that all appliances together hold, as they said.
    held: u64,
    /// From desired state to a director that was told nothing.
    start_s: f64,
    /// All of all appliances, once: CPU time.
    first_reports_s: f64,
    /// Mean of the mix, ticks and actions with it: CPU time.
    report_us: f64,
    reports_per_s_core: f64,
    /// The longest report and the longest tick of the mix, by the clock.
    report_ms_max: f64,
    tick_ms_max: f64,
    /// Playbacks begun: the version, and its list.
    decisions_per_s_core: f64,
    /// Polls of steering, with an opened ticket.
    polls_per_s_core: f64,
    /// One prefix of one site comes or goes, until lists have it: the 99th of 100.
    route_change_ms: f64,
    /// The longest of these in CPU time, which a busy machine makes no longer.
    route_change_cpu_ms: f64,
    /// The same for 50,000 prefixes of a site, the longest.
    route_flood_ms: f64,
    /// The longest piece of the director's work for a new version: until the plan begins, when it
    /// has come, and when it is stored. CPU time, as of the next three.
    new_version_ms: f64,
    revoked_key_ms: f64,
    /// An operator says that an appliance's drives hold less.
    hardware_ms: f64,
    /// The longest of the three: a request waits for no more than that and the work before its own.
    stall_ms: f64,
    /// The longest plan, on its own thread: CPU time.
    plan_s: f64,
    /// Resident memory of this process: the director's, and what it shares of the catalogue.
    writer_rss_gb: f64,
    /// The same of a process that follows.
    front_rss_gb: f64,
    /// From a database to right lists, with all of all appliances.
    #[serde(flatten)]
    restart: restart::Restart,
    /// What is to be shown at the design size; at a smaller one a run that holds it shows nothing
    /// of that.
    bounds: Bounds,
    is_design_size: bool,
}

/// As with so many appliances an operator would have it.
pub(crate) const CONFIG: director::Config = director::Config {
    stale_after: Nanos::seconds(8),
    probe_after: Nanos::seconds(4),
    shares: director::share::Policy {
        full_after: Nanos::seconds(1200),
        settle: Nanos::seconds(20),
        rises_below: 800,
        cut_above: 900,
    },
    titles_load_max: 1250,
    report_interval: INTERVAL,
    objects_held_max: 500_000,
    notices_max: 100,
    rotation_min: Nanos::seconds(30),
    rotation_max: Nanos::seconds(3600),
    usable_settles: Nanos::seconds(300),
    usable_replans: Nanos::seconds(10),
    drain: director::drain::Config {
        leave: Nanos::seconds(12),
        quiet_egress: BitsPerSecond(1_000_000),
        quiet: Nanos::seconds(10),
        bound: Nanos::seconds(600),
    },
    sources: director::sources::Config { siblings_max: 4, elsewhere: true },
    tokens_max: Nanos::seconds(3600),
    routes_longest: director::RoutesLongest::USUAL,
    withdrawals_max: 1000,
    pictures_max: control::config::PICTURES_MAX,
};
pub(crate) const STEERING: steering::Config =
    steering::Config { pathways_min: 2, pathways_max: 4, explains: false };
const BEGIN: Instant = Instant(1_000_000_000_000);
const INTERVAL: Nanos = Nanos::seconds(2);
const TICKS_PER_INTERVAL: u32 = 20;
/// As often as time passes for the director, while first reports come as fast as they are taken.
const TICK: Duration = Duration::from_millis(100);
/// One report in so many says that files came or went.
const DELTA: u32 = 50;
const DELTA_FILES: usize = 10;
/// One report in so many has all of an inventory.
const FULL: u32 = 10_000;
/// One appliance in so many is silent, for so many rounds.
const SILENT: u32 = 2000;
const SILENT_ROUNDS: u32 = 6;
const DRIVES: u32 = 12;
const FLOOD: u32 = 50_000;

pub(crate) fn run(args: &Args) -> Result<()> {
    let size = Size {
        appliances: (args.appliances / args.divide).max(1),
        sites: (args.sites / args.divide).max(1),
        versions: args.versions / args.divide,
        files: args.files / args.divide,
        placements: args.placements / u64::from(args.divide),
        prefixes: args.prefixes / args.divide,
    };
    info!(?size, "drawing a world");
    let mut world = World::new(size, args.seed)?;
    if let Some(folder) = &args.restart {
        let restart = restart::run(&mut world, folder, args.seed)?;
        return print(&serde_json::to_string(&restart)?);
    }
    let desired = world.desired()?;
    let is_design_size = size == Size::DESIGN;
    let mut report = Report { size: Some(size), is_design_size, ..Report::default() };
    if args.front {
        let mut stand = Stand::follow(&world, desired)?;
        stand.all_report_all(&mut report)?;
        report.front_rss_gb = gigabytes(rig::site::resident(std::process::id())?.0);
        return print(&serde_json::to_string(&report)?);
    }
    let mut stand = Stand::start(&world, desired, &mut report)?;
    if args.manifests {
        let manifests = manifests::run(&world, &mut stand, args.changes / 4)?;
        return rig::say_all(args.json, &manifests);
    }
    stand.all_report_all(&mut report)?;
    let lists = stand.lists(args.seed)?;
    stand.mix(args, &mut report)?;
    stand.decide(args, &mut report)?;
    report.writer_rss_gb = gigabytes(rig::site::resident(std::process::id())?.0);
    stand.change(args, &mut report)?;
    drop(stand);
    let Report { route_change_ms, route_flood_ms, stall_ms, writer_rss_gb, .. } = report;
    info!(route_change_ms, route_flood_ms, stall_ms, writer_rss_gb, "changes are made");
    report.front_rss_gb = front_rss_gb(args)?;
    info!(report.front_rss_gb, "a front has followed");
    report.restart = restarted(args)?;
    ensure!(report.restart.lists == lists, "after a restart other lists are made");
    report.bounds = report.held_against();
    let text = || format!("{report:#?}\n{}", report.bounds.text());
    rig::say(args.json, &report, text)?;
    report.bounds.verdict()
}

impl Report {
    /// Its figures beside their bounds. `report_us` and `reports_per_s_core` are one figure, and
    /// both are promised.
    fn held_against(&self) -> Bounds {
        let mut bounds = Bounds::default();
        let cpu = DependsOn::Processor;
        bounds.at_most("report_us", 20.0, self.report_us, cpu);
        bounds.at_least("reports_per_s_core", 50_000.0, self.reports_per_s_core, cpu);
        bounds.at_least("decisions_per_s_core", 500_000.0, self.decisions_per_s_core, cpu);
        bounds.at_most("writer_rss_gb", 4.0, self.writer_rss_gb, DependsOn::Nothing);
        bounds.at_most("front_rss_gb", 3.0, self.front_rss_gb, DependsOn::Nothing);
        let clock = DependsOn::ProcessorAndLoad;
        bounds.at_most("restart_s", 60.0, self.restart.restart_s, clock);
        bounds.at_most("route_change_ms", 50.0, self.route_change_ms, clock);
        bounds.at_most("route_flood_ms", 3000.0, self.route_flood_ms, clock);
        bounds.at_most("stall_ms", 20.0, self.stall_ms, cpu);
        bounds
    }
}

/// The inventory of an appliance: its state, all that it holds, and whether its delta is out.
#[derive(Clone, Copy, Default)]
struct State {
    number: u64,
    check: Check,
    is_out: bool,
}

/// A director, and the appliances as far as they have a state.
struct Stand<'a> {
    world: &'a World,
    director: Director,
    now: Instant,
    names: Vec<ApplianceId>,
    states: Vec<State>,
    sequence: u64,
    template: Told,
}

impl<'a> Stand<'a> {
    fn start(world: &'a World, desired: Desired, report: &mut Report) -> Result<Self> {
        info!("starting");
        let begun = Clock::now();
        let director = Director::new(CONFIG, desired, Ledger::default(), BEGIN, UnixSeconds(1));
        let mut stand = Self::of(world, director)?;
        report.start_s = begun.elapsed().as_secs_f64();
        stand.settle()?;
        Ok(stand)
    }

    /// A front's director, which was told what should be.
    fn follow(world: &'a World, desired: Desired) -> Result<Self> {
        info!("following");
        let mut director = Director::replica(CONFIG, BEGIN);
        let (desired, generation) = (Box::new(desired), Generation(1));
        director.handle(BEGIN, Event::Replaced { desired, generation });
        Self::of(world, director)
    }

    fn of(world: &'a World, director: Director) -> Result<Self> {
        let count = usize::try_from(world.size.appliances)?;
        let drives = (0..DRIVES).map(|n| format!("{n:032x}")).collect();
        let template = Told {
            start_id: 1,
            peer_address: Some("192.0.2.1:9443".to_owned()),
            serving: true,
            hardware: Hardware { machine: "ab".repeat(16), drives },
            drives_in_use: usize::try_from(DRIVES)?,
            usable: world.usable(),
            // Without it each would need keys in its manifest, and another plan.
            trust: Some(Generation(0)),
            ..Told::default()
        };
        Ok(Self {
            world,
            director,
            now: BEGIN,
            names: (0..world.size.appliances).map(world::appliance).collect::<Result<_>>()?,
            states: vec![State::default(); count],
            sequence: 0,
            template,
        })
    }

    /// Lets something happen: how long that took of this thread's CPU, until readers see it.
    fn happens(&mut self, event: Event<'_>) -> Result<Duration> {
        let begun = rig::cpu::of_this_thread()?;
        self.director.handle(self.now, event);
        black_box(self.director.snapshot());
        Ok(rig::cpu::of_this_thread()?.saturating_sub(begun))
    }

    /// Takes the director's actions: all that it wants stored is stored at once, and plans are
    /// worked out and freed on another thread, so that this one's memory has nothing to do with it.
    fn settle(&mut self) -> Result<Spent> {
        let mut spent = Spent::default();
        while let Some(action) = self.director.poll() {
            let is_elsewhere = matches!(action, Action::Place(_) | Action::Free(_));
            let (event, took) = if is_elsewhere {
                let work = || at_once(action);
                std::thread::scope(|scope| scope.spawn(work).join()).expect("no plan panics")?
            } else {
                at_once(action)?
            };
            let Some(event) = event else { continue };
            if is_elsewhere {
                spent.elsewhere += took;
            }
            spent.here = spent.here.max(self.happens(event)?);
        }
        Ok(spent)
    }

    /// Lets one report be taken and answered, and does what follows; how long that took, in
    /// seconds.
    fn tell(&mut self, n: u32, inventory: FilesDelta) -> Result<f64> {
        let took = self.take_report(n, inventory)?;
        let begun = Clock::now();
        self.settle()?;
        Ok(took + begun.elapsed().as_secs_f64())
    }

    /// The same without what follows.
    fn take_report(&mut self, n: u32, inventory: FilesDelta) -> Result<f64> {
        let at = usize::try_from(n)?;
        self.sequence += 1;
        let id = &self.names[at];
        self.template.sequence = self.sequence;
        self.template.base_url.clear();
        self.template.base_url.push_str("https://");
        self.template.base_url.push_str(id.as_str());
        self.template.base_url.push_str(".example");
        let busy = u64::from(Draw::of(self.sequence, "load", n).below(900));
        self.template.load = Load {
            connections: busy * 10,
            connections_max: 10_000,
            egress: BitsPerSecond(busy * 100_000_000),
            egress_max: BitsPerSecond(100_000_000_000),
            ..Load::default()
        };
        self.template.generation = self.director.reply(id).map_or(Generation(0), |r| r.generation);
        self.template.served = Some(self.template.generation);
        let to = inventory.to;
        self.template.came = if inventory.from == 0 { inventory.check } else { Check::default() };
        self.template.files = Some(inventory);
        let begun = Clock::now();
        let event = Event::Reported { appliance: id, report: &self.template };
        self.director.handle(self.now, event);
        let reply = self.director.reply(id).context("it is registered")?;
        black_box(self.director.snapshot());
        let took = begun.elapsed().as_secs_f64();
        ensure!(reply.inventory == to, "{n} is asked for {} to {to}", reply.inventory);
        Ok(took)
    }

    fn tick(&mut self) -> Result<f64> {
        let begun = Clock::now();
        let seconds = UnixSeconds(self.now.0 / 1_000_000_000);
        self.director.handle(self.now, Event::Tick(seconds));
        black_box(self.director.snapshot());
        self.settle()?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Lets these be told after a tick; how long all of that took of this thread's CPU.
    fn tell_all(&mut self, told: Vec<(u32, FilesDelta)>, report: &mut Report) -> Result<Duration> {
        rig::stop::check()?;
        let begun = rig::cpu::of_this_thread()?;
        report.tick_ms_max = report.tick_ms_max.max(self.tick()? * 1e3);
        for (n, inventory) in told {
            let took = self.tell(n, inventory)?;
            report.report_ms_max = report.report_ms_max.max(took * 1e3);
        }
        Ok(rig::cpu::of_this_thread()?.saturating_sub(begun))
    }

    fn all_report_all(&mut self, report: &mut Report) -> Result<()> {
        info!("all report all");
        let count = self.world.size.appliances;
        let (mut whole, mut tick_at) = (Duration::ZERO, Duration::ZERO);
        for n in 0..count {
            rig::stop::check()?;
            let inventory = self.full(n, 1)?;
            report.held += inventory.came.len();
            let begun = rig::cpu::of_this_thread()?;
            if tick_at <= whole {
                self.tick()?;
                tick_at = whole + TICK;
            }
            self.tell(n, inventory)?;
            whole += rig::cpu::of_this_thread()?.saturating_sub(begun);
        }
        self.tick()?;
        report.first_reports_s = whole.as_secs_f64();
        Ok(())
    }

    fn full(&mut self, n: u32, to: u64) -> Result<FilesDelta> {
        let came = self.world.holdings(n).files()?;
        let check = Check::of_files(&came);
        self.states[usize::try_from(n)?] = State { number: to, check, is_out: false };
        Ok(FilesDelta { to, came, check, ..FilesDelta::default() })
    }

    /// The first files of an appliance's first version go, or come back.
    fn delta(&mut self, n: u32) -> Result<FilesDelta> {
        let Holdings { versions, .. } = self.world.holdings(n);
        let first = versions.first().context("it holds something")?;
        let files: NumberSet = world::files_of(first)?.take(DELTA_FILES).collect();
        let state = &mut self.states[usize::try_from(n)?];
        let from = state.number;
        state.number += 1;
        state.is_out = !state.is_out;
        for file in &files {
            if state.is_out { state.check.take_file(file) } else { state.check.put_file(file) }
        }
        let (came, gone) =
            if state.is_out { (NumberSet::new(), files) } else { (files, NumberSet::new()) };
        let State { number: to, check, .. } = *state;
        Ok(FilesDelta { from, to, came, gone, check, others: 0 })
    }

    fn mix(&mut self, args: &Args, report: &mut Report) -> Result<()> {
        info!("a day's mix");
        let count = self.world.size.appliances;
        let (mut whole, mut all) = (Duration::ZERO, 0_u32);
        let per_tick = count.div_ceil(TICKS_PER_INTERVAL);
        for round in 0..args.reports.div_ceil(count) {
            for first in (0..count).step_by(usize::try_from(per_tick)?) {
                let mut told = Vec::new();
                for n in first..(first + per_tick).min(count) {
                    told.extend(self.turn(args.seed, round, n)?);
                }
                all += u32::try_from(told.len())?;
                self.now = self.now + Nanos(INTERVAL.0 / u64::from(TICKS_PER_INTERVAL));
                whole += self.tell_all(told, report)?;
            }
        }
        report.report_us = whole.as_secs_f64() * 1e6 / f64::from(all.max(1));
        report.reports_per_s_core = 1e6 / report.report_us;
        info!(report.report_us, "reports are taken");
        Ok(())
    }

    /// The report of an appliance in a round; none of one that is silent.
    fn turn(&mut self, seed: u64, round: u32, n: u32) -> Result<Option<(u32, FilesDelta)>> {
        if Draw::of(seed, "silent", (round / SILENT_ROUNDS) ^ (n << 8)).below(SILENT) == 0 {
            return Ok(None);
        }
        let mut draw = Draw::of(u64::from(round), "mix", n);
        let State { number, check, .. } = self.states[usize::try_from(n)?];
        let inventory = if draw.below(FULL) == 0 {
            self.full(n, number + 1)?
        } else if draw.below(DELTA) == 0 {
            self.delta(n)?
        } else {
            FilesDelta { from: number, to: number, check, ..FilesDelta::default() }
        };
        Ok(Some((n, inventory)))
    }

    /// Players with their sessions, and an asset for each.
    fn players(&self, seed: u64) -> Result<Vec<(Prefix, Session, AssetId)>> {
        let mut draw = Draw::of(seed, "decisions", 0);
        let player = |_| {
            let client = world::prefix(draw.below(self.world.size.prefixes.max(1)))?;
            let version = self.world.popular(&mut draw);
            let asset = self.world.versions[version].files.asset.clone();
            Ok((client, Session::of_random(draw.session()), asset))
        };
        (0..POOL).map(player).collect()
    }

    /// A hash of the lists of some players.
    fn lists(&self, seed: u64) -> Result<String> {
        let (mut hasher, snapshot) = (blake3::Hasher::new(), self.director.snapshot());
        for (client, session, asset) in &self.players(seed)? {
            let player = Player { client: *client, session, plain: false };
            let choice = snapshot.choose(asset, &player, UnixSeconds(1), &STEERING)?;
            hasher.update(choice.version.id().as_str().as_bytes());
            for of in choice.list.offered() {
                let placed = snapshot.view.placed(of.appliance).context("it is there")?;
                hasher.update(placed.appliance.id.as_str().as_bytes());
            }
        }
        Ok(hasher.finalize().to_string())
    }

    /// What the first players go on with.
    fn tickets(&self, players: &[(Prefix, Session, AssetId)], most: u32) -> Result<Vec<Ticket>> {
        let snapshot = self.director.snapshot();
        let ticket = |(client, session, asset): &(Prefix, Session, AssetId)| {
            let player = Player { client: *client, session, plain: false };
            let choice = snapshot.choose(asset, &player, UnixSeconds(1), &STEERING)?;
            let offered = choice.list.offered().iter();
            let offered = offered.filter_map(|of| snapshot.view.placed(of.appliance));
            Ok(Ticket {
                session: *session,
                expires: UnixSeconds(1),
                version: choice.version.id().clone(),
                client: *client,
                plain: false,
                pathways: offered.map(|placed| placed.appliance.id.clone()).collect(),
                parts: BTreeMap::new(),
            })
        };
        players.iter().take(usize::try_from(most)?).map(ticket).collect()
    }

    fn decide(&mut self, args: &Args, report: &mut Report) -> Result<()> {
        info!("playbacks");
        let players = self.players(args.seed)?;
        let mut lists = 0;
        let begun = rig::cpu::of_this_thread()?;
        for n in 0..args.decisions {
            let (client, session, asset) = &players[usize::try_from(n)? % players.len()];
            let player = Player { client: *client, session, plain: false };
            let snapshot = self.director.snapshot();
            let choice = snapshot.choose(asset, &player, UnixSeconds(1), &STEERING);
            lists += u32::from(black_box(choice).is_ok());
        }
        report.decisions_per_s_core = f64::from(args.decisions) / since(begun)?;
        ensure!(lists == args.decisions, "{lists} of {} have a list", args.decisions);
        info!("polls");
        let tickets = self.tickets(&players, args.decisions)?;
        let begun = rig::cpu::of_this_thread()?;
        for n in 0..args.decisions {
            let ticket = &tickets[usize::try_from(n)? % tickets.len()];
            let snapshot = self.director.snapshot();
            ensure!(!snapshot.is_withdrawn(&ticket.version, UnixSeconds(1)), "it is not");
            black_box(snapshot.steer(ticket, &STEERING));
        }
        report.polls_per_s_core = f64::from(args.decisions) / since(begun)?;
        // A run at full size takes long, and may be stopped before its end.
        let Report { decisions_per_s_core, polls_per_s_core, .. } = report;
        info!(decisions_per_s_core, polls_per_s_core, "lists are made");
        Ok(())
    }

    /// Lets desired state change, until readers see it; how long that took, in milliseconds, by the
    /// clock and in CPU time.
    fn changed(&mut self, change: Change) -> Result<(f64, f64)> {
        rig::stop::check()?;
        let (begun, spent) = (Clock::now(), rig::cpu::of_this_thread()?);
        self.director.handle(self.now, Event::Changed(change));
        self.settle()?;
        black_box(self.director.snapshot());
        Ok((begun.elapsed().as_secs_f64() * 1e3, since(spent)? * 1e3))
    }

    /// Lets desired state change in a way that manifests follow from, until they are stored.
    fn replanned(&mut self, change: Change) -> Result<Spent> {
        rig::stop::check()?;
        let here = self.happens(Event::Changed(change))?;
        let spent = self.settle()?;
        Ok(Spent { here: here.max(spent.here), ..spent })
    }

    fn change(&mut self, args: &Args, report: &mut Report) -> Result<()> {
        info!("changes");
        let mut took = Vec::new();
        for n in 0..args.changes {
            let id = world::site(n / 2 * 7 % self.world.size.sites)?;
            let mut site: Site = self.director.desired().sites.get(&id).context("a site")?.clone();
            let extra = world::prefix(self.world.size.prefixes + n / 2)?;
            if n % 2 == 0 {
                site.prefixes.push(extra)
            } else {
                site.prefixes.retain(|p| *p != extra)
            }
            let (clock, cpu) = self.changed(Change::Site(site))?;
            took.push(clock);
            report.route_change_cpu_ms = report.route_change_cpu_ms.max(cpu);
        }
        took.sort_by(f64::total_cmp);
        report.route_change_ms = took[(took.len() * 99 / 100).min(took.len() - 1)];
        let few = args.changes / 4;
        for n in 0..few.min(4) {
            let id = world::site(n % self.world.size.sites)?;
            let prefixes = self.world.size.prefixes..self.world.size.prefixes + FLOOD;
            let prefixes = prefixes.map(world::prefix).collect::<Result<_>>()?;
            let site = Site::new(id, prefixes);
            let (clock, _) = self.changed(Change::Site(site))?;
            report.route_flood_ms = report.route_flood_ms.max(clock);
        }
        for n in 0..few {
            let version = world::new_version(self.world, n)?;
            let spent = self.replanned(Change::Version(version))?;
            report.new_version_ms = report.new_version_ms.max(spent.here.as_secs_f64() * 1e3);
            report.plan_s = report.plan_s.max(spent.elsewhere.as_secs_f64());
        }
        for n in 0..few {
            let revoked = (0..=n).map(|n| format!("{n:04x}")).collect();
            let spent = self.replanned(Change::Revoked(revoked))?;
            report.revoked_key_ms = report.revoked_key_ms.max(spent.here.as_secs_f64() * 1e3);
        }
        for n in 0..few {
            let id = self.names[usize::try_from(n % self.world.size.appliances)?].clone();
            let usable = Bytes(self.world.usable().0 / 4 * 3);
            let spent = self.replanned(Change::Usable(id, usable))?;
            report.hardware_ms = report.hardware_ms.max(spent.here.as_secs_f64() * 1e3);
            report.plan_s = report.plan_s.max(spent.elsewhere.as_secs_f64());
        }
        let longest = [report.new_version_ms, report.revoked_key_ms, report.hardware_ms];
        report.stall_ms = longest.into_iter().fold(0.0, f64::max);
        Ok(())
    }
}

/// The answer to an action, and this thread's CPU time for it.
fn at_once(action: Action) -> Result<(Option<Event<'static>>, Duration)> {
    let begun = rig::cpu::of_this_thread()?;
    let event = action.at_once();
    Ok((event, rig::cpu::of_this_thread()?.saturating_sub(begun)))
}

/// CPU time: the longest piece of the director's work, and all of that beside it.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    here: Duration,
    elsewhere: Duration,
}

/// The memory of a front that follows such a writer, in a process of its own.
fn front_rss_gb(args: &Args) -> Result<f64> {
    info!("a front");
    let told: serde_json::Value = serde_json::from_slice(&of_same_size(args, &["--front"])?)?;
    told["front_rss_gb"].as_f64().context("it tells its memory")
}

/// How such a writer begins anew, in a process of its own.
fn restarted(args: &Args) -> Result<restart::Restart> {
    info!("a restart");
    let folder = tempfile::tempdir()?;
    let path = folder.path().to_str().context("a folder whose name is text")?;
    Ok(serde_json::from_slice(&of_same_size(args, &["--restart", path])?)?)
}

/// What another process prints of the same world.
fn of_same_size(args: &Args, with: &[&str]) -> Result<Vec<u8>> {
    let sizes = [
        ("--appliances", args.appliances.to_string()),
        ("--sites", args.sites.to_string()),
        ("--versions", args.versions.to_string()),
        ("--files", args.files.to_string()),
        ("--placements", args.placements.to_string()),
        ("--prefixes", args.prefixes.to_string()),
        ("--divide", args.divide.to_string()),
        ("--seed", args.seed.to_string()),
    ];
    let mut other = std::process::Command::new(std::env::current_exe()?);
    other.arg("director").args(with);
    for (option, value) in &sizes {
        other.args([*option, value]);
    }
    let told = other.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(told.status.success(), "{with:?} ended: {}", told.status);
    Ok(told.stdout)
}

/// Players, and as many tickets: what they read is more than a processor's caches hold, as at a
/// front.
const POOL: usize = 200_000;

/// Seconds of this thread's CPU.
fn since(begun: Duration) -> Result<f64> {
    Ok(rig::cpu::of_this_thread()?.saturating_sub(begun).as_secs_f64())
}

fn gigabytes(bytes: u64) -> f64 {
    Bytes(bytes)
        .0
        .checked_div(1_000_000)
        .map_or(0.0, |mb| u32::try_from(mb).map_or(f64::MAX, f64::from) / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a run on a fast machine might have it.
    fn sound() -> Report {
        let mut restart = restart::Restart::default();
        restart.restart_s = 60.0;
        Report {
            report_us: 20.0,
            reports_per_s_core: 50_000.0,
            decisions_per_s_core: 500_000.0,
            writer_rss_gb: 4.0,
            front_rss_gb: 3.0,
            restart,
            route_change_ms: 50.0,
            route_flood_ms: 3000.0,
            stall_ms: 20.0,
            ..Report::default()
        }
    }

    #[test]
    fn each_figure_beyond_its_bound_makes_the_run_invalid() {
        sound().held_against().verdict().unwrap();
        type Case = (&'static str, fn(&mut Report));
        let changes: [Case; 9] = [
            ("report_us", |of| of.report_us = 20.1),
            ("reports_per_s_core", |of| of.reports_per_s_core = 49_999.0),
            ("decisions_per_s_core", |of| of.decisions_per_s_core = 499_999.0),
            ("writer_rss_gb", |of| of.writer_rss_gb = 4.001),
            ("front_rss_gb", |of| of.front_rss_gb = 3.001),
            ("restart_s", |of| of.restart.restart_s = 60.1),
            ("route_change_ms", |of| of.route_change_ms = 50.1),
            ("route_flood_ms", |of| of.route_flood_ms = 3000.1),
            ("stall_ms", |of| of.stall_ms = 20.1),
        ];
        let whole = serde_json::to_value(sound()).unwrap();
        for (name, change) in changes {
            let mut report = sound();
            change(&mut report);
            let said = report.held_against().verdict().unwrap_err().to_string();
            assert!(said.starts_with(&format!("not held: {name} ")), "{said}");
            assert!(whole.get(name).is_some(), "{name} is a figure of the report");
        }
    }
}

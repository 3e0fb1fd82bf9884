//! `nearcast-lab outage`: films go on and begin while the control plane is killed in parts.
//!
//! ```text
//! steady        writer, f1, f2, all appliances
//! one front     the writer and all fronts but one are killed
//! + appliance   and an appliance: the front that lives has to notice by itself
//! none          the last front is killed: what runs goes on, nothing can begin
//! back          all are started: how long until each of them knows all of the fleet again
//! after         as before
//! ```
//!
//! Valid only if every segment's bytes were right, no playback failed to begin while a front lived,
//! none stalled, and everything was known again in time.

mod film;
mod model;
mod player;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::bounds::{Bounds, DependsOn, count};
use rig::fleet::{self, Fleet, Plan, Role};
use serde::Serialize;
use tracing::{info, warn};

use crate::room::RunArgs;

pub(crate) use film::{Film, SEGMENT, name as segment_name};
pub(crate) use player::{Outcome, Playback, World, entry_urls};

/// `nearcast-lab outage`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Films that are played from the beginning to the end of the run.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    players: u32,
    /// Playbacks that begin per second.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=50))]
    begin: u32,
    /// Fronts beside the writer.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=8))]
    fronts: u16,
    /// Appliances, each with the whole film.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=8))]
    appliances: u16,
    /// Length of each phase in seconds; longer than what players buffer (12 s).
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u64).range(5..=600))]
    phase: u64,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18700)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// Playbacks that were begun while a front lived.
    new_sessions: u64,
    /// Of these, without an entry manifest or a first segment.
    new_sessions_failed: u64,
    /// Tried with no front alive; they cannot begin.
    new_sessions_without_front: u64,
    /// Films that were played all along.
    running: usize,
    /// Times that one of them ran out of its buffer.
    running_stalls: u32,
    running_stalled_s: f64,
    /// Segments that came to them, every byte compared.
    running_segments: usize,
    /// Times that one of them left a pathway that failed.
    running_failovers: u32,
    /// Answers of steering to them, and questions without one.
    steering_answers: u32,
    steering_unanswered: u32,
    /// From the death of an appliance until the only front knew.
    noticed_s: f64,
    /// From the start of everything until a front said that it was ready: the list in front of
    /// them asks `/healthz`.
    ready_s: f64,
    /// From the start of everything until every process knew the whole fleet.
    recovered_s: f64,
    phases: Vec<Phase>,
    bounds: Bounds,
}

#[derive(Debug, Serialize)]
struct Phase {
    name: &'static str,
    seconds: f64,
    new_sessions: u64,
    failed: u64,
    /// By which process of the control plane the playbacks were begun, the writer first.
    begun_by: Vec<u64>,
}

/// Counts of the playbacks that begin.
#[derive(Clone, Debug, Default)]
struct Begun {
    tried: u64,
    failed: u64,
    without_front: u64,
    by: Vec<u64>,
}

/// What the threads of a run share.
struct Run {
    world: Arc<World>,
    stop: AtomicBool,
    front_lives: AtomicBool,
    begun: Mutex<Begun>,
}

/// Observed state should be complete again within this.
const RECOVERED_MAX: Duration = Duration::from_secs(10);
/// A front knows that an appliance is gone within so many seconds.
const NOTICED_MAX: f64 = 2.0;
/// A run that takes longer to recover is given up.
const GIVE_UP: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
const ASSET: &str = "film";

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = args.run.open()?;
    let film = Film::of(Duration::from_secs(args.phase * 6 + 120));
    film.write(&room.join("source"))?;
    let (fronts, appliances) = (args.fronts, args.appliances);
    let plan = Plan { fronts, appliances, ..Plan::new(room.to_path_buf(), args.port, ASSET) };
    let mut fleet = Fleet::start(plan, &room.join("source"))?;
    let world = Arc::new(World {
        fronts: fleet.roles().into_iter().map(|role| fleet.url(role)).collect(),
        asset: ASSET.to_owned(),
        film,
        client: rig::url::trusting(&room.join("ca.pem"))?.build(),
    });
    let run = Run {
        stop: AtomicBool::new(false),
        front_lives: AtomicBool::new(true),
        begun: Mutex::new(Begun { by: vec![0; world.fronts.len()], ..Begun::default() }),
        world,
    };
    let mut report = run.all(args, &mut fleet)?;
    report.bounds = report.held_against();
    rig::say(args.run.json, &report, || text(&report))?;
    report.bounds.verdict()
}

impl Run {
    fn all(&self, args: &Args, fleet: &mut Fleet) -> Result<Report> {
        std::thread::scope(|scope| {
            let mut players = Vec::new();
            for _ in 0..args.players {
                let mut playback = Playback::begin(&self.world).context("a first playback")?;
                players.push(scope.spawn(move || playback.play(&self.stop)));
            }
            let every = Duration::from_secs(1) / args.begin;
            scope.spawn(move || self.begin_many(scope, every));
            let phases = self.phases(args, fleet);
            self.stop.store(true, Ordering::Relaxed);
            let mut outcomes = Vec::new();
            for player in players {
                outcomes.push(player.join().unwrap_or_else(|_| bail!("a player panicked"))?);
            }
            Ok(self.report(phases?, &outcomes))
        })
    }

    fn phases(&self, args: &Args, fleet: &mut Fleet) -> Result<Report> {
        let length = Duration::from_secs(args.phase);
        let mut report = Report::default();
        let pass = |report: &mut Report, fleet: &mut Fleet, name| {
            self.pass(fleet, name, length).map(|phase| report.phases.push(phase))
        };
        pass(&mut report, fleet, "steady")?;

        let last = Role::Front(args.fronts - 1);
        let others: Vec<Role> = fleet.roles().into_iter().filter(|role| *role != last).collect();
        others.iter().for_each(|role| fleet.kill_control(*role));
        pass(&mut report, fleet, "one front")?;

        fleet.kill_appliance(0);
        report.noticed_s = self.until_noticed(fleet, last)?.as_secs_f64();
        pass(&mut report, fleet, "one front, an appliance less")?;

        self.front_lives.store(false, Ordering::SeqCst);
        fleet.kill_control(last);
        pass(&mut report, fleet, "no front")?;

        let start = Instant::now();
        fleet.start_appliance(0)?;
        for role in fleet.roles() {
            fleet.start_control(role)?;
        }
        rig::until("a front to be ready", GIVE_UP, LOOK_EVERY, || Ok(fleet.is_ready()))?;
        report.ready_s = start.elapsed().as_secs_f64();
        self.front_lives.store(true, Ordering::SeqCst);
        fleet.wait_until_whole(GIVE_UP)?;
        report.recovered_s = start.elapsed().as_secs_f64();
        pass(&mut report, fleet, "all back")?;
        Ok(report)
    }

    /// Lets time pass, and says what began in it.
    fn pass(&self, fleet: &mut Fleet, name: &'static str, length: Duration) -> Result<Phase> {
        info!(name, "phase");
        let (began, before) = (Instant::now(), self.begun().clone());
        while began.elapsed() < length {
            fleet.check()?;
            rig::stop::check()?;
            std::thread::sleep(Duration::from_millis(100));
        }
        let after = self.begun().clone();
        let by = after.by.iter().zip(&before.by).map(|(after, before)| after - before);
        Ok(Phase {
            name,
            seconds: began.elapsed().as_secs_f64(),
            new_sessions: after.tried - before.tried,
            failed: after.failed - before.failed,
            begun_by: by.collect(),
        })
    }

    /// Until the only front that lives knows that an appliance is gone.
    fn until_noticed(&self, fleet: &Fleet, front: Role) -> Result<Duration> {
        rig::until("the front to notice", GIVE_UP, LOOK_EVERY, || {
            let view = fleet.get(front, "/v1/fleet")?;
            let gone = &view["sites"][0]["appliances"][0];
            ensure!(gone["id"] == fleet::appliance_name(0), "another appliance: {gone}");
            let noticed = gone["state"] != "healthy";
            if noticed {
                info!(reason = %gone["reason"], "the front has noticed");
            }
            Ok(noticed)
        })
    }

    /// Begins playbacks until the end, each on a thread of its own.
    fn begin_many<'s>(&'s self, scope: &'s Scope<'s, '_>, every: Duration) {
        while !self.stop.load(Ordering::Relaxed) {
            scope.spawn(|| self.begin_one());
            std::thread::sleep(every);
        }
    }

    fn begin_one(&self) {
        let lived = self.front_lives.load(Ordering::SeqCst);
        let mut playback = Playback::begin(&self.world);
        let front = playback.as_ref().ok().map(|playback| playback.front);
        let result = match &mut playback {
            Ok(playback) => playback.first_segment(),
            Err(error) => Err(anyhow::anyhow!("{error:#}")),
        };
        let lives = lived && self.front_lives.load(Ordering::SeqCst);
        let mut begun = self.begun();
        match (result, lives) {
            (Ok(()), _) => begun.tried += 1,
            (Err(_), false) => begun.without_front += 1,
            (Err(error), true) => {
                begun.tried += 1;
                begun.failed += 1;
                warn!(error = format!("{error:#}"), "a playback could not begin");
            }
        }
        if let Some(by) = front.and_then(|front| begun.by.get_mut(front)) {
            *by += 1;
        }
    }

    fn report(&self, report: Report, outcomes: &[Outcome]) -> Report {
        let begun = self.begun();
        let stalled: Duration = outcomes.iter().map(|outcome| outcome.stalled).sum();
        Report {
            new_sessions: begun.tried,
            new_sessions_failed: begun.failed,
            new_sessions_without_front: begun.without_front,
            running: outcomes.len(),
            running_stalls: outcomes.iter().map(|outcome| outcome.stalls).sum(),
            running_stalled_s: stalled.as_secs_f64(),
            running_segments: outcomes.iter().map(|outcome| outcome.segments).sum(),
            running_failovers: outcomes.iter().map(|outcome| outcome.failovers).sum(),
            steering_answers: outcomes.iter().map(|outcome| outcome.steered.0).sum(),
            steering_unanswered: outcomes.iter().map(|outcome| outcome.steered.1).sum(),
            ..report
        }
    }

    fn begun(&self) -> std::sync::MutexGuard<'_, Begun> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Report {
    fn held_against(&self) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.at_least("new_sessions", 1.0, count(self.new_sessions), DependsOn::Nothing);
        bounds.none("new_sessions_failed", self.new_sessions_failed);
        bounds.none("running_stalls", self.running_stalls);
        let (most, clock) = (RECOVERED_MAX.as_secs_f64(), DependsOn::ProcessorAndLoad);
        bounds.at_most("noticed_s", NOTICED_MAX, self.noticed_s, clock);
        bounds.at_most("recovered_s", most, self.recovered_s, clock);
        bounds
    }
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    for phase in &report.phases {
        let Phase { name, seconds, new_sessions, failed, begun_by } = phase;
        text += &format!(
            "{name:<30}{seconds:>6.1} s {new_sessions:>5} begun, {failed} failed, by {begun_by:?}\n"
        );
    }
    text += &format!(
        "{} films: {} stalls, {} segments, {} failovers; the front noticed after {:.2} s; all \
         known again after {:.2} s",
        report.running,
        report.running_stalls,
        report.running_segments,
        report.running_failovers,
        report.noticed_s,
        report.recovered_s
    );
    text + "\n" + &report.bounds.text()
}

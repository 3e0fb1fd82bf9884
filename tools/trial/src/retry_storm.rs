//! `nearcast-lab retry-storm`: an appliance dies under all of its players at once.
//!
//! ```text
//! players ── all on the first appliance, by its weight ──> SIGKILL ──> the others
//!    └──────── steering, in turns of `rate_max` a second ──> a front
//! each second: connections and responses of the others, answers of the front ──> calm?
//! ```
//!
//! Those that live may have few connections more than their share of the players will be. Valid
//! only if no player stalled or got a wrong byte, no appliance turned a connection away, and it was
//! calm again in time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::fleet::{Fleet, Plan, Role, appliance_name};
use serde::Serialize;
use serde_json::json;
use tracing::info;

use crate::outage::{Film, Outcome, Playback, World};

/// `nearcast-lab retry-storm`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Players of the appliance that dies.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=5000))]
    players: u32,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_660)]
    port: u16,
    /// Connections that each survivor may have, in percent of the players. Two share them evenly:
    /// with less than 50 the run must fail.
    #[arg(long, default_value_t = 65, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    players: u32,
    /// Connections that each survivor may have.
    limit: u32,
    /// Of these on the appliance when it died.
    on_dead: f64,
    /// From its death to the end of the last second that was not calm.
    calm_s: f64,
    stalls: u32,
    stalled_s: f64,
    /// Segments that came, every byte compared.
    segments: usize,
    failovers: u32,
    others: Vec<Other>,
    front: Front,
}

/// An appliance that lives.
#[derive(Debug, Default, Serialize)]
struct Other {
    name: String,
    connections_peak: f64,
    /// New connections in the busiest second.
    accepted_peak_per_s: f64,
    /// Responses a second: the mean before the death, and the most after it.
    responses_before_per_s: f64,
    responses_peak_per_s: f64,
    /// Connections and handshakes that were turned away or given up for others.
    refused: f64,
}

/// The process that answers players.
#[derive(Debug, Default, Serialize)]
struct Front {
    /// The bound that players were told to keep together.
    rate_max: u32,
    /// Steering answers a second: the mean before the death, and the most after it.
    answers_before_per_s: f64,
    answers_peak_per_s: f64,
    /// Answers with a longer TTL than the configured one.
    delayed: f64,
    /// Requests answered 503.
    shed: f64,
}

/// Half of what the players would ask at the TTL of 10 s: the front has to stretch it.
fn rate_max(players: u32) -> u32 {
    (players / 20).max(1)
}

const CALM_MAX: Duration = Duration::from_secs(30);
/// Looked at before the death, when all play.
const BEFORE: Duration = Duration::from_secs(20);
/// And after it: twice as long as it may take.
const AFTER: Duration = Duration::from_secs(60);
/// New connections a second of which it is calm: one of a hundred players.
const CALM_SHARE: f64 = 0.01;
/// Survivors share the players evenly, by draws: a survivor of two may get so much of them.
const SHARE_MAX: f64 = 0.65;
/// Players that begin at a time.
const BEGIN_AT_ONCE: u32 = 8;
/// A player's thread needs little.
const STACK: usize = 512 << 10;
const APPLIANCES: u16 = 3;
const ASSET: &str = "film";

/// Counts of all that is looked at, at one time.
struct Sample {
    at: Instant,
    /// One for each appliance; empty for one that does not answer.
    appliances: Vec<BTreeMap<String, f64>>,
    front: BTreeMap<String, f64>,
}

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = tempfile::tempdir()?;
    let film = Film::of(Duration::from_secs(600));
    film.write(&room.path().join("source"))?;
    // All players have one address here.
    let serve = json!({ "connections_max": 20_000, "connections_per_address_max": 20_000 });
    let settings = json!({ "serve": serve, "steering": { "rate_max": rate_max(args.players) } });
    let limit = json!({ "serve": { "connections_max": args.limit() } });
    let plan = Plan {
        fronts: 1,
        appliances: APPLIANCES,
        settings,
        each: vec![json!(null), limit.clone(), limit],
        ..Plan::new(room.path().join("fleet"), args.port, ASSET)
    };
    let mut fleet = Fleet::start(plan, &room.path().join("source"))?;
    // Nearly all players draw the first, and those who do not are told.
    let heavy = json!({ "site": "lab", "weight": 1000 });
    fleet.put(&format!("/v1/appliances/{}", appliance_name(0)), &heavy)?;
    let front = Role::Front(0);
    rig::until("the front to know the weight", CALM_MAX, Duration::from_millis(100), || {
        let view = fleet.get(front, "/v1/fleet")?;
        Ok(view["sites"][0]["appliances"][0]["weight"] == 1000)
    })?;
    let world = Arc::new(World {
        fronts: vec![fleet.url(front)],
        asset: ASSET.to_owned(),
        film,
        client: rig::url::trusting(&room.path().join("fleet").join("ca.pem"))?.build(),
    });
    let report = all(args, &mut fleet, &world)?;
    rig::say(args.json, &report, || text(&report))?;
    report.check()
}

fn all(args: &Args, fleet: &mut Fleet, world: &Arc<World>) -> Result<Report> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let players = begin(scope, args.players, world, &stop);
        let samples = players.as_ref().ok().map(|_| storm(fleet));
        stop.store(true, Ordering::Relaxed);
        let mut outcomes = Vec::new();
        for player in players? {
            outcomes.push(player.join().unwrap_or_else(|_| bail!("a player panicked"))?);
        }
        let (before, after) = samples.context("there are players")??;
        let silent = |sample: &Sample| sample.appliances[1..].iter().any(BTreeMap::is_empty);
        ensure!(
            !before.iter().chain(&after).any(silent),
            "a survivor did not answer for its figures within 2 s: they cannot be judged"
        );
        Ok(Report::of(args, &outcomes, &before, &after))
    })
}

impl Args {
    /// Connections that each survivor may have.
    fn limit(&self) -> u32 {
        (self.players * self.limit / 100).max(1)
    }
}

type Player<'s> = ScopedJoinHandle<'s, Result<Outcome>>;

/// Starts all players, some at a time, as a front does not take more.
fn begin<'s>(
    scope: &'s Scope<'s, '_>,
    count: u32,
    world: &'s Arc<World>,
    stop: &'s AtomicBool,
) -> Result<Vec<Player<'s>>> {
    let begun = Instant::now();
    let (players, left) = (Mutex::new(Vec::new()), Mutex::new(count));
    let one = || -> Result<bool> {
        {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(next) = left.checked_sub(1) else { return Ok(false) };
            *left = next;
        }
        let mut playback = Playback::begin(world)?;
        let thread =
            Builder::new().stack_size(STACK).spawn_scoped(scope, move || playback.play(stop))?;
        players.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(true)
    };
    std::thread::scope(|beginning| {
        let all = || -> Result<()> {
            while one()? {
                rig::stop::check()?;
            }
            Ok(())
        };
        let threads: Vec<_> = (0..BEGIN_AT_ONCE).map(|_| beginning.spawn(all)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| bail!("a thread that begins players panicked"))
        })
    })?;
    info!(count, seconds = begun.elapsed().as_secs_f64(), "players have begun");
    Ok(players.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Samples before the death, and after it.
fn storm(fleet: &mut Fleet) -> Result<(Vec<Sample>, Vec<Sample>)> {
    let before = watch(fleet, BEFORE)?;
    info!("the appliance is killed");
    fleet.kill_appliance(0);
    Ok((before, watch(fleet, AFTER)?))
}

fn watch(fleet: &Fleet, time: Duration) -> Result<Vec<Sample>> {
    let began = Instant::now();
    let mut samples = vec![Sample::take(fleet)];
    while began.elapsed() < time {
        rig::stop::check()?;
        std::thread::sleep(Duration::from_secs(1));
        samples.push(Sample::take(fleet));
    }
    Ok(samples)
}

impl Sample {
    fn take(fleet: &Fleet) -> Self {
        let of = |index| counts(&format!("http://{}/metrics", fleet.metrics(index)));
        Self {
            at: Instant::now(),
            appliances: (0..APPLIANCES).map(of).collect(),
            front: counts(&format!("{}/metrics", fleet.url(Role::Front(0)))),
        }
    }
}

/// The metrics without labels by their names without prefix; empty where nothing answers.
fn counts(url: &str) -> BTreeMap<String, f64> {
    let answer = ureq::get(url).config().timeout_global(Some(Duration::from_secs(2))).build();
    let text = answer.call().and_then(|mut answer| answer.body_mut().read_to_string());
    let row = |line: &str| {
        let name = line.strip_prefix("nearcast_")?;
        let (name, value) = name.strip_prefix("control_").unwrap_or(name).split_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    text.unwrap_or_default().lines().filter_map(row).collect()
}

fn value(counts: &BTreeMap<String, f64>, name: &str) -> f64 {
    counts.get(name).copied().unwrap_or(0.0)
}

/// What a counter grew by a second, between each two samples.
fn rates(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Vec<f64> {
    let rate = |pair: &[Sample]| {
        (of(&pair[1]) - of(&pair[0])) / pair[1].at.duration_since(pair[0].at).as_secs_f64()
    };
    samples.windows(2).map(rate).collect()
}

/// The same from the first sample to the last.
fn mean(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> f64 {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return 0.0 };
    (of(last) - of(first)) / last.at.duration_since(first.at).as_secs_f64()
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

impl Report {
    fn of(args: &Args, outcomes: &[Outcome], before: &[Sample], after: &[Sample]) -> Self {
        let others = (1..usize::from(APPLIANCES)).map(|index| Other::of(index, before, after));
        let stalled: Duration = outcomes.iter().map(|outcome| outcome.stalled).sum();
        let last = before.last().map_or(0.0, |s| value(&s.appliances[0], "connections"));
        Self {
            players: args.players,
            limit: args.limit(),
            on_dead: last,
            calm_s: calm(args, before, after),
            stalls: outcomes.iter().map(|outcome| outcome.stalls).sum(),
            stalled_s: stalled.as_secs_f64(),
            segments: outcomes.iter().map(|outcome| outcome.segments).sum(),
            failovers: outcomes.iter().map(|outcome| outcome.failovers).sum(),
            others: others.collect(),
            front: Front::of(args, before, after),
        }
    }

    fn check(&self) -> Result<()> {
        ensure!(0.9 * f64::from(self.players) <= self.on_dead, "{} of them died", self.on_dead);
        ensure!(0.0 < self.front.answers_peak_per_s, "the front's answers were not seen");
        ensure!(self.stalls == 0, "{} stalls", self.stalls);
        ensure!(self.front.shed == 0.0, "{} requests answered 503", self.front.shed);
        for other in &self.others {
            let Other { name, refused, connections_peak, .. } = other;
            ensure!(*refused == 0.0, "{name} turned {refused} connections away");
            ensure!(0.0 < *connections_peak, "{name} had no connection at all");
            let share = connections_peak / f64::from(self.players);
            ensure!(share <= SHARE_MAX, "{name} got {share:.2} of the players");
        }
        let calm = CALM_MAX.as_secs_f64();
        ensure!(self.calm_s <= calm, "calm after {:.0} s, over {calm:.0}", self.calm_s);
        Ok(())
    }
}

/// When it was calm: no more new connections than `CALM_SHARE`, and no more answers of the front
/// than 1.2 times the greater of the most before and `rate_max`, in every second that follows.
fn calm(args: &Args, before: &[Sample], after: &[Sample]) -> f64 {
    let accepted = |sample: &Sample| {
        let living = sample.appliances.iter().skip(1);
        living.map(|counts| value(counts, "connections_accepted_total")).sum()
    };
    let answers = |sample: &Sample| value(&sample.front, "steering_answers_total");
    let usual = most(&rates(before, answers)).max(f64::from(rate_max(args.players)));
    let connections = (f64::from(args.players) * CALM_SHARE).max(2.0);
    let seconds = rates(after, accepted).into_iter().zip(rates(after, answers));
    let is_calm = |(new, answers): (f64, f64)| new <= connections && answers <= usual * 1.2;
    let calm: Vec<bool> = seconds.map(is_calm).collect();
    let last = calm.iter().rposition(|is_calm| !is_calm);
    last.map_or(0.0, |last| after[last + 1].at.duration_since(after[0].at).as_secs_f64())
}

impl Other {
    fn of(index: usize, before: &[Sample], after: &[Sample]) -> Self {
        let of = |name: &'static str| move |s: &Sample| value(&s.appliances[index], name);
        let responses = |sample: &Sample| {
            let counts = &sample.appliances[index];
            let of = counts.iter().filter(|(name, _)| name.starts_with("responses_"));
            of.map(|(_, count)| count).sum()
        };
        let turned = ["connections_refused_total", "handshakes_let_go_total"];
        let let_go = ["connections_let_go_quiet_total", "connections_let_go_slow_total"];
        let refused = |sample: &Sample| {
            let names = turned.iter().chain(&let_go);
            names.map(|name| value(&sample.appliances[index], name)).sum::<f64>()
        };
        Self {
            name: appliance_name(u16::try_from(index).unwrap_or(u16::MAX)),
            connections_peak: most(&after.iter().map(of("connections")).collect::<Vec<_>>()),
            accepted_peak_per_s: most(&rates(after, of("connections_accepted_total"))),
            responses_before_per_s: mean(before, responses),
            responses_peak_per_s: most(&rates(after, responses)),
            refused: after.last().map_or(0.0, refused),
        }
    }
}

impl Front {
    fn of(args: &Args, before: &[Sample], after: &[Sample]) -> Self {
        let answers = |sample: &Sample| value(&sample.front, "steering_answers_total");
        let last = |name| after.last().map_or(0.0, |sample| value(&sample.front, name));
        Self {
            rate_max: rate_max(args.players),
            answers_before_per_s: mean(before, answers),
            answers_peak_per_s: most(&rates(after, answers)),
            delayed: last("steering_delayed_total"),
            shed: last("requests_shed_total"),
        }
    }
}

fn text(report: &Report) -> String {
    let Report { players, on_dead, calm_s, stalls, failovers, front, .. } = report;
    let mut text = format!(
        "{players} players, {on_dead} on the one that died: {failovers} went on elsewhere, \
         {stalls} stalls, calm after {calm_s:.1} s\n"
    );
    for other in &report.others {
        text += &format!(
            "{}: {} connections, {:.0} new in a second, responses {:.0} to {:.0} a second, {} \
             turned away\n",
            other.name,
            other.connections_peak,
            other.accepted_peak_per_s,
            other.responses_before_per_s,
            other.responses_peak_per_s,
            other.refused
        );
    }
    text += &format!(
        "front: {:.0} answers a second before, {:.0} at most after, bound {}; {} with a longer TTL",
        front.answers_before_per_s, front.answers_peak_per_s, front.rate_max, front.delayed
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: Args = Args { players: 1000, port: 0, limit: 65, json: false };

    /// A sample a second, of so many new connections and answers in it.
    fn samples(seconds: &[(f64, f64)]) -> Vec<Sample> {
        let start = Instant::now();
        let (mut accepted, mut answers) = (0.0, 0.0);
        let mut at = start;
        let mut samples = Vec::new();
        for (new, answered) in [&[(0.0, 0.0)], seconds].concat() {
            accepted += new;
            answers += answered;
            let counts = |name: &str, value| BTreeMap::from([(name.to_owned(), value)]);
            let appliances = vec![BTreeMap::new(), counts("connections_accepted_total", accepted)];
            let front = counts("steering_answers_total", answers);
            samples.push(Sample { at, appliances, front });
            at += Duration::from_secs(1);
        }
        samples
    }

    #[test]
    fn it_is_calm_after_the_last_second_that_is_not() {
        let before = samples(&[(0.0, 40.0); 5]);
        assert_eq!(calm(&ARGS, &before, &samples(&[(0.0, 40.0); 5])), 0.0);
        let seconds = [(900.0, 40.0), (0.0, 40.0), (11.0, 40.0), (10.0, 60.0), (0.0, 0.0)];
        let storm = samples(&seconds);
        assert_eq!(calm(&ARGS, &before, &storm), 3.0);
        let asking = samples(&[(900.0, 40.0), (0.0, 40.0), (0.0, 61.0), (0.0, 60.0)]);
        assert_eq!(calm(&ARGS, &before, &asking), 3.0, "the front is still asked");
    }
}

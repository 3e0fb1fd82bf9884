//! `nearcast-lab drive`: how a simulated drive serves while it is filled, and who holds it back.
//!
//! The protocol of the study, shortened: reads alone, then beside a fill of 20 MB/s, of 80 MB/s and
//! of any rate; there the reads rise by a quarter, then fall by half. Each contender has the same
//! seeds. The oracle is the best constant rate for a seed, found by trying.

mod cam;
pub(crate) mod plot;
mod result;
mod run;
pub(crate) mod scenario;
pub(crate) mod validate;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::DerefMut;
use std::sync::{Mutex, PoisonError};
use std::time::Instant as Clock;

use anyhow::{Context, Result};
use iosched::drive::{Class as Io, Config, Drive as Scheduler, Policy};
use iosched::governor;
use model::units::{Bytes, Instant, Nanos};
use serde::Serialize;
use ssd::{Class, Ftl};
use tracing::{debug, info};

use crate::lock::{cpu_seconds, thread_cpu};
use result::{Figures, Sum};
use run::{Contender, Readers, run as simulate};
use scenario::{Fill, Scenario};

/// `nearcast-lab drive`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which drive: sata-tlc, sata-dc, nvme-tlc or nvme-qlc.
    #[arg(long, default_value = "sata-tlc", value_parser = class)]
    class: Class,
    /// Runs of each contender, each with another seed.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// The first of them. The governor was tuned on 1 to 24.
    #[arg(long, default_value_t = 101)]
    first_seed: u32,
    /// Reads, in percent of what the drive serves at its target when nothing is written; 40 unless
    /// said.
    #[arg(long)]
    load: Option<u32>,
    /// What is written and deleted together, for example "64 MiB"; a superblock unless said.
    #[arg(long)]
    unit: Option<Bytes>,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

/// A drive of this class, used for long, 90 % full.
pub(crate) fn aged(class: Class) -> Ftl {
    Scenario::new(class, None, None).age(1).0
}

pub(crate) fn class(text: &str) -> Result<Class, String> {
    let found = Class::ALL.into_iter().find(|class| class.name() == text);
    found.ok_or_else(|| "one of sata-tlc, sata-dc, nvme-tlc, nvme-qlc".to_owned())
}

#[derive(Debug, Serialize)]
struct Report {
    class: &'static str,
    seeds: u32,
    first_seed: u32,
    target_ms: f64,
    reads_mbps: f64,
    unit_mb: f64,
    fill_seconds: f64,
    nofill_p99_ms: f64,
    policies: BTreeMap<&'static str, Figures>,
    /// Seeds on which a constant rate keeps every second within the target.
    oracle_reaches: u32,
    scheduler_ns_per_op: f64,
    /// Two threads, each with a scheduler of its own; and both with one behind a lock.
    two_slices_ns_per_op: f64,
    one_lock_ns_per_op: f64,
}

/// Names of the contenders in the result. `sliced` is ours, divided between workers and the gate as
/// in an appliance.
const POLICIES: [&str; 6] = ["off", "static", "cam", "ours", "sliced", "oracle"];

/// A viewer asks again after this long: 20 Mb/s at 256 KiB.
const THINK: Nanos = Nanos::millis(100);

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    let scenario = Scenario::new(args.class, args.load, args.unit);
    let began = Clock::now();
    let mut nofill = Sum::default();
    let mut sums: [Sum; 6] = Default::default();
    let mut oracle_reaches = 0;
    for seed in (u64::from(args.first_seed)..).take(usize::try_from(args.seeds)?) {
        let state = scenario.age(seed);
        let seen = simulate(&scenario.without_fill(), Contender::Off, Readers::Open, &state, seed);
        nofill.add(&scenario, &seen);
        let (constant, reached) = oracle(&scenario, &state, seed);
        oracle_reaches += u32::from(reached);
        let contenders = [
            Contender::Off,
            Contender::Constant(scenario.constant),
            Contender::Cam,
            Contender::Ours,
            Contender::Sliced,
            constant.map_or(Contender::Off, Contender::Constant),
        ];
        let alone = closed(&scenario, Contender::Off, Fill::None, &state, seed);
        for (sum, contender) in sums.iter_mut().zip(contenders) {
            rig::stop::check()?;
            let seen = simulate(&scenario, contender, Readers::Open, &state, seed);
            trace(contender, &scenario, &seen);
            sum.add(&scenario, &seen);
            sum.served(alone, closed(&scenario, contender, Fill::Unbounded, &state, seed));
        }
        info!(seed, oracle = ?constant, seconds = began.elapsed().as_secs(), "seed done");
    }
    let fill_seconds = scenario.phases.iter().filter(|phase| phase.fill != Fill::None);
    let fill_seconds: f64 = fill_seconds.map(|phase| seconds(phase.span)).sum();
    let p99 = nofill.p99_ms();
    let figures = sums.map(|sum| sum.figures(fill_seconds, p99));
    let rate = figures[5].fill_mbps;
    let figures = figures.map(|figures| figures.against(rate));
    let report = Report {
        class: args.class.name(),
        seeds: args.seeds,
        first_seed: args.first_seed,
        target_ms: seconds(scenario.target) * 1e3,
        reads_mbps: scenario.reads_per_s * float(scenario.read_len) / 1e6,
        unit_mb: f64::from(scenario.unit_pages) * float(scenario.params.page) / 1e6,
        fill_seconds,
        nofill_p99_ms: p99,
        policies: POLICIES.into_iter().zip(figures).collect(),
        oracle_reaches,
        scheduler_ns_per_op: scheduler_cost()?,
        two_slices_ns_per_op: two_threads_cost(false)?,
        one_lock_ns_per_op: two_threads_cost(true)?,
    };
    rig::say_all(args.json, &report)
}

/// Each second of a run, for whoever wants to know why.
fn trace(contender: Contender, scenario: &Scenario, seen: &run::Seen) {
    for (second, bin) in seen.bins.iter().enumerate() {
        let late = bin.iter().filter(|span| scenario.target.0 < **span).count();
        let written: u64 = seen.written.iter().skip(10 * second).take(10).sum();
        debug!(?contender, second, reads = bin.len(), late, written_mb = written / 1_000_000);
    }
}

/// The highest constant rate that keeps all seconds of a fill within the target, by halving; the
/// second is false if even the lowest does not. None: no limit is needed.
fn oracle(scenario: &Scenario, state: &(Ftl, Vec<bool>), seed: u64) -> (Option<Bytes>, bool) {
    let good = |contender| {
        let seen = simulate(scenario, contender, Readers::Open, state, seed);
        let mut sum = Sum::default();
        sum.add(scenario, &seen);
        sum.all_ok()
    };
    if good(Contender::Off) {
        return (None, true);
    }
    let (mut low, mut high) = (5_000_000_u64, 640_000_000);
    if scenario.params.depth > 32 {
        high = 4_000_000_000;
    }
    let mut reached = false;
    for _ in 0..TRIES {
        // The middle of their logarithms, near enough.
        let middle = low + (high - low) / 3;
        if good(Contender::Constant(Bytes(middle))) {
            (low, reached) = (middle, true);
        } else {
            high = middle;
        }
    }
    (Some(Bytes(low)), reached || good(Contender::Constant(Bytes(low))))
}

const TRIES: u32 = 7;

/// Chunks that viewers get who wait for each before they ask for the next.
fn closed(
    scenario: &Scenario,
    contender: Contender,
    fill: Fill,
    state: &(Ftl, Vec<bool>),
    seed: u64,
) -> u64 {
    let steady = scenario.steady(fill);
    let viewers = (scenario.reads_per_s * seconds(THINK)).round();
    let viewers = Nanos::from(std::time::Duration::from_secs_f64(viewers)).as_seconds();
    let viewers = u32::try_from(viewers).unwrap_or(1);
    let readers = Readers::Closed(viewers, THINK);
    simulate(&steady, contender, readers, state, seed).reads.last().copied().unwrap_or(0)
}

/// CPU nanoseconds of this machine per operation that is submitted, let go and completed.
fn scheduler_cost() -> Result<f64> {
    let config = Config {
        depth: 32,
        fill_depth: 4,
        queue_len_max: 1024,
        target: Nanos::millis(5),
        scrub_rate: Bytes(1_000_000),
        deletes_alone: true,
        policy: Policy::Governed(governor::Config::MEASURED),
    };
    let mut now = Instant(0);
    let mut scheduler = Scheduler::new(config, now);
    let mut flying = std::collections::VecDeque::with_capacity(64);
    const OPS: u32 = 400_000;
    let mut best = f64::MAX;
    for _ in 0..5 {
        let began = thread_cpu();
        for op in 0..OPS {
            now = now + Nanos(20_000);
            let class = if op % 4 == 0 { Io::Fill } else { Io::Serve };
            // A full queue of writes is part of the load.
            let _ = scheduler.submit(
                now,
                class,
                u64::from(op),
                Bytes::kib(256),
                now + Nanos::millis(5),
            );
            while let Some((ticket, op)) = scheduler.poll(now) {
                flying.push_back(ticket);
                black_box(op);
            }
            if 24 < flying.len()
                && let Some(ticket) = flying.pop_front()
            {
                scheduler.complete(now, ticket);
            }
        }
        best = best.min(cpu_seconds(began) * 1e9 / f64::from(OPS));
    }
    Some(best).filter(|best| best.is_finite()).context("the clock stands still")
}

/// Nanoseconds per read of each of two threads that serve: one scheduler each, or one for both
/// behind a lock. The least of five runs.
fn two_threads_cost(locked: bool) -> Result<f64> {
    const OPS: u32 = 200_000;
    let config = || Config {
        depth: 64,
        fill_depth: 1,
        queue_len_max: 1024,
        target: Nanos::millis(5),
        scrub_rate: Bytes(1),
        deletes_alone: false,
        policy: Policy::Off,
    };
    let mut best = f64::MAX;
    for _ in 0..5 {
        let shared = Mutex::new(Scheduler::new(config(), Instant(0)));
        let began = Clock::now();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let shared = &shared;
                scope.spawn(move || {
                    if locked {
                        (0..OPS).for_each(|op| serve_one(&mut &*shared, op));
                    } else {
                        let mut own = Scheduler::new(config(), Instant(0));
                        (0..OPS).for_each(|op| serve_one(&mut own, op));
                    }
                });
            }
        });
        best = best.min(began.elapsed().as_secs_f64() * 1e9 / f64::from(OPS));
    }
    Some(best).filter(|best| best.is_finite()).context("the clock stands still")
}

/// A scheduler that is there for as long as a call takes.
trait Turn {
    fn turn(&mut self) -> impl DerefMut<Target = Scheduler>;
}

impl Turn for Scheduler {
    fn turn(&mut self) -> impl DerefMut<Target = Self> {
        self
    }
}

impl Turn for &Mutex<Scheduler> {
    fn turn(&mut self) -> impl DerefMut<Target = Scheduler> {
        self.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A read is asked for; whatever may go goes, and is back at the next look. A turn for each, since
/// other work lies between them.
fn serve_one(scheduler: &mut impl Turn, op: u32) {
    let now = Instant(u64::from(op) * 20_000);
    let _ = scheduler.turn().submit(now, Io::Serve, op.into(), Bytes::kib(256), now);
    let polled = scheduler.turn().poll(now);
    if let Some((ticket, op)) = polled {
        black_box(op);
        scheduler.turn().complete(now + Nanos(10_000), ticket);
    }
}

fn seconds(span: Nanos) -> f64 {
    std::time::Duration::from(span).as_secs_f64()
}

/// Of lengths below 4 GiB.
fn float(len: Bytes) -> f64 {
    f64::from(u32::try_from(len.0).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_costs_the_scheduler_less_than_a_microsecond() {
        let cost = scheduler_cost().unwrap();
        assert!(cost < 1_000.0, "{cost:.0} ns");
    }
}

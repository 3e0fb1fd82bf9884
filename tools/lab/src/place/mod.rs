//! `nearcast-lab place`: what a plan of the whole fleet costs, how even its load is on a day that
//! is not as expected, and how much it moves.
//!
//! ```text
//! generator ──> first day: a plan from nothing ──> second day: the plan that is measured, twice
//!                                                    ├─> load under what viewers really watch
//!                                                    └─> bytes that come, and that have to
//! ```
//!
//! It drives the product's own `pure/placement` region by region, on threads that share nothing but
//! the catalogue and the next region's number. docs/internals/placement.md has the parameters.

mod judge;
mod world;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, Result, ensure};
use model::number::{NumberSet, index};
use model::units::Bytes;
use placement::plan::{
    Cluster, ClusterPlan, Config, Member, Order, fill_spare, place_cluster, place_region,
};
use rig::bounds::{Bounds, DependsOn};
use serde::Serialize;
use tracing::info;

use judge::{Judge, Judged, Profiles};
use world::{Day, Region, Size, World, empty};

/// `nearcast-lab place`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Versions of ten items each.
    #[arg(long, default_value_t = Size::DESIGN.versions)]
    versions: u32,
    /// Of 40 sites and 100 appliances each.
    #[arg(long, default_value_t = Size::DESIGN.regions)]
    regions: u32,
    /// Both of the above divided by this.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    divide: u32,
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON object as the last line of output.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    size: Option<Size>,
    items: u64,
    sites: u32,
    appliances: u64,
    /// Items that all appliances together should hold on the second day.
    placements: u64,
    /// The plan of the second day, by the clock.
    seconds: f64,
    /// CPU time of all threads together.
    cpu_s: f64,
    /// The same of the first day.
    first_s: f64,
    first_cpu_s: f64,
    rss_gb: f64,
    load_max_over_mean: Profiles<f64>,
    /// The mean over sites, in the place of the highest.
    load_mean_of_max: Profiles<f64>,
    /// The highest of all sites, if viewers watched what was expected.
    load_max_over_mean_expected: Profiles<f64>,
    moves_over_minimum: f64,
    moved_tb: f64,
    minimum_tb: f64,
    /// Of these, moved for the balance of load alone.
    exchanged_tb: f64,
    churn_permille: f64,
    served_permille: f64,
    served_fresh_permille: f64,
    /// Items that no appliance of a region holds, in the mean of regions.
    at_origin: u64,
    /// Of all that all appliances should hold on the second day.
    digest: String,
    same: bool,
    bounds: Bounds,
    is_design_size: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let Args { divide, threads, seed, .. } = *args;
    let regions = (args.regions / divide).max(1);
    let size = Size { versions: (args.versions / divide).max(1000), regions };
    let report = measure(size, threads, seed)?;
    rig::say(args.json, &report, || format!("{report:#?}\n{}", report.bounds.text()))?;
    report.bounds.verdict()
}

fn measure(size: Size, threads: u32, seed: u64) -> Result<Report> {
    info!(?size, "drawing a world");
    let world = World::new(size, seed);
    let first = run_day(&world, threads, Day::First, None)?;
    info!(first.seconds, first.cpu_s, "the first day is planned");
    let second = run_day(&world, threads, Day::Second, Some(&first.plans))?;
    info!(second.seconds, second.cpu_s, "the second day is planned");
    let rss = rig::site::resident(std::process::id())?.1;
    let Ran { seconds, cpu_s, judged, plans } = second;
    drop(plans);
    let again = run_day(&world, threads, Day::Second, Some(&first.plans))?;
    let digest = judged.digest.clone();
    let mut report = Report {
        size: Some(size),
        items: u64::try_from(world.catalogue(Day::Second).pieces().len())?,
        sites: size.regions * world::SITES,
        appliances: judged.appliances,
        placements: judged.placements,
        seconds,
        cpu_s,
        first_s: first.seconds,
        first_cpu_s: first.cpu_s,
        rss_gb: world::real(rss) / 1e9,
        load_max_over_mean: judged.load.map(|of| of.most),
        load_mean_of_max: judged.load.map(|of| of.mean()),
        load_max_over_mean_expected: judged.expected.map(|of| of.most),
        moves_over_minimum: judged.moved / judged.minimum,
        moved_tb: judged.moved / 1e12,
        minimum_tb: judged.minimum / 1e12,
        exchanged_tb: judged.exchanged / 1e12,
        churn_permille: 1000.0 * judged.moved / judged.held,
        served_permille: 1000.0 * judged.served / judged.wanted,
        served_fresh_permille: fresh_permille(&world)?,
        at_origin: judged.at_origin / u64::from(size.regions),
        same: again.judged.digest == digest,
        digest,
        bounds: Bounds::default(),
        is_design_size: size == Size::DESIGN,
    };
    report.bounds = report.held_against();
    Ok(report)
}

impl Report {
    fn held_against(&self) -> Bounds {
        let mut bounds = Bounds::default();
        bounds.at_most("seconds", 60.0, self.seconds, DependsOn::ProcessorAndLoad);
        let nothing = DependsOn::Nothing;
        bounds.at_most("rss_gb", 6.0, self.rss_gb, nothing);
        let Profiles { flash, storage, global } = self.load_max_over_mean;
        bounds.at_most("load_max_over_mean.flash", 1.1, flash, nothing);
        bounds.at_most("load_max_over_mean.storage", 1.1, storage, nothing);
        bounds.at_most("load_max_over_mean.global", 1.1, global, nothing);
        bounds.at_most("moves_over_minimum", 1.1, self.moves_over_minimum, nothing);
        bounds.fact("same", self.same);
        bounds
    }
}

/// What each appliance of each site of a region should hold.
type Plans = Vec<Vec<NumberSet>>;

/// A region by its number, what was found of it, and its plans.
type Done = (u32, Judged, Plans);

/// A day of all regions.
struct Ran {
    seconds: f64,
    cpu_s: f64,
    judged: Judged,
    plans: Vec<Plans>,
}

/// Time spent in plans.
#[derive(Clone, Copy, Default)]
struct Spent {
    clock: Duration,
    cpu: Duration,
}

fn run_day(world: &World, threads: u32, day: Day, held: Option<&Vec<Plans>>) -> Result<Ran> {
    let next = AtomicU32::new(0);
    let work = || -> Result<(Spent, Vec<Done>)> {
        let (mut spent, mut done) = (Spent::default(), Vec::new());
        let mut judge = Judge::new(world);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if world.size.regions <= number {
                return Ok((spent, done));
            }
            let held = held.map(|held| &held[index(number)]);
            let region = world.region(number, day);
            let (planned, at_origin) = plan(world, &region, day, held, &mut spent)?;
            let mut judged = judge.judge(number, day, &region, held, &planned);
            judged.at_origin = at_origin;
            let items = |plan: ClusterPlan| plan.members.into_iter().map(|of| of.items).collect();
            done.push((number, judged, planned.into_iter().map(items).collect()));
        }
    };
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let ended = ended.map(|ended| ended.ok().context("a thread ended with a panic")?);
        ended.collect::<Result<Vec<_>>>()
    })?;
    let clock = ended.iter().map(|(spent, _)| spent.clock).max().unwrap_or_default();
    let cpu: Duration = ended.iter().map(|(spent, _)| spent.cpu).sum();
    let mut regions: Vec<_> = ended.into_iter().flat_map(|(_, done)| done).collect();
    regions.sort_by_key(|(number, _, _)| *number);
    let (mut judged, mut plans) = (Judged::default(), Vec::new());
    for (_, of_region, of) in regions {
        judged.add(of_region);
        plans.push(of);
    }
    Ok(Ran { seconds: clock.as_secs_f64(), cpu_s: cpu.as_secs_f64(), judged, plans })
}

/// Those of the policy as it comes.
const COPIES: u32 = 2;

/// Plans a region, as control would.
fn plan(
    world: &World,
    region: &Region,
    day: Day,
    held: Option<&Plans>,
    spent: &mut Spent,
) -> Result<(Vec<ClusterPlan>, u64)> {
    let (clock, cpu) = (Clock::now(), rig::cpu::of_this_thread()?);
    let config = Config::usual(COPIES);
    let nothing = empty();
    let holds = |site: usize, at: usize| held.map_or(nothing, |held| &held[site][at]);
    let mut members: Vec<Vec<Member<'_>>> = Vec::new();
    for (site, machines) in region.sites.iter().enumerate() {
        let of_site = machines.iter().enumerate();
        let member = |(at, of): (usize, &world::Machine)| Member {
            lot: of.lot,
            weight: of.weight,
            room: of.room,
            throughput: Some(of.throughput),
            holds: if of.is_new { empty() } else { holds(site, at) },
            fill: of.fill,
            apart: None,
        };
        members.push(of_site.map(member).collect());
    }
    let cluster = |(members, share)| Cluster {
        members,
        share,
        pins: empty(),
        bans: empty(),
        alone: empty(),
        apart: &[],
    };
    let shares = region.shares.iter().copied();
    let clusters: Vec<Cluster<'_>> =
        members.iter().map(Vec::as_slice).zip(shares).map(cluster).collect();
    let room = |members: &Vec<Member<'_>>| members.iter().map(|of| of.room.0).sum::<u64>();
    let reach = Bytes(members.iter().map(room).max().unwrap_or(0));
    let order = Order::within(world.catalogue(day), &region.wanted, reach);
    let mut plans: Vec<ClusterPlan> =
        clusters.iter().map(|cluster| place_cluster(&order, cluster, &config)).collect();
    let of_region = place_region(&order, &clusters, &mut plans);
    for (cluster, plan) in clusters.iter().zip(&mut plans) {
        fill_spare(&order, cluster, &config, plan);
    }
    drop(order);
    spent.clock += clock.elapsed();
    spent.cpu += rig::cpu::of_this_thread()?.saturating_sub(cpu);
    Ok((plans, of_region.at_origin.len()))
}

/// What sites would serve themselves if they began the second day from nothing.
fn fresh_permille(world: &World) -> Result<f64> {
    let (mut served, mut wanted) = (0.0, 0.0);
    for number in 0..world.size.regions.min(FRESH) {
        let mut region = world.region(number, Day::Second);
        let all = world.region(number, Day::First);
        for (machine, other) in region.sites.iter_mut().flatten().zip(all.sites.iter().flatten()) {
            machine.fill = other.fill;
        }
        let (plans, _) = plan(world, &region, Day::Second, None, &mut Spent::default())?;
        served += plans.iter().map(|plan| world::real(plan.served.0)).sum::<f64>();
        wanted += region.day;
    }
    ensure!(0.0 < wanted, "viewers want something");
    Ok(1000.0 * served / wanted)
}

const FRESH: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_world_is_measured_and_planned_alike_each_time() {
        let report = measure(Size { versions: 1000, regions: 1 }, 1, 3).unwrap();
        assert!(report.same);
        assert_eq!((report.items, report.sites, report.appliances), (10_000, 40, 96));
        assert!(0.0 < report.minimum_tb && report.minimum_tb <= report.moved_tb);
        assert!(report.served_permille <= report.served_fresh_permille);
    }

    #[test]
    fn threads_change_no_plan_and_another_seed_does() {
        let digest = |seed: u64, threads: u32| {
            let world = World::new(Size { versions: 1000, regions: 2 }, seed);
            run_day(&world, threads, Day::First, None).unwrap().judged.digest
        };
        let one = digest(3, 1);
        assert_eq!(one, digest(3, 2));
        assert_ne!(one, digest(4, 2));
    }

    #[test]
    fn each_figure_beyond_its_bound_makes_the_run_invalid() {
        let sound = || Report {
            seconds: 60.0,
            rss_gb: 6.0,
            load_max_over_mean: Profiles { flash: 1.1, storage: 1.1, global: 1.1 },
            moves_over_minimum: 1.1,
            same: true,
            ..Report::default()
        };
        sound().held_against().verdict().unwrap();
        type Case = (&'static str, fn(&mut Report));
        let changes: [Case; 7] = [
            ("seconds", |of| of.seconds = 60.1),
            ("rss_gb", |of| of.rss_gb = 6.1),
            ("load_max_over_mean.flash", |of| of.load_max_over_mean.flash = 1.11),
            ("load_max_over_mean.storage", |of| of.load_max_over_mean.storage = 1.11),
            ("load_max_over_mean.global", |of| of.load_max_over_mean.global = 1.11),
            ("moves_over_minimum", |of| of.moves_over_minimum = 1.11),
            ("same", |of| of.same = false),
        ];
        for (name, change) in changes {
            let mut report = sound();
            change(&mut report);
            let said = report.held_against().verdict().unwrap_err().to_string();
            assert!(said.starts_with(&format!("not held: {name} ")), "{said}");
        }
    }
}

//! `nearcast-sim fleet`: a year of a fleet as flows of bytes, hour by hour. Popularity and
//! placement are the product's; beside them are caches that fill on demand, and placement that
//! knows tomorrow.
//!
//! ```text
//! catalogue, sites ──> sessions of a day ──> watching: who serves each      ──> tally ──> report
//!                          │      │              ^                               ^
//!                          │      └> demanded: caches ───────────────────────────┤
//!                          └──> plans: popularity, placement ──> night: fill ────┘
//! ```
//!
//! docs/internals/year.md has the model, its parameters and the bounds.

mod cache;
mod catalogue;
mod demanded;
mod draw;
mod figures;
mod night;
mod number;
mod parameters;
mod plans;
mod plot;
mod region;
mod report;
mod sessions;
mod shelves;
mod sites;
mod tally;
mod watching;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

use catalogue::Catalogue;
use parameters::{REGIONS, SITES, Size, WEEKS};
use region::Region;
use report::Report;
use tally::{Calendar, Tally};

/// `nearcast-sim fleet`
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How many seeds to play
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// The first of them; those below 100 are for trying things out
    #[arg(long, default_value_t = 101)]
    first: u64,
    #[arg(long, default_value_t = REGIONS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(REGIONS)))]
    regions: u32,
    /// Sites of each region, its exchange among them
    #[arg(long, default_value_t = SITES, value_parser = clap::value_parser!(u32).range(8..=1000))]
    sites: u32,
    /// Weeks that are counted, after those of the warm-up
    #[arg(long, default_value_t = WEEKS, value_parser = clap::value_parser!(u32).range(1..=520))]
    weeks: u32,
    /// Threads; one for each core unless said
    #[arg(long)]
    threads: Option<usize>,
    /// Write the plots of the first seed there
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// End with one line of JSON
    #[arg(long)]
    json: bool,
}

/// Plays the seeds. The text to print, and true if all bounds hold.
pub fn run(args: &Args) -> Result<(String, bool)> {
    let began = std::time::Instant::now();
    let size = Size { regions: args.regions, sites: args.sites, weeks: args.weeks };
    let seeds: Vec<u64> = (args.first..args.first + args.seeds).collect();
    let tallies = play(&seeds, size, args.threads);
    let figures: Vec<_> = tallies.iter().map(|(seed, of)| figures::of(*seed, of)).collect();
    if let Some(path) = &args.plot {
        let text = plot::svg(&tallies[0].1, &figures[0]);
        std::fs::write(path, text).with_context(|| path.display().to_string())?;
    }
    let report = Report::new(size, figures, began.elapsed().as_secs_f64());
    let text = if args.json { serde_json::to_string(&report)? } else { report.to_string() };
    Ok((text, report.held))
}

/// Regions of each seed, on threads.
fn play(seeds: &[u64], size: Size, threads: Option<usize>) -> Vec<(u64, Vec<Tally>)> {
    let regions = u64::from(size.regions);
    let jobs = u64::try_from(seeds.len()).unwrap_or(0) * regions;
    let (next, done) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if jobs <= job {
                        return;
                    }
                    let (seed, region) = (seeds[0] + job / regions, job % regions);
                    let region = u32::try_from(region).unwrap_or(0);
                    let catalogue = Catalogue::new(seed, Calendar { weeks: size.weeks }.days());
                    let tally = Region::new(&catalogue, seed, region, size).play();
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((seed, region, tally));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(seed, region, _)| (*seed, *region));
    let mut tallies: Vec<(u64, Vec<Tally>)> = Vec::new();
    for (seed, _, tally) in done {
        match tallies.last_mut().filter(|(last, _)| *last == seed) {
            Some((_, of)) => of.push(tally),
            None => tallies.push((seed, vec![tally])),
        }
    }
    tallies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_each_parameter_as_the_program_has_it() {
        let page = include_str!("../../../docs/internals/year.md");
        for (name, value) in parameters::page() {
            let row = format!("| {name} | {value} |");
            assert!(page.contains(&row), "docs/internals/year.md lacks {row}");
        }
    }

    #[test]
    fn a_seed_is_one_year_whatever_the_threads_and_holds_what_a_small_fleet_is_held_to() {
        let of = |regions, threads| {
            play(&[3], Size { regions, sites: 10, weeks: 1 }, Some(threads)).remove(0).1
        };
        let (one, two) = (of(1, 1), of(2, 2));
        two.iter().for_each(count_once);
        let figures = |of: &[Tally]| figures::of(3, of);
        let text = |of: &[Tally]| serde_json::to_string(&figures(of)).unwrap();
        assert_eq!(text(&one), text(&two[..1]));
        let one = figures(&two);
        assert_eq!(one.broken_small, Vec::<String>::new());
        assert!(0 < one.sessions && 0.0 < one.churn_tb["directed"]);
        assert!(0.0 < one.churn_vs_minimum, "a week has a minimum");
    }

    /// Bytes that viewers of embedded sites get are from their own site or missed.
    fn count_once(region: &Tally) {
        let all: u64 = region.all.iter().sum();
        let embedded: u64 = region.bytes.iter().sum();
        assert!(0 < embedded && embedded < all);
        for flow in &region.flows {
            let missed: u64 = flow.miss.iter().sum();
            assert!(0 < missed && missed < embedded);
        }
    }
}

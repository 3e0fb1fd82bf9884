//! The simulator: a fleet in one thread, on one seed. Appliances run the real workers, the real
//! fill and store, the real director and steering, on simulated drives, network and clocks; faults
//! come by dice; after every step, and at the end, all must be as it must be.
//!
//! ```text
//!  viewers ──> network ──> server ── pure/worker ──┐
//!     │                                            ├──> drive: files, pure/ssd, faults
//!     │          host ────────── pure/upkeep, store ┘
//!     └──> control ── pure/director, steering <── reports, manifests
//! ```
//!
//! docs/internals/simulator.md says what is simulated, what is looked at, and what was found.

mod absence;
mod canary;
mod control;
mod drive;
mod faults;
mod files;
mod fleet;
mod front;
mod host;
mod hours;
mod machine;
mod mover;
mod opened;
mod oracle;
mod pauses;
mod pipe;
mod process;
mod replication;
mod scenario;
mod server;
mod source;
mod stage;
mod stock;
mod viewer;
mod wishes;
mod world;
mod writers;

use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use serde_json::json;

use canary::Canary;
use scenario::Outcome;

/// Plays fleets on seeds, with faults, and says which went wrong.
#[derive(Debug, Parser)]
#[command(name = "nearcast-sim", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// How many seeds to play. Default 100; of canaries 400 at most: one that shows in one seed of
    /// twenty or so is not in the first hundred each time that other things are drawn.
    #[arg(long)]
    seeds: Option<u64>,
    /// The first of them.
    #[arg(long, default_value_t = 1)]
    first: u64,
    /// Play this one alone, and print what happens.
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Plant a bug: the run is good if it is found.
    #[arg(long, value_enum)]
    canary: Option<Canary>,
    /// Plant each bug in turn: the run is good if all are found.
    #[arg(long, conflicts_with_all = ["seed", "canary"])]
    canaries: bool,
    /// Instead of fleets: draw so many pauses of a machine, and see whether its watchdog ends a
    /// process wrongly, or late.
    #[arg(long, conflicts_with_all = ["seed", "canary", "canaries"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pauses: Option<u64>,
    /// Instead of fleets: draw so many kills and pauses of two writers on one database, and see
    /// whether a generation is given twice, a change is lost, or nobody takes over.
    #[arg(long, conflicts_with_all = ["seed", "canary", "canaries", "pauses"])]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    writers: Option<u64>,
    /// Plant a bug in the writers: changes do not look at the epoch. Good if it is found.
    #[arg(long, requires = "writers")]
    unfenced: bool,
    /// Threads; one for each core unless said.
    #[arg(long)]
    threads: Option<usize>,
    /// End with one line of JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// A year of hundreds of sites as flows of bytes: how much directing spares, against caches and
    /// against placement that knows tomorrow
    Fleet(year::Args),
}

impl Cli {
    fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(if self.canaries { 400 } else { 100 })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.verb.is_none() {
        // A failed assertion is a finding; it is told with its seed, once.
        std::panic::set_hook(Box::new(|_| {}));
    }
    match run(&cli) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("nearcast-sim: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

fn run(cli: &Cli) -> Result<bool> {
    if let Some(Verb::Fleet(args)) = &cli.verb {
        let (text, held) = year::run(args)?;
        say(&text);
        return Ok(held);
    }
    if let Some(seed) = cli.seed {
        return Ok(one(cli, seed));
    }
    if let Some(count) = cli.pauses {
        return Ok(pauses(cli, count));
    }
    if let Some(count) = cli.writers {
        return Ok(writers(cli, count));
    }
    if cli.canaries {
        return canaries(cli);
    }
    let report = many(cli, cli.canary, false)?;
    report.say(cli);
    let found = report.failures != 0;
    Ok(found == cli.canary.is_some())
}

fn one(cli: &Cli, seed: u64) -> bool {
    let outcome = scenario::play(seed, cli.canary, true);
    outcome.trace.iter().for_each(|line| say(line));
    let failure = outcome.failure.clone();
    say(&format!("seed {seed}: {}", failure.as_deref().unwrap_or("all is right")));
    if cli.json {
        let digest = format!("{:016x}", outcome.digest);
        say(&json!({ "seed": seed, "failure": failure, "digest": digest }).to_string());
    }
    failure.is_some() == cli.canary.is_some()
}

#[derive(Default)]
struct Report {
    seeds: u64,
    failures: u64,
    failed: Vec<(u64, String)>,
    counts: world::Counts,
    steps: u64,
    simulated_ns: u64,
    digest: u64,
    /// Resident memory after a tenth of the seeds and at the end, in KiB.
    memory: (u64, u64),
    seconds: f64,
}

impl Report {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.simulated_ns += outcome.took.0;
        self.digest ^= outcome.digest;
        self.counts.add(&outcome.counts);
        if let Some(failure) = outcome.failure {
            self.failures += 1;
            if self.failed.len() < 20 {
                self.failed.push((outcome.seed, failure));
            }
        }
    }

    fn say(&self, cli: &Cli) {
        for (seed, failure) in &self.failed {
            say(&format!("seed {seed}: {failure}"));
        }
        if cli.json {
            say(&self.json(cli.canary).to_string());
        } else {
            let (seeds, failures, seconds) = (self.seeds, self.failures, self.seconds);
            say(&format!("{seeds} seeds, {failures} failed, {seconds:.1} s"));
        }
    }

    fn json(&self, canary: Option<Canary>) -> serde_json::Value {
        let failed: Vec<u64> = self.failed.iter().map(|(seed, _)| *seed).collect();
        let mut json = json!({
            "seeds": self.seeds,
            "failures": self.failures,
            "failed": failed,
            "canary": canary.map(name),
            "simulated_hours": self.simulated_ns / 3_600_000_000_000,
            "steps": self.steps,
            "gib": self.counts.bytes >> 30,
            "memory_kib": [self.memory.0, self.memory.1],
            "digest": format!("{:016x}", self.digest),
            "seconds": self.seconds,
        });
        self.counts.all().for_each(|(name, count)| json[name] = count.into());
        json
    }
}

/// As on the command line.
fn name(canary: Canary) -> String {
    canary.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Plays many seeds on all cores; to the first failure, if that is enough.
fn many(cli: &Cli, canary: Option<Canary>, first_failure: bool) -> Result<Report> {
    let began = std::time::Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(cli.first);
    let end = cli.first + cli.seeds();
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..cli.threads.unwrap_or(cores).max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if end <= seed {
                        return;
                    }
                    let outcome = scenario::play(seed, canary, false);
                    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
                    report.add(outcome);
                    if report.seeds == cli.seeds().div_ceil(10) {
                        report.memory.0 = resident();
                    }
                    if first_failure && report.failures != 0 {
                        next.store(end, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.memory.1 = resident();
    report.seconds = began.elapsed().as_secs_f64();
    report.failed.sort();
    if report.seeds == 0 {
        bail!("no seed was played: say --seeds 1 or more");
    }
    Ok(report)
}

/// Many pauses of a machine, on the first seed.
fn pauses(cli: &Cli, count: u64) -> bool {
    let report = pauses::play(cli.first, count);
    let (hangs, wrong) = (report.hangs, report.ended_wrongly);
    let longest_ms = report.longest.as_millis();
    if cli.json {
        let json = json!({
            "pauses": report.pauses, "hangs": hangs, "ended_wrongly": wrong,
            "hang_longest_ms": longest_ms,
        });
        say(&json.to_string());
    } else {
        let pauses = report.pauses;
        let ended = format!("{wrong} ended wrongly, {longest_ms} ms the longest hang");
        say(&format!("{pauses} pauses, {hangs} hangs, {ended}"));
    }
    report.is_good()
}

/// Many kills and pauses of writers, on the first seed.
fn writers(cli: &Cli, count: u64) -> bool {
    let report = writers::play(cli.first, count, !cli.unfenced);
    let writers::Report { kills, pauses, take_overs, changes, .. } = report;
    let (twice, lost) = (report.generations_twice, report.changes_lost);
    let longest_ms = report.longest.as_millis();
    if cli.json {
        let json = json!({
            "kills": kills, "pauses": pauses, "take_overs": take_overs, "changes": changes,
            "generations_twice": twice, "changes_lost": lost, "take_over_longest_ms": longest_ms,
        });
        say(&json.to_string());
    } else {
        let wrong = format!("{twice} generations twice, {lost} changes lost");
        say(&format!(
            "{kills} kills, {pauses} pauses, {take_overs} take-overs, {changes} changes: {wrong}, \
             {longest_ms} ms the longest without a writer"
        ));
    }
    if cli.unfenced { 0 < twice && 0 < lost } else { report.is_good() }
}

/// Each planted bug must be found within the seeds.
fn canaries(cli: &Cli) -> Result<bool> {
    let mut missed = 0;
    let mut found = serde_json::Map::new();
    for canary in Canary::ALL {
        let report = many(cli, Some(canary), true)?;
        let name = name(canary);
        match report.failed.first() {
            Some((seed, what)) => {
                say(&format!("{name}: found, seed {seed}: {what}"));
                found.insert(name, json!(seed));
            }
            None => {
                say(&format!("{name}: NOT found in {} seeds", report.seeds));
                found.insert(name, json!(null));
                missed += 1;
            }
        }
    }
    if cli.json {
        let count = Canary::ALL.len();
        say(&json!({ "canaries": count, "missed": missed, "found": found }).to_string());
    }
    Ok(missed == 0)
}

/// Resident memory of this process in KiB; 0 where it cannot be read.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map_or(0, |pages| pages * 4)
}

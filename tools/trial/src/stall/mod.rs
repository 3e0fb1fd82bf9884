//! What a drive that does not answer costs those who want what lies on other drives.
//!
//! ```text
//! two appliances of a site, each with two folders as drives and one FUSE drive in a process of its
//! own, which is stopped (SIGSTOP) and let go on (SIGCONT); the same film on both
//!   calibrate ──> 60 % of it, at times that are drawn and not waited for (open loop)
//!   pairs of windows, the drive stopped at the beginning of one of the two
//!     ──> response times of the other drives' objects; what became of those of the stopped drive
//!   then: bodies begun, files not open yet, both appliances' drives stopped, a start beside one
//! ```

mod client;
pub(crate) mod hold;
mod load;
mod report;
mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::cpu;
use rig::stage::Object;
use tracing::info;

use load::{Load, Seen};
use report::{Pair, Report};
use world::{FROM_DRIVES, Place, World};

/// `nearcast-lab stall`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Pairs of windows, with the drive stopped and not.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: u32,
    /// Length of a window, in seconds.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Offered load, in percent of what was found to be possible.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: u32,
    /// The CPU of the appliance that is measured; all else runs on the other.
    #[arg(long, default_value_t = 0)]
    server_cpu: usize,
    /// The CPU of all else.
    #[arg(long, default_value_t = 1)]
    client_cpu: usize,
    /// Where drives are made. Default: the directory for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Another seed, other times of asking.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// How long the rate is looked for.
const CALIBRATION: Duration = Duration::from_secs(2);
/// It takes 0.625 s to see that a drive hangs; a machine that is busy takes longer.
const HANG_SEEN: Duration = Duration::from_millis(1200);
/// A body is reset after 2 s of waiting; as above.
const RESET_MAX: Duration = Duration::from_millis(3500);
/// Requests that are given to the drive before it is seen to hang: more than the threads that the
/// kernel would give a ring on a machine with two CPUs.
const STUCK: usize = 24;
/// An appliance gives a drive ten seconds to open.
const START_MAX: Duration = Duration::from_secs(25);

/// Runs all of it, prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("nearcast-stall-").tempdir_in(dir)?;
    cpu::pin(args.client_cpu)?;
    let mut world = World::new(dir.path(), args.server_cpu, args.client_cpu)?;
    let capacity = load::calibrate(&world, CALIBRATION, args.seed)?;
    let rate = capacity * f64::from(args.percent) / 100.0;
    info!(capacity, rate, "requests per second");
    let mut report = Report::new(capacity, rate);
    for pair in 0..args.pairs {
        rig::stop::check()?;
        let load = Load::draw(rate, args.seconds, args.seed.wrapping_add(pair.into()));
        let hung_first = pair % 2 == 1;
        let first = window(&world, &load, hung_first)?;
        let second = window(&world, &load, !hung_first)?;
        let (calm, hung) = if hung_first { (second, first) } else { (first, second) };
        let pair = Pair::new(&calm, &hung).context("a window without answers")?;
        info!(calm_ms = pair.calm_p99_ms, hung_ms = pair.hung_p99_ms, "99 of 100 within");
        report.add(pair, &calm, &hung);
    }
    bodies_begun(&world, &mut report)?;
    files_not_open(&world, &mut report)?;
    both_hang(&world, &mut report)?;
    back_again(&world, &mut report)?;
    start_beside_a_hung_drive(&mut world, &mut report)?;
    rig::say(args.json, &report, || report.text())?;
    report.check(RESET_MAX)
}

/// One window; the drive is stopped as it begins, or not.
fn window(world: &World, load: &Load, hung: bool) -> Result<Seen> {
    let seen = load.run(world, hung)?;
    world.wait_until_served(&world.sick)?;
    Ok(seen)
}

/// Bodies that have begun when the drive stops: how long until they are reset?
fn bodies_begun(world: &World, report: &mut Report) -> Result<()> {
    let mut bodies = Vec::new();
    for object in world.large_sick.iter().cycle().take(8) {
        bodies.push(client::Begun::new(&world.near.at(object))?);
    }
    let _stopped = world.near.drive.stop()?;
    let stopped_at = Instant::now();
    let ends: Vec<Result<(bool, Duration)>> = std::thread::scope(|scope| {
        let read = |body: client::Begun| {
            let is_whole = body.read_to_its_end(RESET_MAX)?;
            Ok((is_whole, stopped_at.elapsed()))
        };
        let readers: Vec<_> = bodies.into_iter().map(|b| scope.spawn(move || read(b))).collect();
        let joined = readers.into_iter().map(|reader| reader.join());
        joined.map(|end| end.ok().context("a reader panicked")?).collect()
    });
    for end in ends {
        let (is_whole, after) = end?;
        ensure!(!is_whole, "a body came whole from a drive that is stopped: take larger ones");
        report.reset(after);
    }
    Ok(())
}

/// Objects of the other drives whose files nobody has opened yet, while all the threads that the
/// kernel would give a ring by itself wait for the stopped drive.
fn files_not_open(world: &World, report: &mut Report) -> Result<()> {
    world.wait_until_served(&world.sick)?;
    // Names that the kernel knows are opened at once; those it has to look up are not.
    std::fs::write("/proc/sys/vm/drop_caches", "2").context("this needs root")?;
    let _stopped = world.near.drive.stop()?;
    std::thread::scope(|scope| {
        let sick = world.sick.iter().cycle().take(STUCK);
        let stuck: Vec<_> = sick
            .map(|object| {
                scope.spawn(|| client::Client::new().follow(world.near.at(object), object))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let mut client = client::Client::new();
        for object in &world.fresh {
            let began = Instant::now();
            let answer = client.get(&world.near.at(object), object)?;
            ensure!(answer.is_right(), "a fresh object: {answer:?}");
            report.fresh(began.elapsed());
        }
        for thread in stuck {
            report.chain(&thread.join().ok().context("a thread panicked")?);
        }
        Ok(())
    })
}

/// The drives of both appliances are stopped: nobody may be sent round.
fn both_hang(world: &World, report: &mut Report) -> Result<()> {
    world.wait_until_served(&world.sick_on_both)?;
    let _stopped = [world.near.drive.stop()?, world.far.drive.stop()?];
    let mut client = client::Client::new();
    for place in [&world.near, &world.far] {
        // So that each has seen it.
        let object = world.sick_on_both.first().context("an object on both stopped drives")?;
        let _ = client.get(&place.at(object), object);
    }
    std::thread::sleep(HANG_SEEN);
    for object in &world.sick_on_both {
        let chain = client.follow(world.near.at(object), object);
        ensure!(chain.end_status() == Some(404), "both drives hang, and yet: {chain:?}");
        report.chain(&chain);
    }
    Ok(())
}

/// All goes on: control hears that what lies on the drive is held again.
fn back_again(world: &World, report: &mut Report) -> Result<()> {
    {
        let _stopped = world.near.drive.stop()?;
        let object = world.sick.first().context("an object on the stopped drive")?;
        report.chain(&client::Client::new().follow(world.near.at(object), object));
        let sick: BTreeSet<String> = world.sick.iter().map(id).collect();
        let control = &world.near.stage.control;
        let gone = || control.held().is_disjoint(&sick) && control.report().0.drives[2].hung;
        wait_until("to say what is gone", Duration::from_secs(10), gone)?;
    }
    let began = Instant::now();
    let all: BTreeSet<String> = world.film.objects.iter().map(id).collect();
    let control = &world.near.stage.control;
    let back = || control.held() == all && !control.report().0.drives[2].hung;
    wait_until("to say what is back", Duration::from_secs(20), back)?;
    report.back_after_s = began.elapsed().as_secs_f64();
    Ok(())
}

/// An appliance that is started while a drive does not answer serves the others.
fn start_beside_a_hung_drive(world: &mut World, report: &mut Report) -> Result<()> {
    world.near.appliance.kill();
    let Place { appliance, stage, base, drive, drives, state } = &mut world.near;
    let _stopped = drive.stop()?;
    let began = Instant::now();
    *appliance = Place::appliance(stage, drives, state, FROM_DRIVES)?;
    report.start_s = began.elapsed().as_secs_f64();
    ensure!(began.elapsed() < START_MAX, "the start waited for the drive");
    let mut client = client::Client::new();
    for object in &world.healthy {
        let at = (appliance.address, format!("{base}{}", object.path));
        let answer = client.get(&at, object)?;
        ensure!(answer.is_right(), "after a start beside a hung drive: {answer:?}");
    }
    appliance.kill();
    Ok(())
}

fn wait_until(what: &str, patience: Duration, ready: impl Fn() -> bool) -> Result<()> {
    rig::until(what, patience, Duration::from_millis(10), || Ok(ready())).map(drop)
}

fn id(object: &Object) -> String {
    object.id().to_string()
}

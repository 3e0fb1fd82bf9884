//! `kill -9` at random moments of a fill: what was published stays, and little is fetched twice.
//!
//! ```text
//! origin ── 24 MB/s ──> appliance ── dies, starts again, dies ...   a viewer asks all the time
//!                       each start: what was served before is served at once, byte by byte
//! ```
//!
//! Its small objects share files, as they do by default, and the others have one each.
//! When a film is held, the next one takes its place: evictions are interrupted too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::id::ObjectId;
use rig::client::Dice;
use rig::stage::{Appliance, Film, Got, Setup, Stage, Viewer};
use serde::Serialize;
use tracing::{info, warn};

/// What `crash-fill` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often the appliance is killed.
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// Another seed, other moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Objects below this share files (`fill.unit`); "0 B" for a file each. With the default there
    /// are both kinds.
    #[arg(long, default_value = "700 KiB")]
    unit: String,
    /// Where the drive is made. Default: the directory for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Kills; the same as `cuts`.
    kills: u64,
    /// Starts after a kill that were looked at.
    cuts: u64,
    /// Served bytes that were not the object's.
    wrong_bytes: u64,
    /// Published objects that were not served after a start.
    lost_objects: u64,
    /// Body bytes that the origin sent, by those of the films.
    bytes_fetched_ratio: f64,
    bytes: u64,
    /// Objects that were seen to be served.
    published: u64,
    /// Of these, in a file with others when their film was whole.
    in_units: u64,
    films: u64,
    seed: u64,
    elapsed_s: u64,
    findings: Vec<String>,
}

/// One film, and which of its objects were served so far.
struct Playing {
    film: Film,
    base: String,
    seen: Mutex<BTreeSet<ObjectId>>,
}

/// A life of the appliance fetches some megabytes, so that a fill lasts for many.
const RATE: u64 = 24_000_000;
/// Longest life after it listens.
const LIFE_MAX_MS: u64 = 700;
const FILL_MAX: Duration = Duration::from_secs(120);
const FINDINGS_MAX: usize = 20;

/// Fills, kills, looks.
pub(crate) fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::Builder::new().prefix("nearcast-crash-").tempdir_in(parent)?;
    let mut stage = Stage::new(dir.path())?;
    let drives = [dir.path().join("drive")];
    Appliance::format(&drives[0])?;
    let state = dir.path().join("state");
    let more = "[fill]\nconcurrency = 2\n";
    let settings = [("APPLIANCE_FILL_UNIT", args.unit.clone())];
    let setup = Setup { more, settings: &settings, ..Setup::new("crash", &drives, &state) };
    let mut outcome = Outcome { seed: args.seed, ..Outcome::default() };
    let mut dice = Dice::new(args.seed);
    stage.origin.limit(RATE);
    let mut playing = next_film(&mut stage, args.seed, &mut outcome)?;
    while outcome.kills < args.kills {
        let mut appliance = stage.start(&setup)?;
        look_after_start(&appliance, &playing, &mut outcome);
        let life = Duration::from_millis(dice.below(LIFE_MAX_MS));
        live(&appliance, &playing, life);
        appliance.kill();
        outcome.kills += 1;
        if all_seen(&playing) {
            count_published(&playing, &drives[0], &mut outcome)?;
            playing = next_film(&mut stage, args.seed, &mut outcome)?;
        }
        if outcome.kills.is_multiple_of(20) {
            info!(kills = outcome.kills, of = args.kills, films = outcome.films, "killing");
        }
        rig::stop::check()?;
    }
    let mut appliance = stage.start(&setup)?;
    look_after_start(&appliance, &playing, &mut outcome);
    let viewer = Viewer::new(appliance.address);
    let whole = || viewer.has_all(&playing.base, &playing.film);
    appliance.wait_until("the last film", FILL_MAX, whole)?;
    live(&appliance, &playing, Duration::ZERO);
    count_published(&playing, &drives[0], &mut outcome)?;
    appliance.stop()?;
    outcome.cuts = outcome.kills;
    outcome.bytes_fetched_ratio = ratio(stage.origin.sent(), outcome.bytes);
    outcome.elapsed_s = began.elapsed().as_secs();
    report(&outcome, args.json)
}

/// The next film in the place of the one before.
fn next_film(stage: &mut Stage, seed: u64, outcome: &mut Outcome) -> Result<Playing> {
    outcome.films += 1;
    // A part is verified before it is gone on with, at 50 MB/s at most, beside the scrub: a longer
    // one would take all of a life.
    let lens = [1, 65_536, 65_537, 262_145, 1_000_000, 3_000_000, 4_000_000, 6_000_000];
    let lens = lens.into_iter().cycle().take(16);
    let film = Film::new(&format!("film-{}", outcome.films), lens, seed ^ outcome.films << 32);
    stage.publish(&[&film])?;
    outcome.bytes += film.bytes();
    Ok(Playing { base: stage.base(&film)?, film, seen: Mutex::default() })
}

/// What was served before must be served now, at once.
fn look_after_start(appliance: &Appliance, playing: &Playing, outcome: &mut Outcome) {
    let viewer = Viewer::new(appliance.address);
    let seen = playing.seen.lock().unwrap_or_else(PoisonError::into_inner);
    for object in &playing.film.objects {
        let got = viewer.get(&playing.base, object);
        match got {
            Got::Right => continue,
            Got::Wrong(bytes) => outcome.wrong_bytes += bytes,
            Got::Refused | Got::Broken if !seen.contains(&object.id()) => continue,
            Got::Refused | Got::Broken => outcome.lost_objects += 1,
        }
        let text =
            format!("kill {}: {} {}: {got:?}", outcome.kills, playing.film.name, object.path);
        warn!("{text}");
        if outcome.findings.len() < FINDINGS_MAX {
            outcome.findings.push(text);
        }
    }
}

/// Lets the appliance live so long, and notes what it serves.
fn live(appliance: &Appliance, playing: &Playing, life: Duration) {
    let over = AtomicBool::new(false);
    let viewer = Viewer::new(appliance.address);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                for object in &playing.film.objects {
                    let mut seen = playing.seen.lock().unwrap_or_else(PoisonError::into_inner);
                    // An answer that came before the kill counts, whenever it is noted.
                    if !seen.contains(&object.id())
                        && viewer.get(&playing.base, object) == Got::Right
                    {
                        seen.insert(object.id());
                    }
                }
                if over.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        std::thread::sleep(life);
        over.store(true, Ordering::SeqCst);
    });
}

fn all_seen(playing: &Playing) -> bool {
    let seen = playing.seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.len() == playing.film.objects.len()
}

fn count_published(playing: &Playing, drive: &Path, outcome: &mut Outcome) -> Result<()> {
    let seen = playing.seen.lock().unwrap_or_else(PoisonError::into_inner);
    outcome.published += u64::try_from(seen.len())?;
    // What has no file of its own is in a unit.
    let own = |object: &ObjectId| drive.join(format!("objects/{:02x}/{object}", object.0[0]));
    outcome.in_units += u64::try_from(seen.iter().filter(|id| !own(id).is_file()).count())?;
    Ok(())
}

#[expect(clippy::as_conversions, reason = "u64 to f64 has no other way; rounding is fine here")]
fn ratio(sent: u64, wanted: u64) -> f64 {
    sent as f64 / wanted as f64
}

fn report(outcome: &Outcome, json: bool) -> Result<()> {
    rig::say(json, outcome, || {
        format!(
            "{} kills in {} s: {} wrong bytes, {} lost objects, {:.3} bytes fetched per byte",
            outcome.kills,
            outcome.elapsed_s,
            outcome.wrong_bytes,
            outcome.lost_objects,
            outcome.bytes_fetched_ratio
        )
    })?;
    ensure!(
        outcome.wrong_bytes == 0 && outcome.lost_objects == 0,
        "{} wrong bytes, {} lost objects",
        outcome.wrong_bytes,
        outcome.lost_objects
    );
    (0 < outcome.published).then_some(()).context("nothing was ever published")
}

//! Power cuts: every one that a recorded fill could have met, opened by the real appliance.
//!
//! ```text
//! fill on a FUSE drive ──> Tape: changes in order, when objects were published
//!          states: after each change, what is not flushed is lost, kept, torn, reordered
//!          judge: nearcast-appliance serves the state; every object compared byte by byte
//! ```
//!
//! One run of the unchanged appliance gives the tape: it publishes objects of all shapes, evicts
//! what a newer manifest drops, and replaces its index log by a snapshot. What is judged is what a
//! viewer gets, so recovery is judged by the code that runs in production.

mod image;
mod judge;
mod states;
mod tape;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use model::id::ObjectId;
use rig::client::Dice;
use rig::drive::{Change, Drive};
use rig::stage::{Appliance, Film, Got, Setup, Stage, Viewer};
use serde::Serialize;
use tracing::{info, warn};

use judge::{Case, Catalogue, Verdict};
use states::{Ignore, Shape, States};
use tape::{Recording, Tape};

/// What `cut` is told.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many states to judge; all that differ if there are fewer.
    #[arg(long, default_value_t = 1500)]
    cuts: usize,
    /// Another seed, other torn writes and another choice of states.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not believe these flushes: the run must then find lost objects or wrong bytes.
    #[arg(long, value_enum, default_value_t)]
    ignore_flushes: Ignore,
    /// Objects below this share files (`fill.unit`); "0 B" for a file each. With the default both
    /// kinds are recorded.
    #[arg(long, default_value = "700 KiB")]
    unit: String,
    /// Appliances that judge at the same time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=64))]
    judges: u16,
    /// Where states are made. Default: /dev/shm, which is memory.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    /// Different states that were judged.
    cuts: u64,
    /// Served bytes that were not the object's.
    wrong_bytes: u64,
    /// Published objects that were not served.
    lost_objects: u64,
    /// Objects never published that the index spoke of.
    broken: u64,
    /// Changes on the tape: each has a state before and after it.
    boundaries: u64,
    flushes: u64,
    /// Different states that the model has for this tape and seed.
    states: u64,
    /// Objects published on the tape.
    published: u64,
    /// Files unlinked on the tape, of an object or of a unit.
    evicted: u64,
    /// Snapshots of the index on the tape.
    snapshots: u64,
    ignored_flushes: String,
    seed: u64,
    elapsed_s: u64,
    /// The first things found, in words.
    findings: Vec<String>,
}

struct Films {
    /// Many tiny ones: they make the log long, and are dropped.
    early: Film,
    /// Wanted from the second manifest on.
    kept: Film,
    /// Wanted by the second manifest, dropped by the third.
    dropped: Film,
    /// Wanted by the third.
    late: Film,
}

/// A point on the tape and what is left of it.
struct Cut {
    at: usize,
    shape: Shape,
}

/// The log is replaced by a snapshot when it has over 1,024 records, of 128 bytes each: recording
/// begins shortly before.
const BEGIN_AT: u64 = 960 * 128;
/// So many are published and evicted before.
const EARLY: u64 = 500;
/// Publishing all of it takes seconds.
const FILL_MAX: Duration = Duration::from_secs(300);
/// After a flush of the log an object is visible within a millisecond or two.
const LOOK: Duration = Duration::from_millis(40);
const FINDINGS_MAX: usize = 20;
/// Torn states per point: of 512 and 4096 bytes in turn.
const TORN: u64 = 12;

/// Records, cuts, judges.
pub(crate) fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    let memory = Path::new("/dev/shm").to_owned();
    let parent = args.dir.clone().unwrap_or(memory);
    let dir = tempfile::Builder::new().prefix("nearcast-cut-").tempdir_in(&parent)?;
    let films = Films::new(args.seed);
    let mut stage = Stage::new(dir.path())?;
    let catalogue = Catalogue::new(&stage, &[&films.kept, &films.dropped, &films.late])?;
    let recording = record(dir.path(), &mut stage, &films, &catalogue, &args.unit)?;
    let mut outcome = describe(&recording, args);
    let (cuts, all) = choose(&recording, args)?;
    outcome.states = u64::try_from(all)?;
    info!(changes = recording.changes.len(), states = all, cuts = cuts.len(), "recorded; judging");
    judge_all(&stage, &catalogue, dir.path(), &recording, &cuts, args, &mut outcome)?;
    outcome.elapsed_s = began.elapsed().as_secs();
    report(&outcome, args.json)
}

impl Films {
    fn new(seed: u64) -> Self {
        // Every kind of end: a byte, a page, kept in memory or not, a block and a bit, some blocks.
        let kinds = [1, 4096, 65_536, 65_537, 262_144, 262_145, 600_000, 5_000, 1_000_000, 100_000];
        let lens = |count: usize| kinds.into_iter().cycle().take(count);
        Self {
            early: Film::new("early", 1..=EARLY, seed),
            kept: Film::new("kept", lens(30), seed + 1),
            dropped: Film::new("dropped", lens(20), seed + 2),
            late: Film::new("late", lens(20), seed + 3),
        }
    }
}

/// Fills, drops and fills again, on a drive that is written down.
fn record(
    dir: &Path,
    stage: &mut Stage,
    films: &Films,
    catalogue: &Catalogue,
    unit: &str,
) -> Result<Recording> {
    let (folder, mount) = (dir.join("folder"), dir.join("mount"));
    for name in ["drive", "state"] {
        std::fs::create_dir_all(folder.join(name))?;
    }
    let tape = Arc::new(Tape::new(&folder, BEGIN_AT));
    let drive = Drive::mount(&folder, &mount, tape.clone())?;
    let place = drive.path().join("drive");
    Appliance::format(&place)?;
    let state = drive.path().join("state");
    let drives = [place];
    let more = "[fill]\nconcurrency = 3\n";
    let settings = [("APPLIANCE_FILL_UNIT", unit.to_owned())];
    let setup = Setup { more, settings: &settings, ..Setup::new("recorded", &drives, &state) };
    stage.publish(&[&films.early])?;
    let mut appliance = stage.start(&setup)?;
    let over = AtomicBool::new(false);
    let viewer = Viewer::new(appliance.address);
    let filled = std::thread::scope(|scope| {
        scope.spawn(|| look_for_new_objects(&tape, &viewer, catalogue, &over));
        let filled = fill(stage, films, &mut appliance, &tape);
        over.store(true, Ordering::SeqCst);
        filled
    });
    filled?;
    let recording = tape.finish()?;
    appliance.stop()?;
    Ok(recording)
}

fn fill(stage: &mut Stage, films: &Films, appliance: &mut Appliance, tape: &Tape) -> Result<()> {
    stage.wait_until_held(appliance, &[&films.early], FILL_MAX)?;
    info!("the log is long; now what is recorded");
    let second = [&films.kept, &films.dropped];
    stage.publish(&second)?;
    stage.wait_until_held(appliance, &second, FILL_MAX)?;
    ensure!(tape.is_recording(), "the early film was too short to make the log long");
    tape.note_dropped(films.dropped.objects.iter().map(rig::stage::Object::id));
    let third = [&films.kept, &films.late];
    stage.publish(&third)?;
    stage.wait_until_held(appliance, &third, FILL_MAX)
}

/// After each flush of the log: what is served that was not served before?
fn look_for_new_objects(tape: &Tape, viewer: &Viewer, catalogue: &Catalogue, over: &AtomicBool) {
    let mut seen: BTreeSet<ObjectId> = BTreeSet::new();
    while !over.load(Ordering::SeqCst) {
        if !tape.wait_for_hold(Duration::from_millis(50)) {
            continue;
        }
        let began = Instant::now();
        let mut found = false;
        while !found && began.elapsed() < LOOK {
            for (base, object) in catalogue.entries() {
                if !seen.contains(&object.id()) && viewer.get(base, object) == Got::Right {
                    tape.note_published(object.id());
                    seen.insert(object.id());
                    found = true;
                }
            }
        }
        tape.look_is_over();
    }
}

fn describe(recording: &Recording, args: &Args) -> Outcome {
    let count = |of: &dyn Fn(&Change) -> bool| {
        u64::try_from(recording.changes.iter().filter(|change| of(change)).count())
            .expect("a count fits")
    };
    let unlinked = |change: &Change| {
        let Change::Unlink { path } = change else { return false };
        path.starts_with("drive/objects") || path.starts_with("drive/units")
    };
    let snapshot = |change: &Change| {
        let Change::Rename { to, .. } = change else { return false };
        to.ends_with("index/snapshot")
    };
    let flush =
        |change: &Change| matches!(change, Change::FlushFile { .. } | Change::FlushFolder { .. });
    Outcome {
        boundaries: count(&|_| true),
        flushes: count(&flush),
        published: u64::try_from(recording.published.len()).expect("a count fits"),
        evicted: count(&unlinked),
        snapshots: count(&snapshot),
        ignored_flushes: format!("{:?}", args.ignore_flushes).to_lowercase(),
        seed: args.seed,
        ..Outcome::default()
    }
}

/// The states to judge, in the order of the tape, and how many there are. Each point has the state
/// in which all is lost that may be; the rest is chosen by the seed.
fn choose(recording: &Recording, args: &Args) -> Result<(Vec<Cut>, usize)> {
    let mut states = States::new(&recording.base, &recording.changes, args.ignore_flushes);
    let mut seen = BTreeSet::new();
    let mut dice = Dice::new(args.seed);
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    loop {
        let at = states.at();
        // What must be there is part of the question: the same state may be asked twice.
        let before = |list: &[(usize, ObjectId)]| list.iter().filter(|(n, _)| *n <= at).count();
        let question = (before(&recording.published), before(&recording.dropped));
        let torn = (0..TORN).map(|n| {
            let sector = if n % 2 == 0 { 512 } else { 4096 };
            Shape::Torn { sector, seed: dice.throw() }
        });
        let fixed = [Shape::Lost, Shape::Kept, Shape::NamesAlone, Shape::BytesAlone];
        for shape in fixed.into_iter().chain(torn) {
            if seen.insert((states.key(shape), question)) {
                let list = if shape == Shape::Lost { &mut first } else { &mut rest };
                list.push(Cut { at, shape });
            }
        }
        if !states.advance()? {
            break;
        }
    }
    let all = first.len() + rest.len();
    let shuffle = |list: &mut Vec<Cut>, dice: &mut Dice| {
        for i in (1..list.len()).rev() {
            let other = dice.below(u64::try_from(i + 1).expect("an index fits"));
            list.swap(i, usize::try_from(other).expect("an index fits"));
        }
    };
    shuffle(&mut first, &mut dice);
    shuffle(&mut rest, &mut dice);
    // A short run takes some of both kinds.
    first.truncate(args.cuts.div_ceil(2).max(args.cuts.saturating_sub(rest.len())));
    let room = args.cuts.saturating_sub(first.len());
    first.extend(rest.into_iter().take(room));
    first.sort_by_key(|cut| cut.at);
    Ok((first, all))
}

fn judge_all(
    stage: &Stage,
    catalogue: &Catalogue,
    dir: &Path,
    recording: &Recording,
    cuts: &[Cut],
    args: &Args,
    outcome: &mut Outcome,
) -> Result<()> {
    let judges = usize::from(args.judges);
    let (sender, cases) = sync_channel::<Case>(judges);
    let cases = Mutex::new(cases);
    let verdicts: Result<Vec<Verdict>> = std::thread::scope(|scope| {
        let judge = |slot: usize| {
            let (cases, folder) = (&cases, dir.join(format!("state-{slot}")));
            scope.spawn(move || -> Result<Vec<Verdict>> {
                let mut verdicts = Vec::new();
                loop {
                    let case = cases.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(case) = case else { return Ok(verdicts) };
                    let verdict = judge::judge(stage, catalogue, slot, &folder, &case)?;
                    verdict.findings.iter().for_each(|finding| warn!("{finding}"));
                    verdicts.push(verdict);
                }
            })
        };
        let threads: Vec<_> = (0..judges).map(judge).collect();
        let sent = send_cases(recording, cuts, args, &sender);
        drop(sender);
        let mut all = Vec::new();
        for thread in threads {
            all.extend(thread.join().ok().context("a judge panicked")??);
        }
        sent.map(|()| all)
    });
    for verdict in verdicts? {
        outcome.cuts += 1;
        outcome.wrong_bytes += verdict.wrong_bytes;
        outcome.lost_objects += verdict.lost_objects;
        outcome.broken += verdict.broken;
        let room = FINDINGS_MAX.saturating_sub(outcome.findings.len());
        outcome.findings.extend(verdict.findings.into_iter().take(room));
    }
    Ok(())
}

fn send_cases(
    recording: &Recording,
    cuts: &[Cut],
    args: &Args,
    sender: &std::sync::mpsc::SyncSender<Case>,
) -> Result<()> {
    let mut states = States::new(&recording.base, &recording.changes, args.ignore_flushes);
    for (number, cut) in cuts.iter().enumerate() {
        rig::stop::check()?;
        while states.at() < cut.at {
            states.advance()?;
        }
        let before = |list: &[(usize, ObjectId)]| -> BTreeSet<ObjectId> {
            list.iter().filter(|(at, _)| *at <= cut.at).map(|(_, object)| *object).collect()
        };
        let required = &before(&recording.published) - &before(&recording.dropped);
        let change = cut.at.checked_sub(1).map(|at| brief(&recording.changes[at]));
        let name = format!("cut {} after {}, {:?}", cut.at, change.unwrap_or_default(), cut.shape);
        let image = states.state(cut.shape).1;
        if sender.send(Case { name, image, required }).is_err() {
            break; // All judges have failed; what they say matters.
        }
        if number % 100 == 99 {
            info!(judged = number + 1, of = cuts.len(), "judging");
        }
    }
    Ok(())
}

fn brief(change: &Change) -> String {
    match change {
        Change::Create { path, .. } => format!("create {}", path.display()),
        Change::Write { path, at, bytes, .. } => {
            format!("write {} at {at} of {}", bytes.len(), path.display())
        }
        Change::Resize { path, len, .. } => format!("resize {} to {len}", path.display()),
        Change::FlushFile { path, .. } | Change::FlushFolder { path } => {
            format!("flush {}", path.display())
        }
        Change::Rename { to, .. } => format!("rename to {}", to.display()),
        Change::Unlink { path } => format!("unlink {}", path.display()),
    }
}

fn report(outcome: &Outcome, json: bool) -> Result<()> {
    rig::say(json, outcome, || {
        format!(
            "{} cuts of {} states at {} boundaries in {} s: {} wrong bytes, {} lost objects",
            outcome.cuts,
            outcome.states,
            outcome.boundaries,
            outcome.elapsed_s,
            outcome.wrong_bytes,
            outcome.lost_objects
        )
    })?;
    ensure!(
        outcome.wrong_bytes == 0 && outcome.lost_objects == 0 && outcome.broken == 0,
        "{} wrong bytes, {} lost objects, {} broken answers",
        outcome.wrong_bytes,
        outcome.lost_objects,
        outcome.broken
    );
    Ok(())
}

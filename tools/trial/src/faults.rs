//! What an appliance makes of drives that fail: one of two is made to fail in each way that drives
//! have, and the other must serve on.
//!
//! ```text
//! two FUSE drives, a film on both ──> a fault on the first ──> viewers ask on
//!    the second's objects: every byte, all the time            the process: never restarts
//!    the report: which drive, which objects, in which words    in the end: the whole film again
//! ```

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::drive::{Drive, Fault, Faults, Kind};
use rig::stage::{self, Appliance, Film, Got, Object, Setup, Stage, Viewer};
use rustix::io::Errno;
use serde::Serialize;
use tracing::info;
use wire::v1::report::{DriveState, Report};

/// The command line of `faults`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this one.
    #[arg(long)]
    only: Option<String>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// A way to fail, and what must follow.
struct Class {
    name: &'static str,
    kinds: &'static [Kind],
    /// On which paths; `{object}` is one object of the drive, `{objects}` is each.
    on: &'static str,
    errno: Errno,
    /// What must be found in the errors of the report.
    said: &'static str,
    expect: Expect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    /// The drive is set aside, and its objects come to the other.
    DriveSetAside,
    /// One object is set aside, and comes again; both drives stay.
    ObjectSetAside,
    /// The same, where nobody asks for it: the scrub finds it after a start.
    FoundByScrub,
    /// New objects go to the other drive; both drives stay.
    Elsewhere,
}

#[derive(Debug, Default, Serialize)]
struct Outcome {
    classes: u64,
    failed: u64,
    /// Answers of the other drive while the first failed, each compared byte by byte.
    answers_of_the_other_drive: u64,
    elapsed_s: u64,
    findings: Vec<String>,
}

struct World {
    stage: Stage,
    film: Film,
    base: String,
    appliance: Appliance,
    faults: Arc<Faults>,
    /// What the first drive held before it failed.
    on_first: Vec<Object>,
    on_second: Vec<Object>,
    answers: u64,
    /// Somebody asks for what is on the first drive.
    asks_of_first: bool,
    // Unmounted last.
    drives: [Drive; 2],
    dir: tempfile::TempDir,
}

const READS: &[Kind] = &[Kind::Read];
const OPENS: &[Kind] = &[Kind::Open];
const READS_AND_OPENS: &[Kind] = &[Kind::Read, Kind::Open];
const CHANGES: &[Kind] = &[
    Kind::Create,
    Kind::Write,
    Kind::Allocate,
    Kind::Resize,
    Kind::Flush,
    Kind::Rename,
    Kind::Unlink,
];
const ROOM: &[Kind] = &[Kind::Allocate, Kind::Write];
const ALL: &[Kind] = &[
    Kind::Lookup,
    Kind::Open,
    Kind::Read,
    Kind::List,
    Kind::Measure,
    Kind::Create,
    Kind::Write,
    Kind::Allocate,
    Kind::Resize,
    Kind::Flush,
    Kind::Rename,
    Kind::Unlink,
];

const fn class(
    name: &'static str,
    kinds: &'static [Kind],
    on: &'static str,
    errno: Errno,
    said: &'static str,
    expect: Expect,
) -> Class {
    Class { name, kinds, on, errno, said, expect }
}

const CLASSES: [Class; 14] = {
    use Expect::{DriveSetAside, Elsewhere, FoundByScrub, ObjectSetAside};
    const UNREADABLE: &str = "too many objects are unreadable";
    [
        class("eio-read", READS, "{objects}", Errno::IO, UNREADABLE, DriveSetAside),
        class("enodata-read", READS, "{objects}", Errno::NODATA, UNREADABLE, DriveSetAside),
        class("enodata-open", OPENS, "{objects}", Errno::NODATA, UNREADABLE, DriveSetAside),
        class("one-bad-file", READS, "{object}", Errno::NODATA, "is unreadable", ObjectSetAside),
        class("one-bad-open", OPENS, "{object}", Errno::NODATA, "is unreadable", ObjectSetAside),
        class(
            "one-bad-eio",
            READS_AND_OPENS,
            "{object}",
            Errno::IO,
            "is unreadable",
            ObjectSetAside,
        ),
        class("scrub-eio", READS, "{object}", Errno::IO, "is unreadable", FoundByScrub),
        class("scrub-enodata", READS, "{object}", Errno::NODATA, "is unreadable", FoundByScrub),
        class("read-only", CHANGES, "", Errno::ROFS, "Read-only file system", DriveSetAside),
        class("full", ROOM, "", Errno::NOSPC, "No space left on device", Elsewhere),
        class("gone-enotconn", ALL, "", Errno::NOTCONN, "not connected", DriveSetAside),
        class("gone-enodev", ALL, "", Errno::NODEV, "No such device", DriveSetAside),
        class("gone-estale", ALL, "", Errno::STALE, "Stale file handle", DriveSetAside),
        class("gone-enoent", ALL, "", Errno::NOENT, "is set aside", DriveSetAside),
    ]
};

const AT_ONCE: usize = 4;
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) fn run(args: &Args) -> Result<()> {
    let began = Instant::now();
    let mut outcome = Outcome::default();
    let wanted = |class: &&Class| args.only.as_ref().is_none_or(|only| only == class.name);
    let classes: Vec<&Class> = CLASSES.iter().filter(wanted).collect();
    for (class, result) in classes.iter().zip(try_all(&classes)) {
        outcome.classes += 1;
        match result {
            Ok(answers) => {
                info!(class = class.name, answers, "as it should be");
                outcome.answers_of_the_other_drive += answers;
            }
            Err(error) => {
                rig::stop::check()?;
                outcome.failed += 1;
                outcome.findings.push(format!("{}: {error:#}", class.name));
            }
        }
    }
    ensure!(0 < outcome.classes, "there is no such class of faults");
    outcome.elapsed_s = began.elapsed().as_secs();
    rig::say(args.json, &outcome, || format!("{} of {} failed", outcome.failed, outcome.classes))?;
    ensure!(outcome.failed == 0, "{}", outcome.findings.join("\n"));
    Ok(())
}

/// All of them, some at the same time: most of each is waiting. Results in the same order.
fn try_all(classes: &[&Class]) -> Vec<Result<u64>> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<u64>>>> =
        classes.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some((class, result)) = {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    classes.get(n).zip(results.get(n))
                } {
                    *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(try_class(class));
                }
            });
        }
    });
    let taken = results.into_iter().map(|result| {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        result.unwrap_or_else(|| anyhow::bail!("it was never tried"))
    });
    taken.collect()
}

fn try_class(class: &Class) -> Result<u64> {
    let mut world = World::new()?;
    let bad = world.on_first[0].id().to_string();
    let (on, times) = match class.on {
        // One place: when the object is filled again, it lies elsewhere.
        "{object}" => (vec![bad.clone()], Some(1)),
        "{objects}" => {
            (world.on_first.iter().map(|object| object.id().to_string()).collect(), None)
        }
        other => (vec![other.to_owned()], None),
    };
    let fault = |on| Fault { kinds: class.kinds.to_vec(), on, errno: class.errno, times };
    world.faults.set(on.into_iter().map(fault).collect());
    match class.expect {
        Expect::DriveSetAside => world.expect_drive_set_aside(class)?,
        Expect::ObjectSetAside => world.expect_object_set_aside(class, &bad)?,
        Expect::FoundByScrub => {
            world.start_anew()?;
            world.expect_object_set_aside(class, &bad)?;
        }
        Expect::Elsewhere => world.expect_elsewhere(class)?,
    }
    ensure!(world.appliance.is_running(), "the appliance ended");
    Ok(world.answers)
}

impl World {
    /// Two drives, and a film that lies on both.
    fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("nearcast-faults-").tempdir()?;
        let faults = [Arc::new(Faults::default()), Arc::new(Faults::default())];
        let mount = |n: usize| -> Result<Drive> {
            let folder = dir.path().join(format!("folder-{n}"));
            std::fs::create_dir(&folder)?;
            let watch = Arc::clone(&faults[n]);
            let drive = Drive::mount(&folder, &dir.path().join(format!("drive-{n}")), watch)?;
            Appliance::format(drive.path())?;
            Ok(drive)
        };
        let drives = [mount(0)?, mount(1)?];
        let paths: [PathBuf; 2] = drives.each_ref().map(|drive| drive.path().to_owned());
        let mut stage = Stage::new(dir.path())?;
        // None is kept in memory, so that each is read from its drive.
        let film = Film::new("film", (0..32).map(|n| 100_000 + n * 25_000), 1);
        stage.publish(&[&film])?;
        let state = dir.path().join("state");
        let mut appliance = stage.start(&setup(&paths, &state))?;
        let base = stage.base(&film)?;
        // Nobody asks before there are faults: no file is open yet.
        stage.wait_until_held(&mut appliance, &[&film], PATIENCE)?;
        let on = |n: usize| -> Vec<Object> {
            film.objects.iter().filter(|object| object.is_on(&paths[n])).cloned().collect()
        };
        let (on_first, on_second) = (on(0), on(1));
        ensure!(4 < on_first.len() && !on_second.is_empty(), "all lies on one drive");
        let [first, _] = faults;
        Ok(Self {
            stage,
            film,
            base,
            appliance,
            faults: first,
            on_first,
            on_second,
            answers: 0,
            asks_of_first: true,
            drives,
            dir,
        })
    }

    /// Starts the appliance again: the scrub begins with all that is there. Nobody asks for what is
    /// on the first drive until something was set aside.
    fn start_anew(&mut self) -> Result<()> {
        self.asks_of_first = false;
        self.appliance.kill();
        let paths = self.drives.each_ref().map(|drive| drive.path().to_owned());
        self.appliance = self.stage.start(&setup(&paths, &self.dir.path().join("state")))?;
        Ok(())
    }

    /// Asks for everything until `done`; what lies on the second drive must always come.
    fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) -> Result<()> {
        let viewer = Viewer::new(self.appliance.address);
        let began = Instant::now();
        loop {
            for object in &self.on_second {
                let got = viewer.get(&self.base, object);
                ensure!(got == Got::Right, "{what}: {} of the other drive: {got:?}", object.path);
                self.answers += 1;
            }
            for object in self.on_first.iter().filter(|_| self.asks_of_first) {
                let got = viewer.get(&self.base, object);
                ensure!(!matches!(got, Got::Wrong(_)), "{what}: wrong bytes of {}", object.path);
            }
            if done(self) {
                return Ok(());
            }
            rig::stop::check()?;
            ensure!(self.appliance.is_running(), "the appliance ended: {}", self.last_words());
            let late = began.elapsed() < PATIENCE;
            ensure!(late, "waited in vain for {what}: {}", self.last_words());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn expect_drive_set_aside(&mut self, class: &Class) -> Result<()> {
        let more = self.provoke_writes(class)?;
        self.until("the drive to be set aside", |world| {
            world.report().drives.first().is_some_and(|drive| drive.state == DriveState::SetAside)
        })?;
        let report = self.report();
        let reason = report.drives[0].reason.clone().unwrap_or_default();
        ensure!(report.drives[1].state == DriveState::Ok, "the other drive is set aside too");
        self.check_words(class, &reason)?;
        self.until("all of the film to be on the other drive", |world| {
            let viewer = Viewer::new(world.appliance.address);
            viewer.has_all(&world.base, &world.film)
        })?;
        let all = stage::ids([&self.film].into_iter().chain(&more));
        self.until("the inventory to say so", |world| world.stage.control.held() == all)?;
        let objects = u64::try_from(all.len())?;
        self.until("the drives to say so", |world| {
            let drives = world.report().drives;
            drives[0].objects == 0 && drives[1].objects == objects
        })
    }

    fn expect_object_set_aside(&mut self, class: &Class, bad: &str) -> Result<()> {
        self.until("the object to be set aside", |world| {
            world.appliance.metric("objects_set_aside_total").is_some_and(|count| 0.0 < count)
        })?;
        self.asks_of_first = true;
        self.check_words(class, bad)?;
        self.until("all of the film", |world| {
            let viewer = Viewer::new(world.appliance.address);
            viewer.has_all(&world.base, &world.film)
        })?;
        let all = stage::ids([&self.film]);
        self.until("the inventory to say so", |world| world.stage.control.held() == all)?;
        self.both_drives_stay()
    }

    fn expect_elsewhere(&mut self, class: &Class) -> Result<()> {
        let more = self.provoke_writes(class)?.context("a drive is full when it is written to")?;
        let base = self.stage.base(&more)?;
        self.until("new objects on the other drive", |world| {
            Viewer::new(world.appliance.address).has_all(&base, &more)
        })?;
        self.check_words(class, "")?;
        let whole = Viewer::new(self.appliance.address).has_all(&self.base, &self.film);
        ensure!(whole, "what lies on the full drive is served");
        self.both_drives_stay()
    }

    /// Where writing fails, something must be written: a second film is wanted.
    fn provoke_writes(&mut self, class: &Class) -> Result<Option<Film>> {
        if !class.kinds.contains(&Kind::Write) {
            return Ok(None);
        }
        let more = Film::new("more", (0..6).map(|n| 80_000 + n * 90_000), 2);
        self.stage.publish(&[&self.film, &more])?;
        Ok(Some(more))
    }

    fn both_drives_stay(&self) -> Result<()> {
        let drives = self.report().drives;
        let stay = drives.iter().all(|drive| drive.state == DriveState::Ok);
        ensure!(stay && drives.len() == 2, "a drive was set aside: {drives:?}");
        Ok(())
    }

    /// The next report's errors say what happened, and name what it happened to.
    fn check_words(&mut self, class: &Class, also: &str) -> Result<()> {
        let said = |report: &Report| {
            let has = |text: &str| text.contains(class.said) && text.contains(also);
            report.errors.iter().any(|error| error.room == "drive" && has(&error.text))
        };
        self.until("an error in the report", |world| said(&world.report()))
            .with_context(|| format!("\"{}\" and \"{also}\" should be said", class.said))
    }

    fn report(&self) -> Report {
        self.stage.control.report().0
    }

    fn last_words(&self) -> String {
        let errors: Vec<String> = self.report().errors.into_iter().map(|e| e.text).collect();
        format!("{errors:?}; {}", self.appliance.last_words())
    }
}

fn setup<'a>(drives: &'a [PathBuf], state: &'a Path) -> Setup<'a> {
    Setup { more: "[fill]\nconcurrency = 2\n", ..Setup::new("appliance", drives, state) }
}

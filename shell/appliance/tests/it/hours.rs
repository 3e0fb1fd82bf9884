//! Fill goes by the hours and rates that control told, also while control is away. The clock is the
//! machine's: the hours are moved around it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use appliance::process::storage::StorageHandle;
use wire::v1::fill::{FillOffset, FillRules};
use wire::v1::identity::Source;

use crate::http::Server;
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

/// Rules by which fill is closed now, and opens in six hours of the clock on the wall.
fn closed(state: u64) -> FillRules {
    rules(state, 6 * 60)
}

/// Rules by which fill is open now, and closes in an hour.
fn open(state: u64) -> FillRules {
    rules(state, -60)
}

/// A window of two hours, whose first minute is so many from now by the clock of a place four hours
/// ahead of UTC.
fn rules(state: u64, in_minutes: i64) -> FillRules {
    let local = i64::try_from(appliance::clock::wall().0 / 60).unwrap() + 240;
    let of_day = |minutes: i64| u16::try_from((local + minutes).rem_euclid(1440)).unwrap();
    FillRules {
        state,
        windows: vec![[of_day(in_minutes), of_day(in_minutes + 120)]],
        offsets: vec![FillOffset { from_unix_s: 7, ahead_s: 4 * 3600 }],
        ..FillRules::default()
    }
}

struct World {
    files: Vec<TestFile>,
    origin: Arc<Origin>,
    control: Arc<TestControl>,
    served: Server,
    origin_server: Server,
    rig: Rig,
}

impl World {
    /// Two files at an origin, and a control that tells these rules.
    fn new(rules: FillRules) -> Self {
        let files: Vec<_> = ["a.mp4", "b.mp4"].map(|path| TestFile::new(path, 20_000_000)).into();
        let (origin, o) = Origin::start();
        files.iter().for_each(|file| origin.put(&file.path, Arc::clone(&file.bytes)));
        // What is on its way when it is cut is lost: not more than a source of this speed sends.
        origin.faults.rate.store(40_000_000, Ordering::SeqCst);
        let (control, served) = TestControl::start("127.0.0.1:0");
        control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
        *control.rules.lock().unwrap() = Some(rules);
        let rig = Rig::new(1, Some(served.address));
        Self { files, origin, control, served, origin_server: o, rig }
    }

    /// Tells other rules, and waits until the appliance goes by them.
    fn tell(&self, rules: FillRules) {
        let state = rules.state;
        *self.control.rules.lock().unwrap() = Some(rules);
        self.wait_state(state);
    }

    fn wait_state(&self, state: u64) {
        wait("the appliance to go by the rules", || {
            self.control.last_report().and_then(|report| report.fill_rules) == Some(state)
        });
    }

    /// Waits for so many reports more.
    fn wait_reports(&self, count: usize) {
        let reports = || self.control.reports.lock().unwrap().len();
        let until = reports() + count;
        wait("some reports", || until <= reports());
    }
}

fn fetched(handle: &StorageHandle) -> u64 {
    handle.fill().fetched.0
}

#[test]
fn nothing_is_fetched_before_a_window_opens() {
    let mut world = World::new(closed(5));
    let handle = world.rig.start();
    world.wait_state(5);
    wait("the manifest", || {
        let report = world.control.last_report().unwrap();
        report.generation == 1 && report.fill.objects_wanted == 2
    });
    world.wait_reports(5);
    assert_eq!((world.origin.sent(), handle.fill().is_open), (0, false));
    world.tell(open(6));
    world.rig.wait_for(&world.files);
    assert_eq!(world.origin.sent(), 40_000_000);
}

#[test]
fn what_runs_when_a_window_ends_is_kept_and_nothing_comes_twice() {
    let mut world = World::new(open(5));
    // Slow beside the moments that it takes until rules are in force.
    world.origin.faults.rate.store(10_000_000, Ordering::SeqCst);
    let mut handle = world.rig.start();
    for n in 1..=3u64 {
        wait("some more", || n * 8_000_000 <= fetched(&handle));
        world.tell(if n == 2 { pause(n) } else { closed(100 + n) });
        // Blocks that were on their way have come: one for each of two fillers.
        let before = fetched(&handle);
        world.wait_reports(5);
        let after = fetched(&handle);
        assert!(after <= before + 2 * 262_144, "{} came after the end", after - before);
        world.wait_reports(2);
        assert_eq!(fetched(&handle), after);
        if n < 3 {
            world.tell(open(200 + n));
        }
    }
    let before = fetched(&handle);
    assert!(before < 40_000_000, "it was interrupted indeed");
    // The same after a restart, with control away.
    handle.stop();
    let World { files, origin, served, mut rig, control, .. } = world;
    drop(served);
    let sent = origin.sent();
    let mut handle = rig.start();
    assert!(!handle.fill().is_open, "it was told so before");
    assert_eq!((fetched(&handle), origin.sent()), (0, sent));
    handle.stop();
    let served = control.serve("127.0.0.1:0");
    let at = format!("https://{}", served.address);
    rig.config.control.as_mut().unwrap().url = settings::Text(at.parse().unwrap());
    *control.rules.lock().unwrap() = Some(open(300));
    let handle = rig.start();
    rig.wait_for(&files);
    assert_eq!(before + fetched(&handle), 40_000_000, "no block came twice");
    // What is in the buffers of two connections is lost with each cut: at most one request each.
    assert!(origin.sent() * 100 <= 40_000_000 * 115, "{} sent", origin.sent());
}

/// Fill is open by its windows, and paused.
fn pause(state: u64) -> FillRules {
    let until = Some(appliance::clock::wall().0 + 3600);
    FillRules { paused_until_unix_s: until, ..open(state) }
}

#[test]
fn control_says_how_fast_and_bytes_from_outside_go_by_both_rates() {
    // 1 MiB comes at once by each, and 19 million bytes at 10 MB/s.
    let rates = [(80_000_000, 0), (0, 80_000_000), (800_000_000, 80_000_000)];
    for (rate_max_bps, outside_max_bps) in rates {
        let rules = FillRules { rate_max_bps, outside_max_bps, ..open(5) };
        let mut world = World::new(rules);
        world.files.truncate(1);
        world.control.publish(
            2,
            vec![version("film-1", &[world.origin_server.address], &world.files)],
            &world.files,
        );
        let began = Instant::now();
        let _handle = world.rig.start();
        world.rig.wait_for(&world.files);
        let least = Duration::from_millis(1700);
        assert!(
            least <= began.elapsed(),
            "{rate_max_bps} {outside_max_bps}: {:?}",
            began.elapsed()
        );
    }
}

#[test]
fn what_comes_from_the_site_itself_is_not_counted_as_from_outside() {
    let mut world = World::new(FillRules { outside_max_bps: 1_000_000, ..open(5) });
    let origin = world.origin_server.address;
    let source = |file: &TestFile| Source {
        url: format!("http://{origin}/film/{}", file.path),
        address: None,
        expires_unix_s: None,
        same_site: true,
    };
    let sources = world.files.iter().map(|file| (file.id(), vec![source(file)]));
    *world.control.sources.lock().unwrap() = sources.collect();
    let handle = world.rig.start();
    world.rig.wait_for(&world.files);
    let counted = handle.fill_counters();
    assert_eq!((counted.from_outside, counted.from_origins), (0, 40_000_000));
}

#[test]
fn what_is_urgent_comes_though_the_window_is_closed_at_its_own_rate_and_nothing_else_does() {
    let mut world = World::new(closed(5));
    let [a, b] = [0, 1].map(|at| std::slice::from_ref(&world.files[at]).to_vec());
    let origin = world.origin_server.address;
    let versions = vec![version("film-1", &[origin], &a), version("film-2", &[origin], &b)];
    world.control.publish(2, versions, &world.files);
    let handle = world.rig.start();
    world.wait_state(5);
    wait("the manifest", || world.control.last_report().unwrap().generation == 2);
    // In a pause nothing comes.
    let urgent =
        FillRules { urgent: vec!["film-2".to_owned()], urgent_max_bps: 80_000_000, ..closed(6) };
    let paused_until_unix_s = Some(appliance::clock::wall().0 + 3600);
    world.tell(FillRules { paused_until_unix_s, ..urgent.clone() });
    world.wait_reports(3);
    assert_eq!(world.origin.sent(), 0, "it is paused");
    // 1 MiB comes at once, and 19 million bytes at 10 MB/s.
    let began = Instant::now();
    world.tell(FillRules { state: 7, ..urgent });
    world.rig.wait_for(&b);
    assert!(Duration::from_millis(1700) <= began.elapsed(), "{:?}", began.elapsed());
    world.wait_reports(5);
    assert_eq!((fetched(&handle), handle.fill().is_open), (20_000_000, false), "and no more");
    // In a window the cap does not hold.
    world.tell(open(8));
    world.rig.wait_for(&world.files);
    assert_eq!(fetched(&handle), 40_000_000);
}

#[test]
fn rules_that_are_no_rules_leave_those_before_in_force() {
    let mut world = World::new(closed(5));
    let handle = world.rig.start();
    world.wait_state(5);
    let bad = FillRules { state: 6, windows: vec![[7, 7]], ..FillRules::default() };
    *world.control.rules.lock().unwrap() = Some(bad);
    wait("a report that says so", || {
        let errors = world.control.last_report().unwrap_or_default().errors;
        errors.iter().any(|error| error.text.contains("rules for fill are refused"))
    });
    assert!(!handle.fill().is_open && world.origin.sent() == 0);
}

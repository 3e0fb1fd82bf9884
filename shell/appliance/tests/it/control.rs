//! What is said to control and taken from it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use appliance::membership::routes::Routes;
use model::expected::ITEMS_MAX;
use model::number::NumberSet;
use model::units::Bytes;
use wire::convert::expected_out;
use wire::v1::agent::{Answer, Line, Request, VERSION};
use wire::v1::expected::{Expected, ExpectedItem};
use wire::v1::routes::{Heard, Part};

use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

#[test]
fn reports_tell_the_load_and_the_inventory_as_deltas() {
    let files = [TestFile::new("a.mp4", 300_000), TestFile::new("b.mp4", 5)];
    let (origin, o) = Origin::start();
    files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
    let (control, c) = TestControl::start("127.0.0.1:0");
    let mut rig = Rig::new(2, Some(c.address));
    let counters = Rig::counters();
    counters.workers[0].counts.open.store(3, Ordering::SeqCst);
    counters.workers[1].counts.open.store(4, Ordering::SeqCst);
    counters.workers[1].counts.body_bytes.store(1_000, Ordering::SeqCst);
    let _handle = rig.start_counting(counters.clone());
    wait("a report", || control.last_report().is_some());
    let first = control.reports.lock().unwrap()[0].clone();
    assert_eq!((first.load.connections, first.load.egress_bytes), (7, 1_000));
    assert!(first.load.serving && first.inventory.from != 0 && first.inventory.held.is_empty());
    let by_number = first.files.as_ref().map(|files| (files.from, files.count, files.others));
    assert_eq!(by_number, Some((0, 0, 0)), "nobody knows yet what control reads");
    assert_eq!((first.drives.len(), first.base_url.as_str()), (2, "https://127.0.0.2:8443"));
    assert!(first.drives.iter().all(|drive| drive.id.len() == 32 && 0 < drive.free_bytes));

    control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
    rig.wait_for(&files);
    let held = |from_zero: bool| {
        let reports = control.reports.lock().unwrap();
        let fits = reports.iter().filter(|r| (r.inventory.from == 0) == from_zero);
        fits.flat_map(|r| r.inventory.held.clone()).collect::<Vec<String>>()
    };
    wait("the deltas", || held(false).len() == 2);
    assert!(held(true).is_empty(), "the full list was sent when there was nothing");
    control.forget.store(true, Ordering::SeqCst);
    wait("the full list again", || held(true).len() == 2);

    counters.draining.store(true, Ordering::SeqCst);
    wait("a report that says so", || !control.last_report().unwrap().load.serving);
    let reports = control.reports.lock().unwrap();
    let numbers = reports.iter().map(|report| report.sequence);
    assert!(numbers.eq(1..=u64::try_from(reports.len()).unwrap()));
}

#[test]
fn control_that_reads_numbers_is_told_ranges_and_all_when_it_knows_nothing() {
    let files = [TestFile::new("a.mp4", 300_000), TestFile::new("b.mp4", 5)];
    let (origin, o) = Origin::start();
    files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.by_number.store(true, Ordering::SeqCst);
    let mut rig = Rig::new(2, Some(c.address));
    let mut handle = rig.start();
    control.publish(1, vec![version("film-1", &[o.address], &files)], &files);
    rig.wait_for(&files);
    let told = || control.last_report().and_then(|report| report.files).unwrap_or_default();
    wait("both files", || told().count == 2);
    let came = |files: &wire::v1::report::Files| wire::convert::files_in(files).unwrap().came;
    let all: Vec<_> = control.reports.lock().unwrap().iter().cloned().collect();
    let told_of = all.iter().filter_map(|report| report.files.as_ref());
    let seen: std::collections::BTreeSet<u32> = told_of.flat_map(came).collect();
    assert_eq!(seen, [700, 701].into());
    assert!(all.iter().all(|report| report.inventory.held.is_empty()), "by their ids nothing");
    wait("a report without news", || told().from != 0 && told().came.is_empty());
    assert_eq!((told().count, told().others), (2, 0));
    control.forget.store(true, Ordering::SeqCst);
    wait("all again", || told().whole.is_some() && came(&told()) == [700, 701].into());

    // The manifest on the drive has the numbers.
    handle.stop();
    let handle = rig.start();
    let seen = control.reports.lock().unwrap().len();
    wait("a report", || seen < control.reports.lock().unwrap().len() && told().count == 2);
    // A manifest of a control that gives no numbers, as after going back a release.
    control.by_number.store(false, Ordering::SeqCst);
    control.publish(2, vec![version("film-1", &[o.address], &files)], &files);
    let ids = || control.last_report().map(|report| (report.files, report.inventory.to));
    wait("ids", || ids().is_some_and(|(files, _)| files.is_none()));
    control.forget.store(true, Ordering::SeqCst);
    let by_id = || control.reports.lock().unwrap().iter().any(|r| r.inventory.held.len() == 2);
    wait("all by their ids", by_id);
    drop(handle);
}

#[test]
fn an_older_manifest_never_replaces_a_newer_one() {
    let files = [TestFile::new("a.mp4", 300_000)];
    let (origin, o) = Origin::start();
    files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(7, vec![version("film-1", &[o.address], &files)], &files);
    let mut rig = Rig::new(1, Some(c.address));
    let mut handle = rig.start();
    rig.wait_for(&files);
    control.publish(6, vec![], &[]);
    let seen = control.reports.lock().unwrap().len();
    wait("three more reports", || seen + 3 < control.reports.lock().unwrap().len());
    assert_eq!(handle.fill().generation.0, 7);
    handle.stop();
    let handle = rig.start();
    wait("a report", || seen + 6 < control.reports.lock().unwrap().len());
    assert_eq!(handle.fill().generation.0, 7, "after a restart neither");
    assert_eq!(rig.told.index.lock().unwrap().len(), 1);
}

#[test]
fn control_may_go_and_come_back() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    let address = c.address;
    let mut rig = Rig::new(1, Some(address));
    drop(c);
    let _handle = rig.start();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(control.last_report(), None);
    let _server = control.serve(&address.to_string());
    wait("a report", || control.last_report().is_some());
}

#[test]
fn a_manifest_that_is_not_ours_is_refused_and_reported() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(3, vec![], &[]);
    control.manifest.lock().unwrap().as_mut().unwrap().appliance = "a2".parse().unwrap();
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    wait("the report of it", || {
        let errors = control.last_report().unwrap_or_default().errors;
        errors.iter().any(|e| e.room == "control" && e.text.contains("is addressed to a2"))
    });
    assert_eq!(handle.fill().generation.0, 0);
}

#[test]
fn reports_go_on_in_time_while_a_manifest_is_refused() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(3, vec![], &[]);
    control.manifest.lock().unwrap().as_mut().unwrap().appliance = "a2".parse().unwrap();
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    let asked = || control.manifests_asked.load(Ordering::SeqCst);
    wait("three tries", || 3 <= asked());
    let (reports, tries) = (reports_per_second(&control), asked());
    assert!(3.0 < reports, "{reports:.1} reports per second");
    assert!(tries < 10, "it is asked for {tries} times");
    control.publish(4, vec![], &[]);
    wait("a manifest that is ours", || handle.fill().generation.0 == 4);
}

#[test]
fn an_hour_that_is_over_is_told_until_it_is_counted() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    let mut rig = Rig::new(1, Some(c.address));
    // As a process leaves it that was stopped in the first hour of 2024.
    let hour = "1704067200\nnearcast-tally 1\n473352 9\n700 1234567 5\n701 268435456 1\n";
    std::fs::write(rig.config.state.join("demand.hour"), hour).unwrap();
    let mut handle = rig.start();
    let told = || control.demand.lock().unwrap().clone();
    wait("the hour", || !told().is_empty());
    let part = told().remove(0);
    assert_eq!((part.number, part.hour, part.beyond_bytes), (1_704_067_200, 473_352, 9));
    assert_eq!((&*part.files, &*part.bytes), (&[700, 701][..], &[1_234_567, 268_435_456][..]));
    handle.stop();
    assert_eq!(handle.demand().waiting, 1, "a control that cannot count has counted nothing");
    assert_eq!(told().len(), 1, "and is not asked again soon");
    control.demand_answered.store(503, Ordering::SeqCst);
    let mut handle = rig.start();
    wait("two more tries", || told().len() == 3);
    control.demand_answered.store(200, Ordering::SeqCst);
    wait("it to be counted", || handle.demand().told == 1);
    let parts = told();
    assert!(parts.iter().all(|told| *told == part), "{parts:?}");
    handle.stop();
    let names = std::fs::read_dir(&rig.config.state).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.starts_with("demand.1")).count(), 0);
}

#[test]
fn what_is_wrong_with_what_is_expected_is_reported_and_changes_nothing() {
    let files = [TestFile::new("a.mp4", 300_000)];
    for (told, wanted, objects) in [
        (None, None, 0),
        (Some(ITEMS_MAX), None, 1),
        (Some(ITEMS_MAX + 1), Some("is not understood: expected: at most 1024 items"), 0),
    ] {
        let (control, c) = TestControl::start("127.0.0.1:0");
        control.by_number.store(true, Ordering::SeqCst);
        control.publish(1, vec![version("film-1", &[], &files)], &files);
        // The first has the only file, which the test numbers 700; no other has one.
        let items = |count| {
            let item = |at| item_of(if at == 0 { 700 } else { 9 });
            Expected { state: 7, items: (0..count).map(item).collect() }
        };
        let told = told.map(items);
        *control.expected.lock().unwrap() = told;
        let mut rig = Rig::new(1, Some(c.address));
        rig.config.hot = Bytes::mib(1);
        let mut handle = rig.start();
        wait("a question", || !control.expected_asked.lock().unwrap().is_empty());
        let asked = control.reports.lock().unwrap().len() + 2;
        wait("a report", || asked <= control.reports.lock().unwrap().len());
        let errors = control.last_report().unwrap().errors;
        let errors: Vec<_> = errors.iter().map(|error| &*error.text).collect();
        match wanted {
            None => assert!(!errors.iter().any(|of| of.contains("expected")), "{errors:?}"),
            Some(wanted) => assert!(errors.iter().any(|of| of.contains(wanted)), "{errors:?}"),
        }
        assert_eq!(control.expected_asked.lock().unwrap()[..], ["bytes=1048576 known=0"]);
        assert_eq!((handle.fill().generation.0, handle.expected_objects()), (1, objects));
        handle.stop();
    }
}

/// An item with one file.
fn item_of(number: u32) -> ExpectedItem {
    let item = model::expected::ExpectedItem {
        version: "film-1".parse().unwrap(),
        files: NumberSet::from([number]),
        day_per_mib: Bytes(1),
    };
    expected_out(&[item]).remove(0)
}

/// Of two seconds: each tenth of one, on two cores that others use, too.
fn reports_per_second(control: &TestControl) -> f64 {
    let (began, seen) = (Instant::now(), control.reports.lock().unwrap().len());
    std::thread::sleep(Duration::from_secs(2));
    let reports = control.reports.lock().unwrap().len() - seen;
    f64::from(u32::try_from(reports).unwrap()) / began.elapsed().as_secs_f64()
}

/// An agent that hears seven prefixes. While it hangs it gives no part of them.
fn agent(socket: &Path, hangs: &Arc<AtomicBool>) {
    let (listener, hangs) = (UnixListener::bind(socket).unwrap(), Arc::clone(hangs));
    let answer = move |request| {
        let Request::RoutesPart { to, number, .. } = request else {
            assert_eq!(request, Request::Routes);
            let digest = Some("7-00000000000000000000000000000001".to_owned());
            let heard = Heard { digest, prefixes: 7, ..Heard::default() };
            return Answer::Routes(Box::new(heard));
        };
        while hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        Answer::RoutesPart(Box::new(Part { to, number, is_last: true, ..Part::default() }))
    };
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut line = String::new();
                BufReader::new(&stream).read_line(&mut line).unwrap();
                let asked: Line<Request> = serde_json::from_str(&line).unwrap();
                let line = Line { v: VERSION, said: answer(asked.said) };
                let text = serde_json::to_string(&line).unwrap();
                let _ = stream.write_all(format!("{text}\n").as_bytes());
            });
        }
    });
}

#[test]
fn reports_neither_wait_for_routes_nor_are_punished_for_them() {
    let (control, c) = TestControl::start("127.0.0.1:0");
    let mut rig = Rig::new(1, Some(c.address));
    let socket = rig.dir().join("agent.sock");
    let hangs = Arc::new(AtomicBool::new(true));
    agent(&socket, &hangs);
    rig.config.about.routes = Some(Routes::new(socket));
    control.parts_answered.store(500, Ordering::SeqCst);
    let _handle = rig.start();
    wait("a table", || {
        let heard = control.last_report().and_then(|report| report.routes);
        heard.is_some_and(|heard| heard.prefixes == 7 && heard.error.is_none())
    });
    let steady = |what: &str| {
        let reports = reports_per_second(&control);
        assert!(3.0 < reports, "{what}: {reports:.1} reports per second");
    };
    steady("the agent gives no part");
    assert_eq!(control.parts.lock().unwrap().len(), 0);
    hangs.store(false, Ordering::SeqCst);
    wait("parts that are refused", || 1 < control.parts.lock().unwrap().len());
    steady("control takes no part");
    control.parts_answered.store(200, Ordering::SeqCst);
    let refused = control.parts.lock().unwrap().len();
    wait("a part that is taken", || refused < control.parts.lock().unwrap().len());
}

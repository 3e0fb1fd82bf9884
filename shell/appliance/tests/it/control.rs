//! What is said to control and taken from it.

use std::sync::atomic::Ordering;

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
    assert!(first.load.serving && first.inventory.from == 0 && first.inventory.held.is_empty());
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
    std::thread::sleep(std::time::Duration::from_millis(300));
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

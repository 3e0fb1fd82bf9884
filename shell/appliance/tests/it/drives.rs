//! Drives that are missing, fail, come back, or hold something else than their index says.

use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use appliance::process::storage::{StartError, Storage};
use appliance::storage::drives::Drive;
use model::drives::{DriveIndex, DriveSet};
use model::id::ObjectId;
use model::limits::DRIVES_MAX;
use model::units::{Bytes, UnixSeconds};
use rustix::io::Errno;
use store::layout;
use store::marker::Reserve;

use upkeep::{Cause, Drive as _, at_once};

use crate::http::Server;
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

fn files(count: usize) -> Vec<TestFile> {
    (0..count).map(|i| TestFile::new(&format!("{i}.mp4"), 100_000 * i + 1)).collect()
}

pub(crate) struct World {
    pub(crate) control: Arc<TestControl>,
    pub(crate) origin: Arc<Origin>,
    origin_server: Server,
    pub(crate) rig: Rig,
    _control_server: Server,
}

/// An appliance with these files, filled or about to be.
pub(crate) fn world(drive_count: usize, files: &[TestFile]) -> World {
    let (origin, origin_server) = Origin::start();
    files.iter().for_each(|file| origin.put(&file.path, file.bytes.clone()));
    let (control, control_server) = TestControl::start("127.0.0.1:0");
    control.publish(1, vec![version("film-1", &[origin_server.address], files)], files);
    let rig = Rig::new(drive_count, Some(control_server.address));
    World { control, origin, origin_server, rig, _control_server: control_server }
}

impl World {
    /// Where the origin is.
    pub(crate) fn origin_address(&self) -> std::net::SocketAddr {
        self.origin_server.address
    }
}

/// What control knows, from all reports.
pub(crate) fn inventory(control: &TestControl) -> std::collections::BTreeSet<String> {
    let mut known = std::collections::BTreeSet::new();
    for report in control.reports.lock().unwrap().iter() {
        if report.inventory.from == 0 {
            known.clear();
        }
        known.extend(report.inventory.held.iter().cloned());
        report.inventory.gone.iter().for_each(|gone| {
            known.remove(gone);
        });
    }
    known
}

#[test]
fn what_the_manifest_drops_is_hidden_then_removed() {
    let files = files(6);
    let mut w = world(2, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let kept = &files[..2];
    w.control.publish(2, vec![version("film-2", &[w.origin_server.address], kept)], kept);
    w.rig.wait_for(kept);
    wait("the files to go", || w.rig.object_files(0).len() + w.rig.object_files(1).len() == 2);
    wait("small bytes to go", || w.rig.told.small.lock().unwrap().len() == 1);
    handle.stop();
    let left = w.rig.reopen(0).entries.len() + w.rig.reopen(1).entries.len();
    assert_eq!(left, 2, "the logs know it too");
}

#[test]
fn an_unwanted_part_is_removed() {
    let files = [TestFile::new("a.mp4", 8_000_000)];
    let mut w = world(1, &files);
    w.rig = w.rig.rate_max(2_000_000);
    let mut handle = w.rig.start();
    wait("a part", || 1_000_000 < handle.fill().fetched.0);
    handle.stop();
    assert_eq!(w.rig.parts(0), 1);
    w.control.publish(2, vec![], &[]);
    let _handle = w.rig.start();
    wait("the part to go", || w.rig.parts(0) == 0);
}

#[test]
fn a_directory_without_a_marker_is_refused_and_the_other_drive_goes_on() {
    let files = files(3);
    let mut w = world(2, &files);
    let unmounted = w.rig.dir().join("unmounted");
    std::fs::create_dir(&unmounted).unwrap();
    w.rig.config.drives[0].clone_from(&unmounted);
    let _handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(std::fs::read_dir(&unmounted).unwrap().count(), 0, "nothing was written to it");
    wait("the report of it", || {
        let drives = w.control.last_report().unwrap_or_default().drives;
        let reason = drives.first().and_then(|drive| drive.reason.clone()).unwrap_or_default();
        reason.contains("not mounted, mount it")
    });
}

#[test]
fn the_last_of_256_drives_is_used_as_the_first_would_be() {
    let files = files(3);
    let mut w = world(1, &files);
    (1..DRIVES_MAX).for_each(|_| w.rig.add_drive_for(&files));
    let drives = w.rig.config.drives.clone();
    w.rig.config.drives = drives[DRIVES_MAX - 1..].to_vec();
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    handle.stop();
    w.rig.config.drives = drives;
    let handle = w.rig.start();
    let last = DriveIndex(u8::MAX);
    let on_last = || w.rig.told.index.lock().unwrap().on(last, None).count();
    let reported = || w.control.last_report().unwrap_or_default().drives;
    wait("the report", || reported().len() == DRIVES_MAX && inventory(&w.control).len() == 3);
    assert_eq!((on_last(), reported()[DRIVES_MAX - 1].objects), (3, 3));
    handle.look_at_drives(DriveSet::from_iter([last]));
    wait("what is on it to be withheld", || inventory(&w.control).is_empty());
    let hung = || reported().iter().filter(|drive| drive.hung).count();
    wait("the report of it", || hung() == 1 && reported()[DRIVES_MAX - 1].hung);
    handle.look_at_drives(DriveSet::NONE);
    handle.set_aside(last, Cause::Refused("it is the last".to_owned()));
    wait("its objects to be filled elsewhere", || on_last() == 0);
    w.rig.wait_for(&files);
}

#[test]
fn an_inspection_tells_of_a_drive_what_a_report_does() {
    let files = files(2);
    let mut w = world(1, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let reported = || w.control.last_report().and_then(|report| report.drives.first().cloned());
    wait("the report", || reported().is_some_and(|drive| drive.objects == 2));
    let reported = reported().unwrap();
    handle.stop();
    let found = appliance::process::inspect::inspect(w.rig.drive(0)).unwrap();
    let json = serde_json::to_value(&found).unwrap();
    let reported = serde_json::to_value(reported).unwrap();
    for field in ["id", "path", "state", "capacity_bytes", "objects", "hung"] {
        assert_eq!((field, &json[field]), (field, &reported[field]));
    }
    assert_eq!((&json["kind"], json["units"].as_u64()), (&"drive".into(), Some(0)));
    assert!(found.text().contains("2 objects"), "{}", found.text());
}

#[test]
fn an_appliance_without_any_drive_does_not_start_and_says_why() {
    let mut rig = Rig::new(1, None);
    rig.config.drives = vec![rig.dir().join("nowhere"), rig.dir().to_owned()];
    let error =
        Storage::start(rig.config.clone(), Vec::new(), |_| {}, Rig::counters()).unwrap_err();
    assert!(matches!(&error, StartError::NoDrive(reasons) if reasons.len() == 2), "{error}");
    assert!(error.to_string().contains("nearcast-appliance format"), "{error}");
}

#[test]
fn a_drive_is_used_by_one_process_only() {
    let mut rig = Rig::new(1, None);
    let _handle = rig.start();
    let error =
        Storage::start(rig.config.clone(), Vec::new(), |_| {}, Rig::counters()).unwrap_err();
    assert!(error.to_string().contains("in use by another process"), "{error}");
}

#[test]
fn a_drive_set_aside_takes_only_its_own_objects_and_they_are_filled_elsewhere() {
    let files = files(8);
    let mut w = world(2, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let on_first = w.rig.object_files(0).len();
    assert!(0 < on_first && on_first < 8, "both drives hold some");
    w.origin.faults.status.store(503, Ordering::SeqCst);
    handle.set_aside(DriveIndex(0), Cause::Refused("a read failed: EIO".to_owned()));
    assert_eq!(w.rig.told.index.lock().unwrap().len(), 8 - on_first);
    wait("control to know what went", || inventory(&w.control).len() == 8 - on_first);
    w.origin.faults.status.store(0, Ordering::SeqCst);
    w.rig.wait_for(&files);
    let index = w.rig.told.index.lock().unwrap().clone();
    assert!(index.iter().all(|(_, extent)| extent.drive == DriveIndex(1)));
    wait("the report of it", || {
        let drives = w.control.last_report().unwrap_or_default().drives;
        drives[0].reason.as_deref() == Some("a read failed: EIO") && drives[1].reason.is_none()
    });
    let all: std::collections::BTreeSet<String> =
        files.iter().map(|f| f.id().to_string()).collect();
    wait("control to know what is where", || inventory(&w.control) == all);
    handle.stop();
    // Back again, it has copies of what the other drive holds by now: they go.
    let _handle = w.rig.start();
    w.rig.wait_for(&files);
    let total = || w.rig.object_files(0).len() + w.rig.object_files(1).len();
    wait("the spare copies to go", || total() == 8);
    w.rig.wait_for(&files);
}

#[test]
fn an_object_that_a_worker_cannot_read_is_looked_at_and_filled_again() {
    let files = files(3);
    let mut w = world(1, &files);
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    let failed = |n: usize, errno: Option<Errno>| {
        handle.read_failed(files[n].id(), &w.rig.extent_of(&files[n]), errno);
    };
    let sent = w.origin.sent();
    failed(0, Some(Errno::CANCELED));
    std::fs::remove_file(w.rig.path_of(&w.rig.extent_of(&files[1]))).unwrap();
    failed(1, Some(Errno::NOENT));
    let path = w.rig.path_of(&w.rig.extent_of(&files[2]));
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"wrong").unwrap();
    drop(file);
    failed(2, None);
    let lost = files[1].blocks.len().0 + files[2].blocks.len().0;
    wait("two to be filled again", || w.origin.sent() == sent + lost);
    w.rig.wait_for(&files);
    failed(2, Some(Errno::NXIO));
    assert!(handle.drives()[0].set_aside.as_deref().unwrap().contains("No such device"));
}

#[test]
fn a_torn_log_is_cut_and_a_damaged_one_is_made_anew_from_the_files() {
    let files = files(5);
    let mut w = world(1, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    handle.stop();
    let path = w.rig.drive(0).join("index/log");
    let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(&[0x55; 77]).unwrap();
    let loaded = w.rig.reopen(0);
    assert_eq!((loaded.entries.len(), loaded.torn.0, loaded.damage), (5, 77, None));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 5 * 128, "cut");

    let mut log = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    log.seek(SeekFrom::Start(200)).unwrap();
    log.write_all(&[0x55]).unwrap();
    let loaded = w.rig.reopen(0);
    assert_eq!(loaded.entries.len(), 5);
    assert!(loaded.damage.is_some());
    std::fs::remove_file(w.rig.drive(0).join("index/snapshot")).unwrap();
    let loaded = w.rig.reopen(0);
    assert_eq!(loaded.entries.len(), 5);
    assert!(loaded.damage.is_some());
    assert!(w.rig.reopen(0).damage.is_none(), "the new index is sound");
    let sent = w.origin.sent();
    let _handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(w.origin.sent(), sent, "nothing was fetched again");
}

#[test]
fn the_audit_fills_again_what_lost_its_file_and_adopts_what_the_index_lost() {
    let files = files(4);
    let mut w = world(1, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    handle.stop();
    let of = |file: &TestFile| {
        let id = file.id().to_string();
        w.rig.drive(0).join(format!("objects/{}/{id}", &id[..2]))
    };
    std::fs::remove_file(of(&files[3])).unwrap();
    // The index forgets all: a snapshot of nothing, as if the drive had lost its last writes.
    let (drive, _) = Drive::open(w.rig.drive(0), DriveIndex(0)).unwrap();
    let id = drive.marker().id;
    drop(drive);
    let empty =
        store::log::snapshot(id, store::log::Sequence(0), &std::collections::BTreeMap::new());
    std::fs::write(w.rig.drive(0).join("index/snapshot"), empty).unwrap();
    std::fs::write(w.rig.drive(0).join("index/log"), "").unwrap();
    // With the origin away, only adoption can bring back the three.
    w.origin.faults.status.store(503, Ordering::SeqCst);
    let _handle = w.rig.start();
    wait("the adoption", || w.rig.told.index.lock().unwrap().len() == 3);
    w.origin.faults.status.store(0, Ordering::SeqCst);
    w.rig.wait_for(&files);
}

#[test]
fn a_damaged_small_object_is_not_handed_out_but_filled_again() {
    let files = [TestFile::new("init.mp4", 1_000)];
    let mut w = world(1, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    handle.stop();
    let path = w.rig.object_files(0).remove(0);
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let _handle = w.rig.start();
    wait("the small object", || w.rig.told.small.lock().unwrap().len() == 1);
    let small = w.rig.told.small.lock().unwrap().clone();
    assert_eq!(small.values().next().map(|bytes| bytes.to_vec()), Some(files[0].bytes.to_vec()));
    w.rig.wait_for(&files);
}

/// Four at once find that there is room for one of them; without the reserve there is for all.
#[test]
fn the_reserve_is_never_written_whoever_asks_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let stat = rustix::fs::statvfs(folder.path()).unwrap();
    let beside = Bytes::mib(512).0 / stat.f_frsize;
    let percent = stat.f_bfree.saturating_sub(beside) * 100 / stat.f_blocks;
    let reserve = Reserve::percent(u8::try_from(percent.min(90)).unwrap()).unwrap();
    appliance::storage::format::format(folder.path(), reserve, UnixSeconds(1)).unwrap();
    let (drive, _) = Drive::open(folder.path(), DriveIndex(0)).unwrap();
    let len = Bytes(drive.space().free.0 / 3 * 2).align_up(Bytes::kib(4));
    let found: Vec<bool> = std::thread::scope(|scope| {
        let one = |n: u8| {
            let drive = &drive;
            scope.spawn(move || {
                at_once(drive.allocate(&layout::part_file(&ObjectId([n; 32])), len)).is_ok()
            })
        };
        let all: Vec<_> = (0..4).map(one).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(found.iter().filter(|found| **found).count(), 1, "{found:?} of {len} each");
    let taken = u8::try_from(found.iter().position(|found| *found).unwrap()).unwrap();
    let again = at_once(drive.allocate(&layout::part_file(&ObjectId([taken; 32])), len)).unwrap();
    assert!(again.1, "a part has its room already");
}

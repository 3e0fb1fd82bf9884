//! Drives that were set aside and are used again, without a restart.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use appliance::process::storage::StorageHandle;
use model::extent::DriveIndex;
use model::units::UnixSeconds;

use upkeep::Cause;

use crate::drives::{World, inventory, world};
use crate::rig::{TestFile, version, wait};

const FIRST: DriveIndex = DriveIndex(0);
const MARKER: &str = "nearcast-drive.toml";

fn files(count: usize) -> Vec<TestFile> {
    (0..count).map(|i| TestFile::new(&format!("{i}.mp4"), 100_000 * i + 1)).collect()
}

fn ids(files: &[TestFile]) -> BTreeSet<String> {
    files.iter().map(|file| file.id().to_string()).collect()
}

fn is_in_use(handle: &StorageHandle) -> bool {
    handle.drives()[0].set_aside.is_none()
}

/// What an operator's hand leaves behind.
fn touch(drive: &Path) {
    for mode in [0o600, 0o640] {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(drive.join(MARKER), mode).unwrap();
    }
}

/// True if control was told so in a report's errors.
fn was_told(w: &World, text: &str) -> bool {
    let errors = w.control.last_report().unwrap_or_default().errors;
    errors.iter().any(|error| error.text.contains(text))
}

/// Files that this process has open below a folder.
fn open_files(below: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.starts_with(below))).count()
}

#[test]
fn a_drive_that_was_looked_after_is_used_again_with_what_is_on_it() {
    let files = files(8);
    let mut w = world(2, &files);
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    let (drive, sent) = (w.rig.drive(0).to_owned(), w.origin.sent());
    let on_first = w.rig.object_files(0).len();
    w.origin.faults.status.store(503, Ordering::SeqCst);
    assert!(0 < open_files(&drive));
    handle.set_aside(FIRST, Cause::Refused("a read failed: EIO".to_owned()));
    wait("control to know what went", || inventory(&w.control).len() == 8 - on_first);
    wait("nobody to have it open", || open_files(&drive) == 0);
    assert!(!is_in_use(&handle));
    touch(&drive);
    wait("it to be used again", || is_in_use(&handle));
    w.rig.wait_for(&files);
    wait("control to know what is held", || inventory(&w.control) == ids(&files));
    assert_eq!((w.origin.sent(), handle.integrity().returns), (sent, 1), "nothing was fetched");
    wait("the report of it", || was_told(&w, "is in use again"));
}

#[test]
fn another_drive_in_its_place_is_used_when_it_is_formatted() {
    let files = files(6);
    let mut w = world(2, &files[..4]);
    let handle = w.rig.start();
    w.rig.wait_for(&files[..4]);
    let (drive, before) = (w.rig.drive(0).to_owned(), handle.drives()[0].id);
    handle.set_aside(FIRST, Cause::Refused("a read failed: EIO".to_owned()));
    w.rig.wait_for(&files[..4]);
    // At once: a drive that is half removed was touched, and may be found well.
    std::fs::rename(&drive, drive.with_extension("before")).unwrap();
    std::fs::create_dir(&drive).unwrap();
    assert!(!is_in_use(&handle));
    appliance::storage::format::format(&drive, "10%".parse().unwrap(), UnixSeconds(2)).unwrap();
    wait("it to be used", || is_in_use(&handle));
    assert!(before.is_some() && handle.drives()[0].id != before);
    let address = w.origin_address();
    files.iter().for_each(|file| w.origin.put(&file.path, file.bytes.clone()));
    w.control.publish(2, vec![version("film-2", &[address], &files)], &files);
    w.rig.wait_for(&files);
    assert!(!w.rig.object_files(0).is_empty(), "the emptier drive gets what is new");
}

#[test]
fn a_drive_that_is_still_bad_stays_set_aside_until_it_is_touched_again() {
    let files = files(4);
    let mut w = world(2, &files);
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    let drive = w.rig.drive(0).to_owned();
    handle.set_aside(FIRST, Cause::Refused("a read failed: EIO".to_owned()));
    std::fs::rename(drive.join("index"), drive.join("gone")).unwrap();
    touch(&drive);
    wait("it to be tried", || was_told(&w, "It stays set aside"));
    assert!(!is_in_use(&handle));
    std::fs::rename(drive.join("gone"), drive.join("index")).unwrap();
    touch(&drive);
    wait("it to be used again", || is_in_use(&handle));
    w.rig.wait_for(&files);
}

#[test]
fn a_drive_that_was_missing_at_the_start_is_used_once_it_is_there() {
    let files = files(4);
    let mut w = world(2, &files);
    let drive = w.rig.drive(0).to_owned();
    let elsewhere = drive.with_extension("elsewhere");
    std::fs::rename(&drive, &elsewhere).unwrap();
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    assert!(!is_in_use(&handle));
    assert!(w.rig.told.aside.lock().unwrap().contains(&FIRST), "workers let go of it");
    std::fs::rename(&elsewhere, &drive).unwrap();
    wait("it to be used", || is_in_use(&handle));
    assert!(w.rig.told.aside.lock().unwrap().is_empty(), "and have it again");
}

//! Bytes that change on a drive, places that cannot be read: found, set aside, filled again.

use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use appliance::process::storage::StorageHandle;
use appliance::storage::drives::Drive;
use model::extent::DriveIndex;
use model::object::block_hash;
use model::units::BitsPerSecond;
use rustix::io::Errno;
use upkeep::{Drive as _, Sample, at_once};

use crate::drives::{World, inventory, world};
use crate::rig::{Rig, TestFile, wait};

const FIRST: DriveIndex = DriveIndex(0);

fn files(count: usize) -> Vec<TestFile> {
    (0..count).map(|i| TestFile::new(&format!("{i}.mp4"), 300_000 * i + 1)).collect()
}

/// Flips a bit of the object's file.
fn rot(rig: &Rig, file: &TestFile, at: u64) {
    let path = rig.path_of(&rig.extent_of(file));
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

/// An appliance that holds these files, stopped.
fn filled(files: &[TestFile]) -> World {
    let mut w = world(1, files);
    let mut handle = w.rig.start();
    w.rig.wait_for(files);
    handle.stop();
    w
}

fn set_aside(handle: &StorageHandle) -> u64 {
    handle.integrity().objects_set_aside
}

#[test]
fn the_scrub_finds_what_rotted_and_it_is_filled_again() {
    let files = files(5);
    let mut w = filled(&files);
    // In the middle of a file, in the table of another, in a small one's only block.
    rot(&w.rig, &files[4], 700_000);
    rot(&w.rig, &files[2], 602_112);
    rot(&w.rig, &files[0], 0);
    let sent = w.origin.sent();
    w.rig.config.scrub_rate = Some(BitsPerSecond(8_000_000_000));
    let handle = w.rig.start();
    wait("all of the drive to be scrubbed", || handle.drives()[0].scrub.passes == 1);
    let lost: u64 = [0, 2, 4].map(|i: usize| files[i].blocks.len().0).iter().sum();
    wait("three to be filled again", || w.origin.sent() == sent + lost);
    w.rig.wait_for(&files);
    assert_eq!(set_aside(&handle), 3);
    wait("control to know of it", || {
        let errors = w.control.last_report().unwrap_or_default().errors;
        let said = |text: &str| errors.iter().any(|error| error.text.contains(text));
        said("has a wrong block: number 2; it is filled again")
            && said("is damaged: the block hashes")
    });
    let all = files.iter().map(|file| file.id().to_string()).collect();
    wait("control to know what is held", || inventory(&w.control) == all);
}

#[test]
fn a_scrub_goes_on_where_the_last_one_was() {
    let files = files(6);
    let mut w = filled(&files);
    let mut ids: Vec<_> = files.iter().map(TestFile::id).collect();
    ids.sort();
    let (drive, _) = Drive::open(w.rig.drive(0), FIRST).unwrap();
    at_once(drive.keep_scrubbed_to(ids[3])).unwrap();
    drop(drive);
    w.rig.config.scrub_rate = Some(BitsPerSecond(8_000_000_000));
    let mut handle = w.rig.start();
    wait("the end of the drive", || handle.drives()[0].scrub.passes == 1);
    assert_eq!(handle.integrity().scrubbed_objects, 2, "those behind the fourth");
    handle.stop();
    // A pass is over: the next one begins at the beginning.
    let handle = w.rig.start();
    wait("the whole drive", || handle.drives()[0].scrub.passes == 1);
    assert_eq!(handle.integrity().scrubbed_objects, 6);
}

#[test]
fn a_scrub_keeps_to_its_rate() {
    let files = [TestFile::new("a.mp4", 3_000_000)];
    let mut w = filled(&files);
    w.rig.config.scrub_rate = Some(BitsPerSecond(16_000_000));
    let began = std::time::Instant::now();
    let handle = w.rig.start();
    wait("the whole drive", || handle.drives()[0].scrub.passes == 1);
    let took = began.elapsed().as_millis();
    // 3 MB at 2 MB/s, of which a block is the burst.
    assert!((1_200..6_000).contains(&took), "{took} ms");
}

#[test]
fn a_sample_that_is_wrong_makes_its_object_go_and_a_right_one_does_not() {
    let files = [TestFile::new("a.mp4", 1_000_000), TestFile::new("b.mp4", 1_000_000)];
    let mut w = filled(&files);
    let handle = w.rig.start();
    let sample = |file: &TestFile, block: u64, sent: Option<&[u8]>| Sample {
        drive: FIRST,
        object: file.id(),
        object_len: file.blocks.len(),
        block,
        hash: sent.map(|bytes| block_hash(block, bytes, false)),
    };
    let (a, b) = (&files[0], &files[1]);
    handle.verify(sample(a, 1, Some(&a.bytes[262_144..524_288])));
    handle.verify(sample(a, 3, None));
    wait("two samples", || handle.integrity().samples == 2);
    assert_eq!((handle.integrity().samples_wrong, set_aside(&handle)), (0, 0));
    // Wrong on its way, right on the drive: looked at, and kept.
    handle.verify(sample(a, 1, Some(&b.bytes[262_144..524_288])));
    wait("the third", || handle.integrity().samples_wrong == 1);
    let sent = w.origin.sent();
    rot(&w.rig, b, 800_000);
    handle.verify(sample(b, 3, None));
    wait("it to be filled again", || w.origin.sent() == sent + 1_000_000);
    w.rig.wait_for(&files);
    assert_eq!((handle.integrity().samples_wrong, set_aside(&handle)), (2, 1));
}

#[test]
fn an_unreadable_object_goes_alone_and_the_fourth_in_an_hour_takes_its_drive() {
    let files = files(8);
    let mut w = world(2, &files);
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    let on_first = || -> Vec<TestFile> {
        let index = w.rig.told.index.lock().unwrap();
        let on = |file: &&TestFile| index.locate(&file.id()).is_some_and(|e| e.drive == FIRST);
        files.iter().filter(on).cloned().collect()
    };
    for n in 1..=3 {
        let bad = on_first().remove(0);
        let extent = w.rig.extent_of(&bad);
        // However many viewers meet it, it is one bad place.
        for errno in [Errno::NODATA, Errno::IO, Errno::NODATA] {
            handle.read_failed(bad.id(), &extent, Some(errno));
        }
        wait("it to be set aside", || set_aside(&handle) == n);
        w.rig.wait_for(&files);
        assert!(handle.drives().iter().all(|drive| drive.set_aside.is_none()));
    }
    let last = on_first().remove(0);
    handle.read_failed(last.id(), &w.rig.extent_of(&last), Some(Errno::IO));
    wait("the drive to be set aside", || handle.drives()[0].set_aside.is_some());
    let reason = handle.drives()[0].set_aside.clone().unwrap();
    assert!(reason.contains("too many objects are unreadable"), "{reason}");
    wait("workers to hear of it", || on_first().is_empty());
    w.rig.wait_for(&files);
    let index = w.rig.told.index.lock().unwrap().clone();
    assert!(index.iter().all(|(_, extent)| extent.drive == DriveIndex(1)));
}

#[test]
fn a_drive_that_lost_its_marker_and_its_files_is_gone_as_a_whole() {
    let files = files(6);
    let mut w = world(2, &files);
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    let index = w.rig.told.index.lock().unwrap().clone();
    let (object, extent) = index.iter().find(|(_, e)| e.drive == FIRST).unwrap();
    std::fs::remove_file(w.rig.path_of(extent)).unwrap();
    std::fs::remove_file(w.rig.drive(0).join("nearcast-drive.toml")).unwrap();
    handle.read_failed(*object, extent, Some(Errno::NOENT));
    wait("the drive to be set aside", || handle.drives()[0].set_aside.is_some());
    let reason = handle.drives()[0].set_aside.clone().unwrap();
    assert!(reason.contains("its marker is gone"), "{reason}");
    let told = || w.rig.told.index.lock().unwrap().clone();
    wait("workers to hear of it", || told().iter().all(|(_, extent)| extent.drive != FIRST));
    w.rig.wait_for(&files);
}

#[test]
fn a_drive_that_is_gone_is_found_without_viewers_and_all_of_it_leaves_the_inventory() {
    let files = files(16);
    let mut w = world(2, &files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    handle.stop();
    let on_first = w.rig.object_files(0);
    assert!(!on_first.is_empty() && on_first.len() < 16, "both drives hold some");
    // To open a socket is answered as by a device that is not there: ENXIO.
    std::fs::remove_file(&on_first[0]).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&on_first[0]).unwrap();
    w.origin.faults.status.store(503, Ordering::SeqCst);
    w.rig.config.scrub_rate = Some(BitsPerSecond(8_000_000_000));
    let handle = w.rig.start();
    wait("the drive to be set aside", || handle.drives()[0].set_aside.is_some());
    let began = std::time::Instant::now();
    wait("control to know what is left", || inventory(&w.control).len() == 16 - on_first.len());
    assert!(began.elapsed().as_millis() < 5_000, "{:?}", began.elapsed());
}

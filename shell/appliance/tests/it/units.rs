//! Small objects that share files: filled, served, evicted, found again and mended.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use appliance::process::config::Text;
use model::extent::Extent;
use model::units::{BitsPerSecond, Bytes};

use crate::drives::{World, world};
use crate::rig::{TestFile, version, wait};
use crate::siblings::Sibling;

/// Six segments of 300 to 305 KB and an init segment: a unit of four, and one of the rest.
fn files() -> Vec<TestFile> {
    let name = |i: usize| if i == 0 { "v/0".to_owned() } else { format!("v/{i}.m4s") };
    let len = |i: usize| if i == 0 { 700 } else { 299_000 + 1000 * i };
    (0..7).map(|i| TestFile::new(&name(i), len(i))).collect()
}

/// An appliance with one drive that packs into units of 1 MiB.
fn packing(files: &[TestFile]) -> World {
    let mut w = world(1, files);
    w.rig.config.fill.unit.0 = Bytes::mib(1);
    w
}

/// The same, filled and stopped.
fn filled(files: &[TestFile]) -> World {
    let mut w = packing(files);
    let mut handle = w.rig.start();
    w.rig.wait_for(files);
    handle.stop();
    w
}

fn units(w: &World) -> Vec<PathBuf> {
    let folder = fs::read_dir(w.rig.drive(0).join("units")).unwrap();
    let mut paths: Vec<PathBuf> = folder.map(|file| file.unwrap().path()).collect();
    paths.sort();
    paths
}

fn place(w: &World, file: &TestFile) -> Extent {
    w.rig.told.index.lock().unwrap().locate(&file.id()).cloned().unwrap()
}

fn flip(path: &PathBuf, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

#[test]
fn a_rendition_lies_in_units_and_is_there_after_a_restart_with_everybody_away() {
    let files = files();
    let mut w = filled(&files);
    assert_eq!((units(&w).len(), w.rig.object_files(0).len(), w.rig.parts(0)), (2, 0, 0));
    let total: u64 = files.iter().map(|file| file.blocks.len().0).sum();
    assert_eq!(w.origin.sent(), total, "each byte came once");
    assert_eq!(place(&w, &files[1]).offset, Bytes(4096), "behind the init segment");
    assert_eq!(w.rig.reopen(0).entries.len(), 7);
    w.rig.config.control = None;
    let _handle = w.rig.start();
    assert_eq!(w.rig.told.index.lock().unwrap().len(), 7, "loaded when start returns");
    wait("the small one in memory", || w.rig.told.small.lock().unwrap().len() == 1);
    w.rig.wait_for(&files);
    assert_eq!(w.origin.sent(), total);
}

/// Stopped in the third object of a unit of eight; the bytes that it had fetched by then.
fn stopped_in_a_unit() -> (World, Vec<TestFile>, u64) {
    let files: Vec<TestFile> =
        (0..8).map(|i| TestFile::new(&format!("{i}.m4s"), 5_000_000)).collect();
    let mut w = packing(&files);
    w.rig.config.fill.unit.0 = Bytes::mib(64);
    w.rig = w.rig.rate_max(20_000_000);
    let mut handle = w.rig.start();
    wait("a part", || 12_000_000 <= handle.fill().fetched.0);
    handle.stop();
    assert_eq!(w.rig.told.index.lock().unwrap().len(), 0, "nothing is visible before all is");
    assert_eq!(w.rig.parts(0), 1);
    w.rig.config.fill.rate_max = None;
    let fetched = handle.fill().fetched.0;
    (w, files, fetched)
}

#[test]
fn a_restart_in_the_middle_of_a_unit_fetches_nothing_again() {
    let (mut w, files, fetched) = stopped_in_a_unit();
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(fetched + handle.fill().fetched.0, 40_000_000, "no verified block came twice");
    assert_eq!((units(&w).len(), w.rig.parts(0)), (1, 0));
}

#[test]
fn a_unit_that_waits_for_a_master_in_the_middle_of_an_object_fetches_nothing_again() {
    let (mut w, files, fetched) = stopped_in_a_unit();
    // Of two objects all is there, and of the third some: nobody names a source for any of them.
    let waits = files[..3].iter().map(|file| (file.id(), Vec::new()));
    w.control.waiting.lock().unwrap().extend(waits);
    let handle = w.rig.start();
    let asked = || w.control.waiting.lock().unwrap()[&files[2].id()].len();
    wait("the third to be asked for twice", || 1 < asked());
    assert_eq!((handle.fill().fetched.0, w.rig.parts(0)), (0, 1));
    w.control.waiting.lock().unwrap().clear();
    w.rig.wait_for(&files);
    assert_eq!(fetched + handle.fill().fetched.0, 40_000_000, "no verified block came twice");
    assert_eq!((units(&w).len(), w.rig.parts(0)), (1, 0));
}

#[test]
fn a_unit_whose_only_sibling_dies_in_the_middle_of_an_object_fetches_nothing_again() {
    let files: Vec<TestFile> =
        (0..8).map(|i| TestFile::new(&format!("{i}.m4s"), 5_000_000)).collect();
    let mut sibling = Sibling::of_site("a2", &files, &[], |config| {
        config.peer.rate_max = Some(Text(BitsPerSecond(80_000_000)));
    });
    let mut w = packing(&files);
    w.rig.config.fill.unit.0 = Bytes::mib(64);
    let told = files.iter().map(|file| (file.id(), vec![sibling.source(file)]));
    *w.control.sources.lock().unwrap() = told.collect();
    w.control.only.store(true, Ordering::SeqCst);
    let handle = w.rig.start();
    wait("a part", || 12_000_000 <= handle.fill().fetched.0);
    sibling.handle.stop();
    // Control sees it, and has another fetch what is missing first.
    let waits = files.iter().map(|file| (file.id(), Vec::new()));
    w.control.waiting.lock().unwrap().extend(waits);
    let asked = || w.control.waiting.lock().unwrap().values().any(|said| 1 < said.len());
    wait("it to be asked for again", asked);
    assert_eq!((units(&w).len(), w.rig.parts(0)), (0, 1), "the part stays as it is");
    w.control.sources.lock().unwrap().clear();
    w.control.only.store(false, Ordering::SeqCst);
    w.control.waiting.lock().unwrap().clear();
    w.rig.wait_for(&files);
    assert_eq!(handle.fill().fetched.0, 40_000_000, "no verified block came twice");
    assert_eq!((units(&w).len(), w.rig.parts(0)), (1, 0));
}

#[test]
fn what_one_object_lacks_does_not_keep_the_others_back() {
    let files = files();
    let mut w = packing(&files);
    // What is in the origin under this name is something else.
    w.origin.put("v/2.m4s", Arc::new(vec![0; 301_000]));
    let _handle = w.rig.start();
    let others: Vec<TestFile> = files.iter().filter(|f| f.path != "v/2.m4s").cloned().collect();
    w.rig.wait_for(&others);
    w.origin.put("v/2.m4s", Arc::clone(&files[2].bytes));
    w.rig.wait_for(&files);
    wait("parts to go", || w.rig.parts(0) == 0);
}

#[test]
fn a_unit_goes_as_a_whole_and_what_little_is_wanted_is_copied_first() {
    let files = files();
    let mut w = packing(&files);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let publish = |w: &World, generation, kept: &[TestFile]| {
        let version = version(&format!("film-{generation}"), &[w.origin_address()], kept);
        w.control.publish(generation, vec![version], kept);
    };
    let before = units(&w);
    // Of four 300 KB in the first unit two stay: most of it. Its file stays.
    let (kept, sent) = ([files[0].clone(), files[1].clone(), files[2].clone()], w.origin.sent());
    publish(&w, 2, &kept);
    w.rig.wait_for(&kept);
    wait("the second unit to go", || units(&w).len() == 1);
    assert!(before.contains(&units(&w)[0]));
    let file = place(&w, &files[1]).file;
    // Of these one is left: it is copied, and nobody misses it meanwhile.
    let kept = [files[1].clone()];
    publish(&w, 3, &kept);
    w.rig.wait_for(&kept);
    wait("what is left to be copied", || place(&w, &files[1]).file != file);
    wait("the unit to go", || units(&w).is_empty());
    w.rig.wait_for(&kept);
    assert_eq!(w.origin.sent(), sent, "nothing was fetched for it");
    assert_eq!(w.rig.object_files(0).len(), 1);
    handle.stop();
    assert_eq!(w.rig.reopen(0).entries.len(), 1, "the log knows it too");
}

#[test]
fn a_wrong_block_in_a_unit_is_found_and_only_its_object_filled_again() {
    let files = files();
    let mut w = filled(&files);
    let extent = place(&w, &files[2]);
    let path = w.rig.path_of(&extent);
    flip(&path, extent.offset.0 + 270_000);
    let text = appliance::process::inspect::inspect(&path).unwrap().text();
    assert!(text.contains("wrong blocks: [1]") && text.contains(": unit "), "{text}");
    let sent = w.origin.sent();
    w.rig.config.scrub_rate = Some(BitsPerSecond(8_000_000_000));
    let handle = w.rig.start();
    wait("it to be filled again", || w.origin.sent() == sent + files[2].blocks.len().0);
    wait("it to lie elsewhere", || {
        let index = w.rig.told.index.lock().unwrap();
        index.locate(&files[2].id()).is_some_and(|now| *now != extent)
    });
    assert_eq!(handle.integrity().objects_set_aside, 1);
    assert!(path.exists(), "most of the unit is held");
}

#[test]
fn a_unit_whose_directory_is_damaged_says_so_and_is_filled_again() {
    let files = files();
    let mut w = filled(&files);
    let path = w.rig.path_of(&place(&w, &files[1]));
    let len = fs::metadata(&path).unwrap().len();
    flip(&path, len - 8192 + 40);
    let error = appliance::process::inspect::inspect(&path).unwrap_err().to_string();
    assert!(error.contains("the unit's directory is damaged"), "{error}");
    flip(&path, len - 4096 + 30);
    let error = appliance::process::inspect::inspect(&path).unwrap_err().to_string();
    assert!(error.contains("the unit's footer is damaged"), "{error}");
    let sent = w.origin.sent();
    let handle = w.rig.start();
    wait("the audit to see it", || handle.integrity().objects_set_aside == 4);
    let again: u64 = files[..4].iter().map(|file| file.blocks.len().0).sum();
    wait("what was in it to be fetched", || w.origin.sent() == sent + again);
    w.rig.wait_for(&files);
    assert_eq!(units(&w).len(), 2, "the damaged one is gone");
    for path in units(&w) {
        assert!(appliance::process::inspect::inspect(&path).unwrap().is_sound());
    }
}

#[test]
fn an_index_that_is_lost_is_made_anew_from_what_units_say() {
    let files = files();
    let mut w = filled(&files);
    let sent = w.origin.sent();
    fs::remove_file(w.rig.drive(0).join("index/snapshot")).unwrap();
    let _handle = w.rig.start();
    assert_eq!(w.rig.told.index.lock().unwrap().len(), 7, "loaded when start returns");
    w.rig.wait_for(&files);
    assert_eq!(w.origin.sent(), sent);
}

#[test]
fn without_a_manifest_everything_is_kept() {
    let files = files();
    let mut w = filled(&files);
    fs::remove_file(w.rig.config.state.join("manifest.signed")).unwrap();
    w.rig.config.control = None;
    let handle = w.rig.start();
    wait("the audit", || handle.drives()[0].units.count == 2);
    w.rig.wait_for(&files);
    assert_eq!((units(&w).len(), handle.drives()[0].units.dead), (2, Bytes::ZERO));
}

#[test]
fn a_unit_that_the_log_does_not_know_or_knows_in_part_is_taken_up_without_fetching() {
    let files = files();
    let log = |w: &World| w.rig.drive(0).join("index/log");
    // The batch of the last unit loses its last record, or all; that of the first all but one.
    for len in [6 * 128, 4 * 128, 128] {
        let mut w = filled(&files);
        let sent = w.origin.sent();
        assert_eq!(fs::metadata(log(&w)).unwrap().len(), 7 * 128);
        let file = fs::OpenOptions::new().write(true).open(log(&w)).unwrap();
        file.set_len(len).unwrap();
        let loaded = w.rig.reopen(0);
        let found = loaded.entries.len();
        assert!([0, 3, 4].contains(&found), "a batch counts whole or not: {found}");
        let _handle = w.rig.start();
        w.rig.wait_for(&files);
        assert_eq!((w.origin.sent(), units(&w).len()), (sent, 2), "{len}");
    }
}

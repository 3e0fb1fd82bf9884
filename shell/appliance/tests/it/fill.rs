//! From manifest to visible objects, whatever the sources do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::limits::SMALL_OBJECT_MAX;

use crate::http::Server;
use crate::origin::Origin;
use crate::rig::{Rig, TestControl, TestFile, version, wait};

/// Every kind of end: empty, one byte, a page, a block, a block and a bit, many blocks.
fn files() -> Vec<TestFile> {
    let lens = [0, 1, 4096, 65_536, 65_537, 262_144, 262_145, 3_000_000];
    lens.iter().map(|len| TestFile::new(&format!("v/{len} é.mp4"), *len)).collect()
}

fn offer(origin: &Origin, files: &[TestFile]) {
    for file in files {
        let path = file.path.replace(' ', "%20").replace('é', "%C3%A9");
        origin.put(&path, Arc::clone(&file.bytes));
    }
}

fn start(files: &[TestFile]) -> (Arc<Origin>, Server, Arc<TestControl>, Server) {
    let (origin, origin_server) = Origin::start();
    offer(&origin, files);
    let (control, control_server) = TestControl::start("127.0.0.1:0");
    control.publish(1, vec![version("film-1", &[origin_server.address], files)], files);
    (origin, origin_server, control, control_server)
}

#[test]
fn a_manifest_becomes_visible_objects_and_small_ones_come_with_their_bytes() {
    let files = files();
    let (origin, _o, control, c) = start(&files);
    let mut rig = Rig::new(2, Some(c.address));
    let mut handle = rig.start();
    rig.wait_for(&files);
    let small = rig.told.small.lock().unwrap().clone();
    for file in &files {
        let is_small = file.blocks.len() <= SMALL_OBJECT_MAX;
        let bytes = small.get(&file.id()).map(|bytes| bytes.to_vec());
        assert_eq!(bytes, is_small.then(|| file.bytes.to_vec()), "{}", file.path);
    }
    let total: u64 = files.iter().map(|file| file.blocks.len().0).sum();
    assert_eq!(origin.sent(), total, "each byte came once");
    wait("a report that says so", || {
        let report = control.last_report().unwrap_or_default();
        report.fill.objects_held == 8 && report.fill.bytes_held == total
    });
    assert!(rig.object_files(0).len().abs_diff(rig.object_files(1).len()) <= 4);
    assert_eq!(rig.parts(0) + rig.parts(1), 0);
    handle.stop();
    assert_eq!(rig.reopen(0).entries.len() + rig.reopen(1).entries.len(), 8);
}

#[test]
fn after_a_restart_everything_is_served_at_once_even_with_control_and_origin_away() {
    let files = files();
    let (_origin, o, _control, c) = start(&files);
    let mut rig = Rig::new(2, Some(c.address));
    let mut handle = rig.start();
    rig.wait_for(&files);
    handle.stop();
    drop((o, c));
    let _handle = rig.start();
    assert_eq!(rig.told.index.lock().unwrap().len(), files.len(), "loaded when start returns");
    assert!(rig.told.manifest.lock().unwrap().is_some(), "the last manifest is in force");
    wait("small objects in memory", || rig.told.small.lock().unwrap().len() == 4);
    rig.wait_for(&files);
}

#[test]
fn a_connection_that_is_cut_again_and_again_costs_no_verified_block() {
    let files = [TestFile::new("v.mp4", 5_000_000)];
    let (origin, _o, _control, c) = start(&files);
    origin.faults.cut_after.store(700_000, Ordering::SeqCst);
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    rig.wait_for(&files);
    // Each cut loses less than one block of 262,144: two of 700,000 are whole.
    assert_eq!(handle.fill().fetched.0, 5_000_000, "no block was used twice");
    assert!(origin.sent() < 7_500_000, "{} sent", origin.sent());
}

#[test]
fn a_restart_in_the_middle_fetches_nothing_again() {
    let files = [TestFile::new("a.mp4", 40_000_000), TestFile::new("b.mp4", 40_000_000)];
    let (origin, _o, _control, c) = start(&files);
    let mut rig = Rig::new(2, Some(c.address)).rate_max(40_000_000);
    let mut handle = rig.start();
    wait("a part", || 30_000_000 <= handle.fill().fetched.0);
    handle.stop();
    let fetched = handle.fill().fetched.0;
    assert_eq!(rig.told.index.lock().unwrap().len(), 0, "nothing is visible before it is whole");
    rig.config.fill.rate_max = None;
    let handle = rig.start();
    rig.wait_for(&files);
    assert_eq!(fetched + handle.fill().fetched.0, 80_000_000, "no verified block came twice");
    // What was in the buffers of two connections is lost: at most one request each.
    assert!(origin.sent() * 100 <= 80_000_000 * 105, "{} sent", origin.sent());
}

#[test]
fn a_fill_that_is_interrupted_ten_times_fetches_hardly_more_than_its_bytes() {
    let files = [0, 1, 2, 3].map(|i| TestFile::new(&format!("{i}.mp4"), 30_000_000));
    let (origin, _o, _control, c) = start(&files);
    // From a source of this speed: one that is faster has more on its way when it is cut.
    origin.faults.rate.store(10_000_000, Ordering::SeqCst);
    let mut rig = Rig::new(2, Some(c.address));
    let mut fetched = 0;
    for n in 1..=10 {
        let mut handle = rig.start();
        wait("some more", || n * 11_000_000 <= fetched + handle.fill().fetched.0);
        handle.stop();
        fetched += handle.fill().fetched.0;
    }
    assert!(rig.told.index.lock().unwrap().len() < files.len(), "it was interrupted indeed");
    let handle = rig.start();
    rig.wait_for(&files);
    fetched += handle.fill().fetched.0;
    assert_eq!(fetched, 120_000_000, "no verified block came twice");
    assert!(origin.sent() * 100 <= 120_000_000 * 105, "{} sent", origin.sent());
}

#[test]
fn a_half_filled_object_goes_on_with_control_away() {
    let files = [TestFile::new("a.mp4", 8_000_000)];
    let (_origin, _o, _control, c) = start(&files);
    let mut rig = Rig::new(1, Some(c.address)).rate_max(8_000_000);
    let mut handle = rig.start();
    wait("a part", || 2_000_000 <= handle.fill().fetched.0);
    handle.stop();
    drop(c);
    rig.config.fill.rate_max = None;
    let _handle = rig.start();
    rig.wait_for(&files);
}

#[test]
fn wrong_bytes_are_fetched_from_the_next_source_and_never_become_visible() {
    let files = [TestFile::new("v.mp4", 2_000_000)];
    let (bad, b) = Origin::start();
    let (good, g) = Origin::start();
    offer(&bad, &files);
    offer(&good, &files);
    bad.faults.wrong_byte.store(1_000_000, Ordering::SeqCst);
    let (control, c) = TestControl::start("127.0.0.1:0");
    control.publish(1, vec![version("film-1", &[b.address, g.address], &files)], &files);
    let mut rig = Rig::new(1, Some(c.address));
    let _handle = rig.start();
    rig.wait_for(&files);
    assert!(0 < bad.sent() && 0 < good.sent());
}

#[test]
fn an_object_that_is_wrong_everywhere_is_reported_and_the_others_go_on() {
    let files = [TestFile::new("bad.mp4", 600_000), TestFile::new("good.mp4", 400_000)];
    let (origin, _o, control, c) = start(&files);
    origin.faults.wrong_byte.store(500_000, Ordering::SeqCst);
    let mut rig = Rig::new(1, Some(c.address));
    let _handle = rig.start();
    rig.wait_for(&files[1..]);
    wait("the report of it", || {
        let report = control.last_report().unwrap_or_default();
        let said = |e: &wire::v1::report::ReportedError| {
            e.room == "fill" && e.text.contains("bad.mp4") && e.text.contains("block 1")
        };
        report.errors.iter().any(said)
    });
    origin.faults.wrong_byte.store(u64::MAX, Ordering::SeqCst);
    rig.wait_for(&files);
}

#[test]
fn a_source_that_ignores_ranges_is_used_as_far_as_it_can_be() {
    let files = [TestFile::new("v.mp4", 20_000_000), TestFile::new("w.mp4", 300_000)];
    let (origin, _o, _control, c) = start(&files);
    origin.faults.ignore_range.store(true, Ordering::SeqCst);
    let mut rig = Rig::new(1, Some(c.address));
    let handle = rig.start();
    rig.wait_for(&files);
    assert_eq!(handle.fill().fetched.0, 20_300_000, "one answer was enough for each");
    assert_eq!(origin.requests.load(Ordering::SeqCst), 2);
}

#[test]
fn the_ranges_of_an_object_share_a_connection() {
    let files = [TestFile::new("v.mp4", 40_000_000)];
    let (origin, o, _control, c) = start(&files);
    let mut rig = Rig::new(1, Some(c.address));
    let _handle = rig.start();
    rig.wait_for(&files);
    let requests = origin.requests.load(Ordering::SeqCst);
    assert_eq!((requests, o.connections.load(Ordering::SeqCst)), (39, 1));
}

#[test]
fn a_source_that_fails_is_tried_again_until_it_works() {
    let files = [TestFile::new("v.mp4", 300_000)];
    let (origin, _o, control, c) = start(&files);
    origin.faults.status.store(503, Ordering::SeqCst);
    let mut rig = Rig::new(1, Some(c.address));
    let _handle = rig.start();
    wait("the report of it", || {
        let errors = control.last_report().unwrap_or_default().errors;
        errors.iter().any(|error| error.text.contains("status 503"))
    });
    origin.faults.status.store(0, Ordering::SeqCst);
    rig.wait_for(&files);
}

#[test]
fn sources_behind_tls_need_an_authority_that_is_trusted() {
    let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = vec![key.cert.der().clone()];
    let secret = rustls::pki_types::PrivateKeyDer::try_from(key.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, secret.unwrap())
        .unwrap();
    let (origin, o) = Origin::start_tls(Arc::new(config));
    let files = [TestFile::new("v.mp4", 3_000_000)];
    offer(&origin, &files);
    let (control, c) = TestControl::start("127.0.0.1:0");
    let mut wanted = version("film-1", &[o.address], &files);
    wanted.sources = vec![format!("https://{}/film/", o.address)];
    control.publish(1, vec![wanted], &files);
    let mut rig = Rig::new(1, Some(c.address));
    let mut handle = rig.start();
    wait("the report of it", || {
        let errors = control.last_report().unwrap_or_default().errors;
        errors.iter().any(|error| error.text.contains("UnknownIssuer"))
    });
    handle.stop();
    let trust = rig.dir().join("ca.pem");
    std::fs::write(&trust, key.cert.pem()).unwrap();
    rig.config.fill.trust = Some(trust);
    let _handle = rig.start();
    rig.wait_for(&files);
}

#[test]
fn fill_keeps_to_its_rate() {
    let files = [TestFile::new("a.mp4", 4_000_000), TestFile::new("b.mp4", 4_000_000)];
    let (_origin, _o, _control, c) = start(&files);
    let mut rig = Rig::new(1, Some(c.address)).rate_max(4_000_000);
    let began = std::time::Instant::now();
    let _handle = rig.start();
    rig.wait_for(&files);
    // 8 MB at 4 MB/s, of which 1 MiB is the burst.
    let took = began.elapsed().as_millis();
    assert!((1_700..6_000).contains(&took), "{took} ms");
}

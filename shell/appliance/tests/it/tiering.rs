//! Objects that change drives: while they are watched, at a power cut, when it comes to nothing.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use appliance::counters::{DriveSlice, ServeCounters, TierCounters};
use appliance::process::storage::StorageHandle;
use appliance::serving::event_loop::{self, Finding, Setup};
use appliance::serving::listen::Listener;
use appliance::serving::mailbox::{Letter, Sender, mailbox};
use appliance::storage::gate::Rules;
use appliance::storage::tiering::{Config, LINGER};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use fill::tier::Class;
use iosched::drive::{Limit, Policy};
use model::drives::{DriveIndex, DriveSet};
use model::expected::{ExpectedItem, FirstBlocks};
use model::id::ObjectId;
use model::limits::{DRIVES_MAX, OBJECT_LEN_MAX};
use model::manifest::{File, Manifest, TokenKey};
use model::object::BLOCK_LEN;
use model::units::{Bytes, Nanos, UnixSeconds};
use model::update::Update;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use rustix::io::Errno;
use store::layout;
use tls::Acceptor;
use upkeep::Sample;
use wire::convert::expected_out;
use wire::v1::expected::Expected;
use worker::PaceConfig;

use upkeep::Cause;

use crate::drives::{World, world};
use crate::rig::{Rig, TestFile, version, wait};

const FAST: DriveIndex = DriveIndex(0);
const BULK: DriveIndex = DriveIndex(1);
const DAILY: Bytes = Bytes::mib(1000);
const NEVER: Nanos = Nanos::seconds(3600);

fn files(len: usize) -> Vec<TestFile> {
    (0..4).map(|i| TestFile::new(&format!("{i}.mp4"), len + i)).collect()
}

fn tiering(linger: Nanos) -> Option<Config> {
    let (classes, every) = (vec![Class::Fast, Class::Bulk], Nanos::millis(50));
    Some(Config { classes, daily_max: DAILY, sample: BLOCK_LEN, every, linger })
}

/// Segments of a rendition: one unit of three, and one of the rest.
fn segments() -> Vec<TestFile> {
    (0..6).map(|i| TestFile::new(&format!("v/{i}.m4s"), 300_000 + 1000 * i)).collect()
}

/// The files that share one with this.
fn unit_of<'a>(rig: &Rig, files: &'a [TestFile], file: &TestFile) -> Vec<&'a TestFile> {
    let extent = |file: &TestFile| rig.told.index.lock().unwrap().locate(&file.id()).cloned();
    let place = |file: &TestFile| extent(file).map(|extent| (extent.drive, extent.file));
    let there = place(file);
    assert!(there.as_ref().is_some_and(|(_, file)| file.0.starts_with("units/")));
    files.iter().filter(|other| place(other) == there).collect()
}

fn units(rig: &Rig, drive: usize) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(rig.drive(drive).join("units")).unwrap();
    folder.map(|file| file.unwrap().path()).collect()
}

/// A world of two drives: all these files lie on the second, and nothing runs.
fn on_bulk(files: &[TestFile], linger: Nanos) -> World {
    let mut w = world(2, files);
    let drives = std::mem::take(&mut w.rig.config.drives);
    w.rig.config.drives = vec![drives[BULK.as_usize()].clone()];
    w.rig.config.fill.unit.0 = Bytes::mib(1);
    let mut handle = w.rig.start();
    w.rig.wait_for(files);
    handle.stop();
    w.rig.config.drives = drives;
    w.rig.config.tiering = tiering(linger);
    w
}

/// The same, and it runs; one of the files.
fn filled(files: &[TestFile], linger: Nanos) -> (World, StorageHandle, TestFile) {
    let mut w = on_bulk(files, linger);
    let handle = w.rig.start();
    w.rig.wait_for(files);
    (w, handle, files[0].clone())
}

/// What came to fast drives.
fn moved_up(handle: &StorageHandle) -> Bytes {
    Bytes(handle.tiering().unwrap().counters.up)
}

/// Where workers would look for it.
fn drive_of(rig: &Rig, file: &TestFile) -> Option<DriveIndex> {
    rig.told.index.lock().unwrap().locate(&file.id()).map(|extent| extent.drive)
}

/// Viewers were sent so many blocks of it.
fn watch(handle: &StorageHandle, file: &TestFile, blocks: usize) {
    let (object, object_len) = (file.id(), file.blocks.len());
    let sample = Sample { drive: BULK, object, object_len, block: 0, hash: None };
    (0..blocks).for_each(|_| handle.verify(sample));
}

fn room(file: &TestFile) -> Bytes {
    layout::sections(file.blocks.len()).file_len
}

fn copies(rig: &Rig) -> usize {
    rig.object_files(0).len() + rig.object_files(1).len()
}

fn is_on(rig: &Rig, drive: DriveIndex, file: &TestFile) -> bool {
    rig.drive(drive.as_usize()).join(&*layout::object_file(&file.id()).0).exists()
}

/// A worker that serves what the storage side tells it of.
struct Serving {
    at: SocketAddr,
    sender: Sender,
    thread: JoinHandle<Result<(), uring::RingError>>,
    samples: Arc<Mutex<Vec<Sample>>>,
    faults: Arc<AtomicU64>,
    counters: Arc<ServeCounters>,
}

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn serve(rig: &mut Rig) -> Serving {
    serve_with(rig, 0)
}

/// The same with so many blocks in memory.
fn serve_with(rig: &mut Rig, hot_blocks: u16) -> Serving {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let private = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let acceptor = Acceptor::new(vec![made.cert.der().clone()], private.unwrap()).unwrap();
    let (sender, letters) = mailbox().unwrap();
    let (samples, faults): (Arc<Mutex<Vec<Sample>>>, Arc<AtomicU64>) = Default::default();
    let (sampled, failed) = (samples.clone(), faults.clone());
    let counters = Arc::new(ServeCounters::default());
    let directory = |path: &PathBuf| Some(Arc::new(std::fs::File::open(path).unwrap().into()));
    let setup = Setup {
        config: worker::Config { hot_blocks, ..worker_config() },
        acceptor,
        drives: rig.config.drives.iter().map(directory).collect(),
        blocking: DriveSet::NONE,
        mailbox: letters,
        counters: counters.clone(),
        slices: (0..2).map(|_| DriveSlice::default()).collect(),
        log: None,
        views: None,
        report: Box::new(move |finding| match finding {
            Finding::Fault(..) => {
                failed.fetch_add(1, Ordering::SeqCst);
            }
            Finding::Sample(sample) => sampled.lock().unwrap().push(sample),
            Finding::Incident(_) => {}
        }),
        ring_is_made: || {},
        unsent_max: None,
        clients: None,
        ablation: appliance::serving::ablation::Ablation::default(),
    };
    let thread = std::thread::spawn(move || event_loop::run(setup));
    let told = sender.clone();
    rig.also = Some(Arc::new(move |update: &Update| {
        let update = if let Update::Manifest(manifest) = update {
            Update::Manifest(with_key(manifest))
        } else {
            update.clone()
        };
        told.send(Letter::Update(update));
    }));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = socket.local_addr().unwrap();
    sender.send(Letter::Listen(vec![Listener { socket: socket.into(), versions: None }]));
    Serving { at, sender, thread, samples, faults, counters }
}

fn with_key(manifest: &Manifest) -> Arc<Manifest> {
    let public_key = key().public_key().as_ref().try_into().unwrap();
    let token_keys = vec![TokenKey { kid: "k1".to_owned(), public_key }];
    Arc::new(Manifest { token_keys, ..manifest.clone() })
}

fn worker_config() -> worker::Config {
    worker::Config {
        connections_max: 64,
        handshakes_max: 16,
        transfers_max: 16,
        buffers: 8,
        hot_blocks: 0,
        file_slots: 32,
        drives: 2,
        drive_depth: 8,
        drive_opens: 4,
        read_targets: [Nanos::millis(5); DRIVES_MAX],
        hang_after: Nanos::seconds(5),
        reset_after: Nanos::seconds(10),
        head_len_max: 8192,
        request_timeout: Nanos::seconds(10),
        idle_timeout: Nanos::seconds(30),
        token_leeway: Nanos::seconds(0),
        progress_timeout: Nanos::seconds(30),
        verify_every: 1,
        log_requests: false,
        views_max: 0,
        pacing: PaceConfig::OFF,
        incidents: None,
    }
}

/// Asks for a file on one connection, again and again until all is over; how often it came.
fn play(at: SocketAddr, file: &TestFile, over: &AtomicBool) -> u64 {
    let expires = UnixSeconds(appliance::clock::wall().0 + 1000);
    let scope = Scope::whole("film-1").unwrap();
    let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
    let signature = key().sign(SigningInput::new("k1", grant).as_bytes()).as_ref().try_into();
    let token = assemble("k1", grant, &signature.unwrap());
    let request = format!("GET /t/{token}/film-1/{} HTTP/1.1\r\nHost: a\r\n\r\n", file.path);
    let mut stream = TcpStream::connect(at).unwrap();
    let mut times = 0;
    loop {
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
        let mut body = vec![0; file.bytes.len()];
        stream.read_exact(&mut body).unwrap();
        assert!(body == **file.bytes, "every byte is right");
        times += 1;
        if over.load(Ordering::SeqCst) {
            return times;
        }
    }
}

/// What control expects of a file, by its number.
fn expect(w: &World, files: &[TestFile], file: &TestFile) {
    w.control.by_number.store(true, Ordering::SeqCst);
    w.control.publish(2, vec![version("film-1", &[w.origin_address()], files)], files);
    let ids: BTreeSet<ObjectId> = files.iter().map(TestFile::id).collect();
    let number = 700 + u32::try_from(ids.iter().position(|id| *id == file.id()).unwrap()).unwrap();
    let item = |version: &str, number| ExpectedItem {
        version: version.parse().unwrap(),
        files: [number].into(),
        day_per_mib: Bytes::mib(10),
    };
    // The first two are of no version that is here, and of no file.
    let items = [item("film-2", number), item("film-1", 9), item("film-1", number)];
    let told = Expected { state: 7, items: expected_out(&items) };
    *w.control.expected.lock().unwrap() = Some(told);
}

#[test]
fn what_is_expected_comes_to_the_fast_drive_and_into_memory_before_it_is_watched() {
    let files = files(3_000_000);
    let mut w = on_bulk(&files, LINGER);
    let file = &files[2];
    expect(&w, &files, file);
    // Less than the file has.
    let blocks = 4;
    w.rig.config.hot = Bytes(u64::from(blocks) * BLOCK_LEN.0);
    let serving = serve_with(&mut w.rig, blocks);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    wait("the move", || moved_up(&handle) == room(file));
    assert_eq!((drive_of(&w.rig, file), copies(&w.rig)), (Some(FAST), 4), "it alone");
    assert_eq!((handle.expected_objects(), handle.tiering().unwrap().heat_objects), (1, 1));
    let asked = w.control.expected_asked.lock().unwrap().clone();
    let fast = handle.drives()[0].capacity.0;
    assert_eq!(asked, [format!("bytes={fast} known=0")], "and not again for long");

    let first = w.rig.told.expected.lock().unwrap().clone();
    assert_eq!(first, [FirstBlocks { object: file.id(), count: u64::from(blocks) }]);
    serving.sender.send(Letter::Expected(first.into()));
    let counts = &serving.counters.counts;
    for hot_chunks in [0, u64::from(blocks)] {
        play(serving.at, file, &AtomicBool::new(true));
        wait("blocks from memory", || {
            counts.hot_kept.load(Ordering::SeqCst) == u64::from(blocks)
                && counts.hot_chunks.load(Ordering::SeqCst) == hot_chunks
        });
    }
    serving.sender.send(Letter::Stop(Nanos::seconds(1)));
    serving.thread.join().unwrap().unwrap();
    handle.stop();
}

#[test]
fn what_is_watched_comes_to_the_fast_drive_and_its_viewers_notice_nothing() {
    let files = files(3_000_000);
    let mut w = on_bulk(&files, LINGER);
    let serving = serve(&mut w.rig);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let hot = &files[0];
    let before: BTreeSet<_> = w.rig.object_files(1).into_iter().collect();
    let over = AtomicBool::new(false);
    let played: u64 = std::thread::scope(|scope| {
        let players: Vec<_> =
            (0..3).map(|_| scope.spawn(|| play(serving.at, hot, &over))).collect();
        let hand_over = || {
            let samples = std::mem::take(&mut *serving.samples.lock().unwrap());
            samples.into_iter().for_each(|sample| handle.verify(sample));
        };
        let failed = || players.iter().any(|player| player.is_finished());
        wait("the move", || {
            hand_over();
            assert!(!failed(), "a player was let down");
            drive_of(&w.rig, hot) == Some(FAST)
        });
        wait("the old file to go", || {
            assert!(!failed(), "a player was let down");
            !is_on(&w.rig, BULK, hot)
        });
        let asked = serving.samples.lock().unwrap().len() + 100;
        wait("players to go on", || failed() || asked < serving.samples.lock().unwrap().len());
        over.store(true, Ordering::SeqCst);
        players.into_iter().map(|player| player.join().unwrap()).sum()
    });
    assert!(10 < played && serving.faults.load(Ordering::SeqCst) == 0, "{played} plays");
    let after: BTreeSet<_> = w.rig.object_files(1).into_iter().collect();
    assert_eq!((before.len() - after.len(), copies(&w.rig)), (1, 4), "nothing else moved");
    w.rig.check(hot);
    wait("the move to be counted", || moved_up(&handle) != Bytes::ZERO);
    let status = handle.tiering().unwrap();
    let counted = TierCounters { up: room(hot).0, down: 0, abandoned: 0 };
    assert_eq!(status.counters, counted);
    assert_eq!((status.left, status.heat_objects), (DAILY - room(hot), 1));
    serving.sender.send(Letter::Stop(Nanos::seconds(1)));
    serving.thread.join().unwrap().unwrap();
    handle.stop();
    w.rig.also = None;

    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(drive_of(&w.rig, hot), Some(FAST));
    let status = handle.tiering().unwrap();
    assert_eq!((status.left, status.heat_objects), (DAILY - room(hot), 1), "and nothing is new");
    handle.stop();
    assert_eq!(w.rig.reopen(0).entries.len() + w.rig.reopen(1).entries.len(), 4);
}

#[test]
fn an_old_file_is_gone_before_the_next_copy_begins() {
    let files = files(2_000_000);
    let (w, handle, _) = slow(&files);
    let both = &files[..2];
    let moved = || both.iter().filter(|file| drive_of(&w.rig, file) == Some(FAST)).count();
    both.iter().for_each(|file| watch(&handle, file, 9));
    wait("the first to be moved", || moved() == 1);
    wait("the second to be begun", || w.rig.parts(0) == 1);
    assert_eq!(w.rig.object_files(1).len(), 3, "the room of the first is free");
    wait("the second to be moved", || moved() == 2);
}

#[test]
fn of_two_copies_after_a_power_cut_one_is_kept() {
    let files = files(700_000);
    let (mut w, mut handle, hot) = filled(&files, NEVER);
    watch(&handle, &hot, 9);
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    assert!(is_on(&w.rig, FAST, &hot) && is_on(&w.rig, BULK, &hot), "the old one is still there");
    for turned in [false, true] {
        let mut after = cut(&w.rig, turned);
        let mut handle = after.start();
        after.wait_for(&files);
        wait("the spare copy to go", || copies(&after) == 4);
        assert_eq!(drive_of(&after, &hot), Some(FAST), "the first drive wins: {turned}");
        after.wait_for(&files);
        handle.stop();
        let logged = after.reopen(0).entries.len() + after.reopen(1).entries.len();
        assert_eq!(logged, 4, "the logs know it too");
    }
    handle.stop();
    assert_eq!(copies(&w.rig), 4, "who may stop in peace leaves one copy");
    let _handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(drive_of(&w.rig, &hot), Some(FAST));
}

/// What the drives would be after a power cut now, and the other way round if they are turned.
fn cut(rig: &Rig, turned: bool) -> Rig {
    let drives = ["x0", "x1"].map(|name| rig.dir().join(format!("{name}-{turned}")));
    drives.iter().enumerate().for_each(|(i, to)| copy(rig.drive(i), to));
    let mut config = rig.config.clone();
    config.drives = drives.to_vec();
    config.state = rig.dir().join(format!("state-{turned}"));
    copy(&rig.config.state, &config.state);
    if turned {
        config.drives.reverse();
        config.tiering.as_mut().unwrap().classes.reverse();
    }
    Rig::with(config)
}

/// A folder and all that is in it.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            std::fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

#[test]
fn if_the_new_drive_goes_at_once_the_object_is_still_where_it_was() {
    let files = files(700_000);
    let (w, handle, hot) = filled(&files, Nanos::seconds(2));
    watch(&handle, &hot, 9);
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    w.origin.faults.status.store(503, Ordering::SeqCst);
    handle.set_aside(FAST, Cause::Refused("a read failed: EIO".to_owned()));
    assert_eq!(drive_of(&w.rig, &hot), None);
    wait("it to be back", || drive_of(&w.rig, &hot) == Some(BULK));
    w.rig.check(&hot);
}

#[test]
fn a_file_that_is_wrong_is_not_copied_but_filled_again() {
    let files = files(700_000);
    let (w, handle, hot) = filled(&files, LINGER);
    let file = w.rig.drive(1).join(&*layout::object_file(&hot.id()).0);
    let file = std::fs::File::options().write(true).open(file).unwrap();
    file.write_at(b"rot", 300_000).unwrap();
    drop(file);
    let sent = w.origin.sent();
    watch(&handle, &hot, 9);
    wait("it to be filled again", || sent < w.origin.sent());
    w.rig.wait_for(&files);
    assert!(0 < handle.tiering().unwrap().counters.abandoned);
    wait("nothing to be left of it", || w.rig.parts(0) + w.rig.parts(1) == 0);
}

/// The same, so slow that something can happen while a copy is made.
fn slow(files: &[TestFile]) -> (World, StorageHandle, TestFile) {
    let (mut w, mut handle, hot) = filled(files, LINGER);
    handle.stop();
    let policy = Policy::Static(Limit::Bandwidth(Bytes(1_000_000)));
    let target = Nanos::millis(5);
    w.rig.config.rules = vec![Rules { policy, target, depth: 4, deletes_alone: false }; 2];
    let handle = w.rig.start();
    w.rig.wait_for(files);
    (w, handle, hot)
}

/// The same, and one has begun.
fn slowly(files: &[TestFile]) -> (World, StorageHandle, TestFile) {
    let (w, handle, hot) = slow(files);
    watch(&handle, &hot, 9);
    wait("the copy", || w.rig.parts(0) == 1);
    (w, handle, hot)
}

#[test]
fn a_copy_ends_where_its_drive_does_and_the_object_stays() {
    let files = files(3_000_000);
    let (w, handle, hot) = slowly(&files);
    handle.set_aside(FAST, Cause::Refused("a read failed: EIO".to_owned()));
    wait("the copy to be given up", || handle.tiering().unwrap().counters.abandoned == 1);
    assert_eq!(drive_of(&w.rig, &hot), Some(BULK));
    w.rig.wait_for(&files);
    w.control.publish(2, Vec::new(), &[]);
    wait("all to go: nobody has it claimed", || w.rig.object_files(1).is_empty());
}

#[test]
fn a_copy_ends_when_nobody_wants_it_any_more() {
    let files = files(3_000_000);
    let (w, handle, hot) = slowly(&files);
    let others: Vec<TestFile> = files.iter().filter(|f| f.id() != hot.id()).cloned().collect();
    let address = w.origin_address();
    w.control.publish(2, vec![version("film-2", &[address], &others)], &others);
    w.rig.wait_for(&others);
    wait("nothing to be left of it", || copies(&w.rig) == 3 && w.rig.parts(0) == 0);
    assert_eq!(handle.tiering().unwrap().counters.abandoned, 1);
}

#[test]
fn a_copy_ends_with_the_process_and_leaves_nothing() {
    let files = files(3_000_000);
    let (mut w, mut handle, hot) = slowly(&files);
    handle.stop();
    assert_eq!((w.rig.parts(0), copies(&w.rig)), (0, 4));
    let left = DAILY - room(&hot);
    w.rig.config.tiering.as_mut().unwrap().every = NEVER;
    let handle = w.rig.start();
    w.rig.wait_for(&files);
    assert_eq!(drive_of(&w.rig, &hot), Some(BULK));
    assert_eq!(handle.tiering().unwrap().left, left, "what it had begun is spent");
}

#[test]
fn while_the_new_drive_hangs_the_old_file_stays() {
    let files = files(700_000);
    let (w, handle, hot) = filled(&files, Nanos::seconds(2));
    watch(&handle, &hot, 9);
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    handle.look_at_drives(DriveSet::from_iter([FAST]));
    wait("the move to be counted", || moved_up(&handle) == room(&hot));
    assert!(is_on(&w.rig, BULK, &hot), "the drive may be given up");
    w.origin.faults.status.store(503, Ordering::SeqCst);
    handle.set_aside(FAST, Cause::Refused("it has not answered for ten minutes".to_owned()));
    wait("it to be back", || drive_of(&w.rig, &hot) == Some(BULK));
}

#[test]
fn what_was_wrong_is_remembered_though_what_was_copied_cannot_be_removed() {
    let files = files(2_000_000);
    let (mut w, mut handle, hot) = slow(&files);
    handle.stop();
    // There will be no second copy that finds it.
    w.rig.config.tiering.as_mut().unwrap().daily_max = room(&hot);
    let handle = w.rig.start();
    watch(&handle, &hot, 9);
    wait("the copy", || w.rig.parts(0) == 1);
    let source = w.rig.drive(1).join(&*layout::object_file(&hot.id()).0);
    let source = std::fs::File::options().write(true).open(source).unwrap();
    source.write_at(b"rot", 1_999_000).unwrap();
    drop(source);
    // What is to be removed is a folder, which is removed otherwise.
    let part = w.rig.drive(0).join(&*layout::part_file(&hot.id()).0);
    std::fs::remove_file(&part).unwrap();
    std::fs::create_dir(&part).unwrap();
    let sent = w.origin.sent();
    wait("the copy to be given up", || handle.tiering().unwrap().counters.abandoned == 1);
    std::fs::remove_dir(&part).unwrap();
    wait("it to be filled again", || sent < w.origin.sent());
    w.rig.wait_for(&files);
}

#[test]
fn what_finds_no_room_does_not_keep_others_from_moving() {
    let files = files(700_000);
    let mut w = on_bulk(&files, LINGER);
    let mut wanted = version("film-1", &[w.origin_address()], &files);
    let (object, content_type) = (ObjectId([9; 32]), "video/mp4".into());
    let huge = File { object, len: OBJECT_LEN_MAX, content_type };
    wanted.files.insert("huge.mp4".to_owned(), huge);
    w.control.publish(2, vec![wanted], &files);
    let handle = w.rig.start();
    wait("it to be wanted", || handle.fill().objects_without_room == 1);
    let hot = &files[0];
    watch(&handle, hot, 9);
    wait("the move", || drive_of(&w.rig, hot) == Some(FAST));
}

#[test]
fn what_cannot_be_kept_of_the_budget_is_not_spent() {
    let files = files(700_000);
    let (w, handle, hot) = filled(&files, LINGER);
    let budget = w.rig.config.state.join("tiering.budget");
    std::fs::create_dir(&budget).unwrap();
    watch(&handle, &hot, 9);
    let said = |report: wire::v1::report::Report| {
        let mut texts = report.errors.iter().map(|error| error.text.clone());
        texts.any(|text| text.ends_with("is the state directory full or read-only?"))
    };
    wait("it to be said", || w.control.last_report().is_some_and(said));
    assert_eq!(handle.tiering().unwrap().left, DAILY);
    std::fs::remove_dir(&budget).unwrap();
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    assert_eq!(handle.tiering().unwrap().left, DAILY - room(&hot));
}

#[test]
fn who_could_not_read_the_old_file_says_nothing_of_the_new_one() {
    let files = files(700_000);
    let (w, handle, hot) = filled(&files, LINGER);
    let old = w.rig.extent_of(&hot);
    watch(&handle, &hot, 9);
    wait("the move to be over", || moved_up(&handle) == room(&hot));
    let sent = w.origin.sent();
    handle.read_failed(hot.id(), &old, Some(Errno::IO));
    // What was said later is looked at with it or after it.
    let other = &files[1];
    handle.read_failed(other.id(), &w.rig.extent_of(other), Some(Errno::IO));
    wait("the other to be filled again", || sent < w.origin.sent());
    w.rig.wait_for(&files);
    assert_eq!(handle.integrity().objects_set_aside, 1);
}

#[test]
fn a_unit_comes_to_the_fast_drive_as_a_whole_and_its_viewers_notice_nothing() {
    let files = segments();
    let mut w = on_bulk(&files, LINGER);
    let serving = serve(&mut w.rig);
    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let hot = &files[0];
    let with = unit_of(&w.rig, &files, hot);
    assert_eq!((with.len(), units(&w.rig, 1).len()), (3, 2));
    let old = w.rig.extent_of(hot);
    let old_len = Bytes(std::fs::metadata(w.rig.path_of(&old)).unwrap().len());
    let (sent, over) = (w.origin.sent(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let players: Vec<_> =
            with.iter().map(|file| scope.spawn(|| play(serving.at, file, &over))).collect();
        let failed = || players.iter().any(|player| player.is_finished());
        wait("all of it to be moved", || {
            let samples = std::mem::take(&mut *serving.samples.lock().unwrap());
            samples.into_iter().for_each(|sample| handle.verify(sample));
            assert!(!failed(), "a player was let down");
            with.iter().all(|file| drive_of(&w.rig, file) == Some(FAST))
        });
        wait("the old file to go", || failed() || units(&w.rig, 1).len() == 1);
        let asked = serving.samples.lock().unwrap().len() + 100;
        wait("players to go on", || failed() || asked < serving.samples.lock().unwrap().len());
        over.store(true, Ordering::SeqCst);
        players.into_iter().for_each(|player| assert!(0 < player.join().unwrap()));
    });
    assert_eq!(serving.faults.load(Ordering::SeqCst), 0);
    assert_eq!(unit_of(&w.rig, &files, hot).len(), 3, "they share a file again");
    wait("the move to be counted", || moved_up(&handle) == old_len);
    serving.sender.send(Letter::Stop(Nanos::seconds(1)));
    serving.thread.join().unwrap().unwrap();
    handle.stop();
    w.rig.also = None;

    let mut handle = w.rig.start();
    w.rig.wait_for(&files);
    let is_up = |file: &&TestFile| drive_of(&w.rig, file) == Some(FAST);
    assert_eq!(files.iter().filter(is_up).count(), 3, "the other unit stays");
    assert_eq!(w.origin.sent(), sent, "nothing was fetched again");
    handle.stop();
    let logged = (w.rig.reopen(0).entries.len(), w.rig.reopen(1).entries.len());
    assert_eq!(logged, (3, 3), "the logs know it too");
}

#[test]
fn of_two_copies_of_a_unit_after_a_power_cut_one_is_kept() {
    let files = segments();
    let (w, mut handle, hot) = filled(&files, NEVER);
    watch(&handle, &hot, 9);
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    let sent = w.origin.sent();
    for turned in [false, true] {
        let mut after = cut(&w.rig, turned);
        let mut handle = after.start();
        after.wait_for(&files);
        let count = |rig: &Rig| units(rig, 0).len() + units(rig, 1).len();
        wait("the spare copy to go", || count(&after) == 2);
        after.wait_for(&files);
        assert_eq!(drive_of(&after, &hot), Some(FAST), "the first drive wins: {turned}");
        handle.stop();
        let logged = after.reopen(0).entries.len() + after.reopen(1).entries.len();
        assert_eq!(logged, files.len(), "the logs know it too");
    }
    handle.stop();
    assert_eq!((units(&w.rig, 0).len(), units(&w.rig, 1).len()), (1, 1), "a stop leaves one");
    assert_eq!(w.origin.sent(), sent);
}

#[test]
fn if_the_new_drive_goes_at_once_a_unit_is_still_where_it_was() {
    let files = segments();
    let (w, handle, hot) = filled(&files, Nanos::seconds(2));
    let with = unit_of(&w.rig, &files, &hot);
    watch(&handle, &hot, 9);
    wait("the move", || drive_of(&w.rig, &hot) == Some(FAST));
    w.origin.faults.status.store(503, Ordering::SeqCst);
    handle.set_aside(FAST, Cause::Refused("a read failed: EIO".to_owned()));
    wait("all to be back", || with.iter().all(|file| drive_of(&w.rig, file) == Some(BULK)));
    with.iter().for_each(|file| w.rig.check(file));
}

#[test]
fn of_a_unit_only_what_is_wanted_is_moved() {
    let files = segments();
    let (w, handle, hot) = filled(&files, LINGER);
    let gone = unit_of(&w.rig, &files, &hot)[2];
    let wanted: Vec<TestFile> = files.iter().filter(|f| f.id() != gone.id()).cloned().collect();
    let version = version("film-2", &[w.origin_address()], &wanted);
    w.control.publish(2, vec![version], &wanted);
    w.rig.wait_for(&wanted);
    let sent = w.origin.sent();
    let old = w.rig.extent_of(&hot);
    let before = std::fs::metadata(w.rig.path_of(&old)).unwrap().len();
    watch(&handle, &hot, 9);
    wait("the old file to go", || units(&w.rig, 1).len() == 1);
    w.rig.wait_for(&wanted);
    assert_eq!(unit_of(&w.rig, &wanted, &hot).len(), 2, "they share a file again");
    wait("the move to be counted", || Bytes::ZERO != moved_up(&handle));
    assert!(moved_up(&handle).0 < before, "the room of the third is free");
    assert_eq!(w.origin.sent(), sent);
}

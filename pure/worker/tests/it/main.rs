//! A worker with its shell played by the test: drives are byte vectors, sockets are logs.
#![expect(clippy::unwrap_used, reason = "in a test, and in what tests share, it is the assertion")]

mod bench;
mod crowd;
mod guests;
mod hang;
mod hot;
mod request_log;
mod viewing;
mod withdrawn;

use bench::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::drives::{DriveIndex, DriveSet};
use model::expected::FirstBlocks;
use model::extent::{Extent, FileName};
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::{Generation, ObjectId};
use model::machine::Machine;
use model::manifest::{AssetVersion, File, Manifest, TokenKey};
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::update::Update;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use proptest::prelude::*;
use worker::{
    Action, Body, Config, Ending, Event, Fault, Incident, IncidentBounds, Now, PaceConfig, Reason,
    Worker,
};

#[test]
#[should_panic(expected = "this clock never goes back")]
fn a_clock_that_goes_back_ends_the_process() {
    let mut bench = Bench::new();
    bench.now.instant = bench.now.instant + Nanos::seconds(1);
    bench.event(Event::Tick);
    bench.now.instant = Instant(0);
    bench.event(Event::Tick);
}

#[test]
fn objects_come_whole_and_in_parts_from_drives_and_from_memory() {
    let mut bench = Bench::new();
    for (path, n, len, _) in FILES {
        let whole = content(u64::from(n), len);
        let path = path.replace(' ', "%20").replace('é', "%C3%A9");
        let (head, body) = bench.get(&path, "");
        assert_eq!((status(&head), &body), (200, &whole), "{path}");
        if len == 0 {
            continue;
        }
        for (from, to) in [(0, 0), (1, 100), (4095, 4097), (262_143, 262_145), (5, len - 1)] {
            if len <= to || to < from {
                continue;
            }
            let (head, body) = bench.get(&path, &format!("Range: bytes={from}-{to}\r\n"));
            assert_eq!(status(&head), 206);
            let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
            assert_eq!(body, whole[from..=to], "{path} {from}-{to}");
        }
    }
    assert_eq!(bench.reports, []);
}

#[test]
fn of_the_bytes_that_are_read_some_have_their_block_verified() {
    let mut bench = Bench::new();
    bench.get("v.mp4", "");
    // Three chunks of 262,144 and a last one of 213,568: with the second, 524,288 are read.
    assert_eq!(bench.verified, [(1, 1, true)]);
    // Small reads count for what they are, here 48,000 of the 48,576 that are missing.
    for _ in 0..48 {
        bench.get("v.mp4", "Range: bytes=0-999\r\n");
    }
    assert_eq!(bench.verified.len(), 1);
    // Chunks that begin inside a block: the block is read again.
    bench.get("v.mp4", "Range: bytes=300000-899999\r\n");
    assert_eq!(bench.verified[1..], [(1, 1, false)]);
    bench.get("list.m3u8", "");
    bench.get("w.mp4", "");
    assert_eq!(bench.verified[2..], [(2, 0, true)], "what is in memory is not read");
    assert_eq!(bench.worker.counters().verified, 3);

    let mut bench = Bench::with(Config { verify_every: 0, ..config() });
    bench.get("v.mp4", "");
    assert_eq!((bench.verified.len(), bench.worker.counters().verified), (0, 0));
}

#[test]
fn each_status_has_its_request() {
    let mut bench = Bench::new();
    let etag = format!("\"{}\"", "01".repeat(32));
    let cases = [
        ("v.mp4", format!("If-None-Match: {etag}\r\n"), 304),
        ("v.mp4", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), 304),
        ("v.mp4", "If-Match: \"x\"\r\n".to_owned(), 412),
        ("v.mp4", "Range: bytes=1000000-\r\n".to_owned(), 416),
        ("v.mp4", format!("If-Range: {etag}\r\nRange: bytes=0-1\r\n"), 206),
        ("v.mp4", "If-Range: \"x\"\r\nRange: bytes=0-1\r\n".to_owned(), 200),
        ("not-yet.mp4", String::new(), 404),
        ("nothing", String::new(), 404),
        ("%zz", String::new(), 400),
        ("v.mp4", "Content-Length: 3\r\n".to_owned(), 400),
        ("v.mp4", format!("X: {}\r\n", "y".repeat(3000)), 431),
    ];
    for (path, fields, expected) in cases {
        let (head, _) = bench.get(path, &fields);
        assert_eq!(status(&head), expected, "{path} {fields}");
    }
    let mut other = |line: &str| {
        let (head, body) = bench.fetch(&format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert!(body.is_empty());
        status(&head)
    };
    let token = token();
    assert_eq!(other(&format!("HEAD /t/{token}/film-1/v.mp4")), 200);
    assert_eq!(other(&format!("POST /t/{token}/film-1/v.mp4")), 405);
    assert_eq!(other("OPTIONS *"), 204);
    assert_eq!(other("GET /"), 404);
    assert_eq!(other("GET /t/nonsense/film-1/v.mp4"), 403);
    assert_eq!(other(&format!("GET /t/{token}/film-2/v.mp4")), 403);
    assert_eq!(other(&format!("GET /t/{}/film-1/v.mp4", token_until(WALL - 5))), 403);
    assert_eq!(bench.worker.counters().misses, 1);
    assert_eq!(bench.worker.counters().forbidden, 3);
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let requests =
        [get("list.m3u8", ""), get("v.mp4", "Range: bytes=9-300000\r\n"), get("w.mp4", "")];
    let text = requests.concat();
    for piece in [1, 7, 200, 10_000] {
        let mut bench = Bench::new();
        let connection = bench.connect(0);
        let mut rest = &text[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece.min(rest.len()));
            bench.say(connection, now);
            bench.settle();
            rest = later;
        }
        let mut out = &bench.received[&connection][..];
        for body in
            [content(3, 3000), content(1, 1_000_000)[9..=300_000].to_vec(), content(2, 262_144)]
        {
            let (head, rest) = split(out);
            assert!(status(&head) < 300);
            assert_eq!(rest[..body.len()], body);
            out = &out[head.len() + body.len()..];
        }
        assert!(out.is_empty());
    }
}

#[test]
fn a_drive_that_fails_at_first_is_a_404_and_later_a_reset() {
    let mut bench = Bench::new();
    let connection = bench.connect(0);
    bench.say(connection, &get("v.mp4", ""));
    bench.step(0);
    let (buffer, ..) = bench.reads.pop_front().unwrap();
    bench.event(Event::Read { buffer, result: Err(Fault { errno: 5 }) });
    bench.settle();
    let (head, _) = split(&bench.received[&connection]);
    assert_eq!(status(&head), 404);
    assert!(head.contains("no-store"));
    assert_eq!(bench.worker.counters().responses_4xx, 1, "once, as it was answered");

    bench.say(connection, &get("v.mp4", ""));
    bench.step(0);
    bench.step(0);
    let (buffer, ..) = bench.reads.pop_front().unwrap();
    bench.event(Event::Read { buffer, result: Ok(Bytes(5)) });
    assert_eq!(bench.closed[&connection], Ending::Abort);
    assert_eq!(bench.reports, [Fault { errno: 5 }, Fault { errno: 0 }]);
    assert_eq!(bench.worker.counters().aborted, 1);
}

#[test]
fn what_fails_on_a_drive_that_went_is_not_laid_to_the_one_in_its_place() {
    let mut bench = Bench::new();
    let connection = bench.connect(0);
    bench.say(connection, &get("v.mp4", ""));
    bench.step(0);
    let (buffer, ..) = bench.reads.pop_front().unwrap();
    bench.event(Event::Update(Update::DriveSetAside { drive: DriveIndex(0) }));
    bench.event(Event::Read { buffer, result: Err(Fault { errno: 107 }) });
    bench.settle();
    assert_eq!(status(&split(&bench.received[&connection]).0), 404);
    assert_eq!((bench.reports.len(), bench.worker.counters().drive_faults), (0, 1));
}

#[test]
fn a_file_that_is_gone_is_a_404_for_all_who_wait_for_it() {
    let mut bench = Bench::new();
    bench.files.remove("objects/1");
    let connections = [bench.connect(0), bench.connect(1)];
    for connection in connections {
        bench.say(connection, &get("v.mp4", ""));
    }
    bench.settle();
    for connection in connections {
        assert_eq!(status(&split(&bench.received[&connection]).0), 404);
    }
    assert_eq!(bench.reports.len(), 1, "reported once");
}

#[test]
fn removed_objects_are_not_served_and_their_files_close() {
    let mut bench = Bench::new();
    assert_eq!(status(&bench.get("v.mp4", "").0), 200);
    assert_eq!(bench.slots.len(), 1);
    bench.event(Event::Update(Update::Removed { object: ObjectId([1; 32]) }));
    assert_eq!(bench.slots.len(), 0);
    assert_eq!(status(&bench.get("v.mp4", "").0), 404);
    bench.event(Event::Update(Update::DriveSetAside { drive: DriveIndex(1) }));
    assert_eq!(status(&bench.get("w.mp4", "").0), 404);
    assert_eq!(status(&bench.get("list.m3u8", "").0), 200, "from memory, from the other drive");
}

#[test]
fn a_drive_that_is_back_serves_before_all_that_it_had_is_taken_out() {
    let mut bench = Bench::new();
    let publish = |bench: &mut Bench, object: ObjectId, (file, len): (&str, u64)| {
        let (drive, file) = (DriveIndex(0), FileName(file.into()));
        let extent = Extent { drive, file, offset: Bytes(0), len: Bytes(len) };
        bench.event(Event::Update(Update::Published { object, extent, small: None }));
    };
    for n in 0..3000_u16 {
        let mut id = [0; 32];
        id[1..3].copy_from_slice(&n.to_be_bytes());
        publish(&mut bench, ObjectId(id), ("objects/other", 9));
    }
    assert_eq!(status(&bench.get("v.mp4", "").0), 200);
    bench.event(Event::Update(Update::DriveSetAside { drive: DriveIndex(0) }));
    assert_eq!((status(&bench.get("v.mp4", "").0), bench.slots.len()), (404, 1));
    publish(&mut bench, ObjectId([1; 32]), ("objects/1", 1_000_000));
    assert_eq!(bench.slots.len(), 0, "the file of before is closed");
    let (head, body) = bench.get("v.mp4", "");
    assert_eq!((status(&head), body), (200, content(1, 1_000_000)));
    assert_eq!(
        bench.worker.deadline(),
        Some(bench.now.instant),
        "the others are still on their way"
    );
    for _ in 0..3 {
        bench.event(Event::Tick);
    }
    assert_ne!(bench.worker.deadline(), Some(bench.now.instant));
    assert_eq!((status(&bench.get("v.mp4", "").0), bench.slots.len()), (200, 1));
}

/// Object 1 has a second copy, which the index speaks of from now on.
fn moves(bench: &mut Bench) {
    let (object, len) = (ObjectId([1; 32]), Bytes(1_000_000));
    bench.files.insert("objects/moved".to_owned(), content(1, len.0));
    let (drive, file) = (DriveIndex(1), FileName("objects/moved".into()));
    let extent = Extent { drive, file, offset: Bytes(0), len };
    bench.event(Event::Update(Update::Published { object, extent, small: None }));
}

#[test]
fn an_object_that_changes_drives_is_served_on_without_a_gap() {
    let mut bench = Bench::new();
    let [before, after] = [bench.connect(0), bench.connect(1)];
    bench.say(before, &get("v.mp4", ""));
    bench.step(0);
    moves(&mut bench);
    bench.say(after, &get("v.mp4", ""));
    let opened: Vec<&str> = bench.opens.iter().map(|(_, name)| &**name).collect();
    assert_eq!(opened, ["objects/moved"]);
    bench.settle();
    for connection in [before, after] {
        assert_eq!(split(&bench.received[&connection]).1, content(1, 1_000_000));
    }
    let open: Vec<&str> = bench.slots.values().map(|name| &**name).collect();
    assert_eq!((open, bench.reports.len()), (vec!["objects/moved"], 0), "the old one is closed");
    moves(&mut bench);
    assert_eq!(bench.slots.len(), 1, "told again of the same place, it is kept open");
}

#[test]
fn who_opens_a_file_that_has_just_gone_elsewhere_finds_it_there() {
    let mut bench = Bench::new();
    let connections = [0, 1, 2].map(|slot| bench.connect(slot));
    connections[..2].iter().for_each(|of| bench.say(*of, &get("v.mp4", "")));
    moves(&mut bench);
    bench.say(connections[2], &get("v.mp4", ""));
    bench.files.remove("objects/1");
    bench.settle();
    for connection in connections {
        assert_eq!(split(&bench.received[&connection]).1, content(1, 1_000_000));
    }
    assert_eq!((bench.reports.len(), bench.worker.counters().drive_faults), (0, 0));
    assert_eq!(bench.slots.len(), 1);
}

#[test]
fn no_more_transfers_run_than_allowed_and_the_others_get_their_turn() {
    let mut bench = Bench::new();
    let connections: Vec<_> = (0..8).map(|slot| bench.connect(slot)).collect();
    for connection in &connections {
        bench.say(*connection, &get("v.mp4", ""));
    }
    assert!(bench.reads.len() <= 2, "the drive's depth");
    bench.settle();
    for connection in &connections {
        assert_eq!(split(&bench.received[connection]).1, content(1, 1_000_000));
    }
}

#[test]
fn one_connection_too_many_is_closed_as_it_arrives() {
    let mut bench = Bench::new();
    for slot in 0..8 {
        bench.connect(slot);
    }
    let connection = ConnectionId { slot: 8, generation: 1 };
    bench.event(Event::Accepted { connection });
    assert_eq!(bench.closed[&connection], Ending::Abort);
    assert_eq!(bench.worker.counters().refused, 1);
}

#[test]
fn idle_slow_and_silent_clients_are_closed_in_time() {
    let mut bench = Bench::new();
    let silent = ConnectionId { slot: 0, generation: 1 };
    bench.event(Event::Accepted { connection: silent });
    let slow = bench.connect(1);
    let idle = bench.connect(2);
    let stuck = bench.connect(3);
    bench.say(slow, "GET");
    bench.say(stuck, &get("list.m3u8", ""));
    bench.wait(9);
    bench.say(slow, " / HT");
    assert!(bench.closed.is_empty());
    bench.wait(2);
    assert_eq!(bench.closed.keys().copied().collect::<Vec<_>>(), [silent, slow]);
    bench.wait(20);
    assert!(bench.closed.contains_key(&stuck), "took nothing for 30 s");
    assert!(!bench.closed.contains_key(&idle));
    bench.wait(30);
    assert!(bench.closed.contains_key(&idle));
    assert_eq!(bench.worker.counters().timed_out, 4);
}

#[test]
fn a_stop_lets_responses_end_and_nothing_begin() {
    let mut bench = Bench::new();
    let idle = bench.connect(0);
    let busy = bench.connect(1);
    let hung = bench.connect(2);
    bench.say(busy, &get("list.m3u8", ""));
    bench.say(hung, &get("v.mp4", ""));
    let deadline = bench.now.instant + Nanos::seconds(5);
    bench.event(Event::Stop { deadline });
    assert_eq!(bench.closed[&idle], Ending::Graceful);
    assert_eq!(bench.sends.pop_front(), Some(busy));
    bench.event(Event::Sent { connection: busy });
    assert_eq!(bench.closed[&busy], Ending::Graceful);
    assert!(!bench.worker.is_stopped());
    bench.wait(6);
    assert_eq!(bench.closed[&hung], Ending::Abort);
    assert!(bench.worker.is_stopped());
    bench.settle();
}

#[test]
fn a_token_is_verified_again_when_the_keys_change_or_it_expires() {
    let mut bench = Bench::new();
    let connection = bench.connect(0);
    let ask = |bench: &mut Bench| {
        bench.received.remove(&connection);
        bench.say(connection, &get("list.m3u8", ""));
        bench.settle();
        status(&split(&bench.received[&connection]).0)
    };
    assert_eq!((ask(&mut bench), ask(&mut bench)), (200, 200));
    bench.now.wall.0 += 1004;
    assert_eq!(ask(&mut bench), 200, "within the leeway");
    bench.now.wall.0 += 1;
    assert_eq!(ask(&mut bench), 403);
    bench.now.wall.0 -= 1005;
    assert_eq!(ask(&mut bench), 200);
    bench.event(Event::Update(Update::Manifest(Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(2),
        token_keys: vec![],
        trust: model::manifest::Trust::default(),
        numbers: BTreeMap::new(),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: vec![],
    }))));
    assert_eq!(ask(&mut bench), 403);
}

#[test]
fn a_token_is_verified_once_for_all_connections_and_anew_when_keys_change() {
    let mut bench = Bench::new();
    let mut slot = 0;
    let mut ask = |token: &str, bench: &mut Bench| {
        slot += 1;
        let connection = bench.connect(slot);
        bench.say(
            connection,
            &format!("GET /t/{token}/film-1/list.m3u8 HTTP/1.1\r\nHost: a\r\n\r\n"),
        );
        bench.settle();
        let status = status(&split(&bench.received[&connection]).0);
        bench.event(Event::Ended { connection });
        (status, bench.worker.counters().tokens_verified)
    };
    let token = token();
    assert_eq!([(); 3].map(|()| ask(&token, &mut bench)), [(200, 1); 3]);
    // As long as the token and otherwise made up, or of somebody else.
    let (other, forged) = (token_until(WALL + 999), token.replace("k1.", "k2."));
    assert_eq!(ask(&forged, &mut bench), (403, 2));
    assert_eq!(ask(&other, &mut bench), (200, 3));
    assert_eq!(ask(&token, &mut bench), (200, 3), "each has its place");
    bench.now.wall.0 += 1005;
    assert_eq!(ask(&token, &mut bench), (403, 4), "it has expired");
    bench.now.wall.0 -= 1005;
    assert_eq!(ask(&token, &mut bench), (200, 4));
    bench.event(Event::Update(Update::Manifest(Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(2),
        token_keys: vec![],
        trust: model::manifest::Trust::default(),
        numbers: BTreeMap::new(),
        siblings: BTreeMap::new(),
        site: Vec::new(),
        versions: vec![],
    }))));
    assert_eq!(ask(&token, &mut bench), (403, 5));
}

#[test]
fn a_token_for_a_path_opens_nothing_beside_it_on_any_connection() {
    let path_token = token_for("a b", WALL + 1000);
    let cases = [
        ("a%20b/%C3%A9.mp4", 200),
        ("%61%20b/%C3%A9.mp4", 200),
        ("a%20b", 404),
        ("a%20b/x", 404),
        ("v.mp4", 403),
        ("a%20bc", 403),
        ("a%2520b/%C3%A9.mp4", 403),
        ("A%20b/%C3%A9.mp4", 403),
        ("a%20b/../v.mp4", 400),
        ("a%20b/%2e%2e/v.mp4", 400),
        ("a%20b%2f..%2fv.mp4", 400),
        ("a%20b/%2E./v.mp4", 400),
        ("a%20b//v.mp4", 400),
        ("/a%20b/v.mp4", 400),
        ("./v.mp4", 400),
        ("../film-2/a%20b/%C3%A9.mp4", 400),
    ];
    // Once with the token verified anew for each, once with it granted on the connection before.
    for warm in [false, true] {
        let mut bench = Bench::new();
        for (slot, (path, expected)) in (0..).zip(cases) {
            let connection = bench.connect(slot);
            let ask = |version: &str, path: &str, bench: &mut Bench| {
                bench.received.remove(&connection);
                let line = format!("HEAD /t/{path_token}/{version}/{path} HTTP/1.1");
                bench.say(connection, &format!("{line}\r\nHost: a\r\n\r\n"));
                bench.settle();
                status(&split(&bench.received[&connection]).0)
            };
            if warm {
                assert_eq!(ask("film-1", "a%20b/%C3%A9.mp4", &mut bench), 200);
            }
            let status = ask("film-1", path, &mut bench);
            assert_eq!(status, expected, "{path}, granted before: {warm}");
            assert_eq!(ask("film-2", "a%20b/%C3%A9.mp4", &mut bench), 403, "granted: {warm}");
            bench.event(Event::Ended { connection });
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask { slot: u32, file: usize, from: u64, len: u64 },
    Answer { choice: usize },
    Leave { slot: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    let ask = (0u32..6, 0usize..4, 0u64..1_000_000, 1u64..600_000);
    prop_oneof![
        2 => ask.prop_map(|(slot, file, from, len)| Step::Ask { slot, file, from, len }),
        6 => any::<usize>().prop_map(|choice| Step::Answer { choice }),
        1 => (0u32..6).prop_map(|slot| Step::Leave { slot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Clients come, ask, leave in the middle; drives and sockets answer in any order. Whoever
    /// stays gets exactly the bytes asked for, and in the end nothing is held.
    #[test]
    fn every_byte_is_right_in_any_order_of_events(
        steps in prop::collection::vec(step(), 1..150),
        places in 0u16..6,
    ) {
        let mut bench = Bench::with(hot(places));
        let mut asked: BTreeMap<u32, (ConnectionId, Vec<u8>)> = BTreeMap::new();
        let mut generation = 10;
        for step in steps {
            match step {
                Step::Ask { slot, file, from, len } if !asked.contains_key(&slot) => {
                    generation += 1;
                    let connection = ConnectionId { slot, generation };
                    bench.event(Event::Accepted { connection });
                    bench.event(Event::Established { connection });
                    let (path, n, size, _) = FILES[file];
                    let from = from % size;
                    let to = (from + len - 1).min(size - 1);
                    let path = path.replace(' ', "%20");
                    bench.say(connection, &get(&path, &format!("Range: bytes={from}-{to}\r\n")));
                    let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
                    let wanted = content(u64::from(n), size)[from..=to].to_vec();
                    asked.insert(slot, (connection, wanted));
                }
                Step::Ask { .. } => {}
                Step::Answer { choice } => {
                    bench.step(choice);
                }
                Step::Leave { slot } => {
                    if let Some((connection, _)) = asked.remove(&slot) {
                        bench.event(Event::Ended { connection });
                        bench.sends.retain(|sending| *sending != connection);
                        bench.listening.retain(|listening| *listening != connection);
                    }
                }
            }
        }
        bench.settle();
        for (connection, expected) in asked.values() {
            let (head, body) = split(&bench.received[connection]);
            prop_assert_eq!(status(&head), 206);
            prop_assert!(&body == expected, "wrong bytes");
        }
        for (connection, _) in asked.values() {
            bench.event(Event::Ended { connection: *connection });
        }
        prop_assert_eq!(bench.worker.counters().open, 0);
        prop_assert!(bench.reads.is_empty() && bench.opens.is_empty());
    }
}

fn hot(places: u16) -> Config {
    Config { hot_blocks: places, ..config() }
}

/// Puts an object of the catalogue on drive 0 where it was in memory or nowhere.
fn publish_from_drive(bench: &mut Bench, n: u8, len: u64) {
    let name = format!("objects/{n}");
    bench.files.insert(name.clone(), vec![0; 8192]);
    let object = ObjectId([n; 32]);
    bench.event(Event::Update(Update::Removed { object }));
    let (drive, file) = (DriveIndex(0), FileName(name.into()));
    let extent = Extent { drive, file, offset: Bytes(0), len: Bytes(len) };
    bench.event(Event::Update(Update::Published { object, extent, small: None }));
}

#[test]
fn no_page_is_read_twice_and_no_sliver_is_left() {
    let mut bench = Bench::new();
    let connection = bench.connect(0);
    bench.say(connection, &get("v.mp4", "Range: bytes=9-900000\r\n"));
    let mut reads = Vec::new();
    loop {
        reads.extend(bench.reads.front().map(|(_, _, offset, len)| (offset.0, len.0)));
        if !bench.step(0) {
            break;
        }
        reads.dedup();
    }
    assert_eq!(reads, [(0, 262_144), (262_144, 262_144), (524_288, 262_144), (786_432, 114_688)]);
    assert_eq!(bench.get("v.mp4", "Range: bytes=262100-524289\r\n").1.len(), 262_190);
    assert_eq!(bench.worker.counters().reads, 5 + 1, "two chunks, not three");
}

#[test]
fn a_drive_set_aside_fails_all_who_wait_without_nesting() {
    let mut bench = Bench::with(Config { connections_max: 20_000, ..config() });
    let request = get("v.mp4", "");
    for slot in 0..10_000 {
        let connection = bench.connect(slot);
        bench.listening.clear();
        bench.event(Event::Received { connection, bytes: request.as_bytes() });
    }
    bench.event(Event::Update(Update::DriveSetAside { drive: DriveIndex(0) }));
    let (slot, _) = bench.opens.pop_front().unwrap();
    bench.worker.handle(bench.now, Event::Opened { slot, result: Err(Fault { errno: 5 }) });
    let mut answered = 0;
    while let Some(action) = bench.worker.poll() {
        answered += u32::from(matches!(action, Action::Send { .. }));
    }
    assert_eq!(answered, 10_000);
}

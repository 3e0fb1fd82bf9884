//! Hot blocks, and responses that go badly.

use super::*;

#[test]
fn what_is_wanted_twice_is_sent_from_memory_without_its_file() {
    let mut bench = Bench::with(hot(4));
    let whole = content(1, 1_000_000);
    for _ in 0..2 {
        assert_eq!(bench.get("v.mp4", "").1, whole);
    }
    let before = *bench.worker.counters();
    assert_eq!((before.hot_kept, before.hot_blocks, before.hot_bytes), (4, 4, 0));
    bench.files.clear();
    assert_eq!(bench.get("v.mp4", "").1, whole);
    assert_eq!(bench.get("v.mp4", "Range: bytes=262143-262144\r\n").1, whole[262_143..262_145]);
    let after = bench.worker.counters();
    assert_eq!((after.reads, after.hot_chunks), (before.reads, 6));
    assert_eq!(after.hot_bytes, 1_000_002);
}

#[test]
fn what_is_expected_is_sent_from_memory_the_second_time() {
    let mut bench = Bench::with(hot(4));
    let object = ObjectId([1; 32]);
    bench.event(Event::Expected([FirstBlocks { object, count: 2 }].into()));
    let whole = content(1, 1_000_000);
    for (hot_kept, hot_chunks) in [(2, 0), (4, 2)] {
        assert_eq!(bench.get("v.mp4", "").1, whole);
        let counted = bench.worker.counters();
        assert_eq!((counted.hot_kept, counted.hot_chunks), (hot_kept, hot_chunks));
    }
}

#[test]
fn a_block_that_is_to_be_kept_is_read_whole() {
    let mut bench = Bench::with(hot(4));
    let whole = content(1, 1_000_000);
    for from in [300_000, 400_000, 270_000, 524_000] {
        let to = from + 100;
        let (_, body) = bench.get("v.mp4", &format!("Range: bytes={from}-{to}\r\n"));
        assert_eq!(body, whole[from..=to]);
    }
    assert_eq!(bench.worker.counters().reads, 2, "4 KiB, then the block");
    assert_eq!(bench.worker.counters().read_bytes, 4096 + 262_144);
    // Half of it in the block that is kept, half in the next.
    assert_eq!(bench.get("v.mp4", "Range: bytes=520000-530000\r\n").1, whole[520_000..=530_000]);
    assert_eq!(bench.worker.counters().reads, 3);
}

#[test]
fn a_hot_block_is_gone_with_its_object_and_with_its_drive() {
    for update in [
        Update::Removed { object: ObjectId([1; 32]) },
        Update::DriveSetAside { drive: DriveIndex(0) },
    ] {
        let mut bench = Bench::with(hot(8));
        for _ in 0..2 {
            bench.get("v.mp4", "");
            bench.get("w.mp4", "");
        }
        // In the middle of a response that is all hot, and with a read of it under way.
        let [middle, reading] = [0, 1].map(|slot| bench.connect(slot + 50));
        bench.say(middle, &get("v.mp4", ""));
        bench.event(Event::Update(update));
        assert_eq!(bench.worker.counters().hot_blocks, 1, "of the other drive");
        let chunks = bench.worker.counters().hot_chunks;
        bench.settle();
        assert_eq!(bench.closed[&middle], Ending::Abort, "nothing is left to send");
        bench.say(reading, &get("v.mp4", ""));
        bench.settle();
        assert_eq!(status(&split(&bench.received[&reading]).0), 404);
        assert_eq!(bench.worker.counters().hot_chunks, chunks);
    }
}

#[test]
fn what_was_being_read_when_its_object_went_is_not_kept() {
    let mut bench = Bench::with(hot(8));
    bench.get("w.mp4", "");
    let connection = bench.connect(50);
    bench.say(connection, &get("w.mp4", ""));
    assert_eq!(bench.reads.len(), 1);
    let object = ObjectId([2; 32]);
    let name = bench.slots.values().next().unwrap().clone();
    bench.event(Event::Update(Update::Removed { object }));
    let (drive, file) = (DriveIndex(1), FileName(name.into()));
    let extent = Extent { drive, file, offset: Bytes(0), len: Bytes(262_144) };
    bench.event(Event::Update(Update::Published { object, extent, small: None }));
    bench.settle();
    assert_eq!(bench.worker.counters().hot_blocks, 0, "it may be what was wrong with it");
}

#[test]
fn a_crowd_that_wants_one_block_reads_it_no_more_often_than_the_drive_is_deep() {
    let mut bench = Bench::with(Config { transfers_max: 8, file_slots: 9, ..hot(8) });
    for slot in 50..58 {
        let connection = bench.connect(slot);
        bench.say(connection, &get("w.mp4", ""));
    }
    bench.settle();
    assert_eq!(bench.worker.counters().reads, 2, "what waited behind them found it");
    assert_eq!(bench.worker.counters().hot_chunks, 6);
}

#[test]
fn a_slow_drive_a_slow_client_and_a_reset_are_incidents_and_all_else_is_none() {
    let (hang_after, reset_after) = (Nanos::seconds(60), Nanos::seconds(60));
    let mut bench = Bench::with(Config { hang_after, reset_after, ..config() });
    bench.get("v.mp4", "");
    bench.get("list.m3u8", "");
    assert_eq!(bench.incidents, []);

    let drive = bench.connect(50);
    bench.say(drive, &get("v.mp4", ""));
    bench.wait(3);
    bench.settle();
    assert_eq!(bench.incidents.len(), 1);
    let text = bench.incidents[0].text();
    assert_eq!(bench.incidents[0].reason, Reason::SlowDrive);
    assert!(text.contains("slow: the drive, 3000.000 of 3000.000 ms"), "{text}");
    assert!(text.contains("    3000.000 read bytes 262144"), "{text}");

    bench.say(drive, &get("v.mp4", ""));
    while !bench.reads.is_empty() || !bench.sends.is_empty() {
        if bench.reads.is_empty() {
            bench.wait(9);
            let sample = TcpSample { rtt: Nanos::millis(80), window: 3, ..TcpSample::default() };
            bench.event(Event::Tcp { connection: drive, sample });
        }
        bench.step(0);
    }
    let text = bench.incidents[1].text();
    assert_eq!(bench.incidents[1].reason, Reason::SlowClient, "{text}");
    assert!(text.contains("slow: the client, 36000.000 of 36000.000 ms"), "{text}");
    assert!(text.contains("tcp rtt 80.000 ms window 3"), "{text}");

    bench.say(drive, &get("v.mp4", ""));
    bench.step(0);
    bench.wait(31);
    assert_eq!(bench.incidents[2].reason, Reason::Reset);
    assert_eq!(bench.worker.counters().incidents, 3);
    bench.settle();

    // A client that leaves in the middle has its reasons.
    let gone = bench.connect(51);
    bench.say(gone, &get("v.mp4", ""));
    bench.event(Event::Ended { connection: gone });
    assert_eq!(bench.incidents.len(), 3);
}

#[test]
fn who_asks_is_told_of_all_responses_under_way() {
    let mut bench = Bench::new();
    let [one, two, _idle] = [0, 1, 2].map(|slot| bench.connect(slot));
    bench.say(one, &get("v.mp4", ""));
    bench.say(two, &get("w.mp4", ""));
    bench.event(Event::Incidents);
    let objects: Vec<u8> = bench.incidents.iter().map(|incident| incident.object.0[0]).collect();
    assert_eq!(objects, [1, 2]);
    assert!(bench.incidents.iter().all(|incident| incident.reason == Reason::Requested));
    bench.settle();
}

#[test]
fn of_those_who_wait_for_a_turn_as_many_are_recorded_as_may_run() {
    let mut bench = Bench::with(Config { transfers_max: 1, ..config() });
    let mut recorded = |slots: std::ops::Range<u32>| {
        slots.for_each(|slot| {
            let connection = bench.connect(slot);
            bench.say(connection, &get("v.mp4", ""));
        });
        bench.incidents.clear();
        bench.event(Event::Incidents);
        let count = bench.incidents.len();
        bench.settle();
        count
    };
    assert_eq!(recorded(0..5), 2, "one that runs and one that waits");
    assert_eq!(recorded(5..7), 2, "those that have ended make room");
}

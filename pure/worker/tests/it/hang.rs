//! A drive that does not answer: who waits for it goes elsewhere, and nobody else waits.

use super::*;

const SIBLING: &str = "https://a2.example";

impl Bench {
    /// A bench that knows a sibling.
    fn with_sibling(config: Config) -> Self {
        let mut bench = Self::with(config);
        let urls = BTreeMap::from([("a2".parse().unwrap(), Arc::from(SIBLING))]);
        bench.event(Event::Update(Update::Siblings(Arc::new(urls))));
        bench
    }

    /// What was sent to the connection since this was last asked.
    fn take(&mut self, connection: ConnectionId) -> Vec<u8> {
        self.received.remove(&connection).unwrap_or_default()
    }

    /// As long as it takes to see that a drive hangs.
    fn wait_for_the_hang(&mut self) {
        for _ in 0..6 {
            self.wait_ms(125);
        }
    }

    /// The client goes, whatever it was at.
    fn leave(&mut self, connection: ConnectionId) {
        if !self.closed.contains_key(&connection) {
            self.event(Event::Ended { connection });
        }
        self.sends.retain(|sending| *sending != connection);
        self.listening.retain(|listening| *listening != connection);
    }

    fn ask(&mut self, slot: u32, request: &str) -> ConnectionId {
        let connection = self.connect(slot);
        self.say(connection, request);
        self.settle();
        connection
    }
}

pub(super) fn location(head: &str) -> &str {
    let line = head.lines().find(|line| line.starts_with("Location: "));
    line.expect("a redirect says where").split_once(": ").unwrap().1
}

fn get_with(query: &str) -> String {
    get("v.mp4", "").replace("v.mp4", &format!("v.mp4?{query}"))
}

#[test]
fn who_waits_for_a_hung_drive_is_sent_to_a_sibling_and_nobody_else_waits() {
    let mut bench = Bench::with_sibling(config());
    bench.hung.insert(0);
    let stuck: Vec<_> = (0..4).map(|slot| bench.ask(slot, &get("v.mp4", ""))).collect();
    let (other, whole) = (bench.connect(4), content(2, 262_144));
    bench.say(other, &get("w.mp4", ""));
    bench.settle();
    assert_eq!(split(&bench.take(other)).1, whole, "while nobody knows yet");
    bench.wait_for_the_hang();
    assert_eq!(bench.worker.hung(), DriveSet::from_iter([DriveIndex(0)]));
    bench.settle();
    for connection in &stuck {
        let (head, _) = split(&bench.take(*connection));
        assert_eq!(status(&head), 307);
        assert_eq!(location(&head), format!("{SIBLING}/t/{}/film-1/v.mp4?hop=1", token()));
    }
    // From now on nobody waits; and the connections are good for what other drives have.
    for connection in stuck {
        bench.say(connection, &get_with("CMCD=br%3D1"));
        bench.settle();
        let (head, _) = split(&bench.take(connection));
        assert!(location(&head).ends_with("/v.mp4?CMCD=br%3D1&hop=1"), "{head}");
        bench.say(connection, &get("w.mp4", ""));
        bench.settle();
        assert_eq!(split(&bench.take(connection)).1, whole);
        bench.say(connection, &get("list.m3u8", ""));
        bench.settle();
        assert_eq!(split(&bench.take(connection)).1, content(3, 3000), "small, in memory");
    }
    assert_eq!((bench.worker.counters().redirected, bench.opens.len()), (8, 1));
    bench.hung.clear();
    bench.settle();
    bench.wait_ms(125);
    assert_eq!(bench.worker.hung(), DriveSet::NONE);
    let connection = bench.ask(6, &get("v.mp4", ""));
    assert_eq!(split(&bench.take(connection)).1, content(1, 1_000_000));
}

#[test]
fn a_request_is_sent_on_once_and_only_where_somebody_is() {
    let mut bench = Bench::with_sibling(config());
    bench.hung.insert(0);
    let connection = bench.ask(0, &get("v.mp4", ""));
    bench.wait_for_the_hang();
    bench.settle();
    let ask = |bench: &mut Bench, request: &str| {
        bench.take(connection);
        bench.say(connection, request);
        bench.settle();
        status(&split(&bench.take(connection)).0)
    };
    for marked in ["hop=1", "CMCD=x&hop=1", "hop=1&CMCD=x", "hop=2", "hop="] {
        assert_eq!(ask(&mut bench, &get_with(marked)), 404, "{marked}");
    }
    for other in ["hops=1", "xhop=1", "CMCD=hop%3D1", &"x".repeat(1500)] {
        assert_eq!(ask(&mut bench, &get_with(other)), 307, "{other}");
    }
    bench.event(Event::Update(Update::Siblings(Arc::default())));
    assert_eq!(ask(&mut bench, &get("v.mp4", "")), 404, "no sibling can serve");
}

#[test]
fn what_is_hot_of_a_hung_drive_is_sent_and_only_the_rest_is_elsewhere() {
    let mut bench = Bench::with_sibling(hot(4));
    let (whole, first) = (content(1, 1_000_000), "Range: bytes=0-300000\r\n");
    for _ in 0..2 {
        assert!(bench.get("v.mp4", first).1 == whole[..=300_000], "two blocks are kept");
    }
    bench.hung.insert(0);
    let behind = get("v.mp4", "Range: bytes=600000-\r\n");
    let (hot, cold) = (get("v.mp4", first), bench.ask(50, &behind));
    let viewer = bench.ask(51, &hot);
    assert!(split(&bench.take(viewer)).1 == whole[..=300_000], "while nobody knows yet");
    bench.wait_for_the_hang();
    bench.settle();
    assert_eq!(status(&split(&bench.take(cold)).0), 307);
    let reads = bench.worker.counters().reads;
    bench.say(viewer, &hot);
    bench.settle();
    assert!(split(&bench.take(viewer)).1 == whole[..=300_000], "and when it is known");
    // What would begin in memory and then wait for the drive is sent elsewhere at once.
    bench.say(viewer, &get("v.mp4", ""));
    bench.settle();
    assert_eq!(status(&split(&bench.take(viewer)).0), 307);
    assert_eq!(bench.worker.counters().reads, reads, "the drive is not asked for more");
}

#[test]
fn the_last_of_256_drives_hangs_as_the_first_would() {
    let drives = model::limits::DRIVES_MAX;
    let mut bench = Bench::with_sibling(Config { drives, buffers: 256, ..config() });
    let (object, last) = (ObjectId([2; 32]), DriveIndex(u8::MAX));
    bench.event(Event::Update(Update::Removed { object }));
    let file = FileName("objects/2".into());
    let extent = Extent { drive: last, file, offset: Bytes(0), len: Bytes(262_144) };
    bench.event(Event::Update(Update::Published { object, extent, small: None }));
    assert_eq!(bench.get("w.mp4", "").1, content(2, 262_144));
    bench.hung.insert(1); // Where the file was, and what the bench goes by.
    let stuck = bench.ask(7, &get("w.mp4", ""));
    bench.wait_for_the_hang();
    assert_eq!(bench.worker.hung(), DriveSet::from_iter([last]));
    bench.settle();
    assert_eq!(status(&split(&bench.take(stuck)).0), 307);
    bench.hung.clear();
    bench.settle();
    bench.wait_for_the_hang();
    assert_eq!(bench.worker.hung(), DriveSet::NONE);
}

#[test]
fn who_finds_a_file_gone_to_a_drive_that_hangs_is_sent_elsewhere() {
    let mut bench = Bench::with_sibling(config());
    bench.hung.insert(1);
    bench.ask(7, &get("w.mp4", ""));
    bench.wait_for_the_hang();
    assert_eq!(bench.worker.hung(), DriveSet::from_iter([DriveIndex(1)]));
    let connections = [0, 1, 2].map(|slot| bench.connect(slot));
    connections[..2].iter().for_each(|of| bench.say(*of, &get("v.mp4", "")));
    moves(&mut bench);
    bench.say(connections[2], &get("v.mp4", ""));
    bench.files.remove("objects/1");
    bench.settle();
    for connection in connections {
        assert_eq!(status(&split(&bench.take(connection)).0), 307);
    }
    // Nobody's place in the table of files was given away twice.
    bench.hung.clear();
    bench.settle();
    bench.wait_ms(125);
    let again = bench.ask(5, &get("v.mp4", ""));
    assert!(split(&bench.take(again)).1 == content(1, 1_000_000));
}

/// Four responses from drive 0, each with its first chunk on the way to its client.
fn under_way(bench: &mut Bench) -> Vec<ConnectionId> {
    let connections: Vec<_> = (0..4).map(|slot| bench.connect(slot)).collect();
    for connection in &connections {
        bench.say(*connection, &get("v.mp4", ""));
        while !bench.sends.contains(connection) {
            assert!(bench.step(0));
        }
    }
    connections
}

#[test]
fn a_body_begun_is_reset_within_its_time_or_goes_on_before() {
    for answers_in_time in [false, true] {
        // Two for what the drive is asked, the others behind them and before admission.
        let config = Config { transfers_max: 6, file_slots: 7, ..config() };
        let mut bench = Bench::with(config);
        let connections = under_way(&mut bench);
        bench.hung.insert(0);
        bench.settle();
        assert_eq!(bench.reads.len(), 2, "second chunks");
        for _ in 0..15 {
            bench.wait_ms(125);
        }
        assert_eq!(bench.worker.hung(), DriveSet::from_iter([DriveIndex(0)]));
        assert!(bench.closed.is_empty(), "1.9 s");
        if answers_in_time {
            bench.hung.clear();
            bench.settle();
            for connection in connections {
                assert_eq!(split(&bench.take(connection)).1, content(1, 1_000_000));
            }
            continue;
        }
        bench.wait_ms(125);
        assert_eq!(bench.worker.counters().aborted, 4);
        assert!(connections.iter().all(|one| bench.closed[one] == Ending::Abort));
    }
}

#[test]
fn those_under_way_when_a_drive_hangs_do_not_come_to_hold_every_turn() {
    let mut bench = Bench::with_sibling(config());
    under_way(&mut bench);
    bench.hung.insert(0);
    bench.settle();
    let other = bench.ask(4, &get("w.mp4", ""));
    assert_eq!(split(&bench.take(other)).1, content(2, 262_144), "before anybody knows");
}

#[test]
fn an_answer_that_comes_too_late_is_for_nobody() {
    let mut bench = Bench::with_sibling(config());
    let connection = bench.ask(0, &get("v.mp4", "Range: bytes=0-9\r\n"));
    bench.take(connection);
    bench.hung.insert(0);
    bench.say(connection, &get("v.mp4", "Range: bytes=0-99\r\n"));
    bench.wait_for_the_hang();
    bench.settle();
    assert_eq!(status(&split(&bench.take(connection)).0), 307);
    let held = bench.reads.pop_front().unwrap();
    bench.hung.clear();
    // The same connection reads from the other drive while the first one's answer comes.
    bench.say(connection, &get("w.mp4", ""));
    while bench.reads.is_empty() {
        assert!(bench.step(0));
    }
    bench.event(Event::Read { buffer: held.0, result: Ok(held.3) });
    bench.settle();
    assert_eq!(split(&bench.take(connection)).1, content(2, 262_144));
}

#[test]
fn a_drive_whose_opens_hang_holds_its_opens_and_no_more() {
    let mut bench =
        Bench::with(Config { drive_opens: 2, transfers_max: 8, file_slots: 9, ..config() });
    publish_from_drive(&mut bench, 3, 3000);
    publish_from_drive(&mut bench, 99, 10);
    bench.hung.insert(0);
    for (slot, path) in (0..).zip(["v.mp4", "list.m3u8", "not-yet.mp4"]) {
        bench.ask(slot, &get(path, ""));
    }
    assert_eq!(bench.opens.len(), 2);
    let other = bench.ask(3, &get("w.mp4", ""));
    assert_eq!(split(&bench.take(other)).1, content(2, 262_144));
    bench.wait_for_the_hang();
    bench.settle();
    for slot in 0..3 {
        let connection = ConnectionId { slot, generation: 1 };
        assert_eq!(status(&split(&bench.take(connection)).0), 404, "no sibling is known");
    }
    assert_eq!(bench.opens.len(), 2);
    bench.hung.clear();
    bench.settle();
    let again = bench.ask(4, &get("v.mp4", ""));
    assert_eq!(split(&bench.take(again)).1, content(1, 1_000_000));
}

#[test]
fn clients_that_come_and_go_leave_no_trace_in_a_full_drive_s_queue() {
    let hang_after = Nanos::seconds(1000);
    let mut bench = Bench::with(Config { hang_after, log_requests: false, ..config() });
    bench.hung.insert(0);
    let mut lens = Vec::new();
    for round in 0..10_000 {
        let connection = ConnectionId { slot: round % 5, generation: round };
        bench.event(Event::Accepted { connection });
        bench.event(Event::Established { connection });
        bench.event(Event::Received { connection, bytes: get("v.mp4", "").as_bytes() });
        bench.event(Event::Ended { connection });
        if round % 5000 == 100 {
            lens.push(format!("{:?}", bench.worker).len());
        }
    }
    assert!(lens[1] < lens[0] + 5_000, "names of those who left are kept: {lens:?}");
}

#[derive(Clone, Debug)]
enum Move {
    Ask { slot: u32, file: usize },
    Answer { choice: usize },
    Wait { millis: u64 },
    Hang { on: bool },
    Leave { slot: u32 },
}

fn a_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        3 => (0u32..7, 0usize..4).prop_map(|(slot, file)| Move::Ask { slot, file }),
        6 => any::<usize>().prop_map(|choice| Move::Answer { choice }),
        3 => (1u64..400).prop_map(|millis| Move::Wait { millis }),
        1 => any::<bool>().prop_map(|on| Move::Hang { on }),
        1 => (0u32..7).prop_map(|slot| Move::Leave { slot }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The first drive hangs and comes back at any time. At every moment the second one's requests
    /// can all be answered without the first; what is answered is right; and once the first has
    /// answered, all that it held is there again.
    #[test]
    fn a_hung_drive_holds_its_share_and_gives_it_back(
        moves in prop::collection::vec(a_move(), 1..150),
        // As many as there are buffers, or more: then those are what is shared.
        transfers_max in prop::sample::select(vec![4, 8]),
    ) {
        let file_slots = 9;
        let mut bench = Bench::with_sibling(Config { transfers_max, file_slots, ..config() });
        let mut asked: BTreeMap<u32, (ConnectionId, usize)> = BTreeMap::new();
        let mut generation = 10;
        for step in moves {
            match step {
                Move::Ask { slot, file } if !asked.contains_key(&slot) => {
                    generation += 1;
                    let connection = ConnectionId { slot, generation };
                    bench.event(Event::Accepted { connection });
                    bench.event(Event::Established { connection });
                    bench.say(connection, &get(&FILES[file].0.replace(' ', "%20"), ""));
                    asked.insert(slot, (connection, file));
                }
                Move::Ask { .. } => {}
                Move::Answer { choice } => {
                    bench.step(choice);
                }
                Move::Wait { millis } => bench.wait_ms(millis),
                Move::Hang { on: true } => {
                    bench.hung.insert(0);
                }
                Move::Hang { on: false } => bench.hung.clear(),
                Move::Leave { slot } => {
                    asked.remove(&slot).iter().for_each(|(connection, _)| bench.leave(*connection));
                }
            }
            let first = |slot: &FileSlot| drive_of(&bench.slots[slot]) == 0;
            prop_assert!(bench.reads.iter().filter(|read| first(&read.1)).count() <= 2);
        }
        bench.settle();
        let is_whole = |bench: &Bench, connection: &ConnectionId, file: usize| {
            let (head, body) = split(&bench.received[connection]);
            let (_, n, len, _) = FILES[file];
            status(&head) == 307 || (status(&head) == 200 && body == content(u64::from(n), len))
        };
        for (connection, file) in asked.values().filter(|(_, file)| FILES[*file].3 == 1) {
            prop_assert!(is_whole(&bench, connection, *file), "the second drive never waits");
        }
        bench.hung.clear();
        bench.settle();
        for (connection, file) in asked.values() {
            let reset = bench.closed.get(connection) == Some(&Ending::Abort);
            prop_assert!(reset || is_whole(&bench, connection, *file));
            if !reset {
                bench.event(Event::Ended { connection: *connection });
            }
        }
        prop_assert!(bench.reads.is_empty() && bench.opens.is_empty());
        // All four buffers and all four transfers are there again: two for each drive.
        bench.hung = BTreeSet::from([0, 1]);
        for (slot, path) in (8..).zip(["v.mp4", "v.mp4", "v.mp4", "w.mp4", "w.mp4", "w.mp4"]) {
            let connection = ConnectionId { slot, generation };
            bench.event(Event::Accepted { connection });
            bench.event(Event::Established { connection });
            bench.say(connection, &get(path, ""));
        }
        bench.hung.clear();
        while let Some((slot, name)) = bench.opens.pop_front() {
            bench.slots.insert(slot, name);
            bench.event(Event::Opened { slot, result: Ok(()) });
        }
        prop_assert_eq!(bench.reads.len(), 4);
    }
}

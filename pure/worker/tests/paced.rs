//! Paced responses in simulated time: drives and sockets take as long as the test says.
#![expect(clippy::unwrap_used, reason = "in a test, and in what tests share, it is the assertion")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::drives::{DriveIndex, DriveSet};
use model::extent::{Extent, FileName};
use model::handle::{BufferId, ConnectionId, FileSlot};
use model::id::{Generation, ObjectId};
use model::machine::Machine;
use model::manifest::{AssetVersion, File, Manifest, TokenKey, Trust};
use model::tcp::TcpSample;
use model::units::{BitsPerSecond, Bytes, Instant, Nanos, UnixSeconds};
use model::update::Update;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use proptest::prelude::*;
use worker::{
    Action, Body, Config, Event, IncidentBounds, Now, PaceConfig, PaceMode, Reason, Then, Worker,
};

const WALL: UnixSeconds = UnixSeconds(1_790_000_000);
const FILE_LEN: u64 = 4_000_000;
const MBPS: u64 = 1_000_000;

/// What the kernel does next: when, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Read { buffer: u16, len: u64 },
    Sent { slot: u32 },
}

struct World {
    worker: Worker,
    now: Instant,
    answers: BTreeSet<(Instant, Answer)>,
    read_takes: Nanos,
    /// Of one connection after another, how long the client takes for what it is sent.
    send_takes: Vec<Nanos>,
    buffers: BTreeMap<u16, Vec<u8>>,
    /// When how much of a body went to whom.
    bursts: BTreeMap<u32, Vec<(Instant, u64)>>,
    bodies: BTreeMap<u32, Vec<u8>>,
    limits: Vec<Option<BitsPerSecond>>,
    /// TCP's figures, and the packets that are sent again from one look to the next.
    sample: TcpSample,
    loses: u32,
    /// Sends whose end waits for what comes next, and sends with nothing to come.
    corked: usize,
    last: usize,
    /// Length of each read.
    reads: Vec<u64>,
    /// Who was let go, and when.
    closed: BTreeMap<u32, Instant>,
    /// Why responses were written down: its pace is nobody's fault, so that it ends other tests.
    expected: Option<Reason>,
}

fn byte(at: u64) -> u8 {
    (at * 131 + at / 4096).to_le_bytes()[0]
}

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn token() -> String {
    let scope = Scope::below("film-1", "").unwrap();
    let session = Session::of_random([9; 12]);
    let grant = Grant { session, expires: UnixSeconds(WALL.0 + 100_000), scope };
    let input = SigningInput::new("k1", grant);
    let signature = key().sign(input.as_bytes()).as_ref().try_into().unwrap();
    assemble("k1", grant, &signature)
}

fn pacing() -> PaceConfig {
    PaceConfig {
        mode: PaceMode::Own,
        burst: Bytes::kib(32),
        burst_min: Bytes::kib(32),
        guard: 0,
        ceiling: None,
        floor: BitsPerSecond(MBPS),
        buffers: 2,
    }
}

impl World {
    fn new(pacing: PaceConfig, buffers: u16) -> Self {
        let config = Config {
            // All reads of one viewer take 2.7 s at most, their waiting for each other included.
            incidents: Some(IncidentBounds {
                drive_wait: Nanos::seconds(4),
                client_rate: BitsPerSecond(1_000_000),
            }),
            connections_max: 64,
            transfers_max: 32,
            handshakes_max: 64,
            buffers,
            hot_blocks: 0,
            file_slots: 40,
            drives: 1,
            drive_depth: 8,
            drive_opens: 4,
            read_targets: [Nanos::millis(5); model::limits::DRIVES_MAX],
            hang_after: Nanos::millis(500),
            reset_after: Nanos::seconds(2),
            head_len_max: 2048,
            request_timeout: Nanos::seconds(10),
            idle_timeout: Nanos::seconds(600),
            token_leeway: Nanos::seconds(5),
            progress_timeout: Nanos::seconds(30),
            verify_every: 0,
            log_requests: false,
            views_max: 0,
            pacing,
        };
        let now = Instant(77);
        let mut world = Self {
            worker: Worker::new(config, Now { instant: now, wall: WALL }),
            now,
            answers: BTreeSet::new(),
            read_takes: Nanos(200_000),
            send_takes: vec![Nanos(0)],
            buffers: BTreeMap::new(),
            bursts: BTreeMap::new(),
            bodies: BTreeMap::new(),
            limits: Vec::new(),
            sample: TcpSample::default(),
            loses: 0,
            corked: 0,
            last: 0,
            reads: Vec::new(),
            closed: BTreeMap::new(),
            expected: None,
        };
        world.publish();
        world
    }

    fn publish(&mut self) {
        let (object, len) = (ObjectId([1; 32]), Bytes(FILE_LEN));
        let file = File { object, len, content_type: "video/mp4".into() };
        let version = |id: &str, pace| {
            Arc::new(AssetVersion {
                id: id.parse().unwrap(),
                asset: "film".parse().unwrap(),
                sources: vec![],
                modified: UnixSeconds(1),
                pace,
                files: BTreeMap::from([("v.mp4".to_owned(), file.clone())]),
            })
        };
        let public_key = key().public_key().as_ref().try_into().unwrap();
        self.event(Event::Update(Update::Manifest(Arc::new(Manifest {
            appliance: "a1".parse().unwrap(),
            generation: Generation(1),
            token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
            trust: Trust::default(),
            numbers: BTreeMap::new(),
            siblings: BTreeMap::new(),
            site: Vec::new(),
            versions: vec![version("film-1", None)],
        }))));
        let extent =
            Extent { drive: DriveIndex(0), file: FileName("1".into()), offset: Bytes(0), len };
        self.event(Event::Update(Update::Published { object, extent, small: None }));
    }

    fn event(&mut self, event: Event<'_>) {
        let (mut pending, mut asked) = (VecDeque::new(), VecDeque::new());
        self.worker.handle(Now { instant: self.now, wall: WALL }, event);
        loop {
            while let Some(action) = self.worker.poll() {
                self.carry_out(action, &mut pending, &mut asked);
            }
            if let Some((connection, sample)) = asked.pop_front() {
                let event = Event::PathSeen { connection, sample };
                self.worker.handle(Now { instant: self.now, wall: WALL }, event);
                continue;
            }
            let Some(slot) = pending.pop_front() else { break };
            self.worker.handle(
                Now { instant: self.now, wall: WALL },
                Event::Opened { slot, result: Ok(()) },
            );
        }
    }

    fn carry_out(
        &mut self,
        action: Action,
        opened: &mut VecDeque<FileSlot>,
        asked: &mut VecDeque<(ConnectionId, TcpSample)>,
    ) {
        match action {
            Action::Incident(incident) => {
                assert_eq!(Some(incident.reason), self.expected, "{incident:?}");
            }
            Action::Send { connection, body, then, .. } => {
                self.corked += usize::from(then == Then::Soon);
                self.last += usize::from(then == Then::Nothing);
                let Body::Buffer { buffer, start, end } = body else {
                    panic!("bodies come from the drive")
                };
                let bytes = &self.buffers[&buffer.0][start..end];
                let slot = connection.slot;
                self.bodies.entry(slot).or_default().extend_from_slice(bytes);
                let len = Bytes::of(end - start).0;
                self.bursts.entry(slot).or_default().push((self.now, len));
                let index = usize::try_from(slot).unwrap() % self.send_takes.len();
                let answer = Answer::Sent { slot };
                self.answers.insert((self.now + self.send_takes[index], answer));
            }
            Action::Read { buffer, offset, len, .. } => {
                let bytes = (offset.0..offset.0 + len.0).map(byte).collect();
                self.buffers.insert(buffer.0, bytes);
                self.reads.push(len.0);
                let answer = Answer::Read { buffer: buffer.0, len: len.0 };
                self.answers.insert((self.now + self.read_takes, answer));
            }
            Action::Open { slot, .. } => opened.push_back(slot),
            Action::Limit { rate, .. } => self.limits.push(rate),
            Action::LookAtPath { connection } => {
                self.sample.retransmitted += self.loses;
                asked.push_back((connection, self.sample));
            }
            Action::Close { connection, .. } => {
                let of_it = |answer: &Answer| *answer == Answer::Sent { slot: connection.slot };
                self.answers.retain(|(_, answer)| !of_it(answer));
                self.closed.insert(connection.slot, self.now);
            }
            Action::Receive { .. } | Action::CloseFile { .. } => {}
            Action::Verify { .. } | Action::Report { .. } => panic!("{action:?}"),
        }
    }

    fn ask(&mut self, slot: u32, (from, to): (u64, u64), cmcd: &str) -> ConnectionId {
        let connection = ConnectionId { slot, generation: 1 };
        self.event(Event::Accepted { connection });
        self.event(Event::Established { connection });
        self.ask_again(connection, (from, to), cmcd);
        connection
    }

    fn ask_again(&mut self, connection: ConnectionId, (from, to): (u64, u64), cmcd: &str) {
        let request = format!(
            "GET /t/{}/film-1/v.mp4?CMCD={cmcd} HTTP/1.1\r\nHost: a\r\n\
             Range: bytes={from}-{}\r\n\r\n",
            token(),
            to - 1
        );
        self.event(Event::Received { connection, bytes: request.as_bytes() });
    }

    /// Lets time pass up to `until`; the worker's thread wakes `late` after each deadline.
    fn run(&mut self, until: Instant, late: Nanos) {
        loop {
            let tick = self.worker.deadline().unwrap() + late;
            let answer = self.answers.first().copied().filter(|(at, _)| *at <= tick);
            let at = answer.map_or(tick, |(at, _)| at).max(self.now);
            if until < at {
                self.now = until;
                return;
            }
            self.now = at;
            match answer {
                None => self.event(Event::Tick),
                Some(next) => {
                    self.answers.remove(&next);
                    match next.1 {
                        Answer::Read { buffer, len } => {
                            let buffer = BufferId(buffer);
                            self.event(Event::Read { buffer, result: Ok(Bytes(len)) });
                        }
                        Answer::Sent { slot } => {
                            let connection = ConnectionId { slot, generation: 1 };
                            self.event(Event::Sent { connection });
                        }
                    }
                }
            }
        }
    }

    fn body_is(&self, slot: u32, (from, to): (u64, u64)) -> bool {
        self.bodies[&slot] == (from..to).map(byte).collect::<Vec<u8>>()
    }
}

/// A player with a full buffer that asks for so much.
fn full(mbps: u64) -> String {
    format!("br%3D500%2Cbl%3D30000%2Crtp%3D{}", mbps * 1000)
}

/// No window has more than the rate's share, one burst (and its sliver), and what is made up for.
fn keeps_to(bursts: &[(Instant, u64)], rate: BitsPerSecond, burst: u64) -> bool {
    keeps_to_and(bursts, rate, burst, Nanos::millis(8))
}

/// The same, where so much lateness is made up for.
fn keeps_to_and(
    bursts: &[(Instant, u64)],
    rate: BitsPerSecond,
    burst: u64,
    made_up: Nanos,
) -> bool {
    let all = 0..bursts.len();
    all.clone().all(|first| {
        let mut total = 0;
        bursts[first..].iter().all(|(at, len)| {
            total += len;
            let window = Nanos(at.since(bursts[first].0).0 + made_up.0);
            total <= rate.over(window).0 + burst + burst / 8 + 1
        })
    })
}

#[test]
fn a_paced_response_takes_its_time_and_reads_whole_chunks() {
    let mut world = World::new(pacing(), 4);
    world.ask(0, (0, 2_000_000), &full(20));
    world.run(Instant(2_000_000_000), Nanos(0));
    assert!(world.body_is(0, (0, 2_000_000)));
    let bursts = &world.bursts[&0];
    assert!(keeps_to(bursts, BitsPerSecond(20 * MBPS), 32 << 10));
    let took = bursts.last().unwrap().0.since(bursts[0].0);
    assert!((780..=800).contains(&took.as_millis()), "{took}: 2 MB less a burst at 20 Mb/s");
    assert_eq!(world.reads.len(), 8, "{:?}", world.reads);
    assert_eq!(world.corked, 0, "the end of a burst does not wait for the next");
    assert_eq!(world.last, 1, "of many bursts one is the last");
    assert_eq!(world.worker.counters().paced, 1);
    assert_eq!(world.worker.counters().bursts, Bytes::of(bursts.len()).0);
    let waited: u64 = world.worker.lateness().counts.iter().sum();
    assert!(waited + 2 >= Bytes::of(bursts.len()).0, "all but the first wait for their moment");
}

#[test]
fn the_next_response_goes_on_at_the_pace_of_the_last() {
    let mut world = World::new(pacing(), 4);
    let connection = world.ask(0, (0, 262_144), &full(10));
    for from in [262_144, 524_288] {
        let before = world.bodies.get(&0).map_or(0, Vec::len);
        while world.bodies.get(&0).map_or(0, Vec::len) < before + 262_144 {
            let next = world.now + Nanos(100_000);
            world.run(next, Nanos(0));
        }
        world.ask_again(connection, (from, from + 262_144), &full(10));
    }
    let next = world.now + Nanos::seconds(1);
    world.run(next, Nanos(0));
    assert!(world.body_is(0, (0, 786_432)));
    assert!(keeps_to(&world.bursts[&0], BitsPerSecond(10 * MBPS), 32 << 10));
}

#[test]
fn a_player_that_starts_gets_its_buffer_at_once() {
    let mut world = World::new(PaceConfig { guard: 2, ..pacing() }, 4);
    world.ask(0, (0, 4_000_000), "br%3D2000%2Cbl%3D0");
    world.run(Instant(20_000_000), Nanos(0));
    let at_once: u64 = world.bursts[&0].iter().map(|burst| burst.1).sum();
    assert!((2_000_000..2_300_000).contains(&at_once), "8 s at 2 Mb/s, whole chunks: {at_once}");
    world.run(Instant(5_000_000_000), Nanos(0));
    assert!(world.body_is(0, (0, 4_000_000)));
    assert_eq!(world.limits, [Some(BitsPerSecond(12 * MBPS))], "twice three times the bitrate");
}

#[test]
fn the_kernel_paces_alone_where_it_shall_and_is_let_go_again() {
    let mut world = World::new(PaceConfig { mode: PaceMode::Kernel, buffers: 0, ..pacing() }, 4);
    let connection = world.ask(0, (0, 1_000_000), &full(20));
    world.run(Instant(50_000_000), Nanos(0));
    assert!(world.body_is(0, (0, 1_000_000)), "nothing waits");
    world.ask_again(connection, (1_000_000, 2_000_000), "");
    world.run(Instant(100_000_000), Nanos(0));
    assert_eq!(world.limits, [Some(BitsPerSecond(20 * MBPS)), None]);
    assert_eq!(world.worker.counters().bursts, 0);
}

#[test]
fn once_the_round_trip_is_known_responses_say_it() {
    let pacing = PaceConfig { burst: Bytes::kib(64), burst_min: Bytes::kib(16), ..pacing() };
    let mut world = World::new(pacing, 4);
    let rtt = Nanos::millis(21);
    world.sample = TcpSample { rtt, rtt_min: rtt, ..TcpSample::default() };
    let connection = world.ask(0, (0, 4_000_000), &full(20));
    let head = |world: &World| String::from_utf8_lossy(world.worker.head(connection)).into_owned();
    assert!(head(&world).contains("CMSD-Static: st=v\r\n"), "{}", head(&world));
    assert!(!head(&world).contains("CMSD-Dynamic:"));
    world.run(Instant(3_000_000_000), Nanos(0));
    world.ask_again(connection, (0, 1_000_000), &full(20));
    assert!(head(&world).contains("\r\nCMSD-Dynamic: \"nearcast\";rtt=21\r\n"));
}

#[test]
fn a_path_that_loses_packets_gets_shorter_bursts() {
    let pacing = PaceConfig { burst: Bytes::kib(64), burst_min: Bytes::kib(16), ..pacing() };
    let longest = |loses| {
        let mut world = World::new(pacing, 4);
        world.loses = loses;
        world.sample = TcpSample { window: 1000, segment: Bytes(1448), ..TcpSample::default() };
        world.ask(0, (0, 4_000_000), &full(20));
        world.run(Instant(3_000_000_000), Nanos(0));
        assert!(world.body_is(0, (0, 4_000_000)));
        let bursts = &world.bursts[&0];
        bursts[20..bursts.len() - 1].iter().map(|burst| burst.1).max().unwrap()
    };
    // A block's last burst takes what four packets leave of it.
    assert_eq!((longest(0), longest(3)), ((256 << 10) - 3 * 64_172, 16 << 10));
}

#[test]
fn nothing_goes_while_the_path_has_no_room_for_it() {
    let pacing = PaceConfig { burst: Bytes::kib(64), burst_min: Bytes::kib(16), ..pacing() };
    for says in [full(20), "br%3D5000%2Cbl%3D0%2Csu".to_owned()] {
        let mut world = World::new(pacing, 4);
        let (rtt, rtt_min) = (Nanos::millis(200), Nanos::millis(10));
        let segment = Bytes(1448);
        world.sample =
            TcpSample { rtt, rtt_min, window: 10, unacked: 200, segment, ..TcpSample::default() };
        let connection = world.ask(0, (0, 1_000_000), &says);
        world.run(Instant(1_000_000_000), Nanos(0));
        assert!(!world.bursts.contains_key(&0), "{says}: 290 KB are on their way");
        world.sample.unacked = 0;
        world.run(Instant(2_000_000_000), Nanos(0));
        assert!(world.body_is(0, (0, 1_000_000)), "{says}");
        assert_eq!(world.bursts[&0][0].1, 16 << 10, "{says}: TCP's window is 14 KB");
        // One that leaves while it waits for room leaves nothing behind.
        world.sample.unacked = 200;
        world.ask_again(connection, (0, 500_000), &says);
        world.run(Instant(3_000_000_000), Nanos(0));
        world.event(Event::Ended { connection });
        world.run(Instant(4_000_000_000), Nanos(0));
    }
}

/// With a small segment there is no room for a burst long before the socket is full.
#[test]
fn clients_that_take_nothing_between_bursts_give_their_turn_to_one_that_does() {
    let pacing = PaceConfig { burst: Bytes::kib(64), burst_min: Bytes::kib(8), ..pacing() };
    for takes in [0, 5] {
        let mut world = World::new(pacing, 4);
        world.expected = Some(Reason::Reset);
        let (rtt, rtt_min) = (Nanos::millis(1), Nanos::millis(1));
        let segment = Bytes(536);
        world.sample =
            TcpSample { rtt, rtt_min, window: 10, unacked: 10, segment, ..TcpSample::default() };
        for slot in 0..40 {
            world.ask(slot, (0, 4_000_000), &full(20));
        }
        for _ in 0..3 {
            // Some take a burst now and then, which gives them time anew to take the next.
            world.sample.unacked = 0;
            world.run(world.now + Nanos::millis(takes), Nanos(0));
            world.sample.unacked = 10;
            world.run(world.now + Nanos::seconds(1), Nanos(0));
        }
        let let_go = world.worker.counters().let_go_slow;
        assert!(
            (8..40).contains(&let_go),
            "{let_go}: 32 may transfer at once, and 8 wait for them"
        );
        world.sample.unacked = 0;
        world.ask(40, (0, 500_000), "");
        world.run(world.now + Nanos::seconds(1), Nanos(0));
        assert!(world.body_is(40, (0, 500_000)));
    }
}

#[test]
fn off_is_off() {
    let mut world = World::new(PaceConfig::OFF, 4);
    world.ask(0, (0, 2_000_000), &full(1));
    world.run(Instant(50_000_000), Nanos(0));
    assert!(world.body_is(0, (0, 2_000_000)));
    assert!(world.limits.is_empty());
    assert_eq!(world.worker.counters().paced, 0);
}

#[test]
fn slow_viewers_leave_buffers_for_others() {
    // Two may keep a chunk, twenty are there, and one buffer is left beside those.
    let mut world = World::new(pacing(), 3);
    for slot in 0..20 {
        world.ask(slot, (0, 500_000), &full(2));
    }
    world.run(Instant(100_000_000), Nanos(0));
    world.ask(20, (0, 1_000_000), "");
    world.run(Instant(160_000_000), Nanos(0));
    assert!(world.body_is(20, (0, 1_000_000)), "somebody without a pace is not held up");
    world.run(Instant(2_200_000_000), Nanos(0));
    for slot in 0..20 {
        assert!(world.body_is(slot, (0, 500_000)), "{slot} has starved");
    }
}

#[test]
fn a_client_that_leaves_between_bursts_leaves_nothing_behind() {
    let mut world = World::new(pacing(), 3);
    for round in 0..20 {
        let slot = round % 5;
        world.bodies.remove(&slot);
        let connection = world.ask(slot, (0, 1_000_000), &full(5));
        let next = world.now + Nanos(3_000_000 * u64::from(round % 7));
        world.run(next, Nanos(0));
        world.event(Event::Ended { connection });
    }
    let next = world.now + Nanos(10_000_000);
    world.run(next, Nanos(0));
    assert_eq!(world.worker.counters().open, 0);
    world.bodies.clear();
    world.reads.clear();
    let (after, whole) = (world.now, (0, 300_000));
    world.ask(0, whole, &full(20));
    world.ask(1, whole, &full(20));
    world.run(after + Nanos::seconds(1), Nanos(0));
    assert!(world.body_is(0, whole) && world.body_is(1, whole));
    assert_eq!(world.reads.len(), 4, "both keep their chunks: {:?}", world.reads);
}

#[test]
fn a_drive_that_hangs_between_bursts_costs_its_viewers_and_is_forgiven() {
    let mut world = World::new(pacing(), 4);
    let (whole, hangs_at) = ((0, 2_000_000), Instant(200_000_000));
    for slot in 0..4 {
        world.ask(slot, whole, &full(20));
    }
    world.run(hangs_at, Nanos(0));
    // From now on nothing is read, for ten seconds.
    world.read_takes = Nanos::seconds(10);
    world.expected = Some(Reason::Reset);
    world.run(Instant(9_000_000_000), Nanos(0));
    for slot in 0..4 {
        let sent = Bytes::of(world.bodies[&slot].len()).0;
        assert!(world.body_is(slot, (0, sent)) && sent < whole.1, "{sent}");
        let wanted_more_at = world.bursts[&slot].last().unwrap().0;
        let waited = world.closed[&slot].since(wanted_more_at);
        assert!((2000..=2300).contains(&waited.as_millis()), "{slot} waited for {waited}");
        assert!(keeps_to(&world.bursts[&slot], BitsPerSecond(20 * MBPS), 32 << 10));
    }
    assert_eq!(world.worker.hung(), DriveSet::from_iter([DriveIndex(0)]));
    let counters = world.worker.counters();
    assert_eq!((counters.aborted, counters.open), (4, 0));
    // It answers what it was asked long ago, and is as good as before.
    world.read_takes = Nanos(200_000);
    world.run(Instant(11_000_000_000), Nanos(0));
    assert_eq!(world.worker.hung(), DriveSet::NONE);
    world.expected = None;
    world.bodies.clear();
    world.reads.clear();
    let (after, some) = (world.now, (0, 300_000));
    for slot in 0..2 {
        world.ask(slot + 4, some, &full(20));
    }
    world.run(after + Nanos::seconds(1), Nanos(0));
    assert!(world.body_is(4, some) && world.body_is(5, some));
    assert_eq!(world.reads.len(), 4, "both keep their chunks: {:?}", world.reads);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Viewers of many rates and ranges, on a slow or fast drive, with slow or fast networks and a
    /// thread that wakes late: each is kept to its pace, gets its bytes, and nobody starves.
    #[test]
    fn everybody_has_their_pace(
        viewers in prop::collection::vec((1u64..60, 0u64..2_000_000, 50_000u64..900_000), 1..12),
        read_takes in 0u64..12_000_000,
        late in 0u64..1_500_000,
        loses in 0u32..2,
        send_takes in prop::collection::vec(0u64..3_000_000, 1..4),
        burst in prop::sample::select(vec![8u64, 16, 32, 64, 128]),
        keep in 0u16..6,
    ) {
        let burst_min = Bytes::kib(8);
        let pacing = PaceConfig { burst: Bytes::kib(burst), burst_min, buffers: keep, ..pacing() };
        let mut world = World::new(pacing, keep + 8);
        (world.read_takes, world.loses) = (Nanos(read_takes), loses);
        world.send_takes = send_takes.into_iter().map(Nanos).collect();
        for (slot, (mbps, from, len)) in (0..).zip(&viewers) {
            world.ask(slot, (*from, from + len), &full(*mbps));
        }
        // The slowest takes 7.2 s at its pace; twice that for drives and lateness.
        world.run(Instant(60_000_000_000), Nanos(late));
        for (slot, (mbps, from, len)) in (0..).zip(&viewers) {
            prop_assert!(world.body_is(slot, (*from, from + len)), "wrong or missing bytes");
            let rate = BitsPerSecond((mbps * MBPS).max(MBPS));
            // Where packets are lost, more is, since no more goes than there is room for.
            let made_up = Nanos::millis(if loses == 0 { 8 } else { 100 });
            let bursts = &world.bursts[&slot];
            prop_assert!(keeps_to_and(bursts, rate, burst << 10, made_up), "too fast");
        }
    }
}

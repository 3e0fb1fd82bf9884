//! The loop turn by turn: what strangers have done in one.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tls::Versions;
use worker::PaceConfig;

use super::*;
use crate::counters::now;
use crate::serving::listen;
use crate::serving::mailbox::mailbox;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

struct Bench {
    event_loop: EventLoop,
    completions: Vec<Completion>,
    turns: u64,
    secure: SocketAddr,
    plain: SocketAddr,
}

impl Bench {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut event_loop = EventLoop::new(Setup {
            config: config(),
            acceptor: Acceptor::new(vec![made.cert.der().clone()], key).unwrap(),
            drives: vec![None],
            blocking: DriveSet::NONE,
            mailbox: mailbox().unwrap().1,
            counters: Arc::default(),
            slices: (0..1).map(|_| DriveSlice::default()).collect(),
            log: None,
            views: None,
            report: Box::new(|finding| panic!("{finding:?}")),
            ring_is_made: || {},
            unsent_max: None,
            clients: None,
            ablation: Ablation::default(),
        })
        .unwrap();
        let [secure, plain] = [Some(Versions::Tls12Too), None].map(|versions| {
            let socket = listen::bind("127.0.0.1:0".parse().unwrap(), None, None).unwrap();
            listen::listen(&socket).unwrap();
            let socket = TcpListener::from(socket);
            let address = socket.local_addr().unwrap();
            event_loop.listen(vec![Listener { socket: socket.into(), versions }]);
            address
        });
        Self { event_loop, completions: Vec::new(), turns: 0, secure, plain }
    }

    fn turn(&mut self) {
        self.event_loop.turn(&mut self.completions).unwrap();
        self.turns += 1;
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&EventLoop) -> bool) {
        let began = std::time::Instant::now();
        while !done(&self.event_loop) {
            assert!(began.elapsed().as_secs() < 20, "in vain for {what}");
            self.turn();
        }
    }

    /// What `count` grows by, turn by turn, until it is `all`; turns of nothing are left out.
    fn growth(&mut self, all: u64, count: impl Fn(&EventLoop) -> u64) -> Vec<u64> {
        let (mut growth, mut before) = (vec![], count(&self.event_loop));
        while before < all {
            self.turn_until("more", |event_loop| count(event_loop) != before);
            let after = count(&self.event_loop);
            growth.push(after - before);
            before = after;
        }
        growth
    }

    /// Connections that were accepted.
    fn connect<const N: usize>(&mut self, to: SocketAddr) -> [TcpStream; N] {
        let before = open(&self.event_loop);
        let streams = [(); N].map(|()| TcpStream::connect(to).unwrap());
        let all = before + u64::try_from(N).unwrap();
        self.turn_until("those who came", |event_loop| open(event_loop) == all);
        streams
    }
}

fn config() -> Config {
    Config {
        connections_max: 64,
        handshakes_max: 64,
        transfers_max: 4,
        buffers: 4,
        hot_blocks: 0,
        file_slots: 8,
        drives: 1,
        drive_depth: 2,
        drive_opens: 4,
        read_targets: [Nanos::millis(5); model::limits::DRIVES_MAX],
        hang_after: Nanos::seconds(5),
        reset_after: Nanos::seconds(10),
        head_len_max: 8192,
        request_timeout: Nanos::seconds(60),
        idle_timeout: Nanos::seconds(60),
        token_leeway: Nanos::seconds(0),
        progress_timeout: Nanos::seconds(60),
        verify_every: 0,
        log_requests: false,
        views_max: 0,
        pacing: PaceConfig::OFF,
        incidents: None,
    }
}

fn open(event_loop: &EventLoop) -> u64 {
    event_loop.worker.counters().open
}

fn answers(event_loop: &EventLoop) -> u64 {
    event_loop.worker.counters().responses_4xx
}

/// Handshakes under way that satisfy this.
fn handshakes(event_loop: &EventLoop, of: impl Fn(&tls::Handshake) -> bool) -> u64 {
    let sockets = event_loop.sockets.iter().flatten();
    let found = sockets.filter(|socket| match &socket.transport {
        Transport::Handshake(handshake) => of(handshake.as_ref().unwrap()),
        Transport::Plain | Transport::Hello(_) | Transport::Secure(_) => false,
    });
    Bytes::of(found.count()).0
}

#[test]
fn who_asks_for_much_at_once_has_some_of_it_in_each_turn() {
    let mut bench = Bench::new();
    let [mut many, mut one] = bench.connect(bench.plain);
    many.write_all(&REQUEST.repeat(100)).unwrap();
    assert_eq!(bench.growth(17, answers), [17], "one, and sixteen that follow");
    one.write_all(REQUEST).unwrap();
    bench.turn();
    assert_eq!(answers(&bench.event_loop), 17 + 17 + 1, "both have their turn");
    one.set_nonblocking(true).unwrap();
    assert!(0 < one.read(&mut [0; 1024]).unwrap());
    assert_eq!(bench.growth(101, answers), [17, 17, 17, 15]);
    assert!(bench.event_loop.again.is_empty());
}

#[test]
fn a_client_that_went_while_it_was_put_off_is_forgotten() {
    let mut bench = Bench::new();
    let [mut many] = bench.connect(bench.plain);
    many.write_all(&REQUEST.repeat(40)).unwrap();
    bench.growth(17, answers);
    many.set_nonblocking(true).unwrap();
    // With nothing left to read, so that this is no reset.
    while many.read(&mut [0; 4096]).is_ok() {}
    drop(many);
    bench.turn_until("its end", |event_loop| open(event_loop) == 0);
    bench.turn_until("the list to be empty", |event_loop| event_loop.again.is_empty());
}

#[test]
fn each_thing_done_is_a_sign_of_life_and_of_those_put_off_a_turn_takes_some() {
    let mut bench = Bench::new();
    let life = |bench: &Bench| bench.event_loop.counters.life() - bench.turns;
    let mut streams: [TcpStream; 20] = bench.connect(bench.plain);
    for stream in &mut streams {
        stream.write_all(REQUEST).unwrap();
    }
    bench.turn_until("20 answers", |event_loop| answers(event_loop) == 20);
    assert!(40 <= life(&bench), "20 came, and asked: {}", life(&bench));
    let before = life(&bench);
    let nobody = |slot| ConnectionId { slot, generation: 0 };
    bench.event_loop.again.extend((1000..1300).map(nobody));
    bench.turn();
    assert_eq!(bench.event_loop.again.len(), 300 - COMPLETIONS_MAX);
    assert!(before + 256 <= life(&bench));
    assert_eq!(now(&bench.event_loop.counters.counts.open), 20);
}

/// A hello in two pieces: of its record, or in a record each.
fn hello(in_records: bool) -> [Vec<u8>; 2] {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
    let (first, rest) = hello.split_at(100);
    if !in_records {
        return [first.to_vec(), rest.to_vec()];
    }
    [&first[5..], rest].map(|part| {
        let len = u16::try_from(part.len()).unwrap().to_be_bytes();
        [&[22, 3, 1], &len[..], part].concat()
    })
}

#[test]
fn hellos_are_answered_one_by_one_however_they_are_cut() {
    for in_records in [false, true] {
        let mut bench = Bench::new();
        let [first, rest] = hello(in_records);
        let mut streams: [TcpStream; 20] = bench.connect(bench.secure);
        streams.iter_mut().for_each(|stream| stream.write_all(&first).unwrap());
        bench.turn_until("first pieces", |event_loop| handshakes(event_loop, |_| true) == 20);
        let answered =
            |event_loop: &EventLoop| handshakes(event_loop, tls::Handshake::has_answered);
        assert_eq!(answered(&bench.event_loop), 0);
        streams.iter_mut().for_each(|stream| stream.write_all(&rest).unwrap());
        let growth = bench.growth(20, answered);
        assert!(growth.iter().all(|more| *more <= 8), "{growth:?}");
        assert_eq!(growth.first(), Some(&1), "while they came, something else was to do");
        assert_eq!(bench.event_loop.hellos.len(), 0);
    }
}

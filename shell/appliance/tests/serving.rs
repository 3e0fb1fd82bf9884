//! The event loop on real sockets and a real file, without storage or control around it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod film;
mod holdup;
mod queues;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use appliance::counters::{DriveSlice, ServeCounters};
use appliance::process::config::Text;
use appliance::serving::ablation::{Ablation, Sending};
use appliance::serving::event_loop::{self, Finding, Setup};
use appliance::serving::listen::{self, Listener};
use appliance::serving::mailbox::{Letter, Sender, mailbox};
use appliance::serving::request_log;
use film::publish;
use holdup::{PACKET, settled};
use model::drives::DriveSet;
use model::limits::DRIVES_MAX;
use model::units::{BitsPerSecond, Bytes, Nanos};
use queues::{ports, queues};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tls::{Acceptor, Versions};
use upkeep::Sample;
use worker::{Config, Incident, IncidentBounds, PaceConfig, Reason};

const LEN: usize = 3_000_000;
const CHUNK: u64 = 262_144;

struct Served {
    secure: SocketAddr,
    /// Takes TLS 1.2 too.
    older: SocketAddr,
    plain: SocketAddr,
    client: Arc<ClientConfig>,
    roots: RootCertStore,
    sender: Sender,
    counters: Arc<ServeCounters>,
    thread: JoinHandle<Result<(), uring::RingError>>,
    path: String,
    content: Vec<u8>,
    /// Blocks that were given to be verified.
    sampled: Arc<Mutex<Vec<Sample>>>,
    acceptor: Acceptor,
    directory: tempfile::TempDir,
    incidents: Arc<Mutex<Vec<Incident>>>,
}

fn serve() -> Served {
    serve_without(Ablation::default())
}

/// With something switched off, as for a measurement.
fn serve_without(ablation: Ablation) -> Served {
    serve_with(ablation, None)
}

fn serve_with(ablation: Ablation, unsent_max: Option<Bytes>) -> Served {
    serve_as(config(), ablation, unsent_max)
}

fn serve_as(config: Config, ablation: Ablation, unsent_max: Option<Bytes>) -> Served {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let content: Vec<u8> = (0..LEN).map(|i| (i * 131 + i / 4096 * 7).to_le_bytes()[0]).collect();
    std::fs::write(directory.path().join("o"), [&content[..], &[0; 4096]].concat()).unwrap();

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let acceptor = Acceptor::new(vec![made.cert.der().clone()], key).unwrap();
    let client = trusting(made.cert.der());
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();

    let versions = [Some(Versions::Tls13), Some(Versions::Tls12Too), None];
    let listeners = versions.map(|versions| {
        let socket = listen::bind("127.0.0.1:0".parse().unwrap(), None, unsent_max).unwrap();
        listen::listen(&socket).unwrap();
        let socket = TcpListener::from(socket);
        (socket.local_addr().unwrap(), Listener { socket: socket.into(), versions })
    });
    let [(secure, first), (older, second), (plain, third)] = listeners;
    let (sender, letters) = mailbox().unwrap();
    let counters = Arc::new(ServeCounters::default());
    let sampled: Arc<Mutex<Vec<Sample>>> = Arc::default();
    let samples = sampled.clone();
    let incidents: Arc<Mutex<Vec<Incident>>> = Arc::default();
    let happened = incidents.clone();
    let room = Bytes::mib(1);
    let (mut logs, _) = request_log::start(directory.path(), room, 1, || {}).unwrap();
    let setup = Setup {
        config,
        acceptor: acceptor.clone(),
        drives: vec![Some(Arc::new(std::fs::File::open(directory.path()).unwrap().into()))],
        blocking: DriveSet::NONE,
        mailbox: letters,
        counters: counters.clone(),
        slices: (0..1).map(|_| DriveSlice::default()).collect(),
        log: logs.pop(),
        views: None,
        report: Box::new(move |finding| match finding {
            Finding::Fault(_, _, fault) => panic!("drive fault {fault:?}"),
            Finding::Sample(sample) => samples.lock().unwrap().push(sample),
            Finding::Incident(incident) => happened.lock().unwrap().push(*incident),
        }),
        ring_is_made: || {},
        unsent_max,
        clients: None,
        ablation,
    };
    let thread = std::thread::spawn(move || event_loop::run(setup));
    let path = publish(&sender, LEN);
    sender.send(Letter::Listen(vec![first, second, third]));
    Served {
        secure,
        older,
        plain,
        client,
        roots,
        sender,
        counters,
        thread,
        path,
        content,
        sampled,
        acceptor,
        directory,
        incidents,
    }
}

/// A client that believes this certificate and no other.
fn trusting(certificate: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

fn config() -> Config {
    Config {
        connections_max: 64,
        handshakes_max: 16,
        transfers_max: 16,
        buffers: 8,
        hot_blocks: 0,
        file_slots: 32,
        drives: 1,
        drive_depth: 8,
        drive_opens: 4,
        read_targets: [Nanos::millis(5); DRIVES_MAX],
        hang_after: Nanos::seconds(5),
        reset_after: Nanos::seconds(10),
        head_len_max: 8192,
        request_timeout: Nanos::seconds(2),
        idle_timeout: Nanos::seconds(30),
        token_leeway: Nanos::seconds(0),
        progress_timeout: Nanos::seconds(30),
        verify_every: 4,
        log_requests: true,
        views_max: 0,
        pacing: PaceConfig::OFF,
        incidents: Some(IncidentBounds {
            drive_wait: Nanos::seconds(60),
            client_rate: BitsPerSecond(1),
        }),
    }
}

impl Served {
    fn connect(&self) -> StreamOwned<ClientConnection, TcpStream> {
        self.connect_as(&self.client)
    }

    fn connect_as(&self, config: &Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        Self::connect_at(self.secure, config)
    }

    fn connect_at(
        at: SocketAddr,
        config: &Arc<ClientConfig>,
    ) -> StreamOwned<ClientConnection, TcpStream> {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(config.clone(), name).unwrap();
        let socket = TcpStream::connect(at).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        StreamOwned::new(connection, socket)
    }

    /// In plain. Its window does not grow, so that it takes little at once however fast it reads.
    fn connect_with_small_buffer(&self) -> TcpStream {
        let stream = TcpStream::connect(self.plain).unwrap();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 32 * 1024).unwrap();
        stream
    }

    fn request(&self, from: usize, to: usize) -> String {
        format!("GET {} HTTP/1.1\r\nHost: a\r\nRange: bytes={from}-{to}\r\n\r\n", self.path)
    }

    /// The request log, once there is something in it.
    fn logged(&self) -> String {
        let path = self.directory.path().join(request_log::NAME);
        let mut text = String::new();
        wait("a line of the request log", || {
            text = std::fs::read_to_string(&path).unwrap();
            text.ends_with('\n')
        });
        text
    }

    fn stop(self) -> Duration {
        let start = Instant::now();
        self.sender.send(Letter::Stop(Nanos::seconds(3)));
        self.thread.join().unwrap().unwrap();
        start.elapsed()
    }
}

fn response(stream: &mut dyn Read, body_len: usize) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let mut body = vec![0; body_len];
    stream.read_exact(&mut body).unwrap();
    (String::from_utf8(head).unwrap(), body)
}

#[test]
fn ranges_come_right_over_tls_and_plain_on_kept_connections() {
    let served = serve();
    let mut secure = served.connect();
    let mut plain = TcpStream::connect(served.plain).unwrap();
    for (from, to) in [(0, 0), (1, 2_999_999), (262_143, 800_000), (4096, 8191), (77, 1_000_000)] {
        let request = served.request(from, to);
        secure.write_all(request.as_bytes()).unwrap();
        plain.write_all(request.as_bytes()).unwrap();
        let streams: [&mut dyn Read; 2] = [&mut secure, &mut plain];
        for stream in streams {
            let (head, body) = response(stream, to + 1 - from);
            assert!(head.starts_with("HTTP/1.1 206 Partial Content\r\n"), "{head}");
            assert!(body == served.content[from..=to], "wrong bytes in {from}-{to}");
        }
    }
    assert!(served.stop() < Duration::from_secs(1), "idle connections do not hold up a stop");
}

#[test]
fn players_of_tls_1_2_get_the_same_bytes_where_a_listener_takes_them() {
    let served = serve();
    let default = rustls::crypto::aws_lc_rs::default_provider();
    let suites = default.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
    // The certificate of these tests is of ECDSA.
    let suites: Vec<_> = suites.filter(|suite| format!("{suite:?}").contains("ECDSA")).collect();
    assert_eq!(suites.len(), 3, "AES-128, AES-256 and ChaCha20");
    for suite in suites {
        let provider = Arc::new(CryptoProvider { cipher_suites: vec![*suite], ..default.clone() });
        let config = ClientConfig::builder_with_provider(provider);
        let config = config.with_protocol_versions(&[&rustls::version::TLS12]).unwrap();
        let config = config.with_root_certificates(served.roots.clone()).with_no_client_auth();
        let config = Arc::new(config);
        // The second time with a ticket.
        for _ in 0..2 {
            let mut older = Served::connect_at(served.older, &config);
            for (from, to) in [(0, LEN - 1), (4095, 700_001), (LEN - 1, LEN - 1)] {
                older.write_all(served.request(from, to).as_bytes()).unwrap();
                let (_, body) = response(&mut older, to + 1 - from);
                assert!(body == served.content[from..=to], "wrong bytes under {suite:?}");
            }
        }
        let refused = Served::connect_at(served.secure, &config).write_all(b"GET");
        assert!(refused.unwrap_err().to_string().contains("ProtocolVersion"));
    }
    let mut newer = Served::connect_at(served.older, &served.client);
    newer.write_all(served.request(0, 9).as_bytes()).unwrap();
    response(&mut newer, 10);
    assert_eq!(newer.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    served.stop();
}

#[test]
fn what_is_switched_off_for_a_measurement_changes_no_byte() {
    let full = Ablation::default();
    for ablation in [
        Ablation { direct_reads: false, ..full },
        Ablation { record_len: Text(Bytes::kib(4)), ..full },
        Ablation { sending: Sending::Ring, ..full },
        Ablation { sending: Sending::RingBatched, record_len: Text(Bytes::kib(1)), ..full },
    ] {
        let served = serve_without(ablation);
        let mut secure = served.connect();
        for (from, to) in [(0, LEN - 1), (4095, 700_001), (LEN - 1, LEN - 1)] {
            secure.write_all(served.request(from, to).as_bytes()).unwrap();
            let (_, body) = response(&mut secure, to + 1 - from);
            assert!(body == served.content[from..=to], "wrong bytes with {ablation:?}");
        }
        served.stop();
    }
}

#[test]
fn a_client_that_does_not_read_holds_little_of_the_kernel_and_gets_every_byte() {
    let queued = |unsent_max: Option<Bytes>| {
        let served = serve_with(Ablation::default(), unsent_max);
        let mut stream = served.connect();
        stream.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
        let queued = settled(|| queues(ports(&stream.sock)).0);
        let (_, body) = response(&mut stream, LEN);
        assert!(body == served.content, "wrong bytes with {unsent_max:?}");
        served.stop();
        queued
    };
    let bound = Bytes::kib(128);
    let shallow = queued(Some(bound));
    assert!((1..=(bound + PACKET).0).contains(&shallow), "{shallow} bytes");
    let deep = queued(None);
    assert!(3 * shallow < deep, "{deep} bytes without a bound, {shallow} with it");
}

#[test]
fn for_a_slow_client_nothing_is_sealed_before_there_is_room() {
    let served = serve_with(Ablation::default(), Some(Bytes::kib(512)));
    let mut stream = served.connect_with_small_buffer();
    stream.write_all(served.request(LEN - 2_000_000, LEN - 1).as_bytes()).unwrap();
    let [ours, theirs] = ports(&stream);
    let (mut received, mut kept) = (0, Vec::new());
    let mut part = vec![0; 64 * 1024];
    while received < 2_000_000 {
        let queued = settled(|| queues([ours, theirs]).0 + queues([theirs, ours]).1);
        let sent = served.counters.counts.body_bytes.load(Ordering::Relaxed);
        kept.push(sent.saturating_sub(received + queued));
        received += Bytes::of(stream.read(&mut part).unwrap()).0;
    }
    // The first time that it takes less than it is sent, the rest of that has been sealed.
    let looks = kept.len();
    kept.dedup();
    assert!(8 < looks && matches!(kept[..], [1..=CHUNK, 0]), "{kept:?}");
    served.stop();
}

#[test]
fn a_client_that_is_fast_again_is_read_for_before_there_is_room() {
    let served = serve_with(Ablation::default(), Some(Bytes::kib(512)));
    let mut stream = served.connect_with_small_buffer();
    stream.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    let [ours, theirs] = ports(&stream);
    let (mut received, mut kept) = (0, Vec::new());
    let mut part = vec![0; 640 * 1024];
    for _ in 0..4 {
        let queued = settled(|| queues([ours, theirs]).0 + queues([theirs, ours]).1);
        let sent = served.counters.counts.body_bytes.load(Ordering::Relaxed);
        kept.push(sent.saturating_sub(received + queued));
        // Fast, for two chunks and more, and then it stops: one is sealed that the kernel does not
        // take whole.
        stream.read_exact(&mut part).unwrap();
        received += Bytes::of(part.len()).0;
    }
    // Once is before it was known to be slow; and not each time, since this machine may be busy.
    assert!(2 <= kept.iter().filter(|len| **len != 0).count(), "{kept:?}");
    served.stop();
}

#[test]
fn a_player_that_pauses_near_the_end_has_been_served() {
    let served = serve_with(Ablation::default(), Some(Bytes::kib(512)));
    let mut stream = served.connect_with_small_buffer();
    // The last chunk is a whole one, which is half of what waits at most.
    let (from, to) = (6 * 262_144, 11 * 262_144);
    let request = served.request(from, to - 1);
    let request = request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let ports = ports(&stream);
    let (mut all, mut part) = (Vec::new(), vec![0; 64 * 1024]);
    while served.counters.counts.body_bytes.load(Ordering::Relaxed) < Bytes::of(to - from).0 {
        settled(|| queues(ports).0);
        stream.read_exact(&mut part).unwrap();
        all.extend_from_slice(&part);
    }
    // From now on nothing is read.
    wait("the end of the response", || served.counters.counts.open.load(Ordering::Relaxed) == 0);
    assert_eq!(served.logged().split_whitespace().next_back(), Some("whole"));
    let before = all.len();
    stream.read_to_end(&mut all).unwrap();
    assert!(256 * 1024 < all.len() - before, "{} to come", all.len() - before);
    assert!(all.ends_with(&served.content[from..to]), "nothing is lost");
    served.stop();
}

#[test]
fn a_client_that_is_waited_for_and_resets_is_not_read_for_and_not_served_whole() {
    let served = serve_with(Ablation::default(), Some(Bytes::kib(512)));
    let mut stream = TcpStream::connect(served.plain).unwrap();
    stream.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    let ports = ports(&stream);
    let reads = || served.counters.counts.reads.load(Ordering::Relaxed);
    // It is known to be slow when it has been cut, and has taken two chunks since.
    let settle = || settled(|| queues(ports).0);
    settle();
    let cut_at = reads();
    let mut part = vec![0; 64 * 1024];
    while reads() < cut_at + 2 {
        stream.read_exact(&mut part).unwrap();
        settle();
    }
    let asked = reads();
    drop(stream); // With bytes unread: a reset.
    wait("the end of its connection", || served.counters.counts.open.load(Ordering::Relaxed) == 0);
    assert_eq!(reads(), asked, "nothing more is read for it");
    assert_eq!(served.logged().split_whitespace().next_back(), Some("cut"));
    served.stop();
}

#[test]
fn as_much_may_wait_as_is_on_its_way() {
    let bound = Bytes::kib(128);
    let served = serve_with(Ablation::default(), Some(bound));
    let mut stream = holdup::connect(served.plain.port());
    holdup::cut_off(&stream);
    stream.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    let queued = settled(|| queues(ports(&stream)).0);
    assert!(holdup::without_raising(bound) < queued, "{queued} bytes");
    drop(stream);
    served.stop();
}

#[test]
fn what_is_sampled_on_the_way_to_a_viewer_is_what_the_block_hashes_to() {
    let served = serve();
    let mut plain = TcpStream::connect(served.plain).unwrap();
    plain.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    let _ = response(&mut plain, LEN);
    let sampled = served.sampled.lock().unwrap().clone();
    // Eleven whole blocks and the end of the object; one for four blocks' worth is verified.
    assert_eq!(sampled.iter().map(|sample| sample.block).collect::<Vec<_>>(), [3, 7]);
    for sample in sampled {
        let from = usize::try_from(sample.block).unwrap() * 262_144;
        let block = &served.content[from..LEN.min(from + 262_144)];
        assert_eq!(sample.hash, Some(model::object::block_hash(sample.block, block, false)));
    }
    served.stop();
}

#[test]
fn many_connections_with_pipelined_requests_get_every_byte() {
    let served = Arc::new(serve());
    let clients: Vec<_> = (0..12)
        .map(|n| {
            let served = served.clone();
            std::thread::spawn(move || {
                let mut stream = served.connect();
                let ranges: Vec<_> =
                    (0..20).map(|i| (i * 100_003 + n * 7, i * 100_003 + n * 7 + 400_000)).collect();
                let all: String =
                    ranges.iter().map(|(from, to)| served.request(*from, *to)).collect();
                stream.write_all(all.as_bytes()).unwrap();
                for (from, to) in ranges {
                    let (_, body) = response(&mut stream, to + 1 - from);
                    assert!(body == served.content[from..=to], "wrong bytes in {from}-{to}");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(served.counters.counts.responses_2xx.load(Ordering::Relaxed), 240);
    Arc::into_inner(served).unwrap().stop();
}

#[test]
fn more_requests_than_one_receive_takes_and_a_goodbye_are_all_seen() {
    const COUNT: usize = 600;
    let served = serve();
    let all: String = (0..COUNT).map(|i| served.request(i, i + 1)).collect();
    assert!(2 * 32 * 1024 < all.len(), "three receives, at least");
    for (secure, goodbye) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut tls = served.connect();
        let mut plain = TcpStream::connect(served.plain).unwrap();
        plain.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        tls.sock.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let stream: &mut dyn Read = if secure {
            tls.write_all(all.as_bytes()).unwrap();
            if goodbye {
                tls.conn.send_close_notify();
                tls.flush().unwrap();
                tls.sock.shutdown(Shutdown::Write).unwrap();
            }
            &mut tls
        } else {
            plain.write_all(all.as_bytes()).unwrap();
            if goodbye {
                plain.shutdown(Shutdown::Write).unwrap();
            }
            &mut plain
        };
        for i in 0..COUNT {
            let (_, body) = response(stream, 2);
            assert!(body == served.content[i..i + 2], "wrong bytes in answer {i}");
        }
        if goodbye {
            let rest = stream.read(&mut [0]).unwrap();
            assert_eq!(rest, 0, "the connection ends when both have said goodbye");
        }
    }
    served.stop();
}

#[test]
fn a_client_that_does_not_read_holds_up_nobody_and_a_stop_ends_it() {
    let served = serve();
    let mut slow = served.connect();
    for _ in 0..20 {
        slow.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut quick = served.connect();
    quick.write_all(served.request(5, 100_000).as_bytes()).unwrap();
    assert!(response(&mut quick, 99_996).1 == served.content[5..=100_000]);
    let took = served.stop();
    assert!(took < Duration::from_secs(6), "stopped within its bound, took {took:?}");
}

#[test]
fn a_client_that_takes_nothing_is_seen_in_what_tcp_says() {
    let served = serve();
    let mut slow = served.connect();
    for _ in 0..20 {
        slow.write_all(served.request(0, LEN - 1).as_bytes()).unwrap();
    }
    let start = Instant::now();
    while served.incidents.lock().unwrap().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(10), "somebody asked");
        served.sender.send(Letter::Incidents);
        std::thread::sleep(Duration::from_millis(50));
    }
    // Asked while it was under way, until it had waited for its client.
    let stuck = loop {
        let found = served.incidents.lock().unwrap().iter().rev().find_map(|incident| {
            let text = incident.text();
            (text.contains("slow: the client") && text.contains(" tcp rtt ")).then_some(text)
        });
        if let Some(text) = found {
            break text;
        }
        assert!(start.elapsed() < Duration::from_secs(10), "it is stuck");
        served.sender.send(Letter::Incidents);
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(stuck.contains("reason: requested"), "{stuck}");
    assert!(!stuck.contains("127.0.0.1") && !stuck.contains(&served.path), "{stuck}");
    let incidents = served.incidents.clone();
    served.stop();
    let all = incidents.lock().unwrap();
    assert!(all.iter().any(|incident| incident.reason == Reason::Reset), "at the stop's deadline");
}

#[test]
fn silent_and_slow_clients_are_let_go() {
    let served = serve();
    let mut silent = TcpStream::connect(served.secure).unwrap();
    let mut slow = TcpStream::connect(served.plain).unwrap();
    for socket in [&silent, &slow] {
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    }
    slow.write_all(b"GET / HTT").unwrap();
    let start = Instant::now();
    let mut byte = [0];
    for socket in [&mut silent, &mut slow] {
        assert!(matches!(socket.read(&mut byte), Ok(0) | Err(_)));
    }
    assert!(start.elapsed() < Duration::from_secs(9), "2 s allowed, looked at each second");
    // Counted when the worker's turn is over, which is just after the sockets were closed.
    while served.counters.counts.timed_out.load(Ordering::Relaxed) != 2 {
        assert!(start.elapsed() < Duration::from_secs(12), "both are counted");
        std::thread::sleep(Duration::from_millis(5));
    }
    served.stop();
}

#[test]
fn what_is_not_tls_gets_an_alert_and_what_is_not_http_a_400() {
    let served = serve();
    let mut wrong = TcpStream::connect(served.secure).unwrap();
    wrong.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = wrong.read_to_end(&mut answer);
    assert_eq!(answer.first(), Some(&21), "a TLS alert");
    let mut stream = served.connect();
    stream.write_all(b"\x01\x02 nonsense\r\n\r\n").unwrap();
    let (head, _) = response(&mut stream, 0);
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(head.contains("Connection: close"));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    served.stop();
}

#[test]
fn a_new_certificate_is_shown_to_newcomers_while_a_transfer_goes_on() {
    let served = serve();
    let mut before = served.connect();
    let all: String = (0..4).map(|_| served.request(0, LEN - 1)).collect();
    before.write_all(all.as_bytes()).unwrap();
    let (_, body) = response(&mut before, LEN);
    assert!(body == served.content);

    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let [chain, key] = ["c.pem", "k.pem"].map(|name| served.directory.path().join(name));
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    served.acceptor.load(0, &chain, &key).unwrap();
    // The other three responses are more than sockets hold: this one is under way.
    let mut after = served.connect_as(&trusting(made.cert.der()));
    after.write_all(served.request(7, 77).as_bytes()).unwrap();
    assert!(response(&mut after, 71).1 == served.content[7..=77]);
    let mut anew = ClientConfig::clone(&served.client);
    anew.resumption = Resumption::disabled();
    let mut old = served.connect_as(&Arc::new(anew));
    assert!(old.write_all(b"GET").is_err(), "what was shown before is not shown any more");
    for _ in 1..4 {
        assert!(response(&mut before, LEN).1 == served.content);
    }
    served.stop();
}

#[test]
fn handshakes_that_go_no_further_keep_no_player_out() {
    let served = serve();
    let mut player = served.connect();
    player.write_all(served.request(0, 9).as_bytes()).unwrap();
    let _ = response(&mut player, 10);
    let name = ServerName::try_from("localhost").unwrap();
    let mut hello = Vec::new();
    let mut connection = ClientConnection::new(served.client.clone(), name).unwrap();
    connection.write_tls(&mut hello).unwrap();
    let held: Vec<TcpStream> = (0..60)
        .map(|n| {
            let mut socket = TcpStream::connect(served.secure).unwrap();
            // Some say nothing at all.
            socket.write_all(if n % 3 == 0 { b"" } else { &hello }).unwrap();
            socket
        })
        .collect();
    let mut newcomer = served.connect();
    newcomer.write_all(served.request(5, 50_000).as_bytes()).unwrap();
    assert!(response(&mut newcomer, 49_996).1 == served.content[5..=50_000]);
    player.write_all(served.request(1, 2).as_bytes()).unwrap();
    assert!(response(&mut player, 2).1 == served.content[1..=2], "who is in stays in");
    // 62 came, two are players, and sixteen may shake hands at once.
    let let_go = || served.counters.counts.let_go_handshakes.load(Ordering::Relaxed);
    wait("the others to be let go", || let_go() == 60 - 15);
    drop(held);
    served.stop();
}

#[test]
fn clients_that_take_nothing_give_their_turn_to_one_that_does() {
    let served = serve();
    let slow = (0..20).map(|_| TcpStream::connect(served.plain).unwrap()).collect();
    let request = served.request(0, LEN - 1);
    give_their_turn(served, slow, &request);
}

/// Their window is a few small segments: their bursts wait for room, and not in the socket.
#[test]
fn paced_clients_that_take_nothing_give_their_turn_too() {
    let (burst, burst_min) = (Bytes::kib(128), Bytes::kib(8));
    let mode = worker::PaceMode::Own;
    let pacing = PaceConfig { mode, burst, burst_min, buffers: 8, ..PaceConfig::OFF };
    let config = Config { pacing, buffers: config().buffers + 8, ..config() };
    let served = serve_as(config, Ablation::default(), None);
    let small = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
        let socket = socket.unwrap();
        socket.set_tcp_mss(536).unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        socket.connect(&served.plain.into()).unwrap();
        TcpStream::from(socket)
    };
    let slow = (0..20).map(|_| small()).collect();
    let request = served.request(0, LEN - 1);
    let says = "?CMCD=br%3D500%2Cbl%3D30000%2Crtp%3D20000 HTTP";
    let request = request.replacen(" HTTP", says, 1);
    give_their_turn(served, slow, &request);
}

fn give_their_turn(served: Served, mut slow: Vec<TcpStream>, request: &str) {
    for socket in &mut slow {
        socket.write_all(request.repeat(6).as_bytes()).unwrap();
    }
    // Sixteen may transfer at once, and four wait for those that take nothing.
    let let_go = || served.counters.counts.let_go_slow.load(Ordering::Relaxed);
    wait("four to be let go", || 4 <= let_go());
    let began = Instant::now();
    let mut quick = served.connect();
    quick.write_all(served.request(5, 600_000).as_bytes()).unwrap();
    assert!(response(&mut quick, 599_996).1 == served.content[5..=600_000]);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "without, it is 30 s until one is given up: {took:?}");
    assert!((4..=20).contains(&let_go()), "{} let go for those that waited", let_go());
    drop(slow);
    served.stop();
}

/// Waits for something that must come; 20 s is far more than it takes.
fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

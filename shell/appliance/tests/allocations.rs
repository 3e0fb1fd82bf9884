//! A worker allocates nothing per request once it is warm: over TLS, from hot blocks and from a
//! drive, with its requests logged, and to clients that are slow to read.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod film;
mod queues;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use appliance::counters::{DriveSlice, ServeCounters};
use appliance::serving::ablation::Ablation;
use appliance::serving::event_loop::{self, Setup};
use appliance::serving::listen::{self, Listener};
use appliance::serving::mailbox::{Letter, mailbox};
use appliance::serving::request_log;
use film::publish;
use model::drives::DriveSet;
use model::limits::DRIVES_MAX;
use model::units::{BitsPerSecond, Bytes, Nanos};
use model::update::Update;
use queues::{ports, queues};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};
use tls::{Acceptor, Kernel, Kernels};
use uring::allocations;
use worker::{Config, IncidentBounds, PaceConfig};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

const LEN: usize = 8_000_000;
/// Of the object's 31 blocks.
const HOT_BLOCKS: u16 = 8;
const CLIENTS: usize = 4;
/// More than a client's window: something of it waits in the server's socket, and the rest of a
/// chunk in the worker's memory.
const LONG: usize = 200_000;
/// Longer than a fast client is waited for.
const HOLDS: Duration = Duration::from_millis(60);
const WARM_UP: usize = 1500;
const COUNTED: usize = 1000;

fn config() -> Config {
    Config {
        connections_max: 64,
        handshakes_max: 16,
        transfers_max: 16,
        buffers: 8,
        hot_blocks: HOT_BLOCKS,
        file_slots: 32,
        drives: 1,
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
        verify_every: 4,
        log_requests: true,
        views_max: 64,
        pacing: PaceConfig::OFF,
        incidents: Some(IncidentBounds {
            drive_wait: Nanos::seconds(60),
            client_rate: BitsPerSecond(1),
        }),
    }
}

struct Client {
    stream: StreamOwned<ClientConnection, TcpStream>,
    body: Vec<u8>,
    /// It reads what is long when its own end is full, and the server's holds the rest.
    slow: bool,
}

/// Its window stays as it is, and is smaller than `LONG`.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.connect(&address.into()).unwrap();
    TcpStream::from(socket)
}

impl Client {
    fn new(trusting: &Arc<ClientConfig>, address: SocketAddr, slow: bool) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(trusting.clone(), name).unwrap();
        Self { stream: StreamOwned::new(connection, connect(address)), body: Vec::new(), slow }
    }

    /// One range on the kept connection, compared with what it should be.
    fn get(&mut self, path: &str, content: &[u8], from: usize, len: usize) {
        let to = from + len - 1;
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nRange: bytes={from}-{to}\r\n\r\n");
        self.stream.write_all(request.as_bytes()).unwrap();
        if self.slow && LONG < len {
            while queues(ports(&self.stream.sock)).0 == 0 {
                std::thread::yield_now();
            }
            // Who is waited for so long is slow, and is asked for room before its next chunk.
            std::thread::sleep(if len.is_multiple_of(8) { HOLDS } else { Duration::ZERO });
        }
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 206 "));
        self.body.resize(len, 0);
        self.stream.read_exact(&mut self.body).unwrap();
        assert!(self.body == content[from..=to], "wrong bytes in {from}-{to}");
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

#[test]
fn a_warm_worker_allocates_nothing_per_request() {
    // One after the other: what is counted is the process's.
    for kernel in Kernel::ALL {
        check(Kernels { aes_128: kernel, aes_256: kernel }, None);
    }
    check(Kernels::default(), Some(Bytes::kib(16)));
}

/// With a bound, clients are slow: their sockets are full whenever they begin to read.
fn check(kernels: Kernels, unsent_max: Option<Bytes>) {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let content: Vec<u8> = (0..LEN).map(|i| (i * 131 + i / 4096 * 7).to_le_bytes()[0]).collect();
    std::fs::write(directory.path().join("o"), [&content[..], &[0; 4096]].concat()).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let trusting = trusting(made.cert.der());
    let socket = listen::bind("127.0.0.1:0".parse().unwrap(), None, unsent_max).unwrap();
    listen::listen(&socket).unwrap();
    let socket = TcpListener::from(socket);
    let address = socket.local_addr().unwrap();
    let (sender, letters) = mailbox().unwrap();
    let counters = Arc::new(ServeCounters::default());
    let room = Bytes::mib(16);
    let (mut logs, log_thread) = request_log::start(directory.path(), room, 1, || {}).unwrap();
    let setup = Setup {
        config: config(),
        acceptor: Acceptor::new(vec![made.cert.der().clone()], key).unwrap().sealed_by(kernels),
        drives: vec![Some(Arc::new(std::fs::File::open(directory.path()).unwrap().into()))],
        blocking: DriveSet::NONE,
        mailbox: letters,
        counters: counters.clone(),
        slices: (0..1).map(|_| DriveSlice::default()).collect(),
        log: logs.pop(),
        views: None,
        unsent_max,
        clients: None,
        ablation: Ablation::default(),
        report: Box::new(|_| {}),
        ring_is_made: allocations::count_this_thread,
    };
    let thread = std::thread::spawn(move || event_loop::run(setup));
    let path = publish(&sender, LEN);
    // For a drive that hangs, each request is kept in the form that a sibling would be asked in.
    let urls = [("a2".parse().unwrap(), Arc::from("https://a2.example"))].into();
    sender.send(Letter::Update(Update::Siblings(Arc::new(urls))));
    sender.send(Letter::Listen(vec![Listener {
        socket: socket.into(),
        versions: Some(tls::Versions::Tls13),
    }]));

    let client = || Client::new(&trusting, address, unsent_max.is_some());
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| client()).collect();
    let mut ask = |number: usize| {
        // Mostly the beginning, which becomes hot; every fourth somewhere else, from the drive.
        let place = number * 7_919 % 1_500_000;
        let from = if number.is_multiple_of(4) { place * 5 } else { place };
        clients[number % CLIENTS].get(&path, &content, from, 1 + number * 613 % 300_000);
    };
    (0..WARM_UP).for_each(&mut ask);
    let counted = |of: fn(&ServeCounters) -> u64| of(&counters);
    let reads = || counted(|c| c.counts.reads.load(Ordering::Relaxed));
    let hot = || counted(|c| c.counts.hot_chunks.load(Ordering::Relaxed));
    let before = (allocations::count(), reads(), hot());
    assert!(100 < before.0, "what is allocated before is counted");
    (WARM_UP..WARM_UP + COUNTED).for_each(&mut ask);
    let after = (allocations::count(), reads(), hot());
    let last = allocations::last_len();
    assert!(before.1 + 100 < after.1 && before.2 + 100 < after.2, "{before:?} {after:?}");
    assert_eq!(
        after.0 - before.0,
        0,
        "allocations in {COUNTED} requests, the last of {last} bytes"
    );
    sender.send(Letter::Stop(Nanos::seconds(1)));
    thread.join().unwrap().unwrap();
    log_thread.join().unwrap();
}

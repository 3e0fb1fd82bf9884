//! The load client against a small server of our own, over sockets, and against its faults.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::pki_types::PrivateKeyDer;
use rustls::server::ProducesTickets;
use rustls::{ServerConfig, ServerConnection};

use super::starts::each_once;
use super::*;

const CONNECTIONS: usize = 3;
const RESPONSES: u64 = 30;
const FILE_LEN: usize = 300_000;
const RANGE_LEN: u64 = 100_000;
const CONTENT: Pattern = Pattern { seed: 77 };

/// What the server does wrong, or in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Head and body in one write: they share a record.
    Together,
    /// The head in a record of its own, the body in records of 1,000 bytes.
    Apart,
    /// Its keys change in the middle of each body.
    KeyUpdate,
    /// They change right behind each body, so that one read has both.
    KeyUpdateBehind,
    WrongByte,
    WrongLength,
    WrongStatus,
    Short,
    NoTls,
    Silent,
    /// It does not answer who came first.
    SilentToOne,
    /// It gives no tickets.
    NoTickets,
    /// Its tickets are good for nothing.
    Forgetful,
    /// It agrees on another group than X25519 only.
    OtherGroup,
    /// It speaks TLS 1.2.
    Older,
}

/// Tickets that nobody can open.
#[derive(Debug)]
struct Forgotten;

impl ProducesTickets for Forgotten {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        600
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        Some(vec![7; 100])
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Answers one request. An error is a client that has seen enough.
fn respond(
    tls: &mut ServerConnection,
    socket: &mut TcpStream,
    manner: Manner,
    request: &str,
) -> io::Result<()> {
    let field = request.split("bytes=").nth(1).unwrap().split("\r\n").next().unwrap();
    let (start, last) = field.split_once('-').unwrap();
    let (start, last): (u64, u64) = (start.parse().unwrap(), last.parse().unwrap());
    let mut body = vec![0; usize::try_from(last - start + 1).unwrap()];
    CONTENT.fill(0, start, &mut body);
    let status =
        if manner == Manner::WrongStatus { "404 Not Found" } else { "206 Partial Content" };
    let said = body.len() - usize::from(manner == Manner::WrongLength);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {said}\r\n\
         content-range: bytes {start}-{last}/{FILE_LEN}\r\n\r\n"
    );
    if manner == Manner::WrongByte {
        body[range_middle(start, last)] ^= 1;
    }
    if manner == Manner::Short {
        body.truncate(60_000);
    }
    let mut send = |bytes: &[u8], size: usize| {
        bytes.chunks(size).try_for_each(|piece| {
            tls.writer().write_all(piece)?;
            flush(tls, socket)
        })
    };
    match manner {
        Manner::Apart => {
            send(head.as_bytes(), 9999)?;
            send(&body, 1000)
        }
        Manner::KeyUpdate => {
            send(head.as_bytes(), 9999)?;
            send(&body[..70_000], 16_384)?;
            tls.refresh_traffic_keys().unwrap();
            tls.writer().write_all(&body[70_000..])?;
            flush(tls, socket)
        }
        Manner::KeyUpdateBehind => {
            tls.writer().write_all(head.as_bytes())?;
            tls.writer().write_all(&body)?;
            tls.refresh_traffic_keys().unwrap();
            flush(tls, socket)
        }
        Manner::Together
        | Manner::WrongByte
        | Manner::WrongLength
        | Manner::WrongStatus
        | Manner::Short
        | Manner::NoTls
        | Manner::Silent
        | Manner::SilentToOne
        | Manner::NoTickets
        | Manner::Forgetful
        | Manner::OtherGroup
        | Manner::Older => send(&[head.as_bytes(), &body].concat(), 1 << 20),
    }
}

fn range_middle(start: u64, last: u64) -> usize {
    usize::try_from((last - start).div_ceil(2)).unwrap()
}

fn flush(tls: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(socket)?;
    }
    Ok(())
}

/// How often each path was asked for.
type Paths = Mutex<BTreeMap<String, usize>>;

/// Answers requests until the client goes, who came as number `number`.
fn converse(
    config: Arc<ServerConfig>,
    mut socket: TcpStream,
    manner: Manner,
    (number, paths): (usize, &Paths),
) {
    if manner == Manner::NoTls {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        return;
    }
    let mut tls = ServerConnection::new(config).unwrap();
    tls.set_buffer_limit(None);
    let mut request = Vec::new();
    loop {
        if flush(&mut tls, &mut socket).is_err() {
            return;
        }
        if !matches!(tls.read_tls(&mut socket), Ok(1..)) || tls.process_new_packets().is_err() {
            return;
        }
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = tls.reader().read(&mut piece) {
            request.extend_from_slice(&piece[..n]);
        }
        let silent = manner == Manner::Silent || (manner, number) == (Manner::SilentToOne, 0);
        if request.ends_with(b"\r\n\r\n") && !silent {
            let text = std::str::from_utf8(&request).unwrap();
            let path = text.split(' ').nth(1).unwrap().to_owned();
            *paths.lock().unwrap().entry(path).or_default() += 1;
            if respond(&mut tls, &mut socket, manner, text).is_err() {
                return;
            }
            if manner == Manner::Short {
                tls.send_close_notify();
                let _ = flush(&mut tls, &mut socket);
                return;
            }
            request.clear();
        }
    }
}

/// Starts a server on threads of its own; each ends with its client. The directory holds what
/// clients trust.
fn start(manner: Manner) -> (SocketAddr, tempfile::TempDir) {
    let (address, dir, _) = start_counting(manner);
    (address, dir)
}

fn start_counting(manner: Manner) -> (SocketAddr, tempfile::TempDir, Arc<Paths>) {
    let key = rcgen::KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("trust.pem"), certificate.pem()).unwrap();
    let chain = vec![certificate.der().clone()];
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    if manner == Manner::OtherGroup {
        provider.kx_groups.retain(|group| group.name() != GROUP);
    }
    let version = handshake::version(&suites(manner));
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    if manner == Manner::NoTickets {
        config.send_tls13_tickets = 0;
    }
    if manner == Manner::Forgetful {
        config.ticketer = Arc::new(Forgotten);
    }
    let config = Arc::new(config);
    let paths = Arc::new(Paths::default());
    let threads = Arc::clone(&paths);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, socket) in listener.incoming().enumerate() {
            let (socket, config, paths) = (socket.unwrap(), Arc::clone(&config), threads.clone());
            thread::spawn(move || converse(config, socket, manner, (number, &paths)));
        }
    });
    (address, dir, paths)
}

fn plan(address: SocketAddr, dir: &Path, verify_every: u64, receive: Receive) -> Plan {
    Plan {
        address,
        name: "127.0.0.1".to_owned(),
        trust: dir.join("trust.pem"),
        suites: Vec::new(),
        targets: vec![Target { path: "/f".to_owned(), len: Bytes::of(FILE_LEN) }],
        connections: CONNECTIONS,
        range_len: Bytes(RANGE_LEN),
        ranges: Ranges::Unaligned,
        receive,
        verify_every,
        seed: 1,
        every: Duration::ZERO,
    }
}

/// The suites that a client offers.
fn suites(manner: Manner) -> Vec<CipherSuite> {
    let suite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    if manner == Manner::Older { vec![suite] } else { Vec::new() }
}

/// Drives a load for `RESPONSES`; what came, or why the run is not valid.
fn load(manner: Manner, verify_every: u64, receive: Receive) -> Result<Totals, String> {
    let (address, dir) = start(manner);
    let plan = Plan { suites: suites(manner), ..plan(address, dir.path(), verify_every, receive) };
    let run = || {
        let mut load = Load::connect(&plan, Truth::Pattern(CONTENT))?;
        if manner == Manner::Silent {
            load.silence_max = Duration::from_millis(300);
        }
        load.ask_all()?;
        while load.totals().responses < RESPONSES {
            load.drive(Instant::now() + Duration::from_millis(50))?;
        }
        let suite = suites(manner).pop().unwrap_or(CipherSuite::TLS13_AES_256_GCM_SHA384);
        assert_eq!(load.suites(), [format!("{suite:?}")]);
        Ok(load.totals())
    };
    run().map_err(|error: anyhow::Error| format!("{error:#}"))
}

const BOTH: [Receive; 2] = [Receive::Copy, Receive::Discard];

fn check_right(manner: Manner, verify_every: u64) {
    for receive in BOTH {
        check_right_by(manner, verify_every, receive);
    }
}

fn check_right_by(manner: Manner, verify_every: u64, receive: Receive) {
    let totals = load(manner, verify_every, receive).unwrap();
    assert!(totals.responses * RANGE_LEN <= totals.body, "{manner:?}: {totals:?}");
    assert!(totals.body < (totals.responses + 4) * RANGE_LEN, "{manner:?}: {totals:?}");
    let verified = totals.verified * verify_every.max(1);
    match verify_every {
        0 => assert_eq!(totals.verified, 0),
        1 => assert_eq!(totals.verified, totals.body),
        n => assert!(totals.body < verified + 2 * n * RANGE_LEN, "{manner:?}: {totals:?}"),
    }
}

fn check_wrong(manner: Manner, verify_every: u64, says: &str) {
    for receive in BOTH {
        let error = load(manner, verify_every, receive).unwrap_err();
        assert!(error.contains(says), "{manner:?}, {receive:?}: {error}");
    }
}

/// Begins until `RESPONSES` are complete; what was done, or why the run is not valid.
fn begin(manner: Manner, resume: bool, shown: Option<&Path>) -> Result<Begun, String> {
    let (address, dir) = start(manner);
    let plan = Plan { suites: suites(manner), ..plan(address, dir.path(), 4, Receive::Copy) };
    let run = || {
        let shown = shown.unwrap_or(&plan.trust);
        let mut starts = Starts::connect(&plan, Truth::Pattern(CONTENT), shown, resume)?;
        while starts.begun().handshakes < RESPONSES {
            starts.drive(Instant::now() + Duration::from_millis(50))?;
        }
        let begun = starts.begun();
        starts.finish()?;
        Ok(begun)
    };
    run().map_err(|error: anyhow::Error| format!("{error:#}"))
}

#[test]
fn right_answers_are_counted_however_records_are_cut() {
    for manner in [Manner::Together, Manner::Apart, Manner::Older] {
        for verify_every in [0, 1, 4] {
            check_right(manner, verify_every);
        }
    }
}

#[test]
fn keys_may_change_in_the_middle_of_a_response_and_right_behind_it() {
    check_right(Manner::KeyUpdate, 0);
    check_right(Manner::KeyUpdate, 2);
    check_right(Manner::KeyUpdateBehind, 0);
    check_right(Manner::KeyUpdateBehind, 1);
}

#[test]
fn one_wrong_byte_of_a_compared_response_ends_the_run() {
    check_wrong(Manner::WrongByte, 1, "of target 0 is 0x");
    check_right(Manner::WrongByte, 0);
}

#[test]
fn wrong_lengths_and_statuses_end_the_run_though_nothing_is_compared() {
    check_wrong(Manner::WrongLength, 0, "content-length is \"99999\" instead of \"100000\"");
    check_wrong(Manner::WrongStatus, 0, "status 404 instead of 206");
    check_wrong(Manner::Short, 0, "the server closed the connection");
}

#[test]
fn connections_that_may_end_are_counted_and_ask_no_more() {
    for receive in BOTH {
        let (address, dir) = start(Manner::Short);
        let mut load =
            Load::connect(&plan(address, dir.path(), 0, receive), Truth::Pattern(CONTENT)).unwrap();
        load.may_lose();
        load.ask_by_the_clock(Duration::from_millis(10)).unwrap();
        let began = Instant::now();
        while load.gone() < CONNECTIONS {
            assert!(began.elapsed() < Duration::from_secs(20), "{} are gone", load.gone());
            let soon = Instant::now() + Duration::from_millis(50);
            load.drive_slowly(BitsPerSecond(80_000_000), soon).unwrap();
        }
        assert_eq!(load.totals().responses, 0);
    }
}

#[test]
fn a_server_that_does_not_speak_or_does_not_answer_ends_the_run() {
    check_wrong(Manner::NoTls, 0, "connection 0 to 127.0.0.1");
    check_wrong(Manner::Silent, 0, "nothing came for");
}

#[test]
fn a_client_that_copies_has_all_bytes_in_its_hands_and_one_that_discards_only_those_it_wants() {
    // What is left in the room where all bytes go.
    let touched = |receive| {
        let (address, dir) = start(Manner::Together);
        let plan = plan(address, dir.path(), 0, receive);
        let mut load = Load::connect(&plan, Truth::Pattern(CONTENT)).unwrap();
        load.ask_all().unwrap();
        while load.totals().responses < RESPONSES {
            load.drive(Instant::now() + Duration::from_millis(50)).unwrap();
        }
        load.shared.room().iter().filter(|byte| **byte != 0).count()
    };
    assert!(16_384 < touched(Receive::Copy));
    assert_eq!(touched(Receive::Discard), 0);
}

#[test]
fn all_starts_are_full_or_all_are_resumed_as_it_was_asked() {
    for manner in [Manner::Together, Manner::Older] {
        let full = begin(manner, false, None).unwrap();
        assert!(RESPONSES <= full.handshakes && full.resumed == 0, "{full:?}");
        assert!(full.handshakes <= full.tickets, "they were given: {full:?}");
        let resumed = begin(manner, true, None).unwrap();
        assert!(RESPONSES <= resumed.handshakes, "{resumed:?}");
        assert_eq!(resumed.resumed, resumed.handshakes);
    }
}

#[test]
fn paths_are_asked_for_in_turn() {
    let (address, dir, paths) = start_counting(Manner::Together);
    let target = |number| Target { path: format!("/{number}/f"), len: Bytes::of(FILE_LEN) };
    let targets = (0..7).map(target).collect();
    let plan = Plan { targets, ..plan(address, dir.path(), 4, Receive::Copy) };
    let mut starts = Starts::connect(&plan, Truth::Pattern(CONTENT), &plan.trust, false).unwrap();
    while starts.begun().handshakes < RESPONSES {
        starts.drive(Instant::now() + Duration::from_millis(50)).unwrap();
    }
    let counted = usize::try_from(starts.begun().handshakes).unwrap();
    let asked = starts.finish().unwrap();
    assert_eq!(asked, counted + CONNECTIONS, "those under way asked, too");
    let of = |path: usize| (format!("/{path}/f"), asked / 7 + usize::from(path < asked % 7));
    assert_eq!(*paths.lock().unwrap(), (0..7).map(of).collect());
}

#[test]
fn a_player_that_hears_more_after_its_answer_is_one_player() {
    let mut rounds = [vec![1], vec![], vec![1], vec![1, 0], vec![2], vec![2]].into_iter();
    let done = each_once(3, || Ok(rounds.next().unwrap())).unwrap();
    assert_eq!(done, [0, 1, 2].into());
    assert_eq!(rounds.len(), 1, "it waits no longer than until all have their answers");
}

#[test]
fn one_player_without_an_answer_ends_the_run_within_the_window_and_after_it() {
    let patience = Duration::from_millis(300);
    let check = |starts: fn(Starts, Duration) -> Result<()>| {
        let (address, dir) = start(Manner::SilentToOne);
        let plan = plan(address, dir.path(), 4, Receive::Copy);
        let truth = Truth::Pattern(CONTENT);
        let begun = Starts::connect(&plan, truth, &plan.trust, false).unwrap();
        let error = starts(begun, patience).unwrap_err().to_string();
        let says = "of 3 players have waited for an answer for 300ms: look at the server's log";
        assert!(error.contains(says), "{error}");
    };
    check(|mut starts, patience| {
        starts.patience = patience;
        starts.drive(Instant::now() + Duration::from_secs(5))
    });
    check(|mut starts, patience| {
        starts.drive(Instant::now() + Duration::from_millis(50)).unwrap();
        starts.patience = patience;
        starts.finish().map(|_| ())
    });
}

#[test]
fn a_server_that_does_not_resume_ends_the_run() {
    let error = begin(Manner::Forgetful, true, None).unwrap_err();
    assert_eq!(error, "a resumed handshake was asked for, and the server made a full one");
    let error = begin(Manner::NoTickets, true, None).unwrap_err();
    let wanted = format!("the server gave 0 tickets to {CONNECTIONS} clients: not all can resume");
    assert_eq!(error, wanted);
    begin(Manner::NoTickets, false, None).unwrap();
}

#[test]
fn a_handshake_or_an_answer_that_is_wrong_ends_the_run() {
    let check = |manner, says: &str| {
        let error = begin(manner, false, None).unwrap_err();
        assert!(error.contains(says), "{manner:?}: {error}");
    };
    check(Manner::OtherGroup, "handshake 1: ");
    check(Manner::WrongByte, "byte 0 of target 0 is 0x");
    check(Manner::WrongStatus, "status 404 instead of 206");
    check(Manner::NoTls, "handshake 1: ");
    let (_, other) = start(Manner::Together);
    let other = other.path().join("trust.pem");
    let error = begin(Manner::Together, false, Some(&other)).unwrap_err();
    assert!(error.contains("invalid peer certificate"), "{error}");
}

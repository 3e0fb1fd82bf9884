//! Malformed, hostile and odd requests over a real socket, and what RFC 9110 and RFC 9112 say,
//! section by section: each has the answer of its table, and behind it a request is answered as the
//! next one or not at all.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use appliance::clock;
use appliance::counters::{DriveSlice, ServeCounters};
use appliance::serving::ablation::Ablation;
use appliance::serving::event_loop::{self, Setup};
use appliance::serving::listen::Listener;
use appliance::serving::mailbox::{Letter, Sender, mailbox};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use model::drives::DriveSet;
use model::extent::{DriveIndex, Extent, FileName};
use model::id::{Generation, ObjectId};
use model::limits::DRIVES_MAX;
use model::manifest::{AssetVersion, File, Manifest, TokenKey, Trust};
use model::units::{Bytes, Nanos, UnixSeconds};
use model::update::Update;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use rustls::pki_types::PrivateKeyDer;
use tls::Acceptor;
use worker::{Config, PaceConfig};

/// The same files as the lab's, which asks nginx the same.
#[path = "../../../tools/trial/src/odd"]
#[expect(dead_code, reason = "some of the table is for the lab")]
mod odd {
    pub(crate) mod probe;
    pub(crate) mod table;
}
use odd::table::{Names, cases};

#[path = "../../../tools/trial/src/conformance"]
#[expect(dead_code, reason = "some of the table is for the lab")]
mod conformance {
    pub(crate) mod answer;
    pub(crate) mod table;
}

const CONTENT: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// Where an answer is due, time is for a slow machine; where none is, it is what is tested.
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn every_odd_request_is_answered_as_the_table_says() {
    let cases = cases();
    assert!(100 <= cases.len(), "{} cases", cases.len());
    let wrong = with_worker(|address, names| {
        let mut wrong = Vec::new();
        for case in &cases {
            let waits = case.ours == "wait";
            let patience = if waits { Duration::from_millis(300) } else { PATIENCE };
            let got = odd::probe::take(address, case, names, CONTENT, patience).unwrap();
            if got != case.ours {
                wrong.push(format!("{}: \"{got}\", not \"{}\"", case.name, case.ours));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_row_of_the_rfcs_is_answered_as_the_table_says() {
    let rows = conformance::table::rows();
    assert!(100 <= rows.len(), "{} rows", rows.len());
    let wrong = with_worker(|address, names| {
        let mut wrong = Vec::new();
        for row in &rows {
            let taken = odd::probe::exchange(address, &row.sent(names), CONTENT, PATIENCE).unwrap();
            let got = conformance::answer::describe(&taken, names, CONTENT, &row.look);
            if got != row.ours {
                wrong.push(format!("{}: \"{got}\", not \"{}\"", row.name, row.ours));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Runs `ask` beside a worker that listens, and ends it.
fn with_worker<T>(ask: impl FnOnce(SocketAddr, &Names) -> T) -> T {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    std::fs::write(directory.path().join("o"), [&CONTENT[..], &[0; 4096]].concat()).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let (sender, letters) = mailbox().unwrap();
    let setup = Setup {
        config: config(),
        acceptor: Acceptor::new(vec![made.cert.der().clone()], key).unwrap(),
        drives: vec![Some(Arc::new(std::fs::File::open(directory.path()).unwrap().into()))],
        blocking: DriveSet::NONE,
        mailbox: letters,
        counters: Arc::new(ServeCounters::default()),
        slices: (0..1).map(|_| DriveSlice::default()).collect(),
        log: None,
        views: None,
        report: Box::new(|finding| panic!("no drive fails here: {finding:?}")),
        ring_is_made: || {},
        unsent_max: None,
        clients: None,
        ablation: Ablation::default(),
    };
    let thread = std::thread::spawn(move || event_loop::run(setup));
    let names = publish(&sender);
    sender.send(Letter::Listen(vec![Listener { socket: socket.into(), versions: None }]));
    let asked = ask(address, &names);
    sender.send(Letter::Stop(Nanos::seconds(3)));
    thread.join().unwrap().unwrap();
    asked
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
        request_timeout: Nanos::seconds(30),
        idle_timeout: Nanos::seconds(30),
        token_leeway: Nanos::seconds(0),
        progress_timeout: Nanos::seconds(30),
        verify_every: 0,
        log_requests: true,
        views_max: 0,
        pacing: PaceConfig::OFF,
        incidents: None,
    }
}

fn publish(sender: &Sender) -> Names {
    let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let (object, len) = (ObjectId([1; 32]), Bytes::of(CONTENT.len()));
    let file = |object, len| File { object, len, content_type: "video/mp4".into() };
    let version = |id: &str, modified| {
        let whole = ("v.mp4".to_owned(), file(object, len));
        let empty = ("empty.mp4".to_owned(), file(ObjectId([2; 32]), Bytes(0)));
        Arc::new(AssetVersion {
            id: id.parse().unwrap(),
            asset: "film".parse().unwrap(),
            sources: vec![],
            modified,
            pace: None,
            files: [whole, empty].into(),
        })
    };
    let public_key = key.public_key().as_ref().try_into().unwrap();
    sender.send(Letter::Update(Update::Manifest(Arc::new(Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(1),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
        trust: Trust::default(),
        numbers: std::collections::BTreeMap::new(),
        siblings: std::collections::BTreeMap::new(),
        site: Vec::new(),
        versions: vec![
            version("film-1", UnixSeconds(784_111_777)),
            // 2100-01-01: the clock of whoever made it was wrong.
            version("film-3", UnixSeconds(4_102_444_800)),
        ],
    }))));
    let extent = Extent { drive: DriveIndex(0), file: FileName("o".into()), offset: Bytes(0), len };
    sender.send(Letter::Update(Update::Published { object, extent, small: None }));
    let expires = UnixSeconds(clock::wall().0 + 1000);
    let signed = |version: &str| {
        let grant = grant(version, expires);
        let signature = key.sign(SigningInput::new("k1", grant).as_bytes());
        assemble("k1", grant, signature.as_ref().try_into().unwrap())
    };
    let token = signed("film-1");
    Names {
        path: format!("/t/{token}/film-1/v.mp4"),
        etag: format!("\"{}\"", "01".repeat(32)),
        empty: format!("/t/{token}/film-1/empty.mp4"),
        later: format!("/t/{}/film-3/v.mp4", signed("film-3")),
        forged: assemble("k1", grant("film-1", expires), &[0; 64]),
        token,
    }
}

fn grant(version: &str, expires: UnixSeconds) -> Grant<'_> {
    Grant { session: Session::of_random([9; 12]), expires, scope: Scope::whole(version).unwrap() }
}

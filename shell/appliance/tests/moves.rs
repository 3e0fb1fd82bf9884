//! The real process, confined: what viewers ask for moves to the fast drive under them, and a kill
//! between the copy and the end of the old file costs nothing.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use appliance::{clock, format};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::member::Member;
use identity::signing::SigningKey;
use model::id::{Generation, ObjectId};
use model::manifest::{AssetVersion, File, Manifest, TokenKey, Trust};
use model::object::{BLOCK_LEN, Blocks, block_hash};
use model::units::{Bytes, UnixSeconds};
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Pid, Signal, kill_process};
use store::layout;
use wire::v1::signed::Kind;

const LEN: usize = 600_000;

/// A folder with two drives, a state and a configuration; an object lies on the bulk drive.
struct Place {
    folder: tempfile::TempDir,
    /// For viewers, without TLS and with it.
    ports: [u16; 2],
    object: ObjectId,
    content: Vec<u8>,
    url: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["fast", "bulk", "tls", "state"] {
            fs::create_dir(at(name)).unwrap();
        }
        for drive in ["fast", "bulk"] {
            format::format(&at(drive), "1%".parse().unwrap(), clock::wall()).unwrap();
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(at("tls/cert.pem"), made.cert.pem()).unwrap();
        fs::write(at("tls/key.pem"), made.signing_key.serialize_pem()).unwrap();
        let content: Vec<u8> = (0..LEN).map(|i| (i * 131 + i / 4096).to_le_bytes()[0]).collect();
        let object = put(&at("bulk"), &content);
        let signer = SigningKey::from_seed("s1", &[5; 32]);
        enrolled(&signer).save(&at("state")).unwrap();
        fs::write(at("state/manifest.signed"), manifest(&signer, object)).unwrap();
        let ports @ [port, tls] = [(); 2].map(|()| free_port());
        let text = format!(
            "name = \"a1\"\nstate = \"{0}/state\"\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\n\
             plain_listen = [\"127.0.0.1:{port}\"]\ncertificate = \"{0}/tls/cert.pem\"\n\
             key = \"{0}/tls/key.pem\"\nworkers = 2\nverify_every = 1\n\
             [drives]\npaths = [\"{0}/fast\", \"{0}/bulk\"]\nclasses = [\"fast\", \"bulk\"]\n\
             move_every = \"1 s\"\n[hot]\nmemory = \"0 B\"\n\
             [control]\nurl = \"https://127.0.0.1:9\"\n[process]\nsandbox = \"require\"\n",
            folder.path().display(),
        );
        fs::write(at("a.toml"), text).unwrap();
        Self { folder, ports, object, content, url: url() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Running {
        let log = fs::File::create(self.at("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
            .args(["serve", "--config"])
            .arg(self.at("a.toml"))
            .stderr(Stdio::from(log))
            .spawn();
        Running(child.unwrap())
    }

    fn is_on(&self, drive: &str) -> bool {
        self.at(drive).join(&*layout::object_file(&self.object).0).exists()
    }

    /// True if the drive's index has it: then it is shown there, or just about to be.
    fn is_logged_on(&self, drive: &str) -> bool {
        let log = fs::read(self.at(drive).join(layout::LOG)).unwrap();
        log.windows(32).any(|id| *id == self.object.0)
    }

    /// Asks for all of it. None while nobody listens, or before it is known.
    fn play(&self) -> Option<Vec<u8>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).ok()?;
        let request = format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", self.url);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            let log = fs::read_to_string(self.at("log")).unwrap();
            panic!("{error} after {} bytes:\n{log}", answer.len());
        }
        let head_len = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = answer.split_off(head_len);
        answer.starts_with(b"HTTP/1.1 200 ").then_some(body)
    }

    /// Plays on, and every byte must be right, until it is so.
    fn play_until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            let log = || fs::read_to_string(self.at("log")).unwrap();
            assert!(began.elapsed() < Duration::from_secs(30), "in vain for {what}:\n{}", log());
            assert!(self.play().is_some_and(|body| body == self.content), "{}", log());
        }
    }

    fn wait(&self, what: &str, mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            let log = || fs::read_to_string(self.at("log")).unwrap();
            assert!(began.elapsed() < Duration::from_secs(30), "in vain for {what}:\n{}", log());
            std::thread::yield_now();
        }
    }
}

/// Killed at the end, whatever comes of the test.
struct Running(Child);

impl Running {
    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_raw(self.0.id().cast_signed()).unwrap(), signal).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes an object's file where fill would have left it.
fn put(drive: &Path, content: &[u8]) -> ObjectId {
    let pieces = (0..).zip(content.chunks(BLOCK_LEN.as_usize()));
    let hashes: Vec<_> = pieces.map(|(at, piece)| block_hash(at, piece, false)).collect();
    let table: Vec<u8> = hashes.iter().flat_map(|hash| hash.0).collect();
    let len = Bytes::of(content.len());
    let object = Blocks::of_hashes(len, hashes).unwrap().id();
    let sections = layout::sections(len);
    let mut file = content.to_vec();
    file.resize(sections.table_offset.as_usize(), 0);
    file.extend(table);
    file.resize(sections.footer_offset.as_usize(), 0);
    file.extend(layout::Footer { object, len }.encode());
    fs::write(drive.join(&*layout::object_file(&object).0), file).unwrap();
    object
}

fn key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

fn manifest(signer: &SigningKey, object: ObjectId) -> Vec<u8> {
    let content_type = "video/mp4".to_owned();
    let file = File { object, len: Bytes::of(LEN), content_type };
    let version = AssetVersion {
        id: "film-1".parse().unwrap(),
        asset: "film".parse().unwrap(),
        sources: vec![],
        modified: UnixSeconds(784_111_777),
        pace: None,
        files: [("v.mp4".to_owned(), file)].into(),
    };
    let public_key = key().public_key().as_ref().try_into().unwrap();
    let manifest = Manifest {
        appliance: "a1".parse().unwrap(),
        generation: Generation(1),
        token_keys: vec![TokenKey { kid: "k1".to_owned(), public_key }],
        trust: Trust::default(),
        siblings: BTreeMap::new(),
        versions: vec![Arc::new(version)],
    };
    let text = serde_json::to_vec(&wire::convert::manifest_out(&manifest)).unwrap();
    signer.sign(Kind::Manifest, &text)
}

fn url() -> String {
    let expires = UnixSeconds(clock::wall().0 + 1000);
    let scope = Scope::whole("film-1").unwrap();
    let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
    let signature = key().sign(SigningInput::new("k1", grant).as_bytes()).as_ref().try_into();
    format!("/t/{}/film-1/v.mp4", assemble("k1", grant, &signature.unwrap()))
}

/// An identity of an authority that nobody asks here.
fn enrolled(signer: &SigningKey) -> Credentials {
    let authority = Authority::create(clock::wall()).unwrap();
    let key = KeyPair::generate().unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let member = Member::appliance("a1");
    let issued = authority.issue(&member, &request, [1; 16], clock::wall(), 3600).unwrap();
    let public = signer.public();
    let given = wire::v1::identity::Enrolled {
        certificate: issued.certificate,
        authority: authority.certificate_pem().to_owned(),
        signing_keys: vec![wire::v1::manifest::TokenKey {
            kid: public.kid,
            public_key: public.public_key.iter().map(|byte| format!("{byte:02x}")).collect(),
        }],
    };
    Credentials::new(&key.serialize_pem(), &given).unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// One whose process was killed when it had just made a copy.
fn killed() -> Place {
    let place = Place::new();
    let running = place.start();
    place.wait("it to be served", || place.play().is_some());
    place.play_until("a copy", || place.is_logged_on("fast"));
    running.end(Signal::KILL);
    assert!(place.is_on("fast"), "it is in the log when it is there");
    place
}

#[test]
fn a_confined_process_moves_what_is_watched_and_bears_a_kill_between_two_copies() {
    // The old file stays for a second, of which much may be over before it is seen.
    let place = (0..10).map(|_| killed()).find(|place| place.is_on("bulk"));
    let place = place.expect("two copies, at least once");
    // The kernel takes a moment to end the rings of a process that was killed, and their sockets.
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    place.wait("its sockets to close", || place.ports.iter().all(is_free));

    let running = place.start();
    place.wait("it to be served", || place.play().is_some());
    place.play_until("one copy", || !place.is_on("bulk"));
    assert!(place.is_on("fast"), "the first drive wins");
    (0..20).for_each(|_| assert_eq!(place.play().as_ref(), Some(&place.content)));
    running.end(Signal::TERM);
    let budget = fs::read_to_string(place.at("state/tiering.budget")).unwrap();
    let room = layout::sections(Bytes::of(LEN)).file_len.0;
    assert!(budget.ends_with(&format!(" {room}\n")), "it was paid for once: {budget}");
    assert!(place.at("state/tiering.heat").exists());
}

//! The real process on a state and a drive that an earlier release wrote: fixtures/README.md says
//! how they were made, and what is in them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::membership::member;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use identity::member::Member;
use identity::signing::SigningKey;
use model::id::Generation;
use model::manifest::{TokenKey, Trust, TrustDocument};
use model::units::UnixSeconds;
use playback::token::{Grant, Scope, Session, SigningInput, assemble};
use wire::v1::signed::Kind;

use crate::drives::inventory;
use crate::fleet;
use crate::origin::Origin;
use crate::rig::{TestControl, TestFile, version, wait};

/// Before inventories by number, short manifests and trust documents.
const BEFORE_NUMBERS: &str = include_str!("../fixtures/before_numbers.txt");
/// What was there of the file of the second film, of which a part was fetched.
const FETCHED: u64 = 1_048_576;

/// The first film, which is whole there.
fn film() -> Vec<TestFile> {
    let files = [
        ("a.mp4", 600_000),
        ("v/0", 700),
        ("v/1.m4s", 30_000),
        ("v/2.m4s", 31_000),
        ("v/3.m4s", 32_000),
    ];
    (1..).zip(files).map(|(n, (path, len))| paged(n, path, len)).collect()
}

fn long() -> TestFile {
    paged(6, "long.mp4", 4_000_000)
}

/// Each page has a byte of its own.
fn paged(n: usize, path: &str, len: usize) -> TestFile {
    let byte = |i: usize| u8::try_from((n * 37 + i / 4096 * 11) % 251 + 1).unwrap();
    TestFile::of(path, (0..len).map(byte).collect())
}

fn signer() -> SigningKey {
    SigningKey::from_seed("s1", &[5; 32])
}

fn token_key() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap()
}

/// A folder with that state and that drive, and an identity that has been renewed since.
struct Place {
    folder: tempfile::TempDir,
    /// With TLS, and without.
    ports: [u16; 2],
}

impl Place {
    fn new(control: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        unpack(BEFORE_NUMBERS, folder.path());
        let at = |name: &str| folder.path().join(name);
        let name = "a1".parse().unwrap();
        let keys = member::load(&at("state"), &name).unwrap().signing_keys();
        assert_eq!(keys, [signer().public()], "its identity is read");
        let renewed = fleet::ours().credentials(&Member::appliance("a1"));
        renewed.with_signing_keys(&keys).save(&at("state")).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(at("cert.pem"), made.cert.pem()).unwrap();
        fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        let ports @ [tls, port] = free_ports();
        let text = format!(
            "name = \"a1\"\nstate = \"{0}/state\"\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\n\
             plain_listen = [\"127.0.0.1:{port}\"]\ncertificate = \"{0}/cert.pem\"\n\
             key = \"{0}/key.pem\"\nworkers = 1\n[drives]\npaths = [\"{0}/drive\"]\n\
             [control]\nurl = \"https://{control}\"\nreport_interval = \"100 ms\"\n",
            folder.path().display(),
        );
        fs::write(at("a.toml"), text).unwrap();
        Self { folder, ports }
    }

    /// A process that listens. The kernel may have taken down the ring of the one before a while
    /// after its end only, and with it free its ports.
    fn start(&self) -> Running {
        let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
        wait("the ports", || self.ports.into_iter().all(is_free));
        let running = self.spawn();
        wait("a listener", || TcpStream::connect(("127.0.0.1", self.ports[1])).is_ok());
        running
    }

    fn spawn(&self) -> Running {
        let log = fs::File::create(self.folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
            .args(["serve", "--config"])
            .arg(self.folder.path().join("a.toml"))
            .stderr(Stdio::from(log))
            .spawn();
        Running(child.unwrap())
    }

    /// What a player gets: status and body. None while nobody listens.
    fn get(&self, film: &str, path: &str) -> Option<(u16, Vec<u8>)> {
        let expires = UnixSeconds(clock::wall().0 + 1000);
        let scope = Scope::whole(film).unwrap();
        let grant = Grant { session: Session::of_random([9; 12]), expires, scope };
        let signature = token_key().sign(SigningInput::new("k1", grant).as_bytes());
        let token = assemble("k1", grant, &signature.as_ref().try_into().unwrap());
        let mut tcp = TcpStream::connect(("127.0.0.1", self.ports[1])).ok()?;
        let head = "HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        write!(tcp, "GET /t/{token}/{film}/{path} {head}").ok()?;
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).ok()?;
        let head_len = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let body = answer.split_off(head_len);
        let status = answer.get(9..12).and_then(|code| std::str::from_utf8(code).ok());
        Some((status?.parse().ok()?, body))
    }

    /// Every byte of these comes to players.
    fn plays(&self, film: &str, files: &[TestFile]) {
        for file in files {
            let began = Instant::now();
            while self.get(film, &file.path).is_none_or(|(status, _)| status != 200) {
                let log = || fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                let is_late = Duration::from_secs(20) < began.elapsed();
                assert!(!is_late, "no {} of {film}: {}", file.path, log());
                std::thread::sleep(Duration::from_millis(20));
            }
            let (_, body) = self.get(film, &file.path).unwrap();
            assert!(body == *file.bytes, "{film}/{} has its bytes", file.path);
        }
    }
}

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Below those that the kernel gives to whoever asks for any.
fn free_ports() -> [u16; 2] {
    // Two tests that look at once find the same ones free.
    static LOOKED: AtomicU16 = AtomicU16::new(0);
    let first = 18_100 + u16::try_from(std::process::id() % 3000).unwrap();
    let first = first + 20 * LOOKED.fetch_add(1, Ordering::Relaxed);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut free = (first..).filter(is_free);
    [free.next().unwrap(), free.next().unwrap()]
}

/// Makes folders and files of a text: `folder PATH`, or `file PATH LEN` and below it the bytes that
/// are not 0, `OFFSET HEX` or `OFFSET BYTE*COUNT`.
fn unpack(text: &str, at: &Path) {
    let mut file = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["folder", path] => fs::create_dir(at.join(path)).unwrap(),
            ["file", path, len] => {
                let made = fs::File::create(at.join(path)).unwrap();
                made.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
                made.set_len(len.parse().unwrap()).unwrap();
                file = Some(made);
            }
            [offset, bytes] => {
                let byte = |hex: &str| u8::from_str_radix(hex, 16).unwrap();
                let bytes = match bytes.split_once('*') {
                    Some((hex, count)) => vec![byte(hex); count.parse().unwrap()],
                    None => (0..bytes.len()).step_by(2).map(|i| byte(&bytes[i..i + 2])).collect(),
                };
                let file = file.as_ref().unwrap();
                file.write_all_at(&bytes, offset.parse().unwrap()).unwrap();
            }
            _ => panic!("{line} is no line of it"),
        }
    }
}

#[test]
fn what_an_earlier_release_wrote_is_served_with_control_away() {
    let place = Place::new("127.0.0.1:9".parse().unwrap());
    let _running = place.start();
    place.plays("film-1", &film());
    assert_eq!(place.get("film-2", "long.mp4").unwrap().0, 404, "a part is not shown");
}

#[test]
fn what_an_earlier_release_wrote_is_reported_and_the_next_manifests_follow_it() {
    let (film, long) = (film(), long());
    let all = [&film[..], std::slice::from_ref(&long)].concat();
    let (origin, origin_server) = Origin::start();
    all.iter().for_each(|file| origin.put(&file.path, Arc::clone(&file.bytes)));
    let (control, server) = TestControl::start("127.0.0.1:0");
    *control.signer.lock().unwrap() = Some(signer());
    let place = Place::new(server.address);
    let running = place.start();
    let holds = |files: &[TestFile]| {
        let known = inventory(&control);
        files.iter().all(|file| known.contains(&file.id().to_string()))
    };
    wait("the report of all that is there", || holds(&film));
    assert!(!holds(std::slice::from_ref(&long)));
    let report = control.last_report().unwrap();
    assert_eq!(report.generation, 7, "the manifest of that release is in force");

    // The control of today: keys apart, versions by their documents, files by number.
    *control.trust.lock().unwrap() = Some(trust());
    control.by_number.store(true, Ordering::SeqCst);
    let films = [("film-1", &film[..]), ("film-2", std::slice::from_ref(&long))];
    let films = films.map(|(name, files)| version(name, &[origin_server.address], files));
    control.publish(8, films.into(), &all);
    wait("the rest of the second film", || {
        let files = control.last_report().and_then(|report| report.files);
        files.is_some_and(|files| files.count == 6)
    });
    let rest = long.blocks.len().0 - FETCHED;
    assert_eq!(origin.sent(), rest, "nothing that was there is fetched again");
    wait("both generations", || {
        let report = control.last_report().unwrap();
        (report.generation, report.trust) == (8, Some(3))
    });
    drop(running);
    drop(server);
    let _running = place.start();
    place.plays("film-1", &film);
    place.plays("film-2", std::slice::from_ref(&long));
}

/// The same key for tokens, in a document.
fn trust() -> (TrustDocument, Vec<u8>) {
    let public_key = token_key().public_key().as_ref().try_into().unwrap();
    let trust = Trust {
        generation: Generation(3),
        issued: clock::wall(),
        signing_keys: vec![signer().public()],
        ..Trust::default()
    };
    let token_keys = vec![TokenKey { kid: "k1".to_owned(), public_key }];
    let document = TrustDocument { token_keys, trust };
    let payload = serde_json::to_vec(&wire::convert::trust_out(&document)).unwrap();
    let envelope = signer().sign(Kind::Trust, &payload);
    (document, envelope)
}

//! The real process, confined: what viewers ask for moves to the fast drive under them, and a kill
//! between the copy and the end of the old file costs nothing.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod held;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::storage::format;
use held::{LEN, free_ports};
use identity::authority::Authority;
use model::id::ObjectId;
use model::units::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use store::layout;

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
        let object = held::put(&at("bulk"), &at("state"));
        let authority = Authority::create(clock::wall()).unwrap();
        held::identity_of("a1", &authority).save(&at("state")).unwrap();
        let ports @ [port, tls] = free_ports();
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
        Self { folder, ports, object, content: held::content(), url: held::url() }
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
        let stream = TcpStream::connect(("127.0.0.1", self.ports[0])).ok()?;
        match held::exchange(&stream, None, &held::request(&self.url)) {
            Ok(answer) => held::body(answer),
            Err(error) => {
                panic!("{error}:\n{}", fs::read_to_string(self.at("log")).unwrap())
            }
        }
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

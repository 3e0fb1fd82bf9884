//! The real process and its guard: who hangs is ended, who was only paused is not.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

mod held;

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::storage::format;
use held::free_ports;
use identity::authority::Authority;
use nix::sys::ptrace;
use rustix::process::{Pid, Signal, WaitOptions, getuid, kill_process, waitpid};

/// A folder with a drive, a state and a configuration.
struct Place {
    folder: tempfile::TempDir,
    port: u16,
    url: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["drive", "state"] {
            fs::create_dir(at(name)).unwrap();
        }
        format::format(&at("drive"), "1%".parse().unwrap(), clock::wall()).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(at("cert.pem"), made.cert.pem()).unwrap();
        fs::write(at("key.pem"), made.signing_key.serialize_pem()).unwrap();
        held::put(&at("drive"), &at("state"));
        let authority = Authority::create(clock::wall()).unwrap();
        held::identity_of("a1", &authority).save(&at("state")).unwrap();
        let [port, tls] = free_ports();
        let text = format!(
            "name = \"a1\"\nstate = \"{0}/state\"\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\n\
             plain_listen = [\"127.0.0.1:{port}\"]\ncertificate = \"{0}/cert.pem\"\n\
             key = \"{0}/key.pem\"\nworkers = 2\nidle_timeout = \"1 min\"\n\
             [drives]\npaths = [\"{0}/drive\"]\n[hot]\nmemory = \"0 B\"\n\
             [control]\nurl = \"https://127.0.0.1:9\"\n\
             [process]\nsandbox = \"best-effort\"\n",
            folder.path().display(),
        );
        fs::write(at("a.toml"), text).unwrap();
        Self { folder, port, url: held::url() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self) -> Guard {
        let log = fs::File::create(self.at("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"));
        command.args(["guard", "--config"]).arg(self.at("a.toml")).stderr(Stdio::from(log));
        Guard(command.spawn().unwrap())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }

    /// True if an object is served on a connection of its own.
    fn is_served(&self) -> bool {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let answer = held::exchange(&stream, None, &held::request(&self.url));
        answer.ok().and_then(held::body).is_some_and(|body| body == held::content())
    }

    /// Waits for it; how long that took.
    fn wait(&self, what: &str, mut done: impl FnMut() -> bool) -> Duration {
        let began = Instant::now();
        while !done() {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "in vain for {what}:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        began.elapsed()
    }

    /// A connection on which nothing is asked.
    fn idle(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

/// Killed at the end, whatever comes of the test; the kernel ends its process then.
struct Guard(Child);

impl Guard {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    /// The process that serves, if one is there.
    fn serving(&self) -> Option<Pid> {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
        Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)
    }

    fn end(mut self, signal: Signal) -> ExitStatus {
        kill_process(self.pid(), signal).unwrap();
        self.0.wait().unwrap()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread that stands still while all others of its process go on. Of the test's own thread: who
/// traces has to ask.
struct Stopped(Pid);

impl Stopped {
    fn thread(process: Pid, name: &str) -> Self {
        assert!(getuid().is_root(), "run this test as root: it stops a thread of a process");
        let is_it = |task: &fs::DirEntry| {
            let comm = fs::read_to_string(task.path().join("comm"));
            comm.is_ok_and(|comm| comm.trim_end() == name)
        };
        let tasks = fs::read_dir(format!("/proc/{}/task", process.as_raw_pid())).unwrap();
        let id = tasks.flatten().find(is_it).unwrap().file_name();
        let id: i32 = id.to_str().unwrap().parse().unwrap();
        let thread = nix::unistd::Pid::from_raw(id);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        let thread = Pid::from_raw(id).unwrap();
        let (_, status) = waitpid(Some(thread), WaitOptions::empty()).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
        Self(thread)
    }

    /// Its process has been killed. It does not end before this was asked.
    fn is_killed(&self) -> bool {
        let told = waitpid(Some(self.0), WaitOptions::NOHANG).unwrap();
        told.is_some_and(|(_, status)| status.signaled())
    }
}

/// After a second of silence, and a look.
fn assert_noticed(after: Duration) {
    let (least, most) = (Duration::from_millis(700), Duration::from_secs(4));
    assert!(least < after && after < most, "{after:?}");
}

#[test]
fn one_worker_that_hangs_ends_its_process_though_all_other_threads_go_on() {
    let place = Place::new();
    let guard = place.start();
    place.wait("it to serve", || place.is_served());
    let serving = guard.serving().unwrap();
    let worker = Stopped::thread(serving, "worker-1");
    let killed_after = place.wait("the guard to notice", || worker.is_killed());
    assert_noticed(killed_after);
    place.wait("the next to serve", || place.is_served());
    assert_ne!(guard.serving().unwrap(), serving);
    let log = place.log();
    // Worker 0 is looked at first: it lived, and its life was shown.
    assert!(log.contains("worker 1 was silent for 1"), "{log}");
    assert_eq!(log.matches("hangs and is ended").count(), 1, "{log}");
}

#[test]
fn a_process_that_hangs_is_ended_and_the_next_serves_soon() {
    let place = Place::new();
    let guard = place.start();
    place.wait("it to serve", || place.is_served());
    let (hung, mut idle) = (guard.serving().unwrap(), place.idle());
    std::thread::sleep(Duration::from_millis(500));
    kill_process(hung, Signal::STOP).unwrap();
    let began = Instant::now();
    // The kernel closes what the process had open.
    let ended = idle.read(&mut [0]);
    let reset_after = began.elapsed();
    assert!(matches!(ended, Ok(0)) || ended.is_err(), "{ended:?}");
    assert_noticed(reset_after);
    place.wait("the next to serve", || place.is_served());
    // A second of silence, two looks, and a second, with patience for a busy machine.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_ne!(guard.serving().unwrap(), hung);
    let log = place.log();
    let ends: Vec<&str> = log.lines().filter(|line| line.contains("has ended")).collect();
    assert_eq!(ends.len(), 1, "the next process serves, and none fails before it: {log}");
    assert!(ends[0].contains("was silent for 1"), "{log}");
    // Each has an answer to these, and neither ends by them.
    for signal in [Signal::HUP, Signal::USR1] {
        kill_process(guard.pid(), signal).unwrap();
    }
    std::thread::sleep(Duration::from_millis(1500));
    place.wait("it to serve still", || place.is_served());
    let log = place.log();
    assert!(log.contains("the process that serves hangs and is ended"), "{log}");
    assert!(guard.end(Signal::TERM).success());
    let log = place.log();
    assert!(log.contains("stopping"), "{log}");
}

#[test]
fn a_machine_that_was_paused_has_the_same_process_afterwards() {
    let place = Place::new();
    let guard = place.start();
    place.wait("it to serve", || place.is_served());
    let serving = guard.serving().unwrap();
    for first_to_wake in [guard.pid(), serving] {
        let both = [guard.pid(), serving];
        both.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        std::thread::sleep(Duration::from_secs(5));
        kill_process(first_to_wake, Signal::CONT).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        both.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
        std::thread::sleep(Duration::from_millis(1500));
        place.wait("it to serve still", || place.is_served());
        assert_eq!(guard.serving(), Some(serving), "{}", place.log());
    }
}

#[test]
fn nothing_is_left_of_a_guard_that_is_killed_though_its_process_hangs() {
    let place = Place::new();
    let guard = place.start();
    place.wait("it to serve", || place.is_served());
    let serving = guard.serving().unwrap();
    kill_process(serving, Signal::STOP).unwrap();
    guard.end(Signal::KILL);
    place.wait("its process to be gone", || rustix::process::test_kill_process(serving).is_err());
}

#[test]
fn a_process_that_ends_by_itself_is_started_again_and_a_mistake_is_told_once() {
    let place = Place::new();
    let guard = place.start();
    place.wait("it to serve", || place.is_served());
    for _ in 0..2 {
        let serving = guard.serving().unwrap();
        kill_process(serving, Signal::KILL).unwrap();
        place.wait("another", || guard.serving().is_some_and(|pid| pid != serving));
        place.wait("it to serve", || place.is_served());
    }
    // Its process ends after it, and has the port until then.
    let serving = guard.serving().unwrap();
    drop(guard);
    place.wait("its process to be gone", || rustix::process::test_kill_process(serving).is_err());
    let text = fs::read_to_string(place.at("a.toml")).unwrap();
    let drive = place.at("drive").display().to_string();
    for (right, wrong, said) in [
        ("workers = 2", "workers = 0", "is not between 1 and 256"),
        (&*drive, "/nowhere", "no drive can be used"),
    ] {
        fs::write(place.at("a.toml"), text.replace(right, wrong)).unwrap();
        let mut guard = place.start();
        assert_eq!(guard.0.wait().unwrap().code(), Some(1));
        let log = place.log();
        assert_eq!(log.matches(said).count(), 1, "{log}");
    }
}

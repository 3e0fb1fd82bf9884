//! What a confined process cannot do, tried by one, and what it must still be able to do.
//!
//! Each try is this program again, in a process of its own that confines itself as the appliance
//! does, tries one thing and says what came of it. At the end stands the appliance itself.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]
#![expect(clippy::print_stdout, reason = "its standard output is how it is asked and answers")]

mod held;
mod holdup;
mod promtool;
mod queues;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _, parent_id};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use appliance::clock;
use appliance::process::confine::{Grants, Sandbox, close_rings, confine, drop_privileges};
use appliance::serving::incidents::{self, Incidents};
use appliance::serving::listen;
use appliance::storage::format;
use held::{free_ports, identity_of};
use identity::authority::Authority;
use identity::credentials::Credentials;
use identity::dial::Dial;
use identity::member::Member;
use model::id::ObjectId;
use model::units::{Bytes, Nanos, UnixSeconds};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use ureq::unversioned::transport::DefaultConnector;
use worker::{Incident, Reason, Waits};

/// What a try finds.
struct Given {
    /// A folder with the folders `drive` (to write), `tls` (to read) and `outside`.
    place: PathBuf,
    /// Bound before.
    socket: OwnedFd,
    /// The error with which this machine's own name was looked up before. A tree that nobody has
    /// installed has no /etc/hosts.
    nameless: Option<String>,
}

/// Nothing wrong, or the name of the error.
type Said = Result<(), String>;

/// A try: what it shows, what is to come of it, and how it is done.
struct Try(&'static str, &'static str, fn(&Given) -> Said);

/// A try by the name of its function, or a test. `./x tidy` knows tests of this file by this.
macro_rules! of {
    ($how:ident, $expected:literal) => {
        Try(stringify!($how), $expected, $how)
    };
    ($how:ident) => {
        (stringify!($how), $how)
    };
}

const TRIES: &[Try] = &[
    // What serving needs.
    of!(writes_renames_and_removes_on_its_drive, "ok"),
    of!(reads_a_certificate_that_was_replaced, "ok"),
    of!(keeps_an_incident_and_lets_the_oldest_go, "ok"),
    of!(finds_addresses_by_name, "ok"),
    of!(listens_where_it_was_bound_and_connects, "ok"),
    of!(starts_threads, "ok"),
    of!(reads_what_the_kernel_says_of_it, "ok"),
    of!(aborts, "signal 6"),
    // Files.
    of!(cannot_read_the_passwords, "EACCES"),
    of!(cannot_read_a_file_outside, "EACCES"),
    of!(cannot_list_a_folder_outside, "EACCES"),
    of!(cannot_write_outside, "EACCES"),
    of!(cannot_write_where_certificates_are, "EACCES"),
    of!(cannot_reach_outside_by_a_link_on_its_drive, "EACCES"),
    of!(cannot_make_a_link, "ENOSYS"),
    of!(cannot_look_into_its_parent, "EACCES"),
    // Programs and processes.
    of!(cannot_become_another_program, "signal 31"),
    of!(cannot_start_a_program, "ENOSYS"),
    of!(cannot_signal_its_parent, "ENOSYS"),
    of!(cannot_become_root_again, "signal 31"),
    // Sockets.
    of!(cannot_open_a_raw_socket, "ENOSYS"),
    of!(cannot_open_a_packet_socket, "ENOSYS"),
    of!(cannot_bind_another_port, "ENOSYS"),
    // Rings: what goes through one is not filtered.
    of!(cannot_make_another_ring, "ENOSYS"),
];

fn writes_renames_and_removes_on_its_drive(given: &Given) -> Said {
    let (new, name) = (given.place.join("drive/new"), given.place.join("drive/name"));
    fs::write(&new, "bytes").map_err(said)?;
    fs::rename(&new, &name).map_err(said)?;
    fs::create_dir(given.place.join("drive/folder")).map_err(said)?;
    fs::remove_file(&name).map_err(said)
}

fn reads_a_certificate_that_was_replaced(given: &Given) -> Said {
    let text = fs::read_to_string(given.place.join("tls/cert.pem")).map_err(said)?;
    if text == "replaced" { Ok(()) } else { Err(text) }
}

fn keeps_an_incident_and_lets_the_oldest_go(given: &Given) -> Said {
    let state = given.place.join("drive");
    let mut incidents = Incidents::new(&state);
    for seconds in 0..120 {
        incidents.keep(&Incident {
            reason: Reason::Requested,
            wall: UnixSeconds(seconds),
            lasted: Nanos::seconds(1),
            waits: Waits::default(),
            object: ObjectId([7; 32]),
            sent: Bytes(1),
            forgotten: 0,
            events: Vec::new(),
        });
    }
    let files = fs::read_dir(state.join(incidents::FOLDER)).map_err(said)?.count();
    if files == 100 { Ok(()) } else { Err(format!("{files} files")) }
}

fn finds_addresses_by_name(given: &Given) -> Said {
    let found = look_up();
    if found.as_ref().err() == given.nameless.as_ref() { Ok(()) } else { found }
}

fn look_up() -> Said {
    ("localhost", 80).to_socket_addrs().map(drop).map_err(said)
}

fn listens_where_it_was_bound_and_connects(given: &Given) -> Said {
    listen::listen(&given.socket).map_err(said)?;
    let listener = TcpListener::from(given.socket.try_clone().map_err(said)?);
    let at = listener.local_addr().map_err(said)?;
    let mut there = TcpStream::connect(at).map_err(said)?;
    let (mut here, _) = listener.accept().map_err(said)?;
    there.write_all(b"x").map_err(said)?;
    here.read_exact(&mut [0]).map_err(said)
}

fn starts_threads(_: &Given) -> Said {
    let thread = std::thread::Builder::new().spawn(|| ()).map_err(said)?;
    thread.join().map_err(|_| "panic".to_owned())
}

fn reads_what_the_kernel_says_of_it(_: &Given) -> Said {
    let status = fs::read_to_string("/proc/self/status").map_err(said)?;
    let restricted = status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2");
    if restricted { Ok(()) } else { Err(status) }
}

fn aborts(_: &Given) -> Said {
    std::process::abort()
}

fn cannot_read_the_passwords(_: &Given) -> Said {
    read(Path::new("/etc/shadow"))
}

fn cannot_read_a_file_outside(given: &Given) -> Said {
    read(&given.place.join("outside/file"))
}

fn cannot_list_a_folder_outside(given: &Given) -> Said {
    fs::read_dir(given.place.join("outside")).map(drop).map_err(said)
}

fn cannot_write_outside(given: &Given) -> Said {
    write(&given.place.join("outside/new"))
}

fn cannot_write_where_certificates_are(given: &Given) -> Said {
    write(&given.place.join("tls/cert.pem"))
}

fn cannot_reach_outside_by_a_link_on_its_drive(given: &Given) -> Said {
    read(&given.place.join("drive/link"))
}

fn cannot_make_a_link(given: &Given) -> Said {
    symlink("/etc/shadow", given.place.join("drive/another")).map_err(said)
}

fn cannot_look_into_its_parent(_: &Given) -> Said {
    read(Path::new(&format!("/proc/{}/environ", parent_id())))
}

fn cannot_become_another_program(_: &Given) -> Said {
    Err(said(Command::new("/bin/true").exec()))
}

fn cannot_start_a_program(_: &Given) -> Said {
    Command::new("/bin/true").spawn().map(drop).map_err(said)
}

fn cannot_signal_its_parent(_: &Given) -> Said {
    let parent = Pid::from_raw(parent_id().cast_signed()).unwrap();
    kill_process(parent, Signal::CONT).map_err(|error| said(error.into()))
}

fn cannot_become_root_again(_: &Given) -> Said {
    rustix::thread::set_thread_uid(rustix::process::Uid::ROOT).map_err(|error| said(error.into()))
}

fn cannot_open_a_raw_socket(_: &Given) -> Said {
    socket(AddressFamily::INET, SocketType::RAW)
}

fn cannot_open_a_packet_socket(_: &Given) -> Said {
    socket(AddressFamily::PACKET, SocketType::RAW)
}

fn cannot_bind_another_port(_: &Given) -> Said {
    TcpListener::bind("127.0.0.1:0").map(drop).map_err(said)
}

fn cannot_make_another_ring(_: &Given) -> Said {
    ring().map_err(said)
}

fn said(error: std::io::Error) -> String {
    match error.raw_os_error() {
        Some(1) => "EPERM".to_owned(),
        Some(13) => "EACCES".to_owned(),
        Some(38) => "ENOSYS".to_owned(),
        _ => error.to_string(),
    }
}

fn read(path: &Path) -> Said {
    fs::read(path).map(drop).map_err(said)
}

fn write(path: &Path) -> Said {
    fs::write(path, "").map_err(said)
}

fn socket(family: AddressFamily, kind: SocketType) -> Said {
    rustix::net::socket(family, kind, None).map(drop).map_err(|error| said(error.into()))
}

fn ring() -> std::io::Result<()> {
    let config = uring::Config {
        entries: 8,
        buffer_count: 1,
        buffer_len: Bytes::kib(4),
        file_slots: 1,
        direct_reads: true,
        blocking_max: 1,
    };
    let made = uring::Ring::new(config);
    made.map(drop).map_err(|uring::RingError::Setup { error, .. }| error)
}

/// The name of the try, for the process that does it.
const WHICH: &str = "NEARCAST_TEST_TRY";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(WHICH) {
        try_it(&name);
        return ExitCode::SUCCESS;
    }
    // As the usual harness does: what does not begin with a dash is part of a name.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    let mut note = |name: &str, fact: &dyn Fn() -> Said| {
        if !is_wanted(name) {
            left_out += 1;
            return;
        }
        match fact() {
            Ok(()) => passed += 1,
            Err(_) => failed += 1,
        }
    };
    for tried in TRIES {
        note(tried.0, &|| report(tried.0, check(tried)));
    }
    let (itself, how) = of!(every_thread_of_the_appliance_is_confined_and_it_serves);
    note(itself, &|| report(itself, how()));
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; \
         {left_out} filtered out"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(name: &str, result: Said) -> Said {
    match &result {
        Ok(()) => println!("test {name} ... ok"),
        Err(text) => println!("test {name} ... FAILED: {text}"),
    }
    result
}

/// In the process of a try: confines it as `server` does, waits to be told, tries, and says it.
fn try_it(name: &str) {
    let place = std::env::current_dir().unwrap();
    let socket = listen::bind("127.0.0.1:0".parse().unwrap(), None, None).unwrap();
    let nameless = look_up().err();
    drop_privileges(None).unwrap();
    let grants = Grants {
        read_write: vec![place.join("drive")],
        read: vec![place.join("tls/cert.pem"), place.join("tls/not there.pem")],
    };
    assert!(confine(Sandbox::Require, &grants).unwrap(), "a kernel with seccomp");
    ring().unwrap();
    close_rings().unwrap();
    println!("confined");
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let Try(_, _, how) = TRIES.iter().find(|tried| tried.0 == name).unwrap();
    println!(
        "{}",
        how(&Given { place, socket, nameless }).err().unwrap_or_else(|| "ok".to_owned())
    );
}

/// Starts a try, changes what others would change meanwhile, and compares what came of it.
fn check(Try(name, expected, _): &Try) -> Said {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    for folder in ["drive", "tls", "outside"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::write(at("tls/cert.pem"), "first").unwrap();
    fs::write(at("outside/file"), "secret").unwrap();
    symlink(at("outside/file"), at("drive/link")).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(WHICH, name)
        .current_dir(place.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    fs::write(at("tls/new"), "replaced").unwrap();
    fs::rename(at("tls/new"), at("tls/cert.pem")).unwrap();
    // If it has ended already, its status says so.
    let _ = child.stdin.take().unwrap().write_all(b"!");
    let mut found = String::new();
    output.read_to_string(&mut found).unwrap();
    let found = match child.wait().unwrap().signal() {
        Some(signal) => format!("signal {signal}"),
        None => found.trim().to_owned(),
    };
    if line.trim() != "confined" {
        return Err(format!("it could not confine itself: {found}"));
    }
    if found == *expected { Ok(()) } else { Err(format!("{found}, not {expected}")) }
}

/// Half of what is installed: so much can be on its way over loopback, and more.
const UNSENT_MAX: Bytes = Bytes::kib(128);
/// Somebody without rights, on every Linux.
const NOBODY: &str = "nobody";

fn every_thread_of_the_appliance_is_confined_and_it_serves() -> Said {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let is_root = rustix::process::getuid().is_root();
    fs::create_dir(at("drive")).unwrap();
    format::format(&at("drive"), "10%".parse().unwrap(), clock::wall()).unwrap();
    fs::create_dir(at("tls")).unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(at("tls/cert.pem"), made.cert.pem()).unwrap();
    fs::write(at("tls/key.pem"), made.signing_key.serialize_pem()).unwrap();
    let authority = Authority::create(clock::wall()).unwrap();
    fs::create_dir(at("state")).unwrap();
    identity_of("a1", &authority).save(&at("state")).unwrap();
    held::put(&at("drive"), &at("state"));
    let [tls, peers, metrics] = free_ports();
    let user = if is_root { format!("user = \"{NOBODY}\"") } else { String::new() };
    let text = format!(
        "name = \"a1\"\nstate = \"{state}\"\n[serve]\nlisten = [\"127.0.0.1:{tls}\"]\n\
         certificate = \"{tls_dir}/cert.pem\"\n\
         key = \"{tls_dir}/key.pem\"\nworkers = 2\n\
         unsent_max = \"{UNSENT_MAX}\"\n[drives]\npaths = [\"{drive}\"]\n\
         [control]\nurl = \"https://127.0.0.1:9\"\n\
         [peer]\nlisten = [\"127.0.0.1:{peers}\"]\n\
         [metrics]\nlisten = \"127.0.0.1:{metrics}\"\n[process]\nsandbox = \"require\"\n{user}\n",
        state = at("state").display(),
        tls_dir = at("tls").display(),
        drive = at("drive").display(),
    );
    fs::write(at("a.toml"), text).unwrap();
    if is_root {
        give(place.path(), user_id(NOBODY));
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_nearcast-appliance"))
        .args(["serve", "--config"])
        .arg(at("a.toml"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    let log = lines(child.stderr.take().unwrap());
    let said = wait_for(&log, "this library seals cipher=\"aes-256-gcm\"")
        .and_then(|()| wait_for(&log, "serving name="))
        .and_then(|()| served(tls, made.cert.der()))
        .and_then(|()| served_a_sibling(peers, &identity_of("a2", &authority)))
        .and_then(|()| metrics_are_good(metrics))
        .and_then(|()| threads_are_confined(child.id(), is_root))
        .and_then(|()| little_waits_for_who_does_not_read(tls, made.cert.der()))
        .and_then(|()| more_may_wait_while_more_is_on_its_way(tls, made.cert.der()))
        .and_then(|()| takes_signals(pid, &log))
        .and_then(|()| served(tls, made.cert.der()));
    kill_process(pid, Signal::TERM).unwrap();
    let ended = child.wait().unwrap();
    said?;
    if ended.success() { Ok(()) } else { Err(format!("it ended with {ended}")) }
}

/// Once the metrics are there, which are gathered each second: they say what was chosen, and that
/// it was measured, as confined as the rest; and Prometheus finds no fault with them.
fn metrics_are_good(port: u16) -> Said {
    let start = Instant::now();
    loop {
        let mut text = String::new();
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(said)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").map_err(said)?;
        stream.read_to_string(&mut text).map_err(said)?;
        let used = "nearcast_aead_info{cipher=\"aes-256-gcm\",kernel=\"";
        let measured = ["aws-lc", "ring"].map(|kernel| {
            let name = "nearcast_aead_seconds_per_gigabyte";
            let row = format!("{name}{{cipher=\"aes-128-gcm\",kernel=\"{kernel}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&row)?.parse::<f64>().ok())
        });
        let all = measured.iter().all(|seconds| seconds.is_some_and(|seconds| 0.0 < seconds));
        if text.matches(used).count() == 1 && all {
            let (_, page) = text.split_once("\r\n\r\n").ok_or("an answer without a body")?;
            return promtool::check(page);
        }
        if Duration::from_secs(20) <= start.elapsed() {
            return Err(format!("the metrics do not say what seals: {text}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Both signals end a process that is not prepared. At USR1 there is nothing under way to write
/// down; at HUP it reads its certificate again.
fn takes_signals(pid: Pid, log: &Receiver<String>) -> Said {
    kill_process(pid, Signal::USR1).map_err(|error| said(error.into()))?;
    kill_process(pid, Signal::HUP).map_err(|error| said(error.into()))?;
    wait_for(log, "new connections are shown the certificate")
}

/// What a process says, line by line, until its end.
fn lines(stderr: ChildStderr) -> Receiver<String> {
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stderr).lines().map_while(Result::ok);
        // Read on though nobody listens: it must be able to say all.
        lines.for_each(|line| drop(send.send(line)));
    });
    receive
}

/// Waits for a line with these words.
fn wait_for(log: &Receiver<String>, words: &str) -> Said {
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut before = Vec::new();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match log.recv_timeout(left) {
            Ok(line) if line.contains(words) => return Ok(()),
            Ok(line) => before.push(line),
            Err(error) => {
                return Err(format!("it does not say {words:?}, {error}:\n{}", before.join("\n")));
            }
        }
    }
}

/// A viewer fetches the film over TLS: from the drive, through ring, worker and socket. It is
/// found by the first audit, a moment after the start.
fn served(port: u16, certificate: &CertificateDer<'static>) -> Said {
    let deadline = Instant::now() + Duration::from_secs(20);
    let request = held::request(&held::url());
    loop {
        let socket = TcpStream::connect(("127.0.0.1", port));
        let socket = socket.map_err(|error| format!("it does not listen: {error}"))?;
        let answer = held::exchange(&socket, Some(certificate), &request).map_err(said)?;
        let head = String::from_utf8_lossy(&answer[..answer.len().min(400)]).into_owned();
        match held::body(answer) {
            Some(body) if body == held::content() => return Ok(()),
            Some(body) => return Err(format!("{} bytes, and not the film's", body.len())),
            None if Instant::now() < deadline => std::thread::yield_now(),
            None => return Err(format!("it does not serve the film: {head}")),
        }
    }
}

fn little_waits_for_who_does_not_read(port: u16, certificate: &CertificateDer<'static>) -> Said {
    let socket = TcpStream::connect(("127.0.0.1", port)).map_err(said)?;
    let queued = queued_for(&socket, certificate, |_| {});
    let most = (UNSENT_MAX + holdup::PACKET).0;
    if queued <= most { Ok(()) } else { Err(format!("{queued} bytes wait, not {most} at most")) }
}

fn more_may_wait_while_more_is_on_its_way(
    port: u16,
    certificate: &CertificateDer<'static>,
) -> Said {
    let queued = queued_for(&holdup::connect(port), certificate, holdup::cut_off);
    let least = holdup::without_raising(UNSENT_MAX);
    if least < queued { Ok(()) } else { Err(format!("{queued} bytes wait, not more than {least}")) }
}

/// Asks for the film ten times and reads nothing of it; how much waits then. `before` it asks,
/// something is done to the socket.
fn queued_for(
    socket: &TcpStream,
    certificate: &CertificateDer<'static>,
    before: fn(&TcpStream),
) -> u64 {
    let mut stream = held::secure(socket, certificate);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).unwrap();
    }
    before(socket);
    let request = format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", held::url());
    stream.write_all(request.repeat(10).as_bytes()).unwrap();
    holdup::settled(|| queues::queues(queues::ports(socket)).0)
}

/// Asks the listener for siblings for what is not there: its threads begin when somebody comes.
fn served_a_sibling(port: u16, credentials: &Credentials) -> Said {
    let (dial, a1) = (Dial::default(), Member::appliance("a1"));
    dial.set(&a1, &format!("127.0.0.1:{port}"));
    let config = ureq::Agent::config_builder()
        .tls_config(credentials.client_tls().unwrap())
        .http_status_as_error(false)
        .proxy(None)
        .build();
    let agent = ureq::Agent::with_parts(config, DefaultConnector::new(), dial);
    let answer = agent.get(format!("https://{}/nothing", a1.host())).call();
    let answer = answer.map_err(|error| format!("a sibling gets {error}"))?;
    if answer.status() == 404 { Ok(()) } else { Err(answer.status().to_string()) }
}

fn threads_are_confined(pid: u32, is_root: bool) -> Said {
    let mut threads = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).map_err(said)? {
        let status = thread.map_err(said)?.path().join("status");
        // A thread that has ended meanwhile proves nothing.
        let Ok(status) = fs::read_to_string(status) else { continue };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_default().trim().to_owned()
        };
        let capabilities = u64::from_str_radix(&field("CapPrm:"), 16).unwrap_or(u64::MAX);
        /// CAP_IPC_LOCK.
        const LOCK_MEMORY: u64 = 1 << 14;
        let mut facts = vec![
            ("no new privileges", field("NoNewPrivs:") == "1"),
            ("system calls restricted", field("Seccomp:") == "2"),
            ("no capabilities", capabilities & !LOCK_MEMORY == 0),
            ("no rings any more", field("Seccomp_filters:") == "3"),
        ];
        if is_root {
            let id = user_id(NOBODY).to_string();
            let ids = field("Uid:");
            facts.push(("another user", ids.split_whitespace().all(|given| given == id)));
            facts.push(("no other groups", field("Groups:").is_empty()));
        }
        if let Some((wrong, _)) = facts.iter().find(|(_, is_so)| !is_so) {
            return Err(format!("not so: {wrong}\n{status}"));
        }
        threads += 1;
    }
    if 6 < threads { Ok(()) } else { Err(format!("only {threads} threads were looked at")) }
}

fn user_id(name: &str) -> u32 {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let user = users.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    user.split(':').nth(2).unwrap().parse().unwrap()
}

/// Makes `uid` the owner of all below `path`.
fn give(path: &Path, uid: u32) {
    chown(path, Some(uid), None).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), uid));
    }
}

//! The real agent behind a real socket.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use wire::v1::agent::{Answer, Line, REQUEST_LEN_MAX};

const AGENT: &str = env!("CARGO_BIN_EXE_nearcast-agent");

struct Agent {
    child: Child,
    place: tempfile::TempDir,
}

/// An agent with two drives: a folder on no file system of its own, and the root of one.
fn agent(user: &str, group: &str) -> Agent {
    let place = tempfile::tempdir().unwrap();
    // For others to find the socket.
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(place.path().join("drive")).unwrap();
    let text = format!(
        "socket = \"{0}/agent.sock\"\nuser = \"{user}\"\ngroup = \"{group}\"\n\
         [drives]\npaths = [\"{0}/drive\", \"/proc\"]\n[discard]\nevery = \"off\"\n",
        place.path().display()
    );
    std::fs::write(place.path().join("agent.toml"), text).unwrap();
    let mut child = Command::new(AGENT)
        .args(["serve", "--config"])
        .arg(place.path().join("agent.toml"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its first line is that it answers, or why it does not.
    let mut line = String::new();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    log.read_line(&mut line).unwrap();
    assert!(line.contains("answering"), "{line}");
    // Whatever else it says is taken, so that it does not wait.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    Agent { child, place }
}

impl Agent {
    fn socket(&self) -> PathBuf {
        self.place.path().join("agent.sock")
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }

    fn asked(&self, arguments: &[&str], uid: Option<u32>) -> Output {
        let mut command = Command::new(AGENT);
        command.arg(arguments[0]).arg("--socket").arg(self.socket()).args(&arguments[1..]);
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        command.output().unwrap()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn id(file: &str, name: &str) -> u32 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap();
    line.split(':').nth(2).unwrap().parse().unwrap()
}

fn name(file: &str, id: u32) -> String {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find(|line| line.split(':').nth(2) == Some(&id.to_string())).unwrap();
    line.split(':').next().unwrap().to_owned()
}

/// One that takes the requests of whoever runs the tests.
fn agent_of_mine() -> Agent {
    let user = name("/etc/passwd", rustix::process::getuid().as_raw());
    agent(&user, &name("/etc/group", rustix::process::getgid().as_raw()))
}

fn said(stream: &UnixStream) -> Answer {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    serde_json::from_str::<Line<Answer>>(&line).unwrap().said
}

fn ask(stream: &mut UnixStream, line: &str) -> Answer {
    stream.write_all(line.as_bytes()).unwrap();
    said(stream)
}

fn refusal(answer: Answer) -> String {
    let Answer::Refused(why) = answer else { panic!("{answer:?}") };
    why
}

#[test]
fn drives_are_described_and_only_they_are_trimmed() {
    let agent = agent_of_mine();
    let drive = agent.place.path().join("drive").display().to_string();
    let mut stream = agent.connect();
    let answer = ask(&mut stream, "{\"v\":1,\"verb\":\"drives\"}\n");
    let Answer::Drives(drives) = answer else { panic!("{answer:?}") };
    assert_eq!(drives.len(), 2);
    assert_eq!((&*drives[0].path, drives[0].is_mount_point), (&*drive, false));
    assert!(drives[1].is_mount_point && drives[1].file_system.is_some(), "{:?}", drives[1]);

    let trim = |drive: &str| format!("{{\"v\":1,\"verb\":\"trim\",\"drive\":\"{drive}\"}}\n");
    let why = refusal(ask(&mut stream, &trim("/etc")));
    assert!(why.contains("no such drive"), "{why}");
    let why = refusal(ask(&mut stream, &trim(&format!("{drive}/../drive"))));
    assert!(why.contains("no such drive"), "only as it is written in the configuration: {why}");
    let why = refusal(ask(&mut stream, &trim(&drive)));
    assert!(why.contains("not a mount point"), "{why}");

    let answer = ask(&mut stream, "{\"v\":1,\"verb\":\"health\"}\n");
    let Answer::Health(health) = answer else { panic!("{answer:?}") };
    assert!(health[0].unknown.as_ref().unwrap().contains("not on a device"), "{health:?}");
}

#[test]
fn the_socket_is_for_one_group_and_the_agent_for_one_user() {
    let is_root = rustix::process::getuid().is_root();
    assert!(is_root, "run this test as root: it asks the agent as other users");
    let agent = agent("daemon", "nogroup");
    let file = std::fs::metadata(agent.socket()).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!((file.mode() & 0o777, file.gid()), (0o660, id("/etc/group", "nogroup")));
    // In the group, and not the user.
    let nobody = id("/etc/passwd", "nobody");
    let output = agent.asked(&["drives"], Some(nobody));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("only root and daemon may ask"), "{error}");
    // In another group.
    let output = agent.asked(&["drives"], Some(id("/etc/passwd", "daemon")));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("Permission denied"), "{error}");
    let output = agent.asked(&["drives"], None);
    assert!(output.status.success(), "root: {output:?}");
}

#[test]
fn odd_requests_are_refused_with_a_reason() {
    let agent = agent_of_mine();
    let mut stream = agent.connect();
    for (line, reason) in [
        ("{\"v\":2,\"verb\":\"drives\"}\n", "version 2"),
        ("{\"v\":1,\"verb\":\"format\"}\n", "unknown variant `format`"),
        ("{\"v\":1}\n", "not a request"),
        ("\n", "not a request"),
        ("\u{0}\u{1}\n", "not a request"),
    ] {
        let why = refusal(ask(&mut stream, line));
        assert!(why.contains(reason), "{line:?}: {why}");
    }
    let long = "x".repeat(REQUEST_LEN_MAX + 1);
    let why = refusal(ask(&mut stream, &long));
    assert!(why.contains("at most"), "{why}");
    assert_eq!(stream.read(&mut [0]).map_or(0, |len| len), 0, "and the connection is closed");
}

#[test]
fn a_ninth_connection_is_told_so_and_eight_do_not_take_the_agent_away_for_good() {
    let agent = agent_of_mine();
    let mut open: Vec<UnixStream> = (0..8).map(|_| agent.connect()).collect();
    // Answered, so they are taken and counted.
    for stream in &mut open {
        assert!(matches!(ask(stream, "{\"v\":1,\"verb\":\"drives\"}\n"), Answer::Drives(_)));
    }
    let why = refusal(said(&agent.connect()));
    assert!(why.contains("too many"), "{why}");
    drop(open);
    let again = (0..1000).any(|_| agent.asked(&["drives"], None).status.success());
    assert!(again, "places become free");
}

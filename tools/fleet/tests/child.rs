//! Nothing that the demo starts outlives it, however it ends.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};

#[test]
fn a_child_dies_with_a_parent_that_was_killed() {
    // The shell stands in for a demo: it starts a child, says its id, and is killed.
    let nearcast = env!("CARGO_BIN_EXE_nearcast");
    let script = format!("'{nearcast}' child --parent $$ sleep 600 & echo $!; wait");
    let mut shell =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let child = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
    let comm = format!("/proc/{}/comm", child.as_raw_nonzero());
    until("the child becomes sleep", || std::fs::read_to_string(&comm).unwrap() == "sleep\n");
    shell.kill().unwrap();
    shell.wait().unwrap();
    until("the child is gone", || test_kill_process(child).is_err());
}

#[test]
fn a_child_whose_parent_is_gone_already_does_not_begin() {
    let output = Command::new(env!("CARGO_BIN_EXE_nearcast"))
        .args(["child", "--parent", "1", "echo", "began"])
        .output()
        .unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the parent ended"), "{said}");
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

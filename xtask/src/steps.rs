//! The gate: steps in order, cheapest first, each with its time, to the first failure. The nightly
//! run goes on after one, so that a morning knows all of them: docs/internals/nightly.md.
//!
//! Clippy, tests and binaries share one target folder and one set of features (the workspace's),
//! so each library is compiled twice at most: once to be looked at and once to be run.

use std::io::{BufRead, BufReader, Write};
use std::ops::AddAssign;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::ValueEnum as _;
use serde_json::Value;

use crate::{bare, deb, install, run_rooms, run_tidy, say, web, workspace};

/// How many things a step found right and wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

impl AddAssign for Count {
    fn add_assign(&mut self, more: Self) {
        self.passed += more.passed;
        self.failed += more.failed;
    }
}

const PASSED: Count = Count { passed: 1, failed: 0 };
const FAILED: Count = Count { passed: 0, failed: 1 };

struct Step {
    name: &'static str,
    run: fn(&Path) -> Result<Count>,
}

const CHECK: [Step; 13] = [
    Step { name: "fmt", run: |root| cargo(root, &["fmt", "--all", "--check"]) },
    Step { name: "rooms", run: |root| Ok(one(run_rooms(root)?)) },
    Step { name: "tidy", run: |root| Ok(one(run_tidy(root)?)) },
    // Before anything of cargo's: control takes the built pages in.
    Step { name: "web", run: |root| web::build(root).and_then(|()| npm_run(root, "check")) },
    Step { name: "clippy", run: clippy },
    Step { name: "test", run: |root| tests(root, &[]) },
    Step { name: "build", run: |root| cargo(root, &["build", "--workspace", "--bins"]) },
    Step { name: "postgres", run: postgres },
    Step { name: "sim", run: |root| simulate(root, "100") },
    Step { name: "drives", run: |root| drives(root, "debug", "40", &["all"]) },
    Step { name: "routes", run: routes },
    Step { name: "npm", run: |root| npm_run(root, "test") },
    Step { name: "browser", run: browser },
];

const NIGHTLY: [Step; 29] = [
    Step { name: "alone", run: rooms_alone },
    Step { name: "properties", run: |root| tests(root, &[("PROPTEST_CASES", "4096")]) },
    Step { name: "sim", run: |root| simulate(root, "20000") },
    Step { name: "fleet", run: year },
    Step { name: "install", run: install_page },
    Step { name: "bare", run: bare_machines },
    Step {
        name: "lab-drives",
        run: |root| drives(root, "release", "1500", &["files", "folders", "all"]),
    },
    Step { name: "lab-crash-fill", run: |root| lab(root, "release", &["crash-fill"]) },
    Step { name: "lab-flood", run: |root| lab(root, "release", &["flood", "--long-turns"]) },
    Step { name: "lab-flap", run: |root| lab(root, "release", &["flap"]) },
    Step { name: "lab-warm", run: |root| compare(root, "warm") },
    Step { name: "lab-cold", run: |root| compare(root, "cold") },
    Step { name: "lab-small", run: |root| compare(root, "small") },
    Step { name: "lab-ssd", run: |root| lab(root, "release", &["ssd"]) },
    Step { name: "lab-drive", run: |root| lab(root, "release", &["drive"]) },
    // Called through `./x`, which installs what they need.
    Step { name: "lab-faults", run: |root| labs(root, &FAULTS) },
    Step { name: "lab-viewers", run: |root| labs(root, &VIEWERS) },
    Step { name: "lab-tls", run: |root| labs(root, &OLD_TLS) },
    Step { name: "lab-masters", run: |root| lab(root, "release", &["masters"]) },
    Step { name: "lab-night", run: |root| lab(root, "release", &["night"]) },
    Step { name: "lab-drain", run: |root| lab(root, "release", &["drain"]) },
    Step { name: "lab-takedown", run: |root| labs(root, &TAKEDOWNS) },
    Step { name: "lab-outage", run: |root| lab(root, "release", &["outage"]) },
    Step { name: "lab-storm", run: |root| lab(root, "release", &["storm"]) },
    Step { name: "lab-steer", run: |root| lab(root, "release", &["steer"]) },
    Step { name: "lab-director", run: |root| lab(root, "release", &DIRECTOR) },
    Step { name: "lab-place", run: |root| lab(root, "release", &["place"]) },
    Step { name: "vm", run: |root| run_program(root, "./x", &["vm", "test", "--json"]) },
    // `docs/reports` says what to make of what is found.
    Step { name: "reports", run: |root| run_program(root, "./x", &["reports"]) },
];

pub(crate) fn check(root: &Path, only: &[String]) -> Result<bool> {
    run(root, &CHECK, only, AfterFailure::Stop, &say)
}

/// Steps that are too long for the gate.
pub(crate) fn nightly(root: &Path, only: &[String]) -> Result<bool> {
    run(root, &NIGHTLY, only, AfterFailure::GoOn, &say)
}

/// What a run does after a step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFailure {
    Stop,
    GoOn,
}

/// The last line is the summary, alone: tests one by one, every other step as one.
fn run(
    root: &Path,
    steps: &[Step],
    only: &[String],
    after: AfterFailure,
    say: &dyn Fn(&str),
) -> Result<bool> {
    let names: Vec<_> = steps.iter().map(|step| step.name).collect();
    if let Some(unknown) = only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("no step is called \"{unknown}\": there are {}", names.join(", "));
    }
    let mut total = Count::default();
    let mut failed = Vec::new();
    let start = Instant::now();
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    for step in steps.iter().filter(wanted) {
        say(&format!("==> {}", step.name));
        let began = Instant::now();
        let count = (step.run)(root).unwrap_or_else(|error| {
            say(&format!("{}: {error:#}", step.name));
            FAILED
        });
        total += count;
        let word = if count.failed == 0 { "ok" } else { "FAILED" };
        let seconds = began.elapsed().as_secs_f64();
        say(&format!("<== {} {word}, {} passed, {seconds:.1} s", step.name, count.passed));
        if 0 < count.failed {
            failed.push(step.name);
            if after == AfterFailure::Stop {
                break;
            }
        }
    }
    say(&format!("{:.1} s in all", start.elapsed().as_secs_f64()));
    if !failed.is_empty() {
        say(&format!("failed: {}", failed.join(", ")));
    }
    say(&format!("{} passed, {} failed", total.passed, total.failed));
    Ok(total.failed == 0 && 0 < total.passed)
}

fn run_program(root: &Path, name: &str, arguments: &[&str]) -> Result<Count> {
    let status = Command::new(name).args(arguments).current_dir(root).status();
    Ok(one(status.with_context(|| format!("{name} does not start"))?.success()))
}

fn one(passed: bool) -> Count {
    if passed { PASSED } else { FAILED }
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<Count> {
    run_program(root, "cargo", arguments)
}

fn npm_run(root: &Path, script: &str) -> Result<Count> {
    web::run(root, script).map(|()| PASSED)
}

fn clippy(root: &Path) -> Result<Count> {
    cargo(root, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])
}

/// All tests and doctests, counted one by one. A test that is skipped counts as failed.
fn tests(root: &Path, environment: &[(&str, &str)]) -> Result<Count> {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--no-fail-fast"]).current_dir(root);
    command.envs(environment.iter().copied());
    let mut count = Count::default();
    let ended_well = follow(&mut command, |line| count += test_result(line).unwrap_or_default())?;
    if !ended_well && count.failed == 0 {
        // It did not even compile.
        count.failed = 1;
    }
    Ok(count)
}

/// All of control's tests once more, each program of them beside a PostgreSQL server of its own.
fn postgres(root: &Path) -> Result<Count> {
    let mut programs = Vec::new();
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace", "--no-run", "--message-format", "json"]);
    let built = quietly(command.current_dir(root), |line| programs.extend(control_test(line)))?;
    if !built || programs.is_empty() {
        bail!("control's tests are not built");
    }
    let mut count = Count::default();
    for program in programs {
        let mut command = Command::new(binary(root, "debug", "nearcast-lab"));
        command.arg("with-postgres").arg(program).current_dir(root.join("shell/control"));
        let mut here = Count::default();
        let ended_well = follow(&mut command, |line| here += test_result(line).unwrap_or_default());
        if !ended_well? && here.failed == 0 {
            here.failed = 1;
        }
        count += here;
    }
    Ok(count)
}

/// The program of a line of `cargo --message-format json`, if it has tests of control.
fn control_test(line: &str) -> Option<PathBuf> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is_ours = line["manifest_path"].as_str()?.ends_with("/shell/control/Cargo.toml");
    // The program itself has none, and is built as one with tests all the same.
    let has_tests = line["profile"]["test"] == true && line["target"]["kind"][0] != "bin";
    (is_ours && has_tests).then(|| line["executable"].as_str().map(PathBuf::from)).flatten()
}

/// The counts in a line like `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
fn test_result(line: &str) -> Option<Count> {
    let counts = line.strip_prefix("test result: ")?;
    let number = |name: &str| {
        let words: Vec<_> = counts.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        let at = words.iter().position(|word| *word == name)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    Some(Count { passed: number("passed")?, failed: number("failed")? + number("ignored")? })
}

/// Runs a command, shows its standard output as it comes and gives each line to `each`.
fn follow(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    quietly(command, |line| {
        say(line);
        each(line);
    })
}

/// Runs a command and gives each line of its standard output to `each`.
fn quietly(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = command.stdout(Stdio::piped()).spawn();
    let mut child = start.with_context(|| format!("{name} does not start"))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.with_context(|| format!("cannot read the output of {name}"))?;
            each(&String::from_utf8_lossy(&line));
        }
    }
    let _ = std::io::stdout().flush();
    Ok(child.wait().with_context(|| format!("cannot wait for {name}"))?.success())
}

/// Follows a command to its end: whether it ended well, and the last line that it printed.
fn ending(command: &mut Command) -> Result<(bool, String)> {
    let mut last = String::new();
    let ended_well = follow(command, |line| {
        if !line.trim().is_empty() {
            line.clone_into(&mut last);
        }
    })?;
    Ok((ended_well, last))
}

/// Films played by real players in a real browser, while appliances are killed; and, as root, while
/// routes are withdrawn under the button of the demo's page. For others that is not done, and it is
/// said.
fn browser(root: &Path) -> Result<Count> {
    let demo = |arguments: &[&str]| {
        let mut command = Command::new(binary(root, "debug", "nearcast"));
        command.arg("demo").args(arguments).args(["--selftest", "--json"]).current_dir(root);
        let (ended_well, last) = ending(&mut command)?;
        if !ended_well {
            bail!("nearcast demo --selftest failed: its log above says why");
        }
        Ok(last)
    };
    played(&demo(&[])?)?;
    if !is_root()? {
        say("routes in the browser are not done: namespaces need root. To have it done: sudo ./x \
             check browser");
        return Ok(PASSED);
    }
    demo(&["--bgp"])?;
    Ok(Count { passed: 2, failed: 0 })
}

fn is_root() -> Result<bool> {
    Ok(std::fs::metadata("/proc/self").context("/proc is not mounted")?.uid() == 0)
}

/// The self-test says itself whether it passed; an empty answer is no answer.
fn played(last_line: &str) -> Result<()> {
    let result: Value = serde_json::from_str(last_line)
        .context("the last line of nearcast demo --selftest --json is not JSON")?;
    let players = result.get("players").and_then(Value::as_array);
    let Some(players) = players.filter(|players| !players.is_empty()) else {
        bail!("nearcast demo --selftest played nothing: its last line has no players");
    };
    for player in players {
        let wrong = player.get("wrong_bytes").and_then(Value::as_u64);
        if wrong != Some(0) {
            bail!("{} got wrong bytes: {wrong:?}", player["name"]);
        }
    }
    Ok(())
}

/// Each room on its own: features that only a neighbour switches on do not count.
fn rooms_alone(root: &Path) -> Result<Count> {
    let mut total = Count::default();
    for member in &workspace::read(root)?.members {
        total += cargo(root, &["check", "--all-targets", "-p", member.name()])?;
    }
    Ok(total)
}

/// The page about installing, with unoptimised programs: they are the sooner made.
fn install_page(root: &Path) -> Result<Count> {
    let built = cargo(root, &["build", "--workspace", "--bins"])?;
    let programs = deb::target(root).join("debug");
    if 0 < built.failed { Ok(built) } else { install::test(root, &programs).map(one) }
}

/// Both commands of the README, in both Debians.
fn bare_machines(root: &Path) -> Result<Count> {
    bare::run(root, bare::Release::value_variants(), bare::What::value_variants()).map(one)
}

fn compare(root: &Path, workload: &str) -> Result<Count> {
    lab(root, "release", &["compare", "--peer", "nginx", "--workload", workload])
}

/// Power cuts, failing drives and a drive that does not answer; and the same cuts with flushes that
/// are not believed, which must find something, or the others prove nothing.
fn drives(root: &Path, profile: &str, cuts: &str, ignored: &[&str]) -> Result<Count> {
    let mut total = lab(root, profile, &["cut", "--cuts", cuts])?;
    for flushes in ignored {
        let arguments = ["--log-level", "off", "cut", "--cuts", "12", "--ignore-flushes", flushes];
        let (ended_well, last) = ending(&mut lab_command(root, profile, &arguments))?;
        found_damage(ended_well, &last)?;
        total += PASSED;
    }
    total += lab(root, profile, &["faults"])?;
    total += lab(root, profile, &["stall", "--pairs", "1", "--seconds", "1"])?;
    Ok(total)
}

/// Real BIRDs in namespaces, which root alone can make. For others it is not done, and that is
/// said; asked for by name it is a failure. The button of the demo's page is a part of `browser`,
/// which has what that needs.
fn routes(root: &Path) -> Result<Count> {
    if !is_root()? {
        say("not done: namespaces need root. To have it done: sudo ./x check routes");
        return Ok(Count::default());
    }
    // Those of another gate on this machine are others.
    let port = 20_000 + std::process::id() % 200 * 60;
    lab(root, "debug", &["routes", "--port", &port.to_string()])
}

/// A run without flushes has to lose something, and to fail for that alone: a flag that it does not
/// know, or a drive that cannot be mounted, is a failure too, but shows nothing.
fn found_damage(ended_well: bool, last_line: &str) -> Result<()> {
    let result: Value = serde_json::from_str(last_line)
        .context("nearcast-lab cut --json does not end with JSON, so it did not run to its end")?;
    let mut found = 0;
    for key in ["lost_objects", "wrong_bytes", "broken"] {
        let count = result.get(key).and_then(Value::as_u64);
        found += count.with_context(|| format!("nearcast-lab cut --json has no {key}"))?;
    }
    if found == 0 {
        bail!("nearcast-lab cut found nothing wrong without flushes: it would not see a lost one");
    }
    if ended_well {
        bail!("nearcast-lab cut found damage, and yet ended well");
    }
    Ok(())
}

/// Fleets on seeds; each planted bug, which must be found, or the others prove nothing; pauses of a
/// machine, in which no process is ended; two writers, with their fence and without; and weeks of a
/// small fleet that is planned each night.
fn simulate(root: &Path, seeds: &str) -> Result<Count> {
    let built = cargo(root, &["build", "--bin", "nearcast-sim"])?;
    if 0 < built.failed {
        return Ok(built);
    }
    let play = |arguments: &[&str]| {
        let mut command = Command::new(binary(root, "debug", "nearcast-sim"));
        follow(command.args(arguments).arg("--json").current_dir(root), |_| {}).map(one)
    };
    let mut total = play(&["--seeds", seeds])?;
    total += play(&["--canaries"])?;
    total += play(&["--pauses", "1000"])?;
    total += play(&["--writers", "1000"])?;
    total += play(&["--writers", "1000", "--unfenced"])?;
    total += play(&SMALL_YEAR)?;
    Ok(total)
}

/// Weeks of twenty sites: docs/internals/year.md says to what they are held.
const SMALL_YEAR: [&str; 11] =
    ["fleet", "--first", "1", "--seeds", "1", "--regions", "2", "--sites", "10", "--weeks", "4"];

/// A year of a fleet, ten times.
fn year(root: &Path) -> Result<Count> {
    let mut command = Command::new(binary(root, "release", "nearcast-sim"));
    follow(command.args(["fleet", "--json"]).current_dir(root), |_| {}).map(one)
}

fn lab(root: &Path, profile: &str, arguments: &[&str]) -> Result<Count> {
    follow(&mut lab_command(root, profile, arguments), |_| {}).map(one)
}

/// Appliances that die, with keepalived, with BIRD, and under all of their players at once; and a
/// writer that dies, and one that is stopped.
const FAULTS: [&str; 4] = ["takeover", "takeover --by bird", "retry-storm", "writers"];
/// What is said of viewers, and what pacing does to them and to others.
const VIEWERS: [&str; 3] = ["qoe", "pace --link-only", "shaped"];
/// TLS 1.2 against nginx, and against our 1.3.
const OLD_TLS: [&str; 3] = [
    "compare --peer nginx --workload warm --tls 1.2 --pairs 12 --bound 0.45 --bound-newer 1.05",
    "handshake --peer nginx --tls 1.2 --bound 1",
    "handshake --peer nginx --tls 1.2 --bound 1 --key rsa",
];

/// The design size, with few changes: each of its plans takes most of a minute.
const DIRECTOR: [&str; 7] =
    ["director", "--changes", "8", "--reports", "100000", "--decisions", "100000"];

/// The third appliance is away in both ways.
const TAKEDOWNS: [&str; 2] = ["takedown --away stopped", "takedown --away killed"];

fn labs(root: &Path, runs: &[&str]) -> Result<Count> {
    let mut total = Count::default();
    for line in runs {
        let words: Vec<&str> =
            ["lab"].into_iter().chain(line.split(' ')).chain(["--json"]).collect();
        total += run_program(root, "./x", &words)?;
    }
    Ok(total)
}

fn lab_command(root: &Path, profile: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary(root, profile, "nearcast-lab"));
    command.args(arguments).arg("--json").current_dir(root);
    command
}

fn binary(root: &Path, profile: &str, name: &str) -> PathBuf {
    deb::target(root).join(profile).join(name)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn tests_are_counted_from_what_cargo_prints() {
        let line =
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out";
        assert_eq!(test_result(line), Some(Count { passed: 12, failed: 3 }));
        assert_eq!(test_result("test result of a test"), None);
        assert_eq!(test_result("test a ... ok"), None);
    }

    #[test]
    fn a_self_test_that_played_nothing_fails() {
        assert!(played("").is_err());
        assert!(played("{\"players\":[]}").is_err());
        assert!(played("{\"players\":[{\"name\":\"hls.js\"}]}").is_err());
        assert!(played("{\"players\":[{\"name\":\"hls.js\",\"wrong_bytes\":1}]}").is_err());
        assert!(played("{\"players\":[{\"name\":\"hls.js\",\"wrong_bytes\":0}]}").is_ok());
    }

    #[test]
    fn a_run_without_flushes_has_to_find_damage_and_not_merely_to_fail() {
        let line = |lost: u64, wrong: u64, broken: u64| {
            format!("{{\"lost_objects\":{lost},\"wrong_bytes\":{wrong},\"broken\":{broken}}}")
        };
        for found in [line(1, 0, 0), line(0, 1, 0), line(0, 0, 1)] {
            assert!(found_damage(false, &found).is_ok(), "{found}");
            assert!(found_damage(true, &found).is_err(), "{found}");
        }
        assert!(found_damage(false, &line(0, 0, 0)).is_err());
        assert!(found_damage(false, "").is_err(), "a flag that it does not know");
        assert!(found_damage(false, "{\"cuts\":12}").is_err());
    }

    #[test]
    fn the_run_stops_at_the_first_failure() {
        fn never(_: &Path) -> Result<Count> {
            unreachable!("the step after a failure runs")
        }
        let fails: fn(&Path) -> Result<Count> = |_| bail!("on purpose");
        let steps = [
            Step { name: "a", run: |_| Ok(PASSED) },
            Step { name: "b", run: fails },
            Step { name: "c", run: never },
        ];
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        let run = |only: &[String]| run(Path::new("."), &steps, only, AfterFailure::Stop, &say);
        assert!(!run(&[]).unwrap());
        assert_eq!(said.borrow().last().unwrap(), "1 passed, 1 failed");
        assert!(run(&["a".into()]).unwrap());
        assert_eq!(said.borrow().last().unwrap(), "1 passed, 0 failed");
        assert!(run(&["d".into()]).is_err());
    }

    #[test]
    fn the_nightly_run_goes_on_and_names_all_that_failed() {
        let steps = [
            Step { name: "a", run: |_| bail!("on purpose") },
            Step { name: "b", run: |_| Ok(PASSED) },
            Step { name: "c", run: |_| Ok(FAILED) },
        ];
        let said = RefCell::new(Vec::new());
        let say = |line: &str| said.borrow_mut().push(line.to_owned());
        assert!(!run(Path::new("."), &steps, &[], AfterFailure::GoOn, &say).unwrap());
        let said = said.borrow();
        assert_eq!(said[said.len() - 2..], ["failed: a, c", "1 passed, 2 failed"]);
    }
}

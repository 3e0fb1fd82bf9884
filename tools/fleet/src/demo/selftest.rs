//! `nearcast demo --selftest`: a headless browser plays through faults, and promises are checked.
//!
//! The browser is driven by `tools/browser/selftest.mjs`, once per player: it gets one JSON object
//! on stdin, and its last line on stdout is one JSON object with at least the keys of [`Played`].

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tracing::info;

use super::child;
use super::film::program;
use super::ports::appliance_address;

/// Players that may be tried. The first four are, unless others are named.
pub(super) const PLAYERS: [&str; 6] =
    ["hls.js", "dash.js", "Shaka", "video.js", "Shaka, HLS", "video.js, DASH"];

/// The players that are tried, in this order.
pub(super) fn chosen(named: &[String]) -> Vec<&str> {
    if named.is_empty() {
        PLAYERS[..4].to_vec()
    } else {
        named.iter().map(String::as_str).collect()
    }
}

/// The input of one run of the browser.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Setup {
    pub(super) control_url: String,
    /// A viewer's API token for control.
    pub(super) token: String,
    /// Base URL of the demo's controls.
    pub(super) controls_url: String,
    pub(super) asset: String,
    /// Directory of the film's files, to compare bytes with.
    pub(super) origin_dir: PathBuf,
    pub(super) spki: String,
    pub(super) chromium: PathBuf,
    pub(super) screenshots_dir: PathBuf,
    /// Directory for the browser's profile.
    #[serde(skip)]
    pub(super) scratch: PathBuf,
}

/// The fields of a player's result that the promises are checked by. All others are handed on.
#[derive(Clone, Debug, Deserialize)]
struct Played {
    played_after_kill_s: f64,
    stalls: u64,
    failover_ms: Option<f64>,
    steering_ms: Option<f64>,
    stop_ms: Option<f64>,
    hang_failover_ms: Option<f64>,
    hang: Hang,
    wrong_bytes: u64,
}

/// The part of it after the hang.
#[derive(Clone, Debug, Deserialize)]
struct Hang {
    stalls: u64,
    played_on_s: f64,
    /// What would have played without a byte more.
    buffer_s: f64,
}

/// Plays with one player and returns what the script printed.
pub(super) async fn play(tools: &Path, setup: &Setup, player: &str) -> anyhow::Result<Value> {
    let mut argument = serde_json::to_value(setup)?;
    argument["player"] = player.into();
    argument["buffer_s"] = BUFFER_S.into();
    info!(player, "the browser plays");
    run(tools, SCRIPT, setup, &argument, player).await
}

/// Presses the button of a site's page, with the page open as a client of the first ISP.
pub(super) async fn withdraw(tools: &Path, setup: &Setup) -> anyhow::Result<Value> {
    info!("the browser withdraws a route and announces it again");
    run(tools, WITHDRAWAL, setup, &serde_json::to_value(setup)?, "the button").await
}

/// An error if clients did not move in time.
pub(super) fn check_moved(result: &Value) -> anyhow::Result<()> {
    for key in ["withdraw_ms", "announce_ms", "page_withdraw_ms", "page_announce_ms"] {
        let took = result[key].as_f64().with_context(|| format!("{WITHDRAWAL} gave no {key}"))?;
        ensure!(
            (0.0..=MOVED_MS_MAX).contains(&took),
            "{key} is {took:.0}, and {MOVED_MS_MAX} are promised"
        );
    }
    let far = appliance_address(2).to_string();
    let begun = result["playback"].as_array().map_or(&[][..], Vec::as_slice);
    let is_far: Vec<bool> = begun.iter().map(|server| *server == *far).collect();
    ensure!(
        is_far == [false, true, false],
        "playbacks begin at site s2 ({far}) while the route is withdrawn, and no others: {begun:?}"
    );
    Ok(())
}

/// Runs a script of the browser's tools, and returns its last line.
async fn run(
    tools: &Path,
    script: &str,
    setup: &Setup,
    argument: &Value,
    what: &str,
) -> anyhow::Result<Value> {
    let mut command = child::command(&program("node")?)?;
    command.arg(tools.join(script)).env("TMPDIR", &setup.scratch);
    command.current_dir(tools).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.spawn().context("cannot start node")?;
    // Not as an argument: everybody could read the token there.
    let mut input = process.stdin.take().context("its standard input is ours")?;
    let text = argument.to_string();
    input.write_all(text.as_bytes()).await.context("cannot tell the script what to do")?;
    drop(input);
    let output = tokio::time::timeout(PLAY_WITHIN, process.wait_with_output()).await;
    let seconds = PLAY_WITHIN.as_secs();
    let output = output.with_context(|| format!("{what} was not done after {seconds} s"))?;
    let output = output.context("cannot wait for node")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let result: Result<Value, _> = serde_json::from_str(last);
    let status = output.status;
    match result {
        Ok(value) if value.is_object() && status.success() => Ok(value),
        Ok(value) if value["error"].is_string() => {
            anyhow::bail!("{what} could not be tested: {}", value["error"])
        }
        Ok(_) | Err(_) => anyhow::bail!("{what}: {script} gave no result ({status}): {last}"),
    }
}

/// The result of all players: the self-test's last line.
pub(super) fn result(players: Vec<Value>) -> Value {
    let first_frame = players.iter().find_map(|player| player.get("first_frame_ms"));
    json!({ "first_frame_ms": first_frame.cloned().unwrap_or(Value::Null), "players": players })
}

/// The promises that a result breaks, one sentence each; none if all is well.
pub(super) fn broken_promises(result: &Value, chosen: &[&str]) -> Vec<String> {
    let players = result["players"].as_array().map_or(&[][..], Vec::as_slice);
    let mut broken = Vec::new();
    for name in chosen {
        let mut say = |what: String| broken.push(format!("{name} {what}"));
        let Some(player) = players.iter().find(|player| player["name"] == *name) else {
            say("was not played".to_owned());
            continue;
        };
        let played = match Played::deserialize(player) {
            Ok(played) => played,
            Err(error) => {
                say(format!("gave a result that cannot be read: {error}"));
                continue;
            }
        };
        if !(PLAYED_AFTER_KILL_S_MIN..).contains(&played.played_after_kill_s) {
            let seconds = played.played_after_kill_s;
            say(format!("played {seconds:.1} s after the kill, and 30 s are promised"));
        }
        if played.stalls != 0 {
            say(format!("stalled {} times around the kill, and none is promised", played.stalls));
        }
        if played.hang.stalls != 0 {
            say(format!(
                "stalled {} times after the hang, and none is promised",
                played.hang.stalls
            ));
        }
        if played.hang.played_on_s <= played.hang.buffer_s {
            say(format!(
                "played {:.1} s after the hang, and {:.1} s were in its buffer",
                played.hang.played_on_s, played.hang.buffer_s
            ));
        }
        for (fault, took, most) in [
            ("kill", played.failover_ms, FAILOVER_MS_MAX),
            ("change of steering", played.steering_ms, STEERING_MS_MAX),
            ("planned stop", played.stop_ms, FAILOVER_MS_MAX),
            ("hang", played.hang_failover_ms, HANG_FAILOVER_MS_MAX),
        ] {
            match took {
                Some(millis) if (0.0..=most).contains(&millis) => {}
                Some(millis) => say(format!(
                    "took {millis:.0} ms after the {fault} until every lane got bytes again, and \
                     {most} are promised"
                )),
                None => say(format!("got nothing on some lane after the {fault}")),
            }
        }
        if played.wrong_bytes != 0 {
            say(format!("got {} wrong bytes", played.wrong_bytes));
        }
    }
    broken
}

/// The directory of the browser script: as named, or found upwards from here and from this program.
pub(super) fn tools(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(dir) = named {
        ensure!(dir.join(SCRIPT).is_file(), "{} holds no {SCRIPT}", dir.display());
        return dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()));
    }
    let here = std::env::current_dir().unwrap_or_default();
    let own = std::env::current_exe().unwrap_or_default();
    let candidates = here.ancestors().chain(own.ancestors()).map(|dir| dir.join("tools/browser"));
    let mut found = candidates.filter(|dir| dir.join(SCRIPT).is_file());
    found.next().with_context(|| {
        format!(
            "tools/browser/{SCRIPT} is not above this directory: run from the checkout, or \
                 name its directory with --browser-tools"
        )
    })
}

/// Installs the script's packages where they are not, exactly as its lock file says.
pub(super) async fn install(tools: &Path) -> anyhow::Result<()> {
    if tools.join("node_modules/playwright-core").is_dir() {
        return Ok(());
    }
    info!(dir = %tools.display(), "installing the browser script's packages, once");
    let mut command = child::command(&program("npm")?)?;
    command.args(["ci", "--no-audit", "--no-fund"]).current_dir(tools);
    let output = command.output().await.context("cannot run npm")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "npm ci failed in {}: {}", tools.display(), said.trim());
    Ok(())
}

const SCRIPT: &str = "selftest.mjs";
/// Of a demo with ISPs.
const WITHDRAWAL: &str = "withdrawal.mjs";

/// Small enough that a fault shows within the run.
const BUFFER_S: u64 = 12;
const PLAYED_AFTER_KILL_S_MIN: f64 = 30.0;
/// A lane with a full buffer asks for nothing until a segment has played, two seconds here:
/// docs/integrate/players.md.
const FAILOVER_MS_MAX: f64 = 5_000.0;
/// The guard ends a process that is silent for a second, and the next serves within another.
const HANG_FAILOVER_MS_MAX: f64 = 3_000.0;
/// A player asks steering again after the TTL of its last answer, 10 to 12 s, and then asks for a
/// segment.
const STEERING_MS_MAX: f64 = 17_000.0;

/// After a route changed, until clients are led elsewhere: docs/operate/routes.md.
const MOVED_MS_MAX: f64 = 5_000.0;

/// A run plays for 100 to 140 s, all faults included; the script's own bounds come to 400 s.
const PLAY_WITHIN: Duration = Duration::from_secs(420);

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: [&str; 2] = ["hls.js", "dash.js"];

    fn player(name: &str, edit: impl Fn(&mut Value)) -> Value {
        let mut player = json!({
            "name": name, "played_s": 61.2, "played_after_kill_s": 41.0, "stalls": 0,
            "failover_ms": 1200, "wrong_bytes": 0, "buffer_s_at_kill": 11.2,
            "bytes_by_appliance": {"a1": 5, "a2": 7},
            "steering_ms": 9000, "stop_ms": 1500, "hang_failover_ms": 900,
            "hang": {"stalls": 0, "buffer_s": 12.1, "played_on_s": 17.2}, "first_frame_ms": 420,
        });
        edit(&mut player);
        player
    }

    fn broken(edit: impl Fn(&mut Value)) -> Vec<String> {
        broken_promises(&result(vec![player("hls.js", |_| ()), player("dash.js", edit)]), &TWO)
    }

    #[test]
    fn a_run_that_keeps_all_promises_is_handed_on_whole() {
        let all = result(vec![player("hls.js", |_| ()), player("dash.js", |_| ())]);
        assert_eq!(broken_promises(&all, &TWO), Vec::<String>::new());
        assert_eq!(all["first_frame_ms"], 420);
        assert_eq!(all["players"][1]["bytes_by_appliance"]["a2"], 7);
    }

    #[test]
    fn each_broken_promise_is_named() {
        let hang = |stalls, played: f64| {
            let buffer = 12.1;
            json!({ "stalls": stalls, "buffer_s": buffer, "played_on_s": played })
        };
        for (key, value, said) in [
            ("played_after_kill_s", json!(29.9), "played 29.9 s after the kill"),
            ("stalls", json!(1), "stalled 1 times"),
            ("hang", hang(2, 17.2), "stalled 2 times after the hang"),
            ("hang", hang(0, 11.9), "played 11.9 s after the hang, and 12.1 s were"),
            ("failover_ms", json!(5001), "took 5001 ms after the kill"),
            ("failover_ms", json!(null), "got nothing on some lane after the kill"),
            ("steering_ms", json!(17001), "took 17001 ms after the change of steering"),
            ("steering_ms", json!(null), "nothing on some lane after the change of steering"),
            ("stop_ms", json!(5001), "took 5001 ms after the planned stop"),
            ("hang_failover_ms", json!(3001), "took 3001 ms after the hang"),
            ("hang_failover_ms", json!(null), "got nothing on some lane after the hang"),
            ("wrong_bytes", json!(1), "got 1 wrong bytes"),
            ("stalls", json!("no"), "cannot be read"),
            ("name", json!("other"), "was not played"),
        ] {
            let broken = broken(|player| player[key] = value.clone());
            assert!(broken.len() == 1 && broken[0].contains(said), "{key}: {broken:?}");
            assert!(broken[0].starts_with("dash.js"));
        }
        assert_eq!(broken_promises(&json!({}), &TWO).len(), 2, "no result is no success");
    }

    #[test]
    fn a_playback_that_stays_at_the_site_whose_route_went_is_an_error() {
        let moved = |withdraw_ms: u64, withdrawn: &str| {
            check_moved(&json!({
                "withdraw_ms": withdraw_ms, "announce_ms": 9, "page_withdraw_ms": 9,
                "page_announce_ms": 9, "playback": ["127.0.0.2", withdrawn, "127.0.0.3"],
            }))
        };
        moved(5_000, "127.0.0.4").unwrap();
        assert!(moved(5_001, "127.0.0.4").unwrap_err().to_string().contains("withdraw_ms is 5001"));
        assert!(moved(9, "127.0.0.3").unwrap_err().to_string().contains("begin at site s2"));
        check_moved(&json!({ "withdraw_ms": 9 })).unwrap_err();
    }
}

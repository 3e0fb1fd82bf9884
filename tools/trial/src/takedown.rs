//! `nearcast-lab takedown`: a title is withdrawn while it plays, and an appliance is away.
//!
//! ```text
//! a1, a2, a3 play ── a3 stopped (or killed) ── DELETE ──┬─> a1, a2: 404 on their open connections
//!                                                       ├─> writer and front: no new playbacks
//!                                                       ├─> receipts of a1 and a2, a3 is named
//!                                                       └─> their drives are empty
//! a3 goes on (or starts, with its old manifest) ── 404 ── its receipt ── its drive is empty
//! ```

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::bounds::{Bounds, DependsOn, count};
use rig::fleet::{self, EMPTY_MAX, Fleet, Plan, Role};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::outage::Film;
use crate::room::RunArgs;

/// `nearcast-lab takedown`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How the third appliance is away.
    #[arg(long, value_enum, default_value_t = Away::Stopped)]
    away: Away,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18900)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Away {
    /// By SIGSTOP, and back by SIGCONT.
    Stopped,
    /// By SIGKILL, and back with the manifest that it had.
    Killed,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// From the DELETE until all that report answered 404 on the connections that had played.
    media_404_s: f64,
    /// Until no playback could begin at the writer, and at the front.
    playbacks_404_s: f64,
    front_404_s: f64,
    /// Receipts while one was away, and when the last of them was there.
    receipts: usize,
    receipts_s: f64,
    awaited: Vec<String>,
    /// The one that was away answers 404 once it is back, and goes on to; and when it first did.
    returned_refuses: bool,
    returned_404_s: f64,
    /// Requests that it answered with media before.
    returned_served: u32,
    /// Bytes on all drives before the DELETE and in the end, and how long after it.
    bytes_before: u64,
    bytes_after: u64,
    freed_s: f64,
    bounds: Bounds,
}

/// Somebody who has played at one appliance, on a connection that stays open.
struct Player {
    agent: ureq::Agent,
    url: String,
}

const ASSET: &str = "film";
const APPLIANCES: u16 = 3;
const AWAY: u16 = 2;
const REFUSED_MAX: Duration = Duration::from_secs(10);
/// A front follows within so many seconds, and one that is back within so many.
const FRONT_MAX: f64 = 1.0;
const RETURNED_MAX: f64 = 5.0;
/// A run that takes longer is given up.
const GIVE_UP: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let room = args.run.open()?;
    Film::of(Duration::from_secs(60)).write(&room.join("source"))?;
    let (fronts, appliances) = (1, APPLIANCES);
    let plan = Plan { fronts, appliances, ..Plan::new(room.to_path_buf(), args.port, ASSET) };
    let mut fleet = Fleet::start(plan, &room.join("source"))?;
    let mut report = withdraw(args, &mut fleet, &room)?;
    report.bounds = report.held_against();
    rig::say(args.run.json, &report, || format!("{report:#?}\n{}", report.bounds.text()))?;
    report.bounds.verdict()
}

fn withdraw(args: &Args, fleet: &mut Fleet, room: &Path) -> Result<Report> {
    let players = players(fleet, room)?;
    for player in players.iter().cycle().take(players.len() * 3) {
        ensure!(player.ask()? == 200, "{} does not play", player.url);
    }
    let mut report = Report { bytes_before: fleet.on_drives(0..APPLIANCES)?, ..Report::default() };
    match args.away {
        Away::Stopped => fleet.pause_appliance(AWAY, true)?,
        Away::Killed => fleet.kill_appliance(AWAY),
    }
    let is_away = |fleet: &Fleet| {
        let view = fleet.get(Role::Writer, "/v1/fleet")?;
        let state = &view["sites"][0]["appliances"][usize::from(AWAY)]["state"];
        Ok(*state == "stale")
    };
    until("control misses the third", || is_away(fleet))?;

    let began = Instant::now();
    let withdrawal = fleet.delete(&format!("/v1/assets/{ASSET}"))?;
    info!(%withdrawal, "withdrawn");
    report.playbacks_404_s = until("the writer begins none", || refuses(fleet, Role::Writer))?;
    let there = &players[..usize::from(AWAY)];
    until("those that report refuse it", || {
        there.iter().try_fold(true, |all, player| Ok(all & (player.ask()? == 404)))
    })?;
    report.media_404_s = began.elapsed().as_secs_f64();
    until("the front begins none", || refuses(fleet, Role::Front(0)))?;
    report.front_404_s = began.elapsed().as_secs_f64();
    let path = format!("/v1/withdrawals/{}", withdrawal["id"]);
    let count = |fleet: &Fleet, field: &str| -> Result<Vec<String>> {
        Ok(names(&fleet.get(Role::Writer, &path)?[field]))
    };
    until("two have signed", || Ok(count(fleet, "receipts")?.len() == usize::from(AWAY)))?;
    report.receipts_s = began.elapsed().as_secs_f64();
    (report.receipts, report.awaited) = (count(fleet, "receipts")?.len(), count(fleet, "awaited")?);
    until("two drives are empty", || Ok(fleet.on_drives(0..AWAY)? <= EMPTY_MAX))?;
    report.freed_s = began.elapsed().as_secs_f64();

    let back = Instant::now();
    match args.away {
        Away::Stopped => fleet.pause_appliance(AWAY, false)?,
        Away::Killed => fleet.start_appliance(AWAY)?,
    }
    let player = &players[usize::from(AWAY)];
    until("the third refuses it", || {
        let status = player.ask().unwrap_or(0);
        report.returned_served += u32::from(status == 200);
        Ok(status == 404)
    })?;
    report.returned_404_s = back.elapsed().as_secs_f64();
    until("the third has signed", || Ok(count(fleet, "awaited")?.is_empty()))?;
    let again = (0..50).map(|_| player.ask()).collect::<Result<Vec<u16>>>()?;
    report.returned_refuses = again.iter().all(|status| *status == 404);
    until("the third's drive is empty", || {
        Ok(fleet.on_drives(0..APPLIANCES)? <= EMPTY_MAX * u64::from(APPLIANCES))
    })?;
    report.bytes_after = fleet.on_drives(0..APPLIANCES)?;
    Ok(report)
}

/// One at each appliance, in the order of their names.
fn players(fleet: &Fleet, room: &Path) -> Result<Vec<Player>> {
    let begun = fleet.post("/v1/playbacks", &json!({ "asset": ASSET }))?;
    let pathways = begun["pathways"].as_array().context("no pathways")?;
    let player = |index| {
        let name = fleet::appliance_name(index);
        let own = pathways.iter().find(|pathway| pathway["appliance"] == name.as_str());
        let base = own.and_then(|own| own["base_url"].as_str());
        let url = format!("{}segment-0001.mp4", base.with_context(|| format!("no {name}"))?);
        let config = rig::url::trusting(&room.join("ca.pem"))?.max_idle_age(GIVE_UP * 2);
        Ok(Player { agent: config.timeout_global(Some(REFUSED_MAX)).build().into(), url })
    };
    (0..APPLIANCES).map(player).collect()
}

impl Player {
    /// The status of a request on the connection that it has.
    fn ask(&self) -> Result<u16> {
        let mut answer = self.agent.get(&self.url).call()?;
        // Read to its end: the connection is kept.
        answer.body_mut().read_to_vec()?;
        Ok(answer.status().as_u16())
    }
}

fn refuses(fleet: &Fleet, role: Role) -> Result<bool> {
    let asked = fleet.post_to(role, "/v1/playbacks", &json!({ "asset": ASSET }));
    Ok(asked.is_err_and(|error| format!("{error:#}").contains("404")))
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|one| one["appliance"].as_str().map(str::to_owned)).collect()
}

/// Waits for it; how long that took, in seconds.
fn until(what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<f64> {
    let took = rig::until(what, GIVE_UP, LOOK_EVERY, is_so)?;
    info!(after_ms = took.as_millis(), "{what}");
    Ok(took.as_secs_f64())
}

impl Report {
    fn held_against(&self) -> Bounds {
        let (mut bounds, clock) = (Bounds::default(), DependsOn::ProcessorAndLoad);
        let most = REFUSED_MAX.as_secs_f64();
        bounds.at_most("media_404_s", most, self.media_404_s, clock);
        bounds.at_most("front_404_s", FRONT_MAX, self.front_404_s, clock);
        let reporting = f64::from(AWAY);
        bounds.at_least("receipts", reporting, count(self.receipts), DependsOn::Nothing);
        bounds.at_most("receipts_s", most, self.receipts_s, clock);
        bounds.fact("awaited", self.awaited == [fleet::appliance_name(AWAY)]);
        bounds.fact("returned_refuses", self.returned_refuses);
        bounds.at_most("returned_404_s", RETURNED_MAX, self.returned_404_s, clock);
        bounds
    }
}

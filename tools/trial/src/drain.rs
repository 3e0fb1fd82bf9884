//! `nearcast-lab drain`: an appliance is drained while it plays, restarted, and serves again.
//!
//! ```text
//! a1, a2, a3 play ── PUT drain ──┬─> new playbacks: without a1
//!                                ├─> polls: without a1
//!                                └─> a1 serves on what it is asked for ── its player leaves ──
//!   drained ── a1 killed, started ── drained ── DELETE drain ──> new playbacks: with a1
//! ```

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::bounds::{Bounds, DependsOn, count};
use rig::fleet::{self, Fleet, Plan, Role};
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info;

use crate::outage::Film;
use crate::room::RunArgs;

/// `nearcast-lab drain`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18950)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// From the PUT to the first new playback, and the first answer to a poll, without it.
    new_playbacks_s: f64,
    polls_s: f64,
    /// Media that it served while it drained, and requests that it refused.
    served: u32,
    refused: u32,
    /// From its player's last request until it was drained.
    drained_s: f64,
    /// It was on a list or an answer while it drained.
    listed: u32,
    /// It was killed and started: still drained, from its first report on.
    restarted_s: f64,
    /// From the DELETE to the first new playback with it.
    back_s: f64,
    bounds: Bounds,
}

const ASSET: &str = "film";
const APPLIANCES: u16 = 3;
/// Lists are without it within so many seconds.
const LISTS_MAX: f64 = 1.0;
/// A player goes on at the one that drains for so long.
const STAYS: Duration = Duration::from_secs(5);
/// A run that takes longer is given up.
const GIVE_UP: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    let room = args.run.open()?;
    Film::of(Duration::from_secs(60)).write(&room.join("source"))?;
    let plan = Plan { appliances: APPLIANCES, ..Plan::new(room.to_path_buf(), args.port, ASSET) };
    let mut fleet = Fleet::start(plan, &room.join("source"))?;
    let mut report = drain(&mut fleet, &room.join("ca.pem"))?;
    report.bounds = report.held_against();
    rig::say(args.run.json, &report, || format!("{report:#?}\n{}", report.bounds.text()))?;
    report.bounds.verdict()
}

fn drain(fleet: &mut Fleet, ca: &std::path::Path) -> Result<Report> {
    let name = fleet::appliance_name(0);
    let begun = begin(fleet)?;
    let steering = begun["steering_url"].as_str().context("no steering URL")?;
    let host = steering.find("://").map_or(0, |at| at + 3);
    let path = steering[host..].find('/').context("a steering URL without a path")?;
    let steering = steering[host + path..].to_owned();
    let own = begun["pathways"].as_array().into_iter().flatten();
    let own = own.filter(|pathway| pathway["appliance"] == name.as_str());
    let base = own.filter_map(|own| own["base_url"].as_str()).next();
    let media = format!("{}segment-0001.mp4", base.context("the first is on no list")?);
    let player: ureq::Agent = rig::url::trusting(ca)?.timeout_global(Some(GIVE_UP)).build().into();
    let mut report = Report::default();
    let ask = || -> Result<u16> {
        let mut answer = player.get(&media).call()?;
        answer.body_mut().read_to_vec()?;
        Ok(answer.status().as_u16())
    };
    ensure!(ask()? == 200, "{media} does not play");

    let path = format!("/v1/appliances/{name}/drain");
    fleet.put(&path, &json!({}))?;
    let began = Instant::now();
    let in_list = |fleet: &Fleet| {
        let begun = begin(fleet)?;
        let mut pathways = begun["pathways"].as_array().context("a playback has pathways")?.iter();
        anyhow::Ok(pathways.any(|pathway| pathway["appliance"] == name.as_str()))
    };
    let in_poll = |fleet: &Fleet| {
        let answer = fleet.get(Role::Writer, &steering)?;
        let mut names = answer["PATHWAY-PRIORITY"].as_array().context("an answer")?.iter();
        anyhow::Ok(names.any(|of| *of == name.as_str()))
    };
    report.new_playbacks_s = until("new playbacks go elsewhere", || Ok(!in_list(fleet)?))?;
    report.polls_s = until("polls lead elsewhere", || Ok(!in_poll(fleet)?))?;
    while began.elapsed() < STAYS {
        match ask()? {
            200 => report.served += 1,
            _ => report.refused += 1,
        }
        report.listed += u32::from(in_list(fleet)? || in_poll(fleet)?);
        std::thread::sleep(LOOK_EVERY);
    }
    let is_drained = |fleet: &Fleet| Ok(state(fleet)? == "drained");
    report.drained_s = until("it is drained", || is_drained(fleet))?;
    fleet.kill_appliance(0);
    until("control misses it", || Ok(state(fleet)? == "stale"))?;
    fleet.start_appliance(0)?;
    let back = Instant::now();
    until("it reports again", || Ok(state(fleet)? != "stale"))?;
    ensure!(is_drained(fleet)?, "it came back as {}", state(fleet)?);
    report.restarted_s = back.elapsed().as_secs_f64();
    until("it holds its film again", || holds(fleet))?;
    report.listed += u32::from(in_list(fleet)? || in_poll(fleet)?);
    fleet.delete(&path)?;
    report.back_s = until("new playbacks get it again", || in_list(fleet))?;
    Ok(report)
}

fn begin(fleet: &Fleet) -> Result<Value> {
    fleet.post("/v1/playbacks", &json!({ "asset": ASSET }))
}

fn state(fleet: &Fleet) -> Result<String> {
    let view = fleet.get(Role::Writer, "/v1/fleet")?;
    let state = view["sites"][0]["appliances"][0]["state"].as_str();
    Ok(state.context("the fleet has no first appliance")?.to_owned())
}

/// All appliances hold the film, whether or not they are drained.
fn holds(fleet: &Fleet) -> Result<bool> {
    let view = fleet.get(Role::Writer, "/v1/fleet")?;
    Ok(view["assets"][0]["copies_complete"] == APPLIANCES)
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
        bounds.at_most("new_playbacks_s", LISTS_MAX, self.new_playbacks_s, clock);
        bounds.at_most("polls_s", LISTS_MAX, self.polls_s, clock);
        bounds.none("listed", self.listed);
        bounds.none("refused", self.refused);
        bounds.at_least("served", 1.0, count(self.served), DependsOn::Nothing);
        bounds
    }
}

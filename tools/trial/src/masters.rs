//! `nearcast-lab masters`: who of a fill cluster fetches from the origin, and who takes over.
//!
//! ```text
//! origin that counts ──> a master of de (de-1: 2, de-2: 1) ──> the other two
//!                   └──> a master of fr (fr-1: 2, fr-2: 1) ──> the other two
//! ```
//!
//! A first film comes while nobody fails: the origin sends it once for each master and cluster. In
//! the middle of a file of a second one, an appliance that fetches it from the origin is killed
//! (SIGKILL), and started again once the others have the film: the origin has sent what it had got
//! on top, and of what the others fetched from siblings next to nothing came twice.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rig::bounds::{Bounds, DependsOn};
use rig::fleet::{Fleet, appliance_name};
use rig::stage::Origin;
use serde::Serialize;
use serde_json::json;
use tracing::info;

use crate::clusters::{
    self, APPLIANCES, CLUSTERS, Fetched, LOOK_EVERY, LOST_MAX, UNDER_WAY, WHOLE_MAX, fetched,
    publish, ratio, settled,
};
use crate::room::RunArgs;

/// `nearcast-lab masters`
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many of each fill cluster fetch from the origin; 0 for all, which is found to be wrong.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=3))]
    masters: u32,
    /// First of the ports on 127.0.0.1.
    #[arg(long, default_value_t = 18_840)]
    port: u16,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    /// Bytes of one film.
    film_bytes: u64,
    /// The origin's egress for the first film, as a multiple of it.
    origin_films: f64,
    /// The same for the second, whose master was killed.
    origin_films_killed: f64,
    /// What the one that was killed had fetched from the origin.
    killed_bytes: u64,
    /// From the kill until all others held the film.
    replaced_s: f64,
    /// Bytes that somebody fetched though it had them, without the one that was killed.
    fetched_twice_bytes: u64,
    /// The same of that one.
    killed_twice_bytes: u64,
    escalations: u64,
    bounds: Bounds,
}

const ASSET: &str = "film";
/// What is killed has fetched so much of the second film.
const KILL_AFTER: u64 = 2 << 20;

/// Runs it and prints the result on stdout.
pub(crate) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = args.run.open()?;
    // Nobody waits so long in here.
    let policy = json!({
        "fill_masters": args.masters,
        "fill_elsewhere_after_s": 20,
        "fill_origin_after_s": 40,
    });
    let (origin, mut fleet) = clusters::start(&room, args.port, ASSET, policy)?;
    let film_bytes = publish(&fleet, &origin, &room, ASSET, 1)?;
    let mut report = Report { film_bytes, ..Report::default() };
    fleet.wait_until_whole(WHOLE_MAX)?;
    report.origin_films = ratio(origin.sent(), film_bytes);
    let before = settled(&fleet, film_bytes)?;
    let mut twice = before.iter().map(|one| one.all().saturating_sub(film_bytes)).sum();
    killed(&mut fleet, &origin, &room, &before, &mut report, &mut twice)?;
    report.fetched_twice_bytes = twice;
    judge(args, &mut report);
    rig::say(args.run.json, &report, || text(&report) + "\n" + &report.bounds.text())?;
    report.bounds.verdict()
}

/// The second film: who fetches it from the origin is killed in the middle.
fn killed(
    fleet: &mut Fleet,
    origin: &Origin,
    room: &Path,
    before: &[Fetched],
    report: &mut Report,
    twice: &mut u64,
) -> Result<()> {
    let sent_before = origin.sent();
    let film = publish(fleet, origin, room, ASSET, 2)?;
    ensure!(film == report.film_bytes, "both films are equally long");
    let mut found = None;
    rig::until("until a master is in the middle", WHOLE_MAX, LOOK_EVERY, || {
        for index in 0..APPLIANCES {
            let now = fetched(fleet, index)?.since(&before[usize::from(index)]);
            if KILL_AFTER <= now.origins && now.all() < film {
                found = Some((index, now));
            }
        }
        Ok(found.is_some())
    })?;
    let (victim, had) = found.context("a master fetches")?;
    fleet.kill_appliance(victim);
    info!(appliance = appliance_name(victim), bytes = had.origins, "killed in the middle");
    report.killed_bytes = had.origins;
    let others: Vec<u16> = (0..APPLIANCES).filter(|index| *index != victim).collect();
    let took = rig::until("until the others have it", WHOLE_MAX, LOOK_EVERY, || {
        fleet.check()?;
        let mut have = 0;
        for index in &others {
            let now = fetched(fleet, *index)?.since(&before[usize::from(*index)]);
            have += usize::from(film <= now.all());
        }
        Ok(have == others.len())
    })?;
    report.replaced_s = took.as_secs_f64();
    fleet.start_appliance(victim)?;
    fleet.wait_until_whole(WHOLE_MAX)?;
    report.origin_films_killed = ratio(origin.sent() - sent_before, film);
    let after = settled(fleet, 0)?;
    for index in others.into_iter().map(usize::from) {
        *twice += after[index].since(&before[index]).all().saturating_sub(film);
    }
    report.escalations += after.iter().map(|one| one.escalations).sum::<u64>();
    let after = after[usize::from(victim)];
    report.killed_twice_bytes = (after.all() + had.all()).saturating_sub(film);
    Ok(())
}

fn judge(args: &Args, report: &mut Report) {
    let copies = CLUSTERS * f64::from(args.masters.max(1));
    let bounds = &mut report.bounds;
    let nothing = DependsOn::Nothing;
    bounds.at_most("origin_films", copies * 1.02, report.origin_films, nothing);
    bounds.at_least("origin_films", 1.0, report.origin_films, nothing);
    let lost = ratio(report.killed_bytes + LOST_MAX, report.film_bytes);
    let shown = report.origin_films_killed;
    bounds.at_most("origin_films_killed", copies * 1.02 + lost, shown, nothing);
    let most = ratio(UNDER_WAY, 1);
    bounds.at_most("fetched_twice_bytes", most, ratio(report.fetched_twice_bytes, 1), nothing);
    bounds.at_most("killed_twice_bytes", most, ratio(report.killed_twice_bytes, 1), nothing);
    let escalations = ratio(report.escalations, 1);
    bounds.at_most("escalations", 0.0, escalations, DependsOn::ProcessorAndLoad);
}

fn text(report: &Report) -> String {
    format!(
        "film {} bytes\norigin sent it {:.3} times, and {:.3} times where a master was killed \
         after {} bytes\nthe others had it {:.1} s after that\nfetched twice: {} bytes, \
         by the one that was killed \
         {}, escalations: {}",
        report.film_bytes,
        report.origin_films,
        report.origin_films_killed,
        report.killed_bytes,
        report.replaced_s,
        report.fetched_twice_bytes,
        report.killed_twice_bytes,
        report.escalations,
    )
}

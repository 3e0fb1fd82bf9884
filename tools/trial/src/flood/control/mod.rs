//! `nearcast-lab flood --control`: honest players, a service, an operator and appliances at a
//! control plane that strangers would like to hold, in turns with and without them.
//!
//! ```text
//! honest (by the clock)  POST /v1/playbacks, entry manifest, steering; GET /v1/fleet; reports
//! attack                 heads and handshakes a byte a second; forged steering requests
//!                        all from one address, or from 200
//! ```
//!
//! Every request of an honest one has a connection of its own. It counts if it is answered rightly
//! and in time; nothing is tried twice.

mod honest;
mod strangers;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rig::cpu::Account;
use rig::fleet::{Fleet, Plan};
use rig::statistics::{Spread, median, median_of};
use serde::Serialize;
use serde_json::json;
use tracing::info;

use crate::outage::Film;
use honest::{Crowd, Seen};
use strangers::{Attack, From, Offered, Strength};

use super::Args;

#[derive(Debug, Serialize)]
struct Pair {
    attackers: From,
    goodput_ratio: f64,
    without: Seen,
    with: Seen,
    offered: Offered,
    /// Of control's process, in cores.
    server_cpu_without: f64,
    server_cpu_with: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    goodput_ratio: f64,
    goodput_ratio_iqr: f64,
    /// The same where all attackers have one address, and where they have 200.
    goodput_ratio_one_address: f64,
    goodput_ratio_many_addresses: f64,
    response_ms_p99_without: f64,
    response_ms_p99_with: f64,
    /// Reports that were sent, and of these without a good answer in time.
    reports: u64,
    reports_lost: u64,
    /// What control counted in all windows.
    let_go: u64,
    refused: u64,
    timed_out: u64,
    tickets_unknown: u64,
    pairs: Vec<Pair>,
}

const ASSET: &str = "film";
/// Appliances that only report, beside the one that holds the film.
const REPORTERS: u32 = 4;
/// What a run has to show.
const GOODPUT_MIN: f64 = 0.95;

/// Floods, and prints the result on stdout.
pub(super) fn run(args: &Args) -> Result<()> {
    rig::raise_file_limit()?;
    let room = tempfile::Builder::new().prefix("nearcast-flood-").tempdir()?;
    let source = room.path().join("source");
    Film::of(Duration::from_secs(20)).write(&source)?;
    // What is in force unless somebody says otherwise.
    let serve = json!({ "connections_max": 1000, "connections_per_address_max": 100 });
    let (settings, place) = (json!({ "serve": serve }), room.path().join("fleet"));
    let plan = Plan { appliances: 1, settings, ..Plan::new(place, args.port, ASSET) };
    let fleet = Fleet::start(plan, &source)?;
    let crowd = Crowd::gather(&fleet, ASSET, REPORTERS)?;
    let pairs = (0..args.pairs).map(|n| pair(args, &fleet, &crowd, n));
    let pairs = pairs.collect::<Result<Vec<_>>>()?;
    let report = report(&crowd, pairs)?;
    rig::say(args.json, &report, || report.table())?;
    ensure!(report.reports_lost == 0, "{} reports were lost", report.reports_lost);
    ensure!(GOODPUT_MIN <= report.goodput_ratio, "goodput {:.3}", report.goodput_ratio);
    Ok(())
}

fn pair(args: &Args, fleet: &Fleet, crowd: &Crowd, n: u32) -> Result<Pair> {
    let window = Duration::from_secs(args.seconds.into());
    let account = Account::Processes(fleet.writer_id().context("control does not run")?);
    let measure = || -> Result<(Seen, f64)> {
        let before = account.used()?;
        let seen = crowd.act(window)?;
        let used = account.used()?.saturating_sub(before);
        Ok((seen, used.as_secs_f64() / window.as_secs_f64()))
    };
    let (without, server_cpu_without) = measure()?;
    let attackers = if n.is_multiple_of(2) { From::OneAddress } else { From::ManyAddresses };
    let strength = Strength { drips: args.drips, forged: args.forged, from: attackers };
    let attack = Attack::start(crowd.players, fleet.members(), strength)?;
    attack.threads.wait_until_complete()?;
    attack.threads.count_anew();
    let (with, server_cpu_with) = measure()?;
    let offered = attack.offered();
    attack.threads.stop()?;
    ensure!(0 < without.right, "nothing was answered without an attack: {without:?}");
    let goodput_ratio = with.right_per_s / without.right_per_s;
    info!(pair = n + 1, ?attackers, ratio = format!("{goodput_ratio:.3}"), ?with, ?offered, "pair");
    Ok(Pair {
        attackers,
        goodput_ratio,
        without,
        with,
        offered,
        server_cpu_without,
        server_cpu_with,
    })
}

fn report(crowd: &Crowd, pairs: Vec<Pair>) -> Result<Report> {
    let ratios = |from: Option<From>| -> Vec<f64> {
        let those = pairs.iter().filter(|pair| from.is_none_or(|from| from == pair.attackers));
        those.map(|pair| pair.goodput_ratio).collect()
    };
    let middle = |values: &[f64]| median(values).unwrap_or(f64::NAN);
    let sum = |value: fn(&Seen) -> u64| -> u64 {
        pairs.iter().map(|pair| value(&pair.without) + value(&pair.with)).sum()
    };
    let counted = crowd.counters()?;
    let counted = |name: &str| {
        let value = counted.get(name).copied();
        value.with_context(|| format!("control counts no nearcast_control_{name}_total"))
    };
    let tickets_unknown = counted("tickets_unknown")?;
    ensure!(0 < tickets_unknown, "control refused no forged ticket: nothing was attacked");
    let goodput = Spread::of(&ratios(None))?;
    Ok(Report {
        goodput_ratio: goodput.median,
        goodput_ratio_iqr: goodput.iqr,
        goodput_ratio_one_address: middle(&ratios(Some(From::OneAddress))),
        goodput_ratio_many_addresses: middle(&ratios(Some(From::ManyAddresses))),
        response_ms_p99_without: median_of(&pairs, |pair| pair.without.response_ms_p99)?,
        response_ms_p99_with: median_of(&pairs, |pair| pair.with.response_ms_p99)?,
        reports: sum(|seen| seen.reports),
        reports_lost: sum(|seen| seen.reports_lost),
        let_go: counted("connections_let_go")?,
        refused: counted("connections_refused")?,
        timed_out: counted("connections_timed_out")?,
        tickets_unknown,
        pairs,
    })
}

impl Report {
    fn table(&self) -> String {
        format!(
            "goodput with / without   {:.3} (IQR {:.3}); one address {:.3}, 200 {:.3}\n\
             p99 ms                   {:.1} -> {:.1}\n\
             reports                  {}, {} lost",
            self.goodput_ratio,
            self.goodput_ratio_iqr,
            self.goodput_ratio_one_address,
            self.goodput_ratio_many_addresses,
            self.response_ms_p99_without,
            self.response_ms_p99_with,
            self.reports,
            self.reports_lost,
        )
    }
}

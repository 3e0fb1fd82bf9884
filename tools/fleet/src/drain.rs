//! `nearcast drain`: takes an appliance out of players' lists, and waits until it may be stopped.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use model::units::Nanos;
use model::view::Health;
use serde_json::json;
use wire::v1::fleet::{DrainOut, FleetAppliance, FleetOut};

use crate::control::{Control, Query, encoded};
use crate::grammar::time;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Its id: `nearcast appliance list` has them
    appliance: String,
    /// From then on, in UTC: 2027-01-31T02:00:00Z [default: now]
    #[arg(long, value_name = "TIME", value_parser = time, conflicts_with = "end")]
    at: Option<String>,
    /// For so long, as in 30m or 2h; then it serves again [default: until --end]
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration,
        conflicts_with = "end")]
    lasts: Option<Duration>,
    /// Wait until it is drained, and may be stopped
    #[arg(long, conflicts_with_all = ["end", "at"])]
    wait: bool,
    /// End its drain, or take back one that is to come
    #[arg(long)]
    end: bool,
    #[command(flatten)]
    query: Query,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let control = args.query.control.client()?;
    let id = &args.appliance;
    let path = format!("/v1/appliances/{}/drain", encoded(id));
    if args.end {
        control.delete(&path)?;
        return match args.query.json {
            true => output::json(&json!({ "drain": null })),
            false => output::line(&format!("{id} is drained no more")),
        };
    }
    let body = json!({ "at": args.at, "for_s": args.lasts.map(|lasts| lasts.as_secs()) });
    let drain = control.ask("PUT", &path, Some(&body))?;
    let drain: DrainOut = serde_json::from_value(drain).context("control's answer")?;
    let state = if args.wait { Some(wait(&control, id)?) } else { None };
    if args.query.json {
        let state = state.as_ref().map(|found| found.state.to_string());
        return output::json(&json!({ "drain": drain, "state": state }));
    }
    let until = drain.until_unix_s.map_or_else(|| "an operator ends it".to_owned(), output::time);
    output::line(&format!(
        "{id} is drained from {} until {until}",
        output::time(drain.from_unix_s)
    ))?;
    match state {
        Some(found) => output::line(&found.reason.unwrap_or_else(|| "it is drained".to_owned())),
        None => Ok(()),
    }
}

/// Waits until the appliance is drained. Control bounds that, an appliance that is silent does not.
fn wait(control: &Control, id: &str) -> anyhow::Result<FleetAppliance> {
    let began = Instant::now();
    let mut said = None;
    loop {
        let fleet: FleetOut = control.get("/v1/fleet")?;
        let mut all = fleet.sites.into_iter().flat_map(|site| site.appliances);
        let found = all.find(|one| one.id == id);
        let found = found.with_context(|| format!("appliance {id} is not there any more"))?;
        let waited = output::span(Nanos::seconds(began.elapsed().as_secs()));
        match found.state {
            Health::Drained => return Ok(found),
            Health::Draining => {}
            // Control has taken the drain in by now.
            Health::Healthy => bail!("the drain of {id} has ended after {waited}: it serves again"),
            Health::Unhealthy | Health::Stale | Health::NeverSeen => bail!(
                "{id} is {}: nobody knows whether it is drained. Its reason: {}",
                found.state,
                found.reason.as_deref().unwrap_or("none")
            ),
        }
        if WAIT_MAX < began.elapsed() {
            bail!("{id} is not drained after {waited}: [drain] bound of control should be shorter");
        }
        let egress = found.report.as_ref().map_or(0, |report| report.load.egress_bits_per_second);
        let text = output::rate(model::units::BitsPerSecond(egress));
        if said.as_ref() != Some(&text) {
            eprintln!("{id} is draining, and sends {text}");
            said = Some(text);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Control's own bound is 10 min unless it is configured otherwise.
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
const LOOK_EVERY: Duration = Duration::from_secs(1);

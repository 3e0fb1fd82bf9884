//! `nearcast remove`, `window`, `withdrawals`: titles that are taken down, and when they may be
//! shown.

use std::time::{Duration, Instant};

use anyhow::bail;
use model::units::Nanos;
use serde_json::Value;
use wire::v1::fleet::{AwaitedOut, TakenOut, WithdrawalOut};

use crate::control::{Control, Query, Where, encoded};
use crate::output::{self, Cell, Table, Tone, ago};

#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Which asset
    asset: String,
    /// Which of its versions; without it, all of them
    version: Option<String>,
    /// Wait until every appliance that reports has confirmed that it refuses it
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    query: Query,
}

#[derive(Debug, clap::Args)]
pub(crate) struct WindowArgs {
    /// Which asset
    asset: String,
    /// Which of its versions; without it, all of them
    version: Option<String>,
    #[command(flatten)]
    window: Window,
    #[command(flatten)]
    control: Where,
}

/// When a version may be shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Window {
    /// No playback begins before, in UTC: 2027-01-31T22:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    from: Option<String>,
    /// From then on it is withdrawn, in UTC
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<String>,
}

impl Window {
    fn wire(&self) -> wire::v1::ingest::Window {
        wire::v1::ingest::Window { from: self.from.clone(), until: self.until.clone() }
    }

    /// The same, if a time is said at all.
    pub(crate) fn said(&self) -> Option<wire::v1::ingest::Window> {
        (self.from.is_some() || self.until.is_some()).then(|| self.wire())
    }
}

fn time(text: &str) -> Result<String, String> {
    match humantime::parse_rfc3339(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("write UTC, as in 2027-01-31T22:00:00Z (RFC 3339)".to_owned()),
    }
}

/// Every appliance that reports refuses it; these do not report. The process ends with status 3.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} {} not confirmed it: an appliance that is away refuses it once it reaches control. \
     `nearcast withdrawals` shows withdrawal {number}, and who is awaited",
    names(.away),
    if .away.len() == 1 { "has" } else { "have" }
)]
pub(crate) struct Away {
    number: u64,
    away: Vec<AwaitedOut>,
}

pub(crate) fn remove(args: &RemoveArgs) -> anyhow::Result<()> {
    let control = args.query.control.client()?;
    let path = path(&args.asset, args.version.as_deref());
    let mut taken: TakenOut = control.delete_for(&path)?;
    if args.wait {
        taken.withdrawal = wait(&control, taken.withdrawal)?;
    }
    if args.query.json {
        output::json(&taken)?;
    } else {
        say(&taken)?;
    }
    let withdrawal = taken.withdrawal;
    if args.wait && !withdrawal.complete {
        return Err(Away { number: withdrawal.id, away: withdrawal.awaited }.into());
    }
    Ok(())
}

pub(crate) fn window(args: &WindowArgs) -> anyhow::Result<()> {
    let path = format!("{}/window", path(&args.asset, args.version.as_deref()));
    args.control.client()?.put(&path, &args.window.wire())?;
    let or = |time: &Option<String>, none: &str| time.clone().unwrap_or_else(|| none.to_owned());
    output::line(&format!(
        "{} is shown from {} until {}",
        args.version.as_ref().unwrap_or(&args.asset),
        or(&args.window.from, "now"),
        or(&args.window.until, "further notice"),
    ))
}

pub(crate) fn withdrawals(query: &Query) -> anyhow::Result<()> {
    let control = query.control.client()?;
    if query.json {
        return output::json(&control.get::<Value>("/v1/withdrawals")?);
    }
    let all: Vec<WithdrawalOut> = control.get("/v1/withdrawals")?;
    let mut table = Table::new(&["NUMBER", "WHEN", "WHY", "WHAT", ">CONFIRMED", "AWAITED"]);
    for withdrawal in &all {
        let tone = if withdrawal.complete { Tone::Plain } else { Tone::Warn };
        table.row(vec![
            withdrawal.id.to_string().into(),
            ago(withdrawal.at_unix_s).into(),
            withdrawal.reason.as_str().into(),
            what(withdrawal).into(),
            withdrawal.receipts.len().to_string().into(),
            Cell::new(names(&withdrawal.awaited), tone),
        ]);
    }
    table.print()
}

/// Waits until all that report have signed.
fn wait(control: &Control, mut withdrawal: WithdrawalOut) -> anyhow::Result<WithdrawalOut> {
    let began = Instant::now();
    let mut said = usize::MAX;
    while withdrawal.awaited.iter().any(|appliance| appliance.reachable) {
        if withdrawal.receipts.len() != said {
            said = withdrawal.receipts.len();
            let all = said + withdrawal.awaited.len();
            eprintln!("{said} of {all} appliances have confirmed it");
        }
        if WAIT_MAX < began.elapsed() {
            bail!(
                "it is withdrawn, but after {} s these have not confirmed it: {}. Their own logs \
                 say why; one whose software knows no receipts never does: upgrade it",
                WAIT_MAX.as_secs(),
                names(&withdrawal.awaited)
            );
        }
        std::thread::sleep(LOOK_EVERY);
        withdrawal = control.get(&format!("/v1/withdrawals/{}", withdrawal.id))?;
    }
    Ok(withdrawal)
}

const CLOSED: &str = "the asset is public no more, as nothing is left of it: should it come again, \
    `nearcast public` says so anew";

fn say(TakenOut { withdrawal, public_no_more }: &TakenOut) -> anyhow::Result<()> {
    let signed = withdrawal.receipts.len();
    let all = signed + withdrawal.awaited.len();
    output::line(&format!(
        "withdrawal {}: {}; {signed} of {all} appliances have confirmed that they refuse it",
        withdrawal.id,
        what(withdrawal)
    ))?;
    if *public_no_more {
        output::line(CLOSED)?;
    }
    for appliance in &withdrawal.awaited {
        output::line(&format!("not confirmed: {}", whom(appliance)))?;
    }
    Ok(())
}

fn what(withdrawal: &WithdrawalOut) -> String {
    let names = withdrawal.versions.iter().take(NAMES_MAX).map(|version| &*version.version);
    let names: Vec<&str> = names.collect();
    match withdrawal.versions.len() - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// An appliance and how long it has been away.
fn whom(appliance: &AwaitedOut) -> String {
    let name = &appliance.appliance;
    match (appliance.reachable, appliance.away_ms) {
        (true, _) => format!("{name} (reports)"),
        (false, Some(ms)) => format!("{name} (away for {})", output::span(Nanos::millis(ms))),
        (false, None) => format!("{name} (not heard of since control started)"),
    }
}

fn names(awaited: &[AwaitedOut]) -> String {
    awaited.iter().map(whom).collect::<Vec<_>>().join(", ")
}

fn path(asset: &str, version: Option<&str>) -> String {
    let version = version.map(|version| format!("/versions/{}", encoded(version)));
    format!("/v1/assets/{}{}", encoded(asset), version.unwrap_or_default())
}

/// Reports come every second or so, and what is under way has three.
const WAIT_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Versions that are named in one line.
const NAMES_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_away_is_named_with_how_long() {
        let awaited = |appliance: &str, reachable, away_ms| AwaitedOut {
            appliance: appliance.to_owned(),
            reachable,
            state: "stale".to_owned(),
            away_ms,
        };
        let one = awaited("a3", false, Some(90_000));
        let text = Away { number: 7, away: vec![one.clone()] }.to_string();
        assert!(text.starts_with("a3 (away for 1 min 30 s) has not confirmed it"), "{text}");
        assert!(text.contains("withdrawal 7"), "{text}");
        let text = Away { number: 7, away: vec![one, awaited("b", false, None)] }.to_string();
        assert!(text.contains("a3 (away for 1 min 30 s), b (not heard of since"), "{text}");
    }

    #[test]
    fn a_time_is_utc_to_the_letter() {
        assert!(time("2027-01-31T22:00:00Z").is_ok());
        for bad in ["2027-01-31", "2027-01-31T22:00:00+01:00", "2027-01-31 22:00:00", "tomorrow"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }
}

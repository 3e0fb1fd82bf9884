//! `nearcast asset remove`, `nearcast withdrawal`: titles taken down, and who has confirmed it.

use std::time::{Duration, Instant};

use anyhow::bail;
use model::units::Nanos;
use serde_json::{Value, json};
use wire::v1::fleet::{AwaitedOut, TakenOut, WithdrawalOut};

use crate::grammar::{Call, time};
use crate::output::{self, Cell, Table, Tone, ago};

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

/// Every appliance that reports refuses it; these do not report. The process ends with status 3.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} {} not confirmed it: an appliance that is away refuses it once it reaches control. \
     `nearcast withdrawal show {number}` says who is awaited",
    names(.away),
    if .away.len() == 1 { "has" } else { "have" }
)]
pub(crate) struct Away {
    number: u64,
    away: Vec<AwaitedOut>,
}

pub(crate) fn remove(call: &Call<'_>) -> anyhow::Result<()> {
    let mut taken: TakenOut = call.control.delete_for(&call.path(call.own()))?;
    let waits = call.switch("wait");
    if waits {
        taken.withdrawal = wait(call, taken.withdrawal)?;
    }
    if call.json {
        output::json(&taken)?;
    } else {
        say(&taken.withdrawal)?;
        if taken.public_no_more {
            output::line(CLOSED)?;
        }
    }
    let withdrawal = taken.withdrawal;
    if waits && !withdrawal.complete {
        return Err(Away { number: withdrawal.id, away: withdrawal.awaited }.into());
    }
    Ok(())
}

pub(crate) fn withdrawal(call: &Call<'_>) -> anyhow::Result<()> {
    let found: WithdrawalOut = call.control.get(&call.path(0))?;
    if call.json { output::json(&found) } else { say(&found) }
}

pub(crate) fn withdrawals(call: &Call<'_>) -> anyhow::Result<()> {
    let path = call.path(0);
    if call.json {
        return output::json(&json!({ "withdrawals": call.control.get::<Value>(&path)? }));
    }
    let all: Vec<WithdrawalOut> = call.control.get(&path)?;
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
fn wait(call: &Call<'_>, mut withdrawal: WithdrawalOut) -> anyhow::Result<WithdrawalOut> {
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
        let path = call.path(2).replace("{number}", &withdrawal.id.to_string());
        withdrawal = call.control.get(&path)?;
    }
    Ok(withdrawal)
}

const CLOSED: &str = "the asset is public no more, as nothing is left of it: should it come again, \
    `nearcast asset public` says so anew";

fn say(withdrawal: &WithdrawalOut) -> anyhow::Result<()> {
    let signed = withdrawal.receipts.len();
    let all = signed + withdrawal.awaited.len();
    output::line(&format!(
        "withdrawal {}: {}; {signed} of {all} appliances have confirmed that they refuse it",
        withdrawal.id,
        what(withdrawal)
    ))?;
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
        assert!(text.contains("withdrawal show 7"), "{text}");
        let text = Away { number: 7, away: vec![one, awaited("b", false, None)] }.to_string();
        assert!(text.contains("a3 (away for 1 min 30 s), b (not heard of since"), "{text}");
    }
}

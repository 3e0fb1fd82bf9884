//! `nearcast audit list`: who changed something, or tried to.

use anyhow::ensure;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::grammar::Call;
use crate::output::{self, Cell, Table, Tone, ago};

#[derive(Debug, Deserialize)]
struct AuditPage {
    lines: Vec<Value>,
    next: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AuditLine {
    at_unix_s: u64,
    name: Option<String>,
    role: Option<String>,
    peer: Option<String>,
    method: String,
    target: String,
    outcome: Option<u16>,
    summary: String,
}

pub(crate) fn list(call: &Call<'_>) -> anyhow::Result<()> {
    let count = usize::try_from(call.count("count")).unwrap_or(usize::MAX);
    ensure!((1..=COUNT_MAX).contains(&count), "--count: use 1 to {COUNT_MAX}");
    let path = call.path(0);
    let mut lines = Vec::new();
    let mut before = String::new();
    while lines.len() < count {
        let limit = (count - lines.len()).min(PAGE);
        let page: AuditPage = call.control.get(&format!("{path}?limit={limit}{before}"))?;
        lines.extend(page.lines);
        let Some(next) = page.next else { break };
        before = format!("&before={next}");
    }
    if call.json {
        return output::json(&json!({ "lines": lines }));
    }
    let mut table = Table::new(&["WHEN", "WHO", "ROLE", "FROM", "WHAT", ">OUTCOME", "SUMMARY"]);
    for line in lines {
        let line: AuditLine = serde_json::from_value(line)?;
        let tone = match line.outcome {
            Some(200..=399) => Tone::Good,
            Some(_) => Tone::Warn,
            None => Tone::Bad,
        };
        let outcome = line.outcome.map_or_else(|| "?".to_owned(), |status| status.to_string());
        table.row(vec![
            ago(line.at_unix_s).into(),
            line.name.unwrap_or_else(|| "nobody".to_owned()).into(),
            line.role.unwrap_or_default().into(),
            line.peer.unwrap_or_default().into(),
            format!("{} {}", line.method, line.target).into(),
            Cell::new(outcome, tone),
            Cell::new(line.summary, Tone::Dim),
        ]);
    }
    table.print()
}

/// Lines of the audit log that are asked for at once: as many as control gives.
const PAGE: usize = 1000;

/// As many as control keeps.
const COUNT_MAX: usize = 100_000;

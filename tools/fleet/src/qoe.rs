//! `nearcast qoe`: what viewers felt, in the last ten minutes or since control's start.

use serde_json::Value;
use wire::v1::viewers::{ViewersFigures, ViewersOut, ViewersRow};

use crate::control::Query;
use crate::output::{self, Cell, Table, Tone};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show one kind of rows only
    #[arg(long, value_name = "KIND", value_parser = KINDS)]
    by: Option<String>,
    /// Since control's start instead of the last ten minutes
    #[arg(long)]
    total: bool,
    /// Most rows of each kind, those with most viewers first
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    most: usize,
    #[command(flatten)]
    query: Query,
}

const KINDS: [&str; 4] = ["site", "asset", "network", "player"];

/// One in a hundred is what a site is warned of.
const MUCH: f64 = 0.01;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let control = args.query.control.client()?;
    if args.query.json {
        return output::json(&control.get::<Value>("/v1/viewers")?);
    }
    let viewers: ViewersOut = control.get("/v1/viewers")?;
    lines(args, &viewers, output::colours()).iter().try_for_each(|line| output::line(line))
}

fn lines(args: &Args, viewers: &ViewersOut, colours: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for warning in &viewers.warnings {
        let text = format!(
            "Viewers of site {} stall: {} of the last minute in {} stalls, usual is {}.",
            warning.site,
            percent(Some(warning.stalled_share)),
            warning.stalls,
            percent(Some(warning.usual_share)),
        );
        lines.push(output::paint(&text, Tone::Bad, colours));
    }
    let figures =
        |row: &ViewersRow| if args.total { row.total.clone() } else { row.recent.clone() };
    let seen = |row: &ViewersRow| {
        let ViewersFigures { watched_ms, stalled_ms, playbacks, .. } = figures(row);
        (watched_ms + stalled_ms, playbacks)
    };
    for by in KINDS.into_iter().filter(|by| args.by.as_deref().is_none_or(|wanted| wanted == *by)) {
        let mut rows: Vec<&ViewersRow> = viewers.rows.iter().filter(|row| row.by == by).collect();
        rows.retain(|row| seen(row) != (0, 0));
        rows.sort_by_key(|row| std::cmp::Reverse(seen(row)));
        if rows.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let mut table = Table::new(&[
            heading(by),
            "TOLD BY",
            ">PLAYBACKS",
            ">START-UP",
            ">STALLS",
            ">STALLED",
            ">SHARE",
            ">BITRATE",
            ">BUFFER",
            ">SENT",
            ">MEASURED",
        ]);
        for row in rows.into_iter().take(args.most) {
            table.row(cells(row, &figures(row)));
        }
        lines.extend(table.lines(colours));
    }
    if lines.is_empty() {
        lines.push("Nobody has watched, as far as this process has heard.".to_owned());
    }
    let left_out = viewers.networks_left_out;
    if 0 < left_out && args.by.as_deref().is_none_or(|by| by == "network") {
        lines.push(format!("No room for {left_out} more networks of sites."));
    }
    lines
}

fn heading(by: &str) -> &'static str {
    match by {
        "site" => "SITE",
        "asset" => "ASSET",
        "network" => "NETWORK",
        _ => "PLAYER",
    }
}

fn cells(row: &ViewersRow, of: &ViewersFigures) -> Vec<Cell> {
    let tone = if row.source == "estimate" { Tone::Dim } else { Tone::Plain };
    let stalls = if of.stalled_share.is_some_and(|share| MUCH <= share) { Tone::Bad } else { tone };
    let plain = |text: String| Cell::new(text, tone);
    vec![
        plain(row.name.clone()),
        plain(row.source.clone()),
        plain(of.playbacks.to_string()),
        plain(seconds(of.start_ms)),
        Cell::new(of.stalls.to_string(), stalls),
        Cell::new(seconds(Some(of.stalled_ms)), stalls),
        Cell::new(percent(of.stalled_share), stalls),
        plain(rate(of.bits_per_second)),
        plain(seconds(of.buffer_ms)),
        plain(rate(of.sent_bits_per_second)),
        plain(rate(of.measured_bits_per_second)),
    ]
}

fn seconds(millis: Option<u64>) -> String {
    let tenths = |millis: u64| format!("{}.{} s", millis / 1000, millis % 1000 / 100);
    millis.map_or_else(|| "-".to_owned(), tenths)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn rate(bits_per_second: Option<u64>) -> String {
    let megabits = |bits: u64| format!("{}.{} Mb/s", bits / 1_000_000, bits % 1_000_000 / 100_000);
    bits_per_second.map_or_else(|| "-".to_owned(), megabits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use wire::v1::viewers::ViewersWarning;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Cli::parse_from([&["qoe"], words].concat()).args
    }

    fn row(by: &str, name: &str, source: &str, watched_ms: u64) -> ViewersRow {
        let recent = ViewersFigures {
            playbacks: 3,
            start_ms: Some(840),
            stalls: 2,
            stalled_ms: 3_250,
            stalled_share: Some(0.0234),
            watched_ms,
            bits_per_second: Some(5_820_000),
            ..ViewersFigures::default()
        };
        let (by, name, source) = (by.to_owned(), name.to_owned(), source.to_owned());
        ViewersRow { by, name, source, recent, ..ViewersRow::default() }
    }

    #[test]
    fn rows_are_shown_by_kind_those_with_most_viewers_first() {
        let warning = ViewersWarning {
            site: "s1".to_owned(),
            stalled_share: 0.034,
            usual_share: 0.002,
            stalls: 41,
            since_s: 5,
        };
        let rows = vec![
            row("site", "s1", "requests", 10_000),
            row("site", "s1", "estimate", 20_000),
            row("player", "avplayer", "requests", 1),
        ];
        let warnings = vec![warning];
        let mut viewers = ViewersOut { rows, warnings, now_unix_s: 0, networks_left_out: 0 };
        let text = lines(&args(&["--by", "site"]), &viewers, false);
        let expected = [
            "Viewers of site s1 stall: 3.4 % of the last minute in 41 stalls, usual is 0.2 %.",
            "",
            "SITE  TOLD BY   PLAYBACKS  START-UP  STALLS  STALLED  SHARE   BITRATE  BUFFER  SENT  \
             MEASURED",
            "s1    estimate          3     0.8 s       2    3.2 s  2.3 %  5.8 Mb/s       -     -  \
             \u{20}      -",
            "s1    requests          3     0.8 s       2    3.2 s  2.3 %  5.8 Mb/s       -     -  \
             \u{20}      -",
        ];
        assert_eq!(text, expected);
        assert_eq!(lines(&args(&["--most", "1"]), &viewers, false).len(), 7);
        let nobody = lines(&args(&["--total"]), &viewers, false);
        assert_eq!(nobody.len(), 1, "the totals are empty, and the warning stays");
        viewers.networks_left_out = 12;
        let last = |words: &[&str]| lines(&args(words), &viewers, false).pop().unwrap();
        let said = "No room for 12 more networks of sites.";
        assert_eq!((last(&[]), last(&["--by", "network"])), (said.to_owned(), said.to_owned()));
        assert!(last(&["--by", "site"]).starts_with("s1"));
    }
}

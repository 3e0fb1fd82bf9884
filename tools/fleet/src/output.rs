//! What people and scripts see: tables, quantities, colour where there is a terminal, one line of
//! JSON.

use std::io::{self, IsTerminal as _, Write as _};

use indicatif::{ProgressBar, ProgressStyle};
use model::units::{BitsPerSecond, Bytes, Nanos};
use serde::Serialize;

/// Writes one line to stdout. A reader that went away (`| head`) ends us quietly.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        result => Ok(result?),
    }
}

/// Writes one value as one line of JSON to stdout.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string(value)?)
}

/// A progress bar on stderr; nothing where that is no terminal.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─");
    ProgressBar::new(0).with_style(style)
}

/// Ends when the process is asked to stop, by Ctrl-C or by SIGTERM.
pub(crate) async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let interrupt = tokio::signal::ctrl_c();
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = interrupt => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(interrupt.await),
    }
}

/// How a cell looks where colours are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As the terminal has it.
    #[default]
    Plain,
    Good,
    Warn,
    Bad,
    /// Less important than the rest.
    Dim,
    Head,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
            Self::Dim => "\x1b[2m",
            Self::Head => "\x1b[1m",
        }
    }
}

/// True if stdout is a terminal that shows colours.
pub(crate) fn colours() -> bool {
    io::stdout().is_terminal() && colours_wanted()
}

/// False if the user refused colours (no-color.org) or the terminal has none.
pub(crate) fn colours_wanted() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !refused && !dumb
}

/// `text` in its tone, if colours are shown.
pub(crate) fn paint(text: &str, tone: Tone, colours: bool) -> String {
    if colours && tone != Tone::Plain {
        format!("{}{text}\x1b[0m", tone.code())
    } else {
        text.to_owned()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(text, Tone::Plain)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// A table: columns as wide as their widest cell, two spaces between, numbers to the right.
#[derive(Debug)]
pub(crate) struct Table {
    /// Heading and whether the column is of numbers.
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings; one that begins with `>` is of a column of numbers.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| {
            heading.strip_prefix('>').map_or((*heading, false), |number| (number, true))
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    pub(crate) fn lines(&self, colours: bool) -> Vec<String> {
        let head: Vec<Cell> =
            self.columns.iter().map(|(text, _)| Cell::new(*text, Tone::Head)).collect();
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| &row[index]).chain([&head[index]]);
            cells.map(|cell| cell.text.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let row = |cells: &Vec<Cell>| self.line(cells, &widths, colours);
        [&head].into_iter().chain(&self.rows).map(row).collect()
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        self.lines(colours()).iter().try_for_each(|text| line(text))
    }

    fn line(&self, cells: &[Cell], widths: &[usize], colours: bool) -> String {
        let mut text = String::new();
        for ((cell, width), (_, number)) in cells.iter().zip(widths).zip(&self.columns) {
            let padding = " ".repeat(width - cell.text.chars().count());
            let painted = paint(&cell.text, cell.tone, colours);
            let (before, after) = if *number { (&*padding, "") } else { ("", &*padding) };
            text.push_str(&format!("{before}{painted}{after}  "));
        }
        text.trim_end().to_owned()
    }
}

/// Three digits and a decimal unit: `41.2 MB`.
pub(crate) fn bytes(bytes: Bytes) -> String {
    scaled(bytes.0, &["B", "kB", "MB", "GB", "TB", "PB", "EB"])
}

/// Three digits and a decimal unit: `3.21 Gb/s`.
pub(crate) fn rate(rate: BitsPerSecond) -> String {
    scaled(rate.0, &["b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s", "Pb/s", "Eb/s"])
}

/// A span for people: `850 ms`, `3.2 s`, `4 min`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn span(span: Nanos) -> String {
    let (millis, seconds) = (span.as_millis(), span.as_seconds());
    let two = |large: u64, small: u64, units: (&str, &str)| match small {
        0 => format!("{large} {}", units.0),
        _ => format!("{large} {} {small} {}", units.0, units.1),
    };
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{seconds}.{} s", millis % 1_000 / 100),
        60..3_600 => two(seconds / 60, seconds % 60, ("min", "s")),
        3_600..86_400 => two(seconds / 3_600, seconds % 3_600 / 60, ("h", "min")),
        _ => two(seconds / 86_400, seconds % 86_400 / 3_600, ("d", "h")),
    }
}

/// How long ago a second of the clock was: `3 d 4 h ago`.
pub(crate) fn ago(unix_s: u64) -> String {
    format!("{} ago", span(Nanos::seconds(now_unix_s().saturating_sub(unix_s))))
}

/// When a second of the clock is: `3 d 4 h ago`, `in 5 min`.
pub(crate) fn when(unix_s: u64) -> String {
    match unix_s.checked_sub(now_unix_s()) {
        None | Some(0) => ago(unix_s),
        Some(seconds) => format!("in {}", span(Nanos::seconds(seconds))),
    }
}

/// A second of the clock as a time in UTC, the year 9999 being the last.
pub(crate) fn time(unix_s: u64) -> String {
    let since = std::time::Duration::from_secs(unix_s.min(253_402_300_799));
    let time = std::time::UNIX_EPOCH.checked_add(since).unwrap_or(std::time::UNIX_EPOCH);
    humantime::format_rfc3339_seconds(time).to_string()
}

pub(crate) fn now_unix_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_secs())
}

/// Integer arithmetic only, rounded down: the text never shows more than there is.
fn scaled(n: u64, units: &[&str; 7]) -> String {
    let mut scale: u64 = 1;
    let mut unit = 0;
    while 1_000 <= n / scale && unit + 1 < units.len() {
        scale *= 1_000;
        unit += 1;
    }
    let whole = n / scale;
    let thousandths = u128::from(n % scale) * 1_000 / u128::from(scale);
    match (unit, whole) {
        (0, _) | (_, 100..) => format!("{whole} {}", units[unit]),
        (_, 10..) => format!("{whole}.{} {}", thousandths / 100, units[unit]),
        (_, _) => format!("{whole}.{:02} {}", thousandths / 10, units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_three_digits_and_a_unit() {
        assert_eq!(bytes(Bytes(0)), "0 B");
        assert_eq!(bytes(Bytes(999)), "999 B");
        assert_eq!(bytes(Bytes(1_000)), "1.00 kB");
        assert_eq!(bytes(Bytes(41_290_000)), "41.2 MB");
        assert_eq!(bytes(Bytes(412_900_000)), "412 MB");
        assert_eq!(bytes(Bytes(u64::MAX)), "18.4 EB");
        assert_eq!(rate(BitsPerSecond(3_219_000_000)), "3.21 Gb/s");
    }

    #[test]
    fn spans_are_read_as_people_say_them() {
        for (value, text) in [
            (Nanos::millis(850), "850 ms"),
            (Nanos::millis(3_250), "3.2 s"),
            (Nanos::seconds(61), "1 min 1 s"),
            (Nanos::seconds(7_500), "2 h 5 min"),
            (Nanos::seconds(86_400), "1 d"),
        ] {
            assert_eq!(span(value), text);
        }
    }

    #[test]
    fn columns_align_and_colours_take_no_room() {
        let mut table = Table::new(&["NAME", ">SIZE", "STATE"]);
        table.row(vec!["a1".into(), "5 MB".into(), Cell::new("healthy", Tone::Good)]);
        table.row(vec!["appliance".into(), "41.2 MB".into(), Cell::new("stale", Tone::Bad)]);
        let plain = [
            "NAME          SIZE  STATE",
            "a1            5 MB  healthy",
            "appliance  41.2 MB  stale",
        ];
        assert_eq!(table.lines(false), plain);
        let stripped: Vec<String> = table
            .lines(true)
            .iter()
            .map(|line| {
                let parts: Vec<&str> = line.split("\x1b[").collect();
                let rest = parts[1..].iter().map(|p| p.split_once('m').unwrap().1);
                [parts[0]].into_iter().chain(rest).collect::<String>().trim_end().to_owned()
            })
            .collect();
        assert_eq!(stripped, plain);
    }
}

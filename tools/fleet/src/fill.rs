//! `nearcast fill list`: when sites fill, and how far each appliance is.

use anyhow::Context as _;
use model::hours::NEVER;
use model::units::{BitsPerSecond, Bytes};
use serde_json::Value;
use wire::v1::fill::{FillAppliance, FillOut, FillSite, FillWait, Urgent};
use wire::v1::identity::Escalation;

use crate::grammar::Call;
use crate::output::{self, Cell, Table, Tone};

/// Lists each appliance, below what is said of its site.
pub(crate) fn list(call: &Call<'_>) -> anyhow::Result<()> {
    let site = call.text("site").map(|site| format!("?site={}", crate::control::encoded(site)));
    let raw: Value = call.control.get(&format!("{}{}", call.path(0), site.unwrap_or_default()))?;
    if call.json {
        return output::json(&raw);
    }
    let found: FillOut = serde_json::from_value(raw).context("control's answer")?;
    table(&found).print()?;
    urgent(&found).iter().try_for_each(|line| output::line(line))
}

/// What is fetched before all else, a line for each.
fn urgent(found: &FillOut) -> Vec<String> {
    let until =
        |until: Option<u64>| until.map_or_else(|| "further notice".to_owned(), output::time);
    let line = |of: &Urgent| format!("{} is urgent until {}", of.version, until(of.until_unix_s));
    found.urgent.iter().map(line).collect()
}

fn table(found: &FillOut) -> Table {
    let mut table = Table::new(&HEADINGS);
    for site in &found.sites {
        if site.appliances.is_empty() {
            table.row(of_site(site).into_iter().chain(NOTHING.map(Cell::from)).collect());
        }
        for appliance in &site.appliances {
            let mut row = of_site(site);
            row[1] = Cell::from(appliance.appliance.clone());
            row.extend(of_appliance(site, appliance));
            table.row(row);
        }
    }
    table
}

const HEADINGS: [&str; 10] = [
    "SITE",
    "APPLIANCE",
    "WINDOWS",
    "NOW",
    "UNTIL",
    ">MISSING",
    ">RATE",
    ">AT MOST",
    "READY",
    "WAITS FOR",
];

/// Of a site without appliances.
const NOTHING: [&str; 5] = ["", "", "", "", ""];

fn of_site(site: &FillSite) -> Vec<Cell> {
    let whose = if site.by_policy { " (policy)" } else { "" };
    let zone = match (&*site.windows, site.zone_unknown) {
        ("always", _) => String::new(),
        (_, true) => format!(" UTC: zone {} is not known here", site.time_zone),
        (_, false) => format!(" {}", site.time_zone),
    };
    let (now, tone) = match (site.is_open, site.paused_until_unix_s) {
        (_, Some(_)) => ("paused", Tone::Warn),
        (true, None) => ("open", Tone::Good),
        (false, None) => ("closed", Tone::Dim),
    };
    let until = match site.next_change_unix_s {
        Some(until) => output::time(until),
        None if site.paused_until_unix_s == Some(NEVER.0) => "nearcast fill resume".to_owned(),
        None => String::new(),
    };
    vec![
        Cell::from(site.site.clone()),
        Cell::from(""),
        Cell::from(format!("{}{zone}{whose}", site.windows)),
        Cell::new(now, tone),
        Cell::from(until),
    ]
}

fn of_appliance(site: &FillSite, of: &FillAppliance) -> Vec<Cell> {
    let rate = |rate: u64| output::rate(BitsPerSecond(rate));
    let missing = match of.bytes_missing {
        None => Cell::new("not known", Tone::Dim),
        Some(0) => Cell::new("nothing", Tone::Good),
        Some(missing) => Cell::from(output::bytes(Bytes(missing))),
    };
    let most = [of.rate_max_bps, of.outside_max_bps].into_iter().flatten().min();
    let ready = match (of.ready_unix_s, of.bytes_missing) {
        _ if of.has_other_rules => Cell::new("goes by other hours", Tone::Warn),
        (Some(at), _) => Cell::from(output::time(at)),
        (None, None | Some(0)) => Cell::from(""),
        (None, Some(_)) if site.is_open => Cell::new("nothing comes", Tone::Warn),
        (None, Some(_)) => Cell::new("not known", Tone::Dim),
    };
    vec![
        missing,
        Cell::from(of.bits_per_second.map(rate).unwrap_or_default()),
        Cell::from(most.map_or_else(|| "no limit".to_owned(), rate)),
        ready,
        Cell::from(of.waits.as_ref().map(waits).unwrap_or_default()),
    ]
}

/// Who is to fetch what it waits for, since when, and whom it asks next.
fn waits(
    FillWait { version, masters, since_unix_s, further_unix_s, further }: &FillWait,
) -> String {
    let whom = if masters.is_empty() { "not known yet".to_owned() } else { masters.join(" or ") };
    let next = further.zip(*further_unix_s).map(|(to, at)| {
        let to = match to {
            Escalation::Elsewhere => "other fill clusters",
            Escalation::Origin => "the origin",
        };
        format!(", {to} from {}", output::time(at))
    });
    let next = next.unwrap_or_default();
    format!("{whom}: {version}, since {}{next}", output::time(*since_unix_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_hours_what_is_missing_and_when_it_will_be_there() {
        let appliance = |name: &str, missing, rate| FillAppliance {
            appliance: name.to_owned(),
            bytes_wanted: Some(9_000_000_000),
            bytes_missing: Some(missing),
            bits_per_second: Some(rate),
            rate_max_bps: Some(300_000_000),
            ..FillAppliance::default()
        };
        let ready = Some(1_774_656_000);
        let waits = FillWait {
            version: "film-1".to_owned(),
            masters: vec!["m1".to_owned(), "m2".to_owned()],
            since_unix_s: 1_774_656_000,
            further_unix_s: Some(1_774_670_400),
            further: Some(Escalation::Origin),
        };
        let sites = vec![
            FillSite {
                site: "s1".to_owned(),
                windows: "22:00-06:00".to_owned(),
                time_zone: "Europe/Berlin".to_owned(),
                is_open: true,
                next_change_unix_s: Some(1_774_670_400),
                appliances: vec![
                    FillAppliance {
                        ready_unix_s: ready,
                        ..appliance("a1", 5_000_000_000, 290_000_000)
                    },
                    appliance("a2", 0, 0),
                    appliance("a3", 7, 0),
                    FillAppliance { has_other_rules: true, ..appliance("a4", 7, 0) },
                    FillAppliance { waits: Some(waits), ..appliance("a5", 7, 1) },
                ],
                ..FillSite::default()
            },
            FillSite {
                site: "s2".to_owned(),
                windows: "always".to_owned(),
                by_policy: true,
                paused_until_unix_s: Some(NEVER.0),
                ..FillSite::default()
            },
        ];
        let until = |until_unix_s| Urgent { version: "film-1".to_owned(), until_unix_s };
        let found = FillOut { sites, urgent: vec![until(None), until(ready)] };
        let said = ["further notice", "2026-03-28T00:00:00Z"];
        assert_eq!(urgent(&found), said.map(|until| format!("film-1 is urgent until {until}")));
        let lines = table(&found).lines(false);
        let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let lines: Vec<String> = lines.iter().map(words).collect();
        let s1 = "22:00-06:00 Europe/Berlin open 2026-03-28T04:00:00Z";
        assert_eq!(
            lines,
            [
                "SITE APPLIANCE WINDOWS NOW UNTIL MISSING RATE AT MOST READY WAITS FOR".to_owned(),
                format!("s1 a1 {s1} 5.00 GB 290 Mb/s 300 Mb/s 2026-03-28T00:00:00Z"),
                format!("s1 a2 {s1} nothing 0 b/s 300 Mb/s"),
                format!("s1 a3 {s1} 7 B 0 b/s 300 Mb/s nothing comes"),
                format!("s1 a4 {s1} 7 B 0 b/s 300 Mb/s goes by other hours"),
                format!(
                    "s1 a5 {s1} 7 B 1 b/s 300 Mb/s nothing comes m1 or m2: film-1, since \
                     2026-03-28T00:00:00Z, the origin from 2026-03-28T04:00:00Z"
                ),
                "s2 always (policy) paused nearcast fill resume".to_owned(),
            ]
        );
    }
}

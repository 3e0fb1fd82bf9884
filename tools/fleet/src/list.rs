//! `list` and `show` of sites, appliances and assets: the fleet as control sees it now, in tables.

use anyhow::Context as _;
use model::units::{BitsPerSecond, Bytes, Nanos};
use model::view::Health;
use serde::Deserialize as _;
use serde_json::{Value, json};
use wire::v1::fleet::{DrainOut, FleetAppliance, FleetAsset, FleetError, FleetOut, FleetSite};
use wire::v1::report::{Drive, DriveState, Fill, Report};
use wire::v1::site::{SiteAbout, SiteKind};

use crate::control::encoded;
use crate::grammar::Call;
use crate::output::{self, Cell, Table, Tone};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Site,
    Appliance,
    Asset,
}

/// Lists things of one kind, or of all.
pub(crate) fn list(call: &Call<'_>, kind: Option<Kind>) -> anyhow::Result<()> {
    let (fleet, raw) = fetch(call)?;
    if call.json {
        return output::json(&match kind {
            None => raw,
            Some(Kind::Site) => json!({ "sites": raw["sites"] }),
            Some(Kind::Appliance) => json!({ "appliances": appliances_in(&raw) }),
            Some(Kind::Asset) => json!({ "assets": raw["assets"] }),
        });
    }
    match kind {
        Some(Kind::Site) => sites(&fleet).print(),
        Some(Kind::Appliance) => appliances(&fleet).print(),
        Some(Kind::Asset) => assets(&fleet).print(),
        None => {
            sites(&fleet).print()?;
            output::line("")?;
            appliances(&fleet).print()?;
            output::line("")?;
            assets(&fleet).print()?;
            print_errors(errors(&fleet))
        }
    }
}

/// Shows all about one thing: of a site or an appliance, the fleet is asked for that site alone.
pub(crate) fn show(call: &Call<'_>, kind: Kind) -> anyhow::Result<()> {
    let name = call.name(match kind {
        Kind::Site => "site",
        Kind::Appliance => "id",
        Kind::Asset => "asset",
    })?;
    let said = match kind {
        Kind::Site => Value::Null,
        // As registered, or with all of its versions.
        Kind::Appliance | Kind::Asset => {
            call.control.find(&call.path(0))?.ok_or_else(|| unknown(kind, name))?
        }
    };
    let (site, route) = match kind {
        Kind::Site => (Some(name), 0),
        Kind::Appliance => (said["site"].as_str(), 1),
        Kind::Asset => (None, 1),
    };
    let of_site = site.map(|site| format!("?site={}", encoded(site))).unwrap_or_default();
    let found = call.control.find(&format!("{}{of_site}", call.path(route)))?;
    let raw = found.ok_or_else(|| unknown(kind, name))?;
    let fleet = read(&raw)?;
    let among = match kind {
        Kind::Site => raw["sites"].as_array().cloned().unwrap_or_default(),
        Kind::Appliance => appliances_in(&raw),
        Kind::Asset => raw["assets"].as_array().cloned().unwrap_or_default(),
    };
    let found = among.into_iter().find(|one| one["id"] == name);
    let found = found.ok_or_else(|| unknown(kind, name))?;
    if call.json {
        return output::json(&joined(found, said));
    }
    let shown = match kind {
        Kind::Site => {
            fleet.sites.iter().find(|site| site.id == name).map(|site| show_site(site, &fleet))
        }
        Kind::Appliance => appliances_of(&fleet)
            .find(|(_, appliance)| appliance.id == name)
            .map(|(site, appliance)| show_appliance(site, appliance, &said, &fleet)),
        Kind::Asset => {
            fleet.assets.iter().find(|asset| asset.id == name).map(|of| show_asset(of, &said))
        }
    };
    shown.unwrap_or(Ok(()))
}

/// The fields of both; those that both have are the first's.
fn joined(mut found: Value, said: Value) -> Value {
    if let (Value::Object(found), Value::Object(said)) = (&mut found, said) {
        for (field, value) in said {
            found.entry(field).or_insert(value);
        }
    }
    found
}

/// The fleet as we know it, and as control wrote it.
fn fetch(call: &Call<'_>) -> anyhow::Result<(FleetOut, Value)> {
    let raw: Value = call.control.get(&call.path(0))?;
    Ok((read(&raw)?, raw))
}

fn read(raw: &Value) -> anyhow::Result<FleetOut> {
    FleetOut::deserialize(raw)
        .context("control's picture of the fleet cannot be read: is it of this version?")
}

fn appliances_in(raw: &Value) -> Vec<Value> {
    let sites = raw["sites"].as_array().into_iter().flatten();
    let with_site = sites.flat_map(|site| {
        let appliances = site["appliances"].as_array().into_iter().flatten().cloned();
        appliances.map(|mut appliance| {
            if let Value::Object(fields) = &mut appliance {
                fields.insert("site".to_owned(), site["id"].clone());
            }
            appliance
        })
    });
    with_site.collect()
}

fn appliances_of(fleet: &FleetOut) -> impl Iterator<Item = (&FleetSite, &FleetAppliance)> {
    fleet.sites.iter().flat_map(|site| site.appliances.iter().map(move |one| (site, one)))
}

fn unknown(kind: Kind, name: &str) -> anyhow::Error {
    let what = match kind {
        Kind::Site => "site",
        Kind::Appliance => "appliance",
        Kind::Asset => "asset",
    };
    anyhow::anyhow!("there is no {what} \"{name}\": `nearcast {what} list` names them")
}

fn sites(fleet: &FleetOut) -> Table {
    let mut table = Table::new(&["SITE", ">APPLIANCES", ">HEALTHY", ">EGRESS", "PREFIXES"]);
    for site in &fleet.sites {
        let total = site.appliances.len();
        let healthy = site.appliances.iter().filter(|a| a.state == Health::Healthy).count();
        let tone = match (healthy, total) {
            (0, 0) => Tone::Dim,
            (0, _) => Tone::Bad,
            (some, all) if some < all => Tone::Warn,
            (_, _) => Tone::Good,
        };
        table.row(vec![
            site.id.as_str().into(),
            total.to_string().into(),
            Cell::new(healthy.to_string(), tone),
            output::rate(egress(site)).into(),
            shortened(&site.prefixes, site.prefix_count).into(),
        ]);
    }
    table
}

fn egress(site: &FleetSite) -> BitsPerSecond {
    let reports = site.appliances.iter().filter_map(|a| a.report.as_ref());
    BitsPerSecond(reports.map(|report| report.load.egress_bits_per_second).sum())
}

fn appliances(fleet: &FleetOut) -> Table {
    let mut table = Table::new(&[
        "APPLIANCE",
        "SITE",
        "STATE",
        ">REPORT",
        ">EGRESS",
        ">CPU",
        ">SHARE",
        "BOTTLENECK",
        ">CONNECTIONS",
        ">DRIVES",
        ">OBJECTS",
        ">FILLED",
    ]);
    for (site, appliance) in appliances_of(fleet) {
        let report = appliance.report.as_ref();
        let [egress, cpu, connections, drives, filled] =
            report.map_or_else(|| [(); 5].map(|()| nothing()), report_cells);
        table.row(vec![
            appliance.id.as_str().into(),
            site.id.as_str().into(),
            Cell::new(appliance.state.to_string(), tone_of(appliance)),
            ago(appliance.last_report_ms).into(),
            egress,
            cpu,
            share(appliance),
            bottleneck(appliance).into(),
            connections,
            drives,
            appliance.objects_held.to_string().into(),
            filled,
        ]);
    }
    table
}

/// The share of its sessions that it takes.
fn share(appliance: &FleetAppliance) -> Cell {
    let Some(permille) = appliance.share_permille else { return nothing() };
    let tone = if permille < 1000 { Tone::Warn } else { Tone::Plain };
    Cell::new(format!("{} %", permille / 10), tone)
}

/// The part of the sessions of its titles that follow them to it.
fn titles(appliance: &FleetAppliance) -> Cell {
    let Some(permille) = appliance.titles_permille else { return nothing() };
    Cell::new(format!("{}.{} %", permille / 10, permille % 10), Tone::Plain)
}

/// What it is shortest of, and how much of that is in use.
fn bottleneck(appliance: &FleetAppliance) -> String {
    let worst = appliance.load.first().filter(|_| appliance.report.is_some());
    worst.map_or_else(|| "-".to_owned(), |of| format!("{} {} %", of.name, of.permille / 10))
}

/// Egress, CPU, connections, drives and fill.
fn report_cells(report: &Report) -> [Cell; 5] {
    let total = report.drives.len();
    let good = |drive: &&Drive| drive.state == DriveState::Ok && !drive.hung;
    let ok = report.drives.iter().filter(good).count();
    let tone = if ok < total { Tone::Bad } else { Tone::Plain };
    [
        output::rate(BitsPerSecond(report.load.egress_bits_per_second)).into(),
        format!("{:.0} %", report.load.cpu_percent).into(),
        report.load.connections.to_string().into(),
        Cell::new(format!("{ok}/{total}"), tone),
        filled(&report.fill),
    ]
}

fn assets(fleet: &FleetOut) -> Table {
    let mut table =
        Table::new(&["ASSET", "VERSION", ">FILES", ">SIZE", ">COPIES", "PLAYED", "ENTRIES"]);
    for asset in &fleet.assets {
        table.row(vec![
            asset.id.as_str().into(),
            asset.current_version.as_str().into(),
            asset.files.to_string().into(),
            output::bytes(Bytes(asset.bytes)).into(),
            copies(asset),
            played(asset).into(),
            shortened(
                &asset.entries.iter().map(|entry| entry.path.clone()).collect::<Vec<_>>(),
                asset.entries.len(),
            )
            .into(),
        ]);
    }
    table
}

fn show_site(site: &FleetSite, fleet: &FleetOut) -> anyhow::Result<()> {
    let mut facts = vec![("site", Cell::from(&*site.id))];
    if site.prefixes.is_empty() {
        facts.push(("prefixes", "none".into()));
    }
    let labels = ["prefixes"].into_iter().chain(std::iter::repeat(""));
    facts.extend(labels.zip(site.prefixes.iter().map(|prefix| Cell::from(&**prefix))));
    facts.extend(about(&site.about).map(|(label, text)| (label, text.into())));
    facts.push(("egress", output::rate(egress(site)).into()));
    print_facts(facts)?;
    output::line("")?;
    let own = FleetOut { sites: vec![site.clone()], ..FleetOut::default() };
    appliances(&own).print()?;
    print_errors(errors(fleet))
}

/// All that control tells, each with the appliance that has it, or `control`.
fn errors(fleet: &FleetOut) -> Vec<String> {
    let named = |error: &FleetError| format!("{} {}: {}", error.appliance, error.room, error.text);
    fleet.errors.iter().map(named).chain(more_errors(fleet, "errors")).collect()
}

/// How many more there are than control's list has: of the site that it was asked for.
fn more_errors(fleet: &FleetOut, of: &str) -> Option<String> {
    let more = fleet.error_count.saturating_sub(fleet.errors.len());
    (0 < more).then(|| format!("and {more} more {of}, which are older"))
}

/// Those of one appliance, and how many its site has that are not told.
fn errors_of(appliance: &str, fleet: &FleetOut) -> Vec<String> {
    let own = fleet.errors.iter().filter(|error| error.appliance == appliance);
    let lines = own.map(|error| format!("{}: {}", error.room, error.text));
    lines.chain(more_errors(fleet, "of its site")).collect()
}

/// Below an empty line.
fn print_errors(lines: Vec<String>) -> anyhow::Result<()> {
    if !lines.is_empty() {
        output::line("")?;
    }
    lines.iter().try_for_each(|line| output::line(line))
}

/// Its operator's own name for it, or a usual one.
fn profile(registered: &Value) -> &str {
    let named = ["profile_name", "profile"].map(|key| registered[key].as_str());
    named.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or("none")
}

/// What an appliance is able to do, by its own figures or its profile's.
fn able(appliance: &FleetAppliance) -> String {
    let Some(of) = appliance.abilities else { return "not said".to_owned() };
    let rate = |bps: u64| (bps != 0).then(|| output::rate(BitsPerSecond(bps)));
    let capacity = (of.capacity_bytes != 0).then(|| output::bytes(Bytes(of.capacity_bytes)));
    let all =
        [("serve", rate(of.throughput_bps)), ("hold", capacity), ("fetch", rate(of.fill_bps))];
    let said = all.into_iter().filter_map(|(verb, most)| Some(format!("{verb} {}", most?)));
    said.collect::<Vec<_>>().join(", ")
}

/// What is said of a site. What nobody said reads as it counts.
fn about(about: &SiteAbout) -> [(&'static str, String); 8] {
    let said = |text: &str, otherwise: &str| {
        if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
    };
    let most = |bps: u64, none: &str| match bps {
        0 => none.to_owned(),
        bps => output::rate(BitsPerSecond(bps)),
    };
    let kind = match (about.kind, about.open) {
        (SiteKind::Embedded, true) => "embedded, serves all",
        (SiteKind::Embedded, false) => "embedded",
        (SiteKind::Exchange, _) => "exchange",
    };
    [
        ("kind", kind.to_owned()),
        ("place", said(&about.place, "not said")),
        ("time zone", about.time_zone.clone()),
        ("uplink", most(about.uplink_bps, "not known")),
        ("renditions up to", most(about.bitrate_max_bps, "all")),
        ("manifest cluster", said(&about.manifest_cluster, "its own")),
        ("fill cluster", said(&about.fill_cluster, "its own")),
        ("fills", said(&about.fill_windows, "by the policy's windows")),
    ]
}

fn show_appliance(
    site: &FleetSite,
    appliance: &FleetAppliance,
    registered: &Value,
    fleet: &FleetOut,
) -> anyhow::Result<()> {
    let since = output::span(Nanos::seconds(appliance.since_s));
    let reason = appliance.reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let state = format!("{} for {since}{reason}", appliance.state);
    let mut facts = vec![
        ("appliance", Cell::from(&*appliance.id)),
        ("site", site.id.as_str().into()),
        ("state", Cell::new(state, tone_of(appliance))),
        ("last report", ago(appliance.last_report_ms).into()),
        ("base URL", appliance.base_url.as_deref().unwrap_or("not known yet").into()),
        ("drain", appliance.drain.map_or_else(|| "none".to_owned(), |of| drain(&of)).into()),
        ("weight", appliance.weight.to_string().into()),
        ("addresses", texts(&registered["addresses"]).into()),
        ("profile", profile(registered).into()),
        ("able to", able(appliance).into()),
        ("tags", texts(&registered["tags"]).into()),
        ("capacity", capacity(&registered["usable_bytes"]).into()),
        ("objects held", appliance.objects_held.to_string().into()),
    ];
    if let Some(report) = &appliance.report {
        let load = &report.load;
        facts.extend([
            ("software", report.software.as_str().into()),
            ("running for", output::span(Nanos::seconds(report.uptime_s)).into()),
            ("manifest", format!("generation {}", report.generation).into()),
            ("egress", output::rate(BitsPerSecond(load.egress_bits_per_second)).into()),
            ("sent", output::bytes(Bytes(load.egress_bytes)).into()),
            ("requests", format!("{}, {} failed", load.requests, load.request_errors).into()),
            ("connections", format!("{} of {}", load.connections, load.connections_max).into()),
            ("CPU", format!("{:.0} %", load.cpu_percent).into()),
            ("share", share(appliance)),
            ("titles", titles(appliance)),
            ("in use", in_use(appliance).into()),
            ("filled", filled(&report.fill)),
        ]);
    }
    print_facts(facts)?;
    if let Some(report) = &appliance.report {
        output::line("")?;
        drives(report).print()?;
    }
    print_errors(errors_of(&appliance.id, fleet))
}

/// All that it can run short of, the bottleneck first.
fn in_use(appliance: &FleetAppliance) -> String {
    let each = appliance.load.iter().map(|of| format!("{} {} %", of.name, of.permille / 10));
    each.collect::<Vec<_>>().join(", ")
}

fn drives(report: &Report) -> Table {
    let mut table = Table::new(&["DRIVE", "STATE", ">SIZE", ">FREE", ">OBJECTS", "PATH"]);
    for drive in &report.drives {
        let (word, tone) = match drive.state {
            DriveState::Ok if drive.hung => ("hung", Tone::Bad),
            DriveState::Ok => ("ok", Tone::Good),
            DriveState::SetAside => ("set aside", Tone::Bad),
        };
        let state = match &drive.reason {
            Some(why) if tone == Tone::Bad => format!("{word}: {why}"),
            Some(_) | None => word.to_owned(),
        };
        table.row(vec![
            drive.id.get(..8).unwrap_or(&drive.id).into(),
            Cell::new(state, tone),
            output::bytes(Bytes(drive.capacity_bytes)).into(),
            output::bytes(Bytes(drive.free_bytes)).into(),
            drive.objects.to_string().into(),
            drive.path.as_str().into(),
        ]);
    }
    table
}

fn drain(drain: &DrainOut) -> String {
    let until = drain.until_unix_s.map(|until| format!("until {}", output::time(until)));
    let until = until.unwrap_or_else(|| "until `nearcast drain --end`".to_owned());
    format!("from {} {until}", output::time(drain.from_unix_s))
}

fn texts(list: &Value) -> String {
    let texts: Vec<&str> =
        list.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(", ") }
}

fn capacity(bytes: &Value) -> String {
    let bytes = bytes.as_u64().map(|bytes| output::bytes(Bytes(bytes)));
    bytes.unwrap_or_else(|| "not known yet".to_owned())
}

fn show_asset(asset: &FleetAsset, said: &Value) -> anyhow::Result<()> {
    let mut facts = vec![
        ("asset", Cell::from(&*asset.id)),
        ("version", asset.current_version.as_str().into()),
        ("files", asset.files.to_string().into()),
        ("size", output::bytes(Bytes(asset.bytes)).into()),
        ("copies", copies(asset)),
        ("played", played(asset).into()),
    ];
    let labels = ["entries"].into_iter().chain(std::iter::repeat(""));
    let entries = asset.entries.iter().map(|entry| format!("{} ({})", entry.path, entry.format));
    facts.extend(labels.zip(entries.map(Cell::from)));
    print_facts(facts)?;
    output::line("")?;
    let mut table = Table::new(&["VERSION", ">SIZE", "SHOWN", "FROM", "UNTIL"]);
    for version in said["versions"].as_array().into_iter().flatten() {
        let text = |field: &str| version[field].as_str().unwrap_or("-").to_owned();
        let is_shown = version["shown"] == true;
        let tone = if is_shown { Tone::Good } else { Tone::Warn };
        table.row(vec![
            text("id").into(),
            output::bytes(Bytes(version["bytes"].as_u64().unwrap_or_default())).into(),
            Cell::new(if is_shown { "now" } else { "not now" }, tone),
            text("from").into(),
            text("until").into(),
        ]);
    }
    table.print()
}

/// One fact per line, labels in a column.
fn print_facts(facts: Vec<(&'static str, Cell)>) -> anyhow::Result<()> {
    let mut table = Table::new(&["", ""]);
    for (label, cell) in facts {
        table.row(vec![Cell::new(label, Tone::Dim), cell]);
    }
    table.lines(output::colours()).iter().skip(1).try_for_each(|line| output::line(line))
}

fn tone_of(appliance: &FleetAppliance) -> Tone {
    match appliance.state {
        Health::Healthy => Tone::Good,
        Health::Draining | Health::Drained | Health::NeverSeen => Tone::Warn,
        Health::Unhealthy | Health::Stale => Tone::Bad,
    }
}

fn copies(asset: &FleetAsset) -> Cell {
    let (complete, wanted) = (Bytes::of(asset.copies_complete).0, asset.copies_wanted);
    let tone = match complete {
        0 => Tone::Bad,
        some if some < wanted => Tone::Warn,
        _ => Tone::Good,
    };
    Cell::new(format!("{complete}/{wanted}"), tone)
}

fn played(asset: &FleetAsset) -> &'static str {
    if asset.public { "by anybody" } else { "with a grant" }
}

fn filled(fill: &Fill) -> Cell {
    if fill.bytes_wanted <= fill.bytes_held && fill.objects_wanted <= fill.objects_held {
        return Cell::new("all", Tone::Good);
    }
    let percent = u128::from(fill.bytes_held) * 100 / u128::from(fill.bytes_wanted.max(1));
    Cell::new(format!("{} %", percent.min(99)), Tone::Warn)
}

fn ago(millis: Option<u64>) -> String {
    millis
        .map_or_else(|| "never".to_owned(), |ms| format!("{} ago", output::span(Nanos::millis(ms))))
}

fn nothing() -> Cell {
    Cell::new("-", Tone::Dim)
}

/// The first of so many words.
fn shortened(words: &[String], count: usize) -> String {
    let shown = words[..words.len().min(WORDS_MAX)].join(", ");
    match (words.len(), count.max(words.len()) - words.len().min(WORDS_MAX)) {
        (0, 0) => "-".to_owned(),
        (_, 0) => shown,
        (_, more) => format!("{shown}, and {more} more"),
    }
}

/// More are counted, not named.
const WORDS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet() -> FleetOut {
        serde_json::from_value(json!({
            "now_unix_s": 1, "generation": 3, "errors": [], "history": [], "demo_controls": null,
            "sites": [
                {"id": "s1", "prefixes": ["127.0.0.1/32", "10.0.0.0/8", "::1/128", "fd00::/8"],
                 "appliances": [
                    {"id": "a1", "state": "healthy", "last_report_ms": 320, "objects_held": 10,
                     "since_s": 5, "weight": 1, "share_permille": 615,
                     "load": [{"name": "drives", "permille": 925},
                        {"name": "cpu", "permille": 124}],
                     "report": {"start_id": 1, "sequence": 9, "uptime_s": 61, "software": "0.1.0",
                        "base_url": "https://127.0.0.2:8443", "generation": 3,
                        "load": {"serving": true, "connections": 12, "connections_max": 20000,
                            "egress_bits_per_second": 41_200_000u64,
                            "egress_max_bits_per_second": 0, "egress_bytes": 5, "requests": 7,
                            "request_errors": 0, "cpu_percent": 12.4},
                        "drives": [
                            {"id": "ab", "path": "/d/0", "state": "ok", "capacity_bytes": 5,
                             "free_bytes": 4, "objects": 9},
                            {"id": "", "path": "/d/1", "state": "set_aside", "reason": "no marker",
                             "capacity_bytes": 0, "free_bytes": 0, "objects": 0}],
                        "fill": {"objects_wanted": 10, "objects_held": 5, "bytes_wanted": 1000,
                            "bytes_held": 999, "bits_per_second": 0}}},
                    {"id": "a2", "state": "never_seen", "report": null, "objects_held": 0,
                     "since_s": 5, "weight": 1}]}],
            "assets": [{"id": "film", "current_version": "film-0123456789ab", "files": 9,
                "public": false,
                "bytes": 84_000_000u64, "copies_wanted": 3, "copies_complete": 1,
                "entries": [{"path": "master.m3u8", "format": "hls"}]}],
        }))
        .unwrap()
    }

    #[test]
    fn tables_say_what_an_operator_looks_for() {
        let fleet = fleet();
        let expected = [
            concat!(
                "APPLIANCE  SITE  STATE           REPORT     EGRESS   CPU  SHARE  BOTTLENECK   ",
                "CONNECTIONS  DRIVES  OBJECTS  FILLED",
            ),
            concat!(
                "a1         s1    healthy     320 ms ago  41.2 Mb/s  12 %   61 %  drives 92 %  ",
                "         12     1/2       10    99 %",
            ),
            concat!(
                "a2         s1    never_seen       never          -     -      -  -            ",
                "          -       -        0       -",
            ),
        ];
        assert_eq!(appliances(&fleet).lines(false), expected);
        let expected = [
            "SITE  APPLIANCES  HEALTHY     EGRESS  PREFIXES",
            "s1             2        1  41.2 Mb/s  127.0.0.1/32, 10.0.0.0/8, ::1/128, and 1 more",
        ];
        assert_eq!(sites(&fleet).lines(false), expected);
        let expected = [
            "ASSET  VERSION            FILES     SIZE  COPIES  PLAYED        ENTRIES",
            "film   film-0123456789ab      9  84.0 MB     1/3  with a grant  master.m3u8",
        ];
        assert_eq!(assets(&fleet).lines(false), expected);
    }

    #[test]
    fn an_appliance_is_not_said_to_have_the_errors_of_its_site() {
        let error = |appliance: &str, text: &str| FleetError {
            appliance: appliance.to_owned(),
            room: "store".to_owned(),
            text: text.to_owned(),
            ..FleetError::default()
        };
        let errors = vec![error("a2", "no space"), error("a1", "slow")];
        let fleet = FleetOut { errors, error_count: 7, ..fleet() };
        assert_eq!(
            errors_of("a1", &fleet),
            ["store: slow", "and 5 more of its site, which are older"]
        );
        let told = FleetOut { error_count: 2, ..fleet };
        assert_eq!(errors_of("a1", &told), ["store: slow"]);
    }
}

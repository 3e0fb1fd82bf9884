//! A fleet as a file declares it, and as control has it: both in the form that `apply` compares.
//!
//! ```toml
//! [policy]
//! copies = 2
//! [profile.edge]
//! throughput_bps = 20_000_000_000
//! [site.s1]
//! prefixes = ["10.0.0.0/8"]
//! [appliance.a1]
//! site = "s1"
//! [front.f1]
//! [asset.film]
//! until = 2027-12-31T23:00:00Z
//! ```
//!
//! What can be said of each kind of thing is one table, `SETTINGS`: of it reading the file, reading
//! control's answers, changing and writing a file are made.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, ensure};
use apply::{Settings, Thing, Things, Value, key};
use model::id::{ClusterId, SiteId, Tag};
use model::place::Place;
use model::profile::{CAPACITIES, Profile, RATES, TAGS_MAX};
use model::topology::{Prefix, WEIGHT_MAX};
use model::zone::TimeZone;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::control::Control;
use profiles::Profiles;

mod profiles;

/// A file, read.
#[derive(Debug)]
pub(crate) struct Declared {
    pub(crate) things: Things,
    /// The file's name, as it was given.
    name: String,
    /// Where things and their settings are said.
    lines: BTreeMap<(Thing, Option<&'static str>), usize>,
}

/// The form of a setting's value.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// A whole number from 1 to this.
    Number(u32),
    Flag,
    /// The name of a thing.
    Name,
    Prefixes,
    /// Of a site: `embedded` or `exchange`.
    Kind,
    /// Where a site is; empty for nowhere in particular.
    Place,
    Addresses,
    Time,
    /// Bits per second of a rendition; 0 for no limit.
    Bitrate,
    /// Bits per second of a line or a machine, in [`RATES`]; 0 for this.
    Rate(&'static str),
    /// Bytes of a machine, in [`CAPACITIES`]; 0 for this.
    Bytes(&'static str),
    /// Of an appliance.
    Profile,
    /// An operator's own name of it; empty for none.
    ProfileName,
    /// Words for people.
    Tags,
    /// The name of a time zone.
    Zone,
    /// The name of some sites; empty for a site by itself.
    Cluster,
}

/// All that can be declared. A body that control takes has these fields and no others: a test
/// compares them with control's own document.
const SETTINGS: &[(&str, &str, Form)] = &[
    ("policy", "copies", Form::Number(64)),
    ("policy", "versions_kept", Form::Number(16)),
    ("policy", "flash_throughput_bps", Form::Rate("unknown")),
    ("policy", "flash_capacity_bytes", Form::Bytes("unknown")),
    ("policy", "flash_fill_bps", Form::Rate("unknown")),
    ("policy", "storage_throughput_bps", Form::Rate("unknown")),
    ("policy", "storage_capacity_bytes", Form::Bytes("unknown")),
    ("policy", "storage_fill_bps", Form::Rate("unknown")),
    ("policy", "global_throughput_bps", Form::Rate("unknown")),
    ("policy", "global_capacity_bytes", Form::Bytes("unknown")),
    ("policy", "global_fill_bps", Form::Rate("unknown")),
    // Of an operator's own, which control does not know.
    ("profile", "throughput_bps", Form::Rate("unknown")),
    ("profile", "capacity_bytes", Form::Bytes("unknown")),
    ("profile", "fill_bps", Form::Rate("unknown")),
    ("site", "prefixes", Form::Prefixes),
    ("site", "kind", Form::Kind),
    ("site", "place", Form::Place),
    ("site", "open", Form::Flag),
    ("site", "bitrate_max_bps", Form::Bitrate),
    ("site", "time_zone", Form::Zone),
    ("site", "uplink_bps", Form::Rate("unknown")),
    ("site", "manifest_cluster", Form::Cluster),
    ("site", "fill_cluster", Form::Cluster),
    ("appliance", key::SITE, Form::Name),
    ("appliance", "weight", Form::Number(WEIGHT_MAX)),
    ("appliance", key::ADDRESSES, Form::Addresses),
    ("appliance", "profile", Form::Profile),
    ("appliance", profiles::NAME, Form::ProfileName),
    ("appliance", "throughput_bps", Form::Rate(PROFILES)),
    ("appliance", "capacity_bytes", Form::Bytes(PROFILES)),
    ("appliance", "fill_bps", Form::Rate(PROFILES)),
    ("appliance", "tags", Form::Tags),
    ("asset", key::PUBLIC, Form::Flag),
    // Those of all its versions that say none of their own.
    ("asset", key::FROM, Form::Time),
    ("asset", key::UNTIL, Form::Time),
    ("version", key::FROM, Form::Time),
    ("version", key::UNTIL, Form::Time),
];

/// What 0 means of an appliance.
const PROFILES: &str = "its profile's";

/// Things of these kinds have names of their own in a file.
const NAMED: [&str; 5] = ["profile", "site", "appliance", "front", "asset"];

/// How a time is taken away.
const NO_TIME: &str = "none";

/// More faults of a file are not shown.
const FAULTS_MAX: usize = 20;

/// Faults of a file, each with its line.
type Faults = Vec<(usize, String)>;

impl Declared {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let text = match &*name {
            "-" => std::io::read_to_string(std::io::stdin()),
            _ => std::fs::read_to_string(path),
        };
        Self::parse(&text.with_context(|| format!("cannot read {name}"))?, name)
    }

    fn parse(text: &str, name: String) -> anyhow::Result<Self> {
        let table = DeTable::parse(text).map_err(|error| {
            let mut error = error;
            error.set_input(Some(text));
            anyhow::anyhow!("{name}: {error}")
        })?;
        let declared = Self { things: Things::new(), lines: BTreeMap::new(), name };
        let (faults, profiles) = (Faults::new(), Profiles::new());
        let mut reader = Reader { text, declared, faults, profiles };
        let is_profiles = |kind: &Key<'_>| &**kind.get_ref() == "profile";
        let (first, others): (Vec<_>, Vec<_>) =
            table.get_ref().iter().partition(|(kind, _)| is_profiles(kind));
        for (kind, value) in first.into_iter().chain(others) {
            reader.kind(kind, value);
        }
        let Reader { declared, mut faults, .. } = reader;
        faults.sort_by_key(|(line, _)| *line);
        declared.refuse(&faults)?;
        Ok(declared)
    }

    /// An error that names what is wrong, line by line, if anything is.
    fn refuse(&self, faults: &[(usize, String)]) -> anyhow::Result<()> {
        let shown = faults.iter().take(FAULTS_MAX);
        let mut lines: Vec<String> =
            shown.map(|(line, text)| format!("{}:{line}: {text}", self.name)).collect();
        if lines.len() < faults.len() {
            lines.push(format!("and {} more", faults.len() - lines.len()));
        }
        ensure!(lines.is_empty(), "{}", lines.join("\n"));
        Ok(())
    }

    /// Says what follows from the fleet as it is for what the file leaves out.
    pub(crate) fn beside(&mut self, current: &Things) {
        profiles::leave(&mut self.things, current);
    }

    /// Conflicts with the fleet as an error, each with its line.
    pub(crate) fn refuse_conflicts(&self, conflicts: &[apply::Conflict]) -> anyhow::Result<()> {
        let fault = |conflict: &apply::Conflict| {
            let apply::Conflict { thing, key, why } = conflict;
            let line = self.lines.get(&(thing.clone(), *key));
            let line = line.or_else(|| self.lines.get(&(thing.clone(), None)));
            let key = key.map(|key| format!(" {key}")).unwrap_or_default();
            (line.copied().unwrap_or(1), format!("[{}]{key}: {why}", section(thing)))
        };
        let mut faults: Faults = conflicts.iter().map(fault).collect();
        faults.sort_by_key(|(line, _)| *line);
        self.refuse(&faults)
    }
}

/// A file that is being read: faults are collected, so that all are seen at once.
struct Reader<'a> {
    text: &'a str,
    declared: Declared,
    faults: Faults,
    profiles: Profiles,
}

impl Reader<'_> {
    fn line<T>(&self, at: &Spanned<T>) -> usize {
        let before = self.text.get(..at.span().start).unwrap_or_default();
        before.matches('\n').count() + 1
    }

    fn fault<T>(&mut self, at: &Spanned<T>, text: String) {
        self.faults.push((self.line(at), text));
    }

    fn kind(&mut self, kind: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let word = &**kind.get_ref();
        if word == "policy" {
            return self.thing(Thing::Policy, kind, value);
        }
        if !NAMED.contains(&word) {
            let known = NAMED.join(".NAME], [");
            let text =
                format!("[{word}] is nothing to declare: there are [policy], [{known}.NAME]");
            return self.fault(kind, text);
        }
        let DeValue::Table(named) = value.get_ref() else {
            return self.fault(kind, format!("{word}: write a section [{word}.NAME] for each"));
        };
        for (at, value) in named {
            if let Some(name) = self.name(at) {
                let thing = match word {
                    "profile" => {
                        self.profile(name, at, value);
                        continue;
                    }
                    "site" => Thing::Site(name),
                    "appliance" => Thing::Appliance(name),
                    "front" => Thing::Front(name),
                    _ => Thing::Asset(name),
                };
                self.thing(thing, at, value);
            }
        }
    }

    /// A name as control takes it.
    fn name(&mut self, name: &Key<'_>) -> Option<String> {
        // One rule for all names.
        match name.get_ref().parse::<SiteId>() {
            Ok(name) => Some(name.to_string()),
            Err(error) => {
                let text = format!("{error}; a name with a dot stands in quotes");
                self.fault(name, text);
                None
            }
        }
    }

    fn thing(&mut self, thing: Thing, at: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Table(table) = value.get_ref() else {
            return self.fault(at, format!("write [{}] and its settings below", section(&thing)));
        };
        let mut settings = Settings::new();
        let mut own = None;
        self.declared.lines.insert((thing.clone(), None), self.line(value));
        for (name, value) in table {
            let key = &**name.get_ref();
            if let (Thing::Asset(asset), "version") = (&thing, key) {
                self.versions(asset, name, value);
                continue;
            }
            if let (Thing::Appliance(_), "profile") = (&thing, key)
                && let Some(profile) = value.get_ref().as_str()
                && self.profiles.contains_key(profile)
            {
                own = Some(profile);
                continue;
            }
            let Some((key, form)) = self.known(thing.kind(), &section(&thing), name) else {
                continue;
            };
            if let Some(value) = self.value(form, &section(&thing), name, value) {
                settings.insert(key, value);
            }
            self.declared.lines.insert((thing.clone(), Some(key)), self.line(name));
        }
        if matches!(thing, Thing::Appliance(_)) {
            let own = own.and_then(|own| self.profiles.get_key_value(own));
            profiles::give(&mut settings, own);
        }
        self.declared.things.insert(thing, settings);
    }

    /// An operator's own profile.
    fn profile(&mut self, name: String, at: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let section = format!("profile.{}", quoted(&name));
        if profiles::is_usual(&name) {
            let text =
                format!("[{section}]: there is one; its figures stand in [policy], {name}_...");
            return self.fault(at, text);
        }
        let DeValue::Table(table) = value.get_ref() else {
            return self.fault(at, format!("write [{section}] and its settings below"));
        };
        let mut figures = profiles::unknown();
        for (name, value) in table {
            let Some((key, form)) = self.known("profile", &section, name) else { continue };
            if let Some(value) = self.value(form, &section, name, value) {
                figures.insert(key, value);
            }
        }
        self.profiles.insert(name, figures);
    }

    /// The setting of a kind that a name is.
    fn known(&mut self, kind: &str, section: &str, name: &Key<'_>) -> Option<(&'static str, Form)> {
        let known = of_kind(kind).find(|(key, _)| *key == &**name.get_ref());
        if known.is_none() {
            let all: Vec<&str> = of_kind(kind).map(|(key, _)| key).collect();
            let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
            let name_text = name.get_ref();
            let text = format!("[{section}] {name_text}: is no setting; what can be said is {all}");
            self.fault(name, text);
        }
        known
    }

    fn value(
        &mut self,
        form: Form,
        section: &str,
        name: &Key<'_>,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<Value> {
        match json_of(value.get_ref()).and_then(|value| form.read(&value)) {
            Ok(value) => Some(value),
            Err(wanted) => {
                self.fault(name, format!("[{section}] {}: {wanted}", name.get_ref()));
                None
            }
        }
    }

    fn versions(&mut self, asset: &str, at: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let DeValue::Table(named) = value.get_ref() else {
            return self.fault(at, format!("write [asset.{asset}.version.NAME] for each version"));
        };
        for (name, value) in named {
            if let Some(version) = self.name(name) {
                self.thing(Thing::Version(asset.to_owned(), version), name, value);
            }
        }
    }
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// The settings of a kind.
fn of_kind(kind: &str) -> impl Iterator<Item = (&'static str, Form)> {
    SETTINGS.iter().filter(move |(of, ..)| *of == kind).map(|(_, key, form)| (*key, *form))
}

fn quoted(name: &str) -> String {
    if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() }
}

/// A thing's section of the file.
fn section(thing: &Thing) -> String {
    match thing {
        Thing::Policy => "policy".to_owned(),
        Thing::Site(name) | Thing::Appliance(name) | Thing::Front(name) | Thing::Asset(name) => {
            format!("{}.{}", thing.kind(), quoted(name))
        }
        Thing::Version(asset, version) => {
            format!("asset.{}.version.{}", quoted(asset), quoted(version))
        }
    }
}

/// A value of the file as control would write it.
fn json_of(value: &DeValue<'_>) -> Result<Json, String> {
    Ok(match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(number) => {
            let read = i64::from_str_radix(number.as_str(), number.radix());
            json!(read.map_err(|_| format!("{number} is too large"))?)
        }
        DeValue::Boolean(flag) => json!(flag),
        DeValue::Datetime(time) => json!(time.to_string()),
        DeValue::Float(number) => return Err(format!("{number} is no whole number")),
        DeValue::Table(_) => return Err("a section is not wanted here".to_owned()),
        DeValue::Array(list) => {
            let list = list.iter().map(|one| json_of(one.get_ref()));
            Json::Array(list.collect::<Result<_, _>>()?)
        }
    })
}

impl Form {
    /// The value in its one form, or what would be right.
    fn read(self, value: &Json) -> Result<Value, String> {
        let wrong = |wanted: &str| format!("{value} is not {wanted}");
        match self {
            Self::Number(most) => {
                let number = value.as_u64().filter(|number| (1..=u64::from(most)).contains(number));
                number
                    .map(Value::Number)
                    .ok_or_else(|| wrong(&format!("a number from 1 to {most}")))
            }
            Self::Bitrate => most(value, 1..=u64::MAX, "bits per second", "no limit"),
            Self::Rate(zero) => rate(value, zero),
            Self::Bytes(zero) => capacity(value, zero),
            Self::Profile => profile(value),
            Self::ProfileName => profile_name(value),
            Self::Tags if value.is_null() => Ok(Value::Texts(BTreeSet::new())),
            Self::Tags => tags(value),
            Self::Zone if value == "" => Ok(Value::Text(TimeZone::default().to_string())),
            Self::Zone => {
                let text = value.as_str().ok_or_else(|| wrong("a time zone"))?;
                let zone = TimeZone::named(text).map_err(|error| error.to_string())?;
                Ok(Value::Text(zone.to_string()))
            }
            Self::Cluster if value.is_null() || value == "" => Ok(Value::Text(String::new())),
            Self::Cluster => {
                let name = value.as_str().and_then(|text| text.parse::<ClusterId>().ok());
                let wanted =
                    "the name of a cluster: write for example \"de-north\", or \"\" for none";
                name.map(|name| Value::Text(name.to_string())).ok_or_else(|| wrong(wanted))
            }
            Self::Flag => value.as_bool().map(Value::Flag).ok_or_else(|| wrong("true or false")),
            Self::Name => {
                let name = value.as_str().and_then(|text| text.parse::<SiteId>().ok());
                let wanted = "the name of a site: write for example \"s1\"";
                name.map(|name| Value::Text(name.to_string())).ok_or_else(|| wrong(wanted))
            }
            Self::Prefixes => {
                texts(value, "prefixes: write for example [\"10.0.0.0/8\"]", |text| {
                    let address = || text.parse::<IpAddr>().map(Prefix::from);
                    Some(text.parse::<Prefix>().or_else(|_| address()).ok()?.trunc().to_string())
                })
            }
            Self::Kind => {
                let kind = value.as_str().filter(|kind| ["embedded", "exchange"].contains(kind));
                let wanted = "\"embedded\" or \"exchange\"";
                kind.map(|kind| Value::Text(kind.to_owned())).ok_or_else(|| wrong(wanted))
            }
            Self::Place if value == "" => Ok(Value::Text(String::new())),
            Self::Place => {
                let text = value.as_str().ok_or_else(|| wrong("a place"))?;
                let place = text.parse::<Place>().map_err(|error| format!("{value}: {error}"))?;
                Ok(Value::Text(place.to_string()))
            }
            Self::Addresses => {
                texts(value, "addresses: write for example [\"192.0.2.11\"]", |text| {
                    Some(text.parse::<IpAddr>().ok()?.to_string())
                })
            }
            Self::Time if value.is_null() || value == NO_TIME => Ok(Value::Nothing),
            Self::Time => time(value),
        }
    }
}

fn profile(value: &Json) -> Result<Value, String> {
    if value.is_null() || value == "none" {
        return Ok(Value::Text("none".to_owned()));
    }
    let profile = value.as_str().unwrap_or_default().parse::<Profile>();
    let profile = profile
        .map_err(|error| format!("{value}: {error}, or declare [profile.NAME] of your own"))?;
    Ok(Value::Text(profile.to_string()))
}

fn profile_name(value: &Json) -> Result<Value, String> {
    if value.is_null() || value == "" {
        return Ok(Value::Text(String::new()));
    }
    let name = value.as_str().filter(|name| !profiles::is_usual(name));
    let name = name.and_then(|name| name.parse::<Tag>().ok());
    let wanted = "a name of your own: write for example \"edge-100\", or \"\" for none";
    let wrong = || format!("{value} is not {wanted}");
    name.map(|name| Value::Text(name.to_string())).ok_or_else(wrong)
}

/// What something does at most; 0 says another thing.
fn most(
    value: &Json,
    within: RangeInclusive<u64>,
    unit: &str,
    zero: &str,
) -> Result<Value, String> {
    if value.is_null() {
        return Ok(Value::Number(0));
    }
    let number = value.as_u64().filter(|number| *number == 0 || within.contains(number));
    let wrong = || format!("{value} is not a number of {unit}, or 0 for {zero}");
    number.map(Value::Number).ok_or_else(wrong)
}

fn rate(value: &Json, zero: &str) -> Result<Value, String> {
    let (least, greatest) = (RATES.start().0, RATES.end().0);
    let unit = format!("bits per second from {least} (1 Mb/s) to {greatest}");
    most(value, least..=greatest, &unit, zero)
}

fn capacity(value: &Json, zero: &str) -> Result<Value, String> {
    let (least, greatest) = (CAPACITIES.start().0, CAPACITIES.end().0);
    let unit = format!("bytes from {least} (1 GB) to {greatest}");
    most(value, least..=greatest, &unit, zero)
}

fn tags(value: &Json) -> Result<Value, String> {
    let tag = |text: &str| Some(text.parse::<Tag>().ok()?.to_string());
    let tags = texts(value, "tags: write for example [\"rack-7\"]", tag)?;
    if let Value::Texts(all) = &tags
        && TAGS_MAX < all.len()
    {
        return Err(format!("{} tags: an appliance has at most {TAGS_MAX}", all.len()));
    }
    Ok(tags)
}

fn time(value: &Json) -> Result<Value, String> {
    let time = value.as_str().and_then(|text| humantime::parse_rfc3339(text).ok());
    let text = time.map(|time| humantime::format_rfc3339_seconds(time).to_string());
    let wanted = "a time: write UTC, as in 2027-01-31T22:00:00Z, or \"none\"";
    text.map(Value::Text).ok_or_else(|| format!("{value} is not {wanted}"))
}

/// A list of texts, each in its one form.
fn texts(
    value: &Json,
    wanted: &str,
    read: impl Fn(&str) -> Option<String>,
) -> Result<Value, String> {
    let list = value.as_array().ok_or_else(|| format!("{value} is no list of {wanted}"))?;
    let read = |one: &Json| {
        let text = one.as_str().and_then(&read);
        text.ok_or_else(|| format!("{one} is none of a list of {wanted}"))
    };
    Ok(Value::Texts(list.iter().map(read).collect::<Result<BTreeSet<_>, _>>()?))
}

/// A thing's settings as control takes them.
pub(crate) fn body(settings: &Settings) -> Json {
    let value = |value: &Value| match value {
        Value::Nothing => Json::Null,
        Value::Flag(flag) => json!(flag),
        Value::Number(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Texts(texts) => json!(texts),
    };
    settings.iter().map(|(key, of)| ((*key).to_owned(), value(of))).collect()
}

/// All that can be declared, as control has it now.
pub(crate) fn current(control: &Control) -> anyhow::Result<Things> {
    let mut things = Things::new();
    let mut take = |thing: Thing, said: &Json| {
        let mut settings = Settings::new();
        for (key, form) in of_kind(thing.kind()) {
            // The times of an asset are those of its versions.
            if matches!(thing, Thing::Asset(_)) && matches!(form, Form::Time) {
                continue;
            }
            let value = form.read(said.get(key).unwrap_or(&Json::Null));
            let value = value.map_err(|why| {
                anyhow::anyhow!("control says of {thing}: {key}: {why}: is it of this version?")
            })?;
            settings.insert(key, value);
        }
        things.insert(thing, settings);
        anyhow::Ok(())
    };
    let list = |path: &str| control.get::<Vec<Json>>(path);
    let name = |said: &Json, field: &str| said[field].as_str().unwrap_or_default().to_owned();
    take(Thing::Policy, &control.get("/v1/policy")?)?;
    for site in list("/v1/sites")? {
        take(Thing::Site(name(&site, "id")), &site)?;
    }
    for appliance in list("/v1/appliances")? {
        take(Thing::Appliance(name(&appliance, "id")), &appliance)?;
    }
    for identity in list("/v1/identities")?.iter().filter(|one| one["kind"] == "front") {
        take(Thing::Front(name(identity, "name")), identity)?;
    }
    for asset in list("/v1/assets")? {
        let id = name(&asset, "id");
        for version in asset["versions"].as_array().into_iter().flatten() {
            take(Thing::Version(id.clone(), name(version, "id")), version)?;
        }
        take(Thing::Asset(id), &asset)?;
    }
    Ok(things)
}

/// The same as a file. Applied where it comes from, it changes nothing.
pub(crate) fn file(things: &Things) -> String {
    let profiles = profiles::of(things);
    let mut text = String::new();
    for (name, figures) in &profiles {
        let known = figures.iter().filter(|(_, figure)| **figure != Value::Number(0));
        let said: String = known.filter_map(|(key, figure)| line(key, figure)).collect();
        text.push_str(&format!("[profile.{}]\n{said}\n", quoted(name)));
    }
    for (thing, settings) in things {
        let settings = profiles::named(thing, settings, &profiles);
        let told = settings.iter().filter(|(key, of)| !is_usual(thing, key, of));
        let said: Vec<String> = told.filter_map(|(key, of)| line(key, of)).collect();
        // An asset is declared by what is said of it.
        let is_empty = said.is_empty() && matches!(thing, Thing::Asset(_) | Thing::Version(..));
        if !is_empty {
            text.push_str(&format!("[{}]\n{}\n", section(thing), said.concat()));
        }
    }
    text
}

/// What most things are: a small fleet needs no word of it. Never a policy's figure: a file stands
/// for the same fleet beside a program with other defaults, too.
fn is_usual(thing: &Thing, key: &str, value: &Value) -> bool {
    match (thing, value) {
        (Thing::Site(_) | Thing::Appliance(_), Value::Text(text)) => {
            let usual = [("kind", "exchange"), ("time_zone", "UTC"), ("profile", "none")];
            usual.contains(&(key, text)) || text.is_empty()
        }
        (Thing::Site(_), Value::Flag(flag)) => !flag,
        (Thing::Site(_) | Thing::Appliance(_), Value::Number(number)) => *number == 0,
        (Thing::Appliance(_), Value::Texts(texts)) => key == "tags" && texts.is_empty(),
        _ => false,
    }
}

fn line(key: &str, value: &Value) -> Option<String> {
    let value = match value {
        Value::Nothing => return None,
        Value::Flag(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Text(text) if humantime::parse_rfc3339(text).is_ok() => text.clone(),
        Value::Text(text) => format!("{text:?}"),
        Value::Texts(texts) => format!("{:?}", texts.iter().collect::<Vec<_>>()),
    };
    Some(format!("{key} = {value}\n"))
}

#[cfg(test)]
mod tests {
    use model::profile::Profiles;

    use super::*;

    const FILE: &str = r#"
[policy]
copies = 3

[site.s1]
prefixes = ["10.1.2.3/8", "2001:db8::/32", "192.0.2.1"]

[site."s.2"]
time_zone = "europe/berlin"
uplink_bps = 10_000_000_000
manifest_cluster = "north"
fill_cluster = "de"

[appliance.a1]
site = "s1"
weight = 2
addresses = ["192.0.2.11", "2001:DB8::11"]
profile = "flash"
capacity_bytes = 8_000_000_000_000
tags = ["rack-7", "loan"]

[front.f1]

[asset.film]
public = true
until = 2027-12-31T23:00:00Z
[asset.film.version.film-1]
from = "2027-01-31T22:00:00Z"
until = "none"
"#;

    #[test]
    fn all_that_control_takes_can_be_declared() {
        let document = serde_json::to_value(control::api::document()).unwrap();
        let schemas =
            [("site", "SiteBody"), ("appliance", "ApplianceBody"), ("policy", "PolicyBody")];
        for (kind, schema) in schemas.into_iter().chain([("version", "Window")]) {
            let fields = &document["components"]["schemas"][schema]["properties"];
            let fields: BTreeSet<&str> =
                fields.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(
                of_kind(kind).map(|(key, _)| key).collect::<BTreeSet<_>>(),
                fields,
                "{kind}"
            );
        }
    }

    fn parse(text: &str) -> anyhow::Result<Declared> {
        Declared::parse(text, "fleet.toml".to_owned())
    }

    fn faults(text: &str) -> Vec<String> {
        parse(text).unwrap_err().to_string().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_file_is_read_into_one_form_of_each_value() {
        let things = parse(FILE).unwrap().things;
        let texts = |list: &[&str]| Value::Texts(list.iter().map(|of| (*of).to_owned()).collect());
        let text = |of: &str| Value::Text(of.to_owned());
        let name = str::to_owned;
        let expected = Things::from([
            (Thing::Policy, [("copies", Value::Number(3))].into()),
            (
                Thing::Site(name("s1")),
                [("prefixes", texts(&["10.0.0.0/8", "2001:db8::/32", "192.0.2.1/32"]))].into(),
            ),
            (
                Thing::Site(name("s.2")),
                [
                    ("time_zone", text("Europe/Berlin")),
                    ("uplink_bps", Value::Number(10_000_000_000)),
                    ("manifest_cluster", text("north")),
                    ("fill_cluster", text("de")),
                ]
                .into(),
            ),
            (
                Thing::Appliance(name("a1")),
                [
                    (key::SITE, text("s1")),
                    ("weight", Value::Number(2)),
                    (key::ADDRESSES, texts(&["192.0.2.11", "2001:db8::11"])),
                    ("profile", text("flash")),
                    (profiles::NAME, text("")),
                    ("capacity_bytes", Value::Number(8_000_000_000_000)),
                    ("tags", texts(&["loan", "rack-7"])),
                ]
                .into(),
            ),
            (Thing::Front(name("f1")), Settings::new()),
            (
                Thing::Asset(name("film")),
                [(key::PUBLIC, Value::Flag(true)), (key::UNTIL, text("2027-12-31T23:00:00Z"))]
                    .into(),
            ),
            (
                Thing::Version(name("film"), name("film-1")),
                [(key::FROM, text("2027-01-31T22:00:00Z")), (key::UNTIL, Value::Nothing)].into(),
            ),
        ]);
        assert_eq!(things, expected);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let things = parse(FILE).unwrap().things;
        let again = parse(&file(&things)).unwrap().things;
        let mut expected = things;
        let version = Thing::Version("film".to_owned(), "film-1".to_owned());
        expected.get_mut(&version).unwrap().remove(key::UNTIL);
        assert_eq!(again, expected, "a time that is not there is not written");
    }

    #[test]
    fn every_fault_is_named_with_its_line_and_what_to_do() {
        let found = faults(
            "[policy]\ncopies = 0\ncopy = 1\n[sites.s1]\n[site.S1]\n[appliance.a1]\nsite = 7\n\
             weight = 1.5\naddresses = [\"x\"]\n[site]\ns3 = 3\n[asset.film]\nuntil = \"soon\"\n\
             public = \"yes\"\n[asset.film.version]\nx = 1\n[site.s4]\nprefixes = \"10.0.0.0/8\"\n\
             [front.f1]\nsite = \"s1\"\n[site.s5]\ntime_zone = \"Paris\"\nuplink_bps = \"10G\"\n\
             fill_cluster = \"Nord\"\n[appliance.a2]\nprofile = \"tape\"\n\
             capacity_bytes = \"1T\"\ntags = [\"Rack 7\"]\nfill_bps = 400\n",
        );
        assert_eq!(
            found,
            [
                "fleet.toml:2: [policy] copies: 0 is not a number from 1 to 64",
                "fleet.toml:3: [policy] copy: is no setting; what can be said is copies, \
                 versions_kept, flash_throughput_bps, flash_capacity_bytes, flash_fill_bps, \
                 storage_throughput_bps, storage_capacity_bytes, storage_fill_bps, \
                 global_throughput_bps, global_capacity_bytes, global_fill_bps",
                "fleet.toml:4: [sites] is nothing to declare: there are [policy], [profile.NAME], \
                 [site.NAME], [appliance.NAME], [front.NAME], [asset.NAME]",
                "fleet.toml:5: \"S1\" is not a name: use 1 to 63 of a-z, 0-9, '-', '_' and '.', \
                 beginning with a letter or digit; a name with a dot stands in quotes",
                "fleet.toml:7: [appliance.a1] site: 7 is not the name of a site: write for example \
                 \"s1\"",
                "fleet.toml:8: [appliance.a1] weight: 1.5 is no whole number",
                "fleet.toml:9: [appliance.a1] addresses: \"x\" is none of a list of addresses: \
                 write for example [\"192.0.2.11\"]",
                "fleet.toml:11: write [site.s3] and its settings below",
                "fleet.toml:13: [asset.film] until: \"soon\" is not a time: write UTC, as in \
                 2027-01-31T22:00:00Z, or \"none\"",
                "fleet.toml:14: [asset.film] public: \"yes\" is not true or false",
                "fleet.toml:16: write [asset.film.version.x] and its settings below",
                "fleet.toml:18: [site.s4] prefixes: \"10.0.0.0/8\" is no list of prefixes: write \
                 for example [\"10.0.0.0/8\"]",
                "fleet.toml:20: [front.f1] site: is no setting; what can be said is nothing",
                "fleet.toml:22: [site.s5] time_zone: \"Paris\" is no time zone, but \
                 \"Europe/Paris\" is one",
                "fleet.toml:23: [site.s5] uplink_bps: \"10G\" is not a number of bits per second \
                 from 1000000 (1 Mb/s) to 1000000000000000, or 0 for unknown",
                "fleet.toml:24: [site.s5] fill_cluster: \"Nord\" is not the name of a cluster: \
                 write for example \"de-north\", or \"\" for none",
                "fleet.toml:26: [appliance.a2] profile: \"tape\": write \"flash\", \"storage\", \
                 \"global\" or \"none\", or declare [profile.NAME] of your own",
                "fleet.toml:27: [appliance.a2] capacity_bytes: \"1T\" is not a number of bytes \
                 from 1000000000 (1 GB) to 9000000000000000, or 0 for its profile's",
                "fleet.toml:28: [appliance.a2] tags: \"Rack 7\" is none of a list of tags: write \
                 for example [\"rack-7\"]",
                "fleet.toml:29: [appliance.a2] fill_bps: 400 is not a number of bits per second \
                 from 1000000 (1 Mb/s) to 1000000000000000, or 0 for its profile's",
            ]
        );
    }

    /// What control has of the appliances of a file after it is applied.
    fn applied(text: &str) -> Things {
        let things = parse(text).unwrap().things;
        let whole = |(thing, settings): (Thing, Settings)| {
            let all = of_kind(thing.kind()).map(|(key, form)| {
                let usual = || form.read(&Json::Null).unwrap_or(Value::Nothing);
                (key, settings.get(key).cloned().unwrap_or_else(usual))
            });
            (thing, all.collect())
        };
        things.into_iter().map(whole).collect()
    }

    const OWN: &str = "[appliance.a1]\nsite = \"s1\"\nweight = 1\naddresses = []\n\
                       profile = \"edge\"\n[appliance.a2]\nsite = \"s1\"\nweight = 1\n\
                       addresses = []\nprofile = \"edge\"\nfill_bps = 7_000_000\n[profile.edge]\n\
                       throughput_bps = 20_000_000_000\nfill_bps = 400_000_000\n";

    #[test]
    fn a_profile_of_an_operators_own_gives_its_name_and_figures_to_those_that_say_it() {
        let things = applied(OWN);
        let figures = |name: &str| {
            let settings = &things[&Thing::Appliance(name.to_owned())];
            let keys = ["profile", profiles::NAME, "throughput_bps", "capacity_bytes", "fill_bps"];
            keys.map(|key| body(settings)[key].clone())
        };
        let most = 20_000_000_000_u64;
        assert_eq!(json!(figures("a1")), json!(["none", "edge", most, 0, 400_000_000]));
        assert_eq!(json!(figures("a2")), json!(["none", "edge", most, 0, 7_000_000]), "its own");
        assert_eq!(things.len(), 2, "a profile is no thing of control's");
    }

    #[test]
    fn an_exported_fleet_has_profiles_of_its_own_by_name_and_is_the_same_again() {
        let things = applied(OWN);
        let text = file(&things);
        let one = |name: &str, fill: u32| {
            format!(
                "[appliance.{name}]\naddresses = []\nfill_bps = {fill}\nprofile = \"edge\"\n\
                 site = \"s1\"\nweight = 1\n\n"
            )
        };
        let own = "[profile.edge]\nthroughput_bps = 20000000000\n\n";
        assert_eq!(text, [own, &one("a1", 400_000_000), &one("a2", 7_000_000)].concat());
        assert_eq!(applied(&text), things);
    }

    #[test]
    fn one_that_leaves_a_profile_leaves_its_figures_but_for_those_that_are_said() {
        let current = applied(OWN);
        let becomes = |settings: &str| {
            let mut declared = parse(&format!("[appliance.a1]\n{settings}\n")).unwrap();
            declared.beside(&current);
            body(&declared.things[&Thing::Appliance("a1".to_owned())])
        };
        let flash = json!({"profile": "flash", "profile_name": "", "throughput_bps": 0,
            "capacity_bytes": 0, "fill_bps": 0});
        assert_eq!(becomes("profile = \"flash\""), flash);
        let kept = becomes("profile = \"flash\"\nfill_bps = 9_000_000");
        assert_eq!((&kept["fill_bps"], &kept["throughput_bps"]), (&json!(9_000_000), &json!(0)));
        assert_eq!(becomes("weight = 2"), json!({"weight": 2}), "it leaves none");
    }

    #[test]
    fn a_profile_that_cannot_be_is_a_fault_with_its_line() {
        assert_eq!(
            faults(
                "[profile.flash]\nfill_bps = 1_000_000\n[profile.edge]\nweight = 1\nfill_bps = 1\n\
                 [appliance.a1]\nprofile = \"egde\"\nprofile_name = \"flash\"\n[profile]\nx = 1\n"
            ),
            [
                "fleet.toml:1: [profile.flash]: there is one; its figures stand in [policy], \
                 flash_...",
                "fleet.toml:4: [profile.edge] weight: is no setting; what can be said is \
                 throughput_bps, capacity_bytes, fill_bps",
                "fleet.toml:5: [profile.edge] fill_bps: 1 is not a number of bits per second from \
                 1000000 (1 Mb/s) to 1000000000000000, or 0 for unknown",
                "fleet.toml:7: [appliance.a1] profile: \"egde\": write \"flash\", \"storage\", \
                 \"global\" or \"none\", or declare [profile.NAME] of your own",
                "fleet.toml:8: [appliance.a1] profile_name: \"flash\" is not a name of your own: \
                 write for example \"edge-100\", or \"\" for none",
                "fleet.toml:10: write [profile.x] and its settings below",
            ]
        );
    }

    /// Control would refuse it after earlier steps were made.
    #[test]
    fn a_file_may_say_of_figures_and_tags_what_control_takes_and_no_more() {
        let tags: Vec<String> = (0..=TAGS_MAX).map(|number| format!("t{number}")).collect();
        let takes = |text: &str| parse(&format!("[site.s1]\n[appliance.a1]\n{text}\n")).is_ok();
        for (least, greatest, key) in [
            (RATES.start().0, RATES.end().0, "throughput_bps"),
            (RATES.start().0, RATES.end().0, "fill_bps"),
            (CAPACITIES.start().0, CAPACITIES.end().0, "capacity_bytes"),
        ] {
            for (number, is_good) in
                [(0, true), (1, false), (least - 1, false), (least, true), (greatest, true)]
            {
                assert_eq!(takes(&format!("{key} = {number}")), is_good, "{key} {number}");
            }
            assert!(!takes(&format!("{key} = {}", greatest + 1)), "{key}");
        }
        assert!(takes(&format!("tags = {:?}", &tags[1..])));
        let said = faults(&format!("[appliance.a1]\ntags = {tags:?}\n"));
        let most = "fleet.toml:2: [appliance.a1] tags: 17 tags: an appliance has at most 16";
        assert_eq!(said, [most]);
        assert!(parse("[site.s1]\nbitrate_max_bps = 400\n").is_ok(), "of the smallest rendition");
    }

    #[test]
    fn an_exported_policy_has_each_figure_whatever_the_defaults_are() {
        let figures = wire::v1::appliance::Profiles::from(Profiles::default()).figures();
        let copies = ("copies", Value::Number(2));
        let figures = figures.map(|(key, figure)| (key, Value::Number(figure)));
        let settings: Settings = figures.into_iter().chain([copies]).collect();
        let things = Things::from([(Thing::Policy, settings)]);
        assert_eq!(parse(&file(&things)).unwrap().things, things);
    }

    #[test]
    fn what_is_no_toml_is_shown_with_its_line() {
        let said = parse("[policy]\ncopies = \n").unwrap_err().to_string();
        assert!(said.starts_with("fleet.toml: ") && said.contains("line 2"), "{said}");
    }

    #[test]
    fn conflicts_with_the_fleet_have_their_lines_too() {
        let declared =
            parse("[appliance.a1]\nweight = 1\n[appliance.a2]\nsite = \"s9\"\n").unwrap();
        let conflicts = apply::difference(&declared.things, &Things::new(), false).unwrap_err();
        let said = declared.refuse_conflicts(&conflicts).unwrap_err().to_string();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            lines,
            [
                "fleet.toml:1: [appliance.a1]: it is new, and the file does not say where it \
                 stands: write site = \"NAME\"",
                "fleet.toml:4: [appliance.a2] site: there is no site s9, neither in the file nor \
                 in the fleet: declare [site.s9]",
            ]
        );
    }
}

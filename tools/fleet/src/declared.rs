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

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use apply::{Settings, Thing, Things, Value, key};
use model::id::SiteId;
use model::topology::WEIGHT_MAX;
use serde_json::{Value as Json, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::control::Control;
use form::Form;
use profiles::Profiles;

mod form;
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
    ("policy", "fill_windows", Form::Windows("always")),
    ("policy", "fill_urgent_bps", Form::Rate("100 Mb/s")),
    ("policy", "fill_masters", Form::Count(16)),
    ("policy", "fill_elsewhere_after_s", Form::Count(172_800)),
    ("policy", "fill_origin_after_s", Form::Count(172_800)),
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
    ("site", "fill_windows", Form::Windows("")),
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
            if let (Some(_), Some(name)) = (own, table.get(profiles::NAME)) {
                let text = "say profile alone: its name is the profile's";
                let section = section(&thing);
                self.fault(name, format!("[{section}] {}: {text}", profiles::NAME));
            }
            let own = own.and_then(|own| self.profiles.get_key_value(own));
            profiles::give(&mut settings, own);
        }
        self.declared.things.insert(thing, settings);
    }

    /// An operator's own profile.
    fn profile(&mut self, name: String, at: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let section = format!("profile.{}", quoted(&name));
        if profiles::is_usual(&name) {
            let why = match &*name {
                "none" => "that word says that there is no profile: use another name".to_owned(),
                _ => format!("there is one; its figures stand in [policy], {name}_..."),
            };
            return self.fault(at, format!("[{section}]: {why}"));
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
        let settings = profiles::named(settings, &profiles);
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
mod tests;

//! The difference between a fleet as a file declares it and as control knows it: steps, in the
//! order in which control takes them. It does no I/O.
//!
//! ```text
//! declared: things and settings of the file ─┐                ┌─> steps: make, change, remove
//!                                            ├─ difference() ─┼─> waits: for a machine, an ingest
//! current: the same, as control has them  ───┘                └─> or conflicts, and no step at all
//! ```
//!
//! What the file does not name is left alone: a thing, and a setting of a thing. To prune is to
//! remove things that the file does not name; it changes no setting, and takes no title down.
//!
//! The order is such that control refuses no step for what a later one would mend: sites come
//! before the appliances in them, an address is given up before another appliance gets it, and what
//! goes goes last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One thing that a file can name, in the order in which things are made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    Policy,
    Site(String),
    Appliance(String),
    Front(String),
    Asset(String),
    /// A version of an asset: the names of both.
    Version(String, String),
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// No value, as of a time that was not said.
    Nothing,
    Flag(bool),
    Number(u64),
    /// In its one form: equal texts mean the same.
    Text(String),
    /// The same, several of them; their order means nothing.
    Texts(BTreeSet<String>),
}

/// Settings by name.
pub type Settings = BTreeMap<&'static str, Value>;

/// Things with their settings, as far as they are said.
pub type Things = BTreeMap<Thing, Settings>;

/// The difference between two fleets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// In this order.
    pub steps: Vec<Step>,
    /// What is declared, and is not control's alone to do. In the order of the things.
    pub waits: Vec<Wait>,
}

/// One change that control makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub thing: Thing,
    pub act: Act,
    /// All settings of the thing afterwards, also those that stay; none of one that goes.
    pub settings: Settings,
}

/// What is done to a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    Make,
    /// These settings become others, by name. At least one.
    Change(BTreeMap<&'static str, Becomes>),
    Remove,
}

/// A setting's value before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Becomes {
    pub from: Value,
    pub to: Value,
}

/// A declared thing that control cannot make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    #[error(
        "front {0} has no identity yet: `nearcast front enrol {0}` makes a code for its machine"
    )]
    Enrol(String),
    #[error("asset {0} is not there yet: bring it in with `nearcast ingest`, then apply again")]
    Ingest(String),
    #[error(
        "asset {asset} has no version {version}: `nearcast asset show {asset}` lists those it has; \
         if it was taken down, take it out of the file"
    )]
    Version { asset: String, version: String },
}

/// Why a file cannot be applied to this fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub thing: Thing,
    /// The setting at fault; none if it is one that is missing.
    pub key: Option<&'static str>,
    pub why: Why,
}

/// The reason of a conflict, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    #[error("it is new, and the file does not say where it stands: write site = \"NAME\"")]
    NoSite,
    #[error("there is no site {0}, neither in the file nor in the fleet: declare [site.{0}]")]
    UnknownSite(String),
    #[error(
        "it stands in site {0}, which the file does not name, so that --prune would remove the \
         site: declare [site.{0}], or move it"
    )]
    PrunedSite(String),
    #[error("{address} is also {other}'s in the file: give each appliance its own")]
    SharedAddress { address: String, other: String },
    #[error(
        "{address} is {other}'s, whose addresses the file does not say: say them there, without \
         this one"
    )]
    TakenAddress { address: String, other: String },
}

/// The settings that decide here about others.
pub mod key {
    /// Where an appliance stands.
    pub const SITE: &str = "site";
    /// Service addresses of an appliance.
    pub const ADDRESSES: &str = "addresses";
    /// Anybody may play the asset.
    pub const PUBLIC: &str = "public";
    /// No playback begins before.
    pub const FROM: &str = "from";
    /// No playback begins from then on.
    pub const UNTIL: &str = "until";
}

impl Thing {
    /// Its kind, as operators name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Site(_) => "site",
            Self::Appliance(_) => "appliance",
            Self::Front(_) => "front",
            Self::Asset(_) => "asset",
            Self::Version(..) => "version",
        }
    }

    /// Only these go because a file does not name them.
    fn is_pruned(&self) -> bool {
        match self {
            Self::Site(_) | Self::Appliance(_) | Self::Front(_) => true,
            // Of an asset what can be declared is that it is public: see `pruned`.
            Self::Policy | Self::Asset(_) | Self::Version(..) => false,
        }
    }
}

/// The steps from `current` to `declared`; with `prune` also those that remove what is not
/// declared. O((things + addresses) x log).
///
/// `current` has every thing with all of its settings. Applied to what the steps lead to, the same
/// file gives no step.
pub fn difference(
    declared: &Things,
    current: &Things,
    prune: bool,
) -> Result<Difference, Vec<Conflict>> {
    let conflicts = conflicts(declared, current, prune);
    if !conflicts.is_empty() {
        return Err(conflicts);
    }
    let (wanted, waits) = wanted(declared, current);
    let mut now = current.clone();
    let mut steps = Vec::new();
    let gone: Vec<&Thing> = match prune {
        true => now_undeclared(declared, current).collect(),
        false => Vec::new(),
    };
    let (first, others): (Vec<_>, Vec<_>) =
        wanted.iter().partition(|(thing, _)| matches!(thing, Thing::Policy | Thing::Site(_)));
    steps.extend(first.into_iter().filter_map(|(thing, of)| step(thing, of, &mut now)));
    steps.extend(given_up(&wanted, current, &gone, &mut now));
    steps.extend(others.into_iter().filter_map(|(thing, of)| step(thing, of, &mut now)));
    if prune {
        steps.extend(pruned(declared, &mut now));
        // Appliances before the sites that they stand in.
        let remaining = gone.iter().rev().filter(|thing| now.contains_key(thing));
        let removed: Vec<Step> = remaining.map(|thing| Step::remove(thing)).collect();
        steps.extend(removed);
    }
    assert!(steps.iter().all(|step| step.act != Act::Change(BTreeMap::new())), "a change changes");
    Ok(Difference { steps, waits })
}

/// Things that would be pruned.
fn now_undeclared<'a>(
    declared: &'a Things,
    current: &'a Things,
) -> impl Iterator<Item = &'a Thing> {
    current.keys().filter(|thing| thing.is_pruned() && !declared.contains_key(thing))
}

/// What control can make so, and what waits. The times of an asset are those of each of its
/// versions that says none of its own.
fn wanted(declared: &Things, current: &Things) -> (Things, Vec<Wait>) {
    let (mut wanted, mut waits) = (Things::new(), Vec::new());
    for (thing, settings) in declared {
        match thing {
            Thing::Policy | Thing::Site(_) | Thing::Appliance(_) => {
                wanted.insert(thing.clone(), settings.clone());
            }
            Thing::Front(name) if !current.contains_key(thing) => {
                waits.push(Wait::Enrol(name.clone()));
            }
            Thing::Front(_) => {}
            Thing::Asset(name) if !current.contains_key(thing) => {
                waits.push(Wait::Ingest(name.clone()));
            }
            Thing::Asset(name) => {
                let (times, own): (Settings, Settings) =
                    settings.clone().into_iter().partition(|(of, _)| is_time(of));
                wanted.insert(thing.clone(), own);
                let is_its = |of: &&Thing| matches!(of, Thing::Version(asset, _) if asset == name);
                for version in current.keys().filter(is_its) {
                    wanted.entry(version.clone()).or_default().extend(times.clone());
                }
            }
            Thing::Version(asset, version) => {
                if current.contains_key(thing) {
                    // After its asset: its own times count.
                    wanted.entry(thing.clone()).or_default().extend(settings.clone());
                } else if current.contains_key(&Thing::Asset(asset.clone())) {
                    waits.push(Wait::Version { asset: asset.clone(), version: version.clone() });
                } else if !declared.contains_key(&Thing::Asset(asset.clone())) {
                    waits.push(Wait::Ingest(asset.clone()));
                }
            }
        }
    }
    waits.dedup();
    (wanted, waits)
}

fn is_time(key: &str) -> bool {
    key == key::FROM || key == key::UNTIL
}

/// The step that gives a thing these settings, if it has others; `now` has them afterwards.
fn step(thing: &Thing, settings: &Settings, now: &mut Things) -> Option<Step> {
    let Some(known) = now.get_mut(thing) else {
        now.insert(thing.clone(), settings.clone());
        return Some(Step { thing: thing.clone(), act: Act::Make, settings: settings.clone() });
    };
    let mut changes = BTreeMap::new();
    for (key, to) in settings {
        let from = known.get(key).cloned().unwrap_or(Value::Nothing);
        if from != *to {
            known.insert(key, to.clone());
            changes.insert(*key, Becomes { from, to: to.clone() });
        }
    }
    let settings = known.clone();
    (!changes.is_empty()).then(|| Step {
        thing: thing.clone(),
        act: Act::Change(changes),
        settings,
    })
}

/// Has each owner of addresses that another gets give them up first; one that is to go goes now.
fn given_up(wanted: &Things, current: &Things, gone: &[&Thing], now: &mut Things) -> Vec<Step> {
    let owners = owners(current);
    let mut taken: BTreeMap<&Thing, BTreeSet<String>> = BTreeMap::new();
    for (thing, settings) in wanted.iter().filter(|(thing, _)| is_appliance(thing)) {
        for address in addresses(settings) {
            if let Some(owner) = owners.get(address).filter(|owner| **owner != thing) {
                taken.entry(owner).or_default().insert(address.clone());
            }
        }
    }
    let mut steps = Vec::new();
    for (owner, taken) in taken {
        if gone.contains(&owner) {
            now.remove(owner);
            steps.push(Step::remove(owner));
            continue;
        }
        assert!(wanted.contains_key(owner), "{owner} gives up what the file takes from it");
        let held: BTreeSet<String> = addresses(&current[owner]).cloned().collect();
        let kept = Value::Texts(held.difference(&taken).cloned().collect());
        steps.extend(step(owner, &Settings::from([(key::ADDRESSES, kept)]), now));
    }
    steps
}

/// Assets that are public and that the file does not name are public no more.
fn pruned(declared: &Things, now: &mut Things) -> Vec<Step> {
    let is_public = |settings: &Settings| settings.get(key::PUBLIC) == Some(&Value::Flag(true));
    let public = now.iter().filter(|(thing, settings)| {
        matches!(thing, Thing::Asset(_)) && is_public(settings) && !declared.contains_key(thing)
    });
    let public: Vec<Thing> = public.map(|(thing, _)| thing.clone()).collect();
    let closed = Settings::from([(key::PUBLIC, Value::Flag(false))]);
    public.iter().filter_map(|thing| step(thing, &closed, now)).collect()
}

fn conflicts(declared: &Things, current: &Things, prune: bool) -> Vec<Conflict> {
    let mut found = Vec::new();
    let owners = owners(current);
    let mut claimed: BTreeMap<&String, &Thing> = BTreeMap::new();
    for (thing, settings) in declared.iter().filter(|(thing, _)| is_appliance(thing)) {
        let mut conflict = |key, why| found.push(Conflict { thing: thing.clone(), key, why });
        let said = settings.get(key::SITE);
        let known = current.get(thing).and_then(|known| known.get(key::SITE));
        match (said, known) {
            (Some(Value::Text(site)), _) => {
                let thing = Thing::Site(site.clone());
                let is_there = declared.contains_key(&thing);
                if !is_there && !current.contains_key(&thing) {
                    conflict(Some(key::SITE), Why::UnknownSite(site.clone()));
                } else if !is_there && prune {
                    conflict(Some(key::SITE), Why::PrunedSite(site.clone()));
                }
            }
            (_, Some(Value::Text(site))) => {
                if prune && !declared.contains_key(&Thing::Site(site.clone())) {
                    conflict(None, Why::PrunedSite(site.clone()));
                }
            }
            (_, _) => conflict(None, Why::NoSite),
        }
        for address in addresses(settings) {
            let key = Some(key::ADDRESSES);
            if let Some(Thing::Appliance(other)) = claimed.insert(address, thing) {
                let (address, other) = (address.clone(), other.clone());
                conflict(key, Why::SharedAddress { address, other });
                continue;
            }
            let Some(owner) = owners.get(address).filter(|owner| **owner != thing) else {
                continue;
            };
            let goes = prune && !declared.contains_key(owner);
            let says = declared.get(owner).is_some_and(|of| of.contains_key(key::ADDRESSES));
            if let Thing::Appliance(other) = owner
                && !goes
                && !says
            {
                let (address, other) = (address.clone(), other.clone());
                conflict(key, Why::TakenAddress { address, other });
            }
        }
    }
    found
}

fn is_appliance(thing: &Thing) -> bool {
    matches!(thing, Thing::Appliance(_))
}

/// Which appliance has which service address.
fn owners(current: &Things) -> BTreeMap<&String, &Thing> {
    let having = current.iter().filter(|(thing, _)| is_appliance(thing));
    having.flat_map(|(thing, of)| addresses(of).map(move |address| (address, thing))).collect()
}

fn addresses(settings: &Settings) -> impl Iterator<Item = &String> {
    let texts = match settings.get(key::ADDRESSES) {
        Some(Value::Texts(texts)) => Some(texts),
        _ => None,
    };
    texts.into_iter().flatten()
}

impl Step {
    fn remove(thing: &Thing) -> Self {
        assert!(thing.is_pruned(), "a file does not remove {thing}");
        Self { thing: thing.clone(), act: Act::Remove, settings: Settings::new() }
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy => f.write_str("policy"),
            Self::Site(name) | Self::Appliance(name) | Self::Front(name) | Self::Asset(name) => {
                write!(f, "{} {name}", self.kind())
            }
            Self::Version(asset, version) => write!(f, "version {version} of asset {asset}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Flag(true) => f.write_str("yes"),
            Self::Flag(false) => f.write_str("no"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) if text.is_empty() => f.write_str("none"),
            Self::Text(text) => f.write_str(text),
            Self::Texts(texts) if texts.is_empty() => f.write_str("none"),
            Self::Texts(texts) => f.write_str(&listed(texts.iter())),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { thing, act, settings } = self;
        match act {
            Act::Make => {
                let said: Vec<_> = settings.iter().map(|(key, to)| format!("{key} {to}")).collect();
                let colon = if said.is_empty() { "" } else { ": " };
                write!(f, "make {thing}{colon}{}", said.join("; "))
            }
            Act::Change(changes) => {
                let said = changes.iter().map(|(key, becomes)| format!("{key} {becomes}"));
                write!(f, "change {thing}: {}", said.collect::<Vec<_>>().join("; "))
            }
            Act::Remove => match thing {
                Thing::Appliance(_) => write!(
                    f,
                    "remove {thing}: its copies are placed elsewhere, and its identity is refused"
                ),
                Thing::Front(_) => write!(f, "remove {thing}: its identity is refused"),
                Thing::Policy | Thing::Site(_) | Thing::Asset(_) | Thing::Version(..) => {
                    write!(f, "remove {thing}")
                }
            },
        }
    }
}

impl fmt::Display for Becomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Value::Texts(from), Value::Texts(to)) = (&self.from, &self.to) else {
            return write!(f, "{} becomes {}", self.from, self.to);
        };
        let (more, less) = (listed(to.difference(from)), listed(from.difference(to)));
        match (more.is_empty(), less.is_empty()) {
            (true, _) => write!(f, "without {less}"),
            (_, true) => write!(f, "also {more}"),
            (_, _) => write!(f, "also {more}, without {less}"),
        }
    }
}

/// The first of them, and how many more there are.
fn listed<'a>(texts: impl Iterator<Item = &'a String>) -> String {
    let all: Vec<&str> = texts.map(String::as_str).collect();
    match all.get(..LISTED_MAX).filter(|_| LISTED_MAX + 1 < all.len()) {
        Some(first) => format!("{} and {} more", first.join(", "), all.len() - LISTED_MAX),
        None => all.join(", "),
    }
}

/// Values of a list that a line names: a site has thousands of prefixes.
const LISTED_MAX: usize = 6;

#[cfg(test)]
mod tests;

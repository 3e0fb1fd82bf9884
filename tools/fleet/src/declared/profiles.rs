//! Profiles of an operator's own: a file says the figures of a kind of machine once.
//!
//! ```text
//! [profile.edge]      ─┐ read  ┌─> profile_name = "edge", and its figures as the appliance's own
//! profile = "edge"    ─┘ <──── └── export
//! ```
//!
//! Control keeps the name for people, and the figures with each appliance: it knows no other
//! profiles than the usual ones.

use std::borrow::Cow;
use std::collections::BTreeMap;

use apply::{Settings, Things, Value};
use model::profile::Profile;

/// An appliance's key of the name.
pub(super) const NAME: &str = "profile_name";
/// Of an appliance and of a profile.
const FIGURES: [&str; 3] = ["throughput_bps", "capacity_bytes", "fill_bps"];

/// What is said of each, by name.
pub(super) type Profiles = BTreeMap<String, Settings>;

/// No figure is known.
pub(super) fn unknown() -> Settings {
    FIGURES.map(|key| (key, Value::Number(0))).into()
}

/// True of a name that is none of an operator's own.
pub(super) fn is_usual(name: &str) -> bool {
    name == "none" || name.parse::<Profile>().is_ok()
}

/// Gives an appliance what its profile says and it does not; without one, the profile that it says
/// is a usual one, or none is said.
pub(super) fn give(settings: &mut Settings, own: Option<(&String, &Settings)>) {
    if let Some((name, figures)) = own {
        settings.insert("profile", Value::Text("none".to_owned()));
        settings.insert(NAME, Value::Text(name.clone()));
        for (key, value) in figures {
            settings.entry(key).or_insert_with(|| value.clone());
        }
    } else if settings.contains_key("profile") {
        settings.entry(NAME).or_insert_with(|| Value::Text(String::new()));
    }
}

/// Appliances that leave a profile of an operator's own leave its figures, too: those that the file
/// does not say become unknown, where others are left alone. A new one has no name to leave.
pub(super) fn leave(declared: &mut Things, current: &Things) {
    for (thing, settings) in declared {
        if !current.contains_key(thing) && settings.get(NAME) == Some(&Value::Text(String::new())) {
            settings.remove(NAME);
        }
        let Some(left) = current.get(thing).and_then(name_of) else { continue };
        let is_left = settings.get(NAME).is_some_and(|name| *name != Value::Text(left.to_owned()));
        for (key, zero) in unknown().into_iter().filter(|_| is_left) {
            settings.entry(key).or_insert(zero);
        }
    }
}

/// The profiles that these appliances were given, as a file declares them: the figures that all of
/// one name have.
pub(super) fn of(things: &Things) -> Profiles {
    let mut all = Profiles::new();
    for settings in things.values() {
        let Some(name) = name_of(settings) else { continue };
        let figures = || FIGURES.map(|key| (key, settings.get(key).cloned())).into_iter();
        let first = || figures().filter_map(|(key, value)| Some((key, value?))).collect();
        let known: &mut Settings = all.entry(name.to_owned()).or_insert_with(first);
        for (key, value) in figures() {
            if known.get(key) != value.as_ref() {
                known.insert(key, Value::Number(0));
            }
        }
    }
    all
}

/// A thing's settings as a file with these profiles says them.
pub(super) fn named<'a>(settings: &'a Settings, all: &Profiles) -> Cow<'a, Settings> {
    let Some((name, own)) = name_of(settings).and_then(|name| Some((name, all.get(name)?))) else {
        return Cow::Borrowed(settings);
    };
    let mut said = settings.clone();
    said.remove(NAME);
    said.insert("profile", Value::Text(name.to_owned()));
    said.retain(|key, value| own.get(key) != Some(value));
    Cow::Owned(said)
}

/// The name of an operator's own profile that an appliance has.
fn name_of(settings: &Settings) -> Option<&str> {
    match (settings.get("profile"), settings.get(NAME)) {
        (Some(Value::Text(usual)), Some(Value::Text(name)))
            if usual == "none" && !name.is_empty() =>
        {
            Some(name)
        }
        _ => None,
    }
}

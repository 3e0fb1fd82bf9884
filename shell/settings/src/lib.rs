//! The configuration of a program: a TOML file, then the environment, read by serde into the type
//! that the program uses.
//!
//! A setting `key` of section `[section]` is `PREFIX_SECTION_KEY` in the environment, with the same
//! forms as in the file: `["10.0.0.0/8"]`, `7`; a text without quotes. Unknown keys are refused if
//! the type denies them, and a mistake is shown with its line.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use model::topology::Prefix;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {error}")]
    Read { path: PathBuf, error: std::io::Error },
    /// Not TOML, an unknown key, or a value of the wrong kind.
    #[error("{source_name}: {message}")]
    Form {
        source_name: String,
        /// What was wrong, with its place.
        message: String,
    },
    #[error("{}{key}: {message}", of_section(section))]
    Value {
        /// Empty for a setting before all sections.
        section: &'static str,
        key: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

fn of_section(section: &str) -> String {
    if section.is_empty() { String::new() } else { format!("[{section}] ") }
}

/// A value that is refused, with a message that says what would be right.
pub fn wrong(section: &'static str, key: &'static str, message: impl Display) -> ConfigError {
    ConfigError::Value { section, key, message: message.to_string() }
}

/// A value that the configuration has as text: a quantity with its unit, a name, an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text<T>(pub T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl<T: Display> Serialize for Text<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// Deserializes a list of address ranges; an address alone is one of itself.
pub fn prefixes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Prefix>, D::Error> {
    let prefix = |text: &String| {
        let address = || text.parse::<IpAddr>().map(Prefix::from);
        text.parse::<Prefix>().or_else(|_| address()).map_err(|_| {
            let what = "is no range of addresses: write for example \"10.0.0.0/8\"";
            serde::de::Error::custom(format!("\"{text}\" {what}"))
        })
    };
    Vec::<String>::deserialize(deserializer)?.iter().map(prefix).collect()
}

/// The text with `…` for the passwords of URLs in it: `scheme://user:password@host`, and the
/// parameter `password`. O(length).
pub fn hide_passwords(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"'".contains(c);
    let hide = |word: &str| {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        let (before, at) = rest.rsplit_once('@').map_or((None, rest), |(of, at)| (Some(of), at));
        let user = before.map(|of| match of.split_once(':') {
            Some((user, _)) => format!("{user}:…@"),
            None => format!("{of}@"),
        });
        let (at, parameters) = at.split_once('?').map_or((at, None), |(at, of)| (at, Some(of)));
        let parameters = parameters.map(|of| {
            let each = of.split('&').map(|one| match one.split_once('=') {
                Some(("password", _)) => "password=…",
                _ => one,
            });
            format!("?{}", each.collect::<Vec<_>>().join("&"))
        });
        format!("{scheme}://{}{at}{}", user.unwrap_or_default(), parameters.unwrap_or_default())
    };
    text.split_inclusive(ends)
        .map(|word| {
            let end = word.find(ends).unwrap_or(word.len());
            hide(&word[..end]) + &word[end..]
        })
        .collect()
}

/// The source of each setting that is given, by `section.key`.
#[derive(Clone, Debug, Default)]
pub struct Origins(BTreeMap<String, String>);

/// The environment's variables that are UTF-8, which all of ours are.
pub fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}

/// Reads the file at `path`, then the variables of the environment that begin with `prefix`.
pub fn load<T: DeserializeOwned>(
    path: &Path,
    prefix: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(T, Origins), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError::Read { path: path.to_owned(), error })?;
    parse(&text, &path.display().to_string(), prefix, environment)
}

/// The same from the text of a file with this name.
pub fn parse<T: DeserializeOwned>(
    text: &str,
    name: &str,
    prefix: &str,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<(T, Origins), ConfigError> {
    let form = |source_name: &str, error: toml::de::Error| {
        let message = error.to_string().replace("expected usize", "a whole number is wanted");
        let message = hide_passwords(&message);
        ConfigError::Form { source_name: source_name.to_owned(), message }
    };
    // From the text, so that a mistake is shown with its line.
    let mut settings: T = toml::from_str(text).map_err(|error| form(name, error))?;
    let mut table: Table = toml::from_str(text).map_err(|error| form(name, error))?;
    let mut origins = Origins::of(&table, name);
    for (variable, value) in environment {
        let Some(setting) = variable.strip_prefix(prefix) else { continue };
        let key = overlay(&mut table, setting, &value);
        settings = table.clone().try_into().map_err(|error| form(&variable, error))?;
        origins.set(&key, variable);
    }
    Ok((settings, origins))
}

impl Origins {
    fn of(table: &Table, name: &str) -> Self {
        let mut origins = Self::default();
        for (key, value) in table {
            match value.as_table() {
                Some(section) => {
                    section.keys().for_each(|of| origins.set(&format!("{key}.{of}"), name.into()));
                }
                None => origins.set(key, name.into()),
            }
        }
        origins
    }

    /// Whether the setting is in the file or in the environment.
    pub fn is_given(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Notes the source of a value that was found in another way.
    pub fn set(&mut self, key: &str, origin: String) {
        self.0.insert(key.to_owned(), origin);
    }

    /// Each value with its source, as TOML with comments.
    pub fn describe(&self, settings: &impl Serialize) -> String {
        let line = |full: &str, key: &str, value: &Value| {
            let origin = self.0.get(full).map_or("default", String::as_str);
            format!("{:<40} # {origin}\n", format!("{key} = {value}"))
        };
        let table = Table::try_from(settings).expect("settings are TOML");
        let (sections, values): (Vec<_>, Vec<_>) = table
            .iter()
            .partition(|(_, value)| matches!(value, Value::Table(of) if !of.is_empty()));
        let values = values.into_iter().filter(|(_, value)| !value.is_table());
        let mut out: String = values.map(|(key, value)| line(key, key, value)).collect();
        for (section, keys) in sections {
            out.push_str(&format!("\n[{section}]\n"));
            for (key, value) in keys.as_table().into_iter().flatten() {
                out.push_str(&line(&format!("{section}.{key}"), key, value));
            }
        }
        out
    }
}

/// Puts `SECTION_KEY=value` into the table; its key. A value is TOML where it parses as such, else
/// text.
fn overlay(table: &mut Table, setting: &str, value: &str) -> String {
    let setting = setting.to_ascii_lowercase();
    let parsed = toml::from_str::<Table>(&format!("v = {value}"))
        .ok()
        .and_then(|mut table| table.remove("v"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let Some((section, key)) = setting.split_once('_') else {
        table.insert(setting.clone(), parsed);
        return setting;
    };
    let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Some(inner) = entry.as_table_mut() {
        inner.insert(key.to_owned(), parsed);
    }
    format!("{section}.{key}")
}

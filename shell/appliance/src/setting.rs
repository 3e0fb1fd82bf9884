//! One setting as the configuration has it, and the errors of settings.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    #[error("[{section}] {key}: {message}")]
    Value {
        section: &'static str,
        key: &'static str,
        /// What is wrong and what would be right.
        message: String,
    },
}

/// A value that the configuration has as text: a quantity with its unit, a name, an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

pub(crate) fn wrong(section: &'static str, key: &'static str, message: String) -> ConfigError {
    ConfigError::Value { section, key, message }
}
